"""The rulebook: a deterministic chat model without key or network, the default of the demo."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import date, timedelta
from typing import Any, cast

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import LanguageModelInput
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.tool import ToolCall
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import BaseModel, field_validator

from tradingagents_core.errors import SettingsError
from tradingagents_core.llm.rulebook_decisions import (
    DOCUMENTS,
    SCHEMA_OF_ROLE,
    Document,
    in_markdown,
    plain_decision,
    reflection,
)
from tradingagents_core.llm.rulebook_prompt import SNAPSHOT_TOOL, Prompt, content_text, read_prompt
from tradingagents_core.llm.rulebook_schema import Json, fill
from tradingagents_core.llm.rulebook_texts import SPEECHES, no_rule

PLAIN_VARIANT = "rulebook-1-plain"
MODELS = ("rulebook-1", PLAIN_VARIANT)

INDICATOR_TOOL = "get_indicators"
INDICATORS_READ = ("close_50_sma", "close_200_sma", "macdh", "rsi", "atr")
DAYS_BACK: Mapping[str, int] = {
    "get_stock_data": 45,
    INDICATOR_TOOL: 30,
    "get_macro_indicators": 365,
}
DEFAULT_DAYS_BACK = 7
# Tools that want a word which no prompt gives are asked about the plainest one.
WORDS: Mapping[str, Mapping[str, str]] = {
    "get_macro_indicators": {"indicator": "CPI"},
    "get_prediction_markets": {"topic": "recession"},
}
CHARACTERS_PER_TOKEN = 4
MARKET_STAGES = ("get_stock_data", INDICATOR_TOOL, SNAPSHOT_TOOL)

_ROLES: Mapping[str, str] = {"human": "user", "system": "system"}


class RulebookChatModel(BaseChatModel):
    """Answer the pipeline's prompts by published rules on the figures that they hold.

    This is a rules strategy behind a chat model's interface. It is no language model: it
    understands no sentence, has no memory, no training data and no randomness. Equal messages give
    equal bytes. It reads its prompt and nothing else, and of its prompt it takes as figures only
    the verified snapshot's lines, from that tool's answer or from the market report. Words in
    news, posts or other quoted text move nothing. It writes English whatever language is asked.

    What each role does:

    * Market Analyst: calls ``get_stock_data``, then ``get_indicators`` for five indicators in one
      turn, then ``get_verified_market_snapshot``, and writes a report that quotes the figures.
    * News and Fundamentals Analyst (any other analyst with tools too): calls each tool that it is
      offered once, and reports what came back or why nothing did.
    * Sentiment Analyst: neutral, score 5, low confidence. It does not judge the tone of a text.
    * Bull and Bear Researcher: list the positive and the negative points, and count the other's.
    * Research Manager: the tier of the score. Trader: Buy above Hold, Sell below it, entry at the
      close, and for a Buy a stop two average true ranges below.
    * Aggressive, Conservative, Neutral Analyst: the findings for the proposal, those against it,
      and both with the volatility rule.
    * Portfolio Manager: the tier, after the volatility rule and then the lesson rule.
    * Reflector: quotes raw return and alpha, and says what the rules keep.

    The rules. Each gives +1, 0 or -1; a missing figure (``n/a``) gives 0 and is named:

    ==========  =============================================  ================================
    rule        figures                                        points
    ==========  =============================================  ================================
    trend       close and 200-day average                      +1 above, -1 below
    trend       close and 50-day average                       +1 above, -1 below
    trend       50-day and 200-day average                     +1 above, -1 below
    momentum    MACD histogram (12, 26, 9)                     +1 positive, -1 negative
    momentum    return over 63 sessions                        +1 positive, -1 negative
    oscillator  RSI of 14 sessions                             +1 below 30, -1 above 70
    drawdown    distance from the 52-week high                 -1 at -20 % or less, else 0
    ==========  =============================================  ================================

    The tiers, symmetric around zero: score 4 and more Buy, 2 and 3 Overweight, -1 to 1 Hold, -2
    and -3 Underweight, -4 and less Sell.

    The adjustments of the Portfolio Manager, each at most one tier toward Hold:

    * Volatility: the standard deviation of the last 21 daily returns is above 3 %.
    * Lessons: of the three newest resolved calls on this ticker that it is shown, two or more took
      the side intended now, and the alpha of every one of those was against that side.

    The thresholds are textbook values, fixed before any return was looked at: moving averages of
    50 and 200 days and their cross, RSI at 30 and 70, a bear market at -20 %. Nothing is fitted,
    so no result of this model is evidence of anything but that the machinery works.

    ``rulebook-1-plain`` is the same without the two adjustments.

    Token counts are characters divided by four, for there is no tokenizer.

    Attributes:
        model: ``rulebook-1`` or ``rulebook-1-plain``.
    """

    model: str = MODELS[0]

    @field_validator("model")
    @classmethod
    def _known(cls, model: str) -> str:
        """Refuse a name without rules, so that no result carries the name of another model.

        Raises:
            SettingsError: With the names that there are.
        """
        if model not in MODELS:
            known = ", ".join(MODELS)
            raise SettingsError(
                f"the rulebook has no rules named {model!r}: write one of {known}, "
                "or choose another provider for this model"
            )
        return model

    @property
    def _llm_type(self) -> str:
        """Name the kind of model."""
        return "rulebook"

    @property
    def _identifying_params(self) -> Mapping[str, Any]:
        """Name what decides an answer beside the messages."""
        return {"model": self.model}

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | dict[str, Any] | bool | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Bind tools in the form of OpenAI's chat API.

        Args:
            tools: Ready tool objects of that form, or anything that LangChain can turn into one.
            tool_choice: ``auto``, ``none``, ``required`` (also ``any`` or True), a tool's name, or
                the object that names one.
            **kwargs: Bound as they are.

        Returns:
            The model with the tools bound.
        """
        ready = [tool if _is_ready(tool) else convert_to_openai_tool(tool) for tool in tools]
        if tool_choice:
            kwargs["tool_choice"] = _choice_in_form(tool_choice)
        return self.bind(tools=ready, **kwargs)

    def _get_request_payload(
        self, messages: Sequence[BaseMessage], stop: list[str] | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        """Build the body that an OpenAI-like endpoint would be sent, for the cache key."""
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [_message_body(message) for message in messages],
        }
        if stop:
            body["stop"] = stop
        body.update((key, value) for key, value in kwargs.items() if value is not None)
        if "response_format" in body:
            body["response_format"] = _format_body(body["response_format"])
        return body

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        """Answer one call."""
        prompt = read_prompt(messages)
        calls = self._calls(prompt, kwargs)
        text = "" if calls else self._text(prompt, kwargs.get("response_format"))
        for mark in stop or ():
            text = text.partition(mark)[0]
        return _result(self.model, messages, text, calls)

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        """Answer one call; it takes too little time to be worth a thread."""
        return self._generate(messages, stop, **kwargs)

    def _calls(self, prompt: Prompt, bound: Mapping[str, Any]) -> list[ToolCall]:
        """Make the tool calls of this turn, none where it is time to write."""
        offered = _offered(bound.get("tools"))
        choice = bound.get("tool_choice")
        calls: list[ToolCall] = []
        for name in _wanted(prompt, offered, choice):
            named = isinstance(choice, Mapping)
            for args in self._arguments(prompt, name, offered[name], several=not named):
                position = len(prompt.tools) + len(calls)
                calls.append(
                    ToolCall(name=name, args=args, id=f"call_{position}", type="tool_call")
                )
        return calls

    def _arguments(
        self, prompt: Prompt, name: str, schema: Mapping[str, object], *, several: bool
    ) -> list[dict[str, Json]]:
        """Fill a function's arguments; the indicator tool is called once for each indicator."""
        known: dict[str, Json] = {**_known_arguments(prompt, name), **self._document(prompt, name)}
        if name != INDICATOR_TOOL:
            return [fill(schema, known)]
        indicators = INDICATORS_READ if several else INDICATORS_READ[:1]
        return [fill(schema, {**known, "indicator": indicator}) for indicator in indicators]

    def _document(self, prompt: Prompt, schema_name: str) -> Document:
        """Fill the typed decision of this name, else that of the role, else nothing."""
        own = schema_name if schema_name in DOCUMENTS else SCHEMA_OF_ROLE.get(prompt.role, "")
        if own == "PortfolioDecision" and self.model == PLAIN_VARIANT:
            return plain_decision(prompt)
        return DOCUMENTS[own](prompt) if own else {}

    def _text(self, prompt: Prompt, response_format: object) -> str:
        """Write the answer: JSON where a format is asked for, else the role's own text."""
        if response_format is not None:
            return self._json(prompt, _format_body(response_format))
        if prompt.role in SPEECHES:
            return SPEECHES[prompt.role](prompt)
        if prompt.role == "Reflector":
            return reflection(prompt)
        if prompt.role in SCHEMA_OF_ROLE:
            return in_markdown(self._document(prompt, ""))
        return no_rule(prompt)

    def _json(self, prompt: Prompt, asked: Mapping[str, Any]) -> str:
        """Write a JSON object that fits the schema asked for, or the role's own without one."""
        wrapped = asked.get("json_schema") or {}
        known = self._document(prompt, wrapped.get("name", ""))
        document = fill(wrapped["schema"], known) if "schema" in wrapped else dict(known)
        return json.dumps(document, ensure_ascii=False)


