"""The indicators against definitions written out by hand, and as functions of the past alone."""

from __future__ import annotations

import itertools
import math
import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.fixed_view import bars_of
from tradingagents_core.indicators import FIGURES, MENU, compute, summarize
from tradingagents_core.protocols import Bars

SEED_FADED = 260


def day(number: int) -> str:
    return str(np.datetime64("2015-01-01") + number)


def random_bars(count: int, seed: int = 7) -> Bars:
    draw = np.random.Generator(np.random.PCG64(seed))
    close = 100 * np.cumprod(1 + draw.normal(0.0003, 0.02, count))
    opened = close * (1 + draw.normal(0, 0.005, count))
    high = np.maximum(opened, close) * (1 + np.abs(draw.normal(0, 0.005, count)))
    low = np.minimum(opened, close) * (1 - np.abs(draw.normal(0, 0.005, count)))
    volume = draw.integers(1, 10**7, count).astype(float)
    return bars_of(
        [day(number) for number in range(count)],
        close.tolist(),
        open=opened.tolist(),
        high=high.tolist(),
        low=low.tolist(),
        volume=volume.tolist(),
    )


def head(bars: Bars, count: int) -> Bars:
    return Bars(
        sessions=bars.sessions[:count],
        open=bars.open[:count],
        high=bars.high[:count],
        low=bars.low[:count],
        close=bars.close[:count],
        volume=bars.volume[:count],
    )


# -- definitions, one value at a time, with exact sums


def mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)


def fading_mean(values: list[float], keep: float) -> float:
    """Weight the newest value 1, the one before `keep`, then `keep` squared ..."""
    weights = [keep**age for age in range(len(values) - 1, -1, -1)]
    weighted = math.fsum(w * value for w, value in zip(weights, values, strict=True))
    return weighted / math.fsum(weights)


def ema(values: list[float], span: int) -> float:
    return fading_mean(values, 1 - 2 / (span + 1))


def changes(values: list[float]) -> list[float]:
    return [now - before for before, now in itertools.pairwise(values)]


def macd_line(close: list[float]) -> list[float]:
    return [ema(close[: at + 1], 12) - ema(close[: at + 1], 26) for at in range(len(close))]


def true_ranges(bars: Bars) -> list[float]:
    ranges = [float(bars.high[0] - bars.low[0])]
    for at in range(1, len(bars)):
        before = float(bars.close[at - 1])
        high, low = float(bars.high[at]), float(bars.low[at])
        ranges.append(max(high - low, abs(high - before), abs(low - before)))
    return ranges


def expected(bars: Bars) -> dict[str, float]:
    close = bars.close.tolist()
    volume = bars.volume.tolist()
    typical = [
        (high + low + last) / 3
        for high, low, last in zip(bars.high.tolist(), bars.low.tolist(), close, strict=True)
    ]
    moves = changes(close)
    gains = fading_mean([max(move, 0) for move in moves], 13 / 14)
    losses = fading_mean([max(-move, 0) for move in moves], 13 / 14)
    line = macd_line(close)
    signal = ema(line, 9)
    middle, deviation = mean(close[-20:]), statistics.stdev(close[-20:])
    # Rounded, for equal typical prices differ in their last bit.
    typical_moves = changes([round(price, 9) for price in typical])
    flows = list(zip(typical_moves[-14:], typical[-14:], volume[-14:], strict=True))
    inflow = math.fsum(price * shares for move, price, shares in flows if move > 0)
    outflow = math.fsum(price * shares for move, price, shares in flows if move < 0)
    traded = math.fsum(price * shares for _, price, shares in flows)
    return {
        "close_50_sma": mean(close[-50:]),
        "close_200_sma": mean(close[-200:]),
        "close_10_ema": ema(close, 10),
        "macd": line[-1],
        "macds": signal,
        "macdh": line[-1] - signal,
        "rsi": 100 * gains / (gains + losses),
        "boll": middle,
        "boll_ub": middle + 2 * deviation,
        "boll_lb": middle - 2 * deviation,
        "atr": fading_mean(true_ranges(bars), 13 / 14),
        "vwma": traded / math.fsum(volume[-14:]),
        "mfi": 100 * inflow / (inflow + outflow),
    }


