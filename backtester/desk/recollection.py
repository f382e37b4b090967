"""What a memory with a name tells the walk of one decision, and what a caller tells it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from backtester.errors import DataError
from backtester.records import RATINGS, CellKey, CellRecord, ReturnRecord
from backtester.runs.journal import Ledger, Record
from backtester.runs.named_memory import NamedMemory
from backtester.settlement import broker
from backtester.settlement.memory import MemoryEntry
from backtester.settlement.pricing import market_of
from backtester.snapshots.snapshot import Snapshot
from backtester.spellings import shown
from backtester.walk.crew import Crew
from backtester.walk.engine import Walk
from backtester.walk.plan import Plan

_OPEN: Final = ("waiting", "failed")
_UNTOLD: Final = (
    *("entry_price", "exit_price", "split_factor", "dividends", "raw_price"),
    *("benchmark_return", "alpha", "alpha_cc", "directional_alpha"),
)


@dataclass(frozen=True, kw_only=True)
class LeftOpen:
    """Name an entry of a memory that this snapshot cannot settle, though it should.

    Attributes:
        key: The decision.
        reason: What is wrong with it.
    """

    key: CellKey
    reason: str

    def __str__(self) -> str:
        """Return one line."""
        return f"the decision {self.key} stays open: {self.reason}"


class Page:
    """Read a memory once, and write to it."""

    def __init__(self, memory: NamedMemory) -> None:
        memory.require_room()
        self.ledger = memory.recall()
        self._memory = memory

    def append(self, records: Sequence[Record]) -> None:
        """Write to the memory, then take the records into the ledger."""
        self._memory.append(records)
        for record in records:
            self.ledger.add(record)


class LoosePage:
    """Keep nothing beyond the question."""

    def __init__(self) -> None:
        self.ledger = Ledger()

    def append(self, records: Sequence[Record]) -> None:
        """Take records into the ledger alone."""
        for record in records:
            self.ledger.add(record)


def reminded(plan: Plan, page: Page | LoosePage, crew: Crew) -> tuple[Walk, tuple[LeftOpen, ...]]:
    """Return a walk that knows a memory's past, but for the cell that is asked for.

    Args:
        plan: The one cell.
        page: The memory.
        crew: Who decides.

    Returns:
        The walk, and the entries that could not be settled and hinder nothing else.
    """
    (barrier,) = plan.barriers
    for key in barrier.keys:
        page.ledger.cells.pop(key, None)
    walk = Walk(plan, page, crew)
    left_open = []
    for key, cell in sorted(page.ledger.cells.items()):
        # One entry that cannot be, such as one on a holiday, must not take all others along.
        try:
            _remind(walk, cell)
        except DataError as error:
            left_open.append(LeftOpen(key=key, reason=str(error)))
    return walk, tuple(left_open)


def _remind(walk: Walk, cell: CellRecord) -> None:
    """Tell a walk of one past decision: its lesson, or that its return is still to come.

    Raises:
        DataError: It is about no session, has a word for a rating that is none, or the like.
    """
    ledger = walk.journal.ledger
    lesson, returned = ledger.lessons.get(cell.key), ledger.returns.get(cell.key)
    if lesson is not None and returned is not None and lesson.lesson_status not in _OPEN:
        walk.book.add(
            MemoryEntry(
                lesson=lesson,
                decision=cell.decision,
                horizon=returned.horizon,
                benchmark=returned.benchmark or "none",
            )
        )
    elif _holds(walk.plan.snapshot, cell):
        if cell.rating not in (None, *RATINGS):
            raise DataError(f"{shown(cell.rating)} is no rating")
        walk.expect(cell)


def _holds(snapshot: Snapshot, cell: CellRecord) -> bool:
    """Say whether this snapshot can settle a decision; another one may have made it."""
    inside = snapshot.start <= cell.key.session <= snapshot.end
    return inside and cell.key.ticker in snapshot.instruments()


def told_return(record: CellRecord, plan: Plan, *, earned: float) -> ReturnRecord:
    """Return what a caller says that a decision earned, known when the clock would know it."""
    measured = broker.settle(
        record.key, record.rating, snapshot=plan.snapshot, rule=plan.rule_of(record.key.ticker)
    )
    known = measured.resolved_at
    if known is None:
        calendar = market_of(plan.snapshot, record.key.ticker).calendar
        known = calendar.close_utc(calendar.shift(record.key.session, measured.horizon))
    unknown: dict[str, Any] = dict.fromkeys(_UNTOLD)
    return replace(
        measured,
        **unknown,
        status="resolved",
        reason="told by the caller",
        raw_total=earned,
        alpha_reason="the return was told by the caller",
        resolved_at=known,
    )
