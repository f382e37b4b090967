"""Anthropic's Messages API, recorded and replayed.

`ChatAnthropic` builds the request body; `posting` sends it. Thinking blocks come back with a
signature that Anthropic checks, so a turn that has any is sent back block by block, as it came.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import anthropic
import httpx2
from langchain_anthropic import ChatAnthropic
from langchain_core.language_models import LanguageModelInput
from langchain_core.runnables import Runnable
from pydantic import Field

from tradingagents_core.errors import SettingsError
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
    as_mapping,
    as_text,
    clean,
    json_object,
    kept_json,
    token_count,
    tool_call,
    with_ids,
)
from tradingagents_core.llm.replaying import LiveReply, LiveRequest, ReplayingModel
from tradingagents_core.llm.thoughts import with_thoughts
from tradingagents_core.protocols import Reply, Usage
from tradingagents_core.settings import ModelSpec

OWN_URL = "https://api.anthropic.com"
API_VERSION = "2023-06-01"
# Marks kept thoughts as Anthropic's.
WIRE = "anthropic"
# The API wants a limit. The library would take the largest that it knows of a model, a figure that
# changes from one release of it to the next, and with it the key of every call.
MOST_TOKENS = 16_000
MOST_TOKENS_OF_CLAUDE_3 = 4_096

_THINKING = ("thinking", "redacted_thinking")
# Fields that ask for a stream; there is none on the wire.
_UNSENT = frozenset({"stream", "betas"})


class ReplayingChatAnthropic(ReplayingModel, ChatAnthropic):
    """Call Anthropic's Messages API behind the recording layer.

    Attributes:
        patience: How long one call is tried.
    """

    patience: Patience = Field(default=Patience(max_retries=0, budget_s=0.0), exclude=True)

    def bind_tools(
        self, tools: Sequence[Any], *, tool_choice: Any = None, **kwargs: Any
    ) -> Runnable[LanguageModelInput, Any]:
        """Bind tools; ``tool_choice="none"`` refuses them all, which the library takes for a name.

        Args:
            tools: As LangChain has them.
            tool_choice: ``auto, any, none``, the name of a tool, or Anthropic's own object.
            kwargs: Bound as they are.
        """
        choice = {"type": "none"} if tool_choice == "none" else tool_choice
        return super().bind_tools(tools, tool_choice=choice, **kwargs)

    def _get_request_payload(
        self, input_: LanguageModelInput, *, stop: list[str] | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        messages = self._convert_input(input_).to_messages()
        response_format = kwargs.get("response_format")
        if isinstance(response_format, Mapping) and response_format.get("type") == "json_object":
            # Anthropic has no such mode: the prompt asks for JSON in words.
            del kwargs["response_format"]
        body: dict[str, Any] = super()._get_request_payload(
            with_thoughts(messages, WIRE, _content_blocks), stop=stop, **kwargs
        )
        # The library puts here what its client's method has no argument for.
        body |= body.pop("extra_body", None) or {}
        return body

    def _live_reply(self, request: LiveRequest) -> LiveReply:
        body = {name: value for name, value in request.body.items() if name not in _UNSENT}
        door = self._door(request.body.get("betas"))
        return post(door, body, reply_from_anthropic, self.patience, request.meter)

    def _door(self, betas: Sequence[str] | None) -> Door:
        headers = {
            "x-api-key": self.anthropic_api_key.get_secret_value(),
            "anthropic-version": API_VERSION,
        }
        return Door(
            url=f"{str(self.anthropic_api_url).rstrip('/')}/v1/messages",
            headers=headers | ({"anthropic-beta": ",".join(betas)} if betas else {}),
            secrets=(self._secret() or "",),
            timeout_s=self.default_request_timeout or 0.0,
            transport=self.transport,
        )

    def _secret(self) -> str | None:
        secret = self.anthropic_api_key.get_secret_value()
        return None if secret == NO_KEY else secret

    @functools.cached_property
    def _client(self) -> anthropic.Client:
        """The library's own client, which no request of ours goes through."""
        return anthropic.Client(
            **self._client_params, http_client=httpx2.Client(transport=RefusingTransport())
        )

    @functools.cached_property
    def _async_client(self) -> anthropic.AsyncClient:
        return anthropic.AsyncClient(
            **self._client_params, http_client=httpx2.AsyncClient(transport=RefusingTransport())
        )


def build_anthropic_chat(
    spec: ModelSpec, api_key: str | None, transport: Transport
) -> ReplayingChatAnthropic:
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
        "api_key": api_key or NO_KEY,
        "base_url": spec.base_url or OWN_URL,
        "timeout": spec.timeout_s,
        "max_retries": 0,
        "temperature": temperature_of(spec),
        "max_tokens": spec.max_tokens or _most_tokens(spec.model),
    }
    try:
        return ReplayingChatAnthropic(**settings)
    except ValueError as error:
        raise SettingsError(f"model {spec.model!r} cannot be built so: {error}") from error


def _most_tokens(model: str) -> int:
    return MOST_TOKENS_OF_CLAUDE_3 if model.startswith("claude-3") else MOST_TOKENS


def reply_from_anthropic(raw: str) -> Reply:
    """Read the JSON text of an answer of the Messages API.

    Raises:
        MalformedReply: Where it is no JSON or has no content.
    """
    document = json_object(raw)
    content = document.get("content")
    if not isinstance(content, list):
        raise MalformedReply(f"the answer has no content: {raw[:200]}")
    blocks = [as_mapping(block) for block in content]
    text = "".join(as_text(block.get("text")) for block in blocks if block.get("type") == "text")
    thought = [
        as_text(block.get("thinking")) for block in blocks if block.get("type") == "thinking"
    ]
    calls = [
        tool_call(block.get("id"), {"name": block.get("name"), "arguments": block.get("input")})
        for block in blocks
        if block.get("type") == "tool_use"
    ]
    reason = as_text(document.get("stop_reason"))
    thoughtful = any(block.get("type") in _THINKING for block in blocks)
    return Reply(
        text=text,
        tool_calls=with_ids(calls),
        finish_reason=reason,
        usage=_usage(as_mapping(document.get("usage"))),
        model=as_text(document.get("model")),
        refusal=_refusal(document, text) if reason == "refusal" else None,
        raw=clean(raw),
        reasoning="\n\n".join(filter(None, thought)) or None,
        opaque=kept_json({WIRE: content}) if thoughtful else None,
    )


def _usage(usage: Mapping[str, Any]) -> Usage:
    """Return the tokens of a call; Anthropic counts those of its cache apart from the others."""
    fresh = token_count(usage.get("input_tokens"))
    written = token_count(usage.get("cache_creation_input_tokens")) or 0
    read = token_count(usage.get("cache_read_input_tokens"))
    return Usage(
        input_tokens=None if fresh is None else fresh + written + (read or 0),
        output_tokens=token_count(usage.get("output_tokens")),
        cached_tokens=read or None,
    )


def _refusal(document: Mapping[str, Any], text: str) -> str:
    details = as_mapping(document.get("stop_details"))
    return as_text(details.get("explanation")) or text or "the provider gave no reason"


def _content_blocks(kept: list[Any]) -> list[Any]:
    """Return the kept blocks of a turn; the request has the same form as the answer."""
    return [dict(block) for block in kept if isinstance(block, Mapping)]