def _wanted(prompt: Prompt, offered: Mapping[str, object], choice: object) -> list[str]:
    """Name the tools to call in this turn."""
    if choice == "none" or not offered:
        return []
    if isinstance(choice, Mapping):
        named = choice.get("function", {}).get("name")
        return [named] if named in offered else []
    made = {answer.name for answer in prompt.tools}
    open_ = [name for name in offered if name not in made]
    wanted = [name for name in open_ if name in DOCUMENTS]
    if not wanted and prompt.role == "Market Analyst":
        # One stage a turn: prices, then indicators, then the snapshot that checks them.
        stages = [name for name in MARKET_STAGES if name in open_]
        wanted = stages[:1] or open_
    elif not wanted and prompt.role.endswith(" Analyst"):
        wanted = open_
    if not wanted and choice == "required":
        wanted = [*open_, *offered][:1]
    return wanted


def _known_arguments(prompt: Prompt, tool: str) -> dict[str, Json]:
    """Say what can be said to a tool: who, until when, and how far back."""
    days = DAYS_BACK.get(tool, DEFAULT_DAYS_BACK)
    return {
        "symbol": prompt.symbol,
        "ticker": prompt.symbol,
        "start_date": _days_before(prompt.date, days),
        "end_date": prompt.date,
        "curr_date": prompt.date,
        "look_back_days": days,
        "freq": "quarterly",
        **WORDS.get(tool, {}),
    }


