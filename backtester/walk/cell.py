"""Decide one cell, or write one lesson: the work that is handed to workers.

A `Workbench` holds what a worker builds once (snapshot, compiled pipeline, cache) from a plain
`BenchSpec`; tasks and results are frozen values, so threads and processes do the same work.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from langchain_core.language_models import BaseChatModel
from langsmith import tracing_context

from backtester.book.shown import ShownBooks
from backtester.config import RunConfig, Tier
from backtester.network import network_blocked
from backtester.records import (
    CallRecord,
    CellKey,
    CellRecord,
    CellStatus,
    LessonRecord,
    OutcomeRecord,
    ReadRecord,
    ReturnRecord,
)
from backtester.replies.cache import ReplyCache
from backtester.replies.window import CellReplies
from backtester.settlement import broker
from backtester.settlement.broker import benchmark_for
from backtester.settlement.memory import MemoryBook
from backtester.snapshots.snapshot import Snapshot, open_snapshot
from backtester.snapshots.view import AsOfView, ViewCache
from backtester.spending.purse import CellCaps, Purse, RunCapReached
from backtester.texts.state_log import state_log_folder, write_state_log
from tradingagents_core.errors import ModelOutcome, NoMarketData, PipelineError, ReplayMiss
from tradingagents_core.graph import Models, Pipeline, ReflectionRequest
from tradingagents_core.holdings import holdings_text
from tradingagents_core.llm.capabilities import check_knobs
from tradingagents_core.llm.factory import create_model
from tradingagents_core.protocols import (
    CURRENT_SITE,
    CellRequest,
    Decision,
    Holdings,
    Lesson,
    Site,
)

HARNESS = "harness"
Placed = TypeVar("Placed", CallRecord, OutcomeRecord, ReadRecord)


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Name the parts that the leak audit may swap for leaky ones; the defaults are the product.

    Attributes:
        view: Class of the view that cells read.
        settle: Turns a decision into a return.
        due_at: Says when that return is known.
        book: Class of the memory.
        shown: Class of the simulated books that the portfolio manager is shown.
    """

    view: type[AsOfView] = AsOfView
    settle: Callable[..., ReturnRecord] = broker.settle
    due_at: Callable[..., datetime | None] = broker.due_at
    book: type[MemoryBook] = MemoryBook
    shown: type[ShownBooks] = ShownBooks


@dataclass(frozen=True, kw_only=True)
class BenchSpec:
    """Say in plain values what a worker has to build.

    Attributes:
        config: The run's configuration.
        snapshot_path: Folder of the snapshot.
        cache_dir: Folder of the reply cache.
        parts: Seams of the audit.
        states_dir: Where the full state of each cell is written, or None for nowhere.
    """

    config: RunConfig
    snapshot_path: Path
    cache_dir: Path
    parts: Parts = Parts()
    states_dir: Path | None = None


@dataclass(frozen=True, kw_only=True)
class CellTask:
    """Ask for one decision.

    Attributes:
        key: Cell.
        cutoff: Its cutoff.
        own_lessons: Lessons of the ticker, newest first.
        other_lessons: Lessons of others, newest first.
        lessons_hash: Hash over both.
        lessons_shown: Ids of both.
        scored: False for warm-up.
        outcomes: Recorded attempts without an answer, served in replay.
        book: Book that is shown, or None.
        book_hash: Hash over it, empty where there is none.
    """

    key: CellKey
    cutoff: datetime
    own_lessons: tuple[Lesson, ...]
    other_lessons: tuple[Lesson, ...]
    lessons_hash: str
    lessons_shown: tuple[str, ...]
    scored: bool
    outcomes: tuple[OutcomeRecord, ...] = ()
    book: Holdings | None = None
    book_hash: str = ""


@dataclass(frozen=True, kw_only=True)
class LessonTask:
    """Ask for the lesson of one settled decision.

    Attributes:
        cell: The decision.
        returned: What it earned.
        decision_hash: Hash of both.
        outcomes: Recorded attempts without an answer, served in replay.
    """

    cell: CellRecord
    returned: ReturnRecord
    decision_hash: str
    outcomes: tuple[OutcomeRecord, ...] = ()


