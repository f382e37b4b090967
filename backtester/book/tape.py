"""What the kept books of a crowd did, taken down as arrays while they walk, then made into rows.

A `Crowd` tells its tape of every fill, dividend and session. The rows of orders, positions and
equity are worked out from that at the end, for all sessions together, by the operations of
`walk` in their order; the books must balance as `Account.require_balance` has it.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from backtester.book.account import BALANCE
from backtester.book.desires import Batch, Span
from backtester.book.lines import Stage
from backtester.book.records import BookRule
from backtester.errors import BacktesterError

Reals = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class Outcome(IntEnum):
    """What became of a decision; 0 where it made no order."""

    NONE = 0
    FILLED = 1
    CUT_BY_CASH = 2
    CUT_BY_VOLUME = 3
    REFUSED = 4
    NO_EQUITY = 5
    NO_CASH = 6
    NO_VOLUME = 7
    BELOW_ONE_SHARE = 8
    BELOW_COSTS = 9


class Orders(NamedTuple):
    """Hold orders of many books at one instant, one entry each, by line and book.

    Attributes:
        row: Place among the batch's decisions.
        book: Column of the book.
        line: Place of the line.
        weight: Wanted part of the slot.
        price: Of the bar; so `volume`.
        rate: Book currency for one unit of the line's.
        volume: Shares traded.
        held: Shares before.
    """

    row: npt.NDArray[np.intp]
    book: npt.NDArray[np.intp]
    line: npt.NDArray[np.intp]
    weight: Reals
    price: Reals
    rate: Reals
    volume: Reals
    held: Reals

    def at(self, which: Flags | npt.NDArray[np.intp]) -> Orders:
        """Return some of them."""
        return Orders(
            row=self.row[which],
            book=self.book[which],
            line=self.line[which],
            weight=self.weight[which],
            price=self.price[which],
            rate=self.rate[which],
            volume=self.volume[which],
            held=self.held[which],
        )


class Fills(NamedTuple):
    """Hold what becomes of orders, one entry each.

    Attributes:
        price: After slippage.
        signed: Shares, below zero where sold; means nothing where not done.
        fee: Commission.
        outcome: `Outcome`.
        done: Whether anything is traded.
    """

    price: Reals
    signed: Reals
    fee: Reals
    outcome: npt.NDArray[np.int8]
    done: Flags

    def replace(self, at: npt.NDArray[np.intp], fills: Fills) -> None:
        """Put other fills in the place of some, in these very arrays."""
        self.price[at], self.signed[at], self.fee[at] = fills.price, fills.signed, fills.fee
        self.outcome[at], self.done[at] = fills.outcome, fills.done


class Closing(NamedTuple):
    """Hold what was closed because its ticker trades no more; arrays are by book."""

    line: int
    place: int
    shares: Reals
    mark: Reals
    rate: float


class Tape:
    """Take down the first books of a crowd; without any it takes down nothing.

    Attributes:
        books: How many.
        code: `Outcome` of each decision, a row a decision and a column a book; so the next five.
        shares: Traded, below zero where sold.
        price: Of the fill.
        fee: Commission.
        wished: Cash that the target wanted to move.
        held: Shares before.
        rate: Book currency for one unit of the quote currency, by decision.
        closings: In order.
        cash: Sessions x books; so the flows.
        held_shares: Sessions x lines x books; so `marks`, `paid` (put in less taken out),
            `priced_at` and `touched`.
        rates: Sessions x lines.
        rated_at: Sessions x exchanges: session of the pair that the rate is of, by place.
    """

    def __init__(self, stage: Stage, rule: BookRule, *, asks: int, books: int) -> None:
        """Begin with nothing taken down."""
        rows, lines = len(stage.rows), len(stage.lines)
        self._stage, self._start_cash = stage, rule.start_cash
        self.books = books
        shape = (asks, books)
        self.code = np.zeros(shape, dtype=np.int8)
        self.shares, self.price, self.fee = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        self.wished, self.held = np.zeros(shape), np.zeros(shape)
        self.rate = np.zeros(asks)
        self.closings: list[Closing] = []
        self._paid = np.zeros((lines, books))
        self._priced = np.full((lines, books), -1, dtype=np.int64)
        self._touched = np.zeros((lines, books), dtype=np.bool_)
        self._rated = np.full(len(stage.exchanges), -1, dtype=np.int64)
        # Traded, commission, slippage; then dividends, interest, borrowing.
        self._flows = np.zeros((6, books))
        wide = (rows, lines, books)
        self.held_shares, self.marks, self.paid = np.zeros(wide), np.zeros(wide), np.zeros(wide)
        self.priced_at = np.zeros(wide, dtype=np.int64)
        self.touched = np.zeros(wide, dtype=np.bool_)
        self.cash, self.flows = np.zeros((rows, books)), np.zeros((rows, 6, books))
        self.rates = np.zeros((rows, lines))
        self.rated_at = np.zeros((rows, len(stage.exchanges)), dtype=np.int64)

    # --------------------------------------------------------------------------------- a decision

    def rates_of(self, batch: Batch, rate: Reals) -> None:
        """Take down the rates at a batch."""
        self.rate[batch.rows] = rate[:, 0]

    def refused(self, batch: Batch, which: Flags, shares: Reals) -> None:
        """Take down orders that cannot be filled whatever their size."""
        if self.books:
            which, shares = which[:, : self.books], shares[:, : self.books]
            self.code[batch.rows][which] = Outcome.REFUSED
            self.held[batch.rows][which] = shares[which]

    def note(self, batch: Batch, orders: Orders, outcome: Outcome) -> None:
        """Take down what became of some orders that did not fill."""
        if self.books and len(orders.row):
            kept = orders.at(orders.book < self.books)
            self.code[batch.rows.start + kept.row, kept.book] = outcome

    def asked(self, batch: Batch, orders: Orders, amount: Reals) -> None:
        """Take down what the targets want."""
        if self.books:
            kept = orders.book < self.books
            self.wished[batch.rows.start + orders.row[kept], orders.book[kept]] = amount[kept]

    def unfilled(self, batch: Batch, orders: Orders, fills: Fills) -> None:
        """Take down why some orders did not fill."""
        kept = ~fills.done & (orders.book < self.books)
        self.code[batch.rows.start + orders.row[kept], orders.book[kept]] = fills.outcome[kept]

    def traded(
        self, batch: Batch, orders: Orders, fills: Fills, turn: npt.NDArray[np.intp]
    ) -> None:
        """Take down fills.

        Args:
            batch: That they are of.
            orders: What was wanted.
            fills: What was done.
            turn: Places of those that were filled, in the order in which they were.
        """
        kept = turn[orders.book[turn] < self.books]
        if not len(kept):
            return
        line, book, rate = orders.line[kept], orders.book[kept], orders.rate[kept]
        signed, price, fee = fills.signed[kept], fills.price[kept], fills.fee[kept]
        decision = (batch.rows.start + orders.row[kept], book)
        self.code[decision] = fills.outcome[kept]
        self.shares[decision], self.price[decision] = signed, price
        self.fee[decision] = fee
        holding, outlay = (line, book), signed * price * rate
        self._paid[holding] = self._paid[holding] + outlay + fee
        self._priced[holding] = batch.at
        self._touched[holding] = True
        slippage = np.abs(signed) * np.abs(price - orders.price[kept]) * rate
        np.add.at(self._flows[0], book, np.abs(outlay))
        np.add.at(self._flows[1], book, fee)
        np.add.at(self._flows[2], book, slippage)

    # -------------------------------------------------------------------------------- in between

    def priced(self, lines: Span, instants: Whole, news: Flags) -> None:
        """Take down that lines have a new close."""
        if self.books:
            news = news[:, : self.books]
            self._priced[lines] = np.where(news, instants, self._priced[lines])

    def rated(self, exchange: int, place: int) -> None:
        """Take down that a currency has a new rate."""
        self._rated[exchange] = place

    def dividend(self, line: int, paid: Reals) -> None:
        """Take down a dividend, by book."""
        if self.books:
            self._paid[line] = self._paid[line] - paid[: self.books]
            self._flows[3] = self._flows[3] + paid[: self.books]

    def gone(
        self, line: int, place: int, shares: Reals, mark: Reals, rate: float, outlay: Reals
    ) -> None:
        """Take down that a ticker trades no more, and what was closed of it, by book."""
        if self.books:
            kept = slice(None, self.books)
            self._paid[line] = self._paid[line] + outlay[kept]
            self._touched[line] |= shares[kept] != 0.0
            self._flows[0] = self._flows[0] + np.abs(outlay[kept])
            one = Closing(line, place, shares[kept].copy(), mark[kept].copy(), rate)
            self.closings.append(one)

    def accrued(self, interest: Reals, borrowed: Reals, fees: Reals) -> None:
        """Take down interest and borrowing, by book, and the fees by line."""
        if self.books:
            kept = slice(None, self.books)
            self._flows[4] = self._flows[4] + interest[kept]
            self._flows[5] = self._flows[5] + borrowed[kept]
            self._paid = self._paid + fees[:, kept]

    def row(self, at: int, cash: Reals, shares: Reals, marks: Reals, rates: Reals) -> None:
        """Take down the end of a session."""
        if not self.books:
            return
        kept = slice(None, self.books)
        self.cash[at] = cash[kept]
        self.held_shares[at], self.marks[at] = shares[:, kept], marks[:, kept]
        self.paid[at], self.priced_at[at] = self._paid, self._priced
        self.touched[at], self.rates[at] = self._touched, rates[:, 0]
        self.rated_at[at], self.flows[at] = self._rated, self._flows
        self._flows[:] = 0.0

    # ----------------------------------------------------------------------------- what follows

    def values(self) -> Reals:
        """Return the value of each holding, sessions x lines x books."""
        found: Reals = self.held_shares * self.marks * self.rates[:, :, None]
        return found

    def stale(self) -> Flags:
        """Say where a mark, or its rate, is older than the last session; see `Walk.is_stale`."""
        stage = self._stage
        ends = np.array([at for _, at in stage.rows], dtype=np.int64)
        due = np.full(self.rates.shape, -1, dtype=np.int64)
        late = np.zeros(self.rates.shape, dtype=np.bool_)
        for number, line in enumerate(stage.lines):
            closes = np.array(line.clock.closes, dtype=np.int64)
            last = np.searchsorted(closes, ends, side="right") - 1
            due[:, number] = np.where(last >= 0, closes[np.maximum(last, 0)], -1)
            for at, exchange in enumerate(stage.exchanges):
                if line.major == exchange.major:
                    closed = np.array(exchange.line.clock.closes, dtype=np.int64)
                    newest = np.searchsorted(closed, ends, side="right") - 1
                    late[:, number] = self.rated_at[:, at] < newest
        found: Flags = (self.priced_at < due[:, :, None]) | late[:, :, None]
        return found

    def require_balance(self, equity: Reals) -> None:
        """Check that cash and positions are what the tickers and the interest brought.

        Args:
            equity: Sessions x books.

        Raises:
            BacktesterError: Where they are not: a fault of the book's own.
        """
        values = self.values()
        start, interest = self._start_cash, np.cumsum(self.flows[:, 4], axis=0)
        brought = start + interest + (values - self.paid).sum(axis=1)
        size = abs(start) + np.abs(self.cash) + (np.abs(values) + np.abs(self.paid)).sum(axis=1)
        bad = ~(np.abs(equity - brought) <= BALANCE * size)
        if bad.any():
            row, book = (int(place) for place in np.argwhere(bad)[0])
            raise BacktesterError(
                f"the book of {self._stage.rows[row][0]} does not balance: cash and positions are "
                f"{float(equity[row, book])!r}, start cash and gains are "
                f"{float(brought[row, book])!r}; this is a fault of the book, report it"
            )
