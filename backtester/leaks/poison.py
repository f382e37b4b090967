"""Rewrite the future of a snapshot: what a leak audit puts in the place of later rows.

What becomes of a column is a rule that follows from `schema.py`: texts get a canary word in front
that names table and column, numbers are scaled, flags turned, dates moved. What names a row is
kept, so that a reader who is not careful finds the row where it looks. A column whose type has no
rule is an error, and a new table or column needs no line here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from types import MappingProxyType
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from backtester.calendar import calendar_by_code
from backtester.errors import DataError
from backtester.schema import (
    DIVIDEND,
    FLAG,
    INTEGER,
    PUBLISHED,
    REAL,
    SPLIT,
    TABLES,
    TEXT,
    Column,
    TableSchema,
)
from backtester.snapshots.snapshot import Snapshot

Rule = Literal["kept", "canary", "scaled", "turned", "moved", "published"]

CANARY: Final = "FUTURE-CANARY"
FACTOR: Final = 10
NAMES: Final = "instruments"
_CANARY_WORD: Final = re.compile(CANARY + r"\.([a-z_]+)\.([a-z_]+)")
_STAMP: Final = pa.timestamp("us", tz="UTC")
_MICROSECOND: Final = timedelta(microseconds=1)
_YEAR: Final = pa.scalar(timedelta(days=365), type=pa.duration("s"))
# Of one subject so many of the newest rows get a later version: that is where readers look.
_VERSIONS: Final = 200

_BY_TYPE: Final[Mapping[pa.DataType, Rule]] = MappingProxyType(
    {TEXT: "canary", REAL: "scaled", INTEGER: "scaled", FLAG: "turned", pa.date32(): "moved"}
)
_EXCEPTIONS: Final[Mapping[tuple[str, str], Rule]] = MappingProxyType(
    {
        # A key that nobody looks a row up by can be planted too.
        ("statements", "accession"): "canary",
        ("news", "id"): "canary",
        ("social", "id"): "canary",
        ("insider", "id"): "canary",
        # A row marked as estimated may be withheld, and would then prove nothing.
        ("statements", "known_at_basis"): "published",
        ("news", "known_at_basis"): "published",
        ("macro", "known_at_basis"): "published",
        ("insider", "known_at_basis"): "published",
        # With both scaled, the ratio of a split would stay.
        ("actions", "denominator"): "kept",
        # Readers choose rows by these words.
        ("social", "platform"): "kept",
        ("insider", "form"): "kept",
        ("insider", "code"): "kept",
        # The same in every range of an instrument, and read from the newest one.
        (NAMES, "calendar"): "kept",
        (NAMES, "currency"): "kept",
        (NAMES, "asset_type"): "kept",
        (NAMES, "basis"): "kept",
        # Ends of ranges are moved row by row, see `_Names`; the first session is of the capture.
        (NAMES, "valid_to"): "kept",
        (NAMES, "first_session"): "kept",
        (NAMES, "last_session"): "kept",
    }
)


@dataclass(frozen=True, kw_only=True)
class Way:
    """Name one way in which the world is changed.

    Attributes:
        name: Short name.
        words: How a finding says it ("in a world ...").
    """

    name: Literal["rewritten", "cut", "moved"]
    words: str


REWRITTEN: Final = Way(name="rewritten", words="whose future was rewritten")
CUT: Final = Way(name="cut", words="whose data end at the cutoff")
MOVED: Final = Way(name="moved", words="with another clock and time zone")
WAYS: Final = (REWRITTEN, CUT, MOVED)


@dataclass(frozen=True, kw_only=True)
class Place:
    """Name the column that a canary was planted in."""

    table: str
    column: str

    @property
    def canary(self) -> str:
        """The word that is planted there."""
        return f"{CANARY}.{self.table}.{self.column}"


@dataclass(frozen=True, kw_only=True)
class Planted:
    """Count what was changed in one table.

    Attributes:
        rows: Later rows that were rewritten, or deleted.
        added: Later rows that were made up.
        texts: Canary words in both.
    """

    rows: int = 0
    added: int = 0
    texts: int = 0


@dataclass(frozen=True, kw_only=True)
class World:
    """Hold a changed snapshot, and what was changed by table."""

    snapshot: Snapshot
    planted: Mapping[str, Planted] = field(default_factory=dict)


def canaries_in(text: str) -> tuple[Place, ...]:
    """Return the places whose canaries stand in a text, each once, in order."""
    if CANARY not in text:
        return ()
    found = dict.fromkeys(_CANARY_WORD.findall(text))
    return tuple(Place(table=table, column=column) for table, column in found)


def rule_of(schema: TableSchema, column: Column) -> Rule:
    """Return what becomes of a column of a later row.

    Raises:
        DataError: Its type has no rule: what it holds could reach a prompt unseen.
    """
    exception = _EXCEPTIONS.get((schema.name, column.name))
    if exception is not None:
        return exception
    if column.name == "known_at" or column.name in schema.key:
        return "kept"
    rule = _BY_TYPE.get(column.type)
    if rule is None:
        raise DataError(
            f"column {column.name} of table {schema.name} is of type {column.type}, which has no "
            "rule in poison.py: write one, or the audit would not change the column"
        )
    return rule


def poisoned(schema: TableSchema, table: pa.Table) -> pa.Table:
    """Return a table with every row as if it lay in a rewritten future."""
    for column in schema.columns:
        rule = rule_of(schema, column)
        if rule != "kept":
            index = table.schema.get_field_index(column.name)
            values = _changed(
                table.column(index), rule, Place(table=schema.name, column=column.name)
            )
            table = table.set_column(index, table.schema.field(index), values.cast(column.type))
    return table


def _changed(values: Any, rule: Rule, place: Place) -> Any:
    # Arrow's stubs know neither scalars of Python nor chunked arrays as arguments, hence the Any.
    functions: Any = pc
    if rule == "canary":
        # What was there stays behind the word: a reader that searches texts must find the row.
        return functions.binary_join_element_wise(place.canary, values.fill_null(""), " ")
    if rule == "published":
        return pa.chunked_array([pa.array([PUBLISHED] * len(values), type=TEXT)])
    if rule == "turned":
        return functions.invert(values)
    if rule == "moved":
        return functions.subtract(values.cast(pa.timestamp("s")), _YEAR)
    # Ten times nothing is nothing.
    return functions.if_else(functions.equal(values, 0), 1, functions.multiply(values, FACTOR))


def texts_of(schema: TableSchema) -> int:
    """Return how many canaries a rewritten row of a table holds."""
    return sum(rule_of(schema, column) == "canary" for column in schema.columns)


class Futures:
    """Make the changed worlds of one snapshot; what does not depend on the cutoff is kept.

    Args:
        snapshot: The true one.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self._absent: dict[str, str] = {}
        self._tables: dict[str, pa.Table] = {}
        for name in TABLES:
            reason = snapshot.absent_reason(name)
            if reason is None:
                self._tables[name] = snapshot.table(name)
            else:
                self._absent[name] = reason
        self._poisoned = {name: poisoned(TABLES[name], rows) for name, rows in self._tables.items()}
        self._versions = {
            name: _Versions(TABLES[name], rows)
            for name, rows in self._tables.items()
            # Only then can a later row be another version of an earlier one.
            if "known_at" in TABLES[name].key
        }

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of the tables that the snapshot holds."""
        return tuple(self._tables)

    @property
    def absent(self) -> Mapping[str, str]:
        """Why the others are not there."""
        return MappingProxyType(self._absent)

    def world(self, way: Way, cutoff: datetime, today: date, *, only: str | None = None) -> World:
        """Return the snapshot with everything after a cutoff changed.

        Args:
            way: How. A moved clock changes nothing here.
            cutoff: Instant after which nothing is left as it was.
            today: Session of the cutoff, for what has dates in the place of instants.
            only: Change this table alone.
        """
        if way.name == "moved":
            return World(snapshot=self.snapshot)
        tables = dict(self._tables)
        planted = {}
        for name in self._tables if only is None else (only,):
            tables[name], planted[name] = self._table(name, way, cutoff, today)
        end = self.snapshot.end
        if way.name == "cut" and only is None:
            end = max(self.snapshot.start, min(end, today))
        changed = self.snapshot.replace_tables(undated=True, declared_end=end, **tables)
        return World(snapshot=changed, planted=planted)

    def _table(
        self, name: str, way: Way, cutoff: datetime, today: date
    ) -> tuple[pa.Table, Planted]:
        table = self._tables[name]
        if name == NAMES:
            names = _Names(table, self._poisoned[name], today)
            return names.cut() if way.name == "cut" else names.rewritten()
        late = _later(table, cutoff)
        count = pc.sum(late).as_py() or 0
        if way.name == "cut":
            return table.filter(pc.invert(late)), Planted(rows=count)
        mixed = _mixed(table, self._poisoned[name], late)
        added = self._added(name, cutoff)
        texts = texts_of(TABLES[name]) * (count + added.num_rows)
        planted = Planted(rows=count, added=added.num_rows, texts=texts)
        return pa.concat_tables([mixed, added]) if added.num_rows else mixed, planted

    def _added(self, name: str, cutoff: datetime) -> pa.Table:
        if name in self._versions:
            return self._versions[name].later(self._poisoned[name], cutoff)
        if name == "actions":
            return _added_actions(self._tables["bars"], cutoff)
        return TABLES[name].empty()


def _later(table: pa.Table, cutoff: datetime) -> Any:
    late: Any = pc.greater(table["known_at"], pa.scalar(cutoff, type=_STAMP))
    # An undated row is no earlier one.
    return late.fill_null(True)


def _mixed(table: pa.Table, other: pa.Table, late: Any) -> pa.Table:
    """Take the late rows from another table of the same rows; the order of rows stays."""
    for index, field_ in enumerate(table.schema):
        values = other.column(index)
        if values is not table.column(index):
            table = table.set_column(index, field_, pc.if_else(late, values, table.column(index)))
    return table


class _Versions:
    """Restate what is known: the newest rows of each subject, said anew right after a cutoff.

    A later filing of an earlier period, a later vintage, a later tick: each has the key of a row
    that is visible, and another instant.
    """

    def __init__(self, schema: TableSchema, table: pa.Table) -> None:
        subject = table.column(schema.key[0]).combine_chunks()
        codes = subject.dictionary_encode(null_encoding="encode").indices.to_numpy()
        known_at = table.column("known_at").cast(pa.int64()).combine_chunks()
        instants = known_at.fill_null(np.iinfo(np.int64).max).to_numpy()
        self._order: npt.NDArray[np.int64] = np.lexsort((instants, codes))
        self._instants = instants[self._order]
        self._codes = codes[self._order]

    def later(self, source: pa.Table, cutoff: datetime) -> pa.Table:
        """Return later versions, taken from a table of poisoned rows in the order of the first."""
        seen = self._instants <= pa.scalar(cutoff, type=_STAMP).cast(pa.int64()).as_py()
        # Within a subject the visible rows come first: count each from its last visible one.
        positions = np.flatnonzero(seen)
        codes = self._codes[positions]
        ends = np.searchsorted(codes, codes, side="right")
        newest = positions[ends - np.arange(len(positions)) <= _VERSIONS]
        rows = source.take(np.sort(self._order[newest]))
        stamps = pa.array([cutoff + _MICROSECOND] * rows.num_rows, type=_STAMP)
        index = rows.schema.get_field_index("known_at")
        return rows.set_column(index, rows.schema.field(index), stamps)


def _added_actions(bars: pa.Table, cutoff: datetime) -> pa.Table:
    """Return a split on each instrument's first later session and a dividend on its last one."""
    late = bars.filter(_later(bars, cutoff))
    edges = late.group_by("instrument").aggregate(
        [
            *(("session", edge) for edge in ("min", "max")),
            *(("known_at", edge) for edge in ("min", "max")),
            ("currency", "max"),
        ]
    )
    rows = [row for edge in edges.sort_by("instrument").to_pylist() for row in _actions_at(edge)]
    return pa.Table.from_pylist(rows, schema=TABLES["actions"].arrow)


