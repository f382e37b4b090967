"""No optional row is stored that nobody could have read, or that was public before it was true."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest

from backtester.errors import DataError
from backtester.schema import TABLES
from backtester.snapshots.rowcheck import check_rows

CAPTURED = datetime(2024, 4, 10, tzinfo=UTC)
INSTRUMENTS = pa.table({"instrument": ["AAA"]})
TRADE: dict[str, Any] = {
    "instrument": "AAA",
    "id": "1",
    "transaction_date": date(2024, 3, 4),
    "known_at": datetime(2024, 3, 6, tzinfo=UTC),
    "known_at_basis": "published",
    "insider": "A. Person",
    "role": None,
    "code": "P",
    "shares": 10.0,
    "price": None,
}
ODDS: dict[str, Any] = {
    "market": "m",
    "question": "q",
    "outcome": "Yes",
    "known_at": datetime(2024, 3, 6, tzinfo=UTC),
    "probability": 0.5,
    "volume": None,
    "currency": None,
}


def check(table: str, row: dict[str, Any]) -> None:
    rows = pa.Table.from_pylist([row], schema=TABLES[table].arrow)
    check_rows({"instruments": INSTRUMENTS, table: rows}, captured_at=CAPTURED)


def test_sound_rows_pass() -> None:
    check("insider", TRADE)
    check("prediction_markets", ODDS)


@pytest.mark.parametrize(
    ("table", "row", "words"),
    [
        ("insider", {**TRADE, "known_at": CAPTURED.replace(hour=1)}, "was not public"),
        ("insider", {**TRADE, "known_at": datetime(2024, 3, 3, tzinfo=UTC)}, "known before its"),
        ("insider", {**TRADE, "known_at_basis": "guessed"}, "known_at_basis"),
        ("insider", {**TRADE, "instrument": "ZZZ"}, "instruments does not hold"),
        ("prediction_markets", {**ODDS, "probability": 1.5}, "from 0 to 1"),
    ],
)
def test_a_row_that_cannot_be_is_refused_with_its_key(
    table: str, row: dict[str, Any], words: str
) -> None:
    with pytest.raises(DataError, match=words) as caught:
        check(table, row)
    assert str(caught.value).startswith(f"row of {table}, ")
