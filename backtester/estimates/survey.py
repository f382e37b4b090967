"""What recordings tell of a run before it starts: it is walked in replay as far as they go.

A call without a recording is answered with a word that nobody says, so that the walk goes on: what
does not read that answer is still looked up, and counted exactly. Analysts do not read each other,
everybody else reads what was said before.

From the instant on at which an undecided cell would teach others, nobody knows what the roles that
are shown lessons will be asked. They and whoever reads them are unknown then, and no others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from backtester.estimates.demand import Demand, NodeCalls, graph_of
from backtester.records import CallRecord, CellKey, CellRecord, LessonRecord, OutcomeRecord
from backtester.replies.cache import ReplyCache
from backtester.replies.window import CellReplies
from backtester.runs.journal import Ledger, Record
from backtester.snapshots.snapshot import Snapshot
from backtester.snapshots.view import AsOfView
from backtester.walk.cell import BenchSpec, Workbench, decide_cell
from backtester.walk.crew import Crew
from backtester.walk.engine import Walk
from backtester.walk.plan import Barrier, Plan
from tradingagents_core.errors import ReplayMiss
from tradingagents_core.graph import Pipeline, ReflectionRequest
from tradingagents_core.protocols import CellRequest, Decision, ModelCall, Outcome, Reply
from tradingagents_core.topology import RISK_DEBATE

_NEVER: Final = datetime.max.replace(tzinfo=UTC)
_MOMENT: Final = timedelta(microseconds=1)
_UNKNOWN: Final = Reply(text="unknown")


class Probe(CellReplies):
    """Serve recordings, and answer what has none, or depends on such an answer, with a word.

    Attributes:
        unknown: Nodes some of whose calls are not known.
    """

    def __init__(
        self,
        cache: ReplyCache,
        *,
        accept_truncated: bool,
        label: str,
        analysts: Collection[str],
        in_the_dark: Collection[str],
    ) -> None:
        super().__init__(cache, mode="replay", accept_truncated=accept_truncated, cell_label=label)
        self._analysts = analysts
        self._in_the_dark = in_the_dark
        self.unknown: set[str] = set()

    def look_up(self, call: ModelCall) -> Reply | Outcome | None:
        """Return what is recorded, or a word for it."""
        node = call.site.node
        if not self._depends(node):
            try:
                return super().look_up(call)
            except ReplayMiss:
                pass
        self.unknown.add(node)
        return _UNKNOWN

    def _depends(self, node: str) -> bool:
        """Say whether a node's next prompt holds what nobody knows."""
        if node in self.unknown or node in self._in_the_dark:
            return True
        return bool(self.unknown) and node not in self._analysts

    def _missed(self, call: ModelCall, cache: ReplyCache) -> ReplayMiss:
        # Nobody reads the difference to the nearest prompt here, and finding it takes a while.
        return ReplayMiss(call.key, "not recorded")

    def require_known(self) -> None:
        """Refuse a result that rests on a word for what nobody knows.

        Raises:
            ReplayMiss: It does.
        """
        if self.unknown:
            raise ReplayMiss("", "not recorded")


class SurveyBench(Workbench):
    """Decide cells from recordings alone, and keep the probe of each."""

    def __init__(
        self, spec: BenchSpec, *, snapshot: Snapshot, pipeline: Pipeline, cache: ReplyCache
    ) -> None:
        super().__init__(spec, snapshot=snapshot, pipeline=pipeline, cache=cache)
        self.probes: dict[str, Probe] = {}
        self.in_the_dark: Collection[str] = ()

    def decide(self, request: CellRequest, view: AsOfView, replies: CellReplies) -> Decision:
        """Decide a cell.

        Raises:
            PipelineError: It cannot be decided, or not from recordings alone.
        """
        decision = super().decide(request, view, replies)
        _require_known(replies)
        return decision

    def reflect(self, request: ReflectionRequest, replies: CellReplies) -> str:
        """Write a lesson.

        Raises:
            PipelineError: There is no recording of it.
        """
        lesson = super().reflect(request, replies)
        _require_known(replies)
        return lesson

    def _replies(self, label: str, outcomes: Sequence[OutcomeRecord]) -> CellReplies:
        self.probes[label] = Probe(
            self.cache,
            accept_truncated=self.config.accept_truncated,
            label=label,
            analysts={row.node for row in self.pipeline.analysts},
            in_the_dark=self.in_the_dark,
        )
        return self.probes[label]


def _require_known(replies: CellReplies) -> None:
    if isinstance(replies, Probe):
        replies.require_known()


