"""What a run is going to ask, before anything is asked: cells, calls, tokens and cost by node.

Exact is what recordings can tell. The run is walked in replay, with its own journal and the reply
cache, as far as its lessons are known: a cell whose replies are all there is exact, another one is
exact as far as its first miss. From the instant on at which an undecided cell would teach others,
prompts depend on replies that nobody has, and the numbers come from the graph: *expected* takes
the calls that recorded cells made, or one tool turn and no repair; *worst case* takes every tool
turn, every repair and every retry of a cell. Nothing is spent, and no key is needed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from backtester.cache import CellReplies
from backtester.cell import BenchSpec, Workbench, build_pipeline
from backtester.config import RunConfig
from backtester.crew import Crew
from backtester.demand import NodeCalls, calls_of_graph, ended_before
from backtester.engine import Walk
from backtester.journal import Ledger, Record, read_ledger
from backtester.plan import Barrier, Plan, cache_folder, lay_out
from backtester.purse import Spent
from backtester.records import CallRecord, CellKey, CellRecord, LessonRecord, OutcomeRecord
from backtester.reply_cache import ReplyCache
from backtester.runs import RunFolder
from backtester.sizes import Size, Sizes
from backtester.snapshot import Snapshot
from backtester.spend import read_spend
from backtester.tariff import Tariff
from tradingagents_core.errors import PipelineError, ReplayMiss
from tradingagents_core.graph import Pipeline
from tradingagents_core.protocols import ModelCall, Usage
from tradingagents_core.topology import (
    REFLECTOR,
    analysts_for,
    role_nodes,
    tier_of_node,
)

_NEVER: Final = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class NodeEstimate:
    """Say what one node is going to ask.

    Attributes:
        node: Node of the graph, or ``Reflector``.
        model: ``provider:model``.
        served: Calls that recordings answer; exact.
        expected: Calls to make.
        worst: Calls to make at most.
        basis: Where the size of a call comes from: ``recorded`` usage of the same node and model,
            ``characters`` / 4 of the prompts of a decision by the rulebook, or ``unknown``.
        input_tokens: Expected, of the calls to make; None where the size is unknown.
        output_tokens: Likewise.
        worst_tokens: In and out at most, each call of the same size, or with ``max_tokens`` out.
        cost_usd: Expected; None where price or size are unknown.
        worst_cost_usd: At most, likewise.
    """

    node: str
    model: str
    served: int
    expected: int
    worst: int
    basis: str
    input_tokens: int | None
    output_tokens: int | None
    worst_tokens: int | None
    cost_usd: float | None
    worst_cost_usd: float | None


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Say what a run is going to ask.

    Attributes:
        run_id: Run.
        cells: Cells of the grid.
        warmup: Those among them that are not scored.
        cutoffs: Number of cutoffs.
        first: First cutoff.
        last: Last cutoff.
        kept: Cells that the run's journal holds already.
        recorded: Cells that recordings answer from end to end.
        begun: Cells that recordings answer as far as a first miss.
        open: Cells without a recording, or whose prompts are not known before others are decided.
        lessons: Lessons that will have been written at the end, at most.
        lessons_there: Those among them that are written or recorded.
        exact: Whether nothing is left to ask.
        nodes: By node, in the order of the graph.
        total: Over all nodes; a sum with an unknown part is None.
        spent: What earlier commands of the run paid, in words; empty where nothing.
    """

    run_id: str
    cells: int
    warmup: int
    cutoffs: int
    first: datetime
    last: datetime
    kept: int
    recorded: int
    begun: int
    open: int
    lessons: int
    lessons_there: int
    exact: bool
    nodes: tuple[NodeEstimate, ...]
    total: NodeEstimate
    spent: str


def estimate(config: RunConfig, snapshot: Snapshot, tariff: Tariff) -> Estimate:
    """Count what a run would ask; spends nothing and writes nothing.

    Args:
        config: What the run would do.
        snapshot: What it would run on.
        tariff: Known prices.

    Raises:
        DataError: The snapshot lacks a ticker or date, or cache, journal or ledger are damaged.
        UsageError: A grid without a session.
    """
    # Replaying models need no key, and nothing can be spent on them.
    counted = config.model_copy(
        update={"mode": "replay", "workers": 1, "backend": "threading", "save_states": False}
    )
    pipeline = build_pipeline(counted)
    plan = lay_out(counted, snapshot, fingerprint=pipeline.fingerprint())
    folder = RunFolder(config.reports_dir / plan.run_id)
    ledger = read_ledger(folder.journal_path) if folder.journal_path.exists() else Ledger()
    cache = ReplyCache.open(cache_folder(config.data_dir), read_only=True)
    spec = BenchSpec(
        config=plan.config,
        snapshot_path=snapshot.path,
        cache_dir=cache_folder(config.data_dir),
    )
    bench = _Bench(spec, snapshot=snapshot, pipeline=pipeline, cache=cache)
    found = _Survey(plan, bench, ledger)
    if config.mode == "record":
        found.follow()
    else:
        # A refresh asks everything anew, and so does a run without a cache.
        found.open.extend(key for barrier in plan.barriers for key in barrier.keys)
    spent = Spent()
    for record in read_spend(folder.spend_path):
        spent.add(record)
    return _summed(found, config, tariff, spent=str(spent) if spent.calls else "")


