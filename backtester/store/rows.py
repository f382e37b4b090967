"""A run's records as Arrow tables, one for each table of the results database, checked.

Whatever a table must not hold is refused here, before a database is touched: a number that is NaN,
infinite or too large to be added up exactly, a cell that appears twice, a value of a wrong type.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from itertools import pairwise
from operator import attrgetter
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from backtester.errors import DataError
from backtester.records import CellKey, CellRecord, LessonRecord, ReturnRecord, SpendRecord
from backtester.runs.folder import EXTERNAL, EXTERNAL_LABEL
from backtester.score.files import StoredScore
from backtester.spending.knowledge import Training, knowledge_of, trainings
from backtester.store.score_rows import score_tables
from backtester.store.tables import (
    CELLS,
    LLM_CALLS,
    MEMORY,
    READS,
    RETURNS,
    RUNS,
    SPEND,
)
from backtester.store.terms import LIMIT, SUMMED_UNITS, Column, Table

_ARROW: Final[dict[str, pa.DataType]] = {
    "VARCHAR": pa.string(),
    "VARCHAR[]": pa.list_(pa.string()),
    "BOOLEAN": pa.bool_(),
    "INTEGER": pa.int32(),
    "BIGINT": pa.int64(),
    "DOUBLE": pa.float64(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us", tz="UTC"),
}

# Where the columns of `runs` that are no key of the manifest itself come from: identity or config.
_SETTINGS: Final = {
    "tickers": "tickers",
    "first_date": "start",
    "last_date": "end",
    "grid": "grid",
    "decision_time": "decision_time",
    "horizon": "horizon",
    "entry_rule": "entry",
    "benchmark": "benchmark",
    "memory_scope": "memory",
    "trials": "trials",
    "provider": "provider",
    "quick_model": "quick_model",
    "deep_model": "deep_model",
}


# Every column goes over the records once more; so many of them stay in the processor's cache.
_RECORDS_AT_ONCE: Final = 500

_Record = CellRecord | ReturnRecord | LessonRecord
_Owner = CellRecord | LessonRecord
_AnyRecord = TypeVar("_AnyRecord", bound=_Record)


@dataclass(frozen=True, kw_only=True)
class RunDocument:
    """Hold everything of one run that the database shows.

    Attributes:
        manifest: The run's manifest as JSON values; ``run_id`` and ``status`` are required.
        cells: Records in force, one for each cell; superseded ones stay in the journal.
        returns: One for each cell and score.
        lessons: One for each cell that has a memory row.
        superseded: Older records of cells that were decided again; their calls were paid for.
        superseded_lessons: Older memory rows, likewise.
        spent: The spend ledger, oldest first.
        scores: Its stored scores, made of these very cells.
    """

    manifest: Mapping[str, object]
    cells: Sequence[CellRecord]
    returns: Sequence[ReturnRecord]
    lessons: Sequence[LessonRecord]
    superseded: Sequence[CellRecord] = ()
    superseded_lessons: Sequence[LessonRecord] = ()
    spent: Sequence[SpendRecord] = ()
    scores: Sequence[StoredScore] = ()

    @property
    def run_id(self) -> str:
        """The run's id.

        Raises:
            DataError: The manifest has none.
        """
        run_id = self.manifest.get("run_id")
        if not isinstance(run_id, str) or not run_id:
            raise DataError("a run's manifest has no run_id: restore it, or run it again")
        return run_id


def arrow_tables(document: RunDocument) -> Mapping[str, pa.Table]:
    """Return a run's rows as Arrow tables, by table name, rows in key order.

    Raises:
        DataError: A record holds what the table must not; run, cell and column are named.
    """
    run_id = document.run_id
    cells = sorted(document.cells, key=attrgetter("key"))
    returns = sorted(document.returns, key=attrgetter("score_id", "key"))
    lessons = sorted(document.lessons, key=attrgetter("key"))
    for table, rows in ((CELLS, cells), (RETURNS, returns), (MEMORY, lessons)):
        _refuse_repeats(f"run {run_id}, {table.name}", rows)
    scored = score_tables(run_id, document.scores)
    return {
        **scored,
        RUNS.name: _run_table(document),
        CELLS.name: _flat_table(_labelled(CELLS, document), run_id, cells),
        RETURNS.name: _with_scored(_flat_table(RETURNS, run_id, returns), scored[RETURNS.name]),
        MEMORY.name: _flat_table(MEMORY, run_id, lessons),
        LLM_CALLS.name: pa.concat_tables(
            [
                _owned_table(LLM_CALLS, run_id, cells, "calls", phase="decision"),
                _owned_table(LLM_CALLS, run_id, lessons, "calls", phase="lesson"),
                _owned_table(LLM_CALLS, run_id, _tries(document), "calls", phase="superseded"),
            ]
        ),
        READS.name: _owned_table(READS, run_id, cells, "reads"),
        SPEND.name: _spend_table(run_id, document.spent),
    }


def _with_scored(own: pa.Table, scored: pa.Table) -> pa.Table:
    """Return the run's own returns, then those of its other scores."""
    columns = scored.select(own.column_names).cast(own.schema)
    return pa.concat_tables([own, columns])


