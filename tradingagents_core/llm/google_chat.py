"""Google's Gemini API, recorded and replayed.

`ChatGoogleGenerativeAI` builds the request as typed objects; here they are written as the JSON of
the REST interface (unset fields left out), which is keyed and sent by `posting`. Gemini signs its
thoughts and wants every part of a turn back as it came.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage
from langchain_google_genai import ChatGoogleGenerativeAI
from pydantic import BaseModel, Field, SecretStr

from tradingagents_core.errors import PipelineError, SettingsError
from tradingagents_core.llm.capabilities import (
    NO_KEY,
    Transport,
    effort_of,
    temperature_of,
)
from tradingagents_core.llm.patience import Patience
from tradingagents_core.llm.posting import Door, RefusingTransport, post, recording_fields
from tradingagents_core.llm.reading import (
    MalformedReply,
    as_list,
    as_mapping,
    as_text,
    clean,
    json_object,
    kept_json,
    token_count,
    tool_call,
    with_ids,
)
from tradingagents_core.llm.replaying import CallFailed, LiveReply, LiveRequest, ReplayingModel
from tradingagents_core.llm.thoughts import kept_thoughts
from tradingagents_core.protocols import Reply, Usage
from tradingagents_core.settings import ModelSpec

OWN_URL = "https://generativelanguage.googleapis.com"
# What Google's own client speaks unless it is told otherwise.
API_VERSION = "v1"
# Marks kept thoughts as Gemini's.
WIRE = "google"

_IN_ADDRESS = frozenset({"api_version", "model"})
# Fields of a request beside its generation settings.
_OUTER = (
    "systemInstruction",
    "tools",
    "toolConfig",
    "safetySettings",
    "cachedContent",
    "labels",
    "serviceTier",
)
# Fields that steer the client and are not sent.
_CLIENT = {
    "http_options",
    "should_return_http_response",
    "automatic_function_calling",
    "automatic_continuation",
    "include_all_fields",
}


class ReplayingChatGoogle(ReplayingModel, ChatGoogleGenerativeAI):
    """Call Google's Gemini API behind the recording layer.

    Attributes:
        patience: How long one call is tried.
    """

    patience: Patience = Field(default=Patience(max_retries=0, budget_s=0.0), exclude=True)

    def _get_request_payload(
        self, input_: LanguageModelInput, *, stop: list[str] | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        messages = self._convert_input(input_).to_messages()
        kwargs.setdefault("cached_content", self.cached_content)
        request = self._prepare_request(messages, stop=stop, **kwargs)
        settings = _json_of(request["config"], exclude=_CLIENT)
        body: dict[str, Any] = {
            # These two are sent in the address.
            "api_version": self.api_version,
            "model": request["model"],
            "contents": _with_parts([_json_of(turn) for turn in request["contents"]], messages),
        }
        body |= {name: settings.pop(name) for name in _OUTER if settings.get(name)}
        generation = {name: value for name, value in settings.items() if name not in _OUTER}
        if generation.get("candidateCount") not in (None, 1):
            raise PipelineError("several replies to one call are asked for: use trials instead")
        return body | {"generationConfig": generation}

    def _live_reply(self, request: LiveRequest) -> LiveReply:
        model = str(request.body["model"])
        body = {name: value for name, value in request.body.items() if name not in _IN_ADDRESS}
        return post(self._door(model), body, _reply, self.patience, request.meter)

    def _door(self, model: str) -> Door:
        path = quote(model if "/" in model else f"models/{model}", safe="/")
        secret = self._secret()
        return Door(
            url=f"{str(self.base_url).rstrip('/')}/{self.api_version}/{path}:generateContent",
            headers={"x-goog-api-key": secret or NO_KEY},
            secrets=(secret or "",),
            timeout_s=self.timeout or 0.0,
            transport=self.transport,
        )

    def _secret(self) -> str | None:
        key = self.google_api_key
        secret = key.get_secret_value() if isinstance(key, SecretStr) else key
        return None if secret == NO_KEY else secret


def build_google_chat(
    spec: ModelSpec, api_key: str | None, transport: Transport
) -> ReplayingChatGoogle:
    """Build the model of a spec.

    Args:
        spec: What to build.
        api_key: Key; a replay needs none.
        transport: ``refuse`` for replays.

    Raises:
        SettingsError: For a setting that the model does not take.
    """
    settings: dict[str, Any] = {
        **recording_fields(spec, transport, own_url=OWN_URL),
        **effort_of(spec),
        "model": spec.model,
        # All that the library would take from the environment is handed over.
        "google_api_key": api_key or NO_KEY,
        "vertexai": False,
        "base_url": spec.base_url or OWN_URL,
        "api_version": _version(spec),
        "timeout": spec.timeout_s,
        # The library has a temperature of its own for older models: None sends none.
        "temperature": temperature_of(spec),
        "max_output_tokens": spec.max_tokens,
        # No request of ours goes through the library's own client.
        "client_args": {"transport": RefusingTransport()},
        "max_retries": 1,
    }
    try:
        return ReplayingChatGoogle(**settings)
    except ValueError as error:
        raise SettingsError(f"model {spec.model!r} cannot be built so: {error}") from error


def _version(spec: ModelSpec) -> str:
    # A run may have one tier in Azure, whose versions are dates.
    named = spec.api_version or ""
    return named if named.startswith("v") else API_VERSION


# ---------------------------------------------------------------------------------- the request


def _json_of(typed: BaseModel, *, exclude: set[str] | None = None) -> dict[str, Any]:
    """Write a typed object as the JSON of the REST interface."""
    # One of the library's marks is a text in a field of bytes, which pydantic would warn of.
    return typed.model_dump(
        mode="json", by_alias=True, exclude_none=True, exclude=exclude, warnings=False
    )


def _with_parts(turns: list[dict[str, Any]], messages: list[BaseMessage]) -> list[dict[str, Any]]:
    """Put the parts as Gemini sent them into the model's turns, where a message kept them."""
    kept = [kept_thoughts(message, WIRE) for message in messages if isinstance(message, AIMessage)]
    of_model = [turn for turn in turns if turn.get("role") == "model"]
    if len(kept) == len(of_model):
        for turn, parts in zip(of_model, kept, strict=True):
            if parts is not None:
                turn["parts"] = [_without_id(part) for part in parts]
    return turns


