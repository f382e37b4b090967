"""Performance figures against values by hand; what cannot be said is None with a reason."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backtester.calendar import calendar_by_code
from backtester.statistics.metrics import (
    Measure,
    exposure,
    hit_rate,
    performance,
    periods_per_year,
    turnover,
    year_fraction,
)
from backtester.statistics.moments import moments


def days_from(first: date, count: int, step: int = 1) -> list[date]:
    return [first + timedelta(days=place * step) for place in range(count)]


def figures(
    returns: Sequence[float],
    *,
    k: float | None = 1.0,
    benchmark: Sequence[float | None] | None = None,
    rf: float = 0.0,
    step: int = 30,
) -> Mapping[str, Measure]:
    equity = [100.0]
    for row in returns:
        equity.append(equity[-1] * (1.0 + row))
    return performance(
        equity,
        days_from(date(2017, 1, 2), len(equity), step),
        periods_per_year=k,
        benchmark=benchmark,
        rf_annual=rf,
    )


def value(found: Mapping[str, Measure], name: str) -> float:
    figure = found[name].value
    assert figure is not None, found[name]
    assert found[name].reason is None
    return figure


# ------------------------------------------------------------------------------------------ growth


def test_doubling_in_a_year_is_a_hundred_per_cent_a_year_however_many_sessions_it_had() -> None:
    for first, last in (("2017-03-01", "2018-03-01"), ("2016-01-04", "2017-01-04")):
        start, end = date.fromisoformat(first), date.fromisoformat(last)
        days = [start + (end - start) * place // 252 for place in range(253)]
        equity = [1.0 + place / 252 for place in range(253)]
        found = performance(equity, days, periods_per_year=252.0)
        assert value(found, "cagr") == 1.0
        assert value(found, "total_return") == 1.0
        assert value(found, "years") == 1.0


def test_years_are_whole_anniversaries_and_then_days() -> None:
    assert year_fraction(date(2016, 2, 29), date(2017, 3, 1)) == 1.0
    assert year_fraction(date(2018, 1, 1), date(2019, 7, 2)) == 1 + 182 / 365
    # 59 of the 366 days from 2016-01-01 on.
    assert year_fraction(date(2016, 1, 1), date(2016, 2, 29)) == 59 / 366
    assert year_fraction(date(2018, 5, 1), date(2018, 5, 1)) == 0.0


def test_growth_over_two_years_compounds() -> None:
    days = [date(2016, 1, 4), date(2017, 1, 4), date(2018, 1, 4)]
    found = performance([100.0, 90.0, 121.0], days, periods_per_year=1.0)
    assert value(found, "cagr") == pytest.approx(0.1, abs=1e-15)
    # From the 100 at the start, not from the first return on.
    assert value(found, "max_drawdown") == pytest.approx(-0.1, abs=1e-15)
    assert value(found, "calmar") == pytest.approx(1.0, abs=1e-12)


def test_a_month_is_annualised_and_a_week_is_not() -> None:
    week = performance([1.0, 1.1], [date(2018, 1, 2), date(2018, 1, 9)], periods_per_year=252.0)
    assert (week["cagr"].value, week["cagr"].reason) == (None, "too_short_to_annualise")
    assert (week["calmar"].value, week["calmar"].reason) == (None, "too_short_to_annualise")
    month = performance([1.0, 1.1], [date(2018, 1, 2), date(2018, 2, 2)], periods_per_year=252.0)
    assert value(month, "cagr") == pytest.approx(1.1 ** (365 / 31) - 1)


def test_a_fall_then_a_higher_high_then_a_deeper_fall() -> None:
    found = figures([-0.2, 0.5, -0.25, 0.1])
    # 100, 80, 120, 90, 99: the deepest is 120 to 90.
    assert value(found, "max_drawdown") == pytest.approx(-0.25)


def test_a_book_that_only_rises_has_a_drawdown_of_zero_and_no_calmar() -> None:
    found = figures([0.1, 0.2])
    assert value(found, "max_drawdown") == 0.0
    assert found["calmar"].reason == "no_drawdown"


# -------------------------------------------------------------------------------------------- risk


def test_downside_deviation_is_over_all_returns_and_not_over_the_losses_alone() -> None:
    found = figures([0.02, -0.01, 0.01, -0.03])
    assert value(found, "downside_deviation") == pytest.approx(0.0158114, abs=1e-7)
    assert value(found, "sortino") == pytest.approx(-0.1581139, abs=1e-7)


def test_sharpe_by_hand_and_annualised_by_the_root_of_the_sessions_a_year() -> None:
    # mean 0.01, squared distances 1, 1, 0 (e-4): sample deviation 0.01.
    found = figures([0.02, 0.0, 0.01], k=250.0)
    assert value(found, "sharpe_per_session") == pytest.approx(1.0)
    assert value(found, "sharpe") == pytest.approx(math.sqrt(250))
    assert value(found, "volatility") == pytest.approx(0.01 * math.sqrt(250))
    assert value(found, "mean_return") == pytest.approx(2.5)
    assert value(found, "periods_per_year") == 250.0


def test_the_risk_free_rate_is_compounded_down_to_a_session() -> None:
    # (1 + 0.21)^(1/2) - 1 = 0.1 a period.
    found = figures([0.1, 0.3], k=2.0, rf=0.21)
    assert value(found, "sharpe_per_session") == pytest.approx(0.1 / math.sqrt(0.02))
    # The fall below the rate is none: nothing is left to divide by.
    assert found["sortino"].reason == "no_downside"


def test_growth_and_sharpe_may_have_different_signs_and_both_are_shown() -> None:
    found = figures([0.5, -0.4, 0.5, -0.4, 0.5, -0.4])
    assert value(found, "sharpe") > 0.0 > value(found, "cagr")


def test_an_unknown_calendar_leaves_only_what_needs_none() -> None:
    found = figures([0.02, -0.01, 0.01, 0.03], k=None)
    missing = {name for name, measure in found.items() if measure.reason == "no_calendar"}
    assert missing == {
        "periods_per_year", "mean_return", "volatility", "downside_deviation", "sharpe", "sortino",
    }  # fmt: skip
    assert value(found, "sharpe_per_session") != 0.0


def test_moments_by_hand() -> None:
    # 1, 2, 3, 4: skew 0; excess kurtosis -1.2 after its correction.
    even = moments([4.0, 1.0, 3.0, 2.0])
    assert (even.mean, even.skew) == (2.5, 0.0)
    assert even.deviation == pytest.approx(math.sqrt(5 / 3))
    assert even.kurtosis == pytest.approx(3.0 - 1.2)
    assert moments([1.0]) == moments([1.0, math.nan][:1])
    assert moments([1.0, 5.0]).skew is None
    assert moments([1.0, 5.0, 6.0]).kurtosis is None


# --------------------------------------------------------------------------------------- benchmark


def test_beta_and_alpha_by_hand() -> None:
    # own = 0.01 + 2 x benchmark, to the last digit: no residual, so no t.
    found = figures(
        [0.03, -0.01, 0.05, 0.01], benchmark=[100.0, 101.0, 99.99, 101.9898, 101.9898], k=12.0
    )
    assert value(found, "beta") == pytest.approx(2.0)
    assert value(found, "jensen_alpha") == pytest.approx(0.12)
    assert value(found, "jensen_alpha_se") == pytest.approx(0.0, abs=1e-12)


def test_alpha_has_the_standard_error_of_least_squares() -> None:
    # x = 0, .1, .2; y = 0, .1, .5: beta 2.5, alpha -0.05; residuals .05, -.1, .05: s2 = .015,
    # se = sqrt(.015 (1/3 + .01/.02)) = 0.1118034.
    found = figures([0.0, 0.1, 0.5], benchmark=[1.0, 1.0, 1.1, 1.32])
    assert value(found, "beta") == pytest.approx(2.5)
    assert value(found, "jensen_alpha") == pytest.approx(-0.05)
    assert value(found, "jensen_alpha_se") == pytest.approx(0.1118034, abs=1e-7)
    assert value(found, "jensen_alpha_t") == pytest.approx(-0.05 / 0.1118034, abs=1e-6)


def test_the_three_alphas_of_a_window() -> None:
    found = figures([0.2, 0.1], benchmark=[50.0, 55.0, 60.0])
    # 1.32 against 1.2.
    assert value(found, "benchmark_return") == pytest.approx(0.2)
    assert value(found, "excess_return") == pytest.approx(0.12)
    assert value(found, "geometric_alpha") == pytest.approx(0.1)


def test_information_ratio_is_the_mean_over_the_deviation_of_the_difference() -> None:
    # Differences .1 and 0: mean .05, deviation .0707107.
    found = figures([0.2, 0.1], benchmark=[1.0, 1.1, 1.21], k=4.0)
    assert value(found, "tracking_error") == pytest.approx(0.0707107 * 2, abs=1e-6)
    assert value(found, "information_ratio") == pytest.approx(0.05 / 0.0707107 * 2, abs=1e-5)


def test_a_session_without_a_benchmark_is_left_out_of_the_pairs_on_both_its_sides() -> None:
    whole = figures([0.1, 0.2, 0.0, 0.3, 0.1], benchmark=[1.0, 1.1, 1.0, 1.2, 1.3, 1.2])
    gap = figures([0.1, 0.2, 0.0, 0.3, 0.1], benchmark=[1.0, 1.1, None, 1.2, 1.3, 1.2])
    assert (whole["beta"].n, gap["beta"].n) == (5, 3)
    assert value(gap, "benchmark_return") == value(whole, "benchmark_return")
    late = figures([0.1, 0.2, 0.0], benchmark=[None, 1.1, 1.0, 1.2])
    assert late["geometric_alpha"].reason == "no_benchmark"


def test_a_benchmark_that_does_not_move_has_no_beta() -> None:
    found = figures([0.1, 0.2, 0.1], benchmark=[5.0, 5.0, 5.0, 5.0])
    assert {found[name].reason for name in ("beta", "jensen_alpha", "jensen_alpha_t")} == {
        "no_variation"
    }


# ------------------------------------------------------------------------- turnover, exposure, hits


def test_turnover_is_half_of_what_was_traded_over_mean_equity_a_year() -> None:
    # Bought 100, sold 100 on a mean equity of 200 in half a year: once around in a year.
    found = turnover([100.0, -100.0], [150.0, 250.0], years=0.5)
    assert found.value == 1.0
    assert turnover([], [150.0], years=1.0).value == 0.0
    assert turnover([1.0], [], years=1.0).reason == "no_rows"
    assert turnover([1.0], [1.0, -2.0], years=1.0).reason == "equity_not_positive"
    assert turnover([1.0], [1.0], years=None).reason == "too_few_rows"


def test_exposure_and_time_in_market() -> None:
    found = exposure([0.0, 1.0, 0.5, 0.0])
    assert (found["exposure"].value, found["time_in_market"].value) == (0.375, 0.5)
    assert exposure([])["exposure"].reason == "no_rows"


def test_a_tie_is_a_miss() -> None:
    assert hit_rate([0.01, 0.0, -0.02, 0.03]).value == 0.5
    assert hit_rate([]).reason == "no_rows"


# -------------------------------------------------------------------------------- sessions a year


def test_sessions_a_year_come_from_the_calendar() -> None:
    new_york = calendar_by_code("XNYS").sessions(date(2012, 1, 1), date(2019, 12, 31))
    assert periods_per_year(new_york, date(2018, 3, 1), date(2018, 4, 1)) == 251.0
    assert periods_per_year(new_york, date(2017, 3, 1), date(2018, 4, 1)) == 251.0
    assert periods_per_year(new_york, date(2013, 3, 1), date(2013, 4, 1)) == 252.0
    always = days_from(date(2016, 1, 1), 731)
    assert periods_per_year(always, date(2016, 5, 1), date(2017, 5, 1)) == 365.5


def test_a_calendar_that_does_not_cover_the_years_gives_no_factor() -> None:
    new_york = calendar_by_code("XNYS").sessions(date(2018, 1, 1), date(2018, 9, 30))
    assert periods_per_year(new_york, date(2018, 3, 1), date(2018, 4, 1)) is None
    assert periods_per_year([], date(2018, 3, 1), date(2018, 4, 1)) is None


# ------------------------------------------------------------------------------- what is too little


def test_no_row_one_row_and_two_rows_are_none_with_a_reason_or_finite() -> None:
    assert performance([], [], periods_per_year=252.0)["total_return"].reason == "no_rows"
    one = performance([1.0], [date(2018, 1, 2)], periods_per_year=252.0, benchmark=[2.0])
    assert {m.reason for name, m in one.items() if m.value is None} == {"too_few_rows"}
    assert one["sharpe"].value is None
    two = figures([0.1])
    assert value(two, "total_return") == pytest.approx(0.1)
    assert two["volatility"].reason == "too_few_rows"


def test_returns_that_do_not_vary_have_no_ratio() -> None:
    for constant in (0.0, 0.01):
        found = figures([constant] * 50, benchmark=[1.0] * 51)
        assert found["sharpe"].reason == "no_variation"
        assert found["sortino"].reason == "no_downside"
        assert found["information_ratio"].reason == "no_variation"
        assert value(found, "volatility") == 0.0


def test_a_book_that_is_lost_has_a_total_return_and_no_growth_rate() -> None:
    days = days_from(date(2017, 1, 2), 3, 200)
    lost = performance([100.0, 50.0, 0.0], days, periods_per_year=252.0)
    assert value(lost, "total_return") == -1.0
    assert value(lost, "max_drawdown") == -1.0
    assert lost["cagr"].reason == "equity_not_positive"
    gone = performance([100.0, -50.0, 20.0], days, periods_per_year=252.0)
    assert {m.reason for m in gone.values() if m.name in ("total_return", "sharpe")} == {
        "equity_not_positive"
    }


@given(
    st.lists(st.floats(1e-12, 1e12), max_size=12),
    st.lists(st.one_of(st.none(), st.floats(1e-12, 1e12)), min_size=12, max_size=12),
    st.one_of(st.none(), st.floats(0.5, 400)),
    st.floats(-0.9, 5.0),
)
def test_every_figure_is_finite_or_none_with_a_reason(
    equity: list[float], benchmark: list[float | None], k: float | None, rf: float
) -> None:
    found = performance(
        equity,
        days_from(date(2017, 1, 2), len(equity), 31),
        periods_per_year=k,
        benchmark=benchmark[: len(equity)],
        rf_annual=rf,
    )
    for name, measure in found.items():
        assert measure.name == name
        if measure.value is None:
            assert measure.reason
        else:
            assert measure.reason is None
            assert math.isfinite(measure.value)


@given(st.permutations(list(range(40))))
def test_sums_do_not_depend_on_the_order_of_rows(order: list[int]) -> None:
    rows = [math.sin(place) * 10.0 ** (place % 7) for place in range(40)]
    assert moments([rows[place] for place in order]) == moments(rows)
    assert hit_rate([rows[place] for place in order]) == hit_rate(rows)


def test_what_cannot_be_a_series_is_refused() -> None:
    days = days_from(date(2018, 1, 2), 2)
    with pytest.raises(ValueError, match="length"):
        performance([1.0], days, periods_per_year=1.0)
    with pytest.raises(ValueError, match="ascend"):
        performance([1.0, 2.0], days[::-1], periods_per_year=1.0)
    with pytest.raises(ValueError, match="leave rows"):
        performance([1.0, math.nan], days, periods_per_year=1.0)
    with pytest.raises(ValueError, match="benchmark level"):
        performance([1.0, 2.0], days, periods_per_year=1.0, benchmark=[1.0, 0.0])
    with pytest.raises(ValueError, match="periods"):
        performance([1.0, 2.0], days, periods_per_year=0.0)
    with pytest.raises(ValueError, match="rate"):
        performance([1.0, 2.0], days, periods_per_year=1.0, rf_annual=-1.0)
