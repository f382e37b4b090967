"""Extend a snapshot into a new one: what it holds stays, and what vendors changed since is named.

A vendor corrects old values without a word. Rows that are frozen already are what was known, and a
run on them has been recorded; so they are kept unless the plan takes the new ones, and every value
that differs is a finding of the new snapshot.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from backtester.errors import UsageError
from backtester.freeze.merge import Merged
from backtester.freeze.plan import FreezePlan
from backtester.schema import SCHEMA_VERSION, TABLES, conform
from backtester.snapshots.diff import TableDiff, diff_tables
from backtester.snapshots.manifest import Finding
from backtester.snapshots.snapshot import Snapshot

# More of them are counted; the two snapshots tell the rest.
MOST_NAMED: Final = 1_000
_ENDS: Final = ("valid_to", "last_session")


@dataclass(frozen=True, kw_only=True)
class Extension:
    """Hold an extended capture.

    Attributes:
        merged: What is stored.
        changes: What the vendors say otherwise than the snapshot that was extended, and which
            rows of its range they have added or no longer have.
    """

    merged: Merged
    changes: tuple[TableDiff, ...]


def require_extendable(plan: FreezePlan, base: Snapshot) -> None:
    """Refuse to extend a snapshot that does not fit the plan.

    Raises:
        UsageError: Says what does not fit.
    """
    if base.manifest.schema_version != SCHEMA_VERSION:
        raise UsageError(f"{base.name} has another schema version: freeze it anew")
    if plan.end < base.end:
        raise UsageError(f"{base.name} reaches to {base.end}, after the end {plan.end}: extend it")
    missing = sorted(set(base.instruments()) - set(plan.instruments))
    if missing:
        raise UsageError(
            f"{base.name} holds {', '.join(missing)} as well: name them too, for a snapshot that "
            "is extended loses nothing"
        )


def extend(plan: FreezePlan, base: Snapshot, merged: Merged) -> Extension:
    """Put a capture onto a snapshot.

    Args:
        plan: What was asked for.
        base: Snapshot that is extended.
        merged: What the vendors have now.
    """
    old = {name: base.table(name) for name in TABLES if base.absent_reason(name) is None}
    captured = dict(merged.tables)
    held = {
        name: _of_base(name, captured.get(name, TABLES[name].empty()), base) for name in captured
    }
    changes = diff_tables({name: old[name] for name in held if name in old}, held)
    tables: dict[str, pa.Table] = {}
    for name in TABLES:
        before, now = old.get(name), captured.get(name)
        if before is None or now is None:
            if (whole := before if now is None else now) is not None:
                tables[name] = whole
            continue
        if name == "instruments":
            tables[name] = _identities(plan, base, before, now)
            continue
        first, second = (before, now) if plan.on_change == "keep" else (now, before)
        tables[name] = pa.concat_tables([first, _without(name, second, first)])
    return Extension(
        merged=Merged(
            tables=tables,
            absent=_absent(base, merged, tables),
            sources=(*_earlier(base, merged), *merged.sources),
            notes=(*merged.notes, *_told(plan, changes)),
        ),
        changes=changes,
    )


def _of_base(name: str, rows: pa.Table, base: Snapshot) -> pa.Table:
    """Return the rows that the snapshot which is extended could have had."""
    instruments = pa.array(base.instruments())
    if "instrument" in rows.column_names and name != "news":
        rows = rows.filter(pc.is_in(rows.column("instrument"), value_set=instruments))
    if name == "instruments":
        return _as_of(rows, base.end)
    for day in ("session", "ex_session"):
        if day in rows.column_names:
            return rows.filter(pc.less_equal(rows.column(day), pa.scalar(base.end, pa.date32())))
    if "known_at" not in rows.column_names:
        return rows
    newest = base.manifest.tables[name].max_known_at if name in base.manifest.tables else None
    if newest is None:
        return rows.slice(0, 0)
    known = rows.column("known_at")
    return rows.filter(pc.less_equal(known, pa.scalar(newest, known.type)))


def _absent(base: Snapshot, merged: Merged, tables: Mapping[str, pa.Table]) -> dict[str, str]:
    """Return what neither the snapshot nor the capture has, with the newest reason."""
    found = {}
    for name, why in {**base.manifest.absent, **merged.absent}.items():
        table, _, instrument = name.partition("/")
        lacking = table not in tables
        if instrument and not lacking:
            lacking = instrument not in tables[table].column("instrument").to_pylist()
        elif instrument:
            lacking = False
        if lacking:
            found[name] = why
    return found


def _as_of(rows: pa.Table, end: date) -> pa.Table:
    """Return identities as they could be known on a date: what ends later has not ended."""
    kept = [
        {**row, **{word: None for word in _ENDS if (row[word] or end) > end}}
        for row in rows.to_pylist()
        if (row["valid_from"] or end) <= end
    ]
    return pa.Table.from_pylist(kept, schema=TABLES["instruments"].arrow)


def _without(name: str, rows: pa.Table, others: pa.Table) -> pa.Table:
    """Return the rows whose key is not among others."""
    taken = set(_keys(name, others))
    fresh = np.array([key not in taken for key in _keys(name, rows)], dtype=bool)
    return conform(name, rows).filter(pa.array(fresh))


def _keys(name: str, rows: pa.Table) -> Iterator[tuple[Any, ...]]:
    conformed = conform(name, rows)
    columns = [conformed.column(column).to_pylist() for column in TABLES[name].key]
    return zip(*columns, strict=True)


def _identities(plan: FreezePlan, base: Snapshot, before: pa.Table, now: pa.Table) -> pa.Table:
    """Return who the instruments are: whole histories of names, never two that overlap.

    What they went by up to the end of the extended snapshot stays where the plan keeps it; what
    happened to them since (a rename, an end of trading) is no change of what was known.
    """
    old, new = _by_instrument(before), _by_instrument(now)
    rows: list[dict[str, Any]] = []
    for instrument in sorted({*old, *new}):
        mine, theirs = old.get(instrument, []), new.get(instrument, [])
        keep = bool(mine) and (plan.on_change == "keep" or not theirs)
        whole = _renamed(mine, theirs, base.end) if keep else theirs
        first = min(row["first_session"] for row in (*mine, *theirs))
        last = plan.last_sessions.get(
            instrument, (theirs or mine)[-1]["last_session"] or whole[-1]["last_session"]
        )
        rows += [{**row, "first_session": first, "last_session": last} for row in whole]
    return pa.Table.from_pylist(rows, schema=TABLES["instruments"].arrow)


def _by_instrument(rows: pa.Table) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in sorted(rows.to_pylist(), key=lambda row: row["valid_from"] or date.min):
        found.setdefault(row["instrument"], []).append(row)
    return found


def _renamed(
    mine: list[dict[str, Any]], theirs: list[dict[str, Any]], end: date
) -> list[dict[str, Any]]:
    """Return the known names, and those that came after a date."""
    since = [row for row in theirs if row["valid_from"] is not None and row["valid_from"] > end]
    if not since or (mine[-1]["valid_to"] or since[0]["valid_from"]) > since[0]["valid_from"]:
        return mine
    same = {word: mine[-1][word] for word in ("calendar", "currency", "basis")}
    closed = {**mine[-1], "valid_to": mine[-1]["valid_to"] or since[0]["valid_from"]}
    return [*mine[:-1], closed, *({**row, **same} for row in since)]


def _earlier(base: Snapshot, merged: Merged) -> Iterator[Any]:
    taken = {source.name for source in merged.sources}
    for source in base.manifest.sources:
        name = source.name
        while name in taken:
            name = f"{name} of {base.name}"
        taken.add(name)
        yield source.model_copy(update={"name": name})


def _told(plan: FreezePlan, changes: tuple[TableDiff, ...]) -> Iterator[Finding]:
    kept = "kept" if plan.on_change == "keep" else "replaced"
    told = 0
    for table in changes:
        for change in table.changed:
            told += 1
            if told <= MOST_NAMED:
                text = (
                    f"{change.table} {change.key}: {change.column} was {change.old or 'NULL'}, the "
                    f"vendor now says {change.new or 'NULL'}; {kept}"
                )
                yield Finding(kind="changed", message=text)
        for words, keys in (("no longer has", table.removed), ("has since added", table.added)):
            for key in keys:
                told += 1
                if told <= MOST_NAMED:
                    text = f"{table.table}: the vendor {words} {key}"
                    yield Finding(kind="changed", message=text)
    if told > MOST_NAMED:
        yield Finding(kind="changed", message=f"and {told - MOST_NAMED} more changes")


def counted(changes: tuple[TableDiff, ...]) -> int:
    """Return how many values and rows differ."""
    return sum(len(t.changed) + len(t.added) + len(t.removed) for t in changes)
