"""Where decisions lie on a stage: found once each, checked, and turned into what a walk takes."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import date

import numpy as np
import numpy.typing as npt

from backtester.book.desires import Wanted
from backtester.book.lines import Stage
from backtester.book.orders import unfilled
from backtester.book.records import BookRule, OrderRecord, Signal, TargetSignal
from backtester.book.walk import FILLS, Ask, ask_of
from backtester.errors import DataError, UsageError


class Places:
    """Find a decision's place on a stage, once each."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._line = {line.ticker: at for at, line in enumerate(stage.lines)}
        self._seen: set[tuple[int, int]] = set()

    def of(self, ticker: str, session: date) -> tuple[int, int]:
        """Return the line and the session's place on its clock.

        Raises:
            UsageError: Outside the book, or twice there.
            DataError: For a date that is no session.
        """
        line = self._line.get(ticker)
        if line is None:
            raise UsageError(
                f"a decision for {ticker} on {session}, which is not in the book: "
                f"it has {', '.join(self._line)}"
            )
        stage = self._stage
        if not stage.start <= session <= stage.end:
            raise UsageError(
                f"a decision for {ticker} on {session}, outside the book's "
                f"{stage.start} to {stage.end}: widen the dates or leave it out"
            )
        clock = stage.lines[line].clock
        decided = clock.position.get(session)
        if decided is None:
            before = clock.calendar.last_on_or_before(session)
            raise DataError(
                f"a decision for {ticker} on {session}, which is no session of "
                f"calendar {clock.calendar.code}: the one before is {before}"
            )
        if (line, decided) in self._seen:
            raise UsageError(f"two decisions for {ticker} on {session}: keep one")
        self._seen.add((line, decided))
        return line, decided

    def all_of(self, ticker: str, sessions: Sequence[date]) -> list[int]:
        """Return the places of many sessions of one ticker; see `of`."""
        line, stage = self._line.get(ticker), self._stage
        if line is not None and stage.start <= min(sessions) and max(sessions) <= stage.end:
            position = stage.lines[line].clock.position
            found = [position.get(session, -1) for session in sessions]
            if found[0] >= 0 and all(map(operator.lt, found, found[1:])):
                return found
        # Out of order, or with something wrong that has to be named.
        return [self.of(ticker, session)[1] for session in sessions]

    def line_of(self, ticker: str) -> int:
        """Return the line of a ticker of the book."""
        return self._line[ticker]


def wanted_of(
    stage: Stage,
    sessions: Mapping[str, Sequence[date]],
    weights: Mapping[str, npt.NDArray[np.float64]],
) -> list[Wanted]:
    """Return what many books want, by line; see `Bench.play` for arguments and errors."""
    places = Places(stage)
    books = next((rows.shape[1] for rows in weights.values()), 0)
    wanted = []
    for ticker, days in sorted(sessions.items()):
        rows = weights.get(ticker)
        if rows is None or rows.shape != (len(days), books):
            raise UsageError(
                f"the weights of {ticker} are not {books} books by {len(days)} sessions"
            )
        if (np.abs(rows) > 1.0).any():
            raise UsageError(f"a weight of {ticker} is not from -1 to 1")
        if days:
            found = places.all_of(ticker, days)
            order = sorted(range(len(days)), key=found.__getitem__)
            decided = [found[at] for at in order]
            taken = rows if decided == found else rows[order]
            wanted.append(Wanted(line=places.line_of(ticker), decided=decided, weights=taken))
    return wanted


class Decisions:
    """Turn signals into what a walk takes, and count those that want nothing.

    Attributes:
        asked: Number of those that want a weight and fill within the stage.
        carried: Number of those that leave the position, unread ones apart.
        unread: Number of those without a rating.
        pending: Orders that fill after the end.
    """

    def __init__(self, stage: Stage, rule: BookRule) -> None:
        self._stage = stage
        self._rule = rule
        self._places = Places(stage)
        self.asked = self.carried = self.unread = 0
        self.pending: list[OrderRecord] = []

    def asks(self, signals: Iterable[Signal | TargetSignal]) -> list[Ask]:
        """Return the fills of some decisions, in order."""
        found = []
        for signal in sorted(signals, key=lambda signal: (signal.session, signal.ticker)):
            line, decided = self._places.of(signal.ticker, signal.session)
            weight = self._weight(signal)
            if weight is None:
                continue
            ask = ask_of(self._stage, self._rule, line=line, decided=decided, weight=weight)
            if ask is None:
                self.pending.append(self._after_end(line, signal.session, weight))
            else:
                self.asked += 1
                found.append(ask)
        return sorted(found)

    def _weight(self, signal: Signal | TargetSignal) -> float | None:
        if isinstance(signal, Signal):
            weight = self._rule.policy.weight_of(signal.rating)
            self.unread += signal.rating is None
            self.carried += weight is None and signal.rating is not None
            return weight
        weight = signal.weight
        self.carried += weight is None
        if weight is not None and not -1.0 <= weight <= 1.0:
            raise UsageError(
                f"the weight {weight} of {signal.ticker} on {signal.session} is not from -1 to 1"
            )
        return weight

    def _after_end(self, number: int, session: date, weight: float) -> OrderRecord:
        line, offset = self._stage.lines[number], FILLS[self._rule.entry_rule][0]
        calendar, fill_session, fill_at = line.clock.calendar, None, None
        with suppress(DataError):
            fill_session = calendar.shift(session, offset)
        if fill_session is not None:
            at_open = FILLS[self._rule.entry_rule][1] == "open"
            fill_at = (calendar.open_utc if at_open else calendar.close_utc)(fill_session)
        return unfilled(
            line,
            session=session,
            fill_session=fill_session,
            fill_at=fill_at,
            weight=weight,
            held=1.0,
            reason="after_end",
        )
