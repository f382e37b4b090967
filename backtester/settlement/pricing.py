"""What one share of one instrument came to between two of its bars.

Prices are as traded, so a window is carried over its splits and dividends here: those with
entry session < ex session <= exit session. Every number goes through ``+ - * /`` alone, in one
order, so that it is the same double everywhere; what makes no number is a `Flaw` with a reason.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from functools import cached_property
from typing import Literal
from weakref import WeakKeyDictionary

import numpy as np

from backtester.calendar import Calendar, calendar_by_code
from backtester.schema import SPLIT
from backtester.snapshots.snapshot import ActionColumns, BarColumns, IdentityRow, Snapshot

Point = Literal["open", "close"]


@dataclass(frozen=True, kw_only=True)
class Quote:
    """Hold one price of one bar.

    Attributes:
        session: Session of the bar.
        point: Open or close.
        price: As traded, quote currency; finite and above zero.
        known_at: UTC instant from which the bar is public.
    """

    session: date
    point: Point
    price: float
    known_at: datetime


@dataclass(frozen=True, kw_only=True)
class Earned:
    """Hold what one share bought at the entry came to at the exit.

    Attributes:
        factor: Shares held at the exit for each one bought: the product of the window's splits.
        dividends: Sum of dividend * shares held on its ex session, quote currency.
        price: ``exit * factor / entry - 1``, a fraction.
        total: ``(exit * factor + dividends) / entry - 1``, a fraction.
    """

    factor: float
    dividends: float
    price: float
    total: float

    def on(self, basis: str) -> float:
        """Return the return that compares with a benchmark of this basis."""
        return self.total if basis == "total" else self.price


@dataclass(frozen=True, kw_only=True)
class Trade:
    """Hold one share's way from a fill to an exit.

    Attributes:
        entry: Where it was bought.
        exit: Where it was sold, before the haircut.
        haircut: Fraction taken off the exit price.
        earned: What it came to.
    """

    entry: Quote
    exit: Quote
    haircut: float
    earned: Earned


@dataclass(frozen=True, kw_only=True)
class Flaw:
    """Say why two good bars make no return: what lies between them cannot be trusted."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class Carried:
    """Hold what one share became over some splits and dividends.

    Attributes:
        factor: Shares held for each one bought.
        dividends: Of a share bought, in the quote currency.
    """

    factor: float
    dividends: float


NOTHING_BEFELL = Carried(factor=1.0, dividends=0.0)


