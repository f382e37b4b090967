"""Every word that one plain cell says to its models, kept beside this file.

A changed word shows here as a diff, and is a change of results. After a change that is meant, write
the file anew: ``python -m tests.core.test_golden_prompts``.
"""

from __future__ import annotations

import json
from pathlib import Path

from tests.core.scripted_cast import Cast, cell, fixed_view, lesson, pipeline
from tests.core.test_prompts import NEWS, REFLECTION, headline
from tradingagents_core.tools import tool_texts

GOLDEN = Path(__file__).with_name("golden_prompts.txt")
TURNS = {
    "Market Analyst": [
        [("get_stock_data", {"symbol": "FB"})],
        [("get_verified_market_snapshot", {"symbol": "FB"})],
    ],
    "News Analyst": [[NEWS, ("get_macro_indicators", {"indicator": "CPI"})]],
    "Fundamentals Analyst": [[("get_fundamentals", {"ticker": "FB"})]],
}


def said() -> str:
    """Return the prompts of a cell with a headline and a lesson, of its lesson, and the tools."""
    cast = Cast(turns=TURNS)
    shared = pipeline(cast)
    view = fixed_view(news=headline("FB holds a meeting"))
    shared.decide(cell(own_lessons=(lesson(),)), view)
    shared.reflect(REFLECTION)
    parts = []
    for call in cast.heard:
        parts.append(f"======== {call.role}, call {call.site.index}")
        parts += [f"-------- {message.type}\n{message.text}" for message in call.messages]
    parts.append("======== tools")
    parts += [json.dumps(json.loads(text), indent=1, sort_keys=True) for text in tool_texts()]
    return "\n".join(parts) + "\n"


def test_prompts_are_word_for_word_those_on_record() -> None:
    assert said() == GOLDEN.read_text(encoding="utf-8")


if __name__ == "__main__":
    GOLDEN.write_text(said(), encoding="utf-8")
