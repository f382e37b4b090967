"""A compatible endpoint on loopback: what is sent, how answers are read, and how failures end."""

from __future__ import annotations

import json
import time
import traceback
from typing import Any

import httpx2
import openai
import pytest
from langchain_core.messages import HumanMessage, ToolMessage
from pydantic import BaseModel, SecretStr

from tests.support import openai_server as wire
from tests.support.openai_server import OpenAIServer
from tests.support.reply_stores import MemoryReplies
from tradingagents_core.errors import ModelOutcome
from tradingagents_core.llm.factory import create_model
from tradingagents_core.llm.keys import canonical_json
from tradingagents_core.llm.openai_chat import ReplayingChatOpenAI, build_openai_chat
from tradingagents_core.llm.patience import closed_port
from tradingagents_core.protocols import CURRENT_SITE, Site
from tradingagents_core.settings import ModelSpec

SECRET = "sk-TEST-SECRET-123"
TOOL = {
    "type": "function",
    "function": {
        "name": "get_news",
        "description": "Headlines.",
        "parameters": {"type": "object", "properties": {"ticker": {"type": "string"}}},
    },
}


class Rating(BaseModel):
    rating: str


def model_at(
    server: OpenAIServer, *, store: MemoryReplies | None = None, **changes: Any
) -> ReplayingChatOpenAI:
    fields = {
        "provider": "openai_compatible",
        "model": "small-1",
        "base_url": server.url,
        "max_retries": 0,
        "timeout_s": 5.0,
        **changes,
    }
    model = create_model(ModelSpec(**fields), api_key=SECRET)
    assert isinstance(model, ReplayingChatOpenAI)
    model.replies = store
    return model


def ends_with(*script: wire.Script, **changes: Any) -> ModelOutcome:
    """Return the outcome of one call."""
    store = MemoryReplies()
    with OpenAIServer(*script) as server:
        model = model_at(server, store=store, **changes)
        with pytest.raises(ModelOutcome) as outcome:
            model.invoke("hi")
    assert store.answers == {}
    assert [kept.kind for kept in store.outcomes] == [outcome.value.kind]
    return outcome.value


def test_what_is_sent_is_what_is_keyed_and_never_a_stream() -> None:
    store = MemoryReplies()
    with OpenAIServer(wire.text("ok")) as server:
        model = model_at(server, store=store, temperature=0.2, max_tokens=50)
        list(model.bind_tools([TOOL]).stream("hi"))
    sent = server.bodies[0]
    assert json.loads(store.calls[0].request)["body"] == sent
    assert sent == {
        "model": "small-1",
        "temperature": 0.2,
        "max_tokens": 50,
        "messages": [{"role": "user", "content": "hi"}],
        "tools": [TOOL],
    }
    assert server.requests[0].path == "/v1/chat/completions"


def test_a_client_that_streams_gets_the_same_words_from_this_server() -> None:
    with OpenAIServer(wire.text("one two")) as server:
        client = openai.OpenAI(base_url=server.url, api_key="k", max_retries=0)
        chunks = client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "hi"}], stream=True
        )
        words = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices]
    assert [word for word in words if word] == ["one", "two"]


def test_the_providers_own_json_is_kept_byte_for_byte() -> None:
    store = MemoryReplies()
    raw = json.dumps(wire.text("Größe ✓").body, indent=1, ensure_ascii=False)
    with OpenAIServer(wire.Act(body=raw)) as server:
        model_at(server, store=store).invoke("hi")
    (reply,) = store.answers.values()
    assert (reply.raw, reply.text) == (raw, "Größe ✓")


def test_a_tool_turn_is_read_and_its_answer_sent_back_under_the_providers_id() -> None:
    with OpenAIServer(wire.tools(("get_news", {"ticker": "FB"})), wire.text("done")) as server:
        model = model_at(server).bind_tools([TOOL])
        turn = model.invoke("hi")
        answer = ToolMessage("none", tool_call_id=turn.tool_calls[0]["id"])
        assert model.invoke([HumanMessage("hi"), turn, answer]).content == "done"
    sent = server.bodies[1]["messages"]
    assert sent[1]["tool_calls"][0]["function"] == {
        "name": "get_news",
        "arguments": '{"ticker": "FB"}',
    }
    assert sent[2]["tool_call_id"] == sent[1]["tool_calls"][0]["id"] == "call_get_news0xYz"


