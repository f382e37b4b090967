"""Decisions that were made after the close of the session on which they stand: on a weekend."""

from __future__ import annotations

from collections.abc import Set

import numpy as np

from backtester.settlement.decided import Decided
from backtester.settlement.pricing import market_of
from backtester.snapshots.snapshot import Snapshot


def first_seen(decided: Decided, later: Set[str], snapshot: Snapshot) -> Decided:
    """Return decisions on the first sessions that closed after they were made.

    What prices do from there on nobody could know who made them; between the close of the session
    and the decision lies news of which it may be the echo.

    Args:
        decided: Decisions.
        later: Those (as ``str(key)``) that were made after the close of their session, and before
            that of the next one.
        snapshot: Names the calendars.
    """
    if not later:
        return decided
    moved = np.array([str(one.key) in later for one in decided], dtype=np.bool_)
    days = decided.day.copy()
    for ticker, places in decided.by_ticker():
        sessions = market_of(snapshot, ticker).calendar.days
        mine = places[moved[places]]
        after = np.searchsorted(sessions, days[mine], side="right")
        days[mine] = sessions[np.minimum(after, len(sessions) - 1)]
    return Decided(
        tickers=decided.tickers,
        ticker=decided.ticker,
        day=days,
        trial=decided.trial,
        status=decided.status,
        rating=decided.rating,
        scored=decided.scored,
    )
