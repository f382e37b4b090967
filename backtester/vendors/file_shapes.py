"""Answers of other APIs that a user has saved: news and statements of Polygon and Finnhub.

Of a news item that has both an epoch and a text of its time the epoch counts: the text has been
seen to be off by a zone. Where the two disagree a note says so.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from types import MappingProxyType
from typing import Any, Final

import orjson
import pyarrow as pa

from backtester.schema import PUBLISHED, TABLES
from backtester.vendors.base import BadResponse, NoData, Wanted
from backtester.vendors.moments import from_epoch, from_text
from backtester.vendors.sec_filings import known_at_filing
from backtester.vendors.sec_items import GAAP, PER_SHARE, SEC_ITEMS, SHARES, months_of
from tradingagents_core.statements import BALANCE, CASHFLOW, INCOME

# Seconds by which text and epoch may differ and still say the same.
_SAME: Final = 60.0
_TIME_TEXTS: Final = ("published_at", "published", "datetime_text", "date", "time")
_FINNHUB_STATEMENTS: Final = {"ic": INCOME, "bs": BALANCE, "cf": CASHFLOW}
_POLYGON_STATEMENTS: Final = {
    "income_statement": INCOME,
    "balance_sheet": BALANCE,
    "cash_flow_statement": CASHFLOW,
}
_POLYGON_ITEMS: Final[Mapping[str, str]] = {
    "revenues": "revenue",
    "cost_of_revenue": "cost_of_revenue",
    "gross_profit": "gross_profit",
    "research_and_development": "research_and_development",
    "selling_general_and_administrative_expenses": "selling_general_and_administrative",
    "operating_expenses": "operating_expenses",
    "operating_income_loss": "operating_income",
    "interest_expense_operating": "interest_expense",
    "income_loss_from_continuing_operations_before_tax": "pretax_income",
    "income_tax_expense_benefit": "income_tax",
    "net_income_loss": "net_income",
    "basic_earnings_per_share": "eps_basic",
    "diluted_earnings_per_share": "eps_diluted",
    "basic_average_shares": "shares_basic",
    "diluted_average_shares": "shares_diluted",
    "inventory": "inventory",
    "current_assets": "current_assets",
    "assets": "total_assets",
    "accounts_payable": "accounts_payable",
    "current_liabilities": "current_liabilities",
    "long_term_debt": "long_term_debt",
    "liabilities": "total_liabilities",
    "equity": "equity",
    "net_cash_flow_from_operating_activities": "operating_cash_flow",
    "net_cash_flow_from_investing_activities": "investing_cash_flow",
    "net_cash_flow_from_financing_activities": "financing_cash_flow",
}
_GAAP_ITEMS: Final[Mapping[str, tuple[str, str, str]]] = MappingProxyType(
    {
        tag: (row.statement, row.item, row.measure)
        for row in reversed(SEC_ITEMS)
        for taxonomy, tag in row.tags
        if taxonomy == GAAP
    }
)


@dataclass(frozen=True, kw_only=True)
class Shaped:
    """Hold what a file gave.

    Attributes:
        rows: Table name -> rows.
        where: File.
        dropped_undated: Rows without a date.
        notes: What a reader should know.
    """

    rows: Mapping[str, pa.Table]
    where: str
    dropped_undated: int = 0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Describe a form of file.

    Attributes:
        table: Table that it fills.
        read: Reads its bytes.
    """

    table: str
    read: Callable[[bytes, str, Wanted], Shaped]


def _document(data: bytes, where: str, key: str) -> list[Mapping[str, Any]]:
    """Return the list of a file: the whole of it, or what lies under a key.

    Raises:
        BadResponse: It is none.
    """
    try:
        found = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise BadResponse(f"{where} is no whole JSON: {error.msg}") from error
    if isinstance(found, dict):
        found = found.get(key)
    if not isinstance(found, list) or not all(isinstance(row, dict) for row in found):
        raise BadResponse(f"{where} holds no list of objects, nor one under {key!r}")
    return found


# ---------------------------------------------------------------------------------------- news


def _news(rows: list[dict[str, Any]], where: str, undated: int, notes: list[str]) -> Shaped:
    if not rows and not undated:
        raise NoData(f"{where} holds no news of it")
    table = pa.Table.from_pylist(rows, schema=TABLES["news"].arrow)
    return Shaped(rows={"news": table}, where=where, dropped_undated=undated, notes=tuple(notes))


