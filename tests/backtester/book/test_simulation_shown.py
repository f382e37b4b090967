"""The book as it is shown in simulated time: what is known at the cutoff, and nothing more."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from backtester.book.simulation import BookState, ShownBook, Signal, book_state_at, simulate
from backtester.calendar import calendar_by_code
from backtester.errors import BacktesterError
from backtester.snapshots.snapshot import Snapshot
from tests.support.books import committed_snapshot, make_rule, signals
from tests.support.returns import day, utc
from tests.support.snapshots import closes, dividend, make_bar, make_snapshot, split

NEAR = 1e-9
MON, TUE, WED = "2024-03-04", "2024-03-05", "2024-03-06"


def shown(
    snapshot: Snapshot, decided: list[Signal], cutoff: str, start: str = MON, **rule: Any
) -> BookState:
    return book_state_at(
        decided,
        snapshot=snapshot,
        rule=make_rule(**rule),
        tickers=[name for name in snapshot.instruments() if not name.startswith("^")],
        start=day(start),
        cutoff=utc(cutoff),
    )


def two_for_one() -> Snapshot:
    return make_snapshot(
        {
            "AAA": [
                make_bar("AAA", MON, 100.0),
                make_bar("AAA", TUE, 60.0, open=55.0),
                make_bar("AAA", WED, 66.0),
            ],
            "BBB": closes({MON: 10.0, TUE: 10.0, WED: 10.0}),
        },
        actions=[split("AAA", TUE, 2), dividend("AAA", WED, 1.0)],
    )


def test_before_the_first_fill_there_is_cash_alone() -> None:
    state = shown(two_for_one(), [], "2024-03-04T21:00")

    assert (state.cash, state.equity, state.positions) == (1_000.0, 1_000.0, ())
    assert state.at == utc("2024-03-04T21:00")


def test_a_position_has_its_shares_its_last_close_its_weight_and_what_it_gained() -> None:
    decided = signals({"AAA": {MON: "Buy", TUE: "Hold"}})

    state = shown(two_for_one(), decided, "2024-03-06T21:00", commission_minimum=10)

    # 500 less 10 buy 4.9 shares; 9.8 after the split, 1 dividend each; 9.8 * 66 = 646.80.
    (held,) = state.positions
    assert held.shares == pytest.approx(9.8, abs=NEAR)
    assert (held.price, held.currency, held.since, held.stale) == (66.0, "USD", day(MON), False)
    assert held.value == pytest.approx(646.8, abs=NEAR)
    assert held.cost == pytest.approx(500.0, abs=NEAR)
    assert held.unrealised == pytest.approx(146.8, abs=NEAR)
    assert state.cash == pytest.approx(509.8, abs=NEAR)
    assert held.weight == pytest.approx(646.8 / (646.8 + 509.8), abs=NEAR)


def test_selling_a_part_keeps_that_part_of_the_cost_and_turning_round_begins_anew() -> None:
    snapshot = make_snapshot({"AAA": closes({MON: 100.0, TUE: 200.0, WED: 200.0})})
    sold = shown(snapshot, signals({"AAA": {MON: "Buy", TUE: "Underweight"}}), "2024-03-06T21:00")
    turned = shown(
        snapshot,
        signals({"AAA": {MON: "Buy", TUE: "Sell"}}),
        "2024-03-06T21:00",
        policy="long_short",
    )

    # A quarter of 10 shares is left, and a quarter of the 1,000.
    assert (sold.positions[0].shares, sold.positions[0].cost) == (2.5, 250.0)
    # 20 shares are sold: 10 end the long position, 10 open a short one at 200.
    assert (turned.positions[0].shares, turned.positions[0].cost) == (-10.0, -2_000.0)
    assert (turned.positions[0].unrealised, turned.positions[0].since) == (0.0, day(TUE))


def test_a_fill_whose_bar_is_not_public_yet_has_not_happened_yet() -> None:
    snapshot = two_for_one()
    decided = signals({"AAA": {MON: "Buy"}})

    # Bought at Tuesday's open: that bar is public at Tuesday's close.
    at_open = shown(snapshot, decided, "2024-03-05T14:30", entry_rule="next_open")
    at_noon = shown(snapshot, decided, "2024-03-05T17:00", entry_rule="next_open")
    at_close = shown(snapshot, decided, "2024-03-05T21:00", entry_rule="next_open")

    assert at_open.positions == at_noon.positions == ()
    assert at_close.positions[0].shares == pytest.approx(500 / 55, abs=NEAR)
    assert at_close.positions[0].price == 60.0


@pytest.mark.parametrize("entry_rule", ["next_open", "next_close", "close"])
def test_at_each_close_it_shows_what_the_whole_simulation_has_on_that_row(entry_rule: str) -> None:
    snapshot = committed_snapshot()
    start, end = date(2014, 4, 21), date(2014, 7, 18)
    calendar = calendar_by_code("XNYS")
    days = calendar.sessions(start, end)
    words = ("Buy", "Overweight", "Hold", "Underweight", "Sell", None)
    tickers = ("AAPL", "GOOG", "NFLX")
    decided = [
        Signal(ticker=ticker, session=when, rating=words[(7 * at + 3 * number) % 6])
        for at, when in enumerate(days)
        for number, ticker in enumerate(tickers)
    ]
    rule = make_rule(entry_rule=entry_rule, commission_bps=5, slippage_bps=5, cash_rate=0.02)
    whole = simulate(decided, snapshot=snapshot, rule=rule, start=start, end=end, tickers=tickers)
    book = ShownBook(snapshot=snapshot, rule=rule, tickers=tickers, start=start)

    for when, row in zip(days, whole.equity, strict=True):
        if entry_rule == "close":
            # Those of this cutoff are in the row, and not yet decided when the book is shown.
            book.decide([one for one in decided if one.session == when])
        state = book.at(calendar.close_utc(when))
        assert (state.cash, state.equity) == (row.cash, row.equity)
        held = {one.ticker: (one.shares, one.weight) for one in state.positions}
        rows = [one for one in whole.positions if one.session == when and one.shares]
        assert held == {one.ticker: (one.shares, one.weight) for one in rows}
        if entry_rule != "close":
            book.decide([one for one in decided if one.session == when])


def test_nothing_after_the_cutoff_can_change_what_is_shown() -> None:
    snapshot = two_for_one()
    decided = signals({"AAA": {MON: "Buy", TUE: "Sell"}, "BBB": {MON: "Buy", TUE: "Buy"}})
    poisoned = make_snapshot(
        {
            "AAA": [make_bar("AAA", MON, 100.0), make_bar("AAA", TUE, 600.0, open=550.0)],
            "BBB": closes({MON: 10.0, TUE: 77.0, WED: 99.0}),
        },
        actions=[split("AAA", WED, 5)],
    )

    rules: list[dict[str, Any]] = [{}, {"entry_rule": "next_open"}, {"entry_rule": "next_close"}]
    for rule in rules:
        for cutoff in ("2024-03-04T21:00", "2024-03-05T12:00"):
            right = shown(snapshot, decided[:1], cutoff, **rule)
            assert shown(poisoned, decided[:1], cutoff, **rule) == right


def test_an_empty_order_of_cutoffs_gives_the_same_as_beginning_anew_at_each() -> None:
    snapshot = two_for_one()
    book = ShownBook(
        snapshot=snapshot,
        rule=make_rule(entry_rule="next_open"),
        tickers=["AAA", "BBB"],
        start=day(MON),
    )
    decided: list[Signal] = []
    for session in (MON, TUE, WED):
        cutoff = f"{session}T21:00"
        assert book.at(utc(cutoff)) == shown(snapshot, decided, cutoff, entry_rule="next_open")
        new = signals({"AAA": {session: "Buy"}, "BBB": {session: "Overweight"}})
        book.decide(new)
        decided += new


def test_a_decision_that_comes_after_the_book_went_past_its_fill_is_an_error_not_a_later_fill() -> (
    None
):
    book = ShownBook(
        snapshot=two_for_one(), rule=make_rule(), tickers=["AAA", "BBB"], start=day(MON)
    )
    book.at(utc("2024-03-05T21:00"))
    # At the very instant is not too late: that decision is made on what was just shown.
    book.decide(signals({"AAA": {TUE: "Buy"}}))

    with pytest.raises(BacktesterError, match="BBB on 2024-03-04 came after the book was shown"):
        book.decide(signals({"BBB": {MON: "Buy"}}))
