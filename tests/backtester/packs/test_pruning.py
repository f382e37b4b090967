"""Pruning deletes what nothing refers to, and never what a run has just written."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from backtester.backtest import RunResult, run
from backtester.errors import DataError, UsageError
from backtester.packs.pruning import prune
from backtester.replies.cache import ReplyCache
from backtester.runs.folder import RunFolder
from backtester.walk.plan import Plan, cache_folder
from backtester.walk.progress import Silent, Standing
from tests.support.answers import make_answer, make_call
from tests.support.workspaces import Workspace, make_workspace

LATE = "2999-01-01T00:00:00+00:00"


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workspace, RunResult]:
    """A workspace whose cache holds a run's replies and two that nobody asked for."""
    workspace = make_workspace(tmp_path_factory.mktemp("master"))
    result = run(workspace.config(end=date(2018, 1, 5), tickers=("AAA",)))
    cache = ReplyCache.open(cache_folder(workspace.data))
    cache.add(make_answer(call=make_call("stray")))
    cache.add(make_answer(call=make_call("late"), recorded_at=LATE))
    cache.close()
    return workspace, result


@pytest.fixture
def recorded(
    master: tuple[Workspace, RunResult], tmp_path: Path
) -> tuple[Workspace, RunResult, Path]:
    """A copy of it, and the folder of its cache."""
    workspace, result = master
    shutil.copytree(workspace.path, tmp_path / "copy")
    copied = replace(workspace, path=tmp_path / "copy")
    folder = copied.reports / result.run_id
    return copied, replace(result, folder=folder), cache_folder(copied.data)


def keys(folder: Path) -> set[str]:
    return set(ReplyCache.open(folder, read_only=True).keys())


def test_what_no_journal_names_is_listed_and_deleted_only_if_told_to(
    recorded: tuple[Workspace, RunResult, Path],
) -> None:
    workspace, result, folder = recorded
    stray = {make_call("stray").key, make_call("late").key}
    before = keys(folder)

    listed = prune(folder, workspace.reports, delete=False)

    assert {row.key for row in listed.unused} == stray
    assert (listed.records, listed.kept, listed.recent) == (len(before), result.model_calls, 0)
    assert (listed.journals, listed.deleted) == (1, False)
    assert keys(folder) == before
    assert prune(folder, workspace.reports, delete=True).unused == listed.unused
    assert keys(folder) == before - stray
    assert prune(folder, workspace.reports, delete=True).unused == ()


def test_a_stopped_run_keeps_what_it_may_have_asked_already(
    recorded: tuple[Workspace, RunResult, Path],
) -> None:
    workspace, result, folder = recorded
    run_folder = RunFolder(result.folder)
    manifest = run_folder.read_manifest()
    run_folder.write_manifest(
        manifest.model_copy(update={"status": "stopped", "results_root": None})
    )

    found = prune(folder, workspace.reports, delete=True)

    assert [row.key for row in found.unused] == [make_call("stray").key]
    assert found.recent == 1
    assert make_call("late").key in keys(folder)
    (run_folder.path / "manifest.json").write_text("{}")
    with pytest.raises(UsageError, match="does not read"):
        prune(folder, workspace.reports, delete=True)


class Killed(Silent):
    """Die before the first cell is committed."""

    def started(self, plan: Plan, standing: Standing) -> None:
        raise KeyboardInterrupt


def test_a_killed_run_keeps_what_a_deleted_one_had_recorded_for_it(
    recorded: tuple[Workspace, RunResult, Path],
) -> None:
    workspace, result, folder = recorded
    shutil.rmtree(result.folder)
    config = workspace.config(end=date(2018, 1, 5), tickers=("AAA",), memory="off")
    with pytest.raises(KeyboardInterrupt):
        run(config, progress=Killed())

    found = prune(folder, workspace.reports, delete=True)

    # It has asked for these already, though neither its journal nor a ledger tells.
    assert found.recent == result.model_calls + 1
    assert [row.key for row in found.unused] == [make_call("stray").key]
    again = run(config)
    assert (again.model_calls, again.counts) == (0, {"done": 1})
    # Now that it is finished, what it did not use goes: the lesson of the other one.
    assert {row.node for row in prune(folder, workspace.reports, delete=True).unused} == {
        "Reflector",
        make_call("late").site.node,
    }


def test_what_a_spend_ledger_names_stays_though_no_journal_does(
    recorded: tuple[Workspace, RunResult, Path],
) -> None:
    workspace, result, folder = recorded
    (result.folder / "spend.jsonl").write_text(f'0 {{"key": "{make_call("stray").key}"}}\n')
    found = prune(folder, workspace.reports, delete=True)
    assert [row.key for row in found.unused] == [make_call("late").key]


def test_memories_and_stopped_analyses_refer_to_replies_too(
    recorded: tuple[Workspace, RunResult, Path],
) -> None:
    workspace, _, folder = recorded
    memory = workspace.reports / "memory" / "default"
    memory.mkdir(parents=True)
    # A journal that is damaged protects what it names all the same.
    (memory / "journal.jsonl").write_text(f'no journal at all {make_call("stray").key}"')
    trail = workspace.reports / "analyses" / "AAA-x"
    trail.mkdir(parents=True)
    (trail / "checkpoint.trail.jsonl").write_text(make_call("late").key)

    found = prune(folder, workspace.reports, delete=True)

    assert (found.unused, found.journals) == ((), 3)


RUNNER = """
import sys
from pathlib import Path
from backtester.replies.cache import ReplyCache
from tests.support.answers import make_answer, make_call
cache = ReplyCache.open(Path(sys.argv[1]))
cache.add(make_answer(call=make_call("just written")))
print("written", flush=True)
sys.stdin.readline()
assert cache.get(make_call("just written").key) is not None
"""


def test_a_run_at_work_in_another_process_loses_nothing(
    recorded: tuple[Workspace, RunResult, Path],
) -> None:
    workspace, _, folder = recorded
    with subprocess.Popen(
        [sys.executable, "-c", RUNNER, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as runner:
        assert runner.stdin is not None
        assert runner.stdout is not None
        assert runner.stdout.readline() == "written\n"
        with pytest.raises(UsageError, match="in use by a run"):
            prune(folder, workspace.reports, delete=True)
        assert make_call("just written").key in keys(folder)
        # To look is allowed at any time.
        listed = prune(folder, workspace.reports, delete=False)
        assert make_call("just written").key in {row.key for row in listed.unused}
        runner.stdin.write("\n")
        runner.stdin.close()
        assert runner.wait() == 0

    assert len(prune(folder, workspace.reports, delete=True).unused) == 3


def test_a_wrong_folder_deletes_nothing(
    recorded: tuple[Workspace, RunResult, Path], tmp_path: Path
) -> None:
    workspace, _, folder = recorded
    before = keys(folder)
    with pytest.raises(DataError, match="--reports-dir"):
        prune(folder, tmp_path / "nowhere", delete=True)
    with pytest.raises(DataError, match="no reply cache"):
        prune(tmp_path / "nowhere", workspace.reports, delete=True)
    assert not (tmp_path / "nowhere").exists()
    assert keys(folder) == before
