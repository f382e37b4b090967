"""Every provider that speaks OpenAI's protocol, each in its own wire form on loopback."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langchain_openai import ChatOpenAI

from tests.support import openai_wires as wires
from tests.support.openai_server import Act, OpenAIServer, Received
from tests.support.openai_wires import MiniMaxWire, OpenAIWire, OpenRouterWire
from tests.support.provider_contract import (
    PROMPT,
    RESPONSE_FORMAT,
    SECRET,
    STYLES,
    TOOL,
    ProviderContract,
    own_client,
)
from tests.support.reply_stores import MemoryReplies
from tradingagents_core.errors import ModelOutcome
from tradingagents_core.llm.capabilities import capability_of
from tradingagents_core.llm.capability_table import CAPABILITIES
from tradingagents_core.llm.keys import canonical_json
from tradingagents_core.llm.openai_chat import build_openai_chat
from tradingagents_core.llm.providers import PROVIDERS
from tradingagents_core.llm.replaying import ReplayingModel
from tradingagents_core.settings import ModelSpec

NAMED = {"type": "function", "function": {"name": "get_news"}}
MESSAGES = [
    {"role": "system", "content": "You rate stocks."},
    {"role": "user", "content": "Rate FB."},
]


class OnOpenAIsWire(ProviderContract):
    """What all of them share; a subclass says how its provider differs."""

    key_header = "authorization"
    wire: ClassVar[OpenAIWire]
    limit: ClassVar[str] = "max_tokens"
    # How a choice of tools is sent: named, none; None where it is left out.
    choices: ClassVar[tuple[Any, Any]] = (NAMED, "none")
    always: ClassVar[Mapping[str, Any]] = {}
    efforts: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    # Field in which a thought goes back; None where it does not.
    goes_back: ClassVar[str | None] = None
    cached: ClassVar[int | None] = 4

    def spec(self, server: OpenAIServer, **changes: Any) -> ModelSpec:
        return super().spec(server, **{"base_url": server.url, **changes})

    def library(self, server: OpenAIServer) -> Any:
        options: dict[str, Any] = {"temperature": 0.0} if self.heats else {}
        return ChatOpenAI(
            model=self.wire.model,
            api_key=SECRET,
            http_client=own_client(),
            base_url=server.url,
            use_responses_api=False,
            # The library has one name for the limit of a reply, its provider's.
            extra_body={self.limit: 50, **self.always},
            **options,
        )

    def sent(self, received: Received) -> Mapping[str, Any]:
        # The library says that it wants no stream; we never ask for one.
        return {name: value for name, value in received.body.items() if name != "stream"}

    def close(self, library: Any) -> None:
        library.root_client.close()

    def body(self, **more: Any) -> dict[str, Any]:
        """Return what a request with temperature 0 and 50 tokens looks like."""
        warmth = {"temperature": 0.0} if self.heats else {}
        plain = {"model": self.wire.model, "messages": MESSAGES, self.limit: 50}
        return {**plain, **warmth, **self.always, **more}

    # ------------------------------------------------------------------------- what is sent

    @pytest.mark.parametrize("choice", [None])
    def test_what_is_sent_is_what_the_library_alone_would_send(self, choice: str | None) -> None:
        # The library alone is wrong for most: what the provider documents is written out here.
        with OpenAIServer(self.wire.text("ok")) as server:
            model = self.model_at(server, temperature=0.0, max_tokens=50)
            model.invoke(PROMPT)
            model.bind_tools([TOOL]).invoke(PROMPT)
            model.bind_tools([TOOL], tool_choice="get_news").invoke(PROMPT)
            model.invoke(PROMPT, response_format=RESPONSE_FORMAT)
        named, _ = self.choices
        chosen = {} if named is None else {"tool_choice": named}
        assert server.bodies == [
            self.body(),
            self.body(tools=[TOOL]),
            self.body(tools=[TOOL], **chosen),
            self.body(response_format=RESPONSE_FORMAT),
        ]
        assert {request.path for request in server.requests} == {"/v1/chat/completions"}

    def test_what_is_sent_is_what_is_keyed(self) -> None:
        store = MemoryReplies()
        with OpenAIServer(self.wire.text("ok")) as server:
            model = self.model_at(server, store=store, temperature=0.0, max_tokens=50)
            list(model.bind_tools([TOOL]).stream(PROMPT))
        keyed = json.loads(store.calls[0].request)["body"]
        extra = keyed.pop("extra_body", {})
        assert {**keyed, **extra, **self.unkeyed()} == server.bodies[0]

    def unkeyed(self) -> dict[str, Any]:
        """Return the fields that are sent and cannot change an answer."""
        return {}

    def test_each_word_for_the_effort_is_sent_as_the_provider_has_it(self) -> None:
        for word, fields in self.efforts.items():
            with OpenAIServer(self.wire.text("ok")) as server:
                self.model_at(server, temperature=0.0, max_tokens=50, reasoning_effort=word).invoke(
                    PROMPT
                )
            assert server.bodies == [self.body(**fields)]
        row = capability_of(ModelSpec(provider=self.provider, model=self.wire.model))
        assert set(row.efforts) == set(self.efforts)

    def check_refused_tools(self, body: Mapping[str, Any]) -> None:
        _, none = self.choices
        assert body.get("tool_choice") == none
        assert ("tools" in body) == (none is not None)

    # ------------------------------------------------------------------------- what is read

    def check_tool_answer(self, body: Mapping[str, Any], texts: list[str]) -> None:
        system, human, turn, *answers = body["messages"]
        assert [system, human] == MESSAGES
        ids = [call["id"] for call in turn["tool_calls"]]
        assert ids == [self.wire.call_id(number) for number in range(len(texts))]
        assert {call["function"]["name"] for call in turn["tool_calls"]} == {"get_news"}
        sent = [(one["role"], one["content"], one["tool_call_id"]) for one in answers]
        assert sent == [("tool", text, one) for text, one in zip(texts, ids, strict=True)]

    def check_thought(self, body: Mapping[str, Any], answered: Mapping[str, Any]) -> None:
        turn = body["messages"][2]
        said = answered["choices"][0]["message"]
        fields = {"reasoning_content", "reasoning_details", "reasoning"} & set(turn)
        assert fields == ({self.goes_back} if self.goes_back else set())
        if self.goes_back:
            assert turn[self.goes_back] == said[self.goes_back]

    def test_tokens_are_counted_as_they_are_billed(self) -> None:
        store = MemoryReplies()
        with OpenAIServer(self.wire.text("ok")) as server:
            self.model_at(server, store=store).invoke(PROMPT)
        (reply,) = store.answers.values()
        usage = reply.usage
        counted = (usage.input_tokens, usage.output_tokens, usage.cached_tokens)
        assert counted == (11, 7, self.cached)

    # ----------------------------------------- one for all: these providers share their class

    def test_an_answer_of_another_form_is_a_transport_outcome(self) -> None:
        for body in ("[]", "{}", '"x"', "null", '{"error": {"message": "x"}}'):
            canonical_json(self.ends_with(Act(body=body), lost=True).message)

    def test_an_error_of_any_form_is_an_outcome_that_can_be_written(self) -> None:
        for message in ("\ud83d", ["x"], {"a": None}, None):
            canonical_json(self.ends_with(self.wire.error(400, message)).message)

    @pytest.mark.parametrize("record", STYLES[:1], ids=["invoked"])
    def test_what_one_style_recorded_every_style_replays_without_a_call(
        self, record: Callable[[Any, Any], AIMessage]
    ) -> None:
        super().test_what_one_style_recorded_every_style_replays_without_a_call(record)


class TestOpenAI(OnOpenAIsWire):
    """At OpenAI's own endpoint, in the Responses API."""

    provider = "openai"
    wire = wires.ResponsesWire()
    heats = False
    stops = False

    def built(self, spec: ModelSpec, server: OpenAIServer, **options: Any) -> ReplayingModel:
        return build_openai_chat(
            spec, base_url=server.url, own_url=server.url, responses=True, **options
        )

    def model_at(
        self, server: OpenAIServer, *, store: MemoryReplies | None = None, **changes: Any
    ) -> ReplayingModel:
        model = self.built(self.spec(server, **changes), server, api_key=SECRET, transport="open")
        model.replies = store
        return model

    def replaying(self, server: OpenAIServer, store: MemoryReplies) -> ReplayingModel:
        model = self.built(self.spec(server), server, api_key="no-key", transport="refuse")
        model.replies = store
        return model

    def library(self, server: OpenAIServer) -> Any:
        return ChatOpenAI(
            model=self.wire.model,
            api_key=SECRET,
            http_client=own_client(),
            base_url=server.url,
            use_responses_api=True,
            max_tokens=50,
            store=False,
            include=["reasoning.encrypted_content"],
        )

    def body(self, **more: Any) -> dict[str, Any]:
        return {
            "model": self.wire.model,
            "input": [
                {"role": "system", "content": "You rate stocks.", "type": "message"},
                {"role": "user", "content": "Rate FB.", "type": "message"},
            ],
            "max_output_tokens": 50,
            "include": ["reasoning.encrypted_content"],
            "store": False,
            **more,
        }

    def unkeyed(self) -> dict[str, Any]:
        # The kind of a message is no part of its key: one release of the library adds it.
        return {"store": False, "input": self.body()["input"]}

    efforts: ClassVar = {
        word: {"reasoning": {"effort": word}}
        for word in ("none", "minimal", "low", "medium", "high", "xhigh", "max")
    }

    @pytest.mark.parametrize("choice", [None])
    def test_what_is_sent_is_what_the_library_alone_would_send(self, choice: str | None) -> None:
        with OpenAIServer(self.wire.text("ok")) as server:
            model = self.model_at(server, temperature=0.0, max_tokens=50)
            model.bind_tools([TOOL], tool_choice="get_news").invoke(PROMPT)
            model.invoke(PROMPT, response_format=RESPONSE_FORMAT)
        tool = {"type": "function", **TOOL["function"]}
        named = {"type": "function", "name": "get_news"}
        schema = RESPONSE_FORMAT["json_schema"]
        assert server.bodies == [
            self.body(tools=[tool], tool_choice=named),
            self.body(text={"format": {"type": "json_schema", **schema}}),
        ]
        assert {request.path for request in server.requests} == {"/v1/responses"}

    def check_tool_answer(self, body: Mapping[str, Any], texts: list[str]) -> None:
        items = body["input"][2:]
        ids = [self.wire.call_id(number) for number in range(len(texts))]
        assert [item["call_id"] for item in items] == ids * 2
        assert [item["output"] for item in items[len(texts) :]] == texts
        assert "previous_response_id" not in body

    def check_thought(self, body: Mapping[str, Any], answered: Mapping[str, Any]) -> None:
        thought, call, output = body["input"][2:]
        kept = dict(answered["output"][0])
        # Nothing is kept there, so the id names nothing.
        del kept["id"]
        assert thought == kept
        assert call["call_id"] == output["call_id"]

    def test_a_thought_stands_before_the_text_that_came_with_its_call(self) -> None:
        act = self.wire.thoughtful("Headlines first.", ("get_news", {"ticker": "FB"}))
        act.body["output"].insert(1, self.wire.spoken("I look."))
        with OpenAIServer(act, self.wire.text("done")) as server:
            model = self.model_at(server).bind_tools([TOOL])
            turn = model.invoke(PROMPT)
            answer = ToolMessage("none", tool_call_id=turn.tool_calls[0]["id"])
            model.invoke([*PROMPT, turn, answer])
        kinds = [item.get("type") for item in server.bodies[1]["input"][2:]]
        assert kinds == ["reasoning", "message", "function_call", "function_call_output"]

    def test_a_thought_without_its_content_is_not_sent_back(self) -> None:
        act = self.wire.thoughtful("Headlines first.", ("get_news", {"ticker": "FB"}))
        del act.body["output"][0]["encrypted_content"]
        with OpenAIServer(act, self.wire.text("done")) as server:
            model = self.model_at(server).bind_tools([TOOL])
            turn = model.invoke(PROMPT)
            model.invoke([*PROMPT, turn, ToolMessage("n", tool_call_id=turn.tool_calls[0]["id"])])
        kinds = [item.get("type") for item in server.bodies[1]["input"][2:]]
        assert kinds == ["function_call", "function_call_output"]

    def test_a_failure_in_an_answer_is_tried_again(self) -> None:
        failed = {"code": "server_error", "message": "The model failed."}
        act = self.wire.response()
        act.body.update(status="failed", error=failed)
        store = MemoryReplies()
        with OpenAIServer(act, self.wire.text("ok")) as server:
            assert self.model_at(server, store=store, max_retries=1).invoke(PROMPT).content == "ok"
        assert store.retries == [1]


