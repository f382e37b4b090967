"""The arguments of the tools: what a model may send, and how everything else is answered.

Nothing that a model writes may crash a cell, and nothing may be guessed. A field that cannot be
read is a `ToolInputError` whose text names the field, what came and what is expected; it becomes
the tool's answer, and the model may try again. A word for nothing (``""``, ``null``, ``N/A``)
counts as not given. Fields that the tool does not have are ignored and named in the answer.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import date, datetime
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, WithJsonSchema
from pydantic_core import ErrorDetails

from tradingagents_core.errors import ToolInputError
from tradingagents_core.symbols import normalize_symbol
from tradingagents_core.tools.text import quoted

MAX_ARGUMENTS = 20_000
MAX_DAYS = 3_650
_NOTHING = frozenset({"", "null", "none", "nil", "nan", "n/a", "na", "undefined", "unknown", "-"})
_NOW = frozenset({"now", "today", "latest", "current"})
_FREQUENCIES = {
    "quarterly": "quarterly",
    "quarter": "quarterly",
    "q": "quarterly",
    "annual": "annual",
    "annually": "annual",
    "yearly": "annual",
    "year": "annual",
    "a": "annual",
}
_ALIASES = {"symbol": "ticker", "ticker": "symbol"}

Model = TypeVar("Model", bound=BaseModel)


def _is_nothing(value: object) -> bool:
    return value is None or (isinstance(value, str) and value.strip().lower() in _NOTHING)


def _symbol(value: object) -> str:
    if not isinstance(value, str) or _is_nothing(value):
        raise ValueError("write a ticker symbol, such as AAPL")
    return normalize_symbol(value)


def _word(value: object) -> str:
    if not isinstance(value, str) or _is_nothing(value):
        raise ValueError("write it as text")
    return value.strip()


def _names(value: object) -> str:
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        value = ",".join(value)
    return _word(value)


def _day(value: object) -> date | None:
    if _is_nothing(value) or (isinstance(value, str) and value.strip().lower() in _NOW):
        return None
    if isinstance(value, str):
        try:
            return datetime.fromisoformat(value.strip()).date()
        except ValueError:
            pass
    raise ValueError("write a date as YYYY-MM-DD, such as 2018-06-29")


def _count(value: object) -> int | None:
    if _is_nothing(value):
        return None
    number = value
    if isinstance(value, str) and value.strip().isdecimal() and len(value) < 10:
        number = int(value)
    if isinstance(number, float) and number.is_integer():
        number = int(number)
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= MAX_DAYS:
        raise ValueError(f"write a whole number from 1 to {MAX_DAYS}")
    return number


def _frequency(value: object) -> str:
    if _is_nothing(value):
        return "quarterly"
    word = value.strip().lower() if isinstance(value, str) else ""
    if word in _FREQUENCIES:
        return _FREQUENCIES[word]
    raise ValueError("write quarterly or annual")


_DAY_SCHEMA = WithJsonSchema({"type": "string", "format": "date"})
_COUNT_SCHEMA = WithJsonSchema({"type": "integer", "minimum": 1, "maximum": MAX_DAYS})
_TEXT_SCHEMA = WithJsonSchema({"type": "string"})

Symbol = Annotated[str, BeforeValidator(_symbol), _TEXT_SCHEMA]
Word = Annotated[str, BeforeValidator(_word), _TEXT_SCHEMA]
Names = Annotated[str, BeforeValidator(_names), _TEXT_SCHEMA]
Day = Annotated[date | None, BeforeValidator(_day), _DAY_SCHEMA]
Count = Annotated[int | None, BeforeValidator(_count), _COUNT_SCHEMA]
Frequency = Annotated[
    str,
    BeforeValidator(_frequency),
    WithJsonSchema({"type": "string", "enum": ["quarterly", "annual"]}),
]

_SYMBOL_WORDS = "Ticker symbol as valid on the simulated date, with its exchange suffix."
_CURR_DATE_WORDS = "Date to look from, YYYY-MM-DD; default and latest: the simulated date."
_END_WORDS = "Last date, YYYY-MM-DD; default and latest: the simulated date."


class Arguments(BaseModel):
    """Base of all tools' arguments."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class PriceArguments(Arguments):
    """Arguments of ``get_stock_data``."""

    symbol: Symbol = Field(description=_SYMBOL_WORDS)
    start_date: Day = Field(
        None, description="First date, YYYY-MM-DD; default: 30 sessions before the last one."
    )
    end_date: Day = Field(None, description=_END_WORDS)


