"""Make rows out of Alpha Vantage's answers about companies: reports, insiders' trades, articles."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa

from backtester.calendar import Calendar
from backtester.schema import (
    ESTIMATED,
    PUBLISHED,
    TABLES,
    known_at_period_end,
    known_at_trade,
)
from backtester.vendors.base import BadResponse, Wanted
from backtester.vendors.moments import NEW_YORK, end_of_day, known_from
from backtester.vendors.statement_rows import Item, Report, as_number

ITEMS: Mapping[str, Mapping[str, Item]] = MappingProxyType(
    {
        "income": {
            "totalRevenue": Item("revenue"),
            "costOfRevenue": Item("cost_of_revenue"),
            "grossProfit": Item("gross_profit"),
            "researchAndDevelopment": Item("research_and_development"),
            "sellingGeneralAndAdministrative": Item("selling_general_and_administrative"),
            "operatingExpenses": Item("operating_expenses"),
            "operatingIncome": Item("operating_income"),
            "interestExpense": Item("interest_expense"),
            "incomeBeforeTax": Item("pretax_income"),
            "incomeTaxExpense": Item("income_tax"),
            "netIncome": Item("net_income"),
        },
        "balance": {
            "cashAndCashEquivalentsAtCarryingValue": Item("cash"),
            "shortTermInvestments": Item("short_term_investments"),
            "currentNetReceivables": Item("receivables"),
            "inventory": Item("inventory"),
            "totalCurrentAssets": Item("current_assets"),
            "longTermInvestments": Item("long_term_investments"),
            "propertyPlantEquipment": Item("property_plant_equipment"),
            "goodwill": Item("goodwill"),
            "totalAssets": Item("total_assets"),
            "currentAccountsPayable": Item("accounts_payable"),
            "shortTermDebt": Item("short_term_debt"),
            "totalCurrentLiabilities": Item("current_liabilities"),
            "longTermDebtNoncurrent": Item("long_term_debt"),
            "totalLiabilities": Item("total_liabilities"),
            "retainedEarnings": Item("retained_earnings"),
            "totalShareholderEquity": Item("equity"),
        },
        "cashflow": {
            "operatingCashflow": Item("operating_cash_flow"),
            "depreciationDepletionAndAmortization": Item("depreciation_and_amortization"),
            "capitalExpenditures": Item("capital_expenditure"),
            "cashflowFromInvestment": Item("investing_cash_flow"),
            "dividendPayout": Item("dividends_paid"),
            "paymentsForRepurchaseOfCommonStock": Item("share_repurchases"),
            "cashflowFromFinancing": Item("financing_cash_flow"),
        },
    }
)
REPORTS: Mapping[str, int] = MappingProxyType({"annualReports": 12, "quarterlyReports": 3})
# Results are announced after their period and within this time; another day is a mistake.
_LATEST_RESULTS: Final = timedelta(days=200)
UNKNOWN_CODE: Final = "unknown"


# --------------------------------------------------------------------------------- statements


@dataclass(frozen=True, kw_only=True)
class StatementAnswer:
    """Hold what was answered about a company's results.

    Attributes:
        symbol: As asked.
        statements: Statement -> the answer.
        earnings: The answer with the days on which results were announced.
        zone: Of the exchange.
    """

    symbol: str
    statements: Mapping[str, Mapping[str, Any]]
    earnings: Mapping[str, Any]
    zone: str


def statement_reports(answer: StatementAnswer) -> list[Report]:
    """Return each report, known from the end of the day on which its results were announced.

    Where no such day is given, it is an estimate; so it is where the day is before the period's
    end, or long after.

    Raises:
        BadResponse: The answer has another form.
    """
    announced = _announced(answer)
    found = []
    for statement, told in answer.statements.items():
        years = {row[0] for row in _periods(answer.symbol, told, "annualReports")}
        for kind, months in REPORTS.items():
            for end, fields in _periods(answer.symbol, told, kind):
                day = announced.get(end)
                lag_of = 12 if end in years else months
                found.append(
                    Report(
                        statement=statement,
                        form=f"alpha_vantage {'annual' if months == 12 else 'quarterly'}",
                        period_end=end,
                        months=months,
                        known_at=(
                            end_of_day(day, answer.zone)
                            if day is not None
                            else known_at_period_end(end, lag_of, answer.zone)
                        ),
                        basis=ESTIMATED if day is None else PUBLISHED,
                        currency=_currency(answer.symbol, fields),
                        figures=_figures(statement, fields),
                    )
                )
    return found


def _announced(answer: StatementAnswer) -> dict[date, date]:
    listed = answer.earnings.get("quarterlyEarnings")
    if not isinstance(listed, list):
        raise BadResponse(f"Alpha Vantage's earnings of {answer.symbol} have another form")
    found = {}
    for one in listed:
        end, day = _day(one, "fiscalDateEnding"), _day(one, "reportedDate")
        if end is not None and day is not None and end < day <= end + _LATEST_RESULTS:
            found[end] = day
    return found


def _periods(
    symbol: str, told: Mapping[str, Any], kind: str
) -> list[tuple[date, Mapping[str, Any]]]:
    listed = told.get(kind)
    if not isinstance(listed, list):
        raise BadResponse(f"Alpha Vantage's statement of {symbol} has no {kind}")
    return [(end, one) for one in listed if (end := _day(one, "fiscalDateEnding")) is not None]


def _day(fields: object, name: str) -> date | None:
    written = fields.get(name) if isinstance(fields, dict) else None
    try:
        return date.fromisoformat(written) if isinstance(written, str) else None
    except ValueError:
        return None


def _currency(symbol: str, fields: Mapping[str, Any]) -> str:
    currency = fields.get("reportedCurrency")
    if not isinstance(currency, str) or len(currency) != 3:
        raise BadResponse(f"a report of {symbol} by Alpha Vantage names no currency")
    return currency


def _figures(statement: str, fields: Mapping[str, Any]) -> dict[Item, tuple[str, float]]:
    found = {}
    for name, item in ITEMS[statement].items():
        number = as_number(fields.get(name))
        if number is not None:
            found[item] = (name, number)
    return found


# --------------------------------------------------------------------------- insider trades


@dataclass(frozen=True, kw_only=True)
class InsiderAnswer:
    """Hold insiders' trades as answered: what was asked, the symbol, and the list."""

    wanted: Wanted
    symbol: str
    trades: Sequence[Any]


