"""Any endpoint that speaks OpenAI's chat protocol, recorded and replayed."""

from __future__ import annotations

import functools
from http import HTTPStatus
from typing import Any, Literal

import httpx2
import openai
from langchain_core.language_models import LanguageModelInput
from langchain_core.utils.function_calling import convert_to_openai_function
from langchain_openai import ChatOpenAI
from pydantic import Field, SecretStr

from tradingagents_core.llm.capabilities import NO_KEY, Transport, structured_method
from tradingagents_core.llm.keys import endpoint_alias
from tradingagents_core.llm.replaying import CallFailed, FailedKind, LiveRequest, ReplayingModel
from tradingagents_core.llm.replies import (
    MalformedReply,
    blank,
    clean,
    reply_from_chat_completion,
    reply_from_response,
)
from tradingagents_core.protocols import Reply
from tradingagents_core.settings import ModelSpec

LimitField = Literal["max_completion_tokens", "max_tokens"]

# Fields that ask for a stream; there is none on the wire.
_STREAMING = frozenset({"stream", "stream_options"})
# What is in the way has nothing to do with the prompt: key, account, time, another request, rate.
_UNAVAILABLE = frozenset(
    {
        HTTPStatus.UNAUTHORIZED,
        HTTPStatus.FORBIDDEN,
        HTTPStatus.REQUEST_TIMEOUT,
        HTTPStatus.CONFLICT,
        HTTPStatus.TOO_MANY_REQUESTS,
    }
)


class ReplayingChatOpenAI(ReplayingModel, ChatOpenAI):
    """Call an OpenAI-compatible endpoint behind the recording layer.

    Attributes:
        limit_field: Name under which the endpoint takes the limit of a reply. OpenAI's newer
            models refuse the old name, many other servers ignore the new one.
    """

    limit_field: LimitField = Field(default="max_completion_tokens", exclude=True)

    def _get_request_payload(
        self, input_: LanguageModelInput, *, stop: list[str] | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        body: dict[str, Any] = super()._get_request_payload(input_, stop=stop, **kwargs)
        if self.limit_field == "max_tokens" and "max_completion_tokens" in body:
            body["max_tokens"] = body.pop("max_completion_tokens")
        if isinstance(body.get("response_format"), type):
            body["response_format"] = _response_format(body["response_format"])
        return body

    def _live_reply(self, request: LiveRequest) -> Reply:
        body = {name: value for name, value in request.body.items() if name not in _STREAMING}
        of_responses = "input" in body
        create = (
            self.root_client.responses.with_raw_response.create
            if of_responses
            else self.client.with_raw_response.create
        )
        secret = self._secret()
        try:
            # The key goes out before anything is read, quoted or cut: half a key is not found.
            raw = blank(create(**body).content.decode("utf-8-sig", "replace"), secret)
            return reply_from_response(raw) if of_responses else reply_from_chat_completion(raw)
        except (openai.OpenAIError, MalformedReply) as error:
            raise _failure(error, secret) from None

    def _secret(self) -> str | None:
        key = self.openai_api_key
        secret = key.get_secret_value() if isinstance(key, SecretStr) else None
        return None if secret == NO_KEY else secret


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


def build_openai_chat(
    spec: ModelSpec,
    *,
    api_key: str,
    base_url: str,
    own_url: str | None,
    transport: Transport,
) -> ReplayingChatOpenAI:
    """Build the model of a spec.

    Args:
        spec: What to build.
        api_key: Key, or a placeholder for servers that want none.
        base_url: Endpoint. It is always handed over, since the client would otherwise take it
            from the environment, and the key of a call would name another endpoint.
        own_url: The provider's own endpoint, or None.
        transport: ``refuse`` for replays.
    """
    own = base_url == own_url
    settings: dict[str, Any] = {
        "model": spec.model,
        "api_key": api_key,
        "base_url": base_url,
        "timeout": spec.timeout_s,
        "max_retries": spec.max_retries if transport == "open" else 0,
        "provider": spec.provider,
        "endpoint": endpoint_alias(
            spec.provider, spec.base_url, own_url=own_url, alias=spec.endpoint_alias
        ),
        "structured_method": structured_method(spec),
        "transport": transport,
        "output_version": "v0",
        "limit_field": "max_completion_tokens" if own else "max_tokens",
    }
    if spec.temperature is not None:
        settings["temperature"] = spec.temperature
    if spec.max_tokens is not None:
        settings["max_tokens"] = spec.max_tokens
    if spec.reasoning_effort is not None:
        settings["reasoning_effort"] = spec.reasoning_effort
    if own:
        settings["store"] = False
    else:
        # The library would choose the Responses API by the model's name alone.
        settings["use_responses_api"] = False
    return ReplayingChatOpenAI(**settings, **_wire(transport))


def _wire(transport: Transport) -> dict[str, Any]:
    """Return the settings of what carries the requests."""
    if transport == "open":
        return {"http_client": _open_client()}
    return {
        "http_client": httpx2.Client(transport=RefusingTransport()),
        "http_async_client": httpx2.AsyncClient(transport=RefusingTransport()),
    }


@functools.cache
def _open_client() -> httpx2.Client:
    """Return the one client of a process, which keeps the connections of all its models."""
    return openai.DefaultHttpxClient(event_hooks={"response": [_read_as_utf8]})


def _read_as_utf8(response: httpx2.Response) -> None:
    """Read an answer as what JSON is; a header can name a charset that stops the client."""
    response.encoding = "utf-8"


def _response_format(response_class: type) -> dict[str, Any]:
    function = convert_to_openai_function(response_class, strict=True)
    function["schema"] = function.pop("parameters")
    return {"type": "json_schema", "json_schema": function}


def _failure(error: openai.OpenAIError | MalformedReply, secret: str | None) -> CallFailed:
    if isinstance(error, openai.APITimeoutError):
        return CallFailed("transport", "the provider did not answer in time")
    if isinstance(error, openai.APIConnectionError):
        cause = f" ({error.__cause__})" if error.__cause__ else ""
        return CallFailed("transport", f"the provider cannot be reached{cause}")
    if isinstance(error, openai.APIStatusError):
        return CallFailed(
            _kind_of(error), f"the provider answered {error.status_code}: {_said(error, secret)}"
        )
    return CallFailed("transport", str(error))


def _kind_of(error: openai.APIStatusError) -> FailedKind:
    if error.code == "content_filter":
        return "content_filter"
    answered = 400 <= error.status_code < 500 and error.status_code not in _UNAVAILABLE
    return "rejected" if answered else "transport"


def _said(error: openai.APIStatusError, secret: str | None) -> str:
    body = error.body
    said = body.get("message") if isinstance(body, dict) else None
    return blank(clean(str(said or error.message)), secret)[:500]
