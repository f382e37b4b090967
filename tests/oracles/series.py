"""The series on which the product and the oracles are held against each other."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Case:
    """Hold a book and its benchmark on the weekdays of some years.

    Attributes:
        equity: Start value and one value a session.
        benchmark: Likewise.
        dates: Of both.
        returns: Of the equity.
        benchmark_returns: Of the benchmark.
    """

    equity: np.ndarray
    benchmark: np.ndarray
    dates: list[date]
    returns: np.ndarray
    benchmark_returns: np.ndarray


def case(seed: int, *, rows: int, drift: float) -> Case:
    """Draw a book with fat tails, half of which is its benchmark."""
    generator = np.random.Generator(np.random.PCG64(seed))
    other = 0.0003 + 0.008 * generator.standard_t(5, rows)
    own = drift + 0.5 * other + 0.006 * generator.standard_t(4, rows)
    day, dates = date(2014, 12, 31), []
    while len(dates) <= rows:
        if day.weekday() < 5:
            dates.append(day)
        day += timedelta(days=1)
    equity = 1e6 * np.cumprod(np.concatenate([[1.0], 1.0 + own]))
    benchmark = 50.0 * np.cumprod(np.concatenate([[1.0], 1.0 + other]))
    return Case(
        equity=equity,
        benchmark=benchmark,
        dates=dates,
        returns=equity[1:] / equity[:-1] - 1.0,
        benchmark_returns=benchmark[1:] / benchmark[:-1] - 1.0,
    )


CASES = {
    "rising": case(1, rows=756, drift=0.0006),
    "falling": case(2, rows=300, drift=-0.001),
    "a first loss": case(8, rows=40, drift=-0.002),
}
