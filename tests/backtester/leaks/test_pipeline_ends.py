"""A pipeline that ends its process, cannot be imported or returns no end proves nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from backtester.cli import run
from backtester.cli.render_leaks import verdict
from backtester.errors import UsageError
from backtester.leaks.child import find, text_of
from backtester.leaks.report import Finding

WAYS_OUT = {"exit": "import sys; sys.exit(0)", "os._exit": "import os; os._exit(0)"}


@pytest.mark.parametrize("way", WAYS_OUT)
def test_a_pipeline_that_leaves_is_named_and_never_clean(
    tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"leaves_by_{way.replace('.', '')}"
    text = f"def decide(view, ticker, session):\n    {WAYS_OUT[way]}\n"
    (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    words = ["--snapshot", "us-2013-2018", "--tickers", "AAPL", "--dates", "2018-01-05"]
    assert run(["leakcheck", "--pipeline", f"{name}:decide", *words]) == 3
    said = capsys.readouterr()
    assert f"pipeline {name}:decide ended its process (code 0)" in said.err
    assert "clean" not in said.out


@pytest.mark.parametrize("text", ["1 / 0", "(", "raise RuntimeError('no')"])
def test_a_module_that_cannot_be_imported_is_one_line(
    tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"broken_{sum(text.encode())}"
    (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UsageError, match=f"pipeline {name}:decide cannot be imported"):
        find(f"{name}:decide")


def test_what_holds_itself_or_has_no_end_is_no_text() -> None:
    itself: list[object] = []
    itself.append(itself)
    with pytest.raises(ValueError, match="Circular"):
        text_of(itself)
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(RecursionError):
        text_of(deep)


def test_the_verdict_counts_in_words_and_names_the_first() -> None:
    first = Finding(check="file", where="while its module was imported", detail="it opened a file")
    second = Finding(check="lesson_shown", where="AAA|2018-01-05|0", detail="too early")

    assert verdict("own:decide", [first]) == (
        "own:decide: 1 finding: file, while its module was imported"
    )
    assert verdict("run-a", [second, first]) == (
        "run-a: 2 findings, the first: lesson shown, AAA|2018-01-05|0"
    )
