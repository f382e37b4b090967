"""How many shares orders of many books trade, at which price and charge; see `orders.Desk`.

An order is an entry of arrays; those of one instant are sized together. What the rule does not
charge is not worked out: adding nothing and multiplying by one leave every double as it is.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from backtester.book.costs import BPS
from backtester.book.orders import WHOLE
from backtester.book.records import BookRule

Reals = npt.NDArray[np.float64]
Places = npt.NDArray[np.intp]
Flags = npt.NDArray[np.bool_]
Outcomes = npt.NDArray[np.int8]
Which = slice | Places | Flags


class Outcome:
    """What became of a decision; 0 where it made no order. Up to `CUT_BY_VOLUME` it traded.

    Plain numbers: numpy takes ten times as long for those of an enumeration.
    """

    NONE: Final = 0
    FILLED: Final = 1
    CUT_BY_CASH: Final = 2
    CUT_BY_VOLUME: Final = 3
    REFUSED: Final = 4
    NO_EQUITY: Final = 5
    NO_CASH: Final = 6
    NO_VOLUME: Final = 7
    BELOW_ONE_SHARE: Final = 8
    BELOW_COSTS: Final = 9


class Orders(NamedTuple):
    """Hold orders of many books at one instant, one entry each.

    Attributes:
        row: Place among the batch's decisions.
        book: Column of the book.
        cell: Place of line and book among all holdings, line by line.
        weight: Wanted part of the slot.
        asked: Cash that the target wants to move.
        held: Shares before.
        price: Of the bar.
        rate: Book currency for one unit of the line's, or None where it is 1 for all lines.
        volume: Shares traded, or None where fills do not depend on it.
    """

    row: Places
    book: Places
    cell: Places
    weight: Reals
    asked: Reals
    held: Reals
    price: Reals
    rate: Reals | None
    volume: Reals | None

    def at(self, which: Which) -> Orders:
        """Return some of them."""
        return Orders(
            row=self.row[which],
            book=self.book[which],
            cell=self.cell[which],
            weight=self.weight[which],
            asked=self.asked[which],
            held=self.held[which],
            price=self.price[which],
            rate=None if self.rate is None else self.rate[which],
            volume=None if self.volume is None else self.volume[which],
        )

    def converted(self, amount: Reals) -> Reals:
        """Return an amount of each order's quote currency in that of the book."""
        return amount if self.rate is None else amount * self.rate


class Fills(NamedTuple):
    """Hold what becomes of orders, one entry each.

    Attributes:
        price: After slippage.
        signed: Shares, below zero where sold; means nothing where not done, so the next one.
        paid: Book currency: what the shares cost at that price, below zero where sold, and the
            commission; two columns.
        outcome: `Outcome` of each, or None where all are filled whole.
    """

    price: Reals
    signed: Reals
    paid: Reals
    outcome: Outcomes | None

    def at(self, which: Which) -> Fills:
        """Return some of them."""
        outcome = None if self.outcome is None else self.outcome[which]
        return Fills(self.price[which], self.signed[which], self.paid[which], outcome)

    def done(self) -> Flags | None:
        """Say which trade anything; None where all do."""
        if self.outcome is None or every(done := self.outcome <= Outcome.CUT_BY_VOLUME):
            return None
        return done

    def marked(self, which: Flags, outcome: int) -> Fills:
        """Return them with the outcome of some changed."""
        if not np.count_nonzero(which):
            return self
        found = self._outcomes()
        found[which] = outcome
        return self._replace(outcome=found)

    def joined(self, more: Fills) -> Fills:
        """Return these and then others."""
        outcome = None
        if self.outcome is not None or more.outcome is not None:
            outcome = np.concatenate((self._outcomes(), more._outcomes()))
        return Fills(
            price=np.concatenate((self.price, more.price)),
            signed=np.concatenate((self.signed, more.signed)),
            paid=np.concatenate((self.paid, more.paid)),
            outcome=outcome,
        )

    def _outcomes(self) -> Outcomes:
        if self.outcome is not None:
            return self.outcome
        return np.full(len(self.price), Outcome.FILLED, dtype=np.int8)


