"""What differs between two snapshots: rows that came, rows that went, values that were changed.

Rows are matched by the key of their table. Of several rows with one key (bars that contradict each
other) the first is matched with the first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from backtester.schema import TABLES, TableSchema, conform

if TYPE_CHECKING:
    import pandas as pd

_NTH: Final = "__nth"


@dataclass(frozen=True, kw_only=True)
class Change:
    """Report one value that differs.

    Attributes:
        table: Table.
        key: Row, as text.
        column: Column.
        old: Value before, as text; empty for NULL.
        new: Value after.
    """

    table: str
    key: str
    column: str
    old: str
    new: str


@dataclass(frozen=True, kw_only=True)
class TableDiff:
    """Report what differs in one table.

    Attributes:
        table: Table.
        same: Rows that are equal.
        added: Keys of rows that only the new one has.
        removed: Keys of rows that only the old one has.
        changed: Values that differ.
    """

    table: str
    same: int
    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[Change, ...]

    @property
    def equal(self) -> bool:
        """Whether nothing differs."""
        return not (self.added or self.removed or self.changed)


def diff_tables(old: Mapping[str, pa.Table], new: Mapping[str, pa.Table]) -> tuple[TableDiff, ...]:
    """Return what differs, by table, in the order of the schema.

    Args:
        old: Table name -> rows.
        new: Likewise; a table that one side lacks counts as empty there.

    Raises:
        DataError: For rows that do not fit their schema.
    """
    found = []
    for name, schema in TABLES.items():
        if name in old or name in new:
            before = conform(name, old.get(name, schema.empty()))
            after = conform(name, new.get(name, schema.empty()))
            found.append(_diff(schema, before, after))
    return tuple(found)


def _diff(schema: TableSchema, old: pa.Table, new: pa.Table) -> TableDiff:
    if old.equals(new):
        return TableDiff(table=schema.name, same=old.num_rows, added=(), removed=(), changed=())
    keys = [*schema.key, _NTH]
    merged = _numbered(schema, old).merge(
        _numbered(schema, new), on=keys, how="outer", suffixes=("_old", "_new"), indicator=True
    )
    merged = merged.sort_values(keys, kind="stable", na_position="last")
    side = merged["_merge"]
    both = merged[side == "both"]
    changed = tuple(_changes(schema, both))
    rows = {change.key for change in changed}
    return TableDiff(
        table=schema.name,
        same=len(both) - len(rows),
        added=tuple(_names(schema, merged[side == "right_only"])),
        removed=tuple(_names(schema, merged[side == "left_only"])),
        changed=changed,
    )


def _numbered(schema: TableSchema, table: pa.Table) -> pd.DataFrame:
    frame = table.to_pandas(integer_object_nulls=True)
    frame[_NTH] = frame.groupby(list(schema.key), dropna=False, sort=False).cumcount()
    return frame


def _changes(schema: TableSchema, both: pd.DataFrame) -> Iterator[Change]:
    for column in schema.names:
        if column in schema.key:
            continue
        old, new = both[f"{column}_old"], both[f"{column}_new"]
        differs = (old != new) & ~(old.isna() & new.isna())
        part = both[differs]
        for key, before, after in zip(
            _names(schema, part), old[differs], new[differs], strict=True
        ):
            yield Change(
                table=schema.name,
                key=key,
                column=column,
                old=_text(before),
                new=_text(after),
            )


def _names(schema: TableSchema, rows: pd.DataFrame) -> list[str]:
    columns = [rows[name].map(_text) for name in schema.key]
    return [" ".join(filter(None, words)) for words in zip(*columns, strict=True)]


def _text(value: Any) -> str:
    if value is None or value != value:
        return ""
    if isinstance(value, float):
        return repr(value)
    if hasattr(value, "isoformat"):
        return str(value.isoformat()).replace("+00:00", "Z")
    return str(value)
