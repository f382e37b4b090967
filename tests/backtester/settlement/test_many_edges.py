"""Many decisions settled at once where the drawn worlds do not go: late bars, bars in conflict."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backtester.snapshots.snapshot import Snapshot
from tests.backtester.settlement.test_many import cells_of, require_the_same
from tests.support.returns import utc
from tests.support.snapshots import Bar, make_bar, make_snapshot, sessions_of

DAYS = sessions_of("AAA", "2024-03-04", 8)
LATE = utc("2024-04-01T12:00")


def world(*more: Bar, late: frozenset[tuple[str, int]] = frozenset()) -> Snapshot:
    """Make a stock and its benchmark; some bars become public only after everything else."""
    bars: dict[str, list[Bar]] = {"AAA": [], "SPY": []}
    for ticker in bars:
        for at, day in enumerate(DAYS):
            bar = make_bar(ticker, day, 100.0 + at, open=99.0 + at)
            bars[ticker].append(replace(bar, known_at=LATE) if (ticker, at) in late else bar)
    for bar in more:
        bars[bar.instrument].append(bar)
    return make_snapshot(bars)


@pytest.mark.parametrize("ticker", ["AAA", "SPY"])
@pytest.mark.parametrize("entry_rule", ["next_open", "close"])
def test_a_bar_that_came_late_delays_every_return_that_it_is_in(
    ticker: str, entry_rule: str
) -> None:
    for at in range(4):
        require_the_same(
            cells_of(DAYS[:4], "AAA"),
            world(late=frozenset({(ticker, at)})),
            horizon=2,
            entry_rule=entry_rule,
            decision_time="close",
            benchmark="SPY",
        )


@pytest.mark.parametrize("ticker", ["AAA", "SPY"])
def test_bars_that_contradict_each_other_make_no_number_of_theirs(ticker: str) -> None:
    require_the_same(
        cells_of(DAYS[:4], "AAA"),
        world(make_bar(ticker, DAYS[3], 55.0)),
        horizon=2,
        entry_rule="next_open",
        decision_time="close",
        benchmark="SPY",
    )
