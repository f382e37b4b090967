"""Calls with known keys: what every version of the client library must derive alike.

    python -m tests.support.key_calls              # the keys of the fixed calls, as JSON
    python -m tests.support.key_calls FILE         # those of recorded key documents in a file, too

It imports the model class and nothing of the harness, so that it runs in an environment that holds
a client library and little else.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    convert_to_messages,
)
from langchain_core.tools import tool
from pydantic import BaseModel, Field

from tradingagents_core.llm.keys import call_key, key_document
from tradingagents_core.llm.openai_chat import ReplayingChatOpenAI
from tradingagents_core.protocols import Site

NEWS = {
    "type": "function",
    "function": {
        "name": "get_news",
        "description": "Headlines – the newest first.",
        "parameters": {
            "type": "object",
            "properties": {"ticker": {"type": "string"}, "days": {"type": ["integer", "null"]}},
            "required": ["ticker"],
        },
    },
}
BARS = {
    "type": "function",
    "function": {"name": "get_bars", "parameters": {"type": "object", "properties": {}}},
}


class Rating(BaseModel):
    """A rating with its reason."""

    rating: str = Field(description="One of five words.")
    target: float | None = None


@tool
def get_weather(city: str, days: int = 1) -> str:
    """Say what the weather will be."""
    return f"{city} {days}"


PROMPT: list[BaseMessage] = [
    SystemMessage("Role: Trader\nSimulated date: 2018-06-29"),
    HumanMessage("Rate FB. Größe ✓ 株 \u2028 null"),
]
TURN = AIMessage(
    "Two looks.",
    id="run-1",
    tool_calls=[
        {"name": "get_news", "args": {"ticker": "Größe", "days": None}, "id": "call_9"},
        {"name": "get_bars", "args": {"b": 1.5, "a": [True]}, "id": "call_3"},
    ],
)
TALK: list[BaseMessage] = [
    *PROMPT,
    TURN,
    ToolMessage("bars", tool_call_id="call_3"),
    ToolMessage("news", tool_call_id="call_9"),
]


def model(**fields: Any) -> ReplayingChatOpenAI:
    """Build a model that never calls."""
    settings = {
        "model": "small-1",
        "temperature": 0.0,
        "api_key": "no-key",
        "base_url": "http://127.0.0.1:9/v1",
        "use_responses_api": False,
        "provider": "openai_compatible",
        "endpoint": "here",
        **fields,
    }
    return ReplayingChatOpenAI(**settings)


def key_of(
    asked: Any, messages: list[BaseMessage], *, site: Site | None = None, **arguments: Any
) -> str:
    """Return the key of a call of a model, or of one with something bound to it."""
    bound, kwargs = getattr(asked, "bound", asked), dict(getattr(asked, "kwargs", {}))
    kwargs.pop("ls_structured_output_format", None)
    body = bound._get_request_payload(messages, **{**kwargs, **arguments})
    document = key_document(
        body, provider=bound.provider, endpoint=bound.endpoint, site=site or Site()
    )
    return call_key(document)


def fixed_keys() -> dict[str, str]:
    """Return the keys of all fixed calls, by what is special about them."""
    plain = model()
    own = model(use_responses_api=True, store=False, output_version="v0")
    structured = {
        method: plain.with_structured_output(Rating, method=method).first
        for method in ("json_schema", "function_calling", "json_mode")
    }
    return {
        "plain": key_of(plain, PROMPT),
        "no temperature": key_of(model(temperature=None), PROMPT),
        "limit, old name": key_of(model(max_tokens=100, limit_field="max_tokens"), PROMPT),
        "limit, new name": key_of(model(max_tokens=100), PROMPT),
        "effort": key_of(model(reasoning_effort="low"), PROMPT),
        "stop words": key_of(plain, PROMPT, stop=["END"]),
        "seed and top_p": key_of(model(seed=7, top_p=0.5), PROMPT),
        "extra body": key_of(model(extra_body={"top_k": 4}), PROMPT),
        "trial, attempt, generation": key_of(
            plain, PROMPT, site=Site(trial=1, attempt=2, generation=3)
        ),
        "tools as JSON": key_of(plain, PROMPT, tools=[NEWS, BARS]),
        "tools bound": key_of(plain.bind_tools([NEWS, BARS]), PROMPT),
        "tool of a function": key_of(plain.bind_tools([get_weather]), PROMPT),
        "one tool forced": key_of(plain.bind_tools([NEWS], tool_choice="get_news"), PROMPT),
        "tool turn": key_of(plain.bind_tools([NEWS, BARS]), TALK),
        "schema as JSON": key_of(plain, PROMPT, response_format=_format()),
        "schema as a class": key_of(plain, PROMPT, response_format=Rating),
        **{f"structured by {name}": key_of(one, PROMPT) for name, one in structured.items()},
        "responses": key_of(own, PROMPT),
        "responses, tool turn": key_of(own.bind_tools([NEWS, BARS]), TALK),
        "responses, schema as JSON": key_of(own, PROMPT, response_format=_format()),
        "responses, schema as a class": key_of(own, PROMPT, response_format=Rating),
    }


def rebuilt_key(document: Mapping[str, Any]) -> str:
    """Return the key of a recorded request whose messages are read and built anew."""
    body = dict(document["body"])
    limit = "max_tokens" if "max_tokens" in body else "max_completion_tokens"
    asked = _asked(body.pop("model"), document["provider"], document["endpoint"], limit)
    if limit in body:
        body["max_tokens"] = body.pop(limit)
    messages = convert_to_messages(body.pop("messages"))
    rebuilt = asked._get_request_payload(messages, **body)
    site = Site(**{name: document[name] for name in ("trial", "attempt", "generation")})
    return call_key(
        key_document(
            rebuilt,
            provider=asked.provider,
            endpoint=asked.endpoint,
            site=site,
            accept_truncated=document.get("accept_truncated", False),
        )
    )


@functools.cache
def _asked(name: str, provider: str, endpoint: str, limit: Any) -> ReplayingChatOpenAI:
    return model(
        model=name, temperature=None, provider=provider, endpoint=endpoint, limit_field=limit
    )


def _format() -> dict[str, Any]:
    wanted = {"name": "Rating", "schema": Rating.model_json_schema(), "strict": True}
    return {"type": "json_schema", "json_schema": wanted}


def main(arguments: list[str]) -> None:
    """Print the keys of the fixed calls, and whether recorded ones come out the same."""
    found: dict[str, Any] = {"fixed": fixed_keys()}
    if arguments:
        recorded = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
        found["recorded"] = {key: rebuilt_key(document) for key, document in recorded.items()}
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1:])
