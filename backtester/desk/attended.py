"""A decision that somebody watches: the workbench of one cell, with ears.

The same `decide_cell` and the same pipeline do the work; what is added here only listens (a
watcher, callbacks), keeps the state at the end, and hands the graph a place for checkpoints.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from itertools import groupby
from typing import Any, Final, Protocol

from backtester.desk.checkpoints import Checkpoint, Visit
from backtester.errors import (
    BudgetReached,
    CacheMiss,
    DataError,
    ProviderError,
    RunStopped,
)
from backtester.records import (
    CallRecord,
    CellKey,
    CellRecord,
    LessonRecord,
    OutcomeRecord,
    ReadRecord,
)
from backtester.replies.cache import ReplyCache
from backtester.replies.window import CellReplies
from backtester.snapshots.snapshot import Snapshot
from backtester.snapshots.view import AsOfView
from backtester.spending.purse import CELL_BUDGET, Purse
from backtester.walk.cell import HARNESS, BenchSpec, Workbench
from tradingagents_core.graph import Pipeline, ReflectionRequest
from tradingagents_core.protocols import CellRequest, Decision
from tradingagents_core.settings import PipelineSettings
from tradingagents_core.topology import AnalystRow, analysts_for

_RAISE_IT: Final = "all that was paid for is kept: raise the cap and run the same command to go on"


@dataclass(frozen=True, kw_only=True)
class Opening:
    """Tell a watcher what begins.

    Attributes:
        symbol: What the instrument was called at the cutoff.
        session: Decision session.
        settings: What shapes the graph.
        analysts: Those that take part, in order.
        done: Nodes that an earlier, stopped process has been through.
        lessons: Number of lessons shown.
        calls: Returns the model calls made so far, of this process.
    """

    symbol: str
    session: date
    settings: PipelineSettings
    analysts: tuple[AnalystRow, ...]
    done: tuple[str, ...]
    lessons: int
    calls: Callable[[], Sequence[CallRecord]]


class Watcher(Protocol):
    """Take news of one analysis as it happens; must not influence it."""

    def settled(self, lessons: Sequence[LessonRecord]) -> None:
        """Take the memory rows of earlier decisions that were settled before this one."""

    def opened(self, opening: Opening) -> None:
        """Take note that the graph begins, or begins again after a failed try."""

    def node_started(self, node: str) -> None:
        """Take the name of a node that begins; parallel branches call from threads of their own."""

    def node_finished(self, cell: str, node: str, update: Mapping[str, Any]) -> None:
        """Take the state update of a node that has just ended."""


class Unwatched:
    """See nothing; the `Watcher` of library calls."""

    def settled(self, lessons: Sequence[LessonRecord]) -> None:
        """Ignore lessons."""

    def opened(self, opening: Opening) -> None:
        """Ignore the beginning."""

    def node_started(self, node: str) -> None:
        """Ignore a node."""

    def node_finished(self, cell: str, node: str, update: Mapping[str, Any]) -> None:
        """Ignore a node."""


class AttendedBench(Workbench):
    """Decide one cell in front of a watcher, and keep its decision.

    Args:
        spec: See `Workbench`; so ``snapshot``, ``pipeline`` and ``cache``.
        snapshot: Snapshot.
        pipeline: Compiled pipeline.
        cache: Reply cache.
        watcher: Takes news.
        callbacks: LangChain callback handlers that hear every model call.
        names: Symbols of remembered instruments, for those that this snapshot does not hold.
        purse: What may be spent.

    Attributes:
        decision: What the last try decided, with the state at its end; None before.
    """

    def __init__(
        self,
        spec: BenchSpec,
        *,
        snapshot: Snapshot,
        pipeline: Pipeline,
        cache: ReplyCache,
        watcher: Watcher,
        callbacks: Sequence[Any] = (),
        names: Mapping[str, str] | None = None,
        purse: Purse | None = None,
    ) -> None:
        super().__init__(spec, snapshot=snapshot, pipeline=pipeline, cache=cache, purse=purse)
        self.decision: Decision | None = None
        self._watcher = watcher
        self._callbacks = tuple(callbacks)
        self._names = names or {}
        self._checkpoint: Checkpoint | None = None
        self._thread = ""
        self._reads: list[ReadRecord] = []

    def resume_from(self, checkpoint: Checkpoint, thread: str) -> None:
        """Write checkpoints from now on, and go on from what is there."""
        self._checkpoint = checkpoint
        self._thread = thread

    def decide(self, request: CellRequest, view: AsOfView, replies: CellReplies) -> Decision:
        """Run the pipeline for the cell.

        Raises:
            PipelineError: The cell cannot be decided.
        """
        self._reads.clear()
        if self._checkpoint is not None:
            self._checkpoint.begin()
        self._watcher.opened(self._opening(request, view.cutoff, replies))
        checkpoint = self._checkpoint
        self.decision = self.pipeline.decide(
            request,
            view,
            replies=replies,
            sink=_Ears(self, replies),
            on_node=self._watcher.node_started,
            callbacks=self._callbacks,
            checkpointer=checkpoint.saver if checkpoint is not None else None,
            thread_id=self._thread or None,
        )
        return self.decision

    def reflect(self, request: ReflectionRequest, replies: CellReplies) -> str:
        """Write the lesson of an earlier decision; whoever hears calls hears this one.

        Raises:
            PipelineError: The lesson cannot be written.
        """
        return self.pipeline.reflect(request, replies=replies, callbacks=self._callbacks)

    def symbols_at(self, key: CellKey, cutoff: datetime) -> Callable[[str], str]:
        """Return the function that gives an instrument's symbol at a cell's cutoff."""
        known = frozenset(self.snapshot.instruments())
        here = super().symbols_at(key, cutoff)

        def symbol_of(instrument: str) -> str:
            return here(instrument) if instrument in known else self._names[instrument]

        return symbol_of

    def node_finished(
        self, cell: str, node: str, update: Mapping[str, Any], replies: CellReplies
    ) -> None:
        """Write the trail of a node, then tell the watcher."""
        if self._checkpoint is not None:
            self._checkpoint.note(self._visit(node, replies))
        self._watcher.node_finished(cell, node, update)

    def _opening(self, request: CellRequest, cutoff: datetime, replies: CellReplies) -> Opening:
        key = CellKey(session=request.session, ticker=request.ticker, trial=request.trial)
        # A view of its own, for what is read to tell a watcher is no read of the cell.
        identity = super()._view(key, cutoff, lambda _: None).identity(request.ticker)
        before = self._checkpoint.before if self._checkpoint is not None else ()
        return Opening(
            symbol=identity.symbol,
            session=request.session,
            settings=self.pipeline.settings,
            analysts=analysts_for(identity, self.pipeline.analysts),
            # A node that was cut short just before its checkpoint has ended more than once.
            done=tuple(node for node, _ in groupby(visit.node for visit in before)),
            lessons=len(request.own_lessons) + len(request.other_lessons),
            calls=lambda: replies.calls,
        )

    def _visit(self, node: str, replies: CellReplies) -> Visit:
        """Return all that was done in a node's name so far; the last visit of a name has it all."""
        name = self._site_name(node)

        def ours(items: Sequence[Any]) -> tuple[Any, ...]:
            return tuple(item for item in items if item.node == name)

        calls: tuple[CallRecord, ...] = ours(replies.calls)
        outcomes: tuple[OutcomeRecord, ...] = ours(replies.new_outcomes)
        return Visit(node=node, calls=calls, outcomes=outcomes, reads=ours(tuple(self._reads)))

    def _site_name(self, node: str) -> str:
        tools = {row.tools_node: row.node for row in self.pipeline.analysts}
        return tools.get(node, node)

    def _view(
        self, key: CellKey, cutoff: datetime, on_read: Callable[[ReadRecord], None]
    ) -> AsOfView:
        def heard(read: ReadRecord) -> None:
            if read.node != HARNESS:
                self._reads.append(read)
            on_read(read)

        return super()._view(key, cutoff, heard)


class _Ears:
    """Hear the nodes of one try of the cell."""

    def __init__(self, bench: AttendedBench, replies: CellReplies) -> None:
        self._bench = bench
        self._replies = replies

    def node_finished(self, cell: str, node: str, update: Mapping[str, Any]) -> None:
        """Pass a node on, with the replies of its try."""
        self._bench.node_finished(cell, node, update, self._replies)


def require_budget(bench: Workbench) -> None:
    """Raise where a cap has stopped the work of a bench.

    Raises:
        BudgetReached: With the cap and what was spent.
    """
    if bench.purse.reached is not None:
        raise BudgetReached(f"{bench.purse.reached}; {_RAISE_IT}")


def require_decided(record: CellRecord) -> CellRecord:
    """Return a decided cell, and raise for another by what its caller can do about it.

    Raises:
        BudgetReached: A cap came first.
        DataError: There is no usable bar.
        CacheMiss: A strict replay has no recording.
        ProviderError: The model was not reached.
        RunStopped: It failed for another reason.
    """
    if record.status in ("done", "unread"):
        return record
    if record.status == "skipped_budget" or record.error_class == CELL_BUDGET:
        raise BudgetReached(f"{record.key}: {record.error}; {_RAISE_IT}")
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
