"""A walk-forward run: what it makes, what it remembers, and how it goes on after a stop."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from backtester.api import load_run
from backtester.backtest import RunResult, run
from backtester.errors import DataError, RunLocked, UsageError
from backtester.packs.replays import replay
from backtester.records import CellKey
from backtester.runs.folder import RunFolder
from backtester.runs.journal import Ledger, read_ledger
from backtester.runs.root import results_root
from tests.support.records import make_key
from tests.support.snapshots import make_instrument
from tests.support.workspaces import Workspace, make_workspace, wave


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return make_workspace(tmp_path)


def ledger_of(result: RunResult) -> Ledger:
    return read_ledger(result.folder / "journal.jsonl")


def shown_to(ledger: Ledger, ticker: str, session: str) -> tuple[str, ...]:
    return ledger.cells[make_key(ticker, session)].lessons_shown


def test_a_run_decides_every_cell_of_its_grid_and_settles_what_the_data_can(
    workspace: Workspace,
) -> None:
    result = run(workspace.config())
    ledger = ledger_of(result)

    # Whole weeks from 2018-01-02 to 2018-02-02 end on five Fridays.
    fridays = ["2018-01-05", "2018-01-12", "2018-01-19", "2018-01-26", "2018-02-02"]
    expected = {make_key(ticker, day) for ticker in ("AAA", "BBB") for day in fridays}
    assert set(ledger.cells) == expected == set(ledger.returns) == set(ledger.lessons)
    assert {cell.status for cell in ledger.cells.values()} == {"done"}
    assert {item.status for item in ledger.returns.values()} == {"resolved"}
    assert result.counts == {"done": 10}
    assert result.root == results_root(ledger)


def test_a_second_run_of_the_same_command_makes_no_model_call_and_no_row(
    workspace: Workspace,
) -> None:
    config = workspace.config(tickers=("AAA",), start=date(2018, 1, 2), end=date(2018, 1, 19))
    first = run(config)
    journal = (first.folder / "journal.jsonl").read_bytes()

    second = run(config)

    assert first.model_calls > 0
    assert (second.model_calls, second.new, second.root) == (0, False, first.root)
    assert (first.folder / "journal.jsonl").read_bytes() == journal
    rows = ledger_of(second).lessons.values()
    assert [row.lesson_status for row in rows] == ["written"] * 3


def test_a_deleted_run_is_made_again_from_the_cache_without_a_model_call(
    workspace: Workspace,
) -> None:
    first = run(workspace.config())
    for path in sorted(first.folder.iterdir()):
        path.unlink()
    again = run(workspace.config())

    assert (again.model_calls, again.root) == (0, first.root)
    assert again.hits == first.model_calls + first.hits


# ------------------------------------------------------------------------------------------ time


def test_a_lesson_is_shown_from_its_resolution_on_and_to_other_tickers_too(
    workspace: Workspace,
) -> None:
    """AAA of 2018-01-08, h=5: 2018-01-15 is a holiday, so the window ends on 2018-01-16."""
    config = workspace.config(
        grid=(date(2018, 1, 8), date(2018, 1, 12), date(2018, 1, 17)),
        end=date(2018, 1, 17),
        horizon=5,
    )
    ledger = ledger_of(run(config))

    resolved = ledger.lessons[make_key("AAA", "2018-01-08")].resolved_at
    assert resolved == datetime(2018, 1, 16, 21, 0, tzinfo=UTC)
    assert shown_to(ledger, "BBB", "2018-01-12") == ()
    assert "AAA|2018-01-08|0" in shown_to(ledger, "BBB", "2018-01-17")


@pytest.mark.parametrize("tickers", [("AAA", "BBB"), ("BBB", "AAA")])
@pytest.mark.parametrize("workers", [1, 4])
def test_loop_order_and_workers_change_nothing(
    workspace: Workspace, tickers: tuple[str, str], workers: int
) -> None:
    result = run(workspace.config(tickers=tickers, workers=workers))
    plain = run(workspace.config(reports_dir=workspace.path / "plain"))

    assert result.run_id == plain.run_id
    assert result.root == plain.root


def test_results_up_to_a_day_are_the_same_whenever_the_run_ends(workspace: Workspace) -> None:
    short = ledger_of(run(workspace.config(end=date(2018, 1, 19))))
    long = ledger_of(run(workspace.config(end=date(2018, 2, 2))))

    kept = {key for key in long.cells if key.session <= date(2018, 1, 19)}
    assert kept == set(short.cells)
    cut = Ledger(
        cells={key: long.cells[key] for key in kept},
        returns={key: long.returns[key] for key in kept},
        lessons={key: long.lessons[key] for key in kept},
    )
    assert results_root(cut) == results_root(short)


def test_a_tokyo_lesson_waits_for_its_new_york_benchmark(tmp_path: Path) -> None:
    """The exit bar of Tokyo is known at 06:00Z of 2018-03-16, the benchmark's at 20:00Z."""
    bars = {
        "AAA": wave("AAA", start="2017-01-03", count=330, phase=0.0, drift=0.001),
        "1234.T": wave("1234.T", start="2017-01-04", count=330, phase=2.0, drift=0.0005),
        "^GSPC": wave("^GSPC", start="2017-01-03", count=330, phase=1.0, drift=0.0003),
    }
    workspace = make_workspace(tmp_path, bars)
    config = workspace.config(
        tickers=("AAA", "1234.T"),
        start=date(2018, 3, 13),
        end=date(2018, 3, 19),
        grid="daily",
    )
    ledger = ledger_of(run(config))

    lesson = ledger.lessons[make_key("1234.T", "2018-03-13")]
    assert lesson.resolved_at == datetime(2018, 3, 16, 20, 0, tzinfo=UTC)
    name = "1234.T|2018-03-13|0"
    assert name not in shown_to(ledger, "1234.T", "2018-03-16")
    assert name in shown_to(ledger, "1234.T", "2018-03-19")
    assert name in shown_to(ledger, "AAA", "2018-03-16")


