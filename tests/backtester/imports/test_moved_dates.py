"""A decision that bears the date of no session is filled after that date, by whatever score."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from itertools import permutations
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backtester.calendar import calendar_by_code, calendar_of
from backtester.cli import run as command
from backtester.config import ENTRY_RULES, DecisionTime, EntryRule
from backtester.errors import UsageError
from backtester.imports.files import read_decisions
from backtester.imports.imports import ImportResult, import_decisions
from backtester.imports.placing import Placing, fill_at, fills_before_dates
from backtester.loading import recorded_config
from backtester.rescore import score
from backtester.runs.folder import DECIDED_LATER, EARLY_FILLS, EXTERNAL, RunFolder, run_id_of
from tests.support.results import rows_of
from tests.support.workspaces import Workspace, make_workspace, wave

HEAD = "ticker,date,rating\n"
LANES = "ticker,date,rating,trial\n"
PAIR = ("AAA", "^GSPC")
# A Saturday and a Friday.
MOVED, THERE = "AAA,2018-01-06,Buy\n", "BBB,2018-01-12,Sell\n"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return make_workspace(tmp_path_factory.mktemp("moved"))


def imported(
    workspace: Workspace, reports: Path, *lines: str, head: str = HEAD, **settings: Any
) -> ImportResult:
    source = reports.parent / "d.csv"
    source.write_text(head + "".join(lines), encoding="utf-8")
    given: dict[str, Any] = {
        "snapshot": workspace.snapshot.name,
        "data_dir": workspace.data,
        "reports_dir": reports,
        "benchmark": "^GSPC",
        "horizon": 3,
        **settings,
    }
    return import_decisions(source, given)


def scored(workspace: Workspace, result: ImportResult, *words: str) -> int:
    folders = ("--data-dir", str(workspace.data), "--reports-dir", str(result.database.parent))
    return command(["score", result.run_id, "--placebo", "0", *words, *folders])


# ----------------------------------------------------------------------------- scored once more


def test_a_score_that_would_fill_before_the_date_is_refused_in_one_line_and_leaves_nothing(
    shared: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = imported(shared, tmp_path / "r", MOVED, THERE)
    ledger = (tmp_path / "r" / "ledger.jsonl").read_bytes()

    assert scored(shared, result, "--entry", "close") == 2

    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert (
        f"entry rule 'close' would fill 1 decision of run {result.run_id} before the date" in said
    )
    assert "import them again with --entry close, which" in said
    assert (tmp_path / "r" / "ledger.jsonl").read_bytes() == ledger
    assert scored(shared, result, "--entry", "next_close") == 0


def test_the_way_out_that_is_named_fills_each_decision_after_its_date(
    shared: Workspace, tmp_path: Path
) -> None:
    result = imported(shared, tmp_path / "r", MOVED, THERE, entry="close")

    for rule in ("close", "next_open", "next_close"):
        assert scored(shared, result, "--entry", rule) == 0
    fills = rows_of(
        result.database,
        "SELECT DISTINCT s.entry_rule, r.ticker, r.entry_session::VARCHAR AS filled "
        "FROM returns r JOIN scores s USING (run_id, score_id) ORDER BY ALL",
    )
    assert [tuple(row.values()) for row in fills] == [
        ("close", "AAA", "2018-01-08"),
        ("close", "BBB", "2018-01-12"),
        ("next_close", "AAA", "2018-01-09"),
        ("next_close", "BBB", "2018-01-16"),
        ("next_open", "AAA", "2018-01-09"),
        ("next_open", "BBB", "2018-01-16"),
    ]


def test_decisions_that_all_stand_on_their_own_date_may_fill_on_it(
    shared: Workspace, tmp_path: Path
) -> None:
    result = imported(shared, tmp_path / "r", THERE)

    assert scored(shared, result, "--entry", "close") == 0

    flags = rows_of(result.database, "SELECT flags FROM returns WHERE score_id <> 'default'")
    assert flags == [{"flags": ["same_bar"]}]


def test_an_import_that_does_not_say_what_moved_fills_on_no_session_of_its_decisions(
    shared: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = imported(shared, tmp_path / "r", THERE)
    old = replace(result, run_id=_as_before(tmp_path / "r" / result.run_id))

    assert scored(shared, old, "--entry", "close") == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "does not say which of its dates were no sessions" in said
    assert scored(shared, old, "--horizon", "2") == 0


def _as_before(folder: Path) -> str:
    """Make an import as earlier versions left it, and return its run id."""
    document = json.loads((folder / "manifest.json").read_bytes())
    for word in (EARLY_FILLS, DECIDED_LATER):
        del document["identity"][EXTERNAL][word]
    config = recorded_config(document["config"], {}).model_copy(update={"name": "import"})
    document["run_id"] = run_id_of(config, document["identity"])
    (folder / "manifest.json").write_text(json.dumps(document))
    shutil.rmtree(folder / "scores")
    folder.rename(folder.with_name(document["run_id"]))
    return str(document["run_id"])


def test_no_score_changes_the_time_at_which_decisions_were_made(
    shared: Workspace, tmp_path: Path
) -> None:
    # Made at a close and called made at an open, they would fill at that close without a flag.
    result = imported(shared, tmp_path / "r", THERE)
    places = {"reports_dir": tmp_path / "r", "data_dir": shared.data}

    with pytest.raises(UsageError, match=r"^decision_time 'open': .* at the close of"):
        score(result.run_id, decision_time="open", entry_rule="close", **places)


@pytest.mark.parametrize(
    ("lines", "first"),
    [
        # What Monday's prices made of the weekend, somebody on Saturday may have known.
        (["AAA,2018-01-06,Buy\n"], "2018-01-08"),
        (["AAA,2018-01-05,Buy\n"], "2018-01-05"),
        # The same session in two lanes, one of them on Saturday.
        (["AAA,2018-01-05,Buy,0\n", "AAA,2018-01-06,Sell,1\n"], "2018-01-08"),
    ],
)
def test_prices_around_a_decision_are_counted_from_the_first_close_after_it(
    shared: Workspace, tmp_path: Path, lines: list[str], first: str
) -> None:
    result = imported(shared, tmp_path / "r", *lines, head=HEAD if len(lines) == 1 else LANES)
    assert scored(shared, result, "--horizon", "2") == 0
    own, other = (closes_of(shared, name) for name in PAIR)
    days = sorted(day for day in own if day >= date.fromisoformat(first))
    # By the definition: what it made from that close to the next one, less the benchmark.
    wanted = own[days[1]] / own[days[0]] - other[days[1]] / other[days[0]]

    found = rows_of(
        result.database,
        "SELECT mean_path FROM event_study WHERE session_offset = 1 AND rating::VARCHAR = "
        f"'{'Buy' if len(lines) == 1 else 'Sell'}'",
    )
    assert len(found) == 2
    assert [row["mean_path"] for row in found] == pytest.approx([wanted] * 2, abs=1e-12)


def closes_of(workspace: Workspace, instrument: str) -> dict[date, float]:
    bars = workspace.snapshot.table("bars").to_pylist()
    return {row["session"]: row["close"] for row in bars if row["instrument"] == instrument}


# ------------------------------------------------------------------------------ what a run keeps


def test_each_decision_keeps_the_date_that_its_row_bears(shared: Workspace, tmp_path: Path) -> None:
    result = imported(shared, tmp_path / "r", MOVED, THERE)

    dates = rows_of(
        result.database,
        "SELECT session::VARCHAR AS session, typed->>'date' AS dated FROM cells ORDER BY 1",
    )
    assert [tuple(row.values()) for row in dates] == [
        ("2018-01-05", "2018-01-06"),
        ("2018-01-12", "2018-01-12"),
    ]
    identity = RunFolder(tmp_path / "r" / result.run_id).read_manifest().identity
    assert identity[EXTERNAL][EARLY_FILLS] == {"close": 1}
    assert identity[EXTERNAL][DECIDED_LATER] == ["AAA|2018-01-05|0"]


def test_a_decision_knew_what_its_date_told_and_the_audit_of_fills_goes_by_that(
    shared: Workspace, tmp_path: Path
) -> None:
    for name, settings in {"close": {}, "open": {"decision_time": "open"}}.items():
        result = imported(shared, tmp_path / name, MOVED, THERE, **settings)

        cutoffs = rows_of(result.database, "SELECT cutoff FROM cells ORDER BY session")
        assert [f"{row['cutoff']:%Y-%m-%dT%H:%M}" for row in cutoffs] == [
            # Saturday ends at five in the morning of Greenwich.
            "2018-01-07T04:59",
            "2018-01-12T21:00" if name == "close" else "2018-01-12T14:30",
        ]
        (audit,) = rows_of(result.database, "FROM leak_audit WHERE audit = 'fills'")
        assert (audit["checked"], audit["violations"]) == (2, 0)


def test_the_same_ratings_of_another_date_are_another_run(
    shared: Workspace, tmp_path: Path
) -> None:
    friday = imported(shared, tmp_path / "r", "AAA,2018-01-05,Buy\n")
    saturday = imported(shared, tmp_path / "r", MOVED)

    assert friday.run_id != saturday.run_id
    assert (friday.new, saturday.new) == (True, True)


def test_of_rows_that_say_the_same_the_one_on_the_session_counts(
    shared: Workspace, tmp_path: Path
) -> None:
    rows = [f"AAA,2018-01-0{day},Buy\n" for day in (5, 6, 7)]

    found = {imported(shared, tmp_path / "r", *order).run_id for order in permutations(rows)}
    (run_id,) = found

    again = imported(shared, tmp_path / "r", *rows)
    assert (again.cells, again.moved, again.repeated, again.new) == (1, 0, 2, False)
    identity = RunFolder(tmp_path / "r" / run_id).read_manifest().identity
    assert (identity[EXTERNAL][EARLY_FILLS], identity[EXTERNAL][DECIDED_LATER]) == ({}, [])


# ------------------------------------------------------------------------------------ by the clock


@pytest.mark.parametrize(
    ("symbol", "day", "rule", "session", "filled"),
    [
        # Independence Day, after a session that closed at 17:00Z.
        ("AAPL", "2018-07-04", "next_open", "2018-07-03", "2018-07-05T13:30Z"),
        ("AAPL", "2018-07-04", "next_close", "2018-07-03", "2018-07-05T20:00Z"),
        ("AAPL", "2018-07-04", "close", "2018-07-05", "2018-07-05T20:00Z"),
        # The session itself, whose close that is.
        ("AAPL", "2018-07-03", "close", "2018-07-03", "2018-07-03T17:00Z"),
        # Clocks go forward on Sunday: 14:30Z becomes 13:30Z.
        ("AAPL", "2018-03-10", "next_open", "2018-03-09", "2018-03-12T13:30Z"),
        # Marine Day, a Monday; Tokyo's Tuesday opens at midnight in Greenwich.
        ("7203.T", "2018-07-16", "next_open", "2018-07-13", "2018-07-17T00:00Z"),
        ("7203.T", "2018-07-16", "close", "2018-07-17", "2018-07-17T06:00Z"),
        # A Sunday is a session in Riyadh, where it opens at 07:00Z.
        ("2222.SR", "2024-05-10", "next_open", "2024-05-09", "2024-05-12T07:00Z"),
        # Monday's session of futures opens at 22:00Z on Sunday: after Saturday, but on Sunday.
        ("ES=F", "2018-07-07", "next_open", "2018-07-06", "2018-07-08T22:00Z"),
        ("ES=F", "2018-07-08", "next_open", "2018-07-09", "2018-07-09T22:00Z"),
        ("ES=F", "2018-07-08", "next_close", "2018-07-06", "2018-07-09T22:00Z"),
        # Currencies open at midnight, which ends Sunday.
        ("EURUSD=X", "2018-07-08", "next_open", "2018-07-06", "2018-07-09T00:00Z"),
    ],
)
def test_a_date_stands_on_the_session_whose_fill_comes_after_its_end(
    symbol: str, day: str, rule: EntryRule, session: str, filled: str
) -> None:
    calendar = calendar_of(symbol)
    found = placing(rule).session_of(calendar, date.fromisoformat(day))

    assert found == date.fromisoformat(session)
    assert fill_at(calendar, found, rule) == datetime.fromisoformat(filled)


def test_a_session_that_opens_on_the_evening_before_is_no_fill_of_that_day() -> None:
    futures = calendar_of("ES=F")
    sunday = date(2018, 7, 8)

    # Decided before Monday's open, at 22:00Z on Sunday, is before Sunday's end.
    at_open = placing("open", "open").session_of(futures, sunday)
    assert at_open == date(2018, 7, 10)
    # On Friday's session for the next close; the next open is Sunday's evening.
    early = fills_before_dates(futures, date(2018, 7, 6), sunday, "close")
    assert list(early) == ["next_open", "close"]


def placing(rule: EntryRule, decision_time: DecisionTime = "close") -> Placing:
    return Placing(
        decision_time=decision_time,
        entry_rule=rule,
        first=date(2017, 1, 1),
        last=date(2025, 12, 31),
        where="small",
    )


@given(
    code=st.sampled_from(["XNYS", "XTKS", "CMES", "24/5", "24/7", "XSAU", "XHKG"]),
    day=st.dates(date(2021, 3, 1), date(2024, 11, 30)),
    way=st.sampled_from([(when, rule) for when, rules in ENTRY_RULES.items() for rule in rules]),
)
def test_nothing_fills_on_a_date_without_a_session_nor_before_it(
    code: str, day: date, way: tuple[DecisionTime, EntryRule]
) -> None:
    calendar = calendar_by_code(code)
    when, rule = way
    session = placing(rule, when).session_of(calendar, day)
    ends = datetime.combine(day + timedelta(days=1), time.min, ZoneInfo(calendar.tz))

    if calendar.is_session(day):
        assert session == day
    else:
        assert fill_at(calendar, session, rule) >= ends
        assert session == calendar.last_on_or_before(day) or session > day
    fills = {entry: fill_at(calendar, session, entry) for entry in ENTRY_RULES[when]}
    early = set(fills_before_dates(calendar, session, day, when))
    assert early == {e for e, at in fills.items() if at < ends and session != day}
    assert rule not in early


def test_fills_in_tokyo_are_those_of_its_own_days(tmp_path: Path) -> None:
    names = ("7203.T", "^N225")
    bars = {name: wave(name, start="2018-06-01", count=60, phase=0.0, drift=0.0) for name in names}
    tokyo = make_workspace(tmp_path, bars)
    lines = ("7203.T,2018-07-13,Buy\n", "7203.T,2018-07-21,Sell\n")

    result = imported(tokyo, tmp_path / "r", *lines, benchmark="^N225")

    cells = rows_of(
        result.database,
        "SELECT session::VARCHAR AS s, cutoff, entry_at FROM cells JOIN returns "
        "USING (run_id, ticker, session, trial) ORDER BY s",
    )
    assert [_instants(row) for row in cells] == [
        # Filled after Marine Day; a Saturday ends at 15:00Z and fills on Monday.
        ("2018-07-13", "2018-07-13T06:00", "2018-07-17T00:00"),
        ("2018-07-20", "2018-07-21T14:59", "2018-07-23T00:00"),
    ]


def _instants(row: Mapping[str, Any]) -> tuple[str, str, str]:
    cutoff, filled = (f"{row[name]:%Y-%m-%dT%H:%M}" for name in ("cutoff", "entry_at"))
    return row["s"], cutoff, filled


@pytest.mark.parametrize("word", ["2018-07-03T18:00Z", "2018-07-03 18:00:00", "2018-07-03T18:00"])
def test_an_instant_in_a_table_is_no_date(tmp_path: Path, word: str) -> None:
    # At 18:00Z the session of that day was over, by an hour; nobody guesses which one is meant.
    (tmp_path / "d.csv").write_text(f"{HEAD}AAPL,{word},Buy\n")

    (bad,) = read_decisions(tmp_path / "d.csv").bad

    assert "is an instant, not a date: write the session of its exchange" in bad.problem


def test_an_instant_of_a_zone_in_parquet_is_no_date(tmp_path: Path) -> None:
    instants = [datetime(2018, 7, 3, 18, tzinfo=UTC), datetime(2018, 7, 3, tzinfo=UTC)]
    zones = {"utc": "UTC", "tokyo": "Asia/Tokyo", "york": "America/New_York"}
    for name, zone in zones.items():
        days = pa.array(instants, pa.timestamp("us", zone))
        table = pa.table({"ticker": ["AAPL"] * 2, "date": days, "rating": ["Buy"] * 2})
        pq.write_table(table, tmp_path / f"{name}.parquet")

        found = read_decisions(tmp_path / f"{name}.parquet")

        # A midnight says a date in its own zone, and in no other.
        assert [row.day for row in found.rows] == ([date(2018, 7, 3)] if name == "utc" else [])
        assert len(found.bad) == (1 if name == "utc" else 2)
        assert all("is an instant, not a date" in row.problem for row in found.bad)