def _summed(found: _Survey, config: RunConfig, tariff: Tariff, *, spent: str) -> Estimate:
    plan = found.plan
    demand = found.demand()
    sizes = Sizes.of(found.calls, demand.worst, bench=found.bench, plan=plan)
    order = (*role_nodes(found.bench.pipeline.analysts), REFLECTOR)
    nodes = tuple(
        _node(node, demand, size=sizes.of_node(node), config=config, tariff=tariff)
        for node in order
        if demand.served[node] or demand.worst[node]
    )
    return Estimate(
        run_id=plan.run_id,
        cells=plan.cells,
        warmup=len(plan.warmup),
        cutoffs=len(plan.barriers),
        first=plan.barriers[0].cutoff,
        last=plan.barriers[-1].cutoff,
        kept=found.kept,
        recorded=found.recorded,
        begun=sum(cell.served.total() > 0 for cell in found.begun),
        open=len(found.open) + sum(not cell.served for cell in found.begun),
        lessons=found.lessons,
        lessons_there=found.lessons_there,
        exact=not sum(demand.worst.values()),
        nodes=nodes,
        total=_total(nodes),
        spent=spent,
    )


# ------------------------------------------------------------------------- what recordings tell


class _Probe(CellReplies):
    """Serve recordings and remember the first call that has none."""

    missed: ModelCall | None = None

    def _missed(self, call: ModelCall, cache: ReplyCache) -> ReplayMiss:
        # Nobody reads the difference to the nearest prompt here, and finding it takes a while.
        self.missed = self.missed or call
        return ReplayMiss(call.key, "not recorded")


class _Bench(Workbench):
    """Decide cells from recordings alone, and keep the probe of each."""

    def __init__(
        self, spec: BenchSpec, *, snapshot: Snapshot, pipeline: Pipeline, cache: ReplyCache
    ) -> None:
        super().__init__(spec, snapshot=snapshot, pipeline=pipeline, cache=cache)
        self.probes: dict[str, _Probe] = {}

    def _replies(self, label: str, outcomes: Sequence[OutcomeRecord]) -> CellReplies:
        probe = _Probe(
            self.cache,
            mode="replay",
            accept_truncated=self.config.accept_truncated,
            cell_label=label,
        )
        self.probes[label] = probe
        return probe


