"""Chat models that follow a script: for tests, examples and benchmarks.

They are real LangChain chat models (tools bind, structured output binds, all call styles work) and
touch no network. `ScriptedChatModel` says what it is told; `ReplayingScriptedModel` does so behind
the recording layer, as a provider's model would be.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage, convert_to_openai_messages
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import Field, PrivateAttr

from tradingagents_core.llm.capability_table import StructuredMethod
from tradingagents_core.llm.keys import canonical_json
from tradingagents_core.llm.replaying import LiveReply, LiveRequest, ReplayingModel
from tradingagents_core.llm.replies import message_of, reply_from_message
from tradingagents_core.protocols import Reply, ToolCall, Usage

Line = str | Reply | AIMessage | BaseException
Script = Sequence[Line] | Callable[[list[BaseMessage], Mapping[str, Any]], Line]


class ScriptEnded(RuntimeError):
    """Report a call beyond the last line of a script; it is a fault of the test, never a reply."""


@dataclass(frozen=True, kw_only=True)
class ScriptedCall:
    """Hold what a scripted model was asked: the messages and the bound arguments."""

    messages: tuple[BaseMessage, ...]
    arguments: Mapping[str, Any]


def tool_reply(*calls: tuple[str, Mapping[str, Any]], text: str = "") -> Reply:
    """Return a reply that calls tools, each given as (name, arguments)."""
    return Reply(
        text=text,
        tool_calls=tuple(
            ToolCall(id=f"call_{index}", name=name, args=canonical_json(dict(args)))
            for index, (name, args) in enumerate(calls)
        ),
        finish_reason="tool_calls",
    )


def text_reply(text: str, *, finish_reason: str = "stop", usage: Usage | None = None) -> Reply:
    """Return a reply of plain text."""
    return Reply(text=text, finish_reason=finish_reason, usage=usage or Usage())


class ScriptedChatModel(BaseChatModel):
    """Answer by a script.

    Attributes:
        script: Lines in the order of the calls (a text, a `Reply`, a message, or an exception to
            raise), or a function of (messages, bound arguments) that returns such a line.
        model: Name that the model answers under.
        temperature: Part of the request body where it is set.
        structured_method: How typed replies are asked for.
    """

    script: Any = Field(exclude=True, repr=False)
    model: str = "scripted-1"
    temperature: float | None = None
    structured_method: StructuredMethod = "json_schema"

    _lock: Any = PrivateAttr(default_factory=threading.Lock)
    _calls: list[ScriptedCall] = PrivateAttr(default_factory=list)

    @property
    def calls(self) -> tuple[ScriptedCall, ...]:
        """Return what was asked so far, in order of arrival."""
        return tuple(self._calls)

    @property
    def _llm_type(self) -> str:
        return "scripted"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"model": self.model, "temperature": self.temperature}

    def bind_tools(
        self,
        tools: Sequence[Any],
        *,
        tool_choice: str | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Bind tools in the form that OpenAI's protocol gives them."""
        bound: dict[str, Any] = {"tools": [convert_to_openai_tool(tool) for tool in tools]}
        if tool_choice is not None:
            bound["tool_choice"] = tool_choice
        return self.bind(**bound, **kwargs)

    def _get_request_payload(
        self, messages: LanguageModelInput, *, stop: list[str] | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self.model, **kwargs}
        body["messages"] = convert_to_openai_messages(self._convert_input(messages).to_messages())
        if self.temperature is not None:
            body["temperature"] = self.temperature
        if stop is not None:
            body["stop"] = stop
        return body

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        line = self._next_line(messages, kwargs)
        if isinstance(line, BaseException):
            raise line
        if isinstance(line, str):
            line = text_reply(line)
        message = message_of(line, message_id=None) if isinstance(line, Reply) else line
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _next_line(self, messages: list[BaseMessage], arguments: Mapping[str, Any]) -> Line:
        with self._lock:
            position = len(self._calls)
            self._calls.append(ScriptedCall(messages=tuple(messages), arguments=dict(arguments)))
        if callable(self.script):
            line: Line = self.script(messages, arguments)
            return line
        lines: Sequence[Line] = self.script
        if position >= len(lines):
            raise ScriptEnded(f"call {position + 1} of a script of {len(lines)} lines")
        return lines[position]


class ReplayingScriptedModel(ReplayingModel, ScriptedChatModel):
    """Answer by a script behind the recording layer."""

    provider: str = Field(default="scripted", exclude=True)
    endpoint: str = Field(default="scripted", exclude=True)

    def _live_reply(self, request: LiveRequest) -> LiveReply:
        line = self._next_line(request.messages, request.arguments)
        if isinstance(line, BaseException):
            raise line
        if isinstance(line, str):
            return LiveReply(reply=text_reply(line))
        reply = line if isinstance(line, Reply) else reply_from_message(line, model=self.model)
        return LiveReply(reply=reply)
