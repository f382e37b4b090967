"""The tables of a snapshot: columns, types, units, keys and the rule for `known_at`.

This module is the only place that says what a table looks like and when a row became public. A
row is visible if and only if ``known_at <= cutoff``. The rules are data (`TableSchema.known_at`,
words for people and manifests) with a function beside each one that can be worked out from a
calendar or a date alone: `known_at_bar`, `known_at_action`, `known_at_day`, and the two estimates
for sources without an instant, `known_at_period_end` and `known_at_trade`.

Every instant is UTC with microseconds, every session a plain date in the exchange's own zone, and
prices are as traded on that day, in the quote currency.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from types import MappingProxyType
from typing import Any, Literal, Protocol
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from backtester.errors import DataError
from tradingagents_core.statements import ITEMS

SCHEMA_VERSION = 1

DATE = pa.date32()
INSTANT = pa.timestamp("us", tz="UTC")
TEXT = pa.string()
REAL = pa.float64()
INTEGER = pa.int64()
FLAG = pa.bool_()

SPLIT = "split"
DIVIDEND = "dividend"
ACTION_KINDS = (SPLIT, DIVIDEND)
BASES = ("price", "total")
PUBLISHED = "published"
ESTIMATED = "estimated"
ASSET_TYPES = ("stock", "fund", "index", "crypto", "fx", "future")


class SessionTimes(Protocol):
    """What a `known_at` rule needs from a calendar."""

    def open_utc(self, session: date) -> datetime:
        """Return the instant at which the session opens."""

    def close_utc(self, session: date) -> datetime:
        """Return the instant at which the session closes."""


class BusinessDays(Protocol):
    """What the estimate for an insider's trade needs from a calendar."""

    tz: str

    def last_on_or_before(self, day: date) -> date:
        """Return the newest session that is not after a date."""

    def shift(self, session: date, sessions: int) -> date:
        """Return the session so many sessions on."""


@dataclass(frozen=True, kw_only=True)
class Column:
    """Describe one column of a table.

    Attributes:
        name: Column name.
        type: Arrow type.
        unit: Unit or meaning, for people.
        nullable: Whether NULL is a value; it always means "not known", never zero.
    """

    name: str
    type: pa.DataType
    unit: str
    nullable: bool = False


@dataclass(frozen=True, kw_only=True)
class TableSchema:
    """Describe one table.

    Attributes:
        name: Table name, also the stem of its file.
        columns: In stored order.
        key: Columns that name a row; rows are stored in their order.
        known_at: Rule for the instant at which a row became public, in words.
        core: True where a snapshot without the table is no snapshot.
    """

    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    known_at: str
    core: bool = False

    @property
    def arrow(self) -> pa.Schema:
        """Return the Arrow schema; `conform` refuses NULLs, for Arrow does not say in which row."""
        return pa.schema([pa.field(column.name, column.type) for column in self.columns])

    @property
    def names(self) -> tuple[str, ...]:
        """Return the column names in stored order."""
        return tuple(column.name for column in self.columns)

    @property
    def dated(self) -> bool:
        """Say whether rows carry a `known_at` of their own."""
        return "known_at" in self.names

    def empty(self) -> pa.Table:
        """Return a table of this shape without rows."""
        return self.arrow.empty_table()


def known_at_bar(calendar: SessionTimes, session: date) -> datetime:
    """Return when a daily bar became public: the close of its session, half days included."""
    return calendar.close_utc(session)


def known_at_action(calendar: SessionTimes, ex_session: date) -> datetime:
    """Return when a split or dividend takes effect for a reader: the open of its ex session."""
    return calendar.open_utc(ex_session)


def known_at_day(day: date, zone: str) -> datetime:
    """Return when a row that names only a day became public: the end of that day in its zone."""
    return datetime.combine(day, time.max, ZoneInfo(zone)).astimezone(UTC)


def known_at_period_end(
    period_end: date, period_months: int, zone: str, *, half_yearly: bool = False
) -> datetime:
    """Return an estimate of when a statement became public, for a source without filing dates.

    The end of the 45th day after the period, the 90th after a year; where a market reports by
    half-years, the 90th and the 120th. The months are those of the *report*: 12 for the balance
    sheet of an annual one. A row with it is marked `ESTIMATED`.
    """
    quarter, year = (90, 120) if half_yearly else (45, 90)
    lag = year if period_months >= 12 else quarter
    return known_at_day(period_end + timedelta(days=lag), zone)


