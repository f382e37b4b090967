"""Random ratings: what a run of the same shape earns that knows nothing.

Each ticker's path is a Markov chain over the five ratings and "none read", drawn by PCG64. With the
model ``markov`` (the default) the chain begins with the frequencies of the run's own ratings and
moves with the frequencies of their changes, counted over all tickers of a lane: so both how often
each rating comes and how long it stays are those of the run, in expectation. ``iid`` keeps the
frequencies alone, ``uniform`` neither: each of the five is as likely.

What is not kept: that ratings of several tickers move together. The permutation of whole paths
(see the statistics) keeps that.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from backtester.book.records import Signal
from backtester.errors import UsageError
from backtester.records import RATINGS

STATES: tuple[str | None, ...] = (*RATINGS, None)
Frequencies = tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class RatingModel:
    """Say how random ratings come about, by the order of `STATES`.

    Attributes:
        first: Probability of each state at a ticker's first session.
        then: Probability of each state by the state before.
    """

    first: Frequencies
    then: tuple[Frequencies, ...]


def uniform_model() -> RatingModel:
    """Return the model in which each of the five ratings is as likely, whatever came before."""
    each = (*(1.0 / len(RATINGS) for _ in RATINGS), 0.0)
    return RatingModel(first=each, then=(each,) * len(STATES))


def model_of(own: Sequence[Signal], *, persistent: bool) -> RatingModel:
    """Count how the ratings of a run's lane are spread, and how they change.

    Args:
        own: Decisions of one lane; a ticker's changes are counted in the order of its sessions.
        persistent: Whether the state before matters. One that nothing ever followed is followed
            by what is frequent over all.

    Raises:
        UsageError: There is no decision.
    """
    if not own:
        raise UsageError("random ratings like the run's need its ratings: there are none")
    paths: dict[str, list[int]] = {}
    for signal in sorted(own, key=lambda one: (one.ticker, one.session)):
        paths.setdefault(signal.ticker, []).append(STATES.index(signal.rating))
    return model_of_paths([np.array(path) for path in paths.values()], persistent=persistent)


def model_of_paths(paths: Sequence[npt.NDArray[np.int64]], *, persistent: bool) -> RatingModel:
    """Count how paths are spread and how they change; see `model_of`.

    Args:
        paths: Of each ticker, none of them empty: places in `STATES` in the order of its sessions.
        persistent: Whether the state before matters.
    """
    size = len(STATES)
    counts = np.bincount(np.concatenate(paths), minlength=size).tolist()
    pairs = np.concatenate([path[:-1] * size + path[1:] for path in paths])
    changes = np.bincount(pairs, minlength=size * size).reshape(size, size).tolist()
    overall = _frequencies(counts)
    if not persistent:
        return RatingModel(first=overall, then=(overall,) * size)
    return RatingModel(
        first=overall, then=tuple(_frequencies(row) if any(row) else overall for row in changes)
    )


def random_ratings(
    model: RatingModel, sessions: Mapping[str, Sequence[date]], *, seed: int
) -> tuple[Signal, ...]:
    """Draw a rating for each ticker and session, ordered by session and ticker.

    A ticker's path depends on seed and ticker alone, not on who else is in the book.

    Args:
        model: How they come about.
        sessions: Decision sessions by ticker.
        seed: 0 or more; each gives another draw.
    """
    first, then = upper_ends(model.first), tuple(map(upper_ends, model.then))
    drawn = []
    for ticker, days in sorted(sessions.items()):
        digest = int.from_bytes(hashlib.sha256(ticker.encode()).digest()[:8], "big")
        generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, digest])))
        sums = first
        ordered = sorted(days)
        for day, chance in zip(ordered, generator.random(len(ordered)).tolist(), strict=True):
            state = bisect_right(sums, chance)
            drawn.append(Signal(ticker=ticker, session=day, rating=STATES[state]))
            sums = then[state]
    return tuple(sorted(drawn, key=lambda one: (one.session, one.ticker)))


def _frequencies(counts: Sequence[int]) -> Frequencies:
    total = sum(counts)
    return tuple(count / total for count in counts)


def upper_ends(frequencies: Frequencies) -> tuple[float, ...]:
    """Return the upper ends of the states' shares of 0 to 1; the last possible one is 1 exactly.

    Rounding must not leave a gap below 1 in which a state of no share would be drawn.
    """
    ends = list(accumulate(frequencies))
    last = max(place for place, share in enumerate(frequencies) if share > 0.0)
    return tuple(1.0 if place >= last else end for place, end in enumerate(ends))
