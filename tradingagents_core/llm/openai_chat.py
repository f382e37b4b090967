"""Any endpoint that speaks OpenAI's chat protocol, recorded and replayed."""

from __future__ import annotations

import atexit
import functools
from typing import Any, Literal

import httpx2
import openai
from langchain_core.language_models import LanguageModelInput
from langchain_openai import ChatOpenAI
from pydantic import Field

from tradingagents_core.llm.capabilities import (
    Transport,
    capability_of,
    effort_of,
    temperature_of,
)
from tradingagents_core.llm.capability_table import RoundTrip, ToolChoice
from tradingagents_core.llm.openai_bodies import (
    fit_tool_choice,
    response_format,
    secret_of,
    send_reasoning_back,
)
from tradingagents_core.llm.openai_failures import failure_of, malformed, raise_for_answer
from tradingagents_core.llm.patience import (
    AnswerTooLarge,
    Patience,
    end_in_size,
    end_in_time,
    persist,
)
from tradingagents_core.llm.posting import RefusingTransport, recording_fields
from tradingagents_core.llm.reading import MalformedReply, as_mapping, blank, object_or_none
from tradingagents_core.llm.replaying import CallFailed, LiveReply, LiveRequest, ReplayingModel
from tradingagents_core.llm.replies import reply_from_chat_completion, reply_from_response
from tradingagents_core.protocols import Reply
from tradingagents_core.settings import ModelSpec

LimitField = Literal["max_completion_tokens", "max_tokens"]

# Fields that ask for a stream; there is none on the wire.
_STREAMING = frozenset({"stream", "stream_options"})


class ReplayingChatOpenAI(ReplayingModel, ChatOpenAI):
    """Call an OpenAI-compatible endpoint behind the recording layer.

    Attributes:
        limit_field: Name under which the endpoint takes the limit of a reply. OpenAI's newer
            models refuse the old name, many other servers ignore the new one.
        tool_choice: Which choices of a tool the model takes.
        round_trip: How it wants its reasoning back.
        patience: How long a call is tried.
    """

    limit_field: LimitField = Field(default="max_completion_tokens", exclude=True)
    tool_choice: ToolChoice = Field(default="named", exclude=True)
    round_trip: RoundTrip = Field(default="none", exclude=True)
    patience: Patience = Field(default=Patience(max_retries=0, budget_s=0.0), exclude=True)

    def _get_request_payload(
        self, input_: LanguageModelInput, *, stop: list[str] | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        body: dict[str, Any] = super()._get_request_payload(input_, stop=stop, **kwargs)
        if self.limit_field == "max_tokens" and "max_completion_tokens" in body:
            body["max_tokens"] = body.pop("max_completion_tokens")
        if isinstance(body.get("response_format"), type):
            body["response_format"] = response_format(body["response_format"])
        if isinstance(body.get("text_format"), type):
            wanted = response_format(body.pop("text_format"))["json_schema"]
            body["text"] = {**body.get("text", {}), "format": {"type": "json_schema", **wanted}}
        fit_tool_choice(body, self.tool_choice)
        if self.round_trip != "none":
            messages = self._convert_input(input_).to_messages()
            send_reasoning_back(body, messages, self.round_trip)
        return body

    def _live_reply(self, request: LiveRequest) -> LiveReply:
        body = {name: value for name, value in request.body.items() if name not in _STREAMING}
        seed = repr(request.messages[-1:]).encode("utf-8", "replace")
        return persist(lambda: self._try(body), self.patience, seed=seed, meter=request.meter)

    def _try(self, body: dict[str, Any]) -> Reply:
        """Make one try.

        Raises:
            CallFailed: No reply came.
            MayPass: None came, and another try may bring one.
        """
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
        except openai.OpenAIError as error:
            raise failure_of(error, secret) from None
        except AnswerTooLarge as error:
            raise CallFailed("transport", str(error), lost=True) from None
        raise_for_answer(as_mapping(object_or_none(raw)))
        try:
            return reply_from_response(raw) if of_responses else reply_from_chat_completion(raw)
        except MalformedReply as error:
            raise malformed(error) from None

    def _secret(self) -> str | None:
        return secret_of(self.openai_api_key)


def build_openai_chat(
    spec: ModelSpec,
    *,
    api_key: str,
    base_url: str,
    own_url: str | None,
    transport: Transport,
    limit_field: LimitField = "max_tokens",
    responses: bool = False,
) -> ReplayingChatOpenAI:
    """Build the model of a spec.

    Args:
        spec: What to build.
        api_key: Key, or a placeholder for servers that want none.
        base_url: Endpoint. It is always handed over, since the client would otherwise take it
            from the environment, and the key of a call would name another endpoint.
        own_url: The provider's own endpoint, or None.
        transport: ``refuse`` for replays.
        limit_field: Name under which the provider takes the limit of a reply.
        responses: Whether the provider's own endpoint is spoken to in the Responses API.

    Raises:
        SettingsError: The reasoning effort is no word of the model's.
    """
    row = capability_of(spec)
    in_responses = responses and base_url.rstrip("/") == (own_url or "").rstrip("/")
    settings: dict[str, Any] = {
        **recording_fields(spec, transport, own_url=own_url),
        "model": spec.model,
        "api_key": api_key,
        "base_url": base_url,
        "timeout": spec.timeout_s,
        # Tried again by `persist`, which keeps a budget and also reads errors in a body.
        "max_retries": 0,
        "output_version": "v0",
        "limit_field": limit_field,
        "tool_choice": row.tool_choice,
        "round_trip": row.round_trip if in_responses or not responses else "none",
        # The library would choose the Responses API by the model's name alone.
        "use_responses_api": in_responses,
        "store": False if in_responses else None,
    }
    return ReplayingChatOpenAI(**settings, **_asked(spec), **_wire(transport))


def _asked(spec: ModelSpec) -> dict[str, Any]:
    """Return the settings that become fields of every request: those that the model takes."""
    extra = {**capability_of(spec).always, **effort_of(spec)}
    asked = {
        "temperature": temperature_of(spec),
        "max_tokens": spec.max_tokens,
        "reasoning_effort": extra.pop("reasoning_effort", None),
        # Fields that the client's own methods do not name.
        "extra_body": extra or None,
    }
    return {name: value for name, value in asked.items() if value is not None}


def _wire(transport: Transport) -> dict[str, Any]:
    """Return the settings of what carries the requests."""
    if transport == "open":
        return {"http_client": _open_client(), "http_async_client": _idle_client()}
    return {
        "http_client": httpx2.Client(transport=RefusingTransport()),
        "http_async_client": httpx2.AsyncClient(transport=RefusingTransport()),
    }


@functools.cache
def _open_client() -> httpx2.Client:
    """Return the one client of a process, which keeps the connections of all its models.

    It goes nowhere that no setting names: a redirect would hand the prompt to another host, and
    keep its answer as this endpoint's.
    """
    hooks = {"response": [_read_as_utf8, end_in_time, end_in_size]}
    client = openai.DefaultHttpxClient(event_hooks=hooks, follow_redirects=False)
    # Connections that are kept open would outlive the process's other parts, with a warning each.
    atexit.register(client.close)
    return client


@functools.cache
def _idle_client() -> httpx2.AsyncClient:
    """Return what stands where the library wants a second client, which costs it 20 ms a model.

    All calls go through the first; whoever asks past the recording layer opens no connection.
    """
    return httpx2.AsyncClient(transport=RefusingTransport())


def _read_as_utf8(response: httpx2.Response) -> None:
    """Read an answer as what JSON is; a header can name a charset that stops the client."""
    response.encoding = "utf-8"
