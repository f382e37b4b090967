"""Make a score and keep it: count it in the ledger, freeze the count into it, write its files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Final

import numpy as np

from backtester.errors import DataError
from backtester.records import CellKey, CellRecord, ReturnRecord
from backtester.runs.folder import RunFolder
from backtester.runs.journal import Ledger
from backtester.score.compute import Score, score_decisions, with_known_trials
from backtester.score.definition import ScoreDefinition
from backtester.score.files import (
    SCORE_FORMAT,
    ScoreCard,
    read_card,
    read_score,
    score_ids,
    write_score,
)
from backtester.score.ledger import LEDGER_NAME, KnownTrials, enter, read_ledger_rows
from backtester.score.records import RATINGS_BOOK, EquityRow, MetricRow
from backtester.snapshots.snapshot import Snapshot
from backtester.statistics.overfit import pbo

FEWEST_COMMON_SESSIONS: Final = 20
_BLOCKS: Final = 10


@dataclass(frozen=True, kw_only=True)
class Decisions:
    """Hold what is scored: the stored decisions of one run.

    Attributes:
        folder: The run's folder.
        results_root: The run's root.
        cells: All its cells.
        returns: Returns of its journal, for its own score.
    """

    folder: RunFolder
    results_root: str
    cells: Sequence[CellRecord]
    returns: Mapping[CellKey, ReturnRecord]

    @classmethod
    def of(cls, folder: RunFolder, results_root: str | None, ledger: Ledger) -> Decisions:
        """Take the decisions of a finished run from its journal.

        Raises:
            DataError: The run is not finished.
        """
        if results_root is None:
            raise DataError(f"run {folder.run_id} is not finished: run it to its end first")
        cells = tuple(cell for _, cell in sorted(ledger.cells.items()))
        return cls(folder=folder, results_root=results_root, cells=cells, returns=ledger.returns)


def is_kept(folder: RunFolder, results_root: str | None, definition: ScoreDefinition) -> bool:
    """Say whether this very score of these very decisions is stored."""
    if definition.score_id not in score_ids(folder.path):
        return False
    try:
        card = read_card(folder.path, definition.score_id)
    except DataError:
        return False
    return card.results_root == results_root and card.definition == definition.document()


def make_score(
    decisions: Decisions,
    definition: ScoreDefinition,
    *,
    snapshot: Snapshot,
    own: bool = False,
    book_required: bool = False,
) -> Score:
    """Score a run's decisions, count the score, and store it; call it under the run's lock.

    Args:
        decisions: Of the run.
        definition: How to score.
        snapshot: What to settle on.
        own: It is the run's own score: returns are those of its journal.
        book_required: See `score_decisions`.

    Raises:
        UsageError: Nothing to score, or a file cannot be written.
        DataError: The snapshot lacks an instrument, or the ledger is damaged.
    """
    score = score_decisions(
        decisions.cells,
        definition,
        snapshot=snapshot,
        results_root=decisions.results_root,
        own_returns=decisions.returns if own else None,
        book_required=book_required,
    )
    ledger = decisions.folder.path.parent / LEDGER_NAME
    score = with_known_trials(score, enter(ledger, score.trial))
    score = _with_overfitting(score, ledger)
    write_score(decisions.folder.path, _card(score, snapshot), score.rows)
    return score


def _card(score: Score, snapshot: Snapshot) -> ScoreCard:
    definition = score.definition
    return ScoreCard(
        format=SCORE_FORMAT,
        score_id=definition.score_id,
        results_root=score.results_root,
        snapshot_name=snapshot.name,
        definition=definition.document(),
        family=definition.family,
        trial=definition.trial,
        known_trials=(score.known or KnownTrials(count=1, with_sharpe=0, variance=None)).count,
        no_book=score.no_book,
        files={},
    )


def _with_overfitting(score: Score, ledger: Path) -> Score:
    """Add the probability of backtest overfitting over the family's stored books."""
    own = {
        row.session: row.ret
        for row in score.rows["equity"]
        if isinstance(row, EquityRow) and row.book == RATINGS_BOOK and row.trial == 0
    }
    books = [own, *_other_books(score, ledger)] if own else []
    common = sorted(_sessions(books))
    row = MetricRow(
        subject=RATINGS_BOOK, trial=0, metric="pbo", value=None, unit="fraction", n=len(books)
    )
    if len(books) < 2:
        row = replace(row, reason="one_trial")
    elif len(common) < FEWEST_COMMON_SESSIONS:
        row = replace(row, reason="too_few_common_sessions")
    else:
        found = pbo(np.array([[book[day] for book in books] for day in common]), blocks=_BLOCKS)
        method = (
            f"{len(books)} stored books over {found.rows} common sessions, {found.blocks} blocks"
        )
        row = replace(row, value=found.pbo, method=method, reason=found.reason)
    return replace(score, rows={**score.rows, "metrics": [*score.rows["metrics"], row]})


def _sessions(books: Sequence[Mapping[date, float | None]]) -> set[date]:
    """Return the sessions on which every book has a return."""
    if not books:
        return set()
    known = [{day for day, ret in book.items() if ret is not None} for book in books]
    return set.intersection(*known)


def _other_books(score: Score, ledger: Path) -> list[Mapping[date, float | None]]:
    """Return the session returns of the family's other trials whose files are still there."""
    newest = {
        row.trial: row
        for row in read_ledger_rows(ledger)
        if row.family == score.definition.family and row.trial != score.definition.trial
    }
    found: list[Mapping[date, float | None]] = []
    for _, row in sorted(newest.items()):
        folder = ledger.parent / row.run_id
        try:
            if read_card(folder, row.score_id).trial != row.trial:
                continue
            table = read_score(folder, row.score_id).tables["equity"]
        except DataError:
            # A run that was deleted still counts; its returns are gone.
            continue
        rows = table.select(["book", "trial", "session", "ret"]).to_pylist()
        series = {
            line["session"]: line["ret"]
            for line in rows
            if line["book"] == RATINGS_BOOK and line["trial"] == 0
        }
        if series:
            found.append(series)
    return found
