"""One decision with a memory of its own: what `analyze` and `propagate` sit down at.

A desk takes the steps of one decision day of a run, with the run's own walk: settle what has
resolved by the cutoff and write the lessons, fix the lessons that are shown, decide, commit. Only
its journal is another: it is a memory with a name, and outlives the question.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any, Final

import orjson
from filelock import FileLock

from backtester import broker, checkpoints
from backtester.attended import AttendedBench, Unwatched, Watcher
from backtester.cell import (
    BenchSpec,
    CellTask,
    LessonTask,
    build_pipeline,
    decision_hash_of,
    waiting_row,
    write_lesson,
)
from backtester.checkpoints import open_checkpoint
from backtester.config import RunConfig, load_config
from backtester.crew import Crew
from backtester.decision_log import log_entries, write_decision_log
from backtester.engine import Walk
from backtester.errors import CacheMiss, DataError, ProviderError, RunStopped, UsageError
from backtester.journal import Journal, Ledger, Record, read_ledger
from backtester.memory import MemoryEntry
from backtester.plan import Plan, cache_folder, lay_out, resolve_ticker
from backtester.pricing import market_of
from backtester.records import CellRecord, LessonRecord, ReturnRecord
from backtester.reply_cache import ReplyCache
from backtester.runs import RunFolder
from backtester.snapshot import Snapshot
from backtester.state_log import write_state_log
from tradingagents_core.protocols import Decision

OFF: Final = "off"
DEFAULT_MEMORY: Final = "default"
LOG_NAME: Final = "decisions.md"
_OPEN: Final = ("waiting", "failed")
_UNTOLD: Final = (
    "entry_price",
    "exit_price",
    "split_factor",
    "dividends",
    "raw_price",
    "benchmark_return",
    "alpha",
    "alpha_cc",
    "directional_alpha",
)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """Hold one decision and where it lies.

    Attributes:
        record: How it was made, as a journal keeps it.
        decision: What was decided, with the state at the end.
        settled: Memory rows of earlier decisions that were settled before it.
        folder: Folder of the analysis; its name tells symbol, session and identity.
        resumed_after: The last node that an earlier, stopped process got through, or None.
    """

    record: CellRecord
    decision: Decision
    settled: tuple[LessonRecord, ...]
    folder: Path
    resumed_after: str | None


class Desk:
    """Decide one ticker on one date, and remember it.

    Args:
        snapshot: Frozen market data.
        memory: Name of the memory; decisions under one name see each other's lessons. ``off``
            shows no lesson and keeps nothing.
        data_dir: Folder of the reply cache.
        reports_dir: Folder of analyses and memories.
        api_key: Key of the model provider; never stored.
        callbacks: LangChain callback handlers that hear every model call.

    Raises:
        UsageError: A memory name that could not be a file's.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        *,
        memory: str = DEFAULT_MEMORY,
        data_dir: Path = Path("data"),
        reports_dir: Path = Path("reports"),
        api_key: str | None = None,
        callbacks: Sequence[Any] = (),
    ) -> None:
        self.snapshot = snapshot
        self.memory = _checked(memory)
        self._data_dir = data_dir
        self.reports_dir = reports_dir
        self._api_key = api_key
        self._callbacks = callbacks

    @property
    def memory_path(self) -> Path | None:
        """Journal of the memory, or None where it is off."""
        if self.memory == OFF:
            return None
        return self.reports_dir / "memory" / self.memory / "journal.jsonl"

    def recall(self) -> Ledger:
        """Return all that the memory holds."""
        path = self.memory_path
        return read_ledger(path) if path is not None and path.exists() else Ledger()

    def decide(
        self, settings: Mapping[str, Any], ticker: str, day: date, *, watcher: Watcher | None = None
    ) -> Analysis:
        """Decide one ticker on one date.

        Args:
            settings: Fields of `RunConfig`; ticker, dates and grid are set here.
            ticker: Symbol or instrument id.
            day: Session, or a date that moves to the session before.
            watcher: Takes news.

        Returns:
            The analysis; the rating of its decision is None where none could be read.

        Raises:
            DataError: The snapshot does not hold the ticker or the date.
            UsageError: Folders cannot be written, or another process works on this analysis.
            ProviderError: The model cannot be reached; the same call goes on from there later.
            CacheMiss: A strict replay has no recording.
            RunStopped: The cell failed for another reason, which the message tells.
            LookaheadError: Something from the future was about to be seen.
        """
        watcher = watcher or Unwatched()
        plan, bench = self._prepare(settings, ticker, day, watcher)
        (barrier,) = plan.barriers
        walk = self._walk(plan, bench)
        settled = walk.settle(barrier.cutoff)
        watcher.settled(settled)
        (task,) = walk.freeze(barrier)
        folder = RunFolder(self.reports_dir / "analyses" / _case_name(plan, task))
        folder.create()
        with folder.lock():
            record, resumed = self._decided(walk, task, bench, folder)
            decision = _decision_of(bench)
            self._keep(walk, record)
            write_state_log(decision.state, folder.path, record.key.session)
            checkpoints.clear(folder)
        return Analysis(
            record=record,
            decision=decision,
            settled=tuple(settled),
            folder=folder.path,
            resumed_after=resumed,
        )

    def reflect(
        self, settings: Mapping[str, Any], record: CellRecord, *, earned: float
    ) -> LessonRecord:
        """Write the lesson of a decision from a return that the caller knows.

        It is shown from the instant on at which the simulated clock knows the return, as any
        other lesson is, and it stands: the memory does not settle the decision again.

        Args:
            settings: As for `decide`.
            record: The decision.
            earned: Return with dividends, a fraction.

        Raises:
            UsageError: The memory is off, or the decision has no rating.
            ProviderError: The lesson could not be written.
        """
        if self.memory == OFF:
            raise UsageError("the memory is off, so no lesson can be kept: name one")
        if record.rating is None:
            raise UsageError(f"{record.key} has no rating, and so no lesson")
        plan, bench = self._prepare(settings, record.key.ticker, record.key.session, Unwatched())
        returned = _told(record, plan, earned=earned)
        decided = decision_hash_of(record, returned)
        lesson = write_lesson(
            bench, LessonTask(cell=record, returned=returned, decision_hash=decided)
        )
        if lesson.lesson_status == "failed":
            raise ProviderError(f"the lesson of {record.key} could not be written: {lesson.error}")
        self._page().append([returned, lesson])
        self._export(plan.config)
        return lesson

    # -- parts

    def _prepare(
        self, settings: Mapping[str, Any], ticker: str, day: date, watcher: Watcher
    ) -> tuple[Plan, AttendedBench]:
        config = self._config(settings, ticker, day)
        pipeline = build_pipeline(config, api_key=self._api_key)
        plan = lay_out(config, self.snapshot, fingerprint=pipeline.fingerprint(), scored=False)
        spec = BenchSpec(
            config=plan.config,
            snapshot_path=self.snapshot.path,
            cache_dir=cache_folder(self._data_dir),
        )
        bench = AttendedBench(
            spec,
            snapshot=self.snapshot,
            pipeline=pipeline,
            cache=ReplyCache.open(spec.cache_dir, read_only=config.mode == "replay"),
            watcher=watcher,
            callbacks=self._callbacks,
            names={key.ticker: cell.symbol for key, cell in self.recall().cells.items()},
        )
        return plan, bench

    def _config(self, settings: Mapping[str, Any], ticker: str, day: date) -> RunConfig:
        """Return the configuration of a run of one cell."""
        fields = {
            **settings,
            "tickers": (ticker,),
            "start": day,
            "end": day,
            "grid": "daily",
            "trials": 1,
            "warmup": 0,
            "workers": 1,
            "snapshot": self.snapshot.name,
            "data_dir": self._data_dir,
            "reports_dir": self.reports_dir,
        }
        if self.memory == OFF:
            fields["memory"] = OFF
        config = load_config(flags=fields)
        if not self.snapshot.start <= day <= self.snapshot.end:
            raise DataError(
                f"{day} is outside snapshot {self.snapshot.name}, which covers "
                f"{self.snapshot.start} to {self.snapshot.end}: choose a date within it"
            )
        instrument = resolve_ticker(self.snapshot, ticker, config)
        session = market_of(self.snapshot, instrument).calendar.last_on_or_before(day)
        return config.model_copy(
            update={"tickers": (instrument,), "start": session, "end": session}
        )

    def _walk(self, plan: Plan, bench: AttendedBench) -> Walk:
        """Return a walk that knows the memory's past, but for the cell that is asked for."""
        page = self._page() if plan.config.memory != OFF else _Loose()
        (barrier,) = plan.barriers
        for key in barrier.keys:
            page.ledger.cells.pop(key, None)
        walk = Walk(plan, page, Crew(bench.spec, api_key=self._api_key, bench=bench))
        for _, cell in sorted(page.ledger.cells.items()):
            self._remind(walk, cell)
        return walk

    def _remind(self, walk: Walk, cell: CellRecord) -> None:
        """Tell a walk of one past decision: its lesson, or that its return is still to come."""
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
        elif self._holds(cell):
            walk.expect(cell)

    def _holds(self, cell: CellRecord) -> bool:
        """Say whether this snapshot can settle a decision; another one may have made it."""
        inside = self.snapshot.start <= cell.key.session <= self.snapshot.end
        return inside and cell.key.ticker in self.snapshot.instruments()

    def _decided(
        self, walk: Walk, task: CellTask, bench: AttendedBench, folder: RunFolder
    ) -> tuple[CellRecord, str | None]:
        if not walk.plan.config.checkpoint_enabled:
            (record,) = walk.decide([task])
            return _require_decided(record), None
        with open_checkpoint(folder) as checkpoint:
            last = checkpoint.before[-1].node if checkpoint.before else None
            bench.resume_from(checkpoint, folder.run_id)
            (record,) = walk.decide([task])
            return checkpoint.whole(_require_decided(record)), last

    def _keep(self, walk: Walk, record: CellRecord) -> None:
        """Commit a decision; a new one gets a memory row that waits for its return."""
        before = self.recall().cells.get(record.key)
        walk.commit([record])
        if before is None or (before.rating, before.decision) != (record.rating, record.decision):
            walk.journal.append([waiting_row(record)])
        self._export(walk.plan.config)

    def _export(self, config: RunConfig) -> None:
        """Write the memory as Markdown for people; it is read by no part of this program."""
        path = self.memory_path
        if path is not None and config.memory != OFF:
            with _held(path):
                kept = self.recall()
                entries = log_entries(
                    kept.cells.values(), kept.returns.values(), kept.lessons.values()
                )
                cap = config.memory_log_max_entries
                write_decision_log(entries, path.with_name(LOG_NAME), cap=cap)

    def _page(self) -> _Page:
        path = self.memory_path
        if path is None:
            raise UsageError("the memory is off")
        return _Page(path, self.recall())


