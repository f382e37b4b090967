"""From a row of the table to weights at the decision sessions of a run."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from types import MappingProxyType
from typing import Literal

import numpy as np

from backtester.baselines.history import Histories, Seen
from backtester.baselines.placebo import model_of, random_ratings, uniform_model
from backtester.baselines.rules import Parameters, Wanted
from backtester.baselines.table import BASELINES, PLACEBO, BaselineRow
from backtester.book.policy import Policy, policy_named
from backtester.book.records import Signal, TargetSignal
from backtester.config import DecisionTime
from backtester.errors import UsageError
from backtester.snapshots.snapshot import Snapshot

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
    counts: Counter[str] = Counter()
    if name == PLACEBO:
        signals = _random(preset, grids, seed=seed, own=own, policy=policy)
    elif row.schedule == "each":
        signals = [one for ticker, days in grids.items() for one in _signals(ticker, days, 1.0)]
    else:
        held = histories if histories is not None else Histories(snapshot, decision_time)
        signals = _by_price(held, grids, row, parameters, counts)
    return Baseline(
        name=name,
        preset=preset,
        parameters=MappingProxyType(dict(parameters)),
        signals=tuple(sorted(signals, key=lambda one: (one.session, one.ticker))),
        counts=MappingProxyType(dict(sorted(counts.items()))),
        rebalance=row.rebalance,
    )


Choice = tuple[float | None, str]


def _by_price(
    histories: Histories,
    grids: Mapping[str, tuple[date, ...]],
    row: BaselineRow,
    parameters: Parameters,
    counts: Counter[str],
) -> list[TargetSignal]:
    """Ask a rule, or the first bar, about each ticker; reasons are counted on the way."""
    signals = []
    for ticker, days in grids.items():
        seen = histories.seen(ticker, days)
        found = _first(seen) if row.rule is None else _by_rule(seen, row, parameters)
        counts.update(reason for _, reason in found if reason)
        for day, (weight, _) in zip(days, found, strict=True):
            signals.append(TargetSignal(ticker=ticker, session=day, weight=weight))
    return signals


def _by_rule(seen: Seen, row: BaselineRow, parameters: Parameters) -> list[Choice]:
    """Return weight and reason at each session, by the rule on the bars that it sees.

    The rule is worked out once for all bars of an epoch: what it says at a bar follows from the
    bars up to it.
    """
    if row.rule is None:
        raise AssertionError("a baseline without a rule has a schedule")
    whole = [
        _Followed.of(row.rule(bars, parameters)) if len(bars) else None for bars in seen.epochs
    ]
    columns = zip(seen.epoch.tolist(), seen.visible.tolist(), seen.fresh.tolist(), strict=True)
    return [_choice(whole[epoch], visible, fresh) for epoch, visible, fresh in columns]


@dataclass(frozen=True, kw_only=True)
class _Followed:
    """Hold what a rule holds after each bar, as plain values."""

    position: list[float]
    undefined: list[bool]
    warm_up: int

    @classmethod
    def of(cls, wanted: Wanted) -> _Followed:
        return cls(
            position=wanted.position().tolist(),
            undefined=wanted.undefined.tolist(),
            warm_up=wanted.warm_up,
        )


def _choice(followed: _Followed | None, visible: int, fresh: bool) -> Choice:
    if followed is None or visible < followed.warm_up:
        return 0.0, "short_history"
    if not fresh:
        return None, "no_bar"
    reason = "undefined" if followed.undefined[visible - 1] else ""
    return followed.position[visible - 1], reason


def _first(seen: Seen) -> list[Choice]:
    """Buy at the first session that sees a bar of the last closed one, then keep it."""
    usable = np.flatnonzero(seen.fresh)
    first = int(usable[0]) if len(usable) else len(seen.sessions)
    before: list[Choice] = [(0.0, "no_bar")] * first
    after: list[Choice] = [(None, "")] * (len(seen.sessions) - first - 1)
    return [*before, *([(1.0, "")] if len(usable) else []), *after]


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


def _signals(ticker: str, sessions: Iterable[date], weight: float) -> list[TargetSignal]:
    return [TargetSignal(ticker=ticker, session=day, weight=weight) for day in sessions]


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
