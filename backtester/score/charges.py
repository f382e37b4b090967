"""What the models cost a book: every call of its lane, each at the instant simulated for it.

A decision is paid at its cutoff, a lesson at the cutoff at which it was written: the first one at
which its return was known, or that instant itself after the last cutoff. A reply that came from
the cache counts with what it saved, so a score does not depend on what was recorded before. What
is charged is what the standing decisions and lessons asked; tries that were given up are not in it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from backtester.errors import UsageError
from backtester.records import CallRecord, CellKey, CellRecord, LessonRecord
from backtester.score.books import ScoredBook
from backtester.score.definition import ScoreDefinition

_ASKED = ("done", "unread")


@dataclass(frozen=True, kw_only=True, order=True)
class Charge:
    """Hold what was paid at one instant.

    Attributes:
        at: UTC instant.
        usd: Dollars.
    """

    at: datetime
    usd: float


@dataclass(frozen=True, kw_only=True)
class ModelBill:
    """Hold what the models cost each lane of a run.

    Attributes:
        lanes: Trial -> its charges, ascending.
        unknown: Why nobody knows, in words; None where the bill is known.
    """

    lanes: Mapping[int, tuple[Charge, ...]]
    unknown: str | None = None


def bill_of(
    cells: Sequence[CellRecord],
    lessons: Mapping[CellKey, LessonRecord],
    definition: ScoreDefinition,
) -> ModelBill:
    """Return what the decisions of a window and their lessons cost, warm-up among them.

    Args:
        cells: All cells of the run; their cutoffs say when lessons were written.
        lessons: Its lessons.
        definition: Has the window.
    """
    cutoffs = sorted({cell.cutoff for cell in cells})
    lanes: dict[int, list[Charge]] = {}
    for cell in sorted(cells, key=lambda cell: cell.key):
        if not definition.first <= cell.key.session <= definition.last:
            continue
        if cell.status in _ASKED and not cell.calls:
            return _unknown(f"{cell.key} has no record of its model calls")
        owed = [(cell.cutoff, cell.calls)]
        lesson = lessons.get(cell.key)
        if lesson is not None and lesson.calls:
            owed.append((_written(lesson, cell, cutoffs), lesson.calls))
        for at, calls in owed:
            for call in calls:
                usd = _price(call)
                if usd is None:
                    return _unknown(
                        f"the price of {call.provider}/{call.model} is unknown: name it in a "
                        "models file before the run"
                    )
                lanes.setdefault(cell.key.trial, []).append(Charge(at=at, usd=usd))
    return ModelBill(lanes={trial: tuple(sorted(found)) for trial, found in lanes.items()})


def charged_with(book: ScoredBook, bill: ModelBill, definition: ScoreDefinition) -> ScoredBook:
    """Return a book that has paid the models.

    A charge is in the first row that closes at or after its instant, at the latest in the last
    one. Returns are measured from the first row where nothing can fill in it: what was paid by
    then is in the row after, and so in the first return.

    Raises:
        UsageError: The book is not in dollars.
    """
    if book.result.currency != "USD":
        raise UsageError(
            f"the models' bill is in USD and the book of {definition.run_id} in "
            f"{book.result.currency}: leave --charge-model-cost out"
        )
    closes = [row.at for row in book.result.equity]
    if not closes:
        return book
    last = len(closes) - 1
    first = 0 if book.result.fills_first else min(1, last)
    by_row = [0.0] * len(closes)
    for charge in bill.lanes.get(book.trial, ()):
        place = min(max(bisect_left(closes, charge.at), first), last)
        by_row[place] = by_row[place] + charge.usd
    return replace(book, charged=tuple(_running(by_row)))


def _running(amounts: Iterable[float]) -> Iterable[float]:
    paid = 0.0
    for amount in amounts:
        paid = paid + amount
        yield paid


def _written(lesson: LessonRecord, cell: CellRecord, cutoffs: Sequence[datetime]) -> datetime:
    known = lesson.resolved_at or cell.cutoff
    after = bisect_left(cutoffs, known)
    return cutoffs[after] if after < len(cutoffs) else known


def _price(call: CallRecord) -> float | None:
    return call.saved_usd if call.hit else call.cost_usd


def _unknown(why: str) -> ModelBill:
    return ModelBill(lanes={}, unknown=f"the models' bill cannot be charged: {why}")
