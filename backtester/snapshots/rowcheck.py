"""What the rows of the optional tables must satisfy before they are stored.

No `known_at` may lie after the capture: nobody could have read such a row. None may lie before
what the row is about: a figure is not public before its period is over, nor a trade before it was
made.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from backtester.errors import DataError
from backtester.schema import ESTIMATED, OPTIONAL_TABLES, PUBLISHED, TABLES, conform

# What a row is about ends on this date.
_ABOUT: Final = {"statements": "period_end", "insider": "transaction_date"}


def check_rows(tables: Mapping[str, pa.Table], *, captured_at: datetime) -> None:
    """Check the optional tables of a capture.

    Args:
        tables: Table name -> rows.
        captured_at: When the capture was made, zone-aware.

    Raises:
        DataError: For a row that must not be stored, with its key.
    """
    held = set(tables["instruments"].column("instrument").to_pylist())
    for name in OPTIONAL_TABLES:
        if name in tables:
            _check(name, conform(name, tables[name]), captured_at, held)


def _check(name: str, rows: pa.Table, captured_at: datetime, held: set[Any]) -> None:
    known = rows.column("known_at")
    now = pa.scalar(captured_at.astimezone(UTC), known.type)
    _refuse(name, rows, pc.greater(known, now), f"was not public when captured at {captured_at}")
    if "known_at_basis" in rows.column_names:
        allowed = pa.array([PUBLISHED, ESTIMATED])
        strange = pc.invert(pc.is_in(rows.column("known_at_basis"), value_set=allowed))
        _refuse(name, rows, strange, f"has a known_at_basis that is not {PUBLISHED} or {ESTIMATED}")
    if name in _ABOUT:
        about = pc.cast(rows.column(_ABOUT[name]), known.type)
        _refuse(
            name, rows, pc.less(known, about), f"is known before its {_ABOUT[name]}: mend known_at"
        )
    if "instrument" in rows.column_names:
        owners = rows.column("instrument")
        strangers = pc.and_(
            pc.is_valid(owners),
            pc.invert(pc.is_in(owners, value_set=pa.array(sorted(map(str, held))))),
        )
        _refuse(name, rows, strangers, "belongs to an instrument that instruments does not hold")
    if name == "prediction_markets":
        odds: list[Any] = rows.column("probability").to_pylist()
        wrong = pa.array([not 0.0 <= chance <= 1.0 for chance in odds], pa.bool_())
        _refuse(name, rows, wrong, "has a probability that is not from 0 to 1")


def _refuse(name: str, rows: pa.Table, flags: Any, words: str) -> None:
    bad = rows.filter(flags)
    if bad.num_rows:
        key = " ".join(str(bad.column(column)[0].as_py()) for column in TABLES[name].key)
        more = f" (and {bad.num_rows - 1} more)" if bad.num_rows > 1 else ""
        raise DataError(f"row of {name}, {key}{more}, {words}")
