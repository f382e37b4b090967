"""The interval once more, by whole covariance matrices instead of sums over lags."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
import scipy.stats

from backtester.statistics.inference import mean_interval

# Cells of one session correlate by so much in the working model, as docs/statistics.md has it.
CORRELATION = 0.3


def by_matrix(
    values: Sequence[float], sessions: Sequence[int], horizon: int, cosines: int
) -> tuple[float, float]:
    """Return the standard error and the degrees of freedom of the mean.

    Sessions' sums have variances ``c (1 + 0.3 (c - 1))``, c their cells, and correlate by the
    share of a window that they have in common. What the cosines see of that, over what the mean
    has of it, is the bias of the estimate; a trace squared over the trace of the square are the
    degrees.
    """
    places = sorted(set(sessions))
    count, n = len(places), len(values)
    mean = sum(values) / n
    cells = np.array([sum(1 for one in sessions if one == place) for place in places], dtype=float)
    sums = np.array(
        [
            sum(v - mean for v, s in zip(values, sessions, strict=True) if s == place)
            for place in places
        ]
    )
    basis = np.array(
        [
            [
                math.sqrt(2.0) * math.cos(math.pi * j * (at + 0.5) / count)
                for j in range(1, cosines + 1)
            ]
            for at in range(count)
        ]
    )
    apart = np.abs(np.subtract.outer(places, places))
    scale = np.sqrt(cells * (1.0 + CORRELATION * (cells - 1.0)))
    covariance = np.outer(scale, scale) * np.maximum(1.0 - apart / horizon, 0.0)
    # A session's sum less its cells' part of the mean of all.
    centred = np.eye(count) - np.outer(cells / n, np.ones(count))
    seen = basis.T @ centred @ covariance @ centred.T @ basis
    bias = np.trace(seen) / cosines / covariance.sum()
    measured = float(((sums @ basis) ** 2).mean())
    degrees = np.trace(seen) ** 2 / np.trace(seen @ seen)
    return math.sqrt(measured / bias) / n, float(degrees)


@pytest.mark.parametrize(
    ("sessions", "horizon", "cosines"),
    [
        pytest.param(list(range(60)), 5, 6, id="daily windows of a week"),
        pytest.param(list(range(0, 500, 5)), 20, 10, id="weekly windows of a month"),
        pytest.param([place // 3 for place in range(240)], 1, 22, id="three cells a session"),
        pytest.param(
            [*range(60), *(5 * (place // 6) for place in range(60))], 4, 7, id="clusters and gaps"
        ),
    ],
)
def test_standard_error_and_degrees_are_those_of_the_matrices(
    sessions: list[int], horizon: int, cosines: int
) -> None:
    generator = np.random.Generator(np.random.PCG64(len(sessions)))
    values = generator.normal(0.1, 1.0, len(sessions)).tolist()

    found = mean_interval(values, sessions, horizon)

    error, degrees = by_matrix(values, sessions, horizon, cosines)
    assert found.cosines == cosines
    assert found.standard_error == pytest.approx(error, rel=1e-9)
    assert found.degrees == pytest.approx(degrees, rel=1e-9)
    reach = scipy.stats.t.ppf(0.975, degrees) * error
    mean = sum(values) / len(values)
    assert found.low == pytest.approx(mean - reach, abs=1e-9)
    assert found.high == pytest.approx(mean + reach, abs=1e-9)
    assert found.p_two_sided == pytest.approx(
        2.0 * scipy.stats.t.sf(abs(mean) / error, degrees), abs=1e-9
    )
