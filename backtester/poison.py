"""Rewrite the future of a snapshot: what a leak audit puts in the place of later rows."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from backtester.schema import TABLES
from backtester.snapshot import Snapshot

CANARY_TEXT: Final = "POISON-FROM-THE-FUTURE"
PRICE_FACTOR: Final = 10.0
_STAMP: Final = pa.timestamp("us", tz="UTC")
_PRICES: Final = ("open", "high", "low", "close")


@dataclass(frozen=True, kw_only=True)
class Way:
    """Name one way of rewriting the future.

    Attributes:
        name: Short name.
        words: How a finding says it ("in a world ...").
        delete: Whether later rows vanish instead of changing.
    """

    name: str
    words: str
    delete: bool


WAYS: Final = (
    Way(name="rewritten", words="whose future was rewritten", delete=False),
    Way(name="deleted", words="whose future was deleted", delete=True),
)


def rewrite_future(snapshot: Snapshot, cutoff: datetime, way: Way) -> Snapshot:
    """Return a copy in which every row with ``known_at > cutoff`` is changed or gone.

    Prices are multiplied by ten, later actions give way to another split for each instrument,
    later texts to a canary; names that become valid later are canaries too, and a last session
    that lies ahead is forgotten.

    Args:
        snapshot: The true one.
        cutoff: Instant after which nothing is left as it was.
        way: How.
    """
    tables = {}
    for name in TABLES:
        if snapshot.absent_reason(name) is not None:
            continue
        table = snapshot.table(name)
        if name == "instruments":
            tables[name] = _instruments(table, cutoff)
        else:
            tables[name] = _rows(name, table, cutoff, way)
    if "actions" in tables and not way.delete:
        actions = tables["actions"]
        added = _added_splits(snapshot.table("bars"), cutoff, actions.schema)
        tables["actions"] = pa.concat_tables([actions, added])
    return snapshot.replace_tables(undated=False, **tables)


def _rows(name: str, table: pa.Table, cutoff: datetime, way: Way) -> pa.Table:
    late = pc.greater(table["known_at"], pa.scalar(cutoff, type=_STAMP))
    past, future = table.filter(pc.invert(late)), table.filter(late)
    if way.delete or future.num_rows == 0:
        return past
    if name == "bars":
        future = _scaled(future)
    elif name == "actions":
        return past
    else:
        future = _canaried(name, future)
    return pa.concat_tables([past, future])


def _scaled(bars: pa.Table) -> pa.Table:
    for column in _PRICES:
        index = bars.schema.get_field_index(column)
        scaled = pc.multiply(bars[column], PRICE_FACTOR)
        bars = bars.set_column(index, bars.schema.field(column), scaled)
    return bars


def _added_splits(bars: pa.Table, cutoff: datetime, schema: pa.Schema) -> pa.Table:
    """Return a 2-for-1 split for each instrument on the last session of the bars' future."""
    late = bars.filter(pc.greater(bars["known_at"], pa.scalar(cutoff, type=_STAMP)))
    last = late.group_by("instrument").aggregate(
        [("session", "max"), ("known_at", "max"), ("currency", "max")]
    )
    rows = [
        {
            "instrument": row["instrument"],
            "ex_session": row["session_max"],
            "known_at": row["known_at_max"],
            "kind": "split",
            "numerator": 2,
            "denominator": 1,
            "currency": row["currency_max"],
        }
        for row in last.sort_by("instrument").to_pylist()
    ]
    return pa.Table.from_pylist(rows, schema=schema)


def _canaried(name: str, table: pa.Table) -> pa.Table:
    keys = TABLES[name].key
    for field in table.schema:
        if pa.types.is_string(field.type) and field.name not in keys:
            index = table.schema.get_field_index(field.name)
            canary = pa.array([CANARY_TEXT] * table.num_rows, type=field.type)
            table = table.set_column(index, field, canary)
    return table


def _instruments(table: pa.Table, cutoff: datetime) -> pa.Table:
    today = cutoff.date()
    rows = []
    for row in table.to_pylist():
        if row["valid_from"] is not None and row["valid_from"] > today:
            row = {**row, "symbol": CANARY_TEXT, "name": CANARY_TEXT}
        if row["last_session"] is not None and row["last_session"] > today:
            row = {**row, "last_session": None}
        rows.append(row)
    return pa.Table.from_pylist(rows, schema=table.schema)
