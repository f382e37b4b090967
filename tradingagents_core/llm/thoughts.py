"""Give a model's kept thoughts back to it in the next request, in its provider's own form.

Anthropic, Gemini and Bedrock sign what a model thought before a tool call and want it back
unchanged with the tool's answer. A reply keeps it as JSON, marked with the wire that it is for:
another provider would refuse it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import orjson
from langchain_core.messages import AIMessage, BaseMessage

from tradingagents_core.llm.replies import OPAQUE


def kept_thoughts(message: BaseMessage, wire: str) -> list[Any] | None:
    """Return the blocks that a message keeps for a wire, or None."""
    kept = message.additional_kwargs.get(OPAQUE) if isinstance(message, AIMessage) else None
    if not isinstance(kept, str):
        return None
    try:
        document = orjson.loads(kept)
    except orjson.JSONDecodeError:
        return None
    blocks = document.get(wire) if isinstance(document, dict) else None
    return blocks if isinstance(blocks, list) else None


def with_thoughts(
    messages: Sequence[BaseMessage], wire: str, content_of: Callable[[list[Any]], list[Any]]
) -> list[BaseMessage]:
    """Return messages whose content is what was kept of them; the others as they are.

    Args:
        messages: Of one request.
        wire: Mark of the kept blocks.
        content_of: Turns what was kept into the content that LangChain's class wants.
    """
    return [_restored(message, wire, content_of) for message in messages]


def _restored(
    message: BaseMessage, wire: str, content_of: Callable[[list[Any]], list[Any]]
) -> BaseMessage:
    kept = kept_thoughts(message, wire)
    if kept is None:
        return message
    # Metadata would make some of LangChain's classes take the message for another provider's.
    return message.model_copy(update={"content": content_of(kept), "response_metadata": {}})
