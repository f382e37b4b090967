"""A freeze asks for nothing twice, is whole or not there, and never depends on the weather."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from backtester.errors import DataError, RunLocked, UsageError
from backtester.freeze.ask import Step
from backtester.freeze.freezing import Frozen, Way, freeze, load_plan, settings_from
from backtester.freeze.parts import open_parts, parts_folder
from backtester.freeze.plan import FreezePlan
from backtester.schema import TABLES
from backtester.snapshots.coverage import coverage_of
from backtester.snapshots.snapshot import open_snapshot, snapshot_names, verify_snapshot
from backtester.vendors.base import (
    BadResponse,
    Capture,
    NoData,
    NotConfigured,
    RateLimited,
    Vendor,
    VendorError,
    Wanted,
)
from backtester.vendors.registry import VENDORS
from tests.support.snapshots import make_bar

NOW = datetime(2024, 4, 10, 12, tzinfo=UTC)
SESSIONS = tuple(date(2024, 3, day) for day in (1, 4, 5, 6, 7, 8))
Answer = Callable[[Wanted], Capture]


def bars(wanted: Wanted, *, close: float = 100.0, sessions: tuple[date, ...] = SESSIONS) -> Capture:
    rows = [
        vars_of(make_bar(wanted.instrument, day, close + at)) for at, day in enumerate(sessions)
    ]
    table = pa.Table.from_pylist(rows, schema=TABLES["bars"].arrow)
    return Capture(rows={"bars": table}, source="https://example.test/bars", licence="free")


def vars_of(row: Any) -> dict[str, Any]:
    return dict(vars(row))


def news(wanted: Wanted, *stamps: datetime) -> Capture:
    rows = [
        {
            "instrument": wanted.instrument or None,
            "id": str(at),
            "known_at": stamp,
            "known_at_basis": "published",
            "source": "wire",
            "title": f"item {at}",
            "summary": None,
            "url": None,
        }
        for at, stamp in enumerate(stamps)
    ]
    table = pa.Table.from_pylist(rows, schema=TABLES["news"].arrow)
    return Capture(
        rows={"news": table}, source="wire", licence="free", dropped_undated=2, notes=("recent",)
    )


class Scripted:
    """Answer as told, and keep what was asked."""

    tables = frozenset({"bars", "news", "statements"})

    def __init__(self, name: str, answer: Answer) -> None:
        self.name = name
        self.answer = answer
        self.asked: list[tuple[str, str]] = []

    def capture(self, wanted: Wanted) -> Capture:
        self.asked.append((wanted.table, wanted.symbol))
        return self.answer(wanted)


def refuse(error: Exception) -> Answer:
    def answer(wanted: Wanted) -> Capture:
        raise error

    return answer


def plan_of(**changes: Any) -> FreezePlan:
    values: dict[str, Any] = {
        "name": "mine",
        "symbols": ("AAA", "BBB"),
        "start": date(2024, 3, 1),
        "end": date(2024, 3, 8),
        "warmup": 0,
        "chains": {"bars": ("yfinance",)},
    }
    return FreezePlan(**{**values, **changes})


def way_of(*vendors: Vendor, progress: Callable[[Step], None] | None = None, **more: Any) -> Way:
    return Way(
        settings_of=settings_from({}),
        vendors={vendor.name: vendor for vendor in vendors},
        progress=progress or (lambda step: None),
        **more,
    )


def run(
    tmp_path: Path, plan: FreezePlan, *vendors: Vendor, now: datetime = NOW, **more: Any
) -> Frozen:
    return freeze(plan, tmp_path, captured_at=now, way=way_of(*vendors, **more))


def test_a_freeze_stores_a_snapshot_that_verifies_and_names_its_sources(tmp_path: Path) -> None:
    yahoo = Scripted("yfinance", bars)
    frozen = run(tmp_path, plan_of(), yahoo)
    assert yahoo.asked == [("bars", "AAA"), ("bars", "BBB")]
    assert verify_snapshot(frozen.snapshot.path) == []
    assert frozen.snapshot.instruments() == ("AAA", "BBB")
    sources = {source.name: source for source in frozen.snapshot.manifest.sources}
    assert sources["yfinance bars"].item == "https://example.test/bars"
    assert sources["yfinance bars"].options["subjects"] == "AAA BBB"
    assert sources["market tables"].tables == ("instruments",)
    assert not parts_folder(frozen.snapshot.path).exists()


def test_a_freeze_that_was_stopped_goes_on_and_asks_for_nothing_twice(tmp_path: Path) -> None:
    def limited(wanted: Wanted) -> Capture:
        if wanted.symbol == "BBB":
            raise RateLimited("come back later", 60.0)
        return bars(wanted)

    first = Scripted("yfinance", limited)
    with pytest.raises(RateLimited, match="the same command goes on") as caught:
        run(tmp_path, plan_of(), first)
    assert caught.value.wait_s == 60.0
    assert snapshot_names(tmp_path) == snapshot_names(tmp_path / "empty")
    second = Scripted("yfinance", bars)
    steps: list[Step] = []
    # A day later: the instant of the capture is that of the first call.
    frozen = run(tmp_path, plan_of(), second, now=NOW.replace(day=11), progress=steps.append)
    assert second.asked == [("bars", "BBB")]
    assert (frozen.asked, frozen.kept) == (1, 1)
    assert [step.kept for step in steps] == [True, False]
    assert frozen.snapshot.manifest.captured_at == NOW
    whole = run(tmp_path / "other", plan_of(), Scripted("yfinance", bars))
    assert frozen.snapshot.id == whole.snapshot.id


def test_the_same_command_finds_its_snapshot_and_another_one_is_told(tmp_path: Path) -> None:
    run(tmp_path, plan_of(), Scripted("yfinance", bars))
    again = Scripted("yfinance", bars)
    assert run(tmp_path, plan_of(), again).already
    assert again.asked == []
    other = plan_of(symbols=("CCC",))
    with pytest.raises(UsageError, match="--replace"):
        run(tmp_path, other, again)
    assert run(tmp_path, other, again, replace=True).snapshot.instruments() == ("CCC",)


def test_an_answer_that_is_torn_is_asked_for_again(tmp_path: Path) -> None:
    def stopped(wanted: Wanted) -> Capture:
        if wanted.symbol == "BBB":
            raise VendorError("unreachable")
        return bars(wanted)

    with pytest.raises(VendorError):
        run(tmp_path, plan_of(), Scripted("yfinance", stopped))
    (part,) = parts_folder(tmp_path / "snapshots/mine").glob("*.parquet")
    part.write_bytes(part.read_bytes()[:-7])
    vendor = Scripted("yfinance", bars)
    run(tmp_path, plan_of(), vendor)
    assert vendor.asked == [("bars", "AAA"), ("bars", "BBB")]


def test_of_two_freezes_into_one_name_one_wins_and_one_is_told(tmp_path: Path) -> None:
    told: list[str] = []

    def meanwhile(wanted: Wanted) -> Capture:
        with pytest.raises(RunLocked) as caught:
            run(tmp_path, plan_of(), Scripted("yfinance", bars))
        told.append(str(caught.value))
        return bars(wanted)

    frozen = run(tmp_path, plan_of(symbols=("AAA",)), Scripted("yfinance", meanwhile))
    assert verify_snapshot(frozen.snapshot.path) == []
    assert told == [
        f"another process ({os.getpid()}) freezes into mine: wait for it, or choose another name"
    ]


def test_a_lock_of_a_dead_process_is_free(tmp_path: Path) -> None:
    folder = tmp_path / "snapshots/mine"
    script = (
        "import sys, time; from pathlib import Path; from datetime import datetime, UTC\n"
        "from backtester.freeze.parts import open_parts\n"
        "with open_parts(Path(sys.argv[1]), datetime(2024, 4, 10, 12, tzinfo=UTC)):\n"
        "    print('open', flush=True); time.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(folder)], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "open\n"
        with pytest.raises(RunLocked), open_parts(folder, NOW):
            pass
        child.send_signal(signal.SIGKILL)
        child.wait()
    with open_parts(folder, NOW.replace(day=12)) as parts:
        assert parts.captured_at == NOW


KILLED = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from tests.backtester.freeze.test_freezing import Scripted, bars, plan_of, run
count = 0
def hook(event, arguments):
    global count
    if event in ("open", "os.rename", "os.replace", "os.remove", "os.mkdir") and "mine" in str(
        arguments
    ):
        count += 1
        if count == int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)
plan = plan_of(symbols=("AAA",), end=plan_of().end)
sys.addaudithook(hook)
run(Path(sys.argv[1]), plan, Scripted("yfinance", lambda w: bars(w, close=200.0)), replace=True)
print(count)
"""


