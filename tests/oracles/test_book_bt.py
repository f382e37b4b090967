"""Books against `bt`, an independent backtester: same bars, fills and commission, trade by trade.

`bt` sizes an order as this product does: the cash that it moves, commission included, is the
distance from the position to its target part of the equity. It knows one price a day, so books that
fill at the open are compared on opens and trades alone. It lets cash go below zero where buys
exceed it; the decisions here leave cash enough, and scaling is worked out by hand elsewhere.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import pytest

from backtester.book.simulation import BookResult, TargetSignal, simulate
from backtester.calendar import calendar_by_code
from backtester.snapshots.snapshot import Snapshot
from tests.support.books import committed_snapshot, make_rule
from tests.support.snapshots import to_table

# The product may take what is traded in millionths of a share; bt stops within 1e-8 of an amount.
NEAR = 1e-9
# Years without a split of these; dividends are left out on both sides.
START, END = date(2017, 7, 3), date(2018, 12, 31)
TICKERS = ("AAPL", "AMZN", "GOOG", "META", "NFLX", "NVDA")
DAYS = calendar_by_code("XNYS").sessions(START, END)

Commission = Callable[[float, float], float]


@dataclass(frozen=True, kw_only=True)
class Trade:
    """Hold one trade, shares above zero where they were bought."""

    ticker: str
    session: date
    shares: float
    price: float


@pytest.fixture(scope="module")
def bars() -> Snapshot:
    """Real bars without actions."""
    return committed_snapshot().replace_tables(actions=to_table("actions", []))


def decided(seed: int, weights: Sequence[float], *, often: float) -> list[TargetSignal]:
    """Draw decisions that stay for a while."""
    draw = random.Random(seed)
    return [
        TargetSignal(ticker=ticker, session=day, weight=draw.choice(weights))
        for day in DAYS
        for ticker in TICKERS
        if draw.random() < often
    ]


def by_bt(
    prices: Any,
    wanted: Mapping[date, Mapping[str, float]],
    commission: Commission,
) -> tuple[list[Trade], list[float]]:
    """Carry parts of the equity through `bt` and return its trades and the equity of each day."""
    with warnings.catch_warnings():
        # Of the packages that it loads.
        warnings.simplefilter("ignore")
        import bt

    class Wanted(bt.Algo):  # type: ignore[misc] - bt has no types
        def __call__(self, target: Any) -> bool:
            base = target.value
            for ticker, part in wanted.get(target.now.date(), {}).items():
                target.rebalance(part, ticker, base=base, update=False)
            target.root.update(target.now)
            return True

    strategy = bt.Strategy("book", [Wanted()], children=list(TICKERS))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        test = bt.Backtest(
            strategy,
            prices,
            initial_capital=1_000_000.0,
            commissions=commission,
            integer_positions=False,
            progress_bar=False,
        )
        test.run()
        made = test.strategy.get_transactions().reset_index()
    trades = [
        Trade(ticker=row.Security, session=row.Date.date(), shares=row.quantity, price=row.price)
        for row in made.itertuples()
    ]
    # Its first row is a day before the first price.
    return sorted(trades, key=_order), test.strategy.values.tolist()[1:]


def prices_of(bars: Snapshot, column: str) -> Any:
    """Return day by ticker of one price."""
    import pandas as pd

    columns = {}
    for ticker in TICKERS:
        rows = bars.bars(ticker)
        columns[ticker] = pd.Series(getattr(rows, column), index=pd.DatetimeIndex(rows.sessions))
    frame = pd.DataFrame(columns)
    return frame.loc[START.isoformat() : END.isoformat()]


def ours(book: BookResult) -> list[Trade]:
    """Return the book's trades."""
    made = [
        Trade(
            ticker=order.ticker,
            session=order.fill_session or order.session,
            shares=order.shares if order.side in ("buy", "cover") else -order.shares,
            price=order.price or 0.0,
        )
        for order in book.orders
        if order.status != "pending"
    ]
    return sorted(made, key=_order)


def _order(trade: Trade) -> tuple[date, str]:
    return trade.session, trade.ticker


def parts_by_day(
    signals: Sequence[TargetSignal], *, slots: int, lag: int, on_change: bool
) -> dict[date, dict[str, float]]:
    """Turn decisions into parts of the equity by the day of the fill, written for `bt`."""
    position = {day: at for at, day in enumerate(DAYS)}
    last = dict.fromkeys(TICKERS, 0.0)
    found: dict[date, dict[str, float]] = {}
    for signal in sorted(signals, key=lambda signal: (signal.session, signal.ticker)):
        at = position[signal.session] + lag
        if at >= len(DAYS) or signal.weight is None:
            continue
        if on_change and last[signal.ticker] == signal.weight:
            continue
        last[signal.ticker] = signal.weight
        found.setdefault(DAYS[at], {})[signal.ticker] = signal.weight / slots
    return found


