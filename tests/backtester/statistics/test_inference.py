"""Intervals by hand where the working model is simple, and where nothing may be said."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backtester.statistics.distributions import t_critical
from backtester.statistics.inference import (
    Interval,
    cosine_basis,
    cosines_for,
    mean_interval,
    spread_interval,
    windows_apart,
    working_model,
)

FIGURES = (
    "effective_n", "low", "high", "standard_error", "statistic", "degrees", "p_two_sided",
    "p_greater", "cosines",
)  # fmt: skip


@pytest.fixture
def generator() -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(17))


def silent(found: Interval) -> bool:
    return all(getattr(found, name) is None for name in FIGURES)


def test_windows_apart_are_the_first_and_each_that_starts_after_the_last_ended() -> None:
    assert windows_apart([9, 0, 4, 5, 5, 14], 5) == (0, 5, 14)
    assert windows_apart(range(60), 5) == tuple(range(0, 60, 5))
    assert windows_apart([], 5) == ()


def test_the_number_of_cosines_grows_with_the_windows() -> None:
    # 1.2 x 12^(2/3) = 6.29, 1.2 x 125^(2/3) = 30 exactly.
    assert [cosines_for(w) for w in (1, 12, 50, 60, 125, 250, 9999)] == [2, 6, 16, 18, 30, 47, 48]


def test_the_weights_are_orthonormal_and_know_no_mean() -> None:
    basis = cosine_basis(60, 18)
    assert np.allclose(basis.sum(axis=0), 0.0, atol=1e-12)
    assert np.allclose(basis.T @ basis, 60 * np.eye(18), atol=1e-10)


def test_even_cells_without_overlap_need_no_correction() -> None:
    model = working_model([[3] * 40], list(range(40)), 1, 12)
    assert model.bias == pytest.approx(1.0)
    assert model.degrees == pytest.approx(12.0)


def test_the_interval_of_independent_sessions_by_the_formula() -> None:
    # 12 sessions, one cell each, windows that touch: B = 6, no correction.
    values = [0.3, -0.1, 0.4, 0.2, -0.5, 0.1, 0.6, -0.2, 0.0, 0.3, -0.4, 0.5]
    found = mean_interval(values, [10 * place for place in range(12)], 10)

    mean = sum(values) / 12
    sums = [
        sum(
            (value - mean) * math.sqrt(2) * math.cos(math.pi * j * (place + 0.5) / 12)
            for place, value in enumerate(values)
        )
        for j in range(1, 7)
    ]
    error = math.sqrt(sum(s * s for s in sums) / 6) / 12
    assert (found.n, found.sessions, found.windows, found.cosines) == (12, 12, 12, 6)
    assert found.mean == pytest.approx(mean)
    assert found.standard_error == pytest.approx(error)
    assert found.degrees == pytest.approx(6.0)
    assert found.low == pytest.approx(mean - 2.446912 * error, rel=1e-6)
    assert found.high == pytest.approx(mean + 2.446912 * error, rel=1e-6)
    assert found.statistic == pytest.approx(mean / error)
    assert found.p_two_sided is not None
    assert found.p_greater == pytest.approx(found.p_two_sided / 2)


def test_overlapping_windows_are_told_from_independent_ones(
    generator: np.random.Generator,
) -> None:
    # With h = 5 neighbours share 4 of 5 sessions: slow, but not as slow as the slowest cosines.
    overlapping = working_model([[1] * 60], list(range(60)), 5, 6)
    assert 0.85 < overlapping.bias < 1.0
    assert 5.0 < overlapping.degrees < 6.0

    # 60 sums of 5 returns each, from 64 returns or from 300.
    shocks = generator.normal(size=(200, 64))
    shares = []
    for row in shocks:
        sums = [float(row[place : place + 5].sum()) for place in range(60)]
        found = mean_interval(sums, range(60), 5)
        assert (found.windows, found.effective_n is not None) == (12, True)
        shares.append(found.effective_n or 0.0)
    # A mean of overlapping sums is worth some 12 of them, not 60.
    assert 8 < float(np.median(shares)) < 16
    apart = mean_interval(shocks[0, :60].tolist(), range(0, 300, 5), 5)
    assert apart.degrees == pytest.approx(18.0)
    assert (apart.effective_n or 0.0) > 30


def test_a_rating_given_in_clusters_has_fewer_degrees_than_one_given_evenly(
    generator: np.random.Generator,
) -> None:
    values = generator.normal(size=120).tolist()
    even = mean_interval(values, [place // 2 for place in range(120)], 1)
    # Half of the cells on 5 of the 65 sessions.
    lumped = list(range(60)) + [60 + place // 12 for place in range(60)]
    found = mean_interval(values, lumped, 1)
    assert even.degrees is not None
    assert found.degrees is not None
    assert found.degrees < even.degrees / 2


def test_eleven_windows_are_too_few_and_twelve_are_not(generator: np.random.Generator) -> None:
    values = generator.normal(size=60).tolist()
    eleven = mean_interval(values[:55], list(range(55)), 5)
    assert (eleven.windows, eleven.reason, eleven.n) == (11, "too_few_windows", 55)
    assert eleven.mean == pytest.approx(sum(values[:55]) / 55)
    assert silent(eleven)
    assert mean_interval(values[:56], list(range(56)), 5).reason is None


def test_all_cells_in_hardly_more_than_one_cluster_say_nothing(
    generator: np.random.Generator,
) -> None:
    sessions = [0] * 400 + list(range(1, 13))
    found = mean_interval(generator.normal(size=412).tolist(), sessions, 1)
    assert found.reason == "too_few_clusters"
    assert silent(found)


def test_no_row_one_row_and_equal_rows_are_none_with_a_reason() -> None:
    nothing = mean_interval([], [], 5)
    assert (nothing.mean, nothing.n, nothing.windows, nothing.reason) == (None, 0, 0, "no_rows")
    one = mean_interval([0.5], [3], 5)
    assert (one.mean, one.n, one.reason) == (0.5, 1, "too_few_windows")
    equal = mean_interval([0.1] * 60, list(range(60)), 1)
    assert (equal.mean, equal.reason) == (0.1, "no_variation")
    assert silent(nothing)
    assert silent(one)
    assert silent(equal)


def test_sessions_that_agree_although_their_cells_do_not_have_no_variation() -> None:
    found = mean_interval([0.25, 0.75] * 40, [place // 2 for place in range(80)], 1)
    assert (found.mean, found.reason) == (0.5, "no_variation")


def test_a_spread_is_the_difference_of_two_means_and_wider_than_each(
    generator: np.random.Generator,
) -> None:
    upper, lower = generator.normal(0.5, 1, 100).tolist(), generator.normal(0, 1, 100).tolist()
    sessions = list(range(100))
    found = spread_interval(upper, sessions, lower, sessions, 2)

    assert found.mean == pytest.approx(sum(upper) / 100 - sum(lower) / 100)
    assert (found.n, found.sessions, found.windows) == (200, 100, 50)
    alone = [mean_interval(v, sessions, 2).standard_error or 0.0 for v in (upper, lower)]
    assert found.standard_error == pytest.approx(math.hypot(*alone), rel=0.5)
    turned = spread_interval(lower, sessions, upper, sessions, 2)
    assert turned.mean == pytest.approx(-(found.mean or 0.0))
    assert turned.standard_error == pytest.approx(found.standard_error or 0.0)


def test_what_two_ratings_share_cancels_in_their_spread(generator: np.random.Generator) -> None:
    market = generator.normal(size=100)
    upper, lower = (market + 0.01 * generator.normal(size=100) for _ in range(2))
    sessions = list(range(100))
    found = spread_interval(upper.tolist(), sessions, lower.tolist(), sessions, 1)
    assert found.standard_error is not None
    assert found.standard_error < 0.01


def test_a_spread_needs_both_its_sides(generator: np.random.Generator) -> None:
    values, sessions = generator.normal(size=60).tolist(), list(range(60))
    assert spread_interval(values, sessions, [], [], 1).reason == "no_rows"
    few = spread_interval(values, sessions, values[:11], sessions[:11], 1)
    assert (few.reason, few.windows) == ("too_few_windows", 11)
    assert few.mean is not None
    assert silent(few)


@settings(max_examples=40)
@given(st.permutations(list(range(90))), st.integers(1, 7))
def test_no_order_of_cells_moves_a_bit(order: list[int], horizon: int) -> None:
    rows = [(math.sin(place) * 10.0 ** (place % 7), place // 3 * 2) for place in range(90)]
    mixed = [rows[place] for place in order]
    first = mean_interval([v for v, _ in rows], [s for _, s in rows], horizon)
    assert mean_interval([v for v, _ in mixed], [s for _, s in mixed], horizon) == first


@given(
    st.lists(st.tuples(st.floats(-1e6, 1e6), st.integers(0, 80)), max_size=120),
    st.integers(1, 30),
)
def test_every_figure_is_finite_or_all_are_none_with_a_reason(
    rows: list[tuple[float, int]], horizon: int
) -> None:
    found = mean_interval([v for v, _ in rows], [s for _, s in rows], horizon)
    if found.reason is not None:
        assert silent(found)
    else:
        assert all(math.isfinite(getattr(found, name)) for name in FIGURES)
        assert 0.0 <= (found.p_two_sided or 0.0) <= 1.0


def test_the_level_sets_the_width(generator: np.random.Generator) -> None:
    values, sessions = generator.normal(size=60).tolist(), list(range(60))
    narrow, wide = (mean_interval(values, sessions, 1, level=level) for level in (0.5, 0.99))
    assert narrow.degrees is not None
    ratio = t_critical(0.99, narrow.degrees) / t_critical(0.5, narrow.degrees)
    widths = [(found.high or 0.0) - (found.low or 0.0) for found in (narrow, wide)]
    assert widths[1] / widths[0] == pytest.approx(ratio)


def test_what_is_no_cell_horizon_or_level_is_refused() -> None:
    with pytest.raises(ValueError, match="sessions"):
        mean_interval([1.0], [], 1)
    with pytest.raises(ValueError, match="leave it out"):
        mean_interval([math.nan], [0], 1)
    with pytest.raises(ValueError, match="horizon"):
        mean_interval([1.0], [0], 0)
    with pytest.raises(ValueError, match="level"):
        mean_interval([1.0], [0], 1, level=1.0)
