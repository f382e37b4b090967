"""Moments of a series, whatever its size: exact sums, nothing NaN or infinite."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

LARGEST_RETURN = 1e70
"""No market has made so much in a session; beyond it sums of fourth powers overflow."""
NO_SPREAD = 1e-14
"""Returns are ratios of prices or books: a spread this small is the rounding of equal ones."""


@dataclass(frozen=True, kw_only=True)
class Moments:
    """Hold the moments of a series; None where it is too short or does not vary.

    Attributes:
        n: Rows.
        mean: Arithmetic mean; from 1 row.
        deviation: Sample standard deviation (n - 1); from 2 rows, exactly 0 where none varies;
            None where it is too large for a float.
        skew: Third standardised moment, corrected for its bias; from 3 rows.
        kurtosis: Fourth standardised moment, likewise, 3 for a normal; from 4 rows.
    """

    n: int
    mean: float | None
    deviation: float | None
    skew: float | None
    kurtosis: float | None


def moments(values: Sequence[float] | Floats) -> Moments:
    """Return mean, deviation, skew and kurtosis of a series of finite numbers.

    Raises:
        ValueError: For a number that is not finite.
    """
    rows = finite(values)
    n = len(rows)
    if n == 0:
        return Moments(n=0, mean=None, deviation=None, skew=None, kurtosis=None)
    # A power of two takes no digit off; without it the fourth powers of huge numbers overflow.
    top = float(np.abs(rows).max())
    unit = 2.0 ** (math.frexp(top)[1] - 1) if top > LARGEST_RETURN else 1.0
    rows = rows / unit
    mean = added(rows) / n
    if n == 1:
        return Moments(n=1, mean=mean * unit, deviation=None, skew=None, kurtosis=None)
    centred = rows - mean
    powers = centred * centred
    squares = added(powers)
    if float(np.ptp(rows)) <= NO_SPREAD * max(1.0 / unit, abs(mean)) or squares == 0.0:
        return Moments(n=n, mean=mean * unit, deviation=0.0, skew=None, kurtosis=None)
    deviation = math.sqrt(squares / (n - 1)) * unit
    return Moments(
        n=n,
        mean=mean * unit,
        deviation=deviation if math.isfinite(deviation) else None,
        skew=_skew(centred * powers, squares / n),
        kurtosis=_kurtosis(powers * powers, squares / n),
    )


def _skew(cubes: Floats, m2: float) -> float | None:
    n = len(cubes)
    if n < 3:
        return None
    g1: float = added(cubes) / n / m2**1.5
    return g1 * math.sqrt(n * (n - 1)) / (n - 2)


def _kurtosis(fourths: Floats, m2: float) -> float | None:
    n = len(fourths)
    if n < 4:
        return None
    g2: float = added(fourths) / n / m2**2 - 3.0
    return 3.0 + ((n + 1) * g2 + 6.0) * (n - 1) / ((n - 2) * (n - 3))


def added(rows: Floats) -> float:
    """Return the exact sum of numbers, the same in any order.

    Raises:
        OverflowError: It is too large for a float.
    """
    return math.fsum(rows.tolist())


def total(rows: Iterable[float]) -> float:
    """Return an exact sum, infinite where it is too large for a float."""
    try:
        return math.fsum(rows)
    except OverflowError:
        return math.inf


def finite(values: Sequence[float] | Floats) -> Floats:
    """Return the numbers as floats.

    Raises:
        ValueError: For one that is NaN or infinite.
    """
    rows = np.array(values, dtype=np.float64)
    good = np.isfinite(rows)
    if not good.all():
        place = int(np.argmin(good))
        raise ValueError(f"row {place} is {rows[place]}: leave rows without a number out")
    return rows
