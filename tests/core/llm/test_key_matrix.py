"""The key of a call against all that may differ: what can change an answer, and what cannot.

A call is drawn at random, one thing about it is changed, and its key must change or stay.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from pydantic import BaseModel, Field

from tests.support.reply_stores import MemoryReplies
from tradingagents_core.llm.openai_chat import ReplayingChatOpenAI
from tradingagents_core.protocols import CURRENT_SITE, Reply, Site


class Rating(BaseModel):
    rating: str


class OtherRating(BaseModel):
    rating: str = Field(description="One of five words.")


OtherRating.__name__ = "Rating"


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Hold one call: the model's fields, what is bound, what is said, from where."""

    fields: dict[str, Any]
    arguments: dict[str, Any]
    messages: list[BaseMessage]
    site: Site = field(default_factory=Site)
    accept_truncated: bool = False
    config: dict[str, Any] = field(default_factory=dict)

    def key(self) -> str:
        """Return the key under which the call looks for its answer."""
        store = MemoryReplies(accept_truncated=self.accept_truncated)
        store.look_up = functools.partial(_found, store)  # type: ignore[method-assign]
        model = built(self.fields)
        model.replies = store
        token = CURRENT_SITE.set(self.site)
        try:
            model.invoke(self.messages, self.config, **self.arguments)
        finally:
            CURRENT_SITE.reset(token)
        return store.calls[-1].key


def built(fields: dict[str, Any]) -> ReplayingChatOpenAI:
    """Return a model with these fields; a client behind it takes longer to make than many calls."""
    name = repr(sorted(fields.items()))
    if name not in BUILT:
        BUILT[name] = ReplayingChatOpenAI(**{**FIELDS, **fields})
    return BUILT[name]


BUILT: dict[str, ReplayingChatOpenAI] = {}
CLIENT = httpx2.Client()


def _found(store: MemoryReplies, call: Any) -> Reply:
    store.calls.append(call)
    return Reply(text='{"rating": "Buy"}')


FIELDS: dict[str, Any] = {
    "model": "small-1",
    "api_key": "sk-one",
    "base_url": "http://127.0.0.1:9/v1",
    "provider": "openai_compatible",
    "endpoint": "http://127.0.0.1:9/v1",
    "max_retries": 0,
    "http_client": CLIENT,
}

# -------------------------------------------------------------------------------- calls at random

WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
NAMES = st.sampled_from(["ticker", "start", "end", "look_back"])


def a_tool(name: str, description: str, properties: list[str]) -> dict[str, Any]:
    described = {one: {"type": "string", "description": one} for one in properties}
    parameters = {"type": "object", "properties": described, "required": properties}
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}


TOOLS = st.builds(
    a_tool,
    st.sampled_from(["get_news", "get_bars", "get_filings"]),
    WORDS,
    st.lists(NAMES, unique=True, min_size=1),
)


def talk(first: str, second: str, said: str, ids: tuple[str, str]) -> list[BaseMessage]:
    """Return a conversation with a turn of two tool calls."""
    calls = [
        {"name": "get_news", "args": {"ticker": said}, "id": ids[0], "type": "tool_call"},
        {"name": "get_bars", "args": {"ticker": said}, "id": ids[1], "type": "tool_call"},
    ]
    return [
        SystemMessage(first, id="m-1"),
        HumanMessage(second, id="m-2"),
        AIMessage("", tool_calls=calls, id="m-3"),
        ToolMessage("news", tool_call_id=ids[0], id="m-4"),
        ToolMessage("bars", tool_call_id=ids[1], id="m-5"),
    ]


