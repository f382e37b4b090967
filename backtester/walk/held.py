"""Check a user's own book against the snapshot that a run is on, before anybody is shown it."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Final

from backtester.errors import DataError, UsageError
from backtester.own_book import OwnBook, OwnPosition
from backtester.settlement.pricing import market_of
from backtester.snapshots.snapshot import Snapshot

FARTHEST: Final = 2.0
"""A stated price may be so many times the close, or its inverse: more is a typing error, a split
that was left out, or another unit of money."""

_SHOWN: Final = 5


def require_priced(
    book: OwnBook | None, snapshot: Snapshot, first: date, *, at_open: bool, whole: bool
) -> None:
    """Refuse a book that the snapshot contradicts.

    Args:
        book: The book, or None.
        snapshot: What the run is on.
        first: First decision session.
        at_open: Whether decisions are made at the open: its close is not known then.
        whole: Whether the snapshot has to hold every position; a single decision is made on one
            that may hold its own ticker alone, and then the others are not checked.

    Raises:
        DataError: A position that the snapshot has no bar of up to that day.
        UsageError: Another currency, or a price far from the close.
    """
    if book is None:
        return
    until = book.as_of or (first - timedelta(days=1) if at_open else first)
    unknown = []
    for held in book.positions:
        instrument = _instrument(held, snapshot, until)
        if instrument is None or not _checked(held, book, instrument, snapshot, until):
            unknown.append(held.ticker)
    if whole and unknown:
        more = f" and {len(unknown) - _SHOWN} more" if len(unknown) > _SHOWN else ""
        raise DataError(
            f"portfolio: snapshot {snapshot.name} has no bar of {', '.join(unknown[:_SHOWN])}"
            f"{more} up to {until}: freeze them too, or leave those positions out"
        )


def _instrument(held: OwnPosition, snapshot: Snapshot, day: date) -> str | None:
    if snapshot.holds(held.ticker):
        return held.ticker
    return snapshot.resolve(held.ticker, day)


def _checked(
    held: OwnPosition, book: OwnBook, instrument: str, snapshot: Snapshot, until: date
) -> bool:
    """Check one position; False where there is no bar to check it by."""
    market = market_of(snapshot, instrument)
    close = market.last_close(since=snapshot.start, until=until)
    if close is None:
        return False
    if market.currency != book.currency:
        raise UsageError(
            f"portfolio: {held.ticker} is priced in {market.currency} in snapshot "
            f"{snapshot.name}, and the book is in {book.currency}: write it in one currency, or "
            "leave the position out"
        )
    if not 1.0 / FARTHEST <= held.price / close.price <= FARTHEST:
        raise UsageError(
            f"portfolio: {held.ticker} at {held.price:g} is far from its close of "
            f"{close.price:g} on {close.session} in snapshot {snapshot.name}: check the price, "
            "its unit and splits"
        )
    return True
