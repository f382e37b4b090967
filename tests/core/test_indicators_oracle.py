"""The indicators on the committed snapshot against TA-Lib, an independent library.

Where the definitions differ, the difference is undone here and said: TA-Lib's Bollinger bands take
the population deviation and ours the sample's, its averages of EMA kind start from a simple mean
and ours from the first value, so they are compared after 300 bars, when either seed has faded; and
it has no volume-weighted average, which two of its sums give.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
import talib

from backtester.snapshots.snapshot import Snapshot, open_snapshot
from backtester.snapshots.view import AsOfView
from tradingagents_core.indicators import MENU, compute
from tradingagents_core.protocols import Bars

FADED = 300
SAMPLE = math.sqrt(20 / 19)

Oracle = Callable[[Bars], np.ndarray]


def typical(bars: Bars) -> np.ndarray:
    return (bars.high + bars.low + bars.close) / 3


def band(bars: Bars, side: int) -> np.ndarray:
    middle = talib.SMA(bars.close, 20)
    return middle + side * 2 * SAMPLE * talib.STDDEV(bars.close, 20)


ORACLES: Mapping[str, Oracle] = {
    "close_50_sma": lambda bars: talib.SMA(bars.close, 50),
    "close_200_sma": lambda bars: talib.SMA(bars.close, 200),
    "close_10_ema": lambda bars: talib.EMA(bars.close, 10),
    "macd": lambda bars: talib.MACD(bars.close)[0],
    "macds": lambda bars: talib.MACD(bars.close)[1],
    "macdh": lambda bars: talib.MACD(bars.close)[2],
    "rsi": lambda bars: talib.RSI(bars.close, 14),
    "boll": lambda bars: talib.SMA(bars.close, 20),
    "boll_ub": lambda bars: band(bars, 1),
    "boll_lb": lambda bars: band(bars, -1),
    "atr": lambda bars: talib.ATR(bars.high, bars.low, bars.close, 14),
    "vwma": lambda bars: talib.SUM(typical(bars) * bars.volume, 14) / talib.SUM(bars.volume, 14),
    "mfi": lambda bars: talib.MFI(bars.high, bars.low, bars.close, bars.volume, 14),
}


@pytest.fixture(scope="module")
def snapshot() -> Snapshot:
    return open_snapshot("us-2013-2018", Path(__file__).parents[2] / "data")


def test_every_indicator_has_its_oracle() -> None:
    assert set(ORACLES) == set(MENU)


@pytest.mark.parametrize("ticker", ["AAPL", "AMZN", "GOOG", "META", "NFLX", "NVDA"])
def test_six_years_of_real_prices_give_what_the_second_library_gives(
    snapshot: Snapshot, ticker: str
) -> None:
    last = snapshot.bars(ticker).sessions[-1].item()
    view = AsOfView(
        snapshot,
        cutoff=datetime(2018, 12, 31, 21, tzinfo=UTC),
        session=last,
        decision_time="close",
        on_read=lambda _: None,
    )
    bars = view.bars(ticker)
    ours = compute(bars)

    for name, oracle in ORACLES.items():
        # Prices are of the order of the value's own unit: the tolerance is relative to them.
        unit = 100.0 if name in ("rsi", "mfi") else float(bars.close.mean())
        np.testing.assert_allclose(
            ours[name][FADED:], oracle(bars)[FADED:], rtol=1e-6, atol=1e-6 * unit, err_msg=name
        )
