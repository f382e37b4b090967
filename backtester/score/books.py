"""The books of a score: of the ratings, of baselines with the same fills and costs, of chance."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import date
from itertools import pairwise
from typing import Any, Final

from backtester.baselines import BASELINES, PLACEBO, PRESETS, Histories, baseline
from backtester.book.records import BookRule, EquityRecord, OrderRecord, PositionRecord
from backtester.book.simulation import Bench, BookResult, Signal
from backtester.book.walk import fills_first
from backtester.calendar import Calendar
from backtester.errors import DataError, UsageError
from backtester.records import CellRecord
from backtester.score.definition import ScoreDefinition
from backtester.score.figures import LEVEL, interval_row
from backtester.score.records import RATINGS_BOOK, EquityRow, MetricRow, OrderRow, PositionRow
from backtester.settlement.benchmark import benchmark_for
from backtester.settlement.pricing import market_of
from backtester.snapshots.snapshot import Snapshot
from backtester.statistics.inference import mean_interval
from backtester.statistics.metrics import (
    Measure,
    exposure,
    performance,
    periods_per_year,
    turnover,
    year_fraction,
)

_MEASURED_AGAINST: Final = ("buy_and_hold", "equal_weight")
"""Books whose session returns are taken off those of the ratings' book, with an interval."""


@dataclass(frozen=True, kw_only=True)
class Stage:
    """Hold where all books of a score are played.

    Attributes:
        definition: Of the score.
        snapshot: Where prices come from.
        tickers: Instruments of the decisions, sorted.
        start: First decision session.
        end: Last session of equity: the exit of the last decision's window, or the last session
            that the snapshot covers.
        sessions: All sessions of the instruments' calendars in the years around, ascending.
        grids: Decision sessions by ticker, of all lanes.
        bench: Prices, laid out once for all books.
        levels: Benchmark by the dates of a curve, kept for the books that share them.
    """

    definition: ScoreDefinition
    snapshot: Snapshot
    tickers: tuple[str, ...]
    start: date
    end: date
    sessions: tuple[date, ...]
    grids: Mapping[str, tuple[date, ...]]
    bench: Bench
    levels: dict[tuple[date, ...], list[float | None] | None] = field(default_factory=dict)

    @property
    def fills_first(self) -> bool:
        """Whether orders may fill in the first session already."""
        return fills_first(self.definition.book_rule())

    def play(self, name: str, trial: int, signals: Sequence[Any], rule: BookRule) -> ScoredBook:
        """Play one book."""
        result = self.bench.simulate(signals, rule)
        return ScoredBook(name=name, trial=trial, result=result)


def stage_of(
    definition: ScoreDefinition, cells: Sequence[CellRecord], snapshot: Snapshot
) -> Stage | None:
    """Return where the books of a score are played, or None without a decision."""
    if not cells:
        return None
    days: dict[str, set[date]] = {}
    for cell in cells:
        days.setdefault(cell.key.ticker, set()).add(cell.key.session)
    grids = {ticker: tuple(sorted(found)) for ticker, found in sorted(days.items())}
    calendars = {ticker: market_of(snapshot, ticker).calendar for ticker in grids}
    ends = [_exit(calendars[t], grid[-1], definition.horizon) for t, grid in grids.items()]
    start = min(cell.key.session for cell in cells)
    end = max(min(max(ends), snapshot.end), start)
    years = (date(start.year, 1, 1), date(end.year, 12, 31))
    around: set[date] = set()
    for calendar in {calendar.code: calendar for calendar in calendars.values()}.values():
        first, final = max(years[0], calendar.first_day), min(years[1], calendar.last_day)
        around |= set(calendar.sessions(first, final))
    return Stage(
        definition=definition,
        snapshot=snapshot,
        tickers=tuple(grids),
        start=start,
        end=end,
        sessions=tuple(sorted(around)),
        grids=grids,
        bench=Bench(snapshot=snapshot, tickers=tuple(grids), start=start, end=end),
    )


def _exit(calendar: Calendar, day: date, horizon: int) -> date:
    try:
        return calendar.shift(day, horizon)
    except DataError:
        return calendar.last_day


