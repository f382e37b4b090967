"""``analyze`` at a terminal, in a pipe, killed and gone on with."""

from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from backtester import cli
from backtester.cli import ask
from backtester.cli.live import TerminalView, Usage
from backtester.desk.attended import Opening
from backtester.runs.journal import encode, read_ledger
from tests.support.openai_server import Act, OpenAIServer, Received
from tests.support.records import make_call, make_key
from tests.support.rulebook_server import Fault, by_the_rules, faulty
from tests.support.workspaces import Workspace, make_workspace
from tradingagents_core.settings import PipelineSettings

COMMAND = [sys.executable, "-c", "from backtester.cli import main; main()"]
ANALYZE = ["analyze", "AAA", "2018-01-05", "--snapshot", "small", "--benchmark", "^GSPC"]
ROOT = str(Path(__file__).resolve().parents[3])


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    made = make_workspace(tmp_path / "place")
    monkeypatch.chdir(made.path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    monkeypatch.setenv("PYTHONPATH", ROOT)
    return made


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str


def command(capsys: pytest.CaptureFixture[str], *words: str) -> Said:
    capsys.readouterr()
    code = cli.run(list(words))
    out, err = capsys.readouterr()
    return Said(code, out, err)


# ------------------------------------------------------------------------------------- in a pipe


def test_a_pipe_gets_reports_and_rating_and_progress_goes_to_the_error_stream(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    said = command(capsys, *ANALYZE)

    assert said.code == 0
    reports = [line for line in said.out.splitlines() if line.startswith("## ")]
    assert reports == [
        "## Market Analyst",
        "## Sentiment Analyst",
        "## News Analyst",
        "## Fundamentals Analyst",
        "## Bull Researcher",
        "## Bear Researcher",
        "## Research Manager",
        "## Trader",
        "## Aggressive Analyst",
        "## Conservative Analyst",
        "## Neutral Analyst",
        "## Portfolio Manager",
    ]
    assert "Bull Researcher works ..." in said.err.splitlines()
    assert "Portfolio Manager is done; 17 calls, 0 from the cache" in said.err
    assert "\x1b" not in said.out + said.err
    *_, reports_line, rating_line = said.out.splitlines()
    (cell,) = read_ledger(workspace.reports / "memory" / "default" / "journal.jsonl").cells.values()
    assert rating_line == f"rating    {cell.rating}"
    report = Path(reports_line.removeprefix("reports").strip())
    assert report.name == "complete_report.md"
    assert cell.decision.splitlines()[0] in report.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["analyze"], 2, ["TICKER and DATE", "analyze TICKER DATE"]),
        (["analyze", "AAA"], 2, ["DATE missing"]),
        (["analyze", "AAA", "5.1.2018"], 2, ["'5.1.2018'", "YYYY-MM-DD"]),
        ([*ANALYZE, "--depth", "abyss"], 2, ["'abyss'", "shallow, medium, deep"]),
        ([*ANALYZE, "--analysts", "market,macro"], 2, ["macro", "social"]),
        ([*ANALYZE, "--provider", "openai"], 2, ["OPENAI_API_KEY"]),
        (["analyze", "AAA", "20180105"], 2, ["DATE: '20180105'", "YYYY-MM-DD"]),
        (["analyze", "AAA", "2018-W01-5"], 2, ["DATE: '2018-W01-5'", "YYYY-MM-DD"]),
        (["analyze", "", "2018-01-05"], 2, ["TICKER is empty"]),
        (["analyze", "AAA", ""], 2, ["DATE is empty"]),
        ([*ANALYZE, "--language", ""], 2, ["--language is empty"]),
        ([*ANALYZE, "--memory", ""], 2, ["--memory is empty"]),
        ([*ANALYZE, "--reports-dir", ""], 2, ["--reports-dir is empty"]),
        ([*ANALYZE, "--data-dir", ""], 2, ["--data-dir is empty"]),
        ([*ANALYZE, "--set", "results_dir="], 2, ["results_dir", "is empty"]),
        ([*ANALYZE, "--analysts", ",,"], 2, ["analysts is empty"]),
        ([*ANALYZE, "--set", "output_language= "], 2, ["output_language", "is empty"]),
        ([*ANALYZE, "--memory", "../up"], 2, ["'../up' is no name of a memory"]),
        ([*ANALYZE, "--memory", "x" * 300], 2, ["(302 characters) is no name of a memory"]),
        ([*ANALYZE, "--memory", "mine", "--set", "memory=off"], 2, ["--memory mine", "keep one"]),
        ([*ANALYZE, "--set", "start=2018-01-01"], 2, ["--set start", "leave it out"]),
        ([*ANALYZE, "--set", "end=2018-01-01"], 2, ["--set end", "leave it out"]),
        ([*ANALYZE, "--set", "tickers=BBB"], 2, ["--set tickers", "leave it out"]),
        ([*ANALYZE, "--set", "grid=weekly"], 2, ["--set grid", "leave it out"]),
        ([*ANALYZE, "--set", "trials=2"], 2, ["--set trials", "leave it out"]),
        ([*ANALYZE, "--set", "workers=2"], 2, ["--set workers", "leave it out"]),
        ([*ANALYZE, "--set", "benchmark=none"], 2, ["benchmark", "given twice", "keep one"]),
        (
            [*ANALYZE, "--set", "results_dir=a", "--reports-dir", "b"],
            2,
            ["both set reports_dir", "keep one"],
        ),
        ([*ANALYZE, "--set", "horizn=3"], 2, ["'horizn'", "'horizon'"]),
        ([*ANALYZE, "--set", "mode=replay"], 4, ["no recording for node 'Market Analyst'"]),
        (["analyze", "ZZZ", "2018-01-05", "--snapshot", "small"], 3, ["'ZZZ'", "AAA"]),
        (["analyze", "AAA", "2031-01-05", "--snapshot", "small"], 3, ["outside snapshot small"]),
        (["analyze", "AAA", "2018-01-05", "--snapshot", "big"], 3, ["big", "small"]),
    ],
)
def test_bad_input_is_one_line_with_its_exit_code(
    workspace: Workspace,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    code: int,
    says: list[str],
) -> None:
    said = command(capsys, *words)

    last = said.err.strip().splitlines()[-1]
    assert said.code == code
    assert last.startswith("error: ")
    assert "Traceback" not in said.err
    for word in says:
        assert word in last
    assert not (workspace.reports / "memory").exists()


