"""Performance of a series of equity: each figure with its unit, or None with a reason.

`docs/statistics.md` has every definition with its formula and source. Sums are exact (`math.fsum`),
so no figure depends on the order of its rows, and nothing here is ever NaN or infinite.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property

import numpy as np

from backtester.statistics.moments import (
    LARGEST_RETURN,
    NO_SPREAD,
    Floats,
    added,
    finite,
    moments,
    total,
)
from backtester.statistics.precision import (
    Precision,
    none_known,
    of_growth,
    of_intercept,
    of_mean,
    of_sharpe,
    of_sharpes,
    of_sortino,
)

FEWEST_DAYS = 30
"""A window shorter than this is not annualised by compounding: one day's 2 % would be 137,000 %."""


@dataclass(frozen=True, kw_only=True)
class Measure:
    """Hold one figure.

    Attributes:
        name: As in the tables.
        value: The figure, finite, or None.
        unit: ``fraction``, ``fraction/year``, ``ratio``, ``probability``, ``count``, ``years``.
        n: Rows that it came from.
        reason: Why the value is None, else None.
        precision: Interval of the value, or why it has none; None where an interval would have no
            meaning (what was, such as a total) or there is no value.
    """

    name: str
    value: float | None
    unit: str
    n: int
    reason: str | None = None
    precision: Precision | None = None


def year_fraction(start: date, end: date) -> float:
    """Return the calendar years from one day to another: whole anniversaries, then days.

    From a date to the same date a year later is exactly 1, leap year or not; the days that are
    left over count against the length of the year that they lie in.
    """
    whole = end.year - start.year
    if _anniversary(start, whole) > end:
        whole -= 1
    last, following = _anniversary(start, whole), _anniversary(start, whole + 1)
    return whole + (end - last).days / (following - last).days


def periods_per_year(sessions: Sequence[date], start: date, end: date) -> float | None:
    """Return the sessions a year of a calendar around a window, or None where it is not covered.

    The mean number of sessions in the calendar years that the window touches (2018 has 251 on
    the New York exchange, any year of a market that never closes 365 or 366).

    Args:
        sessions: All sessions of the calendar for at least those whole years, ascending.
        start: First day of the window.
        end: Last day.
    """
    first, last = date(start.year, 1, 1), date(end.year, 12, 31)
    inside = [session for session in sessions if first <= session <= last]
    # No market stays closed for longer around the turn of a year.
    if not inside or (inside[0] - first).days > 14 or (last - inside[-1]).days > 14:
        return None
    return len(inside) / (end.year - start.year + 1)


def performance(
    equity: Sequence[float],
    dates: Sequence[date],
    *,
    periods_per_year: float | None,
    benchmark: Sequence[float | None] | None = None,
    rf_annual: float = 0.0,
) -> Mapping[str, Measure]:
    """Return every figure of an equity series, by name.

    Args:
        equity: Value at each session's close; the first is the start value, before any return.
        dates: Their sessions, ascending; the first may stand twice, where a start value is followed
            by the close of the same session.
        periods_per_year: Of the calendar; see `periods_per_year`. None: no annual figure.
        benchmark: Its level on the same dates (or any multiple of it), None where it has none.
        rf_annual: Risk-free rate a year, a fraction; a session's is ``(1 + rf)^(1/k) - 1``.

    Raises:
        ValueError: For lists of two lengths, dates that do not ascend, a number that is not finite,
            a benchmark level or a number of periods that is not above 0, a rate of -1 or below.
    """
    values = finite(equity)
    if len(values) != len(dates) or (benchmark is not None and len(benchmark) != len(dates)):
        raise ValueError("equity, dates and benchmark differ in length")
    later = dates[1:]
    if any(map(operator.le, later[1:], later)) or (later and later[0] < dates[0]):
        raise ValueError("dates do not ascend")
    if periods_per_year is not None and not 0.0 < periods_per_year < math.inf:
        raise ValueError(f"{periods_per_year} periods a year are none")
    if not -1.0 < rf_annual < math.inf:
        raise ValueError(f"a risk-free rate of {rf_annual} a year is none")
    series = _Series(
        equity=values,
        years=year_fraction(dates[0], dates[-1]) if len(dates) > 1 else 0.0,
        days=(dates[-1] - dates[0]).days if dates else 0,
        k=periods_per_year,
        rf=0.0
        if periods_per_year is None
        else math.expm1(math.log1p(rf_annual) / periods_per_year),
    )
    found = [*series.growth(), *series.risk()]
    if benchmark is not None:
        found += _Pair.of(series, benchmark).measures()
    return {measure.name: measure for measure in found}


