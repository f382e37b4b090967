"""Sharpe ratios after the trials that they were picked from, against published and hand values."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from backtester.statistics.distributions import normal_cdf, normal_quantile
from backtester.statistics.overfit import (
    deflated_sharpe,
    expected_best_sharpe,
    min_track_record_length,
    pbo,
    probabilistic_sharpe,
)


@pytest.fixture
def generator() -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(23))


def test_the_published_example_of_a_deflated_sharpe_ratio() -> None:
    # Bailey and Lopez de Prado (2014): 100 trials whose annual Sharpe ratios vary by 1/2, the best
    # 2.5 a year on 1,250 days of 250 a year, skew -3, kurtosis 10: the best by luck has 0.1132 a
    # day, and 0.9004 is left; from 46 trials 0.9505.
    def left(trials: int) -> float | None:
        return deflated_sharpe(
            2.5 / math.sqrt(250), n=1250, skew=-3, kurtosis=10, trials=trials,
            variance_of_trials=0.5 / 250,
        ).value  # fmt: skip

    assert expected_best_sharpe(trials=100, variance_of_trials=0.5 / 250) == pytest.approx(
        0.1132, abs=5e-5
    )
    assert left(100) == pytest.approx(0.9004, abs=5e-5)
    assert left(46) == pytest.approx(0.9505, abs=5e-5)


def test_one_trial_is_held_against_zero() -> None:
    one = deflated_sharpe(0.1, n=250, skew=0.2, kurtosis=4, trials=1, variance_of_trials=9.0)
    assert one.value == probabilistic_sharpe(0.1, n=250, skew=0.2, kurtosis=4).value
    assert expected_best_sharpe(trials=1, variance_of_trials=9.0) == 0.0


def test_normal_returns_have_the_textbook_standard_error() -> None:
    # Var = (1 + SR^2 / 2) / (n - 1) for a normal.
    found = probabilistic_sharpe(0.2, n=101, skew=0.0, kurtosis=3.0)
    assert found.value == pytest.approx(normal_cdf(0.2 * 10 / math.sqrt(1.02)))
    assert (found.n, found.unit) == (101, "probability")


def test_fat_left_tails_and_more_trials_leave_less() -> None:
    plain = probabilistic_sharpe(0.1, n=250, skew=0.0, kurtosis=3.0).value or 0.0
    assert (probabilistic_sharpe(0.1, n=250, skew=-1.0, kurtosis=8.0).value or 1.0) < plain
    values = [
        deflated_sharpe(0.1, n=250, skew=0, kurtosis=3, trials=k, variance_of_trials=0.01).value
        for k in (1, 2, 10, 100)
    ]
    assert values == sorted(values, key=lambda value: -(value or 0.0))


def test_the_least_track_record_is_where_the_probability_reaches_the_level() -> None:
    found = min_track_record_length(0.1, skew=-0.5, kurtosis=5.0, threshold=0.02)
    assert found.value is not None
    # Bailey and Lopez de Prado (2012): 1 + spread (z / distance)^2.
    spread = 1 + 0.5 * 0.1 + (5 - 1) / 4 * 0.1**2
    assert found.value == pytest.approx(1 + spread * (normal_quantile(0.95) / 0.08) ** 2)
    at = probabilistic_sharpe(0.1, n=round(found.value), skew=-0.5, kurtosis=5.0, threshold=0.02)
    assert at.value == pytest.approx(0.95, abs=2e-4)


def test_a_ratio_that_is_not_above_the_threshold_has_no_least_length() -> None:
    for sharpe in (-0.1, 0.0):
        found = min_track_record_length(sharpe, skew=0.0, kurtosis=3.0)
        assert (found.value, found.reason) == (None, "not_above_threshold")


def test_too_few_returns_and_moments_that_no_series_has_give_no_figure() -> None:
    assert probabilistic_sharpe(0.1, n=3, skew=0, kurtosis=3).reason == "too_few_rows"
    odd = probabilistic_sharpe(1.0, n=50, skew=3.0, kurtosis=1.0)
    assert (odd.value, odd.reason) == (None, "moments_do_not_fit")
    assert min_track_record_length(1.0, skew=3.0, kurtosis=1.0).reason == "moments_do_not_fit"


def test_what_is_no_number_of_trials_level_or_moment_is_refused() -> None:
    with pytest.raises(ValueError, match="trials"):
        expected_best_sharpe(trials=0, variance_of_trials=1.0)
    with pytest.raises(ValueError, match="trials"):
        expected_best_sharpe(trials=2, variance_of_trials=-1.0)
    with pytest.raises(ValueError, match="level"):
        min_track_record_length(1.0, skew=0, kurtosis=3, level=0.5)
    with pytest.raises(ValueError, match="finite"):
        probabilistic_sharpe(math.nan, n=9, skew=0, kurtosis=3)


# -------------------------------------------------------------------------------------------- PBO


def by_hand(table: np.ndarray, blocks: int) -> float:
    """Count the splits as the paper describes them, one by one."""
    parts = np.split(table, blocks)
    below = []
    for choice in itertools.combinations(range(blocks), blocks // 2):
        inside = np.concatenate([parts[i] for i in choice])
        outside = np.concatenate([parts[i] for i in range(blocks) if i not in choice])
        best = int(np.argmax(inside.mean(0) / inside.std(0, ddof=1)))
        merit = outside.mean(0) / outside.std(0, ddof=1)
        rank = 1 + int((merit < merit[best]).sum())
        below.append(rank / (table.shape[1] + 1) <= 0.5)
    return float(np.mean(below))


def test_splits_are_counted_as_the_paper_describes_them(generator: np.random.Generator) -> None:
    table = generator.normal(size=(66, 7))
    found = pbo(table[2:], blocks=8)
    assert (found.splits, found.trials, found.rows, found.blocks) == (70, 7, 64, 8)
    assert found.pbo == pytest.approx(by_hand(table[2:], 8), abs=1e-12)
    # What does not fill a block is left out at the start.
    assert pbo(table, blocks=8) == found
    assert found.pbo == sum(logit <= 0 for logit in found.logits) / 70


def test_a_trial_that_is_better_everywhere_is_no_overfit_and_pure_luck_is(
    generator: np.random.Generator,
) -> None:
    noise = generator.normal(size=(160, 5))
    better = noise + np.array([0.0, 0.0, 2.0, 0.0, 0.0])
    assert pbo(better, blocks=8).pbo == 0.0
    # The best half is the worst rest: each trial has its luck in one block and pays for it after.
    table = np.tile([0.01, -0.01], (8, 4)).T * np.ones((8, 8)) + np.kron(
        np.eye(4) - 1 / 4, np.ones((2, 2))
    )
    assert (pbo(table, blocks=4).pbo or 0.0) > 0.5


def test_trials_that_are_all_alike_share_every_rank(generator: np.random.Generator) -> None:
    # All tie: the relative rank is one half, the logit 0, which counts as overfit.
    table = np.tile(generator.normal(size=(40, 1)), (1, 3))
    found = pbo(table, blocks=4)
    assert found.pbo == 1.0
    assert set(found.logits) == {0.0}


def test_a_trial_that_holds_nothing_counts_as_zero(generator: np.random.Generator) -> None:
    losing = generator.normal(-1.0, 0.1, size=(40, 2))
    found = pbo(np.column_stack([losing, np.zeros(40)]), blocks=4)
    assert found.pbo == 0.0
    assert all(math.isfinite(logit) for logit in found.logits)


def test_the_order_of_trials_moves_nothing(generator: np.random.Generator) -> None:
    table = generator.normal(size=(48, 6))
    assert pbo(table[:, ::-1], blocks=6) == pbo(table, blocks=6)


def test_one_trial_and_short_histories_give_no_figure() -> None:
    assert pbo(np.ones((40, 1))).reason == "too_few_trials"
    short = pbo(np.ones((31, 3)))
    assert (short.pbo, short.reason, short.blocks) == (None, "too_few_rows", 16)


def test_odd_blocks_and_numbers_that_are_not_finite_are_refused() -> None:
    for blocks in (0, 3, 18):
        with pytest.raises(ValueError, match="blocks"):
            pbo(np.ones((40, 2)), blocks=blocks)
    with pytest.raises(ValueError, match="finite"):
        pbo(np.full((40, 2), math.nan))
