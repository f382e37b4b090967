"""The moved clock of an audit: what reads it, and what is said to read another one."""

from __future__ import annotations

import email.utils
import sqlite3
import time
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest

from backtester.leaks.clock import STAY, THEN, moved_clock

REALTIME, COARSE, TAI = 0, 5, 11
# Each as a year, or as seconds since 1970.
MOVED: dict[str, Callable[[], Any]] = {
    "datetime.now": lambda: datetime.now(UTC).year,
    "date.today": lambda: date.today().year,  # noqa: DTZ011 - what is asked here
    "time.time": lambda: time.time(),
    "time.time_ns": lambda: time.time_ns() / 1e9,
    "time.gmtime": lambda: time.gmtime().tm_year,
    "time.localtime": lambda: time.localtime().tm_year,
    "time.strftime": lambda: time.strftime("%Y"),
    "time.ctime": lambda: time.ctime()[-4:],
    "time.asctime": lambda: time.asctime()[-4:],
    "clock_gettime": lambda: time.clock_gettime(REALTIME),
    "clock_gettime coarse": lambda: time.clock_gettime(COARSE),
    "clock_gettime tai": lambda: time.clock_gettime(TAI),
    "clock_gettime_ns": lambda: time.clock_gettime_ns(REALTIME) / 1e9,
    "clock_gettime_ns coarse": lambda: time.clock_gettime_ns(COARSE) / 1e9,
    "pandas.Timestamp.now": lambda: pd.Timestamp.now().year,
    "pandas.Timestamp('now')": lambda: pd.Timestamp("now").year,
    "pandas.Timestamp('today')": lambda: pd.Timestamp("today").year,
    "pandas.to_datetime('now')": lambda: pd.to_datetime("now").year,
    "pandas.Period.now": lambda: pd.Period.now("D").year,
    "email.utils.formatdate": lambda: email.utils.formatdate().split()[3],
}
THERE: dict[str, Callable[[Path], Any]] = {
    "numpy.datetime64('now')": lambda _: np.datetime64("now").item().year,
    "DuckDB": lambda _: duckdb.execute("SELECT year(now())").fetchall()[0][0],
    "SQLite": lambda _: (
        sqlite3.connect(":memory:").execute("SELECT strftime('%Y', 'now')").fetchone()[0]
    ),
    "uuid1": lambda _: 1582 + uuid.uuid1().time / 1e7 / 86400 / 365.2425,
    "times of new files": lambda place: _touched(place).stat().st_mtime,
}


def _touched(place: Path) -> Path:
    (place / "new").touch()
    return place / "new"


def _year(told: Any) -> int:
    number = float(told)
    return datetime.fromtimestamp(number, UTC).year if number > 1e6 else int(number)


@pytest.mark.parametrize("clock", MOVED)
def test_a_clock_that_python_reads_is_moved_and_comes_back(clock: str) -> None:
    now = _year(MOVED[clock]())
    with moved_clock():
        assert _year(MOVED[clock]()) == THEN.year == 2061
    assert _year(MOVED[clock]()) == now < 2061


@pytest.mark.parametrize("clock", THERE)
def test_a_clock_that_a_c_library_reads_stays_and_is_named(clock: str, tmp_path: Path) -> None:
    # One that moves some day is no blind spot any more, and its name has to go.
    with moved_clock():
        assert _year(THERE[clock](tmp_path)) < 2061
    assert clock in STAY


def test_clocks_that_tell_no_time_of_day_and_times_that_are_given_stay_as_they_are() -> None:
    with moved_clock():
        assert time.ctime(0.0)[-4:] in ("1969", "1970")
        assert time.asctime((2001, 2, 3, 4, 5, 6, 5, 34, 0)) == "Sat Feb  3 04:05:06 2001"
        assert time.clock_gettime(time.CLOCK_MONOTONIC) < 1e9


def test_functions_of_time_are_put_back_after_an_error_too() -> None:
    before = dict(vars(time))
    with pytest.raises(ZeroDivisionError), moved_clock():
        raise ZeroDivisionError
    assert dict(vars(time)) == before
