"""Prove on a finished run that nothing from the future reached it.

The run is walked once in each changed world (`poison.WAYS`), in replay. At each cutoff the memory
is loaded as it was at the cutoff before, with every later lesson present as a canary; the snapshot
is swapped for one in which everything after this cutoff is rewritten or gone, or the wall clock and
time zone are others; returns are settled, lessons written and every prompt made again, with replies
from the record. A prompt that differs from the recorded one by a byte has another key, and that is
a finding, which names the table and the canary word where one was met. What no prompt shows is
audited from the journal: fills, lessons shown, reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import date, datetime
from pathlib import Path
from typing import Any, Final

from joblib import Parallel, delayed

from backtester.errors import CacheMiss, DataError
from backtester.leaks.clock import moved_clock
from backtester.leaks.memory import Past
from backtester.leaks.poison import MOVED, WAYS, Futures, Planted, Way, World
from backtester.leaks.report import (
    CLOCK,
    LESSONS,
    STAMPS,
    TRAINING,
    Finding,
    LeakReport,
    NoSteps,
    Steps,
    Tally,
    static_names,
    table_lines,
    way_names,
)
from backtester.leaks.requests import Asked, AskedCache, Change, change_of
from backtester.network import network_blocked
from backtester.packs.replays import Recording, load_recording
from backtester.records import CellKey, CellRecord, LessonRecord
from backtester.runs.folder import RunFolder
from backtester.runs.journal import Ledger, Record
from backtester.snapshots.snapshot import Snapshot
from backtester.walk.cell import BenchSpec, CellTask, Parts, Workbench, build_pipeline
from backtester.walk.crew import Crew
from backtester.walk.engine import Walk
from backtester.walk.plan import Barrier

__all__ = ["Finding", "LeakReport", "leakcheck"]

# So many findings of a part are looked into; the others have the same cause, as a rule.
_LOOKED_INTO: Final = 5
_PARTS_A_WORKER: Final = 4


@dataclass(frozen=True, kw_only=True)
class _Walked:
    way: Way
    tally: Tally
    steps: int


@dataclass(frozen=True, kw_only=True)
class _Step:
    """One instant at which the world is changed: a cutoff, or the settling of a last lesson."""

    cutoff: datetime
    today: date
    keys: tuple[CellKey, ...] = ()


class _Scratch:
    """Take records like a journal, on no disk."""

    def __init__(self) -> None:
        self.ledger = Ledger()

    def append(self, records: Sequence[Record]) -> None:
        for record in records:
            self.ledger.add(record)


def leakcheck(
    folder: RunFolder,
    data_dir: Path,
    *,
    parts: Parts | None = None,
    workers: int = 1,
    progress: Steps | None = None,
) -> LeakReport:
    """Do a finished run again in every changed world and compare every prompt and lesson.

    Args:
        folder: The run's folder.
        data_dir: Where its snapshot and the cache are.
        parts: The parts that the run was made with; default the product's own.
        workers: Processes at work; their number changes no finding.
        progress: Takes news.

    Raises:
        CacheMiss: Recorded replies are gone; nothing was checked.
        DataError: See `replays.load_recording`; or the run made no model call.
        LookaheadError: A guard of the view caught a later row on the way.
    """
    progress = progress or NoSteps()
    parts = parts or Parts()
    tally = Tally()
    with network_blocked():
        audit = _Audit(load_recording(folder, data_dir), parts)
        audit.require_recordings()
        progress.began(audit.recording.manifest.run_id, len(audit.steps), way_names())
        done: Iterator[_Walked]
        if workers == 1:
            done = (found for way in WAYS for found in audit.redone(way, 0, len(audit.steps)))
        else:
            done = _in_workers(folder, data_dir, parts, workers, len(audit.steps))
        for found in done:
            tally.add(found.tally)
            progress.advanced(found.steps, found.way.name, len(tally.findings))
    return _report(audit, tally)


def _report(audit: _Audit, tally: Tally) -> LeakReport:
    recording = audit.recording
    counts = _audit_journal(recording.ledger, tally)
    return LeakReport(
        subject=recording.manifest.run_id,
        ways=way_names(),
        cutoffs=len(recording.plan.barriers),
        prompts=tally.prompts,
        lessons=tally.lessons,
        fills=counts.fills,
        lessons_shown=counts.lessons_shown,
        reads=counts.reads,
        tables=table_lines(tally, audit.futures, extra=(LESSONS, CLOCK)),
        findings=tuple(tally.findings),
        not_covered=(
            static_names(recording.snapshot, recording.plan.config.tickers),
            TRAINING,
            STAMPS,
        ),
    )


# ------------------------------------------------------------------------------------ workers

# What this worker read last, by the words of what it was asked.
_KEPT: dict[str, _Audit] = {}


def _in_workers(
    folder: RunFolder, data_dir: Path, parts: Parts, workers: int, steps: int
) -> Iterator[_Walked]:
    """Walk parts of the cutoffs in processes; what comes back is in order."""
    size = max(1, -(-steps // (workers * _PARTS_A_WORKER)))
    cuts = [(first, min(first + size, steps)) for first in range(0, steps, size)]
    pool = Parallel(n_jobs=workers, backend="loky", return_as="generator")
    asked = [(way, first, stop) for way in WAYS for first, stop in cuts]
    found = pool(delayed(_walk_remotely)(folder.path, data_dir, parts, *part) for part in asked)
    for (way, first, stop), tally in zip(asked, found, strict=True):
        yield _Walked(way=way, tally=tally, steps=stop - first)


def _walk_remotely(
    folder: Path, data_dir: Path, parts: Parts, way: Way, first: int, stop: int
) -> Tally:
    words = repr((folder, data_dir, parts))
    tally = Tally()
    # A worker does not inherit its parent's wall.
    with network_blocked():
        if words not in _KEPT:
            _KEPT.clear()
            _KEPT[words] = _Audit(load_recording(RunFolder(folder), data_dir), parts)
        for found in _KEPT[words].redone(way, first, stop):
            tally.add(found.tally)
    return tally


# ------------------------------------------------------------------------------------ one walk


class _Audit:
    """Hold what every walk of one run shares.

    Args:
        recording: The run, read back.
        parts: The parts that it was made with.
    """

    def __init__(self, recording: Recording, parts: Parts) -> None:
        self.recording = recording
        self.parts = parts
        self.futures = Futures(recording.snapshot)
        self.cache = AskedCache.open(recording.cache_dir, read_only=True)
        config = recording.config.model_copy(update={"workers": 1})
        spec = BenchSpec(
            config=config,
            snapshot_path=recording.snapshot.path,
            cache_dir=recording.cache_dir,
            parts=parts,
        )
        self.bench = Workbench(
            spec,
            snapshot=recording.snapshot,
            pipeline=build_pipeline(config),
            cache=self.cache,
        )
        self.steps = _steps_of(recording)

    def require_recordings(self) -> None:
        """Refuse to audit without the replies: a prompt without a record would look like a leak."""
        ledger, run_id = self.recording.ledger, self.recording.manifest.run_id
        calls = [call for cell in ledger.cells.values() for call in cell.calls]
        calls += [call for lesson in ledger.lessons.values() for call in lesson.calls]
        if not calls:
            raise DataError(f"run {run_id} has no model call: nothing to check")
        answered = {call.key for call in calls if not call.finish_reason.startswith("outcome:")}
        missing = answered.difference(self.cache.keys())
        if missing:
            raise CacheMiss(
                f"{len(missing)} of {len(answered)} recorded replies of {run_id} are not in "
                f"{self.cache.folder}, so nothing was checked: bring the cache back, or record "
                "the run again"
            )

    def redone(self, way: Way, first: int, stop: int) -> Iterator[_Walked]:
        """Do some steps again in one changed world, and yield what each of them showed."""
        walk = _Walk(self, way)
        previous = self.steps[first - 1].cutoff if first else None
        for step in self.steps[first:stop]:
            with _clock_of(way):
                tally = walk.take(step, previous)
            yield _Walked(way=way, tally=tally, steps=1)
            previous = step.cutoff

    def day(self, world: Snapshot) -> Walk:
        """Return a walk of the run's plan on another snapshot, with nothing done yet."""
        return Walk(
            replace(self.recording.plan, snapshot=world),
            _Scratch(),
            Crew(self.bench.spec, api_keys={}, bench=self.bench.with_snapshot(world)),
            parts=self.parts,
            recorded=self.recording.ledger,
        )


