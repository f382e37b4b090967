"""What a run is compared with: simple rules on the same snapshot, fills and costs.

`BASELINES` is the table, `PRESETS` its parameters as data; `baseline` gives the weights that one
of them wants at the decision sessions of a run, and `book.simulate` plays them. They are long or
flat, whatever the policy of the run, but for the random ratings, which go through it.
"""

from __future__ import annotations

from backtester.baselines.history import Histories
from backtester.baselines.signals import Baseline, BaselineWeights, baseline, baseline_weights
from backtester.baselines.table import BASELINES, PLACEBO, PRESETS, BaselineRow

__all__ = [
    "BASELINES",
    "PLACEBO",
    "PRESETS",
    "Baseline",
    "BaselineRow",
    "BaselineWeights",
    "Histories",
    "baseline",
    "baseline_weights",
]
