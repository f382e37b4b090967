"""The folder of a snapshot: read with verification, written whole or not at all, checked.

Each file is written under a temporary name, synced and renamed, and the manifest is replaced
last, under a lock on the folder. No file that the manifest in force names is ever given other
content, so a writer that dies at any moment leaves the old snapshot whole.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from backtester.errors import DataError, UsageError
from backtester.named_files import TABLE_BYTES, read_named
from backtester.parquet import read_parquet
from backtester.schema import CORE_TABLES, SCHEMA_VERSION, TABLES, conform, table_schema
from backtester.snapshots.barcheck import check_capture
from backtester.snapshots.manifest import (
    AT_CAPTURE,
    MANIFEST_FORMAT,
    MANIFEST_NAME,
    SNAPSHOT_NAME,
    FileEntry,
    Finding,
    Manifest,
    Source,
    id_of_conformed,
    load_manifest,
    write_whole,
)
from backtester.snapshots.rowcheck import check_rows

NOT_CAPTURED = "this snapshot was captured without it"


@dataclass(frozen=True, kw_only=True)
class Capture:
    """Say what a manifest tells about rows beside the rows themselves.

    Attributes:
        name: Snapshot name.
        declared_start: First date that the snapshot answers for.
        declared_end: Last one.
        sources: Where the rows came from; each table with rows needs at least one.
        absent: Reason for each table that is not there, and `absence_of` one instrument.
        captured_at: When the capture was made, zone-aware.
        notes: Findings that no check of the stored rows could make again.
    """

    name: str
    declared_start: date
    declared_end: date
    sources: Sequence[Source]
    absent: Mapping[str, str]
    captured_at: datetime
    notes: Sequence[Finding] = ()


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Report one thing that is wrong with a stored snapshot.

    Attributes:
        file: File name.
        kind: ``missing, damaged, manifest, id, rows, findings``.
        message: In words.
        expected: Hash, count or id that the manifest states, else empty.
        actual: What was found, else empty.
    """

    file: str
    kind: str
    message: str
    expected: str = ""
    actual: str = ""


def read_folder(folder: Path, *, verify: bool) -> tuple[Manifest, dict[str, pa.Table]]:
    """Read a folder's manifest and the rows of its tables, conformed.

    Args:
        folder: Folder with a ``manifest.json``.
        verify: Compare each file's hash, and the rows' identity, with the manifest.

    Raises:
        DataError: Where something is missing or damaged, with file, expected and actual hash.
    """
    manifest, contents = _read_files(folder)
    tables = {}
    for name, entry in manifest.tables.items():
        path = folder / entry.file
        if verify:
            _require_whole(path, entry, contents[name])
        tables[name] = _parse(path, name, contents[name])
    missing = [name for name in CORE_TABLES if name not in tables]
    if missing:
        raise DataError(f"{folder / MANIFEST_NAME} names no {', '.join(missing)}: capture it anew")
    actual = _id_of(manifest, tables) if verify else manifest.snapshot_id
    if actual != manifest.snapshot_id:
        raise DataError(
            f"{folder}: the rows have id {actual}, the manifest says {manifest.snapshot_id}; "
            "restore the snapshot"
        )
    return manifest, tables


def _read_files(folder: Path) -> tuple[Manifest, dict[str, bytes]]:
    """Read a manifest and its files as they were at one time, whatever a writer does meanwhile."""
    manifest = load_manifest(folder)
    while True:
        contents: dict[str, bytes] = {}
        problem: OSError | None = None
        entry = None
        try:
            for name, entry in manifest.tables.items():
                contents[name] = read_named(folder / entry.file, most=TABLE_BYTES)
        except OSError as error:
            problem = error
        newer = load_manifest(folder)
        if newer != manifest:
            manifest = newer
        elif problem is None:
            return manifest, contents
        else:
            wanted = entry.sha256 if entry else "unknown"
            raise DataError(
                f"{problem.filename} cannot be read ({problem.strerror}): restore it, expected "
                f"sha256 {wanted}"
            ) from problem


