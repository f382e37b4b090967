"""The mean path of prices around decisions, by hand."""

from __future__ import annotations

import pytest

from backtester.score.event_study import OFFSETS, event_study
from backtester.score.records import EventRow
from backtester.settlement.decided import Decided
from backtester.snapshots.snapshot import Snapshot
from tests.support.scores import decided
from tests.support.snapshots import closes, dividend, make_snapshot, sessions_of, split

DAYS = sessions_of("AAA", "2018-01-02", 40)
AT = 12


def studied(
    snapshot: Snapshot, *events: tuple[str, str | None], benchmark: str = "^GSPC"
) -> tuple[EventRow, ...]:
    """Study ratings of tickers given on one day."""
    cells = [decided(ticker, DAYS[AT], rating) for ticker, rating in events]
    return event_study(Decided.of(cells), {ticker: benchmark for ticker, _ in events}, snapshot)


def rows_at(rows: tuple[EventRow, ...], rating: str) -> dict[int, EventRow]:
    return {row.session_offset: row for row in rows if row.rating == rating}


def test_the_path_runs_through_zero_at_the_decision_and_is_less_the_benchmarks() -> None:
    prices = dict.fromkeys(DAYS, 100.0) | {DAYS[AT + 1]: 110.0, DAYS[AT - 1]: 80.0}
    index = dict.fromkeys(DAYS, 1000.0) | {DAYS[AT + 1]: 1020.0, DAYS[AT - 1]: 1250.0}
    snapshot = make_snapshot({"AAA": closes(prices), "^GSPC": closes(index)})

    found = rows_at(studied(snapshot, ("AAA", "Buy")), "Buy")

    assert set(found) == set(OFFSETS)
    assert found[0].mean_path == 0.0
    assert found[1].mean_path == pytest.approx(0.10 - 0.02)
    assert found[1].mean_excess == pytest.approx(0.10 - 0.02)
    assert found[2].mean_excess == pytest.approx((100 / 110 - 1) - (1000 / 1020 - 1))
    # From 80 to 100 the stock made 25 %, the index lost 20 %: with its sign turned.
    assert found[-1].mean_path == pytest.approx(-((100 / 80 - 1) - (1000 / 1250 - 1)))
    assert found[20].n == 1


def test_each_rating_has_its_own_mean_and_deviation() -> None:
    snapshot = make_snapshot(
        {
            "AAA": closes({day: 100.0 * (1.01 if day > DAYS[AT] else 1.0) for day in DAYS}),
            "BBB": closes({day: 100.0 * (1.03 if day > DAYS[AT] else 1.0) for day in DAYS}),
            "^GSPC": closes((day, 1000.0) for day in DAYS),
        }
    )

    rows = studied(snapshot, ("AAA", "Buy"), ("BBB", "Buy"), ("BBB", None))

    buy = rows_at(rows, "Buy")[1]
    assert (buy.n, buy.mean_path) == (2, pytest.approx(0.02))
    assert buy.stddev_path == pytest.approx(0.02 / 2**0.5)
    unread = rows_at(rows, "unread")[1]
    assert (unread.n, unread.stddev_path) == (1, None)


def test_splits_are_carried_and_a_price_index_takes_no_dividend() -> None:
    prices = {day: (50.0 if day > DAYS[AT] else 100.0) for day in DAYS}
    bars = {"AAA": closes(prices), "^GSPC": closes((day, 1000.0) for day in DAYS)}
    actions = [split("AAA", DAYS[AT + 1], 2), dividend("AAA", DAYS[AT + 1], 1.0)]

    price = rows_at(studied(make_snapshot(bars, actions=actions), ("AAA", "Sell")), "Sell")
    assert price[1].mean_path == pytest.approx(0.0, abs=1e-15)

    from tests.support.snapshots import make_instrument

    total = make_snapshot(
        {**bars, "BBB": closes((day, 10.0) for day in DAYS)},
        actions=actions,
        instruments=[make_instrument("BBB", basis="total")],
    )
    # Two shares at 50 and two dollars, of 100.
    found = rows_at(studied(total, ("AAA", "Sell"), benchmark="BBB"), "Sell")
    assert found[1].mean_path == pytest.approx(0.02)


def test_an_offset_without_both_closes_is_left_out_and_counted() -> None:
    days = [day for at, day in enumerate(DAYS) if at != AT + 3]
    snapshot = make_snapshot(
        {"AAA": closes((day, 100.0) for day in days), "^GSPC": closes((d, 9.0) for d in DAYS)}
    )

    found = rows_at(studied(snapshot, ("AAA", "Hold")), "Hold")

    assert (found[3].n, found[3].mean_path, found[3].reason) == (0, None, "no_rows")
    assert (found[4].n, found[4].mean_excess) == (1, None)


def test_without_a_benchmark_there_is_no_path() -> None:
    snapshot = make_snapshot({"AAA": closes((day, 100.0) for day in DAYS)})

    assert {row.n for row in studied(snapshot, ("AAA", "Buy"), benchmark="none")} == {0}
