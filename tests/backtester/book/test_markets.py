"""Books over several calendars and currencies: what comes first, and what a unit is worth."""

from __future__ import annotations

import pytest

from backtester.errors import DataError, UsageError
from tests.support.books import booked, equities, outcomes, shares_on, signals
from tests.support.returns import day, utc
from tests.support.snapshots import (
    closes,
    dividend,
    make_bar,
    make_bars,
    make_instrument,
    make_snapshot,
)

NEAR = 1e-9
TOKYO, LONDON = "7203.T", "VOD.L"


# --------------------------------------------------------------------------------------- calendars


def test_tokyo_fills_before_new_york_on_the_same_date() -> None:
    # One slot: who comes first has the cash. Tokyo's close is at 06:00Z, New York's at 21:00Z.
    snapshot = make_snapshot(
        {
            TOKYO: closes({"2024-03-04": 100.0, "2024-03-05": 100.0}),
            "AAA": closes({"2024-03-04": 50.0, "2024-03-05": 50.0}),
        }
    )

    book = booked(
        snapshot, signals({"AAA": {"2024-03-04": "Buy"}, TOKYO: {"2024-03-04": "Buy"}}), slots=1
    )

    assert [order.ticker for order in book.orders] == [TOKYO, "AAA"]
    assert [order.fill_at for order in book.orders] == [
        utc("2024-03-04T06:00"),
        utc("2024-03-04T21:00"),
    ]
    assert outcomes(book.orders)[1][2:] == ("rejected", "no_cash")


def test_each_session_of_any_calendar_has_a_row_marked_at_each_tickers_own_last_close() -> None:
    # 2024-02-19 is a holiday in New York, 2024-02-23 in Tokyo.
    snapshot = make_snapshot(
        {
            TOKYO: closes({"2024-02-16": 100.0, "2024-02-19": 110.0, "2024-02-20": 110.0}),
            "AAA": closes({"2024-02-16": 50.0, "2024-02-20": 60.0}),
        }
    )

    book = booked(snapshot, signals({"AAA": {"2024-02-16": "Buy"}, TOKYO: {"2024-02-16": "Buy"}}))

    # 5 shares of Tokyo's, 10 of New York's.
    assert equities(book) == {"2024-02-16": 1_000.0, "2024-02-19": 1_050.0, "2024-02-20": 1_150.0}
    assert [row.at for row in book.equity] == [
        utc("2024-02-16T21:00"),
        utc("2024-02-19T06:00"),
        utc("2024-02-20T21:00"),
    ]
    # A market that is closed makes nothing stale.
    assert not any(row.stale for row in book.positions)
    monday = {row.ticker: row.close for row in book.positions if row.session == day("2024-02-19")}
    assert monday == {TOKYO: 110.0, "AAA": 50.0}


def test_an_order_is_sized_with_the_prices_of_its_instant() -> None:
    # AAA and BBB open together: AAA's 10 shares are worth 200 each at that open, not yet the close.
    snapshot = make_snapshot(
        {
            "AAA": [
                make_bar("AAA", "2024-03-04", 50.0),
                make_bar("AAA", "2024-03-05", 300.0, open=200.0),
            ],
            "BBB": closes({"2024-03-04": 10.0, "2024-03-05": 10.0}),
        }
    )

    book = booked(
        snapshot,
        signals({"AAA": {"2024-03-04": "Buy"}, "BBB": {"2024-03-05": "Buy"}}),
        decision_time="open",
        entry_rule="open",
    )

    # Equity at the open is 500 + 10 * 200 = 2,500; BBB's half is 1,250, and 500 are there.
    assert book.orders[1].asked == 1_250.0
    assert book.orders[1].notional == 500.0


def test_coins_fill_at_the_instant_of_their_cutoff_and_the_order_says_so() -> None:
    days = [("2024-03-02", 100, 105, 99, 104, 9), ("2024-03-03", 104, 110, 103, 109.2, 9)]

    book = booked(
        make_snapshot({"BTC-USD": days}),
        signals({"BTC-USD": {"2024-03-02": "Buy"}}),
        entry_rule="next_open",
    )

    assert book.orders[0].flags == ("same_bar",)
    assert book.orders[0].fill_at == utc("2024-03-03T00:00")
    # The row of Saturday is drawn up before Sunday's open.
    assert equities(book) == pytest.approx({"2024-03-02": 1_000.0, "2024-03-03": 1_050.0})


def test_the_open_of_an_index_is_flagged() -> None:
    snapshot = make_snapshot({"^GSPC": closes({"2024-03-04": 100.0, "2024-03-05": 110.0})})

    book = booked(snapshot, signals({"^GSPC": {"2024-03-04": "Buy"}}), entry_rule="next_open")

    assert book.orders[0].flags == ("index_open",)


def test_a_bar_that_comes_out_late_marks_nothing_before_it_is_known() -> None:
    late = make_bar("AAA", "2024-03-05", 200.0)
    snapshot = make_snapshot(
        {
            "AAA": [
                make_bar("AAA", "2024-03-04", 100.0),
                type(late)(**{**vars(late), "known_at": utc("2024-03-06T12:00")}),
                make_bar("AAA", "2024-03-06", 210.0),
            ]
        }
    )

    book = booked(snapshot, signals({"AAA": {"2024-03-04": "Buy"}}))

    assert equities(book) == {
        "2024-03-04": 1_000.0,
        "2024-03-05": 1_000.0,
        "2024-03-06": 2_100.0,
    }
    assert [row.stale for row in book.equity] == [False, True, False]


