"""Imports point one way, what is imported is declared, and the command line starts light."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from importlib.metadata import packages_distributions
from typing import Any

import pytest
from importlinter import configuration
from importlinter.application import use_cases

from tests.guards.sources import PACKAGES, ROOT, expect_none, sources

PROJECT: Mapping[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

# Declared, and not imported yet: name -> what it is for.
DECLARED_AHEAD: dict[str, str] = {}

# Extras whose packages are imported where a model of their provider is built, or a cluster reached.
EXTRAS = ("anthropic", "azure", "bedrock", "dask", "google")

# A distribution that another one brings along:
# pinned to its own exact version, or raising its errors through it.
PART_OF = {"pydantic-core": "pydantic", "peewee": "yfinance"}

# Each costs 0.05 to 0.9 s to import, which `--help` must not pay.
HEAVY = (
    "anthropic",
    "boto3",
    "botocore",
    "dask",
    "diskcache",
    "distributed",
    "duckdb",
    "exchange_calendars",
    "google.genai",
    "joblib",
    "langchain_anthropic",
    "langchain_aws",
    "langchain_core",
    "langchain_google_genai",
    "langchain_openai",
    "langgraph",
    "langsmith",
    "numpy",
    "openai",
    "pandas",
    "pyarrow",
    "stockstats",
    "yfinance",
)

# The modules that may open a connection: module (or a package, with all it holds) -> why.
MAY_CONNECT = {
    "backtester.network": "the wall itself",
    "backtester.vendors": "the only vendor clients",
    "backtester.walk.cluster": "the workers of a cluster, for recording alone",
    "tradingagents_core.llm": "the only model clients",
}
CONNECTING = {
    "aiohttp",
    "anthropic",
    "boto3",
    "botocore",
    "curl_cffi",
    "distributed",
    "ftplib",
    "google.genai",
    "http.client",
    "httpx",
    "httpx2",
    "openai",
    "requests",
    "smtplib",
    "socket",
    "ssl",
    "urllib.request",
    "urllib3",
    "websockets",
}


def within(module: str, packages: Mapping[str, str]) -> bool:
    return any(module == name or module.startswith(name + ".") for name in packages)


def test_imports_keep_the_contracts() -> None:
    # Its report goes to the output, which pytest shows where this fails.
    configuration.configure()
    assert use_cases.lint_imports(
        config_filename=str(ROOT / "pyproject.toml"), cache_dir=None, no_logo=True
    )


@pytest.mark.parametrize(
    ("contract", "package"), [("layers", "backtester"), ("core-layers", "tradingagents_core")]
)
def test_every_module_has_its_place_in_the_layers(contract: str, package: str) -> None:
    (layers,) = [
        entry["layers"]
        for entry in PROJECT["tool"]["importlinter"]["contracts"]
        if entry["id"] == contract
    ]
    placed = set(re.findall(r"[\w.]+", " ".join(layers)))
    modules = {
        ".".join(source.module.split(".")[:2])
        for source in sources()
        if source.module.startswith(package + ".")
    }
    expect_none(sorted(modules - placed))


def test_every_import_is_declared_and_every_declared_package_is_imported() -> None:
    declared = {
        canonical(re.split(r"[<>=\[ ;]", requirement)[0])
        for requirement in (
            *PROJECT["project"]["dependencies"],
            *(
                requirement
                for extra in EXTRAS
                for requirement in PROJECT["project"]["optional-dependencies"][extra]
            ),
        )
    }
    distributions = packages_distributions()
    imported = set()
    for source in sources():
        for name, _ in source.imports():
            root = name.split(".")[0]
            if root in sys.stdlib_module_names or root in PACKAGES:
                continue
            owners = {canonical(owner) for owner in distributions.get(root, [root])}
            owners = {PART_OF.get(owner, owner) for owner in owners}
            # A namespace may be shared by several distributions: those declared are meant.
            imported |= owners & declared or {min(owners)}
    expect_none(f"{name} is imported, not declared" for name in sorted(imported - declared))
    assert sorted(declared - imported) == sorted(DECLARED_AHEAD)


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_core_does_not_know_the_harness() -> None:
    expect_none(
        f"{source.path}:{line}"
        for source in sources()
        if source.module.startswith("tradingagents_core")
        for name, line in source.imports()
        if name.split(".")[0] == "backtester"
    )


def test_only_named_modules_can_open_a_connection() -> None:
    expect_none(
        f"{source.path}:{line} {name}"
        for source in sources()
        if not within(source.module, MAY_CONNECT)
        for name, line in source.imports()
        if within(name, dict.fromkeys(CONNECTING, ""))
    )


@pytest.mark.parametrize("module", ["backtester", "backtester.cli", "tradingagents_core"])
def test_a_light_import_stays_light(module: str) -> None:
    script = f"import sys, {module}; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, check=True, capture_output=True, text=True
    )
    expect_none(sorted(set(HEAVY) & set(loaded.stdout.split())))
