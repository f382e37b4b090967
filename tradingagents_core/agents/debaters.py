"""The debaters: one node function for every speaker of both debates, told apart by its row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import HumanMessage, SystemMessage
from langgraph.runtime import Runtime

from tradingagents_core import prompts
from tradingagents_core.agents.calls import BoundModel, CellContext, Node, StateUpdate, ask, said
from tradingagents_core.settings import PipelineSettings
from tradingagents_core.state import text_of
from tradingagents_core.topology import AnalystRow, DebateRow, SpeakerRow


def debater_node(
    debate: DebateRow,
    speaker: SpeakerRow,
    model: BaseChatModel,
    settings: PipelineSettings,
    analysts: Sequence[AnalystRow],
) -> Node:
    """Build the node of one speaker: read, answer the others, add to the histories, count."""
    bound = BoundModel.of(model)

    def node(state: Mapping[str, object], runtime: Runtime[CellContext]) -> StateUpdate:
        context = runtime.context
        held = cast("Mapping[str, object]", state[debate.state_field])
        count = cast("int", held["count"])
        blocks = (*report_blocks(state, analysts), *_proposal(state, debate))
        blocks = (*blocks, *_heard(held, debate, speaker))
        closing = () if count else (prompts.OPENING_SPEECH,)
        if speaker.node in settings.lesson_roles:
            blocks = (*blocks, *prompts.lesson_blocks(context.brief))
            closing = (*closing, prompts.lesson_closing(context.brief))
        task = prompts.DEBATE_TASKS[speaker.node]
        messages = (
            SystemMessage(content=prompts.system_text(context.brief, speaker.node, task)),
            HumanMessage(content=prompts.human_text(blocks, *closing, prompts.SPEAK_NOW)),
        )
        turn = count // len(debate.speakers)
        site = context.site(speaker.node, turn)
        speech = said(ask(bound, messages, site, context.config))
        return {debate.state_field: _spoken(held, debate, speaker, f"{speaker.label}: {speech}")}

    return node


def report_blocks(state: Mapping[str, object], analysts: Sequence[AnalystRow]) -> tuple[str, ...]:
    """Return the reports of the chosen analysts as blocks, in the order of their work."""
    return tuple(
        prompts.block(row.report_field, "report", text_of(state, row.report_field))
        for row in analysts
    )


def _proposal(state: Mapping[str, object], debate: DebateRow) -> tuple[str, ...]:
    """Return the trader's proposal where the debate is about it."""
    if not debate.about_proposal:
        return ()
    return (prompts.block("trader_plan", "plan", text_of(state, "trader_investment_plan")),)


def _heard(held: Mapping[str, object], debate: DebateRow, speaker: SpeakerRow) -> tuple[str, ...]:
    """Return the debate so far and what the others said last; nothing where nobody has spoken."""
    if not held["count"]:
        return ()
    others = [row.response_field for row in debate.speakers if row is not speaker]
    last = [text for name in others if (text := cast("str", held[name]))]
    blocks = [prompts.block(debate.history_block, "debate", cast("str", held["history"]))]
    if last:
        blocks.append(prompts.block(debate.others_block, "debate", "\n\n".join(last)))
    return tuple(blocks)


def _spoken(
    held: Mapping[str, object], debate: DebateRow, speaker: SpeakerRow, argument: str
) -> StateUpdate:
    """Return the debate after one more contribution."""
    said_now: StateUpdate = {
        **held,
        "history": _joined(held["history"], argument),
        speaker.history_field: _joined(held[speaker.history_field], argument),
        "count": cast("int", held["count"]) + 1,
    }
    said_now[debate.last_field] = speaker.tag
    said_now[speaker.response_field] = argument
    return said_now


def _joined(history: object, argument: str) -> str:
    return f"{history}\n{argument}" if history else argument