def test_warm_up_sessions_decide_and_remember_but_are_not_scored(workspace: Workspace) -> None:
    ledger = ledger_of(run(workspace.config(warmup=2)))

    scored = {str(key.session): cell.scored for key, cell in ledger.cells.items()}
    assert scored == {
        "2018-01-05": False,
        "2018-01-12": False,
        "2018-01-19": True,
        "2018-01-26": True,
        "2018-02-02": True,
    }
    assert "AAA|2018-01-05|0" in shown_to(ledger, "AAA", "2018-01-19")


@pytest.mark.parametrize(
    ("scope", "expected"),
    [
        ("portfolio", {"AAA|2018-01-05|0", "BBB|2018-01-05|0"}),
        ("ticker", {"AAA|2018-01-05|0"}),
        ("off", set()),
    ],
)
def test_the_scope_of_memory_says_whose_lessons_are_shown(
    workspace: Workspace, scope: str, expected: set[str]
) -> None:
    ledger = ledger_of(run(workspace.config(memory=scope, end=date(2018, 1, 12))))

    assert set(shown_to(ledger, "AAA", "2018-01-12")) == expected


def test_each_trial_reads_its_own_lessons_only(workspace: Workspace) -> None:
    ledger = ledger_of(run(workspace.config(trials=2, end=date(2018, 1, 12))))

    shown = ledger.cells[make_key("AAA", "2018-01-12", trial=1)].lessons_shown
    assert set(shown) == {"AAA|2018-01-05|1", "BBB|2018-01-05|1"}


def test_decisions_at_the_end_of_the_data_stay_pending_and_are_rows(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path)
    last = workspace.snapshot.end
    config = workspace.config(start=last - timedelta(days=3), end=last, grid="every 1")
    ledger = ledger_of(run(config))

    final = [item for key, item in ledger.returns.items() if key.session == last]
    assert [item.status for item in final] == ["pending", "pending"]
    assert all(item.raw_total is None and item.alpha is None for item in final)
    waiting = [row for key, row in ledger.lessons.items() if key.session == last]
    assert [row.lesson_status for row in waiting] == ["waiting", "waiting"]


# -------------------------------------------------------------------------------------- identity


