"""Company facts as rows: tags by period, annual forms, quarters worked out, restatements."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest

from backtester.vendors.base import BadResponse
from backtester.vendors.sec_facts import facts_of, statements_of
from backtester.vendors.sec_filings import company_of
from tests.support.sec_pages import (
    APPLE_FILINGS,
    CAPTURED_AT,
    apple_rows,
    companyfacts,
    cover,
    eps,
    fact,
    submissions,
)

REPORT_2017 = "0000320193-17-000070"
REPORT_2018 = "0000320193-18-000145"
THIRD_QUARTER_2017 = "0000320193-17-000009"
THIRD_QUARTER_2018 = "0000320193-18-000100"
YEAR_2017 = ("2016-09-25", "2017-09-30")
NINE_MONTHS_2017 = ("2016-09-25", "2017-07-01")


def rows_of(table: pa.Table, item: str) -> list[dict[str, Any]]:
    return [row for row in table.to_pylist() if row["item"] == item]


def values(table: pa.Table, item: str) -> list[tuple[str, int, float, bool]]:
    return [
        (str(row["period_end"]), row["period_months"], row["value"], row["derived"])
        for row in rows_of(table, item)
    ]


def test_a_row_names_filing_form_tag_unit_and_instant() -> None:
    (row,) = rows_of(
        apple_rows([cover(4_829_926_000, THIRD_QUARTER_2018, "2018-07-20")]), "shares_outstanding"
    )
    assert row == {
        "instrument": "AAPL",
        "statement": "cover",
        "item": "shares_outstanding",
        "period_start": None,
        "period_end": date(2018, 7, 20),
        "period_months": 0,
        "known_at": datetime(2018, 8, 1, 20, 31, 48, tzinfo=UTC),
        "known_at_basis": "published",
        "form": "10-Q",
        "accession": THIRD_QUARTER_2018,
        "tag": "dei:EntityCommonStockSharesOutstanding",
        "derived": False,
        "value": 4_829_926_000.0,
        "unit": "shares",
    }


def test_several_filings_of_one_period_are_several_rows() -> None:
    rows = rows_of(apple_rows(), "eps_diluted")
    first_of_2017 = [row for row in rows if row["period_end"] == date(2017, 4, 1)]
    assert [(row["form"], str(row["known_at"])[:10]) for row in first_of_2017] == [
        ("10-Q", "2017-05-03"),
        ("10-Q", "2018-05-02"),
    ]


def test_the_tag_of_an_item_is_chosen_by_period_within_a_filing() -> None:
    # Apple's revenue: SalesRevenueNet up to the middle of 2018, Revenues in that year's report.
    table = apple_rows(
        [
            fact("SalesRevenueNet", 53_265_000_000, THIRD_QUARTER_2018, "2018-06-30", "2018-04-01"),
            fact("Revenues", 62_900_000_000, REPORT_2018, "2018-09-29", "2018-07-01"),
            fact("Revenues", 53_265_000_000, REPORT_2018, "2018-06-30", "2018-04-01"),
            fact("SalesRevenueNet", 1, REPORT_2018, "2018-06-30", "2018-04-01"),
        ]
    )
    assert [
        (str(row["period_end"]), row["tag"], row["value"]) for row in rows_of(table, "revenue")
    ] == [
        ("2018-06-30", "us-gaap:SalesRevenueNet", 53_265_000_000),
        ("2018-06-30", "us-gaap:Revenues", 53_265_000_000),
        ("2018-09-29", "us-gaap:Revenues", 62_900_000_000),
    ]


def test_figures_of_a_year_come_from_annual_forms_alone() -> None:
    table = apple_rows(
        [
            eps(9.21, REPORT_2017, *YEAR_2017),
            # A sum over the last twelve months in a quarterly report, and a report of news.
            eps(9.70, THIRD_QUARTER_2018, "2017-07-02", "2018-06-30"),
            eps(9.99, "0000320193-18-000999", *YEAR_2017, form="8-K", filed="2018-03-01"),
        ]
    )
    assert values(table, "eps_diluted") == [("2017-09-30", 12, 9.21, False)]


def test_a_fourth_quarter_that_was_filed_is_not_worked_out() -> None:
    table = apple_rows()
    assert ("2017-09-30", 3, 2.07, False) in values(table, "eps_diluted")
    assert not any(
        row["derived"]
        for row in rows_of(table, "eps_diluted")
        if row["period_end"] == date(2017, 9, 30)
    )


def revenue_of_nine_months_and_year(**annual: Any) -> list[dict[str, Any]]:
    # Apple's fiscal 2017: 176,655 million in nine months, 229,234 in the year.
    return [
        fact("SalesRevenueNet", 176_655_000_000, THIRD_QUARTER_2017, "2017-07-01", "2016-09-25"),
        fact(
            "SalesRevenueNet",
            229_234_000_000,
            **{"accession": REPORT_2017, "end": "2017-09-30", "start": "2016-09-25", **annual},
        ),
    ]


def test_a_fourth_quarter_that_was_not_filed_is_the_difference_and_is_marked() -> None:
    table = apple_rows(revenue_of_nine_months_and_year())
    assert values(table, "revenue")[1:] == [
        ("2017-09-30", 3, 52_579_000_000, True),
        ("2017-09-30", 12, 229_234_000_000, False),
    ]
    (derived,) = [row for row in rows_of(table, "revenue") if row["derived"]]
    assert derived["period_start"] == date(2017, 7, 2)
    # It was known when the report was, and not when the nine months were.
    assert derived["known_at"] == datetime(2017, 11, 3, 12, 1, 37, tzinfo=UTC)
    assert (derived["form"], derived["accession"]) == ("10-K", REPORT_2017)


def test_an_amended_year_is_not_set_against_nine_months_that_were_not_amended() -> None:
    amended = {"accession": "0000320193-18-000001", "form": "10-K/A", "filed": "2018-01-10"}
    table = apple_rows(revenue_of_nine_months_and_year(**amended))
    assert values(table, "revenue")[-1][:2] == ("2017-09-30", 12)
    assert [row for row in rows_of(table, "revenue") if row["derived"]] == []


def test_an_old_year_that_a_later_report_restates_gives_no_quarter() -> None:
    facts = [
        *revenue_of_nine_months_and_year(accession=REPORT_2018),
        fact("SalesRevenueNet", 265_595_000_000, REPORT_2018, "2018-09-29", "2017-10-01"),
    ]
    assert [row for row in rows_of(apple_rows(facts), "revenue") if row["derived"]] == []


def test_two_tags_are_not_set_against_each_other() -> None:
    first, second = revenue_of_nine_months_and_year()
    table = apple_rows([first, {**second, "tag": "Revenues"}])
    assert [row for row in rows_of(table, "revenue") if row["derived"]] == []


def shares(count: int, accession: str, start: str, end: str, **more: Any) -> dict[str, Any]:
    return fact(
        "WeightedAverageNumberOfDilutedSharesOutstanding",
        count,
        accession,
        end,
        start,
        unit="shares",
        **more,
    )


def test_earnings_a_share_are_worked_out_on_the_same_number_of_shares() -> None:
    table = apple_rows(
        [
            eps(7.14, THIRD_QUARTER_2017, *NINE_MONTHS_2017),
            shares(5_274_394_000, THIRD_QUARTER_2017, *NINE_MONTHS_2017),
            eps(9.21, REPORT_2017, *YEAR_2017),
            shares(5_251_692_000, REPORT_2017, *YEAR_2017),
        ]
    )
    assert ("2017-09-30", 3, 2.07, True) in values(table, "eps_diluted")
    # An average over a year is no sum of averages.
    assert [row for row in rows_of(table, "shares_diluted") if row["derived"]] == []


def test_earnings_a_share_are_not_worked_out_over_a_split() -> None:
    # Apple's fiscal 2020: nine months before the 4-for-1 of 2020-08-31, the year after it.
    # 3.28 - 10.16 would be a loss of 6.88 a share.
    nine, year = ("2019-09-29", "2020-06-27"), ("2019-09-29", "2020-09-26")
    july = {"accession": "0000320193-20-000062", "form": "10-Q", "filed": "2020-07-31"}
    october = {"accession": "0000320193-20-000096", "form": "10-K", "filed": "2020-10-30"}
    table = apple_rows(
        [
            eps(10.16, start=nine[0], end=nine[1], **july),
            shares(4_419_931_000, start=nine[0], end=nine[1], **july),
            eps(3.28, start=year[0], end=year[1], **october),
            shares(17_528_214_000, start=year[0], end=year[1], **october),
            fact("NetIncomeLoss", 44_738_000_000, start=nine[0], end=nine[1], **july),
            fact("NetIncomeLoss", 57_411_000_000, start=year[0], end=year[1], **october),
        ]
    )
    assert [row for row in rows_of(table, "eps_diluted") if row["derived"]] == []
    assert ("2020-09-26", 3, 12_673_000_000, True) in values(table, "net_income")


def test_without_shares_to_compare_earnings_a_share_are_not_worked_out() -> None:
    table = apple_rows(
        [eps(7.14, THIRD_QUARTER_2017, *NINE_MONTHS_2017), eps(9.21, REPORT_2017, *YEAR_2017)]
    )
    assert [row for row in rows_of(table, "eps_diluted") if row["derived"]] == []


def test_a_quarter_of_the_cash_flow_is_worked_out_within_the_year_too() -> None:
    tag = "NetCashProvidedByUsedInOperatingActivities"
    table = apple_rows(
        [
            fact(tag, 28_293_000_000, "0000320193-18-000007", "2017-12-30", "2017-10-01"),
            fact(tag, 43_423_000_000, "0000320193-18-000070", "2018-03-31", "2017-10-01"),
        ]
    )
    assert values(table, "operating_cash_flow") == [
        ("2017-12-30", 3, 28_293_000_000, False),
        ("2018-03-31", 3, 15_130_000_000, True),
        ("2018-03-31", 6, 43_423_000_000, False),
    ]


def test_a_filing_that_the_list_does_not_hold_counts_from_the_end_of_its_day() -> None:
    found = statements_of(
        facts_of(companyfacts([eps(9.21, REPORT_2017, *YEAR_2017)]), "facts"),
        {},
        instrument="AAPL",
        first=date(2017, 1, 1),
        last=date(2018, 1, 1),
        until=CAPTURED_AT,
    )
    # 2017-11-03 ends in New York at 04:00 UTC of the next day.
    assert found.rows.column("known_at").to_pylist() == [
        datetime(2017, 11, 4, 3, 59, 59, 999999, tzinfo=UTC)
    ]
    assert found.notes[0].startswith("1 filings are not in the list")


def test_only_filings_of_the_years_asked_for_and_public_by_the_capture_come() -> None:
    early = apple_rows(first=date(2018, 1, 1), last=date(2018, 5, 31))
    assert {row["accession"] for row in early.to_pylist()} == {
        "0000320193-18-000007",
        "0000320193-18-000070",
    }
    # At 20:31 of the first of August Apple's report was not out yet.
    until = apple_rows(until=datetime(2018, 8, 1, 20, 31, tzinfo=UTC))
    assert max(row["period_end"] for row in until.to_pylist()) == date(2018, 4, 20)


def test_balances_of_days_on_which_no_period_ends_are_left_out() -> None:
    table = apple_rows(
        [
            eps(2.73, "0000320193-18-000070", "2017-12-31", "2018-03-31"),
            fact("Assets", 367_502_000_000, "0000320193-18-000070", "2018-03-31"),
            fact("Assets", 5, "0000320193-18-000070", "2018-02-14"),
            fact("Assets", 406_794_000_000, "0000320193-18-000070", "2017-12-30"),
        ]
    )
    assert [end for end, *_ in values(table, "total_assets")] == ["2017-12-30", "2018-03-31"]


def test_two_values_of_one_item_in_one_filing_are_left_out_and_named() -> None:
    facts = [
        cover(1, REPORT_2017, "2017-10-20"),
        cover(2, REPORT_2017, "2017-10-20"),
        *([eps(9.21, REPORT_2017, *YEAR_2017)]),
    ]
    listed = company_of(submissions(APPLE_FILINGS), "list").filings
    found = statements_of(
        facts_of(companyfacts(facts), "facts"),
        {one.accession: one for one in listed},
        instrument="AAPL",
        first=date(2017, 1, 1),
        last=date(2018, 1, 1),
        until=CAPTURED_AT,
    )
    assert {row["item"] for row in found.rows.to_pylist()} == {"eps_diluted"}
    assert "shares_outstanding of 2017-10-20 in 0000320193-17-000070" in found.notes[0]


def test_a_filing_in_two_currencies_is_read_in_the_one_that_it_uses_most() -> None:
    foreign = {"accession": "0001104659-18-000001", "form": "20-F", "filed": "2018-04-20"}
    year = {"start": "2017-01-01", "end": "2017-12-31", **foreign}
    table = apple_rows(
        [
            fact("Revenue", 600, taxonomy="ifrs-full", unit="CNY", **year),
            fact("Revenue", 92, taxonomy="ifrs-full", unit="USD", **year),
            fact("ProfitLoss", 60, taxonomy="ifrs-full", unit="CNY", **year),
        ]
    )
    assert [(row["item"], row["value"], row["unit"]) for row in table.to_pylist()] == [
        ("net_income", 60, "CNY"),
        ("revenue", 600, "CNY"),
    ]


@pytest.mark.parametrize(
    ("days", "months"),
    [
        ("2018-01-01 2018-03-31", 3),
        ("2018-01-01 2018-04-07", 3),
        ("2018-01-01 2018-06-30", 6),
        ("2018-01-01 2018-01-31", None),
        ("2018-01-01 2018-05-15", None),
    ],
)
def test_periods_of_weeks_count_as_months_and_odd_ones_are_left_out(
    days: str, months: int | None
) -> None:
    start, end = days.split()
    table = apple_rows([eps(1.0, THIRD_QUARTER_2018, start, end)])
    assert [row["period_months"] for row in table.to_pylist()] == ([months] if months else [])


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"facts": []},
        {"facts": {"us-gaap": {"Assets": {}}}},
        {"facts": {"us-gaap": {"Assets": {"units": {"USD": [{"end": "x"}]}}}}},
    ],
)
def test_another_body_is_no_company_facts(body: dict[str, object]) -> None:
    with pytest.raises(BadResponse, match="has not the form of company facts"):
        facts_of(body, "facts")


def test_a_filing_with_two_dates_is_refused() -> None:
    with pytest.raises(BadResponse, match="two forms or filing dates"):
        apple_rows(
            [
                eps(9.21, REPORT_2017, *YEAR_2017),
                eps(9.20, REPORT_2017, "2015-09-27", "2016-09-24", filed="2017-11-04"),
            ]
        )
