"""Snapshots in memory: columns, identities, absence, identity of content, travel."""

from __future__ import annotations

import pickle
from datetime import UTC, date, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from backtester.errors import DataError
from backtester.schema import SCHEMA_VERSION, TABLES
from backtester.snapshots.manifest import Source, logical_id
from backtester.snapshots.snapshot import (
    Snapshot,
    TableAbsent,
    find_snapshot,
    open_snapshot,
    snapshot_names,
    write_snapshot,
)
from tests.support.snapshots import (
    Bar,
    closes,
    dividend,
    make_bar,
    make_instrument,
    make_snapshot,
    make_tables,
    split,
)

START, END = date(2024, 3, 18), date(2024, 3, 28)
CAPTURED = datetime(2024, 6, 1, tzinfo=UTC)


def small() -> Snapshot:
    return make_snapshot(
        {
            "AAA": closes([("2024-03-18", 100), ("2024-03-19", 25.5)]),
            "^GSPC": closes([("2024-03-18", 5000), ("2024-03-19", 5010)]),
        },
        actions=[split("AAA", "2024-03-19", 4), dividend("AAA", "2024-03-19", 0.25)],
        start=START,
        end=END,
    )


# ------------------------------------------------------------------------------- columns


def test_bars_come_as_columns_oldest_first_as_traded() -> None:
    bars = small().bars("AAA")
    assert bars.sessions.tolist() == [date(2024, 3, 18), date(2024, 3, 19)]
    assert bars.close.tolist() == [100.0, 25.5]
    assert bars.known_at.tolist() == [datetime(2024, 3, 18, 20), datetime(2024, 3, 19, 20)]  # noqa: DTZ001 - numpy instants are UTC without saying so
    assert (bars.volume.tolist(), bars.currency, len(bars)) == ([1000, 1000], "USD", 2)
    assert bars.position(date(2024, 3, 19)) == 1
    assert bars.position(date(2024, 3, 20)) is None


def test_actions_come_with_neutral_values_where_a_column_is_not_theirs() -> None:
    actions = small().actions("AAA")
    assert actions.kind.tolist() == ["dividend", "split"]
    assert actions.numerator.tolist() == [1, 4]
    assert actions.denominator.tolist() == [1, 1]
    assert actions.amount.tolist() == [0.25, 0.0]
    assert len(actions) == 2
    assert len(small().actions("^GSPC")) == 0


@pytest.mark.parametrize("name", ["sessions", "known_at", "open", "close", "volume"])
def test_no_reader_can_change_what_another_one_sees(name: str) -> None:
    column = getattr(small().bars("AAA"), name)
    with pytest.raises(ValueError, match="read-only"):
        column[0] = column[1]


def test_a_repeated_bar_counts_once() -> None:
    rows = closes(
        [("2024-03-18", 100), ("2024-03-19", 101), ("2024-03-19", 101), ("2024-03-20", 103)]
    )
    bars = make_snapshot({"AAA": rows}).bars("AAA")
    assert bars.close.tolist() == [100.0, 101.0, 103.0]
    assert bars.conflicts == frozenset()


def test_contradicting_bars_are_named_and_neither_is_served() -> None:
    rows = closes(
        [("2024-03-18", 100), ("2024-03-19", 101), ("2024-03-19", 101.5), ("2024-03-20", 103)]
    )
    bars = make_snapshot({"AAA": rows}).bars("AAA")
    assert bars.conflicts == {date(2024, 3, 19)}
    assert bars.sessions.tolist() == [date(2024, 3, 18), date(2024, 3, 20)]
    assert bars.close.tolist() == [100.0, 103.0]


def test_different_days_with_equal_prices_all_stay() -> None:
    rows = closes([("2024-03-18", 100), ("2024-03-19", 100), ("2024-03-20", 100)])
    assert len(make_snapshot({"AAA": rows}).bars("AAA")) == 3


def test_an_instrument_may_have_no_bar() -> None:
    snapshot = make_snapshot(
        {"AAA": closes([("2024-03-18", 1)])},
        instruments=[make_instrument("AAA"), make_instrument("BBB")],
    )
    assert len(snapshot.bars("BBB")) == 0
    assert snapshot.instruments() == ("AAA", "BBB")