@dataclass(frozen=True, kw_only=True)
class Market:
    """Gather what pricing needs of one instrument; build it with `market_of`.

    Quotes that were asked for are kept: windows that overlap ask for the same ones.
    """

    instrument: str
    calendar: Calendar
    bars: BarColumns
    actions: ActionColumns
    identity: IdentityRow
    _quotes: dict[tuple[date, Point], Quote | None] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _carried: dict[tuple[int, int], Carried | Flaw] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @property
    def currency(self) -> str:
        """Quote currency."""
        return self.bars.currency or self.identity.currency

    @property
    def is_index(self) -> bool:
        """Whether nobody can trade it, so that its open is a mere number."""
        return self.identity.asset_type == "index"

    def quote(self, session: date, point: Point) -> Quote | None:
        """Return a price of a session's bar, or None where no usable one is there."""
        asked = (session, point)
        if asked not in self._quotes:
            at = self.bars.position(session)
            self._quotes[asked] = None if at is None else self._quote_at(at, point)
        return self._quotes[asked]

    def last_close(self, *, since: date, until: date) -> Quote | None:
        """Return the newest usable close from `since` to `until`, both included, or None."""
        edges = np.array([since, until], dtype="datetime64[D]")
        first = int(np.searchsorted(self.bars.sessions, edges[0], side="left"))
        after = int(np.searchsorted(self.bars.sessions, edges[1], side="right"))
        for at in range(after - 1, first - 1, -1):
            quote = self._quote_at(at, "close")
            if quote is not None:
                return quote
        return None

    def conflict(self, first: date, last: date) -> date | None:
        """Return the first session in a range whose captured bars contradict each other."""
        if not self.bars.conflicts:
            return None
        return min((day for day in self.bars.conflicts if first <= day <= last), default=None)

    def earned(self, entry: Quote, leave: Quote, *, haircut: float = 0.0) -> Earned | Flaw:
        """Work out the return between two quotes.

        Args:
            entry: Where a share was bought.
            leave: Where it was sold, not before the entry.
            haircut: Fraction taken off the exit price.
        """
        days = self._ex_days
        held = self.carried(bisect_right(days, entry.session), bisect_right(days, leave.session))
        if isinstance(held, Flaw):
            return held
        proceeds = leave.price * (1.0 - haircut) * held.factor
        earned = Earned(
            factor=held.factor,
            dividends=held.dividends,
            price=proceeds / entry.price - 1.0,
            total=(proceeds + held.dividends) / entry.price - 1.0,
        )
        if math.isfinite(earned.price) and math.isfinite(earned.total):
            return earned
        return Flaw(
            reason=f"{self.instrument}: {entry.price} on {entry.session} and {leave.price} on "
            f"{leave.session} make no finite return"
        )

    @cached_property
    def _ex_days(self) -> list[date]:
        days: list[date] = self.actions.ex_sessions.tolist()
        return days

    def _quote_at(self, at: int, point: Point) -> Quote | None:
        price = float(self.bars.open[at] if point == "open" else self.bars.close[at])
        known_at = self.bars.known_at[at]
        if not (math.isfinite(price) and price > 0.0) or np.isnat(known_at):
            return None
        instant: datetime = known_at.item()
        return Quote(
            session=self.bars.sessions[at].item(),
            point=point,
            price=price,
            known_at=instant.replace(tzinfo=UTC),
        )

    def carried(self, first: int, after: int) -> Carried | Flaw:
        """Return what one share became over the actions from one place to before another one.

        Args:
            first: Place in `actions`: the first with an ex session after the entry's.
            after: Place of the first with an ex session after the exit's.
        """
        if first >= after:
            return NOTHING_BEFELL
        asked = (first, after)
        if asked not in self._carried:
            self._carried[asked] = self._carry(first, after)
        return self._carried[asked]

    def _carry(self, first: int, after: int) -> Carried | Flaw:
        held = _Held()
        for action in self._actions(first, after):
            problem = held.take(action, self.currency)
            if problem is not None:
                return Flaw(
                    reason=f"{self.instrument}: the {action.kind} of {action.ex_session} {problem}"
                )
        return Carried(factor=held.factor, dividends=held.dividends)

    def _actions(self, first: int, after: int) -> list[_Action]:
        """Return actions by ex session; on one day splits come first."""
        rows = self.actions
        found = [
            _Action(
                ex_session=rows.ex_sessions[at].item(),
                kind=str(rows.kind[at]),
                numerator=int(rows.numerator[at]),
                denominator=int(rows.denominator[at]),
                amount=float(rows.amount[at]),
                currency=str(rows.currency[at]),
            )
            for at in range(first, after)
        ]
        return sorted(found, key=lambda action: (action.ex_session, action.kind != SPLIT))


def market_of(snapshot: Snapshot, instrument: str) -> Market:
    """Gather one instrument of a snapshot; a snapshot's is gathered once.

    Calendar, currency and basis are the same in all identity ranges of an instrument.

    Raises:
        DataError: For an instrument that the snapshot does not hold.
    """
    known = _gathered.setdefault(snapshot, {})
    if instrument not in known:
        known[instrument] = _gather(snapshot, instrument)
    return known[instrument]


# A snapshot never changes, and what was gathered of it goes with it.
_gathered: WeakKeyDictionary[Snapshot, dict[str, Market]] = WeakKeyDictionary()


def _gather(snapshot: Snapshot, instrument: str) -> Market:
    identity = snapshot.identity_rows(instrument)[-1]
    return Market(
        instrument=instrument,
        calendar=calendar_by_code(identity.calendar),
        bars=snapshot.bars(instrument),
        actions=snapshot.actions(instrument),
        identity=identity,
    )


@dataclass(frozen=True, kw_only=True)
class _Action:
    """Hold one split or dividend."""

    ex_session: date
    kind: str
    numerator: int
    denominator: int
    amount: float
    currency: str


class _Held:
    """Carry one share over splits and dividends.

    The ratio of splits is kept in integers and divided once, so that it is the nearest double
    whatever the number of splits.
    """

    def __init__(self) -> None:
        self._shares, self._per = 1, 1
        self._seen: set[tuple[date, str]] = set()
        self.dividends = 0.0

    @property
    def factor(self) -> float:
        """Shares held for each one bought."""
        return self._shares / self._per

    def take(self, action: _Action, currency: str) -> str | None:
        """Apply an action, or say what is wrong with it."""
        if (action.ex_session, action.kind) in self._seen:
            return "is there twice, and the two differ"
        self._seen.add((action.ex_session, action.kind))
        if action.kind == SPLIT:
            if action.numerator <= 0 or action.denominator <= 0:
                return f"is {action.numerator} for {action.denominator}, which is no ratio"
            self._shares *= action.numerator
            self._per *= action.denominator
            return None
        if action.currency != currency:
            return f"is in {action.currency or 'no currency'}, the bars are in {currency}"
        if not (math.isfinite(action.amount) and action.amount >= 0.0):
            return f"is {action.amount}, which is no amount"
        self.dividends = self.dividends + action.amount * self.factor
        return None
