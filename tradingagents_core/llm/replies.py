"""Replies in one form: read from a provider's JSON, judged, and turned into LangChain messages.

A message that the pipeline sees is always built by `message_of` from a `Reply`, never taken from a
client. So a recorded run and its replay cannot differ in what they hand on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk, InvalidToolCall
from langchain_core.messages import ToolCall as MessageToolCall
from langchain_core.messages.ai import InputTokenDetails, UsageMetadata

from tradingagents_core.llm.reading import (
    MalformedReply,
    as_list,
    as_mapping,
    as_text,
    blank,
    clean,
    json_object,
    kept_json,
    object_or_none,
    token_count,
    tool_call,
    with_ids,
)
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
_CUT = frozenset(
    {
        "length", "max_tokens", "max_output_tokens", "model_length",
        "model_context_window_exceeded",
    }
)  # fmt: skip
_FILTERED = frozenset(
    {
        "content_filter", "content_filtered", "guardrail_intervened",
        "safety", "prohibited_content", "recitation", "blocklist", "spii",
    }
)  # fmt: skip

# Fields of ``additional_kwargs`` of a message in which `Reply.reasoning` and `Reply.opaque` travel.
REASONING = "reasoning_content"
OPAQUE = "reasoning_opaque"

# What messages are copied from: `message_of` gives each of these fields anew.
_EMPTY = AIMessage(
    content="",
    id=None,
    tool_calls=[],
    invalid_tool_calls=[],
    usage_metadata=None,
    response_metadata={},
    additional_kwargs={},
)


# ------------------------------------------------------------------------------ from a provider


def reply_from_chat_completion(raw: str) -> Reply:
    """Read the JSON text of a chat completion.

    Raises:
        MalformedReply: Where it is no JSON or has no message.
    """
    document = json_object(raw)
    choices = document.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], Mapping):
        raise MalformedReply(f"the answer has no choices: {raw[:200]}")
    message = choices[0].get("message")
    if not isinstance(message, Mapping):
        raise MalformedReply(f"the answer's first choice has no message: {raw[:200]}")
    calls = [
        tool_call(call.get("id"), as_mapping(call.get("function")))
        for call in as_list(message.get("tool_calls"))
        if isinstance(call, Mapping)
    ]
    return Reply(
        text=_text_of(message.get("content")),
        tool_calls=with_ids(calls),
        finish_reason=as_text(choices[0].get("finish_reason")),
        usage=_usage_of(as_mapping(document.get("usage"))),
        model=as_text(document.get("model")),
        refusal=as_text(message.get("refusal")) or None,
        raw=clean(raw),
        reasoning=_thoughts_of(message) or None,
        opaque=kept_json(message.get("reasoning_details")),
    )


def reply_from_response(raw: str) -> Reply:
    """Read the JSON text of an answer of the Responses API.

    Raises:
        MalformedReply: Where it is no JSON or has no output.
    """
    document = json_object(raw)
    output = document.get("output")
    if not isinstance(output, list):
        raise MalformedReply(f"the answer has no output: {raw[:200]}")
    texts: list[str] = []
    refusals: list[str] = []
    calls: list[ToolCall] = []
    thoughts = [item for item in output if as_mapping(item).get("type") == "reasoning"]
    for item in output:
        kind = as_mapping(item).get("type")
        if kind == "function_call":
            calls.append(tool_call(item.get("call_id"), item))
        elif kind == "message":
            for part in as_list(item.get("content")):
                texts.append(as_text(as_mapping(part).get("text")))
                refusals.append(as_text(as_mapping(part).get("refusal")))
    cut = as_mapping(document.get("incomplete_details")).get("reason")
    usage = as_mapping(document.get("usage"))
    return Reply(
        text="".join(texts),
        tool_calls=with_ids(calls),
        finish_reason=as_text(cut or document.get("status")),
        usage=Usage(
            input_tokens=token_count(usage.get("input_tokens")),
            output_tokens=token_count(usage.get("output_tokens")),
            cached_tokens=token_count(
                as_mapping(usage.get("input_tokens_details")).get("cached_tokens")
            ),
        ),
        model=as_text(document.get("model")),
        refusal="".join(refusals) or None,
        raw=clean(raw),
        reasoning=_paragraphs(
            part for item in thoughts for part in (*as_list(item.get("summary")), *_content(item))
        ),
        opaque=kept_json(thoughts),
    )


def reply_from_message(message: AIMessage, *, model: str) -> Reply:
    """Read the message of a chat model that shows no provider JSON (a local one, a double)."""
    usage = message.usage_metadata
    metadata = message.response_metadata
    calls = [
        tool_call(call["id"], {"name": call["name"], "arguments": call["args"]})
        for call in message.tool_calls
    ]
    broken = [
        tool_call(call["id"], {"name": call["name"], "arguments": call["args"]})
        for call in message.invalid_tool_calls
    ]
    refusal = message.additional_kwargs.get("refusal")
    default = "tool_calls" if calls or broken else "stop"
    return Reply(
        text=clean(str(message.text)),
        tool_calls=with_ids([*calls, *broken]),
        finish_reason=as_text(metadata.get("finish_reason")) or default,
        usage=Usage(
            input_tokens=token_count(usage["input_tokens"]) if usage else None,
            output_tokens=token_count(usage["output_tokens"]) if usage else None,
            cached_tokens=_cache_read(usage),
        ),
        model=as_text(metadata.get("model_name")) or model,
        refusal=as_text(refusal) or None,
        reasoning=as_text(message.additional_kwargs.get(REASONING)) or None,
        opaque=as_text(message.additional_kwargs.get(OPAQUE)) or None,
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
    # Every field is of its own type already, and none is in an old form that would be read anew:
    # validation would find nothing, and costs as much as a look into the store.
    return _EMPTY.model_copy(
        update={
            "content": reply.text,
            "id": message_id,
            "tool_calls": calls,
            "invalid_tool_calls": broken,
            "usage_metadata": _usage_metadata(reply.usage),
            "response_metadata": {
                "finish_reason": reply.finish_reason,
                "model_name": reply.model,
            },
            "additional_kwargs": _extras(reply, parsed),
        }
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
        additional_kwargs=_extras(reply, parsed),
        chunk_position="last",
    )


def _extras(reply: Reply, parsed: object | None) -> dict[str, Any]:
    extras: dict[str, Any] = {} if parsed is None else {"parsed": parsed}
    if reply.reasoning is not None:
        extras[REASONING] = reply.reasoning
    if reply.opaque is not None:
        extras[OPAQUE] = reply.opaque
    return extras


def _calls_of(reply: Reply) -> tuple[list[MessageToolCall], list[InvalidToolCall]]:
    calls: list[MessageToolCall] = []
    broken: list[InvalidToolCall] = []
    for call in reply.tool_calls:
        args = object_or_none(call.args)
        if args is not None:
            calls.append(MessageToolCall(name=call.name, args=args, id=call.id, type="tool_call"))
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
            input_tokens=token_count(reply.usage.input_tokens),
            output_tokens=token_count(reply.usage.output_tokens),
            cached_tokens=token_count(reply.usage.cached_tokens),
        ),
        model=fit(reply.model),
        refusal=None if reply.refusal is None else fit(reply.refusal),
        raw=fit(reply.raw),
        reasoning=None if reply.reasoning is None else fit(reply.reasoning),
        opaque=None if reply.opaque is None else fit(reply.opaque),
    )


# ------------------------------------------------------------------------------------------ parts


def _text_of(content: object) -> str:
    if isinstance(content, list):
        return "".join(as_text(as_mapping(part).get("text")) for part in content)
    return as_text(content)


def _content(item: Mapping[str, Any]) -> Sequence[Any]:
    return as_list(item.get("content"))


def _usage_of(usage: Mapping[str, Any]) -> Usage:
    """Return the tokens that a chat completion counts."""
    asked = token_count(usage.get("prompt_tokens"))
    answered = token_count(usage.get("completion_tokens"))
    details = as_mapping(usage.get("completion_tokens_details"))
    thought = token_count(details.get("reasoning_tokens"))
    if asked is not None and answered is not None and thought is not None:
        # xAI counts thoughts apart from the reply, and charges for them as for the reply.
        apart = token_count(usage.get("total_tokens")) == asked + answered + thought
        answered += thought if apart else 0
    # OpenAI's place for it, DeepSeek's and Moonshot's.
    places = (
        as_mapping(usage.get("prompt_tokens_details")).get("cached_tokens"),
        usage.get("prompt_cache_hit_tokens"),
        usage.get("cached_tokens"),
    )
    cached = next((place for place in places if place is not None), None)
    return Usage(input_tokens=asked, output_tokens=answered, cached_tokens=token_count(cached))


def _thoughts_of(message: Mapping[str, Any]) -> str:
    """Return what a model says that it thought, in the field that its server has for it."""
    for name in ("reasoning_content", "reasoning"):
        if message.get(name):
            return as_text(message[name])
    parts = [part for part in _content(message) if as_mapping(part).get("type") == "thinking"]
    said = "".join(_text_of(part.get("thinking")) for part in parts)
    return said or _paragraphs(as_list(message.get("reasoning_details"))) or ""


def _paragraphs(parts: Iterable[object]) -> str | None:
    texts = [as_text(as_mapping(part).get("text")) for part in parts]
    return "\n\n".join(text for text in texts if text) or None


def _cache_read(usage: UsageMetadata | None) -> int | None:
    details = usage.get("input_token_details") if usage else None
    return token_count(details.get("cache_read")) if details else None


def _usage_metadata(usage: Usage) -> UsageMetadata | None:
    if usage.input_tokens is None or usage.output_tokens is None:
        return None
    metadata = UsageMetadata(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        total_tokens=usage.input_tokens + usage.output_tokens,
    )
    if usage.cached_tokens is not None:
        metadata["input_token_details"] = InputTokenDetails(cache_read=usage.cached_tokens)
    return metadata
