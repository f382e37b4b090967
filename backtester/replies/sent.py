"""A cache with answers that were sent along: they stand before its own, and win over them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Self

from backtester.replies.answers import CacheRecord, record_text
from backtester.replies.cache import Nearest, ReplyCache
from backtester.replies.database import AnswerStore, ReadableStore


class SentCache(ReplyCache):
    """Serve the answers that came with a task, then those of the cache that it lies over.

    Several of them share one cache, and each knows what was sent to it alone.
    """

    def __init__(
        self, folder: Path, store: ReadableStore, *, writable: AnswerStore | None = None
    ) -> None:
        super().__init__(folder, store, writable=writable)
        self._sent: dict[str, CacheRecord] = {}
        self._texts: dict[str, str] = {}

    @classmethod
    def over(cls, cache: ReplyCache, sent: Iterable[CacheRecord] = ()) -> Self:
        """Lie over a cache.

        Args:
            cache: Where everything else is read and written.
            sent: Answers that win.
        """
        made = cls(cache.folder, cache._store, writable=cache._writable)
        made._sent = {record.key: record for record in sent}
        made._texts = {key: record_text(record) for key, record in made._sent.items()}
        return made

    def add(self, record: CacheRecord) -> CacheRecord:
        """Store an answer if there is none under its key, and return what stands there."""
        return self._sent.get(record.key) or super().add(record)

    def nearest(self, node: str, request: str) -> Nearest | None:
        """Return nothing: nobody reads the difference."""
        return None

    def _text(self, key: str) -> str | None:
        return self._texts.get(key) or super()._text(key)
