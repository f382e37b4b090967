"""A scripted model that plays every role of the pipeline, and a sink that watches the nodes."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage

from tests.support.fixed_view import FixedView, bars_of
from tradingagents_core.graph import Models, Pipeline
from tradingagents_core.llm.doubles import Line, ScriptedChatModel, tool_reply
from tradingagents_core.protocols import CURRENT_SITE, CellRequest, Lesson, Site
from tradingagents_core.settings import PipelineSettings

Turns = Mapping[str, Sequence[Sequence[tuple[str, Mapping[str, Any]]]]]

DAY = date(2018, 6, 29)
SESSIONS = ["2018-06-25", "2018-06-26", "2018-06-27", "2018-06-28", "2018-06-29"]
CLOSES = [196.35, 199.0, 195.84, 196.23, 194.32]
DOCUMENTS: Mapping[str, Mapping[str, Any]] = {
    "SentimentReport": {
        "overall_sentiment": "Mixed",
        "score": 5,
        "confidence": "low",
        "narrative": "Little to go on.",
    },
    "ResearchPlan": {
        "recommendation": "Overweight",
        "rationale": "The bull had the figures.",
        "strategic_actions": "Build up in steps.",
    },
    "TraderProposal": {
        "action": "Buy",
        "reasoning": "As planned.",
        "entry_price": None,
        "stop_loss": None,
        "position_sizing": None,
    },
    "PortfolioDecision": {
        "rating": "Overweight",
        "executive_summary": "Add in steps.",
        "investment_thesis": "Trend holds.",
        "price_target": None,
        "time_horizon": None,
    },
}
PLAN_TEXT = (
    "**Recommendation**: Overweight\n\n**Rationale**: The bull had the figures.\n\n"
    "**Strategic Actions**: Build up in steps."
)
PROPOSAL_TEXT = (
    "**Action**: Buy\n\n**Reasoning**: As planned.\n\nFINAL TRANSACTION PROPOSAL: **BUY**"
)
DECISION_TEXT = (
    "**Rating**: Overweight\n\n**Executive Summary**: Add in steps.\n\n"
    "**Investment Thesis**: Trend holds."
)
SENTIMENT_TEXT = (
    "**Overall Sentiment**: Mixed\n\n**Score**: 5 / 10\n\n**Confidence**: low\n\nLittle to go on."
)


@dataclass(frozen=True, kw_only=True)
class Heard:
    """Hold one call as the model saw it."""

    tier: str
    role: str
    site: Site
    messages: tuple[BaseMessage, ...]
    arguments: Mapping[str, Any]

    @property
    def text(self) -> str:
        """All of the prompt's text."""
        return "\n".join(str(message.text) for message in self.messages)


@dataclass
class Cast:
    """Play every role by a short script.

    Attributes:
        turns: Role -> tool calls of its turns, one list a turn; afterwards it writes.
        lines: Role -> what it says instead of its usual line, call by call.
        always: Role that never stops calling tools.
    """

    turns: Turns = field(default_factory=dict)
    lines: Mapping[str, Sequence[Line]] = field(default_factory=dict)
    always: str = ""
    heard: list[Heard] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._lock = threading.Lock()

    def models(self) -> Models:
        return Models(quick=self._model("quick"), deep=self._model("deep"))

    def prompts(self, role: str) -> list[str]:
        return [call.text for call in self.heard if call.role == role]

    def _model(self, tier: str) -> ScriptedChatModel:
        return ScriptedChatModel(
            script=lambda messages, arguments: self._say(tier, messages, arguments)
        )

    def _say(self, tier: str, messages: list[BaseMessage], arguments: Mapping[str, Any]) -> Line:
        role = str(messages[0].text).splitlines()[0].removeprefix("Role: ")
        call = Heard(
            tier=tier,
            role=role,
            site=CURRENT_SITE.get(),
            messages=tuple(messages),
            arguments=arguments,
        )
        with self._lock:
            self.heard.append(call)
            number = sum(1 for other in self.heard if _same_lane(other, call)) - 1
        if role in self.lines and number < len(self.lines[role]):
            return self.lines[role][number]
        spoken = sum(1 for message in messages if isinstance(message, AIMessage))
        if role == self.always:
            return tool_reply(("get_stock_data", {"symbol": "FB"}))
        turns = self.turns.get(role, ())
        if spoken < len(turns):
            return tool_reply(*turns[spoken])
        if "response_format" in arguments:
            name = arguments["response_format"]["json_schema"]["name"]
            return json.dumps(DOCUMENTS[name])
        return f"{role} speaks, call {call.site.index}."


def _same_lane(one: Heard, other: Heard) -> bool:
    return (one.role, one.site.cell) == (other.role, other.site.cell)


@dataclass
class Watch:
    """Note the nodes as they end."""

    nodes: list[str] = field(default_factory=list)
    updates: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    def node_finished(self, cell: str, node: str, update: Mapping[str, Any]) -> None:
        self.nodes.append(node)
        self.updates[node] = update


def fixed_view(**changes: Any) -> FixedView:
    return FixedView(bars_of(SESSIONS, CLOSES), **changes)


def cell(**changes: Any) -> CellRequest:
    request = CellRequest(
        cell="META|2018-06-29|0",
        ticker="META",
        session=DAY,
        trial=0,
        generation=0,
        benchmark="^GSPC",
    )
    return replace(request, **changes)


def pipeline(cast: Cast, **settings: Any) -> Pipeline:
    return Pipeline(PipelineSettings(**settings), cast.models())


def lesson(**changes: Any) -> Lesson:
    held = Lesson(
        symbol="FB",
        session=date(2018, 5, 4),
        rating="Buy",
        horizon=5,
        raw_return=0.0123,
        alpha=-0.004,
        benchmark="^GSPC",
        decision="**Rating**: Buy",
        reflection="Do not chase it.",
    )
    return replace(held, **changes)