def test_a_different_question_is_a_different_run_and_touches_no_row_of_the_first(
    workspace: Workspace,
) -> None:
    first = run(workspace.config())
    before = (first.folder / "journal.jsonl").read_bytes()
    others = [
        run(workspace.config(analysts=("market", "social", "news"))),
        run(workspace.config(quick_model="rulebook-1", horizon=4)),
        run(workspace.config(memory="off")),
    ]

    ids = {first.run_id, *(other.run_id for other in others)}
    assert len(ids) == 4
    assert all(other.cells == 10 and other.kept == 0 for other in others)
    assert (first.folder / "journal.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    "change",
    [
        {"workers": 3},
        {"timeout_s": 5.0},
        {"max_retries": 0},
        {"cell_retries": 0},
        {"on_failure": "stop"},
        {"api_key_env": "OTHER_KEY"},
    ],
)
def test_what_cannot_change_an_answer_is_not_in_the_run_id(
    workspace: Workspace, change: dict[str, Any]
) -> None:
    short = {"tickers": ("AAA",), "end": date(2018, 1, 5)}

    assert run(workspace.config(**short, **change)).run_id == run(workspace.config(**short)).run_id


def test_another_snapshot_of_the_same_name_is_another_run(tmp_path: Path) -> None:
    one, two = make_workspace(tmp_path / "one"), make_workspace(tmp_path / "two", end="2018-03-20")
    short = {"tickers": ("AAA",), "end": date(2018, 1, 5)}

    assert one.snapshot.id != two.snapshot.id
    assert run(one.config(**short)).run_id != run(two.config(**short)).run_id


# ------------------------------------------------------------------------------------- recovery

RUN_IN_CHILD = """
import sys
from pathlib import Path
from backtester.backtest import run
from backtester.loading import config_from_manifest
import json
from backtester.config import RunConfig
run(RunConfig(**json.loads(Path(sys.argv[1]).read_text())))
"""


@pytest.fixture
def job(workspace: Workspace) -> Path:
    path = workspace.path / "config.json"
    path.write_text(workspace.config().model_dump_json())
    return path


def start(job: Path, **environment: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", RUN_IN_CHILD, str(job)],
        env={**os.environ, **environment},
        stderr=subprocess.DEVNULL,
    )


def wait_for_cells(journal: Path, count: int, child: subprocess.Popen[bytes]) -> None:
    limit = time.monotonic() + 60
    while time.monotonic() < limit and child.poll() is None:
        if journal.exists() and journal.read_bytes().count(b'"kind":"cell"') >= count:
            return
        time.sleep(0.002)


@pytest.mark.slow
@pytest.mark.parametrize("cells", [0, 1, 4, 7])
def test_a_run_killed_at_any_moment_and_run_again_gives_the_root_of_an_undisturbed_one(
    workspace: Workspace, job: Path, cells: int
) -> None:
    undisturbed = run(
        workspace.config(reports_dir=workspace.path / "undisturbed", data_dir=_copy_data(workspace))
    )
    journal = workspace.reports / undisturbed.run_id / "journal.jsonl"
    child = start(job)
    wait_for_cells(journal, cells, child)
    child.send_signal(signal.SIGKILL)
    child.wait()

    again = run(workspace.config())

    assert again.root == undisturbed.root
    assert again.cells == 10


def _copy_data(workspace: Workspace) -> Path:
    target = workspace.path / "data-undisturbed" / "snapshots"
    target.mkdir(parents=True)
    (target / "small").symlink_to(workspace.data / "snapshots" / "small")
    return target.parent


def test_a_second_starter_is_told_who_holds_the_run(workspace: Workspace) -> None:
    first = run(workspace.config(end=date(2018, 1, 5)))
    held = RunFolder(first.folder).lock()
    with held, pytest.raises(RunLocked, match=f"process {os.getpid()}"):
        run(workspace.config(end=date(2018, 1, 5)))


# ------------------------------------------------------------------------------------- bad input


def test_an_unknown_ticker_names_what_the_snapshot_holds(workspace: Workspace) -> None:
    with pytest.raises(DataError, match=r"'ZZZ' is not in snapshot small.*AAA, BBB"):
        run(workspace.config(tickers=("ZZZ",)))


