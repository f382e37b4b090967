"""The rulebook behind the wires of four providers, so that a whole run can go through each.

A request is turned into chat completions' form, answered by the rules, and answered in the wire's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tests.support.openai_server import Act, Received
from tests.support.provider_wires import Wire
from tests.support.rulebook_server import by_the_rules

Body = Mapping[str, Any]
Message = dict[str, Any]


def rules_behind(wire: Wire, asked: Callable[[Body], dict[str, Any]]) -> Callable[[Received], Act]:
    """Answer a wire's requests as the rulebook would."""

    def answer(received: Received) -> Act:
        act = by_the_rules(replace(received, body=asked(received.body)))
        message = act.body["choices"][0]["message"]
        calls = [call["function"] for call in message.get("tool_calls") or ()]
        if calls:
            return wire.tools(*((call["name"], json.loads(call["arguments"])) for call in calls))
        return wire.text(message["content"])

    return answer


def asked_in_azure(body: Body) -> dict[str, Any]:
    """Return a request of chat completions, which it is already."""
    return dict(body)


def asked_of_anthropic(body: Body) -> dict[str, Any]:
    """Return a request of the Messages API as one of chat completions."""
    messages: list[Message] = [{"role": "system", "content": body["system"]}]
    for message in body["messages"]:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if message["role"] == "assistant":
            calls = [
                _call(block["id"], block["name"], block["input"])
                for block in blocks
                if block["type"] == "tool_use"
            ]
            messages.append(_turn(_joined(blocks), calls))
        else:
            messages += _answers(
                (block["tool_use_id"], block["content"])
                for block in blocks
                if block["type"] == "tool_result"
            )
            messages += _spoken(_joined(blocks))
    choice = body.get("tool_choice", {})
    return {
        "messages": messages,
        **_tools((tool["name"], tool["input_schema"]) for tool in body.get("tools", ())),
        **({"tool_choice": "none"} if choice.get("type") == "none" else {}),
        **_schema(body.get("output_config", {}).get("format", {}).get("schema")),
    }


def asked_of_gemini(body: Body) -> dict[str, Any]:
    """Return a request of ``generateContent`` as one of chat completions."""
    messages: list[Message] = [
        {"role": "system", "content": _joined(body["systemInstruction"]["parts"])}
    ]
    open_ids: list[str] = []
    for turn in body["contents"]:
        parts = turn["parts"]
        if turn["role"] == "model":
            made = [part["functionCall"] for part in parts if "functionCall" in part]
            open_ids = [f"call_{len(messages)}_{number}" for number in range(len(made))]
            calls = [
                _call(call_id, call["name"], call["args"])
                for call_id, call in zip(open_ids, made, strict=True)
            ]
            messages.append(_turn(_joined(parts), calls))
        else:
            given = [part["functionResponse"] for part in parts if "functionResponse" in part]
            messages += _answers(
                (call_id, str(answer["response"]["output"]))
                for call_id, answer in zip(open_ids, given, strict=False)
            )
            messages += _spoken(_joined(parts))
    functions = [
        function for tool in body.get("tools", ()) for function in tool["functionDeclarations"]
    ]
    mode = body.get("toolConfig", {}).get("functionCallingConfig", {}).get("mode")
    return {
        "messages": messages,
        **_tools((function["name"], _lower(function["parameters"])) for function in functions),
        **({"tool_choice": "none"} if mode == "NONE" else {}),
        **_schema(body["generationConfig"].get("responseJsonSchema")),
    }


def asked_of_converse(body: Body) -> dict[str, Any]:
    """Return a request of Converse as one of chat completions."""
    messages: list[Message] = [{"role": "system", "content": _joined(body["system"])}]
    for message in body["messages"]:
        blocks = message["content"]
        uses = [block["toolUse"] for block in blocks if "toolUse" in block]
        results = [block["toolResult"] for block in blocks if "toolResult" in block]
        if message["role"] == "assistant":
            calls = [_call(use["toolUseId"], use["name"], use["input"]) for use in uses]
            messages.append(_turn(_joined(blocks), calls))
        else:
            messages += _answers(
                (result["toolUseId"], _joined(result["content"])) for result in results
            )
            messages += _spoken(_joined(blocks))
    config = body.get("toolConfig", {})
    specs = [tool["toolSpec"] for tool in config.get("tools", ())]
    forced = config.get("toolChoice", {}).get("tool", {}).get("name")
    choice = {"type": "function", "function": {"name": forced}}
    return {
        "messages": messages,
        **_tools((spec["name"], spec["inputSchema"]["json"]) for spec in specs),
        **({"tool_choice": choice} if forced else {}),
    }


def _turn(text: str, calls: Sequence[Message]) -> Message:
    return {"role": "assistant", "content": text, **({"tool_calls": calls} if calls else {})}


def _call(call_id: str, name: str, args: Any) -> Message:
    function = {"name": name, "arguments": json.dumps(args)}
    return {"id": call_id, "type": "function", "function": function}


def _answers(given: Iterator[tuple[str, str]]) -> list[Message]:
    return [{"role": "tool", "tool_call_id": call_id, "content": text} for call_id, text in given]


def _spoken(text: str) -> list[Message]:
    return [{"role": "user", "content": text}] if text else []


def _joined(blocks: Sequence[Body]) -> str:
    return "".join(block.get("text", "") for block in blocks)


def _tools(offered: Iterator[tuple[str, Any]]) -> dict[str, Any]:
    tools = [
        {"type": "function", "function": {"name": name, "description": "", "parameters": schema}}
        for name, schema in offered
    ]
    return {"tools": tools} if tools else {}


def _schema(schema: Body | None) -> dict[str, Any]:
    if schema is None:
        return {}
    wanted = {"name": "", "schema": schema, "strict": True}
    return {"response_format": {"type": "json_schema", "json_schema": wanted}}


def _lower(schema: Any) -> Any:
    """Return a schema with the names of types as JSON Schema has them."""
    if isinstance(schema, dict):
        return {
            name: value.lower() if name == "type" and isinstance(value, str) else _lower(value)
            for name, value in schema.items()
        }
    return [_lower(item) for item in schema] if isinstance(schema, list) else schema
