"""The tables of scores: what was scored, books, figures, and the ledger of what was tried."""

from __future__ import annotations

from typing import Final

from backtester.store.terms import Table, col

_OF_A_SCORE: Final = (
    col("run_id", "VARCHAR", "", "Run."),
    col("score_id", "VARCHAR", "", "Score; 'default' is the run's own."),
)
_BOOK: Final = col(
    "book",
    "VARCHAR",
    "",
    "ratings (the run's own), or a baseline: buy_and_hold, equal_weight, macd:textbook, ...",
)
_LANE: Final = col("trial", "INTEGER", "", "Lane of the run's book; 0 for a baseline.")
_MONEY: Final = "currency of the book"

SCORES: Final = Table(
    name="scores",
    meaning="One score of a run: the rules under which its stored decisions were scored.",
    key=("run_id", "score_id"),
    columns=(
        *_OF_A_SCORE,
        col("label", "VARCHAR", "", "What it differs by from the run's own, in words of flags."),
        col("policy", "VARCHAR", "", "What a rating is worth: its name."),
        col("hold", "VARCHAR", "", "What Hold does: carry or flat."),
        col("weights", "VARCHAR", "JSON", "Rating to part of the slot; null carries."),
        col("costs", "VARCHAR", "JSON", "Commission, slippage, borrowing, cash."),
        col("horizon", "INTEGER", "sessions", "Decision to exit, in table returns."),
        col("horizons", "INTEGER[]", "sessions", "All that figures are given for."),
        col("entry_rule", "VARCHAR", "", "Fill rule."),
        col("decision_time", "VARCHAR", "", "close or open, as in the run."),
        col("benchmark", "VARCHAR", "", "Explicit benchmark.", null="chosen by market"),
        col("universe", "VARCHAR[]", "", "Instruments."),
        col("first_date", "DATE", "date", "First day of the window of decisions."),
        col("last_date", "DATE", "date", "Last day."),
        col("fold", "VARCHAR", "", "Length of the walk-forward folds.", null="none wanted"),
        col("slots", "INTEGER", "slots", "Parts of the book.", null="one a ticker"),
        col("rebalance", "VARCHAR", "", "on_change or always."),
        col("fractional", "BOOLEAN", "", "The book trades parts of a share."),
        col("start_cash", "DOUBLE", _MONEY, "Of the book."),
        col("haircut", "DOUBLE", "fraction", "Taken off the last close of a delisted holding."),
        col("rf_annual", "DOUBLE", "fraction/year", "Risk-free rate."),
        col("placebo_draws", "INTEGER", "books", "Random books to compare with."),
        col("seed", "BIGINT", "", "Of everything drawn."),
        col("snapshot_id", "VARCHAR", "", "Content hash of the snapshot that it was scored on."),
        col("snapshot_name", "VARCHAR", "", "Its name.", repeats=False),
        col("model_cost_charged", "BOOLEAN", "", "The models' bill is taken out of the book."),
        col("no_book", "VARCHAR", "", "Why there is no book.", null="there is one"),
        col(
            "known_trials",
            "BIGINT",
            "trials",
            "Distinct trials that shared instruments and days with it when it was made: at least.",
            repeats=False,
        ),
        col(
            "family_trials",
            "BIGINT",
            "trials",
            "Of those: of exactly this universe and window.",
            null="scored by an older release",
            repeats=False,
        ),
        col("definition", "VARCHAR", "JSON", "All that the score is a function of."),
    ),
)

HORIZON_RETURNS: Final = Table(
    name="horizon_returns",
    meaning="What one scored decision earned to one of the score's horizons, its own among them.",
    key=("run_id", "score_id", "session", "ticker", "trial", "horizon"),
    columns=(
        *_OF_A_SCORE,
        col("ticker", "VARCHAR", "", "Instrument id."),
        col("session", "DATE", "session", "Decision session."),
        col("trial", "INTEGER", "", "Repeat number."),
        col("horizon", "INTEGER", "sessions", "Decision to exit."),
        col("status", "return_status", "", "Of this return."),
        col("exit_session", "DATE", "session", "Session of the exit.", null="no exit yet"),
        col("raw_total", "DOUBLE", "fraction", "Return with dividends.", null="see reason"),
        col("benchmark_return", "DOUBLE", "fraction", "The benchmark's.", null="see reason"),
        col(
            "alpha",
            "DOUBLE",
            "fraction",
            "Window excess: return less the benchmark's, on its basis.",
            null="see reason",
        ),
        col(
            "geometric_alpha",
            "DOUBLE",
            "fraction",
            "(1 + return) / (1 + benchmark's) - 1, on its basis.",
            null="see reason",
        ),
        col("directional_alpha", "DOUBLE", "fraction", "direction * alpha.", null="see reason"),
        col("reason", "VARCHAR", "", "Why return or alpha is NULL.", null="both are there"),
    ),
)

