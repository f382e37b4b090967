"""Record with any call style of LangChain, replay with any other: equal messages, no call.

The matrix is wire x chain x recording style x replaying style, through LangChain's own entry points
and the real cache.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler, UsageMetadataCallbackHandler
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.runnables import Runnable
from langchain_core.tracers.context import collect_runs
from pydantic import BaseModel

from backtester.replies.window import CellReplies, ReplyCache
from tests.support import openai_server as wire
from tests.support.openai_server import OpenAIServer
from tests.support.reply_stores import MemoryReplies
from tradingagents_core.llm.doubles import ReplayingScriptedModel, text_reply, tool_reply
from tradingagents_core.llm.factory import create_model
from tradingagents_core.llm.openai_chat import ReplayingChatOpenAI
from tradingagents_core.llm.replaying import ReplayingModel
from tradingagents_core.protocols import Mode, Reply, Usage
from tradingagents_core.settings import ModelSpec

PROMPT: list[BaseMessage] = [SystemMessage("Role: Trader"), HumanMessage("Rate FB.")]
TOOL = {
    "type": "function",
    "function": {
        "name": "get_news",
        "description": "Headlines.",
        "parameters": {"type": "object", "properties": {"ticker": {"type": "string"}}},
    },
}
USAGE = Usage(input_tokens=11, output_tokens=7)


class Rating(BaseModel):
    """A rating."""

    rating: str


# ------------------------------------------------------------------------------------- the styles


def invoke(chain: Runnable) -> Any:
    return chain.invoke(PROMPT)


def invoke_heard(chain: Runnable) -> Any:
    return chain.invoke(PROMPT, {"callbacks": [BaseCallbackHandler()], "tags": ["t"]})


def ainvoke(chain: Runnable) -> Any:
    return asyncio.run(chain.ainvoke(PROMPT))


def stream(chain: Runnable) -> Any:
    chunks = list(chain.stream(PROMPT))
    return sum(chunks[1:], chunks[0])


def astream(chain: Runnable) -> Any:
    async def gather() -> list[Any]:
        return [chunk async for chunk in chain.astream(PROMPT)]

    chunks = asyncio.run(gather())
    return sum(chunks[1:], chunks[0])


def batch(chain: Runnable) -> Any:
    return chain.batch([PROMPT, PROMPT])[1]


def abatch(chain: Runnable) -> Any:
    return asyncio.run(chain.abatch([PROMPT, PROMPT]))[1]


def astream_events(chain: Runnable) -> Any:
    async def last() -> Any:
        output = None
        async for event in chain.astream_events(PROMPT, version="v2"):
            if event["event"] in ("on_chat_model_end", "on_chain_end"):
                output = event["data"]["output"]
        return output

    return asyncio.run(last())


STYLES: dict[str, Callable[[Runnable], Any]] = {
    style.__name__: style
    for style in (
        invoke, invoke_heard, ainvoke, stream, astream, batch, abatch, astream_events,
    )
}  # fmt: skip


# --------------------------------------------------------------------- the chains, and what is said


def structured(method: str, **options: Any) -> Callable[[Any], Runnable]:
    return lambda model: model.with_structured_output(Rating, method=method, **options)


def set_to_stream(model: Any) -> Runnable:
    model.streaming = True
    return model


SCHEMA_FORMAT = {
    "type": "json_schema",
    "json_schema": {"name": "Rating", "schema": Rating.model_json_schema(), "strict": True},
}
JSON_TEXT = text_reply('{"rating": "Buy"}', usage=USAGE)
TEXT = text_reply("Größe ✓ **Buy**", usage=USAGE)
THOUGHT = Reply(text="Buy.", reasoning="Cheap.\n\nSo buy.", usage=USAGE)
SEVERAL = Reply(
    text="Two looks.",
    tool_calls=tool_reply(
        ("get_news", {"b": 1, "a": [None, "ü"]}), ("get_news", {"ticker": "FB"})
    ).tool_calls,
    finish_reason="tool_calls",
    usage=USAGE,
)
BY_TOOL = Reply(
    text="",
    tool_calls=tool_reply(("Rating", {"rating": "Buy"})).tool_calls,
    finish_reason="tool_calls",
    usage=USAGE,
)


@dataclass(frozen=True, kw_only=True)
class Chain:
    """Hold a way of using a model, and what the model says to it."""

    build: Callable[[Any], Runnable]
    reply: Reply


CHAINS = {
    "text": Chain(build=lambda model: model, reply=TEXT),
    "reasoning": Chain(build=lambda model: model, reply=THOUGHT),
    "streaming model": Chain(build=set_to_stream, reply=TEXT),
    "stop words": Chain(build=lambda model: model.bind(stop=["END"]), reply=TEXT),
    "several tool calls": Chain(build=lambda model: model.bind_tools([TOOL]), reply=SEVERAL),
    "bound schema": Chain(
        build=lambda model: model.bind(response_format=SCHEMA_FORMAT), reply=JSON_TEXT
    ),
    "json_schema": Chain(build=structured("json_schema"), reply=JSON_TEXT),
    "json_schema, raw": Chain(build=structured("json_schema", include_raw=True), reply=JSON_TEXT),
    "function_calling": Chain(build=structured("function_calling"), reply=BY_TOOL),
    "function_calling, raw": Chain(
        build=structured("function_calling", include_raw=True), reply=BY_TOOL
    ),
    "json_mode": Chain(build=structured("json_mode"), reply=JSON_TEXT),
    "json_mode, raw": Chain(build=structured("json_mode", include_raw=True), reply=JSON_TEXT),
}


# -------------------------------------------------------------------------------------- the wires


def chat_completion(reply: Reply) -> wire.Act:
    """Say a reply in the form of Chat Completions."""
    calls = [(call.name, json.loads(call.args)) for call in reply.tool_calls]
    act = wire.tools(*calls, content=reply.text or None) if calls else wire.text(reply.text)
    if reply.reasoning is not None:
        act.body["choices"][0]["message"]["reasoning_content"] = reply.reasoning
    return act


def response(reply: Reply) -> wire.Act:
    """Say a reply in the form of the Responses API."""
    output: list[dict[str, Any]] = []
    if reply.reasoning is not None:
        parts = [{"type": "summary_text", "text": t} for t in reply.reasoning.split("\n\n")]
        output.append({"type": "reasoning", "id": "rs_1", "summary": parts})
    if reply.text:
        content = [{"type": "output_text", "text": reply.text, "annotations": []}]
        output.append({"type": "message", "id": "msg_1", "role": "assistant", "content": content})
    output += [
        {
            "type": "function_call",
            "id": f"fc_{number}",
            "call_id": call.id,
            "name": call.name,
            "arguments": call.args,
        }
        for number, call in enumerate(reply.tool_calls)
    ]
    usage = {"input_tokens": 11, "output_tokens": 7, "total_tokens": 18}
    body = {"id": "resp_1", "object": "response", "status": "completed", "model": "gpt-stub"}
    return wire.Act(body={**body, "output": output, "usage": usage})


@dataclass(frozen=True, kw_only=True)
class Wire:
    """Hold a model that is answered over one protocol, and count the answers."""

    model: ReplayingModel
    count: Callable[[], int]


def openai_model(server: OpenAIServer, *, responses: bool) -> ReplayingModel:
    return ReplayingChatOpenAI(
        model="stub-1",
        api_key="no-key",
        base_url=server.url,
        max_retries=0,
        use_responses_api=responses,
        provider="openai_compatible",
        endpoint="here",
        output_version="v0",
    )


@contextmanager
def over_http(act: wire.Act, *, responses: bool) -> Iterator[Wire]:
    with OpenAIServer(act) as server:
        model = openai_model(server, responses=responses)
        yield Wire(model=model, count=lambda: len(server.requests))


@contextmanager
def scripted(reply: Reply) -> Iterator[Wire]:
    model = SchemaScripted(script=lambda _messages, _arguments: reply)
    yield Wire(model=model, count=lambda: len(model.calls))


class SchemaScripted(ReplayingScriptedModel):
    """Bind what LangChain's own ``with_structured_output`` leaves to a provider's class."""

    def with_structured_output(
        self, schema: Any, *, method: str = "json_schema", **options: Any
    ) -> Any:
        # The inherited one knows function calling alone, and takes no method.
        return super().with_structured_output(schema, **options)


WIRES: Mapping[str, Callable[[Reply], Any]] = {
    "chat completions": lambda reply: over_http(chat_completion(reply), responses=False),
    "responses": lambda reply: over_http(response(reply), responses=True),
    "scripted": scripted,
}
# A double speaks no protocol: it takes the forms that LangChain binds by itself.
_BY_SCRIPT = ("text", "reasoning", "stop words", "several tool calls", "bound schema",
              "function_calling", "function_calling, raw")  # fmt: skip
# The Responses API has no stop words, and LangChain refuses to send them.
CASES = [
    pytest.param(wire_name, chain_name, id=f"{wire_name}: {chain_name}")
    for wire_name in WIRES
    for chain_name in CHAINS
    if (wire_name, chain_name) != ("responses", "stop words")
    and (wire_name != "scripted" or chain_name in _BY_SCRIPT)
]


def cell(cache: ReplyCache, mode: Mode) -> CellReplies:
    return CellReplies(cache, mode=mode, cell_label="FB|2018-06-29|0")


def said(result: Any) -> Any:
    """Return all that a caller can see of a message or chunk, or the parsed value itself."""
    if isinstance(result, dict):
        return {name: said(value) for name, value in result.items()}
    if not isinstance(result, AIMessage):
        return result
    names = ("content", "tool_calls", "invalid_tool_calls", "usage_metadata", "id",
             "response_metadata", "additional_kwargs")  # fmt: skip
    return {name: getattr(result, name) for name in names}


# Each style against each, where the forms differ most; elsewhere each style against itself, the
# next one and the plain one, in a ring.
WHOLE = (
    ("chat completions", "several tool calls"),
    ("chat completions", "json_schema"),
    ("chat completions", "reasoning"),
    ("responses", "several tool calls"),
)


def replayed_by(style: str, *, whole: bool) -> list[str]:
    names = list(STYLES)
    following = names[(names.index(style) + 1) % len(names)]
    return names if whole else list(dict.fromkeys(["invoke", style, following]))


@pytest.mark.parametrize(("wire_name", "chain_name"), CASES)
def test_what_one_style_recorded_every_style_replays(
    wire_name: str, chain_name: str, tmp_path: Path
) -> None:
    chain = CHAINS[chain_name]
    with WIRES[wire_name](chain.reply) as spoken:
        runnable = chain.build(spoken.model)
        results: dict[str, Any] = {}
        for style, record in STYLES.items():
            cache = ReplyCache.open(tmp_path / style)
            before = spoken.count()
            spoken.model.replies = cell(cache, "record")
            results[style] = said(record(runnable))
            assert spoken.count() == before + 1, f"{style} makes one call"
            spoken.model.replies = cell(cache, "replay")
            for other in replayed_by(style, whole=(wire_name, chain_name) in WHOLE):
                again = said(STYLES[other](runnable))
                assert again == results[style], f"{style} replayed by {other}"
            assert spoken.count() == before + 1, f"{style}: no call in a replay"
            (kept,) = cache.records()
            assert kept.reply.usage == USAGE
            assert kept.reply.reasoning == chain.reply.reasoning
        assert all(result == results["invoke"] for result in results.values()), "styles agree"


def test_the_rulebook_is_recorded_by_each_style_and_replayed_by_each(tmp_path: Path) -> None:
    model = create_model(ModelSpec(), api_key=None)
    replaying = create_model(ModelSpec(), api_key=None, transport="refuse")
    for style, record in STYLES.items():
        cache = ReplyCache.open(tmp_path / style)
        model.replies = cell(cache, "record")
        recorded = said(record(model))
        assert len(cache) == 1
        replaying.replies = cell(cache, "replay")
        for other, replay in STYLES.items():
            assert said(replay(replaying)) == recorded, f"{style} replayed by {other}"


# ------------------------------------------------------------------------------ who hears of a call


class Listener(BaseCallbackHandler):
    """Keep what a handler is told."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def on_chat_model_start(self, *_: Any, **__: Any) -> None:
        self.heard.append("start")

    def on_llm_end(self, response: Any, **_: Any) -> None:
        self.heard.append(str(response.generations[0][0].text))


