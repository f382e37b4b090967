"""What is in a cache key, and what is not."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from tradingagents_core.errors import PipelineError, SettingsError
from tradingagents_core.llm.factory import create_model
from tradingagents_core.llm.keys import (
    call_key,
    canonical_json,
    endpoint_alias,
    key_document,
    sha256_hex,
)
from tradingagents_core.protocols import Site
from tradingagents_core.settings import ModelSpec

URL = "http://127.0.0.1:9/v1"

PRICE_TOOL = {
    "type": "function",
    "function": {
        "name": "get_stock_data",
        "description": "Daily bars.",
        "parameters": {"type": "object", "properties": {"symbol": {"type": "string"}}},
    },
}
NEWS_TOOL = {
    "type": "function",
    "function": {
        "name": "get_news",
        "description": "Headlines.",
        "parameters": {"type": "object", "properties": {"ticker": {"type": "string"}}},
    },
}
SCHEMA = {"type": "object", "properties": {"rating": {"type": "string"}}}


def messages(system: str = "You rate stocks.", first_id: str = "m-1") -> list[BaseMessage]:
    return [SystemMessage(system, id=first_id), HumanMessage("Rate FB.", id="m-2")]


def key_of(
    *,
    spec: ModelSpec | None = None,
    asked: list[BaseMessage] | None = None,
    site: Site | None = None,
    api_key: str = "sk-one",
    accept_truncated: bool = False,
    **arguments: object,
) -> str:
    """Return the key of a call as the model class derives it."""
    chosen = spec or spec_of()
    model = create_model(chosen, api_key=api_key)
    body = model._get_request_payload(asked or messages(), **arguments)
    document = key_document(
        body,
        provider=model.provider,
        endpoint=model.endpoint,
        site=site or Site(),
        accept_truncated=accept_truncated,
    )
    return call_key(document)


def spec_of(**changes: object) -> ModelSpec:
    fields = {
        "provider": "openai_compatible",
        "model": "small-1",
        "base_url": URL,
        "temperature": 0.0,
        **changes,
    }
    return ModelSpec(**fields)


def bound(**changes: object) -> dict[str, object]:
    return {
        "tools": [PRICE_TOOL, NEWS_TOOL],
        "response_format": {"type": "json_schema", "json_schema": {"name": "R", "schema": SCHEMA}},
        **changes,
    }


def test_the_key_is_the_sha256_of_the_documents_text() -> None:
    document = key_document(
        {"model": "m", "messages": [{"role": "user", "content": "hi"}]},
        provider="p",
        endpoint="e",
        site=Site(node="Trader", index=3, attempt=1, trial=2, generation=4),
    )
    assert document == (
        '{"attempt":1,"body":{"messages":[{"content":"hi","role":"user"}],"model":"m"},'
        '"endpoint":"e","format":1,"generation":4,"provider":"p","trial":2}'
    )
    # By sha256sum of coreutils.
    assert call_key(document) == (
        "92832a34f63e16b5ce4f101715592b3435f0c13b4db8bdfe09564ad97f9fee07"
    )


def test_each_change_that_can_change_an_answer_gives_a_new_key() -> None:
    described = json.loads(json.dumps(NEWS_TOOL))
    described["function"]["description"] = "Headlines of the week."
    other_schema = {"type": "object", "properties": {"rating": {"enum": ["Buy", "Sell"]}}}
    keys = {
        "as it was": key_of(**bound()),
        "model": key_of(spec=spec_of(model="small-2"), **bound()),
        "temperature": key_of(spec=spec_of(temperature=0.7), **bound()),
        "tool removed": key_of(**bound(tools=[PRICE_TOOL])),
        "tool description": key_of(**bound(tools=[PRICE_TOOL, described])),
        "response schema": key_of(
            **bound(
                response_format={
                    "type": "json_schema",
                    "json_schema": {"name": "R", "schema": other_schema},
                }
            )
        ),
        "base url": key_of(spec=spec_of(base_url="http://127.0.0.1:10/v1"), **bound()),
        "one space": key_of(asked=messages("You rate  stocks."), **bound()),
        "trial": key_of(site=Site(trial=1), **bound()),
        "attempt": key_of(site=Site(attempt=1), **bound()),
        "generation": key_of(site=Site(generation=1), **bound()),
        "order of tools": key_of(**bound(tools=[NEWS_TOOL, PRICE_TOOL])),
        "limit": key_of(spec=spec_of(max_tokens=100), **bound()),
        "stop words": key_of(stop=["END"], **bound()),
        "truncated replies taken": key_of(accept_truncated=True, **bound()),
        "a field nobody knows": key_of(reasoning_effort="high", **bound()),
    }
    assert len(set(keys.values())) == len(keys)


def test_another_provider_gives_a_new_key_at_the_same_address() -> None:
    body = {"model": "m", "messages": []}
    documents = {
        key_document(body, provider=provider, endpoint="e", site=Site()) for provider in "ab"
    }
    assert len(documents) == 2


def test_ids_order_and_transport_do_not_change_the_key() -> None:
    plain = key_of(**bound())
    reordered = {
        "function": dict(reversed(list(PRICE_TOOL["function"].items()))),
        "type": "function",
    }
    assert key_of(asked=messages(first_id="another"), **bound()) == plain
    assert key_of(**bound(tools=[reordered, NEWS_TOOL])) == plain
    assert key_of(spec=spec_of(timeout_s=1.0, max_retries=9), **bound()) == plain
    assert key_of(api_key="sk-two", **bound()) == plain
    assert key_of(timeout=3, extra_headers={"X-Trace": "7"}, **bound()) == plain
    assert key_of(stream=True, user="me", metadata={"a": "b"}, **bound()) == plain
    assert key_of(site=Site(node="Trader", index=4, cell="FB|2018-06-29|0"), **bound()) == plain


def test_callbacks_and_tags_do_not_reach_the_body() -> None:
    model = create_model(spec_of(), api_key=None)
    tagged = model.with_config(tags=["t"], callbacks=[], metadata={"run": 1})
    assert tagged.bound._get_request_payload(messages()) == model._get_request_payload(messages())


def conversation(first: str, second: str) -> list[BaseMessage]:
    calls = [
        {"name": "get_news", "args": {"ticker": "FB"}, "id": first, "type": "tool_call"},
        {"name": "get_stock_data", "args": {"symbol": "FB"}, "id": second, "type": "tool_call"},
    ]
    return [
        HumanMessage("Rate FB."),
        AIMessage("", tool_calls=calls),
        ToolMessage("bars", tool_call_id=second),
        ToolMessage("news", tool_call_id=first),
    ]


def test_tool_call_ids_are_ordinals_in_the_key() -> None:
    key = key_of(asked=conversation("call_9aZ", "call_Q1"))
    assert key == key_of(asked=conversation("abcdefghi", "jklmnopqr"))


def test_which_answer_belongs_to_which_call_is_in_the_key() -> None:
    swapped = conversation("a", "b")
    swapped[2], swapped[3] = (
        ToolMessage("bars", tool_call_id="a"),
        ToolMessage("news", tool_call_id="b"),
    )
    assert key_of(asked=swapped) != key_of(asked=conversation("a", "b"))


def test_ids_of_response_items_are_ordinals_too() -> None:
    def keyed(call_id: str, item_id: str) -> str:
        items = [
            {"type": "function_call", "id": item_id, "call_id": call_id, "arguments": "{}"},
            {"type": "function_call_output", "call_id": call_id, "output": "42"},
        ]
        body = {"model": "m", "input": items}
        return key_document(body, provider="p", endpoint="e", site=Site())

    assert keyed("call_1", "fc_1") == keyed("call_2", "fc_2")
    assert "fc_1" not in keyed("call_1", "fc_1")


@pytest.mark.parametrize(
    "blocks",
    [
        lambda one: (
            {"type": "tool_use", "id": one, "name": "f", "input": {}},
            {"type": "tool_result", "tool_use_id": one, "content": "42"},
        ),
        lambda one: (
            {"toolUse": {"toolUseId": one, "name": "f", "input": {}}},
            {"toolResult": {"toolUseId": one, "content": [{"text": "42"}]}},
        ),
    ],
    ids=["anthropic", "bedrock"],
)
def test_ids_in_blocks_of_content_are_ordinals_too(blocks) -> None:
    def keyed(first: str, second: str, *, told: str) -> str:
        use, result = blocks(first), blocks(second)
        answered = {first: use, second: result}[told][1]
        messages = [
            {"role": "assistant", "content": [{"type": "text", "text": "a"}, use[0], result[0]]},
            {"role": "user", "content": [answered]},
        ]
        return key_document(
            {"model": "m", "messages": messages}, provider="p", endpoint="e", site=Site()
        )

    assert keyed("toolu_1", "toolu_2", told="toolu_1") == keyed("x", "y", told="x")
    assert "toolu_1" not in keyed("toolu_1", "toolu_2", told="toolu_1")
    assert keyed("x", "y", told="x") != keyed("x", "y", told="y"), "which call is answered counts"


def test_an_id_in_another_block_of_content_stays_in_the_key() -> None:
    def keyed(name: str) -> str:
        block = {"type": "document", "id": name}
        body = {"model": "m", "messages": [{"role": "user", "content": [block]}]}
        return key_document(body, provider="p", endpoint="e", site=Site())

    assert keyed("a") != keyed("b")


def test_a_message_item_may_say_its_type_or_not() -> None:
    def keyed(**more: str) -> str:
        body = {"model": "m", "input": [{"role": "user", "content": "hi", **more}]}
        return key_document(body, provider="p", endpoint="e", site=Site())

    assert keyed(type="message") == keyed()
    assert keyed(type="another") != keyed()


def test_token_ids_are_texts_in_a_key_as_they_are_on_the_wire() -> None:
    def keyed(bias: dict[object, int]) -> str:
        body = {"model": "m", "messages": [], "logit_bias": bias}
        return key_document(body, provider="p", endpoint="e", site=Site())

    assert keyed({50256: -100}) == keyed({"50256": -100})


def test_the_word_null_hides_no_number_that_is_none() -> None:
    tools = [{"function": {"parameters": {"type": ["string", "null"], "maximum": math.nan}}}]
    body = {"messages": [{"role": "user", "content": 'null "null", [null'}], "tools": tools}
    with pytest.raises(PipelineError, match="is no JSON number"):
        key_document(body, provider="p", endpoint="e", site=Site())
    tools[0]["function"]["parameters"]["maximum"] = None
    assert key_document(body, provider="p", endpoint="e", site=Site())


def test_a_conversation_that_the_provider_keeps_is_refused() -> None:
    with pytest.raises(SettingsError, match="previous_response_id"):
        key_document({"previous_response_id": "resp_1"}, provider="p", endpoint="e", site=Site())


def test_the_body_is_left_as_it_was() -> None:
    body = {"messages": [{"role": "tool", "tool_call_id": "call_1", "content": "x"}], "user": "me"}
    before = json.dumps(body)
    key_document(body, provider="p", endpoint="e", site=Site())
    assert json.dumps(body) == before


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    "place",
    [
        lambda x: {"temperature": x},
        lambda x: {"tools": [{"function": {"parameters": {"maximum": x}}}]},
        lambda x: {"messages": [{"role": "user", "content": [{"weight": (x,)}]}]},
        lambda x: {"messages": [{"role": "user", "content": "null", "weight": x}]},
    ],
)
def test_a_number_that_json_does_not_have_is_refused_wherever_it_is(value, place) -> None:
    with pytest.raises(PipelineError, match="is no JSON number"):
        key_document(place(value), provider="p", endpoint="e", site=Site())
    with pytest.raises(ValueError, match="is no JSON number"):
        canonical_json(place(value))


def test_a_null_is_no_nan() -> None:
    assert canonical_json({"content": None, "text": "null"}) == '{"content":null,"text":"null"}'


def test_half_a_surrogate_pair_in_a_prompt_is_refused_with_its_endpoint() -> None:
    body = {"messages": [{"role": "user", "content": "\ud83d"}]}
    with pytest.raises(PipelineError, match=r"e1 cannot be keyed"):
        key_document(body, provider="p", endpoint="e1", site=Site())


UNICODE = st.text(st.characters(exclude_categories=["Cs"]))
JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | UNICODE,
    lambda inner: st.lists(inner) | st.dictionaries(UNICODE, inner),
    max_leaves=20,
)


@given(JSON_VALUES)
def test_canonical_json_reads_back_the_same_and_has_sorted_keys(value: object) -> None:
    text = canonical_json(value)
    assert json.loads(text) == value
    assert canonical_json(json.loads(text)) == text
    assert "\n" not in text


@given(st.dictionaries(UNICODE, UNICODE | st.integers(0, 9)))
def test_canonical_json_equals_the_standard_librarys_compact_form(value: dict[str, object]) -> None:
    expected = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert canonical_json(value) == expected


def test_a_secret_query_is_in_the_key_only_as_a_hash() -> None:
    body = {"model": "m", "extra_query": {"key": "sk-TEST-SECRET-123"}}
    document = key_document(body, provider="p", endpoint="e", site=Site())
    assert "sk-TEST-SECRET-123" not in document
    assert sha256_hex('{"key":"sk-TEST-SECRET-123"}') in document


@pytest.mark.parametrize(
    ("provider", "base_url", "own", "alias", "expected"),
    [
        ("openai", None, "https://api.openai.com/v1", None, "openai"),
        ("openai", "https://api.openai.com/v1/", "https://api.openai.com/v1", None, "openai"),
        ("openai", "https://api.openai.com:443/v1", "https://api.openai.com/v1", None, "openai"),
        ("openai", "https://eu.api.openai.com/v1", "https://api.openai.com/v1", None,
         "https://eu.api.openai.com:443/v1"),
        ("x", "http://127.0.0.1:8000/v1", None, None, "http://127.0.0.1:8000/v1"),
        ("x", "http://[::1]:8000/v1", None, None, "http://[::1]:8000/v1"),
        ("x", "http://me:pw@host/v1?key=k#f", None, None, "http://host:80/v1"),
        ("x", "http://127.0.0.1:8000/v1", None, "my-llama", "my-llama"),
    ],
)  # fmt: skip
def test_an_endpoint_is_named_without_credentials(
    provider: str, base_url: str | None, own: str | None, alias: str | None, expected: str
) -> None:
    assert endpoint_alias(provider, base_url, own_url=own, alias=alias) == expected
