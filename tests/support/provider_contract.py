"""What every provider must do, whatever it speaks: a base class for the tests of one provider.

A subclass names provider and wire, and says what its own request bodies look like.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import time
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import httpx2
import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from pydantic import BaseModel

from tests.support.openai_server import Act, OpenAIServer, Received
from tests.support.provider_wires import Wire, hang, malformed, root_of
from tests.support.reply_stores import MemoryReplies
from tradingagents_core.agents.structured import bind_form
from tradingagents_core.decisions import DECISION
from tradingagents_core.errors import ModelOutcome, ReplayMiss
from tradingagents_core.llm import patience
from tradingagents_core.llm.factory import create_model
from tradingagents_core.llm.keys import canonical_json
from tradingagents_core.llm.replaying import ReplayingModel
from tradingagents_core.settings import ModelSpec

SECRET = "sk-TEST-SECRET-123"
TOOL = {
    "type": "function",
    "function": {
        "name": "get_news",
        "description": "Headlines.",
        "parameters": {
            "type": "object",
            "properties": {
                "ticker": {"type": "string"},
                "look_back_days": {"type": "integer", "description": "Days."},
            },
            "required": ["ticker"],
        },
    },
}
SCHEMA = {
    "title": "Rating",
    "description": "A rating.",
    "type": "object",
    "properties": {"rating": {"type": "string", "enum": ["Buy", "Hold"]}},
    "required": ["rating"],
    "additionalProperties": False,
}
RESPONSE_FORMAT = {
    "type": "json_schema",
    "json_schema": {"name": "Rating", "schema": SCHEMA, "strict": True},
}
PROMPT = [SystemMessage("You rate stocks."), HumanMessage("Rate FB.")]


class Rating(BaseModel):
    """A rating."""

    rating: str


def invoked(model: Any, prompt: Any) -> AIMessage:
    return model.invoke(prompt)


def awaited(model: Any, prompt: Any) -> AIMessage:
    return asyncio.run(model.ainvoke(prompt))


def streamed(model: Any, prompt: Any) -> AIMessage:
    (chunk,) = [chunk for chunk in model.stream(prompt) if chunk.content or chunk.tool_calls]
    return chunk


def streamed_async(model: Any, prompt: Any) -> AIMessage:
    async def last() -> AIMessage:
        chunks = [chunk async for chunk in model.astream(prompt)]
        (chunk,) = [chunk for chunk in chunks if chunk.content or chunk.tool_calls]
        return chunk

    return asyncio.run(last())


def batched(model: Any, prompt: Any) -> AIMessage:
    (message,) = model.batch([prompt])
    return message


STYLES: tuple[Callable[[Any, Any], AIMessage], ...] = (
    invoked,
    awaited,
    streamed,
    streamed_async,
    batched,
)


def own_client() -> httpx2.Client:
    """Return a client for one model of the library's, to be closed with it.

    The library keeps one for all models of an address, and a later server may have the same port.
    """
    return httpx2.Client()


class ProviderContract:
    """Test one provider against a loopback server that speaks its wire."""

    provider: ClassVar[str]
    wire: ClassVar[Wire]
    # The ways in which the provider can be asked for a typed reply.
    methods: ClassVar[tuple[str, ...]] = ("json_schema", "function_calling")
    # Header that holds the credential; None for one that is a signature.
    key_header: ClassVar[str | None]
    # Whether the model takes a temperature.
    heats: ClassVar[bool] = True
    # Whether it takes stop words.
    stops: ClassVar[bool] = True
    # What the library's own client says where it is asked to send.
    refusal: ClassVar[str] = "Connection error|no request to"

    # ------------------------------------------------------------ what a subclass may change

    def api_key(self) -> str | None:
        return SECRET

    def spec(self, server: OpenAIServer, **changes: Any) -> ModelSpec:
        fields: dict[str, Any] = {
            "provider": self.provider,
            "model": self.wire.model,
            "base_url": root_of(server),
            "max_retries": 0,
            "timeout_s": 5.0,
            **changes,
        }
        return ModelSpec(**fields)

    def library(self, server: OpenAIServer) -> Any:
        """Return the library's own class, at this server, with temperature 0 and 50 tokens."""
        raise NotImplementedError

    def close(self, library: Any) -> None:
        """Close the connections of the library's own class."""

    def sent(self, received: Received) -> Mapping[str, Any]:
        """Return a received body without what means nothing."""
        return received.body

    # -------------------------------------------------------------------------------- tools

    def model_at(
        self, server: OpenAIServer, *, store: MemoryReplies | None = None, **changes: Any
    ) -> ReplayingModel:
        model = create_model(self.spec(server, **changes), api_key=self.api_key())
        assert isinstance(model, ReplayingModel)
        model.replies = store
        return model

    def replaying(self, server: OpenAIServer, store: MemoryReplies) -> ReplayingModel:
        model = create_model(self.spec(server), api_key=None, transport="refuse")
        assert isinstance(model, ReplayingModel)
        model.replies = store
        return model

    def ends_with(self, *script: Act, lost: bool = False, **changes: Any) -> ModelOutcome:
        """Return the outcome of one call, of which an unread answer may be billed or not."""
        store = MemoryReplies()
        with OpenAIServer(*script) as server:
            model = self.model_at(server, store=store, **changes)
            with pytest.raises(ModelOutcome) as outcome:
                model.invoke(PROMPT)
        assert store.answers == {}
        assert [kept.kind for kept in store.outcomes] == [outcome.value.kind]
        assert store.losses == [False] * lost
        return outcome.value

    # ------------------------------------------------------------------------- what is sent

    @pytest.mark.parametrize("choice", [None, "get_news", "any"])
    def test_what_is_sent_is_what_the_library_alone_would_send(self, choice: str | None) -> None:
        with OpenAIServer(self.wire.text("ok")) as server:
            ours = self.model_at(server, temperature=0.0, max_tokens=50)
            library = self.library(server)
            for model in (ours, library):
                model.bind_tools([TOOL], tool_choice=choice).invoke(PROMPT)
                model.invoke(PROMPT, stop=["END"])
                model.invoke(PROMPT, response_format=RESPONSE_FORMAT)
            requests = server.requests
            self.close(library)
        sent = [self.sent(request) for request in requests]
        assert sent[:3] == sent[3:]
        assert [request.path for request in requests[:3]] == [
            request.path for request in requests[3:]
        ]

    def test_a_conversation_is_sent_as_the_library_alone_would_send_it(self) -> None:
        calls = (("get_news", {"ticker": "FB"}), ("get_news", {"ticker": "GOOG"}))
        with OpenAIServer(self.wire.tools(*calls), self.wire.text("ok")) as server:
            ours = self.model_at(server, temperature=0.0, max_tokens=50)
            library = self.library(server)
            turn = ours.bind_tools([TOOL]).invoke(PROMPT)
            answers = [
                ToolMessage("none", tool_call_id=call["id"], name=call["name"])
                for call in turn.tool_calls
            ]
            for model in (ours, library):
                model.bind_tools([TOOL]).invoke([*PROMPT, turn, *answers])
            self.close(library)
        _, of_ours, of_library = (self.sent(request) for request in server.requests)
        assert of_ours == of_library

    def test_what_is_sent_is_what_is_keyed(self) -> None:
        store = MemoryReplies()
        with OpenAIServer(self.wire.text("ok")) as server:
            model = self.model_at(server, store=store, temperature=0.0, max_tokens=50)
            list(model.bind_tools([TOOL]).stream(PROMPT))
        keyed = json.loads(store.calls[0].request)["body"]
        sent = dict(self.sent(server.requests[0]))
        assert {name: keyed.get(name) for name in sent} == sent
        assert keyed["model"] == self.wire.model

    def test_the_credential_goes_into_its_header_and_nowhere_else(self) -> None:
        store = MemoryReplies()
        with OpenAIServer(self.wire.text(f"you sent {SECRET}"), self.wire.text("ok")) as server:
            model = self.model_at(server, store=store)
            message = model.invoke(PROMPT)
            model.invoke(PROMPT)
        (request,) = server.requests
        held = {name for name, value in request.headers.items() if SECRET in value}
        assert held == ({self.key_header} if self.key_header else set())
        assert SECRET not in request.path
        assert SECRET not in json.dumps(request.body)
        everything = repr((store.answers, store.calls, store.outcomes, message, model))
        assert SECRET not in everything
        assert message.content == "you sent [API key]"

    # -------------------------------------------------------------------------- what is read

    def test_text_usage_model_and_the_providers_own_json_are_kept(self) -> None:
        store = MemoryReplies()
        raw = json.dumps(self.wire.text("Größe ✓").body, indent=1, ensure_ascii=False)
        with OpenAIServer(Act(body=raw)) as server:
            message = self.model_at(server, store=store).invoke(PROMPT)
        (reply,) = store.answers.values()
        assert (reply.text, message.content) == ("Größe ✓", "Größe ✓")
        assert reply.raw == raw
        assert reply.model == self.wire.answered_model
        assert (reply.usage.input_tokens, reply.usage.output_tokens) == (11, 7)
        assert message.usage_metadata is not None
        assert message.usage_metadata["total_tokens"] == 18

    def test_a_tool_turn_is_read_and_its_answer_sent_back(self) -> None:
        script = (self.wire.tools(("get_news", {"ticker": "FB"})), self.wire.text("done"))
        with OpenAIServer(*script) as server:
            model = self.model_at(server).bind_tools([TOOL])
            turn = model.invoke(PROMPT)
            assert [(call["name"], call["args"]) for call in turn.tool_calls] == [
                ("get_news", {"ticker": "FB"})
            ]
            answer = ToolMessage(
                "no headlines", tool_call_id=turn.tool_calls[0]["id"], name="get_news"
            )
            assert model.invoke([*PROMPT, turn, answer]).content == "done"
        self.check_tool_answer(server.bodies[1], ["no headlines"])

    def test_several_calls_at_once_are_answered_in_one_turn(self) -> None:
        calls = (("get_news", {"ticker": "FB"}), ("get_news", {"ticker": "GOOG"}))
        with OpenAIServer(self.wire.tools(*calls), self.wire.text("done")) as server:
            model = self.model_at(server).bind_tools([TOOL])
            turn = model.invoke(PROMPT)
            assert [call["args"]["ticker"] for call in turn.tool_calls] == ["FB", "GOOG"]
            assert len({call["id"] for call in turn.tool_calls}) == 2
            answers = [
                ToolMessage(f"of {number}", tool_call_id=call["id"], name=call["name"])
                for number, call in enumerate(turn.tool_calls)
            ]
            model.invoke([*PROMPT, turn, *answers])
        self.check_tool_answer(server.bodies[1], ["of 0", "of 1"])

    def check_tool_answer(self, body: Mapping[str, Any], texts: list[str]) -> None:
        """Check how a conversation of system, human, call and answers is sent."""
        raise NotImplementedError

    def test_langchains_structured_output_works_live_and_from_the_store(self) -> None:
        for method in self.methods:
            act = (
                self.wire.tools(("Rating", {"rating": "Buy"}))
                if method == "function_calling"
                else self.wire.text('{"rating": "Buy"}')
            )
            store = MemoryReplies()
            with OpenAIServer(act) as server:
                chain = self.model_at(server, store=store).with_structured_output(
                    Rating, method=method
                )
                assert chain.invoke(PROMPT) == chain.invoke(PROMPT) == Rating(rating="Buy")
            assert len(server.requests) == 1

    @pytest.mark.parametrize("method", ["json_schema", "function_calling", "json_mode"])
    def test_the_pipelines_own_form_can_be_asked_for_in_every_way(self, method: str) -> None:
        filled = {"rating": "Buy", "executive_summary": "s", "investment_thesis": "t"}
        act = (
            self.wire.tools((DECISION.name, filled))
            if method == "function_calling"
            else self.wire.text(json.dumps(filled))
        )
        with OpenAIServer(act) as server:
            model = self.model_at(server, structured_method=method)
            bound = bind_form(model, DECISION, model.structured_method)
            reply = model.answer(list(PROMPT), **bound.arguments)
        (sent,) = server.bodies
        asked = json.dumps(sent)
        assert ("executive_summary" in asked) is (method != "json_mode")
        assert (reply.tool_calls == []) is (method != "function_calling")

    def test_tools_can_be_offered_and_refused(self) -> None:
        with OpenAIServer(self.wire.text("ok")) as server:
            self.model_at(server).bind_tools([TOOL], tool_choice="none").invoke(PROMPT)
        self.check_refused_tools(server.bodies[0])

    def check_refused_tools(self, body: Mapping[str, Any]) -> None:
        """Check how a request refuses the tools that it names."""
        raise NotImplementedError

    # ------------------------------------------------------------------------------ failures

    def test_a_rate_limit_is_waited_out_and_counted_and_is_no_attempt(self) -> None:
        store = MemoryReplies()
        script = (self.wire.error(429, "slow down", retry_after="0"), self.wire.text("ok"))
        with OpenAIServer(*script) as server:
            assert self.model_at(server, store=store, max_retries=2).invoke(PROMPT).content == "ok"
        assert len(server.requests) == 2
        assert (store.retries, store.outcomes) == ([1], [])

    def test_a_server_error_is_a_transport_outcome_after_its_retries(self) -> None:
        store = MemoryReplies()
        with OpenAIServer(self.wire.error(500, "boom", retry_after="0")) as server:
            model = self.model_at(server, store=store, max_retries=1)
            with pytest.raises(ModelOutcome, match="answered 500: boom"):
                model.invoke(PROMPT)
        assert len(server.requests) == 2
        assert store.retries == [1]

    def test_a_wrong_key_is_an_outcome_that_does_not_repeat_the_key(self) -> None:
        outcome = self.ends_with(self.wire.error(401, f"invalid key {SECRET}"), max_retries=2)
        assert outcome.kind == "transport"
        assert outcome.message == "the provider answered 401: invalid key [API key]"

    def test_a_request_that_the_provider_will_not_take_is_rejected(self) -> None:
        outcome = self.ends_with(self.wire.error(400, "prompt is too long"), max_retries=2)
        assert outcome.kind == "rejected"
        assert outcome.message == "the provider answered 400: prompt is too long"

    def test_a_reply_cut_by_length_is_an_outcome(self) -> None:
        assert self.ends_with(self.wire.cut("It was go")).kind == "length"

    def test_a_body_that_is_no_json_is_a_transport_outcome(self) -> None:
        # It was answered, so it was paid for.
        assert self.ends_with(malformed(self.wire.text("ok")), lost=True).kind == "transport"

    @pytest.mark.parametrize("body", ["[]", "{}", '"x"', "null", '{"error": {"message": "x"}}'])
    def test_an_answer_of_another_form_is_a_transport_outcome(self, body: str) -> None:
        canonical_json(self.ends_with(Act(body=body), lost=True).message)

    @pytest.mark.parametrize("message", ["\ud83d", 2**70, ["x"], {"a": None}, None])
    def test_an_error_of_any_form_is_an_outcome_that_can_be_written(self, message: Any) -> None:
        canonical_json(self.ends_with(self.wire.error(400, message)).message)
        canonical_json(self.ends_with(Act(status=400, body=message)).message)

    def test_a_server_that_hangs_is_given_up_in_time(self) -> None:
        started = time.perf_counter()
        outcome = self.ends_with(hang(self.wire.text("late")), timeout_s=0.3, lost=True)
        assert outcome.message == "the provider did not answer in time"
        assert time.perf_counter() - started < 5

    def test_a_dropped_connection_is_a_transport_outcome(self) -> None:
        outcome = self.ends_with(Act(drop=True), lost=True)
        assert outcome.message.startswith("the provider cannot be reached")

    def test_a_small_body_that_unpacks_to_a_large_one_is_an_outcome(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(patience, "MOST_BYTES", 2**20)
        store = MemoryReplies()
        packed = {"content-encoding": "gzip"}
        bomb = gzip.compress(json.dumps(self.wire.text("ok").body).encode() + b" " * 2**20)
        fair = gzip.compress(json.dumps(self.wire.text("ok").body).encode() + b" " * 2**19)
        with OpenAIServer(*(Act(body=body, headers=packed) for body in (bomb, fair))) as server:
            model = self.model_at(server, store=store, max_retries=2)
            with pytest.raises(ModelOutcome, match="the answer is larger than 1 MB") as outcome:
                model.invoke(PROMPT)
            assert model.invoke(PROMPT).content == "ok"
        assert (outcome.value.kind, len(server.requests)) == ("transport", 2)
        assert len(bomb) < 5000
        assert store.losses == [False]

    # --------------------------------------------------------------------------------- replay

    @pytest.mark.parametrize("record", STYLES, ids=lambda style: style.__name__)
    def test_what_one_style_recorded_every_style_replays_without_a_call(
        self, record: Callable[[Any, Any], AIMessage]
    ) -> None:
        store = MemoryReplies()
        with OpenAIServer(self.wire.tools(("get_news", {"ticker": "FB"}))) as server:
            model = self.model_at(server, store=store).bind_tools([TOOL])
            recorded = record(model, PROMPT)
            store.mode = "replay"
            replaying = self.replaying(server, store).bind_tools([TOOL])
            messages = [style(replaying, PROMPT) for style in STYLES]
        assert len(server.requests) == 1
        for message in (recorded, *messages):
            assert message.tool_calls == messages[0].tool_calls
            assert message.usage_metadata == messages[0].usage_metadata
            assert message.id == messages[0].id

    def test_a_replay_needs_no_key_and_cannot_reach_a_server(self) -> None:
        store = MemoryReplies("replay")
        with OpenAIServer(self.wire.text("ok")) as server:
            model = self.replaying(server, store)
            with pytest.raises(ReplayMiss):
                model.invoke(PROMPT)
            model.replies = None
            with pytest.raises(ReplayMiss):
                model.invoke(PROMPT)
            # Not even past the recording layer.
            library = type(model).__bases__[1]
            for way_around in (library._generate, library._stream):
                with pytest.raises(Exception, match=self.refusal):
                    list(way_around(model, list(PROMPT)))
        assert (server.connections, server.requests) == (0, [])

    def test_a_key_moves_with_what_can_change_an_answer_and_with_nothing_else(self) -> None:
        with OpenAIServer(self.wire.text("ok")) as server:

            def key(bound: Mapping[str, Any] | None = None, **changes: Any) -> str:
                store = MemoryReplies("replay")
                model = self.model_at(server, store=store, **changes)
                with pytest.raises(ReplayMiss):
                    model.invoke(PROMPT, **(bound or {}))
                return store.calls[0].key

            plain = key()
            assert plain == key(timeout_s=9.0) == key(max_retries=4) == key(retry_budget_s=1.0)
            moved = [
                key(model=self.other_model()),
                *([key(temperature=0.0)] if self.heats else []),
                key(max_tokens=50),
                key(endpoint_alias="elsewhere"),
                *([key({"stop": ["END"]})] if self.stops else []),
                key({"response_format": RESPONSE_FORMAT}),
            ]
        assert len({plain, *moved}) == len(moved) + 1

    def other_model(self) -> str:
        return f"{self.wire.model}-2"


class ThinkingContract(ProviderContract):
    """Test one provider that signs what its models thought."""

    def test_a_thought_is_kept_and_sent_back_as_it_came(self) -> None:
        store = MemoryReplies()
        script = (
            self.wire.thoughtful("Headlines first.", ("get_news", {"ticker": "FB"})),
            self.wire.text("done"),
        )
        with OpenAIServer(*script) as server:
            model = self.model_at(server, store=store).bind_tools([TOOL])
            turn = model.invoke(PROMPT)
            again = model.invoke(PROMPT)
            answer = ToolMessage("none", tool_call_id=turn.tool_calls[0]["id"], name="get_news")
            model.invoke([*PROMPT, again, answer])
        reply = next(iter(store.answers.values()))
        assert reply.reasoning == "Headlines first."
        assert turn == again
        assert "Headlines first." not in str(turn.content)
        assert len(server.requests) == 2
        self.check_thought(server.bodies[1], script[0].body)

    def check_thought(self, body: Mapping[str, Any], answered: Mapping[str, Any]) -> None:
        """Check that the model's turn in a request is what it had answered."""
        raise NotImplementedError
