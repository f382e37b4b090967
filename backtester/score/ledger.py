"""The ledger of everything that was scored: how often this workspace has looked.

``reports/ledger.jsonl`` gets one synced line for each score made, and it outlives the runs: who
deletes the runs that came out badly has still looked at them. `trials` says what is counted; one
that is scored again, on a newer snapshot too, is no new one, and replays make no line.

One line is 16 hex digits of its sha256, a space, JSON, a newline. A line that a crash cut short is
cut off by whoever appends next, one that lacks its newline alone is completed; anything else that
does not read is damage.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any, Final

from filelock import FileLock, Timeout
from pydantic import TypeAdapter, ValidationError

from backtester.errors import DataError, UsageError
from backtester.score.trials import KnownTrials, ScoredTrial, known_trials, told_apart

LEDGER_NAME: Final = "ledger.jsonl"
LOCK_TIMEOUT_S: Final = 60.0
_DIGEST: Final = 16


_ADAPTER: Final = TypeAdapter(ScoredTrial)


def enter(path: Path, rows: Sequence[ScoredTrial]) -> KnownTrials:
    """Write the books of a score down, those lines that are not there, and count related trials.

    Args:
        path: The ledger, made with its first line.
        rows: One line for each book of the score, at least one.

    Raises:
        UsageError: The file cannot be written, or is held by another process for too long.
        DataError: The ledger is damaged.
    """
    with _locked(path):
        there = _lines(path)
        fresh = [row for row in rows if row not in there]
        if fresh:
            _append(path, b"".join(_line(row) for row in fresh))
    one = rows[0]
    return known_trials(told_apart((*there, *fresh)), one.universe, one.first, one.last)


def trials_by_now(path: Path, definition: Mapping[str, Any]) -> KnownTrials:
    """Count the trials that a score would be held against if it were made now.

    Args:
        path: The ledger.
        definition: Of the score, JSON values as its card has them.

    Raises:
        DataError: The ledger is damaged, or cannot be read.
    """
    first, last = (date.fromisoformat(definition[name]) for name in ("first", "last"))
    return known_trials(read_ledger_rows(path), definition["universe"], first, last)


def read_ledger_rows(path: Path) -> tuple[ScoredTrial, ...]:
    """Return all lines of a ledger, oldest first, told apart; none where there is no file.

    Raises:
        DataError: The file is damaged before its last line, or cannot be read.
    """
    return told_apart(_lines(path))


def _lines(path: Path) -> tuple[ScoredTrial, ...]:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}): allow it") from error
    whole = content[: _kept(content)]
    return tuple(_read(line, path, at) for at, line in enumerate(whole.splitlines(), start=1))


def _kept(content: bytes) -> int:
    """Return how much of a ledger stands: all but a last line that a crash cut short."""
    end = content.rfind(b"\n") + 1
    last = content[end:]
    digest, body = last[:_DIGEST], last[_DIGEST + 1 :]
    return len(content) if body and _digest(body) == digest else end


def _read(line: bytes, path: Path, number: int) -> ScoredTrial:
    digest, space, body = line[:_DIGEST], line[_DIGEST : _DIGEST + 1], line[_DIGEST + 1 :]
    try:
        if space != b" " or _digest(body) != digest:
            raise ValueError
        row = _ADAPTER.validate_json(body)
        json.loads(row.definition)
        return row
    except (ValidationError, ValueError) as error:
        raise DataError(
            f"{path} is damaged at line {number}: bring the file back; it counts what was tried, "
            "and cannot be made again from the runs"
        ) from error


def _line(row: ScoredTrial) -> bytes:
    body = _ADAPTER.dump_json(row)
    return _digest(body) + b" " + body + b"\n"


def _digest(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest()[:_DIGEST].encode()


def _append(path: Path, line: bytes) -> None:
    handle = os.open(path, os.O_CREAT | os.O_RDWR, 0o644)
    try:
        content = path.read_bytes()
        stands = content[: _kept(content)]
        os.ftruncate(handle, len(stands))
        os.lseek(handle, 0, os.SEEK_END)
        view = memoryview(line if not stands or stands.endswith(b"\n") else b"\n" + line)
        while view:
            view = view[os.write(handle, view) :]
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    lock = FileLock(path.with_name(f".{path.name}.lock"))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=LOCK_TIMEOUT_S)
        try:
            yield
        finally:
            lock.release()
    except Timeout as error:
        raise UsageError(
            f"{path} has been held by another process for {LOCK_TIMEOUT_S:g} s: wait for it or "
            "stop it, then run the same command again"
        ) from error
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written ({error.strerror or error}): free the folder, or name "
            "another with --reports-dir"
        ) from error
