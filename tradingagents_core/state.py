"""The state that the graph's nodes share, field by field.

`AgentState` is the contract with whoever reads a finished cell: reports, tests, exports. What the
graph needs besides (the typed decision, how its rating was read) is in `WorkState`, which adds to
it and is never shown.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Annotated, TypedDict, cast

from langchain_core.messages import BaseMessage, HumanMessage, RemoveMessage
from langgraph.graph import MessagesState
from langgraph.graph.message import REMOVE_ALL_MESSAGES, add_messages

from tradingagents_core.decisions import canonical_json


class InvestDebateState(TypedDict):
    """Hold the debate of the bull and the bear.

    `history` is the whole debate, the two others are each side's part of it. `current_response`
    is what was said last, beginning with the speaker; `count` counts what the two sides said.
    """

    bull_history: str
    bear_history: str
    history: str
    current_response: str
    judge_decision: str
    count: int


class RiskDebateState(TypedDict):
    """Hold the debate of the three risk analysts; `latest_speaker` is who spoke last."""

    aggressive_history: str
    conservative_history: str
    neutral_history: str
    history: str
    latest_speaker: str
    current_aggressive_response: str
    current_conservative_response: str
    current_neutral_response: str
    judge_decision: str
    count: int


class AgentState(MessagesState):
    """Hold everything that the agents of one cell know and say.

    `messages` (inherited) is the running analyst's own conversation; it is emptied down to a
    placeholder when its report is written.
    """

    company_of_interest: str
    trade_date: str
    asset_type: str
    instrument_context: str
    market_report: str
    sentiment_report: str
    news_report: str
    fundamentals_report: str
    investment_debate_state: InvestDebateState
    investment_plan: str
    trader_investment_plan: str
    risk_debate_state: RiskDebateState
    final_trade_decision: str
    past_context: str


class WorkState(AgentState):
    """Add what a run needs and no reader of the state is shown.

    `typed_decision` is canonical JSON, ``null`` for none; `rating` is empty for none.
    """

    typed_decision: str
    rating: str
    rating_source: str
    degraded: Annotated[bool, operator.or_]


Messages = Annotated[list[BaseMessage], add_messages]
WORK_FIELDS = frozenset({"typed_decision", "rating", "rating_source", "degraded"})


def empty_debate() -> InvestDebateState:
    """Return a debate in which nobody has spoken."""
    return InvestDebateState(
        bull_history="",
        bear_history="",
        history="",
        current_response="",
        judge_decision="",
        count=0,
    )


def empty_risk_debate() -> RiskDebateState:
    """Return a risk debate in which nobody has spoken."""
    return RiskDebateState(
        aggressive_history="",
        conservative_history="",
        neutral_history="",
        history="",
        latest_speaker="",
        current_aggressive_response="",
        current_conservative_response="",
        current_neutral_response="",
        judge_decision="",
        count=0,
    )


def text_of(state: Mapping[str, object], name: str) -> str:
    """Return a text field, empty where nobody has written it."""
    return cast("str", state.get(name, ""))


def messages_of(state: Mapping[str, object], channel: str) -> list[BaseMessage]:
    """Return the messages of a channel."""
    return cast("list[BaseMessage]", state[channel])


def cleared(placeholder: HumanMessage) -> list[BaseMessage]:
    """Return the update that leaves a channel with the placeholder alone."""
    return [RemoveMessage(id=REMOVE_ALL_MESSAGES), placeholder]


def texts_of(state: Mapping[str, object]) -> dict[str, str]:
    """Return the fields of a finished state as texts, sorted by name; debates as canonical JSON.

    Messages are reduced to type and content: their ids are the framework's and random.
    """
    texts: dict[str, str] = {}
    for name, value in sorted(state.items()):
        if name in WORK_FIELDS:
            continue
        if isinstance(value, str):
            texts[name] = value
        elif name == "messages":
            said = [[message.type, message.text] for message in messages_of(state, name)]
            texts[name] = canonical_json(said)
        elif isinstance(value, dict):
            texts[name] = canonical_json(value)
    return texts
