"""What each test says of many histories at once.

The product's own tests, and three that it does not use because they take cells for independent.
Arrays of histories make a table of thousands possible; the first histories of every world go
through the product itself, and must come out the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from backtester.statistics.distributions import t_critical
from backtester.statistics.inference import (
    FEWEST_DEGREES,
    FEWEST_WINDOWS,
    WORKING_CORRELATION,
    Interval,
    cosine_basis,
    cosines_for,
    mean_interval,
    spread_interval,
    windows_apart,
    working_model,
)
from backtester.statistics.permutation import path_permutation, permutations_of, sign_test
from backtester.statistics.ranking import rank_ic
from benchmarks.soak.histories import Batch, Floats, World

LEVEL = 0.95
DRAWS = 1_999
"""Fewer than the product draws: a level holds with any number of draws."""
_CHUNK = 2_000_000
_NORMAL = 1.959963984540054

Truths = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Hold how often a test said yes: covered the truth, or rejected.

    Attributes:
        shown: Histories in which it said anything.
        yes: Of those, how many.
        histories: All of them.
    """

    shown: int
    yes: int
    histories: int

    @property
    def rate(self) -> float | None:
        """Return the share of yes where anything was shown."""
        return self.yes / self.shown if self.shown else None

    def __add__(self, other: Verdict) -> Verdict:
        """Return both together."""
        return Verdict(
            shown=self.shown + other.shown,
            yes=self.yes + other.yes,
            histories=self.histories + other.histories,
        )


def count(yes: Truths, shown: Truths | None = None) -> Verdict:
    """Count the yes of those that were shown (all, if nothing is said)."""
    seen = np.ones(len(yes), dtype=np.bool_) if shown is None else shown
    return Verdict(shown=int(seen.sum()), yes=int((yes & seen).sum()), histories=len(yes))


@dataclass(frozen=True, kw_only=True)
class Means:
    """Hold a mean and its standard error for each history, and their common degrees of freedom.

    Attributes:
        mean: One a history.
        error: Standard error, one a history.
        degrees: Of freedom; None where the product shows no interval.
    """

    mean: Floats
    error: Floats
    degrees: float | None

    def covers(self, truth: float) -> Verdict:
        """Count the intervals that hold the truth."""
        if self.degrees is None:
            return Verdict(shown=0, yes=0, histories=len(self.mean))
        reach = t_critical(LEVEL, self.degrees) * self.error
        return count(np.abs(self.mean - truth) <= reach)

    def rejects(self) -> Verdict:
        """Count the intervals that leave 0 out."""
        covered = self.covers(0.0)
        return Verdict(
            shown=covered.shown, yes=covered.shown - covered.yes, histories=covered.histories
        )


def even_means(session_means: Floats, world: World, cells: int) -> Means:
    """Return the means of histories whose every session has as many cells.

    Args:
        session_means: Histories x decisions.
        world: Where they are from.
        cells: Of each session.
    """
    positions = list(world.positions)
    windows = len(windows_apart(positions, world.horizon))
    mean = session_means.mean(axis=1)
    if windows < FEWEST_WINDOWS:
        return Means(mean=mean, error=np.zeros_like(mean), degrees=None)
    cosines = cosines_for(windows)
    model = working_model([[cells] * len(positions)], positions, world.horizon, cosines)
    left = (session_means - mean[:, None]) / len(positions)
    seen = left @ cosine_basis(len(positions), cosines)
    return Means(
        mean=mean, error=np.sqrt((seen**2).mean(axis=1) / model.bias), degrees=model.degrees
    )


def directional(world: World, batch: Batch) -> Means:
    """Return the mean of direction x alpha of each history, as the product has it."""
    return even_means((batch.directions * batch.alphas).mean(axis=2), world, world.tickers)


def naive_interval(world: World, batch: Batch) -> Verdict:
    """Count the intervals that hold the truth when cells are taken for independent."""
    cells = (batch.directions * batch.alphas).reshape(len(batch.alphas), -1)
    error = cells.std(axis=1, ddof=1) / math.sqrt(cells.shape[1])
    return count(np.abs(cells.mean(axis=1) - world.mean) <= _NORMAL * error)


def naive_sign(batch: Batch) -> Verdict:
    """Count the rejections of a sign test over cells (normal limit, two-sided)."""
    cells = (batch.directions * batch.alphas).reshape(len(batch.alphas), -1)
    up, down = (cells > 0.0).sum(axis=1), (cells < 0.0).sum(axis=1)
    return count(np.abs(up - down) > _NORMAL * np.sqrt(np.maximum(up + down, 1)))


