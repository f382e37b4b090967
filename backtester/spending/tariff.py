"""What a model's tokens cost: prices, the cost of one call, and what an unknown price means.

A price that nobody knows is None, and so is a cost that rests on it: never 0, and never guessed.
Caps alone count an estimate where a provider reports no tokens, for a cap must hold; the estimate
is characters / 4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from backtester.config import RunConfig, Tier
from backtester.errors import UsageError
from backtester.loading import catalogue_of
from tradingagents_core.llm.catalogue import MOST_USD
from tradingagents_core.llm.providers import PROVIDERS
from tradingagents_core.protocols import Usage

CHARACTERS_A_TOKEN: Final = 4
_MILLION: Final = 1_000_000
TIERS: Final[tuple[Tier, ...]] = ("quick", "deep")


@dataclass(frozen=True, kw_only=True)
class Price:
    """Price of a model in US dollars per million tokens.

    Attributes:
        input_per_million: Of the request.
        output_per_million: Of the reply.
        cached_per_million: Of the part of the request that the provider had in its own cache;
            None where that is unknown, and such tokens then cost what the others do.
        up_to_tokens: Largest request for which the price holds; beyond it the price is unknown.
            None where it holds for all.
    """

    input_per_million: float
    output_per_million: float
    cached_per_million: float | None = None
    up_to_tokens: int | None = None

    def __post_init__(self) -> None:
        """Refuse what is no price before anything is paid.

        Raises:
            UsageError: A figure is negative, no number, or above any price.
        """
        for name in ("input_per_million", "output_per_million", "cached_per_million"):
            price = getattr(self, name)
            if price is not None and not 0 <= price <= MOST_USD:
                raise UsageError(
                    f"{name} = {price!r} is no price in US dollars per million tokens: write one "
                    f"from 0 to {MOST_USD:g}"
                )

    def of(self, usage: Usage) -> float | None:
        """Return the cost of a call in US dollars, None where it is unknown."""
        if usage.input_tokens is None or usage.output_tokens is None:
            return None
        if self.up_to_tokens is not None and usage.input_tokens > self.up_to_tokens:
            return None
        cached = min(usage.cached_tokens or 0, usage.input_tokens)
        reread = self.input_per_million
        if self.cached_per_million is not None:
            reread = self.cached_per_million
        paid = (usage.input_tokens - cached) * self.input_per_million + cached * reread
        return (paid + usage.output_tokens * self.output_per_million) / _MILLION


_NOTHING: Final = Price(input_per_million=0.0, output_per_million=0.0)


@dataclass(frozen=True, kw_only=True)
class Tariff:
    """Hold the known prices.

    Attributes:
        prices: Price by ``provider:model``; what is not in it has no known price.
    """

    prices: Mapping[str, Price] = field(default_factory=dict)

    def price_of(self, provider: str, model: str) -> Price | None:
        """Return a model's price, None where it is unknown; a free provider costs nothing."""
        row = PROVIDERS.get(provider)
        if row is not None and row.free:
            return _NOTHING
        return self.prices.get(f"{provider}:{model}")

    def cost(self, provider: str, model: str, usage: Usage) -> float | None:
        """Return what a call cost in US dollars, None where price or tokens are unknown."""
        price = self.price_of(provider, model)
        if price is _NOTHING:
            return 0.0
        return None if price is None else price.of(usage)

    def counted(self, provider: str, model: str, usage: Usage) -> float:
        """Return what a cap counts of a call: beyond the bound of a price, that price; else 0."""
        price = self.price_of(provider, model)
        if price is None:
            return 0.0
        return replace(price, up_to_tokens=None).of(usage) or 0.0


def tariff_of(config: RunConfig) -> Tariff:
    """Return the known prices of a configuration's models, those of the user's file first.

    Raises:
        UsageError: The user's file cannot be read; SettingsError, where it has another form.
    """
    catalogue = catalogue_of(config)
    prices = {}
    for spec in map(config.model_spec, TIERS):
        facts = catalogue.find(spec.provider, spec.model)
        if facts is not None and facts.price is not None:
            price = facts.price.value
            prices[f"{spec.provider}:{spec.model}"] = Price(
                input_per_million=price.input,
                output_per_million=price.output,
                cached_per_million=price.cached_input,
                up_to_tokens=price.up_to_tokens,
            )
    return Tariff(prices=prices)


def is_paid(provider: str) -> bool:
    """Say whether a call of a provider leaves this process, so that somebody counts it."""
    row = PROVIDERS.get(provider)
    return row is None or not row.free or row.has_endpoint


def tokens_of(characters: int) -> int:
    """Return the estimate of a text's tokens, rounded up; no tokenizer is asked."""
    return -(-characters // CHARACTERS_A_TOKEN)


def counted_usage(usage: Usage, *, request: int, reply: int) -> Usage:
    """Return a usage with estimates for what was not reported.

    Args:
        usage: As reported.
        request: Characters of the request.
        reply: Characters of the reply.
    """
    return Usage(
        input_tokens=tokens_of(request) if usage.input_tokens is None else usage.input_tokens,
        output_tokens=tokens_of(reply) if usage.output_tokens is None else usage.output_tokens,
        cached_tokens=usage.cached_tokens,
    )


def require_prices(config: RunConfig, tariff: Tariff) -> None:
    """Refuse a cap on cost that could not hold, because the price of a model is unknown.

    Raises:
        UsageError: Names the model, and how to give its price.
    """
    caps = [name for name in ("max_cost_usd", "cell_max_cost_usd") if getattr(config, name)]
    if not caps or config.mode == "replay":
        return
    specs = [config.model_spec(tier) for tier in TIERS]
    unknown = dict.fromkeys(
        f"{spec.provider}:{spec.model}"
        for spec in specs
        if tariff.price_of(spec.provider, spec.model) is None
    )
    if unknown:
        raise UsageError(
            f"{caps[0]} cannot hold: the price of {' and '.join(unknown)} is unknown; give it in "
            'a file of your own (setting models_file), as [models.<provider>."<model>"] with '
            "price = { input = ..., output = ... } per million tokens, or cap max_calls instead"
        )