class TestOpenAIElsewhere(OnOpenAIsWire):
    """Behind any other address, in Chat Completions."""

    provider = "openai"
    wire = OpenAIWire()
    thinks = False


class TestOpenAICompatible(OnOpenAIsWire):
    provider = "openai_compatible"
    wire = wires.PlainWire()
    thinks = False
    cached = None
    efforts: ClassVar = {
        word: {"reasoning_effort": word}
        for word in ("none", "minimal", "low", "medium", "high", "xhigh", "max")
    }


class TestOllama(OnOpenAIsWire):
    provider = "ollama"
    wire = wires.OllamaWire()
    cached = None
    efforts: ClassVar = {
        word: {"reasoning_effort": word} for word in ("none", "low", "medium", "high", "max")
    }


class TestXAI(OnOpenAIsWire):
    provider = "xai"
    wire = wires.XAIWire()
    limit = "max_completion_tokens"
    efforts: ClassVar = {
        word: {"reasoning_effort": word} for word in ("none", "low", "medium", "high")
    }

    def test_a_model_that_reasons_always_or_never_is_sent_no_effort(self) -> None:
        with OpenAIServer(self.wire.text("ok")) as server:
            self.model_at(server, model="grok-4.20", reasoning_effort="high").invoke(PROMPT)
        assert "reasoning_effort" not in server.bodies[0]


