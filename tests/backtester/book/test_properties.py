"""What holds of every book, whatever is decided, whatever prices do and whatever befalls holders.

The money is counted a second time here, from the orders and the snapshot alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import date
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backtester.book.simulation import BookResult, ShownBook, TargetSignal, simulate
from backtester.calendar import calendar_by_code
from tests.support.books import make_rule, shares_on
from tests.support.snapshots import (
    Action,
    Bar,
    dividend,
    make_bar,
    make_instrument,
    make_snapshot,
    sessions_of,
    split,
)

DAYS = sessions_of("AAA", "2024-03-04", 8)
TICKERS = ("AAA", "BBB", "7203.T")
NEAR = 1e-9

price = st.floats(min_value=0.5, max_value=500.0, allow_nan=False)
weight = st.sampled_from([None, -1.0, -0.5, 0.0, 0.25, 0.75, 1.0])
few = settings(max_examples=15, deadline=None)


@dataclass(frozen=True, kw_only=True)
class World:
    """Hold prices, what befalls holders, and decisions."""

    bars: tuple[Bar, ...]
    actions: tuple[Action, ...]
    last: date | None
    decisions: tuple[TargetSignal, ...]

    def snapshot(self) -> Any:
        """Build it; BBB may stop trading."""
        rows: dict[str, list[Bar]] = {ticker: [] for ticker in TICKERS}
        for bar in self.bars:
            rows[bar.instrument].append(bar)
        return make_snapshot(
            rows,
            actions=self.actions,
            instruments=[
                make_instrument("AAA"),
                make_instrument("BBB", last_session=self.last),
                make_instrument("7203.T"),
            ],
            start=DAYS[0],
            end=DAYS[-1],
        )

    def book(self, **rule: Any) -> BookResult:
        """Simulate all of it."""
        return simulate(
            self.decisions,
            snapshot=self.snapshot(),
            rule=make_rule(**rule),
            start=DAYS[0],
            end=DAYS[-1],
            tickers=TICKERS,
        )


@st.composite
def worlds(draw: st.DrawFn, *, whole: bool = False, calm: bool = False) -> World:
    """Draw a world: no bar missing in a whole one, nothing moves in a calm one."""
    last = None if whole else draw(st.sampled_from([None, None, DAYS[4]]))
    bars, actions = [], []
    for ticker in TICKERS:
        at = draw(price)
        for day in DAYS:
            at = at if calm else draw(price)
            opened = at if calm else draw(price)
            gone = ticker == "BBB" and last is not None and day > last
            missing = not whole and draw(st.integers(0, 9)) == 0
            if not (gone or missing):
                bars.append(make_bar(ticker, day, at, open=opened, volume=draw(st.integers(0, 99))))
            befell = 0 if calm else draw(st.integers(0, 11))
            if befell == 1:
                actions.append(
                    split(ticker, day, *draw(st.sampled_from([(2, 1), (3, 2), (1, 10)])))
                )
            elif befell == 2:
                actions.append(dividend(ticker, day, draw(st.floats(0.0, 5.0))))
    decisions = [
        TargetSignal(ticker=ticker, session=day, weight=draw(weight))
        for ticker in TICKERS
        for day in DAYS
        if draw(st.booleans())
    ]
    return World(bars=tuple(bars), actions=tuple(actions), last=last, decisions=tuple(decisions))


@st.composite
def rules(draw: st.DrawFn, *, scalable: bool = False) -> dict[str, Any]:
    """Draw a rule; a scalable one has no cost in shares or money."""
    made: dict[str, Any] = {
        "commission_bps": draw(st.sampled_from([0.0, 10.0, 300.0])),
        "slippage_bps": draw(st.sampled_from([0.0, 5.0, 400.0])),
        "cash_rate": draw(st.sampled_from([0.0, 0.05])),
        "borrow_bps_year": draw(st.sampled_from([0.0, 200.0])),
        "entry_rule": draw(st.sampled_from(["next_open", "next_close", "close"])),
        "slots": draw(st.sampled_from([None, 1, 2, 5])),
        "rebalance": draw(st.sampled_from(["on_change", "always"])),
        "haircut": draw(st.sampled_from([0.0, 0.3])),
    }
    if not scalable:
        made |= {
            "commission_per_share": draw(st.sampled_from([0.0, 0.01])),
            "commission_minimum": draw(st.sampled_from([0.0, 2.0])),
            "participation_cap": draw(st.sampled_from([None, 0.25])),
            "impact_bps": draw(st.sampled_from([0.0, 500.0])),
            "fractional": draw(st.booleans()),
        }
    return made


# --------------------------------------------------------------------------- counted a second time


def counted_again(world: World, book: BookResult) -> Mapping[date, float]:
    """Work out each row's equity from the orders, day by day and without the book's own sums."""
    closes = {(bar.instrument, bar.session): bar.close for bar in world.bars}
    shares = dict.fromkeys(TICKERS, 0.0)
    marks = dict.fromkeys(TICKERS, 0.0)
    cash, found = book.start_cash, {}
    for row in book.equity:
        cash += row.interest - row.borrow
        for ticker in TICKERS:
            # Holders of the day before are split and paid first: all fills come at or after the
            # open. On one day a split comes before a dividend; only one of them is ever drawn.
            for action in world.actions:
                if (action.instrument, action.ex_session) != (ticker, row.session):
                    continue
                if ticker == "BBB" and world.last is not None and row.session > world.last:
                    continue
                ratio = (action.numerator or 1) / (action.denominator or 1)
                shares[ticker] *= ratio
                marks[ticker] = max(marks[ticker] - (action.amount or 0.0), 0.0) / ratio
                cash += shares[ticker] * (action.amount or 0.0)
            for order in book.orders:
                if (order.ticker, order.fill_session) != (ticker, row.session) or not order.shares:
                    continue
                assert order.price is not None
                assert order.reference_price is not None
                bought = order.shares if order.side in ("buy", "cover") else -order.shares
                shares[ticker] += bought
                cash -= bought * order.price + order.commission
                marks[ticker] = order.reference_price
            marks[ticker] = closes.get((ticker, row.session), marks[ticker])
        found[row.session] = cash + sum(shares[name] * marks[name] for name in TICKERS)
    return found


def size_of(book: BookResult) -> float:
    """Return the largest sum in a book: what an error of arithmetic is measured against."""
    return max(
        [book.start_cash]
        + [abs(row.cash) for row in book.equity]
        + [abs(row.value) for row in book.positions]
    )


@few
@given(worlds(), rules())
def test_no_order_is_left_that_could_only_sell_what_nobody_has(
    world: World, rule: dict[str, Any]
) -> None:
    book = world.book(**rule)

    held = {row.ticker for row in book.positions if row.session == DAYS[-1] and row.shares}
    for order in book.orders:
        later = order.fill_session is None or order.fill_session > DAYS[-1]
        if later and order.status == "pending" and order.target_weight == 0.0:
            assert order.ticker in held
        if order.status == "pending":
            held |= {order.ticker} if order.target_weight else set()
            held -= set() if order.target_weight or not later else {order.ticker}
    assert book.counts.orders + book.counts.unchanged + book.counts.carried == len(world.decisions)


@few
@given(worlds(), rules())
def test_cash_and_positions_are_the_equity_in_every_session(
    world: World, rule: dict[str, Any]
) -> None:
    book = world.book(**rule)

    again = counted_again(world, book)
    for row in book.equity:
        assert row.cash + row.positions_value == row.equity
        assert again[row.session] == pytest.approx(row.equity, abs=NEAR * size_of(book))
        held = [one for one in book.positions if one.session == row.session]
        assert sum(one.value for one in held) == pytest.approx(
            row.positions_value, abs=NEAR * size_of(book)
        )
        # What every ticker brought, and the interest, is the profit.
        interest = sum(one.interest for one in book.equity if one.session <= row.session)
        assert book.start_cash + interest + sum(one.gain for one in held) == pytest.approx(
            row.equity, abs=NEAR * size_of(book)
        )


@few
@given(worlds(), rules())
def test_every_number_is_finite_and_every_decision_is_accounted_for(
    world: World, rule: dict[str, Any]
) -> None:
    book = world.book(**rule)

    for row in (*book.orders, *book.positions, *book.equity):
        for field in fields(row):
            value = getattr(row, field.name)
            assert not isinstance(value, float) or math.isfinite(value), (field.name, row)
    counts = book.counts
    assert counts.orders + counts.unchanged + counts.carried == len(world.decisions)
    forced = [order for order in book.orders if "delisted" in order.flags]
    assert len(book.orders) - len(forced) == counts.orders
    for order in book.orders:
        assert (order.reason is None) == (order.status == "filled")
        assert (order.shares > 0.0) == (order.status in ("filled", "partial"))


@few
@given(worlds(calm=True, whole=True), rules())
def test_where_nothing_moves_no_book_gains_and_each_loses_what_it_paid(
    world: World, rule: dict[str, Any]
) -> None:
    """Neither a short sale nor a turn-round makes wealth: all that can happen to it is costs."""
    book = world.book(**{**rule, "cash_rate": 0.0})

    paid = 0.0
    for row in book.equity:
        paid += row.commission + row.slippage + row.borrow
        assert row.equity == pytest.approx(1_000.0 - paid, abs=NEAR * size_of(book))


@few
@given(worlds(), rules(scalable=True), st.sampled_from([0.25, 3.7, 1e6]))
def test_ten_times_the_cash_is_ten_times_the_book_where_costs_are_in_proportion(
    world: World, rule: dict[str, Any], factor: float
) -> None:
    one, many = world.book(**rule), world.book(**rule, start_cash=1_000.0 * factor)

    near = NEAR * size_of(one)
    assert len(one.orders) == len(many.orders)
    for small, large in zip(one.equity, many.equity, strict=True):
        assert large.equity / factor == pytest.approx(small.equity, abs=near)


@few
@given(worlds(), rules(), st.randoms(use_true_random=False))
def test_the_order_of_decisions_and_tickers_changes_nothing(
    world: World, rule: dict[str, Any], shuffler: Any
) -> None:
    shuffled = list(world.decisions)
    shuffler.shuffle(shuffled)
    bars = list(world.bars)
    shuffler.shuffle(bars)

    mixed = replace(world, decisions=tuple(shuffled), bars=tuple(bars))

    assert mixed.book(**rule) == world.book(**rule)


@few
@given(worlds(), rules())
def test_tickers_that_change_names_change_nothing_but_their_names(
    world: World, rule: dict[str, Any]
) -> None:
    if world.last is not None:
        world = replace(world, last=None)
    swap = {"AAA": "BBB", "BBB": "AAA", "7203.T": "7203.T"}
    renamed = replace(
        world,
        bars=tuple(replace(bar, instrument=swap[bar.instrument]) for bar in world.bars),
        actions=tuple(replace(one, instrument=swap[one.instrument]) for one in world.actions),
        decisions=tuple(replace(one, ticker=swap[one.ticker]) for one in world.decisions),
    )
    if not rule["fractional"]:
        # A whole share more or less hangs on the last bit of a sum.
        rule = {**rule, "fractional": True}

    one, other = world.book(**rule), renamed.book(**rule)

    for row, twin in zip(one.equity, other.equity, strict=True):
        assert twin.equity == pytest.approx(row.equity, abs=NEAR * size_of(one))
    for ticker in TICKERS:
        assert shares_on(other, swap[ticker], DAYS[-1]) == pytest.approx(
            shares_on(one, ticker, DAYS[-1]), abs=NEAR * size_of(one)
        )


@few
@given(worlds(), rules(), st.integers(1, len(DAYS) - 2))
def test_nothing_later_changes_a_row_and_the_shown_book_knows_what_the_row_knows(
    world: World, rule: dict[str, Any], cut: int
) -> None:
    whole = world.book(**rule)
    today = DAYS[cut]
    past = replace(
        world,
        bars=tuple(bar for bar in world.bars if bar.session <= today),
        actions=tuple(one for one in world.actions if one.ex_session <= today),
        decisions=tuple(one for one in world.decisions if one.session <= today),
    )
    if not any(bar.session == today and bar.instrument != "7203.T" for bar in past.bars):
        return  # the cut snapshot would say that the day had not ended
    before = simulate(
        past.decisions,
        snapshot=past.snapshot(),
        rule=make_rule(**rule),
        start=DAYS[0],
        end=today,
        tickers=TICKERS,
    )

    assert before.equity == whole.equity[: len(before.equity)]
    shown = ShownBook(
        snapshot=world.snapshot(), rule=make_rule(**rule), tickers=TICKERS, start=DAYS[0]
    )
    shown.decide(past.decisions)
    state = shown.at(calendar_by_code("XNYS").close_utc(today))
    assert (state.cash, state.equity) == (before.equity[-1].cash, before.equity[-1].equity)


@few
@given(worlds(whole=True), rules())
def test_a_long_only_book_never_owes_cash_nor_holds_more_than_it_is_worth(
    world: World, rule: dict[str, Any]
) -> None:
    long_only = replace(
        world,
        actions=(),
        decisions=tuple(
            replace(one, weight=None if one.weight is None else abs(one.weight))
            for one in world.decisions
        ),
    )

    book = long_only.book(**{**rule, "cash_rate": 0.0})

    for row in book.equity:
        assert row.cash >= -NEAR * size_of(book)
        assert row.gross is None or row.gross <= 1.0 + NEAR
        assert row.equity >= -NEAR * size_of(book)
