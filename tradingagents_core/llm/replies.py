"""Replies in one form: read from a provider's JSON, judged, and turned into LangChain messages.

A message that the pipeline sees is always built by `message_of` from a `Reply`, never taken from a
client. So a recorded run and its replay cannot differ in what they hand on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson
from langchain_core.messages import AIMessage, AIMessageChunk, InvalidToolCall
from langchain_core.messages import ToolCall as MessageToolCall
from langchain_core.messages.ai import UsageMetadata

from tradingagents_core.llm.keys import canonical_json
from tradingagents_core.protocols import Outcome, OutcomeKind, Reply, Site, ToolCall, Usage

Validator = Callable[[Reply], str | None]

# Words with which known servers say that a reply is whole. Any other word, such as ``abort`` or
# ``insufficient_system_resource``, means that it may not be.
_WHOLE = frozenset(
    {
        "", "stop", "tool_calls", "function_call", "completed",
        "end_turn", "stop_sequence", "tool_use", "eos", "eos_token",
    }
)  # fmt: skip
_CUT = frozenset({"length", "max_tokens", "max_output_tokens", "model_length"})
_FILTERED = frozenset({"content_filter", "safety", "prohibited_content"})


class MalformedReply(ValueError):
    """Report a provider's answer that has not the form of its protocol."""


# ------------------------------------------------------------------------------ from a provider


def reply_from_chat_completion(raw: str) -> Reply:
    """Read the JSON text of a chat completion.

    Raises:
        MalformedReply: Where it is no JSON or has no message.
    """
    document = _document(raw)
    choices = document.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], Mapping):
        raise MalformedReply(f"the answer has no choices: {raw[:200]}")
    message = choices[0].get("message")
    if not isinstance(message, Mapping):
        raise MalformedReply(f"the answer's first choice has no message: {raw[:200]}")
    calls = [
        _tool_call(call.get("id"), _mapping(call.get("function")))
        for call in message.get("tool_calls") or ()
        if isinstance(call, Mapping)
    ]
    usage = _mapping(document.get("usage"))
    return Reply(
        text=_text_of(message.get("content")),
        tool_calls=_with_ids(calls),
        finish_reason=str(choices[0].get("finish_reason") or ""),
        usage=Usage(
            input_tokens=_count(usage.get("prompt_tokens")),
            output_tokens=_count(usage.get("completion_tokens")),
        ),
        model=str(document.get("model") or ""),
        refusal=_clean(str(message["refusal"])) if message.get("refusal") else None,
        raw=raw,
    )


def reply_from_response(raw: str) -> Reply:
    """Read the JSON text of an answer of the Responses API.

    Raises:
        MalformedReply: Where it is no JSON or has no output.
    """
    document = _document(raw)
    output = document.get("output")
    if not isinstance(output, list):
        raise MalformedReply(f"the answer has no output: {raw[:200]}")
    texts: list[str] = []
    refusals: list[str] = []
    calls: list[ToolCall] = []
    for item in output:
        kind = _mapping(item).get("type")
        if kind == "function_call":
            calls.append(_tool_call(item.get("call_id"), item))
        elif kind == "message":
            for part in item.get("content") or ():
                texts.append(_clean(str(_mapping(part).get("text") or "")))
                refusals.append(_clean(str(_mapping(part).get("refusal") or "")))
    cut = _mapping(document.get("incomplete_details")).get("reason")
    usage = _mapping(document.get("usage"))
    return Reply(
        text="".join(texts),
        tool_calls=_with_ids(calls),
        finish_reason=str(cut or document.get("status") or ""),
        usage=Usage(
            input_tokens=_count(usage.get("input_tokens")),
            output_tokens=_count(usage.get("output_tokens")),
        ),
        model=str(document.get("model") or ""),
        refusal="".join(refusals) or None,
        raw=raw,
    )


def reply_from_message(message: AIMessage, *, model: str) -> Reply:
    """Read the message of a chat model that shows no provider JSON (a local one, a double)."""
    usage = message.usage_metadata
    metadata = message.response_metadata
    calls = [
        _tool_call(call["id"], {"name": call["name"], "arguments": canonical_json(call["args"])})
        for call in message.tool_calls
    ]
    broken = [
        _tool_call(call["id"], {"name": call["name"], "arguments": call["args"]})
        for call in message.invalid_tool_calls
    ]
    refusal = message.additional_kwargs.get("refusal")
    default = "tool_calls" if calls or broken else "stop"
    return Reply(
        text=_clean(str(message.text)),
        tool_calls=_with_ids([*calls, *broken]),
        finish_reason=str(metadata.get("finish_reason") or default),
        usage=Usage(
            input_tokens=usage["input_tokens"] if usage else None,
            output_tokens=usage["output_tokens"] if usage else None,
        ),
        model=str(metadata.get("model_name") or model),
        refusal=_clean(str(refusal)) if refusal else None,
    )


# -------------------------------------------------------------------------------------- judgement


def outcome_of(
    reply: Reply,
    *,
    site: Site,
    accept_truncated: bool,
    validators: Sequence[Validator] = (),
) -> Outcome | None:
    """Say why a reply is no answer, or return None for one that is whole and good.

    Args:
        reply: What the provider said.
        site: Its ``free_text`` and ``validate`` tell what was asked for.
        accept_truncated: Whether free text cut by length counts.
        validators: Further checks, beside the site's own.
    """
    reason = reply.finish_reason.lower()
    checks = [check for check in (site.validate, *validators) if check is not None]
    free_text = site.free_text and not checks and not reply.tool_calls
    if reason in _FILTERED:
        return _outcome("content_filter", "the provider's content filter stopped the reply", reply)
    if reply.refusal is not None:
        return _outcome("refusal", f"the model refused: {reply.refusal}", reply)
    if reason in _CUT and not (accept_truncated and free_text):
        return _outcome("length", f"the reply was cut by the length limit ({reason})", reply)
    if reason not in _CUT and reason not in _WHOLE:
        return _outcome("transport", f"the reply ended with {reason!r}: not known as whole", reply)
    if not reply.text.strip() and not reply.tool_calls:
        return _outcome("empty", "the reply has neither text nor tool calls", reply)
    for check in checks:
        problem = check(reply)
        if problem is not None:
            return _outcome("invalid", problem, reply)
    return None