class TestDeepSeek(OnOpenAIsWire):
    provider = "deepseek"
    wire = wires.DeepSeekWire()
    choices = (None, None)
    heats = False
    goes_back = "reasoning_content"
    efforts: ClassVar = {
        "none": {"thinking": {"type": "disabled"}},
        **{word: {"reasoning_effort": word} for word in ("low", "high", "max")},
    }

    def test_the_name_without_thinking_takes_what_others_take(self) -> None:
        with OpenAIServer(self.wire.text("ok")) as server:
            model = self.model_at(server, model="deepseek-chat", temperature=0.0)
            model.bind_tools([TOOL], tool_choice="get_news").invoke(PROMPT)
        assert server.bodies[0]["temperature"] == 0.0
        assert server.bodies[0]["tool_choice"] == NAMED

    def test_thoughts_that_led_to_no_call_stay_behind(self) -> None:
        message = {"content": "Hold.", **self.wire.thought("Nothing new.")}
        with OpenAIServer(self.wire.answer(message, "stop"), self.wire.text("ok")) as server:
            model = self.model_at(server)
            turn = model.invoke(PROMPT)
            model.invoke([*PROMPT, turn, PROMPT[1]])
        assert turn.additional_kwargs["reasoning_content"] == "Nothing new."
        assert server.bodies[1]["messages"][2] == {"role": "assistant", "content": "Hold."}

    def test_an_empty_account_says_nothing_of_the_prompt(self) -> None:
        outcome = self.ends_with(self.wire.error(402, "Insufficient Balance"), max_retries=2)
        assert (outcome.kind, outcome.message) == (
            "transport",
            "the provider answered 402: Insufficient Balance",
        )


