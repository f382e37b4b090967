"""How numbers, dates and foreign words are written into a tool's answer.

An answer goes into a prompt, so equal data must give equal bytes: fixed formats, no locale, no
exponent. A price went through one division at most and is exact to four decimals. Anything that
went through a sum or an exponential mean may differ in its last bits between machines, so it is
cut to six significant digits.
"""

from __future__ import annotations

import math
from datetime import datetime
from decimal import Decimal

import numpy as np
import numpy.typing as npt

MISSING = "n/a"
_SIGNIFICANT = 6
_SMALL_PRICE = 0.1


def price_text(value: float) -> str:
    """Write a price: four decimals, trailing zeros cut down to two.

    A price below 0.1 keeps six significant digits instead, or a coin would cost nothing.
    """
    if not math.isfinite(value):
        return MISSING
    if 0 < abs(value) < _SMALL_PRICE:
        return _at_least_two_decimals(_fixed(value))
    return _at_least_two_decimals(f"{value:.4f}")


def figure_text(value: float) -> str:
    """Write a computed figure with at most six significant digits, ``n/a`` for NaN."""
    if not math.isfinite(value):
        return MISSING
    text = _fixed(value)
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def count_text(value: float) -> str:
    """Write a number of shares as an integer; a split can leave a fraction, which is rounded."""
    if not math.isfinite(value):
        return MISSING
    return str(round(value))


def day_text(value: np.datetime64) -> str:
    """Write a session as ``YYYY-MM-DD``."""
    return str(value.astype("datetime64[D]"))


def days_text(values: npt.NDArray[np.datetime64]) -> list[str]:
    """Write sessions as ``YYYY-MM-DD``."""
    days: list[str] = values.astype("datetime64[D]").astype(np.str_).tolist()
    return days


def instant_text(value: datetime) -> str:
    """Write an instant of UTC to the minute."""
    return value.strftime("%Y-%m-%d %H:%M UTC")


def one_line(text: str, limit: int = 500) -> str:
    """Put foreign text on one line, so that it can forge no line of its own, and bound it."""
    line = " ".join(_printable(text).split())
    return line if len(line) <= limit else line[: limit - 3].rstrip() + "..."


def quoted(value: object, limit: int = 40) -> str:
    """Quote what a model sent, in plain ASCII and cut to a length that cannot flood an answer."""
    try:
        text = ascii(value)
    except (RecursionError, ValueError):
        return f"a {type(value).__name__}"
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _fixed(value: float) -> str:
    return format(Decimal(f"{value:.{_SIGNIFICANT}g}"), "f")


def _at_least_two_decimals(text: str) -> str:
    whole, _, decimals = text.partition(".")
    return f"{whole}.{decimals.rstrip('0').ljust(2, '0')}"


def _printable(text: str) -> str:
    # A lone surrogate cannot be encoded, and a control character can hide words from a reader.
    return "".join(sign if sign.isprintable() else " " for sign in text)