def turnover(traded: Sequence[float], equity: Sequence[float], *, years: float | None) -> Measure:
    """Return how often a year the book was exchanged: half of all that was traded / mean equity.

    Args:
        traded: Absolute notional of each filled order, any order.
        equity: Of every session.
        years: Length of the window in calendar years, see `year_fraction`.
    """
    orders, values = finite(traded), finite(equity)
    mean = total(values.tolist()) / len(values) if len(values) else 0.0
    if not len(values):
        return _none("turnover", "ratio/year", len(orders), "no_rows")
    if math.isinf(mean):
        return _none("turnover", "ratio/year", len(orders), "too_large")
    if mean <= 0.0:
        return _none("turnover", "ratio/year", len(orders), "equity_not_positive")
    if not years or years <= 0.0:
        return _none("turnover", "ratio/year", len(orders), "too_few_rows")
    half = total(np.abs(orders).tolist()) / 2.0
    return _some("turnover", half / mean / years, "ratio/year", len(orders))


def exposure(gross: Sequence[float]) -> Mapping[str, Measure]:
    """Return ``exposure`` (mean of gross / equity) and ``time_in_market`` (share above 0).

    Args:
        gross: Sum of absolute position values / equity, one a session.
    """
    rows = finite(gross)
    n = len(rows)
    if not n:
        names = ("exposure", "time_in_market")
        return {name: _none(name, "fraction", 0, "no_rows") for name in names}
    held = int((rows > 0.0).sum())
    return {
        "exposure": _some("exposure", total(rows.tolist()) / n, "fraction", n),
        "time_in_market": _some("time_in_market", held / n, "fraction", n),
    }


def hit_rate(values: Sequence[float]) -> Measure:
    """Return the share of values above 0; a value of exactly 0 is a miss."""
    rows = finite(values)
    n = len(rows)
    if not n:
        return _none("hit_rate", "fraction", 0, "no_rows")
    return _some("hit_rate", int((rows > 0.0).sum()) / n, "fraction", n)


