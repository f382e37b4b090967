"""The commands around a snapshot: freeze it from files, look at it, and see in what two differ."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from backtester.cli import run

PRICES = (
    "symbol,date,open,high,low,close,volume\n"
    "AAA,2018-03-01,10,12,9,11,100\nAAA,2018-03-02,11,13,10,12,200\n"
    "AAA,2018-03-05,12,13,11,12.5,0\nBBB,2018-03-01,5,6,4,5.5,10\nBBB,2018-03-05,5,6,4,5.5,10\n"
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prices.csv").write_text(PRICES)
    return tmp_path


def freeze(name: str, *more: str) -> int:
    words = ["freeze", "--name", name, "--symbols", "AAA,BBB", "--start", "2018-03-01"]
    words += ["--end", "2018-03-05", "--warmup", "0", "--vendor", "files"]
    # An option is given once: what a test gives is not given before it.
    if not any(word.startswith("files.bars.path=") for word in more):
        words += ["--option", "files.bars.path=prices.csv"]
    words += ["--option", "files.bars.default.currency=USD"]
    return run([*words, *more])


def test_files_become_a_snapshot_in_one_command(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert freeze("mine") == 0
    said = capsys.readouterr()
    assert "[1/2] bars AAA: 3 rows from files" in said.err
    assert "bars: 5 rows" in said.out
    assert "gap: BBB 2018-03-02: no bar for a session of XNYS" in said.out
    assert "zero_volume: AAA 2018-03-05" in said.out
    assert run(["snapshot", "verify", "mine"]) == 0


def test_show_lists_the_coverage_as_a_table_and_as_json(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    freeze("mine", "--quiet")
    capsys.readouterr()
    assert run(["snapshot", "show", "mine"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["bars", "BBB", "2", "2018-03-01", "2018-03-05", "1", "0", "0", "0"] in lines
    assert run(["snapshot", "show", "mine", "--json"]) == 0
    rows = {
        (row["table"], row["subject"]): row
        for row in json.loads(capsys.readouterr().out)["coverage"]
    }
    assert rows["bars", "BBB"] == {
        "table": "bars",
        "subject": "BBB",
        "rows": 2,
        "first": "2018-03-01",
        "last": "2018-03-05",
        "late": 0,
        "gaps": 1,
        "conflicts": 0,
        "estimated": 0,
        "undated": 0,
    }


def test_diff_names_what_differs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    freeze("one", "--quiet")
    (folder / "prices.csv").write_text(PRICES.replace("12,200", "12.25,200"))
    freeze("two", "--quiet")
    capsys.readouterr()
    assert run(["snapshot", "diff", "one", "two"]) == 0
    said = capsys.readouterr().out
    assert "bars: 4 rows equal, 0 added, 0 removed, 1 values changed" in said
    assert "  AAA 2018-03-02: close 12.0 -> 12.25" in said
    assert run(["snapshot", "diff", "one", "two", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["tables"][1]["changed"][0]["new"] == "12.25"


@pytest.mark.parametrize(
    ("more", "code", "words"),
    [
        (["--symbols", "CCC"], 3, "bars of CCC cannot be had"),
        (["--end", "2018-02-01"], 2, "is before start"),
        (["--vendor", "bars=nobody"], 2, "is not known"),
        (
            ["--vendor", "bars=files", "--vendor", "bars=yfinance"],
            2,
            "chain 'bars' is given twice: keep one of them",
        ),
        (
            ["--option", "files.news.path=a.csv", "--option", "files.news.path=b.csv"],
            2,
            "option 'files.news.path' is given twice: keep one of them",
        ),
        (["--option", "files.bars.path=none.csv"], 3, "there is no file none.csv"),
        (
            ["--tables", "news", "--option", "files.news.path=none.csv"],
            3,
            "news of AAA cannot be read from a file: there is no file none.csv",
        ),
        (
            ["--tables", "news", "--option", "files.news.path=prices.csv"],
            3,
            "prices.csv has no column source: name it (column.source=...)",
        ),
    ],
)
def test_what_cannot_be_frozen_is_one_line_and_a_code(
    folder: Path, capsys: pytest.CaptureFixture[str], more: list[str], code: int, words: str
) -> None:
    assert freeze("mine", "--quiet", *more) == code
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert words in lines[0]


def test_a_bad_price_is_refused_and_no_half_snapshot_is_listed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "prices.csv").write_text(PRICES.replace("10,12,9,11", "10,12,9,-11"))
    assert freeze("mine", "--quiet") == 3
    assert "bar of AAA on 2018-03-01: close is -11.0" in capsys.readouterr().err
    assert run(["snapshot", "show", "mine"]) == 3
