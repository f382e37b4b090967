"""Rows of the core tables as columns by instrument: what everything above a snapshot computes on.

Arrow tables hold what is stored; these hold the same content as read-only numpy arrays, one entry
an instrument, so that a slice costs microseconds and no reader can change what another one sees.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from backtester.errors import DataError


@dataclass(frozen=True, kw_only=True)
class BarColumns:
    """Hold the daily bars of one instrument, oldest first, one a session; arrays are read-only.

    Prices and volume are as traded on that day. A session whose captured bars contradict each
    other is in `conflicts` and in none of the arrays: no caller can use such a price unawares.

    Attributes:
        sessions: ``datetime64[D]``, ascending, unique.
        known_at: ``datetime64[us]``, UTC; NaT for an undated row (in-memory snapshots only).
        open: Quote currency, so ``high, low, close``.
        volume: Shares, int64.
        currency: Quote currency; empty where there is no bar.
        conflicts: Sessions with different captured bars.
    """

    sessions: npt.NDArray[np.datetime64]
    known_at: npt.NDArray[np.datetime64]
    open: npt.NDArray[np.float64]
    high: npt.NDArray[np.float64]
    low: npt.NDArray[np.float64]
    close: npt.NDArray[np.float64]
    volume: npt.NDArray[np.int64]
    currency: str
    conflicts: frozenset[date]

    def __len__(self) -> int:
        """Return the number of bars."""
        return len(self.sessions)

    def position(self, session: date) -> int | None:
        """Return the position of a session's bar, or None where there is none."""
        return self._places.get(session)

    @cached_property
    def _places(self) -> Mapping[date, int]:
        """Session -> position, made at the first question: one look-up then takes no array."""
        return {day: at for at, day in enumerate(self.sessions.tolist())}


@dataclass(frozen=True, kw_only=True)
class ActionColumns:
    """Hold the splits and dividends of one instrument by ex session; arrays are read-only.

    Attributes:
        ex_sessions: ``datetime64[D]``, ascending; several actions may share a session.
        known_at: ``datetime64[us]``, UTC.
        kind: ``split`` or ``dividend``.
        numerator: Shares after; 1 for a dividend.
        denominator: For so many before; 1 for a dividend.
        amount: Dividend per share as paid; 0 for a split.
        currency: Currency of each row.
    """

    ex_sessions: npt.NDArray[np.datetime64]
    known_at: npt.NDArray[np.datetime64]
    kind: npt.NDArray[np.str_]
    numerator: npt.NDArray[np.int64]
    denominator: npt.NDArray[np.int64]
    amount: npt.NDArray[np.float64]
    currency: npt.NDArray[np.str_]

    def __len__(self) -> int:
        """Return the number of actions."""
        return len(self.ex_sessions)


@dataclass(frozen=True, kw_only=True)
class IdentityRow:
    """Say what an instrument was called, and where it traded, in one range of dates.

    Attributes:
        instrument: The snapshot's own id.
        symbol: Symbol in this range.
        name: Name in this range.
        exchange: Exchange as people call it.
        calendar: Calendar code.
        currency: Quote currency.
        sector: Sector, or None where not known.
        asset_type: ``stock, fund, index, crypto, fx, future``.
        valid_from: First date of the range, or None for no known beginning.
        valid_to: First date after it, or None for no known end.
        first_session: First session that the snapshot covers.
        last_session: Last session traded, or None while it trades.
        basis: ``price`` or ``total``: what its closes hold.
        static: True for today's words without a validity range.
    """

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

    def holds_on(self, day: date) -> bool:
        """Say whether the range holds a date."""
        return (self.valid_from is None or self.valid_from <= day) and (
            self.valid_to is None or day < self.valid_to
        )


def _column(table: pa.Table, name: str) -> npt.NDArray[Any]:
    values = table.column(name).combine_chunks()
    if pa.types.is_timestamp(values.type):
        instants = values.cast(pa.int64()).fill_null(_NAT).to_numpy(zero_copy_only=False)
        return instants.astype("datetime64[us]")
    return values.to_numpy(zero_copy_only=False)


_NAT = int(np.datetime64("NaT", "us").astype(np.int64))


