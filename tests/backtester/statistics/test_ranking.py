"""Rank correlations against values by hand; what cannot be ranked is None with a reason."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backtester.statistics.inference import mean_interval
from backtester.statistics.ranking import (
    average_ranks,
    kendall_tau_b,
    monotonicity,
    rank_ic,
    spearman,
)

NAN = math.nan


def test_ties_share_the_mean_of_their_places() -> None:
    assert average_ranks([30.0, 10.0, 20.0, 20.0]) == (4.0, 1.0, 2.5, 2.5)
    assert average_ranks([5.0, 5.0, 5.0]) == (2.0, 2.0, 2.0)
    assert average_ranks([]) == ()


def test_spearman_with_a_tie_by_hand() -> None:
    # Ranks 1, 2.5, 2.5, 4 against 1, 2, 3, 4: 4.5 / sqrt(4.5 x 5).
    found = spearman([1.0, 2.0, 2.0, 3.0], [10.0, 20.0, 30.0, 40.0])
    assert found.value == pytest.approx(4.5 / math.sqrt(22.5), abs=1e-15)
    assert spearman([1.0, 2.0, 3.0], [3.0, 2.0, 1.0]).value == -1.0
    assert spearman([1.0, 2.0, 9.0], [3.0, 4.0, 5.0]).value == 1.0


def test_tau_b_with_ties_by_hand() -> None:
    # Pairs of x apart 5 of 6, of y 6; all 5 in one order.
    found = kendall_tau_b([1.0, 2.0, 2.0, 3.0], [10.0, 20.0, 30.0, 40.0])
    assert found.value == pytest.approx(5 / math.sqrt(30), abs=1e-15)
    assert kendall_tau_b([1.0, 2.0, 3.0], [3.0, 1.0, 2.0]).value == pytest.approx(-1 / 3)


@pytest.mark.parametrize("correlate", [spearman, kendall_tau_b])
def test_what_does_not_vary_has_no_rank_correlation(correlate: object) -> None:
    assert callable(correlate)
    assert correlate([1.0, 1.0], [1.0, 2.0]).reason == "no_variation"
    assert correlate([1.0], [1.0]).reason == "too_few_rows"
    assert correlate([], []).reason == "too_few_rows"
    with pytest.raises(ValueError, match="against"):
        correlate([1.0], [])
    with pytest.raises(ValueError, match="leave rows"):
        correlate([1.0, NAN], [1.0, 2.0])


def test_each_session_has_its_own_correlation_over_the_tickers_that_have_both() -> None:
    ratings = [[1, 0, -1], [1, 1, 1], [1, 0, NAN], [NAN, NAN, 1]]
    alphas = [[0.03, 0.02, 0.01], [0.1, 0.2, 0.3], [0.1, 0.2, 0.3], [0.1, 0.2, 0.3]]
    found = rank_ic(ratings, alphas, [0, 1, 2, 3], 1)

    assert found.by_session == (1.0, None, -1.0, None)
    assert found.without == 2
    assert (found.mean.mean, found.mean.n, found.mean.reason) == (0.0, 2, "too_few_windows")


@pytest.mark.parametrize("kind", ["spearman", "kendall"])
def test_the_mean_over_sessions_has_the_t_of_overlapping_windows(kind: str) -> None:
    generator = np.random.Generator(np.random.PCG64(5))
    ratings, alphas = generator.integers(-2, 3, (60, 8)), generator.normal(size=(60, 8))
    positions = list(range(0, 300, 5))
    found = rank_ic(ratings, alphas, positions, 20, kind=kind)

    values = [value for value in found.by_session if value is not None]
    assert found.kind == kind
    assert found.mean == mean_interval(values, positions, 20)
    assert found.mean.statistic is not None


def test_shapes_that_do_not_fit_and_unknown_kinds_are_refused() -> None:
    with pytest.raises(ValueError, match="sessions"):
        rank_ic([[1, 2]], [[1, 2]], [0, 1], 1)
    with pytest.raises(ValueError, match="spearman or kendall"):
        rank_ic([[1, 2]], [[1, 2]], [0], 1, kind="pearson")


def test_monotonicity_looks_at_the_order_of_the_means_alone() -> None:
    rising = {2: [0.05, 0.01], 1: [0.02], 0: [0.0, 0.01], -2: [-9.0]}
    assert monotonicity(rising).value == 1.0
    assert monotonicity(rising).n == 4
    assert monotonicity({1: [0.1], 0: [0.2], -1: [0.3]}).value == -1.0
    # Of three pairs two rise and one falls.
    assert monotonicity({1: [0.3], 0: [0.0], -1: [0.1]}).value == pytest.approx(1 / 3)


def test_one_rating_alone_is_in_no_order() -> None:
    assert monotonicity({1: [0.1, 0.2], 0: []}).reason == "too_few_groups"
    assert monotonicity({}).reason == "too_few_groups"
    assert monotonicity({1: [0.1], 0: [0.1]}).reason == "no_variation"


@given(st.lists(st.tuples(st.integers(0, 4), st.floats(-1, 1)), min_size=2, max_size=25), st.data())
def test_no_order_of_rows_moves_a_bit(rows: list[tuple[int, float]], data: st.DataObject) -> None:
    other = data.draw(st.permutations(rows))
    for correlate in (spearman, kendall_tau_b):
        first = correlate([float(x) for x, _ in rows], [y for _, y in rows])
        second = correlate([float(x) for x, _ in other], [y for _, y in other])
        assert first == second
        assert first.value is None or -1.0 <= first.value <= 1.0
