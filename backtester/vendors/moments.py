"""Instants out of what vendors write: epochs, ISO texts with and without zone, plain dates.

A date stands for the *end* of that day in the zone of its source, so that nothing is known too
early. A time of day without a zone is read in a zone that somebody has named, never the machine's.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from backtester.schema import known_at_day

NEW_YORK: Final = "America/New_York"
# Epochs of a later unit begin where those of the one before would be beyond the year 5000.
_UNITS: Final = ((10**11, 1), (10**14, 1_000), (10**17, 1_000_000))


def end_of_day(day: date, zone: str = NEW_YORK) -> datetime:
    """Return the last microsecond of a day in a zone, as UTC; days of 23 and 25 hours too."""
    return known_at_day(day, zone)


def from_epoch(number: int) -> datetime:
    """Return the instant of an epoch in seconds, milli-, micro- or nanoseconds, by its size.

    Raises:
        ValueError: It is no instant.
    """
    size = abs(number)
    unit = next((unit for below, unit in _UNITS if size < below), 1_000_000_000)
    try:
        whole, rest = divmod(number, unit)
        moment = timedelta(seconds=whole, microseconds=rest * 1_000_000 // unit)
        return datetime.fromtimestamp(0, UTC) + moment
    except (OverflowError, ValueError) as error:
        raise ValueError(f"{number} is no instant") from error


def from_text(text: str, zone: str | None = None) -> datetime | date:
    """Return the instant, or the plain date, that a text writes.

    Args:
        text: ISO 8601, or digits of an epoch; Alpha Vantage's ``20240501T153000`` counts as ISO.
        zone: Zone of a time that names none.

    Raises:
        ValueError: It is neither, or is a time whose zone nobody has named.
    """
    word = text.strip()
    if word.lstrip("+-").isdigit() and len(word) > 8:
        return from_epoch(int(word))
    if len(word) in (8, 10) and "T" not in word:
        return date.fromisoformat(word)
    read = datetime.fromisoformat(word)
    if read.tzinfo is None:
        if zone is None:
            raise ValueError(f"{word!r} names no zone: say which zone its times are in")
        read = read.replace(tzinfo=ZoneInfo(zone))
    return read.astimezone(UTC)


def known_from(text: str, zone: str | None = None) -> datetime:
    """Return when something became public that is stamped with a text; a date: end of that day.

    Args:
        text: See `from_text`.
        zone: Zone of dates, and of times that name none; dates without it are New York's.

    Raises:
        ValueError: As `from_text`.
    """
    read = from_text(text, zone)
    return read if isinstance(read, datetime) else end_of_day(read, zone or NEW_YORK)
