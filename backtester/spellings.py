"""How settings are written: names of other products' configurations, and values as text.

TradingAgents' own names are taken wherever a setting may stand, so that a configuration, a ``.env``
or a script of its users goes on working. What has no place here is refused with what to do
instead, never ignored.

A value that comes as text (a variable, ``--set``) is read strictly by the type of its field:
``treu`` is no truth value and ``1.5`` no whole number. What does not fit is said in plain words,
whatever the validation library calls it.
"""

from __future__ import annotations

import difflib
import math
import re
import tomllib
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_args, get_origin

from backtester.errors import UsageError
from backtester.named_files import SETTINGS_BYTES, read_named
from tradingagents_core.symbols import normalize_symbol

# Of variables that are settings; the later one wins.
ENV_PREFIXES = ("TRADINGAGENTS_", "BACKTESTER_")


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
        "debug": "give --debug on the command line, or debug=True to TradingAgentsGraph",
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
NO_BENCHMARK = "none"
MOST_WORKERS = 256
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_NAME_LIMIT = 255
_PATH_LIMIT = 4_000
_SHOWN = 60
# How a setting that has no default is given.
_FLAGS: Mapping[str, str] = MappingProxyType(
    {
        "tickers": "--tickers AAPL,MSFT",
        "start": "--start 2018-01-01",
        "end": "--end 2018-12-31",
    }
)
# What a value should have been, by the first word of the validation library's error types.
_WANTED: Mapping[str, str] = MappingProxyType(
    {
        "int": "is no whole number: write digits alone, such as 3",
        "float": "is no number: write one such as 0.5",
        "finite": "is no number: write one such as 0.5",
        "bool": "is no truth value: write true or false",
        "string": 'is no text: write it in quotes, such as "English"',
        "path": 'is no path: write it in quotes, such as "reports"',
        "date": "is no date: write YYYY-MM-DD",
        "datetime": "is no time: write it like 2018-06-29T20:00:00Z",
        "tuple": 'is no list: write one such as ["AAPL", "MSFT"]',
        "dict": 'is no table: write names with values, such as {".T" = "^N225"}',
        "model": "is no table of names with values",
        "missing": "is missing",
        "extra": "is unknown: leave it out",
        "json": "is no JSON",
    }
)
_BOUNDS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "greater_than": ("gt", "is too small: write more than {}"),
        "greater_than_equal": ("ge", "is too small: write {} or more"),
        "less_than": ("lt", "is too large: write less than {}"),
        "less_than_equal": ("le", "is too large: write {} or less"),
    }
)


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
            if twin is not item and twin.value != item.value:
                raise UsageError(
                    f"{twin.where} and {item.where} both set {item.key}, to {shown(twin.value)} "
                    f"and {shown(item.value)}: keep one of them"
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


def day(value: object) -> object:
    """Read a date that is written out; other types are left to the validation.

    Raises:
        ValueError: For other text, or a number, which no date is.
    """
    if isinstance(value, str):
        try:
            if _DAY.fullmatch(value.strip()):
                return date.fromisoformat(value.strip())
        except ValueError:
            pass
    if isinstance(value, date):
        return value
    raise ValueError(f"{shown(value)} is no date: write YYYY-MM-DD, such as 2018-06-29")


def grid(value: object) -> object:
    """Read a grid: a word for one, or dates, of which a single one makes a list too.

    Raises:
        ValueError: A part of a list is no date, or it holds none.
    """
    if isinstance(value, str) and "," not in value and not value.strip()[:1].isdigit():
        return value
    listed = (
        _parts(value)
        if isinstance(value, str)
        else tuple(value)
        if isinstance(value, Sequence)
        else (value,)
    )
    if not listed:
        raise ValueError("the list is empty: write daily, weekly, monthly, 'every 5' or dates")
    return tuple(map(day, listed))


def folder(value: object) -> object:
    """Refuse a path that no system could open; whether it is there is another question.

    Raises:
        ValueError: With what is wrong with it.
    """
    if isinstance(value, str | Path) and not can_be_opened(str(value)):
        raise ValueError(
            f"{shown(str(value))} is no path: name a folder, each part in 1 to {_NAME_LIMIT} "
            "characters"
        )
    if isinstance(value, str | Path) and str(value).startswith("~"):
        raise ValueError(f"{shown(str(value))} has a '~' that no shell read: write the whole path")
    return value


def one_line(text: str) -> None:
    """Refuse a text that a prompt, a terminal or a file could not take as it is.

    Raises:
        ValueError: It holds a control character or half of a surrogate pair.
    """
    if any(unicodedata.category(sign) in ("Cc", "Cs") for sign in text):
        raise ValueError(f"{shown(text)} is no text of one line: write printable UTF-8")


def can_be_opened(path: str) -> bool:
    """Say whether a text could be the path of something."""
    data = path.encode(errors="surrogateescape")
    fits = all(len(part) <= _NAME_LIMIT for part in data.split(b"/"))
    return bool(data) and b"\0" not in data and fits and len(data) <= _PATH_LIMIT


def variable(value: object) -> object:
    """Refuse what cannot name a variable of the environment, and do not show it: it may be a key.

    Raises:
        ValueError: With what to write instead.
    """
    if isinstance(value, str) and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", value):
        raise ValueError(
            "this is no variable's name: write the name of the variable that holds the key, such "
            "as OPENAI_API_KEY, and never the key itself"
        )
    return value


def check_ticker(ticker: str) -> None:
    """Refuse a ticker that cannot be one, before it reaches a path, a query or a prompt.

    Raises:
        ValueError: With what a ticker looks like.
    """
    allowed = set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-^=")
    if not ticker or len(ticker) > 20 or not set(ticker) <= allowed or ".." in ticker:
        raise ValueError(
            f"{shown(ticker)} is no ticker: write letters, digits and . - ^ = (at most 20), "
            "such as AAPL, 7203.T or ^GSPC"
        )


def symbol(text: str) -> str:
    """Return a symbol in its one spelling.

    Raises:
        ValueError: It cannot be one.
    """
    normal = normalize_symbol(text)
    check_ticker(normal)
    return normal


def benchmark(text: str) -> str:
    """Return the symbol of a benchmark, or the word for none.

    Raises:
        ValueError: It is neither.
    """
    return NO_BENCHMARK if text.strip().lower() == NO_BENCHMARK else symbol(text)


def suffixes(value: Mapping[str, str]) -> dict[str, str]:
    """Return benchmarks by bare upper-case suffix, sorted.

    Raises:
        ValueError: A benchmark cannot be one.
    """
    bare = {suffix.strip().lstrip(".").upper(): benchmark(to) for suffix, to in value.items()}
    return dict(sorted(bare.items()))


# --------------------------------------------------------------------------------- what is said


def shown(value: object) -> str:
    """Return a value as a message quotes it: on one line, and cut where it is long."""
    try:
        text = str(value).lower() if isinstance(value, bool) else repr(value)
    except (ValueError, RecursionError):
        return "a value beyond all bounds"
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 20]}... ({len(text)} characters)"


