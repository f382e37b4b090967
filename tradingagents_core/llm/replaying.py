"""Record and replay model calls inside the chat-model class, for every call style.

`ReplayingModel` stands in front of a provider's class and takes over the four methods that all of
LangChain's call styles end in. Each call is keyed by the request body that the provider class
builds, looked up in the `ReplyStore` of the cell, and made only on a miss. What the caller gets is
built from the stored reply in either case.

The store is found in `CURRENT_REPLIES`, which the pipeline sets around a cell, or in the model's
own ``replies`` attribute, which wins. Without a store a model is live and nothing is kept.

On the wire there is one style, the plain request: a streaming caller gets the whole reply as one
chunk. A reply that turns out to be cut, refused or invalid has then shown nothing to anybody.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal

from langchain_core.caches import BaseCache
from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from pydantic import BaseModel, Field, ValidationError

from tradingagents_core.errors import ModelOutcome, PipelineError, ReplayMiss
from tradingagents_core.llm import replies as forms
from tradingagents_core.llm.capabilities import StructuredMethod, Transport
from tradingagents_core.llm.keys import call_key, key_document
from tradingagents_core.protocols import CURRENT_SITE, ModelCall, Outcome, Reply, ReplyStore, Site

CURRENT_REPLIES: ContextVar[ReplyStore | None] = ContextVar("tradingagents_replies", default=None)

# Async misses wait here for the flight of their key and for the provider. Waiting on an OS lock
# in the event loop would stop the very call that holds it.
_MISSES = ThreadPoolExecutor(max_workers=64, thread_name_prefix="model-call")


FailedKind = Literal["transport", "content_filter", "rejected"]


class CallFailed(Exception):
    """Report that a provider gave no reply at all; it becomes an outcome.

    Args:
        kind: ``transport``, or ``content_filter`` where the provider's filter stopped the prompt,
            or ``rejected`` where it answered that it will not take this request.
        message: What happened, in words.
    """

    def __init__(self, kind: FailedKind, message: str) -> None:
        super().__init__(message)
        self.kind: FailedKind = kind
        self.message = message


@dataclass(frozen=True, kw_only=True)
class LiveRequest:
    """Hold one call for the provider, in both forms that its class may want.

    Attributes:
        messages: As LangChain hands them over.
        stop: Stop words, or None.
        arguments: Bound keyword arguments (tools, response_format, ...).
        body: Request body that the provider's class built from them.
    """

    messages: list[BaseMessage]
    stop: list[str] | None
    arguments: dict[str, Any]
    body: dict[str, Any]


class ReplayingModel(BaseChatModel):
    """Add record and replay to a chat-model class; name it first among the bases.

    The class beside it must have ``_get_request_payload(messages, *, stop, **arguments)``.

    Attributes:
        replies: Store of this instance, or None for that of `CURRENT_REPLIES`.
        provider: Provider name in keys.
        endpoint: Endpoint alias in keys.
        structured_method: How typed replies are asked for.
        transport: With ``refuse`` a miss raises instead of reaching for the network.
    """

    # A store of LangChain's own, where a process has set one, would answer before ours.
    cache: BaseCache | bool | None = Field(default=False, exclude=True)
    replies: Any = Field(default=None, exclude=True, repr=False)
    provider: str = Field(default="", exclude=True)
    endpoint: str = Field(default="", exclude=True)
    structured_method: StructuredMethod = Field(default="json_schema", exclude=True)
    transport: Transport = Field(default="open", exclude=True)

    # ------------------------------------------------------------------ LangChain's four doors

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        answer = self._answer(self._request(messages, stop, kwargs))
        return ChatResult(generations=[ChatGeneration(message=answer.message())])

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        answer = await self._aanswer(self._request(messages, stop, kwargs))
        return ChatResult(generations=[ChatGeneration(message=answer.message())])

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        answer = self._answer(self._request(messages, stop, kwargs))
        yield ChatGenerationChunk(message=answer.chunk())

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        answer = await self._aanswer(self._request(messages, stop, kwargs))
        yield ChatGenerationChunk(message=answer.chunk())

    def answer(self, messages: list[BaseMessage], **arguments: Any) -> AIMessage:
        """Do what ``invoke`` does, and tell nobody: no callback, no tracer.

        LangChain's bookkeeping around a call costs as much as serving it from the record; a
        backtest, whose calls are all written down by the store, asks through this door.

        Raises:
            ModelOutcome: The attempt ended without an answer.
            ReplayMiss: A strict replay has no recording for it.
        """
        return self._answer(self._request(messages, None, arguments)).message()

    # ------------------------------------------------------------------------------ one call

    def _request(
        self, messages: list[BaseMessage], stop: list[str] | None, arguments: dict[str, Any]
    ) -> _Request:
        """Build the body and the key of a call."""
        store: ReplyStore | None = (
            self.replies if self.replies is not None else CURRENT_REPLIES.get()
        )
        site = CURRENT_SITE.get()
        body: dict[str, Any] = self._get_request_payload(messages, stop=stop, **arguments)  # type: ignore[attr-defined]
        if body.get("n") not in (None, 1):
            raise PipelineError(
                f"n={body['n']} asks for several replies to one call: use trials instead"
            )
        document = key_document(
            body,
            provider=self.provider,
            endpoint=self.endpoint,
            site=site,
            accept_truncated=store is not None and store.accept_truncated,
        )
        call = ModelCall(
            key=call_key(document),
            request=document,
            provider=self.provider,
            endpoint=self.endpoint,
            model=str(body.get("model", "")),
            site=site,
        )
        live = LiveRequest(messages=messages, stop=stop, arguments=arguments, body=body)
        return _Request(store=store, call=call, live=live)

    def _answer(self, request: _Request) -> _Answer:
        stored = self._stored(request)
        return _answer_of(request, self._miss(request) if stored is None else stored)

    async def _aanswer(self, request: _Request) -> _Answer:
        stored = self._stored(request)
        if stored is None:
            context = contextvars.copy_context()
            loop = asyncio.get_running_loop()
            stored = await loop.run_in_executor(_MISSES, context.run, self._miss, request)
        return _answer_of(request, stored)

    def _stored(self, request: _Request) -> Reply | None:
        """Return a recorded answer, or None for a call that is to be made.

        Raises:
            ModelOutcome: Where a replayed run recorded an outcome.
            ReplayMiss: Where a replay has nothing.
        """
        store, call = request.store, request.call
        found = None if store is None else store.look_up(call)
        if isinstance(found, Outcome):
            raise _raised(found)
        if found is None and (self.transport == "refuse" or (store and store.mode == "replay")):
            raise ReplayMiss(call.key, f"{_where(call.site)}: nothing recorded under {call.key}")
        return found

    def _miss(self, request: _Request) -> Reply:
        """Make the call, unless another worker made it while this one waited for its turn."""
        store, call = request.store, request.call
        if store is None:
            return self._attempt(request)
        with store.flight(call.key):
            stored = self._stored(request)
            return self._attempt(request) if stored is None else stored

    def _attempt(self, request: _Request) -> Reply:
        """Call the provider once (transport retries apart), judge the reply and record it."""
        store, call, live = request.store, request.call, request.live
        started = time.perf_counter()
        outcome: Outcome | None
        reply: Reply | None = None
        try:
            reply = forms.recordable(self._live_reply(live), self._secret())
        except CallFailed as failure:
            message = forms.blank(forms.clean(failure.message), self._secret())
            outcome = Outcome(kind=failure.kind, message=message)
        else:
            outcome = forms.outcome_of(
                reply,
                site=call.site,
                accept_truncated=store is not None and store.accept_truncated,
                validators=_class_validators(live),
            )
        latency_s = time.perf_counter() - started
        if outcome is not None or reply is None:
            outcome = outcome or Outcome(kind="transport", message="no reply")
            if store is not None:
                store.record_outcome(call, outcome, latency_s=latency_s)
            raise _raised(outcome)
        return reply if store is None else store.record(call, reply, latency_s=latency_s)

    def _secret(self) -> str | None:
        """Return the credential that no record may hold; a class that has one overrides this."""
        return None

    def _live_reply(self, request: LiveRequest) -> Reply:
        """Call the provider through the class beside this one.

        A class that can show the provider's own JSON overrides it.

        Raises:
            CallFailed: Where no reply came.
        """
        result = super()._generate(  # type: ignore[safe-super]
            request.messages, stop=request.stop, **request.arguments
        )
        message = result.generations[0].message
        if not isinstance(message, AIMessage):
            raise CallFailed("transport", f"the model answered with a {message.type} message")
        return forms.reply_from_message(message, model=str(request.body.get("model", "")))


@dataclass(frozen=True, kw_only=True)
class _Request:
    store: ReplyStore | None
    call: ModelCall
    live: LiveRequest


@dataclass(frozen=True, kw_only=True)
class _Answer:
    reply: Reply
    message_id: str
    parsed: object | None

    def message(self) -> AIMessage:
        return forms.message_of(self.reply, message_id=self.message_id, parsed=self.parsed)

    def chunk(self) -> Any:
        return forms.chunk_of(self.reply, message_id=self.message_id, parsed=self.parsed)


def _answer_of(request: _Request, reply: Reply) -> _Answer:
    response_class = _response_class(request.live)
    parsed = None
    if response_class is not None and not reply.tool_calls:
        parsed = response_class.model_validate_json(reply.text)
    return _Answer(reply=reply, message_id=f"reply-{request.call.key[:32]}", parsed=parsed)


def _response_class(live: LiveRequest) -> type[BaseModel] | None:
    bound = live.arguments.get("response_format")
    return bound if isinstance(bound, type) and issubclass(bound, BaseModel) else None


def _class_validators(live: LiveRequest) -> Sequence[forms.Validator]:
    response_class = _response_class(live)
    if response_class is None:
        return ()

    def problem(reply: Reply) -> str | None:
        if reply.tool_calls:
            return None
        try:
            response_class.model_validate_json(reply.text)
        except ValidationError as error:
            return f"the reply is no {response_class.__name__}: {error}"
        return None

    return (problem,)


def _raised(outcome: Outcome) -> ModelOutcome:
    text = "" if outcome.reply is None else outcome.reply.text
    return ModelOutcome(outcome.kind, outcome.message, text)


def _where(site: Site) -> str:
    cell = f" of {site.cell}" if site.cell else ""
    return f"node {site.node or '(none)'}{cell}, call {site.index}, attempt {site.attempt}"
