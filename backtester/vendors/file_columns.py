"""Columns of a user's own file: found by name, read into the types of the schema.

What cannot be read is refused with file, row and value, never guessed. A text that names no time of
day is a date; what a date stands for is the table's to say.
"""

from __future__ import annotations

import csv
import functools
import hashlib
import io
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import date, datetime
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from backtester.parquet import read_parquet
from backtester.vendors.base import BadResponse, NoData
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


def read_file(path: Path) -> pa.Table:
    """Return the rows of a CSV or Parquet file, those of CSV as texts.

    Raises:
        NoData: There is no such file.
        BadResponse: It is no whole file of its kind.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise NoData(f"there is no file {path}") from error
    except OSError as error:
        raise BadResponse(f"{path} cannot be read ({error.strerror})") from error
    try:
        if path.suffix.lower() in (".parquet", ".pq"):
            return read_parquet(data)
        return _read_csv(data)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError, UnicodeDecodeError) as error:
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
        self._names = {name.strip().lower(): name for name in rows.column_names}

    def __len__(self) -> int:
        return self.rows.num_rows

    def name_of(self, ours: str) -> str | None:
        """Return the source's name of a column, or None where it has none.

        Raises:
            BadResponse: The user names a column that is not there.
        """
        named = self._options.get(f"column.{ours}")
        if named is not None:
            if named not in self.rows.column_names:
                raise BadResponse(
                    f"{self.where} has no column {named!r} (column.{ours}): it has "
                    f"{', '.join(self.rows.column_names)}"
                )
            return named
        for word in (ours, *ALIASES.get(ours, ())):
            if word in self._names:
                return self._names[word]
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

        Raises:
            BadResponse: A value is no date.
        """
        values = self.need(ours)
        if pa.types.is_date(values.type):
            return values.cast(pa.date32())
        if pa.types.is_timestamp(values.type):
            if values.type.tz is not None:
                there: Any = values.cast(pa.timestamp("us", tz=zone))
                values = pc.local_timestamp(there)
            return pc.floor_temporal(values, unit="day").cast(pa.date32())
        pattern = self._options.get("date_format")
        return self._parsed(ours, values, pa.date32(), lambda word: _day(word, zone, pattern))

    def instant(self, ours: str, zone: str | None) -> pa.Array[Any]:
        """Return a column of instants, NULL where there is none; a date is the end of that day.

        Raises:
            BadResponse: A value is no instant, or its zone is not named.
        """
        kind = pa.timestamp("us", tz="UTC")
        values = self.need(ours)
        if pa.types.is_timestamp(values.type) and values.type.tz is not None:
            return values.cast(kind)
        if pa.types.is_timestamp(values.type):
            # Frames hold plain dates as midnights.
            midnights = pc.floor_temporal(values, unit="day").cast(values.type)
            if values.equals(midnights):
                values = midnights.cast(pa.date32())
        words = values if pa.types.is_string(values.type) else _texts(values)
        return self._parsed(ours, words, kind, lambda word: known_from(word, zone))

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


def _texts(values: pa.Array[Any]) -> pa.Array[Any]:
    if pa.types.is_floating(values.type):
        numbers = values.to_numpy(zero_copy_only=False)
        return pa.array(
            [None if np.isnan(value) else str(int(value)) for value in numbers], pa.string()
        )
    return values.cast(pa.string())


# One file of many symbols writes each date once for each.
@functools.lru_cache(maxsize=20_000)
def _day(word: str, zone: str, pattern: str | None) -> date:
    if pattern is not None:
        # A date as a person writes it, which names no zone.
        return datetime.strptime(word, pattern).date()  # noqa: DTZ007
    if len(word) in (8, 10) and "T" not in word and not word.startswith("-"):
        try:
            return date.fromisoformat(word)
        except ValueError:
            if not word.isdigit():
                raise
    if word.isdigit():
        return from_epoch(int(word)).astimezone(ZoneInfo(zone)).date()
    read = datetime.fromisoformat(word)
    return read.date() if read.tzinfo is None else read.astimezone(ZoneInfo(zone)).date()
