"""The Python door: the same house as the command line and the backtest."""

from __future__ import annotations

import json
import threading
from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.outputs import LLMResult

from backtester import TradingAgentsGraph, cli
from backtester.backtest import run
from backtester.errors import DataError, UsageError
from backtester.journal import read_ledger
from backtester.records import CellRecord
from tests.support.records import make_key
from tests.support.workspaces import Workspace, make_workspace

CONFIG: dict[str, Any] = {"horizon": 3, "benchmark": "^GSPC"}


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return make_workspace(tmp_path)


def graph_at(workspace: Workspace, *positional: Any, **options: Any) -> TradingAgentsGraph:
    fields: dict[str, Any] = {
        "config": CONFIG,
        "snapshot": "small",
        "data_dir": workspace.data,
        "reports_dir": workspace.reports,
    }
    return TradingAgentsGraph(*positional, **{**fields, **options})


# ------------------------------------------------------------------------------------ two doors


def cell_of(journal: Path) -> CellRecord:
    (cell,) = read_ledger(journal).cells.values()
    return cell


def memory_rows(journal: Path) -> int:
    return len(read_ledger(journal).lessons)


# AAA's window is over within the snapshot on the first day, and is not on the last.
@pytest.mark.parametrize("day", ["2018-01-05", "2018-03-13"])
def test_analyze_propagate_and_a_run_of_one_cell_are_one_thing(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, day: str
) -> None:
    monkeypatch.chdir(workspace.path)
    analyze = ["analyze", "AAA", day, "--snapshot", "small", "--memory", "first"]
    assert cli.run([*analyze, "--benchmark", "^GSPC", "--set", "horizon=3"]) == 0
    first = workspace.reports / "memory" / "first" / "journal.jsonl"

    graph = graph_at(workspace, memory="second")
    _, decision = graph.propagate("AAA", day)
    second = workspace.reports / "memory" / "second" / "journal.jsonl"

    day_of_run = date.fromisoformat(day)
    result = run(workspace.config(tickers=("AAA",), start=day_of_run, end=day_of_run, grid="daily"))
    third = result.folder / "journal.jsonl"

    cells = [cell_of(journal) for journal in (first, second, third)]
    assert len({tuple(call.key for call in cell.calls) for cell in cells}) == 1
    assert len({cell.rating for cell in cells}) == 1
    assert decision.rating == cells[0].rating is not None
    assert [memory_rows(journal) for journal in (first, second, third)] == [1, 1, 1]
    assert not any(call.hit for call in cells[0].calls)
    assert all(call.hit for cell in cells[1:] for call in cell.calls)
    # To decide costs the run nothing either; its own end reflects, where there is a result.
    (lesson,) = read_ledger(third).lessons.values()
    assert result.model_calls == len(lesson.calls) == (0 if day == "2018-03-13" else 1)


# -------------------------------------------------------------------------------- what comes back


def test_the_state_has_the_fields_that_programs_read(workspace: Workspace) -> None:
    graph = graph_at(workspace)
    state, decision = graph.propagate("AAA", "2018-01-05")

    assert state["company_of_interest"] == "AAA"
    assert state["trade_date"] == "2018-01-05"
    assert state["investment_debate_state"]["count"] == 2
    assert state["risk_debate_state"]["count"] == 3
    assert state["final_trade_decision"] == decision.markdown
    assert json.loads(decision.typed)["rating"] == decision.rating
    assert graph.curr_state is state
    assert graph.process_signal(state["final_trade_decision"]) == decision.rating


def test_reports_are_saved_as_the_command_line_saves_them(workspace: Workspace) -> None:
    graph = graph_at(workspace)
    state, _ = graph.propagate("AAA", "2018-01-05")

    path = graph.save_reports(state, "AAA")

    assert path == workspace.reports / "AAA" / "2018-01-05" / "complete_report.md"
    assert (path.parent / "1_analysts" / "market.md").exists()
    assert state["market_report"].splitlines()[0] in path.read_text(encoding="utf-8")


def test_the_full_state_and_the_decision_log_are_on_disk(workspace: Workspace) -> None:
    graph = graph_at(workspace, memory="mine")
    state, decision = graph.propagate("AAA", "2018-01-05")

    (log,) = (workspace.reports / "analyses").glob("*/full_states_log_2018-01-05.json")
    assert json.loads(log.read_text(encoding="utf-8"))["market_report"] == state["market_report"]
    text = (workspace.reports / "memory" / "mine" / "decisions.md").read_text(encoding="utf-8")
    assert text.startswith(f"[2018-01-05 | AAA | {decision.rating} | pending")


