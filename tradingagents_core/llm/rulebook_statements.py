"""Read the answers of the statement tools for the rulebook model's fundamentals report.

Figures are quoted as the answer has them. The one thing worked out is the change on the period a
year before, where both are in one answer and the older one is above zero.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date

from tradingagents_core.llm.rulebook_rules import finite

YEAR_DAYS = range(350, 381)

_KEYED = re.compile(r"^([a-z_0-9]+): (.+)$", re.MULTILINE)
_WITHHELD = "withheld"
_WITHHELD_NOTE = re.compile(r"^# Withheld: (.+)$", re.MULTILINE)
_PERIODS = "period_end"
_FILINGS = "newest_filing"


def key_figures(answer: str) -> list[str]:
    """Return the key figures of an answer, one a line, then what it withholds and why."""
    found: Mapping[str, str] = dict(_KEYED.findall(answer))
    given = {key: text for key, text in found.items() if not text.startswith(_WITHHELD)}
    lines = [f"{key}: {text}" for key, text in given.items()]
    reasons: dict[str, list[str]] = {}
    shared = _WITHHELD_NOTE.search(answer)
    for key, text in found.items():
        if key not in given:
            own = text.removeprefix(_WITHHELD).removeprefix(", ")
            reasons.setdefault(own or (shared.group(1) if shared else "no reason"), []).append(key)
    return lines + [f"withheld: {', '.join(keys)} ({why})" for why, keys in reasons.items()]


def newest_period(answer: str) -> list[str]:
    """Return a statement's newest period, one item a line, each held against a year before."""
    table = [line.split(",") for line in answer.splitlines() if line and line[0] != "#"]
    days = _days(table[0]) if table else []
    if not days:
        return []
    before = [place for place, day in enumerate(days) if (days[0] - day).days in YEAR_DAYS]
    lines = [f"newest period: to {days[0]}"]
    for name, *cells in table[1:]:
        if len(cells) != len(days) or not cells[0]:
            continue
        if name == _FILINGS:
            lines.append(f"newest filing of it: {cells[0]}")
            continue
        year_ago = [
            f"{_against(cells, place)} on {days[place]}" for place in before if cells[place]
        ]
        lines.append(", ".join([f"{name}: {cells[0]}", *year_ago]))
    return lines


def _days(header: Sequence[str]) -> list[date]:
    """Return the ends of the periods of a table's columns; none where it is no such table."""
    if header[0] != _PERIODS:
        return []
    try:
        return [date.fromisoformat(day) for day in header[1:]]
    except ValueError:
        return []


def _against(cells: Sequence[str], place: int) -> str:
    """Quote an older cell, with the change from it to the newest one."""
    new, old = (finite(cells[at].partition(" ")[0]) for at in (0, place))
    if new is None or old is None or old <= 0:
        return cells[place]
    return f"{(new / old - 1) * 100:+.1f} % from {cells[place]}"
