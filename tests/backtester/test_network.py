"""While the wall is up nothing connects, sends or resolves; what a wall cannot stop is said."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest

from backtester.cache import CellReplies, ReplyCache
from backtester.network import (
    NetworkBlocked,
    allow_network,
    block_network,
    blocked_attempts,
    is_blocked,
    network_blocked,
)
from tests.support import openai_server as wire
from tests.support.openai_server import OpenAIServer
from tradingagents_core.llm.factory import create_model
from tradingagents_core.settings import ModelSpec

PROJECT = Path(__file__).parents[2]


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def port_of(server: socket.socket) -> int:
    return int(server.getsockname()[1])


def datagram(family: int) -> socket.socket:
    return socket.socket(family, socket.SOCK_DGRAM)


REACHING: dict[str, Callable[[int], object]] = {
    "connect": lambda port: socket.create_connection(("127.0.0.1", port)),
    "connect_ex": lambda port: socket.socket().connect_ex(("127.0.0.1", port)),
    "connect over IPv6": lambda port: socket.socket(socket.AF_INET6).connect(("::1", port)),
    "sendto": lambda port: datagram(socket.AF_INET).sendto(b"x", ("127.0.0.1", port)),
    "sendto over IPv6": lambda port: datagram(socket.AF_INET6).sendto(b"x", ("::1", port)),
    "sendmsg": lambda port: datagram(socket.AF_INET).sendmsg([b"x"], [], 0, ("127.0.0.1", port)),
    "getaddrinfo": lambda _: socket.getaddrinfo("localhost", 80),
    "gethostbyname": lambda _: socket.gethostbyname("localhost"),
    "gethostbyname_ex": lambda _: socket.gethostbyname_ex("localhost"),
    "gethostbyaddr": lambda _: socket.gethostbyaddr("127.0.0.1"),
    "getnameinfo": lambda _: socket.getnameinfo(("127.0.0.1", 80), 0),
    "an http client": lambda port: httpx2.get(f"http://127.0.0.1:{port}/"),
    "asyncio": lambda port: asyncio.run(asyncio.open_connection("127.0.0.1", port)),
}


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("way", REACHING)
def test_each_way_out_is_blocked_and_counted(way: str, listening: socket.socket) -> None:
    before = len(blocked_attempts())
    with network_blocked(), pytest.raises(NetworkBlocked, match="a replay makes no connection"):
        REACHING[way](port_of(listening))
    assert len(blocked_attempts()) == before + 1
    listening.settimeout(0.05)
    with pytest.raises(TimeoutError):
        listening.accept()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_message_says_what_was_tried(listening: socket.socket) -> None:
    address = f"127.0.0.1:{port_of(listening)}"
    with network_blocked(), pytest.raises(NetworkBlocked, match=f"connect to {address}"):
        socket.socket().connect(("127.0.0.1", port_of(listening)))
    with network_blocked(), pytest.raises(NetworkBlocked, match="name look-up of localhost"):
        socket.gethostbyname("localhost")


def test_the_wall_stands_in_other_threads_too(listening: socket.socket) -> None:
    seen: list[BaseException] = []

    def reach() -> None:
        try:
            socket.create_connection(("127.0.0.1", port_of(listening)))
        except NetworkBlocked as error:
            seen.append(error)

    with network_blocked():
        thread = threading.Thread(target=reach)
        thread.start()
        thread.join()
    assert len(seen) == 1


def test_the_wall_comes_down_when_all_who_put_it_up_have_taken_it_back(
    listening: socket.socket,
) -> None:
    block_network()
    with network_blocked():
        assert is_blocked()
    assert is_blocked()
    allow_network()
    assert not is_blocked()
    allow_network()
    socket.create_connection(("127.0.0.1", port_of(listening))).close()


def test_pipes_files_and_local_sockets_go_on(tmp_path: Path) -> None:
    with network_blocked():
        left, right = socket.socketpair()
        left.sendall(b"x")
        assert right.recv(1) == b"x"
        left.close()
        right.close()
        (tmp_path / "file").write_text("x")
        asyncio.run(asyncio.sleep(0))
        done = subprocess.run([sys.executable, "-c", "print('x')"], capture_output=True, check=True)
    assert done.stdout == b"x\n"


def test_a_hidden_attempt_is_still_counted(listening: socket.socket) -> None:
    before = len(blocked_attempts())
    # A library that swallows everything.
    with network_blocked(), contextlib.suppress(Exception):
        socket.create_connection(("127.0.0.1", port_of(listening)))
    assert len(blocked_attempts()) == before + 1


def test_a_connection_from_before_is_what_the_wall_cannot_stop() -> None:
    # So replaying models get a transport that refuses; this is the hole which that closes.
    with OpenAIServer(wire.text("ok")) as server, httpx2.Client() as client:
        client.post(f"{server.url}/chat/completions", json={})
        with network_blocked():
            assert client.post(f"{server.url}/chat/completions", json={}).status_code == 200
        assert server.connections == 1


# ------------------------------------------------------------------ the proof: no interface at all

SPEC = {"provider": "openai_compatible", "model": "m", "endpoint_alias": "here", "max_retries": 0}

REPLAY = """
import json, sys
from pathlib import Path

from backtester.cache import CellReplies, ReplyCache
from tradingagents_core.llm.factory import create_model
from tradingagents_core.settings import ModelSpec

model = create_model(
    ModelSpec(base_url=sys.argv[2], **json.loads(sys.argv[3])), api_key=None, transport="refuse"
)
cache = ReplyCache.open(Path(sys.argv[1]))
model.replies = CellReplies(cache, mode="replay", cell_label="FB|2018-06-29|0")
print(model.invoke("Rate FB.").content)
"""

CONNECT = "import socket, sys; socket.create_connection(('127.0.0.1', int(sys.argv[1])))"


def namespace_command() -> list[str]:
    """Return a prefix that runs a command without network interfaces, or skip."""
    unshare = shutil.which("unshare")
    prefix = [unshare or "", "-rn"]
    if unshare is None or subprocess.run([*prefix, "true"], capture_output=True).returncode:
        pytest.skip("this machine lets a user make no network namespace (Linux with unshare -rn)")
    return prefix


def test_a_replay_works_in_a_network_namespace_without_interfaces(tmp_path: Path) -> None:
    prefix = namespace_command()
    folder = tmp_path / "cache"
    with OpenAIServer(wire.text("Overweight.")) as server:
        model = create_model(ModelSpec(base_url=server.url, **SPEC), api_key=None)
        model.replies = CellReplies(
            ReplyCache.open(folder), mode="record", cell_label="FB|2018-06-29|0"
        )
        model.invoke("Rate FB.")
        port = server.url.split(":")[2].split("/")[0]
        cut_off = subprocess.run(
            [*prefix, sys.executable, "-c", CONNECT, port], capture_output=True, check=False
        )
        replayed = subprocess.run(
            [*prefix, sys.executable, "-c", REPLAY, str(folder), server.url, json.dumps(SPEC)],
            capture_output=True,
            text=True,
            cwd=PROJECT,
            check=False,
        )
        assert len(server.requests) == 1
    assert b"unreachable" in cut_off.stderr, "the namespace must have no network at all"
    assert replayed.stdout == "Overweight.\n", replayed.stderr
