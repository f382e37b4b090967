"""The manifest of a snapshot, its identity, and files that are either whole or not there.

`Manifest` is what ``manifest.json`` holds, parsed strictly. `logical_id` names the content of a
snapshot: a hash over the rows of its tables, the schema version, the declared range and the
reasons of absent tables (readers print them, so they can change a prompt). It does not cover
Parquet bytes, which carry the writer's version, nor warnings, names or times; ``sha256`` of each
file guards integrity instead.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import struct
from collections.abc import Mapping
from datetime import date, datetime
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from backtester.errors import DataError
from backtester.named_files import read_named
from backtester.schema import SCHEMA_VERSION, TABLES, conform
from backtester.spellings import plain

MANIFEST_NAME = "manifest.json"
MANIFEST_FORMAT = 1
SNAPSHOT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
# Kinds of findings that only the capture can make: the stored rows do not show them.
AT_CAPTURE = frozenset({"duplicate", "undated", "not_had", "changed", "late_start", "note"})
# It names every gap of every instrument.
_MOST_BYTES = 256 * 2**20
_FIRST_YEAR, _LAST_YEAR = 1970, 9000
_ID_DOMAIN = b"backtester snapshot rows 1\n"


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Source(_Strict):
    """Say where rows came from.

    Attributes:
        name: Short name that files refer to.
        vendor: Vendor, package or project, with its version.
        item: What was taken from it (file, endpoint).
        tables: Tables that hold rows of it.
        licence: Licence or terms.
        captured_at: When it was read, UTC.
        options: Every option passed to the vendor.
        sha256: Hash of the item where it is a file.
        derivation: How rows were made from it, in words.
    """

    name: str
    vendor: str
    item: str
    tables: tuple[str, ...]
    licence: str
    captured_at: datetime
    options: dict[str, str] = Field(default_factory=dict)
    sha256: str | None = None
    derivation: str = ""


class FileEntry(_Strict):
    """Describe the file of one table.

    Attributes:
        file: File name within the folder.
        rows: Number of rows.
        bytes: Size.
        sha256: Hash of the file's bytes.
        min_known_at: Oldest `known_at`; None for a table without the column, or without rows.
        max_known_at: Newest one.
        sources: Names of its sources.
        licence: Their licences.
    """

    file: str
    rows: int
    bytes: int
    sha256: str
    min_known_at: datetime | None
    max_known_at: datetime | None
    sources: tuple[str, ...]
    licence: str

    @field_validator("file")
    @classmethod
    def _stays_in_its_folder(cls, value: str) -> str:
        if not value or value != Path(value).name or value.startswith("."):
            raise ValueError("is no plain file name")
        return value


class Finding(_Strict):
    """Note something about the data that a reader should know and no rule refuses.

    Attributes:
        kind: ``gap, extra_session, duplicate, conflict, zero_volume, jump, currency``; or, of the
            capture alone (`AT_CAPTURE`), ``undated, not_had, changed, late_start, note``.
        instrument: Instrument id; empty for the whole snapshot.
        session: Session, or None.
        message: In words.
        count: Rows that it is about, where that is a number of rows.
    """

    kind: str
    instrument: str = ""
    session: date | None = None
    message: str
    count: int | None = None


class Manifest(_Strict):
    """Describe a snapshot as its ``manifest.json`` does.

    Attributes:
        format: Version of this document.
        name: Snapshot name.
        snapshot_id: `logical_id` of the tables.
        schema_version: Version of the table schemas.
        declared_start: First date that the snapshot answers for.
        declared_end: Last one.
        captured_at: When the capture was made, UTC.
        tables: File of each table that is there.
        absent: Reason for each table that is not, and (``table/instrument``) for instruments of
            which a table that is there holds nothing.
        sources: Where the rows came from.
        findings: Gaps and warnings of the capture checks.
    """

    format: int
    name: str
    snapshot_id: str
    schema_version: int
    declared_start: date
    declared_end: date
    captured_at: datetime
    tables: dict[str, FileEntry]
    absent: dict[str, str]
    sources: tuple[Source, ...]
    findings: tuple[Finding, ...]

    @field_validator("name")
    @classmethod
    def _is_a_name(cls, value: str) -> str:
        # It is printed, and the id does not cover it.
        if not SNAPSHOT_NAME.fullmatch(value):
            raise ValueError("is no snapshot name")
        return value

    @field_validator("captured_at")
    @classmethod
    def _is_an_instant_of_our_time(cls, value: datetime) -> datetime:
        if value.tzinfo is None or not _FIRST_YEAR <= value.year <= _LAST_YEAR:
            raise ValueError("is no instant at which data can have been captured")
        return value

    @model_validator(mode="after")
    def _range_runs_forward(self) -> Self:
        if self.declared_end < self.declared_start:
            raise ValueError("its declared range ends before it starts")
        return self

    def to_json(self) -> str:
        """Return the document as stored: sorted keys, two spaces, one newline at the end."""
        document = self.model_dump(mode="json")
        for finding in document["findings"]:
            if finding["count"] is None:
                del finding["count"]
        return json.dumps(document, indent=2, sort_keys=True) + "\n"


def load_manifest(folder: Path) -> Manifest:
    """Read a folder's manifest.

    Raises:
        DataError: Where it is missing, damaged, or of another format or schema version.
    """
    path = folder / MANIFEST_NAME
    try:
        text = read_named(path, most=_MOST_BYTES).decode()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise DataError(
            f"{folder} holds no {MANIFEST_NAME}: it is no snapshot, or its capture did not finish"
        ) from error
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}): restore it") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is no UTF-8 text at byte {error.start}: restore it") from error
    try:
        manifest = Manifest.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "document"
        said = plain(first["type"], first["msg"], first["input"], first.get("ctx", {}))
        raise DataError(f"{path} is damaged at {where}: {said}; restore it") from error
    for what, found, wanted in (
        ("format", manifest.format, MANIFEST_FORMAT),
        ("schema_version", manifest.schema_version, SCHEMA_VERSION),
    ):
        if found != wanted:
            raise DataError(
                f"{path} has {what} {found}, this version reads {wanted}: capture the snapshot anew"
            )
    return manifest


def logical_id(
    tables: Mapping[str, pa.Table],
    schema_version: int,
    start: date,
    end: date,
    *,
    absent: Mapping[str, str] | None = None,
) -> str:
    """Return the identity of a snapshot's content, 64 hex digits.

    Equal rows give an equal id whatever their order, chunking, Parquet file or library version.

    Args:
        tables: Table name -> rows.
        schema_version: `schema.SCHEMA_VERSION` of the rows.
        start: First declared date.
        end: Last declared date.
        absent: Reason for each table that is not there.

    Raises:
        DataError: For rows that do not fit their schema.
    """
    ordered = {name: conform(name, table, undated=True) for name, table in tables.items()}
    return id_of_conformed(ordered, schema_version, start, end, absent=absent)


def id_of_conformed(
    tables: Mapping[str, pa.Table],
    schema_version: int,
    start: date,
    end: date,
    *,
    absent: Mapping[str, str] | None = None,
) -> str:
    """Return `logical_id` of tables that `schema.conform` has been through already."""
    digest = hashlib.sha256(_ID_DOMAIN)
    head = {
        "schema_version": schema_version,
        "start": start.isoformat(),
        "end": end.isoformat(),
        "tables": {name: tables[name].num_rows for name in sorted(tables)},
        "absent": dict(sorted((absent or {}).items())),
    }
    _feed(digest, json.dumps(head, sort_keys=True, separators=(",", ":")).encode())
    for name in sorted(tables):
        for column in TABLES[name].columns:
            _feed(digest, f"{name}.{column.name}:{column.type}".encode())
            _feed_column(digest, tables[name].column(column.name).combine_chunks())
    return digest.hexdigest()


def _feed(digest: hashlib._Hash, data: bytes) -> None:
    # Each part is preceded by its length, so that no two sequences of parts run into one.
    digest.update(struct.pack("<Q", len(data)))
    digest.update(data)


def _feed_column(digest: hashlib._Hash, values: pa.Array[Any]) -> None:
    valid = values.is_valid().to_numpy(zero_copy_only=False)
    _feed(digest, np.packbits(valid, bitorder="little").tobytes())
    if pa.types.is_string(values.type):
        encoded = values.dictionary_encode()
        for text in encoded.dictionary.to_pylist():
            _feed(digest, str(text).encode())
        codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        _feed(digest, codes.astype("<i4").tobytes())
        return
    if pa.types.is_floating(values.type):
        # Adding zero makes one zero of two.
        reals = values.fill_null(0.0).to_numpy(zero_copy_only=False) + 0.0
        _feed(digest, reals.astype("<f8").tobytes())
        return
    whole = values.cast(pa.int32()) if pa.types.is_date32(values.type) else values
    integers = whole.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    _feed(digest, integers.astype("<i8").tobytes())


def sha256_of(path: Path) -> str:
    """Return the hash of a file's bytes, 64 hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that a reader finds the old one or the new one, and never a part.

    Args:
        path: Target; its folder exists.
        data: Content.

    Raises:
        OSError: As the system says; the old file, if any, is untouched then.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make renames within a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
