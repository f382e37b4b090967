"""Every column of every table is changed in a future, by a rule that follows from the schema."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest

from backtester.errors import DataError
from backtester.leaks.poison import (
    CUT,
    MOVED,
    NAMES,
    REWRITTEN,
    Futures,
    Place,
    canaries_in,
    poisoned,
    rule_of,
)
from backtester.schema import TABLES, Column, TableSchema
from tests.support.leak_world import CUTOFF, DAYS, TODAY, WORLD, make_world
from tests.support.snapshots import closes, make_instrument, make_snapshot

FILLED: dict[pa.DataType, Any] = {
    pa.string(): "word",
    pa.float64(): 2.5,
    pa.int64(): 3,
    pa.bool_(): True,
    pa.date32(): date(2018, 1, 2),
    pa.timestamp("us", tz="UTC"): datetime(2018, 1, 2, 21, tzinfo=UTC),
}


def row_of(schema: TableSchema) -> pa.Table:
    """Make one row in which every column has a value."""
    return pa.Table.from_pylist(
        [{column.name: FILLED[column.type] for column in schema.columns}], schema=schema.arrow
    )


@pytest.mark.parametrize("name", TABLES)
def test_every_column_of_a_table_has_a_rule_and_changes_unless_it_names_the_row(name: str) -> None:
    schema = TABLES[name]
    before, after = row_of(schema), poisoned(schema, row_of(schema))

    for column in schema.columns:
        rule = rule_of(schema, column)
        old, new = before[column.name][0].as_py(), after[column.name][0].as_py()
        assert (old == new) is (rule == "kept")
        if rule == "canary":
            assert canaries_in(new) == (Place(table=name, column=column.name),)
            assert new.endswith(" word")


@pytest.mark.parametrize("name", TABLES)
def test_what_is_kept_is_a_key_an_instant_or_an_exception_with_a_reason(name: str) -> None:
    kept = {c.name for c in TABLES[name].columns if rule_of(TABLES[name], c) == "kept"}
    others = kept - set(TABLES[name].key) - {"known_at"}
    assert others == {
        "instruments": {
            "calendar", "currency", "asset_type", "basis", "valid_to", "first_session",
            "last_session",
        },
        "actions": {"denominator"},
        "social": {"platform"},
        "insider": {"form", "code"},
    }.get(name, set())  # fmt: skip


def test_a_new_column_is_poisoned_by_itself_and_one_without_a_rule_is_an_error() -> None:
    def with_column(kind: pa.DataType) -> TableSchema:
        extra = Column(name="fresh", type=kind, unit="something new")
        return replace(TABLES["news"], columns=(*TABLES["news"].columns, extra))

    changed = poisoned(with_column(pa.string()), row_of(with_column(pa.string())))
    assert changed["fresh"][0].as_py() == "FUTURE-CANARY.news.fresh word"
    changed = poisoned(with_column(pa.float64()), row_of(with_column(pa.float64())))
    assert changed["fresh"][0].as_py() == 25.0
    odd = with_column(pa.list_(pa.string()))
    with pytest.raises(DataError, match=r"column fresh of table news .* has no rule"):
        rule_of(odd, odd.columns[-1])


def test_a_null_text_is_planted_and_nothing_times_ten_is_something() -> None:
    schema = TABLES["insider"]
    row = {**row_of(schema).to_pylist()[0], "role": None, "price": None, "shares": 0.0}
    changed = poisoned(schema, pa.Table.from_pylist([row], schema=schema.arrow)).to_pylist()[0]
    assert changed["role"] == "FUTURE-CANARY.insider.role "
    assert changed["price"] is None
    assert changed["shares"] == 1.0


# ------------------------------------------------------------------------------------ worlds


def later(table: pa.Table) -> list[dict[str, Any]]:
    return [row for row in table.to_pylist() if row["known_at"] > CUTOFF]


def earlier(table: pa.Table) -> list[dict[str, Any]]:
    return [row for row in table.to_pylist() if row["known_at"] <= CUTOFF]


@pytest.mark.parametrize("way", [REWRITTEN, CUT], ids=lambda way: way.name)
def test_no_earlier_row_is_touched_and_no_later_one_is_left_as_it_was(way: Any) -> None:
    world = Futures(WORLD).world(way, CUTOFF, TODAY)

    for name in (name for name, table in TABLES.items() if table.dated):
        true, changed = WORLD.table(name), world.snapshot.table(name)
        assert earlier(changed) == earlier(true)
        assert later(true)
        assert world.planted[name].rows == len(later(true))
        assert not [row for row in later(changed) if row in later(true)]
        if way == CUT:
            assert later(changed) == []


@pytest.mark.parametrize("way", [REWRITTEN, CUT], ids=lambda way: way.name)
def test_a_row_without_a_date_counts_as_a_later_one(way: Any) -> None:
    rows = WORLD.table("news").slice(0, 1)
    undated = rows.set_column(
        rows.schema.get_field_index("known_at"),
        rows.schema.field("known_at"),
        pa.nulls(1, rows.schema.field("known_at").type),
    )
    world = Futures(WORLD.replace_tables(undated=True, news=undated)).world(way, CUTOFF, TODAY)

    titles = world.snapshot.table("news").column("title").to_pylist()
    assert [str(title).partition(" ")[0] for title in titles] == (
        [] if way == CUT else ["FUTURE-CANARY.news.title"]
    )


def test_a_later_price_is_ten_times_as_high_and_its_day_stays() -> None:
    changed = Futures(WORLD).world(REWRITTEN, CUTOFF, TODAY).snapshot.bars("AAA")
    true = WORLD.bars("AAA")
    assert changed.close[40] == true.close[40] == 140.5
    assert changed.close[41] == 1415.0
    assert changed.sessions.tolist() == true.sessions.tolist()


def test_what_is_known_gets_a_later_version_right_after_the_cutoff() -> None:
    changed = Futures(WORLD).world(REWRITTEN, CUTOFF, TODAY).snapshot

    (restated,) = [
        row
        for row in later(changed.table("statements"))
        if row["period_end"] == date(2017, 12, 31) and row["value"] == 5000.0
    ]
    assert (restated["known_at"] - CUTOFF).microseconds == 1
    assert restated["accession"].startswith("FUTURE-CANARY.statements.accession")
    vintages = [row["value"] for row in later(changed.table("macro"))]
    assert 2479.0 in vintages
    assert [row["probability"] for row in later(changed.table("prediction_markets"))] == [6.0, 10.0]
    splits = [
        (row["ex_session"], row["numerator"], row["denominator"])
        for row in later(changed.table("actions"))
        if row["instrument"] == "AAA" and row["kind"] == "split"
    ]
    # One right after the cutoff, and the true one with another ratio.
    assert splits == [(DAYS[41], 2, 1), (DAYS[50], 50, 1)]


def test_later_names_are_canaries_or_gone_and_no_end_of_trading_is_known() -> None:
    listed = make_snapshot(
        {"AAA": closes((day, 100.0) for day in DAYS)},
        instruments=[make_instrument("AAA", last_session=DAYS[-1], valid_to=None)],
    )
    assert Futures(listed).world(CUT, CUTOFF, TODAY).snapshot.identity_rows("AAA")[
        0
    ].last_session is None  # fmt: skip

    old, new = Futures(WORLD).world(REWRITTEN, CUTOFF, TODAY).snapshot.identity_rows("AAA")
    assert (old.name, old.valid_to) == ("Alpha Inc.", DAYS[45])
    assert old.last_session == DAYS[41]
    assert new.name == "FUTURE-CANARY.instruments.name Beta Corp."
    (only,) = Futures(WORLD).world(CUT, CUTOFF, TODAY).snapshot.identity_rows("AAA")
    assert (only.name, only.valid_to, only.last_session) == ("Alpha Inc.", None, None)


def test_an_instrument_that_is_still_to_be_listed_can_be_asked_for_in_a_cut_world() -> None:
    snapshot = make_snapshot(
        {"AAA": closes((day, 1.0) for day in DAYS), "NEW": closes((day, 1.0) for day in DAYS[50:])},
        instruments=[make_instrument("NEW", valid_from=DAYS[50])],
    )
    (row,) = Futures(snapshot).world(CUT, CUTOFF, TODAY).snapshot.identity_rows("NEW")
    assert row.symbol == "FUTURE-CANARY.instruments.symbol NEW"
    assert row.valid_from == DAYS[50]


def test_a_cut_world_ends_at_the_session_and_a_moved_clock_changes_no_row() -> None:
    futures = Futures(WORLD)
    assert futures.world(CUT, CUTOFF, TODAY).snapshot.end == TODAY
    assert futures.world(REWRITTEN, CUTOFF, TODAY).snapshot.end == WORLD.end
    assert futures.world(MOVED, CUTOFF, TODAY).snapshot is WORLD


def test_one_table_alone_can_be_changed() -> None:
    world = Futures(WORLD).world(REWRITTEN, CUTOFF, TODAY, only="news")
    assert tuple(world.planted) == ("news",)
    assert world.snapshot.table("bars").equals(WORLD.table("bars"))
    assert not world.snapshot.table("news").equals(WORLD.table("news"))


def test_a_reason_for_one_instrument_stays_in_every_world() -> None:
    absent = {"statements/GAP": "not filed with this source"}
    tables = {name: WORLD.table(name) for name in TABLES}
    snapshot = type(WORLD).from_tables(
        tables, declared_start=WORLD.start, declared_end=WORLD.end, absent=absent
    )
    for way in (REWRITTEN, CUT):
        world = Futures(snapshot).world(way, CUTOFF, TODAY).snapshot
        assert world.absent_reason("statements", "GAP") == "not filed with this source"


def test_the_fixture_has_rows_of_every_table_on_both_sides() -> None:
    snapshot = make_world()
    for name in (name for name in TABLES if name != NAMES):
        assert earlier(snapshot.table(name))
        assert later(snapshot.table(name))
