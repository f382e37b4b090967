"""Ask a vendor over HTTP, patiently, and tell its kinds of failure apart.

A rate limit, a fault of the server, silence and a cut body are tried again, as long as retries and
time last. Whatever comes back is bounded in size, and no key is left in what is said about it.
"""

from __future__ import annotations

import atexit
import functools
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import httpx2
import orjson

from backtester.vendors.base import (
    BadResponse,
    NotConfigured,
    RateLimited,
    VendorError,
    VendorSettings,
)
from tradingagents_core.llm.patience import asked_wait_s, backoff_s, end_in_time, may_pass
from tradingagents_core.llm.reading import blank, clean

MOST_BYTES: Final = 128 * 1024 * 1024
_MOST_SAID: Final = 200
_T = TypeVar("_T")
_REFUSED: Final = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Hold what a server answered.

    Attributes:
        url: Address without its query, for messages and manifests.
        status: HTTP status.
        headers: By lower-case name.
        body: Whole content, decompressed.
    """

    url: str
    status: int
    headers: Mapping[str, str]
    body: bytes


class MayPass(Exception):
    """Report a failure that another try may not meet.

    Args:
        failure: What is raised where there is no other try.
        wait_s: Seconds that the server asks to wait, or None.
    """

    def __init__(self, failure: VendorError, wait_s: float | None = None) -> None:
        super().__init__(str(failure))
        self.failure = failure
        self.wait_s = wait_s


def fetch(
    settings: VendorSettings,
    url: str,
    params: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    *,
    also: Collection[int] = (),
    read: Callable[[Answer], Answer] | None = None,
    secrets: Sequence[str] = (),
) -> Answer:
    """Get an address.

    Args:
        settings: Of the vendor.
        url: Address.
        params: Its query.
        headers: Further headers; the user agent of the settings is one.
        also: Statuses besides success that are answers, such as 404 where it means "none".
        read: Looks at an answer before it counts; raises `MayPass` for one that another try may
            not meet, such as a rate limit told with status 200.
        secrets: What may stand in no message, besides the key of the settings.

    Raises:
        RateLimited: The vendor asks to come back later, and patience ended.
        NotConfigured: It refused the key or the user agent.
        BadResponse: It answered with what is no answer.
        VendorError: It could not be reached, or broke down.
    """
    hidden = [*secrets, *([settings.api_key] if settings.api_key else [])]
    agent = {"user-agent": settings.user_agent} if settings.user_agent else {}
    request = _Request(
        url=url,
        params=dict(params or {}),
        headers={**agent, **(headers or {})},
        timeout_s=settings.timeout_s,
        secrets=tuple(hidden),
        also=frozenset(also),
    )

    def attempt() -> Answer:
        settings.pace.wait(settings.sleep)
        answer = _attempt(request)
        return answer if read is None else read(answer)

    return persist(settings, attempt, seed=f"{url}?{sorted((params or {}).items())}".encode())


def persist(settings: VendorSettings, attempt: Callable[[], _T], *, seed: bytes) -> _T:
    """Try until something comes, a failure is final, or the patience of the settings ends.

    Args:
        settings: Of the vendor.
        attempt: Makes one try; raises `MayPass` for what another try may not meet.
        seed: Whatever tells requests apart; it spreads their waits.

    Raises:
        VendorError: As the attempt has it.
    """
    spent_s = 0.0
    retries = 0
    while True:
        started = time.perf_counter()
        try:
            return attempt()
        except MayPass as caught:
            spent_s += time.perf_counter() - started
            wait_s = backoff_s(seed, retries) if caught.wait_s is None else caught.wait_s
            if retries >= settings.max_retries or spent_s + wait_s > settings.budget_s:
                raise caught.failure from None
        settings.sleep(wait_s)
        spent_s += wait_s
        retries += 1


def json_of(answer: Answer) -> Any:
    """Return the JSON value of an answer.

    Raises:
        BadResponse: It is HTML, cut, empty or no JSON.
    """
    body = answer.body.removeprefix(b"\xef\xbb\xbf")
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        start = body[:64].lstrip().lower()
        if start.startswith((b"<!doctype", b"<html", b"<?xml", b"<")):
            what = "HTML instead of JSON"
        elif not body.strip():
            what = "nothing"
        else:
            what = f"no whole JSON ({error.msg})"
        raise BadResponse(f"{answer.url} answered {what}: try again later") from None


def object_of(answer: Answer) -> dict[str, Any]:
    """Return the JSON object of an answer.

    Raises:
        BadResponse: It is none.
    """
    value = json_of(answer)
    if not isinstance(value, dict):
        raise BadResponse(f"{answer.url} answered a JSON {type(value).__name__}, not an object")
    return value


def list_of(answer: Answer) -> list[Any]:
    """Return the JSON list of an answer.

    Raises:
        BadResponse: It is none.
    """
    value = json_of(answer)
    if not isinstance(value, list):
        raise BadResponse(f"{answer.url} answered a JSON {type(value).__name__}, not a list")
    return value


# ------------------------------------------------------------------------------------- one try


@dataclass(frozen=True, kw_only=True)
class _Request:
    url: str
    params: Mapping[str, str]
    headers: Mapping[str, str]
    timeout_s: float
    secrets: tuple[str, ...]
    also: frozenset[int]

    @property
    def where(self) -> str:
        """The address as it may be shown."""
        return self.blanked(self.url.partition("?")[0])

    @property
    def host(self) -> str:
        """The host, for messages."""
        return urlsplit(self.url).netloc.rpartition("@")[2]

    def blanked(self, text: str) -> str:
        """Return a text without the secrets."""
        return functools.reduce(blank, self.secrets, text)


def _attempt(request: _Request) -> Answer:
    try:
        answer = _exchange(request)
    except httpx2.TimeoutException:
        raise MayPass(
            VendorError(f"{request.host} did not answer in {request.timeout_s:g} s: try later")
        ) from None
    except httpx2.RemoteProtocolError as error:
        words = f"{request.where} sent a cut or broken answer ({_said(request, str(error))})"
        raise MayPass(BadResponse(f"{words}: try again later")) from None
    except httpx2.DecodingError as error:
        raise BadResponse(
            f"{request.where} sent a body that does not decompress ({_said(request, str(error))})"
        ) from None
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        words = f"{request.host} cannot be reached ({_said(request, str(error))})"
        raise MayPass(VendorError(f"{words}: is there a network?")) from None
    except UnicodeEncodeError:
        raise NotConfigured(
            f"the key or user agent for {request.host} holds a sign that no header can: write it "
            "anew"
        ) from None
    if 200 <= answer.status < 300 or answer.status in request.also:
        return answer
    raise _refused(request, answer)


def _exchange(request: _Request) -> Answer:
    client = _client()
    with client.stream(
        "GET",
        request.url,
        params=dict(request.params) or None,
        headers=dict(request.headers),
        timeout=request.timeout_s,
    ) as response:
        parts = []
        size = 0
        for part in response.iter_bytes():
            size += len(part)
            if size > MOST_BYTES:
                raise BadResponse(
                    f"{request.where} sent more than {MOST_BYTES // 2**20} MB: ask for less"
                )
            parts.append(part)
        return Answer(
            url=request.where,
            status=response.status_code,
            headers={name.lower(): value for name, value in response.headers.items()},
            body=b"".join(parts),
        )


def _refused(request: _Request, answer: Answer) -> Exception:
    said = _said(request, answer.body[:4096].decode("utf-8", "replace"))
    words = f"{request.host} answered {answer.status}" + (f" ({said})" if said else "")
    wait_s = asked_wait_s(answer.headers)
    if answer.status == HTTPStatus.TOO_MANY_REQUESTS:
        return MayPass(
            RateLimited(f"{words}: it asks to come back later; run again", wait_s), wait_s
        )
    if may_pass(answer.status, answer.headers):
        return MayPass(VendorError(f"{words}: try again later"), wait_s)
    if answer.status in _REFUSED:
        return NotConfigured(f"{words}: it refused the key or the user agent; check both")
    return BadResponse(f"{words} for {request.where}: check symbol and address")


def _said(request: _Request, text: str) -> str:
    # Blanked before it is cut: half a key is not found.
    words = " ".join(request.blanked(clean(text)).split())
    return "a page of HTML" if words.startswith("<") else words[:_MOST_SAID]


@functools.cache
def _client() -> httpx2.Client:
    # Redirects are not followed: a key in a header would go along to wherever they lead.
    client = httpx2.Client(event_hooks={"response": [end_in_time]}, follow_redirects=False)
    atexit.register(client.close)
    return client