# -------------------------------------------------------------------------------------- currencies


def test_several_currencies_are_refused_and_the_message_names_them() -> None:
    snapshot = make_snapshot(
        {
            "AAA": closes({"2024-03-04": 100.0}),
            TOKYO: make_bars(TOKYO, closes({"2024-03-04": 3_000.0}), currency="JPY"),
        }
    )
    both = signals({"AAA": {"2024-03-04": "Buy"}, TOKYO: {"2024-03-04": "Buy"}})

    with pytest.raises(UsageError, match=r"several currencies: JPY \(7203.T\), USD \(AAA\)"):
        booked(snapshot, both)
    with pytest.raises(UsageError, match="no exchange rate from JPY to USD: freeze JPYUSD=X or"):
        booked(snapshot, both, currency="USD")


@pytest.mark.parametrize(
    ("pair", "rates"),
    [
        # Dollars for one yen, or yen for one dollar: the yen loses a fifth on Tuesday.
        ("JPYUSD=X", (0.01, 0.008)),
        ("USDJPY=X", (100.0, 125.0)),
    ],
)
def test_foreign_positions_are_converted_at_the_last_known_close_of_the_pair(
    pair: str, rates: tuple[float, float]
) -> None:
    # The pair's Monday ends at 00:00Z on Tuesday, when Tokyo opens.
    when = ("2024-03-01", "2024-03-04")
    snapshot = make_snapshot(
        {
            TOKYO: make_bars(
                TOKYO, closes({"2024-03-04": 1_000.0, "2024-03-05": 1_100.0}), currency="JPY"
            ),
            pair: make_bars(pair, closes(zip(when, rates, strict=True))),
        },
        instruments=[
            make_instrument(TOKYO, currency="JPY"),
            make_instrument(pair, asset_type="fx"),
        ],
        actions=[dividend(TOKYO, "2024-03-05", 10.0, currency="JPY")],
        start="2024-03-04",
    )

    book = booked(
        snapshot, signals({TOKYO: {"2024-03-04": "Buy"}}), currency="USD", commission_minimum=10.0
    )

    # Friday's rate of 0.01: a share is 10 dollars; 10 are paid in commission, 99 shares bought.
    (order,) = book.orders
    assert (order.currency, order.price) == ("JPY", 1_000.0)
    assert order.shares == pytest.approx(99.0, abs=NEAR)
    assert order.notional == pytest.approx(990.0, abs=NEAR)
    assert equities(book)["2024-03-04"] == pytest.approx(990.0, abs=NEAR)
    # Tuesday: 0.008. 99 shares of 1,100 yen are 871.20; a dividend of 990 yen is 7.92.
    assert book.equity[1].dividends == pytest.approx(7.92, abs=NEAR)
    assert book.equity[1].equity == pytest.approx(871.2 + 7.92, abs=NEAR)
    assert (book.currency, book.positions[1].currency) == ("USD", "JPY")


def test_an_order_before_any_rate_is_known_is_rejected() -> None:
    snapshot = make_snapshot(
        {
            TOKYO: make_bars(TOKYO, closes({"2024-03-04": 1_000.0}), currency="JPY"),
            "JPYUSD=X": make_bars("JPYUSD=X", closes({"2024-03-04": 0.01})),
        },
        instruments=[
            make_instrument(TOKYO, currency="JPY"),
            make_instrument("JPYUSD=X", asset_type="fx"),
        ],
    )
    buy = signals({TOKYO: {"2024-03-04": "Buy"}})

    assert outcomes(booked(snapshot, buy, currency="USD").orders) == [
        ("buy", day("2024-03-04"), "rejected", "missing_rate")
    ]


def test_pence_are_hundredths_of_a_pound_and_a_dividend_may_be_in_either() -> None:
    pence = closes({"2024-03-04": 80.0, "2024-03-05": 75.0})
    snapshot = make_snapshot(
        {LONDON: make_bars(LONDON, pence, currency="GBp")},
        instruments=[make_instrument(LONDON, currency="GBp")],
        actions=[dividend(LONDON, "2024-03-05", 0.04, currency="GBP")],
    )

    book = booked(snapshot, signals({LONDON: {"2024-03-04": "Buy"}}))

    # 1,000 pounds buy 1,250 shares of 0.80; 0.04 each are 50 pounds; 1,250 * 0.75 = 937.50.
    assert book.currency == "GBP"
    assert shares_on(book, LONDON, "2024-03-05") == pytest.approx(1_250.0, abs=NEAR)
    assert book.equity[1].dividends == pytest.approx(50.0, abs=NEAR)
    assert book.equity[1].equity == pytest.approx(987.5, abs=NEAR)
    with pytest.raises(UsageError, match="GBp is a part of GBP"):
        booked(snapshot, signals({LONDON: {"2024-03-04": "Buy"}}), currency="GBp")


def test_a_dividend_in_a_currency_that_does_not_convert_stops_the_book() -> None:
    snapshot = make_snapshot(
        {"AAA": closes({"2024-03-04": 80.0, "2024-03-05": 75.0})},
        actions=[dividend("AAA", "2024-03-05", 0.04, currency="EUR")],
    )

    with pytest.raises(DataError, match="is in EUR, the bars are in USD"):
        booked(snapshot, signals({"AAA": {"2024-03-04": "Buy"}}))
