"""The definition of a run's own score, for tests that need one and no run."""

from __future__ import annotations

from datetime import date
from typing import Final

from backtester.score.definition import DEFAULT_COSTS, DEFAULT_SCORE, ScoreDefinition

OWN_SCORE: Final = ScoreDefinition(
    run_id="run-a",
    universe=("AAA", "BBB"),
    snapshot_id="0123456789abcdef",
    decision_time="close",
    entry_rule="next_open",
    horizon=5,
    first=date(2018, 1, 1),
    last=date(2018, 12, 31),
    costs=DEFAULT_COSTS,
    score_id=DEFAULT_SCORE,
)
