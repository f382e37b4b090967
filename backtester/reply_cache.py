"""The store of recorded answers, by key, shared by all runs of one machine.

Answers are immutable: a write is an insert if absent, and the caller goes on with what is stored.
The store is a `diskcache` that holds text only. A pickle in it, whoever put it there, is refused
and never loaded. Nothing is ever evicted. It belongs on a local disk.
"""

from __future__ import annotations

import os.path
import sqlite3
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import diskcache
from diskcache.core import MODE_RAW
from filelock import FileLock

from backtester.answers import CacheRecord, record_of, record_text, request_problem
from backtester.errors import DataError, UsageError
from backtester.nearest import difference, likeness, request_lines
from tradingagents_core.llm.keys import canonical_json

CACHE_FORMAT = 1
MARKER = "format.json"
BUSY_TIMEOUT_S = 60.0
FLIGHT_POLL_S = 0.02
# Recorded requests of about the same length that a missing one is compared with.
CANDIDATES = 200

# diskcache's own defaults lose data: a size limit, eviction, values in files that can go missing.
_SETTINGS: Mapping[str, Any] = {
    "eviction_policy": "none",
    "cull_limit": 0,
    "size_limit": 2**40,
    "disk_min_file_size": 2**40,
    "statistics": 0,
    "tag_index": 0,
}


@dataclass(frozen=True, kw_only=True)
class CacheProblem:
    """Name a record that cannot be trusted, and why; the key is empty for the whole store."""

    key: str
    problem: str

    def __str__(self) -> str:
        """Return one line."""
        return f"{self.key or 'the store'}: {self.problem}"


@dataclass(frozen=True, kw_only=True)
class _Size:
    """Length of a recorded request, by which candidates for the nearest are chosen."""

    key: str
    length: int


@dataclass(frozen=True, kw_only=True)
class Nearest:
    """Hold the recorded request of a node that is most like one that was not found."""

    record: CacheRecord
    diff: str


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


class ReplyCache:
    """Store answers by key, shared by all runs, threads and processes of one machine.

    Pickles as its folder, so that a worker process opens its own connection.
    """

    def __init__(self, folder: Path, store: diskcache.Cache, *, read_only: bool) -> None:
        self._folder = folder
        self._store = store
        self._read_only = read_only
        self._sizes_of_node: Mapping[str, Sequence[_Size]] | None = None

    @classmethod
    def open(cls, folder: Path, *, read_only: bool = False) -> Self:
        """Open a cache, and make an empty one where there is none.

        Args:
            folder: Its folder: a format marker, the database and the locks.
            read_only: Refuse writes, and a folder that is no cache.

        Raises:
            DataError: For a folder that holds something else, a cache of another format, or a
                damaged database.
            UsageError: For a folder that cannot be made or written.
        """
        folder = folder.absolute()
        if os.path.expandvars(folder) != str(folder):
            # diskcache would put the answers somewhere else.
            raise UsageError(f"the cache folder {folder} names a variable: choose another data_dir")
        if read_only and not (folder / MARKER).is_file():
            raise DataError(f"no reply cache at {folder}: record a run first, or check the path")
        try:
            (folder / "flights").mkdir(parents=True, exist_ok=True)
            # Opening writes tables and settings; two processes at once would lock each other out.
            with FileLock(folder / "flights" / "open.lock", poll_interval=FLIGHT_POLL_S):
                _check_marker(folder)
                with _sound(folder):
                    store = diskcache.Cache(
                        str(folder / "answers"),
                        timeout=BUSY_TIMEOUT_S,
                        disk=TextDisk,
                        **_SETTINGS,
                    )
        except OSError as error:
            raise UsageError(
                f"the cache folder {folder} cannot be written ({error.strerror or error}): "
                "choose another data_dir"
            ) from error
        return cls(folder, store, read_only=read_only)

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (self._folder, self._read_only)

    def __len__(self) -> int:
        """Return the number of answers."""
        with _sound(self._folder):
            return len(self._store)

    @property
    def folder(self) -> Path:
        """Folder of the cache."""
        return self._folder

    def close(self) -> None:
        """Close this thread's connection; the next use opens another."""
        self._store.close()

    def get(self, key: str) -> CacheRecord | None:
        """Return the answer under a key, or None.

        Raises:
            DataError: For a damaged record, naming the key.
        """
        try:
            text = self._store.get(key)
        except (diskcache.Timeout, sqlite3.DatabaseError) as error:
            raise _unusable(self._folder, error) from error
        if text is None:
            return None
        try:
            return record_of(key, text)
        except ValueError as error:
            raise DataError(_damaged(self._folder, key, str(error))) from error

    def add(self, record: CacheRecord) -> CacheRecord:
        """Store an answer if there is none under its key, and return what is stored.

        Raises:
            DataError: For a record whose request does not lead to its key, or a damaged database.
            UsageError: For a cache opened read-only.
        """
        if self._read_only:
            raise UsageError(f"the cache {self._folder} was opened read-only: nothing was recorded")
        problem = request_problem(record)
        if problem is not None:
            raise DataError(f"the answer {record.key} was not recorded: {problem}")
        with _sound(self._folder):
            if self._store.add(record.key, record_text(record)):
                return record
        stored = self.get(record.key)
        if stored is None:
            raise DataError(f"{self._folder}: {record.key} was deleted while it was recorded")
        return stored

    def discard(self, key: str) -> bool:
        """Delete an answer, damaged or not, so that it can be recorded again.

        Returns:
            Whether there was one.
        """
        if self._read_only:
            raise UsageError(f"the cache {self._folder} was opened read-only: nothing was deleted")
        with _sound(self._folder):
            return bool(self._store.delete(key))

    def flight(self, key: str) -> AbstractContextManager[None]:
        """Hold the one flight of a key on this machine; the kernel frees it if its holder dies.

        Lock files are shared by a few keys each, so that their number stays bounded.
        """
        return nullcontext() if self._read_only else _held(self._folder, key)

    def keys(self) -> tuple[str, ...]:
        """Return all keys, sorted."""
        with _sound(self._folder):
            return tuple(sorted(self._store))

    def records(self) -> Iterator[CacheRecord]:
        """Yield all answers by key.

        Raises:
            DataError: At the first damaged record.
        """
        for key in self.keys():
            record = self.get(key)
            if record is not None:
                yield record

    def verify(self) -> tuple[CacheProblem, ...]:
        """Check the database and every record: key against request, reply against its hash."""
        with _sound(self._folder), warnings.catch_warnings():
            warnings.simplefilter("always")
            found = self._store.check()
        problems = [CacheProblem(key="", problem=str(warning.message)) for warning in found]
        for key in self.keys():
            try:
                record = self.get(key)
            except DataError as error:
                problems.append(CacheProblem(key=key, problem=str(error)))
                continue
            problem = None if record is None else request_problem(record)
            if problem is not None:
                problems.append(CacheProblem(key=key, problem=problem))
        return tuple(problems)

    def nearest(self, node: str, request: str) -> Nearest | None:
        """Return the recorded request of a node that is most like another, with the difference.

        It is for an error message, and never an answer.
        """
        asked = request_lines(request)
        asked_set = frozenset(asked)
        sizes = self._sizes().get(node, ())
        candidates = sorted(sizes, key=lambda one: (abs(one.length - len(request)), one.key))
        best: tuple[float, CacheRecord, list[str]] | None = None
        for candidate in candidates[:CANDIDATES]:
            record = self.get(candidate.key)
            if record is None:
                continue
            lines = request_lines(record.request)
            score = likeness(frozenset(lines), asked_set)
            if best is None or score > best[0]:
                best = (score, record, lines)
        if best is None:
            return None
        return Nearest(record=best[1], diff=difference(best[2], asked))

    def _sizes(self) -> Mapping[str, Sequence[_Size]]:
        if self._sizes_of_node is None:
            sizes: dict[str, list[_Size]] = {}
            for record in self.records():
                size = _Size(key=record.key, length=len(record.request))
                sizes.setdefault(record.node, []).append(size)
            self._sizes_of_node = sizes
        return self._sizes_of_node


