"""What the number of trials makes of a score's Sharpe ratio, and the lines that count them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date

import pyarrow as pa
import pyarrow.compute as pc

from backtester.score.compute import Score
from backtester.score.figures import DECISIONS
from backtester.score.files import StoredScore
from backtester.score.records import RATINGS_BOOK, MetricRow, table_of
from backtester.score.trials import (
    KnownTrials,
    ScoredTrial,
    canonical_json,
    hash_of,
    what_was_tried,
)
from backtester.statistics.metrics import Measure
from backtester.statistics.overfit import (
    deflated_sharpe,
    expected_best_sharpe,
    min_track_record_length,
    probabilistic_sharpe,
)
from backtester.statistics.precision import FEWEST_SESSIONS

# Returns are equal books' but for the last bits, where the start cash differs.
_BOOK_DIGITS = 12


@dataclass(frozen=True, kw_only=True)
class _Ratio:
    """Hold the Sharpe ratio of one lane's book, a session, and what its error depends on."""

    lane: int
    n: int
    sharpe: float | None
    skew: float | None
    kurtosis: float | None


def lane_returns(score: Score) -> dict[int, dict[date, float]]:
    """Return the session returns of the ratings' book of each lane."""
    return returns_by_lane(table_of("equity", score.rows["equity"]))


def returns_by_lane(equity: pa.Table) -> dict[int, dict[date, float]]:
    """Return the session returns of the ratings' books of a table ``equity``, by lane."""
    own = equity.select(["book", "trial", "session", "ret"])
    own = own.filter(pc.equal(own.column("book"), pa.scalar(RATINGS_BOOK)))
    lanes: dict[int, dict[date, float]] = {}
    columns = (own.column(name).to_pylist() for name in ("trial", "session", "ret"))
    for trial, session, ret in zip(*columns, strict=True):
        lane = lanes.setdefault(trial, {})
        if ret is not None:
            lane[session] = ret
    return lanes


def trials_of(score: Score) -> tuple[ScoredTrial, ...]:
    """Return the lines for the ledger: one for each book of the ratings, or one without a ratio."""
    definition, ratios, returns = score.definition, _ratios(score), lane_returns(score)
    document = definition.document()
    return tuple(
        ScoredTrial(
            family=definition.family,
            trial=what_was_tried(document, lane),
            run_id=definition.run_id,
            score_id=definition.score_id,
            universe=definition.universe,
            first=definition.first,
            last=definition.last,
            definition=definition.canonical,
            sharpe=ratios[lane].sharpe if lane in ratios else None,
            n=ratios[lane].n if lane in ratios else 0,
            lane=lane,
            book=_fingerprint(returns[lane])
            if lane in ratios and ratios[lane].sharpe is not None
            else None,
        )
        for lane in sorted(returns) or [0]
    )


def trials_of_stored(stored: StoredScore) -> tuple[ScoredTrial, ...]:
    """Return the lines for the ledger of a score as it is stored: those it had when it was made."""
    definition = stored.card.definition
    returns = returns_by_lane(stored.tables["equity"])
    figures = [
        row
        for row in stored.tables["metrics"].to_pylist()
        if row["subject"] == RATINGS_BOOK
        and row["metric"] == "sharpe_per_session"
        and row["scope"] == "all"
    ]
    ratios = {row["trial"]: row for row in figures if row["trial"] is not None}
    lines = []
    for lane in sorted(returns) or [0]:
        found = ratios.get(lane, {"value": None, "n": 0})
        lines.append(
            ScoredTrial(
                family=stored.card.family,
                trial=what_was_tried(definition, lane),
                run_id=definition["run_id"],
                score_id=stored.score_id,
                universe=tuple(definition["universe"]),
                first=date.fromisoformat(definition["first"]),
                last=date.fromisoformat(definition["last"]),
                definition=canonical_json(definition),
                sharpe=found["value"],
                n=found["n"],
                lane=lane,
                book=None if found["value"] is None else _fingerprint(returns[lane]),
            )
        )
    return tuple(lines)


def _fingerprint(returns: Mapping[date, float]) -> str:
    return hash_of([[f"{day}", f"{ret:.{_BOOK_DIGITS}f}"] for day, ret in sorted(returns.items())])


