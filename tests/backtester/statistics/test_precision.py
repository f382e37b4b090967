"""The intervals of a book's figures: by jackknife, in simulated books, and where there is none."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import date, timedelta

import numpy as np
import numpy.typing as npt
import pytest
import scipy.stats

from backtester.statistics.inference import cosines_for
from backtester.statistics.metrics import Measure, performance
from backtester.statistics.precision import (
    Precision,
    of_growth,
    of_intercept,
    of_mean,
    of_sharpe,
    of_sortino,
)
from benchmarks.soak.books import FIGURES, BookWorld, book_markdown, book_row, book_worlds
from benchmarks.soak.table import COVERAGE
from benchmarks.soak.verdicts import Verdict

Floats = npt.NDArray[np.float64]
GENERATOR = np.random.Generator(np.random.PCG64(12))
OTHER = 0.01 * GENERATOR.standard_t(5, 400)
RETURNS = 0.001 + 0.7 * OTHER + 0.008 * GENERATOR.standard_t(5, 400)


def sharpe(rows: Floats) -> float:
    return float(rows.mean() / rows.std(ddof=1))


def sortino(rows: Floats) -> float:
    return float(rows.mean() / math.sqrt((np.minimum(rows, 0.0) ** 2).mean()))


def growth(rows: Floats) -> float:
    return float(np.log1p(rows).mean())


def intercept(rows: Floats, other: Floats) -> float:
    return float(scipy.stats.linregress(other, rows).intercept)


def by_jackknife(figure: Callable[[npt.NDArray[np.bool_]], float]) -> tuple[float, float, float]:
    """Return interval and p-value, from what the figure loses where a session is left out."""
    n = len(RETURNS)
    whole = figure(np.ones(n, dtype=np.bool_))
    influence = []
    for place in range(n):
        kept = np.ones(n, dtype=np.bool_)
        kept[place] = False
        influence.append((n - 1) * (whole - figure(kept)))
    found = np.array(influence) - np.mean(influence)
    degrees = cosines_for(n)
    angle = math.pi * np.outer(np.arange(1, degrees + 1), (np.arange(n) + 0.5) / n)
    sums = math.sqrt(2.0) * np.cos(angle) @ found / n
    error = math.sqrt(float((sums**2).mean()))
    reach = float(scipy.stats.t.ppf(0.975, degrees)) * error
    p_value = 2.0 * float(scipy.stats.t.sf(abs(whole / error), degrees))
    return whole - reach, whole + reach, p_value


def intercept_of_the_product() -> Precision:
    line = scipy.stats.linregress(OTHER, RETURNS)
    left = RETURNS - line.intercept - line.slope * OTHER
    return of_intercept(float(line.intercept), left.tolist(), OTHER.tolist(), 1.0)


@pytest.mark.parametrize(
    ("found", "figure"),
    [
        (lambda: of_mean(RETURNS.tolist(), 1.0), lambda kept: float(RETURNS[kept].mean())),
        (lambda: of_sharpe(RETURNS.tolist(), 1.0), lambda kept: sharpe(RETURNS[kept])),
        (lambda: of_sortino(RETURNS.tolist(), 1.0), lambda kept: sortino(RETURNS[kept])),
        (intercept_of_the_product, lambda kept: intercept(RETURNS[kept], OTHER[kept])),
    ],
    ids=["mean", "sharpe", "sortino", "intercept"],
)
def test_an_interval_is_that_of_leaving_each_session_out_once(
    found: Callable[[], Precision], figure: Callable[[npt.NDArray[np.bool_]], float]
) -> None:
    low, high, p_value = by_jackknife(figure)
    got = found()
    # The jackknife takes whole steps where the influence is a slope: apart by terms of 1 / n.
    assert got.low == pytest.approx(low, abs=0.02 * (high - low))
    assert got.high == pytest.approx(high, abs=0.02 * (high - low))
    assert got.p_value == pytest.approx(p_value, rel=0.1)


def test_growth_is_the_mean_log_return_brought_back() -> None:
    low, high, p_value = by_jackknife(lambda kept: growth(RETURNS[kept]))
    found = of_growth(RETURNS.tolist(), 1.5)
    assert found.low == pytest.approx(math.expm1(low * 400 / 1.5), rel=1e-6)
    assert found.high == pytest.approx(math.expm1(high * 400 / 1.5), rel=1e-6)
    assert found.p_value == pytest.approx(p_value, rel=1e-6)


def test_the_error_of_a_sharpe_ratio_of_independent_normals_is_lo_s() -> None:
    rows = np.random.Generator(np.random.PCG64(5)).standard_normal((40, 1_000)) + 0.5
    halves = []
    for row in rows:
        found = of_sharpe(row.tolist(), 1.0)
        assert found.low is not None
        assert found.high is not None
        halves.append((found.high - found.low) / 2.0)
    error = math.sqrt((1.0 + 0.5**2 / 2.0) / 1_000)
    wanted = error * float(scipy.stats.t.ppf(0.975, 48))
    assert float(np.mean(halves)) == pytest.approx(wanted, rel=0.05)


def test_returns_that_go_together_over_time_widen_the_interval() -> None:
    noise = np.random.Generator(np.random.PCG64(6)).standard_normal(1_005)
    smooth = np.convolve(noise, np.ones(5), "valid")
    apart = noise[: len(smooth)] * math.sqrt(5.0)
    wide, narrow = of_sharpe((smooth + 0.1).tolist(), 1.0), of_sharpe((apart + 0.1).tolist(), 1.0)
    assert wide.low is not None
    assert wide.high is not None
    assert narrow.low is not None
    assert narrow.high is not None
    # The deviation of a mean over five that overlap is root 5 times that of independent ones.
    ratio = (wide.high - wide.low) / (narrow.high - narrow.low)
    assert ratio == pytest.approx(math.sqrt(5.0), rel=0.3)


@pytest.mark.parametrize(
    "world",
    [BookWorld(shape="t5", sessions=20), BookWorld(shape="swinging", sessions=60)],
    ids=lambda world: f"{world.shape}-{world.sessions}",
)
def test_intervals_hold_the_true_value_of_simulated_books(world: BookWorld) -> None:
    for figure, verdict in book_row(world, histories=400, seed=20_260_103).items():
        fewest = scipy.stats.binom.ppf(0.001, 400, COVERAGE[0])
        most = scipy.stats.binom.ppf(0.999, 400, COVERAGE[1])
        assert fewest <= verdict.yes <= most, (figure, verdict)


def test_the_table_of_books_has_every_shape_and_length() -> None:
    row = dict.fromkeys(FIGURES, Verdict(shown=200, yes=190, histories=200))
    text = book_markdown([(world, row) for world in book_worlds()])
    assert len(text.splitlines()) == 2 + 4 * 3
    assert text.splitlines()[-1] == "| swinging | 250 |" + " 95.0 |" * len(FIGURES)


def figures(returns: Floats, *, k: float | None = 252.0) -> Mapping[str, Measure]:
    equity = [100.0, *(100.0 * np.cumprod(1.0 + returns)).tolist()]
    other = [50.0, *(50.0 * np.cumprod(1.0 + OTHER[: len(returns)])).tolist()]
    dates = [date(2017, 1, 2) + timedelta(days=place) for place in range(len(equity))]
    return performance(equity, dates, periods_per_year=k, benchmark=other)


def test_yearly_figures_scale_their_interval_and_session_figures_do_not() -> None:
    found = figures(RETURNS)
    for name, scale in (("sharpe", math.sqrt(252.0)), ("sharpe_per_session", 1.0)):
        sure, wanted = found[name].precision, of_sharpe(RETURNS.tolist(), scale)
        assert sure is not None
        assert sure.low == pytest.approx(wanted.low, rel=1e-9)
    information = found["information_ratio"].precision
    active = of_sharpe((RETURNS - OTHER).tolist(), math.sqrt(252.0))
    assert information is not None
    assert information.high == pytest.approx(active.high, rel=1e-9)
    alpha = found["jensen_alpha"].precision
    assert alpha is not None
    assert alpha.low == pytest.approx(252.0 * (intercept_of_the_product().low or 0.0), rel=1e-9)


def test_under_twenty_returns_the_number_stays_and_has_no_interval() -> None:
    names = ("sharpe", "sortino", "mean_return", "information_ratio", "jensen_alpha", "volatility")
    short, enough = figures(RETURNS[:19]), figures(RETURNS[:20])
    for name in names:
        assert short[name].value is not None
        assert short[name].precision == Precision(reason="too_few_returns")
        assert enough[name].precision != short[name].precision
    assert enough["volatility"].precision == Precision(reason="no_interval")


def test_what_was_has_no_interval_and_what_is_not_there_neither() -> None:
    found = figures(RETURNS, k=None)
    for name in ("total_return", "max_drawdown", "beta", "years"):
        assert found[name].precision is None
    assert (found["sharpe"].value, found["sharpe"].precision) == (None, None)
    assert found["sharpe_per_session"].precision is not None


def test_a_book_that_is_lost_whole_has_no_growth_to_be_sure_of() -> None:
    assert of_growth([0.01] * 30 + [-1.0], 1.0).reason == "equity_not_positive"
    assert of_mean([0.01] * 30, 1.0).reason == "no_variation"
    assert of_growth([1.0, 3.0] * 15, 1e-3).reason == "too_large"