def _item(wanted: Wanted, known_at: datetime, **fields: Any) -> dict[str, Any]:
    text = f"{fields['title']}\n{fields.get('summary') or ''}"
    fallback = hashlib.sha256(text.encode()).hexdigest()[:16]
    return {
        "instrument": wanted.instrument or None,
        "known_at": known_at,
        "known_at_basis": PUBLISHED,
        **fields,
        "id": str(fields.get("id") or fallback),
    }


def polygon_news(data: bytes, where: str, wanted: Wanted) -> Shaped:
    """Read news as Polygon's API answers with them.

    Raises:
        BadResponse: The file is not in that form.
        NoData: It holds none of the symbol.
    """
    rows, undated = [], 0
    for row in _document(data, where, "results"):
        tickers = row.get("tickers") or []
        if wanted.instrument and wanted.symbol not in tickers:
            continue
        stamp = _instant(row.get("published_utc"), where)
        if stamp is None:
            undated += 1
            continue
        publisher = row.get("publisher")
        source = publisher.get("name") if isinstance(publisher, dict) else publisher
        rows.append(
            _item(
                wanted,
                stamp,
                id=row.get("id"),
                source=str(source or "unknown"),
                title=str(row.get("title") or ""),
                summary=row.get("description"),
                url=row.get("article_url"),
            )
        )
    return _news(rows, where, undated, [])


def finnhub_news(data: bytes, where: str, wanted: Wanted) -> Shaped:
    """Read news as Finnhub's API answers with them.

    Raises:
        BadResponse: The file is not in that form.
        NoData: It holds none of the symbol.
    """
    rows, undated, off = [], 0, 0
    for row in _document(data, where, "data"):
        related = str(row.get("related") or "")
        if wanted.instrument and wanted.symbol not in related.replace(" ", "").split(","):
            continue
        stamp = _instant(row.get("datetime"), where)
        said = _said(row)
        off += stamp is not None and said is not None and abs(_apart(stamp, said)) > _SAME
        if stamp is None:
            undated += 1
            continue
        rows.append(
            _item(
                wanted,
                stamp,
                id=row.get("id"),
                source=str(row.get("source") or "unknown"),
                title=str(row.get("headline") or ""),
                summary=row.get("summary"),
                url=row.get("url"),
            )
        )
    notes = [f"the text of the time disagrees with the epoch in {off} rows; the epoch counts"]
    return _news(rows, where, undated, notes if off else [])


def _instant(value: object, where: str) -> datetime | None:
    """Return an instant out of an epoch or a text with a zone; None for nothing.

    Raises:
        BadResponse: It is neither.
    """
    if value in (None, "", 0):
        return None
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return from_epoch(int(value))
        read = from_text(str(value))
    except ValueError as error:
        raise BadResponse(f"{where}: {value!r} is no publication time ({error})") from error
    return read if isinstance(read, datetime) else None


def _said(row: Mapping[str, Any]) -> datetime | None:
    """Return the time that a row's text says, read as UTC where it names no zone."""
    for name in _TIME_TEXTS:
        value = row.get(name)
        if isinstance(value, str) and len(value) > len("2024-05-01"):
            try:
                read = from_text(value, "UTC")
            except ValueError:
                continue
            return read if isinstance(read, datetime) else None
    return None


def _apart(first: datetime, second: datetime) -> float:
    return (first - second).total_seconds()


# ---------------------------------------------------------------------------------- statements


def finnhub_statements(data: bytes, where: str, wanted: Wanted) -> Shaped:
    """Read statements as Finnhub's financials-as-reported answer with them.

    Raises:
        BadResponse: The file is not in that form.
        NoData: It holds none of the symbol.
    """
    rows: list[dict[str, Any]] = []
    undated, unknown = 0, 0
    for report in _document(data, where, "data"):
        if report.get("symbol", wanted.symbol) != wanted.symbol:
            continue
        filed = _day(report.get("filedDate"), where)
        end, start = (_day(report.get(name), where) for name in ("endDate", "startDate"))
        if filed is None or end is None:
            undated += 1
            continue
        head = {
            "known_at": known_at_filing(str(report.get("acceptedDate") or ""), filed),
            "form": str(report.get("form") or "unknown"),
            "accession": report.get("accessNumber"),
        }
        for name, statement in _FINNHUB_STATEMENTS.items():
            for line in (report.get("report") or {}).get(name) or []:
                row = _finnhub_row(line, statement, start, end)
                unknown += row is None
                rows += [] if row is None else [{**head, **row}]
    return _statements(rows, where, wanted, undated, unknown)


