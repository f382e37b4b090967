"""The table of what known models can do: how they give typed replies and which knobs they have.

A row holds for all models of a provider whose names begin with its prefix; the longest prefix
wins. What the rows mean for a request is in `capabilities`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

StructuredMethod = Literal["json_schema", "function_calling", "json_mode", "none"]
ToolChoice = Literal["named", "words", "refused"]
RoundTrip = Literal["none", "reasoning_content", "reasoning_details", "reasoning_items"]
Fields = Mapping[str, object]


@dataclass(frozen=True, kw_only=True)
class Capability:
    """Say what a model takes.

    Attributes:
        provider: Provider name of the factory's table.
        prefix: Front of the model name in lower case, empty for all others of the provider.
        structured_method: ``json_schema`` (the reply is held to a schema), ``function_calling``
            (one forced tool call), ``json_mode`` (any JSON object) or ``none`` (plain text).
        json_mode: Whether any JSON object may be asked for at all.
        tool_choice: ``named`` (a tool can be forced), ``words`` (only ``auto`` and ``none`` are
            taken) or ``refused`` (the field itself is an error, so that no tool is offered where
            none may be called).
        temperature: Whether a sampling temperature is taken.
        efforts: Words for ``reasoning_effort``, each with the fields of the request that say it;
            empty where the model has no such knob.
        round_trip: In which field the reasoning behind tool calls goes back to the model:
            ``reasoning_content`` (text), ``reasoning_details`` (as it came) or
            ``reasoning_items`` (encrypted items of the Responses API).
        always: Fields of every request.
    """

    provider: str
    prefix: str
    structured_method: StructuredMethod
    json_mode: bool = True
    tool_choice: ToolChoice = "named"
    temperature: bool = True
    efforts: Mapping[str, Fields] = field(default_factory=dict)
    round_trip: RoundTrip = "none"
    always: Fields = field(default_factory=dict)


def _words(*words: str) -> dict[str, Fields]:
    """Return words that are sent as they are."""
    return {word: {"reasoning_effort": word} for word in words}


def _thinking(**types: str) -> dict[str, Fields]:
    """Return words that stand for a type of thinking."""
    return {word: {"thinking": {"type": name}} for word, name in types.items()}


def _openai() -> Iterator[Capability]:
    efforts = _words("none", "minimal", "low", "medium", "high", "xhigh", "max")

    def row(prefix: str, method: StructuredMethod = "json_schema") -> Capability:
        return Capability(provider="openai", prefix=prefix, structured_method=method)

    # What is not known may reason, and takes what it is sent.
    yield Capability(provider="openai", prefix="", structured_method="json_schema", efforts=efforts)
    # Released before schemas, which came with the second gpt-4o.
    yield row("gpt-3.5", "function_calling")
    yield row("gpt-4", "function_calling")
    yield row("gpt-4o-2024-05-13", "function_calling")
    for prefix in ("gpt-4.1", "gpt-4.5", "gpt-4o", "gpt-5-chat"):
        yield row(prefix)
    for prefix in ("o1", "o3", "o4", "gpt-5", "gpt-6"):
        yield Capability(
            provider="openai",
            prefix=prefix,
            structured_method="json_schema",
            temperature=False,
            efforts=efforts,
            round_trip="reasoning_items",
        )
    # These two take neither tools nor schemas.
    for prefix in ("o1-mini", "o1-preview"):
        yield Capability(
            provider="openai",
            prefix=prefix,
            structured_method="none",
            json_mode=False,
            tool_choice="refused",
            temperature=False,
        )


def _anywhere() -> Iterator[Capability]:
    """Yield the rows of servers that serve models of many makers."""
    openai = _words("none", "minimal", "low", "medium", "high", "xhigh", "max")
    # vLLM, llama.cpp, Ollama and LM Studio hold a reply to a schema; a named tool_choice is
    # ignored by some of them.
    yield Capability(
        provider="openai_compatible", prefix="", structured_method="json_schema", efforts=openai
    )
    # Its own API has JSON objects without a schema.
    yield Capability(
        provider="openai_compatible",
        prefix="deepseek",
        structured_method="json_mode",
        efforts=openai,
        round_trip="reasoning_content",
    )
    for prefix in ("o1", "o3", "o4", "gpt-5", "gpt-6"):
        yield Capability(
            provider="openai_compatible",
            prefix=prefix,
            structured_method="json_schema",
            temperature=False,
            efforts=openai,
        )
    yield Capability(
        provider="ollama",
        prefix="",
        structured_method="json_schema",
        efforts=_words("none", "low", "medium", "high", "max"),
    )
    yield Capability(provider="nvidia", prefix="", structured_method="json_schema")
    yield Capability(
        provider="nvidia",
        prefix="openai/gpt-oss",
        structured_method="json_schema",
        efforts=_words("low", "medium", "high"),
    )
    yield from _groq()
    yield from _openrouter()


def _groq() -> Iterator[Capability]:
    # Schemas only for a few models; all that call tools can be held to one.
    yield Capability(provider="groq", prefix="", structured_method="function_calling")
    yield Capability(
        provider="groq",
        prefix="openai/gpt-oss",
        structured_method="json_schema",
        efforts=_words("low", "medium", "high"),
    )
    yield Capability(
        provider="groq",
        prefix="qwen/qwen3",
        structured_method="function_calling",
        efforts=_words("none", "default"),
    )


def _openrouter() -> Iterator[Capability]:
    words = ("none", "minimal", "low", "medium", "high", "xhigh")
    efforts: dict[str, Fields] = {word: {"reasoning": {"effort": word}} for word in words}

    def row(prefix: str, method: StructuredMethod, *, temperature: bool = True) -> Capability:
        return Capability(
            provider="openrouter",
            prefix=prefix,
            structured_method=method,
            temperature=temperature,
            efforts=efforts,
            round_trip="reasoning_details",
        )

    yield row("", "function_calling")
    for prefix in ("openai/", "google/", "x-ai/", "mistralai/"):
        yield row(prefix, "json_schema")
    for prefix in ("openai/gpt-5", "openai/gpt-6", "openai/o1", "openai/o3", "openai/o4"):
        yield row(prefix, "json_schema", temperature=False)


def _deepseek() -> Iterator[Capability]:
    yield Capability(
        provider="deepseek",
        prefix="",
        structured_method="json_mode",
        tool_choice="refused",
        temperature=False,
        efforts={**_thinking(none="disabled"), **_words("low", "high", "max")},
        round_trip="reasoning_content",
    )
    # The name of the same models without thinking.
    yield Capability(provider="deepseek", prefix="deepseek-chat", structured_method="json_mode")


def _qwen(provider: str) -> Iterator[Capability]:
    switch: dict[str, Fields] = {
        "none": {"enable_thinking": False},
        "high": {"enable_thinking": True},
    }
    # Thinking and JSON modes exclude each other for many, and so do thinking and a forced tool.
    yield Capability(
        provider=provider,
        prefix="",
        structured_method="function_calling",
        tool_choice="words",
        efforts=switch,
    )
    # Open models that think unless told not to, and then answer in streams alone.
    for size in ("0.6b", "1.7b", "4b", "8b", "14b", "32b", "30b-a3b", "235b-a22b"):
        yield Capability(
            provider=provider,
            prefix=f"qwen3-{size}",
            structured_method="function_calling",
            tool_choice="words",
            always={"enable_thinking": False},
        )


def _glm(provider: str) -> Iterator[Capability]:
    every = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
    efforts: dict[str, Mapping[str, Fields]] = {
        "": _thinking(none="disabled", high="enabled"),
        "glm-4-": {},
        "glm-5.2": _words(*every),
        "glm-5.3": _words("low", "high", "max"),
    }
    for prefix, words in efforts.items():
        yield Capability(
            provider=provider,
            prefix=prefix,
            structured_method="json_mode",
            tool_choice="refused",
            efforts=words,
            round_trip="reasoning_content",
        )


def _minimax(provider: str) -> Iterator[Capability]:
    yield Capability(
        provider=provider, prefix="", structured_method="function_calling", tool_choice="words"
    )
    efforts: dict[str, Mapping[str, Fields]] = {
        "minimax-m2": {},
        "minimax-m": _thinking(none="disabled", high="adaptive"),
        "minimax-m3.1": _words("low", "high", "max"),
    }
    for prefix, words in efforts.items():
        yield Capability(
            provider=provider,
            prefix=prefix,
            structured_method="function_calling",
            json_mode=False,
            tool_choice="words",
            efforts=words,
            round_trip="reasoning_details",
            # Else the thoughts stand in the text, between tags.
            always={"reasoning_split": True},
        )


def _kimi() -> Iterator[Capability]:
    yield Capability(provider="kimi", prefix="", structured_method="json_mode")
    efforts: dict[str, Mapping[str, Fields]] = {
        "kimi-k2.": _thinking(none="disabled", high="enabled"),
        "kimi-k2-thinking": {},
        "kimi-k3": _words("low", "high", "max"),
    }
    for prefix, words in efforts.items():
        yield Capability(
            provider="kimi",
            prefix=prefix,
            structured_method="json_mode",
            tool_choice="words",
            temperature=False,
            efforts=words,
            round_trip="reasoning_content",
        )


def _claude(provider: str, fronts: tuple[str, ...]) -> Iterator[Capability]:
    """Yield the rows of Anthropic's models; a front stands before each name."""

    def efforts(*words: str, **thinking: object) -> dict[str, Fields]:
        return {word: {"output_config": {"effort": word}, **thinking} for word in words}

    to_max = efforts("low", "medium", "high", "max")
    newest = efforts("low", "medium", "high", "xhigh", "max", thinking={"type": "adaptive"})
    # By the front of the name: how typed replies are asked for, temperature, efforts.
    generations: tuple[tuple[str, StructuredMethod, bool, Mapping[str, Fields]], ...] = (
        ("claude-", "json_schema", False, {}),
        ("claude-2", "function_calling", True, {}),
        ("claude-3", "function_calling", True, {}),
        ("claude-opus-4", "function_calling", True, {}),
        ("claude-sonnet-4", "function_calling", True, {}),
        ("claude-opus-4-1", "json_schema", True, {}),
        ("claude-haiku-4-5", "json_schema", True, {}),
        ("claude-sonnet-4-5", "json_schema", True, {}),
        ("claude-opus-4-5", "json_schema", True, efforts("low", "medium", "high")),
        ("claude-opus-4-6", "json_schema", True, to_max),
        ("claude-sonnet-4-6", "json_schema", True, to_max),
        ("claude-opus-4-7", "json_schema", False, newest),
        ("claude-opus-4-8", "json_schema", False, newest),
        ("claude-opus-5", "json_schema", False, newest),
        ("claude-sonnet-5", "json_schema", False, newest),
        ("claude-fable-5", "json_schema", False, newest),
    )
    for front in fronts:
        for name, method, temperature, words in generations:
            yield Capability(
                provider=provider,
                prefix=f"{front}{name}",
                structured_method=method,
                json_mode=False,
                temperature=temperature,
                efforts=words,
            )


