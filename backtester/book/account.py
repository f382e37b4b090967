"""The book's money: cash, holdings, and what each ticker was given and gave back.

Every change of cash goes through `Account`, which writes it a second time against the ticker that
caused it. The two must agree at the end of each session: cash and positions are the start cash and
what the tickers brought. Amounts are in the book's currency, marks in a ticker's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from datetime import date

from backtester.book.costs import BPS, YEAR_DAYS, Costs
from backtester.book.lines import Event, Line
from backtester.errors import BacktesterError, DataError

BALANCE = 1e-9
"""How far, relative to the sums involved, two ways to the same equity may be apart."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tier:
    """Name the target that a holding stands at: a weight of one of so many slots."""

    weight: float
    slots: int

    def is_at(self, weight: float, slots: int) -> bool:
        """Say whether it is a weight of one of so many slots; none of any number is one target."""
        return self.weight == weight and (weight == 0.0 or self.slots == slots)


_FLAT = Tier(weight=0.0, slots=1)


class Holding:
    """Hold what the book has of one ticker. Mutable; `Account` alone changes it.

    Attributes:
        shares: Below zero for a short position.
        mark: Last price known, quote currency, in terms of today's shares; 0 before the first.
        priced: Instant (microseconds) of the price that the mark comes from, -1 before the first.
        fresh: That of the newest price, split or dividend that the mark knows of.
        rate: Book currency for one unit of the quote currency; 0 while no rate is known.
        paid: Cash put in less cash taken out since the start, costs and dividends included.
        cost: Of what is still held; below zero for a short position.
        tier: Target that it stands at; None where the last order could not reach it.
        since: Session of the fill that opened it.
        touched: Whether it was ever traded.
    """

    __slots__ = (
        "cost",
        "fresh",
        "mark",
        "paid",
        "priced",
        "rate",
        "shares",
        "since",
        "tier",
        "touched",
    )

    def __init__(self, rate: float) -> None:
        """Begin with nothing."""
        self.shares = 0.0
        self.mark = 0.0
        self.priced = -1
        self.fresh = -1
        self.rate = rate
        self.paid = 0.0
        self.cost = 0.0
        self.tier: Tier | None = _FLAT
        self.since: date | None = None
        self.touched = False

    @property
    def value(self) -> float:
        """Value at the mark, book currency."""
        return self.shares * self.mark * self.rate


@dataclass(kw_only=True, slots=True)
class Flows:
    """Sum up what moved since the last equity row, book currency."""

    traded: float = 0.0
    commission: float = 0.0
    slippage: float = 0.0
    dividends: float = 0.0
    interest: float = 0.0
    borrow: float = 0.0


class Account:
    """Hold cash and holdings; lists are in the order of the stage's lines."""

    def __init__(self, lines: Sequence[Line], *, cash: float, currency: str) -> None:
        """Begin with cash alone."""
        self.lines = tuple(lines)
        self.start_cash = cash
        self.cash = cash
        self.interest = 0.0
        self.flows = Flows()
        self.holdings = [
            Holding(1.0 / line.units if line.major == currency else 0.0) for line in lines
        ]

    def fork(self) -> Account:
        """Return a copy that goes its own way."""
        twin = copy(self)
        twin.flows = copy(self.flows)
        twin.holdings = [copy(holding) for holding in self.holdings]
        return twin

    @property
    def positions_value(self) -> float:
        """Sum of all positions at their marks."""
        total = 0.0
        for holding in self.holdings:
            if holding.shares:
                total = total + holding.value
        return total

    def trade(self, at: int, *, shares: float, price: float, commission: float, day: date) -> None:
        """Change a holding against cash; the mark stays as it is.

        Args:
            at: Place of the line.
            shares: Above zero to buy, below to sell.
            price: Fill price, quote currency.
            commission: Book currency.
            day: Session of the fill.
        """
        holding = self.holdings[at]
        outlay = shares * price * holding.rate
        self.cash = self.cash - outlay - commission
        holding.paid = holding.paid + outlay + commission
        after = holding.shares + shares
        opens = holding.shares == 0.0 or (after > 0.0) != (holding.shares > 0.0)
        if after == 0.0:
            holding.cost, holding.since = 0.0, None
        elif opens:
            # Across zero, what is held now is a part of the order and carries that part's cost.
            holding.cost = (outlay + commission) * (after / shares)
            holding.since = day
        elif (shares > 0.0) == (holding.shares > 0.0):
            holding.cost = holding.cost + outlay + commission
        else:
            holding.cost = holding.cost * (after / holding.shares)
        holding.shares = after
        holding.touched = True
        self.flows.traded = self.flows.traded + abs(outlay)
        self.flows.commission = self.flows.commission + commission

    def mark(self, at: int, place: int) -> None:
        """Mark a holding at the close of a session, unless something newer is known already."""
        holding, line = self.holdings[at], self.lines[at]
        if line.clock.closes[place] >= holding.fresh:
            holding.mark = line.closes[place]
            holding.priced = holding.fresh = line.clock.closes[place]

    def apply(self, at: int, event: Event) -> None:
        """Carry a holding over a split or a dividend.

        The mark is carried with it, so that a session without a bar makes no wealth: the dividend
        has left the price and the split has divided it, whether or not a close says so yet.

        Raises:
            DataError: Where the action cannot be believed and the ticker is held.
        """
        holding = self.holdings[at]
        if event.flaw is not None:
            if holding.shares:
                raise DataError(f"{event.words} {event.flaw}: the book holds it and cannot go on")
            return
        paid = holding.shares * event.amount * holding.rate
        self.cash = self.cash + paid
        holding.paid = holding.paid - paid
        self.flows.dividends = self.flows.dividends + paid
        holding.shares = holding.shares * event.ratio
        holding.mark = max(holding.mark - event.amount, 0.0) / event.ratio
        holding.fresh = event.at

    def accrue(self, days: int, costs: Costs) -> None:
        """Pay interest and borrowing for some days on what is there now."""
        interest = self.cash * costs.cash_rate * days / YEAR_DAYS
        borrowed = 0.0
        for holding in self.holdings:
            if holding.shares < 0.0 and costs.borrow_bps_year:
                fee = -holding.value * costs.borrow_bps_year / BPS * days / YEAR_DAYS
                holding.paid = holding.paid + fee
                borrowed = borrowed + fee
        self.cash = self.cash + interest - borrowed
        self.interest = self.interest + interest
        self.flows.interest = self.flows.interest + interest
        self.flows.borrow = self.flows.borrow + borrowed

    def require_balance(self, day: date) -> None:
        """Check that cash and positions are what the tickers and the interest brought.

        Raises:
            BacktesterError: Where they are not: a fault of the book's own.
        """
        brought, size = self.start_cash + self.interest, abs(self.start_cash) + abs(self.cash)
        for holding in self.holdings:
            value = holding.value
            brought = brought + (value - holding.paid)
            size = size + abs(value) + abs(holding.paid)
        equity = self.cash + self.positions_value
        if not abs(equity - brought) <= BALANCE * size:
            raise BacktesterError(
                f"the book of {day} does not balance: cash and positions are {equity!r}, start "
                f"cash and gains are {brought!r}; this is a fault of the book, report it"
            )
