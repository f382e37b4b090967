"""The figures of a score's decisions: by part of the decisions and by horizon, with what is sure.

Every mean has its interval beside it, and a reason where there is none. Windows that overlap are
averaged and never chained: there is no total of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from backtester.records import DIRECTION, RATINGS
from backtester.score.earnings import Earnings
from backtester.score.records import MetricRow
from backtester.settlement.decided import UNRATED
from backtester.statistics.folds import Fold
from backtester.statistics.inference import Interval, Layout, mean_interval, spread_interval
from backtester.statistics.metrics import Measure, hit_rate
from backtester.statistics.permutation import path_permutation, sign_test
from backtester.statistics.ranking import monotonicity, rank_ic

DECISIONS: Final = "decisions"
UNREAD: Final = "unread"
LEVEL: Final = 0.95
Floats = npt.NDArray[np.float64]
_RANK: Final = {rating: rank for rank, rating in enumerate(RATINGS, start=-2)}


@dataclass(frozen=True, kw_only=True)
class _Part:
    """Name a part of the decisions, and how many of their positions one window may span."""

    scope: str
    member: str
    horizon: int
    span: int
    rows: Earnings

    def row(self, metric: str, value: float | None, **figures: Any) -> MetricRow:
        return MetricRow(
            subject=DECISIONS,
            scope=self.scope,
            member=self.member,
            horizon=self.horizon,
            metric=metric,
            value=value,
            **figures,
        )


def decision_figures(
    rows: Earnings,
    *,
    horizon: int,
    span: int,
    folds: Sequence[Fold] = (),
    seed: int,
    tested: bool,
) -> tuple[MetricRow, ...]:
    """Return every figure of the decisions at one horizon.

    Args:
        rows: Scored decisions; pending ones have no numbers.
        horizon: Sessions from decision to exit, of the instrument's calendar.
        span: The same on the union of all calendars, which may be more.
        folds: Walk-forward folds, for figures of each.
        seed: Of the drawn permutations.
        tested: Whether the tests that shuffle are done too; they take the longest.
    """
    parts = [
        _Part(scope=scope, member=member, horizon=horizon, span=span, rows=members)
        for scope, member, members in _parts(rows, folds)
    ]
    found: list[MetricRow] = []
    for part in parts:
        found += _means(part)
        if part.scope in ("all", "fold"):
            found += _rankings(part)
        if tested and part.scope == "all":
            found += _tests(part, seed)
    return tuple(found)


def _parts(rows: Earnings, folds: Sequence[Fold]) -> Iterator[tuple[str, str, Earnings]]:
    yield "all", "all", rows
    for place, ticker in enumerate(rows.tickers):
        yield "ticker", ticker, rows.at(rows.ticker == place)
    names = {rating: place for place, rating in enumerate(RATINGS)} | {UNREAD: UNRATED}
    given = set(np.unique(rows.rating).tolist())
    for rating, place in sorted(names.items()):
        if place in given:
            yield "rating", rating, rows.at(rows.rating == place)
    months = rows.day.astype("datetime64[M]")
    for month in np.unique(months):
        yield "month", str(month), rows.at(months == month)
    for fold in folds:
        days, which = np.unique(rows.day, return_inverse=True)
        inside = np.array([fold.holds(day) for day in days.tolist()], dtype=np.bool_)
        yield "fold", fold.label, rows.at(inside[which])


def _means(part: _Part) -> Iterator[MetricRow]:
    rows = part.rows
    metrics = {
        "mean_return": rows.raw_total,
        "mean_alpha": rows.alpha,
        "mean_geometric_alpha": rows.geometric,
        "mean_directional_alpha": rows.directed,
    }
    there, layout = np.zeros(0, dtype=np.bool_), Layout.of(())
    for metric, column in metrics.items():
        known = ~np.isnan(column)
        # Most columns have numbers in the same rows: those lie in time alike.
        if not np.array_equal(known, there):
            there, layout = known, Layout.of(rows.position[known])
        found = mean_interval(column[there], layout, part.span, level=LEVEL)
        yield interval_row(part.row, metric, found)
    directed, places = _read(rows, rows.directed)
    yield _measure_row(part, hit_rate(directed), name="hit_rate", sessions=len(set(places)))


def _read(rows: Earnings, column: Floats) -> tuple[list[float], list[int]]:
    """Return the numbers of a column that are there, and the positions of their sessions."""
    there = ~np.isnan(column)
    return column[there].tolist(), rows.position[there].tolist()


def interval_row(
    make: Callable[..., MetricRow], metric: str, found: Interval, *, unit: str = "fraction"
) -> MetricRow:
    """Return a mean with its interval as a row.

    Args:
        make: Takes metric, value and the other figures.
        metric: Its name.
        found: Mean and interval.
        unit: Of the mean.
    """
    return make(
        metric,
        found.mean,
        unit=unit,
        n=found.n,
        sessions=found.sessions,
        effective_n=found.effective_n,
        low=found.low,
        high=found.high,
        level=found.level if found.low is not None else None,
        p_value=found.p_two_sided,
        method=found.method,
        reason=found.reason,
    )


def _measure_row(
    part: _Part, found: Measure, *, name: str, sessions: int | None = None
) -> MetricRow:
    return part.row(
        name, found.value, unit=found.unit, n=found.n, sessions=sessions, reason=found.reason
    )


def _rankings(part: _Part) -> Iterator[MetricRow]:
    def alphas_of(*wanted: str) -> tuple[list[float], list[int]]:
        places = [RATINGS.index(rating) for rating in wanted]
        rows = part.rows.at(np.isin(part.rows.rating, places))
        return _read(rows, rows.alpha)

    pairs = {
        "buy_minus_sell": (("Buy",), ("Sell",)),
        "positive_minus_negative": (("Buy", "Overweight"), ("Sell", "Underweight")),
    }
    for metric, (upper, lower) in pairs.items():
        up, up_places = alphas_of(*upper)
        down, down_places = alphas_of(*lower)
        spread = spread_interval(up, up_places, down, down_places, part.span, level=LEVEL)
        yield interval_row(part.row, metric, spread)
    groups = {rank: alphas_of(rating)[0] for rating, rank in _RANK.items()}
    yield _measure_row(part, monotonicity(groups), name="monotonicity")
    grid = _grid(part.rows, [float(_RANK[rating]) for rating in RATINGS])
    for kind in ("spearman", "kendall"):
        found = rank_ic(grid.ratings, grid.alphas, grid.places, part.span, kind=kind, level=LEVEL)
        yield interval_row(part.row, f"rank_ic_{kind}", found.mean, unit="ratio")


def _tests(part: _Part, seed: int) -> Iterator[MetricRow]:
    grid = _grid(part.rows, [float(DIRECTION[rating]) for rating in RATINGS])
    paths = path_permutation(grid.ratings, grid.alphas, seed=seed)
    listed = "all of them" if paths.exact else f"seed {paths.seed}"
    yield part.row(
        "path_permutation",
        paths.statistic,
        unit="fraction",
        n=paths.cells,
        sessions=len(grid.places),
        p_value=paths.p_two_sided,
        method=f"{paths.draws} permutations of whole rating paths, {listed}",
        reason=paths.reason,
    )
    # No mean of decisions: it has no sessions of its own, and no verdict.
    expected = "path_permutation_expected"
    why = None if paths.expected is not None else paths.reason
    yield part.row(expected, paths.expected, unit="fraction", n=paths.cells, reason=why)
    values, places = _read(part.rows, part.rows.directed)
    signs = sign_test(values, places, part.span)
    decided = signs.positive + signs.negative
    yield part.row(
        "sign_test",
        signs.positive / decided if decided else None,
        unit="fraction",
        n=decided,
        sessions=signs.sessions,
        p_value=signs.p_two_sided,
        method="means of sessions whose windows do not overlap, exact binomial",
        reason=signs.reason,
    )


@dataclass(frozen=True, kw_only=True)
class _Grid:
    """Hold ratings and alphas as sessions x tickers; NaN where there is none.

    Several trials of a cell count as one: the mean of their ratings.
    """

    ratings: npt.NDArray[np.float64]
    alphas: npt.NDArray[np.float64]
    places: list[int]


def _grid(rows: Earnings, worth: Sequence[float]) -> _Grid:
    """Lay out ratings and alphas.

    Args:
        rows: Decisions.
        worth: Number of each of `RATINGS`.
    """
    places, line = np.unique(rows.position, return_inverse=True)
    _, column = np.unique(rows.ticker, return_inverse=True)
    shape = (len(places), len(np.unique(rows.ticker)))
    alphas, ratings = np.full(shape, np.nan), np.full(shape, np.nan)
    known = ~np.isnan(rows.alpha)
    alphas[line[known], column[known]] = rows.alpha[known]
    # Small whole numbers: their sum is exact in any order.
    rated = rows.rating != UNRATED
    sums, counts = np.zeros(shape), np.zeros(shape)
    at = (line[rated], column[rated])
    np.add.at(sums, at, np.array(worth)[rows.rating[rated]])
    np.add.at(counts, at, 1.0)
    ratings[counts > 0] = sums[counts > 0] / counts[counts > 0]
    return _Grid(ratings=ratings, alphas=alphas, places=places.tolist())
