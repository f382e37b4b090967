"""Many books at once: the same prices and decision dates, other weights in each.

A placebo takes hundreds of random books and wants only what each was worth. Here one walk carries
them all, a column each; every number of a column is the very double that `book_walk` gives, by the
same operations in the same order (a test compares them bit by bit). No records are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import numpy.typing as npt

from backtester.book.costs import BPS, YEAR_DAYS, Costs
from backtester.book.lines import Event, Stage
from backtester.book.orders import NO_CASH, NOISE, WHOLE
from backtester.book.records import BookRule
from backtester.book.walk import CLOSE, FILL_OPEN, ROW, Ask, Happening, Script
from backtester.errors import DataError

Reals = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """Hold what all books want at one instant; a row a line, a column a book.

    Attributes:
        lines: Places of the lines, ascending.
        asks: When and where each fills; the weight in it is not looked at.
        weights: Wanted; NaN leaves the position as it is.
    """

    lines: npt.NDArray[np.intp]
    asks: tuple[Ask, ...]
    weights: Reals


class Crowd:
    """Carry the accounts of many books forward."""

    def __init__(self, stage: Stage, script: Script, rule: BookRule, books: int) -> None:
        """Begin with cash alone in each."""
        shape = (len(stage.lines), books)
        self._stage, self._script, self._rule = stage, script, rule
        self._cash = np.full(books, rule.start_cash)
        self._shares = np.zeros(shape)
        self._mark = np.zeros(shape)
        self._fresh = np.full(shape, -1, dtype=np.int64)
        self._tier, self._slots = np.zeros(shape), np.ones(shape, dtype=np.int64)
        self._rate = np.array(
            [[1.0 / one.units if one.major == stage.currency else 0.0] for one in stage.lines]
        )
        self._row = 0
        self._equity = np.zeros((len(stage.rows), books))

    def go(self, batches: Sequence[Batch]) -> Reals:
        """Go through everything and return the equity, a row a session and a column a book.

        Args:
            batches: In the order of their instants.
        """
        at, waiting = 0, len(batches)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            for what in self._script.happenings:
                while at < waiting and batches[at].asks[0][:2] < what[:2]:
                    self._fill(batches[at])
                    at += 1
                self._happen(what)
        return self._equity

    # --------------------------------------------------------------------------------- happenings

    def _happen(self, what: Happening) -> None:
        if what.phase == CLOSE:
            self._close(what)
        elif what.phase == ROW:
            self._draw_up()
        elif what.place < 0:
            self._gone(what.line)
        else:
            self._apply(what.line, self._stage.lines[what.line].events[what.place])

    def _close(self, what: Happening) -> None:
        if what.line < 0:
            exchange = self._stage.exchanges[-1 - what.line]
            rate = exchange.rate(what.place)
            for number, line in enumerate(self._stage.lines):
                if line.major == exchange.major:
                    self._rate[number] = rate / line.units
            return
        line = self._stage.lines[what.line]
        instant, price = line.clock.closes[what.place], line.closes[what.place]
        news = self._fresh[what.line] <= instant
        self._mark[what.line] = np.where(news, price, self._mark[what.line])
        self._fresh[what.line] = np.where(news, instant, self._fresh[what.line])

    def _apply(self, number: int, event: Event) -> None:
        shares = self._shares[number]
        if event.flaw is not None:
            if shares.any():
                raise DataError(f"{event.words} {event.flaw}: the book holds it and cannot go on")
            return
        self._cash = self._cash + shares * event.amount * self._rate[number]
        self._shares[number] = shares * event.ratio
        self._mark[number] = np.maximum(self._mark[number] - event.amount, 0.0) / event.ratio
        self._fresh[number] = event.at

    def _gone(self, number: int) -> None:
        price = self._mark[number] * (1.0 - self._rule.haircut)
        self._cash = self._cash + self._shares[number] * price * self._rate[number]
        self._shares[number] = 0.0
        self._tier[number], self._slots[number] = 0.0, 1

    def _draw_up(self) -> None:
        rows, costs = self._stage.rows, self._rule.costs
        if self._row:
            days = (rows[self._row][0] - rows[self._row - 1][0]).days
            interest = self._cash * costs.cash_rate * days / YEAR_DAYS
            borrowed = np.zeros(len(self._cash))
            if costs.borrow_bps_year:
                for shares, value in zip(self._shares, self._values(), strict=True):
                    fee = -value * costs.borrow_bps_year / BPS * days / YEAR_DAYS
                    borrowed = borrowed + np.where(shares < 0.0, fee, 0.0)
            self._cash = self._cash + interest - borrowed
        total = np.zeros(len(self._cash))
        for value in self._values():
            total = total + value
        self._equity[self._row] = self._cash + total
        self._row += 1

    def _values(self) -> Reals:
        values: Reals = self._shares * self._mark * self._rate
        return values

    # --------------------------------------------------------------------------------------- fills

    def _fill(self, batch: Batch) -> None:
        """Carry out what all books want at one instant; see `book_orders.Desk.fill`."""
        lines, weights = batch.lines, batch.weights
        stage = self._stage
        first = batch.asks[0]
        day = stage.lines[first.line].clock.days[first.place]
        slots = self._rule.slots or sum(1 for line in stage.lines if line.trades_on(day))
        prices = np.array([[_price(stage, ask)] for ask in batch.asks])
        wanted = ~np.isnan(weights) & ~self._stands(lines, weights, slots)
        wanted &= (prices > 0.0) & (self._rate[lines] > 0.0)
        if not wanted.any():
            return
        at_hand = self._at_hand(batch, prices, wanted)
        equity = self._cash
        for shares, price, rate in zip(self._shares, at_hand, self._rate, strict=True):
            equity = equity + shares * price * rate
        asked = equity * weights / slots - self._shares[lines] * prices * self._rate[lines]
        opens = weights != 0.0
        wanted &= ~(opens & (equity <= 0.0))
        rests = wanted & opens & (np.abs(asked) <= NOISE * equity)
        self._settle_at(lines, rests, weights, slots)
        wanted &= ~rests
        order = _Order(batch=batch, prices=prices, slots=slots)
        others = wanted & ((asked < 0.0) | (weights <= 0.0))
        self._carry_out(order, asked, others, close=weights == 0.0)
        buys = wanted & ~others
        if buys.any():
            amount, close = self._buying(order, asked, buys, equity, at_hand)
            self._carry_out(order, amount, buys & (amount > 0.0), close=close)

    def _stands(self, lines: npt.NDArray[np.intp], weights: Reals, slots: int) -> Flags:
        stands: Flags = (self._shares[lines] == 0.0) & (weights == 0.0)
        if self._rule.rebalance == "on_change":
            level = (weights == 0.0) | (self._slots[lines] == slots)
            stands |= (self._tier[lines] == weights) & level
        return stands

    def _settle_at(
        self, lines: npt.NDArray[np.intp], which: Flags, weights: Reals, slots: int
    ) -> None:
        self._tier[lines] = np.where(which, weights, self._tier[lines])
        self._slots[lines] = np.where(which, slots, self._slots[lines])

    def _at_hand(self, batch: Batch, prices: Reals, wanted: Flags) -> Reals:
        """Return the price of each line at the instant; see `book_orders.Desk._prices`."""
        found = self._mark.copy()
        if batch.asks[0].phase == FILL_OPEN:
            open_now: dict[int, tuple[int, Flags]] = {}
            for ask, which in zip(batch.asks, wanted, strict=True):
                clock = id(self._stage.lines[ask.line].clock)
                _, before = open_now.get(clock, (ask.place, np.zeros(len(which), dtype=bool)))
                open_now[clock] = ask.place, before | which
            for number, line in enumerate(self._stage.lines):
                place, which = open_now.get(id(line.clock), (-1, wanted[0]))
                if place >= 0 and line.known[place] <= line.clock.closes[place]:
                    opened = line.opens[place]
                    found[number] = np.where(which & (opened > 0.0), opened, found[number])
        found[batch.lines] = np.where(wanted, prices, found[batch.lines])
        return found

    def _buying(
        self, order: _Order, asked: Reals, buys: Flags, equity: Reals, at_hand: Reals
    ) -> tuple[Reals, Flags]:
        """Return what each purchase may cost, and which of them do no more than end a short."""
        lines = order.batch.lines
        free = self._cash
        for shares, price, rate in zip(self._shares, at_hand, self._rate, strict=True):
            free = free + np.where(shares < 0.0, shares * price * rate, 0.0)
        below = np.minimum(self._shares[lines], 0.0)
        opening = asked + below * order.prices * self._rate[lines]
        wanted = np.zeros(len(free))
        for part, which in zip(opening, buys, strict=True):
            wanted = wanted + np.where(which, part, 0.0)
        factor = np.where(free <= NO_CASH * equity, 0.0, free / wanted)
        factor = np.where(wanted <= free, 1.0, factor)
        amount = np.where(factor == 1.0, asked, asked - opening + opening * factor)
        close: Flags = np.broadcast_to(factor == 0.0, amount.shape)
        return amount, close

    def _carry_out(self, order: _Order, amount: Reals, which: Flags, *, close: Flags) -> None:
        """Fill one order a line and book, where `which` says so."""
        if not which.any():
            return
        costs, lines = self._rule.costs, order.batch.lines
        rate, weights = self._rate[lines], order.batch.weights
        shares_held = self._shares[lines]
        slip: Reals | float = costs.slip(0.0)
        volume = np.zeros((len(lines), 1))
        if costs.needs_volume:
            volume = np.array([[self._volume(ask)] for ask in order.batch.asks])
            which = which & (volume > 0.0)
            share = np.abs(amount) / (order.prices * rate) / volume
            share = np.minimum(share, costs.participation_cap or 1.0)
            slip = (costs.slippage_bps + costs.impact_bps * share) / BPS
        price = order.prices * np.where(amount > 0.0, 1.0 + slip, 1.0 - slip)
        held = np.abs(shares_held)
        wanted = np.where(close, held, _shares(costs, weights, amount, price * rate, held))
        shares = wanted
        if costs.participation_cap is not None:
            shares = np.minimum(wanted, costs.participation_cap * volume)
        cut = shares < wanted
        if not self._rule.fractional:
            whole = np.floor(shares + WHOLE)
            shares = np.where(shares != held, whole, shares)
        which = which & (shares > 0.0)
        signed = np.where(amount > 0.0, shares, -shares)
        charge = shares * (price * rate) * costs.commission_bps / BPS
        charge = np.maximum(charge + shares * costs.commission_per_share, costs.commission_minimum)
        outlay = signed * price * rate
        for paid, fee, done in zip(outlay, charge, which, strict=True):
            self._cash = np.where(done, self._cash - paid - fee, self._cash)
        self._shares[lines] = np.where(which, shares_held + signed, shares_held)
        self._mark[lines] = np.where(which, order.prices, self._mark[lines])
        self._fresh[lines] = np.where(which, order.batch.asks[0].at, self._fresh[lines])
        self._settle_at(lines, which, np.where(cut, np.nan, weights), order.slots)

    def _volume(self, ask: Ask) -> float:
        return float(self._stage.lines[ask.line].volume[ask.place])


@dataclass(frozen=True, kw_only=True, slots=True)
class _Order:
    """Hold what the orders of a batch share: their prices, a row each, and the slots."""

    batch: Batch
    prices: Reals
    slots: int


def _price(stage: Stage, ask: Ask) -> float:
    """Return the price of a fill, 0 where it is refused whatever its size."""
    line = stage.lines[ask.line]
    day = line.clock.days[ask.place]
    if not line.trades_on(day) or day in line.conflicts:
        return 0.0
    return (line.opens if ask.phase == FILL_OPEN else line.closes)[ask.place]


def _shares(costs: Costs, weights: Reals, amount: Reals, price: Reals, held: Reals) -> Reals:
    """Return how many shares orders trade; see `book_orders.Desk._shares` and `Costs`."""
    rate, each = costs.commission_bps / BPS, costs.commission_per_share
    least = costs.commission_minimum
    fee = price * rate + each
    bought = amount / (price * (1.0 + rate) + each)
    bought = np.where(bought * fee >= least, bought, np.maximum((amount - least) / price, 0.0))
    left = price * (1.0 - rate) - each
    raised = -amount / left
    raised = np.where(raised * fee >= least, raised, (-amount + least) / price)
    long = np.where(left <= 0.0, held, np.minimum(raised, held))
    sold = np.where(weights > 0.0, long, np.where(left <= 0.0, 0.0, raised))
    found: Reals = np.where(amount > 0.0, bought, sold)
    return found


def batches_of(asks: Sequence[tuple[Ask, Reals]]) -> list[Batch]:
    """Put together what fills at one instant.

    Args:
        asks: Fills, each with the weights of all books.
    """
    found = []
    ordered = sorted(asks, key=lambda one: one[0])
    for _, group in groupby(ordered, key=lambda one: one[0][:2]):
        members = list(group)
        found.append(
            Batch(
                lines=np.array([ask.line for ask, _ in members], dtype=np.intp),
                asks=tuple(ask for ask, _ in members),
                weights=np.array([weights for _, weights in members]),
            )
        )
    return found
