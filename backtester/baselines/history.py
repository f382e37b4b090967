"""What a baseline sees at the decision sessions of a run: bars as they were known at each cutoff.

The prices are those of the view: adjusted for the splits known at the cutoff and for no others,
and ended by the cutoff's own instant. A test compares them with the view, session by session.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

import numpy as np
import numpy.typing as npt

from backtester.calendar import Calendar
from backtester.config import DecisionTime
from backtester.errors import DataError
from backtester.settlement.pricing import market_of
from backtester.snapshots.snapshot import Snapshot
from backtester.snapshots.view_cache import ViewCache, microseconds_of
from tradingagents_core.protocols import Bars


@dataclass(frozen=True, kw_only=True)
class Seen:
    """Hold what is known of one ticker at its decision sessions; all arrays are of one length.

    Attributes:
        sessions: Decision sessions, ascending.
        epochs: Bars on the basis of one number of splits each. They reach beyond the cutoffs:
            `visible` says how far each session sees.
        epoch: Position of each session's epoch in `epochs`.
        visible: Leading bars of the epoch that each session sees.
        fresh: Whether the newest of them is that of the last session that had closed.
    """

    sessions: tuple[date, ...]
    epochs: tuple[Bars, ...]
    epoch: npt.NDArray[np.int64]
    visible: npt.NDArray[np.int64]
    fresh: npt.NDArray[np.bool_]

    def bars_at(self, position: int) -> Bars:
        """Return the bars that the session at a position sees."""
        bars, stop = self.epochs[self.epoch[position]], int(self.visible[position])
        return Bars(
            sessions=bars.sessions[:stop],
            open=bars.open[:stop],
            high=bars.high[:stop],
            low=bars.low[:stop],
            close=bars.close[:stop],
            volume=bars.volume[:stop],
        )


class Histories:
    """Hold what is known of tickers at decision sessions, for any number of baselines."""

    def __init__(self, snapshot: Snapshot, decision_time: DecisionTime) -> None:
        self._cache = ViewCache(snapshot)
        self._decision_time = decision_time
        self._kept: dict[tuple[str, tuple[date, ...]], Seen] = {}

    def seen(self, ticker: str, sessions: tuple[date, ...]) -> Seen:
        """Return what is known of a ticker; see `seen_by`."""
        asked = (ticker, sessions)
        if asked not in self._kept:
            self._kept[asked] = seen_by(self._cache, ticker, sessions, self._decision_time)
        return self._kept[asked]


def seen_by(
    cache: ViewCache, ticker: str, sessions: Sequence[date], decision_time: DecisionTime
) -> Seen:
    """Return what is known of a ticker at its decision sessions.

    Args:
        cache: Of the snapshot.
        ticker: Instrument id.
        sessions: Of its calendar, in any order.
        decision_time: Whether the cutoff is the close or the open of a session.

    Raises:
        DataError: A date is no session, or a later bar became known before an earlier one.
    """
    ordered = tuple(sorted(set(sessions)))
    calendar = market_of(cache.snapshot, ticker).calendar
    cutoffs = np.array([_cutoff(calendar, day, decision_time) for day in ordered], dtype=np.int64)
    splits = cache.splits(ticker)
    counts = np.searchsorted(splits.known_at, cutoffs, side="right")
    numbers = [int(number) for number in np.unique(counts)]
    visible = np.zeros(len(ordered), dtype=np.int64)
    fresh = np.zeros(len(ordered), dtype=np.bool_)
    newest = [_newest_closed(calendar, day, decision_time) for day in ordered]
    bounds = np.array(newest, dtype="datetime64[D]")
    epochs = []
    for number in numbers:
        epoch = cache.epoch(ticker, number)
        mine = np.flatnonzero(counts == number)
        visible[mine] = np.searchsorted(epoch.known_at, cutoffs[mine], side="right")
        if visible[mine].max(initial=0) > epoch.ordered:
            raise DataError(
                f"bars of {ticker}: around {epoch.bars.sessions[epoch.ordered]} a later session "
                "became known before an earlier one; capture the snapshot anew"
            )
        has = mine[visible[mine] > 0]
        fresh[has] = epoch.bars.sessions[visible[has] - 1] == bounds[has]
        epochs.append(epoch.bars)
    return Seen(
        sessions=ordered,
        epochs=tuple(epochs),
        epoch=np.searchsorted(np.array(numbers, dtype=np.int64), counts),
        visible=visible,
        fresh=fresh,
    )


def _cutoff(calendar: Calendar, session: date, decision_time: DecisionTime) -> int:
    at_close = decision_time == "close"
    instant = calendar.close_utc(session) if at_close else calendar.open_utc(session)
    return microseconds_of(instant)


def _newest_closed(calendar: Calendar, session: date, decision_time: DecisionTime) -> date:
    return session if decision_time == "close" else calendar.shift(session, -1)
