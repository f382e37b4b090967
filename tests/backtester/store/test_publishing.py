"""Publishing: no row lost, no reader disturbed, nothing stored that no table may hold."""

from __future__ import annotations

import math
import multiprocessing
import os
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest
from filelock import FileLock

from backtester.errors import DataError, UsageError
from backtester.publication import rebuild_database
from backtester.records import CellKey
from backtester.store.publishing import (
    RunDocument,
    publish,
    published_runs,
    published_states,
    rebuild,
)
from backtester.store.query import export_tables
from backtester.store.tables import TABLES
from backtester.store.views import VIEWS
from tests.support.records import (
    CUTOFF,
    make_call,
    make_cell,
    make_key,
    make_lesson,
    make_read,
    make_return,
)
from tests.support.results import make_document, make_run, published, rows_of


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "reports" / "results.duckdb"


# -------------------------------------------------------------------------- what a row becomes


def test_a_record_comes_out_of_the_tables_as_it_went_in(database: Path) -> None:
    key = make_key("META", "2018-01-05", 2)
    publish(
        database,
        make_document(
            cells=[
                make_cell(
                    key,
                    symbol="FB",
                    rating="Overweight",
                    lessons_shown=("AAA|2017-12-22|2", "META|2017-12-22|2"),
                    calls=(make_call(), make_call(attempt=1, finish_reason="outcome:invalid")),
                )
            ],
            returns=[make_return(key, dividends=0.73, flags=("haircut", "index_open"))],
            lessons=[make_lesson(key, rating="Overweight")],
        ),
    )
    cell = rows_of(database, "SELECT * FROM cells")[0]
    assert (cell["run_id"], cell["ticker"], cell["symbol"]) == ("run-a", "META", "FB")
    assert (cell["session"], cell["trial"]) == (date(2018, 1, 5), 2)
    assert cell["cutoff"] == datetime(2018, 1, 5, 21, 0)  # noqa: DTZ001 - UTC by definition
    assert cell["rating"] == "Overweight"
    assert cell["lessons_shown"] == ["AAA|2017-12-22|2", "META|2017-12-22|2"]
    assert cell["n_calls"] == 2
    calls = rows_of(database, "SELECT * FROM llm_calls ORDER BY phase, seq")
    assert [(call["phase"], call["seq"], call["attempt"]) for call in calls] == [
        ("decision", 0, 0),
        ("decision", 1, 1),
        ("lesson", 0, 0),
    ]
    assert {call["ticker"] for call in calls} == {"META"}
    returned = rows_of(database, "SELECT * FROM returns")[0]
    assert returned["dividends"] == 0.73
    assert returned["flags"] == ["haircut", "index_open"]
    read = rows_of(database, "SELECT * FROM reads")[0]
    assert (read["source_table"], read["instrument"], read["n_rows"]) == ("bars", "AAA", 24)
    assert rows_of(database, "SELECT lesson FROM memory")[0]["lesson"] == "The trend held."


def test_a_run_says_what_it_was(database: Path) -> None:
    publish(database, make_run())
    run = rows_of(database, "SELECT * FROM runs")[0]
    assert run["tickers"] == ["AAA", "BBB"]
    assert (run["first_date"], run["last_date"]) == (date(2018, 1, 1), date(2018, 12, 31))
    assert (run["horizon"], run["entry_rule"], run["benchmark"]) == (5, "next_open", "^GSPC")
    assert (run["memory_scope"], run["quick_model"]) == ("portfolio", "rulebook-1")
    assert run["created_at"] == datetime(2026, 11, 30, 9, 0)  # noqa: DTZ001 - UTC by definition
    assert run["versions"] == '{"duckdb":"2.0.1"}'
    assert run["results_root"] == "b" * 64


def test_a_manifest_with_little_in_it_still_publishes(database: Path) -> None:
    document = RunDocument(
        manifest={"run_id": "bare", "status": "started"}, cells=[], returns=[], lessons=[]
    )
    publish(database, document)
    run = rows_of(database, "SELECT run_id, status, horizon, tickers FROM runs")
    assert run == [{"run_id": "bare", "status": "started", "horizon": None, "tickers": None}]


