"""When a filing counts as public, and the SEC's list of filings."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backtester.calendar import calendar_by_code
from backtester.vendors.base import BadResponse
from backtester.vendors.sec_filings import company_of, filings_of, known_at_filing
from tests.support.sec_pages import APPLE_FILINGS, columns, submissions

BEGIN = datetime.fromisoformat("1994-01-01")
NEW_YORK = calendar_by_code("XNYS")


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


@pytest.mark.parametrize(
    ("accepted", "filed", "known_at"),
    [
        # Apple's third quarter of 2018 was accepted at 16:31:48 of New York, whatever the Z says.
        ("2018-08-01T16:31:48.000Z", "2018-08-01", "2018-08-01T20:31:48+00:00"),
        # NVIDIA's of October 2024 was accepted at 21:31:22 UTC; nothing tells, so it counts later.
        ("2024-11-20T21:31:22.000Z", "2024-11-20", "2024-11-21T02:31:22+00:00"),
        # Accepted after half past five, filed on the next day: out at six in the morning.
        ("2024-08-01T18:03:34.000Z", "2024-08-02", "2024-08-02T10:00:00+00:00"),
        # NVIDIA's annual report of 2026, in New York's time in a file of UTC times.
        ("2026-02-25T16:42:19.000Z", "2026-02-25", "2026-02-25T21:42:19+00:00"),
        # Accepted on a Friday night, filed on Monday.
        ("2021-11-20T02:16:20.000Z", "2021-11-22", "2021-11-22T11:00:00+00:00"),
        # Without a mark, and with New York's own one.
        ("2018-08-01T16:31:48", "2018-08-01", "2018-08-01T20:31:48+00:00"),
        ("2018-08-01T16:31:48-04:00", "2018-08-01", "2018-08-01T20:31:48+00:00"),
        # No time at all: the end of the day in New York.
        ("", "2018-08-01", "2018-08-02T03:59:59.999999+00:00"),
    ],
)
def test_a_filing_is_known_at_the_later_reading_of_its_acceptance(
    accepted: str, filed: str, known_at: str
) -> None:
    assert known_at_filing(accepted, date.fromisoformat(filed)) == at(known_at)


@pytest.mark.parametrize(
    ("accepted", "filed", "hidden", "seen"),
    [
        ("2018-08-01T16:31:48.000Z", "2018-08-01", "2018-08-01", "2018-08-02"),
        ("2024-11-20T21:31:22.000Z", "2024-11-20", "2024-11-20", "2024-11-21"),
        ("2024-08-01T18:03:34.000Z", "2024-08-02", "2024-08-01", "2024-08-02"),
    ],
)
def test_a_filing_after_the_close_is_absent_at_it_and_there_at_the_next(
    accepted: str, filed: str, hidden: str, seen: str
) -> None:
    known_at = known_at_filing(accepted, date.fromisoformat(filed))
    assert known_at > NEW_YORK.close_utc(date.fromisoformat(hidden))
    assert known_at <= NEW_YORK.close_utc(date.fromisoformat(seen))


def test_read_as_utc_the_third_quarter_of_apple_would_have_been_seen_too_early() -> None:
    # What the rule is for: the same text, taken at its word, lies before that day's close.
    as_said = datetime.fromisoformat("2018-08-01T16:31:48.000Z")
    assert as_said <= NEW_YORK.close_utc(date(2018, 8, 1))


def test_the_hour_that_autumn_has_twice_is_read_as_the_second_one() -> None:
    # 01:30 of 2018-11-04 in New York is 05:30 and 06:30 UTC; the filing date opens later still.
    assert known_at_filing("2018-11-04T01:30:00Z", date(2018, 11, 1)) == at("2018-11-04T06:30Z")


@given(
    st.datetimes(min_value=BEGIN, max_value=BEGIN.replace(year=2029)),
    st.integers(0, 4),
)
def test_no_reading_of_an_acceptance_time_is_later_than_what_counts(
    clock: datetime, days: int
) -> None:
    filed = clock.date() + timedelta(days=days)
    known_at = known_at_filing(clock.isoformat() + "Z", filed)
    assert known_at >= clock.replace(tzinfo=UTC)
    # New York is four or five hours behind.
    assert known_at >= clock.replace(tzinfo=UTC) + timedelta(hours=4)
    assert known_at >= datetime(filed.year, filed.month, filed.day, 10, tzinfo=UTC)


@pytest.mark.parametrize("accepted", ["yesterday", "2018-13-01T00:00:00Z", "20180801163148 ET"])
def test_an_acceptance_time_that_is_none_is_refused(accepted: str) -> None:
    with pytest.raises(BadResponse, match="is no time"):
        known_at_filing(accepted, date(2018, 8, 1))


def test_the_list_gives_company_names_pages_and_filings() -> None:
    pages = [
        {
            "name": "CIK0000320193-submissions-001.json",
            "filingCount": 1206,
            "filingFrom": "1994-01-26",
            "filingTo": "2015-03-11",
        }
    ]
    company = company_of(submissions(pages=pages), "list")
    assert (company.cik, company.name, company.tickers) == (320193, "Apple Inc.", ("AAPL",))
    assert [name.name for name in company.former] == [
        "APPLE COMPUTER INC",
        "APPLE COMPUTER INC/ FA",
        "APPLE INC",
    ]
    assert [filing.accession for filing in company.filings] == [row[0] for row in APPLE_FILINGS]
    assert company.pages[0].last == date(2015, 3, 11)


def test_a_list_without_acceptance_times_counts_from_the_end_of_each_day() -> None:
    held = columns(APPLE_FILINGS[:1])
    del held["acceptanceDateTime"]
    (filing,) = filings_of(held, "list")
    assert filing.known_at == at("2017-05-04T03:59:59.999999Z")


@pytest.mark.parametrize("column", ["accessionNumber", "form", "filingDate"])
def test_a_list_without_a_column_or_with_a_short_one_is_refused(column: str) -> None:
    short = columns(APPLE_FILINGS)
    short[column] = short[column][:-1]
    with pytest.raises(BadResponse, match="has not the form"):
        list(filings_of(short, "list"))
    del short[column]
    with pytest.raises(BadResponse, match="has not the form"):
        list(filings_of(short, "list"))


@pytest.mark.parametrize("body", [{}, {"filings": []}, {"filings": {"recent": 7}}, {"cik": "x"}])
def test_another_body_is_no_list(body: dict[str, object]) -> None:
    with pytest.raises(BadResponse, match="has not the form"):
        company_of(body, "list")
