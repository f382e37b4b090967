"""The model-call cache: one cell's window on the recorded answers.

`CellReplies` is what the pipeline sees as its `ReplyStore`. It serves answers from the cache and,
in a replay, outcomes from the run's journal; it keeps a row of each call for the journal. The
store of answers behind it is `ReplyCache`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import get_args

from backtester.answers import CacheRecord, reply_hash
from backtester.errors import DataError
from backtester.records import CallRecord, OutcomeRecord
from backtester.reply_cache import ReplyCache
from tradingagents_core.errors import ReplayMiss
from tradingagents_core.llm.factory import PROVIDERS
from tradingagents_core.llm.keys import canonical_json, sha256_hex
from tradingagents_core.protocols import (
    Mode,
    ModelCall,
    Outcome,
    OutcomeKind,
    Reply,
    Usage,
)

__all__ = [
    "CacheRecord",
    "CellReplies",
    "Price",
    "ReplyCache",
    "outcome_hash",
    "reply_hash",
]

_KINDS: Mapping[str, OutcomeKind] = {kind: kind for kind in get_args(OutcomeKind)}


@dataclass(frozen=True, kw_only=True)
class Price:
    """Price of a model in US dollars per million tokens."""

    input_per_million: float
    output_per_million: float


@dataclass(frozen=True, kw_only=True)
class _Place:
    """Where in a cell an outcome was recorded, and for which request."""

    node: str
    index: int
    attempt: int
    key: str


def outcome_hash(kind: str, text: str) -> str:
    """Return the sha256 that stands for an outcome in the results root."""
    return sha256_hex(canonical_json([kind, text]))


class CellReplies:
    """Serve and record the model replies of one cell, or of one lesson.

    Make a new one for each try of a cell, so that `calls` and `new_outcomes` are those of the try
    that counts. It may be used by several threads.

    Args:
        cache: Answers of all runs, or None with mode ``off``.
        mode: ``replay`` serves or raises and never calls; ``record`` and ``refresh`` (whose
            generation is in the site) call on a miss and store; ``off`` always calls.
        accept_truncated: Whether free text cut by length counts as an answer.
        cell_label: ``ticker|session|trial``, for messages.
        outcomes: Outcomes that the run's journal has of this cell; only a replay serves them.
        prices: Prices by ``provider:model``; what is not in it has no known price.
        clock: Instant that is written beside a new record.
    """

    def __init__(
        self,
        cache: ReplyCache | None,
        *,
        mode: Mode,
        accept_truncated: bool = False,
        cell_label: str,
        outcomes: Sequence[OutcomeRecord] = (),
        prices: Mapping[str, Price] | None = None,
        clock: Callable[[], datetime] | None = None,
    ) -> None:
        if cache is None and mode != "off":
            raise ValueError(f"mode {mode!r} needs a cache")
        self._cache = cache
        self._mode: Mode = mode
        self._accept_truncated = accept_truncated
        self._cell_label = cell_label
        self._outcomes = {
            _Place(node=o.node, index=o.index, attempt=o.attempt, key=o.key): o for o in outcomes
        }
        self._prices = prices or {}
        self._clock = clock or _utc_now
        self._lock = threading.Lock()
        self._calls: list[CallRecord] = []
        self._new_outcomes: list[OutcomeRecord] = []
        self._miss_found: ReplayMiss | None = None

    # ------------------------------------------------------------------ what the model asks

    @property
    def mode(self) -> Mode:
        """How misses are treated."""
        return self._mode

    @property
    def accept_truncated(self) -> bool:
        """Whether free text cut by length counts as an answer."""
        return self._accept_truncated

    def look_up(self, call: ModelCall) -> Reply | Outcome | None:
        """Return what is recorded for a call; None means that it is to be made.

        Raises:
            ReplayMiss: In a replay, where nothing is recorded.
            DataError: For a damaged record.
        """
        if self._cache is None or self._mode == "off":
            return None
        if self._outcomes and self._mode == "replay":
            outcome = self._outcomes.get(_place(call))
            if outcome is not None:
                return self._served_outcome(call, outcome)
        record = self._cache.get(call.key)
        if record is None:
            if self._mode == "replay":
                raise self._missed(call, self._cache)
            return None
        if record.request != call.request:
            raise DataError(
                f"the recorded answer {call.key} belongs to another request: the cache in "
                f"{self._cache.folder} is damaged; run `backtester cassette verify` on it"
            )
        saved = self._cost(call, record.reply.usage)
        self._note(call, record.reply, hit=True, cost=0.0, saved=saved, latency_s=0.0)
        return record.reply

    def flight(self, key: str) -> AbstractContextManager[None]:
        """Hold the one flight of a key on this machine."""
        if self._cache is None or self._mode == "off":
            return nullcontext()
        return self._cache.flight(key)

    def record(self, call: ModelCall, reply: Reply, *, latency_s: float) -> Reply:
        """Store an answer if there is none, and return what is stored."""
        stored = reply
        if self._cache is not None and self._mode in ("record", "refresh"):
            stored = self._cache.add(
                CacheRecord(
                    key=call.key,
                    request=call.request,
                    reply=reply,
                    node=call.site.node,
                    provider=call.provider,
                    model=call.model,
                    latency_s=latency_s,
                    recorded_at=self._clock().isoformat(),
                )
            ).reply
        cost = self._cost(call, reply.usage)
        self._note(call, stored, hit=False, cost=cost, saved=0.0, latency_s=latency_s)
        return stored

    def record_outcome(self, call: ModelCall, outcome: Outcome, *, latency_s: float) -> None:
        """Keep an outcome for the run's journal."""
        reply = outcome.reply or Reply(text="", finish_reason="")
        row = OutcomeRecord(
            node=call.site.node,
            index=call.site.index,
            attempt=call.site.attempt,
            key=call.key,
            kind=outcome.kind,
            message=outcome.message,
            text=reply.text,
            finish_reason=reply.finish_reason,
            request=call.request,
        )
        # An attempt that got no reply at all was not billed as far as anybody can tell.
        cost = self._cost(call, reply.usage) if outcome.reply is not None else None
        self._note_outcome(call, row, reply.usage, hit=False, cost=cost, latency_s=latency_s)
        with self._lock:
            self._new_outcomes.append(row)

    # ---------------------------------------------------------------- what the journal takes

    @property
    def calls(self) -> tuple[CallRecord, ...]:
        """Calls so far, by (first use of the node, index, attempt)."""
        with self._lock:
            calls = list(self._calls)
        order = {node: place for place, node in enumerate(dict.fromkeys(c.node for c in calls))}
        return tuple(sorted(calls, key=lambda c: (order[c.node], c.index, c.attempt)))

    @property
    def new_outcomes(self) -> tuple[OutcomeRecord, ...]:
        """Outcomes of calls that were made, in the same order as `calls`."""
        with self._lock:
            rows = list(self._new_outcomes)
        order = {node: place for place, node in enumerate(dict.fromkeys(r.node for r in rows))}
        return tuple(sorted(rows, key=lambda r: (order[r.node], r.index, r.attempt)))

    @property
    def miss(self) -> ReplayMiss | None:
        """The first call that a replay had no recording for; its ``diff`` says what differs."""
        with self._lock:
            return self._miss_found

    # -------------------------------------------------------------------------------- parts

    def _served_outcome(self, call: ModelCall, row: OutcomeRecord) -> Outcome:
        kind = _KINDS.get(row.kind)
        if kind is None:
            raise DataError(
                f"the journal has an outcome of unknown kind {row.kind!r} for {self._cell_label}: "
                "replay the run with the version that wrote it"
            )
        self._note_outcome(call, row, Usage(), hit=True, cost=0.0, latency_s=0.0)
        return Outcome(
            kind=kind,
            message=row.message,
            reply=Reply(text=row.text, finish_reason=row.finish_reason),
        )

    def _note_outcome(
        self,
        call: ModelCall,
        row: OutcomeRecord,
        usage: Usage,
        *,
        hit: bool,
        cost: float | None,
        latency_s: float,
    ) -> None:
        self._append(
            call,
            reply_hash=outcome_hash(row.kind, row.text),
            finish_reason=f"outcome:{row.kind}",
            usage=usage,
            hit=hit,
            cost=cost,
            saved=None if hit else 0.0,
            latency_s=latency_s,
        )

    def _note(
        self,
        call: ModelCall,
        reply: Reply,
        *,
        hit: bool,
        cost: float | None,
        saved: float | None,
        latency_s: float,
    ) -> None:
        self._append(
            call,
            reply_hash=reply_hash(reply),
            finish_reason=reply.finish_reason,
            usage=reply.usage,
            hit=hit,
            cost=cost,
            saved=saved,
            latency_s=latency_s,
        )

    def _append(
        self,
        call: ModelCall,
        *,
        reply_hash: str,
        finish_reason: str,
        usage: Usage,
        hit: bool,
        cost: float | None,
        saved: float | None,
        latency_s: float,
    ) -> None:
        row = CallRecord(
            node=call.site.node,
            index=call.site.index,
            attempt=call.site.attempt,
            key=call.key,
            reply_hash=reply_hash,
            finish_reason=finish_reason,
            hit=hit,
            provider=call.provider,
            model=call.model,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cost_usd=cost,
            saved_usd=saved,
            latency_s=latency_s,
        )
        with self._lock:
            self._calls.append(row)

    def _cost(self, call: ModelCall, usage: Usage) -> float | None:
        provider = PROVIDERS.get(call.provider)
        if provider is not None and provider.free:
            return 0.0
        price = self._prices.get(f"{call.provider}:{call.model}")
        if price is None or usage.input_tokens is None or usage.output_tokens is None:
            return None
        paid_in = usage.input_tokens * price.input_per_million
        paid_out = usage.output_tokens * price.output_per_million
        return (paid_in + paid_out) / 1_000_000

    def _missed(self, call: ModelCall, cache: ReplyCache) -> ReplayMiss:
        miss = self._miss_of(call, cache)
        with self._lock:
            self._miss_found = self._miss_found or miss
        return miss

    def _miss_of(self, call: ModelCall, cache: ReplyCache) -> ReplayMiss:
        site = call.site
        nearest = cache.nearest(site.node, call.request)
        hint = (
            "no request of this node is recorded"
            if nearest is None
            else f"the nearest recorded request of this node is {nearest.record.key}"
        )
        said = (
            f"no recording for node {site.node!r} of {_cell_words(self._cell_label)}, call "
            f"{site.index}, attempt {site.attempt} (key {call.key}); {hint}; no call was made: "
            "record the run again, or unpack its cassette"
        )
        return ReplayMiss(
            call.key,
            " ".join(said.split()),
            "" if nearest is None else nearest.diff,
        )


def _place(call: ModelCall) -> _Place:
    site = call.site
    return _Place(node=site.node, index=site.index, attempt=site.attempt, key=call.key)


def _cell_words(label: str) -> str:
    """Turn ``ticker|session|trial`` into words; another label stays as it is."""
    parts = label.split("|")
    if len(parts) != 3:
        return label
    return f"ticker {parts[0]}, session {parts[1]}, trial {parts[2]}"


def _utc_now() -> datetime:
    # Written beside a record for people; keys, prompts, results and roots never see it.
    return datetime.now(tz=UTC)  # noqa: TID251
