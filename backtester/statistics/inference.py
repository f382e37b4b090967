"""Intervals for a mean whose cells overlap in time and move together within a session.

The cells of a session are summed first, so whatever they share counts once. The variance of the
sum over sessions is then read off at its lowest frequencies: B sums weighted with cosines, each
slower than the overlap of the windows (the equal-weighted cosine estimator of Mueller, "A theory
of robust long-run variance estimation", 2007, and Lazarus, Lewis, Stock and Watson, "HAR
inference: recommendations for practice", 2018). mean / standard error is held against Student's t.

Two corrections make that hold in short histories. Under a working model (windows of `horizon`
sessions overlap as a triangle, cells of one session correlate by `WORKING_CORRELATION`) the bias
of the estimate is known and divided out, and the degrees of freedom are those of its first two
moments: after Bell and McCaffrey (2002) and Imbens and Kolesar, "Robust standard errors in small
samples" (2016), carried over to cosines. With cells spread evenly they are close to 1 and B; with
a rating that was given in a few clusters they say how little that is. `docs/statistics.md` has the
simulated coverage.
"""

from __future__ import annotations

import functools
import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from backtester.statistics.distributions import t_critical, t_greater, t_two_sided
from backtester.statistics.moments import LARGEST_RETURN, total

FEWEST_WINDOWS = 12
"""Below so many windows that do not overlap, no interval is shown."""
FEWEST_DEGREES = 2.0
"""Below so many degrees of freedom none is shown either: the cells sit in too few clusters."""
WORKING_CORRELATION = 0.3
"""Between cells of one session, in the working model. Coverage hardly depends on it: 0 and 1
move it by less than 1 point each way."""
MOST_COSINES = 48
"""More would narrow no interval by more than 3 %."""
COSINES = "equal-weighted cosines"

