"""What random ratings would have made: many books at once, and where the run's own lies."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Final

import numpy as np
import numpy.typing as npt

from backtester.baselines import PLACEBO
from backtester.baselines.placebo import STATES, RatingModel, model_of_paths, upper_ends
from backtester.book.policy import Policy
from backtester.score.books import ScoredBook, Stage, measures_of
from backtester.score.records import RATINGS_BOOK, MetricRow
from backtester.settlement.decided import Decided
from backtester.statistics.metrics import periods_per_year

BAND: Final = (0.05, 0.95)
_UNITS: Final = {"total_return": "fraction", "sharpe": "ratio", "max_drawdown": "fraction"}
# A spread this small is the noise of a line without any.
_NO_SPREAD: Final = 1e-12

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


def placebo_figures(own: Sequence[ScoredBook], equity: Floats, stage: Stage) -> Iterator[MetricRow]:
    """Yield the band of random ratings, and the share of them that each lane beat.

    Args:
        own: The run's books.
        equity: Of random books, sessions x draws; see `random_weights`.
        stage: Where all of them were played.
    """
    draws = _draws(equity, stage)
    mine = {book.trial: measures_of(book, stage, benchmark=False) for book in own}
    for name, unit in _UNITS.items():
        values = sorted(value for value in getattr(draws, name) if value is not None)
        yield _band(name, unit, values)
        for trial, found in mine.items():
            yield _share(name, trial, found[name].value if name in found else None, values)


def random_weights(own: Decided, stage: Stage) -> Mapping[str, Floats]:
    """Draw random ratings and return what they want: by ticker, sessions x draws.

    Args:
        own: The run's ratings, in the order of their sessions: the random ones come and stay as
            those of its first lane do.
        stage: Where they will be played.
    """
    definition = stage.definition
    seeds = range(definition.seed, definition.seed + definition.placebo_draws)
    if not seeds:
        return {ticker: np.zeros((len(days), 0)) for ticker, days in stage.grids.items()}
    lane = own.at(own.trial == own.trial.min())
    # A rating's place among the five, or behind them, is its state.
    paths = [lane.rating[rows] for _, rows in lane.by_ticker()]
    states = random_states(model_of_paths(paths, persistent=True), stage.grids, seeds=seeds)
    worth = _worth(definition.policy)
    return {ticker: worth.take(rows.T) for ticker, rows in states.items()}


def _band(name: str, unit: str, values: Sequence[float]) -> MetricRow:
    low, middle, high = _quantiles(values)
    return MetricRow(
        subject=PLACEBO,
        metric=name,
        value=middle,
        unit=unit,
        n=len(values),
        low=low,
        high=high,
        level=BAND[1] - BAND[0] if values else None,
        method="median and 5-95 % band of seeded random ratings",
        reason=None if values else "no_draws",
    )


def _share(name: str, trial: int, own: float | None, values: Sequence[float]) -> MetricRow:
    known = own is not None and bool(values)
    below = sum(value < own for value in values) if own is not None else 0
    return MetricRow(
        subject=RATINGS_BOOK,
        trial=trial,
        metric=f"placebo_share_below_{name}",
        value=below / len(values) if known else None,
        unit="fraction",
        n=len(values),
        method="share of random books with a lower figure",
        reason=None if known else "no_draws" if not values else "no_figure",
    )


def _quantiles(values: Sequence[float]) -> tuple[float | None, float | None, float | None]:
    if not values:
        return None, None, None
    low, middle, high = np.quantile(np.array(values), (BAND[0], 0.5, BAND[1]))
    return float(low), float(middle), float(high)


@dataclass(frozen=True, kw_only=True)
class _Draws:
    """Hold the figures of random books, one a draw; None where it has none."""

    total_return: Sequence[float | None] = ()
    sharpe: Sequence[float | None] = ()
    max_drawdown: Sequence[float | None] = ()


def _draws(equity: Floats, stage: Stage) -> _Draws:
    definition = stage.definition
    if not equity.shape[1]:
        return _Draws()
    # Rows in one piece: sums along them then add in one fixed order.
    curves = equity.T.copy()
    if stage.fills_first:
        front = np.full((len(curves), 1), definition.start_cash)
        curves = np.hstack([front, curves])
    return _measured(curves, periods_per_year(stage.sessions, stage.start, stage.end), stage)


def _worth(policy: Policy) -> Floats:
    weights = [policy.weight_of(state) for state in STATES]
    return np.array([math.nan if weight is None else weight for weight in weights])


def random_states(
    model: RatingModel, sessions: Mapping[str, Sequence[date]], *, seeds: Sequence[int]
) -> Mapping[str, npt.NDArray[np.int64]]:
    """Draw the paths of `placebo.random_ratings` for many seeds at once.

    Returns:
        Ticker -> draws x sessions (ascending) of places in `STATES`.
    """
    first = np.array(upper_ends(model.first))[:, None]
    then = np.array([upper_ends(row) for row in model.then]).T
    # No chance reaches an end that is always 1.
    short = (np.hstack([first, then]) < 1.0).any(axis=1)
    first, then = first[short], then[short].copy()
    tickers, draws = sorted(sessions), len(seeds)
    longest = max((len(sessions[ticker]) for ticker in tickers), default=0)
    # All tickers and draws go on together, a row each; a shorter path is cut at its end.
    chances = np.zeros((longest, len(tickers) * draws))
    for number, ticker in enumerate(tickers):
        days, mine = len(sessions[ticker]), slice(number * draws, (number + 1) * draws)
        chances[:days, mine] = _chances(seeds, ticker, days).T
    states = np.zeros(chances.shape, dtype=np.int64)
    ends = np.broadcast_to(first, (len(first), chances.shape[1]))
    for place in range(longest):
        states[place] = (chances[place] >= ends).sum(axis=0, dtype=np.int8)
        ends = then.take(states[place], axis=1)
    return {
        ticker: states[: len(sessions[ticker]), number * draws : (number + 1) * draws].T
        for number, ticker in enumerate(tickers)
    }


def _chances(seeds: Sequence[int], ticker: str, count: int) -> Floats:
    """Return what `placebo.random_ratings` draws for a ticker, a row a seed."""
    digest = _words(int.from_bytes(hashlib.sha256(ticker.encode()).digest()[:8], "big"))
    drawn = np.empty((len(seeds), count))
    for row, seed in zip(drawn, seeds, strict=True):
        # As words, which is what numpy makes of [seed, digest], in a third of the time.
        entropy = np.array([*_words(seed), *digest], dtype=np.uint32)
        sequence = np.random.SeedSequence(entropy)
        np.random.Generator(np.random.PCG64(sequence)).random(out=row)
    return drawn


def _words(number: int) -> list[int]:
    """Return a whole number, 0 or more, as 32 bits each, the lowest first."""
    found = [number & 0xFFFFFFFF]
    while number := number >> 32:
        found.append(number & 0xFFFFFFFF)
    return found


def _measured(equity: Floats, yearly: float | None, stage: Stage) -> _Draws:
    """Return the figures of `metrics.performance`, over all draws together."""
    if equity.shape[1] < 2:
        return _Draws()
    usable: Flags = np.all(equity[:, :-1] > 0.0, axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        returns = equity[:, 1:] / equity[:, :-1] - 1.0
    free = 0.0
    if yearly is not None:
        free = math.expm1(math.log1p(stage.definition.rf_annual) / yearly)
    peaks = np.maximum.accumulate(equity, axis=1)
    spread = np.ptp(returns, axis=1)
    deviation = returns.std(axis=1, ddof=1) if returns.shape[1] > 1 else np.zeros(len(returns))
    varies = (spread > _NO_SPREAD) & (deviation > 0.0)
    excess = (returns - free).mean(axis=1)
    root = None if yearly is None else math.sqrt(yearly)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = excess / deviation * (root or 1.0)
        falls = (equity / peaks - 1.0).min(axis=1)
        total = equity[:, -1] / equity[:, 0] - 1.0
    return _Draws(
        total_return=_where(total, usable),
        sharpe=_where(ratio, usable & varies & (root is not None)),
        max_drawdown=_where(falls, usable),
    )


def _where(values: Floats, known: Flags) -> list[float | None]:
    pairs = zip(values.tolist(), known.tolist(), strict=True)
    return [value if there and math.isfinite(value) else None for value, there in pairs]
