"""The tests themselves: no connection leaves the machine, no key is at hand, no zone is assumed."""

from __future__ import annotations

import os
import re
import socket
import time
from pathlib import Path

import pytest
from pytest_socket import SocketConnectBlockedError

from tests.conftest import TEST_ZONE, is_ambient
from tests.guards.sources import ROOT

# Addresses that documentation may use and nobody answers on.
NOWHERE_4 = ("192.0.2.1", 443)
NOWHERE_6 = ("2001:db8::1", 443)
LIFTS_THE_WALL = re.compile(r"enable_" + r"socket|socket_" + r"enabled|mark\.allow_" + r"hosts")


@pytest.mark.parametrize(
    ("family", "address"), [(socket.AF_INET, NOWHERE_4), (socket.AF_INET6, NOWHERE_6)]
)
def test_a_connection_that_leaves_the_machine_is_refused(
    family: socket.AddressFamily, address: tuple[str, int]
) -> None:
    with (
        socket.socket(family, socket.SOCK_STREAM) as client,
        pytest.raises(SocketConnectBlockedError),
    ):
        client.connect(address)


def test_loopback_is_open() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname(), timeout=5) as client,
    ):
        assert client.getpeername() == server.getsockname()


def test_no_test_lifts_the_wall() -> None:
    lifting = [
        path.relative_to(ROOT).as_posix()
        for path in sorted((ROOT / "tests").rglob("*.py"))
        if LIFTS_THE_WALL.search(path.read_text(encoding="utf-8"))
    ]
    assert lifting == []


def test_no_key_or_endpoint_of_the_machine_reaches_a_test() -> None:
    assert [name for name in sorted(os.environ) if is_ambient(name)] == ["LANGSMITH_TRACING"]
    assert os.environ["LANGSMITH_TRACING"] == "false"


@pytest.mark.parametrize(
    ("variable", "ambient"),
    [
        ("OPENAI_API_KEY", True),
        ("GROQ_API_KEY", True),
        ("BACKTESTER_WORKERS", True),
        ("BACKTESTER_EXTRA_DATA", False),
        ("PATH", False),
    ],
)
def test_what_counts_as_ambient(variable: str, ambient: bool) -> None:
    assert is_ambient(variable) is ambient


def test_the_suite_runs_in_a_zone_that_shows_naive_times() -> None:
    assert os.environ["TZ"] == TEST_ZONE
    assert time.strftime("%z") == {"Asia/Tokyo": "+0900"}.get(TEST_ZONE, time.strftime("%z"))


def test_every_folder_of_tests_is_a_package() -> None:
    folders = {path.parent for path in (ROOT / "tests").rglob("*.py")}
    bare = [str(Path(folder).relative_to(ROOT)) for folder in sorted(folders)]
    assert [name for name in bare if not (ROOT / name / "__init__.py").is_file()] == []