def _require_whole(path: Path, entry: FileEntry, data: bytes) -> None:
    actual = hashlib.sha256(data).hexdigest()
    if actual != entry.sha256:
        raise DataError(
            f"{path} is damaged: expected sha256 {entry.sha256}, actual {actual}; restore it"
        )


def _parse(path: Path, name: str, data: bytes) -> pa.Table:
    try:
        table = read_parquet(data)
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"{path} is no Parquet file: {error}; restore it") from error
    return conform(name, table)


def _id_of(manifest: Manifest, tables: Mapping[str, pa.Table]) -> str:
    return id_of_conformed(
        tables,
        manifest.schema_version,
        manifest.declared_start,
        manifest.declared_end,
        absent=manifest.absent,
    )


def write_folder(folder: Path, tables: Mapping[str, pa.Table], capture: Capture) -> Manifest:
    """Check a capture and store it, whole or not at all.

    A second writer to the same folder waits for the first; the last one to finish stays. Where a
    snapshot is there already it stays in force until the new one is complete.

    Args:
        folder: Target, usually ``data_dir/snapshots/<name>``.
        tables: Table name -> rows.
        capture: What the manifest says about them.

    Raises:
        DataError: For rows that must not be stored, see `barcheck.check_capture`.
        UsageError: For a name that is none, or a folder that cannot be written.
    """
    if not SNAPSHOT_NAME.fullmatch(capture.name):
        raise UsageError(f"{capture.name!r} is no snapshot name: write letters, digits and . _ -")
    findings = check_capture(
        {"actions": TABLES["actions"].empty(), **tables},
        declared_start=capture.declared_start,
        declared_end=capture.declared_end,
        captured_at=capture.captured_at,
    )
    check_rows(tables, captured_at=capture.captured_at)
    conformed = conform_all(tables, undated=False)
    payloads = {table: _to_parquet(rows) for table, rows in conformed.items()}
    entries = {
        table: _entry(table, rows, payloads[table], capture.sources)
        for table, rows in conformed.items()
    }
    manifest = _manifest_of(capture, conformed, entries, (*findings, *capture.notes))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _sole_writer(folder), _gone_if_unfinished(folder):
            manifest = _place_files(folder, manifest, payloads)
            write_whole(folder / MANIFEST_NAME, manifest.to_json().encode())
            _clear(folder, keep={entry.file for entry in manifest.tables.values()})
    except OSError as error:
        raise UsageError(
            f"snapshot folder {folder} cannot be written ({error.strerror}): make room or allow "
            "it, or choose another"
        ) from error
    return manifest


def _manifest_of(
    capture: Capture,
    tables: Mapping[str, pa.Table],
    entries: dict[str, FileEntry],
    findings: tuple[Finding, ...],
) -> Manifest:
    absent = reasons_of(tables, capture.absent)
    start, end = capture.declared_start, capture.declared_end
    return Manifest(
        format=MANIFEST_FORMAT,
        name=capture.name,
        snapshot_id=id_of_conformed(tables, SCHEMA_VERSION, start, end, absent=absent),
        schema_version=SCHEMA_VERSION,
        declared_start=start,
        declared_end=end,
        captured_at=capture.captured_at.astimezone(UTC),
        tables=entries,
        absent=absent,
        sources=tuple(capture.sources),
        findings=findings,
    )


def conform_all(tables: Mapping[str, pa.Table], *, undated: bool) -> dict[str, pa.Table]:
    """Return every table conformed, with an empty `actions` where none was given.

    Raises:
        DataError: For a core table that is missing, or rows that do not fit their schema.
    """
    given = {"actions": TABLES["actions"].empty(), **tables}
    missing = [name for name in CORE_TABLES if name not in given]
    if missing:
        raise DataError(f"core tables {', '.join(missing)} are missing: no snapshot without them")
    return {name: conform(name, table, undated=undated) for name, table in given.items()}


