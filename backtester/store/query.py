"""Ask the published database anything, and change nothing: safe read-only SQL.

One statement is run, a single SELECT (``WITH``, ``FROM``, ``VALUES``, ``DESCRIBE``, ``SHOW TABLES``
and ``SUMMARIZE`` are SELECTs to DuckDB); two statements, and everything that is none, are refused
before they run. Behind that stands the engine: the file is attached read-only to a database in
memory, access to any other file and to the network is off, extensions are not loaded, Python
variables are not visible, the configuration is locked, memory and time are limited (`sql_limits`
says how, and what escapes).

The database is attached instead of opened because DuckDB refuses a second opening of one file with
other settings in one process; so a notebook that holds the file open can use this as well.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import duckdb
import pyarrow as pa

from backtester.errors import BacktesterError, DataError, UsageError
from backtester.store.limits import Interrupter, checked_time_limit, memory_ceiling, within
from backtester.store.output import SqlFormat, output_file, rows_as_bytes, save_bytes, shown
from backtester.store.schema import (
    SCHEMA_EDITION,
    edition_of,
    ordered_select,
    schema_fingerprint,
)
from backtester.store.tables import TABLES
from backtester.store.terms import literal
from backtester.store.views import VIEWS

DEFAULT_TIME_LIMIT_S: Final = 30.0
MEMORY_LIMIT: Final = "1GB"
RESULT_LIMIT_BYTES: Final = 1 << 30
_BATCH_ROWS: Final = 65_536
_ATTEMPTS: Final = 100

_SETTINGS: Final[dict[str, str | bool | int | float | list[str]]] = {
    "allow_community_extensions": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "memory_limit": MEMORY_LIMIT,
    # A query that would spill to disk fails instead: nothing is written, anywhere.
    "temp_directory": "",
    "python_enable_replacements": "false",
    # Sums of doubles depend on how threads share the rows.
    "threads": "1",
}


EXAMPLES: Final = (
    (
        "SELECT rating, n, mean_return, mean_alpha, hit_rate FROM alpha_by_rating "
        "WHERE run_id = '{run_id}' ORDER BY rating"
    ),
    (
        "SELECT ticker, n_directional, right_calls, hit_rate, mean_directional_alpha "
        "FROM alpha_by_ticker WHERE run_id = '{run_id}' "
        "ORDER BY mean_directional_alpha DESC, ticker"
    ),
    (
        "SELECT session, symbol, rating, raw_total, alpha FROM scored_decisions "
        "WHERE run_id = '{run_id}' AND signed_alpha IS NOT NULL "
        "ORDER BY signed_alpha DESC, session, ticker, trial LIMIT 5"
    ),
)
"""Queries to try on one run: the rating table, the tickers, the five best calls."""


def run_sql(
    database: Path,
    query: str,
    *,
    format: SqlFormat = "table",  # noqa: A002 - the flag's word
    out: Path | None = None,
    time_limit_s: float = DEFAULT_TIME_LIMIT_S,
    width: int | None = None,
    own_process: bool = False,
) -> str:
    """Run one SELECT and return its rows as text, or write them to a file.

    The bytes of ``csv``, ``json`` and ``parquet`` depend on the rows alone, which a full
    ``ORDER BY`` fixes. See `sql_output` for how NULL and each type are written.

    Args:
        database: ``reports/results.duckdb``.
        query: One SELECT.
        format: ``table``, ``csv``, ``json`` or ``parquet``; the last needs ``out``.
        out: File to write (replaced in one step), or None to get the text back.
        time_limit_s: Seconds after which the query is stopped. Writing its rows comes on top.
        width: Terminal width for ``table``; None for as wide as it takes.
        own_process: As `fetch_arrow`.

    Returns:
        The rows as text, or one line that says what was written where.

    Raises:
        UsageError: The SQL is wrong, is no single SELECT, reaches outside, takes too long or gives
            too much, or the output cannot be written.
        DataError: There is no database, or it is damaged or of another version.
    """
    if out is None and format == "parquet":
        raise UsageError("Parquet is no text: add -o FILE")
    if out is not None and output_file(out) == database.resolve():
        raise UsageError(f"{shown(out)} is the results database itself: write to another file")
    table = fetch_arrow(database, query, time_limit_s=time_limit_s, own_process=own_process)
    payload = rows_as_bytes(table, format, width=width)
    if out is None:
        return payload.decode()
    save_bytes(payload, out)
    return f"{table.num_rows} row{'' if table.num_rows == 1 else 's'} written to {shown(out)}\n"


def fetch_arrow(
    database: Path,
    query: str,
    *,
    values: Mapping[str, str] | None = None,
    time_limit_s: float = DEFAULT_TIME_LIMIT_S,
    own_process: bool = False,
) -> pa.Table:
    """Run one SELECT and return its rows, ENUMs as text.

    Args:
        database: ``reports/results.duckdb``.
        query: One SELECT.
        values: Values of ``$name`` in it; those that it does not name are left out.
        time_limit_s: Seconds after which it is stopped, up to a day.
        own_process: This process does nothing else meanwhile, so that all of its memory may be
            limited (`sql_limits`).

    Raises:
        UsageError: As `run_sql`.
        DataError: As `run_sql`.
    """
    limit = checked_time_limit(time_limit_s)
    given = {name: value for name, value in (values or {}).items() if f"${name}" in query}

    def work(interrupter: Interrupter) -> pa.Table:
        with open_results(database) as connection:
            interrupter.watch(connection)
            try:
                _require_select(connection, query)
                return _fetch(connection, query, given, interrupter)
            except (duckdb.Error, OSError, MemoryError) as error:
                # While rows come in, the errors of the engine arrive as errors of the stream.
                hint = _names_hint(connection) if _kind(error) in _UNKNOWN_NAME else ""
                raise _explained(error, query, database, hint) from error

    with memory_ceiling(own_process=own_process):
        return within(limit, work)


def export_tables(database: Path, folder: Path, *, stable_only: bool = False) -> Mapping[str, str]:
    """Write every table and view as Parquet, rows in key order, and return their sha256 by name.

    Args:
        database: ``reports/results.duckdb``.
        folder: Where ``<name>.parquet`` go; made where there is none.
        stable_only: Leave out the columns that depend on clock, cache or machine: two replays of
            one run then give the same files.

    Raises:
        UsageError: The folder cannot be written.
        DataError: There is no database, or it is damaged or of another version.
    """
    hashes = {}
    for relation in (*TABLES, *VIEWS):
        path = folder / f"{relation.name}.parquet"
        query = ordered_select(relation, stable_only=stable_only)
        rows = fetch_arrow(database, query, time_limit_s=600.0)
        payload = rows_as_bytes(rows, "parquet")
        save_bytes(payload, path)
        hashes[relation.name] = hashlib.sha256(payload).hexdigest()
    return hashes


@contextmanager
def open_results(database: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Lend a locked-down, read-only connection to the published database.

    Raises:
        UsageError: The name of the database cannot be one.
        DataError: There is no database, or it is damaged or of another version.
    """
    if not _is_file(database):
        raise DataError(
            f"no results yet in {shown(database)}: run `backtester demo` or `backtester run`, or "
            "`backtester rebuild` if there are runs"
        )
    connection = duckdb.connect(":memory:", config=_SETTINGS)
    try:
        try:
            connection.execute("SET TimeZone='UTC'")
            connection.execute("SET errors_as_json=true")
            _attach(connection, database)
            connection.execute("USE results")
            connection.execute("SET enable_external_access=false")
            connection.execute("SET lock_configuration=true")
        except duckdb.Error as error:
            raise damaged(error, database) from error
        yield connection
    finally:
        connection.close()


