"""The pipeline: the graph compiled once, one cell a call.

A `Pipeline` holds no state of any cell. The view, the request and the brief travel as LangGraph's
runtime context, so any number of threads may decide through one pipeline at a time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict, cast, get_type_hints

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphRecursionError
from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime

from tradingagents_core import prompts
from tradingagents_core.agents.analysts import (
    analyst_node,
    clear_node,
    placeholder,
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
from tradingagents_core.agents.reflector import ReflectionRequest, reflect
from tradingagents_core.decisions import FORMS, canonical_json, response_schema
from tradingagents_core.errors import SettingsError, TurnLimitReached
from tradingagents_core.fingerprint import prompt_texts
from tradingagents_core.llm.replaying import CURRENT_REPLIES
from tradingagents_core.protocols import (
    CURRENT_SITE,
    CellRequest,
    Decision,
    Identity,
    RatingSource,
    ReplyStore,
    Sink,
    Site,
    View,
)
from tradingagents_core.settings import PipelineSettings
from tradingagents_core.state import (
    Messages,
    WorkState,
    empty_debate,
    empty_risk_debate,
    texts_of,
)
from tradingagents_core.tools import tool_texts
from tradingagents_core.topology import (
    ANALYSTS,
    INVEST_DEBATE,
    RISK_DEBATE,
    TRADER,
    AnalystRow,
    DebateRow,
    Router,
    analyst_paths,
    analyst_router,
    chosen_analysts,
    debate_paths,
    debate_router,
    role_nodes,
    step_limit,
    tier_of_node,
    topology_document,
)

if TYPE_CHECKING:
    from langgraph.graph.state import CompiledStateGraph

__all__ = ["Models", "Pipeline", "ReflectionRequest", "floor_graph"]

HARNESS = "harness"


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


class Pipeline:
    """Decide cells and write lessons; safe to share between threads.

    Args:
        settings: What shapes the graph and its prompts.
        models: The two tiers.
        analysts: Table to choose from; the product's own by default.

    Raises:
        SettingsError: An analyst or a lesson role that does not exist.
    """

    def __init__(
        self,
        settings: PipelineSettings,
        models: Models,
        *,
        analysts: Sequence[AnalystRow] = ANALYSTS,
    ) -> None:
        self.settings = settings
        self.models = models
        self.analysts = chosen_analysts(settings.analysts, analysts)
        _check_lesson_roles(settings, role_nodes(self.analysts))
        self._graph = _compile(settings, models, self.analysts)

    def decide(
        self,
        request: CellRequest,
        view: View,
        *,
        replies: ReplyStore | None = None,
        sink: Sink | None = None,
    ) -> Decision:
        """Decide one cell.

        Args:
            request: Ticker, session and lessons.
            view: Data at the cutoff.
            replies: Store of the cell's model replies; None leaves the models live.
            sink: Takes each node's update as the node ends.

        Returns:
            The decision; its rating is None where none could be read.

        Raises:
            PipelineError: The cell cannot be decided: a model gave no answer, a strict replay has
                no recording, or the steps ran out.
            LookaheadError: A later row was about to be seen.
        """
        with _installed(replies, _harness_site(request)):
            identity = view.identity(request.ticker)
            context = CellContext(
                request=request,
                view=view,
                brief=self._brief(request, identity),
                sink=sink,
                limit=step_limit(self.settings),
                nodes=[],
            )
            final = self._run(context, self._initial_state(request, identity, context))
        return _decision(final, steps=len(context.nodes))

    def reflect(self, request: ReflectionRequest, *, replies: ReplyStore | None = None) -> str:
        """Write the lesson of one resolved decision.

        Raises:
            PipelineError: The model gave no answer, or a strict replay has no recording.
        """
        with _installed(replies, CURRENT_SITE.get()):
            return reflect(self.models.quick, request, self.settings)

    def fingerprint(self) -> str:
        """Return one hash over prompts, tools, response schemas and topology.

        It changes with every text that can reach a model and with every edge of the graph, and
        with nothing else.
        """
        document = {
            "prompts": prompt_texts(self.settings, self.analysts),
            "tools": list(tool_texts()),
            "schemas": {name: response_schema(form) for name, form in FORMS.items()},
            "topology": topology_document(self.analysts),
        }
        return hashlib.sha256(canonical_json(document).encode()).hexdigest()

    def _brief(self, request: CellRequest, identity: Identity) -> prompts.Brief:
        return prompts.Brief(
            day=request.session,
            instrument=prompts.instrument_line(identity),
            benchmark=request.benchmark,
            notes=prompts.identity_notes(identity),
            language=self.settings.output_language,
            price_lookback=self.settings.price_lookback,
            news_lookback_days=self.settings.news_lookback_days,
            lessons=prompts.lessons_text(request.own_lessons, request.other_lessons),
        )

    def _initial_state(
        self, request: CellRequest, identity: Identity, context: CellContext
    ) -> StateUpdate:
        """Return a state in which nothing has been said; every cell gets its own."""
        first = placeholder(context.brief)
        state: StateUpdate = {
            "messages": [first],
            "company_of_interest": identity.symbol,
            "trade_date": request.session.isoformat(),
            "asset_type": identity.asset_type,
            "instrument_context": "\n".join((context.brief.instrument, *context.brief.notes)),
            "market_report": "",
            "sentiment_report": "",
            "news_report": "",
            "fundamentals_report": "",
            "investment_debate_state": empty_debate(),
            "investment_plan": "",
            "trader_investment_plan": "",
            "risk_debate_state": empty_risk_debate(),
            "final_trade_decision": "",
            "past_context": context.brief.lessons,
            "typed_decision": "null",
            "rating": "",
            "rating_source": "none",
            "degraded": False,
        }
        for row in self.analysts:
            state[row.report_field] = ""
            if self.settings.analysts_parallel:
                state[row.branch_channel] = [first]
        return state

    def _run(self, context: CellContext, state: StateUpdate) -> Mapping[str, object]:
        # LangGraph counts supersteps, and one more to notice the end; ours, in `_add`, is exact.
        config: RunnableConfig = {"recursion_limit": context.limit + 1}
        try:
            final = self._graph.invoke(state, config=config, context=context)
        except GraphRecursionError as error:
            raise _out_of_steps(context) from error
        return cast("Mapping[str, object]", final)


def floor_graph(steps: int) -> Callable[[], object]:
    """Return a run of a graph of so many empty nodes over the cells' own state class.

    It is what LangGraph itself costs, for benchmarks to compare a cell with.
    """
    graph = StateGraph(cast("Any", WorkState))
    names = [f"step {number}" for number in range(steps)]
    for before, name in zip([START, *names], names, strict=False):
        graph.add_node(name, cast("Any", _empty_node))
        graph.add_edge(before, name)
    graph.add_edge(names[-1], END)
    compiled = graph.compile()

    def run() -> object:
        return compiled.invoke({"messages": []}, config={"recursion_limit": steps + 1})

    return run


def _empty_node(state: Mapping[str, object]) -> StateUpdate:
    return {}


# ---------------------------------------------------------------------------------------- the graph


def _compile(
    settings: PipelineSettings, models: Models, analysts: Sequence[AnalystRow]
) -> CompiledStateGraph[Any, Any, Any, Any]:
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
    return graph.compile()


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
    _add(graph, row.tools_node, tools_node(row, channel))
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
    """Add a node that reports its end; the count of steps and the progress come from here."""

    def run(state: Mapping[str, object], runtime: Runtime[CellContext]) -> StateUpdate:
        context = runtime.context
        if len(context.nodes) >= context.limit:
            raise _out_of_steps(context)
        update = node(state, runtime)
        context.nodes.append(name)
        if context.sink is not None:
            context.sink.node_finished(context.request.cell, name, update)
        return update

    graph.add_node(name, cast("Any", run))


# --------------------------------------------------------------------------------------- one cell


@contextmanager
def _installed(replies: ReplyStore | None, site: Site) -> Iterator[None]:
    """Let the models find the cell's replies, and reads outside a node their place."""
    store = CURRENT_REPLIES.set(replies)
    place = CURRENT_SITE.set(site)
    try:
        yield
    finally:
        CURRENT_SITE.reset(place)
        CURRENT_REPLIES.reset(store)


def _harness_site(request: CellRequest) -> Site:
    return Site(cell=request.cell, node=HARNESS, trial=request.trial, generation=request.generation)


def _decision(final: Mapping[str, object], *, steps: int) -> Decision:
    return Decision(
        rating=cast("str", final["rating"]) or None,
        source=cast("RatingSource", final["rating_source"]),
        typed=cast("str", final["typed_decision"]),
        markdown=cast("str", final["final_trade_decision"]),
        state=texts_of(final),
        steps=steps,
        degraded=bool(final["degraded"]),
    )


def _out_of_steps(context: CellContext) -> TurnLimitReached:
    last = context.nodes[-1] if context.nodes else "the start"
    return TurnLimitReached(
        f"{context.request.cell}: {context.limit} graph steps were not enough, the last was "
        f"{last}: raise recursion_limit or lower max_tool_turns"
    )


def _check_lesson_roles(settings: PipelineSettings, nodes: Sequence[str]) -> None:
    for role in settings.lesson_roles:
        if role not in nodes:
            raise SettingsError(
                f"lesson_roles names {role!r}, which is no role of this pipeline: "
                f"choose from {', '.join(nodes)}"
            )
