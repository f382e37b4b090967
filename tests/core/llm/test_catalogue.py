"""What is known of models: each figure with its day and source, and nothing that is guessed."""

from __future__ import annotations

import math
from datetime import date
from typing import Any

import pytest

from tradingagents_core.errors import SettingsError
from tradingagents_core.llm.catalogue import (
    Figure,
    TokenPrice,
    builtin_catalogue,
    read_catalogue,
)
from tradingagents_core.llm.providers import PROVIDERS

PRICES = {"input": 1.0, "output": 1.0}
OWN = {
    "models": {
        "openai": {
            "gpt-4o": {"price": {"input": 1.0, "output": 2.0}},
            "mine": {"cutoff": {"date": date(2024, 6, 30), "source": "a letter"}},
        }
    }
}


def test_every_figure_has_the_day_and_the_source_of_it() -> None:
    for facts in builtin_catalogue().facts.values():
        assert facts.provider in PROVIDERS
        for figure in (facts.context_tokens, facts.knowledge_cutoff, facts.price):
            if figure is not None:
                assert figure.as_of is not None
                assert figure.source.startswith("https://")


def test_a_known_model_has_the_figures_that_its_vendor_publishes() -> None:
    facts = builtin_catalogue().find("openai", "gpt-4o-mini")
    assert facts is not None
    assert facts.context_tokens is not None
    assert facts.context_tokens.value == 128_000
    assert facts.knowledge_cutoff is not None
    assert facts.knowledge_cutoff.value == date(2023, 10, 1)
    assert facts.price is not None
    assert facts.price.value == TokenPrice(input=0.15, output=0.6, cached_input=0.075)


def test_a_dated_release_is_what_its_family_is_and_another_name_is_unknown() -> None:
    catalogue = builtin_catalogue()
    assert catalogue.find("openai", "gpt-4o-mini-2024-07-18") == catalogue.find(
        "openai", "gpt-4o-mini"
    )
    assert catalogue.find("openai", "gpt-4o-micro") is None
    assert catalogue.find("groq", "gpt-4o-mini") is None


def test_where_the_public_lists_differ_the_figure_is_unknown() -> None:
    facts = builtin_catalogue().find("xai", "grok-4.3")
    assert facts is not None
    assert facts.knowledge_cutoff is None


def test_a_user_s_file_wins_figure_by_figure() -> None:
    catalogue = builtin_catalogue().updated(read_catalogue(OWN, where="own.toml"))
    changed = catalogue.find("openai", "gpt-4o")
    before = builtin_catalogue().find("openai", "gpt-4o")
    assert changed is not None
    assert before is not None
    assert changed.price == Figure(
        value=TokenPrice(input=1.0, output=2.0), as_of=None, source="own.toml"
    )
    assert changed.context_tokens == before.context_tokens
    added = catalogue.find("openai", "mine")
    assert added is not None
    assert added.knowledge_cutoff == Figure(value=date(2024, 6, 30), as_of=None, source="a letter")
    assert added.price is None


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"model": {}}, "model: Extra inputs"),
        ({"models": {"openai": {"m": {"price": {"input": 1.0}}}}}, "price.output: Field required"),
        ({"models": {"openai": {"m": {"price": {"input": -1.0, "output": 1.0}}}}}, "price.input"),
        ({"models": {"openai": {"m": {"price": PRICES | {"output": 1e300}}}}}, "m.price.output"),
        ({"models": {"openai": {"m": {"price": PRICES | {"input": math.nan}}}}}, "m.price.input"),
        ({"models": {"openai": {"m": {"price": PRICES | {"input": math.inf}}}}}, "m.price.input"),
        (
            {"models": {"openai": {"m": {"price": PRICES | {"cached_input": 1e10}}}}},
            "models.openai.m.price.cached_input: Input should be less than or equal to 1000000000",
        ),
        ({"models": {"openai": {"m": {"cutoff": {"date": "soon"}}}}}, "cutoff.date"),
        ({"models": {"openai": {"m": {"context": {"tokens": 0}}}}}, "context.tokens"),
    ],
)
def test_a_file_of_another_form_is_refused_with_the_place(
    document: dict[str, Any], said: str
) -> None:
    with pytest.raises(SettingsError, match=said) as refused:
        read_catalogue(document, where="own.toml")
    assert str(refused.value).startswith("own.toml: ")
    assert "write a figure like" in str(refused.value)