def test_dates_outside_the_snapshot_name_its_range(workspace: Workspace) -> None:
    with pytest.raises(DataError, match="covers 2017-01-03 to"):
        run(workspace.config(end=date(2031, 1, 1)))


def test_a_grid_without_a_session_is_refused(workspace: Workspace) -> None:
    with pytest.raises(UsageError, match="session"):
        run(workspace.config(start=date(2018, 1, 6), end=date(2018, 1, 7), grid="daily"))


def test_a_reports_folder_that_is_a_file_is_refused_before_anything_is_spent(
    workspace: Workspace,
) -> None:
    workspace.reports.write_text("in the way")

    with pytest.raises(UsageError, match="cannot be written"):
        run(workspace.config())


def test_a_ticker_without_bars_at_its_cutoff_is_a_counted_state(tmp_path: Path) -> None:
    bars = {
        "AAA": wave("AAA", start="2017-01-03", count=300, phase=0.0, drift=0.001),
        "BBB": wave("BBB", start="2018-01-16", count=40, phase=0.0, drift=0.001),
        "^GSPC": wave("^GSPC", start="2017-01-03", count=300, phase=1.0, drift=0.0003),
    }
    workspace = make_workspace(tmp_path, bars)
    result = run(workspace.config())

    assert result.counts == {"done": 8, "no_data": 2}
    missing = {key for key, cell in ledger_of(result).cells.items() if cell.status == "no_data"}
    assert missing == {
        CellKey(session=date(2018, 1, 5), ticker="BBB"),
        CellKey(session=date(2018, 1, 12), ticker="BBB"),
    }


@pytest.mark.parametrize("workers", [1, 2])
def test_parallel_analysts_give_the_prompts_of_analysts_in_turn(
    workspace: Workspace, workers: int
) -> None:
    short = {"end": date(2018, 1, 12)}
    turn = ledger_of(run(workspace.config(**short)))
    branches = run(workspace.config(**short, analysts_parallel=True, workers=workers))
    again = run(
        workspace.config(
            **short, analysts_parallel=True, reports_dir=workspace.path / "again", workers=1
        )
    )

    parallel = ledger_of(branches)
    for key, cell in turn.cells.items():
        assert {call.key for call in parallel.cells[key].calls} == {c.key for c in cell.calls}
        assert parallel.cells[key].typed == cell.typed
    assert branches.root == again.root


# -------------------------------------------------------------------------------- what is shared


def test_a_run_that_differs_in_one_node_asks_only_what_depends_on_it(
    workspace: Workspace,
) -> None:
    """Without memory only the portfolio managers that were shown lessons read another prompt."""
    with_memory = ledger_of(run(workspace.config()))
    without = run(workspace.config(memory="off"))

    told = [cell for cell in with_memory.cells.values() if cell.lessons_shown]
    changed = [
        call.node
        for cell in ledger_of(without).cells.values()
        for call in cell.calls
        if not call.hit
    ]
    assert changed == ["Portfolio Manager"] * len(told)
    assert without.model_calls == len(told) > 0


def test_four_workers_on_fifty_cells_meet_no_lock(workspace: Workspace) -> None:
    many = {"grid": "daily", "end": date(2018, 2, 6), "memory": "ticker"}
    result = run(workspace.config(**many, workers=4))

    assert result.counts == {"done": 50}
    assert (
        result.root
        == run(workspace.config(**many, workers=1, reports_dir=workspace.path / "one")).root
    )


def test_every_row_is_kept_by_run_ticker_date_and_trial(workspace: Workspace) -> None:
    config = workspace.config(trials=2, end=date(2018, 1, 12))
    first, second = run(config), run(workspace.config(end=date(2018, 1, 12)))

    rows = load_run(first.run_id, reports_dir=workspace.reports).sql(
        "SELECT run_id, ticker, session, trial, count(*) AS n FROM cells GROUP BY ALL"
    )
    assert set(rows["n"]) == {1}
    assert rows.groupby("run_id").size().to_dict() == {first.run_id: 8, second.run_id: 4}


