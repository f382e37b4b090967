"""Moments of a series, whatever its size: exact sums, nothing NaN or infinite."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

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


def moments(values: Sequence[float]) -> Moments:
    """Return mean, deviation, skew and kurtosis of a series of finite numbers.

    Raises:
        ValueError: For a number that is not finite.
    """
    rows = finite(values)
    n = len(rows)
    if n == 0:
        return Moments(n=0, mean=None, deviation=None, skew=None, kurtosis=None)
    # A power of two takes no digit off; without it the fourth powers of huge numbers overflow.
    top = max(abs(row) for row in rows)
    unit = 2.0 ** (math.frexp(top)[1] - 1) if top > LARGEST_RETURN else 1.0
    rows = [row / unit for row in rows]
    mean = math.fsum(rows) / n
    if n == 1:
        return Moments(n=1, mean=mean * unit, deviation=None, skew=None, kurtosis=None)
    centred = [row - mean for row in rows]
    squares = math.fsum(row * row for row in centred)
    if max(rows) - min(rows) <= NO_SPREAD * max(1.0 / unit, abs(mean)) or squares == 0.0:
        return Moments(n=n, mean=mean * unit, deviation=0.0, skew=None, kurtosis=None)
    deviation = math.sqrt(squares / (n - 1)) * unit
    return Moments(
        n=n,
        mean=mean * unit,
        deviation=deviation if math.isfinite(deviation) else None,
        skew=_skew(centred, squares / n),
        kurtosis=_kurtosis(centred, squares / n),
    )


def _skew(centred: Sequence[float], m2: float) -> float | None:
    n = len(centred)
    if n < 3:
        return None
    g1: float = math.fsum(row**3 for row in centred) / n / m2**1.5
    return g1 * math.sqrt(n * (n - 1)) / (n - 2)


def _kurtosis(centred: Sequence[float], m2: float) -> float | None:
    n = len(centred)
    if n < 4:
        return None
    g2 = math.fsum(row**4 for row in centred) / n / m2**2 - 3.0
    return 3.0 + ((n + 1) * g2 + 6.0) * (n - 1) / ((n - 2) * (n - 3))


def total(rows: Iterable[float]) -> float:
    """Return an exact sum, infinite where it is too large for a float."""
    try:
        return math.fsum(rows)
    except OverflowError:
        return math.inf


def finite(values: Sequence[float]) -> list[float]:
    """Return the numbers as floats.

    Raises:
        ValueError: For one that is NaN or infinite.
    """
    rows = [float(value) for value in values]
    if not all(map(math.isfinite, rows)):
        place = next(at for at, row in enumerate(rows) if not math.isfinite(row))
        raise ValueError(f"row {place} is {rows[place]}: leave rows without a number out")
    return rows
