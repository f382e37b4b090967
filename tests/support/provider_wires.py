"""Answers of four providers in their real wire forms, for `OpenAIServer` to serve by a script.

A wire knows how its provider says the same few things: a text, tool calls, a thought before a
call, a cut reply, an error. What is asked of a model is then the same test for all of them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol

from tests.support import openai_server as openai_wire
from tests.support.openai_server import Act, OpenAIServer

Calls = tuple[tuple[str, Mapping[str, Any]], ...]

# What the provider hands out with a thought and checks when it comes back.
SIGNATURE = "c2lnbmF0dXJl"


class Wire(Protocol):
    """Say things in the form of one provider."""

    model: str
    answered_model: str

    def text(self, content: str) -> Act:
        """Answer with plain text, 11 tokens asked and 7 answered."""

    def tools(self, *calls: tuple[str, Mapping[str, Any]]) -> Act:
        """Answer with tool calls."""

    def thoughtful(self, thought: str, call: tuple[str, Mapping[str, Any]]) -> Act:
        """Answer with a signed thought and a tool call."""

    def cut(self, content: str) -> Act:
        """Answer with text that the length limit cut."""

    def error(self, status: int, message: str, **headers: str) -> Act:
        """Answer with an error; ``retry_after="0"`` is a header."""


def root_of(server: OpenAIServer) -> str:
    """Return the address of a server without OpenAI's path."""
    return server.url.removesuffix("/v1")


