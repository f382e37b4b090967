"""Replies in one form: read from a provider's JSON, judged, and turned into LangChain messages.

A message that the pipeline sees is always built by `message_of` from a `Reply`, never taken from a
client. So a recorded run and its replay cannot differ in what they hand on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
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

# No call has so many tokens: a larger count is a fault of the server, and known to nobody.
MAX_TOKENS = 10**12
# Levels of lists and objects in an answer; the protocols need a handful.
MAX_DEPTH = 100
# A shorter key protects nothing ("x", "none" and "EMPTY" are what servers without keys are given),
# and blanking it would change words of replies.
MIN_SECRET = 6
BLANKED = "[API key]"


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
        for call in _items(message.get("tool_calls"))
        if isinstance(call, Mapping)
    ]
    usage = _mapping(document.get("usage"))
    return Reply(
        text=_text_of(message.get("content")),
        tool_calls=_with_ids(calls),
        finish_reason=_said(choices[0].get("finish_reason")),
        usage=Usage(
            input_tokens=_count(usage.get("prompt_tokens")),
            output_tokens=_count(usage.get("completion_tokens")),
        ),
        model=_said(document.get("model")),
        refusal=_said(message.get("refusal")) or None,
        raw=clean(raw),
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
            for part in _items(item.get("content")):
                texts.append(_said(_mapping(part).get("text")))
                refusals.append(_said(_mapping(part).get("refusal")))
    cut = _mapping(document.get("incomplete_details")).get("reason")
    usage = _mapping(document.get("usage"))
    return Reply(
        text="".join(texts),
        tool_calls=_with_ids(calls),
        finish_reason=_said(cut or document.get("status")),
        usage=Usage(
            input_tokens=_count(usage.get("input_tokens")),
            output_tokens=_count(usage.get("output_tokens")),
        ),
        model=_said(document.get("model")),
        refusal="".join(refusals) or None,
        raw=clean(raw),
    )


def reply_from_message(message: AIMessage, *, model: str) -> Reply:
    """Read the message of a chat model that shows no provider JSON (a local one, a double)."""
    usage = message.usage_metadata
    metadata = message.response_metadata
    calls = [
        _tool_call(call["id"], {"name": call["name"], "arguments": call["args"]})
        for call in message.tool_calls
    ]
    broken = [
        _tool_call(call["id"], {"name": call["name"], "arguments": call["args"]})
        for call in message.invalid_tool_calls
    ]
    refusal = message.additional_kwargs.get("refusal")
    default = "tool_calls" if calls or broken else "stop"
    return Reply(
        text=clean(str(message.text)),
        tool_calls=_with_ids([*calls, *broken]),
        finish_reason=_said(metadata.get("finish_reason")) or default,
        usage=Usage(
            input_tokens=_count(usage["input_tokens"]) if usage else None,
            output_tokens=_count(usage["output_tokens"]) if usage else None,
        ),
        model=_said(metadata.get("model_name")) or model,
        refusal=_said(refusal) or None,
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


# ------------------------------------------------------------------------- what may be recorded


def recordable(reply: Reply, secret: str | None) -> Reply:
    """Return a reply that every record can hold: sound text, counts in reach, no API key.

    All replies pass here before they are judged, whichever class of model they come from.
    """

    def fit(text: str) -> str:
        return blank(clean(text), secret)

    return Reply(
        text=fit(reply.text),
        tool_calls=tuple(
            ToolCall(id=fit(call.id), name=fit(call.name), args=fit(call.args))
            for call in reply.tool_calls
        ),
        finish_reason=fit(reply.finish_reason),
        usage=Usage(
            input_tokens=_count(reply.usage.input_tokens),
            output_tokens=_count(reply.usage.output_tokens),
        ),
        model=fit(reply.model),
        refusal=None if reply.refusal is None else fit(reply.refusal),
        raw=fit(reply.raw),
    )


def blank(text: str, secret: str | None) -> str:
    r"""Return a text with a secret blanked out, however JSON spells it.

    Backslashes before a character and ``\u`` escapes count as the character, at any depth of JSON
    inside JSON, so that the text of an answer can be blanked before it is read.
    """
    if not secret or len(secret) < MIN_SECRET:
        return text
    return re.sub(_spellings(secret), BLANKED, text)


def clean(text: str) -> str:
    """Return valid Unicode: half a surrogate pair, which JSON can spell, becomes U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _spellings(secret: str) -> str:
    """Return the pattern of all spellings of a secret."""
    # A match starts at the first of several backslashes and never gives one back, so that a text
    # of nothing else is read once.
    pattern = [r"(?<!\\)"]
    for run in re.findall(r"\\+|[^\\]", secret):
        if run[0] != "\\":
            pattern.append(rf"\\*+(?:{re.escape(run)}|(?<=\\){_escape(run)})")
        else:
            count = len(run)
            # Escaping doubles backslashes. One that is left over belongs to what follows.
            written = "|".join(rf"\\{{{count * times}}}" for times in (4, 2, 1))
            pattern.append(rf"(?:(?:\\++{_escape(run[0])}){{{count}}}|{written})")
    return "".join(pattern)


