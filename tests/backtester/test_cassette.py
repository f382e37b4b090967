"""A run's recording travels as one file that says when it is cut or changed."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
import zstandard

from backtester.cassette import (
    Cassette,
    cache_stats,
    pack,
    read_cassette,
    unpack,
    verify_cache,
    verify_cassette,
    write_cassette,
)
from backtester.errors import DataError, UsageError
from backtester.reply_cache import ReplyCache
from tests.support.answers import make_answer, make_call
from tradingagents_core.protocols import Reply, Usage

MANIFEST = '{"run_id":"demo-1","results_root":"abc"}'
JOURNAL = ('0123456789abcdef {"kind":"cell"}', 'fedcba9876543210 {"kind":"return"}')


@pytest.fixture
def cache(tmp_path: Path) -> ReplyCache:
    cache = ReplyCache.open(tmp_path / "cache")
    for prompt in ("one", "two", "three"):
        cache.add(make_answer(f"answer {prompt}", call=make_call(prompt)))
    return cache


def packed(cache: ReplyCache, path: Path) -> Path:
    pack(path, manifest=MANIFEST, journal=JOURNAL, keys=cache.keys(), cache=cache)
    return path


def lines_of(path: Path) -> list[str]:
    with path.open("rb") as file:
        data = zstandard.ZstdDecompressor().stream_reader(file).read()
    return data.decode().splitlines()


def rewrite(path: Path, lines: list[str]) -> None:
    data = "".join(f"{line}\n" for line in lines).encode()
    path.write_bytes(zstandard.ZstdCompressor().compress(data))


def test_a_cassette_holds_manifest_answers_and_journal_in_that_order(
    cache: ReplyCache, tmp_path: Path
) -> None:
    path = tmp_path / "cassettes" / "demo.jsonl.zst"
    keys = [*cache.keys()[:2], cache.keys()[0]]
    content = pack(path, manifest=MANIFEST, journal=JOURNAL, keys=keys, cache=cache)
    lines = lines_of(path)
    assert [json.loads(line)["kind"] for line in lines] == [
        "manifest",
        "answer",
        "answer",
        "journal",
        "journal",
        "end",
    ]
    before_the_end = "".join(f"{line}\n" for line in lines[:-1]).encode()
    assert content == hashlib.sha256(before_the_end).hexdigest()
    assert read_cassette(path) == Cassette(
        manifest=MANIFEST,
        answers=tuple(cache.get(key) for key in cache.keys()[:2]),
        journal=JOURNAL,
    )


def test_the_same_recording_packs_to_the_same_bytes(cache: ReplyCache, tmp_path: Path) -> None:
    first = packed(cache, tmp_path / "a.jsonl.zst")
    second = tmp_path / "b.jsonl.zst"
    pack(
        second,
        manifest=MANIFEST,
        journal=JOURNAL,
        keys=reversed(cache.keys()),
        cache=cache,
    )
    assert first.read_bytes() == second.read_bytes()


def test_unpacking_gives_the_same_records_and_leaves_what_is_there(
    cache: ReplyCache, tmp_path: Path
) -> None:
    cassette = read_cassette(packed(cache, tmp_path / "a.jsonl.zst"))
    fresh = ReplyCache.open(tmp_path / "fresh")
    fresh.add(make_answer("answer one", call=make_call("one"), latency_s=9.0))
    done = unpack(cassette, fresh)
    assert (done.added, done.present) == (2, 1)
    assert [record.reply for record in fresh.records()] == [
        record.reply for record in cache.records()
    ]
    assert unpack(cassette, fresh).present == 3


def test_another_reply_under_the_same_key_is_refused(cache: ReplyCache, tmp_path: Path) -> None:
    cassette = read_cassette(packed(cache, tmp_path / "a.jsonl.zst"))
    other = ReplyCache.open(tmp_path / "other")
    other.add(make_answer("something else", call=make_call("two")))
    with pytest.raises(DataError, match="another reply under"):
        unpack(cassette, other)


def test_an_answer_that_the_run_used_and_the_cache_lost_fails_the_pack(
    cache: ReplyCache, tmp_path: Path
) -> None:
    path = tmp_path / "a.jsonl.zst"
    with pytest.raises(DataError, match="has no answer 000"):
        pack(path, manifest=MANIFEST, journal=(), keys=["0" * 64], cache=cache)
    assert not path.exists()


def test_a_cassette_that_is_cut_changed_or_missing_says_so(
    cache: ReplyCache, tmp_path: Path
) -> None:
    path = packed(cache, tmp_path / "a.jsonl.zst")
    lines, whole = lines_of(path), path.read_bytes()
    rewrite(path, [*lines[:3], *lines[4:]])
    with pytest.raises(DataError, match="is cut short"):
        read_cassette(path)
    rewrite(path, lines[:-1])
    with pytest.raises(DataError, match="is cut short"):
        read_cassette(path)
    rewrite(path, [line.replace("demo-1", "demo-2") for line in lines])
    with pytest.raises(DataError, match="was changed"):
        read_cassette(path)
    rewrite(path, [line.replace("answer one", "answer two") for line in lines])
    with pytest.raises(DataError, match="is damaged: its reply was changed"):
        read_cassette(path)
    rewrite(path, [line.replace('"format":1', '"format":7', 1) for line in lines])
    with pytest.raises(DataError, match="format 7, this version reads 1"):
        read_cassette(path)
    rewrite(path, ["not json"])
    with pytest.raises(DataError, match="no JSON"):
        read_cassette(path)
    rewrite(path, [])
    with pytest.raises(DataError, match=r"cut short|empty"):
        read_cassette(path)
    path.write_bytes(whole[:-20])
    with pytest.raises(DataError):
        read_cassette(path)
    path.write_bytes(b"no zstd at all")
    with pytest.raises(DataError, match="cannot be read"):
        read_cassette(path)
    path.unlink()
    with pytest.raises(DataError, match="no cassette at"):
        read_cassette(path)


def test_a_cassette_is_verified_key_by_key(cache: ReplyCache, tmp_path: Path) -> None:
    path = packed(cache, tmp_path / "a.jsonl.zst")
    assert verify_cassette(path).problems == ()
    assert verify_cassette(path).records == 3
    forged = make_answer("x", key="0" * 64)
    write_cassette(path, Cassette(manifest=MANIFEST, answers=(forged,), journal=()))
    (problem,) = verify_cassette(path).problems
    assert str(problem).startswith(f"{'0' * 64}: its request leads to another key")


def test_a_folder_that_cannot_be_written_is_a_usage_error(
    cache: ReplyCache, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UsageError, match="cannot be written"):
        packed(cache, tmp_path / "file" / "a.jsonl.zst")


def test_a_whole_cache_verifies_and_an_unknown_folder_is_an_error(
    cache: ReplyCache, tmp_path: Path
) -> None:
    report = verify_cache(cache.folder)
    assert (report.records, report.problems) == (3, ())
    with pytest.raises(DataError, match="no reply cache at"):
        verify_cache(tmp_path / "nowhere")


def test_stats_count_by_node_and_leave_unreported_tokens_unknown(tmp_path: Path) -> None:
    cache = ReplyCache.open(tmp_path / "cache")
    cache.add(make_answer(call=make_call("one")))
    cache.add(make_answer(call=make_call("two")))
    unknown = Reply(text="x", usage=Usage(input_tokens=5))
    cache.add(make_answer(call=make_call("three", node="Bull Researcher"), reply=unknown))
    bull, trader = cache_stats(cache.folder)
    assert (bull.node, bull.records, bull.input_tokens, bull.output_tokens) == (
        "Bull Researcher",
        1,
        5,
        None,
    )
    assert (trader.records, trader.input_tokens, trader.output_tokens) == (2, 200, 40)
    assert trader.latency_s == pytest.approx(0.5)
