"""Set two scores side by side: what makes them incomparable, and what can be paired."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Final

from backtester.errors import DataError
from backtester.score.labels import exact
from backtester.statistics.inference import Interval, mean_interval
from backtester.store.summary import rows_of

_RULES: Final = {
    "first": "window",
    "last": "window",
    "universe": "universe",
    "decision_time": "time of the decision",
    "entry_rule": "entry rule",
    "horizon": "horizon",
    "benchmark": "benchmark",
    "benchmark_map": "benchmark",
    "snapshot_id": "snapshot",
    "haircut": "haircut",
}
"""Fields of a definition that change what one and the same decision earns, or which there are."""

_TAKEN_AWAY: Final = frozenset({"first", "last", "universe", "horizon"})
"""Of those, the ones that pairing takes away: cells and sessions of both, to one horizon."""


@dataclass(frozen=True, kw_only=True)
class Compared:
    """Name one side of a comparison.

    Attributes:
        run_id: Run.
        score_id: Score.
        label: What it differs by from the run's own score.
        snapshot_name: Snapshot that it was scored on.
        definition: All that the score is a function of, as JSON values.
    """

    run_id: str
    score_id: str
    label: str
    snapshot_name: str
    definition: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Say in what two scores differ that changes what a decision earns.

    Attributes:
        what: ``window``, ``universe``, ``entry rule``, ...
        first: Of the first score, in words.
        second: Of the second.
        paired: Whether pairing takes it away.
    """

    what: str
    first: str
    second: str
    paired: bool


@dataclass(frozen=True, kw_only=True)
class PairedCalls:
    """Hold what both scores made of the cells that both decided, to one horizon.

    Attributes:
        horizon: Sessions from decision to exit, which both have figures for; None for no such.
        trials: Trials of a cell in the first run, in the second, and those that both have.
        decided: Cells with a decision in both.
        same_rating: Of these, with the same rating.
        n: Of these, with an alpha in both; a Hold counts as 0.
        first: Mean of direction x alpha of the first, or None.
        second: Of the second.
        difference: The first less the second, with its interval.
    """

    horizon: int | None
    trials: tuple[int, int, int]
    decided: int
    same_rating: int
    n: int
    first: float | None
    second: float | None
    difference: Interval


@dataclass(frozen=True, kw_only=True)
class PairedBooks:
    """Hold what both books made over the sessions on which both have a return.

    Attributes:
        n: Such sessions.
        start: First of them, or None.
        end: Last of them.
        first: Return of the first book over them, or None.
        second: Of the second.
        difference: Mean session return of the first less that of the second, with its interval.
    """

    n: int
    start: date | None
    end: date | None
    first: float | None
    second: float | None
    difference: Interval


def compared(database: Path, run_id: str, score_id: str) -> Compared:
    """Return one side of a comparison.

    Raises:
        DataError: There is no database, it is damaged, or it has no such run and score.
    """
    rows = rows_of(database, _SIDE, [run_id, score_id])
    if not rows:
        raise DataError(f"run {run_id} has no score {score_id} in {database}: make it with 'score'")
    return Compared(**{**rows[0], "definition": json.loads(rows[0]["definition"])})


def differences(first: Compared, second: Compared) -> tuple[Difference, ...]:
    """Return what makes figures of two scores differ beside the decisions and the book."""
    found: dict[str, Difference] = {}
    for name, what in _RULES.items():
        one, other = first.definition[name], second.definition[name]
        if one != other and what not in found:
            words = [_words(what, name, side) for side in (first, second)]
            found[what] = Difference(
                what=what, first=words[0], second=words[1], paired=name in _TAKEN_AWAY
            )
    return tuple(found.values())


def _words(what: str, name: str, side: Compared) -> str:
    if what == "window":
        return f"{side.definition['first']} to {side.definition['last']}"
    value = side.definition[name]
    if name == "benchmark":
        return "the market's own" if value is None else str(value)
    if name == "snapshot_id":
        return f"{side.snapshot_name} {value[:12]}"
    return setting_words(value)