def test_a_manifest_without_a_run_id_is_refused(database: Path) -> None:
    with pytest.raises(DataError, match="no run_id"):
        publish(database, RunDocument(manifest={}, cells=[], returns=[], lessons=[]))


def test_a_grid_of_dates_is_stored_as_json(database: Path) -> None:
    document = make_document(identity={"grid": ["2018-01-05", "2018-01-12"]})
    publish(database, document)
    assert rows_of(database, "SELECT grid FROM runs")[0]["grid"] == '["2018-01-05","2018-01-12"]'


@pytest.mark.parametrize("offset_hours", [-5, 0, 9])
def test_an_instant_is_stored_as_utc_whatever_zone_it_came_in(
    database: Path, offset_hours: int
) -> None:
    zone = timezone(timedelta(hours=offset_hours))
    publish(database, make_document(cells=[make_cell(cutoff=CUTOFF.astimezone(zone))]))
    found = rows_of(database, "SELECT cutoff FROM cells")[0]["cutoff"]
    assert found == datetime(2018, 1, 5, 21, 0)  # noqa: DTZ001 - UTC by definition


def test_sessions_and_instants_are_the_same_in_every_time_zone(
    database: Path, time_zone: str
) -> None:
    publish(database, make_run(tickers=["AAA"]))
    # A client of its own, which takes the zone of the machine: nothing may move with it.
    with duckdb.connect(str(database), read_only=True) as connection:
        row = connection.execute(
            "SELECT session::VARCHAR, cutoff::VARCHAR, cutoff::DATE::VARCHAR, typeof(session), "
            "typeof(cutoff), cutoff <= '2018-01-05 21:00:00' FROM cells"
        ).fetchall()[0]
    assert row == ("2018-01-05", "2018-01-05 21:00:00", "2018-01-05", "DATE", "TIMESTAMP", True)


def test_ratings_sort_from_sell_to_buy_and_compare(database: Path) -> None:
    words = ("Hold", "Buy", "Sell", "Overweight", "Underweight")
    cells = [make_cell(make_key(f"T{n}"), rating=word) for n, word in enumerate(words)]
    publish(database, make_document(cells=cells))
    found = [row["rating"] for row in rows_of(database, "SELECT rating FROM cells ORDER BY rating")]
    assert found == ["Sell", "Underweight", "Hold", "Overweight", "Buy"]
    above = rows_of(database, "SELECT rating FROM cells WHERE rating > 'Hold'::rating ORDER BY 1")
    assert [row["rating"] for row in above] == ["Overweight", "Buy"]


def test_a_decision_without_a_rating_is_stored_without_one(database: Path) -> None:
    cell = make_cell(status="unread", rating=None, rating_source="none", typed="null")
    publish(database, make_document(cells=[cell]))
    row = rows_of(database, "SELECT status, rating, rating_source FROM cells")[0]
    assert row == {"status": "unread", "rating": None, "rating_source": "none"}


def test_doubles_are_stored_whole(database: Path) -> None:
    value = 0.1 + 0.2  # 0.30000000000000004
    publish(database, make_document(returns=[make_return(raw_total=value, alpha=1e-17)]))
    row = rows_of(database, "SELECT raw_total, alpha FROM returns")[0]
    assert row["raw_total"].hex() == value.hex()
    assert row["alpha"].hex() == (1e-17).hex()


def test_minus_zero_is_zero(database: Path) -> None:
    publish(database, make_document(returns=[make_return(alpha=-0.0)]))
    assert math.copysign(1, rows_of(database, "SELECT alpha FROM returns")[0]["alpha"]) == 1.0


# ------------------------------------------------------------------- what no table may hold


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_number_that_is_none_is_refused_and_named(database: Path, value: float) -> None:
    good, bad = make_return(make_key("AAA")), make_return(make_key("BBB"), entry_price=value)
    with pytest.raises(DataError, match=r"returns\.entry_price of BBB\|2018-01-05\|0"):
        publish(database, make_document(returns=[good, bad]))
    assert not database.exists()


