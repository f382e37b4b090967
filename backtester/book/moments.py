"""What happens on a stage, instant by instant, with the closes of each instant as arrays."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from backtester.book.desires import Span, span_of
from backtester.book.lines import Stage
from backtester.book.walk import CLOSE, Happening, Script


class Closes(NamedTuple):
    """Hold the closes that become known at one instant, a row a line.

    Attributes:
        lines: Places of the lines; one may be there twice, its newer close last.
        prices: Closes.
        instants: Those of the closes, microseconds; `oldest` and `newest` are the ends of these.
    """

    lines: Span
    prices: npt.NDArray[np.float64]
    instants: npt.NDArray[np.int64]
    oldest: int
    newest: int


class Moment(NamedTuple):
    """Hold what happens at one step of one instant; closes come after the rest.

    Attributes:
        at: Instant.
        phase: Step.
        others: All that is no close of a line.
        closes: Of lines, or None.
    """

    at: int
    phase: int
    others: tuple[Happening, ...]
    closes: Closes | None


def moments_of(stage: Stage, script: Script) -> Iterator[Moment]:
    """Yield all that happens, in order."""
    happenings = script.happenings
    if not happenings:
        return
    columns = np.fromiter(chain.from_iterable(happenings), np.int64, 4 * len(happenings))
    at, phase, line, place = columns.reshape(-1, 4).T
    starts = np.flatnonzero((np.diff(at) != 0) | (np.diff(phase) != 0)) + 1
    starts = np.concatenate([[0], starts])
    # Within a moment the lines come after the exchanges, whose places are below zero.
    closes = (phase == CLOSE) & (line >= 0)
    middles = starts + np.add.reduceat(~closes, starts, dtype=np.int64)
    prices, instants = _closes(stage, np.where(closes, line, 0), np.where(closes, place, 0))
    oldest, newest = (edge.reduceat(instants[:, 0], starts) for edge in (np.minimum, np.maximum))
    lines, oldest, newest = line.tolist(), oldest.tolist(), newest.tolist()
    stops = [*starts[1:].tolist(), len(happenings)]
    bounds = zip(starts.tolist(), middles.tolist(), stops, oldest, newest, strict=True)
    for start, middle, stop, first, last in bounds:
        found = None
        if middle < stop:
            span, rows = span_of(lines[middle:stop]), slice(middle, stop)
            found = Closes(span, prices[rows], instants[rows], first, last)
        what = happenings[start]
        yield Moment(what.at, what.phase, happenings[start:middle], found)


def _closes(
    stage: Stage, line: npt.NDArray[np.int64], place: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Return the close of each line at each place, and the instant of it."""
    sizes = [len(one.closes) for one in stage.lines]
    at = np.cumsum([0, *sizes])[line] + place
    prices = np.fromiter(chain.from_iterable(one.closes for one in stage.lines), np.float64)
    ends = np.fromiter(chain.from_iterable(one.clock.closes for one in stage.lines), np.int64)
    return prices[at, None], ends[at, None]
