"""A replay gives the recorded root, whatever the machine's mood, and misses out loud."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest

from backtester.backtest import RunResult, run
from backtester.config import RunConfig
from backtester.errors import DataError, UsageError
from backtester.leaks.audit import leakcheck
from backtester.network import blocked_attempts
from backtester.packs.replays import replay
from backtester.publication import document_of, rebuild_database
from backtester.replies.cache import ReplyCache
from backtester.rescore import score
from backtester.runs.folder import RunFolder
from backtester.runs.journal import Ledger, read_ledger
from backtester.store import publishing as store
from backtester.walk.plan import cache_folder
from tests.support.records import make_key
from tests.support.results import rows_of
from tests.support.workspaces import Workspace, make_workspace


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workspace, RunResult]:
    workspace = make_workspace(tmp_path_factory.mktemp("recorded"))
    return workspace, run(workspace.config(end=date(2018, 1, 19)))


@pytest.fixture
def copied(
    recorded: tuple[Workspace, RunResult], tmp_path: Path
) -> Callable[[], tuple[Path, RunFolder]]:
    """Copy the recorded workspace, for tests that damage it."""

    def copy() -> tuple[Path, RunFolder]:
        workspace, result = recorded
        shutil.copytree(workspace.path, tmp_path / "copy")
        return tmp_path / "copy" / "data", RunFolder(tmp_path / "copy" / "reports" / result.run_id)

    return copy


def test_a_replay_makes_the_recorded_root_with_every_reply_from_the_record(
    recorded: tuple[Workspace, RunResult],
) -> None:
    workspace, result = recorded
    found = replay(RunFolder(result.folder), workspace.data)

    assert (found.equal, found.root, found.misses, found.differs) == (True, result.root, (), ())
    assert found.hits == result.model_calls + result.hits
    assert found.cells == 6


def test_a_replay_leaves_the_recorded_run_as_it_was(
    recorded: tuple[Workspace, RunResult],
) -> None:
    workspace, result = recorded
    before = {path: path.read_bytes() for path in sorted(result.folder.iterdir())}
    replay(RunFolder(result.folder), workspace.data)

    assert {path: path.read_bytes() for path in sorted(result.folder.iterdir())} == before


def scores_in(database: Path) -> tuple[list[object], ...]:
    """Return all that a database says of scores, in order."""
    tables = ("scores", "metrics", "equity", "orders", "positions", "horizon_returns")
    return tuple(rows_of(database, f"SELECT * FROM {table} ORDER BY ALL") for table in tables)


def test_a_kept_replay_has_the_score_that_the_run_has(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path)
    result = run(workspace.config(end=date(2018, 1, 19), memory="off", score_at_end=True))
    # Another trial of the same universe and window, which the run's own score knows nothing of.
    score(result.run_id, reports_dir=workspace.reports, data_dir=workspace.data, start_cash=500.0)
    own = scores_in(result.database)

    replay(RunFolder(result.folder), workspace.data, keep=tmp_path / "kept")

    kept = scores_in(tmp_path / "kept" / "results.duckdb")
    assert kept == tuple([row for row in rows if row["score_id"] == "default"] for rows in own)
    assert all(kept)
    # A replay tries nothing.
    assert not (tmp_path / "kept" / "ledger.jsonl").exists()


def test_a_kept_replay_of_damaged_scores_says_so(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path)
    result = run(workspace.config(end=date(2018, 1, 5), memory="off", score_at_end=True))
    (result.folder / "scores" / "default" / "equity.parquet").write_bytes(b"")
    with pytest.raises(DataError, match=r"equity.parquet is damaged"):
        replay(RunFolder(result.folder), workspace.data, keep=tmp_path / "kept")


def test_a_run_that_was_never_scored_has_no_score_in_its_kept_replay_either(
    recorded: tuple[Workspace, RunResult], tmp_path: Path
) -> None:
    workspace, result = recorded
    replay(RunFolder(result.folder), workspace.data, keep=tmp_path)
    assert rows_of(tmp_path / "results.duckdb", "SELECT * FROM scores") == []


REPLAY_IN_CHILD = """
import sys, json
if float(sys.argv[4]):
    import time
    import time_machine
    time_machine.travel(time.time() + float(sys.argv[4]), tick=True).start()
