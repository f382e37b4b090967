"""The only reader of a snapshot during a run: data as it was known at one cutoff.

An `AsOfView` is made for one cell and one cutoff. Nothing can move the cutoff: dates in a call can
narrow a window, never widen it past what was public. Rows are filtered by ``known_at`` first, then
put in order, then limited, and what comes out is checked once more: a row from after the cutoff,
or one without a date, raises `LookaheadError`. Every read is handed to the run's log.

What does not depend on the cutoff is kept in a `ViewCache` that all views of a snapshot share. A
view only ever takes a prefix of it, and the rows behind the prefix cannot show in any bit; a test
rewrites them and compares.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Literal

import numpy as np

from backtester.calendar import calendar_by_code
from backtester.errors import DataError
from backtester.records import ReadRecord
from backtester.schema import table_schema
from backtester.snapshots.snapshot import IdentityRow, Snapshot
from backtester.snapshots.view_cache import (
    UNDATED,
    DatedRows,
    Epoch,
    Instants,
    Span,
    ViewCache,
    first_on,
    instant_of,
    microseconds_of,
)
from backtester.snapshots.window import Window, window_of
from tradingagents_core.errors import DataUnavailable, LookaheadError, NoMarketData, ToolInputError
from tradingagents_core.indicators import MENU
from tradingagents_core.protocols import CURRENT_SITE, Bars, Identity, IndicatorSeries, Row

__all__ = ["AsOfView", "ViewCache"]

HARNESS = "harness"
# What comes out on the basis of the cutoff, or by name and date, and not row by row.
OWN_METHODS = ("instruments", "bars")

_DAY = timedelta(days=1)


class AsOfView:
    """Read a snapshot as it was known at one cutoff; implements the pipeline's `View`.

    Instruments may be named by the snapshot's own id or by the symbol that was valid on the
    decision session; the id wins. Where text from a model names one, it goes through `resolve`
    first, which knows symbols alone.

    Args:
        snapshot: Snapshot to read.
        cutoff: UTC instant up to which rows are visible.
        session: Decision session.
        decision_time: ``close`` or ``open``, which of the session's two instants the cutoff is.
        on_read: Takes the record of each read, in order.
        estimated: What becomes of rows whose instant is an estimate: ``withhold`` keeps them back
            and counts them, ``lag`` shows them from that instant on.
        cache: Shared by the views of one snapshot; without it this view works alone.

    Raises:
        DataError: The session lies outside the snapshot's declared range.
        ValueError: The cutoff has no zone, contradicts session and decision time, or the cache is
            of another snapshot.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        *,
        cutoff: datetime,
        session: date,
        decision_time: Literal["close", "open"],
        on_read: Callable[[ReadRecord], None],
        estimated: Literal["withhold", "lag"] = "withhold",
        cache: ViewCache | None = None,
    ) -> None:
        if cutoff.tzinfo is None:
            raise ValueError(f"cutoff {cutoff} has no time zone: give it in UTC")
        if cache is not None and cache.snapshot is not snapshot:
            raise ValueError("the view cache belongs to another snapshot: make one for this")
        if not snapshot.start <= session <= snapshot.end:
            raise DataError(
                f"session {session} is outside the range of snapshot {snapshot.name}, "
                f"{snapshot.start} to {snapshot.end}: choose dates within it"
            )
        self._snapshot = snapshot
        self._cutoff = cutoff.astimezone(UTC)
        self._cutoff_us = microseconds_of(self._cutoff)
        self._session = session
        self._on_read = on_read
        self._estimated = estimated == "lag"
        self._cache = cache if cache is not None else ViewCache(snapshot)
        self._identities: dict[str, IdentityRow] = {}
        self._closed: dict[str, date] = {}
        self._require_matching(decision_time)

    @property
    def cutoff(self) -> datetime:
        """UTC instant up to which the world is known."""
        return self._cutoff

    @property
    def session(self) -> date:
        """The decision session: the simulated date."""
        return self._session

    @property
    def last_session(self) -> date:
        """Newest session, on any calendar of the snapshot, that had closed by the cutoff."""
        return max(self._last_sessions())

    def resolve(self, symbol: str) -> str:
        """Return the instrument that went by a symbol on the decision session.

        An instrument id is no symbol here, nor is a name that the company took later. The call
        gives a key and no data, so it is not logged.

        Raises:
            ToolInputError: For any other word.
        """
        instrument = self._cache.resolve(symbol, self._session)
        if instrument is None:
            shown = ascii(symbol.strip()[:20])
            raise ToolInputError(
                f"{shown} is no symbol that this snapshot knows on {self._session}: write the "
                "symbol of the instrument that you analyse"
            )
        return instrument

    def identity(self, symbol: str) -> Identity:
        """Return what an instrument was called on the decision session.

        Raises:
            NoMarketData: The instrument had no name yet, or no more.
            ToolInputError: The snapshot does not know the word.
        """
        instrument = self._instrument(symbol)
        row = self._identity_row(instrument)
        self._log("instruments", instrument, rows=1)
        return Identity(
            instrument=instrument,
            symbol=row.symbol,
            name=row.name,
            exchange=row.exchange,
            currency=row.currency,
            sector=row.sector,
            asset_type=row.asset_type,
            static=row.static,
        )

    def bars(
        self,
        symbol: str,
        *,
        start: date | None = None,
        end: date | None = None,
        last: int | None = None,
    ) -> Bars:
        """Return copies of the visible bars, oldest first; empty where the window holds none.

        Args:
            symbol: Instrument.
            start: First session, or None for no limit.
            end: Last session; None and later dates mean the newest visible one.
            last: Keep so many of the newest, after everything else.

        Raises:
            NoMarketData: No bar is visible, or the newest one is older than the last session that
                had closed by the cutoff.
            ToolInputError: The window lies outside the snapshot's range, or is reversed.
            LookaheadError: A later or an undated row came out.
            DataError: The visible rows' instants contradict their sessions.
        """
        span = self._span(symbol, start, end, last)
        rows, cut = span.epoch.bars, slice(span.first, span.stop)
        return Bars(
            sessions=rows.sessions[cut].copy(),
            open=rows.open[cut].copy(),
            high=rows.high[cut].copy(),
            low=rows.low[cut].copy(),
            close=rows.close[cut].copy(),
            volume=rows.volume[cut].copy(),
        )

    def indicators(
        self,
        symbol: str,
        names: tuple[str, ...],
        *,
        start: date | None = None,
        end: date | None = None,
        last: int | None = None,
    ) -> IndicatorSeries:
        """Return copies of indicator values by session; they rest on all bars up to each session.

        Args:
            symbol: Instrument.
            names: Names of `indicators.MENU`.
            start: See `bars`.
            end: Likewise.
            last: Likewise.

        Raises:
            ToolInputError: A name is not on the menu.
            NoMarketData: See `bars`, likewise the other errors.
        """
        for name in names:
            if name not in MENU:
                raise ToolInputError(f"{name[:40]!a} is no indicator: {', '.join(MENU)}")
        span = self._span(symbol, start, end, last)
        whole = self._cache.indicators(span.instrument, span.splits)
        cut = slice(span.first, span.stop)
        return IndicatorSeries(
            sessions=span.epoch.bars.sessions[cut].copy(),
            values={name: whole[name][cut].copy() for name in names},
        )

    def require(self, table: str, symbol: str | None = None) -> None:
        """Raise where the snapshot has no such table; the vain attempt is logged.

        Raises:
            DataUnavailable: With the reason that the snapshot gives.
        """
        instrument = self._instrument(symbol) if symbol is not None else None
        reason = self._snapshot.absent_reason(table, instrument)
        if reason is not None:
            self._log(table, instrument or "", rows=0)
            part = self._of_one(table, instrument)
            raise DataUnavailable(f"the snapshot has {part}: {reason}")

    def rows(
        self,
        table: str,
        symbol: str | None = None,
        *,
        start: date | None = None,
        end: date | None = None,
        last: int | None = None,
    ) -> tuple[Row, ...]:
        """Return visible rows of a table such as ``news``, oldest first.

        Args:
            table: Table with an instant in each row; not one of `OWN_METHODS`.
            symbol: Instrument of the rows; None for rows that belong to none.
            start: First UTC day of publication, or None for no limit.
            end: Last one; None and later days mean the cutoff.
            last: Keep so many of the newest, after everything else.

        Rows whose instant is an estimate are among them under ``lag`` alone; `withheld` counts
        them else.

        Raises:
            DataUnavailable: The snapshot has no such table.
            ToolInputError: The window lies outside the snapshot's range, or is reversed.
            LookaheadError: A later or an undated row came out.
            ValueError: For a table that has a method of its own.
        """
        self.require(table, symbol)
        held = self._dated(table, symbol)
        window = self._window(start, end, self._session)
        first, stop = self._between(held.known_at, window)
        if last is not None:
            first = max(first, stop - last)
        known_at = held.known_at[first:stop]
        self._check(known_at, f"table {table}")
        since, before = self._between(held.withheld_at, window)
        self._log(
            table,
            self._instrument(symbol) if symbol is not None else "",
            window=window,
            rows=len(known_at),
            newest=int(known_at[-1]) if len(known_at) else None,
            dropped=held.undated,
            withheld=before - since,
        )
        return self._cache.take(held, first, stop)

    def withheld(self, table: str, symbol: str | None = None, *, end: date | None = None) -> int:
        """Return how many rows `rows` keeps back, their instants being estimates.

        Args:
            table: Likewise, and so the errors.
            symbol: Likewise.
            end: Likewise.
        """
        held = self._dated(table, symbol)
        return self._between(held.withheld_at, self._window(None, end, self._session))[1]

    def _dated(self, table: str, symbol: str | None) -> DatedRows:
        if table in OWN_METHODS or not table_schema(table).dated:
            raise ValueError(f"table {table} is not read row by row: use the view's other methods")
        instrument = self._instrument(symbol) if symbol is not None else None
        return self._cache.table(table, instrument, estimated=self._estimated)

    def _between(self, known_at: Instants, window: Window) -> tuple[int, int]:
        """Return the first position of a window's visible rows, and the one after the last."""
        stop = self._visible_end(known_at)
        if window.bounded and window.until < self._cutoff.date():
            stop = min(stop, first_on(known_at, window.until + _DAY))
        return (0 if window.start is None else first_on(known_at[:stop], window.start)), stop

    # -- the filter, and the check of what came through it

    def _visible_end(self, known_at: Instants) -> int:
        """Return how many leading rows are visible; the rows ascend, undated ones come last."""
        return int(np.searchsorted(known_at, self._cutoff_us, side="right"))

    def _check(self, known_at: Instants, what: str, early: date | None = None) -> None:
        """Refuse to hand out rows that the filter should have kept back.

        Args:
            known_at: Instants of the rows that are about to come out.
            what: Table and instrument, for the message.
            early: A session that had not closed, whose bar says that it was public all the same.

        Raises:
            LookaheadError: A row is undated, later than the cutoff, or early.
        """
        newest = int(known_at.max()) if len(known_at) else self._cutoff_us
        if newest <= self._cutoff_us and early is None:
            return
        if newest == UNDATED:
            row = "a row without a date"
        elif newest > self._cutoff_us:
            row = f"a row known at {instant_of(newest)}"
        else:
            row = f"the bar of {early}, a session that had not closed,"
        raise LookaheadError(
            f"{what}: {row} came out of the view of {self._cutoff}; this run cannot be trusted"
        )

    def _early(self, span: Span, bound: date, code: str) -> date | None:
        """Return the newest session of the rows where it had not closed by the cutoff."""
        if span.stop == span.first:
            return None
        newest: date = span.epoch.bars.sessions[span.stop - 1].item()
        if newest <= bound:
            return None
        late = newest > self._session or calendar_by_code(code).is_session(newest)
        return newest if late else None

    # -- bars: epoch, window, staleness

    def _span(self, symbol: str, start: date | None, end: date | None, last: int | None) -> Span:
        instrument = self._instrument(symbol)
        code = self._identity_row(instrument).calendar
        bound = self._last_closed(code)
        window = self._window(start, end, bound)
        start, until = window.start, window.until
        splits = self._cache.splits(instrument)
        count = self._visible_end(splits.known_at)
        self._check(splits.known_at[:count], f"splits of {instrument}")
        epoch = self._cache.epoch(instrument, count)
        sessions = epoch.bars.sessions
        visible = self._visible_end(epoch.known_at)
        stop = visible
        if until < bound:
            stop = int(np.searchsorted(sessions[:visible], _day(until), side="right"))
        first = 0
        if start is not None:
            first = int(np.searchsorted(sessions[:stop], _day(start), side="left"))
        if last is not None:
            first = max(first, stop - last)
        span = Span(instrument=instrument, splits=count, epoch=epoch, first=first, stop=stop)
        known_at = epoch.known_at[first:stop]
        self._check(known_at, f"bars of {instrument}", self._early(span, bound, code))
        stale = self._staleness(instrument, epoch, visible, bound, code)
        rows = 0 if stale else stop - first
        used = [int(known_at[-1])] if rows else []
        used += splits.known_at[count - 1 : count].tolist() if rows else []
        self._log(
            "bars",
            instrument,
            window=window,
            rows=rows,
            newest=max(used, default=None),
            dropped=epoch.undated,
        )
        if stale:
            raise NoMarketData(stale)
        if visible > epoch.ordered:
            raise DataError(
                f"bars of {instrument}: around {sessions[epoch.ordered]} a later session became "
                "known before an earlier one; capture the snapshot anew"
            )
        return span

    def _staleness(
        self, instrument: str, epoch: Epoch, visible: int, bound: date, code: str
    ) -> str | None:
        """Say why the newest visible bar is not that of the last closed session, or None."""
        named = self._identity_row(instrument).symbol
        if visible == 0:
            return f"no bar of {named} was known on {self._session}"
        newest: date = epoch.bars.sessions[visible - 1].item()
        if newest >= bound:
            return None
        missed = [day for day in calendar_by_code(code).sessions(newest, bound) if day > newest]
        if not missed:
            return None
        age = f"{len(missed)} session{'s' if len(missed) > 1 else ''}"
        reason = f"the newest bar of {named} is of {newest}, {age} older than {bound}"
        if not self._snapshot.bars(instrument).conflicts.isdisjoint(missed):
            reason += "; bars captured since then contradict each other"
        return reason

    # -- names, dates, log

    def _of_one(self, table: str, instrument: str | None) -> str:
        """Name what is absent: a table, or what it would hold of an instrument."""
        if instrument is None or self._snapshot.absent_reason(table) is not None:
            return f"no table {table}"
        return f"no {table} of {self._identity_row(instrument).symbol}"

    def _instrument(self, symbol: str) -> str:
        return symbol if symbol in self._cache.instruments else self.resolve(symbol)

    def _identity_row(self, instrument: str) -> IdentityRow:
        row = self._identities.get(instrument)
        if row is None:
            for candidate in self._snapshot.identity_rows(instrument):
                if candidate.holds_on(self._session):
                    row = self._identities[instrument] = candidate
                    break
            else:
                raise NoMarketData(f"{instrument} was not listed on {self._session}")
        return row

    def _last_closed(self, code: str) -> date:
        day = self._closed.get(code)
        if day is None:
            day = self._closed[code] = calendar_by_code(code).last_closed(self._cutoff)
        return day

    def _last_sessions(self) -> list[date]:
        """Return the last closed session of each calendar that knows this date."""
        return [
            self._last_closed(code)
            for code in self._cache.calendar_codes
            if calendar_by_code(code).first_day <= self._session
        ]

    def _window(self, start: date | None, end: date | None, bound: date) -> Window:
        return window_of(
            start, end, bound=bound, session=self._session, first_day=self._snapshot.start
        )

    def _log(
        self,
        table: str,
        instrument: str,
        *,
        rows: int,
        window: Window | None = None,
        newest: int | None = None,
        dropped: int = 0,
        withheld: int = 0,
    ) -> None:
        site = CURRENT_SITE.get()
        self._on_read(
            ReadRecord(
                node=site.node or HARNESS,
                index=site.index,
                tool=site.tool,
                table=table,
                symbol=instrument,
                start=None if window is None else window.start,
                end=None if window is None else window.until,
                rows=rows,
                max_known_at=None if newest is None else instant_of(newest),
                clamped=window is not None and window.clamped,
                dropped=dropped,
                withheld=withheld,
            )
        )

    def _require_matching(self, decision_time: str) -> None:
        """Refuse a cutoff that cannot be the close (or open) of the session on any calendar."""
        closed = self._last_sessions()
        fits = (
            max(closed) >= self._session
            if decision_time == "close"
            else (min(closed) < self._session)
        )
        if not fits:
            raise ValueError(
                f"cutoff {self._cutoff} is not the {decision_time} of session {self._session}"
            )


def _day(value: date) -> np.datetime64:
    return np.datetime64(value, "D")
