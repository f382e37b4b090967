"""Replay a recorded run without the network and compare its results root.

Everything is done again but the model calls: the same walk, the same prompts, replies from the
cache and, for attempts that had no answer, from the run's journal. It happens in a temporary
folder; the recorded run is never touched. A cassette is laid down as a run with a cache of its own
first, and then replayed as any other.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from backtester.backtest import keep_own_score
from backtester.config import RunConfig
from backtester.errors import DataError, UsageError
from backtester.loading import recorded_config
from backtester.network import network_blocked
from backtester.packs.packs import lay_down
from backtester.publication import Publisher, read_whole
from backtester.runs.folder import RunFolder, RunManifest
from backtester.runs.journal import Journal, Ledger
from backtester.runs.root import part_roots, results_root
from backtester.score.definition import DEFAULT_SCORE
from backtester.score.files import SCORES_FOLDER, read_score, score_ids
from backtester.snapshots.snapshot import Snapshot, find_snapshot_by_id, open_snapshot
from backtester.walk.cell import BenchSpec, Parts, Workbench, build_pipeline
from backtester.walk.crew import Crew
from backtester.walk.engine import Walk, walk_through
from backtester.walk.plan import Plan, cache_folder, lay_out
from backtester.walk.progress import Progress, Silent, Standing


@dataclass(frozen=True, kw_only=True)
class ReplayResult:
    """Say what a replay found.

    Attributes:
        run_id: Run that was replayed.
        root: Root of the replay.
        recorded_root: Root that the run recorded.
        equal: Whether they are the same.
        cells: Cells replayed.
        hits: Replies served from the record.
        misses: One line for each cell or lesson that met a call without a recording.
        diff: Difference of the first missing prompt to the nearest recorded one, or empty.
        differs: Parts of the root that differ, for example ``call`` or ``return``.
        folder: Where the replay's files are kept, or None.
    """

    run_id: str
    root: str
    recorded_root: str
    equal: bool
    cells: int
    hits: int
    misses: tuple[str, ...]
    diff: str
    differs: tuple[str, ...]
    folder: Path | None


@dataclass(frozen=True, kw_only=True)
class Recording:
    """Hold a finished run, read back for a replay or an audit.

    Attributes:
        folder: Its folder.
        manifest: Its manifest.
        ledger: Its journal.
        config: Its configuration, in replay mode.
        snapshot: The snapshot that it ran on.
        plan: The same plan, laid out again.
    """

    folder: RunFolder
    manifest: RunManifest
    ledger: Ledger
    config: RunConfig
    snapshot: Snapshot
    plan: Plan

    @property
    def cache_dir(self) -> Path:
        """Folder of the cache of its workspace."""
        return cache_folder(self.config.data_dir)


def load_recording(
    folder: RunFolder, data_dir: Path, *, overrides: Mapping[str, Any] | None = None
) -> Recording:
    """Read a finished run back and lay out its plan again.

    Args:
        folder: The run's folder.
        data_dir: Where snapshots and cache are.
        overrides: Operational fields of the configuration to change, such as ``workers``.

    Raises:
        DataError: The run is not finished or damaged, its snapshot is missing or another one, or
            this release would ask other prompts.
    """
    manifest = folder.read_manifest()
    manifest.require_prompts()
    if manifest.status != "finished" or manifest.results_root is None:
        raise DataError(
            f"run {manifest.run_id} is {manifest.status}, not finished: run it to its end first"
        )
    changes = {"mode": "replay", "data_dir": data_dir, **(overrides or {})}
    config = recorded_config(manifest.config, changes)
    ledger = read_whole(folder, manifest)
    # Before anything is laid out: a manifest may ask for more cells than memory holds.
    _require_cells(manifest, ledger, least=len(config.tickers) * config.trials)
    snapshot = open_snapshot(config.snapshot, data_dir)
    if snapshot.id != manifest.snapshot_id:
        raise DataError(
            f"snapshot {config.snapshot} is now {snapshot.id[:12]}, but run {manifest.run_id} "
            f"used {manifest.snapshot_id[:12]}: bring that snapshot back"
        )
    fingerprint = build_pipeline(config).fingerprint()
    if fingerprint != manifest.prompt_fingerprint:
        raise DataError(
            f"run {manifest.run_id} was recorded with other prompts "
            f"({manifest.prompt_fingerprint[:12]}, now {fingerprint[:12]}): "
            "replay it with the release that recorded it, or run it again"
        )
    plan = lay_out(config, snapshot, fingerprint=fingerprint)
    _require_cells(manifest, ledger, least=plan.cells)
    return Recording(
        folder=folder,
        manifest=manifest,
        ledger=ledger,
        config=config,
        snapshot=snapshot,
        plan=plan,
    )


def _require_cells(manifest: RunManifest, ledger: Ledger, *, least: int) -> None:
    if least > len(ledger.cells):
        raise DataError(
            f"run {manifest.run_id} is finished with {len(ledger.cells)} cells, but its settings "
            f"ask for {least} or more: its manifest was changed, or calendars were since"
        )


def replay(
    folder: RunFolder,
    data_dir: Path,
    *,
    workers: int = 1,
    backend: Literal["threading", "loky"] = "loky",
    keep: Path | None = None,
    progress: Progress | None = None,
    parts: Parts | None = None,
) -> ReplayResult:
    """Replay a finished run and compare the results root.

    Args:
        folder: The run's folder.
        data_dir: Where its snapshot and the cache are.
        workers: Cells decided at once.
        backend: joblib backend of the workers.
        keep: Folder to keep the replay's journal and database in; default a temporary one.
        progress: Takes news.
        parts: Seams of the leak audit.

    Raises:
        DataError: See `load_recording`.
        LookaheadError: Something from the future was about to be seen.
    """
    overrides = {"workers": workers, "backend": backend}
    recording = load_recording(folder, data_dir, overrides=overrides)
    return _replayed(
        recording, recording.cache_dir, keep=keep, progress=progress, parts=parts or Parts()
    )


def replay_pack(
    path: Path,
    data_dir: Path,
    *,
    workers: int = 1,
    backend: Literal["threading", "loky"] = "loky",
    keep: Path | None = None,
    progress: Progress | None = None,
) -> ReplayResult:
    """Replay the run of a cassette, which needs nothing else but its snapshot, found by id.

    Args:
        path: The cassette.
        data_dir: Where snapshots are; those that come with the package are looked through too.
        workers: Cells decided at once.
        backend: joblib backend of the workers.
        keep: Folder to keep the replay's journal and database in; default a temporary one.
        progress: Takes news.

    Raises:
        DataError: The cassette is damaged, its snapshot is not there, or this release would ask
            other prompts.
        LookaheadError: Something from the future was about to be seen.
    """
    with tempfile.TemporaryDirectory(prefix="cassette-") as place:
        laid = lay_down(path, Path(place))
        snapshot = find_snapshot_by_id(laid.manifest.snapshot_id, data_dir)
        overrides = {"workers": workers, "backend": backend, "snapshot": str(snapshot.absolute())}
        recording = load_recording(laid.folder, data_dir, overrides=overrides)
        return _replayed(recording, laid.cache_dir, keep=keep, progress=progress, parts=Parts())


def _replayed(
    recording: Recording,
    cache_dir: Path,
    *,
    keep: Path | None,
    progress: Progress | None,
    parts: Parts,
) -> ReplayResult:
    with ExitStack() as stack:
        place = keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="replay-")))
        stack.enter_context(network_blocked())
        target = RunFolder(place / recording.manifest.run_id)
        if target.path.exists():
            raise UsageError(
                f"{target.path} is there already, and a replay overwrites nothing: "
                "name another folder with --keep"
            )
        target.create()
        journal = Journal.open(target.journal_path)
        stack.callback(journal.close)
        _walk(recording, cache_dir, journal, progress=progress or Silent(), parts=parts)
        root = results_root(journal.ledger)
        if keep is not None:
            manifest = recording.manifest.model_copy(update={"results_root": root})
            target.write_manifest(manifest)
            _take_own_score(recording, target, root)
            keep_own_score(recording.plan, target, journal.ledger, manifest)
            Publisher(place, target, journal.ledger).now(manifest)
        return _compare(recording, journal.ledger, root=root, keep=keep)


def _take_own_score(recording: Recording, target: RunFolder, root: str) -> None:
    """Take over the run's own score where the replay made the very decisions that it is of.

    What a score says of other trials depends on its workspace, and a replay is no trial.
    """
    if root != recording.manifest.results_root or DEFAULT_SCORE not in score_ids(
        recording.folder.path
    ):
        return
    # Every hash is looked at first: damage is not handed on.
    read_score(recording.folder.path, DEFAULT_SCORE)
    name = Path(SCORES_FOLDER) / DEFAULT_SCORE
    shutil.copytree(recording.folder.path / name, target.path / name)


def _walk(
    recording: Recording, cache_dir: Path, journal: Journal, *, progress: Progress, parts: Parts
) -> None:
    spec = BenchSpec(
        config=recording.config,
        snapshot_path=recording.snapshot.path,
        cache_dir=cache_dir,
        parts=parts,
    )
    bench = Workbench.build(spec, snapshot=recording.snapshot)
    crew = Crew(spec, api_keys={}, bench=bench)
    progress.started(recording.plan, Standing(kept=0, failed=0, affected=0))
    walk_through(
        Walk(recording.plan, journal, crew, parts=parts, recorded=recording.ledger),
        progress=progress,
    )


def _compare(recording: Recording, ledger: Ledger, *, root: str, keep: Path | None) -> ReplayResult:
    recorded = recording.manifest.results_root or ""
    ours, theirs = part_roots(ledger), part_roots(recording.ledger)
    calls = [call for cell in ledger.cells.values() for call in cell.calls]
    calls += [call for lesson in ledger.lessons.values() for call in lesson.calls]
    return ReplayResult(
        run_id=recording.manifest.run_id,
        root=root,
        recorded_root=recorded,
        equal=root == recorded,
        cells=len(ledger.cells),
        hits=sum(call.hit for call in calls),
        misses=tuple(_misses(recording.ledger, ledger)),
        diff=next((c.error_detail for _, c in sorted(ledger.cells.items()) if c.error_detail), ""),
        differs=tuple(
            part for part in sorted({*ours, *theirs}) if ours.get(part) != theirs.get(part)
        ),
        folder=keep,
    )


def _misses(recorded: Ledger, ledger: Ledger) -> Iterator[str]:
    for _, cell in sorted(ledger.cells.items()):
        if cell.error_class == "replay_miss":
            yield cell.error or str(cell.key)
    for key, lesson in sorted(ledger.lessons.items()):
        before = recorded.lessons.get(key)
        if lesson.lesson_status == "failed" and before and before.lesson_status != "failed":
            yield lesson.error or f"{key} (lesson)"
