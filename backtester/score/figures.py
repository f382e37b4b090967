"""The figures of a score's decisions: by part of the decisions and by horizon, with what is sure.

Every mean has its interval beside it, and a reason where there is none. Windows that overlap are
averaged and never chained: there is no total of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from backtester.records import DIRECTION, RATINGS
from backtester.score.records import MetricRow
from backtester.statistics.folds import Fold
from backtester.statistics.inference import Interval, mean_interval, spread_interval
from backtester.statistics.metrics import Measure, hit_rate
from backtester.statistics.permutation import path_permutation, sign_test
from backtester.statistics.ranking import monotonicity, rank_ic

DECISIONS: Final = "decisions"
UNREAD: Final = "unread"
LEVEL: Final = 0.95
_RANK: Final = {rating: rank for rank, rating in enumerate(RATINGS, start=-2)}


class Earned(NamedTuple):
    """Hold what one scored decision earned to one horizon.

    Attributes:
        ticker: Instrument id.
        session: Decision session.
        trial: Lane.
        rating: One of the five, or None.
        position: Of the session, among all sessions of the universe's calendars.
        raw_total: Return, or None; so the next three.
        alpha: Return on the benchmark's basis less the benchmark's.
        geometric: (1 + return) / (1 + benchmark's) - 1.
    """

    ticker: str
    session: date
    trial: int
    rating: str | None
    position: int
    raw_total: float | None
    alpha: float | None
    geometric: float | None

    @property
    def directed(self) -> float | None:
        """Direction times alpha of a call that takes a side, else None."""
        side = DIRECTION[self.rating] if self.rating else 0
        return side * self.alpha if side and self.alpha is not None else None


@dataclass(frozen=True, kw_only=True)
class _Part:
    """Name a part of the decisions, and how many of their positions one window may span."""

    scope: str
    member: str
    horizon: int
    span: int
    rows: Sequence[Earned]

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
    rows: Sequence[Earned],
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


def _parts(
    rows: Sequence[Earned], folds: Sequence[Fold]
) -> Iterator[tuple[str, str, list[Earned]]]:
    yield "all", "all", list(rows)
    keys: Mapping[str, Callable[[Earned], str]] = {
        "ticker": lambda row: row.ticker,
        "rating": lambda row: row.rating or UNREAD,
        "month": lambda row: f"{row.session:%Y-%m}",
    }
    for scope, key in keys.items():
        groups: dict[str, list[Earned]] = {}
        for row in rows:
            groups.setdefault(key(row), []).append(row)
        for member in sorted(groups):
            yield scope, member, groups[member]
    for fold in folds:
        yield "fold", fold.label, [row for row in rows if fold.holds(row.session)]


_MEANS: Final[Mapping[str, Callable[[Earned], float | None]]] = {
    "mean_return": lambda row: row.raw_total,
    "mean_alpha": lambda row: row.alpha,
    "mean_geometric_alpha": lambda row: row.geometric,
    "mean_directional_alpha": lambda row: row.directed,
}


def _means(part: _Part) -> Iterator[MetricRow]:
    for metric, read in _MEANS.items():
        values, places = _read(part.rows, read)
        yield interval_row(part.row, metric, mean_interval(values, places, part.span, level=LEVEL))
    directed, places = _read(part.rows, lambda row: row.directed)
    yield _measure_row(part, hit_rate(directed), name="hit_rate", sessions=len(set(places)))


def _read(
    rows: Sequence[Earned], read: Callable[[Earned], float | None]
) -> tuple[list[float], list[int]]:
    pairs = [(value, row.position) for row in rows if (value := read(row)) is not None]
    return [value for value, _ in pairs], [place for _, place in pairs]


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
        rows = [row for row in part.rows if row.rating in wanted]
        return _read(rows, lambda row: row.alpha)

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
    grid = _grid(part.rows, lambda row: None if row.rating is None else float(_RANK[row.rating]))
    for kind in ("spearman", "kendall"):
        found = rank_ic(grid.ratings, grid.alphas, grid.places, part.span, kind=kind, level=LEVEL)
        yield interval_row(part.row, f"rank_ic_{kind}", found.mean, unit="ratio")


def _tests(part: _Part, seed: int) -> Iterator[MetricRow]:
    grid = _grid(
        part.rows, lambda row: None if row.rating is None else float(DIRECTION[row.rating])
    )
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
    values, places = _read(part.rows, lambda row: row.directed)
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


def _grid(rows: Sequence[Earned], read: Callable[[Earned], float | None]) -> _Grid:
    places = sorted({row.position for row in rows})
    tickers = sorted({row.ticker for row in rows})
    line = {place: at for at, place in enumerate(places)}
    column = {ticker: at for at, ticker in enumerate(tickers)}
    cells: dict[tuple[int, int], list[float]] = {}
    alphas = np.full((len(places), len(tickers)), np.nan)
    for row in rows:
        at = (line[row.position], column[row.ticker])
        value = read(row)
        if value is not None:
            cells.setdefault(at, []).append(value)
        if row.alpha is not None:
            alphas[at] = row.alpha
    ratings = np.full(alphas.shape, np.nan)
    for at, values in cells.items():
        ratings[at] = math.fsum(values) / len(values)
    return _Grid(ratings=ratings, alphas=alphas, places=places)
