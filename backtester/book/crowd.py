"""Many books at once: the same prices and decision dates, other weights in each.

A score has its own books, a dozen baselines and hundreds of random ones. Here one walk carries them
all, a column each; every number of a column is the very double that `walk` gives, by the same
operations in the same order (tests compare them bit by bit). The first columns may be kept whole:
a `Tape` takes down what they did and makes the rows of orders, positions and equity.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import numpy.typing as npt

from backtester.book.costs import BPS, YEAR_DAYS, Costs
from backtester.book.desires import Batch, Desires, Span, span_of
from backtester.book.lines import Event, Stage
from backtester.book.orders import NO_CASH, NOISE, WHOLE
from backtester.book.records import BookRule
from backtester.book.tape import Fills, Orders, Outcome, Tape
from backtester.book.walk import CLOSE, ROW, Happening, Script
from backtester.errors import DataError

Reals = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Closes:
    """Hold the closes that become known at one instant, a row a line."""

    lines: Span
    prices: Reals
    instants: npt.NDArray[np.int64]


class Crowd:
    """Carry the accounts of many books forward.

    Attributes:
        equity: A row a session of the stage, a column a book; filled by `go`.
        tape: What the kept books did.
    """

    def __init__(
        self,
        stage: Stage,
        script: Script,
        rule: BookRule,
        desires: Desires,
        *,
        kept: int = 0,
        always: Sequence[bool] = (),
    ) -> None:
        """Begin with cash alone in each.

        Args:
            stage: Prices.
            script: Of that stage.
            rule: How weights become orders; its policy is not looked at.
            desires: What the books want.
            kept: The first so many books are taken down.
            always: For each book, whether it trades back to its weights at each decision, whatever
                the rule says; empty for none of them.
        """
        books = desires.weights.shape[1]
        shape = (len(stage.lines), books)
        self._stage, self._script, self._rule, self._desires = stage, script, rule, desires
        self._cash = np.full(books, rule.start_cash)
        self._shares = np.zeros(shape)
        self._mark = np.zeros(shape)
        self._fresh = np.full(shape, -1, dtype=np.int64)
        self._tier, self._slots = np.zeros(shape), np.ones(shape, dtype=np.int64)
        self._rate = np.array(
            [[1.0 / one.units if one.major == stage.currency else 0.0] for one in stage.lines]
        )
        self._on_change = np.full(books, rule.rebalance == "on_change")
        if always:
            self._on_change &= ~np.array(always)
        self._row = 0
        self.equity = np.zeros((len(stage.rows), books))
        self.tape = Tape(stage, rule, asks=len(desires.weights), books=kept)

    def go(self) -> None:
        """Go through everything.

        Raises:
            DataError: A book holds what meets an action that cannot be believed.
        """
        batches = iter(self._desires.batches)
        batch = next(batches, None)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            for (at, phase), group in groupby(self._script.happenings, key=_moment):
                while batch is not None and (batch.at, batch.phase) < (at, phase):
                    self._fill(batch)
                    batch = next(batches, None)
                if phase == CLOSE:
                    self._close(tuple(group))
                else:
                    for what in group:
                        self._happen(what)
            while batch is not None:
                self._fill(batch)
                batch = next(batches, None)

    # --------------------------------------------------------------------------------- happenings

    def _happen(self, what: Happening) -> None:
        if what.phase == ROW:
            self._draw_up()
        elif what.place < 0:
            self._gone(what.line, -1 - what.place)
        else:
            self._apply(what.line, self._stage.lines[what.line].events[what.place])

    def _close(self, group: Sequence[Happening]) -> None:
        for what in group:
            if what.line < 0:
                self._exchanged(-1 - what.line, what.place)
        closes = _closes_of(self._stage, [what for what in group if what.line >= 0])
        if closes is None:
            return
        span = closes.lines
        news = self._fresh[span] <= closes.instants
        self.tape.priced(span, closes.instants, news)
        if news.all():
            self._mark[span], self._fresh[span] = closes.prices, closes.instants
            return
        self._mark[span] = np.where(news, closes.prices, self._mark[span])
        self._fresh[span] = np.where(news, closes.instants, self._fresh[span])

    def _exchanged(self, number: int, place: int) -> None:
        exchange = self._stage.exchanges[number]
        rate = exchange.rate(place)
        self.tape.rated(number, place)
        for at, line in enumerate(self._stage.lines):
            if line.major == exchange.major:
                self._rate[at] = rate / line.units

    def _apply(self, number: int, event: Event) -> None:
        shares = self._shares[number]
        if event.flaw is not None:
            if shares.any():
                raise DataError(f"{event.words} {event.flaw}: the book holds it and cannot go on")
            return
        paid = shares * event.amount * self._rate[number]
        self._cash = self._cash + paid
        self.tape.dividend(number, paid)
        self._shares[number] = shares * event.ratio
        self._mark[number] = np.maximum(self._mark[number] - event.amount, 0.0) / event.ratio
        self._fresh[number] = event.at

    def _gone(self, number: int, place: int) -> None:
        """Close what is held of a ticker that trades no more; see `book_walk.Walk`."""
        shares, rate = -self._shares[number], float(self._rate[number, 0])
        price = self._mark[number] * (1.0 - self._rule.haircut)
        outlay = shares * price * rate
        self._cash = self._cash - outlay
        self.tape.gone(number, place, shares, self._mark[number], rate, outlay)
        self._shares[number] = 0.0
        self._tier[number], self._slots[number] = 0.0, 1

    def _draw_up(self) -> None:
        rows, costs = self._stage.rows, self._rule.costs
        values = self._values()
        if self._row and (costs.cash_rate or costs.borrow_bps_year):
            days = (rows[self._row][0] - rows[self._row - 1][0]).days
            interest = self._cash * costs.cash_rate * days / YEAR_DAYS
            fees = np.zeros_like(values)
            if costs.borrow_bps_year:
                fee = -values * costs.borrow_bps_year / BPS * days / YEAR_DAYS
                fees = np.where(self._shares < 0.0, fee, 0.0)
            borrowed = _summed(np.zeros(len(self._cash)), fees)
            self._cash = self._cash + interest - borrowed
            self.tape.accrued(interest, borrowed, fees)
        total = _summed(np.zeros(len(self._cash)), values)
        self.equity[self._row] = self._cash + total
        self.tape.row(self._row, self._cash, self._shares, self._mark, self._rate)
        self._row += 1

    def _values(self) -> Reals:
        values: Reals = self._shares * self._mark * self._rate
        return values

    # --------------------------------------------------------------------------------------- fills

    def _fill(self, batch: Batch) -> None:
        """Carry out what all books want at one instant; see `book_orders.Desk.fill`."""
        span, weights = batch.lines, self._desires.weights[batch.rows]
        rate, shares = self._rate[span], self._shares[span]
        ordered = ~np.isnan(weights) & ~self._stands(batch, weights, shares)
        fills = (batch.prices > 0.0) & (rate > 0.0)
        self.tape.rates_of(batch, rate)
        if not fills.all():
            self.tape.refused(batch, ordered & ~fills, shares)
            ordered &= fills
        rows, books = np.nonzero(ordered)
        if not len(rows):
            return
        orders = Orders(
            row=rows,
            book=books,
            line=batch.numbers[rows],
            weight=weights[rows, books],
            price=batch.prices[rows, 0],
            rate=rate[rows, 0],
            volume=batch.volume[rows, 0],
            held=shares[rows, books],
        )
        at_hand = self._at_hand(batch, ordered)
        equity = _summed(self._cash, self._shares * at_hand * self._rate)
        self._carry_out_all(batch, orders, equity, at_hand)

    def _stands(self, batch: Batch, weights: Reals, shares: Reals) -> Flags:
        zero = weights == 0.0
        level = zero | (self._slots[batch.lines] == batch.slots)
        stands: Flags = (self._tier[batch.lines] == weights) & level & self._on_change
        stands |= (shares == 0.0) & zero
        return stands

    def _at_hand(self, batch: Batch, wanted: Flags) -> Reals:
        """Return the price of each line at the instant; see `book_orders.Desk._prices`."""
        found = self._mark.copy()
        for market in batch.opening:
            which = wanted[market.asked].any(axis=0)
            opened = which & (market.opens > 0.0)
            found[market.lines] = np.where(opened, market.opens, found[market.lines])
        found[batch.lines] = np.where(wanted, batch.prices, found[batch.lines])
        return found

    def _carry_out_all(self, batch: Batch, orders: Orders, equity: Reals, at_hand: Reals) -> None:
        """Size orders, then fill those that bring cash, then those that take it."""
        worth = equity[orders.book]
        asked = worth * orders.weight / batch.slots - orders.held * orders.price * orders.rate
        opens = orders.weight != 0.0
        broke = opens & (worth <= 0.0)
        left = broke | (opens & (np.abs(asked) <= NOISE * worth))
        if left.any():
            self.tape.note(batch, orders.at(broke), Outcome.NO_EQUITY)
            self._settle_at(batch, orders.at(left & ~broke))
            orders, asked = orders.at(~left), asked[~left]
        self.tape.asked(batch, orders, asked)
        sells = (asked < 0.0) | (orders.weight <= 0.0)
        # A purchase is filled as if there were cash enough, and again where there is not.
        fills = self._fills(orders, asked, close=orders.weight == 0.0)
        first, then = np.flatnonzero(sells & fills.done), np.flatnonzero(~sells)
        self._trade(orders, fills, first)
        if len(then):
            fills = self._within_cash(orders, asked, fills, then, equity, at_hand)
            then = then[fills.done[then]]
            self._trade(orders, fills, then)
        if not fills.done.all():
            self.tape.unfilled(batch, orders, fills)
        turn = np.concatenate((first, then))
        self.tape.traded(batch, orders, fills, turn)
        # What the cap cut off is asked for again by the next decision, even an equal one.
        cut = fills.outcome == Outcome.CUT_BY_VOLUME
        weight = np.where(cut, np.nan, orders.weight) if cut.any() else orders.weight
        at = (orders.line[turn], orders.book[turn])
        self._mark[at], self._fresh[at] = orders.price[turn], batch.at
        self._tier[at], self._slots[at] = weight[turn], batch.slots

    def _within_cash(
        self,
        orders: Orders,
        asked: Reals,
        fills: Fills,
        buys: npt.NDArray[np.intp],
        equity: Reals,
        at_hand: Reals,
    ) -> Fills:
        """Return fills with purchases scaled by one factor a book where its cash is too little."""
        free, short = self._cash, self._shares < 0.0
        if short.any():
            owed = self._shares * at_hand * self._rate
            free = _summed(free, np.where(short, owed, 0.0))
        book, asked = orders.book[buys], asked[buys]
        covered = np.minimum(orders.held, 0.0) * orders.price * orders.rate
        opening = asked + covered[buys]
        wanted = np.zeros(len(free))
        np.add.at(wanted, book, opening)
        enough = wanted <= free
        if enough.all():
            return fills
        scaled = np.where(free <= NO_CASH * equity, 0.0, free / wanted)
        factor = np.where(enough, 1.0, scaled)[book]
        amount = np.where(factor == 1.0, asked, asked - opening + opening * factor)
        none = (amount <= 0.0) & (factor != 1.0)
        cut = factor < 1.0 - WHOLE
        again = self._fills(orders.at(buys), amount, close=factor == 0.0, cut=cut)
        again.outcome[none], again.done[none] = Outcome.NO_CASH, False
        fills.replace(buys, again)
        return fills

    def _fills(
        self, orders: Orders, amount: Reals, *, close: Flags, cut: Flags | None = None
    ) -> Fills:
        """Return how orders fill, as far as their bars and costs let them.

        Args:
            orders: Of books and lines, at most one for each pair.
            amount: Cash to move.
            close: Which trade just what is held.
            cut: Which had not cash enough.
        """
        costs = self._rule.costs
        up, held = amount > 0.0, np.abs(orders.held)
        slip = _slip(costs, orders, amount)
        price = orders.price * np.where(up, 1.0 + slip, 1.0 - slip)
        worth = price * orders.rate
        wanted = np.where(close, held, _shares(costs, orders.weight, amount, worth, held))
        outcome = np.full(len(wanted), Outcome.FILLED, dtype=np.int8)
        if cut is not None:
            outcome[cut] = Outcome.CUT_BY_CASH
        shares = wanted
        if costs.participation_cap is not None:
            shares = np.minimum(wanted, costs.participation_cap * orders.volume)
            outcome[shares < wanted] = Outcome.CUT_BY_VOLUME
        if not self._rule.fractional:
            shares = np.where(shares != held, np.floor(shares + WHOLE), shares)
        fee = shares * worth * costs.commission_bps / BPS
        fee = np.maximum(fee + shares * costs.commission_per_share, costs.commission_minimum)
        done = shares > 0.0
        if not done.all():
            below = np.where(wanted != 0.0, Outcome.BELOW_ONE_SHARE, Outcome.BELOW_COSTS)
            outcome = np.where(done, outcome, below).astype(np.int8)
        if costs.needs_volume and not (some := orders.volume > 0.0).all():
            done &= some
            outcome[~some] = Outcome.NO_VOLUME
        signed = np.where(up, shares, -shares)
        return Fills(price=price, signed=signed, fee=fee, outcome=outcome, done=done)

    def _trade(self, orders: Orders, fills: Fills, which: npt.NDArray[np.intp]) -> None:
        """Change cash and shares for some orders that fill, one after the other."""
        book, signed = orders.book[which], fills.signed[which]
        # Outlay and commission of each order in turn; taking off is adding the negative.
        parts = np.empty((len(which), 2))
        parts[:, 0] = -(signed * fills.price[which] * orders.rate[which])
        parts[:, 1] = -fills.fee[which]
        np.add.at(self._cash, np.repeat(book, 2), parts.ravel())
        self._shares[orders.line[which], book] = orders.held[which] + signed

    def _settle_at(self, batch: Batch, orders: Orders) -> None:
        at = (orders.line, orders.book)
        self._tier[at], self._slots[at] = orders.weight, batch.slots


def _moment(what: Happening) -> tuple[int, int]:
    return what[:2]


def _summed(start: Reals, parts: Reals) -> Reals:
    """Return the start and all rows added up, one after the other."""
    buffer = np.empty((len(parts) + 1, parts.shape[1]))
    buffer[0], buffer[1:] = start, parts
    # A plain sum may add pairs first; this never does.
    added: Reals = np.add.accumulate(buffer, axis=0)[-1]
    return added


def _closes_of(stage: Stage, group: Sequence[Happening]) -> _Closes | None:
    if not group:
        return None
    lines = [stage.lines[what.line] for what in group]
    pairs = list(zip(lines, group, strict=True))
    return _Closes(
        lines=span_of([what.line for what in group]),
        prices=np.array([[line.closes[what.place]] for line, what in pairs]),
        instants=np.array([[line.clock.closes[what.place]] for line, what in pairs]),
    )


def _slip(costs: Costs, orders: Orders, amount: Reals) -> Reals | float:
    """Return the worsening of each fill price; see `Costs.slip`."""
    if not costs.needs_volume:
        return costs.slip(0.0)
    share = np.abs(amount) / (orders.price * orders.rate) / orders.volume
    share = np.minimum(share, costs.participation_cap or 1.0)
    found: Reals = (costs.slippage_bps + costs.impact_bps * share) / BPS
    return found


def _shares(costs: Costs, weights: Reals, amount: Reals, price: Reals, held: Reals) -> Reals:
    """Return how many shares orders trade; see `book_orders.Desk._shares` and `Costs`."""
    rate, each = costs.commission_bps / BPS, costs.commission_per_share
    least = costs.commission_minimum
    fee = price * rate + each
    bought = amount / (price * (1.0 + rate) + each)
    left = price * (1.0 - rate) - each
    raised = -amount / left
    if least:
        bought = np.where(bought * fee >= least, bought, np.maximum((amount - least) / price, 0.0))
        raised = np.where(raised * fee >= least, raised, (-amount + least) / price)
    long, short = np.minimum(raised, held), raised
    if each:
        eaten = left <= 0.0
        long, short = np.where(eaten, held, long), np.where(eaten, 0.0, short)
    sold = np.where(weights > 0.0, long, short)
    found: Reals = np.where(amount > 0.0, bought, sold)
    return found