def known_at_trade(calendar: BusinessDays, transaction_date: date) -> datetime:
    """Return an estimate of when an insider's trade became public: the end of two sessions on.

    Sessions stand for the law's business days; a day without one counts from the one before.
    """
    traded = calendar.last_on_or_before(transaction_date)
    return known_at_day(calendar.shift(traded, 2), calendar.tz)


def _col(name: str, kind: pa.DataType, unit: str, *, nullable: bool = False) -> Column:
    return Column(name=name, type=kind, unit=unit, nullable=nullable)


_INSTRUMENT = _col("instrument", TEXT, "the snapshot's own id, stable over renames")
_KNOWN_AT = _col("known_at", INSTANT, "UTC instant from which the row is public")
_BASIS = _col("known_at_basis", TEXT, "'published' or 'estimated'")

_INSTRUMENTS = TableSchema(
    name="instruments",
    core=True,
    key=("instrument", "valid_from"),
    known_at="the row holds for sessions with valid_from <= session < valid_to; NULL is open",
    columns=(
        _INSTRUMENT,
        _col("symbol", TEXT, "ticker symbol in this range"),
        _col("name", TEXT, "name in this range"),
        _col("exchange", TEXT, "exchange as people call it"),
        _col("calendar", TEXT, "exchange_calendars code"),
        _col("currency", TEXT, "ISO code, or a minor unit as quoted (GBp)"),
        _col("sector", TEXT, "sector in this range; NULL where not known", nullable=True),
        _col("asset_type", TEXT, "one of " + ", ".join(ASSET_TYPES)),
        _col(
            "valid_from", DATE, "first date of the range; NULL: as far back as data", nullable=True
        ),
        _col("valid_to", DATE, "first date after the range; NULL: no end known", nullable=True),
        _col("first_session", DATE, "first session that the snapshot covers"),
        _col("last_session", DATE, "last session traded; NULL: still trading", nullable=True),
        _col("basis", TEXT, "what the closes hold: 'price', or 'total' with dividends"),
        _col("static", FLAG, "true: today's words without a validity range"),
    ),
)

_BARS = TableSchema(
    name="bars",
    core=True,
    key=("instrument", "session"),
    known_at="close of the session by the exchange calendar, half days included",
    columns=(
        _INSTRUMENT,
        _col("session", DATE, "trading day in the exchange's zone"),
        _KNOWN_AT,
        _col("open", REAL, "price as traded, quote currency"),
        _col("high", REAL, "price as traded, quote currency"),
        _col("low", REAL, "price as traded, quote currency"),
        _col("close", REAL, "price as traded, quote currency"),
        _col("volume", INTEGER, "shares (contracts, coins) as traded on that day"),
        _col("currency", TEXT, "quote currency, or a minor unit as quoted (GBp)"),
    ),
)

_ACTIONS = TableSchema(
    name="actions",
    core=True,
    key=("instrument", "ex_session", "kind"),
    known_at="open of the ex session",
    columns=(
        _INSTRUMENT,
        _col("ex_session", DATE, "first session without the right"),
        _KNOWN_AT,
        _col("kind", TEXT, "'split' (a stock dividend is one) or 'dividend'"),
        _col("numerator", INTEGER, "split: shares after ...", nullable=True),
        _col("denominator", INTEGER, "... for so many before", nullable=True),
        _col("amount", REAL, "dividend per share as paid, unadjusted", nullable=True),
        _col("currency", TEXT, "currency of the amount; of the quote for a split"),
    ),
)

_STATEMENTS = TableSchema(
    name="statements",
    key=(
        "instrument",
        "statement",
        "item",
        "period_end",
        "period_months",
        "known_at",
        "form",
        "accession",
    ),
    known_at=(
        "acceptance instant of the filing (SEC: the later reading of acceptanceDateTime, never "
        "before 06:00 New York of the filing date); date-only: end of the filing day"
    ),
    columns=(
        _INSTRUMENT,
        _col("statement", TEXT, ", ".join(ITEMS)),
        _col("item", TEXT, "line item; a name of STATEMENT_ITEMS where one fits"),
        _col("period_start", DATE, "first day; NULL for an instant", nullable=True),
        _col("period_end", DATE, "last day of the period"),
        _col("period_months", INTEGER, "length in months; 0 for an instant"),
        _KNOWN_AT,
        _BASIS,
        _col("form", TEXT, "form or report it came from"),
        _col("accession", TEXT, "number of the filing; NULL where there is none", nullable=True),
        _col("tag", TEXT, "the source's own name of the item", nullable=True),
        _col("derived", FLAG, "true: worked out from longer periods, not filed on its own"),
        _col("value", REAL, "as filed, in `unit`"),
        _col("unit", TEXT, "currency, 'shares' or 'currency/shares'"),
    ),
)

