"""The tools that analysts call: each reads the view and answers with deterministic text."""

from tradingagents_core.tools.base import Tool, ToolLimits
from tradingagents_core.tools.registry import (
    TOOLS,
    ToolAnswer,
    openai_tool,
    run_tool,
    tool_texts,
)

__all__ = ["TOOLS", "Tool", "ToolAnswer", "ToolLimits", "openai_tool", "run_tool", "tool_texts"]
