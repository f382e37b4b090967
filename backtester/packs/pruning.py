"""Delete recorded replies that nothing refers to any more, and nothing else.

What is used is what any journal or spend ledger under the reports folder names: of runs, their
superseded tries included, of the memories of single decisions, and of analyses that were stopped. A
stopped run and a stopped analysis will ask again for what they have asked already, of which their
journal may not tell yet. It may also be older than they are: a deleted run recorded it, and it was
served. So as long as a run is unfinished, all replies of its models stay, and what was recorded
since it began; of a stopped analysis, what was recorded since.

What other reports folders refer to is not seen here, nor what a run that is yet to come could use.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from backtester.errors import DataError, UsageError
from backtester.replies.answers import CacheRecord, record_text
from backtester.replies.cache import ReplyCache
from backtester.replies.recordings import open_recordings

_KEY: Final = re.compile(rb"[0-9a-f]{64}")
# Journals of runs and memories, trails of analyses, ledgers: whatever is written line by line.
_JOURNALS: Final = "*.jsonl"
_BEGUN: Final = "analyses/*/checkpoint.sqlite"


@dataclass(frozen=True, kw_only=True)
class UnusedReply:
    """Name a recorded reply that no journal names.

    Attributes:
        key: Its key.
        node: Node that asked.
        model: Model asked for.
        recorded_at: UTC instant, ISO text.
        characters: Characters of the record.
    """

    key: str
    node: str
    model: str
    recorded_at: str
    characters: int


@dataclass(frozen=True, kw_only=True)
class Pruned:
    """Say what is unused, and what was kept.

    Attributes:
        unused: Replies that nothing refers to, by key.
        records: Replies that the cache held.
        kept: Of those, replies that a journal or spend ledger names.
        recent: Replies that none names, kept for unfinished work.
        journals: Journals and ledgers that were looked through.
        deleted: Whether the unused ones are gone now.
    """

    unused: tuple[UnusedReply, ...]
    records: int
    kept: int
    recent: int
    journals: int
    deleted: bool


def prune(folder: Path, reports_dir: Path, *, delete: bool) -> Pruned:
    """Find the replies of a cache that nothing under the reports folder refers to.

    Args:
        folder: The cache.
        reports_dir: Runs, memories and analyses.
        delete: Delete them; else only say which.

    Raises:
        DataError: No cache there, or a record that cannot be read, or no reports folder.
        UsageError: A run is at work on the cache while something is to be deleted.
    """
    if not reports_dir.is_dir():
        raise DataError(
            f"{reports_dir} is no folder, so every reply would seem unused: name the folder of "
            "the runs with --reports-dir"
        )
    if not delete:
        cache = open_recordings(folder)
        try:
            return _looked_through(cache, reports_dir)
        finally:
            cache.close()
    open_recordings(folder).close()
    cache = ReplyCache.open(folder)
    try:
        if cache.membership is not None:
            # From here on nobody writes, and whoever opens the cache waits: what is found unused
            # stays unused.
            cache.membership.alone()
        found = _looked_through(cache, reports_dir)
        for row in found.unused:
            cache.discard(row.key)
    finally:
        cache.close()
    return Pruned(**{**vars(found), "deleted": True})


def _looked_through(cache: ReplyCache, reports_dir: Path) -> Pruned:
    # What lies in the folder itself, such as the ledger of scores, names no reply.
    journals = sorted(path for path in reports_dir.glob(f"*/**/{_JOURNALS}") if path.is_file())
    named = {key for path in journals for key in _keys_in(path)}
    unfinished = _unfinished(reports_dir)
    unused: list[UnusedReply] = []
    records = recent = 0
    for record in cache.records():
        records += 1
        if record.key in named:
            continue
        if unfinished.may_ask(record):
            recent += 1
            continue
        unused.append(
            UnusedReply(
                key=record.key,
                node=record.node,
                model=record.model,
                recorded_at=record.recorded_at,
                characters=len(record_text(record)),
            )
        )
    return Pruned(
        unused=tuple(unused),
        records=records,
        kept=records - recent - len(unused),
        recent=recent,
        journals=len(journals),
        deleted=False,
    )


def _keys_in(path: Path) -> Iterator[str]:
    """Yield all that looks like a key, in a damaged journal too: it protects what it names."""
    with path.open("rb") as file:
        for line in file:
            yield from (key.decode() for key in _KEY.findall(line))


@dataclass(frozen=True, kw_only=True)
class _Unfinished:
    """Hold what work that has not ended may ask again.

    Attributes:
        since: When the first of it began, or None where all has ended.
        models: Provider and model of each tier of the runs among it.
    """

    since: datetime | None
    models: frozenset[tuple[str, str]]

    def may_ask(self, record: CacheRecord) -> bool:
        """Say whether a reply may be asked for again."""
        if (record.provider, record.model) in self.models:
            return True
        return self.since is not None and _instant(record) >= self.since


def _unfinished(reports_dir: Path) -> _Unfinished:
    begun = [
        datetime.fromtimestamp(path.stat().st_ctime, tz=UTC)
        for path in sorted(reports_dir.glob(_BEGUN))
    ]
    models: set[tuple[str, str]] = set()
    for path in sorted(reports_dir.glob("*/manifest.json")):
        try:
            manifest = json.loads(path.read_bytes())
            if manifest["status"] == "finished":
                continue
            begun.append(datetime.fromisoformat(manifest["created_at"]))
            models |= {(row["provider"], row["model"]) for row in manifest["models"].values()}
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise UsageError(
                f"{path} does not read, so what its run will ask again is not known: mend it or "
                "delete its folder; nothing was deleted"
            ) from error
    return _Unfinished(since=min(begun, default=None), models=frozenset(models))


def _instant(record: CacheRecord) -> datetime:
    try:
        at = datetime.fromisoformat(record.recorded_at)
    except ValueError:
        # Who knows: it stays as long as any work is unfinished.
        return datetime.max.replace(tzinfo=UTC)
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)