@pytest.mark.slow
def killed_at(moment: int, folder: Path) -> bool:
    """Freeze in a process that is killed at a step; False where it has fewer steps than that."""
    ended = subprocess.run(
        [sys.executable, "-c", KILLED, str(folder), str(moment), str(Path(__file__).parents[3])],
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode == 0:
        return False
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    return True


def test_a_freeze_that_is_killed_at_any_step_leaves_the_old_snapshot_whole(tmp_path: Path) -> None:
    old = run(tmp_path, plan_of(symbols=("AAA",)), Scripted("yfinance", bars)).snapshot
    killed = 0
    for moment in (2, 9, 16, 22):
        if not killed_at(moment, tmp_path):
            break
        killed += 1
        problems = verify_snapshot(old.path)
        assert problems == []
        found = open_snapshot("mine", tmp_path)
        assert found.bars("AAA").close[0] in (100.0, 200.0)
        listed = {entry.file for entry in found.manifest.tables.values()}
        assert listed <= {path.name for path in old.path.iterdir()}
    assert killed >= 2
    # It then goes on as if nothing had happened.
    run(
        tmp_path,
        plan_of(symbols=("AAA",)),
        Scripted("yfinance", lambda wanted: bars(wanted, close=200.0)),
        replace=True,
    )
    assert open_snapshot("mine", tmp_path).bars("AAA").close[0] == 200.0


# ------------------------------------------------------------------------------------- chains


@pytest.mark.parametrize(
    "error",
    [NoData("it has none"), NotConfigured("set KEY"), BadResponse("HTML instead of JSON")],
)
def test_the_next_vendor_is_asked_where_one_has_nothing(tmp_path: Path, error: Exception) -> None:
    first, second = Scripted("yfinance", refuse(error)), Scripted("alpha_vantage", bars)
    chain = {"bars": ("yfinance", "alpha_vantage")}
    frozen = run(tmp_path, plan_of(symbols=("AAA",), chains=chain), first, second)
    assert second.asked == [("bars", "AAA")]
    (note,) = [f for f in frozen.snapshot.manifest.findings if f.kind == "note"]
    assert note.message == f"bars of AAA: from alpha_vantage, for yfinance: {error}"


@pytest.mark.parametrize("error", [RateLimited("later"), VendorError("unreachable")])
def test_the_vendor_of_a_row_does_not_depend_on_the_weather(
    tmp_path: Path, error: VendorError
) -> None:
    first, second = Scripted("yfinance", refuse(error)), Scripted("alpha_vantage", bars)
    chain = {"bars": ("yfinance", "alpha_vantage")}
    with pytest.raises(type(error)):
        run(tmp_path, plan_of(chains=chain), first, second)
    assert second.asked == []


def test_bars_that_no_vendor_has_end_the_freeze_and_name_every_reason(tmp_path: Path) -> None:
    first = Scripted("yfinance", refuse(NoData("unknown symbol")))
    second = Scripted("alpha_vantage", refuse(BadResponse("no JSON")))
    chain = {"bars": ("yfinance", "alpha_vantage")}
    with pytest.raises(VendorError) as caught:
        run(tmp_path, plan_of(chains=chain), first, second)
    assert caught.value.exit_code == 5
    assert "bars of AAA cannot be had (yfinance: unknown symbol; alpha_vantage: no JSON)" in str(
        caught.value
    )


def test_no_data_is_a_stored_answer_too(tmp_path: Path) -> None:
    def answer(wanted: Wanted) -> Capture:
        if wanted.table == "news":
            raise NoData("only recent items")
        if wanted.symbol == "BBB":
            raise VendorError("unreachable")
        return bars(wanted)

    plan = plan_of(tables=("bars", "news"), chains={"news": ("yfinance",)}, symbols=("AAA",))
    vendor = Scripted("yfinance", answer)
    frozen = run(tmp_path, plan, vendor)
    assert frozen.snapshot.absent_reason("news") == "yfinance: only recent items"
    assert vendor.asked == [("bars", "AAA"), ("news", "AAA")]


def test_a_rate_limit_is_never_stored_as_no_data(tmp_path: Path) -> None:
    def answer(wanted: Wanted) -> Capture:
        if wanted.table == "news":
            raise RateLimited("later")
        return bars(wanted)

    plan = plan_of(tables=("bars", "news"), symbols=("AAA",))
    with pytest.raises(RateLimited):
        run(tmp_path, plan, Scripted("yfinance", answer))
    vendor = Scripted(
        "yfinance",
        lambda wanted: (
            bars(wanted) if wanted.table == "bars" else news(wanted, NOW.replace(month=3, day=4))
        ),
    )
    assert run(tmp_path, plan, vendor).snapshot.table("news").num_rows == 1
    assert vendor.asked == [("news", "AAA")]


def test_a_table_that_one_symbol_lacks_is_there_for_the_others_and_says_so(tmp_path: Path) -> None:
    def answer(wanted: Wanted) -> Capture:
        if wanted.table == "bars":
            return bars(wanted)
        if wanted.symbol == "BBB":
            raise NoData("none of it")
        return news(wanted, datetime(2024, 3, 5, 10, tzinfo=UTC))

    plan = plan_of(tables=("bars", "news"), benchmarks=("CCC",))
    frozen = run(tmp_path, plan, Scripted("yfinance", answer))
    # Silence about an instrument is no news of it.
    reasons = {name: frozen.snapshot.absent_reason("news", name) for name in ("AAA", "BBB", "CCC")}
    assert reasons == {
        "AAA": None,
        "BBB": "yfinance: none of it",
        "CCC": "prices alone were taken of it",
    }
    findings = {(f.kind, f.instrument): f for f in frozen.snapshot.manifest.findings}
    assert findings["not_had", "BBB"].message == "news of BBB: yfinance: none of it"
    assert findings["undated", "AAA"].count == 2
    assert findings["note", "AAA"].message == "news of AAA: recent"
    assert verify_snapshot(frozen.snapshot.path) == []


def test_rows_that_were_not_public_or_lie_beyond_the_range_are_left_out(tmp_path: Path) -> None:
    # The end is 2024-03-08; its last instant in New York is 04:59:59.999999 UTC of the next day.
    stamps = (
        datetime(2024, 3, 9, 4, 59, 59, tzinfo=UTC),
        datetime(2024, 3, 9, 5, 0, 0, tzinfo=UTC),
        datetime(2024, 5, 1, tzinfo=UTC),
    )

    def answer(wanted: Wanted) -> Capture:
        return bars(wanted) if wanted.table == "bars" else news(wanted, *stamps)

    frozen = run(
        tmp_path,
        plan_of(tables=("bars", "news"), symbols=("AAA",)),
        Scripted("yfinance", answer),
    )
    assert frozen.snapshot.table("news").column("id").to_pylist() == ["0"]
    told = [f.message for f in frozen.snapshot.manifest.findings]
    assert "news: 1 rows were not public when the capture was made; left out" in told


def test_an_answer_over_which_a_vendor_stumbles_is_a_bad_one_and_tells_no_secret(
    tmp_path: Path,
) -> None:
    def stumbles(wanted: Wanted) -> Capture:
        if wanted.table == "bars":
            return bars(wanted)
        raise OverflowError("https://example.test/?apikey=s3cret")

    plan = plan_of(tables=("bars", "news"), symbols=("AAA",))
    frozen = run(tmp_path, plan, Scripted("yfinance", stumbles))
    assert frozen.snapshot.manifest.absent["news"] == (
        "yfinance: it could not make rows of the answer (OverflowError; --debug says where)"
    )
    assert "s3cret" not in (frozen.snapshot.path / "manifest.json").read_text()


def test_a_row_from_between_the_capture_and_the_end_of_the_last_day_is_left_out(
    tmp_path: Path,
) -> None:
    late = datetime(2024, 3, 9, 3, tzinfo=UTC)

    def answer(wanted: Wanted) -> Capture:
        return bars(wanted) if wanted.table == "bars" else news(wanted, NOW, late)

    plan = plan_of(tables=("bars", "news"), symbols=("AAA",))
    now = datetime(2024, 3, 9, 2, tzinfo=UTC)
    frozen = run(tmp_path, plan, Scripted("yfinance", answer), now=now)
    assert frozen.snapshot.table("news").num_rows == 0
    told = [f.message for f in frozen.snapshot.manifest.findings]
    assert "news: 2 rows were not public when the capture was made; left out" in told


def test_rows_that_are_no_table_are_refused_with_what_they_are(tmp_path: Path) -> None:
    def framed(wanted: Wanted) -> Capture:
        answer = bars(wanted)
        return replace(answer, rows={name: rows.to_pandas() for name, rows in answer.rows.items()})

    with pytest.raises(UsageError, match="answered bars as a DataFrame, not an Arrow table"):
        run(tmp_path, plan_of(symbols=("AAA",)), Scripted("yfinance", framed))


def test_rows_of_another_instrument_are_refused(tmp_path: Path) -> None:
    def swapped(wanted: Wanted) -> Capture:
        return bars(Wanted(**{**vars_of(wanted), "instrument": "ZZZ"}))

    with pytest.raises(VendorError, match="asked for AAA bars, it answered with ZZZ"):
        run(tmp_path, plan_of(), Scripted("yfinance", swapped))


def test_a_missing_key_names_its_variable_before_anything_is_asked(tmp_path: Path) -> None:
    plan = plan_of(symbols=("AAA",), chains={"bars": ("alpha_vantage",)})
    with pytest.raises(VendorError, match="set ALPHA_VANTAGE_API_KEY"):
        run(tmp_path, plan)


def test_a_key_that_is_not_set_is_never_stored_as_absence(tmp_path: Path) -> None:
    plan = plan_of(
        symbols=("AAA",), tables=("bars", "macro"), subjects={"macro": ("cpi",)}, chains={}
    )
    yahoo = Scripted("yfinance", bars)
    with pytest.raises(NotConfigured, match=r"set FRED_API_KEY.*leave the table out"):
        run(tmp_path, plan, yahoo)
    assert "mine" not in snapshot_names(tmp_path)
    # With the key, the same command goes on.
    fred = Scripted("fred", refuse(NoData("it has none")))
    frozen = run(tmp_path, plan, yahoo, fred)
    assert frozen.snapshot.absent_reason("macro") == "fred: it has none"
    assert yahoo.asked == [("bars", "AAA")]
    # Another vendor of the chain that has an answer will do.
    chain = {"news": ("alpha_vantage", "yfinance")}
    both = plan_of(name="both", symbols=("AAA",), tables=("bars", "news"), chains=chain)
    vendor = Scripted(
        "yfinance",
        lambda wanted: (
            bars(wanted) if wanted.table == "bars" else news(wanted, NOW.replace(month=3, day=4))
        ),
    )
    assert run(tmp_path, both, vendor).snapshot.table("news").num_rows == 1


def test_the_settings_of_a_vendor_hold_its_key_and_do_not_show_it() -> None:
    row = VENDORS["fred"]
    settings = settings_from({"FRED_API_KEY": "secret-key-1"}, user_agent="me a@b.test")(row)
    assert settings.api_key == "secret-key-1"
    assert settings.user_agent == "me a@b.test"
    assert "secret-key-1" not in repr(settings)


# --------------------------------------------------------------------------------------- plans


def test_a_bar_of_a_session_that_has_not_closed_is_not_frozen(tmp_path: Path) -> None:
    # 2024-03-08 closes at 21:00 UTC.
    with pytest.raises(UsageError, match="the last session of AAA that is over is 2024-03-07"):
        run(
            tmp_path,
            plan_of(),
            Scripted("yfinance", bars),
            now=datetime(2024, 3, 8, 20, 59, tzinfo=UTC),
        )
    assert not parts_folder(tmp_path / "snapshots/mine").exists()
    run(
        tmp_path,
        plan_of(),
        Scripted("yfinance", bars),
        now=datetime(2024, 3, 8, 21, 0, tzinfo=UTC),
    )


def test_the_warm_up_counts_sessions_of_every_calendar() -> None:
    # Tokyo has no session on 2024-02-12, 02-23 and 03-20; New York none on 02-19.
    plan = plan_of(symbols=("AAA", "7203.T"), start=date(2024, 3, 1), warmup=20)
    # 20 sessions before 2024-03-01: New York 2024-02-01, Tokyo 2024-01-31.
    assert plan.declared_start == date(2024, 1, 31)


def test_a_plan_is_read_from_a_file_and_flags_win(tmp_path: Path) -> None:
    file = tmp_path / "plan.toml"
    file.write_text(
        'name = "mine"\nsymbols = ["AAPL", "MSFT"]\nbenchmarks = ["SPY"]\n'
        'start = 2018-01-02\nend = 2018-12-31\nwarmup = 10\ntables = ["bars", "news"]\n'
        '[chains]\nbars = ["files", "yfinance"]\n'
        '[options.files]\nlicence = "mine"\n'
        '[options.files.bars]\npath = "prices.csv"\ncolumn.session = "Day"\n'
    )
    plan = load_plan(file, {"end": "2018-06-29", "vendors": ["news=files"]})
    assert plan.end == date(2018, 6, 29)
    assert plan.chain("bars") == ("files", "yfinance")
    assert plan.chain("news") == ("files",)
    assert plan.options_of("files", "bars") == {
        "licence": "mine",
        "path": str(tmp_path / "prices.csv"),
        "column.session": "Day",
    }


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"start": "2018-12-31", "end": "2018-01-02"}, "is before start"),
        ({"symbols": ""}, "name at least one symbol"),
        ({"tables": "bars,gossip"}, "there is no table 'gossip'"),
        ({"vendors": ["bars=bloomberg"]}, "vendor 'bloomberg' is not known"),
        ({"vendors": ["bars=fred"]}, "vendor fred cannot fill the table bars: it has macro"),
        ({"tables": "macro"}, "table macro needs subjects"),
        ({"name": "../evil"}, "is no snapshot name"),
        ({"options": ["path=x"]}, "VENDOR.TABLE.OPTION=VALUE"),
        ({"symbols": "XYZ.QQ"}, "suffix"),
        ({"on_change": "both"}, "write keep or take"),
    ],
)
def test_a_plan_that_does_not_fit_says_what(flags: Mapping[str, Any], words: str) -> None:
    usual = {"name": "mine", "symbols": "AAPL", "start": "2018-01-02", "end": "2018-12-31"}
    with pytest.raises(UsageError, match=words.replace(".", r"\.")):
        load_plan(None, {**usual, **flags})


