"""What a text from outside may do to a terminal: be read, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backtester import cli
from backtester.texts.terminal import LONGEST_WORD, printable_json, shortened

LONG = "x" * 3000
COMMANDS = (
    (LONG,),
    (f"--{LONG}",),
    ("show", LONG),
    ("show", LONG, f"--{LONG}"),
    ("run", LONG),
    ("run", "--from", LONG),
    ("run", f"--{LONG}"),
    ("run", "--set", LONG),
    ("run", "--set", f"{LONG}=1"),
    ("demo", "--workers", LONG),
    ("replay", LONG),
    ("leakcheck", LONG),
    ("transcript", LONG, LONG, LONG),
    ("sql", LONG),
    ("sql", "SELECT 1", "--format", LONG),
    ("runs", "--reports-dir", LONG),
    ("snapshot", "show", LONG),
    ("snapshot", LONG),
    ("cassette", "unpack", LONG),
    ("cassette", "verify", f"{LONG}.jsonl.zst"),
    ("cassette", "stats", LONG),
    ("cassette", "pack", LONG, "-o", LONG),
    ("cassette", "explain", LONG),
    ("analyze", LONG, "2018-01-05"),
    ("analyze", "AAA", LONG),
    ("analyze", "AAA", "2018-01-05", "--memory", LONG),
)


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(w[:12] for w in words))
def test_no_command_tells_a_long_argument_whole(
    words: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)

    assert cli.run(list(words)) in (2, 3)

    said = capsys.readouterr().err
    assert len(said) < 600
    assert len(said.splitlines()) == 1


def test_a_word_is_cut_where_it_is_too_long_for_a_name_and_others_stay() -> None:
    name = "y" * LONGEST_WORD
    assert shortened(f"no {name} in {'z' * 1000}: look") == (
        f"no {name} in {'z' * 60}... (1000 characters): look"
    )


@given(st.text())
def test_json_made_printable_says_the_same(text: str) -> None:
    document = json.dumps({"text": text}, ensure_ascii=False)
    shown = printable_json(document)
    assert json.loads(shown) == {"text": text}
    assert shown.encode()
    assert len(shown.splitlines()) == 1
