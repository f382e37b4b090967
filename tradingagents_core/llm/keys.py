"""Cache keys: everything that a provider would be sent, less what cannot change an answer.

A key is the sha256 of a *key document*, canonical JSON of

    format, generation, trial, attempt, provider, endpoint, body     (and accept_truncated if true)

`body` is the provider class's own request body. Left out of it are the transport's fields
(`UNSENT`) and those that label a request (`LABELS`); tool-call and item ids become ordinals, since
providers draw them at random. An unknown field stays in: a new parameter costs a miss, never a
wrong hit.

Canonical JSON here means what `orjson` writes with sorted keys: UTF-8, no spaces, keys in code
point order, shortest float that reads back the same. NaN and infinity are refused.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import orjson

from tradingagents_core.errors import PipelineError, SettingsError
from tradingagents_core.protocols import Site

KEY_FORMAT = 1

# How the same answer is delivered, or whose account it is filed under.
LABELS = frozenset({"stream", "stream_options", "user", "metadata", "store"})
# Arguments of the client rather than fields of the body. Headers may carry a credential.
UNSENT = frozenset({"timeout", "extra_headers"})
# Query parameters may carry one too, but may also choose an API version: only their hash is kept.
HASHED = "extra_query"

_CONVERSATIONS = ("messages", "input")
# In OpenAI's two protocols, in Anthropic's content blocks, and in those of Bedrock.
_ID_FIELDS = ("id", "call_id", "tool_call_id", "tool_use_id", "toolUseId")
_SAYS_MORE = frozenset({*_ID_FIELDS, "tool_calls"})
_USE_BLOCKS = ("toolUse", "toolResult")
# Only plain JSON values: a dataclass or a date would be written in orjson's own way.
_CANONICAL = (
    orjson.OPT_SORT_KEYS | orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME
)


@dataclass(frozen=True, kw_only=True)
class KeyedRequest:
    """Hold a key document and the key that it leads to."""

    key: str
    document: str


def canonical_json(value: object) -> str:
    """Return the one JSON text of a value.

    Raises:
        ValueError: For NaN, infinity, a lone surrogate, an integer above 64 bits, or a type that
            JSON does not have.
    """
    data = _written(value)
    if _has_null(data):
        _refuse_non_finite(value)
    return data.decode()


def sha256_hex(text: str) -> str:
    """Return the sha256 of a text's UTF-8 bytes as lower-case hex."""
    return hashlib.sha256(text.encode()).hexdigest()


def key_document(
    body: Mapping[str, Any],
    *,
    provider: str,
    endpoint: str,
    site: Site,
    accept_truncated: bool = False,
) -> str:
    """Return the key document of a call as canonical JSON; see `keyed_request`."""
    return keyed_request(
        body, provider=provider, endpoint=endpoint, site=site, accept_truncated=accept_truncated
    ).document


def keyed_request(
    body: Mapping[str, Any],
    *,
    provider: str,
    endpoint: str,
    site: Site,
    accept_truncated: bool = False,
) -> KeyedRequest:
    """Return the key document of a call and its key.

    Args:
        body: Request body as the provider class builds it; it is not changed.
        provider: Provider name of the table.
        endpoint: Endpoint alias, see `endpoint_alias`.
        site: Its ``generation, trial`` and ``attempt`` enter the document; where the call is made
            does not.
        accept_truncated: Whether free text cut by length counts as an answer in this run.

    Raises:
        PipelineError: Where the body cannot be written as canonical JSON (for example NaN, or text
            that is no Unicode).
        SettingsError: Where the body refers to a conversation that the provider keeps.
    """
    if body.get("previous_response_id") is not None:
        raise SettingsError(
            "previous_response_id makes an answer depend on the provider's memory: "
            "send the whole conversation instead"
        )
    document: dict[str, Any] = {
        "attempt": site.attempt,
        "body": _keyed_body(body),
        "endpoint": endpoint,
        "format": KEY_FORMAT,
        "generation": site.generation,
        "provider": provider,
        "trial": site.trial,
    }
    if accept_truncated:
        document["accept_truncated"] = True
    try:
        data = _written(document)
        for name, value in document["body"].items():
            _refuse_hidden(name, value)
    except ValueError as error:
        raise PipelineError(f"the request to {endpoint} cannot be keyed: {error}") from error
    return KeyedRequest(key=hashlib.sha256(data).hexdigest(), document=data.decode())


def call_key(document: str) -> str:
    """Return the cache key of a key document."""
    return sha256_hex(document)


