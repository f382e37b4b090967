"""A trial is a book that could have been shown; related ones are held against each other."""

from __future__ import annotations

import json
import statistics
from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from backtester.score.trials import ScoredTrial, known_trials, told_apart, what_was_tried

RULES: dict[str, Any] = {
    "run_id": "run-a",
    "snapshot_id": "s" * 64,
    "policy": {"name": "long_only"},
    "costs": {"commission_bps": 1.0},
    "horizon": 5,
    "horizons": [1, 5, 20],
    "benchmark": None,
    "benchmark_map": {},
    "rf_annual": 0.0,
    "fold": None,
    "placebo_draws": 200,
    "seed": 0,
    "slots": None,
}


def line(
    *,
    universe: tuple[str, ...] = ("AAA", "BBB"),
    first: str = "2018-01-01",
    last: str = "2018-06-29",
    sharpe: float | None = 0.1,
    n: int = 101,
    run: str = "run-a",
    book: str | None = None,
    lane: int = 0,
    **rules: Any,
) -> ScoredTrial:
    definition = {**RULES, "run_id": run, "universe": list(universe), "first": first, "last": last}
    definition |= rules
    return ScoredTrial(
        family="f",
        trial=what_was_tried(definition, lane),
        run_id=run,
        score_id="default",
        universe=universe,
        first=date.fromisoformat(first),
        last=date.fromisoformat(last),
        definition=json.dumps(definition),
        sharpe=sharpe,
        n=n,
        lane=lane,
        book=book,
    )


def counted(*rows: ScoredTrial) -> tuple[int, int]:
    """Return related and family trials of the last line."""
    one = rows[-1]
    known = known_trials(told_apart(rows), one.universe, one.first, one.last)
    return known.count, known.family


def test_a_window_moved_by_a_day_does_not_begin_to_count_anew() -> None:
    assert counted(line(), line(first="2018-01-02")) == (2, 1)
    assert counted(line(), line(last="2018-06-28")) == (2, 1)


def test_a_ticker_dropped_does_not_begin_to_count_anew() -> None:
    assert counted(line(), line(universe=("AAA",))) == (2, 1)
    assert counted(line(), line(universe=("AAA", "BBB", "CCC"))) == (2, 1)


def test_other_instruments_and_other_days_are_not_related() -> None:
    assert counted(line(), line(universe=("CCC",))) == (1, 1)
    # The first day after the other's last: fresh prices.
    assert counted(line(), line(first="2018-06-30", last="2018-12-31")) == (1, 1)
    assert counted(line(), line(first="2018-06-29", last="2018-12-31")) == (2, 1)


@pytest.mark.parametrize(
    "change",
    [
        {"benchmark": "none"},
        {"benchmark_map": {"T": "^N225"}},
        {"horizons": [1, 2, 3, 5]},
        {"rf_annual": 0.05},
        {"snapshot_id": "t" * 64},
        {"fold": "6M"},
        {"placebo_draws": 3},
        {"seed": 9},
    ],
    ids=str,
)
def test_what_cannot_change_the_book_is_no_trial(change: dict[str, Any]) -> None:
    assert counted(line(), line(**change)) == (1, 1)


@pytest.mark.parametrize(
    "change",
    [
        {"policy": {"name": "long_short"}},
        {"costs": {"commission_bps": 2.0}},
        {"horizon": 20},
        {"slots": 2},
        {"run": "run-b"},
        {"lane": 1},
    ],
    ids=str,
)
def test_what_can_change_the_book_is_a_trial(change: dict[str, Any]) -> None:
    assert counted(line(), line(**change)) == (2, 2)


def test_a_definition_that_gave_the_same_book_of_the_run_is_no_trial() -> None:
    same = line(book="b1", slots=2)
    assert counted(line(book="b1"), same) == (1, 1)
    # And it stays none on a newer snapshot, where it gives another book.
    newer = line(book="b2", slots=2, snapshot_id="t" * 64)
    assert counted(line(book="b1"), same, newer) == (1, 1)
    # Of another run it is one: another model was asked.
    assert counted(line(book="b1"), line(book="b1", run="run-b")) == (2, 2)
    # Books without a ratio are no proof of anything.
    assert counted(line(sharpe=None), line(sharpe=None, slots=2)) == (2, 2)


def test_a_trial_stays_in_its_family_when_another_window_gave_the_same_book() -> None:
    moved = line(book="b1", first="2018-01-02")
    rows = told_apart([line(book="b1"), moved])
    for one in rows:
        known = known_trials(rows, one.universe, one.first, one.last)
        assert (known.count, known.family) == (1, 1)


def test_what_was_counted_once_is_never_taken_back() -> None:
    rows = [line(book="b1"), line(book="b2", slots=2)]
    assert counted(*rows) == (2, 2)
    # On newer data both give one book.
    rows += [line(book="b3", snapshot_id="t"), line(book="b3", slots=2, snapshot_id="t")]
    assert counted(*rows) == (2, 2)


def test_the_trial_of_an_old_line_is_what_its_definition_says() -> None:
    old = replace(line(), trial="hash of the first release")
    assert counted(old, line()) == (1, 1)


def test_ratios_of_other_lengths_are_brought_to_one_scale() -> None:
    # 0.1 over 101 returns is 1 of its deviations from 0; so is 0.2 over 26: 0.2 x 5 = 1.
    rows = [line(), line(sharpe=0.2, n=26, first="2018-03-01", slots=2)]
    rows += [line(sharpe=-0.1, slots=1), line(sharpe=None, n=0, slots=3)]
    found = known_trials(told_apart(rows), ("AAA",), date(2018, 1, 1), date(2018, 12, 31))

    assert (found.count, found.with_sharpe) == (4, 3)
    assert found.variance == pytest.approx(statistics.variance([1.0, 1.0, -1.0]))
    assert known_trials(rows[:1], ("AAA",), date(2018, 1, 1), date(2018, 1, 1)).variance is None


def test_the_newest_ratio_of_a_trial_is_the_one_that_counts() -> None:
    rows = told_apart([line(sharpe=0.9), line(sharpe=0.1), line(sharpe=0.3, slots=2)])
    found = known_trials(rows, ("AAA",), date(2018, 1, 1), date(2018, 6, 29))

    assert found.variance == pytest.approx(statistics.variance([1.0, 3.0]))
