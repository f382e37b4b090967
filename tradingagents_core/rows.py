"""Rows of one read, with what has been worked out from them and from nothing else.

The tools of one decision read the same filings, and so do those of the decisions up to the next
filing. What they all make of the rows is kept with the very rows that it was made of: no cutoff,
symbol or table is part of a key, so nothing can be found under a reader who was not given these
rows, and it goes when they go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from tradingagents_core.protocols import Row

Value = TypeVar("Value")


class Rows(tuple[Row, ...]):
    """Hold the rows of a read, oldest first; what is worked out from them can be kept with them.

    It is a plain tuple to everybody else, and a slice of it is one again.
    """

    _kept: dict[Callable[[Sequence[Row]], Any], Any]

    def __new__(cls, rows: Sequence[Row] = ()) -> Rows:
        """Take rows, which must not change."""
        self = super().__new__(cls, rows)
        self._kept = {}
        return self


def worked_out(rows: Sequence[Row], make: Callable[[Sequence[Row]], Value]) -> Value:
    """Return what a function makes of rows, made once for the same `Rows`.

    Args:
        rows: Rows of a view; those of another kind of sequence are worked on each time.
        make: A function of the rows alone that lives as long as the program; it returns a value
            that nobody changes.
    """
    if not isinstance(rows, Rows):
        return make(rows)
    if make not in rows._kept:
        # Two threads may both come here: they make the same.
        rows._kept[make] = make(rows)
    return cast("Value", rows._kept[make])
