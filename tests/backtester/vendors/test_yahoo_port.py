"""The real yfinance on a tape: what it asks, what it gives, and what it would have swallowed."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests
import yfinance
import yfinance.cache
import yfinance.data
from yfinance.scrapers.history import PriceHistory

from backtester.vendors.base import (
    BadResponse,
    NoData,
    RateLimited,
    VendorError,
    VendorSettings,
    Wanted,
)
from backtester.vendors.yahoo import Yahoo
from backtester.vendors.yahoo_port import FREQUENCIES, HISTORY_OPTIONS, YFinance

NEW_YORK_OPEN = {"2020-08-28": 1598621400, "2020-08-31": 1598880600}
CHART: dict[str, Any] = {
    "chart": {
        "result": [
            {
                "meta": {
                    "currency": "USD",
                    "symbol": "AAPL",
                    "exchangeName": "NMS",
                    "fullExchangeName": "NasdaqGS",
                    "instrumentType": "EQUITY",
                    "firstTradeDate": 345479400,
                    "exchangeTimezoneName": "America/New_York",
                    "longName": "Apple Inc.",
                    "validRanges": ["1d", "5d", "max"],
                    "priceHint": 2,
                    "dataGranularity": "1d",
                },
                "timestamp": list(NEW_YORK_OPEN.values()),
                "events": {
                    "splits": {
                        "1598880600": {
                            "date": 1598880600,
                            "numerator": 4.0,
                            "denominator": 1.0,
                            "splitRatio": "4:1",
                        }
                    }
                },
                "indicators": {
                    "quote": [
                        {
                            "open": [126.01249694824219, 127.58000183105469],
                            "high": [126.44249725341797, 131.0],
                            "low": [124.57749938964844, 126.0],
                            "close": [124.80750274658203, 129.0399932861328],
                            "volume": [187630000, 225702700],
                        }
                    ],
                    "adjclose": [{"adjclose": [122.59161376953125, 126.74896240234375]}],
                },
            }
        ],
        "error": None,
    }
}
UNKNOWN: dict[str, Any] = {
    "chart": {
        "result": None,
        "error": {"code": "Not Found", "description": "No data found, symbol may be delisted"},
    }
}
SILENT: dict[str, Any] = {"chart": {"result": None, "error": None}}
_HELD = {
    "_TzCacheManager": "_tz_cache",
    "_CookieCacheManager": "_Cookie_cache",
    "_ISINCacheManager": "_isin_cache",
}
QUIET = VendorSettings(max_retries=0, sleep=lambda _: None)


class Tape(requests.Session):
    """Answer Yahoo's addresses from a tape, and fail for any other; no socket is opened."""

    def __init__(self, *acts: tuple[int, object]) -> None:
        super().__init__()
        self.acts = list(acts)
        self.asked: list[tuple[str, dict[str, Any]]] = []

    def get(self, url: Any, **options: Any) -> requests.Response:  # type: ignore[override]
        path = urlsplit(url).path
        if "getcrumb" in path:
            return self._answer(url, 200, "crumb")
        if urlsplit(url).hostname == "fc.yahoo.com" or "consent" in url:
            return self._answer(url, 200, "<html></html>")
        self.asked.append((path, dict(options.get("params") or {})))
        if not path.startswith(("/v8/finance/chart/", "/v10/", "/ws/", "/v7/", "/v1/")):
            raise AssertionError(f"{url} is not on the tape")
        status, body = self.acts.pop(0) if len(self.acts) > 1 else self.acts[0]
        return self._answer(url, status, body)

    def post(self, url: Any, *args: Any, **options: Any) -> requests.Response:  # type: ignore[override]
        self.asked.append((urlsplit(url).path, dict(options.get("json") or {})))
        status, body = self.acts.pop(0) if len(self.acts) > 1 else self.acts[0]
        return self._answer(url, status, body)

    def _answer(self, url: str, status: int, body: object) -> requests.Response:
        response = requests.Response()
        response.status_code = status
        response.url = url
        text = body if isinstance(body, str) else json.dumps(body)
        response._content = text.encode()
        response.encoding = "utf-8"
        return response


