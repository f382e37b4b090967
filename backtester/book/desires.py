"""What many books want, laid out for one walk: a row a decision, a column a book.

All that does not depend on the books is worked out here for all decisions at once: when and where
each fills, at which price, and why it cannot.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from backtester.book.lines import Line, Stage
from backtester.book.records import BookRule
from backtester.book.walk import FILL_CLOSE, FILL_OPEN, FILLS

Reals = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]
Dates = npt.NDArray[np.datetime64]
Span = slice | npt.NDArray[np.intp]

REFUSALS: Final = ("", "delisted", "not_listed", "conflict", "after_end", "missing_bar")
"""Why an order is refused whatever its size, by code; ``missing_rate`` shows when it fills."""


class Opening(NamedTuple):
    """Hold the opens of one market at the instant of a batch, a row a line.

    Attributes:
        asked: The batch's rows that fill in this market.
        lines: The market's lines.
        opens: Their opens; 0 where none is there, or is public only after the close.
    """

    asked: Span
    lines: Span
    opens: Reals


class Batch(NamedTuple):
    """Hold the decisions that fill at one instant; columns have a row a decision.

    Attributes:
        at: Instant; so `phase`, which of its steps it belongs to.
        rows: Where they are in `Desires`.
        lines: Their lines; so `numbers`, one by one.
        slots: Parts of the equity.
        prices: Of their bars, 0 where the order is refused whatever its size.
        volume: Of their bars.
        opening: For a fill at the open: what is open then.
        whole: Whether there is one for each line of the stage.
        priced: Whether none is refused whatever its size.
        market: Opens of all lines of the stage where one market opens and has all of them, with
            an open each; else None.
    """

    at: int
    phase: int
    rows: slice
    lines: Span
    numbers: npt.NDArray[np.intp]
    slots: int
    prices: Reals
    volume: Reals
    opening: tuple[Opening, ...]
    whole: bool
    priced: bool
    market: Reals | None


@dataclass(frozen=True, kw_only=True)
class Late:
    """Hold decisions that fill after the end, a row each."""

    line: Whole
    session: npt.NDArray[np.datetime64]
    weights: Reals


@dataclass(frozen=True, kw_only=True)
class Desires:
    """Hold what many books want, in the order of the fills, by line within an instant.

    Attributes:
        line: Place of the line of each decision.
        place: Session of its fill, by place in the line's clock; `decided` that of the decision.
        at: Instant of its fill.
        refusal: Code in `REFUSALS`, 0 where its bar can fill it.
        prices: Of its bar, 0 where it cannot.
        weights: Wanted part of the slot, a column a book; NaN leaves the position.
        batches: What fills together, in order.
        late: Those that fill after the end.
    """

    line: Whole
    place: Whole
    decided: Whole
    at: Whole
    refusal: Whole
    prices: Reals
    weights: Reals
    batches: tuple[Batch, ...]
    late: Late


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Hold what all books want of one line.

    Attributes:
        line: Its place.
        decided: Sessions of the decisions, by place in its clock.
        weights: A row a decision, a column a book.
    """

    line: int
    decided: Sequence[int]
    weights: Reals


def desires_of(stage: Stage, rule: BookRule, wanted: Sequence[Wanted]) -> Desires:
    """Lay out what many books want of a stage.

    Args:
        stage: Prices.
        rule: Says where orders fill.
        wanted: By line.
    """
    offset, point = FILLS[rule.entry_rule]
    phase = FILL_OPEN if point == "open" else FILL_CLOSE
    days = {id(line.clock): line.clock.days for line in stage.lines}
    dates = {clock: dates_of(found) for clock, found in days.items()}
    parts = [_part(stage, one, offset, phase, dates) for one in wanted]
    columns = {name: np.concatenate([part[name] for part in parts]) for name in _COLUMNS}
    order = np.lexsort((columns["line"], columns["at"]))
    columns = {name: values[order] for name, values in columns.items()}
    return Desires(
        line=columns["line"],
        place=columns["place"],
        decided=columns["decided"],
        at=columns["at"],
        refusal=columns["refusal"],
        prices=columns["prices"],
        weights=_weights(wanted, [len(part["line"]) for part in parts], order),
        batches=_batches(stage, rule, phase, columns),
        late=_late(stage, wanted, parts),
    )


