"""What the help shows can be copied and does what it says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from textwrap import dedent

import pytest

from backtester.cli import run
from backtester.own_book import OwnBook

PRICES = "symbol,date,open,high,low,close,volume\n" + "".join(
    f"{symbol},{day},10,12,9,11,100\n" for symbol in ("AAPL", "NVDA") for day in ("2018-01-02",)
)
NEWS = "symbol,published,source,title\n" + "".join(
    f"{symbol},2018-01-02,a paper,a title\n" for symbol in ("AAPL", "NVDA")
)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def shown(capsys: pytest.CaptureFixture[str], command: str, begins: str, ends: str) -> str:
    """Return what the help of a command shows from one line to another, moved to the margin."""
    capsys.readouterr()
    assert run([command, "--help"]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    first, last = text.index(begins), text.index(ends)
    first = text.rindex("\n", 0, first) + 1
    return dedent(text[first : text.index("\n", last) + 1])


def test_the_vendor_of_the_help_freezes_and_keeps_the_rules(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # A module is found by its name once a session, so this one has another than in the help.
    text = shown(capsys, "freeze", "# own.py", "rows={") + "    )\n"
    (place / "own_of_help.py").write_text(text)
    words = ["--symbols", "AAPL", "--start", "2018-01-02", "--end", "2018-01-02", "--warmup", "0"]
    assert run(["freeze", "--check-vendor", "own_of_help:Vendor", *words]) == 0
    assert "keeps all" in capsys.readouterr().out
    chain = ["--vendor", "bars=own_of_help:Vendor"]
    assert run(["freeze", "--name", "mine", "--quiet", *chain, *words]) == 0
    assert "bars: 1 rows" in capsys.readouterr().out


def test_the_config_of_the_help_freezes(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, "freeze", 'name = "mine"', 'path = "news.csv"')
    (place / "plan.toml").write_text(text)
    (place / "prices.csv").write_text(PRICES)
    (place / "news.csv").write_text(NEWS)
    assert run(["freeze", "plan.toml", "--quiet"]) == 0
    said = capsys.readouterr().out
    assert "bars: 2 rows" in said
    assert "news: 2 rows" in said


def test_the_pipeline_of_the_help_is_clean_with_the_words_that_stand_there(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = shown(capsys, "leakcheck", "# own.py", "return [")
    (place / "own.py").write_text(text)
    comment = re.sub(r"\\\\?\n#", " ", text)
    words = re.search(r"backtester (leakcheck .*)", comment)
    assert words is not None
    assert run(words[1].split()) == 0, capsys.readouterr().err
    assert "clean: nothing" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["run", "plan", "analyze"])
def test_the_book_of_the_help_is_one(capsys: pytest.CaptureFixture[str], command: str) -> None:
    assert run([command, "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    found = re.search(r'\{"as_of".*?\]\}', text)
    assert found is not None
    book = OwnBook(**json.loads(found[0]))
    assert book.positions[0].ticker == "AAPL"
    least = json.loads(
        found[0].replace(', "cost": 150.0', "").replace('"as_of": "2018-01-02", ', "")
    )
    assert OwnBook(**least).as_of is None
