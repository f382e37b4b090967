"""Books in one walk are those that one at a time gives also where the drawn worlds do not go.

Another currency with its own holidays, an equity of exactly nothing, indices, opens as cutoffs,
bars that contradict each other, decisions after the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from backtester.book.account import Account
from backtester.book.lines import stage_of
from backtester.book.simulation import Bench, BookResult, TargetSignal
from backtester.book.tape import Tape
from backtester.errors import BacktesterError
from backtester.snapshots.snapshot import Snapshot
from tests.support.books import make_rule
from tests.support.returns import day
from tests.support.snapshots import (
    closes,
    dividend,
    make_bars,
    make_instrument,
    make_snapshot,
    split,
)

MON, TUE, WED, THU, FRI = (f"2024-03-{at:02}" for at in range(4, 9))
WEEK = (MON, TUE, WED, THU, FRI)
Weights = Mapping[str, Mapping[str, float]]


def played_alike(
    snapshot: Snapshot,
    weights: Weights,
    *,
    end: str = FRI,
    currency: str | None = None,
    **rule: Any,
) -> BookResult:
    """Play a book alone and beside one that does nothing, compare every record, return it."""
    tickers = sorted(weights)
    bench = Bench(
        snapshot=snapshot, tickers=tickers, start=day(MON), end=day(end), currency=currency
    )
    made = make_rule(**rule)
    alone = bench.simulate(
        [
            TargetSignal(ticker=ticker, session=day(when), weight=weight)
            for ticker, path in weights.items()
            for when, weight in path.items()
        ],
        made,
    )
    together = bench.play(
        {ticker: [day(when) for when in path] for ticker, path in weights.items()},
        {
            ticker: np.array([[np.nan, weight] for weight in path.values()]).reshape(-1, 2)
            for ticker, path in weights.items()
        },
        made,
        kept=2,
        with_positions=2,
    )
    idle, kept = together.books
    assert list(kept.orders) == list(alone.orders)
    assert list(kept.positions) == list(alone.positions)
    assert list(kept.equity) == list(alone.equity)
    assert list(idle.orders) == list(idle.positions) == []
    return alone


def at(days: Sequence[str], *prices: float) -> list[Any]:
    return closes(zip(days, prices, strict=True))


def yen() -> Snapshot:
    """A stock in yen that splits and pays, one in dollars, and a pair that misses a day."""
    return make_snapshot(
        {
            "7203.T": make_bars("7203.T", at(WEEK, 1_000, 1_100, 560, 570, 550), currency="JPY"),
            "AAA": make_bars("AAA", at(WEEK, 50, 51, 49, 52, 53), currency="USD"),
            "USDJPY=X": make_bars(
                "USDJPY=X", at(("2024-03-01", MON, TUE, THU, FRI), 100, 125, 120, 110, 115)
            ),
        },
        actions=[
            split("7203.T", WED, 2),
            dividend("7203.T", THU, 10.0, currency="JPY"),
        ],
        instruments=[
            make_instrument("7203.T", currency="JPY"),
            make_instrument("AAA", currency="USD"),
            make_instrument("USDJPY=X", asset_type="fx"),
        ],
        start=MON,
    )


@pytest.mark.parametrize("entry_rule", ["close", "next_open", "next_close"])
def test_a_book_in_two_currencies_with_every_cost(entry_rule: str) -> None:
    book = played_alike(
        yen(),
        {
            "7203.T": {MON: 0.5, TUE: -0.5, WED: -0.5, THU: 1.0},
            "AAA": {MON: 1.0, TUE: 0.25, WED: 1.0, FRI: 0.0},
        },
        currency="USD",
        entry_rule=entry_rule,
        commission_bps=10,
        commission_per_share=0.02,
        commission_minimum=1.5,
        slippage_bps=20,
        impact_bps=100,
        borrow_bps_year=400,
        cash_rate=0.04,
        rebalance="always",
    )
    assert {order.currency for order in book.orders} == {"JPY", "USD"}
    assert any(row.stale for row in book.equity)
    assert any(row.slippage for row in book.equity)


def test_an_equity_of_exactly_nothing() -> None:
    book = played_alike(
        make_snapshot({"AAA": at((MON, TUE), 100, 200), "BBB": at((MON, TUE), 10, 10)}),
        {"AAA": {MON: -1.0}, "BBB": {TUE: 1.0}},
        end=TUE,
        slots=1,
    )
    assert book.orders[-1].reason == "no_equity"


def test_a_cover_without_free_cash_and_positions_at_their_targets() -> None:
    snapshot = make_snapshot(
        {"AAA": at((MON, TUE, WED), 100, 200, 200), "BBB": at((MON, TUE, WED), 50, 50, 50)}
    )
    book = played_alike(
        snapshot, {"AAA": {MON: -0.5, TUE: -0.25}, "BBB": {MON: 1.0}}, end=WED, slots=1
    )
    assert [order.side for order in book.orders] == ["short", "buy", "cover"]
    rests = played_alike(
        snapshot, {"BBB": {MON: 1.0, TUE: 1.0, WED: 1.0}}, end=WED, rebalance="always"
    )
    assert len(rests.orders) == 1


def test_an_index_at_its_open_and_decisions_at_the_open() -> None:
    snapshot = make_snapshot(
        {"^GSPC": at(WEEK, 10, 11, 12, 11, 13), "AAA": at(WEEK, 10, 9, 8, 9, 10)}
    )
    book = played_alike(
        snapshot,
        {"^GSPC": {MON: 1.0, WED: 0.0}, "AAA": {TUE: 0.75, THU: 0.25}},
        decision_time="open",
        entry_rule="open",
    )
    flags = {order.ticker: order.flags for order in book.orders}
    assert flags == {"^GSPC": ("index_open", "same_bar"), "AAA": ("same_bar",)}


def test_bars_in_conflict_a_ticker_that_ends_and_decisions_after_the_end() -> None:
    twice = [*at(WEEK, 10, 11, 12, 11, 13), *at((TUE,), 12)]
    snapshot = make_snapshot(
        {"AAA": twice, "BBB": at((MON, TUE, WED), 20, 21, 22), "CCC": at(WEEK, 5, 6, 7, 6, 5)},
        instruments=[
            make_instrument("AAA"),
            make_instrument("BBB", last_session=WED),
            make_instrument("CCC", first_session=TUE),
        ],
    )
    book = played_alike(
        snapshot,
        {
            "AAA": {MON: 1.0, TUE: 1.0, FRI: 0.0},
            "BBB": {MON: -1.0, WED: 1.0},
            "CCC": {MON: 0.5, FRI: -1.0},
        },
        entry_rule="next_open",
        haircut=0.2,
    )
    assert {(order.status, order.reason) for order in book.orders} == {
        ("filled", None),
        ("rejected", "conflict"),
        ("rejected", "delisted"),
        ("pending", "after_end"),
    }
    assert ("delisted", "haircut") in {order.flags for order in book.orders}


def test_a_book_that_does_not_balance_is_not_handed_out() -> None:
    """The identity is no ornament: a cent too many in cash, or on the tape, ends the book."""
    stage = stage_of(make_snapshot({"AAA": at((MON,), 10)}), ["AAA"], start=day(MON), end=day(MON))
    account = Account(stage.lines, cash=1_000.0, currency="USD")
    account.trade(0, shares=5.0, price=10.0, commission=1.0, day=day(MON))
    account.mark(0, 0)
    account.require_balance(day(MON))
    account.cash += 0.01
    with pytest.raises(BacktesterError, match="the book of 2024-03-04 does not balance"):
        account.require_balance(day(MON))

    cash, nothing, one = np.array([1_000.0]), np.zeros((1, 1)), np.ones((1, 1))
    tape = Tape(stage, make_rule(), asks=0, books=1, of=1, rates=one)
    tape.row(cash, nothing, nothing, one)
    tape.require_balance(np.array([[1_000.0]]))
    with pytest.raises(BacktesterError, match="the book of 2024-03-04 does not balance"):
        tape.require_balance(np.array([[1_000.01]]))


def test_a_fill_at_the_close_of_what_was_decided_at_its_open_is_not_in_the_same_instant() -> None:
    book = played_alike(
        make_snapshot({"AAA": at(WEEK, 10, 9, 8, 9, 10)}),
        {"AAA": {MON: 1.0, WED: 0.5}},
        decision_time="open",
        entry_rule="close",
    )
    assert [order.flags for order in book.orders] == [(), ()]


def test_an_order_is_pending_where_the_data_end_before_the_declared_range() -> None:
    book = played_alike(
        make_snapshot({"AAA": at((MON, TUE), 100, 110)}, end=WED),
        {"AAA": {MON: 0.5, TUE: 1.0}},
        end=WED,
        entry_rule="next_open",
    )
    assert [(order.status, order.reason) for order in book.orders] == [
        ("filled", None),
        ("pending", "after_end"),
    ]


def test_a_book_all_of_whose_orders_fill_after_the_end_is_cash() -> None:
    book = played_alike(
        make_snapshot({"AAA": at((MON, TUE), 100, 110)}),
        {"AAA": {TUE: 1.0}},
        end=TUE,
        entry_rule="next_open",
    )
    assert [order.status for order in book.orders] == ["pending"]
    assert {row.equity for row in book.equity} == {1_000.0}


def test_two_closes_of_one_ticker_that_become_known_together_mark_no_other() -> None:
    """Late on Tuesday Monday's bar of AAA is there too; BBB has none of that day."""
    late, *rest = make_bars("AAA", at((MON, TUE), 10, 12))
    book = played_alike(
        make_snapshot(
            {
                "AAA": [replace(late, known_at=rest[0].known_at), *rest],
                "BBB": at((MON,), 20),
                "CCC": at((MON, TUE), 5, 6),
            },
            end=TUE,
        ),
        {"AAA": {TUE: 1.0}, "BBB": {MON: 1.0}, "CCC": {MON: 1.0}},
        end=TUE,
        slots=2,
    )
    # 500 in BBB at 20 and 500 in CCC at 5, which gains a fifth; AAA finds no cash.
    assert [row.equity for row in book.equity] == [1_000.0, 1_100.0]
    assert [row.close for row in book.positions if row.ticker == "BBB"] == [20.0, 20.0]


