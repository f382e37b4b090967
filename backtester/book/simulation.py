"""The simulated book: decisions become orders, orders positions, positions equity.

A book starts with cash. Each decision wants a weight of its ticker's slot, an equal part of the
equity; the order fills at the entry rule, at the bars that scoring uses, and pays its costs. Every
session of the tickers' calendars taken together leaves a row of equity, each position marked at its
last close known then. Nothing fills at a bar of another session, nothing is marked from the future.

The parts: `lines` lays out the prices, `decisions` finds the place of each decision, `walk` goes
through them in UTC order, `orders` sizes and fills, `account` keeps the money, `records` is what
comes out; `many` plays books side by side, with `desires`, `moments`, `crowd`, `sizing`, `tape` and
`columns`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from itertools import compress

import numpy as np
import numpy.typing as npt

from backtester.book.decisions import Decisions, wanted_of
from backtester.book.lines import Stage, instant_of, micros, stage_of
from backtester.book.many import Played, play
from backtester.book.orders import late_orders
from backtester.book.records import (
    BookResult,
    BookRule,
    BookState,
    DecisionCounts,
    EquityRecord,
    HeldPosition,
    OrderRecord,
    PositionRecord,
    Signal,
    TargetSignal,
)
from backtester.book.walk import ALWAYS, Walk, fills_first, script_of
from backtester.errors import BacktesterError, UsageError
from backtester.snapshots.snapshot import Snapshot

__all__ = [
    "Bench",
    "BookResult",
    "BookRule",
    "BookState",
    "DecisionCounts",
    "EquityRecord",
    "HeldPosition",
    "OrderRecord",
    "PositionRecord",
    "ShownBook",
    "Signal",
    "TargetSignal",
    "book_state_at",
    "simulate",
]


class Bench:
    """Lay out the prices of some tickers once, for any number of books over the same range."""

    def __init__(
        self,
        *,
        snapshot: Snapshot,
        tickers: Sequence[str],
        start: date,
        end: date,
        currency: str | None = None,
    ) -> None:
        """Lay out the prices; see `simulate` for the arguments and the errors."""
        self._stage = stage_of(snapshot, tickers, start=start, end=end, currency=currency)
        self._script = script_of(self._stage)

    def simulate(
        self,
        signals: Sequence[Signal] | Sequence[TargetSignal],
        rule: BookRule,
        *,
        records: bool = True,
    ) -> BookResult:
        """Carry decisions through the market; see `simulate`.

        Args:
            signals: Of this bench's tickers.
            rule: How to trade; its currency is that of the bench or None.
            records: Whether to keep orders and positions; a placebo needs only the equity.

        Raises:
            UsageError: See `simulate`; so DataError.
        """
        self._require_currency(rule)
        walk = Walk(self._stage, self._script, rule, records=records)
        decisions = Decisions(self._stage, rule)
        walk.ask(decisions.asks(signals))
        walk.go(until=ALWAYS)
        pending = _still_to_come(walk, decisions.pending)
        idle = walk.unchanged + len(decisions.pending) - len(pending)
        return BookResult(
            orders=(*sorted(walk.orders, key=_by_fill), *pending) if records else (),
            positions=tuple(walk.positions),
            equity=tuple(walk.equity),
            start_cash=rule.start_cash,
            currency=self._stage.currency,
            counts=DecisionCounts(
                orders=decisions.asked + len(decisions.pending) - idle,
                unchanged=idle,
                carried=decisions.carried,
                unread=decisions.unread,
            ),
            fills_first=fills_first(rule),
        )

    def equities(
        self,
        sessions: Mapping[str, Sequence[date]],
        weights: Mapping[str, npt.NDArray[np.float64]],
        rule: BookRule,
    ) -> npt.NDArray[np.float64]:
        """Return the equity of many books that decide on the same dates.

        Args:
            sessions: See `play`; so rule.
            weights: Ticker -> a row a book and a column a session.
            rule: How to trade.

        Returns:
            A row a book, a column a session of the stage: `BookResult.equity` of each.

        Raises:
            UsageError: See `play`; so DataError.
        """
        turned = {ticker: rows.T for ticker, rows in weights.items()}
        return self.play(sessions, turned, rule).equity.T.copy()

    def play(
        self,
        sessions: Mapping[str, Sequence[date]],
        weights: Mapping[str, npt.NDArray[np.float64]],
        rule: BookRule,
        *,
        kept: int = 0,
        with_positions: int = 0,
        always: Sequence[bool] = (),
    ) -> Played:
        """Play many books that decide on the same dates, in one walk.

        Hundreds of them take about as long as a few of `simulate`, and have the same doubles.

        Args:
            sessions: Ticker -> its decision sessions.
            weights: Ticker -> a row a session and a column a book: the part of the slot that is
                wanted, -1 to 1; NaN carries the position.
            rule: How to trade; its policy is not looked at.
            kept: Of the first so many books orders and equity are kept.
            with_positions: Of the first so many of these the positions too.
            always: For each book, whether it trades back to its weights at each decision; empty:
                as the rule says.

        Raises:
            UsageError: For weights that do not fit the sessions or are not from -1 to 1; else see
                `simulate`; so DataError.
        """
        self._require_currency(rule)
        wanted = wanted_of(self._stage, sessions, weights)
        return play(
            self._stage,
            self._script,
            rule,
            wanted,
            kept=kept,
            with_positions=with_positions,
            always=always,
        )

    def _require_currency(self, rule: BookRule) -> None:
        if rule.currency not in (None, self._stage.currency):
            raise UsageError(
                f"the rule's currency is {rule.currency}, prices are laid out in "
                f"{self._stage.currency}: give both the same"
            )


def simulate(
    signals: Sequence[Signal] | Sequence[TargetSignal],
    *,
    snapshot: Snapshot,
    rule: BookRule,
    start: date,
    end: date,
    tickers: Sequence[str] | None = None,
) -> BookResult:
    """Carry decisions through the market and return what the book was worth each session.

    The order of the signals does not matter. A book without a decision is cash.

    Args:
        signals: One lane's decisions, at most one for a ticker and session.
        snapshot: Where bars, actions and identities come from.
        rule: How decisions become positions.
        start: First decision session, and first row of equity.
        end: Last row of equity; an order that would fill later is ``pending``.
        tickers: Of the book, or None for those of the signals. They set the slots and the
            sessions, so a ticker without a decision has its place too.

    Raises:
        UsageError: For no ticker, reversed dates, an end after the snapshot's, tickers whose
            currencies cannot be brought together, or a decision outside the range, twice there,
            or of a ticker that is not in the book.
        DataError: For an instrument that the snapshot does not hold, a date that is no session of
            its calendar, a word that is no rating, or an action of a held ticker that cannot be
            believed.
    """
    named = tickers if tickers is not None else sorted({signal.ticker for signal in signals})
    bench = Bench(snapshot=snapshot, tickers=named, start=start, end=end, currency=rule.currency)
    return bench.simulate(signals, rule)


class ShownBook:
    """Carry a book forward in simulated time, to be looked at before each decision.

    Nothing that is public only after a cutoff is in what `at` returns for it: an order whose bar
    is not public yet counts as not filled yet.
    """

    def __init__(
        self,
        *,
        snapshot: Snapshot,
        rule: BookRule,
        tickers: Sequence[str],
        start: date,
        end: date | None = None,
    ) -> None:
        """Begin with cash alone.

        Args:
            snapshot: See `simulate`; so rule, tickers, start.
            rule: How decisions become positions.
            tickers: All tickers of the book, also those that are decided later.
            start: First decision session.
            end: Last session to be looked at, or None for the snapshot's last date.
        """
        last = snapshot.end if end is None else end
        self._stage = stage_of(snapshot, tickers, start=start, end=last, currency=rule.currency)
        self._walk = Walk(self._stage, script_of(self._stage), rule, records=False)
        self._decisions = Decisions(self._stage, rule)
        self._shown = -1

    def decide(self, signals: Sequence[Signal] | Sequence[TargetSignal]) -> None:
        """Take decisions, each before the book is looked at for an instant after its fill.

        Raises:
            UsageError: See `simulate`; so DataError.
            BacktesterError: For one that comes too late: the book has gone past its fill.
        """
        asks = self._decisions.asks(signals)
        if asks and asks[0].at < self._shown:
            late = self._stage.lines[asks[0].line]
            raise BacktesterError(
                f"a decision for {late.ticker} on {late.clock.days[asks[0].decided]} came after "
                f"the book was shown at {instant_of(self._shown)}: take decisions in order"
            )
        self._walk.ask(asks)

    def at(self, cutoff: datetime) -> BookState:
        """Return the book as it is known at a cutoff.

        Args:
            cutoff: UTC instant, not before that of an earlier call.
        """
        instant = micros(cutoff)
        # A decision made at this very instant may still fill at it: stop short, and look ahead.
        self._shown = max(self._shown, instant)
        self._walk.go(until=instant - 1, known_by=instant)
        ahead = self._walk.fork()
        ahead.go(until=instant, known_by=instant, skip=True)
        return _state(self._stage, ahead, instant)


def book_state_at(
    signals: Sequence[Signal] | Sequence[TargetSignal],
    *,
    snapshot: Snapshot,
    rule: BookRule,
    tickers: Sequence[str],
    start: date,
    cutoff: datetime,
) -> BookState:
    """Return the book as it is known at a cutoff, from the decisions made before it.

    `ShownBook` gives the same for many cutoffs without beginning anew at each.

    Args:
        signals: Decisions of earlier cutoffs.
        snapshot: See `ShownBook`; so rule, tickers, start.
        rule: How decisions become positions.
        tickers: All tickers of the book.
        start: First decision session.
        cutoff: UTC instant.

    Raises:
        UsageError: See `simulate`; so DataError.
    """
    book = ShownBook(snapshot=snapshot, rule=rule, tickers=tickers, start=start)
    book.decide(signals)
    return book.at(cutoff)


def _still_to_come(walk: Walk, late: Sequence[OrderRecord]) -> list[OrderRecord]:
    """Return the orders that fill after the end of a walk, those to sell nothing left out."""
    lines = zip(walk.account.lines, walk.account.holdings, strict=True)
    held = {line.ticker for line, holding in lines if holding.shares}
    held |= {one.ticker for one in walk.orders if one.status == "pending" and one.target_weight}
    kept = late_orders(
        [order.ticker for order in late], [order.target_weight for order in late], held
    )
    return list(compress(late, kept))


def _by_fill(order: OrderRecord) -> tuple[int, str]:
    return (0 if order.fill_at is None else micros(order.fill_at), order.ticker)


def _state(stage: Stage, walk: Walk, at: int) -> BookState:
    account = walk.account
    equity = account.cash + account.positions_value
    held = []
    for number, (line, holding) in enumerate(zip(stage.lines, account.holdings, strict=True)):
        if not holding.shares or holding.since is None:
            continue
        value = holding.value
        held.append(
            HeldPosition(
                ticker=line.ticker,
                shares=holding.shares,
                price=holding.mark,
                currency=line.currency,
                value=value,
                weight=value / equity if equity > 0.0 else None,
                cost=holding.cost,
                unrealised=value - holding.cost,
                since=holding.since,
                stale=walk.is_stale(number, at),
            )
        )
    return BookState(
        at=instant_of(at),
        cash=account.cash,
        equity=equity,
        currency=stage.currency,
        positions=tuple(held),
    )
