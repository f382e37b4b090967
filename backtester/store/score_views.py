"""The views on scores: what a book made, against what, and what of it may be believed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from backtester.store.terms import Column, View, col, with_all_scores

_GROUP: Final = (
    col("run_id", "VARCHAR", "", "Run."),
    col("score_id", "VARCHAR", "", "Score; 'default' is the run's own."),
)
_NO_VALUE: Final = "see metrics.reason"
FEWEST_DRAWS: Final = 20
"""Random books of which one in twenty lies below the band of 90 % of them."""

_LUCK: Final = "not distinguishable from luck"

# Figure -> unit and what it is, in the order of the view.
_PERFORMANCE: Final[Mapping[str, tuple[str, str]]] = {
    "total_return": ("fraction", "End value over start cash, less 1."),
    "cagr": ("fraction/year", "Growth a year, by calendar time."),
    "volatility": ("fraction/year", "Deviation of session returns, annualised."),
    "sharpe": ("ratio", "Annualised."),
    "sharpe_low": ("ratio", "Lower end of its 95 % interval."),
    "sharpe_high": ("ratio", "Upper end."),
    "sortino": ("ratio", "Annualised, downside deviation over all n."),
    "max_drawdown": ("fraction", "Deepest fall below a former peak."),
    "calmar": ("ratio", "cagr / max_drawdown."),
    "benchmark_return": ("fraction", "The benchmark over the same sessions."),
    "excess_return": ("fraction", "total_return less that."),
    "beta": ("ratio", "To the benchmark, by OLS."),
    "jensen_alpha": ("fraction/year", "Jensen's alpha, by OLS on session returns."),
    "jensen_alpha_se": ("fraction/year", "Its standard error."),
    "information_ratio": ("ratio", "Annualised."),
    "turnover": ("ratio/year", "Half of all traded over mean equity."),
    "exposure": ("fraction", "Mean of gross exposure."),
    "commission": ("currency of the book", "Paid."),
    "slippage": ("currency of the book", "Lost to worse prices."),
    "orders_filled": ("orders", "Orders filled whole."),
    "orders_rejected": ("orders", "Orders rejected; see orders.reason."),
    "probabilistic_sharpe": ("fraction", "Probability that the true ratio is above 0."),
    "deflated_sharpe": ("fraction", "The same, above what luck finds in so many trials."),
    "min_track_record_length": ("returns", "Needed to tell the ratio from 0 at 95 %."),
    "pbo": ("fraction", "Probability of backtest overfitting, over the stored trials."),
}


_SOURCES: Final = {
    "sharpe_low": ("sharpe", "low"),
    "sharpe_high": ("sharpe", "high"),
    "rank_ic": ("rank_ic_spearman", "value"),
    "rank_ic_low": ("rank_ic_spearman", "low"),
    "rank_ic_high": ("rank_ic_spearman", "high"),
}
"""Columns that are not the value of a figure of their own name."""


def _pivot(names: Sequence[str]) -> str:
    sources = {name: _SOURCES.get(name, (name, "value")) for name in names}
    return ",\n    ".join(
        f"max({end}) FILTER (metric = '{metric}') AS {name}"
        for name, (metric, end) in sources.items()
    )


def _columns(figures: Mapping[str, tuple[str, str]]) -> tuple[Column, ...]:
    return tuple(
        col(name, "DOUBLE", unit, meaning, null=_NO_VALUE)
        for name, (unit, meaning) in figures.items()
    )


BOOK_PERFORMANCE: Final = View(
    name="book_performance",
    question="What would it have made after costs, and against what?",
    note=(
        "One row for each book: ratings is the run's own, one a lane; the others are baselines on "
        "the same fills and costs. The random books are in placebo_band."
    ),
    key=("run_id", "score_id", "book", "trial"),
    columns=(
        *_GROUP,
        col("book", "VARCHAR", "", "ratings, or a baseline with its preset."),
        col("trial", "INTEGER", "", "Lane; 0 for a baseline.", null="there is no book"),
        col("sessions", "BIGINT", "sessions", "Session returns.", null="there is no book"),
        *_columns(_PERFORMANCE),
        col("pbo_books", "BIGINT", "books", "Stored books that pbo is over.", null="no book"),
    ),
    sql=f"""