class _Page:
    """Read a memory once, and write to it in whole appends that no other process disturbs."""

    def __init__(self, path: Path, ledger: Ledger) -> None:
        self.ledger = ledger
        self._path = path

    def append(self, records: Sequence[Record]) -> None:
        """Append to the journal under its lock, then take the records into the ledger."""
        if not records:
            return
        with _held(self._path), closing(Journal.open(self._path)) as journal:
            journal.append(records)
        for record in records:
            self.ledger.add(record)


class _Loose:
    """Keep nothing beyond the question."""

    def __init__(self) -> None:
        self.ledger = Ledger()

    def append(self, records: Sequence[Record]) -> None:
        """Take records into the ledger alone."""
        for record in records:
            self.ledger.add(record)


@contextmanager
def _held(path: Path) -> Iterator[None]:
    """Hold a memory for one write; whoever comes second waits, for it takes milliseconds."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path.parent / ".lock")
        lock.acquire()
    except OSError as error:
        raise UsageError(
            f"memory {path.parent} cannot be written ({error.strerror}): "
            "name another folder with --reports-dir"
        ) from error
    try:
        yield
    finally:
        lock.release()


def _checked(memory: str) -> str:
    if not _NAME.fullmatch(memory):
        raise UsageError(
            f"{memory!r} is no name of a memory: write letters, digits, - and _ (at most 40), "
            "or 'off' for none"
        )
    return memory


def _case_name(plan: Plan, task: CellTask) -> str:
    """Return the readable name of an analysis; its hash covers all that can change the answer."""
    identity = [plan.identity, task.lessons_hash]
    digest = hashlib.sha256(orjson.dumps(identity, option=orjson.OPT_SORT_KEYS)).hexdigest()
    ticker = re.sub(r"[^a-z0-9]+", "-", task.key.ticker.lower()).strip("-")
    return f"{ticker}-{task.key.session}-{digest[:12]}"


def _require_decided(record: CellRecord) -> CellRecord:
    """Raise for a cell that was not decided, by what its caller can do about it."""
    if record.status in ("done", "unread"):
        return record
    if record.status == "no_data":
        raise DataError(f"{record.key}: {record.error}")
    if record.error_class == "replay_miss":
        raise CacheMiss(record.error or str(record.key))
    if record.error_class == "transport":
        raise ProviderError(
            f"{record.key} failed to reach the model: {record.error}; "
            "the same command goes on from there"
        )
    raise RunStopped(
        f"{record.key} failed ({record.error_class}: {record.error}); "
        "the same command goes on from there"
    )


def _decision_of(bench: AttendedBench) -> Decision:
    if bench.decision is None:
        raise AssertionError("a decided cell has a decision")
    return bench.decision


def _told(record: CellRecord, plan: Plan, *, earned: float) -> ReturnRecord:
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
