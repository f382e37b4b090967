"""A wall around the process: while it is up, no Python code connects, sends or resolves names.

It is a guard that makes a mistake loud, by an audit hook on the socket module, for IPv4 and IPv6.
What it cannot see: a connection that was open before (replaying models have a transport that
refuses), child processes (each puts up its own), and C libraries with sockets of their own. The
proof that a replay needs no network is a run without interfaces.
"""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from backtester.errors import BacktesterError

_INTERNET = frozenset({socket.AF_INET, socket.AF_INET6})
_ADDRESSED = frozenset({"socket.connect", "socket.sendto", "socket.sendmsg"})
_RESOLVING = frozenset(
    {
        "socket.getaddrinfo",
        "socket.getnameinfo",
        "socket.gethostbyname",
        "socket.gethostbyaddr",
    }
)


class NetworkBlocked(BacktesterError):
    """Report that something reached for the network while a replay had closed it.

    It is no `OSError` on purpose: a library that retries or falls back on connection errors would
    hide it.
    """


class _Wall:
    """Count who wants the wall up, and what ran into it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.installed = False
        self.holders = 0
        self.attempts: list[str] = []


_WALL = _Wall()


def block_network() -> None:
    """Put the wall up for the whole process and all its threads; a second call counts up.

    Worker processes do not inherit it: call this in the task.
    """
    with _WALL.lock:
        if not _WALL.installed:
            # An audit hook cannot be removed, so it is installed once and asks for the state.
            sys.addaudithook(_refuse)
            _WALL.installed = True
        _WALL.holders += 1


def allow_network() -> None:
    """Take back one `block_network`; the wall is down when all are taken back."""
    with _WALL.lock:
        _WALL.holders = max(0, _WALL.holders - 1)


def is_blocked() -> bool:
    """Say whether the wall is up."""
    return _WALL.holders > 0


def blocked_attempts() -> tuple[str, ...]:
    """Return what ran into the wall since the process started, even where a library hid it."""
    with _WALL.lock:
        return tuple(_WALL.attempts)


@contextmanager
def network_blocked() -> Iterator[None]:
    """Hold the wall up for a while."""
    block_network()
    try:
        yield
    finally:
        allow_network()


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    # Every audit event of the interpreter comes through here: leave at once where it is not ours.
    if not event.startswith("socket.") or _WALL.holders == 0:
        return
    if event in _ADDRESSED:
        family = arguments[0].family
        if family not in _INTERNET:
            return
        attempt = f"{event.removeprefix('socket.')} to {_address(arguments[1])}"
    elif event in _RESOLVING:
        attempt = f"name look-up of {_address(arguments[0])}"
    else:
        return
    _WALL.attempts.append(attempt)
    raise NetworkBlocked(f"{attempt} was blocked: a replay makes no connection")


def _address(value: object) -> str:
    if isinstance(value, tuple) and len(value) >= 2:
        return f"{value[0]}:{value[1]}"
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