def test_a_runs_tables_hold_its_own_rows_only(workspace: Workspace) -> None:
    run(workspace.config())
    short = run(workspace.config(end=date(2018, 1, 5)))
    loaded = load_run(short.run_id, reports_dir=workspace.reports)

    assert len(loaded.table("cells")) == 2
    assert list(loaded.table("alpha_by_rating")["n"]) == list(
        loaded.sql("SELECT n FROM alpha_by_rating WHERE run_id = $run_id ORDER BY rating")["n"]
    )
    assert repr(loaded) == f"Run('{short.run_id}', finished, 2 cells)"
    with pytest.raises(UsageError, match="did you mean 'returns'"):
        loaded.table("retruns")


def test_a_map_of_benchmarks_reaches_prompts_and_rows(workspace: Workspace) -> None:
    result = run(workspace.config(benchmark=None, benchmark_map={"": "BBB"}, end=date(2018, 1, 5)))

    rows = load_run(result.run_id, reports_dir=workspace.reports).sql(
        "SELECT ticker, benchmark, alpha FROM returns ORDER BY ticker"
    )
    assert rows["benchmark"].tolist() == ["BBB", "BBB"]
    assert rows["alpha"].tolist()[1] == 0.0


def test_the_full_state_of_each_cell_is_written_where_it_is_wanted(workspace: Workspace) -> None:
    config = workspace.config(end=date(2018, 1, 12), save_states=True)
    result = run(config)

    files = sorted(path.relative_to(result.folder) for path in result.folder.rglob("full_states*"))
    assert [str(path) for path in files] == [
        f"states/{ticker}/TradingAgentsStrategy_logs/full_states_log_{day}.json"
        for ticker in ("AAA", "BBB")
        for day in ("2018-01-05", "2018-01-12")
    ]
    state = json.loads((result.folder / files[0]).read_text())
    assert state["final_trade_decision"].startswith("**Rating**: ")
    assert replay(RunFolder(result.folder), workspace.data).equal


def test_a_refresh_asks_everything_again_and_keeps_what_was_recorded(workspace: Workspace) -> None:
    short = {"tickers": ("AAA",), "end": date(2018, 1, 5)}
    first = run(workspace.config(**short))
    refreshed = run(workspace.config(**short, mode="refresh"))
    twice = run(workspace.config(**short, mode="refresh"))

    assert len({first.run_id, refreshed.run_id, twice.run_id}) == 3
    assert first.model_calls == refreshed.model_calls == twice.model_calls > 0
    assert run(workspace.config(**short)).model_calls == 0
    assert replay(RunFolder(twice.folder), workspace.data).equal


def test_a_symbol_that_changed_hands_within_the_run_has_to_be_told_apart(tmp_path: Path) -> None:
    bars = {
        "AAA": wave("AAA", start="2017-01-03", count=300, phase=0.0, drift=0.001),
        "BBB": wave("BBB", start="2017-01-03", count=300, phase=2.0, drift=-0.0005),
        "^GSPC": wave("^GSPC", start="2017-01-03", count=300, phase=1.0, drift=0.0003),
    }
    names = [
        make_instrument("AAA", symbol="OLD", valid_to="2018-01-18"),
        make_instrument("AAA", symbol="NEW", valid_from="2018-01-18"),
        make_instrument("BBB", symbol="BEE", valid_to="2018-01-22"),
        make_instrument("BBB", symbol="OLD", valid_from="2018-01-22"),
    ]
    workspace = make_workspace(tmp_path, bars, instruments=names)
    early = run(workspace.config(tickers=("OLD",), end=date(2018, 1, 12)))

    assert {key.ticker for key in ledger_of(early).cells} == {"AAA"}
    with pytest.raises(DataError, match="was AAA on 2018-01-02 and BBB on 2018-01-26"):
        run(workspace.config(tickers=("OLD",), end=date(2018, 1, 26)))


def test_starters_that_come_at_once_are_let_in_or_told_who_is_there(workspace: Workspace) -> None:
    config = workspace.config(tickers=("AAA",), end=date(2018, 1, 12))

    def start() -> str:
        try:
            return run(config).root
        except RunLocked as refused:
            return str(refused)

    with ThreadPoolExecutor(6) as pool:
        answers = [future.result() for future in [pool.submit(start) for _ in range(6)]]
    root = run(config).root
    assert root in answers
    assert all(answer == root or "is being worked on by" in answer for answer in answers)