def test_an_option_for_splits_says_that_its_vendor_is_asked_for_them() -> None:
    # Left to come along with the bars, a file of splits was never opened, without a word.
    asked = {
        "name": "mine",
        "symbols": ("AAA",),
        "start": "2018-01-02",
        "end": "2018-06-29",
        "vendors": ["files"],
    }
    bars = ["files.bars.path=b.csv"]
    assert load_plan(None, {**asked, "options": bars}).links("actions") == ()
    for table in ("actions", "instruments"):
        plan = load_plan(None, {**asked, "options": [*bars, f"files.{table}.path=x.csv"]})
        assert plan.links(table) == (("files",),)


def test_an_option_that_no_vendor_is_asked_with_is_refused() -> None:
    asked = {"name": "mine", "symbols": ("AAA",), "start": "2018-01-02", "end": "2018-06-29"}
    options = ["files.bars.path=b.csv", "files.actions.path=x.csv"]
    with pytest.raises(UsageError, match=r"options\.files\.actions is asked by nobody: write"):
        load_plan(None, {**asked, "vendors": ["bars=files"], "options": options})


def test_an_unknown_key_names_the_nearest_one(tmp_path: Path) -> None:
    file = tmp_path / "plan.toml"
    file.write_text('name = "mine"\nsymbol = ["AAPL"]\nstart = 2018-01-02\nend = 2018-12-31\n')
    with pytest.raises(UsageError, match="symbols"):
        load_plan(file, {})


