"""The order in which a typed reply is asked for and read, rung by rung."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import pytest

from tests.support.fixed_view import FixedView, bars_of
from tradingagents_core.agents.calls import CellContext
from tradingagents_core.agents.structured import Answer, FormCaller, Question
from tradingagents_core.decisions import DECISION, PLAN, Form, response_schema
from tradingagents_core.errors import LookaheadError, ModelOutcome, ReplayMiss
from tradingagents_core.llm.capabilities import STRUCTURED_METHODS
from tradingagents_core.llm.capability_table import StructuredMethod
from tradingagents_core.llm.doubles import (
    Line,
    ReplayingScriptedModel,
    ScriptedChatModel,
    text_reply,
    tool_reply,
)
from tradingagents_core.llm.replaying import CURRENT_REPLIES
from tradingagents_core.prompts import Brief
from tradingagents_core.protocols import (
    CURRENT_SITE,
    CellRequest,
    Mode,
    ModelCall,
    Outcome,
    Reply,
    Site,
)

DAY = date(2018, 6, 29)
FIELDS = {
    "rating": "Buy",
    "executive_summary": "Add.",
    "investment_thesis": "It rises.",
    "price_target": None,
    "time_horizon": None,
}
GOOD = json.dumps(FIELDS)
RENDERED = "**Rating**: Buy\n\n**Executive Summary**: Add.\n\n**Investment Thesis**: It rises."
BAD = json.dumps({**FIELDS, "rating": "Neutral"})
DECLARES = "The case is made.\n\nRating: Sell\n"
PROSE = "I would rather not commit myself."
QUESTION = Question(
    node="Portfolio Manager",
    system="Role: Portfolio Manager",
    blocks=("<block>",),
    closing=("Go.",),
)


def context() -> CellContext:
    return CellContext(
        request=CellRequest(
            cell="META|2018-06-29|2",
            ticker="META",
            session=DAY,
            trial=2,
            generation=1,
            benchmark="^GSPC",
        ),
        view=FixedView(bars_of(["2018-06-29"], [194.32])),
        brief=Brief(day=DAY, instrument="FB", benchmark="^GSPC"),
        sink=None,
        limit=100,
        nodes=[],
    )


@dataclass
class Asked:
    """Hold an answer with the calls that it took."""

    answer: Answer
    model: ScriptedChatModel
    sites: list[Site]

    @property
    def prompts(self) -> list[str]:
        return [str(call.messages[-1].text) for call in self.model.calls]

    @property
    def attempts(self) -> list[int]:
        return [site.attempt for site in self.sites]


def ask(
    *lines: Line,
    form: Form = DECISION,
    method: StructuredMethod = "json_schema",
    repairs: int = 1,
) -> Asked:
    sites: list[Site] = []
    left = iter(lines)

    def script(messages: Sequence[Any], arguments: Any) -> Line:
        sites.append(CURRENT_SITE.get())
        return next(left)

    model = ScriptedChatModel(script=script, structured_method=method)
    caller = FormCaller(model, form, max_repairs=repairs)
    return Asked(answer=caller.answer(context(), QUESTION), model=model, sites=sites)


# ------------------------------------------------------------------------------------ each rung


def test_a_typed_reply_is_the_result_and_its_markdown_is_rendered() -> None:
    asked = ask(GOOD)
    assert asked.answer.source == "structured"
    assert asked.answer.word == "Buy"
    assert asked.answer.text == RENDERED
    assert asked.attempts == [0]


def test_a_failed_reply_that_declares_its_rating_is_read_before_anything_is_asked_again() -> None:
    asked = ask(DECLARES)
    assert (asked.answer.word, asked.answer.source) == ("Sell", "declared_line")
    assert asked.answer.text == DECLARES
    assert asked.answer.value is None
    assert asked.attempts == [0]


def test_a_repair_quotes_the_reply_and_what_was_wrong() -> None:
    asked = ask(BAD, GOOD)
    assert (asked.answer.word, asked.answer.source) == ("Buy", "repaired")
    assert asked.attempts == [0, 1]
    first, second = asked.prompts
    assert f'<block name="rejected_reply" kind="data">\n{BAD}\n</block>' in second
    assert "rating is not one of Sell, Underweight, Hold, Overweight, Buy" in second
    assert second.startswith("<block>")
    assert "rejected_reply" not in first


def test_a_repair_may_declare_its_rating_too() -> None:
    asked = ask(PROSE, DECLARES)
    assert (asked.answer.word, asked.answer.source) == ("Sell", "declared_line")


def test_after_the_repairs_one_plain_call_is_read_for_a_declared_line() -> None:
    asked = ask(PROSE, PROSE, PROSE, DECLARES, repairs=2)
    assert (asked.answer.word, asked.answer.source) == ("Sell", "declared_line")
    assert asked.attempts == [0, 1, 2, 3]
    plain = asked.model.calls[-1]
    assert dict(plain.arguments) == {}
    assert "`Rating: WORD`" in asked.prompts[-1]
    assert "- Investment Thesis: The case in full" in asked.prompts[-1]


def test_without_a_declared_line_there_is_no_rating_and_no_hold() -> None:
    asked = ask(PROSE, PROSE, "Hold on. The street says Buy.")
    assert (asked.answer.word, asked.answer.source) == (None, "none")
    assert asked.answer.text == "Hold on. The street says Buy."


def test_a_plain_reply_that_contradicts_itself_has_no_rating() -> None:
    asked = ask(PROSE, PROSE, "Rating: Buy\n\nRating: Sell")
    assert (asked.answer.word, asked.answer.source) == (None, "conflicting")


def test_contradicting_lines_in_a_failed_reply_are_asked_about_again() -> None:
    asked = ask("Rating: Buy\nRating: Sell", GOOD)
    assert (asked.answer.word, asked.answer.source) == ("Buy", "repaired")


def test_without_repairs_the_plain_call_comes_second() -> None:
    asked = ask(PROSE, DECLARES, repairs=0)
    assert asked.answer.word == "Sell"
    assert asked.attempts == [0, 1]


def test_a_model_without_typed_replies_is_asked_in_plain_words_at_once() -> None:
    asked = ask(DECLARES, method="none")
    assert (asked.answer.word, asked.answer.source) == ("Sell", "declared_line")
    assert asked.attempts == [0]
    assert dict(asked.model.calls[0].arguments) == {}


# ----------------------------------------------------------------------------- what is bound


def test_a_schema_is_bound_by_name() -> None:
    asked = ask(GOOD)
    assert asked.model.calls[0].arguments == {
        "response_format": {
            "type": "json_schema",
            "json_schema": {
                "name": "PortfolioDecision",
                "schema": response_schema(DECISION),
                "strict": True,
            },
        }
    }


def test_a_function_is_bound_and_forced() -> None:
    asked = ask(tool_reply(("PortfolioDecision", FIELDS)), method="function_calling")
    assert (asked.answer.word, asked.answer.source) == ("Buy", "structured")
    bound = asked.model.calls[0].arguments
    assert bound["tool_choice"] == "PortfolioDecision"
    (function,) = bound["tools"]
    assert function["function"]["name"] == "PortfolioDecision"
    assert function["function"]["parameters"] == response_schema(DECISION)


def test_a_forced_function_that_answers_in_text_is_read_all_the_same() -> None:
    assert ask(GOOD, method="function_calling").answer.source == "structured"
    assert ask(DECLARES, method="function_calling").answer.word == "Sell"


def test_a_call_of_another_function_is_no_answer() -> None:
    wrong = tool_reply(("buy_shares", {"rating": "Buy"}))
    asked = ask(wrong, tool_reply(("PortfolioDecision", FIELDS)), method="function_calling")
    assert asked.answer.source == "repaired"


def test_a_json_object_is_asked_for_with_its_schema_in_words() -> None:
    asked = ask(GOOD, method="json_mode")
    assert asked.model.calls[0].arguments == {"response_format": {"type": "json_object"}}
    assert json.dumps(response_schema(DECISION), ensure_ascii=False) in asked.prompts[0]


@pytest.mark.parametrize("method", STRUCTURED_METHODS)
def test_every_way_of_asking_names_the_call_and_its_attempt(method: StructuredMethod) -> None:
    asked = (
        ask(PROSE, PROSE, DECLARES, method=method)
        if method != "none"
        else ask(DECLARES, method=method)
    )
    assert {(site.cell, site.node, site.index) for site in asked.sites} == {
        ("META|2018-06-29|2", "Portfolio Manager", 0)
    }
    assert {(site.trial, site.generation) for site in asked.sites} == {(2, 1)}
    assert asked.attempts == list(range(len(asked.sites)))
    # Only the last, plain call is free text; no other may count where it was cut.
    assert [site.free_text for site in asked.sites][:-1] == [False] * (len(asked.sites) - 1)
    assert asked.sites[-1].free_text


# --------------------------------------------------------------- attempts without an answer


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("length", "it was cut off by the length limit"),
        ("empty", "it was empty"),
        ("refusal", "it declined the task"),
        ("content_filter", "a content filter stopped it"),
    ],
)
def test_an_attempt_without_an_answer_is_repaired_and_its_text_is_not_read(
    kind: str, told: str
) -> None:
    asked = ask(ModelOutcome(kind, "said the provider", "Rating: Sell"), GOOD)
    assert (asked.answer.word, asked.answer.source) == ("Buy", "repaired")
    assert told in asked.prompts[1]
    assert 'rejected_reply" kind' not in asked.prompts[1]


def test_the_text_of_an_invalid_reply_is_read() -> None:
    asked = ask(ModelOutcome("invalid", "no object", DECLARES))
    assert (asked.answer.word, asked.answer.source) == ("Sell", "declared_line")


@pytest.mark.parametrize("kind", ["transport", "rejected"])
def test_a_call_that_no_model_heard_ends_the_cell(kind: str) -> None:
    with pytest.raises(ModelOutcome, match=kind):
        ask(ModelOutcome(kind, "no route"), GOOD)
    refused = ModelOutcome("refusal", "no", "")
    with pytest.raises(ModelOutcome, match=kind):
        ask(refused, refused, ModelOutcome(kind, "no route"))


def test_a_decision_that_is_refused_to_the_end_has_no_rating() -> None:
    refusal = ModelOutcome("refusal", "no", "I cannot help with that.")
    asked = ask(refusal, refusal, refusal)
    assert (asked.answer.word, asked.answer.source) == (None, "none")
    assert asked.answer.text == "I cannot help with that."


def test_a_plan_that_is_refused_to_the_end_fails_for_nothing_can_follow_it() -> None:
    refusal = ModelOutcome("refusal", "no", "I cannot help with that.")
    with pytest.raises(ModelOutcome, match="refusal"):
        ask(refusal, refusal, refusal, form=PLAN)


@pytest.mark.parametrize("error", [ReplayMiss("key", "none recorded"), LookaheadError("row")])
def test_a_miss_or_a_leak_passes_the_ladder(error: BaseException) -> None:
    with pytest.raises(type(error)):
        ask(error)


# --------------------------------------------------------------------- recorded and replayed


@dataclass
class Recorder:
    """Keep answers and outcomes the way a run does; in replay serve both."""

    mode: Mode = "record"
    accept_truncated: bool = False
    answers: dict[str, Reply] = field(default_factory=dict)
    outcomes: dict[str, Outcome] = field(default_factory=dict)

    def look_up(self, call: ModelCall) -> Reply | Outcome | None:
        found = self.answers.get(call.key)
        return found or (self.outcomes.get(call.key) if self.mode == "replay" else None)

    @contextmanager
    def flight(self, key: str) -> Iterator[None]:
        yield

    def record(self, call: ModelCall, reply: Reply, *, latency_s: float, retries: int = 0) -> Reply:
        return self.answers.setdefault(call.key, reply)

    def record_outcome(
        self, call: ModelCall, outcome: Outcome, *, latency_s: float, retries: int = 0
    ) -> None:
        self.outcomes[call.key] = outcome

    def lost(self, call: ModelCall, *, again: bool) -> None:
        raise AssertionError("nothing is lost here")


LADDERS: dict[str, Callable[[], list[Line]]] = {
    "repaired": lambda: [BAD, GOOD],
    "declared": lambda: [DECLARES],
    "cut, then good": lambda: [text_reply(GOOD[:20], finish_reason="length"), GOOD],
    "refused, then plain": lambda: [
        Reply(text="", refusal="I will not."),
        PROSE,
        DECLARES,
    ],
    "unread": lambda: [PROSE, text_reply(""), PROSE],
}


@pytest.mark.parametrize("method", ["json_schema", "json_mode", "function_calling"])
@pytest.mark.parametrize("name", LADDERS)
def test_bad_replies_replay_to_the_same_answer_without_a_call(
    name: str, method: StructuredMethod
) -> None:
    store = Recorder()
    token = CURRENT_REPLIES.set(store)
    try:
        model = ReplayingScriptedModel(script=LADDERS[name](), structured_method=method)
        recorded = FormCaller(model, DECISION, max_repairs=1).answer(context(), QUESTION)
        assert len(model.calls) == len(LADDERS[name]())
        store.mode = "replay"
        silent = ReplayingScriptedModel(script=[], structured_method=method)
        replayed = FormCaller(silent, DECISION, max_repairs=1).answer(context(), QUESTION)
    finally:
        CURRENT_REPLIES.reset(token)
    assert replayed == recorded
    assert silent.calls == ()


def test_an_invalid_reply_is_never_stored_as_an_answer() -> None:
    store = Recorder()
    token = CURRENT_REPLIES.set(store)
    try:
        model = ReplayingScriptedModel(script=[BAD, GOOD])
        FormCaller(model, DECISION, max_repairs=1).answer(context(), QUESTION)
    finally:
        CURRENT_REPLIES.reset(token)
    assert [reply.text for reply in store.answers.values()] == [GOOD]
    assert [outcome.kind for outcome in store.outcomes.values()] == ["invalid"]
