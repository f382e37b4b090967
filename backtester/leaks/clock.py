"""Another wall clock and time zone for a while, for audits that nothing depends on either.

`time_machine` moves what Python code reads: ``datetime.now``, ``date.today``, the functions of
``time``. Clocks that a C library reads by itself (``numpy.datetime64("now")``) stay.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, Final
from zoneinfo import ZoneInfo

# A zone whose date is not the usual one for most of the day, in a year after all data.
THEN: Final = datetime(2061, 7, 3, 3, 30, tzinfo=ZoneInfo("Pacific/Kiritimati"))
WORDS: Final = f"{THEN:%Y-%m-%d %H:%M}, {THEN.tzinfo}"


def moved_clock() -> AbstractContextManager[Any]:
    """Return a context in which this process has another clock and time zone; both go on."""
    import time_machine

    return time_machine.travel(THEN, tick=True)