def test_a_vendor_of_ones_own_is_asked_like_the_others(tmp_path: Path) -> None:
    plan = plan_of(symbols=("AAA",), chains={"bars": (f"{__name__}:Own",)})
    frozen = run(tmp_path, plan)
    assert frozen.snapshot.bars("AAA").close[0] == 300.0


class Own:
    """A vendor as a user writes it."""

    name = "own"
    tables = frozenset({"bars"})

    def __init__(self, settings: object) -> None:
        self.settings = settings

    def capture(self, wanted: Wanted) -> Capture:
        return bars(wanted, close=300.0)


# --------------------------------------------------------------------------------- delisted ones


def test_a_symbol_that_stops_trading_is_a_fact_and_no_gap(tmp_path: Path) -> None:
    def answer(wanted: Wanted) -> Capture:
        return bars(wanted, sessions=SESSIONS[:4] if wanted.symbol == "BBB" else SESSIONS)

    gaps = run(tmp_path, plan_of(), Scripted("yfinance", answer)).snapshot.manifest.findings
    assert [(f.kind, f.instrument, f.session) for f in gaps] == [
        ("gap", "BBB", date(2024, 3, 7)),
        ("gap", "BBB", date(2024, 3, 8)),
    ]
    plan = plan_of(name="told", last_sessions={"BBB": date(2024, 3, 6)})
    frozen = run(tmp_path, plan, Scripted("yfinance", answer))
    assert frozen.snapshot.manifest.findings == ()
    assert frozen.snapshot.identity_rows("BBB")[0].last_session == date(2024, 3, 6)


