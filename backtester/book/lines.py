"""The prices that a book meets, laid out session by session before it is walked through.

A `Line` is one instrument on its own calendar: what its bar of each session says, what happens to
its holders, where it ends. Money of different currencies meets in `Exchange`. Nothing here depends
on a decision, so one `Stage` serves any number of books.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from backtester.calendar import Calendar
from backtester.errors import DataError, UsageError
from backtester.schema import SPLIT
from backtester.settlement.pricing import Market, market_of
from backtester.snapshots.snapshot import Snapshot

MINOR_UNITS: Mapping[str, tuple[str, int]] = MappingProxyType(
    {"GBp": ("GBP", 100), "GBX": ("GBP", 100), "ILA": ("ILS", 100), "ZAc": ("ZAR", 100)}
)
"""Currency as quoted -> what it is a part of, and how many make one."""
# A rate from before the first session is needed to size its fills; holidays are shorter.
_RATE_LEAD = timedelta(days=14)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class Clock:
    """Hold the sessions of one calendar in the book's range.

    Attributes:
        calendar: Where they come from.
        days: Sessions, ascending.
        opens: Instants of the opens, microseconds since 1970 (UTC); so `closes`.
        position: Session -> place in the three.
    """

    calendar: Calendar
    days: tuple[date, ...]
    opens: tuple[int, ...]
    closes: tuple[int, ...]
    position: Mapping[date, int]


@dataclass(frozen=True, kw_only=True)
class Event:
    """Hold one split or dividend of a line.

    Attributes:
        at: Instant of its ex session's open; so `known`, the one from which it is public.
        ratio: Shares after for each before; 1 for a dividend.
        amount: Dividend a share, in the line's quote currency; 0 for a split.
        flaw: What is wrong with it, or None.
        words: Names it in messages.
    """

    at: int
    known: int
    ratio: float
    amount: float
    flaw: str | None
    words: str


@dataclass(frozen=True, kw_only=True)
class Line:
    """Hold one instrument as a book meets it; lists are by place in `clock`.

    Attributes:
        ticker: Instrument id.
        clock: Its sessions.
        currency: As quoted; `major` is what it is a part of, `units` how many make one.
        opens: Prices as traded, 0 where no usable one is there; so `closes`.
        known: Instant from which a bar is public; of a session without a usable bar its close,
            for only then is it known to be missing.
        volume: Shares traded.
        conflicts: Sessions whose bars contradict each other.
        listed: First session, and `last`, the last one, or None while it trades.
        is_index: Whether nobody can trade it.
        events: Splits and dividends in the range, in the order in which they are applied.
    """

    ticker: str
    clock: Clock
    currency: str
    major: str
    units: int
    opens: tuple[float, ...]
    closes: tuple[float, ...]
    known: tuple[int, ...]
    volume: tuple[int, ...]
    conflicts: frozenset[date]
    listed: date
    last: date | None
    is_index: bool
    events: tuple[Event, ...]

    def trades_on(self, day: date) -> bool:
        """Say whether it is listed, and not gone, on a date."""
        return self.listed <= day and (self.last is None or day <= self.last)


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """Hold the rate from one currency into the book's.

    Attributes:
        major: Currency that it converts.
        line: Bars of the pair.
        inverse: Whether the pair is quoted the other way round.
    """

    major: str
    line: Line
    inverse: bool

    def rate(self, at: int) -> float:
        """Return the rate at the close of a session's bar."""
        close = self.line.closes[at]
        return 1.0 / close if self.inverse else close


@dataclass(frozen=True, kw_only=True)
class Stage:
    """Hold everything that a book may meet, whatever is decided.

    Attributes:
        snapshot: Name, for messages.
        start: First session; so `end`, the last one.
        lines: By ticker.
        exchanges: Of the currencies that are not the book's own.
        currency: The book's.
        rows: Date of each equity row, and the instant at which it is drawn up.
        data_end: Instant of the newest bar of the snapshot, and `declared_end` its last date.
    """

    snapshot: str
    start: date
    end: date
    lines: tuple[Line, ...]
    exchanges: tuple[Exchange, ...]
    currency: str
    rows: tuple[tuple[date, int], ...]
    data_end: int
    declared_end: date

    def ends_before(self, line: Line, at: int) -> bool:
        """Say whether the snapshot ends before a session closes, so that its bar is yet to come."""
        return line.clock.days[at] > self.declared_end or self.data_end < line.clock.closes[at]


