"""What known models can do, as a table; the setting ``structured_method`` overrides it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tradingagents_core.errors import SettingsError
from tradingagents_core.settings import ModelSpec

Transport = Literal["open", "refuse"]
StructuredMethod = Literal["json_schema", "function_calling", "json_mode", "none"]
# Clients insist on some key; servers that check none never look at it.
NO_KEY = "no-key"
STRUCTURED_METHODS: tuple[StructuredMethod, ...] = (
    "json_schema",
    "function_calling",
    "json_mode",
    "none",
)


@dataclass(frozen=True, kw_only=True)
class Capability:
    """Say how typed replies are asked for.

    Attributes:
        provider: Provider name of the factory's table.
        prefix: Front of the model name, empty for all others of the provider.
        structured_method: ``json_schema`` (the reply is held to a schema), ``function_calling``
            (one forced tool call), ``json_mode`` (any JSON object) or ``none`` (plain text).
    """

    provider: str
    prefix: str
    structured_method: StructuredMethod


# The longest matching prefix wins.
CAPABILITIES = (
    Capability(provider="rulebook", prefix="", structured_method="json_schema"),
    Capability(provider="openai", prefix="", structured_method="json_schema"),
    # Released before schemas, which came with the second gpt-4o.
    Capability(provider="openai", prefix="gpt-3.5", structured_method="function_calling"),
    Capability(provider="openai", prefix="gpt-4", structured_method="function_calling"),
    Capability(provider="openai", prefix="gpt-4.1", structured_method="json_schema"),
    Capability(provider="openai", prefix="gpt-4.5", structured_method="json_schema"),
    Capability(provider="openai", prefix="gpt-4o", structured_method="json_schema"),
    Capability(provider="openai", prefix="gpt-4o-2024-05-13", structured_method="function_calling"),
    # These two take neither tools nor schemas.
    Capability(provider="openai", prefix="o1-mini", structured_method="none"),
    Capability(provider="openai", prefix="o1-preview", structured_method="none"),
    # vLLM, llama.cpp, Ollama and LM Studio hold a reply to a schema; a named tool_choice is
    # ignored by some of them.
    Capability(provider="openai_compatible", prefix="", structured_method="json_schema"),
    # Its own API has JSON objects without a schema.
    Capability(provider="openai_compatible", prefix="deepseek", structured_method="json_mode"),
)


def structured_method(spec: ModelSpec) -> StructuredMethod:
    """Return how a model is asked for typed replies: the setting's word, else the table's.

    Raises:
        SettingsError: For a word that is no method.
    """
    if spec.structured_method is not None:
        for method in STRUCTURED_METHODS:
            if method == spec.structured_method:
                return method
        raise SettingsError(
            f"structured_method {spec.structured_method!r} is none of "
            + ", ".join(STRUCTURED_METHODS)
        )
    rows = [
        row
        for row in CAPABILITIES
        if row.provider == spec.provider and spec.model.lower().startswith(row.prefix)
    ]
    if not rows:
        return "function_calling"
    return max(rows, key=lambda row: len(row.prefix)).structured_method


def structured_method_of(model: object) -> StructuredMethod:
    """Return the method of a model that the factory built.

    A chat model from elsewhere is asked through ``bind_tools``, the one way that all share.
    """
    method = getattr(model, "structured_method", None)
    return method if method in STRUCTURED_METHODS else "function_calling"