def test_a_fraction_too_large_to_be_added_up_is_refused(database: Path) -> None:
    with pytest.raises(DataError, match=r"raw_total of AAA\|2018-01-05\|0 is 1000000000\.0"):
        publish(database, make_document(returns=[make_return(raw_total=1e9)]))
    publish(database, make_document(returns=[make_return(raw_total=9.9e8, entry_price=1e12)]))


def test_a_bad_number_of_a_call_names_cell_and_call(database: Path) -> None:
    cell = make_cell(calls=(make_call(), make_call(cost_usd=float("nan"))))
    with pytest.raises(DataError, match=r"llm_calls\.cost_usd of AAA\|2018-01-05\|0, calls 1"):
        publish(database, make_document(cells=[cell]))


def test_a_cell_that_appears_twice_is_refused(database: Path) -> None:
    with pytest.raises(DataError, match=r"cells: AAA\|2018-01-05\|0 is there twice"):
        publish(database, make_document(cells=[make_cell(), make_cell(rating="Sell")]))


def test_one_cell_may_have_returns_of_several_scores(database: Path) -> None:
    rows = [make_return(), make_return(score_id="h10", horizon=10)]
    publish(database, make_document(returns=rows))
    with pytest.raises(DataError, match="twice"):
        publish(database, make_document(returns=[*rows, make_return(score_id="h10")]))


def test_a_missing_value_that_must_be_there_is_refused(database: Path) -> None:
    broken: Any = None
    with pytest.raises(DataError, match=r"cells\.cutoff is missing for AAA"):
        publish(database, make_document(cells=[make_cell(cutoff=broken)]))


def test_a_value_of_a_wrong_type_is_refused(database: Path) -> None:
    broken: Any = "twenty"
    with pytest.raises(DataError, match=r"cells\.steps does not fit its type"):
        publish(database, make_document(cells=[make_cell(steps=broken)]))


def test_an_unknown_rating_is_refused_and_the_published_file_stays(database: Path) -> None:
    publish(database, make_run())
    before = database.read_bytes()
    with pytest.raises(DataError, match="run-b: a row does not fit table cells"):
        publish(database, make_document("run-b", cells=[make_cell(rating="REVIEW")]))
    assert database.read_bytes() == before
    assert [path.name for path in sorted(database.parent.glob("*.new*"))] == []


# -------------------------------------------------------------------------------- publishing


def test_the_rows_of_other_runs_are_kept(database: Path) -> None:
    published(database, make_run("run-a"), make_run("run-b"), make_run("run-c"))
    assert published_runs(database) == ("run-a", "run-b", "run-c")
    for table in ("cells", "returns", "memory", "reads"):
        counts = rows_of(database, f"SELECT run_id, count(*) n FROM {table} GROUP BY 1 ORDER BY 1")
        assert [row["n"] for row in counts] == [2, 2, 2]


def test_publishing_again_replaces_the_runs_own_rows(database: Path) -> None:
    published(database, make_run("run-a"), make_run("run-b"))
    for _ in range(3):
        publish(database, make_run("run-a", tickers=["AAA", "BBB", "CCC"]))
    counts = rows_of(database, "SELECT run_id, count(*) n FROM llm_calls GROUP BY 1 ORDER BY 1")
    assert counts == [{"run_id": "run-a", "n": 6}, {"run_id": "run-b", "n": 4}]


def test_publishing_again_and_again_does_not_grow_the_file(database: Path) -> None:
    run = make_run(tickers=[f"T{number}" for number in range(50)])
    # Blocks that were freed are used again a few times later.
    sizes = [published(database, run).stat().st_size for _ in range(12)]
    assert max(sizes[6:]) <= max(sizes[:6])