CALLS = st.builds(
    lambda temperature, tools, first, second, said, site, truncated: Asked(
        fields={"temperature": temperature},
        arguments={"tools": tools},
        messages=talk(first, second, said, ("call_a", "call_b")),
        site=site,
        accept_truncated=truncated,
    ),
    st.sampled_from([0.0, 0.7, 1.0]),
    # Two tools at least, and no two alike: an order to change.
    st.lists(TOOLS, min_size=2, max_size=3, unique_by=lambda tool: tool["function"]["name"]),
    WORDS,
    WORDS,
    WORDS,
    st.builds(
        Site,
        trial=st.integers(0, 3),
        generation=st.integers(0, 3),
        attempt=st.integers(0, 2),
        node=st.sampled_from(["Trader", "Market Analyst"]),
    ),
    st.booleans(),
)

Change = Callable[[Asked], Asked]


def with_field(**fields: Any) -> Change:
    return lambda asked: replace(asked, fields={**asked.fields, **fields})


def with_argument(**arguments: Any) -> Change:
    return lambda asked: replace(asked, arguments={**asked.arguments, **arguments})


def with_site(**changes: Any) -> Change:
    return lambda asked: replace(asked, site=replace(asked.site, **changes))


def with_tools(edit: Callable[[list[dict[str, Any]]], Any]) -> Change:
    """Change a copy of the tools in place, or return others."""

    def change(asked: Asked) -> Asked:
        tools = copy.deepcopy(asked.arguments["tools"])
        edited = edit(tools)
        tools = tools if edited is None else edited
        return replace(asked, arguments={**asked.arguments, "tools": tools})

    return change


def with_messages(edit: Callable[[list[BaseMessage]], Any]) -> Change:
    def change(asked: Asked) -> Asked:
        messages = [message.model_copy(deep=True) for message in asked.messages]
        edited = edit(messages)
        return replace(asked, messages=messages if edited is None else edited)

    return change


def one_more_space(place: int) -> Change:
    def edit(messages: list[BaseMessage]) -> None:
        messages[place].content = f"{messages[place].content} "

    return with_messages(edit)


def swapped_answers(messages: list[BaseMessage]) -> None:
    messages[3].content, messages[4].content = messages[4].content, messages[3].content


def redescribed(tools: list[dict[str, Any]]) -> None:
    tools[0]["function"]["description"] += "!"


def reparametrised(tools: list[dict[str, Any]]) -> None:
    tools[0]["function"]["parameters"]["required"] = []


def renamed_parameter(tools: list[dict[str, Any]]) -> None:
    tools[0]["function"]["parameters"]["properties"]["other"] = {"type": "string"}


def other_argument(messages: list[BaseMessage]) -> None:
    call = messages[2].tool_calls[0]  # type: ignore[attr-defined]
    call["args"] = {"ticker": call["args"]["ticker"] + "X"}


def schema_format(described: str, *, strict: bool = True) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"rating": {"type": "string"}}, "title": described}
    wanted = {"name": "Rating", "schema": schema, "strict": strict}
    return {"type": "json_schema", "json_schema": wanted}


