"""Walk-forward folds by the calendar, against dates by hand."""

from __future__ import annotations

from datetime import date
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backtester.errors import UsageError
from backtester.statistics.folds import walk_forward_folds


def spans(start: str, end: str, length: str) -> list[tuple[str, str, bool]]:
    folds = walk_forward_folds(date.fromisoformat(start), date.fromisoformat(end), length=length)
    return [(str(fold.start), str(fold.end), fold.whole) for fold in folds]


def test_half_years_of_a_year_are_two_whole_folds() -> None:
    assert spans("2018-01-01", "2018-12-31", "6M") == [
        ("2018-01-01", "2018-06-30", True),
        ("2018-07-01", "2018-12-31", True),
    ]


def test_the_last_fold_is_cut_at_the_windows_end_and_says_so() -> None:
    assert spans("2018-02-15", "2018-07-01", "1Q") == [
        ("2018-02-15", "2018-05-14", True),
        ("2018-05-15", "2018-07-01", False),
    ]


def test_a_fold_from_the_31st_starts_on_the_last_day_of_shorter_months_and_does_not_drift() -> None:
    starts = [start for start, _, _ in spans("2020-01-31", "2020-05-30", "1m")]
    assert starts == ["2020-01-31", "2020-02-29", "2020-03-31", "2020-04-30"]


def test_weeks_days_and_years_are_lengths_too() -> None:
    assert spans("2018-01-01", "2018-01-10", "1W")[1] == ("2018-01-08", "2018-01-10", False)
    assert len(spans("2018-01-01", "2018-01-10", "2D")) == 5
    assert spans("2016-02-29", "2018-02-27", "1Y")[1][0] == "2017-02-28"


def test_a_fold_that_outlasts_the_calendar_ends_with_the_window() -> None:
    assert spans("2018-01-01", "2018-01-10", "9999Y") == [("2018-01-01", "2018-01-10", False)]


@pytest.mark.parametrize("length", ["", "6", "M", "0M", "6 M", "-1M", "6MM", "1.5Y"])
def test_a_length_that_is_none_is_named(length: str) -> None:
    with pytest.raises(UsageError, match="6M"):
        walk_forward_folds(date(2018, 1, 1), date(2018, 2, 1), length=length)


def test_a_window_that_ends_before_it_starts_is_refused() -> None:
    with pytest.raises(UsageError, match="before it starts"):
        walk_forward_folds(date(2018, 2, 1), date(2018, 1, 1), length="1M")


@given(
    st.dates(date(1990, 1, 1), date(2029, 1, 1)),
    st.integers(0, 900),
    st.integers(1, 30),
    st.sampled_from("DWMQY"),
)
def test_every_day_is_in_exactly_one_fold(start: date, days: int, count: int, unit: str) -> None:
    end = date.fromordinal(start.toordinal() + days)
    folds = walk_forward_folds(start, end, length=f"{count}{unit}")

    assert folds[0].start == start
    assert folds[-1].end == end
    assert all(
        later.start.toordinal() == earlier.end.toordinal() + 1 for earlier, later in pairwise(folds)
    )
    assert all(fold.whole for fold in folds[:-1])
    assert sum(fold.holds(end) for fold in folds) == 1
