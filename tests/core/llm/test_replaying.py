"""The recording layer stands inside the model class, so that every call style goes through it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langchain_core.caches import InMemoryCache
from langchain_core.globals import set_llm_cache
from langchain_core.messages import BaseMessage, HumanMessage
from pydantic import BaseModel

from tests.support.reply_stores import MemoryReplies
from tradingagents_core.errors import ModelOutcome, PipelineError, ReplayMiss
from tradingagents_core.llm.doubles import (
    ReplayingScriptedModel,
    ScriptedChatModel,
    ScriptEnded,
    text_reply,
    tool_reply,
)
from tradingagents_core.llm.replaying import (
    CURRENT_REPLIES,
    CallFailed,
    LiveReply,
    LiveRequest,
)
from tradingagents_core.protocols import CURRENT_SITE, Reply, Site


class Rating(BaseModel):
    rating: str


def test_without_a_store_the_model_is_live_and_keeps_nothing() -> None:
    model = ReplayingScriptedModel(script=["one", "two"])
    assert [model.invoke("hi").content, model.invoke("hi").content] == ["one", "two"]


def test_a_second_call_with_the_same_words_is_served_from_the_store() -> None:
    store = MemoryReplies()
    model = ReplayingScriptedModel(script=["one"], replies=store)
    assert model.invoke("hi") == model.invoke("hi")
    assert len(store.answers) == 1
    assert len(model.calls) == 1


def test_the_store_of_the_context_is_used_and_the_models_own_wins() -> None:
    outer, own = MemoryReplies(), MemoryReplies()
    token = CURRENT_REPLIES.set(outer)
    try:
        ReplayingScriptedModel(script=["one"]).invoke("hi")
        ReplayingScriptedModel(script=["two"], replies=own).invoke("hi")
    finally:
        CURRENT_REPLIES.reset(token)
    assert [reply.text for reply in outer.answers.values()] == ["one"]
    assert [reply.text for reply in own.answers.values()] == ["two"]


def test_the_place_of_the_call_travels_with_it() -> None:
    store = MemoryReplies()
    model = ReplayingScriptedModel(script=["one", "two"], replies=store)
    site = Site(cell="FB|2018-06-29|1", node="Trader", index=2, trial=1)
    token = CURRENT_SITE.set(site)
    try:
        model.invoke("hi")
    finally:
        CURRENT_SITE.reset(token)
    model.invoke("hi")
    assert store.calls[0].site == site
    assert len(store.answers) == 2, "another trial is another key"


def test_a_replay_never_reaches_the_model_even_where_the_store_lets_it_through() -> None:
    class Leaky(MemoryReplies):
        def look_up(self, call):
            return None

    model = ReplayingScriptedModel(script=["one"], replies=Leaky(mode="replay"))
    with pytest.raises(ReplayMiss, match="nothing recorded"):
        model.invoke("hi")
    assert model.calls == ()


def test_a_model_that_refuses_transport_misses_instead_of_calling() -> None:
    model = ReplayingScriptedModel(script=["one"], transport="refuse", replies=MemoryReplies())
    with pytest.raises(ReplayMiss):
        model.invoke("hi")
    assert model.calls == ()


def test_an_outcome_is_kept_apart_raised_and_asked_again() -> None:
    store = MemoryReplies()
    script = [text_reply("It was go", finish_reason="length"), "", "It was good."]
    model = ReplayingScriptedModel(script=script, replies=store)
    with pytest.raises(ModelOutcome, match="length: the reply was cut") as cut:
        model.invoke("hi")
    assert cut.value.text == "It was go"
    with pytest.raises(ModelOutcome, match="empty"):
        model.invoke("hi")
    assert model.invoke("hi").content == "It was good."
    assert [reply.text for reply in store.answers.values()] == ["It was good."]
    assert [outcome.kind for outcome in store.outcomes] == ["length", "empty"]


def slow(_messages: list[BaseMessage], _arguments: Mapping[str, Any]) -> str:
    """Answer late enough for the others to arrive."""
    time.sleep(0.05)
    return "one"


def test_twenty_threads_with_one_question_make_one_call() -> None:
    started = threading.Barrier(20)
    model = ReplayingScriptedModel(script=slow, replies=MemoryReplies())

    def ask(_: int) -> str:
        started.wait()
        return str(model.invoke("hi").content)

    with ThreadPoolExecutor(20) as pool:
        assert list(pool.map(ask, range(20))) == ["one"] * 20
    assert len(model.calls) == 1


def test_twenty_coroutines_with_one_question_make_one_call_and_do_not_block_each_other() -> None:
    model = ReplayingScriptedModel(script=slow, replies=MemoryReplies())

    async def ask_all() -> list[str]:
        answers = await asyncio.gather(*(model.ainvoke("hi") for _ in range(20)))
        return [str(answer.content) for answer in answers]

    assert asyncio.run(ask_all()) == ["one"] * 20
    assert len(model.calls) == 1


def test_the_site_and_the_store_reach_an_asynchronous_call() -> None:
    store = MemoryReplies()
    model = ReplayingScriptedModel(script=["one"])

    async def ask() -> None:
        CURRENT_REPLIES.set(store)
        CURRENT_SITE.set(Site(node="Trader"))
        await model.ainvoke("hi")

    asyncio.run(ask())
    assert [call.site.node for call in store.calls] == ["Trader", "Trader"]


def test_a_bound_class_is_validated_before_anything_is_stored() -> None:
    store = MemoryReplies()
    model = ReplayingScriptedModel(script=['{"rate": 1}', '{"rating": "Buy"}'], replies=store)
    bound = model.bind(response_format=Rating)
    with pytest.raises(ModelOutcome, match="invalid: the reply is no Rating"):
        bound.invoke("hi")
    assert bound.invoke("hi").additional_kwargs["parsed"] == Rating(rating="Buy")
    assert bound.invoke("hi").additional_kwargs["parsed"] == Rating(rating="Buy")
    assert len(store.answers) == 1


def test_another_class_of_the_same_name_is_another_key() -> None:
    class Other(BaseModel):
        rating: str
        score: int

    Other.__name__ = "Rating"
    store = MemoryReplies()
    script = ['{"rating": "Buy", "score": 1}'] * 2
    model = ReplayingScriptedModel(script=script, replies=store)
    model.bind(response_format=Rating).invoke("hi")
    model.bind(response_format=Other).invoke("hi")
    assert len(store.answers) == 2


def test_several_replies_to_one_call_are_refused() -> None:
    model = ReplayingScriptedModel(script=["one"])
    with pytest.raises(PipelineError, match="use trials"):
        model.bind(n=3).invoke("hi")


def test_a_store_of_langchains_own_is_left_out() -> None:
    set_llm_cache(InMemoryCache())
    try:
        model = ReplayingScriptedModel(script=["one", "two"])
        assert [model.invoke("hi").content, model.invoke("hi").content] == ["one", "two"]
    finally:
        set_llm_cache(None)


def test_tokens_and_cost_of_a_hit_do_not_leak_into_the_next_prompt() -> None:
    store = MemoryReplies()
    model = ReplayingScriptedModel(script=[tool_reply(("f", {"x": 1}))], replies=store)
    first, hit = model.invoke("hi"), model.invoke("hi")
    body = model._get_request_payload([HumanMessage("hi"), first])
    assert body == model._get_request_payload([HumanMessage("hi"), hit])


def test_a_dump_of_the_model_holds_no_store() -> None:
    model = ReplayingScriptedModel(script=["one"], replies=MemoryReplies())
    assert set(model.model_dump()) & {"replies", "script", "transport"} == set()


def test_a_script_that_ends_is_a_fault_of_the_test_and_no_outcome() -> None:
    store = MemoryReplies()
    model = ReplayingScriptedModel(script=["one"], replies=store)
    model.invoke("hi")
    with pytest.raises(ScriptEnded, match="call 2 of a script of 1 lines"):
        model.invoke("ho")
    assert store.outcomes == []


def test_a_scripted_model_takes_functions_errors_and_bound_tools() -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    model = ScriptedChatModel(script=lambda messages, arguments: str(sorted(arguments)))
    assert model.bind_tools([tool], tool_choice="f").invoke("hi").content == (
        "['tool_choice', 'tools']"
    )
    assert model.calls[0].arguments["tool_choice"] == "f"
    with pytest.raises(TimeoutError):
        ScriptedChatModel(script=[TimeoutError()]).invoke("hi")
    assert ScriptedChatModel(script=[Reply(text="x")]).invoke("hi").content == "x"


# --------------------------------------------------------------------------- retries and reasoning


class Tired(ReplayingScriptedModel):
    """Answer after a few tries of the transport."""

    def _live_reply(self, request: LiveRequest) -> LiveReply:
        line = self._next_line(request.messages, request.arguments)
        if isinstance(line, BaseException):
            raise CallFailed("transport", "gone", retries=3)
        return LiveReply(reply=text_reply(str(line)), retries=2)


def test_the_store_is_told_how_often_the_transport_tried_again() -> None:
    store = MemoryReplies()
    model = Tired(script=["one", TimeoutError()], replies=store)
    model.invoke("hi")
    with pytest.raises(ModelOutcome, match="gone"):
        model.invoke("ho")
    assert store.retries == [2, 3]


def test_reasoning_is_recorded_and_given_back_with_every_hit() -> None:
    thought = Reply(text="Buy.", reasoning="Cheap.", opaque='[{"signature":"s"}]')
    store = MemoryReplies()
    model = ReplayingScriptedModel(script=[thought], replies=store)
    first, hit = model.invoke("hi"), model.invoke("hi")
    assert first.additional_kwargs == hit.additional_kwargs
    assert hit.additional_kwargs == {
        "reasoning_content": "Cheap.",
        "reasoning_opaque": '[{"signature":"s"}]',
    }
    assert list(store.answers.values()) == [thought]


# ------------------------------------------------------------------- the short way through invoke


@pytest.mark.parametrize("name", ["metadata", "tags", "run_name"])
def test_what_langchain_keeps_for_itself_is_no_argument_of_a_call(name: str) -> None:
    model = ReplayingScriptedModel(script=["one"], replies=MemoryReplies())
    with pytest.raises(TypeError, match=name):
        model.invoke("hi", **{name: None})


def test_the_short_way_refuses_what_the_long_one_refuses() -> None:
    model = ReplayingScriptedModel(script=["one"], replies=MemoryReplies())
    with pytest.raises(ValueError, match="Invalid input type"):
        model.invoke(7)


def test_messages_that_are_handed_over_are_not_held_on_to() -> None:
    store = MemoryReplies()
    model = ReplayingScriptedModel(script=["one", "two"], replies=store)
    asked: list[BaseMessage] = [HumanMessage("hi")]
    model.invoke(asked)
    asked.append(HumanMessage("more"))
    assert len(model.calls[0].messages) == 1
    assert model.invoke(asked).content == "two"
