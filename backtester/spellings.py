"""How settings are written: names of other products' configurations, and values as text.

TradingAgents' own names are taken wherever a setting may stand, so that a configuration, a ``.env``
or a script of its users goes on working. What has no place here is refused with what to do
instead, never ignored.

A value that comes as text (a variable, ``--set``) is read strictly by the type of its field:
``treu`` is no truth value and ``1.5`` no whole number.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_args, get_origin

from backtester.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Alias:
    """Say which setting another name stands for.

    Attributes:
        key: Field of `RunConfig`.
        provider: Provider whose runs it concerns; those of others leave it out. Empty for all.
    """

    key: str
    provider: str = ""


ALIASES: Mapping[str, Alias] = MappingProxyType(
    {
        "llm_provider": Alias(key="provider"),
        "quick_think_llm": Alias(key="quick_model"),
        "deep_think_llm": Alias(key="deep_model"),
        "backend_url": Alias(key="base_url"),
        "llm_backend_url": Alias(key="base_url"),
        "selected_analysts": Alias(key="analysts"),
        "max_recur_limit": Alias(key="recursion_limit"),
        "max_risk_rounds": Alias(key="max_risk_discuss_rounds"),
        "benchmark_ticker": Alias(key="benchmark"),
        "results_dir": Alias(key="reports_dir"),
        # One knob under three names, each for the runs of one provider.
        "openai_reasoning_effort": Alias(key="reasoning_effort", provider="openai"),
        "google_thinking_level": Alias(key="reasoning_effort", provider="google"),
        "anthropic_effort": Alias(key="reasoning_effort", provider="anthropic"),
    }
)
WITHOUT_PLACE: Mapping[str, str] = MappingProxyType(
    {
        "project_dir": "there is no project folder: set data_dir and reports_dir",
        "data_cache_dir": "market data are frozen into snapshots: set data_dir",
        "cache_dir": "market data and replies lie below one folder: set data_dir",
        "memory_log_path": "the decision log is written beside the reports: set reports_dir",
        "global_news_queries": "news come from the snapshot: choose them when it is frozen",
        "debug": "give --debug on the command line",
    }
)
# Kinds of data that a chain of vendors may be named for, as TradingAgents calls them.
VENDOR_CATEGORIES = (
    "core_stock_apis",
    "technical_indicators",
    "fundamental_data",
    "news_data",
    "macro_data",
    "prediction_markets",
)
_TRUTH = {
    **dict.fromkeys(("true", "yes", "on", "1"), True),
    **dict.fromkeys(("false", "no", "off", "0"), False),
}
_WHOLE = re.compile(r"[+-]?\d{1,18}")


@dataclass(frozen=True, kw_only=True)
class Given:
    """Hold one setting as somebody gave it.

    Attributes:
        name: Name under which it came.
        where: File or variable that it stands in, for messages.
        value: What was given.
    """

    name: str
    where: str
    value: Any

    @property
    def key(self) -> str:
        """The field of `RunConfig` that is meant."""
        return ALIASES[self.name].key if self.name in ALIASES else self.name


def merge(layers: Iterable[Iterable[Given]], *, provider: str) -> dict[str, Given]:
    """Let later layers win; what is meant for another provider than the chosen one is left out.

    Args:
        layers: Lowest first.
        provider: The one that is in force where no layer names one.

    Returns:
        Field -> what it was given.

    Raises:
        UsageError: One layer gives a setting twice, under two names, with different values.
    """
    held = [list(layer) for layer in layers]
    named = [item for layer in held for item in layer if item.key == "provider"]
    provider = named[-1].value if named else provider
    merged: dict[str, Given] = {}
    for layer in held:
        found: dict[str, Given] = {}
        for item in layer:
            alias = ALIASES.get(item.name)
            if alias is not None and alias.provider not in ("", provider):
                continue
            twin = found.setdefault(item.key, item)
            if twin.value != item.value:
                raise UsageError(
                    f"{twin.where} and {item.where} both set {item.key}, to {twin.value!r} and "
                    f"{item.value!r}: keep one of them"
                )
        merged.update(found)
    return merged


def value_of_text(annotation: Any, text: str) -> Any:
    """Read a value by the type of its field.

    Args:
        annotation: The field's type, such as ``int | None`` or ``tuple[str, ...]``.
        text: As somebody wrote it.

    Raises:
        ValueError: With what to write instead.
    """
    kinds = frozenset(_kinds(annotation))
    text = text.strip()
    for kind, read in _READERS.items():
        if kind in kinds and not (kind is tuple and str in kinds and "," not in text):
            return read(text)
    return text


def chains(value: object) -> object:
    """Split vendor chains that are written as one word: ``"yfinance,alpha_vantage"``."""
    if not isinstance(value, Mapping):
        return value
    return {
        key: _parts(chain) if isinstance(chain, str) else chain
        for key, chain in sorted(value.items())
    }


def known_chains(
    value: Mapping[str, tuple[str, ...]], known: Iterable[str]
) -> Mapping[str, tuple[str, ...]]:
    """Return chains of vendors as they are.

    Raises:
        ValueError: One stands under a name that is not known, or holds no vendor.
    """
    for name, chain in value.items():
        if name not in known:
            raise ValueError(f"there is no {name!r}: write one of {', '.join(known)}")
        if not chain:
            raise ValueError(f"{name} has no vendor: name one, or leave it out")
    return value


def _kinds(annotation: Any) -> Iterator[Any]:
    """Yield the plain classes that a type is made of, the members of containers left out."""
    origin = get_origin(annotation)
    if origin is None:
        yield annotation
    elif isinstance(origin, type) and issubclass(origin, tuple | Mapping):
        yield Mapping if issubclass(origin, Mapping) else tuple
    else:
        for part in get_args(annotation):
            yield from _kinds(part) if not isinstance(part, str) else (str,)


def _truth(text: str) -> bool:
    word = text.lower()
    if word not in _TRUTH:
        raise ValueError(f"{text!r} is no truth value: write true or false")
    return _TRUTH[word]


def _whole(text: str) -> int:
    if not _WHOLE.fullmatch(text):
        raise ValueError(f"{text!r} is no whole number: write digits alone, such as 3")
    return int(text)


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"{text!r} is no number: write one such as 0.5")
    return value


def _parts(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _pairs(text: str) -> dict[str, str]:
    pairs = {}
    for part in text.split(";"):
        key, equals, value = part.partition("=")
        if part.strip() and not equals:
            raise ValueError(f"{part.strip()!r} has no '=': write KEY=VALUE;KEY=VALUE")
        if part.strip():
            pairs[key.strip()] = value.strip()
    return pairs


_READERS: Mapping[Any, Callable[[str], Any]] = MappingProxyType(
    {bool: _truth, int: _whole, float: _number, tuple: _parts, Mapping: _pairs, Path: Path}
)
