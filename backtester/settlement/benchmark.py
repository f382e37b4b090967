"""Which benchmark an instrument is held against, and what the two have in common.

The benchmark is held over the instrument's own dates: from its bar of the entry date to its bar of
the exit date, paired by date and never by position. A date that is no session of its own calendar
takes the close of its last session before; a session without a bar is a gap, and alpha is None
with a reason. No market is given another market's index.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from types import MappingProxyType
from typing import Literal
from weakref import WeakKeyDictionary

from backtester.errors import DataError, UsageError
from backtester.markets import ALWAYS_OPEN, NO_SUFFIX, calendar_code
from backtester.settlement.pricing import Earned, Flaw, Market, Point, Quote, Trade, market_of
from backtester.snapshots.snapshot import Snapshot

# Suffix of a market -> its index. A market that is not here has no default benchmark.
BENCHMARKS: Mapping[str, str] = MappingProxyType(
    {
        "T": "^N225",
        "HK": "^HSI",
        "SS": "000001.SS",
        "SH": "000001.SS",
        "SZ": "399001.SZ",
        "L": "^FTSE",
        "TO": "^GSPTSE",
        "AX": "^AXJO",
        "NS": "^NSEI",
        "BO": "^BSESN",
        "DE": "^GDAXI",
        "SA": "^BVSP",
    }
)
NO_BENCHMARK = "none"
"""Asked for as a benchmark: hold against nothing, alpha is NULL."""
# Markets without a suffix, by calendar.
_UNMARKED: Mapping[str, str] = MappingProxyType({NO_SUFFIX: "SPY", ALWAYS_OPEN: "BTC-USD"})


@dataclass(frozen=True, kw_only=True)
class BenchmarkChoice:
    """Name the benchmark of an instrument and who chose it.

    Attributes:
        symbol: Benchmark symbol, or None where none is known.
        source: ``explicit``, ``suffix`` (default by market) or ``none``.
        reason: Why there is none, else None.
    """

    symbol: str | None
    source: Literal["explicit", "suffix", "none"]
    reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Hold a trade against its benchmark, as far as that could be done.

    Attributes:
        basis: ``price`` or ``total``: what the benchmark holds, or None without a benchmark.
        currency: Of the benchmark.
        entry: Its quote for the entry date; so `exit`.
        exit: Its quote for the exit date.
        benchmark_return: A fraction.
        alpha: The trade's return on the benchmark's basis less the benchmark's.
        alpha_cc: The same with both legs from the close of the decision session.
        reason: Why alpha is None.
        instants: When each bar used is known. A bar that is not there counts with the close of
            its session, for only then is it known to be missing.
        index_open: Its entry is the open of an index, at which nobody could trade.
    """

    basis: str | None = None
    currency: str | None = None
    entry: Quote | None = None
    exit: Quote | None = None
    benchmark_return: float | None = None
    alpha: float | None = None
    alpha_cc: float | None = None
    reason: str | None = None
    instants: tuple[datetime, ...] = ()
    index_open: bool = False


def benchmark_for(symbol: str, explicit: str | None) -> BenchmarkChoice:
    """Choose the benchmark of an instrument: the explicit one, else its market's index.

    Args:
        symbol: Instrument, with its exchange suffix.
        explicit: Benchmark asked for, which always wins (the word ``none``: no benchmark), or
            None for the default.
    """
    if explicit is not None and explicit.strip().lower() == NO_BENCHMARK:
        return BenchmarkChoice(symbol=None, source="none", reason="no benchmark was wanted")
    if explicit is not None:
        return BenchmarkChoice(symbol=explicit.strip(), source="explicit")
    found = _default_for(symbol.strip().upper())
    if found is not None:
        return BenchmarkChoice(symbol=found, source="suffix")
    return BenchmarkChoice(
        symbol=None,
        source="none",
        reason=f"no default benchmark is known for the market of {symbol}: name one",
    )


def _default_for(word: str) -> str | None:
    if word.startswith("^"):
        return None
    if "." in word:
        return BENCHMARKS.get(word.rpartition(".")[2])
    try:
        return _UNMARKED.get(calendar_code(word))
    except UsageError:
        return None


def compare(
    choice: BenchmarkChoice,
    market: Market,
    trade: Trade | None,
    *,
    session: date,
    snapshot: Snapshot,
) -> Comparison:
    """Hold a trade against the chosen benchmark.

    Args:
        choice: Benchmark.
        market: The traded instrument.
        trade: What was earned, or None where there is no return.
        session: Decision session: the start of the close-to-close legs.
        snapshot: Where the benchmark's bars come from.
    """
    if choice.symbol is None:
        return Comparison(reason=choice.reason)
    instrument = _instrument_of(choice.symbol, snapshot, session)
    if instrument is None:
        return Comparison(
            reason=f"benchmark {choice.symbol} is not in snapshot {snapshot.name} on {session}"
        )
    bench = market_of(snapshot, instrument)
    basis, currency = bench.identity.basis, bench.currency
    if trade is None:
        return Comparison(basis=basis, currency=currency, reason="there is no return to compare")
    if instrument == market.instrument:
        return _with_itself(trade, bench)
    return _with_other(trade, _Legs.of(snapshot, bench), market, session)