def _with_headers(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


class AnthropicWire:
    """Anthropic's Messages API."""

    model = "claude-sonnet-4-6"
    answered_model = "claude-sonnet-4-6-20260217"

    def message(self, blocks: list[dict[str, Any]], reason: str) -> Act:
        """Answer with content blocks."""
        return Act(
            body={
                "id": "msg_01Stub",
                "type": "message",
                "role": "assistant",
                "model": self.answered_model,
                "content": blocks,
                "stop_reason": reason,
                "stop_sequence": None,
                "usage": {
                    "input_tokens": 11,
                    "cache_creation_input_tokens": 0,
                    "cache_read_input_tokens": 0,
                    "output_tokens": 7,
                    "service_tier": "standard",
                },
            }
        )

    def text(self, content: str) -> Act:
        return self.message([{"type": "text", "text": content}], "end_turn")

    def tools(self, *calls: tuple[str, Mapping[str, Any]]) -> Act:
        return self.message(self._uses(calls), "tool_use")

    def thoughtful(self, thought: str, call: tuple[str, Mapping[str, Any]]) -> Act:
        blocks = [
            {"type": "thinking", "thinking": thought, "signature": SIGNATURE},
            {"type": "redacted_thinking", "data": "aGlkZGVu"},
            {"type": "text", "text": "I look."},
        ]
        return self.message([*blocks, *self._uses((call,))], "tool_use")

    def cut(self, content: str) -> Act:
        return self.message([{"type": "text", "text": content}], "max_tokens")

    def error(self, status: int, message: str, **headers: str) -> Act:
        body = {"type": "error", "error": {"type": "stub_error", "message": message}}
        return Act(status=status, body=body, headers=_with_headers(headers))

    def _uses(self, calls: Calls) -> list[dict[str, Any]]:
        return [
            {"type": "tool_use", "id": f"toolu_{name}{number}", "name": name, "input": dict(args)}
            for number, (name, args) in enumerate(calls)
        ]


class GeminiWire:
    """Google's ``generateContent``."""

    model = "gemini-2.5-flash"
    answered_model = "gemini-2.5-flash-001"

    def candidate(self, parts: list[dict[str, Any]], reason: str) -> Act:
        """Answer with parts."""
        return Act(
            body={
                "candidates": [
                    {
                        "content": {"parts": parts, "role": "model"},
                        "finishReason": reason,
                        "index": 0,
                    }
                ],
                "usageMetadata": {
                    "promptTokenCount": 11,
                    "candidatesTokenCount": 4,
                    "thoughtsTokenCount": 3,
                    "totalTokenCount": 18,
                },
                "modelVersion": self.answered_model,
                "responseId": "stub",
            }
        )

    def text(self, content: str) -> Act:
        return self.candidate([{"text": content}], "STOP")

    def tools(self, *calls: tuple[str, Mapping[str, Any]]) -> Act:
        return self.candidate(self._calls(calls), "STOP")

    def thoughtful(self, thought: str, call: tuple[str, Mapping[str, Any]]) -> Act:
        (part,) = self._calls((call,))
        parts = [{"text": thought, "thought": True}, part | {"thoughtSignature": SIGNATURE}]
        return self.candidate(parts, "STOP")

    def cut(self, content: str) -> Act:
        return self.candidate([{"text": content}], "MAX_TOKENS")

    def error(self, status: int, message: str, **headers: str) -> Act:
        body = {"error": {"code": status, "message": message, "status": "STUB"}}
        return Act(status=status, body=body, headers=_with_headers(headers))

    def _calls(self, calls: Calls) -> list[dict[str, Any]]:
        return [{"functionCall": {"name": name, "args": dict(args)}} for name, args in calls]


class ConverseWire:
    """Amazon Bedrock's Converse."""

    model = "anthropic.claude-sonnet-4-5-20250929-v1:0"
    # Converse does not say which model answered.
    answered_model = model

    def message(self, blocks: list[dict[str, Any]], reason: str) -> Act:
        """Answer with content blocks."""
        return Act(
            body={
                "metrics": {"latencyMs": 551},
                "output": {"message": {"content": blocks, "role": "assistant"}},
                "stopReason": reason,
                "usage": {"inputTokens": 11, "outputTokens": 7, "totalTokens": 18},
            }
        )

    def text(self, content: str) -> Act:
        return self.message([{"text": content}], "end_turn")

    def tools(self, *calls: tuple[str, Mapping[str, Any]]) -> Act:
        return self.message(self._uses(calls), "tool_use")

    def thoughtful(self, thought: str, call: tuple[str, Mapping[str, Any]]) -> Act:
        blocks = [
            {"reasoningContent": {"reasoningText": {"text": thought, "signature": SIGNATURE}}},
            {"reasoningContent": {"redactedContent": "aGlkZGVu"}},
            {"text": "I look."},
        ]
        return self.message([*blocks, *self._uses((call,))], "tool_use")

    def cut(self, content: str) -> Act:
        return self.message([{"text": content}], "max_tokens")

    def error(self, status: int, message: str, **headers: str) -> Act:
        kind = {429: "ThrottlingException", 401: "UnrecognizedClientException"}
        named = {"x-amzn-errortype": kind.get(status, "ValidationException")}
        body = {"message": message}
        return Act(status=status, body=body, headers={**_with_headers(headers), **named})

    def _uses(self, calls: Calls) -> list[dict[str, Any]]:
        return [
            {"toolUse": {"toolUseId": f"tooluse_{name}{number}", "name": name, "input": dict(args)}}
            for number, (name, args) in enumerate(calls)
        ]


class AzureWire:
    """Chat completions of a deployment in Azure."""

    model = "my-gpt-4o"
    answered_model = openai_wire.MODEL

    def text(self, content: str) -> Act:
        return openai_wire.text(content)

    def tools(self, *calls: tuple[str, Mapping[str, Any]]) -> Act:
        return openai_wire.tools(*calls)

    def thoughtful(self, thought: str, call: tuple[str, Mapping[str, Any]]) -> Act:
        return openai_wire.tools(call)

    def cut(self, content: str) -> Act:
        return openai_wire.cut(content)

    def error(self, status: int, message: str, **headers: str) -> Act:
        return openai_wire.error(status, message, **headers)


def malformed(act: Act) -> Act:
    """Return the first half of an answer."""
    text = json.dumps(act.body)
    return Act(body=text[: len(text) // 2])


def hang(act: Act) -> Act:
    """Return an answer that comes too late."""
    return Act(body=act.body, delay_s=20.0)
