"""Providers on the command line: where model, address and key come from, and what is told."""

from __future__ import annotations

import inspect
import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pytest

from backtester import cli
from backtester.cli.environment import environment
from backtester.cli.models import ollama_address, with_addresses
from backtester.cli.runs import api_keys_of
from backtester.errors import UsageError
from backtester.loading import load_config
from tests.support.openai_server import OpenAIServer
from tests.support.rulebook_server import by_the_rules
from tests.support.workspaces import make_workspace
from tradingagents_core.settings import ScriptedReply, ScriptedTool

RUN = (
    *("run", "--snapshot", "small", "--benchmark", "^GSPC", "--horizon", "3"),
    *("--tickers", "AAA", "--start", "2018-01-02", "--end", "2018-01-05"),
)


@dataclass(frozen=True)
class Said:
    """What a command left behind."""

    code: int
    out: str
    err: str


@pytest.fixture
def command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Said]:
    make_workspace(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "environ", os.environ.copy())

    def call(*words: str) -> Said:
        capsys.readouterr()
        code = cli.run(list(words))
        out, err = capsys.readouterr()
        return Said(code, out, err)

    return call


def settled(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], **flags: Any) -> Any:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    given = {"tickers": ("AAPL",), "start": "2018-01-02", "end": "2018-01-31", **flags}
    return with_addresses(load_config(environ=environment(), flags=given))


# ------------------------------------------------------------------------------- precedence


def test_an_address_is_the_flag_s_then_the_setting_s_then_the_provider_s_variable_s(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    variables = {"GROQ_BASE_URL": "http://variable/v1"}
    model = {"provider": "groq", "quick_model": "m", "deep_model": "m"}
    assert settled(monkeypatch, {}, **model).base_url is None
    assert settled(monkeypatch, variables, **model).base_url == "http://variable/v1"
    variables["BACKTESTER_BASE_URL"] = "http://setting/v1"
    assert settled(monkeypatch, variables, **model).base_url == "http://setting/v1"
    flagged = settled(monkeypatch, variables, **model, base_url="http://flag/v1")
    assert flagged.base_url == "http://flag/v1"


def test_each_tier_takes_the_variable_of_its_own_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {"GROQ_BASE_URL": "http://groq/v1", "XAI_BASE_URL": "http://xai/v1"}
    config = settled(monkeypatch, variables, provider="groq", deep_provider="xai")
    assert config.model_spec("quick").base_url == "http://groq/v1"
    assert config.model_spec("deep").base_url == "http://xai/v1"


def test_keys_come_by_provider_and_a_named_variable_is_for_its_tier(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    variables = {"GROQ_API_KEY": "key-of-groq", "XAI_API_KEY": "key-of-xai", "MINE": "key-of-mine"}
    config = settled(monkeypatch, variables, provider="groq", deep_provider="xai")
    assert api_keys_of(config) == {"groq": "key-of-groq", "xai": "key-of-xai"}
    named = settled(
        monkeypatch, variables, provider="groq", deep_provider="xai", deep_api_key_env="MINE"
    )
    assert api_keys_of(named) == {"groq": "key-of-groq", "deep": "key-of-mine"}


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("127.0.0.1:11434", "http://127.0.0.1:11434/v1"),
        ("0.0.0.0", "http://127.0.0.1:11434/v1"),
        (":8080", "http://127.0.0.1:8080/v1"),
        ("box.lan", "http://box.lan:11434/v1"),
        ("https://box.lan", "https://box.lan:443/v1"),
        ("http://box.lan/ollama/", "http://box.lan:80/ollama/v1"),
        ("[::1]:11434", "http://[::1]:11434/v1"),
    ],
)
def test_ollama_s_own_variable_is_read_as_ollama_reads_it(host: str, address: str) -> None:
    assert ollama_address(host) == address


def test_ollama_s_variable_without_a_sound_port_is_refused() -> None:
    with pytest.raises(UsageError, match="OLLAMA_HOST"):
        ollama_address("box.lan:99999999")