def _escape(char: str) -> str:
    """Return the pattern of a character's hexadecimal escape, without its backslash."""
    units = char.encode("utf-16-be", "surrogatepass")
    words = [units[at : at + 2].hex() for at in range(0, len(units), 2)]
    return r"\\++".join(f"u(?i:{word})" for word in words)


# ------------------------------------------------------------------------------------------ parts


def _document(raw: str) -> Mapping[str, Any]:
    try:
        # The standard parser takes half a surrogate pair, as some servers send it; orjson refuses.
        document = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise MalformedReply(f"the answer is no JSON ({error}): {raw[:200]}") from error
    if _is_deep(document):
        raise MalformedReply(f"the answer is nested deeper than {MAX_DEPTH} levels: {raw[:200]}")
    if not isinstance(document, dict):
        raise MalformedReply(f"the answer is no JSON object: {raw[:200]}")
    if document.get("error"):
        raise MalformedReply(f"the answer reports an error: {_said(document['error'])[:500]}")
    return document


def _is_deep(document: object) -> bool:
    """Say whether writing a value could exceed the depth that some JSON writer takes."""
    level = [document]
    for _ in range(MAX_DEPTH):
        level = [item for value in level for item in _members(value)]
        if not level:
            return False
    return True


def _members(value: object) -> Iterable[object]:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list) else ()


def _said(value: object) -> str:
    """Return what a field says: its text, nothing for none, and JSON for another type."""
    if isinstance(value, str):
        return clean(value)
    return "" if value is None else clean(json.dumps(value, ensure_ascii=False, default=str))


def _items(value: object) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text_of(content: object) -> str:
    if isinstance(content, list):
        return "".join(_said(_mapping(part).get("text")) for part in content)
    return _said(content)


def _tool_call(call_id: object, function: Mapping[str, Any]) -> ToolCall:
    arguments = function.get("arguments")
    # Some servers send an object where the protocol has its text, or nothing at all.
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, default=str)
    args = _object_or_none(text or "{}")
    return ToolCall(
        id=_said(call_id),
        name=_said(function.get("name")),
        args=clean(text) if args is None else canonical_json(args),
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
    """Return the JSON object of a text that can also be written again, else None."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) and not _is_deep(value) else None


def _count(value: object) -> int | None:
    sound = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_TOKENS
    return value if sound and isinstance(value, int) else None


def _usage_metadata(usage: Usage) -> UsageMetadata | None:
    if usage.input_tokens is None or usage.output_tokens is None:
        return None
    return UsageMetadata(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        total_tokens=usage.input_tokens + usage.output_tokens,
    )
