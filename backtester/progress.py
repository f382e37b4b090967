"""What a run tells of itself while it goes on; it never listens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from backtester.plan import Barrier, Plan
from backtester.records import CellRecord, LessonRecord


class Progress(Protocol):
    """Take news of a run; must not influence it."""

    def started(self, plan: Plan, kept: int) -> None:
        """Take note that the walk begins; ``kept`` cells are in the journal already."""

    def settled(self, lessons: Sequence[LessonRecord]) -> None:
        """Take the memory rows of decisions that were settled."""

    def committed(self, barrier: Barrier, new: Sequence[CellRecord], kept: int) -> None:
        """Take a barrier that is in the journal: ``new`` cells, and ``kept`` ones from before."""

    def finished(self) -> None:
        """Take note that the walk is over."""


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