def stage_of(
    snapshot: Snapshot,
    tickers: Sequence[str],
    *,
    start: date,
    end: date,
    currency: str | None = None,
) -> Stage:
    """Lay out the prices of some tickers over a range.

    Args:
        snapshot: Where everything comes from.
        tickers: Instrument ids, in any order.
        start: First session of the book.
        end: Last one.
        currency: The book's, or None for that of the tickers where they share one.

    Raises:
        UsageError: For reversed dates, no ticker, or currencies that cannot be brought together.
        DataError: For an instrument that the snapshot does not hold, or dates beyond a calendar.
    """
    if end < start:
        raise UsageError(f"end {end} is before start {start}: swap them")
    if end > snapshot.end:
        raise UsageError(
            f"the book would end on {end}, snapshot {snapshot.name} ends on {snapshot.end}: "
            "end it there, or take a newer snapshot"
        )
    if not tickers:
        raise UsageError("a book needs a ticker: name one")
    clocks: dict[tuple[str, date], Clock] = {}
    markets = [market_of(snapshot, ticker) for ticker in sorted(set(tickers))]
    lines = tuple(_line(market, _clock(market.calendar, start, end, clocks)) for market in markets)
    own = _book_currency(lines, currency)
    foreign = sorted({line.major for line in lines} - {own})
    exchanges = tuple(_exchange(snapshot, major, own, start, end, clocks) for major in foreign)
    newest = pc.max(snapshot.table("bars").column("known_at")).as_py()
    return Stage(
        snapshot=snapshot.name,
        start=start,
        end=end,
        lines=lines,
        exchanges=exchanges,
        currency=own,
        rows=_rows(lines),
        data_end=-1 if newest is None else micros(newest),
        declared_end=snapshot.end,
    )


def micros(instant: datetime) -> int:
    """Return an instant as microseconds since 1970, UTC."""
    return (instant - _EPOCH) // timedelta(microseconds=1)


def instant_of(at: int) -> datetime:
    """Return the instant of so many microseconds since 1970, UTC."""
    return _EPOCH + timedelta(microseconds=at)


def _clock(
    calendar: Calendar, start: date, end: date, clocks: dict[tuple[str, date], Clock]
) -> Clock:
    known = clocks.get((calendar.code, start))
    if known is not None:
        return known
    days = calendar.sessions(start, end)
    closes = calendar.closes_of(np.array(days, dtype="datetime64[D]"))
    clock = Clock(
        calendar=calendar,
        days=days,
        opens=tuple(micros(calendar.open_utc(day)) for day in days),
        closes=tuple(closes.astype(np.int64).tolist()),
        position=MappingProxyType({day: at for at, day in enumerate(days)}),
    )
    clocks[calendar.code, start] = clock
    return clock


def _rows(lines: Sequence[Line]) -> tuple[tuple[date, int], ...]:
    """Return each date on which a ticker has a session, with the latest close of the date."""
    latest: dict[date, int] = {}
    for clock in {line.clock.calendar.code: line.clock for line in lines}.values():
        for day, close in zip(clock.days, clock.closes, strict=True):
            latest[day] = max(close, latest.get(day, close))
    return tuple(sorted(latest.items()))


def _line(market: Market, clock: Clock) -> Line:
    bars = market.bars
    days = np.array(clock.days, dtype="datetime64[D]")
    at = np.searchsorted(bars.sessions, days)
    inside = np.minimum(at, max(len(bars) - 1, 0))
    there = np.zeros(len(days), dtype=bool)
    if len(bars):
        there = (bars.sessions[inside] == days) & ~np.isnat(bars.known_at[inside])

    def laid_out(values: npt.NDArray[np.float64]) -> tuple[float, ...]:
        if not len(bars):
            return (0.0,) * len(days)
        taken = np.where(there, values[inside], 0.0)
        return tuple(np.where(np.isfinite(taken) & (taken > 0.0), taken, 0.0).tolist())

    closes = np.array(clock.closes, dtype=np.int64)
    known, volume = closes, np.zeros(len(days), dtype=np.int64)
    if len(bars):
        known = np.where(there, bars.known_at[inside].astype(np.int64), closes)
        volume = np.where(there, bars.volume[inside], 0)
    major, units = MINOR_UNITS.get(market.currency, (market.currency, 1))
    return Line(
        ticker=market.instrument,
        clock=clock,
        currency=market.currency,
        major=major,
        units=units,
        opens=laid_out(bars.open),
        closes=laid_out(bars.close),
        known=tuple(known.tolist()),
        volume=tuple(volume.tolist()),
        conflicts=bars.conflicts,
        listed=market.identity.first_session,
        last=market.identity.last_session,
        is_index=market.is_index,
        events=_events(market, clock),
    )


