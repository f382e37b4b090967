"""Baselines carried through a book: on which bars each of them trades, known by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backtester.baselines import baseline
from backtester.book.simulation import BookResult, simulate
from tests.support.books import make_rule
from tests.support.snapshots import closes, make_snapshot, sessions_of

START = "2018-01-02"
FALL_AND_RISE = [100.0 - i for i in range(30)] + [71.0 + i for i in range(1, 41)] + [110.0, 110.0]


def played(name: str, preset: str, paths: dict[str, list[float]]) -> BookResult:
    """Decide on every session of some paths, and fill at the open after it."""
    count = max(map(len, paths.values()))
    days = tuple(sessions_of("AAA", START, count))
    snapshot = make_snapshot(
        {ticker: closes(zip(days, path, strict=True)) for ticker, path in paths.items()}
    )
    found = baseline(
        name,
        preset,
        snapshot=snapshot,
        tickers=tuple(paths),
        sessions=dict.fromkeys(paths, days),
        decision_time="close",
    )
    rule = make_rule(entry_rule="next_open")
    return simulate(
        found.signals,
        snapshot=snapshot,
        rule=replace(rule, rebalance=found.rebalance or rule.rebalance),
        start=days[0],
        end=days[-1],
        tickers=tuple(paths),
    )


@pytest.mark.parametrize(
    ("name", "preset", "path", "trades"),
    [
        # The mean of 10 is above that of 20 with the first 12; of the 8s the fourth brings it
        # below: 10.4 against 10.6.
        pytest.param(
            *("sma_cross", "finagent", [10.0] * 25 + [12.0] * 10 + [8.0] * 6),
            [("buy", 26), ("sell", 39)],
            id="sma_cross",
        ),
        # A step up lifts EMA(7) over EMA(14), and the line over its signal line; a step down by
        # two brings them to 9.9375 and 9.982, the line to -0.045 and its signal line to 0.0097.
        pytest.param(
            *("macd", "finagent", [10.0] * 30 + [11.0, 9.0, 9.0]),
            [("buy", 31), ("sell", 32)],
            id="macd",
        ),
        # 9 is ten deviations below a mean of 10.1; 10.1 is within one; 12 is far above.
        pytest.param(
            *("zmr", "textbook", [10.0, 10.2] * 10 + [9.0, 10.1, 10.1, 12.0, 12.0]),
            [("buy", 21), ("sell", 24)],
            id="zmr",
        ),
        # 29 falls, one rise and more; the first fall after 40 rises.
        pytest.param(
            *("kdj_rsi", "textbook", FALL_AND_RISE), [("buy", 31), ("sell", 71)], id="kdj_rsi"
        ),
    ],
)
def test_a_rule_trades_on_the_bars_after_its_signals(
    name: str, preset: str, path: list[float], trades: list[tuple[str, int]]
) -> None:
    days = sessions_of("AAA", START, len(path))
    book = played(name, preset, {"AAA": path})
    made = [(o.side, o.fill_session) for o in book.orders if o.status != "pending"]
    assert made == [(side, days[place]) for side, place in trades]


def test_buy_and_hold_keeps_what_it_bought_and_equal_weight_does_not() -> None:
    # 500 each: 50 shares at 10. AAA opens at 20 on the third day: 1,500 in all, 750 each.
    paths = {"AAA": [10.0, 10.0, 20.0, 20.0], "BBB": [10.0] * 4}
    held = played("buy_and_hold", "", paths)
    bought = [(o.ticker, o.side, o.shares) for o in held.orders if o.status == "filled"]
    assert bought == [
        ("AAA", "buy", 50.0),
        ("BBB", "buy", 50.0),
    ]
    assert held.equity[-1].equity == 1500.0

    equal = played("equal_weight", "", paths)
    third = sessions_of("AAA", START, 4)[2]
    turned = [(o.ticker, o.side, o.shares) for o in equal.orders if o.fill_session == third]
    assert turned == [("AAA", "sell", 12.5), ("BBB", "buy", 25.0)]
