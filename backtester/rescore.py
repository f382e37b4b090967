"""Score a stored run again: other rules, another window, a newer snapshot; no model is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from backtester.config import RunConfig
from backtester.errors import DataError, RunLocked
from backtester.loading import recorded_config
from backtester.publication import Publisher, read_whole
from backtester.runs.folder import EXTERNAL, RunFolder, RunManifest, find_run
from backtester.score.definition import (
    DEFAULT_SCORE,
    ScoreDefinition,
    changed,
    require_filled_after_dates,
    run_definition,
)
from backtester.score.files import (
    StoredScore,
    read_score,
    score_ids,
    scores_folder,
    stored_cards,
)
from backtester.score.keeping import Decisions, bring_back_lines, is_kept, make_score
from backtester.score.standing import keep_standing, read_standing
from backtester.settlement.benchmark import benchmark_for
from backtester.snapshots.diff import TableDiff, diff_tables
from backtester.snapshots.snapshot import Snapshot, open_snapshot
from backtester.store.publishing import publish_score
from backtester.walk.plan import require_benchmark

WAIT_S: Final = 60.0
"""How long to wait for another score of the run; one takes a second or two."""

_CORE = ("bars", "actions")


@dataclass(frozen=True, kw_only=True)
class Rescored:
    """Say what came of scoring a run again.

    Attributes:
        run_id: The run.
        score_id: The score.
        database: Where its rows are.
        new: False where this very score was there already.
        label: What to say of decisions that were made elsewhere, or None.
        revisions: What the snapshot says otherwise than the run's own, of the scored instruments.
        said: What a user should know of the database, one line each.
        left_out: What is not in it for it is damaged, one line each.
    """

    run_id: str
    score_id: str
    database: Path
    new: bool
    label: str | None = None
    revisions: tuple[TableDiff, ...] = ()
    said: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


def rescore(
    folder: RunFolder,
    data_dir: Path,
    changes: Mapping[str, Any],
    *,
    snapshot: str | None = None,
    again: bool = False,
    book_required: bool = False,
    waiting: Callable[[str], object] = str,
) -> Rescored:
    """Score the stored decisions of a finished run, after a score of it that is being made.

    Args:
        folder: The run's folder.
        data_dir: Where snapshots are.
        changes: Fields of `ScoreDefinition` that differ from the run's own score; none: that one.
        snapshot: Name or folder of another snapshot to settle on.
        again: Make it also where it is there.
        book_required: Refuse where no book can be kept.
        waiting: Takes the line that says who is waited for.

    Raises:
        DataError: The run is not finished or damaged, a snapshot is missing, or it lacks the
            benchmark that is asked for; or the database is damaged or of a newer release.
        UsageError: Rules that do not fit, a window without decisions.
        RunLocked: Another process has held the run for `WAIT_S`.
    """
    manifest = _finished(folder)
    config = recorded_config(manifest.config, {"data_dir": data_dir})
    before, after = _snapshots(config, data_dir, manifest, named=snapshot)
    definition = _asked(config, manifest, changes, after)
    revisions = _revisions(before, after, definition)
    with _held(folder, manifest, waiting):
        publisher = Publisher(folder.path.parent, folder)
        publisher.make_ready()
        there = None if again else _there(publisher, folder, manifest, definition)
        score = there or _made(folder, manifest, definition, after, book_required)
        _publish(publisher, folder, manifest, score)
    return Rescored(
        run_id=manifest.run_id,
        score_id=definition.score_id,
        database=publisher.database,
        new=there is None,
        label=manifest.label,
        revisions=revisions,
        said=publisher.said,
        left_out=publisher.left_out,
    )


@contextmanager
def _held(
    folder: RunFolder, manifest: RunManifest, waiting: Callable[[str], object]
) -> Iterator[None]:
    """Hold the run, after whoever holds it now."""
    with ExitStack() as held:
        try:
            held.enter_context(folder.lock())
        except RunLocked as error:
            waiting(str(error))
            held.enter_context(folder.lock(wait_s=WAIT_S))
            if folder.read_manifest() != manifest:
                raise DataError(
                    f"run {manifest.run_id} was changed meanwhile: score it again"
                ) from error
        yield


def _asked(
    config: RunConfig, manifest: RunManifest, changes: Mapping[str, Any], snapshot: Snapshot
) -> ScoreDefinition:
    """Return the definition of the score that is asked for; see `rescore` for what is refused."""
    definition = run_definition(
        config,
        run_id=manifest.run_id,
        snapshot_id=manifest.snapshot_id,
        universe=tuple(manifest.identity["tickers"]),
        grids=manifest.identity.get("grid_sessions", {}),
    )
    others = {} if snapshot.id == manifest.snapshot_id else {"snapshot_id": snapshot.id}
    if changes or others:
        definition = changed(definition, **changes, **others)
    require_filled_after_dates(definition, manifest.identity.get(EXTERNAL))
    if changes.get("benchmark") is not None:
        # As a run does.
        asked = config.model_copy(update={"benchmark": definition.benchmark})
        require_benchmark(asked, snapshot, definition.universe[0])
    return definition


def _finished(folder: RunFolder) -> RunManifest:
    manifest = folder.read_manifest()
    if manifest.status != "finished" or manifest.results_root is None:
        raise DataError(
            f"run {manifest.run_id} is {manifest.status}, not finished: run it to its end first"
        )
    return manifest


def score(
    name: str,
    *,
    snapshot: str | None = None,
    again: bool = False,
    reports_dir: Path | str = "reports",
    data_dir: Path | str = "data",
    **changes: Any,
) -> str:
    """Score a run's stored decisions under other rules, without a model call.

    Args:
        name: Run id, a part of it, or ``latest``.
        snapshot: Settle on another snapshot.
        again: Make the score also where it is there.
        reports_dir: Folder of runs.
        data_dir: Folder of snapshots.
        **changes: Fields of `ScoreDefinition`, such as ``policy``, ``costs``, ``horizon``,
            ``entry_rule``, ``benchmark``, ``first``, ``last`` or ``slots``.

    Returns:
        The score's id; its rows are in the tables under it.

    Raises:
        DataError: The run is not finished, or a snapshot is missing.
        UsageError: Rules that do not fit, or a window without decisions.
    """
    folder = find_run(Path(reports_dir), name)
    return rescore(folder, Path(data_dir), changes, snapshot=snapshot, again=again).score_id


def _there(
    publisher: Publisher, folder: RunFolder, manifest: RunManifest, definition: ScoreDefinition
) -> StoredScore | None:
    """Return the score as it is stored, or None where it has to be made; damage is told."""
    score_id = definition.score_id
    kept = is_kept(folder, manifest.results_root or "", definition)
    if kept:
        # A new score does it too: what the ledger lost is entered before anything is counted.
        bring_back_lines(folder.path.parent)
    if score_id not in score_ids(folder.path):
        return None
    try:
        stored = read_score(folder.path, score_id)
    except DataError:
        publisher.said += (f"score {score_id} was damaged and is made anew",)
        return None
    return stored if kept else None


def _made(
    folder: RunFolder,
    manifest: RunManifest,
    definition: ScoreDefinition,
    snapshot: Snapshot,
    book_required: bool,
) -> StoredScore:
    kept = make_score(
        _decisions(folder, manifest, definition),
        definition,
        snapshot=snapshot,
        own=definition.score_id == DEFAULT_SCORE,
        book_required=book_required,
    )
    return kept.stored


def _decisions(folder: RunFolder, manifest: RunManifest, definition: ScoreDefinition) -> Decisions:
    """Return what is scored: of the journal, or of the small file where that says enough."""
    root = manifest.results_root or ""
    place, later = scores_folder(folder.path), manifest.decided_later
    if definition.score_id != DEFAULT_SCORE and not definition.charge_model_cost:
        known = read_standing(place, folder.journal_path, root)
        if known is not None:
            return Decisions(folder=folder, results_root=root, cells=known, returns={}, later=later)
    whole = read_whole(folder, manifest)
    decisions = Decisions.of(folder, manifest.results_root, whole, later=later)
    keep_standing(place, folder.journal_path, root, decisions.cells)
    return decisions


def _publish(
    publisher: Publisher, folder: RunFolder, manifest: RunManifest, score: StoredScore
) -> None:
    """Put a score into the database, with all of the run where that is not there."""
    root = manifest.results_root or ""
    cards = stored_cards(folder.path, root)
    publisher.leave_out(cards.damaged)
    added = publish_score(publisher.database, manifest.run_id, root, score=score, cards=cards.whole)
    if not added:
        publisher.now(manifest)
    # Whatever was said of it before is past: it is whole, and in the database.
    publisher.take_back(scores_folder(folder.path) / score.score_id)


def _snapshots(
    config: RunConfig, data_dir: Path, manifest: RunManifest, *, named: str | None
) -> tuple[Snapshot | None, Snapshot]:
    """Return the run's own snapshot, None where it is gone and not needed, and the one to use."""
    before = _own_snapshot(config.snapshot, data_dir, manifest, wanted=named is None)
    after = before if named is None else open_snapshot(named, data_dir)
    if after is None:
        raise DataError(f"run {manifest.run_id} has no snapshot to be scored on: name one")
    return before, after


