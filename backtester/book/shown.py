"""The simulated book that the portfolio manager is shown: his earlier ratings, carried forward.

Each lane (trial) has a book of its own, played by `book` from the decisions that the lane has made
so far, and read at each cutoff as it is known then. With the memory scope ``ticker`` lanes of
tickers are independent, and so are their books: one for each ticker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime

from backtester.book.costs import Costs
from backtester.book.policy import policy_named
from backtester.book.simulation import BookRule, BookState, HeldPosition, ShownBook, Signal
from backtester.config import RunConfig
from backtester.records import CellKey, CellRecord
from backtester.snapshots.snapshot import Snapshot
from tradingagents_core.errors import NoMarketData
from tradingagents_core.protocols import Holding, Holdings

Lane = tuple[int, str]


@dataclass(kw_only=True)
class _Kept:
    """Hold one lane's book, and what it was at the last cutoff."""

    book: ShownBook
    at: datetime | None = None
    state: BookState | None = None
    symbols: dict[str, str] = field(default_factory=dict)


class ShownBooks:
    """Carry the books of a run forward in simulated time.

    Cutoffs are asked about in order, and decisions taken after those of earlier cutoffs.

    Args:
        config: Says how ratings become positions; its tickers are instrument ids.
        snapshot: Where prices come from.
        sessions: Decision sessions of the run.

    Raises:
        UsageError: The tickers' currencies cannot be brought together in one book.
    """

    def __init__(self, config: RunConfig, snapshot: Snapshot, sessions: Iterable[date]) -> None:
        days = sorted(set(sessions))
        self._config = config
        self._snapshot = snapshot
        # Nobody looks beyond the last decision; a snapshot cut off before it ends the book there.
        self._first, self._last = days[0], min(days[-1], snapshot.end)
        self._by_ticker = config.memory == "ticker"
        self._rule = rule_of(config)
        self._kept: dict[Lane, _Kept] = {}
        for ticker in config.tickers:
            # A book that cannot be is refused here, before a model is asked.
            self._lane(CellKey(session=self._first, ticker=ticker))

    def take(self, cells: Iterable[CellRecord]) -> None:
        """Take decisions; one without a rating leaves its position, a failed cell is none.

        Warm-up trades nothing here either: the book is the one that the run's own score keeps.
        """
        decided = [cell for cell in cells if cell.scored and cell.status in ("done", "unread")]
        for cell in sorted(decided, key=lambda cell: (cell.cutoff, cell.key)):
            kept = self._lane(cell.key)
            kept.symbols[cell.key.ticker] = cell.symbol
            kept.book.decide(
                [Signal(ticker=cell.key.ticker, session=cell.key.session, rating=cell.rating)]
            )

    def at(self, key: CellKey, cutoff: datetime, symbol_of: Callable[[str], str]) -> Holdings:
        """Return the book that a cell is shown.

        Args:
            key: The cell.
            cutoff: Its cutoff.
            symbol_of: Gives the symbol of an instrument id as valid at the cutoff.
        """
        kept = self._lane(key)
        if kept.state is None or kept.at != cutoff:
            kept.at, kept.state = cutoff, kept.book.at(cutoff)
        state = kept.state

        def symbol(ticker: str) -> str:
            try:
                return symbol_of(ticker)
            except NoMarketData:
                # It has no name any more; a later one must not stand in for the last one.
                return kept.symbols[ticker]

        return Holdings(
            source="simulated",
            as_of=key.session,
            currency=state.currency,
            cash=state.cash,
            equity=state.equity,
            positions=tuple(_holding(held, symbol(held.ticker)) for held in state.positions),
            rule=rule_words(self._config, len(self._tickers(key)), state.currency),
        )

    def _lane(self, key: CellKey) -> _Kept:
        lane = (key.trial, key.ticker if self._by_ticker else "")
        if lane not in self._kept:
            self._kept[lane] = _Kept(
                book=ShownBook(
                    snapshot=self._snapshot,
                    rule=self._rule,
                    tickers=self._tickers(key),
                    start=self._first,
                    end=self._last,
                )
            )
        return self._kept[lane]

    def _tickers(self, key: CellKey) -> Sequence[str]:
        return (key.ticker,) if self._by_ticker else sorted(self._config.tickers)


def rule_of(config: RunConfig) -> BookRule:
    """Return the rule by which the shown book is played."""
    return BookRule(
        policy=policy_named(config.show_book_policy),
        costs=Costs(
            commission_bps=config.show_book_commission_bps,
            slippage_bps=config.show_book_slippage_bps,
        ),
        entry_rule=config.entry_rule,
        decision_time=config.decision_time,
        start_cash=config.show_book_cash,
        haircut=config.delisting_haircut,
    )


def rule_words(config: RunConfig, slots: int, currency: str) -> str:
    """Return the rule as the book states it, in one line."""
    return (
        f"{config.show_book_policy}, {slots} slot{'s' if slots > 1 else ''}, began with "
        f"{config.show_book_cash:.2f} {currency}, orders fill at {config.entry_rule}, "
        f"commission {config.show_book_commission_bps:g} bps, "
        f"slippage {config.show_book_slippage_bps:g} bps"
    )


def _holding(held: HeldPosition, symbol: str) -> Holding:
    return Holding(
        symbol=symbol,
        shares=held.shares,
        # In the book's currency, as every amount; pence and dollars would not add up.
        price=held.value / held.shares,
        value=held.value,
        weight=held.weight,
        unrealised=held.unrealised,
    )
