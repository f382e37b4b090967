"""Snapshots: frozen market data, opened with verification.

A snapshot is a folder with one Parquet file a table and a ``manifest.json`` that names them. In
memory it is immutable: bars and actions as read-only numpy columns by instrument, the other tables
as Arrow. It knows no cutoff; `view.AsOfView` is what a run reads through. `folder`
reads, writes and checks the folders.
"""

from __future__ import annotations

import importlib.resources
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime
from functools import cached_property
from pathlib import Path
from types import MappingProxyType

import pyarrow as pa
import pyarrow.compute as pc

from backtester import spellings
from backtester.errors import DataError
from backtester.schema import SCHEMA_VERSION, table_schema
from backtester.snapshots.columns import (
    NO_ACTIONS,
    NO_BARS,
    ActionColumns,
    BarColumns,
    IdentityRow,
    actions_by_instrument,
    bars_by_instrument,
    identities_by_instrument,
)
from backtester.snapshots.folder import (
    Capture,
    Problem,
    absence_of,
    conform_all,
    read_folder,
    reasons_of,
    verify_snapshot,
    write_folder,
)
from backtester.snapshots.manifest import (
    MANIFEST_NAME,
    SNAPSHOT_NAME,
    Finding,
    Manifest,
    Source,
    id_of_conformed,
    load_manifest,
)

__all__ = [
    "ActionColumns",
    "BarColumns",
    "IdentityRow",
    "Problem",
    "Snapshot",
    "TableAbsent",
    "absence_of",
    "find_snapshot",
    "find_snapshot_by_id",
    "open_folder",
    "open_snapshot",
    "snapshot_names",
    "verify_snapshot",
    "write_snapshot",
]


class TableAbsent(DataError):
    """Report a table that a snapshot does not hold.

    Args:
        table: Table name.
        reason: Why it is absent, in words.
    """

    def __init__(self, table: str, reason: str) -> None:
        """Keep table and reason beside the message."""
        super().__init__(f"table {table} is not in this snapshot: {reason}")
        self.table = table
        self.reason = reason