SELECT run_id, score_id, subject AS book, trial,
    max(n) FILTER (metric = 'total_return') AS sessions,
    {_pivot(tuple(_PERFORMANCE))},
    max(n) FILTER (metric = 'pbo') AS pbo_books
FROM metrics WHERE subject NOT IN ('decisions', 'random') AND scope = 'all'
GROUP BY run_id, score_id, subject, trial""",
)

CERTAINTY: Final = View(
    name="certainty",
    question="What may be believed of each mean, and what is luck?",
    note=(
        "Means over decisions whose windows may overlap, with an interval that allows for it. "
        "Several figures looked at are several chances to be fooled: see trials_known."
    ),
    key=("run_id", "score_id", "subject", "trial", "scope", "member", "horizon", "metric"),
    columns=(
        *_GROUP,
        col("subject", "VARCHAR", "", "decisions, or ratings (the book)."),
        col("trial", "INTEGER", "", "Lane.", null="all lanes together"),
        col("scope", "VARCHAR", "", "all, ticker, rating, month or fold."),
        col("member", "VARCHAR", "", "Which one."),
        col("horizon", "INTEGER", "sessions", "Decision to exit.", null="a figure of a book"),
        col("metric", "VARCHAR", "", "Name of the figure."),
        col("value", "DOUBLE", "see metrics.unit", "The figure.", null="no row has the value"),
        col("n", "BIGINT", "rows", "Rows."),
        col("sessions", "BIGINT", "sessions", "Decision sessions."),
        col("effective_n", "DOUBLE", "rows", "Independent rows.", null="no interval"),
        col("low", "DOUBLE", "see metrics.unit", "Lower end.", null="see reason"),
        col("high", "DOUBLE", "see metrics.unit", "Upper end.", null="see reason"),
        col("p_value", "DOUBLE", "fraction", "Of no effect, two-sided.", null="no test"),
        col("method", "VARCHAR", "", "How interval or p-value were had.", null="none"),
        col("reason", "VARCHAR", "", "Why there is no interval.", null="there is one"),
        col(
            "verdict",
            "VARCHAR",
            "",
            f"above zero, below zero, {_LUCK}, or no interval; by the interval, else by p < 0.05.",
        ),
    ),
    sql=f"""
SELECT run_id, score_id, subject, trial, scope, member, horizon, metric, value, n, sessions,
    effective_n, low, high, p_value, method, reason,
    CASE WHEN low > 0 THEN 'above zero' WHEN high < 0 THEN 'below zero'
        WHEN low IS NOT NULL THEN '{_LUCK}'
        WHEN p_value IS NULL THEN 'no interval'
        WHEN p_value >= 0.05 THEN '{_LUCK}'
        WHEN metric = 'sign_test' THEN if(value > 0.5, 'above zero', 'below zero')
        ELSE if(value > 0, 'above zero', 'below zero') END AS verdict
FROM metrics
WHERE sessions IS NOT NULL AND metric <> 'hit_rate'""",
)

_OF_DECISIONS: Final[Mapping[str, tuple[str, str]]] = {
    "mean_return": ("fraction", "Mean return with dividends."),
    "mean_alpha": ("fraction", "Mean window excess."),
    "mean_geometric_alpha": ("fraction", "Mean geometric excess."),
    "mean_directional_alpha": ("fraction", "Mean of direction * alpha of calls that take a side."),
    "hit_rate": ("fraction", "Of those: above 0; a tie is a miss."),
}


def _interval_of(metric: str) -> str:
    return (
        f"max(n) FILTER (metric = '{metric}') AS n,\n    "
        f"max(effective_n) FILTER (metric = '{metric}') AS effective_n,\n    "
        f"max(low) FILTER (metric = '{metric}') AS low,\n    "
        f"max(high) FILTER (metric = '{metric}') AS high,\n    "
        f"max(p_value) FILTER (metric = '{metric}') AS p_value,\n    "
        f"max(reason) FILTER (metric = '{metric}') AS reason,\n    "
        + _pivot(("rank_ic", "rank_ic_low", "rank_ic_high"))
    )


_INTERVAL: Final = (
    col("n", "BIGINT", "cells", "Calls that take a side and have an alpha."),
    col("effective_n", "DOUBLE", "cells", "Independent ones.", null="see reason"),
    col("low", "DOUBLE", "fraction", "Of mean_directional_alpha: lower end.", null="see reason"),
    col("high", "DOUBLE", "fraction", "Upper end.", null="see reason"),
    col("p_value", "DOUBLE", "fraction", "Of no effect, two-sided.", null="see reason"),
    col("reason", "VARCHAR", "", "Why there is no interval.", null="there is one"),
    col("rank_ic", "DOUBLE", "ratio", "Mean rank IC of a session.", null=_NO_VALUE),
    col("rank_ic_low", "DOUBLE", "ratio", "Lower end of its interval.", null=_NO_VALUE),
    col("rank_ic_high", "DOUBLE", "ratio", "Upper end.", null=_NO_VALUE),
)

ALPHA_BY_HORIZON: Final = View(
    name="alpha_by_horizon",
    question="After how many sessions was it right?",
    note="Over all scored decisions; the interval is that of mean_directional_alpha.",
    key=("run_id", "score_id", "horizon"),
    columns=(
        *_GROUP,
        col("horizon", "INTEGER", "sessions", "Decision to exit."),
        *_columns(_OF_DECISIONS),
        *_INTERVAL,
    ),
    sql=f"""
