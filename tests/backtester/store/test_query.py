"""Queries read the results and nothing else, and their output is the same bytes every time."""

from __future__ import annotations

import csv
import io
import json
import multiprocessing
import os
import pty
import resource
import subprocess
import sys
import threading
import time
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from backtester.errors import DataError, UsageError
from backtester.store import limits as sql_limits
from backtester.store import output as sql_output
from backtester.store import query as sql_module
from backtester.store.output import rows_as_bytes
from backtester.store.publishing import publish
from backtester.store.query import EXAMPLES, fetch_arrow, open_results, run_sql
from tests.support.records import make_cell, make_key, make_lesson
from tests.support.results import make_document, make_run, published, rows_of


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a database that queries read; no test changes it."""
    return published(tmp_path_factory.mktemp("sql") / "reports" / "results.duckdb", make_run())


@pytest.fixture
def database(shared: Path) -> Path:
    return shared


# ------------------------------------------------------------------------------- what is refused

NOT_A_SELECT = (
    "INSERT INTO cells SELECT * FROM cells",
    "UPDATE cells SET rating = 'Buy'",
    "DELETE FROM cells",
    "TRUNCATE cells",
    "DROP TABLE cells",
    "ALTER TABLE cells ADD COLUMN x INTEGER",
    "CREATE TABLE mine AS SELECT 1",
    "CREATE TEMP TABLE mine AS SELECT 1",
    "CREATE TABLE memory.main.mine AS SELECT 1",
    "CREATE OR REPLACE MACRO results_schema() AS 'x'",
    "COPY cells TO 'OUTSIDE.csv'",
    "COPY (SELECT 1) TO 'OUTSIDE.parquet' (FORMAT parquet)",
    "COPY cells FROM '/etc/passwd'",
    "EXPORT DATABASE 'OUTSIDE'",
    "IMPORT DATABASE 'OUTSIDE'",
    "ATTACH 'OUTSIDE.duckdb' AS other",
    "DETACH results",
    "USE memory",
    "INSTALL httpfs",
    "LOAD httpfs",
    "SET enable_external_access = true",
    "SET threads = 8",
    "RESET ALL",
    "PRAGMA database_list",
    "PRAGMA enable_profiling",
    "CALL pragma_version()",
    "CHECKPOINT",
    "VACUUM",
    "BEGIN",
    "PREPARE p AS SELECT 1",
    "EXECUTE p",
    "EXPLAIN ANALYZE SELECT 1",
    "PIVOT cells ON rating USING count(*)",
)

REACHING_OUT = (
    "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT * FROM '/etc/passwd'",
    "FROM 'cells.parquet'",
    "SELECT * FROM read_text('/etc/hostname')",
    "SELECT * FROM read_blob('/etc/hostname')",
    "SELECT * FROM read_parquet('x.parquet')",
    "SELECT * FROM read_json('x.json')",
    "SELECT * FROM read_csv('https://127.0.0.1:9/x.csv')",
    "SELECT * FROM glob('/*')",
    "SELECT * FROM sniff_csv('/etc/passwd')",
    "SELECT * FROM parquet_metadata('x.parquet')",
    "SELECT * FROM read_duckdb('OUTSIDE.duckdb')",
    "SELECT * FROM sqlite_scan('x.db', 'y')",
    "SELECT getenv('HOME')",
    "SELECT * FROM secret_frame",
    "SELECT * FROM duckdb_secrets()",
    "SELECT * FROM query('COPY cells TO ''x.csv''')",
    "SELECT * FROM query_table('/etc/passwd')",
    "SELECT * FROM enable_logging(storage = 'file', storage_config = {'path': 'OUTSIDE'})",
    "SELECT * FROM enable_profiling()",
    "SELECT * FROM force_checkpoint('results')",
    "SELECT * FROM add_grammar_extension('x')",
    "WITH gone AS (DELETE FROM cells RETURNING *) SELECT * FROM gone",
    "WITH new AS (UPDATE cells SET rating = 'Buy' RETURNING *) SELECT * FROM new",
    "WITH new AS (INSERT INTO runs SELECT * FROM runs RETURNING *) SELECT * FROM new",
)


def _refused(database: Path, query: str, folder: Path) -> str:
    """Run a query that must be refused, with a folder in which anything it wrote would show."""
    pq.write_table(pa.table({"a": [1]}), folder / "x.parquet")
    before = database.read_bytes()
    with pytest.raises(UsageError) as refused:
        run_sql(database, query.replace("OUTSIDE", str(folder / "outside")))
    assert database.read_bytes() == before
    assert [path.name for path in sorted(folder.iterdir())] == ["x.parquet"]
    return str(refused.value)


@pytest.mark.parametrize("query", NOT_A_SELECT)
def test_what_is_no_select_is_refused_before_it_runs(
    database: Path, query: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "\n" not in _refused(database, query, tmp_path)


@pytest.mark.parametrize("query", REACHING_OUT)
def test_a_select_that_reaches_outside_is_refused(
    database: Path, query: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    secret_frame = pa.table({"a": [1]})
    assert "\n" not in _refused(database, query, tmp_path)
    assert secret_frame.num_rows == 1


def test_another_database_beside_it_cannot_be_read(database: Path, tmp_path: Path) -> None:
    other = published(tmp_path / "other.duckdb", make_run("other"))
    with pytest.raises(UsageError, match="and nothing else"):
        run_sql(database, f"SELECT * FROM read_duckdb('{other}', table_name = 'cells')")


def test_the_engine_itself_is_locked_down(database: Path) -> None:
    names = ("enable_external_access", "lock_configuration", "python_enable_replacements")
    with open_results(database) as connection:
        settings = dict(connection.execute("SELECT name, value FROM duckdb_settings()").fetchall())
        assert [settings[name] for name in names] == ["false", "true", "false"]
        assert (settings["TimeZone"], settings["threads"]) == ("UTC", "1")
        read_only = connection.execute(
            "SELECT readonly FROM duckdb_databases() WHERE database_name = 'results'"
        ).fetchall()
        assert read_only == [(True,)]
        for statement in (
            "DELETE FROM cells",
            "SET enable_external_access = true",
            "COPY cells TO 'x.csv'",
            "ATTACH 'other.duckdb'",
        ):
            with pytest.raises(duckdb.Error):
                connection.execute(statement)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELECT 1; SELECT 2", "2 statements were given"),
        ("SELECT 1; DROP TABLE cells", "2 statements were given"),
        ("", "the query is empty"),
        (" ; -- nothing\n", "the query is empty"),
        ("PIVOT cells ON rating USING count(*)", "ON rating IN ('Sell', 'Buy')"),
    ],
)
def test_one_select_at_a_time(database: Path, query: str, words: str) -> None:
    with pytest.raises(UsageError) as refused:
        run_sql(database, query)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT count(*) FROM cells;",
        "FROM cells",
        "WITH c AS (SELECT * FROM cells) SELECT * FROM c",
        "VALUES (1), (2)",
        "DESCRIBE cells",
        "SHOW TABLES",
        "SUMMARIZE returns",
        "SELECT 1 AS one /* ; DROP TABLE cells; */",
        "SELECT config->>'$.horizon' FROM runs",
        "PIVOT cells ON rating IN ('Sell', 'Buy') USING count(*)",
    ],
)
def test_every_form_of_a_select_is_one(database: Path, query: str) -> None:
    assert run_sql(database, query)


# --------------------------------------------------------------------------------- wrong queries


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (
            "SELECT * FORM cells WHERE",
            'SQL syntax error at line 1, column 15: syntax error at or near "cells"',
        ),
        (
            "SELECT *\nFROM cells\nWHERE AND",
            'SQL syntax error at line 3, column 7: syntax error at or near "AND"',
        ),
        (
            "SELECT 'é' || 'é' foo bar baz",
            'SQL syntax error at line 1, column 23: syntax error at or near "bar"',
        ),
    ],
)
def test_a_syntax_error_is_one_line_that_says_where(
    database: Path, query: str, message: str
) -> None:
    with pytest.raises(UsageError) as error:
        run_sql(database, query)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELECT * FROM cell", "cell does not exist"),
        ("SELECT ratings FROM cells", '"ratings" not found'),
        ("SELECT sum(rating) FROM cells", "sum(ENUM"),
        ("SELECT nosuch(1)", "nosuch does not exist"),
    ],
)
def test_an_unknown_name_is_one_line_that_points_at_the_schema(
    database: Path, query: str, words: str
) -> None:
    with pytest.raises(UsageError) as error:
        run_sql(database, query)
    assert words in str(error.value)
    assert "backtester schema" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_query_that_takes_too_long_is_stopped(database: Path) -> None:
    endless = "WITH RECURSIVE r AS (SELECT 1 i UNION ALL SELECT i + 1 FROM r) SELECT sum(i) FROM r"
    with pytest.raises(UsageError, match=r"stopped after 0\.2 s"):
        run_sql(database, endless, time_limit_s=0.2)
    assert rows_of(database, "SELECT 1 AS one") == [{"one": 1}]


def test_a_query_that_gives_rows_is_stopped_while_they_come(database: Path) -> None:
    drops = (
        "SELECT a.i FROM range(1000000) a(i), range(1000000) b(i) WHERE hash(a.i, b.i) % 10000 = 0"
    )
    with pytest.raises(UsageError, match=r"stopped after 0\.3 s"):
        run_sql(database, drops, format="csv", time_limit_s=0.3)


def test_an_error_in_a_later_row_is_one_line_that_says_where(database: Path) -> None:
    query = "SELECT CAST(if(i = 900000, 'x', '1') AS INTEGER) FROM range(1000000) t(i)"
    with pytest.raises(UsageError) as error:
        run_sql(database, query)
    assert str(error.value) == (
        "SQL error at line 1, column 8: Could not convert string 'x' to INT32"
    )


def test_one_long_step_that_cannot_be_interrupted_is_left_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sql_limits, "GRACE_S", 0.1)
    step, ended = threading.Event(), threading.Event()

    def work(interrupter: sql_limits.Interrupter) -> None:
        assert threading.current_thread().daemon
        step.wait(timeout=60)
        assert interrupter.stopped
        ended.set()

    before = time.perf_counter()
    with pytest.raises(UsageError, match=r"stopped after 0\.1 s"):
        sql_limits.within(0.1, work)
    assert time.perf_counter() - before < 5.0
    assert not ended.is_set()
    step.set()
    assert ended.wait(timeout=60)


def test_an_answer_that_comes_in_the_last_moment_is_given() -> None:
    def work(interrupter: sql_limits.Interrupter) -> str:
        time.sleep(0.2)
        return "rows"

    assert sql_limits.within(0.05, work) == "rows"


@pytest.mark.parametrize("seconds", ["inf", "-inf", "nan", "-1", "0", "1e308", "86401"])
def test_a_time_limit_that_cannot_be_kept_is_refused(database: Path, seconds: str) -> None:
    with pytest.raises(UsageError, match=r"a time limit of .* cannot be kept") as error:
        run_sql(database, "SELECT 1", time_limit_s=float(seconds))
    assert "\n" not in str(error.value)


@pytest.mark.skipif(sys.platform != "linux", reason="no limit of this kind elsewhere")
def test_a_text_that_a_function_builds_is_held_to_the_memory_of_the_process(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_limits, "EXTRA_MEMORY_BYTES", 400 << 20)
    before = resource.getrlimit(resource.RLIMIT_AS)
    query = "SELECT length(repeat(repeat('x', 1000000), 1500))"
    with pytest.raises(UsageError, match="of memory"):
        run_sql(database, query, own_process=True)
    assert resource.getrlimit(resource.RLIMIT_AS) == before


def test_a_result_that_is_too_large_is_refused(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_module, "RESULT_LIMIT_BYTES", 1 << 20)
    with pytest.raises(UsageError, match="larger than 1 MiB"):
        run_sql(database, "SELECT * FROM range(10000000)")


def test_a_query_that_needs_too_much_memory_is_refused(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sql_module._SETTINGS, "memory_limit", "20MB")
    with pytest.raises(UsageError, match="of memory"):
        run_sql(database, "SELECT i, random() FROM range(20000000) t(i) ORDER BY 2")
    assert [path.name for path in sorted(database.parent.iterdir())] == [
        ".results.duckdb.lock",
        "results.duckdb",
    ]


def test_no_results_yet_says_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no results yet .* run `backtester demo`"):
        run_sql(tmp_path / "results.duckdb", "SELECT 1")
    with pytest.raises(DataError, match="no results yet"):
        run_sql(tmp_path, "SELECT 1")


@pytest.mark.parametrize("content", [b"", b"no database" * 500])
def test_a_damaged_database_says_what_to_run(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "results.duckdb"
    path.write_bytes(content)
    with pytest.raises(DataError, match="run `backtester rebuild`") as error:
        run_sql(path, "SELECT * FROM cells")
    assert "\n" not in str(error.value)


def test_a_block_damaged_in_the_middle_says_what_to_run(tmp_path: Path) -> None:
    run = make_run(tickers=[f"T{number}" for number in range(400)])
    path = published(tmp_path / "results.duckdb", run)
    content = bytearray(path.read_bytes())
    for position in range(16384, len(content), 8192):
        content[position : position + 64] = bytes(64)
    path.write_bytes(content)
    with pytest.raises(DataError, match="run `backtester rebuild`"):
        run_sql(path, "SELECT * FROM llm_calls, cells")


def test_a_folder_with_a_quote_in_its_name_is_no_sql(tmp_path: Path) -> None:
    path = published(tmp_path / "it's; here" / "results.duckdb", make_run())
    assert len(rows_of(path, "SELECT * FROM cells")) == 2


def test_a_notebook_that_holds_the_file_open_is_no_obstacle(tmp_path: Path) -> None:
    path = published(tmp_path / "results.duckdb", make_run())
    with duckdb.connect(str(path), read_only=True) as notebook:
        assert len(rows_of(path, "SELECT * FROM cells")) == 2
        assert notebook.execute("SELECT count(*) FROM cells").fetchall() == [(2,)]


def test_a_file_that_is_replaced_while_it_is_opened_is_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = published(tmp_path / "results.duckdb", make_run("run-a"))
    stamp, calls = sql_module._stamp, 0

    def stamp_and_publish(database: Path) -> Any:
        nonlocal calls
        found, calls = stamp(database), calls + 1
        if calls == 1:
            published(path, make_run("run-b"))
        return found

    monkeypatch.setattr(sql_module, "_stamp", stamp_and_publish)
    assert rows_of(path, "SELECT count(*) AS n FROM cells") == [{"n": 4}]
    # Before and after the opening that was in vain, and of the one that was not.
    assert calls == 4
    monkeypatch.setattr(sql_module, "_stamp", lambda database: object())
    with pytest.raises(DataError, match="ask again later"):
        rows_of(path, "SELECT 1")


def _publish_for_ever(path: Path, stop: Any) -> None:
    while not stop.is_set():
        publish(path, make_run("run-b"))


def test_queries_work_while_another_process_publishes(tmp_path: Path) -> None:
    path = published(tmp_path / "results.duckdb", make_run("run-a"), make_run("run-b"))
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    writer = context.Process(target=_publish_for_ever, args=(path, stop))
    writer.start()
    try:
        for _ in range(20):
            assert rows_of(path, "SELECT count(*) AS n FROM cells") == [{"n": 4}]
    finally:
        stop.set()
        writer.join(timeout=60)
    assert writer.exitcode == 0


@pytest.mark.parametrize("query", EXAMPLES)
def test_the_suggested_queries_run_and_fit_a_shell(database: Path, query: str) -> None:
    assert run_sql(database, query)
    assert '"' not in query
    assert "\n" not in query


def test_there_are_three_suggestions() -> None:
    assert len(EXAMPLES) == 3


# --------------------------------------------------------------------------------------- output

EVERY_KIND = """
SELECT * FROM (VALUES
    (1, 0.1::DOUBLE + 0.2::DOUBLE, 'plain', 12.50::DECIMAL(10,2), DATE '2018-06-29',
        TIMESTAMP '2018-06-29 20:00:00', TRUE, ['a', NULL], 'Sell'::rating),
    (2, NULL, '', NULL, NULL, NULL, NULL, NULL, NULL),
    (3, 'nan'::DOUBLE, 'a "quoted", text', -0.05, DATE '2018-07-02',
        TIMESTAMP '2018-07-02 20:00:00.25', FALSE, [], 'Buy'::rating)
) t(id, number, words, amount, day, instant, flag, list, rating) ORDER BY id
"""


def test_csv_tells_null_from_an_empty_text(database: Path) -> None:
    assert run_sql(database, EVERY_KIND, format="csv") == (
        "id,number,words,amount,day,instant,flag,list,rating\n"
        "1,0.30000000000000004,plain,12.50,2018-06-29,2018-06-29T20:00:00,true,"
        '"[""a"", null]",Sell\n'
        '2,,"",,,,,,\n'
        '3,nan,"a ""quoted"", text",-0.05,2018-07-02,2018-07-02T20:00:00.250000,false,[],Buy\n'
    )


def test_csv_reads_back_whatever_a_text_holds(database: Path) -> None:
    nasty = ["a,b", "line\nbreak", "tab\t", " space ", '"', "'", "=1+1", "\r", "NULL", "ü €"]
    table = pa.table({"text": nasty})
    read = list(csv.reader(io.StringIO(rows_as_bytes(table, "csv").decode(), newline="")))
    assert [row[0] for row in read[1:]] == nasty


def test_json_is_one_object_a_row_with_whole_numbers(database: Path) -> None:
    text = run_sql(database, EVERY_KIND, format="json")
    rows = json.loads(text, parse_float=Decimal)
    assert rows[0] == {
        "id": 1,
        "number": Decimal("0.30000000000000004"),
        "words": "plain",
        "amount": Decimal("12.50"),
        "day": "2018-06-29",
        "instant": "2018-06-29T20:00:00",
        "flag": True,
        "list": ["a", None],
        "rating": "Sell",
    }
    assert rows[1] == {**dict.fromkeys(rows[0]), "id": 2, "words": ""}
    # JSON has no NaN: strict readers would refuse the file.
    assert rows[2]["number"] is None
    assert text.count("\n") == 5
    assert run_sql(database, "SELECT 1 AS x WHERE false", format="json") == "[\n]\n"


def test_parquet_keeps_types_and_nulls(database: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "rows.parquet"
    said = run_sql(database, EVERY_KIND, format="parquet", out=out)
    assert said == f"3 rows written to {out}\n"
    table = pq.read_table(out)
    assert table.schema.field("rating").type == pa.string()
    assert table.schema.field("day").type == pa.date32()
    assert table.column("words").to_pylist() == ["plain", "", 'a "quoted", text']
    assert table.column("number").to_pylist()[:2] == [0.1 + 0.2, None]
    assert table.column("instant").to_pylist()[0] == datetime(2018, 6, 29, 20)  # noqa: DTZ001
    assert table.column("day").to_pylist()[0] == date(2018, 6, 29)


@pytest.mark.parametrize("form", ["csv", "json", "parquet", "table"])
def test_equal_rows_are_equal_bytes(tmp_path: Path, form: Any) -> None:
    query = "SELECT * FROM returns ORDER BY run_id, ticker"
    written = []
    for name in ("one", "two"):
        documents = [make_run("run-a"), make_run("run-b")]
        path = published(
            tmp_path / name / "results.duckdb", *documents[:: 1 if name == "one" else -1]
        )
        run_sql(path, query, format=form, out=tmp_path / f"{name}.out")
        written.append((tmp_path / f"{name}.out").read_bytes())
    assert written[0] == written[1]


def test_a_large_sum_of_integers_is_written_in_full(database: Path) -> None:
    query = "SELECT sum(x) AS big FROM (VALUES (9007199254740993), (1)) t(x)"
    assert run_sql(database, query, format="csv") == "big\n9007199254740994\n"
    assert json.loads(run_sql(database, query, format="json")) == [{"big": 9007199254740994}]


def test_two_columns_of_one_name_would_lose_one(database: Path, tmp_path: Path) -> None:
    query = "SELECT c.ticker, r.ticker FROM cells c JOIN returns r USING (run_id, ticker)"
    for form in ("json", "parquet"):
        with pytest.raises(UsageError, match="two columns are named 'ticker'"):
            run_sql(database, query, format=form, out=tmp_path / "x")
    assert run_sql(database, query, format="csv").startswith("ticker,ticker\n")


def test_a_type_that_a_format_cannot_hold_is_named(database: Path, tmp_path: Path) -> None:
    query = "SELECT INTERVAL 1 DAY AS x"
    with pytest.raises(UsageError, match="cast it to VARCHAR"):
        run_sql(database, query, format="parquet", out=tmp_path / "x.parquet")
    assert not (tmp_path / "x.parquet").exists()


def test_the_output_is_never_the_database_itself(tmp_path: Path) -> None:
    path = published(tmp_path / "results.duckdb", make_run())
    before = path.read_bytes()
    with pytest.raises(UsageError, match="is the results database itself"):
        run_sql(path, "SELECT 1", format="csv", out=tmp_path / "." / "results.duckdb")
    assert path.read_bytes() == before


def test_a_failed_query_leaves_an_older_output_alone(database: Path, tmp_path: Path) -> None:
    out = tmp_path / "rows.csv"
    out.write_text("older\n")
    with pytest.raises(UsageError):
        run_sql(database, "SELECT nothing FROM cells", format="csv", out=out)
    assert out.read_text() == "older\n"
    run_sql(database, "SELECT 1 AS x", format="csv", out=out)
    assert out.read_text() == "x\n1\n"
    assert [path.name for path in tmp_path.iterdir()] == ["rows.csv"]


def test_an_output_that_cannot_be_written_is_a_usage_error(database: Path, tmp_path: Path) -> None:
    (tmp_path / "folder").write_text("a file in its place")
    with pytest.raises(UsageError, match="cannot be written"):
        run_sql(database, "SELECT 1", format="csv", out=tmp_path / "folder" / "x.csv")
    (tmp_path / "taken").mkdir()
    with pytest.raises(UsageError, match="cannot be written"):
        run_sql(database, "SELECT 1", format="csv", out=tmp_path / "taken")


@pytest.mark.parametrize("name", ["/", ".", "..", "", "a" * 300, "a" * 5000, "a/" * 3000, "a\0b"])
def test_what_can_be_no_file_is_refused_in_one_line(
    database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="cannot be written") as error:
        run_sql(database, "SELECT 1", format="csv", out=Path(name))
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 400
    assert list(tmp_path.iterdir()) == []


def test_a_loop_of_links_is_refused(database: Path, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(UsageError, match="cannot be written"):
        run_sql(database, "SELECT 1", format="csv", out=tmp_path / "loop")


def test_a_name_as_long_as_a_name_can_be_is_written(database: Path, tmp_path: Path) -> None:
    out = tmp_path / ("a" * 251 + ".csv")
    run_sql(database, "SELECT 1 AS x", format="csv", out=out)
    assert out.read_text() == "x\n1\n"


def test_a_link_is_followed_and_a_pipe_stays_a_pipe(database: Path, tmp_path: Path) -> None:
    link, pipe = tmp_path / "link.csv", tmp_path / "pipe"
    link.symlink_to(tmp_path / "rows.csv")
    run_sql(database, "SELECT 1 AS x", format="csv", out=link)
    assert link.is_symlink()
    assert (tmp_path / "rows.csv").read_text() == "x\n1\n"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    run_sql(database, "SELECT 1 AS x", format="csv", out=pipe)
    assert os.read(reader, 100) == b"x\n1\n"
    os.close(reader)
    assert pipe.is_fifo()


def test_a_database_whose_name_can_be_none_is_refused_in_one_line() -> None:
    with pytest.raises(UsageError, match=r"cannot be read \(File name too long\)") as error:
        run_sql(Path("a" * 5000) / "results.duckdb", "SELECT 1")
    assert len(str(error.value)) < 400


def test_a_column_that_an_older_database_lacks_asks_for_a_rebuild(tmp_path: Path) -> None:
    path = published(tmp_path / "results.duckdb", make_run())
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE OR REPLACE MACRO results_schema() AS 'older'")
    with pytest.raises(UsageError, match="another version: run `backtester rebuild`"):
        run_sql(path, "SELECT newer FROM cells")


@pytest.mark.parametrize("form", ["csv", "json"])
def test_many_rows_are_written_as_one_file(
    database: Path, form: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = "SELECT i, NULL AS nothing FROM range(10) t(i) ORDER BY i"
    whole = run_sql(database, query, format=form)
    for rows in (3, 5, 10):
        monkeypatch.setattr(sql_output, "_ROWS_AT_ONCE", rows)
        assert run_sql(database, query, format=form) == whole


def test_parquet_needs_a_file(database: Path) -> None:
    with pytest.raises(UsageError, match="add -o FILE"):
        run_sql(database, "SELECT 1", format="parquet")


def test_an_unknown_format_is_named(database: Path) -> None:
    wrong: Any = "xlsx"
    with pytest.raises(UsageError, match="unknown format 'xlsx': write one of table, csv"):
        run_sql(database, "SELECT 1", format=wrong)


def test_a_table_shows_null_and_aligns_numbers(database: Path) -> None:
    query = "SELECT * FROM (VALUES ('Buy', 1::DOUBLE / 150, 12), ('Hold', NULL, 3)) t(a, b, c)"
    assert run_sql(database, query).splitlines() == [
        "a    ┃            b ┃  c",
        "━━━━━╇━━━━━━━━━━━━━━╇━━━",
        "Buy  │ 0.0066666667 │ 12",
        "Hold │         NULL │  3",
        "(2 rows)",
    ]


def test_a_table_shows_no_control_character_and_no_markup(tmp_path: Path) -> None:
    lesson = make_lesson(lesson="[red]x[/red] \x1b[2J\nnext\u202eback\x07")
    path = published(tmp_path / "results.duckdb", make_document(lessons=[lesson]))
    text = run_sql(path, "SELECT lesson FROM memory")
    assert "[red]x[/red] \\x1b[2J\\nnext\\u202eback\\x07" in text
    assert run_sql(path, "SELECT lesson FROM memory", format="csv").count("\x1b") == 1


def test_a_long_table_shows_its_beginning_and_says_so(database: Path) -> None:
    text = run_sql(database, "SELECT i FROM range(2500) t(i)")
    assert text.count("\n") == 1003
    assert "(2500 rows, the first 1000 shown; --format csv, json or parquet writes all)" in text


def test_a_table_folds_into_a_narrow_terminal(database: Path) -> None:
    query = "SELECT repeat('word ', 20) AS a, 1 AS b"
    assert max(map(len, run_sql(database, query, width=40).splitlines())) <= 40
    assert max(map(len, run_sql(database, query).splitlines())) > 90


def test_no_rows_are_still_a_table(database: Path) -> None:
    assert "(0 rows)" in run_sql(database, "SELECT * FROM cells WHERE false")
    assert run_sql(database, "SELECT 1 AS x WHERE false", format="csv") == "x\n"


def test_an_instant_with_a_zone_is_written_as_utc(database: Path, time_zone: str) -> None:
    query = "SELECT TIMESTAMPTZ '2018-06-29 20:00:00+00' AS t"
    assert run_sql(database, query, format="csv") == "t\n2018-06-29T20:00:00Z\n"


def test_rows_come_as_arrow_with_text_for_ratings(database: Path) -> None:
    table = fetch_arrow(database, "SELECT rating, session FROM cells ORDER BY ticker")
    assert table.schema.types == [pa.string(), pa.date32()]
    assert table.column("rating").to_pylist() == ["Buy", "Buy"]


def test_the_average_of_a_query_is_the_same_every_time(tmp_path: Path) -> None:
    cells = [make_cell(make_key(f"T{number}"), wall_s=1 / (number + 1)) for number in range(3000)]
    path = published(tmp_path / "results.duckdb", make_document(cells=cells))
    found = {run_sql(path, "SELECT avg(wall_s) FROM cells", format="csv") for _ in range(5)}
    assert len(found) == 1


# ------------------------------------------------------------------------------- the terminal

NASTY = "\x1b[2J \x9b31m \u202eback \x07 \x7f ü \U000e0041 two\nlines"


@pytest.fixture(scope="module")
def nasty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a reports folder with a lesson that would command a terminal."""
    reports = tmp_path_factory.mktemp("nasty")
    published(reports / "results.duckdb", make_document(lessons=[make_lesson(lesson=NASTY)]))
    return reports


