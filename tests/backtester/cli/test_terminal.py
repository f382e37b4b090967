"""Tables of the command line at narrow and wide terminals: nothing that one reads is cut."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from backtester import cli
from backtester.backtest import RunResult
from backtester.backtest import run as run_backtest
from backtester.cli import render
from tests.support.workspaces import Workspace, make_workspace

ASKED = (
    *("--snapshot", "small", "--benchmark", "^GSPC", "--horizon", "3"),
    *("--tickers", "AAA,BBB", "--start", "2018-01-02", "--end", "2018-01-19"),
)
UNKNOWN_PRICES = (
    *("--provider", "openai_compatible", "--base-url", "http://127.0.0.1:9/v1"),
    *("--set", "quick_model=a-quick-model", "--set", "deep_model=a-deep-model"),
)
Shown = Callable[..., str]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workspace, RunResult]:
    workspace = make_workspace(tmp_path_factory.mktemp("terminal"))
    return workspace, run_backtest(workspace.config(tickers=("AAA",), end="2018-01-19"))


@pytest.fixture(params=[80, 140])
def width(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def shown(
    recorded: tuple[Workspace, RunResult],
    width: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Shown:
    """Run a command that reads, at a terminal of some width, and return what it printed."""
    monkeypatch.chdir(recorded[0].path)
    monkeypatch.setattr(render, "_OUT", Console(highlight=False, soft_wrap=True, width=width))

    def call(*words: str, exit_code: int = 0) -> str:
        capsys.readouterr()
        code = cli.run(list(words))
        out, err = capsys.readouterr()
        assert code == exit_code, err
        assert "\u2026" not in out
        return out

    return call


def widest_table_line(out: str) -> int:
    """Return the width of the rules below the headings, which are as wide as their tables."""
    return max(cell_len(line) for line in out.splitlines() if line.startswith("\u2500"))


def test_a_plan_is_shown_with_every_figure_whole(shown: Shown, width: int) -> None:
    out = shown("plan", *ASKED)

    # 3 Fridays, 2 tickers, each cell at most 3 times; 6 tool turns and the report.
    assert re.search(r"^model    rulebook:rulebook-1$", out, re.MULTILINE)
    rows = [line for line in out.splitlines() if line.startswith("Market Analyst")]
    assert len(rows) == (2 if width == 80 else 1)
    assert widest_table_line(out) <= width
    total = [figure for line in out.splitlines() for figure in line.split() if "total" in line]
    assert len([figure for figure in total if re.fullmatch(r"[\d,]+(\.\d{4})?", figure)]) == 7
    # The rulebook has no limit on a reply, so the worst case of its tokens is not known.
    assert total.count("unknown") == 1


def test_a_plan_of_two_models_names_each_and_calls_what_is_unknown_so(
    shown: Shown, width: int
) -> None:
    out = shown("plan", *ASKED, *UNKNOWN_PRICES)

    rows = [line.split() for line in out.splitlines() if line.startswith("Portfolio Manager")]
    assert widest_table_line(out) <= width
    assert len(rows) == (3 if width == 80 else 2)
    assert rows[0][2] == "openai_compatible:a-deep-model"
    assert rows[-1][-2:] == ["unknown", "unknown"]


def test_runs_are_listed_with_their_ids_status_and_cells_whole(
    shown: Shown, width: int, recorded: tuple[Workspace, RunResult]
) -> None:
    out = shown("runs")

    assert widest_table_line(out) <= width
    row = next(line for line in out.splitlines() if recorded[1].run_id in line)
    assert row.split()[:3] == [recorded[1].run_id, "finished", "3"]


def test_an_id_wider_than_the_terminal_is_listed_whole(
    shown: Shown, tmp_path: Path, recorded: tuple[Workspace, RunResult]
) -> None:
    shutil.copytree(recorded[0].reports, tmp_path / "reports")
    long = "x" * 150
    (folder,) = (path.parent for path in (tmp_path / "reports").glob("*/manifest.json"))
    folder.rename(folder.parent / long)

    # A run under another name counts as damaged, and is listed like any other.
    out = shown("runs", "--reports-dir", str(tmp_path / "reports"), exit_code=3)
    assert re.search(rf"^{long} +damaged", out, re.MULTILINE)


def test_a_run_is_shown_with_every_figure_whole(
    shown: Shown, width: int, recorded: tuple[Workspace, RunResult]
) -> None:
    out = shown("show", "latest")

    assert widest_table_line(out) <= width
    bars = next(line for line in out.splitlines() if re.search(r"^(Market Analyst)? +bars ", line))
    newest = "2018-01-19 21:00Z"
    seen = [line for line in out.splitlines() if newest in line]
    assert bars
    assert len(seen) >= 2
    assert re.search(r"prediction_markets +\d+ +\d+ ", out)
    assert re.search(r"^Hold +\d+ +\d+ ", out, re.MULTILINE)
    assert recorded[1].run_id in out


@pytest.mark.parametrize(("words", "code"), [([], 0), (["cassette"], 2), (["snapshot"], 2)])
def test_a_command_that_is_not_named_is_answered_with_the_help(
    words: list[str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(words) == code

    said = capsys.readouterr()
    assert said.err == ""
    assert said.out.startswith("Usage: backtester")
    assert said.out.count("\n") > 8
