"""What a score is a function of, beside the stored decisions: rules, costs, window, snapshot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from types import MappingProxyType
from typing import Any, Final

from backtester.book.costs import Costs
from backtester.book.policy import Policy, policy_named
from backtester.book.records import BookRule, Rebalance
from backtester.config import (
    OWN_COMMISSION_BPS,
    OWN_SLIPPAGE_BPS,
    DecisionTime,
    EntryRule,
    RunConfig,
)
from backtester.errors import UsageError
from backtester.runs.folder import EARLY_FILLS
from backtester.score.labels import score_slug
from backtester.score.trials import canonical_json, hash_of, what_was_tried
from backtester.settlement.broker import FILLS, ScoreRule
from backtester.spellings import shown
from backtester.statistics.folds import walk_forward_folds

DEFAULT_SCORE: Final = "default"
HORIZONS: Final = (1, 5, 20)
"""Horizons, in sessions, that every score has beside its own, if its entry rule leaves time."""

PLACEBO_DRAWS: Final = 200
MOST_DRAWS: Final = 100_000
MOST_HORIZONS: Final = 50
_SEEDS: Final = 1 << 63
DEFAULT_COSTS: Final = Costs(commission_bps=OWN_COMMISSION_BPS, slippage_bps=OWN_SLIPPAGE_BPS)
"""What a run's own score charges: a book without costs is no book that anybody could have had."""

_DIGITS: Final = 8


@dataclass(frozen=True, kw_only=True)
class ScoreDefinition:
    """Say how stored decisions are scored.

    Attributes:
        run_id: Run whose decisions they are.
        universe: Instruments, sorted.
        snapshot_id: Content hash of the snapshot that is scored on.
        decision_time: Of the run.
        entry_rule: Where orders fill and windows begin.
        horizon: Sessions from the decision to the exit: that of table ``returns``.
        horizons: All horizons that figures are given for, ascending; the own one among them.
        benchmark: Explicit benchmark, or None for that of the map or the market.
        benchmark_map: Suffix -> benchmark.
        haircut: Fraction taken off the last close of what stops trading.
        first: First day of the window of decisions.
        last: Last day.
        policy: What a rating is worth.
        costs: What trading costs.
        start_cash: Of the book.
        slots: Of the book; None for one a ticker.
        rebalance: See `BookRule`.
        fractional: Whether the book trades parts of a share.
        charge_model_cost: Whether the models' bill is taken out of the book.
        rf_annual: Risk-free rate a year.
        fold: Length of the walk-forward folds, such as ``6M``, or None.
        placebo_draws: Random books to compare with.
        seed: Of everything drawn.
        score_id: Its name; empty for the one made of its content.
    """

    run_id: str
    universe: tuple[str, ...]
    snapshot_id: str
    decision_time: DecisionTime
    entry_rule: EntryRule
    horizon: int
    first: date
    last: date
    horizons: tuple[int, ...] = HORIZONS
    benchmark: str | None = None
    benchmark_map: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    haircut: float = 0.0
    policy: Policy = field(default_factory=lambda: policy_named("long_only"))
    costs: Costs = field(default_factory=Costs)
    start_cash: float = 1_000_000.0
    slots: int | None = None
    rebalance: Rebalance = "on_change"
    fractional: bool = True
    charge_model_cost: bool = False
    rf_annual: float = 0.0
    fold: str | None = None
    placebo_draws: int = PLACEBO_DRAWS
    seed: int = 0
    score_id: str = ""

    def __post_init__(self) -> None:
        """Refuse what cannot be scored, before anything is.

        Raises:
            UsageError: With what to write instead.
        """
        if self.last < self.first:
            raise UsageError(f"the window {self.first} to {self.last} is empty: swap its dates")
        if self.placebo_draws < 0:
            raise UsageError(f"{self.placebo_draws} placebo draws: write 0 or more")
        if self.fold is not None:
            walk_forward_folds(self.first, self.last, length=self.fold)
        self._refuse_sizes()
        for horizon in self.horizons:
            self.rule_for(horizon)
        self.book_rule()
        wanted = tuple(sorted({self.horizon, *self.horizons}))
        object.__setattr__(self, "horizons", wanted)
        if not self.score_id:
            front = f"{self.policy.name.replace('_', '-')}-h{self.horizon}"
            object.__setattr__(self, "score_id", self._made_id(front))

    def _refuse_sizes(self) -> None:
        if self.placebo_draws > MOST_DRAWS:
            raise UsageError(f"{self.placebo_draws} placebo draws: write {MOST_DRAWS:,} or less")
        if not 0 <= self.seed < _SEEDS:
            raise UsageError(f"seed {self.seed}: write 0 to {_SEEDS - 1}")
        if not -1.0 < self.rf_annual <= 1.0:
            raise UsageError(f"risk-free rate {self.rf_annual}: write a fraction above -1, up to 1")
        if len(set(self.horizons)) > MOST_HORIZONS:
            raise UsageError(f"{len(set(self.horizons))} horizons: name {MOST_HORIZONS} at most")

    def rule_for(self, horizon: int, instrument: str | None = None) -> ScoreRule:
        """Return how decisions on an instrument are settled to a horizon.

        Raises:
            UsageError: A horizon that the entry rule has no window for.
        """
        return ScoreRule(
            horizon=horizon,
            entry_rule=self.entry_rule,
            decision_time=self.decision_time,
            benchmark=self.benchmark_of(instrument),
            haircut=self.haircut,
            score_id=self.score_id or DEFAULT_SCORE,
        )

    def benchmark_of(self, instrument: str | None) -> str | None:
        """Return the benchmark that is named for an instrument, or None for its market's own."""
        if self.benchmark is not None or instrument is None:
            return self.benchmark
        return self.benchmark_map.get(instrument.rpartition(".")[2] if "." in instrument else "")

    def book_rule(self) -> BookRule:
        """Return how the book is kept."""
        return BookRule(
            policy=self.policy,
            costs=self.costs,
            entry_rule=self.entry_rule,
            decision_time=self.decision_time,
            start_cash=self.start_cash,
            slots=self.slots,
            rebalance=self.rebalance,
            haircut=self.haircut,
            fractional=self.fractional,
        )

    def document(self) -> dict[str, Any]:
        """Return the definition as JSON values, without its name."""
        words = {
            name: getattr(self, name)
            for name in self.__dataclass_fields__
            if name not in ("policy", "costs", "score_id")
        }
        return {
            **words,
            "universe": list(self.universe),
            "horizons": list(self.horizons),
            "benchmark_map": dict(sorted(self.benchmark_map.items())),
            "first": self.first.isoformat(),
            "last": self.last.isoformat(),
            "policy": {
                "name": self.policy.name,
                "hold": self.policy.hold,
                "weights": dict(sorted(self.policy.weights.items())),
            },
            "costs": asdict(self.costs),
        }

    @property
    def canonical(self) -> str:
        """The definition as canonical JSON."""
        return canonical_json(self.document())

    @property
    def trial(self) -> str:
        """Hash of what its first lane tries, see `trials`."""
        return what_was_tried(self.document())

    @property
    def family(self) -> str:
        """Hash of universe and window."""
        window = [self.first.isoformat(), self.last.isoformat()]
        return hash_of({"universe": list(self.universe), "window": window})

    def _made_id(self, front: str) -> str:
        return f"{front}-{hash_of(self.document())[:_DIGITS]}"


