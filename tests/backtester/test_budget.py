"""Caps on runs and cells, through a real client: what stops, what is kept, what it cost."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from backtester import cli
from backtester.backtest import run
from backtester.config import RunConfig
from backtester.desk.desk import Desk
from backtester.errors import BudgetReached, ProviderError, UsageError
from backtester.packs.replays import replay
from backtester.replies.cache import ReplyCache
from backtester.runs.folder import RunFolder, list_runs
from backtester.runs.journal import read_ledger
from backtester.spending.ledger import read_spend
from backtester.spending.tariff import Price, Tariff
from backtester.store.query import fetch_arrow
from backtester.walk.plan import cache_folder
from tests.support.openai_server import (
    Act,
    OpenAIServer,
    Received,
    completion,
    error,
    hang,
    malformed,
)
from tests.support.rulebook_server import Fault, by_the_rules, faulty, is_about
from tests.support.workspaces import Workspace, make_workspace

KEYS = {"openai_compatible": "sk-TEST-SECRET-123"}
MILLION = 1_000_000
# The server reports 11 tokens in and 7 out for every call: 11 + 14 = 25 dollars.
TARIFF = Tariff(
    prices={
        f"openai_compatible:{model}": Price(
            input_per_million=MILLION, output_per_million=2 * MILLION
        )
        for model in ("stub-quick", "stub-deep")
    }
)
CALL_USD = 25.0
MODELS_FILE = """
[models.openai_compatible."stub-quick"]
price = { input = 1_000_000.0, output = 2_000_000.0 }
[models.openai_compatible."stub-deep"]
price = { input = 1_000_000.0, output = 2_000_000.0 }
"""


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return make_workspace(tmp_path)


def config_for(workspace: Workspace, server: OpenAIServer, **changes: Any) -> RunConfig:
    return workspace.wired(
        server.url,
        **{"analysts": ("market",), "end": date(2018, 1, 12), "cell_retries": 2, **changes},
    )


@dataclass(frozen=True)
class Whole:
    """The same run without a cap, made elsewhere."""

    root: str
    requests: int


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    workspace = make_workspace(tmp_path_factory.mktemp("whole"))
    with OpenAIServer(by_the_rules) as server:
        result = run(config_for(workspace, server), api_keys=KEYS)
        return Whole(root=result.root, requests=len(server.requests))


def folder_of(workspace: Workspace) -> RunFolder:
    (folder,) = list_runs(workspace.reports)
    return folder


def rows(workspace: Workspace, query: str) -> list[dict[str, Any]]:
    return fetch_arrow(workspace.reports / "results.duckdb", query).to_pylist()


# ---------------------------------------------------------------------------------- caps of a run


def test_a_cap_on_calls_stops_the_run_and_a_higher_one_ends_in_the_root_of_a_run_without(
    workspace: Workspace, whole: Whole
) -> None:
    needed = whole.requests
    with OpenAIServer(by_the_rules) as server:
        with pytest.raises(BudgetReached) as stopped:
            run(config_for(workspace, server, max_calls=15), api_keys=KEYS)
        asked = len(server.requests)
        folder = folder_of(workspace)
        states = rows(workspace, "SELECT status, count(*) AS n FROM cells GROUP BY ALL ORDER BY 1")
        status = folder.read_manifest().status
        paid = rows(workspace, "SELECT sum(calls)::BIGINT AS n, min(day) AS day FROM cost_by_day")
        with pytest.raises(BudgetReached, match="max_calls = 15 is reached: 15 paid calls"):
            run(config_for(workspace, server, max_calls=15), api_keys=KEYS)
        # What an earlier command paid fills the cap of this one.
        assert len(server.requests) == 15
        result = run(config_for(workspace, server, max_calls=needed), api_keys=KEYS)
        in_all = len(server.requests)

    assert "raise the cap and run the same command to go on" in str(stopped.value)
    assert asked == len(read_spend(folder.spend_path)[:15]) == 15
    assert states == [{"status": "done", "n": 1}, {"status": "skipped_budget", "n": 1}]
    assert status == "budget_reached"
    assert paid == [{"n": 15, "day": read_spend(folder.spend_path)[0].paid_at.date()}]
    # Nothing was asked twice, by three commands.
    assert in_all == needed == len(read_spend(folder.spend_path))
    assert result.counts == {"done": 4}
    assert result.root == whole.root
    assert replay(RunFolder(result.folder), workspace.data).equal


def test_a_cap_that_comes_before_a_lesson_stops_there_and_the_lesson_is_written_on_resume(
    workspace: Workspace, whole: Whole
) -> None:
    # Two cells take 24 calls; the 25th and 26th are the lessons that the next two are shown.
    with OpenAIServer(by_the_rules) as server:
        with pytest.raises(BudgetReached, match="2 of 4 cells are decided"):
            run(config_for(workspace, server, max_calls=25), api_keys=KEYS)
        cells = rows(workspace, "SELECT count(*) AS n FROM cells")
        lessons = rows(workspace, "SELECT lesson_status AS word FROM memory ORDER BY ticker")
        result = run(config_for(workspace, server), api_keys=KEYS)
        assert len(server.requests) == whole.requests
    assert cells == [{"n": 2}]
    assert [row["word"] for row in lessons] == ["written", "failed"]
    assert result.root == whole.root


def test_workers_exceed_a_cap_on_cost_by_the_calls_under_way_at_most(
    workspace: Workspace,
) -> None:
    with OpenAIServer(by_the_rules) as server:
        config = config_for(workspace, server, workers=4, max_cost_usd=10 * CALL_USD)
        with pytest.raises(BudgetReached, match=r"max_cost_usd = 250 is reached: \d+ paid calls"):
            run(config, api_keys=KEYS, tariff=TARIFF)
        asked = len(server.requests)
    spent = read_spend(folder_of(workspace).spend_path)
    assert asked == len(spent)
    assert [record.cost_usd for record in spent] == [CALL_USD] * len(spent)
    # What is expected of a call (its characters / 4) is dearer here than what it costs, so calls
    # wait for each other near the cap, and it is met to the call.
    assert len(spent) == 10


def test_a_cap_on_calls_is_never_exceeded_by_many_workers(workspace: Workspace) -> None:
    def slowly(received: Received) -> Act:
        answer = by_the_rules(received)
        return Act(status=answer.status, body=answer.body, delay_s=0.02)

    with OpenAIServer(slowly) as server:
        config = config_for(workspace, server, workers=4, max_calls=6)
        with pytest.raises(BudgetReached, match="max_calls = 6"):
            run(config, api_keys=KEYS)
        assert len(server.requests) == 6


def test_a_cap_on_cost_without_a_price_is_refused_before_anything_is_made(
    workspace: Workspace,
) -> None:
    with OpenAIServer(by_the_rules) as server:
        for name in ("max_cost_usd", "cell_max_cost_usd"):
            config = config_for(workspace, server, **{name: 1.0})
            with pytest.raises(UsageError) as refused:
                run(config, api_keys=KEYS)
            said = str(refused.value)
            assert f"{name} cannot hold" in said
            assert "openai_compatible:stub-quick and openai_compatible:stub-deep" in said
            assert "models_file" in said
        assert server.requests == []
    assert not workspace.reports.exists()


def test_minutes_are_those_of_one_command_by_the_clock_that_was_handed_in(
    workspace: Workspace,
) -> None:
    config = workspace.config(analysts=("market",), max_minutes=10.0)
    # The clock is looked at as the run begins, at each cutoff and for each cell: 1 minute a look.
    looks = itertools.count(step=60)
    with pytest.raises(BudgetReached, match="max_minutes = 10 is reached: 0 paid calls"):
        run(config, clock=lambda: float(next(looks)))
    first = rows(workspace, "SELECT count(*) AS n FROM cells")[0]["n"]
    result = run(config, clock=lambda: 0.0)
    assert 0 < first < 10
    assert result.counts == {"done": 10}
    assert result.kept == first


@dataclass
class Killed:
    """A process that dies right after a paid call was written down."""

    workspace: Workspace
    server: OpenAIServer
    after: int
    script: str = field(
        default="""
