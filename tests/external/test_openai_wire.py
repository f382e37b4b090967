"""Recordings of OpenAI's own service, served again on loopback and read by the real client."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from langchain_core.messages import AIMessage

from tests.support.openai_server import Act, OpenAIServer
from tests.support.reply_stores import MemoryReplies
from tradingagents_core.errors import ModelOutcome
from tradingagents_core.llm.factory import create_model
from tradingagents_core.settings import ModelSpec

FOLDER = Path(os.environ.get("BACKTESTER_EXTRA_DATA", "")) / "openai_wire"

pytestmark = pytest.mark.skipif(
    not os.environ.get("BACKTESTER_EXTRA_DATA") or not FOLDER.is_dir(),
    reason="BACKTESTER_EXTRA_DATA names no folder with recordings of OpenAI's service",
)


def exchanges() -> Iterator[tuple[dict[str, Any], Act]]:
    """Yield what was asked and answered, streams left out: this client asks for none."""
    for path in sorted(FOLDER.glob("*.yaml")):
        for exchange in yaml.safe_load(path.read_text(encoding="utf-8"))["interactions"]:
            asked = json.loads(exchange["request"]["body"])
            answer = exchange["response"]
            if not asked.get("stream"):
                status = answer["status"]["code"]
                yield asked, Act(status=status, body=answer["body"]["string"])


def answered(asked: dict[str, Any], act: Act, store: MemoryReplies) -> AIMessage:
    with OpenAIServer(act) as server:
        spec = ModelSpec(
            provider="openai", model=asked["model"], base_url=server.url, max_retries=0
        )
        model = create_model(spec, api_key="sk-TEST-SECRET-123")
        model.replies = store
        tools = {name: asked[name] for name in ("tools", "tool_choice") if name in asked}
        # LangChain wants a content of each message, and sends null for an empty one.
        messages = [{"content": "", **message} for message in asked["messages"]]
        message = model.invoke(messages, **tools)
    (received,) = server.bodies
    assert [one["role"] for one in received.pop("messages")] == [one["role"] for one in messages]
    assert received == {name: value for name, value in asked.items() if name in received}
    return message


def test_there_are_recordings_of_answers_of_tools_and_of_an_error() -> None:
    bodies = [json.loads(act.body) for _, act in exchanges()]
    assert any("error" in body for body in bodies)
    assert any(
        body["choices"][0]["message"].get("tool_calls") for body in bodies if "choices" in body
    )


def test_each_recorded_answer_is_read_as_it_was_given() -> None:
    for asked, act in exchanges():
        if act.status != 200:
            continue
        store = MemoryReplies()
        body = json.loads(act.body)
        message = answered(asked, act, store)
        said = body["choices"][0]["message"]
        (reply,) = store.answers.values()
        assert message.content == (said["content"] or "")
        assert [(call.id, json.loads(call.args)) for call in reply.tool_calls] == [
            (call["id"], json.loads(call["function"]["arguments"]))
            for call in said.get("tool_calls", [])
        ]
        assert reply.usage.input_tokens == body["usage"]["prompt_tokens"]
        assert reply.usage.output_tokens == body["usage"]["completion_tokens"]
        assert (reply.model, reply.raw) == (body["model"], act.body)


def test_each_recorded_error_ends_as_what_it_is() -> None:
    for asked, act in exchanges():
        if act.status == 200:
            continue
        with pytest.raises(ModelOutcome) as outcome:
            answered(asked, act, MemoryReplies())
        assert outcome.value.kind == "rejected"
        assert json.loads(act.body)["error"]["message"] in outcome.value.message