@pytest.mark.parametrize("count", [200, 201, 333])
@pytest.mark.parametrize("name", MENU)
def test_an_indicator_equals_its_definition(name: str, count: int) -> None:
    bars = random_bars(count)
    assert compute(bars)[name][-1] == pytest.approx(expected(bars)[name], abs=1e-9, rel=1e-9)


# -- the textbook's recursions, which start elsewhere and arrive at the same place


def recursion(values: list[float], alpha: float, seed: int) -> float:
    state = mean(values[:seed])
    for value in values[seed:]:
        state += alpha * (value - state)
    return state


def test_an_ema_meets_the_recursion_once_its_seed_has_faded() -> None:
    bars = random_bars(SEED_FADED)
    close = bars.close.tolist()
    for seed in (1, 10):
        assert compute(bars)["close_10_ema"][-1] == pytest.approx(
            recursion(close, 2 / 11, seed), abs=1e-6
        )


def test_rsi_meets_wilders_own_once_the_seed_has_faded() -> None:
    bars = random_bars(SEED_FADED)
    moves = changes(bars.close.tolist())
    gains = recursion([max(move, 0) for move in moves], 1 / 14, 14)
    losses = recursion([max(-move, 0) for move in moves], 1 / 14, 14)
    assert compute(bars)["rsi"][-1] == pytest.approx(100 - 100 / (1 + gains / losses), abs=1e-6)


def test_atr_meets_wilders_own_once_the_seed_has_faded() -> None:
    bars = random_bars(SEED_FADED)
    assert compute(bars)["atr"][-1] == pytest.approx(
        recursion(true_ranges(bars)[1:], 1 / 14, 14), abs=1e-6
    )


def test_bollinger_bands_take_the_sample_deviation() -> None:
    bars = bars_of([day(n) for n in range(20)], [float(n % 2) for n in range(20)])
    series = compute(bars)
    # Ten zeros and ten ones: squares sum to 5, so the sample variance is 5/19.
    assert series["boll"][-1] == pytest.approx(0.5, abs=1e-12)
    assert series["boll_ub"][-1] == pytest.approx(0.5 + 2 * math.sqrt(5 / 19), abs=1e-12)


@pytest.mark.parametrize("spread", [0.1, 0.2, 0.3, 0.6, 0.7, 1.1, 1.3])
def test_sessions_with_equal_typical_prices_add_and_take_no_money(spread: float) -> None:
    # Each session is 0.3 above the last, but for the last one: high and low part, their sum stays.
    close = [10 + 0.3 * step for step in range(14)]
    close.append(close[-1])
    high, low = list(close), list(close)
    high[-1], low[-1] = close[-1] + spread, close[-1] - spread
    series = compute(bars_of([day(n) for n in range(15)], close, high=high, low=low))
    assert series["mfi"][-1] == 100.0


# -- short history, no volume, and the past alone


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("close_50_sma", 50),
        ("close_200_sma", 200),
        ("close_10_ema", 10),
        ("macd", 26),
        ("macds", 34),
        ("macdh", 34),
        ("rsi", 15),
        ("boll", 20),
        ("boll_ub", 20),
        ("boll_lb", 20),
        ("atr", 14),
        ("vwma", 14),
        ("mfi", 15),
    ],
)
def test_a_value_begins_when_its_window_is_full(name: str, first: int) -> None:
    values = compute(random_bars(220))[name]
    assert np.isnan(values[: first - 1]).all()
    assert np.isfinite(values[first - 1 :]).all()


def test_the_menu_has_the_thirteen_names_in_order() -> None:
    assert " ".join(MENU) == (
        "close_50_sma close_200_sma close_10_ema macd macds macdh rsi boll boll_ub boll_lb atr "
        "vwma mfi"
    )


