"""Score a stored run again: other rules, another window, a newer snapshot; no model is asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from backtester.backtest import Publisher, read_whole
from backtester.config import RunConfig
from backtester.errors import DataError
from backtester.loading import recorded_config
from backtester.runs.folder import DATABASE_NAME, RunFolder, RunManifest, find_run
from backtester.score.definition import DEFAULT_SCORE, ScoreDefinition, changed, run_definition
from backtester.score.files import read_card, read_score, score_ids, scores_folder
from backtester.score.keeping import Decisions, bring_back_lines, is_kept, make_score
from backtester.score.standing import keep_standing, read_standing
from backtester.settlement.benchmark import benchmark_for
from backtester.snapshots.diff import TableDiff, diff_tables
from backtester.snapshots.snapshot import Snapshot, open_snapshot
from backtester.store.publishing import publish_score
from backtester.walk.plan import require_benchmark

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
    """

    run_id: str
    score_id: str
    database: Path
    new: bool
    label: str | None = None
    revisions: tuple[TableDiff, ...] = ()


def rescore(
    folder: RunFolder,
    data_dir: Path,
    changes: Mapping[str, Any],
    *,
    snapshot: str | None = None,
    again: bool = False,
    book_required: bool = False,
) -> Rescored:
    """Score the stored decisions of a finished run.

    Args:
        folder: The run's folder.
        data_dir: Where snapshots are.
        changes: Fields of `ScoreDefinition` that differ from the run's own score; none: that one.
        snapshot: Name or folder of another snapshot to settle on.
        again: Make it also where it is there.
        book_required: Refuse where no book can be kept.

    Raises:
        DataError: The run is not finished or damaged, a snapshot is missing, or it lacks the
            benchmark that is asked for.
        UsageError: Rules that do not fit, a window without decisions.
    """
    manifest = _finished(folder)
    config = recorded_config(manifest.config, {"data_dir": data_dir})
    before = _own_snapshot(config.snapshot, data_dir, manifest, wanted=snapshot is None)
    after = before if snapshot is None else open_snapshot(snapshot, data_dir)
    if after is None:
        raise DataError(f"run {manifest.run_id} has no snapshot to be scored on: name one")
    definition = run_definition(
        config,
        run_id=manifest.run_id,
        snapshot_id=manifest.snapshot_id,
        universe=tuple(manifest.identity["tickers"]),
    )
    others = {} if after.id == manifest.snapshot_id else {"snapshot_id": after.id}
    if changes or others:
        definition = changed(definition, **changes, **others)
    if changes.get("benchmark") is not None:
        _require_asked(config, definition, after)
    return _kept(
        folder,
        manifest,
        definition,
        after,
        revisions=_revisions(before, after, definition),
        again=again,
        book_required=book_required,
    )


def _require_asked(config: RunConfig, definition: ScoreDefinition, snapshot: Snapshot) -> None:
    """Refuse a benchmark that the snapshot lacks, as a run does."""
    asked = config.model_copy(update={"benchmark": definition.benchmark})
    require_benchmark(asked, snapshot, definition.universe[0])


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


def _kept(
    folder: RunFolder,
    manifest: RunManifest,
    definition: ScoreDefinition,
    snapshot: Snapshot,
    *,
    revisions: tuple[TableDiff, ...],
    again: bool,
    book_required: bool,
) -> Rescored:
    with folder.lock():
        root = manifest.results_root or ""
        there = not again and is_kept(folder, root, definition)
        if there:
            # A new score does it too: what the ledger lost is entered before anything is counted.
            bring_back_lines(folder.path.parent)
        else:
            make_score(
                _decisions(folder, manifest, definition),
                definition,
                snapshot=snapshot,
                own=definition.score_id == DEFAULT_SCORE,
                book_required=book_required,
            )
        database = _published(folder, manifest, definition.score_id)
    return Rescored(
        run_id=manifest.run_id,
        score_id=definition.score_id,
        database=database,
        new=not there,
        label=manifest.label,
        revisions=revisions,
    )


def _decisions(folder: RunFolder, manifest: RunManifest, definition: ScoreDefinition) -> Decisions:
    """Return what is scored: of the journal, or of the small file where that says enough."""
    root = manifest.results_root or ""
    place = scores_folder(folder.path)
    if definition.score_id != DEFAULT_SCORE and not definition.charge_model_cost:
        known = read_standing(place, folder.journal_path, root)
        if known is not None:
            return Decisions(folder=folder, results_root=root, cells=known, returns={})
    decisions = Decisions.of(folder, manifest.results_root, read_whole(folder, manifest))
    keep_standing(place, folder.journal_path, root, decisions.cells)
    return decisions


def _published(folder: RunFolder, manifest: RunManifest, score_id: str) -> Path:
    """Put a score into the database, with all of the run where that is not there, and say where."""
    root, database = manifest.results_root or "", folder.path.parent / DATABASE_NAME
    cards = [read_card(folder.path, name) for name in score_ids(folder.path)]
    added = publish_score(
        database,
        manifest.run_id,
        root,
        score=read_score(folder.path, score_id),
        cards=[card for card in cards if card.results_root == root],
    )
    if not added:
        Publisher(folder.path.parent, folder, read_whole(folder, manifest)).now(manifest)
    return database


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