@dataclass(frozen=True, kw_only=True)
class _Series:
    """Hold a checked equity series: its years and days, periods a year, rate a period."""

    equity: Floats
    years: float
    days: int
    k: float | None
    rf: float

    @cached_property
    def flaw(self) -> str | None:
        """Say why there are no returns, or None."""
        if not len(self.equity):
            return "no_rows"
        if len(self.equity) < 2:
            return "too_few_rows"
        # The last one may be: the book is gone, and its last return is -100 % or less.
        return "equity_not_positive" if self.equity[:-1].min() <= 0.0 else None

    @cached_property
    def returns(self) -> Floats:
        return np.zeros(0) if self.flaw else _steps(self.equity)

    @cached_property
    def unfit(self) -> str | None:
        """Say why nothing can be made of the returns, or None."""
        huge = _huge(self.returns)
        return self.flaw or ("too_large" if huge else None)

    def growth(self) -> list[Measure]:
        n = max(0, len(self.equity) - 1)
        total = _none("total_return", "fraction", n, self.flaw or "no_rows")
        cagr = _none("cagr", "fraction/year", n, self.flaw or "too_short_to_annualise")
        if self.flaw is None:
            ratio = _ratio(self.equity)
            total = _some("total_return", ratio - 1.0, "fraction", n)
            if ratio <= 0.0:
                cagr = _none("cagr", "fraction/year", n, "equity_not_positive")
            elif self.days >= FEWEST_DAYS:
                cagr = _power("cagr", ratio, self.years, n)
        depth = self._drawdown(n)
        calmar = _none("calmar", "ratio", n, cagr.reason or depth.reason or "no_drawdown")
        if cagr.value is not None and depth.value:
            calmar = _some("calmar", cagr.value / abs(depth.value), "ratio", n)
        years = _some("years", self.years, "years", n)
        rate = _none("periods_per_year", "count", n, NO_K)
        if self.k is not None:
            rate = _some("periods_per_year", self.k, "count", n)
        found = [total, cagr, depth, calmar, years, rate]
        if self.unfit is not None:
            return found
        sure = {"cagr": of_growth(self.returns, self.years), "calmar": none_known(n)}
        return _with_precision(found, sure)

    def _drawdown(self, n: int) -> Measure:
        """Measure the deepest fall below a former peak, the start value among the peaks."""
        if self.flaw is not None:
            return _none("max_drawdown", "fraction", n, self.flaw)
        falls = self.equity / np.maximum.accumulate(self.equity) - 1.0
        return _some("max_drawdown", float(falls.min()), "fraction", n)

    def risk(self) -> list[Measure]:
        rows = np.zeros(0) if self.unfit else self.returns
        n = len(self.returns)
        plain = moments(rows)
        excess = rows - self.rf
        falls = np.minimum(excess, 0.0)
        mean, downside = _mean(excess), math.sqrt(_mean(falls * falls))
        short = self.unfit or ("too_few_rows" if n < 2 else None)
        flat = short or (None if plain.deviation else "no_variation")
        risen = short or (None if downside > NO_SPREAD else "no_downside")
        root = math.sqrt(self.k) if self.k is not None else None
        spread, year = plain.deviation or 0.0, "fraction/year"
        ratio = mean / spread if spread else None
        found = [
            _scaled("mean_return", plain.mean, self.k, year, n, self.unfit),
            _scaled("volatility", spread, root, year, n, short),
            _scaled("downside_deviation", downside, root, year, n, short),
            _scaled("sharpe", ratio, root, "ratio", n, flat),
            _scaled("sortino", None if risen else mean / downside, root, "ratio", n, risen),
            _scaled("sharpe_per_session", ratio, 1.0, "ratio", n, flat),
            _scaled("skew", plain.skew, 1.0, "ratio", n, flat),
            _scaled("kurtosis", plain.kurtosis, 1.0, "ratio", n, flat),
        ]
        return found if short else _with_precision(found, self._precisions(excess))

    def _precisions(self, excess: Floats) -> dict[str, Precision]:
        k = self.k or 1.0
        yearly, session = of_sharpes(excess, (math.sqrt(k), 1.0))
        return {
            "mean_return": of_mean(self.returns, k),
            "volatility": none_known(len(excess)),
            "downside_deviation": none_known(len(excess)),
            "sharpe": yearly,
            "sharpe_per_session": session,
            "sortino": of_sortino(excess, math.sqrt(k)),
        }


