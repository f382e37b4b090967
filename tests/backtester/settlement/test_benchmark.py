"""Which benchmark a return is held against, and what alpha is left."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import pytest

from backtester.records import ReturnRecord
from backtester.settlement.broker import benchmark_for
from backtester.snapshots.snapshot import Snapshot
from tests.support.returns import NEAR, WEEK, day, settled, utc
from tests.support.snapshots import (
    Bar,
    closes,
    dividend,
    make_bar,
    make_instrument,
    make_snapshot,
)

TOKYO = {
    "2024-03-18": 3500.0,
    "2024-03-19": 3605.0,
    "2024-03-21": 3710.0,
    "2024-03-22": 3745.0,
    "2024-03-25": 3710.0,
}
NEW_YORK = {
    "2024-03-18": 400.0,
    "2024-03-19": 402.0,
    "2024-03-20": 406.0,
    "2024-03-21": 407.0,
    "2024-03-22": 406.0,
    "2024-03-25": 404.0,
}


def two_calendars(
    tokyo: Mapping[str, float] = TOKYO, new_york: Mapping[str, float] = NEW_YORK
) -> Snapshot:
    return make_snapshot(
        {
            "7203.T": [make_bar("7203.T", d, c, currency="JPY") for d, c in tokyo.items()],
            "^GSPC": closes(new_york),
        },
        instruments=[make_instrument("7203.T", currency="JPY", exchange="Tokyo")],
    )


def tokyo_row(snapshot: Snapshot, **rule: Any) -> ReturnRecord:
    return settled(
        snapshot, "2024-03-18", ticker="7203.T", **{"horizon": 3, "benchmark": "^GSPC", **rule}
    )


def test_bars_of_two_calendars_are_paired_by_date() -> None:
    row = tokyo_row(two_calendars())

    assert row.exit_session == day("2024-03-22")
    assert row.raw_total == pytest.approx(0.07, abs=NEAR)
    assert row.benchmark_return == pytest.approx(0.015, abs=NEAR)  # 406/400 - 1
    assert row.alpha == pytest.approx(0.055, abs=NEAR)  # by position it would be 0.0525
    assert (row.benchmark_entry_date, row.benchmark_exit_date) == (
        day("2024-03-18"),
        day("2024-03-22"),
    )
    assert (row.benchmark, row.benchmark_source, row.benchmark_basis) == (
        "^GSPC",
        "explicit",
        "price",
    )
    assert (row.currency, row.benchmark_currency) == ("JPY", "USD")
    assert row.flags == ("currency_differs", "same_bar")


def test_a_return_is_known_when_the_last_bar_in_it_is_the_benchmarks_too() -> None:
    # Tokyo's bar is known at 06:00Z, New York's of the same date at 20:00Z.
    row = tokyo_row(two_calendars())

    assert row.resolved_at == utc("2024-03-22T20:00")


def test_that_a_benchmark_bar_is_missing_is_not_known_before_its_session_closed() -> None:
    # A world cut between the two closes must not settle what the whole one settles later.
    row = tokyo_row(two_calendars(new_york={k: v for k, v in NEW_YORK.items() if k < "2024-03-22"}))

    assert (row.status, row.alpha) == ("resolved", None)
    assert row.alpha_reason == "benchmark ^GSPC has no usable bar for session 2024-03-22"
    assert row.resolved_at == utc("2024-03-22T20:00")


def test_a_return_without_any_benchmark_is_known_at_its_own_exit() -> None:
    snapshot = two_calendars()
    absent = tokyo_row(snapshot, benchmark="^DJI")

    assert absent.alpha_reason == "benchmark ^DJI is not in snapshot memory on 2024-03-18"
    assert (absent.benchmark, absent.benchmark_basis, absent.alpha) == ("^DJI", None, None)
    assert absent.resolved_at == utc("2024-03-22T06:00")


def test_a_date_that_is_no_session_of_the_benchmark_takes_its_last_close_before() -> None:
    # New York is held on Tokyo's index, which was closed on 2024-03-20.
    snapshot = make_snapshot(
        {
            "AAA": closes({"2024-03-20": 50.0, "2024-03-21": 51.0, "2024-03-22": 52.0}),
            "^N225": closes(
                {"2024-03-19": 40_000.0, "2024-03-21": 40_800.0, "2024-03-22": 41_000.0}
            ),
        }
    )
    row = settled(snapshot, "2024-03-20", benchmark="^N225")

    assert row.benchmark_entry_date == day("2024-03-19")
    assert row.benchmark_return == pytest.approx(0.025, abs=NEAR)  # 41000/40000 - 1
    assert row.alpha == pytest.approx(0.04 - 0.025, abs=NEAR)


def test_a_holiday_of_the_benchmark_at_the_entry_takes_a_close_even_for_a_fill_at_the_open() -> (
    None
):
    snapshot = make_snapshot(
        {
            "AAA": closes({"2024-03-19": 50.0, "2024-03-20": 50.0, "2024-03-21": 51.0}),
            "^N225": [
                ("2024-03-19", 39_000, 40_000, 39_000, 40_000, 1),
                ("2024-03-21", 40_500, 40_800, 40_500, 40_800, 1),
            ],
        }
    )
    row = settled(snapshot, "2024-03-19", entry_rule="next_open", benchmark="^N225")

    assert row.benchmark_return == pytest.approx(0.02, abs=NEAR)  # 40800/40000 - 1
    assert "index_open" not in row.flags


@pytest.mark.parametrize("lost", ["2024-03-18", "2024-03-22"])
def test_a_benchmark_session_without_a_bar_gives_no_alpha_and_no_other_bar(lost: str) -> None:
    row = tokyo_row(two_calendars(new_york={k: v for k, v in NEW_YORK.items() if k != lost}))

    assert row.status == "resolved"
    assert row.raw_total == pytest.approx(0.07, abs=NEAR)
    assert (row.alpha, row.benchmark_return, row.directional_alpha) == (None, None, None)
    assert row.alpha_reason == f"benchmark ^GSPC has no usable bar for session {lost}"


def test_a_benchmark_whose_bars_contradict_each_other_gives_no_alpha() -> None:
    rows = {**WEEK_BENCH}
    snapshot = make_snapshot(
        {"AAA": WEEK, "^GSPC": [*closes(rows), *closes([("2024-03-05", 5001.0)])]}
    )
    row = settled(snapshot, "2024-03-04", benchmark="^GSPC")

    assert (row.status, row.alpha) == ("resolved", None)
    assert row.alpha_reason == "bars of benchmark ^GSPC contradict each other on 2024-03-05"


WEEK_BENCH = {"2024-03-04": 5000.0, "2024-03-05": 5050.0, "2024-03-06": 5100.0}


def test_the_benchmark_is_taken_at_the_point_of_the_fill_and_an_index_open_is_flagged() -> None:
    snapshot = make_snapshot(
        {
            "AAA": WEEK,
            "^GSPC": [
                ("2024-03-04", 4990, 5000, 4990, 5000, 1),
                ("2024-03-05", 5040, 5060, 5040, 5050, 1),
                ("2024-03-06", 5060, 5100, 5060, 5100, 1),
            ],
        }
    )
    row = settled(snapshot, "2024-03-04", entry_rule="next_open", benchmark="^GSPC")

    assert row.benchmark_return == pytest.approx(5100 / 5040 - 1, abs=NEAR)
    assert row.alpha == pytest.approx((108 / 109 - 1) - (5100 / 5040 - 1), abs=NEAR)
    # Both legs from the close of the decision session: 108/100 against 5100/5000.
    assert row.alpha_cc == pytest.approx(0.08 - 0.02, abs=NEAR)
    assert row.flags == ("index_open",)


def test_the_open_of_a_fund_is_a_price_like_any_other() -> None:
    snapshot = make_snapshot(
        {"AAA": WEEK, "SPY": closes(WEEK_BENCH)},
        instruments=[make_instrument("SPY", asset_type="fund")],
    )
    row = settled(snapshot, "2024-03-04", entry_rule="next_open")

    assert (row.benchmark, row.benchmark_source) == ("SPY", "suffix")
    assert row.flags == ()


def test_an_index_bought_at_its_open_is_flagged_without_any_benchmark() -> None:
    days = [("2024-03-04", 99, 101, 99, 100, 1), *WEEK[1:]]
    row = settled(
        make_snapshot({"^DJI": days}), "2024-03-04", ticker="^DJI", entry_rule="next_open"
    )

    assert (row.benchmark, row.flags) == (None, ("index_open",))


def test_a_delisting_haircut_is_in_both_alphas() -> None:
    snapshot = make_snapshot(
        {"AAA": WEEK[:2], "SPY": closes(WEEK_BENCH)},
        instruments=[make_instrument("AAA", last_session="2024-03-05")],
    )
    row = settled(snapshot, "2024-03-04", horizon=3, haircut=0.5)

    # 110 * 0.5 / 100 - 1 against 5050/5000 - 1
    assert row.alpha == pytest.approx(-0.45 - 0.01, abs=NEAR)
    assert row.alpha_cc == pytest.approx(-0.45 - 0.01, abs=NEAR)


def test_a_bar_that_was_published_late_keeps_its_return_waiting() -> None:
    late = utc("2024-03-08T12:00")
    own = make_bar("AAA", "2024-03-04", 100, open=98)
    index = make_bar("SPY", "2024-03-04", 5000)

    def known(first: Bar, benchmark: Bar) -> datetime | None:
        snapshot = make_snapshot(
            {"AAA": [first, *WEEK[1:]], "SPY": [benchmark, *closes(WEEK_BENCH)[1:]]}
        )
        return settled(snapshot, "2024-03-04", entry_rule="next_open").resolved_at

    assert known(own, index) == utc("2024-03-06T21:00")
    assert known(own, dataclasses.replace(index, known_at=late)) == late
    assert known(dataclasses.replace(own, known_at=late), index) == late


def test_close_to_close_alpha_is_none_where_the_decision_session_has_no_bar() -> None:
    snapshot = make_snapshot({"AAA": WEEK[1:], "SPY": closes(WEEK_BENCH)})
    row = settled(snapshot, "2024-03-04", entry_rule="next_open")

    assert row.alpha is not None
    assert row.alpha_cc is None


@pytest.mark.parametrize(("basis", "right"), [("price", 0.08 - 0.02), ("total", 0.10 - 0.03)])
def test_alpha_is_taken_on_the_basis_of_the_benchmark(basis: str, right: float) -> None:
    # The share pays 2.00 on 100, the fund 50 on 5000.
    snapshot = make_snapshot(
        {"AAA": WEEK, "SPY": closes(WEEK_BENCH)},
        actions=[dividend("AAA", "2024-03-05", 2.0), dividend("SPY", "2024-03-06", 50.0)],
        instruments=[make_instrument("SPY", asset_type="fund", basis=basis)],
    )
    row = settled(snapshot, "2024-03-04")

    assert row.raw_total == pytest.approx(0.10, abs=NEAR)
    assert row.raw_price == pytest.approx(0.08, abs=NEAR)
    assert row.benchmark_basis == basis
    assert row.alpha == pytest.approx(right, abs=NEAR)
    assert row.alpha_cc == pytest.approx(right, abs=NEAR)


@pytest.mark.parametrize("entry_rule", ["close", "next_open", "next_close"])
def test_an_asset_held_against_itself_has_an_alpha_of_exactly_zero(entry_rule: str) -> None:
    snapshot = make_snapshot(
        {"SPY": WEEK},
        actions=[dividend("SPY", "2024-03-06", 0.7)],
        instruments=[make_instrument("SPY", asset_type="fund", basis="total")],
    )
    row = settled(snapshot, "2024-03-04", ticker="SPY", entry_rule=entry_rule)

    assert row.status == "resolved"
    assert (row.alpha, row.alpha_cc, row.directional_alpha) == (0.0, 0.0, 0.0)
    assert row.benchmark_return == row.raw_total
    assert row.alpha_reason is None


def test_an_asset_that_is_its_own_benchmark_keeps_alpha_zero_when_it_stops_trading() -> None:
    snapshot = make_snapshot(
        {"SPY": WEEK[:2], "AAA": WEEK},
        instruments=[make_instrument("SPY", asset_type="fund", last_session="2024-03-05")],
    )
    row = settled(snapshot, "2024-03-04", ticker="SPY", horizon=4, haircut=0.25)

    assert (row.status, row.alpha, row.alpha_cc) == ("delisted", 0.0, 0.0)


def test_an_asset_is_found_to_be_its_benchmark_under_another_name() -> None:
    snapshot = make_snapshot(
        {"META": WEEK}, instruments=[make_instrument("META", symbol="FB", name="Facebook, Inc.")]
    )

    assert settled(snapshot, "2024-03-04", ticker="META", benchmark="FB").alpha == 0.0


@pytest.mark.parametrize(
    ("symbol", "benchmark"),
    [
        ("600519.SS", "000001.SS"),
        ("600519.SH", "000001.SS"),
        ("000001.SZ", "399001.SZ"),
        ("SAP.DE", "^GDAXI"),
        ("sap.de", "^GDAXI"),
        ("7203.T", "^N225"),
        ("0700.HK", "^HSI"),
        ("VOD.L", "^FTSE"),
        ("RY.TO", "^GSPTSE"),
        ("BHP.AX", "^AXJO"),
        ("INFY.NS", "^NSEI"),
        ("500325.BO", "^BSESN"),
        ("PETR4.SA", "^BVSP"),
        ("BTC-USD", "BTC-USD"),
        ("ETH-USD", "BTC-USD"),
        ("AAPL", "SPY"),
        ("BRK-B", "SPY"),
    ],
)
def test_each_market_has_its_own_index(symbol: str, benchmark: str) -> None:
    choice = benchmark_for(symbol, None)

    assert (choice.symbol, choice.source, choice.reason) == (benchmark, "suffix", None)


@pytest.mark.parametrize(
    "symbol", ["XYZ.QQ", "005930.KS", "BRK.B", "EURUSD=X", "GC=F", "^GSPC", "^NOPE", "ABC-QQQ"]
)
def test_an_unknown_market_has_no_benchmark_and_never_the_american_one(symbol: str) -> None:
    choice = benchmark_for(symbol, None)

    assert (choice.symbol, choice.source) == (None, "none")
    assert choice.reason == f"no default benchmark is known for the market of {symbol}: name one"


@pytest.mark.parametrize("symbol", ["AAPL", "SAP.DE", "XYZ.QQ", "BTC-USD"])
def test_an_explicit_benchmark_always_wins(symbol: str) -> None:
    choice = benchmark_for(symbol, "^GSPC")

    assert (choice.symbol, choice.source) == ("^GSPC", "explicit")


def test_a_market_without_an_index_gets_a_return_without_an_alpha_and_the_reason() -> None:
    days = {"2024-03-04": 100.0, "2024-03-05": 101.0, "2024-03-06": 103.0}
    snapshot = make_snapshot({"MC.PA": closes(days), "SPY": closes(days)})
    row = settled(snapshot, "2024-03-04", ticker="MC.PA")

    assert row.raw_total == pytest.approx(0.03, abs=NEAR)
    assert (row.benchmark, row.benchmark_source, row.alpha) == (None, "none", None)
    assert row.alpha_reason is not None
    assert "MC.PA" in row.alpha_reason