@pytest.mark.parametrize("method", ["json_schema", "function_calling", "json_mode"])
def test_langchains_structured_output_works_live_and_from_the_store(method: str) -> None:
    act = (
        wire.tools(("Rating", {"rating": "Buy"}))
        if method == "function_calling"
        else wire.text('{"rating": "Buy"}')
    )
    store = MemoryReplies()
    with OpenAIServer(act) as server:
        chain = model_at(server, store=store).with_structured_output(Rating, method=method)
        assert chain.invoke("hi") == chain.invoke("hi") == Rating(rating="Buy")
    assert len(server.requests) == 1


RESPONSE = {
    "id": "resp_1",
    "object": "response",
    "status": "completed",
    "model": "gpt-5-pro-2026",
    "output": [
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {
            "type": "function_call",
            "id": "fc_1",
            "call_id": "call_1",
            "name": "get_news",
            "arguments": '{"ticker":"FB"}',
        },
    ],
    "usage": {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7},
}


def test_the_provider_s_own_endpoint_is_spoken_to_in_the_responses_api_without_memory_there() -> (
    None
):
    store = MemoryReplies()
    with OpenAIServer(wire.Act(body=RESPONSE)) as server:
        spec = ModelSpec(provider="openai", model="gpt-5-pro", max_tokens=9, max_retries=0)
        model = build_openai_chat(
            spec,
            api_key=SECRET,
            base_url=server.url,
            own_url=server.url,
            transport="open",
            responses=True,
        )
        model.replies = store
        turn = model.bind_tools([TOOL]).invoke("hi")
        model.bind_tools([TOOL]).invoke("hi")
        answer = ToolMessage("none", tool_call_id="call_1")
        model.bind_tools([TOOL]).invoke([HumanMessage("hi"), turn, answer])
    first, second = server.requests
    assert first.path == "/v1/responses"
    assert first.body["store"] is False
    assert first.body["max_output_tokens"] == 9
    assert "previous_response_id" not in second.body
    assert [item.get("call_id") for item in second.body["input"]] == [None, "call_1", "call_1"]
    assert turn.tool_calls[0]["args"] == {"ticker": "FB"}
    assert turn.usage_metadata == {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}


# ------------------------------------------------------------------------------------ failures


def test_a_rate_limit_is_waited_out_by_the_client_and_is_no_attempt() -> None:
    store = MemoryReplies()
    with OpenAIServer(wire.rate_limited("0"), wire.text("ok")) as server:
        assert model_at(server, store=store, max_retries=2).invoke("hi").content == "ok"
    assert len(server.requests) == 2
    assert store.outcomes == []


def test_a_rate_limit_that_stays_is_a_transport_outcome() -> None:
    outcome = ends_with(wire.rate_limited("0"), max_retries=1)
    assert outcome.kind == "transport"
    assert outcome.message == "the provider answered 429: Rate limit reached"


def test_the_first_good_reply_is_stored_and_nothing_before_it() -> None:
    store = MemoryReplies()
    script = [wire.rate_limited(), wire.cut("It was go"), wire.text("It was good.")]
    with OpenAIServer(*script) as server:
        model = model_at(server, store=store, max_retries=1)
        with pytest.raises(ModelOutcome, match="length"):
            model.invoke("hi")
        assert model.invoke("hi").content == "It was good."
    assert [reply.text for reply in store.answers.values()] == ["It was good."]


def test_a_server_error_is_a_transport_outcome_after_its_retries() -> None:
    with OpenAIServer(wire.error(500, "boom", retry_after="0")) as server:
        with pytest.raises(ModelOutcome, match="answered 500: boom"):
            model_at(server, max_retries=1).invoke("hi")
        assert len(server.requests) == 2


def test_a_wrong_key_is_an_outcome_that_does_not_repeat_the_key() -> None:
    outcome = ends_with(wire.error(401, f"Incorrect API key provided: {SECRET}"))
    assert outcome.message == "the provider answered 401: Incorrect API key provided: [API key]"
    printed = "".join(traceback.format_exception(outcome))
    assert SECRET not in printed


