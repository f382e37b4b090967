"""Record and replay model calls inside the chat-model class, for every call style.

`ReplayingModel` stands in front of a provider's class and takes over the four methods that all of
LangChain's call styles end in. Each call is keyed by the request body that the provider class
builds, looked up in the `ReplyStore` of the cell, and made only on a miss. What the caller gets is
built from the stored reply in either case.

Where nobody listens to a call, `invoke` leaves out what LangChain does for those who would.

The store is found in `CURRENT_REPLIES`, which the pipeline sets around a cell, or in the model's
own ``replies`` attribute, which wins. Without a store a model is live and nothing is kept.

On the wire there is one style, the plain request: a streaming caller gets the whole reply as one
chunk. A reply that turns out to be cut, refused or invalid has then shown nothing to anybody.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal, Protocol, cast

from langchain_core.caches import BaseCache
from langchain_core.callbacks import (
    AsyncCallbackManagerForLLMRun,
    CallbackManager,
    CallbackManagerForLLMRun,
)
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, get_buffer_string
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.prompt_values import PromptValue
from langchain_core.runnables import RunnableConfig, ensure_config
from pydantic import BaseModel, Field, ValidationError

from tradingagents_core.errors import ModelOutcome, PipelineError, ReplayMiss
from tradingagents_core.llm import replies as forms
from tradingagents_core.llm.capabilities import Transport
from tradingagents_core.llm.capability_table import StructuredMethod
from tradingagents_core.llm.keys import keyed_request
from tradingagents_core.llm.reading import blank, clean
from tradingagents_core.protocols import CURRENT_SITE, ModelCall, Outcome, Reply, ReplyStore, Site

CURRENT_REPLIES: ContextVar[ReplyStore | None] = ContextVar("tradingagents_replies", default=None)

# Async misses wait here for the flight of their key and for the provider. Waiting on an OS lock
# in the event loop would stop the very call that holds it.
_MISSES = ThreadPoolExecutor(max_workers=64, thread_name_prefix="model-call")


# Arguments that structured output leaves for tracers; LangChain takes them out of each call.
_FOR_TRACERS = ("ls_structured_output_format", "structured_output_format")
# Names that LangChain keeps for itself; what it says to them as arguments is its own business.
_OF_CONFIG = frozenset({"callbacks", "tags", "metadata", "run_name", "run_id"})

FailedKind = Literal["transport", "content_filter", "rejected"]


class CallFailed(Exception):
    """Report that a provider gave no reply at all; it becomes an outcome.

    Args:
        kind: ``transport``, or ``content_filter`` where the provider's filter stopped the prompt,
            or ``rejected`` where it answered that it will not take this request.
        message: What happened, in words.
        retries: How often the transport tried again before it gave up.
        lost: Whether the provider may have answered, and billed, what nobody could read: the
            request had gone out, and then came silence, half an answer or none that reads.
    """

    def __init__(
        self, kind: FailedKind, message: str, *, retries: int = 0, lost: bool = False
    ) -> None:
        super().__init__(message)
        self.kind: FailedKind = kind
        self.message = message
        self.retries = retries
        self.lost = lost


class Meter(Protocol):
    """Count what a provider may bill beside the reply that it gave."""

    def lost(self, *, again: bool) -> None:
        """Count a request whose answer nobody could read.

        Args:
            again: Whether it is about to be sent once more, for which permission is asked.

        Raises:
            PipelineError: It may not be sent again.
        """


@dataclass(frozen=True, kw_only=True)
class LiveRequest:
    """Hold one call for the provider, in both forms that its class may want.

    Attributes:
        messages: As LangChain hands them over.
        stop: Stop words, or None.
        arguments: Bound keyword arguments (tools, response_format, ...).
        body: Request body that the provider's class built from them.
        meter: Counts requests whose answer is lost, or None for nobody.
    """

    messages: list[BaseMessage]
    stop: list[str] | None
    arguments: dict[str, Any]
    body: dict[str, Any]
    meter: Meter | None = None


@dataclass(frozen=True, kw_only=True)
class LiveReply:
    """Hold what a provider said, and what it took to hear it.

    Attributes:
        reply: The reply.
        retries: How often the transport tried again before it came.
    """

    reply: Reply
    retries: int = 0


class _AsTheyAre:
    """Be a prompt value of messages that need no conversion."""

    def __init__(self, messages: list[BaseMessage]) -> None:
        self._messages = messages

    def to_messages(self) -> list[BaseMessage]:
        """Return the messages."""
        return list(self._messages)

    def to_string(self) -> str:
        """Return what a model that knows text alone would be sent."""
        return get_buffer_string(self._messages)


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

    def invoke(
        self,
        input: LanguageModelInput,  # noqa: A002 - the base's name
        config: RunnableConfig | None = None,
        *,
        stop: list[str] | None = None,
        **kwargs: Any,
    ) -> AIMessage:
        """Answer a prompt, without LangChain's bookkeeping where nobody would hear of it.

        What callbacks, tracers and their metadata are told costs twice a recorded answer. Where no
        handler is listening, nor any other part of that path has work to do, it is left out.

        Raises:
            ModelOutcome: The attempt ended without an answer.
            ReplayMiss: A strict replay has no recording for it.
        """
        if self._is_heard(config) or not _OF_CONFIG.isdisjoint(kwargs):
            return super().invoke(input, config, stop=stop, **kwargs)
        messages = self._convert_input(input).to_messages()
        if not all(isinstance(message.content, str) for message in messages):
            # Content in parts is brought to one form on the way.
            return super().invoke(input, config, stop=stop, **kwargs)
        for name in _FOR_TRACERS:
            kwargs.pop(name, None)
        request = self._request(messages, stop, kwargs)
        return request.message(self._answer(request))

    def _is_heard(self, config: RunnableConfig | None) -> bool:
        if self.rate_limiter is not None or self.output_version == "v1":
            return True
        callbacks = ensure_config(config).get("callbacks")
        return bool(CallbackManager.configure(callbacks, self.callbacks, self.verbose).handlers)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        request = self._request(messages, stop, kwargs)
        message = request.message(self._answer(request))
        return ChatResult(generations=[ChatGeneration(message=message)])

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        request = self._request(messages, stop, kwargs)
        message = request.message(await self._aanswer(request))
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        request = self._request(messages, stop, kwargs)
        yield ChatGenerationChunk(message=request.chunk(self._answer(request)))

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        request = self._request(messages, stop, kwargs)
        yield ChatGenerationChunk(message=request.chunk(await self._aanswer(request)))

    def answer(self, messages: list[BaseMessage], **arguments: Any) -> AIMessage:
        """Do what ``invoke`` does, and tell nobody: no callback, no tracer.

        LangChain's bookkeeping around a call costs as much as serving it from the record; a
        backtest, whose calls are all written down by the store, asks through this door.

        Raises:
            ModelOutcome: The attempt ended without an answer.
            ReplayMiss: A strict replay has no recording for it.
        """
        request = self._request(messages, None, arguments)
        return request.message(self._answer(request))

    # ------------------------------------------------------------------------------ one call

    def _convert_input(self, model_input: LanguageModelInput) -> PromptValue:
        # Messages are messages already: validating them again takes as long as hashing them.
        if isinstance(model_input, list) and all(
            isinstance(item, BaseMessage) for item in model_input
        ):
            return cast(PromptValue, _AsTheyAre(model_input))
        return super()._convert_input(model_input)

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
        keyed = keyed_request(
            body,
            provider=self.provider,
            endpoint=self.endpoint,
            site=site,
            accept_truncated=store is not None and store.accept_truncated,
        )
        call = ModelCall(
            key=keyed.key,
            request=keyed.document,
            provider=self.provider,
            endpoint=self.endpoint,
            model=str(body.get("model", "")),
            site=site,
        )
        return _Request(store, call, messages, stop, arguments, body)

    def _answer(self, request: _Request) -> Reply:
        stored = self._stored(request)
        return self._miss(request) if stored is None else stored

    async def _aanswer(self, request: _Request) -> Reply:
        stored = self._stored(request)
        if stored is None:
            context = contextvars.copy_context()
            loop = asyncio.get_running_loop()
            stored = await loop.run_in_executor(_MISSES, context.run, self._miss, request)
        return stored

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
        store, call, live = request.store, request.call, request.live()
        started = time.perf_counter()
        outcome: Outcome | None
        reply: Reply | None = None
        try:
            answered = self._live_reply(live)
            retries = answered.retries
            reply = forms.recordable(answered.reply, self._secret())
        except CallFailed as failure:
            retries = failure.retries
            message = blank(clean(failure.message), self._secret())
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
                store.record_outcome(call, outcome, latency_s=latency_s, retries=retries)
            raise _raised(outcome)
        if store is None:
            return reply
        return store.record(call, reply, latency_s=latency_s, retries=retries)

    def _secret(self) -> str | None:
        """Return the credential that no record may hold; a class that has one overrides this."""
        return None

    def _live_reply(self, request: LiveRequest) -> LiveReply:
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
        reply = forms.reply_from_message(message, model=str(request.body.get("model", "")))
        return LiveReply(reply=reply)


class _StoreMeter:
    """Tell a store of the lost requests of one call."""

    def __init__(self, store: ReplyStore, call: ModelCall) -> None:
        self._store = store
        self._call = call

    def lost(self, *, again: bool) -> None:
        """Count one."""
        self._store.lost(self._call, again=again)


class _Request:
    """Hold one call, and make of its reply what the caller gets."""

    # Made for every call, so without what a frozen dataclass does on the way.
    __slots__ = ("_arguments", "_body", "_messages", "_stop", "call", "store")

    def __init__(
        self,
        store: ReplyStore | None,
        call: ModelCall,
        messages: list[BaseMessage],
        stop: list[str] | None,
        arguments: dict[str, Any],
        body: dict[str, Any],
    ) -> None:
        self.store = store
        self.call = call
        self._messages = messages
        self._stop = stop
        self._arguments = arguments
        self._body = body

    def live(self) -> LiveRequest:
        """Return the call as the provider's class takes it."""
        return LiveRequest(
            messages=self._messages,
            stop=self._stop,
            arguments=self._arguments,
            body=self._body,
            meter=None if self.store is None else _StoreMeter(self.store, self.call),
        )

    def message(self, reply: Reply) -> AIMessage:
        """Return a reply as a message."""
        return forms.message_of(reply, message_id=self._id(), parsed=self._parsed(reply))

    def chunk(self, reply: Reply) -> AIMessageChunk:
        """Return a reply as the one chunk of a stream."""
        return forms.chunk_of(reply, message_id=self._id(), parsed=self._parsed(reply))

    def _id(self) -> str:
        return f"reply-{self.call.key[:32]}"

    def _parsed(self, reply: Reply) -> object | None:
        response_class = _response_class(self._arguments)
        if response_class is None or reply.tool_calls:
            return None
        return response_class.model_validate_json(reply.text)


def _response_class(arguments: Mapping[str, Any]) -> type[BaseModel] | None:
    bound = arguments.get("response_format")
    return bound if isinstance(bound, type) and issubclass(bound, BaseModel) else None


def _class_validators(live: LiveRequest) -> Sequence[forms.Validator]:
    response_class = _response_class(live.arguments)
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
