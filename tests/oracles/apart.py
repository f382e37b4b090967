"""Figures against empyrical and alphalens; `make oracles` runs this in an environment of its own.

Not collected by the suite: both pin a library that the product's own need newer.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
import pytest

from backtester.statistics.metrics import Measure, performance
from backtester.statistics.ranking import rank_ic
from tests.oracles.series import CASES, Case

empyrical = pytest.importorskip("empyrical")
alphalens = pytest.importorskip("alphalens.performance")

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


def test_empyrical_agrees_on_returns_and_risk(series: Case) -> None:
    rf = 1.03 ** (1 / K) - 1
    found, rows = ours(series, rf=0.03), series.returns
    near = {
        "total_return": empyrical.cum_returns_final(rows),
        "volatility": empyrical.annual_volatility(rows, annualization=K),
        "sharpe": empyrical.sharpe_ratio(rows, risk_free=rf, annualization=K),
        "sortino": empyrical.sortino_ratio(rows, required_return=rf, annualization=K),
        "downside_deviation": empyrical.downside_risk(rows, required_return=rf, annualization=K),
        "max_drawdown": empyrical.max_drawdown(rows),
    }
    for name, theirs in near.items():
        assert value(found, name) == pytest.approx(theirs, abs=NEAR), name


def test_empyrical_agrees_on_beta_and_on_the_ratio_of_the_difference(series: Case) -> None:
    found, other = ours(series), series.benchmark_returns
    assert value(found, "beta") == pytest.approx(empyrical.beta(series.returns, other), abs=NEAR)
    theirs = empyrical.excess_sharpe(series.returns, other) * K**0.5
    assert value(found, "information_ratio") == pytest.approx(theirs, abs=NEAR)


def test_empyrical_compounds_alpha_and_the_product_multiplies_it(series: Case) -> None:
    found = ours(series)
    theirs = empyrical.alpha(series.returns, series.benchmark_returns, annualization=K)
    a_session = value(found, "jensen_alpha") / K
    assert theirs == pytest.approx((1.0 + a_session) ** K - 1.0, abs=NEAR)
    assert abs(theirs - value(found, "jensen_alpha")) > 1e-5


def test_empyrical_counts_252_rows_as_a_year_and_the_product_the_calendar(series: Case) -> None:
    found = ours(series)
    grown = 1.0 + value(found, "total_return")
    theirs = empyrical.annual_return(series.returns, annualization=K)
    assert theirs == pytest.approx(grown ** (K / len(series.returns)) - 1.0, abs=NEAR)
    assert value(found, "cagr") == pytest.approx(
        grown ** (1.0 / value(found, "years")) - 1.0, abs=NEAR
    )
    assert abs(theirs - value(found, "cagr")) > 1e-4
    depth = abs(value(found, "max_drawdown"))
    assert empyrical.calmar_ratio(series.returns, annualization=K) == pytest.approx(
        theirs / depth, abs=NEAR
    )


def test_alphalens_agrees_on_the_rank_ic_of_every_session() -> None:
    generator = np.random.Generator(np.random.PCG64(3))
    ratings, alphas = generator.integers(-2, 3, (70, 8)), generator.normal(size=(70, 8))
    index = pd.MultiIndex.from_product(
        [pd.bdate_range("2018-01-02", periods=70), list("ABCDEFGH")], names=["date", "asset"]
    )
    table = pd.DataFrame(
        {"1D": alphas.ravel(), "factor": ratings.ravel().astype(float), "factor_quantile": 1},
        index=index,
    )
    theirs = alphalens.factor_information_coefficient(table)["1D"]
    found = rank_ic(ratings, alphas, range(70), 1)
    assert list(found.by_session) == pytest.approx(theirs.tolist(), abs=NEAR)
    means = alphalens.mean_information_coefficient(table)
    assert found.mean.mean == pytest.approx(float(means["1D"]), abs=NEAR)
