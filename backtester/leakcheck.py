"""Prove on a finished run that nothing from the future reached it.

The run is walked once for each way of rewriting the future (`WAYS`), in replay. At each cutoff
the memory is loaded as it was at the cutoff before, with every later row present as a canary; the
snapshot is swapped for one in which everything after this cutoff is rewritten or gone; returns are
settled, lessons written and every prompt made again, with replies from the record. A prompt that
differs from the recorded one by a byte has another key, and that is a finding. What no prompt
shows is audited from the journal: fills, lessons shown, reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Final

from backtester.cell import BenchSpec, Parts, Workbench
from backtester.crew import Crew
from backtester.engine import Walk
from backtester.errors import CacheMiss, DataError
from backtester.journal import Ledger, Record
from backtester.memory import MemoryEntry
from backtester.network import network_blocked
from backtester.plan import Barrier, cache_folder
from backtester.poison import WAYS, Way, rewrite_future
from backtester.records import CallRecord, CellKey, CellRecord, LessonRecord
from backtester.replays import Recording, load_recording
from backtester.runs import RunFolder
from backtester.snapshot import Snapshot

CANARY: Final = "CANARY-OF-A-LATER-LESSON"

NOT_COVERED: Final = (
    "static identity: fields without a validity range are today's words (the view marks them)",
    "training data: what a language model learned about the period before the run",
)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Name one thing that the future changed, or one row that breaks a rule.

    Attributes:
        check: ``prompt, lesson, settlement, fill, lesson_shown`` or ``read``.
        where: Cell, and node where there is one.
        detail: What changed or what the row says.
    """

    check: str
    where: str
    detail: str


@dataclass(frozen=True, kw_only=True)
class LeakReport:
    """Say what was tried and what was found.

    Attributes:
        run_id: Run.
        ways: Ways in which the future was rewritten.
        cutoffs: Cutoffs at which it was.
        prompts: Prompts made again and compared.
        lessons: Lessons written again and compared.
        fills: Fills audited against their cutoff.
        lessons_shown: Lessons shown, audited likewise.
        reads: Reads audited likewise.
        findings: In the order in which they were met; empty for a clean run.
    """

    run_id: str
    ways: tuple[str, ...]
    cutoffs: int
    prompts: int
    lessons: int
    fills: int
    lessons_shown: int
    reads: int
    findings: tuple[Finding, ...]

    @property
    def clean(self) -> bool:
        """Whether nothing was found."""
        return not self.findings


@dataclass
class _Tally:
    prompts: int = 0
    lessons: int = 0
    fills: int = 0
    lessons_shown: int = 0
    reads: int = 0
    findings: list[Finding] = field(default_factory=list)


class _Scratch:
    """Take records like a journal, on no disk."""

    def __init__(self) -> None:
        self.ledger = Ledger()

    def append(self, records: Sequence[Record]) -> None:
        for record in records:
            self.ledger.add(record)


def leakcheck(folder: RunFolder, data_dir: Path, *, parts: Parts | None = None) -> LeakReport:
    """Rewrite the future of a finished run in every way and compare every prompt.

    Args:
        folder: The run's folder.
        data_dir: Where its snapshot and the cache are.
        parts: The parts that the run was made with; default the product's own.

    Raises:
        CacheMiss: Recorded replies are gone; nothing was checked.
        DataError: See `replays.load_recording`; or the run made no model call.
        LookaheadError: A guard of the view caught a later row on the way.
    """
    recording = load_recording(folder, data_dir)
    parts = parts or Parts()
    tally = _Tally()
    with ExitStack() as stack:
        stack.enter_context(network_blocked())
        spec = BenchSpec(
            config=recording.config.model_copy(update={"workers": 1}),
            snapshot_path=recording.snapshot.path,
            cache_dir=cache_folder(data_dir),
            parts=parts,
        )
        bench = Workbench.build(spec, snapshot=recording.snapshot)
        _require_recordings(recording, bench)
        for way in WAYS:
            _walk_poisoned(recording, bench, way, parts, tally)
    _audit(recording.ledger, tally)
    return LeakReport(
        run_id=recording.manifest.run_id,
        ways=tuple(way.name for way in WAYS),
        cutoffs=len(recording.plan.barriers),
        prompts=tally.prompts,
        lessons=tally.lessons,
        fills=tally.fills,
        lessons_shown=tally.lessons_shown,
        reads=tally.reads,
        findings=tuple(tally.findings),
    )


