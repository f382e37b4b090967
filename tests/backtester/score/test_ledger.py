"""The ledger counts every distinct trial once, whatever became of its run."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from backtester.errors import DataError
from backtester.score.ledger import LEDGER_NAME, enter, read_ledger_rows, trials_by_now
from backtester.score.trials import ScoredTrial

DEFINITION = {"universe": ["AAA"], "first": "2018-01-01", "last": "2018-12-31"}


def line(trial: str = "t1", *, sharpe: float | None = 0.1) -> ScoredTrial:
    return ScoredTrial(
        family="f",
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
    assert enter(ledger, [line()]).count == 1
    assert enter(ledger, [line()]).count == 1
    assert len(read_ledger_rows(ledger)) == 1


def test_every_book_of_a_score_is_a_line_and_a_trial(ledger: Path) -> None:
    known = enter(ledger, [line(), replace(line("t2"), lane=1)])

    assert known.count == known.family == 2
    assert [row.lane for row in read_ledger_rows(ledger)] == [0, 1]


def test_one_trial_on_newer_data_is_another_line_and_no_new_trial(ledger: Path) -> None:
    enter(ledger, [line()])
    known = enter(ledger, [replace(line(), sharpe=0.2, n=300)])

    assert known.count == 1
    assert len(read_ledger_rows(ledger)) == 2


def test_what_was_tried_since_is_counted_for_an_old_score(ledger: Path) -> None:
    assert enter(ledger, [line()]).count == 1
    later = replace(line("t2"), first=date(2018, 12, 31), last=date(2019, 6, 30))
    enter(ledger, [later])

    by_now = trials_by_now(ledger, DEFINITION)

    assert (by_now.count, by_now.family) == (2, 1)


def test_a_line_of_the_first_release_reads(ledger: Path) -> None:
    ledger.parent.mkdir()
    body = (
        b'{"family":"f","trial":"t1","run_id":"run-a","score_id":"default","universe":["AAA"],'
        b'"first":"2018-01-01","last":"2018-12-31","definition":"{}","sharpe":0.1,"n":250}'
    )
    ledger.write_bytes(hashlib.sha256(body).hexdigest()[:16].encode() + b" " + body + b"\n")

    (row,) = read_ledger_rows(ledger)

    assert (row.trial, row.lane, row.book) == ("t1", 0, None)
    assert enter(ledger, [line("t2")]).count == 2


def test_a_line_that_a_crash_cut_short_is_cut_off(ledger: Path) -> None:
    enter(ledger, [line()])
    whole = ledger.read_bytes()
    ledger.write_bytes(whole + whole[: len(whole) // 2])

    assert len(read_ledger_rows(ledger)) == 1
    assert enter(ledger, [line("t2")]).count == 2
    assert len(read_ledger_rows(ledger)) == 2


def test_a_last_line_that_lacks_its_newline_alone_is_kept(ledger: Path) -> None:
    enter(ledger, [line()])
    ledger.write_bytes(ledger.read_bytes().rstrip(b"\n"))

    assert len(read_ledger_rows(ledger)) == 1
    assert enter(ledger, [line("t2")]).count == 2
    assert [row.trial for row in read_ledger_rows(ledger)] == ["t1", "t2"]


def test_a_changed_line_is_damage_and_says_where(ledger: Path) -> None:
    enter(ledger, [line()])
    enter(ledger, [line("t2")])
    ledger.write_bytes(ledger.read_bytes().replace(b'"n":250', b'"n":251', 1))

    with pytest.raises(DataError, match="damaged at line 1"):
        read_ledger_rows(ledger)


def test_a_ledger_that_is_not_there_is_empty(tmp_path: Path) -> None:
    assert read_ledger_rows(tmp_path / LEDGER_NAME) == ()
