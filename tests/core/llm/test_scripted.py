"""The provider ``scripted`` says what a user wrote down, whatever was asked before."""

from __future__ import annotations

import pytest
from langchain_core.messages import HumanMessage, ToolMessage

from tests.support.reply_stores import MemoryReplies
from tradingagents_core.errors import ModelOutcome
from tradingagents_core.llm.factory import create_model
from tradingagents_core.llm.replaying import ReplayingModel
from tradingagents_core.protocols import CURRENT_SITE, Site
from tradingagents_core.settings import ModelSpec, ScriptedReply, ScriptedTool

SCRIPT = (
    ScriptedReply(
        node="Market Analyst",
        tool_answers=0,
        tools=(ScriptedTool(name="get_stock_data", args={"symbol": "AAPL"}),),
    ),
    ScriptedReply(node="Market Analyst", contains="AAPL", text="It rose."),
    ScriptedReply(node="Trader", text="cut off", finish_reason="length"),
    ScriptedReply(contains="GOOG", text="It fell."),
)


def scripted(*script: ScriptedReply, store: MemoryReplies | None = None) -> ReplayingModel:
    spec = ModelSpec(provider="scripted", model="scripted-1", script=script)
    model = create_model(spec, api_key=None)
    assert isinstance(model, ReplayingModel)
    model.replies = store
    return model


def at(node: str, model: ReplayingModel, *messages: object) -> object:
    token = CURRENT_SITE.set(Site(node=node))
    try:
        return model.invoke(list(messages))
    finally:
        CURRENT_SITE.reset(token)


def test_the_first_reply_that_fits_is_said() -> None:
    model = scripted(*SCRIPT)
    turn = at("Market Analyst", model, HumanMessage("Look at AAPL."))
    (call,) = turn.tool_calls
    assert (call["name"], call["args"]) == ("get_stock_data", {"symbol": "AAPL"})
    answer = ToolMessage("prices", tool_call_id=call["id"])
    said = at("Market Analyst", model, HumanMessage("Look at AAPL."), turn, answer)
    assert said.content == "It rose."
    assert at("Bull Researcher", model, HumanMessage("And GOOG?")).content == "It fell."


def test_a_reply_may_end_as_a_provider_s_would() -> None:
    with pytest.raises(ModelOutcome, match="cut by the length limit"):
        at("Trader", scripted(*SCRIPT), HumanMessage("hi"))


def test_a_prompt_that_nothing_fits_is_rejected_with_what_to_add() -> None:
    with pytest.raises(ModelOutcome, match="no reply of the script fits node Trader after 0"):
        at("Trader", scripted(SCRIPT[0]), HumanMessage("hi"))


def test_another_script_is_another_model() -> None:
    store = MemoryReplies()
    scripted(ScriptedReply(text="one"), store=store).invoke("hi")
    scripted(ScriptedReply(text="one"), store=store).invoke("hi")
    scripted(ScriptedReply(text="two"), store=store).invoke("hi")
    assert [reply.text for reply in store.answers.values()] == ["one", "two"]
