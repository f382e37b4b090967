"""The books of a score: of the ratings, of baselines with the same fills and costs, of chance."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from itertools import pairwise
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from backtester.baselines import (
    BASELINES,
    PLACEBO,
    PRESETS,
    BaselineWeights,
    Histories,
    baseline_weights,
)
from backtester.book.columns import BookColumns
from backtester.book.simulation import Bench
from backtester.book.walk import fills_first
from backtester.calendar import Calendar
from backtester.columnar import Rows
from backtester.errors import BacktesterError, DataError
from backtester.records import RATINGS
from backtester.score.definition import ScoreDefinition
from backtester.score.figures import LEVEL, interval_row
from backtester.score.records import RATINGS_BOOK, EquityRow, MetricRow, OrderRow, PositionRow
from backtester.settlement.benchmark import benchmark_for
from backtester.settlement.decided import Decided
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
from backtester.statistics.precision import METHOD, Precision

Floats = npt.NDArray[np.float64]
Days = npt.NDArray[np.datetime64]
T = TypeVar("T")

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
        grids: Decision sessions by ticker, of all lanes; as an array in `days`.
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
    days: Mapping[str, Days]
    bench: Bench
    levels: dict[tuple[date, ...], list[float | None] | None] = field(default_factory=dict)

    @property
    def fills_first(self) -> bool:
        """Whether orders may fill in the first session already."""
        return fills_first(self.definition.book_rule())


def stage_of(definition: ScoreDefinition, cells: Decided, snapshot: Snapshot) -> Stage | None:
    """Return where the books of a score are played, or None without a decision."""
    if not len(cells):
        return None
    decided = {ticker: np.unique(cells.day[rows]) for ticker, rows in cells.by_ticker()}
    grids = {ticker: tuple(days.tolist()) for ticker, days in decided.items()}
    calendars = {ticker: market_of(snapshot, ticker).calendar for ticker in grids}
    ends = [_exit(calendars[t], grid[-1], definition.horizon) for t, grid in grids.items()]
    start = min(grid[0] for grid in grids.values())
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
        days=decided,
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
    result: BookColumns
    charged: tuple[float, ...] = ()

    @cached_property
    def worth(self) -> tuple[float, ...]:
        """Value at each equity row, less the models' bill."""
        values = self.result.equity.column("equity")
        if not self.charged:
            return tuple(values)
        return tuple(value - cost for value, cost in zip(values, self.charged, strict=True))

    @cached_property
    def curve(self) -> tuple[float, ...]:
        """Value by session, with the start cash in front where the first session may trade."""
        front = [self.result.start_cash] if self.result.fills_first else []
        return (*front, *self.worth)

    @cached_property
    def returns(self) -> tuple[float, ...]:
        """Returns between the steps of the curve; none after the book is worth nothing."""
        curve = self.curve
        worth = next((at for at, value in enumerate(curve) if value <= 0.0), len(curve))
        kept = curve[: worth + 1]
        return tuple(after / before - 1.0 for before, after in pairwise(kept))

    @cached_property
    def dates(self) -> tuple[date, ...]:
        """Date of each step of the curve; the start cash in front is of the first session too."""
        days = self.result.equity.column("session")
        return (*(days[:1] if self.result.fills_first else ()), *days)

    def equity_rows(self) -> Rows[EquityRow]:
        """Return the rows of table ``equity``."""
        found, table = self.result.equity, self.result.equity.table
        known: Any = table.column("ret")
        cost = pa.nulls(len(found), pa.float64())
        if self.charged:
            cost = pa.array(self.charged, pa.float64())
            table = self._less(table, "cash", cost)
            table = self._less(table, "equity", cost)
            known = pa.array(self._rets(known.to_pylist()), pa.float64())
        columns = {
            **dict(zip(table.column_names, table.columns, strict=True)),
            "closed_at": table.column("at"),
            "model_cost": cost,
            "ret": known,
        }
        return self._labelled(EquityRow, columns, len(found))

    def _less(self, table: pa.Table, name: str, cost: pa.Array[Any]) -> pa.Table:
        at = table.column_names.index(name)
        return table.set_column(at, name, pc.subtract(table.column(name), cost))

    def _rets(self, known: Sequence[float | None]) -> list[float | None]:
        """Return the returns of the rows that have one, after the models' bill."""
        before = self.result.start_cash if self.result.fills_first else None
        found: list[float | None] = []
        for value, ret in zip(self.worth, known, strict=True):
            there = ret is not None and before is not None and before > 0.0
            found.append(value / before - 1.0 if there and before else None)
            before = value
        return found

    def order_rows(self) -> Rows[OrderRow]:
        """Return the rows of table ``orders``."""
        table = self.result.orders.table
        columns: dict[str, Any] = dict(zip(table.column_names, table.columns, strict=True))
        columns["seq"] = pa.array(np.arange(table.num_rows, dtype=np.int64))
        return self._labelled(OrderRow, columns, table.num_rows)

    def position_rows(self) -> Rows[PositionRow]:
        """Return the rows of table ``positions``."""
        table = self.result.positions.table
        columns = dict(zip(table.column_names, table.columns, strict=True))
        return self._labelled(PositionRow, columns, table.num_rows)

    def _labelled(self, kind: type[T], columns: Mapping[str, Any], rows: int) -> Rows[T]:
        own = {
            "book": pa.repeat(pa.scalar(self.name, pa.string()), rows),
            "trial": pa.repeat(pa.scalar(self.trial, pa.int64()), rows),
        }
        return Rows.from_columns(kind, {**columns, **own})