def _read_only(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    copy = values.copy()
    copy.flags.writeable = False
    return copy


def _spans(table: pa.Table) -> Iterator[tuple[str, int, int]]:
    """Yield (instrument, first row, row after the last) of a table sorted by instrument."""
    if not table.num_rows:
        return
    codes = table.column("instrument").combine_chunks().dictionary_encode()
    changes = np.flatnonzero(np.diff(codes.indices.to_numpy(zero_copy_only=False))) + 1
    edges = [0, *changes.tolist(), table.num_rows]
    for index, name in enumerate(codes.dictionary.to_pylist()):
        yield str(name), edges[index], edges[index + 1]


def bars_by_instrument(table: pa.Table) -> Mapping[str, BarColumns]:
    """Return the bars of each instrument that has any, from a conformed table."""
    numeric = ("session", "known_at", "open", "high", "low", "close", "volume")
    columns = {name: _column(table, name) for name in numeric}
    currency = table.column("currency")
    found = {}
    for instrument, first, last in _spans(table):
        days = columns["session"][first:last]
        twice = np.zeros(len(days), dtype=bool)
        same = days[1:] == days[:-1]
        twice[1:] |= same
        twice[:-1] |= same
        part = {name: _read_only(columns[name][first:last][~twice]) for name in numeric}
        found[instrument] = BarColumns(
            sessions=part["session"],
            known_at=part["known_at"],
            open=part["open"],
            high=part["high"],
            low=part["low"],
            close=part["close"],
            volume=part["volume"],
            currency=currency[first].as_py(),
            conflicts=frozenset(days[twice].tolist()),
        )
    return MappingProxyType(found)


def actions_by_instrument(table: pa.Table) -> Mapping[str, ActionColumns]:
    """Return the actions of each instrument that has any, from a conformed table."""
    neutral = table
    for name, value in (("numerator", 1), ("denominator", 1), ("amount", 0.0)):
        filled = table.column(name).combine_chunks().fill_null(value)
        neutral = neutral.set_column(neutral.column_names.index(name), name, filled)
    columns = {
        name: _column(neutral, name)
        for name in ("ex_session", "known_at", "numerator", "denominator", "amount")
    }
    for name in ("kind", "currency"):
        columns[name] = np.array(neutral.column(name).to_pylist(), dtype=np.str_)
    found = {}
    for instrument, first, last in _spans(table):
        part = {name: _read_only(values[first:last]) for name, values in columns.items()}
        found[instrument] = ActionColumns(
            ex_sessions=part["ex_session"],
            known_at=part["known_at"],
            kind=part["kind"],
            numerator=part["numerator"],
            denominator=part["denominator"],
            amount=part["amount"],
            currency=part["currency"],
        )
    return MappingProxyType(found)


def identities_by_instrument(table: pa.Table) -> Mapping[str, tuple[IdentityRow, ...]]:
    """Return the identity ranges of each instrument, oldest first, from a conformed table.

    Raises:
        DataError: For ranges that overlap.
    """
    found: dict[str, list[IdentityRow]] = {}
    for row in table.to_pylist():
        found.setdefault(row["instrument"], []).append(IdentityRow(**row))
    ordered = {}
    for instrument, rows in found.items():
        # Arrow sorts NULL last; a range without a beginning is the oldest.
        rows.sort(key=lambda row: row.valid_from or date.min)
        for before, after in itertools.pairwise(rows):
            if before.valid_to is None or (after.valid_from or date.min) < before.valid_to:
                raise DataError(
                    f"table instruments: the ranges of {instrument} overlap at "
                    f"{after.valid_from}: end one before the next begins"
                )
        ordered[instrument] = tuple(rows)
    return MappingProxyType(ordered)


NO_BARS = BarColumns(
    sessions=_read_only(np.array([], dtype="datetime64[D]")),
    known_at=_read_only(np.array([], dtype="datetime64[us]")),
    open=_read_only(np.array([], dtype=np.float64)),
    high=_read_only(np.array([], dtype=np.float64)),
    low=_read_only(np.array([], dtype=np.float64)),
    close=_read_only(np.array([], dtype=np.float64)),
    volume=_read_only(np.array([], dtype=np.int64)),
    currency="",
    conflicts=frozenset(),
)
NO_ACTIONS = ActionColumns(
    ex_sessions=_read_only(np.array([], dtype="datetime64[D]")),
    known_at=_read_only(np.array([], dtype="datetime64[us]")),
    kind=_read_only(np.array([], dtype=np.str_)),
    numerator=_read_only(np.array([], dtype=np.int64)),
    denominator=_read_only(np.array([], dtype=np.int64)),
    amount=_read_only(np.array([], dtype=np.float64)),
    currency=_read_only(np.array([], dtype=np.str_)),
)
