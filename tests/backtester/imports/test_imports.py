"""Decisions that others made become a run to score: read strictly, stored whole or not at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from backtester.cli import run as command
from backtester.errors import DataError, UsageError
from backtester.imports.files import read_decisions
from backtester.imports.imports import ImportResult, import_decisions
from backtester.replies.cache import ReplyCache
from backtester.walk.plan import cache_folder
from tests.support.results import rows_of
from tests.support.workspaces import Workspace, make_workspace, wave

HEAD = "ticker,date,rating\n"
PAIR = ("AAA", "^GSPC")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return make_workspace(tmp_path_factory.mktemp("import"))


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def imported(
    workspace: Workspace, source: Path, reports: Path, *, skip_bad: bool = False, **settings: Any
) -> ImportResult:
    given = {
        "snapshot": "small",
        "data_dir": workspace.data,
        "reports_dir": reports,
        "benchmark": "^GSPC",
        **settings,
    }
    strict = bool(given.pop("strict_dates", False))
    return import_decisions(source, given, skip_bad=skip_bad, strict_dates=strict)


def test_a_table_becomes_a_run_with_returns_a_book_and_a_label(
    shared: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write(
        tmp_path / "d.csv",
        "Symbol,Date,Rating,Price_Target,why\n"
        "AAA,2018-01-05,Buy,120.5,x\nBBB,2018-01-05,underweight,,\nAAA,2018-01-12,,,\n",
    )
    result = imported(shared, source, tmp_path / "r", horizon=3)

    assert (result.cells, result.unread, result.new) == (3, 1, True)
    assert result.notes == ("columns not read: why",)
    database = result.database
    cells = rows_of(
        database,
        "SELECT ticker, rating::VARCHAR AS rating, status::VARCHAR AS status, rating_source, "
        "typed FROM cells ORDER BY session, ticker",
    )
    assert [tuple(row.values())[:4] for row in cells] == [
        ("AAA", "Buy", "done", "external"),
        ("BBB", "Underweight", "done", "external"),
        ("AAA", None, "unread", "none"),
    ]
    assert json.loads(cells[0]["typed"]) == {
        "date": "2018-01-05",
        "price_target": 120.5,
        "rating": "Buy",
    }
    (states,) = rows_of(database, "SELECT count(*) AS n FROM returns WHERE status = 'resolved'")
    assert states["n"] == 3
    assert rows_of(database, "SELECT count(*) AS n FROM equity")[0]["n"] > 0
    label = "external: no prompts, no leak proof"
    assert rows_of(database, "SELECT evidence FROM runs") == [{"evidence": label}]
    for words in (("runs",), ("show", "latest")):
        assert command([*words, "--reports-dir", str(tmp_path / "r")]) == 0
        assert label in capsys.readouterr().out


def test_the_same_decisions_again_are_the_same_run(shared: Workspace, tmp_path: Path) -> None:
    one = write(tmp_path / "a.csv", HEAD + "AAA,2018-01-05,Buy\nBBB,2018-01-05,Sell\n")
    other = write(tmp_path / "b.csv", HEAD + "BBB,2018-01-05,Sell\nAAA,2018-01-05,Buy\n")

    first = imported(shared, one, tmp_path / "r")
    second = imported(shared, other, tmp_path / "r")

    assert first.run_id == second.run_id
    assert (first.new, second.new) == (True, False)
    ledger = (tmp_path / "r" / "ledger.jsonl").read_text()
    assert ledger.count("\n") == 1


def test_bad_rows_are_named_by_line_and_nothing_is_stored(
    shared: Workspace, tmp_path: Path
) -> None:
    source = write(
        tmp_path / "d.csv",
        HEAD + "AAA,2018-01-05,Strong Buy\nAAA,2018-02-30,Buy\nXXX,2018-01-05,Buy\n"
        "AAA,2031-01-05,Buy\nAAA,2018-01-12\n,2018-01-12,Buy\nBBB,2018-01-12,Buy\n",
    )
    reports = tmp_path / "r"

    with pytest.raises(DataError) as told:
        imported(shared, source, reports)

    words = str(told.value)
    assert "6 bad rows, nothing was stored" in words
    assert "d.csv, line 2: 'Strong Buy' is no rating" in words
    assert "d.csv, line 3:" in words
    assert not list(reports.glob("*/manifest.json"))

    result = imported(shared, source, reports, skip_bad=True)
    assert result.cells == 1
    assert {row.where for row in result.skipped} == {f"d.csv, line {n}" for n in range(2, 8)}


def test_a_benchmark_that_the_snapshot_lacks_is_told_once_and_blames_no_row(
    shared: Workspace, tmp_path: Path
) -> None:
    source = write(tmp_path / "d.csv", HEAD + "AAA,2018-01-05,Buy\nBBB,2018-01-12,Sell\n")

    with pytest.raises(DataError, match=r"^benchmark SPY, the default for AAA,") as told:
        imported(shared, source, tmp_path / "r", benchmark=None)

    assert "--skip-bad" not in str(told.value)


def test_two_rows_of_one_decision_that_differ_are_a_conflict_and_none_is_believed(
    shared: Workspace, tmp_path: Path
) -> None:
    text = (
        HEAD + "AAA,2018-01-05,Buy\nAAA,2018-01-05,Sell\nBBB,2018-01-05,Buy\nBBB,2018-01-05,Buy\n"
    )
    source = write(tmp_path / "d.csv", text)

    with pytest.raises(DataError, match=r"line 3: is the same decision .* as d.csv, line 2"):
        imported(shared, source, tmp_path / "r")

    result = imported(shared, source, tmp_path / "r", skip_bad=True)
    assert (result.cells, result.repeated) == (1, 1)


@pytest.mark.parametrize(
    ("day", "settings", "session", "filled"),
    [
        # A Saturday, decided at a close: Friday's session, filled on Monday.
        ("2018-01-06", {}, "2018-01-05", "2018-01-08"),
        ("2018-01-06", {"entry": "next_close"}, "2018-01-05", "2018-01-08"),
        # Filled on the session of the decision, or decided before its open: not on that Friday.
        ("2018-01-06", {"entry": "close"}, "2018-01-08", "2018-01-08"),
        ("2018-01-06", {"decision_time": "open"}, "2018-01-08", "2018-01-08"),
        ("2018-01-06", {"decision_time": "open", "entry": "open"}, "2018-01-08", "2018-01-08"),
        ("2018-01-06", {"decision_time": "open", "entry": "next_open"}, "2018-01-08", "2018-01-09"),
        # Martin Luther King's Monday.
        ("2018-01-15", {}, "2018-01-12", "2018-01-16"),
        ("2018-01-15", {"decision_time": "open", "entry": "open"}, "2018-01-16", "2018-01-16"),
        # A session is itself.
        ("2018-01-12", {"decision_time": "open", "entry": "open"}, "2018-01-12", "2018-01-12"),
    ],
)
def test_a_date_that_is_no_session_moves_to_where_it_fills_after_itself(
    shared: Workspace,
    tmp_path: Path,
    day: str,
    settings: dict[str, Any],
    session: str,
    filled: str,
) -> None:
    source = write(tmp_path / "d.csv", HEAD + f"AAA,{day},Buy\n")

    result = imported(shared, source, tmp_path / "r", horizon=3, **settings)

    assert (result.moved, result.moved_on) == (session < day, session > day)
    fills = rows_of(
        result.database,
        "SELECT session::VARCHAR AS session, entry_session::VARCHAR AS filled FROM returns",
    )
    assert fills == [{"session": session, "filled": filled}]
    assert filled >= day


def test_a_date_that_is_no_session_can_be_refused(shared: Workspace, tmp_path: Path) -> None:
    source = write(tmp_path / "d.csv", HEAD + "AAA,2018-01-06,Buy\n")

    with pytest.raises(DataError, match="2018-01-06 is no session of AAA's calendar"):
        imported(shared, source, tmp_path / "r", strict_dates=True)


def test_a_date_whose_next_session_is_beyond_the_snapshot_is_a_bad_row(tmp_path: Path) -> None:
    # Its last session is Friday the 5th, and it ends on Sunday.
    bars = {name: wave(name, start="2017-12-01", count=24, phase=0.0, drift=0.0) for name in PAIR}
    small = make_workspace(tmp_path, bars, end="2018-01-07")
    source = write(tmp_path / "d.csv", HEAD + "AAA,2018-01-06,Buy\nAAA,2018-01-03,Buy\n")
    said = r"d.csv, line 2: 2018-01-06 is no session, and the one after is not in small"

    with pytest.raises(DataError, match=said):
        imported(small, source, tmp_path / "r", decision_time="open")

    assert imported(small, source, tmp_path / "s").moved == 1


def test_every_day_is_a_session_of_what_trades_around_the_clock(tmp_path: Path) -> None:
    names = ("BTC-USD", "^GSPC")
    bars = {name: wave(name, start="2018-01-02", count=30, phase=0.0, drift=0.0) for name in names}
    crypto = make_workspace(tmp_path, bars)
    source = write(tmp_path / "d.csv", HEAD + "BTC-USD,2018-01-06,Buy\n")

    for entry in ("open", "close"):
        result = imported(
            crypto, source, tmp_path / entry, decision_time="open", entry=entry, benchmark="none"
        )
        assert (result.moved, result.moved_on) == (0, 0)
        days = rows_of(result.database, "SELECT session::VARCHAR AS day FROM cells")
        assert days == [{"day": "2018-01-06"}]


def test_the_direction_of_a_move_is_told(
    shared: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write(tmp_path / "d.csv", HEAD + "AAA,2018-01-06,Buy\n")
    asked = ("--snapshot", "small", "--benchmark", "^GSPC", "--data-dir", str(shared.data))
    told = {}
    for when in ("close", "open"):
        reports = ("--reports-dir", str(tmp_path / when))
        assert command(["import", str(source), *asked, *reports, "--decision-time", when]) == 0
        told[when] = capsys.readouterr().out

    assert "1 date without a session moved to the session before" in told["close"]
    assert "1 date without a session moved to the session after" in told["open"]


def test_parquet_reads_with_dates_and_missing_values(shared: Workspace, tmp_path: Path) -> None:
    from datetime import date

    table = pa.table(
        {
            "ticker": ["AAA", "BBB"],
            "date": pa.array([date(2018, 1, 5), date(2018, 1, 5)]),
            "rating": ["Hold", None],
            "price_target": [None, 99.0],
        }
    )
    pq.write_table(table, tmp_path / "d.parquet")

    found = read_decisions(tmp_path / "d.parquet")

    assert [(row.rating, row.price_target) for row in found.rows] == [("Hold", None), (None, 99.0)]
    assert imported(shared, tmp_path / "d.parquet", tmp_path / "r").cells == 2


@pytest.mark.parametrize("kind", [pa.timestamp("ms"), pa.timestamp("ms", "UTC")])
def test_a_parquet_date_beyond_every_calendar_is_a_bad_row(
    tmp_path: Path, kind: pa.DataType
) -> None:
    days = pa.array([2**40 * 1000, 1_515_110_400_000], kind)
    # What is not read cannot be at fault.
    columns = [pa.array(["AAA", "BBB"]), days, pa.array(["Buy", "Sell"]), days]
    table = pa.table(columns, names=["ticker", "date", "rating", "seen"])
    pq.write_table(table, tmp_path / "d.parquet")

    found = read_decisions(tmp_path / "d.parquet")

    assert [str(row) for row in found.bad] == [
        f"d.parquet, row 1: its date ({kind}) is beyond what can be read"
    ]
    assert [(row.ticker, str(row.day)) for row in found.rows] == [("BBB", "2018-01-05")]


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (("ticker", "date", "rating", "rating"), "both 'rating' and 'rating' could be the rating"),
        (("ticker", "date", "rating", "Rating"), "both 'rating' and 'Rating' could be the rating"),
        (("ticker", "date", "rating", "why", "why"), "has the column 'why' more than once"),
    ],
)
def test_parquet_columns_that_stand_twice_are_refused(
    tmp_path: Path, names: tuple[str, ...], says: str
) -> None:
    cells = ["AAA", "2018-01-05", "Buy", "Sell", "x"][: len(names)]
    table = pa.table([pa.array([cell]) for cell in cells], names=list(names))
    pq.write_table(table, tmp_path / "d.parquet")

    with pytest.raises(DataError, match=says):
        read_decisions(tmp_path / "d.parquet")


@pytest.mark.parametrize(
    "text",
    [
        ",ticker,date,rating\n0,AAA,2018-01-05,Buy\n1,BBB,2018-01-05,\n",
        "ticker,date,rating,\nAAA,2018-01-05,Buy,\nBBB,2018-01-05,\n",
        "\n\nticker,date,rating,,\nAAA,2018-01-05,Buy,x,y\nBBB,2018-01-05,,\n",
    ],
)
def test_columns_without_a_name_are_not_read(tmp_path: Path, text: str) -> None:
    found = read_decisions(write(tmp_path / "d.csv", text))

    assert not found.bad
    assert [(row.ticker, row.rating) for row in found.rows] == [("AAA", "Buy"), ("BBB", None)]
    assert found.notes == ("columns not read: (unnamed)",)


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("AAA,٢٠١٨-٠١-٠٥,Buy,,", "in the digits 0 to 9"),
        ("AAA,2018-02-30,Buy,,", "2018-02-30 is no date: no calendar has that day"),
        ("AAA,2018-01-05,Buy,1_000,", "price target '1_000' is no number above 0"),
        ("AAA,2018-01-05,Buy,١٠,", "is no number above 0"),
        ("AAA,2018-01-05,Buy,,1_0", "trial '1_0' is no number from 0 to 999"),
        ("AAA,2018-01-05,Buy", "3 cells, not 5"),
    ],
)
def test_cells_that_python_alone_would_read_are_bad_rows(
    tmp_path: Path, row: str, says: str
) -> None:
    head = "ticker,date,rating,target,trial\n"
    (bad,) = read_decisions(write(tmp_path / "d.csv", f"{head}{row}\n")).bad

    assert says in bad.problem
    assert "isoformat" not in bad.problem


@pytest.mark.parametrize(
    ("written", "target"), [("99", 99.0), ("1e2", 100.0), (".5", 0.5), ("7.", 7.0), ("None", None)]
)
def test_a_price_target_is_a_number_as_people_write_it(
    tmp_path: Path, written: str, target: float | None
) -> None:
    text = f"ticker,date,rating,target\nAAA,2018-01-05,Buy,{written}\n"

    (row,) = read_decisions(write(tmp_path / "d.csv", text)).rows

    assert row.price_target == target


def test_line_ends_of_cr_alone_are_told(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_bytes(b"ticker,date,rating\rAAA,2018-01-05,Buy\r")

    with pytest.raises(DataError, match="line ends are CR alone: save it with LF") as told:
        read_decisions(tmp_path / "d.csv")

    assert "universal-newline" not in str(told.value)


MEMORY = """[2018-01-05 | AAA | Buy | +1.20% | -0.35% | 5d]