class IndicatorArguments(Arguments):
    """Arguments of ``get_indicators``."""

    symbol: Symbol = Field(description=_SYMBOL_WORDS)
    indicator: Names = Field(
        description="Indicator name exactly as in the menu; several are separated by commas."
    )
    curr_date: Day = Field(None, description=_CURR_DATE_WORDS)
    look_back_days: Count = Field(
        None, description="Calendar days to look back; default: 30 sessions."
    )


class SnapshotArguments(Arguments):
    """Arguments of ``get_verified_market_snapshot``."""

    symbol: Symbol = Field(description=_SYMBOL_WORDS)
    curr_date: Day = Field(None, description=_CURR_DATE_WORDS)


class CompanyArguments(Arguments):
    """Arguments of the company tools without a period."""

    ticker: Symbol = Field(description=_SYMBOL_WORDS)
    curr_date: Day = Field(None, description=_CURR_DATE_WORDS)


class StatementArguments(Arguments):
    """Arguments of the statement tools."""

    ticker: Symbol = Field(description=_SYMBOL_WORDS)
    freq: Frequency = Field("quarterly", description="Length of the periods.")
    curr_date: Day = Field(None, description=_CURR_DATE_WORDS)


class NewsArguments(Arguments):
    """Arguments of ``get_news``."""

    ticker: Symbol = Field(description=_SYMBOL_WORDS)
    start_date: Day = Field(
        None, description="First date, YYYY-MM-DD; default: some days before the last one."
    )
    end_date: Day = Field(None, description=_END_WORDS)


class GlobalNewsArguments(Arguments):
    """Arguments of ``get_global_news``."""

    curr_date: Day = Field(None, description=_CURR_DATE_WORDS)
    look_back_days: Count = Field(None, description="Calendar days to look back; may be left out.")
    limit: Count = Field(None, description="At most so many items, the newest; may be left out.")


class MacroArguments(Arguments):
    """Arguments of ``get_macro_indicators``."""

    indicator: Word = Field(description="Name or series id, such as CPI or unemployment.")
    curr_date: Day = Field(None, description=_CURR_DATE_WORDS)
    look_back_days: Count = Field(None, description="Calendar days to look back; default: 365.")


class MarketOddsArguments(Arguments):
    """Arguments of ``get_prediction_markets``."""

    topic: Word = Field(description="What the market's question is about, in a word or two.")
    curr_date: Day = Field(None, description=_CURR_DATE_WORDS)
    limit: Count = Field(None, description="At most so many markets; default: 6.")


def parse_arguments(model: type[Model], args_json: str) -> tuple[Model, tuple[str, ...]]:
    """Read the JSON text of a tool call.

    Args:
        model: Arguments of the tool.
        args_json: As the model wrote it; empty text counts as no arguments.

    Returns:
        The arguments, and the names of those that the tool does not have, sorted.

    Raises:
        ToolInputError: For text that is no JSON object, or a field that cannot be read.
    """
    given = _object(args_json)
    known = model.model_fields
    for name in known:
        alias = _ALIASES.get(name, "")
        if name not in given and alias in given and alias not in known:
            given[name] = given.pop(alias)
    try:
        arguments = model.model_validate(given)
    except ValidationError as error:
        raise ToolInputError(_problems(model, error.errors())) from error
    return arguments, tuple(sorted(name for name in given if name not in known))


def _object(args_json: str) -> dict[str, Any]:
    if not args_json.strip():
        return {}
    if len(args_json) > MAX_ARGUMENTS:
        raise ToolInputError(
            f"the arguments are {len(args_json)} characters long: write a short JSON object"
        )
    try:
        value = json.loads(args_json)
        if isinstance(value, str):  # an object that was encoded twice
            value = json.loads(value) if value.strip() else {}
    except (ValueError, RecursionError) as error:
        raise ToolInputError(
            f"the arguments {quoted(args_json)} are no JSON: write an object such as "
            '{"symbol": "AAPL"}'
        ) from error
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ToolInputError(
            f'the arguments are {quoted(value)}: write a JSON object such as {{"symbol": "AAPL"}}'
        )
    return value


def _problems(model: type[BaseModel], errors: Iterable[ErrorDetails]) -> str:
    found = []
    for error in errors:
        name = str(error["loc"][0]) if error["loc"] else "arguments"
        if error["type"] == "missing":
            found.append(f"{name} is missing")
        else:
            reason = str(error["msg"]).removeprefix("Value error, ")
            found.append(f"{name} is {quoted(error['input'])}: {reason}")
    fields = ", ".join(
        name if field.is_required() else f"{name} (optional)"
        for name, field in model.model_fields.items()
    )
    return f"{'; '.join(found)}. Arguments: {fields}"
