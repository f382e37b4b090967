"""The pipeline: the graph compiled once, one cell a call.

A `Pipeline` holds no state of any cell. The view, the request and the brief travel as LangGraph's
runtime context, so any number of threads may decide through one pipeline at a time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.errors import GraphRecursionError
from langgraph.graph import END, START, StateGraph

from tradingagents_core import prompts
from tradingagents_core.agents.analysts import placeholder
from tradingagents_core.agents.calls import CellContext, StateUpdate
from tradingagents_core.agents.reflector import ReflectionRequest, reflect
from tradingagents_core.decisions import FORMS, canonical_json, response_schema
from tradingagents_core.errors import SettingsError
from tradingagents_core.fingerprint import prompt_texts
from tradingagents_core.flow import Flow, Models, out_of_steps
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
from tradingagents_core.state import WorkState, empty_debate, empty_risk_debate, texts_of
from tradingagents_core.tools import tool_texts
from tradingagents_core.topology import (
    ANALYSTS,
    AnalystRow,
    analysts_for,
    chosen_analysts,
    role_nodes,
    step_limit,
    topology_document,
)

if TYPE_CHECKING:
    from langgraph.graph.state import CompiledStateGraph

__all__ = ["Models", "Pipeline", "ReflectionRequest", "floor_graph"]

HARNESS = "harness"


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
        self._flow = Flow(settings, models, self.analysts)

    def decide(
        self,
        request: CellRequest,
        view: View,
        *,
        replies: ReplyStore | None = None,
        sink: Sink | None = None,
        on_node: Callable[[str], None] | None = None,
        callbacks: Sequence[BaseCallbackHandler] = (),
        checkpointer: BaseCheckpointSaver[str] | None = None,
        thread_id: str | None = None,
    ) -> Decision:
        """Decide one cell.

        With a checkpointer a stopped cell goes on at the node where it stopped, and one that had
        ended is not run again; the caller clears what was saved once it has kept the decision.

        Args:
            request: Ticker, session and lessons.
            view: Data at the cutoff.
            replies: Store of the cell's model replies; None leaves the models live.
            sink: Takes each node's update as the node ends.
            on_node: Takes each node's name as it begins; parallel branches call from threads.
            callbacks: LangChain handlers that are told of nodes, model calls and tools.
            checkpointer: LangGraph saver that keeps the state of a cell under way.
            thread_id: Names the cell there; it must stand for all that can change an answer.

        Returns:
            The decision; its rating is None where none could be read.

        Raises:
            PipelineError: The cell cannot be decided: no answer, no recording, no steps left.
            SettingsError: A checkpointer without a thread id.
            LookaheadError: A later row was about to be seen.
        """
        if checkpointer is not None and not thread_id:
            raise SettingsError("a checkpointer keeps cells by name: give the cell a thread_id")
        with _installed(replies, _harness_site(request)):
            identity = view.identity(request.ticker)
            flow = self._flow_for(identity)
            # An empty config is filled in by the graph's own run, which the handlers follow.
            heard = RunnableConfig() if callbacks else None
            context = self._context(request, view, identity)
            context = replace(context, sink=sink, on_node=on_node, config=heard)
            state = self._initial_state(request, identity, context)
            thread = None if checkpointer is None else thread_id
            config = _graph_config(context, callbacks, thread)
            final = _run(flow.checkpointed(checkpointer), context, state, config=config)
        return _decision(final, steps=len(context.nodes))

    def reflect(
        self,
        request: ReflectionRequest,
        *,
        replies: ReplyStore | None = None,
        callbacks: Sequence[BaseCallbackHandler] = (),
    ) -> str:
        """Write the lesson of one resolved decision.

        Args:
            request: The decision and what it earned.
            replies: Store of the lesson's model reply; None leaves the model live.
            callbacks: LangChain handlers that are told of the call.

        Raises:
            PipelineError: The model gave no answer, or a strict replay has no recording.
        """
        with _installed(replies, CURRENT_SITE.get()):
            config = RunnableConfig(callbacks=list(callbacks)) if callbacks else None
            return reflect(self.models.quick, request, self.settings, config)

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

    def _context(self, request: CellRequest, view: View, identity: Identity) -> CellContext:
        return CellContext(
            request=request,
            view=view,
            brief=self._brief(request, identity),
            limit=step_limit(self.settings),
            nodes=[],
        )

    def _flow_for(self, identity: Identity) -> Flow:
        rows = analysts_for(identity, self.analysts)
        return self._flow if rows == self.analysts else self._flow_without_company

    @cached_property
    def _flow_without_company(self) -> Flow:
        rows = tuple(row for row in self.analysts if not row.of_companies)
        return Flow(self.settings, self.models, rows)

    def _brief(self, request: CellRequest, identity: Identity) -> prompts.Brief:
        return prompts.Brief(
            day=request.session,
            instrument=prompts.instrument_line(identity),
            benchmark=request.benchmark,
            notes=prompts.identity_notes(identity),
            language=self.settings.output_language,
            debate_language=self.settings.debate_language,
            price_lookback=self.settings.price_lookback,
            news_lookback_days=self.settings.news_lookback_days,
            global_news_lookback_days=self.settings.global_news_lookback_days,
            lessons=prompts.lessons_text(request.own_lessons, request.other_lessons),
            book=request.book,
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


# --------------------------------------------------------------------------------------- one cell


def _graph_config(
    context: CellContext, callbacks: Sequence[BaseCallbackHandler], thread_id: str | None
) -> RunnableConfig:
    # LangGraph counts supersteps, and one more to notice the end; our own count is exact.
    config = RunnableConfig(recursion_limit=context.limit + 1)
    if callbacks:
        config["callbacks"] = list(callbacks)
    if thread_id is not None:
        config["configurable"] = {"thread_id": thread_id}
    return config


def _run(
    graph: CompiledStateGraph[Any, Any, Any, Any],
    context: CellContext,
    state: StateUpdate,
    *,
    config: RunnableConfig,
) -> Mapping[str, object]:
    """Run a cell to its end, from its start or from where it was stopped."""
    start: StateUpdate | None = state
    saves = "configurable" in config
    if saves:
        saved = graph.get_state(config)
        if saved.values:
            context.nodes.extend(_nodes_done(graph, config))
            if not saved.next:
                return cast("Mapping[str, object]", saved.values)
            start = None
    try:
        final = graph.invoke(
            start, config=config, context=context, durability="sync" if saves else None
        )
    except GraphRecursionError as error:
        raise out_of_steps(context) from error
    return cast("Mapping[str, object]", final)


def _nodes_done(
    graph: CompiledStateGraph[Any, Any, Any, Any], config: RunnableConfig
) -> Iterator[str]:
    """Yield the nodes that ended before a cell was stopped, oldest first.

    Everything that a saved state was about to do is done in the state saved after it. In the last
    one only those branches are done that left their result behind.
    """
    newest, *older = graph.get_state_history(config)
    for saved in reversed(older):
        yield from (task.name for task in saved.tasks if task.name != START)
    yield from (task.name for task in newest.tasks if task.result is not None)


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


def _check_lesson_roles(settings: PipelineSettings, nodes: Sequence[str]) -> None:
    for role in settings.lesson_roles:
        if role not in nodes:
            raise SettingsError(
                f"lesson_roles names {role!r}, which is no role of this pipeline: "
                f"choose from {', '.join(nodes)}"
            )
