"""The walk-forward loop: settle, freeze lessons, decide, commit; one cutoff after the other.

Start and recovery are one path. A run always walks from its first cutoff; what the journal holds
already and what would come out the same is taken from it, everything else is done now. So a
killed run, a failed cell and a changed lesson need no rule of their own: a recorded cell counts
if it was decided under the very lessons that it would be shown again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from backtester.book.shown import ShownBooks
from backtester.config import RunConfig
from backtester.errors import BudgetReached, ProviderError, RunStopped
from backtester.records import CellKey, CellRecord, LessonRecord, ReturnRecord
from backtester.runs.journal import Ledger, Log
from backtester.settlement.memory import MemoryEntry, VisibleLessons, lessons_due
from backtester.spending.purse import CELL_BUDGET, CellCaps
from backtester.walk.cell import (
    CellTask,
    LessonTask,
    Parts,
    book_hash,
    decision_hash_of,
    lesson_row,
)
from backtester.walk.crew import Crew
from backtester.walk.plan import Barrier, Plan
from backtester.walk.progress import Progress
from tradingagents_core.protocols import Holdings

SETTLED: Final = ("done", "unread", "no_data")
"""States of a cell that a second run does not try again."""
_END: Final = datetime.max.replace(tzinfo=UTC)


class Walk:
    """Walk a plan's barriers, with a journal that remembers and a memory that waits.

    Args:
        plan: What to do.
        journal: Where it is written down.
        crew: Who decides.
        parts: Seams of the audit.
        recorded: In replay, the run that is replayed: its outcomes are served, and its decisions
            and lessons stand in for cells that miss, so that a miss fails alone.
    """

    def __init__(
        self,
        plan: Plan,
        journal: Log,
        crew: Crew,
        *,
        parts: Parts | None = None,
        recorded: Ledger | None = None,
    ) -> None:
        self.plan = plan
        self.journal = journal
        self.crew = crew
        self.parts = parts or Parts()
        self.recorded = recorded
        config = plan.config
        self.book = self.parts.book(
            scope=config.memory,
            trials_share_memory=config.trials_share_memory,
            own=config.own_lessons,
            other=config.other_lessons,
        )
        self.shown: ShownBooks | None = None
        if config.show_book:
            sessions = {key.session for barrier in plan.barriers for key in barrier.keys}
            self.shown = self.parts.shown(config, plan.snapshot, sessions)
        self.waiting: dict[CellKey, tuple[datetime, CellRecord]] = {}
        self.unsettled: dict[CellKey, CellRecord] = {}
        self._tries: list[CellRecord] = []

    def settle(self, until: datetime) -> list[LessonRecord]:
        """Settle every decision whose return is known by ``until`` and write its lesson."""
        due = lessons_due(
            {key: at for key, (at, _) in self.waiting.items()}, after=None, until=until
        )
        cells = [self.waiting.pop(key)[1] for key in due]
        pairs = [(cell, self._return_of(cell)) for cell in cells]
        lessons = self._lessons_of(pairs)
        self._commit_settled([returned for _, returned in pairs], lessons)
        for (cell, returned), lesson in zip(pairs, lessons, strict=True):
            self.book.add(self._entry(cell, returned, lesson))
        return lessons

    def freeze(self, barrier: Barrier) -> list[CellTask]:
        """Fix the lessons that each cell of a barrier is shown."""
        return [self._task(key, barrier.cutoff) for key in barrier.keys]

    def decide(self, tasks: Sequence[CellTask]) -> list[CellRecord]:
        """Decide what the journal does not hold under the same lessons; retry what fails."""
        kept = {task.key: cell for task in tasks if (cell := self._kept(task)) is not None}
        todo = [task for task in tasks if task.key not in kept]
        fresh = {cell.key: cell for cell in self.crew.decide(todo)}
        for _ in range(self._retries):
            again = [task for task in todo if _worth_another_try(fresh[task.key])]
            if not again or self.crew.bench.purse.reached:
                break
            # What a failed try asked was paid for, so it is written down before the next one.
            self._tries += [fresh[task.key] for task in again]
            fresh.update({cell.key: cell for cell in self.crew.decide(again)})
        return [kept.get(task.key) or fresh[task.key] for task in tasks]

    def commit(self, cells: Sequence[CellRecord]) -> list[CellRecord]:
        """Append new cells in order as one synced write, and return them."""
        new = [cell for cell in cells if self.journal.ledger.cells.get(cell.key) is not cell]
        self.journal.append([*self._tries, *new])
        self._tries.clear()
        known = [self._stand_in(cell) for cell in cells]
        for cell in known:
            self.expect(cell)
        self.carry(known)
        return new

    def close(self) -> list[LessonRecord]:
        """Settle all that the snapshot can settle, and write down what stays open and why."""
        lessons = self.settle(_END)
        cells = [cell for _, cell in sorted(self.unsettled.items())]
        pairs = [(cell, self._return_of(cell)) for cell in cells]
        rows = [self._lesson_or_kept(cell, returned) for cell, returned in pairs]
        self._commit_settled([returned for _, returned in pairs], rows)
        return lessons

    def expect(self, cell: CellRecord) -> None:
        """Take a decided cell whose return is still to come."""
        if cell.status not in ("done", "unread"):
            return
        at = self.parts.due_at(cell.key, self.plan.snapshot, self.plan.rule_of(cell.key.ticker))
        if at is None:
            self.unsettled[cell.key] = cell
        else:
            self.waiting[cell.key] = (at, cell)

    def with_book(self, task: CellTask) -> CellTask:
        """Return a task with the book that this walk shows its cell."""
        held = self._held(task.key, task.cutoff, self.crew.bench.symbols_at(task.key, task.cutoff))
        return replace(task, book=held, book_hash=book_hash(held))

    def carry(self, cells: Iterable[CellRecord]) -> None:
        """Carry the book that is shown, where one is, over some decisions."""
        if self.shown is not None:
            self.shown.take(cells)

    # -- one line each

    @property
    def _retries(self) -> int:
        return 0 if self.plan.config.mode == "replay" else self.plan.config.cell_retries

    def _task(self, key: CellKey, cutoff: datetime) -> CellTask:
        visible: VisibleLessons = self.book.visible(key, cutoff)
        shown = self.book.to_lessons(visible, self.crew.bench.symbols_at(key, cutoff))
        recorded = self.recorded.cells.get(key) if self.recorded else None
        task = CellTask(
            key=key,
            cutoff=cutoff,
            own_lessons=shown.own,
            other_lessons=shown.other,
            lessons_hash=self.book.lessons_hash(visible),
            lessons_shown=visible.ids,
            scored=key not in self.plan.warmup,
            outcomes=recorded.outcomes if recorded else (),
        )
        return self.with_book(task)

    def _held(
        self, key: CellKey, cutoff: datetime, symbol_of: Callable[[str], str]
    ) -> Holdings | None:
        """Return the book that a cell is shown: the user's, the simulated one, or none."""
        if self.shown is not None:
            return self.shown.at(key, cutoff, symbol_of)
        own = self.plan.config.portfolio
        return own.holdings() if own is not None else None

    def _kept(self, task: CellTask) -> CellRecord | None:
        cell = self.journal.ledger.cells.get(task.key)
        if cell is None or not is_settled(cell, self.plan.config):
            return None
        shown = (cell.lessons_hash, cell.book_hash)
        return cell if shown == (task.lessons_hash, task.book_hash) else None

    def _stand_in(self, cell: CellRecord) -> CellRecord:
        """Return the recorded decision for a cell that misses in a replay."""
        if self.recorded and cell.error_class == "replay_miss":
            return self.recorded.cells.get(cell.key, cell)
        return cell

    def _return_of(self, cell: CellRecord) -> ReturnRecord:
        return self.parts.settle(
            cell.key,
            cell.rating,
            snapshot=self.plan.snapshot,
            rule=self.plan.rule_of(cell.key.ticker),
        )

    def _lessons_of(self, pairs: Sequence[tuple[CellRecord, ReturnRecord]]) -> list[LessonRecord]:
        tasks = {}
        rows = {}
        for cell, returned in pairs:
            row = self._lesson_or_kept(cell, returned)
            rows[cell.key] = row
            if row.lesson_status == "written" and not row.lesson:
                old = self.recorded.lessons.get(cell.key) if self.recorded else None
                tasks[cell.key] = LessonTask(
                    cell=cell,
                    returned=returned,
                    decision_hash=row.decision_hash,
                    outcomes=old.outcomes if old else (),
                )
        rows.update({row.key: row for row in self.crew.reflect(list(tasks.values()))})
        return [rows[cell.key] for cell, _ in pairs]

    def _lesson_or_kept(self, cell: CellRecord, returned: ReturnRecord) -> LessonRecord:
        decided = decision_hash_of(cell, returned)
        row = lesson_row(cell, returned, decided, scope=self.plan.config.memory)
        old = self.journal.ledger.lessons.get(cell.key)
        same = old is not None and old.decision_hash == decided and old.lesson_status != "failed"
        return old if old and same and old.lesson_status == row.lesson_status else row

    def _commit_settled(
        self, returns: Sequence[ReturnRecord], lessons: Sequence[LessonRecord]
    ) -> None:
        ledger = self.journal.ledger
        new: list[ReturnRecord | LessonRecord] = []
        new += [item for item in returns if ledger.returns.get(item.key) != item]
        new += [item for item in lessons if ledger.lessons.get(item.key) != item]
        self.journal.append(new)

    def _entry(self, cell: CellRecord, returned: ReturnRecord, lesson: LessonRecord) -> MemoryEntry:
        if self.recorded and lesson.lesson_status == "failed":
            lesson = self.recorded.lessons.get(cell.key, lesson)
        return MemoryEntry(
            lesson=lesson,
            decision=cell.decision,
            horizon=returned.horizon,
            benchmark=returned.benchmark or "none",
        )


