"""Permutations of whole paths against their full list by hand; signs against a coin."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from backtester.statistics.permutation import path_permutation, permutations_of, sign_test

NAN = math.nan


@pytest.fixture
def generator() -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(11))


def test_the_full_list_is_used_up_to_six_tickers(generator: np.random.Generator) -> None:
    # Whole numbers, so that every sum is exact and a tie is a tie.
    ratings = generator.integers(-2, 3, (15, 6))
    alphas = generator.integers(-9, 10, (15, 6))
    found = path_permutation(ratings, alphas, seed=1)

    sums = [
        int((ratings[:, list(order)] * alphas).sum()) for order in itertools.permutations(range(6))
    ]
    seen = sums[0]
    centre = Fraction(sum(sums), len(sums))
    assert (found.draws, found.exact, found.seed, found.reason) == (720, True, None, None)
    assert found.statistic == pytest.approx(seen / 90)
    assert found.expected == pytest.approx(float(centre) / 90)
    assert found.p_value == sum(s >= seen for s in sums) / 720
    assert found.p_two_sided == sum(abs(s - centre) >= abs(seen - centre) for s in sums) / 720


def test_a_perfect_eye_for_tickers_has_the_smallest_p_there_is() -> None:
    ratings = np.tile([2, 1, 0, -1], (20, 1))
    found = path_permutation(ratings, ratings * 0.01, seed=0)
    assert found.p_value == 1 / 24
    blind = path_permutation(ratings, ratings * -0.01, seed=0)
    assert blind.p_value == 1.0
    assert blind.p_two_sided is not None
    assert blind.p_two_sided < 0.1


def test_seven_tickers_are_drawn_from_the_seed_and_repeat(generator: np.random.Generator) -> None:
    ratings, alphas = generator.integers(-2, 3, (30, 7)), generator.normal(size=(30, 7))
    found = path_permutation(ratings, alphas, seed=3, draws=999)
    assert (found.draws, found.exact, found.seed) == (1000, False, 3)
    assert found == path_permutation(ratings, alphas, seed=3, draws=999)
    other = path_permutation(ratings, alphas, seed=4, draws=999)
    assert found.p_value is not None
    assert other.p_value is not None
    assert found.p_value != other.p_value
    assert found.p_value == pytest.approx(other.p_value, abs=0.06)


def test_drawn_permutations_are_permutations_and_evenly_spread() -> None:
    places = permutations_of(8, seed=7, draws=8_000)
    assert (places[0] == np.arange(8)).all()
    assert (np.sort(places, axis=1) == np.arange(8)).all()
    # Every ticker gets every path 1,000 times, give or take five deviations.
    for ticker in range(8):
        assert np.abs(np.bincount(places[1:, ticker]) - 1000).max() < 5 * math.sqrt(875)
    # Made of raw bits, so another version of the generator's methods changes nothing.
    assert places[1].tolist() == [6, 3, 4, 0, 2, 7, 5, 1]


def test_what_all_tickers_share_is_no_eye_for_tickers(generator: np.random.Generator) -> None:
    # Every ticker has one path: long in every rise. No permutation changes anything.
    days = generator.normal(size=(40, 1))
    found = path_permutation(np.tile(np.sign(days), (1, 5)), np.tile(days, (1, 5)), seed=0)
    assert (found.p_value, found.p_two_sided, found.reason) == (None, None, "no_variation")
    assert found.statistic is not None
    assert found.statistic > 0.5
    assert found.expected == pytest.approx(found.statistic)


def test_cells_without_a_rating_or_an_alpha_are_left_out(generator: np.random.Generator) -> None:
    ratings = generator.integers(-2, 3, (20, 5)).astype(float)
    alphas = generator.normal(size=(20, 5))
    ratings[3, 2], alphas[4, 1], alphas[3, 2] = NAN, NAN, NAN
    found = path_permutation(ratings, alphas, seed=0)

    orders = list(itertools.permutations(range(5)))
    means = [float(np.nanmean(ratings[:, list(order)] * alphas)) for order in orders]
    assert found.cells == 98
    assert found.statistic == pytest.approx(means[0])
    assert found.p_value == sum(mean >= means[0] - 1e-15 for mean in means) / 120


def test_a_ticker_without_any_cell_does_not_count_as_one(generator: np.random.Generator) -> None:
    ratings, alphas = np.ones((9, 4)), generator.normal(size=(9, 4))
    alphas[:, 3] = NAN
    found = path_permutation(ratings, alphas, seed=0)
    assert (found.tickers, found.p_value, found.reason) == (3, None, "too_few_tickers")
    assert found.statistic == pytest.approx(np.nanmean(alphas))


def test_nothing_at_all_is_said_to_be_nothing() -> None:
    found = path_permutation(np.full((3, 5), NAN), np.ones((3, 5)), seed=0)
    assert (found.statistic, found.cells, found.reason) == (None, 0, "no_rows")
    assert path_permutation(np.ones((0, 5)), np.ones((0, 5)), seed=0).reason == "no_rows"


def test_two_shapes_an_infinite_number_and_no_draw_are_refused() -> None:
    with pytest.raises(ValueError, match="sessions x tickers"):
        path_permutation([[1, 2]], [[1]], seed=0)
    with pytest.raises(ValueError, match="infinite"):
        path_permutation([[1, 2]], [[1, math.inf]], seed=0)
    with pytest.raises(ValueError, match="draws"):
        path_permutation([[1, 2]], [[1, 2]], seed=0, draws=0)


def test_signs_are_of_sessions_whose_windows_do_not_overlap() -> None:
    # Sessions 0, 5, 10 and 16 start after the last window's end; their sums are +, -, + and 0.
    values = [0.2, -0.1, 9.0, -1.0, 9.0, 2.0, 0.1, -0.1]
    sessions = [0, 0, 3, 5, 8, 10, 16, 16]
    found = sign_test(values, sessions, 5)
    assert (found.positive, found.negative, found.sessions) == (2, 1, 4)
    # 3 tosses: P(2 or more) = 4 / 8.
    assert (found.p_value, found.p_two_sided) == (0.5, 1.0)


def test_signs_of_nothing_have_no_p() -> None:
    assert sign_test([], [], 5).reason == "no_rows"
    assert sign_test([0.0, 0.0], [1, 9], 5).reason == "no_variation"
    with pytest.raises(ValueError, match="horizon"):
        sign_test([1.0], [1], 0)
    with pytest.raises(ValueError, match="leave it out"):
        sign_test([NAN], [1], 5)


def test_the_order_of_cells_moves_no_sign() -> None:
    rows = [(math.sin(place) * 10.0 ** (place % 9), place // 6) for place in range(120)]
    first = sign_test([v for v, _ in rows], [s for _, s in rows], 2)
    mixed = rows[::-1]
    assert sign_test([v for v, _ in mixed], [s for _, s in mixed], 2) == first
