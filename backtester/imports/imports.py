"""Make decisions that others made a run to score: no prompts, no proof that nothing leaked.

The rows become the cells of a run of their own, with a journal, returns and scores as any other;
it says of itself that it is external, and nothing that needs prompts (replay, leakcheck, packs)
takes it. Nothing is stored of a source with bad rows unless these are to be skipped.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any, Final

from backtester.config import RunConfig
from backtester.errors import DataError
from backtester.imports.files import BadRow, Contents, Imported, read_decisions
from backtester.imports.placing import Placing, fills_before_dates
from backtester.loading import load_config
from backtester.publication import Publisher
from backtester.records import CellKey, CellRecord
from backtester.runs.folder import (
    DECIDED_LATER,
    EARLY_FILLS,
    EXTERNAL,
    RESULTS_VERSION,
    RunFolder,
    RunManifest,
    package_versions,
    run_id_of,
    source_state,
    wall_time,
)
from backtester.runs.journal import Journal, Ledger, Record
from backtester.runs.root import results_root
from backtester.schema import known_at_day
from backtester.score.definition import run_definition
from backtester.score.keeping import Decisions, is_kept, make_score
from backtester.settlement.broker import settle
from backtester.settlement.pricing import market_of
from backtester.snapshots.snapshot import Snapshot, open_snapshot
from backtester.walk.cell import decision_hash_of, lesson_row
from backtester.walk.plan import cutoff_of, require_benchmark, score_rule

_SHOWN: Final = 5
_NONE: Final = "none"


@dataclass(frozen=True, kw_only=True)
class ImportResult:
    """Say what came of an import.

    Attributes:
        run_id: Run that the decisions are now.
        database: Where its rows are.
        cells: Decisions.
        unread: Of those, without a rating.
        moved: Dates that were no session and moved to the one before; they fill after their date.
        moved_on: Those that moved to the session after, for they would have filled before it.
        repeated: Rows that said the same as another one.
        skipped: Bad rows that were left out.
        notes: What else a reader should know.
        new: False where this very run was there.
    """

    run_id: str
    database: Path
    cells: int
    unread: int
    moved: int
    moved_on: int
    repeated: int
    skipped: tuple[BadRow, ...]
    notes: tuple[str, ...]
    new: bool


def import_decisions(
    source: Path,
    settings: Mapping[str, Any],
    *,
    skip_bad: bool = False,
    strict_dates: bool = False,
) -> ImportResult:
    """Store decisions as a run, settle and score them.

    Args:
        source: File or folder, see `import_files`.
        settings: Fields of `RunConfig`: snapshot, folders, horizon, entry, benchmark, name ...
        skip_bad: Leave bad rows out instead of storing nothing.
        strict_dates: A date that is no session is a bad row, instead of moving, see `placing`.

    Raises:
        DataError: The source or snapshot is not there or damaged, or a row is bad.
        UsageError: No known form, settings that do not fit, a folder that cannot be written.
    """
    contents = read_decisions(source)
    folders = {key: settings[key] for key in ("snapshot", "data_dir") if key in settings}
    asked = load_config(flags={**_placeholder(contents), **settings, **folders})
    snapshot = open_snapshot(asked.snapshot, asked.data_dir)
    placed = _placed(contents, snapshot, asked, strict_dates=strict_dates)
    # A setting, and no fault of a row.
    for instrument in sorted({key.ticker for key in placed.rows}):
        require_benchmark(asked, snapshot, instrument)
    bad = (*contents.bad, *placed.bad)
    if bad and not skip_bad:
        raise DataError(_refusal(bad, source))
    if not placed.rows:
        raise DataError(f"{source} holds no decision that can be scored on {snapshot.name}")
    run = _ExternalRun.of(placed.rows, asked, snapshot, contents.form)
    return run.store(contents, placed, skipped=bad)


def _placeholder(contents: Contents) -> dict[str, Any]:
    """Return the settings that follow from the rows, as far as they are known before a snapshot."""
    tickers = tuple(sorted({row.ticker for row in contents.rows})) or ("NONE",)
    days = sorted({row.day for row in contents.rows}) or [date(2000, 1, 1)]
    return {
        "tickers": tickers,
        "start": days[0],
        "end": days[-1],
        "grid": tuple(days),
        "memory": "off",
        "provider": "external",
        "quick_model": _NONE,
        "deep_model": _NONE,
    }


def _refusal(bad: Sequence[BadRow], source: Path) -> str:
    first = "; ".join(str(row) for row in bad[:_SHOWN])
    more = f"; and {len(bad) - _SHOWN} more" if len(bad) > _SHOWN else ""
    return (
        f"{source}: {len(bad)} bad row{'s' if len(bad) > 1 else ''}, nothing was stored: "
        f"{first}{more}: mend them, or leave them out with --skip-bad"
    )


# --------------------------------------------------------------------------- rows onto a snapshot


@dataclass(frozen=True, kw_only=True)
class _Placed:
    """Hold decisions by cell, in order, and what became of the other rows."""

    rows: Mapping[CellKey, Imported]
    bad: tuple[BadRow, ...]
    moved: int
    moved_on: int
    repeated: int


def _placed(
    contents: Contents, snapshot: Snapshot, asked: RunConfig, *, strict_dates: bool
) -> _Placed:
    rows: dict[CellKey, Imported] = {}
    bad: list[BadRow] = []
    contested: set[CellKey] = set()
    repeated = 0
    placing = Placing.of(asked, snapshot)
    for row in contents.rows:
        try:
            key = _key(row, snapshot, placing, strict_dates=strict_dates)
        except (ValueError, DataError) as error:
            bad.append(BadRow(where=row.where, problem=" ".join(str(error).split())))
            continue
        before = rows.get(key)
        if before is None:
            rows[key] = row
        elif (before.rating, before.price_target) == (row.rating, row.price_target):
            repeated += 1
            rows[key] = min(before, row, key=lambda one: _distance(one, key))
        else:
            contested.add(key)
            said = f"{before.rating or 'no rating'} there, {row.rating or 'no rating'} here"
            problem = f"is the same decision ({key}) as {before.where}, and they differ: {said}"
            bad.append(BadRow(where=row.where, problem=problem))
    # Of two that contradict each other none is believed.
    kept = {key: row for key, row in sorted(rows.items()) if key not in contested}
    return _Placed(
        rows=kept,
        bad=tuple(bad),
        moved=sum(key.session < row.day for key, row in kept.items()),
        moved_on=sum(key.session > row.day for key, row in kept.items()),
        repeated=repeated,
    )


def _distance(row: Imported, key: CellKey) -> tuple[int, date]:
    """Order rows that say the same: a decision existed from the first of them on its session."""
    return abs((row.day - key.session).days), row.day


def _key(row: Imported, snapshot: Snapshot, placing: Placing, *, strict_dates: bool) -> CellKey:
    if not snapshot.start <= row.day <= snapshot.end:
        raise ValueError(
            f"{row.day} is outside snapshot {snapshot.name}, which covers {snapshot.start} to "
            f"{snapshot.end}"
        )
    instrument = row.ticker if snapshot.holds(row.ticker) else snapshot.resolve(row.ticker, row.day)
    if instrument is None:
        raise ValueError(
            f"ticker {row.ticker} is not in snapshot {snapshot.name} on {row.day}: it holds "
            f"{', '.join(snapshot.instruments()[:10])}"
        )
    calendar = market_of(snapshot, instrument).calendar
    if strict_dates and not calendar.is_session(row.day):
        raise ValueError(f"{row.day} is no session of {row.ticker}'s calendar")
    session = placing.session_of(calendar, row.day)
    return CellKey(session=session, ticker=instrument, trial=row.trial)


# -------------------------------------------------------------------------------------- the run


@dataclass(frozen=True, kw_only=True)
class _ExternalRun:
    config: RunConfig
    snapshot: Snapshot
    records: tuple[Record, ...]
    identity: Mapping[str, Any]
    run_id: str

    @classmethod
    def of(
        cls,
        rows: Mapping[CellKey, Imported],
        asked: RunConfig,
        snapshot: Snapshot,
        form: str,
    ) -> _ExternalRun:
        sessions = sorted({key.session for key in rows})
        config = asked.model_copy(
            update={
                "tickers": tuple(sorted({key.ticker for key in rows})),
                "start": sessions[0],
                "end": sessions[-1],
                "grid": tuple(sessions),
                "trials": max(key.trial for key in rows) + 1,
            }
        )
        cells = [_cell(key, row, snapshot, config) for key, row in rows.items()]
        identity = {
            **config.identity_fields(),
            "analysts": [],
            EXTERNAL: {
                "form": form,
                "decisions_sha256": _digest(cells),
                EARLY_FILLS: _early_fills(rows, snapshot, config),
                DECIDED_LATER: [str(key) for key, row in rows.items() if row.day > key.session],
            },
            "grid_sessions": _grids(cells),
            "snapshot_id": snapshot.id,
            "prompt_fingerprint": _NONE,
            "results_version": RESULTS_VERSION,
        }
        named = config if config.name else config.model_copy(update={"name": "import"})
        return cls(
            config=config,
            snapshot=snapshot,
            records=tuple(_with_results(cells, snapshot, config)),
            identity=identity,
            run_id=run_id_of(named, identity),
        )

    def store(
        self, contents: Contents, placed: _Placed, *, skipped: tuple[BadRow, ...]
    ) -> ImportResult:
        """Write folder, journal and score, and publish them."""
        folder = RunFolder(self.config.reports_dir / self.run_id)
        folder.create()
        publisher = Publisher(self.config.reports_dir, folder)
        with folder.lock():
            publisher.make_ready()
            new = self._write(folder)
            manifest = folder.read_manifest()
            with closing(Journal.open(folder.journal_path)) as journal:
                ledger = journal.ledger
            self._score(folder, manifest, ledger)
            publisher.ledger = ledger
            publisher.now(manifest)
        counts = Counter(cell.status for cell in ledger.cells.values())
        return ImportResult(
            run_id=self.run_id,
            database=publisher.database,
            cells=len(ledger.cells),
            unread=counts["unread"],
            moved=placed.moved,
            moved_on=placed.moved_on,
            repeated=placed.repeated,
            skipped=skipped,
            notes=(*contents.notes, *publisher.notes),
            new=new,
        )

    def _write(self, folder: RunFolder) -> bool:
        """Write journal and manifest; the manifest comes last, so that half an import is none."""
        if folder.manifest_path.exists():
            return False
        folder.journal_path.unlink(missing_ok=True)
        with closing(Journal.open(folder.journal_path)) as journal:
            journal.append(self.records)
            root = results_root(journal.ledger)
        commit, diff = source_state()
        now = wall_time()
        folder.write_manifest(
            RunManifest(
                run_id=self.run_id,
                status="finished",
                created_at=now,
                finished_at=now,
                config=self.config.model_dump(mode="json"),
                identity=dict(self.identity),
                snapshot_id=self.snapshot.id,
                snapshot_name=self.snapshot.name,
                prompt_fingerprint=_NONE,
                results_version=RESULTS_VERSION,
                results_root=root,
                cells_planned=sum(isinstance(record, CellRecord) for record in self.records),
                versions=package_versions(),
                commit=commit,
                diff_sha256=diff,
                models={},
            )
        )
        return True

    def _score(self, folder: RunFolder, manifest: RunManifest, ledger: Ledger) -> None:
        definition = run_definition(
            self.config,
            run_id=self.run_id,
            snapshot_id=self.snapshot.id,
            universe=self.config.tickers,
        )
        if not is_kept(folder, manifest.results_root, definition):
            decisions = Decisions.of(
                folder, manifest.results_root, ledger, later=manifest.decided_later
            )
            make_score(decisions, definition, snapshot=self.snapshot, own=True)


def _cell(key: CellKey, row: Imported, snapshot: Snapshot, config: RunConfig) -> CellRecord:
    """Return a decision as a cell; on a date without a session it knew what that day told."""
    calendar = market_of(snapshot, key.ticker).calendar
    known = cutoff_of(calendar, key.session, config)
    typed = {
        "date": row.day.isoformat(),
        "price_target": row.price_target,
        "rating": row.rating,
    }
    return CellRecord(
        key=key,
        cutoff=known if row.day == key.session else known_at_day(row.day, calendar.tz),
        symbol=row.ticker,
        status="unread" if row.rating is None else "done",
        error_class=None,
        error=None,
        rating=row.rating,
        rating_source="none" if row.rating is None else "external",
        typed=json.dumps(typed, sort_keys=True, separators=(",", ":")),
        decision=row.text,
        state_hashes=(),
        lessons_hash="",
        lessons_shown=(),
        degraded=False,
        scored=True,
        steps=0,
        calls=(),
        outcomes=(),
        reads=(),
        wall_s=0.0,
    )


def _with_results(
    cells: Iterable[CellRecord], snapshot: Snapshot, config: RunConfig
) -> Iterable[Record]:
    rule = score_rule(config)
    for cell in cells:
        yield cell
        own = replace(rule, benchmark=config.benchmark_of(cell.key.ticker))
        returned = settle(cell.key, cell.rating, snapshot=snapshot, rule=own)
        yield returned
        yield lesson_row(cell, returned, decision_hash_of(cell, returned), scope="off")


def _digest(cells: Sequence[CellRecord]) -> str:
    lines = [f"{cell.key}|{cell.symbol}|{cell.typed}|{cell.decision}" for cell in cells]
    return hashlib.sha256("\x1e".join(lines).encode("utf-8", "surrogatepass")).hexdigest()


def _early_fills(
    rows: Mapping[CellKey, Imported], snapshot: Snapshot, config: RunConfig
) -> dict[str, int]:
    """Return how many decisions would fill before their date, by entry rule; 0 is left out."""
    counts = Counter(
        rule
        for key, row in rows.items()
        for rule in fills_before_dates(
            market_of(snapshot, key.ticker).calendar, key.session, row.day, config.decision_time
        )
    )
    return dict(sorted(counts.items()))


def _grids(cells: Sequence[CellRecord]) -> dict[str, list[str]]:
    found: dict[str, set[str]] = {}
    for cell in cells:
        found.setdefault(cell.key.ticker, set()).add(cell.key.session.isoformat())
    return {ticker: sorted(days) for ticker, days in sorted(found.items())}
