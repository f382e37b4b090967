"""Keys of providers that have more than one name for them."""

from __future__ import annotations

from datetime import date

import pytest

from backtester.cli.environment import refuse_keys
from backtester.cli.runs import api_keys_of
from backtester.config import RunConfig
from backtester.errors import UsageError

KEY = "sk-TEST-SECRET-123"


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GOOGLE_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def config() -> RunConfig:
    return RunConfig(
        tickers=("FB",),
        start=date(2018, 1, 2),
        end=date(2018, 1, 3),
        provider="google",
        quick_model="gemini-2.5-flash",
        deep_model="gemini-2.5-pro",
    )


@pytest.mark.parametrize("variable", ["GOOGLE_API_KEY", "GEMINI_API_KEY"])
def test_a_key_is_found_under_either_name(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, KEY)
    assert api_keys_of(config()) == {"google": KEY}


def test_the_first_name_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", "sk-of-the-other-name")
    monkeypatch.setenv("GOOGLE_API_KEY", KEY)
    assert api_keys_of(config()) == {"google": KEY}


@pytest.mark.parametrize("variable", ["GOOGLE_API_KEY", "GEMINI_API_KEY"])
def test_a_setting_that_holds_the_key_is_refused_under_either_name(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, KEY)
    with pytest.raises(UsageError, match=variable):
        refuse_keys({"base_url": f"http://127.0.0.1:1/{KEY}"})
