"""Many decisions settled at once have, row by row and bit by bit, what `settle` gives each."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backtester.calendar import calendar_by_code
from backtester.errors import DataError
from backtester.records import RATINGS, CellKey, CellRecord
from backtester.settlement.broker import ScoreRule, settle
from backtester.settlement.many import settle_all, table_of_returns
from backtester.snapshots.snapshot import Snapshot
from tests.support.books import committed_snapshot
from tests.support.records import make_cell
from tests.support.snapshots import (
    Action,
    Bar,
    dividend,
    make_bar,
    make_instrument,
    make_snapshot,
    sessions_of,
    split,
)

DAYS = sessions_of("AAA", "2024-03-04", 9)
TICKERS = ("AAA", "BBB", "7203.T", "SPY")


def cells_of(days: tuple[date, ...], *tickers: str) -> list[CellRecord]:
    """Make a decision for each ticker on each session of its calendar, and a second lane."""
    found = []
    for ticker in tickers:
        calendar = calendar_by_code("XTKS" if ticker.endswith(".T") else "XNYS")
        for at, day in enumerate(days):
            for trial in (0, 1):
                key = CellKey(session=day, ticker=ticker, trial=trial)
                rating = (*RATINGS, None)[(at + trial) % 6]
                if calendar.is_session(day):
                    found.append(make_cell(key, symbol=ticker, rating=rating))
    return sorted(found, key=lambda cell: cell.key)


def require_the_same(cells: list[CellRecord], snapshot: Snapshot, **rule: Any) -> None:
    """Compare all rows, every column of them."""
    rules = {cell.key.ticker: ScoreRule(**rule) for cell in cells}
    one_by_one = [
        settle(cell.key, cell.rating, snapshot=snapshot, rule=rules[cell.key.ticker])
        for cell in cells
    ]
    together = settle_all(cells, snapshot=snapshot, rules=rules)
    assert together.equals(table_of_returns(one_by_one))


@st.composite
def worlds(draw: st.DrawFn) -> Snapshot:
    """Draw prices with gaps, late bars, splits, dividends and an end of trading."""
    last = draw(st.sampled_from([None, None, DAYS[5]]))
    bars: dict[str, list[Bar]] = {ticker: [] for ticker in TICKERS}
    actions: list[Action] = []
    price = st.floats(min_value=0.5, max_value=500.0, allow_nan=False)
    for ticker in TICKERS:
        for day in DAYS:
            gone = ticker == "BBB" and last is not None and day > last
            if not gone and draw(st.integers(0, 11)):
                bars[ticker].append(make_bar(ticker, day, draw(price), open=draw(price)))
            befell = draw(st.integers(0, 11))
            if befell == 1:
                actions.append(split(ticker, day, *draw(st.sampled_from([(2, 1), (1, 10)]))))
            elif befell == 2:
                paid_in = draw(st.sampled_from(["", "", "EUR"]))
                amount = draw(st.floats(0.0, 5.0))
                extra = {"currency": paid_in} if paid_in else {}
                actions.append(dividend(ticker, day, amount, **extra))
    return make_snapshot(
        bars,
        actions=actions,
        instruments=[
            make_instrument("AAA"),
            make_instrument("BBB", last_session=last),
            make_instrument("7203.T"),
            make_instrument("SPY"),
        ],
        start=DAYS[0],
        end=DAYS[-1],
    )


@settings(max_examples=12, deadline=None)
@given(
    worlds(),
    st.sampled_from([1, 2, 5]),
    st.sampled_from([("close", "next_open"), ("close", "close"), ("open", "open")]),
    st.sampled_from([None, "SPY", "none", "AAA", "NOPE"]),
    st.sampled_from([0.0, 0.3]),
)
def test_whatever_prices_do(
    snapshot: Snapshot,
    horizon: int,
    when: tuple[Any, Any],
    benchmark: str | None,
    haircut: float,
) -> None:
    decision_time, entry_rule = when

    require_the_same(
        cells_of(DAYS, *TICKERS),
        snapshot,
        horizon=horizon,
        entry_rule=entry_rule,
        decision_time=decision_time,
        benchmark=benchmark,
        haircut=haircut,
    )


@pytest.mark.parametrize("benchmark", ["^GSPC", "AAPL", "none"])
def test_on_real_prices_over_a_split_and_dividends(benchmark: str) -> None:
    days = calendar_by_code("XNYS").sessions(date(2014, 5, 1), date(2014, 8, 29))
    cells = cells_of(days[::3], "AAPL", "GOOG", "^GSPC")

    for horizon in (1, 20):
        require_the_same(
            cells,
            committed_snapshot(),
            horizon=horizon,
            entry_rule="next_open",
            decision_time="close",
            benchmark=benchmark,
        )


def test_the_errors_are_those_of_one_decision() -> None:
    snapshot = make_snapshot({"AAA": [make_bar("AAA", day, 100.0) for day in DAYS]})
    rules = {"AAA": ScoreRule(horizon=1, entry_rule="close", decision_time="close")}
    sunday = CellKey(session=date(2024, 3, 10), ticker="AAA")
    key = CellKey(session=DAYS[0], ticker="AAA")

    with pytest.raises(DataError, match="no session"):
        settle_all([make_cell(sunday, symbol="AAA")], snapshot=snapshot, rules=rules)
    with pytest.raises(DataError, match="'Great' is no rating"):
        settle_all([make_cell(key, symbol="AAA", rating="Great")], snapshot=snapshot, rules=rules)
    assert settle_all([], snapshot=snapshot, rules=rules).num_rows == 0
