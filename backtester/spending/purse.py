"""What a run may still spend: its caps, what it spent, and the calls that are under way.

Every live call asks first. A cap on calls is never exceeded. A cap on cost lets a call begin while
what was spent, and what the calls under way are expected to cost, are together below the cap; so
any number of workers can exceed it by no more than the calls under way turn out dearer than
expected, and one worker by part of one call. Whoever might exceed a cap waits for the calls under
way, so a run never stops for what it only expected to spend. A call is expected to cost its
characters / 4 as input, and as output the most that its node was answered with so far; before
that ``max_tokens``, or `FIRST_OUTPUT` tokens. A request that went out and whose answer nobody
could read may be billed: it is a paid call of unknown cost, caps count what it was expected to
cost, and sending it once more is another call that asks first.

Caps on cost and calls count what all commands of the run paid, by the spend ledger; the cap on
minutes counts those of one command. What comes from the cache asks nothing and costs nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from backtester.config import RunConfig
from backtester.records import SpendRecord
from backtester.spending.ledger import SpendLedger, read_spend
from backtester.spending.tariff import Tariff, counted_usage, tokens_of
from tradingagents_core.errors import PipelineError
from tradingagents_core.protocols import ModelCall, Usage

FIRST_OUTPUT: Final = 1_000
CELL_BUDGET: Final = "cell_budget"
RUN_BUDGET: Final = "run_budget"
LOST: Final = "lost"
"""Finish reason, in the spend ledger, of a request whose answer nobody could read."""
_MINUTE: Final = 60.0


class RunCapReached(PipelineError):
    """Report a call that a cap of the run forbids; its cell is left for the resume."""

    error_class = RUN_BUDGET


class CellCapReached(PipelineError):
    """Report a call that a cap of the cell forbids; the cell fails alone."""

    error_class = CELL_BUDGET


@dataclass(frozen=True, kw_only=True)
class RunCaps:
    """Limit a run; None is no limit.

    Attributes:
        cost_usd: US dollars of paid calls.
        calls: Paid calls.
        minutes: Wall minutes of one command.
    """

    cost_usd: float | None = None
    calls: int | None = None
    minutes: float | None = None

    @classmethod
    def of(cls, config: RunConfig) -> RunCaps:
        """Return the caps of a configuration."""
        return cls(cost_usd=config.max_cost_usd, calls=config.max_calls, minutes=config.max_minutes)


@dataclass(frozen=True, kw_only=True)
class CellCaps:
    """Limit one try of a cell; None is no limit.

    Attributes:
        tokens: Tokens in and out of all its replies, those from the cache included.
        cost_usd: What all its replies cost whenever they were paid for, likewise.
        minutes: Wall minutes since the try began.
    """

    tokens: int | None = None
    cost_usd: float | None = None
    minutes: float | None = None

    @classmethod
    def of(cls, config: RunConfig) -> CellCaps:
        """Return the caps of a configuration."""
        return cls(
            tokens=config.cell_max_tokens,
            cost_usd=config.cell_max_cost_usd,
            minutes=config.cell_max_minutes,
        )

    @property
    def any(self) -> bool:
        """Whether there is a limit at all."""
        return (self.tokens, self.cost_usd, self.minutes) != (None, None, None)

    def words(self) -> str:
        """Return the caps as text: what a recorded cell failed under, to compare with others."""
        return f"tokens={self.tokens} cost_usd={self.cost_usd} minutes={self.minutes}"


@dataclass(frozen=True, kw_only=True)
class Paid:
    """Describe a reply that was just paid for.

    Attributes:
        finish_reason: As answered; ``outcome:<kind>`` for an outcome.
        usage: As reported.
        characters: Of the reply, for estimates.
        cost_usd: None where price or tokens are unknown.
    """

    finish_reason: str
    usage: Usage
    characters: int
    cost_usd: float | None


def wall_clock() -> datetime:
    """Return the instant that is written beside a paid call and a stored reply."""
    # For people and for `cost_by_day`; keys, prompts, results and roots never see it.
    return datetime.now(tz=UTC)  # noqa: TID251


@dataclass
class Spent:
    """Count what was paid so far.

    Attributes:
        calls: Paid calls.
        cost_usd: What caps count of them.
        unpriced: Those among them whose cost is unknown.
        longest: Most tokens that a node was answered with.
    """

    calls: int = 0
    cost_usd: float = 0.0
    unpriced: int = 0
    longest: dict[str, int] = field(default_factory=dict)

    def add(self, record: SpendRecord) -> None:
        """Count one more paid call."""
        self.calls += 1
        self.cost_usd += record.counted_usd
        self.unpriced += record.cost_usd is None
        output = record.output_tokens or 0
        self.longest[record.node] = max(self.longest.get(record.node, 0), output)

    def __str__(self) -> str:
        """Return calls and dollars in words."""
        if self.calls and self.unpriced == self.calls:
            return f"{self.calls} paid calls, cost unknown"
        unknown = f" and {self.unpriced} calls of unknown cost" if self.unpriced else ""
        return f"{self.calls} paid calls, {self.cost_usd:.4f} USD{unknown}"


class Purse:
    """Hand out permissions to call and write down what was paid; shared by all workers' threads.

    Args:
        run_id: Who pays.
        caps: Limits of the run.
        tariff: Known prices.
        max_tokens: Limit of one reply, where there is one.
        ledger: Where paid calls are written down, or None for nowhere.
        before: Paid calls of earlier commands.
        clock: Monotonic seconds.
        now: Wall time, for the ledger.
    """

    def __init__(
        self,
        *,
        run_id: str = "",
        caps: RunCaps | None = None,
        tariff: Tariff | None = None,
        max_tokens: int | None = None,
        ledger: SpendLedger | None = None,
        before: Sequence[SpendRecord] = (),
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = wall_clock,
    ) -> None:
        self.caps = caps or RunCaps()
        self.tariff = tariff or Tariff()
        self.clock = clock
        self.spent = Spent()
        self.reached: str | None = None
        self._run_id = run_id
        self._max_tokens = max_tokens
        self._ledger = ledger
        self._now = now
        self._started = clock()
        self._changed = threading.Condition()
        self._under_way: dict[object, float] = {}
        for record in before:
            self.spent.add(record)

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        run_id: str,
        config: RunConfig,
        tariff: Tariff,
        clock: Callable[[], float] = time.monotonic,
        go_on: bool = True,
    ) -> Purse:
        """Open the purse of a run.

        Args:
            path: Its spend ledger.
            run_id: Who pays.
            config: Has the caps.
            tariff: Known prices.
            clock: Monotonic seconds.
            go_on: Whether caps count what earlier commands paid, too.

        Raises:
            DataError: The ledger is damaged.
        """
        return cls(
            run_id=run_id,
            caps=RunCaps.of(config),
            tariff=tariff,
            max_tokens=config.max_tokens,
            ledger=SpendLedger(path),
            before=read_spend(path) if go_on else (),
            clock=clock,
        )

    def reserve(self, flight: object, call: ModelCall) -> None:
        """Take the permission for one call; wait where only the calls under way stand against it.

        Args:
            flight: Names the call until `pay` or `release`.
            call: The call.

        Raises:
            RunCapReached: A cap of the run is reached.
        """
        expected = self._expected(call)
        with self._changed:
            while True:
                self._look_at_time()
                if self.reached is not None:
                    raise RunCapReached(self.reached)
                if not self._against():
                    break
                if not self._under_way:
                    self.reached = f"{self._against()}: {self.spent}"
                    continue
                self._changed.wait()
            self._under_way[flight] = expected

    def pay(self, flight: object, call: ModelCall, paid: Paid) -> None:
        """Write down a reply that was paid for; it may be used when this returns.

        Raises:
            UsageError: The ledger cannot be written.
        """
        counted = counted_usage(paid.usage, request=len(call.request), reply=paid.characters)
        self._write(flight, call, paid, counted=counted)

    def take(self, record: SpendRecord) -> None:
        """Write down a call that was paid elsewhere for the run.

        Raises:
            UsageError: The ledger cannot be written.
        """
        with self._changed:
            if self._ledger is not None:
                self._ledger.append(record)
            self.spent.add(record)

    def lose(self, flight: object, call: ModelCall) -> Usage:
        """Write down a request that may be billed though nobody could read its answer.

        Returns:
            What caps count of it, by estimate.

        Raises:
            UsageError: The ledger cannot be written.
        """
        paid = Paid(finish_reason=LOST, usage=Usage(), characters=0, cost_usd=None)
        counted = self._estimate(call)
        self._write(flight, call, paid, counted=counted)
        return counted

    def _write(self, flight: object, call: ModelCall, paid: Paid, *, counted: Usage) -> None:
        record = SpendRecord(
            run_id=self._run_id,
            paid_at=self._now(),
            cell=call.site.cell,
            node=call.site.node,
            index=call.site.index,
            attempt=call.site.attempt,
            key=call.key,
            provider=call.provider,
            model=call.model,
            finish_reason=paid.finish_reason,
            input_tokens=paid.usage.input_tokens,
            output_tokens=paid.usage.output_tokens,
            cached_tokens=paid.usage.cached_tokens,
            cost_usd=paid.cost_usd,
            counted_usd=self.tariff.counted(call.provider, call.model, counted),
        )
        with self._changed:
            if self._ledger is not None:
                self._ledger.append(record)
            self.spent.add(record)
            self._under_way.pop(flight, None)
            self._changed.notify_all()

    def release(self, flight: object) -> None:
        """Give back the permission of a call that ended without being paid for."""
        with self._changed:
            if self._under_way.pop(flight, None) is not None:
                self._changed.notify_all()

    def look_at_the_clock(self) -> None:
        """Note that the run's minutes are over, where they are."""
        with self._changed:
            self._look_at_time()

    def _look_at_time(self) -> None:
        limit = self.caps.minutes
        over = limit is not None and self.clock() - self._started >= limit * _MINUTE
        if over and self.reached is None:
            self.reached = f"max_minutes = {limit:g} is reached: {self.spent}"

    def _against(self) -> str:
        """Name the cap that calls paid and under way together fill, or return nothing."""
        calls, cost = self.caps.calls, self.caps.cost_usd
        if calls is not None and self.spent.calls + len(self._under_way) >= calls:
            return f"max_calls = {calls} is reached"
        if cost is not None and self.spent.cost_usd + sum(self._under_way.values()) >= cost:
            return f"max_cost_usd = {cost:g} is reached"
        return ""

    def _expected(self, call: ModelCall) -> float:
        return self.tariff.counted(call.provider, call.model, self._estimate(call))

    def _estimate(self, call: ModelCall) -> Usage:
        output = self.spent.longest.get(call.site.node) or self._max_tokens or FIRST_OUTPUT
        return Usage(input_tokens=tokens_of(len(call.request)), output_tokens=output)
