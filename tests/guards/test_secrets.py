"""A provider's key reaches the header that is made for it and nothing else, whatever echoes it.

One process records, fails, resumes, replays, audits and exports against a loopback provider that
sends the key back in every answer: in its texts, ids and headers, in its errors, as it is, as JSON
escapes, percent-encoded and in base64. Tracing is asked for in the environment, and every library
logs all it can. Then every byte that was written anywhere is searched.
"""

from __future__ import annotations

import base64
import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet
import pytest
import zstandard

from tests.guards.sources import ROOT
from tests.support import openai_server as wire
from tests.support.openai_server import Act, OpenAIServer, Received
from tests.support.provider_rulebook import asked_of_anthropic, asked_of_gemini, rules_behind
from tests.support.provider_wires import AnthropicWire, GeminiWire, Wire, root_of
from tests.support.rulebook_server import by_the_rules, is_about
from tests.support.workspaces import make_workspace

SECRET = "sk-TEST-SECRET-123"
PERCENT = "".join(f"%{byte:02X}" for byte in SECRET.encode())
ESCAPED = SECRET.replace("-", "\\u002d")
BASIC = base64.b64encode(f"user:{SECRET}".encode()).decode()
FORMS = (SECRET, PERCENT, ESCAPED, BASIC)
# What of each form must be nowhere; of base64 the part that holds no neighbour of the key.
NEEDLES = {
    "the key": SECRET,
    "half of the key": "TEST-SECRET",
    "the key in an address": PERCENT[:24],
    "the key in JSON": ESCAPED,
    "the key in base64": BASIC[8:-4],
}

COMMANDS = """
import json, logging, sys, threading, traceback

logging.basicConfig(filename="debug.log", level=logging.DEBUG)
from backtester.cli import run

for arguments in json.loads(sys.argv[1]):
    print("$", *arguments[:2], flush=True)
    try:
        code = run(arguments)
    except Exception:
        # What the interpreter would print of an error that --debug lets through.
        traceback.print_exc()
        code = 1
    print("exit", code, flush=True)
from langsmith.utils import tracing_is_enabled
print("tracing asked for:", tracing_is_enabled())
print("threads:", *(thread.name for thread in threading.enumerate()))
"""


def echoing(received: Received) -> Act:
    """Answer by the rules, and send the key back in every way; refuse one role's first day."""
    key = received.headers["authorization"].removeprefix("Bearer ")
    echo = {"x-echo": key, "x-request-id": f"req-{key}"}
    words = f"{key} {PERCENT} {ESCAPED} {BASIC}"
    if is_about(received, role="Trader", day="2018-01-05", symbol="BBB"):
        return replace(wire.error(400, f"Incorrect API key provided: {words}"), headers=echo)
    act = by_the_rules(received)
    message = act.body["choices"][0]["message"]
    if message["content"] and "response_format" not in received.body:
        message["content"] += f"\n\nYour key is {words}."
    for call in message.get("tool_calls") or ():
        call["id"] += key
    body = {**act.body, "model": f"stub {key}", "system_fingerprint": key}
    return replace(act, body=body, headers=echo)


@dataclass(frozen=True, kw_only=True)
class Planted:
    """What the process left: its folder, its output by command, and who was called."""

    folder: Path
    output: str
    errors: str
    traced: int
    bearers: frozenset[str]

    def block(self, *words: str) -> str:
        """Return the output of one command."""
        found = re.search(
            rf"^\$ {re.escape(' '.join(words))}\n(.*?)^exit ", self.output, re.DOTALL | re.MULTILINE
        )
        assert found, self.output
        return found[1]


RUN = ["run", "--tickers", "AAA,BBB", "--start", "2018-01-02", "--end", "2018-01-12"]
RUN += ["--grid", "weekly", "--horizon", "2", "--benchmark", "^GSPC", "--snapshot", "small"]
MODEL = ["--provider", "openai_compatible", "--model", "m"]