def _outcome(kind: OutcomeKind, message: str, reply: Reply) -> Outcome:
    return Outcome(kind=kind, message=message, reply=reply)


# ----------------------------------------------------------------------------- to LangChain's form


def message_of(reply: Reply, *, message_id: str | None, parsed: object | None = None) -> AIMessage:
    """Build the message that a caller of the model gets.

    A tool call whose arguments are no JSON object is in ``invalid_tool_calls``, as LangChain has
    it, and is no reason to lose the others.

    Args:
        reply: The stored reply.
        message_id: Deterministic id; with None LangChain draws one.
        parsed: Parsed structured value where a response class was bound.
    """
    calls, broken = _calls_of(reply)
    return AIMessage(
        content=reply.text,
        id=message_id,
        tool_calls=calls,
        invalid_tool_calls=broken,
        usage_metadata=_usage_metadata(reply.usage),
        response_metadata={"finish_reason": reply.finish_reason, "model_name": reply.model},
        additional_kwargs={} if parsed is None else {"parsed": parsed},
    )


def chunk_of(
    reply: Reply, *, message_id: str | None, parsed: object | None = None
) -> AIMessageChunk:
    """Build the one chunk in which a streaming caller gets a whole reply."""
    # Calls are handed over parsed: LangChain would mend broken arguments in a chunk by guessing,
    # and a streamed reply would then differ from an invoked one.
    calls, broken = _calls_of(reply)
    return AIMessageChunk(
        content=reply.text,
        id=message_id,
        tool_calls=calls,
        invalid_tool_calls=broken,
        usage_metadata=_usage_metadata(reply.usage),
        response_metadata={"finish_reason": reply.finish_reason, "model_name": reply.model},
        additional_kwargs={} if parsed is None else {"parsed": parsed},
        chunk_position="last",
    )


def _calls_of(reply: Reply) -> tuple[list[MessageToolCall], list[InvalidToolCall]]:
    calls: list[MessageToolCall] = []
    broken: list[InvalidToolCall] = []
    for call in reply.tool_calls:
        args = _object_or_none(call.args)
        if args is not None:
            calls.append(MessageToolCall(type="tool_call", id=call.id, name=call.name, args=args))
            continue
        broken.append(
            InvalidToolCall(
                type="invalid_tool_call",
                id=call.id,
                name=call.name,
                args=call.args,
                error="the arguments are no JSON object",
            )
        )
    return calls, broken


def without_secret(reply: Reply, secret: str | None) -> Reply:
    """Return a reply in which a server that echoes the API key finds it blanked out."""
    if not secret:
        return reply
    return replace(
        reply,
        text=blank(reply.text, secret),
        refusal=None if reply.refusal is None else blank(reply.refusal, secret),
        raw=blank(reply.raw, secret),
        tool_calls=tuple(replace(call, args=blank(call.args, secret)) for call in reply.tool_calls),
    )


def blank(text: str, secret: str | None) -> str:
    """Return a text with a secret blanked out."""
    return text.replace(secret, "[API key]") if secret else text


# ------------------------------------------------------------------------------------------ parts


def _document(raw: str) -> Mapping[str, Any]:
    try:
        # The standard parser takes half a surrogate pair, as some servers send it; orjson refuses.
        document = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise MalformedReply(f"the answer is no JSON ({error}): {raw[:200]}") from error
    if not isinstance(document, dict):
        raise MalformedReply(f"the answer is no JSON object: {raw[:200]}")
    if document.get("error"):
        raise MalformedReply(f"the answer reports an error: {str(document['error'])[:500]}")
    return document


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text_of(content: object) -> str:
    if isinstance(content, list):
        return "".join(_clean(str(_mapping(part).get("text") or "")) for part in content)
    return _clean(str(content)) if content is not None else ""


def _tool_call(call_id: object, function: Mapping[str, Any]) -> ToolCall:
    arguments = function.get("arguments")
    # Some servers send an object where the protocol has its text, or nothing at all.
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
    args = _object_or_none(text or "{}")
    return ToolCall(
        id=str(call_id or ""),
        name=str(function.get("name") or ""),
        args=_clean(text) if args is None else canonical_json(args),
    )


def _with_ids(calls: Sequence[ToolCall]) -> tuple[ToolCall, ...]:
    """Give an id to calls whose server sent none, or the same one twice in a message."""
    used: set[str] = set()
    named: list[ToolCall] = []
    for index, call in enumerate(calls):
        call_id = call.id if call.id and call.id not in used else f"call_{index}_{call.id}"
        used.add(call_id)
        named.append(replace(call, id=call_id))
    return tuple(named)


def _object_or_none(text: str) -> dict[str, Any] | None:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _clean(text: str) -> str:
    """Return valid Unicode: half a surrogate pair, which JSON can spell, becomes U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _usage_metadata(usage: Usage) -> UsageMetadata | None:
    if usage.input_tokens is None or usage.output_tokens is None:
        return None
    return UsageMetadata(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        total_tokens=usage.input_tokens + usage.output_tokens,
    )