@pytest.fixture(autouse=True)
def fresh_yfinance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give yfinance no memory: neither its one data object nor its caches on disk."""
    monkeypatch.setattr(yfinance.data.SingletonMeta, "_instances", {})
    for name in ("_TzCacheManager", "_CookieCacheManager", "_ISINCacheManager"):
        cache = getattr(yfinance.cache, name.replace("Manager", "Dummy"))()
        monkeypatch.setattr(getattr(yfinance.cache, name), _HELD[name], cache)


def history(*acts: tuple[int, object], settings: VendorSettings = QUIET) -> Tape:
    tape = Tape(*acts)
    YFinance(settings, tape).history("AAPL", date(2020, 8, 28), date(2020, 9, 2))
    return tape


def test_every_option_of_a_history_is_spelled_out() -> None:
    parameters = set(inspect.signature(PriceHistory.history).parameters)
    range_and_patience = {"self", "start", "end", "period", "timeout"}
    # Deprecated: the switch for the process takes its place.
    assert parameters - range_and_patience - {"raise_errors"} == set(HISTORY_OPTIONS)
    assert HISTORY_OPTIONS["repair"] is False
    assert HISTORY_OPTIONS["auto_adjust"] is False


def test_a_chart_of_yahoo_becomes_bars_as_traded() -> None:
    tape = Tape((200, CHART))
    capture = Yahoo(QUIET, YFinance(QUIET, tape)).capture(
        Wanted(
            table="bars",
            instrument="AAPL",
            symbol="AAPL",
            start=date(2020, 8, 28),
            end=date(2020, 8, 31),
            captured_at=datetime(2023, 9, 22, tzinfo=UTC),
        )
    )
    bars = [
        (str(row["session"]), row["close"], row["volume"])
        for row in capture.rows["bars"].to_pylist()
    ]
    assert bars == [("2020-08-28", 499.23, 46_907_500), ("2020-08-31", 129.04, 225_702_700)]
    (listing,) = capture.rows["instruments"].to_pylist()
    assert (listing["name"], listing["exchange"]) == ("Apple Inc.", "NasdaqGS")
    # No question is asked for what nobody wants, such as the hours of trading.
    assert {path for path, _ in tape.asked} == {"/v8/finance/chart/AAPL"}
    assert all(asked.get("interval") == "1d" for _, asked in tape.asked)


def test_a_rate_limit_is_waited_out_and_then_said() -> None:
    naps: list[float] = []
    settings = VendorSettings(max_retries=2, sleep=naps.append)
    with pytest.raises(RateLimited, match=r"\(429\)"):
        history((429, "Too Many Requests"), settings=settings)
    assert len(naps) == 2


def test_a_rate_limit_that_passes_costs_nothing_but_time() -> None:
    naps: list[float] = []
    settings = VendorSettings(max_retries=2, sleep=naps.append)
    # yfinance asks twice, with and without its crumb, before it gives up.
    tape = history((429, ""), (429, ""), (200, CHART), settings=settings)
    assert tape.acts == [(200, CHART)]
    assert len(naps) == 1


def test_html_is_a_bad_response_and_the_next_try_is_not_answered_from_memory() -> None:
    page = "<html><body>Sorry</body></html>"
    with pytest.raises(BadResponse, match="no whole JSON"):
        history((200, page))
    settings = VendorSettings(max_retries=1, sleep=lambda _: None)
    assert history((200, page), (200, CHART), settings=settings).acts == [(200, CHART)]


def test_a_body_that_is_cut_off_is_a_bad_response() -> None:
    whole = json.dumps(CHART)
    with pytest.raises(BadResponse, match="no whole JSON"):
        history((200, CHART), (200, whole[: len(whole) // 2]))


def test_words_of_yahoo_are_no_data_and_silence_is_not() -> None:
    with pytest.raises(NoData, match="No data found, symbol may be delisted"):
        history((200, CHART), (200, UNKNOWN))
    with pytest.raises(BadResponse, match="neither prices nor a reason"):
        history((200, CHART), (200, SILENT))


def test_a_broken_server_is_no_absence_of_data() -> None:
    with pytest.raises(VendorError) as caught:
        history((503, "upstream connect error"))
    assert not isinstance(caught.value, NoData)


def test_no_network_is_said_and_yfinance_is_left_as_it_was() -> None:
    class Offline(Tape):
        def get(self, url: Any, **options: Any) -> requests.Response:  # type: ignore[override]
            raise requests.ConnectionError("Name or service not known")

    before = yfinance.config.debug.hide_exceptions
    port = YFinance(QUIET, Offline((200, CHART)))
    with pytest.raises(VendorError, match="cannot be reached") as caught:
        port.history("AAPL", date(2020, 8, 28), date(2020, 9, 2))
    assert type(caught.value) is VendorError
    assert yfinance.config.debug.hide_exceptions == before


def test_statements_are_read_from_the_time_series() -> None:
    series: dict[str, Any] = {
        "timeseries": {
            "result": [
                {
                    "meta": {"symbol": ["AAPL"], "type": ["quarterlyTotalRevenue"]},
                    "timestamp": [1719705600],
                    "quarterlyTotalRevenue": [
                        {
                            "asOfDate": "2024-06-30",
                            "periodType": "3M",
                            "currencyCode": "USD",
                            "reportedValue": {"raw": 85777000000.0, "fmt": "85.78B"},
                        }
                    ],
                }
            ],
            "error": None,
        }
    }
    frame = YFinance(QUIET, Tape((200, series))).statement("AAPL", "income", FREQUENCIES[0])
    assert frame.loc["TotalRevenue"].tolist() == [85777000000.0]


def test_news_are_read_from_the_stream() -> None:
    article = {"id": "a1", "content": {"title": "Apple unveils", "pubDate": "2026-11-28T14:00:00Z"}}
    stream = {"data": {"tickerStream": {"stream": [article, {"id": "x", "ad": ["buy"]}]}}}
    assert YFinance(QUIET, Tape((200, stream))).news("AAPL") == [article]


def test_insider_trades_are_read_from_the_summary() -> None:
    trade = {
        "maxAge": 1,
        "shares": {"raw": 1000},
        "value": {"raw": 190000},
        "filerUrl": "",
        "transactionText": "Sale at price 190.00 per share.",
        "filerName": "COOK TIMOTHY D",
        "filerRelation": "Chief Executive Officer",
        "moneyText": "",
        "startDate": {"raw": 1727740800},
        "ownership": "D",
    }
    summary = {"quoteSummary": {"result": [{"insiderTransactions": {"transactions": [trade]}}]}}
    frame = YFinance(QUIET, Tape((200, summary))).insider("AAPL")
    assert frame["Insider"].tolist() == ["COOK TIMOTHY D"]
    assert frame["Shares"].tolist() == [1000]


ASKED = """
import sys
from datetime import date
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from backtester.vendors.yahoo_port import YFinance
from tests.backtester.vendors.test_yahoo_port import CHART, QUIET, Tape
tape = Tape((200, CHART))
YFinance(QUIET, tape).history("AAPL", date(2020, 8, 28), date(2020, 9, 2))
import yfinance.cache
yfinance.cache.get_tz_cache().store("AAPL", "America/New_York")
print(len(tape.asked), yfinance.cache.get_tz_cache().lookup("AAPL"))
"""


def test_nothing_is_written_to_the_users_cache_or_left_behind(tmp_path: Path) -> None:
    home, passing = tmp_path / "home", tmp_path / "passing"
    home.mkdir()
    passing.mkdir()
    places = {"HOME": str(home), "XDG_CACHE_HOME": str(home / ".cache"), "TMPDIR": str(passing)}
    asked = subprocess.run(
        [sys.executable, "-c", ASKED, str(Path(__file__).parents[3])],
        cwd=home,
        env={**os.environ, **places},
        check=True,
        capture_output=True,
        text=True,
    )
    assert asked.stdout.split()[1:] == ["America/New_York"]
    assert list(home.rglob("*")) == []
    assert list(passing.rglob("*")) == []