SELECT run_id, score_id, horizon,
    {_pivot(tuple(_OF_DECISIONS))},
    {_interval_of("mean_directional_alpha")}
FROM metrics WHERE subject = 'decisions' AND scope = 'all' AND horizon IS NOT NULL
GROUP BY run_id, score_id, horizon""",
)

ALPHA_BY_FOLD: Final = View(
    name="alpha_by_fold_all",
    question="Was it right in every part of the time?",
    note=(
        "Walk-forward folds of the scores that were asked for them (`backtester score RUN --fold "
        "6M`); a run's own has none. The interval is that of mean_directional_alpha."
    ),
    key=("run_id", "score_id", "fold", "horizon"),
    columns=(
        *_GROUP,
        col("fold", "VARCHAR", "", "First day/last day."),
        col("horizon", "INTEGER", "sessions", "Decision to exit."),
        *_columns(_OF_DECISIONS),
        *_INTERVAL,
    ),
    sql=f"""
SELECT run_id, score_id, member AS fold, horizon,
    {_pivot(tuple(_OF_DECISIONS))},
    {_interval_of("mean_directional_alpha")}
FROM metrics WHERE subject = 'decisions' AND scope = 'fold'
GROUP BY run_id, score_id, member, horizon""",
)

BOOK_BY_FOLD: Final = View(
    name="book_by_fold_all",
    question="What did the book make in every part of the time?",
    note=(
        "The parts of one book, with what it held when a fold began; the last fold goes on to the "
        "book's end, so the folds' 1 + total_return multiply to the book's. Scores that were asked "
        "for folds have them (`backtester score RUN --fold 6M`); a run's own has none."
    ),
    key=("run_id", "score_id", "book", "trial", "fold"),
    columns=(
        *_GROUP,
        col("book", "VARCHAR", "", "ratings, buy_and_hold or equal_weight."),
        col("trial", "INTEGER", "", "Lane; 0 for a baseline."),
        col("fold", "VARCHAR", "", "First day/last day of its decisions."),
        col("sessions", "BIGINT", "sessions", "Session returns."),
        *_columns(
            {
                name: _PERFORMANCE[name]
                for name in ("total_return", "sharpe", "sharpe_low", "sharpe_high")
            }
        ),
        col("sharpe_reason", "VARCHAR", "", "Why no ratio or interval.", null="there are both"),
        col("max_drawdown", "DOUBLE", "fraction", "Deepest in the fold.", null=_NO_VALUE),
    ),
    sql=f"""
SELECT run_id, score_id, subject AS book, trial, member AS fold,
    max(n) FILTER (metric = 'total_return') AS sessions,
    {_pivot(("total_return", "sharpe", "sharpe_low", "sharpe_high"))},
    max(reason) FILTER (metric = 'sharpe') AS sharpe_reason,
    {_pivot(("max_drawdown",))}
