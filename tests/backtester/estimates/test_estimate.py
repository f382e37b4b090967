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
from backtester.estimates.estimate import Estimate, estimate
from backtester.replies.cache import ReplyCache
from backtester.spending.ledger import read_spend
from backtester.spending.tariff import Price, Tariff
from backtester.walk.plan import cache_folder
from tests.support.openai_server import Act, OpenAIServer, Received, completion
from tests.support.rulebook_server import by_the_rules
from tests.support.workspaces import Workspace, make_workspace

KEYS = {"openai_compatible": "sk-TEST-SECRET-123"}
PRICE = Price(input_per_million=1_000_000.0, output_per_million=2_000_000.0)
TARIFF = Tariff(prices={f"openai_compatible:{name}": PRICE for name in ("stub-quick", "stub-deep")})


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return make_workspace(tmp_path)


def config_for(workspace: Workspace, url: str = "http://127.0.0.1:9/v1", **more: Any) -> RunConfig:
    return workspace.wired(
        url, **{"analysts": ("market",), "end": date(2018, 1, 12), "cell_retries": 1, **more}
    )


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
    # Another horizon is another run: its lessons are not recorded, and of the cells that would be
    # shown them all is recorded but for what the portfolio manager says.
    assert (other.kept, other.recorded, other.begun, other.open) == (0, 2, 2, 0)
    assert other.lessons_there == 0


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
    assert document["total"]["worst_tokens"] is None
    assert "worst case unknown: nothing limits a reply: set max_tokens" in table
    assert "expected: an estimate" in table
    assert "max_cost_usd and max_calls bound the bill whatever happens" in table
    assert not workspace.reports.exists()


# ---------------------------------------------------------------------------- what bounds a bill

LIMIT = 200


def at_the_limit(received: Received) -> Act:
    """Write as much as allowed, call tools as long as they are offered, and fill in no form.

    A token is two characters here, of requests as of replies.
    """
    body = received.body
    act = by_the_rules(received)
    message = act.body["choices"][0]["message"]
    role = str(body["messages"][0]["content"]).partition("\n")[0]
    opening = "Rating: Buy\n" if role == "Role: Portfolio Manager" else "word "
    filled = "response_format" in body or (body.get("tools") and body.get("tool_choice") != "none")
    if filled and not message.get("tool_calls"):
        opening = "nothing that fits "
    offered = body.get("tools") and body.get("tool_choice") != "none"
    if offered:
        # Each turn looks up all that the first one of the rules does.
        first = {**body, "messages": body["messages"][:2]}
        asked = by_the_rules(Received(path=received.path, headers={}, body=first))
        message = asked.body["choices"][0]["message"]
    calls = message.get("tool_calls")
    written = 2 * LIMIT - len(json.dumps(calls)) if calls else 2 * LIMIT
    usage = {
        "prompt_tokens": len(json.dumps([body["messages"], body.get("tools")])) // 2,
        "completion_tokens": LIMIT,
        "total_tokens": 0,
    }
    return completion(
        opening + "x" * max(written - len(opening), 0),
        tool_calls=calls,
        finish_reason="tool_calls" if calls else "stop",
        usage=usage,
    )


def test_what_is_paid_is_no_more_than_was_said_though_every_reply_is_at_its_limit(
    workspace: Workspace,
) -> None:
    with OpenAIServer(at_the_limit) as server:
        config = config_for(
            workspace,
            server.url,
            cell_retries=0,
            max_tokens=LIMIT,
            max_debate_rounds=2,
            max_risk_discuss_rounds=2,
        )
        said = estimate(config, workspace.snapshot, TARIFF)
        result = run(config, api_keys=KEYS, tariff=TARIFF)
    spent = read_spend(result.folder / "spend.jsonl")
    assert result.counts == {"done": 4}
    # Every call that could be made was made, so the bound on calls is met.
    assert len(spent) == said.total.worst
    for node in said.nodes:
        paid = [record for record in spent if record.node == node.node]
        tokens = sum((each.input_tokens or 0) + (each.output_tokens or 0) for each in paid)
        dollars = sum(each.cost_usd or 0.0 for each in paid)
        assert node.worst_tokens is not None
        assert node.worst_cost_usd is not None
        assert node.worst == len(paid)
        # No more; and no idle figure either: text is counted twice what it is here, and each turn
        # with tools as one that asks for all that the rulebook takes three turns for.
        assert node.worst_tokens / 6 < tokens <= node.worst_tokens, node.node
        assert node.worst_cost_usd / 6 < dollars <= node.worst_cost_usd, node.node
    assert said.total.worst_cost_usd == pytest.approx(
        sum(node.worst_cost_usd or 0.0 for node in said.nodes)
    )
    # What is expected is an estimate, and such replies are more than it.
    assert (said.total.cost_usd or 0.0) < sum(each.cost_usd or 0.0 for each in spent)


