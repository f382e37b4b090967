"""What people give to the command line by mistake: one clear line each, and nothing is written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from backtester import cli
from backtester.cli import ask
from backtester.cli.environment import refuse_keys
from backtester.errors import UsageError
from tests.support.workspaces import make_workspace

ROOT = Path(__file__).parents[3]
LONG = "x" * 300
KEY = "sk-invented-0123456789"
RUN = (
    *("run", "--snapshot", "small", "--benchmark", "^GSPC", "--horizon", "3"),
    *("--tickers", "AAA", "--start", "2018-01-02", "--end", "2018-01-12"),
)


@dataclass(frozen=True)
class Said:
    """What a command left behind."""

    code: int
    out: str
    err: str


Command = Callable[..., Said]


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder with a small snapshot, with variables that go away afterwards."""
    make_workspace(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "environ", os.environ.copy())
    return tmp_path


@pytest.fixture
def command(workspace: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    def call(*words: str) -> Said:
        capsys.readouterr()
        code = cli.run(list(words))
        out, err = capsys.readouterr()
        return Said(code, out, err)

    return call


def expect_one_line(said: Said, code: int, *words: str) -> None:
    assert said.code == code, said.err
    assert said.err.startswith("error: ")
    assert len(said.err.splitlines()) == 1
    assert len(said.err) < 400
    for jargon in ("Input should", "Field required", "Value error", "pydantic", "fault"):
        assert jargon not in said.err
    for word in words:
        assert word in said.err
    assert not Path("reports").exists()


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("replay", "latest", "--workers", "-3"), 2, ["--workers", "-3", "write 1 to 256"]),
        (("replay", "latest", "--workers", "0"), 2, ["--workers", "write 1 to 256"]),
        (("replay", "latest", "--workers", "100000"), 2, ["--workers", "100000"]),
        ((*RUN, "--workers", "0"), 2, ["--workers", "write 1 to 256"]),
        (("run", "--from", "."), 2, ["manifest .", "name a run's manifest.json"]),
        ((*RUN, "--grid", "every " + "9" * 5_000), 2, ["(5008 characters)", "'every N'"]),
        ((*RUN, "--grid", "2018-01-05,nope"), 2, ["grid", "'nope' is no date"]),
        ((*RUN, "--grid", "2018-02-30"), 2, ["grid", "'2018-02-30' is no date"]),
        ((*RUN, "--grid", "2018-03-05"), 2, ["2018-03-05 is outside"]),
        ((*RUN, "--start", "20180102"), 2, ["start", "'20180102' is no date"]),
        ((*RUN, "--warmup", "9" * 30), 2, ["--warmup", "whole number"]),
        ((*RUN, "--set", "max_tokens=" + "9" * 30), 2, ["max_tokens", "whole number"]),
        ((*RUN, "--snapshot", LONG), 2, ["snapshot", "is no path"]),
        ((*RUN, "--snapshot", ""), 2, ["snapshot", "is no path"]),
        ((*RUN, "--reports-dir", LONG), 2, ["reports_dir", "is no path"]),
        ((*RUN, "--data-dir", LONG), 2, ["data_dir", "is no path"]),
        (("snapshot", "show", LONG), 3, ["(302 characters) is not there", "small"]),
        (("snapshot", "verify", LONG), 3, ["(302 characters) is not there", "small"]),
        (("snapshot", "show", "--data-dir", LONG), 2, ["--data-dir", "is no path"]),
        (("runs", "--reports-dir", LONG), 2, ["--reports-dir", "is no path"]),
        (("show", "latest", "--reports-dir", "a/" * 3_000), 2, ["--reports-dir", "is no path"]),
        (("replay", "latest", "--data-dir", LONG), 2, ["--data-dir", "is no path"]),
        (("demo", "--reports-dir", LONG), 2, ["--reports-dir", "is no path"]),
        (("analyze", "AAA", "2018-01-05", "--data-dir", LONG), 2, ["--data-dir"]),
        (("run", "--snapshot", "small"), 2, ["--tickers AAPL,MSFT", "--start", "--end"]),
        ((*RUN, "--horizon", "0"), 2, ["horizon: 0 is too small: write 1 or more"]),
        ((*RUN, "--horizon", "x"), 2, ["--horizon: 'x' is no whole number: write digits"]),
        ((*RUN, "--trials", "1.5"), 2, ["--trials: '1.5' is no whole number"]),
        ((*RUN, "--warmup", "x" * 3_000), 2, ["--warmup", "(3002 characters)"]),
        (("transcript", "latest", "A", "2018-01-05", "--trial", "x"), 2, ["--trial: 'x' is no"]),
        (("analyze", "AAA", "x" * 3_000), 2, ["DATE", "(3002 characters)"]),
        ((*RUN, "--set", "x" * 3_000), 2, ["--set KEY=VALUE"]),
        ((*RUN, "--memory", "mine"), 2, ["memory: 'mine' is not known", "'portfolio'"]),
        ((*RUN, "--set", "zzzz=1"), 2, ["'zzzz'", "'backtester settings' lists"]),
        ((*RUN, "--set", "api_key_env=sk-1"), 2, ["api_key_env", "never the key itself"]),
    ],
    ids=str,
)
def test_a_mistake_is_one_line_with_its_exit_code(
    command: Command, words: tuple[str, ...], code: int, says: list[str]
) -> None:
    expect_one_line(command(*words), code, *says)


