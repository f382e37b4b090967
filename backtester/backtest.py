"""Run a backtest: lock its folder, walk it, publish its tables, say how it ended.

The one door: command line, Python and notebooks all come through `run`.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from backtester.config import RunConfig
from backtester.errors import BudgetReached
from backtester.estimates.redo import standing_of
from backtester.publication import Publisher, root_of
from backtester.records import CallRecord, CellKey, CellRecord, LessonRecord
from backtester.runs.folder import (
    DATABASE_NAME,
    RESULTS_VERSION,
    RunFolder,
    RunManifest,
    list_runs,
    package_versions,
    source_state,
    wall_time,
)
from backtester.runs.journal import Journal, Ledger
from backtester.runs.root import results_root
from backtester.score.definition import run_definition
from backtester.score.keeping import Decisions, is_kept, make_score
from backtester.snapshots.snapshot import open_snapshot
from backtester.spending.bill import Bill
from backtester.spending.knowledge import model_words
from backtester.spending.purse import Purse
from backtester.spending.tariff import TIERS, Tariff, require_prices, tariff_of
from backtester.walk.cell import BenchSpec, Parts, Workbench, build_pipeline
from backtester.walk.crew import crew_of
from backtester.walk.engine import SETTLED, Walk, walk_through
from backtester.walk.plan import Plan, cache_folder, lay_out
from backtester.walk.progress import Progress, Silent


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """Say how a run ended.

    Attributes:
        run_id: Id.
        folder: Its folder under the reports folder.
        database: Published database.
        root: Results root.
        cells: Cells of the grid.
        kept: Cells that were in the journal before.
        model_calls: Calls made by this command (misses).
        hits: Calls served from the cache by this command.
        counts: Cells by status.
        bill: What the calls of this command took.
        new: False where the finished run was found and nothing was done.
        notes: What a user should know of the database, one line each.
    """

    run_id: str
    folder: Path
    database: Path
    root: str
    cells: int
    kept: int
    model_calls: int
    hits: int
    counts: Mapping[str, int]
    bill: Bill
    new: bool
    notes: tuple[str, ...] = ()


def run(
    config: RunConfig,
    *,
    api_keys: Mapping[str, str] | None = None,
    progress: Progress | None = None,
    parts: Parts | None = None,
    tariff: Tariff | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> RunResult:
    """Run a walk-forward backtest, or go on with it, or find it finished.

    Args:
        config: What to do.
        api_keys: Key by provider, where one needs it; never stored. One under ``quick`` or
            ``deep`` is that tier's alone.
        progress: Takes news; default none.
        parts: Seams of the leak audit; default the product's own.
        tariff: Known prices; default those of the catalogue.
        clock: Monotonic seconds, for the caps on minutes.

    Returns:
        How it ended; the tables are in ``reports/results.duckdb``.

    Raises:
        UsageError: A grid without a session, a folder that cannot be written, a run in use.
        DataError: Snapshot, cache or journal is missing or damaged.
        SettingsError: A key is missing.
        ProviderError: The provider cannot be reached; run the same command again later.
        BudgetReached: A cap of the run was reached; the same command with a higher one goes on.
        LookaheadError: Something from the future was about to be seen.
    """
    tariff = tariff or tariff_of(config)
    require_prices(config, tariff)
    snapshot = open_snapshot(config.snapshot, config.data_dir)
    pipeline = build_pipeline(config, api_keys=api_keys)
    plan = lay_out(config, snapshot, fingerprint=pipeline.fingerprint())
    if config.mode == "refresh":
        plan = _refreshed(plan, pipeline.fingerprint())
    folder = RunFolder(config.reports_dir / plan.run_id)
    folder.create()
    with folder.lock():
        purse = Purse.open(
            folder.spend_path, run_id=plan.run_id, config=config, tariff=tariff, clock=clock
        )
        with closing(Journal.open(folder.journal_path)) as journal:
            spec = _spec_of(plan, folder, parts or Parts())
            return _Run(plan, folder, journal, purse).go(
                spec, api_keys=api_keys or {}, progress=progress or Silent()
            )


def _refreshed(plan: Plan, fingerprint: str) -> Plan:
    """Return the plan in a new generation of replies; an unfinished refresh goes on in its own."""
    others = {"generation"}
    asked = {key: value for key, value in plan.identity.items() if key not in others}
    newest, unfinished = plan.config.generation, False
    for folder in list_runs(plan.config.reports_dir):
        manifest = folder.read_manifest()
        recorded = {key: value for key, value in manifest.identity.items() if key not in others}
        generation = int(manifest.identity.get("generation", 0))
        if recorded == asked and generation >= newest:
            newest, unfinished = generation, generation > 0 and manifest.status != "finished"
    generation = newest if unfinished else newest + 1
    config = plan.config.model_copy(update={"generation": generation})
    return lay_out(config, plan.snapshot, fingerprint=fingerprint)


def _spec_of(plan: Plan, folder: RunFolder, parts: Parts) -> BenchSpec:
    return BenchSpec(
        config=plan.config,
        snapshot_path=plan.snapshot.path,
        cache_dir=cache_folder(plan.config.data_dir),
        parts=parts,
        states_dir=folder.path / "states" if plan.config.save_states else None,
    )


@dataclass(frozen=True)
class _Run:
    """Hold what a run has under its lock."""

    plan: Plan
    folder: RunFolder
    journal: Journal
    purse: Purse

    def go(self, spec: BenchSpec, *, api_keys: Mapping[str, str], progress: Progress) -> RunResult:
        plan, folder, ledger = self.plan, self.folder, self.journal.ledger
        manifest = _begin(plan, folder)
        publisher = Publisher(plan.config.reports_dir, folder, ledger)
        publisher.make_ready()
        before = _Before.of(ledger)
        if _is_whole(manifest, ledger):
            if keep_own_score(plan, folder, ledger, manifest):
                publisher.now(manifest)
            publisher.unless_there(manifest)
            return _result(plan, folder, ledger, before, new=False, notes=publisher.notes)
        bench = Workbench.build(spec, api_keys=api_keys, snapshot=plan.snapshot, purse=self.purse)
        progress.started(plan, standing_of(plan, ledger, bench, self.purse.tariff))
        try:
            with crew_of(spec, api_keys=api_keys, bench=bench, run_id=plan.run_id) as crew:
                walk_through(
                    Walk(plan, self.journal, crew, parts=spec.parts),
                    progress=progress,
                    after_commit=lambda: publisher.sometimes(manifest),
                )
        except BaseException as error:
            status = "budget_reached" if isinstance(error, BudgetReached) else "stopped"
            stopped = manifest.model_copy(update={"status": status, "results_root": None})
            folder.write_manifest(stopped)
            publisher.now(stopped)
            raise
        manifest = _finish(manifest, folder, ledger)
        keep_own_score(plan, folder, ledger, manifest)
        publisher.now(manifest)
        return _result(plan, folder, ledger, before, new=True, notes=publisher.notes)


@dataclass(frozen=True)
class _Before:
    cells: Mapping[CellKey, CellRecord]
    lessons: Mapping[CellKey, LessonRecord]
    superseded: int
    superseded_lessons: int

    @classmethod
    def of(cls, ledger: Ledger) -> _Before:
        return cls(
            dict(ledger.cells),
            dict(ledger.lessons),
            len(ledger.superseded),
            len(ledger.superseded_lessons),
        )


def keep_own_score(plan: Plan, folder: RunFolder, ledger: Ledger, manifest: RunManifest) -> bool:
    """Make the run's own score where it is not there, and say whether it was made."""
    definition = run_definition(
        plan.config,
        run_id=manifest.run_id,
        snapshot_id=plan.snapshot.id,
        universe=plan.config.tickers,
        grids=plan.identity["grid_sessions"],
    )
    if not plan.config.score_at_end or is_kept(folder, root_of(manifest), definition):
        return False
    decisions = Decisions.of(folder, root_of(manifest), ledger)
    make_score(decisions, definition, snapshot=plan.snapshot, own=True)
    return True


