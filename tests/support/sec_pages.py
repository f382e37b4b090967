"""Pages of EDGAR in the SEC's own form, with figures from public filings of Apple and NVIDIA."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa

from backtester.vendors.sec_facts import facts_of, statements_of
from backtester.vendors.sec_filings import company_of
from tests.support.page_server import Asked, Page, page

APPLE = 320193
NVIDIA = 1045810
CAPTURED_AT = datetime(2026, 11, 30, 12, tzinfo=UTC)

# Number, form, filing date and acceptance time as the SEC writes them.
APPLE_FILINGS = (
    ("0001628280-17-004790", "10-Q", "2017-05-03", "2017-05-03T16:32:23.000Z"),
    ("0000320193-17-000009", "10-Q", "2017-08-02", "2017-08-02T16:31:28.000Z"),
    ("0000320193-17-000070", "10-K", "2017-11-03", "2017-11-03T08:01:37.000Z"),
    ("0000320193-18-000007", "10-Q", "2018-02-02", "2018-02-02T08:01:26.000Z"),
    ("0000320193-18-000070", "10-Q", "2018-05-02", "2018-05-02T16:32:12.000Z"),
    ("0000320193-18-000100", "10-Q", "2018-08-01", "2018-08-01T16:31:48.000Z"),
    ("0000320193-18-000145", "10-K", "2018-11-05", "2018-11-05T08:01:40.000Z"),
)
_BY_NUMBER = {number: (form, filed) for number, form, filed, _ in APPLE_FILINGS}


def fact(
    tag: str,
    value: float,
    accession: str,
    end: str,
    start: str | None = None,
    *,
    form: str | None = None,
    filed: str | None = None,
    unit: str = "USD",
    taxonomy: str = "us-gaap",
) -> dict[str, Any]:
    """Make one fact; form and filing date are those of the filing unless given."""
    known = _BY_NUMBER.get(accession, ("", ""))
    entry: dict[str, Any] = {"end": end, "val": value, "accn": accession, "fy": 2018, "fp": "Q2"}
    if start is not None:
        entry["start"] = start
    entry |= {"form": form or known[0], "filed": filed or known[1]}
    return {"taxonomy": taxonomy, "tag": tag, "unit": unit, "entry": entry}


def eps(value: float, accession: str, start: str, end: str, **more: Any) -> dict[str, Any]:
    """Make a fact of diluted earnings per share."""
    return fact("EarningsPerShareDiluted", value, accession, end, start, unit="USD/shares", **more)


def cover(count: int, accession: str, end: str, **more: Any) -> dict[str, Any]:
    """Make a count of shares on a cover."""
    return fact(
        "EntityCommonStockSharesOutstanding",
        count,
        accession,
        end,
        unit="shares",
        taxonomy="dei",
        **more,
    )


# Apple's diluted earnings per share, quarter by quarter, and its counts of shares.
APPLE_FACTS = (
    eps(2.10, "0001628280-17-004790", "2017-01-01", "2017-04-01"),
    eps(1.67, "0000320193-17-000009", "2017-04-02", "2017-07-01"),
    eps(7.14, "0000320193-17-000009", "2016-09-25", "2017-07-01"),
    eps(2.07, "0000320193-17-000070", "2017-07-02", "2017-09-30"),
    eps(9.21, "0000320193-17-000070", "2016-09-25", "2017-09-30"),
    eps(3.89, "0000320193-18-000007", "2017-10-01", "2017-12-30"),
    eps(2.73, "0000320193-18-000070", "2017-12-31", "2018-03-31"),
    # The quarter of a year before stands beside the new one in each report.
    eps(2.10, "0000320193-18-000070", "2017-01-01", "2017-04-01"),
    eps(2.34, "0000320193-18-000100", "2018-04-01", "2018-06-30"),
    eps(1.67, "0000320193-18-000100", "2017-04-02", "2017-07-01"),
    eps(2.91, "0000320193-18-000145", "2018-07-01", "2018-09-29"),
    eps(11.91, "0000320193-18-000145", "2017-10-01", "2018-09-29"),
    cover(5_134_312_000, "0000320193-17-000070", "2017-10-20"),
    cover(5_074_013_000, "0000320193-18-000007", "2018-01-19"),
    cover(4_915_138_000, "0000320193-18-000070", "2018-04-20"),
    cover(4_829_926_000, "0000320193-18-000100", "2018-07-20"),
    cover(4_745_398_000, "0000320193-18-000145", "2018-10-26"),
)


def companyfacts(
    facts: Iterable[Mapping[str, Any]] = APPLE_FACTS, *, cik: int = APPLE, name: str = "Apple Inc."
) -> dict[str, Any]:
    """Make the body of a ``companyfacts`` file."""
    held: dict[str, Any] = {}
    for one in facts:
        tags = held.setdefault(one["taxonomy"], {})
        units = tags.setdefault(one["tag"], {"label": one["tag"], "units": {}})["units"]
        units.setdefault(one["unit"], []).append(dict(one["entry"]))
    return {"cik": cik, "entityName": name, "facts": held}


def columns(filings: Iterable[tuple[str, str, str, str]], document: str = "") -> dict[str, Any]:
    """Make the columns of a list of filings."""
    rows = list(filings)
    return {
        "accessionNumber": [row[0] for row in rows],
        "filingDate": [row[2] for row in rows],
        "acceptanceDateTime": [row[3] for row in rows],
        "form": [row[1] for row in rows],
        "primaryDocument": [document for _ in rows],
    }


def submissions(
    filings: Iterable[tuple[str, str, str, str]] = APPLE_FILINGS,
    *,
    document: str = "",
    pages: Iterable[Mapping[str, Any]] = (),
    **changes: Any,
) -> dict[str, Any]:
    """Make the body of a ``submissions`` file."""
    return {
        "cik": "0000320193",
        "entityType": "operating",
        "sic": "3571",
        "name": "Apple Inc.",
        "tickers": ["AAPL"],
        "exchanges": ["Nasdaq"],
        "formerNames": [
            {
                "name": "APPLE INC",
                "from": "2007-01-10T00:00:00.000Z",
                "to": "2019-08-05T00:00:00.000Z",
            },
            {
                "name": "APPLE COMPUTER INC",
                "from": "1994-01-26T00:00:00.000Z",
                "to": "2007-01-04T00:00:00.000Z",
            },
            {
                "name": "APPLE COMPUTER INC/ FA",
                "from": "1997-07-28T00:00:00.000Z",
                "to": "1997-07-28T00:00:00.000Z",
            },
        ],
        "filings": {"recent": columns(filings, document), "files": [dict(one) for one in pages]},
        **changes,
    }


SYMBOLS = {
    "0": {"cik_str": NVIDIA, "ticker": "NVDA", "title": "NVIDIA CORP"},
    "1": {"cik_str": APPLE, "ticker": "AAPL", "title": "Apple Inc."},
}


class Edgar:
    """Answer like EDGAR from a table of pages by the end of their path; others are not there."""

    def __init__(self) -> None:
        self.pages = {
            "company_tickers.json": page(SYMBOLS),
            "submissions/CIK0000320193.json": page(submissions()),
            "companyfacts/CIK0000320193.json": page(companyfacts()),
        }

    def __call__(self, asked: Asked) -> Page:
        """Answer one request."""
        for path, told in self.pages.items():
            if asked.path.endswith(path):
                return told
        return Page(status=404, body=b"<?xml version='1.0'?><Error><Code>NoSuchKey</Code></Error>")


def apple_rows(
    facts: Iterable[Mapping[str, Any]] = APPLE_FACTS,
    filings: Iterable[tuple[str, str, str, str]] = APPLE_FILINGS,
    **changes: Any,
) -> pa.Table:
    """Return the rows of ``statements`` that the vendor makes of facts and filings."""
    listed = company_of(submissions(filings), "list").filings
    wanted = {
        "instrument": "AAPL",
        "first": date(2000, 1, 1),
        "last": date(2030, 1, 1),
        "until": CAPTURED_AT,
        **changes,
    }
    return statements_of(
        facts_of(companyfacts(facts), "facts"), {one.accession: one for one in listed}, **wanted
    ).rows