def endpoint_alias(
    provider: str, base_url: str | None, *, own_url: str | None, alias: str | None = None
) -> str:
    """Name an endpoint in keys, without credentials.

    Args:
        provider: Provider name, used at the provider's own endpoint.
        base_url: Configured endpoint, or None for the provider's own.
        own_url: The provider's own endpoint, or None if it has none.
        alias: Configured name, which always wins (the same server under another port).

    Returns:
        The alias, the provider's name, or ``scheme://host:port/path`` with the port spelled out;
        user, password, query and fragment are never in it.
    """
    if alias is not None:
        return alias
    if base_url is None:
        return provider
    parts = urlsplit(base_url)
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme, 0)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    address = f"{parts.scheme}://{host}:{port}{parts.path.rstrip('/')}"
    if own_url is not None and address == endpoint_alias("", own_url, own_url=None):
        return provider
    return address


def _keyed_body(body: Mapping[str, Any]) -> dict[str, Any]:
    kept = {
        name: value for name, value in body.items() if name not in LABELS and name not in UNSENT
    }
    if kept.get(HASHED):
        kept[HASHED] = {"sha256": sha256_hex(canonical_json(kept[HASHED]))}
    bias = kept.get("logit_bias")
    if isinstance(bias, dict):
        # The client's class makes numbers of token ids; JSON spells them as texts again.
        kept["logit_bias"] = {str(token): weight for token, weight in bias.items()}
    response_format = kept.get("response_format")
    if isinstance(response_format, type):
        kept["response_format"] = _schema_of(response_format)
    for conversation in _CONVERSATIONS:
        messages = kept.get(conversation)
        if isinstance(messages, list):
            rename = _Ordinals().message
            if conversation == "input":
                messages = [_plain(message) for message in messages]
            kept[conversation] = [rename(message) for message in messages]
    return kept


def _plain(message: Any) -> Any:
    """Return a message without the type that its role implies.

    In the Responses API it may be left out, and the client began to write it within a version.
    """
    if isinstance(message, dict) and message.get("type") == "message" and "role" in message:
        return {name: value for name, value in message.items() if name != "type"}
    return message


def _schema_of(response_class: type) -> Mapping[str, Any]:
    describe = getattr(response_class, "model_json_schema", None)
    if describe is None:
        raise PipelineError(
            f"response_format {response_class.__name__} has no JSON schema: use a pydantic model"
        )
    schema: Mapping[str, Any] = describe()
    return schema


class _Ordinals:
    """Replace ids by the order in which they first appear; other messages are passed on as is."""

    def __init__(self) -> None:
        self._seen: dict[str, str] = {}

    def message(self, item: Any) -> Any:
        """Return a message, an item or a tool call with ordinals for ids."""
        if not isinstance(item, dict):
            return item
        content = item.get("content")
        blocks = content if isinstance(content, list) else None
        if _SAYS_MORE.isdisjoint(item) and blocks is None:
            return item
        changes: dict[str, Any] = {}
        for name in _ID_FIELDS:
            if name in item:
                changes[name] = self._seen.setdefault(str(item[name]), f"id_{len(self._seen)}")
        calls = item.get("tool_calls")
        if calls:
            changes["tool_calls"] = [self.message(call) for call in calls]
        if blocks is not None:
            changes["content"] = [self._block(block) for block in blocks]
        return {**item, **changes} if changes else item

    def _block(self, block: Any) -> Any:
        if not isinstance(block, dict):
            return block
        if block.get("type") == "tool_use" or "tool_use_id" in block:
            return self.message(block)
        uses = {name: self.message(block[name]) for name in _USE_BLOCKS if name in block}
        return {**block, **uses} if uses else block


def _written(value: object) -> bytes:
    try:
        return orjson.dumps(value, option=_CANONICAL)
    except TypeError as error:
        raise ValueError(f"no canonical JSON: {error}") from error


def _has_null(data: bytes) -> bool:
    """Say whether a text may hold a null, as which orjson also writes NaN and infinity.

    The word in quotes, which schemas are full of, is none.
    """
    found = data.find(b"null")
    while found > 0 and data[found - 1] not in b":,[":
        found = data.find(b"null", found + 4)
    return found >= 0


def _refuse_hidden(name: str, value: object) -> None:
    """Refuse NaN and infinity in a field of a body, without reading through its long texts."""
    if value is None or isinstance(value, str):
        return
    if name in _CONVERSATIONS and isinstance(value, list):
        for message in value:
            for item in message.values() if isinstance(message, dict) else (message,):
                if item is not None and not isinstance(item, str):
                    _refuse_hidden("", item)
    elif isinstance(value, float) or _has_null(_written(value)):
        _refuse_non_finite(value)


def _refuse_non_finite(value: object) -> None:
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"no canonical JSON: {value} is no JSON number")
    elif isinstance(value, Mapping):
        for item in value.values():
            _refuse_non_finite(item)
    elif isinstance(value, list | tuple):
        for item in value:
            _refuse_non_finite(item)
