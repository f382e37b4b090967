"""The ledger of everything that was scored: how often this workspace has looked.

``reports/ledger.jsonl`` gets one synced line for each score made, and it outlives the runs: who
deletes the runs that came out badly has still looked at them. Trials are counted by family: scores
on one universe and one window of decisions. A trial is a run under a policy, costs, horizons and
rules; the same one scored again, on a newer snapshot too, is no new one, and replays make no line.

One line is 16 hex digits of its sha256, a space, JSON, a newline. A line that a crash cut short is
cut off by whoever appends next; anything else that does not read is damage.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Final

from filelock import FileLock, Timeout
from pydantic import TypeAdapter, ValidationError

from backtester.errors import DataError, UsageError

LEDGER_NAME: Final = "ledger.jsonl"
LOCK_TIMEOUT_S: Final = 60.0
_DIGEST: Final = 16


@dataclass(frozen=True, kw_only=True)
class ScoredTrial:
    """One line of the ledger.

    Attributes:
        family: Hash of universe and window.
        trial: Hash of what was tried: run and definition, without the snapshot.
        run_id: Run that was scored.
        score_id: Score.
        universe: Instruments, sorted.
        first: First day of the window of decisions.
        last: Last day.
        definition: The whole definition, canonical JSON.
        sharpe: Of the book, a session, not annualised; None where it has none.
        n: Session returns that it came from.
    """

    family: str
    trial: str
    run_id: str
    score_id: str
    universe: tuple[str, ...]
    first: date
    last: date
    definition: str
    sharpe: float | None
    n: int


@dataclass(frozen=True, kw_only=True)
class KnownTrials:
    """Say how many distinct trials of one family this workspace knows.

    Attributes:
        count: Distinct trials; "at least", for nobody knows what was tried elsewhere.
        with_sharpe: Of those, the ones whose book has a Sharpe ratio.
        variance: Sample variance of these ratios (newest line of each trial); None below two.
    """

    count: int
    with_sharpe: int
    variance: float | None


_ADAPTER: Final = TypeAdapter(ScoredTrial)


def enter(path: Path, row: ScoredTrial) -> KnownTrials:
    """Write a score down, if this very line is not there, and count its family.

    Args:
        path: The ledger, made with its first line.
        row: The score.

    Raises:
        UsageError: The file cannot be written, or is held by another process for too long.
        DataError: The ledger is damaged.
    """
    with _locked(path):
        rows = read_ledger_rows(path)
        if row not in rows:
            _append(path, _line(row))
            rows = (*rows, row)
    return known_trials(rows, row.family)


def known_trials(rows: Iterable[ScoredTrial], family: str) -> KnownTrials:
    """Count the distinct trials of a family."""
    newest = {row.trial: row for row in rows if row.family == family}
    ratios = sorted(row.sharpe for row in newest.values() if row.sharpe is not None)
    return KnownTrials(count=len(newest), with_sharpe=len(ratios), variance=_variance(ratios))


def _variance(values: Sequence[float]) -> float | None:
    if len(values) < 2:
        return None
    mean = math.fsum(values) / len(values)
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)


def read_ledger_rows(path: Path) -> tuple[ScoredTrial, ...]:
    """Return all lines of a ledger, oldest first; none where there is no file.

    Raises:
        DataError: The file is damaged before its last line, or cannot be read.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}): allow it") from error
    whole = content[: content.rfind(b"\n") + 1]
    return tuple(_read(line, path, at) for at, line in enumerate(whole.splitlines(), start=1))


def _read(line: bytes, path: Path, number: int) -> ScoredTrial:
    digest, space, body = line[:_DIGEST], line[_DIGEST : _DIGEST + 1], line[_DIGEST + 1 :]
    try:
        if space != b" " or _digest(body) != digest:
            raise ValueError
        return _ADAPTER.validate_json(body)
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
        os.ftruncate(handle, content.rfind(b"\n") + 1)
        os.lseek(handle, 0, os.SEEK_END)
        view = memoryview(line)
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
