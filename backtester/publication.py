"""Runs in the results database: published now and then, at their end, and all of them anew."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final

from backtester.errors import DataError, UsageError
from backtester.records import SpendRecord
from backtester.runs.folder import DATABASE_NAME, RunFolder, RunManifest, list_runs
from backtester.runs.journal import Ledger, read_ledger
from backtester.runs.root import results_root
from backtester.score.files import StoredScore, stored_scores
from backtester.settlement.memory import waiting_row
from backtester.spending.ledger import read_spend
from backtester.store import publishing as store
from backtester.store.query import Standing, standing_of

PUBLISH_EVERY_S: Final = 10.0
PAUSE_PER_PUBLICATION: Final = 10.0


class Publisher:
    """Publish a run's rows now and then while it goes on, and at its end.

    Between two publications lie `PUBLISH_EVERY_S` seconds, or `PAUSE_PER_PUBLICATION` times what
    the last one took, so that a large run never spends more than a tenth of its time on them.

    Args:
        reports_dir: Folder of runs.
        folder: The run's.
        ledger: See the attribute.

    Attributes:
        database: Where the rows go.
        ledger: What the journal holds; None to read it when it is needed.
        said: What a user should know of it, one line each.
        left_out: What is not in it for it is damaged, one line each.
    """

    def __init__(self, reports_dir: Path, folder: RunFolder, ledger: Ledger | None = None) -> None:
        self.database = reports_dir / DATABASE_NAME
        self._folder = folder
        self.ledger = ledger
        self._last = time.monotonic()
        self._took_s = 0.0
        self.said: tuple[str, ...] = ()
        self.left_out: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """All that there is to tell."""
        return self.said + tuple(f"not in the database: {line}" for line in self.left_out)

    def make_ready(self) -> None:
        """Do what `make_ready` does, and keep what there is to say of it."""
        ready = make_ready(self.database.parent, of=self._folder.run_id)
        self.said += tuple(line for line in ready.said if line not in self.said)
        self.leave_out(ready.left_out)

    def leave_out(self, problems: Sequence[str]) -> None:
        """Take down what is damaged, so that it is not in the database."""
        self.left_out += tuple(line for line in problems if line not in self.left_out)

    def take_back(self, place: Path) -> None:
        """Forget what was taken down of a folder that is whole by now."""
        self.left_out = tuple(line for line in self.left_out if f"{place}{os.sep}" not in line)

    def sometimes(self, manifest: RunManifest) -> None:
        """Publish if the last time is long enough ago."""
        pause = max(PUBLISH_EVERY_S, PAUSE_PER_PUBLICATION * self._took_s)
        if time.monotonic() - self._last >= pause:
            self.now(manifest)

    def unless_there(self, manifest: RunManifest) -> None:
        """Publish a finished run that the database does not hold as finished, with this root."""
        self.make_ready()
        published = store.published_states(self.database).get(manifest.run_id)
        wanted = (manifest.status, manifest.results_root)
        if published is None or (published.status, published.results_root) != wanted:
            self.now(manifest)

    def now(self, manifest: RunManifest) -> None:
        """Publish all that the journal holds; a score that does not read is left out, with a note.

        Raises:
            DataError: See `make_ready` and `store.publish`.
            UsageError: See there.
        """
        started = time.monotonic()
        self.make_ready()
        spent = read_spend(self._folder.spend_path)
        scores = stored_scores(self._folder.path, root_of(manifest))
        ledger = read_whole(self._folder, manifest) if self.ledger is None else self.ledger
        document = document_of(manifest, ledger, spent=spent, scores=scores.whole)
        store.publish(self.database, document)
        self.leave_out(scores.damaged)
        self._last = time.monotonic()
        self._took_s = self._last - started if manifest.status == "started" else 0.0


def document_of(
    manifest: RunManifest,
    ledger: Ledger,
    *,
    spent: Sequence[SpendRecord] = (),
    scores: Sequence[StoredScore] = (),
) -> store.RunDocument:
    """Return a run as `store` takes it; decided cells without a memory row get a waiting one."""
    lessons = dict(ledger.lessons)
    for key, cell in ledger.cells.items():
        if key not in lessons and cell.status in ("done", "unread"):
            lessons[key] = waiting_row(cell)
    return store.RunDocument(
        manifest=manifest.model_dump(mode="json"),
        cells=[cell for _, cell in sorted(ledger.cells.items())],
        returns=[returned for _, returned in sorted(ledger.returns.items())],
        lessons=[lesson for _, lesson in sorted(lessons.items())],
        superseded=ledger.superseded,
        superseded_lessons=ledger.superseded_lessons,
        spent=spent,
        scores=scores,
    )


def root_of(manifest: RunManifest) -> str | None:
    """Return the root that scores of a run must be made of; None while it goes on."""
    return manifest.results_root if manifest.status == "finished" else None


def read_whole(folder: RunFolder, manifest: RunManifest) -> Ledger:
    """Read a run's journal; a finished run's must still give the root that it finished with.

    Raises:
        DataError: The journal is missing or damaged, or whole records of it are gone.
    """
    ledger = read_ledger(folder.journal_path)
    root = results_root(ledger)
    if manifest.status == "finished" and manifest.results_root != root:
        raise DataError(
            f"{folder.journal_path} gives another results root ({root[:12]}) than its manifest "
            f"({(manifest.results_root or 'none')[:12]}): records are missing or were changed; "
            "bring the file back, or run the same command again"
        )
    return ledger


@dataclass(frozen=True, kw_only=True)
class Rebuilt:
    """Say what came of making the database anew.

    Attributes:
        database: Where it is.
        runs: Runs in it.
        left_out: One line for each run and score that does not read: what, where, what to do.
        unsealed: Scores of the first formats, whose cards have no hash of their own.
        aside: Where the database of before was kept, for it holds runs that this one lacks.
    """

    database: Path
    runs: int
    left_out: tuple[str, ...] = ()
    unsealed: int = 0
    aside: Path | None = None

    def words(self) -> tuple[str, ...]:
        """Return what a user should know of it besides what was left out, one line each."""
        plural = "" if self.runs == 1 else "s"
        lines = [f"rebuilt {self.database} from the journals of {self.runs} run{plural}"]
        if self.aside is not None:
            lines.append(
                f"{self.aside} keeps the database of before: it has runs that this one lacks"
            )
        if self.unsealed:
            lines.append(
                f"scores of an older format, without a hash of their rules: {self.unsealed}; "
                "whether these were changed cannot be told, score --again makes one anew"
            )
        return tuple(lines)


def rebuild_database(reports_dir: Path) -> Rebuilt:
    """Make the results database anew from the journals of all runs.

    A run or score that is damaged is left out and hides no other. If the database of before has
    rows of such a run, that file is kept aside.

    Raises:
        DataError: The folder holds no runs, none of them reads, the ledger is damaged, or the
            database is of a newer release; the old database stays as it was.
        UsageError: The folder cannot be written.
    """
    if not list_runs(reports_dir):
        raise DataError(f"{reports_dir} holds no runs: name their folder with --reports-dir")
    database = reports_dir / DATABASE_NAME
    try:
        before = standing_of(database)
    except DataError:
        # Damaged, or nothing of ours: to make it anew was asked for.
        before = None
    _refuse_newer(database, before)
    return _rebuilt(database, before, asked=True)


@dataclass(frozen=True, kw_only=True)
class Ready:
    """Say what a user should know of a database that can be published to.

    Attributes:
        said: One line each: that it was made anew, or lacks runs.
        left_out: See `Rebuilt`.
    """

    said: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


def make_ready(reports_dir: Path, *, of: str) -> Ready:
    """See to it, before work starts, that its rows can be published beside those of all runs.

    A database that is missing, or that an older release made, is made anew if there are runs
    besides the one that is worked on.

    Args:
        reports_dir: Folder of runs.
        of: The run that is worked on, which publishes itself.

    Raises:
        DataError: The database is damaged or of a newer release; it stays as it was. Or see
            `rebuild_database`.
        UsageError: The folder cannot be written.
    """
    database = reports_dir / DATABASE_NAME
    standing = standing_of(database)
    _refuse_newer(database, standing)
    others = [folder for folder in list_runs(reports_dir) if folder.run_id != of]
    if standing is not None and standing.age == "current":
        return Ready(said=_lacking(database, standing, others))
    if standing is None and not others:
        return Ready()
    made = _rebuilt(database, standing, asked=False)
    return Ready(said=made.words(), left_out=made.left_out)


def _lacking(database: Path, standing: Standing, others: Sequence[RunFolder]) -> tuple[str, ...]:
    """Say which runs a database lacks; one that is going on publishes itself."""
    absent = [one.run_id for one in others if one.run_id not in standing.runs and not _begun(one)]
    if not absent:
        return ()
    number = "1 run is" if len(absent) == 1 else f"{len(absent)} runs are"
    more = f" and {len(absent) - 3} more" if len(absent) > 3 else ""
    named = f"{', '.join(absent[:3])}{more}"
    return (f"{number} not in {database} ({named}): `backtester rebuild` brings what reads",)


def _begun(folder: RunFolder) -> bool:
    try:
        return folder.read_manifest().status == "started"
    except DataError:
        return False


def _refuse_newer(database: Path, standing: Standing | None) -> None:
    if standing is not None and standing.age == "newer":
        raise DataError(
            f"{database} was made by a newer release of the product: use that one, or name another "
            "folder with --reports-dir"
        )


def _rebuilt(database: Path, before: Standing | None, *, asked: bool) -> Rebuilt:
    """Make the database of all runs that read; ``asked``: a user wants what is gone to be gone."""
    reports = database.parent
    left_out: list[str] = []
    damaged: set[str] = set()
    whole: set[str] = set()
    unsealed = 0
    aside: Path | None = None

    def documents() -> Iterator[store.RunDocument]:
        nonlocal unsealed, aside
        for folder in list_runs(reports):
            try:
                document, problems = _document_in(folder)
            except DataError as error:
                leave_out(folder.run_id, error)
                continue
            left_out.extend(problems)
            unsealed += sum(score.card.sha256 is None for score in document.scores)
            whole.add(folder.run_id)
            yield document
        if asked and not whole:
            raise DataError(left_out[0])
        gone = before.runs - whole if before is not None else frozenset()
        if before is not None and (gone & damaged if asked else gone):
            aside = _kept_aside(database, before)

    def leave_out(run_id: str, error: DataError) -> None:
        left_out.append(str(error))
        damaged.add(run_id)
        whole.discard(run_id)

    runs = store.rebuild(database, documents, leave_out=leave_out)
    return Rebuilt(
        database=database, runs=runs, left_out=tuple(left_out), unsealed=unsealed, aside=aside
    )


def _document_in(folder: RunFolder) -> tuple[store.RunDocument, tuple[str, ...]]:
    """Return a run as it lies in its folder, and one line for each score that does not read."""
    manifest = folder.read_manifest()
    spent = read_spend(folder.spend_path)
    scores = stored_scores(folder.path, root_of(manifest))
    ledger = read_whole(folder, manifest)
    return document_of(manifest, ledger, spent=spent, scores=scores.whole), scores.damaged


def _kept_aside(database: Path, before: Standing) -> Path:
    """Give the file that is about to be replaced a second name, which no other file has."""
    stem = f"{database.stem}-{before.schema[-8:]}"
    names = (database.with_name(f"{stem}-{at}{database.suffix}") for at in count(1))
    aside = next(path for path in names if not path.exists())
    try:
        shutil.copyfile(database, aside)
    except OSError as error:
        raise UsageError(
            f"{aside} cannot be written ({error.strerror or error}): free the folder, or name "
            "another with --reports-dir"
        ) from error
    return aside