_NEWS = TableSchema(
    name="news",
    key=("instrument", "known_at", "id"),
    known_at="publication instant; date-only: end of that day in the source's zone",
    columns=(
        _col("instrument", TEXT, "instrument; NULL for global news", nullable=True),
        _col("id", TEXT, "the source's id, or a hash of the text"),
        _KNOWN_AT,
        _BASIS,
        _col("source", TEXT, "publisher"),
        _col("title", TEXT, "headline as published"),
        _col("summary", TEXT, "text as published", nullable=True),
        _col("url", TEXT, "address as published", nullable=True),
    ),
)

_SOCIAL = TableSchema(
    name="social",
    key=("instrument", "known_at", "id"),
    known_at="publication instant; date-only: end of that day in the source's zone",
    columns=(
        _INSTRUMENT,
        _col("id", TEXT, "the source's id"),
        _KNOWN_AT,
        _col("platform", TEXT, "'stocktwits', 'reddit', ..."),
        _col("text", TEXT, "post as published"),
        _col("label", TEXT, "the author's own mark (bullish, bearish)", nullable=True),
    ),
)

_MACRO = TableSchema(
    name="macro",
    key=("series", "period", "known_at"),
    known_at="vintage date at the series' stated release time; not in the table: end of that day",
    columns=(
        _col("series", TEXT, "series id"),
        _col("name", TEXT, "series name"),
        _col("period", DATE, "observation date"),
        _KNOWN_AT,
        _BASIS,
        _col("value", REAL, "value of that vintage, in `unit`"),
        _col("unit", TEXT, "unit as the source names it"),
    ),
)

_INSIDER = TableSchema(
    name="insider",
    key=("instrument", "known_at", "id"),
    known_at="acceptance instant; without it estimated: transaction date + 2 business days",
    columns=(
        _INSTRUMENT,
        _col("id", TEXT, "the filing's number and line"),
        _col("form", TEXT, "form it came from ('4', '4/A' amends an earlier one)", nullable=True),
        _col("transaction_date", DATE, "day of the trade"),
        _KNOWN_AT,
        _BASIS,
        _col("insider", TEXT, "name as filed"),
        _col("role", TEXT, "role as filed", nullable=True),
        _col("code", TEXT, "transaction code (P, S, ...)"),
        _col("acquired", FLAG, "true: shares came in, false: went out", nullable=True),
        _col("security", TEXT, "title of the security as filed", nullable=True),
        _col("shares", REAL, "shares, as traded on that day"),
        _col("price", REAL, "price a share, quote currency", nullable=True),
    ),
)

_PREDICTION_MARKETS = TableSchema(
    name="prediction_markets",
    key=("market", "outcome", "known_at"),
    known_at="tick time of the market's price history",
    columns=(
        _col("market", TEXT, "market id"),
        _col("question", TEXT, "question as asked"),
        _col("outcome", TEXT, "outcome that is priced"),
        _KNOWN_AT,
        _col("probability", REAL, "price as a fraction"),
        _col("volume", REAL, "traded so far, in `currency`", nullable=True),
        _col("currency", TEXT, "currency of the volume", nullable=True),
    ),
)

# Line items by statement; a vendor maps its names to these, for ratios are made from them alone.
STATEMENT_ITEMS = ITEMS

TABLES: Mapping[str, TableSchema] = MappingProxyType(
    {
        table.name: table
        for table in (
            _INSTRUMENTS,
            _BARS,
            _ACTIONS,
            _STATEMENTS,
            _NEWS,
            _SOCIAL,
            _MACRO,
            _INSIDER,
            _PREDICTION_MARKETS,
        )
    }
)
CORE_TABLES = tuple(name for name, table in TABLES.items() if table.core)
OPTIONAL_TABLES = tuple(name for name, table in TABLES.items() if not table.core)


def table_schema(name: str) -> TableSchema:
    """Return the schema of a table.

    Raises:
        DataError: For a name that is no table, with the names that are.
    """
    try:
        return TABLES[name]
    except KeyError as error:
        raise DataError(f"{name!r} is no table: write one of {', '.join(TABLES)}") from error


