"""What a run is going to ask: exact where it is recorded, worst case elsewhere."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from backtester import cli
from backtester.backtest import run
from backtester.config import RunConfig
from backtester.errors import BudgetReached
from backtester.estimate import Estimate, estimate
from backtester.spend import read_spend
from backtester.tariff import Price, Tariff
from tests.support.openai_server import OpenAIServer
from tests.support.rulebook_server import by_the_rules
from tests.support.workspaces import Workspace, make_workspace

KEYS = {"openai_compatible": "sk-TEST-SECRET-123"}
PRICE = Price(input_per_million=1_000_000.0, output_per_million=2_000_000.0)
TARIFF = Tariff(prices={f"openai_compatible:{name}": PRICE for name in ("stub-quick", "stub-deep")})


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return make_workspace(tmp_path)


def config_for(workspace: Workspace, url: str = "http://127.0.0.1:9/v1", **more: Any) -> RunConfig:
    fields: dict[str, Any] = {
        "provider": "openai_compatible",
        "base_url": url,
        "endpoint_alias": "stub",
        "quick_model": "stub-quick",
        "deep_model": "stub-deep",
        "analysts": ("market",),
        "end": date(2018, 1, 12),
        "max_retries": 0,
        "cell_retries": 1,
    }
    return workspace.config(**{**fields, **more})


def by_node(found: Estimate, name: str) -> dict[str, Any]:
    return {node.node: getattr(node, name) for node in found.nodes}


def test_nothing_recorded_gives_the_worst_case_by_the_graph_and_unknown_prices(
    workspace: Workspace,
) -> None:
    found = estimate(config_for(workspace, max_debate_rounds=2), workspace.snapshot, Tariff())
    # 2 tickers x 2 Fridays; all four windows of 3 sessions end within the snapshot.
    assert (found.cells, found.open, found.lessons, found.exact) == (4, 4, 4, False)
    # A cell that fails is tried once more, so its calls count twice. 6 tool turns and the report;
    # a typed reply, one repair and one plain call; two rounds; one lesson.
    assert by_node(found, "worst") == {
        "Market Analyst": 4 * 7 * 2,
        "Bull Researcher": 4 * 2 * 2,
        "Bear Researcher": 4 * 2 * 2,
        "Research Manager": 4 * 3 * 2,
        "Trader": 4 * 3 * 2,
        "Aggressive Analyst": 4 * 2,
        "Conservative Analyst": 4 * 2,
        "Neutral Analyst": 4 * 2,
        "Portfolio Manager": 4 * 3 * 2,
        "Reflector": 4,
    }
    expected = by_node(found, "expected")
    assert (expected["Market Analyst"], expected["Bull Researcher"]) == (8, 8)
    assert (expected["Trader"], expected["Reflector"]) == (4, 4)
    assert set(by_node(found, "basis").values()) == {"characters"}
    assert {node.cost_usd for node in found.nodes} == {None}
    assert (found.total.cost_usd, found.total.worst_cost_usd) == (None, None)
    assert found.total.input_tokens == sum(by_node(found, "input_tokens").values()) > 1000
    # Nothing was written.
    assert sorted(path.name for path in workspace.path.iterdir()) == ["data"]
    assert sorted(path.name for path in workspace.data.iterdir()) == ["snapshots"]


def test_a_stopped_run_is_exact_as_far_as_it_went_and_a_finished_one_altogether(
    workspace: Workspace,
) -> None:
    with OpenAIServer(by_the_rules) as server:
        config = config_for(workspace, server.url, max_calls=15)
        with pytest.raises(BudgetReached):
            run(config, api_keys=KEYS, tariff=TARIFF)
        stopped = estimate(config, workspace.snapshot, TARIFF)
        result = run(config_for(workspace, server.url), api_keys=KEYS, tariff=TARIFF)
        needed = len(server.requests)
    finished = estimate(config, workspace.snapshot, TARIFF)
    other = estimate(config_for(workspace, horizon=4), workspace.snapshot, TARIFF)

    # One cell is decided, its neighbour begun; the others wait for what they would learn.
    assert (stopped.kept, stopped.recorded, stopped.begun, stopped.open) == (1, 0, 1, 2)
    a_cell = needed // 4 - 1
    assert stopped.total.served == 15 - a_cell
    # Cells are alike here, so what the decided one took is what the others will.
    assert stopped.total.expected == needed - 15
    assert stopped.total.worst > stopped.total.expected
    # No lesson is recorded yet, so the size of its call comes from its characters.
    reflector = stopped.nodes[-1]
    assert (reflector.node, reflector.basis, reflector.expected) == ("Reflector", "characters", 4)
    assert {node.basis for node in stopped.nodes[:-1]} == {"recorded"}
    assert [node.cost_usd for node in stopped.nodes[:-1]] == [
        25.0 * node.expected for node in stopped.nodes[:-1]
    ]
    assert stopped.spent == "15 paid calls, 375.0000 USD"
    assert (finished.kept, finished.exact, finished.total.worst) == (4, True, 0)
    assert (finished.total.cost_usd, finished.total.worst_cost_usd) == (0.0, 0.0)
    assert len(read_spend(result.folder / "spend.jsonl")) == needed
    # Another horizon is another run: its lessons are not recorded, and the cells that would be
    # shown them wait for them.
    assert (other.kept, other.recorded, other.open, other.lessons_there) == (0, 2, 2, 0)


def test_a_run_without_memory_is_walked_to_its_end(workspace: Workspace) -> None:
    config = workspace.config(analysts=("market",), memory="off", end=date(2018, 1, 12))
    run(config)
    longer = workspace.config(analysts=("market",), memory="off", end=date(2018, 1, 19))
    found = estimate(longer, workspace.snapshot, Tariff())
    assert (found.kept, found.recorded, found.begun, found.open) == (0, 4, 0, 2)
    assert (found.lessons, found.exact) == (0, False)
    # Rulebook calls are free, so their cost is known.
    assert found.total.cost_usd == 0.0


def test_a_refresh_asks_everything_anew(workspace: Workspace) -> None:
    config = workspace.config(analysts=("market",), end=date(2018, 1, 5))
    run(config)
    found = estimate(config.model_copy(update={"mode": "refresh"}), workspace.snapshot, Tariff())
    assert (found.kept, found.recorded, found.open) == (0, 0, 2)


def test_the_command_prints_a_table_or_json_and_needs_no_key(
    workspace: Workspace, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(workspace.path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    words = ["plan", "--tickers", "AAA", "--start", "2018-01-02", "--end", "2018-01-05"]
    words += ["--snapshot", "small", "--benchmark", "^GSPC", "--analysts", "market"]
    words += ["--provider", "openai", "--model", "nobody-knows"]
    assert cli.run([*words, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert cli.run(words) == 0
    table = capsys.readouterr().out

    assert (document["cells"], document["exact"], document["total"]["cost_usd"]) == (1, False, None)
    # One cell, tried three times at most, and its lesson.
    assert document["total"]["worst"] == 3 * (7 + 1 + 1 + 3 + 3 + 1 + 1 + 1 + 3) + 1
    assert document["first"] == "2018-01-05T21:00:00+00:00"
    (total,) = [line for line in table.splitlines() if line.startswith("total")]
    assert total.split()[1:4] == ["0", str(document["total"]["expected"]), "64"]
    assert total.split()[-2:] == ["unknown", "unknown"]
    assert "the price of openai:nobody-knows is unknown" in table
    # What a model will write is known to nobody: of tokens and dollars there is no worst case.
    assert "in the worst case too" in table
    assert "max_cost_usd is what bounds the bill" in table
    assert not workspace.reports.exists()