def _clock_of(way: Way) -> AbstractContextManager[Any]:
    return moved_clock() if way == MOVED else nullcontext()


def _steps_of(recording: Recording) -> tuple[_Step, ...]:
    """Return the cutoffs, then the instants at which lessons were settled after the last one."""
    steps = [
        _Step(
            cutoff=barrier.cutoff,
            today=max(key.session for key in barrier.keys),
            keys=barrier.keys,
        )
        for barrier in recording.plan.barriers
    ]
    last = steps[-1].cutoff
    known = {lesson.resolved_at for lesson in recording.ledger.lessons.values()}
    closing = sorted(at for at in known if at is not None and at > last)
    return (*steps, *(_Step(cutoff=at, today=at.date()) for at in closing))


class _Walk:
    """Walk the steps of a run in one changed world, in order."""

    def __init__(self, audit: _Audit, way: Way) -> None:
        self._audit = audit
        self._way = way
        self._ledger = audit.recording.ledger
        self._past = Past(self._ledger)
        self._looked_into = 0

    def take(self, step: _Step, previous: datetime | None) -> Tally:
        """Settle, write lessons and decide as at one cutoff, and compare with the record."""
        audit, tally = self._audit, Tally()
        world = audit.futures.world(self._way, step.cutoff, step.today)
        day = audit.day(world.snapshot)
        lessons = self._past.begin(day, previous, step.cutoff)
        day.carry(self._decided_before(step))
        self._settle(day, step, tally)
        self._decide(day, step, tally)
        self._past.end()
        tally.tried(world.planted, tally.prompts)
        tally.tried({LESSONS: lessons}, tally.prompts)
        if self._way == MOVED:
            tally.tried({CLOCK: Planted(rows=1)}, tally.prompts)
        return tally

    def _settle(self, day: Walk, step: _Step, tally: Tally) -> None:
        self._audit.cache.missed.clear()
        lessons = day.settle(step.cutoff)
        # Lessons are written in turn, and each that failed ended at a request without a record.
        missed = iter(tuple(self._audit.cache.missed))
        for lesson in lessons:
            request = next(missed, None) if lesson.lesson_status == "failed" else None
            tally.lessons += 1
            tally.prompts += len(lesson.calls) + (request is not None)
            tally.findings += self._changed_lesson(lesson, request, step)

    def _decide(self, day: Walk, step: _Step, tally: Tally) -> None:
        for task in day.freeze(Barrier(cutoff=step.cutoff, keys=step.keys)):
            self._audit.cache.missed.clear()
            cell = day.decide([task])[0]
            missed = tuple(self._audit.cache.missed)
            tally.prompts += len(cell.calls) + len(missed)
            tally.findings += self._changed_cell(cell, missed, task, step)

    # -- lessons

    def _changed_lesson(
        self, lesson: LessonRecord, missed: Asked | None, step: _Step
    ) -> Iterator[Finding]:
        recorded = self._ledger.lessons.get(lesson.key)
        where = f"{lesson.key} (lesson)"
        if recorded is None or recorded.resolved_at != lesson.resolved_at:
            known = recorded.resolved_at if recorded else None
            yield Finding(
                check="settlement",
                where=where,
                detail=f"resolved at {lesson.resolved_at} in a world {self._way.words}, "
                f"at {known} before",
                table=self._table_of_return(lesson.key, step),
            )
            return
        change = self._change(recorded.calls, lesson.calls, [missed] if missed else [])
        if change is not None:
            yield Finding(
                check="lesson",
                where=f"{where}, {change.node}",
                detail=self._words(change),
                table=change.table or self._table_of_return(lesson.key, step),
                column=change.column,
            )
        elif _figures(recorded) != _figures(lesson):
            yield Finding(
                check="settlement",
                where=where,
                detail=f"its return changed in a world {self._way.words}",
                table=self._table_of_return(lesson.key, step),
            )

    def _table_of_return(self, key: CellKey, step: _Step) -> str:
        """Return the table that alone changes a return, or nothing."""
        if self._way == MOVED:
            return CLOCK
        recorded, rating = self._ledger.returns.get(key), self._ledger.cells[key].rating
        plan = self._audit.recording.plan
        for name, world in self._single_tables(step):
            settled = self._audit.parts.settle(
                key, rating, snapshot=world.snapshot, rule=plan.rule_of(key.ticker)
            )
            if settled != recorded:
                return name
        return ""

    # -- cells

    def _changed_cell(
        self, cell: CellRecord, missed: Sequence[Asked], task: CellTask, step: _Step
    ) -> Iterator[Finding]:
        recorded = self._ledger.cells[cell.key]
        change = self._change(recorded.calls, cell.calls, missed)
        if change is not None:
            yield Finding(
                check="prompt",
                where=f"{cell.key}, {change.node}",
                detail=self._words(change),
                table=change.table or self._table_of_prompt(task, step),
                column=change.column,
            )
        elif (cell.status, cell.rating) != (recorded.status, recorded.rating):
            yield Finding(
                check="prompt",
                where=str(cell.key),
                detail=f"{recorded.status} {recorded.rating} became {cell.status} {cell.rating} "
                f"in a world {self._way.words}: {cell.error}",
                table=self._table_of_prompt(task, step),
            )

    def _table_of_prompt(self, task: CellTask, step: _Step) -> str:
        """Return what alone changes a cell: its lessons, or one table; or nothing."""
        if self._way == MOVED:
            return CLOCK
        recorded = self._ledger.cells[task.key]

        def changes(snapshot: Snapshot) -> bool:
            day = self._audit.day(snapshot)
            day.carry(self._decided_before(step))
            cell = day.decide([day.with_book(task)])[0]
            return _outcome(cell) != _outcome(recorded)

        if self._looked_into < _LOOKED_INTO and changes(self._audit.recording.snapshot):
            self._looked_into += 1
            return LESSONS
        return next(
            (name for name, world in self._single_tables(step) if changes(world.snapshot)), ""
        )

    # -- both

    def _decided_before(self, step: _Step) -> Iterator[CellRecord]:
        return (cell for cell in self._ledger.cells.values() if cell.cutoff < step.cutoff)

    def _single_tables(self, step: _Step) -> Iterator[tuple[str, World]]:
        """Yield worlds in which one table alone is changed, for the first few findings."""
        if self._looked_into >= _LOOKED_INTO:
            return
        self._looked_into += 1
        futures = self._audit.futures
        for name in futures.tables:
            yield name, futures.world(self._way, step.cutoff, step.today, only=name)

    def _change(
        self, recorded: Sequence[Any], now: Sequence[Any], missed: Sequence[Asked]
    ) -> Change | None:
        return change_of(recorded, now, missed, self._audit.cache)

    def _words(self, change: Change) -> str:
        return f"its prompt changed in a world {self._way.words}: {change.words}"


