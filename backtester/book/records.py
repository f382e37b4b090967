"""What goes into the simulated book and what comes out: signals, the rule, orders, positions.

Amounts are in the book's currency, prices of a ticker in its own quote currency. Numbers are full
doubles or None, never NaN or infinite.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from types import MappingProxyType
from typing import Literal, get_args

from backtester.book.costs import Costs
from backtester.book.policy import Policy
from backtester.config import DecisionTime, EntryRule, require_fills
from backtester.errors import UsageError

Side = Literal["buy", "sell", "short", "cover"]
OrderStatus = Literal["filled", "partial", "rejected", "pending"]
Rebalance = Literal["on_change", "always"]
MOST_CASH = 1e12
"""A larger book would keep no cents in a double."""
MOST_SLOTS = 1_000_000

REASONS: Mapping[str, str] = MappingProxyType(
    {
        "missing_bar": "no usable bar at the session of the fill; no later one stands in",
        "conflict": "captured bars of the session contradict each other",
        "delisted": "stopped trading before the fill",
        "not_listed": "does not trade yet at the fill",
        "no_equity": "the book is worth nothing, so it opens no position",
        "no_cash": "no cash is left for it",
        "below_costs": "its amount does not pay its commission",
        "below_one_share": "its amount buys no whole share",
        "no_volume": "the bar says that nothing was traded, and fills depend on volume",
        "missing_rate": "no exchange rate is known at the fill",
        "cash": "scaled down with the other buys of its instant to the cash that was there",
        "volume": "cut at the cap on participation; the rest is cancelled",
        "after_end": "fills after the book or the snapshot ends",
    }
)
"""Why an order was rejected, filled in part, or is pending: code -> what it means."""


@dataclass(frozen=True, kw_only=True)
class Signal:
    """Hold one decision of one lane.

    Attributes:
        ticker: Instrument id.
        session: Decision session, one of the instrument's calendar.
        rating: One of the five, or None where the decision gave none: the position is carried.
    """

    ticker: str
    session: date
    rating: str | None


@dataclass(frozen=True, kw_only=True)
class TargetSignal:
    """Hold one decision as the weight it wants, for what has no ratings.

    Attributes:
        ticker: Instrument id.
        session: Decision session.
        weight: Fraction of the ticker's slot, -1 to 1; None carries the position.
    """

    ticker: str
    session: date
    weight: float | None


@dataclass(frozen=True, kw_only=True)
class BookRule:
    """Say how a book turns decisions into positions.

    Attributes:
        policy: What a rating is worth; not looked at for `TargetSignal`.
        costs: What trading costs.
        entry_rule: Where orders fill; see `config.ENTRY_RULES`.
        decision_time: Whether decisions are made at the close or the open of their session.
        start_cash: Above zero, in the book's currency.
        slots: Parts into which the equity is divided, or None for the number of the book's
            tickers that trade on the day of the fill: where one joins, the slots of the others
            shrink, and each is cut at its next decision.
        rebalance: ``on_change``: a decision for the weight that a ticker already holds does not
            trade. ``always``: it trades back to its weight.
        haircut: Fraction taken off the last close of a holding that stops trading.
        fractional: Whether parts of a share are traded.
        currency: The book's, or None for that of its tickers where they share one.
    """

    policy: Policy
    entry_rule: EntryRule
    decision_time: DecisionTime
    costs: Costs = field(default_factory=Costs)
    start_cash: float = 1_000_000.0
    slots: int | None = None
    rebalance: Rebalance = "on_change"
    haircut: float = 0.0
    fractional: bool = True
    currency: str | None = None

    def __post_init__(self) -> None:
        """Refuse a rule that cannot be carried out.

        Raises:
            UsageError: With what to write instead.
        """
        require_fills(self.entry_rule, decision_time=self.decision_time, haircut=self.haircut)
        if not 1.0 <= self.start_cash <= MOST_CASH:
            raise UsageError(f"start cash {self.start_cash}: write 1 to {MOST_CASH:,.0f}")
        if self.slots is not None and self.slots < 1:
            raise UsageError(f"slots {self.slots} is too few: write 1 or more")
        if self.slots is not None and self.slots > MOST_SLOTS:
            raise UsageError(f"slots {self.slots} is too many: write {MOST_SLOTS:,} or less")
        if self.rebalance not in get_args(Rebalance):
            raise UsageError(f"rebalance {self.rebalance!r}: write on_change or always")


@dataclass(frozen=True, kw_only=True, slots=True)
class OrderRecord:
    """Hold one order: what was wanted, what was done, and why not all of it.

    Decisions that want no trade (carried, or for the weight already held) make no order; see
    `DecisionCounts`.

    Attributes:
        session: Decision session; of a forced closing (a delisting) the last session traded.
        ticker: Instrument id.
        fill_session: Session of the fill, or None where the calendar does not reach it.
        fill_at: Its instant, UTC; so None.
        side: ``buy`` and ``sell`` for long positions, ``short`` opens and ``cover`` closes short
            ones; an order across zero is named for where it ends.
        shares: Traded, 0 or more.
        price: Fill price after slippage, quote currency; None where nothing was filled.
        reference_price: Price of the bar at the entry rule's point, quote currency, or None.
        notional: ``shares * price`` in book currency.
        asked: Cash that the target wanted to put in (above zero) or take out, book currency,
            costs included; None where the order never came to be sized.
        commission: Book currency.
        slippage: ``shares * |price - reference_price|``, book currency.
        status: ``filled``; ``partial``; ``rejected``; ``pending`` (fills after the end).
        reason: A code of `REASONS`, or None for an order filled whole.
        target_weight: Fraction of the slot that was wanted.
        currency: Quote currency of the ticker.
        flags: Sorted: ``same_bar, index_open, delisted, haircut``.
    """

    session: date
    ticker: str
    fill_session: date | None
    fill_at: datetime | None
    side: Side
    shares: float
    price: float | None
    reference_price: float | None
    notional: float
    asked: float | None
    commission: float
    slippage: float
    status: OrderStatus
    reason: str | None
    target_weight: float
    currency: str
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class PositionRecord:
    """Hold one ticker at the end of one session, from its first fill on (flat ones too).

    Attributes:
        session: Date of the equity row.
        ticker: Instrument id.
        shares: Held; below zero for a short position.
        close: Last close known, quote currency, in terms of today's shares.
        value: ``shares * close`` in book currency.
        weight: Part of the equity, or None where the equity is not above zero.
        gain: What the ticker brought since the start: value, plus what it paid out, less what was
            put in, costs included. Over all tickers the gains and the interest are the profit.
        currency: Quote currency.
        stale: Whether `close` is older than the ticker's last session, or the rate it is
            converted at is.
    """

    session: date
    ticker: str
    shares: float
    close: float
    value: float
    weight: float | None
    gain: float
    currency: str
    stale: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class EquityRecord:
    """Hold the book at the end of one session of the union of its calendars.

    Flows (commission to interest) are those since the row before.

    Attributes:
        session: Date.
        at: Instant, UTC: the latest close of the date's sessions.
        cash: Balance.
        positions_value: Sum of the positions, short ones below zero.
        equity: ``cash + positions_value``.
        gross: Sum of the positions' sizes over the equity, or None where that is not above zero.
        net: `positions_value` over the equity, or None likewise.
        traded: Notional of all fills.
        commission: Paid.
        slippage: Lost to worse prices.
        dividends: Received, less those paid on short positions.
        interest: On cash, below zero where it was owed.
        borrow: Paid for short positions.
        ret: Return since the row before; None on the first row where nothing can have been filled
            yet, and after an equity not above zero.
        stale: Whether a position is stale.
    """

    session: date
    at: datetime
    cash: float
    positions_value: float
    equity: float
    gross: float | None
    net: float | None
    traded: float
    commission: float
    slippage: float
    dividends: float
    interest: float
    borrow: float
    ret: float | None
    stale: bool


@dataclass(frozen=True, kw_only=True)
class DecisionCounts:
    """Count what became of the decisions.

    Attributes:
        orders: Made an order, whatever became of it.
        unchanged: Wanted the weight that was held already.
        carried: Left the position as it is, by the policy.
        unread: Gave no rating: carried too.
    """

    orders: int
    unchanged: int
    carried: int
    unread: int


@dataclass(frozen=True, kw_only=True)
class BookResult:
    """Hold a whole simulation.

    Attributes:
        orders: By (fill instant, ticker); those without a fill instant last.
        positions: By (session, ticker).
        equity: By session.
        start_cash: What the book began with.
        currency: Of all amounts.
        counts: What became of the decisions.
        fills_first: Whether orders may fill in the first session already.
    """

    orders: tuple[OrderRecord, ...]
    positions: tuple[PositionRecord, ...]
    equity: tuple[EquityRecord, ...]
    start_cash: float
    currency: str
    counts: DecisionCounts
    fills_first: bool

    @property
    def curve(self) -> tuple[float, ...]:
        """Equity by session, with the start cash in front where the first session may trade.

        Each step of it is one `EquityRecord.ret` that is not None.
        """
        values = tuple(row.equity for row in self.equity)
        return (self.start_cash, *values) if self.fills_first else values


@dataclass(frozen=True, kw_only=True)
class HeldPosition:
    """Hold one open position as it is known at an instant.

    Attributes:
        ticker: Instrument id.
        shares: Held; below zero for a short position.
        price: Last close known, quote currency.
        currency: Quote currency.
        value: In book currency.
        weight: Part of the equity, or None where that is not above zero.
        cost: What was paid for what is still held, commission included; below zero for a short
            position: what was taken in.
        unrealised: `value` less `cost`.
        since: Session of the fill that opened it.
        stale: Whether `price` is older than the ticker's last session.
    """

    ticker: str
    shares: float
    price: float
    currency: str
    value: float
    weight: float | None
    cost: float
    unrealised: float
    since: date
    stale: bool


@dataclass(frozen=True, kw_only=True)
class BookState:
    """Hold a book as it is known at an instant.

    Attributes:
        at: Instant, UTC.
        cash: Balance.
        equity: Cash and positions.
        currency: Of the amounts.
        positions: Open ones, by ticker.
    """

    at: datetime
    cash: float
    equity: float
    currency: str
    positions: tuple[HeldPosition, ...]
