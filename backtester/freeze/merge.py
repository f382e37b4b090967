"""Put the answers of vendors together: the tables of a snapshot, their sources, and what to know.

Rows that nobody could see within the declared range, or that were not public at the capture, are
left out, so that the id of a snapshot does not depend on what a vendor sends beyond what it was
asked for. Instruments that no vendor described are described by their market alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from backtester.calendar import calendar_of
from backtester.freeze.ask import Taken
from backtester.freeze.plan import WITH_BARS, FreezePlan
from backtester.markets import ALWAYS_OPEN, FUTURES, INDICES, WEEKDAYS, calendar_code
from backtester.schema import TABLES, conform, known_at_day
from backtester.snapshots.manifest import Finding, Source
from backtester.snapshots.snapshot import absence_of

# Cutoffs of a date lie before the end of that date in New York, whatever the market.
_LAST_ZONE: Final = "America/New_York"
_KINDS: Final = {ALWAYS_OPEN: "crypto", WEEKDAYS: "fx", FUTURES: "future"}
_MANY: Final = 3
# A range often begins on a holiday of the vendor's, or in the week before its first bar.
MOST_LATE: Final = 5


@dataclass(frozen=True, kw_only=True)
class Merged:
    """Hold what a capture came to.

    Attributes:
        tables: Table name -> rows.
        absent: Table name, or `absence_of` one instrument -> reason.
        sources: Where rows came from.
        notes: What a reader should know beside the checks of the rows.
    """

    tables: Mapping[str, pa.Table]
    absent: Mapping[str, str]
    sources: tuple[Source, ...]
    notes: tuple[Finding, ...]


def merge(plan: FreezePlan, taken: Sequence[Taken], captured_at: datetime) -> Merged:
    """Put answers together.

    Args:
        plan: What was asked for.
        taken: What came of it, in the order of the plan.
        captured_at: When the capture was made.

    Raises:
        DataError: For rows that do not fit their schema.
    """
    parts: dict[str, list[pa.Table]] = defaultdict(list)
    for answer in taken:
        rows = answer.capture.rows if answer.capture else {}
        for table, found in _own_rows(plan, answer, rows):
            parts[table].append(found)
    tables = {name: pa.concat_tables(found) for name, found in parts.items()}
    tables.setdefault("actions", TABLES["actions"].empty())
    late: list[Finding] = []
    for name, whole in tables.items():
        tables[name] = _within(plan, name, whole, captured_at, late)
    tables["instruments"] = _instruments(plan, tables)
    absent = {
        name: _reason(plan, name, taken)
        for name in TABLES
        if name not in tables or (name in plan.tables and not _had(name, taken, tables))
    }
    for name in absent:
        tables.pop(name, None)
    absent |= _lacking(plan, tables, taken)
    return Merged(
        tables=tables,
        absent=absent,
        sources=tuple(_sources(plan, taken, tables, captured_at)),
        notes=(*_notes(taken), *late, *_late_starts(plan, tables)),
    )


def _own_rows(
    plan: FreezePlan, answer: Taken, rows: Mapping[str, pa.Table]
) -> Iterator[tuple[str, pa.Table]]:
    for table, found in rows.items():
        # A vendor of its own for the actions or instruments wins over what came with the bars.
        along = answer.request.table == "bars" and table in WITH_BARS
        if not (along and plan.chain(table)):
            yield table, _shaped(table, found)


def _shaped(name: str, rows: pa.Table) -> pa.Table:
    # Copies of a bar stay, for the checks of the capture to count them.
    conform(name, rows)
    schema = TABLES[name]
    return rows.select(list(schema.names)).cast(schema.arrow)


def _within(
    plan: FreezePlan, name: str, rows: pa.Table, captured_at: datetime, late: list[Finding]
) -> pa.Table:
    if name == "instruments":
        return rows
    if name == "bars":
        # A vendor may send more than it was asked for.
        return _between(rows, "session", plan.declared_start, plan.end)
    if name == "actions":
        return _between(rows, "ex_session", plan.declared_start, plan.end)
    known = rows.column("known_at")
    public = pc.less_equal(known, pa.scalar(captured_at.astimezone(UTC), known.type))
    left_out = rows.num_rows - public.to_pylist().count(True)
    if left_out:
        text = f"{name}: {left_out} rows were not public when the capture was made; left out"
        late.append(Finding(kind="note", message=text))
    seen = pc.less_equal(known, pa.scalar(known_at_day(plan.end, _LAST_ZONE), known.type))
    return rows.filter(pc.and_(public, seen))


def _between(rows: pa.Table, column: str, first: date, last: date) -> pa.Table:
    days = rows.column(column)
    return rows.filter(
        pc.and_(
            pc.greater_equal(days, pa.scalar(first, pa.date32())),
            pc.less_equal(days, pa.scalar(last, pa.date32())),
        )
    )


# -------------------------------------------------------------------------------- instruments


def _instruments(plan: FreezePlan, tables: Mapping[str, pa.Table]) -> pa.Table:
    given = tables.get("instruments", TABLES["instruments"].empty()).to_pylist()
    by_instrument: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in given:
        by_instrument[row["instrument"]].append(row)
    first_bars, currencies = _of_bars(tables.get("bars", TABLES["bars"].empty()))
    rows = []
    for instrument in plan.instruments:
        first = first_bars.get(instrument, plan.declared_start)
        found = by_instrument.get(instrument) or [
            _described(instrument, first, currencies.get(instrument))
        ]
        told = {
            name: days[instrument]
            for name, days in (
                ("first_session", plan.first_sessions),
                ("last_session", plan.last_sessions),
            )
            if instrument in days
        }
        rows += [{**row, **told} for row in found]
    return pa.Table.from_pylist(rows, schema=TABLES["instruments"].arrow)


def _of_bars(bars: pa.Table) -> tuple[dict[str, date], dict[str, str]]:
    grouped = bars.group_by("instrument").aggregate([("session", "min"), ("currency", "min")])
    rows = grouped.to_pylist()
    return (
        {row["instrument"]: row["session_min"] for row in rows},
        {row["instrument"]: row["currency_min"] for row in rows},
    )


def _described(instrument: str, first: date, currency: str | None) -> dict[str, Any]:
    """Describe an instrument by its symbol alone; the words are today's and hold for all time."""
    code = calendar_code(instrument)
    index = INDICES.get(instrument)
    return {
        "instrument": instrument,
        "symbol": instrument,
        "name": index.name if index else instrument,
        "exchange": code,
        "calendar": code,
        "currency": currency or (index.currency if index else "USD"),
        "sector": None,
        "asset_type": "index" if index else _KINDS.get(code, "stock"),
        "valid_from": None,
        "valid_to": None,
        "first_session": first,
        "last_session": None,
        "basis": index.basis if index else "price",
        "static": True,
    }


