"""Whole books as columns: the orders, positions and equity that `records` describes."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from backtester.book.desires import REFUSALS, Desires, dates_of
from backtester.book.lines import Stage, micros
from backtester.book.orders import late_orders
from backtester.book.records import (
    BookResult,
    BookRule,
    EquityRecord,
    OrderRecord,
    PositionRecord,
)
from backtester.book.sizing import Outcome
from backtester.book.tape import Closing, Reals, Tape, Whole
from backtester.book.walk import FILLS, fills_first
from backtester.columnar import Rows, fields_of
from backtester.errors import DataError

_MISSING_RATE: Final = "missing_rate"
_STATUS: Final = {
    Outcome.FILLED: ("filled", None),
    Outcome.CUT_BY_CASH: ("partial", "cash"),
    Outcome.CUT_BY_VOLUME: ("partial", "volume"),
    Outcome.NO_EQUITY: ("rejected", "no_equity"),
    Outcome.NO_CASH: ("rejected", "no_cash"),
    Outcome.NO_VOLUME: ("rejected", "no_volume"),
    Outcome.BELOW_ONE_SHARE: ("rejected", "below_one_share"),
    Outcome.BELOW_COSTS: ("rejected", "below_costs"),
}
_UNSIZED: Final = (Outcome.REFUSED, Outcome.NO_EQUITY)
_NO_DAY: Final = np.datetime64("NaT", "D")

Columns = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class BookColumns:
    """Hold a whole book; see `BookResult` for the order of its rows.

    Attributes:
        orders: See `OrderRecord`.
        positions: See `PositionRecord`; empty where they were not wanted.
        equity: See `EquityRecord`.
        start_cash: What the book began with.
        currency: Of all amounts.
        fills_first: Whether orders may fill in the first session already.
    """

    orders: Rows[OrderRecord]
    positions: Rows[PositionRecord]
    equity: Rows[EquityRecord]
    start_cash: float
    currency: str
    fills_first: bool

    @classmethod
    def of(cls, result: BookResult) -> BookColumns:
        """Return a book that was played alone."""
        return cls(
            orders=Rows.of(OrderRecord, result.orders),
            positions=Rows.of(PositionRecord, result.positions),
            equity=Rows.of(EquityRecord, result.equity),
            start_cash=result.start_cash,
            currency=result.currency,
            fills_first=result.fills_first,
        )


def books_of(
    tape: Tape,
    equity: Reals,
    *,
    stage: Stage,
    rule: BookRule,
    desires: Desires,
    with_positions: int,
) -> tuple[BookColumns, ...]:
    """Return the books that a tape has taken down.

    Args:
        tape: Of a crowd that has gone to its end.
        equity: Sessions x books.
        stage: Where they were played.
        rule: How they traded.
        desires: What they wanted.
        with_positions: How many of the first ones have their positions too.

    Raises:
        BacktesterError: A book does not balance.
    """
    equity = equity[:, : tape.books]
    tape.require_balance(equity)
    orders = _Orders(tape, stage, rule, desires)
    sessions = _Sessions(tape, equity, stage, rule)
    return tuple(
        BookColumns(
            orders=orders.of(book),
            positions=sessions.positions(book, wanted=book < with_positions),
            equity=sessions.equity(book),
            start_cash=rule.start_cash,
            currency=stage.currency,
            fills_first=fills_first(rule),
        )
        for book in range(tape.books)
    )


# ----------------------------------------------------------------------------------------- orders


class _Orders:
    """Make orders of what a tape says of decisions."""

    def __init__(self, tape: Tape, stage: Stage, rule: BookRule, desires: Desires) -> None:
        self._tape, self._stage, self._rule, self._desires = tape, stage, rule, desires
        lines = stage.lines
        self._tickers = np.array([line.ticker for line in lines], dtype=object)
        self._currencies = np.array([line.currency for line in lines], dtype=object)
        days = np.full((len(lines), max(len(line.clock.days) for line in lines)), _NO_DAY)
        cutoffs = np.zeros(days.shape, dtype=np.int64)
        dates = {id(line.clock): dates_of(line.clock.days) for line in lines}
        for at, line in enumerate(lines):
            clock = line.clock
            days[at, : len(clock.days)] = dates[id(clock)]
            instants = clock.closes if rule.decision_time == "close" else clock.opens
            cutoffs[at, : len(instants)] = instants
        self._days = days
        self._same_bar = desires.at <= cutoffs[desires.line, desires.decided]
        self._opens = FILLS[rule.entry_rule][1] == "open"
        index = np.array([line.is_index for line in lines], dtype=np.bool_)
        self._index_open = index[desires.line] & self._opens
        self._late = _late_fills(stage, rule, desires)

    def of(self, book: int) -> Rows[OrderRecord]:
        """Return the orders of one book: by fill, those after the end last."""
        decided = self._decided(book)
        parts = [decided, self._closed(book)]
        instants = np.concatenate([part["fill_at"] for part in parts])
        lines = np.concatenate([part["line"] for part in parts])
        # What ends a ticker's trading comes after orders at a close and before those at an open.
        own = np.full(len(lines), 0)
        own[: len(decided["line"])] = 1 if self._opens else -1
        order = np.lexsort((own, lines, instants))
        late = self._pending(book)
        whole = {
            name: np.concatenate([np.concatenate([p[name] for p in parts])[order], late[name]])
            for name in decided
        }
        whole["ticker"] = self._tickers[whole["line"]]
        whole["currency"] = self._currencies[whole["line"]]
        return Rows(OrderRecord, _table(OrderRecord, whole))

    def _decided(self, book: int) -> Columns:
        tape, desires = self._tape, self._desires
        rows = np.flatnonzero(tape.code[:, book])
        code, line = tape.code[rows, book], desires.line[rows]
        weights = desires.weights[rows, book]
        traded = code <= Outcome.CUT_BY_VOLUME
        signed = np.where(traded, tape.shares[rows, book], 0.0)
        shares, price = np.abs(signed), tape.price[rows, book]
        reference, rate = desires.prices[rows], tape.rate[rows]
        unsized = np.isin(code, _UNSIZED)
        held = tape.held[rows, book]
        change = np.where(traded, signed, tape.wished[rows, book])
        change = np.where(code == Outcome.NO_EQUITY, weights, change)
        refused = code == Outcome.REFUSED
        change = np.where(refused, np.where(weights != 0.0, weights, -held), change)
        status, reason = self._words(code, desires.refusal[rows])
        with np.errstate(invalid="ignore"):
            notional = np.where(traded, shares * price * rate, 0.0)
            slippage = np.where(traded, shares * np.abs(price - reference) * rate, 0.0)
        return {
            "line": line,
            "session": self._days[line, desires.decided[rows]],
            "fill_session": self._days[line, desires.place[rows]],
            "fill_at": desires.at[rows],
            "no_fill_at": np.zeros(len(rows), dtype=np.bool_),
            "side": _sides(weights, change),
            "shares": shares,
            "price": np.where(traded, price, np.nan),
            "reference_price": np.where(refused, np.nan, reference),
            "notional": notional,
            "asked": np.where(unsized, np.nan, tape.wished[rows, book]),
            "commission": np.where(traded, tape.fee[rows, book], 0.0),
            "slippage": slippage,
            "status": status,
            "reason": reason,
            "target_weight": weights,
            "flags": self._flags(rows, refused),
        }

    def _words(
        self, code: npt.NDArray[np.int8], refusal: Whole
    ) -> tuple[npt.NDArray[np.object_], npt.NDArray[np.object_]]:
        status, reason = np.full(len(code), None), np.full(len(code), None)
        for outcome, (word, why) in _STATUS.items():
            which = code == outcome
            status[which], reason[which] = word, why
        refused = code == Outcome.REFUSED
        for number, why in enumerate((_MISSING_RATE, *REFUSALS[1:])):
            which = refused & (refusal == number)
            status[which] = "pending" if why == "after_end" else "rejected"
            reason[which] = why
        return status, reason

    def _flags(self, rows: Whole, refused: npt.NDArray[np.bool_]) -> npt.NDArray[np.object_]:
        same, index = self._same_bar[rows] & ~refused, self._index_open[rows] & ~refused
        return _flagged({"index_open": index, "same_bar": same}, len(rows))

    def _closed(self, book: int) -> Columns:
        """Return what was closed because its ticker trades no more."""
        found = [one for one in self._tape.closings if one.shares[book] != 0.0]
        haircut = self._rule.haircut
        line = np.array([one.line for one in found], dtype=np.int64)
        place = np.array([one.place for one in found], dtype=np.int64)
        signed = np.array([one.shares[book] for one in found])
        mark = np.array([one.mark[book] for one in found])
        rate = np.array([one.rate for one in found])
        price = mark * (1.0 - haircut)
        notional = np.abs(signed) * price * rate
        flags = {"delisted": np.full(len(found), True), "haircut": np.full(len(found), haircut > 0)}
        return {
            "line": line,
            "session": np.array([self._last(one) for one in found], dtype="datetime64[D]"),
            "fill_session": self._days[line, place],
            "fill_at": np.array([self._opened(one) for one in found], dtype=np.int64),
            "no_fill_at": np.zeros(len(found), dtype=np.bool_),
            "side": _sides(np.zeros(len(found)), signed),
            "shares": np.abs(signed),
            "price": price,
            "reference_price": mark,
            "notional": notional,
            "asked": np.where(signed > 0.0, notional, -notional),
            "commission": np.zeros(len(found)),
            "slippage": np.zeros(len(found)),
            "status": np.full(len(found), "filled", dtype=object),
            "reason": np.full(len(found), None),
            "target_weight": np.zeros(len(found)),
            "flags": _flagged(flags, len(found)),
        }

    def _last(self, one: Closing) -> object:
        return self._stage.lines[one.line].last

    def _opened(self, one: Closing) -> int:
        return self._stage.lines[one.line].clock.opens[one.place]

    def _pending(self, book: int) -> Columns:
        """Return the decisions that fill after the end, those to sell nothing left out."""
        late = self._desires.late
        rows = np.flatnonzero(~np.isnan(late.weights[:, book]))
        wanted = late.weights[rows, book].tolist()
        kept = late_orders(late.line[rows].tolist(), wanted, self._in_hand(book))
        rows = rows[np.array(kept, dtype=np.bool_)]
        weights = late.weights[rows, book]
        sessions, instants = self._late
        none, zero = np.full(len(rows), np.nan), np.zeros(len(rows))
        at = np.array([0 if instants[row] is None else instants[row] for row in rows], np.int64)
        unknown = np.array([instants[row] is None for row in rows], dtype=np.bool_)
        return {
            "line": late.line[rows],
            "session": late.session[rows],
            "fill_session": sessions[rows],
            "fill_at": at,
            "no_fill_at": unknown,
            "side": _sides(weights, np.where(weights != 0.0, weights, -1.0)),
            "shares": zero,
            "price": none,
            "reference_price": none,
            "notional": zero,
            "asked": none,
            "commission": zero,
            "slippage": zero,
            "status": np.full(len(rows), "pending", dtype=object),
            "reason": np.full(len(rows), "after_end", dtype=object),
            "target_weight": weights,
            "flags": _flagged({}, len(rows)),
        }

    def _in_hand(self, book: int) -> set[int]:
        """Return the lines that are held at the end, or may be by an order that is pending."""
        tape, desires = self._tape, self._desires
        refused = tape.code[:, book] == Outcome.REFUSED
        ahead = refused & (desires.refusal == REFUSALS.index("after_end"))
        opening = desires.line[ahead & (desires.weights[:, book] != 0.0)]
        held = np.flatnonzero(tape.held_shares[-1, :, book])
        return {*held.tolist(), *opening.tolist()}


def _late_fills(
    stage: Stage, rule: BookRule, desires: Desires
) -> tuple[npt.NDArray[np.datetime64], list[int | None]]:
    """Return the session and the instant of each fill after the end, as far as calendars know."""
    offset, point = FILLS[rule.entry_rule]
    sessions, instants = [], []
    late = desires.late
    for line, day in zip(late.line.tolist(), late.session.tolist(), strict=True):
        calendar, session, at = stage.lines[line].clock.calendar, None, None
        with suppress(DataError):
            session = calendar.shift(day, offset)
        if session is not None:
            at = calendar.open_utc(session) if point == "open" else calendar.close_utc(session)
        sessions.append(session)
        instants.append(None if at is None else micros(at))
    return np.array(sessions, dtype="datetime64[D]"), instants


def _sides(weights: Reals, change: Reals) -> npt.NDArray[np.object_]:
    """Name orders; see `book_orders.side_of`."""
    up = np.where(weights > 0.0, "buy", "cover")
    down = np.where(weights < 0.0, "short", "sell")
    return np.where(change > 0.0, up, down).astype(object)


def _flagged(flags: dict[str, npt.NDArray[np.bool_]], rows: int) -> npt.NDArray[np.object_]:
    """Return the names of the flags that hold, sorted, for each row."""
    found = np.empty(rows, dtype=object)
    found[:] = [()] * rows
    for name in sorted(flags):
        for row in np.flatnonzero(flags[name]).tolist():
            found[row] = (*found[row], name)
    return found


# --------------------------------------------------------------------------------------- sessions


class _Sessions:
    """Make rows of equity and positions of what a tape says of sessions."""

    def __init__(self, tape: Tape, equity: Reals, stage: Stage, rule: BookRule) -> None:
        self._tape, self._stage, self._equity = tape, stage, equity
        self._first = rule.start_cash if fills_first(rule) else None
        self._values = tape.values()
        self._open = tape.held_shares != 0.0
        self._stale = tape.stale() & self._open
        self._days = dates_of([day for day, _ in stage.rows])
        self._instants = np.array([at for _, at in stage.rows], dtype=np.int64)
        zero = np.zeros((len(stage.rows), 1, tape.books))
        self._held = _added(zero, self._values)
        self._gross = _added(zero, np.abs(self._values))

    def equity(self, book: int) -> Rows[EquityRecord]:
        """Return one row a session."""
        worth, held = self._equity[:, book], self._held[:, book]
        flows = self._tape.flows[:, :, book]
        with np.errstate(divide="ignore", invalid="ignore"):
            gross = np.where(worth > 0.0, self._gross[:, book] / worth, np.nan)
            net = np.where(worth > 0.0, held / worth, np.nan)
            before = np.concatenate([[np.nan if self._first is None else self._first], worth[:-1]])
            ret = np.where(before > 0.0, worth / before - 1.0, np.nan)
        names = ("traded", "commission", "slippage", "dividends", "interest", "borrow")
        columns = {
            "session": self._days,
            "at": self._instants,
            "cash": self._tape.cash[:, book],
            "positions_value": held,
            "equity": worth,
            "gross": gross,
            "net": net,
            **{name: flows[:, at] for at, name in enumerate(names)},
            "ret": ret,
            "stale": self._stale[:, :, book].any(axis=1),
        }
        return Rows(EquityRecord, _table(EquityRecord, columns))

    def positions(self, book: int, *, wanted: bool) -> Rows[PositionRecord]:
        """Return one row a session and ticker, from its first fill on."""
        tape = self._tape
        rows, lines = np.nonzero(tape.touched[:, :, book] & wanted)
        worth, value = self._equity[rows, book], self._values[rows, lines, book]
        with np.errstate(divide="ignore", invalid="ignore"):
            weight = np.where(worth > 0.0, value / worth, np.nan)
        names = np.array([line.ticker for line in self._stage.lines], dtype=object)
        money = np.array([line.currency for line in self._stage.lines], dtype=object)
        columns = {
            "session": self._days[rows],
            "ticker": names[lines],
            "shares": tape.held_shares[rows, lines, book],
            "close": tape.marks[rows, lines, book],
            "value": value,
            "weight": weight,
            "gain": value - tape.paid[rows, lines, book],
            "currency": money[lines],
            "stale": self._stale[rows, lines, book],
        }
        return Rows(PositionRecord, _table(PositionRecord, columns))


def _added(zero: Reals, parts: Reals) -> Reals:
    """Return the sum over lines, one after the other: sessions x books."""
    found: Reals = np.add.accumulate(np.concatenate([zero, parts], axis=1), axis=1)[:, -1]
    return found


def _table(kind: type[Any], columns: Columns) -> pa.Table:
    """Return columns as a table; NaN of what may be missing becomes None."""
    arrays = [_array(columns, field.name, field.type, field.required) for field in fields_of(kind)]
    return pa.table(arrays, names=[field.name for field in fields_of(kind)])


def _array(columns: Columns, name: str, kind: pa.DataType, required: bool) -> pa.Array[Any]:
    values = columns[name]
    if pa.types.is_timestamp(kind):
        unknown = columns.get(f"no_{name}")
        return pa.array(values, type=pa.int64(), mask=unknown).cast(kind)
    if pa.types.is_floating(kind):
        return pa.array(values, type=kind, from_pandas=not required)
    if pa.types.is_list(kind) or pa.types.is_string(kind):
        return pa.array(values.tolist(), type=kind)
    return pa.array(values, type=kind)