@pytest.mark.parametrize("books", [1, 3])
def test_sums_over_many_tickers_are_taken_one_by_one(books: int) -> None:
    """Numpy adds eight and more numbers in pairs where it may; a book of one ticker must not."""
    tickers = [f"T{letter}" for letter in "ABCDEFGHIJKLMNOPQRST"]
    draw = np.random.default_rng(5)
    bench = Bench(
        snapshot=make_snapshot(
            {name: at(WEEK, *draw.uniform(1.0, 90.0, len(WEEK))) for name in tickers}
        ),
        tickers=tickers,
        start=day(MON),
        end=day(FRI),
    )
    days = [day(when) for when in WEEK]
    weights = {name: draw.choice([-1.0, 0.0, 0.3, 1.0], (len(WEEK), books)) for name in tickers}
    rule = make_rule(commission_bps=3, slippage_bps=7, cash_rate=0.03, borrow_bps_year=70)

    together = bench.play(dict.fromkeys(tickers, days), weights, rule, kept=books)

    for book in range(books):
        alone = bench.simulate(
            [
                TargetSignal(ticker=name, session=when, weight=float(wanted))
                for name in tickers
                for when, wanted in zip(days, weights[name][:, book], strict=True)
            ],
            rule,
        )
        assert list(together.books[book].equity) == list(alone.equity)
        assert list(together.books[book].orders) == list(alone.orders)


def test_a_rating_that_comes_again_with_fewer_slots_trades_back_to_its_slot() -> None:
    """CCC is listed on Wednesday: from then on a slot is a third, whatever AAA stands at."""
    book = played_alike(
        make_snapshot(
            {
                "AAA": at(WEEK, 10, 10, 10, 10, 10),
                "BBB": at(WEEK, 5, 5, 5, 5, 5),
                "CCC": at(WEEK, 2, 2, 2, 2, 2),
            },
            instruments=[
                make_instrument("AAA"),
                make_instrument("BBB"),
                make_instrument("CCC", first_session=WED),
            ],
        ),
        {"AAA": {MON: 1.0, TUE: 1.0, WED: 1.0, THU: 1.0}, "BBB": {MON: 0.0}, "CCC": {FRI: 0.0}},
    )
    assert [(order.session, order.side, order.shares) for order in book.orders] == [
        (day(MON), "buy", 50.0),
        (day(WED), "sell", pytest.approx(50.0 - 100.0 / 3.0)),
    ]
