"""Recordings are counted, checked and copied as a whole, in a cache as in a cassette."""

from __future__ import annotations

from pathlib import Path

import pytest

from backtester.errors import DataError
from backtester.replies.cache import ReplyCache
from backtester.replies.cassette import write_cassette
from backtester.replies.recordings import Unpacked, answers_of, stats, unpack, verify_cache
from tests.support.answers import make_answer, make_call
from tests.support.cassettes import lines_of, sealed, write_lines
from tradingagents_core.protocols import Reply, Usage


@pytest.fixture
def cache(tmp_path: Path) -> ReplyCache:
    cache = ReplyCache.open(tmp_path / "cache")
    for prompt in ("one", "two", "three"):
        cache.add(make_answer(f"answer {prompt}", call=make_call(prompt)))
    return cache


@pytest.fixture
def packed(cache: ReplyCache, tmp_path: Path) -> Path:
    path = tmp_path / "a.jsonl.zst"
    write_cassette(path, manifest={}, answers=cache.records(), journal=())
    return path


def test_a_cache_and_its_cassette_are_counted_alike_by_node_and_model(tmp_path: Path) -> None:
    cache = ReplyCache.open(tmp_path / "cache")
    cache.add(make_answer(call=make_call("one"), recorded_at="2026-03-01T00:00:00+00:00"))
    cache.add(make_answer(call=make_call("two"), recorded_at="2026-01-01T00:00:00+00:00"))
    unknown = Reply(text="x", usage=Usage(input_tokens=5))
    cache.add(make_answer(call=make_call("three", node="Bull Researcher"), reply=unknown))
    path = tmp_path / "a.jsonl.zst"
    write_cassette(path, manifest={}, answers=cache.records(), journal=())

    bull, trader = rows = stats(answers_of(cache.folder))

    assert (bull.node, bull.records, bull.input_tokens, bull.output_tokens) == (
        "Bull Researcher",
        1,
        5,
        None,
    )
    assert (trader.records, trader.input_tokens, trader.output_tokens) == (2, 200, 40)
    assert (trader.oldest[:10], trader.newest[:10]) == ("2026-01-01", "2026-03-01")
    assert trader.latency_s == pytest.approx(0.5)
    assert stats(answers_of(path)) == rows
    assert stats(iter(())) == ()


def test_a_whole_cache_verifies_and_an_unknown_folder_is_an_error(
    cache: ReplyCache, tmp_path: Path
) -> None:
    report = verify_cache(cache.folder)
    assert (report.records, report.problems) == (3, ())
    with pytest.raises(DataError, match="no reply cache at"):
        verify_cache(tmp_path / "nowhere")
    with pytest.raises(DataError, match="no cassette at"):
        stats(answers_of(tmp_path / "nowhere.jsonl.zst"))


def test_unpacking_gives_the_same_records_and_leaves_what_is_there(
    cache: ReplyCache, packed: Path, tmp_path: Path
) -> None:
    fresh = ReplyCache.open(tmp_path / "fresh")
    first = make_answer("answer one", call=make_call("one"), latency_s=9.0)
    fresh.add(first)

    assert unpack(packed, fresh) == Unpacked(added=2, present=1)
    assert fresh.get(first.key) == first
    others = sorted({*cache.keys()} - {first.key})
    assert [fresh.get(key) for key in others] == [cache.get(key) for key in others]
    assert unpack(packed, fresh) == Unpacked(added=0, present=3)


def test_another_reply_under_the_same_key_is_refused_before_anything_is_stored(
    packed: Path, tmp_path: Path
) -> None:
    other = ReplyCache.open(tmp_path / "other")
    other.add(make_answer("something else", call=make_call("two")))
    with pytest.raises(DataError, match="another reply under"):
        unpack(packed, other)
    assert len(other) == 1


def test_a_cassette_that_is_damaged_at_its_end_stores_nothing(packed: Path, tmp_path: Path) -> None:
    write_lines(packed, [*lines_of(packed)[:-1]])
    fresh = ReplyCache.open(tmp_path / "fresh")
    with pytest.raises(DataError, match="cut short"):
        unpack(packed, fresh)
    write_lines(packed, sealed([*lines_of(packed), '{"kind":"x"}']))
    with pytest.raises(DataError, match="a kind that we do not write"):
        unpack(packed, fresh)
    assert len(fresh) == 0
