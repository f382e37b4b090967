"""A run's folder: manifest, journal and lock under ``reports/<run_id>/``.

The manifest is the one place where wall time, versions and the machine may be written; nothing in
it but the identity enters a prompt, a key or the results root.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import orjson
from filelock import FileLock, Timeout
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from backtester.config import RunConfig
from backtester.errors import DataError, RunLocked, UsageError
from backtester.spellings import shown
from backtester.spending.ledger import SPEND_NAME

RESULTS_VERSION: Final = 2
"""Raised with each entry of the changelog's "Results change"; part of every run id."""

EXTERNAL: Final = "external"
"""Key of an identity that marks decisions which were made elsewhere."""

EARLY_FILLS: Final = "fills_before_dates"
"""Key in what `EXTERNAL` holds: entry rule -> decisions that it would fill before their date."""

DECIDED_LATER: Final = "decided_later"
"""Key in what `EXTERNAL` holds: cells that were decided after the close of their session."""

EXTERNAL_LABEL: Final = "external: no prompts, no leak proof"

DATABASE_NAME: Final = "results.duckdb"
"""The published database of all runs, beside their folders."""

RunStatus = Literal["started", "stopped", "budget_reached", "finished"]

_VERSIONED: Final = (
    "tradingagents-backtester",
    "langgraph",
    "langchain-core",
    "langchain-openai",
    "openai",
    "pandas",
    "numpy",
    "pyarrow",
    "duckdb",
    "stockstats",
    "exchange_calendars",
)


Count = Annotated[int, Field(ge=0, le=10**9)]


def _wall_time(text: str) -> str:
    if datetime.fromisoformat(text).tzinfo is None:
        raise ValueError("is a time without a zone")
    return text


def _model_row(row: dict[str, str | None]) -> dict[str, str | None]:
    if not row.get("provider") or not row.get("model"):
        raise ValueError("names no provider or no model")
    return row


def _day(text: str) -> str:
    date.fromisoformat(text)
    return text


class _Known(BaseModel):
    """Hold what every run's identity says, whatever else a release adds to it."""

    model_config = ConfigDict(strict=True, extra="ignore")

    tickers: Annotated[list[str], Field(min_length=1)]
    start: Annotated[str, AfterValidator(_day)]
    end: Annotated[str, AfterValidator(_day)]
    grid: str | list[str]
    decision_time: str
    entry: str
    horizon: Count
    trials: Count
    warmup: Count
    benchmark: str | None
    analysts: list[str]
    max_debate_rounds: Count
    max_risk_discuss_rounds: Count
    price_lookback: Count
    news_lookback_days: Count
    estimated: str = "withhold"
    memory: str
    temperature: float | None = None
    generation: Count = 0


def _identity(document: dict[str, Any]) -> dict[str, Any]:
    _Known.model_validate(document)
    return document


WallTime = Annotated[str, AfterValidator(_wall_time)]


