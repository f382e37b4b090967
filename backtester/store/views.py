"""Every view of the results database: the question, the columns, the SELECT that answers it.

Returns of overlapping windows share days. No view chains or adds them: there are means, with the
number of windows that overlap an earlier one beside them, and no total.
"""

from __future__ import annotations

from typing import Final

from backtester.store.money import CACHE_EFFICIENCY, COST_BY_DAY, COST_BY_NODE
from backtester.store.score_views import SCORE_VIEWS
from backtester.store.terms import RANK_MEANING, UNREAD, Column, View, col, with_all_scores

_NOTE_MEANS: Final = (
    "Scored decisions only. Means of windows that may overlap (see overlapping_windows): they are "
    "averaged, never chained, and there is no total. Every mean is over the rows that have the "
    "value (n_return, n_benchmark, n_alpha, n_directional). A delisted window with a number counts."
)

_GROUP: Final = (
    col("run_id", "VARCHAR", "", "Run."),
    col("score_id", "VARCHAR", "", "Score; 'default' is the run's own."),
)

_RATING: Final = col("rating", "rating_row", "", "Sell ... Buy, then 'unread': no rating was read.")

_RANK: Final = col("rating_rank", "INTEGER", "", RANK_MEANING, null="unread")

_MEASURES: Final = (
    col("n", "BIGINT", "cells", "Decisions."),
    col("resolved", "BIGINT", "cells", "Return known, whole window."),
    col("pending", "BIGINT", "cells", "Window not over, or not settled yet."),
    col("missing_bar", "BIGINT", "cells", "No return: a bar is missing."),
    col("conflict", "BIGINT", "cells", "No return: bars contradict each other."),
    col("delisted", "BIGINT", "cells", "Stopped trading within the window."),
    col("n_return", "BIGINT", "cells", "Decisions with a return."),
    col("mean_return", "DOUBLE", "fraction", "Mean of raw_total.", null="n_return is 0"),
    col("stddev_return", "DOUBLE", "fraction", "Sample deviation.", null="n_return < 2"),
    col("n_benchmark", "BIGINT", "cells", "Decisions with a benchmark return."),
    col("mean_benchmark_return", "DOUBLE", "fraction", "Its mean.", null="n_benchmark is 0"),
    col("n_alpha", "BIGINT", "cells", "Decisions with an alpha."),
    col("mean_alpha", "DOUBLE", "fraction", "Mean alpha, unsigned.", null="n_alpha is 0"),
    col("stddev_alpha", "DOUBLE", "fraction", "Sample deviation.", null="n_alpha < 2"),
    col("n_directional", "BIGINT", "cells", "Decisions with a direction of +1 or -1 and an alpha."),
    col(
        "mean_directional_alpha",
        "DOUBLE",
        "fraction",
        "Mean of direction * alpha over those.",
        null="n_directional is 0",
    ),
    col("right_calls", "BIGINT", "cells", "Of those: directional alpha > 0."),
    col("exact_zeros", "BIGINT", "cells", "Of those: directional alpha = 0, counted as misses."),
    col(
        "hit_rate", "DOUBLE", "fraction", "right_calls / n_directional.", null="n_directional is 0"
    ),
    col("overlapping_windows", "BIGINT", "cells", "Windows that overlap an earlier one."),
)

# `d` is scored_decisions or a left join to it, so rows are counted by a column that is never NULL.
_MEASURES_SQL: Final = """
    count(d.ticker) AS n,
    count(*) FILTER (d.status = 'resolved') AS resolved,
    count(*) FILTER (d.status = 'pending') AS pending,
    count(*) FILTER (d.status = 'missing_bar') AS missing_bar,
    count(*) FILTER (d.status = 'conflict') AS conflict,
    count(*) FILTER (d.status = 'delisted') AS delisted,
    count(d.raw_total) AS n_return,
    exact_mean(d.raw_total) AS mean_return,
    exact_stddev(d.raw_total) AS stddev_return,
    count(d.benchmark_return) AS n_benchmark,
    exact_mean(d.benchmark_return) AS mean_benchmark_return,
    count(d.alpha) AS n_alpha,
    exact_mean(d.alpha) AS mean_alpha,
    exact_stddev(d.alpha) AS stddev_alpha,
    count(d.signed_alpha) AS n_directional,
    exact_mean(d.signed_alpha) AS mean_directional_alpha,
    count(*) FILTER (d.signed_alpha > 0) AS right_calls,
    count(*) FILTER (d.signed_alpha = 0) AS exact_zeros,
    count(*) FILTER (d.signed_alpha > 0) / nullif(count(d.signed_alpha), 0) AS hit_rate,
    count(*) FILTER (d.overlaps) AS overlapping_windows"""