FROM metrics WHERE subject <> 'decisions' AND scope = 'fold'
GROUP BY run_id, score_id, subject, trial, member""",
)

ALPHAS: Final = View(
    name="alphas",
    question="Which alpha is meant?",
    note=(
        "Three figures go by that name. Window excess and geometric are means over decisions, of "
        "one window; Jensen's is the book's, a year, from session returns."
    ),
    key=("run_id", "score_id", "trial"),
    columns=(
        *_GROUP,
        col("trial", "INTEGER", "", "Lane of the book.", null="there is no book"),
        col("window_excess", "DOUBLE", "fraction", "Mean alpha of a window.", null="none known"),
        col("geometric", "DOUBLE", "fraction", "Mean geometric excess.", null="none known"),
        col("jensen", "DOUBLE", "fraction/year", "Intercept of the OLS line.", null=_NO_VALUE),
        col("jensen_se", "DOUBLE", "fraction/year", "Its standard error.", null=_NO_VALUE),
        col("beta", "DOUBLE", "ratio", "Slope of that line.", null=_NO_VALUE),
    ),
    sql="""
WITH own AS (
    SELECT m.run_id, m.score_id,
        max(m.value) FILTER (m.metric = 'mean_alpha') AS window_excess,
        max(m.value) FILTER (m.metric = 'mean_geometric_alpha') AS geometric
    FROM metrics m JOIN scores s USING (run_id, score_id)
    WHERE m.subject = 'decisions' AND m.scope = 'all' AND m.horizon = s.horizon
    GROUP BY m.run_id, m.score_id
)
SELECT b.run_id, b.score_id, b.trial, own.window_excess, own.geometric,
    b.jensen_alpha AS jensen, b.jensen_alpha_se AS jensen_se, b.beta
FROM book_performance_all b LEFT JOIN own USING (run_id, score_id)
WHERE b.book = 'ratings'""",
)

PLACEBO_BAND: Final = View(
    name="placebo_band",
    question="Would random ratings have done as well?",
    note=(
        "Seeded random ratings that come as often and stay as long as the run's own, through the "
        f"same book; the band holds 90 % of them, and there is none of fewer than {FEWEST_DRAWS}."
    ),
    key=("run_id", "score_id", "trial", "metric"),
    columns=(
        *_GROUP,
        col("trial", "INTEGER", "", "Lane of the run's book.", null="there is no book"),
        col("metric", "VARCHAR", "", "total_return, sharpe or max_drawdown."),
        col("book", "DOUBLE", "see metrics.unit", "The run's own figure.", null=_NO_VALUE),
        col("draws", "BIGINT", "books", "Random books."),
        col("low", "DOUBLE", "see metrics.unit", "5 % of them are below.", null="too few draws"),
        col("median", "DOUBLE", "see metrics.unit", "Half of them are.", null="no draws"),
        col("high", "DOUBLE", "see metrics.unit", "95 % of them are.", null="too few draws"),
        col("share_below", "DOUBLE", "fraction", "Random books below the run's.", null="no draws"),
        col("inside", "BOOLEAN", "", "The run's figure lies in the band.", null="no band"),
    ),
    sql=f"""
SELECT p.run_id, p.score_id, b.trial, p.metric, b.value AS book, p.n AS draws,
    if(p.n >= {FEWEST_DRAWS}, p.low, NULL) AS low, p.value AS median,
    if(p.n >= {FEWEST_DRAWS}, p.high, NULL) AS high, s.value AS share_below,
    if(p.n >= {FEWEST_DRAWS}, b.value BETWEEN p.low AND p.high, NULL) AS inside
FROM metrics p
JOIN metrics b ON b.run_id = p.run_id AND b.score_id = p.score_id AND b.metric = p.metric
    AND b.subject = 'ratings' AND b.scope = p.scope
LEFT JOIN metrics s ON s.run_id = p.run_id AND s.score_id = p.score_id AND s.subject = 'ratings'
    AND s.trial = b.trial AND s.metric = 'placebo_share_below_' || p.metric
