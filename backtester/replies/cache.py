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
from filelock import FileLock

from backtester.errors import DataError, UsageError
from backtester.replies.answers import (
    CacheRecord,
    record_of,
    record_text,
    reply_to,
    request_problem,
)
from backtester.replies.database import (
    BUSY_TIMEOUT_S,
    AnswerStore,
    EmptyStore,
    ReadableStore,
    ReadOnlyStore,
    TextDisk,
    require_whole,
    sound,
    unusable,
    unwritable,
)
from backtester.replies.nearest import difference, likeness, request_lines
from backtester.replies.users import Membership
from tradingagents_core.llm.keys import canonical_json
from tradingagents_core.protocols import Reply

CACHE_FORMAT = 1
MARKER = "format.json"
ANSWERS = "answers"
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
_WANTED_MARKER = canonical_json({"kind": "reply cache", "version": CACHE_FORMAT})


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


class ReplyCache:
    """Store answers by key, shared by all runs, threads and processes of one machine.

    Pickles as its folder, so that a worker process opens its own connection.
    """

    def __init__(self, folder: Path, store: ReadableStore, *, writable: AnswerStore | None) -> None:
        self._folder = folder
        self._store = store
        self._writable = writable
        self._sizes_of_node: Mapping[str, Sequence[_Size]] | None = None
        self.membership: Membership | None = None

    @classmethod
    def open(cls, folder: Path, *, read_only: bool = False) -> Self:
        """Open a cache, and make an empty one where there is none.

        Args:
            folder: Its folder: the database, a format marker and the locks.
            read_only: Refuse writes and make nothing, so that a mount without writes will do.
                A folder that is not there is an empty cache.

        Raises:
            DataError: For a folder that holds something else, a cache of another format, or a
                damaged database.
            UsageError: For a folder that cannot be made or written.
        """
        folder = folder.absolute()
        if os.path.expandvars(folder) != str(folder):
            # diskcache would put the answers somewhere else.
            raise UsageError(f"the cache folder {folder} names a variable: choose another data_dir")
        if read_only:
            return cls(folder, _readable(folder), writable=None)
        try:
            (folder / "flights").mkdir(parents=True, exist_ok=True)
            membership = Membership(folder / "flights" / "users.lock")
            # Opening writes tables and settings; two processes at once would lock each other out.
            with FileLock(folder / "flights" / "open.lock", poll_interval=FLIGHT_POLL_S):
                store = _written(folder)
        except OSError as error:
            raise unwritable(folder, error) from error
        cache = cls(folder, store, writable=store)
        cache.membership = membership
        return cache

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (self._folder, self._writable is None)

    def __len__(self) -> int:
        """Return the number of answers."""
        with sound(self._folder):
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
        text = self._text(key)
        if text is None:
            return None
        try:
            return record_of(key, text)
        except ValueError as error:
            raise DataError(_damaged(self._folder, key, str(error))) from error

    def reply(self, key: str, request: str) -> Reply | None:
        """Return the recorded reply to a request, or None where there is none.

        Raises:
            DataError: For a damaged record, or one of another request, naming the key.
        """
        text = self._text(key)
        if text is None:
            return None
        try:
            return reply_to(request, key, text)
        except ValueError as error:
            raise DataError(_damaged(self._folder, key, str(error))) from error

    def add(self, record: CacheRecord) -> CacheRecord:
        """Store an answer if there is none under its key, and return what is stored.

        Raises:
            DataError: For a record whose request does not lead to its key, or a damaged database.
            UsageError: For a cache opened read-only, or a full disk.
        """
        if self._writable is None:
            raise UsageError(f"the cache {self._folder} was opened read-only: nothing was recorded")
        problem = request_problem(record)
        if problem is not None:
            raise DataError(f"the answer {record.key} was not recorded: {problem}")
        with sound(self._folder):
            if self._writable.add(record.key, record_text(record)):
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
        if self._writable is None:
            raise UsageError(f"the cache {self._folder} was opened read-only: nothing was deleted")
        with sound(self._folder):
            return self._writable.discard(key)

    def flight(self, key: str) -> AbstractContextManager[None]:
        """Hold the one flight of a key on this machine; the kernel frees it if its holder dies.

        Lock files are shared by a few keys each, so that their number stays bounded.
        """
        return nullcontext() if self._writable is None else _held(self._folder, key)

    def keys(self) -> tuple[str, ...]:
        """Return all keys, sorted."""
        with sound(self._folder):
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
        with sound(self._folder), warnings.catch_warnings():
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

        It is for an error message, and never an answer; a damaged record is passed over.
        """
        asked = request_lines(request)
        asked_set = frozenset(asked)
        sizes = self._sizes().get(node, ())
        candidates = sorted(sizes, key=lambda one: (abs(one.length - len(request)), one.key))
        best: tuple[float, CacheRecord, list[str]] | None = None
        for candidate in candidates[:CANDIDATES]:
            record = self._get_whole(candidate.key)
            if record is None:
                continue
            lines = request_lines(record.request)
            score = likeness(frozenset(lines), asked_set)
            if best is None or score > best[0]:
                best = (score, record, lines)
        if best is None:
            return None
        return Nearest(record=best[1], diff=difference(best[2], asked))

    def _text(self, key: str) -> str | None:
        # Spelled out rather than with `sound`: this is the one read that every replayed call does.
        try:
            return self._store.text(key)
        except (diskcache.Timeout, sqlite3.DatabaseError) as error:
            raise unusable(self._folder, error) from error
        except OSError as error:
            raise unwritable(self._folder, error) from error

    def _sizes(self) -> Mapping[str, Sequence[_Size]]:
        if self._sizes_of_node is None:
            sizes: dict[str, list[_Size]] = {}
            for key in self.keys():
                record = self._get_whole(key)
                if record is not None:
                    size = _Size(key=key, length=len(record.request))
                    sizes.setdefault(record.node, []).append(size)
            self._sizes_of_node = sizes
        return self._sizes_of_node

    def _get_whole(self, key: str) -> CacheRecord | None:
        try:
            return self.get(key)
        except DataError:
            return None


def _reopen(folder: Path, read_only: bool) -> ReplyCache:
    return ReplyCache.open(folder, read_only=read_only)


def _readable(folder: Path) -> ReadableStore:
    """Return the store of a cache that is only read, making nothing."""
    try:
        if not (folder / MARKER).exists():
            _refuse_other_things(folder)
            return EmptyStore()
        _check_marker(folder)
        with sound(folder):
            require_whole(folder, folder / ANSWERS)
    except OSError as error:
        raise unwritable(folder, error) from error
    return ReadOnlyStore(folder / ANSWERS)


def _written(folder: Path) -> AnswerStore:
    """Return the store of a cache that may be written, made where there is none."""
    marked = (folder / MARKER).exists()
    with sound(folder):
        if marked:
            _check_marker(folder)
            require_whole(folder, folder / ANSWERS)
        else:
            _refuse_other_things(folder)
        store = AnswerStore(
            str(folder / ANSWERS), timeout=BUSY_TIMEOUT_S, disk=TextDisk, **_SETTINGS
        )
        store.keep()
        if not marked:
            # Closed, the database is whole on disk. The marker comes after it: whoever finds a
            # marker and no tables knows that they were lost.
            store.close()
            fresh = (folder / MARKER).with_suffix(".new")
            fresh.write_text(_WANTED_MARKER, encoding="utf-8")
            fresh.replace(folder / MARKER)
    return store


def _refuse_other_things(folder: Path) -> None:
    """Take a folder without a marker only if it is not there, empty, or half made by us."""
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    own = {"flights", "format.new"} | ({ANSWERS} if "flights" in names else set())
    others = sorted(names - own)
    if others:
        raise DataError(
            f"{folder} holds {others[0]} and no {MARKER}, so it is no reply cache: "
            "choose an empty folder"
        )


def _check_marker(folder: Path) -> None:
    marker = folder / MARKER
    found = marker.read_text(encoding="utf-8", errors="replace").strip()
    if found != _WANTED_MARKER:
        raise DataError(
            f"{marker} says {found[:100]!r}, this version reads {_WANTED_MARKER!r}: "
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
    try:
        lock.acquire()
    except OSError as error:
        raise unwritable(folder, error) from error
    try:
        yield
    finally:
        lock.release()


def _damaged(folder: Path, key: str, problem: str) -> str:
    return (
        f"the recorded answer {key} in {folder} is damaged: {problem}; "
        "unpack a cassette of the run into a new cache, or record it again there"
    )