def test_a_run_name_is_data_and_no_sql(database: Path) -> None:
    name = "x'; DROP TABLE cells; --"
    published(database, make_run("run-a"), make_run(name))
    assert published_runs(database) == ("run-a", name)
    publish(database, make_run(name, tickers=["AAA"]))
    assert len(rows_of(database, "SELECT * FROM cells")) == 3


def test_there_are_no_published_runs_before_the_first(database: Path) -> None:
    assert published_runs(database) == ()


def test_a_reader_keeps_the_table_that_it_opened(database: Path) -> None:
    publish(database, make_run("run-a"))
    with duckdb.connect(str(database), read_only=True) as reader:
        assert reader.execute("SELECT count(*) FROM cells").fetchall() == [(2,)]
        publish(database, make_run("run-b"))
        assert reader.execute("SELECT count(*) FROM cells").fetchall() == [(2,)]
        # A query of its own, in the very same process, sees what was published since.
        assert len(rows_of(database, "SELECT * FROM cells")) == 4


def _publish_five(database: Path, name: str) -> None:
    for number in range(5):
        publish(database, make_run(f"{name}-{number}"))


def _read_until(database: Path, stop: Any, failures: Any) -> None:
    while not stop.is_set():
        # Asked before the query: the first publication may come between the two.
        was_there = database.exists()
        try:
            cells = rows_of(database, "SELECT run_id, count(*) n FROM cells GROUP BY run_id")
        except DataError as error:
            if was_there:
                failures.put(str(error))
            continue
        if any(row["n"] != 2 for row in cells):
            failures.put(f"half a run: {cells}")


def test_three_processes_publish_at_once_under_a_readers_eyes_and_no_row_is_lost(
    database: Path,
) -> None:
    context = multiprocessing.get_context("spawn")
    stop, failures = context.Event(), context.Queue()
    reader = context.Process(target=_read_until, args=(database, stop, failures))
    writers = [context.Process(target=_publish_five, args=(database, name)) for name in "abc"]
    for process in (reader, *writers):
        process.start()
    for process in writers:
        process.join(timeout=120)
    stop.set()
    reader.join(timeout=60)
    assert [process.exitcode for process in (*writers, reader)] == [0, 0, 0, 0]
    assert failures.empty(), failures.get()
    assert published_runs(database) == tuple(f"{name}-{n}" for name in "abc" for n in range(5))
    assert rows_of(database, "SELECT count(*) n FROM cells") == [{"n": 30}]


def test_a_publisher_that_finds_no_way_to_the_lock_says_so(database: Path) -> None:
    publish(database, make_run())
    lock = FileLock(database.with_name(".results.duckdb.lock"))
    with lock.acquire(), pytest.raises(UsageError, match=r"held by another publisher for 0\.1 s"):
        publish(database, make_run("run-b"), lock_timeout_s=0.1)
    publish(database, make_run("run-b"))


def test_a_leftover_of_a_killed_publisher_is_no_obstacle(database: Path) -> None:
    publish(database, make_run("run-a"))
    database.with_name(".results.duckdb.new").write_bytes(b"half a database")
    database.with_name(".results.duckdb.new.wal").write_bytes(b"half a log")
    publish(database, make_run("run-b"))
    assert published_runs(database) == ("run-a", "run-b")
    left = {path.name for path in database.parent.iterdir()}
    assert left <= {"results.duckdb", ".results.duckdb.lock"}


def test_a_folder_that_cannot_be_written_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "reports").write_text("a file in its place")
    with pytest.raises(UsageError, match=r"cannot be written .*--reports-dir"):
        publish(tmp_path / "reports" / "results.duckdb", make_run())


# ------------------------------------------------------------------- damage, versions, rebuild


