"""Simulated books: how often the intervals of their figures hold the true value.

Session returns of one mean and deviation in four shapes: normal, Student's t with 5 degrees, skewed
to the left, and of a variance that swings (GARCH). True values are those of the shape, from a long
draw of it where there is no formula.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np

from backtester.statistics.precision import (
    Precision,
    of_growth,
    of_intercept,
    of_mean,
    of_sharpe,
    of_sortino,
)
from benchmarks.soak.histories import TAIL, Floats
from benchmarks.soak.verdicts import Verdict

SHAPES: Final = ("normal", "t5", "skewed", "swinging")
LENGTHS: Final = (20, 60, 250)
FIGURES: Final = ("mean_return", "cagr", "sharpe", "sortino", "jensen_alpha")
RATIO: Final = 0.06
"""True Sharpe ratio a session, 0.95 a year."""
_DEVIATION: Final = 0.01
_BETA: Final = 0.8
_LONG: Final = 2_000_000
_PERSISTENCE: Final = (0.05, 0.1, 0.85)


@dataclass(frozen=True, kw_only=True)
class BookWorld:
    """Say what the books look like.

    Attributes:
        shape: One of `SHAPES`.
        sessions: Returns of each book.
    """

    shape: str
    sessions: int


def book_worlds() -> Iterator[BookWorld]:
    """Yield the worlds of the table."""
    for shape in SHAPES:
        for sessions in LENGTHS:
            yield BookWorld(shape=shape, sessions=sessions)


def book_row(world: BookWorld, *, histories: int, seed: int) -> dict[str, Verdict]:
    """Return how often the interval of each figure holds its true value.

    Args:
        world: What the books look like.
        histories: How many.
        seed: Of all of them.
    """
    generator = np.random.Generator(np.random.PCG64(seed))
    units = _drawn(world.shape, (3 * histories, world.sessions), generator)
    held = dict.fromkeys(FIGURES, 0)
    truth = _truths(world.shape)
    for place in range(histories):
        for figure, found in _intervals(*units[3 * place : 3 * place + 3]).items():
            if found.low is not None and found.high is not None:
                held[figure] += found.low <= truth[figure] <= found.high
    return {
        figure: Verdict(shown=histories, yes=yes, histories=histories)
        for figure, yes in held.items()
    }


def book_markdown(rows: Sequence[tuple[BookWorld, dict[str, Verdict]]]) -> str:
    """Return the table of coverages in per cent."""
    lines = [
        "| returns | sessions | " + " | ".join(FIGURES) + " |",
        "| --- | --- | " + " | ".join("---" for _ in FIGURES) + " |",
    ]
    for world, row in rows:
        rates = (f"{100 * (row[figure].rate or 0.0):.1f}" for figure in FIGURES)
        lines.append(f"| {world.shape} | {world.sessions} | " + " | ".join(rates) + " |")
    return "\n".join(lines)


def _intervals(units: Floats, market: Floats, rest: Floats) -> dict[str, Precision]:
    returns = (_DEVIATION * (units + RATIO)).tolist()
    other = _DEVIATION * market
    own = _DEVIATION * (RATIO + rest) + _BETA * other
    centred = other - other.mean()
    beta = float((own * centred).sum() / (centred**2).sum())
    alpha = float(own.mean() - beta * other.mean())
    left = (own - alpha - beta * other).tolist()
    return {
        "mean_return": of_mean(returns, 1.0),
        "cagr": of_growth(returns, float(len(returns))),
        "sharpe": of_sharpe(returns, 1.0),
        "sortino": of_sortino(returns, 1.0),
        "jensen_alpha": of_intercept(alpha, left, other.tolist(), 1.0),
    }


@cache
def _truths(shape: str) -> dict[str, float]:
    generator = np.random.Generator(np.random.PCG64(7))
    units = _drawn(shape, (_LONG // 250, 250), generator)
    downside = math.sqrt(float((np.minimum(units + RATIO, 0.0) ** 2).mean()))
    growth = float(np.log1p(_DEVIATION * (units + RATIO)).mean())
    return {
        "mean_return": _DEVIATION * RATIO,
        "cagr": math.expm1(growth),
        "sharpe": RATIO,
        "sortino": RATIO / downside,
        "jensen_alpha": _DEVIATION * RATIO,
    }


def _drawn(shape: str, size: tuple[int, int], generator: np.random.Generator) -> Floats:
    """Return histories x sessions of mean 0 and variance 1."""
    draw: dict[str, Callable[[], Floats]] = {
        "normal": lambda: generator.standard_normal(size),
        "t5": lambda: generator.standard_t(TAIL, size) * math.sqrt((TAIL - 2) / TAIL),
        "skewed": lambda: (2.0 - generator.gamma(2.0, 1.0, size)) / math.sqrt(2.0),
        "swinging": lambda: _swinging(size, generator),
    }
    return draw[shape]()


def _swinging(size: tuple[int, int], generator: np.random.Generator) -> Floats:
    base, shock, memory = _PERSISTENCE
    before = 60
    noise = generator.standard_normal((before + size[1], size[0]))
    variance, found = np.ones(size[0]), np.empty_like(noise)
    for place, row in enumerate(noise):
        found[place] = np.sqrt(variance) * row
        variance = base + shock * found[place] ** 2 + memory * variance
    return np.ascontiguousarray(found[before:].T)
