"""The memory of a recorded run as it was at each cutoff, with every later lesson as a canary.

Lessons become true ones as simulated time goes on, so a walk over all cutoffs touches each lesson
a few times, however long the run is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from backtester.leaks.poison import Place, Planted
from backtester.records import CellKey, CellRecord, LessonRecord, ReturnRecord
from backtester.runs.journal import Ledger
from backtester.settlement.memory import MemoryBook, MemoryEntry
from backtester.walk.engine import Walk

LESSON_TEXT: Final = Place(table="lessons", column="lesson")
DECISION_TEXT: Final = Place(table="lessons", column="decision")


@dataclass(frozen=True, kw_only=True)
class _Row:
    """Hold what a run recorded of one settled decision."""

    cell: CellRecord
    lesson: LessonRecord
    returned: ReturnRecord

    @property
    def known_at(self) -> datetime | None:
        return self.lesson.resolved_at

    def known_by(self, instant: datetime | None) -> bool:
        return None not in (self.known_at, instant) and self.known_at <= instant  # type: ignore[operator]

    def true(self) -> MemoryEntry:
        """Return the entry that the run had."""
        return self._entry(self.lesson, self.cell.decision)

    def canary(self) -> MemoryEntry:
        """Return an entry that must not be seen yet."""
        lesson = replace(self.lesson, lesson_status="written", lesson=LESSON_TEXT.canary)
        return self._entry(lesson, DECISION_TEXT.canary)

    def blank(self) -> MemoryEntry:
        """Return an entry that another lesson may take the place of."""
        return self._entry(replace(self.lesson, lesson_status="waiting", lesson=""), "")

    def _entry(self, lesson: LessonRecord, decision: str) -> MemoryEntry:
        return MemoryEntry(
            lesson=lesson,
            decision=decision,
            horizon=self.returned.horizon,
            benchmark=self.returned.benchmark or "none",
        )


class Past:
    """Give each day of an audit the memory of the recorded run; days come in order.

    Args:
        ledger: The recorded run.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._rows = dict(_rows(ledger))
        rows = self._rows.values()
        self._decided = sorted(rows, key=lambda row: row.cell.cutoff, reverse=True)
        known = [row for row in rows if row.known_at is not None]
        self._to_come = sorted(known, key=_known_at, reverse=True)
        self._open: dict[CellKey, _Row] = {}
        self._book: MemoryBook | None = None
        self._settling: list[_Row] = []

    def begin(self, day: Walk, previous: datetime | None, cutoff: datetime) -> Planted:
        """Load a day's memory as of the cutoff before; what is later is there too, as canaries.

        Returns:
            How many lessons are canaries.
        """
        if self._book is None:
            self._book = day.book
            for row in self._to_come:
                self._book.supersede(row.canary())
        day.book = self._book
        while self._to_come and self._to_come[-1].known_by(previous):
            row = self._to_come.pop()
            self._book.supersede(row.true())
            self._open.pop(row.cell.key, None)
        while self._decided and self._decided[-1].cell.cutoff < cutoff:
            row = self._decided.pop()
            if not row.known_by(previous):
                self._open[row.cell.key] = row
        for row in self._open.values():
            day.expect(row.cell)
        due = [key for key, (at, _) in day.waiting.items() if at <= cutoff]
        self._settling = [self._rows[key] for key in due]
        for row in self._settling:
            self._book.supersede(row.blank())
        later = len(self._to_come) - sum(row.known_at is not None for row in self._settling)
        return Planted(rows=later, texts=2 * later)

    def end(self) -> None:
        """Take back what the day's world taught; the next day starts from the record."""
        for row in self._settling:
            if self._book is not None:
                self._book.supersede(row.blank() if row.known_at is None else row.canary())
        self._settling = []


def _rows(ledger: Ledger) -> Iterator[tuple[CellKey, _Row]]:
    for key, cell in sorted(ledger.cells.items()):
        lesson, returned = ledger.lessons.get(key), ledger.returns.get(key)
        if lesson is not None and returned is not None:
            yield key, _Row(cell=cell, lesson=lesson, returned=returned)


def _known_at(row: _Row) -> tuple[datetime | None, CellKey]:
    return row.known_at, row.cell.key
