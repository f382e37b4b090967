"""From a row of the table to weights at the decision sessions of a run."""

from __future__ import annotations

import difflib
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from types import MappingProxyType
from typing import Literal

import numpy as np
import numpy.typing as npt

from backtester.baselines.charts import Chart
from backtester.baselines.history import Histories, Seen
from backtester.baselines.placebo import model_of, random_ratings, uniform_model
from backtester.baselines.rules import Parameters, Wanted
from backtester.baselines.table import BASELINES, PLACEBO, BaselineRow
from backtester.book.policy import Policy, policy_named
from backtester.book.records import Signal, TargetSignal
from backtester.config import DecisionTime
from backtester.errors import UsageError
from backtester.snapshots.snapshot import Snapshot

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Rule = Callable[[Chart, Parameters], Wanted]

REASONS: Mapping[str, str] = MappingProxyType(
    {
        "short_history": "fewer bars than the rule's windows need: nothing is held",
        "no_bar": "no bar of the last closed session: what is held is kept",
        "undefined": "the rule has no value, such as a deviation of 0: it stays as it was",
    }
)
"""Why a decision of a baseline is none of its rule: code -> what it means."""


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """Hold what one baseline wants, and how that came about.

    Attributes:
        name: Row of the table.
        preset: Name of its parameters; empty where it has none.
        parameters: Parameter -> value.
        signals: By (session, ticker); a weight of None keeps what is held.
        counts: How many decisions each of `REASONS` made, those of 0 left out.
        rebalance: See `BaselineRow`.
    """

    name: str
    preset: str
    parameters: Parameters
    signals: tuple[TargetSignal, ...]
    counts: Mapping[str, int]
    rebalance: Literal["always"] | None


def baseline(
    name: str,
    preset: str = "",
    *,
    snapshot: Snapshot,
    tickers: Sequence[str],
    sessions: Mapping[str, Sequence[date]],
    decision_time: DecisionTime,
    seed: int = 0,
    own: Sequence[Signal] = (),
    policy: Policy | None = None,
    histories: Histories | None = None,
) -> Baseline:
    """Return what a baseline wants at the decision sessions of a run.

    Args:
        name: Row of `BASELINES`.
        preset: Name of its parameters, or empty for the first one.
        snapshot: Where prices come from; at each session those known at its cutoff.
        tickers: Instrument ids.
        sessions: Decision sessions by ticker.
        decision_time: Whether the cutoff is the close or the open of a session.
        seed: Of random ratings.
        own: The run's ratings, which random ones are to be like; not needed for ``uniform``.
        policy: What a random rating is worth; default ``long_only``.
        histories: Of this snapshot and decision time, where several baselines share them.

    Raises:
        UsageError: An unknown name or preset, or random ratings that lack the run's.
        DataError: A date is no session of its ticker.
    """
    row = _row(name)
    preset, parameters = _parameters(name, row, preset)
    grids = {ticker: tuple(sorted(set(sessions.get(ticker, ())))) for ticker in tickers}
    counts: Mapping[str, int] = {}
    if name == PLACEBO:
        signals = _random(preset, grids, seed=seed, own=own, policy=policy)
    else:
        held = histories if histories is not None else Histories(snapshot, decision_time)
        found = baseline_weights(name, preset, grids, held)
        counts, signals = found.counts, _signals(grids, found.weights)
    return Baseline(
        name=name,
        preset=preset,
        parameters=MappingProxyType(dict(parameters)),
        signals=tuple(sorted(signals, key=lambda one: (one.session, one.ticker))),
        counts=MappingProxyType(dict(sorted(counts.items()))),
        rebalance=row.rebalance,
    )


def _signals(
    grids: Mapping[str, Sequence[date]], weights: Mapping[str, Floats]
) -> list[TargetSignal]:
    return [
        TargetSignal(ticker=ticker, session=day, weight=None if math.isnan(one) else one)
        for ticker, days in grids.items()
        for day, one in zip(days, weights[ticker].tolist(), strict=True)
    ]


@dataclass(frozen=True, kw_only=True)
class BaselineWeights:
    """Hold what one baseline wants at each decision session.

    Attributes:
        weights: Ticker -> its sessions; NaN keeps what is held.
        counts: See `Baseline`.
        rebalance: See `BaselineRow`.
    """

    weights: Mapping[str, Floats]
    counts: Mapping[str, int]
    rebalance: Literal["always"] | None