def assert_same_trades(book: BookResult, theirs: Sequence[Trade]) -> None:
    """Compare trade by trade."""
    mine = ours(book)
    assert [(one.session, one.ticker) for one in mine] == [
        (one.session, one.ticker) for one in theirs
    ]
    for one, other in zip(mine, theirs, strict=True):
        assert one.price == other.price
        assert one.shares == pytest.approx(other.shares, rel=NEAR, abs=1e-9)


FEES: dict[str, tuple[Commission, dict[str, float]]] = {
    "none": (lambda q, p: 0.0, {}),
    "bps": (lambda q, p: abs(q) * p * 0.001, {"commission_bps": 10.0}),
    "per_share": (lambda q, p: abs(q) * 0.01, {"commission_per_share": 0.01}),
    "minimum": (
        lambda q, p: max(abs(q) * p * 0.0005, 35.0),
        {"commission_bps": 5.0, "commission_minimum": 35.0},
    ),
}


@pytest.mark.parametrize("fee", sorted(FEES))
@pytest.mark.parametrize(
    ("weights", "rebalance"),
    [
        ((0.0, 1.0), "on_change"),  # in and out, as the baselines trade
        ((0.0, 0.25, 0.75, 1.0), "on_change"),
        ((-1.0, -0.5, 0.5, 1.0), "on_change"),
        ((-1.0, -0.5, 0.0, 0.5, 1.0), "always"),
    ],
)
def test_trades_and_equity_are_those_of_bt(
    bars: Snapshot, fee: str, weights: tuple[float, ...], rebalance: Any
) -> None:
    commission, costs = FEES[fee]
    signals = decided(len(weights), weights, often=0.08)
    # Twice as many slots as tickers, so that cash never runs out.
    book = simulate(
        signals,
        snapshot=bars,
        rule=make_rule(
            **costs,
            start_cash=1_000_000.0,
            slots=12,
            rebalance=rebalance,
            entry_rule="next_close",
        ),
        start=START,
        end=END,
        tickers=TICKERS,
    )
    wanted = parts_by_day(signals, slots=12, lag=1, on_change=rebalance == "on_change")

    trades, equity = by_bt(prices_of(bars, "close"), wanted, commission)

    assert len(trades) > 80
    assert_same_trades(book, trades)
    assert [row.equity for row in book.equity] == pytest.approx(equity, rel=NEAR)
    charged = sum(order.commission for order in book.orders)
    assert charged == pytest.approx(
        sum(commission(one.shares, one.price) for one in trades), rel=NEAR
    )


def test_fills_at_the_open_are_those_of_bt_on_opens(bars: Snapshot) -> None:
    commission, costs = FEES["bps"]
    signals = decided(7, (0.0, 0.5, 1.0), often=0.1)
    book = simulate(
        signals,
        snapshot=bars,
        rule=make_rule(**costs, start_cash=1_000_000.0, slots=12, entry_rule="next_open"),
        start=START,
        end=END,
        tickers=TICKERS,
    )
    wanted = parts_by_day(signals, slots=12, lag=1, on_change=True)

    trades, _ = by_bt(prices_of(bars, "open"), wanted, commission)

    assert len(trades) > 80
    assert_same_trades(book, trades)


def test_a_book_of_equal_parts_that_is_rebalanced_every_day_is_that_of_bt(bars: Snapshot) -> None:
    commission, costs = FEES["bps"]
    signals = [
        TargetSignal(ticker=ticker, session=day, weight=1.0)
        for day in DAYS[:250]
        for ticker in TICKERS
    ]
    book = simulate(
        signals,
        snapshot=bars,
        rule=make_rule(
            **costs, start_cash=1_000_000.0, rebalance="always", entry_rule="next_close"
        ),
        start=START,
        end=END,
        tickers=TICKERS,
    )
    wanted = parts_by_day(signals, slots=6, lag=1, on_change=False)

    trades, equity = by_bt(prices_of(bars, "close"), wanted, commission)

    assert_same_trades(book, trades)
    assert [row.equity for row in book.equity] == pytest.approx(equity, rel=NEAR)
