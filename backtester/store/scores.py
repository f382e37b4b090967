"""Read scores back from the published database: what is printed of a score, and of several."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Final

from backtester.errors import UsageError
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
        sharpe_low: Lower end of its interval, or None; so `sharpe_high`.
        turnover: A year, or None.
        orders_filled: Whole ones.
        orders_rejected: None of which was filled.
        deflated_sharpe: Probability that the ratio is more than luck in so many trials, or None.
        min_track_record_length: Returns that would tell it from 0, or None.
        pbo: Probability of overfitting over the stored books of related trials, or None.
        benchmark_return: The benchmark's over the same sessions, or None.
        excess_return: total_return less that, or None.
        beta: To the benchmark, or None.
        jensen_alpha: A year, or None; so is `jensen_alpha_se`, its standard error.
        pbo_books: Stored books that `pbo` is over, or None.
    """

    book: str
    trial: int | None
    sessions: int | None
    total_return: float | None
    cagr: float | None
    volatility: float | None
    sharpe: float | None
    sharpe_low: float | None
    sharpe_high: float | None
    max_drawdown: float | None
    turnover: float | None
    orders_filled: float | None
    orders_rejected: float | None
    deflated_sharpe: float | None
    min_track_record_length: float | None
    pbo: float | None
    benchmark_return: float | None = None
    excess_return: float | None = None
    beta: float | None = None
    jensen_alpha: float | None = None
    jensen_alpha_se: float | None = None
    pbo_books: int | None = None


@dataclass(frozen=True, kw_only=True)
class Against:
    """Hold what the book of the ratings is measured against.

    Attributes:
        benchmark: Instrument, or None where there is none or several.
        basis: ``price`` (without dividends) or ``total``; None as `benchmark`.
        first: First session of the book.
        last: Last one.
    """

    benchmark: str | None
    basis: str | None
    first: date
    last: date


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
class PartLine:
    """Hold the figures of one part of the decisions at one horizon.

    Attributes:
        scope: ``all, ticker, rating, month`` or ``fold``.
        member: Which one.
        horizon: Sessions from decision to exit.
        decisions: Decisions with an alpha.
        mean_alpha: Of these, or None.
        n: Calls that take a side and have an alpha.
        mean_directional_alpha: Of these, or None.
        effective_n: Independent ones, or None; so are the next three.
        low: Lower end of the interval of mean_directional_alpha.
        high: Upper end.
        p_value: Of no effect, two-sided.
        reason: Why there is no interval, or None.
        hit_rate: A fraction, or None.
        rank_ic: Mean rank correlation of ratings and alphas of a session, or None.
    """

    scope: str
    member: str
    horizon: int
    decisions: int | None
    mean_alpha: float | None
    n: int | None
    mean_directional_alpha: float | None
    effective_n: float | None
    low: float | None
    high: float | None
    p_value: float | None
    reason: str | None
    hit_rate: float | None
    rank_ic: float | None


@dataclass(frozen=True, kw_only=True)
class ScoreLine:
    """Hold one row of the table of scores; see view ``score_comparison``."""

    score_id: str
    label: str
    mean_directional_alpha: float | None
    low: float | None
    high: float | None
    reason: str | None
    total_return: float | None
    buy_and_hold: float | None
    sharpe: float | None
    sessions: int | None


