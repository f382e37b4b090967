"""What prices did around decisions: the mean path of excess return, by rating.

Prices are closes on the basis of the benchmark (with dividends where that holds them), carried
over splits. For session offset k from the decision session d, with close 0 as the point of
reference: k > 0 gives the return from the close of d to that of d+k less the benchmark's over the
same dates; k < 0 gives the return from d+k to d less the benchmark's, with its sign turned, so that
the path runs through 0 at d. A decision counts at every offset whose closes are all there, so n
differs by offset: a path whose n falls mixes other decisions, and its rows say so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from backtester.records import RATINGS
from backtester.schema import SPLIT
from backtester.score.records import EventRow
from backtester.settlement.benchmark import benchmark_for
from backtester.settlement.pricing import Market, market_of
from backtester.snapshots.snapshot import Snapshot

FIRST_OFFSET: Final = -10
LAST_OFFSET: Final = 20
OFFSETS: Final = tuple(range(FIRST_OFFSET, LAST_OFFSET + 1))
UNREAD: Final = "unread"


class Event(NamedTuple):
    """Hold one decision.

    Attributes:
        ticker: Instrument id.
        session: Decision session.
        rating: One of the five, or None where none was read.
        benchmark: Benchmark asked for, or None for the market's own.
    """

    ticker: str
    session: date
    rating: str | None
    benchmark: str | None = None


def event_study(events: Sequence[Event], snapshot: Snapshot) -> tuple[EventRow, ...]:
    """Return the mean path of every rating that was given, Sell first, ``unread`` last.

    Args:
        events: Decisions, any order.
        snapshot: Where closes come from.
    """
    lines = _Lines(snapshot)
    groups: dict[tuple[str, str, str | None], list[date]] = {}
    for event in events:
        group = (event.rating or UNREAD, event.ticker, event.benchmark)
        groups.setdefault(group, []).append(event.session)
    by_rating: dict[str, list[npt.NDArray[np.float64]]] = {}
    for (rating, ticker, benchmark), sessions in sorted(groups.items(), key=str):
        paths = lines.paths_of(ticker, benchmark, sorted(sessions))
        by_rating.setdefault(rating, []).append(paths)
    rows: list[EventRow] = []
    for rating in (*RATINGS, UNREAD):
        if rating in by_rating:
            rows += _rows(rating, np.concatenate(by_rating[rating]))
    return tuple(rows)


def _rows(rating: str, paths: npt.NDArray[np.float64]) -> list[EventRow]:
    """Return the rows of one rating; paths are events x (path, one session's excess) x offsets."""
    rows = []
    for at, offset in enumerate(OFFSETS):
        path = _finite(paths[:, 0, at])
        steps = _finite(paths[:, 1, at])
        mean = _mean(path)
        rows.append(
            EventRow(
                rating=rating,
                session_offset=offset,
                n=len(path),
                mean_excess=_mean(steps),
                mean_path=mean,
                stddev_path=_deviation(path, mean),
                reason=None if path else "no_rows",
            )
        )
    return rows


def _finite(values: npt.NDArray[np.float64]) -> list[float]:
    found: list[float] = values[np.isfinite(values)].tolist()
    return found


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _deviation(values: Sequence[float], mean: float | None) -> float | None:
    if mean is None or len(values) < 2:
        return None
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


@dataclass(frozen=True, kw_only=True)
class _Line:
    """Hold an instrument's closes on every session of its calendar; NaN where there is none.

    Attributes:
        days: Sessions.
        places: Session -> position.
        price: What one share held from the start is worth without dividends.
        total: With dividends, each put back into the instrument at the close of its ex session.
    """

    days: npt.NDArray[np.datetime64]
    places: Mapping[date, int]
    price: npt.NDArray[np.float64]
    total: npt.NDArray[np.float64]

    def on(self, basis: str) -> npt.NDArray[np.float64]:
        return self.total if basis == "total" else self.price


class _Lines:
    """Make the line of an instrument once, and paths from it."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._made: dict[str, _Line] = {}
        self._paired: dict[tuple[str, str], npt.NDArray[np.float64]] = {}

    def paths_of(
        self, ticker: str, benchmark: str | None, sessions: Sequence[date]
    ) -> npt.NDArray[np.float64]:
        """Return events x (path, one session's excess) x offsets; NaN where a close is missing."""
        own = self._line(ticker)
        held = self._benchmark_of(ticker, benchmark, sessions[0])
        blank = np.full((len(sessions), 2, len(OFFSETS)), np.nan)
        places = [own.places.get(session, -1) for session in sessions]
        if held is None:
            return blank
        basis = market_of(self._snapshot, held).identity.basis
        mine, other = own.on(basis), self._on_days_of(own, ticker, held, basis)
        if not len(mine):
            return blank
        place = np.array(places)
        at = place[:, None] + np.array((FIRST_OFFSET - 1, *OFFSETS))
        inside = (at >= 0) & (at < len(mine)) & (place >= 0)[:, None]
        took = np.clip(at, 0, len(mine) - 1)
        window, bench = np.where(inside, mine[took], np.nan), np.where(inside, other[took], np.nan)
        here = np.clip(place, 0, None)
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

    def _on_days_of(
        self, own: _Line, ticker: str, held: str, basis: str
    ) -> npt.NDArray[np.float64]:
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
    window: npt.NDArray[np.float64],
    bench: npt.NDArray[np.float64],
    own: npt.NDArray[np.float64],
    other: npt.NDArray[np.float64],
) -> npt.NDArray[np.float64]:
    """Return the path through 0 at the decision's close."""
    after = window / own - bench / other
    before = other / bench - own / window
    return np.where(np.array(OFFSETS) < 0, before, after)


def _line_of(market: Market, snapshot: Snapshot) -> _Line:
    days = np.array(market.calendar.sessions(snapshot.start, snapshot.end), dtype="datetime64[D]")
    places = {day: at for at, day in enumerate(days.tolist())}
    price = np.full(len(days), np.nan)
    bars = market.bars
    for day, close in zip(bars.sessions.tolist(), bars.close.tolist(), strict=True):
        if day in places and math.isfinite(close) and close > 0.0:
            price[places[day]] = close
    price, paid = _carried(market, price, days)
    with np.errstate(invalid="ignore", divide="ignore"):
        # A dividend of a session without a close is put back at the next one's.
        growth = np.cumprod(1.0 + _onto_closes(paid / price, paid, price))
    return _Line(days=days, places=places, price=price, total=price * growth)


def _carried(
    market: Market, price: npt.NDArray[np.float64], days: npt.NDArray[np.datetime64]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
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
    ratio: npt.NDArray[np.float64],
    paid: npt.NDArray[np.float64],
    price: npt.NDArray[np.float64],
) -> npt.NDArray[np.float64]:
    found = np.where(np.isfinite(ratio), ratio, 0.0)
    waiting = 0.0
    for at in np.flatnonzero((paid > 0.0) & ~np.isfinite(price)).tolist():
        waiting = paid[at]
        later = np.flatnonzero(np.isfinite(price[at:]))
        if len(later):
            found[at + int(later[0])] += waiting / price[at + int(later[0])]
    return found
