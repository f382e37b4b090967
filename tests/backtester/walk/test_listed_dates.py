"""A listed date that is no session: decided on the one before, with what was known then, once."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from backtester.backtest import run
from backtester.cli import run as command
from backtester.config import ENTRY_RULES, DecisionTime, EntryRule
from backtester.desk.desk import Desk
from backtester.errors import DataError, UsageError
from backtester.runs.journal import read_ledger
from backtester.walk.plan import lay_out
from tests.support.records import make_key
from tests.support.results import rows_of
from tests.support.workspaces import Workspace, make_workspace, wave

# A Saturday, and a Monday without trade: Martin Luther King's.
SATURDAY, HOLIDAY = date(2018, 1, 6), date(2018, 1, 15)
WAYS = [(when, rule) for when, rules in ENTRY_RULES.items() for rule in rules]
# By hand: the sessions before are the 5th and the 12th; New York is five hours behind.
CUTOFFS = {"close": ("05T21:00", "12T21:00"), "open": ("05T14:30", "12T14:30")}
FILLS = {
    "next_open": ("08T14:30", "16T14:30"),
    "next_close": ("08T21:00", "16T21:00"),
    "close": ("05T21:00", "12T21:00"),
    "open": ("05T14:30", "12T14:30"),
}


def january(moment: str) -> datetime:
    return datetime.fromisoformat(f"2018-01-{moment}").replace(tzinfo=UTC)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return make_workspace(tmp_path)


def asked(workspace: Workspace, *days: date, **changes: Any) -> Any:
    fields = {"tickers": ("AAA",), "start": min(days), "end": max(days), "grid": days, "horizon": 3}
    return workspace.config(**{**fields, **changes})


@pytest.mark.parametrize(("when", "rule"), WAYS)
def test_a_run_knows_and_fills_by_the_session_before(
    workspace: Workspace, when: DecisionTime, rule: EntryRule
) -> None:
    config = asked(workspace, SATURDAY, HOLIDAY, decision_time=when, entry=rule)
    ledger = read_ledger(run(config).folder / "journal.jsonl")

    for place, day in enumerate(("2018-01-05", "2018-01-12")):
        key = make_key("AAA", day)
        cell, returned = ledger.cells[key], ledger.returns[key]
        assert cell.cutoff == january(CUTOFFS[when][place])
        known = [read.max_known_at for read in cell.reads if read.max_known_at is not None]
        assert known
        assert max(known) <= cell.cutoff
        assert returned.entry_at == january(FILLS[rule][place])
        # Filled at the instant of the decision it says so, and never before it.
        assert returned.entry_at >= cell.cutoff
        assert ("same_bar" in returned.flags) == (returned.entry_at == cell.cutoff)
    assert len(ledger.cells) == 2


@pytest.mark.parametrize("when", ["close", "open"])
@pytest.mark.parametrize(("day", "place"), [(SATURDAY, 0), (HOLIDAY, 1)])
def test_a_single_decision_knows_what_the_session_before_knew(
    workspace: Workspace, when: DecisionTime, day: date, place: int
) -> None:
    desk = Desk(workspace.snapshot, data_dir=workspace.data, reports_dir=workspace.reports)
    settings = {"horizon": 3, "benchmark": "^GSPC", "decision_time": when}

    moved = desk.decide(settings, "AAA", day)
    session = moved.record.key.session

    assert moved.record.cutoff == january(CUTOFFS[when][place])
    assert moved.decision.state["trade_date"] == session.isoformat() < day.isoformat()
    known = [read.max_known_at for read in moved.record.reads if read.max_known_at is not None]
    assert max(known) <= moved.record.cutoff
    # It is the decision of that session and no other: each prompt is the same.
    there = desk.decide(settings, "AAA", session)
    assert [call.key for call in there.record.calls] == [call.key for call in moved.record.calls]


def test_a_first_date_that_moved_before_the_start_is_scored_as_the_others_are(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    result = run(asked(workspace, SATURDAY, HOLIDAY, score_at_end=True))
    folders = ("--data-dir", str(workspace.data), "--reports-dir", str(workspace.reports))
    assert command(["score", "latest", "--horizon", "2", "--placebo", "0", *folders]) == 0
    capsys.readouterr()

    counted = rows_of(
        result.database,
        "SELECT score_id = 'default' AS own, session::VARCHAR AS day FROM horizon_returns "
        "WHERE horizon IN (2, 3) ORDER BY ALL",
    )
    assert [tuple(row.values()) for row in counted] == [
        (False, "2018-01-05"),
        (False, "2018-01-12"),
        (True, "2018-01-05"),
        (True, "2018-01-12"),
    ]
    windows = rows_of(result.database, "SELECT DISTINCT first_date::VARCHAR AS first FROM scores")
    assert windows == [{"first": "2018-01-05"}]


def test_a_date_that_moves_before_the_snapshot_is_refused(tmp_path: Path) -> None:
    # It has been frozen from a Saturday on, and its first bar is Monday's.
    bars = {
        name: wave(name, start="2018-01-08", count=30, phase=0.0, drift=0.0)
        for name in ("AAA", "^GSPC")
    }
    late = make_workspace(tmp_path, bars, start=SATURDAY)
    said = (
        "the first date is no session of AAA, and the one before, 2018-01-05, is before snapshot "
        "small, which begins on 2018-01-06: begin later"
    )

    with pytest.raises(DataError) as told:
        lay_out(asked(late, SATURDAY), late.snapshot, fingerprint="f")
    assert str(told.value) == said
    desk = Desk(late.snapshot, data_dir=late.data, reports_dir=late.reports)
    with pytest.raises(DataError) as told:
        desk.decide({"benchmark": "^GSPC"}, "AAA", SATURDAY)
    assert str(told.value) == said


def test_a_book_of_the_evening_on_which_a_session_of_futures_opens_is_not_known_then(
    tmp_path: Path,
) -> None:
    # Monday's session opens on Sunday at 17:00 in Chicago, and Sunday's book is of its evening.
    bars = {"ES=F": wave("ES=F", start="2017-06-01", count=200, phase=0.0, drift=0.0)}
    futures = make_workspace(tmp_path, bars)
    for as_of, when, known in (
        ("2018-01-07", "open", False),
        ("2018-01-06", "open", True),
        ("2018-01-08", "close", True),
        ("2018-01-09", "close", False),
    ):
        config = asked(
            futures,
            date(2018, 1, 8),
            tickers=("ES=F",),
            benchmark="none",
            decision_time=when,
            portfolio={"as_of": as_of, "currency": "USD", "cash": 1000, "positions": []},
        )
        if known:
            assert lay_out(config, futures.snapshot, fingerprint="f").cells == 1
        else:
            with pytest.raises(UsageError, match="could not know"):
                lay_out(config, futures.snapshot, fingerprint="f")


def test_a_plan_and_a_run_say_which_dates_moved(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    words = (
        *("--tickers", "AAA", "--grid", "2018-01-06,2018-01-12,2018-01-15"),
        *("--start", "2018-01-06", "--end", "2018-01-15", "--benchmark", "^GSPC"),
        *("--snapshot", "small", "--analysts", "market"),
        *("--data-dir", str(workspace.data), "--reports-dir", str(workspace.reports)),
    )
    moved = (
        "2 listed dates are no session of XNYS, and decided on the one before: 2018-01-06 on "
        "2018-01-05, ..."
    )

    assert command(["plan", *words]) == 0
    said = capsys.readouterr().out
    # The holiday moved to the 12th, which is listed too.
    assert "cells    2," in said
    assert f"dates    {moved}" in said
    assert command(["run", *words]) == 0
    assert f"note: {moved}" in capsys.readouterr().err


def test_nothing_is_said_where_no_date_moved(workspace: Workspace) -> None:
    for config in (
        asked(workspace, date(2018, 1, 5)),
        asked(workspace, SATURDAY, grid="daily", end=HOLIDAY),
    ):
        assert lay_out(config, workspace.snapshot, fingerprint="f").moved == ""