from pathlib import Path
from backtester.packs.replays import replay
from backtester.runs.folder import RunFolder
from backtester.store.query import export_tables
keep = Path(sys.argv[5])
found = replay(RunFolder(Path(sys.argv[1])), Path(sys.argv[2]), workers=int(sys.argv[3]), keep=keep)
hashes = export_tables(keep / "results.duckdb", keep / "tables", stable_only=True)
print(json.dumps({"root": found.root, "misses": len(found.misses), "tables": dict(hashes)}))
"""


def replay_in_child(
    workspace: Workspace,
    result: RunResult,
    keep: Path,
    *,
    workers: int = 1,
    shift_days: float = 0,
    prefix: tuple[str, ...] = (),
    **environment: str,
) -> dict[str, object]:
    done = subprocess.run(
        [
            *prefix,
            sys.executable,
            "-c",
            REPLAY_IN_CHILD,
            str(result.folder),
            str(workspace.data),
            str(workers),
            str(shift_days * 86_400),
            str(keep),
        ],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, object] = json.loads(done.stdout)
    return answer


WORLDS: list[dict[str, object]] = [
    {"PYTHONHASHSEED": "1", "TZ": "UTC"},
    {"PYTHONHASHSEED": "2", "TZ": "Asia/Tokyo", "workers": 4},
    {"TZ": "America/New_York", "LC_ALL": "C", "shift_days": 400.0},
    {"NPY_DISABLE_CPU_FEATURES": "X86_V4 X86_V3", "OPENBLAS_CORETYPE": "Nehalem"},
]


@pytest.mark.slow
def test_hash_seed_zone_workers_clock_and_processor_change_no_byte(
    recorded: tuple[Workspace, RunResult], tmp_path: Path
) -> None:
    workspace, result = recorded
    answers = [
        replay_in_child(workspace, result, tmp_path / str(number), **world)  # type: ignore[arg-type]
        for number, world in enumerate(WORLDS)
    ]

    assert [answer["root"] for answer in answers] == [result.root] * len(WORLDS)
    assert all(answer["misses"] == 0 for answer in answers)
    tables = [answer["tables"] for answer in answers]
    assert all(exported == tables[0] for exported in tables)
    assert tables[0]


@pytest.mark.slow
def test_a_replay_needs_no_network_interface(
    recorded: tuple[Workspace, RunResult], tmp_path: Path
) -> None:
    namespace = ("unshare", "--map-root-user", "--net")
    if (
        shutil.which("unshare") is None
        or subprocess.run([*namespace, "true"], capture_output=True, check=False).returncode
    ):
        pytest.skip("this machine cannot make a network namespace (Linux with unshare can)")
    workspace, result = recorded

    answer = replay_in_child(workspace, result, tmp_path / "alone", prefix=namespace, workers=2)

    assert answer["root"] == result.root


# ---------------------------------------------------------------------------------------- misses


def delete_reply_of(data: Path, folder: RunFolder, ticker: str, session: str, node: str) -> None:
    cell = read_ledger(folder.journal_path).cells[make_key(ticker, session)]
    keys = [call.key for call in cell.calls if call.node == node]
    cache = ReplyCache.open(cache_folder(data))
    for key in keys:
        cache.discard(key)
    cache.close()


def test_a_deleted_reply_fails_its_own_cell_and_no_other(
    copied: Callable[[], tuple[Path, RunFolder]], tmp_path: Path
) -> None:
    data, folder = copied()
    delete_reply_of(data, folder, "AAA", "2018-01-05", "Trader")
    attempts = len(blocked_attempts())

    found = replay(folder, data, keep=tmp_path / "kept")

    assert not found.equal
    assert len(found.misses) == 1
    for word in ("Trader", "AAA", "2018-01-05"):
        assert word in found.misses[0]
    assert "2018-01-05" in found.diff
    assert len(blocked_attempts()) == attempts
    before = read_ledger(folder.journal_path)
    after = read_ledger(tmp_path / "kept" / folder.run_id / "journal.jsonl")
    missed = after.cells.pop(make_key("AAA", "2018-01-05"))
    before.cells.pop(missed.key)
    assert (missed.status, missed.error_class, missed.rating) == ("failed", "replay_miss", None)
    for key, cell in before.cells.items():
        assert after.cells[key].typed == cell.typed
        assert after.cells[key].lessons_hash == cell.lessons_hash
        assert [call.key for call in after.cells[key].calls] == [c.key for c in cell.calls]


def test_a_run_that_is_not_finished_is_not_replayed(
    copied: Callable[[], tuple[Path, RunFolder]],
) -> None:
    data, folder = copied()
    manifest = folder.read_manifest()
    folder.write_manifest(manifest.model_copy(update={"status": "stopped", "results_root": None}))

    with pytest.raises(DataError, match="stopped, not finished"):
        replay(folder, data)


@pytest.mark.parametrize("lines", [1, 2, 9])
def test_a_journal_that_lost_whole_records_is_damage(
    copied: Callable[[], tuple[Path, RunFolder]], lines: int
) -> None:
    data, folder = copied()
    kept = folder.journal_path.read_bytes().splitlines(keepends=True)[:lines]
    folder.journal_path.write_bytes(b"".join(kept))

    for prove in (replay, leakcheck):
        with pytest.raises(DataError, match="records are missing or were changed"):
            prove(folder, data)
    with pytest.raises(DataError, match="records are missing or were changed"):
        rebuild_database(folder.path.parent)


def test_a_manifest_cannot_name_another_folder(
    copied: Callable[[], tuple[Path, RunFolder]], tmp_path: Path
) -> None:
    data, folder = copied()
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "journal.jsonl").write_text("precious")
    folder.write_manifest(folder.read_manifest().model_copy(update={"run_id": "../victim"}))

    with pytest.raises(DataError, match="of another run"):
        replay(folder, data, keep=tmp_path / "kept")
    assert (victim / "journal.jsonl").read_text() == "precious"


def test_a_replay_is_not_kept_over_the_run_itself(
    copied: Callable[[], tuple[Path, RunFolder]],
) -> None:
    data, folder = copied()
    before = folder.journal_path.read_bytes()

    with pytest.raises(UsageError, match="overwrites nothing"):
        replay(folder, data, keep=folder.path.parent)
    assert folder.journal_path.read_bytes() == before


def test_a_run_whose_last_publication_was_lost_is_published_by_the_same_command(
    copied: Callable[[], tuple[Path, RunFolder]],
) -> None:
    data, folder = copied()
    reports = folder.path.parent
    manifest = folder.read_manifest()
    ledger = read_ledger(folder.journal_path)
    early = Ledger(cells=dict(list(ledger.cells.items())[:2]))
    (reports / "results.duckdb").unlink()
    started = manifest.model_copy(update={"status": "started", "results_root": None})
    store.publish(reports / "results.duckdb", document_of(started, early))

    changes = {"data_dir": str(data), "reports_dir": str(reports)}
    again = run(RunConfig(**{**manifest.config, **changes}))

    assert (again.new, again.model_calls) == (False, 0)
    assert store.run_summary(reports / "results.duckdb", again.run_id).cells == 6


def test_another_snapshot_under_the_same_name_is_refused(
    copied: Callable[[], tuple[Path, RunFolder]], tmp_path: Path
) -> None:
    data, folder = copied()
    other = make_workspace(tmp_path / "other", end="2018-03-20")
    shutil.rmtree(data / "snapshots" / "small")
    shutil.copytree(other.data / "snapshots" / "small", data / "snapshots" / "small")

    with pytest.raises(DataError, match="bring that snapshot back"):
        replay(folder, data)
