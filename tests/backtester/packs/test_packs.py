"""A packed run replays anywhere to its own root, names no machine, and is no weapon."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from backtester.backtest import RunResult, run
from backtester.config import RunConfig, is_identity
from backtester.errors import DataError, UsageError
from backtester.network import blocked_attempts
from backtester.packs.packs import (
    config_of_pack,
    lay_down,
    pack_run,
    portable,
    read_head,
    verify_pack,
)
from backtester.packs.replays import replay, replay_pack
from backtester.replies.cache import ReplyCache
from backtester.replies.cassette import Written
from backtester.replies.recordings import unpack
from backtester.runs.folder import RunFolder, RunManifest
from backtester.runs.journal import read_ledger
from backtester.walk.plan import cache_folder
from tests.support.cassettes import canonical, edit_head, lines_of, sealed, write_lines
from tests.support.openai_server import OpenAIServer, completion, cut, error, text
from tests.support.records import make_key
from tests.support.results import rows_of
from tests.support.rulebook_server import Fault, faulty
from tests.support.workspaces import Workspace, make_workspace

KEYS = {"openai_compatible": "sk-TEST-SECRET-123"}
MANAGER = "Portfolio Manager"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workspace, RunResult]:
    workspace = make_workspace(tmp_path_factory.mktemp("recorded"))
    return workspace, run(workspace.config(end=date(2018, 1, 12)))


@pytest.fixture(scope="module")
def packed(recorded: tuple[Workspace, RunResult], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("packed") / "run.jsonl.zst"
    pack(*recorded, path)
    return path


@pytest.fixture(scope="module")
def elsewhere(
    recorded: tuple[Workspace, RunResult], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A data folder that holds the snapshot under another name, and no cache."""
    data = tmp_path_factory.mktemp("elsewhere") / "data"
    shutil.copytree(recorded[0].data / "snapshots" / "small", data / "snapshots" / "renamed")
    return data


def pack(workspace: Workspace, result: RunResult, path: Path, **changes: Any) -> Written:
    cache = ReplyCache.open(cache_folder(workspace.data), read_only=True)
    return pack_run(RunFolder(result.folder), cache, path, **changes)


# ---------------------------------------------------------------------------------- there and back


def test_a_packed_run_replays_to_its_root_with_its_snapshot_alone_found_by_id(
    recorded: tuple[Workspace, RunResult], packed: Path, elsewhere: Path
) -> None:
    before = sorted(elsewhere.rglob("*"))
    found = replay_pack(packed, elsewhere)

    assert (found.equal, found.misses, found.cells) == (True, (), 4)
    assert found.root == found.recorded_root == recorded[1].root
    assert found.hits == recorded[1].model_calls
    assert sorted(elsewhere.rglob("*")) == before


def test_a_kept_replay_of_a_pack_is_a_run_of_its_own(
    recorded: tuple[Workspace, RunResult], packed: Path, elsewhere: Path, tmp_path: Path
) -> None:
    replay_pack(packed, elsewhere, keep=tmp_path / "kept")
    kept = RunFolder(tmp_path / "kept" / recorded[1].run_id)

    assert kept.read_manifest().results_root == recorded[1].root
    assert (tmp_path / "kept" / "results.duckdb").is_file()
    with pytest.raises(UsageError, match="overwrites nothing"):
        replay_pack(packed, elsewhere, keep=tmp_path / "kept")


def test_a_kept_replay_of_a_pack_is_scored_anew_where_its_run_scores_itself(
    tmp_path: Path, elsewhere: Path
) -> None:
    workspace = make_workspace(tmp_path / "home")
    result = run(workspace.config(end=date(2018, 1, 12), memory="off", score_at_end=True))
    pack(workspace, result, tmp_path / "run.jsonl.zst")

    replay_pack(tmp_path / "run.jsonl.zst", elsewhere, keep=tmp_path / "kept")

    words = "SELECT * FROM metrics ORDER BY ALL"
    figures = rows_of(tmp_path / "kept" / "results.duckdb", words)
    assert figures
    assert figures == rows_of(result.database, words)


def config_for(workspace: Workspace, server: OpenAIServer, **changes: Any) -> RunConfig:
    return workspace.wired(server.url, **{"end": date(2018, 1, 19), **changes})


