"""Rank correlations against scipy and pandas."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.stats

from backtester.statistics.permutation import sign_test
from backtester.statistics.ranking import average_ranks, kendall_tau_b, rank_ic, spearman

NEAR = 1e-12


@pytest.mark.parametrize("seed", range(5))
def test_scipy_and_pandas_agree_on_rank_correlations_with_ties(seed: int) -> None:
    generator = np.random.Generator(np.random.PCG64(seed))
    n = int(generator.integers(5, 60))
    x = generator.integers(-2, 3, n).astype(float)
    y = np.round(generator.normal(size=n), seed)
    assert average_ranks(x.tolist()) == tuple(scipy.stats.rankdata(x))
    rho = spearman(x.tolist(), y.tolist()).value
    assert rho == pytest.approx(scipy.stats.spearmanr(x, y).statistic, abs=NEAR)
    assert rho == pytest.approx(pd.Series(x).corr(pd.Series(y), method="spearman"), abs=NEAR)
    tau = kendall_tau_b(x.tolist(), y.tolist()).value
    assert tau == pytest.approx(scipy.stats.kendalltau(x, y).statistic, abs=NEAR)


def test_the_mean_rank_ic_is_pandas_mean_of_the_rows() -> None:
    generator = np.random.Generator(np.random.PCG64(9))
    ratings, alphas = generator.integers(-2, 3, (80, 9)), generator.normal(size=(80, 9))
    rows = pd.DataFrame(ratings).corrwith(pd.DataFrame(alphas), axis=1, method="spearman")
    found = rank_ic(ratings, alphas, range(80), 1)
    assert found.mean.mean == pytest.approx(rows.mean(), abs=NEAR)


def test_with_windows_apart_the_t_of_the_mean_is_near_the_plain_one_but_not_it() -> None:
    # scipy's t takes all 250 sessions for independent and has 249 degrees of freedom; the
    # product's has the 47 of its cosines, so that it stays right where windows overlap.
    generator = np.random.Generator(np.random.PCG64(10))
    ratings, alphas = generator.integers(-2, 3, (250, 9)), generator.normal(size=(250, 9))
    found = rank_ic(ratings + 3.0, alphas, range(250), 1)
    values = [value for value in found.by_session if value is not None]
    plain = scipy.stats.ttest_1samp(values, 0.0)
    assert found.mean.statistic == pytest.approx(plain.statistic, rel=0.25)
    assert found.mean.degrees == pytest.approx(47.0)
    assert plain.df == 249


def test_scipy_agrees_on_the_sign_test() -> None:
    generator = np.random.Generator(np.random.PCG64(12))
    values = generator.normal(0.2, 1.0, 90)
    found = sign_test(values.tolist(), range(90), 3)
    heads = int((values[::3] > 0).sum())
    assert found.positive == heads
    exact = scipy.stats.binomtest(heads, 30, alternative="greater").pvalue
    assert found.p_value == pytest.approx(exact, abs=NEAR)
