"""Publish runs into ``results.duckdb`` and read the rating table back.

A reader never blocks a run and no run loses another's rows: a new database is made beside the old
one, synced, and put in its place in one step, all of it under one OS lock. Whoever has the old
file open goes on reading the old rows. DuckDB itself lets one writer in and nobody else.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import duckdb
import pyarrow as pa
from filelock import FileLock, Timeout

from backtester.errors import BacktesterError, DataError, UsageError
from backtester.score.definition import DEFAULT_SCORE
from backtester.score.files import ScoreCard, StoredScore
from backtester.score.keeping import bring_back_lines
from backtester.score.ledger import LEDGER_NAME, read_ledger_rows
from backtester.store.query import EXAMPLES
from backtester.store.rows import RunDocument, arrow_tables
from backtester.store.schema import (
    create_statements,
    schema_document,
    schema_fingerprint,
    schema_markdown,
)
from backtester.store.score_rows import ledger_table, score_tables
from backtester.store.score_tables import LEDGER, SCORE_TABLES, SCORES
from backtester.store.summary import (
    PublishedState,
    RatingRow,
    RunSummary,
    knowledge_lines,
    paid_words,
    problems,
    published_runs,
    published_states,
    rating_rows,
    run_bill,
    run_document,
    run_summary,
    sights,
)
from backtester.store.tables import RETURNS, TABLES_OF_A_RUN

__all__ = [
    "RunDocument",
    "publish",
    "publish_score",
    "rebuild",
    "published_runs",
    "PublishedState",
    "published_states",
    "RatingRow",
    "RunSummary",
    "rating_rows",
    "run_summary",
    "knowledge_lines",
    "paid_words",
    "run_bill",
    "sights",
    "run_document",
    "schema_document",
    "schema_markdown",
    "EXAMPLES",
    "problems",
]

LOCK_TIMEOUT_S: Final = 300.0
"""How long a publisher waits for the others; one takes a second or two."""


def publish(
    database: Path, document: RunDocument, *, lock_timeout_s: float = LOCK_TIMEOUT_S
) -> None:
    """Put a run's rows into the published database, in place of those it had.

    The rows of all other runs are kept. Safe to call from any number of processes at once.

    Args:
        database: ``reports/results.duckdb``; made where there is none.
        document: The run as it stands.
        lock_timeout_s: How long to wait for other publishers.

    Raises:
        UsageError: The folder cannot be written, or the lock was not to be had in time.
        DataError: The database is damaged or of another version (run ``backtester rebuild``), or
            a record holds what no table may hold. The published file is as it was.
    """
    tables = arrow_tables(document)
    with _replacing(database, lock_timeout_s, keep=True) as connection:
        for table in TABLES_OF_A_RUN:
            connection.execute(f"DELETE FROM {table.name} WHERE run_id = ?", [document.run_id])
        # Space freed by the rows that went is used again only after a checkpoint.
        connection.execute("CHECKPOINT")
        _insert(connection, document.run_id, tables)
        _insert_ledger(connection, database)


def publish_score(
    database: Path,
    run_id: str,
    results_root: str,
    *,
    score: StoredScore,
    cards: Sequence[ScoreCard],
    lock_timeout_s: float = LOCK_TIMEOUT_S,
) -> bool:
    """Put one more score of a published run into the database, and leave the rest of it alone.

    Args:
        database: See `publish`.
        run_id: The run.
        results_root: Of the decisions that were scored.
        score: What is new or was made again; not the run's own, whose returns are the journal's.
        cards: Of all scores of these decisions, this one's among them.
        lock_timeout_s: See `publish`.

    Returns:
        False where the database does not hold this very run and its other scores: then the whole
        run has to be published.

    Raises:
        UsageError: See `publish`; so DataError.
    """
    if score.score_id == DEFAULT_SCORE or not database.exists():
        return False
    tables = score_tables(run_id, [score], cards=cards)
    others = {card.score_id for card in cards} - {score.score_id}
    try:
        with _replacing(database, lock_timeout_s, keep=True) as connection:
            known = _scores_of(connection, run_id, results_root)
            if known - {score.score_id} != others:
                raise _AnotherRun
            _put_score(connection, database, tables, of=(run_id, score.score_id))
    except _AnotherRun:
        return False
    return True


class _AnotherRun(Exception):
    """The database does not hold the run as it is."""


def _scores_of(connection: duckdb.DuckDBPyConnection, run_id: str, results_root: str) -> set[str]:
    """Return the scores that the database has of a finished run with these results."""
    stands = connection.execute("SELECT status, results_root FROM runs WHERE run_id = ?", [run_id])
    if stands.fetchall() != [("finished", results_root)]:
        raise _AnotherRun
    known = connection.execute("SELECT score_id FROM scores WHERE run_id = ?", [run_id])
    return {score_id for (score_id,) in known.fetchall()}


def _put_score(
    connection: duckdb.DuckDBPyConnection,
    database: Path,
    tables: Mapping[str, pa.Table],
    *,
    of: tuple[str, str],
) -> None:
    """Put the rows of a score in, in place of those that it had."""
    # Rows as few as these are put in sooner by one thread, and without a log to put them in again:
    # nobody looks at the file before it is whole.
    connection.execute("SET threads = 1")
    connection.execute("SET wal_autocheckpoint = '1KB'")
    connection.execute("BEGIN")
    connection.execute(f"DELETE FROM {SCORES.name} WHERE run_id = ?", [of[0]])
    for table in (RETURNS, *SCORE_TABLES):
        connection.execute(f"DELETE FROM {table.name} WHERE run_id = ? AND score_id = ?", [*of])
    _insert(connection, of[0], tables)
    _insert_ledger(connection, database)
    connection.execute("COMMIT")


def rebuild(
    database: Path,
    load: Callable[[], Iterable[RunDocument]],
    *,
    leave_out: Callable[[str, DataError], None] | None = None,
    lock_timeout_s: float = LOCK_TIMEOUT_S,
) -> int:
    """Make the published database anew from the runs' journals.

    Args:
        database: Where it goes; what is there, damaged or not, is replaced at the end.
        load: Gives all runs; it is called, and read to its end, when no one else can publish. A
            run that is published before is then in its journals, one that is published later is
            added by its publisher. One run is held in memory at a time if it yields them.
        leave_out: Takes a run that holds what no table may hold, and why; the others go on.
        lock_timeout_s: How long to wait for other publishers.

    Returns:
        The number of runs.

    Raises:
        UsageError: The folder cannot be written, or the lock was not to be had in time.
        DataError: A run appears twice, or holds what no table may hold and none may be left out;
            the old file is kept.
    """
    seen: set[str] = set()
    bring_back_lines(database.parent)
    with _replacing(database, lock_timeout_s, keep=False) as connection:
        for document in load():
            if document.run_id in seen:
                raise DataError(f"run {document.run_id} is there twice: remove one of its folders")
            try:
                tables = arrow_tables(document)
            except DataError as error:
                if leave_out is None:
                    raise
                leave_out(document.run_id, error)
                continue
            seen.add(document.run_id)
            _insert(connection, document.run_id, tables)
        _insert_ledger(connection, database)
    return len(seen)


def _insert(
    connection: duckdb.DuckDBPyConnection, run_id: str, tables: Mapping[str, pa.Table]
) -> None:
    for table in TABLES_OF_A_RUN:
        if table.name not in tables or not tables[table.name].num_rows:
            continue
        connection.register("incoming", tables[table.name].combine_chunks())
        try:
            connection.execute(f"INSERT INTO {table.name} BY NAME SELECT * FROM incoming")
        except (duckdb.ConversionException, duckdb.ConstraintException) as error:
            raise DataError(
                f"run {run_id}: a row does not fit table {table.name} ({_first_line(error)}): "
                "its journal is of another version, or damaged"
            ) from error
        finally:
            connection.unregister("incoming")


def _insert_ledger(connection: duckdb.DuckDBPyConnection, database: Path) -> None:
    """Put the whole ledger of the workspace in the place of what is there."""
    rows = read_ledger_rows(database.parent / LEDGER_NAME)
    connection.execute(f"DELETE FROM {LEDGER.name}")
    if not rows:
        return
    connection.register("incoming", ledger_table(rows))
    connection.execute(f"INSERT INTO {LEDGER.name} BY NAME SELECT * FROM incoming")
    connection.unregister("incoming")


@contextmanager
def _replacing(
    database: Path, lock_timeout_s: float, *, keep: bool
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Lend a database that takes the place of the published one if the block ends well."""
    fresh = database.with_name(f".{database.name}.new")
    with _locked(database, lock_timeout_s):
        try:
            with _writing(database):
                # Only one publisher is here, so what lies there was left by a killed one.
                _remove(fresh)
                if keep and database.exists():
                    shutil.copyfile(database, fresh)
            with _open_new(fresh, database) as connection:
                yield connection
            with _writing(database):
                _put_in_place(fresh, database)
        finally:
            with _writing(database):
                _remove(fresh)


