"""Statements, insider trades and news of Yahoo: estimated or recent, and never silently empty."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

import pandas as pd
import pytest

from backtester.schema import conform
from backtester.vendors.base import BadResponse, Capture, NoData, VendorSettings, Wanted
from backtester.vendors.yahoo import Yahoo
from tests.support.yahoo_frames import COLUMNS, FramePort, instant

NAN = float("nan")


def wanted(table: str, start: str, end: str, symbol: str = "AAPL") -> Wanted:
    return Wanted(
        table=table,
        instrument=symbol,
        symbol=symbol,
        start=date.fromisoformat(start),
        end=date.fromisoformat(end),
        captured_at=datetime(2026, 11, 30, 12, tzinfo=UTC),
    )


def captured(port: FramePort, asked: Wanted) -> Capture:
    capture = Yahoo(VendorSettings(), port).capture(asked)
    for name, table in capture.rows.items():
        conform(name, table)
    return capture


def rows(capture: Capture, table: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = capture.rows[table].to_pylist()
    return found


def statement(figures: dict[str, list[float]], *ends: str) -> pd.DataFrame:
    """Return a statement as yfinance has it: items down, period ends across."""
    columns = pd.DatetimeIndex([pd.Timestamp(end) for end in ends])
    return pd.DataFrame.from_dict(figures, orient="index", columns=columns)


# Apple's figures as filed for the business year to 2018-09-29 and its last quarters, in dollars.
INCOME_QUARTERS = statement(
    {
        "TotalRevenue": [62_900e6, 53_265e6, 61_137e6, 88_293e6],
        "NetIncome": [14_125e6, 11_519e6, 13_822e6, 20_065e6],
        "DilutedEPS": [2.91, 2.34, 2.73, 3.89],
        "DilutedAverageShares": [NAN, 4_926_609e3, 5_068_493e3, 5_157_787e3],
        "TaxRateForCalcs": [0.16, 0.13, 0.15, 0.26],
    },
    "2018-09-30",
    "2018-06-30",
    "2018-03-31",
    "2017-12-31",
)
INCOME_YEARS = statement(
    {"TotalRevenue": [265_595e6, 229_234e6], "NetIncome": [59_531e6, 48_351e6]},
    "2018-09-30",
    "2017-09-30",
)
CASHFLOW_YEARS = statement(
    {"OperatingCashFlow": [77_434e6], "CapitalExpenditure": [-13_313e6]}, "2018-09-30"
)
BALANCE_YEARS = statement(
    {"TotalAssets": [365_725e6], "OrdinarySharesNumber": [4.7e9]}, "2018-09-30"
)


def days(*splits: tuple[str, float]) -> pd.DataFrame:
    """Return a daily frame of nothing but some splits, and a day without one."""
    held = {"2018-10-01": 0.0, **dict(splits)}
    frame = pd.DataFrame(1.0, index=pd.DatetimeIndex(list(held), tz="US/Eastern"), columns=COLUMNS)
    frame["Stock Splits"] = list(held.values())
    return frame


def company(*splits: tuple[str, float]) -> FramePort:
    return FramePort(
        frame=days(*splits),
        statements={
            ("income", "quarterly"): INCOME_QUARTERS,
            ("income", "yearly"): INCOME_YEARS,
            ("cashflow", "yearly"): CASHFLOW_YEARS,
            ("balance", "yearly"): BALANCE_YEARS,
        },
    )


# --------------------------------------------------------------------------------- statements


def by_item(capture: Capture) -> dict[tuple[str, str, int], dict[str, Any]]:
    return {
        (row["item"], str(row["period_end"]), row["period_months"]): row
        for row in rows(capture, "statements")
    }


def test_statements_are_known_from_an_estimate_and_marked() -> None:
    found = by_item(captured(company(), wanted("statements", "2018-01-01", "2019-12-31")))
    quarter = found["revenue", "2018-06-30", 3]
    # 45 days after the quarter, at the end of the day in New York.
    assert quarter["known_at"] == instant("2018-08-14T23:59:59.999999-04:00")
    assert (quarter["value"], quarter["unit"], quarter["known_at_basis"]) == (
        53_265e6,
        "USD",
        "estimated",
    )
    assert (quarter["period_start"], quarter["form"]) == (date(2018, 4, 1), "yahoo interim")
    # 90 after a year; and the quarter that ends one comes with it.
    year_known = instant("2018-12-29T23:59:59.999999-05:00")
    assert found["revenue", "2018-09-30", 12]["known_at"] == year_known
    assert found["revenue", "2018-09-30", 3]["known_at"] == year_known


def test_items_have_the_names_units_and_signs_of_the_table() -> None:
    capture = captured(company(), wanted("statements", "2018-01-01", "2019-12-31"))
    found = by_item(capture)
    assert found["eps_diluted", "2018-06-30", 3]["unit"] == "USD/shares"
    assert found["shares_diluted", "2018-06-30", 3]["unit"] == "shares"
    assert found["capital_expenditure", "2018-09-30", 12]["value"] == 13_313e6
    assert found["capital_expenditure", "2018-09-30", 12]["tag"] == "CapitalExpenditure"
    assert found["total_assets", "2018-09-30", 0]["period_start"] is None
    assert not {row["item"] for row in rows(capture, "statements")} & {
        "TaxRateForCalcs",
        "OrdinarySharesNumber",
    }
    # Yahoo has no number of shares for the last quarter: no row, and no zero.
    assert ("shares_diluted", "2018-09-30", 3) not in found
    assert "estimate" in capture.notes[0]


def test_what_is_a_share_is_left_out_of_periods_before_a_split() -> None:
    port = company(("2018-07-02", 4.0))
    capture = captured(port, wanted("statements", "2018-01-01", "2019-12-31"))
    found = by_item(capture)
    per_share = {key for key in found if key[0] in ("eps_diluted", "shares_diluted")}
    # After the split there is the quarter to September; Yahoo has no number of shares for it.
    assert per_share == {("eps_diluted", "2018-09-30", 3)}
    assert found["revenue", "2018-06-30", 3]["value"] == 53_265e6
    assert "before the split of 2018-07-02 are left out" in capture.notes[1]
    # Asked for from the first period to the day of the capture, whatever range is wanted.
    asked = ("history", "AAPL", date(2017, 9, 30), date(2026, 12, 1))
    assert asked in port.asked


def test_a_market_of_half_years_waits_longer() -> None:
    halves = statement({"TotalRevenue": [4_641e6, 4_497e6]}, "2024-06-30", "2023-12-31")
    halved = {("income", "quarterly"): halves}
    port = FramePort(frame=days(), statements=halved, reports_in="GBP")
    found = by_item(captured(port, wanted("statements", "2023-01-01", "2025-12-31", "REL.L")))
    half = found["revenue", "2024-06-30", 6]
    assert half["known_at"] == instant("2024-09-28T23:59:59.999999+01:00")
    assert (half["unit"], half["period_start"]) == ("GBP", date(2024, 1, 1))


def test_statements_that_are_all_newer_than_the_range_are_no_data() -> None:
    with pytest.raises(NoData, match="the newest statements of AAPL alone"):
        captured(company(), wanted("statements", "2013-01-01", "2016-12-31"))


def test_empty_statements_are_no_absence_of_data() -> None:
    with pytest.raises(BadResponse, match="empty statements of AAPL and no reason"):
        captured(FramePort(), wanted("statements", "2018-01-01", "2019-12-31"))


def test_statements_in_an_unknown_currency_are_not_stored() -> None:
    port = company()
    port.reports_in = None
    with pytest.raises(BadResponse, match="in which currency AAPL reports"):
        captured(port, wanted("statements", "2018-01-01", "2019-12-31"))


# ------------------------------------------------------------------------------ insider trades

SALE = {
    "Shares": 165_000,
    "Value": 26_400_000.0,
    "URL": "",
    "Text": "Sale at price 160.00 per share.",
    "Insider": "COOK TIMOTHY D",
    "Position": "Chief Executive Officer",
    "Transaction": "",
    "Start Date": pd.Timestamp("2018-08-31"),
    "Ownership": "D",
}
AWARD = {
    **SALE,
    "Text": "Stock Award(Grant) at price 0.00 per share.",
    "Value": 0.0,
    "Start Date": pd.Timestamp("2018-08-26"),
}


def test_an_insiders_trade_is_known_two_sessions_after_it_by_estimate() -> None:
    port = FramePort(trades=pd.DataFrame([SALE, AWARD]))
    capture = captured(port, wanted("insider", "2018-08-01", "2018-12-31"))
    found = {row["code"]: row for row in rows(capture, "insider")}
    # A Friday before Labor Day: Tuesday and Wednesday are the two sessions on.
    assert found["S"]["known_at"] == instant("2018-09-05T23:59:59.999999-04:00")
    assert (found["S"]["price"], found["S"]["acquired"]) == (160.0, False)
    # A Sunday counts from the Friday before.
    assert found["A"]["known_at"] == instant("2018-08-28T23:59:59.999999-04:00")
    assert (found["A"]["price"], found["A"]["acquired"]) == (None, True)
    assert {row["known_at_basis"] for row in found.values()} == {"estimated"}


def test_two_equal_trades_of_a_day_are_two_and_one_without_a_day_is_counted() -> None:
    undated = {**SALE, "Start Date": pd.NaT}
    port = FramePort(trades=pd.DataFrame([SALE, SALE, undated]))
    capture = captured(port, wanted("insider", "2018-08-01", "2018-12-31"))
    assert len({row["id"] for row in rows(capture, "insider")}) == 2
    assert capture.dropped_undated == 1


def test_a_trade_in_unknown_words_has_no_code_made_up() -> None:
    port = FramePort(trades=pd.DataFrame([{**SALE, "Text": ""}]))
    (row,) = rows(captured(port, wanted("insider", "2018-08-01", "2018-12-31")), "insider")
    assert (row["code"], row["acquired"]) == ("unknown", None)


def test_an_empty_frame_of_trades_is_no_absence_and_another_form_is_refused() -> None:
    asked = wanted("insider", "2018-08-01", "2018-12-31")
    with pytest.raises(BadResponse, match="an empty frame is not taken"):
        captured(FramePort(), asked)
    lacking = pd.DataFrame([SALE]).drop(columns="Start Date")
    with pytest.raises(BadResponse, match="lack Start Date"):
        captured(FramePort(trades=lacking), asked)
    with pytest.raises(NoData, match="has 1 insider trades of AAPL and none"):
        captured(
            FramePort(trades=pd.DataFrame([SALE])), wanted("insider", "2019-01-01", "2019-12-31")
        )


# ---------------------------------------------------------------------------------------- news


def article(number: int, published: str | None, **changes: Any) -> dict[str, Any]:
    content = {
        "title": f"Headline {number}",
        "summary": "What happened.",
        "pubDate": published,
        "provider": {"displayName": "Reuters"},
        "canonicalUrl": {"url": f"https://news.example/{number}"},
        **changes,
    }
    return {"id": f"id-{number}", "content": content}


def test_news_is_known_from_its_instant_and_says_that_it_is_recent_alone() -> None:
    port = FramePort(articles=[article(1, "2026-11-27T22:05:00Z"), article(2, None)])
    capture = captured(port, wanted("news", "2026-11-01", "2026-11-27"))
    (row,) = rows(capture, "news")
    assert row["known_at"] == instant("2026-11-27T22:05:00+00:00")
    assert (row["source"], row["title"]) == ("Reuters", "Headline 1")
    assert row["url"] == "https://news.example/1"
    assert capture.dropped_undated == 1
    assert capture.notes == (
        "AAPL: Yahoo has recent news alone; nothing is known of it before 2026-11-27",
    )


def test_a_range_ends_with_its_day_in_the_exchanges_zone() -> None:
    # 03:30 UTC on the 28th is still the evening of the 27th in New York.
    late = [article(1, "2026-11-28T03:30:00Z"), article(2, "2026-11-28T05:30:00Z")]
    capture = captured(FramePort(articles=late), wanted("news", "2026-11-27", "2026-11-27"))
    assert [row["title"] for row in rows(capture, "news")] == ["Headline 1"]


def test_news_that_is_all_newer_than_the_range_is_no_data_with_its_reason() -> None:
    port = FramePort(articles=[article(1, "2026-11-27T22:05:00Z")])
    with pytest.raises(
        NoData, match="recent news alone: 1 articles on AAPL, the oldest of 2026-11-27"
    ):
        captured(port, wanted("news", "2018-01-01", "2018-12-31"))


def test_news_on_a_topic_is_no_data() -> None:
    port = FramePort(articles=[article(1, "2026-11-27T22:05:00Z")])
    asked = replace(wanted("news", "2026-11-01", "2026-11-27", "economy"), instrument="")
    with pytest.raises(NoData, match="news by symbol alone"):
        captured(port, asked)
    assert port.asked == []


def test_no_article_and_no_reason_is_a_bad_response() -> None:
    with pytest.raises(BadResponse, match="no article on AAPL and no reason"):
        captured(FramePort(), wanted("news", "2026-11-01", "2026-11-27"))


@pytest.mark.parametrize(
    "odd",
    [
        "text",
        {"uuid": "x", "title": "flat, as it was until 2024"},
        {"id": "x", "content": None},
        article(1, "yesterday"),
    ],
)
def test_news_in_another_form_is_refused(odd: Any) -> None:
    with pytest.raises(BadResponse):
        captured(FramePort(articles=[odd]), wanted("news", "2026-11-01", "2026-11-27"))