@dataclass(frozen=True, kw_only=True)
class PlayedBooks:
    """Hold all books of a score.

    Attributes:
        own: Of the run's ratings, one for each lane.
        baselines: With the score's fills and costs.
        random: Equity of the random ones, sessions x draws.
    """

    own: tuple[ScoredBook, ...]
    baselines: tuple[ScoredBook, ...]
    random: Floats


def play_books(stage: Stage, cells: Decided, random: Mapping[str, Floats]) -> PlayedBooks:
    """Play the run's own ratings, every baseline and random ratings, in one walk.

    Args:
        stage: Where.
        cells: Scored cells of any status; one without a rating carries its position.
        random: Ticker -> weights of random books, decision sessions x draws.

    Raises:
        DataError: A book holds what meets an action that cannot be believed.
        BacktesterError: A book does not balance.
    """
    rule = stage.definition.book_rule()
    lanes = _lane_weights(stage, cells)
    baselines = _baseline_weights(stage)
    columns = [*lanes.values(), *(found.weights for found in baselines.values())]
    weights = {
        ticker: np.column_stack([*(one[ticker] for one in columns), random[ticker]])
        for ticker in stage.grids
    }
    always = [False] * len(lanes) + [found.rebalance == "always" for found in baselines.values()]
    always += [False] * next(rows.shape[1] for rows in random.values())
    played = stage.bench.play(
        stage.grids,
        weights,
        rule,
        kept=len(columns),
        with_positions=len(lanes),
        always=always,
    )
    names = [(RATINGS_BOOK, trial) for trial in lanes] + [(name, 0) for name in baselines]
    books = [
        ScoredBook(name=name, trial=trial, result=result)
        for (name, trial), result in zip(names, played.books, strict=True)
    ]
    return PlayedBooks(
        own=tuple(books[: len(lanes)]),
        baselines=tuple(books[len(lanes) :]),
        random=played.equity[:, len(columns) :],
    )


def flaw_of_own(stage: Stage, cells: Decided) -> BacktesterError | None:
    """Return why the book of the ratings alone cannot be kept, or None where it can."""
    try:
        lanes = _lane_weights(stage, cells)
        weights = {
            ticker: np.column_stack([one[ticker] for one in lanes.values()])
            for ticker in stage.grids
        }
        stage.bench.play(stage.grids, weights, stage.definition.book_rule(), kept=len(lanes))
    except BacktesterError as error:
        return error
    return None