def test_a_filtered_prompt_is_told_from_a_broken_request() -> None:
    filtered = ends_with(wire.error(400, "policy", code="content_filter"))
    broken = ends_with(wire.error(400, "context too long", code="context_length_exceeded"))
    assert (filtered.kind, broken.kind) == ("content_filter", "rejected")


@pytest.mark.parametrize("status", [400, 404, 413, 422])
def test_a_request_that_the_server_will_not_take_is_rejected(status: int) -> None:
    outcome = ends_with(wire.error(status, "no such field"))
    assert (outcome.kind, outcome.unheard) == ("rejected", True)
    assert outcome.message == f"the provider answered {status}: no such field"


@pytest.mark.parametrize("status", [401, 403, 408, 409, 429, 500, 503])
def test_what_has_nothing_to_do_with_the_prompt_is_a_transport_outcome(status: int) -> None:
    assert ends_with(wire.error(status, "not now")).kind == "transport"


def test_a_refusal_is_an_outcome_with_its_words() -> None:
    outcome = ends_with(wire.completion(None, refusal="I cannot rate stocks."))
    assert outcome.kind == "refusal"
    assert "I cannot rate stocks." in outcome.message


def test_a_body_that_is_no_json_is_a_transport_outcome() -> None:
    outcome = ends_with(wire.malformed())
    assert outcome.kind == "transport"
    assert outcome.message.startswith("the answer is no JSON")


def test_a_server_that_hangs_is_given_up_in_time() -> None:
    started = time.perf_counter()
    outcome = ends_with(wire.hang(20), timeout_s=0.3)
    assert outcome.message == "the provider did not answer in time"
    assert time.perf_counter() - started < 5


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_told_and_neither_prompt_nor_key_goes_elsewhere(status: int) -> None:
    with OpenAIServer(wire.text("from elsewhere")) as elsewhere:
        place = f"{elsewhere.url}/chat/completions"
        outcome = ends_with(wire.Act(status=status, body={}, headers={"location": place}))
        assert elsewhere.connections == 0
    assert outcome.kind == "transport"
    assert f"answered {status}: it points to {place}, and no redirect is followed" in str(outcome)


def test_a_dropped_connection_is_a_transport_outcome() -> None:
    assert ends_with(wire.Act(drop=True)).message.startswith("the provider cannot be reached")


def test_a_port_without_a_server_is_a_transport_outcome() -> None:
    with OpenAIServer(wire.text("ok")) as server:
        model = model_at(server)
    with pytest.raises(ModelOutcome, match="cannot be reached"):
        model.invoke("hi")


def test_a_closed_port_of_this_machine_is_named_at_once_for_no_waiting_opens_it() -> None:
    with OpenAIServer(wire.text("ok")) as server:
        model = model_at(server, max_retries=20)
        port = server.url.rpartition(":")[2].partition("/")[0]
    # Twenty tries would take minutes.
    with pytest.raises(ModelOutcome) as caught:
        model.invoke("hi")
    assert caught.value.message == (
        f"the provider cannot be reached: nothing listens at 127.0.0.1:{port}; "
        "start the model server there, or name its address with --base-url"
    )


def test_a_port_elsewhere_that_refuses_may_open_again() -> None:
    refused = ConnectionRefusedError(111, "Connection refused")
    assert closed_port(refused, "http://10.1.2.3:8000/v1") is None
    assert closed_port(refused, "http://model.example/v1") is None
    assert closed_port(OSError("down"), "http://127.0.0.1:8000/v1") is None
    assert closed_port(refused, "http://[::1]:8000/v1") == "[::1]:8000"
    assert closed_port(refused, "http://me:secret@localhost:8000/v1") == "localhost:8000"


def test_a_structured_reply_that_does_not_validate_is_an_outcome_with_its_text() -> None:
    site = Site(node="Trader", free_text=False, validate=lambda reply: "action is missing")
    token = CURRENT_SITE.set(site)
    try:
        outcome = ends_with(wire.text("{}"))
    finally:
        CURRENT_SITE.reset(token)
    assert (outcome.kind, outcome.message, outcome.text) == ("invalid", "action is missing", "{}")


def test_the_key_is_sent_and_stored_nowhere() -> None:
    store = MemoryReplies()
    with OpenAIServer(wire.text(f"you sent {SECRET}")) as server:
        model = model_at(server, store=store)
        message = model.invoke("hi")
    assert server.requests[0].headers["authorization"] == f"Bearer {SECRET}"
    everything = repr((store.answers, store.calls, message, model))
    assert SECRET not in everything