def _tries(document: RunDocument) -> list[_Owner]:
    """Return one owner for each cell that was decided again, with the calls of all older tries."""
    merged: dict[CellKey, _Owner] = {}
    records: list[_Owner] = [*document.superseded, *document.superseded_lessons]
    for record in records:
        known = merged.get(record.key)
        calls = record.calls if known is None else (*known.calls, *record.calls)
        merged[record.key] = replace(record, calls=calls)
    return [merged[key] for key in sorted(merged)]


def _labelled(table: Table, document: RunDocument) -> Table:
    """Return the table with a column ``knowledge`` that knows the models of the run."""
    models = _mapping(document.manifest, "models")
    known: tuple[Training, ...] = trainings(models)
    columns = tuple(
        replace(column, read=lambda session: knowledge_of(session, known))
        if column.name == "knowledge"
        else column
        for column in table.columns
    )
    return replace(table, columns=columns)


def _spend_table(run_id: str, spent: Sequence[SpendRecord]) -> pa.Table:
    arrays = []
    for column in SPEND.columns:
        if column.name == "run_id":
            arrays.append(_constant(run_id, len(spent)))
        elif column.name == "seq":
            arrays.append(pa.array(np.arange(len(spent), dtype=np.int32)))
        else:
            where = f"run {run_id}, {SPEND.name}"
            arrays.append(_array(column, _values(column, spent), where, lambda row: f"line {row}"))
    return pa.table(arrays, names=[column.name for column in SPEND.columns])


def _refuse_repeats(where: str, rows: Sequence[_Record]) -> None:
    """Refuse sorted rows of which two have one key."""
    for one, other in pairwise(rows):
        if one.key == other.key and _score_of(one) == _score_of(other):
            raise DataError(f"{where}: {one.key} is there twice: hand in the records in force only")


def _score_of(row: _Record) -> str:
    return row.score_id if isinstance(row, ReturnRecord) else ""


def _run_table(document: RunDocument) -> pa.Table:
    manifest = document.manifest
    settings = {**_mapping(manifest, "config"), **_mapping(manifest, "identity")}
    values: dict[str, object] = {}
    for column in RUNS.columns:
        if column.name == "evidence":
            value: object = EXTERNAL_LABEL if EXTERNAL in settings else "recorded"
        elif column.name in _SETTINGS:
            value = settings.get(_SETTINGS[column.name])
        else:
            value = manifest.get("commit" if column.name == "source_commit" else column.name)
        values[column.name] = _run_value(column, value)
    arrays = [
        _array(column, [values[column.name]], f"run {document.run_id}", lambda _: "its manifest")
        for column in RUNS.columns
    ]
    return pa.table(arrays, names=[column.name for column in RUNS.columns])


def _mapping(manifest: Mapping[str, object], key: str) -> Mapping[str, Any]:
    value = manifest.get(key)
    return value if isinstance(value, Mapping) else {}


def _run_value(column: Column, value: object) -> object:
    if value is None:
        return None
    if column.type == "DATE":
        return value if isinstance(value, date) else date.fromisoformat(str(value))
    if column.type == "TIMESTAMP":
        instant = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
        return instant if instant.tzinfo else instant.replace(tzinfo=UTC)
    if column.type == "VARCHAR" and not isinstance(value, str):
        return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return value


def _flat_table(table: Table, run_id: str, records: Sequence[_Record]) -> pa.Table:
    """Return the table with one row for each record."""
    return pa.concat_tables([_flat_batch(table, run_id, batch) for batch in _batches(records)])


