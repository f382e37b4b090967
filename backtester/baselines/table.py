"""The table of baselines: one row each, with the parameters of its presets as data.

``textbook`` holds the figures that its sources begin with. ``finagent`` holds those that published
comparisons of trading agents use since W. Zhang et al., A Multimodal Foundation Agent for Financial
Trading (FinAgent), KDD 2024, so that tables can be laid side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal

from backtester.baselines import rules
from backtester.baselines.charts import Chart
from backtester.baselines.rules import Parameters, Wanted

PLACEBO: Final = "random"
Schedule = Literal["first", "each"]


@dataclass(frozen=True, kw_only=True)
class BaselineRow:
    """Say what one baseline is.

    Attributes:
        meaning: One line for whoever reads the results.
        presets: Preset -> parameter -> value; the first one is the default.
        rule: What it wants to hold after each bar, or None where no price matters.
        schedule: Where no price matters: it buys at the ``first`` session, or at ``each``.
        rebalance: ``always`` where it has to trade back to its weights at each decision, whatever
            the book's rule says; None leaves it to the book's rule.
    """

    meaning: str
    presets: Mapping[str, Parameters] = field(default_factory=dict)
    rule: Callable[[Chart, Parameters], Wanted] | None = None
    schedule: Schedule | None = None
    rebalance: Literal["always"] | None = None


BASELINES: Final[Mapping[str, BaselineRow]] = MappingProxyType(
    {
        "buy_and_hold": BaselineRow(
            meaning="each ticker's slot is bought at its first decision and held to the end",
            schedule="first",
        ),
        "equal_weight": BaselineRow(
            meaning="every ticker is brought back to an equal slot at each decision",
            schedule="each",
            rebalance="always",
        ),
        "macd": BaselineRow(
            meaning="long while the MACD line is above its signal line, else flat",
            rule=rules.macd,
            presets={
                "textbook": {"fast": 12, "slow": 26, "signal": 9},
                "finagent": {"fast": 7, "slow": 14, "signal": 9},
            },
        ),
        "kdj_rsi": BaselineRow(
            meaning="long from RSI low with K above D, flat from RSI high with K below D",
            rule=rules.kdj_rsi,
            presets={
                "textbook": {"kdj": 9, "k": 3, "d": 3, "rsi": 14, "low": 30.0, "high": 70.0},
                "finagent": {"kdj": 9, "k": 3, "d": 3, "rsi": 14, "low": 40.0, "high": 60.0},
            },
        ),
        "zmr": BaselineRow(
            meaning="long from a close far below its mean, flat from one far above",
            rule=rules.zmr,
            presets={
                "textbook": {"window": 20, "threshold": 1.0},
                "finagent": {"window": 14, "threshold": 1.0},
            },
        ),
        "sma_cross": BaselineRow(
            meaning="long while the fast mean of closes is above the slow one, else flat",
            rule=rules.sma_cross,
            presets={
                "textbook": {"fast": 20, "slow": 50},
                "finagent": {"fast": 10, "slow": 20},
            },
        ),
        PLACEBO: BaselineRow(
            meaning="seeded random ratings through the run's own policy",
            presets={
                "markov": {"frequencies": "run", "changes": "run"},
                "iid": {"frequencies": "run", "changes": "none"},
                "uniform": {"frequencies": "equal", "changes": "none"},
            },
        ),
    }
)

PRESETS: Final[Mapping[str, Mapping[str, Parameters]]] = MappingProxyType(
    {name: row.presets for name, row in BASELINES.items()}
)