def _ratios(score: Score) -> dict[int, _Ratio]:
    figures: dict[int, dict[str, MetricRow]] = {}
    for row in score.rows["metrics"]:
        if not isinstance(row, MetricRow) or row.scope != "all":
            continue
        if row.subject == RATINGS_BOOK and row.trial is not None:
            figures.setdefault(row.trial, {})[row.metric] = row
    return {
        lane: _Ratio(
            lane=lane,
            n=found["sharpe_per_session"].n,
            sharpe=found["sharpe_per_session"].value,
            skew=found["skew"].value,
            kurtosis=found["kurtosis"].value,
        )
        for lane, found in figures.items()
        if "sharpe_per_session" in found
    }


def with_known_trials(score: Score, known: KnownTrials) -> Score:
    """Return a score with what the number of trials makes of its Sharpe ratio, frozen into it."""
    figures = [row for ratio in _ratios(score).values() for row in _deflated(ratio, known)]
    metrics = [*score.rows["metrics"], *_counts(known), *figures]
    return replace(score, rows={**score.rows, "metrics": metrics}, known=known)


def _counts(known: KnownTrials) -> Iterator[MetricRow]:
    counted = {
        "known_trials": (known.count, "sharing an instrument and sessions with this one"),
        "family_trials": (known.family, "of exactly this universe and window"),
    }
    for metric, (count, which) in counted.items():
        yield MetricRow(
            subject=DECISIONS,
            metric=metric,
            value=float(count),
            unit="count",
            n=count,
            method=f"distinct trials {which} that this workspace knows: at least",
        )


def _deflated(ratio: _Ratio, known: KnownTrials) -> Iterator[MetricRow]:
    if ratio.sharpe is None or ratio.skew is None or ratio.kurtosis is None:
        yield from _blank(ratio, "no_sharpe")
        return
    if ratio.n < FEWEST_SESSIONS:
        yield from _blank(ratio, "too_few_returns")
        return
    shape = {"skew": ratio.skew, "kurtosis": ratio.kurtosis}
    spread = max(1.0, known.variance or 0.0)
    variance = spread / (ratio.n - 1)
    best = expected_best_sharpe(trials=known.count, variance_of_trials=variance)
    measure = Measure(name="expected_best_sharpe", value=best, unit="ratio", n=known.count)
    yield _row(ratio, probabilistic_sharpe(ratio.sharpe, n=ratio.n, **shape))
    yield _row(ratio, measure, method=_scatter(known))
    found = deflated_sharpe(
        ratio.sharpe, n=ratio.n, trials=known.count, variance_of_trials=variance, **shape
    )
    yield _row(ratio, found, method=f"at least {_counted(known.count)}")
    length = min_track_record_length(ratio.sharpe, **shape)
    yield _row(ratio, replace(length, n=ratio.n))


def _blank(ratio: _Ratio, reason: str) -> Iterator[MetricRow]:
    names = {
        "probabilistic_sharpe": "probability",
        "expected_best_sharpe": "ratio",
        "deflated_sharpe": "probability",
        "min_track_record_length": "count",
    }
    for name, unit in names.items():
        yield _row(ratio, Measure(name=name, value=None, unit=unit, n=ratio.n, reason=reason))


def _counted(count: int) -> str:
    return f"{count} trial{'' if count == 1 else 's'}"


def _scatter(known: KnownTrials) -> str:
    """Say how far the trials' ratios lie apart, in units of what chance does."""
    if known.count == 1:
        return "one trial: 0"
    if known.variance is None:
        return "ratios taken to be as far apart as chance has them"
    measured = f"variance of {known.with_sharpe} ratios {known.variance:.3g} of what chance has"
    return measured if known.variance >= 1.0 else f"{measured}, taken as 1"


def _row(ratio: _Ratio, found: Measure, *, method: str | None = None) -> MetricRow:
    return MetricRow(
        subject=RATINGS_BOOK,
        trial=ratio.lane,
        metric=found.name,
        value=found.value,
        unit=found.unit,
        n=found.n,
        method=method,
        reason=found.reason,
    )
