"""Frames in the form that yfinance gives, and a port that answers with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd

from backtester.vendors.yahoo_port import History

# Open, high, low, close, adjusted close, volume, dividend, split (0 for none).
Day = tuple[float, float, float, float, float, float, float, float]
COLUMNS = (
    "Open",
    "High",
    "Low",
    "Close",
    "Adj Close",
    "Volume",
    "Dividends",
    "Stock Splits",
)
APPLE: Mapping[str, Any] = {
    "symbol": "AAPL",
    "currency": "USD",
    "instrumentType": "EQUITY",
    "exchangeName": "NMS",
    "fullExchangeName": "NasdaqGS",
    "exchangeTimezoneName": "America/New_York",
    "longName": "Apple Inc.",
    "shortName": "Apple Inc.",
    "firstTradeDate": pd.Timestamp("1980-12-12 09:30", tz="America/New_York"),
}

# Yahoo's own figures around Apple's two splits of the decade, as of 2023: before 2014-06-09 they
# are divided by 28, before 2020-08-31 by 4. Apple paid 3.29 dollars a share on 2014-05-08 and 0.82
# on 2020-08-07; the sessions between the groups are left out.
AAPL_2014: Mapping[str, Day] = {
    "2014-05-07": (21.258928298950195, 21.331785202026367, 20.9903564453125, 21.15464210510254,
                   18.681682586669922, 282864400, 0.0, 0.0),
    "2014-05-08": (21.008928298950195, 21.22892951965332, 20.94285774230957, 20.999643325805664,
                   18.648393630981445, 230297200, 0.1175, 0.0),
    "2014-06-05": (23.078571319580078, 23.19178581237793, 22.95035743713379, 23.11964225769043,
                   20.531021118164062, 303805600, 0.0, 0.0),
    "2014-06-06": (23.21071434020996, 23.259286880493164, 23.016786575317383, 23.05607032775879,
                   20.474563598632812, 349938400, 0.0, 0.0),
    "2014-06-09": (23.174999237060547, 23.469999313354492, 22.9375, 23.424999237060547,
                   20.80218505859375, 301660000, 0.0, 7.0),
    "2014-06-10": (23.6825008392334, 23.762500762939453, 23.392499923706055, 23.5625,
                   20.924291610717773, 251108000, 0.0, 0.0),
}  # fmt: skip
AAPL_2020: Mapping[str, Day] = {
    "2020-08-06": (110.40499877929688, 114.4124984741211, 109.79750061035156, 113.90249633789062,
                   111.67884826660156, 202428800, 0.0, 0.0),
    "2020-08-07": (113.20500183105469, 113.67500305175781, 110.2925033569336, 111.11250305175781,
                   109.1397476196289, 198045600, 0.205, 0.0),
    "2020-08-27": (127.14250183105469, 127.48500061035156, 123.8324966430664, 125.01000213623047,
                   122.79051208496094, 155552400, 0.0, 0.0),
    "2020-08-28": (126.01249694824219, 126.44249725341797, 124.57749938964844, 124.80750274658203,
                   122.59161376953125, 187630000, 0.0, 0.0),
    "2020-08-31": (127.58000183105469, 131.0, 126.0, 129.0399932861328,
                   126.74896240234375, 225702700, 0.0, 4.0),
    "2020-09-01": (132.75999450683594, 134.8000030517578, 130.52999877929688, 134.17999267578125,
                   131.79766845703125, 151948100, 0.0, 0.0),
}  # fmt: skip
# Closes and volumes as they were traded.
AAPL_TRADED: Mapping[str, tuple[float, int]] = {
    "2014-05-07": (592.33, 10_102_300),
    "2014-05-08": (587.99, 8_224_900),
    "2014-06-05": (647.35, 10_850_200),
    "2014-06-06": (645.57, 12_497_800),
    "2014-06-09": (93.70, 75_415_000),
    "2014-06-10": (94.25, 62_777_000),
    "2020-08-06": (455.61, 50_607_200),
    "2020-08-07": (444.45, 49_511_400),
    "2020-08-27": (500.04, 38_888_100),
    "2020-08-28": (499.23, 46_907_500),
    "2020-08-31": (129.04, 225_702_700),
    "2020-09-01": (134.18, 151_948_100),
}


def frame_of(days: Mapping[str, Sequence[float]], zone: str = "America/New_York") -> pd.DataFrame:
    """Return a frame of yfinance: a row a day, zone-aware midnights."""
    index = pd.DatetimeIndex([pd.Timestamp(day, tz=zone) for day in days], name="Date")
    return pd.DataFrame(list(days.values()), index=index, columns=list(COLUMNS), dtype=float)


def at_share_count(frame: pd.DataFrame, first: date, last: date, undone: int) -> pd.DataFrame:
    """Return a frame as it was before a split of ``undone`` for one, up to a day before it.

    Args:
        frame: As of after the split.
        first: First day that is kept.
        last: Last one; the split is later.
        undone: Shares after the split for each one before.
    """
    days = [stamp.date() for stamp in frame.index]
    kept = frame[[first <= day <= last for day in days]].copy()
    for name in COLUMNS[:5]:
        kept[name] = (kept[name] * undone).astype(np.float32).astype(float)
    kept["Volume"] = kept["Volume"] / undone
    kept["Dividends"] = (kept["Dividends"] * undone).round(6)
    return kept


def divided(price: float, factor: Fraction) -> float:
    """Return a price as Yahoo keeps it: divided by the splits since, in 32 bits."""
    return float(np.float32(price * factor.denominator / factor.numerator))


@dataclass
class FramePort:
    """Answer with frames, or raise what is to be raised; keeps what it was asked."""

    frame: pd.DataFrame | None = None
    facts: Mapping[str, Any] = field(default_factory=lambda: dict(APPLE))
    currencies: Mapping[date, str] = field(default_factory=dict)
    articles: Sequence[Any] = ()
    trades: pd.DataFrame = field(default_factory=pd.DataFrame)
    statements: Mapping[tuple[str, str], pd.DataFrame] = field(default_factory=dict)
    reports_in: str | None = "USD"
    failure: Callable[[], Exception] | None = None
    asked: list[tuple[Any, ...]] = field(default_factory=list)

    def _note(self, *words: Any) -> None:
        self.asked.append(words)
        if self.failure is not None:
            raise self.failure()

    def history(self, symbol: str, start: date, until: date) -> History:
        self._note("history", symbol, start, until)
        assert self.frame is not None
        return History(frame=self.frame, facts=self.facts, dividend_currencies=self.currencies)

    def news(self, symbol: str) -> list[Any]:
        self._note("news", symbol)
        return list(self.articles)

    def insider(self, symbol: str) -> pd.DataFrame:
        self._note("insider", symbol)
        return self.trades

    def statement(self, symbol: str, statement: str, frequency: str) -> pd.DataFrame:
        self._note("statement", symbol, statement, frequency)
        return self.statements.get((statement, frequency), pd.DataFrame())

    def reporting_currency(self, symbol: str) -> str | None:
        self._note("reporting_currency", symbol)
        return self.reports_in


def instant(text: str) -> datetime:
    """Return an instant of an ISO text with its zone."""
    read = datetime.fromisoformat(text)
    assert read.tzinfo is not None
    return read
