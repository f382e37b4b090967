"""Every table of the results database: columns, types, units, meaning.

`schema` prints these objects and makes the tables from them, so what is documented and what
is there cannot differ. The views are in `views`; `terms` has the words used here.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from backtester.store.score_tables import LEDGER, SCORE_TABLES
from backtester.store.terms import RANK_MEANING, RATING_RANK, Table, col

_RUN: Final = col("run_id", "VARCHAR", "", "Run.")
_CELL: Final = (
    _RUN,
    col("ticker", "VARCHAR", "", "Instrument id, stable over renames (META).", source="key.ticker"),
    col("session", "DATE", "session", "Decision session.", source="key.session"),
    col("trial", "INTEGER", "", "Repeat number of the cell, from 0.", source="key.trial"),
)
_OWNED: Final = (
    _RUN,
    col("ticker", "VARCHAR", "", "Ticker of the cell.", source="owner.key.ticker"),
    col("session", "DATE", "session", "Session of the cell.", source="owner.key.session"),
    col("trial", "INTEGER", "", "Trial of the cell.", source="owner.key.trial"),
)
_KEY: Final = ("run_id", "session", "ticker", "trial")

RUNS: Final = Table(
    name="runs",
    meaning="One run: what it is, what it ran on, how it stands. From its manifest.",
    key=("run_id",),
    columns=(
        _RUN,
        col(
            "status", "VARCHAR", "", "started, stopped, budget_reached or finished.", repeats=False
        ),
        col(
            "evidence",
            "VARCHAR",
            "",
            "recorded (prompts and replies are kept), or external: no prompts, no leak proof.",
        ),
        col(
            "created_at",
            "TIMESTAMP",
            "UTC",
            "When it was started.",
            null="not recorded",
            repeats=False,
        ),
        col(
            "finished_at",
            "TIMESTAMP",
            "UTC",
            "When it ended.",
            null="not finished",
            repeats=False,
        ),
        col("snapshot_id", "VARCHAR", "", "Content hash of the snapshot.", null="not recorded"),
        col("snapshot_name", "VARCHAR", "", "Its name.", null="not recorded"),
        col(
            "prompt_fingerprint",
            "VARCHAR",
            "",
            "Hash of prompts, tools, schemas and topology.",
            null="not recorded",
        ),
        col("results_version", "INTEGER", "", "Version of the rules.", null="not recorded"),
        col("results_root", "VARCHAR", "", "Hash over the results.", null="not finished"),
        col("cells_planned", "INTEGER", "cells", "Cells of the grid.", null="not recorded"),
        col("tickers", "VARCHAR[]", "", "Instruments.", null="not recorded"),
        col("first_date", "DATE", "date", "First date of the grid.", null="not recorded"),
        col("last_date", "DATE", "date", "Last date of the grid.", null="not recorded"),
        col("grid", "VARCHAR", "", "daily, weekly, ... or a JSON list.", null="not recorded"),
        col("decision_time", "VARCHAR", "", "close or open.", null="not recorded"),
        col("horizon", "INTEGER", "sessions", "Decision to exit.", null="not recorded"),
        col("entry_rule", "VARCHAR", "", "Fill rule.", null="not recorded"),
        col("benchmark", "VARCHAR", "", "Explicit benchmark.", null="chosen by suffix"),
        col("memory_scope", "VARCHAR", "", "portfolio, ticker or off.", null="not recorded"),
        col("trials", "INTEGER", "", "Repeats of each cell.", null="not recorded"),
        col("provider", "VARCHAR", "", "Model provider.", null="not recorded"),
        col("quick_model", "VARCHAR", "", "Model of the quick tier.", null="not recorded"),
        col("deep_model", "VARCHAR", "", "Model of the deep tier.", null="not recorded"),
        col(
            "models",
            "VARCHAR",
            "JSON",
            "Model of each tier, with its knowledge cutoff, when that was looked up, and where.",
            null="not recorded",
        ),
        col("identity", "VARCHAR", "JSON", "All that can change an answer.", null="not recorded"),
        col("config", "VARCHAR", "JSON", "Configuration.", null="not recorded", repeats=False),
        col("versions", "VARCHAR", "JSON", "Packages.", null="not recorded", repeats=False),
        col(
            "source_commit",
            "VARCHAR",
            "",
            "Commit of the source checkout.",
            null="no checkout",
            repeats=False,
        ),
    ),
)

CELLS: Final = Table(
    name="cells",
    meaning="One decision of a run, decided or not; `backtester transcript` prints its prompts.",
    key=_KEY,
    columns=(
        *_CELL,
        col("symbol", "VARCHAR", "", "Symbol valid at the cutoff (FB)."),
        col("cutoff", "TIMESTAMP", "UTC", "Instant up to which the world was known."),
        col("status", "cell_status", "", "done, unread, failed, no_data or skipped_budget."),
        col("error_class", "VARCHAR", "", "Word for what went wrong.", null="nothing did"),
        col(
            "error",
            "VARCHAR",
            "",
            "One line on what went wrong.",
            null="nothing did",
            repeats=False,
        ),
        col("rating", "rating", "", "The decision; never Hold for want of one.", null="none read"),
        col(
            "rating_rank",
            "INTEGER",
            "",
            RANK_MEANING,
            null="none read",
            source="rating",
            read=RATING_RANK.get,
        ),
        col("rating_source", "VARCHAR", "", "How the rating was read; 'none' where it was not."),
        col("typed", "VARCHAR", "JSON", "The typed decision; 'null' where there is none."),
        col("lessons_hash", "VARCHAR", "sha256", "Hash of the lessons that the cell was shown."),
        col(
            "lessons_shown",
            "VARCHAR[]",
            "",
            "Those lessons, as ticker|session|trial, newest first.",
        ),
        col(
            "book_hash",
            "VARCHAR",
            "sha256",
            "Hash of the book that the cell was shown.",
            null="no book was shown",
            read=lambda shown: shown or None,
        ),
        col("degraded", "BOOLEAN", "", "A core tool failed on the way."),
        col("scored", "BOOLEAN", "", "False for warm-up sessions, which no view counts."),
        col(
            "knowledge",
            "knowledge",
            "",
            "before: the session lies on or before the knowledge cutoff of one of the run's "
            "models, which may have learned what followed. after: it lies after those of all. "
            "unknown: neither is known.",
            source="key.session",
        ),
        col("steps", "INTEGER", "steps", "Graph steps that ran."),
        col("n_calls", "INTEGER", "calls", "Model calls.", source="calls", read=len),
        col(
            "n_outcomes",
            "INTEGER",
            "calls",
            "Attempts that ended without an answer, and a call that a cap of the cell forbade.",
            source="outcomes",
            read=len,
        ),
        col("wall_s", "DOUBLE", "seconds", "Wall time of the cell.", repeats=False),
    ),
)

RETURNS: Final = Table(
    name="returns",
    meaning=(
        "What one decision earned over its window, under one score. Windows overlap when the grid "
        "is finer than the horizon: average these rows, never chain them."
    ),
    key=("run_id", "score_id", "session", "ticker", "trial"),
    columns=(
        *_CELL,
        col("score_id", "VARCHAR", "", "Score; 'default' is the run's own."),
        col("status", "return_status", "", "resolved, pending, missing_bar, conflict, delisted."),
        col("reason", "VARCHAR", "", "Why it is not resolved.", null="resolved"),
        col("horizon", "INTEGER", "sessions", "Decision session to exit."),
        col("entry_rule", "VARCHAR", "", "next_open, next_close, close or open."),
        col("entry_session", "DATE", "session", "Session of the fill.", null="no fill"),
        col("exit_session", "DATE", "session", "Session of the exit.", null="no exit yet"),
        col("entry_at", "TIMESTAMP", "UTC", "Instant of the fill.", null="no fill"),
        col("entry_price", "DOUBLE", "currency", "Price paid, as traded.", null="no fill"),
        col("exit_price", "DOUBLE", "currency", "Close at the exit, as traded.", null="no exit"),
        col("split_factor", "DOUBLE", "shares", "Shares held per share bought.", null="no exit"),
        col("dividends", "DOUBLE", "currency", "Paid per share bought.", null="no exit"),
        col("raw_price", "DOUBLE", "fraction", "Return without dividends.", null="not resolved"),
        col(
            "raw_total",
            "DOUBLE",
            "fraction",
            "Return with dividends: 'return' everywhere.",
            null="not resolved",
        ),
        col("currency", "VARCHAR", "", "Currency of the quotes.", null="unknown"),
        col("benchmark", "VARCHAR", "", "Benchmark.", null="none is known"),
        col("benchmark_source", "VARCHAR", "", "explicit, suffix or none."),
        col("benchmark_basis", "VARCHAR", "", "price or total.", null="no benchmark"),
        col("benchmark_currency", "VARCHAR", "", "Its currency.", null="no benchmark"),
        col("benchmark_entry_date", "DATE", "session", "Its entry bar.", null="no benchmark bar"),
        col("benchmark_exit_date", "DATE", "session", "Its exit bar.", null="no benchmark bar"),
        col("benchmark_return", "DOUBLE", "fraction", "Its return.", null="see alpha_reason"),
        col(
            "alpha",
            "DOUBLE",
            "fraction",
            "Return on the benchmark's basis less the benchmark's.",
            null="see alpha_reason",
        ),
        col(
            "alpha_cc",
            "DOUBLE",
            "fraction",
            "Likewise, both legs close of d to close of d+h; an imported decision may be of a date "
            "after that close (cells.cutoff).",
            null="see alpha_reason",
        ),
        col("alpha_reason", "VARCHAR", "", "Why alpha is NULL.", null="alpha is there"),
        col("direction", "INTEGER", "", "+1, 0 or -1 by rating.", null="no rating"),
        col(
            "directional_alpha",
            "DOUBLE",
            "fraction",
            "direction * alpha.",
            null="no rating or no alpha",
        ),
        col("flags", "VARCHAR[]", "", "same_bar, index_open, currency_differs, haircut."),
        col("resolved_at", "TIMESTAMP", "UTC", "When the result was known.", null="pending"),
    ),
)

MEMORY: Final = Table(
    name="memory",
    meaning="The memory row of one decision, and the lesson drawn from it.",
    key=_KEY,
    columns=(
        *_CELL,
        col("resolved_at", "TIMESTAMP", "UTC", "From when it may be shown.", null="still waiting"),
        col("rating", "rating", "", "The decision.", null="none read"),
        col("raw_return", "DOUBLE", "fraction", "Return with dividends.", null="not resolved"),
        col("alpha", "DOUBLE", "fraction", "Alpha.", null="not resolved, or no benchmark"),
        col("lesson_status", "lesson_status", "", "written, failed, off, no_rating or waiting."),
        col("lesson", "VARCHAR", "text", "The lesson; empty unless written."),
        col("decision_hash", "VARCHAR", "sha256", "Hash of decision and return reflected on."),
        col("error", "VARCHAR", "", "Why it failed.", null="it did not", repeats=False),
        col("n_calls", "INTEGER", "calls", "Model calls.", source="calls", read=len),
    ),
)

LLM_CALLS: Final = Table(
    name="llm_calls",
    meaning="One model call (or attempt) of a decision or of a lesson.",
    key=(*_KEY, "phase", "seq"),
    columns=(
        *_OWNED,
        col(
            "phase",
            "VARCHAR",
            "",
            "decision, lesson, or superseded: a try of the cell, or of its lesson, that another "
            "one replaced.",
        ),
        col("seq", "INTEGER", "", "Position in the cell, from 0."),
        col("node", "VARCHAR", "", "Node of the graph, or Reflector."),
        col("call_index", "INTEGER", "", "Position in the node, by message.", source="index"),
        col("attempt", "INTEGER", "", "0, then 1.. for repairs."),
        col("key", "VARCHAR", "sha256", "Cache key."),
        col("reply_hash", "VARCHAR", "sha256", "Hash of the normalised reply."),
        col("finish_reason", "VARCHAR", "", "As answered; 'outcome:<kind>' where no answer came."),
        col("hit", "BOOLEAN", "", "Served from the cache.", repeats=False),
        col("provider", "VARCHAR", "", "Provider."),
        col("model", "VARCHAR", "", "Model asked for."),
        col("input_tokens", "BIGINT", "tokens", "As reported.", null="not reported", repeats=False),
        col(
            "output_tokens", "BIGINT", "tokens", "As reported.", null="not reported", repeats=False
        ),
        col(
            "cached_tokens",
            "BIGINT",
            "tokens",
            "Of the input tokens: found in a cache of the provider's own.",
            null="not reported",
            repeats=False,
        ),
        col(
            "cost_usd",
            "DOUBLE",
            "USD",
            "What the call cost; 0 for a hit.",
            null="price unknown",
            repeats=False,
        ),
        col(
            "saved_usd",
            "DOUBLE",
            "USD",
            "What a hit saved.",
            null="price unknown",
            repeats=False,
        ),
        col("latency_s", "DOUBLE", "seconds", "Wall time of the call.", repeats=False),
        col("retries", "INTEGER", "", "How often the transport tried again.", repeats=False),
    ),
)

# What a command pays depends on what was recorded before it.
_wall: Final = partial(col, repeats=False)

SPEND: Final = Table(
    name="spend",
    meaning=(
        "One paid call, from the run's spend ledger: written before its reply was used, so it "
        "counts also what a killed command had paid for and lost."
    ),
    key=("run_id", "seq"),
    columns=(
        _RUN,
        _wall("seq", "INTEGER", "", "Position in the ledger, from 0."),
        _wall("paid_at", "TIMESTAMP", "UTC", "Wall time of the reply."),
        _wall("cell", "VARCHAR", "", "Cell, as ticker|session|trial."),
        _wall("node", "VARCHAR", "", "Node of the graph, or Reflector."),
        _wall("call_index", "INTEGER", "", "Position in the node, by message.", source="index"),
        _wall("attempt", "INTEGER", "", "0, then 1.. for repairs."),
        _wall("key", "VARCHAR", "sha256", "Cache key."),
        _wall("provider", "VARCHAR", "", "Provider."),
        _wall("model", "VARCHAR", "", "Model asked for."),
        _wall(
            "finish_reason",
            "VARCHAR",
            "",
            "As answered; 'outcome:<kind>' for none; 'lost' where it could not be read, yet may "
            "be billed.",
        ),
        _wall("input_tokens", "BIGINT", "tokens", "As reported.", null="not reported"),
        _wall("output_tokens", "BIGINT", "tokens", "As reported.", null="not reported"),
        _wall("cached_tokens", "BIGINT", "tokens", "As reported.", null="not reported"),
        _wall("cost_usd", "DOUBLE", "USD", "What it cost.", null="price unknown"),
        _wall(
            "counted_usd",
            "DOUBLE",
            "USD",
            "What caps count: the cost, or an estimate where no tokens were reported.",
        ),
    ),
)

READS: Final = Table(
    name="reads",
    meaning="One read of the snapshot by a cell, as its view logged it.",
    key=(*_KEY, "seq"),
    columns=(
        *_OWNED,
        col("seq", "INTEGER", "", "Position in the cell, from 0."),
        col("node", "VARCHAR", "", "Node that read; 'harness' outside the graph."),
        col("call_index", "INTEGER", "", "Position of the tool call in the node.", source="index"),
        col("tool", "VARCHAR", "", "Tool; empty for the harness."),
        col("source_table", "VARCHAR", "", "Table of the snapshot.", source="table"),
        col("instrument", "VARCHAR", "", "Instrument read; empty for none.", source="symbol"),
        col("window_start", "DATE", "date", "First date, clamped.", null="open", source="start"),
        col("window_end", "DATE", "date", "Last date, clamped.", null="open", source="end"),
        col("n_rows", "BIGINT", "rows", "Rows returned.", source="rows"),
        col("max_known_at", "TIMESTAMP", "UTC", "Newest known_at returned.", null="no row"),
        col("clamped", "BOOLEAN", "", "A later date had been asked for."),
        col("dropped", "BIGINT", "rows", "Undated rows left out."),
        col("withheld", "BIGINT", "rows", "Rows left out: their known_at is an estimate."),
    ),
)

TABLES_OF_A_RUN: Final = (RUNS, CELLS, RETURNS, MEMORY, LLM_CALLS, READS, SPEND, *SCORE_TABLES)
TABLES: Final = (*TABLES_OF_A_RUN, LEDGER)


def table_statements() -> tuple[str, ...]:
    """Return the statements that create the tables."""
    made = []
    for table in TABLES:
        columns = ", ".join(
            f"{column.name} {column.type}{'' if column.null else ' NOT NULL'}"
            for column in table.columns
        )
        made.append(f"CREATE TABLE {table.name} ({columns})")
    return tuple(made)
