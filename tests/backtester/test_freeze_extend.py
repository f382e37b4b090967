"""An extended snapshot keeps what was known, and names every value that a vendor changed since."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from backtester.errors import UsageError
from backtester.freeze import Frozen, load_plan
from backtester.schema import TABLES
from backtester.snapshot import open_snapshot, verify_snapshot
from backtester.snapshot_diff import diff_tables
from backtester.vendors.base import Capture, Wanted
from tests.backtester.test_freeze import Scripted, bars, plan_of, run

MORE = tuple(date(2024, 3, day) for day in (1, 4, 5, 6, 7, 8, 11, 12))


def later(wanted: Wanted) -> Capture:
    """Answer with two more sessions; the close of 2024-03-05 was 102 and is 102.5 now."""
    capture = bars(wanted, sessions=MORE)
    rows = capture.rows["bars"].to_pylist()
    rows[2] |= {"close": 102.5, "high": 102.5}
    # The vendor no longer has 2024-03-06.
    del rows[3]
    table = capture.rows["bars"].from_pylist(rows, schema=TABLES["bars"].arrow)
    return Capture(rows={"bars": table}, source="x", licence="free")


def extended(tmp_path: Path, **changes: Any) -> Frozen:
    run(tmp_path, plan_of(name="old", symbols=("AAA",)), Scripted("yfinance", bars))
    flags = {"name": "new", "extends": "old", "end": "2024-03-12", "vendors": ["bars=yfinance"]}
    plan = load_plan(None, {**flags, **changes}, data_dir=tmp_path)
    return run(tmp_path, plan, Scripted("yfinance", later))


def closes(frozen: Frozen) -> dict[str, float]:
    found = frozen.snapshot.bars("AAA")
    return dict(zip(map(str, found.sessions), found.close.tolist(), strict=True))


def test_what_was_frozen_stays_and_what_came_is_added(tmp_path: Path) -> None:
    frozen = extended(tmp_path)
    assert closes(frozen) == {
        "2024-03-01": 100.0,
        "2024-03-04": 101.0,
        "2024-03-05": 102.0,
        "2024-03-06": 103.0,
        "2024-03-07": 104.0,
        "2024-03-08": 105.0,
        "2024-03-11": 106.0,
        "2024-03-12": 107.0,
    }
    assert (frozen.snapshot.start, frozen.snapshot.end) == (date(2024, 3, 1), date(2024, 3, 12))
    assert verify_snapshot(frozen.snapshot.path) == []
    assert verify_snapshot(tmp_path / "snapshots/old") == []


def test_every_value_that_the_vendor_changed_is_named(tmp_path: Path) -> None:
    told = [f.message for f in extended(tmp_path).snapshot.manifest.findings if f.kind == "changed"]
    assert told == [
        "bars AAA 2024-03-05: high was 102.0, the vendor now says 102.5; kept",
        "bars AAA 2024-03-05: close was 102.0, the vendor now says 102.5; kept",
        "bars: the vendor no longer has AAA 2024-03-06",
    ]


def test_the_new_values_are_taken_where_the_plan_says_so(tmp_path: Path) -> None:
    frozen = extended(tmp_path, on_change="take")
    assert closes(frozen)["2024-03-05"] == 102.5
    # A bar that the vendor has lost was still traded.
    assert closes(frozen)["2024-03-06"] == 103.0
    assert verify_snapshot(frozen.snapshot.path) == []


def test_an_extension_loses_neither_symbols_nor_dates(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds AAA as well"):
        extended(tmp_path, symbols="BBB")
    with pytest.raises(UsageError, match="reaches to 2024-03-08"):
        extended(tmp_path / "b", end="2024-03-07")


def test_two_snapshots_tell_row_by_row_in_what_they_differ(tmp_path: Path) -> None:
    frozen = extended(tmp_path, on_change="take")
    old = open_snapshot("old", tmp_path)
    found = {
        diff.table: diff
        for diff in diff_tables(
            {name: old.table(name) for name in ("bars", "actions", "instruments")},
            {name: frozen.snapshot.table(name) for name in ("bars", "actions", "instruments")},
        )
    }
    assert found["actions"].equal
    assert found["instruments"].equal
    assert found["bars"].added == ("AAA 2024-03-11", "AAA 2024-03-12")
    assert found["bars"].removed == ()
    assert [(c.key, c.column, c.old, c.new) for c in found["bars"].changed] == [
        ("AAA 2024-03-05", "high", "102.0", "102.5"),
        ("AAA 2024-03-05", "close", "102.0", "102.5"),
    ]
    assert found["bars"].same == 5


def test_null_is_a_value_of_its_own_in_a_diff() -> None:
    row = {
        "instrument": "AAA",
        "id": "1",
        "known_at": datetime(2024, 3, 1, tzinfo=UTC),
        "known_at_basis": "published",
        "source": "wire",
        "title": "t",
        "summary": None,
        "url": None,
    }
    arrow = TABLES["news"].arrow
    old = arrow.empty_table().from_pylist([row, {**row, "instrument": None}], schema=arrow)
    new = arrow.empty_table().from_pylist(
        [{**row, "summary": "text"}, {**row, "instrument": None}], schema=arrow
    )
    (diff,) = diff_tables({"news": old}, {"news": new})
    assert [(c.key, c.column, c.old, c.new) for c in diff.changed] == [
        ("AAA 2024-03-01T00:00:00Z 1", "summary", "", "text")
    ]
    assert diff.same == 1
