"""Settle many decisions at once, as columns: the numbers of `broker.settle`, row by row.

Most windows are plain: both bars are there, nothing contradicts anything, the benchmark trades on
the same calendar. Those of one instrument are worked out together, by the operations of `pricing`
and `benchmark` in their order. Every other window, and every one that comes to no number, is handed
to `settle`, so that statuses and reasons come from one place. A test compares the two, row by row.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, get_type_hints

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from backtester.columnar import arrow_of
from backtester.records import DIRECTION, RATINGS, ReturnRecord
from backtester.settlement.benchmark import BenchmarkChoice, benchmark_for
from backtester.settlement.broker import FILLS, ScoreRule, settle
from backtester.settlement.decided import UNRATED, Decided, Standing
from backtester.settlement.pricing import Flaw, Market, Point, market_of
from backtester.snapshots.snapshot import Snapshot

Floats = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Days = npt.NDArray[np.datetime64]

_KEY: Final[Mapping[str, pa.DataType]] = {
    "ticker": pa.string(),
    "session": pa.date32(),
    "trial": pa.int64(),
}


def settle_all(
    decisions: Sequence[Standing], *, snapshot: Snapshot, rules: Mapping[str, ScoreRule]
) -> pa.Table:
    """Settle decisions on all that the snapshot holds.

    Args:
        decisions: In the order of the rows.
        snapshot: See `settle`.
        rules: Ticker -> how to score.

    Returns:
        One row for each, with the fields of `ReturnRecord` but `score_id`; its key as ``ticker,
        session, trial``.

    Raises:
        DataError: See `settle`.
    """
    decided = Decided.of(decisions)
    tables, order, rest = [], [], [np.zeros(0, dtype=np.int64)]
    for ticker, places in decided.by_ticker():
        plain = _Plain(decided.at(places), snapshot=snapshot, ticker=ticker, rule=rules[ticker])
        if plain.holds.any():
            tables.append(plain.table(np.flatnonzero(plain.holds)))
            order.append(places[plain.holds])
        rest.append(places[~plain.holds])
    left = np.concatenate(rest)
    if len(left) or not tables:
        records = [
            settle(one.key, one.rating, snapshot=snapshot, rule=rules[one.key.ticker])
            for one in decided.at(left)
        ]
        tables.append(table_of_returns(records))
        order.append(left)
    back = np.empty(len(decided), dtype=np.int64)
    back[np.concatenate(order)] = np.arange(len(decided))
    return pa.concat_tables(tables).take(back).combine_chunks()


def table_of_returns(records: Sequence[ReturnRecord]) -> pa.Table:
    """Return settled decisions as the table that `settle_all` makes."""
    arrays = [pa.array([getattr(r.key, name) for r in records], t) for name, t in _KEY.items()]
    for name, kind in _plain_fields():
        arrays.append(pa.array([getattr(record, name) for record in records], kind))
    return pa.table(arrays, schema=_SCHEMA)


def _plain_fields() -> list[tuple[str, pa.DataType]]:
    hints = get_type_hints(ReturnRecord)
    left_out = ("key", "score_id")
    names = [field.name for field in fields(ReturnRecord) if field.name not in left_out]
    return [(name, arrow_of(hints[name])[0]) for name in names]


_SCHEMA: Final = pa.schema([*_KEY.items(), *_plain_fields()])


# ---------------------------------------------------------------------------------- plain windows

_SIDES: Final = np.array([*(float(DIRECTION[rating]) for rating in RATINGS), np.nan])
_DIRECTIONS: Final = np.array([*(DIRECTION[rating] for rating in RATINGS), 0], dtype=np.int64)


@dataclass(frozen=True, kw_only=True)
class _Bars:
    """Hold prices of many dates of one market, and when each was public; NaN where none is."""

    price: Floats
    known: Whole

    @property
    def there(self) -> Flags:
        found: Flags = ~np.isnan(self.price)
        return found


@dataclass(frozen=True, kw_only=True)
class _Earned:
    """Hold what many shares came to; NaN where that is no number."""

    factor: Floats
    dividends: Floats
    price: Floats
    total: Floats

    def on(self, basis: str) -> Floats:
        return self.total if basis == "total" else self.price


class _Plain:
    """Hold the windows of one instrument under one rule.

    Attributes:
        holds: Which of the decisions have a plain window with a number.
    """

    def __init__(
        self, decided: Decided, *, snapshot: Snapshot, ticker: str, rule: ScoreRule
    ) -> None:
        self._decided, self._rule = decided, rule
        self._market = market = market_of(snapshot, ticker)
        self._choice = benchmark_for(ticker, rule.benchmark)
        self._bench = _bench_of(self._choice, market, snapshot)
        calendar = market.calendar
        self._days = decided.day
        offset, self._point = FILLS[rule.entry_rule]
        sessions = calendar.days
        at = np.searchsorted(sessions, self._days)
        known = at + max(rule.horizon, offset) < len(sessions)
        at = np.where(known, at, 0)
        known &= sessions[at] == self._days
        self._entry_on, self._exit_on = sessions[at + offset], sessions[at + rule.horizon]
        self.holds = self._followed() & known if not market.bars.conflicts else known & False
        self._compare()

    def _followed(self) -> Flags:
        """Say where the instrument itself has a number."""
        market, last = self._market, self._market.identity.last_session
        self._entry = _bars(market, self._entry_on, self._point)
        self._exit = _bars(market, self._exit_on, "close")
        self._earned = _earned(market, self._entry_on, self._entry, self._exit_on, self._exit)
        holds = ~np.isnan(self._earned.total)
        return holds if last is None else holds & (self._exit_on <= np.datetime64(last))

    def _compare(self) -> None:
        """Hold against the benchmark; where that is not plain, neither is the window."""
        nothing = np.full(len(self._days), np.nan)
        self._other = self._alpha = self._alpha_cc = nothing
        self._latest = np.zeros(len(self._days), dtype=np.int64)
        if self.holds.any():
            self._latest = np.maximum(self._entry.known, self._exit.known)
        if not self.holds.any() or self._choice.symbol is None:
            return
        if self._bench is None:
            self.holds &= False
            return
        basis = self._bench.identity.basis
        mine = self._earned.on(basis)
        if self._bench is self._market:
            self._other, zero = mine, np.zeros(len(self._days))
            self._alpha = self._alpha_cc = zero
            return
        self._against_other(self._bench, basis, mine)

    def _against_other(self, bench: Market, basis: str, mine: Floats) -> None:
        start = _bars(bench, self._entry_on, self._point)
        stop, here = _bars(bench, self._exit_on, "close"), _bars(bench, self._days, "close")
        leg = _earned(bench, self._entry_on, start, self._exit_on, stop).on(basis)
        long_leg = _earned(bench, self._days, here, self._exit_on, stop).on(basis)
        own = _bars(self._market, self._days, "close")
        own_leg = _earned(self._market, self._days, own, self._exit_on, self._exit).on(basis)
        self._other, self._alpha = leg, mine - leg
        self._alpha_cc = own_leg - long_leg
        self.holds &= ~np.isnan(self._alpha) & ~np.isnan(self._alpha_cc)
        for one in (start, stop, here, own):
            self._latest = np.maximum(self._latest, one.known)

    def table(self, rows: Whole) -> pa.Table:
        """Return the plain windows at some places."""
        count, market, rule, bench = len(rows), self._market, self._rule, self._bench
        calendar = market.calendar
        at_open = self._point == "open"
        entry_on, days = self._entry_on[rows], self._days[rows]
        entry_at = calendar.opens_of(entry_on) if at_open else calendar.closes_of(entry_on)
        closes = rule.decision_time == "close"
        cutoffs = calendar.closes_of(days) if closes else calendar.opens_of(days)
        ratings = self._decided.rating[rows]
        sides = _SIDES[ratings]
        other = bench is not None and bench is not market
        values: dict[str, Any] = {
            "ticker": market.instrument,
            "session": days,
            "trial": self._decided.trial[rows],
            "status": "resolved",
            "reason": None,
            "horizon": rule.horizon,
            "entry_rule": rule.entry_rule,
            "entry_session": entry_on,
            "exit_session": self._exit_on[rows],
            "entry_at": entry_at,
            "entry_price": self._entry.price[rows],
            "exit_price": self._exit.price[rows],
            "split_factor": self._earned.factor[rows],
            "dividends": self._earned.dividends[rows],
            "raw_price": self._earned.price[rows],
            "raw_total": self._earned.total[rows],
            "currency": market.currency,
            "benchmark": self._choice.symbol,
            "benchmark_source": self._choice.source,
            "benchmark_basis": bench.identity.basis if bench else None,
            "benchmark_currency": bench.currency if bench else None,
            "benchmark_entry_date": entry_on if bench else None,
            "benchmark_exit_date": self._exit_on[rows] if bench else None,
            "benchmark_return": self._other[rows],
            "alpha": self._alpha[rows],
            "alpha_cc": self._alpha_cc[rows],
            "alpha_reason": self._choice.reason,
            "direction": pa.array(_DIRECTIONS[ratings], mask=ratings == UNRATED),
            # Hold earns zero whatever the alpha; without the sum a negative one would make -0.0.
            "directional_alpha": sides * self._alpha[rows] + 0.0,
            "flags": self._flags(entry_at <= cutoffs, other=other and at_open),
            "resolved_at": self._latest[rows].astype("datetime64[us]"),
        }
        arrays = [_array(values[field.name], field.type, count) for field in _SCHEMA]
        return pa.table(arrays, schema=_SCHEMA)

    def _flags(self, same_bar: Flags, *, other: bool) -> list[list[str]]:
        market, bench = self._market, self._bench
        index = market.is_index and self._point == "open"
        index = index or (other and bench is not None and bench.is_index)
        apart = bench is not None and bench.currency != market.currency
        always = [
            name for name, holds in (("currency_differs", apart), ("index_open", index)) if holds
        ]
        return [[*always, "same_bar"] if same else always for same in same_bar.tolist()]


def _bench_of(choice: BenchmarkChoice, market: Market, snapshot: Snapshot) -> Market | None:
    """Return the benchmark where it is plain: an instrument by its own id, on the same calendar."""
    if choice.symbol is None or not snapshot.holds(choice.symbol):
        return None
    bench = market_of(snapshot, choice.symbol)
    plain = bench.calendar is market.calendar and not bench.bars.conflicts
    return bench if plain else None


def _bars(market: Market, days: Days, point: Point) -> _Bars:
    """Return the quotes of many sessions; see `Market.quote`."""
    bars = market.bars
    if not len(bars):
        return _Bars(price=np.full(len(days), np.nan), known=np.zeros(len(days), dtype=np.int64))
    at = np.minimum(np.searchsorted(bars.sessions, days), len(bars) - 1)
    price, known = (bars.open if point == "open" else bars.close)[at], bars.known_at[at]
    there = (bars.sessions[at] == days) & np.isfinite(price) & (price > 0.0) & ~np.isnat(known)
    return _Bars(price=np.where(there, price, np.nan), known=known.astype(np.int64))


def _earned(market: Market, entry_on: Days, entry: _Bars, exit_on: Days, leave: _Bars) -> _Earned:
    """Work out the returns between many quotes; see `Market.earned`."""
    days = market.actions.ex_sessions
    first = np.searchsorted(days, entry_on, side="right")
    after = np.searchsorted(days, exit_on, side="right")
    codes, which = np.unique(first * (len(days) + 1) + after, return_inverse=True)
    held = [_carried(market, *divmod(code, len(days) + 1)) for code in codes.tolist()]
    factor, dividends = np.array(held).reshape(-1, 2).T[:, which]
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        proceeds = leave.price * factor
        price = proceeds / entry.price - 1.0
        total = (proceeds + dividends) / entry.price - 1.0
    good = np.isfinite(price) & np.isfinite(total)
    return _Earned(
        factor=factor,
        dividends=dividends,
        price=np.where(good, price, np.nan),
        total=np.where(good, total, np.nan),
    )


def _carried(market: Market, first: int, after: int) -> tuple[float, float]:
    held = market.carried(first, after)
    return (math.nan, math.nan) if isinstance(held, Flaw) else (held.factor, held.dividends)


def _array(value: Any, kind: Any, count: int) -> pa.Array[Any]:
    """Return a column: of one value for all, or of one each; NaN is None."""
    if isinstance(value, pa.Array):
        return value
    if value is None or isinstance(value, str | int):
        one: pa.Array[Any] = pa.repeat(pa.scalar(value, kind), count)
        return one
    if pa.types.is_timestamp(kind) and isinstance(value, np.ndarray):
        return pa.array(value.astype(np.int64)).cast(kind)
    found: pa.Array[Any] = pa.array(value, type=kind, from_pandas=True)
    return found
