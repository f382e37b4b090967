"""What calls can take at most, in tokens and dollars: every reply at its limit, in every prompt."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from backtester.config import RunConfig
from backtester.estimates.demand import Demand
from backtester.estimates.sizes import Sizes
from backtester.spending.tariff import Tariff
from tradingagents_core.protocols import Usage
from tradingagents_core.topology import tier_of_node


@dataclass(frozen=True, kw_only=True)
class Worst:
    """Say what calls take at most.

    Attributes:
        calls: Number of them.
        tokens: In and out; None where nothing bounds them.
        cost_usd: Likewise, or None where a price is unknown.
        reason: Why one of these is unknown, in words; empty where both are known.
    """

    calls: int
    tokens: int | None
    cost_usd: float | None
    reason: str = ""

    @classmethod
    def total(cls, parts: Sequence[Worst]) -> Worst:
        """Add up; a sum with an unknown part is unknown."""
        tokens = [part.tokens for part in parts]
        costs = [part.cost_usd for part in parts]
        return cls(
            calls=sum(part.calls for part in parts),
            tokens=None if None in tokens else sum(each or 0 for each in tokens),
            cost_usd=None if None in costs else math.fsum(each or 0.0 for each in costs),
            reason="; ".join(dict.fromkeys(part.reason for part in parts if part.reason)),
        )


def worst_of(
    node: str, demand: Demand, *, sizes: Sizes, config: RunConfig, tariff: Tariff
) -> Worst:
    """Return what the calls that a node may still make take at most.

    Args:
        node: Who asks.
        demand: How often.
        sizes: How large its calls can become.
        config: Has the models.
        tariff: Known prices.
    """
    calls = demand.worst(node)
    if not calls:
        return Worst(calls=0, tokens=0, cost_usd=0.0)
    spec = config.model_spec(tier_of_node(node))
    price = tariff.price_of(spec.provider, spec.model)
    most = sizes.most_of(node, demand.each[node])
    if most is None:
        free = tariff.cost(spec.provider, spec.model, Usage())
        return Worst(calls=calls, tokens=None, cost_usd=free, reason=sizes.unbounded)
    tries, rest = demand.tries[node], demand.rest[node]
    tokens = [(use.input_tokens or 0) + (use.output_tokens or 0) for use in most]
    costs = [tariff.cost(spec.provider, spec.model, use) for use in most]
    known = [cost for cost in costs if cost is not None]
    words = f"{spec.provider}:{spec.model}"
    if price is None:
        reason = f"the price of {words} is unknown"
    elif len(known) < len(costs):
        reason = f"the price of {words} does not hold for requests as large as they can become"
    else:
        reason = ""
    return Worst(
        calls=calls,
        tokens=tries * sum(tokens) + rest * max(tokens),
        cost_usd=None if reason else tries * math.fsum(known) + rest * max(known),
        reason=reason,
    )
