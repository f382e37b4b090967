"""Parquet in memory becomes a table, unless it would fill the memory."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from backtester import parquet
from backtester.parquet import read_parquet


def written(rows: int) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.table({"a": pa.repeat(7, rows), "b": pa.repeat(1.0, rows)}), buffer)
    return buffer.getvalue()


def test_a_table_of_as_many_values_as_there_may_be_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "MOST_VALUES", 2_000_000)
    assert read_parquet(written(1_000_000)).num_rows == 1_000_000


def test_a_few_bytes_that_hold_a_value_too_often_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(parquet, "MOST_VALUES", 2_000_000)
    data = written(1_000_001)
    assert len(data) < 20_000
    with pytest.raises(pa.ArrowInvalid, match="holds 1000001 rows: split it"):
        read_parquet(data)