def _begin(plan: Plan, folder: RunFolder) -> RunManifest:
    if folder.manifest_path.exists():
        return folder.read_manifest()
    manifest = manifest_of(plan)
    folder.write_manifest(manifest)
    return manifest


def manifest_of(plan: Plan) -> RunManifest:
    """Describe a run that starts now."""
    commit, diff = source_state()
    return RunManifest(
        run_id=plan.run_id,
        status="started",
        created_at=wall_time(),
        config=plan.config.model_dump(mode="json"),
        identity=dict(plan.identity),
        snapshot_id=plan.snapshot.id,
        snapshot_name=plan.snapshot.name,
        prompt_fingerprint=str(plan.identity["prompt_fingerprint"]),
        results_version=RESULTS_VERSION,
        cells_planned=plan.cells,
        versions=package_versions(),
        commit=commit,
        diff_sha256=diff,
        models={tier: model_words(plan.config, tier) for tier in TIERS},
    )


def _finish(manifest: RunManifest, folder: RunFolder, ledger: Ledger) -> RunManifest:
    manifest = manifest.model_copy(
        update={
            "status": "finished",
            "finished_at": wall_time(),
            "results_root": results_root(ledger),
        }
    )
    folder.write_manifest(manifest)
    return manifest


def _is_whole(manifest: RunManifest, ledger: Ledger) -> bool:
    """Say whether nothing is left to do: finished, and no cell or lesson to try again."""
    if manifest.status != "finished" or manifest.results_root != results_root(ledger):
        return False
    failed = any(cell.status not in SETTLED for cell in ledger.cells.values())
    return not failed and all(row.lesson_status != "failed" for row in ledger.lessons.values())


def _result(
    plan: Plan,
    folder: RunFolder,
    ledger: Ledger,
    before: _Before,
    *,
    new: bool,
    notes: tuple[str, ...],
) -> RunResult:
    bill = Bill.of(_calls_since(before, ledger))
    return RunResult(
        run_id=plan.run_id,
        folder=folder.path,
        database=plan.config.reports_dir / DATABASE_NAME,
        root=results_root(ledger),
        cells=plan.cells,
        kept=sum(before.cells.get(key) is cell for key, cell in ledger.cells.items()),
        model_calls=bill.calls - bill.hits,
        hits=bill.hits,
        counts=dict(sorted(Counter(cell.status for cell in ledger.cells.values()).items())),
        bill=bill,
        new=new,
        notes=notes,
    )


def _calls_since(before: _Before, ledger: Ledger) -> list[CallRecord]:
    """Return the calls of all records that this command added."""
    old = {id(record) for held in (before.cells, before.lessons) for record in held.values()}
    added: list[CellRecord | LessonRecord] = [
        *ledger.cells.values(),
        *ledger.superseded[before.superseded :],
        *ledger.lessons.values(),
        *ledger.superseded_lessons[before.superseded_lessons :],
    ]
    return [call for record in added if id(record) not in old for call in record.calls]