class Snapshot:
    """Hold frozen data in memory, immutable, shared freely between threads.

    Build one with `open_snapshot` or `Snapshot.from_tables`. A snapshot that was opened travels
    to another process as its path and id; one made in memory travels with its tables.
    """

    def __init__(
        self,
        *,
        tables: Mapping[str, pa.Table],
        name: str,
        start: date,
        end: date,
        absent: Mapping[str, str],
        path: Path | None = None,
        manifest: Manifest | None = None,
    ) -> None:
        """Hold tables that `schema.conform` has been through."""
        self._tables = MappingProxyType(dict(tables))
        self._absent = MappingProxyType(dict(absent))
        self._path = path
        self._manifest = manifest
        self._name = name
        self._start = start
        self._end = end
        self._identities = identities_by_instrument(tables["instruments"])
        self._bars = bars_by_instrument(tables["bars"])
        self._actions = actions_by_instrument(tables["actions"])

    @classmethod
    def from_tables(
        cls,
        tables: Mapping[str, pa.Table],
        *,
        name: str = "memory",
        declared_start: date,
        declared_end: date,
        absent: Mapping[str, str] | None = None,
        undated: bool = False,
    ) -> Snapshot:
        """Make a snapshot in memory.

        Args:
            tables: Table name -> rows; ``instruments`` and ``bars`` must be there, a missing
                ``actions`` means that there were none.
            name: Name for messages.
            declared_start: First date that the snapshot answers for.
            declared_end: Last one.
            absent: Reason for tables that are not there, or by `absence_of` one instrument.
            undated: Let rows without `known_at` in, for tests that prove readers refuse them.

        Raises:
            DataError: For a core table that is missing, or rows that do not fit.
        """
        conformed = conform_all(tables, undated=undated)
        return cls(
            tables=conformed,
            name=name,
            start=declared_start,
            end=declared_end,
            absent=reasons_of(conformed, absent or {}),
        )

    def replace_tables(
        self, *, undated: bool = False, declared_end: date | None = None, **tables: pa.Table
    ) -> Snapshot:
        """Return a snapshot in memory with some tables replaced and all else equal.

        Args:
            undated: See `from_tables`.
            declared_end: Last date that it answers for, None for the same.
            **tables: Rows by table name.

        Raises:
            DataError: For rows that do not fit.
        """
        return Snapshot.from_tables(
            {**self._tables, **tables},
            name=self._name,
            declared_start=self._start,
            declared_end=declared_end or self._end,
            absent={table: why for table, why in self._absent.items() if table not in tables},
            undated=undated,
        )

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        """Travel as path and id where there is a folder, else as tables."""
        if self._path is not None:
            return _reopen, (self._path, self.id)
        return _rebuild, (
            dict(self._tables),
            self._name,
            self._start,
            self._end,
            dict(self._absent),
        )

    def __repr__(self) -> str:
        """Return name and short id."""
        return f"Snapshot({self._name!r}, {self.id[:12]})"

    @cached_property
    def id(self) -> str:
        """Identity of the content, see `manifest.logical_id`."""
        if self._manifest is not None:
            return self._manifest.snapshot_id
        return id_of_conformed(
            self._tables, SCHEMA_VERSION, self._start, self._end, absent=self._absent
        )

    @cached_property
    def newest_bar_at(self) -> datetime | None:
        """Newest instant at which a bar of any instrument became public, None without a bar."""
        newest: datetime | None = pc.max(self._tables["bars"].column("known_at")).as_py()
        return newest

    @property
    def name(self) -> str:
        """Snapshot name."""
        return self._name

    @property
    def in_memory(self) -> bool:
        """Whether it was made in memory and has neither folder nor manifest."""
        return self._path is None

    @property
    def path(self) -> Path:
        """Folder.

        Raises:
            DataError: For a snapshot in memory.
        """
        if self._path is None:
            raise DataError(f"snapshot {self._name} is in memory and has no folder: write it first")
        return self._path

    @property
    def manifest(self) -> Manifest:
        """Manifest.

        Raises:
            DataError: For a snapshot in memory.
        """
        if self._manifest is None:
            raise DataError(f"snapshot {self._name} is in memory, without manifest: write it first")
        return self._manifest

    @property
    def start(self) -> date:
        """First date that the snapshot answers for."""
        return self._start

    @property
    def end(self) -> date:
        """Last date that the snapshot answers for."""
        return self._end

    def instruments(self) -> tuple[str, ...]:
        """Return the instrument ids, sorted."""
        return tuple(sorted(self._identities))

    def holds(self, instrument: str) -> bool:
        """Say whether the snapshot has an instrument of this id."""
        return instrument in self._identities

    def bars(self, instrument: str) -> BarColumns:
        """Return all bars of an instrument, whatever the cutoff.

        Raises:
            DataError: For an instrument that the snapshot does not hold.
        """
        self._require(instrument)
        return self._bars.get(instrument, NO_BARS)

    def actions(self, instrument: str) -> ActionColumns:
        """Return all splits and dividends of an instrument, whatever the cutoff.

        Raises:
            DataError: For an instrument that the snapshot does not hold.
        """
        self._require(instrument)
        return self._actions.get(instrument, NO_ACTIONS)

    def identity_rows(self, instrument: str) -> tuple[IdentityRow, ...]:
        """Return the identity ranges of an instrument, oldest first.

        Raises:
            DataError: For an instrument that the snapshot does not hold.
        """
        self._require(instrument)
        return self._identities[instrument]

    def identity_on(self, instrument: str, day: date) -> IdentityRow:
        """Return the identity that holds on a date.

        Raises:
            DataError: For an instrument that the snapshot does not hold, or has no name for.
        """
        for row in self.identity_rows(instrument):
            if row.holds_on(day):
                return row
        raise DataError(f"instrument {instrument} has no identity on {day} in {self._name}")

    def resolve(self, symbol: str, on: date) -> str | None:
        """Return the instrument that went by a symbol on a date, or None.

        A symbol from another time is not found, and an instrument id is no symbol: in 2018 ``FB``
        is there and ``META`` is not.
        """
        word = symbol.strip().upper()
        for instrument in self.instruments():
            for row in self._identities[instrument]:
                if row.symbol.upper() == word and row.holds_on(on):
                    return instrument
        return None

    def table(self, name: str) -> pa.Table:
        """Return the rows of a table, whatever the cutoff.

        Raises:
            TableAbsent: Where the snapshot does not hold it.
            DataError: For a name that is no table.
        """
        table_schema(name)
        if name in self._tables:
            return self._tables[name]
        raise TableAbsent(name, self._absent[name])

    def absent_reason(self, name: str, instrument: str | None = None) -> str | None:
        """Return why a table is not there, or holds nothing of an instrument; None where it does.

        Raises:
            DataError: For a name that is no table.
        """
        table_schema(name)
        reason = self._absent.get(name)
        if reason is None and instrument is not None:
            reason = self._absent.get(absence_of(name, instrument))
        return reason

    def _require(self, instrument: str) -> None:
        if instrument not in self._identities:
            raise DataError(
                f"snapshot {self._name} does not hold {instrument!r}: it has "
                f"{', '.join(self.instruments())}"
            )


# ------------------------------------------------------------------------------ find and open


