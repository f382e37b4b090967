"""Score stored decisions: returns, books, baselines, figures. A function of decisions and rules.

No model is asked. What a score needs is the cells of a run, a definition and a snapshot; the same
three give the same score.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Final

from backtester.baselines import PLACEBO
from backtester.calendar import Calendar
from backtester.errors import BacktesterError, UsageError
from backtester.records import CellKey, CellRecord, ReturnRecord
from backtester.score.books import (
    ScoredBook,
    against_others,
    baseline_books,
    book_figures,
    charged_with,
    lanes_of,
    ratings_books,
    stage_of,
)
from backtester.score.definition import ScoreDefinition
from backtester.score.event_study import Event, event_study
from backtester.score.figures import DECISIONS, Earned, decision_figures
from backtester.score.ledger import KnownTrials, ScoredTrial
from backtester.score.placebo import placebo_figures
from backtester.score.records import RATINGS_BOOK, EventRow, HorizonRow, MetricRow, Row
from backtester.settlement.broker import settle
from backtester.settlement.pricing import market_of
from backtester.snapshots.snapshot import Snapshot
from backtester.statistics.folds import Fold, walk_forward_folds
from backtester.statistics.metrics import Measure, moments
from backtester.statistics.overfit import (
    deflated_sharpe,
    min_track_record_length,
    probabilistic_sharpe,
)

SCORED: Final = ("done", "unread")
"""States of a cell that has a return; the others carry their position in the book."""


@dataclass(frozen=True, kw_only=True)
class Score:
    """Hold everything that a score is.

    Attributes:
        definition: What it is a function of.
        results_root: Of the decisions that were scored.
        rows: Table -> rows, see `score_records.TABLES_OF_A_SCORE`.
        no_book: Why there is no book, or None where there is one.
        trial: Its line for the ledger of what was tried.
        known: Trials of its family known when it was made, or None before they are counted.
    """

    definition: ScoreDefinition
    results_root: str
    rows: Mapping[str, Sequence[Row]]
    no_book: str | None
    trial: ScoredTrial
    known: KnownTrials | None = None


def score_decisions(
    cells: Sequence[CellRecord],
    definition: ScoreDefinition,
    *,
    snapshot: Snapshot,
    results_root: str,
    own_returns: Mapping[CellKey, ReturnRecord] | None = None,
    book_required: bool = False,
) -> Score:
    """Score the decisions of a run.

    Args:
        cells: All cells of the run; warm-up and what lies outside the window is left out.
        definition: What to do.
        snapshot: What to settle on.
        results_root: Of the run.
        own_returns: Returns at the definition's own horizon that are known already.
        book_required: Refuse where no book can be kept; else the score says why it has none.

    Raises:
        UsageError: A window without decisions, or no book where one is required.
        DataError: An instrument that the snapshot does not hold.
    """
    inside = _in_window(cells, definition)
    decided = [cell for cell in inside if cell.status in SCORED]
    returns = _settled(decided, definition, snapshot, own_returns or {})
    horizon_rows, figures = _by_horizon(decided, returns, definition, snapshot)
    books = _books(inside, definition, snapshot, required=book_required)
    rows: dict[str, Sequence[Row]] = {
        "returns": returns[definition.horizon],
        "horizon_returns": horizon_rows,
        "metrics": (*figures, *books.figures),
        "event_study": _events(decided, definition, snapshot),
        "orders": [row for book in books.kept for row in book.order_rows()],
        "positions": [row for book in books.own for row in book.position_rows()],
        "equity": [row for book in books.kept for row in book.equity_rows()],
    }
    return Score(
        definition=definition,
        results_root=results_root,
        rows=rows,
        no_book=books.problem,
        trial=_trial_of(definition, books),
    )


def with_known_trials(score: Score, known: KnownTrials) -> Score:
    """Return a score with what the number of trials makes of its Sharpe ratio, frozen into it."""
    figures = list(_deflated(score, known))
    metrics = [*score.rows["metrics"], *figures]
    return replace(score, rows={**score.rows, "metrics": metrics}, known=known)


def _in_window(cells: Sequence[CellRecord], definition: ScoreDefinition) -> list[CellRecord]:
    inside = [
        cell
        for cell in cells
        if cell.scored and definition.first <= cell.key.session <= definition.last
    ]
    return sorted(inside, key=lambda c: (c.key.session, c.key.ticker, c.key.trial))


def _settled(
    decided: Sequence[CellRecord],
    definition: ScoreDefinition,
    snapshot: Snapshot,
    known: Mapping[CellKey, ReturnRecord],
) -> dict[int, list[ReturnRecord]]:
    """Return what every decision earned, by horizon."""
    found = {}
    tickers = sorted({cell.key.ticker for cell in decided})
    for horizon in definition.horizons:
        rules = {ticker: definition.rule_for(horizon, ticker) for ticker in tickers}
        own = known if horizon == definition.horizon else {}
        found[horizon] = [
            own.get(cell.key)
            or settle(cell.key, cell.rating, snapshot=snapshot, rule=rules[cell.key.ticker])
            for cell in decided
        ]
    return found


# ----------------------------------------------------------------------------- the decisions


def _by_horizon(
    decided: Sequence[CellRecord],
    returns: Mapping[int, Sequence[ReturnRecord]],
    definition: ScoreDefinition,
    snapshot: Snapshot,
) -> tuple[list[HorizonRow], list[MetricRow]]:
    clock = _Clock.of(decided, snapshot)
    folds: tuple[Fold, ...] = ()
    if definition.fold is not None:
        folds = walk_forward_folds(definition.first, definition.last, length=definition.fold)
    rows: list[HorizonRow] = []
    figures: list[MetricRow] = []
    for horizon in definition.horizons:
        earned = [
            _earned(cell, row, clock) for cell, row in zip(decided, returns[horizon], strict=True)
        ]
        rows += [_horizon_row(row, one) for row, one in zip(returns[horizon], earned, strict=True)]
        figures += decision_figures(
            earned,
            horizon=horizon,
            span=max(horizon, clock.span(horizon)),
            folds=folds,
            seed=definition.seed,
            tested=horizon == definition.horizon,
        )
    return rows, figures


@dataclass(frozen=True, kw_only=True)
class _Clock:
    """Number the sessions of all calendars of a universe as one line.

    Attributes:
        places: Session -> position.
        calendars: Calendar of each ticker.
    """

    places: Mapping[date, int]
    calendars: Mapping[str, Calendar]

    @classmethod
    def of(cls, decided: Sequence[CellRecord], snapshot: Snapshot) -> _Clock:
        calendars = {
            ticker: market_of(snapshot, ticker).calendar
            for ticker in sorted({cell.key.ticker for cell in decided})
        }
        days: set[date] = set()
        for calendar in {calendar.code: calendar for calendar in calendars.values()}.values():
            days |= set(calendar.sessions(calendar.first_day, calendar.last_day))
        places = {day: at for at, day in enumerate(sorted(days))}
        return cls(places=places, calendars=calendars)

    def span(self, horizon: int) -> int:
        """Return the most positions of the line that a window of so many sessions takes."""
        codes = {calendar.code: calendar for calendar in self.calendars.values()}
        if len(codes) < 2:
            return horizon
        most = horizon
        for calendar in codes.values():
            own = [self.places[day] for day in calendar.sessions(*_known(calendar))]
            steps = [late - early for early, late in zip(own, own[horizon:], strict=False)]
            most = max(most, *steps)
        return most


def _known(calendar: Calendar) -> tuple[date, date]:
    return calendar.first_day, calendar.last_day


def _earned(cell: CellRecord, row: ReturnRecord, clock: _Clock) -> Earned:
    return Earned(
        ticker=cell.key.ticker,
        session=cell.key.session,
        trial=cell.key.trial,
        rating=cell.rating,
        position=clock.places[cell.key.session],
        raw_total=row.raw_total,
        alpha=row.alpha,
        geometric=_geometric(row),
    )


def _geometric(row: ReturnRecord) -> float | None:
    if row.alpha is None or row.benchmark_return is None or row.benchmark_return <= -1.0:
        return None
    own = row.raw_total if row.benchmark_basis == "total" else row.raw_price
    return None if own is None else (1.0 + own) / (1.0 + row.benchmark_return) - 1.0


def _horizon_row(row: ReturnRecord, earned: Earned) -> HorizonRow:
    return HorizonRow(
        ticker=row.key.ticker,
        session=row.key.session,
        trial=row.key.trial,
        horizon=row.horizon,
        status=row.status,
        exit_session=row.exit_session,
        raw_total=row.raw_total,
        benchmark_return=row.benchmark_return,
        alpha=row.alpha,
        geometric_alpha=earned.geometric,
        directional_alpha=row.directional_alpha,
        reason=row.reason or row.alpha_reason,
    )


def _events(
    decided: Sequence[CellRecord], definition: ScoreDefinition, snapshot: Snapshot
) -> tuple[EventRow, ...]:
    events = [
        Event(
            ticker=cell.key.ticker,
            session=cell.key.session,
            rating=cell.rating,
            benchmark=definition.benchmark_of(cell.key.ticker),
        )
        for cell in decided
    ]
    return event_study(events, snapshot)


# --------------------------------------------------------------------------------- the books


@dataclass(frozen=True, kw_only=True)
class _Books:
    own: tuple[ScoredBook, ...] = ()
    baselines: tuple[ScoredBook, ...] = ()
    figures: tuple[MetricRow, ...] = ()
    problem: str | None = None

    @property
    def kept(self) -> tuple[ScoredBook, ...]:
        return (*self.own, *self.baselines)


def _books(
    inside: Sequence[CellRecord],
    definition: ScoreDefinition,
    snapshot: Snapshot,
    *,
    required: bool,
) -> _Books:
    try:
        stage = stage_of(definition, inside, snapshot)
        if stage is None:
            raise UsageError(
                f"run {definition.run_id} has no scored decision from {definition.first} to "
                f"{definition.last}: name another window"
            )
        own = ratings_books(stage, inside)
    except BacktesterError as error:
        if required:
            raise
        return _without_books(" ".join(str(error).split()))
    if definition.charge_model_cost:
        own = tuple(charged_with(book, _bill(inside, book), definition) for book in own)
    others = baseline_books(stage)
    figures = [row for book in (*own, *others) for row in book_figures(book, stage)]
    for book in own:
        figures += against_others(book, others, stage)
    figures += placebo_figures(own, lanes_of(inside), stage)
    return _Books(own=own, baselines=others, figures=tuple(figures))


def _without_books(problem: str) -> _Books:
    blank = MetricRow(subject=RATINGS_BOOK, metric="total_return", value=None, unit="fraction", n=0)
    figures = (replace(blank, reason=problem), replace(blank, subject=PLACEBO, reason=problem))
    return _Books(figures=figures, problem=problem)


def _bill(inside: Sequence[CellRecord], book: ScoredBook) -> dict[date, float]:
    """Return what the decisions of a lane cost by session, replies from the cache included.

    Raises:
        UsageError: A call has no price.
    """
    bill: dict[date, float] = {}
    for cell in inside:
        if cell.key.trial != book.trial:
            continue
        for call in cell.calls:
            cost = call.saved_usd if call.hit else call.cost_usd
            if cost is None:
                raise UsageError(
                    f"the price of {call.provider}/{call.model} is unknown, so its bill cannot be "
                    "charged: name it in a models file before the run"
                )
            bill[cell.key.session] = bill.get(cell.key.session, 0.0) + cost
    return bill


# ------------------------------------------------------------------------ how often was looked


def _trial_of(definition: ScoreDefinition, books: _Books) -> ScoredTrial:
    found = moments(books.own[0].returns) if books.own else None
    return ScoredTrial(
        family=definition.family,
        trial=definition.trial,
        run_id=definition.run_id,
        score_id=definition.score_id,
        universe=definition.universe,
        first=definition.first,
        last=definition.last,
        definition=definition.canonical,
        sharpe=_sharpe(found),
        n=found.n if found else 0,
    )


def _sharpe(found: object) -> float | None:
    mean, deviation = getattr(found, "mean", None), getattr(found, "deviation", None)
    return mean / deviation if mean is not None and deviation else None


def _deflated(score: Score, known: KnownTrials) -> Iterator[MetricRow]:
    yield MetricRow(
        subject=DECISIONS,
        metric="known_trials",
        value=float(known.count),
        unit="count",
        n=known.count,
        method="distinct trials of this universe and window that this workspace knows: at least",
    )
    for trial, returns in _lanes(score).items():
        found = moments(returns)
        sharpe = _sharpe(found)
        names = ("probabilistic_sharpe", "deflated_sharpe", "min_track_record_length")
        if sharpe is None or found.skew is None or found.kurtosis is None:
            for name in names:
                yield _ratio(trial, name, None, reason="no_sharpe", n=found.n)
            continue
        shape = {"skew": found.skew, "kurtosis": found.kurtosis}
        yield _ratio(trial, names[0], probabilistic_sharpe(sharpe, n=found.n, **shape))
        yield _deflation(trial, sharpe, found.n, shape, known)
        yield _ratio(trial, names[2], min_track_record_length(sharpe, **shape))


def _lanes(score: Score) -> dict[int, list[float]]:
    lanes: dict[int, list[float]] = {}
    for row in score.rows["equity"]:
        if getattr(row, "book", None) == RATINGS_BOOK:
            ret = getattr(row, "ret", None)
            lane = lanes.setdefault(getattr(row, "trial", 0), [])
            if ret is not None:
                lane.append(ret)
    return lanes


def _deflation(
    trial: int, sharpe: float, n: int, shape: Mapping[str, float], known: KnownTrials
) -> MetricRow:
    if known.count > 1 and known.variance is None:
        return _ratio(trial, "deflated_sharpe", None, reason="no_variance_of_trials", n=n)
    found = deflated_sharpe(
        sharpe,
        n=n,
        skew=shape["skew"],
        kurtosis=shape["kurtosis"],
        trials=known.count,
        variance_of_trials=known.variance or 0.0,
    )
    return _ratio(trial, "deflated_sharpe", found, method=f"at least {known.count} trials")


def _ratio(
    trial: int,
    name: str,
    found: Measure | None,
    *,
    reason: str | None = None,
    n: int = 0,
    method: str | None = None,
) -> MetricRow:
    return MetricRow(
        subject=RATINGS_BOOK,
        trial=trial,
        metric=name,
        value=found.value if found else None,
        unit=found.unit if found else "fraction",
        n=found.n if found else n,
        method=method,
        reason=found.reason if found else reason,
    )
