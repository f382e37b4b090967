"""From when on a vintage is known: its stated time of day, else the end of the day."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backtester.vendors.release_times import RELEASES, known_at_vintage, stated_release
from tradingagents_core.tools.series import SERIES


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("series", "vintage", "instant"),
    [
        ("CPIAUCSL", "2023-03-14", "2023-03-14T12:30"),  # 08:30 in New York, in summer
        ("CPIAUCSL", "2023-02-14", "2023-02-14T13:30"),  # and in winter
        ("PAYEMS", "2018-07-06", "2018-07-06T12:30"),
        ("GDPC1", "2018-07-27", "2018-07-27T12:30"),
        ("INDPRO", "2018-07-17", "2018-07-17T13:15"),
        ("DFEDTARU", "2018-06-13", "2018-06-13T18:00"),
        ("DGS10", "2018-06-29", "2018-06-29T20:15"),  # after the close of that day
        ("CP0000EZ19M086NEST", "2023-03-17", "2023-03-17T10:00"),  # 11:00 in Brussels
        ("ECBDFR", "2023-03-16", "2023-03-16T13:15"),
        ("VIXCLS", "2018-06-29", "2018-06-30T04:59:59.999999"),  # no stated time
        ("VIXCLS", "2018-12-31", "2019-01-01T05:59:59.999999"),
    ],
)
@pytest.mark.usefixtures("time_zone")
def test_a_vintage_is_known_from_its_stated_time_or_the_end_of_its_day(
    series: str, vintage: str, instant: str
) -> None:
    assert known_at_vintage(series, date.fromisoformat(vintage)) == utc(instant)


@given(
    series=st.sampled_from([row.id for row in SERIES]),
    vintage=st.dates(date(1970, 1, 2), date(2040, 12, 31)),
)
def test_no_vintage_is_known_before_its_day_has_begun_in_new_york(
    series: str, vintage: date
) -> None:
    known = known_at_vintage(series, vintage)
    begins = datetime(vintage.year, vintage.month, vintage.day, 5, tzinfo=UTC)
    assert (known - begins).total_seconds() > 0


def test_each_series_has_one_time() -> None:
    named = Counter(series for release in RELEASES for series in release.series)
    assert {series for series, count in named.items() if count > 1} == set()
    assert stated_release("VIXCLS") is None