class Workbench:
    """Hold what one worker needs to decide cells; safe to share between threads."""

    def __init__(
        self,
        spec: BenchSpec,
        *,
        snapshot: Snapshot,
        pipeline: Pipeline,
        cache: ReplyCache,
        purse: Purse | None = None,
    ) -> None:
        self.spec = spec
        self.purse = purse or Purse()
        self.config = spec.config
        self.snapshot = snapshot
        self.pipeline = pipeline
        self.cache = cache
        self.views = ViewCache(snapshot)

    @classmethod
    def build(
        cls,
        spec: BenchSpec,
        *,
        api_keys: Mapping[str, str] | None = None,
        snapshot: Snapshot | None = None,
        purse: Purse | None = None,
    ) -> Workbench:
        """Open the snapshot and cache and compile the pipeline.

        Raises:
            DataError: Snapshot or cache cannot be opened.
            SettingsError: A model cannot be made, for example for want of a key.
        """
        if snapshot is None:
            snapshot = open_snapshot(spec.snapshot_path, spec.config.data_dir)
        return cls(
            spec,
            snapshot=snapshot,
            pipeline=build_pipeline(spec.config, api_keys=api_keys),
            cache=ReplyCache.open(spec.cache_dir, read_only=spec.config.mode == "replay"),
            purse=purse,
        )

    def with_snapshot(self, snapshot: Snapshot) -> Workbench:
        """Return a bench on another snapshot that shares all else."""
        return Workbench(
            self.spec,
            snapshot=snapshot,
            pipeline=self.pipeline,
            cache=self.cache,
            purse=self.purse,
        )

    def decide(self, request: CellRequest, view: AsOfView, replies: CellReplies) -> Decision:
        """Run the pipeline for one cell; an attended bench adds who watches.

        Raises:
            PipelineError: The cell cannot be decided.
        """
        return self.pipeline.decide(request, view, replies=replies)

    def reflect(self, request: ReflectionRequest, replies: CellReplies) -> str:
        """Write one lesson.

        Raises:
            PipelineError: The lesson cannot be written.
        """
        return self.pipeline.reflect(request, replies=replies)

    def symbols_at(self, key: CellKey, cutoff: datetime) -> Callable[[str], str]:
        """Return the function that gives an instrument's symbol at a cell's cutoff."""
        view = self._view(key, cutoff, lambda _: None)
        return lambda instrument: view.identity(instrument).symbol

    def _view(
        self, key: CellKey, cutoff: datetime, on_read: Callable[[ReadRecord], None]
    ) -> AsOfView:
        return self.spec.parts.view(
            self.snapshot,
            cutoff=cutoff,
            session=key.session,
            decision_time=self.config.decision_time,
            on_read=on_read,
            estimated=self.config.estimated,
            cache=self.views,
        )

    def _replies(self, label: str, outcomes: Sequence[OutcomeRecord]) -> CellReplies:
        return CellReplies(
            self.cache,
            mode=self.config.mode,
            accept_truncated=self.config.accept_truncated,
            cell_label=label,
            outcomes=outcomes,
            purse=self.purse,
            caps=CellCaps.of(self.config),
        )


def build_pipeline(config: RunConfig, *, api_keys: Mapping[str, str] | None = None) -> Pipeline:
    """Compile the pipeline of a configuration with its two models.

    Args:
        config: What to build.
        api_keys: Keys by provider; one under ``quick`` or ``deep`` is that tier's alone.

    Raises:
        SettingsError: Unknown provider, or a key is missing where calls may be made.
    """
    keys = api_keys or {}
    check_knobs(config.model_spec("quick"), config.model_spec("deep"))

    def built(tier: Tier) -> BaseChatModel:
        spec = config.model_spec(tier)
        return create_model(
            spec,
            api_key=keys.get(tier) or keys.get(spec.provider),
            transport="refuse" if config.mode == "replay" else "open",
        )

    return Pipeline(config.pipeline(), Models(quick=built("quick"), deep=built("deep")))


def decide_cell(bench: Workbench, task: CellTask) -> CellRecord:
    """Decide one cell and write down how.

    Returns:
        A record of any status; only `LookaheadError` and faults of our own are raised.
    """
    started = time.perf_counter()
    reads: list[ReadRecord] = []
    replies = bench._replies(str(task.key), task.outcomes)
    view = bench._view(task.key, task.cutoff, reads.append)
    decision: Decision | None = None
    status: CellStatus = "done"
    error: PipelineError | NoMarketData | None = None
    symbol = task.key.ticker
    try:
        symbol = _look_first(view, task.key)
        with _shut_off(bench.config):
            decision = bench.decide(_request(bench, task), view, replies)
        status = "done" if decision.rating is not None else "unread"
        _keep_state(bench.spec.states_dir, task.key, decision)
    except NoMarketData as caught:
        status, error = "no_data", caught
    except PipelineError as caught:
        status = "skipped_budget" if isinstance(caught, RunCapReached) else "failed"
        error = caught
    return CellRecord(
        key=task.key,
        cutoff=task.cutoff,
        symbol=symbol,
        status=status,
        error_class=_error_class(error),
        error=str(error) if error else None,
        rating=decision.rating if decision else None,
        rating_source=decision.source if decision else "none",
        typed=decision.typed if decision else "null",
        decision=decision.markdown if decision else "",
        state_hashes=_state_hashes(decision),
        lessons_hash=task.lessons_hash,
        lessons_shown=task.lessons_shown,
        degraded=decision.degraded if decision else False,
        scored=task.scored,
        steps=decision.steps if decision else 0,
        calls=tuple(_in_order(replies.calls, bench.config)),
        outcomes=tuple(_in_order(replies.new_outcomes, bench.config)),
        reads=tuple(_in_order(reads, bench.config)),
        wall_s=time.perf_counter() - started,
        error_detail=error.diff if isinstance(error, ReplayMiss) else "",
        book_hash=task.book_hash,
    )


