"""Read back what the books of a score made in each of its folds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from backtester.store.summary import rows_of


@dataclass(frozen=True, kw_only=True)
class FoldBook:
    """Hold what one book of the ratings made in one fold; see view ``book_by_fold_all``.

    Attributes:
        fold: First day/last day.
        trial: Lane.
        sessions: Session returns.
        total_return: A fraction, or None; so are `buy_and_hold` and `max_drawdown`.
        buy_and_hold: Return of that book in the fold.
        sharpe: Annualised on the basis of the whole window, or None.
        sharpe_low: Lower end of its interval, or None; so `sharpe_high`.
        sharpe_reason: Why there is no ratio, or no interval.
        max_drawdown: Deepest fall within the fold.
    """

    fold: str
    trial: int
    sessions: int
    total_return: float | None
    buy_and_hold: float | None
    sharpe: float | None
    sharpe_low: float | None
    sharpe_high: float | None
    sharpe_reason: str | None
    max_drawdown: float | None


def fold_books(database: Path, run_id: str, score_id: str) -> tuple[FoldBook, ...]:
    """Return the books of a score's ratings by fold, lane by lane.

    Raises:
        DataError: There is no database, or it is damaged.
    """
    return tuple(FoldBook(**row) for row in rows_of(database, _FOLDS, [run_id, score_id]))


_FOLDS: Final = """
WITH held AS (
    SELECT run_id, score_id, fold, total_return AS buy_and_hold
    FROM book_by_fold_all WHERE book = 'buy_and_hold'
)
SELECT fold, trial, sessions, total_return, buy_and_hold, sharpe, sharpe_low, sharpe_high,
    sharpe_reason, max_drawdown
FROM book_by_fold_all LEFT JOIN held USING (run_id, score_id, fold)
WHERE run_id = ? AND score_id = ? AND book = 'ratings'
ORDER BY trial, fold"""