def _bedrock() -> Iterator[Capability]:
    # A front names the regions that may serve a call.
    regions = ("", "us.", "us-gov.", "eu.", "apac.", "jp.", "au.", "global.")
    yield Capability(
        provider="bedrock", prefix="", structured_method="function_calling", json_mode=False
    )
    for region in regions:
        yield Capability(
            provider="bedrock",
            prefix=f"{region}amazon.nova-2",
            structured_method="function_calling",
            json_mode=False,
            efforts={
                word: {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": word}}
                for word in ("low", "medium", "high")
            },
        )
    yield from _claude("bedrock", tuple(f"{region}anthropic." for region in regions))


def _google() -> Iterator[Capability]:
    # Thoughts of a number of tokens in one generation, of a level in the next.
    budgets = {"low": 1024, "medium": 8192, "high": 24576}
    by_budget: dict[str, Fields] = {
        word: {"thinking_budget": tokens} for word, tokens in budgets.items()
    }

    def levels(*words: str) -> dict[str, Fields]:
        return {word: {"thinking_level": word} for word in words}

    every = levels("minimal", "low", "medium", "high")
    generations: dict[str, Mapping[str, Fields]] = {
        "": every,
        "gemini-2.0": {},
        "gemini-2.5-pro": by_budget,
        "gemini-2.5-flash": {"none": {"thinking_budget": 0}, **by_budget},
        "gemini-3-pro": levels("low", "high"),
        "gemini-3.1-pro": levels("low", "medium", "high"),
    }
    for prefix, words in generations.items():
        yield Capability(
            provider="google", prefix=prefix, structured_method="json_schema", efforts=words
        )
    yield Capability(provider="google", prefix="gemini-1", structured_method="function_calling")
    # These two sample in a fixed way.
    for prefix in ("gemini-3.5-flash-lite", "gemini-3.6-flash"):
        yield Capability(
            provider="google",
            prefix=prefix,
            structured_method="json_schema",
            temperature=False,
            efforts=every,
        )


def _azure() -> Iterator[Capability]:
    """Yield the rows of deployments, which most people name after the model."""
    for row in _openai():
        if row.structured_method != "none":
            yield replace(row, provider="azure", round_trip="none")


def _others() -> Iterator[Capability]:
    yield Capability(provider="rulebook", prefix="", structured_method="json_schema")
    yield Capability(provider="scripted", prefix="", structured_method="json_schema")
    yield Capability(provider="mistral", prefix="", structured_method="json_schema")
    for prefix in ("mistral-small", "mistral-medium"):
        yield Capability(
            provider="mistral",
            prefix=prefix,
            structured_method="json_schema",
            efforts=_words("none", "high"),
        )
    yield Capability(
        provider="xai",
        prefix="",
        structured_method="json_schema",
        efforts=_words("none", "low", "medium", "high"),
    )
    # They reason always, or never.
    for prefix in ("grok-4-", "grok-4.20", "grok-build", "grok-code", "grok-3"):
        yield Capability(provider="xai", prefix=prefix, structured_method="json_schema")
    yield Capability(
        provider="xai",
        prefix="grok-3-mini",
        structured_method="json_schema",
        efforts=_words("low", "high"),
    )


CAPABILITIES: tuple[Capability, ...] = (
    *_openai(),
    *_anywhere(),
    *_deepseek(),
    *(row for provider in ("qwen", "qwen-cn") for row in _qwen(provider)),
    *(row for provider in ("glm", "glm-cn") for row in _glm(provider)),
    *(row for provider in ("minimax", "minimax-cn") for row in _minimax(provider)),
    *_kimi(),
    *_claude("anthropic", ("",)),
    *_bedrock(),
    *_google(),
    *_azure(),
    *_others(),
)
