"""Lessons in simulated time: which past decisions a prompt may be shown, and when.

A lesson is visible to a cell if and only if it was written and its `resolved_at` is no later than
the cell's cutoff. Nothing else decides: not the order in which lessons were added, not the order
in which cells ask, and never the text of a lesson, which is carried as a value and parsed by
nobody. Each trial is a lane of its own; one book belongs to one run.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime
from itertools import islice
from typing import Literal, cast

from backtester.config import MemoryScope
from backtester.errors import DataError
from backtester.records import CellKey, CellRecord, LessonRecord
from tradingagents_core.protocols import Lesson

HASH_FORMAT = 1

_Order = tuple[datetime, date, str]


@dataclass(frozen=True, kw_only=True)
class MemoryEntry:
    """Hold one resolved decision with all that a prompt may be told about it.

    Attributes:
        lesson: The memory row; its key names the cell that the lesson is about.
        decision: The decision's Markdown.
        horizon: Sessions from the decision to the exit.
        benchmark: Benchmark symbol, or ``none``.
    """

    lesson: LessonRecord
    decision: str
    horizon: int
    benchmark: str

    @property
    def key(self) -> CellKey:
        """Return the cell that the lesson is about."""
        return self.lesson.key


@dataclass(frozen=True, kw_only=True)
class VisibleLessons:
    """Hold the lessons of one cell at its cutoff, each part newest first.

    Attributes:
        own: Lessons of the cell's own ticker, shown in full.
        other: Lessons of other tickers, of which the decision's text is not shown.
    """

    own: tuple[MemoryEntry, ...] = ()
    other: tuple[MemoryEntry, ...] = ()

    @property
    def ids(self) -> tuple[str, ...]:
        """Return the ids of all lessons, newest first over both parts."""
        merged = sorted((*self.own, *self.other), key=_order, reverse=True)
        return tuple(str(entry.key) for entry in merged)


@dataclass(frozen=True, kw_only=True)
class ShownLessons:
    """Hold the same lessons in the pipeline's own form, as `CellRequest` takes them."""

    own: tuple[Lesson, ...]
    other: tuple[Lesson, ...]


class MemoryBook:
    """Keep the lessons of one run and say which of them a cell may see.

    Lessons are kept sorted for each lane and ticker, so a question costs a binary search and not
    a walk over the run's past. The loop that owns the book adds and asks; what it hands out is
    frozen and may go to any worker.

    Args:
        scope: ``portfolio`` (own and other tickers), ``ticker`` (own alone) or ``off``.
        trials_share_memory: ``own`` (trial k reads the lessons of trial k) or ``first`` (every
            trial reads those of trial 0).
        own: How many lessons of the cell's own ticker are shown at most.
        other: How many lessons of other tickers are shown at most.
    """

    def __init__(
        self,
        scope: MemoryScope,
        trials_share_memory: Literal["own", "first"] = "own",
        own: int = 5,
        other: int = 3,
    ) -> None:
        self._scope = scope
        self._share = trials_share_memory
        self._own = own
        self._other = other
        self._entries: dict[CellKey, MemoryEntry] = {}
        self._lanes: dict[int, dict[str, list[MemoryEntry]]] = {}
        self._recent: dict[int, tuple[MemoryEntry, ...]] = {}
        self._recent_at: datetime | None = None

    def __len__(self) -> int:
        """Return the number of decisions that the book knows, shown or not."""
        return len(self._entries)

    def __iter__(self) -> Iterator[MemoryEntry]:
        """Yield every entry in the order of its cell."""
        return iter(sorted(self._entries.values(), key=lambda entry: entry.key))

    def find(self, key: CellKey) -> MemoryEntry | None:
        """Return the entry about a cell, or None."""
        return self._entries.get(key)

    def add(self, entry: MemoryEntry) -> None:
        """Take an entry; one that is there already is left as it is.

        An entry whose lesson was not written gives way to a later one about the same cell.

        Raises:
            DataError: For another lesson about a cell that has one: one decision, one lesson.
        """
        known = self._entries.get(entry.key)
        if known is not None and known.lesson.lesson_status == "written":
            if _same(known, entry):
                return
            raise DataError(
                f"memory holds another lesson about {entry.key}: a decision that was made again "
                "takes its place through supersede()"
            )
        self.supersede(entry)

    def supersede(self, entry: MemoryEntry) -> None:
        """Take an entry in the place of whatever the book holds about that cell.

        Raises:
            DataError: For a written lesson whose `resolved_at` names no instant.
        """
        written = entry.lesson.lesson_status == "written"
        if written:
            _require_instant(entry.lesson.resolved_at, f"resolved_at of {entry.key}")
        known = self._entries.get(entry.key)
        if known is not None and known.lesson.lesson_status == "written":
            kept = self._written(known.key)
            del kept[bisect_left(kept, _order(known), key=_order)]
        self._entries[entry.key] = entry
        if written:
            insort(self._written(entry.key), entry, key=_order)
        self._recent_at = None

    def visible(self, key: CellKey, cutoff: datetime) -> VisibleLessons:
        """Return the lessons that a cell may see.

        Args:
            key: The cell that asks.
            cutoff: Its cutoff; a lesson that resolves at this very instant is visible.

        Raises:
            DataError: For a cutoff without a zone.
        """
        _require_instant(cutoff, f"cutoff of {key}")
        if self._scope == "off":
            return VisibleLessons()
        lane = 0 if self._share == "first" else key.trial
        own = _newest(self._lanes.get(lane, {}).get(key.ticker, []), cutoff, self._own)
        if self._scope == "ticker":
            return VisibleLessons(own=own)
        others = (e for e in self._newest_of_each(lane, cutoff) if e.key.ticker != key.ticker)
        return VisibleLessons(own=own, other=tuple(islice(others, self._other)))

    @staticmethod
    def lessons_hash(visible: VisibleLessons) -> str:
        """Return sha256 over what the lessons can add to a prompt.

        Two cells with the same hash were shown the same lessons in the same order. What is not
        shown (the decision's text of another ticker) is not in it.
        """
        document = {
            "format": HASH_FORMAT,
            "own": [[*_facts(entry), _sha256(entry.decision)] for entry in visible.own],
            "other": [_facts(entry) for entry in visible.other],
        }
        return _sha256(json.dumps(document, sort_keys=True, separators=(",", ":")))

    @staticmethod
    def to_lessons(visible: VisibleLessons, symbol_of: Callable[[str], str]) -> ShownLessons:
        """Turn visible lessons into the pipeline's form, with nothing that is not shown.

        Args:
            visible: What the reader may see.
            symbol_of: Gives the symbol of an instrument id as valid at the reader's cutoff.
        """
        return ShownLessons(
            own=tuple(_lesson(entry, symbol_of) for entry in visible.own),
            other=tuple(replace(_lesson(entry, symbol_of), decision="") for entry in visible.other),
        )

    def _written(self, key: CellKey) -> list[MemoryEntry]:
        return self._lanes.setdefault(key.trial, {}).setdefault(key.ticker, [])

    def _newest_of_each(self, lane: int, cutoff: datetime) -> tuple[MemoryEntry, ...]:
        """Return the newest few of every ticker of a lane, newest first.

        No cell needs more than `other` lessons of one ticker, so this list serves every cell of a
        cutoff and stays short however long one ticker's past is.
        """
        if self._recent_at != cutoff:
            self._recent, self._recent_at = {}, cutoff
        if lane not in self._recent:
            found: list[MemoryEntry] = []
            for entries in self._lanes.get(lane, {}).values():
                found.extend(_newest(entries, cutoff, self._other))
            found.sort(key=_order, reverse=True)
            self._recent[lane] = tuple(found)
        return self._recent[lane]


