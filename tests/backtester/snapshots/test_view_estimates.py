"""Rows whose instant is an estimate: one rule in the view, counted, equal on a cut snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any, Literal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backtester.errors import DataError
from backtester.records import ReadRecord
from backtester.schema import TABLES
from backtester.snapshots.snapshot import Snapshot, absence_of
from backtester.snapshots.view import AsOfView, ViewCache
from tests.backtester.snapshots.test_view import view_of
from tests.support.snapshots import closes, make_snapshot
from tests.support.tables import instant
from tradingagents_core.errors import DataUnavailable

DAYS = [f"2018-06-{day:02}" for day in (25, 26, 27, 28, 29)]
CLOSES = closes(dict.fromkeys(DAYS, 1.0))
Setting = Literal["withhold", "lag"]
SETTINGS: tuple[Setting, ...] = ("withhold", "lag")


def figures(rows: Sequence[tuple[str, str, float]], owner: str = "AAA") -> pa.Table:
    """Make statements from (instant, basis, value)."""
    fields: dict[str, Any] = {
        "instrument": owner, "statement": "income", "item": "revenue",
        "period_start": date(2018, 1, 1), "period_end": date(2018, 3, 31), "period_months": 3,
        "form": "10-Q", "tag": None, "derived": False, "unit": "USD",
    }  # fmt: skip
    return pa.Table.from_pylist(
        [
            {
                **fields,
                "known_at": instant(at),
                "known_at_basis": basis,
                "accession": f"{number:03}",
                "value": value,
            }
            for number, (at, basis, value) in enumerate(rows)
        ],
        schema=TABLES["statements"].arrow,
    )


ROWS = figures(
    [
        ("2018-06-25T12:00", "published", 1.0),
        ("2018-06-26T12:00", "estimated", 2.0),
        ("2018-06-27T12:00", "published", 3.0),
        ("2018-06-28T12:00", "estimated", 4.0),
        ("2018-06-29T22:00", "estimated", 5.0),
    ]
)
SNAPSHOT = make_snapshot({"AAA": CLOSES}, statements=ROWS)


def values(view: AsOfView, **window: Any) -> list[object]:
    return [row.fields["value"] for row in view.rows("statements", "AAA", **window)]


def test_estimated_rows_are_withheld_by_default_and_counted_in_the_log() -> None:
    reads: list[ReadRecord] = []
    view = view_of(SNAPSHOT, "2018-06-29", reads=reads)
    assert values(view) == [1.0, 3.0]
    assert (reads[0].rows, reads[0].withheld) == (2, 2)
    assert reads[0].max_known_at == instant("2018-06-27T12:00")


def test_with_a_lag_they_are_seen_from_their_estimated_instant_on() -> None:
    reads: list[ReadRecord] = []
    assert values(view_of(SNAPSHOT, "2018-06-29", reads=reads, estimated="lag")) == [1, 2, 3, 4]
    assert (reads[0].rows, reads[0].withheld) == (4, 0)
    # The close of the 26th of June is 20:00 UTC, eight hours after the estimate.
    assert values(view_of(SNAPSHOT, "2018-06-26", estimated="lag")) == [1, 2]
    assert values(view_of(SNAPSHOT, "2018-06-25", estimated="lag")) == [1]


def test_a_limit_counts_what_is_seen_and_not_what_is_withheld() -> None:
    assert values(view_of(SNAPSHOT, "2018-06-29"), last=2) == [1.0, 3.0]
    assert values(view_of(SNAPSHOT, "2018-06-29", estimated="lag"), last=2) == [3.0, 4.0]


def test_the_count_is_of_the_window_and_never_of_what_lies_ahead() -> None:
    counts = {day: view_of(SNAPSHOT, day).withheld("statements", "AAA") for day in DAYS}
    assert list(counts.values()) == [0, 1, 1, 2, 2]
    view = view_of(SNAPSHOT, "2018-06-29")
    assert view.withheld("statements", "AAA", end=date(2018, 6, 27)) == 1
    reads: list[ReadRecord] = []
    narrow = view_of(SNAPSHOT, "2018-06-29", reads=reads)
    assert values(narrow, start=date(2018, 6, 27), end=date(2018, 6, 28)) == [3.0]
    assert reads[0].withheld == 1


def test_with_a_lag_nothing_is_withheld() -> None:
    assert view_of(SNAPSHOT, "2018-06-29", estimated="lag").withheld("statements", "AAA") == 0


def test_views_of_both_settings_share_a_cache_and_stay_apart() -> None:
    cache = ViewCache(SNAPSHOT)
    for _ in range(2):
        assert values(view_of(SNAPSHOT, "2018-06-29", cache=cache)) == [1.0, 3.0]
        assert len(values(view_of(SNAPSHOT, "2018-06-29", cache=cache, estimated="lag"))) == 4


def test_a_table_that_knows_no_estimates_withholds_none() -> None:
    assert view_of(SNAPSHOT, "2018-06-29").withheld("actions", "AAA") == 0


TIMES = st.integers(0, 140).map(lambda hour: f"2018-06-{24 + hour // 24:02}T{hour % 24:02}:30")
FIGURES = st.lists(
    st.tuples(TIMES, st.sampled_from(["published", "estimated"]), st.floats(1, 9)), max_size=12
)


@given(FIGURES, st.sampled_from(DAYS), st.sampled_from(SETTINGS))
def test_what_lies_ahead_changes_neither_rows_nor_counts(
    rows: list[tuple[str, str, float]], day: str, setting: Setting
) -> None:
    whole = view_of(
        make_snapshot({"AAA": CLOSES}, statements=figures(rows)), day, estimated=setting
    )
    kept = [row for row in rows if instant(row[0]) <= whole.cutoff]
    cut = view_of(make_snapshot({"AAA": CLOSES}, statements=figures(kept)), day, estimated=setting)
    assert values(whole) == values(cut)
    assert whole.withheld("statements", "AAA") == cut.withheld("statements", "AAA")
    shown = [row for row in kept if setting == "lag" or row[1] == "published"]
    assert sorted(values(whole)) == sorted(value for _, _, value in shown)  # type: ignore[type-var]
    assert whole.withheld("statements", "AAA") == len(kept) - len(shown)


# ----------------------------------------------------------- a table without one instrument


def without_bbb(**tables: pa.Table) -> Snapshot:
    return make_snapshot(
        {"AAA": CLOSES, "BBB": CLOSES},
        absent={absence_of("statements", "BBB"): "one company was asked for"},
        **tables,
    )


def test_an_instrument_of_which_a_table_holds_nothing_has_a_reason_of_its_own() -> None:
    reads: list[ReadRecord] = []
    view = view_of(without_bbb(statements=ROWS), "2018-06-29", reads=reads)
    with pytest.raises(DataUnavailable, match="no statements of BBB: one company was asked for"):
        view.require("statements", "BBB")
    with pytest.raises(DataUnavailable, match="no statements of BBB: one company was asked for"):
        view.rows("statements", "BBB")
    assert [(read.table, read.symbol, read.rows) for read in reads] == [
        ("statements", "BBB", 0)
    ] * 2
    assert len(view.rows("statements", "AAA")) == 2


def test_the_reason_is_part_of_the_identity_and_stays_with_a_cut_snapshot() -> None:
    held = without_bbb(statements=ROWS)
    silent = make_snapshot({"AAA": CLOSES, "BBB": CLOSES}, statements=ROWS)
    assert held.id != silent.id
    cut = held.replace_tables(statements=ROWS.slice(0, 1))
    assert cut.absent_reason("statements", "BBB") == "one company was asked for"
    assert cut.absent_reason("statements", "AAA") is None


def test_rows_that_are_there_cannot_be_named_absent() -> None:
    with pytest.raises(DataError, match="statements holds rows of BBB, which are named absent"):
        without_bbb(statements=figures([("2018-06-25T12:00", "published", 1.0)], owner="BBB"))


def test_a_reason_for_what_the_snapshot_does_not_know_is_refused() -> None:
    with pytest.raises(DataError, match="the snapshot has no such table"):
        without_bbb()
    with pytest.raises(DataError, match="the snapshot has no such instrument"):
        make_snapshot(
            {"AAA": CLOSES}, statements=ROWS, absent={absence_of("statements", "BBB"): "why"}
        )
