"""What is publicly known of models: context, knowledge cutoff and price, each with its source.

The figures are in ``models.toml`` beside this module; a table of the same form wins over it figure
by figure. What is not written there is unknown and stays None: no figure is derived or guessed.
"""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from importlib import resources
from typing import Any, Final, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tradingagents_core.errors import SettingsError

T = TypeVar("T")
# A dated release costs and knows what its family does, unless it has an entry of its own.
FIGURES: Final = {
    "context": "context = { tokens = 128000, as_of = 2026-01-31 }",
    "cutoff": "cutoff = { date = 2023-10-01, as_of = 2026-01-31 }",
    "price": 'price = { input = 2.5, output = 10.0, as_of = 2026-01-31, source = "..." }',
}
"""What each figure of a model looks like in the file."""

MOST_USD: Final = 1e9
"""Highest price of a million tokens; what is above is a slip, and no sum of it would be one."""

_RELEASE: Final = re.compile(r"-(?:\d{4}-\d{2}-\d{2}|\d{8})$")


@dataclass(frozen=True, kw_only=True)
class Figure(Generic[T]):
    """Hold a figure and where it is from.

    Attributes:
        value: The figure.
        as_of: Day on which it was looked up, or None where a user's file does not say.
        source: Where.
    """

    value: T
    as_of: date | None
    source: str


@dataclass(frozen=True, kw_only=True)
class TokenPrice:
    """Price of tokens in US dollars per million.

    Attributes:
        input: Of the request.
        output: Of the reply, reasoning included.
        cached_input: Of what of the request the provider had in its own cache, or None where
            that is unknown.
        up_to_tokens: Largest request for which it holds, or None for all.
    """

    input: float
    output: float
    cached_input: float | None = None
    up_to_tokens: int | None = None


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """Say what is known of a model; None is unknown.

    Attributes:
        provider: Row of the provider table.
        model: Name as the provider knows it.
        context_tokens: Tokens of a request and its reply together.
        knowledge_cutoff: Last day of the training data.
        price: What its tokens cost.
    """

    provider: str
    model: str
    context_tokens: Figure[int] | None = None
    knowledge_cutoff: Figure[date] | None = None
    price: Figure[TokenPrice] | None = None

    def updated(self, other: ModelFacts) -> ModelFacts:
        """Return these facts with the figures of others where those have one."""
        return replace(
            self,
            context_tokens=other.context_tokens or self.context_tokens,
            knowledge_cutoff=other.knowledge_cutoff or self.knowledge_cutoff,
            price=other.price or self.price,
        )


@dataclass(frozen=True, kw_only=True)
class Catalogue:
    """Hold what is known of models.

    Attributes:
        facts: By provider and model name.
    """

    facts: Mapping[tuple[str, str], ModelFacts] = field(default_factory=dict)

    def find(self, provider: str, model: str) -> ModelFacts | None:
        """Return what is known of a model, None where it is in no list.

        A name with a date at its end that is in none stands for the name without.
        """
        family = _RELEASE.sub("", model)
        return self.facts.get((provider, model)) or self.facts.get((provider, family))

    def of(self, provider: str) -> tuple[ModelFacts, ...]:
        """Return the models of a provider, in the order of the list."""
        return tuple(facts for (owner, _), facts in self.facts.items() if owner == provider)

    def updated(self, other: Catalogue) -> Catalogue:
        """Return this catalogue with the figures of another where that has one."""
        merged = dict(self.facts)
        for name, facts in other.facts.items():
            merged[name] = merged[name].updated(facts) if name in merged else facts
        return Catalogue(facts=merged)


@functools.cache
def builtin_catalogue() -> Catalogue:
    """Return the catalogue that comes with the project."""
    name = "models.toml"
    text = resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
    return read_catalogue(tomllib.loads(text), where=name)


def read_catalogue(document: Mapping[str, Any], *, where: str) -> Catalogue:
    """Read a catalogue from the values of its TOML file.

    Args:
        document: Tables ``models.<provider>."<model>"`` and, as names for sources, ``sources``.
        where: Name of the file, for messages and for figures without a source.

    Raises:
        SettingsError: It has not the form of a catalogue.
    """
    try:
        read = _Document.model_validate(document)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        place = ".".join(map(str, problem["loc"]))
        raise SettingsError(
            f"{where}: {place}: {problem['msg']}: write a figure like {_example(problem['loc'])} "
            'under [models.openai."gpt-4o"]'
        ) from error
    found: dict[tuple[str, str], ModelFacts] = {}
    for provider, models in read.models.items():
        for model, entry in models.items():
            found[provider, model] = _facts(provider, model, entry, read.sources, where)
    return Catalogue(facts=found)


def _example(place: Sequence[int | str]) -> str:
    """Return a sample of the figure in which something is wrong, of a price where it is in none."""
    return next((FIGURES[str(name)] for name in place if name in FIGURES), FIGURES["price"])


# ------------------------------------------------------------------------------- the file's form


class _Sourced(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    as_of: date | None = None
    source: str | None = None


class _Context(_Sourced):
    tokens: int = Field(gt=0)


class _Cutoff(_Sourced):
    date: date


class _Price(_Sourced):
    input: float = Field(ge=0, le=MOST_USD)
    output: float = Field(ge=0, le=MOST_USD)
    cached_input: float | None = Field(None, ge=0, le=MOST_USD)
    up_to_tokens: int | None = Field(None, gt=0)


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    context: _Context | None = None
    cutoff: _Cutoff | None = None
    price: _Price | None = None


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    sources: dict[str, str] = {}
    models: dict[str, dict[str, _Entry]] = {}


def _facts(
    provider: str, model: str, entry: _Entry, sources: Mapping[str, str], where: str
) -> ModelFacts:
    def figure(given: _Sourced, value: T) -> Figure[T]:
        named = given.source or where
        return Figure(value=value, as_of=given.as_of, source=sources.get(named, named))

    facts = ModelFacts(provider=provider, model=model)
    if entry.context is not None:
        facts = replace(facts, context_tokens=figure(entry.context, entry.context.tokens))
    if entry.cutoff is not None:
        facts = replace(facts, knowledge_cutoff=figure(entry.cutoff, entry.cutoff.date))
    if entry.price is not None:
        price = entry.price
        facts = replace(
            facts,
            price=figure(
                price,
                TokenPrice(
                    input=price.input,
                    output=price.output,
                    cached_input=price.cached_input,
                    up_to_tokens=price.up_to_tokens,
                ),
            ),
        )
    return facts