def test_an_unknown_instrument_is_answered_with_those_that_are_there() -> None:
    for ask in (small().bars, small().actions, small().identity_rows):
        with pytest.raises(DataError, match=r"does not hold 'ZZZ': it has AAA, \^GSPC"):
            ask("ZZZ")


def test_an_undated_row_is_kept_out_unless_a_test_asks_for_it() -> None:
    undated = Bar(**{**vars(make_bar("AAA", "2024-03-19", 1)), "known_at": None})
    with pytest.raises(DataError, match="1 rows have no known_at"):
        make_snapshot({"AAA": [undated]})
    loose = make_snapshot({"AAA": [undated]}, undated=True)
    assert np.isnat(loose.bars("AAA").known_at).all()


# ---------------------------------------------------------------------------- identities


def renamed() -> Snapshot:
    return make_snapshot(
        {"META": closes([("2018-01-02", 181.42)])},
        instruments=[
            make_instrument("META", symbol="META", name="Meta", valid_from="2022-06-09"),
            make_instrument("META", symbol="FB", name="Facebook, Inc.", valid_to="2022-06-09"),
        ],
    )


def test_a_symbol_is_found_only_while_it_was_in_use() -> None:
    snapshot = renamed()
    assert snapshot.resolve("FB", date(2018, 6, 29)) == "META"
    assert snapshot.resolve(" fb ", date(2022, 6, 8)) == "META"
    assert snapshot.resolve("META", date(2022, 6, 8)) is None
    assert snapshot.resolve("META", date(2022, 6, 9)) == "META"
    assert snapshot.resolve("FB", date(2022, 6, 9)) is None


def test_identities_come_oldest_first_and_one_holds_on_a_date() -> None:
    snapshot = renamed()
    assert [row.symbol for row in snapshot.identity_rows("META")] == ["FB", "META"]
    assert snapshot.identity_on("META", date(2018, 6, 29)).name == "Facebook, Inc."
    assert snapshot.identity_on("META", date(2022, 6, 9)).name == "Meta"


def test_a_date_without_any_identity_is_an_error() -> None:
    snapshot = make_snapshot(
        {"AAA": closes([("2024-03-18", 1)])},
        instruments=[make_instrument("AAA", valid_from="2010-01-01")],
    )
    with pytest.raises(DataError, match="AAA has no identity on 2009-12-31"):
        snapshot.identity_on("AAA", date(2009, 12, 31))


@pytest.mark.parametrize("second", ["2021-12-31", None])
def test_ranges_that_overlap_are_refused(second: str | None) -> None:
    ranges = [
        make_instrument("AAA", symbol="OLD", valid_to="2022-01-01"),
        make_instrument("AAA", symbol="NEW", valid_from=second),
    ]
    with pytest.raises(DataError, match="ranges of AAA overlap"):
        make_snapshot({"AAA": closes([("2024-03-18", 1)])}, instruments=ranges)


# -------------------------------------------------------------------------------- tables


def test_an_absent_table_gives_its_reason() -> None:
    snapshot = make_snapshot(
        {"AAA": closes([("2024-03-18", 1)])}, absent={"news": "the source keeps 30 days"}
    )
    assert snapshot.absent_reason("news") == "the source keeps 30 days"
    assert snapshot.absent_reason("bars") is None
    assert snapshot.absent_reason("macro") == "this snapshot was captured without it"
    with pytest.raises(TableAbsent, match=r"table news .* the source keeps 30 days") as caught:
        snapshot.table("news")
    assert (caught.value.table, caught.value.reason) == ("news", "the source keeps 30 days")


def test_a_table_is_there_or_absent_and_not_both() -> None:
    with pytest.raises(DataError, match="bars are given and named absent"):
        make_snapshot({"AAA": closes([("2024-03-18", 1)])}, absent={"bars": "why"})


def test_a_name_that_is_no_table_is_an_error() -> None:
    with pytest.raises(DataError, match="'prices' is no table"):
        small().table("prices")
    with pytest.raises(DataError, match="'prices' is no table"):
        make_snapshot({"AAA": closes([("2024-03-18", 1)])}, absent={"prices": "why"})


