"""Make rows of the statements table out of a vendor's reports."""

from __future__ import annotations

import calendar
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from numbers import Real
from typing import Any

import pyarrow as pa

from backtester.schema import TABLES
from tradingagents_core.statements import BALANCE


@dataclass(frozen=True)
class Item:
    """Say what a vendor's line is called in the table.

    Attributes:
        name: One of `STATEMENT_ITEMS`.
        shares: Whether it counts shares.
        per_share: Whether it is money a share.
        negated: Whether the vendor has a minus where the table has none.
    """

    name: str
    shares: bool = False
    per_share: bool = False
    negated: bool = False

    def unit(self, currency: str) -> str:
        """Return its unit, given the currency of the report."""
        if self.shares:
            return "shares"
        return f"{currency}/shares" if self.per_share else currency


@dataclass(frozen=True, kw_only=True)
class Report:
    """Hold one statement of one period.

    Attributes:
        statement: ``income``, ``balance`` or ``cashflow``.
        form: Where it came from.
        period_end: Last day.
        months: Length of the report's period.
        known_at: UTC instant from which it counts as public.
        basis: ``published`` or ``estimated``.
        currency: Of its money.
        figures: Item -> the vendor's own name, and the value as the vendor gives it.
    """

    statement: str
    form: str
    period_end: date
    months: int
    known_at: datetime
    basis: str
    currency: str
    figures: Mapping[Item, tuple[str, float]]


def report_rows(instrument: str, report: Report) -> Iterator[dict[str, Any]]:
    """Yield a row for each figure; a balance sheet is of an instant, whatever its report."""
    flow = report.statement != BALANCE
    for item, (tag, value) in report.figures.items():
        yield {
            "instrument": instrument,
            "statement": report.statement,
            "item": item.name,
            "period_start": first_day(report.period_end, report.months) if flow else None,
            "period_end": report.period_end,
            "period_months": report.months if flow else 0,
            "known_at": report.known_at,
            "known_at_basis": report.basis,
            "form": report.form,
            "accession": None,
            "tag": tag,
            "derived": False,
            "value": 0.0 - value if item.negated else value,
            "unit": item.unit(report.currency),
        }


def statement_table(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Return rows as a table."""
    return pa.Table.from_pylist([dict(row) for row in rows], schema=TABLES["statements"].arrow)


def first_day(period_end: date, months: int) -> date:
    """Return the day after the end of so many months before a period end.

    The vendor names the end alone. Where it is the last of its month, so is the end before;
    elsewhere (years of 52 weeks) this is right to some days.
    """
    index = period_end.year * 12 + period_end.month - 1 - months
    year, month = index // 12, index % 12 + 1
    length = calendar.monthrange(year, month)[1]
    ends_month = period_end.day == calendar.monthrange(period_end.year, period_end.month)[1]
    day = length if ends_month else min(period_end.day, length)
    return date(year, month, day) + timedelta(days=1)


def as_number(value: object) -> float | None:
    """Return a finite number out of what a vendor writes, or None where it has none."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    return float(value) if math.isfinite(value) else None
