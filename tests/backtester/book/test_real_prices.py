"""Books on real prices: they agree with public figures and with the returns of single decisions."""

from __future__ import annotations

from datetime import date

import pytest

from backtester.book.simulation import simulate
from backtester.calendar import calendar_by_code
from backtester.records import CellKey
from backtester.settlement.broker import ScoreRule, settle
from tests.support.books import committed_snapshot, make_rule, signals
from tests.support.returns import day

START, END = date(2018, 1, 2), date(2018, 12, 31)
# Closes of 2018-01-02 and 2018-12-31 as traded then, and the dividends of the time between (by ex
# date 2018-02-09, 05-11, 08-10, 11-08 for AAPL; 02-22, 05-23, 08-29, 11-29 for NVDA), as published
# by the exchanges and the companies. None of them split their shares in 2018.
PUBLIC = {
    "AAPL": (172.26, 157.74, 0.63 + 0.73 + 0.73 + 0.73),
    "AMZN": (1189.01, 1501.97, 0.0),
    "GOOG": (1065.00, 1035.61, 0.0),
    "META": (181.42, 131.09, 0.0),
    "NFLX": (201.07, 267.66, 0.0),
    "NVDA": (199.35, 133.50, 0.15 + 0.15 + 0.15 + 0.16),
}


@pytest.mark.parametrize("ticker", sorted(PUBLIC))
def test_buy_and_hold_over_2018_is_the_public_first_and_last_close(ticker: str) -> None:
    first, last, dividends = PUBLIC[ticker]

    book = simulate(
        signals({ticker: {"2018-01-02": "Buy"}}),
        snapshot=committed_snapshot(),
        rule=make_rule(),
        start=START,
        end=END,
    )

    (order,) = book.orders
    assert order.price == pytest.approx(first, abs=0.005)
    assert book.positions[-1].close == pytest.approx(last, abs=0.005)
    shares = 1_000 / order.price
    assert sum(row.dividends for row in book.equity) == pytest.approx(shares * dividends, abs=1e-9)
    right = (book.positions[-1].close + dividends) / order.price
    assert book.equity[-1].equity == pytest.approx(1_000 * right, abs=1e-9)
    assert book.equity[-1].equity / 1_000 == pytest.approx((last + dividends) / first, abs=1e-4)


@pytest.mark.parametrize("ticker", sorted(PUBLIC))
def test_buy_and_hold_pays_its_costs_once(ticker: str) -> None:
    costs = {"commission_bps": 10, "slippage_bps": 5}
    free, paid = (
        simulate(
            signals({ticker: {"2018-01-02": "Buy"}}),
            snapshot=committed_snapshot(),
            rule=make_rule(**changes),
            start=START,
            end=END,
        )
        for changes in ({}, costs)
    )

    # Each share costs 1.0005 * 1.001 of its price, so that many fewer are held.
    assert paid.equity[-1].equity * 1.0005 * 1.001 == pytest.approx(
        free.equity[-1].equity, abs=1e-9
    )


@pytest.mark.parametrize("ticker", ["AAPL", "NFLX", "NVDA", "GOOG"])
@pytest.mark.parametrize("entry_rule", ["next_open", "next_close", "close"])
def test_without_costs_a_window_is_worth_what_scoring_says_it_returned(
    ticker: str, entry_rule: str
) -> None:
    """Windows of 60 sessions one after the other, each begun with a new book; splits included."""
    snapshot = committed_snapshot()
    days = calendar_by_code("XNYS").sessions(day("2014-05-01"), END)
    for at in range(0, len(days) - 60, 60):
        start, end = days[at], days[at + 60]
        row = settle(
            CellKey(ticker=ticker, session=start),
            "Buy",
            snapshot=snapshot,
            rule=ScoreRule(
                horizon=60, entry_rule=entry_rule, decision_time="close", benchmark="none"
            ),
        )
        book = simulate(
            signals({ticker: {start: "Buy"}}),
            snapshot=snapshot,
            rule=make_rule(entry_rule=entry_rule),
            start=start,
            end=end,
        )
        assert row.raw_total is not None
        assert book.equity[-1].equity / 1_000 - 1 == pytest.approx(row.raw_total, abs=1e-12)