def _damage(database: Path, how: str) -> None:
    content = database.read_bytes()
    if how == "cut":
        database.write_bytes(content[: len(content) // 2])
    elif how == "garbage":
        database.write_bytes(b"not a database" * 1000)
    elif how == "empty":
        database.write_bytes(b"")
    elif how == "version":
        # The storage version is the first number after the file's magic bytes.
        database.write_bytes(content[:12] + (7).to_bytes(8, "little") + content[20:])
    elif how == "tables":
        with duckdb.connect(str(database)) as connection:
            connection.execute("CREATE OR REPLACE MACRO results_schema() AS 'older'")


@pytest.mark.parametrize("how", ["cut", "garbage", "empty", "version", "tables"])
def test_a_database_that_cannot_be_extended_asks_for_a_rebuild_and_gets_it(
    database: Path, how: str
) -> None:
    documents = [make_run("run-a"), make_run("run-b")]
    published(database, *documents)
    whole = export_tables(database, database.parent / "whole")
    _damage(database, how)
    damaged = database.read_bytes()
    with pytest.raises(DataError, match="backtester rebuild"):
        publish(database, make_run("run-c"))
    assert database.read_bytes() == damaged
    assert rebuild(database, lambda: documents) == 2
    assert export_tables(database, database.parent / "rebuilt") == whole


def test_a_rebuild_makes_the_same_tables_byte_for_byte(database: Path, tmp_path: Path) -> None:
    documents = [make_run(f"run-{name}", tickers=["AAA", "BBB", "CCC"]) for name in "abc"]
    # Published in another order, with rows that were replaced in between.
    published(database, documents[2], make_run("run-a"), documents[1], documents[0])
    one = export_tables(database, tmp_path / "one")
    rebuild(tmp_path / "other.duckdb", lambda: documents)
    other = export_tables(tmp_path / "other.duckdb", tmp_path / "two")
    assert one == other
    assert len(one) == len(TABLES) + len(VIEWS)
    assert pq.read_table(tmp_path / "one" / "cells.parquet").num_rows == 9


def test_a_rebuild_that_fails_keeps_what_was_there(database: Path) -> None:
    publish(database, make_run("run-a"))
    before = database.read_bytes()
    broken = make_document("run-b", returns=[make_return(alpha=float("nan"))])
    with pytest.raises(DataError, match="run-b"):
        rebuild(database, lambda: [make_run("run-a"), broken])
    with pytest.raises(DataError, match="run run-a is there twice"):
        rebuild(database, lambda: [make_run("run-a")] * 2)
    assert database.read_bytes() == before


def test_a_rebuild_that_may_leave_runs_out_names_them_and_goes_on(database: Path) -> None:
    broken = make_document("run-b", returns=[make_return(alpha=float("nan"))])
    refused: dict[str, str] = {}

    def leave_out(run_id: str, error: DataError) -> None:
        refused[run_id] = str(error)

    documents = [make_run("run-a"), broken, make_run("run-c")]
    assert rebuild(database, lambda: documents, leave_out=leave_out) == 2

    assert published_runs(database) == ("run-a", "run-c")
    assert list(refused) == ["run-b"]
    assert "run-b" in refused["run-b"]


def test_a_rebuild_reads_the_runs_when_no_one_else_can_publish(database: Path) -> None:
    on_disk = [make_run("run-a")]
    lock = FileLock(database.with_name(".results.duckdb.lock"))
    database.parent.mkdir()
    with ThreadPoolExecutor(max_workers=1) as executor:
        with lock.acquire():
            rebuilding = executor.submit(rebuild, database, lambda: list(on_disk))
            time.sleep(0.3)
            # A run that finishes while the rebuild waits for its turn.
            on_disk.append(make_run("run-b"))
        assert rebuilding.result(timeout=60) == 2
    assert published_runs(database) == ("run-a", "run-b")

    def late() -> Any:
        with pytest.raises(UsageError, match="held by another publisher"):
            publish(database, make_run("run-c"), lock_timeout_s=0.05)
        yield from on_disk

    assert rebuild(database, late) == 2


def test_a_rebuild_of_a_folder_without_runs_makes_nothing(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="typo holds no runs"):
        rebuild_database(tmp_path / "typo")
    assert not (tmp_path / "typo").exists()


def test_how_a_run_stood_when_it_was_published_can_be_asked(database: Path) -> None:
    assert published_states(database) == {}
    root = "b" * 64
    started = make_document("run-b", status="started", results_root=None)
    published(database, make_run("run-a"), started)
    assert published_states(database) == {"run-a": ("finished", root), "run-b": ("started", None)}
    publish(database, make_document("run-b", status="finished", results_root="c" * 64))
    state = published_states(database)["run-b"]
    assert (state.status, state.results_root) == ("finished", "c" * 64)
    _damage(database, "garbage")
    with pytest.raises(DataError, match="backtester rebuild"):
        published_states(database)


def test_an_error_of_the_journals_reader_passes_through(database: Path) -> None:
    def documents() -> Any:
        yield make_run("run-a")
        raise DataError("journal of run-b is damaged at line 3")

    with pytest.raises(DataError, match="line 3"):
        rebuild(database, documents)
    assert not database.exists()


def test_a_rebuild_of_no_runs_gives_empty_tables(database: Path) -> None:
    assert rebuild(database, list) == 0
    assert published_runs(database) == ()
    assert rows_of(database, "SELECT * FROM alpha_by_rating") == []


def test_what_the_clock_and_the_cache_change_is_left_out_of_a_stable_export(
    tmp_path: Path,
) -> None:
    key = make_key()
    for name, hit, cost, wall in (("one", False, 0.02, 1.5), ("two", True, 0.0, 0.01)):
        call = make_call(hit=hit, cost_usd=cost, latency_s=wall, saved_usd=cost)
        document = make_document(
            cells=[make_cell(key, calls=(call,), wall_s=wall)],
            returns=[make_return(key)],
            lessons=[make_lesson(key, calls=(call,))],
            created_at=f"2026-11-{10 + len(name)}T00:00:00+00:00" if hit else None,
            status="stopped" if hit else "finished",
        )
        publish(tmp_path / name / "results.duckdb", document)
    stable = [
        export_tables(tmp_path / name / "results.duckdb", tmp_path / name, stable_only=True)
        for name in ("one", "two")
    ]
    everything = [
        export_tables(tmp_path / name / "results.duckdb", tmp_path / name)
        for name in ("one", "two")
    ]
    assert stable[0] == stable[1]
    changed = {name for name in everything[0] if everything[0][name] != everything[1][name]}
    assert changed == {"runs", "cells", "llm_calls", "cost_by_node", "cache_efficiency"}


def test_publishing_leaves_a_file_that_everybody_may_open(database: Path) -> None:
    publish(database, make_run())
    assert not database.with_name("results.duckdb.wal").exists()
    assert os.access(database, os.R_OK)


def test_hundreds_of_cells_are_published_in_their_order(database: Path) -> None:
    keys = [
        CellKey(session=date(2018, 1, 1) + timedelta(days=day), ticker=ticker)
        for day in range(300)
        for ticker in ("BBB", "AAA")
    ]
    cells = [
        make_cell(key, calls=(make_call(node="A"), make_call(node="B")), reads=(make_read(),) * 3)
        for key in keys
    ]
    publish(database, make_document(cells=cells[::-1]))
    rows = rows_of(database, "SELECT session, ticker, seq, node FROM llm_calls")
    assert [(row["session"], row["ticker"], row["seq"], row["node"]) for row in rows] == [
        (key.session, key.ticker, seq, node)
        for key in sorted(keys)
        for seq, node in enumerate("AB")
    ]
    assert rows_of(database, "SELECT count(*) n, max(seq) m FROM reads") == [{"n": 1800, "m": 2}]


def test_a_waiting_lesson_has_no_instant(database: Path) -> None:
    lesson = make_lesson(lesson_status="waiting", resolved_at=None, raw_return=None, alpha=None)
    publish(database, make_document(lessons=[lesson]))
    row = rows_of(database, "SELECT resolved_at, lesson_status FROM memory")[0]
    assert row == {"resolved_at": None, "lesson_status": "waiting"}
    assert CUTOFF.tzinfo is UTC
