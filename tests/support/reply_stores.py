"""A reply store in memory, for tests of the layers above and below the real one."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from tradingagents_core.errors import ReplayMiss
from tradingagents_core.protocols import Mode, ModelCall, Outcome, Reply


class MemoryReplies:
    """Keep answers in a dictionary; its lists may be looked at."""

    def __init__(self, mode: Mode = "record", *, accept_truncated: bool = False) -> None:
        self.mode: Mode = mode
        self.accept_truncated = accept_truncated
        self.answers: dict[str, Reply] = {}
        self.calls: list[ModelCall] = []
        self.outcomes: list[Outcome] = []
        self.retries: list[int] = []
        self.losses: list[bool] = []
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def look_up(self, call: ModelCall) -> Reply | Outcome | None:
        """Return an answer, or None; raise on a miss in replay."""
        self.calls.append(call)
        found = self.answers.get(call.key)
        if found is None and self.mode == "replay":
            raise ReplayMiss(call.key, "nothing recorded")
        return found

    @contextmanager
    def flight(self, key: str) -> Iterator[None]:
        """Let one thread at a time ask for a key."""
        with self._locks[key]:
            yield

    def record(self, call: ModelCall, reply: Reply, *, latency_s: float, retries: int = 0) -> Reply:
        """Store if absent."""
        self.retries.append(retries)
        return self.answers.setdefault(call.key, reply)

    def record_outcome(
        self, call: ModelCall, outcome: Outcome, *, latency_s: float, retries: int = 0
    ) -> None:
        """Keep an outcome."""
        self.retries.append(retries)
        self.outcomes.append(outcome)

    def lost(self, call: ModelCall, *, again: bool) -> None:
        """Count a request whose answer nobody could read."""
        self.losses.append(again)