class _Notes:
    """Take what a walk writes down, and forget it."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    def append(self, records: Sequence[Record]) -> None:
        for record in records:
            self.ledger.add(record)


@dataclass(frozen=True, kw_only=True)
class Begun:
    """A cell that recordings answer in part.

    Attributes:
        key: Cell.
        served: Calls that they answer, by node.
        unknown: Nodes some of whose calls are not known.
    """

    key: CellKey
    served: Counter[str]
    unknown: frozenset[str]


class Survey:
    """Walk a plan as far as recordings go, and count.

    Args:
        plan: What is to be done.
        bench: Has the recordings.
        ledger: What the run's journal holds.
    """

    def __init__(self, plan: Plan, bench: SurveyBench, ledger: Ledger) -> None:
        self.plan = plan
        self.bench = bench
        self.kept = self.recorded = self.lessons_there = 0
        self.begun: list[Begun] = []
        self.open: list[CellKey] = []
        self.calls: list[CallRecord] = []
        self.served: Counter[str] = Counter()
        self.dark_from: datetime | None = None
        self.dark_nodes: set[str] = set()
        self._whole: list[CellRecord] = []
        self._cells_before = dict(ledger.cells)
        self._lessons_before = dict(ledger.lessons)
        self._dark_at = _NEVER
        self._without_result: set[CellKey] = set()
        crew = Crew(bench.spec, api_keys={}, bench=bench)
        self._walk = Walk(plan, _Notes(ledger), crew)
        self._due = {
            key: self._walk.parts.due_at(key, plan.snapshot, plan.rule_of(key.ticker))
            for barrier in plan.barriers
            for key in barrier.keys
        }

    @property
    def lessons(self) -> int:
        """How many lessons there will be at most."""
        if self.plan.config.memory == "off":
            return 0
        return sum(
            due is not None and key not in self._without_result for key, due in self._due.items()
        )

    def follow(self) -> None:
        """Take every barrier; from the one on whose lessons are not known, only what reads none."""
        for barrier in self.plan.barriers:
            if barrier.cutoff < self._dark_at:
                self._take_lessons(self._walk.settle(barrier.cutoff), barrier.cutoff)
            if barrier.cutoff < self._dark_at:
                self._take_cells(barrier)
            else:
                self._look_in_the_dark(barrier)
        if self._dark_at == _NEVER:
            self._take_lessons(self._walk.close(), _NEVER)

    def ask_everything(self) -> None:
        """Take no recording: every cell is asked anew."""
        self.open.extend(key for barrier in self.plan.barriers for key in barrier.keys)

    def _take_cells(self, barrier: Barrier) -> None:
        cells = self._walk.decide(self._walk.freeze(barrier))
        self._walk.commit(cells)
        for cell in cells:
            if self._cells_before.get(cell.key) is cell:
                self.kept += 1
                self._note_whole(cell)
            elif not self._note(cell):
                if self.plan.config.show_book:
                    # From the next cutoff on the book that is shown holds what nobody knows.
                    self._dark_at = min(self._dark_at, barrier.cutoff + _MOMENT)
                due = self._due[cell.key]
                if due is not None and self.plan.config.memory != "off":
                    self._dark_at = min(self._dark_at, due)

    def _look_in_the_dark(self, barrier: Barrier) -> None:
        """Look up what the nodes ask that read no lesson; the cells' own results stay unknown."""
        self.dark_from = self.dark_from or barrier.cutoff
        self.bench.in_the_dark = self.bench.pipeline.settings.lesson_roles
        if self.plan.config.show_book:
            self.bench.in_the_dark = (*self.bench.in_the_dark, RISK_DEBATE.judge)
        for task in self._walk.freeze(barrier):
            cell = decide_cell(self.bench, replace(task, own_lessons=(), other_lessons=()))
            if not self._note(cell):
                self.dark_nodes.update(self.begun[-1].unknown)

    def _note(self, cell: CellRecord) -> bool:
        """Count a cell, and say whether recordings answer all of it."""
        probe = self.bench.probes[str(cell.key)]
        served = Counter(call.node for call in probe.calls)
        self.served.update(served)
        if not probe.unknown:
            self.recorded += 1
            self._note_whole(cell)
            return True
        self.calls.extend(probe.calls)
        self.begun.append(Begun(key=cell.key, served=served, unknown=frozenset(probe.unknown)))
        return False

    def _note_whole(self, cell: CellRecord) -> None:
        self.calls.extend(cell.calls)
        if cell.status in ("done", "unread"):
            self._whole.append(cell)
        if cell.status != "done":
            self._without_result.add(cell.key)

    def _take_lessons(self, lessons: Sequence[LessonRecord], at: datetime) -> None:
        for lesson in lessons:
            if lesson.lesson_status == "failed":
                self._dark_at = min(self._dark_at, at)
            elif lesson.lesson_status == "written":
                self.lessons_there += 1
                self.calls.extend(lesson.calls)
                if self._lessons_before.get(lesson.key) is not lesson:
                    self.served.update(call.node for call in lesson.calls)

    # -- what is left

    def demand(self) -> Demand:
        """Return the calls by node: served, and still to make."""
        demand = Demand(served=self.served)
        tries = 1 + self.plan.config.cell_retries
        by_ticker: dict[str, Mapping[str, NodeCalls]] = {}
        for barrier in self.plan.barriers:
            for key in barrier.keys:
                if key.ticker not in by_ticker:
                    by_ticker[key.ticker] = graph_of(self.bench, key, barrier.cutoff)
        usual = self._usual()
        for key in self.open:
            graph = by_ticker[key.ticker]
            demand.add_cell(graph, graph, tries=tries, usual=usual)
        for cell in self.begun:
            demand.add_cell(
                by_ticker[cell.key.ticker],
                cell.unknown,
                tries=tries,
                usual=usual,
                served=cell.served,
            )
        demand.add_lessons(self.lessons - self.lessons_there)
        return demand

    def _usual(self) -> Mapping[str, float]:
        """Return the calls a node makes in a cell, on average over those that are known."""
        if not self._whole:
            return {}
        made = Counter(call.node for cell in self._whole for call in cell.calls)
        return {node: count / len(self._whole) for node, count in made.items()}
