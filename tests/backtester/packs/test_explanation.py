"""A key is explained by its parts, by who asked it, and by the call that is most like it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from backtester.errors import DataError, UsageError
from backtester.packs.explanation import explain
from backtester.records import CellRecord, OutcomeRecord
from backtester.replies.cache import ReplyCache
from backtester.runs.journal import Journal
from tests.support.answers import make_answer, make_call
from tests.support.records import make_call as make_row
from tests.support.records import make_cell, make_key, make_lesson
from tradingagents_core.protocols import ModelCall

HELD = "The moon is full.\n" * 20


@pytest.fixture
def cache(tmp_path: Path) -> ReplyCache:
    cache = ReplyCache.open(tmp_path / "cache")
    cache.add(make_answer(call=make_call(f"{HELD}Rate FB.")))
    cache.add(make_answer(call=make_call(f"{HELD}Rate AAPL.")))
    cache.add(make_answer(call=make_call("Something else altogether.")))
    cache.add(make_answer(call=make_call(f"{HELD}Rate FB?", node="Bull Researcher")))
    return cache


def journal_of(path: Path, *records: CellRecord) -> dict[str, Path]:
    journal = Journal.open(path)
    journal.append(records)
    journal.close()
    return {"reports/one": path}


def row_of(call: ModelCall, **changes: object) -> object:
    site = call.site
    return make_row(node=site.node, index=site.index, attempt=site.attempt, key=call.key, **changes)


def test_the_parts_of_a_key_are_told_with_their_sizes_and_its_nearest_neighbour(
    cache: ReplyCache, tmp_path: Path
) -> None:
    call = make_call(f"{HELD}Rate FB.")
    journals = journal_of(tmp_path / "journal.jsonl", make_cell(calls=(row_of(call),)))

    found = explain(call.key[:9].upper(), cache, journals)
    lines = list(found.lines())

    assert found.key == call.key
    for line in (
        f"key         {call.key}",
        "node        Trader",
        'endpoint    "here"',
        "generation  0",
        "trial       0",
        "attempt     0",
        'body        model: "small-1"',
        "asked by    reports/one: AAA|2018-01-05|0, node Trader, call 0, attempt 0 (stop)",
    ):
        assert line in lines
    assert any(line.startswith("body        messages: 2 items, ") for line in lines)
    assert any(line.startswith("recorded    2026-01-02T03:04:05+00:00, 0.25 s;") for line in lines)
    # Of its own node the one that differs in a word, and not itself.
    assert found.nearest is not None
    assert found.nearest.key == make_call(f"{HELD}Rate AAPL.").key
    assert found.nearest.diff.split("\n")[-2:] == ["-  Rate AAPL.", "+  Rate FB."]


def test_an_attempt_without_an_answer_is_explained_from_its_journal(
    cache: ReplyCache, tmp_path: Path
) -> None:
    call = make_call(f"{HELD}Rate NVDA.")
    outcome = OutcomeRecord(
        node="Trader",
        index=0,
        attempt=0,
        key=call.key,
        kind="length",
        message="cut",
        text="The",
        finish_reason="length",
        request=call.request,
    )
    cell = make_cell(calls=(row_of(call, finish_reason="outcome:length"),), outcomes=(outcome,))

    found = explain(call.key, cache, journal_of(tmp_path / "journal.jsonl", cell))

    assert (found.record, found.node) == (None, "Trader")
    assert "recorded    no answer" in found.lines()
    assert found.nearest is not None
    assert "+  Rate NVDA." in found.nearest.diff
    assert "(outcome:length)" in str(found.uses[0])


def test_a_key_that_a_replay_missed_is_known_with_the_difference_that_it_found(
    cache: ReplyCache, tmp_path: Path
) -> None:
    key = "ab" * 32
    missed = make_cell(
        status="failed",
        error_class="replay_miss",
        error=f"no recording for node 'Trader' of ticker AAA (key {key}); no call was made",
        error_detail="--- nearest recorded\n+++ asked for\n-  one\n+  two",
        calls=(),
    )
    found = explain("abab", cache, journal_of(tmp_path / "journal.jsonl", missed))
    lines = list(found.lines())

    assert (found.key, found.record, found.request) == (key, None, "")
    assert "asked by    reports/one: AAA|2018-01-05|0 (missed)" in lines
    assert lines[-2:] == ["-  one", "+  two"]


def test_a_recorded_answer_that_was_deleted_is_known_from_the_run_that_used_it(
    cache: ReplyCache, tmp_path: Path
) -> None:
    call = make_call(f"{HELD}Rate FB.")
    lesson = make_lesson(make_key(), calls=(row_of(call),))
    cache.discard(call.key)
    path = tmp_path / "journal.jsonl"
    journal = Journal.open(path)
    journal.append([make_cell(calls=()), lesson])
    journal.close()

    found = explain(call.key, cache, {"reports/one": path})

    assert [str(use).partition(",")[0] for use in found.uses] == [
        "reports/one: AAA|2018-01-05|0 (lesson)"
    ]
    assert any(line.startswith("request     nobody kept it") for line in found.lines())


def test_what_is_no_key_unknown_or_ambiguous_says_so(cache: ReplyCache) -> None:
    with pytest.raises(UsageError, match="64 digits"):
        explain("../../etc", cache, {})
    with pytest.raises(UsageError, match="64 digits"):
        explain("", cache, {})
    with pytest.raises(DataError, match=f"no call with a key {'0' * 64} is known"):
        explain("0" * 64, cache, {})
    for number in range(20):
        cache.add(make_answer(call=make_call(f"{number}")))
    # Of more than sixteen keys, two begin alike.
    fronts = Counter(key[0] for key in tuple(cache.keys()))
    with pytest.raises(UsageError, match="is the front of"):
        explain(fronts.most_common(1)[0][0], cache, {})