def _actions_at(edge: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    shared = {"instrument": edge["instrument"], "currency": edge["currency_max"]}
    yield {
        **shared, "kind": SPLIT, "ex_session": edge["session_min"],
        "known_at": edge["known_at_min"], "numerator": 2, "denominator": 1,
    }  # fmt: skip
    yield {
        **shared, "kind": DIVIDEND, "ex_session": edge["session_max"],
        "known_at": edge["known_at_max"], "amount": 99.0,
    }  # fmt: skip


class _Names:
    """Change the identity rows, which have ranges of dates in the place of an instant.

    Args:
        table: The true rows.
        changed: The same rows, poisoned.
        today: Session of the cutoff.
    """

    def __init__(self, table: pa.Table, changed: pa.Table, today: date) -> None:
        self._schema = table.schema
        self._rows: list[dict[str, Any]] = table.to_pylist()
        self._changed: list[dict[str, Any]] = changed.to_pylist()
        self._today = today

    def rewritten(self) -> tuple[pa.Table, Planted]:
        """Give later names a canary, and another last session to what trades or ends later."""
        rows, planted = [], Planted()
        for row, changed in zip(self._rows, self._changed, strict=True):
            if self._is_ahead(row["valid_from"]):
                row = changed
                texts = planted.texts + texts_of(TABLES[NAMES])
                planted = replace(planted, rows=planted.rows + 1, texts=texts)
            last = row["last_session"]
            if last is None:
                row = {**row, "last_session": self._next_session(row["calendar"])}
            elif self._is_ahead(last):
                row = {**row, "last_session": None}
            rows.append(row)
        return self._table(rows), planted

    def cut(self) -> tuple[pa.Table, Planted]:
        """Forget names, ends of names and last sessions that lie ahead."""
        known = {row["instrument"] for row in self._rows if not self._is_ahead(row["valid_from"])}
        rows, gone = [], 0
        for row, changed in zip(self._rows, self._changed, strict=True):
            if self._is_ahead(row["valid_from"]):
                gone += 1
                if row["instrument"] in known:
                    continue
                # An instrument without any name could not be asked for, and it may be on the grid.
                known.add(row["instrument"])
                row = changed
            for end in ("valid_to", "last_session"):
                if self._is_ahead(row[end]):
                    row = {**row, end: None}
            rows.append(row)
        return self._table(rows), Planted(rows=gone)

    def _is_ahead(self, day: date | None) -> bool:
        return day is not None and day > self._today

    def _next_session(self, code: str) -> date | None:
        calendar = calendar_by_code(code)
        try:
            return calendar.shift(calendar.last_on_or_before(self._today), 1)
        except DataError:
            return None

    def _table(self, rows: list[dict[str, Any]]) -> pa.Table:
        return pa.Table.from_pylist(rows, schema=self._schema)
