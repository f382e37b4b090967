"""XBRL company facts of the SEC as rows of ``statements``, filing by filing.

Everything is decided within one filing, so that no later filing can change what an earlier one
says: which tag stands for an item in a period, and which currency is the filing's own. Figures of
a year come from annual forms alone. A quarter that was not filed on its own is the difference of
the two longer periods that were, and is marked; it is worked out only where both rest on one tag,
and, for figures per share, on about the same number of shares (a split between them would show).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from backtester.schema import PUBLISHED, TABLES, conform
from backtester.vendors.base import BadResponse
from backtester.vendors.sec_filings import Filing, known_at_filing
from backtester.vendors.sec_items import (
    ANNUAL_FORMS,
    DEI,
    INTERIM_FORMS,
    MONEY,
    PER_SHARE,
    SEC_ITEMS,
    SHARES,
    ItemTags,
    months_of,
)
from tradingagents_core.statements import COVER

_DAY: Final = timedelta(days=1)
_LONGER: Final = (6, 9, 12)
_SAME_SHARES: Final = 0.1
_Period = tuple[date | None, date]


@dataclass(frozen=True, kw_only=True)
class Fact:
    """Hold one fact of one filing."""

    taxonomy: str
    tag: str
    unit: str
    start: date | None
    end: date
    value: float
    accession: str
    form: str
    filed: date


@dataclass(frozen=True, kw_only=True)
class Line:
    """Hold one line item of one filing.

    Attributes:
        item: What it is.
        start: First day, or None.
        end: Last day.
        months: Length; 0 for an instant.
        value: As filed.
        unit: Currency, ``shares`` or ``currency/shares``.
        tag: XBRL tag.
        derived: Whether it was worked out.
    """

    item: ItemTags
    start: date | None
    end: date
    months: int
    value: float
    unit: str
    tag: str
    derived: bool = False


@dataclass(frozen=True, kw_only=True)
class Statements:
    """Hold the rows of one company, and what a reader should know of them."""

    rows: pa.Table
    notes: tuple[str, ...]


def facts_of(body: Mapping[str, Any], where: str) -> tuple[Fact, ...]:
    """Read the facts that stand for a line item, of the forms that count.

    Args:
        body: JSON object of the SEC's ``companyfacts`` file.
        where: Address, for messages.

    Raises:
        BadResponse: It has another form.
    """
    wanted = {name for item in SEC_ITEMS for name in item.tags}
    forms = ANNUAL_FORMS | INTERIM_FORMS
    try:
        return tuple(
            _fact(taxonomy, tag, unit, entry)
            for taxonomy, tags in body["facts"].items()
            for tag, held in tags.items()
            if (taxonomy, tag) in wanted
            for unit, entries in held["units"].items()
            for entry in entries
            if entry["form"] in forms and _is_number(entry["val"])
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadResponse(f"{where} has not the form of company facts ({error!r})") from None


def statements_of(
    facts: Iterable[Fact],
    filings: Mapping[str, Filing],
    *,
    instrument: str,
    first: date,
    last: date,
    until: datetime,
) -> Statements:
    """Return the rows of the filings of some years.

    Args:
        facts: Of one company.
        filings: Its filings by number; one that is not there counts from the end of its day.
        instrument: The snapshot's id.
        first: First filing date.
        last: Last one.
        until: Nothing that became public later is wanted.
    """
    by_filing: dict[str, list[Fact]] = defaultdict(list)
    for fact in facts:
        if first <= fact.filed <= last:
            by_filing[fact.accession].append(fact)
    dated = [
        (_filing(held[0], filings), held) for held in by_filing.values() if _is_one_filing(held)
    ]
    dated.sort(key=lambda pair: (pair[0].known_at, pair[0].accession))
    seen: dict[tuple[str, _Period], Line] = {}
    rows: list[dict[str, object]] = []
    undated = 0
    two_values: list[str] = []
    for filing, held in dated:
        if filing.known_at > until:
            continue
        undated += filing.accession not in filings
        lines = _lines(held, filing.form, two_values)
        seen |= {(line.item.item, (line.start, line.end)): line for line in lines}
        derived = () if filing.form.endswith("/A") else tuple(_derived(lines, seen))
        rows += [_row(instrument, filing, line) for line in (*lines, *derived)]
    table = pa.Table.from_pylist(rows, schema=TABLES["statements"].arrow)
    return Statements(
        rows=conform("statements", table), notes=tuple(_notes(rows, undated, two_values))
    )


def _notes(rows: Sequence[object], undated: int, two_values: Sequence[str]) -> Iterator[str]:
    if undated:
        yield (
            f"{undated} filings are not in the list with acceptance times: they count from the "
            "end of their filing day"
        )
    if two_values:
        yield (
            f"{len(two_values)} items have two values in one filing and were left out, the first "
            f"is {two_values[0]}"
        )


# ---------------------------------------------------------------------------------- one filing


def _filing(fact: Fact, filings: Mapping[str, Filing]) -> Filing:
    listed = filings.get(fact.accession)
    if listed is not None:
        return listed
    return Filing(
        accession=fact.accession,
        form=fact.form,
        filed=fact.filed,
        known_at=known_at_filing("", fact.filed),
    )


def _is_one_filing(facts: Sequence[Fact]) -> bool:
    first = facts[0]
    if all((fact.form, fact.filed) == (first.form, first.filed) for fact in facts):
        return True
    raise BadResponse(
        f"the SEC's facts give filing {first.accession} two forms or filing dates: try again later"
    )


def _lines(facts: Sequence[Fact], form: str, two_values: list[str]) -> tuple[Line, ...]:
    currency = _currency(facts)
    held: dict[tuple[str, str], dict[_Period, set[float]]] = defaultdict(dict)
    units: dict[tuple[str, str], str] = {}
    for fact in facts:
        unit = _unit(fact, currency)
        if unit is not None:
            name = (fact.taxonomy, fact.tag)
            held[name].setdefault((fact.start, fact.end), set()).add(fact.value)
            units[name] = unit
    found: list[Line] = []
    for item in SEC_ITEMS:
        for period, (name, values) in _best_tags(item, held).items():
            months = _months(period, form)
            if months is None or _measure(units[name]) != item.measure:
                continue
            if len(values) > 1:
                two_values.append(f"{item.item} of {period[1]} in {facts[0].accession}")
                continue
            found.append(
                Line(
                    item=item,
                    start=period[0],
                    end=period[1],
                    months=months,
                    value=min(values),
                    unit=units[name],
                    tag=f"{name[0]}:{name[1]}",
                )
            )
    return tuple(_anchored(found))


def _best_tags(
    item: ItemTags, held: Mapping[tuple[str, str], Mapping[_Period, set[float]]]
) -> dict[_Period, tuple[tuple[str, str], set[float]]]:
    best: dict[_Period, tuple[tuple[str, str], set[float]]] = {}
    for name in item.tags:
        for period, values in held.get(name, {}).items():
            best.setdefault(period, (name, values))
    return best


def _months(period: _Period, form: str) -> int | None:
    start, end = period
    if start is None:
        return 0
    months = months_of((end - start).days + 1)
    return None if months == 12 and form not in ANNUAL_FORMS else months


def _anchored(lines: Sequence[Line]) -> Iterator[Line]:
    """Leave out balances of days on which no period of the filing begins or ends."""
    spans = [line for line in lines if line.start is not None]
    days = {line.end for line in spans} | {line.start - _DAY for line in spans if line.start}
    for line in lines:
        if line.months or line.item.statement == COVER or line.end in days or not days:
            yield line


def _currency(facts: Sequence[Fact]) -> str:
    """Return the currency in which a filing gives most of its figures."""
    counts = Counter(
        fact.unit for fact in facts if fact.taxonomy != DEI and _measure(fact.unit) == MONEY
    )
    most = max(counts.values(), default=0)
    return min((unit for unit, count in counts.items() if count == most), default="USD")


def _unit(fact: Fact, currency: str) -> str | None:
    return fact.unit if fact.unit in (currency, f"{currency}/shares", SHARES) else None


def _measure(unit: str) -> str:
    if unit == SHARES:
        return SHARES
    return PER_SHARE if unit.endswith("/shares") else MONEY if len(unit) == 3 else ""


# ------------------------------------------------------------------- quarters that were not filed


def _derived(lines: Sequence[Line], seen: Mapping[tuple[str, _Period], Line]) -> Iterator[Line]:
    """Work out the filing's own last quarter where it gives longer periods alone."""
    own_end = max((line.end for line in lines if line.months), default=None)
    filed = {line.item.item for line in lines if line.months == 3 and line.end == own_end}
    for line in lines:
        wanted = line.item.additive and line.months in _LONGER and line.end == own_end
        if not wanted or line.item.item in filed:
            continue
        before = _before(line, seen)
        if before is None or (
            line.item.measure == PER_SHARE and not _same_shares(line, before, seen)
        ):
            continue
        yield Line(
            item=line.item,
            start=before.end + _DAY,
            end=line.end,
            months=3,
            value=float(Decimal(repr(line.value)) - Decimal(repr(before.value))),
            unit=line.unit,
            tag=line.tag,
            derived=True,
        )


