"""What all indicators of one instrument cost over ten years of daily bars."""

from __future__ import annotations

from benchmarks.measure import Benchmark, Finding, Outcome, time_sides

SESSIONS = 2_520
LIMIT_S = 0.015


def run() -> Outcome:
    """Time the thirteen indicators once, beside one plain rolling mean of pandas."""
    import numpy as np
    import pandas as pd

    from tradingagents_core.indicators import compute
    from tradingagents_core.protocols import Bars

    draw = np.random.Generator(np.random.PCG64(7))
    steps = draw.normal(0.0003, 0.02, SESSIONS).astype(np.float64)
    close = (100 * np.cumprod(1 + steps)).astype(np.float64)
    bars = Bars(
        sessions=np.datetime64("2009-01-01") + np.arange(SESSIONS),
        open=close,
        high=(close * 1.01).astype(np.float64),
        low=(close * 0.99).astype(np.float64),
        close=close,
        volume=draw.integers(1, 10**7, SESSIONS).astype(float),
    )
    timings = time_sides(
        {
            "one rolling mean": lambda: pd.Series(close).rolling(50).mean(),
            "thirteen indicators": lambda: compute(bars),
        },
        repeats=15,
    )
    mean, every = timings
    return Outcome(
        timings=timings,
        findings=(
            Finding(label="thirteen indicators", value=every.median, unit="s", bound=LIMIT_S),
            Finding(label="thirteen indicators v. one mean", value=every.median / mean.median),
        ),
    )


INDICATORS = Benchmark(
    name="indicators",
    question="Do all indicators of one instrument over ten years take less than 15 ms?",
    run=run,
)
