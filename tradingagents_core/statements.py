"""Financial statements as they were filed: names of items, and which filing of a period counts.

Several filings of one period are several rows. What counts at a cutoff is the newest period among
the rows that were public by then, and of that period the newest filing: an old year that is
restated replaces that year alone.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from functools import cached_property
from types import MappingProxyType
from typing import Any, TypeVar

from tradingagents_core.protocols import Row

Key = TypeVar("Key")

INCOME = "income"
BALANCE = "balance"
CASHFLOW = "cashflow"
COVER = "cover"
ESTIMATED = "estimated"

QUARTER = 3
YEAR = 12
_SAME_PERIOD_DAYS = 6

ITEMS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        INCOME: (
            "revenue",
            "cost_of_revenue",
            "gross_profit",
            "research_and_development",
            "selling_general_and_administrative",
            "operating_expenses",
            "operating_income",
            "interest_expense",
            "pretax_income",
            "income_tax",
            "net_income",
            "eps_basic",
            "eps_diluted",
            "shares_basic",
            "shares_diluted",
        ),
        BALANCE: (
            "cash",
            "short_term_investments",
            "receivables",
            "inventory",
            "current_assets",
            "long_term_investments",
            "property_plant_equipment",
            "goodwill",
            "total_assets",
            "accounts_payable",
            "short_term_debt",
            "current_liabilities",
            "long_term_debt",
            "total_liabilities",
            "retained_earnings",
            "equity",
        ),
        CASHFLOW: (
            "operating_cash_flow",
            "depreciation_and_amortization",
            "stock_compensation",
            "capital_expenditure",
            "investing_cash_flow",
            "dividends_paid",
            "share_repurchases",
            "financing_cash_flow",
        ),
        COVER: ("shares_outstanding",),
    }
)


@dataclass(frozen=True, kw_only=True)
class Figure:
    """Hold one line item of one period in one filing.

    Attributes:
        statement: One of the keys of `ITEMS`.
        item: Line item.
        period_start: First day, or None for a balance.
        period_end: Last day.
        months: Length; 0 for a balance.
        known_at: UTC instant from which it is public.
        estimated: Whether that instant is an estimate.
        form: Form or report.
        accession: Number of the filing, or empty.
        tag: The source's own name of the item, or empty.
        derived: Whether it was worked out from longer periods.
        value: As filed.
        unit: Currency, ``shares`` or ``currency/shares``.
        restated: Whether another filing gave another value under the same name.
    """

    statement: str
    item: str
    period_start: date | None
    period_end: date
    months: int
    known_at: datetime
    estimated: bool
    form: str
    accession: str
    tag: str
    derived: bool
    value: float
    unit: str
    restated: bool = False


def figure_of(row: Row, *, period_end: date, restated: bool) -> Figure:
    """Read a row of the table ``statements``.

    Args:
        row: As stored.
        period_end: Under which its period goes: as it was first filed.
        restated: See `Figure`.
    """
    fields: Mapping[str, Any] = row.fields
    return Figure(
        statement=fields["statement"],
        item=fields["item"],
        period_start=fields["period_start"],
        period_end=period_end,
        months=fields["period_months"],
        known_at=row.known_at,
        estimated=fields["known_at_basis"] == ESTIMATED,
        form=fields["form"],
        accession=fields["accession"] or "",
        tag=fields["tag"] or "",
        derived=fields["derived"],
        value=fields["value"],
        unit=fields["unit"],
        restated=restated,
    )


@dataclass(frozen=True, kw_only=True)
class Books:
    """Hold the figures of one company that count at a cutoff.

    Attributes:
        figures: The newest filing of each (statement, item, length, period), oldest period first.
    """

    figures: tuple[Figure, ...]

    @cached_property
    def _statements(self) -> Mapping[tuple[str, int], tuple[Figure, ...]]:
        return _grouped(self.figures, lambda figure: (figure.statement, figure.months))

    @cached_property
    def _series(self) -> Mapping[tuple[str, str, int], tuple[Figure, ...]]:
        return _grouped(self.figures, lambda figure: (figure.statement, figure.item, figure.months))

    def of(self, statement: str, months: int) -> tuple[Figure, ...]:
        """Return the figures of one statement over periods of one length."""
        return self._statements.get((statement, months), ())

    def series(self, statement: str, item: str, months: int) -> tuple[Figure, ...]:
        """Return one item over all periods of one length, oldest first."""
        return self._series.get((statement, item, months), ())

    def newest(self, statement: str, item: str, months: int = 0) -> Figure | None:
        """Return an item's newest period, or None."""
        found = self.series(statement, item, months)
        return found[-1] if found else None

    def last_four(self, statement: str, item: str) -> tuple[Figure, ...]:
        """Return an item's last four quarters in a row; empty where one of them is missing.

        Quarters follow each other where their ends lie 12 to 15 weeks apart.
        """
        found = self.series(statement, item, QUARTER)[-4:]
        gaps = [
            (later.period_end - earlier.period_end).days
            for earlier, later in itertools.pairwise(found)
        ]
        whole = len(found) == 4 and all(84 <= days <= 105 for days in gaps)
        return found if whole and len({figure.unit for figure in found}) == 1 else ()


