"""Read scores back from the published database: what is printed of a score, and of several."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from backtester.store.summary import rows_of


@dataclass(frozen=True, kw_only=True)
class BookLine:
    """Hold the figures of one book that are printed.

    Attributes:
        book: ``ratings``, or a baseline with its preset.
        trial: Lane.
        sessions: Session returns.
        total_return: A fraction, or None; so `cagr, volatility` and `max_drawdown`.
        sharpe: Annualised, or None.
        turnover: A year, or None.
        orders_filled: Whole ones.
        orders_rejected: None of which was filled.
    """

    book: str
    trial: int | None
    sessions: int | None
    total_return: float | None
    cagr: float | None
    volatility: float | None
    sharpe: float | None
    max_drawdown: float | None
    turnover: float | None
    orders_filled: float | None
    orders_rejected: float | None


@dataclass(frozen=True, kw_only=True)
class Band:
    """Hold the band of the total returns of random ratings, and where the book lies.

    Attributes:
        draws: Random books.
        low: 5 % of them made less.
        high: 5 % of them made more.
        share_below: Share that made less than the book, or None.
        inside: Whether the book lies in the band, or None.
    """

    draws: int
    low: float | None
    high: float | None
    share_below: float | None
    inside: bool | None


@dataclass(frozen=True, kw_only=True)
class Certain:
    """Hold a mean with what may be said of it; see view ``certainty``."""

    horizon: int | None
    metric: str
    value: float | None
    n: int
    effective_n: float | None
    low: float | None
    high: float | None
    p_value: float | None
    reason: str | None
    verdict: str


@dataclass(frozen=True, kw_only=True)
class ScoreSummary:
    """Hold what is printed of one score.

    Attributes:
        run_id: Run.
        score_id: Score.
        policy: What a rating is worth.
        costs: JSON.
        horizon: Sessions from decision to exit.
        entry_rule: Fill rule.
        first_date: First day of its window.
        last_date: Last day.
        snapshot_name: Snapshot.
        no_book: Why there is no book, or None.
        known_trials: At least so many were tried.
        books: Own lanes first.
        band: Of random ratings, or None without a book.
        certain: Mean directional alpha by horizon, then the tests.
    """

    run_id: str
    score_id: str
    policy: str
    costs: str
    horizon: int
    entry_rule: str
    first_date: Any
    last_date: Any
    snapshot_name: str
    no_book: str | None
    known_trials: int
    books: tuple[BookLine, ...]
    band: Band | None
    certain: tuple[Certain, ...]

    @property
    def main(self) -> Certain | None:
        """Mean directional alpha at the score's own horizon."""
        rows = (row for row in self.certain if row.metric == "mean_directional_alpha")
        return next((row for row in rows if row.horizon == self.horizon), None)


def score_summaries(
    database: Path, run_id: str, *, score_id: str | None = None
) -> tuple[ScoreSummary, ...]:
    """Return the scores of a run, its own first; none where it has none.

    Args:
        database: Published database.
        run_id: Run.
        score_id: Only this one.

    Raises:
        DataError: There is no database, or it is damaged.
    """
    rows = rows_of(database, _SCORES, [run_id])
    wanted = [row for row in rows if score_id in (None, row["score_id"])]
    return tuple(_summary(database, row) for row in wanted)


def _summary(database: Path, row: Mapping[str, Any]) -> ScoreSummary:
    key = [row["run_id"], row["score_id"]]
    bands = rows_of(database, _BAND, key)
    return ScoreSummary(
        **row,
        books=tuple(BookLine(**line) for line in rows_of(database, _BOOKS, key)),
        band=Band(**bands[0]) if bands else None,
        certain=tuple(Certain(**line) for line in rows_of(database, _CERTAIN, key)),
    )


_SCORES: Final = """
SELECT run_id, score_id, policy, costs, horizon, entry_rule, first_date, last_date, snapshot_name,
    no_book, known_trials
FROM scores WHERE run_id = ? ORDER BY score_id <> 'default', score_id"""

_BOOKS: Final = """
SELECT book, trial, sessions, total_return, cagr, volatility, sharpe, max_drawdown, turnover,
    orders_filled, orders_rejected
FROM book_performance WHERE run_id = ? AND score_id = ?
ORDER BY book <> 'ratings', book NOT IN ('buy_and_hold', 'equal_weight'), book, trial"""

_BAND: Final = """
SELECT draws, low, high, share_below, inside FROM placebo_band
WHERE run_id = ? AND score_id = ? AND metric = 'total_return' AND draws > 0
ORDER BY trial LIMIT 1"""

_CERTAIN: Final = """
SELECT horizon, metric, value, n, effective_n, low, high, p_value, reason, verdict
FROM certainty WHERE run_id = ? AND score_id = ? AND subject = 'decisions' AND scope = 'all'
    AND metric IN ('mean_directional_alpha', 'buy_minus_sell', 'path_permutation', 'sign_test',
        'rank_ic_spearman')
ORDER BY metric, horizon"""


@dataclass(frozen=True, kw_only=True)
class SharedCells:
    """Say how the decisions of two runs go together.

    Attributes:
        shared: Cells that both decided.
        same: Of those, with the same rating.
        first_alpha: Mean directional alpha of the first run, over cells where both take a side.
        second_alpha: Of the second, over the same cells.
        n: Number of those cells.
    """

    shared: int
    same: int
    first_alpha: float | None
    second_alpha: float | None
    n: int


def shared_cells(database: Path, first: str, second: str) -> SharedCells:
    """Return what two runs decided on the same cells, by their own scores.

    Raises:
        DataError: There is no database, or it is damaged.
    """
    (row,) = rows_of(database, _SHARED, [first, second])
    return SharedCells(**row)


_SHARED: Final = """
SELECT count(*) AS shared, count(*) FILTER (a.rating = b.rating) AS same,
    exact_mean(CASE WHEN b.signed_alpha IS NOT NULL THEN a.signed_alpha END) AS first_alpha,
    exact_mean(CASE WHEN a.signed_alpha IS NOT NULL THEN b.signed_alpha END) AS second_alpha,
    count(*) FILTER (a.signed_alpha IS NOT NULL AND b.signed_alpha IS NOT NULL) AS n
FROM scored_decisions a
JOIN scored_decisions b ON a.session = b.session AND a.ticker = b.ticker AND a.trial = b.trial
WHERE a.run_id = ? AND b.run_id = ? AND a.score_id = 'default' AND b.score_id = 'default'"""
