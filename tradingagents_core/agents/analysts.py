"""The analysts: a conversation with tools that ends in a report, or one look at given sources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, cast

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.runtime import Runtime

from tradingagents_core import prompts
from tradingagents_core.agents.calls import (
    BoundModel,
    CellContext,
    Node,
    StateUpdate,
    ask,
    call_arguments,
    said,
    told_of_tool,
)
from tradingagents_core.agents.structured import FormCaller, Question
from tradingagents_core.decisions import SENTIMENT, canonical_json
from tradingagents_core.errors import DataUnavailable
from tradingagents_core.prompts import Brief
from tradingagents_core.settings import PipelineSettings
from tradingagents_core.state import cleared, messages_of, text_of
from tradingagents_core.tools import ToolAnswer, ToolLimits, openai_tool, run_tool
from tradingagents_core.tools.social import SOCIAL, social_posts
from tradingagents_core.topology import AnalystRow, SourceRow


def analyst_node(
    row: AnalystRow, model: BaseChatModel, settings: PipelineSettings, channel: str
) -> Node:
    """Build the node of an analyst with tools.

    Each run of the node is one turn: the model calls tools, or writes its report. The turn after
    the last one allowed is asked for the report with tools refused; calls that it makes all the
    same are dropped, and the report says so.
    """
    offered = [openai_tool(name) for name in row.tools]
    looking = BoundModel.of(model.bind_tools(offered))
    writing = BoundModel.of(model.bind_tools(offered, tool_choice="none"))
    task = row.task or prompts.ANALYST_TASKS[row.key]
    limit = settings.max_tool_turns

    def node(state: Mapping[str, object], runtime: Runtime[CellContext]) -> StateUpdate:
        context = runtime.context
        held = messages_of(state, channel)
        turn = sum(1 for message in held if isinstance(message, AIMessage))
        last_turn = turn >= limit
        system = prompts.system_text(
            context.brief, row.node, prompts.analyst_task(context.brief, task)
        )
        sent = _conversation(system, held, _lessons(row, settings, context.brief))
        if last_turn:
            sent = _with_order(sent, prompts.REPORT_NOW.format(turns=limit))
        bound = writing if last_turn else looking
        reply = ask(bound, sent, context.site(row.node, turn), context.config)
        if last_turn:
            reply = _report_at_limit(reply, limit)
        elif reply.tool_calls or reply.invalid_tool_calls:
            return {channel: [reply]}
        return {channel: [reply], row.report_field: said(reply)}

    return node


def tools_node(row: AnalystRow, settings: PipelineSettings, channel: str) -> Node:
    """Build the node that runs an analyst's tool calls, one after the other in their order."""
    limits = tool_limits(settings)

    def node(state: Mapping[str, object], runtime: Runtime[CellContext]) -> StateUpdate:
        context = runtime.context
        held = messages_of(state, channel)
        done = sum(1 for message in held if isinstance(message, ToolMessage))
        answers: list[BaseMessage] = []
        degraded = False
        for call in call_arguments(cast("AIMessage", held[-1])):
            index = done + len(answers)
            with context.at(row.node, index, tool=call.name):
                work = partial(
                    run_tool, context.view, call.name, call.args, offered=row.tools, limits=limits
                )
                answer = told_of_tool(context.config, call.name, call.args, work)
            degraded = degraded or answer.degraded
            text = prompts.tool_text(call.name, answer.text)
            answers.append(ToolMessage(content=text, tool_call_id=call.id, name=call.name))
        return {channel: answers, "degraded": degraded}

    return node