WHERE p.subject = 'random'""",
)

SCORE_COMPARISON: Final = View(
    name="score_comparison",
    question="How do the scores of all runs stand side by side?",
    note="One row for each score, by the book of its first lane and its own horizon.",
    key=("run_id", "score_id"),
    columns=(
        *_GROUP,
        col("label", "VARCHAR", "", "What it differs by from the run's own."),
        col("policy", "VARCHAR", "", "What a rating is worth."),
        col("horizon", "INTEGER", "sessions", "Decision to exit."),
        col("entry_rule", "VARCHAR", "", "Fill rule."),
        col("costs", "VARCHAR", "JSON", "What trading costs."),
        col("first_date", "DATE", "date", "Window of decisions: first day."),
        col("last_date", "DATE", "date", "Last day."),
        col("snapshot_name", "VARCHAR", "", "Snapshot.", repeats=False),
        col("n", "BIGINT", "cells", "Calls that take a side and have an alpha.", null="no figure"),
        col("mean_directional_alpha", "DOUBLE", "fraction", "Their mean.", null="no such call"),
        col("low", "DOUBLE", "fraction", "Its interval: lower end.", null="too few windows"),
        col("high", "DOUBLE", "fraction", "Upper end.", null="too few windows"),
        col("reason", "VARCHAR", "", "Why there is no interval.", null="there is one"),
        col("sessions", "BIGINT", "sessions", "Session returns of the book.", null="no book"),
        col("total_return", "DOUBLE", "fraction", "Of the book.", null=_NO_VALUE),
        col("buy_and_hold", "DOUBLE", "fraction", "Of that book.", null=_NO_VALUE),
        col("equal_weight", "DOUBLE", "fraction", "Of that book.", null=_NO_VALUE),
        col("sharpe", "DOUBLE", "ratio", "Of the book, annualised.", null=_NO_VALUE),
        col("sharpe_low", "DOUBLE", "ratio", "Lower end of its interval.", null=_NO_VALUE),
        col("sharpe_high", "DOUBLE", "ratio", "Upper end.", null=_NO_VALUE),
        col("max_drawdown", "DOUBLE", "fraction", "Of the book.", null=_NO_VALUE),
        col("deflated_sharpe", "DOUBLE", "fraction", "See book_performance.", null=_NO_VALUE),
        col("known_trials", "BIGINT", "trials", "At least so many when made.", repeats=False),
        col("trials_by_now", "BIGINT", "trials", "At least so many by now.", repeats=False),
    ),
    sql="""
WITH tried AS (
    SELECT s.run_id, s.score_id, count(DISTINCT l.trial_hash) AS trials_by_now
    FROM scores s LEFT JOIN ledger l ON list_has_any(l.universe, s.universe)
        AND l.first_date <= s.last_date AND l.last_date >= s.first_date
    GROUP BY s.run_id, s.score_id
), books AS (
    SELECT run_id, score_id,
        max(sessions) FILTER (book = 'ratings') AS sessions,
        max(total_return) FILTER (book = 'ratings') AS total_return,
        max(total_return) FILTER (book = 'buy_and_hold') AS buy_and_hold,
        max(total_return) FILTER (book = 'equal_weight') AS equal_weight,
        max(sharpe) FILTER (book = 'ratings') AS sharpe,
        max(sharpe_low) FILTER (book = 'ratings') AS sharpe_low,
        max(sharpe_high) FILTER (book = 'ratings') AS sharpe_high,
        max(max_drawdown) FILTER (book = 'ratings') AS max_drawdown,
        max(deflated_sharpe) FILTER (book = 'ratings') AS deflated_sharpe
    FROM book_performance_all WHERE coalesce(trial, 0) = 0 GROUP BY run_id, score_id
)
SELECT s.run_id, s.score_id, s.label, s.policy, s.horizon, s.entry_rule, s.costs, s.first_date,
    s.last_date, s.snapshot_name, d.n, d.value AS mean_directional_alpha, d.low, d.high,
    d.reason, b.sessions, b.total_return, b.buy_and_hold, b.equal_weight, b.sharpe,
    b.sharpe_low, b.sharpe_high, b.max_drawdown, b.deflated_sharpe, s.known_trials,
    greatest(t.trials_by_now, s.known_trials) AS trials_by_now
