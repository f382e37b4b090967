"""What a run decides again before it goes on, how much may follow, and what that costs at most."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from backtester.estimates.demand import Demand, graph_of, readers_of_lessons
from backtester.estimates.sizes import Sizes
from backtester.estimates.worst import Worst, worst_of
from backtester.loading import catalogue_of
from backtester.records import CellKey
from backtester.runs.journal import Ledger
from backtester.spending.tariff import Tariff
from backtester.walk.cell import Workbench
from backtester.walk.engine import is_settled
from backtester.walk.plan import Plan
from backtester.walk.progress import Standing
from tradingagents_core.topology import RISK_DEBATE

_NEVER: Final = datetime.max.replace(tzinfo=UTC)


def standing_of(plan: Plan, ledger: Ledger, bench: Workbench, tariff: Tariff) -> Standing:
    """Return what a run finds in its journal, with the worst case of what is done again.

    Args:
        plan: The run.
        ledger: What its journal holds.
        bench: Has the pipeline; nobody is asked.
        tariff: Known prices.
    """
    failed = frozenset(
        key
        for key, cell in ledger.cells.items()
        if not is_settled(cell, plan.config) and cell.status != "skipped_budget"
    )
    lessons = frozenset(key for key, row in ledger.lessons.items() if row.lesson_status == "failed")
    if not failed and not lessons:
        return Standing(kept=len(ledger.cells), failed=0, affected=0)
    affected = frozenset(_affected(plan, ledger, failed, lessons))
    worst = _worst(plan, bench, tariff, failed=failed, affected=affected, lessons=len(lessons))
    return Standing(
        kept=len(ledger.cells),
        failed=len(failed),
        affected=len(affected),
        lessons=len(lessons),
        calls=worst.calls,
        cost_usd=worst.cost_usd,
        unknown=worst.reason,
    )


def _affected(
    plan: Plan, ledger: Ledger, failed: frozenset[CellKey], lessons: frozenset[CellKey]
) -> Iterator[CellKey]:
    """Yield the cells that are shown a lesson or a book which may change: all after the first."""
    if plan.config.memory == "off" and not plan.config.show_book:
        return
    known = (ledger.lessons[key].resolved_at for key in lessons)
    due = min((at for at in known if at is not None), default=_NEVER)
    later = False
    for barrier in plan.barriers:
        if later or barrier.cutoff >= due:
            yield from (key for key in barrier.keys if key not in failed and key in ledger.cells)
        later = later or not failed.isdisjoint(barrier.keys)


def _worst(
    plan: Plan,
    bench: Workbench,
    tariff: Tariff,
    *,
    failed: frozenset[CellKey],
    affected: frozenset[CellKey],
    lessons: int,
) -> Worst:
    config, settings = plan.config, bench.pipeline.settings
    demand = Demand()
    analysts = {row.node for row in bench.pipeline.analysts}
    shown = (*settings.lesson_roles, *((RISK_DEBATE.judge,) if config.show_book else ()))
    for barrier in plan.barriers:
        for key in barrier.keys:
            if key in failed or key in affected:
                graph = graph_of(bench, key, barrier.cutoff)
                readers = readers_of_lessons(graph, shown, analysts)
                nodes = tuple(graph) if key in failed else readers
                demand.add_cell(graph, nodes, tries=1 + config.cell_retries)
    if config.memory != "off":
        demand.add_lessons(len(failed) + len(affected) + lessons)
    sizes = Sizes.of((), demand.nodes, bench=bench, plan=plan, catalogue=catalogue_of(config))
    return Worst.total(
        [worst_of(node, demand, sizes=sizes, config=config, tariff=tariff) for node in demand.nodes]
    )
