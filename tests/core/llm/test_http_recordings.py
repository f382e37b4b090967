"""Raw HTTP exchanges, recorded once: the client's requests and how its answers are read."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml
from langchain_core.messages import AIMessage, HumanMessage
from vcr.errors import CannotOverwriteExistingCassetteException

from tests.support.http_recordings import (
    ADDRESS,
    EXCHANGES,
    FOLDER,
    KEY,
    QUESTION,
    SERVED,
    Verdict,
    bars,
    model_at,
    record,
    tape,
)
from tests.support.reply_stores import MemoryReplies

USAGE = (141, 38, 179)


@contextlib.contextmanager
def replaying(name: str) -> Iterator[None]:
    """Replay a recording, all of it."""
    with tape(name) as cassette:
        yield
    assert cassette.all_played


def usage_of(message: AIMessage) -> tuple[int, int, int]:
    usage = message.usage_metadata
    assert usage is not None
    return usage["input_tokens"], usage["output_tokens"], usage["total_tokens"]


def asked(name: str) -> list[AIMessage]:
    with replaying(name):
        return EXCHANGES[name].ask(ADDRESS)


def test_two_tool_calls_at_once_and_their_answers() -> None:
    first, second = asked("tools")

    assert first.content == ""
    assert [(call["name"], call["args"]) for call in first.tool_calls] == [
        ("bars", {"symbol": "AAPL", "last": 2}),
        ("bars", {"symbol": "NVDA", "last": 2}),
    ]
    assert (second.content, second.tool_calls) == ("Hold AAPL, buy NVDA – in two steps.", [])
    for message, finish in ((first, "tool_calls"), (second, "stop")):
        assert message.response_metadata == {"finish_reason": finish, "model_name": SERVED}
        assert usage_of(message) == USAGE


def test_a_typed_answer_by_json_schema() -> None:
    (message,) = asked("json_schema")

    assert message.additional_kwargs["parsed"] == Verdict(rating="Hold", reason="Nothing new.")
    (request,) = requests_in("json_schema")
    form = json.loads(request["body"])["response_format"]
    assert (form["type"], form["json_schema"]["name"]) == ("json_schema", "Verdict")
    assert form["json_schema"]["schema"]["required"] == ["rating", "reason"]


def test_reasoning_comes_beside_the_answer() -> None:
    (message,) = asked("reasoning")

    assert message.content == "Hold."
    assert message.additional_kwargs == {
        "reasoning_content": "Two bars say little.\nSo: no change."
    }


def test_a_streamed_answer_adds_up_to_what_ours_gives_in_one_piece() -> None:
    text, calls = asked("streaming")
    in_one_piece = asked("tools")[0]

    assert (text.content, usage_of(text)) == ("Hold AAPL, buy NVDA.", USAGE)
    assert [(call["id"], call["name"], call["args"]) for call in calls.tool_calls] == [
        (f"call_Yk3mB7qTn0{number}XwPz", "bars", {"symbol": symbol, "last": 2})
        for number, symbol in ((1, "AAPL"), (2, "NVDA"))
    ]
    assert [(call["name"], call["args"]) for call in in_one_piece.tool_calls] == [
        (call["name"], call["args"]) for call in calls.tool_calls
    ]
    assert usage_of(calls) == usage_of(in_one_piece)


@pytest.mark.parametrize("style", ["invoke", "stream", "batch"])
def test_every_style_of_our_model_sends_the_recorded_request(style: str) -> None:
    model = model_at(ADDRESS, temperature=0.0)
    with replaying("reasoning"):
        if style == "invoke":
            answer = model.invoke(list(QUESTION))
        elif style == "stream":
            (answer,) = model.stream(list(QUESTION))
        else:
            (answer,) = model.batch([list(QUESTION)])
    assert answer.content == "Hold."


def test_what_is_stored_of_an_exchange_is_the_answer_as_it_came() -> None:
    store = MemoryReplies()
    model = model_at(ADDRESS)
    model.replies = store
    bound = model.bind_tools([bars])
    with tape("tools"):
        first = bound.invoke(list(QUESTION))
    answered = recorded("tools")[0]["response"]["body"]["string"]

    (reply,) = store.answers.values()
    assert json.loads(reply.raw) == json.loads(answered)
    # A replay from the store needs no tape.
    assert bound.invoke(list(QUESTION)) == first


# -------------------------------------------------------------------------- what is not recorded


def test_a_changed_body_is_refused() -> None:
    with tape("reasoning"), pytest.raises(CannotOverwriteExistingCassetteException):
        httpx2.post(f"{ADDRESS}/chat/completions", json={"model": "stub-1", "messages": []})


def test_a_changed_prompt_of_a_model_finds_no_answer() -> None:
    model = model_at(ADDRESS, temperature=0.0)
    with tape("reasoning"), pytest.raises(CannotOverwriteExistingCassetteException):
        model.invoke([*QUESTION, HumanMessage("Be brief.")])


def test_another_path_is_refused() -> None:
    body = json.loads(requests_in("reasoning")[0]["body"])
    with tape("reasoning"), pytest.raises(CannotOverwriteExistingCassetteException):
        httpx2.post(f"{ADDRESS}/responses", json=body)


def test_an_answer_is_given_once() -> None:
    model = model_at(ADDRESS, temperature=0.0)
    with tape("reasoning"), pytest.raises(CannotOverwriteExistingCassetteException):
        [model.invoke(list(QUESTION)) for _ in range(2)]


# ----------------------------------------------------------------------------------- the files


def recorded(name: str) -> list[dict[str, Any]]:
    document = yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
    exchanges: list[dict[str, Any]] = document["interactions"]
    return exchanges


def requests_in(name: str) -> list[dict[str, Any]]:
    return [exchange["request"] for exchange in recorded(name)]


def test_a_recording_made_anew_has_the_same_bytes(tmp_path: Path) -> None:
    made = record(tmp_path)

    assert sorted(path.name for path in made) == sorted(path.name for path in FOLDER.iterdir())
    stale = [path.name for path in made if path.read_bytes() != (FOLDER / path.name).read_bytes()]
    assert stale == [], "make them anew: python -m tests.support.http_recordings"


@pytest.mark.parametrize("name", EXCHANGES)
def test_a_recording_holds_no_key_and_no_header_but_the_content_type(name: str) -> None:
    text = (FOLDER / f"{name}.yaml").read_text(encoding="utf-8")
    assert KEY not in text
    assert "Bearer" not in text
    assert not re.search(r"127\.0\.0\.1|localhost", text)
    for exchange in recorded(name):
        assert exchange["request"]["uri"].startswith(ADDRESS)
        for side in ("request", "response"):
            assert list(exchange[side]["headers"]) == ["content-type"]
