"""Size the orders of one instant and carry them out.

All orders that fill at one instant are one batch. The equity is taken once, at the prices of that
instant; each ticker's target is its weight of its slot of that equity. What an order moves in or
out of cash is the distance to its target, its own costs included: after a buy the position is
worth its target less what the order cost. Sales come first; if the purchases then want more cash
than there is, all of them are scaled by one factor. What short sales brought in stays locked: it
buys nothing, so long positions never exceed the equity when they are opened.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime

from backtester.book.account import Account, Tier
from backtester.book.costs import Costs
from backtester.book.lines import Line
from backtester.book.records import OrderRecord, OrderStatus, Side
from backtester.settlement.pricing import Point

# Below these parts of the equity an amount is the noise of its own arithmetic.
NOISE = 1e-12
NO_CASH = 1e-9
WHOLE = 1e-9


@dataclass(frozen=True, kw_only=True, slots=True)
class Wish:
    """Hold one order before it is sized.

    Attributes:
        at: Place of the line.
        place: Session of the fill, by place in the line's clock.
        instant: Of the fill, microseconds.
        price: Of its bar, quote currency, above zero.
        tier: What it wants.
    """

    at: int
    place: int
    instant: int
    price: float
    tier: Tier


@dataclass(frozen=True, kw_only=True, slots=True)
class Done:
    """Hold what became of one order; see `OrderRecord` for the fields."""

    wish: Wish
    side: Side
    shares: float = 0.0
    price: float | None = None
    notional: float = 0.0
    asked: float | None = None
    commission: float = 0.0
    slippage: float = 0.0
    status: OrderStatus
    reason: str | None = None


class Desk:
    """Size and fill batches against one account."""

    def __init__(self, account: Account, *, costs: Costs, fractional: bool) -> None:
        """Hold the account and what trading costs."""
        self._account = account
        self._costs = costs
        self._fractional = fractional

    def fill(self, wishes: Sequence[Wish], point: Point) -> list[Done]:
        """Carry out the orders of one instant, in the order of their lines.

        A holding that stands at its target within the noise of arithmetic is left out.

        Args:
            wishes: At most one a line, in the order of the lines.
            point: Of the day at which they all fill.
        """
        prices = self._prices(wishes, point)
        equity = self._equity(prices)
        asked = {wish.at: self._asked(wish, equity) for wish in wishes}
        done: dict[int, Done] = {}
        sized = []
        for wish in wishes:
            opens = wish.tier.weight != 0.0
            if opens and equity <= 0.0:
                side = side_of(wish.tier.weight, wish.tier.weight)
                done[wish.at] = Done(wish=wish, side=side, status="rejected", reason="no_equity")
            elif opens and abs(asked[wish.at]) <= NOISE * equity:
                self._account.holdings[wish.at].tier = wish.tier
            else:
                sized.append(wish)
        for wish in sized:
            if asked[wish.at] < 0.0 or wish.tier.weight <= 0.0:
                done[wish.at] = self._carry_out(wish, asked[wish.at], asked[wish.at], cut=None)
        buys = [wish for wish in sized if wish.at not in done]
        factor = self._factor(buys, asked, equity, prices)
        for wish in buys:
            done[wish.at] = self._buy(wish, asked[wish.at], factor)
        return [done[wish.at] for wish in wishes if wish.at in done]

    # ------------------------------------------------------------------------------------ sizing

    def _prices(self, wishes: Sequence[Wish], point: Point) -> dict[int, float]:
        """Return the price of each holding at the instant of a batch.

        At an open that is the open of the same market's bar. It is taken only from a bar that is
        public no later than its session's close, as those of the batch are.
        """
        prices = {
            at: holding.mark for at, holding in enumerate(self._account.holdings) if holding.shares
        }
        if point == "open":
            places = {id(self._line(wish.at).clock): wish.place for wish in wishes}
            for at in prices:
                line = self._line(at)
                place = places.get(id(line.clock))
                if place is not None and line.known[place] <= line.clock.closes[place]:
                    prices[at] = line.opens[place] or prices[at]
        for wish in wishes:
            prices[wish.at] = wish.price
        return prices

    def _equity(self, prices: dict[int, float]) -> float:
        total = self._account.cash
        for at, holding in enumerate(self._account.holdings):
            if holding.shares:
                total = total + holding.shares * prices[at] * holding.rate
        return total

    def _asked(self, wish: Wish, equity: float) -> float:
        holding = self._account.holdings[wish.at]
        target = equity * wish.tier.weight / wish.tier.slots
        return target - holding.shares * wish.price * holding.rate

    def _opening(self, wish: Wish, asked: float) -> float:
        """Return the part of a purchase that opens a long position, not that which ends a short."""
        holding = self._account.holdings[wish.at]
        return asked + min(holding.shares, 0.0) * wish.price * holding.rate

    def _factor(
        self, buys: Sequence[Wish], asked: dict[int, float], equity: float, prices: dict[int, float]
    ) -> float:
        """Return the factor on all purchases of a batch."""
        if not buys:
            return 1.0
        free = self._account.cash
        for at, holding in enumerate(self._account.holdings):
            if holding.shares < 0.0:
                free = free + holding.shares * prices[at] * holding.rate
        wanted = 0.0
        for wish in buys:
            wanted = wanted + self._opening(wish, asked[wish.at])
        if wanted <= free:
            return 1.0
        return 0.0 if free <= NO_CASH * equity else free / wanted

    def _buy(self, wish: Wish, asked: float, factor: float) -> Done:
        if factor == 1.0:
            return self._carry_out(wish, asked, asked, cut=None)
        opening = self._opening(wish, asked)
        amount = asked - opening + opening * factor
        if amount <= 0.0:
            return self._rejected(wish, asked, "no_cash")
        cut = "cash" if factor < 1.0 - WHOLE else None
        # With no cash to go long there is a short position to end, and it is ended whole.
        return self._carry_out(wish, asked, amount, cut=cut, close=factor == 0.0)

    # ----------------------------------------------------------------------------------- filling

    def _carry_out(
        self, wish: Wish, asked: float, amount: float, *, cut: str | None, close: bool = False
    ) -> Done:
        """Fill one order, as far as its bar and its costs let it.

        Args:
            wish: Order.
            asked: Cash that the target wants to move.
            amount: Cash that may be moved.
            cut: Why the two differ, or None.
            close: Trade just what is held, whatever the costs make of the amount.
        """
        costs, line = self._costs, self._line(wish.at)
        holding = self._account.holdings[wish.at]
        worth = wish.price * holding.rate
        volume = line.volume[wish.place]
        share = 0.0
        if costs.needs_volume:
            if volume <= 0:
                return self._rejected(wish, asked, "no_volume")
            share = min(abs(amount) / worth / volume, costs.participation_cap or 1.0)
        slip = costs.slip(share)
        price = wish.price * (1.0 + slip if amount > 0.0 else 1.0 - slip)
        wanted = shares = abs(holding.shares)
        if not close and wish.tier.weight != 0.0:
            wanted = shares = self._shares(wish, amount, price * holding.rate)
        if costs.participation_cap is not None:
            shares = min(wanted, costs.participation_cap * volume)
            cut = "volume" if shares < wanted else cut
        if not self._fractional and shares != abs(holding.shares):
            shares = float(math.floor(shares + WHOLE))
        if shares <= 0.0:
            return self._rejected(wish, asked, "below_one_share" if wanted else "below_costs")
        return self._traded(wish, asked, shares if amount > 0.0 else -shares, price, cut)

    def _shares(self, wish: Wish, amount: float, price: float) -> float:
        """Return how many shares an order trades, 0 or more.

        Args:
            wish: Order.
            amount: Cash to move: above zero to buy.
            price: Fill price, book currency.
        """
        held = abs(self._account.holdings[wish.at].shares)
        if amount > 0.0:
            return self._costs.shares_for(amount, price)
        raising = self._costs.shares_raising(-amount, price)
        if wish.tier.weight > 0.0:
            # What is to stay long may be sold out to pay the costs, but never turned short.
            return held if raising is None else min(raising, held)
        return 0.0 if raising is None else raising

    def _traded(
        self, wish: Wish, asked: float, shares: float, price: float, cut: str | None
    ) -> Done:
        holding, line = self._account.holdings[wish.at], self._line(wish.at)
        commission = self._costs.commission(abs(shares), price * holding.rate)
        side = side_of(wish.tier.weight, shares)
        notional = abs(shares) * price * holding.rate
        slippage = abs(shares) * abs(price - wish.price) * holding.rate
        self._account.trade(
            wish.at,
            shares=shares,
            price=price,
            commission=commission,
            day=line.clock.days[wish.place],
        )
        self._account.flows.slippage = self._account.flows.slippage + slippage
        holding.mark = wish.price
        holding.priced = holding.fresh = wish.instant
        # What the cap cut off is asked for again by the next decision, even an equal one.
        holding.tier = None if cut == "volume" else wish.tier
        return Done(
            wish=wish,
            side=side,
            shares=abs(shares),
            price=price,
            notional=notional,
            asked=asked,
            commission=commission,
            slippage=slippage,
            status="filled" if cut is None else "partial",
            reason=cut,
        )

    def _rejected(self, wish: Wish, asked: float, reason: str) -> Done:
        return Done(
            wish=wish,
            side=side_of(wish.tier.weight, asked),
            asked=asked,
            status="rejected",
            reason=reason,
        )

    def _line(self, at: int) -> Line:
        return self._account.lines[at]


def late_orders(
    lines: Sequence[Hashable], weights: Sequence[float], held: Iterable[Hashable]
) -> list[bool]:
    """Say which decisions that fill after the end are orders: to sell nothing is none.

    Args:
        lines: What each is for, in the order of their sessions.
        weights: What each wants.
        held: What is held at the end, or may be by an order that is pending already.
    """
    mine = set(held)
    found = []
    for line, weight in zip(lines, weights, strict=True):
        found.append(weight != 0.0 or line in mine)
        (mine.add if weight != 0.0 else mine.discard)(line)
    return found


def side_of(weight: float, change: float) -> Side:
    """Name an order: for the side of zero that its target is on, and its direction.

    Args:
        weight: Target.
        change: Anything that is above zero to buy and below to sell.
    """
    if change > 0.0:
        return "buy" if weight > 0.0 else "cover"
    return "short" if weight < 0.0 else "sell"


def unfilled(
    line: Line,
    *,
    session: date,
    fill_session: date | None,
    fill_at: datetime | None,
    weight: float,
    held: float,
    reason: str,
) -> OrderRecord:
    """Return an order of which nothing was filled.

    Args:
        line: Of its ticker.
        session: Of the decision.
        fill_session: Where it would have filled, or None where the calendar does not reach it.
        fill_at: Its instant; so None.
        weight: Target.
        held: Shares, or their sign: what a target of zero would have closed.
        reason: ``after_end`` where it may still fill; else why it was rejected.
    """
    return OrderRecord(
        session=session,
        ticker=line.ticker,
        fill_session=fill_session,
        fill_at=fill_at,
        side=side_of(weight, weight or -held),
        shares=0.0,
        price=None,
        reference_price=None,
        notional=0.0,
        asked=None,
        commission=0.0,
        slippage=0.0,
        status="pending" if reason == "after_end" else "rejected",
        reason=reason,
        target_weight=weight,
        currency=line.currency,
    )
