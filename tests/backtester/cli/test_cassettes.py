"""The cassette commands and `replay PACK` as a user meets them: words, exit codes, folders."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from backtester import cli
from tests.support.cassettes import lines_of, sealed, write_lines
from tests.support.workspaces import make_workspace


class Said(NamedTuple):
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str


Command = Callable[..., Said]
RUN = (
    *("run", "--tickers", "AAA", "--start", "2018-01-02", "--end", "2018-01-12"),
    *("--snapshot", "small", "--benchmark", "^GSPC", "--horizon", "3"),
)


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cli")
    make_workspace(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        assert cli.run(list(RUN)) == 0
        assert cli.run(["cassette", "pack", "latest", "-o", "run.jsonl.zst"]) == 0
    return path


@pytest.fixture
def workspace(master: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(master, tmp_path / "ws")
    monkeypatch.chdir(tmp_path / "ws")
    return tmp_path / "ws"


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    def call(*words: str) -> Said:
        capsys.readouterr()
        code = cli.run(list(words))
        out, err = capsys.readouterr()
        return Said(code, out, err)

    return call


def test_a_pack_replays_in_a_folder_that_takes_no_file(
    command: Command, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(workspace / "data" / "cache")
    shutil.rmtree(workspace / "reports")
    # Nothing can be made in there, whoever asks.
    monkeypatch.chdir("/proc")

    said = command("replay", str(workspace / "run.jsonl.zst"), "--data-dir", f"{workspace}/data")

    assert (said.code, said.out.count("equal: the same inputs gave the same bytes")) == (0, 1)
    assert "network        blocked" in said.out
    assert sorted(path.name for path in workspace.iterdir()) == ["data", "run.jsonl.zst"]


def test_a_missing_answer_is_exit_four_with_node_cell_and_difference(
    command: Command, workspace: Path
) -> None:
    lines = lines_of(workspace / "run.jsonl.zst")
    number = next(n for n, line in enumerate(lines) if '"node":"Trader"' in line[:300])
    key = json.loads(lines[number])["about"]["key"]
    write_lines(workspace / "holed.jsonl.zst", sealed([*lines[:number], *lines[number + 1 :]]))

    said = command("replay", "holed.jsonl.zst")

    assert said.code == 4
    assert "miss: no recording for node 'Trader' of ticker AAA, session 2018-01-" in said.err
    assert f"(key {key})" in said.err
    assert "--- nearest recorded" in said.err
    explained = command("cassette", "explain", key)
    assert (explained.code, f"key         {key}" in explained.out) == (0, True)
    verified = command("cassette", "verify", "holed.jsonl.zst")
    assert (verified.code, "the run used it, and it is not here" in verified.err) == (3, True)


def test_a_pack_is_verified_counted_and_explained(command: Command, workspace: Path) -> None:
    verified = command("cassette", "verify", "run.jsonl.zst")
    rows = json.loads(command("cassette", "stats", "run.jsonl.zst", "--json").out)
    cached = json.loads(command("cassette", "stats", "--json").out)
    key = json.loads(lines_of(workspace / "run.jsonl.zst")[1])["about"]["key"]

    assert verified.code == 0
    assert "every key derived again, all whole" in verified.out
    assert rows == cached
    assert {row["provider"] for row in rows} == {"rulebook"}
    assert all(row["oldest"] <= row["newest"] and row["characters"] > 0 for row in rows)
    table = command("cassette", "stats", "run.jsonl.zst").out
    for heading in ("answers", "tokens in", "characters", "oldest", "newest", "Trader"):
        assert heading in table
    said = command("cassette", "explain", key, "run.jsonl.zst")
    assert (said.code, "asked by    cassette run.jsonl.zst: AAA|2018-01-" in said.out) == (0, True)
    assert command("cassette", "verify").code == 0


def test_packing_again_changes_nothing_and_a_strange_file_is_left_alone(
    command: Command, workspace: Path
) -> None:
    before = (workspace / "run.jsonl.zst").read_bytes()
    again = command("cassette", "pack", "latest", "-o", "run.jsonl.zst")
    assert (again.code, " already, content " in again.out) == (0, True)
    (workspace / "other").write_text("mine")
    refused = command("cassette", "pack", "latest", "-o", "other")
    assert (refused.code, "--force replaces it" in refused.err) == (2, True)
    assert (workspace / "other").read_text() == "mine"
    assert command("cassette", "pack", "latest", "-o", "other", "--force").code == 0
    assert (workspace / "other").read_bytes() == before
    assert command("replay", "./other").code == 0


def test_a_key_in_the_environment_is_not_packed(
    command: Command, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # By chance a prompt holds what somebody uses for a key.
    monkeypatch.setenv("OPENAI_API_KEY", "Simulated date: 2018-01-05")
    said = command("cassette", "pack", "latest", "-o", "new.jsonl.zst")
    assert (said.code, "the value of OPENAI_API_KEY" in said.err) == (2, True)
    assert "Simulated date" not in said.err
    assert not (workspace / "new.jsonl.zst").exists()


def test_an_unpacked_run_is_made_again_without_a_call(command: Command, workspace: Path) -> None:
    shutil.rmtree(workspace / "data" / "cache")
    shutil.rmtree(workspace / "reports")

    unpacked = command("cassette", "unpack", "run.jsonl.zst")
    made = command("run", "--from", "run.jsonl.zst")

    assert (unpacked.code, "run --from run.jsonl.zst" in unpacked.out) == (0, True)
    assert (made.code, " 0 model calls, " in made.out) == (0, True)
    assert command("replay", "latest").code == 0
    pruned = command("cassette", "prune", "--unused", "--yes")
    assert (pruned.code, pruned.out.startswith("0 replies of ")) == (0, True)


def test_pruning_lists_first_and_deletes_when_told(command: Command, workspace: Path) -> None:
    shutil.rmtree(workspace / "reports")
    (workspace / "reports").mkdir()
    assert command("cassette", "prune").code == 2
    listed = command("cassette", "prune", "--unused")
    rows = json.loads(command("cassette", "prune", "--unused", "--json").out)["unused"]
    assert (listed.code, "nothing was deleted: --yes does it" in listed.out) == (0, True)
    assert len(rows) == sum(
        row["records"] for row in json.loads(command("cassette", "stats", "--json").out)
    )
    assert f"{len(rows)} replies of {len(rows)} deleted" in (
        command("cassette", "prune", "--unused", "--yes").out
    )
    assert json.loads(command("cassette", "stats", "--json").out) == []


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("replay", "nowhere.jsonl.zst"), 3, "no cassette at nowhere.jsonl.zst"),
        (("replay", "empty.jsonl.zst"), 3, "empty.jsonl.zst is empty"),
        (("replay", "text.jsonl.zst"), 3, "text.jsonl.zst cannot be read"),
        (("replay", "run.jsonl.zst", "--data-dir", "nowhere"), 3, "no snapshot with the id"),
        (("cassette", "verify", "nowhere"), 3, "no reply cache at nowhere"),
        (("cassette", "stats", "nowhere"), 3, "no reply cache at nowhere"),
        (("cassette", "unpack", "text.jsonl.zst"), 3, "cannot be read"),
        (("cassette", "pack", "nothing", "-o", "x.jsonl.zst"), 3, "'nothing'"),
        (("cassette", "pack", "latest", "-o", "data"), 2, "--force"),
        (("cassette", "pack", "latest", "-o", "text.jsonl.zst/x"), 2, "cannot be written"),
        (("cassette", "explain", "zz"), 2, "64 digits"),
        (("cassette", "explain", "0" * 64), 3, "is known in"),
        (("run", "--from", "text.jsonl.zst"), 3, "cannot be read"),
        (("run", "--from", "nowhere.jsonl.zst"), 3, "no cassette at"),
    ],
)
def test_what_is_wrong_is_one_line_with_its_exit_code(
    command: Command, workspace: Path, words: tuple[str, ...], code: int, says: str
) -> None:
    (workspace / "text.jsonl.zst").write_text("no cassette")
    (workspace / "empty.jsonl.zst").touch()
    said = command(*words)
    assert (said.code, said.out) == (code, "")
    assert says in said.err
    assert said.err.count("\n") == 1