def test_ollama_s_base_url_wins_over_its_host_and_gets_the_path_of_the_protocol(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    variables = {"OLLAMA_HOST": "box.lan"}
    model = {"provider": "ollama", "quick_model": "m", "deep_model": "m"}
    assert settled(monkeypatch, variables, **model).base_url == "http://box.lan:11434/v1"
    variables["OLLAMA_BASE_URL"] = "http://other.lan:1"
    assert settled(monkeypatch, variables, **model).base_url == "http://other.lan:1/v1"


# ----------------------------------------------------------------------------------- runs


def test_a_missing_key_names_its_variable(command: Callable[..., Said]) -> None:
    said = command(*RUN, "--provider", "mistral", "--model", "mistral-large-4")
    assert said.code == 2
    assert "MISTRAL_API_KEY" in said.err


def test_a_provider_without_a_model_of_its_own_is_refused(
    command: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GROQ_API_KEY", "key-of-groq")
    said = command(*RUN, "--provider", "groq")
    assert said.code == 2
    assert "provider 'groq' has no model 'rulebook-1': name one of its own" in said.err


def test_a_variable_that_a_setting_names_for_a_key_is_told_where_it_is_not_set(
    command: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_COMPATIBLE_API_KEY", "key-of-somebody-else")
    monkeypatch.delenv("MY_OWN", raising=False)
    told = "note: MY_OWN, which a setting names for the API key, is not set: no key is sent"
    with OpenAIServer(by_the_rules) as server:
        where = ("--provider", "openai_compatible", "--base-url", server.url, "--model", "m")
        named = (*where, "--set", "api_key_env=MY_OWN")
        assert command(*RUN, *named).err.count(told) == 1
        assert {one.headers["authorization"] for one in server.requests} == {"Bearer no-key"}
        assert told not in command(*RUN, *where).err
        assert told not in command(*RUN, *named, "--set", "mode=replay").err
    refused = command(*RUN, "--provider", "groq", "--model", "m", "--set", "api_key_env=MY_OWN")
    assert refused.code == 2
    assert told in refused.err


def test_two_providers_decide_one_run_each_with_its_own_key_and_an_unknown_model_is_told_once(
    command: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    with OpenAIServer(by_the_rules) as quick, OpenAIServer(by_the_rules) as deep:
        monkeypatch.setenv("OPENAI_COMPATIBLE_API_KEY", "key-of-the-quick-one")
        monkeypatch.setenv("GROQ_API_KEY", "key-of-the-deep-one")
        monkeypatch.setenv("GROQ_BASE_URL", deep.url)
        words = (
            *(*RUN, "--provider", "openai_compatible", "--base-url", quick.url),
            *("--set", "deep_provider=groq", "--set", "structured_method=json_schema"),
            *("--set", "quick_model=q", "--set", "deep_model=unheard-of"),
        )
        said = command(*words)
        assert said.code == 0, said.err
        assert said.err.count("note: 'unheard-of' is in no list of groq's models") == 1
        asked = {request.headers["authorization"] for request in deep.requests}
        assert asked == {"Bearer key-of-the-deep-one"}
        assert {body["model"] for body in deep.bodies} == {"unheard-of"}
        asked = {request.headers["authorization"] for request in quick.requests}
        assert asked == {"Bearer key-of-the-quick-one"}
        assert {body["model"] for body in quick.bodies} == {"q"}
    replayed = command("replay", "latest")
    assert replayed.code == 0, replayed.err
    assert "unheard-of" not in replayed.err


def test_a_script_in_a_file_decides_a_run_and_its_replay(command: Callable[..., Said]) -> None:
    Path("said.toml").write_text(
        '[[script]]\nnode = "Market Analyst"\ntool_answers = 0\n'
        'tools = [{name = "get_indicators", args = {symbol = "AAA"}}]\n'
        '[[script]]\ntext = "All is well. RATING: Overweight"\n',
        encoding="utf-8",
    )
    said = command(*RUN, "--provider", "scripted", "--model", "s", "--set", "script=said.toml")
    assert said.code == 0, said.err
    # The run holds the script: the file may go.
    Path("said.toml").unlink()
    assert command("replay", "latest").code == 0


def test_a_file_that_is_no_script_is_refused(command: Callable[..., Said]) -> None:
    Path("said.toml").write_text('text = "hi"\n', encoding="utf-8")
    said = command(*RUN, "--provider", "scripted", "--model", "s", "--set", "script=said.toml")
    assert said.code == 2
    assert "write each reply under [[script]]" in said.err


def test_a_run_without_a_script_is_refused_before_it_begins(command: Callable[..., Said]) -> None:
    said = command(*RUN, "--provider", "scripted", "--model", "s")
    assert said.code == 2
    assert "provider 'scripted' has no script" in said.err
    assert "backtester models scripted" in said.err
    assert not list(Path("reports").glob("*/manifest.json"))


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ('nod = "Trader"', ["'nod'", "node, contains, tool_answers, text, tools, finish_reason"]),
        ('tools = [{name = "get_news", arguments = {}}]', ["'arguments'", "write name, args"]),
    ],
)
def test_an_unknown_key_of_a_script_is_told_with_those_that_there_are(
    command: Callable[..., Said], written: str, says: list[str]
) -> None:
    Path("said.toml").write_text(f"[[script]]\n{written}\n", encoding="utf-8")
    said = command(*RUN, "--provider", "scripted", "--model", "s", "--set", "script=said.toml")
    assert said.code == 2
    for words in ("script said.toml", *says):
        assert words in said.err


def test_the_sample_of_a_script_names_every_key_and_decides_a_run(
    command: Callable[..., Said],
) -> None:
    said = command("models", "scripted")
    assert said.code == 0
    for field in (*fields(ScriptedReply), *fields(ScriptedTool)):
        assert re.search(rf"\b{field.name}\b", said.out)
    sample = said.out[said.out.index("[[script]]") :].replace("AAPL", "AAA")
    Path("said.toml").write_text(sample, encoding="utf-8")
    ran = command(*RUN, "--provider", "scripted", "--model", "s", "--set", "script=said.toml")
    assert ran.code == 0, ran.err


@pytest.mark.parametrize("name", ["run", "plan", "analyze"])
def test_the_help_sends_to_the_list_of_providers(command: Callable[..., Said], name: str) -> None:
    assert "A provider of 'backtester models'." in command(name, "--help").out


# --------------------------------------------------------------------------------- models


def test_the_help_shows_a_models_file_that_reads(command: Callable[..., Said]) -> None:
    text = command("models", "--help").out
    (sample,) = re.findall(r"\[models\..*?\n\n", text, re.DOTALL)
    Path("own.toml").write_text(inspect.cleandoc(f"  {sample}"), encoding="utf-8")
    said = command("models", "openai", "--json", "--models-file", "own.toml")
    models = {row["model"]: row for row in json.loads(said.out)["models"]}
    assert models["gpt-4o"]["price"]["source"] == "..."


@pytest.mark.parametrize(
    ("figure", "example"),
    [
        ("context = { tokens = 0 }", "context = { tokens = 128000"),
        ("context = 5", "context = { tokens = 128000"),
        ('cutoff = { date = "May" }', "cutoff = { date = 2023-10-01"),
        ("price = { input = 1.0 }", "price = { input = 2.5, output = 10.0"),
        ("cost = 1", "price = { input = 2.5, output = 10.0"),
    ],
)
def test_a_figure_that_does_not_fit_is_told_with_an_example_of_its_own(
    command: Callable[..., Said], figure: str, example: str
) -> None:
    Path("own.toml").write_text(f'[models.openai."gpt-4o"]\n{figure}\n', encoding="utf-8")
    said = command("models", "--models-file", "own.toml")
    assert said.code == 2
    assert f"write a figure like {example}" in said.err


def test_providers_are_listed_with_their_variables_and_never_with_a_key(
    command: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XAI_API_KEY", "key-of-xai")
    said = command("models")
    assert said.code == 0
    assert "XAI_API_KEY (set)" in said.out
    assert "key-of-xai" not in said.out


def test_a_provider_s_models_are_listed_with_figures_days_and_sources(
    command: Callable[..., Said],
) -> None:
    said = command("models", "openai")
    line = next(line for line in said.out.splitlines() if line.startswith("gpt-4o-mini "))
    assert line.split() == [
        *("gpt-4o-mini", "128,000", "2023-10-01", "0.15", "0.075", "0.6", "2026-11-30")
    ]
    assert "source: https://" in said.out
    assert "no list of the models of nvidia" in command("models", "nvidia").out
    assert command("models", "opanai").code == 2


def test_models_are_listed_as_json_with_a_user_s_figures(command: Callable[..., Said]) -> None:
    Path("own.toml").write_text(
        '[models.openai."gpt-4o"]\nprice = { input = 1.0, output = 2.0, source = "a letter" }\n',
        encoding="utf-8",
    )
    said = command("models", "openai", "--json", "--models-file", "own.toml")
    models = {row["model"]: row for row in json.loads(said.out)["models"]}
    assert models["gpt-4o"]["price"] == {
        "as_of": None,
        "source": "a letter",
        "value": {"input": 1.0, "output": 2.0, "cached_input": None, "up_to_tokens": None},
    }
    assert models["gpt-4o"]["context_tokens"]["value"] == 128_000
    assert models["gpt-5.4-mini"]["knowledge_cutoff"]["value"] is None
    missing = command("models", "--models-file", "gone.toml")
    assert missing.code == 2
    assert "models file gone.toml does not exist" in missing.err
