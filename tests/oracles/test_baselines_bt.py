"""Books of the baselines against `bt`: what each rule wants, carried through, trade by trade."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backtester.baselines import BASELINES, PLACEBO, PRESETS, Histories, baseline
from backtester.book.simulation import simulate
from backtester.snapshots.snapshot import Snapshot
from tests.oracles.test_book_bt import (
    DAYS,
    END,
    FEES,
    NEAR,
    START,
    TICKERS,
    assert_same_trades,
    by_bt,
    parts_by_day,
    prices_of,
)
from tests.support.books import committed_snapshot, make_rule
from tests.support.snapshots import to_table

NAMES = [
    pytest.param(name, preset, id=f"{name}-{preset}" if preset else name)
    for name in BASELINES
    if name != PLACEBO
    for preset in PRESETS[name] or ("",)
]
# Every Friday or so, as a weekly run decides.
GRID = dict.fromkeys(TICKERS, DAYS[4:-5:5])


@pytest.fixture(scope="module")
def bars() -> Snapshot:
    """Real bars without actions."""
    return committed_snapshot().replace_tables(actions=to_table("actions", []))


@pytest.fixture(scope="module")
def histories(bars: Snapshot) -> Histories:
    return Histories(bars, "close")


@pytest.mark.parametrize(("name", "preset"), NAMES)
def test_the_trades_of_a_baseline_are_those_of_bt(
    name: str, preset: str, bars: Snapshot, histories: Histories
) -> None:
    commission, costs = FEES["bps"]
    found = baseline(
        name,
        preset,
        snapshot=bars,
        tickers=TICKERS,
        sessions=GRID,
        decision_time="close",
        histories=histories,
    )
    rule = make_rule(**costs, start_cash=1_000_000.0, slots=12, entry_rule="next_close")
    book = simulate(
        found.signals,
        snapshot=bars,
        rule=replace(rule, rebalance=found.rebalance or rule.rebalance),
        start=START,
        end=END,
        tickers=TICKERS,
    )
    wanted = parts_by_day(found.signals, slots=12, lag=1, on_change=found.rebalance is None)

    trades, equity = by_bt(prices_of(bars, "close"), wanted, commission)

    assert len(trades) >= len(TICKERS) or (name, preset) == ("kdj_rsi", "textbook")
    assert trades
    assert_same_trades(book, trades)
    assert [row.equity for row in book.equity] == pytest.approx(equity, rel=NEAR)
