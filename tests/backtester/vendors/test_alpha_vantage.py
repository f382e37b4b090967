"""Alpha Vantage on loopback in its own form: prices as traded, results when announced, and talk."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date
from typing import Any, ClassVar

import pytest

from backtester.errors import UsageError
from backtester.schema import conform
from backtester.snapshots.barcheck import check_capture
from backtester.vendors.alpha_vantage import AlphaVantage, spellings
from backtester.vendors.base import (
    BadResponse,
    Capture,
    NoData,
    NotConfigured,
    RateLimited,
    VendorError,
    VendorSettings,
    Wanted,
)
from tests.support.page_server import (
    CAPTURED_AT,
    Asked,
    Page,
    PageServer,
    in_turn,
    page,
    settings_for,
    wanted_of,
)
from tests.support.vendor_trouble import SECRET, VendorTrouble
from tests.support.yahoo_frames import instant

Answers = Mapping[str, Any]

# Apple around its split of 2020-08-31, as traded, and its dividend of 0.82 dollars.
DAYS = {
    "2020-08-31": ("127.5800", "131.0000", "126.0000", "129.0400", "225702700", "0.0000", "4.0"),
    "2020-08-28": ("504.0500", "505.7700", "498.3100", "499.2300", "46907479", "0.0000", "1.0"),
    "2020-08-27": ("508.5700", "509.9400", "495.3300", "500.0400", "38888096", "0.0000", "1.0"),
    "2020-08-07": ("452.8200", "454.7000", "441.1700", "444.4500", "49511403", "0.8200", "1.0"),
}


def series(days: Mapping[str, tuple[str, ...]], symbol: str = "AAPL") -> dict[str, Any]:
    names = ("1. open", "2. high", "3. low", "4. close", "6. volume", "7. dividend amount")
    return {
        "Meta Data": {"1. Information": "Daily Time Series", "2. Symbol": symbol},
        "Time Series (Daily)": {
            day: {
                **dict(zip(names, figures[:6], strict=True)),
                "5. adjusted close": "1.0",
                "8. split coefficient": figures[6],
            }
            for day, figures in days.items()
        },
    }


def search(symbol: str = "AAPL", currency: str = "USD", kind: str = "Equity") -> dict[str, Any]:
    other = {"1. symbol": "AAPL34.SAO", "2. name": "Apple DRN", "3. type": "Equity"}
    own = {
        "1. symbol": symbol,
        "2. name": "Apple Inc",
        "3. type": kind,
        "4. region": "United States",
        "7. timezone": "UTC-04",
        "8. currency": currency,
        "9. matchScore": "1.0000",
    }
    return {"bestMatches": [other, own]}


APPLE: Answers = {"TIME_SERIES_DAILY_ADJUSTED": series(DAYS), "SYMBOL_SEARCH": search()}


def captured(answers: Answers, wanted: Wanted) -> tuple[Capture, list[Asked]]:
    """Answer each function with its object, one after the other where there is a list."""
    left = {
        name: list(told) if isinstance(told, list) else [told] for name, told in answers.items()
    }

    def answer(asked: Asked) -> Page:
        turns = left[asked.query["function"]]
        return page(turns.pop(0) if len(turns) > 1 else turns[0])

    with PageServer(answer) as server:
        capture = AlphaVantage(settings_for(server, api_key=SECRET, budget_s=300.0)).capture(wanted)
    for name, table in capture.rows.items():
        conform(name, table)
    assert SECRET not in repr((capture.options, capture.source, capture.notes))
    return capture, server.requests


def rows(capture: Capture, table: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = capture.rows[table].to_pylist()
    return found


BARS = wanted_of("bars", "AAPL", "2020-08-07", "2020-08-31")


# -------------------------------------------------------------------------------------- prices


def test_prices_are_taken_as_traded_with_their_actions_and_todays_name() -> None:
    capture, requests = captured(APPLE, BARS)
    assert [
        (str(row["session"]), row["close"], row["volume"]) for row in rows(capture, "bars")
    ] == [
        ("2020-08-07", 444.45, 49_511_403),
        ("2020-08-27", 500.04, 38_888_096),
        ("2020-08-28", 499.23, 46_907_479),
        ("2020-08-31", 129.04, 225_702_700),
    ]
    actions = {row["kind"]: row for row in rows(capture, "actions")}
    assert (actions["split"]["numerator"], actions["split"]["denominator"]) == (4, 1)
    assert (actions["dividend"]["amount"], actions["dividend"]["currency"]) == (0.82, "USD")
    (listing,) = rows(capture, "instruments")
    assert (listing["name"], listing["asset_type"], listing["static"]) == (
        "Apple Inc",
        "stock",
        True,
    )
    assert [asked.query["function"] for asked in requests] == [
        "TIME_SERIES_DAILY_ADJUSTED",
        "SYMBOL_SEARCH",
    ]
    assert requests[0].query["outputsize"] == "full"
    assert capture.options == {"function": "TIME_SERIES_DAILY_ADJUSTED", "outputsize": "full"}


def test_what_it_gives_passes_the_checks_of_a_capture() -> None:
    capture, _ = captured(APPLE, wanted_of("bars", "AAPL", "2020-08-27", "2020-08-31"))
    findings = check_capture(
        capture.rows,
        declared_start=date(2020, 8, 27),
        declared_end=date(2020, 8, 31),
        captured_at=CAPTURED_AT,
    )
    assert findings == ()


def test_pence_of_london_are_named_as_pence() -> None:
    days = {"2024-08-01": ("3657", "3657", "3582", "3590", "3147454", "0.0", "1.0")}
    answers = {
        "TIME_SERIES_DAILY_ADJUSTED": series(days, "REL.LON"),
        "SYMBOL_SEARCH": search("REL.LON", "GBX"),
    }
    capture, requests = captured(answers, wanted_of("bars", "REL.L", "2024-08-01", "2024-08-01"))
    assert requests[0].query["symbol"] == "REL.LON"
    assert rows(capture, "bars")[0]["currency"] == "GBp"
    assert rows(capture, "instruments")[0]["calendar"] == "XLON"


def test_symbols_are_spelt_both_ways() -> None:
    assert spellings("REL.L") == ("REL.LON", "REL.L")
    assert spellings("rel.lon") == ("REL.LON", "REL.L")
    assert spellings("BRK-B") == ("BRK-B", "BRK-B")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"TIME_SERIES_DAILY_ADJUSTED": series(DAYS, "AAP")}, "asked for prices of AAPL"),
        ({"SYMBOL_SEARCH": search("AAPL", "")}, "or no currency"),
        ({"SYMBOL_SEARCH": search("AAPL", "USD", "Token")}, "no known kind"),
        ({"SYMBOL_SEARCH": search("MSFT")}, "search knows no AAPL"),
        ({"TIME_SERIES_DAILY_ADJUSTED": {"Meta Data": {"2. Symbol": "AAPL"}}}, "another form"),
        ({"TIME_SERIES_DAILY_ADJUSTED": series({})}, "no price of AAPL and no reason"),
        (
            {
                "TIME_SERIES_DAILY_ADJUSTED": series(
                    {"2020-08-31": ("1", "1", "1", "x", "1", "0", "1")}
                )
            },
            "another form",
        ),
    ],
)
def test_an_answer_that_is_not_what_was_asked_for_is_refused(changes: Answers, words: str) -> None:
    with pytest.raises(BadResponse, match=words):
        captured({**APPLE, **changes}, BARS)


def test_prices_that_run_on_through_a_split_are_not_as_traded_and_are_refused() -> None:
    days = {**DAYS, "2020-08-28": ("126.01", "126.44", "124.58", "124.81", "1", "0.0", "1.0")}
    with pytest.raises(BadResponse, match="do not change at its split of 2020-08-31"):
        captured({**APPLE, "TIME_SERIES_DAILY_ADJUSTED": series(days)}, BARS)


def test_a_bar_of_zeros_is_left_out_and_named_and_a_later_listing_is_no_data() -> None:
    days = {**DAYS, "2020-08-27": ("0.0", "0.0", "0.0", "0.0", "0", "0.0", "1.0")}
    answers = {**APPLE, "TIME_SERIES_DAILY_ADJUSTED": series(days)}
    capture, _ = captured(answers, BARS)
    assert capture.notes == ("AAPL: the bar of 2020-08-27 has no prices: left out",)
    with pytest.raises(NoData, match="from 2020-08-07 on, and none"):
        captured(APPLE, wanted_of("bars", "AAPL", "2015-01-02", "2015-12-31"))


# ------------------------------------------------------------------- what it tells with status 200

TALK = {
    "minute": {
        "Note": "Thank you for using Alpha Vantage! Our standard API call frequency is 5 calls per "
        "minute and 500 calls per day. Please visit our page of premium plans."
    },
    "second": {"Information": "Burst pattern detected: please keep to 1 request per second."},
    "day": {
        "Information": f"We have detected your API key as {SECRET} and our standard API rate limit "
        "is 25 requests per day. Please subscribe to any of the premium plans."
    },
    "premium": {
        "Information": "Thank you for using Alpha Vantage! This is a premium endpoint. You may "
        "subscribe to any of the premium plans."
    },
    "demo": {"Information": "The **demo** API key is for demo purposes only."},
    "key": {"Error Message": "the parameter apikey is invalid or missing."},
    "call": {"Error Message": "Invalid API call. Please retry or visit the documentation."},
    "new": {"Information": "Something that nobody has seen before."},
}


def told(*pages: Page, wanted: Wanted = BARS) -> tuple[VendorError, int, list[float]]:
    naps: list[float] = []
    with PageServer(in_turn(*pages)) as server:
        vendor = AlphaVantage(settings_for(server, naps, api_key=SECRET, budget_s=300.0))
        with pytest.raises(VendorError) as caught:
            vendor.capture(wanted)
    assert SECRET not in str(caught.value)
    return caught.value, len(server.requests), naps


@pytest.mark.parametrize(
    ("talk", "kind", "requests", "naps"),
    [
        ("minute", RateLimited, 3, [60.0, 60.0]),
        ("second", RateLimited, 3, [1.0, 1.0]),
        ("day", RateLimited, 1, []),
        ("premium", NotConfigured, 1, []),
        ("demo", NotConfigured, 1, []),
        ("key", NotConfigured, 1, []),
        ("call", BadResponse, 1, []),
        ("new", BadResponse, 1, []),
    ],
)
def test_what_is_told_with_status_200_is_what_it_means(
    talk: str, kind: type[VendorError], requests: int, naps: list[float]
) -> None:
    error, asked, slept = told(page(TALK[talk]))
    assert (type(error), asked, slept) == (kind, requests, naps)


def test_a_rate_limit_that_passes_costs_nothing_but_time() -> None:
    answers = {**APPLE, "TIME_SERIES_DAILY_ADJUSTED": [TALK["minute"], series(DAYS)]}
    capture, requests = captured(answers, BARS)
    assert len(rows(capture, "bars")) == 4
    assert len(requests) == 3


def test_an_empty_object_is_how_it_says_that_it_has_nothing() -> None:
    error, _, _ = told(page({}))
    assert type(error) is NoData
    assert "answered {} to TIME_SERIES_DAILY_ADJUSTED of AAPL" in str(error)


def test_a_table_that_it_does_not_have_is_refused() -> None:
    with pytest.raises(UsageError, match="has no table macro"):
        captured(APPLE, wanted_of("macro", "AAPL", "2020-08-07", "2020-08-31"))


def test_without_a_key_it_is_not_configured_and_names_the_variable() -> None:
    with pytest.raises(NotConfigured, match="ALPHA_VANTAGE_API_KEY"):
        AlphaVantage(VendorSettings())


# --------------------------------------------------------------------------------- statements


def income(end: str, revenue: str, net: str = "None") -> dict[str, str]:
    return {
        "fiscalDateEnding": end,
        "reportedCurrency": "USD",
        "totalRevenue": revenue,
        "netIncome": net,
        "ebitda": "1",
    }


# IBM: results of 2023 announced on 2024-01-24 after the close, of its third quarter on 2023-10-25.
IBM: Answers = {
    "INCOME_STATEMENT": {
        "symbol": "IBM",
        "annualReports": [income("2023-12-31", "61860000000", "7502000000")],
        "quarterlyReports": [
            income("2023-12-31", "17381000000", "3288000000"),
            income("2023-09-30", "14752000000", "1704000000"),
            income("2023-06-30", "15475000000"),
        ],
    },
    "BALANCE_SHEET": {
        "symbol": "IBM",
        "annualReports": [
            {
                "fiscalDateEnding": "2023-12-31",
                "reportedCurrency": "USD",
                "totalAssets": "135241000000",
            }
        ],
        "quarterlyReports": [],
    },
    "CASH_FLOW": {
        "symbol": "IBM",
        "annualReports": [
            {
                "fiscalDateEnding": "2023-12-31",
                "reportedCurrency": "USD",
                "operatingCashflow": "13931000000",
                "capitalExpenditures": "1245000000",
            }
        ],
        "quarterlyReports": [],
    },
    "EARNINGS": {
        "symbol": "IBM",
        "annualEarnings": [],
        "quarterlyEarnings": [
            {"fiscalDateEnding": "2023-12-31", "reportedDate": "2024-01-24"},
            {"fiscalDateEnding": "2023-09-30", "reportedDate": "2023-10-25"},
            # A day before the end of the period is a mistake, and is no day at all.
            {"fiscalDateEnding": "2023-06-30", "reportedDate": "2023-06-30"},
        ],
    },
}


def test_results_are_known_from_the_end_of_the_day_on_which_they_were_announced() -> None:
    capture, requests = captured(IBM, wanted_of("statements", "IBM", "2023-01-01", "2024-12-31"))
    found = {
        (row["item"], str(row["period_end"]), row["period_months"]): row
        for row in rows(capture, "statements")
    }
    announced = instant("2024-01-24T23:59:59.999999-05:00")
    for key, value in (
        (("revenue", "2023-12-31", 12), 61_860e6),
        (("revenue", "2023-12-31", 3), 17_381e6),
        (("total_assets", "2023-12-31", 0), 135_241e6),
        (("capital_expenditure", "2023-12-31", 12), 1_245e6),
    ):
        assert (found[key]["value"], found[key]["known_at"]) == (value, announced)
        assert found[key]["known_at_basis"] == "published"
    third = found["net_income", "2023-09-30", 3]
    assert third["known_at"] == instant("2023-10-25T23:59:59.999999-04:00")
    # Without a day of announcement: 45 days after the quarter, and marked.
    second = found["revenue", "2023-06-30", 3]
    assert second["known_at"] == instant("2023-08-14T23:59:59.999999-04:00")
    assert second["known_at_basis"] == "estimated"
    assert ("net_income", "2023-06-30", 3) not in found
    assert any("1 figures have no such day" in note for note in capture.notes)
    assert len(requests) == 4


def test_reports_that_nobody_knew_by_the_end_of_the_range_are_not_stored() -> None:
    capture, _ = captured(IBM, wanted_of("statements", "IBM", "2023-01-01", "2024-01-23"))
    assert {str(row["period_end"]) for row in rows(capture, "statements")} == {
        "2023-06-30",
        "2023-09-30",
    }
    with pytest.raises(NoData, match="none of them known by 2020-12-31"):
        captured(IBM, wanted_of("statements", "IBM", "2020-01-01", "2020-12-31"))


@pytest.mark.parametrize("name", sorted(IBM))
def test_a_company_of_another_symbol_or_form_is_refused(name: str) -> None:
    asked = wanted_of("statements", "IBM", "2023-01-01", "2024-12-31")
    with pytest.raises(BadResponse):
        captured({**IBM, name: {**IBM[name], "symbol": "IBN"}}, asked)
    with pytest.raises(BadResponse):
        captured({**IBM, name: {"symbol": "IBM"}}, asked)


# --------------------------------------------------------------------------- insider trades

TRADE = {
    "transaction_date": "2024-05-01",
    "ticker": "IBM",
    "executive": "KRISHNA, ARVIND",
    "executive_title": "Chairman, President and CEO",
    "security_type": "Common Stock",
    "acquisition_or_disposal": "D",
    "shares": "1200.0",
    "share_price": "164.5",
}
INSIDER = wanted_of("insider", "IBM", "2024-01-01", "2024-12-31")


def test_an_insiders_trade_has_its_side_and_an_estimated_instant() -> None:
    undated = {**TRADE, "transaction_date": ""}
    told_ = {"data": [TRADE, TRADE, undated, {**TRADE, "transaction_date": "2020-05-01"}]}
    capture, _ = captured({"INSIDER_TRANSACTIONS": told_}, INSIDER)
    first, second = rows(capture, "insider")
    assert first["known_at"] == instant("2024-05-03T23:59:59.999999-04:00")
    assert (first["acquired"], first["shares"], first["price"]) == (False, 1200.0, 164.5)
    assert (first["known_at_basis"], first["code"]) == ("estimated", "unknown")
    assert first["id"] != second["id"]
    assert capture.dropped_undated == 1


def test_trades_of_another_symbol_are_refused_and_an_empty_list_is_no_data() -> None:
    with pytest.raises(BadResponse, match="of another symbol"):
        captured({"INSIDER_TRANSACTIONS": {"data": [{**TRADE, "ticker": "IBN"}]}}, INSIDER)
    with pytest.raises(NoData, match="has 0 insider trades of IBM"):
        captured({"INSIDER_TRANSACTIONS": {"data": []}}, INSIDER)


# -------------------------------------------------------------------------------------- news


def article(number: int, stamp: str, ticker: str = "AAPL") -> dict[str, Any]:
    return {
        "title": f"Headline {number}",
        "url": f"https://news.example/{number}",
        "time_published": stamp,
        "summary": "What happened.",
        "source": "Reuters",
        "overall_sentiment_score": 0.4,
        "ticker_sentiment": [{"ticker": ticker, "ticker_sentiment_score": "0.1"}],
    }


def feed(*articles: dict[str, Any]) -> dict[str, Any]:
    return {"items": str(len(articles)), "feed": list(articles)}


NEWS = wanted_of("news", "AAPL", "2024-05-01", "2024-05-31")


def test_news_has_its_time_read_so_that_it_is_never_too_early() -> None:
    told_ = feed(
        article(1, "20240501T153000"), article(2, ""), article(3, "20240502T080000", "MSFT")
    )
    capture, requests = captured({"NEWS_SENTIMENT": told_}, NEWS)
    (row,) = rows(capture, "news")
    assert row["known_at"] == instant("2024-05-01T15:30:00-04:00")
    assert (row["title"], row["source"]) == ("Headline 1", "Reuters")
    assert capture.dropped_undated == 1
    assert requests[0].query["tickers"] == "AAPL"
    assert (requests[0].query["time_from"], requests[0].query["sort"]) == (
        "20240501T0000",
        "EARLIEST",
    )


def test_a_full_page_of_news_is_followed_by_the_next_and_nothing_is_stored_twice() -> None:
    stamps = [f"202405{1 + at // 60:02d}T{at % 24:02d}{at % 60:02d}00" for at in range(1000)]
    first = sorted((article(at, stamp) for at, stamp in enumerate(stamps)), key=_stamp)
    second = [first[-1], article(1000, "20240530T120000")]
    capture, requests = captured({"NEWS_SENTIMENT": [feed(*first), feed(*second)]}, NEWS)
    assert len(rows(capture, "news")) == 1001
    assert requests[1].query["time_from"] == _stamp(first[-1])[:13]


def _stamp(one: dict[str, Any]) -> str:
    stamp: str = one["time_published"]
    return stamp


def test_news_without_an_instrument_is_asked_for_by_topic_and_belongs_to_none() -> None:
    asked = wanted_of("news", "economy_macro", "2024-05-01", "2024-05-31", instrument="")
    told_ = feed(article(1, "20240501T153000", "MSFT"))
    capture, requests = captured({"NEWS_SENTIMENT": told_}, asked)
    assert rows(capture, "news")[0]["instrument"] is None
    assert requests[0].query["topics"] == "economy_macro"
    assert "tickers" not in requests[0].query


def test_no_article_is_no_data_and_others_articles_are_a_bad_response() -> None:
    none = {"Information": "No articles found. Please adjust the time range."}
    with pytest.raises(NoData, match="No articles found"):
        captured({"NEWS_SENTIMENT": none}, NEWS)
    with pytest.raises(NoData, match="no dated article on AAPL"):
        captured({"NEWS_SENTIMENT": feed()}, NEWS)
    with pytest.raises(BadResponse, match="other symbols alone"):
        captured({"NEWS_SENTIMENT": feed(article(1, "20240501T153000", "MSFT"))}, NEWS)
    with pytest.raises(BadResponse, match="no feed"):
        captured({"NEWS_SENTIMENT": {"items": "0"}}, NEWS)


# ------------------------------------------------------------------------- a server in trouble


class TestTrouble(VendorTrouble):
    build: ClassVar[Callable[[VendorSettings], AlphaVantage]] = AlphaVantage
    wanted = INSIDER
    whole: ClassVar[Mapping[str, Any]] = {"data": [TRADE]}