def walk_through(
    walk: Walk, *, progress: Progress, after_commit: Callable[[], None] = lambda: None
) -> None:
    """Take every barrier of a walk, then close it.

    Raises:
        ProviderError: Every cell of a barrier failed in transport: the provider is not there.
        RunStopped: A cell failed, and the configuration says to stop then.
        BudgetReached: A cap of the run was reached; what was paid for is written down.
    """
    for barrier in walk.plan.barriers:
        walk.crew.bench.purse.look_at_the_clock()
        _stop_if_spent(walk)
        lessons = walk.settle(barrier.cutoff)
        _stop_if_spent(walk)
        tasks = walk.freeze(barrier)
        cells = walk.decide(tasks)
        known = {key for key in barrier.keys if key in walk.journal.ledger.cells}
        new = walk.commit(cells)
        progress.settled(lessons)
        progress.committed(barrier, new, len(cells) - len(new))
        _stop_if_spent(walk)
        if walk.plan.config.mode != "replay":
            _stop_if_hopeless(new, known)
        _stop_if_told(walk.plan.config, cells)
        after_commit()
    progress.settled(walk.close())
    _stop_if_spent(walk)
    progress.finished()


def is_settled(cell: CellRecord, config: RunConfig) -> bool:
    """Say whether a second run takes a cell as it is, given the same lessons.

    One that failed over its own cap would cost as much again and fail again, so it is tried again
    only when a cap of cells was changed.
    """
    if cell.error_class == CELL_BUDGET:
        under = [row.text for row in cell.outcomes if row.kind == CELL_BUDGET]
        return CellCaps.of(config).words() in under
    return cell.status in SETTLED


