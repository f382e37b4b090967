"""When a decision is filled and closed, and what its row says where it cannot be."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from backtester.config import RunConfig
from backtester.errors import DataError, UsageError
from backtester.records import CellKey
from backtester.settlement.broker import due_at
from backtester.snapshots.snapshot import Snapshot
from tests.support.returns import NEAR, WEEK, day, make_rule, numbers_of, settled, utc
from tests.support.snapshots import (
    closes,
    make_bar,
    make_instrument,
    make_snapshot,
    sessions_of,
)

# -------------------------------------------------------------------------------------- entry rules


@pytest.mark.parametrize(
    ("decision_time", "entry_rule", "entry_price", "entry_at", "right", "flags"),
    [
        # 108/109 - 1
        ("close", "next_open", 109.0, "2024-03-05T14:30", -0.009174311926605505, ()),
        # 108/110 - 1
        ("close", "next_close", 110.0, "2024-03-05T21:00", -0.018181818181818181, ()),
        # 108/100 - 1: the very close that the decision saw
        ("close", "close", 100.0, "2024-03-04T21:00", 0.08, ("same_bar",)),
        ("open", "close", 100.0, "2024-03-04T21:00", 0.08, ()),
        ("open", "next_open", 109.0, "2024-03-05T14:30", -0.009174311926605505, ()),
        # 108/98 - 1
        ("open", "open", 98.0, "2024-03-04T14:30", 0.10204081632653061, ("same_bar",)),
    ],
)
def test_each_entry_rule_fills_at_its_own_point_and_exits_at_the_same_close(
    decision_time: str,
    entry_rule: str,
    entry_price: float,
    entry_at: str,
    right: float,
    flags: tuple[str, ...],
) -> None:
    row = settled(
        make_snapshot({"AAA": WEEK}),
        "2024-03-04",
        decision_time=decision_time,
        entry_rule=entry_rule,
    )

    assert row.status == "resolved"
    assert row.entry_rule == entry_rule
    assert (row.entry_price, row.entry_at) == (entry_price, utc(entry_at))
    assert (row.exit_session, row.exit_price) == (day("2024-03-06"), 108.0)
    assert row.raw_total == pytest.approx(right, abs=NEAR)
    assert row.raw_price == row.raw_total
    assert row.flags == flags


def test_the_default_fill_comes_after_everything_that_the_decision_saw() -> None:
    config = RunConfig(tickers=("AAA",), start=day("2024-03-04"), end=day("2024-03-06"))
    row = settled(make_snapshot({"AAA": WEEK}), "2024-03-04", entry_rule=config.entry_rule)

    assert row.entry_rule == "next_open"
    assert row.entry_at is not None
    assert row.entry_at > utc("2024-03-04T21:00")
    assert "same_bar" not in row.flags


def test_a_next_open_at_the_instant_of_the_cutoff_is_flagged_same_bar() -> None:
    # Coins never stop: the open of Sunday is the close of Saturday, 00:00Z.
    days = [("2024-03-02", 100, 105, 99, 104, 9), ("2024-03-03", 104, 110, 103, 109.2, 9)]
    row = settled(
        make_snapshot({"BTC-USD": days}),
        "2024-03-02",
        ticker="BTC-USD",
        entry_rule="next_open",
        horizon=1,
    )

    assert row.entry_at == utc("2024-03-03T00:00")
    assert row.raw_total == pytest.approx(0.05, abs=NEAR)
    assert row.flags == ("same_bar",)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"entry_rule": "open"}, "open.*does not go with decision time 'close'"),
        ({"entry_rule": "next_close", "decision_time": "open"}, "close, next_open, open"),
        ({"entry_rule": "next_close", "horizon": 1}, "write 2 or more"),
        ({"horizon": 0}, "write 1 or more"),
        ({"haircut": 1.5}, "write 0 to 1"),
        ({"haircut": math.nan}, "write 0 to 1"),
        ({"benchmark": " "}, "benchmark is empty"),
        ({"decision_time": "noon"}, "does not go with"),
    ],
)
def test_a_rule_that_cannot_be_carried_out_is_refused(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        make_rule(**changes)


def test_a_decision_on_no_session_a_foreign_ticker_and_a_word_that_rates_nothing_are_errors() -> (
    None
):
    snapshot = make_snapshot({"AAA": WEEK})

    with pytest.raises(DataError, match="2024-03-03 is no session"):
        settled(snapshot, "2024-03-03")
    with pytest.raises(DataError, match="does not hold 'ZZZ'"):
        settled(snapshot, "2024-03-04", ticker="ZZZ")
    with pytest.raises(DataError, match=r"'Maybe' of AAA.* is no rating"):
        settled(snapshot, "2024-03-04", rating="Maybe")


# --------------------------------------------------------------------------- full windows, statuses


def twenty_one_sessions(until: str) -> Snapshot:
    """XNYS from 2024-12-02 on, closes 100, 101, ...; Christmas and New Year are closed."""
    days = [d for d in sessions_of("AAA", "2024-12-02", 24) if d <= day(until)]
    return make_snapshot({"AAA": closes((d, 100.0 + i) for i, d in enumerate(days))})


@pytest.mark.parametrize("until", ["2024-12-30", "2024-12-31"])
def test_a_window_that_the_snapshot_cuts_is_pending_and_has_no_number(until: str) -> None:
    row = settled(twenty_one_sessions(until), "2024-12-02", horizon=21)

    assert row.status == "pending"
    assert row.reason == "snapshot memory ends before the close of 2025-01-02"
    assert (row.entry_price, row.exit_session, row.exit_price) == (100.0, day("2025-01-02"), None)
    assert (row.raw_total, row.alpha, row.resolved_at) == (None, None, None)
    assert row.alpha_reason is not None


def test_a_window_resolves_at_the_close_of_its_last_session_by_the_calendar() -> None:
    snapshot = twenty_one_sessions("2025-01-06")
    row = settled(snapshot, "2024-12-02", horizon=21)

    # 21 sessions after 2024-12-02 with both holidays left out; business days give 2024-12-31.
    assert (row.status, row.exit_session) == ("resolved", day("2025-01-02"))
    assert row.raw_total == pytest.approx(0.21, abs=NEAR)
    assert row.resolved_at == utc("2025-01-02T21:00")


def test_a_holiday_inside_the_window_puts_off_the_day_on_which_a_return_is_known() -> None:
    # Five sessions after Monday 2024-01-08, with the 15th closed, is the 16th.
    days = sessions_of("AAA", "2024-01-08", 8)
    snapshot = make_snapshot({"AAA": closes((d, 100.0) for d in days)})
    key = CellKey(session=day("2024-01-08"), ticker="AAA")

    assert due_at(key, snapshot, make_rule(horizon=5)) == utc("2024-01-16T21:00")


def test_a_half_day_is_known_at_its_early_close() -> None:
    days = sessions_of("AAA", "2024-11-27", 2)  # the 29th closes at 13:00 New York
    snapshot = make_snapshot({"AAA": closes((d, 100.0) for d in days)})
    key = CellKey(session=days[0], ticker="AAA")

    assert due_at(key, snapshot, make_rule(horizon=1)) == utc("2024-11-29T18:00")


def test_a_daily_grid_settles_no_window_before_it_is_over() -> None:
    days = sessions_of("AAA", "2024-03-04", 12)
    snapshot = make_snapshot({"AAA": closes((d, 100.0 + i) for i, d in enumerate(days))})
    rule = make_rule(horizon=5)

    for position, session in enumerate(days):
        at = due_at(CellKey(session=session, ticker="AAA"), snapshot, rule)
        full = position + 5 < len(days)
        assert (at is not None) == full
        if at is not None:
            assert at.date() == days[position + 5]


def test_a_session_that_had_not_closed_when_the_data_were_taken_is_pending() -> None:
    # Declared to 03-06, but nothing of any instrument is known at that day's close.
    snapshot = make_snapshot(
        {"AAA": WEEK[:2], "7203.T": closes({"2024-03-05": 3500.0, "2024-03-06": 3550.0})},
        end="2024-03-06",
    )

    assert settled(snapshot, "2024-03-04").status == "pending"


def test_a_session_without_a_bar_is_missing_where_the_data_go_on_without_it() -> None:
    snapshot = make_snapshot({"AAA": WEEK[:2], "BBB": WEEK}, end="2024-03-06")
    row = settled(snapshot, "2024-03-04")

    assert row.status == "missing_bar"
    assert row.reason == "AAA has no usable bar for session 2024-03-06"
    assert row.resolved_at is None


def gap_week() -> Snapshot:
    # 03-27 is not there although it was a session; 03-29 is Good Friday and no gap.
    return make_snapshot(
        {
            "AAA": closes(
                {
                    "2024-03-25": 100.0,
                    "2024-03-26": 101.0,
                    "2024-03-28": 103.0,
                    "2024-04-01": 104.0,
                    "2024-04-02": 105.0,
                }
            )
        }
    )


def test_a_missing_session_is_no_holiday_and_no_later_bar_takes_its_place() -> None:
    row = settled(gap_week(), "2024-03-25", horizon=2)

    assert (row.status, row.exit_session) == ("missing_bar", day("2024-03-27"))
    assert (row.exit_price, row.raw_total) == (None, None)
    assert row.reason is not None
    assert "2024-03-27" in row.reason


def test_a_holiday_is_no_session_and_leaves_no_gap() -> None:
    row = settled(gap_week(), "2024-03-28", horizon=1)

    assert (row.status, row.exit_session) == ("resolved", day("2024-04-01"))
    assert row.raw_total == pytest.approx(104 / 103 - 1, abs=NEAR)


def test_a_missing_session_between_entry_and_exit_does_no_harm() -> None:
    row = settled(gap_week(), "2024-03-25", horizon=3)

    assert (row.status, row.exit_session) == ("resolved", day("2024-03-28"))
    assert row.raw_total == pytest.approx(0.03, abs=NEAR)


def stray_bar(last_session: str | None = None) -> Snapshot:
    rows = [make_bar("AAA", "2018-02-28", 100), make_bar("AAA", "2018-03-01", 101)]
    return make_snapshot(
        {"AAA": [*rows, make_bar("AAA", "2018-12-28", 505, open=500)]},
        instruments=[make_instrument("AAA", last_session=last_session)],
    )


def test_a_far_later_bar_fills_no_order() -> None:
    row = settled(stray_bar(), "2018-03-01", entry_rule="next_open", horizon=5)

    assert (row.status, row.entry_session) == ("missing_bar", day("2018-03-02"))
    assert row.reason == "AAA has no usable bar for session 2018-03-02"
    assert numbers_of(row) == []


def test_an_instrument_that_was_gone_before_the_fill_was_never_entered() -> None:
    row = settled(stray_bar("2018-03-01"), "2018-03-01", entry_rule="next_open", horizon=5)

    assert row.status == "delisted"
    assert row.reason == "stopped trading on 2018-03-01, before its entry on 2018-03-02"
    assert (row.entry_session, row.entry_at, row.exit_session) == (None, None, None)
    assert numbers_of(row) == []
    # Five sessions after 2018-03-01: the lack of a fill is no news before its window is over.
    assert row.resolved_at == utc("2018-03-08T21:00")


def test_a_holding_that_stops_trading_is_out_at_its_last_close_and_waits_for_its_window() -> None:
    row = settled(stray_bar("2018-03-01"), "2018-02-28", horizon=5)

    assert (row.status, row.exit_session, row.exit_price) == ("delisted", day("2018-03-01"), 101.0)
    assert row.raw_total == pytest.approx(0.01, abs=NEAR)
    assert row.resolved_at == utc("2018-03-07T21:00")
    assert row.flags == ("same_bar",)


def test_a_fill_on_the_very_last_session_is_a_holding_for_a_day() -> None:
    snapshot = make_snapshot(
        {"AAA": WEEK[:2], "BBB": WEEK},
        instruments=[make_instrument("AAA", last_session="2024-03-05")],
    )
    row = settled(snapshot, "2024-03-04", entry_rule="next_open")

    assert (row.status, row.exit_session) == ("delisted", day("2024-03-05"))
    assert row.raw_total == pytest.approx(110 / 109 - 1, abs=NEAR)


def test_a_missing_fill_before_a_delisting_is_a_missing_bar_with_the_planned_exit() -> None:
    snapshot = make_snapshot(
        {"AAA": [WEEK[0], WEEK[2]]}, instruments=[make_instrument("AAA", last_session="2024-03-06")]
    )
    row = settled(snapshot, "2024-03-04", entry_rule="next_open", horizon=4)

    assert (row.status, row.exit_session) == ("missing_bar", day("2024-03-08"))


def test_a_delisting_haircut_comes_off_the_last_close_and_is_flagged() -> None:
    row = settled(stray_bar("2018-03-01"), "2018-02-28", horizon=5, haircut=0.5)

    # 101 * 0.5 / 100 - 1
    assert row.raw_total == pytest.approx(-0.495, abs=NEAR)
    assert row.exit_price == 101.0
    assert row.flags == ("haircut", "same_bar")
    assert row.reason is not None
    assert "haircut 0.5" in row.reason


def test_an_instrument_halted_before_its_last_session_is_out_at_the_last_bar_it_had() -> None:
    snapshot = make_snapshot(
        {
            "AAA": closes({"2018-02-28": 100.0, "2018-03-01": 90.0}),
            "BBB": closes([("2018-03-15", 1)]),
        },
        instruments=[make_instrument("AAA", last_session="2018-03-06")],
    )
    row = settled(snapshot, "2018-02-28", horizon=10)

    assert (row.status, row.exit_session) == ("delisted", day("2018-03-01"))
    assert row.raw_total == pytest.approx(-0.1, abs=NEAR)


def test_a_last_session_that_lies_after_the_window_changes_nothing() -> None:
    snapshot = make_snapshot(
        {"AAA": WEEK}, instruments=[make_instrument("AAA", last_session="2024-03-06")]
    )

    assert settled(snapshot, "2024-03-04", haircut=0.9).status == "resolved"


def test_a_last_session_that_the_data_do_not_reach_is_pending() -> None:
    snapshot = make_snapshot(
        {"AAA": WEEK[:2]}, instruments=[make_instrument("AAA", last_session="2024-03-06")]
    )

    assert settled(snapshot, "2024-03-04", horizon=9).status == "pending"


def test_equal_duplicates_of_a_bar_count_once_and_equal_days_stay() -> None:
    rows = closes([("2024-03-04", 100), ("2024-03-05", 101), ("2024-03-05", 101)])
    snapshot = make_snapshot({"AAA": [*rows, *closes([("2024-03-06", 103), ("2024-03-07", 103)])]})

    assert settled(snapshot, "2024-03-04").raw_total == pytest.approx(0.03, abs=NEAR)
    assert settled(snapshot, "2024-03-06", horizon=1).raw_total == 0.0


@pytest.mark.parametrize("session", ["2024-03-04", "2024-03-05", "2024-03-06"])
def test_bars_that_contradict_each_other_anywhere_in_the_window_are_a_conflict(
    session: str,
) -> None:
    rows = closes([("2024-03-04", 100), ("2024-03-05", 101), ("2024-03-06", 103)])
    row = settled(make_snapshot({"AAA": [*rows, *closes([(session, 101.5)])]}), "2024-03-04")

    assert row.status == "conflict"
    assert row.reason == f"bars of {session} contradict each other"
    assert (row.raw_total, row.alpha, row.resolved_at) == (None, None, None)


def test_a_conflict_outside_the_window_does_no_harm() -> None:
    rows = closes([("2024-03-04", 100), ("2024-03-05", 101), ("2024-03-06", 103)])
    snapshot = make_snapshot({"AAA": [*rows, *closes([("2024-03-04", 99)])]})

    row = settled(snapshot, "2024-03-04", entry_rule="next_open")

    assert row.status == "resolved"
    assert row.raw_total == pytest.approx(103 / 101 - 1, abs=NEAR)


def test_a_price_that_is_none_is_a_missing_bar_and_never_a_number() -> None:
    rows = closes(
        [("2024-03-04", 100), ("2024-03-05", 101), ("2024-03-06", 0.0), ("2024-03-07", 1)]
    )

    assert settled(make_snapshot({"AAA": rows}), "2024-03-04").status == "missing_bar"


def test_a_bar_of_unknown_date_of_publication_is_a_missing_bar() -> None:
    undated = dataclasses.replace(make_bar("AAA", "2024-03-06", 108), known_at=None)
    snapshot = make_snapshot(
        {"AAA": [*WEEK[:2], undated, make_bar("AAA", "2024-03-07", 1)]}, undated=True
    )

    assert settled(snapshot, "2024-03-04").status == "missing_bar"


def test_an_exit_beyond_the_calendar_is_pending() -> None:
    days = sessions_of("600519.SS", "2026-12-28", 4)
    snapshot = make_snapshot({"600519.SS": closes((d, 10.0) for d in days)})
    row = settled(snapshot, days[-1].isoformat(), ticker="600519.SS", horizon=1000)

    assert (row.status, row.exit_session) == ("pending", None)


# --------------------------------------------------------------------------------------- directions


@pytest.mark.parametrize(
    ("rating", "direction", "directional"),
    [
        ("Buy", 1, -0.01),
        ("Overweight", 1, -0.01),
        ("Hold", 0, 0.0),
        ("Underweight", -1, 0.01),
        ("Sell", -1, 0.01),
        (None, None, None),
    ],
)
def test_a_rating_gives_alpha_its_direction_and_hold_is_no_position(
    rating: str | None, direction: int | None, directional: float | None
) -> None:
    snapshot = make_snapshot(
        {
            "AAA": closes({"2024-03-04": 100.0, "2024-03-05": 100.0, "2024-03-06": 102.0}),
            "SPY": closes({"2024-03-04": 100.0, "2024-03-05": 100.0, "2024-03-06": 103.0}),
        }
    )
    row = settled(snapshot, "2024-03-04", rating=rating)

    assert row.alpha == pytest.approx(-0.01, abs=NEAR)
    assert row.direction == direction
    assert row.directional_alpha == (
        None if directional is None else pytest.approx(directional, abs=NEAR)
    )
    if rating == "Hold":
        assert row.directional_alpha is not None
        assert row.directional_alpha.hex() == "0x0.0p+0"


def test_small_alphas_are_kept_whole() -> None:
    days = sessions_of("AAA", "2024-03-04", 5)
    # Day after day +4, +4, +4 and -6 ten-thousandths against a flat fund.
    steps = (1.0004, 1.0004, 1.0004, 0.9994)
    prices = [100.0]
    for step in steps:
        prices.append(prices[-1] * step)
    snapshot = make_snapshot(
        {
            "AAA": closes(zip(days, prices, strict=True)),
            "SPY": closes((d, 500.0) for d in days),
        }
    )

    alphas = [settled(snapshot, d.isoformat(), horizon=1).alpha for d in days[:4]]
    kept = [alpha for alpha in alphas if alpha is not None]

    assert kept == pytest.approx([0.0004, 0.0004, 0.0004, -0.0006], abs=NEAR)
    # Rounded to a tenth of a percent first, the mean would be -0.00025.
    assert sum(kept) / 4 == pytest.approx(0.00015, abs=NEAR)


def test_overlapping_windows_each_earn_their_own_five_sessions() -> None:
    days = sessions_of("AAA", "2024-03-04", 11)
    snapshot = make_snapshot({"AAA": closes((d, 1.01**k) for k, d in enumerate(days))})

    rows = [settled(snapshot, d.isoformat(), horizon=5) for d in days[:6]]

    # 1.01^5 - 1
    assert [row.raw_total for row in rows] == pytest.approx([0.0510100501] * 6, abs=NEAR)
    assert [row.exit_session for row in rows] == days[5:]