def nearest(name: str, known: Iterable[str]) -> str:
    """Return what to do about a name that is not known: the one that was meant, or the list."""
    near = difflib.get_close_matches(name[:_NAME_LIMIT], tuple(known), n=1, cutoff=0.6)
    return f"did you mean {near[0]!r}?" if near else "'backtester settings' lists the known ones"


def missing(names: Sequence[str]) -> str:
    """Return what to say about settings that have no default and were not given."""
    said = " and ".join((*(", ".join(names[:-1]),) * (len(names) > 1), names[-1]))
    flags = " ".join(_FLAGS.get(name, f"--set {name}=...") for name in names)
    verb = "is" if len(names) == 1 else "are"
    return (
        f"{said} {verb} missing: add {flags}, or set {'it' if verb == 'is' else 'them'} in a file"
    )


def plain(kind: str, message: str, value: object, context: Mapping[str, Any]) -> str:
    """Return one problem that the validation library found, in words that need no library.

    Args:
        kind: Type of the error.
        message: The library's own words; those of a check of ours are kept.
        value: What was given.
        context: The error's details, such as a bound.
    """
    if kind == "value_error":
        return message.removeprefix("Value error, ")
    if kind == "literal_error":
        return f"{shown(value)} is not known: write {context['expected']}"
    if kind in _BOUNDS and not (isinstance(value, float) and math.isnan(value)):
        name, words = _BOUNDS[kind]
        bound = context[name]
        return f"{shown(value)} {words.format(f'{bound:g}' if isinstance(bound, float) else bound)}"
    word = "finite" if kind in _BOUNDS else kind.partition("_")[0]
    wanted = _WANTED.get(word, "does not fit: see 'backtester settings'")
    return wanted if word in ("missing", "extra", "json") else f"{shown(value)} {wanted}"


def read_toml(path: Path, *, what: str = "config file") -> dict[str, Any]:
    """Read a TOML file of settings.

    Raises:
        UsageError: It is missing, cannot be read, or is not TOML.
    """
    try:
        return tomllib.loads(read_named(path, most=SETTINGS_BYTES).decode())
    except FileNotFoundError as error:
        raise UsageError(f"{what} {path} does not exist: check the path") from error
    except OSError as error:
        raise UsageError(
            f"{what} {path} cannot be read ({error.strerror}): name a TOML file"
        ) from error
    except RecursionError as error:
        raise UsageError(
            f"{what} {path} is nested too deeply: write settings as NAME = VALUE"
        ) from error
    # An integer of thousands of digits is a ValueError of its own.
    except ValueError as error:
        raise UsageError(f"{what} {path} is not valid TOML: {error}") from error


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
        raise ValueError(f"{shown(text)} is no truth value: write true or false")
    return _TRUTH[word]


def _whole(text: str) -> int:
    if not _WHOLE.fullmatch(text):
        raise ValueError(f"{shown(text)} is no whole number: write digits alone, such as 3")
    return int(text)


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"{shown(text)} is no number: write one such as 0.5")
    return value


def _path(text: str) -> Path:
    if not text:
        raise ValueError("is empty: name a folder, or leave it out")
    return Path(text)


def _parts(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _pairs(text: str) -> dict[str, str]:
    pairs = {}
    for part in text.split(";"):
        key, equals, value = part.partition("=")
        if part.strip() and not equals:
            raise ValueError(f"{part.strip()!r} has no '=': write KEY=VALUE;KEY=VALUE")
        if part.strip() and key.strip() in pairs:
            raise ValueError(f"{key.strip()!r} is given twice: keep one of them")
        if part.strip():
            pairs[key.strip()] = value.strip()
    return pairs


_READERS: Mapping[Any, Callable[[str], Any]] = MappingProxyType(
    {bool: _truth, int: _whole, float: _number, tuple: _parts, Mapping: _pairs, Path: _path}
)