@dataclass(frozen=True, kw_only=True)
class Standing:
    """Say whether a published database is one of this release.

    Attributes:
        age: ``current``, ``older`` or ``newer``.
        schema: What tells its tables from others.
        runs: The runs in it.
    """

    age: Literal["current", "older", "newer"]
    schema: str
    runs: frozenset[str]


def standing_of(database: Path) -> Standing | None:
    """Return how a published database stands to this release; None where there is none.

    Raises:
        UsageError: The name of the database cannot be one.
        DataError: It is damaged, or was not made by this product.
    """
    if not _is_file(database) and not database.exists():
        return None
    with open_results(database) as connection:
        try:
            schema = str(connection.execute("SELECT results_schema()").fetchall()[0][0])
            runs = connection.execute("SELECT run_id FROM runs").fetchall()
        except duckdb.Error as error:
            raise damaged(error, database) from error
    if schema == schema_fingerprint():
        age: Literal["current", "older", "newer"] = "current"
    else:
        age = "newer" if edition_of(schema) > SCHEMA_EDITION else "older"
    return Standing(age=age, schema=schema, runs=frozenset(str(run) for (run,) in runs))


def _attach(connection: duckdb.DuckDBPyConnection, database: Path) -> None:
    """Attach the file, and make sure that it is one file.

    DuckDB opens a file twice: once for its header, once for its rows. If another one was published
    in between, the header of the old file would be read with the rows of the new one.
    """
    for _ in range(_ATTEMPTS):
        before = _stamp(database)
        try:
            connection.execute(f"ATTACH {literal(str(database))} AS results (READ_ONLY)")
        except duckdb.Error:
            if _stamp(database) == before:
                raise
            continue
        if _stamp(database) == before:
            return
        connection.execute("DETACH results")
    raise DataError(f"{shown(database)} is replaced all the time: ask again later")


def _stamp(database: Path) -> tuple[int, int, int] | None:
    """Return what tells one published file from another, or None where there is none."""
    try:
        found = database.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _is_file(database: Path) -> bool:
    try:
        return database.is_file()
    except OSError as error:
        raise UsageError(
            f"{shown(database)} cannot be read ({error.strerror or error}): name another folder "
            "with --reports-dir"
        ) from error


