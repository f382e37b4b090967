"""Answers of vendors kept while a freeze is going on, so that nothing is asked for twice.

They lie in a hidden folder beside the snapshot to be: each under a name made from its request,
each whole or not there, for its header is written last. The folder also holds the instant of the
capture, which a freeze that goes on keeps, and the lock that makes one process its only writer.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict, ValidationError

from backtester.errors import BacktesterError, RunLocked, UsageError
from backtester.named_files import SETTINGS_BYTES, TABLE_BYTES, read_named
from backtester.parquet import read_parquet
from backtester.snapshots.manifest import write_whole
from backtester.vendors.base import Capture, Wanted

_FORMAT: Final = 1
_STATE: Final = "freeze.json"
_HOLDER: Final = "holder"


class _Header(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    reason: str | None = None
    files: dict[str, str] = {}
    dropped_undated: int = 0
    notes: tuple[str, ...] = ()
    options: dict[str, str] = {}
    source: str = ""
    licence: str = ""


@dataclass(frozen=True, kw_only=True)
class Kept:
    """Hold an answer that was kept.

    Attributes:
        capture: Rows, or None where the vendor said that it has none.
        reason: Its words for that.
    """

    capture: Capture | None
    reason: str = ""


class Parts:
    """Keep the answers of one freeze. Open it with `open_parts`.

    Attributes:
        captured_at: When the capture was begun.
    """

    def __init__(self, folder: Path, captured_at: datetime) -> None:
        self._folder = folder
        self.captured_at = captured_at

    def find(self, vendor: str, wanted: Wanted) -> Kept | None:
        """Return what a vendor answered to a request, or None where it was not asked or is torn."""
        key = _key(vendor, wanted)
        try:
            header = _Header.model_validate_json(_read(self._folder / f"{key}.json"))
            tables = {
                name: self._rows(self._folder / f"{key}-{name}.parquet", digest)
                for name, digest in header.files.items()
            }
        except (OSError, ValidationError, _Torn):
            return None
        if header.reason is not None:
            return Kept(capture=None, reason=header.reason)
        return Kept(
            capture=Capture(
                rows=tables,
                dropped_undated=header.dropped_undated,
                notes=header.notes,
                options=header.options,
                source=header.source,
                licence=header.licence,
            )
        )

    def keep(self, vendor: str, wanted: Wanted, capture: Capture) -> None:
        """Keep an answer with rows."""
        key = _key(vendor, wanted)
        digests = {}
        for name, rows in capture.rows.items():
            buffer = io.BytesIO()
            pq.write_table(rows, buffer, compression="zstd")
            digests[name] = hashlib.sha256(buffer.getvalue()).hexdigest()
            write_whole(self._folder / f"{key}-{name}.parquet", buffer.getvalue())
        header = _Header(
            files=digests,
            dropped_undated=capture.dropped_undated,
            notes=capture.notes,
            options=dict(capture.options),
            source=capture.source,
            licence=capture.licence,
        )
        write_whole(self._folder / f"{key}.json", header.model_dump_json().encode())

    def keep_none(self, vendor: str, wanted: Wanted, reason: str) -> None:
        """Keep that a vendor said that it has none."""
        header = _Header(reason=reason)
        path = self._folder / f"{_key(vendor, wanted)}.json"
        write_whole(path, header.model_dump_json().encode())

    def count(self) -> int:
        """Return how many answers are kept."""
        return sum(1 for path in self._folder.glob("*.json") if path.name != _STATE)

    def begin_anew(self, captured_at: datetime) -> None:
        """Drop every answer and begin a capture."""
        for path in sorted(self._folder.iterdir()):
            if path.name != _HOLDER:
                path.unlink()
        self.captured_at = captured_at
        _write_state(self._folder, captured_at)

    def drop(self) -> None:
        """Remove the folder; the snapshot is there."""
        shutil.rmtree(self._folder)

    def words(self) -> str:
        """Say what is kept and where, for the end of an error; empty where nothing is."""
        count = self.count()
        if not count:
            return ""
        answers = "1 answer is" if count == 1 else f"{count} answers are"
        return (
            f"; {answers} kept in {self._folder}, from which the same command goes on "
            "(--restart drops them)"
        )

    def _rows(self, path: Path, digest: str) -> pa.Table:
        data = read_named(path, most=TABLE_BYTES)
        if hashlib.sha256(data).hexdigest() != digest:
            raise _Torn(path)
        return read_parquet(data)


class _Torn(Exception):
    """Report an answer that is not whole."""


def parts_folder(folder: Path) -> Path:
    """Return where the answers for a snapshot's folder are kept."""
    return folder.with_name(f".{folder.name}.freeze")


@contextmanager
def open_parts(folder: Path, captured_at: datetime) -> Iterator[Parts]:
    """Open the answers kept for a snapshot, alone.

    An error of ours that is raised while they are open tells of the answers that are kept; where
    there is none, the folder goes.

    Args:
        folder: Folder of the snapshot to be.
        captured_at: Now; a freeze that goes on keeps the instant at which it was begun.

    Raises:
        RunLocked: Another process freezes into this name.
        UsageError: The folder cannot be written.
    """
    parts = parts_folder(folder)
    try:
        descriptor = _locked(parts)
    except OSError as error:
        raise UsageError(
            f"{parts} cannot be written ({error.strerror}): choose another data folder"
        ) from error
    kept = Parts(parts, captured_at)
    try:
        (parts / _HOLDER).write_text(str(os.getpid()), encoding="utf-8")
        begun = _begun(parts)
        if begun is None:
            _write_state(parts, captured_at)
        else:
            kept.captured_at = begun
        yield kept
    except BacktesterError as error:
        error.args = (f"{error}{kept.words()}",)
        raise
    finally:
        if kept.count() == 0:
            # Nothing that a next try could use; where it cannot go, what went wrong stays first.
            shutil.rmtree(parts, ignore_errors=True)
        os.close(descriptor)


def _locked(parts: Path) -> int:
    """Lock the folder and return its descriptor; the kernel frees the lock of one that dies."""
    while True:
        parts.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(parts, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise RunLocked(
                f"another process{_holder(parts)} freezes into {parts.name[1:-7]}: wait for it, or "
                "choose another name"
            ) from None
        # The one before may have finished, and removed the folder, between opening and locking.
        if parts.exists() and parts.stat().st_ino == os.fstat(descriptor).st_ino:
            return descriptor
        os.close(descriptor)


def _holder(parts: Path) -> str:
    try:
        return f" ({_read(parts / _HOLDER).decode(errors='replace')[:20]})"
    except OSError:
        return ""


def _read(path: Path) -> bytes:
    return read_named(path, most=SETTINGS_BYTES)


def _begun(parts: Path) -> datetime | None:
    try:
        state = json.loads(_read(parts / _STATE))
        begun = datetime.fromisoformat(state["captured_at"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return begun if state.get("format") == _FORMAT and begun.tzinfo is not None else None


def _write_state(parts: Path, captured_at: datetime) -> None:
    state = {"format": _FORMAT, "captured_at": captured_at.astimezone(UTC).isoformat()}
    write_whole(parts / _STATE, json.dumps(state).encode())


def _key(vendor: str, wanted: Wanted) -> str:
    request = {
        "vendor": vendor,
        "table": wanted.table,
        "instrument": wanted.instrument,
        "symbol": wanted.symbol,
        "start": wanted.start.isoformat(),
        "end": wanted.end.isoformat(),
        "captured_at": wanted.captured_at.isoformat(),
        "options": dict(wanted.options),
    }
    return hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()[:24]
