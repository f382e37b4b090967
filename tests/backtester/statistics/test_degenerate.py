"""Whatever a figure is made of, it is a finite number, or None with a reason; nothing fails."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import fields
from datetime import date, timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from backtester.statistics.inference import mean_interval, spread_interval
from backtester.statistics.metrics import Measure, exposure, hit_rate, performance, turnover
from backtester.statistics.moments import moments
from backtester.statistics.overfit import (
    deflated_sharpe,
    expected_best_sharpe,
    min_track_record_length,
    pbo,
    probabilistic_sharpe,
)
from backtester.statistics.permutation import path_permutation, sign_test
from backtester.statistics.ranking import monotonicity, rank_ic

SIZES = (1e-300, 1e-160, 1e-17, 1.0, 1e17, 1e160, 1e300)
size = st.sampled_from(SIZES)
positive = st.one_of(size, st.floats(1e-300, 1e300), st.floats(0.5, 2.0))
number = st.one_of(st.just(0.0), positive, positive.map(lambda row: -row), st.floats(-1e300, 1e300))
K = st.sampled_from([None, 1.0, 252.0, 1e300])


def finite_or_said(found: object, allowed: Iterable[str] = ()) -> None:
    """Hold every number of a result finite, and say that what is None has a reason."""
    for field in fields(found):  # type: ignore[arg-type]
        row = getattr(found, field.name)
        for one in row if isinstance(row, tuple) else (row,):
            if isinstance(one, float):
                assert math.isfinite(one), (field.name, found)


def said(measures: Mapping[str, Measure] | list[Measure]) -> None:
    for measure in measures.values() if isinstance(measures, Mapping) else measures:
        finite_or_said(measure)
        assert (measure.value is None) == (measure.reason is not None), measure
        if measure.precision is not None:
            finite_or_said(measure.precision)
            shown = measure.precision.low is not None
            assert shown == (measure.precision.reason is None), measure
            assert measure.value is not None


def days(count: int, step: int) -> list[date]:
    return [date(2017, 1, 2) + timedelta(days=step * place) for place in range(count)]


@given(
    equity=st.lists(st.one_of(positive, number), max_size=30),
    levels=st.lists(st.one_of(st.none(), positive), min_size=30, max_size=30),
    k=K,
    rf=st.sampled_from([0.0, 0.05, -0.5]),
    step=st.sampled_from([1, 90]),
)
@example(equity=[1.0] * 30, levels=[1.0] * 30, k=252.0, rf=0.0, step=1)
@example(equity=[1.0] * 30, levels=[None] * 30, k=252.0, rf=0.05, step=1)
@example(equity=[1e300, 1e-300] * 15, levels=[1e-300, 1e300] * 15, k=252.0, rf=0.0, step=1)
@example(equity=[1e300] + [1e-300] * 29, levels=[1e300] * 29 + [1e-300], k=1.0, rf=0.0, step=90)
@example(equity=[1.0, 1e70] * 15, levels=[1.0, 1e70] * 15, k=1e300, rf=0.0, step=90)
@example(
    equity=[100.0 + 1e-12 * (i % 2) for i in range(30)], levels=[1.0] * 30, k=1.0, rf=0.0, step=1
)
def test_performance(
    equity: list[float], levels: list[float | None], k: float | None, rf: float, step: int
) -> None:
    dates = days(len(equity), step)
    bench = levels[: len(equity)]
    said(performance(equity, dates, periods_per_year=k, benchmark=bench, rf_annual=rf))
    said(performance(equity, dates, periods_per_year=k, rf_annual=rf))


@given(
    rows=st.lists(number, max_size=12),
    equity=st.lists(st.one_of(positive, number), max_size=12),
    years=st.one_of(st.none(), st.sampled_from([0.0, 1e-300, 1.0, 1e300])),
)
@example(rows=[1e308, 1e308], equity=[1.0], years=1.0)
def test_small_figures(rows: list[float], equity: list[float], years: float | None) -> None:
    said([turnover(rows, equity, years=years), hit_rate(rows)])
    said(exposure(rows))


@given(rows=st.lists(number, max_size=12))
@example(rows=[1.7e308, -1.7e308, 1.0, 2.0])
@example(rows=[1e-300, 2e-300, 3e-300, 9e-300])
def test_moments(rows: list[float]) -> None:
    finite_or_said(moments(rows))


def interval_is_said(found: Any) -> None:
    finite_or_said(found)
    assert (found.low is None) == (found.reason is not None), found
    assert found.mean is not None or found.reason, found


@given(
    values=st.lists(number, max_size=40),
    other=st.lists(number, max_size=20),
    horizon=st.sampled_from([1, 2, 20, 10**6]),
    gap=st.sampled_from([0, 1, 7]),
)
@example(values=[1e300, -1e300] * 20, other=[1e300] * 20, horizon=1, gap=1)
@example(values=[1.0] * 40, other=[1.0] * 20, horizon=1, gap=1)
@example(values=[1.0] * 40, other=[1.0] * 20, horizon=1, gap=0)
@example(values=[float(i % 3) * 1e-300 for i in range(40)], other=[1.0] * 20, horizon=1, gap=1)
def test_intervals(values: list[float], other: list[float], horizon: int, gap: int) -> None:
    places = [gap * place for place in range(len(values))]
    interval_is_said(mean_interval(values, places, horizon))
    elsewhere = [gap * place for place in range(len(other))]
    interval_is_said(spread_interval(values, places, other, elsewhere, horizon))
    signs = sign_test(values, places, horizon)
    finite_or_said(signs)
    assert (signs.p_value is None) == (signs.reason is not None)


@given(
    shape=st.tuples(st.integers(0, 15), st.integers(0, 5)),
    alphas=st.lists(st.one_of(st.just(math.nan), number), min_size=75, max_size=75),
    ratings=st.lists(
        st.sampled_from([math.nan, -2.0, -1.0, 0.0, 1.0, 2.0]), min_size=75, max_size=75
    ),
)
@example(shape=(15, 5), alphas=[1.0] * 75, ratings=[1.0] * 75)
@example(shape=(15, 5), alphas=[math.nan] * 75, ratings=[1.0] * 75)
@example(shape=(15, 5), alphas=[1e300] * 75, ratings=[2.0, -2.0, 1.0] * 25)
def test_tables(shape: tuple[int, int], alphas: list[float], ratings: list[float]) -> None:
    cells = shape[0] * shape[1]
    a, r = np.array(alphas[:cells]).reshape(shape), np.array(ratings[:cells]).reshape(shape)
    for kind in ("spearman", "kendall"):
        interval_is_said(rank_ic(r, a, list(range(shape[0])), 2, kind=kind).mean)
    paths = path_permutation(r, a, seed=1, draws=20)
    finite_or_said(paths)
    assert (paths.p_value is None) == (paths.reason is not None)
    groups = {
        rank: [row for row in a[r == rank].tolist() if not math.isnan(row)] for rank in range(-2, 3)
    }
    said([monotonicity(groups)])


@given(
    sharpe=number,
    n=st.integers(0, 10**6),
    skew=number,
    kurtosis=number,
    trials=st.sampled_from([1, 2, 10**9]),
    variance=st.one_of(st.just(0.0), positive),
    threshold=number,
)
@example(sharpe=1e300, n=5, skew=0.0, kurtosis=3.0, trials=2, variance=1.0, threshold=0.0)
@example(sharpe=1e-300, n=5, skew=0.0, kurtosis=3.0, trials=2, variance=1.0, threshold=0.0)
def test_ratios_after_many_trials(
    sharpe: float,
    n: int,
    skew: float,
    kurtosis: float,
    trials: int,
    variance: float,
    threshold: float,
) -> None:
    shape = {"skew": skew, "kurtosis": kurtosis}
    assert math.isfinite(expected_best_sharpe(trials=trials, variance_of_trials=variance))
    said(
        [
            probabilistic_sharpe(sharpe, n=n, threshold=threshold, **shape),
            deflated_sharpe(sharpe, n=n, trials=trials, variance_of_trials=variance, **shape),
            min_track_record_length(sharpe, threshold=threshold, **shape),
        ]
    )


@given(
    rows=st.lists(st.lists(number, min_size=3, max_size=3), max_size=14),
    blocks=st.sampled_from([2, 4]),
)
@example(rows=[[1e300, -1e300, 1.0]] * 14, blocks=2)
@example(rows=[[0.0, 0.0, 0.0]] * 14, blocks=4)
def test_overfitting(rows: list[list[float]], blocks: int) -> None:
    found = pbo(np.array(rows).reshape(len(rows), 3), blocks=blocks)
    finite_or_said(found)
    assert (found.pbo is None) == (found.reason is not None)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_a_single_session_and_none_at_all(count: int) -> None:
    equity = [100.0, 101.0, 99.0][:count]
    found = performance(equity, days(count, 1), periods_per_year=252.0, benchmark=equity)
    said(found)
    assert found["sharpe"].value is None