def baseline_weights(
    name: str, preset: str, grids: Mapping[str, tuple[date, ...]], histories: Histories
) -> BaselineWeights:
    """Return what a baseline that is not random wants; see `baseline`.

    Args:
        name: Row of `BASELINES`.
        preset: Name of its parameters, or empty for the first one.
        grids: Decision sessions by ticker, ascending.
        histories: What is known at them.
    """
    row = _row(name)
    _, parameters = _parameters(name, row, preset)
    weights: dict[str, Floats] = {}
    reasons: Counter[str] = Counter()
    for ticker, days in grids.items():
        if row.schedule == "each":
            weights[ticker] = np.full(len(days), 1.0)
            continue
        seen = histories.seen(ticker, days)
        found = _first(seen) if row.rule is None else _by_rule(seen, row.rule, parameters)
        weights[ticker] = found.weights
        reasons.update({word: int(which.sum()) for word, which in found.reasons.items()})
    counts = {word: count for word, count in reasons.items() if count}
    return BaselineWeights(weights=weights, counts=counts, rebalance=row.rebalance)


@dataclass(frozen=True, kw_only=True)
class _Choices:
    """Hold weights by session, and at which of them each reason holds."""

    weights: Floats
    reasons: Mapping[str, Flags]


def _by_rule(seen: Seen, rule: Rule, parameters: Parameters) -> _Choices:
    """Return weights and reasons at each session, by the rule on the bars that it sees.

    The rule is worked out once for all bars of an epoch: what it says at a bar follows from the
    bars up to it.
    """
    weights = np.zeros(len(seen.sessions))
    short, undefined = np.ones(len(weights), np.bool_), np.zeros(len(weights), np.bool_)
    for number, chart in enumerate(seen.charts):
        mine = np.flatnonzero(seen.epoch == number)
        if not len(chart.bars) or not len(mine):
            continue
        wanted = rule(chart, parameters)
        mine = mine[seen.visible[mine] >= wanted.warm_up]
        newest = seen.visible[mine] - 1
        weights[mine] = wanted.position()[newest]
        undefined[mine] = wanted.undefined[newest]
        short[mine] = False
    stale = ~short & ~seen.fresh
    weights[stale] = np.nan
    reasons = {"short_history": short, "no_bar": stale, "undefined": undefined & ~short & ~stale}
    return _Choices(weights=weights, reasons=reasons)


def _first(seen: Seen) -> _Choices:
    """Buy at the first session that sees a bar of the last closed one, then keep it."""
    usable = np.flatnonzero(seen.fresh)
    first = int(usable[0]) if len(usable) else len(seen.sessions)
    before = np.arange(len(seen.sessions)) < first
    weights = np.where(before, 0.0, np.nan)
    weights[first : first + 1] = 1.0
    return _Choices(weights=weights, reasons={"no_bar": before})


def _random(
    preset: str,
    grids: Mapping[str, Sequence[date]],
    *,
    seed: int,
    own: Sequence[Signal],
    policy: Policy | None,
) -> list[TargetSignal]:
    worth = policy if policy is not None else policy_named("long_only")
    model = uniform_model() if preset == "uniform" else model_of(own, persistent=preset == "markov")
    return [
        TargetSignal(
            ticker=drawn.ticker, session=drawn.session, weight=worth.weight_of(drawn.rating)
        )
        for drawn in random_ratings(model, grids, seed=seed)
    ]


def _row(name: str) -> BaselineRow:
    if name not in BASELINES:
        raise UsageError(f"there is no baseline {name!r}: {_meant(name, BASELINES)}")
    return BASELINES[name]


def _parameters(name: str, row: BaselineRow, preset: str) -> tuple[str, Parameters]:
    if not row.presets and not preset:
        return "", {}
    preset = preset or next(iter(row.presets))
    if preset not in row.presets:
        known = _meant(preset, row.presets) if row.presets else "it has no parameters"
        raise UsageError(f"baseline {name} has no preset {preset!r}: {known}")
    return preset, row.presets[preset]


def _meant(word: str, known: Iterable[str]) -> str:
    names = tuple(known)
    near = difflib.get_close_matches(word[:60], names, n=1, cutoff=0.6)
    return f"did you mean {near[0]!r}?" if near else f"write one of {', '.join(names)}"
