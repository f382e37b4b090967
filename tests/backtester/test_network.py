"""While the wall is up nothing connects, sends or resolves; what a wall cannot stop is said."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import http.client
import io
import pickle
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
import requests
import urllib3
from joblib import Parallel, delayed
from langchain_openai import ChatOpenAI

from backtester import network
from backtester.backtest import RunResult, run
from backtester.network import (
    NetworkBlocked,
    allow_network,
    block_network,
    blocked_attempts,
    is_blocked,
    network_blocked,
)
from backtester.packs.replays import replay
from backtester.runs.folder import RunFolder
from backtester.walk.cell import Parts
from tests.support import openai_server as wire
from tests.support.openai_server import OpenAIServer
from tests.support.ways_out import SEEN, CacheIgnoringModel, reaching_view
from tests.support.workspaces import Workspace, make_workspace
from tradingagents_core.errors import ReplayMiss
from tradingagents_core.llm.factory import create_model
from tradingagents_core.settings import ModelSpec

# What a library leaves lying about when it is stopped halfway is not what is tested here.
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


@pytest.fixture
def wall() -> Iterator[None]:
    block_network()
    yield
    allow_network()


def port_of(server: socket.socket) -> int:
    return int(server.getsockname()[1])


def expect_nobody(server: socket.socket) -> None:
    server.setblocking(False)
    with pytest.raises(BlockingIOError):
        server.accept()


def datagram(family: int) -> socket.socket:
    return socket.socket(family, socket.SOCK_DGRAM)


REACHING: dict[str, Callable[[int], object]] = {
    "connect": lambda port: socket.create_connection(("127.0.0.1", port)),
    "connect_ex": lambda port: socket.socket().connect_ex(("127.0.0.1", port)),
    "connect over IPv6": lambda port: socket.socket(socket.AF_INET6).connect(("::1", port)),
    "sendto": lambda port: datagram(socket.AF_INET).sendto(b"x", ("127.0.0.1", port)),
    "sendto over IPv6": lambda port: datagram(socket.AF_INET6).sendto(b"x", ("::1", port)),
    "sendmsg": lambda port: datagram(socket.AF_INET).sendmsg([b"x"], [], 0, ("127.0.0.1", port)),
    "sendmsg over IPv6": lambda port: datagram(socket.AF_INET6).sendmsg(
        [b"x"], [], 0, ("::1", port)
    ),
    "getaddrinfo": lambda _: socket.getaddrinfo("localhost", 80),
    "getfqdn": lambda _: socket.getfqdn("192.0.2.1"),
    "gethostbyname": lambda _: socket.gethostbyname("localhost"),
    "gethostbyname_ex": lambda _: socket.gethostbyname_ex("localhost"),
    "gethostbyaddr": lambda _: socket.gethostbyaddr("127.0.0.1"),
    "getnameinfo": lambda _: socket.getnameinfo(("127.0.0.1", 80), 0),
    "a name look-up of asyncio": lambda port: asyncio.run(
        asyncio.open_connection("localhost", port)
    ),
    **SEEN,
}


@pytest.mark.usefixtures("wall")
@pytest.mark.parametrize("way", REACHING)
def test_each_way_out_is_blocked_and_counted(way: str, listening: socket.socket) -> None:
    before = len(blocked_attempts())
    with pytest.raises(NetworkBlocked, match="a replay makes no connection"):
        REACHING[way](port_of(listening))
    assert len(blocked_attempts()) == before + 1
    expect_nobody(listening)


@pytest.mark.usefixtures("wall")
def test_the_message_says_what_was_tried(listening: socket.socket) -> None:
    address = f"127.0.0.1:{port_of(listening)}"
    with pytest.raises(NetworkBlocked, match=f"connect to {address}"):
        socket.socket().connect(("127.0.0.1", port_of(listening)))
    with pytest.raises(NetworkBlocked, match="name look-up of localhost"):
        socket.gethostbyname("localhost")


@pytest.mark.usefixtures("wall")
def test_the_wall_stands_in_other_threads_too(listening: socket.socket) -> None:
    seen: list[BaseException] = []

    def reach() -> None:
        try:
            socket.create_connection(("127.0.0.1", port_of(listening)))
        except NetworkBlocked as error:
            seen.append(error)

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


@pytest.mark.usefixtures("wall")
def test_pipes_files_and_local_sockets_go_on(tmp_path: Path) -> None:
    left, right = socket.socketpair()
    left.sendall(b"x")
    left.sendmsg([b"y"])
    assert right.recv(2) == b"xy"
    left.close()
    right.close()
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        server.bind(str(tmp_path / "socket"))
        server.listen()
        client.connect(str(tmp_path / "socket"))
        client.send(b"x")
    (tmp_path / "file").write_text("x")
    asyncio.run(asyncio.sleep(0))
    done = subprocess.run([sys.executable, "-c", "print('x')"], capture_output=True, check=True)
    assert done.stdout == b"x\n"


# ------------------------------------------------------------------------ what a library hides


def swallowing(port: int) -> None:
    with contextlib.suppress(Exception), socket.socket() as client:
        client.connect(("127.0.0.1", port))


def interrupted(port: int) -> None:
    swallowing(port)
    raise KeyboardInterrupt


def hold_the_wall_and(act: Callable[..., object], *arguments: object) -> None:
    with network_blocked():
        act(*arguments)


def test_an_attempt_that_a_library_swallowed_is_told_of_in_the_end(
    listening: socket.socket,
) -> None:
    with pytest.raises(NetworkBlocked, match=f"connect to 127.0.0.1:{port_of(listening)}"):
        hold_the_wall_and(swallowing, port_of(listening))
    assert not is_blocked()


def test_an_error_that_a_library_made_of_it_is_not_what_is_told(listening: socket.socket) -> None:
    def renaming(port: int) -> None:
        try:
            socket.create_connection(("127.0.0.1", port))
        except NetworkBlocked as error:
            # A caller would take it for bad weather and try again.
            raise ConnectionError("no answer") from error

    with pytest.raises(NetworkBlocked, match="was blocked") as told:
        hold_the_wall_and(renaming, port_of(listening))
    assert isinstance(told.value.__cause__, ConnectionError)


def test_a_thread_that_copied_the_context_is_held_to_it_and_a_strangers_thread_is_not(
    listening: socket.socket,
) -> None:
    def in_thread(target: Callable[..., Any], *arguments: Any) -> None:
        thread = threading.Thread(target=target, args=arguments)
        thread.start()
        thread.join()

    before = len(blocked_attempts())
    with network_blocked():
        in_thread(swallowing, port_of(listening))
    assert len(blocked_attempts()) == before + 1
    with pytest.raises(NetworkBlocked), network_blocked():
        in_thread(contextvars.copy_context().run, swallowing, port_of(listening))


def test_an_interrupt_is_not_replaced(listening: socket.socket) -> None:
    with pytest.raises(KeyboardInterrupt):
        hold_the_wall_and(interrupted, port_of(listening))


def test_the_error_travels_from_a_worker() -> None:
    error = pickle.loads(pickle.dumps(NetworkBlocked("connect to x was blocked")))
    # A promise that did not hold, not a fault of our own.
    assert error.exit_code == 7
    assert str(error) == "connect to x was blocked"


# ----------------------------------------------------------------- connections from before the wall


SENDING: dict[str, Callable[[socket.socket], object]] = {
    "send": lambda client: client.send(b"x"),
    "sendall": lambda client: client.sendall(b"x"),
    "sendmsg": lambda client: client.sendmsg([b"x"]),
    "sendfile": lambda client: client.sendfile(io.BytesIO(b"x")),
    "a file of it": lambda client: client.makefile("wb", buffering=0).write(b"x"),
}


@pytest.mark.parametrize("way", SENDING)
def test_a_connection_from_before_sends_nothing_while_the_wall_is_up(
    way: str, listening: socket.socket
) -> None:
    with socket.create_connection(listening.getsockname()) as client, listening.accept()[0] as end:
        address = f"127.0.0.1:{port_of(listening)}"
        with pytest.raises(NetworkBlocked, match=address), network_blocked():
            SENDING[way](client)
        client.sendall(b"after")
        assert end.recv(9) == b"after"


def encrypted(listening: socket.socket) -> tuple[ssl.SSLSocket, threading.Thread]:
    """Connect with TLS; anonymous ciphers need no certificate."""
    contexts = []
    for side in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT):
        context = ssl.SSLContext(side)
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.set_ciphers("aNULL:@SECLEVEL=0")
        contexts.append(context)

    def answer() -> None:
        with contexts[0].wrap_socket(listening.accept()[0], server_side=True) as end:
            end.recv(9)

    thread = threading.Thread(target=answer)
    thread.start()
    return contexts[1].wrap_socket(socket.create_connection(listening.getsockname())), thread


def test_nor_does_an_encrypted_one(listening: socket.socket) -> None:
    client, thread = encrypted(listening)
    with client:
        for send in (client.send, client.sendall, client.write):
            with pytest.raises(NetworkBlocked, match="sending on a connection"), network_blocked():
                send(b"x")
        client.sendall(b"after")
        thread.join()


def test_nor_does_a_stream_of_asyncio(listening: socket.socket) -> None:
    async def talk() -> None:
        reader, writer = await asyncio.open_connection(*listening.getsockname())
        with network_blocked():
            writer.write(b"x")
            await reader.read()

    with pytest.raises(NetworkBlocked, match="sending on a connection"):
        asyncio.run(talk())


def pooled_by_http_client(url: str) -> Callable[[], int]:
    connection = http.client.HTTPConnection(url.split("/")[2])

    def ask() -> int:
        try:
            connection.request("POST", "/v1", body=b"{}")
        except NetworkBlocked:
            connection.close()
            raise
        answer = connection.getresponse()
        answer.read()
        return answer.status

    return ask


def pooled_by_urllib3(url: str) -> Callable[[], int]:
    pool = urllib3.PoolManager()
    return lambda: pool.request("POST", url, body=b"{}").status


def pooled_by(client: Any) -> Callable[[str], Callable[[], int]]:
    return lambda url: lambda: client.post(url, json={}).status_code


POOLS: dict[str, Callable[[str], Callable[[], int]]] = {
    "http.client": pooled_by_http_client,
    "urllib3": pooled_by_urllib3,
    "requests": pooled_by(requests.Session()),
    "httpx": pooled_by(httpx.Client()),
    "httpx2": pooled_by(httpx2.Client()),
}


@pytest.mark.parametrize("library", POOLS)
def test_a_pooled_connection_of_a_library_is_refused_and_serves_again_afterwards(
    library: str,
) -> None:
    with OpenAIServer(wire.text("ok")) as server:
        ask = POOLS[library](server.url)
        assert ask() == 200
        with pytest.raises(NetworkBlocked), network_blocked():
            ask()
        assert (len(server.requests), server.connections) == (1, 1)
        assert ask() == 200
        assert len(server.requests) == 2


def test_the_connection_that_recording_left_open_is_refused_to_whoever_finds_it() -> None:
    spec = {"provider": "openai_compatible", "model": "m", "endpoint_alias": "here"}
    with OpenAIServer(wire.text("Overweight.")) as server:
        recording = create_model(ModelSpec(base_url=server.url, **spec), api_key=None)
        recording.invoke("Rate FB.")
        # It shares the recording model's client and ignores the cache.
        stray = ChatOpenAI(
            model="m",
            base_url=server.url,
            api_key="k",
            http_client=recording.root_client._client,
            max_retries=0,
        )
        with pytest.raises(NetworkBlocked, match="sending on a connection"), network_blocked():
            stray.invoke("Rate FB.")
        # The product's own model does not even try.
        replaying = create_model(
            ModelSpec(base_url=server.url, **spec), api_key=None, transport="refuse"
        )
        with pytest.raises(ReplayMiss), network_blocked():
            replaying.invoke("Rate FB.")
        assert (len(server.requests), server.connections) == (1, 1)


# ------------------------------------------------------------------------------- whole replays


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workspace, RunResult]:
    workspace = make_workspace(tmp_path_factory.mktemp("recorded"))
    return workspace, run(workspace.config(end=date(2018, 1, 12)))


@pytest.mark.parametrize("way", SEEN)
def test_a_provider_that_ignores_the_cache_stops_the_replay(
    way: str,
    recorded: tuple[Workspace, RunResult],
    listening: socket.socket,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    workspace, result = recorded
    model = CacheIgnoringModel(way=SEEN[way], port=port_of(listening))
    monkeypatch.setattr("backtester.walk.cell.create_model", lambda *_, **__: model)

    with pytest.raises(NetworkBlocked):
        replay(RunFolder(result.folder), workspace.data)

    expect_nobody(listening)
    assert not is_blocked()


def test_a_run_in_replay_mode_has_the_same_wall(
    recorded: tuple[Workspace, RunResult],
    listening: socket.socket,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    workspace, _ = recorded
    model = CacheIgnoringModel(way=SEEN["http.client"], port=port_of(listening))
    monkeypatch.setattr("backtester.walk.cell.create_model", lambda *_, **__: model)

    with pytest.raises(NetworkBlocked):
        run(workspace.config(mode="replay", reports_dir=tmp_path))

    expect_nobody(listening)
    assert not is_blocked()


def test_after_a_replay_the_process_and_its_workers_can_connect_again(
    recorded: tuple[Workspace, RunResult], listening: socket.socket
) -> None:
    workspace, result = recorded
    port = port_of(listening)

    def had_a_wall() -> bool:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
        return network._WALL.installed

    found = replay(RunFolder(result.folder), workspace.data, workers=2)

    assert found.equal
    assert had_a_wall()
    # loky keeps its processes: those that replayed work for whatever comes next.
    assert any(Parallel(n_jobs=2)([delayed(had_a_wall)()] * 4))


@pytest.mark.parametrize(
    ("backend", "hide"), [("threading", False), ("threading", True), ("loky", True)]
)
def test_workers_stand_behind_the_wall(
    backend: Any, hide: bool, recorded: tuple[Workspace, RunResult], listening: socket.socket
) -> None:
    workspace, result = recorded
    view = reaching_view(SEEN["a raw socket"], port=port_of(listening), hide=hide)

    with pytest.raises(NetworkBlocked, match="connect to"):
        replay(
            RunFolder(result.folder),
            workspace.data,
            workers=2,
            backend=backend,
            parts=Parts(view=view),
        )

    expect_nobody(listening)
