"""A packed run is taken into a workspace, where every command then knows it."""

from __future__ import annotations

import shutil
from datetime import date
from pathlib import Path

import pytest

from backtester import api
from backtester.backtest import RunResult, run
from backtester.errors import DataError, UsageError
from backtester.packs.adoption import adopt
from backtester.packs.packs import pack_run
from backtester.packs.replays import replay
from backtester.replies.cache import ReplyCache
from backtester.runs.folder import RunFolder
from backtester.walk.plan import cache_folder
from tests.support.workspaces import Workspace, make_workspace


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workspace, RunResult]:
    workspace = make_workspace(tmp_path_factory.mktemp("recorded"))
    return workspace, run(workspace.config(end=date(2018, 1, 12)))


@pytest.fixture(scope="module")
def packed(recorded: tuple[Workspace, RunResult], tmp_path_factory: pytest.TempPathFactory) -> Path:
    workspace, result = recorded
    path = tmp_path_factory.mktemp("packed") / "run.jsonl.zst"
    cache = ReplyCache.open(cache_folder(workspace.data), read_only=True)
    pack_run(RunFolder(result.folder), cache, path)
    return path


@pytest.fixture
def elsewhere(recorded: tuple[Workspace, RunResult], tmp_path: Path) -> Path:
    """A workspace that holds the snapshot under another name, and nothing else."""
    shutil.copytree(
        recorded[0].data / "snapshots" / "small", tmp_path / "data" / "snapshots" / "renamed"
    )
    return tmp_path


def test_a_run_taken_over_replays_and_answers_queries_like_one_made_here(
    packed: Path, elsewhere: Path, recorded: tuple[Workspace, RunResult]
) -> None:
    data, reports = elsewhere / "data", elsewhere / "reports"
    done = adopt(packed, data_dir=data, reports_dir=reports)
    root = RunFolder(recorded[1].folder).read_manifest().results_root

    assert done.fresh
    assert replay(done.folder, data).root == root
    rows = api.load_run(done.folder.run_id, reports_dir=reports, data_dir=data).sql(
        "SELECT count(*) AS n FROM cells WHERE run_id = $run_id"
    )
    assert rows["n"].tolist() == [sum(recorded[1].counts.values())]


def test_a_second_time_changes_nothing(packed: Path, elsewhere: Path) -> None:
    data, reports = elsewhere / "data", elsewhere / "reports"
    first = adopt(packed, data_dir=data, reports_dir=reports)
    before = first.folder.journal_path.read_bytes()
    second = adopt(packed, data_dir=data, reports_dir=reports)

    assert not second.fresh
    assert second.answers.added == 0
    assert second.answers.present == first.answers.added
    assert second.folder.journal_path.read_bytes() == before


def test_a_take_over_that_was_stopped_before_the_manifest_goes_on(
    packed: Path, elsewhere: Path
) -> None:
    data, reports = elsewhere / "data", elsewhere / "reports"
    first = adopt(packed, data_dir=data, reports_dir=reports)
    first.folder.manifest_path.unlink()
    first.folder.journal_path.write_bytes(b"half a l")

    assert adopt(packed, data_dir=data, reports_dir=reports).fresh
    assert replay(first.folder, data).equal


def test_another_run_under_its_name_is_never_overwritten(packed: Path, elsewhere: Path) -> None:
    data, reports = elsewhere / "data", elsewhere / "reports"
    folder = adopt(packed, data_dir=data, reports_dir=reports).folder
    held = folder.read_manifest()
    folder.write_manifest(held.model_copy(update={"results_root": "0" * 64}))

    with pytest.raises(UsageError, match="another results root"):
        adopt(packed, data_dir=data, reports_dir=reports)
    assert folder.read_manifest().results_root == "0" * 64


def test_without_its_snapshot_nothing_is_taken_over(packed: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="snapshot"):
        adopt(packed, data_dir=tmp_path / "data", reports_dir=tmp_path / "reports")
    assert not (tmp_path / "reports").exists()
