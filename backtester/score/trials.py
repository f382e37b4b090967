"""What counts as a trial, and which trials a Sharpe ratio has to be held against.

A trial is one book that could have been shown: a lane of a run under a policy, costs, a horizon and
rules of filling. What cannot change its session returns is no part of it (benchmark, further
horizons, a newer snapshot, folds, draws), and a definition that did give the same book of the same
run, whatever it says, is no new one.

Trials are *related* when their universes share an instrument and their windows of decisions
overlap: then one was looked at on prices of the other. An exact family (one universe, one window)
would begin at 1 again for whoever moves the window by a day or drops a ticker.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Any, Final

# Changes no return of a session: more data, another cut of the same figures, what they are held
# against. The risk-free rate moves every ratio of a score alike.
_NO_TRIAL: Final = (
    "snapshot_id",
    "fold",
    "placebo_draws",
    "seed",
    "score_id",
    "benchmark",
    "benchmark_map",
    "horizons",
    "rf_annual",
)


@dataclass(frozen=True, kw_only=True)
class ScoredTrial:
    """One line of the ledger: one book of one score.

    Attributes:
        family: Hash of universe and window.
        trial: Hash of what was tried; in rows that were told apart, that of the first line which
            tried the same.
        run_id: Run that was scored.
        score_id: Score.
        universe: Instruments, sorted.
        first: First day of the window of decisions.
        last: Last day.
        definition: The whole definition, canonical JSON.
        sharpe: Of the book, a session, not annualised; None where it has none.
        n: Session returns that it came from.
        lane: Of the run.
        book: Hash of the session returns; None where there is no ratio, and in lines of the first
            release.
    """

    family: str
    trial: str
    run_id: str
    score_id: str
    universe: tuple[str, ...]
    first: date
    last: date
    definition: str
    sharpe: float | None
    n: int
    lane: int = 0
    book: str | None = None

    def is_related(self, universe: Collection[str], first: date, last: date) -> bool:
        """Say whether it saw a price that decisions of that universe and window saw."""
        shared = not set(self.universe).isdisjoint(universe)
        return shared and self.first <= last and first <= self.last


@dataclass(frozen=True, kw_only=True)
class KnownTrials:
    """Say how many distinct trials this workspace knows that a score has to be held against.

    Attributes:
        count: Related ones; "at least", for nobody knows what was tried elsewhere.
        with_sharpe: Of those, the ones whose book has a Sharpe ratio.
        variance: Sample variance of these ratios (newest line of each trial), each times the root
            of its returns less one: near 1 for trials without skill that have nothing to do with
            each other, however long each was. None below two.
        family: Those of exactly this universe and window.
    """

    count: int
    with_sharpe: int
    variance: float | None
    family: int = 1


def what_was_tried(definition: Mapping[str, Any], lane: int = 0) -> str:
    """Return the hash of what a definition tries: equal ones are one trial.

    Args:
        definition: JSON values, see `ScoreDefinition.document`.
        lane: Of the run.
    """
    tried = {name: value for name, value in definition.items() if name not in _NO_TRIAL}
    return hash_of({**tried, "lane": lane} if lane else tried)


def told_apart(rows: Iterable[ScoredTrial]) -> tuple[ScoredTrial, ...]:
    """Return lines with equal trials where the same was tried, in their order.

    What is told from one line is never taken back by a later one: the count does not fall.
    """
    trials: dict[str, str] = {}
    books: dict[tuple[str, str], str] = {}
    found = []
    for row in rows:
        document = json.loads(row.definition)
        # A line of the first release hashed more into its trial; its definition says what it was.
        tried = what_was_tried(document, row.lane) if document else row.trial
        book = (row.run_id, row.book) if row.book is not None else None
        one = trials.get(tried) or (books.get(book) if book else None) or tried
        trials.setdefault(tried, one)
        if book:
            books.setdefault(book, one)
        found.append(replace(row, trial=one))
    return tuple(found)


def related_trials(
    rows: Iterable[ScoredTrial], universe: Collection[str], first: date, last: date
) -> dict[str, ScoredTrial]:
    """Return the newest line of each trial that is related to a universe and a window.

    Args:
        rows: Told apart, oldest first.
        universe: Instruments.
        first: First day of the window of decisions.
        last: Last day.
    """
    return {row.trial: row for row in rows if row.is_related(universe, first, last)}


def known_trials(
    rows: Sequence[ScoredTrial], universe: Collection[str], first: date, last: date
) -> KnownTrials:
    """Count the distinct trials that a score of a universe and a window is held against.

    Args:
        rows: Told apart, oldest first.
        universe: Instruments.
        first: First day of the window of decisions.
        last: Last day.
    """
    newest = related_trials(rows, universe, first, last)
    family = {
        row.trial
        for row in rows
        if set(row.universe) == set(universe) and (row.first, row.last) == (first, last)
    }
    ratios = sorted(
        row.sharpe * math.sqrt(row.n - 1)
        for row in newest.values()
        if row.sharpe is not None and row.n > 1
    )
    return KnownTrials(
        count=len(newest), with_sharpe=len(ratios), variance=_variance(ratios), family=len(family)
    )


def hash_of(document: object) -> str:
    """Return the sha256 of canonical JSON."""
    return hashlib.sha256(canonical_json(document).encode()).hexdigest()


def canonical_json(document: object) -> str:
    """Return JSON in its one spelling."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _variance(values: Sequence[float]) -> float | None:
    if len(values) < 2:
        return None
    mean = math.fsum(values) / len(values)
    found = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return found if math.isfinite(found) else None
