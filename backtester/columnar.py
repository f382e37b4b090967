"""Rows of one kind held as columns: made without a Python object for each, read like a sequence."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, date, datetime
from operator import attrgetter
from typing import Any, Final, Generic, TypeVar, overload

import pyarrow as pa

T = TypeVar("T")

_ARROW: Final[Mapping[object, pa.DataType]] = types.MappingProxyType(
    {
        str: pa.string(),
        bool: pa.bool_(),
        int: pa.int64(),
        float: pa.float64(),
        date: pa.date32(),
        datetime: pa.timestamp("us", tz="UTC"),
    }
)


_NUMPY: Final = frozenset({pa.int64(), pa.float64(), pa.date32()})


@dataclass(frozen=True, kw_only=True)
class Field:
    """Describe one field of a row.

    Attributes:
        name: Of the field and of its column.
        type: Of the column.
        required: Whether it may not be None.
    """

    name: str
    type: pa.DataType
    required: bool


_known: dict[type[Any], tuple[Field, ...]] = {}


def fields_of(kind: type[Any]) -> tuple[Field, ...]:
    """Return the columns of a dataclass whose fields are plain values, or None."""
    if kind not in _known:
        _known[kind] = _fields(kind)
    return _known[kind]


def _fields(kind: type[Any]) -> tuple[Field, ...]:
    hints = typing.get_type_hints(kind)
    found = []
    for field in fields(kind):
        arrow, required = arrow_of(hints[field.name])
        found.append(Field(name=field.name, type=arrow, required=required))
    return tuple(found)


def arrow_of(hint: object) -> tuple[pa.DataType, bool]:
    """Return the column type of a field, and whether it must be there."""
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) is typing.Literal:
        return pa.string(), True
    if typing.get_origin(hint) is tuple:
        return pa.list_(pa.string()), True
    if type(None) in arguments:
        return arrow_of(next(part for part in arguments if part is not type(None)))[0], False
    return _ARROW[hint], True


class Rows(Sequence[T], Generic[T]):
    """Hold rows of one kind as a table; an object is made only of a row that is looked at.

    Attributes:
        kind: A frozen dataclass of plain values.
        table: Its fields as columns.
    """

    def __init__(self, kind: type[T], table: pa.Table) -> None:
        """Hold a table whose columns are the fields of a kind."""
        self.kind = kind
        self.table = table

    @classmethod
    def of(cls, kind: type[T], rows: Sequence[T]) -> Rows[T]:
        """Return rows that are there already as columns."""
        if isinstance(rows, Rows):
            return rows
        arrays = [
            pa.array([attrgetter(field.name)(row) for row in rows], type=field.type)
            for field in fields_of(kind)
        ]
        return cls(kind, pa.table(arrays, names=[field.name for field in fields_of(kind)]))

    @classmethod
    def from_columns(cls, kind: type[T], columns: Mapping[str, Any]) -> Rows[T]:
        """Return rows whose columns are given by the name of their field; others are left out."""
        names = [field.name for field in fields_of(kind)]
        return cls(kind, pa.table([columns[name] for name in names], names=names))

    def column(self, name: str) -> list[Any]:
        """Return one column as plain values."""
        column = self.table.column(name)
        # Numbers and days that are all there come several times faster by way of numpy.
        quick = column.null_count == 0 and column.type in _NUMPY
        values: list[Any] = column.to_numpy().tolist() if quick else column.to_pylist()
        return values

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(self.table.num_rows)

    @overload
    def __getitem__(self, at: int) -> T: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[T]: ...

    def __getitem__(self, at: int | slice) -> T | Sequence[T]:
        """Return a row, or some."""
        if isinstance(at, slice):
            return list(self)[at]
        place = range(len(self))[at]
        return next(self._made(self.table.slice(place, 1)))

    def __iter__(self) -> Iterator[T]:
        """Make one row after the other."""
        return self._made(self.table)

    def __eq__(self, other: object) -> bool:
        """Compare with any sequence of rows."""
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def _made(self, table: pa.Table) -> Iterator[T]:
        for values in self.values(table):
            yield self.kind(**values)

    @staticmethod
    def values(table: pa.Table) -> Iterator[dict[str, Any]]:
        """Yield the rows of a table as values by name: times in UTC, lists as tuples."""
        names = table.column_names
        columns = [_plain(table.column(field.name), field.type) for field in table.schema]
        for values in zip(*columns, strict=True):
            yield dict(zip(names, values, strict=True))


def joined(kind: type[T], parts: Sequence[Rows[T]]) -> Rows[T]:
    """Return the rows of several, one after the other."""
    if not parts:
        return Rows.of(kind, ())
    return Rows(kind, pa.concat_tables([part.table for part in parts]))


def _plain(column: pa.ChunkedArray[Any], kind: pa.DataType) -> list[Any]:
    values: list[Any] = column.to_pylist()
    if pa.types.is_timestamp(kind):
        return [None if one is None else one.astimezone(UTC) for one in values]
    if pa.types.is_list(kind):
        return [None if one is None else tuple(one) for one in values]
    return values