def test_a_snapshot_without_a_core_table_is_none_and_no_actions_means_none_happened() -> None:
    tables = make_tables({"AAA": closes([("2024-03-18", 1)])})
    del tables["actions"]
    snapshot = Snapshot.from_tables(tables, declared_start=START, declared_end=END)
    assert len(snapshot.actions("AAA")) == 0
    del tables["bars"]
    with pytest.raises(DataError, match="core tables bars are missing"):
        Snapshot.from_tables(tables, declared_start=START, declared_end=END)


def test_replacing_a_table_leaves_the_original_as_it_was() -> None:
    snapshot = small()
    other = make_tables({"AAA": closes([("2024-03-18", 7)]), "^GSPC": ()})["bars"]
    changed = snapshot.replace_tables(bars=other)
    assert changed.bars("AAA").close.tolist() == [7.0]
    assert snapshot.bars("AAA").close.tolist() == [100.0, 25.5]
    assert (changed.start, changed.end, changed.name) == (START, END, snapshot.name)
    assert changed.id != snapshot.id


def test_an_absent_table_can_be_put_in() -> None:
    snapshot = small().replace_tables(macro=TABLES["macro"].empty())
    assert snapshot.absent_reason("macro") is None
    assert snapshot.table("macro").num_rows == 0


# ------------------------------------------------------------------------------------ id


def test_the_id_does_not_change_with_the_order_or_chunks_of_rows() -> None:
    tables = make_tables(
        {"AAA": closes([("2024-03-18", 1), ("2024-03-19", 2)]), "BBB": closes([("2024-03-18", 3)])}
    )
    bars = tables["bars"]
    mixed = pa.concat_tables([bars.slice(2, 1), bars.slice(1, 1), bars.slice(0, 1)])
    known = logical_id(tables, SCHEMA_VERSION, START, END)
    assert logical_id({**tables, "bars": mixed}, SCHEMA_VERSION, START, END) == known
    assert len(known) == 64


def test_the_id_does_not_change_with_the_sign_of_zero_or_the_width_of_text() -> None:
    tables = make_tables({"AAA": closes([("2024-03-18", 1)])})
    bars = tables["bars"]
    wide = bars.set_column(8, "currency", bars.column("currency").cast(pa.large_string()))
    minus = tables["actions"]
    assert logical_id(tables, 1, START, END) == logical_id(
        {**tables, "bars": wide, "actions": minus}, 1, START, END
    )
    zero, negative = (
        make_tables({"AAA": [make_bar("AAA", "2024-03-18", 1, low=value)]})["bars"]
        for value in (0.0, -0.0)
    )
    assert logical_id({"bars": zero}, 1, START, END) == logical_id(
        {"bars": negative}, 1, START, END
    )


def test_the_id_changes_with_every_thing_that_a_reader_can_see() -> None:
    tables = make_tables(
        {"AAA": closes([("2024-03-18", 1), ("2024-03-19", 2)])},
        actions=[dividend("AAA", "2024-03-19", 0.5)],
    )
    other_close = make_tables({"AAA": closes([("2024-03-18", 1), ("2024-03-19", 2.0000001)])})
    other_day = make_tables({"AAA": closes([("2024-03-18", 1), ("2024-03-20", 2)])})
    other_name = make_tables(
        {"AAA": closes([("2024-03-18", 1)])}, instruments=[make_instrument("AAA", name="Other")]
    )
    ids = [
        logical_id(tables, 1, START, END),
        logical_id({**tables, "bars": other_close["bars"]}, 1, START, END),
        logical_id({**tables, "bars": other_day["bars"]}, 1, START, END),
        logical_id({**tables, "instruments": other_name["instruments"]}, 1, START, END),
        logical_id({**tables, "actions": TABLES["actions"].empty()}, 1, START, END),
        logical_id({**tables, "macro": TABLES["macro"].empty()}, 1, START, END),
        logical_id(tables, 2, START, END),
        logical_id(tables, 1, date(2024, 3, 17), END),
        logical_id(tables, 1, START, date(2024, 3, 29)),
        logical_id(tables, 1, START, END, absent={"news": "why"}),
    ]
    assert len(set(ids)) == len(ids)


