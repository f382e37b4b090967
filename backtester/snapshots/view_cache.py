"""What does not depend on a cutoff: columns by split epoch, indicators, rows by instant.

A `ViewCache` works each of them out once for all views of a snapshot. It knows no cutoff and
decides nothing: a view takes a prefix of what is here, after its own filter. Bars are on the basis
of the first so many splits of their instrument (an epoch) and end where the next split begins. As
every indicator at a bar is a function of the bars up to it, a prefix of a whole epoch's series is
what the shorter history would give, bit for bit.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from backtester.schema import ESTIMATED, SPLIT
from backtester.snapshots.snapshot import ActionColumns, BarColumns, Snapshot
from tradingagents_core.indicators import compute
from tradingagents_core.protocols import Bars, Row
from tradingagents_core.rows import Rows

Instants = npt.NDArray[np.int64]
Days = npt.NDArray[np.datetime64]
Floats = npt.NDArray[np.float64]
Key = TypeVar("Key")
Value = TypeVar("Value")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
# About 75 MB of rows, with what is worked out from them.
_ROWS_KEPT = 100_000
# Undated rows are kept behind all others, so that a filter leaves them out like the future.
UNDATED = int(np.iinfo(np.int64).max)


@dataclass(frozen=True, kw_only=True)
class Splits:
    """Hold the splits of one instrument in the order in which they became known."""

    known_at: Instants
    ex_sessions: Days
    numerators: tuple[int, ...]
    denominators: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Epoch:
    """Hold the bars of one instrument on the basis of its first so many splits.

    The rows reach to the split that comes next and are ordered by ``known_at``, undated ones last.

    Attributes:
        known_at: UTC microseconds.
        bars: The rows, adjusted.
        ordered: Number of leading rows whose sessions ascend.
        undated: Number of rows at the end without an instant.
    """

    known_at: Instants
    bars: Bars
    ordered: int
    undated: int


@dataclass(frozen=True, kw_only=True)
class Span:
    """Name the rows of an epoch that a call gets: from ``first`` to before ``stop``."""

    instrument: str
    splits: int
    epoch: Epoch
    first: int
    stop: int


@dataclass(frozen=True, kw_only=True)
class DatedRows:
    """Hold the rows of another table for one instrument, by ``known_at``, undated ones last.

    Attributes:
        known_at: UTC microseconds.
        rows: The rows.
        undated: Number of rows at the end without an instant.
        withheld_at: Instants of dated rows that are not here because theirs are estimates.
    """

    known_at: Instants
    rows: pa.Table
    undated: int
    withheld_at: Instants

    def take(self, first: int, stop: int) -> Rows:
        """Return the rows from one position to before another; they can be shared."""
        chosen = self.rows.slice(first, stop - first)
        names = [name for name in chosen.column_names if name != "known_at"]
        values = zip(*(_values(chosen.column(name)) for name in names), strict=True)
        # Arrow makes an instant of a zone four times slower than this, and it was most of the time.
        stamps = self.known_at[first:stop].tolist()
        instants = {stamp: instant_of(stamp) for stamp in dict.fromkeys(stamps)}
        return Rows(
            [
                Row(
                    known_at=instants[stamp],
                    fields=MappingProxyType(dict(zip(names, row, strict=True))),
                )
                for stamp, row in zip(stamps, values, strict=True)
            ]
        )


class ViewCache:
    """Hold what the views of one snapshot share; safe to use from several threads."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self._lock = threading.RLock()
        self._splits: dict[str, Splits] = {}
        self._epochs: dict[tuple[str, int], Epoch] = {}
        self._indicators: dict[tuple[str, int], Mapping[str, Floats]] = {}
        self._tables: dict[tuple[str, str | None, bool], DatedRows] = {}
        self._taken: OrderedDict[tuple[int, int, int], Rows] = OrderedDict()
        self._rows_taken = 0
        self._symbols: dict[tuple[str, date], str] = {}
        self.instruments = frozenset(snapshot.instruments())
        codes = {
            row.calendar
            for instrument in snapshot.instruments()
            for row in snapshot.identity_rows(instrument)
        }
        self.calendar_codes = tuple(sorted(codes))

    def resolve(self, symbol: str, on: date) -> str | None:
        """Return the instrument that went by a symbol on a date, or None; hits are kept."""
        found = self._symbols.get((symbol, on))
        if found is None:
            found = self.snapshot.resolve(symbol, on)
            if found is not None:
                self._symbols[symbol, on] = found
        return found

    def splits(self, instrument: str) -> Splits:
        """Return the splits of an instrument."""
        return self._once(
            self._splits, instrument, lambda: _splits_of(self.snapshot.actions(instrument))
        )

    def epoch(self, instrument: str, splits: int) -> Epoch:
        """Return the bars of an instrument on the basis of its first `splits` splits."""
        return self._once(
            self._epochs,
            (instrument, splits),
            lambda: _epoch_of(self.snapshot.bars(instrument), self.splits(instrument), splits),
        )

    def indicators(self, instrument: str, splits: int) -> Mapping[str, Floats]:
        """Return every indicator over a whole epoch."""
        return self._once(
            self._indicators,
            (instrument, splits),
            lambda: compute(self.epoch(instrument, splits).bars),
        )

    def table(self, name: str, instrument: str | None, *, estimated: bool) -> DatedRows:
        """Return the rows of a table that belong to an instrument, or to none.

        Args:
            name: Table.
            instrument: Instrument, or None for rows that belong to none.
            estimated: Whether rows whose instant is an estimate are among them.
        """
        return self._once(
            self._tables,
            (name, instrument, estimated),
            lambda: _dated_rows(self.snapshot.table(name), instrument, estimated=estimated),
        )

    def take(self, held: DatedRows, first: int, stop: int) -> Rows:
        """Return rows of a table of this cache, those of the last takings as they were made.

        The tools of one decision read the same filings, and so do the decisions up to the next.
        """
        key = (id(held), first, stop)
        with self._lock:
            taken = self._taken.get(key)
            if taken is not None:
                self._taken.move_to_end(key)
                return taken
            taken = self._taken[key] = held.take(first, stop)
            self._rows_taken += _weight(taken)
            while self._rows_taken > _ROWS_KEPT and len(self._taken) > 1:
                _, oldest = self._taken.popitem(last=False)
                self._rows_taken -= _weight(oldest)
            return taken

    def _once(self, kept: dict[Key, Value], key: Key, make: Callable[[], Value]) -> Value:
        found = kept.get(key)
        if found is None:
            with self._lock:
                found = kept.get(key)
                if found is None:
                    found = kept[key] = make()
        return found