def test_analysts_are_chosen_and_ordered_by_the_caller(workspace: Workspace) -> None:
    state, _ = graph_at(workspace, ["fundamentals", "market"]).propagate("AAA", "2018-01-05")

    assert state["market_report"]
    assert state["fundamentals_report"]
    assert state["news_report"] == ""


def test_bad_arguments_are_told(workspace: Workspace) -> None:
    graph = graph_at(workspace)

    with pytest.raises(UsageError, match="YYYY-MM-DD"):
        graph.propagate("AAA", "05.01.2018")
    with pytest.raises(DataError, match="not in snapshot small"):
        graph.propagate("ZZZ", "2018-01-05")
    with pytest.raises(UsageError, match="name at least one"):
        graph_at(workspace, []).propagate("AAA", "2018-01-05")


# ------------------------------------------------------------------------------- debug, callbacks


class Counting(BaseCallbackHandler):
    def __init__(self) -> None:
        self.heard: Counter[str] = Counter()
        self._lock = threading.Lock()

    def on_chat_model_start(self, *args: Any, **kwargs: Any) -> None:
        with self._lock:
            self.heard["start"] += 1

    def on_llm_end(self, response: LLMResult, **kwargs: Any) -> None:
        with self._lock:
            self.heard["end"] += 1


def test_callbacks_hear_every_call_and_change_nothing(workspace: Workspace) -> None:
    _, plain = graph_at(workspace, memory="off").propagate("AAA", "2018-01-05")
    handler = Counting()
    graph = graph_at(workspace, callbacks=[handler], memory="off")

    _, decision = graph.propagate("AAA", "2018-01-05")

    assert graph.analysis is not None
    calls = graph.analysis.record.calls
    assert handler.heard == {"start": len(calls), "end": len(calls)}
    assert all(call.hit for call in calls)
    assert decision.state == plain.state


def test_debug_streams_node_by_node(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    graph_at(workspace, None, True).propagate("AAA", "2018-01-05")

    out, err = capsys.readouterr()
    assert out == ""
    places = [err.index(f"--- {node} ") for node in ("Market Analyst", "Trader")]
    assert places == sorted(places)


def test_two_graphs_with_other_settings_in_two_threads_do_not_see_each_other(
    workspace: Workspace,
) -> None:
    def settings(rounds: int) -> dict[str, Any]:
        return {**CONFIG, "max_debate_rounds": rounds}

    graphs = [graph_at(workspace, config=settings(rounds)) for rounds in (1, 2)]
    threads = [
        threading.Thread(target=graph.propagate, args=(ticker, "2018-01-05"))
        for graph, ticker in zip(graphs, ("AAA", "BBB"), strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    counts = [(graph.curr_state or {})["investment_debate_state"]["count"] for graph in graphs]
    assert counts == [2, 4]
    # Both wrote to one memory, and neither lost the other's row.
    ledger = read_ledger(workspace.reports / "memory" / "default" / "journal.jsonl")
    assert set(ledger.cells) == {make_key("AAA", "2018-01-05"), make_key("BBB", "2018-01-05")}


# ------------------------------------------------------------------------------------- reflection


@pytest.mark.parametrize(
    ("told", "earned"), [(0.032, 0.032), ("+3.2%", 0.032), ("-5 %", -0.05), (0, 0.0)]
)
def test_a_told_result_becomes_a_lesson(
    workspace: Workspace, told: float | str, earned: float
) -> None:
    graph = graph_at(workspace, memory="mine")
    graph.propagate("AAA", "2018-01-05")

    lesson = graph.reflect_and_remember(told)

    (row,) = read_ledger(workspace.reports / "memory" / "mine" / "journal.jsonl").lessons.values()
    assert (row.lesson, row.raw_return) == (lesson, pytest.approx(earned))
    state, _ = graph.propagate("AAA", "2018-01-19")
    assert lesson in state["past_context"]


def test_reflection_needs_a_decision_a_return_and_a_memory(workspace: Workspace) -> None:
    graph = graph_at(workspace, memory="off")

    with pytest.raises(UsageError, match="call propagate first"):
        graph.reflect_and_remember(0.01)
    graph.propagate("AAA", "2018-01-05")
    with pytest.raises(UsageError, match="is no return"):
        graph.reflect_and_remember("a lot")
    with pytest.raises(UsageError, match="is no return"):
        graph.reflect_and_remember(-1.5)
    with pytest.raises(UsageError, match="memory is off"):
        graph.reflect_and_remember(0.01)
