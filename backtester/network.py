"""A wall around the process: while it is up, no Python code connects, sends or resolves names.

It is a guard that makes a mistake loud. An audit hook on the socket module refuses connections,
datagrams and name look-ups for every family but local sockets; sending on a connection that was
open before raises no audit event, so the methods that do it are guarded themselves, for plain and
for TLS sockets. Local sockets, pipes and files go on, for workers need them.

What it cannot see: child processes (each worker puts up its own), C libraries with sockets of
their own (curl, grpc, zmq), writing to the number of an open socket (``os.write``), a method taken
from a socket before the wall first went up, and reading what an open connection still delivers.
The proof that a replay needs no network is a run without interfaces, or its system calls.
"""

from __future__ import annotations

import functools
import socket
import ssl
import sys
import threading
from collections.abc import Callable
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any

from backtester.errors import VerificationFailed

_LOCAL = socket.AF_UNIX
_ADDRESSED = frozenset({"socket.connect", "socket.sendto", "socket.sendmsg"})
_RESOLVING = frozenset(
    {
        "socket.getaddrinfo",
        "socket.getnameinfo",
        "socket.gethostbyname",
        "socket.gethostbyaddr",
    }
)
_SENDING: tuple[tuple[type[socket.socket], tuple[str, ...]], ...] = (
    (socket.socket, ("send", "sendall", "sendfile")),
    (ssl.SSLSocket, ("send", "sendall", "sendfile", "write")),
)


class NetworkBlocked(VerificationFailed):
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
# What ran into the wall on behalf of the innermost `network_blocked`, in whatever thread.
_OURS: ContextVar[list[str] | None] = ContextVar("backtester_blocked_attempts", default=None)


def block_network() -> None:
    """Put the wall up for the whole process and all its threads; a second call counts up.

    Worker processes do not inherit it: call this in the task.
    """
    with _WALL.lock:
        if not _WALL.installed:
            # An audit hook cannot be removed, so all is installed once and asks for the state.
            sys.addaudithook(_refuse)
            _guard_open_connections()
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


class network_blocked:  # noqa: N801 - a context manager reads like a function
    """Hold the wall up for a while, and do not let an attempt be hidden.

    Attempts of the code within count, also in threads that copied its context; those of the
    program's other threads are refused, and are not this code's fault.

    Raises:
        NetworkBlocked: On leaving, where something ran into the wall and nobody heard of it,
            because a library swallowed the error or turned it into one of its own.
    """

    def __init__(self) -> None:
        self._attempts: list[str] = []
        self._outer: Token[list[str] | None] | None = None

    def __enter__(self) -> None:
        """Put the wall up."""
        self._outer = _OURS.set(self._attempts)
        block_network()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Take the wall down, and tell of a hidden attempt."""
        allow_network()
        if self._outer is not None:
            _OURS.reset(self._outer)
        heard = isinstance(error, NetworkBlocked)
        if self._attempts and not heard and (error is None or isinstance(error, Exception)):
            raise NetworkBlocked(_words(self._attempts[0])) from error


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    # Every audit event of the interpreter comes through here: leave at once where it is not ours.
    if not event.startswith("socket.") or _WALL.holders == 0:
        return
    if event in _ADDRESSED:
        if arguments[0].family == _LOCAL:
            return
        # A connected socket sends messages without an address.
        address = _peer(arguments[0]) if arguments[1] is None else arguments[1]
        _block(f"{event.removeprefix('socket.')} to {_address(address)}")
    elif event in _RESOLVING:
        _block(f"name look-up of {_address(arguments[0])}")


def _guard_open_connections() -> None:
    """Stand in front of the methods that send on an open connection."""
    for owner, names in _SENDING:
        for name in names:
            setattr(owner, name, _guarded(getattr(owner, name)))


def _guarded(send: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(send)
    def guarded(connection: socket.socket, *arguments: Any, **named: Any) -> Any:
        if _WALL.holders > 0 and connection.family != _LOCAL:
            _block(f"sending on a connection to {_address(_peer(connection))}")
        return send(connection, *arguments, **named)

    return guarded


def _block(attempt: str) -> None:
    _WALL.attempts.append(attempt)
    ours = _OURS.get()
    if ours is not None:
        ours.append(attempt)
    raise NetworkBlocked(_words(attempt))


def _words(attempt: str) -> str:
    return f"{attempt} was blocked: a replay makes no connection"


def _peer(connection: socket.socket) -> object:
    try:
        return connection.getpeername()
    except OSError:
        return "nobody"


def _address(value: object) -> str:
    if isinstance(value, tuple) and len(value) >= 2:
        return f"{value[0]}:{value[1]}"
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