@dataclass(frozen=True, kw_only=True)
class ScoredBook:
    """Hold one book that was played.

    Attributes:
        name: ``ratings``, or the baseline with its preset.
        trial: Lane; 0 for a baseline.
        result: What became of it.
        charged: Models' bill paid up to each equity row, or nothing where none is charged.
    """

    name: str
    trial: int
    result: BookResult
    charged: tuple[float, ...] = ()

    @property
    def curve(self) -> tuple[float, ...]:
        """Value by session, with the start cash in front where the first session may trade."""
        values = [row.equity - cost for row, cost in self._rows()]
        front = [self.result.start_cash] if self.result.fills_first else []
        return (*front, *values)

    @property
    def returns(self) -> tuple[float, ...]:
        """Returns between the steps of the curve; none after the book is worth nothing."""
        curve = self.curve
        worth = next((at for at, value in enumerate(curve) if value <= 0.0), len(curve))
        kept = curve[: worth + 1]
        return tuple(after / before - 1.0 for before, after in pairwise(kept))

    def dates(self, calendar_before: date) -> tuple[date, ...]:
        """Return the date of each step of the curve.

        Args:
            calendar_before: The session before the first one.
        """
        front = [calendar_before] if self.result.fills_first else []
        return (*front, *(row.session for row in self.result.equity))

    def _rows(self) -> Iterator[tuple[EquityRecord, float]]:
        charged = self.charged or (0.0,) * len(self.result.equity)
        return zip(self.result.equity, charged, strict=True)

    def equity_rows(self) -> list[EquityRow]:
        """Return the rows of table ``equity``."""
        rows, before = [], None if not self.result.fills_first else self.result.start_cash
        for record, cost in self._rows():
            value = record.equity - cost
            ret = value / before - 1.0 if before is not None and before > 0.0 else None
            rows.append(self._equity_row(record, cost, ret if record.ret is not None else None))
            before = value
        return rows

    def _equity_row(self, record: EquityRecord, cost: float, ret: float | None) -> EquityRow:
        return EquityRow(
            book=self.name,
            trial=self.trial,
            session=record.session,
            closed_at=record.at,
            cash=record.cash - cost,
            positions_value=record.positions_value,
            equity=record.equity - cost,
            gross=record.gross,
            net=record.net,
            traded=record.traded,
            commission=record.commission,
            slippage=record.slippage,
            dividends=record.dividends,
            interest=record.interest,
            borrow=record.borrow,
            model_cost=cost,
            ret=ret,
            stale=record.stale,
        )

    def order_rows(self) -> list[OrderRow]:
        """Return the rows of table ``orders``."""
        return [
            OrderRow(book=self.name, trial=self.trial, seq=at, **_fields(record))
            for at, record in enumerate(self.result.orders)
        ]

    def position_rows(self) -> list[PositionRow]:
        """Return the rows of table ``positions``."""
        return [
            PositionRow(book=self.name, trial=self.trial, **_fields(record))
            for record in self.result.positions
        ]


def _fields(record: OrderRecord | PositionRecord) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in fields(record)}


def ratings_books(stage: Stage, cells: Sequence[CellRecord]) -> tuple[ScoredBook, ...]:
    """Play the run's own ratings, one book for each lane.

    Args:
        stage: Where.
        cells: Scored cells of any status; one without a rating carries its position.
    """
    rule = stage.definition.book_rule()
    return tuple(
        stage.play(RATINGS_BOOK, trial, signals, rule) for trial, signals in lanes_of(cells).items()
    )


def lanes_of(cells: Sequence[CellRecord]) -> dict[int, list[Signal]]:
    """Return the ratings of each lane, in the order of their cells."""
    lanes: dict[int, list[Signal]] = {}
    for cell in cells:
        key = cell.key
        signal = Signal(ticker=key.ticker, session=key.session, rating=cell.rating)
        lanes.setdefault(key.trial, []).append(signal)
    return dict(sorted(lanes.items()))


def charged_with(
    book: ScoredBook, costs: Mapping[date, float], definition: ScoreDefinition
) -> ScoredBook:
    """Return a book that has paid the models: each decision session's dollars, at its close.

    Raises:
        UsageError: The book is not in dollars.
    """
    if book.result.currency != "USD":
        raise UsageError(
            f"the models' bill is in USD and the book of {definition.run_id} in "
            f"{book.result.currency}: leave --charge-model-cost out"
        )
    paid, charged, waiting = 0.0, [], sorted(costs.items(), reverse=True)
    for row in book.result.equity:
        while waiting and waiting[-1][0] <= row.session:
            paid += waiting.pop()[1]
        charged.append(paid)
    return ScoredBook(name=book.name, trial=book.trial, result=book.result, charged=tuple(charged))


def baseline_books(stage: Stage) -> tuple[ScoredBook, ...]:
    """Play every baseline on the sessions of the decisions, with the score's fills and costs."""
    histories = Histories(stage.snapshot, stage.definition.decision_time)
    wanted = [
        (name, preset)
        for name in BASELINES
        if name != PLACEBO
        for preset in (tuple(PRESETS[name]) or ("",))
    ]
    return tuple(_baseline_book(stage, name, preset, histories) for name, preset in wanted)


def _baseline_book(stage: Stage, name: str, preset: str, histories: Histories) -> ScoredBook:
    found = baseline(
        name,
        preset,
        snapshot=stage.snapshot,
        tickers=stage.tickers,
        sessions=stage.grids,
        decision_time=stage.definition.decision_time,
        histories=histories,
    )
    rule = stage.definition.book_rule()
    if found.rebalance is not None:
        rule = replace(rule, rebalance=found.rebalance)
    return stage.play(f"{name}:{preset}" if preset else name, 0, found.signals, rule)