# A group that has no rows counts none; a join of groups is quicker than one of all rows.
_MEASURED: Final = ", ".join(
    f"coalesce(m.{column.name}, 0) AS {column.name}"
    if column.type == "BIGINT"
    else f"m.{column.name}"
    for column in _MEASURES
)

SCORED_DECISIONS: Final = View(
    name="scored_decisions",
    question="What did each scored decision earn?",
    note="Cells that are done or unread, warm-up left out. The other alpha views group this one.",
    key=("run_id", "score_id", "session", "ticker", "trial"),
    columns=(
        *_GROUP,
        col("ticker", "VARCHAR", "", "Instrument id."),
        col("symbol", "VARCHAR", "", "Symbol valid at the cutoff."),
        col("session", "DATE", "session", "Decision session."),
        col("trial", "INTEGER", "", "Repeat number."),
        _RATING,
        _RANK,
        col("status", "return_status", "", "Of the return; pending where none was settled yet."),
        col("horizon", "INTEGER", "sessions", "Decision to exit.", null="not settled yet"),
        col("entry_rule", "VARCHAR", "", "Fill rule.", null="not settled yet"),
        col("entry_session", "DATE", "session", "Session of the fill.", null="no fill"),
        col("exit_session", "DATE", "session", "Session of the exit.", null="no exit yet"),
        col("raw_total", "DOUBLE", "fraction", "Return with dividends.", null="no return"),
        col("benchmark", "VARCHAR", "", "Benchmark.", null="none is known"),
        col("benchmark_basis", "VARCHAR", "", "price or total.", null="no benchmark"),
        col("benchmark_return", "DOUBLE", "fraction", "Its return.", null="no benchmark return"),
        col("alpha", "DOUBLE", "fraction", "Alpha.", null="see returns.alpha_reason"),
        col("direction", "INTEGER", "", "+1, 0 or -1.", null="no rating"),
        col(
            "signed_alpha",
            "DOUBLE",
            "fraction",
            "Directional alpha of calls that take a side.",
            null="Hold, no rating, or no alpha",
        ),
        col("knowledge", "knowledge", "", "before, after or unknown; see cells.knowledge."),
        col("overlaps", "BOOLEAN", "", "Shares days with an earlier window of ticker and trial."),
    ),
    # A window that ends at a close and one that begins at that very close share no day.
    sql=f"""
WITH joined AS (
    SELECT c.run_id, coalesce(r.score_id, 'default') AS score_id,
        c.ticker, c.symbol, c.session, c.trial,
        coalesce(c.rating::VARCHAR, '{UNREAD}')::rating_row AS rating,
        c.rating_rank,
        coalesce(r.status::VARCHAR, 'pending')::return_status AS status,
        r.horizon, r.entry_rule, r.entry_session, r.exit_session, r.raw_total,
        r.benchmark, r.benchmark_basis, r.benchmark_return, r.alpha, r.direction, c.knowledge,
        CASE WHEN r.direction <> 0 THEN r.directional_alpha END AS signed_alpha
    FROM cells c LEFT JOIN returns r USING (run_id, ticker, session, trial)
    WHERE c.scored AND c.status IN ('done', 'unread')
), dated AS (
    SELECT *, max(exit_session) OVER (
        PARTITION BY run_id, score_id, ticker, trial ORDER BY session
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
    FROM joined
)
SELECT run_id, score_id, ticker, symbol, session, trial, rating, rating_rank, status,
    horizon, entry_rule, entry_session, exit_session, raw_total,
    benchmark, benchmark_basis, benchmark_return, alpha, direction, signed_alpha, knowledge,
    coalesce(entry_session < before
        OR (entry_session = before AND entry_rule IN ('next_open', 'open')), false) AS overlaps
FROM dated""",
)


def _alpha_view(name: str, question: str, column: Column, expression: str) -> View:
    """Return a view with the measures of each group of one more column."""
    return View(
        name=name,
        question=question,
        note=_NOTE_MEANS,
        key=("run_id", "score_id", column.name),
        columns=(*_GROUP, column, *_MEASURES),
        sql=f"""
SELECT d.run_id, d.score_id, {expression} AS {column.name},{_MEASURES_SQL}
FROM scored_decisions_all d
GROUP BY d.run_id, d.score_id, {expression}""",
    )


