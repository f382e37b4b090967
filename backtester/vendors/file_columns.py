"""Columns of a user's own file: found by name, read into the types of the schema.

What cannot be read is refused with file, row and value, never guessed. A text that names no time of
day is a date; what a date stands for is the table's to say.
"""

from __future__ import annotations

import csv
import functools
import gzip
import hashlib
import io
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo, available_timezones

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from backtester.errors import UsageError
from backtester.named_files import TABLE_BYTES, read_named
from backtester.parquet import read_parquet
from backtester.vendors.base import BadResponse, NoData, Wanted
from backtester.vendors.moments import from_epoch, known_from

# Other names under which a column is found where the user names none.
ALIASES: Final[Mapping[str, tuple[str, ...]]] = {
    "symbol": ("ticker", "instrument", "code"),
    "session": ("date", "day", "datetime", "timestamp", "time"),
    "ex_session": ("ex_date", "exdate", "date"),
    "known_at": ("published_at", "published", "published_utc", "datetime", "date", "timestamp"),
    "filed": ("filing_date", "fileddate", "filed_date", "filingdate"),
    "accepted": ("acceptance_datetime", "accepteddate", "accepted_date", "acceptancedatetime"),
    "period": ("date", "observation_date"),
    "probability": ("price",),
    "title": ("headline",),
    "summary": ("description", "text"),
    "source": ("publisher",),
    "url": ("link", "article_url"),
    "transaction_date": ("date",),
}
_NULLS: Final = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None")


_OPTIONS: Final = frozenset(
    {"path", "zone", "date_format", "licence", "shape", "adjusted", "actions_path", "symbol"}
)
# What files of other forms begin with, and what to do about them.
_OTHERS: Final[Mapping[bytes, str]] = {
    b"PK\x03\x04": "a ZIP archive or a workbook: unpack it, or save its sheet as CSV",
    b"\xd0\xcf\x11\xe0": "a workbook: save its sheet as CSV",
    b"BZh": "packed by bzip2: unpack it, or pack it by gzip",
    b"\xfd7zXZ": "packed by xz: unpack it, or pack it by gzip",
    b"7z\xbc\xaf": "packed by 7-Zip: unpack it, or pack it by gzip",
    b"\x28\xb5\x2f\xfd": "packed by Zstandard: unpack it, or pack it by gzip",
    b"\xff\xfe": "text in UTF-16: save it in UTF-8",
    b"\xfe\xff": "text in UTF-16: save it in UTF-8",
}
_INSTANT: Final = pa.timestamp("us", tz="UTC")
_GZIP: Final = b"\x1f\x8b"
_PARQUET: Final = b"PAR1"
_NO_TABLE: Final[Mapping[bytes, str]] = {
    b"<": "HTML or XML, not a table: save it as CSV",
    b"{": "JSON, not a table: name its form (shape=...), or save it as CSV",
    b"[": "JSON, not a table: name its form (shape=...), or save it as CSV",
}
_HEAD: Final = 100
_CHUNK: Final = 2**20


def require_options(wanted: Wanted) -> None:
    """Refuse an option that there is not, or whose value is none.

    Raises:
        UsageError: With what to write.
    """
    for name in wanted.options:
        kind, _, column = name.partition(".")
        if name in _OPTIONS or (kind in ("column", "default") and column):
            continue
        raise UsageError(
            f"files.{wanted.table} has no option {name!r}: write column.NAME, default.NAME, or one "
            f"of {', '.join(sorted(_OPTIONS))}"
        )
    zone = wanted.options.get("zone", "UTC")
    if zone not in _zones():
        raise UsageError(
            f"files.{wanted.table}.zone: {zone!r} is no time zone: write one as America/New_York"
        )
    if wanted.options.get("adjusted", "none") not in ("none", "splits"):
        raise UsageError("files.bars.adjusted: write none or splits")


