"""Exchange calendars: the sessions of a market, and grids of decision dates on them.

`markets` says which calendar a symbol trades on. The calendars themselves come from
`exchange_calendars`, built once a process between fixed bounds (its own default bounds move with
the day on which it runs) and kept as plain arrays. Session dates are plain dates in the exchange's
zone, instants are UTC; the machine's zone plays no part.
"""

from __future__ import annotations

import re
import threading
import warnings
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from backtester.errors import DataError, UsageError
from backtester.markets import CODES, calendar_code
from backtester.spellings import shown

# Fixed, so that no result depends on the day of the run.
FIRST_DAY = date(1990, 1, 1)
LAST_DAY = date(2030, 12, 31)
# Calendars that the library knows for a shorter time: lunar holidays are published a year ahead.
KNOWN_YEARS: Mapping[str, tuple[date, date]] = MappingProxyType(
    {
        "XTKS": (date(1997, 1, 1), LAST_DAY),
        "XBOM": (date(1997, 1, 1), date(2026, 12, 31)),
        "XSES": (FIRST_DAY, date(2026, 12, 31)),
        "XSHG": (date(1990, 12, 3), date(2026, 12, 31)),
        "XSAU": (date(2021, 1, 1), date(2029, 12, 31)),
    }
)

# Longer digits would not even read as a number.
_STEP = re.compile(r"[1-9][0-9]{0,5}")

# Where Sunday opens the trading week, a week from Monday would end on the next one's first day.
_SUNDAY_WEEKS = frozenset({"XSAU"})