@contextmanager
def _locked(database: Path, timeout_s: float) -> Iterator[None]:
    lock = FileLock(database.with_name(f".{database.name}.lock"))
    with _writing(database):
        database.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=timeout_s)
        except Timeout as error:
            raise UsageError(
                f"{database} has been held by another publisher for {timeout_s:g} s: wait for "
                "it or stop it, then run the same command again"
            ) from error
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _writing(database: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(
            f"{database} cannot be written ({error.strerror or error}): free the folder, or name "
            "another with --reports-dir"
        ) from error


@contextmanager
def _open_new(fresh: Path, database: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    made_here = not fresh.exists()
    try:
        connection = duckdb.connect(str(fresh))
    except duckdb.Error as error:
        raise _unusable(database, error) from error
    try:
        connection.execute("SET TimeZone='UTC'")
        if made_here:
            connection.execute("BEGIN")
            for statement in create_statements():
                connection.execute(statement)
            connection.execute("COMMIT")
        else:
            _check_schema(connection, database)
        yield connection
        connection.execute("CHECKPOINT")
    except duckdb.Error as error:
        raise _unusable(database, error) from error
    finally:
        connection.close()


def _check_schema(connection: duckdb.DuckDBPyConnection, database: Path) -> None:
    found = connection.execute("SELECT results_schema()").fetchall()[0][0]
    if found != schema_fingerprint():
        raise DataError(
            f"{database} has the tables of another version of the product: run `backtester rebuild`"
        )


def _unusable(database: Path, error: duckdb.Error) -> BacktesterError:
    reason = _first_line(error)
    if "No space left" in reason:
        return UsageError(f"{database} cannot be written ({reason}): free some space")
    return DataError(
        f"{database} cannot be extended, it is damaged or of another version ({reason}): "
        "run `backtester rebuild`"
    )


def _first_line(error: duckdb.Error) -> str:
    return str(error).strip().partition("\n")[0]


def _put_in_place(fresh: Path, database: Path) -> None:
    """Make the new file durable, then the name that leads to it."""
    with fresh.open("rb+") as file:
        os.fsync(file.fileno())
    fresh.replace(database)
    folder = os.open(database.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _remove(fresh: Path) -> None:
    for path in (fresh, fresh.with_name(f"{fresh.name}.wal")):
        path.unlink(missing_ok=True)
