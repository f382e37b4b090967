"""The Python door: the same house as the command line and the backtest."""

from __future__ import annotations

import json
import threading
from collections import Counter
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.outputs import LLMResult

from backtester import DEFAULT_CONFIG, TradingAgentsGraph, cli
from backtester.backtest import run
from backtester.errors import DataError, UsageError
from backtester.records import CellRecord
from backtester.runs.journal import read_ledger
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
    assert row.lesson == lesson
    assert row.raw_return == pytest.approx(earned)
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


# ----------------------------------------------------------------------------- arguments, settings


def test_folders_snapshot_and_memory_may_stand_in_the_configuration(workspace: Workspace) -> None:
    config = {
        **CONFIG,
        "results_dir": str(workspace.path / "results"),
        "data_dir": str(workspace.data),
        "snapshot": "small",
        "memory": "off",
    }

    graph = TradingAgentsGraph(config=config)
    state, _ = graph.propagate("AAA", "2018-01-05")

    assert graph.snapshot.name == "small"
    report = graph.save_reports(state, "AAA")
    assert report.parents[2] == workspace.path / "results"
    assert {path.name for path in (workspace.path / "results").iterdir()} == {"AAA", "analyses"}


def test_an_argument_wins_over_the_configuration(workspace: Workspace) -> None:
    config = {
        **CONFIG,
        "results_dir": "elsewhere",
        "data_dir": "nowhere",
        "snapshot": "big",
        "selected_analysts": ["news"],
        "memory": "off",
    }

    graph = graph_at(workspace, ["market"], config=config, memory="mine")
    state, _ = graph.propagate("AAA", "2018-01-05")

    assert (state["market_report"] != "", state["news_report"]) == (True, "")
    assert (workspace.reports / "memory" / "mine" / "journal.jsonl").exists()


def test_two_names_of_one_setting_that_differ_are_refused(workspace: Workspace) -> None:
    with pytest.raises(UsageError, match="both set reports_dir"):
        graph_at(workspace, config={**CONFIG, "results_dir": "a", "reports_dir": "b"})


@pytest.mark.parametrize(
    "name", ["tickers", "start", "end", "grid", "trials", "warmup", "workers", "save_states"]
)
def test_what_the_question_says_may_not_stand_in_the_configuration(
    workspace: Workspace, name: str
) -> None:
    with pytest.raises(UsageError, match=f"config {name}: .*leave it out"):
        graph_at(workspace, config={**CONFIG, name: 1})


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"selected_analysts": "market"}, "selected_analysts 'market' is no list"),
        ({"selected_analysts": 5}, "selected_analysts 5 is no list"),
        ({"selected_analysts": [5]}, "analysts"),
        ({"callbacks": BaseCallbackHandler()}, "is no list: write one such as"),
        ({"config": "run.toml"}, "config 'run.toml' is no mapping"),
        ({"config": {"output_language": " "}}, "output_language: is empty"),
        ({"config": {"debug": True}}, "debug=True"),
        ({"memory": 5}, "5 is no name of a memory"),
        ({"data_dir": 5}, "data_dir: 5 is no path"),
    ],
)
def test_arguments_of_another_type_are_told(
    workspace: Workspace, arguments: dict[str, Any], says: str
) -> None:
    with pytest.raises(UsageError, match=says):
        graph_at(workspace, **arguments)


@pytest.mark.parametrize(
    ("ticker", "day", "says"),
    [
        ("AAA", None, "trade_date: None is no date"),
        ("AAA", 20180105, "trade_date: 20180105 is no date"),
        ("AAA", "20180105", "trade_date: '20180105' is no date"),
        ("AAA", "2018-W01-5", "trade_date: '2018-W01-5' is no date"),
        ("AAA", 1515110400.0, "is no date"),
        (None, "2018-01-05", "None"),
        (5, "2018-01-05", "5 is no text"),
        ("", "2018-01-05", "'' is no ticker"),
    ],
)
def test_a_question_of_another_type_is_told(
    workspace: Workspace, ticker: Any, day: Any, says: str
) -> None:
    with pytest.raises(UsageError, match=says):
        graph_at(workspace).propagate(ticker, day)


@pytest.mark.parametrize(
    "day", [date(2018, 1, 5), datetime(2018, 1, 5, 23, 59, tzinfo=UTC), "2018-01-05"]
)
def test_dates_of_python_are_dates(workspace: Workspace, day: date | str) -> None:
    graph = graph_at(workspace, memory="off")

    state, _ = graph.propagate(company_name="AAA", trade_date=day)

    assert state["trade_date"] == "2018-01-05"


