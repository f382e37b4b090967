"""What a node of one cell works with, and how it asks a model."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import Runnable, RunnableBinding, RunnableConfig
from langchain_core.runnables.config import ensure_config, get_callback_manager_for_config
from langgraph.runtime import Runtime

from tradingagents_core.errors import ModelOutcome
from tradingagents_core.llm.replaying import ReplayingModel
from tradingagents_core.prompts import Brief
from tradingagents_core.protocols import CURRENT_SITE, CellRequest, Sink, Site, ToolCall, View
from tradingagents_core.tools import ToolAnswer

StateUpdate = dict[str, object]


@dataclass(frozen=True, kw_only=True)
class CellContext:
    """Hold what belongs to one cell and is no state: it travels as the graph's runtime context.

    Attributes:
        request: What is asked for.
        view: Data at the cutoff.
        brief: What every prompt of the cell says.
        limit: Steps that the cell may take.
        nodes: Names of the nodes that ran, in order of their end.
        sink: Takes progress, or None.
        on_node: Takes the name of each node as it begins, or None.
        config: How calls are told to callback handlers; None where there are none.
    """

    request: CellRequest
    view: View
    brief: Brief
    limit: int
    nodes: list[str]
    sink: Sink | None = None
    on_node: Callable[[str], None] | None = None
    config: RunnableConfig | None = None

    def site(self, node: str, index: int, **changes: Any) -> Site:
        """Return the place of a call or read of this cell."""
        return Site(
            cell=self.request.cell,
            node=node,
            index=index,
            trial=self.request.trial,
            generation=self.request.generation,
            **changes,
        )

    @contextmanager
    def at(self, node: str, index: int, *, tool: str = "") -> Iterator[None]:
        """Make every read inside the block known as this place's."""
        token = CURRENT_SITE.set(self.site(node, index, tool=tool))
        try:
            yield
        finally:
            CURRENT_SITE.reset(token)


@dataclass(frozen=True, kw_only=True)
class BoundModel:
    """Hold a model with what is bound to it, ready to be asked.

    Attributes:
        model: Chat model, or whatever its ``bind_tools`` returned.
        arguments: Handed over with every call.
    """

    model: Runnable[LanguageModelInput, AIMessage]
    arguments: Mapping[str, Any]

    @classmethod
    def of(cls, model: Runnable[LanguageModelInput, AIMessage], **arguments: Any) -> BoundModel:
        """Wrap a model; a plain binding is unwrapped, for its own call merges configs at length."""
        if isinstance(model, RunnableBinding) and not (model.config or model.config_factories):
            return cls(model=model.bound, arguments={**model.kwargs, **arguments})
        return cls(model=model, arguments=arguments)


Node = Callable[[Mapping[str, object], Runtime[CellContext]], StateUpdate]


def ask(
    bound: BoundModel,
    messages: Sequence[BaseMessage],
    site: Site,
    config: RunnableConfig | None = None,
) -> AIMessage:
    """Make one model call from a place in the run.

    Args:
        bound: Who is asked.
        messages: What is said.
        site: Where the call is made.
        config: Callback handlers to tell of the call, besides those of the graph's run that
            surrounds it. None tells nobody, which is several times cheaper with recorded models.

    Raises:
        ModelOutcome: The attempt ended without an answer.
        ReplayMiss: A strict replay has no recording for it.
    """
    token = CURRENT_SITE.set(site)
    try:
        if config is None and isinstance(bound.model, ReplayingModel):
            return bound.model.answer(list(messages), **bound.arguments)
        return bound.model.invoke(list(messages), config, **bound.arguments)
    finally:
        CURRENT_SITE.reset(token)


def told_of_tool(
    config: RunnableConfig | None, name: str, args: str, work: Callable[[], ToolAnswer]
) -> ToolAnswer:
    """Run a tool between the two events by which handlers know of it.

    There is no event of failure: what a tool cannot do is its answer, and a leak ends the run.
    """
    if config is None:
        return work()
    manager = get_callback_manager_for_config(ensure_config(config))
    event = manager.on_tool_start({"name": name}, args)
    answer = work()
    event.on_tool_end(answer.text)
    return answer


def said(reply: AIMessage) -> str:
    """Return the text of a reply that has to have one.

    Raises:
        ModelOutcome: The text is empty.
    """
    text = str(reply.text).strip()
    if not text:
        raise ModelOutcome("empty", "the reply has no text")
    return text


def call_arguments(reply: AIMessage) -> tuple[ToolCall, ...]:
    """Return the tool calls of a reply, those with unreadable arguments last."""
    good = [
        ToolCall(id=call["id"] or "", name=call["name"], args=_json_text(call["args"]))
        for call in reply.tool_calls
    ]
    broken = [
        ToolCall(id=call["id"] or "", name=call["name"] or "", args=call["args"] or "")
        for call in reply.invalid_tool_calls
    ]
    return (*good, *broken)


def _json_text(args: Mapping[str, Any]) -> str:
    return json.dumps(args, sort_keys=True, ensure_ascii=False)
