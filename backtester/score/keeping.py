"""Make a score and keep it: count it in the ledger, freeze the count into it, write its files."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Final

import numpy as np

from backtester.errors import DataError
from backtester.records import CellKey, LessonRecord, ReturnRecord
from backtester.runs.folder import RunFolder
from backtester.runs.journal import Ledger
from backtester.score.compute import Score, score_decisions
from backtester.score.definition import ScoreDefinition
from backtester.score.deflation import (
    lane_returns,
    returns_by_lane,
    trials_of,
    trials_of_stored,
    with_known_trials,
)
from backtester.score.files import (
    SCORE_FORMAT,
    SCORES_FOLDER,
    NewerScore,
    ScoreCard,
    StoredScore,
    checked_tables,
    read_card,
    read_score,
    read_score_table,
    score_ids,
    write_score,
)
from backtester.score.ledger import LEDGER_NAME, enter, read_ledger_rows
from backtester.score.records import RATINGS_BOOK, MetricRow, table_of
from backtester.score.trials import (
    KnownTrials,
    ScoredTrial,
    canonical_json,
    related_trials,
    what_was_tried,
)
from backtester.settlement.decided import Standing
from backtester.snapshots.snapshot import Snapshot
from backtester.statistics.overfit import pbo

FEWEST_COMMON_SESSIONS: Final = 20
_SHARED: Final = 0.8
"""A book that covers less of this one's sessions is not compared: it would leave too few."""
_BLOCKS: Final = 10


@dataclass(frozen=True, kw_only=True)
class Decisions:
    """Hold what is scored: the stored decisions of one run.

    Attributes:
        folder: The run's folder.
        results_root: The run's root.
        cells: All its cells.
        returns: Returns of its journal, for its own score.
        lessons: Its lessons, whose model calls are part of the bill.
        later: Cells (as ``str(key)``) that were decided after the close of their session.
    """

    folder: RunFolder
    results_root: str
    cells: Sequence[Standing]
    returns: Mapping[CellKey, ReturnRecord]
    lessons: Mapping[CellKey, LessonRecord] = field(default_factory=dict)
    later: Set[str] = frozenset()

    @classmethod
    def of(
        cls,
        folder: RunFolder,
        results_root: str | None,
        ledger: Ledger,
        *,
        later: Set[str] = frozenset(),
    ) -> Decisions:
        """Take the decisions of a finished run from its journal; see the attributes.

        Raises:
            DataError: The run is not finished.
        """
        if results_root is None:
            raise DataError(f"run {folder.run_id} is not finished: run it to its end first")
        cells = tuple(cell for _, cell in sorted(ledger.cells.items()))
        return cls(
            folder=folder,
            results_root=results_root,
            cells=cells,
            returns=ledger.returns,
            lessons=ledger.lessons,
            later=later,
        )


@dataclass(frozen=True, kw_only=True)
class KeptScore:
    """Hold a score that was made and stored.

    Attributes:
        score: As it was made.
        stored: As it lies on the disk.
    """

    score: Score
    stored: StoredScore


def is_kept(folder: RunFolder, results_root: str | None, definition: ScoreDefinition) -> bool:
    """Say whether this very score of these very decisions is stored.

    Raises:
        NewerScore: A newer release made one of this name: it is not replaced.
    """
    if definition.score_id not in score_ids(folder.path):
        return False
    try:
        card = read_card(folder.path, definition.score_id)
    except NewerScore:
        raise
    except DataError:
        return False
    made = card.format == SCORE_FORMAT and card.results_root == results_root
    return made and card.definition == definition.document()


def make_score(
    decisions: Decisions,
    definition: ScoreDefinition,
    *,
    snapshot: Snapshot,
    own: bool = False,
    book_required: bool = False,
) -> KeptScore:
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
        lessons=decisions.lessons,
        later=decisions.later,
        book_required=book_required,
    )
    tables = checked_tables(definition.score_id, score.rows)
    bring_back_lines(decisions.folder.path.parent)
    ledger = decisions.folder.path.parent / LEDGER_NAME
    score = with_known_trials(score, enter(ledger, trials_of(score)))
    score = _with_overfitting(score, ledger)
    # What the number of trials makes of it are metrics, and came after the tables.
    tables["metrics"] = table_of("metrics", score.rows["metrics"])
    stored = write_score(decisions.folder.path, _card(score, snapshot), tables)
    return KeptScore(score=score, stored=stored)


def bring_back_lines(reports: Path) -> None:
    """Enter what the ledger lost of the scores that are stored: their number is never undercut.

    A score that does not read is left out: whoever publishes its run tells.

    Args:
        reports: Folder of runs, with their ledger.

    Raises:
        UsageError: The ledger cannot be written.
        DataError: The ledger is damaged.
    """
    ledger = reports / LEDGER_NAME
    known = Counter((row.run_id, row.definition) for row in read_ledger_rows(ledger))
    for place in sorted(reports.glob(f"*/{SCORES_FOLDER}")):
        for score_id in score_ids(place.parent):
            lines = _lines_of(place.parent, score_id, known)
            if lines:
                enter(ledger, lines)