def open_snapshot(name_or_path: str | Path, data_dir: Path, *, verify: bool = True) -> Snapshot:
    """Open a snapshot by name or folder.

    A name is looked for under ``data_dir/snapshots``, then among the snapshots that travel with
    the package, then in the source checkout beside it; the first that is there is taken.

    Args:
        name_or_path: Name, or a folder that holds a ``manifest.json``.
        data_dir: Data folder of the workspace.
        verify: Compare each file's hash, and the rows' identity, with the manifest.

    Raises:
        DataError: Where it is missing (with the names that are there) or damaged (with the file,
            the expected and the actual hash).
    """
    return open_folder(find_snapshot(name_or_path, data_dir), verify=verify)


def snapshot_names(data_dir: Path) -> tuple[str, ...]:
    """Return the names that `open_snapshot` would find, sorted."""
    found: set[str] = set()
    for root in _roots(data_dir):
        if root.is_dir():
            found |= {child.name for child in root.iterdir() if (child / MANIFEST_NAME).is_file()}
    return tuple(sorted(found))


def _roots(data_dir: Path) -> tuple[Path, ...]:
    package = Path(str(importlib.resources.files("backtester")))
    return (
        data_dir / "snapshots",
        package / "_packaged" / "snapshots",
        package.parent / "data" / "snapshots",
    )


def find_snapshot(name_or_path: str | Path, data_dir: Path) -> Path:
    """Return the folder that `open_snapshot` would open.

    Raises:
        DataError: Where there is none, with the names that are there.
    """
    wanted = str(name_or_path)
    if spellings.can_be_opened(wanted):
        if SNAPSHOT_NAME.fullmatch(wanted):
            for root in _roots(data_dir):
                if (root / wanted).is_dir():
                    return root / wanted
        elif (Path(wanted) / MANIFEST_NAME).is_file():
            return Path(wanted)
    names = ", ".join(snapshot_names(data_dir)) or "none"
    raise DataError(
        f"snapshot {spellings.shown(wanted)} is not there: found {names} (under "
        f"{data_dir / 'snapshots'} and with the package); write one of these names, or the path "
        "of a snapshot's folder"
    )


def find_snapshot_by_id(snapshot_id: str, data_dir: Path) -> Path:
    """Return the folder of the snapshot with an id, whatever its name, where `open_snapshot` looks.

    Raises:
        DataError: There is none.
    """
    for root in _roots(data_dir):
        for child in sorted(root.iterdir()) if root.is_dir() else ():
            if not (child / MANIFEST_NAME).is_file():
                continue
            with suppress(DataError):
                if load_manifest(child).snapshot_id == snapshot_id:
                    return child
    raise DataError(
        f"no snapshot with the id {snapshot_id} is there (under {data_dir / 'snapshots'} and with "
        "the package): bring it there, under any name, or name its data folder with --data-dir"
    )


def open_folder(folder: Path, *, verify: bool = True) -> Snapshot:
    """Open the snapshot in a folder.

    Args:
        folder: Folder with a ``manifest.json``.
        verify: Compare hashes and identity with the manifest.

    Raises:
        DataError: Where it is missing or damaged.
    """
    manifest, tables = read_folder(folder, verify=verify)
    return Snapshot(
        tables=tables,
        name=manifest.name,
        start=manifest.declared_start,
        end=manifest.declared_end,
        absent=manifest.absent,
        path=folder.resolve(),
        manifest=manifest,
    )


def write_snapshot(
    folder: Path,
    tables: Mapping[str, pa.Table],
    *,
    name: str,
    declared_start: date,
    declared_end: date,
    sources: Sequence[Source],
    absent: Mapping[str, str],
    captured_at: datetime,
    notes: Sequence[Finding] = (),
) -> Snapshot:
    """Check a capture, store it whole or not at all, and open it.

    Args:
        folder: Target, usually ``data_dir/snapshots/<name>``.
        tables: Table name -> rows.
        name: Snapshot name.
        declared_start: First date that it answers for.
        declared_end: Last one.
        sources: Where the rows came from; each table with rows needs at least one.
        absent: Reason for each table that is not there, or by `absence_of` one instrument.
        captured_at: When the capture was made, zone-aware.
        notes: What a reader should know beside what the checks find.

    Raises:
        DataError: For rows that must not be stored, see `barcheck.check_capture`.
        UsageError: For a name that is none, or a folder that cannot be written.
    """
    capture = Capture(
        name=name,
        declared_start=declared_start,
        declared_end=declared_end,
        sources=sources,
        absent=absent,
        captured_at=captured_at,
        notes=notes,
    )
    write_folder(folder, tables, capture)
    return open_folder(folder)


def _reopen(path: Path, snapshot_id: str) -> Snapshot:
    snapshot = open_folder(path, verify=False)
    if snapshot.id != snapshot_id:
        raise DataError(f"{path} was replaced while it was in use: its id is {snapshot.id} now")
    return snapshot


def _rebuild(
    tables: dict[str, pa.Table], name: str, start: date, end: date, absent: dict[str, str]
) -> Snapshot:
    return Snapshot(tables=tables, name=name, start=start, end=end, absent=absent)
