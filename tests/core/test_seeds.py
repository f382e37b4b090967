"""The pipeline against its description in the seed documents, row by row.

Each table below is the documents' word; what stands beside it is what this pipeline has.
"""

from __future__ import annotations

from typing import get_type_hints

import pytest

from tests.core.scripted_cast import (
    DECISION_TEXT,
    PLAN_TEXT,
    PROPOSAL_TEXT,
    SENTIMENT_TEXT,
    Cast,
    Watch,
    cell,
    fixed_view,
    lesson,
    pipeline,
)
from tradingagents_core import prompts
from tradingagents_core.decisions import DECISION, PLAN, PROPOSAL
from tradingagents_core.ratings import TIERS
from tradingagents_core.settings import PipelineSettings
from tradingagents_core.state import AgentState, InvestDebateState, RiskDebateState
from tradingagents_core.topology import ANALYSTS, REFLECTOR, step_limit, tier_of_node

# field -> who writes it; None for what is there from the start
STATE_FIELDS = {
    "company_of_interest": None,
    "trade_date": None,
    "asset_type": None,
    "instrument_context": None,
    "past_context": None,
    "market_report": "Market Analyst",
    "sentiment_report": "Sentiment Analyst",
    "news_report": "News Analyst",
    "fundamentals_report": "Fundamentals Analyst",
    "investment_debate_state": "Bull Researcher",
    "investment_plan": "Research Manager",
    "trader_investment_plan": "Trader",
    "risk_debate_state": "Aggressive Analyst",
    "final_trade_decision": "Portfolio Manager",
}
DEBATE_FIELDS = {
    InvestDebateState: [
        *("bull_history", "bear_history", "history", "current_response"),
        *("judge_decision", "count"),
    ],
    RiskDebateState: [
        *("aggressive_history", "conservative_history", "neutral_history", "history"),
        *("latest_speaker", "current_aggressive_response", "current_conservative_response"),
        *("current_neutral_response", "judge_decision", "count"),
    ],
}
# key -> agent node, tools node, clear node, report field, tools
ANALYST_ROWS = {
    "market": (
        *("Market Analyst", "tools_market", "Msg Clear Market", "market_report"),
        ("get_stock_data", "get_indicators", "get_verified_market_snapshot"),
    ),
    "social": (
        *("Sentiment Analyst", "tools_social", "Msg Clear Sentiment", "sentiment_report"),
        (),
    ),
    "news": (
        *("News Analyst", "tools_news", "Msg Clear News", "news_report"),
        (
            *("get_news", "get_global_news", "get_insider_transactions"),
            *("get_macro_indicators", "get_prediction_markets"),
        ),
    ),
    "fundamentals": (
        *("Fundamentals Analyst", "tools_fundamentals", "Msg Clear Fundamentals"),
        "fundamentals_report",
        ("get_fundamentals", "get_balance_sheet", "get_cashflow", "get_income_statement"),
    ),
}
TIERS_OF_ROLES = {
    "Market Analyst": "quick",
    "Sentiment Analyst": "quick",
    "News Analyst": "quick",
    "Fundamentals Analyst": "quick",
    "Bull Researcher": "quick",
    "Bear Researcher": "quick",
    "Research Manager": "deep",
    "Trader": "quick",
    "Aggressive Analyst": "quick",
    "Conservative Analyst": "quick",
    "Neutral Analyst": "quick",
    "Portfolio Manager": "deep",
    REFLECTOR: "quick",
}
HEADERS = {
    SENTIMENT_TEXT: ["**Overall Sentiment**: Mixed", "**Score**: 5 / 10", "**Confidence**: low"],
    PLAN_TEXT: ["**Recommendation**: ", "**Rationale**: ", "**Strategic Actions**: "],
    PROPOSAL_TEXT: ["**Action**: Buy", "**Reasoning**: ", "FINAL TRANSACTION PROPOSAL: **BUY**"],
    DECISION_TEXT: ["**Rating**: ", "**Executive Summary**: ", "**Investment Thesis**: "],
}


@pytest.mark.parametrize("name", STATE_FIELDS)
def test_a_field_of_the_state_is_written_by_its_role(name: str) -> None:
    assert name in get_type_hints(AgentState)
    watch = Watch()
    decision = pipeline(Cast()).decide(cell(own_lessons=(lesson(),)), fixed_view(), sink=watch)
    assert decision.state[name]
    writer = STATE_FIELDS[name]
    writers = [node for node in watch.updates if name in watch.updates[node]]
    assert (writer is None and not writers) or writer in writers


def test_the_state_holds_nothing_else_but_the_messages() -> None:
    assert set(get_type_hints(AgentState)) == {*STATE_FIELDS, "messages"}


@pytest.mark.parametrize("shape", DEBATE_FIELDS, ids=lambda shape: str(shape.__name__))
def test_a_debate_has_the_fields_described(shape: type) -> None:
    assert sorted(get_type_hints(shape)) == sorted(DEBATE_FIELDS[shape])


def test_the_analysts_are_those_described() -> None:
    assert {
        row.key: (row.node, row.tools_node, row.clear_node, row.report_field, row.tools)
        for row in ANALYSTS
    } == ANALYST_ROWS


@pytest.mark.parametrize("role", TIERS_OF_ROLES)
def test_a_role_thinks_with_the_model_described(role: str) -> None:
    assert tier_of_node(role) == TIERS_OF_ROLES[role]


@pytest.mark.parametrize("text", HEADERS, ids=["sentiment", "plan", "proposal", "decision"])
def test_a_report_has_its_fixed_headers_in_order(text: str) -> None:
    places = [text.index(header) for header in HEADERS[text]]
    assert places == sorted(places)
    decision = pipeline(Cast()).decide(cell(), fixed_view())
    assert text in decision.state.values()


def test_the_last_line_of_a_proposal_is_the_old_stop_signal() -> None:
    assert PROPOSAL_TEXT.splitlines()[-1] == "FINAL TRANSACTION PROPOSAL: **BUY**"


def test_ratings_have_five_tiers_and_actions_three() -> None:
    assert set(TIERS) == {"Buy", "Overweight", "Hold", "Underweight", "Sell"}
    assert set(DECISION.choices) == set(PLAN.choices) == set(TIERS)
    assert set(PROPOSAL.choices) == {"Buy", "Hold", "Sell"}


def test_the_log_names_a_decision_in_the_form_described() -> None:
    # [date | ticker | rating | raw | alpha | Nd]
    assert prompts.lesson_tag(lesson()) == "[2018-05-04 | FB | Buy | +1.23% | -0.40% | 5d]"
    shown = prompts.lessons_text([lesson()], [])
    places = [shown.index(word) for word in ("[2018-05-04", "DECISION:", "REFLECTION:")]
    assert places == sorted(places)


def test_speakers_are_signed_so_that_the_routers_know_them() -> None:
    watch = Watch()
    pipeline(Cast()).decide(cell(), fixed_view(), sink=watch)
    debate = watch.updates["Bull Researcher"]["investment_debate_state"]
    assert debate["current_response"].startswith("Bull Analyst: ")
    assert debate["count"] == 1
    risk = watch.updates["Conservative Analyst"]["risk_debate_state"]
    assert (risk["latest_speaker"], risk["count"]) == ("Conservative", 2)


def test_the_recursion_limit_is_a_hundred() -> None:
    assert step_limit(PipelineSettings()) == 100
