"""What holds for every test: no key, no ambient setting, one awkward time zone, one locale.

That no connection leaves the machine is set in `pyproject.toml` (``--allow-hosts``), so that it
holds without this file as well.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import hypothesis
import pytest

from backtester.loading import NO_SETTINGS as KEPT

# The suite runs in a zone far from UTC on purpose: a naive local time then shows in every test.
TEST_ZONE = os.environ.get("BACKTESTER_TEST_TZ", "Asia/Tokyo")

# Variables through which the machine's own set-up would reach a test.
AMBIENT_PREFIXES = (
    "ANTHROPIC_",
    "AZURE_",
    "BACKTESTER_",
    "LANGCHAIN_",
    "LANGGRAPH_",
    "LANGSMITH_",
    "OPENAI_",
    "TRADINGAGENTS_",
)
AMBIENT_SUFFIXES = ("_API_KEY", "_API_TOKEN", "_BASE_URL")


def is_ambient(variable: str) -> bool:
    """Say whether a variable of the machine must not reach a test."""
    if variable in KEPT:
        return False
    return variable.startswith(AMBIENT_PREFIXES) or variable.endswith(AMBIENT_SUFFIXES)


def clean_environment() -> None:
    """Take the machine's own settings away, for this process and for all that tests start."""
    for variable in sorted(os.environ):
        if is_ambient(variable):
            del os.environ[variable]
    os.environ.update(LANGSMITH_TRACING="false", LC_ALL="C.UTF-8", NO_COLOR="1", TZ=TEST_ZONE)
    time.tzset()


clean_environment()

hypothesis.settings.register_profile(
    "repeatable",
    derandomize=True,
    deadline=None,
    print_blob=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("repeatable")


@pytest.fixture(autouse=True)
def same_environment_after() -> Iterator[None]:
    """Undo whatever a test does to the environment; its time zone reaches the C library too."""
    before = _environment()
    yield
    after = _environment()
    if after == before:
        return
    for variable in sorted(after.keys() - before.keys()):
        del os.environ[variable]
    os.environ.update(before)
    time.tzset()


def _environment() -> dict[str, str]:
    # pytest itself moves this variable on between the phases of a test.
    return {name: text for name, text in os.environ.items() if name != "PYTEST_CURRENT_TEST"}


@pytest.fixture(params=["UTC", "Asia/Tokyo", "America/New_York"])
def time_zone(request: pytest.FixtureRequest) -> str:
    """Run a test under each of three time zones and give it the zone's name."""
    zone = str(request.param)
    os.environ["TZ"] = zone
    time.tzset()
    return zone
