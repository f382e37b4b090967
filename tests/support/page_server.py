"""A loopback server that answers GET requests by a function, in the form of any web service.

What arrived is kept in `requests`. A page can come late, be cut off, or be dropped.

    with PageServer(lambda asked: page({"history": []})) as server:
        vendor = Polymarket(settings(server))
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from backtester.vendors.base import VendorSettings, Wanted
from tests.support.loopback import Loopback

CAPTURED_AT = datetime(2026, 11, 30, 12, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Hold one request as it arrived; header names are in lower case."""

    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Page:
    """Say how one request is answered.

    Attributes:
        status: HTTP status.
        body: What is sent.
        headers: Further headers.
        delay_s: Seconds to wait before answering.
        cut: Bytes of the body that are announced and not sent.
    """

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    cut: int = 0


def page(value: Any, status: int = 200, **headers: str) -> Page:
    """Answer with JSON; ``retry_after="0"`` is a header."""
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return Page(
        status=status,
        body=json.dumps(value).encode(),
        headers={"content-type": "application/json; charset=utf-8", **named},
    )


def html(status: int = 200) -> Page:
    """Answer with a page for people."""
    body = b"<!DOCTYPE html><html><head><title>Just a moment...</title></head></html>"
    return Page(status=status, body=body, headers={"content-type": "text/html"})


def cut_off(value: Any) -> Page:
    """Announce a whole JSON body and send half of it."""
    body = json.dumps(value).encode()
    return Page(body=body[: len(body) // 2], cut=len(body) - len(body) // 2)


def in_turn(*pages: Page) -> Callable[[Asked], Page]:
    """Answer with each page once, and with the last one for ever."""
    left = list(pages)
    return lambda asked: left.pop(0) if len(left) > 1 else left[0]


class PageServer(Loopback):
    """Serve on loopback while the context is open."""

    def __init__(self, answer: Callable[[Asked], Page]) -> None:
        self.answer = answer
        self.requests: list[Asked] = []
        super().__init__(_Server(self))


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, pages: PageServer) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.pages = pages


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        asked = Asked(
            path=parts.path,
            query=dict(parse_qsl(parts.query)),
            headers={name.lower(): value for name, value in self.headers.items()},
        )
        self.server.pages.requests.append(asked)
        told = self.server.pages.answer(asked)
        if told.delay_s:
            self.server.pages.closing.wait(told.delay_s)
        try:
            self.send_response(told.status)
            self.send_header("content-length", str(len(told.body) + told.cut))
            for name, value in told.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(told.body)
        except (BrokenPipeError, ConnectionResetError):
            # The client gave up on a late answer, which is what a late one is for.
            pass
        self.close_connection = self.close_connection or bool(told.cut)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Say nothing."""


def settings_for(
    server: PageServer, naps: list[float] | None = None, **changes: Any
) -> VendorSettings:
    """Return settings that ask this server, and note how long they would have waited."""
    slept = [] if naps is None else naps
    return VendorSettings(
        **{
            "base_url": server.url,
            "timeout_s": 5.0,
            "max_retries": 2,
            "budget_s": 60.0,
            "sleep": slept.append,
            **changes,
        }
    )


def wanted_of(table: str, symbol: str, start: str, end: str, **changes: Any) -> Wanted:
    """Return a request; the instrument is the symbol unless given."""
    return Wanted(
        **{
            "table": table,
            "instrument": symbol,
            "symbol": symbol,
            "start": date.fromisoformat(start),
            "end": date.fromisoformat(end),
            "captured_at": CAPTURED_AT,
            **changes,
        }
    )
