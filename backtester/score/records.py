"""The rows of a score, and how they become the columns of a file.

Every row class has the columns of one table of the results database, under the same names, without
run and score. A number is finite or None with a reason; the conversion refuses any other.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import date, datetime
from functools import cache
from operator import attrgetter
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from backtester.columnar import Rows, arrow_of
from backtester.errors import DataError
from backtester.records import ReturnRecord

RATINGS_BOOK: Final = "ratings"
"""Name of the book that follows the run's own ratings; the others are baselines."""


@dataclass(frozen=True, kw_only=True)
class OrderRow:
    """One order of a simulated book; see `book.OrderRecord`."""

    book: str
    trial: int
    seq: int
    session: date
    ticker: str
    fill_session: date | None
    fill_at: datetime | None
    side: str
    shares: float
    price: float | None
    reference_price: float | None
    notional: float
    asked: float | None
    commission: float
    slippage: float
    status: str
    reason: str | None
    target_weight: float | None
    currency: str | None
    flags: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class PositionRow:
    """One holding of a simulated book at one session's close; see `book.PositionRecord`."""

    book: str
    trial: int
    session: date
    ticker: str
    shares: float
    close: float | None
    value: float
    weight: float | None
    gain: float
    currency: str | None
    stale: bool


@dataclass(frozen=True, kw_only=True)
class EquityRow:
    """A simulated book at one session's close; see `book.EquityRecord`.

    Attributes:
        model_cost: What the models had been paid up to then; None where a score charges nothing.
    """

    book: str
    trial: int
    session: date
    closed_at: datetime
    cash: float
    positions_value: float
    equity: float
    gross: float | None
    net: float | None
    traded: float
    commission: float
    slippage: float
    dividends: float
    interest: float
    borrow: float
    model_cost: float | None
    ret: float | None
    stale: bool


@dataclass(frozen=True, kw_only=True)
class MetricRow:
    """One figure of a score.

    Attributes:
        subject: ``decisions``, or the name of a book: ``ratings``, a baseline, ``placebo``.
        trial: Lane, or None for all of them together.
        scope: ``all, ticker, rating, month, fold``: which part of the decisions it is over.
        member: Which ticker, rating, month or fold; ``all``.
        horizon: Sessions from decision to exit; None for a figure of a book.
        metric: Its name.
        value: The figure, or None.
        unit: Its unit.
        n: Rows that it came from.
        sessions: Distinct decision sessions among them.
        effective_n: Independent rows that would say as much.
        low: Lower end of its interval; so `high`.
        high: Upper end.
        level: Of the interval.
        p_value: Of no effect, two-sided.
        method: How interval or p-value were had.
        reason: Why the value, or else the interval, is None.
    """

    subject: str
    trial: int | None = None
    scope: str = "all"
    member: str = "all"
    horizon: int | None = None
    metric: str
    value: float | None
    unit: str
    n: int
    sessions: int | None = None
    effective_n: float | None = None
    low: float | None = None
    high: float | None = None
    level: float | None = None
    p_value: float | None = None
    method: str | None = None
    reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class EventRow:
    """The mean path of what was given one rating, at one session around the decision.

    Attributes:
        rating: One of the five, or ``unread``.
        session_offset: Sessions from the decision session; 0 is its close.
        n: Decisions with both prices at that session.
        mean_excess: Mean return of that one session less the benchmark's, or None.
        mean_path: Mean return from the decision's close to that session's, less the benchmark's;
            before it, of the way to the decision's close, with its sign turned.
        stddev_path: Sample deviation of it.
        reason: Why there is none.
    """

    rating: str
    session_offset: int
    n: int
    mean_excess: float | None
    mean_path: float | None
    stddev_path: float | None
    reason: str | None


@dataclass(frozen=True, kw_only=True)
class HorizonRow:
    """What one decision earned to one of the horizons of a score.

    Attributes:
        geometric_alpha: (1 + return) / (1 + benchmark's return) - 1, on the benchmark's basis.
    """

    ticker: str
    session: date
    trial: int
    horizon: int
    status: str
    exit_session: date | None
    raw_total: float | None
    benchmark_return: float | None
    alpha: float | None
    geometric_alpha: float | None
    directional_alpha: float | None
    reason: str | None


Row = OrderRow | PositionRow | EquityRow | MetricRow | EventRow | HorizonRow | ReturnRecord

TABLES_OF_A_SCORE: Final[Mapping[str, type[Row]]] = types.MappingProxyType(
    {
        "returns": ReturnRecord,
        "horizon_returns": HorizonRow,
        "orders": OrderRow,
        "positions": PositionRow,
        "equity": EquityRow,
        "metrics": MetricRow,
        "event_study": EventRow,
    }
)
"""Table name -> what one row is."""

_KEY: Final[Mapping[str, pa.DataType]] = types.MappingProxyType(
    {"ticker": pa.string(), "session": pa.date32(), "trial": pa.int64()}
)
_LEFT_OUT: Final = frozenset({"score_id"})


@dataclass(frozen=True, kw_only=True)
class _Column:
    name: str
    type: pa.DataType
    required: bool
    read: Callable[[Any], object]


@cache
def _columns(table: str) -> tuple[_Column, ...]:
    kind = TABLES_OF_A_SCORE[table]
    hints = typing.get_type_hints(kind)
    found: list[_Column] = []
    for field in fields(kind):
        if field.name in _LEFT_OUT:
            continue
        if field.name == "key":
            for part in _KEY:
                arrow = _KEY[part]
                read = attrgetter(f"key.{part}")
                found.append(_Column(name=part, type=arrow, required=True, read=read))
            continue
        arrow, required = arrow_of(hints[field.name])
        read = attrgetter(field.name)
        found.append(_Column(name=field.name, type=arrow, required=required, read=read))
    return tuple(found)


def schema_of(table: str) -> pa.Schema:
    """Return the columns of a score's table as they lie in its file."""
    return pa.schema([(c.name, c.type) for c in _columns(table)])


def table_of(table: str, rows: Sequence[Row]) -> pa.Table:
    """Return rows of one table of a score as columns.

    Args:
        table: Name of the table.
        rows: Its rows, in the order of the file.

    Raises:
        DataError: A number is NaN or infinite, or a value that must be there is not.
    """
    if isinstance(rows, Rows):
        return checked_table(table, rows.table.combine_chunks())
    arrays = []
    for column in _columns(table):
        array = pa.array([column.read(row) for row in rows], type=column.type)
        _refuse(table, column, array)
        arrays.append(array)
    return pa.table(arrays, schema=schema_of(table))


def _refuse(table: str, column: _Column, array: pa.Array[Any]) -> None:
    if column.required and array.null_count:
        raise DataError(f"a score's {table}.{column.name} is missing: a fault of our own")
    if not pa.types.is_floating(column.type):
        return
    if not pc.all(pc.is_finite(array), skip_nulls=True, min_count=0).as_py():
        at = pc.index(pc.is_finite(array), False).as_py()
        raise DataError(
            f"a score's {table}.{column.name} is {array[at].as_py()!r}: a result is a finite "
            "number, or None with a reason"
        )


def checked_table(table: str, found: pa.Table) -> pa.Table:
    """Return a table read from a file, if it is what `table_of` makes.

    Raises:
        DataError: It has other columns, or a number that no table may hold.
    """
    wanted = schema_of(table)
    if not found.schema.equals(wanted):
        raise DataError(f"its {table} has other columns than this release writes")
    for column in _columns(table):
        _refuse(table, column, found.column(column.name).combine_chunks())
    return found
