"""Send one JSON request to a provider and read the answer to it.

The provider's class builds the body; this is the only door through which it leaves. What may pass
by waiting is tried again as `patience` has it.
"""

from __future__ import annotations

import atexit
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

import httpx2
import orjson

from tradingagents_core.llm.capabilities import Transport, structured_method
from tradingagents_core.llm.keys import endpoint_alias
from tradingagents_core.llm.patience import (
    AnswerTooLarge,
    MayPass,
    Patience,
    asked_wait_s,
    end_in_size,
    end_in_time,
    had_gone_out,
    may_pass,
    persist,
)
from tradingagents_core.llm.reading import (
    MalformedReply,
    as_mapping,
    as_text,
    blank,
    clean,
    moved_to,
)
from tradingagents_core.llm.replaying import CallFailed, FailedKind, LiveReply, Meter
from tradingagents_core.protocols import Reply
from tradingagents_core.settings import ModelSpec

# What is in the way has nothing to do with the prompt: key, account, time, another request, rate.
_UNAVAILABLE: Final = frozenset(
    {
        HTTPStatus.UNAUTHORIZED,
        HTTPStatus.FORBIDDEN,
        HTTPStatus.REQUEST_TIMEOUT,
        HTTPStatus.CONFLICT,
        # Bedrock's word for a model that broke down.
        HTTPStatus.FAILED_DEPENDENCY,
        HTTPStatus.TOO_MANY_REQUESTS,
    }
)
_MOST_SAID: Final = 500
# Words with which Anthropic's API says that its filter stopped an answer; it has no code for it.
_FILTERED_WORDS: Final = "content filtering policy"


@dataclass(frozen=True, kw_only=True)
class Door:
    """Say where requests of a model go, and how long they are tried.

    Attributes:
        url: Address of the call.
        headers: Headers, the credential among them.
        secrets: Credentials, which nothing that comes back may hold.
        timeout_s: Longest silence of the server.
        transport: ``refuse`` lets nothing out.
    """

    url: str
    headers: Mapping[str, str]
    secrets: Sequence[str]
    timeout_s: float
    transport: Transport


class RefusingTransport(httpx2.BaseTransport, httpx2.AsyncBaseTransport):
    """Refuse every request, so that not even a connection kept open from before is used."""

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Refuse a request.

        Raises:
            ConnectError: Always.
        """
        raise httpx2.ConnectError(f"replay: no request to {request.url.host}", request=request)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Refuse a request.

        Raises:
            ConnectError: Always.
        """
        return self.handle_request(request)


def post(
    door: Door,
    body: Mapping[str, Any],
    read: Callable[[str], Reply],
    patience: Patience,
    meter: Meter | None = None,
) -> LiveReply:
    """Send a body and return what was answered.

    Args:
        door: Where it goes.
        body: JSON values.
        read: Reads the JSON text of the answer, out of which the secret has been blanked.
        patience: How long it is tried.
        meter: Counts requests whose answer is lost.

    Raises:
        CallFailed: No answer came that says what the model said.
    """
    content = orjson.dumps(body)
    return persist(lambda: attempt(door, content, read), patience, seed=content, meter=meter)


def patience_of(spec: ModelSpec, transport: Transport) -> Patience:
    """Return how long the calls of a spec are tried; one that is refused is refused at once."""
    retries = spec.max_retries if transport == "open" else 0
    return Patience(max_retries=retries, budget_s=spec.retry_budget_s)


def recording_fields(
    spec: ModelSpec, transport: Transport, *, own_url: str | None
) -> dict[str, Any]:
    """Return what every recorded class is built with, whatever its provider.

    Args:
        spec: What is built.
        transport: ``refuse`` for replays.
        own_url: The provider's own endpoint, or None where it has none.
    """
    return {
        "patience": patience_of(spec, transport),
        "provider": spec.provider,
        "endpoint": endpoint_alias(
            spec.provider, spec.base_url, own_url=own_url, alias=spec.endpoint_alias
        ),
        "structured_method": structured_method(spec),
        "transport": transport,
    }


def attempt(door: Door, content: bytes, read: Callable[[str], Reply]) -> Reply:
    """Send a body once.

    Raises:
        CallFailed: No answer came that says what the model said.
        MayPass: The same, and another try may not meet it.
    """
    headers = {"content-type": "application/json", **door.headers}
    try:
        answer = _client(door.transport).post(
            door.url, content=content, headers=headers, timeout=door.timeout_s
        )
    except httpx2.TimeoutException as error:
        words = "the provider did not answer in time"
        raise MayPass(CallFailed("transport", words, lost=had_gone_out(error))) from None
    except AnswerTooLarge as error:
        raise CallFailed("transport", str(error), lost=True) from None
    except httpx2.HTTPError as error:
        cause = _blanked(clean(str(error)), door.secrets)
        words = f"the provider cannot be reached{f' ({cause})' if cause else ''}"
        raise MayPass(CallFailed("transport", words, lost=had_gone_out(error))) from None
    except UnicodeEncodeError:
        words = "the API key holds a sign that no header can: copy it anew"
        raise CallFailed("transport", words) from None
    # The key goes out before anything is read, quoted or cut: half a key is not found. JSON is
    # UTF-8, whatever charset a header names.
    text = _blanked(answer.content.decode("utf-8-sig", "replace"), door.secrets)
    if not answer.is_success:
        moved = moved_to(answer.status_code, answer.headers)
        failure = _refused(answer.status_code, moved or text, door.secrets)
        broke_down = answer.status_code == HTTPStatus.FAILED_DEPENDENCY
        if broke_down or may_pass(answer.status_code, answer.headers):
            raise MayPass(failure, wait_s=asked_wait_s(answer.headers))
        raise failure
    try:
        return read(text)
    except MalformedReply as error:
        raise CallFailed("transport", str(error), lost=True) from None


@functools.cache
def _client(transport: Transport) -> httpx2.Client:
    """Return the one client of a process, which keeps the connections of all its models."""
    if transport == "refuse":
        return httpx2.Client(transport=RefusingTransport())
    client = httpx2.Client(
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=100),
        event_hooks={"response": [end_in_time, end_in_size]},
    )
    atexit.register(client.close)
    return client


def _blanked(text: str, secrets: Sequence[str]) -> str:
    return functools.reduce(blank, secrets, text)


def _refused(status: int, text: str, secrets: Sequence[str]) -> CallFailed:
    error = _error_of(text)
    message = as_text(error.get("message")) or text
    said = _blanked(clean(message), secrets)[:_MOST_SAID]
    kind = _kind_of(status, code=error.get("code"), message=message)
    return CallFailed(kind, f"the provider answered {status}: {said}")


def _kind_of(status: int, *, code: object, message: str) -> FailedKind:
    if code == "content_filter" or _FILTERED_WORDS in message:
        return "content_filter"
    return "rejected" if 400 <= status < 500 and status not in _UNAVAILABLE else "transport"


def _error_of(text: str) -> Mapping[str, Any]:
    """Return the error object of an answer: what is under ``error``, or the whole answer."""
    try:
        document = orjson.loads(clean(text))
    except orjson.JSONDecodeError:
        return {}
    # Gemini's server has been seen to wrap the one object in a list.
    if isinstance(document, list) and len(document) == 1:
        document = document[0]
    document = as_mapping(document)
    return as_mapping(document.get("error", document))
