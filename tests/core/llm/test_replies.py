"""Provider answers are read into one form, judged, and handed on as LangChain messages."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk

from tests.support import openai_server as wire
from tradingagents_core.llm.keys import canonical_json
from tradingagents_core.llm.reading import MAX_TOKENS, MalformedReply, blank, object_or_none
from tradingagents_core.llm.replies import (
    chunk_of,
    message_of,
    outcome_of,
    recordable,
    reply_from_chat_completion,
    reply_from_message,
    reply_from_response,
)
from tradingagents_core.protocols import Reply, Site, ToolCall, Usage


def read(act: wire.Act) -> Reply:
    return reply_from_chat_completion(json.dumps(act.body))


def judged(reply: Reply, *, accept_truncated: bool = False, site: Site | None = None) -> str | None:
    outcome = outcome_of(reply, site=site or Site(), accept_truncated=accept_truncated)
    return None if outcome is None else outcome.kind


# ------------------------------------------------------------------------------------- reading


def test_text_usage_and_model_are_read_and_the_raw_json_is_kept() -> None:
    raw = json.dumps(wire.text("Buy.").body)
    reply = reply_from_chat_completion(raw)
    assert reply == Reply(
        text="Buy.",
        finish_reason="stop",
        usage=Usage(input_tokens=11, output_tokens=7),
        model="stub-1-2026",
        raw=raw,
    )


def test_tool_calls_keep_their_order_and_get_canonical_arguments() -> None:
    reply = read(wire.tools(("b", '{ "y": 1,\n "x": [2] }'), ("a", {})))
    assert [(call.name, call.args) for call in reply.tool_calls] == [
        ("b", '{"x":[2],"y":1}'),
        ("a", "{}"),
    ]
    assert reply.text == ""


def test_arguments_that_are_no_object_are_kept_as_text_and_handed_on_as_invalid() -> None:
    reply = read(wire.tools(("a", '{"x": '), ("b", "[1]"), ("c", '{"x": 1}')))
    message = message_of(reply, message_id="m")
    assert [call["name"] for call in message.tool_calls] == ["c"]
    assert [(call["name"], call["args"]) for call in message.invalid_tool_calls] == [
        ("a", '{"x": '),
        ("b", "[1]"),
    ]


@pytest.mark.parametrize(
    ("sent", "args"),
    [
        ("", "{}"),
        (None, "{}"),
        ({"b": 1, "a": 2}, '{"a":2,"b":1}'),
        ('{"a": "\\ud83d"}', '{"a": "\\ud83d"}'),
    ],
)
def test_arguments_come_in_the_forms_that_servers_send(sent: Any, args: str) -> None:
    act = wire.tools(("f", "x"))
    act.body["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] = sent
    assert read(act).tool_calls[0].args == args


def test_a_missing_or_repeated_call_id_is_made_unique() -> None:
    call = {"type": "function", "function": {"name": "f", "arguments": "{}"}}
    act = wire.completion(None, tool_calls=[{**call}, {**call, "id": "x"}, {**call, "id": "x"}])
    assert [one.id for one in read(act).tool_calls] == ["call_0_", "x", "call_2_x"]


def test_content_in_parts_is_joined() -> None:
    act = wire.text("")
    act.body["choices"][0]["message"]["content"] = [
        {"type": "text", "text": "Buy "},
        {"type": "text", "text": "now."},
    ]
    assert read(act).text == "Buy now."


def test_half_a_surrogate_pair_becomes_the_replacement_sign() -> None:
    raw = json.dumps(wire.text("MARK").body).replace("MARK", "up \\ud83d! \\ud83d\\ude80")
    assert reply_from_chat_completion(raw).text == "up �! 🚀"


def test_a_server_that_reports_no_usage_leaves_it_unknown() -> None:
    act = wire.text("Buy.")
    del act.body["usage"]
    reply = read(act)
    assert reply.usage == Usage()
    assert message_of(reply, message_id="m").usage_metadata is None


@pytest.mark.parametrize(
    "raw",
    [
        "",
        "<html>502</html>",
        "[]",
        '{"choices": null}',
        '{"choices": []}',
        '{"choices": [{}]}',
        '{"error": {"message": "overloaded"}}',
        "[" * 100_000,
    ],
)
def test_an_answer_of_another_form_is_named_and_never_empty_text(raw: str) -> None:
    with pytest.raises(MalformedReply, match=r"answer"):
        reply_from_chat_completion(raw)


def response(**changes: Any) -> str:
    return json.dumps(
        {
            "id": "resp_1",
            "model": "gpt-x",
            "status": "completed",
            "incomplete_details": None,
            "output": [
                {"type": "reasoning", "id": "rs_1", "summary": []},
                {
                    "type": "message",
                    "id": "msg_1",
                    "content": [{"type": "output_text", "text": "Buy."}],
                },
                {
                    "type": "function_call",
                    "id": "fc_1",
                    "call_id": "call_1",
                    "name": "f",
                    "arguments": '{"x":1}',
                },
            ],
            "usage": {"input_tokens": 3, "output_tokens": 4},
            **changes,
        }
    )


def test_an_answer_of_the_responses_api_is_read_into_the_same_form() -> None:
    reply = reply_from_response(response())
    assert (reply.text, reply.finish_reason, reply.model) == ("Buy.", "completed", "gpt-x")
    assert reply.tool_calls == (ToolCall(id="call_1", name="f", args='{"x":1}'),)
    assert reply.usage == Usage(input_tokens=3, output_tokens=4)
    assert judged(reply) is None


def test_an_incomplete_answer_of_the_responses_api_is_cut() -> None:
    cut = response(status="incomplete", incomplete_details={"reason": "max_output_tokens"})
    assert judged(reply_from_response(cut)) == "length"
    assert judged(reply_from_response(response(status="failed"))) == "transport"


REASONED = [
    ({"reasoning_content": "Cheap."}, "Cheap.", None),
    ({"reasoning": "Cheap."}, "Cheap.", None),
    ({"reasoning_content": "", "reasoning": "Cheap."}, "Cheap.", None),
    (
        {
            "reasoning_details": [
                {"type": "reasoning.text", "text": "Cheap.", "b": 1, "a": "\ud83d"}
            ]
        },
        "Cheap.",
        '[{"a":"\ufffd","b":1,"text":"Cheap.","type":"reasoning.text"}]',
    ),
    (
        {
            "content": [
                {"type": "thinking", "thinking": [{"type": "text", "text": "Cheap."}]},
                {"type": "text", "text": "Buy."},
            ]
        },
        "Cheap.",
        None,
    ),
    ({"reasoning_content": None, "reasoning_details": []}, None, None),
]


@pytest.mark.parametrize(("fields", "reasoning", "opaque"), REASONED)
def test_reasoning_is_read_from_the_field_that_a_server_has_for_it(
    fields: dict[str, Any], reasoning: str | None, opaque: str | None
) -> None:
    message = {"role": "assistant", "content": "Buy.", **fields}
    raw = json.dumps({"choices": [{"message": message, "finish_reason": "stop"}]})
    reply = reply_from_chat_completion(raw)
    assert (reply.text, reply.reasoning, reply.opaque) == ("Buy.", reasoning, opaque)


def test_reasoning_items_of_the_responses_api_are_kept_as_words_and_as_they_came() -> None:
    item = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "Cheap."}, {"text": "So buy."}],
        "encrypted_content": "gAAA",
    }
    said = {"type": "message", "content": [{"type": "output_text", "text": "Buy."}]}
    reply = reply_from_response(json.dumps({"status": "completed", "output": [item, said]}))
    assert reply.text == "Buy."
    assert reply.reasoning == "Cheap.\n\nSo buy."
    assert reply.opaque == canonical_json([item])


def test_reasoning_survives_a_message_and_a_chunk() -> None:
    reply = Reply(text="Buy.", reasoning="Cheap.", opaque="[1]")
    message = message_of(reply, message_id="m")
    assert reply_from_message(message, model="") == replace(reply, usage=Usage())
    assert chunk_of(reply, message_id="m").additional_kwargs == message.additional_kwargs


def test_a_message_is_what_its_own_class_would_have_made_of_it() -> None:
    broken = ToolCall(id="b", name="f", args="{broken")
    good = ToolCall(id="a", name="f", args='{"x":1}')
    reply = Reply(
        text="Buy.",
        tool_calls=(good, broken),
        finish_reason="tool_calls",
        usage=Usage(input_tokens=1, output_tokens=2, cached_tokens=1),
        model="m",
        reasoning="Cheap.",
    )
    message = message_of(reply, message_id="m", parsed=3)
    fields = ("content", "id", "tool_calls", "invalid_tool_calls", "usage_metadata",
              "response_metadata", "additional_kwargs")  # fmt: skip
    validated = AIMessage(**{name: getattr(message, name) for name in fields})
    assert message == validated
    assert message.model_dump() == validated.model_dump()
    assert message.model_fields_set == validated.model_fields_set
    assert repr(message) == repr(validated)
    assert AIMessage.model_validate(message.model_dump()) == message


def test_a_message_of_another_chat_model_is_read_and_built_again_the_same() -> None:
    message = AIMessage(
        "Text",
        tool_calls=[{"name": "f", "args": {"b": 1, "a": None}, "id": "1", "type": "tool_call"}],
        usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
        response_metadata={"finish_reason": "tool_calls", "model_name": "m"},
        id="m",
    )
    assert message_of(reply_from_message(message, model="x"), message_id="m") == message


# ------------------------------------------------------------------------------------- judging


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (Reply(text="Buy."), None),
        (Reply(text="Buy.", finish_reason=""), None),
        (Reply(text="Buy.", finish_reason="END_TURN"), None),
        (Reply(text="Buy", finish_reason="length"), "length"),
        (Reply(text="Buy", finish_reason="MAX_TOKENS"), "length"),
        (Reply(text="Buy", finish_reason="content_filter"), "content_filter"),
        (Reply(text="Buy", finish_reason="insufficient_system_resource"), "transport"),
        (Reply(text="", refusal="I cannot."), "refusal"),
        (Reply(text=" \n"), "empty"),
        (Reply(text="", tool_calls=(ToolCall(id="1", name="f", args="{}"),)), None),
    ],
)
def test_only_a_whole_good_reply_is_an_answer(reply: Reply, kind: str | None) -> None:
    assert judged(reply) == kind


def test_text_cut_by_length_counts_only_where_it_may() -> None:
    cut = Reply(text="Buy", finish_reason="length")
    calling = Reply(
        text="", finish_reason="length", tool_calls=(ToolCall(id="1", name="f", args="{}"),)
    )
    assert judged(cut, accept_truncated=True) is None
    assert judged(cut, accept_truncated=True, site=Site(free_text=False)) == "length"
    assert judged(cut, accept_truncated=True, site=Site(validate=lambda _: None)) == "length"
    assert judged(calling, accept_truncated=True) == "length"
    assert judged(Reply(text=" ", finish_reason="length"), accept_truncated=True) == "empty"


def test_a_reply_that_does_not_validate_is_no_answer_and_says_why() -> None:
    site = Site(validate=lambda reply: f"no rating in {reply.text}")
    outcome = outcome_of(Reply(text="hm"), site=site, accept_truncated=False)
    assert outcome is not None
    assert (outcome.kind, outcome.message) == ("invalid", "no rating in hm")


# ----------------------------------------------------------------------------------- handing on


def test_a_streamed_reply_says_the_same_as_an_invoked_one() -> None:
    reply = read(wire.tools(("a", {"x": 1}), ("b", '{"broken": ')))
    message = message_of(reply, message_id="m")
    chunk = chunk_of(reply, message_id="m")
    assert isinstance(chunk, AIMessageChunk)
    for name in ("content", "tool_calls", "invalid_tool_calls", "usage_metadata", "id",
                 "response_metadata", "additional_kwargs"):  # fmt: skip
        assert getattr(chunk, name) == getattr(message, name)


def test_two_messages_of_one_reply_share_nothing_that_can_be_changed() -> None:
    reply = read(wire.tools(("a", {"x": [1]})))
    first, second = message_of(reply, message_id="m"), message_of(reply, message_id="m")
    first.tool_calls[0]["args"]["x"].append(2)
    first.response_metadata["cost"] = 1.0
    first.additional_kwargs["seen"] = True
    first.tool_calls.clear()
    first.invalid_tool_calls.append(first.tool_calls)
    first.name = "somebody"
    assert second.model_fields_set == first.model_fields_set - {"name"}
    assert second == message_of(reply, message_id="m")


# ------------------------------------------------------------------------------ what is recorded

ABSURD: list[Any] = [
    2**70, -1, True, 1.5, math.nan, math.inf, "\ud83d", "", None, [], {}, [[1], {"a": None}],
    {"text": 2**70}, ["\udc00"], {"\ud83d": 1},
]  # fmt: skip
CHAT = {
    "model": "m",
    "choices": [
        {
            "finish_reason": "stop",
            "message": {
                "content": [{"type": "text", "text": "Buy."}],
                "refusal": None,
                "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{}"}}],
            },
        }
    ],
    "usage": {"prompt_tokens": 1, "completion_tokens": 2},
}
RESPONSE = {
    "model": "m",
    "status": "completed",
    "incomplete_details": {"reason": None},
    "output": [
        {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
        {"type": "message", "content": [{"text": "Buy.", "refusal": None}]},
    ],
    "usage": {"input_tokens": 1, "output_tokens": 2},
}


def with_absurd_values(value: Any) -> Iterator[Any]:
    """Yield a document with each of its values replaced by each absurd one."""
    yield from ABSURD
    keys = value if isinstance(value, dict) else range(len(value) if isinstance(value, list) else 0)
    for key in keys:
        for changed in with_absurd_values(value[key]):
            copy = dict(value) if isinstance(value, dict) else list(value)
            copy[key] = changed
            yield copy


@pytest.mark.parametrize(
    ("read_raw", "document"),
    [(reply_from_chat_completion, CHAT), (reply_from_response, RESPONSE)],
)
def test_no_field_of_an_answer_can_hold_what_no_record_holds(
    read_raw: Callable[[str], Reply], document: Any
) -> None:
    readable = 0
    for changed in with_absurd_values(document):
        try:
            reply = recordable(read_raw(json.dumps(changed)), None)
        except MalformedReply:
            continue
        readable += 1
        outcome_of(reply, site=Site(), accept_truncated=False)
        message = message_of(reply, message_id="m")
        canonical_json([asdict(reply), message.tool_calls, message.invalid_tool_calls])
        counts = (reply.usage.input_tokens, reply.usage.output_tokens)
        assert all(count is None or 0 <= count <= MAX_TOKENS for count in counts)
    assert readable > 100


@pytest.mark.parametrize("count", [2**70, -1, math.nan, math.inf, 1.5, True, "7"])
def test_a_count_that_cannot_be_one_is_unknown(count: Any) -> None:
    act = wire.text("Buy.", usage={"prompt_tokens": 3, "completion_tokens": count})
    assert read(act).usage == Usage(input_tokens=3, output_tokens=None)


@pytest.mark.parametrize("levels", [90, 300, 900])
def test_a_deep_answer_is_malformed_and_deep_arguments_are_no_object(levels: int) -> None:
    deep = "[" * levels + "]" * levels
    act = wire.tools(("f", f'{{"x": {deep}}}'))
    message = message_of(recordable(read(act), None), message_id="m")
    assert (len(message.tool_calls), len(message.invalid_tool_calls)) == (
        (1, 0) if levels < 100 else (0, 1)
    )
    raw = json.dumps(wire.text("Buy.").body)[:-1] + f', "logprobs": {deep}}}'
    if levels < 100:
        assert reply_from_chat_completion(raw).text == "Buy."
    else:
        with pytest.raises(MalformedReply, match="nested deeper than 100"):
            reply_from_chat_completion(raw)


def test_arguments_that_are_no_json_of_a_local_model_are_kept_as_text() -> None:
    call = {"name": "f", "args": {"x": math.nan}, "id": "1", "type": "tool_call"}
    message = AIMessage(content="", tool_calls=[call])
    (kept,) = reply_from_message(message, model="m").tool_calls
    assert kept.args == '{"x": NaN}'


SECRETS = ["sk-TEST-SECRET-123", 'q"uo\\te/ß🚀', '"in quotes"', "ends with\\", "two\\\\slashes"]


@pytest.mark.parametrize("secret", SECRETS)
def test_no_field_of_a_reply_keeps_the_key(secret: str) -> None:
    echo = f"<{secret}>"
    call = ToolCall(id=echo, name=echo, args=json.dumps({"k": echo}))
    reply = recordable(
        Reply(
            text=f"{echo} {json.dumps(echo)}",
            tool_calls=(call,),
            finish_reason=echo,
            model=echo,
            refusal=echo,
            raw=json.dumps({echo: echo}),
        ),
        secret,
    )
    blanked = "<[API key]>"
    assert reply.text == f'{blanked} "{blanked}"'
    assert (reply.finish_reason, reply.model, reply.refusal) == (blanked, blanked, blanked)
    assert reply.tool_calls == (ToolCall(id=blanked, name=blanked, args=f'{{"k": "{blanked}"}}'),)
    assert reply.raw == f'{{"{blanked}": "{blanked}"}}'


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("after", ["", "\n", '"', "\\", "x"])
@pytest.mark.parametrize("ensure_ascii", [True, False])
def test_the_key_is_found_however_deep_json_escapes_it_and_the_json_stays_whole(
    secret: str, after: str, ensure_ascii: bool
) -> None:
    text = f"a {secret}{after}"
    inner = json.dumps({"k": text}, ensure_ascii=ensure_ascii)
    outer = json.dumps({"arguments": inner, "k": text}, ensure_ascii=ensure_ascii)
    document = json.loads(blank(outer, secret))
    inside = json.loads(document["arguments"])
    for found in (document["k"], inside["k"]):
        assert secret not in found
        assert found.startswith("a [API key]")
    if after != "\\":
        assert (document["k"], inside["k"]) == (f"a [API key]{after}", f"a [API key]{after}")


def test_a_key_that_is_spelled_in_hexadecimal_is_found() -> None:
    secret = "sk-TEST\\SECRET"
    spelled = "".join(f"\\u{ord(char):04X}" for char in secret)
    assert blank(f'"{spelled}"', secret) == '"[API key]"'
    assert blank(json.dumps(f'"{spelled}"'), secret) == json.dumps('"[API key]"')


def test_a_placeholder_that_is_no_key_changes_no_word() -> None:
    assert blank("stop at none", "none") == "stop at none"
    assert blank("stop at none", None) == "stop at none"


def test_a_text_of_backslashes_is_searched_in_one_go() -> None:
    text = "\\" * 200_000
    started = time.perf_counter()
    assert blank(text, "sk-TEST-SECRET-123") == text
    assert blank(text, "two\\slashes") == text
    assert time.perf_counter() - started < 2


@pytest.mark.parametrize("bracket", ["[", "{"])
def test_arguments_are_an_object_up_to_99_levels_and_not_with_one_more(bracket: str) -> None:
    opened, closed = ("[", "]") if bracket == "[" else ('{"x": ', "}")
    for levels, taken in ((98, True), (99, False)):
        nested = '{"x": ' + opened * levels + "1" + closed * levels + "}"
        found = object_or_none(nested)
        assert (found == json.loads(nested)) if taken else found is None
    # Brackets side by side, or in a text, are no levels.
    assert object_or_none('{"x": [' + "[], " * 200 + '"[[[{{{"]}') is not None