# --------------------------------------------------------------------------- splits and dividends


def _events(market: Market, clock: Clock) -> tuple[Event, ...]:
    """Return what befalls holders, oldest first; on one day splits come before dividends."""
    rows = market.actions
    if not len(rows) or not clock.days:
        return ()
    edges = np.array([clock.days[0], clock.days[-1]], dtype="datetime64[D]")
    first, after = np.searchsorted(rows.ex_sessions, edges, side="right").tolist()
    order = sorted(
        range(first, after), key=lambda at: (rows.ex_sessions[at], rows.kind[at] != SPLIT)
    )
    found, seen = [], set()
    for at in order:
        name = (rows.ex_sessions[at].item(), str(rows.kind[at]))
        found.append(_event(market, clock, at, twice=name in seen))
        seen.add(name)
    return tuple(found)


def _event(market: Market, clock: Clock, at: int, *, twice: bool) -> Event:
    rows = market.actions
    day: date = rows.ex_sessions[at].item()
    kind = str(rows.kind[at])
    # An ex date without a session takes effect at the next open.
    opens = clock.opens[bisect_left(clock.days, day)]
    known = rows.known_at[at]
    numerator, denominator = int(rows.numerator[at]), int(rows.denominator[at])
    amount, paid_in = float(rows.amount[at]), str(rows.currency[at])
    flaw = "is there twice, and the two differ" if twice else None
    ratio = 1.0
    if kind == SPLIT and numerator > 0 and denominator > 0:
        ratio, amount = numerator / denominator, 0.0
    elif kind == SPLIT:
        flaw = f"is {numerator} for {denominator}, which is no ratio"
    elif not (np.isfinite(amount) and amount >= 0.0):
        flaw = f"is {amount}, which is no amount"
    else:
        major, units = MINOR_UNITS.get(paid_in, (paid_in, 1))
        own, own_units = MINOR_UNITS.get(market.currency, (market.currency, 1))
        if major != own:
            flaw = f"is in {paid_in or 'no currency'}, the bars are in {market.currency}"
        amount = amount if units == own_units else amount * own_units / units
    return Event(
        at=opens,
        known=opens if np.isnat(known) else max(int(known.astype(np.int64)), opens),
        ratio=ratio,
        amount=amount,
        flaw=flaw,
        words=f"{market.instrument}: the {kind} of {day}",
    )


# ---------------------------------------------------------------------------------- currencies


def _book_currency(lines: Sequence[Line], wanted: str | None) -> str:
    if wanted is not None:
        if wanted in MINOR_UNITS:
            raise UsageError(
                f"currency {wanted} is a part of {MINOR_UNITS[wanted][0]}: write that for the book"
            )
        return wanted
    found = sorted({line.major for line in lines})
    if len(found) > 1:
        shown = ", ".join(
            f"{major} ({next(line.ticker for line in lines if line.major == major)})"
            for major in found
        )
        raise UsageError(
            f"the tickers are in several currencies: {shown}: name the book's currency and have "
            f"the exchange rates in the snapshot (such as {found[0]}{found[1]}=X), or score them "
            "apart"
        )
    return found[0]


def _exchange(
    snapshot: Snapshot,
    major: str,
    own: str,
    start: date,
    end: date,
    clocks: dict[tuple[str, date], Clock],
) -> Exchange:
    """Find the bars that bring one currency into the book's.

    Raises:
        UsageError: Where the snapshot has none.
    """
    straight, other = f"{major}{own}=X", f"{own}{major}=X"
    held = set(snapshot.instruments())
    pair = next((name for name in (straight, other) if name in held), None)
    if pair is None:
        raise UsageError(
            f"snapshot {snapshot.name} holds no exchange rate from {major} to {own}: freeze "
            f"{straight} or {other} with it, or score the tickers of each currency apart"
        )
    market = market_of(snapshot, pair)
    lead = max(start - _RATE_LEAD, market.calendar.first_day)
    line = _line(market, _clock(market.calendar, lead, end, clocks))
    if not any(line.closes):
        raise DataError(f"exchange rate {pair} has no usable bar from {lead} to {end}")
    return Exchange(major=major, line=line, inverse=pair == other)
