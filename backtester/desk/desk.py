"""One decision with a memory of its own: what `analyze` and `propagate` sit down at.

A desk takes the steps of one decision day of a run, with the run's own walk: settle what has
resolved by the cutoff and write the lessons, fix the lessons that are shown, decide, commit. Only
its journal is another: it is a memory with a name, and outlives the question.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any

import orjson

from backtester.config import RunConfig
from backtester.desk import checkpoints
from backtester.desk.attended import (
    AttendedBench,
    Unwatched,
    Watcher,
    require_budget,
    require_decided,
)
from backtester.desk.checkpoints import open_checkpoint
from backtester.desk.question import config_of
from backtester.desk.recollection import LeftOpen, LoosePage, Page, reminded, told_return
from backtester.errors import ProviderError, UsageError
from backtester.records import CellRecord, LessonRecord
from backtester.replies.cache import ReplyCache
from backtester.runs.folder import RunFolder
from backtester.runs.journal import Ledger
from backtester.runs.named_memory import DEFAULT_MEMORY, OFF, NamedMemory, memory_in_force
from backtester.settlement.memory import waiting_row
from backtester.settlement.pricing import market_of
from backtester.snapshots.snapshot import Snapshot
from backtester.spending.ledger import SPEND_NAME
from backtester.spending.purse import Purse
from backtester.spending.tariff import require_prices, tariff_of
from backtester.texts.state_log import write_state_log
from backtester.walk.cell import (
    BenchSpec,
    CellTask,
    LessonTask,
    build_pipeline,
    decision_hash_of,
    write_lesson,
)
from backtester.walk.crew import Crew
from backtester.walk.engine import Walk
from backtester.walk.plan import Plan, cache_folder, cutoff_of, lay_out
from tradingagents_core.protocols import Decision


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """Hold one decision and where it lies.

    Attributes:
        record: How it was made, as a journal keeps it.
        decision: What was decided, with the state at the end.
        settled: Memory rows of earlier decisions that were settled before it.
        folder: Folder of the analysis; its name tells symbol, session and identity.
        resumed_after: The last node that an earlier, stopped process got through, or None.
        left_open: Entries of the memory that could not be settled and hinder nothing else.
    """

    record: CellRecord
    decision: Decision
    settled: tuple[LessonRecord, ...]
    folder: Path
    resumed_after: str | None
    left_open: tuple[LeftOpen, ...] = ()


class Desk:
    """Decide one ticker on one date, and remember it.

    Args:
        snapshot: Frozen market data.
        memory: Name of the memory; decisions under one name see each other's lessons. ``off``
            shows no lesson and keeps nothing. It wins over what settings say; where they are to
            be asked, `memory_in_force` gives the name.
        data_dir: Folder of the reply cache.
        reports_dir: Folder of analyses and memories.
        api_keys: Key by provider, where one needs it; never stored.
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
        api_keys: Mapping[str, str] | None = None,
        callbacks: Sequence[Any] = (),
    ) -> None:
        self.snapshot = snapshot
        self.memory = memory_in_force(memory, memory)
        self._memory = NamedMemory(self.memory, reports_dir) if self.memory != OFF else None
        self._data_dir = data_dir
        self.reports_dir = reports_dir
        self._api_keys = api_keys or {}
        self._callbacks = callbacks

    @property
    def memory_path(self) -> Path | None:
        """Journal of the memory, or None where it is off."""
        return self._memory.path if self._memory is not None else None

    def recall(self) -> Ledger:
        """Return all that the memory holds.

        Raises:
            DataError: Its journal is damaged, cannot be read, or has lost what it held.
        """
        return self._memory.recall() if self._memory is not None else Ledger()

    def kind_of(self, settings: Mapping[str, Any], ticker: str, day: date) -> str:
        """Return what kind of asset a ticker is, such as ``stock`` or ``crypto``.

        Raises:
            DataError: The snapshot does not hold the ticker or the date.
            UsageError: A setting does not fit.
        """
        (instrument,) = self._config(settings, ticker, day).tickers
        return market_of(self.snapshot, instrument).identity.asset_type

    def require_past(
        self, settings: Mapping[str, Any], ticker: str, day: date, *, instant: datetime
    ) -> None:
        """Refuse an instant before the cutoff of its date's decision, which would know the future.

        Args:
            settings: As for `decide`.
            ticker: Likewise.
            day: Likewise.
            instant: With a zone; the date was taken from it.

        Raises:
            UsageError: With what to write instead.
            DataError: The snapshot does not hold the ticker or the date.
        """
        config = self._config(settings, ticker, day)
        calendar = market_of(self.snapshot, config.tickers[0]).calendar
        cutoff = cutoff_of(calendar, config.start, config)
        if instant < cutoff:
            raise UsageError(
                f"{instant.isoformat()} is before {cutoff:%Y-%m-%d %H:%M}Z, up to which a decision "
                f"on {day} knows: ask for an earlier date"
            )

    def decide(
        self, settings: Mapping[str, Any], ticker: str, day: date, *, watcher: Watcher | None = None
    ) -> Analysis:
        """Decide one ticker on one date.

        Args:
            settings: Fields of `RunConfig`; what is asked and the desk's own folders and memory
                win over them.
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
            BudgetReached: A cap was reached; the same call with a higher one goes on.
            RunStopped: The cell failed for another reason, which the message tells.
            LookaheadError: Something from the future was about to be seen.
        """
        watcher = watcher or Unwatched()
        plan, bench = self._prepare(settings, ticker, day, watcher)
        (barrier,) = plan.barriers
        crew = Crew(bench.spec, api_keys=self._api_keys, bench=bench)
        walk, left_open = reminded(plan, self._page(), crew)
        settled = walk.settle(barrier.cutoff)
        require_budget(bench)
        watcher.settled(settled)
        (task,) = walk.freeze(barrier)
        name = _case_name(plan, task, memory=self.memory)
        folder = RunFolder(self.reports_dir / "analyses" / name, what="analysis")
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
            left_open=left_open,
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
        memory = self._named()
        if record.rating is None:
            raise UsageError(f"{record.key} has no rating, and so no lesson")
        plan, bench = self._prepare(settings, record.key.ticker, record.key.session, Unwatched())
        returned = told_return(record, plan, earned=earned)
        decided = decision_hash_of(record, returned)
        lesson = write_lesson(
            bench, LessonTask(cell=record, returned=returned, decision_hash=decided)
        )
        require_budget(bench)
        if lesson.lesson_status == "failed":
            raise ProviderError(f"the lesson of {record.key} could not be written: {lesson.error}")
        memory.append([returned, lesson])
        memory.write_log(cap=plan.config.memory_log_max_entries)
        return lesson

    # -- parts

    def _prepare(
        self, settings: Mapping[str, Any], ticker: str, day: date, watcher: Watcher
    ) -> tuple[Plan, AttendedBench]:
        config = self._config(settings, ticker, day)
        tariff = tariff_of(config)
        require_prices(config, tariff)
        pipeline = build_pipeline(config, api_keys=self._api_keys)
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
            purse=Purse.open(
                self.reports_dir / "analyses" / SPEND_NAME,
                run_id=plan.run_id,
                config=config,
                tariff=tariff,
                go_on=False,
            ),
        )
        return plan, bench

    def _page(self) -> Page | LoosePage:
        return Page(self._memory) if self._memory is not None else LoosePage()

    def _config(self, settings: Mapping[str, Any], ticker: str, day: date) -> RunConfig:
        return config_of(
            settings,
            ticker,
            day,
            snapshot=self.snapshot,
            memory=self.memory,
            data_dir=self._data_dir,
            reports_dir=self.reports_dir,
        )

    def _decided(
        self, walk: Walk, task: CellTask, bench: AttendedBench, folder: RunFolder
    ) -> tuple[CellRecord, str | None]:
        if not walk.plan.config.checkpoint_enabled:
            (record,) = walk.decide([task])
            return require_decided(record), None
        with open_checkpoint(folder) as checkpoint:
            last = checkpoint.before[-1].node if checkpoint.before else None
            bench.resume_from(checkpoint, folder.run_id)
            (record,) = walk.decide([task])
            return checkpoint.whole(require_decided(record)), last

    def _keep(self, walk: Walk, record: CellRecord) -> None:
        """Commit a decision; a new one gets a memory row that waits for its return."""
        before = self.recall().cells.get(record.key)
        walk.commit([record])
        if before is None or (before.rating, before.decision) != (record.rating, record.decision):
            walk.journal.append([waiting_row(record)])
        if self._memory is not None:
            self._memory.write_log(cap=walk.plan.config.memory_log_max_entries)

    def _named(self) -> NamedMemory:
        if self._memory is None:
            raise UsageError("the memory is off, so no lesson can be kept: name one")
        return self._memory


def _case_name(plan: Plan, task: CellTask, *, memory: str) -> str:
    """Return the readable name of an analysis; its hash covers all that can change the answer.

    The memory is in it too: what one question leaves half done is not for another memory.
    """
    identity = [plan.identity, task.lessons_hash, memory]
    digest = hashlib.sha256(orjson.dumps(identity, option=orjson.OPT_SORT_KEYS)).hexdigest()
    ticker = re.sub(r"[^a-z0-9]+", "-", task.key.ticker.lower()).strip("-")
    return f"{ticker}-{task.key.session}-{digest[:12]}"


def _decision_of(bench: AttendedBench) -> Decision:
    if bench.decision is None:
        raise AssertionError("a decided cell has a decision")
    return bench.decision
