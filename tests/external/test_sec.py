"""The SEC's own files of Apple and NVIDIA, with figures read by hand from the filings."""

from __future__ import annotations

import gzip
import json
import os
from datetime import UTC, date, datetime, time
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from backtester.calendar import calendar_by_code
from backtester.snapshots.snapshot import Snapshot, open_snapshot
from backtester.snapshots.view import AsOfView
from backtester.vendors.sec_facts import facts_of, statements_of
from backtester.vendors.sec_filings import Filing, company_of
from tradingagents_core.statements import Books, Figure, books_of
from tradingagents_core.tools import run_tool

FOLDER = Path(os.environ.get("BACKTESTER_EXTRA_DATA", "")) / "sec"
NEW_YORK = calendar_by_code("XNYS")

pytestmark = pytest.mark.skipif(
    not os.environ.get("BACKTESTER_EXTRA_DATA") or not FOLDER.is_dir(),
    reason="BACKTESTER_EXTRA_DATA names no folder with files of the SEC",
)


def body(kind: str, symbol: str) -> dict[str, Any]:
    with gzip.open(FOLDER / f"{kind}_{symbol}.json.gz", "rt", encoding="utf-8") as stream:
        read: dict[str, Any] = json.load(stream)
    return read


@cache
def filings(symbol: str) -> dict[str, Filing]:
    listed = company_of(body("submissions", symbol), symbol).filings
    return {filing.accession: filing for filing in listed}


@cache
def statements(symbol: str) -> pa.Table:
    return statements_of(
        facts_of(body("companyfacts", symbol), symbol),
        filings(symbol),
        instrument=symbol,
        first=date(2009, 1, 1),
        last=date(2026, 12, 31),
        until=datetime(2026, 12, 31, tzinfo=UTC),
    ).rows


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    demo = open_snapshot("us-2013-2018", Path(tmp_path_factory.mktemp("data")))
    tables = {name: demo.table(name) for name in ("instruments", "bars", "actions")}
    tables["statements"] = pa.concat_tables([statements("AAPL"), statements("NVDA")])
    return Snapshot.from_tables(tables, declared_start=demo.start, declared_end=demo.end)


def view(snapshot: Snapshot, day: str) -> AsOfView:
    session = date.fromisoformat(day)
    return AsOfView(
        snapshot,
        cutoff=NEW_YORK.close_utc(session),
        session=session,
        decision_time="close",
        on_read=lambda _: None,
    )


def seen(snapshot: Snapshot, symbol: str, day: str) -> Books:
    return books_of(view(snapshot, day).rows("statements", symbol))


def at(books: Books, statement: str, item: str, months: int, end: str) -> Figure:
    (found,) = [
        figure
        for figure in books.series(statement, item, months)
        if figure.period_end == date.fromisoformat(end)
    ]
    return found


def known_at(symbol: str, accession: str) -> datetime:
    return filings(symbol)[accession].known_at


def test_acceptance_times_of_both_clocks_are_read_by_one_rule() -> None:
    assert known_at("AAPL", "0000320193-18-000100") == datetime(2018, 8, 1, 20, 31, 48, tzinfo=UTC)
    # The 10-Q for 2024-06-29: accepted at 18:03 New York, of the next day's date.
    assert known_at("AAPL", "0000320193-24-000081") == datetime(2024, 8, 2, 10, 0, tzinfo=UTC)
    # NVIDIA's 10-Q for 2024-10-27 is in UTC, its 10-K of February 2026 in New York's time.
    assert known_at("NVDA", "0001045810-24-000316") == datetime(2024, 11, 21, 2, 31, 22, tzinfo=UTC)
    assert known_at("NVDA", "0001045810-26-000021") == datetime(2026, 2, 25, 21, 42, 19, tzinfo=UTC)


@pytest.mark.parametrize(
    ("symbol", "accession", "hidden", "visible"),
    [
        ("AAPL", "0000320193-18-000100", "2018-08-01", "2018-08-02"),
        ("AAPL", "0000320193-24-000081", "2024-08-01", "2024-08-02"),
        ("NVDA", "0001045810-24-000316", "2024-11-20", "2024-11-21"),
    ],
)
def test_a_report_is_absent_at_one_close_and_there_at_the_next(
    symbol: str, accession: str, hidden: str, visible: str
) -> None:
    instant = known_at(symbol, accession)
    assert NEW_YORK.close_utc(date.fromisoformat(hidden)) < instant
    assert instant <= NEW_YORK.close_utc(date.fromisoformat(visible))


def test_no_quarterly_or_annual_report_is_visible_before_its_filing_date_in_new_york() -> None:
    for symbol in ("AAPL", "NVDA"):
        for filing in filings(symbol).values():
            if filing.form in ("10-Q", "10-K"):
                # Six in the morning is ten o'clock UTC in summer and eleven in winter.
                assert filing.known_at >= datetime.combine(filing.filed, time(10), UTC)


def test_at_its_word_the_list_would_show_35_reports_of_apple_at_a_close_too_early() -> None:
    raw = body("submissions", "AAPL")["filings"]["recent"]
    columns = (raw["accessionNumber"], raw["form"], raw["acceptanceDateTime"])
    early = 0
    for accession, form, accepted in zip(*columns, strict=True):
        if form in ("10-Q", "10-K"):
            # Some close lies between the time as it is written and the time as it counts.
            closed = NEW_YORK.last_closed(known_at("AAPL", accession))
            early += NEW_YORK.close_utc(closed) >= datetime.fromisoformat(accepted)
    assert early == 35