def test_a_single_date_is_a_grid(command: Command) -> None:
    said = command("plan", *RUN[1:], "--grid", "2018-01-05")

    assert said.code == 0, said.err
    assert "cells    1" in said.out


@pytest.mark.parametrize("words", [("runs",), ("settings",), ("snapshot", "show", "small"), RUN])
@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"A=1\nB=\xff\xfe\n", [".env, line 2", "no UTF-8 text"]),
        (b"A=1\nB=2\nC=a\0b\n", [".env, line 3", "NUL byte"]),
    ],
    ids=["bytes", "nul"],
)
def test_a_dotenv_that_cannot_be_read_is_named_on_every_command(
    command: Command, words: tuple[str, ...], content: bytes, says: list[str]
) -> None:
    Path(".env").write_bytes(content)

    expect_one_line(command(*words), 2, *says)


def test_a_dotenv_of_an_editor_with_a_byte_order_mark_is_read(command: Command) -> None:
    Path(".env").write_bytes(b"\xef\xbb\xbfBACKTESTER_HORIZON=soon\r\n=nothing\r\n")

    expect_one_line(command(*(word for word in RUN if word not in ("--horizon", "3"))), 2, "soon")


@pytest.mark.parametrize(
    "text", ['{"config": []}', '{"config": null}', '{"config": "x"}', "[" * 100_000]
)
def test_what_is_no_manifest_cannot_be_repeated(command: Command, text: str) -> None:
    Path("manifest.json").write_text(text, encoding="utf-8")

    expect_one_line(command("run", "--from", "manifest.json"), 2, "manifest.json is no manifest")


@pytest.mark.parametrize("toml", ["warmup = " + "9" * 30, "a = " + "[" * 9_000])
def test_a_config_file_beyond_all_bounds_is_named(command: Command, toml: str) -> None:
    Path("mine.toml").write_text(toml, encoding="utf-8")

    expect_one_line(command("run", "mine.toml", *RUN[1:]), 2, "mine.toml")


# ------------------------------------------------------------------------------------------ keys