def source_node(row: AnalystRow, model: BaseChatModel, settings: PipelineSettings) -> Node:
    """Build the node of the analyst that is given its sources beforehand and calls no tool."""
    caller = FormCaller(model, SENTIMENT, max_repairs=settings.max_repairs)
    task = row.task or prompts.ANALYST_TASKS[row.key]
    limits = tool_limits(settings)

    def node(state: Mapping[str, object], runtime: Runtime[CellContext]) -> StateUpdate:
        context = runtime.context
        symbol = text_of(state, "company_of_interest")
        answers = [
            _source(context, row, index, source=source, symbol=symbol, limits=limits)
            for index, source in enumerate(row.sources)
        ]
        blocks = [
            prompts.block(source.block, "data", answer.text)
            for source, answer in zip(row.sources, answers, strict=True)
        ]
        lessons = _lessons(row, settings, context.brief)
        question = Question(
            node=row.node,
            system=prompts.system_text(
                context.brief, row.node, prompts.analyst_task(context.brief, task)
            ),
            blocks=(*blocks, *lessons[:-1]),
            closing=lessons[-1:],
        )
        return {
            row.report_field: caller.answer(context, question).text,
            "degraded": any(answer.degraded for answer in answers),
        }

    return node


def tool_limits(settings: PipelineSettings) -> ToolLimits:
    """Return the settings' bounds on what tools show."""
    return ToolLimits(
        news_days=settings.news_lookback_days,
        news_items=settings.news_article_limit,
        global_news_days=settings.global_news_lookback_days,
        global_news_items=settings.global_news_article_limit,
    )


def clear_node(channel: str) -> Node:
    """Build the node that empties an analyst's conversation down to the placeholder."""

    def node(state: Mapping[str, object], runtime: Runtime[CellContext]) -> StateUpdate:
        return {channel: cleared(placeholder(runtime.context.brief))}

    return node


def placeholder(brief: Brief) -> HumanMessage:
    """Return the message that every analyst starts from."""
    return HumanMessage(content=prompts.placeholder_text(brief), id="placeholder")


def _lessons(row: AnalystRow, settings: PipelineSettings, brief: Brief) -> tuple[str, ...]:
    """Return the lessons' block, where there is one, and the line about it; usually nothing."""
    if row.node not in settings.lesson_roles:
        return ()
    return (*prompts.lesson_blocks(brief), prompts.lesson_closing(brief))


def _conversation(
    system: str, held: Sequence[BaseMessage], lessons: Sequence[str]
) -> list[BaseMessage]:
    opening, *rest = held
    if lessons:
        opening = HumanMessage(content=prompts.human_text(lessons, str(opening.text)))
    return [SystemMessage(content=system), opening, *rest]


def _with_order(sent: Sequence[BaseMessage], order: str) -> list[BaseMessage]:
    """Add an order at the end; some chat templates refuse two human messages in a row."""
    *before, last = sent
    if isinstance(last, HumanMessage):
        return [*before, HumanMessage(content=prompts.human_text((str(last.text),), order))]
    return [*sent, HumanMessage(content=order)]


def _report_at_limit(reply: AIMessage, limit: int) -> AIMessage:
    """Turn the reply to the last call into a report without tool calls, marked where it had any."""
    if not (reply.tool_calls or reply.invalid_tool_calls):
        return reply
    note = prompts.LIMIT_NOTE if str(reply.text).strip() else prompts.NO_REPORT_AT_LIMIT
    text = prompts.human_text((), str(reply.text).strip(), note.format(turns=limit))
    return AIMessage(content=text, id=reply.id)


def _source(
    context: CellContext,
    row: AnalystRow,
    index: int,
    *,
    source: SourceRow,
    symbol: str,
    limits: ToolLimits,
) -> ToolAnswer:
    """Fetch one source; what cannot be had says so in its block."""
    if source.tool:
        first = context.brief.day - timedelta(days=context.brief.news_lookback_days)
        args: dict[str, Any] = {
            "ticker": symbol,
            "start_date": first.isoformat(),
            "end_date": context.brief.day.isoformat(),
        }
        with context.at(row.node, index, tool=source.tool):
            work = partial(run_tool, context.view, source.tool, canonical_json(args), limits=limits)
            return told_of_tool(context.config, source.tool, canonical_json(args), work)
    with context.at(row.node, index, tool=source.block):
        try:
            if source.table == SOCIAL:
                owner = context.request.ticker
                text = social_posts(context.view, owner, source.block, limits)
                return ToolAnswer(text=text, degraded=False)
            context.view.require(source.table, context.request.ticker)
            reason = prompts.NOT_PRINTED.format(table=source.table)
        except DataUnavailable as error:
            reason = str(error)
    return ToolAnswer(text=prompts.missing_text(reason), degraded=False)