def _flat_batch(table: Table, run_id: str, records: Sequence[_Record]) -> pa.Table:
    arrays = []
    for column in table.columns:
        if column.name == "run_id":
            arrays.append(_constant(run_id, len(records)))
            continue
        arrays.append(
            _array(
                column,
                _values(column, records),
                f"run {run_id}, {table.name}",
                lambda row: str(records[row].key),
            )
        )
    return pa.table(arrays, names=[column.name for column in table.columns])


def _batches(records: Sequence[_AnyRecord]) -> Iterator[Sequence[_AnyRecord]]:
    """Yield records in parts, at least one, so that an empty table has its columns."""
    for start in range(0, max(len(records), 1), _RECORDS_AT_ONCE):
        yield records[start : start + _RECORDS_AT_ONCE]


def _owned_table(
    table: Table,
    run_id: str,
    owners: Sequence[_Owner],
    field: str,
    *,
    phase: str = "",
) -> pa.Table:
    """Return the table of what cells or lessons own: their calls or reads, in order."""
    batches = _batches(owners)
    return pa.concat_tables([_owned_batch(table, run_id, b, field, phase) for b in batches])


def _owned_batch(
    table: Table,
    run_id: str,
    owners: Sequence[_Owner],
    field: str,
    phase: str,
) -> pa.Table:
    groups = [getattr(owner, field) for owner in owners]
    sizes = np.fromiter(map(len, groups), dtype=np.int64, count=len(groups))
    owner_of = np.repeat(np.arange(len(groups)), sizes)
    seq = np.arange(len(owner_of)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    items = [item for group in groups for item in group]

    def named(row: int) -> str:
        return f"{owners[owner_of[row]].key}, {field} {seq[row]}"

    arrays = []
    for column in table.columns:
        where = f"run {run_id}, {table.name}"
        if column.name == "run_id":
            arrays.append(_constant(run_id, len(items)))
        elif column.name == "phase":
            arrays.append(_constant(phase, len(items)))
        elif column.name == "seq":
            arrays.append(pa.array(seq.astype(np.int32)))
        elif column.source.startswith("owner."):
            arrays.append(_of_owner(column, owners, owner_of, where))
        else:
            arrays.append(_array(column, _values(column, items), where, named))
    return pa.table(arrays, names=[column.name for column in table.columns])


def _of_owner(
    column: Column,
    owners: Sequence[_Owner],
    owner_of: npt.NDArray[np.int64],
    where: str,
) -> pa.Array[Any]:
    values = list(map(attrgetter(column.source.removeprefix("owner.")), owners))
    array = _array(column, values, where, lambda row: str(owners[row].key))
    return array.take(pa.array(owner_of, pa.int64()))


def _values(column: Column, records: Iterable[object]) -> list[object]:
    found = map(attrgetter(column.source), records)
    return list(found if column.read is None else map(column.read, found))


def _constant(text: str, length: int) -> pa.Array[Any]:
    return pa.repeat(pa.scalar(text, pa.string()), length)


def _array(
    column: Column, values: list[object], where: str, named: Callable[[int], str]
) -> pa.Array[Any]:
    """Return one column; `named` says which row a position is, for messages."""
    try:
        array = pa.array(values, type=_ARROW.get(column.type, pa.string()))
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, UnicodeEncodeError) as error:
        raise DataError(f"{where}.{column.name} does not fit its type: {error}") from error
    if column.type == "DOUBLE":
        _refuse_numbers(column, array, where, named)
        # -0.0 and 0.0 are one number; two spellings of it would be two rows of a GROUP BY's file.
        array = pc.add(array, pa.scalar(0.0))
    elif column.type == "TIMESTAMP":
        array = array.cast(pa.timestamp("us"))
    if not column.null and array.null_count:
        row = pc.index(pc.is_null(array), True).as_py()
        raise DataError(f"{where}.{column.name} is missing for {named(row)}: the journal is wrong")
    return array


def _refuse_numbers(
    column: Column, array: pa.Array[Any], where: str, named: Callable[[int], str]
) -> None:
    good = pc.is_finite(array)
    if column.unit in SUMMED_UNITS:
        good = pc.and_(good, pc.less(pc.abs(array), pa.scalar(LIMIT)))
    if pc.all(good, skip_nulls=True, min_count=0).as_py():
        return
    row = pc.index(good, False).as_py()
    raise DataError(
        f"{where}.{column.name} of {named(row)} is {array[row].as_py()!r}: a result is a finite "
        f"number{f' under {LIMIT:g}' if column.unit in SUMMED_UNITS else ''}, or None with a reason"
    )