def trade_rows(answer: InsiderAnswer, calendar: Calendar) -> tuple[pa.Table, int]:
    """Return the trades of the range, and how many have no day.

    Raises:
        BadResponse: A trade is of another symbol or form.
    """
    rows = []
    undated = 0
    seen: dict[str, int] = {}
    for one in answer.trades:
        if not isinstance(one, dict) or str(one.get("ticker") or "").upper() != answer.symbol:
            raise BadResponse(
                f"Alpha Vantage's insider trades of {answer.symbol} hold one of another symbol or "
                "form: nothing is stored"
            )
        day, shares = _day(one, "transaction_date"), as_number(one.get("shares"))
        if day is None or shares is None:
            undated += 1
            continue
        if not answer.wanted.start <= day <= answer.wanted.end:
            continue
        mark = hashlib.sha256(repr(sorted(one.items())).encode()).hexdigest()[:16]
        seen[mark] = seen.get(mark, 0) + 1
        side = one.get("acquisition_or_disposal")
        rows.append(
            {
                "instrument": answer.wanted.instrument,
                # Two equal trades on one day are two.
                "id": f"alpha_vantage-{mark}-{seen[mark]}",
                "form": None,
                "transaction_date": day,
                "known_at": known_at_trade(calendar, day),
                "known_at_basis": ESTIMATED,
                "insider": str(one.get("executive") or "unknown"),
                "role": one.get("executive_title") or None,
                "code": UNKNOWN_CODE,
                "acquired": {"A": True, "D": False}.get(str(side)),
                "security": one.get("security_type") or None,
                "shares": shares,
                "price": as_number(one.get("share_price")) or None,
            }
        )
    return pa.Table.from_pylist(rows, schema=TABLES["insider"].arrow), undated


# -------------------------------------------------------------------------------------- news


def article_rows(
    wanted: Wanted, symbol: str, articles: Sequence[Mapping[str, Any]]
) -> tuple[pa.Table, int]:
    """Return the articles of the range on a symbol, and how many have no time.

    Args:
        wanted: What was asked.
        symbol: As asked, or empty for articles on no symbol.
        articles: As answered.

    Raises:
        BadResponse: None of them is on the symbol, or one has another form.
    """
    about = [one for one in articles if not symbol or symbol in _tickers(one)]
    if articles and not about:
        raise BadResponse(
            f"Alpha Vantage was asked for news on {symbol} and answered with articles on other "
            "symbols alone: nothing is stored"
        )
    first = end_of_day(wanted.start - timedelta(days=1))
    last = end_of_day(wanted.end)
    rows = []
    undated = 0
    for one in about:
        known_at = _published(one)
        if known_at is None:
            undated += 1
        elif first < known_at <= last:
            rows.append(_article(wanted, symbol, one, known_at))
    return pa.Table.from_pylist(rows, schema=TABLES["news"].arrow), undated


def newest_stamp(articles: Sequence[Mapping[str, Any]]) -> str:
    """Return the latest time as written, empty where none has one."""
    return max((str(one.get("time_published") or "") for one in articles), default="")


def _article(
    wanted: Wanted, symbol: str, one: Mapping[str, Any], known_at: datetime
) -> dict[str, Any]:
    title, url = one.get("title"), one.get("url")
    if not isinstance(title, str) or not title:
        raise BadResponse("an article of Alpha Vantage's has no title: another form than expected")
    mark = hashlib.sha256(str(url or title).encode()).hexdigest()[:16]
    return {
        "instrument": wanted.instrument if symbol else None,
        "id": f"alpha_vantage-{mark}",
        "known_at": known_at,
        "known_at_basis": PUBLISHED,
        "source": str(one.get("source") or "Alpha Vantage"),
        "title": title,
        "summary": one.get("summary") or None,
        "url": url or None,
    }


def _tickers(article: Mapping[str, Any]) -> set[str]:
    listed = article.get("ticker_sentiment")
    if not isinstance(listed, list):
        return set()
    return {str(one.get("ticker")) for one in listed if isinstance(one, dict)}


def _published(article: Mapping[str, Any]) -> datetime | None:
    written = article.get("time_published")
    if not isinstance(written, str) or not written:
        return None
    try:
        return known_from(written, NEW_YORK)
    except ValueError:
        raise BadResponse(
            f"an article of Alpha Vantage's has the time {written[:40]!r}, which is none"
        ) from None
