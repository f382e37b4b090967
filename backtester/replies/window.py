"""The model-call cache: one cell's window on the recorded answers.

`CellReplies` is what the pipeline sees as its `ReplyStore`. It serves answers from the cache and,
in a replay, outcomes from the run's journal; it keeps a row of each call for the journal. The
store of answers behind it is `ReplyCache`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from typing import get_args

from backtester.errors import DataError
from backtester.records import CallRecord, OutcomeRecord
from backtester.replies.answers import CacheRecord, reply_hash
from backtester.replies.cache import ReplyCache
from backtester.spending.purse import CELL_BUDGET, CellCapReached, CellCaps, Paid, Purse, wall_clock
from backtester.spending.tariff import Price, counted_usage, is_paid
from tradingagents_core.errors import ReplayMiss
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
class _Flight:
    """Name the call that a thread is about to make."""

    thread: int
    key: str


@dataclass(frozen=True, kw_only=True)
class _Noted:
    """Hold what is kept of a call.

    Attributes:
        reply_hash: Stands for the reply in the results root.
        finish_reason: As answered; ``outcome:<kind>`` for an outcome.
        usage: As reported; None for an outcome that is served again.
        characters: Of the reply.
        hit: Whether it was served.
        latency_s: Wall seconds.
        retries: Of the transport.
    """

    reply_hash: str
    finish_reason: str
    usage: Usage | None
    characters: int
    hit: bool
    latency_s: float = 0.0
    retries: int = 0

    @classmethod
    def answer(
        cls,
        reply: Reply,
        *,
        usage: Usage | None = None,
        hit: bool = False,
        latency_s: float = 0.0,
        retries: int = 0,
    ) -> _Noted:
        """Note an answer, with the usage of the reply that was paid for where that is another."""
        return cls(
            reply_hash=reply_hash(reply),
            finish_reason=reply.finish_reason,
            usage=usage or reply.usage,
            characters=characters_of(reply),
            hit=hit,
            latency_s=latency_s,
            retries=retries,
        )

    @classmethod
    def outcome(
        cls,
        row: OutcomeRecord,
        *,
        usage: Usage | None = None,
        hit: bool = False,
        latency_s: float = 0.0,
        retries: int = 0,
    ) -> _Noted:
        """Note an outcome."""
        return cls(
            reply_hash=outcome_hash(row.kind, row.text),
            finish_reason=f"outcome:{row.kind}",
            usage=usage,
            characters=len(row.text),
            hit=hit,
            latency_s=latency_s,
            retries=retries,
        )


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


def characters_of(reply: Reply) -> int:
    """Return the length of what a model wrote, for estimates."""
    calls = sum(len(call.name) + len(call.args) for call in reply.tool_calls)
    return len(reply.text) + len(reply.reasoning or "") + calls


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
        purse: What the run may spend, and its prices; by default no cap, ledger or price.
        caps: What one try of the cell may use; by default anything.
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
        purse: Purse | None = None,
        caps: CellCaps | None = None,
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
        self._purse = purse or Purse()
        self._caps = caps or CellCaps()
        self._began = self._purse.clock()
        self._tokens = 0
        self._cost_usd = 0.0
        self._flying: set[_Flight] = set()
        self._clock = clock or wall_clock
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

        Whoever holds the flight of the key and is told None makes the call, so that is where the
        budget is asked.

        Raises:
            ReplayMiss: In a replay, where nothing is recorded.
            CellCapReached: The cell may use no more, or could use no more when it was recorded.
            RunCapReached: The run may spend no more.
            DataError: For a damaged record.
        """
        found = self._recorded(call)
        if found is None:
            flight = _Flight(thread=threading.get_ident(), key=call.key)
            if flight in self._flying:
                self._ask_budget(flight, call)
        return found

    def _recorded(self, call: ModelCall) -> Reply | Outcome | None:
        if self._cache is None or self._mode == "off":
            return None
        if self._outcomes and self._mode == "replay":
            outcome = self._outcomes.get(_place(call))
            if outcome is not None:
                return self._served_outcome(call, outcome)
        if self._mode != "replay":
            # What the cache happens to hold must not decide where a cell ends.
            self._ask_cell_cap(call, timed=False)
        reply = self._cache.reply(call.key, call.request)
        if reply is None:
            if self._mode == "replay":
                raise self._missed(call, self._cache)
            return None
        self._note(call, _Noted.answer(reply, hit=True))
        return reply

    @contextmanager
    def flight(self, key: str) -> Iterator[None]:
        """Hold the one flight of a key on this machine."""
        alone: AbstractContextManager[None] = nullcontext()
        if self._cache is not None and self._mode != "off":
            alone = self._cache.flight(key)
        flight = _Flight(thread=threading.get_ident(), key=key)
        with alone:
            self._flying.add(flight)
            try:
                yield
            finally:
                self._flying.discard(flight)
                self._purse.release(flight)

    def record(self, call: ModelCall, reply: Reply, *, latency_s: float, retries: int = 0) -> Reply:
        """Store an answer if there is none, and return what is stored."""
        self._pay(call, reply, finish_reason=reply.finish_reason)
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
        noted = _Noted.answer(stored, usage=reply.usage, latency_s=latency_s, retries=retries)
        self._note(call, noted)
        return stored

    def record_outcome(
        self, call: ModelCall, outcome: Outcome, *, latency_s: float, retries: int = 0
    ) -> None:
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
        # What was lost on the way is in the ledger already; a refusal is not billed.
        billed = outcome.reply is not None
        if billed:
            self._pay(call, reply, finish_reason=f"outcome:{outcome.kind}")
        noted = _Noted.outcome(row, usage=reply.usage, latency_s=latency_s, retries=retries)
        self._note(call, noted, billed=billed)
        with self._lock:
            self._new_outcomes.append(row)

    def lost(self, call: ModelCall, *, again: bool) -> None:
        """Write down a request that may be billed though nobody could read its answer.

        Raises:
            RunCapReached: It was to be sent once more, and the run may spend no more.
        """
        if not is_paid(call.provider):
            return
        flight = _Flight(thread=threading.get_ident(), key=call.key)
        usage = self._purse.lose(flight, call)
        if self._caps.any:
            self._count(call, usage, characters=0)
        if again:
            self._purse.reserve(flight, call)

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
        if row.kind == CELL_BUDGET:
            # The call was never made: the cell ends here again, and in the same way.
            raise CellCapReached(row.message)
        kind = _KINDS.get(row.kind)
        if kind is None:
            raise DataError(
                f"the journal has an outcome of unknown kind {row.kind!r} for {self._cell_label}: "
                "replay the run with the version that wrote it"
            )
        self._note(call, _Noted.outcome(row, hit=True))
        return Outcome(
            kind=kind,
            message=row.message,
            reply=Reply(text=row.text, finish_reason=row.finish_reason),
        )

    def _note(self, call: ModelCall, noted: _Noted, *, billed: bool = True) -> None:
        """Keep the row of a call, and count what it used where the cell has a cap."""
        served_again = noted.usage is None
        usage = noted.usage or Usage()
        price = self._purse.tariff.cost(call.provider, call.model, usage) if billed else None
        row = CallRecord(
            node=call.site.node,
            index=call.site.index,
            attempt=call.site.attempt,
            key=call.key,
            reply_hash=noted.reply_hash,
            finish_reason=noted.finish_reason,
            hit=noted.hit,
            provider=call.provider,
            model=call.model,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cached_tokens=usage.cached_tokens,
            cost_usd=0.0 if noted.hit else price,
            # What an outcome cost is not in the journal, so nobody knows what serving it saves.
            saved_usd=None if served_again else price if noted.hit else 0.0,
            latency_s=noted.latency_s,
            retries=noted.retries,
        )
        with self._lock:
            self._calls.append(row)
        if billed and self._caps.any:
            self._count(call, usage, characters=noted.characters)

    def _count(self, call: ModelCall, usage: Usage, *, characters: int) -> None:
        usage = counted_usage(usage, request=len(call.request), reply=characters)
        cost = self._purse.tariff.counted(call.provider, call.model, usage)
        with self._lock:
            self._tokens += (usage.input_tokens or 0) + (usage.output_tokens or 0)
            self._cost_usd += cost

    # ------------------------------------------------------------------------------ the budget

    def _ask_budget(self, flight: _Flight, call: ModelCall) -> None:
        self._ask_cell_cap(call, timed=True)
        if is_paid(call.provider):
            self._purse.reserve(flight, call)

    def _ask_cell_cap(self, call: ModelCall, *, timed: bool) -> None:
        over = self._over_cell_cap(timed=timed)
        if over is None:
            return
        row = OutcomeRecord(
            node=call.site.node,
            index=call.site.index,
            attempt=call.site.attempt,
            key=call.key,
            kind=CELL_BUDGET,
            message=over,
            text=self._caps.words(),
            finish_reason="",
            request=call.request,
        )
        with self._lock:
            self._new_outcomes.append(row)
        raise CellCapReached(over)

    def _over_cell_cap(self, *, timed: bool) -> str | None:
        caps = self._caps
        if caps.tokens is not None and self._tokens >= caps.tokens:
            return f"cell_max_tokens = {caps.tokens} is reached: {self._tokens} tokens used"
        if caps.cost_usd is not None and self._cost_usd >= caps.cost_usd:
            return f"cell_max_cost_usd = {caps.cost_usd:g} is reached: {self._cost_usd:.4f} USD"
        # A reply from the cache takes no time, so the clock is asked before live calls alone.
        if timed and caps.minutes is not None:
            minutes = (self._purse.clock() - self._began) / 60
            if minutes >= caps.minutes:
                return f"cell_max_minutes = {caps.minutes:g} is reached"
        return None

    def _pay(self, call: ModelCall, reply: Reply, *, finish_reason: str) -> None:
        """Write a paid call down before anybody uses its reply."""
        if not is_paid(call.provider):
            return
        paid = Paid(
            finish_reason=finish_reason,
            usage=reply.usage,
            characters=characters_of(reply),
            cost_usd=self._purse.tariff.cost(call.provider, call.model, reply.usage),
        )
        self._purse.pay(_Flight(thread=threading.get_ident(), key=call.key), call, paid)

    # -------------------------------------------------------------------------------- misses

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
