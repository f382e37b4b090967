"""What a run tells of itself while it goes on; it never listens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from backtester.records import CellRecord, LessonRecord
from backtester.walk.plan import Barrier, Plan


@dataclass(frozen=True, kw_only=True)
class Standing:
    """Say what a run finds in its journal before it goes on.

    Attributes:
        kept: Cells that are there.
        failed: Those among them that are decided again.
        affected: Later cells that would follow, at worst, because their lessons may change.
        lessons: Lessons that could not be written and are tried again.
        calls: Calls that all of this takes at most.
        cost_usd: What they cost at most, or None where nobody knows.
        unknown: Why nobody knows, in words; empty where the cost is known.
    """

    kept: int
    failed: int
    affected: int
    lessons: int = 0
    calls: int = 0
    cost_usd: float | None = 0.0
    unknown: str = ""


class Progress(Protocol):
    """Take news of a run; must not influence it."""

    def started(self, plan: Plan, standing: Standing) -> None:
        """Take note that the walk begins, and of what the journal holds already."""

    def settled(self, lessons: Sequence[LessonRecord]) -> None:
        """Take the memory rows of decisions that were settled."""

    def committed(self, barrier: Barrier, new: Sequence[CellRecord], kept: int) -> None:
        """Take a barrier that is in the journal: ``new`` cells, and ``kept`` ones from before."""

    def finished(self) -> None:
        """Take note that the walk is over."""


class Silent:
    """Say nothing; the `Progress` of library calls."""

    def started(self, plan: Plan, standing: Standing) -> None:
        """Ignore the start."""

    def settled(self, lessons: Sequence[LessonRecord]) -> None:
        """Ignore lessons."""

    def committed(self, barrier: Barrier, new: Sequence[CellRecord], kept: int) -> None:
        """Ignore a barrier."""

    def finished(self) -> None:
        """Ignore the end."""
