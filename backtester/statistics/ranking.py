"""Whether higher ratings went with higher returns: rank correlations, spread, monotonicity."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from backtester.statistics.inference import Interval, mean_interval
from backtester.statistics.metrics import Measure
from backtester.statistics.moments import added, finite

KINDS = ("spearman", "kendall")

# Of one block of rows, so that many tickers take no gigabytes.
_PAIRS_AT_ONCE = 2_000_000
# Whole numbers below are doubles too.
_EXACT = 2**53

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Whole = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class RankIC:
    """Hold the rank correlation of each session and their mean.

    Attributes:
        by_session: One value for each row handed in, None where it has none.
        mean: Mean over the sessions that have one, with its interval and t.
        kind: ``spearman`` or ``kendall``.
        without: Sessions that have none (fewer than two tickers, or all alike).
    """

    by_session: tuple[float | None, ...]
    mean: Interval
    kind: str
    without: int


def average_ranks(values: Sequence[float]) -> tuple[float, ...]:
    """Return ranks from 1, ties sharing the mean of their places."""
    return tuple(twice / 2.0 for twice in _doubled_ranks(finite(values).tolist()))


def spearman(first: Sequence[float], second: Sequence[float]) -> Measure:
    """Return Spearman's rank correlation with average ranks; None where one side does not vary.

    Raises:
        ValueError: For lists of two lengths, or a number that is not finite.
    """
    x, y = _paired(first, second)
    n = len(x)
    if n < 2:
        return _correlation("spearman", None, n, "too_few_rows")
    # Twice a rank is whole, so every sum is exact and no order of rows can change it.
    p, q = _doubled_ranks(x), _doubled_ranks(y)
    along = n * sum(i * j for i, j in zip(p, q, strict=True)) - sum(p) * sum(q)
    spread_p = n * sum(i * i for i in p) - sum(p) ** 2
    spread_q = n * sum(j * j for j in q) - sum(q) ** 2
    return _ratio("spearman", along, spread_p, spread_q, n)


def kendall_tau_b(first: Sequence[float], second: Sequence[float]) -> Measure:
    """Return Kendall's tau-b, which corrects for ties; None where one side does not vary.

    Raises:
        ValueError: For lists of two lengths, or a number that is not finite.
    """
    x, y = _paired(first, second)
    n = len(x)
    if n < 2:
        return _correlation("kendall", None, n, "too_few_rows")
    a, b = np.array(x), np.array(y)
    along = apart_a = apart_b = 0
    for place in range(n - 1):
        sign_a, sign_b = np.sign(a[place + 1 :] - a[place]), np.sign(b[place + 1 :] - b[place])
        along += int((sign_a * sign_b).sum())
        apart_a += int(np.count_nonzero(sign_a))
        apart_b += int(np.count_nonzero(sign_b))
    return _ratio("kendall", along, apart_a, apart_b, n)


def rank_ic(
    ratings: npt.ArrayLike,
    alphas: npt.ArrayLike,
    sessions: Sequence[int],
    horizon: int,
    *,
    kind: str = "spearman",
    level: float = 0.95,
) -> RankIC:
    """Return the rank correlation of rating and alpha across tickers, session by session.

    The mean has the interval of `inference.mean_interval`: windows that overlap make the
    correlations of neighbouring sessions alike, which the plain t of their mean would not know.

    Args:
        ratings: Sessions x tickers, higher is better, NaN where there is none.
        alphas: The same shape, NaN where there is none.
        sessions: Position of each row on the calendar.
        horizon: Sessions from a decision to the end of its window.
        kind: ``spearman`` or ``kendall``.
        level: Of the interval of the mean.

    Raises:
        ValueError: For shapes that do not fit, or another kind.
    """
    if kind not in KINDS:
        raise ValueError(f"'{kind}' is no kind of rank correlation: {' or '.join(KINDS)}")
    r, a = np.array(ratings, dtype=np.float64), np.array(alphas, dtype=np.float64)
    if r.ndim != 2 or r.shape != a.shape or len(sessions) != r.shape[0]:
        raise ValueError(f"ratings {r.shape}, alphas {a.shape}, {len(sessions)} sessions")
    by_session = _by_session(r, a, kind)
    found = [(v, s) for v, s in zip(by_session, sessions, strict=True) if v is not None]
    return RankIC(
        by_session=tuple(by_session),
        mean=mean_interval([v for v, _ in found], [s for _, s in found], horizon, level=level),
        kind=kind,
        without=len(by_session) - len(found),
    )


def _by_session(r: Floats, a: Floats, kind: str) -> list[float | None]:
    """Return `spearman` or `kendall_tau_b` of each row, over the columns that have both."""
    if np.isinf(r).any() or np.isinf(a).any():
        raise ValueError("a rating or an alpha is infinite: leave it out")
    sums = _spearman_sums if kind == "spearman" else _kendall_sums
    found: list[float | None] = []
    step = max(1, _PAIRS_AT_ONCE // max(1, r.shape[1] ** 2))
    for start in range(0, len(r), step):
        rows = slice(start, start + step)
        there = ~(np.isnan(r[rows]) | np.isnan(a[rows]))
        found += _ratios(*sums(r[rows], a[rows], there))
    return found


def _ratios(along: Whole, first: Whole, second: Whole) -> list[float | None]:
    """Return along / sqrt(first * second) of each row, None where one side does not vary."""
    if int(first.max(initial=0)) * int(second.max(initial=0)) >= _EXACT:
        columns = (along.tolist(), first.tolist(), second.tolist())
        return [_ratio("", *row, 0).value for row in zip(*columns, strict=True)]
    varies = (first != 0) & (second != 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.clip(along / np.sqrt((first * second).astype(np.float64)), -1.0, 1.0)
    pairs = zip(ratio.tolist(), varies.tolist(), strict=True)
    return [value if known else None for value, known in pairs]


def _spearman_sums(r: Floats, a: Floats, there: Flags) -> tuple[Whole, Whole, Whole]:
    n = there.sum(axis=1)
    pairs = there[:, :, None] & there[:, None, :]
    ranks = []
    for values in (r, a):
        here, other = values[:, :, None], values[:, None, :]
        # Twice the average rank: those below count double, equals (itself among them) once.
        below, equal = (other < here) & pairs, (other == here) & pairs
        doubled = 2 * below.sum(axis=2) + equal.sum(axis=2) + 1
        ranks.append(np.where(there, doubled, 0))
    p, q = ranks
    along = n * (p * q).sum(axis=1) - p.sum(axis=1) * q.sum(axis=1)
    spread_p = n * (p * p).sum(axis=1) - p.sum(axis=1) ** 2
    return along, spread_p, n * (q * q).sum(axis=1) - q.sum(axis=1) ** 2


def _kendall_sums(r: Floats, a: Floats, there: Flags) -> tuple[Whole, Whole, Whole]:
    pairs = there[:, :, None] & there[:, None, :]
    signs = []
    for values in (r, a):
        here, other = values[:, :, None], values[:, None, :]
        sign = (other > here).astype(np.int8) - (other < here).astype(np.int8)
        signs.append(np.where(pairs, sign, 0))
    one, two = signs
    # Every pair is there twice.
    along = (one * two).sum(axis=(1, 2), dtype=np.int64) // 2
    return along, np.count_nonzero(one, (1, 2)) // 2, np.count_nonzero(two, (1, 2)) // 2


def monotonicity(groups: Mapping[int, Sequence[float]]) -> Measure:
    """Return how well the mean rises with the rating: Kendall's tau-b of (rank, mean).

    Args:
        groups: Rank of a rating (higher is better) -> its cells; empty groups are left out.

    Returns:
        1 where every better rating has the higher mean, -1 where every one has the lower;
        None with fewer than two groups (``too_few_groups``). ``n`` counts the groups.
    """
    means = {
        rank: added(finite(cells)) / len(cells) for rank, cells in groups.items() if len(cells)
    }
    if len(means) < 2:
        return _correlation("monotonicity", None, len(means), "too_few_groups")
    ranks = sorted(means)
    found = kendall_tau_b([float(rank) for rank in ranks], [means[rank] for rank in ranks])
    return _correlation("monotonicity", found.value, len(means), found.reason)


def _paired(first: Sequence[float], second: Sequence[float]) -> tuple[list[float], list[float]]:
    if len(first) != len(second):
        raise ValueError(f"{len(first)} rows against {len(second)}")
    return finite(first).tolist(), finite(second).tolist()


def _doubled_ranks(values: list[float]) -> list[int]:
    """Return twice the average ranks, whole numbers."""
    order = sorted(range(len(values)), key=values.__getitem__)
    doubled = [0] * len(values)
    start = 0
    while start < len(order):
        end = start
        while end + 1 < len(order) and values[order[end + 1]] == values[order[start]]:
            end += 1
        for place in range(start, end + 1):
            doubled[order[place]] = start + end + 2
        start = end + 1
    return doubled


def _ratio(name: str, along: int, first: int, second: int, n: int) -> Measure:
    if first == 0 or second == 0:
        return _correlation(name, None, n, "no_variation")
    value = along / math.sqrt(first * second)
    return _correlation(name, max(-1.0, min(1.0, value)), n, None)


def _correlation(name: str, value: float | None, n: int, reason: str | None) -> Measure:
    return Measure(name=name, value=value, unit="ratio", n=n, reason=reason)
