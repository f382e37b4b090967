"""Many books in one walk are, bit by bit, the books that one at a time gives."""

from __future__ import annotations

from datetime import date
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backtester.book.simulation import Bench, TargetSignal
from backtester.calendar import calendar_by_code
from backtester.errors import DataError, UsageError
from tests.backtester.book.test_properties import DAYS, TICKERS, World, few, rules, weight, worlds
from tests.support.books import committed_snapshot, make_rule
from tests.support.snapshots import closes, dividend, make_bars, make_instrument, make_snapshot

BOOKS = 4


@few
@given(
    worlds(),
    rules(),
    st.lists(
        st.lists(weight, min_size=len(DAYS), max_size=len(DAYS)),
        min_size=BOOKS * len(TICKERS),
        max_size=BOOKS * len(TICKERS),
    ),
)
def test_each_of_many_books_is_to_the_last_bit_what_it_is_alone(
    world: World, rule: dict[str, Any], drawn: list[list[float | None]]
) -> None:
    sessions = {
        name: [day for day in DAYS if calendar_by_code(code).is_session(day)]
        for name, code in (("AAA", "XNYS"), ("BBB", "XNYS"), ("7203.T", "XTKS"))
    }
    weights = {
        ticker: np.array(
            [
                [
                    np.nan if one is None else one
                    for one in drawn[number * BOOKS + book][: len(sessions[ticker])]
                ]
                for book in range(BOOKS)
            ]
        )
        for number, ticker in enumerate(sessions)
    }
    bench = Bench(snapshot=world.snapshot(), tickers=TICKERS, start=DAYS[0], end=DAYS[-1])

    together = bench.play(
        sessions,
        {ticker: rows.T for ticker, rows in weights.items()},
        make_rule(**rule),
        kept=3,
        with_positions=2,
        always=[False, False, True, False],
    )

    for book in range(BOOKS):
        trade_back = {"rebalance": "always"} if book == 2 else {}
        alone = bench.simulate(
            [
                TargetSignal(
                    ticker=ticker, session=day, weight=None if np.isnan(wanted) else float(wanted)
                )
                for ticker, days in sessions.items()
                for day, wanted in zip(days, weights[ticker][book], strict=True)
            ],
            make_rule(**{**rule, **trade_back}),
        )
        assert together.equity[:, book].tolist() == [row.equity for row in alone.equity]
        if book < 3:
            kept = together.books[book]
            assert list(kept.orders) == list(alone.orders)
            assert list(kept.equity) == list(alone.equity)
            assert list(kept.positions) == list(alone.positions if book < 2 else ())
            assert (kept.start_cash, kept.currency) == (alone.start_cash, alone.currency)
            assert kept.fills_first == alone.fills_first


@pytest.mark.parametrize("entry_rule", ["next_open", "close"])
def test_on_real_prices_too(entry_rule: str) -> None:
    tickers, start, end = ("AAPL", "GOOG", "NFLX", "NVDA"), date(2014, 4, 1), date(2014, 9, 30)
    days = calendar_by_code("XNYS").sessions(start, end)
    draw = np.random.default_rng(1)
    weights = {
        ticker: draw.choice([np.nan, 0.0, 0.25, 0.75, 1.0], size=(3, len(days)))
        for ticker in tickers
    }
    bench = Bench(snapshot=committed_snapshot(), tickers=tickers, start=start, end=end)
    rule = make_rule(entry_rule=entry_rule, commission_bps=5, slippage_bps=5, impact_bps=100)

    together = bench.equities(dict.fromkeys(tickers, days), weights, rule)

    for book in range(3):
        signals = [
            TargetSignal(ticker=ticker, session=day, weight=None if np.isnan(one) else float(one))
            for ticker in tickers
            for day, one in zip(days, weights[ticker][book], strict=True)
        ]
        alone = bench.simulate(signals, rule)
        assert together[book].tolist() == [row.equity for row in alone.equity]


def test_foreign_currencies_are_converted_alike() -> None:
    ticker, pair = "7203.T", "USDJPY=X"
    yen = closes({"2024-03-04": 1_000.0, "2024-03-05": 1_100.0})
    snapshot = make_snapshot(
        {
            ticker: make_bars(ticker, yen, currency="JPY"),
            pair: make_bars(pair, closes({"2024-03-01": 100.0, "2024-03-04": 125.0})),
        },
        instruments=[
            make_instrument(ticker, currency="JPY"),
            make_instrument(pair, asset_type="fx"),
        ],
        start="2024-03-04",
    )
    monday = date(2024, 3, 4)
    bench = Bench(
        snapshot=snapshot, tickers=[ticker], start=monday, end=date(2024, 3, 5), currency="USD"
    )

    (book,) = bench.equities({ticker: [monday]}, {ticker: np.array([[1.0]])}, make_rule())

    # 100 shares of 10 dollars, then of 1,100 / 125 = 8.80
    assert book.tolist() == pytest.approx([1_000.0, 880.0], abs=1e-9)


def test_weights_that_do_not_fit_are_refused() -> None:
    snapshot = make_snapshot(
        {"AAA": closes({"2024-03-04": 100.0, "2024-03-05": 100.0})},
        actions=[dividend("AAA", "2024-03-05", 1.0, currency="EUR")],
    )
    days = [date(2024, 3, 4), date(2024, 3, 5)]
    bench = Bench(snapshot=snapshot, tickers=["AAA"], start=days[0], end=days[1])

    with pytest.raises(UsageError, match="not 2 books by 2 sessions"):
        bench.equities({"AAA": days}, {"AAA": np.zeros((2, 1))}, make_rule())
    with pytest.raises(UsageError, match="AAA is not from -1 to 1"):
        bench.equities({"AAA": days}, {"AAA": np.full((2, 2), 1.5)}, make_rule())
    with pytest.raises(UsageError, match="two decisions for AAA"):
        bench.equities({"AAA": [days[0]] * 2}, {"AAA": np.zeros((2, 2))}, make_rule())
    with pytest.raises(UsageError, match="rule's currency is EUR"):
        bench.equities({"AAA": days}, {"AAA": np.zeros((2, 2))}, make_rule(currency="EUR"))
    # One of the books holds what pays a dividend that cannot be believed.
    with pytest.raises(DataError, match="is in EUR"):
        bench.equities({"AAA": days}, {"AAA": np.array([[0.0, 0.0], [1.0, 1.0]])}, make_rule())
    none = bench.equities({"AAA": days}, {"AAA": np.zeros((2, 2))}, make_rule())
    assert none.tolist() == [[1_000.0, 1_000.0], [1_000.0, 1_000.0]]