def reasons_of(tables: Mapping[str, pa.Table], absent: Mapping[str, str]) -> dict[str, str]:
    """Return a reason for each table that is not there, and those for single instruments.

    Args:
        tables: Conformed rows by table name.
        absent: Reason by table name or `absence_of`.

    Raises:
        DataError: For rows that are given and named absent at once, or a name that is no table.
    """
    parts = [name.partition("/") for name in absent]
    for name, _, _ in parts:
        table_schema(name)
    both = sorted({name for name, of_one, _ in parts if not of_one and name in tables})
    if both:
        raise DataError(f"tables {', '.join(both)} are given and named absent: decide for one")
    single = {name: absent[name] for name in sorted(absent) if "/" in name}
    for name, _, instrument in sorted(part for part in parts if part[1]):
        _require_none_of(tables, name, instrument)
    return {name: absent.get(name, NOT_CAPTURED) for name in TABLES if name not in tables} | single


def absence_of(table: str, instrument: str) -> str:
    """Return the name under which a reason stands why a table holds no rows of an instrument."""
    return f"{table}/{instrument}"


def _require_none_of(tables: Mapping[str, pa.Table], name: str, instrument: str) -> None:
    held = tables["instruments"].column("instrument").to_pylist()
    if name not in tables or instrument not in held:
        raise DataError(
            f"a reason is given why table {name} holds nothing of {instrument}: the snapshot has "
            f"no such {'table' if instrument in held else 'instrument'}"
        )
    if instrument in tables[name].column("instrument").to_pylist():
        raise DataError(
            f"table {name} holds rows of {instrument}, which are named absent: decide for one"
        )


def _to_parquet(table: pa.Table) -> bytes:
    buffer = io.BytesIO()
    # The Arrow schema in the footer is a copy of what `conform` restores, in a form that changes
    # with the library.
    pq.write_table(table, buffer, compression="zstd", store_schema=False)
    return buffer.getvalue()


def _entry(table: str, rows: pa.Table, payload: bytes, sources: Sequence[Source]) -> FileEntry:
    used = [source for source in sources if table in source.tables]
    if not used and rows.num_rows:
        raise DataError(f"table {table} has rows and no source: name where they came from")
    oldest, newest = _known_range(rows)
    return FileEntry(
        file=f"{table}.parquet",
        rows=rows.num_rows,
        bytes=len(payload),
        sha256=hashlib.sha256(payload).hexdigest(),
        min_known_at=oldest,
        max_known_at=newest,
        sources=tuple(source.name for source in used),
        licence="; ".join(dict.fromkeys(source.licence for source in used)),
    )


def _known_range(rows: pa.Table) -> tuple[datetime | None, datetime | None]:
    if "known_at" not in rows.column_names:
        return None, None
    known = rows.column("known_at")
    oldest, newest = pc.min(known).as_py(), pc.max(known).as_py()
    if oldest is None or newest is None:
        return None, None
    return oldest.astimezone(UTC), newest.astimezone(UTC)


@contextmanager
def _sole_writer(folder: Path) -> Iterator[None]:
    # The kernel frees the lock of a process that dies, and a folder is a thing that can be
    # locked: no lock file stays behind.
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def _gone_if_unfinished(folder: Path) -> Iterator[None]:
    """Remove a folder that a failed writer leaves without a manifest: it is no snapshot."""
    try:
        yield
    except OSError:
        if not (folder / MANIFEST_NAME).exists():
            with suppress(OSError):
                _clear(folder, keep=set())
                folder.rmdir()
        raise


def _place_files(folder: Path, manifest: Manifest, payloads: Mapping[str, bytes]) -> Manifest:
    """Write the files beside those of the manifest in force; return where they are."""
    in_force = _hashes_in_force(folder)
    placed = {}
    for table, entry in manifest.tables.items():
        file = entry.file
        if in_force.get(file, entry.sha256) != entry.sha256:
            file = f"{table}-{entry.sha256[:12]}.parquet"
        write_whole(folder / file, payloads[table])
        placed[table] = entry.model_copy(update={"file": file})
    return manifest.model_copy(update={"tables": placed})


