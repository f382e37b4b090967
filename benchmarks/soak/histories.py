"""Simulated histories of ratings and alphas, many at once, and what theory says of their mean."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

# Directions of the five ratings, best first; every rating is as likely as another.
DIRECTIONS = np.array([1.0, 0.5, 0.0, -0.5, -1.0])
MEAN_SQUARE = float((DIRECTIONS**2).mean())
COMMON = 0.3
"""Correlation between the returns of two tickers, through one factor."""
TAIL = 5
"""Degrees of freedom of the Student's t that factor and rest are drawn from."""
# So many cells at once fit into some 100 MB.
_CHUNK_CELLS = 1_500_000


@dataclass(frozen=True, kw_only=True)
class World:
    """Say what the histories look like.

    Attributes:
        tickers: How many.
        span: Sessions of the calendar from the first decision on, decisions or not.
        step: Sessions from one decision to the next: 1 daily, 5 weekly.
        horizon: Sessions from a decision to the end of its window.
        stay: Probability that a rating stays as it was; else it is drawn anew (0: always).
        effect: Alpha of one session for a direction of 1, in deviations of one session's return.
        notches: A rating that does not stay moves to the next better or worse one, and at an end
            may stay after all, instead of being drawn anew.
    """

    tickers: int
    span: int
    step: int
    horizon: int
    stay: float
    effect: float = 0.0
    notches: bool = False

    @property
    def positions(self) -> range:
        """Return the positions of the decision sessions on the calendar."""
        return range(0, self.span, self.step)

    @property
    def mean(self) -> float:
        """Return the true mean of direction x alpha."""
        return self.effect * self.horizon * MEAN_SQUARE

    @property
    def deviation(self) -> float:
        """Return the true standard deviation of the mean of direction x alpha, without an effect.

        Directions of two tickers are independent with mean 0, so only cells of one ticker go
        together: their windows share sessions, and their ratings are alike by ``stay^lag``.
        """
        decisions = len(self.positions)
        total = 0.0
        for lag in range(-decisions + 1, decisions):
            shared = max(0, self.horizon - abs(lag) * self.step)
            alike = self.stay ** abs(lag) if lag else 1.0
            total += (decisions - abs(lag)) * shared * alike
        cells = decisions * self.tickers
        return math.sqrt(MEAN_SQUARE * total * self.tickers) / cells

    @property
    def deviation_between(self) -> float:
        """Return the same of what a permutation of tickers leaves: without the factor."""
        rest = (1.0 - COMMON) * (self.tickers - 1) / self.tickers
        return self.deviation * math.sqrt(rest)


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Hold some histories.

    Attributes:
        directions: Histories x decisions x tickers.
        alphas: The same shape.
    """

    directions: Floats
    alphas: Floats


def batches(world: World, count: int, *, seed: int) -> Iterator[Batch]:
    """Yield ``count`` histories in batches that fit into memory.

    Args:
        world: What they look like.
        count: How many in all.
        seed: Of all of them.
    """
    generator = np.random.Generator(np.random.PCG64(seed))
    each = max(1, min(count, _CHUNK_CELLS // ((world.span + world.horizon) * world.tickers)))
    for start in range(0, count, each):
        size = min(each, count - start)
        directions = _directions(world, size, generator)
        alphas = _alphas(world, size, generator) + world.effect * world.horizon * directions
        yield Batch(directions=directions, alphas=alphas)


def _directions(world: World, size: int, generator: np.random.Generator) -> Floats:
    shape = (size, len(world.positions), world.tickers)
    rating = generator.integers(0, len(DIRECTIONS), shape)
    if world.stay > 0.0:
        stays = generator.random(shape) < world.stay
        moves = generator.choice([-1, 1], shape) if world.notches else None
        for place in range(1, shape[1]):
            before = rating[:, place - 1]
            left = rating[:, place]
            if moves is not None:
                left = np.clip(before + moves[:, place], 0, len(DIRECTIONS) - 1)
            rating[:, place] = np.where(stays[:, place], before, left)
    directions: Floats = DIRECTIONS[rating]
    return directions


def _alphas(world: World, size: int, generator: np.random.Generator) -> Floats:
    """Return returns over the windows after each decision, of variance 1 a session."""
    length = world.span + world.horizon
    scale = math.sqrt((TAIL - 2) / TAIL)
    factor = generator.standard_t(TAIL, (size, length, 1)) * scale
    rest = generator.standard_t(TAIL, (size, length, world.tickers)) * scale
    returns = math.sqrt(COMMON) * factor + math.sqrt(1.0 - COMMON) * rest
    level = np.concatenate([np.zeros((size, 1, world.tickers)), np.cumsum(returns, axis=1)], axis=1)
    # The window of a decision at session p holds the sessions p+1 to p+horizon.
    first = np.array(world.positions) + 1
    windows: Floats = level[:, first + world.horizon] - level[:, first]
    return windows