def lessons_due(
    due_at: Mapping[CellKey, datetime | None], *, after: datetime | None, until: datetime
) -> tuple[CellKey, ...]:
    """Name the decided cells whose return becomes known in one step of simulated time.

    Args:
        due_at: When the return of each decided cell is known; None where it never is.
        after: The cutoff before, or None for everything up to `until`.
        until: This cutoff; a cell that is due at this very instant is in.

    Returns:
        Keys in the order of (due instant, session, ticker, trial), however they were decided.

    Raises:
        DataError: For a cutoff without a zone.
    """
    _require_instant(until, "a step of simulated time")
    due = [
        (at, key)
        for key, at in due_at.items()
        if at is not None and at <= until and (after is None or at > after)
    ]
    return tuple(key for _, key in sorted(due))


def _order(entry: MemoryEntry) -> _Order:
    return (_resolved_at(entry), entry.key.session, entry.key.ticker)


def _resolved_at(entry: MemoryEntry) -> datetime:
    # Only written lessons are sorted, and the book has looked at their instant on the way in.
    return cast(datetime, entry.lesson.resolved_at)


def _newest(entries: list[MemoryEntry], cutoff: datetime, count: int) -> tuple[MemoryEntry, ...]:
    end = bisect_right(entries, cutoff, key=_resolved_at)
    return tuple(reversed(entries[max(0, end - count) : end]))


def _same(one: MemoryEntry, other: MemoryEntry) -> bool:
    """Compare what was learnt, not what it cost: calls carry latencies and hit marks."""
    bare = [replace(e, lesson=replace(e.lesson, calls=(), outcomes=())) for e in (one, other)]
    return bare[0] == bare[1]


def _facts(entry: MemoryEntry) -> list[str | int | None]:
    lesson = entry.lesson
    return [
        str(entry.key),
        lesson.rating,
        entry.horizon,
        None if lesson.raw_return is None else lesson.raw_return.hex(),
        None if lesson.alpha is None else lesson.alpha.hex(),
        entry.benchmark,
        _sha256(lesson.lesson),
    ]


def _lesson(entry: MemoryEntry, symbol_of: Callable[[str], str]) -> Lesson:
    lesson = entry.lesson
    return Lesson(
        symbol=symbol_of(lesson.key.ticker),
        session=lesson.key.session,
        rating=lesson.rating,
        horizon=entry.horizon,
        raw_return=lesson.raw_return,
        alpha=lesson.alpha,
        benchmark=entry.benchmark,
        decision=entry.decision,
        reflection=lesson.lesson,
    )


def _sha256(text: str) -> str:
    # A model may answer with half a surrogate pair, which strict UTF-8 refuses to encode.
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _require_instant(when: datetime | None, what: str) -> None:
    if when is None or when.tzinfo is None:
        raise DataError(f"{what} is {when}, which names no instant: give one in UTC")


def waiting_row(cell: CellRecord) -> LessonRecord:
    """Return the memory row of a decision whose return nobody has looked for yet."""
    return LessonRecord(
        key=cell.key,
        decision_hash="",
        resolved_at=None,
        rating=cell.rating,
        raw_return=None,
        alpha=None,
        lesson_status="waiting",
        lesson="",
        error=None,
        calls=(),
        outcomes=(),
    )
