"""The spend ledger: nothing that was paid is lost, and a torn line costs nobody the others."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from backtester.errors import DataError, UsageError
from backtester.spending.ledger import SpendLedger, read_spend
from tests.support.records import make_spend

RECORD = make_spend()


def test_what_was_written_is_read_back_in_order(tmp_path: Path) -> None:
    path = tmp_path / "runs" / "spend.jsonl"
    records = [replace(RECORD, index=index) for index in range(3)]
    for record in records:
        SpendLedger(path).append(record)
    assert read_spend(path) == tuple(records)
    assert read_spend(tmp_path / "none.jsonl") == ()


def test_a_line_that_was_cut_short_anywhere_loses_itself_alone(tmp_path: Path) -> None:
    path = tmp_path / "spend.jsonl"
    SpendLedger(path).append(RECORD)
    whole = path.read_bytes()
    later = replace(RECORD, index=7)
    for cut in range(1, len(whole)):
        path.write_bytes(whole + whole[:cut])
        assert read_spend(path) == (RECORD,)
        SpendLedger(path).append(later)
        assert read_spend(path) == (RECORD, later)


def test_a_line_is_on_the_disk_before_anybody_may_use_the_reply(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "spend.jsonl"
    whole: list[int] = []

    def synced(handle: int) -> None:
        if not stat.S_ISDIR(os.fstat(handle).st_mode):
            whole.append(len(read_spend(path)))

    monkeypatch.setattr(os, "fsync", synced)
    for index in range(2):
        SpendLedger(path).append(replace(RECORD, index=index))
        assert whole == list(range(1, index + 2))


def test_a_changed_line_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "spend.jsonl"
    SpendLedger(path).append(RECORD)
    SpendLedger(path).append(RECORD)
    path.write_bytes(path.read_bytes().replace(b'"cost_usd":0.1', b'"cost_usd":0.0', 1))
    with pytest.raises(DataError, match=r"damaged at line 1.*restore it from a copy, or move it"):
        read_spend(path)


def test_threads_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "spend.jsonl"
    ledger = SpendLedger(path)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: ledger.append(replace(RECORD, index=n)), range(80)))
    assert sorted(record.index for record in read_spend(path)) == list(range(80))


def test_a_folder_that_cannot_be_written_stops_before_more_is_spent(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UsageError, match=r"cannot be written .* and no call may go uncounted"):
        SpendLedger(tmp_path / "file" / "spend.jsonl").append(RECORD)
