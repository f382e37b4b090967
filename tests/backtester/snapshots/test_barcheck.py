"""What a capture is refused for, and what it tells its reader."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, date, datetime

import pytest

from backtester.errors import DataError
from backtester.snapshots.barcheck import check_capture
from backtester.snapshots.manifest import Finding
from tests.support.snapshots import (
    Action,
    Bar,
    BarTuple,
    Instrument,
    closes,
    dividend,
    make_bar,
    make_bars,
    make_instrument,
    make_tables,
    split,
)

CAPTURED = datetime(2024, 6, 1, tzinfo=UTC)


def check(
    bars: Iterable[BarTuple | Bar],
    *,
    start: str,
    end: str,
    actions: Iterable[Action] = (),
    instruments: Iterable[Instrument] = (),
    captured_at: datetime = CAPTURED,
) -> tuple[Finding, ...]:
    tables = make_tables({"AAA": bars}, actions=actions, instruments=instruments)
    return check_capture(
        tables,
        declared_start=date.fromisoformat(start),
        declared_end=date.fromisoformat(end),
        captured_at=captured_at,
    )


def said(findings: Iterable[Finding]) -> list[tuple[str, str | None]]:
    return [(f.kind, f.session.isoformat() if f.session else None) for f in findings]


def test_a_sound_capture_has_nothing_to_say() -> None:
    rows = closes([("2024-03-27", 100), ("2024-03-28", 101), ("2024-04-01", 102)])
    assert check(rows, start="2024-03-27", end="2024-04-01") == ()


def test_a_missing_session_is_a_gap_and_good_friday_is_none() -> None:
    rows = closes(
        [
            ("2024-03-25", 100),
            ("2024-03-26", 101),
            ("2024-03-28", 103),
            ("2024-04-01", 104),
            ("2024-04-02", 105),
        ]
    )
    found = check(rows, start="2024-03-25", end="2024-04-02")
    assert said(found) == [("gap", "2024-03-27")]


def test_sessions_at_the_edges_of_the_declared_range_are_gaps_too() -> None:
    found = check(
        closes([("2024-03-26", 100)]),
        start="2024-03-25",
        end="2024-03-27",
        instruments=[make_instrument("AAA")],
    )
    assert said(found) == [("gap", "2024-03-25"), ("gap", "2024-03-27")]


def test_sessions_before_the_first_and_after_the_last_one_are_no_gaps() -> None:
    traded = make_instrument("AAA", first_session="2024-03-26", last_session="2024-03-27")
    rows = closes([("2024-03-26", 100), ("2024-03-27", 101)])
    assert check(rows, start="2024-03-01", end="2024-04-30", instruments=[traded]) == ()


def test_an_instrument_without_any_bar_is_said_once() -> None:
    found = check((), start="2024-03-25", end="2024-03-28")
    assert said(found) == [("gap", None)]


def test_equal_copies_of_a_bar_are_dropped_and_counted() -> None:
    rows = closes([("2024-03-25", 100), ("2024-03-26", 101), ("2024-03-26", 101)])
    found = check(rows, start="2024-03-25", end="2024-03-26")
    assert said(found) == [("duplicate", "2024-03-26")]
    assert found[0].message == "1 equal copies of the bar were dropped"


def test_bars_of_one_session_that_differ_are_a_conflict_and_no_gap() -> None:
    rows = closes([("2024-03-25", 100), ("2024-03-26", 101), ("2024-03-26", 101.5)])
    found = check(rows, start="2024-03-25", end="2024-03-26")
    assert said(found) == [("conflict", "2024-03-26")]


def test_equal_prices_on_different_days_are_no_duplicates() -> None:
    rows = closes([("2024-03-25", 100), ("2024-03-26", 100), ("2024-03-27", 100)])
    assert check(rows, start="2024-03-25", end="2024-03-27") == ()


def test_a_bar_on_a_day_when_the_exchange_was_closed_is_flagged() -> None:
    good_friday = Bar(
        instrument="AAA",
        session=date(2024, 3, 29),
        known_at=datetime(2024, 3, 29, 20, tzinfo=UTC),
        open=100,
        high=100,
        low=100,
        close=100,
        volume=1,
        currency="USD",
    )
    rows = [make_bar("AAA", "2024-03-28", 100), good_friday]
    found = check(rows, start="2024-03-28", end="2024-03-29")
    assert said(found) == [("extra_session", "2024-03-29")]


def test_no_volume_is_flagged_by_session_and_is_no_halt() -> None:
    rows = [make_bar("AAA", "2024-03-27", 100), make_bar("AAA", "2024-03-28", 101, volume=0)]
    found = check(rows, start="2024-03-27", end="2024-03-28")
    assert said(found) == [("zero_volume", "2024-03-28")]


def test_an_instrument_without_volumes_is_said_once() -> None:
    rows = [make_bar("AAA", f"2024-03-2{day}", 100, volume=0) for day in (5, 6, 7)]
    found = check(rows, start="2024-03-25", end="2024-03-27")
    assert said(found) == [("zero_volume", None)]


@pytest.mark.parametrize(("first", "second"), [(12.5, 1250.0), (1250.0, 12.5)])
def test_a_jump_from_pounds_to_pence_is_flagged(first: float, second: float) -> None:
    rows = closes([("2024-03-27", first), ("2024-03-28", second)])
    found = check(rows, start="2024-03-27", end="2024-03-28")
    assert said(found) == [("jump", "2024-03-28")]


def test_a_jump_that_a_split_explains_is_none() -> None:
    rows = closes([("2024-03-27", 2500.0), ("2024-03-28", 50.0)])
    actions = [split("AAA", "2024-03-28", 50)]
    assert check(rows, start="2024-03-27", end="2024-03-28", actions=actions) == ()


def test_a_split_without_its_jump_is_flagged() -> None:
    rows = closes([("2024-03-27", 2500.0), ("2024-03-28", 2500.0)])
    actions = [split("AAA", "2024-03-28", 50)]
    found = check(rows, start="2024-03-27", end="2024-03-28", actions=actions)
    assert said(found) == [("jump", "2024-03-28")]


@pytest.mark.parametrize("price", [0.0, -1.0])
def test_a_price_that_is_not_positive_is_refused(price: float) -> None:
    rows = [make_bar("AAA", "2024-03-27", 100, low=price)]
    with pytest.raises(DataError, match=r"bar of AAA on 2024-03-27: low is .* positive"):
        check(rows, start="2024-03-27", end="2024-03-27")


@pytest.mark.parametrize(
    ("high", "low"),
    [(100.5, 99.0), (102.0, 100.5), (99.0, 102.0)],
    ids=["high below the close", "low above the open", "low above high"],
)
def test_a_badly_ordered_bar_is_refused(high: float, low: float) -> None:
    rows = [make_bar("AAA", "2024-03-27", 101, open=100, high=high, low=low)]
    with pytest.raises(DataError, match="AAA on 2024-03-27 is badly ordered"):
        check(rows, start="2024-03-27", end="2024-03-27")


def test_a_negative_volume_is_refused() -> None:
    with pytest.raises(DataError, match="volume is negative"):
        check([make_bar("AAA", "2024-03-27", 100, volume=-1)], start="2024-03-27", end="2024-03-27")


def test_a_bar_of_a_session_that_had_not_closed_at_capture_is_refused() -> None:
    rows = closes([("2024-03-27", 100), ("2024-03-28", 101)])
    close = datetime(2024, 3, 28, 20, 0, tzinfo=UTC)
    assert check(rows, start="2024-03-27", end="2024-03-28", captured_at=close) == ()
    early = datetime(2024, 3, 28, 19, 59, tzinfo=UTC)
    with pytest.raises(DataError, match=r"AAA on 2024-03-28 was captured .* before its"):
        check(rows, start="2024-03-27", end="2024-03-28", captured_at=early)


def test_a_known_at_that_is_not_the_close_is_refused() -> None:
    bar = make_bar("AAA", "2024-03-28", 100)
    midnight = Bar(**{**vars(bar), "known_at": datetime(2024, 3, 28, tzinfo=UTC)})
    with pytest.raises(DataError, match="AAA on 2024-03-28 has known_at"):
        check([midnight], start="2024-03-28", end="2024-03-28")


def test_a_bar_outside_the_declared_range_is_refused() -> None:
    with pytest.raises(DataError, match="AAA on 2024-03-28 is outside"):
        check(closes([("2024-03-28", 100)]), start="2024-03-25", end="2024-03-27")


def test_a_bar_after_the_last_session_is_refused() -> None:
    gone = make_instrument("AAA", last_session="2024-03-27")
    with pytest.raises(DataError, match="AAA on 2024-03-28 is outside"):
        check(
            closes([("2024-03-28", 100)]), start="2024-03-25", end="2024-03-29", instruments=[gone]
        )


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("numerator", 0),
        ("denominator", None),
        ("amount", 1.0),
        ("kind", "spin-off"),
        ("kind", "dividend"),
    ],
)
def test_a_split_that_is_none_is_refused(field: str, value: object) -> None:
    wrong = Action(**{**vars(split("AAA", "2024-03-28", 4)), field: value})
    with pytest.raises(DataError, match="of AAA with ex session 2024-03-28 is wrong"):
        check(closes([("2024-03-28", 100)]), start="2024-03-28", end="2024-03-28", actions=[wrong])


@pytest.mark.parametrize("amount", [0.0, -0.5, None])
def test_a_dividend_that_is_none_is_refused(amount: float | None) -> None:
    wrong = Action(**{**vars(dividend("AAA", "2024-03-28", 1)), "amount": amount})
    with pytest.raises(DataError, match="a positive amount alone"):
        check(closes([("2024-03-28", 100)]), start="2024-03-28", end="2024-03-28", actions=[wrong])


def test_an_action_that_is_known_too_early_is_refused() -> None:
    early = Action(
        **{**vars(split("AAA", "2024-03-28", 4)), "known_at": datetime(2024, 3, 1, tzinfo=UTC)}
    )
    with pytest.raises(DataError, match="which is not its open"):
        check(closes([("2024-03-28", 100)]), start="2024-03-28", end="2024-03-28", actions=[early])


def test_rows_of_an_instrument_without_identity_are_refused() -> None:
    with pytest.raises(DataError, match="table actions holds BBB, unknown to instruments"):
        check(
            closes([("2024-03-28", 100)]),
            start="2024-03-28",
            end="2024-03-28",
            actions=[dividend("BBB", "2024-03-28", 1)],
        )


@pytest.mark.parametrize(("field", "value"), [("asset_type", "bond"), ("basis", "net")])
def test_a_word_that_the_schema_does_not_know_is_refused(field: str, value: str) -> None:
    wrong = Instrument(**{**vars(make_instrument("AAA")), field: value})
    with pytest.raises(DataError, match=f"instrument AAA: {field} '{value}'"):
        check(
            closes([("2024-03-28", 100)]), start="2024-03-28", end="2024-03-28", instruments=[wrong]
        )


@pytest.mark.parametrize("currency", ["Dollars", "usd", "US$", ""])
def test_what_is_no_currency_is_refused(currency: str) -> None:
    rows = make_bars("AAA", closes([("2024-03-28", 100)]), currency=currency)
    with pytest.raises(DataError, match=f"{re.escape(repr(currency))} is no currency"):
        check(
            rows,
            start="2024-03-28",
            end="2024-03-28",
            instruments=[make_instrument("AAA", currency=currency)],
        )


@pytest.mark.parametrize("currency", ["USD", "GBp", "ILA", "ZAc"])
def test_a_minor_unit_is_a_currency_as_quoted(currency: str) -> None:
    rows = make_bars("AAA", closes([("2024-03-28", 100)]), currency=currency)
    assert not check(
        rows,
        start="2024-03-28",
        end="2024-03-28",
        instruments=[make_instrument("AAA", currency=currency)],
    )


def test_ranges_of_one_instrument_that_contradict_each_other_are_refused() -> None:
    ranges = [
        make_instrument("AAA", valid_to="2024-01-01"),
        make_instrument("AAA", valid_from="2024-01-01", currency="EUR"),
    ]
    with pytest.raises(DataError, match="must be the same in all of its ranges"):
        check(
            closes([("2024-03-28", 100)]), start="2024-03-28", end="2024-03-28", instruments=ranges
        )


def test_a_reversed_range_and_a_capture_time_without_zone_are_refused() -> None:
    rows = closes([("2024-03-28", 100)])
    with pytest.raises(DataError, match="reversed"):
        check(rows, start="2024-03-28", end="2024-03-27")
    with pytest.raises(DataError, match="has no zone"):
        check(rows, start="2024-03-28", end="2024-03-28", captured_at=datetime(2024, 6, 1))  # noqa: DTZ001 - the naive time is the case
