"""Rules of settlement that hold for every world: what lies ahead changes nothing."""

from __future__ import annotations

import math
from datetime import timedelta

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given
from hypothesis import strategies as st

from backtester.broker import due_at, settle
from backtester.records import CellKey
from tests.support.returns import day, make_rule, numbers_of
from tests.support.snapshots import (
    closes,
    make_bar,
    make_instrument,
    make_snapshot,
    sessions_of,
)

prices = st.floats(min_value=0.01, max_value=10_000.0)


@given(
    last=st.lists(prices, min_size=12, max_size=12),
    lost=st.sets(st.integers(min_value=0, max_value=11)),
    horizon=st.integers(min_value=2, max_value=8),
    entry_rule=st.sampled_from(["close", "next_open", "next_close"]),
    ends=st.none() | st.integers(min_value=0, max_value=11),
)
def test_no_later_bar_changes_a_record_and_it_is_due_when_it_says(
    last: list[float],
    lost: set[int],
    horizon: int,
    entry_rule: str,
    ends: int | None,
) -> None:
    days = sessions_of("AAA", "2024-03-04", 12)
    kept = [
        make_bar("AAA", d, c)
        for i, (d, c) in enumerate(zip(days, last, strict=True))
        if i not in lost
    ]
    snapshot = make_snapshot(
        {"AAA": kept, "SPY": closes((d, 500.0 + i) for i, d in enumerate(days))},
        instruments=[make_instrument("AAA", last_session=None if ends is None else days[ends])],
    )
    rule = make_rule(horizon=horizon, entry_rule=entry_rule)
    key = CellKey(session=days[0], ticker="AAA")
    row = settle(key, "Buy", snapshot=snapshot, rule=rule)
    bars = snapshot.table("bars")
    late = pc.greater(bars["session"], pa.scalar(days[horizon]))
    past, future = bars.filter(pc.invert(late)), bars.filter(late)
    poisoned = future
    for column in ("open", "high", "low", "close"):
        at = poisoned.schema.get_field_index(column)
        poisoned = poisoned.set_column(at, column, pc.multiply(future[column], 10.0))

    rewritten = snapshot.replace_tables(bars=pa.concat_tables([past, poisoned.cast(past.schema)]))

    assert settle(key, "Buy", snapshot=rewritten, rule=rule) == row
    assert due_at(key, snapshot, rule) == row.resolved_at
    if row.status in ("resolved", "delisted"):
        assert settle(key, "Buy", snapshot=snapshot.replace_tables(bars=past), rule=rule) == row
    assert all(math.isfinite(value) for value in numbers_of(row))
    assert (row.reason is None) == (row.status == "resolved")
    assert (row.alpha is None) == (row.alpha_reason is not None)


@given(
    cut=st.integers(min_value=0, max_value=11),
    lost=st.sets(st.integers(min_value=0, max_value=11), max_size=3),
    horizon=st.integers(min_value=1, max_value=6),
)
def test_a_world_that_ends_at_an_instant_settles_exactly_what_was_known_by_then(
    cut: int, lost: set[int], horizon: int
) -> None:
    # Tokyo against New York: the two closes of a date are 14 hours apart.
    first = day("2024-03-04")
    span = [first + timedelta(days=i) for i in range(14)]
    tokyo = [d for d in span if d.weekday() < 5]
    new_york = [d for i, d in enumerate(tokyo) if i not in lost]
    snapshot = make_snapshot(
        {
            "7203.T": [make_bar("7203.T", d, 3000.0 + i) for i, d in enumerate(tokyo)],
            "^GSPC": closes((d, 5000.0 + i) for i, d in enumerate(new_york)),
        }
    )
    bars = snapshot.table("bars")
    instants = sorted(set(bars["known_at"].to_pylist()))
    now = instants[min(cut, len(instants) - 1)]
    known = bars.filter(pc.less_equal(bars["known_at"], pa.scalar(now, bars["known_at"].type)))
    rule = make_rule(horizon=horizon, benchmark="^GSPC")

    for session in tokyo[:4]:
        key = CellKey(session=session, ticker="7203.T")
        whole = settle(key, "Buy", snapshot=snapshot, rule=rule)
        part = settle(key, "Buy", snapshot=snapshot.replace_tables(bars=known), rule=rule)
        if whole.resolved_at is not None and whole.resolved_at <= now:
            assert part == whole
        else:
            assert part.resolved_at is None or part.resolved_at > now