QUOTED = 'sk-"TEST"\\SECRET-123'


@pytest.mark.parametrize("secret", [SECRET, QUOTED])
def test_a_key_that_comes_back_in_any_field_is_recorded_nowhere(secret: str) -> None:
    act = wire.tools((secret, {"k": secret, secret: 1}), content=secret)
    act.body["model"] = act.body["id"] = secret
    act.body["choices"][0]["message"]["tool_calls"][0]["id"] = secret
    store = MemoryReplies()
    with OpenAIServer(act) as server:
        model = model_at(server, store=store)
        model.openai_api_key = SecretStr(secret)
        model.invoke("hi")
        ended = wire.completion("Buy.", finish_reason=secret)
    (reply,) = store.answers.values()
    assert reply.tool_calls[0].name == reply.model == reply.text == "[API key]"
    assert json.loads(reply.raw)["model"] == "[API key]"
    with OpenAIServer(ended, wire.error(400, "x" * 490 + secret)) as server:
        model = model_at(server, store=store)
        model.openai_api_key = SecretStr(secret)
        for prompt in ("one", "two"):
            with pytest.raises(ModelOutcome):
                model.invoke(prompt)
    everything = repr((store.answers, store.outcomes))
    assert "TEST" not in everything
    assert "SECRET" not in everything


def test_a_server_without_a_key_may_say_the_placeholder() -> None:
    store = MemoryReplies()
    with OpenAIServer(wire.text("there is no-key here")) as server:
        spec = ModelSpec(provider="openai_compatible", model="m", base_url=server.url)
        model = create_model(spec, api_key=None)
        assert isinstance(model, ReplayingChatOpenAI)
        model.replies = store
        assert model.invoke("hi").content == "there is no-key here"


# ----------------------------------------------------------------------------- absurd answers


@pytest.mark.parametrize("charset", ["hex", "utf-7", "raw_unicode_escape", "no-such", "utf-16"])
@pytest.mark.parametrize("status", [200, 400, 500])
def test_a_charset_that_is_none_cannot_stop_a_call(charset: str, status: int) -> None:
    store = MemoryReplies()
    body = json.dumps({**wire.text("Buy.").body, "message": "\ud83d"})
    act = wire.Act(
        status=status, body=body, headers={"content-type": f"application/json; charset={charset}"}
    )
    with OpenAIServer(act) as server:
        model = model_at(server, store=store)
        if status == 200:
            assert model.invoke("hi").content == "Buy."
        else:
            with pytest.raises(ModelOutcome) as outcome:
                model.invoke("hi")
            assert outcome.value.kind == ("rejected" if status == 400 else "transport")
            canonical_json(store.outcomes[0].message)


@pytest.mark.parametrize("message", ["\ud83d", 2**70, ["x"], {"a": None}, None])
def test_an_error_of_any_form_is_an_outcome_that_can_be_written(message: Any) -> None:
    act = wire.Act(status=400, body={"error": {"message": message, "code": [1], "type": {}}})
    canonical_json(ends_with(act).message)
    canonical_json(ends_with(wire.Act(status=400, body=message)).message)
    canonical_json(ends_with(wire.Act(body={"error": message or "x"})).message)


def test_an_error_as_deep_as_a_parser_goes_is_an_outcome() -> None:
    for levels in (200, 900, 100_000):
        ends_with(wire.Act(status=400, body='{"error": ' + "[" * levels + "]" * levels + "}"))


# --------------------------------------------------------------------------- replay's transport


def test_a_replaying_model_uses_not_even_a_connection_that_is_open() -> None:
    with OpenAIServer(wire.text("ok")) as server:
        spec = ModelSpec(
            provider="openai_compatible", model="m", base_url=server.url, max_retries=3
        )
        model = create_model(spec, api_key=None, transport="refuse")
        assert isinstance(model, ReplayingChatOpenAI)
        with pytest.raises(openai.APIConnectionError):
            model.client.create(model="m", messages=[{"role": "user", "content": "hi"}])
        with pytest.raises(httpx2.ConnectError, match=r"no request to 127\.0\.0\.1"):
            model.http_client.post(f"{server.url}/chat/completions", json={})
        assert (server.connections, server.requests) == (0, [])