DECISION:
**Rating**: Buy

Street consensus rating: Sell (3 of 4)

REFLECTION:
Rating: Sell was what we should have said.

<!-- ENTRY_END -->

[2018-01-12 | AAA | Hold | pending]

DECISION:
There is much to say, and no tier is declared here.

<!-- ENTRY_END -->

[2018-01-12 | BBB | Underweight | pending]

<!-- ENTRY_END -->
"""


def test_a_memory_log_counts_what_its_texts_declare(tmp_path: Path) -> None:
    found = read_decisions(write(tmp_path / "trading_memory.md", MEMORY))

    assert [(str(row.day), row.ticker, row.rating) for row in found.rows] == [
        ("2018-01-05", "AAA", "Buy"),
        # Its first line says Hold, for want of a rating: that is not believed.
        ("2018-01-12", "AAA", None),
        ("2018-01-12", "BBB", "Underweight"),
    ]
    assert found.notes == ("1 entries whose text declares another rating than their first line",)
    assert [row.where for row in found.rows] == [
        f"trading_memory.md, line {n}" for n in (1, 13, 20)
    ]


def state(day: str, text: str, ticker: str = "AAA") -> dict[str, str]:
    return {"company_of_interest": ticker, "trade_date": day, "final_trade_decision": text}


def test_state_logs_are_read_in_both_forms(shared: Workspace, tmp_path: Path) -> None:
    logs = tmp_path / "results" / "AAA" / "TradingAgentsStrategy_logs"
    one = state("2018-01-05", "**Rating**: Overweight")
    older = {"2018-01-12": state("2018-01-12", "Rating：Sell"), "2018-01-05": one}
    write(logs / "full_states_log_2018-01-05.json", json.dumps(one))
    write(logs / "full_states_log_2018-01-12.json", json.dumps(older))
    write(logs / "full_states_log_2018-01-19.json", json.dumps(state("2018-01-19", "Wait.")))

    result = imported(shared, tmp_path / "results", tmp_path / "r")

    assert (result.cells, result.unread, result.repeated) == (3, 1, 1)
    ratings = rows_of(result.database, "SELECT rating::VARCHAR AS r FROM cells ORDER BY session")
    assert [row["r"] for row in ratings] == ["Overweight", "Sell", None]


def test_a_state_log_that_is_none_is_a_bad_row(tmp_path: Path) -> None:
    write(tmp_path / "full_states_log_a.json", "{")
    write(tmp_path / "full_states_log_b.json", '{"x": 1}')

    bad = read_decisions(tmp_path).bad

    assert [row.where.split(",")[0] for row in bad] == [
        "full_states_log_a.json",
        "full_states_log_b.json",
    ]


@pytest.mark.parametrize(
    ("name", "text", "error", "says"),
    [
        ("d.xlsx", "", UsageError, "its form is not known"),
        ("d.csv", "ticker,day,rating\nAAA,2018-01-05,Buy\n", DataError, "no column date"),
        ("d.csv", HEAD, DataError, "holds no row"),
        ("d.md", "# nothing", DataError, "no entry"),
        ("d.parquet", "x", DataError, "no whole Parquet file"),
        ("d.csv", HEAD + '"AAA,2018-01-05,Buy\n', DataError, "no CSV file at line"),
        ("d.csv", "ticker,symbol,date,rating\na,b,c,d\n", DataError, "could be the ticker"),
        ("d.csv", "ticker,date,rating,rating\na,b,c,d\n", DataError, "could be the rating"),
        ("d.csv", "ticker,date,rating,Rating\na,b,c,d\n", DataError, "'Rating' could be"),
        ("d.csv", "", DataError, "holds no row"),
    ],
)
def test_what_is_no_source_is_told(
    tmp_path: Path, name: str, text: str, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        read_decisions(write(tmp_path / name, text))


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no file"):
        read_decisions(tmp_path / "none.csv")


@pytest.mark.parametrize("words", [("replay",), ("cassette", "pack")])
def test_what_needs_prompts_refuses_an_external_run(
    shared: Workspace,
    tmp_path: Path,
    words: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
) -> None:
    ReplyCache.open(cache_folder(shared.data))
    reports = tmp_path / "r"
    result = imported(shared, write(tmp_path / "d.csv", HEAD + "AAA,2018-01-05,Buy\n"), reports)
    extra = ("--out", str(tmp_path / "x.jsonl.zst")) if words[0] == "cassette" else ()
    folders = ("--data-dir", str(shared.data), "--reports-dir", str(reports))

    assert command([*words, result.run_id, *extra, *folders]) == 3

    assert "it can be scored, and nothing more" in capsys.readouterr().err


def test_an_import_can_be_scored_again(shared: Workspace, tmp_path: Path) -> None:
    source = write(tmp_path / "d.csv", HEAD + "AAA,2018-01-05,Buy\nBBB,2018-01-05,Sell\n")
    result = imported(shared, source, tmp_path / "r")
    folders = ("--data-dir", str(shared.data), "--reports-dir", str(tmp_path / "r"))

    assert command(["score", result.run_id, "--horizon", "2", "--placebo", "0", *folders]) == 0

    assert len(rows_of(result.database, "SELECT score_id FROM scores")) == 2


def test_what_others_paid_their_models_is_unknown_and_not_nothing(
    shared: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write(tmp_path / "d.csv", HEAD + "AAA,2018-01-05,Buy\n")
    result = imported(shared, source, tmp_path / "r", horizon=3)
    asked = ("--data-dir", str(shared.data), "--reports-dir", str(tmp_path / "r"))

    assert command(["score", "latest", "--charge-model-cost", *asked]) == 0

    said = capsys.readouterr().out
    why = "the models' bill cannot be charged: AAA|2018-01-05|0 has no record of its model calls"
    assert f"no book: {why}" in said
    figures = rows_of(
        result.database,
        "SELECT score_id = 'default' AS own, metric, value, reason FROM metrics "
        "WHERE subject = 'ratings' AND metric IN ('model_cost', 'total_return') ORDER BY 1, 2",
    )
    assert [tuple(row.values()) for row in figures[:3]] == [
        (False, "model_cost", None, why),
        (False, "total_return", None, why),
        (True, "model_cost", None, "not_charged"),
    ]
    assert figures[3]["value"] is not None
