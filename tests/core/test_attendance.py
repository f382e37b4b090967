"""Who may watch a cell: callback handlers, a node's begin and end; and a cell that is stopped."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import BaseMessage
from langchain_core.outputs import LLMResult
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver

from tests.core.scripted_cast import Cast, Watch, cell, fixed_view, pipeline
from tests.core.test_prompts import REFLECTION
from tests.support.fixed_view import FixedView
from tradingagents_core.errors import LookaheadError, ModelOutcome, SettingsError
from tradingagents_core.graph import Models, Pipeline
from tradingagents_core.llm.replaying_rulebook import ReplayingRulebook
from tradingagents_core.protocols import Bars, Decision
from tradingagents_core.settings import PipelineSettings

PRICES = ("get_stock_data", {"symbol": "FB"})
SNAPSHOT = ("get_verified_market_snapshot", {"symbol": "FB"})
TURNS = {"Market Analyst": [[PRICES], [SNAPSHOT]]}
THREAD = "META|2018-06-29|0|abc"


@dataclass
class Listener(BaseCallbackHandler):
    """Note what LangChain tells: models asked, replies, tools begun and ended, nodes."""

    asked: list[str] = field(default_factory=list)
    nested: list[bool] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    tools: list[tuple[str, str]] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)
    nodes: list[str] = field(default_factory=list)

    def on_chat_model_start(
        self, serialized: dict[str, Any], messages: list[list[BaseMessage]], **kwargs: Any
    ) -> None:
        self.asked.append(str(messages[0][0].text).splitlines()[0].removeprefix("Role: "))
        self.nested.append(kwargs["parent_run_id"] is not None)

    def on_llm_end(self, response: LLMResult, **kwargs: Any) -> None:
        message = response.generations[0][0].message  # type: ignore[union-attr]
        usage = getattr(message, "usage_metadata", None) or {}
        self.tokens.append(usage.get("total_tokens", 0))

    def on_tool_start(self, serialized: dict[str, Any], input_str: str, **kwargs: Any) -> None:
        self.tools.append((serialized["name"], input_str))

    def on_tool_end(self, output: Any, **kwargs: Any) -> None:
        self.answers.append(str(output))

    def on_chain_start(
        self, serialized: dict[str, Any], inputs: dict[str, Any], **kwargs: Any
    ) -> None:
        node = (kwargs.get("metadata") or {}).get("langgraph_node")
        if node is not None and kwargs.get("name") == node:
            self.nodes.append(node)


def rulebook(**settings: Any) -> Pipeline:
    model = ReplayingRulebook(model="rulebook-1")
    return Pipeline(PipelineSettings(**settings), Models(quick=model, deep=model))


# -------------------------------------------------------------------------------------- handlers


def test_handlers_hear_of_every_model_call_in_its_node_and_of_every_tool() -> None:
    listener, watch = Listener(), Watch()
    rulebook().decide(cell(), fixed_view(), sink=watch, callbacks=[listener])
    speakers = [name for name in watch.nodes if not name.startswith(("tools_", "Msg Clear "))]
    assert listener.asked == speakers
    assert listener.nodes == watch.nodes
    assert len(listener.tokens) == len(listener.asked)
    assert all(listener.nested)
    names = [name for name, _ in listener.tools]
    assert names[0] == "get_stock_data"
    assert {"get_verified_market_snapshot", "get_news", "get_balance_sheet"} <= set(names)
    assert '"symbol": "FB"' in listener.tools[0][1]
    assert listener.answers[0].startswith("# Daily prices of FB")
    assert len(listener.answers) == len(listener.tools)


def test_who_listens_changes_no_decision() -> None:
    unheard = rulebook().decide(cell(), fixed_view())
    heard = rulebook().decide(cell(), fixed_view(), callbacks=[Listener()])
    assert heard == unheard


def test_handlers_hear_of_analysts_that_work_in_parallel() -> None:
    listener = Listener()
    rulebook(analysts_parallel=True).decide(cell(), fixed_view(), callbacks=[listener])
    in_turn = Listener()
    rulebook().decide(cell(), fixed_view(), callbacks=[in_turn])
    assert sorted(listener.asked) == sorted(in_turn.asked)
    assert sorted(listener.tools) == sorted(in_turn.tools)


def test_without_handlers_a_recorded_model_is_asked_by_the_shorter_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("the long way was taken")

    monkeypatch.setattr(ReplayingRulebook, "invoke", refuse)
    assert rulebook().decide(cell(), fixed_view()).rating is not None


def test_a_handler_that_fails_fails_no_cell() -> None:
    class Broken(Listener):
        def on_chat_model_start(self, *args: Any, **kwargs: Any) -> None:
            raise RuntimeError("display is gone")

    decision = rulebook().decide(cell(), fixed_view(), callbacks=[Broken()])
    assert decision == rulebook().decide(cell(), fixed_view())


def test_a_reflection_is_told_too() -> None:
    listener = Listener()
    shared = rulebook()
    assert shared.reflect(REFLECTION, callbacks=[listener]) == shared.reflect(REFLECTION)
    assert listener.asked == ["Reflector"]


def test_each_node_is_named_as_it_begins_and_shown_as_it_ends() -> None:
    begun: list[str] = []
    watch = Watch()
    pipeline(Cast(turns=TURNS)).decide(cell(), fixed_view(), sink=watch, on_node=begun.append)
    assert begun == watch.nodes
    assert begun[:3] == ["Market Analyst", "tools_market", "Market Analyst"]


class LeakyView(FixedView):
    """Raise as a view does that is about to show a later row."""

    def bars(self, symbol: str, **window: Any) -> Bars:
        raise LookaheadError(f"{symbol}: a row of 2018-07-02")


@pytest.mark.parametrize("parallel", [False, True])
def test_a_leak_passes_handlers_and_savers(parallel: bool) -> None:
    shared = pipeline(Cast(turns=TURNS), analysts_parallel=parallel)
    with pytest.raises(LookaheadError, match="2018-07-02"):
        shared.decide(
            cell(),
            LeakyView(fixed_view().all_bars),
            callbacks=[Listener()],
            checkpointer=InMemorySaver(),
            thread_id=THREAD,
        )


# ----------------------------------------------------------------------- stopped and gone on with

STOP = ModelOutcome("transport", "the power is gone")


def whole(**settings: Any) -> tuple[Decision, list[str]]:
    watch = Watch()
    shared = pipeline(Cast(turns=TURNS), **settings)
    return shared.decide(cell(), fixed_view(), sink=watch), watch.nodes


@pytest.mark.parametrize(
    "role",
    [
        "Market Analyst",
        "Sentiment Analyst",
        "News Analyst",
        "Bear Researcher",
        "Research Manager",
        "Trader",
        "Neutral Analyst",
        "Portfolio Manager",
    ],
)
def test_a_cell_goes_on_at_the_node_where_it_stopped(role: str, tmp_path: Path) -> None:
    decided, nodes = whole()
    with sqlite3.connect(tmp_path / "cells.sqlite", check_same_thread=False) as database:
        saver = SqliteSaver(database)
        first, second = Watch(), Watch()
        cast = Cast(turns=TURNS, lines={role: [STOP]})
        kept = {"checkpointer": saver, "thread_id": THREAD}
        with pytest.raises(ModelOutcome):
            pipeline(cast).decide(cell(), fixed_view(), sink=first, **kept)
        again = Cast(turns=TURNS)
        resumed = pipeline(again).decide(cell(), fixed_view(), sink=second, **kept)
    database.close()
    assert [*first.nodes, *second.nodes] == nodes
    assert second.nodes[0] == role
    assert again.heard[0].role == role
    assert resumed == decided


def test_a_conversation_that_stopped_after_a_tool_is_gone_on_with() -> None:
    decided, nodes = whole()
    saver = InMemorySaver()
    kept: dict[str, Any] = {"checkpointer": saver, "thread_id": THREAD}
    cast = Cast(turns=TURNS)
    first = Watch()

    def stop_at_the_second_tool(node: str) -> None:
        if first.nodes.count("tools_market") == 1 and node == "tools_market":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pipeline(cast).decide(
            cell(), fixed_view(), sink=first, on_node=stop_at_the_second_tool, **kept
        )
    second = Watch()
    resumed = pipeline(Cast(turns=TURNS)).decide(cell(), fixed_view(), sink=second, **kept)
    assert first.nodes == ["Market Analyst", "tools_market", "Market Analyst"]
    assert [*first.nodes, *second.nodes] == nodes
    assert resumed == decided


BRANCHES = {
    "Fundamentals Analyst": "fundamentals_report",
    "Sentiment Analyst": "sentiment_report",
}


def test_branches_that_had_ended_are_not_run_again() -> None:
    decided, _ = whole(analysts_parallel=True)
    saver = InMemorySaver()
    kept: dict[str, Any] = {"checkpointer": saver, "thread_id": THREAD}
    cast = Cast(turns=TURNS, lines={"News Analyst": [STOP]})
    first, second = Watch(), Watch()
    with pytest.raises(ModelOutcome):
        pipeline(cast, analysts_parallel=True).decide(cell(), fixed_view(), sink=first, **kept)
    # Of a branch that ended at the very moment of the failure, LangGraph may write nothing more.
    held = saver.get_tuple({"configurable": {"thread_id": THREAD}})
    assert held is not None
    written = {channel for _, channel, _ in held.pending_writes or ()}
    again = Cast(turns=TURNS)
    resumed = pipeline(again, analysts_parallel=True).decide(
        cell(), fixed_view(), sink=second, **kept
    )
    assert resumed == decided
    finished = {role for role, report in BRANCHES.items() if report in written}
    assert finished.isdisjoint({call.role for call in again.heard})


def test_a_cell_that_had_ended_is_not_run_again() -> None:
    saver = InMemorySaver()
    cast = Cast(turns=TURNS)
    shared = pipeline(cast)
    first = shared.decide(cell(), fixed_view(), checkpointer=saver, thread_id=THREAD)
    calls = len(cast.heard)
    again = shared.decide(cell(), fixed_view(), checkpointer=saver, thread_id=THREAD)
    assert again == first == whole()[0]
    assert len(cast.heard) == calls


def test_cells_of_other_names_know_nothing_of_each_other() -> None:
    saver = InMemorySaver()
    cast = Cast(turns=TURNS)
    shared = pipeline(cast)
    shared.decide(cell(), fixed_view(), checkpointer=saver, thread_id="one")
    shared.decide(cell(), fixed_view(), checkpointer=saver, thread_id="two")
    assert len(cast.heard) == 2 * 14


def test_a_saver_without_a_name_for_the_cell_is_refused() -> None:
    with pytest.raises(SettingsError, match="give the cell a thread_id"):
        pipeline(Cast()).decide(cell(), fixed_view(), checkpointer=InMemorySaver())
