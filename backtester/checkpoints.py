"""What a killed analysis leaves behind, so that the next one goes on at the node where it stopped.

Two files in the analysis's folder: LangGraph's own checkpoints in SQLite, and beside them a trail
with what each finished node asked and read, for a checkpoint holds the graph's state and nothing of
what led to it. Both are gone once the analysis has ended well. Neither holds a pickle, and reading
one back can build messages and plain values, and nothing else.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar

from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from pydantic import TypeAdapter, ValidationError

from backtester.errors import DataError
from backtester.records import CallRecord, CellRecord, OutcomeRecord, ReadRecord
from backtester.runs import RunFolder

HARNESS = "harness"
_STATE: Final = "checkpoint.sqlite"
_TRAIL: Final = "checkpoint.trail.jsonl"
_FILES: Final = (_STATE, f"{_STATE}-wal", f"{_STATE}-shm", f"{_STATE}-journal", _TRAIL)
_KINDS: Final = ("msgpack", "null", "bytes", "bytearray")
_WAY_OUT: Final = "run again with --clear-checkpoints (recorded replies stay in the cache)"
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


class Checkpoint:
    """Keep the half-done work of one analysis; build it with `open_checkpoint`.

    Attributes:
        saver: What the graph writes its states to.
        before: Nodes that ended before the present try, oldest first; empty for a new analysis.
    """

    def __init__(self, folder: Path, connection: sqlite3.Connection) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self.saver = SqliteSaver(connection, serde=PlainSerializer())
        self._visits = list(_read_trail(folder / _TRAIL))
        self.before: tuple[Visit, ...] = ()
        self.begin()

    def begin(self) -> None:
        """Begin a try: what earlier ones noted lies before it."""
        self.before = tuple(self._visits)

    def note(self, visit: Visit) -> None:
        """Write down a node that has just ended."""
        line = _VISIT.dump_json(visit) + b"\n"
        with self._lock, (self._folder / _TRAIL).open("ab") as trail:
            trail.write(line)
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
        DataError: It is there and does not read.
    """
    path = folder.path / _STATE
    try:
        with closing(sqlite3.connect(path, check_same_thread=False)) as connection:
            checkpoint = Checkpoint(folder.path, connection)
            checkpoint.saver.setup()
            yield checkpoint
    except sqlite3.DatabaseError as error:
        raise DataError(f"checkpoint {path} does not read ({error}): {_WAY_OUT}") from error


def clear(folder: RunFolder) -> bool:
    """Remove an analysis's checkpoint and say whether there was one; the caller holds its lock."""
    found = (folder.path / _STATE).exists()
    for name in _FILES:
        (folder.path / name).unlink(missing_ok=True)
    return found


def clear_all(folder: Path) -> int:
    """Remove the checkpoints of all analyses below a folder and return their number.

    Raises:
        RunLocked: One of them is being worked on.
    """
    if not folder.is_dir():
        return 0
    count = 0
    for path in sorted(folder.iterdir()):
        if (path / _STATE).exists():
            analysis = RunFolder(path)
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


def _read_trail(path: Path) -> tuple[Visit, ...]:
    if not path.exists():
        return ()
    content = path.read_bytes()
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        os.truncate(path, whole)
    try:
        return tuple(_VISIT.validate_json(line) for line in content[:whole].splitlines())
    except ValidationError as error:
        raise DataError(f"checkpoint {path} is damaged: {_WAY_OUT}") from error