class TestQwen(OnOpenAIsWire):
    provider = "qwen"
    wire = wires.QwenWire()
    choices = (None, "none")
    efforts: ClassVar = {
        "none": {"enable_thinking": False},
        "high": {"enable_thinking": True},
    }

    def test_an_open_model_is_told_not_to_think(self) -> None:
        with OpenAIServer(self.wire.text("ok")) as server:
            self.model_at(server, model="qwen3-32b").invoke(PROMPT)
        assert server.bodies[0]["enable_thinking"] is False

    def test_a_prompt_that_the_filter_stopped_is_an_outcome_of_its_own(self) -> None:
        act = self.wire.error(400, "Input data may contain inappropriate content.")
        act.body["error"]["code"] = "data_inspection_failed"
        assert self.ends_with(act, max_retries=2).kind == "content_filter"


class TestQwenChina(TestQwen):
    provider = "qwen-cn"


class TestGLM(OnOpenAIsWire):
    provider = "glm"
    wire = wires.GLMWire()
    choices = (None, None)
    goes_back = "reasoning_content"
    efforts: ClassVar = {
        "none": {"thinking": {"type": "disabled"}},
        "high": {"thinking": {"type": "enabled"}},
    }

    def test_a_prompt_that_the_filter_stopped_is_an_outcome_of_its_own(self) -> None:
        act = self.wire.error(400, "unsafe or sensitive content")
        act.body["error"]["code"] = "1301"
        assert self.ends_with(act).kind == "content_filter"


