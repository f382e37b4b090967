"""Recorded answers: one as a value, as text, and checked.

The text is three lines of canonical JSON: the first about the call, the second the reply, the
third the key document, whose sha256 is the key. So a hit parses the reply alone, and a record can
be checked, read and packed without this code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from tradingagents_core.llm.keys import call_key, canonical_json, sha256_hex
from tradingagents_core.protocols import Reply, ToolCall, Usage

RECORD_FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class CacheRecord:
    """Hold one recorded answer.

    Attributes:
        key: sha256 of ``request``.
        request: Key document, canonical JSON text.
        reply: The reply, with the provider's own JSON in ``reply.raw``.
        node: Node that asked first.
        provider: Provider name.
        model: Model asked for.
        latency_s: Wall seconds of the call that was made.
        recorded_at: UTC instant, ISO 8601; no prompt and no result reads it.
        format: Version of this form.
    """

    key: str
    request: str
    reply: Reply
    node: str
    provider: str
    model: str
    latency_s: float
    recorded_at: str
    format: int = RECORD_FORMAT


# ------------------------------------------------------------------------------- a record as text


def reply_document(reply: Reply) -> dict[str, Any]:
    """Return a reply as JSON values; what few models have is left out where it is not there."""
    document: dict[str, Any] = {
        "finish_reason": reply.finish_reason,
        "model": reply.model,
        "raw": reply.raw,
        "refusal": reply.refusal,
        "text": reply.text,
        "tool_calls": [
            {"args": call.args, "id": call.id, "name": call.name} for call in reply.tool_calls
        ],
        "usage": {
            "input_tokens": reply.usage.input_tokens,
            "output_tokens": reply.usage.output_tokens,
        },
    }
    if reply.usage.cached_tokens is not None:
        document["usage"]["cached_tokens"] = reply.usage.cached_tokens
    if reply.reasoning is not None:
        document["reasoning"] = reply.reasoning
    if reply.opaque is not None:
        document["opaque"] = reply.opaque
    return document


def reply_of(document: Mapping[str, Any]) -> Reply:
    """Build a reply from JSON values.

    Raises:
        KeyError: Where a field is missing; TypeError where one has another form.
    """
    calls = [
        ToolCall(id=call["id"], name=call["name"], args=call["args"])
        for call in document["tool_calls"]
    ]
    return Reply(
        text=document["text"],
        tool_calls=tuple(calls),
        finish_reason=document["finish_reason"],
        usage=Usage(**document["usage"]),
        model=document["model"],
        refusal=document["refusal"],
        raw=document["raw"],
        reasoning=document.get("reasoning"),
        opaque=document.get("opaque"),
    )


def reply_hash(reply: Reply) -> str:
    """Return the sha256 of what a caller can see: text, tool calls without ids, finish reason.

    Reasoning counts where there is some.
    """
    calls = [[call.name, call.args] for call in reply.tool_calls]
    seen: list[Any] = [reply.text, calls, reply.finish_reason]
    if reply.reasoning is not None or reply.opaque is not None:
        seen += [reply.reasoning, reply.opaque]
    return sha256_hex(canonical_json(seen))


def record_text(record: CacheRecord) -> str:
    """Return the three lines of a record."""
    reply = canonical_json(reply_document(record.reply))
    about = canonical_json(
        {
            "format": record.format,
            "key": record.key,
            "latency_s": record.latency_s,
            "model": record.model,
            "node": record.node,
            "provider": record.provider,
            "recorded_at": record.recorded_at,
            "reply_sha256": sha256_hex(reply),
        }
    )
    return f"{about}\n{reply}\n{record.request}"


def record_of(key: str, text: str) -> CacheRecord:
    """Read the three lines of a record and check what a hit relies on.

    Raises:
        ValueError: With what is wrong, for a record that is cut, changed or of another format.
    """
    first = text.find("\n")
    second = text.find("\n", first + 1)
    if first < 0 or second < 0:
        raise ValueError("it is cut short")
    reply = text[first + 1 : second]
    try:
        about = _checked(key, text[:first], reply)
        return CacheRecord(
            key=key,
            request=text[second + 1 :],
            reply=reply_of(orjson.loads(reply)),
            node=about["node"],
            provider=about["provider"],
            model=about["model"],
            latency_s=about["latency_s"],
            recorded_at=about["recorded_at"],
        )
    except orjson.JSONDecodeError as error:
        raise ValueError(f"it is no JSON: {error}") from error
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"it lacks a field or has one of another form: {error}") from error


def reply_to(request: str, key: str, text: str) -> Reply:
    """Read the reply alone of a record, and check that it answers a request.

    Raises:
        ValueError: With what is wrong, also for a record that answers another request.
    """
    head = text[: -len(request) - 1]
    about, _, reply = head.partition("\n")
    if not text.endswith(request) or text[len(head) : len(head) + 1] != "\n":
        # A record that is damaged elsewhere says so first.
        record_of(key, text)
        raise ValueError("it belongs to another request")
    try:
        if not _fits(key, about, reply):
            _checked(key, about, reply)
        return reply_of(orjson.loads(reply))
    except orjson.JSONDecodeError as error:
        raise ValueError(f"it is no JSON: {error}") from error
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"it lacks a field or has one of another form: {error}") from error


def _fits(key: str, about: str, reply: str) -> bool:
    """Say whether a first line, as `record_text` writes it, fits the key and the second line.

    Its keys are sorted, so what is to be checked stands at its ends; reading it takes longer.
    """
    return about.startswith(f'{{"format":{RECORD_FORMAT},"key":"{key}",') and about.endswith(
        f',"reply_sha256":"{sha256_hex(reply)}"}}'
    )


def _checked(key: str, about: str, reply: str) -> Mapping[str, Any]:
    """Return the first line of a record where it fits the key and the second line."""
    facts: Mapping[str, Any] = orjson.loads(about)
    if facts["format"] != RECORD_FORMAT:
        raise ValueError(f"it has format {facts['format']}, this version reads {RECORD_FORMAT}")
    if facts["key"] != key:
        raise ValueError(f"it says that its key is {facts['key']}")
    if facts["reply_sha256"] != sha256_hex(reply):
        raise ValueError("its reply was changed after it was recorded")
    return facts


def request_problem(record: CacheRecord) -> str | None:
    """Say why a record's request does not lead to its key, or None where it does."""
    try:
        document = orjson.loads(record.request)
    except orjson.JSONDecodeError as error:
        return f"its request is no JSON: {error}"
    if canonical_json(document) != record.request:
        return "its request is not in canonical form"
    derived = call_key(record.request)
    return None if derived == record.key else f"its request leads to another key, {derived}"
