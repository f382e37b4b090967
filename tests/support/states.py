"""Build a finished state as a decision carries it: every field a text, debates as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

DEBATE: Mapping[str, Any] = {
    "bull_history": "Bull Analyst: up",
    "bear_history": "Bear Analyst: down",
    "history": "Bull Analyst: up\nBear Analyst: down",
    "current_response": "**Recommendation**: Overweight",
    "judge_decision": "**Recommendation**: Overweight",
    "count": 2,
}
RISK: Mapping[str, Any] = {
    "aggressive_history": "Aggressive Analyst: more",
    "conservative_history": "Conservative Analyst: less",
    "neutral_history": "Neutral Analyst: half",
    "history": "Aggressive Analyst: more\nConservative Analyst: less\nNeutral Analyst: half",
    "latest_speaker": "Judge",
    "current_aggressive_response": "Aggressive Analyst: more",
    "current_conservative_response": "Conservative Analyst: less",
    "current_neutral_response": "Neutral Analyst: half",
    "judge_decision": "**Rating**: Buy",
    "count": 3,
}


def make_state(**changes: str) -> dict[str, str]:
    """Make the state of a decision on FB in which every role has spoken."""
    fields = {
        "messages": '[["human","Carry on."]]',
        "company_of_interest": "FB",
        "trade_date": "2018-06-29",
        "asset_type": "stock",
        "instrument_context": "FB (Facebook, Inc.), NASDAQ, quoted in USD",
        "market_report": "Trend is up.",
        "sentiment_report": "Mixed.",
        "news_report": "Quiet.",
        "fundamentals_report": "Sound.",
        "investment_debate_state": json.dumps(DEBATE),
        "investment_plan": "**Recommendation**: Overweight",
        "trader_investment_plan": "**Action**: Buy\n\nFINAL TRANSACTION PROPOSAL: **BUY**",
        "risk_debate_state": json.dumps(RISK),
        "final_trade_decision": "**Rating**: Buy",
        "past_context": "",
    }
    return {**fields, **changes}
