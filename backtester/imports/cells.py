"""Read the cells of a row of decisions: strictly, each with what is wrong with it.

Every function raises ValueError with a sentence for the row's report. Nothing is guessed.
"""

from __future__ import annotations

import math
import re
from datetime import date, datetime
from typing import Final

from backtester import spellings
from tradingagents_core.ratings import tier_of

# In ASCII digits: Python reads those of other scripts, and 1_000, as numbers.
_DAY: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_MOMENT: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ]+[0-9]{2}:[0-9]{2}")
_INSTANT: Final = "is an instant, not a date: write the session of its exchange, as YYYY-MM-DD"
_WHOLE: Final = re.compile(r"[0-9]{1,9}")
_NUMBER: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_NO_RATING: Final = frozenset({"", "none", "n/a", "na", "null", "unread", "review"})


def ticker_of(value: object) -> str:
    """Return a symbol in its one spelling."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError("has no ticker")
    return spellings.symbol(value.strip())


def day_of(value: object) -> date:
    """Return a date; an instant is none, for nobody says which session is meant."""
    if isinstance(value, datetime):
        if value.time() != datetime.min.time():
            raise ValueError(f"{value} {_INSTANT}")
        return value.date()
    if isinstance(value, date):
        return value
    if not isinstance(value, str) or not value.strip():
        raise ValueError("has no date")
    word = value.strip()
    if _MOMENT.match(word):
        raise ValueError(f"{spellings.shown(word)} {_INSTANT}")
    if not _DAY.fullmatch(word):
        raise ValueError(
            f"{spellings.shown(word)} is no date: write it as YYYY-MM-DD, in the digits 0 to 9"
        )
    try:
        return date.fromisoformat(word)
    except ValueError:
        raise ValueError(f"{word} is no date: no calendar has that day") from None


def rating_of(value: object) -> str | None:
    """Return one of the five ratings, or None for a decision that gave none."""
    word = "" if value is None else str(value).strip()
    if word.casefold() in _NO_RATING:
        return None
    rating = tier_of(word)
    if rating is None:
        raise ValueError(
            f"{spellings.shown(word)} is no rating: write Buy, Overweight, Hold, Underweight, "
            "Sell, or nothing where a decision gave none"
        )
    return rating


def trial_of(value: object) -> int:
    """Return a repeat number, 0 where there is none."""
    if value is None or value == "":
        return 0
    word = str(value).strip()
    trial = int(word) if _WHOLE.fullmatch(word) else -1
    if not 0 <= trial < 1000:
        raise ValueError(f"trial {spellings.shown(str(value))} is no number from 0 to 999")
    return trial


def target_of(value: object) -> float | None:
    """Return a price target, or None."""
    word = "" if value is None else str(value).strip()
    if word.casefold() in _NO_RATING:
        return None
    target = float(word) if _NUMBER.fullmatch(word) else math.nan
    if not (math.isfinite(target) and target > 0.0):
        raise ValueError(
            f"price target {spellings.shown(word)} is no number above 0: write it as 1000.5"
        )
    return target