class _Notes:
    """Take what a walk writes down, and forget it."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    def append(self, records: Sequence[Record]) -> None:
        for record in records:
            self.ledger.add(record)


@dataclass
class _Begun:
    """A cell that recordings answer as far as its first miss."""

    key: CellKey
    served: Counter[str]
    missed: str


@dataclass(frozen=True)
class _Demand:
    served: Counter[str] = field(default_factory=Counter)
    expected: dict[str, float] = field(default_factory=dict)
    worst: Counter[str] = field(default_factory=Counter)


class _Survey:
    """Walk a plan as far as recordings go, and count."""

    def __init__(self, plan: Plan, bench: _Bench, ledger: Ledger) -> None:
        self.plan = plan
        self.bench = bench
        self.kept = self.recorded = self.lessons_there = 0
        self.begun: list[_Begun] = []
        self.open: list[CellKey] = []
        self.calls: list[CallRecord] = []
        self.served: Counter[str] = Counter()
        self._whole: list[CellRecord] = []
        self._cells_before = dict(ledger.cells)
        self._lessons_before = dict(ledger.lessons)
        self._blind_from = _NEVER
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
        """Take every barrier up to the one from which nothing is known."""
        for barrier in self.plan.barriers:
            if barrier.cutoff < self._blind_from:
                self._take_lessons(self._walk.settle(barrier.cutoff), barrier.cutoff)
            if barrier.cutoff >= self._blind_from:
                self.open.extend(barrier.keys)
                continue
            self._take_cells(barrier)
        if self._blind_from == _NEVER:
            self._take_lessons(self._walk.close(), _NEVER)

    def _take_cells(self, barrier: Barrier) -> None:
        cells = self._walk.decide(self._walk.freeze(barrier))
        self._walk.commit(cells)
        for cell in cells:
            if self._cells_before.get(cell.key) is cell:
                self.kept += 1
                self._note_whole(cell)
                continue
            probe = self.bench.probes[str(cell.key)]
            self.served.update(call.node for call in probe.calls)
            if probe.missed is None:
                self.recorded += 1
                self._note_whole(cell)
                continue
            self.calls.extend(probe.calls)
            served = Counter(call.node for call in probe.calls)
            self.begun.append(_Begun(key=cell.key, served=served, missed=probe.missed.site.node))
            due = self._due[cell.key]
            if due is not None and self.plan.config.memory != "off":
                self._blind_from = min(self._blind_from, due)

    def _note_whole(self, cell: CellRecord) -> None:
        self.calls.extend(cell.calls)
        if cell.status in ("done", "unread"):
            self._whole.append(cell)
        if cell.status != "done":
            self._without_result.add(cell.key)

    def _take_lessons(self, lessons: Sequence[LessonRecord], at: datetime) -> None:
        for lesson in lessons:
            if lesson.lesson_status == "failed":
                self._blind_from = min(self._blind_from, at)
            elif lesson.lesson_status == "written":
                self.lessons_there += 1
                self.calls.extend(lesson.calls)
                if self._lessons_before.get(lesson.key) is not lesson:
                    self.served.update(call.node for call in lesson.calls)

    # -- what is left

    def demand(self) -> _Demand:
        """Return the calls by node: served, and still to make."""
        demand = _Demand(served=self.served)
        tries = 1 + self.plan.config.cell_retries
        by_ticker: dict[str, Mapping[str, NodeCalls]] = {}
        for barrier in self.plan.barriers:
            for key in barrier.keys:
                if key.ticker not in by_ticker:
                    by_ticker[key.ticker] = self._graph(key, barrier)
        usual = self._usual()
        for key in self.open:
            _add(demand, by_ticker[key.ticker], usual, served=Counter(), ended=(), tries=tries)
        for cell in self.begun:
            graph = by_ticker[cell.key.ticker]
            ended = () if self.plan.config.analysts_parallel else ended_before(graph, cell.missed)
            _add(demand, graph, usual, served=cell.served, ended=ended, tries=tries)
        missing = self.lessons - self.lessons_there
        if missing > 0:
            demand.worst[REFLECTOR] += missing
            demand.expected[REFLECTOR] = demand.expected.get(REFLECTOR, 0.0) + missing
        return demand

    def _usual(self) -> Mapping[str, float]:
        """Return the calls a node makes in a cell, on average over those that are known."""
        if not self._whole:
            return {}
        made = Counter(call.node for cell in self._whole for call in cell.calls)
        return {node: count / len(self._whole) for node, count in made.items()}

    def _graph(self, key: CellKey, barrier: Barrier) -> Mapping[str, NodeCalls]:
        view = self.bench._view(key, barrier.cutoff, lambda _: None)
        pipeline = self.bench.pipeline
        try:
            rows = analysts_for(view.identity(key.ticker), pipeline.analysts)
        except PipelineError:
            rows = ()
        return calls_of_graph(pipeline, rows)


def _add(
    demand: _Demand,
    graph: Mapping[str, NodeCalls],
    usual: Mapping[str, float],
    *,
    served: Counter[str],
    ended: Iterable[str],
    tries: int,
) -> None:
    done = set(ended)
    for node, calls in graph.items():
        if node in done:
            continue
        expected = max(usual.get(node, float(calls.usual)) - served[node], 0.0)
        demand.expected[node] = demand.expected.get(node, 0.0) + expected
        demand.worst[node] += max(calls.worst - served[node], 0) + calls.worst * (tries - 1)


# --------------------------------------------------------------------------------- tokens, cost


def _node(
    node: str, demand: _Demand, *, size: Size, config: RunConfig, tariff: Tariff
) -> NodeEstimate:
    spec = config.model_spec(tier_of_node(node))
    expected, worst = math.ceil(demand.expected.get(node, 0.0)), demand.worst[node]
    longest = max(size.output or 0.0, float(config.max_tokens or 0))

    def cost(calls: int, output: float) -> float | None:
        usage = Usage(input_tokens=round(size.input), output_tokens=round(output))
        one = tariff.cost(spec.provider, spec.model, usage)
        return 0.0 if not calls else None if one is None or not size.known else calls * one

    def tokens(calls: int, each: float) -> int | None:
        return 0 if not calls else round(calls * each) if size.known else None

    return NodeEstimate(
        node=node,
        model=f"{spec.provider}:{spec.model}",
        served=demand.served[node],
        expected=min(expected, worst),
        worst=worst,
        basis=size.basis,
        input_tokens=tokens(expected, size.input),
        output_tokens=tokens(expected, size.output),
        worst_tokens=tokens(worst, size.input + longest),
        cost_usd=cost(expected, size.output),
        worst_cost_usd=cost(worst, longest),
    )


def _total(nodes: Sequence[NodeEstimate]) -> NodeEstimate:
    def added(name: str) -> int | None:
        values = [getattr(node, name) for node in nodes]
        return None if None in values else sum(values)

    def paid(name: str) -> float | None:
        values = [getattr(node, name) for node in nodes]
        return None if None in values else math.fsum(values)

    return NodeEstimate(
        node="total",
        model="",
        served=sum(node.served for node in nodes),
        expected=sum(node.expected for node in nodes),
        worst=sum(node.worst for node in nodes),
        basis="",
        input_tokens=added("input_tokens"),
        output_tokens=added("output_tokens"),
        worst_tokens=added("worst_tokens"),
        cost_usd=paid("cost_usd"),
        worst_cost_usd=paid("worst_cost_usd"),
    )