FROM scores s
LEFT JOIN tried t USING (run_id, score_id)
LEFT JOIN books b USING (run_id, score_id)
LEFT JOIN metrics d ON d.run_id = s.run_id AND d.score_id = s.score_id
    AND d.subject = 'decisions' AND d.scope = 'all' AND d.horizon = s.horizon
    AND d.metric = 'mean_directional_alpha'""",
)

BOOK_BY_MONTH: Final = View(
    name="book_by_month",
    question="What did each book make in each month?",
    note=(
        "From the last session of the month before, the first month from the start cash: the "
        "months' 1 + ret multiply to 1 + the book's total_return."
    ),
    key=("run_id", "score_id", "book", "trial", "month"),
    columns=(
        *_GROUP,
        col("book", "VARCHAR", "", "ratings, or a baseline."),
        col("trial", "INTEGER", "", "Lane."),
        col("month", "DATE", "date", "First day of the month."),
        col("equity", "DOUBLE", "currency of the book", "At its last session."),
        col("ret", "DOUBLE", "fraction", "Return of the month.", null="nothing before it"),
    ),
    sql="""
WITH ends AS (
    SELECT run_id, score_id, book, trial, date_trunc('month', session)::DATE AS month,
        arg_max(equity, session) AS equity
    FROM equity GROUP BY ALL
), begun AS (
    SELECT e.*, coalesce(lag(e.equity) OVER lane, s.start_cash) AS before
    FROM ends e LEFT JOIN scores s USING (run_id, score_id)
    WINDOW lane AS (PARTITION BY e.run_id, e.score_id, e.book, e.trial ORDER BY e.month)
)
SELECT run_id, score_id, book, trial, month, equity,
    CASE WHEN before > 0 THEN equity / before - 1 END AS ret
FROM begun""",
)

BOOK_BY_TICKER: Final = View(
    name="book_by_ticker",
    question="Which tickers made the book's profit?",
    note="At the last session; gains and interest add up to the profit.",
    key=("run_id", "score_id", "trial", "ticker"),
    columns=(
        *_GROUP,
        col("trial", "INTEGER", "", "Lane."),
        col("ticker", "VARCHAR", "", "Instrument id."),
        col("gain", "DOUBLE", "currency of the book", "Costs and dividends included."),
        col("shares", "DOUBLE", "shares", "Still held."),
        col("weight", "DOUBLE", "fraction", "Of the equity.", null="no equity"),
    ),
    sql="""
SELECT run_id, score_id, trial, ticker, arg_max(gain, session) AS gain,
    arg_max(shares, session) AS shares, max_by(weight, session) AS weight
FROM positions WHERE book = 'ratings'
GROUP BY run_id, score_id, trial, ticker""",
)

TRIALS_KNOWN: Final = View(
    name="trials_known",
    question="How often was this universe and window looked at?",
    note=(
        "From the ledger, deleted runs included; what other workspaces tried is unknown. Trials "
        "of other universes and windows that share instruments and days are counted in "
        "score_comparison.trials_by_now, which a Sharpe ratio is held against."
    ),
    key=("family",),
    columns=(
        col("family", "VARCHAR", "sha256", "Universe and window."),
        col("universe", "VARCHAR[]", "", "Instruments."),
        col("first_date", "DATE", "date", "First day of the window."),
        col("last_date", "DATE", "date", "Last day."),
        col("trials", "BIGINT", "trials", "Distinct ones."),
        col("runs", "BIGINT", "runs", "Runs that were scored."),
        col("best_sharpe", "DOUBLE", "ratio", "Highest of a book, a session.", null="none"),
    ),
    sql="""
SELECT family, any_value(universe) AS universe, any_value(first_date) AS first_date,
    any_value(last_date) AS last_date, count(DISTINCT trial_hash) AS trials,
    count(DISTINCT run_id) AS runs, max(sharpe) AS best_sharpe
FROM ledger GROUP BY family""",
)

SCORE_VIEWS: Final = (
    *with_all_scores(BOOK_PERFORMANCE),
    *with_all_scores(CERTAINTY),
    *with_all_scores(ALPHA_BY_HORIZON),
    ALPHA_BY_FOLD,
    BOOK_BY_FOLD,
    *with_all_scores(ALPHAS),
    *with_all_scores(PLACEBO_BAND),
    SCORE_COMPARISON,
    *with_all_scores(BOOK_BY_MONTH),
    *with_all_scores(BOOK_BY_TICKER),
    TRIALS_KNOWN,
)
