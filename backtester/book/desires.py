"""What many books want, laid out for one walk: a row a decision, a column a book.

All that does not depend on the books is worked out here for all decisions at once: when and where
each fills, at which price, and why it cannot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Final

import numpy as np
import numpy.typing as npt

from backtester.book.lines import Line, Stage
from backtester.book.records import BookRule
from backtester.book.walk import FILL_CLOSE, FILL_OPEN, FILLS

Reals = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]
Span = slice | npt.NDArray[np.intp]

REFUSALS: Final = ("", "delisted", "not_listed", "conflict", "after_end", "missing_bar")
"""Why an order is refused whatever its size, by code; ``missing_rate`` shows when it fills."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Opening:
    """Hold the opens of one market at the instant of a batch, a row a line.

    Attributes:
        asked: The batch's rows that fill in this market.
        lines: The market's lines.
        opens: Their opens; 0 where none is there, or is public only after the close.
    """

    asked: Span
    lines: Span
    opens: Reals


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """Hold the decisions that fill at one instant; columns have a row a decision.

    Attributes:
        at: Instant; so `phase`, which of its steps it belongs to.
        rows: Where they are in `Desires`.
        lines: Their lines; so `numbers`, one by one.
        slots: Parts of the equity.
        prices: Of their bars, 0 where the order is refused whatever its size.
        volume: Of their bars.
        opening: For a fill at the open: what is open then.
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
    parts = [_part(stage, one, offset, phase) for one in wanted]
    columns = {name: np.concatenate([part[name] for part in parts]) for name in _COLUMNS}
    order = np.lexsort((columns["line"], columns["at"]))
    columns = {name: values[order] for name, values in columns.items()}
    books = wanted[0].weights.shape[1] if wanted else 0
    fitting = [one.weights[: len(part["line"])] for one, part in zip(wanted, parts, strict=True)]
    weights = np.concatenate(fitting)[order] if fitting else np.zeros((0, books))
    return Desires(
        line=columns["line"],
        place=columns["place"],
        decided=columns["decided"],
        at=columns["at"],
        refusal=columns["refusal"],
        prices=columns["prices"],
        weights=weights,
        batches=_batches(stage, rule, phase, columns),
        late=_late(stage, wanted, parts),
    )


_COLUMNS: Final = ("line", "place", "decided", "at", "refusal", "prices", "volume")


def _part(
    stage: Stage, wanted: Wanted, offset: int, phase: int
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
    refusal = _refusals(stage, line, place, found)
    return {
        "line": np.full(len(place), wanted.line, dtype=np.int64),
        "place": place,
        "decided": decided,
        "at": np.array(instants, dtype=np.int64)[place],
        "refusal": refusal,
        "prices": np.where(refusal == 0, found, 0.0),
        "volume": np.array(line.volume, dtype=np.float64)[place],
    }


def _refusals(stage: Stage, line: Line, place: Whole, prices: Reals) -> Whole:
    """Return why each order cannot be filled; see `book_walk.Walk` for the order of reasons."""
    days = np.array(line.clock.days, dtype="datetime64[D]")[place]
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
    starts = np.flatnonzero(np.diff(at, prepend=at[:1] - 1)).tolist()
    markets = _Markets(stage)
    found = []
    for start, stop in zip(starts, [*starts[1:], len(at)], strict=True):
        rows = slice(start, stop)
        lines, places = columns["line"][rows].tolist(), columns["place"][rows].tolist()
        day = stage.lines[lines[0]].clock.days[places[0]]
        found.append(
            Batch(
                at=int(at[start]),
                phase=phase,
                rows=rows,
                lines=span_of(lines),
                numbers=np.array(lines, dtype=np.intp),
                slots=rule.slots or markets.trading(day),
                prices=prices[rows, None],
                volume=volume[rows, None],
                opening=markets.opening(lines, places) if phase == FILL_OPEN else (),
            )
        )
    return tuple(found)


def _reals(column: npt.NDArray[np.generic]) -> Reals:
    return column.astype(np.float64, copy=False)


class _Markets:
    """Say what each market of a stage opens at, and how many lines trade on a day."""

    def __init__(self, stage: Stage) -> None:
        self._lines = stage.lines
        members: dict[int, list[int]] = {}
        for at, line in enumerate(stage.lines):
            members.setdefault(id(line.clock), []).append(at)
        self._members = members
        self._opens = {clock: _opens([stage.lines[at] for at in m]) for clock, m in members.items()}
        self._spans = {clock: span_of(lines) for clock, lines in members.items()}
        self._trading: dict[date, int] = {}

    def trading(self, day: date) -> int:
        if day not in self._trading:
            self._trading[day] = sum(1 for line in self._lines if line.trades_on(day))
        return self._trading[day]

    def opening(self, lines: Sequence[int], places: Sequence[int]) -> tuple[Opening, ...]:
        asked: dict[int, list[int]] = {}
        place_of: dict[int, int] = {}
        for row, (line, place) in enumerate(zip(lines, places, strict=True)):
            clock = id(self._lines[line].clock)
            asked.setdefault(clock, []).append(row)
            place_of[clock] = place
        return tuple(
            Opening(
                asked=span_of(rows),
                lines=self._spans[clock],
                opens=self._opens[clock][place_of[clock], :, None],
            )
            for clock, rows in asked.items()
        )


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


def span_of(places: Sequence[int]) -> Span:
    """Return ascending places as a slice where they follow one another, else as they are."""
    if len(places) == places[-1] - places[0] + 1:
        return slice(places[0], places[-1] + 1)
    return np.array(places, dtype=np.intp)