class Calendar:
    """Answer for the sessions of one exchange. Build it with `calendar_of` or `calendar_by_code`.

    Attributes:
        code: `exchange_calendars` code.
        tz: Name of the exchange's zone.
        first_day: First date whose sessions are known.
        last_day: Last one.
    """

    def __init__(
        self,
        *,
        code: str,
        tz: str,
        first_day: date,
        last_day: date,
        sessions: npt.NDArray[np.datetime64],
        opens: npt.NDArray[np.datetime64],
        closes: npt.NDArray[np.datetime64],
    ) -> None:
        """Hold the sessions (ascending days) and their instants (UTC microseconds)."""
        self.code = code
        self.tz = tz
        self._dates: tuple[date, ...] = tuple(sessions.astype("datetime64[D]").tolist())
        self._position = {day: index for index, day in enumerate(self._dates)}
        self._days = sessions.astype("datetime64[D]")
        self._opens = opens.astype("datetime64[us]")
        self._closes = closes.astype("datetime64[us]")
        self.first_day = first_day
        self.last_day = last_day

    def __repr__(self) -> str:
        """Return the code."""
        return f"Calendar({self.code!r})"

    def __reduce__(self) -> tuple[object, tuple[str]]:
        """Travel to another process as a code; the arrays are built there once."""
        return calendar_by_code, (self.code,)

    def sessions(self, start: date, end: date) -> tuple[date, ...]:
        """Return the sessions with ``start <= session <= end``, oldest first.

        Raises:
            DataError: Where the range reaches beyond what the calendar knows.
        """
        if start > end:
            return ()
        self._require_known(start)
        self._require_known(end)
        return self._dates[self._left(start) : self._left(end + timedelta(days=1))]

    def is_session(self, day: date) -> bool:
        """Say whether a date is a session.

        Raises:
            DataError: For a date beyond what the calendar knows.
        """
        if day in self._position:
            return True
        self._require_known(day)
        return False

    def open_utc(self, session: date) -> datetime:
        """Return the instant at which a session opens, UTC.

        Raises:
            DataError: For a date that is no session.
        """
        return self._instants[0][self._index(session)]

    def close_utc(self, session: date) -> datetime:
        """Return the instant at which a session closes, UTC; early closes included.

        Raises:
            DataError: For a date that is no session.
        """
        return self._instants[1][self._index(session)]

    @property
    def days(self) -> npt.NDArray[np.datetime64]:
        """All sessions, ``datetime64[D]``, ascending."""
        return self._days

    def closes_of(self, days: npt.NDArray[np.datetime64]) -> npt.NDArray[np.datetime64]:
        """Return the instants (UTC) at which the sessions of many days close; NaT for no session.

        Args:
            days: ``datetime64[D]``.
        """
        return self._instants_of(days, self._closes)

    def opens_of(self, days: npt.NDArray[np.datetime64]) -> npt.NDArray[np.datetime64]:
        """Return the instants (UTC) at which the sessions of many days open; NaT for no session.

        Args:
            days: ``datetime64[D]``.
        """
        return self._instants_of(days, self._opens)

    def _instants_of(
        self, days: npt.NDArray[np.datetime64], instants: npt.NDArray[np.datetime64]
    ) -> npt.NDArray[np.datetime64]:
        if not len(self._days):
            return np.full(len(days), np.datetime64("NaT", "us"))
        at = np.minimum(np.searchsorted(self._days, days), len(self._days) - 1)
        return np.where(self._days[at] == days, instants[at], np.datetime64("NaT", "us"))

    def shift(self, session: date, sessions: int) -> date:
        """Return the session so many sessions after (or, negative, before) a session.

        Raises:
            DataError: For a date that is no session, or a target beyond what is known.
        """
        target = self._index(session) + sessions
        if not 0 <= target < len(self._dates):
            raise DataError(
                f"calendar {self.code} knows {self.first_day} to {self.last_day}: "
                f"{sessions} sessions from {session} is beyond that"
            )
        return self._dates[target]

    def distance(self, first: date, last: date) -> int:
        """Return how many sessions lie from one session to another (negative going back).

        Raises:
            DataError: For a date that is no session.
        """
        return self._index(last) - self._index(first)

    def last_on_or_before(self, day: date) -> date:
        """Return the newest session that is not after a date.

        Raises:
            DataError: For a date beyond what the calendar knows, or before its first session.
        """
        if day in self._position:
            return day
        self._require_known(day)
        after = self._left(day + timedelta(days=1))
        if after == 0:
            raise DataError(f"calendar {self.code} has no session on or before {day}")
        return self._dates[after - 1]

    def last_closed(self, instant: datetime) -> date:
        """Return the newest session that had closed by an instant.

        Args:
            instant: Zone-aware; a session that closes at this very instant has closed.

        Raises:
            DataError: Where no known session had closed.
        """
        moment = np.datetime64(instant.astimezone(UTC).replace(tzinfo=None), "us")
        after = int(np.searchsorted(self._closes, moment, side="right"))
        if after == 0:
            raise DataError(f"calendar {self.code} has no session that closed by {instant}")
        return self._dates[after - 1]

    def week_of(self, day: date) -> date:
        """Return the first day of the trading week that holds a date."""
        offset = day.isoweekday() % 7 if self.code in _SUNDAY_WEEKS else day.weekday()
        return day - timedelta(days=offset)

    @cached_property
    def _instants(self) -> tuple[tuple[datetime, ...], tuple[datetime, ...]]:
        """Opens and closes of all sessions as Python's instants, made at the first question."""
        return tuple(map(_instant, self._opens)), tuple(map(_instant, self._closes))

    def _left(self, day: date) -> int:
        return int(np.searchsorted(self._days, np.datetime64(day, "D"), side="left"))

    def _index(self, session: date) -> int:
        try:
            return self._position[session]
        except KeyError:
            self._require_known(session)
            raise DataError(
                f"{session} is no session of calendar {self.code}: the one before is "
                f"{self.last_on_or_before(session)}"
            ) from None

    def _require_known(self, day: date) -> None:
        if not self.first_day <= day <= self.last_day:
            raise DataError(
                f"calendar {self.code} knows {self.first_day} to {self.last_day}: {day} is outside"
            )


def _instant(value: np.datetime64) -> datetime:
    moment: datetime = value.astype("datetime64[us]").item()
    return moment.replace(tzinfo=UTC)


_built: dict[str, Calendar] = {}
_building = threading.Lock()


def calendar_by_code(code: str) -> Calendar:
    """Return the calendar of a code, built once a process (about 0.15 s).

    Raises:
        UsageError: For a code that the tables of `markets` do not use.
    """
    known = _built.get(code)
    if known is not None:
        return known
    if code not in CODES:
        raise UsageError(
            f"{code!r} is no calendar of the tables in backtester/markets.py: {', '.join(CODES)}"
        )
    with _building:
        if code not in _built:
            _built[code] = _build(code)
        return _built[code]


