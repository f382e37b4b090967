r"""The decision log: decisions, what came of them, and the lessons, as Markdown for people.

Each entry has the form that TradingAgents keeps its memory in:

    [2018-06-29 | FB | Overweight | +1.20% | -0.35% | 5d]

    DECISION:
    ...

    REFLECTION:
    ...

    <!-- ENTRY_END -->

The third field is the rating, then come return, alpha and horizon in sessions; a decision whose
return is not known yet has ``pending`` in their place. The log is written from the records of a
run and read by no part of this program. A quoted text is tamed as in the reports. A marker inside
it gets a backslash, which Markdown does not show, so that no text makes an entry, ends one, moves
into another's field or makes a link of an entry's first line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Final

from backtester.errors import UsageError
from backtester.records import RATINGS, CellRecord, LessonRecord, ReturnRecord
from backtester.texts.artefacts import checked_symbol, write_text
from backtester.texts.markdown import CONTAINERS, nested_text

SEPARATOR: Final = "\n\n<!-- ENTRY_END -->\n\n"
PENDING: Final = "pending"
UNREAD: Final = "unread"
"""Stands where no rating could be read; it is never one of the five."""

UNKNOWN: Final = "n/a"
"""Stands where a return is known and its alpha is not, for want of a benchmark."""

_DECIDED = frozenset({"done", "unread"})
_KNOWN = frozenset({"resolved", "delisted"})
_COMMENT = re.compile(r"<(?=!)")
_HEADER = re.compile(r"(DECISION|REFLECTION):")
# What could pass for an entry's first line or give it a target: in brackets with a bar, in brackets
# as a whole, or in brackets that a later line closes.
_TAG = re.compile(rf"^({CONTAINERS})\[(?=[^\]\n]*\||.*\][ \t]*$|[^\]\n]*$)", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class LogEntry:
    """Hold one decision with what is known of it.

    Attributes:
        session: Its session.
        symbol: Symbol as valid then.
        rating: One of the five, or None where none was read.
        raw_return: With dividends, a fraction; None while it is not known.
        alpha: A fraction, or None.
        horizon: Sessions from decision to exit; None while the return is not known.
        decision: The decision's Markdown.
        reflection: The lesson, empty where there is none.
    """

    session: date
    symbol: str
    rating: str | None
    raw_return: float | None
    alpha: float | None
    horizon: int | None
    decision: str
    reflection: str = ""

    @property
    def pending(self) -> bool:
        """Whether the return is not known yet."""
        return self.raw_return is None or self.horizon is None


def log_entries(
    cells: Iterable[CellRecord],
    returns: Iterable[ReturnRecord],
    lessons: Iterable[LessonRecord],
    *,
    trial: int = 0,
) -> tuple[LogEntry, ...]:
    """Return the entries of one lane of a run or a memory, oldest first.

    A cell that decided nothing (failed, without data, skipped) has no entry. Where a lesson is
    switched off or failed, the log has the decision's figures and no reflection.

    Args:
        cells: Decisions, of all lanes or one.
        returns: What they earned, of one score, in any order; an unknown one leaves its decision
            pending.
        lessons: Memory rows, in any order.
        trial: The lane.
    """
    earned = {row.key: row for row in returns if row.status in _KNOWN}
    learnt = {row.key: row for row in lessons if row.lesson_status == "written"}
    decided = [cell for cell in cells if cell.key.trial == trial and cell.status in _DECIDED]
    return tuple(
        _entry(cell, earned.get(cell.key), learnt.get(cell.key))
        for cell in sorted(decided, key=lambda cell: cell.key)
    )


def write_decision_log(entries: Iterable[LogEntry], path: Path, *, cap: int | None = None) -> Path:
    """Write the log in one step, in the place of what was there, and return its path.

    Args:
        entries: In the order of the log.
        path: The file.
        cap: Keep so many of the newest resolved entries; None keeps all. Pending ones stay, as
            they are not known yet.

    Raises:
        DataError: A symbol that cannot be one.
        UsageError: A negative cap, or the file cannot be written.
    """
    kept = _newest(tuple(entries), cap)
    return write_text(path, "".join(_rendered(entry) + SEPARATOR for entry in kept))


def _entry(
    cell: CellRecord, returned: ReturnRecord | None, lesson: LessonRecord | None
) -> LogEntry:
    return LogEntry(
        session=cell.key.session,
        symbol=cell.symbol,
        rating=cell.rating,
        raw_return=returned.raw_total if returned else None,
        alpha=returned.alpha if returned else None,
        horizon=returned.horizon if returned else None,
        decision=cell.decision,
        reflection=lesson.lesson if lesson else "",
    )


def _newest(entries: tuple[LogEntry, ...], cap: int | None) -> tuple[LogEntry, ...]:
    if cap is None:
        return entries
    if cap < 0:
        raise UsageError(f"the decision log cannot keep {cap} entries: write 0 or more")
    excess = sum(not entry.pending for entry in entries) - cap
    kept = []
    for entry in entries:
        if excess > 0 and not entry.pending:
            excess -= 1
        else:
            kept.append(entry)
    return tuple(kept)


def _rendered(entry: LogEntry) -> str:
    symbol = checked_symbol(entry.symbol, f"decision of {entry.session}")
    rating = entry.rating if entry.rating in RATINGS else UNREAD
    outcome = PENDING
    if entry.raw_return is not None and entry.horizon is not None:
        outcome = " | ".join(
            (_percent(entry.raw_return), _percent(entry.alpha), f"{entry.horizon}d")
        )
    tag = f"[{entry.session.isoformat()} | {symbol} | {rating} | {outcome}]"
    blocks = [tag, f"DECISION:\n{_defused(entry.decision)}"]
    if not entry.pending and (reflection := _defused(entry.reflection)):
        blocks.append(f"REFLECTION:\n{reflection}")
    return "\n\n".join(blocks)


def _percent(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:+.2%}"


def _defused(text: str) -> str:
    text = _COMMENT.sub(r"<\\", nested_text(text))
    text = _HEADER.sub(r"\1\\:", text)
    return _TAG.sub(r"\1\\[", text).strip()
