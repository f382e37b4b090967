"""What model calls took: calls, hits, tokens, cost and saving, and how much of it is unknown."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from backtester.records import CallRecord


@dataclass(frozen=True, kw_only=True)
class Bill:
    """Add up model calls; sums are over known values, and the rest is counted.

    Attributes:
        calls: Calls and attempts.
        hits: Those among them that were served from a record.
        input_tokens: As reported, of all calls.
        output_tokens: Likewise.
        uncounted: Calls without reported tokens.
        cost_usd: Of calls with a known cost.
        unpriced: Calls whose cost is unknown.
        saved_usd: What hits with a known price saved.
        unknown_savings: Hits whose price is unknown.
    """

    calls: int
    hits: int
    input_tokens: int
    output_tokens: int
    uncounted: int
    cost_usd: float
    unpriced: int
    saved_usd: float
    unknown_savings: int

    @classmethod
    def of(cls, calls: Iterable[CallRecord]) -> Bill:
        """Add up calls."""
        made = list(calls)
        return cls(
            calls=len(made),
            hits=sum(call.hit for call in made),
            input_tokens=sum(call.input_tokens or 0 for call in made),
            output_tokens=sum(call.output_tokens or 0 for call in made),
            uncounted=sum(None in (call.input_tokens, call.output_tokens) for call in made),
            cost_usd=math.fsum(call.cost_usd or 0.0 for call in made),
            unpriced=sum(call.cost_usd is None for call in made),
            saved_usd=math.fsum(call.saved_usd or 0.0 for call in made),
            unknown_savings=sum(call.saved_usd is None for call in made),
        )

    def words(self) -> str:
        """Return all of it in one line; what is unknown is called so."""
        misses = self.calls - self.hits
        cost = dollars(self.cost_usd, unknown=self.unpriced, of=misses)
        saved = dollars(self.saved_usd, unknown=self.unknown_savings, of=self.hits)
        return (
            f"{misses} model calls, {self.hits} replies from the cache; {self._tokens()}; "
            f"cost {cost}; saved {saved}"
        )

    def _tokens(self) -> str:
        if self.calls and self.uncounted == self.calls:
            return "tokens unknown"
        more = f" and {self.uncounted} calls that reported none" if self.uncounted else ""
        return f"tokens {self.input_tokens:,} in, {self.output_tokens:,} out{more}"


def dollars(known: float, *, unknown: int, of: int) -> str:
    """Return a sum of dollars in words.

    Args:
        known: Sum of what is known.
        unknown: Calls that it leaves out.
        of: Calls in all.
    """
    if unknown and unknown >= of:
        return "unknown"
    return f"{known:.4f} USD" + (f" and {unknown} calls unknown" if unknown else "")