@dataclass(frozen=True, kw_only=True)
class ScoreSummary:
    """Hold what is printed of one score.

    Attributes:
        run_id: Run.
        score_id: Score.
        label: What it differs by from the run's own.
        definition: All that it is a function of, as JSON values.
        horizon: Sessions from decision to exit.
        first_date: First day of its window.
        last_date: Last day.
        snapshot_name: Snapshot.
        no_book: Why there is no book, or None.
        known_trials: At least so many were tried when it was made.
        trials_by_now: At least so many by now.
        books: Own lanes first.
        band: Of random ratings, or None without a book.
        certain: Mean directional alpha by horizon, then the tests.
        horizons: All decisions together, by horizon.
        folds: By fold at the score's own horizon; none where it has none.
        against: What the book of the ratings is measured against, or None without a book.
        paths_expected: Mean of `path_permutation` over the permutations, or None.
    """

    run_id: str
    score_id: str
    label: str
    definition: Mapping[str, Any]
    horizon: int
    first_date: date
    last_date: date
    snapshot_name: str
    no_book: str | None
    known_trials: int
    trials_by_now: int
    books: tuple[BookLine, ...]
    band: Band | None
    certain: tuple[Certain, ...]
    horizons: tuple[PartLine, ...]
    folds: tuple[PartLine, ...]
    against: Against | None = None
    paths_expected: float | None = None

    @property
    def main(self) -> Certain | None:
        """Mean directional alpha at the score's own horizon."""
        rows = (row for row in self.certain if row.metric == "mean_directional_alpha")
        return next((row for row in rows if row.horizon == self.horizon), None)

    def book(self, name: str) -> BookLine | None:
        """Return the first lane of a book, or None."""
        return next((book for book in self.books if book.book == name), None)


def score_named(database: Path, run_id: str, name: str) -> str:
    """Return the id of a run's score by that id or an unambiguous part of it.

    Raises:
        UsageError: None or several fit; the message lists what is there.
        DataError: There is no database, or it is damaged.
    """
    known = [row["score_id"] for row in rows_of(database, _NAMES, [run_id])]
    near = [score for score in known if score == name] or [s for s in known if name in s]
    if name and len(near) == 1:
        return str(near[0])
    problem = "is ambiguous" if name and near else "is unknown"
    listed = near if name and near else known
    more = f" and {len(listed) - 5} more" if len(listed) > 5 else ""
    raise UsageError(
        f"score {name!r} of run {run_id} {problem}: there are {', '.join(listed[:5]) or 'none'}"
        f"{more}"
    )


def score_lines(database: Path, run_id: str) -> tuple[ScoreLine, ...]:
    """Return the rows of the table of a run's scores, its own first.

    Raises:
        DataError: There is no database, or it is damaged.
    """
    return tuple(ScoreLine(**row) for row in rows_of(database, _LINES, [run_id]))


def score_summary(
    database: Path, run_id: str, *, score_id: str | None = None
) -> ScoreSummary | None:
    """Return what is printed of a score of a run, or None where it has no such.

    Args:
        database: Published database.
        run_id: Run.
        score_id: Which; default the run's own.

    Raises:
        DataError: There is no database, or it is damaged.
    """
    rows = rows_of(database, _SCORES, [run_id, score_id or "default"])
    return _summary(database, rows[0]) if rows else None


def _summary(database: Path, row: Mapping[str, Any]) -> ScoreSummary:
    run_id, score_id = str(row["run_id"]), str(row["score_id"])
    key = (run_id, score_id)
    bands = rows_of(database, _BAND, key)
    against = rows_of(database, _AGAINST, key)
    expected = rows_of(database, _EXPECTED, key)
    horizons = part_lines(database, run_id, score_id, "all")
    folds = part_lines(database, run_id, score_id, "fold")
    return ScoreSummary(
        **{**row, "definition": json.loads(row["definition"])},
        books=tuple(BookLine(**line) for line in rows_of(database, _BOOKS, key)),
        band=Band(**bands[0]) if bands else None,
        certain=tuple(Certain(**line) for line in rows_of(database, _CERTAIN, key)),
        horizons=horizons,
        folds=tuple(line for line in folds if line.horizon == row["horizon"]),
        against=Against(**against[0]) if against else None,
        paths_expected=expected[0]["value"] if expected else None,
    )


def part_lines(database: Path, run_id: str, score_id: str, scope: str) -> tuple[PartLine, ...]:
    """Return the figures of a score's decisions, for each part of them and each horizon.

    Args:
        database: Published database.
        run_id: Run.
        score_id: Score.
        scope: ``all, ticker, rating, month`` or ``fold``.

    Raises:
        DataError: There is no database, or it is damaged.
    """
    found = rows_of(database, _PARTS, [run_id, score_id, scope])
    return tuple(PartLine(**row) for row in found)


