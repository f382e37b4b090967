"""The tables' definitions, and what `conform` lets through."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backtester.calendar import calendar_of
from backtester.errors import DataError
from backtester.schema import (
    CORE_TABLES,
    OPTIONAL_TABLES,
    TABLES,
    conform,
    known_at_action,
    known_at_bar,
    known_at_day,
    known_at_period_end,
    known_at_trade,
)
from tests.support.snapshots import Bar, closes, make_bar, make_bars, to_table


def bars_table(*bars: Bar) -> pa.Table:
    return to_table("bars", bars)


def test_the_nine_tables_of_a_snapshot_are_defined_and_three_of_them_are_core() -> None:
    assert CORE_TABLES == ("instruments", "bars", "actions")
    assert OPTIONAL_TABLES == (
        "statements",
        "news",
        "social",
        "macro",
        "insider",
        "prediction_markets",
    )


@pytest.mark.parametrize("name", TABLES)
def test_every_table_says_what_its_columns_mean_and_when_a_row_is_known(name: str) -> None:
    table = TABLES[name]
    assert set(table.key) <= set(table.names)
    assert len(set(table.names)) == len(table.names)
    assert table.known_at
    assert all(column.unit for column in table.columns)
    assert table.dated or name == "instruments"
    assert table.empty().num_rows == 0


def test_a_bar_is_known_at_the_close_of_its_session() -> None:
    calendar = calendar_of("AAPL")
    # 16:00 in New York is 21:00 UTC in winter and 20:00 in summer; 13:00 on the day after
    # Thanksgiving is 18:00.
    assert known_at_bar(calendar, date(2018, 1, 2)) == datetime(2018, 1, 2, 21, 0, tzinfo=UTC)
    assert known_at_bar(calendar, date(2018, 7, 2)) == datetime(2018, 7, 2, 20, 0, tzinfo=UTC)
    assert known_at_bar(calendar, date(2018, 11, 23)) == datetime(2018, 11, 23, 18, 0, tzinfo=UTC)


def test_a_split_or_dividend_is_known_at_the_open_of_its_ex_session() -> None:
    opens = known_at_action(calendar_of("AAPL"), date(2014, 6, 9))
    assert opens == datetime(2014, 6, 9, 13, 30, tzinfo=UTC)


def test_rows_come_out_in_the_order_of_their_key() -> None:
    shuffled = bars_table(
        make_bar("BBB", "2024-03-19", 5),
        make_bar("AAA", "2024-03-20", 2),
        make_bar("AAA", "2024-03-19", 1),
    )
    assert conform("bars", shuffled).column("close").to_pylist() == [1.0, 2.0, 5.0]


def test_equal_rows_become_one_and_different_ones_of_a_session_all_stay() -> None:
    first, second = make_bar("AAA", "2024-03-19", 1), make_bar("AAA", "2024-03-19", 2)
    assert conform("bars", bars_table(first, first)).num_rows == 1
    assert conform("bars", bars_table(first, second, first)).num_rows == 2


def test_days_with_equal_prices_are_different_rows() -> None:
    rows = make_bars("AAA", closes([("2024-03-18", 7), ("2024-03-19", 7), ("2024-03-20", 7)]))
    assert conform("bars", to_table("bars", rows)).num_rows == 3


def test_nulls_are_values_that_equal_each_other_when_rows_are_compared() -> None:
    table = pa.table(
        {
            "instrument": ["AAA"] * 3,
            "ex_session": [date(2024, 3, 19)] * 3,
            "known_at": [datetime(2024, 3, 19, 13, 30, tzinfo=UTC)] * 3,
            "kind": ["dividend"] * 3,
            "numerator": pa.array([None, None, None], pa.int64()),
            "denominator": pa.array([None, None, 1], pa.int64()),
            "amount": [0.5, 0.5, 0.5],
            "currency": ["USD"] * 3,
        }
    )
    assert conform("actions", table).column("denominator").to_pylist() == [1, None]


def test_a_missing_and_an_unknown_column_are_named() -> None:
    table = bars_table(make_bar("AAA", "2024-03-19", 1)).rename_columns(
        ["instrument", "day", "known_at", "open", "high", "low", "close", "volume", "currency"]
    )
    with pytest.raises(DataError, match=r"missing columns .*session.*unknown columns .*day"):
        conform("bars", table)


def test_an_undated_row_is_refused_with_its_name() -> None:
    bar = make_bar("AAA", "2024-03-19", 1)
    undated = pa.Table.from_pylist([{**vars(bar), "known_at": None}], schema=TABLES["bars"].arrow)
    with pytest.raises(DataError, match="1 rows have no known_at, the first is AAA 2024-03-19"):
        conform("bars", undated)
    assert conform("bars", undated, undated=True).num_rows == 1


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_price_that_is_no_number_is_refused_with_its_session(value: float) -> None:
    table = bars_table(
        make_bar("AAA", "2024-03-18", 1), make_bar("AAA", "2024-03-19", 1, high=value)
    )
    with pytest.raises(DataError, match="high is NaN or infinite in AAA 2024-03-19"):
        conform("bars", table)


def test_a_missing_price_is_refused_too() -> None:
    row = {**vars(make_bar("AAA", "2024-03-19", 1)), "close": None}
    with pytest.raises(DataError, match="1 rows have no close"):
        conform("bars", pa.Table.from_pylist([row], schema=TABLES["bars"].arrow))


def test_a_fraction_of_a_share_does_not_pass_for_a_whole_number() -> None:
    row = vars(make_bar("AAA", "2024-03-19", 1))
    table = pa.Table.from_pylist([row]).set_column(7, "volume", pa.array([0.5]))
    with pytest.raises(DataError, match="does not fit its type"):
        conform("bars", table)


def test_a_name_that_is_no_table_is_answered_with_those_that_are() -> None:
    with pytest.raises(DataError, match="'prices' is no table: write one of instruments, bars"):
        conform("prices", pa.table({}))


@given(order=st.permutations(range(6)), twice=st.sets(st.integers(0, 5)))
def test_any_order_and_any_copies_of_rows_conform_to_one_table(
    order: list[int], twice: set[int]
) -> None:
    rows = [
        make_bar(name, session, price)
        for name, session, price in (
            ("AAA", "2024-03-18", 1.0),
            ("AAA", "2024-03-19", 2.0),
            ("AAA", "2024-03-19", 3.0),
            ("BBB", "2024-03-18", 1.0),
            ("BBB", "2024-03-19", 1.0),
            ("CCC", "2024-03-20", 9.0),
        )
    ]
    mixed = [rows[index] for index in order] + [rows[index] for index in sorted(twice)]
    assert conform("bars", bars_table(*mixed)) == conform("bars", bars_table(*rows))


@pytest.mark.parametrize(
    ("day", "zone", "instant"),
    [
        # New York's day ends at four or five in the morning UTC, Tokyo's at three in the afternoon.
        ("2018-07-02", "America/New_York", "2018-07-03T03:59:59.999999"),
        ("2018-01-02", "America/New_York", "2018-01-03T04:59:59.999999"),
        # The day on which the clocks change still ends at its own midnight.
        ("2018-03-11", "America/New_York", "2018-03-12T03:59:59.999999"),
        ("2018-01-02", "Asia/Tokyo", "2018-01-02T14:59:59.999999"),
        ("2018-01-02", "UTC", "2018-01-02T23:59:59.999999"),
    ],
)
def test_a_row_that_names_a_day_is_known_at_the_end_of_that_day_in_its_zone(
    day: str, zone: str, instant: str
) -> None:
    known = datetime.fromisoformat(instant).replace(tzinfo=UTC)
    assert known_at_day(date.fromisoformat(day), zone) == known


@pytest.mark.parametrize(
    ("months", "half_yearly", "day"),
    [
        (3, False, "2018-08-14"),  # 45 days after the end of June
        (12, False, "2018-09-28"),  # 90
        (6, True, "2018-09-28"),
        (12, True, "2018-10-28"),  # 120
    ],
)
def test_a_statement_without_a_filing_date_is_known_so_many_days_after_its_period(
    months: int, half_yearly: bool, day: str
) -> None:
    known = known_at_period_end(date(2018, 6, 30), months, "UTC", half_yearly=half_yearly)
    assert known == known_at_day(date.fromisoformat(day), "UTC")


@pytest.mark.parametrize(
    ("traded", "day"),
    [
        ("2018-06-27", "2018-06-29"),  # Wednesday to Friday
        ("2018-06-29", "2018-07-03"),  # over a weekend
        ("2018-07-03", "2018-07-06"),  # over the Fourth of July
        ("2018-06-30", "2018-07-03"),  # on a Saturday, as on the Friday before
    ],
)
def test_a_trade_of_an_insider_without_a_filing_is_known_two_business_days_later(
    traded: str, day: str
) -> None:
    known = known_at_trade(calendar_of("AAPL"), date.fromisoformat(traded))
    assert known == known_at_day(date.fromisoformat(day), "America/New_York")


def test_posts_have_no_column_for_their_authors() -> None:
    assert "author" not in TABLES["social"].names
