"""Walk an account through time: closes, fills, equity rows, splits and dividends, in UTC order.

What happens at one instant happens in this order: closes become known, orders at the close fill,
the equity row of the date is drawn up, then what the next session's open brings: ends of trading,
splits, dividends, and orders at the open. A market that never stops has both at one instant.

A walk may be told by when things must be public. It then goes no further than that: it halts
before the first fill or action that is not, or, where only a look ahead is wanted, leaves it out.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass
from datetime import date
from types import MappingProxyType
from typing import NamedTuple

from backtester.book.account import Account, Flows, Tier
from backtester.book.lines import Line, Stage, instant_of
from backtester.book.orders import Desk, Done, Wish, side_of, unfilled
from backtester.book.records import BookRule, EquityRecord, OrderRecord, PositionRecord
from backtester.config import EntryRule
from backtester.settlement.pricing import Point

CLOSE, FILL_CLOSE, ROW, OPEN, FILL_OPEN = range(5)
ALWAYS = 2**63 - 1
FILLS: Mapping[EntryRule, tuple[int, Point]] = MappingProxyType(
    {
        "next_open": (1, "open"),
        "next_close": (1, "close"),
        "close": (0, "close"),
        "open": (0, "open"),
    }
)
"""Entry rule -> sessions from the decision to the fill, and the point of the day."""


class Ask(NamedTuple):
    """Hold one decision on its way to its fill; sorts by the fill's instant, then by line.

    Attributes:
        at: Instant of the fill.
        phase: Which of that instant's steps it belongs to.
        line: Place of the line.
        place: Session of the fill, by place in the line's clock.
        decided: Session of the decision, likewise.
        weight: Wanted part of the slot.
    """

    at: int
    phase: int
    line: int
    place: int
    decided: int
    weight: float


class Happening(NamedTuple):
    """Hold what happens whatever is decided; sorts likewise.

    Attributes:
        at: Instant.
        phase: Step.
        line: Place of the line, of the exchange (below zero) or of the row.
        place: Session or event; below zero for the end of trading, -1 less the session after it.
    """

    at: int
    phase: int
    line: int
    place: int


@dataclass(frozen=True, kw_only=True)
class Script:
    """Hold what happens on a stage whatever is decided, in order."""

    happenings: tuple[Happening, ...]


def script_of(stage: Stage) -> Script:
    """Put in order what happens on a stage."""
    found = [Happening(at, ROW, row, 0) for row, (_, at) in enumerate(stage.rows)]
    for number, line in enumerate(stage.lines):
        found += _closes(line, number)
        found += [
            Happening(event.at, OPEN, number, place) for place, event in enumerate(line.events)
        ]
        if line.last is not None:
            after = next((at for at, day in enumerate(line.clock.days) if day > line.last), None)
            if after is not None:
                found.append(Happening(line.clock.opens[after], OPEN, number, -1 - after))
    for number, exchange in enumerate(stage.exchanges):
        found += _closes(exchange.line, -1 - number)
    return Script(happenings=tuple(sorted(found)))


def _closes(line: Line, number: int) -> Iterable[Happening]:
    return [
        Happening(line.known[place], CLOSE, number, place)
        for place, close in enumerate(line.closes)
        if close
    ]


def ask_of(stage: Stage, rule: BookRule, *, line: int, decided: int, weight: float) -> Ask | None:
    """Say where and when a decision fills, or None where that is after the stage's end."""
    clock = stage.lines[line].clock
    offset, point = FILLS[rule.entry_rule]
    place = decided + offset
    if place >= len(clock.days):
        return None
    at, phase = (
        (clock.opens[place], FILL_OPEN) if point == "open" else (clock.closes[place], FILL_CLOSE)
    )
    return Ask(at, phase, line, place, decided, weight)


