"""What a run is going to ask, before anything is asked: cells, calls, tokens and cost by node.

Exact is what recordings can tell (`survey`). Where they end, the numbers come from the graph:
*expected* takes the calls that recorded cells made, or one tool turn and no repair, of the size
known so far, and is an estimate; *worst case* takes every tool turn, every repair and every retry
of a cell, with every reply at its limit and in every prompt after it, and is a bound. Where nothing
limits a reply there is none, and it is unknown. Nothing is spent, and no key is needed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from backtester.config import RunConfig
from backtester.estimates.demand import Demand
from backtester.estimates.sizes import Size, Sizes
from backtester.estimates.survey import Survey, SurveyBench
from backtester.estimates.worst import Worst, worst_of
from backtester.loading import catalogue_of
from backtester.replies.cache import ReplyCache
from backtester.runs.folder import RunFolder
from backtester.runs.journal import Ledger, read_ledger
from backtester.snapshots.snapshot import Snapshot
from backtester.spending.ledger import read_spend
from backtester.spending.purse import Spent
from backtester.spending.tariff import Tariff
from backtester.walk.cell import BenchSpec, build_pipeline
from backtester.walk.plan import cache_folder, lay_out
from tradingagents_core.protocols import Usage
from tradingagents_core.topology import REFLECTOR, role_nodes, tier_of_node


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
        worst_tokens: In and out at most: every reply at its limit, and in every prompt after it.
            None where nothing limits a reply.
        cost_usd: Expected; None where price or size are unknown.
        worst_cost_usd: At most; None where the price or the tokens are unknown.
        worst_reason: Why one of these two is unknown; empty where both are known.
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
    worst_reason: str


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
        begun: Cells that recordings answer in part.
        open: Cells without a recording.
        lessons: Lessons that will have been written at the end, at most.
        lessons_there: Those among them that are written or recorded.
        exact: Whether nothing is left to ask.
        dark_from: First cutoff whose lessons nobody knows yet, or None where all are known.
        dark_nodes: Nodes whose calls are therefore not known from then on; those of all others are
            looked up.
        nodes: By node, in the order of the graph.
        total: Over all nodes; a sum with an unknown part is None.
        spent: What earlier commands of the run paid, in words; empty where nothing.
        estimated: What becomes of rows that only an estimate dates.
        moved: Listed dates that are no sessions, and where they went; empty for none.
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
    dark_from: datetime | None
    dark_nodes: tuple[str, ...]
    nodes: tuple[NodeEstimate, ...]
    total: NodeEstimate
    spent: str
    estimated: str
    moved: str


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
    bench = SurveyBench(spec, snapshot=snapshot, pipeline=pipeline, cache=cache)
    found = Survey(plan, bench, ledger)
    if config.mode == "record":
        found.follow()
    else:
        # A refresh asks everything anew, and so does a run without a cache.
        found.ask_everything()
    spent = Spent()
    for record in read_spend(folder.spend_path):
        spent.add(record)
    return _summed(found, config, tariff, spent=str(spent) if spent.calls else "")


def _summed(found: Survey, config: RunConfig, tariff: Tariff, *, spent: str) -> Estimate:
    plan = found.plan
    demand = found.demand()
    sizes = Sizes.of(
        found.calls,
        demand.nodes,
        bench=found.bench,
        plan=plan,
        catalogue=catalogue_of(config),
    )
    order = (*role_nodes(found.bench.pipeline.analysts), REFLECTOR)
    worst = {
        node: worst_of(node, demand, sizes=sizes, config=config, tariff=tariff) for node in order
    }
    nodes = tuple(
        _node(
            node, demand, size=sizes.of_node(node), worst=worst[node], config=config, tariff=tariff
        )
        for node in order
        if demand.served[node] or worst[node].calls
    )
    return Estimate(
        run_id=plan.run_id,
        estimated=plan.config.estimated,
        moved=plan.moved,
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
        exact=not demand.nodes,
        dark_from=found.dark_from,
        dark_nodes=tuple(node for node in order if node in found.dark_nodes),
        nodes=nodes,
        total=_total(nodes, Worst.total(list(worst.values()))),
        spent=spent,
    )


# --------------------------------------------------------------------------------- tokens, cost


def _node(
    node: str, demand: Demand, *, size: Size, worst: Worst, config: RunConfig, tariff: Tariff
) -> NodeEstimate:
    spec = config.model_spec(tier_of_node(node))
    expected = min(math.ceil(demand.expected.get(node, 0.0)), worst.calls)
    usage = Usage(input_tokens=round(size.input), output_tokens=round(size.output))
    one = tariff.cost(spec.provider, spec.model, usage)

    def tokens(each: float) -> int | None:
        return 0 if not expected else round(expected * each) if size.known else None

    return NodeEstimate(
        node=node,
        model=f"{spec.provider}:{spec.model}",
        served=demand.served[node],
        expected=expected,
        worst=worst.calls,
        basis=size.basis,
        input_tokens=tokens(size.input),
        output_tokens=tokens(size.output),
        worst_tokens=worst.tokens,
        cost_usd=0.0 if not expected else None if one is None or not size.known else expected * one,
        worst_cost_usd=worst.cost_usd,
        worst_reason=worst.reason,
    )


def _total(nodes: Sequence[NodeEstimate], worst: Worst) -> NodeEstimate:
    def added(name: str) -> int | None:
        values = [getattr(node, name) for node in nodes]
        return None if None in values else sum(values)

    costs = [node.cost_usd for node in nodes]
    return NodeEstimate(
        node="total",
        model="",
        served=sum(node.served for node in nodes),
        expected=sum(node.expected for node in nodes),
        worst=worst.calls,
        basis="",
        input_tokens=added("input_tokens"),
        output_tokens=added("output_tokens"),
        worst_tokens=worst.tokens,
        cost_usd=None if None in costs else math.fsum(cost or 0.0 for cost in costs),
        worst_cost_usd=worst.cost_usd,
        worst_reason=worst.reason,
    )