import json, os, signal, sys
from backtester.spending import ledger as spend
from backtester.backtest import run
from backtester.config import RunConfig
append, after = spend.SpendLedger.append, int(sys.argv[2])
written = []
def append_and_die(self, record):
    append(self, record)
    written.append(record)
    if len(written) == after:
        os.kill(os.getpid(), signal.SIGKILL)
spend.SpendLedger.append = append_and_die
run(RunConfig(**json.loads(sys.argv[1])), api_keys={"openai_compatible": "sk-TEST-SECRET-123"})
"""
    )

    def die(self) -> int:
        config = config_for(self.workspace, self.server).model_dump(mode="json")
        words = [sys.executable, "-c", self.script, json.dumps(config), str(self.after)]
        done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=120)
        assert not done.stderr, done.stderr
        return done.returncode


def test_a_call_that_was_paid_for_is_counted_though_the_process_died_before_its_use(
    workspace: Workspace, whole: Whole
) -> None:
    needed = whole.requests
    with OpenAIServer(by_the_rules) as server:
        code = Killed(workspace, server, after=5).die()
        folder = folder_of(workspace)
        written = read_spend(folder.spend_path)
        cached = len(ReplyCache.open(cache_folder(workspace.data), read_only=True).keys())
        with pytest.raises(BudgetReached, match="max_calls = 5 is reached: 5 paid calls"):
            run(config_for(workspace, server, max_calls=5), api_keys=KEYS)
        asked = len(server.requests)
        result = run(config_for(workspace, server), api_keys=KEYS)
        in_all = len(server.requests)
    assert code == -9
    assert (len(written), cached, asked) == (5, 4, 5)
    # The fifth reply was lost with the process, and is the only one that was paid for twice.
    assert in_all == needed + 1 == len(read_spend(folder.spend_path))
    assert result.root == whole.root
    days = rows(workspace, "SELECT sum(calls)::BIGINT AS n FROM cost_by_day")
    assert days == [{"n": needed + 1}]


def test_the_command_line_says_in_one_line_what_was_spent_and_how_to_go_on(
    workspace: Workspace, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(workspace.path)
    (workspace.path / "mine.toml").write_text(MODELS_FILE)
    with OpenAIServer(by_the_rules) as server:
        fields = config_for(workspace, server, max_cost_usd=40.0, models_file="mine.toml")
        dumped = fields.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
        lines = [f"{name} = {json.dumps(value)}" for name, value in dumped.items()]
        (workspace.path / "run.toml").write_text("\n".join(lines))
        code = cli.run(["run", "run.toml"])
        said = capsys.readouterr()
        costs = cli.run(["run", "run.toml", "--set", "max_cost_usd=100000"])
        table = capsys.readouterr()
    assert code == 6
    (line,) = [line for line in said.err.splitlines() if "max_cost_usd" in line]
    assert line == (
        "error: max_cost_usd = 40 is reached: 2 paid calls, 50.0000 USD; 0 of 4 cells are decided "
        "and all that was paid for is kept: raise the cap and run the same command to go on"
    )
    assert costs == 0
    assert "2 replies from the cache" in table.out
    assert "saved 50.0000 USD" in table.out
    assert "knowledge cutoff of openai_compatible/stub-quick unknown" in table.out


def test_every_paid_call_is_in_the_ledger_and_in_the_table_a_failed_lesson_s_too(
    workspace: Workspace,
) -> None:
    refusals = [completion(None, refusal="I cannot help with that.")]

    def answer(received: Received) -> Act:
        # The first lesson that is asked for, of AAA on 2018-01-05, is refused once.
        reflects = received.body["messages"][0]["content"].startswith("Role: Reflector")
        return refusals.pop() if reflects and refusals else by_the_rules(received)

    with OpenAIServer(answer) as server:
        first = run(config_for(workspace, server), api_keys=KEYS, tariff=TARIFF)
        again = run(config_for(workspace, server), api_keys=KEYS, tariff=TARIFF)
        asked = len(server.requests)
    ledger = read_ledger(first.folder / "journal.jsonl")
    (failed,) = ledger.superseded_lessons
    assert (failed.lesson_status, failed.calls[0].finish_reason) == ("failed", "outcome:refusal")
    assert again.model_calls > 0
    # Beside them stand the calls of cells that were decided anew under another lesson.
    (paid,) = rows(
        workspace,
        "SELECT count(*) AS n, exact_sum(cost_usd) AS usd FROM llm_calls WHERE NOT hit",
    )
    (spent,) = rows(workspace, "SELECT count(*) AS n, exact_sum(cost_usd) AS usd FROM spend")
    assert paid == spent == {"n": asked, "usd": CALL_USD * asked}
    assert first.bill.cost_usd + again.bill.cost_usd == CALL_USD * asked


@pytest.mark.parametrize("trouble", ["hang", "drop", "unreadable"])
def test_what_was_sent_and_not_heard_is_a_paid_call_of_unknown_cost(
    workspace: Workspace, trouble: str
) -> None:
    acts = {"hang": hang(2.0), "drop": Act(drop=True), "unreadable": malformed()}
    silent = Fault(role="Market Analyst", day="2018-01-05", symbol="AAA", acts=(acts[trouble],))
    with OpenAIServer(faulty(silent)) as server:
        config = config_for(
            workspace, server, end=date(2018, 1, 5), tickers=("AAA",), timeout_s=0.5, max_tokens=500
        )
        result = run(config, api_keys=KEYS, tariff=TARIFF)
        asked = len(server.requests)
    lost, *heard = read_spend(result.folder / "spend.jsonl")
    assert len(heard) == asked - 1
    assert (lost.node, lost.finish_reason, lost.cost_usd) == ("Market Analyst", "lost", None)
    assert (lost.input_tokens, lost.output_tokens) == (None, None)
    # What caps count of it: the request by its characters, and a reply as long as it may be.
    assert lost.counted_usd > 2 * 500
    assert (lost.counted_usd - 2 * 500) % 1 == 0
    (row,) = rows(workspace, "SELECT count(*) AS n, count(cost_usd) AS known FROM spend")
    assert row == {"n": asked, "known": asked - 1}
    assert result.counts == {"done": 1}


def test_calls_that_nobody_answers_fill_the_caps_of_a_run(workspace: Workspace) -> None:
    with OpenAIServer(hang(2.0)) as server:
        config = config_for(workspace, server, max_calls=2, max_retries=5, timeout_s=0.1)
        with pytest.raises(BudgetReached, match="max_calls = 2 is reached: 2 paid calls, cost unk"):
            run(config, api_keys=KEYS)
        assert len(server.requests) == 2
    with OpenAIServer(malformed()) as server:
        config = config_for(workspace, server, max_cost_usd=1.0, tickers=("BBB",))
        with pytest.raises(BudgetReached, match="max_cost_usd = 1 is reached: 1 paid calls"):
            run(config, api_keys=KEYS, tariff=TARIFF)
        assert len(server.requests) == 1


def test_what_a_provider_refuses_or_a_port_without_one_is_not_paid(workspace: Workspace) -> None:
    with OpenAIServer(error(400, "no such model")) as server:
        config = config_for(workspace, server, cell_retries=0)
        with pytest.raises(ProviderError):
            run(config, api_keys=KEYS)
    with pytest.raises(ProviderError, match="cannot be reached"):
        run(
            config.model_copy(update={"base_url": "http://127.0.0.1:9/v1", "tickers": ("BBB",)}),
            api_keys=KEYS,
        )
    assert not list(workspace.reports.rglob("spend.jsonl"))


# --------------------------------------------------------------------------------- caps of a cell


def dear(role: str, day: str, symbol: str) -> Callable[[Received], Act]:
    """Answer by the rules, with a large bill for one role of one cell."""

    def answer(received: Received) -> Act:
        act = by_the_rules(received)
        if is_about(received, role=role, day=day, symbol=symbol):
            usage = {"prompt_tokens": 900, "completion_tokens": 100, "total_tokens": 1000}
            return Act(body={**act.body, "usage": usage})
        return act

    return answer


@pytest.mark.parametrize(
    "cap",
    [{"cell_max_tokens": 1000}, {"cell_max_cost_usd": 1000.0}],
    ids=["tokens", "cost"],
)
def test_a_cell_over_its_cap_fails_alone_is_not_paid_again_and_replays(
    workspace: Workspace, whole: Whole, cap: dict[str, Any]
) -> None:
    with OpenAIServer(dear("Bull Researcher", "2018-01-05", "AAA")) as server:
        first = run(config_for(workspace, server, **cap), api_keys=KEYS, tariff=TARIFF)
        asked = len(server.requests)
        found = replay(RunFolder(first.folder), workspace.data)
        again = run(config_for(workspace, server, **cap), api_keys=KEYS, tariff=TARIFF)
        unasked = len(server.requests)
        raised = run(config_for(workspace, server), api_keys=KEYS, tariff=TARIFF)
        in_all = len(server.requests)
    cell = next(iter(read_ledger(first.folder / "journal.jsonl").superseded))
    assert first.counts == {"done": 3, "failed": 1}
    assert (cell.status, cell.error_class) == ("failed", "cell_budget")
    (name,) = cap
    assert str(cell.error).startswith(f"{name} = 1000 is reached")
    assert [call.node for call in cell.calls][-1] == "Bull Researcher"
    assert (found.equal, found.misses) == (True, ())
    assert (again.counts, again.model_calls, unasked) == (first.counts, 0, asked)
    assert raised.counts == {"done": 4}
    assert raised.root == whole.root
    # Both cells of the second Friday were decided anew, with the lesson that they had missed.
    assert in_all == whole.requests + 2


@pytest.mark.parametrize(
    "cap",
    [{"cell_max_tokens": 1000}, {"cell_max_cost_usd": 1000.0}],
    ids=["tokens", "cost"],
)
def test_a_cap_of_cells_ends_them_at_the_same_call_whatever_the_cache_holds(
    workspace: Workspace, tmp_path: Path, cap: dict[str, Any]
) -> None:
    """The rows that a cold cache gives are those that a full one gives."""
    with OpenAIServer(dear("Bull Researcher", "2018-01-05", "AAA")) as server:
        cold = run(config_for(workspace, server, **cap), api_keys=KEYS, tariff=TARIFF)
        # Without a cap the cache gets every reply, those after the dear one as well.
        free = {"reports_dir": tmp_path / "free"}
        run(config_for(workspace, server, **free), api_keys=KEYS, tariff=TARIFF)
        asked = len(server.requests)
        warm_place = {"reports_dir": tmp_path / "warm"}
        warm = run(config_for(workspace, server, **cap, **warm_place), api_keys=KEYS, tariff=TARIFF)
        assert len(server.requests) == asked
    assert warm.run_id == cold.run_id
    assert warm.counts == cold.counts == {"done": 3, "failed": 1}
    assert warm.root == cold.root


# ---------------------------------------------------------------------------- a single decision


def test_a_single_decision_stops_at_a_cap_and_goes_on_from_there(workspace: Workspace) -> None:
    with OpenAIServer(by_the_rules) as server:
        settings = config_for(workspace, server).model_dump(
            include={
                *("provider", "base_url", "endpoint_alias", "quick_model", "deep_model"),
                *("analysts", "benchmark", "horizon", "max_retries"),
            }
        )
        desk = Desk(
            workspace.snapshot,
            memory="mine",
            data_dir=workspace.data,
            reports_dir=workspace.reports,
            api_keys=KEYS,
        )
        day = date(2018, 1, 5)
        with pytest.raises(BudgetReached, match="max_calls = 3 is reached: 3 paid calls"):
            desk.decide({**settings, "max_calls": 3}, "AAA", day)
        with pytest.raises(BudgetReached, match="cell_max_tokens = 1 is reached"):
            desk.decide({**settings, "cell_max_tokens": 1}, "AAA", day)
        analysis = desk.decide(settings, "AAA", day)
        asked = len(server.requests)
    spent = read_spend(workspace.reports / "analyses" / "spend.jsonl")
    assert analysis.record.status == "done"
    assert sum(call.hit for call in analysis.record.calls) == 3
    assert asked == len(spent) == len(analysis.record.calls)
