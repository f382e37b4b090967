"""Anthropic's Messages API on loopback."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

pytest.importorskip("langchain_anthropic", reason="langchain-anthropic is not installed")

from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from tests.support.openai_server import OpenAIServer
from tests.support.provider_contract import (
    PROMPT,
    RESPONSE_FORMAT,
    SCHEMA,
    SECRET,
    TOOL,
    ThinkingContract,
)
from tests.support.provider_wires import AnthropicWire, root_of
from tests.support.reply_stores import MemoryReplies


class TestAnthropic(ThinkingContract):
    provider = "anthropic"
    wire = AnthropicWire()
    key_header = "x-api-key"

    def library(self, server: OpenAIServer) -> Any:
        return ChatAnthropic(
            model=self.wire.model,
            api_key=SECRET,
            base_url=root_of(server),
            temperature=0.0,
            max_tokens=50,
        )

    def close(self, library: Any) -> None:
        library._client.close()

    def check_tool_answer(self, body: Mapping[str, Any], texts: list[str]) -> None:
        assert body["system"] == "You rate stocks."
        first, turn, answers = body["messages"]
        assert first == {"role": "user", "content": "Rate FB."}
        uses = [block for block in turn["content"] if block["type"] == "tool_use"]
        assert [block["name"] for block in uses] == ["get_news"] * len(texts)
        assert answers["role"] == "user"
        assert [(block["type"], block["content"]) for block in answers["content"]] == [
            ("tool_result", text) for text in texts
        ]
        assert [block["tool_use_id"] for block in answers["content"]] == [
            block["id"] for block in uses
        ]

    def check_thought(self, body: Mapping[str, Any], answered: Mapping[str, Any]) -> None:
        assert body["messages"][1] == {"role": "assistant", "content": answered["content"]}

    def check_refused_tools(self, body: Mapping[str, Any]) -> None:
        assert [tool["name"] for tool in body["tools"]] == ["get_news"]
        assert body["tool_choice"] == {"type": "none"}

    def test_the_body_and_the_headers_are_as_documented(self) -> None:
        with OpenAIServer(self.wire.text("ok")) as server:
            model = self.model_at(server, temperature=0.5, max_tokens=50)
            model.bind_tools([TOOL], tool_choice="get_news").invoke(PROMPT)
        (request,) = server.requests
        assert request.path == "/v1/messages"
        assert request.headers["anthropic-version"] == "2023-06-01"
        assert request.body == {
            "model": "claude-sonnet-4-6",
            "max_tokens": 50,
            "temperature": 0.5,
            "system": "You rate stocks.",
            "messages": [{"role": "user", "content": "Rate FB."}],
            "tools": [
                {
                    "name": "get_news",
                    "description": "Headlines.",
                    "input_schema": TOOL["function"]["parameters"],
                }
            ],
            "tool_choice": {"type": "tool", "name": "get_news"},
        }

    def test_a_schema_is_asked_for_in_anthropics_own_field(self) -> None:
        with OpenAIServer(self.wire.text('{"rating": "Buy"}')) as server:
            self.model_at(server).invoke(PROMPT, response_format=RESPONSE_FORMAT)
        (body,) = server.bodies
        asked = body["output_config"]["format"]
        assert asked["type"] == "json_schema"
        assert asked["schema"]["properties"]["rating"]["enum"] == ["Buy", "Hold"]
        assert asked["schema"]["additionalProperties"] is False
        assert asked["schema"]["required"] == SCHEMA["required"]

    def test_the_limit_that_the_api_wants_is_no_figure_of_the_library(self) -> None:
        with OpenAIServer(self.wire.text("ok")) as server:
            self.model_at(server).invoke("hi")
            self.model_at(server, model="claude-3-haiku-20240307").invoke("hi")
        assert [body["max_tokens"] for body in server.bodies] == [16_000, 4_096]

    def test_a_model_that_takes_no_temperature_is_sent_none(self) -> None:
        with OpenAIServer(self.wire.text("ok")) as server:
            self.model_at(server, model="claude-opus-5", temperature=0.0).invoke("hi")
            spec = {"model": "claude-opus-5", "reasoning_effort": "xhigh"}
            self.model_at(server, **spec).invoke("hi")
        first, second = server.bodies
        assert "temperature" not in first
        assert second["output_config"] == {"effort": "xhigh"}
        assert second["thinking"] == {"type": "adaptive"}

    def test_a_refusal_is_an_outcome_with_its_words(self) -> None:
        act = self.wire.message([{"type": "text", "text": "I cannot rate stocks."}], "refusal")
        outcome = self.ends_with(act)
        assert outcome.kind == "refusal"
        assert "I cannot rate stocks." in outcome.message

    def test_a_filtered_answer_is_told_from_a_broken_request(self) -> None:
        words = "Output blocked by content filtering policy"
        assert self.ends_with(self.wire.error(400, words)).kind == "content_filter"

    def test_an_overloaded_service_is_tried_again(self) -> None:
        script = (self.wire.error(529, "Overloaded", retry_after="0"), self.wire.text("ok"))
        with OpenAIServer(*script) as server:
            assert self.model_at(server, max_retries=1).invoke(PROMPT).content == "ok"

    def test_tokens_of_the_providers_cache_are_counted_with_the_others(self) -> None:
        act = self.wire.text("ok")
        act.body["usage"] |= {"cache_creation_input_tokens": 100, "cache_read_input_tokens": 30}
        store = MemoryReplies()
        with OpenAIServer(act) as server:
            self.model_at(server, store=store).invoke(PROMPT)
        (reply,) = store.answers.values()
        assert (reply.usage.input_tokens, reply.usage.cached_tokens) == (141, 30)

    def test_ids_of_calls_are_in_no_key(self) -> None:
        def key(call_id: str) -> str:
            store = MemoryReplies()
            call = {"name": "get_news", "args": {"ticker": "FB"}, "id": call_id}
            with OpenAIServer(self.wire.text("ok")) as server:
                model = self.model_at(server, store=store, endpoint_alias="here")
                model.bind_tools([TOOL]).invoke(
                    [
                        HumanMessage("hi"),
                        AIMessage("", tool_calls=[call]),
                        ToolMessage("none", tool_call_id=call_id),
                    ]
                )
            return store.calls[0].key

        assert key("toolu_1") == key("toolu_2")