_NO_SPREAD = 1e-14

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Interval:
    """Hold a mean (or a difference of two) and what may be said of it.

    Attributes:
        mean: Of all cells, or None without any.
        n: Cells.
        sessions: Distinct sessions.
        windows: Return windows that do not overlap, as many as fit.
        effective_n: Independent cells that would have the same standard error; at most ``n``.
            None where there is no interval; so are the figures below.
        low: Lower end of the interval.
        high: Upper end.
        standard_error: Square root of the long-run variance of the mean.
        statistic: mean / standard error, a Student's t under no effect.
        degrees: Its degrees of freedom, at most the number of cosines.
        p_two_sided: Probability of so large a statistic, of either sign, without an effect.
        p_greater: Probability of so high a statistic without an effect.
        level: Of the interval.
        cosines: How many the variance was read off at.
        method: How the variance was had.
        reason: Why there is no interval (``no_rows``, ``too_few_windows``, ``no_variation``,
            ``too_few_clusters``, ``too_large``), else None.
    """

    mean: float | None
    n: int
    sessions: int
    windows: int
    effective_n: float | None
    low: float | None
    high: float | None
    standard_error: float | None
    statistic: float | None
    degrees: float | None
    p_two_sided: float | None
    p_greater: float | None
    level: float
    cosines: int | None
    method: str
    reason: str | None


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Hold how cells lie in time, whatever they hold: what columns of the same cells share.

    Attributes:
        n: Cells.
        turn: Puts cells in the order of their sessions; None where they are in it.
        days: Sessions, ascending.
        ends: Where the cells of each begin in that order, and where the last ones end.
    """

    n: int
    turn: npt.NDArray[np.intp] | None
    days: list[int]
    ends: list[int]
    _windows: dict[int, int] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of(cls, sessions: Sequence[int] | Places) -> Layout:
        """Lay out cells.

        Args:
            sessions: Position of each cell's decision session on the calendar; any order.
        """
        n = len(sessions)
        if n == 0:
            return cls(n=0, turn=None, days=[], ends=[0])
        places, turn = np.array(sessions, dtype=np.int64), None
        steps = np.diff(places, prepend=places[0] - 1)
        if (steps < 0).any():
            turn = np.argsort(places, kind="stable")
            places = places[turn]
            steps = np.diff(places, prepend=places[0] - 1)
        starts = np.flatnonzero(steps)
        return cls(n=n, turn=turn, days=places[starts].tolist(), ends=[*starts.tolist(), n])

    @cached_property
    def counts(self) -> list[int]:
        """Cells of each session."""
        found: list[int] = np.diff(np.array(self.ends)).tolist()
        return found

    def windows(self, horizon: int) -> int:
        """Return how many `windows_apart` finds."""
        if horizon == 1:
            return len(self.days)
        if horizon not in self._windows:
            self._windows[horizon] = _windows(self.days, horizon)
        return self._windows[horizon]


def mean_interval(
    values: Sequence[float] | Floats,
    sessions: Sequence[int] | Places | Layout,
    horizon: int,
    *,
    level: float = 0.95,
) -> Interval:
    """Return the mean of cells with an interval that holds its level.

    Args:
        values: One number a cell, finite (an alpha, a direction x alpha, a session's rank IC).
        sessions: Position of each cell's decision session on the calendar, any order; or the
            layout of them, where several columns have it.
        horizon: Sessions from a decision to the end of its window, at least 1.
        level: Between 0 and 1.

    Raises:
        ValueError: For lists of two lengths, a number that is not finite, a horizon below 1, a
            level that is none.
    """
    group = _Group.of(values, sessions)
    return _interval((group,), group.mean, horizon, level)


def spread_interval(
    upper: Sequence[float],
    upper_sessions: Sequence[int],
    lower: Sequence[float],
    lower_sessions: Sequence[int],
    horizon: int,
    *,
    level: float = 0.95,
) -> Interval:
    """Return mean(upper) - mean(lower) with its interval: Buy minus Sell.

    Args:
        upper: Cells of the first group, finite.
        upper_sessions: Their sessions.
        lower: Cells of the second group.
        lower_sessions: Their sessions.
        horizon: Sessions from a decision to the end of its window.
        level: Between 0 and 1.

    Returns:
        An interval whose ``windows`` are those of the group that has fewer.

    Raises:
        ValueError: As `mean_interval`.
    """
    first, second = _Group.of(upper, upper_sessions), _Group.of(lower, lower_sessions)
    both = first.mean is not None and second.mean is not None
    estimate = first.mean - second.mean if both else None  # type: ignore[operator]
    return _interval((first, second), estimate, horizon, level)


def windows_apart(sessions: Sequence[int], horizon: int) -> tuple[int, ...]:
    """Return sessions whose windows do not overlap: the first, then each that starts late enough.

    Args:
        sessions: Positions on the calendar, any order.
        horizon: Sessions from a decision to the end of its window, at least 1.
    """
    chosen: list[int] = []
    for session in sorted(set(sessions)):
        if not chosen or session - chosen[-1] >= horizon:
            chosen.append(session)
    return tuple(chosen)


@functools.lru_cache(maxsize=4096)
def cosines_for(windows: int) -> int:
    """Return at how many cosines the variance is read off: 1.2 x windows^(2/3), at most 48.

    The rate is Lazarus, Lewis, Stock and Watson's; 12 windows have 6, 60 have 18, 250 have 47.
    """
    # In whole numbers, 1.2^3 being 216 / 125: 125 windows have 30, whatever a power rounds to.
    fitting = (b for b in range(MOST_COSINES, 1, -1) if 125 * b**3 <= 216 * windows**2)
    return next(fitting, 2)


@functools.lru_cache(maxsize=64)
def cosine_basis(sessions: int, cosines: int) -> Floats:
    """Return the weights, sessions x cosines: ``sqrt(2) cos(pi j (s - 1/2) / S)``."""
    root = math.sqrt(2.0)
    # Every weight is one of 4S values: so many cosines of the machine's library, not S x B.
    circle = np.array([root * math.cos(math.pi * m / (2 * sessions)) for m in range(4 * sessions)])
    odd, j = 2 * np.arange(sessions) + 1, np.arange(1, cosines + 1)
    basis: Floats = circle[(odd[:, None] * j) % (4 * sessions)]
    basis.flags.writeable = False
    return basis


@dataclass(frozen=True, kw_only=True)
class Model:
    """Hold what the working model says of an estimate's variance at the cosines.

    Attributes:
        bias: Expected variance at the cosines / variance of the estimate.
        degrees: Degrees of freedom of the former, from its first two moments.
    """

    bias: float
    degrees: float


_NO_MODEL = Model(bias=1.0, degrees=0.0)


def working_model(
    counts: Sequence[Sequence[int]], positions: Sequence[int], horizon: int, cosines: int
) -> Model:
    """Return bias and degrees of freedom from how the cells lie in time, whatever they hold.

    Args:
        counts: For each mean that the estimate is made of, the cells of each session.
        positions: Of the sessions on the calendar, ascending.
        horizon: Length of a window, sessions.
        cosines: How many.
    """
    # The cells of every ticker, horizon and alpha of a run lie on much the same sessions.
    return _working_model(
        tuple(tuple(group) for group in counts), tuple(positions), horizon, cosines
    )


@functools.lru_cache(maxsize=512)
def _working_model(
    counts: tuple[tuple[int, ...], ...], positions: tuple[int, ...], horizon: int, cosines: int
) -> Model:
    basis, places = cosine_basis(len(positions), cosines), np.array(positions)
    form: Floats = np.zeros((cosines, cosines))
    variance = 0.0
    for group in counts:
        part, alone = _working(np.array(group, dtype=np.float64), places, horizon, basis)
        form, variance = form + part, variance + alone
    trace = math.fsum(form.diagonal().tolist())
    if trace <= 0.0:
        return _NO_MODEL
    squares = math.fsum((form * form).ravel().tolist())
    return Model(bias=trace / cosines / variance, degrees=trace * trace / squares)


@dataclass(frozen=True, kw_only=True)
class _Group:
    """Hold the cells of one mean by session.

    Attributes:
        layout: Where they lie.
        cells: In the order of their sessions.
        mean: Of all of them; None without any, or where they are too large for one.
        huge: Whether they are too large for a variance.
    """

    layout: Layout
    cells: Floats
    mean: float | None
    huge: bool = False

    @classmethod
    def of(
        cls, values: Sequence[float] | Floats, sessions: Sequence[int] | Places | Layout
    ) -> _Group:
        layout = sessions if isinstance(sessions, Layout) else Layout.of(sessions)
        if len(values) != layout.n:
            raise ValueError(f"{len(values)} values have {layout.n} sessions")
        cells = np.array(values, dtype=np.float64)
        if layout.n == 0:
            return cls(layout=layout, cells=cells, mean=None)
        if layout.turn is not None:
            cells = cells[layout.turn]
        known = np.isfinite(cells)
        if not known.all():
            at = int(np.argmin(known))
            day = layout.days[np.searchsorted(layout.ends, at, side="right") - 1]
            raise ValueError(f"a value of session {day} is {cells[at]}: leave it out")
        mean = total(cells.tolist()) / layout.n
        huge = bool(np.abs(cells).max() > LARGEST_RETURN)
        return cls(
            layout=layout,
            cells=cells,
            mean=None if huge and not math.isfinite(mean) else mean,
            huge=huge,
        )

    @property
    def n(self) -> int:
        """How many cells there are."""
        return self.layout.n

    @cached_property
    def apart(self) -> Floats:
        """Cell - mean."""
        found: Floats = self.cells - (self.mean or 0.0)
        return found

    @cached_property
    def left(self) -> Floats:
        """Sum of (cell - mean) / n of each session."""
        if len(self.layout.days) == self.n:
            return self.apart / self.n
        starts, counts = np.array(self.layout.ends[:-1]), np.array(self.layout.counts)
        sums = self.apart[starts]
        pairs = counts == 2
        sums[pairs] += self.apart[starts[pairs] + 1]
        # The sum of two is rounded once anyhow; more are added up exactly, as everywhere.
        cells, ends = self.apart.tolist(), self.layout.ends
        for at in np.flatnonzero(counts > 2).tolist():
            sums[at] = math.fsum(cells[ends[at] : ends[at + 1]])
        found: Floats = sums / self.n
        return found

    @cached_property
    def variance(self) -> float:
        """Sample variance of the cells / n: of the mean, were they independent."""
        if self.mean is None or float(np.ptp(self.cells)) <= _NO_SPREAD * max(1.0, abs(self.mean)):
            return 0.0
        return math.fsum((self.apart * self.apart).tolist()) / (self.n - 1) / self.n


def _interval(
    groups: tuple[_Group, ...], estimate: float | None, horizon: int, level: float
) -> Interval:
    if horizon < 1:
        raise ValueError(f"a horizon of {horizon} sessions is none")
    if not 0.0 < level < 1.0:
        raise ValueError(f"a level of {level} is none")
    n = sum(group.n for group in groups)
    windows = min(group.layout.windows(horizon) for group in groups)
    order = _order(groups)
    cosines = cosines_for(windows)
    reason, error, model = _flaw(groups, windows), 0.0, _NO_MODEL
    if reason is None:
        counts = [_along(order, group.layout.days, group.layout.counts, 0) for group in groups]
        model = working_model(counts, order, horizon, cosines)
        error = math.sqrt(_measured(groups, order, cosine_basis(len(order), cosines)) / model.bias)
        reason = "too_few_clusters" if model.degrees < FEWEST_DEGREES else None
    if estimate is None or reason is not None or error <= _NO_SPREAD**2:
        reason = reason or "no_variation"
        return Interval(
            mean=estimate, n=n, sessions=len(order), windows=windows, effective_n=None, low=None,
            high=None, standard_error=None, statistic=None, degrees=None, p_two_sided=None,
            p_greater=None, level=level, cosines=None, method=COSINES, reason=reason,
        )  # fmt: skip
    statistic = estimate / error
    reach = t_critical(level, model.degrees) * error
    independent = math.fsum(group.variance for group in groups)
    return Interval(
        mean=estimate,
        n=n,
        sessions=len(order),
        windows=windows,
        effective_n=min(float(n), n * independent / error**2),
        low=estimate - reach,
        high=estimate + reach,
        standard_error=error,
        statistic=statistic,
        degrees=model.degrees,
        p_two_sided=t_two_sided(statistic, model.degrees),
        p_greater=t_greater(statistic, model.degrees),
        level=level,
        cosines=cosines,
        method=COSINES,
        reason=None,
    )


def _order(groups: tuple[_Group, ...]) -> list[int]:
    """Return the sessions of all groups, ascending."""
    if len(groups) == 1:
        return groups[0].layout.days
    return sorted({session for group in groups for session in group.layout.days})


def _windows(days: list[int], horizon: int) -> int:
    count = at = 0
    while at < len(days):
        count += 1
        at = bisect_left(days, days[at] + horizon, at)
    return count


def _along(order: list[int], days: list[int], values: list[T], blank: T) -> list[T]:
    """Return the values of some sessions along others, a blank where there is none."""
    if days == order:
        return values
    known = dict(zip(days, values, strict=True))
    return [known.get(session, blank) for session in order]


def _flaw(groups: tuple[_Group, ...], windows: int) -> str | None:
    if any(group.n == 0 for group in groups):
        return "no_rows"
    if any(group.huge for group in groups):
        return "too_large"
    if windows < FEWEST_WINDOWS:
        return "too_few_windows"
    return "no_variation" if all(group.variance == 0.0 for group in groups) else None


def _measured(groups: tuple[_Group, ...], order: list[int], basis: Floats) -> float:
    """Return the variance that the cosines see: the mean square of their sums.

    Sums over sessions run in their order, element by element: a BLAS would give other last bits
    on other processors.
    """
    left, *others = (
        np.array(_along(order, group.layout.days, group.left.tolist(), 0.0)) for group in groups
    )
    for other in others:
        left = left - other
    sums = (left[:, None] * basis).sum(axis=0).tolist()
    return math.fsum(row * row for row in sums) / len(sums)


def _working(
    counts: Floats, positions: npt.NDArray[np.int_], horizon: int, basis: Floats
) -> tuple[Floats, float]:
    """Return the covariance of the cosine sums under the working model, and the mean's variance.

    Args:
        counts: Cells of each session.
        positions: Of the sessions on the calendar.
        horizon: Length of a window.
        basis: `cosine_basis`.
    """
    n = counts.sum()
    size = np.sqrt(counts * (1.0 + WORKING_CORRELATION * np.maximum(counts - 1.0, 0.0))) / n
    # What is left of a session after the mean is taken off, seen through the cosines.
    seen = size[:, None] * (basis - ((counts / n)[:, None] * basis).sum(axis=0))
    spread, alone = seen.copy(), size.copy()
    for lag in range(1, len(positions)):
        share = 1.0 - (positions[lag:] - positions[:-lag]) / horizon
        if share.max() <= 0.0:
            break
        share = np.maximum(share, 0.0)
        spread[:-lag] += share[:, None] * seen[lag:]
        spread[lag:] += share[:, None] * seen[:-lag]
        alone[:-lag] += share * size[lag:]
        alone[lag:] += share * size[:-lag]
    form = np.array([(seen[:, j : j + 1] * spread).sum(axis=0) for j in range(seen.shape[1])])
    return form, math.fsum((size * alone).tolist())
