"""Kept thoughts go back to the provider that signed them, and to no other."""

from __future__ import annotations

import pytest
from langchain_core.messages import AIMessage, HumanMessage

from tradingagents_core.llm.replies import OPAQUE
from tradingagents_core.llm.thoughts import kept_thoughts, with_thoughts


def message(kept: object) -> AIMessage:
    return AIMessage(
        "Buy.",
        id="m-1",
        additional_kwargs={OPAQUE: kept},
        response_metadata={"model_name": "other"},
    )


def test_what_was_kept_becomes_the_content() -> None:
    spoken = HumanMessage("hi")
    first, second = with_thoughts(
        [spoken, message('{"here":[{"a":1}]}')], "here", lambda kept: [*kept, {"b": 2}]
    )
    assert first is spoken
    assert (second.content, second.id, second.response_metadata) == (
        [{"a": 1}, {"b": 2}],
        "m-1",
        {},
    )


@pytest.mark.parametrize("kept", ['{"there":[{"a":1}]}', '[{"a":1}]', '{"here":1}', "{", None, 1])
def test_what_is_for_another_or_cannot_be_read_is_left_alone(kept: object) -> None:
    before = message(kept)
    assert kept_thoughts(before, "here") is None
    assert with_thoughts([before], "here", list) == [before]


def test_a_message_of_a_person_keeps_no_thoughts() -> None:
    spoken = HumanMessage("hi", additional_kwargs={OPAQUE: '{"here":[1]}'})
    assert kept_thoughts(spoken, "here") is None