def _days_before(day: str, days: int) -> str:
    """Return an earlier date; a date that cannot be read stays, for the tool to complain about."""
    try:
        return (date.fromisoformat(day) - timedelta(days=days)).isoformat()
    except (ValueError, OverflowError):
        return day


def _is_ready(tool: object) -> bool:
    return isinstance(tool, dict) and tool.get("type") == "function" and "function" in tool


def _choice_in_form(choice: str | dict[str, Any] | bool) -> str | dict[str, Any]:
    if choice is True or choice == "any":
        return "required"
    if isinstance(choice, str) and choice not in ("auto", "none", "required"):
        return {"type": "function", "function": {"name": choice}}
    return cast("str | dict[str, Any]", choice)


def _offered(tools: Sequence[Mapping[str, Any]] | None) -> dict[str, Mapping[str, object]]:
    """Map each offered tool's name to the schema of its arguments, in the order of the offer."""
    functions = [tool["function"] for tool in tools or () if "function" in tool]
    return {function["name"]: function.get("parameters") or {} for function in functions}


def _format_body(response_format: object) -> dict[str, Any]:
    """Give a response format as the object that an endpoint takes; a class becomes its schema."""
    if isinstance(response_format, type) and issubclass(response_format, BaseModel):
        schema = response_format.model_json_schema()
        wrapped = {"name": response_format.__name__, "schema": schema, "strict": True}
        return {"type": "json_schema", "json_schema": wrapped}
    return cast("dict[str, Any]", response_format)


def _message_body(message: BaseMessage) -> dict[str, Any]:
    """Write one message as OpenAI's chat API spells it."""
    if isinstance(message, ToolMessage):
        return {
            "role": "tool",
            "content": message.content,
            "tool_call_id": message.tool_call_id,
        }
    if isinstance(message, AIMessage):
        body: dict[str, Any] = {"role": "assistant", "content": message.content}
        if message.tool_calls:
            body["tool_calls"] = [_call_body(call) for call in message.tool_calls]
        return body
    return {"role": _ROLES.get(message.type, message.type), "content": message.content}


def _call_body(call: ToolCall) -> dict[str, Any]:
    arguments = json.dumps(call["args"], ensure_ascii=False, sort_keys=True)
    return {
        "id": call["id"],
        "type": "function",
        "function": {"name": call["name"], "arguments": arguments},
    }


def _result(
    model: str, messages: Sequence[BaseMessage], text: str, calls: list[ToolCall]
) -> ChatResult:
    """Wrap an answer with its usage and the reason for its end."""
    written = len(text) + sum(len(str(call["args"])) for call in calls)
    read = sum(len(content_text(message)) for message in messages)
    sent, received = read // CHARACTERS_PER_TOKEN, written // CHARACTERS_PER_TOKEN
    ending = "tool_calls" if calls else "stop"
    message = AIMessage(
        content=text,
        tool_calls=calls,
        response_metadata={"model_name": model, "finish_reason": ending},
        usage_metadata=UsageMetadata(
            input_tokens=sent, output_tokens=received, total_tokens=sent + received
        ),
    )
    generation = ChatGeneration(message=message, generation_info={"finish_reason": ending})
    return ChatResult(generations=[generation], llm_output={"model_name": model})