def _asked(reports: Path, form: str, *, terminal: bool) -> bytes:
    """Ask for the lesson in a process of its own, at a pipe or a terminal."""
    line = "import sys; from backtester import cli; cli.main(sys.argv[1:])"
    words = ["sql", "SELECT lesson FROM memory", "--format", form, "--reports-dir", str(reports)]
    command = [sys.executable, "-c", line, *words]
    if not terminal:
        return subprocess.run(command, capture_output=True, check=True).stdout
    ours, theirs = pty.openpty()
    with subprocess.Popen(command, stdout=theirs) as child:
        # The answer fits into the terminal's buffer.
        assert child.wait(timeout=60) == 0
    os.close(theirs)
    with os.fdopen(ours, "rb", buffering=0) as shown:
        return shown.read(10_000).replace(b"\r\n", b"\n")


@pytest.mark.parametrize("form", ["csv", "json"])
def test_a_pipe_gets_the_bytes_and_a_terminal_no_commands(nasty: Path, form: Any) -> None:
    exact = run_sql(nasty / "results.duckdb", "SELECT lesson FROM memory", format=form).encode()
    assert _asked(nasty, form, terminal=False) == exact
    seen = _asked(nasty, form, terminal=True).decode()
    assert all(char.isprintable() or char == "\n" for char in seen)
    assert "ü" in seen
    if form == "json":
        assert json.loads(seen) == [{"lesson": NASTY}]
    else:
        assert "\\x1b[2J \\x9b31m \\u202eback \\x07 \\x7f ü \\U000e0041 two\nlines" in seen
