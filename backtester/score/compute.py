"""Score stored decisions: returns, books, baselines, figures. A function of decisions and rules.

No model is asked. What a score needs is the cells of a run, a definition and a snapshot; the same
three give the same score.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from backtester.baselines import PLACEBO
from backtester.columnar import joined
from backtester.errors import BacktesterError, UsageError
from backtester.records import CellKey, CellRecord, CellStatus, LessonRecord, ReturnRecord
from backtester.score.books import (
    ScoredBook,
    against_others,
    book_figures,
    flaw_of_own,
    play_books,
    stage_of,
)
from backtester.score.charges import ModelBill, bill_of, charged_with
from backtester.score.definition import ScoreDefinition
from backtester.score.earnings import Settled
from backtester.score.event_study import event_study
from backtester.score.figures import decision_figures
from backtester.score.fold_figures import fold_figures
from backtester.score.later import first_seen
from backtester.score.placebo import placebo_figures, random_weights
from backtester.score.records import (
    RATINGS_BOOK,
    EquityRow,
    EventRow,
    HorizonRow,
    MetricRow,
    OrderRow,
    PositionRow,
    Row,
)
from backtester.score.trials import KnownTrials
from backtester.settlement.decided import Decided, Standing
from backtester.snapshots.snapshot import Snapshot
from backtester.statistics.folds import Fold, walk_forward_folds

SCORED: Final[tuple[CellStatus, ...]] = ("done", "unread")
"""States of a cell that has a return; the others carry their position in the book."""


@dataclass(frozen=True, kw_only=True)
class Score:
    """Hold everything that a score is.

    Attributes:
        definition: What it is a function of.
        results_root: Of the decisions that were scored.
        rows: Table -> rows, see `records.TABLES_OF_A_SCORE`.
        no_book: Why there is no book, or None where there is one.
        known: Trials known when it was made, or None before they are counted.
    """

    definition: ScoreDefinition
    results_root: str
    rows: Mapping[str, Sequence[Row]]
    no_book: str | None
    known: KnownTrials | None = None


def score_decisions(
    cells: Sequence[Standing],
    definition: ScoreDefinition,
    *,
    snapshot: Snapshot,
    results_root: str,
    own_returns: Mapping[CellKey, ReturnRecord] | None = None,
    lessons: Mapping[CellKey, LessonRecord] | None = None,
    later: Set[str] = frozenset(),
    book_required: bool = False,
) -> Score:
    """Score the decisions of a run.

    Args:
        cells: All cells of the run; warm-up and what lies outside the window is left out.
        definition: What to do.
        snapshot: What to settle on.
        results_root: Of the run.
        own_returns: Returns at the definition's own horizon that are known already.
        lessons: Of the run: the models are paid for them too, where a score charges that.
        later: Cells (as ``str(key)``) that were decided after the close of their session.
        book_required: Refuse where no book can be kept; else the score says why it has none.

    Raises:
        UsageError: A window without decisions, or no book where one is required.
        DataError: An instrument that the snapshot does not hold.
    """
    inside = _in_window(Decided.of(cells), definition)
    decided = inside.at(inside.has_status(*SCORED))
    settled = Settled(decided, definition, snapshot, own_returns or {})
    figures = tuple(_figures(settled, definition))
    bill = (
        bill_of(_whole(cells), lessons or {}, definition) if definition.charge_model_cost else None
    )
    books = _books(inside, definition, snapshot, bill, required=book_required)
    rows: dict[str, Any] = {
        "returns": settled.returns,
        "horizon_returns": joined(
            HorizonRow, [settled.horizon_table(horizon) for horizon in definition.horizons]
        ),
        "metrics": (*figures, *books.figures),
        "event_study": _events(first_seen(decided, later, snapshot), definition, snapshot),
        "orders": joined(OrderRow, [book.order_rows() for book in books.kept]),
        "positions": joined(PositionRow, [book.position_rows() for book in books.own]),
        "equity": joined(EquityRow, [book.equity_rows() for book in books.kept]),
    }
    return Score(definition=definition, results_root=results_root, rows=rows, no_book=books.problem)


def _in_window(cells: Decided, definition: ScoreDefinition) -> Decided:
    first, last = np.datetime64(definition.first), np.datetime64(definition.last)
    inside = cells.at(cells.scored & (first <= cells.day) & (cells.day <= last))
    return inside.at(np.lexsort((inside.trial, inside.ticker, inside.day)))


def _whole(cells: Sequence[Standing]) -> list[CellRecord]:
    """Return cells with their calls, which a bill is made of."""
    found = [cell for cell in cells if isinstance(cell, CellRecord)]
    if len(found) != len(cells):
        raise AssertionError("a bill was to be charged without the calls of the cells")
    return found


# ----------------------------------------------------------------------------- the decisions


def _figures(settled: Settled, definition: ScoreDefinition) -> Iterator[MetricRow]:
    """Yield the figures of the decisions, horizon by horizon."""
    folds: tuple[Fold, ...] = ()
    if definition.fold is not None:
        folds = walk_forward_folds(definition.first, definition.last, length=definition.fold)
    for horizon in definition.horizons:
        span = horizon if settled.clock is None else settled.clock.span(horizon)
        yield from decision_figures(
            settled.earnings(horizon),
            horizon=horizon,
            span=span,
            folds=folds,
            seed=definition.seed,
            tested=horizon == definition.horizon,
        )


def _events(
    decided: Decided, definition: ScoreDefinition, snapshot: Snapshot
) -> tuple[EventRow, ...]:
    benchmarks = {ticker: definition.benchmark_of(ticker) for ticker in decided.tickers}
    return event_study(decided, benchmarks, snapshot)


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
    inside: Decided,
    definition: ScoreDefinition,
    snapshot: Snapshot,
    bill: ModelBill | None,
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
    except BacktesterError as error:
        if required:
            raise
        return _without_books(error)
    try:
        played = play_books(stage, inside, random_weights(inside, stage))
    except BacktesterError:
        flaw = flaw_of_own(stage, inside)
        if flaw is None:
            raise
        if required:
            raise flaw from None
        return _without_books(flaw)
    own, others = played.own, played.baselines
    if bill is not None:
        own = tuple(charged_with(book, bill, definition) for book in own)
    if bill is not None and bill.unknown is not None:
        figures = [row for book in others for row in book_figures(book, stage)]
        return _unpaid(bill.unknown, others, figures)
    figures = [row for book in (*own, *others) for row in book_figures(book, stage)]
    for book in own:
        figures += against_others(book, others, stage)
    figures += placebo_figures(own, played.random, stage)
    figures += fold_figures((*own, *others), stage)
    return _Books(own=own, baselines=others, figures=tuple(figures))


def _unpaid(problem: str, others: tuple[ScoredBook, ...], figures: list[MetricRow]) -> _Books:
    """Return books that say nothing of what nobody knows: what the ratings earned after a bill."""
    empty = _without_books(problem).figures
    bill = replace(empty[0], metric="model_cost", unit="USD")
    return _Books(baselines=others, figures=(*figures, *empty, bill), problem=problem)


def _without_books(flaw: BacktesterError | str) -> _Books:
    problem = " ".join(str(flaw).split())
    blank = MetricRow(subject=RATINGS_BOOK, metric="total_return", value=None, unit="fraction", n=0)
    figures = (replace(blank, reason=problem), replace(blank, subject=PLACEBO, reason=problem))
    return _Books(figures=figures, problem=problem)
