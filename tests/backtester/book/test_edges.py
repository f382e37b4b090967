"""Where an order is at the edge of being one, by hand: no distance, no equity, no free cash."""

from __future__ import annotations

import pytest

from backtester.book.simulation import book_state_at
from tests.support.books import (
    booked,
    equities,
    make_rule,
    outcomes,
    shares_on,
    signals,
    targets,
)
from tests.support.returns import day, utc
from tests.support.snapshots import closes, make_snapshot

NEAR = 1e-9
MON, TUE, WED = "2024-03-04", "2024-03-05", "2024-03-06"


def test_a_position_that_stands_at_its_target_is_not_traded_even_where_it_is_brought_back() -> None:
    """Thirds of 1,000 at 3 and 7 a share are no round numbers, so the distance is rounding."""
    prices = {"AAA": 3.0, "BBB": 7.0, "CCC": 11.0}
    snapshot = make_snapshot(
        {name: closes(dict.fromkeys((MON, TUE, WED), price)) for name, price in prices.items()}
    )

    book = booked(
        snapshot,
        signals({name: dict.fromkeys((MON, TUE, WED), "Buy") for name in prices}),
        rebalance="always",
    )

    assert [(order.ticker, order.session) for order in book.orders] == [
        (name, day(MON)) for name in prices
    ]
    assert (book.counts.orders, book.counts.unchanged) == (3, 6)


def test_a_book_worth_exactly_nothing_opens_nothing() -> None:
    snapshot = make_snapshot(
        {
            "AAA": closes({MON: 100.0, TUE: 200.0}),
            "BBB": closes({MON: 10.0, TUE: 10.0}),
        }
    )

    book = booked(
        snapshot,
        signals({"AAA": {MON: "Sell"}, "BBB": {TUE: "Buy"}}),
        policy="long_short",
        slots=1,
    )

    # 10 short at 100; at 200 the 2,000 of cash are owed to the last cent.
    assert equities(book) == {MON: 1_000.0, TUE: 0.0}
    assert outcomes(book.orders)[1:] == [("buy", day(TUE), "rejected", "no_equity")]


def test_a_short_position_is_cut_to_its_target_and_no_further_where_no_cash_is_free() -> None:
    snapshot = make_snapshot(
        {
            "AAA": closes({MON: 100.0, TUE: 200.0}),
            "BBB": closes({MON: 50.0, TUE: 50.0}),
        }
    )

    book = booked(snapshot, targets({"AAA": {MON: -0.5, TUE: -0.25}, "BBB": {MON: 1.0}}), slots=1)

    # 5 short bring 500, and 1,000 of BBB are bought: 500 of cash, 1,000 owed at 200, equity 500.
    # A quarter of that short is 125, so 875 buy 4.375 shares back, with more than the cash.
    cover = book.orders[2]
    assert (cover.side, cover.status) == ("cover", "filled")
    assert cover.shares == pytest.approx(4.375, abs=NEAR)
    assert shares_on(book, "AAA", TUE) == pytest.approx(-0.625, abs=NEAR)
    assert book.equity[-1].cash == pytest.approx(-375.0, abs=NEAR)
    assert equities(book)[TUE] == pytest.approx(500.0, abs=NEAR)


def test_what_is_added_to_a_position_adds_its_commission_to_the_cost() -> None:
    snapshot = make_snapshot({"AAA": closes({MON: 100.0, TUE: 100.0, WED: 100.0})})
    state = book_state_at(
        signals({"AAA": {MON: "Underweight", TUE: "Overweight"}}),
        snapshot=snapshot,
        rule=make_rule(commission_minimum=10),
        tickers=["AAA"],
        start=day(MON),
        cutoff=utc("2024-03-06T21:00"),
    )

    # 250 are put in; 240 of it are shares. Equity 990: 742.50 are wanted, 502.50 go in more.
    (held,) = state.positions
    assert held.cost == pytest.approx(250.0 + 502.5, abs=NEAR)
    assert state.cash == pytest.approx(1_000.0 - 752.5, abs=NEAR)
    assert held.unrealised == pytest.approx(-20.0, abs=NEAR)
