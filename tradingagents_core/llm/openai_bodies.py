"""Fit a request of OpenAI's protocol to what a model takes; the table is in `capabilities`.

LangChain's class has built the body. These functions change what a capability row says, and leave
every other body as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.utils.function_calling import convert_to_openai_function
from pydantic import SecretStr

from tradingagents_core.llm.capabilities import NO_KEY
from tradingagents_core.llm.capability_table import RoundTrip, ToolChoice
from tradingagents_core.llm.replies import OPAQUE, REASONING

_WORDS = ("auto", "none")


def response_format(response_class: type) -> dict[str, Any]:
    """Return the field that asks for a reply of a class's form."""
    function = convert_to_openai_function(response_class, strict=True)
    function["schema"] = function.pop("parameters")
    return {"type": "json_schema", "json_schema": function}


def secret_of(key: object) -> str | None:
    """Return the key that a class of OpenAI's protocol holds, None for the placeholder."""
    secret = key.get_secret_value() if isinstance(key, SecretStr) else None
    return None if secret == NO_KEY else secret


def fit_tool_choice(body: dict[str, Any], taken: ToolChoice) -> None:
    """Leave out a choice of tool that is not taken; where none may be called, none is offered."""
    choice = body.get("tool_choice")
    if choice is None or taken == "named" or (taken == "words" and choice in _WORDS):
        return
    del body["tool_choice"]
    if choice == "none":
        body.pop("tools", None)


def send_reasoning_back(
    body: dict[str, Any], messages: Sequence[BaseMessage], form: RoundTrip
) -> None:
    """Give the reasoning behind tool calls back to the model that had it.

    Only messages with tool calls carry it: of others the providers ignore it, or count it twice.

    Args:
        body: Request body built from the messages.
        messages: What the body was built from.
        form: Field that the provider wants it in.
    """
    if form == "reasoning_items":
        _insert_items(body, messages)
    elif form != "none":
        for message, sent in zip(messages, body.get("messages", ()), strict=True):
            held = _held(message, OPAQUE if form == "reasoning_details" else REASONING)
            if held:
                sent[form] = orjson.loads(held) if form == "reasoning_details" else held


def _insert_items(body: dict[str, Any], messages: Sequence[BaseMessage]) -> None:
    """Put reasoning items before the text and calls that came with them.

    Nothing is kept by the provider, so only items that hold their content in encrypted form are
    of use, and their ids name nothing.
    """
    if "input" not in body:
        return
    body["include"] = ["reasoning.encrypted_content"]
    before: dict[str, list[Any]] = {}
    for message in messages:
        held = _held(message, OPAQUE)
        if held and isinstance(message, AIMessage):
            before[str(message.tool_calls[0]["id"])] = [
                {name: value for name, value in item.items() if name != "id"}
                for item in orjson.loads(held)
                if item.get("encrypted_content")
            ]
    if before:
        body["input"] = _with_items(body["input"], before)


def _with_items(items: Sequence[Any], before: Mapping[str, list[Any]]) -> list[Any]:
    placed: list[Any] = []
    for item in items:
        thoughts = before.get(str(item.get("call_id")), [])
        if thoughts and item.get("type") == "function_call":
            # Text of the same message stands right before its calls.
            spoken = bool(placed) and placed[-1].get("role") == "assistant"
            at = len(placed) - 1 if spoken else len(placed)
            placed[at:at] = thoughts
        placed.append(item)
    return placed


def _held(message: BaseMessage, name: str) -> str:
    if not isinstance(message, AIMessage) or not message.tool_calls:
        return ""
    held = message.additional_kwargs.get(name)
    return held if isinstance(held, str) else ""