# What each can change is an answer.
CHANGES_THE_ANSWER: dict[str, Change] = {
    "model": with_field(model="small-2"),
    "temperature": lambda a: with_field(temperature=a.fields["temperature"] + 0.1)(a),
    "no temperature": with_field(temperature=None),
    "top_p": with_field(top_p=0.9),
    "seed": with_field(seed=7),
    "max_tokens": with_field(max_tokens=100),
    "frequency penalty": with_field(frequency_penalty=0.5),
    "presence penalty": with_field(presence_penalty=0.5),
    "logit bias": with_field(logit_bias={"50256": -100}),
    "reasoning effort": with_field(reasoning_effort="high"),
    "verbosity": with_field(verbosity="low"),
    "service tier": with_field(service_tier="flex"),
    "stop words of the model": with_field(stop=["END"]),
    "stop words of the call": with_argument(stop=["HALT"]),
    "other stop words": with_argument(stop=["HALT", "STOP"]),
    "extra body": with_field(extra_body={"top_k": 40}),
    "extra body of the call": with_argument(extra_body={"chat_template_kwargs": {"a": 1}}),
    "extra query": with_argument(extra_query={"api-version": "2"}),
    "any new field": with_argument(a_field_of_next_year=1),
    "model_kwargs": with_field(model_kwargs={"prediction": {"type": "content", "content": "x"}}),
    "provider": with_field(provider="deepseek"),
    "endpoint": with_field(endpoint="http://127.0.0.1:10/v1"),
    "logprobs": with_field(logprobs=True),
    "tool removed": with_tools(lambda tools: tools[1:]),
    "all tools removed": with_tools(lambda tools: []),
    "tool repeated": with_tools(lambda tools: [*tools, tools[0]]),
    "order of tools": with_tools(lambda tools: tools[::-1]),
    "tool described otherwise": with_tools(redescribed),
    "tool with a parameter more": with_tools(renamed_parameter),
    "parameters no longer required": with_tools(reparametrised),
    "tool choice": with_argument(tool_choice="required"),
    "parallel tool calls": with_argument(parallel_tool_calls=False),
    "response schema": with_argument(response_format=schema_format("a")),
    "other response schema": with_argument(response_format=schema_format("b")),
    "response schema not strict": with_argument(response_format=schema_format("a", strict=False)),
    "response class": with_argument(response_format=Rating),
    "response class of the same name": with_argument(response_format=OtherRating),
    "JSON mode": with_argument(response_format={"type": "json_object"}),
    "one space in the system text": one_more_space(0),
    "one space in the prompt": one_more_space(1),
    "one space in a tool's answer": one_more_space(3),
    "argument of an earlier tool call": with_messages(other_argument),
    "answers of tools swapped": with_messages(swapped_answers),
    "message left out": with_messages(lambda messages: messages[:2]),
    "name of a speaker": with_messages(lambda m: setattr(m[1], "name", "Bull")),
    "trial": lambda a: with_site(trial=a.site.trial + 1)(a),
    "generation": lambda a: with_site(generation=a.site.generation + 1)(a),
    "attempt": lambda a: with_site(attempt=a.site.attempt + 1)(a),
    "truncated replies taken": lambda a: replace(a, accept_truncated=not a.accept_truncated),
}  # fmt: skip


def reordered(value: Any) -> Any:
    """Return a JSON value with the keys of every object the other way round."""
    if isinstance(value, dict):
        return {name: reordered(item) for name, item in reversed(list(value.items()))}
    return [reordered(item) for item in value] if isinstance(value, list) else value


def other_message_ids(messages: list[BaseMessage]) -> None:
    for number, message in enumerate(messages):
        message.id = f"run-{number}-f00d"


def other_call_ids(messages: list[BaseMessage]) -> list[BaseMessage]:
    first, second = str(messages[0].content), str(messages[1].content)
    said = messages[2].tool_calls[0]["args"]["ticker"]  # type: ignore[attr-defined]
    return talk(first, second, said, ("call_zQ9", "call_77"))


def metadata_of_replies(messages: list[BaseMessage]) -> None:
    turn = messages[2]
    turn.response_metadata = {"model_name": "m-2026", "finish_reason": "tool_calls"}
    turn.usage_metadata = {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}  # type: ignore[attr-defined]


def with_config(**config: Any) -> Change:
    return lambda asked: replace(asked, config=config)


