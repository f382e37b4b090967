"""Many books at once: the same prices and decision dates, other weights in each.

A score has its own books, a dozen baselines and hundreds of random ones. Here one walk carries them
all, a column each; every number of a column is the very double that `walk` gives, by the same
operations in the same order (tests compare them bit by bit). The first columns may be kept whole:
a `Tape` takes down what they did and makes the rows of orders, positions and equity.

What is there of every holding lies line by line in arrays of lines x books; a cell is a place in
such an array laid flat. What orders change is a small part of it, so they are picked out first.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from backtester.book.costs import BPS, YEAR_DAYS
from backtester.book.desires import Batch, Desires
from backtester.book.lines import Event, Stage
from backtester.book.moments import Closes, moments_of
from backtester.book.orders import NO_CASH, NOISE, WHOLE
from backtester.book.records import BookRule
from backtester.book.sizing import Fills, Orders, Outcome, Sizing, every
from backtester.book.tape import Tape
from backtester.book.walk import ROW, Happening, Script
from backtester.errors import DataError

Reals = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Places = npt.NDArray[np.intp]


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
        self._sizing, self._needs_volume = Sizing(rule), rule.costs.needs_volume
        self._cash = np.full(books, rule.start_cash)
        self._shares = np.zeros(shape)
        self._mark = np.zeros(shape)
        self._fresh = np.full(shape, -1, dtype=np.int64)
        self._newest = -1
        self._tier, self._slots = np.zeros(shape), np.ones(shape, dtype=np.int64)
        self._rate = np.array(
            [[1.0 / one.units if one.major == stage.currency else 0.0] for one in stage.lines]
        )
        # Multiplying by 1 changes nothing, so it is left out where all rates are and stay 1.
        self._one_rate = not stage.exchanges and bool((self._rate == 1.0).all())
        self._one_slot = len({batch.slots for batch in desires.batches}) == 1
        self._on_change = np.full(books, rule.rebalance == "on_change")
        if always:
            self._on_change &= ~np.array(always)
        self._asks = ~np.isnan(desires.weights)
        self._flat = desires.weights == 0.0
        self._lay_flat(*shape)
        self._row = 0
        self.equity = np.zeros((len(stage.rows), books))
        asks = len(desires.weights)
        self.tape = Tape(stage, rule, asks=asks, books=kept, of=books, rates=self._rate)

    def _lay_flat(self, lines: int, books: int) -> None:
        """Prepare what finds a cell, and room to add up."""
        self._line_of = np.repeat(np.arange(lines), books)
        self._book_of = np.tile(np.arange(books), lines)
        # The same numbers laid flat, by cell.
        self._shares_of, self._mark_of = self._shares.reshape(-1), self._mark.reshape(-1)
        self._fresh_of, self._tier_of = self._fresh.reshape(-1), self._tier.reshape(-1)
        self._slots_of = self._slots.reshape(-1)
        # Something to add up, and the values of all holdings below it.
        self._sums = np.empty((lines + 1, books))
        self._values = self._sums[1:]
        self._values_of = self._values.reshape(-1)

    def go(self) -> None:
        """Go through everything.

        Raises:
            DataError: A book holds what meets an action that cannot be believed.
        """
        batches = iter(self._desires.batches)
        batch = next(batches, None)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            for moment in moments_of(self._stage, self._script):
                while batch is not None and (batch.at, batch.phase) < (moment.at, moment.phase):
                    self._fill(batch)
                    batch = next(batches, None)
                for what in moment.others:
                    self._happen(what)
                if moment.closes is not None:
                    self._close(moment.closes)
            while batch is not None:
                self._fill(batch)
                batch = next(batches, None)
        self.tape.finish(self._desires)

    # --------------------------------------------------------------------------------- happenings

    def _happen(self, what: Happening) -> None:
        if what.phase == ROW:
            self._draw_up()
        elif what.line < 0:
            self._exchanged(-1 - what.line, what.place)
        elif what.place < 0:
            self._gone(what.line, -1 - what.place)
        else:
            self._apply(what.line, self._stage.lines[what.line].events[what.place])

    def _close(self, closes: Closes) -> None:
        span, prices, instants = closes.lines, closes.prices, closes.instants
        if closes.oldest < self._newest:
            # Some may be older than what a book knows already.
            news = self._fresh[span] <= instants
            prices = np.where(news, prices, self._mark[span])
            instants = np.where(news, instants, self._fresh[span])
            self.tape.priced(span, closes.instants, news)
        else:
            self.tape.priced(span, instants, None)
        self._mark[span], self._fresh[span] = prices, instants
        self._newest = max(self._newest, closes.newest)

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
        self._fresh[number], self._newest = event.at, max(self._newest, event.at)

    def _gone(self, number: int, place: int) -> None:
        """Close what is held of a ticker that trades no more; see `walk.Walk`."""
        shares, rate = -self._shares[number], float(self._rate[number, 0])
        price = self._mark[number] * (1.0 - self._rule.haircut)
        outlay = shares * price * rate
        self._cash = self._cash - outlay
        self.tape.gone(number, place, shares, self._mark[number], rate, outlay)
        self._shares[number] = 0.0
        self._tier[number], self._slots[number] = 0.0, 1

    def _draw_up(self) -> None:
        rows, costs = self._stage.rows, self._rule.costs
        values = self._value(self._mark)
        if self._row and (costs.cash_rate or costs.borrow_bps_year):
            days = (rows[self._row][0] - rows[self._row - 1][0]).days
            interest = self._cash * costs.cash_rate * days / YEAR_DAYS
            fees = np.zeros_like(values)
            if costs.borrow_bps_year:
                fee = -values * costs.borrow_bps_year / BPS * days / YEAR_DAYS
                fees = np.where(self._shares < 0.0, fee, 0.0)
            borrowed = np.add.accumulate(fees)[-1]
            self._cash = self._cash + interest - borrowed
            self.tape.accrued(interest, borrowed, fees)
        np.add(self._cash, self._added(0.0), out=self.equity[self._row])
        self.tape.row(self._cash, self._shares, self._mark, self._rate)
        self._row += 1

    def _value(self, prices: Reals) -> Reals:
        """Return the value of every holding at some prices, lines x books; good till the next."""
        np.multiply(self._shares, prices, out=self._values)
        if not self._one_rate:
            np.multiply(self._values, self._rate, out=self._values)
        return self._values

    def _added(self, start: Reals | float) -> Reals:
        """Return a start and the values, line after line, as they were worked out last."""
        self._sums[0] = start
        # Along the axis that lies apart numpy adds row to row; along the other it may add pairs.
        found: Reals = np.add.reduce(self._sums, axis=0)
        return found if len(self._cash) > 1 else np.add.accumulate(self._sums)[-1]

    # --------------------------------------------------------------------------------------- fills

    def _fill(self, batch: Batch) -> None:
        """Carry out what all books want at one instant; see `orders.Desk.fill`."""
        ordered = self._ordered(batch)
        places = ordered.reshape(-1).nonzero()[0]
        if not len(places):
            return
        self._value(self._prices(batch, ordered))
        equity = self._added(self._cash)
        orders, early = self._orders(batch, places, equity)
        sales, purchases = orders.at(slice(early)), orders.at(slice(early, None))
        fills = self._sizing.sales(sales)
        self._pay(sales, fills)
        if early < len(orders.row):
            bought = self._bought(purchases, equity)
            self._pay(purchases, bought)
            fills = fills.joined(bought)
        self.tape.sized(batch, orders, fills)
        self._settle(batch, orders, fills)

    def _ordered(self, batch: Batch) -> Flags:
        """Say which decisions of which books make an order that can be filled."""
        span, flat = batch.lines, self._flat[batch.rows]
        shares = self._shares[span]
        stands: Flags = self._tier[span] == self._desires.weights[batch.rows]
        if not self._one_slot:
            stands &= flat | (self._slots[span] == batch.slots)
        stands &= self._on_change
        stands |= (shares == 0.0) & flat
        ordered: Flags = np.greater(self._asks[batch.rows], stands)
        if not (batch.priced and self._one_rate):
            rate = self._rate[span]
            fills = (batch.prices > 0.0) & (rate > 0.0)
            self.tape.rates_of(batch, rate)
            self.tape.refused(batch, ordered & ~fills, shares)
            ordered &= fills
        return ordered

    def _prices(self, batch: Batch, ordered: Flags) -> Reals:
        """Return the price of each line at the instant; see `orders.Desk._prices`.

        What is said of a book without an order means nothing.
        """
        if batch.market is not None:
            return batch.market
        found = self._mark.copy()
        for market in batch.opening:
            which = ordered[market.asked].any(axis=0)
            opened = which & (market.opens > 0.0)
            found[market.lines] = np.where(opened, market.opens, found[market.lines])
        found[batch.lines] = np.where(ordered, batch.prices, found[batch.lines])
        return found

    def _orders(self, batch: Batch, places: Places, equity: Reals) -> tuple[Orders, int]:
        """Pick out orders and size them; those that cannot or need not be filled are left out.

        Args:
            batch: Decisions.
            places: Which of them are orders, in the books laid side by side.
            equity: Of each book.

        Returns:
            First those that bring cash or end a short position, then those that open or enlarge a
            long one, each by line; and how many the first ones are.
        """
        book, cell = self._book_of[places], places
        if not batch.whole:
            cell = batch.numbers[self._line_of[places]] * len(equity) + book
        weight, worth = self._desires.weights[batch.rows].take(places), equity[book]
        asked = worth * weight / batch.slots - self._values_of[cell]
        small = np.abs(asked) <= NOISE * worth
        # Not what brings cash or ends a short position; all that is comes first.
        then = np.greater(weight > 0.0, asked < 0.0)
        turn, early = then.argsort(kind="stable"), len(then) - int(np.count_nonzero(then))
        row, cell = self._line_of[places[turn]], cell[turn]
        orders = Orders(
            row=row,
            book=book[turn],
            cell=cell,
            weight=weight[turn],
            asked=asked[turn],
            held=self._shares_of[cell],
            price=batch.prices.take(row),
            rate=None if self._one_rate else self._rate.take(batch.numbers[row]),
            volume=batch.volume.take(row) if self._needs_volume else None,
        )
        if np.count_nonzero(small) or np.count_nonzero(equity <= 0.0):
            return self._without_rest(batch, orders, small[turn], worth[turn], early)
        return orders, early

    def _without_rest(
        self, batch: Batch, orders: Orders, small: Flags, worth: Reals, early: int
    ) -> tuple[Orders, int]:
        """Leave out orders of books without equity and what stands at its target already."""
        opens = orders.weight != 0.0
        broke = opens & (worth <= 0.0)
        stays = opens & small & ~broke
        self.tape.broke(batch, orders.at(broke))
        self._settle_at(batch, orders.at(stays))
        kept = ~(broke | stays)
        return orders.at(kept), int(np.count_nonzero(kept[:early]))

    def _bought(self, orders: Orders, equity: Reals) -> Fills:
        """Size purchases, scaled by one factor a book where its cash is too little for them."""
        free, asked, opening = self._cash, orders.asked, orders.asked
        if np.count_nonzero(self._values < 0.0):
            np.minimum(self._values, 0.0, out=self._values)
            free = self._added(free)
            covered = np.minimum(orders.held, 0.0) * orders.price
            opening = asked + orders.converted(covered)
        wanted = np.bincount(orders.book, opening, len(free))
        enough = (wanted <= free)[orders.book]
        if every(enough):
            return self._sizing.purchases(orders, asked, None)
        scaled = np.where(free <= NO_CASH * equity, 0.0, free / wanted)
        factor = np.where(enough, 1.0, scaled[orders.book])
        amount = np.where(factor == 1.0, asked, asked - opening + opening * factor)
        cut = factor < 1.0 - WHOLE
        if not np.count_nonzero(cut):
            # It is too little by no more than the noise of its sums.
            return self._sizing.purchases(orders, amount, None)
        fills = self._sizing.purchases(orders, amount, factor == 0.0)
        whole = cut if fills.outcome is None else cut & (fills.outcome == Outcome.FILLED)
        fills = fills.marked(whole, Outcome.CUT_BY_CASH)
        return fills.marked(cut & (amount <= 0.0), Outcome.NO_CASH)

    def _pay(self, orders: Orders, fills: Fills) -> None:
        """Change cash, and values, by orders that fill, one after the other."""
        done = fills.done()
        if done is not None:
            orders, fills = orders.at(done), fills.at(done)
        # Of each order in turn what the shares cost, then the commission.
        np.subtract.at(self._cash, orders.book.repeat(2), fills.paid.reshape(-1))
        after = (orders.held + fills.signed) * orders.price
        self._values_of[orders.cell] = orders.converted(after)

    def _settle(self, batch: Batch, orders: Orders, fills: Fills) -> None:
        """Write down what is held after fills, at which price and target."""
        done = fills.done()
        if done is not None:
            orders, fills = orders.at(done), fills.at(done)
        if self._rule.costs.participation_cap is not None and fills.outcome is not None:
            # What the cap cut off is asked for again by the next decision, even an equal one.
            cut = fills.outcome == Outcome.CUT_BY_VOLUME
            orders = orders._replace(weight=np.where(cut, np.nan, orders.weight))
        self._shares_of[orders.cell] = orders.held + fills.signed
        self._mark_of[orders.cell] = orders.price
        self._fresh_of[orders.cell] = batch.at
        self._newest = max(self._newest, batch.at)
        self._settle_at(batch, orders)

    def _settle_at(self, batch: Batch, orders: Orders) -> None:
        self._tier_of[orders.cell] = orders.weight
        if not self._one_slot:
            self._slots_of[orders.cell] = batch.slots
