"""Lay out a run before anything is decided: instruments, cells, cutoffs, identity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from backtester.calendar import Calendar, grid_sessions
from backtester.config import RunConfig
from backtester.errors import DataError
from backtester.own_book import require_known_by
from backtester.records import CellKey
from backtester.runs.folder import RESULTS_VERSION, run_id_of
from backtester.settlement.broker import ScoreRule, benchmark_for
from backtester.settlement.pricing import market_of
from backtester.snapshots.snapshot import Snapshot
from backtester.walk.held import require_priced


@dataclass(frozen=True, kw_only=True)
class Barrier:
    """Hold the cells that share one cutoff instant, sorted by ticker and trial.

    Attributes:
        cutoff: UTC instant.
        keys: Cells.
    """

    cutoff: datetime
    keys: tuple[CellKey, ...]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Say everything that a run will do.

    Attributes:
        config: With tickers resolved to instrument ids.
        snapshot: Opened snapshot.
        barriers: In order of their cutoff.
        warmup: Cells that decide and remember but are not scored.
        identity: Everything that can change an answer.
        run_id: Slug and hash of the identity.
        rule: The run's own score.
    """

    config: RunConfig
    snapshot: Snapshot
    barriers: tuple[Barrier, ...]
    warmup: frozenset[CellKey]
    identity: Mapping[str, Any]
    run_id: str
    rule: ScoreRule

    def rule_of(self, instrument: str) -> ScoreRule:
        """Return the score rule of an instrument: its benchmark may come from the map."""
        return replace(self.rule, benchmark=self.config.benchmark_of(instrument))

    @property
    def cells(self) -> int:
        """Number of cells."""
        return sum(len(barrier.keys) for barrier in self.barriers)

    @property
    def moved(self) -> str:
        """Which listed dates are no sessions and where they went, in words; empty for none."""
        listed = () if isinstance(self.config.grid, str) else sorted(set(self.config.grid))
        markets = (market_of(self.snapshot, ticker).calendar for ticker in self.config.tickers)
        found = []
        for code, calendar in sorted({calendar.code: calendar for calendar in markets}.items()):
            moved = [day for day in listed if not calendar.is_session(day)]
            if moved:
                dates = "date is" if len(moved) == 1 else "dates are"
                example = f"{moved[0]} on {calendar.last_on_or_before(moved[0])}"
                found.append(
                    f"{len(moved)} listed {dates} no session of {code}, and decided on the one "
                    f"before: {example}{', ...' if len(moved) > 1 else ''}"
                )
        return "; ".join(found)


def lay_out(
    config: RunConfig, snapshot: Snapshot, *, fingerprint: str, scored: bool = True
) -> Plan:
    """Resolve tickers, build each instrument's grid and gather cells by cutoff instant.

    Args:
        config: What is asked for.
        snapshot: What it runs on.
        fingerprint: `Pipeline.fingerprint()`, part of the identity.
        scored: Whether the point is a table of alphas: then a default benchmark that the snapshot
            lacks is refused. A single decision may go without one.

    Raises:
        DataError: A ticker or date that the snapshot does not hold.
        UsageError: A grid without a session, or a book of a day after the first one.
    """
    instruments = tuple(resolve_ticker(snapshot, ticker, config) for ticker in config.tickers)
    _require_range(config, snapshot)
    for instrument in instruments:
        require_benchmark(config, snapshot, instrument, scored=scored)
    config = config.model_copy(update={"tickers": tuple(dict.fromkeys(instruments))})
    cells = _gather(config, snapshot)
    _require_first(cells.grids, snapshot)
    _require_book(config, snapshot, cells.barriers[0], whole=scored)
    identity = {
        **config.identity_fields(),
        "tickers": sorted(config.tickers),
        "grid_sessions": cells.grids,
        "snapshot_id": snapshot.id,
        "prompt_fingerprint": fingerprint,
        "results_version": RESULTS_VERSION,
    }
    return Plan(
        config=config,
        snapshot=snapshot,
        barriers=cells.barriers,
        warmup=cells.warmup,
        identity=identity,
        run_id=run_id_of(config, identity),
        rule=score_rule(config),
    )


@dataclass(frozen=True, kw_only=True)
class _Cells:
    barriers: tuple[Barrier, ...]
    warmup: frozenset[CellKey]
    grids: dict[str, list[str]]