CHANGES_NOTHING: dict[str, Change] = {
    "API key": with_field(api_key="sk-two"),
    "timeout": with_field(timeout=3.0),
    "timeout of the call": with_argument(timeout=3.0),
    "retries": with_field(max_retries=9),
    "client headers": with_field(default_headers={"X-Trace": "7"}),
    "headers of the call": with_argument(extra_headers={"Authorization": "Bearer x"}),
    "organisation": with_field(organization="org-1"),
    "streaming": with_field(streaming=True),
    "usage in streams": with_field(stream_usage=True),
    "stream": with_argument(stream=True),
    "stream options": with_argument(stream_options={"include_usage": True}),
    "user": with_argument(user="me"),
    "kept by the provider": with_argument(store=True),
    "callbacks": with_config(callbacks=[BaseCallbackHandler()]),
    "tags": with_config(tags=["a"]),
    "metadata": with_config(metadata={"run": 1}),
    "name of the run": with_config(run_name="a"),
    "most at once": with_config(max_concurrency=2),
    "callbacks of the model": with_field(callbacks=[BaseCallbackHandler()]),
    "tags of the model": with_field(tags=["a"]),
    "metadata of the model": with_field(metadata={"run": 1}),
    "verbose": with_field(verbose=True),
    "what tracers are told": with_argument(ls_structured_output_format={"schema": {}}),
    "how streaming is disabled": with_field(disable_streaming=True),
    "ids of messages": with_messages(other_message_ids),
    "ids of tool calls": with_messages(other_call_ids),
    "metadata of replies": with_messages(metadata_of_replies),
    "order of keys": with_tools(lambda tools: reordered(tools)),
    "order of arguments": lambda a: replace(a, arguments=dict(reversed(a.arguments.items()))),
    "cell": with_site(cell="FB|2018-06-29|0"),
    "node": with_site(node="Bull Researcher"),
    "index": with_site(index=7),
    "validator": with_site(validate=lambda reply: None),
    "free text or not": with_site(free_text=False),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES_THE_ANSWER)
@settings(max_examples=5, deadline=None)
@given(asked=CALLS)
def test_what_can_change_an_answer_changes_the_key(name: str, asked: Asked) -> None:
    assert CHANGES_THE_ANSWER[name](asked).key() != asked.key()


@pytest.mark.parametrize("name", CHANGES_NOTHING)
@settings(max_examples=5, deadline=None)
@given(asked=CALLS)
def test_what_cannot_change_an_answer_leaves_the_key(name: str, asked: Asked) -> None:
    assert CHANGES_NOTHING[name](asked).key() == asked.key()


@settings(max_examples=1, deadline=None)
@given(asked=CALLS)
def test_no_two_changes_lead_to_one_key(asked: Asked) -> None:
    keys = {name: change(asked).key() for name, change in CHANGES_THE_ANSWER.items()}
    assert len({*keys.values(), asked.key()}) == len(keys) + 1


@settings(max_examples=8, deadline=None)
@given(asked=CALLS, names=st.lists(st.sampled_from(sorted(CHANGES_NOTHING)), unique=True))
def test_all_that_cannot_change_an_answer_leaves_the_key_together(
    asked: Asked, names: list[str]
) -> None:
    changed = asked
    for name in names:
        changed = CHANGES_NOTHING[name](changed)
    assert changed.key() == asked.key()


def test_eight_named_changes_of_two_messages_are_eight_new_keys() -> None:
    tools = [a_tool("get_news", "Headlines.", ["ticker"]), a_tool("get_bars", "Bars.", ["ticker"])]
    plain = Asked(
        fields={"temperature": 0.0},
        arguments={"tools": tools, "response_format": schema_format("a")},
        messages=[SystemMessage("You rate.", id="a"), HumanMessage("Rate FB.", id="b")],
    )
    same = [
        replace(plain, messages=[SystemMessage("You rate.", id="c"), HumanMessage("Rate FB.")]),
        with_tools(lambda found: reordered(found))(plain),
        with_field(timeout=1.0, api_key="sk-two", tags=["t"], callbacks=[])(plain),
    ]
    other = [
        with_field(model="small-2")(plain),
        with_field(temperature=0.7)(plain),
        with_tools(lambda found: found[:1])(plain),
        with_tools(redescribed)(plain),
        with_argument(response_format=schema_format("b"))(plain),
        with_field(endpoint="http://127.0.0.1:10/v1")(plain),
        one_more_space(0)(plain),
        with_site(trial=1)(plain),
    ]
    assert {one.key() for one in same} == {plain.key()}
    assert len({one.key() for one in other} - {plain.key()}) == 8
