"""Build small snapshots in memory, with `known_at` by rule, for tests of everything above them.

snapshot = make_snapshot(
    {"AAA": [("2024-03-01", 100, 101, 99, 100.5, 1000), ...], "^GSPC": closes(...)},
    actions=[split("AAA", "2024-03-04", 4, 1), dividend("AAA", "2024-03-05", 0.25)],
)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date, datetime

import pyarrow as pa

from backtester.calendar import calendar_by_code
from backtester.markets import INDICES, calendar_code
from backtester.schema import DIVIDEND, SPLIT, TABLES, known_at_action, known_at_bar
from backtester.snapshots.snapshot import Snapshot

Day = date | str
BarTuple = tuple[Day, float, float, float, float, int]


@dataclass(frozen=True, kw_only=True)
class Bar:
    """One row of the bars table."""

    instrument: str
    session: date
    known_at: datetime | None
    open: float
    high: float
    low: float
    close: float
    volume: int
    currency: str


@dataclass(frozen=True, kw_only=True)
class Action:
    """One row of the actions table."""

    instrument: str
    ex_session: date
    known_at: datetime
    kind: str
    numerator: int | None
    denominator: int | None
    amount: float | None
    currency: str


@dataclass(frozen=True, kw_only=True)
class Instrument:
    """One row of the instruments table."""

    instrument: str
    symbol: str
    name: str
    exchange: str
    calendar: str
    currency: str
    sector: str | None
    asset_type: str
    valid_from: date | None
    valid_to: date | None
    first_session: date
    last_session: date | None
    basis: str
    static: bool


def day_of(value: Day) -> date:
    """Return a date from a date or ISO text."""
    return date.fromisoformat(value) if isinstance(value, str) else value


def make_bar(
    instrument: str,
    session: Day,
    close: float,
    *,
    open: float | None = None,  # noqa: A002 - a bar's own word
    high: float | None = None,
    low: float | None = None,
    volume: int = 1_000,
    currency: str = "USD",
    calendar: str | None = None,
) -> Bar:
    """Make one bar; what is not given follows from the close."""
    day = day_of(session)
    opened = close if open is None else open
    code = calendar or calendar_code(instrument)
    return Bar(
        instrument=instrument,
        session=day,
        known_at=known_at_bar(calendar_by_code(code), day),
        open=float(opened),
        high=float(max(opened, close) if high is None else high),
        low=float(min(opened, close) if low is None else low),
        close=float(close),
        volume=volume,
        currency=currency,
    )


def make_bars(
    instrument: str,
    rows: Iterable[BarTuple],
    *,
    currency: str = "USD",
    calendar: str | None = None,
) -> list[Bar]:
    """Make bars from (session, open, high, low, close, volume)."""
    return [
        make_bar(
            instrument,
            session,
            close,
            open=opened,
            high=high,
            low=low,
            volume=volume,
            currency=currency,
            calendar=calendar,
        )
        for session, opened, high, low, close, volume in rows
    ]


def closes(rows: Mapping[str, float] | Iterable[tuple[Day, float]]) -> list[BarTuple]:
    """Turn session -> close into bars whose four prices are that close."""
    pairs = rows.items() if isinstance(rows, Mapping) else rows
    return [(session, price, price, price, price, 1_000) for session, price in pairs]


def sessions_of(symbol: str, start: Day, count: int) -> list[date]:
    """Return `count` sessions of a symbol's calendar from the first one on or after a date."""
    calendar = calendar_by_code(calendar_code(symbol))
    first = day_of(start)
    while not calendar.is_session(first):
        first = date.fromordinal(first.toordinal() + 1)
    return [calendar.shift(first, offset) for offset in range(count)]


def split(
    instrument: str,
    ex_session: Day,
    numerator: int,
    denominator: int = 1,
    *,
    currency: str = "USD",
    calendar: str | None = None,
) -> Action:
    """Make a split: `numerator` shares for every `denominator` held."""
    return _action(instrument, ex_session, SPLIT, numerator, denominator, None, currency, calendar)


def dividend(
    instrument: str,
    ex_session: Day,
    amount: float,
    *,
    currency: str = "USD",
    calendar: str | None = None,
) -> Action:
    """Make a cash dividend, as paid on that day."""
    return _action(instrument, ex_session, DIVIDEND, None, None, amount, currency, calendar)


