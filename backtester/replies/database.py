"""The database file under the store of answers: text alone, how it is read, what is wrong with it.

It is written by `diskcache`. `ReadOnlyStore` reads the same file without leaving a trace, so that a
replay works on a mount that takes no writes.
"""

from __future__ import annotations

import errno
import shutil
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import diskcache
from diskcache.core import DBNAME, MODE_RAW

from backtester.errors import BacktesterError, DataError, UsageError

BUSY_TIMEOUT_S = 60.0
# A disk with less room than this is full for a database that grows by pages and by its log.
FULL_BELOW_BYTES = 2**20

_READ = "SELECT mode, filename, value FROM Cache WHERE key = ? AND raw = 1"
# Part of the file, so it holds for every program that opens it, whatever its settings: the stock
# library with a size limit of its own fails there instead of throwing answers away.
_STAY = """
CREATE TRIGGER IF NOT EXISTS answers_stay BEFORE DELETE ON Cache
WHEN OLD.tag IS NOT 'discarded'
BEGIN SELECT RAISE(ABORT, 'this is a reply cache: recorded answers are never evicted'); END
"""
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_TABLES = frozenset({"Cache", "Settings"})


class TextDisk(diskcache.Disk):  # type: ignore[misc]  # the library has no types
    """Keep keys and values as plain text in the database; refuse anything else, both ways."""

    def put(self, key: object) -> tuple[str, bool]:
        """Return the database form of a key.

        Raises:
            TypeError: For a key that is no text.
        """
        return _text(key), True

    def get(self, key: object, raw: bool) -> str:
        """Return a key from its database form.

        Raises:
            DataError: For a pickled key.
        """
        if not raw or not isinstance(key, str):
            raise DataError(f"{self._directory} holds a key that is no text: not written by us")
        return key

    def store(self, value: object, read: bool, key: object = None) -> tuple[int, int, None, str]:
        """Return the database form of a value.

        Raises:
            TypeError: For a value that is no text, or one from a file.
        """
        return 0, MODE_RAW, None, _text(None if read else value)

    def fetch(self, mode: int, filename: str | None, value: object, read: bool) -> str:
        """Return a value from its database form.

        Raises:
            DataError: For a pickle, bytes, or a value in a file of its own.
        """
        if mode != MODE_RAW or filename is not None or read or not isinstance(value, str):
            raise DataError(f"{self._directory} holds a value that is no text: not written by us")
        return value


class AnswerStore(diskcache.Cache):  # type: ignore[misc]  # the library has no types
    """Keep texts in a database from which nothing goes by itself."""

    def keep(self) -> None:
        """Make the file refuse to give up answers, whoever opens it."""
        self._sql(_STAY)

    def text(self, key: str) -> str | None:
        """Return the text under a key, or None.

        The library's own reading looks up expiry and tags that no answer has.

        Raises:
            DataError: For what is no text.
        """
        rows = self._sql(_READ, (key,)).fetchall()
        return _only_text(self._disk, rows)

    def discard(self, key: str) -> bool:
        """Delete a text, and say whether there was one."""
        with self.transact():
            self._sql("UPDATE Cache SET tag = 'discarded' WHERE key = ? AND raw = 1", (key,))
            return bool(self.delete(key))


class ReadableStore(Protocol):
    """Say what of a store is read."""

    def text(self, key: str) -> str | None:
        """Return the text under a key, or None."""

    def __len__(self) -> int:
        """Return the number of rows."""

    def __iter__(self) -> Iterator[Any]:
        """Yield all keys."""

    def check(self) -> list[Any]:
        """Return what is wrong with the file, one warning each."""

    def close(self) -> None:
        """Close this thread's connection."""


class EmptyStore:
    """Be the store that is not there yet."""

    def text(self, key: str) -> str | None:
        """Return None."""
        return None

    def __len__(self) -> int:
        """Return 0."""
        return 0

    def __iter__(self) -> Iterator[str]:
        """Yield nothing."""
        return iter(())

    def check(self) -> list[Any]:
        """Find nothing wrong."""
        return []

    def close(self) -> None:
        """Do nothing."""


@dataclass(frozen=True, kw_only=True)
class _FileState:
    """Tell a database file from what it was, and whether somebody writes to it."""

    logged: bool
    size: int
    modified_ns: int


@dataclass(frozen=True, kw_only=True)
class _Connection:
    handle: sqlite3.Connection
    state: _FileState


class ReadOnlyStore:
    """Read a store's file without writing to its folder; safe to share between threads.

    A file that has no log beside it is read as one that nobody changes, which needs no lock file.
    Where a log shows a writer, the writer's own lock files are used. What changes is seen before
    each read.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / DBNAME
        self._log = folder / f"{DBNAME}-wal"
        self._disk = TextDisk(str(folder))
        self._local = threading.local()

    def text(self, key: str) -> str | None:
        """Return the text under a key, or None.

        Raises:
            DataError: For what is no text.
        """
        return _only_text(self._disk, self._rows(_READ, key))

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(self._rows("SELECT count(*) FROM Cache")[0][0])

    def __iter__(self) -> Iterator[str]:
        """Yield all keys.

        Raises:
            DataError: For a key that is no text.
        """
        for key, raw in self._rows("SELECT key, raw FROM Cache ORDER BY rowid"):
            yield self._disk.get(key, bool(raw))

    def check(self) -> list[Any]:
        """Return what the database's own check finds."""
        found = [row[0] for row in self._rows("PRAGMA integrity_check")]
        return [] if found == ["ok"] else [UserWarning(text) for text in found]

    def close(self) -> None:
        """Close this thread's connection; the next use opens another."""
        connection: _Connection | None = getattr(self._local, "connection", None)
        if connection is not None:
            connection.handle.close()
            self._local.connection = None

    def _rows(self, query: str, *values: str) -> list[Any]:
        try:
            return self._current().execute(query, values).fetchall()
        except sqlite3.DatabaseError:
            # Somebody may have begun to write between the look at the file and the read.
            self.close()
            return self._current().execute(query, values).fetchall()

    def _current(self) -> sqlite3.Connection:
        """Return a connection that sees the file as it is now."""
        state = self._state()
        connection: _Connection | None = getattr(self._local, "connection", None)
        if connection is not None and (connection.state == state or _shared(connection, state)):
            return connection.handle
        self.close()
        mode = "mode=ro" if state.logged else "mode=ro&immutable=1"
        handle = sqlite3.connect(
            f"{self._file.as_uri()}?{mode}", uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None
        )
        self._local.connection = _Connection(handle=handle, state=state)
        return handle

    def _state(self) -> _FileState:
        found = self._file.stat()
        return _FileState(
            logged=self._log.exists(), size=found.st_size, modified_ns=found.st_mtime_ns
        )