def _lane_weights(stage: Stage, cells: Decided) -> Mapping[int, Mapping[str, Floats]]:
    """Return what the ratings of each lane want, by ticker; NaN where they leave the position."""
    policy = stage.definition.policy
    weights = [policy.weight_of(rating) for rating in (*RATINGS, None)]
    worth = np.array([math.nan if weight is None else weight for weight in weights])
    lanes: dict[int, dict[str, Floats]] = {}
    for trial in np.unique(cells.trial).tolist():
        lanes[trial] = {ticker: np.full(len(days), np.nan) for ticker, days in stage.grids.items()}
        lane = cells.at(cells.trial == trial)
        for ticker, rows in lane.by_ticker():
            places = np.searchsorted(stage.days[ticker], lane.day[rows])
            lanes[trial][ticker][places] = worth[lane.rating[rows]]
    return lanes


def _baseline_weights(stage: Stage) -> Mapping[str, BaselineWeights]:
    """Return what every baseline wants at the sessions of the decisions, by name and preset."""
    histories = Histories(stage.snapshot, stage.definition.decision_time)
    found = {}
    for name in BASELINES:
        for preset in (tuple(PRESETS[name]) or ("",)) if name != PLACEBO else ():
            label = f"{name}:{preset}" if preset else name
            found[label] = baseline_weights(name, preset, stage.grids, histories)
    return found


# ------------------------------------------------------------------------------------ figures


def book_figures(book: ScoredBook, stage: Stage) -> tuple[MetricRow, ...]:
    """Return every figure of one book."""
    found = [*measures_of(book, stage, benchmark=True).values(), *_trading(book, stage)]
    return tuple(figure_row(book, measure) for measure in found)


def figure_row(book: ScoredBook, measure: Measure) -> MetricRow:
    """Return a figure of a book as a row of ``metrics``, with what is sure of it."""
    sure = measure.precision or Precision()
    shown = sure.low is not None
    return MetricRow(
        subject=book.name,
        trial=book.trial,
        metric=measure.name,
        value=measure.value,
        unit=measure.unit,
        n=measure.n,
        low=sure.low,
        high=sure.high,
        level=LEVEL if shown else None,
        p_value=sure.p_value,
        method=METHOD if shown else None,
        reason=measure.reason or sure.reason,
    )


def measures_of(book: ScoredBook, stage: Stage, *, benchmark: bool) -> Mapping[str, Measure]:
    """Return the performance of a book by name of the figure."""
    dates = book.dates
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


def _trading(book: ScoredBook, stage: Stage) -> Iterable[Measure]:
    rows, orders = book.result.equity, book.result.orders
    days = rows.column("session")
    years = year_fraction(days[0], days[-1]) if days else None
    yield turnover(rows.column("traded"), rows.column("equity"), years=years)
    yield from exposure([gross for gross in rows.column("gross") if gross is not None]).values()
    yield Measure(
        name="model_cost",
        value=book.charged[-1] if book.charged else None,
        unit="USD",
        n=len(rows),
        reason=None if book.charged else "not_charged",
    )
    for name in ("commission", "slippage", "dividends", "interest", "borrow"):
        value = math.fsum(rows.column(name))
        yield Measure(name=name, value=value, unit=book.result.currency, n=len(rows))
    states = orders.table.column("status")
    for status in ("filled", "partial", "rejected", "pending"):
        count = float(states.filter(pc.equal(states, pa.scalar(status))).length())
        yield Measure(name=f"orders_{status}", value=count, unit="count", n=len(orders))


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

    A step in front of the first session stands where the first orders may fill: at that session's
    open, or at its close.
    """
    held = common_benchmark(stage)
    if held is None or not dates:
        return None
    market = market_of(stage.snapshot, held)
    base = None
    levels: list[float | None] = []
    for at, day in enumerate(dates):
        quote = market.quote(day, "close")
        quote = quote or market.last_close(since=stage.snapshot.start, until=day)
        if at == 0 and stage.fills_first and stage.definition.entry_rule == "open":
            quote = market.quote(day, "open") or quote
        if quote is None:
            levels.append(None)
            continue
        base = base or quote
        earned = market.earned(base, quote)
        on = getattr(earned, "on", None)
        level = 0.0 if on is None else 1.0 + on(market.identity.basis)
        # A level beyond a float is none either.
        levels.append(level if 0.0 < level < math.inf else None)
    return levels


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