ALPHA_BY_RATING: Final = View(
    name="alpha_by_rating",
    question="Did what was rated higher earn more?",
    note=_NOTE_MEANS + " Six rows for each run and score; a rating never given has n = 0.",
    key=("run_id", "score_id", "rating"),
    columns=(*_GROUP, _RATING, _RANK, *_MEASURES),
    sql=f"""
WITH wanted AS (
    SELECT run_id, score_id, unnest(enum_range(NULL::rating_row))::rating_row AS rating
    FROM (SELECT run_id, 'default' AS score_id FROM runs
        UNION SELECT DISTINCT run_id, score_id FROM returns)
), measured AS (
    SELECT d.run_id, d.score_id, d.rating,{_MEASURES_SQL}
    FROM scored_decisions_all d GROUP BY d.run_id, d.score_id, d.rating
)
SELECT w.run_id, w.score_id, w.rating,
    CASE WHEN w.rating <> '{UNREAD}' THEN enum_code(w.rating)::INTEGER - 2 END AS rating_rank,
    {_MEASURED}
FROM wanted w LEFT JOIN measured m USING (run_id, score_id, rating)""",
)

ALPHA_BY_TICKER: Final = _alpha_view(
    "alpha_by_ticker",
    "On which tickers was it right?",
    col("ticker", "VARCHAR", "", "Instrument id."),
    "d.ticker",
)

ALPHA_BY_KNOWLEDGE: Final = _alpha_view(
    "alpha_by_knowledge",
    "Was it right also where no model can have known what followed?",
    col("knowledge", "knowledge", "", "before, after or unknown; see cells.knowledge."),
    "d.knowledge",
)

ALPHA_BY_MONTH: Final = _alpha_view(
    "alpha_by_month",
    "When was it right?",
    col("month", "DATE", "date", "First day of the month of the decision session."),
    "date_trunc('month', d.session)::DATE",
)

HIT_RATE: Final = View(
    name="hit_rate",
    question="How often did a call that takes a side beat the benchmark in its direction?",
    note="Hold takes no side and unread has none: both are left out. A tie is a miss.",
    key=("run_id", "score_id", "side"),
    columns=(
        *_GROUP,
        col("side", "VARCHAR", "", "all, long (Buy, Overweight) or short (Sell, Underweight)."),
        col("n", "BIGINT", "cells", "Calls of that side with an alpha."),
        col("right_calls", "BIGINT", "cells", "Directional alpha > 0."),
        col("exact_zeros", "BIGINT", "cells", "Directional alpha = 0."),
        col("wrong_calls", "BIGINT", "cells", "Directional alpha < 0."),
        col("hit_rate", "DOUBLE", "fraction", "right_calls / n."),
        col("mean_directional_alpha", "DOUBLE", "fraction", "Mean of direction * alpha."),
    ),
    sql="""
WITH called AS (
    SELECT *, if(direction > 0, 'long', 'short') AS one_side
    FROM scored_decisions_all WHERE signed_alpha IS NOT NULL
)
SELECT run_id, score_id, coalesce(one_side, 'all') AS side,
    count(*) AS n,
    count(*) FILTER (signed_alpha > 0) AS right_calls,
    count(*) FILTER (signed_alpha = 0) AS exact_zeros,
    count(*) FILTER (signed_alpha < 0) AS wrong_calls,
    count(*) FILTER (signed_alpha > 0) / count(*) AS hit_rate,
    exact_mean(signed_alpha) AS mean_directional_alpha
FROM called
GROUP BY GROUPING SETS ((run_id, score_id), (run_id, score_id, one_side))""",
)

