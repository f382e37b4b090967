"""The deciders: research manager, trader and portfolio manager, each of whom fills a form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from langchain_core.language_models import BaseChatModel
from langgraph.runtime import Runtime

from tradingagents_core import holdings, prompts
from tradingagents_core.agents.calls import CellContext, Node, StateUpdate
from tradingagents_core.agents.debaters import report_blocks
from tradingagents_core.agents.structured import Answer, FormCaller, Question
from tradingagents_core.decisions import DECISION, PLAN, PROPOSAL, typed_json
from tradingagents_core.settings import PipelineSettings
from tradingagents_core.state import text_of
from tradingagents_core.topology import INVEST_DEBATE, RISK_DEBATE, TRADER, AnalystRow, DebateRow

JUDGE = "Judge"


def research_manager_node(
    model: BaseChatModel, settings: PipelineSettings, analysts: Sequence[AnalystRow]
) -> Node:
    """Build the node that settles the first debate with a plan."""
    caller = FormCaller(model, PLAN, max_repairs=settings.max_repairs)
    role = INVEST_DEBATE.judge

    def node(state: Mapping[str, object], runtime: Runtime[CellContext]) -> StateUpdate:
        blocks = (*report_blocks(state, analysts), _debate_block(state, INVEST_DEBATE))
        question = _question(runtime.context, settings, role, blocks, rated=True)
        text = caller.answer(runtime.context, question).text
        held = _held(state, INVEST_DEBATE)
        judged = {**held, "judge_decision": text, "current_response": text}
        return {"investment_plan": text, INVEST_DEBATE.state_field: judged}

    return node


def trader_node(
    model: BaseChatModel, settings: PipelineSettings, analysts: Sequence[AnalystRow]
) -> Node:
    """Build the node that turns the plan into a proposal."""
    caller = FormCaller(model, PROPOSAL, max_repairs=settings.max_repairs)

    def node(state: Mapping[str, object], runtime: Runtime[CellContext]) -> StateUpdate:
        blocks = (*report_blocks(state, analysts), _plan_block(state))
        question = _question(runtime.context, settings, TRADER, blocks, rated=False)
        return {"trader_investment_plan": caller.answer(runtime.context, question).text}

    return node


def portfolio_manager_node(
    model: BaseChatModel, settings: PipelineSettings, analysts: Sequence[AnalystRow]
) -> Node:
    """Build the node that gives the rating; the typed decision is the cell's result."""
    caller = FormCaller(model, DECISION, max_repairs=settings.max_repairs)
    role = RISK_DEBATE.judge

    def node(state: Mapping[str, object], runtime: Runtime[CellContext]) -> StateUpdate:
        blocks = (
            *report_blocks(state, analysts),
            _plan_block(state),
            prompts.block("trader_plan", "plan", text_of(state, "trader_investment_plan")),
            _debate_block(state, RISK_DEBATE),
        )
        question = _question(runtime.context, settings, role, blocks, rated=True)
        return _decided(state, caller.answer(runtime.context, question))

    return node


def _decided(state: Mapping[str, object], answer: Answer) -> StateUpdate:
    held = _held(state, RISK_DEBATE)
    return {
        "final_trade_decision": answer.text,
        RISK_DEBATE.state_field: {
            **held,
            "judge_decision": answer.text,
            "latest_speaker": JUDGE,
        },
        "typed_decision": typed_json(answer.value),
        "rating": answer.word or "",
        "rating_source": answer.source,
    }


def _question(
    context: CellContext,
    settings: PipelineSettings,
    role: str,
    blocks: tuple[str, ...],
    *,
    rated: bool,
) -> Question:
    """Put a role's question together; book and lessons come last and change a prompt's end."""
    closing: tuple[str, ...] = ()
    if role == RISK_DEBATE.judge:
        blocks = (*blocks, *holdings.book_blocks(context.brief))
        closing = holdings.book_closing(context.brief)
    if role in settings.lesson_roles:
        blocks = (*blocks, *prompts.lesson_blocks(context.brief))
        closing = (*closing, prompts.lesson_closing(context.brief))
    task = prompts.decision_task(role, rated=rated)
    return Question(
        node=role,
        system=prompts.system_text(context.brief, role, task),
        blocks=blocks,
        closing=closing,
    )


def _held(state: Mapping[str, object], debate: DebateRow) -> Mapping[str, object]:
    return cast("Mapping[str, object]", state[debate.state_field])


def _debate_block(state: Mapping[str, object], debate: DebateRow) -> str:
    history = cast("str", _held(state, debate)["history"])
    return prompts.block(debate.history_block, "debate", history)


def _plan_block(state: Mapping[str, object]) -> str:
    return prompts.block("investment_plan", "plan", text_of(state, "investment_plan"))