def _late_starts(plan: FreezePlan, tables: Mapping[str, pa.Table]) -> Iterator[Finding]:
    """Name instruments whose bars begin within the range where nobody says that they were new."""
    first_bars, _ = _of_bars(tables.get("bars", TABLES["bars"].empty()))
    for instrument, first in sorted(first_bars.items()):
        missing = len(calendar_of(instrument).sessions(plan.declared_start, first)) - 1
        if missing > MOST_LATE and instrument not in plan.first_sessions:
            text = (
                f"its bars begin on {first}, {missing} sessions after the range does: was it "
                "listed then, or does the vendor lack its history? first_sessions says so"
            )
            yield Finding(kind="late_start", instrument=instrument, session=first, message=text)


# ------------------------------------------------------------------------- sources and reasons


def _had(name: str, taken: Sequence[Taken], tables: Mapping[str, pa.Table]) -> bool:
    if TABLES[name].core:
        return name in tables
    return any(answer.capture is not None for answer in taken if answer.request.table == name)


def _reason(plan: FreezePlan, name: str, taken: Sequence[Taken]) -> str:
    if name not in plan.tables:
        return "it was not asked for when the snapshot was frozen"
    reasons = dict.fromkeys(
        answer.reason for answer in taken if answer.request.table == name and answer.reason
    )
    return "; ".join(reasons) or "no vendor was asked for it"