def write_lesson(bench: Workbench, task: LessonTask) -> LessonRecord:
    """Write the lesson of a settled decision; a failed model call is a status, not an error."""
    cell, returned = task.cell, task.returned
    record = lesson_row(cell, returned, task.decision_hash, scope=bench.config.memory)
    if record.lesson_status != "written" or returned.raw_total is None:
        return record
    replies = bench._replies(f"{cell.key} (lesson)", task.outcomes)
    request = ReflectionRequest(
        cell=str(cell.key),
        symbol=cell.symbol,
        session=cell.key.session,
        trial=cell.key.trial,
        generation=bench.config.generation,
        rating=cell.rating or "",
        decision=cell.decision,
        horizon=returned.horizon,
        raw_return=returned.raw_total,
        alpha=returned.alpha,
        benchmark=returned.benchmark or "none",
        resolved=returned.resolved_at.date() if returned.resolved_at else None,
    )
    try:
        with _shut_off(bench.config):
            lesson = bench.reflect(request, replies)
        record = replace(record, lesson=lesson)
    except PipelineError as error:
        record = replace(record, lesson_status="failed", error=str(error))
    return replace(record, calls=tuple(replies.calls), outcomes=tuple(replies.new_outcomes))


def lesson_row(
    cell: CellRecord, returned: ReturnRecord, decision_hash: str, *, scope: str
) -> LessonRecord:
    """Return the memory row of a decision before its lesson is written."""
    known = returned.status in ("resolved", "delisted") and returned.raw_total is not None
    return LessonRecord(
        key=cell.key,
        decision_hash=decision_hash,
        resolved_at=returned.resolved_at,
        rating=cell.rating,
        raw_return=returned.raw_total,
        alpha=returned.alpha,
        lesson_status=(
            "waiting"
            if not known
            else "off"
            if scope == "off"
            else "no_rating"
            if cell.rating is None
            else "written"
        ),
        lesson="",
        error=None,
        calls=(),
        outcomes=(),
    )


def decision_hash_of(cell: CellRecord, returned: ReturnRecord) -> str:
    """Hash what a lesson reflects on, so that a changed decision gets a new lesson."""
    alpha = returned.alpha.hex() if returned.alpha is not None else "-"
    total = returned.raw_total.hex() if returned.raw_total is not None else "-"
    text = "\x1f".join(
        (cell.symbol, cell.rating or "-", cell.decision, total, alpha, returned.benchmark or "-")
    )
    return hashlib.sha256(text.encode()).hexdigest()


def book_hash(book: Holdings | None) -> str:
    """Hash a book by the text that prompts show of it; no book has no hash."""
    if book is None:
        return ""
    return hashlib.sha256(holdings_text(book).encode()).hexdigest()


@contextmanager
def _shut_off(config: RunConfig) -> Iterator[None]:
    """Keep tracers silent whatever the environment asks for and, in a replay, the network shut."""
    with tracing_context(enabled=False):
        if config.mode != "replay":
            yield
            return
        with network_blocked():
            yield


def _look_first(view: AsOfView, key: CellKey) -> str:
    """Return the ticker's symbol at the cutoff; without a usable bar there is nothing to decide."""
    token = CURRENT_SITE.set(Site(cell=str(key), node=HARNESS, trial=key.trial))
    try:
        view.bars(key.ticker, last=1)
        return view.identity(key.ticker).symbol
    finally:
        CURRENT_SITE.reset(token)


def _in_order(records: Sequence[Placed], config: RunConfig) -> list[Placed]:
    """Put what parallel analysts did in the order of their nodes; arrival order is chance."""
    if not config.analysts_parallel:
        return list(records)
    return sorted(records, key=lambda record: record.node)


def _request(bench: Workbench, task: CellTask) -> CellRequest:
    choice = benchmark_for(task.key.ticker, bench.config.benchmark_of(task.key.ticker))
    return CellRequest(
        cell=str(task.key),
        ticker=task.key.ticker,
        session=task.key.session,
        trial=task.key.trial,
        generation=bench.config.generation,
        benchmark=choice.symbol or "none",
        own_lessons=task.own_lessons,
        other_lessons=task.other_lessons,
        book=task.book,
    )


def _keep_state(states_dir: Path | None, key: CellKey, decision: Decision) -> None:
    if states_dir is not None:
        folder = state_log_folder(states_dir, key.ticker)
        write_state_log(decision.state, folder, key.session, trial=key.trial)


def _error_class(error: PipelineError | NoMarketData | None) -> str | None:
    if error is None:
        return None
    if isinstance(error, ModelOutcome):
        return error.kind
    return error.error_class if isinstance(error, PipelineError) else "no_market_data"


def _state_hashes(decision: Decision | None) -> tuple[tuple[str, str], ...]:
    if decision is None:
        return ()
    return tuple(
        (name, hashlib.sha256(text.encode()).hexdigest())
        for name, text in sorted(decision.state.items())
    )