def test_text_that_moves_between_columns_or_rows_changes_the_id() -> None:
    def with_names(first: str, second: str) -> str:
        tables = make_tables(
            {"AAA": closes([("2024-03-18", 1)])},
            instruments=[
                make_instrument("AAA", name=first, exchange=second),
                make_instrument("BBB", name=second, exchange=first),
            ],
        )
        return logical_id(tables, 1, START, END)

    assert len({with_names("ab", "c"), with_names("a", "bc"), with_names("c", "ab")}) == 3


# -------------------------------------------------------------------- find, open, travel


def stored(folder: Path, price: float = 100) -> Snapshot:
    return write_snapshot(
        folder,
        make_tables({"AAA": closes([("2024-03-18", price)])}),
        name=folder.name,
        declared_start=date(2024, 3, 18),
        declared_end=date(2024, 3, 18),
        sources=[
            Source(
                name="hand",
                vendor="test",
                item="closes",
                tables=("instruments", "bars", "actions"),
                licence="none",
                captured_at=CAPTURED,
            )
        ],
        absent={},
        captured_at=CAPTURED,
    )


def test_a_snapshot_is_opened_by_name_or_by_folder(tmp_path: Path) -> None:
    written = stored(tmp_path / "snapshots" / "mine")
    by_name = open_snapshot("mine", tmp_path)
    by_folder = open_snapshot(tmp_path / "snapshots" / "mine", tmp_path / "elsewhere")
    assert written.id == by_name.id == by_folder.id
    assert by_name.path == (tmp_path / "snapshots" / "mine").resolve()
    assert find_snapshot("mine", tmp_path) == tmp_path / "snapshots" / "mine"
    assert "mine" in snapshot_names(tmp_path)


def test_the_demo_snapshot_is_found_from_anywhere(tmp_path: Path) -> None:
    assert open_snapshot("us-2013-2018", tmp_path).name == "us-2013-2018"
    assert "us-2013-2018" in snapshot_names(tmp_path)


def test_a_snapshot_of_the_workspace_comes_before_the_packaged_one(tmp_path: Path) -> None:
    mine = stored(tmp_path / "snapshots" / "us-2013-2018")
    assert open_snapshot("us-2013-2018", tmp_path).id == mine.id


@pytest.mark.parametrize("wanted", ["nowhere", "../../etc/passwd", "..", "", "/etc", "a b"])
def test_a_missing_snapshot_is_answered_with_what_is_there(tmp_path: Path, wanted: str) -> None:
    stored(tmp_path / "snapshots" / "mine")
    with pytest.raises(DataError, match="is not there: found mine, us-2013-2018"):
        open_snapshot(wanted, tmp_path)


def test_an_opened_snapshot_travels_as_its_path_and_id(tmp_path: Path) -> None:
    opened = stored(tmp_path / "mine")
    payload = pickle.dumps(opened)
    assert len(payload) < 1_000
    assert pickle.loads(payload).id == opened.id


def test_a_traveller_refuses_a_snapshot_that_was_replaced_meanwhile(tmp_path: Path) -> None:
    payload = pickle.dumps(stored(tmp_path / "mine"))
    stored(tmp_path / "mine", price=200)
    with pytest.raises(DataError, match="was replaced while it was in use"):
        pickle.loads(payload)


def test_a_snapshot_in_memory_travels_with_its_rows() -> None:
    snapshot = small()
    arrived = pickle.loads(pickle.dumps(snapshot))
    assert arrived.id == snapshot.id
    assert arrived.bars("AAA").close.tolist() == snapshot.bars("AAA").close.tolist()


def test_a_snapshot_in_memory_has_neither_folder_nor_manifest(tmp_path: Path) -> None:
    snapshot = small()
    assert snapshot.in_memory
    assert not stored(tmp_path / "mine").in_memory
    with pytest.raises(DataError, match="is in memory and has no folder"):
        _ = snapshot.path
    with pytest.raises(DataError, match="is in memory, without manifest"):
        _ = snapshot.manifest
