"""Sessions, their instants, and grids of decision dates; expected values from the exchanges."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backtester import calendar as calendars
from backtester.calendar import Calendar, calendar_by_code, calendar_of, grid_sessions
from backtester.errors import DataError, UsageError

NEW_YORK = calendar_by_code("XNYS")
DATES_OF_2018 = st.dates(date(2018, 1, 1), date(2018, 12, 31))


def days(*texts: str) -> tuple[date, ...]:
    return tuple(date.fromisoformat(text) for text in texts)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


# ------------------------------------------------------------------------------ sessions


def test_a_year_in_new_york_has_its_known_sessions_and_holidays() -> None:
    year = NEW_YORK.sessions(date(2018, 1, 1), date(2018, 12, 31))
    assert len(year) == 251
    holidays = days(
        "2018-01-01", "2018-01-15", "2018-02-19", "2018-03-30", "2018-05-28", "2018-07-04",
        "2018-09-03", "2018-11-22", "2018-12-05", "2018-12-25",
    )  # fmt: skip
    weekdays = {
        day
        for day in (date(2018, 1, 1) + timedelta(days=n) for n in range(365))
        if day.weekday() < 5
    }
    assert set(year) == weekdays - set(holidays)


@pytest.mark.parametrize(
    ("symbol", "session", "opens", "closes"),
    [
        ("AAPL", "2018-03-09", "2018-03-09 14:30", "2018-03-09 21:00"),
        ("AAPL", "2018-03-12", "2018-03-12 13:30", "2018-03-12 20:00"),
        ("AAPL", "2018-07-03", "2018-07-03 13:30", "2018-07-03 17:00"),
        ("AAPL", "2018-11-23", "2018-11-23 14:30", "2018-11-23 18:00"),
        ("AAPL", "2018-12-24", "2018-12-24 14:30", "2018-12-24 18:00"),
        ("7203.T", "2024-03-22", "2024-03-22 00:00", "2024-03-22 06:00"),
        ("7203.T", "2024-11-05", "2024-11-05 00:00", "2024-11-05 06:30"),
        ("0700.HK", "2024-03-22", "2024-03-22 01:30", "2024-03-22 08:00"),
        ("REL.L", "2024-07-01", "2024-07-01 07:00", "2024-07-01 15:30"),
        ("SAP.DE", "2024-07-01", "2024-07-01 07:00", "2024-07-01 15:30"),
        ("BTC-USD", "2024-03-23", "2024-03-23 00:00", "2024-03-24 00:00"),
        ("EURUSD=X", "2024-03-22", "2024-03-22 00:00", "2024-03-23 00:00"),
        ("ES=F", "2024-03-22", "2024-03-21 22:00", "2024-03-22 22:00"),
    ],
)
def test_a_session_opens_and_closes_at_its_instant(
    symbol: str, session: str, opens: str, closes: str
) -> None:
    calendar, day = calendar_of(symbol), date.fromisoformat(session)
    assert (calendar.open_utc(day), calendar.close_utc(day)) == (utc(opens), utc(closes))


def test_tokyo_comes_before_new_york_on_one_date() -> None:
    day = date(2024, 3, 22)
    assert calendar_of("7203.T").close_utc(day) < NEW_YORK.close_utc(day)


def test_crypto_trades_at_the_weekend_and_currencies_do_not() -> None:
    saturday = date(2024, 3, 23)
    assert calendar_of("BTC-USD").is_session(saturday)
    assert not calendar_of("EURUSD=X").is_session(saturday)


@pytest.mark.parametrize(
    ("symbol", "session", "count", "target"),
    [
        ("AAPL", "2024-12-02", 21, "2025-01-02"),
        ("AAPL", "2024-01-08", 5, "2024-01-16"),  # over Martin Luther King's day
        ("AAPL", "2024-03-28", 1, "2024-04-01"),  # over Good Friday and a weekend
        ("AAPL", "2024-04-01", -1, "2024-03-28"),
        ("7203.T", "2024-03-18", 3, "2024-03-22"),  # over the equinox
        ("AAPL", "2024-03-28", 0, "2024-03-28"),
    ],
)
def test_a_shift_counts_sessions_and_skips_closed_days(
    symbol: str, session: str, count: int, target: str
) -> None:
    assert calendar_of(symbol).shift(date.fromisoformat(session), count) == date.fromisoformat(
        target
    )


def test_the_distance_of_two_sessions_undoes_the_shift() -> None:
    assert NEW_YORK.distance(date(2024, 12, 2), date(2024, 12, 30)) == 19
    assert NEW_YORK.distance(date(2024, 12, 2), date(2024, 12, 31)) == 20
    assert NEW_YORK.distance(date(2025, 1, 2), date(2024, 12, 2)) == -21


def test_the_last_session_on_or_before_a_date() -> None:
    assert NEW_YORK.last_on_or_before(date(2024, 3, 29)) == date(2024, 3, 28)
    assert NEW_YORK.last_on_or_before(date(2024, 3, 28)) == date(2024, 3, 28)
    assert NEW_YORK.last_on_or_before(date(2024, 3, 31)) == date(2024, 3, 28)


def test_a_session_has_closed_at_its_very_close_and_not_before() -> None:
    close = utc("2024-03-28 20:00")
    assert NEW_YORK.last_closed(close) == date(2024, 3, 28)
    assert NEW_YORK.last_closed(close - timedelta(microseconds=1)) == date(2024, 3, 27)
    assert NEW_YORK.last_closed(close + timedelta(days=3)) == date(2024, 3, 28)


def test_dates_that_are_no_session_are_refused_with_the_one_before() -> None:
    with pytest.raises(DataError, match=r"2024-03-29 is no session .* before is 2024-03-28"):
        NEW_YORK.close_utc(date(2024, 3, 29))
    with pytest.raises(DataError, match="no session"):
        NEW_YORK.shift(date(2024, 3, 30), 1)


@pytest.mark.parametrize(
    "ask",
    [
        lambda c: c.sessions(date(1989, 12, 1), date(1990, 2, 1)),
        lambda c: c.sessions(date(2030, 1, 1), date(2031, 1, 1)),
        lambda c: c.is_session(date(2031, 1, 1)),
        lambda c: c.last_on_or_before(date(1989, 12, 31)),
        lambda c: c.last_on_or_before(date(1990, 1, 1)),
        lambda c: c.close_utc(date(2031, 1, 2)),
        lambda c: c.shift(date(2030, 12, 31), 1),
        lambda c: c.shift(date(1990, 1, 2), -1),
        lambda c: c.last_closed(utc("1989-12-31 12:00")),
    ],
)
def test_what_lies_beyond_the_known_years_is_an_error_and_no_guess(ask: object) -> None:
    assert callable(ask)
    with pytest.raises(DataError, match="calendar XNYS"):
        ask(NEW_YORK)


def test_a_reversed_range_has_no_session() -> None:
    assert NEW_YORK.sessions(date(2024, 3, 20), date(2024, 3, 19)) == ()


@pytest.mark.parametrize("code", ["XNYS", "XTKS", "CMES", "24/7"])
def test_sessions_and_instants_do_not_depend_on_the_zone_of_the_machine(
    time_zone: str, code: str
) -> None:
    assert time_zone
    known = calendar_by_code(code)
    fresh = calendars._build(code)
    assert fresh is not known
    year = known.sessions(date(2018, 1, 1), date(2018, 12, 31))
    assert fresh.sessions(date(2018, 1, 1), date(2018, 12, 31)) == year
    assert [fresh.close_utc(day) for day in year] == [known.close_utc(day) for day in year]
    if code == "XNYS":
        assert fresh.close_utc(date(2018, 11, 23)) == utc("2018-11-23 18:00")


def test_a_calendar_is_built_once_also_by_many_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []
    build = calendars._build

    def counted(code: str) -> Calendar:
        built.append(code)
        return build(code)

    monkeypatch.setattr(calendars, "_built", {})
    monkeypatch.setattr(calendars, "_build", counted)
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda _: id(calendar_by_code("24/7")), range(32)))
    assert (len(found), built) == (1, ["24/7"])


def test_a_calendar_travels_between_processes_as_its_code() -> None:
    rebuild, arguments = NEW_YORK.__reduce__()
    assert (rebuild, arguments) == (calendar_by_code, ("XNYS",))
    assert pickle.loads(pickle.dumps(NEW_YORK)) is NEW_YORK


# --------------------------------------------------------------------------------- grids


def test_a_friday_that_is_closed_gives_the_thursday_before() -> None:
    assert grid_sessions(NEW_YORK, "weekly", date(2024, 3, 15), date(2024, 4, 12)) == days(
        "2024-03-15", "2024-03-22", "2024-03-28", "2024-04-05", "2024-04-12"
    )


def test_a_listed_friday_that_is_closed_moves_to_the_session_before() -> None:
    fridays = days("2024-03-15", "2024-03-22", "2024-03-29", "2024-04-05", "2024-04-12")
    found = grid_sessions(NEW_YORK, fridays, date(2024, 3, 15), date(2024, 4, 12))
    assert found == days("2024-03-15", "2024-03-22", "2024-03-28", "2024-04-05", "2024-04-12")


def test_a_daily_grid_has_each_session_once_over_a_long_weekend() -> None:
    assert grid_sessions(NEW_YORK, "daily", date(2024, 3, 28), date(2024, 4, 2)) == days(
        "2024-03-28", "2024-04-01", "2024-04-02"
    )


def test_listed_dates_that_move_to_one_session_give_it_once() -> None:
    listed = days("2024-03-31", "2024-03-28", "2024-03-29", "2024-03-30", "2024-04-01")
    found = grid_sessions(NEW_YORK, listed, date(2024, 3, 28), date(2024, 4, 2))
    assert found == days("2024-03-28", "2024-04-01")


def test_a_year_of_whole_weeks_has_52_and_not_the_week_that_ends_in_the_next_year() -> None:
    found = grid_sessions(NEW_YORK, "weekly", date(2018, 1, 1), date(2018, 12, 31))
    assert len(found) == 52
    assert (found[0], found[-1]) == days("2018-01-05", "2018-12-28")


@pytest.mark.parametrize(
    ("end", "last"),
    [
        ("2018-06-27", "2018-06-22"),  # a Wednesday cuts the week
        ("2018-06-28", "2018-06-22"),
        ("2018-06-29", "2018-06-29"),
        ("2018-07-01", "2018-06-29"),
        ("2018-03-28", "2018-03-23"),
        ("2018-03-29", "2018-03-29"),  # the week of Good Friday ends on its Thursday
    ],
)
def test_a_week_that_the_end_of_the_run_cuts_gives_no_decision(end: str, last: str) -> None:
    found = grid_sessions(NEW_YORK, "weekly", date(2018, 1, 1), date.fromisoformat(end))
    assert found[-1] == date.fromisoformat(last)


def test_months_end_on_their_last_session_and_a_cut_one_gives_none() -> None:
    found = grid_sessions(NEW_YORK, "monthly", date(2018, 1, 1), date(2018, 6, 28))
    assert found == days("2018-01-31", "2018-02-28", "2018-03-29", "2018-04-30", "2018-05-31")


def test_every_third_session_counts_from_the_first_date() -> None:
    found = grid_sessions(NEW_YORK, "every 3", date(2024, 3, 23), date(2024, 4, 5))
    assert found == days("2024-03-25", "2024-03-28", "2024-04-03")


def test_each_market_has_a_grid_of_its_own() -> None:
    week = (date(2024, 3, 18), date(2024, 3, 24))
    assert grid_sessions(calendar_of("7203.T"), "daily", *week) == days(
        "2024-03-18", "2024-03-19", "2024-03-21", "2024-03-22"
    )
    assert grid_sessions(calendar_of("BTC-USD"), "weekly", *week) == days("2024-03-24")
    assert grid_sessions(calendar_of("^GSPC"), "weekly", *week) == days("2024-03-22")


def test_a_week_that_opens_on_sunday_ends_on_thursday() -> None:
    riyadh = calendar_of("2222.SR")
    assert grid_sessions(riyadh, "weekly", date(2024, 5, 5), date(2024, 5, 19)) == days(
        "2024-05-09", "2024-05-16"
    )


@pytest.mark.parametrize(
    ("grid", "start", "end", "message"),
    [
        ("daily", "2024-03-30", "2024-03-31", "no session of calendar XNYS"),
        ("weekly", "2024-03-25", "2024-03-27", "no session"),
        ((), "2024-03-25", "2024-03-27", "grid 'list' has no session"),
        ("daily", "2024-04-02", "2024-04-01", "before start"),
        ("fortnightly", "2024-03-25", "2024-04-27", "write daily, weekly, monthly"),
        ("every 0", "2024-03-25", "2024-04-27", "every N"),
        ("every -1", "2024-03-25", "2024-04-27", "every N"),
        ("every", "2024-03-25", "2024-04-27", "every N"),
        ((date(2024, 5, 1),), "2024-03-25", "2024-04-27", "2024-05-01 is outside"),
    ],
)
def test_a_grid_that_cannot_be_is_a_usage_error(
    grid: str | tuple[date, ...], start: str, end: str, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        grid_sessions(NEW_YORK, grid, date.fromisoformat(start), date.fromisoformat(end))


@pytest.mark.parametrize("grid", ["daily", "weekly", "monthly", "every 4"])
@given(data=st.data())
def test_a_longer_run_decides_on_the_same_sessions_and_then_on_more(
    grid: str, data: st.DataObject
) -> None:
    start = date(2018, 1, 1)
    early, late = sorted((data.draw(DATES_OF_2018), data.draw(DATES_OF_2018)))
    try:
        short = grid_sessions(NEW_YORK, grid, start, early)
    except UsageError:
        short = ()
    try:
        long = grid_sessions(NEW_YORK, grid, start, late)
    except UsageError:
        long = ()
    assert long[: len(short)] == short
    assert all(day > early for day in long[len(short) :])


@given(start=DATES_OF_2018, length=st.integers(0, 400))
def test_every_grid_gives_ascending_sessions_within_its_range(start: date, length: int) -> None:
    end = start + timedelta(days=length)
    for grid in ("daily", "weekly", "monthly", "every 2"):
        try:
            found = grid_sessions(NEW_YORK, grid, start, end)
        except UsageError:
            continue
        assert list(found) == sorted(set(found))
        assert all(NEW_YORK.is_session(day) and start <= day <= end for day in found)


def test_grids_do_not_depend_on_the_zone_of_the_machine(time_zone: str) -> None:
    assert time_zone
    fresh = calendars._build("XNYS")
    assert grid_sessions(fresh, "weekly", date(2024, 3, 15), date(2024, 4, 12)) == days(
        "2024-03-15", "2024-03-22", "2024-03-28", "2024-04-05", "2024-04-12"
    )