def books_of(rows: Iterable[Row]) -> Books:
    """Return what counts among rows that were public by a cutoff.

    Args:
        rows: Rows of the table ``statements`` for one instrument.
    """
    newest: dict[tuple[str, str, int, date], Row] = {}
    told: dict[tuple[object, ...], set[float]] = {}
    ends: dict[tuple[str, int], _Ends] = {}
    for row in sorted(rows, key=_filed_order):
        fields: Mapping[str, Any] = row.fields
        statement, months = fields["statement"], fields["period_months"]
        known = ends.get((statement, months))
        if known is None:
            known = ends[statement, months] = _Ends(exact=statement == COVER)
        key = (statement, fields["item"], months, known.first_filed(fields["period_end"]))
        newest[key] = row
        if not fields["derived"]:
            told.setdefault((*key, fields["tag"] or ""), set()).add(fields["value"])
    # Most rows are of a filing that a newer one replaces: only those that count become figures.
    figures = []
    for key, row in newest.items():
        fields = row.fields
        restated = not fields["derived"] and len(told[*key, fields["tag"] or ""]) > 1
        figures.append(figure_of(row, period_end=key[3], restated=restated))
    return Books(figures=tuple(sorted(figures, key=lambda figure: figure.period_end)))


class _Ends:
    """Know the ends of periods of one length as they were first filed.

    Args:
        exact: Whether ends that lie some days apart are ends of different periods.
    """

    def __init__(self, *, exact: bool) -> None:
        self._exact = exact
        self._first: list[date] = []
        self._found: dict[date, date] = {}

    def first_filed(self, period_end: date) -> date:
        """Return the period's end as it was first filed; a later filing may be some days off."""
        found = self._found.get(period_end)
        if found is None:
            found = self._nearby(period_end)
            if found is None:
                found = period_end
                self._first.append(period_end)
            self._found[period_end] = found
        return found

    def _nearby(self, period_end: date) -> date | None:
        if self._exact:
            return None
        days = (end for end in self._first if abs((period_end - end).days) <= _SAME_PERIOD_DAYS)
        return next(days, None)


def _grouped(
    figures: Iterable[Figure], key_of: Callable[[Figure], Key]
) -> Mapping[Key, tuple[Figure, ...]]:
    groups: dict[Key, list[Figure]] = {}
    for figure in figures:
        groups.setdefault(key_of(figure), []).append(figure)
    return {key: tuple(group) for key, group in groups.items()}


def total(figures: Sequence[Figure]) -> float:
    """Return the exact sum of figures, rounded once."""
    return math.fsum(figure.value for figure in figures)


def _filed_order(row: Row) -> tuple[datetime, bool, str, str]:
    # Of two filings at one instant an amendment counts after what it amends, and what was filed
    # counts after what was worked out.
    fields: Mapping[str, Any] = row.fields
    return row.known_at, not fields["derived"], fields["form"], fields["accession"] or ""
