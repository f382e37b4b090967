"""Performance figures against quantstats, ffn and scipy.

Where a library defines a figure otherwise, the test says how and holds both values.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType

import pandas as pd
import pytest
import scipy.stats

from backtester.statistics.metrics import Measure, performance, year_fraction
from tests.oracles.series import CASES, Case

K = 252.0
NEAR = 1e-9


@pytest.fixture(params=sorted(CASES))
def series(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


def ours(series: Case, rf: float = 0.0) -> Mapping[str, Measure]:
    return performance(
        series.equity.tolist(),
        series.dates,
        periods_per_year=K,
        benchmark=series.benchmark.tolist(),
        rf_annual=rf,
    )


def value(found: Mapping[str, Measure], name: str) -> float:
    figure = found[name].value
    assert figure is not None
    return figure


def returns(series: Case) -> pd.Series:
    return pd.Series(series.returns, index=pd.DatetimeIndex(series.dates[1:]))


def benchmark(series: Case) -> pd.Series:
    return pd.Series(series.benchmark_returns, index=pd.DatetimeIndex(series.dates[1:]))


def prices(series: Case) -> pd.Series:
    return pd.Series(series.equity, index=pd.DatetimeIndex(series.dates))


# ------------------------------------------------------------------------------------- quantstats


def test_quantstats_agrees_on_returns_and_risk(qs: ModuleType, series: Case) -> None:
    found, rows = ours(series), returns(series)
    assert value(found, "total_return") == pytest.approx(qs.comp(rows), abs=NEAR)
    assert value(found, "volatility") == pytest.approx(qs.volatility(rows, periods=K), abs=NEAR)
    assert value(found, "sharpe") == pytest.approx(qs.sharpe(rows, periods=K), abs=NEAR)
    assert value(found, "sortino") == pytest.approx(qs.sortino(rows, periods=K), abs=NEAR)
    assert value(found, "max_drawdown") == pytest.approx(qs.max_drawdown(rows), abs=NEAR)


def test_quantstats_agrees_with_a_risk_free_rate(qs: ModuleType, series: Case) -> None:
    found, rows = ours(series, rf=0.03), returns(series)
    assert value(found, "sharpe") == pytest.approx(qs.sharpe(rows, rf=0.03, periods=K), abs=NEAR)
    assert value(found, "sortino") == pytest.approx(qs.sortino(rows, rf=0.03, periods=K), abs=NEAR)


def test_quantstats_agrees_on_beta_and_alpha(qs: ModuleType, series: Case) -> None:
    found = ours(series)
    greeks = qs.greeks(returns(series), benchmark(series), periods=K, prepare_returns=False)
    assert value(found, "beta") == pytest.approx(greeks["beta"], abs=NEAR)
    assert value(found, "jensen_alpha") == pytest.approx(greeks["alpha"], abs=NEAR)


def test_quantstats_counts_252_rows_as_a_year_and_the_product_the_calendar(
    qs: ModuleType, series: Case
) -> None:
    found, rows = ours(series), returns(series)
    grown = 1.0 + value(found, "total_return")
    years = year_fraction(series.dates[0], series.dates[-1])
    theirs = qs.cagr(rows, periods=252)
    assert theirs == pytest.approx(grown ** (252 / len(rows)) - 1, abs=NEAR)
    assert value(found, "cagr") == pytest.approx(grown ** (1 / years) - 1, abs=NEAR)
    assert abs(theirs - value(found, "cagr")) > 1e-4
    depth = abs(value(found, "max_drawdown"))
    assert qs.calmar(rows, periods=252) == pytest.approx(theirs / depth, abs=NEAR)
    assert value(found, "calmar") == pytest.approx(value(found, "cagr") / depth, abs=NEAR)


def test_quantstats_leaves_the_information_ratio_a_session_and_the_product_annualises(
    qs: ModuleType, series: Case
) -> None:
    theirs = qs.information_ratio(returns(series), benchmark(series), prepare_returns=False)
    assert value(ours(series), "information_ratio") == pytest.approx(theirs * K**0.5, abs=NEAR)


# -------------------------------------------------------------------------------------------- ffn


def test_ffn_agrees_on_returns_and_risk(ffn: ModuleType, series: Case) -> None:
    found, rows = ours(series, rf=0.02), returns(series)
    assert value(found, "total_return") == pytest.approx(
        ffn.calc_total_return(prices(series)), abs=NEAR
    )
    assert value(found, "sharpe") == pytest.approx(
        ffn.calc_sharpe(rows, rf=0.02, nperiods=K), abs=NEAR
    )
    assert value(found, "sortino") == pytest.approx(
        ffn.calc_sortino_ratio(rows, rf=0.02, nperiods=K), abs=NEAR
    )
    assert value(found, "max_drawdown") == pytest.approx(
        ffn.calc_max_drawdown(prices(series)), abs=NEAR
    )
    theirs = ffn.calc_information_ratio(rows, benchmark(series))
    assert value(found, "information_ratio") == pytest.approx(theirs * K**0.5, abs=NEAR)


def test_ffn_has_a_year_of_365_25_days_and_the_product_anniversaries(
    ffn: ModuleType, series: Case
) -> None:
    found = ours(series)
    grown = 1.0 + value(found, "total_return")
    days = (series.dates[-1] - series.dates[0]).days
    theirs = ffn.calc_cagr(prices(series))
    assert theirs == pytest.approx(grown ** (365.25 / days) - 1, abs=NEAR)
    assert value(found, "cagr") == pytest.approx(theirs, rel=0.01)
    depth = abs(value(found, "max_drawdown"))
    assert ffn.calc_calmar_ratio(prices(series)) == pytest.approx(theirs / depth, abs=NEAR)
    # Doubling from a date to the same date a year on: 100 % here, 100.1 % there.
    year = pd.Series([1.0, 2.0], index=pd.DatetimeIndex(["2017-01-03", "2018-01-03"]))
    assert ffn.calc_cagr(year) == pytest.approx(1.00095, abs=5e-6)
    dates = [stamp.date() for stamp in year.index]
    assert value(performance([1.0, 2.0], dates, periods_per_year=K), "cagr") == 1.0


# ------------------------------------------------------------------------------------------ scipy


def test_scipy_agrees_on_the_standard_error_of_alpha(series: Case) -> None:
    found = ours(series, rf=0.02)
    rf = 1.02 ** (1 / K) - 1
    fit = scipy.stats.linregress(series.benchmark_returns - rf, series.returns - rf)
    assert value(found, "beta") == pytest.approx(fit.slope, abs=NEAR)
    assert value(found, "jensen_alpha") == pytest.approx(fit.intercept * K, abs=NEAR)
    assert value(found, "jensen_alpha_se") == pytest.approx(fit.intercept_stderr * K, abs=NEAR)


def test_pandas_agrees_on_skew_and_kurtosis(series: Case) -> None:
    found, rows = ours(series), returns(series)
    assert value(found, "skew") == pytest.approx(rows.skew(), abs=NEAR)
    assert value(found, "kurtosis") == pytest.approx(rows.kurt() + 3.0, abs=NEAR)