def _without_id(part: object) -> object:
    """Leave out the id of a call: the library sends a tool's answer by the tool's name alone."""
    call = as_mapping(as_mapping(part).get("functionCall"))
    if "id" not in call:
        return part
    nameless = {name: value for name, value in call.items() if name != "id"}
    return {**as_mapping(part), "functionCall": nameless}


# ----------------------------------------------------------------------------------- the answer


def reply_from_gemini(raw: str) -> Reply:
    """Read the JSON text of an answer of ``generateContent``.

    Raises:
        MalformedReply: Where it is no JSON or has no candidate.
    """
    document = json_object(raw)
    candidates = as_list(document.get("candidates"))
    if not candidates or not isinstance(candidates[0], Mapping):
        raise MalformedReply(f"the answer has no candidates: {raw[:200]}")
    kept = as_list(as_mapping(candidates[0].get("content")).get("parts"))
    parts = [as_mapping(part) for part in kept]
    calls = [
        tool_call(call.get("id"), {"name": call.get("name"), "arguments": call.get("args")})
        for call in (as_mapping(part.get("functionCall")) for part in parts)
        if call
    ]
    thoughtful = any(part.get("thought") or part.get("thoughtSignature") for part in parts)
    return Reply(
        text="".join(_texts(parts, thoughts=False)),
        tool_calls=with_ids(calls),
        finish_reason=as_text(candidates[0].get("finishReason")),
        usage=_usage(as_mapping(document.get("usageMetadata"))),
        model=as_text(document.get("modelVersion")),
        raw=clean(raw),
        reasoning="\n\n".join(_texts(parts, thoughts=True)) or None,
        opaque=kept_json({WIRE: kept}) if thoughtful else None,
    )


def _reply(raw: str) -> Reply:
    """Read an answer, or report a prompt that was not answered at all."""
    document = json_object(raw)
    reason = as_mapping(document.get("promptFeedback")).get("blockReason")
    if reason and not document.get("candidates"):
        words = f"the provider's content filter stopped the prompt ({as_text(reason)})"
        raise CallFailed("content_filter", words)
    return reply_from_gemini(raw)


def _texts(parts: list[Mapping[str, Any]], *, thoughts: bool) -> Iterator[str]:
    for part in parts:
        if bool(part.get("thought")) is thoughts and part.get("text"):
            yield as_text(part["text"])


def _usage(usage: Mapping[str, Any]) -> Usage:
    """Return the tokens of a call; Gemini counts thoughts apart from the words of the answer."""
    asked = token_count(usage.get("promptTokenCount"))
    said = token_count(usage.get("candidatesTokenCount"))
    thought = token_count(usage.get("thoughtsTokenCount"))
    return Usage(
        input_tokens=asked,
        output_tokens=None if said is None and thought is None else (said or 0) + (thought or 0),
        cached_tokens=token_count(usage.get("cachedContentTokenCount")),
    )