# ------------------------------------------------------------------------------------ figures


def book_figures(book: ScoredBook, stage: Stage) -> tuple[MetricRow, ...]:
    """Return every figure of one book."""
    found = [*measures_of(book, stage, benchmark=True).values(), *_trading(book, stage)]
    return tuple(_row(book, measure) for measure in found)


def _row(book: ScoredBook, measure: Measure) -> MetricRow:
    return MetricRow(
        subject=book.name,
        trial=book.trial,
        metric=measure.name,
        value=measure.value,
        unit=measure.unit,
        n=measure.n,
        reason=measure.reason,
    )


def measures_of(book: ScoredBook, stage: Stage, *, benchmark: bool) -> Mapping[str, Measure]:
    """Return the performance of a book by name of the figure."""
    dates = book.dates(_before(stage))
    curve = book.curve
    if benchmark and dates not in stage.levels:
        stage.levels[dates] = _benchmark_levels(stage, dates)
    levels = stage.levels[dates] if benchmark else None
    return performance(
        curve,
        dates,
        periods_per_year=periods_per_year(stage.sessions, stage.start, stage.end),
        benchmark=levels,
        rf_annual=stage.definition.rf_annual,
    )


def _before(stage: Stage) -> date:
    calendar = market_of(stage.snapshot, stage.tickers[0]).calendar
    return max(
        calendar.last_on_or_before(date.fromordinal(stage.start.toordinal() - 1)),
        calendar.first_day,
    )


def _trading(book: ScoredBook, stage: Stage) -> Iterable[Measure]:
    rows = book.result.equity
    years = year_fraction(rows[0].session, rows[-1].session) if rows else None
    yield turnover([row.traded for row in rows], [row.equity for row in rows], years=years)
    yield from exposure([row.gross for row in rows if row.gross is not None]).values()
    totals = {
        "commission": math.fsum(row.commission for row in rows),
        "slippage": math.fsum(row.slippage for row in rows),
        "dividends": math.fsum(row.dividends for row in rows),
        "interest": math.fsum(row.interest for row in rows),
        "borrow": math.fsum(row.borrow for row in rows),
        "model_cost": book.charged[-1] if book.charged else 0.0,
    }
    for name, value in totals.items():
        yield Measure(name=name, value=value, unit=book.result.currency, n=len(rows))
    states: dict[str, int] = {"filled": 0, "partial": 0, "rejected": 0, "pending": 0}
    for order in book.result.orders:
        states[order.status] += 1
    for status, count in states.items():
        yield Measure(
            name=f"orders_{status}", value=float(count), unit="count", n=len(book.result.orders)
        )


def common_benchmark(stage: Stage) -> str | None:
    """Return the instrument that every ticker is held against, or None where they differ."""
    symbols = {benchmark_for(t, stage.definition.benchmark_of(t)).symbol for t in stage.tickers}
    if len(symbols) != 1 or (symbol := next(iter(symbols))) is None:
        return None
    if stage.snapshot.holds(symbol):
        return symbol
    return stage.snapshot.resolve(symbol, stage.start)


def _benchmark_levels(stage: Stage, dates: Sequence[date]) -> list[float | None] | None:
    """Return the benchmark's value at each step of a curve, on its own basis.

    A step in front of the first session stands at that session's close: the book has not been in
    the market before.
    """
    held = common_benchmark(stage)
    if held is None or not dates:
        return None
    market = market_of(stage.snapshot, held)
    first = _front(dates, stage)
    base = None
    levels: list[float | None] = []
    for day in dates:
        quote = market.last_close(since=stage.snapshot.start, until=max(day, first))
        if quote is None:
            levels.append(None)
            continue
        base = base or quote
        earned = market.earned(base, quote)
        on = getattr(earned, "on", None)
        levels.append(None if on is None else 1.0 + on(market.identity.basis))
    return levels


def _front(dates: Sequence[date], stage: Stage) -> date:
    return max(dates[0], stage.start)


def against_others(
    own: ScoredBook, others: Sequence[ScoredBook], stage: Stage
) -> Iterator[MetricRow]:
    """Yield the mean session return of a book over that of simple ones, with its interval."""
    for other in others:
        if other.name not in _MEASURED_AGAINST:
            continue
        pairs = list(zip(own.returns, other.returns, strict=False))
        values = [mine - theirs for mine, theirs in pairs]

        def make(metric: str, value: float | None, **figures: object) -> MetricRow:
            return MetricRow(
                subject=own.name,
                trial=own.trial,
                metric=metric,
                value=value,
                **figures,  # type: ignore[arg-type]
            )

        found = mean_interval(values, list(range(len(values))), 1, level=LEVEL)
        yield interval_row(make, f"mean_session_return_over_{other.name}", found)