def commands(url: str) -> list[list[str]]:
    """Return what is done in turn."""
    recorded = [*RUN, *MODEL, "--base-url", url, "--set", "save_states=true"]
    refused = "http://127.0.0.1:9/v1"
    one = ["analyze", "--benchmark", "^GSPC", "--snapshot", "small"]
    query = "SELECT * FROM cells"
    return [
        recorded,
        [*recorded, "--set", "max_retries=0"],
        ["replay", "latest", "--keep", "kept"],
        ["sql", query],
        ["sql", "SELECT * FROM llm_calls", "--format", "csv", "-o", "calls.csv"],
        ["sql", query, "--format", "parquet", "-o", "cells.parquet"],
        ["rebuild"],
        ["transcript", "latest", "BBB", "2018-01-05"],
        ["leakcheck", "latest"],
        ["cassette", "pack", "latest", "-o", "run.jsonl.zst"],
        ["cassette", "stats"],
        ["--debug", *one, "AAA", "2018-01-12", *MODEL, "--base-url", url],
        ["--debug", *one, "BBB", "2018-01-05", *MODEL, "--base-url", url],
        # Addresses and names that hold the key.
        [*RUN, *MODEL, "--base-url", f"{refused}?key={SECRET}"],
        [*RUN, *MODEL, "--base-url", f"http://user:{SECRET}@127.0.0.1:9/v1"],
        [*RUN, *MODEL, "--base-url", f"{refused}/{PERCENT}"],
        ["--debug", *RUN, *MODEL, "--base-url", refused, "--set", f"name=my {SECRET}"],
    ]


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Planted:
    workspace = make_workspace(tmp_path_factory.mktemp("planted"))
    with OpenAIServer(echoing) as server, OpenAIServer(wire.text("traced")) as tracer:
        asking = {
            "OPENAI_COMPATIBLE_API_KEY": SECRET,
            "OPENAI_LOG": "debug",
            "LANGSMITH_TRACING": "true",
            "LANGCHAIN_TRACING_V2": "true",
            "LANGSMITH_ENDPOINT": tracer.url,
            "LANGSMITH_API_KEY": SECRET,
            "PYTHONPATH": str(ROOT),
        }
        done = subprocess.run(
            [sys.executable, "-c", COMMANDS, json.dumps(commands(server.url))],
            cwd=workspace.path,
            env={**os.environ, **asking},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return Planted(
            folder=workspace.path,
            output=done.stdout,
            errors=done.stderr,
            traced=tracer.connections,
            bearers=frozenset(request.headers["authorization"] for request in server.requests),
        )


@dataclass(frozen=True, kw_only=True)
class Spoken:
    """One provider with a wire of its own.

    Attributes:
        wire: What it answers with.
        asked: Turns its requests into chat completions'.
        header: Where it wants the key.
        variable: Where the key is read.
    """

    wire: Wire
    asked: Callable[[Mapping[str, Any]], dict[str, Any]]
    header: str
    variable: str

    def echoing(self, received: Received) -> Act:
        """Answer by the rules, and send the key back in every text, id and header."""
        key = received.headers[self.header]
        words = f"{key} {PERCENT} {ESCAPED} {BASIC}"
        read = replace(received, body=self.asked(received.body))
        if is_about(read, role="Trader", day="2018-01-05", symbol="BBB"):
            act = self.wire.error(400, f"invalid key {words}")
        else:
            act = rules_behind(self.wire, self.asked)(received)
            typed = "response_format" in read.body
            act = replace(act, body=_spread(act.body, key, "" if typed else words))
        return replace(act, headers={**act.headers, "x-echo": key, "request-id": f"req-{key}"})


def _spread(value: Any, key: str, words: str) -> Any:
    """Put the key into every id and name of a model, and the words after every text."""
    if isinstance(value, list):
        return [_spread(item, key, words) for item in value]
    if not isinstance(value, dict):
        return value
    spread = {name: _spread(item, key, words) for name, item in value.items()}
    for name in ("id", "model", "modelVersion", "responseId"):
        if isinstance(value.get(name), str):
            spread[name] = value[name] + key
    if words and isinstance(value.get("text"), str):
        spread["text"] = f"{value['text']}\n\nYour key is {words}."
    return spread


OTHERS = {
    "anthropic": Spoken(
        wire=AnthropicWire(),
        asked=asked_of_anthropic,
        header="x-api-key",
        variable="ANTHROPIC_API_KEY",
    ),
    "google": Spoken(
        wire=GeminiWire(),
        asked=asked_of_gemini,
        header="x-goog-api-key",
        variable="GOOGLE_API_KEY",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("provider", OTHERS)
def test_a_provider_with_a_wire_of_its_own_gets_the_key_and_nobody_else(
    provider: str, tmp_path: Path
) -> None:
    pytest.importorskip(
        {"anthropic": "langchain_anthropic", "google": "langchain_google_genai"}[provider]
    )
    spoken = OTHERS[provider]
    workspace = make_workspace(tmp_path)
    with OpenAIServer(spoken.echoing) as server:
        model = ["--provider", provider, "--model", spoken.wire.model]
        model += ["--base-url", root_of(server), "--set", "analysts=market"]
        run = [word.replace("2018-01-12", "2018-01-05") for word in RUN]
        one = ["analyze", "--benchmark", "^GSPC", "--snapshot", "small"]
        done = [
            [*run, *model, "--set", "save_states=true", "--set", "cell_retries=0"],
            ["replay", "latest", "--keep", "kept"],
            ["transcript", "latest", "BBB", "2018-01-05"],
            ["sql", "SELECT * FROM llm_calls", "--format", "csv", "-o", "calls.csv"],
            ["cassette", "pack", "latest", "-o", "run.jsonl.zst"],
            ["--debug", *one, "BBB", "2018-01-05", *model],
        ]
        made = subprocess.run(
            [sys.executable, "-c", COMMANDS, json.dumps(done)],
            cwd=workspace.path,
            env={**os.environ, spoken.variable: SECRET, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
    assert made.returncode == 0, made.stderr
    assert {request.headers[spoken.header] for request in server.requests} == {SECRET}
    assert re.findall("^exit ([0-9]+)$", made.stdout, re.MULTILINE) == [*"100001"], made.stdout
    assert "Your key is [API key]" in made.stdout
    assert "invalid key [API key]" in made.stdout
    for needle in NEEDLES.values():
        assert needle not in made.stdout
        assert needle not in made.stderr
        holding = [
            str(path.relative_to(workspace.path))
            for path in sorted(workspace.path.rglob("*"))
            if path.is_file() and any(needle.encode() in text for text in opened(path))
        ]
        assert holding == []
        # Not in what was sent on to the model either: what is quoted there is blanked.
        assert not any(needle in json.dumps(request.body) for request in server.requests)


def opened(path: Path) -> Iterator[bytes]:
    """Yield a file's bytes, and what they hold where they are compressed."""
    data = path.read_bytes()
    yield data
    if path.suffix == ".zst":
        yield zstandard.ZstdDecompressor().stream_reader(data).read()
    elif path.suffix == ".parquet":
        yield str(pyarrow.parquet.read_table(path).to_pylist()).encode()
    elif path.suffix == ".duckdb":
        with duckdb.connect(str(path), read_only=True) as database:
            for (name,) in database.execute("SELECT table_name FROM duckdb_tables()").fetchall():
                yield repr(database.execute(f'SELECT * FROM "{name}"').fetchall()).encode()
    elif data.startswith(b"SQLite format 3"):
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as database:
            yield "\n".join(database.iterdump()).encode()


def test_the_scenario_is_what_it_says(planted: Planted) -> None:
    assert planted.bearers == {f"Bearer {SECRET}"}
    assert "[API key]" in planted.block("transcript", "latest")
    assert "Incorrect API key provided: [API key]" in planted.block("transcript", "latest")
    files = {path.suffix for path in planted.folder.rglob("*") if path.is_file()}
    assert {".zst", ".duckdb", ".parquet", ".csv", ".json", ".jsonl", ".md", ".log"} <= files
    # A stopped decision leaves its checkpoint, and a decided one a row of memory.
    assert [path.name for path in planted.folder.glob("reports/*/*/checkpoint.sqlite")]
    assert (planted.folder / "reports" / "memory" / "default").is_dir()
    codes = re.findall("^exit ([0-9]+)$", planted.output, re.MULTILINE)
    assert codes == [*"11", *"000000000", *"01", *"2221"]
    assert "request_id: req-[API key]" in (planted.folder / "debug.log").read_text()


@pytest.mark.parametrize("needle", NEEDLES)
def test_it_is_in_no_file(needle: str, planted: Planted) -> None:
    holding = [
        str(path.relative_to(planted.folder))
        for path in sorted(planted.folder.rglob("*"))
        if path.is_file()
        if any(NEEDLES[needle].encode() in text for text in opened(path))
    ]
    assert holding == []


@pytest.mark.parametrize("needle", NEEDLES)
def test_it_is_in_no_output(needle: str, planted: Planted) -> None:
    assert NEEDLES[needle] not in planted.output
    assert NEEDLES[needle] not in planted.errors


def test_no_tracer_ran_though_the_environment_asks_for_one(planted: Planted) -> None:
    assert "tracing asked for: True" in planted.output
    assert "threads: MainThread\n" in planted.output
    assert planted.traced == 0
