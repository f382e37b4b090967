"""From a run to its cassette and back: what is taken along, what stays at home, what must hold.

A cassette takes along what the run's results rest on: the manifest, the answers that its cells and
lessons stand on, and the whole journal with every outcome, decision and lesson. The manifest leaves
at home what belongs to the machine: folders, names of variables, files of the user.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson
from pydantic import ValidationError

from backtester.config import RunConfig, is_identity
from backtester.errors import DataError, UsageError
from backtester.foreign_json import plain_object
from backtester.loading import recorded_config
from backtester.publication import read_whole
from backtester.replies.answers import CacheRecord, request_problem
from backtester.replies.cache import CacheProblem, ReplyCache
from backtester.replies.cassette import Head, Written, items, write_cassette
from backtester.replies.recordings import CacheReport
from backtester.runs.folder import RunFolder, RunManifest
from backtester.runs.journal import Ledger, read_ledger
from backtester.runs.root import results_root
from backtester.snapshots.manifest import SNAPSHOT_NAME
from backtester.snapshots.snapshot import find_snapshot_by_id

# Operational settings that are no numbers and no switches, and say nothing about the machine.
_TRAVELLING: Final = frozenset({"name", "on_failure"})
_RUN_ID: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,79}")
_HASH: Final = re.compile(r"[0-9a-f]{64}")
_DIGEST: Final = 16
_LONGEST_NAME: Final = 200


@dataclass(frozen=True, kw_only=True)
class LaidDown:
    """Say where a cassette was laid down as a run's folder with a cache of its own.

    Attributes:
        folder: Folder with manifest and journal.
        cache_dir: Cache with its answers and no other.
        manifest: The manifest.
    """

    folder: RunFolder
    cache_dir: Path
    manifest: RunManifest


@dataclass(frozen=True, kw_only=True)
class PackReport:
    """Say what a check of a cassette found.

    Attributes:
        manifest: Its manifest.
        answers: Its answers, and what is wrong with which.
        journal: Lines of its journal.
    """

    manifest: RunManifest
    answers: CacheReport
    journal: int


# -------------------------------------------------------------------------------------- packing


def pack_run(
    folder: RunFolder,
    cache: ReplyCache,
    path: Path,
    *,
    force: bool = False,
    secrets: Mapping[str, str] | None = None,
) -> Written:
    """Write the cassette of a finished run.

    The same run gives the same lines: answers carry the instant and the seconds of their own
    recording, which the cache keeps and a later run does not move.

    Args:
        folder: The run's folder.
        cache: Where its answers are.
        path: File to write.
        force: Replace a file that holds something else.
        secrets: See `cassette.write_cassette`.

    Raises:
        DataError: The run is not finished or damaged, or an answer is gone or damaged.
        UsageError: See `cassette.write_cassette`.
    """
    manifest = folder.read_manifest()
    manifest.require_prompts()
    if manifest.status != "finished":
        raise DataError(
            f"run {manifest.run_id} is {manifest.status}, not finished, and a cassette holds whole "
            "runs: run it to its end first"
        )
    _refuse_credentials(manifest)
    ledger = read_whole(folder, manifest)
    return write_cassette(
        path,
        manifest=portable(manifest).model_dump(mode="json"),
        answers=_answers(sorted(keys_of(ledger)), cache),
        journal=_lines_of(folder.journal_path),
        force=force,
        secrets=secrets,
    )


def portable(manifest: RunManifest) -> RunManifest:
    """Return a manifest without what names the machine: settings that cannot change an answer.

    Numbers and switches stay. So do the names of snapshot and run. Nothing of it is in the root.
    """
    config = {
        name: value
        for name, value in manifest.config.items()
        if name not in RunConfig.model_fields or is_identity(name) or _travels(name, value)
    }
    return manifest.model_copy(update={"config": {**config, "snapshot": manifest.snapshot_name}})


def _travels(name: str, value: object) -> bool:
    return isinstance(value, int | float) or name in _TRAVELLING


def keys_of(ledger: Ledger) -> set[str]:
    """Return the keys of the answers that a run's cells and lessons stand on."""
    calls = [call for cell in ledger.cells.values() for call in cell.calls]
    calls += [call for lesson in ledger.lessons.values() for call in lesson.calls]
    return {call.key for call in calls if not call.finish_reason.startswith("outcome:")}