def _worth_another_try(cell: CellRecord) -> bool:
    return cell.status == "failed" and cell.error_class != CELL_BUDGET


def _stop_if_spent(walk: Walk) -> None:
    reached = walk.crew.bench.purse.reached
    if reached is None:
        return
    cells = walk.journal.ledger.cells.values()
    decided = sum(cell.status in SETTLED for cell in cells)
    raise BudgetReached(
        f"{reached}; {decided} of {walk.plan.cells} cells are decided and all that was paid for "
        "is kept: raise the cap and run the same command to go on"
    )


def _stop_if_told(config: RunConfig, cells: Sequence[CellRecord]) -> None:
    failed = [cell for cell in cells if cell.status == "failed"]
    if failed and config.on_failure == "stop" and config.mode != "replay":
        first = failed[0]
        raise RunStopped(
            f"{first.key} failed ({first.error_class}: {first.error}) and on_failure is 'stop'; "
            "the same command goes on from here"
        )


def _stop_if_hopeless(new: Sequence[CellRecord], known: Collection[CellKey]) -> None:
    """Stop where the provider is not there or takes no request: no cell of a barrier was heard.

    A cell that was tried by an earlier command is no sign of that: it may fail for good.
    """
    if new and all(_unheard(cell) and cell.key not in known for cell in new):
        raise ProviderError(
            f"no cell of {new[0].key.session} got an answer from the model: {new[0].error}; "
            "the run is stopped and goes on with the same command"
        )


def _unheard(cell: CellRecord) -> bool:
    answered = [call for call in cell.calls if not call.finish_reason.startswith("outcome:")]
    if cell.error_class == "transport":
        # What the cache answered is no sign of life.
        return all(call.hit for call in answered)
    return cell.error_class == "rejected" and not answered