def test_refused_cut_repaired_and_unread_replies_replay_from_their_pack(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path / "here")
    no_json = text("I would rather not say.")
    refused = completion(None, refusal="I cannot help with that.")
    faults = [
        Fault(role="Bull Researcher", day="2018-01-05", symbol="AAA", acts=[refused]),
        Fault(role="Bear Researcher", day="2018-01-05", symbol="BBB", acts=[cut("The trend i")]),
        Fault(role=MANAGER, day="2018-01-12", symbol="AAA", acts=[text('{"rating": "Strong"}')]),
        Fault(role=MANAGER, day="2018-01-12", symbol="BBB", acts=[no_json, no_json, no_json]),
    ]
    with OpenAIServer(faulty(*faults)) as server:
        result = run(config_for(workspace, server), api_keys=KEYS)
        asked = len(server.requests)
    path = tmp_path / "bad.jsonl.zst"
    pack(workspace, result, path)
    shutil.rmtree(workspace.reports)
    shutil.rmtree(workspace.data / "cache")
    attempts = len(blocked_attempts())

    found = replay_pack(path, workspace.data)

    assert (found.equal, found.root, found.misses) == (True, result.root, ())
    assert (len(server.requests), len(blocked_attempts())) == (asked, attempts)
    assert result.counts == {"done": 3, "failed": 2, "unread": 1}
    assert KEYS["openai_compatible"] not in "".join(lines_of(path))


def test_cells_that_were_decided_again_replay_from_their_pack(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path / "here")
    down = Fault(role="Trader", day="2018-01-05", symbol="AAA", acts=[error(500, "a moment")] * 2)
    with OpenAIServer(faulty(down)) as server:
        config = config_for(workspace, server, end=date(2018, 1, 12), cell_retries=1)
        assert run(config, api_keys=KEYS).counts["failed"] == 1
        result = run(config, api_keys=KEYS)
    assert read_ledger(result.folder / "journal.jsonl").superseded
    pack(workspace, result, tmp_path / "again.jsonl.zst")

    found = replay_pack(tmp_path / "again.jsonl.zst", workspace.data)

    assert (found.equal, found.root, found.misses) == (True, result.root, ())


