"""The results root: one hash that two runs share if and only if they gave the same results.

It covers results and what led to them: cells, returns, memory, calls and reads, each sorted by its
key. It leaves out what may differ between equal runs: hit or miss, latency, cost, wall times,
versions. Doubles enter as ``float.hex``, so the last bit counts and no printing rule does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import fields
from datetime import date, datetime
from typing import Any, Final

import orjson

from backtester.records import CallRecord, CellKey, LessonRecord, ReadRecord, ReturnRecord
from backtester.runs.journal import Ledger

ROOT_FORMAT: Final = "results-root-1"


def results_root(ledger: Ledger) -> str:
    """Return the sha256 hex root over everything that a ledger holds now."""
    digest = hashlib.sha256(ROOT_FORMAT.encode())
    for line in _lines(ledger):
        digest.update(line)
        digest.update(b"\n")
    return digest.hexdigest()


def part_roots(ledger: Ledger) -> dict[str, str]:
    """Return one hash for each part, to say which part of two runs differs."""
    digests: dict[str, Any] = {}
    for line in _lines(ledger):
        part = line[2 : line.index(b'"', 2)].decode()
        digests.setdefault(part, hashlib.sha256()).update(line + b"\n")
    return {part: digest.hexdigest() for part, digest in sorted(digests.items())}


def _lines(ledger: Ledger) -> Iterator[bytes]:
    for key, cell in sorted(ledger.cells.items()):
        yield _line(
            "cell",
            key,
            [
                cell.status,
                cell.error_class,
                cell.rating,
                cell.rating_source,
                cell.typed,
                [list(pair) for pair in cell.state_hashes],
                cell.lessons_hash,
                # A run that shows no book has the root that it had before there were any.
                *([cell.book_hash] if cell.book_hash else []),
            ],
        )
    for key, returned in sorted(ledger.returns.items()):
        yield _line("return", key, _values(returned, ReturnRecord))
    for key, lesson in sorted(ledger.lessons.items()):
        yield _line("memory", key, _values(lesson, LessonRecord, without=("calls", "outcomes")))
    for key, cell in sorted(ledger.cells.items()):
        yield from _calls(key, cell.calls)
    for key, lesson in sorted(ledger.lessons.items()):
        yield from _calls(key, lesson.calls)
    for key, cell in sorted(ledger.cells.items()):
        for read in cell.reads:
            yield _line("read", key, _values(read, ReadRecord))


def _calls(key: CellKey, calls: Iterable[CallRecord]) -> Iterator[bytes]:
    for call in sorted(calls, key=lambda c: (c.node, c.index, c.attempt)):
        yield _line(
            "call",
            key,
            [call.node, call.index, call.attempt, call.key, call.reply_hash, call.finish_reason],
        )


def _values(record: object, kind: type[Any], without: tuple[str, ...] = ()) -> list[Any]:
    names = [f.name for f in fields(kind) if f.name != "key" and f.name not in without]
    return [_plain(getattr(record, name)) for name in names]


def _plain(value: object) -> object:
    if isinstance(value, float):
        return value.hex()
    if isinstance(value, date | datetime):
        return value.isoformat()
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


def _line(part: str, key: CellKey, values: list[Any]) -> bytes:
    return orjson.dumps([part, str(key), values])