class RunManifest(BaseModel):
    """Describe one run: what it is, what it ran on, and how it ended.

    Attributes:
        run_id: Readable slug and hash of `identity`.
        status: ``started`` from the first moment, then ``stopped``, ``budget_reached`` (a cap of
            the run came first) or ``finished``.
        created_at: Wall time, UTC ISO text.
        finished_at: Likewise, or None.
        config: The whole configuration, operational fields included.
        identity: Everything that can change an answer.
        snapshot_id: Content hash of the snapshot.
        snapshot_name: Its name.
        prompt_fingerprint: Hash of prompts, tools, schemas and topology.
        results_version: `RESULTS_VERSION`.
        results_root: Root at the end, or None.
        cells_planned: Number of cells of the grid.
        versions: Package versions.
        commit: Commit of the source checkout, or None.
        diff_sha256: Hash of the uncommitted diff, or None.
        models: Tier -> provider, model and endpoint.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    run_id: str
    status: RunStatus
    created_at: WallTime
    finished_at: WallTime | None = None
    config: dict[str, Any]
    identity: Annotated[dict[str, Any], AfterValidator(_identity)]
    snapshot_id: str
    snapshot_name: str
    prompt_fingerprint: str
    results_version: Count
    results_root: str | None = None
    cells_planned: Count
    versions: dict[str, str]
    commit: str | None = None
    diff_sha256: str | None = None
    models: dict[str, Annotated[dict[str, str | None], AfterValidator(_model_row)]]

    @property
    def label(self) -> str | None:
        """What to say of decisions that were made elsewhere; None for a run of this product."""
        return EXTERNAL_LABEL if EXTERNAL in self.identity else None

    @property
    def decided_later(self) -> frozenset[str]:
        """Cells (as ``str(key)``) that were decided after the close of their session."""
        return frozenset(self.identity.get(EXTERNAL, {}).get(DECIDED_LATER, ()))

    def require_prompts(self) -> None:
        """Refuse what cannot be done without the run's own prompts.

        Raises:
            DataError: The decisions were made elsewhere.
        """
        if self.label is not None:
            raise DataError(
                f"run {self.run_id} is {self.label}: it can be scored, and nothing more"
            )


def run_id_of(config: RunConfig, identity: Mapping[str, Any]) -> str:
    """Return the readable slug and 12 hex digits over the identity."""
    slug = config.name or f"{config.quick_model}-{len(config.tickers)}x{_grid_word(config)}"
    slug = re.sub(r"[^a-z0-9]+", "-", slug.lower()).strip("-")[:48] or "run"
    return f"{slug}-{_identity_hash(identity)}"


def _identity_hash(identity: Mapping[str, Any]) -> str:
    text = orjson.dumps(identity, option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(text).hexdigest()[:12]


def _grid_word(config: RunConfig) -> str:
    grid = config.grid if isinstance(config.grid, str) else "list"
    return f"{grid}-{config.start.year}"


class RunFolder:
    """Open, lock and describe the folder of one run.

    Args:
        path: The folder.
        what: What a message calls the work in it.
    """

    def __init__(self, path: Path, *, what: str = "run") -> None:
        self.path = path
        self._what = what

    @property
    def run_id(self) -> str:
        """The folder's name."""
        return self.path.name

    @property
    def journal_path(self) -> Path:
        """Where the journal is."""
        return self.path / "journal.jsonl"

    @property
    def spend_path(self) -> Path:
        """Where paid calls are written down."""
        return self.path / SPEND_NAME

    @property
    def manifest_path(self) -> Path:
        """Where the manifest is."""
        return self.path / "manifest.json"

    def create(self) -> None:
        """Make the folder.

        Raises:
            UsageError: The reports folder cannot be written.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            # A name of its own, for several starters may probe at once.
            with tempfile.NamedTemporaryFile(dir=self.path, prefix=".writable-"):
                pass
        except OSError as error:
            raise UsageError(
                f"reports folder {self.path.parent} cannot be written ({error.strerror}): "
                "name another with --reports-dir"
            ) from error

    @contextmanager
    def lock(self, *, wait_s: float = 0.0) -> Iterator[None]:
        """Hold the run's OS lock; the kernel frees it when its holder dies.

        Args:
            wait_s: How long to wait for another holder.

        Raises:
            RunLocked: Another process holds it; the message names the process.
        """
        holder = self.path / ".holder"
        lock = FileLock(self.path / ".lock")
        try:
            lock.acquire(timeout=wait_s)
        except Timeout as error:
            who = _holder_of(holder)
            raise RunLocked(
                f"{self._what} {self.run_id} is being worked on by {who}: wait for it, or stop it"
            ) from error
        try:
            holder.write_text(f"process {os.getpid()}\n")
            yield
        finally:
            holder.unlink(missing_ok=True)
            lock.release()

    def read_manifest(self) -> RunManifest:
        """Read the manifest.

        Raises:
            DataError: It is missing, does not read, or is of another run.
        """
        path = self.manifest_path
        try:
            if path.exists() and not path.is_file():
                raise DataError(f"{path} is no file: give the folder its manifest back")
            manifest = RunManifest.model_validate_json(path.read_bytes())
        except FileNotFoundError as error:
            raise DataError(f"run {shown(self.run_id)} has no manifest in {self.path}") from error
        except OSError as error:
            raise DataError(
                f"{path} cannot be read ({error.strerror}): allow it, or bring the file back"
            ) from error
        except ValidationError as error:
            raise DataError(
                f"{path} is damaged ({_first_of(error)}): bring the file back, or delete the "
                "run's folder and run it again"
            ) from error
        if manifest.run_id != self.run_id:
            # The id becomes a folder's name, so it may not come from a file's content.
            raise DataError(
                f"{path} is of another run, {shown(manifest.run_id)}: "
                "give the folder its own manifest back"
            )
        if not _gives_id(manifest):
            raise DataError(
                f"{path} is damaged (its identity is not the one that the run id was made from): "
                "bring the file back, or delete the run's folder and run it again"
            )
        return manifest

    def write_manifest(self, manifest: RunManifest) -> None:
        """Replace the manifest in one step."""
        text = json.dumps(manifest.model_dump(mode="json"), indent=2, sort_keys=True) + "\n"
        temporary = self.path / ".manifest.tmp"
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.manifest_path)


def _gives_id(manifest: RunManifest) -> bool:
    """Say whether a manifest's identity is the one that its run id was made from."""
    try:
        return manifest.run_id.endswith(f"-{_identity_hash(manifest.identity)}")
    except orjson.JSONEncodeError:
        # No identity that we wrote holds such a number, or lists so deep.
        return False