def _only_text(disk: TextDisk, rows: Sequence[Any]) -> str | None:
    if not rows:
        return None
    mode, filename, value = rows[0]
    return disk.fetch(mode, filename, value, False)


def _shared(connection: _Connection, state: _FileState) -> bool:
    # A connection beside a writer follows the file by itself, as long as there is a log.
    return connection.state.logged and state.logged


# ------------------------------------------------------------------------------------ what is wrong


def require_whole(folder: Path, answers: Path) -> None:
    """Check that the database of a marked cache is there and not cut.

    The marker is written after the database, so one that lacks its tables was not left by us.

    Raises:
        DataError: For a file that is missing, empty, cut or of something else.
    """
    file = answers / DBNAME
    log = answers / f"{DBNAME}-wal"
    size = file.stat().st_size if file.is_file() else 0
    if size == 0:
        raise DataError(f"{file} {'is empty' if file.is_file() else 'is missing'}: {_lost(folder)}")
    if log.is_file() and log.stat().st_size > 0:
        # A writer is at work, or died: what is in the file counts only together with its log.
        return
    with file.open("rb") as opened:
        header = opened.read(100)
    # https://www.sqlite.org/fileformat.html: page size at 16 (1 stands for 65536), pages at 28.
    page = int.from_bytes(header[16:18], "big")
    wanted = int.from_bytes(header[28:32], "big") * (65536 if page == 1 else page)
    if header.startswith(b"SQLite format 3\0") and size < wanted:
        raise DataError(f"{file} is cut: {size} of {wanted} bytes are there; {_lost(folder)}")
    handle = sqlite3.connect(f"{file.as_uri()}?mode=ro&immutable=1", uri=True)
    try:
        found = {row[0] for row in handle.execute("SELECT name FROM sqlite_master")}
    finally:
        handle.close()
    if not found >= _TABLES:
        raise DataError(f"{file} holds no answers and is no database of ours: {_lost(folder)}")


def _lost(folder: Path) -> str:
    return (
        f"the cache {folder} is damaged; bring back a copy, or delete the whole folder and record "
        "again or unpack a cassette"
    )


@contextmanager
def sound(folder: Path) -> Iterator[None]:
    """Turn the database's own errors into ours."""
    try:
        yield
    except (diskcache.Timeout, sqlite3.DatabaseError) as error:
        raise unusable(folder, error) from error
    except OSError as error:
        raise unwritable(folder, error) from error


def unwritable(folder: Path, error: OSError) -> UsageError:
    """Return the error for a folder that the system would not read or write."""
    if error.errno in _FULL:
        return disk_full(folder)
    return UsageError(
        f"the cache folder {folder} cannot be used ({error.strerror or error}): "
        "choose another data_dir"
    )


def disk_full(folder: Path) -> UsageError:
    """Return the error for a disk without room."""
    return UsageError(
        f"the disk of the cache {folder} is full, so an answer was not stored: free space and run "
        "the same command again; what was recorded is whole"
    )


def unusable(folder: Path, error: Exception) -> BacktesterError:
    """Return our error for one of the database, by what its reader can do about it."""
    cause = _first(error)
    code = getattr(cause, "sqlite_errorcode", None)
    primary = None if code is None else code & 0xFF
    if primary == sqlite3.SQLITE_FULL or (
        primary in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN) and _is_full(folder)
    ):
        return disk_full(folder)
    if primary == sqlite3.SQLITE_READONLY:
        return UsageError(
            f"the cache {folder} cannot be written ({cause}): make it writable, or choose another "
            "data_dir"
        )
    if primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED) or (
        isinstance(error, diskcache.Timeout) and primary is None
    ):
        return DataError(
            f"the cache {folder} stayed locked for {BUSY_TIMEOUT_S:.0f} s: another process "
            "holds it, or it lies on a network disk, where it cannot work"
        )
    if primary == sqlite3.SQLITE_CANTOPEN:
        return DataError(
            f"the cache database in {folder} cannot be opened ({cause}): where the folder takes no "
            "writes, a run that was killed may have left its log; open it once where it does"
        )
    return DataError(
        f"the cache database in {folder} cannot be used ({cause}): it is damaged or not on a "
        "local disk; move it aside and record again, or unpack a cassette"
    )


def _first(error: BaseException) -> BaseException:
    """Return the database's error that the others came from: a failed write fails its undoing."""
    found = error
    context: BaseException | None = error
    while context is not None:
        if isinstance(context, sqlite3.Error):
            found = context
        context = context.__context__
    return found


def _is_full(folder: Path) -> bool:
    return shutil.disk_usage(folder).free < FULL_BELOW_BYTES


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"only text is stored, not {type(value).__name__}")
    return value
