"""The probabilities against published tables, a numerical library and plain counting."""

from __future__ import annotations

import math

import pytest
import scipy.stats

from backtester.statistics.distributions import (
    binomial_greater,
    binomial_two_sided,
    normal_cdf,
    normal_quantile,
    t_critical,
    t_greater,
    t_two_sided,
)

DEGREES = (1.0, 1.5, 2.0, 2.7, 4.1, 6.0, 17.9, 48.0, 249.0, 5000.0)


def test_critical_values_are_those_of_the_printed_tables() -> None:
    assert [round(t_critical(0.95, k), 3) for k in (1, 2, 6, 30)] == [12.706, 4.303, 2.447, 2.042]
    assert round(t_critical(0.99, 10), 3) == 3.169


@pytest.mark.parametrize("degrees", DEGREES)
def test_students_t_agrees_with_a_numerical_library(degrees: float) -> None:
    for value in (0.0, 0.01, 0.3, 1.0, 2.2, 5.0, 30.0):
        expected = 2 * scipy.stats.t.sf(value, degrees)
        assert t_two_sided(value, degrees) == pytest.approx(expected, rel=1e-10, abs=1e-300)
        assert t_greater(-value, degrees) == pytest.approx(1 - expected / 2, rel=1e-10)
    for level in (0.5, 0.9, 0.95, 0.999):
        expected = scipy.stats.t.ppf(0.5 + level / 2, degrees)
        assert t_critical(level, degrees) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("value", [-9.0, -2.5, -0.3, 0.0, 1.1, 4.0])
def test_the_normal_agrees_with_a_numerical_library(value: float) -> None:
    expected = scipy.stats.norm.cdf(value)
    assert normal_cdf(value) == pytest.approx(expected, rel=1e-12)
    if 0.0 < expected < 1.0 and value > -6:
        assert normal_quantile(expected) == pytest.approx(value, abs=1e-9)


def test_a_coin_is_counted_exactly() -> None:
    # 3 tosses: P(at most 1 head) = (1 + 3) / 8, both sides 1; 5 of 5: 2 / 32.
    assert binomial_two_sided(1, 3) == 1.0
    assert binomial_two_sided(5, 5) == 2 / 32
    assert binomial_greater(4, 5) == (5 + 1) / 32
    assert binomial_two_sided(0, 0) == binomial_greater(0, 0) == 1.0
    expected = scipy.stats.binomtest(70, 200).pvalue
    assert binomial_two_sided(70, 200) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("level", [0.0, 1.0, -1.0, math.nan])
def test_a_level_outside_of_its_range_is_refused(level: float) -> None:
    with pytest.raises(ValueError, match="level"):
        t_critical(level, 3)
    with pytest.raises(ValueError, match="probability"):
        normal_quantile(level)


def test_no_degree_of_freedom_is_refused() -> None:
    with pytest.raises(ValueError, match="degrees"):
        t_critical(0.95, 0)
