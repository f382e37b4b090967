"""Stored scores and the ledger as Arrow tables of the results database, checked."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from backtester.errors import DataError
from backtester.score.definition import DEFAULT_SCORE
from backtester.score.files import ScoreCard, StoredScore
from backtester.score.labels import score_label
from backtester.score.records import schema_of
from backtester.score.trials import ScoredTrial
from backtester.store.score_tables import LEDGER, SCORE_TABLES, SCORES
from backtester.store.tables import RETURNS
from backtester.store.terms import LIMIT, SUMMED_UNITS, Table

_ARROW: Final[dict[str, pa.DataType]] = {
    "VARCHAR": pa.string(),
    "VARCHAR[]": pa.list_(pa.string()),
    "INTEGER[]": pa.list_(pa.int32()),
    "BOOLEAN": pa.bool_(),
    "INTEGER": pa.int32(),
    "BIGINT": pa.int64(),
    "DOUBLE": pa.float64(),
    "DATE": pa.date32(),
}


def score_tables(
    run_id: str, scores: Sequence[StoredScore], *, cards: Sequence[ScoreCard] | None = None
) -> Mapping[str, pa.Table]:
    """Return the rows of a run's scores, by table; `returns` without those of its own score.

    Args:
        run_id: The run.
        scores: What to give rows of.
        cards: Of which scores to give the line of table ``scores``; None for those.

    Raises:
        DataError: A number is too large to be added up exactly, or a score is there twice.
    """
    names = [score.score_id for score in scores]
    if len(set(names)) != len(names):
        raise DataError(f"run {run_id}: a score is there twice: hand each in once")
    shown = [score.card for score in scores] if cards is None else cards
    found = {SCORES.name: _cards(run_id, shown)}
    for table in SCORE_TABLES:
        if table is not SCORES:
            found[table.name] = _joined(table, run_id, scores)
    # The run's own returns are those of its journal.
    others = [score for score in scores if score.score_id != DEFAULT_SCORE]
    found[RETURNS.name] = _joined(RETURNS, run_id, others)
    return found


def _joined(table: Table, run_id: str, scores: Sequence[StoredScore]) -> pa.Table:
    parts = [_labelled(table, run_id, score) for score in scores]
    if not parts:
        empty = schema_of(table.name).empty_table()
        parts = [_with_names(empty, run_id, "")]
    return _plain_times(pa.concat_tables(parts))


def _labelled(table: Table, run_id: str, score: StoredScore) -> pa.Table:
    found = score.tables[table.name]
    for column in table.columns:
        if column.unit in SUMMED_UNITS and column.name in found.column_names:
            values = found.column(column.name)
            small = pc.less(pc.abs(values), pa.scalar(LIMIT))
            if not pc.all(small, skip_nulls=True, min_count=0).as_py():
                raise DataError(
                    f"run {run_id}, score {score.score_id}, {table.name}.{column.name}: a value "
                    f"is not under {LIMIT:g}, so it cannot be added up exactly"
                )
    return _with_names(found, run_id, score.score_id)


def _with_names(found: pa.Table, run_id: str, score_id: str) -> pa.Table:
    for name, text in (("score_id", score_id), ("run_id", run_id)):
        column = pa.repeat(pa.scalar(text, pa.string()), found.num_rows)
        found = found.add_column(0, name, column)
    return found


def _plain_times(found: pa.Table) -> pa.Table:
    for at, field in enumerate(found.schema):
        if pa.types.is_timestamp(field.type):
            plain = found.column(at).cast(pa.timestamp("us"))
            found = found.set_column(at, field.name, plain)
    return found


def _cards(run_id: str, cards: Sequence[ScoreCard]) -> pa.Table:
    own = next((card.definition for card in cards if card.score_id == DEFAULT_SCORE), None)
    rows = []
    for card in cards:
        try:
            rows.append(_card_row(run_id, card, own))
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"run {run_id}, score {card.score_id}: its definition is damaged or of another "
                f"release ({error!r}): remove its folder and score again"
            ) from error
    return _table(SCORES, rows)


# Columns of `scores` that a definition has under the same name.
_AS_DEFINED: Final = (
    "horizon",
    "horizons",
    "entry_rule",
    "decision_time",
    "benchmark",
    "universe",
    "fold",
    "slots",
    "rebalance",
    "fractional",
    "start_cash",
    "haircut",
    "rf_annual",
    "placebo_draws",
    "seed",
    "snapshot_id",
)


def _card_row(run_id: str, card: ScoreCard, own: Mapping[str, Any] | None) -> dict[str, Any]:
    definition = card.definition
    policy = definition["policy"]
    return {
        **{name: definition[name] for name in _AS_DEFINED},
        "run_id": run_id,
        "score_id": card.score_id,
        "label": score_label(definition, own, snapshot=card.snapshot_name),
        "policy": policy["name"],
        "hold": policy["hold"],
        "weights": _json(policy["weights"]),
        "costs": _json(definition["costs"]),
        "first_date": date.fromisoformat(definition["first"]),
        "last_date": date.fromisoformat(definition["last"]),
        "snapshot_name": card.snapshot_name,
        "model_cost_charged": definition["charge_model_cost"],
        "no_book": card.no_book,
        "known_trials": card.known_trials,
        "family_trials": card.family_trials,
        "definition": _json(definition),
    }


def _json(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def ledger_table(rows: Sequence[ScoredTrial]) -> pa.Table:
    """Return the ledger's lines, oldest first."""
    columns = [column for column in LEDGER.columns if column.name != "line"]
    values = [
        {"line": at, **{column.name: getattr(row, column.source) for column in columns}}
        for at, row in enumerate(rows)
    ]
    return _table(LEDGER, [{**row, "universe": list(row["universe"])} for row in values])


def _table(table: Table, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    schema = pa.schema([(column.name, _ARROW[column.type]) for column in table.columns])
    return pa.Table.from_pylist(list(rows), schema=schema)
