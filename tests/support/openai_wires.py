"""Answers of the services that speak OpenAI's protocol, each with what is its own.

All say the same few things (a text, tool calls, a thought before a call, a cut reply, an error) in
the same frame. What differs between them is what tests are for: where thoughts are, how tokens are
counted, what ids look like, in which form an error comes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tests.support.openai_server import Act

THOUGHT_ID = "reasoning-text-1"


class OpenAIWire:
    """OpenAI's chat completions, as recorded from the service.

    Attributes:
        model: Name that is asked for.
        answered_model: Name under which it answers.
    """

    model = "gpt-4o-mini"
    answered_model = "gpt-4o-mini-2024-07-18"

    # -- what a service has of its own

    def usage(self) -> dict[str, Any]:
        return {
            "prompt_tokens": 11,
            "completion_tokens": 7,
            "total_tokens": 18,
            "prompt_tokens_details": {"cached_tokens": 4, "audio_tokens": 0},
            "completion_tokens_details": {
                "reasoning_tokens": 0,
                "audio_tokens": 0,
                "accepted_prediction_tokens": 0,
                "rejected_prediction_tokens": 0,
            },
        }

    def call_id(self, number: int) -> str:
        return f"call_JpNb8OiAkbIbHzDggfpdDH{number:02}"

    def thought(self, text: str) -> dict[str, Any]:
        """Fields of a message that hold a thought."""
        return {}

    def more(self) -> dict[str, Any]:
        """Further fields of an answer."""
        return {"service_tier": "default", "system_fingerprint": "fp_0ba0d124f1"}

    def more_of_choice(self) -> dict[str, Any]:
        return {"logprobs": None}

    def error_body(self, status: int, message: Any) -> Any:
        return {
            "error": {
                "message": message,
                "type": "invalid_request_error",
                "param": None,
                "code": None,
            }
        }

    # -- what all say

    def answer(self, message: Mapping[str, Any], reason: str) -> Act:
        choice = {
            "index": 0,
            "message": {"role": "assistant", **message},
            "finish_reason": reason,
            **self.more_of_choice(),
        }
        return Act(
            body={
                "id": "chatcmpl-ASYMQRl3A3DXL9FWCK9tnGRcKIO7q",
                "object": "chat.completion",
                "created": 1731368630,
                "model": self.answered_model,
                "choices": [choice],
                "usage": self.usage(),
                **self.more(),
            }
        )

    def text(self, content: str) -> Act:
        return self.answer({"content": content, "refusal": None}, "stop")

    def tools(self, *calls: tuple[str, Mapping[str, Any]]) -> Act:
        return self.answer({"content": None, "tool_calls": self.calls(*calls)}, "tool_calls")

    def calls(self, *calls: tuple[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
        return [
            {
                "id": self.call_id(number),
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments)},
            }
            for number, (name, arguments) in enumerate(calls)
        ]

    def thoughtful(self, thought: str, call: tuple[str, Mapping[str, Any]]) -> Act:
        message = {"content": "", "tool_calls": self.calls(call), **self.thought(thought)}
        return self.answer(message, "tool_calls")

    def cut(self, content: str) -> Act:
        return self.answer({"content": content}, "length")

    def error(self, status: int, message: Any, **headers: str) -> Act:
        return Act(
            status=status,
            body=self.error_body(status, message),
            headers={name.replace("_", "-"): value for name, value in headers.items()},
        )


class ResponsesWire(OpenAIWire):
    """OpenAI's Responses API."""

    model = "gpt-5.4-mini"
    answered_model = "gpt-5.4-mini-2026-03-17"

    def response(self, *items: Mapping[str, Any], cut: bool = False) -> Act:
        return Act(
            body={
                "id": "resp_67ccd2bed1ec8190b14f964abc054267",
                "object": "response",
                "created_at": 1741476542,
                "status": "incomplete" if cut else "completed",
                "error": None,
                "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
                "model": self.answered_model,
                "output": list(items),
                "store": False,
                "usage": {
                    "input_tokens": 11,
                    "input_tokens_details": {"cached_tokens": 4},
                    "output_tokens": 7,
                    "output_tokens_details": {"reasoning_tokens": 2},
                    "total_tokens": 18,
                },
            }
        )

    def spoken(self, content: str) -> dict[str, Any]:
        return {
            "type": "message",
            "id": "msg_67ccd2bf17f0819081ff3bb2cf6508e6",
            "status": "completed",
            "role": "assistant",
            "content": [{"type": "output_text", "text": content, "annotations": []}],
        }

    def called(self, *calls: tuple[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
        return [
            {
                "type": "function_call",
                "id": f"fc_12345{number}",
                "call_id": self.call_id(number),
                "name": name,
                "arguments": json.dumps(arguments),
                "status": "completed",
            }
            for number, (name, arguments) in enumerate(calls)
        ]

    def text(self, content: str) -> Act:
        return self.response(self.spoken(content))

    def tools(self, *calls: tuple[str, Mapping[str, Any]]) -> Act:
        return self.response(*self.called(*calls))

    def thoughtful(self, thought: str, call: tuple[str, Mapping[str, Any]]) -> Act:
        item = {
            "type": "reasoning",
            "id": "rs_6806bfca0b2481918a5748308061a260",
            "summary": [{"type": "summary_text", "text": thought}],
            "encrypted_content": "gAAAAABoISQ24OyVRYbkYfukdJoqdzWT",
        }
        return self.response(item, *self.called(call))

    def cut(self, content: str) -> Act:
        return self.response(self.spoken(content), cut=True)


class PlainWire(OpenAIWire):
    """Some server that speaks the protocol, and nothing besides."""

    model = "small-1"
    answered_model = "small-1"

    def usage(self) -> dict[str, Any]:
        return {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}

    def more(self) -> dict[str, Any]:
        return {}


class OllamaWire(PlainWire):
    """Ollama's own endpoint for the protocol."""

    model = "gpt-oss:20b"
    answered_model = "gpt-oss:20b"

    def thought(self, text: str) -> dict[str, Any]:
        return {"reasoning": text}

    def call_id(self, number: int) -> str:
        return f"call_8xk2v0t{number}"

    def more(self) -> dict[str, Any]:
        return {"system_fingerprint": "fp_ollama"}

    def error_body(self, status: int, message: Any) -> Any:
        return {"error": {"message": message, "type": "api_error", "param": None, "code": None}}


class XAIWire(OpenAIWire):
    """xAI counts thoughts apart, and says an error in a field of text."""

    model = "grok-4.3"
    answered_model = "grok-4.3"

    def usage(self) -> dict[str, Any]:
        return {
            "prompt_tokens": 11,
            "completion_tokens": 3,
            "total_tokens": 18,
            "prompt_tokens_details": {"text_tokens": 11, "cached_tokens": 4, "image_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 4, "audio_tokens": 0},
            "num_sources_used": 0,
        }

    def more(self) -> dict[str, Any]:
        return {"system_fingerprint": "fp_39c5j0a324"}

    def thought(self, text: str) -> dict[str, Any]:
        return {"reasoning_content": text}

    def error_body(self, status: int, message: Any) -> Any:
        return {"code": "Client specified an invalid argument", "error": message}


class DeepSeekWire(OpenAIWire):
    """DeepSeek shows its thoughts, and wants them back where they led to a call."""

    model = "deepseek-v4-flash"
    answered_model = "deepseek-v4-flash"

    def usage(self) -> dict[str, Any]:
        return {
            "prompt_tokens": 11,
            "completion_tokens": 7,
            "total_tokens": 18,
            "prompt_cache_hit_tokens": 4,
            "prompt_cache_miss_tokens": 7,
            "completion_tokens_details": {"reasoning_tokens": 2},
        }

    def call_id(self, number: int) -> str:
        return f"call_{number}_3f0c3a1e-6f0b-4ac5"

    def thought(self, text: str) -> dict[str, Any]:
        return {"reasoning_content": text}

    def error_body(self, status: int, message: Any) -> Any:
        kind = "authentication_error" if status == 401 else "invalid_request_error"
        return {
            "error": {
                "message": message,
                "type": kind,
                "param": None,
                "code": "invalid_request_error",
            }
        }


class QwenWire(OpenAIWire):
    """Alibaba's Model Studio."""

    model = "qwen3.7-max"
    answered_model = "qwen3.7-max"

    def call_id(self, number: int) -> str:
        return f"call_b1e0f8c2a1d74a0{number}"

    def thought(self, text: str) -> dict[str, Any]:
        return {"reasoning_content": text}

    def more(self) -> dict[str, Any]:
        return {"system_fingerprint": None}

    def error_body(self, status: int, message: Any) -> Any:
        error = {
            "message": message,
            "type": "invalid_request_error",
            "param": None,
            "code": "invalid_parameter_error",
        }
        return {"error": error, "request_id": "f6a1b2c3-0000-9000-8000-d4e5f6a7b8c9"}


class GLMWire(OpenAIWire):
    """Z.ai and Zhipu: codes of errors are numbers in text, and ids name the request."""

    model = "glm-5.1"
    answered_model = "glm-5.1"

    def usage(self) -> dict[str, Any]:
        return {
            "prompt_tokens": 11,
            "completion_tokens": 7,
            "prompt_tokens_details": {"cached_tokens": 4},
            "total_tokens": 18,
        }

    def call_id(self, number: int) -> str:
        return f"call_-799372829349{number}"

    def thought(self, text: str) -> dict[str, Any]:
        return {"reasoning_content": text}

    def more(self) -> dict[str, Any]:
        return {"request_id": "20260228143000d4e5f6a7b8c94e1f"}

    def more_of_choice(self) -> dict[str, Any]:
        return {}

    def error_body(self, status: int, message: Any) -> Any:
        return {
            "error": {"code": {401: "1000", 429: "1302"}.get(status, "1210"), "message": message}
        }


class MiniMaxWire(OpenAIWire):
    """MiniMax says in every answer how it went; thoughts come apart where they were asked to."""

    model = "MiniMax-M3"
    answered_model = "MiniMax-M3"

    def usage(self) -> dict[str, Any]:
        return {
            "total_tokens": 18,
            "total_characters": 0,
            "prompt_tokens": 11,
            "completion_tokens": 7,
            "completion_tokens_details": {"reasoning_tokens": 2},
        }

    def call_id(self, number: int) -> str:
        return f"call_function_6696730535_{number}"

    def thought(self, text: str) -> dict[str, Any]:
        return {
            "reasoning_details": [
                {
                    "type": "reasoning.text",
                    "id": THOUGHT_ID,
                    "format": "MiniMax-response-v1",
                    "index": 0,
                    "text": text,
                }
            ]
        }

    def more(self) -> dict[str, Any]:
        return self.said(0, "")

    def said(self, code: int, message: str) -> dict[str, Any]:
        return {
            "input_sensitive": False,
            "output_sensitive": False,
            "base_resp": {"status_code": code, "status_msg": message},
        }

    def refusing(self, code: int, message: str) -> Act:
        """Answer 200, with an error in the body."""
        return Act(
            body={"id": "0480e", "choices": None, "model": self.model, **self.said(code, message)}
        )

    def error_body(self, status: int, message: Any) -> Any:
        error = {"type": "bad_request_error", "message": message, "http_code": str(status)}
        return {"type": "error", "error": error, "request_id": "05f1a2"}


class OpenRouterWire(OpenAIWire):
    """OpenRouter names who answered, and answers 200 for a fault of that one."""

    model = "deepseek/deepseek-v4-flash"
    answered_model = "deepseek/deepseek-v4-flash"

    def call_id(self, number: int) -> str:
        return f"tool_0_get_news_{number}"

    def thought(self, text: str) -> dict[str, Any]:
        details = [
            {"type": "reasoning.text", "text": text, "format": "unknown", "index": 0},
        ]
        return {"reasoning": text, "reasoning_details": details}

    def more(self) -> dict[str, Any]:
        return {"provider": "DeepInfra", "system_fingerprint": None}

    def more_of_choice(self) -> dict[str, Any]:
        return {"logprobs": None, "native_finish_reason": "stop"}

    def error_body(self, status: int, message: Any) -> Any:
        return {"error": {"code": status, "message": message}, "user_id": "user_2x"}

    def failing(self, code: int, message: str) -> Act:
        """Answer 200, with an error in the body."""
        metadata = {"provider_name": "DeepInfra", "raw": "upstream"}
        return Act(body={"error": {"code": code, "message": message, "metadata": metadata}})

    def breaking_off(self, code: int, message: str) -> Act:
        """Answer 200 with a choice that ended in an error."""
        act = self.text("It was go")
        act.body["choices"][0].update(
            finish_reason="error", error={"code": code, "message": message}
        )
        return act


class MistralWire(OpenAIWire):
    """Mistral: ids of nine letters and digits, and thoughts among the parts of the content."""

    model = "mistral-medium-3-5"
    answered_model = "mistral-medium-3-5"

    def usage(self) -> dict[str, Any]:
        return {"prompt_tokens": 11, "total_tokens": 18, "completion_tokens": 7}

    def call_id(self, number: int) -> str:
        return f"D681PevK{number}"

    def thoughtful(self, thought: str, call: tuple[str, Mapping[str, Any]]) -> Act:
        parts = [{"type": "thinking", "thinking": [{"type": "text", "text": thought}]}]
        return self.answer({"content": parts, "tool_calls": self.calls(call)}, "tool_calls")

    def more(self) -> dict[str, Any]:
        return {}

    def more_of_choice(self) -> dict[str, Any]:
        return {}

    def error_body(self, status: int, message: Any) -> Any:
        return {
            "object": "error",
            "message": message,
            "type": "invalid_request_error",
            "param": None,
            "code": "3051",
        }


class KimiWire(OpenAIWire):
    """Moonshot's Kimi: ids name the tool, and cached tokens have a place of their own."""

    model = "kimi-k2.6"
    answered_model = "kimi-k2.6"

    def usage(self) -> dict[str, Any]:
        return {
            "prompt_tokens": 11,
            "completion_tokens": 7,
            "total_tokens": 18,
            "cached_tokens": 4,
        }

    def call_id(self, number: int) -> str:
        return f"get_news:{number}"

    def thought(self, text: str) -> dict[str, Any]:
        return {"reasoning_content": text}

    def more(self) -> dict[str, Any]:
        return {}

    def error_body(self, status: int, message: Any) -> Any:
        return {"error": {"message": message, "type": "invalid_request_error"}}


class GroqWire(OpenAIWire):
    """Groq measures each step, and has an id of its own."""

    model = "openai/gpt-oss-20b"
    answered_model = "openai/gpt-oss-20b"

    def usage(self) -> dict[str, Any]:
        return {
            "queue_time": 0.037493756,
            "prompt_tokens": 11,
            "prompt_time": 0.000680594,
            "completion_tokens": 7,
            "completion_time": 0.463333333,
            "total_tokens": 18,
            "total_time": 0.464013927,
        }

    def call_id(self, number: int) -> str:
        return f"fc_b3e1c0a{number}"

    def thought(self, text: str) -> dict[str, Any]:
        return {"reasoning": text}

    def more(self) -> dict[str, Any]:
        return {"system_fingerprint": "fp_179b0f92c9", "x_groq": {"id": "req_01jbd6g2qdfw2adyrt2"}}

    def error_body(self, status: int, message: Any) -> Any:
        return {"error": {"message": message, "type": "invalid_request_error"}}


class NvidiaWire(OpenAIWire):
    """NVIDIA's catalogue of models behind vLLM; its gateway has errors of another form."""

    model = "nvidia/nemotron-3-super"
    answered_model = "nvidia/nemotron-3-super"

    def usage(self) -> dict[str, Any]:
        return {
            "prompt_tokens": 11,
            "total_tokens": 18,
            "completion_tokens": 7,
            "prompt_tokens_details": None,
        }

    def call_id(self, number: int) -> str:
        return f"chatcmpl-tool-7f0a1{number}"

    def thought(self, text: str) -> dict[str, Any]:
        return {"reasoning_content": text}

    def more(self) -> dict[str, Any]:
        return {"prompt_logprobs": None}

    def more_of_choice(self) -> dict[str, Any]:
        return {"logprobs": None, "stop_reason": None}

    def error_body(self, status: int, message: Any) -> Any:
        return {"status": status, "title": "Error", "detail": message}