_NAMES: Final = "SELECT score_id FROM scores WHERE run_id = ? ORDER BY score_id"

_LINES: Final = """
SELECT score_id, label, mean_directional_alpha, low, high, reason, total_return, buy_and_hold,
    sharpe, sessions
FROM score_comparison WHERE run_id = ? ORDER BY score_id <> 'default', score_id"""

_SCORES: Final = """
SELECT run_id, score_id, s.label, definition, s.horizon, s.first_date, s.last_date,
    s.snapshot_name, no_book, s.known_trials, c.trials_by_now
FROM scores s JOIN score_comparison c USING (run_id, score_id)
WHERE run_id = ? AND score_id = ?"""

_BOOKS: Final = """
SELECT book, trial, sessions, total_return, cagr, volatility, sharpe, sharpe_low, sharpe_high,
    max_drawdown, turnover, orders_filled, orders_rejected, deflated_sharpe,
    min_track_record_length, pbo, benchmark_return, excess_return, beta, jensen_alpha,
    jensen_alpha_se, pbo_books
FROM book_performance_all WHERE run_id = ? AND score_id = ?
ORDER BY book <> 'ratings', book NOT IN ('buy_and_hold', 'equal_weight'), book, trial"""

_BAND: Final = """
SELECT draws, low, high, share_below, inside FROM placebo_band_all
WHERE run_id = ? AND score_id = ? AND metric = 'total_return' AND draws > 0
ORDER BY trial LIMIT 1"""

_AGAINST: Final = """
WITH held AS (
    SELECT run_id, score_id, min(benchmark) AS benchmark, min(benchmark_basis) AS basis
    FROM returns GROUP BY run_id, score_id HAVING count(DISTINCT benchmark) = 1
)
SELECT min(held.benchmark) AS benchmark, min(held.basis) AS basis,
    min(e.session) AS first, max(e.session) AS last
FROM equity e LEFT JOIN held USING (run_id, score_id)
WHERE e.run_id = ? AND e.score_id = ? AND e.book = 'ratings'
HAVING count(*) > 0"""

_EXPECTED: Final = """
SELECT value FROM metrics WHERE run_id = ? AND score_id = ? AND subject = 'decisions'
    AND scope = 'all' AND metric = 'path_permutation_expected'"""

_CERTAIN: Final = """
SELECT horizon, metric, value, n, effective_n, low, high, p_value, reason, verdict
FROM certainty_all WHERE run_id = ? AND score_id = ? AND subject = 'decisions' AND scope = 'all'
    AND metric IN ('mean_directional_alpha', 'buy_minus_sell', 'path_permutation', 'sign_test',
        'rank_ic_spearman')
ORDER BY metric, horizon"""

_PARTS: Final = """
SELECT scope, member, horizon,
    max(n) FILTER (metric = 'mean_alpha') AS decisions,
    max(value) FILTER (metric = 'mean_alpha') AS mean_alpha,
    max(n) FILTER (metric = 'mean_directional_alpha') AS n,
    max(value) FILTER (metric = 'mean_directional_alpha') AS mean_directional_alpha,
    max(effective_n) FILTER (metric = 'mean_directional_alpha') AS effective_n,
    max(low) FILTER (metric = 'mean_directional_alpha') AS low,
    max(high) FILTER (metric = 'mean_directional_alpha') AS high,
    max(p_value) FILTER (metric = 'mean_directional_alpha') AS p_value,
    max(reason) FILTER (metric = 'mean_directional_alpha') AS reason,
    max(value) FILTER (metric = 'hit_rate') AS hit_rate,
    max(value) FILTER (metric = 'rank_ic_spearman') AS rank_ic
FROM metrics
WHERE run_id = ? AND score_id = ? AND scope = ? AND subject = 'decisions' AND horizon IS NOT NULL
GROUP BY scope, member, horizon ORDER BY horizon, member"""
