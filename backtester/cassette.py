"""Recordings as a whole: check a cache, count it, and carry a run's part of it as one file.

A cassette is ``*.jsonl.zst``, made for version control: JSON lines, compressed. First comes the
run's manifest with its root, then the answers that the run used, by key, then the lines of its
journal (decisions, returns, lessons and attempts without an answer), last a line with the number
of lines and the sha256 over all before it.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import zstandard

from backtester.answers import CacheRecord, record_of, record_text, request_problem
from backtester.errors import DataError, UsageError
from backtester.reply_cache import CacheProblem, ReplyCache
from tradingagents_core.llm.keys import canonical_json

CASSETTE_FORMAT = 1
COMPRESSION_LEVEL = 12


@dataclass(frozen=True, kw_only=True)
class CacheReport:
    """Say what a check of recordings found.

    Attributes:
        records: Number of answers.
        problems: What is wrong with which of them.
    """

    records: int
    problems: tuple[CacheProblem, ...]


@dataclass(frozen=True, kw_only=True)
class NodeStats:
    """Count the answers that a node recorded with one model.

    Attributes:
        node: Node.
        provider: Provider.
        model: Model asked for.
        records: Answers.
        characters: Characters of the records.
        input_tokens: As reported; None where an answer has none.
        output_tokens: Likewise.
        latency_s: Sum of the seconds that the calls took when they were made.
    """

    node: str
    provider: str
    model: str
    records: int
    characters: int
    input_tokens: int | None
    output_tokens: int | None
    latency_s: float


@dataclass(frozen=True, kw_only=True)
class Cassette:
    """Hold the recording of one run.

    Attributes:
        manifest: The run's manifest, JSON text.
        answers: Answers that the run used, by key.
        journal: Lines of the run's journal, without their line ends.
    """

    manifest: str
    answers: tuple[CacheRecord, ...]
    journal: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Unpacked:
    """Count what unpacking did: answers added, and those that were there already."""

    added: int
    present: int


# ------------------------------------------------------------------------------------- a cache


def verify_cache(folder: Path) -> CacheReport:
    """Check every record of a cache: key derived anew from the request, reply against its hash.

    Raises:
        DataError: For a folder that is no cache, or a database that cannot be read at all.
    """
    cache = _existing(folder)
    problems = cache.verify()
    records = len(cache)
    cache.close()
    return CacheReport(records=records, problems=problems)


def cache_stats(folder: Path) -> tuple[NodeStats, ...]:
    """Count the answers of a cache by node, provider and model, sorted.

    Raises:
        DataError: For a folder that is no cache, or a damaged record.
    """
    cache = _existing(folder)
    groups: dict[tuple[str, str, str], list[CacheRecord]] = {}
    for record in cache.records():
        groups.setdefault((record.node, record.provider, record.model), []).append(record)
    cache.close()
    return tuple(_stats(name, records) for name, records in sorted(groups.items()))


def _existing(folder: Path) -> ReplyCache:
    if not folder.is_dir():
        raise DataError(f"no reply cache at {folder}: record a run first, or check the path")
    return ReplyCache.open(folder, read_only=True)


def _stats(name: tuple[str, str, str], records: list[CacheRecord]) -> NodeStats:
    return NodeStats(
        node=name[0],
        provider=name[1],
        model=name[2],
        records=len(records),
        characters=sum(len(record_text(record)) for record in records),
        input_tokens=_total(record.reply.usage.input_tokens for record in records),
        output_tokens=_total(record.reply.usage.output_tokens for record in records),
        latency_s=sum(record.latency_s for record in records),
    )


def _total(counts: Iterable[int | None]) -> int | None:
    known = list(counts)
    numbers = [count for count in known if count is not None]
    return sum(numbers) if len(numbers) == len(known) else None


# --------------------------------------------------------------------------------- a cassette


def pack(
    path: Path, *, manifest: str, journal: Iterable[str], keys: Iterable[str], cache: ReplyCache
) -> str:
    """Write the cassette of a run.

    Args:
        path: File to write; it is replaced at once or not at all.
        manifest: The run's manifest, JSON text.
        journal: Lines of its journal.
        keys: Keys of the answers that it used.
        cache: Where they are.

    Returns:
        The content hash: sha256 over the uncompressed lines.

    Raises:
        DataError: For a key without a record, or a damaged one.
        UsageError: For a file that cannot be written.
    """
    answers: list[CacheRecord] = []
    for key in sorted(set(keys)):
        record = cache.get(key)
        if record is None:
            raise DataError(f"{cache.folder} has no answer {key}, which the run used: run it again")
        answers.append(record)
    return write_cassette(
        path, Cassette(manifest=manifest, answers=tuple(answers), journal=tuple(journal))
    )


def write_cassette(path: Path, cassette: Cassette) -> str:
    """Write a cassette and return its content hash.

    Raises:
        UsageError: For a file that cannot be written.
    """
    digest = hashlib.sha256()
    fresh = path.with_name(f"{path.name}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with fresh.open("wb") as file:
            compressor = zstandard.ZstdCompressor(level=COMPRESSION_LEVEL)
            with compressor.stream_writer(file, closefd=False) as out:
                count = 0
                for line in _lines(cassette):
                    data = f"{line}\n".encode()
                    digest.update(data)
                    out.write(data)
                    count += 1
                end = {"kind": "end", "lines": count, "sha256": digest.hexdigest()}
                out.write(f"{canonical_json(end)}\n".encode())
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except OSError as error:
        raise UsageError(f"cassette {path} cannot be written: {error.strerror or error}") from error
    return digest.hexdigest()


def read_cassette(path: Path) -> Cassette:
    """Read a cassette and check it: order, number of lines, content hash, every answer.

    Raises:
        DataError: For a file that is missing, cut, changed or of another format.
    """
    manifest: str | None = None
    answers: list[CacheRecord] = []
    journal: list[str] = []
    for line in _checked_lines(path):
        document = _object(path, line)
        kind = document.get("kind")
        if manifest is None:
            manifest = _manifest_of(path, document)
        elif kind == "answer":
            answers.append(_answer_of(path, document))
        elif kind == "journal" and isinstance(document.get("line"), str):
            journal.append(document["line"])
        else:
            raise DataError(f"cassette {path} has a line of unknown kind {kind!r}")
    if manifest is None:
        raise DataError(f"cassette {path} is empty")
    return Cassette(manifest=manifest, answers=tuple(answers), journal=tuple(journal))


def unpack(cassette: Cassette, cache: ReplyCache) -> Unpacked:
    """Store a cassette's answers in a cache; answers that are there already stay.

    Raises:
        DataError: Where the cache holds another reply under a key: a replay of the run would
            differ, so a new, empty cache is the place for it.
    """
    added = present = 0
    for record in cassette.answers:
        before = cache.get(record.key)
        if before is None:
            cache.add(record)
            added += 1
        elif before.reply == record.reply:
            present += 1
        else:
            raise DataError(
                f"{cache.folder} holds another reply under {record.key} than the cassette: "
                "unpack it into an empty cache"
            )
    return Unpacked(added=added, present=present)


def verify_cassette(path: Path) -> CacheReport:
    """Check a cassette as `read_cassette` does, and each answer's key against its request."""
    cassette = read_cassette(path)
    problems = tuple(
        CacheProblem(key=record.key, problem=problem)
        for record in cassette.answers
        if (problem := request_problem(record)) is not None
    )
    return CacheReport(records=len(cassette.answers), problems=problems)


