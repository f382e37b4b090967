"""Ways from a cell to the network, for tests to plant; each reaches a port on loopback.

Those of `SEEN` go through Python's socket module, so the wall refuses them; those of `UNSEEN` go
around it, and only a run without interfaces or a look at the system calls finds them.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import importlib
import re
import shutil
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from backtester.snapshots.view import AsOfView

Way = Callable[[int], object]

_TO_AN_ADDRESS = re.compile(r"\d+ +(?:connect|send\w+)\(.*sa_family=AF_INET")


def _http_client(port: int) -> object:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    connection.request("GET", "/")
    return connection.getresponse()


def _raw_socket(port: int) -> object:
    with socket.socket() as client:
        return client.connect(("127.0.0.1", port))


def _datagram(port: int) -> object:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        return sender.sendto(b"x", ("127.0.0.1", port))


def _of_asyncio(port: int) -> object:
    return asyncio.run(asyncio.open_connection("127.0.0.1", port))


def _get_by(library: str) -> Way:
    """Return a way through a library, which is imported when it is gone: workers start sooner."""
    return lambda port: importlib.import_module(library).get(f"http://127.0.0.1:{port}/", timeout=5)


def _urllib3(port: int) -> object:
    import urllib3

    return urllib3.request("GET", f"http://127.0.0.1:{port}/", timeout=5)


def _curl_cffi(port: int) -> object:
    import curl_cffi.requests

    # The listener does not answer: that the connection was made is what counts.
    return curl_cffi.requests.get(f"http://127.0.0.1:{port}/", timeout=0.2)


_CHILD = "import socket, sys; socket.create_connection(('127.0.0.1', int(sys.argv[1])))"


def _child_process(port: int) -> object:
    return subprocess.run([sys.executable, "-S", "-c", _CHILD, str(port)], check=True)


SEEN: Mapping[str, Way] = {
    "a raw socket": _raw_socket,
    "a datagram": _datagram,
    "asyncio": _of_asyncio,
    "http.client": _http_client,
    "urllib": lambda port: urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5),
    "urllib3": _urllib3,
    "requests": _get_by("requests"),
    "httpx": _get_by("httpx"),
    "httpx2": _get_by("httpx2"),
    "a name look-up": lambda _: socket.getaddrinfo("localhost", 80),
}
UNSEEN: Mapping[str, Way] = {"curl_cffi": _curl_cffi, "a child process": _child_process}


def reaching_view(*ways: Way, port: int, hide: bool = False) -> type[AsOfView]:
    """Make a view that goes out by every way when bars are read; ``hide`` swallows the errors.

    The class travels to worker processes by value, with its port.
    """

    class ReachingView(AsOfView):
        def bars(self, *arguments: Any, **named: Any) -> Any:
            for way in ways:
                with contextlib.suppress(Exception if hide else ()):
                    way(port)
            return super().bars(*arguments, **named)

    return ReachingView


class CacheIgnoringModel(BaseChatModel):
    """Answer by going out: a provider's model that has never heard of the cache."""

    way: Any
    port: int

    @property
    def _llm_type(self) -> str:
        return "cache-ignoring"

    def bind_tools(self, tools: Any, **named: Any) -> Any:
        return self.bind(tools=[], **named)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        self.way(self.port)
        return ChatResult(generations=[ChatGeneration(message=AIMessage("Hold."))])


# --------------------------------------------------------------------------------- the proof


def namespace_prefix() -> list[str]:
    """Return the words that run a command without network interfaces, or skip the test."""
    prefix = [shutil.which("unshare") or "", "--map-root-user", "--net"]
    if not prefix[0] or subprocess.run([*prefix, "true"], capture_output=True).returncode:
        pytest.skip("this machine lets a user make no network namespace (Linux with unshare can)")
    return prefix


def strace_prefix(trace: Path) -> list[str]:
    """Return the words that write a command's network system calls to a file, or skip the test."""
    prefix = [shutil.which("strace") or "", "-f", "-e", "trace=%network", "-o", str(trace)]
    if not prefix[0] or subprocess.run([*prefix, "true"], capture_output=True).returncode:
        pytest.skip("this machine has no strace, or lets a user trace nothing")
    return prefix


def reached(trace: Path) -> list[str]:
    """Return the traced system calls that connect or send to an address on a network."""
    return [line for line in trace.read_text().splitlines() if _TO_AN_ADDRESS.match(line)]