def _gather(config: RunConfig, snapshot: Snapshot) -> _Cells:
    by_cutoff: dict[datetime, list[CellKey]] = {}
    warmup: set[CellKey] = set()
    grids: dict[str, list[str]] = {}
    for instrument in sorted(config.tickers):
        calendar = market_of(snapshot, instrument).calendar
        sessions = grid_sessions(calendar, config.grid, config.start, config.end)
        grids[instrument] = [session.isoformat() for session in sessions]
        for position, session in enumerate(sessions):
            for trial in range(config.trials):
                key = CellKey(session=session, ticker=instrument, trial=trial)
                by_cutoff.setdefault(cutoff_of(calendar, session, config), []).append(key)
                if position < config.warmup:
                    warmup.add(key)
    barriers = tuple(
        Barrier(cutoff=cutoff, keys=tuple(sorted(keys, key=lambda k: (k.ticker, k.trial))))
        for cutoff, keys in sorted(by_cutoff.items())
    )
    return _Cells(barriers=barriers, warmup=frozenset(warmup), grids=grids)


def score_rule(config: RunConfig) -> ScoreRule:
    """Return the run's own score, named ``default``."""
    return ScoreRule(
        horizon=config.horizon,
        entry_rule=config.entry_rule,
        decision_time=config.decision_time,
        benchmark=config.benchmark,
        haircut=config.delisting_haircut,
    )


def cutoff_of(calendar: Calendar, session: date, config: RunConfig) -> datetime:
    """Return the cutoff of a decision of ``session``: its close, or its open."""
    if config.decision_time == "close":
        return calendar.close_utc(session)
    return calendar.open_utc(session)


def resolve_ticker(snapshot: Snapshot, ticker: str, config: RunConfig) -> str:
    """Return the instrument id of a ticker, by the names valid from start to end of the run.

    Raises:
        DataError: The snapshot does not hold it; the message lists what it holds.
    """
    known = snapshot.instruments()
    if ticker in known:
        return ticker
    meant = {on: snapshot.resolve(ticker, on) for on in (config.start, config.end)}
    found = sorted({instrument for instrument in meant.values() if instrument is not None})
    if len(found) > 1:
        raise DataError(
            f"ticker {ticker!r} was {meant[config.start]} on {config.start} and "
            f"{meant[config.end]} on {config.end}: write the instrument that you mean"
        )
    if found:
        return found[0]
    raise DataError(
        f"ticker {ticker!r} is not in snapshot {snapshot.name}: it holds {', '.join(known)}"
    )


def require_benchmark(
    config: RunConfig, snapshot: Snapshot, instrument: str, *, scored: bool = True
) -> None:
    """Refuse a benchmark that the snapshot lacks, before anything is spent on a run without alpha.

    A market that has no default benchmark is no error: its rows say so.
    """
    choice = benchmark_for(instrument, config.benchmark_of(instrument))
    held = snapshot.instruments()
    if choice.symbol is None or choice.symbol in held:
        return
    if choice.source != "explicit" and not scored:
        return
    if any(snapshot.resolve(choice.symbol, on) for on in (config.start, config.end)):
        return
    whose = "" if choice.source == "explicit" else f", the default for {instrument},"
    raise DataError(
        f"benchmark {choice.symbol}{whose} is not in snapshot {snapshot.name}, which holds "
        f"{', '.join(held)}: name one of these with --benchmark, or 'none'"
    )


def _require_range(config: RunConfig, snapshot: Snapshot) -> None:
    if config.start >= snapshot.start and config.end <= snapshot.end:
        return
    raise DataError(
        f"dates {config.start} to {config.end} reach outside snapshot {snapshot.name}, which "
        f"covers {snapshot.start} to {snapshot.end}: choose dates within it"
    )


def _require_book(config: RunConfig, snapshot: Snapshot, first: Barrier, *, whole: bool) -> None:
    """Refuse a user's own book of a later day, or one that the snapshot contradicts."""
    day, at_open = _first_day(first, snapshot), config.decision_time == "open"
    require_known_by(config.portfolio, day, at_open=at_open)
    require_priced(config.portfolio, snapshot, day, at_open=at_open, whole=whole)


def _first_day(first: Barrier, snapshot: Snapshot) -> date:
    """Return the day of the first cutoff; a session of futures opens on the evening before it."""
    zones = {market_of(snapshot, key.ticker).calendar.tz for key in first.keys}
    return min(first.cutoff.astimezone(ZoneInfo(zone)).date() for zone in zones)


def _require_first(grids: Mapping[str, Sequence[str]], snapshot: Snapshot) -> None:
    """Refuse a listed date that moved to a session before the snapshot."""
    for instrument, sessions in grids.items():
        require_session_held(instrument, date.fromisoformat(sessions[0]), snapshot)


def require_session_held(instrument: str, session: date, snapshot: Snapshot) -> None:
    """Refuse a session that a date moved to and that the snapshot does not reach back to.

    Raises:
        DataError: Names the session.
    """
    if session < snapshot.start:
        raise DataError(
            f"the first date is no session of {instrument}, and the one before, {session}, is "
            f"before snapshot {snapshot.name}, which begins on {snapshot.start}: begin later"
        )


def cache_folder(data_dir: Path) -> Path:
    """Return where a workspace keeps its reply cache."""
    return data_dir / "cache" / "replies"
