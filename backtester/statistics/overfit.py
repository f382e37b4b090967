"""How much of a Sharpe ratio is left once one knows how many were tried.

Sharpe ratios here are per period, never annualised: the formulas need the number of returns that
the ratio came from. Sources: Bailey and Lopez de Prado, "The Sharpe Ratio Efficient Frontier"
(2012) for the probabilistic Sharpe ratio and the minimum track record length, "The Deflated Sharpe
Ratio" (2014); Bailey, Borwein, Lopez de Prado and Zhu, "The Probability of Backtest Overfitting"
(2017) for the combinatorially symmetric cross-validation.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from backtester.statistics.distributions import normal_cdf, normal_quantile
from backtester.statistics.metrics import Measure
from backtester.statistics.moments import LARGEST_RETURN

_EULER = 0.5772156649015329
FEWEST_RETURNS = 4
"""Fewer returns have no kurtosis: no figure of this module comes from them."""
MOST_BLOCKS = 16
"""16 blocks have 12,870 splits; 18 would have 48,620."""

Floats = npt.NDArray[np.float64]


def probabilistic_sharpe(
    sharpe: float, *, n: int, skew: float, kurtosis: float, threshold: float = 0.0
) -> Measure:
    """Return the probability that the true Sharpe ratio is above a threshold.

    Args:
        sharpe: Measured, per period.
        n: Number of returns it came from.
        skew: Of the returns, third standardised moment.
        kurtosis: Fourth standardised moment, 3 for a normal.
        threshold: Per period.
    """
    return _probability("probabilistic_sharpe", sharpe, threshold, n, skew, kurtosis)


def deflated_sharpe(
    sharpe: float,
    *,
    n: int,
    skew: float,
    kurtosis: float,
    trials: int,
    variance_of_trials: float,
) -> Measure:
    """Return the probability that the true Sharpe ratio is above what luck finds in so many trials.

    Args:
        sharpe: Of the trial that was chosen, per period.
        n: Number of returns it came from.
        skew: Of its returns.
        kurtosis: Of its returns, 3 for a normal.
        trials: Distinct trials known; 1 gives the probabilistic Sharpe ratio against 0.
        variance_of_trials: Sample variance across the trials' Sharpe ratios, per period.

    Raises:
        ValueError: For less than one trial or a negative variance.
    """
    threshold = expected_best_sharpe(trials=trials, variance_of_trials=variance_of_trials)
    return _probability("deflated_sharpe", sharpe, threshold, n, skew, kurtosis)


def expected_best_sharpe(*, trials: int, variance_of_trials: float) -> float:
    """Return the Sharpe ratio that the best of so many trials without skill has on average.

    Args:
        trials: At least 1.
        variance_of_trials: Across the trials' Sharpe ratios, in the same period as the result.

    Raises:
        ValueError: For less than one trial or a negative variance.
    """
    if trials < 1 or not 0.0 <= variance_of_trials < math.inf:
        raise ValueError(f"{trials} trials with a variance of {variance_of_trials} are none")
    if trials == 1:
        return 0.0
    upper = normal_quantile(1.0 - 1.0 / trials)
    beyond = normal_quantile(1.0 - 1.0 / (trials * math.e))
    return math.sqrt(variance_of_trials) * ((1.0 - _EULER) * upper + _EULER * beyond)


def min_track_record_length(
    sharpe: float, *, skew: float, kurtosis: float, threshold: float = 0.0, level: float = 0.95
) -> Measure:
    """Return how many returns such a Sharpe ratio needs before it is above a threshold for sure.

    Args:
        sharpe: Per period.
        skew: Of the returns.
        kurtosis: Of the returns, 3 for a normal.
        threshold: Per period.
        level: Probability wanted, above one half.

    Returns:
        A number of returns, not rounded; None where the ratio is not above the threshold
        (``not_above_threshold``: no length would do).

    Raises:
        ValueError: For a level that is none.
    """
    name = "min_track_record_length"
    if not 0.5 < level < 1.0:
        raise ValueError(f"a level of {level} is none: above 0.5 and below 1")
    spread = _spread(sharpe, skew, kurtosis)
    if not sharpe > threshold:
        return Measure(name=name, value=None, unit="count", n=0, reason="not_above_threshold")
    if spread is None:
        return Measure(name=name, value=None, unit="count", n=0, reason="moments_do_not_fit")
    away = normal_quantile(level) / (sharpe - threshold)
    value = 1.0 + spread * away * away
    if not math.isfinite(value):
        return Measure(name=name, value=None, unit="count", n=0, reason="too_large")
    return Measure(name=name, value=value, unit="count", n=0)


@dataclass(frozen=True, kw_only=True)
class Overfitting:
    """Hold what the cross-validation found.

    Attributes:
        pbo: Share of splits in which the best in sample was at or below the median out of sample,
            or None. Several that are best in sample share a split evenly.
        splits: Number of splits.
        trials: Number of trials compared.
        rows: Returns used of each; those beyond a whole number a block are left out, oldest first.
        blocks: Number of blocks.
        logits: Of each split, in the order of the splits: log of the relative rank out of sample
            over its complement, mean over those that were best in sample.
        reason: Why there is no figure (``too_few_trials``, ``too_few_rows``, ``too_large``), else
            None.
    """

    pbo: float | None
    splits: int
    trials: int
    rows: int
    blocks: int
    logits: tuple[float, ...] = ()
    reason: str | None = None


def pbo(returns: npt.ArrayLike, *, blocks: int = MOST_BLOCKS) -> Overfitting:
    """Return the probability of backtest overfitting, by symmetric cross-validation.

    The figure of merit is the Sharpe ratio per period. A trial that does not vary in a half (a
    book that held nothing) counts as 0 there.

    Args:
        returns: Sessions x trials, a finite return each, all trials over the same sessions.
        blocks: Even number of consecutive blocks, 2 to 16; every one needs two returns.

    Raises:
        ValueError: For another number of blocks, or a return that is not finite.
    """
    if blocks % 2 or not 2 <= blocks <= MOST_BLOCKS:
        raise ValueError(f"{blocks} blocks: an even number from 2 to {MOST_BLOCKS}")
    table = np.array(returns, dtype=np.float64)
    if table.ndim != 2 or not np.isfinite(table).all():
        raise ValueError("returns are sessions x trials, every one finite")
    each, trials = table.shape[0] // blocks, table.shape[1]
    rows = each * blocks
    reason = "too_few_trials" if trials < 2 else "too_few_rows" if each < 2 else None
    if reason is None and np.abs(table).max() > LARGEST_RETURN:
        reason = "too_large"
    if reason is not None:
        return Overfitting(
            pbo=None, splits=0, trials=trials, rows=rows, blocks=blocks, reason=reason
        )
    chosen = _splits(blocks)
    merit = _merits(table[table.shape[0] - rows :], blocks, chosen)
    # The splits are in lexicographic order, in which the complement of the first is the last.
    shares, logits = zip(
        *(_split(inside, outside) for inside, outside in zip(merit, merit[::-1], strict=True)),
        strict=True,
    )
    return Overfitting(
        pbo=math.fsum(shares) / len(shares),
        splits=len(shares),
        trials=trials,
        rows=rows,
        blocks=blocks,
        logits=logits,
    )


def _probability(
    name: str, sharpe: float, threshold: float, n: int, skew: float, kurtosis: float
) -> Measure:
    spread = _spread(sharpe, skew, kurtosis)
    if n < FEWEST_RETURNS or spread is None:
        reason = "too_few_rows" if n < FEWEST_RETURNS else "moments_do_not_fit"
        return Measure(name=name, value=None, unit="probability", n=n, reason=reason)
    value = normal_cdf((sharpe - threshold) * math.sqrt(n - 1) / math.sqrt(spread))
    return Measure(name=name, value=value, unit="probability", n=n)


def _spread(sharpe: float, skew: float, kurtosis: float) -> float | None:
    """Return the variance of a Sharpe ratio times the number of returns less one, if there is one.

    Raises:
        ValueError: For a number that is not finite.
    """
    if not all(map(math.isfinite, (sharpe, skew, kurtosis))):
        raise ValueError("a Sharpe ratio or a moment is not finite: leave the figure out")
    spread = 1.0 - skew * sharpe + (kurtosis - 1.0) / 4.0 * sharpe * sharpe
    return spread if 0.0 < spread < math.inf else None


def _splits(blocks: int) -> npt.NDArray[np.bool_]:
    """Return every choice of half the blocks, splits x blocks."""
    choices = list(itertools.combinations(range(blocks), blocks // 2))
    table = np.zeros((len(choices), blocks), dtype=np.bool_)
    for row, choice in enumerate(choices):
        table[row, list(choice)] = True
    return table


def _merits(table: Floats, blocks: int, chosen: npt.NDArray[np.bool_]) -> Floats:
    """Return the Sharpe ratio of each trial over the blocks of each split, splits x trials."""
    trials = table.shape[1]
    each = len(table) // blocks
    # About the whole mean, so that the squares below lose no digits to it.
    centre = table.mean(axis=0)
    parts = (table - centre).reshape(blocks, each, trials)
    sums, squares = parts.sum(axis=1), (parts**2).sum(axis=1)
    total = np.zeros((len(chosen), trials))
    square = np.zeros_like(total)
    for block in range(blocks):
        total += chosen[:, block : block + 1] * sums[block]
        square += chosen[:, block : block + 1] * squares[block]
    n = each * blocks // 2
    variance = (square - total**2 / n) / (n - 1)
    floor = 1e-28 + 1e-14 * square / n
    flat = variance <= floor
    deviation = np.sqrt(np.where(flat, 1.0, variance))
    merit: Floats = np.where(flat, 0.0, (centre + total / n) / deviation)
    return merit


def _split(inside: Floats, outside: Floats) -> tuple[float, float]:
    """Return how far a split says overfit (0 to 1) and its logit, from the two halves' merits."""
    best = np.flatnonzero(inside == inside.max())
    trials = len(outside)
    below = [float((outside < outside[i]).sum()) for i in best]
    ties = [float((outside == outside[i]).sum()) for i in best]
    # Average rank from 1, over trials + 1, so that it is never 0 or 1.
    ranks = [(b + (t + 1.0) / 2.0) / (trials + 1.0) for b, t in zip(below, ties, strict=True)]
    share = math.fsum(1.0 for rank in ranks if rank <= 0.5) / len(ranks)
    return share, math.fsum(math.log(rank / (1.0 - rank)) for rank in ranks) / len(ranks)