def _hashes_in_force(folder: Path) -> dict[str, str]:
    try:
        manifest = load_manifest(folder)
    except DataError:
        # No manifest, or one that opens no snapshot: there is nothing to keep whole.
        return {}
    return {entry.file: entry.sha256 for entry in manifest.tables.values()}


def _clear(folder: Path, keep: set[str]) -> None:
    for path in sorted(folder.iterdir()):
        if path.name not in keep and path.suffix in {".parquet", ".tmp"}:
            path.unlink()


def verify_snapshot(folder: Path) -> list[Problem]:
    """Check a stored snapshot against its manifest and its rows against the capture checks.

    Args:
        folder: Folder of the snapshot.

    Returns:
        Every problem that was found, by file; empty for a sound snapshot.
    """
    try:
        manifest = load_manifest(folder)
    except DataError as error:
        return [Problem(file=MANIFEST_NAME, kind="damaged", message=str(error))]
    problems = [
        _problem(MANIFEST_NAME, "manifest", f"it names no {name}: capture it anew", "", "")
        for name in CORE_TABLES
        if name not in manifest.tables
    ]
    if problems:
        return problems
    tables: dict[str, pa.Table] = {}
    for name, entry in manifest.tables.items():
        found, rows = _verify_file(folder, name, entry)
        problems += found
        if rows is not None:
            tables[name] = rows
    if len(tables) == len(manifest.tables):
        problems += _verify_content(manifest, tables)
    return problems


def _verify_file(
    folder: Path, name: str, entry: FileEntry
) -> tuple[list[Problem], pa.Table | None]:
    path = folder / entry.file
    try:
        data = read_named(path, most=TABLE_BYTES)
    except OSError as error:
        text = f"{path} cannot be read ({error.strerror}): restore it"
        return [_problem(entry.file, "missing", text, entry.sha256, "")], None
    try:
        _require_whole(path, entry, data)
        rows = _parse(path, name, data)
    except DataError as error:
        actual = hashlib.sha256(data).hexdigest()
        return [_problem(entry.file, "damaged", str(error), entry.sha256, actual)], None
    oldest, newest = _known_range(rows)
    stated = {
        "rows": (entry.rows, rows.num_rows),
        "bytes": (entry.bytes, len(data)),
        "min_known_at": (entry.min_known_at, oldest),
        "max_known_at": (entry.max_known_at, newest),
    }
    wrong = [
        _problem(entry.file, "manifest", f"{what} differs from the manifest", expected, actual)
        for what, (expected, actual) in stated.items()
        if expected != actual
    ]
    return wrong, rows


def _verify_content(manifest: Manifest, tables: Mapping[str, pa.Table]) -> list[Problem]:
    problems = []
    actual = _id_of(manifest, tables)
    if actual != manifest.snapshot_id:
        text = "the rows have another id than the manifest says"
        problems.append(_problem(MANIFEST_NAME, "id", text, manifest.snapshot_id, actual))
    try:
        findings = check_capture(
            tables,
            declared_start=manifest.declared_start,
            declared_end=manifest.declared_end,
            captured_at=manifest.captured_at,
        )
        check_rows(tables, captured_at=manifest.captured_at)
    except DataError as error:
        return [*problems, _problem(manifest.tables["bars"].file, "rows", str(error), "", "")]
    stated = [finding for finding in manifest.findings if finding.kind not in AT_CAPTURE]
    if list(findings) != stated:
        text = "gaps and warnings of the rows differ from those in the manifest"
        problems.append(_problem(MANIFEST_NAME, "findings", text, len(stated), len(findings)))
    return problems


def _problem(file: str, kind: str, message: str, expected: object, actual: object) -> Problem:
    return Problem(
        file=file, kind=kind, message=message, expected=str(expected), actual=str(actual)
    )