def _with_itself(trade: Trade, bench: Market) -> Comparison:
    return Comparison(
        basis=bench.identity.basis,
        currency=bench.currency,
        entry=trade.entry,
        exit=trade.exit,
        benchmark_return=trade.earned.on(bench.identity.basis),
        alpha=0.0,
        alpha_cc=0.0,
    )


def _with_other(trade: Trade, legs: _Legs, market: Market, session: date) -> Comparison:
    bench = legs.bench
    basis, currency = bench.identity.basis, bench.currency
    leg = legs.between(trade.entry.session, trade.exit.session, trade.entry.point)
    if leg.earned is None or leg.entry is None:
        return Comparison(basis=basis, currency=currency, reason=leg.reason, instants=leg.instants)
    own_close = market.quote(session, "close")
    from_close = legs.between(session, trade.exit.session, "close")
    own_instants = () if own_close is None else (own_close.known_at,)
    return Comparison(
        basis=basis,
        currency=currency,
        entry=leg.entry,
        exit=leg.exit,
        benchmark_return=leg.earned.on(basis),
        alpha=trade.earned.on(basis) - leg.earned.on(basis),
        alpha_cc=_alpha_cc(trade, market, own_close, from_close, basis),
        instants=(*leg.instants, *from_close.instants, *own_instants),
        index_open=bench.is_index and leg.entry.point == "open",
    )


def _alpha_cc(
    trade: Trade, market: Market, entry: Quote | None, leg: _Leg, basis: str
) -> float | None:
    if entry is None or leg.earned is None:
        return None
    own = market.earned(entry, trade.exit, haircut=trade.haircut)
    return None if isinstance(own, Flaw) else own.on(basis) - leg.earned.on(basis)


def _instrument_of(symbol: str, snapshot: Snapshot, day: date) -> str | None:
    """Find an instrument by its id, which never changes, else by its symbol on a date."""
    return symbol if snapshot.holds(symbol) else snapshot.resolve(symbol, day)


@dataclass(frozen=True, kw_only=True)
class _Leg:
    """Hold the benchmark's return between two dates, or why there is none."""

    entry: Quote | None = None
    exit: Quote | None = None
    earned: Earned | None = None
    reason: str | None = None
    instants: tuple[datetime, ...] = ()


@dataclass(frozen=True, kw_only=True)
class _Spot:
    """Hold the benchmark's quote for a date, or why there is none."""

    quote: Quote | None = None
    instant: datetime | None = None
    reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class _Legs:
    """Hold what one benchmark earned between dates; instruments of one session share them."""

    bench: Market
    found: dict[tuple[date, date, Point], _Leg]

    @classmethod
    def of(cls, snapshot: Snapshot, bench: Market) -> _Legs:
        known = _held.setdefault(snapshot, {})
        if bench.instrument not in known:
            known[bench.instrument] = cls(bench=bench, found={})
        return known[bench.instrument]

    def between(self, entry_on: date, leave_on: date, point: Point) -> _Leg:
        asked = (entry_on, leave_on, point)
        if asked not in self.found:
            self.found[asked] = _leg(self.bench, entry_on, leave_on, point)
        return self.found[asked]


_held: WeakKeyDictionary[Snapshot, dict[str, _Legs]] = WeakKeyDictionary()


def _leg(bench: Market, entry_on: date, leave_on: date, point: Point) -> _Leg:
    start, stop = _spot(bench, entry_on, point), _spot(bench, leave_on, "close")
    instants = tuple(spot.instant for spot in (start, stop) if spot.instant is not None)
    if start.quote is None or stop.quote is None:
        return _Leg(reason=start.reason or stop.reason, instants=instants)
    conflict = bench.conflict(start.quote.session, stop.quote.session)
    if conflict is not None:
        reason = f"bars of benchmark {bench.instrument} contradict each other on {conflict}"
        return _Leg(reason=reason, instants=instants)
    earned = bench.earned(start.quote, stop.quote)
    if isinstance(earned, Flaw):
        return _Leg(reason=f"benchmark {earned.reason}", instants=instants)
    return _Leg(entry=start.quote, exit=stop.quote, earned=earned, instants=instants)


def _spot(bench: Market, day: date, point: Point) -> _Spot:
    try:
        session = bench.calendar.last_on_or_before(day)
    except DataError as error:
        return _Spot(reason=f"benchmark {bench.instrument}: {error}")
    quote = bench.quote(session, point if session == day else "close")
    if quote is not None:
        return _Spot(quote=quote, instant=quote.known_at)
    return _Spot(
        instant=bench.calendar.close_utc(session),
        reason=f"benchmark {bench.instrument} has no usable bar for session {session}",
    )
