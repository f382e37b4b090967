"""Build prompts in the pipeline's block form, for the tests of the rulebook model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage, ToolMessage

from tradingagents_core.llm.rulebook import RulebookChatModel

# Worked out by hand: trend +3, momentum -1 +1, RSI between 30 and 70, drawdown above -20 %.
FIGURES: Mapping[str, str] = {
    "latest_session": "2018-06-29",
    "close": "194.32",
    "close_50_sma": "188.10",
    "close_200_sma": "179.55",
    "macdh": "-0.51",
    "rsi": "55.2",
    "atr": "3.5",
    "return_63d": "0.2166",
    "high_52w": "203.55",
    "low_52w": "147.80",
    "drawdown_from_52w_high": "-0.0453",
    "volatility_21d": "0.0152",
}


def snapshot_text(**changed: str) -> str:
    """Write a verified snapshot with some figures changed."""
    lines = [f"{key}: {value}" for key, value in {**FIGURES, **changed}.items()]
    return "\n".join(["# Verified market snapshot of FB (Facebook, Inc.) as of 2018-06-29", *lines])


def block(name: str, kind: str, text: str) -> str:
    """Write one block."""
    return f'<block name="{name}" kind="{kind}">\n{text}\n</block>'


def system(role: str) -> SystemMessage:
    """Write the system message of a role."""
    return SystemMessage(
        f"Role: {role}\nSimulated date: 2018-06-29\n"
        "Instrument: FB (Facebook, Inc.), NASDAQ, quoted in USD\nBenchmark: ^GSPC\n"
        "Do what your role does."
    )


def prompt(role: str, *blocks: str) -> list[BaseMessage]:
    """Write a prompt of a role with its blocks."""
    return [system(role), HumanMessage("\n\n".join(blocks) or "Please begin.")]


def market(**changed: str) -> str:
    """Write the block of a market report with some figures changed."""
    return block("market_report", "report", snapshot_text(**changed))


MODEL = RulebookChatModel()


def tool(name: str, **properties: str) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": "",
            "parameters": {
                "type": "object",
                "properties": {key: {"type": kind} for key, kind in properties.items()},
                "required": list(properties),
            },
        },
    }


STOCK = tool("get_stock_data", symbol="string", start_date="string", end_date="string")
INDICATORS = tool(
    "get_indicators",
    symbol="string",
    indicator="string",
    curr_date="string",
    look_back_days="integer",
)
SNAPSHOT = tool("get_verified_market_snapshot", symbol="string", curr_date="string")
NEWS = tool("get_news", ticker="string", start_date="string", end_date="string")
MACRO = tool("get_macro_indicators", indicator="string", curr_date="string")

DECISION = {
    "type": "object",
    "properties": {
        "rating": {"enum": ["Buy", "Overweight", "Hold", "Underweight", "Sell"], "type": "string"},
        "executive_summary": {"type": "string"},
        "investment_thesis": {"type": "string"},
        "price_target": {"anyOf": [{"type": "number"}, {"type": "null"}]},
        "time_horizon": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    },
    "required": [
        "rating",
        "executive_summary",
        "investment_thesis",
        "price_target",
        "time_horizon",
    ],
    "additionalProperties": False,
}


def as_format(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "json_schema",
        "json_schema": {"name": name, "schema": schema, "strict": True},
    }


def decide(*blocks: str, model: RulebookChatModel = MODEL) -> dict[str, Any]:
    bound = model.bind(response_format=as_format("PortfolioDecision", DECISION))
    reply = bound.invoke(prompt("Portfolio Manager", *blocks))
    document = json.loads(str(reply.content))
    assert isinstance(document, dict)
    return document


def run_tools(role: str, tools: list[dict[str, Any]], answer: dict[str, str]) -> list[BaseMessage]:
    """Play an analyst's loop to its end, each tool answering with a fixed text."""
    bound = MODEL.bind_tools(tools)
    messages: list[BaseMessage] = [system(role), HumanMessage("Please begin.")]
    for _ in range(6):
        reply = bound.invoke(messages)
        messages.append(reply)
        if not reply.tool_calls:
            return messages
        messages += [
            ToolMessage(answer[call["name"]], tool_call_id=call["id"] or "")
            for call in reply.tool_calls
        ]
    raise AssertionError("the analyst never came to an end")
