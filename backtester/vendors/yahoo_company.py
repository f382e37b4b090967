"""What Yahoo has of a company besides prices: statements, insider trades and news.

Statements come with period ends alone and insider trades with their own day, so when either was
known is an estimate. News has its instants, and goes back days or weeks at most.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from backtester.calendar import Calendar, calendar_of
from backtester.schema import (
    ESTIMATED,
    PUBLISHED,
    TABLES,
    known_at_period_end,
    known_at_trade,
)
from backtester.vendors.base import BadResponse, Capture, NoData, Wanted
from backtester.vendors.moments import end_of_day, known_from
from backtester.vendors.statement_rows import (
    Item,
    Report,
    as_number,
    report_rows,
    statement_table,
)
from backtester.vendors.yahoo_port import FREQUENCIES, SOURCE, STATEMENTS, YahooPort

if TYPE_CHECKING:
    import pandas as pd

LICENCE: Final = "Yahoo's terms; personal use"
# Yahoo's names; what leaves the company has a minus there and none in the table.
ITEMS: Mapping[str, Mapping[str, Item]] = MappingProxyType(
    {
        "income": {
            "TotalRevenue": Item("revenue"),
            "CostOfRevenue": Item("cost_of_revenue"),
            "GrossProfit": Item("gross_profit"),
            "ResearchAndDevelopment": Item("research_and_development"),
            "SellingGeneralAndAdministration": Item("selling_general_and_administrative"),
            "OperatingExpense": Item("operating_expenses"),
            "OperatingIncome": Item("operating_income"),
            "InterestExpense": Item("interest_expense"),
            "PretaxIncome": Item("pretax_income"),
            "TaxProvision": Item("income_tax"),
            "NetIncome": Item("net_income"),
            "BasicEPS": Item("eps_basic", per_share=True),
            "DilutedEPS": Item("eps_diluted", per_share=True),
            "BasicAverageShares": Item("shares_basic", shares=True),
            "DilutedAverageShares": Item("shares_diluted", shares=True),
        },
        "balance": {
            "CashAndCashEquivalents": Item("cash"),
            "OtherShortTermInvestments": Item("short_term_investments"),
            "AccountsReceivable": Item("receivables"),
            "Inventory": Item("inventory"),
            "CurrentAssets": Item("current_assets"),
            "InvestmentsAndAdvances": Item("long_term_investments"),
            "NetPPE": Item("property_plant_equipment"),
            "Goodwill": Item("goodwill"),
            "TotalAssets": Item("total_assets"),
            "AccountsPayable": Item("accounts_payable"),
            "CurrentDebt": Item("short_term_debt"),
            "CurrentLiabilities": Item("current_liabilities"),
            "LongTermDebt": Item("long_term_debt"),
            "TotalLiabilitiesNetMinorityInterest": Item("total_liabilities"),
            "RetainedEarnings": Item("retained_earnings"),
            "StockholdersEquity": Item("equity"),
        },
        "cashflow": {
            "OperatingCashFlow": Item("operating_cash_flow"),
            "DepreciationAndAmortization": Item("depreciation_and_amortization"),
            "StockBasedCompensation": Item("stock_compensation"),
            "CapitalExpenditure": Item("capital_expenditure", negated=True),
            "InvestingCashFlow": Item("investing_cash_flow"),
            "CashDividendsPaid": Item("dividends_paid", negated=True),
            "RepurchaseOfCapitalStock": Item("share_repurchases", negated=True),
            "FinancingCashFlow": Item("financing_cash_flow"),
        },
    }
)
# First words of Yahoo's text of a trade, and the code of the form that it came from.
TRADE_CODES: Mapping[str, tuple[str, bool | None]] = MappingProxyType(
    {
        "sale": ("S", False),
        "purchase": ("P", True),
        "stock award": ("A", True),
        "stock gift": ("G", None),
        "conversion": ("M", True),
        "automatic sale": ("S", False),
    }
)
UNKNOWN_CODE: Final = "unknown"
STATEMENTS_NOTE: Final = (
    "statements have period ends alone; when each was known is an estimate, and values are "
    "today's, restatements included"
)
TRADES_NOTE: Final = (
    "Yahoo gives the day of a trade, not of its filing; when each was known is an estimate"
)
NEWS_NOTE: Final = "Yahoo has recent news alone; nothing is known of it before"
_TRADE_COLUMNS: Final = frozenset({"Shares", "Value", "Text", "Insider", "Position", "Start Date"})
_QUARTERS: Final = range(80, 106)
_HALVES: Final = range(170, 201)


# --------------------------------------------------------------------------------- statements


def statements_capture(port: YahooPort, wanted: Wanted) -> Capture:
    """Return statements by period end, each known from an estimated instant.

    A quarter that ends a business year is taken to be known with the year.

    Raises:
        NoData: None would have been known by the end of the range.
        BadResponse: All frames are empty, or have another form.
    """
    zone = calendar_of(wanted.symbol).tz
    currency = port.reporting_currency(wanted.symbol)
    if currency is None:
        raise BadResponse(
            f"Yahoo does not say in which currency {wanted.symbol} reports: no statement is stored"
        )
    found: list[Report] = []
    for statement in STATEMENTS:
        frames = {
            frequency: port.statement(wanted.symbol, statement, frequency)
            for frequency in FREQUENCIES
        }
        found += _reports(wanted.symbol, statement, frames, zone, currency)
    if not found:
        raise BadResponse(
            f"Yahoo gave empty statements of {wanted.symbol} and no reason: that is not taken for "
            '"there are none"'
        )
    found, notes = _on_known_shares(found, _last_split(port, wanted, found), wanted.symbol)
    until = end_of_day(wanted.end, zone)
    rows = [row for report in found for row in report_rows(wanted.instrument, report)]
    kept = [row for row in rows if row["known_at"] <= until]
    if not kept:
        first = min(report.known_at for report in found)
        raise NoData(
            f"Yahoo has the newest statements of {wanted.symbol} alone; the first would have been "
            f"known around {first.date()}, after the range ends"
        )
    return Capture(
        rows={"statements": statement_table(kept)},
        notes=(f"{wanted.symbol}: {STATEMENTS_NOTE}", *notes),
        options={"statements": ",".join(STATEMENTS), "frequencies": ",".join(FREQUENCIES)},
        source=SOURCE,
        licence=LICENCE,
    )


def _reports(
    symbol: str, statement: str, frames: Mapping[str, pd.DataFrame], zone: str, currency: str
) -> list[Report]:
    years = set(_period_ends(symbol, frames["yearly"]))
    found = []
    for frequency, frame in frames.items():
        ends = _period_ends(symbol, frame)
        months = dict.fromkeys(ends, 12) if frequency == "yearly" else _lengths(ends)
        half_yearly = 6 in months.values()
        for end in ends:
            if end not in months:
                continue
            reported = 12 if frequency == "yearly" or end in years else months[end]
            found.append(
                Report(
                    statement=statement,
                    form=f"yahoo {'annual' if frequency == 'yearly' else 'interim'}",
                    period_end=end,
                    months=months[end],
                    known_at=known_at_period_end(end, reported, zone, half_yearly=half_yearly),
                    basis=ESTIMATED,
                    currency=currency,
                    figures=_figures(statement, frame, end),
                )
            )
    return found


def _last_split(port: YahooPort, wanted: Wanted, reports: Sequence[Report]) -> date | None:
    """Return the day of the last split between the first report and the capture, or None."""
    first = min(report.period_end for report in reports)
    until = wanted.captured_at.date() + timedelta(days=1)
    frame = port.history(wanted.symbol, first, until).frame
    if "Stock Splits" not in frame.columns:
        raise BadResponse(f"the daily frame of {wanted.symbol} names no splits: nothing is stored")
    split = frame["Stock Splits"].fillna(0)
    days: list[Any] = list(frame.index[(split != 0) & (split != 1)])
    return max(days).date() if days else None


def _on_known_shares(
    reports: Sequence[Report], split: date | None, symbol: str
) -> tuple[list[Report], tuple[str, ...]]:
    """Leave out what is a share, or counts shares, of periods before a split.

    Yahoo restates earlier figures for a split, sooner or later; a reader at the cutoff would take
    them for figures as they were filed and reckon with the split once more.
    """
    if split is None:
        return list(reports), ()
    kept = []
    for report in reports:
        figures = report.figures
        if report.period_end < split:
            figures = {
                item: told for item, told in figures.items() if not (item.shares or item.per_share)
            }
        kept.append(replace(report, figures=figures))
    note = (
        f"{symbol}: earnings a share and numbers of shares of periods before the split of {split} "
        "are left out: Yahoo does not say on which side of it they are"
    )
    return kept, (note,)


def _period_ends(symbol: str, frame: pd.DataFrame) -> list[date]:
    columns: list[Any] = list(frame.columns)
    days = []
    for column in columns:
        if not isinstance(column, datetime):
            raise BadResponse(
                f"a statement of {symbol} has the column {str(column)[:40]!r}, which is no date"
            )
        days.append(column.date())
    return sorted(days)


def _lengths(ends: Sequence[date]) -> dict[date, int]:
    """Return the months of each period that its distance from the one before tells, or the next."""
    months: dict[date, int] = {}
    for before, end in itertools.pairwise(ends):
        days = (end - before).days
        if days in _QUARTERS or days in _HALVES:
            months[end] = 3 if days in _QUARTERS else 6
    if ends and len(ends) > 1 and ends[1] in months:
        months[ends[0]] = months[ends[1]]
    return months


def _figures(statement: str, frame: pd.DataFrame, end: date) -> dict[Item, tuple[str, float]]:
    columns: list[Any] = list(frame.columns)
    column = next(name for name in columns if name.date() == end)
    found = {}
    for name, value in frame[column].items():
        item = ITEMS[statement].get(str(name))
        number = as_number(value)
        if item is not None and number is not None:
            found[item] = (str(name), number)
    return found


# --------------------------------------------------------------------------- insider trades


def insider_capture(port: YahooPort, wanted: Wanted) -> Capture:
    """Return insiders' trades, each known from the end of two sessions after it: an estimate.

    Raises:
        NoData: None is of the range.
        BadResponse: The frame is empty, or has another form.
    """
    frame = port.insider(wanted.symbol)
    if frame.empty:
        raise BadResponse(
            f"Yahoo gave no insider trade of {wanted.symbol} and no reason: an empty frame is not "
            'taken for "there is none"'
        )
    missing = sorted(_TRADE_COLUMNS - {str(name) for name in frame.columns})
    if missing:
        raise BadResponse(f"Yahoo's insider trades of {wanted.symbol} lack {', '.join(missing)}")
    calendar = calendar_of(wanted.symbol)
    trades = [trade for row in frame.to_dict("records") if (trade := _trade(row)) is not None]
    kept = [trade for trade in trades if wanted.start <= trade.day <= wanted.end]
    if not kept:
        raise NoData(
            f"Yahoo has {len(trades)} insider trades of {wanted.symbol} and none from "
            f"{wanted.start} to {wanted.end}"
        )
    return Capture(
        rows={"insider": _trade_table(wanted.instrument, kept, calendar)},
        dropped_undated=len(frame) - len(trades),
        notes=(f"{wanted.symbol}: {TRADES_NOTE}",),
        source=SOURCE,
        licence=LICENCE,
    )


@dataclass(frozen=True, kw_only=True)
class _Trade:
    day: date
    insider: str
    role: str | None
    text: str
    shares: float
    value: float | None


def _trade(row: Mapping[Any, Any]) -> _Trade | None:
    day, shares = row["Start Date"], as_number(row["Shares"])
    # A missing time is a datetime too, and equals nothing.
    if not isinstance(day, datetime) or day != day or shares is None:
        return None
    return _Trade(
        day=day.date(),
        insider=str(row["Insider"]),
        role=str(row["Position"]) if isinstance(row["Position"], str) else None,
        text=str(row["Text"]) if isinstance(row["Text"], str) else "",
        shares=shares,
        value=as_number(row["Value"]),
    )


def _trade_table(instrument: str, trades: Sequence[_Trade], calendar: Calendar) -> pa.Table:
    seen: dict[str, int] = {}
    rows = []
    for trade in trades:
        mark = hashlib.sha256(repr(trade).encode()).hexdigest()[:16]
        seen[mark] = seen.get(mark, 0) + 1
        code, acquired = _code(trade.text)
        priced = trade.value is not None and trade.value > 0 and trade.shares > 0
        rows.append(
            {
                "instrument": instrument,
                # Two equal trades on one day are two.
                "id": f"yahoo-{mark}-{seen[mark]}",
                "form": None,
                "transaction_date": trade.day,
                "known_at": known_at_trade(calendar, trade.day),
                "known_at_basis": ESTIMATED,
                "insider": trade.insider,
                "role": trade.role,
                "code": code,
                "acquired": acquired,
                "security": None,
                "shares": trade.shares,
                "price": trade.value / trade.shares if priced and trade.value else None,
            }
        )
    return pa.Table.from_pylist(rows, schema=TABLES["insider"].arrow)


def _code(text: str) -> tuple[str, bool | None]:
    words = text.strip().lower()
    for start, code in TRADE_CODES.items():
        if words.startswith(start):
            return code
    return UNKNOWN_CODE, None


# -------------------------------------------------------------------------------------- news


def news_capture(port: YahooPort, wanted: Wanted) -> Capture:
    """Return the newest articles; Yahoo has no older ones.

    Raises:
        NoData: The newest articles are all from outside the range.
        BadResponse: There is none and no reason, or they have another form.
    """
    if not wanted.instrument:
        raise NoData(f"Yahoo by yfinance has news by symbol alone, none on {wanted.symbol!r}")
    articles = port.news(wanted.symbol)
    if not articles:
        raise BadResponse(
            f"Yahoo gave no article on {wanted.symbol} and no reason: that is not taken for "
            '"there is none"'
        )
    zone = calendar_of(wanted.symbol).tz
    rows = [_article(wanted, article) for article in articles]
    dated = [row for row in rows if row["known_at"] is not None]
    first = end_of_day(wanted.start - timedelta(days=1), zone)
    last = end_of_day(wanted.end, zone)
    kept = [row for row in dated if first < row["known_at"] <= last]
    if not kept:
        raise NoData(
            f"Yahoo has recent news alone: {len(dated)} articles on {wanted.symbol}"
            + (f", the oldest of {min(row['known_at'] for row in dated).date()}" if dated else "")
            + f", none from {wanted.start} to {wanted.end}"
        )
    oldest = min(row["known_at"] for row in kept)
    return Capture(
        rows={"news": pa.Table.from_pylist(kept, schema=TABLES["news"].arrow)},
        dropped_undated=len(rows) - len(dated),
        notes=(f"{wanted.symbol}: {NEWS_NOTE} {oldest.date()}",),
        options={"count": str(len(articles)), "tab": "news"},
        source=SOURCE,
        licence=LICENCE,
    )


def _article(wanted: Wanted, article: Any) -> dict[str, Any]:
    content = article.get("content") if isinstance(article, dict) else None
    title = content.get("title") if isinstance(content, dict) else None
    if not isinstance(content, dict) or not isinstance(title, str) or not article.get("id"):
        raise BadResponse(
            f"Yahoo's news on {wanted.symbol} has another form than expected: is yfinance new "
            "enough?"
        )
    return {
        "instrument": wanted.instrument,
        "id": f"yahoo-{article['id']}",
        "known_at": _instant(wanted, content.get("pubDate")),
        "known_at_basis": PUBLISHED,
        "source": str(_within(content, "provider", "displayName") or "Yahoo Finance"),
        "title": title,
        "summary": content.get("summary") or None,
        "url": _within(content, "canonicalUrl", "url") or None,
    }


def _within(content: Mapping[str, Any], outer: str, inner: str) -> Any:
    held = content.get(outer)
    return held.get(inner) if isinstance(held, dict) else None


def _instant(wanted: Wanted, written: Any) -> datetime | None:
    if not isinstance(written, str) or not written:
        return None
    try:
        return known_from(written)
    except ValueError:
        raise BadResponse(
            f"an article on {wanted.symbol} has the date {written[:40]!r}, which is none"
        ) from None
