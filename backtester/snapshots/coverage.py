"""What a snapshot covers: for each table and each of its subjects how much, from when to when.

A subject is an instrument, a series, a market, or ``(global)`` for news that belong to none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Final

import pyarrow as pa

from backtester.calendar import calendar_by_code
from backtester.schema import ESTIMATED, TABLES
from backtester.snapshots.manifest import Finding
from backtester.snapshots.snapshot import Snapshot

GLOBAL: Final = "(global)"
_SUBJECTS: Final = ("instrument", "series", "market")
_DAYS: Final = ("session", "ex_session", "known_at")


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """Say what one table holds of one subject.

    Attributes:
        table: Table.
        subject: Instrument, series or market.
        rows: Number of rows.
        first: First session, or first date on which something became public; None without rows.
        last: Last one.
        late: Sessions of the range before the first bar, where the instrument begins with it.
        gaps: Sessions without a bar.
        conflicts: Sessions with bars that contradict each other.
        estimated: Rows whose `known_at` is an estimate.
        undated: Rows that the capture left out for want of a date.
    """

    table: str
    subject: str
    rows: int
    first: date | None
    last: date | None
    late: int
    gaps: int
    conflicts: int
    estimated: int
    undated: int


def coverage_of(snapshot: Snapshot) -> tuple[Coverage, ...]:
    """Return the coverage of each table and subject, in the order of the schema.

    Raises:
        DataError: The snapshot is in memory and has no manifest.
    """
    return tuple(_coverage(snapshot))


def _coverage(snapshot: Snapshot) -> Iterator[Coverage]:
    findings = snapshot.manifest.findings
    for name in snapshot.manifest.tables:
        if name == "instruments":
            continue
        undated = _undated(findings, name)
        counts = {row["subject"]: row for row in _grouped(name, snapshot.table(name))}
        known = snapshot.instruments() if TABLES[name].core else ()
        for subject in sorted({*counts, *known, *undated}):
            row = counts.get(subject, {})
            bars = name == "bars"
            yield Coverage(
                table=name,
                subject=subject,
                rows=row.get("rows", 0),
                first=_day(row.get("first")),
                last=_day(row.get("last")),
                late=_late(snapshot, subject, _day(row.get("first"))) if bars else 0,
                gaps=_count(findings, "gap", subject) if bars else 0,
                conflicts=_count(findings, "conflict", subject) if bars else 0,
                estimated=row.get("estimated", 0),
                undated=undated[subject],
            )


def _grouped(name: str, rows: pa.Table) -> list[dict[str, Any]]:
    columns = TABLES[name].names
    subject = next(column for column in _SUBJECTS if column in columns)
    day = next(column for column in _DAYS if column in columns)
    bases = (
        rows.column("known_at_basis").to_pylist()
        if "known_at_basis" in columns
        else [None] * rows.num_rows
    )
    shape = pa.table(
        {
            "subject": pa.array(
                [owner or GLOBAL for owner in rows.column(subject).to_pylist()], pa.string()
            ),
            "day": rows.column(day).combine_chunks(),
            "estimated": pa.array([int(basis == ESTIMATED) for basis in bases], pa.int64()),
        }
    )
    grouped = shape.group_by("subject").aggregate(
        [("day", "min"), ("day", "max"), ("estimated", "sum"), ("subject", "count")]
    )
    names = {"day_min": "first", "day_max": "last", "estimated_sum": "estimated"}
    names["subject_count"] = "rows"
    return [
        {names.get(key, key): value for key, value in row.items()} for row in grouped.to_pylist()
    ]


def _undated(findings: Sequence[Finding], table: str) -> Counter[str]:
    found: Counter[str] = Counter()
    for finding in findings:
        if finding.kind == "undated" and finding.message.startswith(f"{table} of "):
            found[finding.instrument or GLOBAL] += finding.count or 0
    return found


def _count(findings: Sequence[Finding], kind: str, instrument: str) -> int:
    return sum(1 for f in findings if f.kind == kind and f.instrument == instrument)


def _late(snapshot: Snapshot, instrument: str, first: date | None) -> int:
    identity = snapshot.identity_rows(instrument)[0]
    if first is None or identity.first_session < first:
        return 0
    calendar = calendar_by_code(identity.calendar)
    return max(0, len(calendar.sessions(snapshot.start, first)) - 1)


def _day(value: date | datetime | None) -> date | None:
    return value.date() if isinstance(value, datetime) else value