def test_prompts_grow_with_the_limit_of_the_replies_that_they_quote(workspace: Workspace) -> None:
    def most(limit: int) -> dict[str, Any]:
        config = config_for(workspace, max_tokens=limit, end=date(2018, 1, 5), tickers=("AAA",))
        found = estimate(config.model_copy(update={"cell_retries": 0}), workspace.snapshot, TARIFF)
        return by_node(found, "worst_tokens")

    short, long = most(100), most(1100)
    more = {node: (long[node] - short[node]) // 1000 for node in long}
    # 7 turns of the analyst: 7 replies, and 0 + 1 + .. + 6 earlier ones in the prompts.
    assert more["Market Analyst"] == 7 + 21
    # The bull reads the report; the bear besides what the bull said, twice.
    assert (more["Bull Researcher"], more["Bear Researcher"]) == (1 + 1, 1 + 3)
    # Three calls, each with the report and the debate of two; the repair quotes what was wrong.
    assert more["Research Manager"] == 3 + 3 * 3 + 1
    # Three calls, each with the report and the plan.
    assert more["Trader"] == 3 + 3 * 2 + 1
    assert more["Reflector"] == 1 + 1


def test_without_a_limit_on_replies_there_is_no_worst_case_but_for_what_is_free(
    workspace: Workspace,
) -> None:
    found = estimate(config_for(workspace), workspace.snapshot, TARIFF)
    assert (found.total.worst_tokens, found.total.worst_cost_usd) == (None, None)
    assert found.total.worst_reason == "nothing limits a reply: set max_tokens"
    assert found.total.cost_usd is not None
    free = estimate(workspace.config(analysts=("market",)), workspace.snapshot, TARIFF)
    assert (free.total.worst_tokens, free.total.worst_cost_usd) == (None, 0.0)


def test_a_limit_that_a_provider_wants_in_every_request_bounds_replies_too(
    workspace: Workspace,
) -> None:
    pytest.importorskip("langchain_anthropic")
    model = {"provider": "anthropic", "quick_model": "m", "deep_model": "m", "base_url": None}
    config = config_for(workspace, **{**model, "endpoint_alias": None}, end=date(2018, 1, 5))
    price = Price(input_per_million=1.0, output_per_million=5.0)
    found = estimate(config, workspace.snapshot, Tariff(prices={"anthropic:m": price}))
    assert found.total.worst_reason == ""
    trader = by_node(found, "worst_tokens")["Trader"]
    # Each of two cells is tried twice: 3 replies of 16,000 tokens, and those in the prompts.
    assert trader > 2 * 2 * (3 + 3 * 2) * 16_000


def test_no_request_is_counted_as_larger_than_what_a_model_can_read(workspace: Workspace) -> None:
    workspace.path.joinpath("mine.toml").write_text(
        '[models.openai_compatible."stub-deep"]\ncontext = { tokens = 5000 }\n'
    )
    mine = workspace.path / "mine.toml"
    config = config_for(workspace, max_tokens=4000, models_file=mine, cell_retries=0)
    found = estimate(config, workspace.snapshot, TARIFF)
    assert by_node(found, "worst_tokens")["Portfolio Manager"] == 4 * 3 * (5000 + 4000)


# --------------------------------------------------------------------------- what lessons change


def test_what_no_lesson_can_change_is_counted_exactly_and_what_it_can_is_named(
    workspace: Workspace,
) -> None:
    with OpenAIServer(by_the_rules) as server:
        run(config_for(workspace, server.url, analysts=("market", "news")), api_keys=KEYS)
        before = len(server.requests)
        config = config_for(workspace, server.url, analysts=("market", "news"), horizon=4)
        said = estimate(config, workspace.snapshot, TARIFF)
        run(config, api_keys=KEYS)
        asked = [
            str(request.body["messages"][0]["content"]).partition("\n")[0]
            for request in server.requests[before:]
        ]
    left = {node.node: (node.expected, node.worst) for node in said.nodes if node.worst}
    # Two cells are shown lessons; each of them may be tried twice, with three calls.
    assert left == {"Portfolio Manager": (2, 2 * 2 * 3), "Reflector": (4, 4)}
    assert said.dark_nodes == ("Portfolio Manager",)
    assert said.dark_from is not None
    assert said.dark_from.date() == date(2018, 1, 12)
    assert sorted(asked) == ["Role: Portfolio Manager"] * 2 + ["Role: Reflector"] * 4


def test_an_analyst_that_is_shown_lessons_hides_whoever_reads_him_and_no_other_analyst(
    workspace: Workspace,
) -> None:
    more = {"analysts": ("market", "news"), "lesson_roles": ("Market Analyst",)}
    with OpenAIServer(by_the_rules) as server:
        run(config_for(workspace, server.url, **more), api_keys=KEYS)
        config = config_for(workspace, server.url, **more, horizon=4)
        said = estimate(config, workspace.snapshot, TARIFF)
    open_nodes = [node.node for node in said.nodes if node.worst]
    assert "News Analyst" not in open_nodes
    assert open_nodes == [*said.dark_nodes, "Reflector"]
    assert said.dark_nodes[:2] == ("Market Analyst", "Bull Researcher")
    heads = [str(request.body["messages"][0]["content"]) for request in server.requests]
    asked = {
        node: sum(head.startswith(f"Role: {node}\n") for head in heads)
        for node in ("Market Analyst", "News Analyst")
    }
    served = by_node(said, "served")
    # Two of four cells are shown lessons.
    assert (served["Market Analyst"], served["News Analyst"]) == (
        asked["Market Analyst"] / 2,
        asked["News Analyst"],
    )


def test_a_lost_reply_leaves_open_what_reads_it_and_nothing_else(workspace: Workspace) -> None:
    config = workspace.config(
        analysts=("market", "news"), memory="off", end=date(2018, 1, 5), tickers=("AAA",)
    )
    run(config)
    cache = ReplyCache.open(cache_folder(workspace.data))
    (key,) = [record.key for record in cache.records() if record.node == "Bear Researcher"]
    cache.discard(key)
    cache.close()
    elsewhere = {"reports_dir": workspace.path / "elsewhere"}
    said = estimate(config.model_copy(update=elsewhere), workspace.snapshot, Tariff())
    assert (said.begun, said.open) == (1, 0)
    known = {node.node for node in said.nodes if not node.worst}
    assert known == {"Market Analyst", "News Analyst", "Bull Researcher"}
    assert (said.dark_from, said.dark_nodes) == (None, ())
