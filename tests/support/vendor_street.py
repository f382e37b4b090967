"""All networked vendors on one loopback server, each in its own form, about Apple in June 2018.

Prices are those of the committed snapshot, in the form in which Yahoo gives them today: divided by
the split since. Figures are Apple's as filed; posts, articles and odds are made up.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from fractions import Fraction
from pathlib import Path
from typing import Any

import pandas as pd

from backtester.snapshots.snapshot import Snapshot
from backtester.vendors.yahoo_port import History
from tests.backtester.vendors.test_alpha_vantage import article, feed
from tests.backtester.vendors.test_fred import Alfred
from tests.backtester.vendors.test_polymarket import Exchange, market
from tests.backtester.vendors.test_reddit import listing, post
from tests.backtester.vendors.test_sec import DOCUMENT, FORM_4, ownership, trade
from tests.backtester.vendors.test_stocktwits import message, stream
from tests.support.page_server import Asked, Page, page
from tests.support.sec_pages import (
    APPLE_FACTS,
    APPLE_FILINGS,
    Edgar,
    companyfacts,
    fact,
    submissions,
)
from tests.support.yahoo_frames import AAPL_2020, APPLE, Day, FramePort, divided, frame_of

PLAN = Path(__file__).with_name("vendor_street.toml")
_SINCE = Fraction(4)
_FIRST, _SECOND = "0000320193-18-000007", "0000320193-18-000070"
FACTS = (
    *APPLE_FACTS,
    fact("Revenues", 88_293e6, _FIRST, "2017-12-30", "2017-10-01"),
    fact("Revenues", 61_137e6, _SECOND, "2018-03-31", "2017-12-31"),
    fact("NetIncomeLoss", 20_065e6, _FIRST, "2017-12-30", "2017-10-01"),
    fact("NetIncomeLoss", 13_822e6, _SECOND, "2018-03-31", "2017-12-31"),
    fact("Assets", 367_502e6, _SECOND, "2018-03-31"),
    fact("Liabilities", 240_624e6, _SECOND, "2018-03-31"),
    fact("StockholdersEquity", 126_878e6, _SECOND, "2018-03-31"),
    fact(
        "NetCashProvidedByUsedInOperatingActivities",
        28_293e6,
        _FIRST,
        "2017-12-30",
        "2017-10-01",
    ),
    fact(
        "NetCashProvidedByUsedInOperatingActivities",
        43_423e6,
        _SECOND,
        "2018-03-31",
        "2017-10-01",
    ),
)
CPI = [
    ("2018-03-01", "2018-04-11", "249.462"),
    ("2018-04-01", "2018-05-10", "250.013"),
    ("2018-05-01", "2018-06-12", "250.535"),
    # Public only after both decisions.
    ("2018-06-01", "2018-07-12", "250.857"),
]
RECESSION = market(
    "777",
    "us-recession-in-2018",
    "Will there be a US recession in 2018?",
    createdAt="2018-05-01T10:00:00.000Z",
    endDate="2018-12-31T12:00:00Z",
    closedTime="2018-12-31 18:05:00+00",
)
ODDS = {
    "7771": [
        ("2018-06-19T12:00:00", 0.11),
        ("2018-06-27T12:00:00", 0.08),
        ("2018-07-10T12:00:00", 0.99),
    ],
    "7770": [("2018-06-27T12:00:00", 0.92), ("2018-07-10T12:00:00", 0.01)],
}
COMPANY_NEWS = feed(
    article(1, "20180626T101500"),
    article(2, "20180711T093000"),
)
WORLD_NEWS = feed(
    {**article(3, "20180625T083000"), "title": "Tariffs move markets", "ticker_sentiment": []},
    {**article(4, "20180712T083000"), "title": "Told after the last decision"},
)


def edgar() -> Edgar:
    """Return EDGAR with Apple's statements and one sale of a director."""
    pages = Edgar()
    filings = (*APPLE_FILINGS, FORM_4)
    pages.pages["submissions/CIK0000320193.json"] = page(submissions(filings, document=DOCUMENT))
    pages.pages["companyfacts/CIK0000320193.json"] = page(companyfacts(FACTS))
    pages.pages["wf-form4_152823781900000.xml"] = Page(body=ownership(trade()))
    return pages


class Street:
    """Answer like every vendor, by the path that is asked for."""

    def __init__(self) -> None:
        self._edgar = edgar()
        self._alfred = Alfred({"CPIAUCSL": CPI})
        self._exchange = Exchange([RECESSION], ODDS)

    def __call__(self, asked: Asked) -> Page:
        """Answer one request."""
        if asked.path.startswith("/fred/"):
            return self._alfred(asked)
        if asked.path.startswith("/api/2/streams"):
            return stream(
                message(52, "2018-07-11T09:00:00Z", "$AAPL told after the last decision"),
                message(51, "2018-06-27T15:00:00Z", "$AAPL looks strong", "Bullish"),
                message(50, None, "$AAPL who knows when"),
            )
        if asked.path.startswith("/r/"):
            return listing(post(61, "2018-06-26T09:00:00", "AAPL buybacks", selftext="worth it?"))
        if asked.query.get("function") == "NEWS_SENTIMENT":
            return page(WORLD_NEWS if "topics" in asked.query else COMPANY_NEWS)
        if asked.path in ("/markets", "/events", "/prices-history", "/public-search"):
            return self._exchange(asked)
        return self._edgar(asked)


class Prices(FramePort):
    """Answer with the history of each symbol as Yahoo has it today."""

    def __init__(self, committed: Snapshot) -> None:
        super().__init__()
        self._frames: Mapping[str, tuple[pd.DataFrame, Mapping[str, Any]]] = {
            "AAPL": (frame_of({**_as_today(committed, "AAPL", _SINCE), **AAPL_2020}), APPLE),
            "^GSPC": (
                frame_of(_as_today(committed, "^GSPC", Fraction(1))),
                {**APPLE, "symbol": "^GSPC", "instrumentType": "INDEX", "longName": "S&P 500"},
            ),
        }

    def history(self, symbol: str, start: date, until: date) -> History:
        """Return all days from the first that is asked for."""
        frame, facts = self._frames[symbol]
        days = [start <= stamp.date() < until for stamp in frame.index]
        return History(frame=frame[days], facts=facts, dividend_currencies={})


def _as_today(committed: Snapshot, instrument: str, since: Fraction) -> dict[str, Day]:
    bars, actions = committed.bars(instrument), committed.actions(instrument)
    paid = {
        str(day): float(amount)
        for day, kind, amount in zip(actions.ex_sessions, actions.kind, actions.amount, strict=True)
        if kind == "dividend"
    }
    rows = list(zip(map(str, bars.sessions), range(len(bars.sessions)), strict=True))
    found: dict[str, Day] = {}
    # What Yahoo's adjusted closes leave of a price for the dividends since.
    left = 1.0
    for day, at in reversed(rows):
        if not "2017-03-01" <= day <= "2018-12-31":
            continue
        opened, high, low, close = (
            divided(float(column[at]), since)
            for column in (bars.open, bars.high, bars.low, bars.close)
        )
        dividend = round(paid.get(day, 0.0) / float(since), 6)
        volume = float(bars.volume[at] * since)
        found[day] = (opened, high, low, close, close * left, volume, dividend, 0.0)
        if dividend:
            left *= 1 - dividend / divided(float(bars.close[at - 1]), since)
    return dict(reversed(found.items()))
