"""Try again what may pass by waiting, and end what never ends: the patience of the transport.

Rate limits and faults of the server are tried again with a wait that doubles and is spread, or that
the server names, as long as retries and the time budget last. Nothing here can change an answer.
"""

from __future__ import annotations

import contextlib
import email.utils
import hashlib
import ipaddress
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

import httpx2

from tradingagents_core.llm.replaying import CallFailed, LiveReply, Meter
from tradingagents_core.protocols import Reply

PASSES_BY_WAITING: Final = frozenset(
    {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT, HTTPStatus.TOO_MANY_REQUESTS}
)
_FIRST_WAIT_S: Final = 0.5
_LONGEST_BACKOFF_S: Final = 20.0
MOST_BYTES: Final = 32 * 1024 * 1024
"""Size of the largest answer that is read, decompressed; a model's reply has some kilobytes."""


@dataclass(frozen=True, kw_only=True)
class Patience:
    """Say how long one call is tried.

    Attributes:
        max_retries: How often it is tried again.
        budget_s: Seconds from the first try after which no other begins.
    """

    max_retries: int
    budget_s: float


class MayPass(Exception):
    """Report a failure that another try may not meet.

    Args:
        failure: What is reported where there is no other try.
        wait_s: Seconds that the server asks to wait, or None where it names none.
    """

    def __init__(self, failure: CallFailed, *, wait_s: float | None = None) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.wait_s = wait_s


def persist(
    attempt: Callable[[], Reply],
    patience: Patience,
    *,
    seed: bytes,
    meter: Meter | None = None,
    pause: Callable[[float], None] = time.sleep,
) -> LiveReply:
    """Try until a reply comes, a failure is final, or patience ends.

    Args:
        attempt: Makes one try; raises `MayPass` for what another try may not meet.
        patience: How long.
        seed: Whatever tells calls apart; it spreads their waits.
        meter: Counts what may be billed though nobody could read it, before anything follows.
        pause: Waits some seconds.

    Raises:
        CallFailed: With the number of retries that it took.
        PipelineError: The meter forbids another try.
    """
    started = time.perf_counter()
    retries = 0
    while True:
        try:
            return LiveReply(reply=attempt(), retries=retries)
        except CallFailed as failure:
            failure.retries = retries
            _count(failure, meter, again=False)
            raise
        except MayPass as caught:
            wait_s = backoff_s(seed, retries) if caught.wait_s is None else caught.wait_s
            left_s = patience.budget_s - (time.perf_counter() - started)
            again = retries < patience.max_retries and wait_s <= left_s
            _count(caught.failure, meter, again=again)
            if not again:
                caught.failure.retries = retries
                raise caught.failure from None
        pause(wait_s)
        retries += 1


def _count(failure: CallFailed, meter: Meter | None, *, again: bool) -> None:
    if failure.lost and meter is not None:
        meter.lost(again=again)


def may_pass(status: int, headers: Mapping[str, str]) -> bool:
    """Say whether an answer with this status may be another one later; a server's word counts."""
    said = headers.get("x-should-retry", "").lower()
    if said in ("true", "false"):
        return said == "true"
    return status in PASSES_BY_WAITING or status >= 500


_UNSENT: Final = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.LocalProtocolError,
    httpx2.PoolTimeout,
    httpx2.ProxyError,
    httpx2.UnsupportedProtocol,
    httpx2.WriteError,
    httpx2.WriteTimeout,
)


def had_gone_out(error: BaseException | None) -> bool:
    """Say whether a request was sent when it failed, so that somebody may bill it."""
    return isinstance(error, httpx2.HTTPError) and not isinstance(error, _UNSENT)


START_IT: Final = "start the model server there, or name its address with --base-url"


def closed_port(error: BaseException, url: str) -> str | None:
    """Return the address of a port of this machine that refused a connection, or None.

    Waiting does not open it: somebody has to start the server. Elsewhere a refusal may pass.
    """
    held: BaseException | None = error
    while held is not None and not isinstance(held, ConnectionRefusedError):
        held = held.__cause__ or held.__context__
    parts = urlsplit(url)
    host = parts.hostname or ""
    with contextlib.suppress(ValueError):
        if held is not None and (host == "localhost" or ipaddress.ip_address(host).is_loopback):
            return parts.netloc.rpartition("@")[2]
    return None


def asked_wait_s(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that a server asks to wait, or None where it names none.

    It may name milliseconds, seconds, or a date, which is read against the server's own clock.
    """
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            # Also false for what is no number of seconds, such as nan.
            if (wait_s := float(headers.get(name, "")) / unit) >= 0:
                return wait_s
        except ValueError:
            continue
    until, now = (_moment(headers.get(name, "")) for name in ("retry-after", "date"))
    return None if until is None or now is None else max(0.0, until - now)


def end_in_time(response: httpx2.Response) -> None:
    """Let the body of an answer take no longer than its first byte may.

    A client's timeout bounds each silence. Some servers send blank lines while a request waits in
    their queue, and would be listened to for ever.
    """
    limit_s = response.request.extensions.get("timeout", {}).get("read")
    if limit_s is not None and isinstance(response.stream, httpx2.SyncByteStream):
        response.stream = _Bounded(response.stream, limit_s, response.request)


class AnswerTooLarge(Exception):
    """Report an answer that is larger than any reply; compressed, it may have looked small."""

    def __init__(self) -> None:
        super().__init__(f"the answer is larger than {MOST_BYTES // 2**20} MB")


def end_in_size(response: httpx2.Response) -> None:
    """Let the body of an answer be no larger than `MOST_BYTES`, counted decompressed.

    It is decompressed part by part as it is read, so what does not fit is never held.
    """
    if isinstance(response.stream, httpx2.SyncByteStream):
        packed = httpx2.Response(
            response.status_code,
            headers=response.headers,
            stream=response.stream,
            request=response.request,
        )
        response.headers.pop("content-encoding", None)
        response.stream = _Unpacked(packed)


class _Unpacked(httpx2.SyncByteStream):
    def __init__(self, packed: httpx2.Response) -> None:
        self._packed = packed

    def __iter__(self) -> Iterator[bytes]:
        size = 0
        for part in self._packed.iter_bytes():
            size += len(part)
            if size > MOST_BYTES:
                raise AnswerTooLarge
            yield part

    def close(self) -> None:
        self._packed.close()


class _Bounded(httpx2.SyncByteStream):
    def __init__(
        self, stream: httpx2.SyncByteStream, limit_s: float, request: httpx2.Request
    ) -> None:
        self._stream = stream
        self._limit_s = limit_s
        self._request = request

    def __iter__(self) -> Iterator[bytes]:
        started = time.perf_counter()
        for part in self._stream:
            if time.perf_counter() - started > self._limit_s:
                raise httpx2.ReadTimeout("the answer does not end", request=self._request)
            yield part

    def close(self) -> None:
        self._stream.close()


def _moment(text: str) -> float | None:
    read = email.utils.parsedate_tz(text)
    return None if read is None else email.utils.mktime_tz(read)


def backoff_s(seed: bytes, retries: int) -> float:
    """Return the seconds to wait: doubled each time, and spread so that callers do not meet."""
    digest = hashlib.sha256(seed + retries.to_bytes(4, "big")).digest()
    spread = 0.75 + 0.25 * digest[0] / 255
    return float(min(_LONGEST_BACKOFF_S, _FIRST_WAIT_S * 2.0**retries)) * spread
