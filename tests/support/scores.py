"""Score decisions on a small snapshot without a run around them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date
from typing import Any

from backtester.records import CellKey, CellRecord
from backtester.score.compute import Score, score_decisions
from backtester.score.definition import ScoreDefinition
from backtester.score.records import MetricRow, table_of
from backtester.snapshots.snapshot import Snapshot
from tests.support.records import make_cell

ROOT = "r" * 64


def decided(
    ticker: str, session: date, rating: str | None, *, trial: int = 0, status: str = ""
) -> CellRecord:
    """Make one decision; without a rating it is unread unless told otherwise."""
    key = CellKey(session=session, ticker=ticker, trial=trial)
    return make_cell(
        key, symbol=ticker, rating=rating, status=status or ("done" if rating else "unread")
    )


def make_definition(
    cells: Sequence[CellRecord], snapshot: Snapshot, **changes: Any
) -> ScoreDefinition:
    """Make the definition of a score over all cells, without placebo unless asked for."""
    days = [cell.key.session for cell in cells] or [snapshot.start]
    fields: dict[str, Any] = {
        "run_id": "run-a",
        "universe": tuple(sorted({cell.key.ticker for cell in cells})) or ("AAA",),
        "snapshot_id": snapshot.id,
        "decision_time": "close",
        "entry_rule": "next_open",
        "horizon": 5,
        "horizons": (5,),
        "benchmark": "none",
        "first": min(days),
        "last": max(days),
        "placebo_draws": 0,
    }
    return ScoreDefinition(**{**fields, **changes})


def scored(cells: Sequence[CellRecord], snapshot: Snapshot, **changes: Any) -> Score:
    """Score decisions."""
    definition = make_definition(cells, snapshot, **changes)
    return score_decisions(cells, definition, snapshot=snapshot, results_root=ROOT)


def figure(score: Score, metric: str, **where: Any) -> MetricRow:
    """Return the one row of a figure; ``subject`` and ``scope`` default to the whole."""
    wanted = {"scope": "all", **where}
    found = [
        row
        for row in score.rows["metrics"]
        if isinstance(row, MetricRow)
        and row.metric == metric
        and all(getattr(row, name) == value for name, value in wanted.items())
    ]
    assert len(found) == 1, (metric, where, len(found))
    return found[0]


def all_numbers_are_finite(score: Score) -> bool:
    """Say whether every table of a score can be stored, which refuses NaN and infinities."""
    for name, rows in score.rows.items():
        table = table_of(name, list(rows))
        for column in table.columns:
            for value in column.to_pylist():
                assert not isinstance(value, float) or math.isfinite(value)
    return True