def _weight(taken: Rows) -> int:
    return len(taken) + 1


def _values(column: pa.ChunkedArray[Any]) -> list[Any]:
    """Return a column's values, equal words and dates as one object.

    Filings repeat a few of them many times over, and Arrow is slow to make a date.
    """
    if not (pa.types.is_string(column.type) or pa.types.is_date(column.type)):
        return column.to_pylist()
    encoded = column.combine_chunks().dictionary_encode()
    words = [*encoded.dictionary.to_pylist(), None]
    places = encoded.indices.fill_null(len(words) - 1).to_numpy()
    return [words[at] for at in places.tolist()]


def first_on(known_at: Instants, day: date) -> int:
    """Return the position of the first row that became public on or after a UTC day."""
    midnight = datetime(day.year, day.month, day.day, tzinfo=UTC)
    return int(np.searchsorted(known_at, microseconds_of(midnight), side="left"))


def microseconds_of(instant: datetime) -> int:
    """Return an instant as the columns hold it."""
    return (instant - _EPOCH) // _MICROSECOND


def instant_of(microseconds: int) -> datetime:
    """Return the UTC instant that a column holds."""
    return _EPOCH + timedelta(microseconds=microseconds)


def _instants(known_at: npt.NDArray[np.datetime64]) -> Instants:
    values = known_at.astype("datetime64[us]").astype(np.int64)
    values[np.isnat(known_at)] = UNDATED
    return values


def _splits_of(actions: ActionColumns) -> Splits:
    known_at = _instants(actions.known_at)
    chosen = np.flatnonzero(actions.kind == SPLIT)
    chosen = chosen[np.argsort(known_at[chosen], kind="stable")]
    return Splits(
        known_at=known_at[chosen],
        ex_sessions=actions.ex_sessions[chosen],
        numerators=tuple(actions.numerator[chosen].tolist()),
        denominators=tuple(actions.denominator[chosen].tolist()),
    )


def _epoch_of(bars: BarColumns, splits: Splits, count: int) -> Epoch:
    known_at = _instants(bars.known_at)
    order = np.argsort(known_at, kind="stable")
    undated = int(np.count_nonzero(known_at == UNDATED))
    if count < len(splits.known_at):
        # What follows the next split is on another basis, and after every cutoff of this epoch.
        within = known_at[order] < splits.known_at[count]
        within |= known_at[order] == UNDATED
        order = order[within]
    sessions = bars.sessions[order]
    up, down = np.ones(len(order)), np.ones(len(order))
    for split in range(count):
        before = sessions < splits.ex_sessions[split]
        up[before] *= splits.numerators[split]
        down[before] *= splits.denominators[split]
    falls = np.flatnonzero(sessions[1:] <= sessions[:-1])
    return Epoch(
        known_at=known_at[order],
        bars=Bars(
            sessions=sessions,
            open=bars.open[order] * down / up,
            high=bars.high[order] * down / up,
            low=bars.low[order] * down / up,
            close=bars.close[order] * down / up,
            volume=bars.volume[order] * up / down,
        ),
        ordered=int(falls[0]) + 1 if len(falls) else len(order),
        undated=undated,
    )


def _dated_rows(table: pa.Table, instrument: str | None, *, estimated: bool) -> DatedRows:
    if "instrument" in table.column_names:
        column = table.column("instrument")
        mine = pc.is_null(column) if instrument is None else pc.equal(column, pa.scalar(instrument))
        table = table.filter(mine)
    withheld_at = np.empty(0, dtype=np.int64)
    if not estimated and "known_at_basis" in table.column_names:
        guessed = pc.equal(table.column("known_at_basis"), pa.scalar(ESTIMATED))
        stamps = _stamps(table.filter(guessed))
        withheld_at = np.sort(stamps[stamps != UNDATED])
        table = table.filter(pc.invert(guessed))
    known_at = _stamps(table)
    order = np.argsort(known_at, kind="stable")
    return DatedRows(
        known_at=known_at[order],
        rows=table.take(order),
        undated=int(np.count_nonzero(known_at == UNDATED)),
        withheld_at=withheld_at,
    )


def _stamps(table: pa.Table) -> Instants:
    stamps = table.column("known_at").cast(pa.int64()).fill_null(pa.scalar(UNDATED, pa.int64()))
    return stamps.to_numpy()