def calendar_of(symbol: str) -> Calendar:
    """Return the calendar that a symbol trades on.

    Raises:
        UsageError: For a suffix, mark or index that the tables of `markets` do not hold.
    """
    return calendar_by_code(calendar_code(symbol))


def _build(code: str) -> Calendar:
    # Slow imports (0.4 s) that commands without a calendar, such as --help, must not pay.
    import exchange_calendars
    from pandas.errors import Pandas4Warning

    first_day, last_day = KNOWN_YEARS.get(code, (FIRST_DAY, LAST_DAY))
    with warnings.catch_warnings():
        # About code of the library, though pandas puts its own name to it.
        warnings.simplefilter("ignore", Pandas4Warning)
        source = exchange_calendars.get_calendar(
            code, start=first_day.isoformat(), end=last_day.isoformat()
        )
    return Calendar(
        code=code,
        tz=str(source.tz),
        first_day=first_day,
        last_day=last_day,
        sessions=source.sessions.to_numpy(),
        opens=source.opens.dt.tz_convert(None).to_numpy(),
        closes=source.closes.dt.tz_convert(None).to_numpy(),
    )


def grid_sessions(
    calendar: Calendar, grid: str | Sequence[date], start: date, end: date
) -> tuple[date, ...]:
    """Return the decision sessions of a grid on one calendar, oldest first.

    ``daily``: every session from start to end. ``weekly`` and ``monthly``: the last session of
    each whole week or month by the calendar; a period whose last session is after the end gives
    none. ``every N``: each N-th session from the first one on. A list: its dates, each that is no
    session moved to the one before, each session once.

    Args:
        calendar: Calendar of the instrument.
        grid: One of the words above, or dates.
        start: First date.
        end: Last date.

    Raises:
        UsageError: For an unknown word, reversed dates, a listed date outside start to end, or a
            grid without a session.
        DataError: For dates beyond what the calendar knows.
    """
    if end < start:
        raise UsageError(f"end {end} is before start {start}: swap them")
    found = (
        _named_grid(calendar, grid, start, end)
        if isinstance(grid, str)
        else _listed_grid(calendar, grid, start, end)
    )
    if not found:
        shown = grid if isinstance(grid, str) else "list"
        raise UsageError(
            f"grid {shown!r} has no session of calendar {calendar.code} from {start} to {end}: "
            "widen the dates or take a finer grid"
        )
    return found


def _named_grid(calendar: Calendar, grid: str, start: date, end: date) -> tuple[date, ...]:
    words = grid.lower().split()
    if words == ["daily"]:
        return calendar.sessions(start, end)
    if words == ["weekly"]:
        return _period_ends(calendar, start, end, monthly=False)
    if words == ["monthly"]:
        return _period_ends(calendar, start, end, monthly=True)
    if len(words) == 2 and words[0] == "every" and _STEP.fullmatch(words[1]):
        return calendar.sessions(start, end)[:: int(words[1])]
    raise UsageError(
        f"grid {shown(grid)} is not known: write daily, weekly, monthly, 'every N' (N sessions, "
        "1 to 999999) or a list of dates"
    )


def _period_ends(calendar: Calendar, start: date, end: date, *, monthly: bool) -> tuple[date, ...]:
    ends = []
    sessions = calendar.sessions(start, end)
    for position, session in enumerate(sessions):
        # The session after the last one decides whether the run's end cuts its period.
        last = position + 1 == len(sessions)
        following = calendar.shift(session, 1) if last else sessions[position + 1]
        if _period(calendar, following, monthly) != _period(calendar, session, monthly):
            ends.append(session)
    return tuple(ends)


def _period(calendar: Calendar, session: date, monthly: bool) -> date:
    return session.replace(day=1) if monthly else calendar.week_of(session)


def _listed_grid(
    calendar: Calendar, grid: Sequence[date], start: date, end: date
) -> tuple[date, ...]:
    for day in grid:
        if not start <= day <= end:
            raise UsageError(f"grid date {day} is outside {start} to {end}: widen the dates")
    return tuple(sorted({calendar.last_on_or_before(day) for day in grid}))