@dataclass(frozen=True, kw_only=True)
class _Pair:
    """Hold a series beside its benchmark: the sessions for which both have a return."""

    series: _Series
    own: Floats
    other: Floats
    benchmark_total: float | None

    @classmethod
    def of(cls, series: _Series, levels: Sequence[float | None]) -> _Pair:
        known = np.array([level is not None for level in levels], dtype=np.bool_)
        worth = finite([0.0 if level is None else level for level in levels])
        if (worth[known] <= 0.0).any():
            raise ValueError("a benchmark level is not above 0")
        own, other = np.zeros(0), np.zeros(0)
        if series.flaw is None:
            both = known[:-1] & known[1:]
            own = series.returns[both] - series.rf
            other = _steps(worth)[both] - series.rf
        whole = len(levels) > 1 and levels[0] is not None and levels[-1] is not None
        return cls(
            series=series,
            own=own,
            other=other,
            benchmark_total=levels[-1] / levels[0] if whole else None,  # type: ignore[operator]
        )

    @cached_property
    def unfit(self) -> str | None:
        """Say why nothing can be made of the pairs, or None."""
        huge = _huge(self.other)
        return self.series.unfit or ("too_large" if huge else None)

    def measures(self) -> list[Measure]:
        return [*self._totals(), *self._regression(), *self._active()]

    def _totals(self) -> list[Measure]:
        n, flaw, ratio = len(self.own), self.series.flaw, self.benchmark_total
        names = ("benchmark_return", "excess_return", "geometric_alpha")
        if flaw is not None or ratio is None:
            return [_none(name, "fraction", n, flaw or "no_benchmark") for name in names]
        grown = _ratio(self.series.equity)
        # A ratio of 0 is one too small for a float.
        geometric = grown / ratio - 1.0 if ratio > 0.0 else math.inf
        figures = (ratio - 1.0, grown - ratio, geometric)
        return [
            _some(name, figure, "fraction", n) for name, figure in zip(names, figures, strict=True)
        ]

    def _regression(self) -> list[Measure]:
        """Fit own = alpha + beta * benchmark by least squares, classical standard errors."""
        n, k = len(self.own), self.series.k
        flaw = self.unfit or ("too_few_rows" if n < 3 else None)
        if flaw is None and not moments(self.other).deviation:
            flaw = "no_variation"
        if flaw is not None:
            return [
                _none("beta", "ratio", n, flaw),
                _none("jensen_alpha", "fraction/year", n, flaw),
                _none("jensen_alpha_se", "fraction/year", n, flaw),
                _none("jensen_alpha_t", "ratio", n, flaw),
            ]
        mean_own, mean_other = _mean(self.own), _mean(self.other)
        x, y = self.other - mean_other, self.own - mean_own
        sxx = added(x * x)
        beta = added(y * x) / sxx
        alpha = mean_own - beta * mean_other
        left = y - beta * x
        noise = added(left * left) / (n - 2)
        error = math.sqrt(noise * (1.0 / n + mean_other**2 / sxx))
        exact = "no_variation" if error <= NO_SPREAD else None
        found = [
            _some("beta", beta, "ratio", n),
            _scaled("jensen_alpha", alpha, k, "fraction/year", n, None),
            _scaled("jensen_alpha_se", error, k, "fraction/year", n, None),
            _scaled("jensen_alpha_t", None if exact else alpha / error, 1.0, "ratio", n, exact),
        ]
        sure = {"jensen_alpha": of_intercept(alpha, left, self.other, k or 1.0)}
        return _with_precision(found, sure)

    def _active(self) -> list[Measure]:
        rows = np.zeros(0) if self.unfit else self.own - self.other
        active = moments(rows)
        k, n, spread = self.series.k, len(self.own), active.deviation or 0.0
        root = math.sqrt(k) if k is not None else None
        short = self.unfit or ("too_few_rows" if n < 2 else None)
        flat = short or (None if spread else "no_variation")
        ratio = (active.mean or 0.0) / spread if spread else None
        found = [
            _scaled("tracking_error", spread, root, "fraction/year", n, short),
            _scaled("information_ratio", ratio, root, "ratio", n, flat),
        ]
        if short:
            return found
        sure = {"tracking_error": none_known(n), "information_ratio": of_sharpe(rows, root or 1.0)}
        return _with_precision(found, sure)


NO_K = "no_calendar"
"""Reason of an annual figure where the sessions a year are not known."""


def _steps(values: Floats) -> Floats:
    """Return what each value is over the one before, less 1."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        found: Floats = values[1:] / values[:-1] - 1.0
    return found


def _ratio(values: Floats) -> float:
    return float(values[-1]) / float(values[0])


def _huge(returns: Floats) -> bool:
    return bool((np.abs(returns) > LARGEST_RETURN).any())


def _mean(rows: Floats) -> float:
    return added(rows) / len(rows) if len(rows) else 0.0


def _anniversary(day: date, years: int) -> date:
    try:
        return day.replace(year=day.year + years)
    except ValueError:  # 29 February
        return date(day.year + years, 3, 1)


def _none(name: str, unit: str, n: int, reason: str) -> Measure:
    return Measure(name=name, value=None, unit=unit, n=n, reason=reason)


def _some(name: str, value: float, unit: str, n: int) -> Measure:
    if not math.isfinite(value):
        return _none(name, unit, n, "too_large")
    return Measure(name=name, value=value, unit=unit, n=n)


def _with_precision(found: list[Measure], sure: Mapping[str, Precision]) -> list[Measure]:
    """Return measures with how sure they are, those that have a value."""
    return [
        replace(measure, precision=sure.get(measure.name)) if measure.value is not None else measure
        for measure in found
    ]


def _scaled(
    name: str, value: float | None, factor: float | None, unit: str, n: int, flaw: str | None
) -> Measure:
    if flaw is not None or value is None:
        return _none(name, unit, n, flaw or "too_few_rows")
    if factor is None:
        return _none(name, unit, n, NO_K)
    return _some(name, value * factor, unit, n)


def _power(name: str, ratio: float, years: float, n: int) -> Measure:
    exponent = math.log(ratio) / years
    if exponent > 700.0:
        return _none(name, "fraction/year", n, "too_large")
    # One year is the ratio itself, not the ratio but for a last bit.
    grown = ratio if years == 1.0 else math.exp(exponent)
    return _some(name, grown - 1.0, "fraction/year", n)