def _lines_of(
    run_folder: Path, score_id: str, known: Mapping[tuple[str, str], int]
) -> Sequence[ScoredTrial]:
    try:
        card = read_card(run_folder, score_id)
        wanted = canonical_json(card.definition)
        if known.get((run_folder.name, wanted), 0) >= (card.books or 1):
            return ()
        return trials_of_stored(read_score(run_folder, score_id))
    except (DataError, KeyError, TypeError, ValueError):
        return ()


def _card(score: Score, snapshot: Snapshot) -> ScoreCard:
    definition = score.definition
    known = score.known or KnownTrials(count=1, with_sharpe=0, variance=None)
    return ScoreCard(
        format=SCORE_FORMAT,
        score_id=definition.score_id,
        results_root=score.results_root,
        snapshot_name=snapshot.name,
        definition=definition.document(),
        family=definition.family,
        trial=definition.trial,
        known_trials=known.count,
        family_trials=known.family,
        no_book=score.no_book,
        books=len(trials_of(score)),
        files={},
    )


def _with_overfitting(score: Score, ledger: Path) -> Score:
    """Add the probability of backtest overfitting over this score's books and related stored ones.

    What was deleted still counts as a trial, but its returns are gone; the row says how many.
    """
    own = [book for _, book in sorted(lane_returns(score).items()) if book]
    found = _other_books(score, ledger, set(own[0])) if own else _Others()
    books = [*own, *found.books]
    common = sorted(set.intersection(*(set(book) for book in books))) if books else []
    row = MetricRow(
        subject=RATINGS_BOOK, trial=0, metric="pbo", value=None, unit="fraction", n=len(books)
    )
    plural = f"{len(books)} book{'' if len(books) == 1 else 's'}"
    row = replace(row, method=found.left_out(f"{plural} over {len(common)} sessions"))
    if len(books) < 2:
        alone = not (found.gone or found.elsewhere)
        row = replace(row, reason="one_trial" if alone else "no_other_returns")
    elif len(common) < FEWEST_COMMON_SESSIONS:
        row = replace(row, reason="too_few_common_sessions")
    else:
        table = np.array([[book[day] for book in books] for day in common])
        result = pbo(table, blocks=_BLOCKS)
        row = replace(row, value=result.pbo, reason=result.reason)
    return replace(score, rows={**score.rows, "metrics": [*score.rows["metrics"], row]})


@dataclass(frozen=True, kw_only=True)
class _Others:
    """Hold the session returns of the related trials of other scores.

    Attributes:
        books: Of those that are stored and cover nearly the same sessions.
        gone: How many are not stored any more.
        elsewhere: How many cover other sessions.
    """

    books: tuple[Mapping[date, float], ...] = ()
    gone: int = 0
    elsewhere: int = 0

    def left_out(self, text: str) -> str:
        """Return a text with what could not be compared behind it."""
        if self.gone:
            text += f", trials without returns (deleted, or no book): {self.gone}"
        if self.elsewhere:
            text += f", on other sessions: {self.elsewhere}"
        return text


def _other_books(score: Score, ledger: Path, sessions: Set[date]) -> _Others:
    definition = score.definition
    rows = read_ledger_rows(ledger)
    related = related_trials(rows, definition.universe, definition.first, definition.last)
    own = {row.trial for row in rows if _is_of(row, definition)}
    books: list[Mapping[date, float]] = []
    gone = elsewhere = 0
    for trial, row in sorted(related.items()):
        if trial in own:
            continue
        book = _stored_book(ledger.parent / row.run_id, row)
        if not book:
            gone += 1
        elif len(sessions & set(book)) < _SHARED * len(sessions):
            elsewhere += 1
        else:
            books.append(book)
    return _Others(books=tuple(books), gone=gone, elsewhere=elsewhere)


def _is_of(row: ScoredTrial, definition: ScoreDefinition) -> bool:
    return row.run_id == definition.run_id and row.definition == definition.canonical


def _stored_book(run_folder: Path, row: ScoredTrial) -> Mapping[date, float] | None:
    """Return the session returns of a trial as they are stored, or None where they are not."""
    try:
        card = read_card(run_folder, row.score_id)
        tried = what_was_tried(json.loads(row.definition), row.lane)
        if what_was_tried(card.definition, row.lane) != tried:
            return None
        table = read_score_table(run_folder, card, "equity")
    except DataError:
        return None
    return returns_by_lane(table).get(row.lane)
