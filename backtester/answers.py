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
    """Return a reply as JSON values."""
    return {
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


def reply_of(document: Mapping[str, Any]) -> Reply:
    """Build a reply from JSON values.

    Raises:
        KeyError: Where a field is missing; TypeError where one has another form.
    """
    return Reply(
        text=document["text"],
        tool_calls=tuple(
            ToolCall(id=call["id"], name=call["name"], args=call["args"])
            for call in document["tool_calls"]
        ),
        finish_reason=document["finish_reason"],
        usage=Usage(**document["usage"]),
        model=document["model"],
        refusal=document["refusal"],
        raw=document["raw"],
    )


def reply_hash(reply: Reply) -> str:
    """Return the sha256 of what a caller can see: text, tool calls without ids, finish reason."""
    calls = [[call.name, call.args] for call in reply.tool_calls]
    return sha256_hex(canonical_json([reply.text, calls, reply.finish_reason]))


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
        about = orjson.loads(text[:first])
        if about["format"] != RECORD_FORMAT:
            raise ValueError(f"it has format {about['format']}, this version reads {RECORD_FORMAT}")
        if about["key"] != key:
            raise ValueError(f"it says that its key is {about['key']}")
        if about["reply_sha256"] != sha256_hex(reply):
            raise ValueError("its reply was changed after it was recorded")
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
