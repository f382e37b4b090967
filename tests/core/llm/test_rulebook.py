"""The rulebook chat model, on hand-made prompts in the pipeline's block form."""

from __future__ import annotations

import asyncio
import json
import pickle

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from pydantic import BaseModel, Field

from tests.core.llm.rulebook_prompts import (
    DECISION,
    INDICATORS,
    MODEL,
    STOCK,
    as_format,
    decide,
    market,
    prompt,
    system,
)
from tradingagents_core.decisions import FORMS, fill, response_schema
from tradingagents_core.errors import SettingsError
from tradingagents_core.llm.rulebook import RulebookChatModel
from tradingagents_core.llm.rulebook_decisions import SCHEMA_OF_ROLE
from tradingagents_core.ratings import read_declared


def test_a_named_tool_choice_is_followed_for_a_decision_and_for_a_data_tool() -> None:
    function = {
        "type": "function",
        "function": {"name": "PortfolioDecision", "parameters": DECISION},
    }
    bound = MODEL.bind_tools([function], tool_choice="PortfolioDecision")
    reply = bound.invoke(prompt("Portfolio Manager", market()))
    assert [call["name"] for call in reply.tool_calls] == ["PortfolioDecision"]
    assert reply.tool_calls[0]["args"] == decide(market())
    named = MODEL.bind_tools([STOCK, INDICATORS], tool_choice="get_indicators")
    calls = named.invoke(prompt("Bull Researcher", market())).tool_calls
    assert [(call["name"], call["args"]["indicator"]) for call in calls] == [
        ("get_indicators", "close_50_sma")
    ]


def test_tool_choice_none_writes_and_required_calls() -> None:
    silent = MODEL.bind_tools([STOCK], tool_choice="none").invoke(prompt("Market Analyst"))
    assert silent.tool_calls == []
    forced = MODEL.bind_tools([STOCK], tool_choice="any").invoke(prompt("Somebody"))
    assert [call["name"] for call in forced.tool_calls] == ["get_stock_data"]


def test_a_repair_prompt_that_quotes_an_error_gets_the_whole_answer_again() -> None:
    messages = prompt("Portfolio Manager", market())
    messages += [
        AIMessage("**Rating**: Strong Buy"),
        HumanMessage('Your reply is no PortfolioDecision: rating "Strong Buy". close: 1'),
    ]
    bound = MODEL.bind(response_format=as_format("PortfolioDecision", DECISION))
    assert json.loads(str(bound.invoke(messages).content)) == decide(market())


@pytest.mark.parametrize(
    ("role", "schema", "word"),
    [
        ("Portfolio Manager", "PortfolioDecision", "Overweight"),
        ("Research Manager", "ResearchPlan", "Overweight"),
        ("Trader", "TraderProposal", "Buy"),
        ("Sentiment Analyst", "SentimentReport", "Neutral"),
    ],
)
def test_a_plain_call_declares_its_word_where_the_pipeline_looks_for_it(
    role: str, schema: str, word: str
) -> None:
    reply = MODEL.invoke(prompt(role, market()))
    assert read_declared(str(reply.content), FORMS[schema].vocabulary).word == word


@pytest.mark.parametrize(
    "role", ["Portfolio Manager", "Research Manager", "Trader", "Sentiment Analyst"]
)
def test_every_form_of_the_pipeline_is_filled_as_its_schema_asks(role: str) -> None:
    form = FORMS[SCHEMA_OF_ROLE[role]]
    bound = MODEL.bind(response_format=as_format(form.name, response_schema(form)))
    for blocks in ((market(),), ()):
        filled = fill(form, str(bound.invoke(prompt(role, *blocks)).content))
        assert filled.problem == ""


def test_an_unknown_role_gets_a_short_neutral_text() -> None:
    reply = MODEL.invoke([HumanMessage("Should I buy?")])
    assert reply.content == (
        "The rulebook has no rule for a prompt without a role; "
        "it takes no side and has nothing to add."
    )


