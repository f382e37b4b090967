"""Bars with the indicators that were worked out on them, for rules that share these."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pandas as pd
from stockstats import StockDataFrame

from tradingagents_core.protocols import Bars

Floats = npt.NDArray[np.float64]


class Chart:
    """Hold bars, and each indicator from when it is first asked for.

    Attributes:
        bars: Of one ticker.
    """

    def __init__(self, bars: Bars) -> None:
        """Begin with the bars alone."""
        self.bars = bars

    def values(self, column: str) -> Floats:
        """Return an indicator after every bar.

        Args:
            column: As stockstats names it, with its window.
        """
        # The frame keeps every column that it has worked out.
        with quiet():
            return np.array(self._frame[column], dtype=np.float64)

    @cached_property
    def _frame(self) -> StockDataFrame:
        bars = self.bars
        columns = {
            "open": bars.open,
            "high": bars.high,
            "low": bars.low,
            "close": bars.close,
            "volume": bars.volume,
        }
        return StockDataFrame(pd.DataFrame(columns))


def quiet() -> AbstractContextManager[object]:
    """Return what keeps a row far in the future from raising, even as a numeric warning."""
    return np.errstate(all="ignore")
