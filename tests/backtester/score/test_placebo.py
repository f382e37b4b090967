"""Many random books at once are the random books one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from backtester.baselines.placebo import STATES, model_of, random_ratings
from backtester.book.simulation import Signal, simulate
from backtester.records import RATINGS
from backtester.score.books import Stage, stage_of
from backtester.score.placebo import placebo_figures, random_states, random_weights
from backtester.score.records import MetricRow
from backtester.settlement.decided import Decided
from backtester.snapshots.snapshot import Snapshot
from backtester.statistics.metrics import performance
from tests.support.scores import decided, make_definition
from tests.support.snapshots import dividend, make_snapshot, sessions_of, split
from tests.support.workspaces import wave

DAYS = sessions_of("AAA", "2018-01-02", 40)
CELLS = [
    decided(ticker, day, (*RATINGS, None)[(at * at + 5 * at // 3 + ord(ticker[0])) % 6])
    for ticker in ("AAA", "BBB")
    for at, day in enumerate(DAYS[:25])
]
OWN = [Signal(ticker=c.key.ticker, session=c.key.session, rating=c.rating) for c in CELLS]


@pytest.fixture(scope="module")
def snapshot() -> Snapshot:
    return make_snapshot(
        {
            name: wave(name, start="2017-12-01", count=90, phase=phase, drift=0.001)
            for name, phase in (("AAA", 0.0), ("BBB", 2.0))
        },
        actions=[split("AAA", DAYS[8], 2), dividend("BBB", DAYS[11], 0.5)],
    )


def played(stage: Stage) -> tuple[MetricRow, ...]:
    """Return the figures of random books, played by themselves."""
    weights = random_weights(Decided.of(CELLS), stage)
    books = stage.bench.play(stage.grids, weights, stage.definition.book_rule())
    return tuple(placebo_figures((), books.equity, stage))


def test_the_paths_are_those_of_the_single_draws() -> None:
    model = model_of(OWN, persistent=True)
    grids = {"AAA": DAYS[:25], "BBB": DAYS[3:20]}

    # A large seed is more than one word to the generator.
    seeds = (0, 1, 4, 2**32 - 1, 2**32, 2**40 + 7, 2**64)

    many = random_states(model, grids, seeds=seeds)

    for place, seed in enumerate(seeds):
        one = {(s.ticker, s.session): s.rating for s in random_ratings(model, grids, seed=seed)}
        for ticker, days in grids.items():
            drawn = [STATES[state] for state in many[ticker][place]]
            assert drawn == [one[ticker, day] for day in days]


@pytest.mark.parametrize(
    "rules",
    [
        {"entry_rule": "next_open"},
        {"entry_rule": "close", "decision_time": "close"},
        {"entry_rule": "open", "decision_time": "open"},
    ],
)
def test_the_band_is_that_of_books_played_one_by_one(
    snapshot: Snapshot, rules: dict[str, Any]
) -> None:
    definition = make_definition(CELLS, snapshot, placebo_draws=12, seed=7, rf_annual=0.02, **rules)
    stage = stage_of(definition, Decided.of(CELLS), snapshot)
    assert stage is not None

    rows = {r.metric: r for r in played(stage) if r.subject == "random"}

    model = model_of(OWN, persistent=True)
    found: dict[str, list[float]] = {"total_return": [], "sharpe": [], "max_drawdown": []}
    for draw in range(12):
        book = simulate(
            random_ratings(model, stage.grids, seed=7 + draw),
            snapshot=snapshot,
            rule=definition.book_rule(),
            start=stage.start,
            end=stage.end,
            tickers=stage.tickers,
        )
        days = [row.session for row in book.equity]
        if book.fills_first:
            days = [DAYS[0].replace(year=2017), *days]
        figures = performance(
            book.curve,
            days,
            periods_per_year=len([d for d in stage.sessions if d.year == 2018]),
            rf_annual=0.02,
        )
        for name, values in found.items():
            value = figures[name].value
            if value is not None:
                values.append(value)
    for name, values in found.items():
        low, middle, high = np.quantile(values, (0.05, 0.5, 0.95))
        row = rows[name]
        assert (row.low, row.value, row.high) == (
            pytest.approx(low, abs=1e-12),
            pytest.approx(middle, abs=1e-12),
            pytest.approx(high, abs=1e-12),
        )


def test_without_draws_there_is_no_band(snapshot: Snapshot) -> None:
    stage = stage_of(make_definition(CELLS, snapshot), Decided.of(CELLS), snapshot)
    assert stage is not None

    (row, *_) = played(stage)

    assert (row.value, row.low, row.high, row.reason) == (None, None, None, "no_draws")