ORDERS: Final = Table(
    name="orders",
    meaning=(
        "One order of a simulated book. A decision that wants no trade (carried, or for the weight "
        "already held) makes none."
    ),
    key=("run_id", "score_id", "book", "trial", "seq"),
    columns=(
        *_OF_A_SCORE,
        _BOOK,
        _LANE,
        col("seq", "INTEGER", "", "Position in the book, by fill, from 0."),
        col("session", "DATE", "session", "Decision session; of a delisting its last session."),
        col("ticker", "VARCHAR", "", "Instrument id."),
        col("fill_session", "DATE", "session", "Session of the fill.", null="beyond the calendar"),
        col("fill_at", "TIMESTAMP", "UTC", "Its instant.", null="beyond the calendar"),
        col("side", "VARCHAR", "", "buy, sell, short or cover."),
        col("shares", "DOUBLE", "shares", "Traded, 0 or more."),
        col("price", "DOUBLE", "quote currency", "Fill, after slippage.", null="nothing filled"),
        col("reference_price", "DOUBLE", "quote currency", "Of the bar, before it.", null="no bar"),
        col("notional", "DOUBLE", _MONEY, "shares * price."),
        col("asked", "DOUBLE", _MONEY, "Cash wanted in (+) or out.", null="never sized"),
        col("commission", "DOUBLE", _MONEY, "Paid beside the price."),
        col("slippage", "DOUBLE", _MONEY, "Lost to the worse price."),
        col("status", "VARCHAR", "", "filled, partial, rejected, or pending at the end."),
        col("reason", "VARCHAR", "", "Why not filled whole.", null="filled whole"),
        col("target_weight", "DOUBLE", "fraction", "Of the slot, as wanted.", null="none"),
        col("currency", "VARCHAR", "", "Quote currency.", null="unknown"),
        col("flags", "VARCHAR[]", "", "same_bar, index_open, delisted, haircut."),
    ),
)

POSITIONS: Final = Table(
    name="positions",
    meaning="One ticker in the book of the ratings at one session's close, from its first fill on.",
    key=("run_id", "score_id", "book", "trial", "session", "ticker"),
    columns=(
        *_OF_A_SCORE,
        col("book", "VARCHAR", "", "ratings: the run's own; none are kept of other books."),
        col("trial", "INTEGER", "", "Lane of the run's book."),
        col("session", "DATE", "session", "Session."),
        col("ticker", "VARCHAR", "", "Instrument id."),
        col("shares", "DOUBLE", "shares", "Held; below zero for a short position."),
        col("close", "DOUBLE", "quote currency", "Last close known.", null="none"),
        col("value", "DOUBLE", _MONEY, "shares * close."),
        col("weight", "DOUBLE", "fraction", "Of the equity.", null="the equity is not above 0"),
        col("gain", "DOUBLE", _MONEY, "Brought since the start, costs and dividends included."),
        col("currency", "VARCHAR", "", "Quote currency.", null="unknown"),
        col("stale", "BOOLEAN", "", "The close is older than the ticker's last session."),
    ),
)

EQUITY: Final = Table(
    name="equity",
    meaning=(
        "A simulated book at the close of one session: cash + positions_value = equity. Flows are "
        "those since the row before."
    ),
    key=("run_id", "score_id", "book", "trial", "session"),
    columns=(
        *_OF_A_SCORE,
        _BOOK,
        _LANE,
        col("session", "DATE", "session", "Session of the union of the calendars."),
        col("closed_at", "TIMESTAMP", "UTC", "Its latest close."),
        col("cash", "DOUBLE", _MONEY, "Balance."),
        col("positions_value", "DOUBLE", _MONEY, "Of all positions, short ones below zero."),
        col("equity", "DOUBLE", _MONEY, "Both."),
        col("gross", "DOUBLE", "fraction", "Sizes of positions / equity.", null="no equity"),
        col("net", "DOUBLE", "fraction", "Positions / equity.", null="no equity"),
        col("traded", "DOUBLE", _MONEY, "Notional of all fills."),
        col("commission", "DOUBLE", _MONEY, "Paid."),
        col("slippage", "DOUBLE", _MONEY, "Lost to worse prices."),
        col("dividends", "DOUBLE", _MONEY, "Received, less those paid on short positions."),
        col("interest", "DOUBLE", _MONEY, "On cash."),
        col("borrow", "DOUBLE", _MONEY, "Paid for short positions."),
        col("model_cost", "DOUBLE", "USD", "The models' bill up to here.", null="not charged"),
        col("ret", "DOUBLE", "fraction", "Return since the row before.", null="first row"),
        col("stale", "BOOLEAN", "", "A position is valued at an old close."),
    ),
)

