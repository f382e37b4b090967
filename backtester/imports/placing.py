"""Which session a decision stands on that bears a date: nothing may fill before it was made.

A date is one of the instrument's exchange. On a session it says that the decision was made by the
cutoff of that session; on any other day nobody knows the hour, so the decision is there from the
*end* of that day. It then stands on the session before, if it fills after that end, else on the
first one after at which it does. What counts is the instant of a fill and not its date: a session
of futures opens on the evening before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime

from backtester.calendar import Calendar
from backtester.config import ENTRY_RULES, DecisionTime, EntryRule, RunConfig
from backtester.errors import DataError
from backtester.schema import known_at_day
from backtester.settlement.broker import FILLS
from backtester.snapshots.snapshot import Snapshot


@dataclass(frozen=True, kw_only=True)
class Placing:
    """Say how dates become sessions.

    Attributes:
        decision_time: Whether a session's decision is made at its close or at its open.
        entry_rule: Where orders fill.
        first: First day of the snapshot.
        last: Last day.
        where: Name of the snapshot, for messages.
    """

    decision_time: DecisionTime
    entry_rule: EntryRule
    first: date
    last: date
    where: str

    @classmethod
    def of(cls, config: RunConfig, snapshot: Snapshot) -> Placing:
        """Take the rules of a configuration, within a snapshot."""
        return cls(
            decision_time=config.decision_time,
            entry_rule=config.entry_rule,
            first=snapshot.start,
            last=snapshot.end,
            where=snapshot.name,
        )

    def session_of(self, calendar: Calendar, day: date) -> date:
        """Return the session of a decision: its date, or a neighbour where that is none.

        Raises:
            ValueError: The neighbour is not in the snapshot.
            DataError: A date beyond what the calendar knows.
        """
        if calendar.is_session(day):
            return day
        ends = known_at_day(day, calendar.tz)
        before = calendar.last_on_or_before(day)
        # At an open nothing of that day is known: such a decision is the next session's.
        if self.decision_time == "close" and fill_at(calendar, before, self.entry_rule) > ends:
            if before < self.first:
                raise ValueError(f"{day} is no session, and the one before is not in {self.where}")
            return before
        for after in calendar.sessions(day, min(self.last, calendar.last_day)):
            if fill_at(calendar, after, self.entry_rule) > ends:
                return after
        raise ValueError(f"{day} is no session, and the one after is not in {self.where}")


def fill_at(calendar: Calendar, session: date, rule: EntryRule) -> datetime:
    """Return the instant at which a decision of a session fills by the calendar.

    Raises:
        DataError: Beyond what the calendar knows.
    """
    offset, point = FILLS[rule]
    entry = calendar.shift(session, offset)
    return calendar.open_utc(entry) if point == "open" else calendar.close_utc(entry)


def fills_before_dates(
    calendar: Calendar, session: date, day: date, decision_time: DecisionTime
) -> Iterator[EntryRule]:
    """Yield the entry rules at which a decision that was moved would fill before it was made.

    Args:
        calendar: Of the instrument.
        session: On which it stands.
        day: Its own date.
        decision_time: Of the run.
    """
    if session == day:
        return
    ends = known_at_day(day, calendar.tz)
    for rule in ENTRY_RULES[decision_time]:
        try:
            early = fill_at(calendar, session, rule) <= ends
        except DataError:
            continue  # It never fills.
        if early:
            yield rule