def run_definition(
    config: RunConfig,
    *,
    run_id: str,
    snapshot_id: str,
    universe: tuple[str, ...],
    grids: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> ScoreDefinition:
    """Return the definition of a run's own score.

    Args:
        config: Of the run.
        run_id: The run.
        snapshot_id: Its snapshot.
        universe: Its instruments.
        grids: Instrument -> its decision sessions, as a run's identity has them: a first date that
            is no session is decided on one before the run's start, and counts.
    """
    sessions = [date.fromisoformat(day) for grid in grids.values() for day in grid[:1]]
    return ScoreDefinition(
        run_id=run_id,
        universe=tuple(sorted(universe)),
        snapshot_id=snapshot_id,
        decision_time=config.decision_time,
        entry_rule=config.entry_rule,
        horizon=config.horizon,
        horizons=_long_enough(HORIZONS, config.entry_rule),
        benchmark=config.benchmark,
        benchmark_map=dict(config.benchmark_map),
        haircut=config.delisting_haircut,
        costs=DEFAULT_COSTS,
        first=min((config.start, *sessions)),
        last=config.end,
        score_id=DEFAULT_SCORE,
    )


def require_filled_after_dates(
    definition: ScoreDefinition, external: Mapping[str, Any] | None
) -> None:
    """Refuse to fill decisions that were made elsewhere before the date that they bear.

    A date that is no session stands on a session beside it, and on the one before if the import's
    own entry rule fills after it. Another rule need not.

    Args:
        definition: How they are to be scored.
        external: What the identity of an imported run says of it, or None for another run.

    Raises:
        UsageError: With what to do.
    """
    if external is None:
        return
    rule = definition.entry_rule
    when = " --decision-time open" if definition.decision_time == "open" else ""
    way = f"import them again with --entry {rule}{when}, which puts each where it fills later"
    early = external.get(EARLY_FILLS)
    if early is None and FILLS[rule][0] == 0:
        raise UsageError(
            f"run {definition.run_id} does not say which of its dates were no sessions, so entry "
            f"rule {rule!r} could fill decisions before they were made: {way}"
        )
    count = (early or {}).get(rule, 0)
    if count:
        those = "1 decision" if count == 1 else f"{count} decisions"
        raise UsageError(
            f"entry rule {rule!r} would fill {those} of run {definition.run_id} before the date "
            f"in the file, which is no session: {way}"
        )


def changed(definition: ScoreDefinition, **changes: Any) -> ScoreDefinition:
    """Return another definition; its name follows from what differs, and from its content.

    Where nothing differs it is the same one.

    Raises:
        UsageError: A window that lies past the first one, rules that do not fit, or a decision
            time that is not the run's.
    """
    when = changes.get("decision_time", definition.decision_time)
    if when != definition.decision_time:
        raise UsageError(
            f"decision_time {shown(str(when))}: these decisions were made at the "
            f"{definition.decision_time} of their session, which a score cannot change: leave it "
            "out, or decide anew"
        )
    first, last = changes.get("first", definition.first), changes.get("last", definition.last)
    if first > definition.last:
        raise UsageError(
            f"{first} is after the last day of decisions, {definition.last}: begin before it"
        )
    if last < definition.first:
        raise UsageError(
            f"{last} is before the first day of decisions, {definition.first}: end the window later"
        )
    if "horizons" not in changes:
        rule = changes.get("entry_rule", definition.entry_rule)
        changes["horizons"] = _long_enough(definition.horizons, rule)
    made = replace(definition, **{**changes, "score_id": ""})
    if made.document() == definition.document():
        return definition
    front = score_slug(made.document(), definition.document())
    return replace(made, score_id=made._made_id(front))


def _long_enough(horizons: Sequence[int], rule: str) -> tuple[int, ...]:
    """Return the horizons that nobody asked for and that end after a fill of an entry rule."""
    return tuple(horizon for horizon in horizons if horizon >= 2 or rule != "next_close")