class Sizing:
    """Size orders under one rule."""

    def __init__(self, rule: BookRule) -> None:
        """Hold what trading costs."""
        costs = rule.costs
        self._costs, self._cap, self._fractional = costs, costs.participation_cap, rule.fractional
        self._slip, self._rate = costs.slip(0.0), costs.commission_bps / BPS
        self._bps, self._per_share = costs.commission_bps, costs.commission_per_share
        self._least = costs.commission_minimum

    def sales(self, orders: Orders) -> Fills:
        """Return how orders fill that bring cash or end a short position."""
        sign = np.where(orders.asked > 0.0, 1.0, -1.0)
        price = self._price(orders, orders.asked, sign)
        worth, held, long = orders.converted(price), np.abs(orders.held), orders.weight > 0.0
        each = self._each(worth, sign)
        wanted = self._shares(orders.asked, sign, worth, each)
        # What is to stay long may be sold out to pay the costs, but never turned short.
        np.minimum(wanted, held, out=wanted, where=long)
        if self._per_share:
            # The commission eats what a share brings.
            wanted = np.where(each <= 0.0, np.where(long, held, 0.0), wanted)
        np.copyto(wanted, held, where=orders.weight == 0.0)
        return self._filled(orders, wanted, held, sign, price, worth)

    def purchases(self, orders: Orders, amount: Reals, close: Flags | None) -> Fills:
        """Return how orders fill that open or enlarge a long position.

        Args:
            orders: What is wanted.
            amount: Cash that may be spent.
            close: Which only end a short position; None for none of them.
        """
        price = self._price(orders, amount, 1.0)
        worth, held = orders.converted(price), np.abs(orders.held)
        wanted = self._shares(amount, 1.0, worth, self._each(worth, 1.0))
        if close is not None:
            np.copyto(wanted, held, where=close)
        return self._filled(orders, wanted, held, 1.0, price, worth)

    def _price(self, orders: Orders, amount: Reals, sign: Reals | float) -> Reals:
        """Return fill prices, worsened as `Costs.slip` has it."""
        if orders.volume is not None:
            share = np.abs(amount) / orders.converted(orders.price) / orders.volume
            costs, share = self._costs, np.minimum(share, self._cap or 1.0)
            slips = (costs.slippage_bps + costs.impact_bps * share) / BPS
            found: Reals = orders.price * (1.0 + slips * sign)
        else:
            found = orders.price * (1.0 + self._slip * sign) if self._slip else orders.price
        return found

    def _each(self, worth: Reals, sign: Reals | float) -> Reals:
        """Return what one share takes of the cash when bought, or brings when sold."""
        moved = worth * (1.0 + self._rate * sign) if self._rate else worth
        return moved + self._per_share * sign if self._per_share else moved

    def _shares(self, amount: Reals, sign: Reals | float, worth: Reals, each: Reals) -> Reals:
        """Return how many shares move an amount; see `Costs`."""
        size = amount * sign
        found: Reals = size / each
        if self._least:
            fee = worth * self._rate + self._per_share
            flat = np.maximum((size - self._least * sign) / worth, 0.0)
            found = np.where(found * fee >= self._least, found, flat)
        return found

    def _filled(
        self,
        orders: Orders,
        wanted: Reals,
        held: Reals,
        sign: Reals | float,
        price: Reals,
        worth: Reals,
    ) -> Fills:
        """Return fills of as many shares as the bars let trade."""
        shares = wanted
        if self._cap is not None and orders.volume is not None:
            shares = np.minimum(wanted, self._cap * orders.volume)
        cut = None if shares is wanted else shares < wanted
        if not self._fractional:
            shares = np.where(shares != held, np.floor(shares + WHOLE), shares)
        signed = shares * sign
        paid = np.empty((len(wanted), 2))
        paid[:, 0] = orders.converted(signed * price)
        paid[:, 1] = self._fee(shares, worth)
        fills = Fills(price=price, signed=signed, paid=paid, outcome=None)
        if cut is not None:
            fills = fills.marked(cut, Outcome.CUT_BY_VOLUME)
        traded = shares > 0.0
        if not every(traded):
            fills = fills.marked(~traded, Outcome.BELOW_ONE_SHARE)
            fills = fills.marked(~traded & (wanted == 0.0), Outcome.BELOW_COSTS)
        if orders.volume is not None:
            fills = fills.marked(~(orders.volume > 0.0), Outcome.NO_VOLUME)
        return fills

    def _fee(self, shares: Reals, worth: Reals) -> Reals:
        """Return commissions; see `Costs.commission`."""
        fee = shares * worth * self._bps / BPS
        if self._per_share:
            fee = fee + shares * self._per_share
        return np.maximum(fee, self._least) if self._least else fee


def every(flags: Flags) -> bool:
    """Say whether all hold: of a few, numpy counts in a third of the time that `all` takes."""
    return bool(np.count_nonzero(flags) == flags.size)