def _require_recordings(recording: Recording, bench: Workbench) -> None:
    """Refuse to audit without the replies: a prompt without a record would look like a leak."""
    ledger = recording.ledger
    calls = [call for cell in ledger.cells.values() for call in cell.calls]
    calls += [call for lesson in ledger.lessons.values() for call in lesson.calls]
    if not calls:
        raise DataError(f"run {recording.manifest.run_id} has no model call: nothing to check")
    answered = {call.key for call in calls if not call.finish_reason.startswith("outcome:")}
    missing = answered.difference(bench.cache.keys())
    if missing:
        raise CacheMiss(
            f"{len(missing)} of {len(answered)} recorded replies of {recording.manifest.run_id} "
            f"are not in {bench.cache.folder}, so nothing was checked: bring the cache back, or "
            "record the run again"
        )


def _walk_poisoned(
    recording: Recording, bench: Workbench, way: Way, parts: Parts, tally: _Tally
) -> None:
    previous: datetime | None = None
    for barrier in recording.plan.barriers:
        world = rewrite_future(recording.snapshot, barrier.cutoff, way)
        day = _day(recording, bench, world, parts)
        _remember(day, recording, previous, barrier)
        for lesson in day.settle(barrier.cutoff):
            tally.lessons += 1
            tally.prompts += len(lesson.calls)
            tally.findings += _changed_lesson(recording.ledger, lesson, way)
        for cell in day.decide(day.freeze(barrier)):
            tally.prompts += len(cell.calls)
            tally.findings += _changed_cell(recording.ledger, cell, way)
        previous = barrier.cutoff


def _day(recording: Recording, bench: Workbench, world: Snapshot, parts: Parts) -> Walk:
    poisoned = bench.with_snapshot(world)
    return Walk(
        replace(recording.plan, snapshot=world),
        _Scratch(),
        Crew(bench.spec, api_keys={}, bench=poisoned),
        parts=parts,
        recorded=recording.ledger,
    )


def _remember(day: Walk, recording: Recording, previous: datetime | None, barrier: Barrier) -> None:
    """Load the memory as of the cutoff before; later rows are there too, as canaries."""
    ledger = recording.ledger
    for key, cell in sorted(ledger.cells.items()):
        lesson, returned = ledger.lessons.get(key), ledger.returns.get(key)
        if lesson is None or returned is None:
            continue
        known = lesson.resolved_at
        if known is not None and previous is not None and known <= previous:
            day.book.add(_entry(cell, lesson, returned.horizon, returned.benchmark))
            continue
        if cell.cutoff < barrier.cutoff:
            day.expect(cell)
        settled_now = key in day.waiting and day.waiting[key][0] <= barrier.cutoff
        if (known is None or known > barrier.cutoff) and not settled_now:
            later = replace(lesson, lesson_status="written", lesson=CANARY, resolved_at=known)
            canary = _entry(
                replace(cell, decision=CANARY), later, returned.horizon, returned.benchmark
            )
            if known is not None:
                day.book.add(canary)


def _entry(
    cell: CellRecord, lesson: LessonRecord, horizon: int, benchmark: str | None
) -> MemoryEntry:
    return MemoryEntry(
        lesson=lesson, decision=cell.decision, horizon=horizon, benchmark=benchmark or "none"
    )


