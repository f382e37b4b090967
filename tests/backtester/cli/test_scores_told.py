"""What a reader of scores is told without asking: folds, what waits, trials, few of anything."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from backtester.cli import render
from backtester.cli import run as command
from backtester.cli.render_scores import sharpe_lines
from backtester.imports.imports import import_decisions
from tests.backtester.cli.test_scores import BOOK, summary_of
from tests.support.results import rows_of
from tests.support.workspaces import Workspace, make_workspace

pytestmark = pytest.mark.slow

FRIDAYS = [date(2017, 5, 5) + timedelta(weeks=week) for week in range(36)]
RATINGS = ("Buy", "Overweight", "Hold", "Underweight", "Sell")


@dataclass(frozen=True)
class Told:
    """A workspace with a run of three trials and one of one, and how it is asked."""

    workspace: Workspace

    def __call__(self, *words: str) -> int:
        folders = ["--reports-dir", str(self.workspace.reports)]
        folders += ["--data-dir", str(self.workspace.data)] if words[0] == "score" else []
        return command([*words, *folders])

    @property
    def database(self) -> Path:
        return self.workspace.reports / "results.duckdb"


def imported(workspace: Workspace, name: str, trials: Sequence[int]) -> None:
    rows = [
        f"{ticker},{day},{RATINGS[(at * 2 + place + trial) % 5]},{trial}"
        for at, day in enumerate(FRIDAYS)
        for place, ticker in enumerate(("AAA", "BBB"))
        for trial in trials
    ]
    source = workspace.path / f"{name}.csv"
    source.write_text("\n".join(["ticker,date,rating,trial", *rows, ""]), encoding="utf-8")
    settings = {"snapshot": "small", "benchmark": "^GSPC", "horizon": 5, "name": name}
    folders = {"data_dir": workspace.data, "reports_dir": workspace.reports}
    import_decisions(source, {**settings, **folders})


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    workspace = make_workspace(tmp_path_factory.mktemp("told"))
    imported(workspace, "thrice", (0, 1, 2))
    imported(workspace, "once", (0,))
    return Told(workspace)


def test_a_folds_book_stands_in_its_view_and_in_the_terminal(
    told: Told, capsys: pytest.CaptureFixture[str]
) -> None:
    assert told("score", "once", "--fold", "3M", "--placebo", "0") == 0
    said = capsys.readouterr().out

    rows = rows_of(
        told.database,
        "SELECT fold, sessions, total_return, sharpe, sharpe_low, max_drawdown FROM "
        "book_by_fold_all WHERE book = 'ratings' ORDER BY fold",
    )
    (whole,) = rows_of(
        told.database,
        "SELECT sessions, total_return FROM book_performance_all WHERE book = 'ratings' "
        "AND run_id LIKE 'once%' AND score_id LIKE 'fold%'",
    )
    assert len(rows) == 3
    assert sum(row["sessions"] for row in rows) == whole["sessions"]
    grown = math.prod(1.0 + row["total_return"] for row in rows) - 1.0
    assert grown == pytest.approx(whole["total_return"], abs=1e-12)
    for row in rows:
        made = re.escape(f"{100 * row['total_return']:+.2f} %")
        assert re.search(rf"^{row['fold']} +{row['sessions']} +{made}", said, re.MULTILINE)
    assert "one book, cut: a fold begins with what is held then" in said


def test_horizons_that_wait_for_a_newer_snapshot_are_told_in_one_line(
    told: Told, capsys: pytest.CaptureFixture[str]
) -> None:
    assert told("score", "once", "--horizon", "5,60,500", "--placebo", "0") == 0
    said = capsys.readouterr().out

    (line,) = [line for line in said.splitlines() if line.startswith("pending: ")]
    assert "all 72 decisions at h=500" in line
    assert "h=5," not in line
    # 60 sessions before 13 March 2018 is 14 December 2017: four Fridays of two tickers are later.
    assert "pending: 8 of 72 decisions at h=60, all 72 decisions at h=500: " in line
    assert "end after snapshot small, the earliest on 2018-03-1" in line
    assert line.endswith("--snapshot NEWER")

    assert told("score", "once", "--horizon", "500", "--placebo", "0") == 0
    assert "snapshot small (its last session here: 2018-03-13)" in capsys.readouterr().out


def test_nothing_is_said_of_waiting_where_nothing_waits(
    told: Told, capsys: pytest.CaptureFixture[str]
) -> None:
    assert told("score", "once", "--horizon", "5", "--placebo", "0") == 0
    assert "pending: " not in capsys.readouterr().out


def test_what_of_several_trials_is_paired_is_told(
    told: Told, capsys: pytest.CaptureFixture[str]
) -> None:
    assert told("compare", "thrice", "once") == 0
    assert (
        "trials of a cell: A has 3 and B 1; cells are paired trial by trial, so 2 of A find no "
        "other and are left out of the pairs; books are those of the first trial alone"
    ) in capsys.readouterr().out

    assert told("score", "thrice", "--hold", "flat", "--placebo", "0") == 0
    capsys.readouterr()
    assert told("compare", "thrice", "thrice:hold-flat") == 0
    assert (
        "trials of a cell: both have 3; cells are paired trial by trial; books are those of the "
        "first trial alone"
    ) in capsys.readouterr().out

    assert told("score", "once", "--hold", "flat", "--placebo", "0") == 0
    assert told("compare", "once", "once:hold-flat") == 0
    assert "trials of a cell" not in capsys.readouterr().out


@pytest.mark.parametrize(("draws", "books"), [("1", "1 book"), ("19", "19 books")])
def test_so_few_random_books_hold_no_band(
    draws: str, books: str, told: Told, capsys: pytest.CaptureFixture[str]
) -> None:
    assert told("score", "once", "--placebo", draws) == 0

    said = capsys.readouterr().out
    assert f"random ratings: {books} drawn, and a 5-95 % band takes 20" in said
    assert "inside that band" not in said
    rows = rows_of(
        told.database, f"SELECT low, high, inside FROM placebo_band_all WHERE draws = {draws}"
    )
    assert rows == [{"low": None, "high": None, "inside": None}] * 3


def test_twenty_random_books_hold_one(told: Told, capsys: pytest.CaptureFixture[str]) -> None:
    assert told("score", "once", "--placebo", "20") == 0
    assert "random ratings: 5-95 % of 20 books made" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        ("Buy=1,Buy=.5", "--weights: Buy is given twice: keep one of its weights"),
        ("Buy=1,Sell=0,buy=1", "--weights: Buy is given twice: keep one of its weights"),
    ],
)
def test_a_rating_has_one_weight(
    weights: str, said: str, told: Told, capsys: pytest.CaptureFixture[str]
) -> None:
    assert told("score", "once", "--weights", weights) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (3, "over 3 stored books of related trials: 0.43; of so few books it says little"),
        (10, "over 10 stored books of related trials: 0.43"),
    ],
)
def test_a_probability_of_overfitting_says_over_how_many_books(count: int, words: str) -> None:
    book = replace(BOOK, pbo=0.43, pbo_books=count)
    *_, line = sharpe_lines(summary_of(book, known=3, now=3))
    assert line == f"probability of overfitting, {words}"


def test_a_star_has_its_footnote_where_there_is_no_ratio() -> None:
    flat = replace(BOOK, sharpe=None, sessions=19)
    _, note = sharpe_lines(summary_of(flat, known=1, now=1))
    assert note == "*: of only 19 session returns: a figure a year says next to nothing then"

    bare = replace(flat, cagr=None, volatility=None, turnover=None)
    assert len(list(sharpe_lines(summary_of(bare, known=1, now=1)))) == 1


def test_nothing_runs_over_the_edge_of_a_terminal_and_a_pipe_has_whole_lines(
    told: Told, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ("--fold", "3M", "--placebo", "2", "--by", "ticker,month,rating")
    asked = (
        ("score", "once", *flags),
        ("compare", "thrice", "once"),
        ("compare", "once", "once:fold-3m-placebo-2"),
    )
    piped = []
    for words in asked:
        assert told(*words) == 0
        piped.append(_longest(capsys.readouterr().out))
    for width in (60, 200):
        terminal = Console(
            highlight=False, soft_wrap=True, width=width, force_terminal=True, color_system=None
        )
        monkeypatch.setattr(render, "_OUT", terminal)
        for words, whole in zip(asked, piped, strict=True):
            assert told(*words) == 0
            out = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
            assert max(map(cell_len, out.splitlines())) <= width, max(
                out.splitlines(), key=cell_len
            )
            # What is broken over lines at a terminal is one line of the pipe.
            assert whole in re.sub(r"\s+", " ", out)


def _longest(out: str) -> str:
    """Return the longest line of prose; that of a table may have other columns elsewhere."""
    return max((line for line in out.splitlines() if "  " not in line), key=len)
