"""What a killed analysis leaves behind, so that the next one goes on at the node where it stopped.

One SQLite file in the analysis's folder, gone once the analysis has ended well. It holds
LangGraph's own checkpoints and a trail of what each finished node asked and read, for a checkpoint
holds the graph's state and nothing of what led to it. Both lie in one file and under one seal, a
hash that is written in the same transaction, so neither is lost or bent without the other: rows
that are not what was written are an error, and a file that is gone is a new start. It holds no
pickle, and reading it back can build messages and plain values, and nothing else.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any, Final, TypeVar

from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from pydantic import TypeAdapter, ValidationError

from backtester.errors import DataError
from backtester.records import CallRecord, CellRecord, OutcomeRecord, ReadRecord
from backtester.runs.folder import RunFolder
from backtester.spellings import shown

HARNESS = "harness"
_STATE: Final = "checkpoint.sqlite"
# The file itself goes first: SQLite drops what is left of a log whose file is gone or empty.
_FILES: Final = (_STATE, f"{_STATE}-wal", f"{_STATE}-shm", f"{_STATE}-journal")
_KINDS: Final = ("msgpack", "null", "bytes", "bytearray")
_WAY_OUT: Final = "run again with --clear-checkpoints (recorded replies stay in the cache)"
_SEALED: Final = ("checkpoints", "writes", "visits")
_OWN_TABLES: Final = """
CREATE TABLE IF NOT EXISTS visits (visit BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS seal (
    one INTEGER PRIMARY KEY CHECK (one = 1), written_by TEXT NOT NULL, digest TEXT NOT NULL
);
"""
_WRITERS: Final = (
    "langgraph",
    "langgraph-checkpoint",
    "langgraph-checkpoint-sqlite",
    "langchain-core",
)
Placed = TypeVar("Placed", CallRecord, OutcomeRecord, ReadRecord)


@dataclass(frozen=True, kw_only=True)
class Visit:
    """Hold what a node did until it ended.

    Attributes:
        node: The graph's name of it; a tools node reads in the name of its analyst.
        calls: Model calls.
        outcomes: Attempts without an answer.
        reads: Reads of the view.
    """

    node: str
    calls: tuple[CallRecord, ...] = ()
    outcomes: tuple[OutcomeRecord, ...] = ()
    reads: tuple[ReadRecord, ...] = ()


_VISIT: Final = TypeAdapter(Visit)


class PlainSerializer(JsonPlusSerializer):
    """Write states as msgpack, and read back messages and plain values alone.

    LangGraph's own default would rebuild any class that a file names, and has a door for pickles.
    """

    def __init__(self) -> None:
        super().__init__(pickle_fallback=False, allowed_msgpack_modules=None)

    def with_msgpack_allowlist(self, extra_allowlist: Iterable[tuple[str, ...] | type]) -> Any:
        """Stay as it is: a graph that is compiled may not add the classes of its state."""
        return self

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Read a value.

        Raises:
            DataError: It is of another kind than we write, or damaged.
        """
        kind, content = data
        if kind not in _KINDS:
            raise DataError(f"a checkpoint holds a {kind!r}, which no release writes: {_WAY_OUT}")
        try:
            return super().loads_typed((kind, content))
        except ValueError as error:
            raise DataError(f"a checkpoint does not read ({error}): {_WAY_OUT}") from error


class SealedSaver(SqliteSaver):
    """Keep LangGraph's states and the trail in one file, and seal each change of it.

    Args:
        connection: Open file, new or one that this class wrote.
        path: Its path, for messages.

    Raises:
        DataError: The file is not what this class wrote, or another version of LangGraph wrote it.
    """

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        super().__init__(connection, serde=PlainSerializer())
        self.path = path
        self._writers = _writers()
        # Row id -> digest, by table.
        self._rows: dict[str, dict[int, bytes]] = {table: {} for table in _SEALED}
        with self._spoken():
            _check_objects(connection, path)
            self.setup()
            connection.executescript(_OWN_TABLES)
            self._check_seal()

    @contextmanager
    def cursor(self, transaction: bool = True) -> Iterator[sqlite3.Cursor]:
        """Hand out a cursor; what it changed is sealed and committed, or undone, as one."""
        with self._spoken(), super().cursor(transaction=False) as cursor:
            if not transaction:
                yield cursor
                return
            with self.conn:
                yield cursor
                self._take_rows(cursor)
                cursor.execute(
                    "INSERT OR REPLACE INTO seal VALUES (1, ?, ?)", (self._writers, self._digest())
                )

    def note(self, line: bytes) -> None:
        """Add a line to the trail."""
        with self.cursor() as cursor:
            cursor.execute("INSERT INTO visits (visit) VALUES (?)", (line,))

    def trail(self) -> list[bytes]:
        """Return the lines of the trail, oldest first."""
        with self.cursor(transaction=False) as cursor:
            return [line for (line,) in cursor.execute("SELECT visit FROM visits ORDER BY rowid")]

    @contextmanager
    def _spoken(self) -> Iterator[None]:
        """Turn SQLite's own errors into one line."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            raise DataError(
                f"checkpoint {self.path} cannot be used ({error}): {_WAY_OUT}"
            ) from error

    def _check_seal(self) -> None:
        cursor = self.conn.cursor()
        seal = cursor.execute("SELECT written_by, digest FROM seal").fetchone()
        if seal is not None and seal[0] != self._writers:
            raise DataError(
                f"checkpoint {self.path} was written with {shown(seal[0])}, and here is "
                f"{self._writers!r}: {_WAY_OUT}"
            )
        self._take_rows(cursor)
        # A file that was cut off between its making and its first row has no seal and no row.
        empty = seal is None and not any(self._rows.values())
        if not empty and (seal is None or seal[1] != self._digest()):
            raise _damaged(self.path)

    def _take_rows(self, cursor: sqlite3.Cursor) -> None:
        """Hash the rows that are new; a row that replaced the newest may have its number."""
        for table in _SEALED:
            known = self._rows[table]
            here = {number for (number,) in cursor.execute(f"SELECT rowid FROM {table}")}
            for number in known.keys() - here:
                del known[number]
            newest = max(known, default=0)
            rows = cursor.execute(f"SELECT rowid, * FROM {table} WHERE rowid >= ?", (newest,))
            known.update((row[0], _row_digest(row)) for row in rows)

    def _digest(self) -> str:
        digest = hashlib.sha256()
        for table, rows in self._rows.items():
            digest.update(f"{table} {len(rows)}\n".encode())
            digest.update(b"".join(content for _, content in sorted(rows.items())))
        return digest.hexdigest()


class Checkpoint:
    """Keep the half-done work of one analysis; build it with `open_checkpoint`.

    Attributes:
        saver: What the graph writes its states to.
        before: Nodes that ended before the present try, oldest first; empty for a new analysis.
    """

    def __init__(self, saver: SealedSaver) -> None:
        self.saver = saver
        self._visits = list(_visits_of(saver))
        self.before: tuple[Visit, ...] = ()
        self.begin()

    def begin(self) -> None:
        """Begin a try: what earlier ones noted lies before it."""
        self.before = tuple(self._visits)

    def note(self, visit: Visit) -> None:
        """Write down a node that has just ended."""
        self.saver.note(_VISIT.dump_json(visit))
        self._visits.append(visit)

    def whole(self, record: CellRecord) -> CellRecord:
        """Return a cell's record with what was done before the try that ended well.

        What a node did twice, because it was cut short the first time, counts as it went last.
        """
        if not self.before:
            return record
        ours = [read for read in record.reads if read.node != HARNESS]
        first = [read for read in record.reads if read.node == HARNESS]
        return replace(
            record,
            calls=tuple(_newest([*(visit.calls for visit in self.before), record.calls])),
            outcomes=tuple(_newest([*(visit.outcomes for visit in self.before), record.outcomes])),
            reads=(*first, *_newest([*(visit.reads for visit in self.before), ours])),
        )


@contextmanager
def open_checkpoint(folder: RunFolder) -> Iterator[Checkpoint]:
    """Open an analysis's checkpoint, a new one where there is none; the caller holds its lock.

    Leaving the block keeps it; `clear` removes it.

    Raises:
        DataError: It is there and is not what was written, or another version of LangGraph wrote
            it.
    """
    path = folder.path / _STATE
    _refuse_folder(path)
    try:
        connection = sqlite3.connect(path, check_same_thread=False)
    except sqlite3.DatabaseError as error:
        raise DataError(f"checkpoint {path} cannot be used ({error}): {_WAY_OUT}") from error
    with closing(connection):
        yield Checkpoint(SealedSaver(connection, path))


def clear(folder: RunFolder) -> bool:
    """Remove an analysis's checkpoint and say whether there was one; the caller holds its lock.

    Raises:
        DataError: A folder is in its place.
    """
    path = folder.path / _STATE
    _refuse_folder(path)
    found = path.exists()
    for name in _FILES:
        (folder.path / name).unlink(missing_ok=True)
    return found


def clear_all(folder: Path) -> int:
    """Remove the checkpoints of all analyses below a folder and return their number.

    Raises:
        DataError: A folder is in the place of one.
        RunLocked: One of them is being worked on.
    """
    if not folder.is_dir():
        return 0
    count = 0
    for path in sorted(folder.iterdir()):
        if any((path / name).exists() for name in _FILES):
            analysis = RunFolder(path, what="analysis")
            with analysis.lock():
                count += clear(analysis)
    return count


def _newest(batches: Iterable[Sequence[Placed]]) -> list[Placed]:
    """Keep what each (node, index) did last, in the order in which places were first reached."""
    places: dict[tuple[str, int], list[Placed]] = {}
    for batch in batches:
        fresh: dict[tuple[str, int], list[Placed]] = {}
        for item in batch:
            fresh.setdefault((item.node, item.index), []).append(item)
        places.update(fresh)
    return [item for items in places.values() for item in items]


def _visits_of(saver: SealedSaver) -> Iterator[Visit]:
    for line in saver.trail():
        try:
            yield _VISIT.validate_json(line)
        except ValidationError as error:
            raise _damaged(saver.path) from error


def _check_objects(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a file that is damaged as a database, or holds views, triggers or other tables."""
    connection.execute("PRAGMA trusted_schema=OFF")
    if connection.execute("PRAGMA integrity_check(1)").fetchone() != ("ok",):
        raise _damaged(path)
    known = {("table", name) for name in (*_SEALED, "seal")}
    found = connection.execute("SELECT type, name FROM sqlite_master WHERE sql IS NOT NULL")
    if not known.issuperset(found):
        raise _damaged(path)


def _refuse_folder(path: Path) -> None:
    if path.is_dir():
        raise DataError(
            f"checkpoint {path} is a folder, which no release makes: move it away and run again"
        )


def _damaged(path: Path) -> DataError:
    return DataError(f"checkpoint {path} is damaged, or of another release: {_WAY_OUT}")


def _row_digest(row: Collection[Any]) -> bytes:
    digest = hashlib.sha256()
    for value in row:
        kind, content = (b"b", value) if isinstance(value, bytes) else (b"r", repr(value).encode())
        digest.update(b"%s%d " % (kind, len(content)) + content)
    return digest.digest()


def _writers() -> str:
    """Name the packages that shape what a checkpoint holds."""
    return ", ".join(f"{package} {metadata.version(package)}" for package in _WRITERS)
