"""Walk-forward folds: a window cut into consecutive spans of calendar time.

A decision belongs to the fold that holds its session, however far its return window reaches.
"""

from __future__ import annotations

import calendar
import re
from dataclasses import dataclass
from datetime import date, timedelta

from backtester.errors import UsageError

_LENGTH = re.compile(r"([1-9][0-9]{0,3})([DWMQY])", re.IGNORECASE)
_MONTHS = {"M": 1, "Q": 3, "Y": 12}
_DAYS = {"D": 1, "W": 7}


@dataclass(frozen=True, kw_only=True)
class Fold:
    """Hold one span of a window.

    Attributes:
        index: From 0, oldest first.
        label: ``first day/last day``, as a person reads it.
        start: First day, a calendar day.
        end: Last day, inclusive.
        whole: Whether it has its full length; the last one may be cut by the window's end.
    """

    index: int
    label: str
    start: date
    end: date
    whole: bool

    def holds(self, session: date) -> bool:
        """Say whether a session lies in it."""
        return self.start <= session <= self.end


def walk_forward_folds(start: date, end: date, *, length: str) -> tuple[Fold, ...]:
    """Cut ``start`` to ``end`` (both inclusive) into folds, oldest first.

    Every fold starts a whole number of lengths after ``start``; where that month has no such day
    (the 31st), on its last day.

    Args:
        start: First day of the first fold.
        end: Last day that any fold may hold.
        length: A number and ``D``, ``W``, ``M``, ``Q`` or ``Y``: ``6M`` is half a year.

    Raises:
        UsageError: For a length that is none, or a window that ends before it starts.
    """
    if end < start:
        raise UsageError(f"the window {start} to {end} ends before it starts: swap the dates")
    read = _LENGTH.fullmatch(length.strip())
    if read is None:
        raise UsageError(
            f"'{length}' is no length of a fold: a number and D, W, M, Q or Y, for example 6M"
        )
    count, unit = int(read[1]), read[2].upper()
    folds: list[Fold] = []
    first = start
    while first <= end:
        following = _later(start, count * (len(folds) + 1), unit)
        last = min(end, following - timedelta(days=1))
        folds.append(
            Fold(
                index=len(folds),
                label=f"{first}/{last}",
                start=first,
                end=last,
                whole=following - timedelta(days=1) <= end,
            )
        )
        first = following
    return tuple(folds)


def _later(day: date, count: int, unit: str) -> date:
    try:
        if unit in _DAYS:
            return day + timedelta(days=count * _DAYS[unit])
        months = day.year * 12 + day.month - 1 + count * _MONTHS[unit]
        year, month = divmod(months, 12)
        last = calendar.monthrange(year, month + 1)[1]
        return date(year, month + 1, min(day.day, last))
    except (OverflowError, ValueError):
        return date.max
