"""Tell what went wrong from what servers of OpenAI's protocol say, with any status and in any form.

Most say it with an HTTP status. Some answer 200 and say it in the body: OpenRouter for a fault of
the provider behind it, MiniMax for everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

import openai

from tradingagents_core.llm.patience import (
    START_IT,
    MayPass,
    asked_wait_s,
    closed_port,
    had_gone_out,
    may_pass,
)
from tradingagents_core.llm.reading import (
    MalformedReply,
    as_list,
    as_mapping,
    as_text,
    blank,
    clean,
    moved_to,
)
from tradingagents_core.llm.replaying import CallFailed, FailedKind

_MOST_SAID: Final = 500
# What is in the way has nothing to do with the prompt: key, account, time, another request, rate.
_UNAVAILABLE: Final = frozenset(
    {
        HTTPStatus.UNAUTHORIZED,
        HTTPStatus.PAYMENT_REQUIRED,
        HTTPStatus.FORBIDDEN,
        HTTPStatus.REQUEST_TIMEOUT,
        HTTPStatus.CONFLICT,
        HTTPStatus.TOO_MANY_REQUESTS,
    }
)
# OpenAI's word, Alibaba's and Zhipu's.
_FILTERED: Final = frozenset({"content_filter", "data_inspection_failed", "1301"})
# A rate limit that no waiting lifts.
_SPENT: Final = frozenset({"insufficient_quota"})
# Of an error that the Responses API answers with status 200.
_PASSES: Final = frozenset({"server_error", "rate_limit_exceeded"})
# MiniMax's own codes.
_MINIMAX_PASSES: Final = frozenset({1000, 1001, 1002, 1013, 1024, 1033, 1041})
_MINIMAX_FILTERED: Final = frozenset({1026, 1027})
_MINIMAX_REJECTED: Final = frozenset({1039, 2013})


def failure_of(error: openai.OpenAIError, secret: str | None) -> CallFailed | MayPass:
    """Return what an error of the client is: final, or one that may pass."""
    if isinstance(error, openai.APITimeoutError):
        lost = had_gone_out(error.__cause__)
        return MayPass(CallFailed("transport", "the provider did not answer in time", lost=lost))
    if isinstance(error, openai.APIConnectionError):
        if (address := closed_port(error, str(error.request.url))) is not None:
            said = f"the provider cannot be reached: nothing listens at {address}; {START_IT}"
            return CallFailed("transport", said)
        cause = f" ({error.__cause__})" if error.__cause__ else ""
        lost = had_gone_out(error.__cause__)
        return MayPass(CallFailed("transport", f"the provider cannot be reached{cause}", lost=lost))
    if not isinstance(error, openai.APIStatusError):
        # The client read an answer and could make nothing of it.
        return CallFailed("transport", blank(clean(str(error)), secret), lost=True)
    body = as_mapping(error.body)
    # xAI's error is its text; NVIDIA's and Mistral's gateways have the text under other names.
    words = error.body if isinstance(error.body, str) else body.get("message")
    moved = moved_to(error.status_code, error.response.headers)
    said = _said(moved or words or body.get("detail") or error.message, secret)
    return _failure(
        error.status_code, said, code=as_text(body.get("code")), headers=error.response.headers
    )


def raise_for_answer(document: Mapping[str, Any]) -> None:
    """Refuse an answer whose body reports an error.

    Raises:
        CallFailed: The error is final.
        MayPass: Another try may not meet it.
    """
    choice = as_mapping(next(iter(as_list(document.get("choices"))), None))
    error = as_mapping(document.get("error") or choice.get("error"))
    code = error.get("code")
    if isinstance(code, int) and 400 <= code < 600:
        failure = _failure(code, _said(error.get("message"), None))
        # A choice that broke off had begun, and is billed as far as it went.
        _final(failure).lost = "error" in choice
        raise failure
    if code in _PASSES:
        said = _said(error.get("message"), None)
        raise MayPass(CallFailed("transport", f"the answer reports an error: {said}"))
    answer = as_mapping(document.get("base_resp"))
    code = answer.get("status_code")
    if isinstance(code, int) and code != 0:
        words = f"the provider answered {code}: {_said(answer.get('status_msg'), None)}"
        if code in _MINIMAX_PASSES:
            raise MayPass(CallFailed("transport", words))
        raise CallFailed(_minimax_kind(code), words)


def _final(failure: CallFailed | MayPass) -> CallFailed:
    return failure.failure if isinstance(failure, MayPass) else failure


def malformed(error: MalformedReply) -> CallFailed:
    """Return the failure of an answer that cannot be read."""
    return CallFailed("transport", str(error), lost=True)


def _failure(
    status: int, said: str, *, code: str = "", headers: Mapping[str, str] | None = None
) -> CallFailed | MayPass:
    wait_s = asked_wait_s(headers or {})
    asks = f" (it asks to wait {wait_s:g} s)" if wait_s else ""
    failure = CallFailed(_kind_of(status, code), f"the provider answered {status}: {said}{asks}")
    if may_pass(status, headers or {}) and code not in _SPENT:
        return MayPass(failure, wait_s=wait_s)
    return failure


def _kind_of(status: int, code: str) -> FailedKind:
    if code in _FILTERED:
        return "content_filter"
    return "rejected" if 400 <= status < 500 and status not in _UNAVAILABLE else "transport"


def _minimax_kind(code: int) -> FailedKind:
    if code in _MINIMAX_FILTERED:
        return "content_filter"
    return "rejected" if code in _MINIMAX_REJECTED else "transport"


def _said(text: object, secret: str | None) -> str:
    return blank(clean(as_text(text)), secret)[:_MOST_SAID]
