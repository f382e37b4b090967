"""A loopback provider whose model is the rulebook, and faults to plant in it.

It answers the real wire protocol through `OpenAIServer`, so a whole run goes through the real
client, and what it answers is the same on every machine.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import convert_to_messages

from tests.support.openai_server import Act, Received, completion, tools
from tradingagents_core.llm.rulebook import RulebookChatModel


def by_the_rules(received: Received) -> Act:
    """Answer a request as the rulebook would."""
    body = dict(received.body)
    messages = convert_to_messages(body.pop("messages"))
    offered = {
        name: body[name] for name in ("tools", "tool_choice", "response_format") if name in body
    }
    message = RulebookChatModel()._generate(messages, **offered).generations[0].message
    calls: Sequence[Any] = getattr(message, "tool_calls", ())
    if calls:
        return tools(*((call["name"], json.dumps(call["args"])) for call in calls))
    return completion(str(message.content))


def is_about(received: Received, *, role: str, day: str, symbol: str) -> bool:
    """Say whether a request is a role's, on a day, about a symbol."""
    system = str(received.body["messages"][0]["content"])
    return (
        system.startswith(f"Role: {role}\n")
        and f"Simulated date: {day}\n" in system
        and f"Instrument: {symbol} " in system
    )


@dataclass
class Fault:
    """Answer certain requests otherwise.

    Attributes:
        role: Node name.
        day: Simulated date.
        symbol: Symbol.
        acts: Given in turn to such requests; after the last one the rules answer again.
        answered: How many were given.
    """

    role: str
    day: str
    symbol: str
    acts: Sequence[Act]
    answered: int = field(default=0)

    def act(self, received: Received) -> Act | None:
        """Return the next planted answer where the request is the one."""
        fits = is_about(received, role=self.role, day=self.day, symbol=self.symbol)
        if not fits or self.answered >= len(self.acts):
            return None
        self.answered += 1
        return self.acts[self.answered - 1]


def faulty(*faults: Fault) -> Callable[[Received], Act]:
    """Answer by the rules, but for planted faults."""

    def answer(received: Received) -> Act:
        for fault in faults:
            planted = fault.act(received)
            if planted is not None:
                return planted
        return by_the_rules(received)

    return answer
