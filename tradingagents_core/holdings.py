"""What the portfolio manager is told about a book: its table, and what to make of it.

A prompt without a book holds no word of this module. Every amount is in the book's currency and
printed in one fixed form; what a value is not known for reads ``n/a``. Whatever a user wrote is
put on one line and defused, so it can end no block and add no line.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tradingagents_core.prompts import Brief, block, one_line
from tradingagents_core.protocols import BookSource, Holding, Holdings

BLOCK = "portfolio"
NOT_STATED = """\
not stated"""
NO_POSITIONS = """\
positions: none"""
COLUMNS = """\
ticker | shares | last price | value | weight | unrealised result"""
KINDS: Mapping[BookSource, str] = MappingProxyType({"user": "data", "simulated": "book"})
CLOSINGS: Mapping[BookSource, str] = MappingProxyType(
    {
        "user": """\
The block "portfolio" holds the book as its owner states it, for the day that it names. Nobody \
checked it, and it is the same in every decision. Say what your rating means for what is held, \
and mind weight and cash; the rating keeps to its scale.""",
        "simulated": """\
The block "portfolio" holds the book that this desk's earlier ratings have led to by the simulated \
date, under the rule that it names. Say what your rating means for what is held, and mind weight \
and cash; the rating keeps to its scale.""",
    }
)


def book_blocks(brief: Brief) -> tuple[str, ...]:
    """Return the block of the book, or nothing where none is shown."""
    if brief.book is None:
        return ()
    return (block(BLOCK, KINDS[brief.book.source], holdings_text(brief.book)),)


def book_closing(brief: Brief) -> tuple[str, ...]:
    """Return what a role that is shown a book is told about it, or nothing."""
    return () if brief.book is None else (CLOSINGS[brief.book.source],)


def holdings_text(book: Holdings) -> str:
    """Return a book as text: what it is, cash and equity, then a line for each position."""
    head = [
        f"as of: {book.as_of.isoformat() if book.as_of is not None else NOT_STATED}",
        f"currency: {one_line(book.currency)}",
    ]
    if book.rule:
        head.append(f"rule: {one_line(book.rule)}")
    head += [f"cash: {_fixed(book.cash, 2)}", f"equity: {_fixed(book.equity, 2)}"]
    if not book.positions:
        return "\n".join((*head, NO_POSITIONS))
    return "\n".join((*head, "", COLUMNS, *map(_line, book.positions)))


def _line(held: Holding) -> str:
    weight = None if held.weight is None else held.weight * 100
    return " | ".join(
        (
            one_line(held.symbol),
            _fixed(held.shares, 4),
            _fixed(held.price, 4),
            _fixed(held.value, 2),
            _fixed(weight, 2, unit="%"),
            _fixed(held.unrealised, 2, sign="+"),
        )
    )


def _fixed(value: float | None, decimals: int, *, sign: str = "", unit: str = "") -> str:
    if value is None:
        return "n/a"
    # Rounding first leaves a zero without the sign that it had before.
    return f"{round(value, decimals) + 0.0:{sign}.{decimals}f}{unit}"