def conform(name: str, table: pa.Table, *, undated: bool = False) -> pa.Table:
    """Return a table in its schema's columns and types, sorted, without equal duplicates.

    Rows are ordered by the key and then by every other column, NULL last, so that equal content
    has one order. Rows that are equal in every column become one; rows with one key that differ
    all stay, for they are a conflict and not for this function to settle.

    Args:
        name: Table name.
        table: Rows with the schema's columns, in any order and any type that casts safely.
        undated: Let a NULL `known_at` pass; readers then refuse the row.

    Raises:
        DataError: For a missing or surplus column, a type that does not fit, a NULL where the
            schema has none, a NaN or an infinity.
    """
    schema = table_schema(name)
    missing = [column for column in schema.names if column not in table.column_names]
    surplus = [column for column in table.column_names if column not in schema.names]
    if missing or surplus:
        raise DataError(
            f"table {name}: missing columns {missing}, unknown columns {surplus}; "
            f"write exactly {', '.join(schema.names)}"
        )
    try:
        table = table.select(list(schema.names)).cast(schema.arrow).combine_chunks()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise DataError(f"table {name}: a column does not fit its type: {error}") from error
    _refuse_holes(schema, table, undated=undated)
    return _sorted_unique(schema, table)


def _refuse_holes(schema: TableSchema, table: pa.Table, *, undated: bool) -> None:
    for column in schema.columns:
        values = table.column(column.name).combine_chunks()
        may_be_null = column.nullable or (undated and column.name == "known_at")
        holes = _positions(pc.is_null(values))
        if len(holes) and not may_be_null:
            raise DataError(
                f"table {schema.name}: {len(holes)} rows have no {column.name}, the first is "
                f"{_row_name(schema, table, holes[0])}; leave such rows out and count them"
            )
        if column.type != REAL:
            continue
        odd = _positions(pc.invert(pc.is_finite(values)))
        if len(odd):
            raise DataError(
                f"table {schema.name}: {column.name} is NaN or infinite in "
                f"{_row_name(schema, table, odd[0])}; leave the row out, or write NULL where the "
                "schema allows it"
            )


def _positions(flags: pa.Array[Any]) -> npt.NDArray[np.intp]:
    return np.flatnonzero(flags.fill_null(False).to_numpy(zero_copy_only=False))


def _row_name(schema: TableSchema, table: pa.Table, row: np.intp) -> str:
    return " ".join(str(table.column(name)[int(row)].as_py()) for name in schema.key)


def _sorted_unique(schema: TableSchema, table: pa.Table) -> pa.Table:
    if _is_ordered(schema, table):
        return table
    rest = [column for column in schema.names if column not in schema.key]
    # Arrow cannot sort by booleans; a flag sorts as its integer.
    sortable = pa.schema(
        [pa.field(c.name, pa.int8() if c.type == FLAG else c.type) for c in schema.columns]
    )
    keyed = table.cast(sortable)
    ascending: Literal["ascending"] = "ascending"
    keys = [(column, ascending) for column in (*schema.key, *rest)]
    order = pc.sort_indices(keyed, sort_keys=keys)
    table = table.take(order).combine_chunks()
    return table.filter(_first_of_equals(table)).combine_chunks()


def _is_ordered(schema: TableSchema, table: pa.Table) -> bool:
    """Say whether each row's key is greater than that of the row before, as in what was stored."""
    undecided = np.ones(max(0, table.num_rows - 1), dtype=bool)
    for name in schema.key:
        ranks = _ranks(table.column(name).combine_chunks())
        if (undecided & (ranks[1:] < ranks[:-1])).any():
            return False
        undecided &= ranks[1:] == ranks[:-1]
    return not undecided.any()


def _ranks(values: pa.Array[Any]) -> npt.NDArray[np.int64]:
    """Return numbers in the order of values, NULL last."""
    last = np.iinfo(np.int64).max
    if pa.types.is_string(values.type):
        encoded = values.dictionary_encode()
        rank = np.empty(len(encoded.dictionary), dtype=np.int64)
        rank[pc.sort_indices(encoded.dictionary).to_numpy()] = np.arange(len(rank))
        codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        return np.where(codes < 0, last, np.append(rank, last)[codes])
    whole = values.cast(pa.int32()) if pa.types.is_date32(values.type) else values
    return whole.cast(pa.int64()).fill_null(last).to_numpy(zero_copy_only=False)


def _first_of_equals(table: pa.Table) -> pa.Array[Any]:
    rows = table.num_rows
    differs = np.ones(rows, dtype=bool)
    if rows > 1:
        differs[1:] = False
        for column in table.columns:
            # Codes make NULL a value like others, and comparing integers is quick.
            encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
            codes = encoded.indices.to_numpy(zero_copy_only=False)
            differs[1:] |= codes[1:] != codes[:-1]
            if differs.all():
                break
    return pa.array(differs)
