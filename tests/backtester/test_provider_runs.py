"""A whole run through each provider's wire: recorded, then replayed with the server gone."""

from __future__ import annotations

import importlib.util
from datetime import date
from typing import Any

import pytest

from backtester.backtest import RunResult, run
from backtester.packs.replays import replay
from backtester.runs.folder import RunFolder
from backtester.runs.journal import read_ledger
from tests.support.openai_server import OpenAIServer
from tests.support.provider_rulebook import (
    asked_in_azure,
    asked_of_anthropic,
    asked_of_converse,
    asked_of_gemini,
    rules_behind,
)
from tests.support.provider_wires import (
    AnthropicWire,
    AzureWire,
    ConverseWire,
    GeminiWire,
    root_of,
)
from tests.support.workspaces import Workspace, make_workspace

# One cell: what takes time is the run, not the wire.
END = date(2018, 1, 5)
SECRET = "sk-TEST-SECRET-123"
AWS = {
    "AWS_ACCESS_KEY_ID": "AKIATESTACCESSKEY",
    "AWS_SECRET_ACCESS_KEY": SECRET,
    "AWS_REGION": "us-east-1",
    "AWS_CONFIG_FILE": "/nonexistent/config",
    "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent/credentials",
}
WIRES: dict[str, Any] = {
    "anthropic": (AnthropicWire(), asked_of_anthropic, "langchain_anthropic"),
    "google": (GeminiWire(), asked_of_gemini, "langchain_google_genai"),
    "azure": (AzureWire(), asked_in_azure, "langchain_openai"),
    "bedrock": (ConverseWire(), asked_of_converse, "langchain_aws"),
}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return make_workspace(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def ratings(workspace: Workspace) -> list[str | None]:
    """Ratings of the same rules, asked directly."""
    return ratings_of(run(workspace.config(tickers=("AAA",), end=END)))


def ratings_of(result: RunResult) -> list[str | None]:
    ledger = read_ledger(result.folder / "journal.jsonl")
    return [cell.rating for cell in ledger.cells.values()]


@pytest.mark.parametrize("provider", WIRES)
def test_a_run_is_recorded_and_replays_to_its_own_root_with_the_server_gone(
    provider: str,
    workspace: Workspace,
    ratings: list[str | None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wire, asked, package = WIRES[provider]
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    for name, value in AWS.items():
        monkeypatch.setenv(name, value)
    with OpenAIServer(rules_behind(wire, asked)) as server:
        config = workspace.config(
            tickers=("AAA",),
            end=END,
            provider=provider,
            base_url=root_of(server),
            endpoint_alias="stub",
            quick_model=wire.model,
            deep_model=wire.model,
            max_retries=0,
            cell_retries=0,
        )
        keys = {} if provider == "bedrock" else {provider: SECRET}
        result = run(config, api_keys=keys)
        requests = len(server.requests)
    # A replay has neither key nor region.
    for name in AWS:
        monkeypatch.delenv(name)
    found = replay(RunFolder(result.folder), workspace.data)

    assert requests == result.model_calls > 0
    assert (found.equal, found.misses) == (True, ())
    # The wire changes nothing.
    assert ratings_of(result) == ratings != []
    held = [path for path in sorted(workspace.path.rglob("*")) if path.is_file()]
    assert [path for path in held if SECRET.encode() in path.read_bytes()] == []
