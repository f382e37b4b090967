"""What a model takes: how it is asked for typed replies, and which knobs reach it.

Looked up in `capability_table`. The setting ``structured_method`` overrides what a row says of
typed replies. A knob that a model does not have is left out of its requests.
"""

from __future__ import annotations

from typing import Literal

from tradingagents_core.errors import SettingsError
from tradingagents_core.llm.capability_table import (
    CAPABILITIES,
    Capability,
    Fields,
    StructuredMethod,
)
from tradingagents_core.settings import ModelSpec

Transport = Literal["open", "refuse"]
# Clients insist on some key; servers that check none never look at it.
NO_KEY = "no-key"
STRUCTURED_METHODS: tuple[StructuredMethod, ...] = (
    "json_schema",
    "function_calling",
    "json_mode",
    "none",
)


def capability_of(spec: ModelSpec) -> Capability:
    """Return the row of a model; of a provider without one, what all models share."""
    rows = [
        row
        for row in CAPABILITIES
        if row.provider == spec.provider and spec.model.lower().startswith(row.prefix)
    ]
    default = Capability(provider=spec.provider, prefix="", structured_method="function_calling")
    return max(rows, key=lambda row: len(row.prefix), default=default)


def structured_method(spec: ModelSpec) -> StructuredMethod:
    """Return how a model is asked for typed replies: the setting's word, else the table's.

    Raises:
        SettingsError: For a word that is no method.
    """
    if spec.structured_method is None:
        return capability_of(spec).structured_method
    for method in STRUCTURED_METHODS:
        if method == spec.structured_method:
            return method
    raise SettingsError(
        f"structured_method {spec.structured_method!r} is none of " + ", ".join(STRUCTURED_METHODS)
    )


def structured_method_of(model: object) -> StructuredMethod:
    """Return the method of a model that the factory built.

    A chat model from elsewhere is asked through ``bind_tools``, the one way that all share.
    """
    method = getattr(model, "structured_method", None)
    return method if method in STRUCTURED_METHODS else "function_calling"


def temperature_of(spec: ModelSpec) -> float | None:
    """Return the temperature that a model is sent: the setting's, or None where it takes none."""
    return spec.temperature if capability_of(spec).temperature else None


def effort_of(spec: ModelSpec) -> Fields:
    """Return the fields that say a model how long to think: none where it has no such knob.

    Raises:
        SettingsError: The word is none of the model's.
    """
    efforts = capability_of(spec).efforts
    if spec.reasoning_effort is None or not efforts:
        return {}
    if spec.reasoning_effort not in efforts:
        raise SettingsError(
            f"reasoning_effort {spec.reasoning_effort!r} is no word of {spec.model!r} of provider "
            f"{spec.provider!r}: write one of {', '.join(efforts)}"
        )
    return efforts[spec.reasoning_effort]


def check_knobs(*specs: ModelSpec) -> None:
    """Refuse a knob that was set for a run none of whose models has it.

    Raises:
        SettingsError: It would be left out of every request.
    """
    rows = [capability_of(spec) for spec in specs]
    names = " and ".join(sorted({f"{spec.model!r} of {spec.provider!r}" for spec in specs}))
    warm = any(spec.temperature is not None for spec in specs)
    if warm and not any(row.temperature for row in rows):
        raise SettingsError(f"{names}: takes no temperature: leave temperature out")
    thinks = any(spec.reasoning_effort is not None for spec in specs)
    if thinks and not any(row.efforts for row in rows):
        raise SettingsError(f"{names}: has no reasoning effort to set: leave reasoning_effort out")
