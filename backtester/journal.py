"""The journal of a run: the append-only truth from which every table can be made again.

One record is one line: 16 hex digits of its sha256, a space, canonical JSON, a newline. An append
writes all records of a barrier with one ``write`` and one ``fsync``. A line without its newline
can only be the torn end of an interrupted append and is cut off; anything else that does not read
is damage and an error, because a record that was synced must never vanish without a word.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from pydantic import TypeAdapter, ValidationError

from backtester.errors import DataError
from backtester.records import CellKey, CellRecord, LessonRecord, ReturnRecord

JOURNAL_FORMAT: Final = 1
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
    """

    cells: dict[CellKey, CellRecord] = field(default_factory=dict)
    superseded: list[CellRecord] = field(default_factory=list)
    returns: dict[CellKey, ReturnRecord] = field(default_factory=dict)
    lessons: dict[CellKey, LessonRecord] = field(default_factory=dict)

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
                    self.lessons.pop(record.key, None)
            self.cells[record.key] = record
        elif isinstance(record, ReturnRecord):
            self.returns[record.key] = record
        else:
            self.lessons[record.key] = record


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
    def open(cls, path: Path) -> Journal:
        """Open for appending, cutting off a torn tail.

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
        ledger = _parse(content[:whole], path)
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


def read_ledger(path: Path) -> Ledger:
    """Read a journal without touching it; a torn tail of a run in progress is left out.

    Raises:
        DataError: No journal there, damage, or another format.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise DataError(f"{path} does not exist: the run has no journal") from error
    return _parse(content[: content.rfind(b"\n") + 1], path)


def encode(record: Record) -> bytes:
    """Return the journal line of a record, newline included."""
    kind = _NAMES[type(record)]
    return _line(kind, _ADAPTERS[kind].dump_json(record))


def _line(kind: str, body: bytes) -> bytes:
    text = b'{"kind":"%s","record":%s}' % (kind.encode(), body)
    return hashlib.sha256(text).hexdigest()[:_DIGEST].encode() + b" " + text + b"\n"


def _parse(content: bytes, path: Path) -> Ledger:
    ledger = Ledger()
    for number, (kind, body) in enumerate(_lines(content, path), start=1):
        if number == 1:
            if kind != "header" or body != b'{"format":%d}' % JOURNAL_FORMAT:
                raise DataError(
                    f"{path} is no journal of format {JOURNAL_FORMAT}: "
                    "it was written by another release; run the backtest again"
                )
            continue
        try:
            ledger.add(_ADAPTERS[kind].validate_json(body))
        except (KeyError, ValidationError) as error:
            raise _damage(path, number) from error
    return ledger


def _lines(content: bytes, path: Path) -> Iterator[tuple[str, bytes]]:
    for number, line in enumerate(content.splitlines(keepends=True), start=1):
        digest, space, text = line[:_DIGEST], line[_DIGEST : _DIGEST + 1], line[_DIGEST + 1 : -1]
        if space != b" " or hashlib.sha256(text).hexdigest()[:_DIGEST].encode() != digest:
            raise _damage(path, number)
        kind, found, body = text.removeprefix(b'{"kind":"').partition(b'","record":')
        if not found:
            raise _damage(path, number)
        yield kind.decode(), body[:-1]


def _damage(path: Path, number: int) -> DataError:
    return DataError(
        f"{path} is damaged at line {number}: its checksum does not match; "
        "restore the file from a copy, or delete the run's folder and run it again "
        "(recorded replies stay in the cache)"
    )


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
