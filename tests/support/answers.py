"""Builders for recorded answers."""

from __future__ import annotations

from typing import Any

from backtester.replies.answers import CacheRecord
from tradingagents_core.llm.keys import call_key, key_document
from tradingagents_core.protocols import ModelCall, Reply, Site, Usage


def make_call(
    prompt: str = "Rate FB.",
    *,
    node: str = "Trader",
    index: int = 0,
    attempt: int = 0,
    trial: int = 0,
    provider: str = "openai_compatible",
    **body: Any,
) -> ModelCall:
    """Build a call as a model makes it."""
    site = Site(cell=f"FB|2018-06-29|{trial}", node=node, index=index, attempt=attempt, trial=trial)
    request = key_document(
        {
            "model": "small-1",
            "messages": [
                {"role": "system", "content": "Role: Trader\nSimulated date: 2018-06-29"},
                {"role": "user", "content": prompt},
            ],
            **body,
        },
        provider=provider,
        endpoint="here",
        site=site,
    )
    return ModelCall(
        key=call_key(request),
        request=request,
        provider=provider,
        endpoint="here",
        model="small-1",
        site=site,
    )


def make_answer(text: str = "Buy.", call: ModelCall | None = None, **changes: Any) -> CacheRecord:
    """Build a recorded answer to a call."""
    asked = call or make_call()
    fields: dict[str, Any] = {
        "key": asked.key,
        "request": asked.request,
        "reply": Reply(
            text=text,
            usage=Usage(input_tokens=100, output_tokens=20),
            model="small-1-2018",
            raw='{"choices":[]}',
        ),
        "node": asked.site.node,
        "provider": asked.provider,
        "model": asked.model,
        "latency_s": 0.25,
        "recorded_at": "2026-01-02T03:04:05+00:00",
        **changes,
    }
    return CacheRecord(**fields)
