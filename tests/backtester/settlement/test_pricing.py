"""What a share came to over splits and dividends, against figures by hand and exact fractions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backtester.records import ReturnRecord
from tests.support.returns import NEAR, WEEK, numbers_of, settled
from tests.support.snapshots import (
    closes,
    dividend,
    make_bar,
    make_snapshot,
    sessions_of,
    split,
)


def test_a_split_inside_the_window_is_undone() -> None:
    # Raw 500 and 130 with four for one between: 130*4/500 - 1.
    snapshot = make_snapshot(
        {"AAA": closes([("2024-03-04", 500), ("2024-03-05", 126), ("2024-03-06", 130)])},
        actions=[split("AAA", "2024-03-05", 4)],
    )
    row = settled(snapshot, "2024-03-04")

    assert row.raw_total == pytest.approx(0.04, abs=NEAR)
    assert row.raw_price == row.raw_total
    assert (row.split_factor, row.dividends) == (4.0, 0.0)
    assert (row.entry_price, row.exit_price) == (500.0, 130.0)


@pytest.mark.parametrize("dividend_on", ["2024-03-05", "2024-03-06"])
def test_a_dividend_after_a_split_is_paid_on_every_share_held(dividend_on: str) -> None:
    # 100, two for one, then 1.00 a share on two shares, exit 55: (55*2 + 1*2)/100 - 1. On the
    # day of the split itself the shares are split already.
    snapshot = make_snapshot(
        {"AAA": closes([("2024-03-04", 100), ("2024-03-05", 54), ("2024-03-06", 55)])},
        actions=[dividend("AAA", dividend_on, 1.0), split("AAA", "2024-03-05", 2)],
    )
    row = settled(snapshot, "2024-03-04")

    assert row.raw_total == pytest.approx(0.12, abs=NEAR)
    assert row.raw_price == pytest.approx(0.10, abs=NEAR)
    assert (row.split_factor, row.dividends) == (2.0, 2.0)


def test_a_dividend_before_a_split_is_paid_on_the_share_bought() -> None:
    snapshot = make_snapshot(
        {"AAA": closes([("2024-03-04", 100), ("2024-03-05", 99), ("2024-03-06", 55)])},
        actions=[dividend("AAA", "2024-03-05", 1.0), split("AAA", "2024-03-06", 2)],
    )

    # (55*2 + 1*1)/100 - 1
    assert settled(snapshot, "2024-03-04").raw_total == pytest.approx(0.11, abs=NEAR)


def test_actions_count_after_the_entry_session_and_up_to_the_exit_session() -> None:
    days = ["2024-03-04", "2024-03-05", "2024-03-06", "2024-03-07"]
    snapshot = make_snapshot(
        {"AAA": closes((d, 100.0) for d in days)},
        actions=[dividend("AAA", d, amount) for d, amount in zip(days, (1, 2, 4, 8), strict=True)],
    )

    held = {
        rule: settled(snapshot, "2024-03-04", entry_rule=rule).dividends
        for rule in ("close", "next_open", "next_close")
    }

    # Bought on 03-04: those of 03-05 and 03-06. Bought on 03-05, even at its open, which is
    # after the right has gone: that of 03-06 alone.
    assert held == {"close": 6.0, "next_open": 4.0, "next_close": 4.0}


def test_a_stock_dividend_counts_with_its_exact_ratio() -> None:
    # 10027455 for 10000000, as one class of a US share paid on 2015-04-27.
    snapshot = make_snapshot(
        {"GOOG": closes([("2015-04-24", 565.06), ("2015-04-27", 555.37)])},
        actions=[split("GOOG", "2015-04-27", 10_027_455, 10_000_000)],
    )
    row = settled(snapshot, "2015-04-24", ticker="GOOG", horizon=1)
    exact = Fraction("555.37") * Fraction(10_027_455, 10_000_000) / Fraction("565.06") - 1

    assert row.split_factor == 1.0027455
    assert row.raw_total == pytest.approx(float(exact), abs=NEAR)


@pytest.mark.parametrize(
    ("actions", "reason"),
    [
        (
            [split("AAA", "2024-03-05", 2), split("AAA", "2024-03-05", 3)],
            "AAA: the split of 2024-03-05 is there twice, and the two differ",
        ),
        (
            [split("AAA", "2024-03-05", 2, 0)],
            "AAA: the split of 2024-03-05 is 2 for 0, which is no ratio",
        ),
        (
            [dividend("AAA", "2024-03-05", 0.5, currency="GBP")],
            "AAA: the dividend of 2024-03-05 is in GBP, the bars are in USD",
        ),
        (
            [dividend("AAA", "2024-03-05", -0.5)],
            "AAA: the dividend of 2024-03-05 is -0.5, which is no amount",
        ),
    ],
)
def test_actions_that_cannot_be_true_make_a_conflict_and_no_number(
    actions: Sequence[Any], reason: str
) -> None:
    row = settled(make_snapshot({"AAA": WEEK}, actions=actions), "2024-03-04")

    assert (row.status, row.reason) == ("conflict", reason)
    assert (row.raw_total, row.exit_price, row.resolved_at) == (None, None, None)


def test_a_return_beyond_a_double_is_no_number() -> None:
    rows = closes([("2024-03-04", 1e-300), ("2024-03-05", 1.0), ("2024-03-06", 1e300)])
    row = settled(make_snapshot({"AAA": rows}), "2024-03-04")

    assert row.status == "conflict"
    assert all(math.isfinite(value) for value in numbers_of(row))


prices = st.floats(min_value=0.01, max_value=10_000.0)
ratios = st.sampled_from([(2, 1), (3, 2), (1, 10), (10_027_455, 10_000_000)])


@settings(max_examples=60)
@given(
    entry=prices,
    leave=prices,
    splits=st.lists(st.tuples(st.integers(1, 4), ratios), max_size=3, unique_by=lambda s: s[0]),
    paid=st.lists(
        st.tuples(st.integers(1, 4), st.floats(min_value=0.0, max_value=5.0)),
        max_size=3,
        unique_by=lambda d: d[0],
    ),
)
def test_the_return_is_that_of_exact_fractions(
    entry: float,
    leave: float,
    splits: list[tuple[int, tuple[int, int]]],
    paid: list[tuple[int, float]],
) -> None:
    days = sessions_of("AAA", "2024-03-04", 5)
    held, cash = Fraction(1), Fraction(0)
    for offset in range(1, 5):
        for on, (numerator, denominator) in splits:
            held *= Fraction(numerator, denominator) if on == offset else 1
        cash += sum(Fraction(amount) * held for on, amount in paid if on == offset)
    right = (Fraction(leave) * held + cash) / Fraction(entry) - 1

    snapshot = make_snapshot(
        {"AAA": closes([(days[0], entry), *((d, leave) for d in days[1:])])},
        actions=[
            *(split("AAA", days[on], *ratio) for on, ratio in splits),
            *(dividend("AAA", days[on], amount) for on, amount in paid),
        ],
    )
    row = settled(snapshot, days[0].isoformat(), horizon=4)

    assert row.raw_total == pytest.approx(float(right), rel=NEAR, abs=NEAR)


@settings(max_examples=60)
@given(
    opens=st.lists(prices, min_size=8, max_size=8),
    last=st.lists(prices, min_size=8, max_size=8),
    ratio=ratios,
    paid=st.floats(min_value=0.0, max_value=5.0),
    scale=st.floats(min_value=0.001, max_value=1_000.0),
    entry_rule=st.sampled_from(["close", "next_open", "next_close"]),
)
def test_another_unit_of_money_changes_no_return(
    opens: list[float],
    last: list[float],
    ratio: tuple[int, int],
    paid: float,
    scale: float,
    entry_rule: str,
) -> None:
    days = sessions_of("AAA", "2024-03-04", 8)

    def in_unit(unit: float) -> ReturnRecord:
        bars = [
            make_bar("AAA", d, c * unit, open=o * unit)
            for d, o, c in zip(days, opens, last, strict=True)
        ]
        snapshot = make_snapshot(
            {"AAA": bars, "SPY": closes((d, 500.0 + i) for i, d in enumerate(days))},
            actions=[split("AAA", days[2], *ratio), dividend("AAA", days[3], paid * unit)],
        )
        return settled(snapshot, days[0].isoformat(), entry_rule=entry_rule, horizon=5)

    one, other = in_unit(1.0), in_unit(scale)

    for name in ("raw_price", "raw_total", "alpha", "alpha_cc", "benchmark_return"):
        mine, theirs = getattr(one, name), getattr(other, name)
        assert theirs == pytest.approx(mine, rel=NEAR, abs=NEAR), name
    assert one.resolved_at == other.resolved_at
