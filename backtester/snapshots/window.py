"""The dates of a read: what a call asked for, held at what a view may answer."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

from tradingagents_core.errors import ToolInputError


@dataclass(frozen=True, kw_only=True)
class Window:
    """Hold the dates of a read.

    Attributes:
        start: First date, or None for no limit.
        until: Last one.
        bounded: Whether the call named a last date.
        clamped: Whether a date after the simulated one had been asked for.
    """

    start: date | None
    until: date
    bounded: bool
    clamped: bool


def window_of(
    start: date | None, end: date | None, *, bound: date, session: date, first_day: date
) -> Window:
    """Return the dates of a call, none of them after a bound.

    Args:
        start: First date asked for, or None.
        end: Last one, or None.
        bound: Newest date that may be answered.
        session: The simulated date.
        first_day: First date of the data.

    Raises:
        ToolInputError: A date lies before the data, or the dates are reversed.
    """
    asked = [day for day in (start, end) if day is not None]
    if start is not None and end is not None and start > end:
        raise ToolInputError(f"the window begins on {start}, after its end {end}: swap them")
    if asked and min(asked) < first_day:
        raise ToolInputError(
            f"{min(asked)} is before {first_day}, the first date of the data: ask for a "
            "later date or look back less far"
        )
    until = bound if end is None else min(end, bound)
    return Window(
        start=None if start is None else min(start, until),
        until=until,
        bounded=end is not None,
        clamped=any(day > session for day in asked),
    )