def _action(
    instrument: str,
    ex_session: Day,
    kind: str,
    numerator: int | None,
    denominator: int | None,
    amount: float | None,
    currency: str,
    calendar: str | None,
) -> Action:
    day = day_of(ex_session)
    code = calendar or calendar_code(instrument)
    return Action(
        instrument=instrument,
        ex_session=day,
        known_at=known_at_action(calendar_by_code(code), day),
        kind=kind,
        numerator=numerator,
        denominator=denominator,
        amount=amount,
        currency=currency,
    )


def make_instrument(
    instrument: str,
    *,
    symbol: str | None = None,
    name: str | None = None,
    exchange: str = "NYSE",
    calendar: str | None = None,
    currency: str = "USD",
    sector: str | None = None,
    asset_type: str | None = None,
    valid_from: Day | None = None,
    valid_to: Day | None = None,
    first_session: Day = "2000-01-03",
    last_session: Day | None = None,
    basis: str | None = None,
    static: bool = False,
) -> Instrument:
    """Make one identity range; what is not given follows from the instrument id."""
    index = INDICES.get(instrument)
    return Instrument(
        instrument=instrument,
        symbol=symbol or instrument,
        name=name or (index.name if index else f"{instrument} Corp."),
        exchange=exchange,
        calendar=calendar or calendar_code(instrument),
        currency=currency,
        sector=sector,
        asset_type=asset_type or ("index" if index else "stock"),
        valid_from=None if valid_from is None else day_of(valid_from),
        valid_to=None if valid_to is None else day_of(valid_to),
        first_session=day_of(first_session),
        last_session=None if last_session is None else day_of(last_session),
        basis=basis or (index.basis if index else "price"),
        static=static,
    )


def to_table(name: str, rows: Sequence[Bar | Action | Instrument]) -> pa.Table:
    """Turn rows into an Arrow table of the schema (NULLs let through, for tests of refusals)."""
    return pa.Table.from_pylist([asdict(row) for row in rows], schema=TABLES[name].arrow)


def make_tables(
    bars: Mapping[str, Iterable[BarTuple | Bar]],
    *,
    actions: Iterable[Action] = (),
    instruments: Iterable[Instrument] = (),
    currency: str = "USD",
) -> dict[str, pa.Table]:
    """Make the three core tables.

    Args:
        bars: Instrument -> rows, each a (session, open, high, low, close, volume) or a `Bar`.
        actions: From `split` and `dividend`.
        instruments: From `make_instrument`; an instrument that has none gets a plain row.
        currency: Currency of bars given as tuples.
    """
    named = list(instruments)
    have = {row.instrument for row in named}
    calendars = {row.instrument: row.calendar for row in named}
    bar_rows: list[Bar] = []
    for instrument, rows in bars.items():
        made = [
            row
            if isinstance(row, Bar)
            else make_bars(
                instrument, [row], currency=currency, calendar=calendars.get(instrument)
            )[0]
            for row in rows
        ]
        bar_rows += made
        if instrument not in have:
            first = min((bar.session for bar in made), default=date(2000, 1, 3))
            named.append(make_instrument(instrument, currency=currency, first_session=first))
    return {
        "instruments": to_table("instruments", named),
        "bars": to_table("bars", bar_rows),
        "actions": to_table("actions", list(actions)),
    }


def make_snapshot(
    bars: Mapping[str, Iterable[BarTuple | Bar]],
    *,
    actions: Iterable[Action] = (),
    instruments: Iterable[Instrument] = (),
    currency: str = "USD",
    start: Day | None = None,
    end: Day | None = None,
    absent: Mapping[str, str] | None = None,
    name: str = "memory",
    undated: bool = False,
    **tables: pa.Table,
) -> Snapshot:
    """Make a snapshot in memory; the declared range is that of the bars unless given.

    Args:
        bars: See `make_tables`; so actions, instruments, currency.
        start: First declared date.
        end: Last declared date.
        absent: Reason for tables that are not there.
        name: Snapshot name.
        undated: Let rows without `known_at` in.
        **tables: Further tables by name.
    """
    made = make_tables(bars, actions=actions, instruments=instruments, currency=currency)
    sessions = [day for day in made["bars"].column("session").to_pylist() if day]
    return Snapshot.from_tables(
        {**made, **tables},
        name=name,
        declared_start=day_of(start) if start else min(sessions),
        declared_end=day_of(end) if end else max(sessions),
        absent=absent,
        undated=undated,
    )
