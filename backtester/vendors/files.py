"""Vendor of one's own files: any table from CSV, Parquet or a frame, with a column map.

Options of a table: ``path`` (with ``{symbol}`` where there is one file for each), ``column.<ours>``
and ``default.<ours>``, ``zone`` (of times that name none), ``date_format``, ``licence``,
``shape`` (``table``, or the form of an API whose answers were saved: see `file_shapes`), and for
bars ``adjusted = splits`` with ``actions_path``, to undo what their source has applied.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from backtester.calendar import Calendar, calendar_by_code, calendar_of
from backtester.errors import UsageError
from backtester.markets import calendar_code
from backtester.schema import (
    ESTIMATED,
    FLAG,
    PUBLISHED,
    SPLIT,
    TABLES,
    known_at_action,
    known_at_day,
)
from backtester.vendors.base import BadFile, BadResponse, Capture, NoData, VendorSettings, Wanted
from backtester.vendors.file_columns import (
    Columns,
    from_frame,
    read_bytes,
    read_file,
    require_options,
)
from backtester.vendors.file_shapes import SHAPES, Shaped
from backtester.vendors.moments import NEW_YORK
from backtester.vendors.sec_filings import known_at_filing
from backtester.vendors.unadjust import Quote, Split, as_traded

_PRICES: Final = ("open", "high", "low", "close")
# The column that says whose rows they are.
_SUBJECT: Final = {"macro": "series", "prediction_markets": "market"}
# A column that names a symbol in other tables, and here something else.
_OWN_WORD: Final = {"insider": "code"}
_EACH: Final = "{symbol}"
_WHOLE: Final = 1e-9
# Beyond it doubles skip whole numbers.
_MOST_VOLUME: Final = 2.0**53


@dataclass(frozen=True, kw_only=True)
class _Source:
    columns: Columns
    where: str
    # First row and number of rows of each symbol; None where the file is of one alone.
    spans: Mapping[str, tuple[int, int]] | None


class Files:
    """Read tables from files, or from frames that were handed in.

    Args:
        settings: Of the vendor; files need none of them.
        frames: Table name -> pandas frame or Arrow table, in the place of a path.
    """

    name = "files"
    tables = frozenset(TABLES)

    def __init__(
        self, settings: VendorSettings | None = None, *, frames: Mapping[str, Any] | None = None
    ) -> None:
        self._settings = settings
        self._frames = dict(frames or {})
        self._read: dict[tuple[str, str], _Source] = {}

    def capture(self, wanted: Wanted) -> Capture:
        """Return the rows of one table for one instrument.

        Raises:
            NoData: The file is not there, or holds no row of it.
            BadFile: It cannot be read.
            UsageError: An option is wrong.
        """
        require_options(wanted)
        shape = wanted.options.get("shape", "table")
        try:
            shaped = self._table(wanted) if shape == "table" else self._shaped(shape, wanted)
        except BadResponse as error:
            raise BadFile(str(error)) from error
        licence = wanted.options.get("licence", "as its owner states")
        return Capture(
            rows=shaped.rows,
            dropped_undated=shaped.dropped_undated,
            notes=shaped.notes,
            options={"symbol": wanted.symbol, **wanted.options},
            source=shaped.where,
            licence=licence,
        )

    def _shaped(self, shape: str, wanted: Wanted) -> Shaped:
        if shape not in SHAPES or SHAPES[shape].table != wanted.table:
            known = ["table", *(n for n, row in SHAPES.items() if row.table == wanted.table)]
            raise UsageError(
                f"files.{wanted.table}.shape {shape!r} is not known: write one of "
                f"{', '.join(known)}"
            )
        path = _path(wanted)
        return SHAPES[shape].read(read_bytes(path), str(path), wanted)

    def _table(self, wanted: Wanted) -> Shaped:
        source = self._source(wanted)
        columns = self._own(source, wanted)
        if wanted.table == "bars":
            return self._bars(columns, wanted)
        if wanted.table == "actions":
            return _plain(columns, _action_rows(columns, wanted, _calendar(wanted)))
        if wanted.table == "instruments":
            return _plain(columns, _generic(columns, wanted, _described(wanted)))
        return _dated(columns, wanted)

    def _source(self, wanted: Wanted, key: str = "path") -> _Source:
        frame = self._frames.get("actions" if key == "actions_path" else wanted.table)
        path = None if frame is not None else _path(wanted, key)
        found = self._read.get((wanted.table + key, str(path)))
        if found is None:
            if frame is None and path is not None:
                rows, where = read_file(path), str(path)
            else:
                rows = frame if isinstance(frame, pa.Table) else from_frame(frame)
                where = f"the frame of {wanted.table}"
            found = _grouped(Columns(rows, where, wanted.options), where, wanted)
            if path is None or _EACH in wanted.options.get(key, ""):
                # A file of one symbol is not asked for again.
                self._read = {k: v for k, v in self._read.items() if v.spans is not None}
            self._read[wanted.table + key, str(path)] = found
        return found

    def _own(self, source: _Source, wanted: Wanted) -> Columns:
        """Return the rows of what is wanted.

        Raises:
            NoData: There are none.
            BadResponse: Nothing says whose rows they are.
        """
        columns = source.columns
        if source.spans is not None:
            if wanted.symbol not in source.spans:
                raise NoData(f"{source.where} holds no row of {wanted.symbol}")
            first, count = source.spans[wanted.symbol]
            return Columns(columns.rows.slice(first, count), source.where, wanted.options)
        declared = wanted.options.get("symbol")
        if declared is not None and declared != wanted.symbol:
            raise NoData(f"{source.where} is of {declared}, not of {wanted.symbol}")
        if declared is None and _EACH not in wanted.options.get("path", ""):
            raise BadResponse(
                f"{source.where} does not say whose rows it holds: name its column of symbols "
                "(column.symbol=...), or its one symbol (symbol=...), or write {symbol} in path"
            )
        if not len(columns):
            raise NoData(f"{source.where} holds no row")
        return columns

    def _bars(self, columns: Columns, wanted: Wanted) -> Shaped:
        calendar = _calendar(wanted)
        days = columns.day("session", calendar.tz)
        prices = {name: columns.number(name) for name in _PRICES}
        whole: Any = pc.is_valid(days)
        for values in prices.values():
            whole = pc.and_(whole, pc.is_valid(values))
        in_range = pc.and_(
            pc.greater_equal(days, pa.scalar(wanted.start, pa.date32())),
            pc.less_equal(days, pa.scalar(wanted.end, pa.date32())),
        )
        notes = list(_holes(days, whole, in_range))
        keep = pc.and_(whole, in_range).fill_null(False)
        volume, more = _volumes(columns, keep)
        rows = {
            "session": days.filter(keep),
            **{name: values.filter(keep) for name, values in prices.items()},
            "volume": volume,
        }
        along: dict[str, pa.Table] = {}
        if "actions_path" in wanted.options or wanted.options.get("adjusted") == "splits":
            rows, along = self._undone(rows, wanted, calendar)
        table = _bar_table(rows, wanted, calendar, _currency(columns, wanted, keep))
        if not table.num_rows:
            raise NoData(f"{columns.where} holds no bar from {wanted.start} to {wanted.end}")
        return Shaped(rows={"bars": table, **along}, where=columns.where, notes=(*notes, *more))

    def _undone(
        self, rows: dict[str, Any], wanted: Wanted, calendar: Calendar
    ) -> tuple[dict[str, Any], dict[str, pa.Table]]:
        asked = replace(wanted, table="actions")
        try:
            columns = self._own(self._source(asked, "actions_path"), asked)
            actions = _action_rows(columns, asked, calendar)
        except NoData:
            actions = TABLES["actions"].empty()
        if wanted.options.get("adjusted") != "splits":
            return rows, {"actions": actions}
        splits = [
            Split(ex_session=row["ex_session"], ratio=_ratio(row))
            for row in actions.to_pylist()
            if row["kind"] == SPLIT
        ]
        quotes = as_traded(_quotes(rows), splits)
        undone: dict[str, Any] = {"session": [quote.session for quote in quotes]}
        for name in (*_PRICES, "volume"):
            undone[name] = [getattr(quote, name) for quote in quotes]
        return undone, {"actions": actions}


# ------------------------------------------------------------------------------------- sources


def _path(wanted: Wanted, key: str = "path") -> Path:
    pattern = wanted.options.get(key)
    if not pattern:
        raise UsageError(f"files.{wanted.table} needs {key}: name the file")
    # What stands for a symbol must not lead elsewhere.
    path = Path(pattern.replace(_EACH, wanted.symbol.replace("/", "_").replace("..", "_")))
    if _EACH not in pattern and not path.exists():
        # A file for each symbol may be missing; the one of all of them was misspelt.
        raise BadResponse(f"there is no file {path}")
    return path


def _grouped(columns: Columns, where: str, wanted: Wanted) -> _Source:
    subject = _SUBJECT.get(wanted.table, "symbol")
    name = columns.name_of(subject)
    own = _OWN_WORD.get(wanted.table)
    if name is None or (own is not None and name == columns.name_of(own)):
        return _Source(columns=columns, where=where, spans=None)
    symbols = columns.rows.column(name).combine_chunks().cast(pa.string())
    order = pc.sort_indices(symbols)
    rows = columns.rows.take(order).combine_chunks()
    encoded = symbols.take(order).dictionary_encode()
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    edges = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), len(codes)]
    spans = {}
    for first, last in itertools.pairwise(edges):
        if first < last and codes[first] >= 0:
            spans[str(encoded.dictionary[int(codes[first])])] = (first, last - first)
    return _Source(columns=Columns(rows, where, wanted.options), where=where, spans=spans)


def _calendar(wanted: Wanted) -> Calendar:
    code = wanted.options.get("default.calendar")
    return calendar_of(wanted.instrument) if code is None else calendar_by_code(code)


# ---------------------------------------------------------------------------------------- bars


def _holes(days: Any, whole: Any, in_range: Any) -> Iterator[str]:
    holes = days.filter(pc.and_(in_range, pc.invert(whole)).fill_null(False)).to_pylist()
    if holes:
        yield f"{len(holes)} bars without a whole price were left out, the first of {min(holes)}"


def _volumes(columns: Columns, keep: Any) -> tuple[Any, list[str]]:
    if columns.name_of("volume") is None and columns.raw("volume") is None:
        return pa.array([0] * keep.to_pylist().count(True), pa.int64()), ["no column of volumes"]
    volume = columns.number("volume").filter(keep)
    notes = []
    if volume.null_count:
        notes.append(f"{volume.null_count} bars without a volume, taken as 0")
    values = volume.fill_null(0.0).to_numpy(zero_copy_only=False)
    if (values > _MOST_VOLUME).any():
        raise BadResponse(
            f"{columns.where}: a volume of {values.max():g} is no number of shares: correct it"
        )
    if (np.abs(values - np.rint(values)) > _WHOLE).any():
        notes.append("volumes are no whole numbers; rounded")
    return pa.array(np.rint(values).astype(np.int64)), notes


def _currency(columns: Columns, wanted: Wanted, keep: Any) -> Any:
    found = columns.raw("currency")
    if found is None:
        raise BadResponse(
            f"{columns.where} does not say in which currency {wanted.instrument} is quoted: write "
            "default.currency=USD (GBp for pence), or name the column (column.currency=...)"
        )
    return found.cast(pa.string()).filter(keep)


def _bar_table(
    rows: Mapping[str, Any], wanted: Wanted, calendar: Calendar, currency: Any
) -> pa.Table:
    sessions = pa.array(rows["session"], pa.date32())
    days = sessions.to_numpy(zero_copy_only=False).astype("datetime64[D]")
    known = calendar.closes_of(days)
    for at in np.flatnonzero(np.isnat(known)):
        # A bar of a day without a session: it is kept, and the checks of the capture flag it.
        end = known_at_day(days[at].item(), calendar.tz).replace(tzinfo=None)
        known[at] = np.datetime64(end, "us")
    return pa.table(
        {
            "instrument": pa.array([wanted.instrument] * len(sessions), pa.string()),
            "session": sessions,
            "known_at": pa.array(known).cast(pa.timestamp("us", tz="UTC")),
            **{name: pa.array(rows[name], pa.float64()) for name in _PRICES},
            "volume": pa.array(rows["volume"], pa.int64()),
            "currency": currency,
        }
    )


def _quotes(rows: Mapping[str, Any]) -> list[Quote]:
    columns = {name: pa.array(values).to_pylist() for name, values in rows.items()}
    names = list(columns)
    lines = zip(*columns.values(), strict=True)
    return [Quote(**dict(zip(names, line, strict=True))) for line in lines]


# ------------------------------------------------------------------------------------- actions


def _action_rows(columns: Columns, wanted: Wanted, calendar: Calendar) -> pa.Table:
    days = columns.day("ex_session", calendar.tz)
    listed = {
        name: values.to_pylist()
        for name in ("kind", "numerator", "denominator", "amount", "currency", "ratio")
        if (values := _maybe(columns, name)) is not None
    }
    rows = []
    for at, day in enumerate(days.to_pylist()):
        row = {name: values[at] for name, values in listed.items()}
        if day is not None:
            rows.append(_action(columns, wanted, calendar, day, row))
    return pa.Table.from_pylist(rows, schema=TABLES["actions"].arrow)


def _maybe(columns: Columns, name: str) -> Any:
    if columns.raw(name) is None:
        return None
    if name in ("numerator", "denominator", "amount"):
        return columns.number(name)
    return columns.need(name).cast(pa.string())


def _action(
    columns: Columns, wanted: Wanted, calendar: Calendar, day: date, row: dict[str, Any]
) -> dict[str, Any]:
    ratio = str(row.pop("ratio", None) or "")
    if ratio and row.get("numerator") is None:
        first, _, second = ratio.replace("/", ":").partition(":")
        row |= {"numerator": float(first), "denominator": float(second or 1)}
    kind = row.get("kind") or (SPLIT if row.get("numerator") is not None else "dividend")
    if not row.get("currency"):
        raise BadResponse(
            f"{columns.where}: the {kind} of {wanted.instrument} on {day} names no currency: write "
            "default.currency=USD"
        )
    session = (
        day if calendar.is_session(day) else calendar.shift(calendar.last_on_or_before(day), 1)
    )
    is_split = kind == SPLIT
    return {
        "instrument": wanted.instrument,
        "ex_session": session,
        "known_at": known_at_action(calendar, session),
        "kind": kind,
        "numerator": int(row["numerator"]) if is_split and row.get("numerator") else None,
        "denominator": int(row.get("denominator") or 1) if is_split else None,
        "amount": None if is_split else row.get("amount"),
        "currency": row["currency"],
    }


def _ratio(row: Mapping[str, Any]) -> Any:
    from fractions import Fraction

    return Fraction(row["numerator"], row["denominator"])


# -------------------------------------------------------------------------------- other tables


def _plain(columns: Columns, rows: pa.Table) -> Shaped:
    return Shaped(rows={_table_of(rows): rows}, where=columns.where)


def _table_of(rows: pa.Table) -> str:
    return next(name for name, table in TABLES.items() if list(table.names) == rows.column_names)


def _described(wanted: Wanted) -> dict[str, str]:
    code = wanted.options.get("default.calendar") or calendar_code(wanted.instrument)
    return {
        "symbol": wanted.instrument,
        "name": wanted.instrument,
        "exchange": code,
        "calendar": code,
        "asset_type": "stock",
        "first_session": wanted.start.isoformat(),
        "basis": "price",
        "static": "true",
    }


def _dated(columns: Columns, wanted: Wanted) -> Shaped:
    zone = wanted.options.get("zone")
    known = _known(columns, wanted, zone)
    dated: Any = pc.is_valid(known)
    undated = len(known) - dated.to_pylist().count(True)
    rows = columns.rows.filter(dated)
    kept = Columns(rows, columns.where, wanted.options)
    table = _generic(kept, wanted, _usual(wanted), known_at=known.filter(dated))
    return Shaped(rows={wanted.table: table}, where=columns.where, dropped_undated=undated)


def _known(columns: Columns, wanted: Wanted, zone: str | None) -> Any:
    if wanted.table == "statements" and columns.name_of("filed") is not None:
        filed = columns.day("filed", NEW_YORK).to_pylist()
        accepted = columns.raw("accepted")
        words = [""] * len(filed) if accepted is None else accepted.cast(pa.string()).to_pylist()
        instants = [
            None if day is None else known_at_filing(word or "", day)
            for word, day in zip(words, filed, strict=True)
        ]
        return pa.array(instants, pa.timestamp("us", tz="UTC"))
    return columns.instant("known_at", zone, ticks=wanted.table == "prediction_markets")


def _usual(wanted: Wanted) -> dict[str, str]:
    usual = {"known_at_basis": PUBLISHED, "derived": "false", "platform": "files"}
    if wanted.table == "prediction_markets":
        usual["market"] = wanted.symbol
    if wanted.table == "macro":
        usual |= {"series": wanted.symbol, "name": wanted.symbol}
    return usual


def _generic(
    columns: Columns, wanted: Wanted, usual: Mapping[str, str], *, known_at: Any = None
) -> pa.Table:
    """Return rows in the columns of a table: those of the file, else what is usual, else NULL."""
    schema = TABLES[wanted.table]
    found: dict[str, Any] = {}
    for column in schema.columns:
        if column.name == "instrument":
            found["instrument"] = pa.array([wanted.instrument or None] * len(columns), pa.string())
        elif column.name == "known_at":
            found["known_at"] = known_at
        else:
            found[column.name] = _column(columns, wanted, column.name, column.type, usual)
    table = pa.table(found, schema=schema.arrow)
    if "known_at_basis" in found:
        bases = set(table.column("known_at_basis").to_pylist())
        if bases - {PUBLISHED, ESTIMATED}:
            raise BadResponse(
                f"{columns.where}: known_at_basis is {PUBLISHED} or {ESTIMATED}, not "
                f"{', '.join(sorted(map(str, bases - {PUBLISHED, ESTIMATED})))}"
            )
    return table


def _column(
    columns: Columns, wanted: Wanted, name: str, kind: pa.DataType, usual: Mapping[str, str]
) -> Any:
    schema = next(c for c in TABLES[wanted.table].columns if c.name == name)
    if columns.raw(name) is None:
        if name in usual:
            columns = Columns(columns.rows, columns.where, {f"default.{name}": usual[name]})
        elif name == "id":
            return columns.row_ids(apart=wanted.table == "insider")
        elif schema.nullable:
            return pa.array([None] * len(columns), kind)
    if kind == pa.date32():
        return columns.day(name, wanted.options.get("zone", NEW_YORK))
    if kind == pa.float64():
        return columns.number(name)
    if kind == pa.int64():
        return columns.number(name).cast(pa.int64())
    if kind == FLAG:
        words = columns.need(name).cast(pa.string())
        return pc.is_in(pc.utf8_lower(words), value_set=pa.array(["true", "1", "yes"]))
    return columns.need(name).cast(pa.string())