@pytest.mark.parametrize("count", [0, 1, 2])
def test_next_to_no_history_gives_no_values_and_no_error(count: int) -> None:
    for values in compute(random_bars(count)).values():
        assert len(values) == count
        assert np.isnan(values).all()


def test_volume_weighted_indicators_are_missing_where_nothing_was_traded() -> None:
    bars = random_bars(60)
    bars.volume[20:50] = 0.0
    series = compute(bars)
    for name in ("vwma", "mfi"):
        assert np.isnan(series[name][33:50]).all()  # fourteen sessions without a share
        assert np.isfinite(series[name][32])
        assert np.isfinite(series[name][50])
    assert np.isfinite(series["boll"][33:50]).all()


def test_the_values_cannot_be_written_to() -> None:
    values = compute(random_bars(30))["boll"]
    with pytest.raises(ValueError, match="read-only"):
        values[-1] = 0.0


prices = st.floats(min_value=0.01, max_value=1e6)


@settings(max_examples=50)
@given(
    past=st.lists(st.tuples(prices, prices, prices, st.integers(0, 10**9)), max_size=80),
    future=st.lists(
        st.tuples(
            st.floats(allow_nan=True, allow_infinity=True),
            st.floats(allow_nan=True, allow_infinity=True),
            st.floats(allow_nan=True, allow_infinity=True),
            st.floats(allow_nan=True, allow_infinity=True),
        ),
        max_size=20,
    ),
)
def test_a_prefix_of_the_series_is_the_series_of_the_prefix_bit_for_bit(
    past: list[tuple[float, ...]], future: list[tuple[float, ...]]
) -> None:
    rows = [*past, *future]
    bars = bars_of(
        [day(number) for number in range(len(rows))],
        [row[0] for row in rows],
        high=[row[1] for row in rows],
        low=[row[2] for row in rows],
        volume=[row[3] for row in rows],
    )
    whole, cut = compute(bars), compute(head(bars, len(past)))
    for name in MENU:
        assert whole[name][: len(past)].tobytes() == cut[name].tobytes()


# -- summary figures


def test_the_summary_figures_by_hand() -> None:
    close = [100.0] * 189 + [100.0] * 41 + [110.0] + [121.0] * 21
    high = [price + 1 for price in close]
    low = [price - 1 for price in close]
    high[10], low[20] = 160.0, 80.0
    bars = bars_of([day(n) for n in range(252)], close, high=high, low=low)
    figures = summarize(bars)
    assert tuple(figures) == FIGURES
    assert figures["return_21d"] == pytest.approx(121 / 110 - 1)
    assert figures["return_63d"] == pytest.approx(0.21)
    assert figures["high_52w"] == 160.0
    assert figures["low_52w"] == 80.0
    assert figures["drawdown_from_52w_high"] == pytest.approx(121 / 160 - 1)
    # One return of 10 % and twenty of zero: mean 0.1/21, squares 0.01 - 0.01/21, over 20.
    assert figures["volatility_21d"] == pytest.approx(math.sqrt((0.01 - 0.01 / 21) / 20))


@pytest.mark.parametrize(
    ("count", "missing"),
    [
        (0, set(FIGURES)),
        (21, set(FIGURES)),
        (22, set(FIGURES) - {"return_21d", "volatility_21d"}),
        (64, {"high_52w", "low_52w", "drawdown_from_52w_high"}),
        (251, {"high_52w", "low_52w", "drawdown_from_52w_high"}),
        (252, set()),
    ],
)
def test_a_figure_is_missing_where_history_is_too_short(count: int, missing: set[str]) -> None:
    figures = summarize(random_bars(count))
    assert {name for name, value in figures.items() if math.isnan(value)} == missing


def test_the_range_of_52_weeks_forgets_what_is_older() -> None:
    bars = random_bars(300)
    bars.high[47] = 1e6  # the 253rd bar from the end
    assert summarize(bars)["high_52w"] < 1e6
    bars.high[48] = 1e6  # the 252nd
    assert summarize(bars)["high_52w"] == 1e6