def test_bars_that_begin_long_after_the_range_are_named_until_somebody_says_why(
    tmp_path: Path,
) -> None:
    late = tuple(date(2024, 3, day) for day in (11, 12))

    def answer(wanted: Wanted) -> Capture:
        days = (*SESSIONS, *late)
        return bars(wanted, sessions=late if wanted.symbol == "BBB" else days)

    plan = plan_of(end=date(2024, 3, 12))
    snapshot = run(tmp_path, plan, Scripted("yfinance", answer)).snapshot
    # 1, 4, 5, 6, 7 and 8 March are the six sessions before.
    (finding,) = snapshot.manifest.findings
    assert (finding.kind, finding.instrument, finding.session) == ("late_start", "BBB", late[0])
    assert "begin on 2024-03-11, 6 sessions after" in finding.message
    found = {row.subject: row.late for row in coverage_of(snapshot) if row.table == "bars"}
    assert found == {"AAA": 0, "BBB": 6}
    assert verify_snapshot(snapshot.path) == []
    listed = plan_of(end=date(2024, 3, 12), name="told", first_sessions={"BBB": late[0]})
    told = run(tmp_path, listed, Scripted("yfinance", answer)).snapshot
    assert told.manifest.findings == ()
    older = plan_of(end=date(2024, 3, 12), name="old", first_sessions={"BBB": SESSIONS[0]})
    gaps = run(tmp_path, older, Scripted("yfinance", answer)).snapshot.manifest.findings
    assert {finding.kind for finding in gaps} == {"gap"}
    assert len(gaps) == 6