def _answers(keys: list[str], cache: ReplyCache) -> Iterator[CacheRecord]:
    for key in keys:
        record = cache.get(key)
        if record is None:
            raise DataError(
                f"{cache.folder} has no answer {key}, which the run used: bring the cache back, "
                "or run it again"
            )
        yield record


def _lines_of(journal: Path) -> Iterator[str]:
    with journal.open("rb") as file:
        # The torn end of an append is no line; whoever continues the run cuts it off.
        yield from (line[:-1].decode() for line in file if line.endswith(b"\n"))


# -------------------------------------------------------------------------------------- reading


def lay_down(path: Path, place: Path) -> LaidDown:
    """Lay a cassette down as a run's folder and a cache, and check all of it.

    The run's folder is named after the hash of its identity and its name, as everywhere; what is
    no such name is refused, so nothing is written outside of ``place``.

    Args:
        path: The cassette.
        place: Folder for both, empty.

    Raises:
        DataError: The cassette is damaged or holds what we do not write.
    """
    reading = items(path)
    manifest = portable(_manifest(path, next(reading, None)))
    folder = RunFolder(place / "run" / manifest.run_id)
    folder.create()
    folder.write_manifest(manifest)
    cache = ReplyCache.open(place / "replies")
    with folder.journal_path.open("w", encoding="utf-8", newline="\n") as journal:
        for item in reading:
            if isinstance(item, CacheRecord):
                cache.add(item)
            elif not isinstance(item, Head):
                journal.write(f"{_checked_line(path, item.text)}\n")
    cache.close()
    _whole_ledger(path, folder, manifest)
    return LaidDown(folder=folder, cache_dir=cache.folder, manifest=manifest)


def read_head(path: Path) -> RunManifest:
    """Return the manifest of a cassette, of which no more is read.

    Raises:
        DataError: It has none that we would write.
    """
    return portable(_manifest(path, next(items(path), None)))


def config_of_pack(
    path: Path, flags: Mapping[str, Any], *, folders: Mapping[str, Path]
) -> RunConfig:
    """Build the configuration of a cassette's run again, on the snapshot with its id.

    Args:
        path: The cassette.
        flags: Settings that win over it; None values are skipped.
        folders: Where this environment keeps things; they give way to flags.

    Raises:
        DataError: The cassette is damaged, or its snapshot is not there.
        UsageError: A flag does not fit, or models would be asked at an address that the cassette
            alone names: it may be a stranger's, and would be sent a key.
    """
    manifest = read_head(path)
    given = {name: value for name, value in flags.items() if value is not None}
    if given.get("mode") != "replay":
        for name, address in addresses_of(manifest).items():
            if name not in given:
                raise UsageError(
                    f"cassette {path} would have models asked at {address[:200]}: agree with "
                    f"--set {name}=ADDRESS, or make no call with --set mode=replay"
                )
    places = {**folders, **given}
    found = find_snapshot_by_id(manifest.snapshot_id, Path(places.get("data_dir", "data")))
    return recorded_config(manifest.config, {"snapshot": str(found.absolute()), **places})


