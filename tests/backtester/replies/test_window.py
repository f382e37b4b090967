"""One cell's window on recorded replies: what is served, called, kept, and written down."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

import pytest
from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage

from backtester.errors import DataError
from backtester.network import blocked_attempts, network_blocked
from backtester.records import OutcomeRecord
from backtester.replies.window import CellReplies, ReplyCache, outcome_hash, reply_hash
from backtester.spending.purse import Purse
from backtester.spending.tariff import Price, Tariff
from tests.support import openai_server as wire
from tests.support.answers import make_answer, make_call
from tests.support.openai_server import OpenAIServer
from tradingagents_core.errors import ModelOutcome, ReplayMiss
from tradingagents_core.llm.doubles import ReplayingScriptedModel
from tradingagents_core.llm.factory import create_model
from tradingagents_core.llm.replaying import CURRENT_REPLIES, ReplayingModel
from tradingagents_core.protocols import (
    CURRENT_SITE,
    Mode,
    Outcome,
    OutcomeKind,
    Reply,
    Site,
    Usage,
)
from tradingagents_core.settings import ModelSpec

LABEL = "FB|2018-06-29|0"
SECRET = "sk-TEST-SECRET-123"
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
PROMPT: list[BaseMessage] = [SystemMessage("Role: Trader"), HumanMessage("Rate FB.")]
TOOL = {
    "type": "function",
    "function": {
        "name": "get_news",
        "description": "Headlines.",
        "parameters": {"type": "object", "properties": {"ticker": {"type": "string"}}},
    },
}


@pytest.fixture
def cache(tmp_path: Path) -> ReplyCache:
    return ReplyCache.open(tmp_path / "cache")


@pytest.fixture(autouse=True)
def site() -> Iterator[None]:
    token = CURRENT_SITE.set(Site(cell=LABEL, node="Trader"))
    yield
    CURRENT_SITE.reset(token)


def replies_of(cache: ReplyCache | None, mode: Mode = "record", **changes: Any) -> CellReplies:
    fields: dict[str, Any] = {"mode": mode, "cell_label": LABEL, "clock": lambda: NOON, **changes}
    return CellReplies(cache, **fields)


def model_at(server: OpenAIServer, store: CellReplies | None = None, **changes: Any) -> Any:
    fields: dict[str, Any] = {
        "provider": "openai_compatible",
        "model": "small-1",
        "base_url": server.url,
        "max_retries": 0,
        "timeout_s": 10.0,
        **changes,
    }
    model = create_model(ModelSpec(**fields), api_key=SECRET)
    assert isinstance(model, ReplayingModel)
    model.replies = store
    return model


# ----------------------------------------------------------------------------------- live, replayed


def test_the_rulebook_is_recorded_and_replayed_like_any_other(cache: ReplyCache) -> None:
    model = create_model(ModelSpec(), api_key=None)
    model.replies = replies_of(cache)
    first = model.invoke(PROMPT)
    replaying = create_model(ModelSpec(), api_key=None, transport="refuse")
    replaying.replies = replies_of(cache, "replay")
    assert replaying.invoke(PROMPT) == first
    (call,) = model.replies.calls
    assert (call.cost_usd, call.hit) == (0.0, False)


def test_a_tool_conversation_replays_to_the_end_whatever_ids_the_provider_drew(
    tmp_path: Path,
) -> None:
    def talk(cache: ReplyCache, mode: Mode, server: OpenAIServer) -> str:
        model = model_at(server, replies_of(cache, mode)).bind_tools([TOOL])
        turn = model.invoke(PROMPT)
        call = turn.tool_calls[0]
        answer = {"role": "tool", "content": "none", "tool_call_id": call["id"]}
        return str(model.invoke([*PROMPT, turn, answer]).content)

    script = [wire.tools(("get_news", {"ticker": "FB"})), wire.text("done")]
    cache = ReplyCache.open(tmp_path / "cache")
    with OpenAIServer(*script) as server:
        assert talk(cache, "record", server) == "done"
        assert talk(cache, "replay", server) == "done"
        assert len(server.requests) == 2


def test_twenty_threads_with_one_question_leave_one_row_and_make_one_call(
    cache: ReplyCache,
) -> None:
    ready = threading.Barrier(20)
    with OpenAIServer(wire.text("Buy.", delay_s=0.1)) as server:
        model = model_at(server)

        def ask(_: int) -> str:
            token = CURRENT_REPLIES.set(replies_of(cache))
            try:
                ready.wait()
                return str(model.invoke(PROMPT).content)
            finally:
                CURRENT_REPLIES.reset(token)

        with ThreadPoolExecutor(20) as pool:
            assert list(pool.map(ask, range(20))) == ["Buy."] * 20
        assert len(server.requests) == 1
    assert len(cache) == 1


def test_a_rate_limit_and_a_cut_reply_leave_nothing_and_the_good_one_is_stored(
    cache: ReplyCache,
) -> None:
    script = [wire.rate_limited(), wire.cut("It was go"), wire.text("It was good.")]
    with OpenAIServer(*script) as server:
        store = replies_of(cache)
        model = model_at(server, store, max_retries=1)
        with pytest.raises(ModelOutcome, match="length"):
            model.invoke(PROMPT)
        assert len(cache) == 0
        assert model.invoke(PROMPT).content == "It was good."
    assert [record.reply.text for record in cache.records()] == ["It was good."]
    assert [outcome.kind for outcome in store.new_outcomes] == ["length"]


# ---------------------------------------------------------------------------------- a strict replay


def test_a_deleted_answer_is_a_named_miss_with_a_difference_and_no_connection(
    cache: ReplyCache,
) -> None:
    with OpenAIServer(wire.text("Buy.")) as server:
        model = model_at(server, replies_of(cache))
        model.invoke([SystemMessage("Role: Trader"), HumanMessage("The close is 194.31.")])
        model.invoke([SystemMessage("Role: Trader"), HumanMessage("The close is 194.32.")])
        (gone,) = [record for record in cache.records() if "194.32" in record.request]
        cache.discard(gone.key)
        connections, attempts = server.connections, len(blocked_attempts())
        replaying = model_at(server, replies_of(cache, "replay"))
        with network_blocked(), pytest.raises(ReplayMiss) as miss:
            replaying.invoke([SystemMessage("Role: Trader"), HumanMessage("The close is 194.32.")])
        assert (server.connections, len(server.requests)) == (connections, 2)
        assert len(blocked_attempts()) == attempts
    assert miss.value.key == gone.key
    assert (
        "no recording for node 'Trader' of ticker FB, session 2018-06-29, trial 0, call 0, "
        "attempt 0" in str(miss.value)
    )
    assert miss.value.error_class == "replay_miss"
    assert "-  The close is 194.31." in miss.value.diff
    assert "+  The close is 194.32." in miss.value.diff


def test_the_first_miss_is_kept_with_its_difference_and_is_one_line(cache: ReplyCache) -> None:
    cache.add(make_answer(call=make_call("The close is 194.31.")))
    store = replies_of(cache, "replay")
    assert store.miss is None
    for prompt in ("The close is 194.32.", "Something else."):
        with pytest.raises(ReplayMiss):
            store.look_up(make_call(prompt, node="Trader"))
    assert store.miss is not None
    assert store.miss.key == make_call("The close is 194.32.").key
    assert "-  The close is 194.31." in store.miss.diff
    assert "+  The close is 194.32." in store.miss.diff
    assert "\n" not in str(store.miss)


def test_a_miss_of_a_cell_with_a_strange_label_is_one_line(cache: ReplyCache) -> None:
    store = replies_of(cache, "replay", cell_label="FB\n|2018-06-29|0")
    with pytest.raises(ReplayMiss) as miss:
        store.look_up(make_call())
    assert "\n" not in str(miss.value)


def test_a_replay_without_a_cache_misses_and_makes_no_folder(tmp_path: Path) -> None:
    reader = ReplyCache.open(tmp_path / "nowhere", read_only=True)
    with pytest.raises(ReplayMiss, match="no request of this node is recorded"):
        replies_of(reader, "replay").look_up(make_call())
    assert not (tmp_path / "nowhere").exists()


def test_every_kind_of_outcome_is_served_and_an_unknown_one_is_named(cache: ReplyCache) -> None:
    for kind in get_args(OutcomeKind):
        store = replies_of(cache, "replay", outcomes=[outcome_row(kind=kind)])
        found = store.look_up(make_call())
        assert isinstance(found, Outcome)
        assert found.kind == kind
    store = replies_of(cache, "replay", outcomes=[outcome_row(kind="sulked")])
    with pytest.raises(DataError, match="unknown kind 'sulked'"):
        store.look_up(make_call())


@pytest.mark.parametrize("count", [2**70, float("nan")])
def test_an_answer_with_an_impossible_count_is_recorded_without_it(
    cache: ReplyCache, count: Any
) -> None:
    act = wire.text("Buy.", usage={"prompt_tokens": 3, "completion_tokens": count})
    act.body["model"] = "\ud83d"
    act.body["choices"][0]["message"]["tool_calls"] = [
        {"id": "\udc00", "function": {"name": "get_\ud83d", "arguments": "{}"}}
    ]
    with OpenAIServer(act) as server:
        model_at(server, replies_of(cache)).invoke(PROMPT)
    (record,) = cache.records()
    assert record.reply.usage == Usage(input_tokens=3, output_tokens=None)
    assert record.reply.tool_calls[0].name == "get_\ufffd"


def test_an_answer_of_another_request_under_the_key_is_damage(cache: ReplyCache) -> None:
    call = make_call()
    store = replies_of(cache, "replay")
    cache.add(make_answer(call=call))
    forged = type(call)(
        key=call.key,
        request=call.request.replace("FB", "GM"),
        provider=call.provider,
        endpoint=call.endpoint,
        model=call.model,
        site=call.site,
    )
    with pytest.raises(DataError, match="belongs to another request"):
        store.look_up(forged)


def outcome_row(**changes: Any) -> OutcomeRecord:
    call = make_call()
    fields: dict[str, Any] = {
        "node": "Trader",
        "index": 0,
        "attempt": 0,
        "key": call.key,
        "kind": "length",
        "message": "the reply was cut by the length limit (length)",
        "text": "It was go",
        "finish_reason": "length",
        "request": call.request,
        **changes,
    }
    return OutcomeRecord(**fields)


def test_a_replay_serves_the_outcomes_of_its_run_before_answers_of_others(
    cache: ReplyCache,
) -> None:
    cache.add(make_answer("An answer that another run got later."))
    store = replies_of(cache, "replay", outcomes=[outcome_row()])
    found = store.look_up(make_call())
    assert isinstance(found, Outcome)
    assert (found.kind, found.reply and found.reply.text) == ("length", "It was go")
    (call,) = store.calls
    assert (call.hit, call.cost_usd, call.finish_reason) == (True, 0.0, "outcome:length")
    assert call.reply_hash == outcome_hash("length", "It was go")
    assert store.new_outcomes == ()


@pytest.mark.parametrize(
    "elsewhere", [{"node": "Reflector"}, {"index": 1}, {"attempt": 1}, {"key": "0" * 64}]
)
def test_an_outcome_is_served_at_its_own_place_alone(
    cache: ReplyCache, elsewhere: dict[str, Any]
) -> None:
    store = replies_of(cache, "replay", outcomes=[outcome_row(**elsewhere)])
    with pytest.raises(ReplayMiss):
        store.look_up(make_call())


def test_recording_ignores_outcomes_and_asks_again(cache: ReplyCache) -> None:
    for mode in ("record", "refresh", "off"):
        store = replies_of(cache, mode, outcomes=[outcome_row()])
        assert store.look_up(make_call()) is None


def test_a_recorded_outcome_replays_to_the_same_row(cache: ReplyCache) -> None:
    script = [wire.cut("It was go")]
    with OpenAIServer(*script) as server:
        live = replies_of(cache)
        with pytest.raises(ModelOutcome) as first:
            model_at(server, live).invoke(PROMPT)
        replay = replies_of(cache, "replay", outcomes=live.new_outcomes)
        with pytest.raises(ModelOutcome) as second:
            model_at(server, replay).invoke(PROMPT)
        assert len(server.requests) == 1
    assert (first.value.kind, first.value.message, first.value.text) == (
        second.value.kind,
        second.value.message,
        second.value.text,
    )
    assert live.calls[0].reply_hash == replay.calls[0].reply_hash
    assert live.calls[0].finish_reason == replay.calls[0].finish_reason


# ------------------------------------------------------------------------------------------- modes


def test_off_always_calls_and_stores_nothing() -> None:
    model = ReplayingScriptedModel(script=["one", "two"], replies=replies_of(None, "off"))
    assert [model.invoke("hi").content, model.invoke("hi").content] == ["one", "two"]
    assert [call.hit for call in model.replies.calls] == [False, False]


def test_every_other_mode_needs_a_cache() -> None:
    with pytest.raises(ValueError, match="'replay' needs a cache"):
        replies_of(None, "replay")


def test_a_higher_generation_asks_again_and_keeps_what_there_was(cache: ReplyCache) -> None:
    def ask(generation: int, answer: str) -> str:
        token = CURRENT_SITE.set(Site(node="Trader", generation=generation))
        try:
            model = ReplayingScriptedModel(script=[answer], replies=replies_of(cache, "refresh"))
            return str(model.invoke("hi").content)
        finally:
            CURRENT_SITE.reset(token)

    assert ask(0, "old") == "old"
    assert ask(1, "new") == "new"
    assert ask(0, "never asked") == "old"
    assert ask(1, "never asked") == "new"


def test_text_cut_by_length_is_an_answer_where_the_run_takes_it_and_under_its_own_key(
    cache: ReplyCache,
) -> None:
    cut = Reply(text="It was go", finish_reason="length")
    taking = replies_of(cache, accept_truncated=True)
    assert ReplayingScriptedModel(script=[cut], replies=taking).invoke("hi").content == "It was go"
    with pytest.raises(ModelOutcome):
        ReplayingScriptedModel(script=[cut], replies=replies_of(cache)).invoke("hi")
    assert len(cache) == 1


# --------------------------------------------------------------------------------- rows and money


def test_calls_are_ordered_by_first_use_of_the_node_then_index_then_attempt(
    cache: ReplyCache,
) -> None:
    store = replies_of(cache, "off")
    places = [("B", 0, 0), ("A", 1, 0), ("B", 1, 1), ("B", 1, 0), ("A", 0, 0)]
    for node, index, attempt in places:
        call = make_call(node=node, index=index, attempt=attempt)
        store.record(call, Reply(text="x"), latency_s=0.0)
    assert [(call.node, call.index, call.attempt) for call in store.calls] == [
        ("B", 0, 0),
        ("B", 1, 0),
        ("B", 1, 1),
        ("A", 0, 0),
        ("A", 1, 0),
    ]


def test_a_paid_call_costs_its_tokens_and_a_hit_saves_them(cache: ReplyCache) -> None:
    # 100 tokens at 2 $ and 20 tokens at 10 $ a million: 0.0002 + 0.0002
    prices = {"openai_compatible:small-1": Price(input_per_million=2.0, output_per_million=10.0)}
    reply = make_answer().reply
    store = replies_of(cache, purse=Purse(tariff=Tariff(prices=prices)))
    store.record(make_call(), reply, latency_s=1.5)
    store.look_up(make_call())
    paid, hit = store.calls
    assert paid.cost_usd == pytest.approx(0.0004, abs=1e-15)
    assert (paid.saved_usd, paid.hit, paid.latency_s) == (0.0, False, 1.5)
    assert (hit.cost_usd, hit.hit, hit.latency_s) == (0.0, True, 0.0)
    assert hit.saved_usd == paid.cost_usd
    assert (hit.input_tokens, hit.output_tokens) == (100, 20)
    assert hit.reply_hash == paid.reply_hash == reply_hash(reply)


def test_an_unknown_price_or_usage_is_no_number_for_a_call_and_zero_for_a_hit(
    cache: ReplyCache,
) -> None:
    prices = {"openai_compatible:small-1": Price(input_per_million=2.0, output_per_million=10.0)}
    unpriced = replies_of(cache)
    unpriced.record(make_call(), make_answer().reply, latency_s=0.0)
    unpriced.look_up(make_call())
    assert [call.cost_usd for call in unpriced.calls] == [None, 0.0]
    assert [call.saved_usd for call in unpriced.calls] == [0.0, None]
    uncounted = replies_of(cache, "off", purse=Purse(tariff=Tariff(prices=prices)))
    uncounted.record(make_call(), Reply(text="x"), latency_s=0.0)
    assert uncounted.calls[0].cost_usd is None


def test_a_rejected_reply_was_paid_for_and_one_that_never_came_is_unknown(
    cache: ReplyCache,
) -> None:
    prices = {"openai_compatible:small-1": Price(input_per_million=2.0, output_per_million=10.0)}
    store = replies_of(cache, purse=Purse(tariff=Tariff(prices=prices)))
    cut = Reply(text="x", finish_reason="length", usage=Usage(input_tokens=100, output_tokens=20))
    store.record_outcome(
        make_call(), Outcome(kind="length", message="cut", reply=cut), latency_s=0.0
    )
    store.record_outcome(
        make_call(index=1), Outcome(kind="transport", message="gone"), latency_s=0.0
    )
    assert [call.cost_usd for call in store.calls] == [pytest.approx(0.0004, abs=1e-15), None]


def test_what_lost_the_race_uses_what_is_stored(cache: ReplyCache) -> None:
    cache.add(make_answer("first"))
    store = replies_of(cache)
    assert store.record(make_call(), Reply(text="second"), latency_s=0.0).text == "first"
    assert store.calls[0].reply_hash == reply_hash(make_answer("first").reply)


def test_the_record_says_what_was_asked_by_whom_and_when(cache: ReplyCache) -> None:
    with OpenAIServer(wire.text("Buy.")) as server:
        model_at(server, replies_of(cache)).invoke(PROMPT)
    (record,) = cache.records()
    assert (record.node, record.provider, record.model) == (
        "Trader",
        "openai_compatible",
        "small-1",
    )
    assert record.recorded_at == "2026-01-02T12:00:00+00:00"
    assert record.reply.model == "stub-1-2026"
    assert record.latency_s > 0


# ----------------------------------------------------------------------------------------- secrets


def test_the_key_is_in_no_file_of_the_cache_whatever_the_server_echoes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_COMPATIBLE_API_KEY", SECRET)
    cache = ReplyCache.open(tmp_path / "cache")
    store = replies_of(cache)
    script = [wire.error(401, f"bad key {SECRET}"), wire.text(f"hello {SECRET}")]
    with OpenAIServer(*script) as server:
        model = model_at(server, store)
        with pytest.raises(ModelOutcome):
            model.invoke(PROMPT)
        headers = {"X-Key": SECRET}
        model.bind(extra_headers=headers, extra_query={"key": SECRET}).invoke(PROMPT)
    assert server.requests[1].headers["x-key"] == SECRET
    cache.close()
    files = [path for path in sorted(tmp_path.rglob("*")) if path.is_file()]
    assert any(path.name == "cache.db" for path in files)
    for path, rows in itertools.product(files, [store.calls, store.new_outcomes]):
        assert SECRET.encode() not in path.read_bytes(), path
        assert SECRET not in repr(rows)