RUN_SUMMARY: Final = View(
    name="run_summary",
    question="What became of every cell, and what did holding everything earn?",
    note=(
        "Cell counts are over all cells, warm-up included; the rest is over scored decisions. "
        "mean_return is that of equal weights on whatever was decided, whatever the rating. "
        + _NOTE_MEANS
    ),
    key=("run_id", "score_id"),
    columns=(
        *_GROUP,
        col("results_root", "VARCHAR", "", "Hash over the results.", null="not finished"),
        col("horizon", "INTEGER", "sessions", "Decision to exit.", null="not recorded"),
        col("entry_rule", "VARCHAR", "", "Fill rule.", null="not recorded"),
        col("cells", "BIGINT", "cells", "All cells of the run so far."),
        col("done", "BIGINT", "cells", "With a rating."),
        col("unread", "BIGINT", "cells", "Answered, but no rating could be read."),
        col("failed", "BIGINT", "cells", "Could not be decided."),
        col("no_data", "BIGINT", "cells", "No usable bar at the cutoff."),
        col("skipped_budget", "BIGINT", "cells", "The run's cap came first."),
        col("degraded", "BIGINT", "cells", "A core tool failed on the way."),
        col("warmup", "BIGINT", "cells", "Not scored: warm-up."),
        col("benchmarks", "VARCHAR[]", "", "Benchmarks of the scored decisions, sorted."),
        col("benchmark_bases", "VARCHAR[]", "", "Their bases: price, total."),
        *_MEASURES,
    ),
    sql=f"""
WITH counted AS (
    SELECT runs.run_id, count(c.ticker) AS cells,
        count(*) FILTER (c.status = 'done') AS done,
        count(*) FILTER (c.status = 'unread') AS unread,
        count(*) FILTER (c.status = 'failed') AS failed,
        count(*) FILTER (c.status = 'no_data') AS no_data,
        count(*) FILTER (c.status = 'skipped_budget') AS skipped_budget,
        count(*) FILTER (c.degraded) AS degraded,
        count(*) FILTER (NOT c.scored) AS warmup
    FROM runs LEFT JOIN cells c USING (run_id) GROUP BY runs.run_id
), measured AS (
    SELECT runs.run_id, coalesce(d.score_id, 'default') AS score_id, runs.results_root,
        coalesce(min(d.horizon), runs.horizon) AS horizon,
        coalesce(min(d.entry_rule), runs.entry_rule) AS entry_rule,
        coalesce(list_sort(list(DISTINCT d.benchmark) FILTER (d.benchmark IS NOT NULL)), [])
            AS benchmarks,
        coalesce(list_sort(list(DISTINCT d.benchmark_basis)
            FILTER (d.benchmark_basis IS NOT NULL)), []) AS benchmark_bases,{_MEASURES_SQL}
    FROM runs LEFT JOIN scored_decisions_all d USING (run_id)
    GROUP BY runs.run_id, runs.results_root, runs.horizon, runs.entry_rule,
        coalesce(d.score_id, 'default')
)
SELECT m.run_id, m.score_id, m.results_root, m.horizon, m.entry_rule, c.* EXCLUDE (run_id),
    m.* EXCLUDE (run_id, score_id, results_root, horizon, entry_rule)
FROM measured m JOIN counted c USING (run_id)""",
)

LEAK_AUDIT: Final = View(
    name="leak_audit",
    question="Did anything from after a cutoff get in?",
    note=(
        "Three rows for each run. violations must be 0; checked says how much was looked at. "
        "The proof is `backtester leakcheck`, which rewrites the future and compares prompts."
    ),
    key=("run_id", "audit"),
    columns=(
        col("run_id", "VARCHAR", "", "Run."),
        col(
            "audit",
            "VARCHAR",
            "",
            "fills (after the cutoff, or at it and flagged same_bar), lessons_shown (resolved by "
            "the cutoff, and in memory), reads (max_known_at by the cutoff).",
        ),
        col("checked", "BIGINT", "rows", "Fills, lessons or reads looked at."),
        col("violations", "BIGINT", "rows", "Of those: from the future."),
    ),
    sql="""
WITH looked_at AS (
    SELECT r.run_id, 'reads' AS audit, r.max_known_at > c.cutoff AS bad
    FROM reads r JOIN cells c USING (run_id, ticker, session, trial)
    WHERE r.max_known_at IS NOT NULL
    UNION ALL
    SELECT s.run_id, 'lessons_shown',
        m.resolved_at IS NULL OR m.resolved_at > s.cutoff
    FROM (SELECT run_id, cutoff, unnest(lessons_shown) AS lesson FROM cells) s
    LEFT JOIN memory m ON m.run_id = s.run_id
        AND concat_ws('|', m.ticker, m.session::VARCHAR, m.trial::VARCHAR) = s.lesson
    UNION ALL
    SELECT r.run_id, 'fills',
        r.entry_at < c.cutoff
            OR (r.entry_at = c.cutoff AND NOT list_contains(r.flags, 'same_bar'))
    FROM returns r JOIN cells c USING (run_id, ticker, session, trial)
    WHERE r.entry_at IS NOT NULL
)
SELECT w.run_id, w.audit, count(l.bad) AS checked, count(*) FILTER (l.bad) AS violations
FROM (SELECT run_id, unnest(['fills', 'lessons_shown', 'reads']) AS audit FROM runs) w
LEFT JOIN looked_at l USING (run_id, audit)
GROUP BY w.run_id, w.audit""",
)

VIEWS: Final = (
    *with_all_scores(SCORED_DECISIONS),
    *with_all_scores(ALPHA_BY_RATING),
    *with_all_scores(ALPHA_BY_TICKER),
    *with_all_scores(ALPHA_BY_MONTH),
    *with_all_scores(ALPHA_BY_KNOWLEDGE),
    *with_all_scores(HIT_RATE),
    *with_all_scores(RUN_SUMMARY),
    LEAK_AUDIT,
    COST_BY_NODE,
    COST_BY_DAY,
    CACHE_EFFICIENCY,
    *SCORE_VIEWS,
)