def test_a_bar_before_the_first_session_that_was_told_is_refused(tmp_path: Path) -> None:
    plan = plan_of(first_sessions={"BBB": date(2024, 3, 5)})
    with pytest.raises(DataError, match="bar of BBB on 2024-03-01 is outside"):
        run(tmp_path, plan, Scripted("yfinance", bars))


def test_pounds_among_pence_are_refused(tmp_path: Path) -> None:
    def mixed(wanted: Wanted) -> Capture:
        capture = bars(wanted)
        rows = capture.rows["bars"].to_pylist()
        rows[3]["currency"] = "GBP"
        table = pa.Table.from_pylist(rows, schema=TABLES["bars"].arrow)
        return Capture(rows={"bars": table}, source="x", licence="free")

    with pytest.raises(DataError, match="bars of AAA are quoted in GBP, USD"):
        run(tmp_path, plan_of(), Scripted("yfinance", mixed))


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"end": "2999-01-01"}, "calendar XNYS knows .*: choose another range"),
        ({"start": "1700-01-01"}, "calendar XNYS knows .*: choose another range"),
        ({"options": ["fiels.bars.path=x"]}, "options name the vendor 'fiels', which is not asked"),
        ({"data_vendors": {"core_stock_apis": 5}}, "core_stock_apis: 5 is no list of vendors"),
        ({"data_vendors": {"core_stock_apis": [5]}}, "is no list of vendors"),
    ],
)
def test_a_plan_that_nobody_could_be_asked_by_is_refused_before_anything_is_asked(
    flags: dict[str, Any], words: str
) -> None:
    usual = {"name": "x", "symbols": "AAA", "start": "2018-03-01", "end": "2018-03-02"}
    with pytest.raises(UsageError, match=words):
        load_plan(None, {**usual, **flags})