def _require_select(connection: duckdb.DuckDBPyConnection, query: str) -> None:
    statements = connection.extract_statements(query)
    if not statements:
        raise UsageError('the query is empty: write one SELECT, such as "SELECT * FROM runs"')
    if len(statements) > 1:
        raise UsageError(f"{len(statements)} statements were given: write one SELECT at a time")
    kind = statements[0].type
    if kind != duckdb.StatementType.SELECT:
        hint = ""
        if kind == duckdb.StatementType.MULTI:
            hint = "; a PIVOT must list its values: ON rating IN ('Sell', 'Buy')"
        raise UsageError(
            f"{kind.name} is refused, results are read-only: write one SELECT, and -o FILE with "
            f"--format to save its rows{hint}"
        )


def _fetch(
    connection: duckdb.DuckDBPyConnection,
    query: str,
    values: Mapping[str, str],
    interrupter: Interrupter,
) -> pa.Table:
    planned = connection.sql(query, params=dict(values) or None)
    _go_on(interrupter)
    reader = planned.to_arrow_reader(_BATCH_ROWS)
    batches, size = [], 0
    for batch in reader:
        _go_on(interrupter)
        batches.append(batch)
        size += batch.nbytes
        if size > RESULT_LIMIT_BYTES:
            raise UsageError(
                f"the result is larger than {RESULT_LIMIT_BYTES >> 20} MiB: "
                "aggregate it, or add WHERE or LIMIT"
            )
    table = pa.Table.from_batches(batches, schema=reader.schema)
    for position, field in enumerate(table.schema):
        # An ENUM would carry its list of words, used or not, into every Parquet file.
        if pa.types.is_dictionary(field.type):
            text = table.column(position).cast(pa.string())
            table = table.set_column(position, field.name, text)
    return table


def _go_on(interrupter: Interrupter) -> None:
    if interrupter.stopped:
        raise UsageError("the query was stopped")


def damaged(error: duckdb.Error | OSError, database: Path) -> DataError:
    """Return the error that says that the file cannot be read, and what to do about it."""
    return DataError(
        f"{shown(database)} is damaged or of another version ({_message(error)[0]}): "
        "run `backtester rebuild`"
    )


def _message(error: BaseException) -> tuple[str, int | None]:
    """Return what an error says in one line, and the byte of the query that it points at."""
    head, _, rest = str(error).partition(": ")
    try:
        details = json.loads(rest)
    except json.JSONDecodeError:
        details = {"exception_message": rest or head}
    text = str(details.get("exception_message", rest))
    lines = [line.strip() for line in text.strip().split("\n")]
    # What follows the first line are guesses at names and candidate signatures, or the query again.
    position = details.get("position")
    return lines[0], int(position) if position is not None else None


_READ_ONLY_WORDS: Final = (
    "read-only",
    "configuration has been locked",
    "disabled by configuration",
)
_UNKNOWN_NAME: Final = ("Catalog", "Binder")
_DAMAGE: Final = ("IO", "Serialization", "FATAL")


def _kind(error: BaseException) -> str:
    """Return the engine's own word for an error, which errors of the stream have as well."""
    return "Out of Memory" if isinstance(error, MemoryError) else str(error).partition(" Error")[0]


def _names_hint(connection: duckdb.DuckDBPyConnection) -> str:
    """Say where the names are listed, or that this database has those of another version."""
    try:
        found = connection.execute("SELECT results_schema()").fetchall()[0][0]
    except duckdb.Error:
        found = None
    if found != schema_fingerprint():
        return "; the database is of another version: run `backtester rebuild`"
    return "; `backtester schema` lists tables, views and columns"


def _explained(
    error: duckdb.Error | OSError | MemoryError, query: str, database: Path, hint: str
) -> BacktesterError:
    """Turn an engine's error into one line that says what to do."""
    (text, position), kind = _message(error), _kind(error)
    if any(word in text for word in _READ_ONLY_WORDS):
        return UsageError(f"refused, a query may read the results and nothing else: {text}")
    if isinstance(error, MemoryError) or kind == "Out of Memory":
        return UsageError(
            f"the query needs more than {MEMORY_LIMIT} of memory: aggregate, or add WHERE or LIMIT"
        )
    if kind in _DAMAGE:
        return damaged(error, database)
    where = "" if position is None else f" at {_line_and_column(query, position)}"
    if kind == "Parser":
        return UsageError(f"SQL syntax error{where}: {text}")
    return UsageError(f"SQL error{where}: {text}{hint}")


def _line_and_column(query: str, position: int) -> str:
    before = query.encode()[:position].decode(errors="replace")
    return f"line {before.count(chr(10)) + 1}, column {len(before.rpartition(chr(10))[2]) + 1}"
