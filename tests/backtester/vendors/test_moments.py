"""A date is the end of its day where it was written, and no zone is ever the machine's."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest

from backtester.vendors.moments import end_of_day, from_epoch, from_text, known_from


@pytest.mark.parametrize(
    ("day", "zone", "end"),
    [
        (date(2024, 1, 5), "America/New_York", "2024-01-06T04:59:59.999999+00:00"),
        (date(2024, 7, 5), "America/New_York", "2024-07-06T03:59:59.999999+00:00"),
        # The clocks go forward and back on these days.
        (date(2024, 3, 10), "America/New_York", "2024-03-11T03:59:59.999999+00:00"),
        (date(2024, 11, 3), "America/New_York", "2024-11-04T04:59:59.999999+00:00"),
        (date(2024, 1, 5), "Asia/Tokyo", "2024-01-05T14:59:59.999999+00:00"),
    ],
)
def test_a_date_stands_for_the_end_of_that_day(day: date, zone: str, end: str) -> None:
    assert end_of_day(day, zone) == datetime.fromisoformat(end)


@pytest.mark.parametrize("unit", [1, 1_000, 1_000_000, 1_000_000_000])
def test_an_epoch_is_read_by_its_size(unit: int) -> None:
    assert from_epoch(1_596_589_501 * unit) == datetime(2020, 8, 5, 1, 5, 1, tzinfo=UTC)


def test_a_text_is_an_instant_a_date_or_an_error() -> None:
    moment = datetime(2024, 5, 1, 15, 30, tzinfo=UTC)
    assert from_text("2024-05-01T15:30:00Z") == moment
    assert from_text("2024-05-01T11:30:00-04:00") == moment
    assert from_text("20240501T153000", "UTC") == moment
    assert from_text("20240501") == from_text("2024-05-01") == date(2024, 5, 1)
    assert from_text("2024-05-01 11:30", "America/New_York") == moment
    with pytest.raises(ValueError, match="names no zone"):
        from_text("2024-05-01 11:30")
    with pytest.raises(ValueError, match="yesterday"):
        from_text("yesterday")


def test_what_is_known_from_a_date_is_known_at_its_end() -> None:
    assert known_from("2024-05-01") == datetime(2024, 5, 2, 3, 59, 59, 999999, tzinfo=UTC)
    assert known_from("2024-05-01T00:30:00Z") == datetime(2024, 5, 1, 0, 30, tzinfo=UTC)
