"""The journal of a run: the append-only truth from which every table can be made again.

One record is one line: 16 hex digits of its sha256, a space, canonical JSON, a newline. An append
writes all records of a barrier with one ``write`` and one ``fsync``. A line without its newline
can only be the torn end of an interrupted append and is cut off; anything else that does not read
is damage and an error, because a record that was synced must never vanish without a word.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from pydantic import TypeAdapter

from backtester.errors import DataError
from backtester.records import CellKey, CellRecord, LessonRecord, ReturnRecord

JOURNAL_FORMAT: Final = 1
OF_A_RUN: Final = (
    "restore the file from a copy, or delete the run's folder and run it again "
    "(recorded replies stay in the cache)"
)
"""What to do about a damaged journal, unless its owner says otherwise."""

_DIGEST = 16

Record = CellRecord | ReturnRecord | LessonRecord

_KINDS: Final[dict[str, type[Record]]] = {
    "cell": CellRecord,
    "return": ReturnRecord,
    "lesson": LessonRecord,
}
_NAMES: Final = {record: name for name, record in _KINDS.items()}
_ADAPTERS: Final[dict[str, TypeAdapter[Record]]] = {
    name: TypeAdapter(record) for name, record in _KINDS.items()
}


@dataclass
class Ledger:
    """Hold what a journal says now, and what it said before.

    Attributes:
        cells: Newest record of each cell.
        superseded: Older records of cells that were decided again, oldest first.
        returns: Newest return of each cell.
        lessons: Newest memory row of each cell.
        superseded_lessons: Older memory rows that had model calls, oldest first.
    """

    cells: dict[CellKey, CellRecord] = field(default_factory=dict)
    superseded: list[CellRecord] = field(default_factory=list)
    returns: dict[CellKey, ReturnRecord] = field(default_factory=dict)
    lessons: dict[CellKey, LessonRecord] = field(default_factory=dict)
    superseded_lessons: list[LessonRecord] = field(default_factory=list)

    def add(self, record: Record) -> None:
        """Take one more record; a later one of the same cell replaces the earlier.

        Where the decision is another one, what the old one earned and taught goes with it.
        """
        if isinstance(record, CellRecord):
            before = self.cells.get(record.key)
            if before is not None:
                self.superseded.append(before)
                if _decided(before) != _decided(record):
                    self.returns.pop(record.key, None)
                    self._set_aside(record.key)
                    self.lessons.pop(record.key, None)
            self.cells[record.key] = record
        elif isinstance(record, ReturnRecord):
            self.returns[record.key] = record
        else:
            self._set_aside(record.key)
            self.lessons[record.key] = record

    def _set_aside(self, key: CellKey) -> None:
        """Keep a memory row that is about to go: its calls were paid for."""
        before = self.lessons.get(key)
        if before is not None and before.calls:
            self.superseded_lessons.append(before)


def _decided(cell: CellRecord) -> tuple[object, ...]:
    return cell.status, cell.symbol, cell.rating, cell.decision


class Log(Protocol):
    """Take records and know what was taken before: a `Journal`, or a double without a disk."""

    ledger: Ledger

    def append(self, records: Sequence[Record]) -> None:
        """Take records as one whole."""


class Journal:
    """Append records to a run's journal and keep the `Ledger` of what it holds.

    Build it with `open` (the one writer, under the run's lock); readers use `read_ledger`.
    """

    def __init__(self, path: Path, ledger: Ledger, handle: int) -> None:
        self.path = path
        self.ledger = ledger
        self._handle = handle

    @classmethod
    def open(cls, path: Path, *, advice: str = OF_A_RUN) -> Journal:
        """Open for appending, cutting off a torn tail.

        Args:
            path: The file, made where it is missing.
            advice: What to do about damage.

        Raises:
            DataError: Damage before the tail, or another format.
        """
        if not path.exists():
            handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND, 0o644)
            journal = cls(path, Ledger(), handle)
            journal._write(_line("header", b'{"format":%d}' % JOURNAL_FORMAT))
            _sync_folder(path.parent)
            return journal
        content = path.read_bytes()
        whole = content.rfind(b"\n") + 1
        ledger = _parse(content[:whole], path, advice)
        handle = os.open(path, os.O_WRONLY | os.O_APPEND)
        if whole < len(content):
            os.ftruncate(handle, whole)
            os.fsync(handle)
        journal = cls(path, ledger, handle)
        if whole == 0:
            journal._write(_line("header", b'{"format":%d}' % JOURNAL_FORMAT))
        return journal

    def append(self, records: Sequence[Record]) -> None:
        """Write records as one synced append, then take them into the ledger."""
        if not records:
            return
        self._write(b"".join(encode(record) for record in records))
        for record in records:
            self.ledger.add(record)

    def close(self) -> None:
        """Release the file."""
        os.close(self._handle)

    def _write(self, content: bytes) -> None:
        view = memoryview(content)
        while view:
            written = os.write(self._handle, view)
            view = view[written:]
        os.fsync(self._handle)


def read_ledger(path: Path, *, advice: str = OF_A_RUN) -> Ledger:
    """Read a journal without touching it; a torn tail of a run in progress is left out.

    Args:
        path: The file.
        advice: What to do about damage.

    Raises:
        DataError: No journal there, damage, or another format.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise DataError(f"{path} does not exist: the run has no journal") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}): {advice}") from error
    return _parse(content[: content.rfind(b"\n") + 1], path, advice)


def encode(record: Record) -> bytes:
    """Return the journal line of a record, newline included."""
    kind = _NAMES[type(record)]
    return _line(kind, _ADAPTERS[kind].dump_json(record))


def _line(kind: str, body: bytes) -> bytes:
    text = b'{"kind":"%s","record":%s}' % (kind.encode(), body)
    return hashlib.sha256(text).hexdigest()[:_DIGEST].encode() + b" " + text + b"\n"


def _parse(content: bytes, path: Path, advice: str) -> Ledger:
    ledger = Ledger()
    for number, line in enumerate(content.splitlines(keepends=True), start=1):
        try:
            kind, body = _opened(line)
            if number == 1:
                if kind != b"header" or body != b'{"format":%d}' % JOURNAL_FORMAT:
                    raise DataError(
                        f"{path} is no journal of format {JOURNAL_FORMAT} but of another release: "
                        f"{advice}"
                    )
                continue
            ledger.add(_ADAPTERS[kind.decode()].validate_json(body))
        # A record that is none of ours may have a checksum that is right.
        except (LookupError, ValueError) as error:
            said = error if type(error) is ValueError else "it holds no record"
            raise DataError(f"{path} is damaged at line {number}: {said}; {advice}") from error
    return ledger


def _opened(line: bytes) -> tuple[bytes, bytes]:
    """Return kind and body of a line.

    Raises:
        ValueError: It is not what was written.
    """
    digest, space, text = line[:_DIGEST], line[_DIGEST : _DIGEST + 1], line[_DIGEST + 1 : -1]
    if space != b" " or hashlib.sha256(text).hexdigest()[:_DIGEST].encode() != digest:
        raise ValueError("its checksum does not match")
    kind, found, body = text.removeprefix(b'{"kind":"').partition(b'","record":')
    if not found:
        raise ValueError("it holds no record")
    return kind, body[:-1]


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
