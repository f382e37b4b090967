"""The ledger counts every distinct trial once, whatever became of its run."""

from __future__ import annotations

import statistics
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from backtester.errors import DataError
from backtester.score.ledger import LEDGER_NAME, ScoredTrial, enter, known_trials, read_ledger_rows


def line(trial: str = "t1", *, family: str = "f", sharpe: float | None = 0.1) -> ScoredTrial:
    return ScoredTrial(
        family=family,
        trial=trial,
        run_id="run-a",
        score_id="default",
        universe=("AAA",),
        first=date(2018, 1, 1),
        last=date(2018, 12, 31),
        definition="{}",
        sharpe=sharpe,
        n=250,
    )


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    return tmp_path / "reports" / LEDGER_NAME


def test_the_same_score_again_is_no_new_line(ledger: Path) -> None:
    assert enter(ledger, line()).count == 1
    assert enter(ledger, line()).count == 1
    assert len(read_ledger_rows(ledger)) == 1


def test_trials_are_counted_by_family(ledger: Path) -> None:
    for trial in ("t1", "t2", "t3"):
        known = enter(ledger, line(trial))
    assert known.count == 3
    assert enter(ledger, line("t4", family="another")).count == 1


def test_one_trial_on_newer_data_is_another_line_and_no_new_trial(ledger: Path) -> None:
    enter(ledger, line())
    known = enter(ledger, replace(line(), sharpe=0.2, n=300))

    assert known.count == 1
    assert len(read_ledger_rows(ledger)) == 2


def test_the_variance_is_that_of_the_newest_ratio_of_each_trial(ledger: Path) -> None:
    for trial, sharpe in (("t1", 0.9), ("t1", 0.1), ("t2", 0.3), ("t3", None)):
        known = enter(ledger, line(trial, sharpe=sharpe))

    assert (known.count, known.with_sharpe) == (3, 2)
    assert known.variance == pytest.approx(statistics.variance([0.1, 0.3]))


def test_one_trial_has_no_variance() -> None:
    assert known_trials([line()], "f").variance is None


def test_a_line_that_a_crash_cut_short_is_cut_off(ledger: Path) -> None:
    enter(ledger, line())
    whole = ledger.read_bytes()
    ledger.write_bytes(whole + whole[: len(whole) // 2])

    assert len(read_ledger_rows(ledger)) == 1
    assert enter(ledger, line("t2")).count == 2
    assert len(read_ledger_rows(ledger)) == 2


def test_a_changed_line_is_damage_and_says_where(ledger: Path) -> None:
    enter(ledger, line())
    enter(ledger, line("t2"))
    ledger.write_bytes(ledger.read_bytes().replace(b'"n":250', b'"n":251', 1))

    with pytest.raises(DataError, match="damaged at line 1"):
        read_ledger_rows(ledger)


def test_a_ledger_that_is_not_there_is_empty(tmp_path: Path) -> None:
    assert read_ledger_rows(tmp_path / LEDGER_NAME) == ()
