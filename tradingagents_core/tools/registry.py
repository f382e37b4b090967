"""The table of tools, their schemas for models, and the one way to run them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType
from typing import Any

from tradingagents_core.errors import DataUnavailable, NoMarketData, ToolInputError
from tradingagents_core.protocols import CURRENT_SITE, View
from tradingagents_core.tools import company, macro, market, news, odds
from tradingagents_core.tools.base import Tool, ToolLimits
from tradingagents_core.tools.inputs import parse_arguments
from tradingagents_core.tools.text import quoted

NO_DATA = "NO_DATA_AVAILABLE: "
UNAVAILABLE = "DATA_UNAVAILABLE: "
INVALID = "INVALID_ARGUMENTS: "
UNKNOWN = "UNKNOWN_TOOL: "
_NO_OTHER = ToolLimits()

TOOLS: Mapping[str, Tool] = MappingProxyType(
    {
        tool.name: tool
        for tool in (
            market.STOCK_DATA,
            market.INDICATORS,
            market.VERIFIED_SNAPSHOT,
            company.FUNDAMENTALS,
            company.BALANCE_SHEET,
            company.CASHFLOW,
            company.INCOME_STATEMENT,
            news.NEWS,
            news.GLOBAL_NEWS,
            company.INSIDER_TRANSACTIONS,
            macro.MACRO_INDICATORS,
            odds.PREDICTION_MARKETS,
        )
    }
)


@dataclass(frozen=True, kw_only=True)
class ToolAnswer:
    """Hold the answer to one tool call.

    Attributes:
        text: What the model reads.
        degraded: True where prices, the core table, could not be had.
    """

    text: str
    degraded: bool


def run_tool(
    view: View,
    name: str,
    args_json: str,
    *,
    offered: Sequence[str] | None = None,
    limits: ToolLimits = _NO_OTHER,
) -> ToolAnswer:
    """Answer one tool call; whatever the model wrote, the answer is text.

    Reads are logged under the current `Site` with this tool's name.

    Args:
        view: Data at the cutoff.
        name: Tool name as the model wrote it.
        args_json: Arguments as the model wrote them.
        offered: Names of the tools that this analyst has; None means all of `TOOLS`.
        limits: Bounds of what is shown where the arguments name none.

    Raises:
        LookaheadError: A later row was about to be seen; nothing here catches it.
    """
    names = tuple(TOOLS) if offered is None else tuple(offered)
    if name not in names or name not in TOOLS:
        return ToolAnswer(
            text=f"{UNKNOWN}{quoted(name)} is no tool here: call one of {', '.join(names)}",
            degraded=False,
        )
    tool = TOOLS[name]
    token = CURRENT_SITE.set(replace(CURRENT_SITE.get(), tool=name))
    try:
        return ToolAnswer(text=_answer(view, tool, args_json, limits), degraded=False)
    except ToolInputError as error:
        return ToolAnswer(text=f"{INVALID}{error}", degraded=False)
    except NoMarketData as error:
        return ToolAnswer(text=f"{NO_DATA}{error}", degraded=True)
    except DataUnavailable as error:
        return ToolAnswer(text=f"{UNAVAILABLE}{error}", degraded=False)
    finally:
        CURRENT_SITE.reset(token)


def _answer(view: View, tool: Tool, args_json: str, limits: ToolLimits) -> str:
    arguments, ignored = parse_arguments(tool.args, args_json)
    text = tool.run(view, arguments, limits)
    if ignored:
        text += "\n# Ignored, for this tool has no such arguments: "
        text += ", ".join(quoted(name) for name in ignored[:10])
    return text


def openai_tool(name: str) -> dict[str, Any]:
    """Return a tool as an OpenAI function schema, ready for ``bind_tools``; a fresh copy.

    Raises:
        KeyError: For a name that is not in `TOOLS`.
    """
    schema: dict[str, Any] = json.loads(_schema_text(name))
    return schema


def tool_texts() -> tuple[str, ...]:
    """Return each tool's name, description and schema as JSON text, for the fingerprint."""
    return tuple(_schema_text(name) for name in TOOLS)


@cache
def _schema_text(name: str) -> str:
    tool = TOOLS[name]
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": _parameters(tool),
    }
    return json.dumps({"type": "function", "function": function}, ensure_ascii=False)


def _parameters(tool: Tool) -> dict[str, Any]:
    full = tool.args.model_json_schema()
    properties = {
        name: {key: value for key, value in sorted(field.items()) if _is_said(key, value)}
        for name, field in full["properties"].items()
    }
    return {
        "type": "object",
        "properties": properties,
        "required": full.get("required", []),
    }


def _is_said(key: str, value: Any) -> bool:
    """Leave out the generated titles, and defaults that only mean "not given"."""
    return key != "title" and not (key == "default" and value is None)
