"""How far a figure of a book may be from what its rate is: an interval for each that has one.

A figure is a smooth function of means, so its error is the mean of what each session adds to it,
its influence: for a Sharpe ratio `z - SR/2 (z^2 - 1)`, whose variance is that of Mertens (2002),
`1 - g3 SR + (g4 - 1)/4 SR^2`. The long-run variance of that mean is read off at low frequencies as
in `inference`, which allows for returns that are correlated over time (Lo, "The statistics of
Sharpe ratios", 2002; Ledoit and Wolf, "Robust performance hypothesis testing with the Sharpe
ratio", 2008), and figure / error is held against Student's t.

Volatility and downside deviation get none: theirs would need the fourth moment, which returns with
fat tails do not show in a year. `docs/statistics.md` has the simulated coverage of both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from backtester.statistics.distributions import t_critical, t_two_sided
from backtester.statistics.inference import COSINES, cosine_basis, cosines_for
from backtester.statistics.moments import NO_SPREAD, Floats, added

FEWEST_SESSIONS: Final = 20
"""Below so many returns no interval is shown: that of a Sortino ratio would not hold, and a
probabilistic Sharpe ratio is above 0.95 up to 9 % of the time without skill."""
LEVEL: Final = 0.95
METHOD: Final = f"influence of each session, {COSINES}"


@dataclass(frozen=True, kw_only=True)
class Precision:
    """Hold what may be said of a figure.

    Attributes:
        low: Lower end of its interval at `LEVEL`, or None; so are the next two.
        high: Upper end.
        p_value: Of a figure of zero, two-sided.
        reason: Why there is none (``too_few_returns``, ``no_interval``, ``no_variation``,
            ``too_large``), else None.
    """

    low: float | None = None
    high: float | None = None
    p_value: float | None = None
    reason: str | None = None


def none_known(n: int) -> Precision:
    """Return what is said of a figure whose interval would not hold its level."""
    return Precision(reason="no_interval" if n >= FEWEST_SESSIONS else "too_few_returns")


def of_mean(returns: Sequence[float] | Floats, scale: float) -> Precision:
    """Return the precision of a mean return.

    Args:
        returns: A session each, in their order.
        scale: Of the figure: sessions a year.
    """
    rows = np.asarray(returns, dtype=np.float64)
    mean = _mean(rows)
    return _about(mean, rows - mean, scale)


def of_growth(returns: Sequence[float] | Floats, years: float) -> Precision:
    """Return the precision of the growth a year, which is that of the mean log return.

    Args:
        returns: A session each, in their order.
        years: That they took.
    """
    rows = np.asarray(returns, dtype=np.float64)
    if (rows <= -1.0).any():
        return Precision(reason="equity_not_positive")
    # One by one by the machine's library: numpy's own logarithm has other bits on other processors.
    logs = np.array([math.log1p(row) for row in rows.tolist()])
    mean = _mean(logs)
    scale = len(logs) / years if years > 0.0 else math.inf
    return _about(mean, logs - mean, scale, _grown)


def of_sharpe(excess: Sequence[float] | Floats, scale: float) -> Precision:
    """Return the precision of mean / deviation: a Sharpe or an information ratio.

    Args:
        excess: Returns above what they are held against, in their order.
        scale: Of the figure: root of the sessions a year.
    """
    return of_sharpes(excess, (scale,))[0]


def of_sharpes(excess: Sequence[float] | Floats, scales: Sequence[float]) -> tuple[Precision, ...]:
    """Return the precision of one ratio at several scales; see `of_sharpe`."""
    rows = np.asarray(excess, dtype=np.float64)
    mean, n = _mean(rows), len(rows)
    apart = rows - mean
    spread = math.sqrt(added(apart * apart) / max(n - 1, 1))
    if spread <= NO_SPREAD:
        return tuple(_about(0.0, np.zeros(n), scale) for scale in scales)
    ratio = mean / spread
    units = apart / spread
    squares = units * units
    influence = units - ratio / 2.0 * (squares - _mean(squares))
    return tuple(_about(ratio, influence, scale) for scale in scales)


def of_sortino(excess: Sequence[float] | Floats, scale: float) -> Precision:
    """Return the precision of mean / downside deviation.

    Args:
        excess: Returns above the risk-free rate, in their order.
        scale: Of the figure: root of the sessions a year.
    """
    rows = np.asarray(excess, dtype=np.float64)
    mean = _mean(rows)
    falls = np.minimum(rows, 0.0)
    squares = falls * falls
    second = _mean(squares)
    downside = math.sqrt(second)
    if downside <= NO_SPREAD:
        return _about(0.0, np.zeros(len(rows)), scale)
    ratio = mean / downside
    influence = (rows - mean) / downside - ratio / 2.0 * (squares / second - 1.0)
    return _about(ratio, influence, scale)


def of_intercept(
    alpha: float,
    left: Sequence[float] | Floats,
    other: Sequence[float] | Floats,
    scale: float,
) -> Precision:
    """Return the precision of the intercept of a line by least squares.

    Args:
        alpha: The intercept.
        left: What the line leaves of each return, in their order.
        other: What the line is drawn over, which varies.
        scale: Of the figure: sessions a year.
    """
    errors, line = np.asarray(left, dtype=np.float64), np.asarray(other, dtype=np.float64)
    n, mean = len(line), _mean(line)
    apart = line - mean
    spread = added(apart * apart) / max(n, 1)
    if n < 3 or spread <= 0.0:
        return Precision(reason="too_few_returns" if n < FEWEST_SESSIONS else "no_variation")
    # Two degrees went into the line; the cosines know of one, the mean.
    lost = math.sqrt((n - 1) / (n - 2))
    influence = lost * errors * (1.0 - mean * apart / spread)
    return _about(alpha, influence, scale)


def _about(
    estimate: float,
    influence: Floats,
    scale: float,
    back: Callable[[float], float] = float,
) -> Precision:
    """Return the interval of an estimate whose error is the mean of its influences.

    Args:
        estimate: A session.
        influence: What each session adds to it, of mean 0.
        scale: Of the figure.
        back: From the scaled estimate to the figure, rising.
    """
    n = len(influence)
    if n < FEWEST_SESSIONS:
        return Precision(reason="too_few_returns")
    basis = cosine_basis(n, cosines_for(n))
    # Element by element: a BLAS would give other last bits on other processors.
    sums = ((influence / n)[:, None] * basis).sum(axis=0).tolist()
    degrees = float(len(sums))
    error = math.sqrt(math.fsum(row * row for row in sums) / degrees)
    if error <= NO_SPREAD:
        return Precision(reason="no_variation")
    reach = t_critical(LEVEL, degrees) * error
    low, high = back((estimate - reach) * scale), back((estimate + reach) * scale)
    if not (math.isfinite(low) and math.isfinite(high)):
        return Precision(reason="too_large")
    return Precision(low=low, high=high, p_value=t_two_sided(estimate / error, degrees))


def _grown(rate: float) -> float:
    return math.expm1(rate) if rate < 700.0 else math.inf


def _mean(rows: Floats) -> float:
    return added(rows) / len(rows) if len(rows) else 0.0
