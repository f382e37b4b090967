"""A provider's key reaches its Authorization header and nothing else, whatever echoes it.

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
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import duckdb
import pyarrow.parquet
import pytest
import zstandard

from tests.guards.sources import ROOT
from tests.support import openai_server as wire
from tests.support.openai_server import Act, OpenAIServer, Received
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
