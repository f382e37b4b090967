"""Books that trade in their first session: what its date and the benchmark's start are, by hand."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Any

import pytest

from backtester.book.costs import Costs
from backtester.score.compute import Score
from backtester.snapshots.snapshot import Snapshot
from tests.support.scores import decided, figure, scored
from tests.support.snapshots import BarTuple, closes, make_snapshot, sessions_of

DAYS = sessions_of("AAA", "2018-01-02", 253)
HELD = dict.fromkeys(DAYS, 100.0) | {DAYS[-1]: 200.0}
NEAR = 1e-12


def doubled(entry_rule: str, snapshot: Snapshot, **changes: Any) -> Score:
    """Hold one stock from the first session to the last, without costs."""
    cells = [decided("AAA", DAYS[0], "Buy")]
    rules = {"decision_time": "open", "entry_rule": entry_rule, "costs": Costs()}
    return scored(cells, snapshot, horizon=252, horizons=(252,), **rules, **changes)


def flat_bars(worth: Mapping[date, float], *, first_open: float = 100.0) -> list[BarTuple]:
    """Make bars of one price each; the very first opens elsewhere."""
    first, *rest = worth.items()
    day, price = first
    low, high = min(first_open, price), max(first_open, price)
    return [(day, first_open, high, low, price, 1_000), *closes(rest)]


@pytest.mark.parametrize("entry_rule", ["open", "close"])
def test_a_doubling_from_one_day_to_the_same_a_year_later_is_a_hundred_percent_a_year(
    entry_rule: str,
) -> None:
    assert (DAYS[0], DAYS[-1]) == (date(2018, 1, 2), date(2019, 1, 3))
    days = DAYS[:-1]
    worth = dict.fromkeys(days, 100.0) | {days[-1]: 200.0}
    snapshot = make_snapshot({"AAA": flat_bars(worth)})

    score = doubled(entry_rule, snapshot)

    assert days[-1] == date(2019, 1, 2)
    assert figure(score, "years", subject="ratings").value == 1.0
    assert figure(score, "cagr", subject="ratings").value == pytest.approx(1.0, abs=NEAR)


@pytest.mark.parametrize(("entry_rule", "paid"), [("open", 80.0), ("close", 100.0)])
def test_the_benchmark_starts_where_the_first_orders_fill(entry_rule: str, paid: float) -> None:
    # Both rise from 80 to 100 in the first session and stand still until the last one's 200.
    snapshot = make_snapshot({name: flat_bars(HELD, first_open=80.0) for name in ("AAA", "BBB")})

    score = doubled(entry_rule, snapshot, benchmark="BBB")

    own = figure(score, "total_return", subject="ratings")
    other = figure(score, "benchmark_return", subject="ratings")
    assert own.value == pytest.approx(200 / paid - 1, abs=NEAR)
    assert other.value == pytest.approx(200 / paid - 1, abs=NEAR)
    assert figure(score, "beta", subject="ratings").value == pytest.approx(1.0, abs=NEAR)