def _weights(wanted: Sequence[Wanted], sizes: Sequence[int], order: Whole) -> Reals:
    """Return the first so many weights of each line, put in order."""
    found = np.empty((len(order), wanted[0].weights.shape[1] if wanted else 0))
    goes_to = np.empty_like(order)
    goes_to[order] = np.arange(len(order))
    start = 0
    for one, size in zip(wanted, sizes, strict=True):
        found[goes_to[start : start + size]] = one.weights[:size]
        start += size
    return found


_EPOCH: Final = date(1970, 1, 1).toordinal()
_COLUMNS: Final = ("line", "place", "decided", "at", "refusal", "prices", "volume")


def _part(
    stage: Stage, wanted: Wanted, offset: int, phase: int, dates: Mapping[int, Dates]
) -> Mapping[str, npt.NDArray[np.generic]]:
    """Return the columns of one line's decisions that fill within the stage."""
    line = stage.lines[wanted.line]
    clock = line.clock
    decided = np.array(wanted.decided, dtype=np.int64)
    decided = decided[decided + offset < len(clock.days)]
    place = decided + offset
    instants, prices = (
        (clock.opens, line.opens) if phase == FILL_OPEN else (clock.closes, line.closes)
    )
    found = np.array(prices, dtype=np.float64)[place]
    refusal = _refusals(stage, line, place, dates[id(clock)][place], found)
    return {
        "line": np.full(len(place), wanted.line, dtype=np.int64),
        "place": place,
        "decided": decided,
        "at": np.array(instants, dtype=np.int64)[place],
        "refusal": refusal,
        "prices": np.where(refusal == 0, found, 0.0),
        "volume": np.array(line.volume, dtype=np.float64)[place],
    }


def _refusals(stage: Stage, line: Line, place: Whole, days: Dates, prices: Reals) -> Whole:
    """Return why each order cannot be filled; see `walk.Walk` for the order of reasons."""
    gone = np.zeros(len(place), dtype=np.bool_)
    if line.last is not None:
        gone = days > np.datetime64(line.last)
    apart = np.isin(days, np.array(sorted(line.conflicts), dtype="datetime64[D]"))
    closes = np.array(line.clock.closes, dtype=np.int64)[place]
    ahead = (days > np.datetime64(stage.declared_end)) | (closes > stage.data_end)
    reasons = [
        gone,
        days < np.datetime64(line.listed),
        apart,
        (prices <= 0.0) & ahead,
        prices <= 0.0,
    ]
    return np.select(reasons, range(1, len(REFUSALS)), 0).astype(np.int64)


def _batches(
    stage: Stage, rule: BookRule, phase: int, columns: Mapping[str, npt.NDArray[np.generic]]
) -> tuple[Batch, ...]:
    at, prices, volume = columns["at"], _reals(columns["prices"]), _reals(columns["volume"])
    if not len(at):
        return ()
    starts = np.flatnonzero(np.diff(at, prepend=at[:1] - 1))
    numbers = columns["line"].astype(np.intp, copy=False)
    lines, places = numbers.tolist(), columns["place"].tolist()
    priced = np.logical_and.reduceat(prices > 0.0, starts).tolist()
    markets = _Markets(stage)
    found = []
    bounds = zip(starts.tolist(), [*starts[1:].tolist(), len(at)], priced, strict=True)
    for start, stop, whether in bounds:
        rows = slice(start, stop)
        here, there = lines[rows], places[rows]
        day = stage.lines[here[0]].clock.days[there[0]]
        found.append(
            Batch(
                at=int(at[start]),
                phase=phase,
                rows=rows,
                lines=span_of(here),
                numbers=numbers[rows],
                slots=rule.slots or markets.trading(day),
                prices=prices[rows, None],
                volume=volume[rows, None],
                opening=markets.opening(here, there) if phase == FILL_OPEN else (),
                whole=len(here) == len(stage.lines),
                priced=whether,
                market=markets.whole(there[0]) if phase == FILL_OPEN else None,
            )
        )
    return tuple(found)