class TestGLMChina(TestGLM):
    provider = "glm-cn"


class TestMiniMax(OnOpenAIsWire):
    provider = "minimax"
    wire = MiniMaxWire()
    limit = "max_completion_tokens"
    choices = (None, "none")
    always: ClassVar = {"reasoning_split": True}
    goes_back = "reasoning_details"
    cached = None
    efforts: ClassVar = {
        "none": {"thinking": {"type": "disabled"}},
        "high": {"thinking": {"type": "adaptive"}},
    }

    def test_a_rate_limit_in_an_answer_is_waited_out(self) -> None:
        store = MemoryReplies()
        script = (self.wire.refusing(1002, "rate limit exceeded"), self.wire.text("ok"))
        with OpenAIServer(*script) as server:
            assert self.model_at(server, store=store, max_retries=1).invoke(PROMPT).content == "ok"
        assert store.retries == [1]

    @pytest.mark.parametrize(
        ("code", "kind"),
        [(1004, "transport"), (1008, "transport"), (1026, "content_filter"), (2013, "rejected")],
    )
    def test_an_error_in_an_answer_ends_as_what_it_is(self, code: int, kind: str) -> None:
        outcome = self.ends_with(self.wire.refusing(code, "no"), max_retries=2)
        assert (outcome.kind, outcome.message) == (kind, f"the provider answered {code}: no")


class TestMiniMaxChina(TestMiniMax):
    provider = "minimax-cn"


class TestOpenRouter(OnOpenAIsWire):
    provider = "openrouter"
    wire = OpenRouterWire()
    goes_back = "reasoning_details"
    efforts: ClassVar = {
        word: {"reasoning": {"effort": word}}
        for word in ("none", "minimal", "low", "medium", "high", "xhigh")
    }

    def test_a_fault_behind_it_is_tried_again_whatever_the_status(self) -> None:
        store = MemoryReplies()
        script = (self.wire.failing(502, "upstream"), self.wire.text("ok"))
        with OpenAIServer(*script) as server:
            assert self.model_at(server, store=store, max_retries=1).invoke(PROMPT).content == "ok"
        assert store.retries == [1]

    def test_a_reply_that_broke_off_is_no_answer(self) -> None:
        outcome = self.ends_with(self.wire.breaking_off(429, "busy"), lost=True)
        assert (outcome.kind, outcome.message) == ("transport", "the provider answered 429: busy")

    def test_a_request_that_is_refused_in_an_answer_is_rejected(self) -> None:
        outcome = self.ends_with(self.wire.failing(400, "context too long"), max_retries=2)
        assert outcome.kind == "rejected"


