"""An extended snapshot keeps what was known, and names every value that a vendor changed since."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from backtester.errors import UsageError
from backtester.freeze.freezing import Frozen, load_plan
from backtester.schema import TABLES
from backtester.snapshots.diff import diff_tables
from backtester.snapshots.snapshot import open_snapshot, verify_snapshot
from backtester.vendors.base import Capture, NoData, Wanted
from tests.backtester.freeze.test_freezing import Scripted, bars, news, plan_of, run

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


def test_an_extension_asks_for_the_sessions_before_the_start_too(tmp_path: Path) -> None:
    # Asked for less, the vendor would seem to have lost what was never asked for.
    before = plan_of(name="old", symbols=("AAA",), start=date(2024, 3, 5), warmup=2)
    assert run(tmp_path, before, Scripted("yfinance", bars)).snapshot.start == date(2024, 3, 1)
    again = {"name": "new", "extends": "old", "end": "2024-03-12", "vendors": ["bars=yfinance"]}

    plan = load_plan(None, {**again, "start": "2024-03-05"}, data_dir=tmp_path)
    assert (plan.start, plan.warmup) == (date(2024, 3, 1), 0)
    told = load_plan(None, {**again, "start": "2024-03-05", "warmup": 2}, data_dir=tmp_path)
    assert (told.start, told.warmup) == (date(2024, 3, 5), 2)


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


# ------------------------------------------------------------------------------------- renames


def named(wanted: Wanted, sessions: tuple[date, ...], *ranges: tuple[str, Any, Any]) -> Capture:
    capture = bars(wanted, sessions=sessions)
    rows = [
        {
            "instrument": wanted.instrument,
            "symbol": symbol,
            "name": f"{symbol} Inc.",
            "exchange": "NASDAQ",
            "calendar": "XNYS",
            "currency": "USD",
            "sector": None,
            "asset_type": "stock",
            "valid_from": first,
            "valid_to": until,
            "first_session": sessions[0],
            "last_session": None,
            "basis": "price",
            "static": False,
        }
        for symbol, first, until in ranges
    ]
    table = capture.rows["bars"].from_pylist(rows, schema=TABLES["instruments"].arrow)
    return Capture(rows={**capture.rows, "instruments": table}, source="x", licence="free")


def renamed(tmp_path: Path, since: date, **changes: Any) -> list[tuple[str, Any, Any]]:
    first = Scripted("yfinance", lambda w: named(w, MORE[:6], ("OLD", None, None)))
    run(tmp_path, plan_of(name="old", symbols=("AAA",)), first)
    flags = {"name": "new", "extends": "old", "end": "2024-03-12", "vendors": ["bars=yfinance"]}
    plan = load_plan(None, {**flags, **changes}, data_dir=tmp_path)
    second = Scripted(
        "yfinance", lambda w: named(w, MORE, ("OLD", None, since), ("NEW", since, None))
    )
    frozen = run(tmp_path, plan, second)
    assert verify_snapshot(frozen.snapshot.path) == []
    rows = frozen.snapshot.identity_rows("AAA")
    return [(row.symbol, row.valid_from, row.valid_to) for row in rows]


@pytest.mark.parametrize("on_change", ["keep", "take"])
def test_a_rename_after_the_extended_range_is_news_and_no_change(
    tmp_path: Path, on_change: str
) -> None:
    since = date(2024, 3, 11)
    assert renamed(tmp_path, since, on_change=on_change) == [
        ("OLD", None, since),
        ("NEW", since, None),
    ]
    # Who was frozen as OLD stays OLD up to then, and no date has two names.
    new = open_snapshot("new", tmp_path)
    assert new.resolve("OLD", date(2024, 3, 8)) == "AAA"
    assert new.resolve("NEW", date(2024, 3, 8)) is None
    assert new.resolve("NEW", date(2024, 3, 12)) == "AAA"
    assert [f.message for f in new.manifest.findings if f.kind == "changed"] == []


def test_a_rename_that_a_vendor_moves_into_what_was_frozen_is_kept_out_or_taken_whole(
    tmp_path: Path,
) -> None:
    since = date(2024, 3, 5)
    assert renamed(tmp_path, since) == [("OLD", None, None)]
    told = [
        f.message
        for f in open_snapshot("new", tmp_path).manifest.findings
        if f.kind == "changed" and "instruments" in f.message
    ]
    assert told == [
        "instruments AAA: valid_to was NULL, the vendor now says 2024-03-05; kept",
        "instruments: the vendor has since added AAA 2024-03-05",
    ]
    assert renamed(tmp_path / "b", since, on_change="take") == [
        ("OLD", None, since),
        ("NEW", since, None),
    ]


def test_an_end_of_trading_since_is_taken_over(tmp_path: Path) -> None:
    run(tmp_path, plan_of(name="old", symbols=("AAA",)), Scripted("yfinance", bars))
    flags = {"name": "new", "extends": "old", "end": "2024-03-12", "vendors": ["bars=yfinance"]}
    plan = load_plan(None, flags, data_dir=tmp_path).model_copy(
        update={"last_sessions": {"AAA": date(2024, 3, 11)}}
    )
    frozen = run(tmp_path, plan, Scripted("yfinance", lambda w: bars(w, sessions=MORE[:7])))
    assert frozen.snapshot.identity_rows("AAA")[0].last_session == date(2024, 3, 11)
    assert [f for f in frozen.snapshot.manifest.findings if f.kind == "gap"] == []


def test_what_an_instrument_lacked_and_has_now_is_no_longer_absent(tmp_path: Path) -> None:
    def old(wanted: Wanted) -> Capture:
        if wanted.table == "bars":
            return bars(wanted)
        if wanted.symbol != "AAA":
            raise NoData("none yet")
        return news(wanted, datetime(2024, 3, 5, 10, tzinfo=UTC))

    def new(wanted: Wanted) -> Capture:
        if wanted.table == "bars":
            return bars(wanted, sessions=MORE)
        if wanted.symbol == "CCC":
            raise NoData("none still")
        return news(wanted, datetime(2024, 3, 11, 10, tzinfo=UTC))

    three = ("AAA", "BBB", "CCC")
    run(
        tmp_path,
        plan_of(name="old", symbols=three, tables=("bars", "news")),
        Scripted("yfinance", old),
    )
    flags = {"name": "new", "extends": "old", "end": "2024-03-12", "vendors": ["yfinance"]}
    frozen = run(tmp_path, load_plan(None, flags, data_dir=tmp_path), Scripted("yfinance", new))
    assert [frozen.snapshot.absent_reason("news", name) for name in three] == [
        None,
        None,
        "yfinance: none still",
    ]
    assert verify_snapshot(frozen.snapshot.path) == []
