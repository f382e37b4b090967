"""Technical indicators and summary figures on daily bars.

The indicators come from `stockstats`, all but ``mfi``, each with its window spelled out, so that
the library's changeable defaults have no say. Every one of them at bar *i* is a function of bars
*0..i* alone, bit for bit: a series computed once and cut at a date equals the series computed on
the bars up to that date. `backtester.snapshots.view` relies on it, and a property test holds it.

What the library does differently from its textbook, and what is made of it here:

* It gives a number from the first bar on. Here a value is NaN until its window is full.
* EMAs (``close_10_ema``, ``macd*``) are weighted means of the whole history with weights that sum
  to one, so there is no seed to fade. A recursion that starts at the first close, or at a plain
  mean, gives the same to 1e-6 from about 220 bars on (10 sessions: 90).
* ``rsi`` smooths gains and losses the same way; Wilder starts at a plain mean of 14 changes. Both
  agree to 1e-6 from about 220 bars on.
* ``atr`` smooths likewise, and the first bar's true range is its high less its low, for there is
  no close before it; some libraries leave that bar out. They meet within 220 bars too.
* Bollinger bands use the sample deviation (n - 1); some libraries take the population's.
* ``vwma`` weights the typical price (high + low + close) / 3, not the close, over 14 sessions.
* ``mfi`` is worked out here, 0..100. Two sessions often have equal typical prices, which neither
  add nor take money; the library sees the last bit of their sums as a rise or a fall, and one tie
  can move its value by three points. Where no money flowed at all it is NaN, not one half.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import pandas as pd
from stockstats import StockDataFrame

from tradingagents_core.protocols import Bars

FloatArray = npt.NDArray[np.float64]

YEAR = 252
_VOLUME_WINDOW = 14
# Far above the rounding of a sum of three prices, far below the smallest tick.
_TIE = 1e-12


@dataclass(frozen=True, kw_only=True)
class _Indicator:
    """Say how one indicator is had from the library.

    Attributes:
        column: Column name in the library's own notation, windows included; empty where it is
            worked out here.
        warm_up: Number of bars from which on the value counts.
        description: One line for agents: use, then pitfall.
        needs_volume: NaN where no share was traded in the window.
    """

    column: str
    warm_up: int
    description: str
    needs_volume: bool = False


_INDICATORS: Mapping[str, _Indicator] = MappingProxyType(
    {
        "close_50_sma": _Indicator(
            column="close_50_sma",
            warm_up=50,
            description="Mean close of 50 sessions: medium trend, moving support. Lags turns.",
        ),
        "close_200_sma": _Indicator(
            column="close_200_sma",
            warm_up=200,
            description="Mean close of 200 sessions: long trend, regime. Far too slow for entries.",
        ),
        "close_10_ema": _Indicator(
            column="close_10_ema",
            warm_up=10,
            description="Exponential mean of 10 closes: short momentum. Whipsaws in flat markets.",
        ),
        "macd": _Indicator(
            column="macd_12,26,9",
            warm_up=26,
            description="12-session EMA less 26-session EMA: momentum, in price units. Confirm it "
            "elsewhere when volatility is low.",
        ),
        "macds": _Indicator(
            column="macds_12,26,9",
            warm_up=34,
            description="9-session EMA of macd: crossings give signals. Many of them are false.",
        ),
        "macdh": _Indicator(
            column="macdh_12,26,9",
            warm_up=34,
            description="macd less macds: strength of momentum, early divergence. Noisy.",
        ),
        "rsi": _Indicator(
            column="rsi_14",
            warm_up=15,
            description="Relative strength over 14 sessions, 0 to 100: above 70 overbought, below "
            "30 oversold. Stays extreme for long in a strong trend.",
        ),
        "boll": _Indicator(
            column="boll_20",
            warm_up=20,
            description="Mean close of 20 sessions: the middle of the Bollinger bands.",
        ),
        "boll_ub": _Indicator(
            column="boll_ub_20",
            warm_up=20,
            description="boll plus two sample deviations: stretched or breaking out. Prices can "
            "ride the band.",
        ),
        "boll_lb": _Indicator(
            column="boll_lb_20",
            warm_up=20,
            description="boll less two sample deviations: oversold. Not a floor by itself.",
        ),
        "atr": _Indicator(
            column="atr_14",
            warm_up=14,
            description="Smoothed true range of 14 sessions, in price units: volatility, for stops "
            "and sizes. Says nothing about direction.",
        ),
        "vwma": _Indicator(
            column="vwma_14",
            warm_up=14,
            description="Typical price of 14 sessions weighted by volume: trend with conviction. "
            "One spike of volume can bend it.",
            needs_volume=True,
        ),
        "mfi": _Indicator(
            column="",
            warm_up=15,
            description="Money flow over 14 sessions, 0 to 100: above 80 overbought, below 20 "
            "oversold. Read it beside rsi.",
        ),
    }
)

MENU: Mapping[str, str] = MappingProxyType(
    {name: indicator.description for name, indicator in _INDICATORS.items()}
)
"""Indicator name -> one line for agents, in the order in which they are shown."""

FIGURES: tuple[str, ...] = (
    "return_21d",
    "return_63d",
    "high_52w",
    "low_52w",
    "drawdown_from_52w_high",
    "volatility_21d",
)
"""Names of the summary figures of `summarize`, in the order in which they are shown."""


def compute(bars: Bars) -> Mapping[str, FloatArray]:
    """Compute every indicator of `MENU` on a series of bars.

    Args:
        bars: Bars on one split basis, oldest first; missing sessions are simply absent.

    Returns:
        Name -> values aligned with the bars, NaN until the window is full. The unit is that of
        prices, but for ``rsi`` and ``mfi`` (0..100). The arrays are read-only.
    """
    if len(bars) == 0:
        return MappingProxyType({name: _frozen(np.empty(0)) for name in MENU})
    traded = _traded(bars.volume)
    # A row far in the future must not be able to raise here, not even as a numeric warning.
    with np.errstate(all="ignore"):
        frame = _frame(bars)
        series = {
            name: np.array(frame[indicator.column], dtype=np.float64)
            if indicator.column
            else _money_flow_index(bars)
            for name, indicator in _INDICATORS.items()
        }
    for name, indicator in _INDICATORS.items():
        series[name][: indicator.warm_up - 1] = np.nan
        if indicator.needs_volume:
            series[name][~traded] = np.nan
    return MappingProxyType({name: _frozen(values) for name, values in series.items()})


def summarize(bars: Bars) -> Mapping[str, float]:
    """Compute the figures of `FIGURES` at the last bar.

    Args:
        bars: Bars up to the date in question, at least 252 of them for all figures.

    Returns:
        Name -> value, NaN where history is too short. Returns, the drawdown (zero or negative)
        and the volatility (sample deviation of 21 simple daily returns, not annualised) are
        fractions; the 52-week high and low are the extremes of the high and low prices of 252
        sessions.
    """
    close = bars.close
    high = low = math.nan
    if len(bars) >= YEAR:
        high = float(bars.high[-YEAR:].max())
        low = float(bars.low[-YEAR:].min())
    last = float(close[-1]) if len(bars) else math.nan
    return MappingProxyType(
        {
            "return_21d": _change(close, 21),
            "return_63d": _change(close, 63),
            "high_52w": high,
            "low_52w": low,
            "drawdown_from_52w_high": last / high - 1.0,
            "volatility_21d": _volatility(close, 21),
        }
    )


def _frame(bars: Bars) -> StockDataFrame:
    return StockDataFrame(
        pd.DataFrame(
            {
                "open": bars.open,
                "high": bars.high,
                "low": bars.low,
                "close": bars.close,
                "volume": bars.volume,
            }
        )
    )


def _money_flow_index(bars: Bars) -> FloatArray:
    """Relate the money of rising sessions to that of rising and falling ones, over 14 sessions."""
    typical = (bars.high + bars.low + bars.close) / 3.0
    change = np.diff(typical, prepend=typical[:1])
    flow = np.where(np.abs(change) <= _TIE * typical, 0.0, typical * bars.volume)
    rising = _window_sum(np.where(change > 0, flow, 0.0), _VOLUME_WINDOW)
    falling = _window_sum(np.where(change < 0, flow, 0.0), _VOLUME_WINDOW)
    index: FloatArray = 100.0 * rising / (rising + falling)
    return index


def _window_sum(values: FloatArray, window: int) -> FloatArray:
    """Add up each window in one order, so that sums of zeros are zero; 0 where it is not full."""
    sums = np.zeros_like(values)
    if len(values) < window:
        return sums
    for first in range(window):
        sums[window - 1 :] += values[first : len(values) - window + 1 + first]
    return sums


def _traded(volume: FloatArray) -> npt.NDArray[np.bool_]:
    """Mark the bars whose volume window holds at least one bar with volume."""
    counts = np.cumsum(volume > 0, dtype=np.int64)
    before = np.zeros_like(counts)
    before[_VOLUME_WINDOW:] = counts[:-_VOLUME_WINDOW]
    marks: npt.NDArray[np.bool_] = counts > before
    return marks


def _frozen(values: FloatArray) -> FloatArray:
    values.setflags(write=False)
    return values


def _change(close: FloatArray, sessions: int) -> float:
    if len(close) <= sessions:
        return math.nan
    return float(close[-1]) / float(close[-1 - sessions]) - 1.0


def _volatility(close: FloatArray, sessions: int) -> float:
    if len(close) <= sessions:
        return math.nan
    # Exact sums: the last digit must not depend on how a vector unit splits them up.
    window = close[-1 - sessions :].tolist()
    returns = [now / before - 1.0 for before, now in itertools.pairwise(window)]
    mean = math.fsum(returns) / sessions
    squares = math.fsum((value - mean) ** 2 for value in returns)
    return math.sqrt(squares / (sessions - 1))
