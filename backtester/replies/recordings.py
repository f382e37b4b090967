"""Recorded answers as a whole, in a cache or in a cassette: check them, count them, copy them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from backtester.errors import DataError
from backtester.replies.answers import CacheRecord, record_text
from backtester.replies.cache import CacheProblem, ReplyCache
from backtester.replies.cassette import items, names_cassette


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
        oldest: When the first of them was recorded, UTC ISO text.
        newest: When the last of them was.
    """

    node: str
    provider: str
    model: str
    records: int
    characters: int
    input_tokens: int | None
    output_tokens: int | None
    latency_s: float
    oldest: str
    newest: str


@dataclass(frozen=True, kw_only=True)
class Unpacked:
    """Count what unpacking did: answers added, and those that were there already."""

    added: int
    present: int


def open_recordings(folder: Path) -> ReplyCache:
    """Open a cache that is there, to read it.

    Raises:
        DataError: For a folder that is no cache, or a database that cannot be read at all.
    """
    if not folder.is_dir():
        raise DataError(f"no reply cache at {folder}: record a run first, or check the path")
    return ReplyCache.open(folder, read_only=True)


def answers_of(path: Path) -> Iterator[CacheRecord]:
    """Yield the answers of a cassette, or of the cache in a folder, by key.

    Raises:
        DataError: It is missing or damaged.
    """
    if path.is_file() or names_cassette(str(path)):
        yield from (item for item in items(path) if isinstance(item, CacheRecord))
        return
    cache = open_recordings(path)
    try:
        yield from cache.records()
    finally:
        cache.close()


def verify_cache(folder: Path) -> CacheReport:
    """Check every record of a cache: key derived anew from the request, reply against its hash.

    Raises:
        DataError: For a folder that is no cache, or a database that cannot be read at all.
    """
    cache = open_recordings(folder)
    problems = cache.verify()
    records = len(cache)
    cache.close()
    return CacheReport(records=records, problems=problems)


@dataclass
class _Tally:
    records: int = 0
    characters: int = 0
    input_tokens: int | None = 0
    output_tokens: int | None = 0
    latency_s: float = 0.0
    oldest: str = ""
    newest: str = ""

    def add(self, record: CacheRecord) -> None:
        usage = record.reply.usage
        self.records += 1
        self.characters += len(record_text(record))
        self.input_tokens = _sum(self.input_tokens, usage.input_tokens)
        self.output_tokens = _sum(self.output_tokens, usage.output_tokens)
        self.latency_s += record.latency_s
        self.oldest = min(self.oldest or record.recorded_at, record.recorded_at)
        self.newest = max(self.newest, record.recorded_at)


def _sum(total: int | None, count: int | None) -> int | None:
    return None if total is None or count is None else total + count


def stats(records: Iterable[CacheRecord]) -> tuple[NodeStats, ...]:
    """Count answers by node, provider and model, sorted; they are taken one at a time."""
    groups: dict[tuple[str, str, str], _Tally] = {}
    for record in records:
        name = (record.node, record.provider, record.model)
        groups.setdefault(name, _Tally()).add(record)
    return tuple(
        NodeStats(node=name[0], provider=name[1], model=name[2], **vars(tally))
        for name, tally in sorted(groups.items())
    )


def unpack(path: Path, cache: ReplyCache) -> Unpacked:
    """Store a cassette's answers in a cache; answers that are there already stay.

    The cassette is read twice: nothing is stored before all of it was found whole.

    Raises:
        DataError: The cassette is damaged, an answer's request does not lead to its key, or the
            cache holds another reply under a key: a replay of the run would differ, so a new,
            empty cache is the place for it.
    """
    for record in answers_of(path):
        before = cache.get(record.key)
        if before is not None and before.reply != record.reply:
            raise DataError(
                f"{cache.folder} holds another reply under {record.key} than the cassette: "
                "unpack it into an empty cache"
            )
    added = present = 0
    for record in answers_of(path):
        if cache.get(record.key) is None:
            cache.add(record)
            added += 1
        else:
            present += 1
    return Unpacked(added=added, present=present)