def _reals(column: npt.NDArray[np.generic]) -> Reals:
    return column.astype(np.float64, copy=False)


class _Markets:
    """Say what each market of a stage opens at, and how many lines trade on a day."""

    def __init__(self, stage: Stage) -> None:
        self._clocks = [id(line.clock) for line in stage.lines]
        members: dict[int, list[int]] = {}
        for at, clock in enumerate(self._clocks):
            members.setdefault(clock, []).append(at)
        self._opens = {clock: _opens([stage.lines[at] for at in m]) for clock, m in members.items()}
        self._spans = {clock: span_of(lines) for clock, lines in members.items()}
        self._listed = sorted(line.listed for line in stage.lines if _ever_trades(line))
        self._last = sorted(
            line.last for line in stage.lines if line.last is not None and _ever_trades(line)
        )
        # Of the only market: its opens, and the sessions in which all lines have one.
        self._only = next(iter(self._opens.values())) if len(members) == 1 else np.zeros((0, 0))
        self._all_open = set(np.flatnonzero((self._only > 0.0).all(axis=1)).tolist())

    def trading(self, day: date) -> int:
        """Return how many lines are listed and not gone; see `Line.trades_on`."""
        return bisect_right(self._listed, day) - bisect_left(self._last, day)

    def whole(self, place: int) -> Reals | None:
        """Return the opens of all lines in a session, if one market has them and all open."""
        return self._only[place, :, None] if place in self._all_open else None

    def opening(self, lines: Sequence[int], places: Sequence[int]) -> tuple[Opening, ...]:
        if len(self._opens) == 1:
            (clock,) = self._opens
            return (self._opening(clock, slice(0, len(lines)), places[0]),)
        asked: dict[int, list[int]] = {}
        for row, line in enumerate(lines):
            asked.setdefault(self._clocks[line], []).append(row)
        return tuple(
            self._opening(clock, span_of(rows), places[rows[0]]) for clock, rows in asked.items()
        )

    def _opening(self, clock: int, asked: Span, place: int) -> Opening:
        return Opening(asked, self._spans[clock], self._opens[clock][place, :, None])


def _ever_trades(line: Line) -> bool:
    return line.last is None or line.listed <= line.last


def _opens(lines: Sequence[Line]) -> Reals:
    """Return opens that are public by their session's close, sessions x lines; 0 for others."""
    opens = np.array([line.opens for line in lines], dtype=np.float64)
    known = np.array([line.known for line in lines], dtype=np.int64)
    closes = np.array([line.clock.closes for line in lines], dtype=np.int64)
    shown: Reals = np.where(known <= closes, opens, 0.0).T
    return shown


def _late(
    stage: Stage, wanted: Sequence[Wanted], parts: Sequence[Mapping[str, npt.NDArray[np.generic]]]
) -> Late:
    books = wanted[0].weights.shape[1] if wanted else 0
    rows = []
    for one, part in zip(wanted, parts, strict=True):
        days = stage.lines[one.line].clock.days
        late = range(len(part["line"]), len(one.decided))
        rows += [(days[one.decided[at]], one.line, one.weights[at]) for at in late]
    rows.sort(key=lambda row: row[:2])
    return Late(
        line=np.array([line for _, line, _ in rows], dtype=np.int64),
        session=np.array([day for day, _, _ in rows], dtype="datetime64[D]"),
        weights=np.array([weights for _, _, weights in rows]).reshape(len(rows), books),
    )


def dates_of(days: Sequence[date]) -> Dates:
    """Return dates as numpy has them; it takes ten times as long over objects."""
    ordinals = np.array([day.toordinal() for day in days], dtype=np.int64)
    return (ordinals - _EPOCH).astype("datetime64[D]")


def span_of(places: Sequence[int]) -> Span:
    """Return places in order as a slice where they follow one another, else as they are."""
    if len(places) == places[-1] - places[0] + 1 == len(set(places)):
        return slice(places[0], places[-1] + 1)
    return np.array(places, dtype=np.intp)
