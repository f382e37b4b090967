"""What the kept books of a crowd did, taken down as arrays while they walk, then made into rows.

A `Crowd` tells its tape of every fill, dividend and session. The rows of orders, positions and
equity are worked out from that at the end, for all sessions together, by the operations of
`walk` in their order; the books must balance as `Account.require_balance` has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from backtester.book.account import BALANCE
from backtester.book.desires import Batch, Desires, Span
from backtester.book.lines import Stage
from backtester.book.records import BookRule
from backtester.book.sizing import Fills, Orders, Outcome
from backtester.book.walk import FILLS
from backtester.errors import BacktesterError

Reals = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class Closing(NamedTuple):
    """Hold what was closed because its ticker trades no more; arrays are by book.

    Attributes:
        line: Place of the line; so `place`, the session at whose open it was.
        shares: Traded.
        mark: Last close.
        rate: Book currency for one unit of the quote currency.
        moved: What they were worth, book currency.
        session: Place of the equity row that comes next.
    """

    line: int
    place: int
    shares: Reals
    mark: Reals
    rate: float
    moved: Reals
    session: int


class _Moved(NamedTuple):
    """Hold what trades moved, one entry each.

    Attributes:
        at: Instant; so `step`, sales of an instant coming before purchases. Within a step they
            are in their order.
        session: Place of the equity row that comes next.
        book: Column of the book.
        amounts: Traded, commission, slippage; a row each.
    """

    at: Whole
    step: Whole
    session: Whole
    book: npt.NDArray[np.intp]
    amounts: Reals


class Tape:
    """Take down the first books of a crowd; without any it takes down nothing.

    Attributes:
        books: How many.
        code: `Outcome` of each decision, a row a decision and a column a book; so the next five.
        shares: Traded, below zero where sold.
        price: Of the fill.
        fee: Commission.
        wished: Cash that the target wanted to move.
        held: Shares before, where it was refused.
        rate: Book currency for one unit of the quote currency, by decision.
        closings: In order.
        cash: Sessions x books; so the flows.
        held_shares: Sessions x lines x books; so `marks`, `paid` (put in less taken out),
            `priced_at` and `touched`.
        rates: Sessions x lines.
        rated_at: Sessions x exchanges: session of the pair that the rate is of, by place.
    """

    def __init__(
        self, stage: Stage, rule: BookRule, *, asks: int, books: int, of: int, rates: Reals
    ) -> None:
        """Begin with nothing taken down.

        Args:
            stage: Prices.
            rule: Of the books.
            asks: How many decisions there are.
            books: How many books are kept.
            of: How many there are.
            rates: Of the lines at the start, a row each.
        """
        rows, lines = len(stage.rows), len(stage.lines)
        self._stage, self._start_cash = stage, rule.start_cash
        self._at_open = FILLS[rule.entry_rule][1] == "open"
        self.books = books
        shape = (asks, books)
        self.code = np.zeros(shape, dtype=np.int8)
        self.shares, self.price, self.fee = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        self.wished, self.held = np.zeros(shape), np.zeros(shape)
        self.rate = np.ones(asks)
        self._session, self._session_of = 0, np.zeros(asks, dtype=np.int64)
        self.closings: list[Closing] = []
        # As wide as the crowd, so that the cell of an order is one of theirs.
        self._paid = np.zeros((lines, of))
        self._priced = np.full((lines, of), -1, dtype=np.int64)
        self._rated = np.full(len(stage.exchanges), -1, dtype=np.int64)
        wide = (rows, lines, books)
        self.held_shares, self.marks, self.paid = np.zeros(wide), np.zeros(wide), np.zeros(wide)
        self.priced_at = np.zeros(wide, dtype=np.int64)
        self.touched = np.zeros(wide, dtype=np.bool_)
        self.cash = np.zeros((rows, books))
        # Traded, commission, slippage; then dividends, interest, borrowing. What comes after the
        # last session has a place too, which is nobody's.
        self._flows = np.zeros((rows + 1, 6, books))
        self.flows = self._flows[:-1]
        self.rates = np.repeat(rates.T, rows, axis=0)
        self.rated_at = np.zeros((rows, len(stage.exchanges)), dtype=np.int64)

    # --------------------------------------------------------------------------------- a decision

    def rates_of(self, batch: Batch, rate: Reals) -> None:
        """Take down the rates at a batch, where they are not 1."""
        self.rate[batch.rows] = rate[:, 0]

    def refused(self, batch: Batch, which: Flags, shares: Reals) -> None:
        """Take down orders that cannot be filled whatever their size."""
        if self.books:
            which, shares = which[:, : self.books], shares[:, : self.books]
            self.code[batch.rows][which] = Outcome.REFUSED
            self.held[batch.rows][which] = shares[which]

    def broke(self, batch: Batch, orders: Orders) -> None:
        """Take down orders of books that are worth nothing."""
        kept = orders.at(orders.book < self.books)
        self.code[batch.rows.start + kept.row, kept.book] = Outcome.NO_EQUITY

    def sized(self, batch: Batch, orders: Orders, fills: Fills) -> None:
        """Take down what became of orders."""
        kept = (orders.book < self.books).nonzero()[0]
        if not len(kept):
            return
        self._session_of[batch.rows] = self._session
        at = (batch.rows.start + orders.row[kept]) * self.books + orders.book[kept]
        paid, cell = fills.paid.take(kept, axis=0), orders.cell[kept]
        for mine, found in (
            (self.shares, fills.signed[kept]),
            (self.price, fills.price[kept]),
            (self.fee, paid[:, 1]),
            (self.wished, orders.asked[kept]),
        ):
            mine.reshape(-1)[at] = found
        self.code.reshape(-1)[at] = Outcome.FILLED
        if fills.outcome is not None:
            outcome = fills.outcome[kept]
            done = outcome <= Outcome.CUT_BY_VOLUME
            self.code.reshape(-1)[at] = outcome
            paid, cell = paid[done], cell[done]
        holdings = self._paid.reshape(-1)
        holdings[cell] = holdings.take(cell) + paid[:, 0] + paid[:, 1]
        self._priced.reshape(-1)[cell] = batch.at

    # -------------------------------------------------------------------------------- in between

    def priced(self, lines: Span, instants: Whole, news: Flags | None) -> None:
        """Take down that lines have a new close: in all books, or only in some of them."""
        if self.books:
            found = instants if news is None else np.where(news, instants, self._priced[lines])
            self._priced[lines] = found

    def rated(self, exchange: int, place: int) -> None:
        """Take down that a currency has a new rate."""
        self._rated[exchange] = place

    def dividend(self, line: int, paid: Reals) -> None:
        """Take down a dividend, by book."""
        if self.books:
            self._paid[line] = self._paid[line] - paid
            self._flows[self._session, 3] += paid[: self.books]

    def gone(
        self, line: int, place: int, shares: Reals, mark: Reals, rate: float, outlay: Reals
    ) -> None:
        """Take down that a ticker trades no more, and what was closed of it, by book."""
        if self.books:
            kept = slice(None, self.books)
            self._paid[line] = self._paid[line] + outlay
            held, moved = shares[kept].copy(), np.abs(outlay[kept])
            one = Closing(line, place, held, mark[kept].copy(), rate, moved, self._session)
            self.closings.append(one)

    def accrued(self, interest: Reals, borrowed: Reals, fees: Reals) -> None:
        """Take down interest and borrowing, by book, and the fees by line."""
        if self.books:
            self._flows[self._session, 4] += interest[: self.books]
            self._flows[self._session, 5] += borrowed[: self.books]
            self._paid = self._paid + fees

    def row(self, cash: Reals, shares: Reals, marks: Reals, rates: Reals) -> None:
        """Take down the end of a session."""
        if not self.books:
            return
        at, kept = self._session, slice(None, self.books)
        self.cash[at] = cash[kept]
        self.held_shares[at], self.marks[at] = shares[:, kept], marks[:, kept]
        self.paid[at], self.priced_at[at] = self._paid[:, kept], self._priced[:, kept]
        if self._stage.exchanges:
            self.rates[at], self.rated_at[at] = rates[:, 0], self._rated
        self._session += 1

    # ----------------------------------------------------------------------------- what follows

    def finish(self, desires: Desires) -> None:
        """Add up what was traded in each session, and find what was ever held.

        Args:
            desires: What was decided.
        """
        filled = (self.code >= Outcome.FILLED) & (self.code <= Outcome.CUT_BY_VOLUME)
        decision, book = filled.nonzero()
        session, rate = self._session_of[decision], self.rate[decision]
        shares, price = np.abs(self.shares[filled]), self.price[filled]
        slippage = shares * np.abs(price - desires.prices[decision]) * rate
        # Of one instant sales come before purchases.
        sale = (self.wished[filled] < 0.0) | (desires.weights[decision, book] <= 0.0)
        traded = _Moved(
            at=desires.at[decision],
            step=np.where(sale, 1, 2),
            session=session,
            book=book,
            amounts=np.stack([shares * price * rate, self.fee[filled], slippage]),
        )
        self._add_up([traded, *map(self._closed, self.closings)])
        # Backwards, so that of each holding the first fill is what stays.
        first = np.full(self.touched.shape[1:], len(self.touched))
        first[desires.line[decision[::-1]], book[::-1]] = session[::-1]
        self.touched = np.arange(len(self.touched))[:, None, None] >= first

    def _add_up(self, parts: Sequence[_Moved]) -> None:
        """Add up what was traded in each session, in the order in which it was."""
        columns = zip(*parts, strict=True)
        moved = _Moved(*[np.concatenate(column, axis=-1) for column in columns])
        turn = np.lexsort((moved.step, moved.at))
        places = moved.session[turn] * self.books + moved.book[turn]
        shape = (len(self._flows), self.books)
        for kind, amounts in enumerate(moved.amounts):
            found = np.bincount(places, amounts[turn], minlength=shape[0] * shape[1])
            self._flows[:, kind] = found.reshape(shape)

    def _closed(self, one: Closing) -> _Moved:
        """Return what a ticker that trades no more moved: at an open, before its orders fill."""
        nothing = np.zeros(self.books)
        return _Moved(
            at=np.full(self.books, self._stage.lines[one.line].clock.opens[one.place]),
            step=np.full(self.books, 0 if self._at_open else 3),
            session=np.full(self.books, one.session),
            book=np.arange(self.books),
            amounts=np.stack([one.moved, nothing, nothing]),
        )

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