def naive_shuffle(batch: Batch) -> Verdict:
    """Count the rejections of a shuffle of ratings within each session (two-sided).

    The shuffles' mean and variance are exact, their distribution over so many sessions normal.
    """
    d, a = batch.directions, batch.alphas
    tickers = d.shape[2]
    d_mean, a_mean = d.mean(axis=2, keepdims=True), a.mean(axis=2, keepdims=True)
    found = ((d - d_mean) * (a - a_mean)).sum(axis=(1, 2))
    spread = ((d - d_mean) ** 2).sum(axis=2) * ((a - a_mean) ** 2).sum(axis=2) / (tickers - 1)
    return count(np.abs(found) > _NORMAL * np.sqrt(spread.sum(axis=1)))


def session_signs(world: World, batch: Batch) -> Verdict:
    """Count the rejections of the product's sign test on sessions apart (two-sided)."""
    positions = list(world.positions)
    means = (batch.directions * batch.alphas).sum(axis=2)
    found = [sign_test(row, positions, world.horizon).p_two_sided for row in means.tolist()]
    p = np.array([1.0 if value is None else value for value in found])
    return count(p <= 1.0 - LEVEL)


@dataclass(frozen=True, kw_only=True)
class Paths:
    """Hold the p-values of the permutation of whole paths, one a history.

    Attributes:
        greater: One-sided.
        two_sided: Two-sided.
    """

    greater: Floats
    two_sided: Floats


