"""The flow of one cell: the tables of `topology` and the agents wired into a LangGraph.

Nothing here knows a cell. A node finds what belongs to its cell in the runtime context, so one
compiled flow serves any number of threads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict, cast, get_type_hints

from langchain_core.language_models import BaseChatModel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime

from tradingagents_core.agents.analysts import (
    analyst_node,
    clear_node,
    source_node,
    tools_node,
)
from tradingagents_core.agents.calls import CellContext, Node, StateUpdate
from tradingagents_core.agents.debaters import debater_node
from tradingagents_core.agents.deciders import (
    portfolio_manager_node,
    research_manager_node,
    trader_node,
)
from tradingagents_core.errors import TurnLimitReached
from tradingagents_core.settings import PipelineSettings
from tradingagents_core.state import Messages, WorkState
from tradingagents_core.topology import (
    INVEST_DEBATE,
    RISK_DEBATE,
    TRADER,
    AnalystRow,
    DebateRow,
    Router,
    analyst_paths,
    analyst_router,
    debate_paths,
    debate_router,
    tier_of_node,
)

if TYPE_CHECKING:
    from langgraph.graph.state import CompiledStateGraph


@dataclass(frozen=True, kw_only=True)
class Models:
    """Hold the two tiers.

    Attributes:
        quick: Analysts, debaters, trader, reflector.
        deep: The two judges.
    """

    quick: BaseChatModel
    deep: BaseChatModel

    def of(self, node: str) -> BaseChatModel:
        """Return the model that a node thinks with."""
        return self.deep if tier_of_node(node) == "deep" else self.quick


class Flow:
    """Hold the wired graph of one list of analysts.

    Args:
        settings: What shapes it.
        models: Who thinks in it.
        analysts: Who takes part, in order.
    """

    def __init__(
        self, settings: PipelineSettings, models: Models, analysts: Sequence[AnalystRow]
    ) -> None:
        self.analysts = tuple(analysts)
        self._wired = _wire(settings, models, self.analysts)
        self.compiled = self._wired.compile()

    def checkpointed(
        self, saver: BaseCheckpointSaver[str] | None
    ) -> CompiledStateGraph[Any, Any, Any, Any]:
        """Return the compiled graph, one that saves its state after each step if there is a saver.

        The nodes are shared; only who takes the state differs.
        """
        return self.compiled if saver is None else self._wired.compile(checkpointer=saver)


def _wire(
    settings: PipelineSettings, models: Models, analysts: Sequence[AnalystRow]
) -> StateGraph[Any, Any, Any, Any]:
    graph: StateGraph[Any, Any, Any, Any] = StateGraph(
        cast("Any", _state_class(settings, analysts)), context_schema=CellContext
    )
    _add_debate(graph, settings, models, analysts, debate=INVEST_DEBATE)
    _add_debate(graph, settings, models, analysts, debate=RISK_DEBATE)
    for name, build in (
        (INVEST_DEBATE.judge, research_manager_node),
        (TRADER, trader_node),
        (RISK_DEBATE.judge, portfolio_manager_node),
    ):
        _add(graph, name, build(models.of(name), settings, analysts))
    opening = INVEST_DEBATE.speakers[0].node
    ends = [_add_analyst(graph, settings, models, row) for row in analysts]
    if settings.analysts_parallel:
        for row in analysts:
            graph.add_edge(START, row.node)
        graph.add_edge(ends, opening)
    else:
        starts = [row.node for row in analysts]
        for before, after in zip([START, *ends], [*starts, opening], strict=True):
            graph.add_edge(before, after)
    graph.add_edge(INVEST_DEBATE.judge, TRADER)
    graph.add_edge(TRADER, RISK_DEBATE.speakers[0].node)
    graph.add_edge(RISK_DEBATE.judge, END)
    return graph


def _state_class(settings: PipelineSettings, analysts: Sequence[AnalystRow]) -> type:
    """Return the state with a report field for every analyst, and a channel for every branch."""
    fields: dict[str, Any] = get_type_hints(WorkState, include_extras=True)
    for row in analysts:
        fields.setdefault(row.report_field, str)
        if settings.analysts_parallel:
            fields[row.branch_channel] = Messages
    return cast("type", TypedDict("CellState", fields))  # type: ignore[operator]


def _add_analyst(
    graph: StateGraph[Any, Any, Any, Any],
    settings: PipelineSettings,
    models: Models,
    row: AnalystRow,
) -> str:
    """Add an analyst's nodes and the edges between them; return its last node."""
    channel = row.branch_channel if settings.analysts_parallel else "messages"
    model = models.of(row.node)
    _add(graph, row.clear_node, clear_node(channel))
    if row.sources:
        _add(graph, row.node, source_node(row, model, settings))
        graph.add_edge(row.node, row.clear_node)
        return row.clear_node
    _add(graph, row.node, analyst_node(row, model, settings, channel))
    _add(graph, row.tools_node, tools_node(row, settings, channel))
    router = _watching(analyst_router(row, channel), channel, Messages)
    graph.add_conditional_edges(row.node, router, cast("Any", analyst_paths(row)))
    graph.add_edge(row.tools_node, row.node)
    return row.clear_node


def _add_debate(
    graph: StateGraph[Any, Any, Any, Any],
    settings: PipelineSettings,
    models: Models,
    analysts: Sequence[AnalystRow],
    *,
    debate: DebateRow,
) -> None:
    shape = get_type_hints(WorkState)[debate.state_field]
    router = _watching(debate_router(debate, debate.turns(settings)), debate.state_field, shape)
    for speaker in debate.speakers:
        model = models.of(speaker.node)
        _add(graph, speaker.node, debater_node(debate, speaker, model, settings, analysts))
        graph.add_conditional_edges(speaker.node, router, cast("Any", debate_paths(debate)))


def _watching(router: Router, field: str, shape: object) -> Any:
    """Tell LangGraph by the annotation that a router reads one field: it copies all others too."""

    def route(state: Mapping[str, object]) -> str:
        return router(state)

    route.__annotations__["state"] = TypedDict("Watched", {field: shape})  # type: ignore[operator]
    return route


def _add(graph: StateGraph[Any, Any, Any, Any], name: str, node: Node) -> None:
    """Add a node that reports itself; the count of steps and the progress come from here."""

    def run(state: Mapping[str, object], runtime: Runtime[CellContext]) -> StateUpdate:
        context = runtime.context
        if len(context.nodes) >= context.limit:
            raise out_of_steps(context)
        if context.on_node is not None:
            context.on_node(name)
        update = node(state, runtime)
        context.nodes.append(name)
        if context.sink is not None:
            context.sink.node_finished(context.request.cell, name, update)
        return update

    graph.add_node(name, cast("Any", run))


def out_of_steps(context: CellContext) -> TurnLimitReached:
    """Return the error of a cell that took all its steps without an end."""
    last = context.nodes[-1] if context.nodes else "the start"
    return TurnLimitReached(
        f"{context.request.cell}: {context.limit} graph steps were not enough, the last was "
        f"{last}: raise recursion_limit or lower max_tool_turns"
    )