def _changed_lesson(ledger: Ledger, lesson: LessonRecord, way: Way) -> Iterator[Finding]:
    recorded = ledger.lessons.get(lesson.key)
    where = f"{lesson.key} (lesson)"
    if recorded is None or recorded.resolved_at != lesson.resolved_at:
        known = recorded.resolved_at if recorded else None
        yield Finding(
            check="settlement",
            where=where,
            detail=f"resolved at {lesson.resolved_at} in a world {way.words}, at {known} before",
        )
        return
    change = _first_change(recorded.calls, lesson.calls, lesson.error, way)
    if change is not None:
        yield Finding(check="lesson", where=f"{where}, Reflector", detail=change)
    elif _figures(recorded) != _figures(lesson):
        yield Finding(
            check="settlement", where=where, detail=f"its return changed in a world {way.words}"
        )


def _figures(row: LessonRecord) -> tuple[float | None, float | None, str]:
    return row.raw_return, row.alpha, row.lesson


def _changed_cell(ledger: Ledger, cell: CellRecord, way: Way) -> Iterator[Finding]:
    recorded = ledger.cells[cell.key]
    change = _first_change(recorded.calls, cell.calls, cell.error, way)
    if change is not None:
        node = _first_node(recorded.calls, cell.calls)
        yield Finding(check="prompt", where=f"{cell.key}, {node}", detail=change)
    elif (cell.status, cell.rating) != (recorded.status, recorded.rating):
        yield Finding(
            check="prompt",
            where=str(cell.key),
            detail=f"{recorded.status} {recorded.rating} became {cell.status} {cell.rating} "
            f"in a world {way.words}: {cell.error}",
        )


def _sites(calls: Sequence[CallRecord]) -> list[tuple[str, int, int, str]]:
    return [(call.node, call.index, call.attempt, call.key) for call in calls]


def _first_change(
    recorded: Sequence[CallRecord], now: Sequence[CallRecord], error: str | None, way: Way
) -> str | None:
    if _sites(recorded) == _sites(now):
        return None
    return f"its prompt changed in a world {way.words}" + (f": {error}" if error else "")


def _first_node(recorded: Sequence[CallRecord], now: Sequence[CallRecord]) -> str:
    for before, after in zip(_sites(recorded), _sites(now), strict=False):
        if before != after:
            return f"{before[0]} call {before[1]}"
    longer = max(recorded, now, key=len)
    first = longer[min(len(recorded), len(now))]
    return f"{first.node} call {first.index}"


def _audit(ledger: Ledger, tally: _Tally) -> None:
    for key, returned in sorted(ledger.returns.items()):
        cell = ledger.cells[key]
        if returned.entry_at is None:
            continue
        tally.fills += 1
        if returned.entry_at <= cell.cutoff and "same_bar" not in returned.flags:
            tally.findings.append(
                Finding(
                    check="fill",
                    where=str(key),
                    detail=f"filled at {returned.entry_at}, not after its cutoff {cell.cutoff}, "
                    f"and is not flagged same_bar (entry {returned.entry_rule})",
                )
            )
    shown = {str(key): lesson for key, lesson in ledger.lessons.items()}
    for key, cell in sorted(ledger.cells.items()):
        tally.findings += _late_lessons(key, cell, shown, tally)
        for read in cell.reads:
            if read.max_known_at is None:
                continue
            tally.reads += 1
            if read.max_known_at > cell.cutoff:
                tally.findings.append(
                    Finding(
                        check="read",
                        where=f"{key}, {read.node}",
                        detail=f"{read.table} row known at {read.max_known_at} was read",
                    )
                )


def _late_lessons(
    key: CellKey, cell: CellRecord, shown: dict[str, LessonRecord], tally: _Tally
) -> Iterator[Finding]:
    for name in cell.lessons_shown:
        tally.lessons_shown += 1
        known = shown[name].resolved_at
        if known is None or known > cell.cutoff:
            yield Finding(
                check="lesson_shown",
                where=str(key),
                detail=f"was shown the lesson of {name}, which is known at {known} only",
            )
