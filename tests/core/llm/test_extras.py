"""Providers whose packages do not come along: loaded on use, and named where they are missing."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Mapping
from typing import Any

import pytest
from packaging.requirements import Requirement

from tests.guards.sources import ROOT
from tradingagents_core.errors import SettingsError
from tradingagents_core.llm.factory import create_model
from tradingagents_core.llm.providers import PROVIDERS, Provider
from tradingagents_core.settings import ModelSpec

PROJECT: Mapping[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS: Mapping[str, list[str]] = PROJECT["project"]["optional-dependencies"]
ROWS = [row for row in PROVIDERS.values() if row.extra]
PACKAGES = ("anthropic", "boto3", "botocore", "google", "langchain_anthropic", "langchain_aws")


def named(extra: str) -> set[str]:
    return {Requirement(text).name for text in EXTRAS[extra]}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_an_extra_brings_the_package_of_its_provider(row: Provider) -> None:
    assert row.extra is not None
    assert row.package in named(row.extra)


def test_all_models_and_the_tests_have_what_the_extras_of_providers_have() -> None:
    of_providers = {row.extra for row in ROWS} | {"azure"}
    wanted = {text for extra in of_providers if extra for text in EXTRAS[extra]}
    assert set(EXTRAS["all-models"]) == wanted
    assert wanted <= set(EXTRAS["test"])


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_missing_package_names_the_extra_that_brings_it(
    row: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert row.package is not None
    module = f"tradingagents_core.llm.{row.name}_chat"
    monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, row.package.replace("-", "_"), None)
    if row.name == "bedrock":
        monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(SettingsError) as error:
        create_model(ModelSpec(provider=row.name, model="m"), api_key="sk-key-of-a-test")
    assert str(error.value) == (
        f"provider {row.name!r} needs the package {row.package}: "
        f"pip install 'tradingagents-backtester[{row.extra}]'"
    )
    monkeypatch.delitem(sys.modules, module, raising=False)


@pytest.mark.parametrize("name", ["anthropic", "google", "azure"])
def test_a_missing_key_names_every_variable_that_may_hold_it(name: str) -> None:
    row = PROVIDERS[name]
    spec = ModelSpec(provider=name, model="m", base_url="https://example.invalid")
    with pytest.raises(SettingsError) as error:
        create_model(spec, api_key=None)
    assert all(variable in str(error.value) for variable in row.key_variables)
    assert row.key_variables[0] == row.key_variable


def test_googles_key_may_stand_under_either_name() -> None:
    assert PROVIDERS["google"].key_variables == ("GOOGLE_API_KEY", "GEMINI_API_KEY")


def test_building_the_graph_of_another_provider_loads_none_of_them() -> None:
    script = (
        "import sys\n"
        "from tradingagents_core.llm.factory import create_model\n"
        "from tradingagents_core.settings import ModelSpec\n"
        "create_model(ModelSpec(), api_key=None)\n"
        f"print([name for name in {PACKAGES!r} if name in sys.modules])"
    )
    run = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, check=True, capture_output=True, text=True
    )
    assert run.stdout.strip() == "[]"
