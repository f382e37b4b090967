"""Whether the rating table over a million decisions comes in a second, in the product's own SQL."""

from __future__ import annotations

import tempfile
from pathlib import Path

import duckdb

from backtester.store.schema import create_statements
from backtester.store.tables import CELLS, RETURNS, RUNS
from backtester.store.terms import Column, Table
from benchmarks.measure import Benchmark, Finding, Outcome, time_sides

TICKERS, SESSIONS = 1_000, 1_000
LIMIT_S = 1.0
_RUN = "generated"

_DECISIONS = f"""
CREATE TEMP TABLE decisions AS
SELECT '{_RUN}' AS run_id, 'default' AS score_id, format('T{{:03d}}', i // {SESSIONS}) AS ticker,
    DATE '2015-01-01' + (i % {SESSIONS})::INTEGER AS session, 0 AS trial,
    (hash(i, 'rating') % 5)::INTEGER AS place,
    (hash(i, 'alpha') % 200001)::DOUBLE / 1e6 - 0.1 AS alpha,
    (hash(i, 'market') % 100001)::DOUBLE / 1e6 - 0.05 AS market
FROM range({TICKERS * SESSIONS}) t(i)"""

# What a table holds where it matters; every other column gets a value of its type.
_CELLS = {
    "symbol": "ticker",
    "status": "'done'",
    "rating": "(['Sell', 'Underweight', 'Hold', 'Overweight', 'Buy'])[place + 1]",
    "rating_rank": "place - 2",
    "scored": "true",
}
_RETURNS = {
    "status": "'resolved'",
    "horizon": "5",
    "entry_rule": "'next_open'",
    "entry_session": "session + 1",
    "exit_session": "session + 5",
    "raw_total": "alpha + market",
    "benchmark": "'SPY'",
    "benchmark_return": "market",
    "alpha": "alpha",
    "direction": "sign(place - 2)::INTEGER",
    "directional_alpha": "sign(place - 2) * alpha",
}
_KEY = ("run_id", "score_id", "ticker", "session", "trial")
_BLANK = {
    "VARCHAR": "''",
    "BOOLEAN": "false",
    "INTEGER": "0",
    "BIGINT": "0",
    "DOUBLE": "0.0",
    "DATE": "DATE '2015-01-01'",
    "TIMESTAMP": "TIMESTAMP '2015-01-01'",
}

_TABLE = f"SELECT * FROM alpha_by_rating WHERE run_id = '{_RUN}' ORDER BY rating"
_PLAIN = f"""
SELECT c.rating, count(*), avg(r.raw_total), avg(r.alpha), stddev(r.alpha)
FROM cells c JOIN returns r USING (run_id, ticker, session, trial)
WHERE run_id = '{_RUN}' GROUP BY c.rating ORDER BY c.rating"""


def _filled(table: Table, values: dict[str, str]) -> str:
    columns = [f"{values.get(c.name, _blank(c))} AS {c.name}" for c in table.columns]
    return f"INSERT INTO {table.name} BY NAME SELECT {', '.join(columns)} FROM decisions"


def _blank(column: Column) -> str:
    if column.name in _KEY:
        return column.name
    if column.null:
        return "NULL"
    if column.type.endswith("[]"):
        return "[]"
    return _BLANK.get(column.type, f"enum_first(NULL::{column.type})")


def generated(path: Path) -> duckdb.DuckDBPyConnection:
    """Make a database of the product's tables and views with a million made-up decisions."""
    connection = duckdb.connect(str(path))
    connection.execute("SET enable_progress_bar = false")
    for statement in create_statements():
        connection.execute(statement)
    run = [f"{'run_id' if c.name == 'run_id' else _blank(c)} AS {c.name}" for c in RUNS.columns]
    connection.execute(_DECISIONS)
    connection.execute(
        f"INSERT INTO {RUNS.name} BY NAME SELECT {', '.join(run)} FROM decisions LIMIT 1"
    )
    connection.execute(_filled(CELLS, _CELLS))
    connection.execute(_filled(RETURNS, _RETURNS))
    connection.execute("CHECKPOINT")
    return connection


def run() -> Outcome:
    """Ask for the rating table, and for what a plain GROUP BY gives of it."""
    with tempfile.TemporaryDirectory() as name:
        connection = generated(Path(name) / "results.duckdb")
        rows = connection.execute(f"SELECT rating, n FROM ({_TABLE})").fetchall()
        if [count > 0 for _, count in rows] != [True] * 5 + [False]:
            raise RuntimeError(f"the rating table has other rows than the made-up run: {rows}")
        timings = time_sides(
            {
                "rating table over 1,000,000 decisions": lambda: _asked(connection, _TABLE),
                "join, avg and stddev in doubles": lambda: _asked(connection, _PLAIN),
            },
            repeats=5,
        )
        connection.close()
    table, plain = timings
    return Outcome(
        timings=timings,
        findings=(
            Finding(label="rating table", value=table.median, unit="s", bound=LIMIT_S),
            Finding(label="rating table v. plain averages", value=table.median / plain.median),
        ),
    )


def _asked(connection: duckdb.DuckDBPyConnection, query: str) -> None:
    connection.execute(query).fetchall()


SQL = Benchmark(
    name="sql",
    question="Does the rating table over a million decisions come in a second?",
    run=run,
)
