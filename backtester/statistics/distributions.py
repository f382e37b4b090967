"""The few probabilities that the statistics need: normal, Student's t, binomial.

Student's t comes from the incomplete beta function by its continued fraction (Abramowitz and
Stegun, Handbook of Mathematical Functions, 26.5.8 and 26.7.1), for any degrees of freedom. Nothing
here needs a numerical library, and the tests hold every function against one.
"""

from __future__ import annotations

import functools
import math
from statistics import NormalDist

_NORMAL = NormalDist()
_TINY = 1e-300
# The fraction converges in some tens of terms below the mean of the distribution, where it is used.
_MOST_TERMS = 10_000


def normal_cdf(value: float) -> float:
    """Return P(Z <= value) of a standard normal, good in both tails."""
    return 0.5 * math.erfc(-value / math.sqrt(2.0))


def normal_quantile(probability: float) -> float:
    """Return the value that a standard normal stays below with this probability.

    Raises:
        ValueError: Outside of the open interval (0, 1).
    """
    if not 0.0 < probability < 1.0:
        raise ValueError(f"a quantile needs a probability between 0 and 1, not {probability}")
    return _NORMAL.inv_cdf(probability)


@functools.lru_cache(maxsize=1024)
def t_two_sided(value: float, degrees: float) -> float:
    """Return P(abs(T) >= abs(value)) of Student's t.

    Args:
        value: Finite.
        degrees: Degrees of freedom, above 0, whole or not.
    """
    return _beta_share(degrees / (degrees + value * value), degrees / 2.0, 0.5)


def t_greater(value: float, degrees: float) -> float:
    """Return P(T >= value)."""
    half = t_two_sided(value, degrees) / 2.0
    return half if value >= 0.0 else 1.0 - half


@functools.lru_cache(maxsize=4096)
def t_critical(level: float, degrees: float) -> float:
    """Return the value that abs(T) stays below with this probability.

    Raises:
        ValueError: For a level outside of (0, 1), or degrees of freedom that are not above 0.
    """
    if not 0.0 < level < 1.0 or not degrees > 0.0:
        raise ValueError(f"no critical value of t for level {level} and {degrees} degrees")
    low, high = 0.0, math.pi / 2.0
    # By halves, in the angle whose tangent is t / sqrt(degrees): after 60 no bit is open.
    for _ in range(60):
        middle = (low + high) / 2.0
        if _beta_share(math.cos(middle) ** 2, degrees / 2.0, 0.5) > 1.0 - level:
            low = middle
        else:
            high = middle
    return math.sqrt(degrees) * math.tan((low + high) / 2.0)


def binomial_two_sided(hits: int, trials: int) -> float:
    """Return the exact two-sided p of a fair coin, the smaller tail doubled.

    Args:
        hits: Heads seen.
        trials: Tosses; 0 gives 1.
    """
    tail = min(hits, trials - hits)
    # Whole numbers until the end: no factorial overflows and no sum is rounded.
    below = sum(math.comb(trials, count) for count in range(tail + 1))
    return min(1.0, 2 * below / (1 << trials))


def binomial_greater(hits: int, trials: int) -> float:
    """Return the exact probability of so many heads or more, of a fair coin."""
    above = sum(math.comb(trials, count) for count in range(hits, trials + 1))
    return above / (1 << trials)


def _beta_share(x: float, a: float, b: float) -> float:
    """Return the regularised incomplete beta function I_x(a, b)."""
    if x <= 0.0 or x >= 1.0:
        return 0.0 if x <= 0.0 else 1.0
    log = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = math.exp(log + a * math.log(x) + b * math.log1p(-x))
    # The fraction is quick on one side of the mean only; the other is its mirror image.
    if x < (a + 1.0) / (a + b + 2.0):
        return front * _beta_fraction(x, a, b) / a
    return 1.0 - front * _beta_fraction(1.0 - x, b, a) / b


def _beta_fraction(x: float, a: float, b: float) -> float:
    """Evaluate the continued fraction of the incomplete beta function from the front (Lentz)."""
    upper, lower = 1.0, 1.0 / _away(1.0 - (a + b) * x / (a + 1.0))
    total = lower
    for m in range(1, _MOST_TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1.0) * (a + 2 * m))
        lower, upper = 1.0 / _away(1.0 + even * lower), _away(1.0 + even / upper)
        total *= lower * upper
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1.0))
        lower, upper = 1.0 / _away(1.0 + odd * lower), _away(1.0 + odd / upper)
        step = lower * upper
        total *= step
        if abs(step - 1.0) < 1e-16:
            break
    return total


def _away(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