def _finnhub_row(
    line: Mapping[str, Any], statement: str, start: date | None, end: date
) -> dict[str, Any] | None:
    concept = str(line.get("concept") or "")
    tag = concept.replace(":", "_").partition("_")[2] or concept
    value = line.get("value")
    if tag not in _GAAP_ITEMS or isinstance(value, bool) or not isinstance(value, int | float):
        return None
    owner, item, measure = _GAAP_ITEMS[tag]
    currency = str(line.get("unit") or "usd").partition("/")[0].upper()
    if owner != statement:
        return None
    return _figure(statement, item, start, end, tag=tag, value=value, unit=_unit(measure, currency))


def polygon_statements(data: bytes, where: str, wanted: Wanted) -> Shaped:
    """Read statements as Polygon's financials answer with them.

    Raises:
        BadResponse: The file is not in that form.
        NoData: It holds none of the symbol.
    """
    rows: list[dict[str, Any]] = []
    undated, unknown = 0, 0
    for report in _document(data, where, "results"):
        tickers = report.get("tickers") or [wanted.symbol]
        if wanted.symbol not in tickers:
            continue
        filed = _day(report.get("filing_date"), where)
        end, start = (_day(report.get(name), where) for name in ("end_date", "start_date"))
        if filed is None or end is None or report.get("timeframe") == "ttm":
            undated += filed is None and report.get("timeframe") != "ttm"
            continue
        head = {
            "known_at": known_at_filing(str(report.get("acceptance_datetime") or ""), filed),
            "form": "10-K" if report.get("timeframe") == "annual" else "10-Q",
            "accession": None,
        }
        for name, statement in _POLYGON_STATEMENTS.items():
            for tag, line in ((report.get("financials") or {}).get(name) or {}).items():
                row = _polygon_row(tag, line, statement, start, end)
                unknown += row is None
                rows += [] if row is None else [{**head, **row}]
    return _statements(rows, where, wanted, undated, unknown)


def _polygon_row(
    tag: str, line: Mapping[str, Any], statement: str, start: date | None, end: date
) -> dict[str, Any] | None:
    value = line.get("value")
    if tag not in _POLYGON_ITEMS or isinstance(value, bool) or not isinstance(value, int | float):
        return None
    words = str(line.get("unit") or "USD").split()
    unit = "shares" if words == ["shares"] else f"{words[0]}/shares" if len(words) > 1 else words[0]
    return _figure(statement, _POLYGON_ITEMS[tag], start, end, tag=tag, value=value, unit=unit)


def _figure(
    statement: str, item: str, start: date | None, end: date, **fields: Any
) -> dict[str, Any] | None:
    months: int | None = 0
    if statement != BALANCE:
        months = None if start is None else months_of((end - start).days + 1)
    if months is None:
        return None
    return {
        "statement": statement,
        "item": item,
        "period_start": None if statement == BALANCE else start,
        "period_end": end,
        "period_months": months,
        **fields,
    }


def _statements(
    rows: list[dict[str, Any]], where: str, wanted: Wanted, undated: int, unknown: int
) -> Shaped:
    if not rows and not undated:
        raise NoData(f"{where} holds no statement of {wanted.symbol}")
    whole = {
        "instrument": wanted.instrument,
        "known_at_basis": PUBLISHED,
        "derived": False,
    }
    table = pa.Table.from_pylist(
        [{**whole, **row, "value": float(row["value"])} for row in rows],
        schema=TABLES["statements"].arrow,
    )
    note = f"{unknown} lines have no name in the table, or an odd period; left out"
    return Shaped(
        rows={"statements": table},
        where=where,
        dropped_undated=undated,
        notes=(note,) if unknown else (),
    )


def _unit(measure: str, currency: str) -> str:
    if measure == SHARES:
        return "shares"
    return f"{currency}/shares" if measure == PER_SHARE else currency


def _day(value: object, where: str) -> date | None:
    if not value:
        return None
    try:
        return date.fromisoformat(str(value)[:10])
    except ValueError as error:
        raise BadResponse(f"{where}: {value!r} is no date") from error


def _shapes() -> Iterator[tuple[str, Shape]]:
    yield "polygon_news", Shape(table="news", read=polygon_news)
    yield "finnhub_news", Shape(table="news", read=finnhub_news)
    yield "polygon_statements", Shape(table="statements", read=polygon_statements)
    yield "finnhub_statements", Shape(table="statements", read=finnhub_statements)


SHAPES: Final[Mapping[str, Shape]] = MappingProxyType(dict(_shapes()))