def _own_snapshot(
    name: str, data_dir: Path, manifest: RunManifest, *, wanted: bool
) -> Snapshot | None:
    """Return the snapshot that a run was decided on; None where it is gone and none is needed."""
    try:
        found = open_snapshot(name, data_dir)
    except DataError:
        if wanted:
            raise
        return None
    if found.id == manifest.snapshot_id:
        return found
    if not wanted:
        return None
    raise DataError(
        f"snapshot {name} is now {found.id[:12]}, but run {manifest.run_id} used "
        f"{manifest.snapshot_id[:12]}: bring that one back, or name one with --snapshot"
    )


def _revisions(
    before: Snapshot | None, after: Snapshot, definition: ScoreDefinition
) -> tuple[TableDiff, ...]:
    """Return what differs in bars and actions of the scored instruments and their benchmarks."""
    if before is None or before.id == after.id:
        return ()
    wanted = {*definition.universe, *_benchmarks(before, definition)}
    old, new = (
        {name: _of(found.table(name), wanted) for name in _CORE} for found in (before, after)
    )
    return diff_tables(old, new)


def _of(table: pa.Table, instruments: set[str]) -> pa.Table:
    wanted = pa.array(sorted(instruments), pa.string())
    return table.filter(pc.is_in(table.column("instrument"), value_set=wanted))


def _benchmarks(snapshot: Snapshot, definition: ScoreDefinition) -> set[str]:
    found = {benchmark_for(t, definition.benchmark_of(t)).symbol for t in definition.universe}
    named = {symbol for symbol in found if symbol is not None}
    resolved = {snapshot.resolve(symbol, definition.first) for symbol in named}
    return named | {symbol for symbol in resolved if symbol is not None}