def _before(line: Line, seen: Mapping[tuple[str, _Period], Line]) -> Line | None:
    """Return the same item from the same first day to one quarter earlier."""
    for (item, (start, end)), held in seen.items():
        if (
            item == line.item.item
            and start == line.start
            and held.months == line.months - 3
            and months_of((line.end - end).days) == 3
            and (held.tag, held.unit) == (line.tag, line.unit)
        ):
            return held
    return None


def _same_shares(line: Line, before: Line, seen: Mapping[tuple[str, _Period], Line]) -> bool:
    shares = "shares_diluted" if line.item.item == "eps_diluted" else "shares_basic"
    now, then = (seen.get((shares, (one.start, one.end))) for one in (line, before))
    if now is None or then is None or then.value <= 0:
        return False
    return abs(now.value / then.value - 1) <= _SAME_SHARES


# ------------------------------------------------------------------------------------ in and out


def _fact(taxonomy: str, tag: str, unit: str, entry: Mapping[str, Any]) -> Fact:
    start = entry.get("start")
    return Fact(
        taxonomy=taxonomy,
        tag=tag,
        unit=unit,
        start=None if start is None else date.fromisoformat(start),
        end=date.fromisoformat(entry["end"]),
        value=float(entry["val"]),
        accession=str(entry["accn"]),
        form=str(entry["form"]),
        filed=date.fromisoformat(entry["filed"]),
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _row(instrument: str, filing: Filing, line: Line) -> dict[str, object]:
    return {
        "instrument": instrument,
        "statement": line.item.statement,
        "item": line.item.item,
        "period_start": line.start,
        "period_end": line.end,
        "period_months": line.months,
        "known_at": filing.known_at,
        "known_at_basis": PUBLISHED,
        "form": filing.form,
        "accession": filing.accession,
        "tag": line.tag,
        "derived": line.derived,
        "value": line.value,
        "unit": line.unit,
    }