def test_a_handler_hears_of_every_call_however_it_was_attached() -> None:
    for attach in ("config", "model", "binding"):
        listener = Listener()
        model = ReplayingScriptedModel(script=["Buy."], replies=MemoryReplies())
        chain: Any = model
        if attach == "model":
            model.callbacks = [listener]
        elif attach == "binding":
            chain = model.with_config(callbacks=[listener])
        config = {"callbacks": [listener]} if attach == "config" else None
        first, hit = chain.invoke(PROMPT, config), chain.invoke(PROMPT, config)
        assert first == hit
        assert listener.heard == ["start", "Buy."] * 2, attach


def test_what_a_process_has_set_to_listen_hears_of_every_call() -> None:
    model = ReplayingScriptedModel(script=[TEXT], replies=MemoryReplies())
    with collect_runs() as runs:
        model.invoke(PROMPT)
        model.invoke(PROMPT)
    assert [run.run_type for run in runs.traced_runs] == ["llm"] * 2


def test_the_usage_of_a_hit_is_what_was_recorded() -> None:
    model = ReplayingScriptedModel(script=[TEXT], replies=MemoryReplies())
    counted: list[Any] = []
    for _ in range(2):
        counter = UsageMetadataCallbackHandler()
        model.invoke(PROMPT, {"callbacks": [counter]})
        counted.append(counter.usage_metadata)
    assert counted[0] == counted[1]


