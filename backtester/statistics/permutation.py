"""Tests that shuffle: whole rating paths between tickers, and signs of sessions apart.

A rating says much the same as the one the day before, and the returns of one session move
together. So neither cells nor sessions are exchangeable, and a shuffle within sessions rejects
chance far too often. Whole paths are exchangeable between tickers whatever happens in time: one
permutation of the tickers is applied to every session at once.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from backtester.statistics.distributions import binomial_greater, binomial_two_sided
from backtester.statistics.inference import windows_apart

EXACT_LIMIT = 5_000
"""Up to so many permutations are listed, one by one: 6 tickers have 720, 7 have 5,040."""
FEWEST_TICKERS = 4
"""3 tickers have 6 permutations: no p below 0.17, so no test at 5 %."""

# Two permutations that are equal but for the order of their sums count as equal.
_ROUNDING = 1e-12

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class PathTest:
    """Hold a permutation test of whole rating paths.

    Attributes:
        statistic: Mean of direction x alpha over the cells that have both, or None without any.
        p_value: One-sided: share of permutations with a statistic at least as high, or None.
        p_two_sided: Share whose distance from the permutations' mean is at least as far, or None.
        expected: Mean of the statistic over the permutations: what the ratings earn without
            knowing one ticker from another.
        draws: Permutations looked at, the identity among them.
        exact: Whether these were all there are.
        tickers: Number of tickers.
        cells: Cells with a direction and an alpha.
        seed: Of the draws, or None where the list is exact.
        reason: Why there is no p-value (``no_rows``, ``too_few_tickers``, ``no_variation``), else
            None.
    """

    statistic: float | None
    p_value: float | None
    p_two_sided: float | None
    expected: float | None
    draws: int
    exact: bool
    tickers: int
    cells: int
    seed: int | None
    reason: str | None


@dataclass(frozen=True, kw_only=True)
class SignTest:
    """Hold a sign test on the means of sessions whose windows do not overlap.

    Attributes:
        positive: Sessions with a mean above 0.
        negative: Sessions with a mean below 0; a mean of exactly 0 is in neither.
        sessions: Sessions chosen: the first, then each that starts when the last one's window
            has ended.
        p_value: One-sided, for a mean above 0; exact binomial; None with a reason.
        p_two_sided: The smaller tail doubled.
        reason: Why there is no p-value, else None.
    """

    positive: int
    negative: int
    sessions: int
    p_value: float | None
    p_two_sided: float | None
    reason: str | None


def path_permutation(
    ratings: npt.ArrayLike, alphas: npt.ArrayLike, *, seed: int, draws: int = 4_999
) -> PathTest:
    """Test whether the ratings know one ticker from another.

    The statistic is the mean of rating x alpha over the cells that have both; a permutation hands
    every ticker the whole rating path of another. Unbiased whatever the ratings' persistence, the
    alphas' overlap and the market in common do, as long as no ticker is marked out beforehand.

    Args:
        ratings: Sessions x tickers: a direction (or any number that grows with the rating), NaN
            where there is none. Columns in one fixed order (by name): drawn permutations
            depend on it.
        alphas: The same shape, NaN where there is none.
        seed: Of the drawn permutations, 0 or more.
        draws: How many to draw beside the identity where there are too many to list.

    Raises:
        ValueError: For two shapes, an infinite number, or no draw.
    """
    r, a = _matched(ratings, alphas)
    if draws < 1:
        raise ValueError(f"{draws} draws are none")
    both = ~(np.isnan(r) | np.isnan(a))
    cells = int(both.sum())
    used = both.any(axis=0)
    r, a = r[:, used], a[:, used]
    tickers = r.shape[1]
    statistic = math.fsum((r * a)[both[:, used]].tolist()) / cells if cells else None
    exact = math.factorial(tickers) <= EXACT_LIMIT
    if tickers < FEWEST_TICKERS:
        return _untested(statistic, tickers, cells, exact=exact)
    found = _permuted(r, a, permutations_of(tickers, seed=seed, draws=draws))
    expected = math.fsum(found.tolist()) / len(found)
    slack = _ROUNDING * max(1e-300, float(np.abs(found).max()))
    flat = float(found.max() - found.min()) <= slack
    # The identity is the first of the list, so no rounding can part it from itself.
    away = np.abs(found - expected)
    return PathTest(
        statistic=statistic,
        p_value=None if flat else float((found >= found[0] - slack).mean()),
        p_two_sided=None if flat else float((away >= away[0] - slack).mean()),
        expected=expected,
        draws=len(found),
        exact=exact,
        tickers=tickers,
        cells=cells,
        seed=None if exact else seed,
        reason="no_variation" if flat else None,
    )


def _untested(statistic: float | None, tickers: int, cells: int, *, exact: bool) -> PathTest:
    return PathTest(
        statistic=statistic,
        p_value=None,
        p_two_sided=None,
        expected=None,
        draws=0,
        exact=exact,
        tickers=tickers,
        cells=cells,
        seed=None,
        reason="too_few_tickers" if cells else "no_rows",
    )


def sign_test(values: Sequence[float], sessions: Sequence[int], horizon: int) -> SignTest:
    """Test whether the mean of a session is above 0 more often than a coin would have it.

    Args:
        values: Direction x alpha of each cell, finite.
        sessions: Position of each one's decision session on the calendar.
        horizon: Sessions from the decision to the end of the window, at least 1.

    Raises:
        ValueError: For lists of two lengths, a number that is not finite, a horizon below 1.
    """
    if len(values) != len(sessions) or horizon < 1:
        raise ValueError(f"{len(values)} values, {len(sessions)} sessions, horizon {horizon}")
    by_session: dict[int, list[float]] = {}
    for value, session in zip(values, sessions, strict=True):
        if not math.isfinite(value):
            raise ValueError(f"a value of session {session} is {value}: leave it out")
        by_session.setdefault(int(session), []).append(float(value))
    chosen = windows_apart(list(by_session), horizon)
    sums = [math.fsum(by_session[session]) for session in chosen]
    positive, negative = sum(1 for s in sums if s > 0.0), sum(1 for s in sums if s < 0.0)
    tosses = positive + negative
    reason = None if tosses else ("no_variation" if sums else "no_rows")
    return SignTest(
        positive=positive,
        negative=negative,
        sessions=len(sums),
        p_value=binomial_greater(positive, tosses) if tosses else None,
        p_two_sided=binomial_two_sided(positive, tosses) if tosses else None,
        reason=reason,
    )


def permutations_of(tickers: int, *, seed: int, draws: int) -> Places:
    """Return permutations of the tickers, the identity first: all of them, or drawn ones.

    Args:
        tickers: How many.
        seed: Of the draws, made of the generator's raw bits alone: the same in every version.
        draws: How many to draw, the identity not counted, where there are too many to list.
    """
    if math.factorial(tickers) <= EXACT_LIMIT:
        return np.array(list(itertools.permutations(range(tickers))), dtype=np.int64)
    keys = np.random.PCG64(seed).random_raw(draws * tickers).reshape(draws, tickers)
    drawn = np.argsort(keys, axis=1, kind="stable").astype(np.int64)
    return np.concatenate([np.arange(tickers, dtype=np.int64)[None, :], drawn])


def _matched(ratings: npt.ArrayLike, alphas: npt.ArrayLike) -> tuple[Floats, Floats]:
    r, a = np.array(ratings, dtype=np.float64), np.array(alphas, dtype=np.float64)
    if r.ndim != 2 or r.shape != a.shape:
        raise ValueError(f"ratings are {r.shape} and alphas {a.shape}: sessions x tickers, both")
    if np.isinf(r).any() or np.isinf(a).any():
        raise ValueError("a rating or an alpha is infinite")
    return r, a


def _permuted(r: Floats, a: Floats, places: Places) -> Floats:
    """Return the statistic of each permutation.

    One path against one ticker's alphas is a number that no other ticker touches, so tickers x
    tickers of them hold the statistic of every permutation.
    """
    has_r, has_a = ~np.isnan(r), ~np.isnan(a)
    r0, a0 = np.where(has_r, r, 0.0), np.where(has_a, a, 0.0)
    tickers = r.shape[1]
    sums = np.array([(r0[:, j : j + 1] * a0).sum(axis=0) for j in range(tickers)])
    counts = np.array([(has_r[:, j : j + 1] & has_a).sum(axis=0) for j in range(tickers)])
    total, cells = np.zeros(len(places)), np.zeros(len(places))
    for i in range(tickers):
        total += sums[places[:, i], i]
        cells += counts[places[:, i], i]
    return np.where(cells > 0, total / np.maximum(cells, 1.0), 0.0)