def test_apple_in_june_2018(snapshot: Snapshot) -> None:
    books = seen(snapshot, "AAPL", "2018-06-29")
    # Form 10-Q for 2018-03-31, filed 2018-05-02: page of operations, balance sheet, cash flows.
    assert at(books, "income", "revenue", 3, "2018-03-31").value == 61_137e6
    assert at(books, "income", "net_income", 3, "2018-03-31").value == 13_822e6
    assert at(books, "income", "eps_diluted", 3, "2018-03-31").value == 2.73
    assert at(books, "balance", "total_assets", 0, "2018-03-31").value == 367_502e6
    assert at(books, "balance", "equity", 0, "2018-03-31").value == 126_878e6
    assert at(books, "cashflow", "operating_cash_flow", 6, "2018-03-31").value == 43_423e6
    # Form 10-K for 2017-09-30.
    year = at(books, "income", "revenue", 12, "2017-09-30")
    assert (year.value, year.form, year.accession) == (229_234e6, "10-K", "0000320193-17-000070")
    assert at(books, "income", "eps_diluted", 3, "2017-09-30").value == 2.07


def test_the_value_of_apple_in_june_and_in_may_2018(snapshot: Snapshot) -> None:
    june = run_tool(view(snapshot, "2018-06-29"), "get_fundamentals", '{"ticker": "AAPL"}').text
    assert "market_cap: 909841195180 USD (close 185.11 of 2018-06-29 x 4915138000 shares" in june
    assert "trailing_eps: 10.36 USD a share" in june
    assert "trailing_pe: 17.868" in june.splitlines()
    may = run_tool(view(snapshot, "2018-05-01"), "get_fundamentals", '{"ticker": "AAPL"}').text
    assert "x 5074013000 shares as of 2018-01-19;" in may


def test_the_third_quarter_of_2018_is_first_seen_on_the_second_of_august(
    snapshot: Snapshot,
) -> None:
    before, after = (seen(snapshot, "AAPL", day) for day in ("2018-08-01", "2018-08-02"))
    newest = [books.newest("income", "eps_diluted", 3) for books in (before, after)]
    assert [(one.period_end, one.value) for one in newest if one is not None] == [
        (date(2018, 3, 31), 2.73),
        (date(2018, 6, 30), 2.34),
    ]


def test_a_restated_item_changes_when_the_restating_report_comes(snapshot: Snapshot) -> None:
    # Debt issuance costs moved out of the assets in fiscal 2016: the balance of 2015-09-26 says
    # 290,479 million in the report of 2015, 290,345 in that of 2016 (filed 2016-10-26).
    before = at(seen(snapshot, "AAPL", "2015-12-31"), "balance", "total_assets", 0, "2015-09-26")
    after = at(seen(snapshot, "AAPL", "2016-12-30"), "balance", "total_assets", 0, "2015-09-26")
    assert (before.value, before.restated) == (290_479e6, False)
    assert (after.value, after.restated) == (290_345e6, True)


def test_nvidia_in_february_2016_and_in_november_2018(snapshot: Snapshot) -> None:
    # Form 10-Q for 2015-10-25: revenue 1,305 million, net income 246, 0.44 a share.
    winter = seen(snapshot, "NVDA", "2016-02-12")
    assert at(winter, "income", "revenue", 3, "2015-10-25").value == 1_305e6
    assert at(winter, "income", "net_income", 3, "2015-10-25").value == 246e6
    assert at(winter, "income", "eps_diluted", 3, "2015-10-25").value == 0.44
    # Form 10-Q for 2018-10-28, filed 2018-11-15: revenue 3,181 million, 1.97 a share.
    autumn = seen(snapshot, "NVDA", "2018-11-30")
    assert at(autumn, "income", "revenue", 3, "2018-10-28").value == 3_181e6
    assert at(autumn, "income", "eps_diluted", 3, "2018-10-28").value == 1.97
    assert at(autumn, "cover", "shares_outstanding", 0, "2018-11-09").value == 610e6


def test_earnings_over_apples_split_of_2014_are_on_the_basis_of_the_price(
    snapshot: Snapshot,
) -> None:
    text = run_tool(view(snapshot, "2014-06-30"), "get_fundamentals", '{"ticker": "AAPL"}').text
    # 861,381,000 shares of April times 7, times 92.93; 7.47, 8.26, 14.50 and 11.62 by 7.
    assert "market_cap: 560336954310 USD" in text
    assert "2014-03-29 1.66;" in text
    assert "trailing_eps: 5.9786 USD a share" in text


def test_a_fourth_quarter_that_apple_did_not_file_is_worked_out_and_marked() -> None:
    # Fiscal 2021: 365,817 million in the year, 282,457 in nine months.
    rows = [
        row
        for row in statements("AAPL").to_pylist()
        if row["item"] == "revenue" and row["period_end"] == date(2021, 9, 25)
    ]
    derived = [row for row in rows if row["period_months"] == 3]
    assert [(row["value"], row["derived"], row["form"]) for row in derived] == [
        (83_360e6, True, "10-K")
    ]
    # No quarter a share is worked out over the split of 2020.
    assert not [
        row
        for row in statements("AAPL").to_pylist()
        if row["item"] == "eps_diluted" and row["derived"] and row["period_end"].year == 2020
    ]


def test_annual_figures_come_from_annual_forms_alone() -> None:
    for symbol in ("AAPL", "NVDA"):
        forms = {
            row["form"] for row in statements(symbol).to_pylist() if row["period_months"] == 12
        }
        assert forms <= {"10-K", "10-K/A"}