def _figures(row: LessonRecord) -> tuple[float | None, float | None, str]:
    return row.raw_return, row.alpha, row.lesson


def _outcome(cell: CellRecord) -> tuple[object, ...]:
    return cell.status, cell.rating, tuple(call.key for call in cell.calls)


# ------------------------------------------------------------------------------------ the journal


@dataclass(kw_only=True)
class _Counts:
    fills: int = 0
    lessons_shown: int = 0
    reads: int = 0


def _audit_journal(ledger: Ledger, tally: Tally) -> _Counts:
    """Audit what no prompt shows, and count it."""
    counts = _Counts()
    tally.findings += _early_fills(ledger, counts)
    shown = {str(key): lesson for key, lesson in ledger.lessons.items()}
    for key, cell in sorted(ledger.cells.items()):
        tally.findings += _late_lessons(key, cell, shown, counts)
        for read in cell.reads:
            if read.max_known_at is None:
                continue
            counts.reads += 1
            if read.max_known_at > cell.cutoff:
                tally.findings.append(
                    Finding(
                        check="read",
                        where=f"{key}, {read.node}",
                        detail=f"{read.table} row known at {read.max_known_at} was read",
                        table=read.table,
                    )
                )
    return counts


def _early_fills(ledger: Ledger, counts: _Counts) -> Iterator[Finding]:
    for key, returned in sorted(ledger.returns.items()):
        cell = ledger.cells[key]
        # Without a price nothing was bought: the data end first, or a bar is missing.
        if returned.entry_at is None or returned.entry_price is None:
            continue
        counts.fills += 1
        if returned.entry_at <= cell.cutoff and "same_bar" not in returned.flags:
            yield Finding(
                check="fill",
                where=str(key),
                detail=f"filled at {returned.entry_at}, not after its cutoff {cell.cutoff}, "
                f"and is not flagged same_bar (entry {returned.entry_rule})",
                table="bars",
            )


def _late_lessons(
    key: CellKey, cell: CellRecord, shown: dict[str, LessonRecord], counts: _Counts
) -> Iterator[Finding]:
    for name in cell.lessons_shown:
        counts.lessons_shown += 1
        known = shown[name].resolved_at
        if known is None or known > cell.cutoff:
            yield Finding(
                check="lesson_shown",
                where=str(key),
                detail=f"was shown the lesson of {name}, which is known at {known} only",
                table=LESSONS,
            )
