"""Small books, each worked out by hand: what fills, at what price, and what is left."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from backtester.book.orders import late_orders
from backtester.book.simulation import BookResult
from backtester.errors import DataError, UsageError
from tests.support.books import booked, equities, make_rule, outcomes, shares_on, signals, targets
from tests.support.returns import WEEK, day, utc
from tests.support.snapshots import (
    closes,
    dividend,
    make_bar,
    make_instrument,
    make_snapshot,
    split,
)

NEAR = 1e-9
MON, TUE, WED, THU = "2024-03-04", "2024-03-05", "2024-03-06", "2024-03-07"


def prices(
    *values: float, volume: int = 1_000
) -> list[tuple[str, float, float, float, float, int]]:
    """Sessions from Monday on, each with four equal prices."""
    week = [MON, TUE, WED, THU, "2024-03-08"]
    return [(when, at, at, at, at, volume) for when, at in zip(week, values, strict=False)]


def ratings(*words: str | None, ticker: str = "AAA") -> Any:
    """Decisions from Monday on."""
    return signals({ticker: dict(zip([MON, TUE, WED, THU], words, strict=False))})


# ------------------------------------------------------------------------------------- entry rules


@pytest.mark.parametrize(
    ("decision_time", "entry_rule", "price", "fill_at", "flags"),
    [
        ("close", "next_open", 109.0, "2024-03-05T14:30", ()),
        ("close", "next_close", 110.0, "2024-03-05T21:00", ()),
        ("close", "close", 100.0, "2024-03-04T21:00", ("same_bar",)),
        ("open", "close", 100.0, "2024-03-04T21:00", ()),
        ("open", "next_open", 109.0, "2024-03-05T14:30", ()),
        ("open", "open", 98.0, "2024-03-04T14:30", ("same_bar",)),
    ],
)
def test_orders_fill_at_the_point_of_their_entry_rule(
    decision_time: str, entry_rule: str, price: float, fill_at: str, flags: tuple[str, ...]
) -> None:
    book = booked(
        make_snapshot({"AAA": WEEK}),
        ratings("Buy"),
        decision_time=decision_time,
        entry_rule=entry_rule,
    )

    (order,) = book.orders
    assert (order.price, order.reference_price, order.fill_at) == (price, price, utc(fill_at))
    assert order.flags == flags
    assert (order.side, order.status, order.session) == ("buy", "filled", day(MON))
    # 1,000 at the fill, 108 at the last close
    assert book.equity[-1].equity == pytest.approx(1_000 / price * 108, abs=NEAR)


def test_the_first_session_counts_where_it_can_trade() -> None:
    # Bought at Monday's open of 98, worth 100 at its close.
    early = booked(
        make_snapshot({"AAA": WEEK}), ratings("Buy"), decision_time="open", entry_rule="open"
    )
    late = booked(make_snapshot({"AAA": WEEK}), ratings("Buy"), entry_rule="next_open")

    assert early.equity[0].ret == pytest.approx(100 / 98 - 1, abs=NEAR)
    assert early.curve[0] == 1_000.0
    assert len(early.curve) == 4
    assert late.equity[0].ret is None
    assert late.curve == tuple(row.equity for row in late.equity)


def test_a_rule_that_cannot_be_carried_out_is_refused() -> None:
    for changes, message in [
        ({"entry_rule": "open"}, "does not go with decision time"),
        ({"start_cash": 0.0}, "start cash 0.0"),
        ({"start_cash": float("nan")}, "start cash nan"),
        ({"start_cash": 0.5}, "start cash 0.5: write 1 to 1,000,000,000,000"),
        ({"start_cash": 1e308}, "start cash 1e"),
        ({"slots": 0}, "slots 0"),
        ({"slots": 10**9}, "slots 1000000000 is too many"),
        ({"haircut": 1.5}, "haircut 1.5"),
        ({"rebalance": "daily"}, "on_change or always"),
    ]:
        with pytest.raises(UsageError, match=message):
            make_rule(**changes)


# ------------------------------------------------------------------------------------------- costs


def test_costs_are_paid_on_both_sides_out_of_the_order_itself() -> None:
    book = booked(
        make_snapshot({"AAA": prices(100, 110)}),
        ratings("Buy", "Sell"),
        commission_bps=10,
        slippage_bps=20,
    )

    # In: 100 slips to 100.20; a share costs 100.20 * 1.001 = 100.3002, and 1,000 buy 1,000 of it.
    shares = 1_000 / 100.3002
    # Out: 110 slips to 109.78; a share brings 109.78 * 0.999 = 109.67022.
    bought, sold = book.orders
    assert (bought.price, sold.price) == (pytest.approx(100.2), pytest.approx(109.78))
    assert bought.shares == pytest.approx(shares, abs=NEAR)
    assert bought.commission == pytest.approx(shares * 0.1002, abs=NEAR)
    assert bought.slippage == pytest.approx(shares * 0.20, abs=NEAR)
    assert sold.commission == pytest.approx(shares * 0.10978, abs=NEAR)
    assert sold.slippage == pytest.approx(shares * 0.22, abs=NEAR)
    first, last = book.equity
    # The shares are worth 100 each the moment they were bought: 997.00698...
    assert first.cash == pytest.approx(0.0, abs=NEAR)
    assert first.equity == pytest.approx(shares * 100, abs=NEAR)
    assert last.equity == pytest.approx(shares * 109.67022, abs=NEAR)
    assert last.positions_value == 0.0
    assert last.commission == pytest.approx(shares * 0.10978, abs=NEAR)


def test_the_minimum_commission_is_paid_where_the_rate_gives_less() -> None:
    book = booked(
        make_snapshot({"AAA": prices(100, 100)}),
        ratings("Buy", "Sell"),
        commission_bps=1,
        commission_minimum=20,
    )

    # 1 bp of 1,000 is 0.10: 20 are paid, 980 buy 9.8 shares; 980 less 20 come back.
    assert [order.commission for order in book.orders] == [20.0, 20.0]
    assert book.orders[0].shares == pytest.approx(9.8, abs=NEAR)
    assert equities(book) == pytest.approx({MON: 980.0, TUE: 960.0}, abs=NEAR)


def test_an_amount_that_does_not_pay_its_commission_is_no_order() -> None:
    book = booked(make_snapshot({"AAA": prices(100)}), ratings("Buy"), commission_minimum=1_000)

    assert outcomes(book.orders) == [("buy", day(MON), "rejected", "below_costs")]
    assert equities(book) == {MON: 1_000.0}


def test_a_partial_sale_leaves_its_target_less_what_the_sale_cost() -> None:
    book = booked(
        make_snapshot({"AAA": prices(100, 100)}),
        ratings("Buy", "Underweight"),
        commission_per_share=1.0,
    )

    # In: a share costs 101, 1,000 buy 9.900990...; they are worth 990.0990.
    held = 1_000 / 101
    # Target 0.25 of 990.099 = 247.5248: 742.5743 are to come in, and a sold share brings 99.
    sold = (held * 100 * 0.75) / 99
    assert book.orders[1].side == "sell"
    assert book.orders[1].shares == pytest.approx(sold, abs=NEAR)
    assert book.equity[1].cash == pytest.approx(held * 100 * 0.75, abs=NEAR)
    assert shares_on(book, "AAA", TUE) == pytest.approx(held - sold, abs=NEAR)


def test_an_order_takes_no_more_of_the_volume_than_its_cap_and_the_rest_is_cancelled() -> None:
    snapshot = make_snapshot({"AAA": prices(10, 10, 10, volume=100)})

    book = booked(snapshot, ratings("Buy", "Hold", "Buy"), participation_cap=0.4)

    # 1,000 want 100 shares; 0.4 of 100 are 40. Hold asks for nothing; the next Buy gets 40 more.
    assert [order.shares for order in book.orders] == [40.0, 40.0]
    assert outcomes(book.orders) == [
        ("buy", day(MON), "partial", "volume"),
        ("buy", day(WED), "partial", "volume"),
    ]
    assert [row.cash for row in book.equity] == [600.0, 600.0, 200.0]


def test_impact_worsens_the_price_in_proportion_to_the_part_of_the_volume() -> None:
    book = booked(make_snapshot({"AAA": prices(10, volume=1_000)}), ratings("Buy"), impact_bps=200)

    # 1,000 / 10 = 100 shares are a tenth of the volume: a tenth of 200 bps, 10 -> 10.02.
    (order,) = book.orders
    assert order.price == pytest.approx(10.02, abs=NEAR)
    assert order.shares == pytest.approx(1_000 / 10.02, abs=NEAR)


def test_a_bar_without_volume_fills_nothing_where_fills_depend_on_it() -> None:
    snapshot = make_snapshot({"AAA": prices(10, volume=0)})

    assert booked(snapshot, ratings("Buy")).orders[0].status == "filled"
    capped = booked(snapshot, ratings("Buy"), participation_cap=0.5)
    assert outcomes(capped.orders) == [("buy", day(MON), "rejected", "no_volume")]


def test_whole_shares_leave_the_rest_in_cash() -> None:
    book = booked(
        make_snapshot({"AAA": prices(300, 350)}), ratings("Buy", "Sell"), fractional=False
    )

    # 1,000 buy 3 shares of 300; 100 are left.
    assert [order.shares for order in book.orders] == [3.0, 3.0]
    assert equities(book) == {MON: 1_000.0, TUE: 1_150.0}
    dear = booked(make_snapshot({"AAA": prices(3_000)}), ratings("Buy"), fractional=False)
    assert outcomes(dear.orders) == [("buy", day(MON), "rejected", "below_one_share")]


def test_interest_runs_by_the_calendar_day_on_cash_and_borrowing_on_short_positions() -> None:
    # Friday to Monday are three days.
    snapshot = make_snapshot({"AAA": closes({"2024-03-08": 100.0, "2024-03-11": 100.0})})

    idle = booked(snapshot, [], tickers=["AAA"], cash_rate=0.0365)
    short = booked(
        snapshot,
        signals({"AAA": {"2024-03-08": "Sell"}}),
        policy="long_short",
        borrow_bps_year=3_650,
    )

    # 1,000 * 0.0365 * 3 / 365 = 0.30
    assert idle.equity[-1].interest == pytest.approx(0.3, abs=NEAR)
    assert idle.equity[-1].equity == pytest.approx(1_000.3, abs=NEAR)
    # 10 shares short, 1,000 borrowed at 36.5 %: 1,000 * 0.365 * 3 / 365 = 3
    assert short.equity[-1].borrow == pytest.approx(3.0, abs=NEAR)
    assert short.equity[-1].equity == pytest.approx(997.0, abs=NEAR)
    assert short.positions[-1].gain == pytest.approx(-3.0, abs=NEAR)


# ----------------------------------------------------------------------------- splits and dividends


def test_a_split_while_held_multiplies_the_shares_and_makes_no_wealth() -> None:
    book = booked(
        make_snapshot({"AAA": prices(100, 26)}, actions=[split("AAA", TUE, 4)]), ratings("Buy")
    )

    # 10 shares of 100 become 40 of 26.
    assert shares_on(book, "AAA", MON) == 10.0
    assert shares_on(book, "AAA", TUE) == 40.0
    assert equities(book) == {MON: 1_000.0, TUE: 1_040.0}


def test_a_dividend_while_long_is_cash_on_its_ex_session() -> None:
    book = booked(
        make_snapshot({"AAA": prices(100, 98, 98)}, actions=[dividend("AAA", TUE, 1.5)]),
        ratings("Buy"),
    )

    # 10 shares: 15 in cash, 980 in shares; the cash stays, for the tier does not change.
    assert [row.cash for row in book.equity] == [0.0, 15.0, 15.0]
    assert [row.dividends for row in book.equity] == [0.0, 15.0, 0.0]
    assert equities(book) == {MON: 1_000.0, TUE: 995.0, WED: 995.0}
    assert book.positions[-1].gain == pytest.approx(-5.0, abs=NEAR)


def test_a_dividend_while_short_is_paid() -> None:
    book = booked(
        make_snapshot({"AAA": prices(100, 98)}, actions=[dividend("AAA", TUE, 1.5)]),
        ratings("Sell"),
        policy="long_short",
    )

    # 10 shares short bring 1,000; 15 are paid, and 980 are owed: 1,000 + 1,000 - 15 - 980.
    assert shares_on(book, "AAA", TUE) == -10.0
    assert book.equity[-1].cash == 1_985.0
    assert book.equity[-1].dividends == -15.0
    assert equities(book) == {MON: 1_000.0, TUE: 1_005.0}


def test_a_dividend_after_a_split_is_paid_on_the_shares_held_then() -> None:
    book = booked(
        make_snapshot(
            {"AAA": prices(100, 50, 55)},
            actions=[split("AAA", TUE, 2), dividend("AAA", WED, 1.0)],
        ),
        ratings("Buy"),
    )

    # (55 * 2 + 1 * 2) / 100 - 1
    assert book.equity[-1].equity / 1_000 - 1 == pytest.approx(0.12, abs=1e-12)


def test_who_buys_on_the_ex_session_gets_no_dividend_and_who_sells_at_its_open_does() -> None:
    snapshot = make_snapshot(
        {"AAA": prices(100, 100, 100)}, actions=[dividend("AAA", TUE, 2.0), split("AAA", TUE, 2)]
    )

    buyer = booked(snapshot, ratings("Buy"), entry_rule="next_open")
    holder = booked(
        snapshot,
        signals({"AAA": {MON: "Buy", TUE: "Sell"}}),
        decision_time="open",
        entry_rule="open",
    )

    assert buyer.equity[-1].dividends == 0.0
    assert shares_on(buyer, "AAA", TUE) == 10.0
    # 10 shares, split into 20, 2 each: 40; then all are sold at 100.
    assert holder.equity[1].dividends == 40.0
    assert holder.equity[1].cash == 2_040.0


def test_a_missing_bar_on_an_ex_session_makes_no_wealth_of_the_old_price() -> None:
    snapshot = make_snapshot(
        {"AAA": [prices(100)[0], prices(0, 0, 24)[2]]},
        actions=[split("AAA", TUE, 4), dividend("AAA", TUE, 1.0)],
    )

    book = booked(snapshot, ratings("Buy"))

    # 40 shares marked at 100 / 4 less the dividend of 1, which is in the cash.
    tuesday = book.positions[1]
    assert (tuesday.shares, tuesday.close, tuesday.stale) == (40.0, 24.0, True)
    assert equities(book) == {MON: 1_000.0, TUE: 1_000.0, WED: 1_000.0}


def test_an_action_that_cannot_be_believed_stops_the_book_only_while_the_ticker_is_held() -> None:
    odd = make_snapshot(
        {"AAA": prices(100, 100, 100)},
        actions=[dividend("AAA", TUE, 1.0), dividend("AAA", TUE, 2.0)],
    )

    with pytest.raises(DataError, match="the dividend of 2024-03-05 is there twice"):
        booked(odd, ratings("Buy"))
    assert booked(odd, ratings("Sell", "Sell", "Buy")).equity[-1].equity == 1_000.0


# ------------------------------------------------------------------------- what cannot be filled


def test_a_missing_bar_rejects_the_order_and_no_later_bar_fills_it() -> None:
    snapshot = make_snapshot(
        {
            "AAA": [
                make_bar("AAA", "2018-02-28", 400.0),
                make_bar("AAA", "2018-03-01", 410.0),
                make_bar("AAA", "2018-12-28", 500.0),
            ]
        }
    )

    book = booked(snapshot, signals({"AAA": {"2018-03-01": "Buy"}}), entry_rule="next_open")

    (order,) = book.orders
    assert (order.status, order.reason, order.price) == ("rejected", "missing_bar", None)
    assert order.fill_session == date(2018, 3, 2)
    assert book.positions == ()
    assert {row.equity for row in book.equity} == {1_000.0}

    held = booked(snapshot, signals({"AAA": {"2018-02-28": "Buy"}}))
    late = [row for row in held.positions if row.session > date(2018, 3, 1)]
    # A position of earlier stays at its last close, and says so, up to the bar itself.
    assert {(row.close, row.stale) for row in late[:-1]} == {(410.0, True)}
    assert (late[-1].session, late[-1].close, late[-1].stale) == (date(2018, 12, 28), 500.0, False)
    assert [row.session for row in held.equity if row.stale] == [row.session for row in late[:-1]]


def test_a_rejected_sale_keeps_the_position_and_the_next_decision_asks_again() -> None:
    three = [prices(100)[0], prices(0, 0, 90)[2], prices(0, 0, 0, 80)[3]]

    book = booked(make_snapshot({"AAA": three}), ratings("Buy", "Sell", "Sell"))

    assert outcomes(book.orders) == [
        ("buy", day(MON), "filled", None),
        ("sell", day(TUE), "rejected", "missing_bar"),
        ("sell", day(WED), "filled", None),
    ]
    assert equities(book)[THU] == 900.0


def test_bars_that_contradict_each_other_fill_nothing() -> None:
    twice = [*prices(100, 101), (TUE, 105.0, 105.0, 105.0, 105.0, 1_000)]

    book = booked(make_snapshot({"AAA": twice}), ratings("Hold", "Buy"))

    assert outcomes(book.orders) == [("buy", day(TUE), "rejected", "conflict")]


def test_what_would_fill_after_the_end_is_pending_not_rejected() -> None:
    snapshot = make_snapshot({"AAA": prices(100, 110, 120)})

    book = booked(snapshot, ratings("Buy", "Hold", "Sell"), entry_rule="next_open")

    last = book.orders[-1]
    assert (last.status, last.reason, last.fill_session) == ("pending", "after_end", day(THU))
    assert book.counts.orders == 2
    # The position is open, and counts at the last close.
    assert equities(book)[WED] == pytest.approx(1_000 / 110 * 120, abs=NEAR)
    assert shares_on(book, "AAA", WED) > 0.0

    # The snapshot declares one day more than it has bars for.
    short = make_snapshot({"AAA": prices(100, 110)}, end=WED)
    assert booked(short, ratings("Hold", "Buy"), entry_rule="next_open").orders[0].status == (
        "pending"
    )


def test_to_sell_nothing_after_the_end_is_no_order_and_to_sell_what_may_be_bought_is_one() -> None:
    snapshot = make_snapshot({"AAA": prices(100, 110, 120)})

    flat = booked(snapshot, ratings("Hold", "Hold", "Sell"), entry_rule="next_open")
    assert (flat.orders, flat.counts.orders, flat.counts.unchanged) == ((), 0, 1)

    sold = booked(snapshot, ratings("Buy", "Sell", "Sell"), entry_rule="next_open")
    assert [order.status for order in sold.orders] == ["filled", "filled"]

    # What is bought after the end may be sold after it.
    short = make_snapshot({"AAA": prices(100)}, end=MON)
    assert booked(short, ratings("Sell"), entry_rule="next_open").orders == ()
    assert late_orders(["AAA", "AAA", "AAA", "BBB"], [1.0, 0.0, 0.0, 0.0], ["BBB"]) == [
        *(True, True, False, True)
    ]


def test_a_ticker_that_stops_trading_is_closed_at_its_last_close_less_the_haircut() -> None:
    snapshot = make_snapshot(
        {"AAA": prices(100, 80), "BBB": prices(10, 10, 10, 10)},
        instruments=[make_instrument("AAA", first_session=MON, last_session=TUE)],
    )

    book = booked(snapshot, ratings("Buy", "Buy", "Buy"), haircut=0.25, slots=1)

    # 10 shares; 80 on its last day; then out at 80 * 0.75 = 60. Buying it on Wednesday is over.
    assert equities(book) == {MON: 1_000.0, TUE: 800.0, WED: 600.0, THU: 600.0}
    closing = book.orders[1]
    assert (closing.side, closing.price, closing.reference_price) == ("sell", 60.0, 80.0)
    assert (closing.session, closing.fill_session) == (day(TUE), day(WED))
    assert closing.flags == ("delisted", "haircut")
    assert outcomes(book.orders[2:]) == [("buy", day(WED), "rejected", "delisted")]
    assert shares_on(book, "AAA", WED) == 0.0
    # 2024-03-06 was its last chance: the gain stays in the books.
    assert book.positions[-1].gain == pytest.approx(-400.0, abs=NEAR)


def test_a_short_position_in_a_ticker_that_stops_trading_is_bought_back_likewise() -> None:
    snapshot = make_snapshot(
        {"AAA": prices(100, 80), "BBB": prices(10, 10, 10, 10)},
        instruments=[make_instrument("AAA", first_session=MON, last_session=TUE)],
    )

    book = booked(snapshot, ratings("Sell"), policy="long_short", slots=1)

    # 1,000 came in, 800 go out.
    assert equities(book)[WED] == 1_200.0
    assert (book.orders[1].side, book.orders[1].flags) == ("cover", ("delisted",))


# -------------------------------------------------------------------------- targets, slots, scaling


def test_hold_and_a_decision_without_a_rating_carry_the_position_and_are_counted() -> None:
    book = booked(
        make_snapshot({"AAA": prices(100, 120, 90, 100)}), ratings("Buy", "Hold", None, "Buy")
    )

    # 10 shares all the way: Hold and no rating want nothing, Buy is the tier held.
    assert [row.shares for row in book.positions] == [10.0] * 4
    assert list(equities(book).values()) == [1_000.0, 1_200.0, 900.0, 1_000.0]
    counts = book.counts
    assert (counts.orders, counts.unchanged, counts.carried, counts.unread) == (1, 1, 1, 1)


def test_hold_is_no_position_so_it_contributes_nothing() -> None:
    # The asset gains 2 %; a book that was told Hold is cash, and stays what it was.
    held = booked(make_snapshot({"AAA": prices(100, 102)}), ratings("Hold", "Hold"))

    assert equities(held) == {MON: 1_000.0, TUE: 1_000.0}
    assert (held.orders, held.counts.carried) == ((), 2)


def test_an_equal_rating_trades_back_to_its_weight_only_where_it_is_told_to() -> None:
    snapshot = make_snapshot({"AAA": prices(100, 200)})
    decisions = ratings("Overweight", "Overweight")

    kept = booked(snapshot, decisions)
    back = booked(snapshot, decisions, rebalance="always")

    # 7.5 shares; at 200 they are 1,500 of 1,750. 0.75 of that is 1,312.50, 6.5625 shares.
    assert shares_on(kept, "AAA", TUE) == 7.5
    assert shares_on(back, "AAA", TUE) == pytest.approx(6.5625, abs=NEAR)


def test_each_ticker_has_an_equal_slot_and_the_rest_is_cash() -> None:
    snapshot = make_snapshot({"AAA": prices(100), "BBB": prices(50), "CCC": prices(10)})

    book = booked(
        snapshot, signals({"AAA": {MON: "Buy"}, "BBB": {MON: "Underweight"}, "CCC": {MON: "Sell"}})
    )

    # 1,000 / 3 each: all of it, a quarter, nothing.
    assert shares_on(book, "AAA", MON) == pytest.approx(1_000 / 3 / 100, abs=NEAR)
    assert shares_on(book, "BBB", MON) == pytest.approx(1_000 / 3 / 4 / 50, abs=NEAR)
    assert book.equity[0].cash == pytest.approx(1_000 - 1_000 / 3 * 1.25, abs=NEAR)
    assert book.equity[0].gross == pytest.approx(1.25 / 3, abs=NEAR)
    assert booked(snapshot, ratings("Buy"), slots=4).equity[0].cash == 750.0


def test_where_a_ticker_joins_the_slots_shrink_and_the_next_decision_makes_room() -> None:
    snapshot = make_snapshot(
        {"AAA": prices(100, 100, 100), "BBB": prices(0, 0, 50)[2:]},
        instruments=[make_instrument("BBB", first_session=WED)],
    )

    book = booked(
        snapshot,
        signals({"AAA": {MON: "Buy", TUE: "Buy", WED: "Buy"}, "BBB": {WED: "Buy"}}),
        commission_bps=0,
    )

    # Alone AAA has the one slot: 10 shares. On Wednesday there are two: 5 are sold, and the 500
    # buy 10 shares of BBB at that very close.
    assert [(order.ticker, order.side, order.shares) for order in book.orders] == [
        ("AAA", "buy", 10.0),
        ("AAA", "sell", 5.0),
        ("BBB", "buy", 10.0),
    ]
    assert book.equity[-1].cash == 0.0
    assert equities(book)[WED] == 1_000.0


def test_buys_that_exceed_the_cash_are_all_scaled_by_one_factor() -> None:
    snapshot = make_snapshot({name: prices(100, 100) for name in ("AAA", "BBB", "CCC")})

    book = booked(
        snapshot,
        signals(
            {
                "AAA": {MON: "Overweight"},
                "BBB": {TUE: "Buy"},
                "CCC": {TUE: "Overweight"},
            }
        ),
        slots=1,
    )

    # 750 are in AAA. BBB wants 1,000 and CCC 750 of the 250 left: one factor, 250 / 1,750.
    orders = {order.ticker: order for order in book.orders}
    assert orders["BBB"].notional == pytest.approx(1_000 * 250 / 1_750, abs=NEAR)
    assert orders["CCC"].notional == pytest.approx(750 * 250 / 1_750, abs=NEAR)
    assert (orders["BBB"].asked, orders["CCC"].asked) == (1_000.0, 750.0)
    assert {orders[name].reason for name in ("BBB", "CCC")} == {"cash"}
    assert book.equity[-1].cash == pytest.approx(0.0, abs=NEAR)


def test_sales_of_an_instant_pay_for_its_buys() -> None:
    snapshot = make_snapshot({"AAA": prices(100, 100), "BBB": prices(50, 50)})

    book = booked(
        snapshot,
        signals({"BBB": {MON: "Buy", TUE: "Sell"}, "AAA": {TUE: "Buy"}}),
        slots=1,
        commission_bps=100,
    )

    # 1,000 / 1.01 of BBB. It is sold for that less 1 %; AAA's order wants all of it and gets it.
    proceeds = 1_000 / 1.01 * 0.99
    assert [order.ticker for order in book.orders] == ["BBB", "AAA", "BBB"]
    bought = book.orders[1]
    assert bought.shares == pytest.approx(proceeds / 1.01 / 100, abs=NEAR)
    assert book.equity[-1].cash == pytest.approx(0.0, abs=NEAR)


def test_nothing_is_bought_where_there_is_no_cash_and_the_next_equal_rating_asks_again() -> None:
    snapshot = make_snapshot({"AAA": prices(100, 100, 100), "BBB": prices(50, 50, 50)})

    book = booked(
        snapshot,
        signals({"AAA": {MON: "Buy", WED: "Underweight"}, "BBB": {TUE: "Buy", WED: "Buy"}}),
        slots=1,
    )

    assert outcomes(book.orders) == [
        ("buy", day(MON), "filled", None),
        ("buy", day(TUE), "rejected", "no_cash"),
        ("sell", day(WED), "filled", None),
        ("buy", day(WED), "partial", "cash"),
    ]
    assert shares_on(book, "BBB", WED) == pytest.approx(15.0, abs=NEAR)


def test_what_is_left_by_rounding_buys_nothing() -> None:
    snapshot = make_snapshot({"AAA": prices(100, 100), "BBB": prices(50, 50)})

    book = booked(snapshot, targets({"AAA": {MON: 1 - 1e-12}, "BBB": {TUE: 1.0}}), slots=1)

    assert outcomes(book.orders)[1:] == [("buy", day(TUE), "rejected", "no_cash")]


def test_a_small_sale_that_must_pay_a_large_minimum_sells_out_and_goes_no_further() -> None:
    book = booked(
        make_snapshot({"AAA": prices(100, 100)}),
        targets({"AAA": {MON: 0.05, TUE: 0.04}}),
        commission_minimum=45,
    )

    # 50 less 45 buy 0.05 shares. Equity 955; 0.04 of it is 38.20, more than is held: no sale.
    # 5 are held, so 33.20 are wanted: less than the commission.
    assert outcomes(book.orders)[1:] == [("buy", day(TUE), "rejected", "below_costs")]
    dear = booked(
        make_snapshot({"AAA": prices(100, 100)}),
        targets({"AAA": {MON: 0.06, TUE: 0.01}}),
        commission_minimum=45,
    )
    # 0.15 shares, worth 15, of 955: 9.55 is wanted, 5.45 is to come in after 45: all 0.15 go.
    assert dear.orders[1].shares == pytest.approx(0.15, abs=NEAR)
    assert shares_on(dear, "AAA", TUE) == 0.0
    assert dear.equity[-1].cash == pytest.approx(910.0, abs=NEAR)


# ---------------------------------------------------------------------------------- short positions


def test_a_short_sale_makes_no_wealth_and_its_proceeds_buy_nothing() -> None:
    snapshot = make_snapshot({"AAA": prices(100, 100), "BBB": prices(100, 100)})

    book = booked(
        snapshot,
        signals({"AAA": {MON: "Sell"}, "BBB": {MON: "Buy"}}),
        policy="long_short",
        slots=1,
        commission_bps=100,
    )

    # AAA: 1,000 are to come in after 1 %: 1,000 / 99 shares are sold; BBB wants 1,000 and the
    # cash of 2,000 less what is owed, 1,000 / 0.99, is 989.8990.
    owed = 1_000 / 0.99
    assert shares_on(book, "AAA", MON) == pytest.approx(-owed / 100, abs=NEAR)
    assert book.orders[1].notional == pytest.approx((2_000 - owed) / 1.01, abs=NEAR)
    paid = sum(order.commission for order in book.orders)
    assert equities(book)[MON] == pytest.approx(1_000 - paid, abs=NEAR)
    assert book.equity[0].net == pytest.approx(
        ((2_000 - owed) / 1.01 - owed) / (1_000 - paid), abs=NEAR
    )


def test_an_order_across_zero_is_one_order_with_one_commission() -> None:
    book = booked(
        make_snapshot({"AAA": prices(100, 100, 100)}),
        ratings("Buy", "Sell", "Buy"),
        policy="long_short",
        commission_minimum=10,
    )

    # 990 / 100 = 9.9 long. Equity 990: -990 wanted, 1,980 are to come in: 1,990 / 100 sold.
    assert [order.side for order in book.orders] == ["buy", "short", "buy"]
    assert [order.commission for order in book.orders] == [10.0, 10.0, 10.0]
    assert book.orders[1].shares == pytest.approx(19.9, abs=NEAR)
    assert shares_on(book, "AAA", TUE) == pytest.approx(-10.0, abs=NEAR)
    # Equity 980, 10 short, cash 1,980. 980 are free for the long side, 1,000 end the short one:
    # 1,980 less 10 buy 19.7 shares.
    assert book.orders[2].shares == pytest.approx(19.7, abs=NEAR)
    assert equities(book)[WED] == pytest.approx(970.0, abs=NEAR)


def test_where_no_cash_is_left_to_go_long_the_short_position_is_ended_whole() -> None:
    snapshot = make_snapshot({"AAA": prices(100, 110), "BBB": prices(30, 30)})

    book = booked(
        snapshot,
        targets({"AAA": {MON: -0.5, TUE: 1.0}, "BBB": {MON: 1.0}}),
        slots=1,
        commission_per_share=0.5,
    )

    # 500 / 99.5 shares are short, and BBB has all the cash but what is owed for them. Then more is
    # owed than there is cash: nothing is free for the long side, and exactly these are bought back.
    held = 500 / 99.5
    cover = book.orders[2]
    assert (cover.side, cover.status, cover.reason) == ("buy", "partial", "cash")
    assert cover.shares == pytest.approx(held, abs=NEAR)
    assert shares_on(book, "AAA", TUE) == 0.0


def test_a_short_position_is_reduced_by_a_cover() -> None:
    book = booked(
        make_snapshot({"AAA": prices(100, 50)}), ratings("Sell", "Underweight"), policy="long_short"
    )

    # 10 short at 100; at 50 the equity is 1,500, of which half short is 15 shares: 5 more.
    assert [(order.side, order.shares) for order in book.orders] == [
        ("short", 10.0),
        ("short", 5.0),
    ]
    rose = booked(
        make_snapshot({"AAA": prices(100, 120)}),
        ratings("Sell", "Underweight"),
        policy="long_short",
    )
    # At 120 the equity is 800; half of it is 3.3333 shares, so 6.6667 are bought back.
    assert (rose.orders[1].side, rose.orders[1].status) == ("cover", "filled")
    assert rose.orders[1].shares == pytest.approx(10 - 400 / 120, abs=NEAR)


def test_a_book_that_is_worth_nothing_closes_positions_and_opens_none() -> None:
    snapshot = make_snapshot({"AAA": prices(100, 250, 250), "BBB": prices(10, 10, 10)})

    book = booked(
        snapshot,
        signals({"AAA": {MON: "Sell", WED: "Buy"}, "BBB": {TUE: "Buy"}}),
        policy="long_short",
        slots=1,
    )

    # 10 short at 100: at 250 it is 2,000 - 2,500 = -500.
    assert equities(book) == {MON: 1_000.0, TUE: -500.0, WED: -500.0}
    assert outcomes(book.orders)[1:] == [
        ("buy", day(TUE), "rejected", "no_equity"),
        ("buy", day(WED), "rejected", "no_equity"),
    ]
    assert book.equity[1].ret == pytest.approx(-1.5, abs=NEAR)
    assert (book.equity[1].gross, book.equity[1].net, book.equity[2].ret) == (None, None, None)
    closed = booked(snapshot, targets({"AAA": {MON: -1.0, TUE: 0.0}}), slots=1)
    assert (closed.orders[1].side, closed.equity[1].cash) == ("cover", -500.0)


# ------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("decisions", "options", "error", "message"),
    [
        (ratings("Buy", ticker="ZZZ"), {}, DataError, "does not hold 'ZZZ'"),
        (ratings("Maybe"), {}, DataError, "'Maybe' is no rating"),
        (signals({"AAA": {"2024-03-03": "Buy"}}), {"start": "2024-03-01"}, DataError, "no session"),
        (ratings("Buy"), {"start": TUE}, UsageError, "outside the book's 2024-03-05"),
        (ratings("Buy") + ratings("Sell"), {}, UsageError, "two decisions for AAA"),
        (ratings("Buy"), {"end": "2024-03-08"}, UsageError, "snapshot memory ends on 2024-03-06"),
        (ratings("Buy"), {"start": WED, "end": MON}, UsageError, "swap them"),
        (ratings("Buy", ticker="BBB"), {"tickers": ["AAA"]}, UsageError, "not in the book"),
        ([], {}, UsageError, "needs a ticker"),
        (targets({"AAA": {MON: 1.5}}), {}, UsageError, "1.5 of AAA .* from -1 to 1"),
        (targets({"AAA": {MON: float("nan")}}), {}, UsageError, "nan of AAA"),
    ],
)
def test_what_makes_no_book_is_refused_in_one_line(
    decisions: Any, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    snapshot = make_snapshot({"AAA": prices(100, 110, 120), "BBB": prices(1, 1, 1)})

    with pytest.raises(error, match=message):
        booked(snapshot, decisions, **options)


def test_a_book_without_a_decision_is_cash_in_every_session() -> None:
    book: BookResult = booked(make_snapshot({"AAA": prices(100, 110)}), [], tickers=["AAA"])

    assert equities(book) == {MON: 1_000.0, TUE: 1_000.0}
    assert (book.orders, book.positions) == ((), ())
    assert [row.ret for row in book.equity] == [0.0, 0.0]
