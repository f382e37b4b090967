"""Price paths for the tests of baselines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date

import numpy as np

from tests.support.snapshots import BarTuple, sessions_of
from tradingagents_core.protocols import Bars


def bars_of(closes: Sequence[float], *, spread: float = 0.0) -> Bars:
    """Make bars whose high and low stand a fraction off the close."""
    close = np.array(closes, dtype=np.float64)
    days = np.datetime64("2000-01-03", "D") + np.arange(len(close))
    return Bars(
        sessions=days,
        open=close,
        high=close * (1 + spread),
        low=close * (1 - spread),
        close=close,
        volume=np.full(len(close), 1_000.0),
    )


def walk_of(count: int, *, seed: int, flat: tuple[int, int] | None = None) -> Bars:
    """Make a random walk of prices in cents; between two bars it may stand still."""
    steps = np.random.Generator(np.random.PCG64(seed)).normal(0.0, 0.02, count)
    if flat is not None:
        steps[flat[0] : flat[1]] = 0.0
    levels = [100.0]
    for step in steps[1:].tolist():
        levels.append(levels[-1] * (1.0 + step))
    return bars_of([round(level, 2) for level in levels], spread=0.01)


def rows_of(symbol: str, start: str, closes: Sequence[float]) -> list[BarTuple]:
    """Put closes on the sessions of a symbol's calendar."""
    days: list[date] = sessions_of(symbol, start, len(closes))
    return [
        (day, close, close * 1.01, close * 0.99, close, 1_000)
        for day, close in zip(days, closes, strict=True)
    ]


def swing(count: int, *, phase: float = 0.0) -> list[float]:
    """Return closes that rise and fall."""
    return [round(100 + 12 * math.sin(i / 7 + phase) + i / 20, 2) for i in range(count)]