class Walk:
    """Carry an account forward. The records it leaves are only those of the way it went itself."""

    def __init__(self, stage: Stage, script: Script, rule: BookRule, *, records: bool) -> None:
        """Begin with cash alone, before the first happening.

        Args:
            stage: Prices.
            script: Of that stage.
            rule: How decisions become orders.
            records: Whether to keep the records of orders and positions.
        """
        self._stage = stage
        self._happenings = script.happenings
        self._rule = rule
        self._keep = records
        self.account = Account(stage.lines, cash=rule.start_cash, currency=stage.currency)
        self._desk = Desk(self.account, costs=rule.costs, fractional=rule.fractional)
        self._next = 0
        self._asks: list[Ask] = []
        self._asked = 0
        self._rated = [-1] * len(stage.exchanges)
        self._row_day: date | None = None
        self._row_equity: float | None = rule.start_cash if fills_first(rule) else None
        self.orders: list[OrderRecord] = []
        self.positions: list[PositionRecord] = []
        self.equity: list[EquityRecord] = []
        self.unchanged = 0

    def fork(self) -> Walk:
        """Return a walk that goes on from here on its own, without the records so far."""
        twin = copy(self)
        twin.account = self.account.fork()
        twin._desk = Desk(twin.account, costs=self._rule.costs, fractional=self._rule.fractional)
        twin._asks = self._asks[self._asked :]
        twin._asked = 0
        twin._rated = list(self._rated)
        twin.orders, twin.positions, twin.equity = [], [], []
        return twin

    def ask(self, asks: Iterable[Ask]) -> None:
        """Take decisions whose fills lie ahead."""
        for ask in asks:
            insort(self._asks, ask, lo=self._asked)

    def go(self, *, until: int, known_by: int = ALWAYS, skip: bool = False) -> None:
        """Go through all that happens by an instant.

        Args:
            until: Last instant, included.
            known_by: What is public later than this is not there yet.
            skip: Leave out what is not there yet, instead of halting before it.
        """
        happenings, end = self._happenings, len(self._happenings)
        while True:
            ask = self._asks[self._asked] if self._asked < len(self._asks) else None
            ready = happenings[self._next] if self._next < end else None
            if ask is not None and (ready is None or (ask.at, ask.phase) < (ready.at, ready.phase)):
                if ask.at > until or not self._fill(ask, known_by, skip):
                    return
            elif ready is None or ready.at > until or not self._happen(ready, known_by, skip):
                return

    # --------------------------------------------------------------------------------- happenings

    def _happen(self, what: Happening, known_by: int, skip: bool) -> bool:
        """Let one thing happen; False where it is not public yet, and the walk must halt."""
        if what.phase == CLOSE:
            self._close(what)
        elif what.phase == ROW:
            self._row(what.line)
        elif what.place < 0:
            self._gone(what.line, -1 - what.place)
        else:
            event = self._stage.lines[what.line].events[what.place]
            if event.known <= known_by:
                self.account.apply(what.line, event)
            elif not skip:
                return False
        self._next += 1
        return True

    def _close(self, what: Happening) -> None:
        if what.line >= 0:
            self.account.mark(what.line, what.place)
            return
        number = -1 - what.line
        exchange = self._stage.exchanges[number]
        rate = exchange.rate(what.place)
        self._rated[number] = what.place
        for line, holding in zip(self._stage.lines, self.account.holdings, strict=True):
            if line.major == exchange.major:
                holding.rate = rate / line.units

    def _gone(self, number: int, place: int) -> None:
        """Close what is held of a ticker that trades no more, at its last close less the haircut.

        That is done at the open of the session after its last: only then is it known to be over.
        """
        holding, line = self.account.holdings[number], self._stage.lines[number]
        holding.tier = Tier(weight=0.0, slots=1)
        if not holding.shares or line.last is None:
            return
        shares, mark, haircut = -holding.shares, holding.mark, self._rule.haircut
        price = mark * (1.0 - haircut)
        notional = abs(shares) * price * holding.rate
        self.account.trade(number, shares=shares, price=price, commission=0.0, day=line.last)
        self.orders.append(
            OrderRecord(
                session=line.last,
                ticker=line.ticker,
                fill_session=line.clock.days[place],
                fill_at=instant_of(line.clock.opens[place]),
                side=side_of(0.0, shares),
                shares=abs(shares),
                price=price,
                reference_price=mark,
                notional=notional,
                asked=notional if shares > 0.0 else -notional,
                commission=0.0,
                slippage=0.0,
                status="filled",
                reason=None,
                target_weight=0.0,
                currency=line.currency,
                flags=("delisted", "haircut") if haircut else ("delisted",),
            )
        )

    # --------------------------------------------------------------------------------------- fills

    def _fill(self, first: Ask, known_by: int, skip: bool) -> bool:
        """Fill all orders of one instant; False where one is not public yet, and the walk halts."""
        asks, end = self._asks, self._asked
        while end < len(asks) and asks[end][:2] == first[:2]:
            end += 1
        batch = asks[self._asked : end]
        lines = self._stage.lines
        unknown = [ask for ask in batch if lines[ask.line].known[ask.place] > known_by]
        if unknown and not skip:
            return False
        self._asked = end
        day = lines[first.line].clock.days[first.place]
        slots = self._rule.slots or sum(1 for line in lines if line.trades_on(day))
        orders: dict[int, OrderRecord] = {}
        wishes: dict[int, Ask] = {}
        for ask in batch:
            if ask in unknown or self._stands(ask, slots):
                continue
            reason = self._refusal(ask)
            if reason is None:
                wishes[ask.line] = ask
            elif self._keep:
                orders[ask.line] = self._refused(ask, reason)
        point: Point = "open" if first.phase == FILL_OPEN else "close"
        for done in self._desk.fill([self._wish(ask, slots) for ask in wishes.values()], point):
            ask = wishes.pop(done.wish.at)
            if self._keep:
                orders[ask.line] = self._order(ask, done)
        self.unchanged += len(wishes)
        self.orders += [orders[number] for number in sorted(orders)]
        return True

    def _stands(self, ask: Ask, slots: int) -> bool:
        """Say whether a decision wants what is held already, so that it makes no order."""
        holding = self.account.holdings[ask.line]
        stands = not holding.shares and ask.weight == 0.0
        if self._rule.rebalance == "on_change" and holding.tier is not None:
            stands = stands or holding.tier.is_at(ask.weight, slots)
        self.unchanged += stands
        return stands

    def _refusal(self, ask: Ask) -> str | None:
        """Return why an order cannot be filled whatever its size, or None."""
        line = self._stage.lines[ask.line]
        day = line.clock.days[ask.place]
        if line.last is not None and day > line.last:
            return "delisted"
        if day < line.listed:
            return "not_listed"
        if day in line.conflicts:
            return "conflict"
        if not self._price(ask):
            ahead = self._stage.ends_before(line, ask.place)
            return "after_end" if ahead else "missing_bar"
        return None if self.account.holdings[ask.line].rate else "missing_rate"

    def _price(self, ask: Ask) -> float:
        line = self._stage.lines[ask.line]
        return (line.opens if ask.phase == FILL_OPEN else line.closes)[ask.place]

    def _wish(self, ask: Ask, slots: int) -> Wish:
        return Wish(
            at=ask.line,
            place=ask.place,
            instant=ask.at,
            price=self._price(ask),
            tier=Tier(weight=ask.weight, slots=slots),
        )

    def _refused(self, ask: Ask, reason: str) -> OrderRecord:
        line, held = self._stage.lines[ask.line], self.account.holdings[ask.line].shares
        return unfilled(
            line,
            session=line.clock.days[ask.decided],
            fill_session=line.clock.days[ask.place],
            fill_at=instant_of(ask.at),
            weight=ask.weight,
            held=held,
            reason=reason,
        )

    def _order(self, ask: Ask, done: Done) -> OrderRecord:
        line = self._stage.lines[ask.line]
        clock, rule = line.clock, self._rule
        cutoffs = clock.closes if rule.decision_time == "close" else clock.opens
        flags = {
            "same_bar": ask.at <= cutoffs[ask.decided],
            "index_open": line.is_index and ask.phase == FILL_OPEN,
        }
        return OrderRecord(
            session=clock.days[ask.decided],
            ticker=line.ticker,
            fill_session=clock.days[ask.place],
            fill_at=instant_of(ask.at),
            side=done.side,
            shares=done.shares,
            price=done.price,
            reference_price=done.wish.price,
            notional=done.notional,
            asked=done.asked,
            commission=done.commission,
            slippage=done.slippage,
            status=done.status,
            reason=done.reason,
            target_weight=ask.weight,
            currency=line.currency,
            flags=tuple(sorted(flag for flag, holds in flags.items() if holds)),
        )

    # ---------------------------------------------------------------------------------------- rows

    def is_stale(self, number: int, at: int) -> bool:
        """Say whether a mark, or the rate it is converted at, is older than its last session.

        Args:
            number: Place of the line.
            at: Instant, microseconds.
        """
        line = self._stage.lines[number]
        last = bisect_right(line.clock.closes, at) - 1
        if last >= 0 and self.account.holdings[number].priced < line.clock.closes[last]:
            return True
        for place, exchange in zip(self._rated, self._stage.exchanges, strict=True):
            if line.major == exchange.major:
                return place < bisect_right(exchange.line.clock.closes, at) - 1
        return False

    def _row(self, number: int) -> None:
        day, at = self._stage.rows[number]
        account, flows = self.account, self.account.flows
        if self._row_day is not None:
            account.accrue((day - self._row_day).days, self._rule.costs)
        account.require_balance(day)
        value, gross, stale = account.positions_value, 0.0, False
        for place, holding in enumerate(account.holdings):
            if holding.shares:
                gross = gross + abs(holding.value)
                stale = stale or self.is_stale(place, at)
        equity = account.cash + value
        alive, before = equity > 0.0, self._row_equity
        self.equity.append(
            EquityRecord(
                session=day,
                at=instant_of(at),
                cash=account.cash,
                positions_value=value,
                equity=equity,
                gross=gross / equity if alive else None,
                net=value / equity if alive else None,
                traded=flows.traded,
                commission=flows.commission,
                slippage=flows.slippage,
                dividends=flows.dividends,
                interest=flows.interest,
                borrow=flows.borrow,
                ret=equity / before - 1.0 if before is not None and before > 0.0 else None,
                stale=stale,
            )
        )
        if self._keep:
            self._position_rows(day, at, equity)
        account.flows = Flows()
        self._row_day, self._row_equity = day, equity

    def _position_rows(self, day: date, at: int, equity: float) -> None:
        for number, holding in enumerate(self.account.holdings):
            if not holding.touched:
                continue
            line, value = self._stage.lines[number], holding.value
            self.positions.append(
                PositionRecord(
                    session=day,
                    ticker=line.ticker,
                    shares=holding.shares,
                    close=holding.mark,
                    value=value,
                    weight=value / equity if equity > 0.0 else None,
                    gain=value - holding.paid,
                    currency=line.currency,
                    stale=holding.shares != 0.0 and self.is_stale(number, at),
                )
            )


def fills_first(rule: BookRule) -> bool:
    """Say whether an order may fill in the session of its decision."""
    return FILLS[rule.entry_rule][0] == 0
