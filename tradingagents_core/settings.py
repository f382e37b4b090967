"""Settings of the pipeline itself: what shapes the graph and its prompts.

`backtester.config.RunConfig` builds one of these; nothing here reads files or the environment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from tradingagents_core.errors import SettingsError

ALL_ANALYSTS = ("market", "social", "news", "fundamentals")


@dataclass(frozen=True, kw_only=True)
class PipelineSettings:
    """Fix everything about the pipeline that can change an answer, models apart.

    Attributes:
        analysts: Wire keys, in the order in which they run; at least one.
        max_debate_rounds: Bull/bear rounds; the debate ends at ``count >= 2 * rounds``.
        max_risk_discuss_rounds: Risk rounds; ends at ``count >= 3 * rounds``.
        max_tool_turns: Turns with tool calls that one analyst may take.
        max_repairs: Structured calls repeated with the error quoted.
        recursion_limit: LangGraph's own limit of steps.
        analysts_parallel: Run analysts as branches instead of in turn; prompts stay equal.
        price_lookback: Sessions of prices that analysts are told to look at.
        news_lookback_days: Calendar days of news about the instrument.
        news_article_limit: Items that one answer with such news may hold, the newest.
        global_news_lookback_days: Calendar days of news about the world.
        global_news_article_limit: Items that one answer with such news may hold.
        output_language: Language of reports and decisions.
        debate_language: Language of the two debates.
        lesson_roles: Node names that are shown lessons.
    """

    analysts: tuple[str, ...] = ALL_ANALYSTS
    max_debate_rounds: int = 1
    max_risk_discuss_rounds: int = 1
    max_tool_turns: int = 6
    max_repairs: int = 1
    recursion_limit: int = 100
    analysts_parallel: bool = False
    price_lookback: int = 30
    news_lookback_days: int = 7
    news_article_limit: int = 20
    global_news_lookback_days: int = 7
    global_news_article_limit: int = 20
    output_language: str = "English"
    debate_language: str = "English"
    lesson_roles: tuple[str, ...] = ("Portfolio Manager",)

    def __post_init__(self) -> None:
        """Refuse an empty or repeated analyst list.

        Raises:
            SettingsError: With what to write instead.
        """
        if not self.analysts:
            raise SettingsError(
                "analysts is empty: name at least one of " + ", ".join(ALL_ANALYSTS)
            )
        if len(set(self.analysts)) != len(self.analysts):
            raise SettingsError(f"analysts repeats a name: {', '.join(self.analysts)}")


@dataclass(frozen=True, kw_only=True)
class ScriptedTool:
    """Name a tool that a scripted reply calls.

    Attributes:
        name: Of the tool.
        args: Its arguments.
    """

    name: str
    args: Mapping[str, Any] = field(default_factory=dict)

    __pydantic_config__: ClassVar[Mapping[str, str]] = {"extra": "forbid"}


@dataclass(frozen=True, kw_only=True)
class ScriptedReply:
    """Write down one reply of the provider ``scripted``, and which prompts it answers.

    Attributes:
        node: Node of the pipeline that asks, or None for any.
        contains: Text that the prompt holds, or None for any.
        tool_answers: How many answers of tools the prompt holds, or None for any number.
        text: What is said.
        tools: Tools that are called.
        finish_reason: Why the reply ends, in the words of providers.
    """

    node: str | None = None
    contains: str | None = None
    tool_answers: int | None = None
    text: str = ""
    tools: tuple[ScriptedTool, ...] = ()
    finish_reason: str = "stop"

    __pydantic_config__: ClassVar[Mapping[str, str]] = {"extra": "forbid"}


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """Name one model of one provider, with what is sent along.

    Attributes:
        provider: Row of the provider table, such as ``rulebook``, ``openai`` or ``ollama``.
        model: Model name as the provider knows it.
        base_url: Endpoint, or None for the provider's own.
        endpoint_alias: Name in keys; None derives it from the address.
        api_version: Version of the provider's interface, where one can be named: ``azure``
            and ``google``. None takes the one that this project knows.
        temperature: Sampling temperature, or None to send none. Models that take none are sent
            none.
        max_tokens: Limit of a reply, or None to send none.
        reasoning_effort: How long a reasoning model may think, in its provider's own word, or
            None to send none. Models that have no such knob are sent none.
        structured_method: ``json_schema, function_calling, json_mode, none``, or None for the
            capability table's word.
        script: Replies of the provider ``scripted``.
        timeout_s: Transport only, never in a key.
        max_retries: Transport only, never in a key.
        retry_budget_s: Transport only, never in a key: seconds after which no retry begins.
    """

    provider: str = "rulebook"
    model: str = "rulebook-1"
    base_url: str | None = None
    endpoint_alias: str | None = None
    api_version: str | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    reasoning_effort: str | None = None
    structured_method: str | None = None
    script: tuple[ScriptedReply, ...] = ()
    timeout_s: float = 120.0
    max_retries: int = 5
    retry_budget_s: float = 300.0
