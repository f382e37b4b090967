"""The rules of the baselines on paths whose trades are known, and against TA-Lib."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import talib

from backtester.baselines import BASELINES, PRESETS
from backtester.baselines.charts import Chart
from backtester.baselines.rules import kdj_rsi, macd, sma_cross, zmr
from tests.backtester.baselines.paths import bars_of, walk_of

KEEP = None
RULES = [
    pytest.param(name, preset, id=f"{name}-{preset}")
    for name, row in BASELINES.items()
    if row.rule is not None
    for preset in row.presets
]
Floats = npt.NDArray[np.float64]


def chart_of(closes: list[float]) -> Chart:
    return Chart(bars_of(closes))


def weights(wanted: Any) -> list[float | None]:
    return [KEEP if math.isnan(weight) else weight for weight in wanted.weight.tolist()]


# ------------------------------------------------------------------------------------------ by hand


def test_sma_cross_holds_while_the_fast_mean_is_above() -> None:
    # Means of 2:  -, 10, 10, 10.5, 11.5, 11.5, 10,    9
    # Means of 3:  -,  -, 10, 10.33, 11,  11.33, 10.67, 9.67
    wanted = sma_cross(chart_of([10, 10, 10, 11, 12, 11, 9, 9]), {"fast": 2, "slow": 3})
    assert wanted.warm_up == 3
    assert weights(wanted)[2:] == [KEEP, 1.0, 1.0, 1.0, 0.0, 0.0]


def test_macd_holds_while_its_line_is_above_its_signal_line() -> None:
    # EMA(1) is the close; EMA(3) weighs 1, 1/2, 1/4, ...: after 8, 8, 8, 16 it is 23 / 1.875, so
    # the line is 3.733 and its EMA(2), weights 1, 1/3, 1/9, 1/27, is 2.52. After one more 8 the
    # line is 8 - 19.5 / 1.9375 = -2.065, and the signal line is above it.
    wanted = macd(chart_of([8, 8, 8, 16, 8]), {"fast": 1, "slow": 3, "signal": 2})
    assert wanted.warm_up == 4
    assert weights(wanted) == [KEEP, KEEP, KEEP, 1.0, 0.0]


def test_zmr_buys_far_below_the_mean_and_leaves_far_above_it() -> None:
    # 10, 10, 13: mean 11, deviation 1.73, distance 2.  10, 13, 10: mean 11, deviation 1.73,
    # distance -1.  13, 10, 7: mean 10, deviation 3, distance -3 is not beyond it.  10, 7, 1: mean
    # 6, deviation 4.58, distance -5.
    wanted = zmr(chart_of([10, 10, 13, 10, 7, 1]), {"window": 3, "threshold": 1.0})
    assert weights(wanted)[2:] == [0.0, KEEP, KEEP, 1.0]


def test_zmr_has_no_value_where_nothing_moves() -> None:
    wanted = zmr(chart_of([7.1] * 6 + [7.2]), {"window": 3, "threshold": 1.0})
    assert wanted.undefined.tolist() == [True] * 6 + [False]
    assert weights(wanted)[2:] == [KEEP, KEEP, KEEP, KEEP, 0.0]


def test_kdj_rsi_buys_the_turn_after_a_fall_and_leaves_at_the_turn_after_a_rise() -> None:
    # All changes are falls: RSI 0, K and D sink from 50 to 0 with K below D: nothing is wanted.
    # The first rise brings the RSV to 1/8 and K above D, with an RSI below 10: a buy. Falls after
    # 40 rises: the RSV drops from 1, K below D, with an RSI above 70: the way out.
    closes = [100.0 - i for i in range(30)]
    closes += [closes[-1] + i for i in range(1, 41)]
    closes += [closes[-1] - 1]
    wanted = kdj_rsi(chart_of(closes), PRESETS["kdj_rsi"]["textbook"])
    found = weights(wanted)
    assert wanted.warm_up == 15
    assert found[14:30] == [KEEP] * 16
    assert found[30] == 1.0
    assert found[-2:] == [KEEP, 0.0]
    assert 0.0 not in found[30:-1]


def test_kdj_rsi_wants_both_conditions() -> None:
    closes = [100.0 - i for i in range(30)] + [72.0]
    eager = {**PRESETS["kdj_rsi"]["textbook"], "low": 5.0}
    assert weights(kdj_rsi(chart_of(closes), eager))[-1] is KEEP


def test_a_window_without_a_range_keeps_what_is_held() -> None:
    wanted = kdj_rsi(chart_of([50.0] * 30), PRESETS["kdj_rsi"]["textbook"])
    assert wanted.undefined.all()
    assert weights(wanted) == [KEEP] * 30


@pytest.mark.parametrize("rule", [sma_cross, macd], ids=["sma_cross", "macd"])
def test_prices_that_stand_still_cross_nothing(rule: Any) -> None:
    wanted = rule(chart_of([33.33] * 80), {"fast": 12, "slow": 26, "signal": 9})
    assert weights(wanted) == [KEEP] * 80


# ----------------------------------------------------------------------------------- what is ahead


@pytest.mark.parametrize(("name", "preset"), RULES)
def test_a_later_bar_changes_nothing_before_it(name: str, preset: str) -> None:
    row = BASELINES[name]
    assert row.rule is not None
    bars = walk_of(160, seed=3, flat=(70, 110))
    whole = row.rule(Chart(bars), row.presets[preset])
    for count in (1, 2, 15, 50, 72, 109, 111, 159):
        part = row.rule(Chart(bars_of_first(bars, count)), row.presets[preset])
        np.testing.assert_array_equal(part.weight, whole.weight[:count])
        np.testing.assert_array_equal(part.undefined, whole.undefined[:count])


def bars_of_first(bars: Any, count: int) -> Any:
    return type(bars)(**{name: getattr(bars, name)[:count] for name in bars.__dataclass_fields__})


@pytest.mark.parametrize(("name", "preset"), RULES)
def test_prices_in_another_unit_are_the_same_prices(name: str, preset: str) -> None:
    row = BASELINES[name]
    assert row.rule is not None
    bars = walk_of(200, seed=5)
    pence = type(bars)(
        sessions=bars.sessions,
        volume=bars.volume,
        **{side: getattr(bars, side) * 4.0 for side in ("open", "high", "low", "close")},
    )
    one, other = (row.rule(Chart(found), row.presets[preset]) for found in (bars, pence))
    np.testing.assert_array_equal(one.weight, other.weight)


@pytest.mark.parametrize(("name", "preset"), RULES)
def test_what_others_worked_out_on_a_chart_changes_nothing(name: str, preset: str) -> None:
    row, bars = BASELINES[name], walk_of(200, seed=7)
    assert row.rule is not None
    used = Chart(bars)
    for column in ("kdjd_5", "rsi_6", "macd", "close_10_sma", "kdjk_9", "rsi_14", "boll"):
        used.values(column)
    for one in BASELINES.values():
        for parameters in one.presets.values():
            if one.rule is not None:
                one.rule(used, parameters)
    alone, after = (row.rule(chart, row.presets[preset]) for chart in (Chart(bars), used))
    np.testing.assert_array_equal(after.weight, alone.weight)
    np.testing.assert_array_equal(after.undefined, alone.undefined)


# -------------------------------------------------------------------------------------- by TA-Lib

# From here on a recursion has forgotten how it began.
LATE = 300


def compared(ours: Floats, buy: Floats, leave: Floats) -> int:
    """Compare with conditions that hold where a number is above zero; near zero nothing is said."""
    checked = 0
    for bar in range(LATE, len(ours)):
        if min(abs(buy[bar]), abs(leave[bar])) < 1e-7:
            continue
        expected = 1.0 if buy[bar] > 0 else 0.0 if leave[bar] > 0 else math.nan
        np.testing.assert_equal(ours[bar], expected)
        checked += not math.isnan(expected)
    return checked


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("preset", ["textbook", "finagent"])
def test_talib_sees_the_same_crossings_of_macd_and_means(preset: str, seed: int) -> None:
    bars = walk_of(900, seed=seed)
    p: Any = PRESETS["macd"][preset]
    _, _, histogram = talib.MACD(bars.close, p["fast"], p["slow"], p["signal"])
    assert compared(macd(Chart(bars), p).weight, histogram, -histogram) > 590
    p = PRESETS["sma_cross"][preset]
    apart = talib.SMA(bars.close, p["fast"]) - talib.SMA(bars.close, p["slow"])
    assert compared(sma_cross(Chart(bars), p).weight, apart, -apart) > 590


@pytest.mark.parametrize("preset", ["textbook", "finagent"])
def test_talib_sees_the_same_distances_from_the_mean(preset: str) -> None:
    bars = walk_of(900, seed=4)
    p: Any = PRESETS["zmr"][preset]
    window = p["window"]
    # TA-Lib takes the deviation of a population, the rule that of a sample.
    sample = talib.STDDEV(bars.close, window) * math.sqrt(window / (window - 1))
    z = (bars.close - talib.SMA(bars.close, window)) / sample
    assert compared(zmr(Chart(bars), p).weight, -1.0 - z, z - 1.0) > 200


@pytest.mark.parametrize("preset", ["textbook", "finagent"])
def test_talib_s_stochastic_and_rsi_give_the_same_signals(preset: str) -> None:
    bars = walk_of(3_000, seed=6)
    p: Any = PRESETS["kdj_rsi"][preset]
    rsv, _ = talib.STOCHF(bars.high, bars.low, bars.close, fastk_period=p["kdj"], fastd_period=1)
    k = d = 50.0
    apart = np.zeros(len(bars))
    for bar, place in enumerate(rsv.tolist()):
        if math.isnan(place):
            continue
        k = k * 2 / 3 + place / 3
        d = d * 2 / 3 + k / 3
        apart[bar] = k - d
    rsi = talib.RSI(bars.close, p["rsi"])
    buy = np.minimum(p["low"] - rsi, apart)
    leave = np.minimum(rsi - p["high"], -apart)
    assert compared(kdj_rsi(Chart(bars), p).weight, buy, leave) > (
        20 if preset == "textbook" else 200
    )