@pytest.mark.parametrize(
    "words",
    [
        (*RUN, "--provider", "openai", "--model", "m"),
        ("analyze", "AAA", "2018-01-05", "--provider", "openai", "--snapshot", "small"),
    ],
    ids=["run", "analyze"],
)
@pytest.mark.parametrize(
    ("variable", "settings"),
    [
        ("OPENAI_API_KEY", ()),
        ("OPENAI_COMPATIBLE_API_KEY", ()),
        ("MY_OWN", ("--set", "api_key_env=MY_OWN")),
    ],
)
def test_an_address_whose_path_holds_the_key_is_refused_and_nothing_is_written(
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    variable: str,
    settings: tuple[str, ...],
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-another-0123456789")
    monkeypatch.setenv(variable, KEY)
    before = sorted(Path().rglob("*"))

    said = command(*words, *settings, "--base-url", f"http://127.0.0.1:9/{KEY}/v1")

    expect_one_line(said, 2, "base_url holds the API key", variable)
    assert KEY not in said.err + said.out
    assert sorted(Path().rglob("*")) == before


@pytest.mark.parametrize(
    ("key", "settings", "refused"),
    [
        (KEY, {"base_url": f"http://host/a{KEY}b"}, True),
        (KEY, {"base_url": "http://host/sk%2Dinvented%2D0123456789"}, True),
        (KEY, {"base_url": f"http://host/v1?key={KEY}"}, True),
        (KEY, {"base_url": f"http://{KEY}@host/v1"}, True),
        (KEY, {"endpoint_alias": KEY}, True),
        (KEY, {"base_url": "http://host/v1", "name": None}, False),
        # Words that local servers are given for a key, which stand in addresses and names.
        ("ollama", {"base_url": "http://ollama:11434/ollama"}, False),
        (
            "lm-studio",
            {"base_url": "http://lm-studio:1234/v1", "endpoint_alias": "lm-studio"},
            False,
        ),
        ("", {"base_url": "http://host/v1"}, False),
    ],
)
def test_a_key_is_told_from_a_word(
    monkeypatch: pytest.MonkeyPatch, key: str, settings: dict[str, str | None], refused: bool
) -> None:
    monkeypatch.setenv("OPENAI_COMPATIBLE_API_KEY", key)
    if not refused:
        refuse_keys(settings)
        return
    with pytest.raises(UsageError, match="holds the API key of OPENAI_COMPATIBLE_API_KEY"):
        refuse_keys(settings)


def test_answers_that_hold_a_key_are_not_kept(
    command: Command, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"ticker": "AAA", "date": "2018-01-05", "base_url": f"http://127.0.0.1:9/{KEY}"}
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setattr("backtester.cli.analyze._at_a_desk", lambda: True)
    monkeypatch.setattr(ask, "ask", lambda *_, **__: given)
    monkeypatch.setattr(ask, "answers_path", lambda: workspace / "kept" / "answers.json")

    expect_one_line(command("analyze", "--snapshot", "small"), 2, "base_url holds the API key")

    assert not (workspace / "kept").exists()


# ------------------------------------------------------------------------------------- manifests


ROW = {"provider": "rulebook", "model": "m", "endpoint": None}
DAMAGES: tuple[dict[str, Any], ...] = (
    {"created_at": "yesterday"},
    {"created_at": 5},
    {"created_at": ""},
    {"finished_at": "tomorrow"},
    {"models": []},
    {"models": {"quick": ROW, "deep": []}},
    {"models": {"quick": ROW, "deep": {"provider": "rulebook"}}},
    {"models": {"quick": ROW, "deep": {**ROW, "provider": None}}},
)


@pytest.fixture
def damaged(command: Command, workspace: Path) -> Callable[..., None]:
    """Return a function that changes the manifest of the one run there is."""
    assert command(*RUN).code == 0
    (path,) = workspace.glob("reports/*/manifest.json")

    def change(**fields: Any) -> None:
        path.write_text(json.dumps({**json.loads(path.read_bytes()), **fields}), encoding="utf-8")

    return change


@pytest.mark.parametrize(
    "words", [("show", "latest"), ("runs",), ("rebuild",), ("replay", "latest")], ids=str
)
def test_a_manifest_of_another_shape_is_damaged(
    command: Command, damaged: Callable[..., None], words: tuple[str, ...]
) -> None:
    whole = next(Path("reports").glob("*/manifest.json"))
    before = whole.read_bytes()
    for fields in DAMAGES:
        damaged(**fields)
        said = command(*words)
        whole.write_bytes(before)
        assert said.code == 3, (fields, said)
        assert len(said.err.splitlines()) == 1
        assert "manifest.json is damaged" in said.err


# ------------------------------------------------------------------- without documentation strings


def test_prompts_are_the_same_without_documentation_strings() -> None:
    script = (
        "from tradingagents_core.decisions import FORMS, response_schema\n"
        "from tradingagents_core.tools.registry import tool_texts\n"
        "print([response_schema(form) for form in FORMS.values()], tool_texts())\n"
        "from backtester.walk.cell import build_pipeline\n"
        "from backtester.config import RunConfig\n"
        "day = '2018-01-02'\n"
        "print(build_pipeline(RunConfig(tickers=('AAA',), start=day, end=day)).fingerprint())\n"
    )
    said = [
        subprocess.run(
            [sys.executable, *option, "-c", script],
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for option in ((), ("-OO",))
    ]
    assert said[0] == said[1]
    assert "Decide on the instrument, after the risk debate." in said[0]