def _reopen(folder: Path, read_only: bool) -> ReplyCache:
    return ReplyCache.open(folder, read_only=read_only)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"only text is stored, not {type(value).__name__}")
    return value


def _check_marker(folder: Path) -> None:
    """Check the folder's format, or mark an empty folder with ours."""
    marker = folder / MARKER
    wanted = canonical_json({"kind": "reply cache", "version": CACHE_FORMAT})
    if not marker.exists():
        others = sorted(path.name for path in folder.iterdir() if path.name != "flights")
        if others:
            raise DataError(
                f"{folder} holds {others[0]} and no {MARKER}, so it is no reply cache: "
                "choose an empty folder"
            )
        fresh = marker.with_suffix(".new")
        fresh.write_text(wanted, encoding="utf-8")
        fresh.replace(marker)
        return
    found = marker.read_text(encoding="utf-8", errors="replace").strip()
    if found != wanted:
        raise DataError(
            f"{marker} says {found[:100]!r}, this version reads {wanted!r}: "
            "use the version that wrote the cache, or unpack its cassette into a new folder"
        )


@contextmanager
def _held(folder: Path, key: str) -> Iterator[None]:
    # A lock object of its own for each holder: threads then exclude each other as processes do.
    lock = FileLock(
        folder / "flights" / f"{key[:3]}.lock",
        poll_interval=FLIGHT_POLL_S,
        fallback_to_soft=False,
    )
    with lock:
        yield


@contextmanager
def _sound(folder: Path) -> Iterator[None]:
    """Turn the database's own errors into ours."""
    try:
        yield
    except (diskcache.Timeout, sqlite3.DatabaseError) as error:
        raise _unusable(folder, error) from error


def _unusable(folder: Path, error: Exception) -> DataError:
    if isinstance(error, diskcache.Timeout):
        return DataError(
            f"the cache {folder} stayed locked for {BUSY_TIMEOUT_S:.0f} s: another process "
            "holds it, or it lies on a network disk, where it cannot work"
        )
    return DataError(
        f"the cache database in {folder} cannot be used ({error}): it is damaged or not on a "
        "local disk; move it aside and record again, or unpack a cassette"
    )


def _damaged(folder: Path, key: str, problem: str) -> str:
    return (
        f"the recorded answer {key} in {folder} is damaged: {problem}; "
        "unpack a cassette of the run into a new cache, or record it again there"
    )
