"""Prices: a known one to the cent, an unknown one is no number."""

from __future__ import annotations

import math
from datetime import date
from pathlib import Path

import pytest

from backtester.config import RunConfig
from backtester.errors import UsageError
from backtester.spending.tariff import (
    Price,
    Tariff,
    counted_usage,
    is_paid,
    require_prices,
    tariff_of,
)
from tradingagents_core.protocols import Usage

PRICE = Price(input_per_million=2.0, output_per_million=10.0, cached_per_million=0.5)


def config(**changes: object) -> RunConfig:
    fields = {
        "tickers": ("AAA",),
        "start": date(2018, 1, 2),
        "end": date(2018, 1, 5),
        "provider": "openai",
        "quick_model": "of-my-own",
        "deep_model": "of-my-own",
    }
    return RunConfig(**{**fields, **changes})


def test_cached_tokens_cost_their_own_price_where_it_is_known() -> None:
    usage = Usage(input_tokens=1000, output_tokens=100, cached_tokens=400)
    # 600 x 2 + 400 x 0.5 + 100 x 10 = 1200 + 200 + 1000
    assert PRICE.of(usage) == pytest.approx(0.0024, abs=1e-15)
    # Without it they cost what the others do: 1000 x 2 + 1000
    assert Price(input_per_million=2.0, output_per_million=10.0).of(usage) == 0.003


def test_a_price_that_holds_up_to_a_size_says_nothing_of_a_larger_request_but_a_cap_counts_it() -> (
    None
):
    bounded = Price(input_per_million=2.0, output_per_million=10.0, up_to_tokens=1000)
    tariff = Tariff(prices={"openai:a": bounded})
    large = Usage(input_tokens=1001, output_tokens=0)
    assert bounded.of(Usage(input_tokens=1000, output_tokens=0)) == 0.002
    assert tariff.cost("openai", "a", large) is None
    assert tariff.counted("openai", "a", large) == pytest.approx(0.002002, abs=1e-15)


def test_unknown_is_none_and_free_is_zero() -> None:
    usage = Usage(input_tokens=10, output_tokens=10)
    assert Tariff().cost("openai", "nobody-knows", usage) is None
    assert Tariff().cost("rulebook", "rulebook-1", Usage()) == 0.0
    assert PRICE.of(Usage(input_tokens=10)) is None


def test_tokens_that_nobody_reported_are_a_quarter_of_the_characters_for_caps_alone() -> None:
    assert counted_usage(Usage(), request=401, reply=8) == Usage(input_tokens=101, output_tokens=2)
    known = Usage(input_tokens=7, output_tokens=3, cached_tokens=1)
    assert counted_usage(known, request=401, reply=8) == known


def test_a_call_is_counted_when_it_leaves_the_process() -> None:
    assert [is_paid(name) for name in ("rulebook", "ollama", "openai", "openai_compatible")] == [
        False,
        True,
        True,
        True,
    ]


def test_a_file_of_ones_own_gives_a_price_and_lets_a_cap_hold(tmp_path: Path) -> None:
    unknown = config(max_cost_usd=1.0)
    with pytest.raises(UsageError, match="the price of openai:of-my-own is unknown"):
        require_prices(unknown, tariff_of(unknown))
    own = tmp_path / "models.toml"
    own.write_text('[models.openai."of-my-own"]\nprice = { input = 1.0, output = 2.0 }\n')
    known = config(max_cost_usd=1.0, models_file=own)
    require_prices(known, tariff_of(known))
    assert tariff_of(known).price_of("openai", "of-my-own") == Price(
        input_per_million=1.0, output_per_million=2.0
    )
    require_prices(config(max_calls=5), Tariff())


@pytest.mark.parametrize("figure", [-0.01, math.nan, math.inf, 1e300])
@pytest.mark.parametrize("name", ["input_per_million", "output_per_million", "cached_per_million"])
def test_what_is_no_price_is_refused_before_anything_is_paid(name: str, figure: float) -> None:
    prices = {"input_per_million": 1.0, "output_per_million": 1.0}
    with pytest.raises(UsageError, match=f"{name} = .* is no price"):
        Price(**{**prices, name: figure})
