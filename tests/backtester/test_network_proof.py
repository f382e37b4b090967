"""The proof that a replay needs no network, and what it finds that the wall alone does not.

The wall sees what goes through Python's socket module. A C library with sockets of its own
(curl_cffi, which yfinance brings) and a child process go around it. Without interfaces they fail;
under strace their system calls are on record, even where the code that made them keeps quiet.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest

from backtester.backtest import RunResult, run
from backtester.network import blocked_attempts
from backtester.packs.replays import replay
from backtester.runs.folder import RunFolder
from backtester.walk.cell import Parts
from tests.support.ways_out import (
    UNSEEN,
    namespace_prefix,
    reached,
    reaching_view,
    strace_prefix,
)
from tests.support.workspaces import Workspace, make_workspace

PROJECT = Path(__file__).parents[2]

REPLAY = """
import json, sys
from pathlib import Path

from backtester.walk.cell import Parts
from backtester.network import blocked_attempts
from backtester.packs.replays import replay
from backtester.runs.folder import RunFolder
from tests.support.ways_out import UNSEEN, reaching_view

folder, data, workers, port, hide, *ways = sys.argv[1:]
view = reaching_view(*(UNSEEN[way] for way in ways), port=int(port), hide=hide == "hide")
found = replay(
    RunFolder(Path(folder)), Path(data), workers=int(workers), parts=Parts(view=view)
)
print(json.dumps({"equal": found.equal, "blocked": len(blocked_attempts())}))
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workspace, RunResult]:
    workspace = make_workspace(tmp_path_factory.mktemp("recorded"))
    # Two cells, so that there is something for two workers to do.
    return workspace, run(workspace.config(end=date(2018, 1, 5)))


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0), backlog=128) as server:
        server.setblocking(False)
        yield server


def visits(server: socket.socket) -> int:
    """Count the connections that wait to be accepted."""
    seen = 0
    while True:
        try:
            server.accept()[0].close()
        except BlockingIOError:
            return seen
        seen += 1


def replayed(
    recorded: tuple[Workspace, RunResult],
    listening: socket.socket,
    *ways: str,
    prefix: list[str],
    workers: int = 1,
    hide: bool = False,
) -> subprocess.CompletedProcess[str]:
    workspace, result = recorded
    return subprocess.run(
        [
            *prefix,
            *(sys.executable, "-c", REPLAY),
            *(str(result.folder), str(workspace.data), str(workers)),
            *(str(listening.getsockname()[1]), "hide" if hide else "show", *ways),
        ],
        capture_output=True,
        text=True,
        cwd=PROJECT,
        timeout=240,
        check=False,
    )


@pytest.mark.parametrize("way", UNSEEN)
def test_the_wall_alone_does_not_see_it(
    way: str, recorded: tuple[Workspace, RunResult], listening: socket.socket
) -> None:
    workspace, result = recorded
    before = len(blocked_attempts())
    view = reaching_view(UNSEEN[way], port=listening.getsockname()[1], hide=True)

    found = replay(RunFolder(result.folder), workspace.data, parts=Parts(view=view))

    assert found.equal
    assert visits(listening) > 0
    assert len(blocked_attempts()) == before


@pytest.mark.slow
@pytest.mark.parametrize("way", UNSEEN)
def test_without_interfaces_it_fails(
    way: str, recorded: tuple[Workspace, RunResult], listening: socket.socket
) -> None:
    done = replayed(recorded, listening, way, prefix=namespace_prefix())

    assert done.returncode != 0
    assert {"curl_cffi": "Could", "a child process": "CalledProcessError"}[way] in done.stderr
    assert visits(listening) == 0


@pytest.mark.slow
def test_under_strace_even_the_quiet_ones_are_on_record(
    recorded: tuple[Workspace, RunResult], listening: socket.socket, tmp_path: Path
) -> None:
    prefix = strace_prefix(tmp_path / "trace")
    done = replayed(recorded, listening, *UNSEEN, prefix=prefix, hide=True)

    # The replay itself has noticed nothing.
    assert json.loads(done.stdout) == {"equal": True, "blocked": 0}, done.stderr
    calls = reached(tmp_path / "trace")
    assert len(calls) == visits(listening) > 0
    port = listening.getsockname()[1]
    assert all(f"htons({port})" in call for call in calls)
    # More than one process: the replay's own, by its C library, and its children.
    assert len({call.split()[0] for call in calls}) > 1


@pytest.mark.slow
def test_under_strace_a_replay_with_workers_reaches_for_no_address(
    recorded: tuple[Workspace, RunResult], listening: socket.socket, tmp_path: Path
) -> None:
    prefix = strace_prefix(tmp_path / "trace")
    done = replayed(recorded, listening, prefix=prefix, workers=2)

    assert json.loads(done.stdout) == {"equal": True, "blocked": 0}, done.stderr
    assert reached(tmp_path / "trace") == []
    assert "exited with 0" in (tmp_path / "trace").read_text()
