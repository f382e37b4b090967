"""The command line: every bad input is one clear line and the documented exit code."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from backtester import cli
from backtester.backtest import RunResult
from backtester.backtest import run as run_backtest
from backtester.replies.cache import ReplyCache
from backtester.walk.plan import cache_folder
from tests.support.workspaces import Workspace, make_workspace


@dataclass(frozen=True)
class Said:
    """What a command left behind."""

    code: int
    out: str
    err: str


Command = Callable[..., Said]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workspace, RunResult]:
    workspace = make_workspace(tmp_path_factory.mktemp("cli"))
    config = workspace.config(tickers=("AAA",), end="2018-01-19")
    return workspace, run_backtest(config)


@pytest.fixture
def workspace(
    recorded: tuple[Workspace, RunResult], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """Work in a copy of a workspace that holds one finished run."""
    shutil.copytree(recorded[0].path, tmp_path / "workspace")
    monkeypatch.chdir(tmp_path / "workspace")
    (tmp_path / "workspace" / "snapshots-only").mkdir()
    (tmp_path / "workspace" / "snapshots-only" / "snapshots").symlink_to("../data/snapshots")
    return tmp_path / "workspace"


@pytest.fixture
def command(workspace: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    def call(*words: str) -> Said:
        capsys.readouterr()
        code = cli.run(list(words))
        out, err = capsys.readouterr()
        return Said(code, out, err)

    return call


RUN = ("run", "--snapshot", "small", "--benchmark", "^GSPC", "--horizon", "3")
WEEK = ("--start", "2018-01-02", "--end", "2018-01-05")


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ((*RUN, *WEEK, "--tickers", "ZZZ"), 3, ["'ZZZ'", "snapshot small", "AAA"]),
        ((*RUN, *WEEK, "--tickers", "../../etc/passwd"), 2, ["is no ticker", "AAPL"]),
        ((*RUN, *WEEK), 2, ["tickers"]),
        (
            (*RUN, "--tickers", "AAA", "--start", "2018-02-01", "--end", "2018-01-01"),
            2,
            ["2018-01-01 is before start 2018-02-01"],
        ),
        (
            (*RUN, "--tickers", "AAA", "--start", "2018-01-02", "--end", "2030-01-05"),
            3,
            ["outside snapshot small", "covers 2017-01-03"],
        ),
        (
            (*RUN, "--tickers", "AAA", "--start", "2018-01-06", "--end", "2018-01-07"),
            2,
            ["session"],
        ),
        ((*RUN, *WEEK, "--tickers", "AAA", "--set", "horizn=5"), 2, ["'horizn'", "'horizon'"]),
        ((*RUN, *WEEK, "--tickers", "AAA", "--set", "horizon=soon"), 2, ["horizon"]),
        ((*RUN, *WEEK, "--tickers", "AAA", "--entry", "open"), 2, ["'open'", "next_open"]),
        ((*RUN, *WEEK, "--tickers", "AAA", "--analysts", "market,macro"), 2, ["macro", "social"]),
        ((*RUN, *WEEK, "--tickers", "AAA", "--provider", "opnai"), 2, ["opnai", "openai"]),
        ((*RUN, *WEEK, "--tickers", "AAA", "--provider", "openai"), 2, ["OPENAI_API_KEY"]),
        (
            ("run", "--snapshot", "big", *WEEK, "--tickers", "AAA"),
            3,
            ["big", "small"],
        ),
        (("run", "missing.toml"), 2, ["missing.toml does not exist"]),
        (("replay", "nothing"), 3, ["'nothing'", "is unknown", "reports"]),
        (("show", "nothing"), 3, ["'nothing'", "is unknown"]),
        (("leakcheck", "nothing"), 3, ["'nothing'"]),
        (("snapshot", "show", "nothing"), 3, ["nothing", "small"]),
        (("snapshot", "verify", "nothing"), 3, ["nothing", "small"]),
        (("sql", "SELEC 1"), 2, ["syntax error", "line 1"]),
        (("sql", "COPY (SELECT 1) TO 'x.csv'"), 2, []),
        (("sql", "SELECT * FROM read_csv('config.csv')"), 2, []),
        (("sql", "DELETE FROM cells"), 2, []),
        (("sql", "SELECT nothing FROM cells"), 2, ["nothing"]),
        (("nonsense",), 2, ["nonsense"]),
        (
            ("run", "--snapshot", "small", *WEEK, "--tickers", "AAA"),
            3,
            ["benchmark SPY", "default for AAA", "^GSPC", "--benchmark"],
        ),
        ((*RUN, *WEEK, "--tickers", "AAA", "--benchmark", "^DJI"), 3, ["^DJI", "^GSPC"]),
        (("leakcheck", "latest", "--data-dir", "snapshots-only"), 4, ["nothing was checked"]),
        (("transcript", "latest", "AAA", "2018-01-06"), 3, ["AAA|2018-01-06|0"]),
        (("transcript", "latest", "AAA", "today"), 2, ["YYYY-MM-DD"]),
        (("transcript", "latest", "AAA", "2018-01-05", "--node", "Nobody"), 2, ["Nobody"]),
    ],
)
def test_bad_input_is_one_line_with_its_exit_code(
    command: Command, words: tuple[str, ...], code: int, says: list[str]
) -> None:
    before = snapshot_of(Path())
    said = command(*words)

    assert said.code == code, said.err
    assert len(said.err.strip().splitlines()) == 1
    assert "Traceback" not in said.err
    for word in says:
        assert word in said.err
    assert snapshot_of(Path()) == before


def snapshot_of(folder: Path) -> dict[str, bytes]:
    """Return all files with their content, but for locks and new empty folders."""
    return {
        str(path): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        and "lock" not in path.name
        and "cache.db" not in path.name
        and path.parent != Path("snapshots-only/cache/replies")
    }


def test_an_unknown_key_in_a_config_file_names_file_and_nearest(
    command: Command, workspace: Path
) -> None:
    (workspace / "mine.toml").write_text('tickers = ["AAA"]\nmemry = "off"\n')

    said = command("run", "mine.toml")

    assert said.code == 2
    assert "'memry' in config file mine.toml" in said.err
    assert "'memory'" in said.err


def test_a_damaged_parquet_names_the_file_and_both_hashes(
    command: Command, workspace: Path
) -> None:
    path = workspace / "data" / "snapshots" / "small" / "bars.parquet"
    damaged = bytearray(path.read_bytes())
    damaged[100] ^= 1
    path.write_bytes(damaged)

    said = command(*RUN, *WEEK, "--tickers", "AAA")

    assert said.code == 3
    assert "bars.parquet" in said.err
    assert len([word for word in said.err.replace(",", " ").split() if len(word) >= 64]) == 2
    assert command("snapshot", "verify", "small").code == 3


def test_a_damaged_cache_record_names_its_key_and_nothing_is_lost(
    command: Command, workspace: Path
) -> None:
    cache = ReplyCache.open(cache_folder(workspace / "data"))
    key = cache.keys()[0]
    with cache._store as store:
        store[key] = store[key].replace('"text"', '"tixt"', 1)
    cache.close()
    count = len(cache.keys())

    said = command("cassette", "verify")

    assert said.code == 3
    assert key in said.err
    replayed = command("replay", "latest")
    assert replayed.code == 3
    assert key in replayed.err
    assert len(ReplyCache.open(cache_folder(workspace / "data")).keys()) == count


def test_a_damaged_journal_names_its_line(command: Command, workspace: Path) -> None:
    path = next((workspace / "reports").glob("*/journal.jsonl"))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[1][:30] + b"#" + lines[1][31:] + b"".join(lines[2:]))

    said = command("replay", "latest")

    assert said.code == 3
    assert "journal.jsonl is damaged at line 2" in said.err
    assert command("rebuild").code == 3


def test_a_reports_folder_in_whose_place_is_a_file_is_told(
    command: Command, workspace: Path
) -> None:
    (workspace / "taken").write_text("")

    said = command(*RUN, *WEEK, "--tickers", "AAA", "--reports-dir", "taken")

    assert said.code == 2
    assert "taken" in said.err
    assert "cannot be written" in said.err


# ---------------------------------------------------------------------------------- good commands


def test_no_benchmark_is_a_choice_and_the_reason_is_told(command: Command) -> None:
    said = command("run", "--snapshot", "small", *WEEK, "--tickers", "AAA", "--benchmark", "none")

    assert said.code == 0
    assert "1 without alpha: no benchmark was wanted" in said.out


def test_every_command_finds_the_folders_that_a_variable_names(
    command: Command, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace / "reports").rename(workspace / "elsewhere")
    assert command("show", "latest").code == 3
    monkeypatch.setenv("BACKTESTER_REPORTS_DIR", "elsewhere")

    words = (["runs"], ["show", "latest"], ["replay", "latest"], ["sql", "SELECT 1"])
    assert [command(*each).code for each in words] == [0, 0, 0, 0]


def test_a_transcript_shows_what_was_asked_and_answered_with_no_control_characters(
    command: Command,
) -> None:
    said = command("transcript", "latest", "AAA", "2018-01-05")

    assert said.code == 0
    for words in ("=== Market Analyst, call 0", "Simulated date: 2018-01-05", "=== Reflector"):
        assert words in said.out
    assert all(char.isprintable() or char in "\n\t" for char in said.out)


def test_a_transcript_that_there_is_not_says_which_there_are(command: Command) -> None:
    stranger = command("transcript", "latest", "FB", "2018-01-05")
    assert stranger.code == 3
    assert "its tickers are AAA" in stranger.err
    other_day = command("transcript", "latest", "AAA", "2018-01-06")
    assert "AAA has 3 from 2018-01-05 to 2018-01-19" in other_day.err
    node = command("transcript", "latest", "AAA", "2018-01-05", "--node", "trader")
    assert node.code == 2
    assert "its nodes are Market Analyst, " in node.err
    assert "Trader, " in node.err


def test_settings_are_listed_with_their_defaults(command: Command) -> None:
    said = command("settings")

    for name in ("horizon", "cell_retries", "endpoint_alias"):
        assert name in said.out
    rows = {row["name"]: row for row in json.loads(command("settings", "--json").out)}
    assert rows["horizon"]["default"] == 5
    assert rows["analysts"]["default"] == ["market", "social", "news", "fundamentals"]
    assert (rows["tickers"]["required"], rows["tickers"]["default"]) == (True, None)
    assert (rows["horizon"]["identity"], rows["workers"]["identity"]) == (True, False)


@pytest.mark.slow
def test_an_interrupted_run_says_so_and_the_same_command_goes_on(workspace: Path) -> None:
    words = [*RUN, "--tickers", "AAA,BBB", "--start", "2017-10-02", "--end", "2018-01-19"]
    words += ["--grid", "daily"]
    # A suite that runs in the background of a shell was told to ignore interrupts.
    heard = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    child = subprocess.Popen(
        [sys.executable, "-c", f"{heard}; from backtester.cli import main; main()", *words],
        cwd=workspace,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    limit = time.monotonic() + 60
    while time.monotonic() < limit and not any(
        b'"kind":"cell"' in path.read_bytes()
        for path in workspace.glob("reports/rulebook-1-2x*/journal.jsonl")
    ):
        time.sleep(0.05)
    child.send_signal(signal.SIGINT)
    err = child.communicate()[1]

    assert child.returncode == 130
    assert err.splitlines()[-1] == "interrupted: the same command goes on from here"
    manifest = next(workspace.glob("reports/rulebook-1-2x*/manifest.json"))
    assert json.loads(manifest.read_text())["status"] == "stopped"


def test_the_same_command_finds_its_finished_run(command: Command) -> None:
    said = command(*RUN, "--start", "2018-01-02", "--end", "2018-01-19", "--tickers", "AAA")

    assert said.code == 0
    assert "finished already: 0 model calls" in said.out


def test_a_run_is_repeated_from_its_manifest(command: Command, workspace: Path) -> None:
    manifest = next((workspace / "reports").glob("*/manifest.json"))

    said = command("run", "--from", str(manifest))

    assert said.code == 0
    assert json.loads(manifest.read_text())["run_id"] in said.out
    assert "0 model calls" in said.out


def test_replay_says_that_the_roots_are_equal(command: Command) -> None:
    said = command("replay", "latest")

    assert said.code == 0
    assert "equal: the same inputs gave the same bytes" in said.out


def test_leakcheck_says_what_was_tried_and_what_is_not_covered(command: Command) -> None:
    said = command("leakcheck", "latest")

    assert said.code == 0
    for words in ("rewritten", "cut", "moved", "not covered", "training data", "clean:"):
        assert words in said.out
    assert " steps in each of 3 worlds (rewritten, cut, moved) ...\n" in said.err


def test_runs_and_show_speak_json(command: Command, workspace: Path) -> None:
    manifest = json.loads(next((workspace / "reports").glob("*/manifest.json")).read_text())

    listed = json.loads(command("runs", "--json").out)
    shown = json.loads(command("show", "latest", "--json").out)

    assert [item["run_id"] for item in listed] == [manifest["run_id"]]
    assert shown["manifest"] == manifest


def test_show_tells_windows_models_and_rounds(command: Command) -> None:
    said = command("show", "latest")

    for words in ("30 sessions of prices", "rulebook-1", "1 of debate", "market, social"):
        assert words in said.out


def test_two_look_backs_are_two_runs_and_each_says_what_it_saw(
    command: Command, workspace: Path
) -> None:
    week = (*RUN, "--start", "2018-01-16", "--end", "2018-01-19", "--tickers", "AAA")
    answers = {}
    for sessions in (30, 250):
        name = f"back-{sessions}"
        settings = ("--set", f"price_lookback={sessions}", "--set", f"name={name}")
        assert command(*week, *settings).code == 0
        answers[sessions] = command("show", name).out
    ids = [json.loads(p.read_text())["run_id"] for p in workspace.glob("reports/back-*/*.json")]

    assert len(set(ids)) == 2
    for sessions, text in answers.items():
        assert f"{sessions} sessions of prices" in text
        seen = next(line for line in text.splitlines() if re.match("Market Analyst +bars ", line))
        assert "2018-01-19 21:00Z" in seen


@pytest.mark.parametrize("form", ["table", "csv", "json", "parquet"])
def test_sql_writes_every_format(command: Command, workspace: Path, form: str) -> None:
    target = workspace / f"out.{form}"
    said = command(
        "sql",
        "SELECT session, rating FROM cells ORDER BY session",
        "--format",
        form,
        "-o",
        str(target),
    )

    assert said.code == 0, said.err
    assert target.stat().st_size > 0
    if form == "csv":
        assert target.read_text().splitlines()[0] == "session,rating"
        assert len(target.read_text().splitlines()) == 4


@pytest.mark.parametrize(
    ("file", "begins"),
    [
        ("out.csv", b"rating,n\n"),
        ("out.JSON", b'[{"rating"'),
        ("out.parquet", b"PAR1"),
        ("out.txt", b""),
    ],
)
def test_sql_takes_the_format_from_the_suffix(
    command: Command, workspace: Path, file: str, begins: bytes
) -> None:
    query = "SELECT 'Buy' AS rating, 1 AS n"
    assert command("sql", query, "-o", file).code == 0
    written = (workspace / file).read_bytes()
    assert written.replace(b"\n", b"").replace(b" ", b"").startswith(begins.strip())
    assert (b"rating,n" in written) is (file == "out.csv")
    assert command("sql", query, "-o", file, "--format", "csv").code == 0
    assert (workspace / file).read_bytes() == b"rating,n\nBuy,1\n"


def test_rebuild_makes_the_same_tables_anew(command: Command, workspace: Path) -> None:
    question = ("sql", "SELECT * FROM returns ORDER BY session", "--format", "csv")
    before = command(*question).out
    (workspace / "reports" / "results.duckdb").unlink()
    assert command(*question).code == 3

    assert command("rebuild").code == 0
    assert command(*question).out == before


def test_schema_names_every_table_and_a_unit(command: Command) -> None:
    text = command("schema").out

    for word in ("runs", "cells", "returns", "memory", "llm_calls", "reads", "alpha_by_rating"):
        assert word in text
    assert json.loads(command("schema", "--json").out)
    assert command("schema", "positions").out.startswith("TABLE positions: ")


def test_every_command_has_help(command: Command) -> None:
    groups = ["demo", "run", "replay", "runs", "show", "sql", "schema", "leakcheck", "rebuild"]
    for words in [[name] for name in groups] + [["snapshot", "show"], ["cassette", "verify"]]:
        said = command(*words, "--help")
        assert said.code == 0
        assert "Usage: backtester" in said.out


PUBLISH_AT_EVERY_BARRIER = """
import sys
from backtester import cli, publication
publication.PUBLISH_EVERY_S = publication.PAUSE_PER_PUBLICATION = 0.0
cli.main(sys.argv[1:])
"""


@pytest.mark.slow
def test_sql_and_a_run_in_another_process_do_not_disturb_each_other(
    command: Command, workspace: Path
) -> None:
    child = subprocess.Popen(
        [
            sys.executable,
            "-c",
            PUBLISH_AT_EVERY_BARRIER,
            *RUN,
            "--tickers",
            "AAA,BBB",
            "--start",
            "2018-01-02",
            "--end",
            "2018-01-19",
            "--grid",
            "daily",
        ],
        cwd=workspace,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    answers: list[Said] = []
    done = threading.Event()
    complaints: list[str] = []

    def wait() -> None:
        complaints.append(child.communicate()[1])
        done.set()

    waiter = threading.Thread(target=wait)
    waiter.start()
    counts = []
    while not done.is_set():
        said = command("sql", "SELECT count(*) AS n FROM cells WHERE scored", "--format", "csv")
        answers.append(said)
        counts.append(int(said.out.split()[-1]) if said.code == 0 else -1)
        done.wait(0.05)
    waiter.join()

    assert child.returncode == 0, complaints
    assert {said.code for said in answers} == {0}
    assert counts == sorted(counts)
    assert len(set(counts)) > 2


def test_an_error_line_that_quotes_a_stranger_cannot_command_the_terminal(
    command: Command,
) -> None:
    said = command("sql", "SELECT error(chr(27) || '[31mred' || chr(155) || '2J')")

    assert said.code == 2
    assert "\\x1b[31mred" in said.err
    assert all(char.isprintable() or char == "\n" for char in said.err)