def read_bytes(path: Path) -> bytes:
    """Return the bytes of a user's file, unpacked where it is packed by gzip.

    Raises:
        NoData: There is no such file.
        BadResponse: It is no regular file, too large, not whole, or of a form that is not read.
    """
    try:
        data = read_named(path, most=TABLE_BYTES)
    except FileNotFoundError as error:
        raise NoData(f"there is no file {path}") from error
    except OSError as error:
        raise BadResponse(f"{path} cannot be read ({error.strerror})") from error
    if data.startswith(_GZIP):
        data = _unpacked(path, data)
    for begins, words in _OTHERS.items():
        if data.startswith(begins):
            raise BadResponse(f"{path} is {words}")
    return data


def _unpacked(path: Path, data: bytes) -> bytes:
    chunks: list[bytes] = []
    total = 0
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as packed:
            while chunk := packed.read(_CHUNK):
                chunks.append(chunk)
                total += len(chunk)
                if total > TABLE_BYTES:
                    raise BadResponse(f"{path} unpacks to more than {TABLE_BYTES >> 20} MB")
    except (OSError, EOFError, zlib.error) as error:
        raise BadResponse(f"{path} is no whole gzip file: {error}") from error
    return b"".join(chunks)


def read_file(path: Path) -> pa.Table:
    """Return the rows of a CSV or Parquet file, those of CSV as texts.

    Raises:
        NoData: There is no such file.
        BadResponse: It is no whole file of its kind.
    """
    data = read_bytes(path)
    for begins, words in _NO_TABLE.items():
        if data[:_HEAD].lstrip().startswith(begins):
            raise BadResponse(f"{path} is {words}")
    try:
        if data.startswith(_PARQUET) or path.suffix.lower() in (".parquet", ".pq"):
            return read_parquet(data)
        return _read_csv(data)
    except (pa.ArrowException, OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadResponse(f"{path} is no whole CSV or Parquet file: {error}") from error


def _read_csv(data: bytes) -> pa.Table:
    import pyarrow.csv as pcsv

    data = data.removeprefix(b"\xef\xbb\xbf")
    heading = data.partition(b"\n")[0].decode()
    separator = max(",;\t", key=heading.count)
    names = next(csv.reader([heading], delimiter=separator), [])
    return pcsv.read_csv(
        io.BytesIO(data),
        read_options=pcsv.ReadOptions(use_threads=False),
        parse_options=pcsv.ParseOptions(delimiter=separator, newlines_in_values=True),
        convert_options=pcsv.ConvertOptions(
            column_types={name.strip("\r"): pa.string() for name in names},
            null_values=list(_NULLS),
            strings_can_be_null=True,
        ),
    )


def from_frame(frame: Any) -> pa.Table:
    """Return the rows of a pandas frame; an index that is not just a count is a column."""
    import pandas as pd

    if not isinstance(frame.index, pd.RangeIndex):
        named = frame.index.name or (
            "date" if isinstance(frame.index, pd.DatetimeIndex) else "index"
        )
        frame = frame.rename_axis(named).reset_index()
    return pa.Table.from_pandas(frame, preserve_index=False)


class Columns:
    """Find and read the columns of one source.

    Args:
        rows: Its rows.
        where: Its name, for messages.
        options: ``column.<ours>`` names a column, ``default.<ours>`` a value for every row.
    """

    def __init__(self, rows: pa.Table, where: str, options: Mapping[str, str]) -> None:
        self.rows = rows
        self.where = where
        self._options = options
        self._names: dict[str, list[str]] = {}
        for name in rows.column_names:
            self._names.setdefault(name.strip().lower(), []).append(name)

    def __len__(self) -> int:
        return self.rows.num_rows

    def name_of(self, ours: str) -> str | None:
        """Return the source's name of a column, or None where it has none.

        Raises:
            BadResponse: The user names a column that is not there.
        """
        named = self._options.get(f"column.{ours}")
        if named is not None:
            count = self.rows.column_names.count(named)
            if count != 1:
                raise BadResponse(
                    f"{self.where} has {count or 'no'} column{'s' if count else ''} {named!r} "
                    f"(column.{ours}): it has {', '.join(self.rows.column_names)}"
                )
            return named
        for word in (ours, *ALIASES.get(ours, ())):
            found = self._names.get(word, [])
            if len(found) > 1:
                raise BadResponse(
                    f"{self.where} has {len(found)} columns that could be {ours}: "
                    f"{', '.join(found)}; take one away, or name it (column.{ours}=...)"
                )
            if found:
                return found[0]
        return None

    def raw(self, ours: str) -> pa.Array[Any] | None:
        """Return a column as it is, or None where neither it nor a default is there.

        Raises:
            BadResponse: As `name_of`.
        """
        name = self.name_of(ours)
        if name is not None:
            return self.rows.column(name).combine_chunks()
        default = self._options.get(f"default.{ours}")
        if default is None:
            return None
        return pa.array([default] * len(self), pa.string())

    def need(self, ours: str) -> pa.Array[Any]:
        """Return a column that must be there.

        Raises:
            BadResponse: It is not.
        """
        found = self.raw(ours)
        if found is None:
            raise BadResponse(
                f"{self.where} has no column {ours}: name it (column.{ours}=...) or give a value "
                f"for every row (default.{ours}=...); it has {', '.join(self.rows.column_names)}"
            )
        return found

    def row_ids(self, *, apart: bool) -> pa.Array[Any]:
        """Return an id for each row from all that it holds, for a file that names none.

        Args:
            apart: Whether equal rows are several things, such as two equal trades of one day.
        """
        seen: Counter[str] = Counter()
        found = []
        for row in self.rows.to_pylist():
            text = repr(sorted((name, str(value)) for name, value in row.items()))
            digest = hashlib.sha256(text.encode()).hexdigest()[:16]
            seen[digest] += 1
            found.append(f"{digest}-{seen[digest]}" if apart and seen[digest] > 1 else digest)
        return pa.array(found, pa.string())

    def number(self, ours: str) -> pa.Array[Any]:
        """Return a column of numbers, NULL where the file has none or a NaN.

        Raises:
            BadResponse: A value is no number.
        """
        values = self.need(ours)
        try:
            numbers = values.cast(pa.float64())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise BadResponse(f"{self.where}, column {ours}: {error}") from error
        none = pa.scalar(None, pa.float64())
        finite: pa.Array[Any] = pc.if_else(pc.is_finite(numbers), numbers, none)
        return finite

    def day(self, ours: str, zone: str) -> pa.Array[Any]:
        """Return a column of dates; an instant is the day that it falls on in a zone.

        A midnight in UTC that falls on another day there may be either: much data writes dates so.
        It is refused until the user's option ``zone`` says whose days they are.

        Raises:
            BadResponse: A value is no date, or may be either of two.
        """
        values = self.need(ours)
        told = self._options.get("zone")
        zone = told or zone
        if pa.types.is_date(values.type):
            return values.cast(pa.date32())
        if pa.types.is_timestamp(values.type):
            if values.type.tz is not None:
                there: Any = values.cast(pa.timestamp("us", tz=zone))
                if told is None:
                    self._refuse_two_days(ours, values.cast(_INSTANT), there)
                values = pc.local_timestamp(there)
            return pc.floor_temporal(values, unit="day").cast(pa.date32())
        pattern = self._options.get("date_format")
        strict = told is None
        return self._parsed(
            ours, values, pa.date32(), lambda word: _day(word, zone, pattern, strict)
        )

    def _refuse_two_days(self, ours: str, values: Any, there: Any) -> None:
        utc: Any = pc.local_timestamp(values)
        days: Any = pc.floor_temporal(pc.local_timestamp(there), unit="day")
        either: Any = pc.and_(_midnights(values), pc.not_equal(utc, days)).fill_null(False)
        for first in values.filter(either)[:1].to_pylist():
            said = _two_days(first, str(there.type.tz))
            raise BadResponse(f"{self.where}, column {ours}: {said}")

    def instant(self, ours: str, zone: str | None, *, ticks: bool = False) -> pa.Array[Any]:
        """Return a column of instants, NULL where there is none; a date is the end of that day.

        Where all of them are midnights in UTC, they are dates as much data writes them.

        Args:
            ours: Our name of the column.
            zone: Of times that name none.
            ticks: Whether midnights are instants like others, as of a price each hour.

        Raises:
            BadResponse: A value is no instant, or its zone is not named.
        """
        # The stubs know no instants of a type that is chosen at run time.
        found: Any = self._instants(ours, zone)
        if ticks or not pc.all(_midnights(found)).as_py():
            given: pa.Array[Any] = found
            return given
        days = pc.local_timestamp(found).cast(pa.date32()).cast(pa.string())
        return self._parsed(ours, days, _INSTANT, lambda word: known_from(word, zone))

    def _instants(self, ours: str, zone: str | None) -> pa.Array[Any]:
        values = self.need(ours)
        if pa.types.is_timestamp(values.type) and values.type.tz is not None:
            return values.cast(_INSTANT)
        if pa.types.is_timestamp(values.type):
            # Frames hold plain dates as midnights.
            midnights = pc.floor_temporal(values, unit="day").cast(values.type)
            if values.equals(midnights):
                values = midnights.cast(pa.date32())
        words = values if pa.types.is_string(values.type) else _texts(values)
        return self._parsed(ours, words, _INSTANT, lambda word: known_from(word, zone))

    def _parsed(
        self, ours: str, values: pa.Array[Any], kind: pa.DataType, read: Callable[[str], Any]
    ) -> pa.Array[Any]:
        words = values if pa.types.is_string(values.type) else _texts(values)
        encoded: Any = words.dictionary_encode()
        found: list[Any] = []
        for word in encoded.dictionary.to_pylist():
            try:
                found.append(None if word.strip() in _NULLS else read(word.strip()))
            except ValueError as error:
                row = words.to_pylist().index(word) + 1
                raise BadResponse(
                    f"{self.where}, row {row}, column {ours}: {word!r} cannot be read ({error})"
                ) from error
        # The stubs know neither a type that is chosen at run time nor encoded text.
        dictionary: pa.Array[Any] = pa.array(found, kind)
        if not len(dictionary):
            empty: pa.Array[Any] = pa.array([None] * len(words), kind)
            return empty
        taken: pa.Array[Any] = dictionary.take(encoded.indices)
        return taken


@functools.lru_cache(maxsize=1)
def _zones() -> frozenset[str]:
    return frozenset(available_timezones())


def _midnights(values: Any) -> Any:
    """Return which instants are midnights in UTC."""
    utc: Any = pc.local_timestamp(values)
    return pc.equal(utc, pc.floor_temporal(utc, unit="day"))


def _texts(values: pa.Array[Any]) -> pa.Array[Any]:
    if pa.types.is_floating(values.type):
        numbers = values.to_numpy(zero_copy_only=False)
        return pa.array(
            [None if np.isnan(value) else str(int(value)) for value in numbers], pa.string()
        )
    return values.cast(pa.string())


# One file of many symbols writes each date once for each.
@functools.lru_cache(maxsize=20_000)
def _day(word: str, zone: str, pattern: str | None, strict: bool) -> date:
    if pattern is not None:
        # A date as a person writes it, which names no zone.
        return datetime.strptime(word, pattern).date()  # noqa: DTZ007
    if len(word) in (8, 10) and "T" not in word and not word.startswith("-"):
        try:
            return date.fromisoformat(word)
        except ValueError:
            if not word.isdigit():
                raise
    read = from_epoch(int(word)) if word.isdigit() else datetime.fromisoformat(word)
    if read.tzinfo is None:
        return read.date()
    there = read.astimezone(ZoneInfo(zone)).date()
    utc = read.astimezone(UTC)
    if strict and utc.time() == time.min and utc.date() != there:
        raise ValueError(_two_days(utc, zone))
    return there


def _two_days(midnight: datetime, zone: str) -> str:
    there = midnight.astimezone(ZoneInfo(zone)).date()
    return (
        f"{midnight:%Y-%m-%d} 00:00 UTC is the evening of {there} in {zone}: say whose days they "
        f"are (zone=UTC, or zone={zone}), or write dates alone"
    )
