"""What the books made in each walk-forward fold.

A fold's book is no book of its own: it is the part of the one book that lies in the fold, with what
was held when the fold began. The last fold goes on to the book's end, so that the folds' returns
multiply to the book's.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date
from typing import Final

from backtester.score.books import ScoredBook, Stage, figure_row
from backtester.score.records import RATINGS_BOOK, MetricRow
from backtester.statistics.folds import Fold, walk_forward_folds
from backtester.statistics.metrics import performance, periods_per_year

_BOOKS: Final = (RATINGS_BOOK, "buy_and_hold", "equal_weight")
_FIGURES: Final = ("total_return", "sharpe", "max_drawdown")


def fold_figures(books: Sequence[ScoredBook], stage: Stage) -> Iterator[MetricRow]:
    """Yield return, Sharpe ratio and deepest fall of each book in each fold.

    Args:
        books: What was played; baselines other than the two simple ones are left out.
        stage: Where; its definition says whether there are folds.
    """
    definition = stage.definition
    if definition.fold is None:
        return
    folds = walk_forward_folds(definition.first, definition.last, length=definition.fold)
    # One basis for all folds and the whole: else a ratio would differ by the calendar alone.
    yearly = periods_per_year(stage.sessions, stage.start, stage.end)
    for book in books:
        if book.name not in _BOOKS:
            continue
        for fold in folds:
            last = fold.index == len(folds) - 1
            kept = _steps(book.dates, fold, last=last)
            found = performance(
                book.curve[kept],
                book.dates[kept],
                periods_per_year=yearly,
                rf_annual=definition.rf_annual,
            )
            for name in _FIGURES:
                row = figure_row(book, found[name])
                yield replace(row, scope="fold", member=fold.label)


def _steps(dates: Sequence[date], fold: Fold, *, last: bool) -> slice:
    """Return where in a curve the sessions of a fold are, with the step before the first of them.

    The first step of a curve is no session's return: it is what the first return starts from.
    """
    begin = max(1, bisect_left(dates, fold.start))
    end = len(dates) if last else bisect_right(dates, fold.end)
    return slice(begin - 1, end) if begin < end else slice(0)