class TestMistral(OnOpenAIsWire):
    provider = "mistral"
    wire = wires.MistralWire()
    cached = None
    efforts: ClassVar = {word: {"reasoning_effort": word} for word in ("none", "high")}


class TestKimi(OnOpenAIsWire):
    provider = "kimi"
    wire = wires.KimiWire()
    limit = "max_completion_tokens"
    choices = (None, "none")
    heats = False
    goes_back = "reasoning_content"
    efforts: ClassVar = {
        "none": {"thinking": {"type": "disabled"}},
        "high": {"thinking": {"type": "enabled"}},
    }


class TestGroq(OnOpenAIsWire):
    provider = "groq"
    wire = wires.GroqWire()
    limit = "max_completion_tokens"
    cached = None
    efforts: ClassVar = {word: {"reasoning_effort": word} for word in ("low", "medium", "high")}


class TestNvidia(OnOpenAIsWire):
    provider = "nvidia"
    wire = wires.NvidiaWire()
    cached = None


def contracts(parent: type[OnOpenAIsWire] = OnOpenAIsWire) -> set[str]:
    return {
        name for child in parent.__subclasses__() for name in ({child.provider} | contracts(child))
    }


def test_every_provider_of_this_protocol_has_a_contract() -> None:
    builders = {row.name: row.build for row in PROVIDERS.values()}
    ours = {name for name, build in builders.items() if build is builders["openai"]}
    assert contracts() == ours


def test_every_row_of_the_capability_table_is_of_a_provider_and_a_typed_way_it_can_take() -> None:
    for row in CAPABILITIES:
        assert row.provider in PROVIDERS
        assert row.prefix == row.prefix.lower()
        assert row.json_mode or row.structured_method != "json_mode"
    names = [(row.provider, row.prefix) for row in CAPABILITIES]
    assert len(set(names)) == len(names)


# ---------------------------------------------------------------------------------- patience


@pytest.mark.parametrize(
    ("headers", "waits"),
    [
        ({"retry_after": "0"}, True),
        ({"retry_after_ms": "1"}, True),
        ({"retry_after": "3600"}, False),
        ({"retry_after": "0", "x_should_retry": "false"}, False),
    ],
)
def test_a_rate_limit_is_waited_out_as_the_server_asks_within_the_budget(
    headers: dict[str, str], waits: bool
) -> None:
    contract = TestOpenAICompatible()
    store = MemoryReplies()
    script = (contract.wire.error(429, "slow down", **headers), contract.wire.text("ok"))
    with OpenAIServer(*script) as server:
        model = contract.model_at(server, store=store, max_retries=3, retry_budget_s=10.0)
        if waits:
            assert model.invoke(PROMPT).content == "ok"
        else:
            with pytest.raises(ModelOutcome, match="answered 429: slow down"):
                model.invoke(PROMPT)
    assert store.retries == [int(waits)]


def test_a_wait_that_is_too_long_is_told() -> None:
    contract = TestOpenAICompatible()
    act = contract.wire.error(429, "slow down", retry_after="3600")
    outcome = contract.ends_with(act, max_retries=3)
    assert outcome.message == ("the provider answered 429: slow down (it asks to wait 3600 s)")


def test_a_spent_quota_is_not_waited_for() -> None:
    contract = TestOpenAICompatible()
    act = contract.wire.error(429, "You exceeded your current quota", retry_after="0")
    act.body["error"]["code"] = "insufficient_quota"
    with OpenAIServer(act) as server, pytest.raises(ModelOutcome, match="exceeded your current"):
        contract.model_at(server, max_retries=3).invoke(PROMPT)
    assert len(server.requests) == 1


def test_a_server_that_only_keeps_the_line_open_is_given_up_in_time() -> None:
    contract = TestOpenAICompatible()
    outcome = contract.ends_with(Act(trickle_s=0.05), timeout_s=0.3, lost=True)
    assert outcome.message == "the provider did not answer in time"