def paired_calls(database: Path, first: Compared, second: Compared) -> PairedCalls:
    """Return what both made of the cells that both decided.

    Raises:
        DataError: There is no database, or it is damaged.
    """
    horizon = _common_horizon(first.definition, second.definition)
    keys = [first.run_id, first.score_id, second.run_id, second.score_id]
    (counts,) = rows_of(database, _DECIDED, [first.run_id, second.run_id])
    rows = [] if horizon is None else rows_of(database, _CALLS, [*keys, horizon, horizon])
    places = _places(database, first) if horizon is not None else {}
    known = [row for row in rows if row["session"] in places]
    spans = (
        places[row[name]] - places[row["session"]]
        for row in known
        for name in ("first_exit", "second_exit")
        if row[name] in places
    )
    differing = [row["first"] - row["second"] for row in known]
    return PairedCalls(
        horizon=horizon,
        trials=_trials(database, first.run_id, second.run_id),
        decided=counts["decided"],
        same_rating=counts["same_rating"],
        n=len(rows),
        first=_mean([row["first"] for row in rows]),
        second=_mean([row["second"] for row in rows]),
        difference=mean_interval(
            differing,
            [places[row["session"]] for row in known],
            max([horizon or 1, *spans]),
        ),
    )


def _trials(database: Path, first: str, second: str) -> tuple[int, int, int]:
    """Return how many trials of a cell two runs have, and how many of the same number."""
    rows = rows_of(database, _TRIALS, [first, second])
    one, other = ({row["trial"] for row in rows if row["run_id"] == run} for run in (first, second))
    return len(one), len(other), len(one & other)


def _common_horizon(first: Mapping[str, Any], second: Mapping[str, Any]) -> int | None:
    """Return a horizon that both have figures for: the first's own, the second's, the longest."""
    both = set(first["horizons"]) & set(second["horizons"])
    for horizon in (first["horizon"], second["horizon"]):
        if horizon in both:
            return int(horizon)
    return max(both, default=None)


def _places(database: Path, side: Compared) -> dict[date, int]:
    """Return the sessions that a run's books went through, numbered."""
    rows = rows_of(database, _SESSIONS, [side.run_id])
    return {row["session"]: at for at, row in enumerate(rows)}


def paired_books(database: Path, first: Compared, second: Compared) -> PairedBooks:
    """Return what the books of both ratings made over the sessions that both have.

    Raises:
        DataError: There is no database, or it is damaged.
    """
    keys = [first.run_id, first.score_id, second.run_id, second.score_id]
    rows = rows_of(database, _BOOKS, keys)
    differing = [row["first"] - row["second"] for row in rows]
    return PairedBooks(
        n=len(rows),
        start=rows[0]["session"] if rows else None,
        end=rows[-1]["session"] if rows else None,
        first=_chained([row["first"] for row in rows]),
        second=_chained([row["second"] for row in rows]),
        difference=mean_interval(differing, list(range(len(rows))), 1),
    )


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _chained(returns: Sequence[float]) -> float | None:
    return math.prod(1.0 + ret for ret in returns) - 1.0 if returns else None


def setting_words(value: object) -> str:
    """Return a setting's value as a person writes it."""
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return exact(value)
    if isinstance(value, Mapping):
        pairs = (f"{name} {setting_words(one)}" for name, one in value.items())
        return ", ".join(pairs) or "none"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(setting_words(one) for one in value) or "none"
    return str(value)


_SIDE: Final = """
SELECT run_id, score_id, label, snapshot_name, definition FROM scores
WHERE run_id = ? AND score_id = ?"""

_DECIDED: Final = """
SELECT count(*) AS decided, count(*) FILTER (a.rating = b.rating) AS same_rating
FROM cells a JOIN cells b USING (session, ticker, trial)
WHERE a.run_id = ? AND b.run_id = ? AND a.scored AND b.scored
    AND a.status IN ('done', 'unread') AND b.status IN ('done', 'unread')"""

_TRIALS: Final = "SELECT DISTINCT run_id, trial FROM cells WHERE scored AND run_id IN (?, ?)"

_CALLS: Final = """
SELECT a.session, a.directional_alpha AS first, b.directional_alpha AS second,
    a.exit_session AS first_exit, b.exit_session AS second_exit
FROM horizon_returns a JOIN horizon_returns b USING (session, ticker, trial)
WHERE a.run_id = ? AND a.score_id = ? AND b.run_id = ? AND b.score_id = ?
    AND a.horizon = ? AND b.horizon = ?
    AND a.directional_alpha IS NOT NULL AND b.directional_alpha IS NOT NULL
ORDER BY a.session, a.ticker, a.trial"""

_SESSIONS: Final = """
SELECT DISTINCT session FROM equity WHERE run_id = ? AND book = 'ratings' ORDER BY session"""

_BOOKS: Final = """
SELECT a.session, a.ret AS first, b.ret AS second
FROM equity a JOIN equity b USING (session, book, trial)
WHERE a.run_id = ? AND a.score_id = ? AND b.run_id = ? AND b.score_id = ?
    AND book = 'ratings' AND trial = 0 AND a.ret IS NOT NULL AND b.ret IS NOT NULL
ORDER BY a.session"""