def _holder_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip() or "another process"
    except (OSError, UnicodeDecodeError):
        # It has not written its name yet, or has just gone.
        return "another process"


def list_runs(reports_dir: Path) -> list[RunFolder]:
    """Return the run folders, sorted by name; folders without a manifest are no runs."""
    if not reports_dir.is_dir():
        return []
    found = [path for path in sorted(reports_dir.iterdir()) if (path / "manifest.json").exists()]
    return [RunFolder(path) for path in found]


@dataclass(frozen=True, kw_only=True)
class DamagedRun:
    """Name a run whose manifest does not read, and say why.

    Attributes:
        run_id: The folder's name.
        problem: One line: what is wrong, where, and what to do.
    """

    run_id: str
    problem: str


@dataclass(frozen=True, kw_only=True)
class RunList:
    """Hold the runs of a reports folder.

    Attributes:
        manifests: Those that read, oldest first.
        damaged: The others, by name.
    """

    manifests: tuple[RunManifest, ...]
    damaged: tuple[DamagedRun, ...]


def read_runs(reports_dir: Path) -> RunList:
    """Read the manifests of all runs; one that is damaged hides no other."""
    manifests, damaged = [], []
    for folder in list_runs(reports_dir):
        try:
            manifests.append(folder.read_manifest())
        except DataError as error:
            damaged.append(DamagedRun(run_id=folder.run_id, problem=str(error)))
    manifests.sort(key=_age)
    return RunList(manifests=tuple(manifests), damaged=tuple(damaged))


def find_run(reports_dir: Path, name: str) -> RunFolder:
    """Find a run by its id, an unambiguous part of it, or ``latest``.

    Raises:
        DataError: None or several fit, and the message lists what is there; or it cannot be told
            which is the latest, for a manifest is damaged.
    """
    folders = list_runs(reports_dir)
    if name == "latest" and folders:
        return _latest(reports_dir)
    exact = [folder for folder in folders if folder.run_id == name]
    near = exact or [folder for folder in folders if name in folder.run_id]
    if name and len(near) == 1:
        return near[0]
    if not folders:
        raise DataError(f"no run {shown(name)}: {reports_dir} holds no runs; start one with 'run'")
    listed = near or folders
    more = f" and {len(listed) - 5} more" if len(listed) > 5 else ""
    known = ", ".join(folder.run_id for folder in listed[:5]) + more
    problem = "is ambiguous" if near else "is unknown"
    raise DataError(f"run {shown(name)} {problem} in {reports_dir}: there are {known}")


def _latest(reports_dir: Path) -> RunFolder:
    runs = read_runs(reports_dir)
    if runs.damaged:
        raise DataError(
            f"which run is the latest cannot be told, name it: {runs.damaged[0].problem}"
        )
    return RunFolder(reports_dir / runs.manifests[-1].run_id)


def _age(manifest: RunManifest) -> tuple[datetime, str]:
    return datetime.fromisoformat(manifest.created_at), manifest.run_id


def _first_of(error: ValidationError) -> str:
    """Say the first problem of a manifest: where it is, and what."""
    problems = error.errors(include_url=False, include_input=False)
    place = ".".join(map(str, problems[0]["loc"]))
    more = f", and {len(problems) - 1} more problems" if len(problems) > 1 else ""
    return f"{f'{shown(place)}: ' if place else ''}{problems[0]['msg']}{more}"


def wall_time() -> str:
    """Return the wall time for a manifest, UTC to the second."""
    now = datetime.now(UTC)  # noqa: TID251 - the manifest is the one place for wall time
    return now.replace(microsecond=0).isoformat()


def package_versions() -> dict[str, str]:
    """Return the versions of the packages that shape a run."""
    versions = {}
    for package in _VERSIONED:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = "not installed"
    return versions


def source_state() -> tuple[str | None, str | None]:
    """Return commit and hash of the uncommitted diff of the source checkout, if it is one."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None, None
    commit = _git(root, "rev-parse", "HEAD")
    diff = _git(root, "diff", "HEAD")
    return (
        commit.strip() if commit else None,
        hashlib.sha256(diff.encode()).hexdigest() if diff else None,
    )


def _git(root: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments],
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