def test_a_pack_and_an_empty_workspace_make_the_run_again_without_a_call(
    recorded: tuple[Workspace, RunResult], packed: Path, elsewhere: Path, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    shutil.copytree(elsewhere, data)
    cache = ReplyCache.open(cache_folder(data))
    done = unpack(packed, cache)
    folders = {"data_dir": data, "reports_dir": tmp_path / "reports"}
    again = run(config_of_pack(packed, {"workers": None}, folders=folders))

    assert (done.added, done.present) == (len(recorded_keys(packed)), 0)
    assert (again.model_calls, again.root, again.run_id) == (
        0,
        recorded[1].root,
        recorded[1].run_id,
    )
    pack_run(RunFolder(again.folder), cache, tmp_path / "again.jsonl.zst")
    # What was recorded is equal to the byte; only the story of the second run is another.
    assert answers_in(tmp_path / "again.jsonl.zst") == answers_in(packed)
    assert read_head(tmp_path / "again.jsonl.zst").config == read_head(packed).config
    assert (unpack(packed, cache).added, unpack(packed, cache).present) == (0, done.added)


def recorded_keys(path: Path) -> list[str]:
    return [key_in(line) for line in answers_in(path)]


def answers_in(path: Path) -> list[str]:
    return [line for line in lines_of(path) if line.startswith('{"about"')]


# --------------------------------------------------------------------------------------- packing


def test_packing_twice_gives_the_same_bytes_and_names_neither_machine_nor_folder(
    recorded: tuple[Workspace, RunResult], packed: Path, tmp_path: Path
) -> None:
    other = tmp_path / "b.jsonl.zst"
    done = pack(*recorded, other)

    assert other.read_bytes() == packed.read_bytes()
    told = "".join(lines_of(other))
    assert str(recorded[0].path) not in told
    assert "data_dir" not in told
    assert "reports_dir" not in told
    keys = recorded_keys(other)
    assert keys == sorted(set(keys))
    assert done.answers == len(keys)


def test_a_manifest_leaves_at_home_what_belongs_to_the_machine(
    recorded: tuple[Workspace, RunResult],
) -> None:
    workspace, result = recorded
    config = workspace.config(
        api_key_env="MY_KEY", snapshot=str(workspace.data / "snapshots" / "small"), name="mine"
    )
    manifest = RunFolder(result.folder).read_manifest()
    manifest = manifest.model_copy(update={"config": config.model_dump(mode="json")})

    kept = portable(manifest).config

    assert kept["snapshot"] == "small"
    operational = {name for name in kept if not is_identity(name)} - {"snapshot"}
    assert {name for name in operational if isinstance(kept[name], str)} == {"name", "on_failure"}
    assert {name for name in RunConfig.model_fields if is_identity(name)} <= kept.keys()
    assert portable(portable(manifest)) == portable(manifest)


def test_what_is_not_finished_or_not_whole_is_not_packed(
    recorded: tuple[Workspace, RunResult], tmp_path: Path
) -> None:
    shutil.copytree(recorded[0].path, tmp_path / "copy")
    folder = RunFolder(tmp_path / "copy" / "reports" / recorded[1].run_id)
    cache = ReplyCache.open(tmp_path / "copy" / "data" / "cache" / "replies")
    out = tmp_path / "out.jsonl.zst"
    manifest = folder.read_manifest()

    folder.write_manifest(manifest.model_copy(update={"status": "stopped", "results_root": None}))
    with pytest.raises(DataError, match="is stopped, not finished"):
        pack_run(folder, cache, out)
    folder.write_manifest(manifest)
    cache.discard(sorted(cache.keys())[3])
    with pytest.raises(DataError, match="has no answer"):
        pack_run(folder, cache, out)
    journal = folder.journal_path.read_bytes().splitlines(keepends=True)
    folder.journal_path.write_bytes(b"".join(journal[:-1]))
    with pytest.raises(DataError, match="records are missing or were changed"):
        pack_run(folder, cache, out)
    assert not out.exists()


def test_an_address_with_a_password_is_not_packed(
    recorded: tuple[Workspace, RunResult], tmp_path: Path
) -> None:
    shutil.copytree(recorded[1].folder, tmp_path / recorded[1].run_id)
    folder = RunFolder(tmp_path / recorded[1].run_id)
    manifest = folder.read_manifest()
    config = {**manifest.config, "base_url": "https://me:sk-123@models.example/v1"}
    folder.write_manifest(manifest.model_copy(update={"config": config}))
    cache = ReplyCache.open(cache_folder(recorded[0].data), read_only=True)

    with pytest.raises(UsageError, match="user or password") as refused:
        pack_run(folder, cache, tmp_path / "out.jsonl.zst")
    assert "sk-123" not in str(refused.value)


# ------------------------------------------------------------------------ checking and missing


def test_a_whole_pack_verifies(
    recorded: tuple[Workspace, RunResult], packed: Path, tmp_path: Path
) -> None:
    report = verify_pack(packed, tmp_path)
    assert (report.answers.problems, report.answers.records) == ((), len(recorded_keys(packed)))
    assert report.manifest.results_root == recorded[1].root
    assert report.journal == len((recorded[1].folder / "journal.jsonl").read_text().splitlines())


def key_in(line: str) -> str:
    key: str = json.loads(line)["about"]["key"]
    return key


def without(path: Path, to: Path, number: int) -> tuple[Path, str]:
    lines = lines_of(path)
    return write_lines(to, sealed([*lines[:number], *lines[number + 1 :]])), key_in(lines[number])


def test_an_answer_that_is_missing_or_made_up_is_a_problem_of_its_own(
    packed: Path, tmp_path: Path
) -> None:
    holed, key = without(packed, tmp_path / "holed.jsonl.zst", 5)
    (problem,) = verify_pack(holed, tmp_path / "a").answers.problems
    assert str(problem) == f"{key}: the run used it, and it is not here"

    lines = lines_of(packed)
    forged = json.loads(lines[1])
    forged["about"]["key"] = "0" * 64
    path = write_lines(
        tmp_path / "forged.jsonl.zst", sealed([lines[0], canonical(forged), *lines[1:]])
    )
    problems = verify_pack(path, tmp_path / "b").answers.problems
    assert [str(problem).partition(key_in(lines[1]))[0] for problem in problems] == [
        f"{'0' * 64}: its request leads to another key, ",
        f"{'0' * 64}: the run never used it",
    ]
    with pytest.raises(DataError, match="its request leads to another key"):
        lay_down(path, tmp_path / "c")
    cache = ReplyCache.open(tmp_path / "cache")
    with pytest.raises(DataError, match="its request leads to another key"):
        unpack(path, cache)


@pytest.mark.parametrize("read", [verify_pack, lay_down])
def test_a_pack_whose_journal_leads_to_another_root_is_refused_before_any_replay(
    packed: Path, tmp_path: Path, read: Callable[[Path, Path], object]
) -> None:
    path = edit_head(packed, tmp_path / "p.jsonl.zst", lambda m: m.update(results_root="0" * 64))
    with pytest.raises(DataError, match="its journal leads to another results root"):
        read(path, tmp_path / "place")


def test_a_miss_in_a_pack_fails_its_own_cell_and_no_other(
    recorded: tuple[Workspace, RunResult], packed: Path, elsewhere: Path, tmp_path: Path
) -> None:
    before = read_ledger(recorded[1].folder / "journal.jsonl")
    lost = make_key("AAA", "2018-01-05")
    (key,) = [call.key for call in before.cells[lost].calls if call.node == "Trader"]
    lines = [line for line in lines_of(packed) if f'"key":"{key}"' not in line[:200]]
    assert len(lines) == len(lines_of(packed)) - 1
    path = write_lines(tmp_path / "holed.jsonl.zst", sealed(lines))
    attempts = len(blocked_attempts())

    found = replay_pack(path, elsewhere, keep=tmp_path / "kept")

    assert (found.equal, len(found.misses), len(blocked_attempts())) == (False, 1, attempts)
    for word in ("node 'Trader'", "ticker AAA", "session 2018-01-05", "trial 0", key):
        assert word in found.misses[0]
    assert found.diff.startswith("--- nearest recorded")
    after = read_ledger(tmp_path / "kept" / recorded[1].run_id / "journal.jsonl")
    missed = after.cells.pop(lost)
    before.cells.pop(lost)
    assert (missed.status, missed.error_class, missed.rating) == ("failed", "replay_miss", None)
    for name, cell in before.cells.items():
        assert after.cells[name].typed == cell.typed
        assert [call.key for call in after.cells[name].calls] == [call.key for call in cell.calls]


def test_a_snapshot_that_nobody_has_is_named_by_its_id(
    recorded: tuple[Workspace, RunResult], packed: Path, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=recorded[0].snapshot.id) as missing:
        replay_pack(packed, tmp_path / "data")
    assert "--data-dir" in str(missing.value)


# --------------------------------------------------------------------------------- strangers' packs

Edit = Callable[[dict[str, Any]], object]
HOSTILE: dict[str, tuple[Edit, str]] = {
    "a run id that climbs": (lambda m: m.update(run_id="../../x-0"), "run_id does not fit"),
    "an absolute run id": (lambda m: m.update(run_id="/tmp/x-0"), "run_id does not fit"),
    "a run id that hides": (lambda m: m.update(run_id=".x-0"), "run_id does not fit"),
    "no identity": (lambda m: m.pop("identity"), "another form"),
    "a root that is none": (lambda m: m.update(results_root="\x1b[2J"), "results_root"),
    "no root": (lambda m: m.update(results_root=None), "results_root"),
    "another root": (lambda m: m.update(results_root="0" * 64), "another results root"),
    "an unfinished run": (lambda m: m.update(status="started"), "status does not fit"),
    "a snapshot by path": (lambda m: m.update(snapshot_name="../../etc"), "snapshot_name"),
    "a snapshot id by path": (lambda m: m.update(snapshot_id="../../etc"), "snapshot_id"),
    "other prompts": (lambda m: m.update(prompt_fingerprint="0" * 64), "with other prompts"),
    "a field more": (lambda m: m.update({"\x1b]0;x\x07": 1}), "another form"),
    "a number for a name": (lambda m: m.update(snapshot_name=5), "another form"),
    "a setting that is unknown": (lambda m: m["config"].update(run_this="rm"), "run_this"),
    "a setting of another type": (lambda m: m["config"].update(horizon="5"), "horizon"),
    "a ticker that climbs": (lambda m: m["config"].update(tickers=["../x"]), "tickers"),
    "a ticker nobody has": (lambda m: m["config"].update(tickers=["ZZZ"]), "'ZZZ'"),
    "more trials than cells": (lambda m: m["config"].update(trials=1000), "ask for 2000 or more"),
    "more sessions than cells": (lambda m: m["config"].update(grid="daily"), "ask for"),
    "dates nobody has": (lambda m: m["config"].update(end="9999-12-31"), "outside snapshot"),
    "a provider nobody has": (lambda m: m["config"].update(provider="evil"), "evil"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_manifest_that_we_would_not_write_is_refused(
    packed: Path, elsewhere: Path, tmp_path: Path, name: str
) -> None:
    edit, words = HOSTILE[name]
    path = edit_head(packed, tmp_path / "in" / "hostile.jsonl.zst", edit)
    before = sorted(tmp_path.rglob("*"))

    with pytest.raises(Exception, match=words) as refused:
        replay_pack(path, elsewhere, keep=tmp_path / "kept")

    assert getattr(refused.value, "exit_code", 2) in (2, 3)
    assert len(str(refused.value)) < 600
    assert sorted(tmp_path.rglob("*")) == before


def test_no_setting_of_a_manifest_makes_a_replay_read_anything(
    recorded: tuple[Workspace, RunResult],
    packed: Path,
    elsewhere: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trap = tmp_path / "trap"
    trap.mkdir()
    monkeypatch.setenv("PRECIOUS", "sk-PRECIOUS-123456")

    def edit(manifest: dict[str, Any]) -> None:
        manifest["config"] |= {
            "data_dir": str(trap),
            "reports_dir": str(trap),
            "snapshot": str(trap),
            "api_key_env": "PRECIOUS",
            "data_vendors": {"core_stock_apis": ["yfinance"]},
        }

    path = edit_head(packed, tmp_path / "hostile.jsonl.zst", edit)
    found = replay_pack(path, elsewhere, keep=tmp_path / "kept")

    assert (found.equal, found.root) == (True, recorded[1].root)
    assert list(trap.iterdir()) == []
    kept = RunFolder(tmp_path / "kept" / recorded[1].run_id).read_manifest()
    assert not {"data_dir", "reports_dir", "api_key_env", "data_vendors"} & kept.config.keys()
    assert isinstance(kept, RunManifest)


def test_a_stranger_does_not_choose_where_models_are_asked(
    packed: Path, elsewhere: Path, tmp_path: Path
) -> None:
    address = "https://collector.example/v1"
    path = edit_head(
        packed,
        tmp_path / "hostile.jsonl.zst",
        lambda m: m["config"].update(provider="openai_compatible", base_url=address),
    )
    folders = {"data_dir": elsewhere, "reports_dir": tmp_path / "reports"}

    with pytest.raises(UsageError, match=r"asked at https://collector\.example/v1: agree with"):
        config_of_pack(path, {}, folders=folders)
    own = config_of_pack(path, {"base_url": "http://127.0.0.1:9/v1"}, folders=folders)
    assert own.base_url == "http://127.0.0.1:9/v1"
    assert config_of_pack(path, {"mode": "replay"}, folders=folders).base_url == address


JOURNAL: dict[str, str] = {
    "a name twice": '{"kind":"cell","kind":"cell","record":{}}',
    "NaN": '{"kind":"cell","record":{"wall_s":NaN}}',
    "infinity": '{"kind":"cell","record":{"wall_s":1e999}}',
    "a huge number": '{"kind":"cell","record":{"steps":' + "9" * 5000 + "}}",
    "half a character": '{"kind":"cell","record":{"symbol":"\\ud800"}}',
    "deep nesting": '{"kind":"cell","record":' + "[" * 500 + "]" * 500 + "}",
    "bottomless nesting": '{"kind":"cell","record":' + "[" * 50_000 + "]" * 50_000 + "}",
    "an unknown kind": '{"kind":"pickle","record":{}}',
    "a record of another form": '{"kind":"cell","record":[]}',
    "no record": '{"kind":"cell"}',
    "no JSON": "cbuiltins\nsystem",
    "nothing": "",
}


@pytest.mark.parametrize("name", JOURNAL)
def test_a_journal_line_that_we_would_not_write_is_refused(
    packed: Path, elsewhere: Path, tmp_path: Path, name: str
) -> None:
    body = JOURNAL[name]
    line = f"{hashlib.sha256(body.encode()).hexdigest()[:16]} {body}"
    lines = lines_of(packed)
    hostile = canonical({"kind": "journal", "line": line})
    path = write_lines(tmp_path / "hostile.jsonl.zst", sealed([*lines[:-1], hostile]))

    with pytest.raises(DataError) as refused:
        replay_pack(path, elsewhere)
    assert len(str(refused.value)) < 600


def test_a_run_and_its_pack_replay_alike(
    recorded: tuple[Workspace, RunResult], packed: Path
) -> None:
    workspace, result = recorded
    one = replay(RunFolder(result.folder), workspace.data)
    two = replay_pack(packed, workspace.data)
    assert (one.root, one.hits, one.cells) == (two.root, two.hits, two.cells)
