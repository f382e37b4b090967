"""SEC EDGAR: statements and insider trades as filed, and identities; free, wants to know who asks.

Three files of the SEC are read: the list of today's symbols, a company's list of filings, and its
XBRL facts; for insiders, the filings themselves. A symbol that is not in today's list (renamed,
delisted) is found by its number: option ``cik``. What a symbol meant in the past, the SEC does not
say; names have the days on which the company filed under them.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any, Final

import pyarrow as pa

from backtester.calendar import calendar_by_code
from backtester.errors import UsageError
from backtester.markets import calendar_code
from backtester.schema import TABLES, conform
from backtester.vendors.asked import options_of
from backtester.vendors.base import (
    BadResponse,
    Capture,
    NoData,
    NotConfigured,
    VendorSettings,
    Wanted,
)
from backtester.vendors.sec_facts import facts_of, statements_of
from backtester.vendors.sec_filings import Company, Filing, company_of, filings_of
from backtester.vendors.sec_insider import TRADE_FORMS, Trades, trades_of
from backtester.vendors.web import Answer, fetch, object_of

DATA: Final = "https://data.sec.gov"
ARCHIVES: Final = "https://www.sec.gov"
LICENCE: Final = "public domain (SEC EDGAR)"
# Filings before the range that its first days still need: annual reports of three years, and the
# trades of half a year.
STATEMENT_DAYS: Final = 1_150
TRADE_DAYS: Final = 183

_NOT_FOUND: Final = 404
# What there is to ask with; without them the list of symbols and the usual time back are taken.
_OPTIONS: Final[Mapping[str, str]] = {"cik": "", "history_days": ""}
_KEPT: Final = 8
_EXCHANGES: Final[Mapping[str, str]] = {"Nasdaq": "NASDAQ"}
_STOCK: Final = "operating"


@dataclass(frozen=True, kw_only=True)
class _Listed:
    company: Company
    filings: Mapping[str, Filing]
    since: date


class Sec:
    """Fill ``statements``, ``insider`` and ``instruments`` from EDGAR.

    Args:
        settings: With a user agent that names who asks, and an address of e-mail.
    """

    name = "sec"
    tables = frozenset({"statements", "insider", "instruments"})

    def __init__(self, settings: VendorSettings) -> None:
        self._settings = settings
        self._data = settings.base_url or DATA
        self._archives = settings.base_url or ARCHIVES
        self._lock = threading.RLock()
        self._symbols: Mapping[str, int] | None = None
        self._companies: OrderedDict[int, _Listed] = OrderedDict()

    def capture(self, wanted: Wanted) -> Capture:
        """Return the rows of one table for one company.

        Options: ``cik`` (the company's number, for a symbol that it has no more), ``history_days``
        (how long before the range filings are wanted).

        Raises:
            VendorError: As `Vendor.capture` has it.
            UsageError: An option is none of these, or no number.
        """
        if not (self._settings.user_agent or "").strip():
            raise NotConfigured(
                "the SEC answers only who says who asks: set BACKTESTER_USER_AGENT (in Python "
                "user_agent) to a name and an address of e-mail"
            )
        options_of(self.name, wanted, _OPTIONS)
        if wanted.table not in self.tables:
            raise NoData(f"the SEC has no table {wanted.table}")
        with self._lock:
            cik = self._cik(wanted)
            days = _history(wanted)
            listed = self._listed(cik, wanted.start - timedelta(days=days))
        _require_company(listed.company, wanted)
        if wanted.table == "statements":
            rows, notes, source = self._statements(wanted, listed, days)
        elif wanted.table == "insider":
            rows, notes, source = self._insider(wanted, listed, days)
        else:
            rows, notes, source = _identities(wanted, listed.company), (), self._list_url(cik)
        return Capture(
            rows={wanted.table: rows},
            notes=notes,
            options={**wanted.options, "cik": str(cik), "history_days": str(days)},
            source=source,
            licence=LICENCE,
        )

    # -- the three tables

    def _statements(
        self, wanted: Wanted, listed: _Listed, days: int
    ) -> tuple[pa.Table, tuple[str, ...], str]:
        cik = listed.company.cik
        url = f"{self._data}/api/xbrl/companyfacts/CIK{cik:010}.json"
        answer = self._ask(url)
        if answer.status == _NOT_FOUND:
            raise NoData(f"the SEC holds no XBRL facts of {wanted.symbol} (CIK {cik})")
        body = object_of(answer)
        if str(body.get("cik", "")).lstrip("0") != str(cik):
            raise BadResponse(f"{answer.url} is about another company: {body.get('entityName')!a}")
        found = statements_of(
            facts_of(body, answer.url),
            listed.filings,
            instrument=wanted.instrument,
            first=wanted.start - timedelta(days=days),
            last=wanted.end,
            until=wanted.captured_at,
        )
        if found.rows.num_rows == 0:
            raise NoData(
                f"the SEC holds no statements of {wanted.symbol} (CIK {cik}) filed by {wanted.end}"
            )
        return found.rows, found.notes, answer.url

    def _insider(
        self, wanted: Wanted, listed: _Listed, days: int
    ) -> tuple[pa.Table, tuple[str, ...], str]:
        cik = listed.company.cik
        first = wanted.start - timedelta(days=days)
        filings = [
            filing
            for filing in listed.filings.values()
            if filing.form in TRADE_FORMS
            and first <= filing.filed <= wanted.end
            and filing.known_at <= wanted.captured_at
        ]
        rows: list[dict[str, object]] = []
        unread: list[str] = []
        unreadable = 0
        for filing in sorted(filings, key=lambda one: (one.known_at, one.accession)):
            trades = self._trades(filing, cik, wanted.instrument)
            if trades is None:
                unread.append(filing.accession)
            elif trades.issuer == cik:
                # A company's list holds its own trades in others' shares too.
                rows += trades.rows
                unreadable += trades.unread
        if not rows:
            raise NoData(
                f"the SEC holds no trades by insiders of {wanted.symbol} (CIK {cik}) in shares, "
                f"filed {first} to {wanted.end}; {len(filings)} forms were looked at, "
                f"{len(unread)} of them could not be read"
            )
        notes = ["trades in options and other derivatives are left out"]
        if unread:
            notes.append(f"{len(unread)} forms are not in XML, the first is {unread[0]}")
        if unreadable:
            notes.append(f"{unreadable} trades name no day or number of shares and were left out")
        table = pa.Table.from_pylist(rows, schema=TABLES["insider"].arrow)
        return conform("insider", table), tuple(notes), self._list_url(cik)

    def _trades(self, filing: Filing, cik: int, instrument: str) -> Trades | None:
        """Return the trades of one form; None where it is not in XML."""
        document = filing.document.rpartition("/")[2]
        if not document.endswith(".xml"):
            return None
        folder = filing.accession.replace("-", "")
        answer = self._ask(f"{self._archives}/Archives/edgar/data/{cik}/{folder}/{document}")
        if answer.status == _NOT_FOUND:
            return None
        return trades_of(answer.body, filing, instrument=instrument)

    # -- symbols and lists

    def _cik(self, wanted: Wanted) -> int:
        given = wanted.options.get("cik")
        if given is not None:
            if not given.strip().isdecimal() or len(given) > 10:
                raise UsageError(
                    f"vendor sec: option cik is {given[:20]!a}, write the SEC's number"
                )
            return int(given)
        if self._symbols is None:
            self._symbols = _symbols(self._ask(f"{self._archives}/files/company_tickers.json"))
        cik = self._symbols.get(wanted.symbol.upper())
        if cik is None:
            raise NoData(
                f"{wanted.symbol} is in the SEC's list of today's symbols no company: for one "
                "that was renamed or delisted give the option cik"
            )
        return cik

    def _list_url(self, cik: int) -> str:
        return f"{self._data}/submissions/CIK{cik:010}.json"

    def _listed(self, cik: int, since: date) -> _Listed:
        held = self._companies.get(cik)
        if held is not None and held.since <= since:
            return held
        answer = self._ask(self._list_url(cik))
        if answer.status == _NOT_FOUND:
            raise NoData(f"the SEC knows no company with the number {cik}")
        company = company_of(object_of(answer), answer.url)
        if company.cik != cik:
            raise BadResponse(f"{answer.url} is about another company: {company.name!a}")
        filings = list(company.filings)
        for page in company.pages:
            if page.last >= since:
                filings += self._page(page.name)
        listed = _Listed(
            company=company,
            filings={filing.accession: filing for filing in filings},
            since=since,
        )
        self._companies[cik] = listed
        while len(self._companies) > _KEPT:
            self._companies.popitem(last=False)
        return listed

    def _page(self, name: str) -> Iterator[Filing]:
        if "/" in name or not name.endswith(".json"):
            raise BadResponse(f"the SEC's list of filings names a file {name[:60]!a}")
        answer = self._ask(f"{self._data}/submissions/{name}")
        if answer.status == _NOT_FOUND:
            raise BadResponse(f"{answer.url} is named by the list of filings, but is not there")
        return filings_of(object_of(answer), answer.url)

    def _ask(self, url: str) -> Answer:
        return fetch(self._settings, url, also={_NOT_FOUND})


def _symbols(answer: Answer) -> Mapping[str, int]:
    try:
        return {
            str(entry["ticker"]).upper(): int(entry["cik_str"])
            for entry in object_of(answer).values()
        }
    except (KeyError, TypeError, ValueError) as error:
        raise BadResponse(
            f"{answer.url} has not the form of a list of symbols ({error!r})"
        ) from None


def _history(wanted: Wanted) -> int:
    given = wanted.options.get("history_days")
    if given is None:
        return TRADE_DAYS if wanted.table == "insider" else STATEMENT_DAYS
    if not given.isdecimal() or len(given) > 5:
        raise UsageError(
            f"vendor sec: option history_days is {given[:20]!a}, write a number of days"
        )
    return int(given)


def _require_company(company: Company, wanted: Wanted) -> None:
    if "cik" not in wanted.options and wanted.symbol.upper() not in company.tickers:
        raise BadResponse(
            f"the SEC's number {company.cik} is {company.name!a}, which has not the symbol "
            f"{wanted.symbol}"
        )


# --------------------------------------------------------------------------------- identities


def _identities(wanted: Wanted, company: Company) -> pa.Table:
    code = calendar_code(wanted.symbol)
    sessions = calendar_by_code(code).sessions(wanted.start, wanted.end)
    if not sessions:
        raise NoData(f"no session of {wanted.symbol} lies between {wanted.start} and {wanted.end}")
    shared: dict[str, Any] = {
        "instrument": wanted.instrument,
        "symbol": wanted.symbol,
        "exchange": _exchange(company, wanted.symbol),
        "calendar": code,
        "currency": "USD",
        "sector": None,
        "asset_type": "stock" if company.kind in ("", _STOCK) else "fund",
        "first_session": sessions[0],
        "last_session": None,
        "basis": "price",
        # Names have their days, but the symbol and the exchange are today's.
        "static": True,
    }
    rows = [
        {**shared, "name": name, "valid_from": first, "valid_to": stop}
        for name, first, stop in _names(company)
        if (first is None or first <= wanted.end) and (stop is None or stop > wanted.start)
    ]
    return conform("instruments", pa.Table.from_pylist(rows, schema=TABLES["instruments"].arrow))


def _names(company: Company) -> Iterator[tuple[str, date | None, date | None]]:
    """Yield each name with its first day and the first day after it; none has gaps or overlaps."""
    first: date | None = None
    for former in company.former:
        stop = former.last + timedelta(days=1)
        if first is not None and stop <= first:
            continue
        yield former.name, first, stop
        first = stop
    yield company.name, first, None


def _exchange(company: Company, symbol: str) -> str:
    named = dict(zip(company.tickers, company.exchanges, strict=False)).get(symbol.upper(), "")
    return _EXCHANGES.get(named, named) or "US"