def _lines(cassette: Cassette) -> Iterator[str]:
    head = {"format": CASSETTE_FORMAT, "kind": "manifest", "manifest": cassette.manifest}
    yield canonical_json(head)
    for record in sorted(cassette.answers, key=lambda one: one.key):
        about, reply, request = record_text(record).split("\n")
        yield canonical_json(
            {
                "about": orjson.loads(about),
                "kind": "answer",
                "reply": orjson.loads(reply),
                "request": orjson.loads(request),
            }
        )
    for line in cassette.journal:
        yield canonical_json({"kind": "journal", "line": line})


def _checked_lines(path: Path) -> Iterator[str]:
    """Yield all lines but the last, which must count and hash them."""
    digest = hashlib.sha256()
    count = 0
    held: str | None = None
    try:
        with path.open("rb") as file:
            reader = zstandard.ZstdDecompressor().stream_reader(file, closefd=False)
            for line in io.TextIOWrapper(reader, encoding="utf-8", newline="\n"):
                if held is not None:
                    digest.update(held.encode())
                    count += 1
                    yield held.rstrip("\n")
                held = line
    except FileNotFoundError as error:
        raise DataError(f"no cassette at {path}: check the path") from error
    except (OSError, zstandard.ZstdError, UnicodeDecodeError) as error:
        raise DataError(f"cassette {path} cannot be read: {error}") from error
    end = _object(path, held or "null")
    if end.get("kind") != "end" or end.get("lines") != count:
        raise DataError(f"cassette {path} is cut short: fetch a whole copy")
    if end.get("sha256") != digest.hexdigest():
        raise DataError(
            f"cassette {path} was changed: its lines hash to {digest.hexdigest()}, "
            f"not to {end.get('sha256')}"
        )


def _object(path: Path, line: str) -> Mapping[str, Any]:
    try:
        document = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise DataError(f"cassette {path} has a line that is no JSON: {error}") from error
    return document if isinstance(document, dict) else {}


def _manifest_of(path: Path, document: Mapping[str, Any]) -> str:
    manifest = document.get("manifest")
    if document.get("format") != CASSETTE_FORMAT or not isinstance(manifest, str):
        raise DataError(
            f"cassette {path} has format {document.get('format')!r}, "
            f"this version reads {CASSETTE_FORMAT}"
        )
    return manifest


def _answer_of(path: Path, document: Mapping[str, Any]) -> CacheRecord:
    parts = [canonical_json(document.get(name)) for name in ("about", "reply", "request")]
    about = document.get("about")
    key = str(about.get("key")) if isinstance(about, dict) else ""
    try:
        return record_of(key, "\n".join(parts))
    except ValueError as error:
        raise DataError(f"cassette {path}: the answer {key} is damaged: {error}") from error
