"""What prices did around decisions: the mean path of excess return, by rating.

Prices are closes on the basis of the benchmark (with dividends where that holds them), carried
over splits. For session offset k from the decision session d, with close 0 as the point of
reference: k > 0 gives the return from the close of d to that of d+k less the benchmark's over the
same dates; k < 0 gives the return from d+k to d less the benchmark's, with its sign turned, so that
the path runs through 0 at d. A decision counts at every offset whose closes are all there, so n
differs by offset: a path whose n falls mixes other decisions, and its rows say so.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Final

import numpy as np
import numpy.typing as npt

from backtester.records import RATINGS
from backtester.schema import SPLIT
from backtester.score.records import EventRow
from backtester.settlement.benchmark import benchmark_for
from backtester.settlement.decided import Decided
from backtester.settlement.pricing import Market, market_of
from backtester.snapshots.snapshot import Snapshot
from backtester.statistics.moments import added

FIRST_OFFSET: Final = -10
LAST_OFFSET: Final = 20
Floats = npt.NDArray[np.float64]
Days = npt.NDArray[np.datetime64]
OFFSETS: Final = tuple(range(FIRST_OFFSET, LAST_OFFSET + 1))
UNREAD: Final = "unread"


def event_study(
    decided: Decided, benchmarks: Mapping[str, str | None], snapshot: Snapshot
) -> tuple[EventRow, ...]:
    """Return the mean path of every rating that was given, Sell first, ``unread`` last.

    Args:
        decided: Decisions, any order.
        benchmarks: Ticker -> benchmark asked for, or None for the market's own.
        snapshot: Where closes come from.
    """
    lines = _Lines(snapshot)
    by_rating: dict[int, list[Floats]] = {}
    for ticker, rows in decided.by_ticker():
        mine = decided.at(rows)
        for rating in np.unique(mine.rating).tolist():
            days = mine.day[mine.rating == rating]
            paths = lines.paths_of(ticker, benchmarks[ticker], days)
            by_rating.setdefault(rating, []).append(paths)
    rows_of = [
        _rows(name, np.concatenate(by_rating[place]))
        for place, name in enumerate((*RATINGS, UNREAD))
        if place in by_rating
    ]
    return tuple(itertools.chain.from_iterable(rows_of))


def _rows(rating: str, paths: Floats) -> list[EventRow]:
    """Return the rows of one rating; paths are events x (path, one session's excess) x offsets."""
    rows = []
    for at, offset in enumerate(OFFSETS):
        path = _finite(paths[:, 0, at])
        mean = _mean(path)
        rows.append(
            EventRow(
                rating=rating,
                session_offset=offset,
                n=len(path),
                mean_excess=_mean(_finite(paths[:, 1, at])),
                mean_path=mean,
                stddev_path=_deviation(path, mean),
                reason=None if len(path) else "no_rows",
            )
        )
    return rows


def _finite(values: Floats) -> Floats:
    found: Floats = values[np.isfinite(values)]
    return found


def _mean(values: Floats) -> float | None:
    return added(values) / len(values) if len(values) else None


def _deviation(values: Floats, mean: float | None) -> float | None:
    if mean is None or len(values) < 2:
        return None
    apart = values - mean
    return math.sqrt(added(apart * apart) / (len(values) - 1))


@dataclass(frozen=True, kw_only=True)
class _Line:
    """Hold an instrument's closes on every session of its calendar; NaN where there is none.

    Attributes:
        days: Sessions.
        price: What one share held from the start is worth without dividends.
        total: With dividends, each put back into the instrument at the close of its ex session.
    """

    days: Days
    price: Floats
    total: Floats

    def on(self, basis: str) -> Floats:
        return self.total if basis == "total" else self.price


class _Lines:
    """Make the line of an instrument once, and paths from it."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._made: dict[str, _Line] = {}
        self._paired: dict[tuple[str, str], Floats] = {}

    def paths_of(self, ticker: str, benchmark: str | None, sessions: Days) -> Floats:
        """Return events x (path, one session's excess) x offsets; NaN where a close is missing."""
        own = self._line(ticker)
        held = self._benchmark_of(ticker, benchmark, sessions.min().item())
        blank = np.full((len(sessions), 2, len(OFFSETS)), np.nan)
        if held is None:
            return blank
        basis = market_of(self._snapshot, held).identity.basis
        mine, other = own.on(basis), self._on_days_of(own, ticker, held, basis)
        if not len(mine):
            return blank
        place = np.searchsorted(own.days, sessions)
        known = place < len(mine)
        known[known] = own.days[place[known]] == sessions[known]
        at = place[:, None] + np.array((FIRST_OFFSET - 1, *OFFSETS))
        inside = (at >= 0) & (at < len(mine)) & known[:, None]
        took = np.clip(at, 0, len(mine) - 1)
        window, bench = np.where(inside, mine[took], np.nan), np.where(inside, other[took], np.nan)
        here = np.clip(place, 0, len(mine) - 1)
        blank[:, 0] = _around(window[:, 1:], bench[:, 1:], mine[here, None], other[here, None])
        blank[:, 1] = window[:, 1:] / window[:, :-1] - bench[:, 1:] / bench[:, :-1]
        return blank

    def _benchmark_of(self, ticker: str, benchmark: str | None, day: date) -> str | None:
        choice = benchmark_for(ticker, benchmark)
        if choice.symbol is None:
            return None
        if self._snapshot.holds(choice.symbol):
            return choice.symbol
        return self._snapshot.resolve(choice.symbol, day)

    def _line(self, instrument: str) -> _Line:
        if instrument not in self._made:
            self._made[instrument] = _line_of(market_of(self._snapshot, instrument), self._snapshot)
        return self._made[instrument]

    def _on_days_of(self, own: _Line, ticker: str, held: str, basis: str) -> Floats:
        """Return a benchmark's line on another calendar's days: its last session's close."""
        pair = (ticker, held)
        if pair not in self._paired:
            line = self._line(held)
            at = np.searchsorted(line.days, own.days, side="right") - 1
            values = line.on(basis)
            taken = values[np.clip(at, 0, None)] if len(values) else np.full(len(at), np.nan)
            self._paired[pair] = np.where(at >= 0, taken, np.nan)
        return self._paired[pair]


def _around(
    window: Floats,
    bench: Floats,
    own: Floats,
    other: Floats,
) -> Floats:
    """Return the path through 0 at the decision's close."""
    after = window / own - bench / other
    before = other / bench - own / window
    return np.where(np.array(OFFSETS) < 0, before, after)


def _line_of(market: Market, snapshot: Snapshot) -> _Line:
    days = market.calendar.days
    first, last = np.datetime64(snapshot.start), np.datetime64(snapshot.end)
    days = days[(first <= days) & (days <= last)]
    price, bars = np.full(len(days), np.nan), market.bars
    usable = np.isin(bars.sessions, days) & np.isfinite(bars.close) & (bars.close > 0.0)
    price[np.searchsorted(days, bars.sessions[usable])] = bars.close[usable]
    price, paid = _carried(market, price, days)
    with np.errstate(invalid="ignore", divide="ignore"):
        # A dividend of a session without a close is put back at the next one's.
        growth = np.cumprod(1.0 + _onto_closes(paid / price, paid, price))
    return _Line(days=days, price=price, total=price * growth)


def _carried(market: Market, price: Floats, days: Days) -> tuple[Floats, Floats]:
    """Return closes and dividends in terms of the shares that one share became by each session."""
    shares, paid = np.ones(len(days)), np.zeros(len(days))
    rows = market.actions
    order = sorted(range(len(rows)), key=lambda at: (rows.ex_sessions[at], rows.kind[at] != SPLIT))
    for row in order:
        at = int(np.searchsorted(days, rows.ex_sessions[row]))
        if at >= len(days) or rows.ex_sessions[row] < days[0]:
            continue
        if rows.kind[row] == SPLIT:
            shares[at:] *= rows.numerator[row] / rows.denominator[row]
        elif rows.currency[row] == market.currency:
            paid[at] += rows.amount[row] * shares[at]
    return price * shares, paid


def _onto_closes(
    ratio: Floats,
    paid: Floats,
    price: Floats,
) -> Floats:
    found = np.where(np.isfinite(ratio), ratio, 0.0)
    waiting = 0.0
    for at in np.flatnonzero((paid > 0.0) & ~np.isfinite(price)).tolist():
        waiting = paid[at]
        later = np.flatnonzero(np.isfinite(price[at:]))
        if len(later):
            found[at + int(later[0])] += waiting / price[at + int(later[0])]
    return found
