"""Rules of settlement that hold for every world: what lies ahead changes nothing."""

from __future__ import annotations

import math

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given, settings
from hypothesis import strategies as st

from backtester.records import CellKey
from backtester.settlement.broker import due_at, settle
from tests.support.returns import make_rule, numbers_of
from tests.support.snapshots import (
    closes,
    make_bar,
    make_instrument,
    make_snapshot,
    sessions_of,
)

prices = st.floats(min_value=0.01, max_value=10_000.0)


@settings(max_examples=60)
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


@settings(max_examples=60)
@given(
    cut=st.integers(min_value=0, max_value=19),
    lost=st.sets(st.integers(min_value=0, max_value=9), max_size=3),
    index_lost=st.sets(st.integers(min_value=0, max_value=9), max_size=3),
    ends=st.none() | st.integers(min_value=0, max_value=9),
    horizon=st.integers(min_value=1, max_value=6),
)
def test_a_world_that_ends_at_an_instant_settles_exactly_what_was_known_by_then(
    cut: int, lost: set[int], index_lost: set[int], ends: int | None, horizon: int
) -> None:
    # Tokyo against New York: the two closes of a date are 14 hours apart.
    tokyo = sessions_of("7203.T", "2024-03-04", 10)
    bars = {
        "7203.T": [make_bar("7203.T", d, 3000.0 + i) for i, d in enumerate(tokyo) if i not in lost],
        "^GSPC": [
            make_bar("^GSPC", d, 5000.0 + i) for i, d in enumerate(tokyo) if i not in index_lost
        ],
    }
    last_session = None if ends is None else tokyo[ends]
    named = [make_instrument("7203.T", last_session=last_session)]
    stamps = [bar.known_at for rows in bars.values() for bar in rows if bar.known_at is not None]
    now = sorted(stamps)[min(cut, len(stamps) - 1)]
    by_now = {
        name: [bar for bar in rows if bar.known_at is not None and bar.known_at <= now]
        for name, rows in bars.items()
    }
    world = make_snapshot(bars, instruments=named, start=tokyo[0], end=tokyo[-1])
    cut_world = make_snapshot(by_now, instruments=named, start=tokyo[0], end=tokyo[-1])
    rule = make_rule(horizon=horizon, benchmark="^GSPC")

    for session in tokyo[:4]:
        key = CellKey(session=session, ticker="7203.T")
        whole = settle(key, "Buy", snapshot=world, rule=rule)
        part = settle(key, "Buy", snapshot=cut_world, rule=rule)
        if whole.resolved_at is not None and whole.resolved_at <= now:
            assert part == whole
        else:
            assert part.resolved_at is None or part.resolved_at > now