def verify_pack(path: Path, place: Path) -> PackReport:
    """Check a cassette: content hash, manifest, journal with its root, every answer with its key.

    Args:
        path: The cassette.
        place: Empty folder for the journal while it is read.

    Raises:
        DataError: It is damaged as a whole, so that its parts need no look.
    """
    problems: list[CacheProblem] = []
    held: set[str] = set()
    reading = items(path)
    manifest = _manifest(path, next(reading, None))
    folder = RunFolder(place / manifest.run_id)
    folder.create()
    lines = 0
    with folder.journal_path.open("w", encoding="utf-8", newline="\n") as journal:
        for item in reading:
            if isinstance(item, CacheRecord):
                held.add(item.key)
                problem = request_problem(item)
                problems += [] if problem is None else [CacheProblem(key=item.key, problem=problem)]
            elif not isinstance(item, Head):
                lines += 1
                journal.write(f"{_checked_line(path, item.text)}\n")
    used = keys_of(_whole_ledger(path, folder, manifest))
    for key in sorted(used ^ held):
        said = "the run used it, and it is not here" if key in used else "the run never used it"
        problems.append(CacheProblem(key=key, problem=said))
    return PackReport(
        manifest=manifest,
        answers=CacheReport(records=len(held), problems=tuple(problems)),
        journal=lines,
    )


def _manifest(path: Path, head: object) -> RunManifest:
    if not isinstance(head, Head):
        raise DataError(f"cassette {path} is empty: fetch it again")
    try:
        manifest = RunManifest.model_validate_json(orjson.dumps(head.manifest), strict=True)
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors()[0]["loc"])
        raise DataError(
            f"cassette {path} has a manifest that we do not write: {where[:80]} has another form"
        ) from error
    identity = hashlib.sha256(
        orjson.dumps(head.manifest["identity"], option=orjson.OPT_SORT_KEYS)
    ).hexdigest()
    wrong = {
        "run_id": not _RUN_ID.fullmatch(manifest.run_id)
        or not manifest.run_id.endswith(f"-{identity[:12]}"),
        "results_root": not _HASH.fullmatch(manifest.results_root or ""),
        "snapshot_id": not _HASH.fullmatch(manifest.snapshot_id),
        "snapshot_name": not SNAPSHOT_NAME.fullmatch(manifest.snapshot_name)
        or len(manifest.snapshot_name) > _LONGEST_NAME,
        "prompt_fingerprint": not _HASH.fullmatch(manifest.prompt_fingerprint),
        "status": manifest.status != "finished",
    }
    for name in filter(wrong.get, wrong):
        raise DataError(f"cassette {path} has a manifest that we do not write: {name} does not fit")
    return manifest


def _whole_ledger(path: Path, folder: RunFolder, manifest: RunManifest) -> Ledger:
    """Read the journal of a cassette where it was laid down; it must lead to the manifest's root.

    Where that is concerns nobody, so errors name the cassette.
    """
    try:
        ledger = read_ledger(folder.journal_path, advice="fetch the cassette again")
    except DataError as error:
        said = str(error).removeprefix(f"{folder.journal_path} ")
        raise DataError(f"cassette {path}: its journal {said}") from error
    root = results_root(ledger)
    if root != manifest.results_root:
        raise DataError(
            f"cassette {path}: its journal leads to another results root ({root[:12]}) than its "
            f"manifest says ({(manifest.results_root or '')[:12]}): fetch it again"
        )
    return ledger


def _checked_line(path: Path, line: str) -> str:
    """Refuse a journal line that two readers of JSON could understand differently."""
    try:
        if "\n" in line or "\r" in line:
            raise ValueError("goes over its end")
        plain_object(line[_DIGEST + 1 :])
    except ValueError as error:
        raise DataError(f"cassette {path}: a line of its journal {str(error)[:200]}") from error
    return line


def addresses_of(manifest: RunManifest) -> dict[str, str]:
    """Return the settings of a manifest that say where a model is asked, which have a value."""
    return {
        name: str(value)
        for name, value in sorted(manifest.config.items())
        if name.endswith("base_url") and value
    }


def _refuse_credentials(manifest: RunManifest) -> None:
    for name, address in addresses_of(manifest).items():
        if "@" in address:
            raise UsageError(
                f"{name} of run {manifest.run_id} has a user or password in it, which a cassette "
                "must not carry: record the run with a bare address"
            )
