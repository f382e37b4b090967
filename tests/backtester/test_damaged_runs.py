"""A damaged run is told as such by every command, and hides no other run."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from backtester import cli
from backtester.backtest import run
from backtester.cli.render import show_manifest, show_runs
from backtester.errors import DataError
from backtester.runs.folder import RunFolder, RunManifest, find_run, read_runs
from tests.support.workspaces import make_workspace

DIRECTORY = None
TEXTS: Mapping[str, bytes | None] = {
    "nothing": b"",
    "a list": b"[]",
    "null": b"null",
    "an object": b"{}",
    "a number": b"7",
    "a text": b'"x"',
    "binary": b"\x80\xff\x00" * 50,
    "zeros": b"\0" * 4096,
    "deep": b"[" * 100_000,
    "deep objects": b'{"a":' * 5000,
    "large": b"x" * 3_000_000,
    "a directory": DIRECTORY,
}
BROKEN = ("nothing", "null", "binary", "a directory")
VALUES: tuple[Any, ...] = (
    None,
    -1,
    10**30,
    1.5,
    True,
    "x",
    "",
    [],
    [None],
    {},
    {"a": None},
    "[/b]",
    "\x1b[31m",
)


@dataclass(frozen=True)
class Place:
    """A workspace with two finished runs."""

    data: Path
    reports: Path
    first: str
    second: str

    def file(self, name: str) -> Path:
        """Return a file of the first run, or one of the reports folder."""
        inside = self.reports / self.first / name
        return inside if inside.exists() else self.reports / name


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    workspace = make_workspace(tmp_path_factory.mktemp("damaged"))
    short = {"end": "2018-01-12", "tickers": ("AAA",)}
    first, second = (run(workspace.config(**short, horizon=horizon)) for horizon in (3, 2))
    return Place(workspace.data, workspace.reports, first.run_id, second.run_id)


@pytest.fixture
def damage(place: Place) -> Iterator[Callable[[str, bytes | None], None]]:
    """Return a function that replaces a file; all are put back afterwards."""
    names = ("manifest.json", "journal.jsonl", "results.duckdb")
    whole = {place.file(name): place.file(name).read_bytes() for name in names}

    def replace(name: str, content: bytes | None) -> None:
        path = place.file(name)
        _put(path, content)

    yield replace
    for path, content in whole.items():
        _put(path, content)


def _put(path: Path, content: bytes | None) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    if content is DIRECTORY:
        path.mkdir()
    else:
        path.write_bytes(content)


def commands(place: Place, out: Path) -> Mapping[str, tuple[str, ...]]:
    data = ("--data-dir", str(place.data))
    reports = ("--reports-dir", str(place.reports))
    name = place.first
    return {
        "runs": ("runs", *reports),
        "runs --json": ("runs", "--json", *reports),
        "show": ("show", name, *reports),
        "show --json": ("show", name, "--json", *reports),
        "sql": ("sql", "SELECT * FROM cells", "-o", str(out / "x.csv"), *reports),
        "replay": ("replay", name, *data, *reports),
        "rebuild": ("rebuild", *reports),
        "leakcheck": ("leakcheck", name, *data, *reports),
        "transcript": ("transcript", name, "AAA", "2018-01-05", *data, *reports),
        "pack": (
            "cassette",
            "pack",
            name,
            "-o",
            str(out / "p.jsonl.zst"),
            "--force",
            *data,
            *reports,
        ),
    }


def test_the_commands_of_these_tests_work_on_whole_runs(place: Place, tmp_path: Path) -> None:
    for name, words in commands(place, tmp_path).items():
        assert cli.run(list(words)) == 0, name


@pytest.mark.parametrize("what", TEXTS)
def test_every_command_that_reads_a_manifest_says_that_it_is_damaged(
    place: Place,
    damage: Callable[[str, bytes | None], None],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    what: str,
) -> None:
    damage("manifest.json", TEXTS[what])
    for name, words in commands(place, tmp_path).items():
        if name == "sql":
            continue
        capsys.readouterr()
        code = cli.run(list(words))
        said = capsys.readouterr().err.splitlines()
        if name == "transcript":
            # It asks the journal.
            assert code == 0, said
            continue
        assert code == 3, (name, said)
        assert len(said) == 1
        assert "manifest.json" in said[0]
        assert len(said[0]) < 600


@pytest.mark.parametrize("what", [*BROKEN, "half", "lines swapped", "no header", "two headers"])
def test_every_command_that_reads_a_journal_says_that_it_is_damaged(
    place: Place,
    damage: Callable[[str, bytes | None], None],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    what: str,
) -> None:
    whole = place.file("journal.jsonl").read_bytes()
    lines = whole.splitlines(keepends=True)
    contents = {
        **{name: text and text + b"\n" for name, text in TEXTS.items()},
        "half": whole[: len(whole) // 2],
        "lines swapped": b"".join([lines[1], lines[0], *lines[2:]]),
        "no header": b"".join(lines[1:]),
        "two headers": lines[0] + whole,
    }
    damage("journal.jsonl", contents[what])
    for name in ("replay", "rebuild", "leakcheck", "pack", "transcript", "runs"):
        capsys.readouterr()
        code = cli.run(list(commands(place, tmp_path)[name]))
        said = capsys.readouterr().err.splitlines()
        # A cell of the half that is left is a whole cell.
        whole_cell = name == "transcript" and what == "half"
        assert code in ((0, 3) if whole_cell else (0,) if name == "runs" else (3,)), (name, said)


@pytest.mark.parametrize("what", [*BROKEN, "half", "head"])
def test_every_command_that_reads_the_database_says_that_it_is_damaged(
    place: Place,
    damage: Callable[[str, bytes | None], None],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    what: str,
) -> None:
    whole = place.file("results.duckdb").read_bytes()
    contents = {**TEXTS, "half": whole[: len(whole) // 2], "head": whole[:4096]}
    damage("results.duckdb", contents[what])
    for name in ("show", "show --json", "sql"):
        capsys.readouterr()
        code = cli.run(list(commands(place, tmp_path)[name]))
        said = capsys.readouterr().err.splitlines()
        # Half a file may hold all rows that one query asks for.
        assert code == 3 or (what, name) == ("half", "sql"), (name, said)
        assert len(said) == (1 if code else 0)
    assert cli.run(list(commands(place, tmp_path)["runs"])) == 0


def test_no_value_of_a_manifest_is_a_fault_of_ours(
    place: Place, damage: Callable[[str, bytes | None], None]
) -> None:
    """Each key is left out, and each gets each kind of value."""
    whole = json.loads(place.file("manifest.json").read_bytes())
    for changed in _changes(whole):
        damage("manifest.json", json.dumps(changed).encode())
        found = read_runs(place.reports)
        assert len(found.manifests) + len(found.damaged) == 2
        assert all("manifest.json" in run.problem for run in found.damaged)
        assert all(len(run.problem) < 600 for run in found.damaged)
        show_runs(found)
        for manifest in found.manifests:
            show_manifest(manifest)


def _changes(whole: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for key in whole:
        yield {name: value for name, value in whole.items() if name != key}
        yield from ({**whole, key: value} for value in VALUES)
    for part in ("identity", "models", "versions"):
        for key in whole[part]:
            inner = whole[part]
            yield {**whole, part: {name: value for name, value in inner.items() if name != key}}
            yield from (
                {**whole, part: {**inner, key: value}} for value in (10**30, [None], "[/b]")
            )


@pytest.mark.parametrize("field", ["tickers", "horizon", "temperature"])
def test_a_changed_identity_is_not_that_of_the_run_id(
    place: Place, damage: Callable[[str, bytes | None], None], field: str
) -> None:
    folder = RunFolder(place.reports / place.first)
    whole = json.loads(folder.manifest_path.read_bytes())
    other = {"tickers": ["BBB"], "horizon": 4, "temperature": 0.5}[field]
    whole["identity"][field] = other
    damage("manifest.json", json.dumps(whole).encode())

    with pytest.raises(DataError, match="not the one that the run id was made from"):
        folder.read_manifest()


@pytest.mark.parametrize("value", [None, 7, [None], {}], ids=str)
@pytest.mark.parametrize("key", ["tickers", "mode", "api_key_env"])
def test_no_value_of_a_configuration_is_a_fault_of_ours(
    place: Place,
    damage: Callable[[str, bytes | None], None],
    tmp_path: Path,
    key: str,
    value: Any,
) -> None:
    whole = json.loads(place.file("manifest.json").read_bytes())
    whole["config"][key] = value
    damage("manifest.json", json.dumps(whole).encode())
    right = (key, value) == ("api_key_env", None)
    assert cli.run(list(commands(place, tmp_path)["replay"])) == (0 if right else 3)
    assert cli.run(list(commands(place, tmp_path)["pack"])) in (0, 3)


def test_a_manifest_that_a_stranger_made_whole_has_all_that_is_shown(place: Place) -> None:
    """Somebody who bends an identity can bend the run id as well."""
    whole = json.loads(place.file("manifest.json").read_bytes())
    shown = (
        *("tickers", "start", "end", "grid", "decision_time", "entry", "horizon", "trials"),
        *("warmup", "benchmark", "analysts", "max_debate_rounds", "max_risk_discuss_rounds"),
        *("price_lookback", "news_lookback_days", "memory"),
    )
    for key in shown:
        left = {name: value for name, value in whole["identity"].items() if name != key}
        for identity in (left, {**left, key: {}}, {**left, key: [None]}, {**left, key: 10**30}):
            with pytest.raises(ValidationError):
                RunManifest.model_validate({**whole, "identity": identity})


def test_a_damaged_run_is_listed_and_hides_no_other(
    place: Place,
    damage: Callable[[str, bytes | None], None],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    damage("manifest.json", b"{")

    assert cli.run(list(commands(place, tmp_path)["runs"])) == 3
    said = capsys.readouterr()
    assert place.second in said.out
    assert re.search(rf"^{place.first} +damaged", said.out, re.MULTILINE)
    assert said.err.startswith("error: 1 of 2 runs: ")

    assert cli.run(list(commands(place, tmp_path)["runs --json"])) == 3
    rows = {row["run_id"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows[place.second]["status"] == "finished"
    assert rows[place.first]["status"] == "damaged"
    assert "manifest.json is damaged" in rows[place.first]["problem"]
    assert cli.run(["show", place.second, "--reports-dir", str(place.reports)]) == 0


def test_the_latest_run_is_not_guessed_where_a_manifest_does_not_read(
    place: Place, damage: Callable[[str, bytes | None], None]
) -> None:
    assert find_run(place.reports, "latest").run_id in (place.first, place.second)
    damage("manifest.json", b"{")

    with pytest.raises(DataError, match="which run is the latest cannot be told, name it"):
        find_run(place.reports, "latest")


def test_an_unreadable_manifest_is_told(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> bytes:
        raise PermissionError(13, os.strerror(13), str(path))

    monkeypatch.setattr(Path, "read_bytes", refuse)

    assert len(read_runs(place.reports).damaged) == 2
    with pytest.raises(DataError, match=r"cannot be read \(Permission denied\)"):
        RunFolder(place.reports / place.first).read_manifest()


@pytest.mark.parametrize("command", ["show", "replay", "leakcheck", "transcript", "pack"])
def test_a_long_name_of_a_run_is_not_told_whole(
    place: Place, capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str
) -> None:
    words = [
        "x" * 3000 if word == place.first else word for word in commands(place, tmp_path)[command]
    ]

    assert cli.run(words) == 3
    assert len(capsys.readouterr().err) < 500