def _lacking(
    plan: FreezePlan, tables: Mapping[str, pa.Table], taken: Sequence[Taken]
) -> dict[str, str]:
    """Return why a table that is there says nothing of an instrument: silence is not "none"."""
    had = {(a.request.table, a.request.instrument) for a in taken if a.capture is not None}
    reasons = {(a.request.table, a.request.instrument): a.reason for a in taken}
    found = {}
    for name, rows in tables.items():
        if TABLES[name].core or "instrument" not in rows.column_names:
            continue
        held = set(rows.column("instrument").unique().to_pylist())
        for instrument in plan.instruments:
            if instrument in held or (name, instrument) in had:
                continue
            reason = reasons.get((name, instrument))
            found[absence_of(name, instrument)] = reason or "prices alone were taken of it"
    return found


def _sources(
    plan: FreezePlan,
    taken: Sequence[Taken],
    tables: Mapping[str, pa.Table],
    captured_at: datetime,
) -> Iterator[Source]:
    groups: dict[tuple[str, str], list[Taken]] = defaultdict(list)
    for answer in taken:
        if answer.capture is not None:
            groups[answer.vendor, answer.request.table].append(answer)
    for (vendor, table), answers in groups.items():
        captures = [answer.capture for answer in answers if answer.capture]
        held = {name for capture in captures for name in capture.rows if name in tables}
        licences = dict.fromkeys(capture.licence for capture in captures)
        yield Source(
            name=f"{vendor} {table}",
            vendor=vendor,
            item=_few([capture.source for capture in captures]),
            tables=tuple(name for name in TABLES if name in held),
            licence="; ".join(licences),
            captured_at=captured_at,
            options={
                **_shared([capture.options for capture in captures]),
                **plan.options_of(vendor, table),
                "subjects": " ".join(answer.request.subject for answer in answers),
                "freeze": plan.fingerprint,
            },
        )
    if not any("instruments" in capture.rows for capture in _captures(taken)):
        yield Source(
            name="market tables",
            vendor="backtester",
            item="backtester/markets.py",
            tables=("instruments",),
            licence="Apache-2.0",
            captured_at=captured_at,
            derivation="Described by the symbol alone: no vendor of the plan describes it.",
        )


def _captures(taken: Iterable[Taken]) -> Iterator[Any]:
    return (answer.capture for answer in taken if answer.capture)


def _few(items: Sequence[str]) -> str:
    distinct = list(dict.fromkeys(items))
    if len(distinct) <= _MANY:
        return "; ".join(distinct)
    return f"{distinct[0]} and {len(distinct) - 1} more"


def _shared(options: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return the options of many requests: those that differ as their distinct values."""
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for given in options:
        for name, value in given.items():
            found[name].setdefault(value)
    return {name: _few(list(values)) for name, values in found.items()}


def _notes(taken: Sequence[Taken]) -> Iterator[Finding]:
    for answer in taken:
        table, instrument = answer.request.table, answer.request.instrument
        where = f"{table} of {answer.request.subject}"
        if answer.capture is None:
            if answer.reason:
                yield Finding(
                    kind="not_had", instrument=instrument, message=f"{where}: {answer.reason}"
                )
            continue
        if answer.capture.dropped_undated:
            yield Finding(
                kind="undated",
                instrument=instrument,
                message=f"{where}: {answer.capture.dropped_undated} rows without a date left out",
                count=answer.capture.dropped_undated,
            )
        for note in answer.capture.notes:
            yield Finding(kind="note", instrument=instrument, message=f"{where}: {note}")
        if answer.reason:
            yield Finding(
                kind="note",
                instrument=instrument,
                message=f"{where}: from {answer.vendor}, for {answer.reason}",
            )