TOKYO = timezone(timedelta(hours=9))


@pytest.mark.parametrize(
    ("instant", "says"),
    [
        # The decision of the 5th knows what happened until 21:00Z.
        (
            datetime(2018, 1, 5, 20, 59, tzinfo=UTC),
            "2018-01-05T20:59:00.00:00 is before 2018-01-05",
        ),
        # Saturday in Tokyo, and still Friday noon in New York.
        (datetime(2018, 1, 6, 1, 0, tzinfo=TOKYO), "before 2018-01-05 21:00Z, up to which"),
        (datetime(2018, 1, 5, 21, 0, tzinfo=UTC), None),
        (datetime(2018, 1, 6, 6, 0, tzinfo=TOKYO), None),
        # A midnight is another way to write a date.
        (datetime(2018, 1, 6, tzinfo=TOKYO), None),
    ],
)
def test_an_hour_before_what_the_decision_of_its_date_knows_is_refused(
    workspace: Workspace, instant: datetime, says: str | None
) -> None:
    graph = graph_at(workspace, memory="off")

    if says is not None:
        with pytest.raises(UsageError, match=says):
            graph.propagate("AAA", instant)
        return
    state, _ = graph.propagate("AAA", instant)
    assert state["trade_date"] == "2018-01-05"


@pytest.mark.parametrize("signal", [None, 5, b"**Rating**: Buy"])
def test_a_signal_that_is_no_text_is_told(workspace: Workspace, signal: Any) -> None:
    with pytest.raises(UsageError, match="is no text"):
        graph_at(workspace).process_signal(signal)


def test_reports_of_no_decision_are_told(workspace: Workspace) -> None:
    graph = graph_at(workspace)

    with pytest.raises(UsageError, match="give what propagate returns first"):
        graph.save_reports(graph.curr_state, "AAA")  # type: ignore[arg-type]


def test_callbacks_hear_the_lessons_of_earlier_decisions_too(workspace: Workspace) -> None:
    graph_at(workspace, memory="mine").propagate("AAA", "2018-01-05")
    handler = Counting()
    graph = graph_at(workspace, callbacks=[handler], memory="mine")

    graph.propagate("AAA", "2018-01-19")

    assert graph.analysis is not None
    lessons = [call for lesson in graph.analysis.settled for call in lesson.calls]
    assert len(lessons) == 1
    assert handler.heard["end"] == len(graph.analysis.record.calls) + 1


def test_a_told_return_is_heard_by_callbacks(workspace: Workspace) -> None:
    handler = Counting()
    graph = graph_at(workspace, callbacks=[handler], memory="mine")
    graph.propagate("AAA", "2018-01-05")
    before = handler.heard["end"]

    graph.reflect_and_remember(0.01)

    assert handler.heard["end"] == before + 1


# ------------------------------------------------------------------------------- as the seeds do


def test_the_object_keeps_what_was_asked_and_what_was_logged(workspace: Workspace) -> None:
    graph = graph_at(workspace)
    assert (graph.ticker, graph.curr_state, graph.log_states_dict) == (None, None, {})

    graph.propagate("AAA", "2018-01-07")

    (log,) = (workspace.reports / "analyses").glob("*/full_states_log_2018-01-05.json")
    assert graph.ticker == "AAA"
    assert graph.log_states_dict == {"2018-01-05": json.loads(log.read_text(encoding="utf-8"))}


def test_the_asset_type_of_the_seeds_is_taken_where_it_is_true(workspace: Workspace) -> None:
    graph = graph_at(workspace, memory="off")

    state, _ = graph.propagate("AAA", "2018-01-05", "stock")
    assert state["asset_type"] == "stock"
    for wrong in ("crypto", "bond"):
        with pytest.raises(UsageError, match=f"asset_type '{wrong}': .*AAA is of the kind 'stock'"):
            graph.propagate("AAA", "2018-01-05", wrong)


def test_a_changed_copy_of_the_default_configuration_is_a_configuration(
    workspace: Workspace,
) -> None:
    config = DEFAULT_CONFIG.copy()
    config |= {"max_debate_rounds": 2, "benchmark_ticker": "^GSPC"}
    config["data_vendors"]["core_stock_apis"] = "yfinance"

    state, _ = graph_at(workspace, config=config, memory="off").propagate("AAA", "2018-01-05")

    assert state["investment_debate_state"]["count"] == 4
    # Another copy knows nothing of it.
    assert DEFAULT_CONFIG["data_vendors"] == {}
    assert DEFAULT_CONFIG.copy()["results_dir"] == "reports"
