"""The macro tool: a series as it had been released by the cutoff, each value in its vintage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from decimal import Decimal

from tradingagents_core.errors import DataUnavailable, ToolInputError
from tradingagents_core.protocols import Row, View
from tradingagents_core.tools.base import (
    Tool,
    ToolLimits,
    cut_notes,
    days_back,
    rows_from,
    withheld_clause,
    withheld_notes,
)
from tradingagents_core.tools.inputs import MacroArguments
from tradingagents_core.tools.series import plain, series_of
from tradingagents_core.tools.text import instant_text, one_line, quoted

_TABLE = "macro"
_LOOK_BACK_DAYS = 365
# Of a daily series a year would fill a prompt with what two months tell.
_MOST_ROWS = 60
_MOST_NAMED = 40


def get_macro_indicators(view: View, arguments: MacroArguments, limits: ToolLimits) -> str:
    """Print the observations of one series, oldest first, as of a date."""
    del limits
    view.require(_TABLE)
    end = arguments.curr_date
    day = view.session if end is None else min(end, view.session)
    start = days_back(day, arguments.look_back_days or _LOOK_BACK_DAYS)
    # What the window holds was released within it. Older rows cost time, and are read where the
    # window holds nothing of the series.
    released = rows_from(view, _TABLE, start=start, end=end)
    chosen, vintage = _vintage(arguments.indicator, released)
    if chosen is None or max(vintage) < start:
        released = view.rows(_TABLE, end=end)
        chosen, vintage = _vintage(arguments.indicator, released)
    names = _names(released)
    if chosen is None:
        also = withheld_clause(view, _TABLE, end=end)
        raise DataUnavailable(_nothing(arguments.indicator, names, day) + also)
    periods = sorted(vintage)
    window = [period for period in periods if period >= start]
    notes = withheld_notes(view, _TABLE, end=end) + cut_notes(view, curr_date=end)
    if not window:
        window = periods[-1:]
        notes.append("# No observation lies in this window; the newest one before it is shown")
    if len(window) > _MOST_ROWS:
        window = window[-_MOST_ROWS:]
        notes.append(f"# Only the newest {_MOST_ROWS} observations of the window are shown")
    unit = one_line(str(vintage[window[-1]].fields["unit"]), 80)
    named = f"{one_line(names[chosen], 120)} ({one_line(chosen, 40)})"
    return "\n".join(
        [
            f"# {named}, in {unit}, seen on {view.session}",
            f"# Observations of {start} to {day}, each as it had been released by {day}",
            *notes,
            "Period,Value,Released",
            *(_line(vintage[period]) for period in window),
        ]
    )


def _vintage(word: str, released: Sequence[Row]) -> tuple[str | None, dict[date, Row]]:
    """Return the series that a word names, or None, and its periods as last released."""
    chosen = _choose(word, _names(released))
    # The rows ascend by release, so the last one of a period is the vintage of this day.
    return chosen, {_period(row): row for row in released if row.fields["series"] == chosen}


def _names(rows: Iterable[Row]) -> dict[str, str]:
    return {str(row.fields["series"]): str(row.fields["name"]) for row in rows}


def _choose(word: str, names: Mapping[str, str]) -> str | None:
    """Return the series that a word names, by id, usual word or part of a name; None for none.

    Raises:
        ToolInputError: Several have the word in their names.
    """
    by_fold = {name.casefold(): name for name in sorted(names)}
    if word.casefold() in by_fold:
        return by_fold[word.casefold()]
    for known in series_of(word):
        if known in names:
            return known
    wanted = set(plain(word).split())
    fits = [
        name
        for name in sorted(names)
        if wanted <= set(plain(names[name].replace(":", " ")).split())
    ]
    if len(fits) == 1:
        return fits[0]
    if fits:
        raise ToolInputError(
            f"indicator {quoted(word)} fits several series: write one of {_named(fits, names)}"
        )
    return None


def _nothing(word: str, names: Mapping[str, str], day: date) -> str:
    if not names:
        return f"no economic series had been released up to {day}"
    return (
        f"no series {quoted(word)} had been released up to {day}; on record are "
        f"{_named(sorted(names), names)}"
    )


def _named(series: Iterable[str], names: Mapping[str, str]) -> str:
    return ", ".join(
        f"{one_line(name, 40)} ({one_line(names[name], 60)})" for name in list(series)[:_MOST_NAMED]
    )


def _period(row: Row) -> date:
    period = row.fields["period"]
    if not isinstance(period, date):
        raise TypeError(f"period {period!r} of table {_TABLE} is no date")
    return period


def _line(row: Row) -> str:
    value = row.fields["value"]
    if not isinstance(value, float):
        raise TypeError(f"value {value!r} of table {_TABLE} is no number")
    mark = " (estimated)" if row.fields.get("known_at_basis") == "estimated" else ""
    return f"{_period(row)},{_exact(value)},{instant_text(row.known_at)}{mark}"


def _exact(value: float) -> str:
    """Write a number as its source wrote it: all of its digits, no exponent."""
    text = format(Decimal(repr(value)), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


MACRO_INDICATORS = Tool(
    name="get_macro_indicators",
    description=(
        "Values of an economic series as they had been released by the simulated date, in the "
        "vintage of that day."
    ),
    args=MacroArguments,
    run=get_macro_indicators,
)