def test_flags_shape_the_analysis(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    said = command(capsys, *ANALYZE, "--analysts", "market", "--depth", "medium", "--memory", "off")

    assert said.code == 0
    assert said.err.count("Bull Researcher works ...") == 3
    assert "News Analyst" not in said.err
    assert "memory    off, 0 lessons shown" in said.out


def test_a_settled_decision_is_told_and_its_lesson_counted(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    command(capsys, *ANALYZE)

    said = command(capsys, *[word.replace("01-05", "01-19") for word in ANALYZE])

    assert re.search(r"^settled AAA of 2018-01-05: return [+-]\d", said.err, re.MULTILINE)
    assert "default, 1 lesson shown" in said.out
    assert "AAA on 2018-01-19, 1 lesson shown" in said.err


def test_a_day_without_trade_and_a_benchmark_that_is_not_there_are_told_at_the_start(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("analyze", "AAA", "2018-01-06", "--snapshot", "small", "--analysts", "market")
    said = command(capsys, *words)

    assert said.code == 0
    assert said.err.splitlines()[:2] == [
        "note: 2018-01-06 is no session: decided on 2018-01-05",
        (
            "note: benchmark SPY is not in the snapshot: no alpha; name one with --benchmark, "
            "for example ^GSPC"
        ),
    ]
    assert "note:" not in command(capsys, *ANALYZE, "--analysts", "market").err


def test_a_long_speech_of_a_debate_is_shortened_and_its_file_is_named(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer(received: Received) -> Act:
        act = by_the_rules(received)
        message = act.body["choices"][0]["message"]
        if message["content"] and "Role: Neutral Analyst" in str(received.body):
            message["content"] += " word" * 1000 + " the end of it"
        return act

    with OpenAIServer(answer) as server:
        said = command(capsys, *ANALYZE, *at(server))

    assert said.code == 0
    speech = said.out.partition("## Neutral Analyst\n\n")[2].partition("## ")[0]
    assert speech.startswith("Neutral view on")
    assert len(speech) < 1400
    assert "word ...\n\n(shortened; all of it will be in 4_risk/neutral.md" in speech
    (kept,) = workspace.reports.glob("analyses/*/4_risk/neutral.md")
    assert "the end of it" in kept.read_text(encoding="utf-8")


def test_line_ends_of_a_report_stay_line_ends_on_a_terminal() -> None:
    screen = io.StringIO()
    view = TerminalView(Console(width=80, file=screen, force_terminal=True, color_system=None))
    view.opened(opening_of_one())
    report = "Figures:\nlatest_session: 2018-06-29\nopen: 243.49\n\n- a list\n- of two"
    view.node_finished("", "Trader", {"trader_investment_plan": report})

    drawn = [line.strip() for line in screen.getvalue().splitlines()]
    assert drawn[1:4] == ["Figures:", "latest_session: 2018-06-29", "open: 243.49"]


def test_a_report_cannot_command_the_terminal(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer(received: Received) -> Act:
        act = by_the_rules(received)
        message = act.body["choices"][0]["message"]
        if message["content"] and "Role: Market Analyst" in str(received.body):
            message["content"] += "\x1b[2Jgone\x07"
        return act

    with OpenAIServer(answer) as server:
        said = command(capsys, *ANALYZE, *at(server))

    assert said.code == 0
    assert "\\x1b[2Jgone" in said.out
    assert "\x1b" not in said.out


def opening_of_one() -> Opening:
    return Opening(
        symbol="AAA",
        session=date(2018, 6, 29),
        settings=PipelineSettings(),
        analysts=(),
        done=(),
        lessons=1,
        calls=lambda: (),
    )


def at(server: OpenAIServer) -> list[str]:
    return [
        *("--provider", "openai_compatible", "--base-url", server.url, "--model", "stub"),
        *("--set", "endpoint_alias=stub", "--set", "cell_retries=0", "--set", "max_retries=0"),
    ]


def test_a_reader_who_leaves_early_does_not_cost_the_decision(workspace: Workspace) -> None:
    child = subprocess.Popen(
        [*COMMAND, *ANALYZE, "--analysts", "market"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stderr is not None
    child.stdout.close()
    err = child.stderr.read()
    child.stderr.close()

    assert child.wait(60) == 0
    assert "Portfolio Manager is done" in err
    assert "Broken" not in err
    (cell,) = read_ledger(workspace.reports / "memory" / "default" / "journal.jsonl").cells.values()
    assert cell.rating


# ------------------------------------------------------------------------------ where things lie


def used(workspace: Workspace) -> set[str]:
    """Return the folders that hold an analysis."""
    return {path.parent.name for path in workspace.path.glob("*/analyses")}


# Lowest first, and in each pair one spelling of this project and one of the seeds.
LEVELS = ("toml", "TRADINGAGENTS_", "BACKTESTER_", "flag")


@pytest.mark.parametrize("name", ["reports_dir", "results_dir"])
@pytest.mark.parametrize("highest", LEVELS)
def test_the_highest_level_that_names_a_folder_has_it(
    workspace: Workspace,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    highest: str,
    name: str,
) -> None:
    Path("shared.toml").write_text(f'{name} = "toml"\n')
    words = ["--config", "shared.toml"]
    for level in LEVELS[1 : LEVELS.index(highest) + 1]:
        if level == "flag":
            own = "--reports-dir" if name == "reports_dir" else "--set"
            words += [own, "flag"] if own == "--reports-dir" else [own, "results_dir=flag"]
        else:
            monkeypatch.setenv(f"{level}{name.upper()}", level)

    # A strict replay has nothing to answer from, but knows by then where it would write.
    said = command(capsys, *ANALYZE, *words, "--set", "mode=replay")

    assert (said.code, used(workspace)) == (4, {highest})


def test_snapshots_lie_where_any_level_says(
    workspace: Workspace, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.data.rename(workspace.path / "moved")
    words = [*ANALYZE, "--set", "mode=replay"]

    assert command(capsys, *words).code == 3
    assert command(capsys, *words, "--set", "data_dir=moved").code == 4
    monkeypatch.setenv("TRADINGAGENTS_DATA_DIR", "moved")
    assert command(capsys, *words).code == 4


def test_checkpoints_are_cleared_where_the_settings_say(
    workspace: Workspace, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    down = Act(status=503, body={"error": {"message": "down"}})
    fault = Fault(role="Market Analyst", day="2018-01-05", symbol="AAA", acts=[down])
    monkeypatch.setenv("TRADINGAGENTS_RESULTS_DIR", "elsewhere")
    with OpenAIServer(faulty(fault)) as server:
        assert command(capsys, *ANALYZE, *at(server)).code == 5

    said = command(capsys, "analyze", "--clear-checkpoints")

    assert (said.code, said.err) == (0, "checkpoints cleared: 1\n")


def test_a_config_file_of_a_run_gives_way_to_the_question(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("run.toml").write_text(
        'tickers = ["BBB"]\nstart = 2018-02-01\nend = 2018-01-02\ngrid = "monthly"\n'
        "trials = 3\nwarmup = 2\nworkers = 4\n"
        'snapshot = "small"\nbenchmark = "^GSPC"\nanalysts = ["market"]\n'
    )

    said = command(capsys, "analyze", "AAA", "2018-01-05", "--config", "run.toml")

    assert said.code == 0, said.err
    assert "News Analyst" not in said.err
    assert "analysis  AAA on 2018-01-05" in said.out


# --------------------------------------------------------------------------------------- memory


@pytest.mark.parametrize(
    "words", [["--memory", "OFF"], ["--memory", "Off"], ["--set", "memory=off"]]
)
def test_memory_is_off_by_either_switch_and_no_name_is_printed(
    workspace: Workspace, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    said = command(capsys, *ANALYZE, "--analysts", "market", *words)

    assert said.code == 0
    assert "memory    off, 0 lessons shown" in said.out
    assert not (workspace.reports / "memory").exists()


def test_an_entry_that_stays_open_is_named(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*ANALYZE, "--analysts", "market"]
    command(capsys, *words)
    journal = workspace.reports / "memory" / "default" / "journal.jsonl"
    (cell,) = read_ledger(journal).cells.values()
    with journal.open("ab") as file:
        file.write(encode(replace(cell, key=make_key("AAA", "2018-01-06"))))

    said = command(capsys, *words)

    assert said.code == 0
    assert re.search(r"^note: memory default: .*AAA\|2018-01-06\|0 stays open", said.err, re.M)


# ---------------------------------------------------------------------------------------- killed


@pytest.mark.slow
def test_a_killed_analysis_goes_on_at_its_node_and_asks_nothing_twice(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    reached, release = threading.Event(), threading.Event()

    def answer(received: Received) -> Act:
        if "Role: Trader" in str(received.body["messages"][0]) and not reached.is_set():
            reached.set()
            release.wait(60)
        return by_the_rules(received)

    with OpenAIServer(answer) as server:
        child = subprocess.Popen(
            [*COMMAND, *ANALYZE, *at(server)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        assert reached.wait(60)
        child.send_signal(signal.SIGKILL)
        assert child.wait(30) == -signal.SIGKILL
        release.set()
        before = len(server.requests)
        said = command(capsys, *ANALYZE, *at(server))
        bodies = [str(request.body) for request in server.requests]

    assert said.code == 0
    assert "going on after Research Manager" in said.err
    works = [line for line in said.err.splitlines() if line.endswith(" works ...")]
    assert works[0] == "Trader works ..."
    # The trader alone was asked again: its first request had no answer when the process died.
    assert bodies[before - 1] == bodies[before]
    assert len(set(bodies)) == len(bodies) - 1
    (cell,) = read_ledger(workspace.reports / "memory" / "default" / "journal.jsonl").cells.values()
    assert len(cell.calls) == len(set(bodies))
    assert not any((workspace.reports / "analyses").glob("*/checkpoint*"))


@pytest.mark.parametrize("words", [["--clear-checkpoints"], ["--no-checkpoint"]])
def test_a_stopped_analysis_begins_anew_when_asked_to(
    workspace: Workspace, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    down = Act(status=503, body={"error": {"message": "down"}})
    fault = Fault(role="Trader", day="2018-01-05", symbol="AAA", acts=[down])
    with OpenAIServer(faulty(fault)) as server:
        stopped = command(capsys, *ANALYZE, *at(server))
        again = command(capsys, *ANALYZE, *at(server), *words)

    assert stopped.code == 5
    assert again.code == 0, again.err
    assert "Market Analyst works ..." in again.err
    assert ("checkpoints cleared: 1" in again.err) == (words == ["--clear-checkpoints"])


def test_clearing_alone_needs_no_ticker(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    said = command(capsys, "analyze", "--clear-checkpoints")

    assert (said.code, said.err) == (0, "checkpoints cleared: 0\n")


# ---------------------------------------------------------------------------------- at a terminal


def at_a_terminal(words: Sequence[str], *, width: int, answers: Sequence[str] = ()) -> Said:
    """Run a command at a terminal of some width and type an answer at each prompt."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
    child = subprocess.Popen(
        [*COMMAND, *words],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm-256color"},
        start_new_session=True,
    )
    os.close(theirs)
    seen, waiting = b"", list(answers)
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # The other side is closed: the command has ended.
            break
        seen += piece
        if waiting and seen.endswith(b": "):
            os.write(ours, waiting.pop(0).encode() + b"\n")
    os.close(ours)
    return Said(child.wait(60), seen.decode("utf-8"), "")


def lines_of(screen: str) -> list[str]:
    """Return what was drawn, line by line; a move of the cursor begins a line."""
    return re.split(r"[\r\n]+|\x1b\[[0-9;?]*[A-HJKhl]", re.sub(r"\x1b\[[0-9;]*m", "", screen))


@pytest.mark.slow
@pytest.mark.parametrize("width", [80, 140])
def test_the_board_and_the_reports_fit_the_terminal(workspace: Workspace, width: int) -> None:
    said = at_a_terminal([*ANALYZE, "--depth", "medium"], width=width)

    lines = lines_of(said.out)
    assert said.code == 0
    board = [line for line in lines if line.startswith(("Analysts", "Research ", "Risk"))]
    assert any("✓\u00a0Bull\u00a03/3" in line for line in board)
    assert any("●\u00a0Market" in line for line in board)
    assert any(line.startswith("Trader ──") for line in lines)
    # What follows the board is for copying, so it is not folded: the path and the figures.
    end = next(place for place, line in enumerate(lines) if line.startswith("analysis  "))
    assert max(cell_len(line) for line in lines[:end]) <= width
    assert lines[-2].startswith("rating    ")


@pytest.mark.slow
def test_a_person_is_asked_and_the_answers_are_the_next_defaults(
    workspace: Workspace, tmp_path: Path
) -> None:
    words = ["analyze", "--snapshot", "small"]
    first = ["ZZZ", "BBB", "2031-01-01", "2018-01-05", "^GSPC", "market", "medium", "", "German"]
    said = at_a_terminal(words, width=80, answers=first)

    assert said.code == 0, said.out
    assert "snapshot small holds AAA, BBB, ^GSPC" in said.out
    assert "the snapshot covers 2017-01-03" in said.out
    kept = json.loads((tmp_path / "settings" / "backtester" / "last_answers.json").read_text())
    assert kept == {
        "analysts": "market",
        "benchmark": "^GSPC",
        "date": "2018-01-05",
        "deep_model": "rulebook-1",
        "depth": "medium",
        "language": "German",
        "provider": "rulebook",
        "quick_model": "rulebook-1",
        "ticker": "BBB",
    }
    again = at_a_terminal(words, width=80, answers=[""] * 7)
    assert again.code == 0
    for default in ("[BBB]", "[2018-01-05]", "[market]", "[medium]", "[German]"):
        assert default in again.out
    assert re.search(r"used +(\d+) calls, \1 from the cache", again.out)


@pytest.mark.slow
def test_symbols_are_looked_at_as_they_are_answered(workspace: Workspace) -> None:
    benchmarks = ["market,news", "ZZZ", "spx500"]
    said = at_a_terminal(
        ["analyze", "bbb+", "--snapshot", "small"],
        width=140,
        answers=["2018-01-05", *benchmarks, "market", "", "", ""],
    )

    assert said.code == 0, said.out
    assert "'MARKET,NEWS' is no ticker" in said.out
    assert "snapshot small holds AAA, BBB, ^GSPC" in said.out
    assert "analysis  BBB on 2018-01-05" in said.out


@pytest.mark.slow
def test_a_ticker_that_is_not_there_is_told_before_any_question(workspace: Workspace) -> None:
    said = at_a_terminal(["analyze", "ZZZ", "--snapshot", "small"], width=140, answers=[])

    assert said.code == 3
    assert "snapshot small holds AAA, BBB, ^GSPC" in said.out
    assert "Date," not in said.out


@pytest.mark.slow
def test_what_settings_say_already_is_not_asked(workspace: Workspace) -> None:
    Path("shared.toml").write_text(
        'analysts = ["market"]\nprovider = "rulebook"\nmax_debate_rounds = 2\n'
    )
    words = ["analyze", "AAA", "--config", "shared.toml", "--snapshot", "small"]

    said = at_a_terminal(
        [*words, "--benchmark", "^GSPC", "--memory", "mine"], width=140, answers=["2018-01-05", ""]
    )

    assert said.code == 0, said.out
    for word in ("Ticker (", "Benchmark", "Analysts,", "Depth", "Provider", "Model"):
        assert f"{word}" not in said.out.partition("the same without")[0]
    assert (
        "backtester analyze AAA 2018-01-05 --language English --config shared.toml "
        "--snapshot small --benchmark '^GSPC' --memory mine"
    ) in said.out.replace("\r\n", " ")


def test_the_command_without_questions_is_shown_and_means_the_same() -> None:
    answers = {"ticker": "^GSPC", "date": "2018-01-05", "depth": "deep", "language": "Old Norse"}

    assert ask.command_of(answers) == (
        "backtester analyze '^GSPC' 2018-01-05 --depth deep --language 'Old Norse'"
    )


def test_an_address_with_a_password_is_not_kept(workspace: Workspace, tmp_path: Path) -> None:
    ask.remember({"ticker": "AAA", "base_url": "http://me:secret@host/v1"})

    assert ask.recall() == {"ticker": "AAA"}


@pytest.mark.parametrize("content", ["", "[1, 2]", "{", '{"ticker": 7}'])
def test_a_damaged_file_of_answers_counts_as_none(workspace: Workspace, content: str) -> None:
    ask.answers_path().parent.mkdir(parents=True)
    ask.answers_path().write_text(content)

    assert ask.recall() == {}


def test_answers_that_cannot_be_kept_are_no_error(
    workspace: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "settings").write_text("a file in the way")

    ask.remember({"ticker": "AAA"})

    assert "answers are not kept" in capsys.readouterr().err


# --------------------------------------------------------------------------------------- figures


@pytest.mark.parametrize(
    ("costs", "words"),
    [
        ([], "0 calls, 0 from the cache; tokens 0 in, 0 out; cost $0.0000"),
        ([0.5, 0.25], "2 calls, 0 from the cache; tokens 20 in, 10 out; cost $0.7500"),
        ([None], "1 calls, 0 from the cache; tokens 10 in, 5 out; cost unknown"),
        ([0.5, None], "tokens 20 in, 10 out; cost $0.5000 + 1 calls unpriced"),
    ],
)
def test_an_unknown_price_is_told_and_never_zero(costs: list[float | None], words: str) -> None:
    usage = Usage.of([make_call(cost_usd=cost) for cost in costs])

    assert str(usage).endswith(words)
