"""Rules on prices: what each wants to hold after every bar, from the bars up to it alone.

A rule answers for each bar with a weight of the ticker's slot (1 long, 0 flat) or NaN, which leaves
it as it was. So a rule has a position after each bar, whichever bars a run decides on. Two lines
that are equal up to rounding do not cross. Indicators are stockstats', with their windows spelled
out, as in `tradingagents_core.indicators`; no value counts before its window is full.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
from stockstats import StockDataFrame

from backtester.baselines.charts import Chart, quiet

Floats = npt.NDArray[np.float64]
Parameter = float | int | str
Parameters = Mapping[str, Parameter]

# Far above the rounding of a mean of prices, far below the smallest tick.
_TIE = 1e-12


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Hold what a rule wants after each bar.

    Attributes:
        weight: 1 long, 0 flat, NaN leaves it as it was.
        warm_up: Bars from which on its values count; before, nothing is held.
        undefined: Bars at which it has no value, such as a deviation of 0: it stays as it was.
    """

    weight: Floats
    warm_up: int
    undefined: npt.NDArray[np.bool_]

    def position(self) -> Floats:
        """Return what the rule holds after each bar, having followed it from its first value on."""
        places = np.arange(len(self.weight))
        speaks = ~np.isnan(self.weight) & (places >= self.warm_up - 1)
        newest = np.maximum.accumulate(np.where(speaks, places, -1))
        return np.where(newest >= 0, self.weight[newest], 0.0)


def macd(chart: Chart, parameters: Parameters) -> Wanted:
    """Hold while the MACD line is above its signal line, nothing while it is below.

    Line: EMA(``fast``) less EMA(``slow``) of the closes; signal line: EMA(``signal``) of the line.
    Source: G. Appel, Technical Analysis: Power Tools for Active Investors, 2005, chapter 8. The
    EMAs are weighted means of the whole history (see `tradingagents_core.indicators`).
    """
    fast, slow, signal = (int(parameters[name]) for name in ("fast", "slow", "signal"))
    with quiet():
        closes = pd.Series(chart.bars.close)
        line = StockDataFrame.ema(closes, fast) - StockDataFrame.ema(closes, slow)
        signal_line = StockDataFrame.ema(line, signal)
    warm_up = slow + signal - 1
    return _above(_array(line), _array(signal_line), scale=chart.bars.close, warm_up=warm_up)


def kdj_rsi(chart: Chart, parameters: Parameters) -> Wanted:
    """Buy an oversold market that turns up, leave an overbought one that turns down.

    Hold from a bar with RSI below ``low`` and K above D on, nothing from one with RSI above
    ``high`` and K below D on. RSI over ``rsi`` sessions: J. W. Wilder, New Concepts in Technical
    Trading Systems, 1978. KDJ: Lane's stochastic over ``kdj`` sessions as charting programs of East
    Asia draw it, K = 2/3 K' + 1/3 RSV, D = 2/3 D' + 1/3 K, both beginning at 50; ``k`` and ``d``
    are 3, the only smoothing that goes by this name. Both at once are rare with 30 and 70.
    """
    rsi_window, window = int(parameters["rsi"]), int(parameters["kdj"])
    low, high = float(parameters["low"]), float(parameters["high"])
    rsi = chart.values(f"rsi_{rsi_window}")
    k, d = chart.values(f"kdjk_{window}"), chart.values(f"kdjd_{window}")
    apart = k - d
    bars = chart.bars
    weight = np.full(len(bars), np.nan)
    weight[(rsi < low) & (apart > _TIE * 100)] = 1.0
    weight[(rsi > high) & (apart < -_TIE * 100)] = 0.0
    smoothing = int(parameters["k"]) + int(parameters["d"]) - 2
    # A window without a range has no place for its close; the library calls it the bottom.
    flat = _window(bars.high, window).max(axis=1) <= _window(bars.low, window).min(axis=1)
    return Wanted(
        weight=np.where(flat, np.nan, weight),
        warm_up=max(rsi_window + 1, window + smoothing),
        undefined=flat,
    )


def zmr(chart: Chart, parameters: Parameters) -> Wanted:
    """Hold what fell far below its mean until it is as far above.

    z = (close - mean) / sample deviation of the last ``window`` closes, the bar's own included.
    Hold from a bar with z below -``threshold`` on, nothing from one with z above it on. Source:
    E. P. Chan, Algorithmic Trading, 2013, chapter 3 (Bollinger bands as a strategy of mean
    reversion), long side alone.
    """
    window, threshold = int(parameters["window"]), float(parameters["threshold"])
    with quiet():
        closes = pd.Series(chart.bars.close)
        mean = _array(StockDataFrame.sma(closes, window))
        deviation = _array(StockDataFrame.mov_std(closes, window))
    still = ~(deviation > _TIE * np.abs(mean))
    distance = chart.bars.close - mean
    weight = np.full(len(distance), np.nan)
    weight[distance < -threshold * deviation] = 1.0
    weight[distance > threshold * deviation] = 0.0
    return Wanted(weight=np.where(still, np.nan, weight), warm_up=window, undefined=still)


def sma_cross(chart: Chart, parameters: Parameters) -> Wanted:
    """Hold while the mean of ``fast`` closes is above that of ``slow`` ones, else nothing.

    Source: W. Brock, J. Lakonishok, B. LeBaron, Simple Technical Trading Rules and the Stochastic
    Properties of Stock Returns, Journal of Finance 47, 1992 (variable length, no band), long side
    alone.
    """
    fast, slow = int(parameters["fast"]), int(parameters["slow"])
    with quiet():
        closes = pd.Series(chart.bars.close)
        quick, calm = (_array(StockDataFrame.sma(closes, days)) for days in (fast, slow))
    return _above(quick, calm, scale=chart.bars.close, warm_up=slow)


def _above(one: Floats, other: Floats, *, scale: Floats, warm_up: int) -> Wanted:
    """Want to hold where one line is above another; where they meet it stays as it was."""
    apart = one - other
    tie = np.abs(apart) <= _TIE * scale
    weight = np.where(tie, np.nan, np.where(apart > 0, 1.0, 0.0))
    return Wanted(weight=weight, warm_up=warm_up, undefined=np.zeros(len(one), dtype=np.bool_))


def _window(values: Floats, size: int) -> Floats:
    """Return the last so many values up to each one; before the first there is the first."""
    padded = np.concatenate([np.repeat(values[:1], size - 1), values])
    windows: Floats = np.lib.stride_tricks.sliding_window_view(padded, size)
    return windows


def _array(values: pd.Series) -> Floats:
    return np.array(values, dtype=np.float64)