class Inner(BaseModel):
    """A nested part of the unknown schema."""

    count: int = Field(ge=3)
    tags: list[str] = Field(min_length=1)


class Unknown(BaseModel):
    """A schema that no role of the pipeline has."""

    verdict: str = Field(min_length=20)
    inner: Inner
    share: float = Field(gt=0, lt=1)
    sure: bool
    note: str | None


def test_an_unknown_schema_is_filled_with_the_least_that_it_allows() -> None:
    schema = Unknown.model_json_schema()
    bound = MODEL.bind(response_format=as_format("Unknown", schema))
    answer = Unknown.model_validate_json(str(bound.invoke(prompt("Somebody")).content))
    assert answer.inner.count == 3
    assert answer.note is None
    by_class = MODEL.bind(response_format=Unknown).invoke(prompt("Somebody"))
    assert Unknown.model_validate_json(str(by_class.content)) == answer
    via_tools = MODEL.with_structured_output(Unknown).invoke(prompt("Somebody"))
    assert via_tools == answer


def test_usage_counts_four_characters_a_token_and_says_why_it_ended() -> None:
    messages = [HumanMessage("x" * 40)]
    reply = MODEL.invoke(messages)
    assert reply.usage_metadata is not None
    assert reply.usage_metadata["input_tokens"] == 10
    assert reply.usage_metadata["output_tokens"] == len(str(reply.content)) // 4
    assert reply.response_metadata["finish_reason"] == "stop"
    calling = MODEL.bind_tools([STOCK]).invoke(prompt("Market Analyst"))
    assert calling.response_metadata["finish_reason"] == "tool_calls"


def test_every_call_style_gives_the_same_answer() -> None:
    messages = prompt("Bull Researcher", market())
    once = MODEL.invoke(messages).content
    assert asyncio.run(MODEL.ainvoke(messages)).content == once
    assert "".join(str(chunk.content) for chunk in MODEL.stream(messages)) == once
    assert [reply.content for reply in MODEL.batch([messages, messages])] == [once, once]


def test_it_pickles_with_its_settings_and_answers_the_same() -> None:
    plain = RulebookChatModel(model="rulebook-1-plain")
    again = pickle.loads(pickle.dumps(plain))
    assert again.model == "rulebook-1-plain"
    messages = prompt("Portfolio Manager", market())
    assert again.invoke(messages).content == plain.invoke(messages).content


def test_a_model_name_without_rules_is_refused_with_the_names_that_there_are() -> None:
    with pytest.raises(SettingsError, match="rulebook-1, rulebook-1-plain"):
        RulebookChatModel(model="gpt-4o")


def test_the_request_body_holds_everything_that_decides_the_answer() -> None:
    messages: list[BaseMessage] = [
        system("Market Analyst"),
        HumanMessage("Begin.", id="random"),
        AIMessage(
            "",
            tool_calls=[{"name": "get_stock_data", "args": {"symbol": "FB"}, "id": "call_0"}],
            usage_metadata={"input_tokens": 1, "output_tokens": 1, "total_tokens": 2},
        ),
        ToolMessage("rows", tool_call_id="call_0"),
    ]
    body = MODEL._get_request_payload(messages, stop=["END"], tools=[STOCK], tool_choice="auto")
    assert body == {
        "model": "rulebook-1",
        "messages": [
            {"role": "system", "content": messages[0].content},
            {"role": "user", "content": "Begin."},
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [
                    {
                        "id": "call_0",
                        "type": "function",
                        "function": {"name": "get_stock_data", "arguments": '{"symbol": "FB"}'},
                    }
                ],
            },
            {"role": "tool", "content": "rows", "tool_call_id": "call_0"},
        ],
        "stop": ["END"],
        "tools": [STOCK],
        "tool_choice": "auto",
    }


def test_a_stop_word_ends_the_text() -> None:
    reply = MODEL.invoke(prompt("Bull Researcher", market()), stop=["Tally:"])
    assert str(reply.content).endswith("(+1)\n\n")
