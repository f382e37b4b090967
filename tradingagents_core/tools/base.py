"""What a tool is: a name, a description, arguments, and a function from a view to text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from typing import Any

from pydantic import BaseModel

from tradingagents_core.errors import ToolInputError
from tradingagents_core.protocols import Identity, Row, View
from tradingagents_core.tools.text import one_line


@dataclass(frozen=True, kw_only=True)
class ToolLimits:
    """Bound what a tool shows where its caller names no bound of its own.

    Attributes:
        news_days: Calendar days of news about an instrument.
        news_items: Items of one answer, the newest.
        global_news_days: Calendar days of news about the world.
        global_news_items: Items of one answer, the newest.
    """

    news_days: int = 7
    news_items: int = 20
    global_news_days: int = 7
    global_news_items: int = 20


@dataclass(frozen=True, kw_only=True)
class Tool:
    """Describe one tool that an analyst can call.

    Attributes:
        name: Wire name.
        description: What it answers, for the model.
        args: Pydantic model of its arguments.
        run: Reads the view within the limits and returns the answer; raises `ToolInputError` or
            `DataUnavailable` for what it cannot answer.
    """

    name: str
    description: str
    args: type[BaseModel]
    run: Callable[[View, Any, ToolLimits], str]


def look_up(view: View, symbol: str) -> Identity:
    """Return the instrument that a model named.

    Only a symbol that was valid on the simulated date is one: a later name of the company is not
    known yet.

    Raises:
        ToolInputError: For any other word.
    """
    return view.identity(view.resolve(symbol))


def title(identity: Identity) -> str:
    """Name an instrument in a header: symbol and name at the cutoff."""
    return f"{identity.symbol} ({one_line(identity.name, 80)})"


def days_back(end: date, days: int) -> date:
    """Return the date so many calendar days earlier, held at the calendar's first day."""
    return date.fromordinal(max(1, end.toordinal() - days))


def rows_from(
    view: View,
    table: str,
    symbol: str | None = None,
    *,
    start: date,
    end: date | None,
    last: int | None = None,
) -> tuple[Row, ...]:
    """Return the rows of a window whose start no model chose.

    One that begins before the data's range is no error, as a date of a model's own would be.
    """
    try:
        return view.rows(table, symbol, start=start, end=end, last=last)
    except ToolInputError:
        found = view.rows(table, symbol, end=end)
    found = tuple(row for row in found if row.known_at.date() >= start)
    return found if last is None else found[-last:]


def cut_notes(view: View, **asked: date | None) -> list[str]:
    """Say which of the dates asked for lay after the simulated date and were cut to it."""
    return [
        f"# {name} {day} lies after the simulated date and was cut to it"
        for name, day in asked.items()
        if day is not None and day > view.session
    ]


def withheld_notes(
    view: View, table: str, symbol: str | None = None, *, end: date | None = None
) -> list[str]:
    """Say, as lines of an answer, how many rows of a table the run's settings keep back."""
    count = view.withheld(table, symbol, end=end)
    return [f"# {_withheld(count, table)}"] if count else []


def withheld_clause(
    view: View, table: str, symbol: str | None = None, *, end: date | None = None
) -> str:
    """Say the same as the end of a sentence; empty where no row is kept back."""
    count = view.withheld(table, symbol, end=end)
    return f"; {_withheld(count, table)}" if count else ""


def _withheld(count: int, table: str) -> str:
    if count == 1:
        return f"1 row of {table} is withheld: when it became public is only estimated"
    return f"{count} rows of {table} are withheld: when they became public is only estimated"
