"""The server that puts a real small model behind the chat-completions protocol.

The model itself is a function here; the grammar and the protocol around it are what is tested.
"""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.support.scripts import load_script

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """Return the script as a module."""
    return load_script("local_model_server")


def tool(name: str, **properties: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": sorted(properties)}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


PRICES = tool("get_prices", symbol={"type": "string"})
NEWS = tool("get_news", days={"type": "integer"})


def saying(*texts: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return a model that says one text after the other, and keeps what it was asked."""
    left = list(texts)

    def complete(request: dict[str, Any]) -> dict[str, Any]:
        asked.append(request)
        return {
            "choices": [{"message": {"content": left.pop(0)}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
        }

    asked: list[dict[str, Any]] = []
    complete.asked = asked  # type: ignore[attr-defined]
    return complete


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def called(name: str, arguments: str = "{}") -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "a", "type": "function", "function": function}],
    }


RESULT = {"role": "tool", "tool_call_id": "a", "content": "1.00"}


# ------------------------------------------------------------------------------------ the grammar


def test_open_strings_lists_and_objects_get_an_end(script: ModuleType) -> None:
    schema = {
        "title": "Plan",
        "type": "object",
        "properties": {
            "title": {"type": "string", "default": ""},
            "side": {"enum": ["Buy", "Sell"], "type": "string"},
            "steps": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["title"],
    }
    assert script.bounded(schema, 80) == {
        "type": "object",
        "properties": {
            "title": {"type": "string", "maxLength": 80},
            "side": {"enum": ["Buy", "Sell"], "type": "string"},
            "steps": {
                "type": "array",
                "items": {"type": "string", "maxLength": 80},
                "maxItems": 4,
            },
        },
        "required": ["title"],
        "additionalProperties": False,
    }


def test_a_call_is_held_to_the_names_and_arguments_of_the_tools(script: ModuleType) -> None:
    schema = script.call_schema([PRICES, NEWS], 80)
    names = [kind["properties"]["name"]["const"] for kind in schema["anyOf"]]
    assert names == ["get_prices", "get_news"]
    assert schema["anyOf"][0]["properties"]["arguments"]["required"] == ["symbol"]


def test_definitions_of_a_tool_move_to_the_root(script: ModuleType) -> None:
    nested = tool("t", side={"$ref": "#/$defs/Side"})
    nested["function"]["parameters"]["$defs"] = {"Side": {"enum": ["Buy"]}}
    schema = script.call_schema([nested], 80)
    assert schema["$defs"] == {"Side": {"enum": ["Buy"]}}
    assert "$defs" not in schema["properties"]["arguments"]


# ---------------------------------------------------------------------------------- what is asked


@pytest.mark.parametrize(
    ("choice", "messages", "names"),
    [
        ("auto", [user("a")], ["get_prices", "get_news"]),
        ("auto", [user("a"), called("get_prices"), RESULT], []),
        # A new question begins the count again.
        ("auto", [user("a"), called("get_prices"), RESULT, user("b")], ["get_prices", "get_news"]),
        ("required", [user("a"), called("x"), RESULT], ["get_prices", "get_news"]),
        ("none", [user("a")], []),
        ({"type": "function", "function": {"name": "get_news"}}, [user("a")], ["get_news"]),
    ],
)
def test_the_tools_of_which_one_must_be_called(
    script: ModuleType, choice: Any, messages: list[dict[str, Any]], names: list[str]
) -> None:
    request = {"tools": [PRICES, NEWS], "tool_choice": choice, "messages": messages}
    found = script.tools_to_call(request, 1)
    assert [one["function"]["name"] for one in found] == names


def test_a_choice_that_is_no_tool_is_refused(script: ModuleType) -> None:
    request = {
        "tools": [PRICES],
        "tool_choice": {"function": {"name": "get_gold"}},
        "messages": [user("a")],
    }
    with pytest.raises(script.BadRequest, match="get_gold"):
        script.tools_to_call(request, 1)


def test_tool_turns_are_spelt_out_for_a_template_that_knows_none(script: ModuleType) -> None:
    turns = script.as_plain_turns(
        [{"role": "developer", "content": "d"}, called("get_prices", '{"symbol": "FB"}'), RESULT]
    )
    assert turns == [
        {"role": "system", "content": "d"},
        {
            "role": "assistant",
            "content": '{"name": "get_prices", "arguments": {"symbol": "FB"}}',
        },
        {"role": "user", "content": "Tool result:\n1.00"},
    ]


def test_a_request_may_ask_for_less_than_the_limit_and_never_for_more(script: ModuleType) -> None:
    limits = script.Limits(tokens=100)
    less = script.engine_request({"messages": [], "max_tokens": 20}, [], limits)
    more = script.engine_request({"messages": [], "max_completion_tokens": 999}, [], limits)
    assert (less["max_tokens"], more["max_tokens"]) == (20, 100)


# -------------------------------------------------------------------------------- what is answered


def test_a_call_is_answered_in_the_protocols_form_with_an_id_of_the_request(
    script: ModuleType,
) -> None:
    request = {"messages": [user("a")], "tools": [PRICES]}
    text = '{"name": "get_prices", "arguments": {"symbol": "FB"}}'
    first = script.answer(request, saying(text), script.Limits())
    again = script.answer(request, saying(text), script.Limits())
    assert first == again
    message = first["choices"][0]["message"]
    assert message["content"] is None
    assert message["tool_calls"][0]["function"] == {
        "name": "get_prices",
        "arguments": '{"symbol": "FB"}',
    }
    assert first["choices"][0]["finish_reason"] == "tool_calls"
    assert first["usage"]["total_tokens"] == 10


def test_a_call_that_the_limit_cut_is_said_to_be_cut(script: ModuleType) -> None:
    request = {"messages": [user("a")], "tools": [PRICES]}
    said = script.answer(request, saying('{"name": "get_pri'), script.Limits())
    assert said["choices"][0]["finish_reason"] == "length"
    assert "tool_calls" not in said["choices"][0]["message"]


def test_a_reply_by_schema_is_held_to_it(script: ModuleType) -> None:
    model = saying('{"side": "Buy"}')
    form = {
        "type": "json_schema",
        "json_schema": {"name": "S", "schema": {"type": "object", "properties": {}}},
    }
    script.answer({"messages": [user("a")], "response_format": form}, model, script.Limits())
    held = model.asked[0]["response_format"]["json_schema"]["schema"]  # type: ignore[attr-defined]
    assert held == {"type": "object", "properties": {}, "additionalProperties": False}


# ------------------------------------------------------------------------------------- over a wire


@pytest.fixture
def address(script: ModuleType) -> Iterator[str]:
    """Serve a model that says one word."""
    model = saying(*["hello"] * 5)
    server = ThreadingHTTPServer(("127.0.0.1", 0), script.handler(model, script.Limits()))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def post(url: str, body: bytes) -> Any:
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as said:
        return json.loads(said.read())


def test_the_protocol_is_spoken_over_http(address: str) -> None:
    body = json.dumps({"messages": [user("a")]}).encode()
    said = post(f"{address}/v1/chat/completions", body)
    assert said["choices"][0]["message"]["content"] == "hello"


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/chat/completions", b"{", 400),
        ("/v1/chat/completions", b"[]", 400),
        ("/v1/chat/completions", b'{"messages": [], "stream": true}', 400),
        ("/v1/chat/completions", b"{}", 400),
        ("/v1/elsewhere", b"{}", 404),
    ],
)
def test_what_cannot_be_answered_is_an_error_of_the_protocol(
    address: str, path: str, body: bytes, status: int
) -> None:
    with pytest.raises(urllib.error.HTTPError) as told:
        post(f"{address}{path}", body)
    with told.value as error:
        assert error.code == status
        assert json.loads(error.read())["error"]["message"]
