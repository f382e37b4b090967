"""Another wall clock and time zone for a while, for audits that nothing depends on either.

`time_machine` moves what Python code reads: ``datetime.now``, ``date.today``, instants of pandas,
most functions of ``time``; the others are moved here. Clocks that a C library reads by itself stay,
and an audit names them (`STAY`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final
from zoneinfo import ZoneInfo

# A zone whose date is not the usual one for most of the day, in a year after all data.
THEN: Final = datetime(2061, 7, 3, 3, 30, tzinfo=ZoneInfo("Pacific/Kiritimati"))
WORDS: Final = f"{THEN:%Y-%m-%d %H:%M}, {THEN.tzinfo}"
STAY: Final = "numpy.datetime64('now'), now() of DuckDB and SQLite, uuid1, the times of new files"
# Clocks of Linux that tell the time of day as CLOCK_REALTIME (0) does: the coarse one and TAI.
_OF_THE_DAY: Final = frozenset({0, 5, 11})


@contextmanager
def moved_clock() -> Iterator[None]:
    """Give this process another clock and time zone for a while; both go on."""
    import time_machine

    with time_machine.travel(THEN, tick=True):
        before = {name: getattr(time, name) for name in _moved({})}
        try:
            vars(time).update(_moved(before))
            yield
        finally:
            vars(time).update(before)


def _moved(real: Mapping[str, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    """Return the functions of ``time`` that read a clock which `time_machine` leaves alone."""
    return {
        "ctime": lambda at=None: time.asctime() if at is None else real["ctime"](at),
        "asctime": lambda at=None: real["asctime"](time.localtime() if at is None else at),
        "clock_gettime": lambda clock: real["clock_gettime"](_of(clock)),
        "clock_gettime_ns": lambda clock: real["clock_gettime_ns"](_of(clock)),
    }


def _of(clock: int) -> int:
    return 0 if clock in _OF_THE_DAY else clock