METRICS: Final = Table(
    name="metrics",
    meaning=(
        "One figure of a score. subject says of what: decisions, or a book; scope and member say "
        "of which part of the decisions. An empty value, or an empty interval, has its reason."
    ),
    key=("run_id", "score_id", "subject", "trial", "scope", "member", "horizon", "metric"),
    columns=(
        *_OF_A_SCORE,
        col("subject", "VARCHAR", "", "decisions, ratings (book), a baseline, or placebo."),
        col("trial", "INTEGER", "", "Lane.", null="all lanes together"),
        col("scope", "VARCHAR", "", "all, ticker, rating, month or fold."),
        col("member", "VARCHAR", "", "Which ticker, rating, month or fold; 'all'."),
        col("horizon", "INTEGER", "sessions", "Decision to exit.", null="a figure of a book"),
        col("metric", "VARCHAR", "", "Name of the figure; see docs/statistics.md."),
        col("value", "DOUBLE", "see unit", "The figure.", null="see reason"),
        col("unit", "VARCHAR", "", "Its unit."),
        col("n", "BIGINT", "rows", "Rows that it came from."),
        col("sessions", "BIGINT", "sessions", "Decision sessions among them.", null="no mean"),
        col(
            "effective_n",
            "DOUBLE",
            "rows",
            "Independent rows that would say as much.",
            null="no interval",
        ),
        col("low", "DOUBLE", "see unit", "Lower end of its interval.", null="see reason"),
        col("high", "DOUBLE", "see unit", "Upper end.", null="see reason"),
        col("level", "DOUBLE", "fraction", "Of the interval.", null="no interval"),
        col("p_value", "DOUBLE", "fraction", "Of no effect, two-sided.", null="no test"),
        col("method", "VARCHAR", "", "How interval, band or p-value were had.", null="none"),
        col("reason", "VARCHAR", "", "Why value or interval is NULL.", null="both are there"),
    ),
)

EVENT_STUDY: Final = Table(
    name="event_study",
    meaning="The mean path of prices around decisions of one rating, less the benchmark's.",
    key=("run_id", "score_id", "rating", "session_offset"),
    columns=(
        *_OF_A_SCORE,
        col("rating", "rating_row", "", "Rating; 'unread' where none was read."),
        col(
            "session_offset",
            "INTEGER",
            "sessions",
            "From the close of the decision's session, -10 to 20; of the one after where an "
            "imported decision bears a date after that close.",
        ),
        col("n", "BIGINT", "cells", "Decisions with all closes for this offset."),
        col("mean_excess", "DOUBLE", "fraction", "Of that one session.", null="see reason"),
        col(
            "mean_path",
            "DOUBLE",
            "fraction",
            "From the decision's close to this one; before it with the sign turned.",
            null="see reason",
        ),
        col("stddev_path", "DOUBLE", "fraction", "Sample deviation of it.", null="n < 2"),
        col("reason", "VARCHAR", "", "Why there is none.", null="there is one"),
    ),
)

LEDGER: Final = Table(
    name="ledger",
    meaning=(
        "One line of the ledger of scores, which outlives the runs: a trial counts also after its "
        "run was deleted."
    ),
    key=("line",),
    columns=(
        col("line", "INTEGER", "", "Position in the ledger, from 0.", repeats=False),
        col("run_id", "VARCHAR", "", "Run that was scored."),
        col("score_id", "VARCHAR", "", "Score."),
        col("lane", "INTEGER", "", "Trial of the run whose book it is."),
        col("family", "VARCHAR", "sha256", "Universe and window."),
        col(
            "trial_hash", "VARCHAR", "sha256", "What was tried; equal ones are one.", source="trial"
        ),
        col("universe", "VARCHAR[]", "", "Instruments."),
        col("first_date", "DATE", "date", "First day of the window.", source="first"),
        col("last_date", "DATE", "date", "Last day.", source="last"),
        col("sharpe", "DOUBLE", "ratio", "Of the book, a session.", null="it has none"),
        col("n", "BIGINT", "sessions", "Returns that it came from."),
        col("definition", "VARCHAR", "JSON", "The score's definition."),
    ),
)

SCORE_TABLES: Final = (
    SCORES,
    HORIZON_RETURNS,
    ORDERS,
    POSITIONS,
    EQUITY,
    METRICS,
    EVENT_STUDY,
)
"""Tables whose rows belong to a run; `LEDGER` belongs to the workspace."""
