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
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import orjson
from filelock import FileLock, Timeout
from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from backtester.config import RunConfig
from backtester.errors import DataError, RunLocked, UsageError

RESULTS_VERSION: Final = 1
"""Raised with each entry of the changelog's "Results change"; part of every run id."""

RunStatus = Literal["started", "stopped", "finished"]

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


def _wall_time(text: str) -> str:
    if datetime.fromisoformat(text).tzinfo is None:
        raise ValueError("is a time without a zone")
    return text


def _model_row(row: dict[str, str | None]) -> dict[str, str | None]:
    if not row.get("provider") or not row.get("model"):
        raise ValueError("names no provider or no model")
    return row


WallTime = Annotated[str, AfterValidator(_wall_time)]


class RunManifest(BaseModel):
    """Describe one run: what it is, what it ran on, and how it ended.

    Attributes:
        run_id: Readable slug and hash of `identity`.
        status: ``started`` from the first moment, then ``stopped`` or ``finished``.
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
    identity: dict[str, Any]
    snapshot_id: str
    snapshot_name: str
    prompt_fingerprint: str
    results_version: int
    results_root: str | None = None
    cells_planned: int
    versions: dict[str, str]
    commit: str | None = None
    diff_sha256: str | None = None
    models: dict[str, Annotated[dict[str, str | None], AfterValidator(_model_row)]]


def run_id_of(config: RunConfig, identity: Mapping[str, Any]) -> str:
    """Return the readable slug and 12 hex digits over the identity."""
    text = orjson.dumps(identity, option=orjson.OPT_SORT_KEYS)
    slug = config.name or f"{config.quick_model}-{len(config.tickers)}x{_grid_word(config)}"
    slug = re.sub(r"[^a-z0-9]+", "-", slug.lower()).strip("-")[:48] or "run"
    return f"{slug}-{hashlib.sha256(text).hexdigest()[:12]}"


def _grid_word(config: RunConfig) -> str:
    grid = config.grid if isinstance(config.grid, str) else "list"
    return f"{grid}-{config.start.year}"


class RunFolder:
    """Open, lock and describe the folder of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def run_id(self) -> str:
        """The folder's name."""
        return self.path.name

    @property
    def journal_path(self) -> Path:
        """Where the journal is."""
        return self.path / "journal.jsonl"

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
    def lock(self) -> Iterator[None]:
        """Hold the run's OS lock; the kernel frees it when its holder dies.

        Raises:
            RunLocked: Another process holds it; the message names the process.
        """
        holder = self.path / ".holder"
        lock = FileLock(self.path / ".lock")
        try:
            lock.acquire(timeout=0)
        except Timeout as error:
            who = _holder_of(holder)
            raise RunLocked(
                f"run {self.run_id} is being worked on by {who}: wait for it, or stop it"
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
            DataError: It is missing or does not read.
        """
        try:
            manifest = RunManifest.model_validate_json(self.manifest_path.read_bytes())
        except FileNotFoundError as error:
            raise DataError(f"run {self.run_id} has no manifest in {self.path}") from error
        except ValidationError as error:
            raise DataError(
                f"{self.manifest_path} is damaged ({error.error_count()} problems): "
                "delete the run's folder and run it again"
            ) from error
        if manifest.run_id != self.run_id:
            # The id becomes a folder's name, so it may not come from a file's content.
            raise DataError(
                f"{self.manifest_path} is of another run, {manifest.run_id[:80]!r}: "
                "give the folder its own manifest back"
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


def find_run(reports_dir: Path, name: str) -> RunFolder:
    """Find a run by its id, an unambiguous part of it, or ``latest``.

    Raises:
        DataError: None or several fit; the message lists what is there.
    """
    folders = list_runs(reports_dir)
    if name == "latest" and folders:
        return max(folders, key=lambda folder: folder.read_manifest().created_at)
    exact = [folder for folder in folders if folder.run_id == name]
    near = exact or [folder for folder in folders if name in folder.run_id]
    if name and len(near) == 1:
        return near[0]
    if not folders:
        raise DataError(f"no run {name!r}: {reports_dir} holds no runs; start one with 'run'")
    listed = near or folders
    more = f" and {len(listed) - 5} more" if len(listed) > 5 else ""
    known = ", ".join(folder.run_id for folder in listed[:5]) + more
    problem = "is ambiguous" if near else "is unknown"
    raise DataError(f"run {name!r} {problem} in {reports_dir}: there are {known}")


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
    root = Path(__file__).resolve().parent.parent
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
