"""The spend ledger: one synced line for each paid call, written before its reply is used.

It lies beside a run's journal as ``spend.jsonl`` and outlives every stop of the run: a call that
was paid for is in it even if the process died before the reply was. Caps and the view
``cost_by_day`` read it; results and their root never do.

One line is 16 hex digits of its sha256, a space, JSON, a newline, written with one ``write`` to a
file open for appending. A line that a crash cut short is closed with a mark by whoever appends
next, and left out; anything else that does not read is damage.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from backtester.errors import DataError, UsageError
from backtester.records import SpendRecord

SPEND_NAME: Final = "spend.jsonl"
_DIGEST: Final = 16
_TORN: Final = b" torn\n"
_ADAPTER: Final = TypeAdapter(SpendRecord)


class SpendLedger:
    """Append paid calls to a file, which is made with the first of them.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, record: SpendRecord) -> None:
        """Write one paid call and wait until it is on the disk.

        Raises:
            UsageError: The file cannot be written; nothing more can be spent then.
        """
        try:
            _append(self.path, _line(record))
        except OSError as error:
            raise UsageError(
                f"{self.path} cannot be written ({error.strerror or error}), and no call may go "
                "uncounted: free the folder and run the same command again"
            ) from error


def read_spend(path: Path) -> tuple[SpendRecord, ...]:
    """Return all paid calls of a ledger, oldest first; none where there is no file.

    Raises:
        DataError: The file is damaged before its last line.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}): give the file back") from error
    return tuple(_records(content, path))


def _records(content: bytes, path: Path) -> Iterator[SpendRecord]:
    whole = content[: content.rfind(b"\n") + 1]
    for number, line in enumerate(whole.split(b"\n")[:-1], start=1):
        if line.endswith(_TORN[:-1]):
            continue
        digest, _, text = line.partition(b" ")
        if hashlib.sha256(text).hexdigest()[:_DIGEST].encode() != digest:
            raise _damage(path, number)
        try:
            yield _ADAPTER.validate_json(text)
        except ValidationError as error:
            raise _damage(path, number) from error


def _damage(path: Path, number: int) -> DataError:
    return DataError(
        f"{path} is damaged at line {number}, so caps and costs cannot be counted: restore it from "
        "a copy, or move it away to begin counting anew"
    )


def _line(record: SpendRecord) -> bytes:
    text = _ADAPTER.dump_json(record)
    return hashlib.sha256(text).hexdigest()[:_DIGEST].encode() + b" " + text + b"\n"


def _append(path: Path, line: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = not path.exists()
    handle = os.open(path, os.O_CREAT | os.O_RDWR | os.O_APPEND, 0o644)
    try:
        size = os.fstat(handle).st_size
        cut = size > 0 and os.pread(handle, 1, size - 1) != b"\n"
        content = memoryview(_TORN + line if cut else line)
        while content:
            content = content[os.write(handle, content) :]
        os.fsync(handle)
    finally:
        os.close(handle)
    if new:
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
