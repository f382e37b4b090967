"""What a baseline sees at the decision sessions of a run: bars as they were known at each cutoff.

The prices are those of the view: adjusted for the splits known at the cutoff and for no others,
and ended by the cutoff's own instant. A test compares them with the view, session by session.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property

import numpy as np
import numpy.typing as npt

from backtester.baselines.charts import Chart
from backtester.book.desires import dates_of
from backtester.calendar import Calendar
from backtester.config import DecisionTime
from backtester.errors import DataError
from backtester.settlement.pricing import market_of
from backtester.snapshots.snapshot import Snapshot
from backtester.snapshots.view_cache import ViewCache
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

    @cached_property
    def charts(self) -> tuple[Chart, ...]:
        """The epochs, for rules that share what they work out on them."""
        return tuple(map(Chart, self.epochs))

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
    days = dates_of(ordered)
    cutoffs = _cutoffs(calendar, days, decision_time)
    splits = cache.splits(ticker)
    counts = np.searchsorted(splits.known_at, cutoffs, side="right")
    numbers = [int(number) for number in np.unique(counts)]
    visible = np.zeros(len(ordered), dtype=np.int64)
    fresh = np.zeros(len(ordered), dtype=np.bool_)
    bounds = _newest_closed(calendar, days, decision_time)
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


def _cutoffs(
    calendar: Calendar, days: npt.NDArray[np.datetime64], decision_time: DecisionTime
) -> npt.NDArray[np.int64]:
    """Return the instants up to which each session sees, microseconds."""
    at_close = decision_time == "close"
    found = calendar.closes_of(days) if at_close else calendar.opens_of(days)
    for day in days[np.isnat(found)].tolist():
        calendar.close_utc(day)  # raises, and names the date
    return found.astype(np.int64)


def _newest_closed(
    calendar: Calendar, days: npt.NDArray[np.datetime64], decision_time: DecisionTime
) -> npt.NDArray[np.datetime64]:
    """Return the last session that has closed at each cutoff."""
    if decision_time == "close" or not len(days):
        return days
    calendar.shift(days[0].item(), -1)  # raises where the calendar has no session before
    return calendar.days[np.searchsorted(calendar.days, days) - 1]