def paths(batch: Batch, *, seed: int) -> Paths:
    """Return the p-values of the permutation of whole rating paths between tickers."""
    tickers, cells = batch.alphas.shape[2], batch.alphas.shape[1] * batch.alphas.shape[2]
    greater, two_sided = [], []
    places = permutations_of(tickers, seed=seed, draws=DRAWS)
    size = max(1, _CHUNK // len(places))
    for start in range(0, len(batch.alphas), size):
        places = permutations_of(tickers, seed=seed + start, draws=DRAWS)
        d, a = batch.directions[start : start + size], batch.alphas[start : start + size]
        sums = d.transpose(0, 2, 1) @ a
        found = np.zeros((len(d), len(places)))
        for ticker in range(tickers):
            found += sums[:, places[:, ticker], ticker]
        found /= cells
        slack = 1e-12 * np.abs(found).max(axis=1, keepdims=True)
        away = np.abs(found - found.mean(axis=1, keepdims=True))
        greater.append((found >= found[:, :1] - slack).mean(axis=1))
        two_sided.append((away >= away[:, :1] - slack).mean(axis=1))
    return Paths(greater=np.concatenate(greater), two_sided=np.concatenate(two_sided))


def rank_ics(world: World, batch: Batch) -> Verdict:
    """Count the intervals of the mean rank IC that hold 0."""
    d, a = batch.directions, batch.alphas
    levels = np.sort(np.unique(d))
    at = (d[..., None] == levels).sum(axis=2)
    middle = np.cumsum(at, axis=2) - (at - 1) / 2.0
    x = np.take_along_axis(middle, np.searchsorted(levels, d), axis=2)
    y = a.argsort(axis=2).argsort(axis=2) + 1.0
    x, y = x - x.mean(axis=2, keepdims=True), y - y.mean(axis=2, keepdims=True)
    spread = (x**2).sum(axis=2) * (y**2).sum(axis=2)
    with np.errstate(invalid="ignore"):
        ics = np.where(spread > 0.0, (x * y).sum(axis=2) / np.sqrt(spread), np.nan)
    whole = ~np.isnan(ics).any(axis=1)
    verdict = even_means(ics[whole], world, 1).covers(0.0)
    for row in ics[~whole]:
        there = ~np.isnan(row)
        positions = np.array(world.positions)[there]
        verdict += covered(mean_interval(row[there].tolist(), positions.tolist(), world.horizon))
    return verdict


def covered(interval: Interval, truth: float = 0.0) -> Verdict:
    """Count one interval of the product."""
    if interval.low is None or interval.high is None:
        return Verdict(shown=0, yes=0, histories=1)
    return Verdict(shown=1, yes=int(interval.low <= truth <= interval.high), histories=1)


@dataclass(frozen=True, kw_only=True)
class Cells:
    """Hold the cells of one rating in one history, by decision.

    Attributes:
        sums: Of their alphas.
        counts: How many.
    """

    sums: Floats
    counts: Floats


def rated(batch: Batch, history: int, direction: float) -> Cells:
    """Return the cells of a history that have a rating, by decision."""
    chosen = batch.directions[history] == direction
    return Cells(
        sums=np.where(chosen, batch.alphas[history], 0.0).sum(axis=1),
        counts=chosen.sum(axis=1).astype(np.float64),
    )


def rated_interval(world: World, groups: Sequence[Cells]) -> tuple[float, float, float] | None:
    """Return mean (or difference of two), standard error and degrees; None: nothing is shown.

    The product's rule once more, with matrix products in place of its sums in a fixed order.
    """
    used = np.any([cells.counts > 0 for cells in groups], axis=0)
    places = np.array(world.positions)
    windows = min(
        len(windows_apart(places[cells.counts > 0].tolist(), world.horizon)) for cells in groups
    )
    if windows < FEWEST_WINDOWS:
        return None
    apart = np.abs(places[used][:, None] - places[used])
    overlap = np.maximum(0.0, 1.0 - apart / world.horizon)
    cosines = cosines_for(windows)
    basis = cosine_basis(int(used.sum()), cosines)
    left, estimate = np.zeros(len(basis)), 0.0
    form, variance = np.zeros((cosines, cosines)), 0.0
    for sign, cells in zip((1.0, -1.0), groups, strict=False):
        counts, n = cells.counts[used], cells.counts.sum()
        mean = cells.sums.sum() / n
        estimate += sign * mean
        left += sign * (cells.sums[used] - counts * mean) / n
        size = np.sqrt(counts * (1.0 + WORKING_CORRELATION * np.maximum(counts - 1.0, 0.0))) / n
        seen = size[:, None] * (basis - (counts / n) @ basis)
        form += seen.T @ (overlap @ seen)
        variance += size @ overlap @ size
    degrees = np.trace(form) ** 2 / (form**2).sum()
    if degrees < FEWEST_DEGREES:
        return None
    bias = np.trace(form) / cosines / variance
    error = math.sqrt(((left @ basis) ** 2).mean() / bias)
    return float(estimate), error, float(degrees)


def rated_covers(world: World, batch: Batch, directions: Sequence[float]) -> Verdict:
    """Count the intervals of a rating's mean alpha, or of the difference of two, that hold 0."""
    total = Verdict(shown=0, yes=0, histories=0)
    for history in range(len(batch.alphas)):
        groups = [rated(batch, history, direction) for direction in directions]
        found = rated_interval(world, groups)
        if found is None:
            total += Verdict(shown=0, yes=0, histories=1)
            continue
        estimate, error, degrees = found
        # To 3 digits: a critical value that is right to 1e-4, had from a table that stays small.
        yes = abs(estimate) <= t_critical(LEVEL, round(degrees, 2)) * error
        total += Verdict(shown=1, yes=int(yes), histories=1)
    return total


def differences(world: World, batch: Batch, histories: int, *, seed: int) -> Mapping[str, float]:
    """Return how far the arrays are from the product, at most, over the first histories.

    Returns:
        Relative difference of each figure that was compared.
    """
    worst = {"interval": 0.0, "paths": 0.0, "rating": 0.0, "spread": 0.0, "rank ic": 0.0}
    positions = np.repeat(np.array(world.positions), world.tickers).tolist()
    means = directional(world, batch)
    p = paths(Batch(directions=batch.directions[:1], alphas=batch.alphas[:1]), seed=seed)
    for history in range(min(histories, len(batch.alphas))):
        d, a = batch.directions[history], batch.alphas[history]
        own = mean_interval((d * a).ravel().tolist(), positions, world.horizon)
        pairs = [(own.mean, means.mean[history])]
        if means.degrees is not None:
            pairs += [(own.standard_error, means.error[history]), (own.degrees, means.degrees)]
        elif own.reason is None:
            pairs += [(own.standard_error, 0.0)]
        worst["interval"] = max(worst["interval"], *(_apart(x, y) for x, y in pairs))
        for name, directions in (("rating", (1.0,)), ("spread", (1.0, -1.0))):
            worst[name] = max(worst[name], _rated_apart(world, batch, history, directions))
        ic = rank_ic(d, a, list(world.positions), world.horizon)
        mine = rank_ics(world, Batch(directions=d[None], alphas=a[None]))
        worst["rank ic"] = max(worst["rank ic"], float(covered(ic.mean) != mine))
    first = path_permutation(batch.directions[0], batch.alphas[0], seed=seed, draws=DRAWS)
    worst["paths"] = max(
        _apart(first.p_value, p.greater[0]), _apart(first.p_two_sided, p.two_sided[0])
    )
    return worst


def _rated_apart(world: World, batch: Batch, history: int, directions: Sequence[float]) -> float:
    d, a = batch.directions[history], batch.alphas[history]
    places = np.repeat(np.array(world.positions)[:, None], world.tickers, axis=1)
    cells = [(a[d == x].tolist(), places[d == x].tolist()) for x in directions]
    own = (
        mean_interval(*cells[0], world.horizon)
        if len(cells) == 1
        else spread_interval(*cells[0], *cells[1], world.horizon)
    )
    mine = rated_interval(world, [rated(batch, history, x) for x in directions])
    if mine is None or own.reason is not None:
        return 0.0 if mine is None and own.reason is not None else math.inf
    return max(
        _apart(own.mean, mine[0]), _apart(own.standard_error, mine[1]), _apart(own.degrees, mine[2])
    )


def _apart(first: float | None, second: float) -> float:
    if first is None:
        return math.inf
    return abs(first - second) / max(abs(first), abs(second), 1e-9)