@pytest.mark.parametrize("prompt", ["Rate FB.", [("user", "Rate FB.")], [HumanMessage("Rate FB.")]])
def test_every_form_of_a_prompt_leads_to_one_record(prompt: Any) -> None:
    store = MemoryReplies()
    model = ReplayingScriptedModel(script=["Buy."], replies=store)
    model.invoke([HumanMessage("Rate FB.")])
    assert model.invoke(prompt).content == "Buy."
    assert next(model.stream(prompt)).content == "Buy."
    assert len(store.answers) == 1


def test_a_prompt_in_parts_is_one_record_with_a_listener_and_without() -> None:
    store = MemoryReplies()
    model = ReplayingScriptedModel(script=["A cat."], replies=store)
    parts = [
        {"type": "text", "text": "What is it?"},
        {"type": "image", "source_type": "base64", "mime_type": "image/png", "data": "aGk="},
    ]
    heard = model.invoke([HumanMessage(parts)], {"callbacks": [Listener()]})
    assert model.invoke([HumanMessage(parts)]) == heard
    assert len(store.answers) == 1


def test_a_rate_limiter_is_asked_as_langchain_asks_it() -> None:
    class Limiter:
        asked = 0

        def acquire(self, *, blocking: bool = True) -> bool:
            Limiter.asked += 1
            return True

    model = ReplayingScriptedModel(script=["Buy."], replies=MemoryReplies())
    object.__setattr__(model, "rate_limiter", Limiter())
    model.invoke(PROMPT)
    assert Limiter.asked == 1
