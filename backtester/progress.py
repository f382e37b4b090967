"""What a run tells of itself while it goes on; it never listens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from backtester.plan import Barrier, Plan
from backtester.records import CellRecord, LessonRecord


class Progress(Protocol):
    """Take news of a run; must not influence it."""

    def started(self, plan: Plan, kept: int) -> None:
        """The walk begins; ``kept`` cells are in the journal already."""

    def settled(self, lessons: Sequence[LessonRecord]) -> None:
        """Decisions were settled; these memory rows are new."""

    def committed(self, barrier: Barrier, new: Sequence[CellRecord], kept: int) -> None:
        """A barrier is in the journal: its ``new`` cells, and ``kept`` that were there before."""

    def finished(self) -> None:
        """The walk is over."""


class Silent:
    """Say nothing; the `Progress` of library calls."""

    def started(self, plan: Plan, kept: int) -> None:
        """Ignore the start."""

    def settled(self, lessons: Sequence[LessonRecord]) -> None:
        """Ignore lessons."""

    def committed(self, barrier: Barrier, new: Sequence[CellRecord], kept: int) -> None:
        """Ignore a barrier."""

    def finished(self) -> None:
        """Ignore the end."""
