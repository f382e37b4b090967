"""The results root moves with every result and with nothing else."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from backtester.runs.journal import Ledger
from backtester.runs.root import part_roots, results_root
from tests.support.records import (
    make_call,
    make_cell,
    make_key,
    make_lesson,
    make_read,
    make_return,
)


def ledger(*records: Any) -> Ledger:
    held = Ledger()
    for record in records:
        held.add(record)
    return held


BASE = (make_cell(), make_return(), make_lesson())


@pytest.mark.parametrize(
    "changed",
    [
        make_cell(rating="Hold"),
        make_cell(status="unread"),
        make_cell(error_class="replay_miss"),
        make_cell(rating_source="repaired"),
        make_cell(typed="null"),
        make_cell(state_hashes=(("final_trade_decision", "t" * 64),)),
        make_cell(lessons_hash="m" * 64),
        make_cell(calls=(make_call(key="j" * 64),)),
        make_cell(calls=(make_call(reply_hash="q" * 64),)),
        make_cell(calls=(make_call(finish_reason="length"),)),
        make_cell(calls=(make_call(), make_call(attempt=1))),
        make_cell(reads=(make_read(rows=25),)),
        make_cell(reads=(make_read(), make_read(index=1))),
        make_return(raw_total=math.nextafter(0.03, 1)),
        make_return(alpha=None),
        make_return(flags=()),
        make_return(resolved_at=datetime(2018, 1, 12, 21, 1, tzinfo=UTC)),
        make_lesson(lesson="Another."),
        make_lesson(lesson_status="failed"),
        make_lesson(calls=()),
    ],
)
def test_a_changed_result_changes_the_root(changed: Any) -> None:
    assert results_root(ledger(*BASE, changed)) != results_root(ledger(*BASE))


@pytest.mark.parametrize(
    "changed",
    [
        make_cell(wall_s=9.0),
        make_cell(calls=(make_call(hit=True, latency_s=0.0, cost_usd=None, saved_usd=1.0),)),
        make_lesson(calls=(make_call(node="Reflector", hit=True, latency_s=7.0),)),
    ],
)
def test_what_may_differ_between_equal_runs_is_not_in_the_root(changed: Any) -> None:
    assert results_root(ledger(*BASE, changed)) == results_root(ledger(*BASE))


def test_the_order_of_records_and_calls_is_not_in_the_root() -> None:
    calls = (make_call(node="Trader"), make_call(node="Bull Researcher"))
    other = make_cell(make_key("BBB"), calls=calls)
    swapped = replace(other, calls=calls[::-1])

    assert results_root(ledger(*BASE, other)) == results_root(ledger(swapped, *BASE[::-1]))


def test_the_part_that_differs_can_be_named() -> None:
    before = part_roots(ledger(*BASE))
    after = part_roots(ledger(*BASE, make_return(raw_total=0.04)))

    assert {part for part in before if before[part] != after[part]} == {"return"}
    assert sorted(before) == ["call", "cell", "memory", "read", "return"]
