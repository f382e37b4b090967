"""Probabilistic and deflated Sharpe ratios and PBO against quantstats and ffn."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pandas as pd
import pytest

from backtester.statistics.moments import moments
from backtester.statistics.overfit import (
    deflated_sharpe,
    expected_best_sharpe,
    pbo,
    probabilistic_sharpe,
)
from tests.oracles.series import CASES

K = 252.0
NEAR = 1e-9
GENERATOR = np.random.Generator(np.random.PCG64(31))
TRIALS = 0.0003 + 0.01 * GENERATOR.standard_t(5, (480, 12))


@pytest.mark.parametrize("name", sorted(CASES))
def test_quantstats_agrees_on_the_probabilistic_sharpe_ratio(qs: ModuleType, name: str) -> None:
    rows = CASES[name].returns
    m = moments(rows.tolist())
    assert m.deviation
    assert m.mean is not None
    assert m.skew is not None
    assert m.kurtosis is not None
    found = probabilistic_sharpe(m.mean / m.deviation, n=m.n, skew=m.skew, kurtosis=m.kurtosis)
    series = pd.Series(rows, index=pd.DatetimeIndex(CASES[name].dates[1:]))
    assert found.value == pytest.approx(qs.probabilistic_sharpe_ratio(series, periods=K), abs=NEAR)


def test_ffn_agrees_on_the_deflated_sharpe_ratio_and_its_hurdle(ffn: ModuleType) -> None:
    sharpes = TRIALS.mean(axis=0) / TRIALS.std(axis=0, ddof=1)
    variance = float(sharpes.var(ddof=1))
    assert expected_best_sharpe(trials=12, variance_of_trials=variance) == pytest.approx(
        ffn.calc_expected_max_sharpe(12, variance**0.5), abs=NEAR
    )
    best = int(sharpes.argmax())
    m = moments(TRIALS[:, best].tolist())
    assert m.skew is not None
    assert m.kurtosis is not None
    found = deflated_sharpe(
        float(sharpes[best]), n=m.n, skew=m.skew, kurtosis=m.kurtosis, trials=12,
        variance_of_trials=variance,
    )  # fmt: skip
    theirs = ffn.calc_deflated_sharpe_ratio(
        pd.Series(TRIALS[:, best]), sharpes, nperiods=K, annualized_trials=False
    )
    assert found.value == pytest.approx(theirs, abs=NEAR)


@pytest.mark.parametrize("blocks", [4, 8])
def test_ffn_agrees_on_the_probability_of_overfitting(ffn: ModuleType, blocks: int) -> None:
    found = pbo(TRIALS, blocks=blocks)
    theirs = ffn.calc_prob_backtest_overfitting(
        pd.DataFrame(TRIALS), n_blocks=blocks, full_output=True
    )
    assert found.pbo == pytest.approx(theirs["pbo"], abs=NEAR)
    assert sorted(found.logits) == pytest.approx(sorted(theirs["logits"]), abs=NEAR)


def test_ffn_gives_a_tie_in_sample_to_the_first_trial_and_the_product_shares_it(
    ffn: ModuleType,
) -> None:
    # Two trials alike and one that is worse: whichever of the two leads ties with the other, at
    # rank 2.5 of 3 out of sample. A trial that never varies has no Sharpe ratio there and 0 here.
    twin = TRIALS[:, 0] + 0.002
    same = np.column_stack([twin, twin, twin - 0.01])
    assert pbo(same, blocks=4).pbo == 0.0
    assert ffn.calc_prob_backtest_overfitting(pd.DataFrame(same), n_blocks=4) == 0.0
    idle = np.column_stack([twin - 0.01, np.zeros(len(twin))])
    assert pbo(idle, blocks=4).pbo == 0.0
    assert np.isnan(ffn.calc_prob_backtest_overfitting(pd.DataFrame(idle), n_blocks=4))
