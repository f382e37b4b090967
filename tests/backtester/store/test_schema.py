"""The document of the schema and the tables themselves are the same thing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from backtester.errors import UsageError
from backtester.records import RATINGS
from backtester.store.publishing import schema_document, schema_markdown
from backtester.store.schema import (
    SCHEMA_EDITION,
    edition_of,
    ordered_select,
    schema_fingerprint,
    stable_columns,
)
from backtester.store.tables import TABLES
from backtester.store.terms import ENUMS, Table, View
from backtester.store.views import VIEWS
from tests.support.results import make_run, published, rows_of

RELATIONS = (*TABLES, *VIEWS)

EDITION = "1-e65149bd8e77b9de"
"""Tables and views of this edition; whoever changes them raises `SCHEMA_EDITION` and this."""


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return published(tmp_path_factory.mktemp("schema") / "results.duckdb", make_run())


def test_the_edition_tells_an_older_database_from_a_newer_one() -> None:
    assert edition_of(schema_fingerprint()) == SCHEMA_EDITION
    # A fingerprint alone is from before there were editions.
    assert edition_of("0123456789abcdef") == 0
    assert edition_of("12-0123456789abcdef") == 12


def test_a_change_of_tables_or_views_raises_the_edition() -> None:
    assert schema_fingerprint() == EDITION, "raise SCHEMA_EDITION, then write this one down"


def _type_in_words(name: str) -> str:
    words = ENUMS.get(name)
    return f"ENUM({', '.join(repr(word) for word in words)})" if words else name


@pytest.mark.parametrize("relation", RELATIONS, ids=lambda relation: relation.name)
def test_each_column_is_there_with_its_type_and_in_its_order(
    database: Path, relation: Table | View
) -> None:
    found = rows_of(database, f"DESCRIBE {relation.name}")
    assert [(row["column_name"], row["column_type"]) for row in found] == [
        (column.name, _type_in_words(column.type)) for column in relation.columns
    ]


def test_the_database_holds_what_is_described_and_no_more(database: Path) -> None:
    query = (
        "SELECT table_name, table_type FROM information_schema.tables "
        "WHERE table_catalog = 'results' ORDER BY table_name"
    )
    expected = [(table.name, "BASE TABLE") for table in TABLES]
    expected += [(view.name, "VIEW") for view in VIEWS]
    assert [tuple(row.values()) for row in rows_of(database, query)] == sorted(expected)


def test_a_column_may_be_null_if_and_only_if_the_document_says_when(database: Path) -> None:
    for table in TABLES:
        found = rows_of(database, f"DESCRIBE {table.name}")
        for row, column in zip(found, table.columns, strict=True):
            assert (row["null"] == "YES") == bool(column.null), f"{table.name}.{column.name}"


@pytest.mark.parametrize("relation", RELATIONS, ids=lambda relation: relation.name)
def test_the_key_names_a_row(database: Path, relation: Table | View) -> None:
    keys = ", ".join(relation.key)
    twice = f"SELECT {keys} FROM {relation.name} GROUP BY {keys} HAVING count(*) > 1"
    assert rows_of(database, twice) == []
    names = {column.name for column in relation.columns}
    assert set(relation.key) <= names


def test_what_a_relation_is_for_can_be_asked_of_the_database(database: Path) -> None:
    comments = {
        row["name"]: row["comment"]
        for row in rows_of(
            database,
            "SELECT table_name AS name, comment FROM duckdb_tables() UNION ALL "
            "SELECT view_name, comment FROM duckdb_views() WHERE NOT internal",
        )
    }
    assert all(comments[relation.name] for relation in RELATIONS)
    assert "Did what was rated higher earn more?" in comments["alpha_by_rating"]


def test_every_column_says_what_it_means_and_every_number_has_a_unit() -> None:
    for relation in RELATIONS:
        for column in relation.columns:
            assert column.meaning.endswith("."), f"{relation.name}.{column.name}"
            if column.type == "DOUBLE":
                assert column.unit, f"{relation.name}.{column.name} has no unit"
            if column.type == "TIMESTAMP":
                assert column.unit == "UTC"


def test_the_document_names_every_table_view_and_column() -> None:
    text, markdown = schema_document(), schema_markdown()
    for relation in RELATIONS:
        assert relation.name in text
        assert f"`{relation.name}`" in markdown
        for column in relation.columns:
            assert f" {column.name} " in text
            assert f"| {column.name}" in markdown
    for view in VIEWS:
        assert view.question in text
        assert view.question in markdown


def test_a_view_of_every_score_is_told_shortly_and_has_the_columns_of_the_plain_one() -> None:
    text = schema_document()
    assert (
        "VIEW alpha_by_rating_all: Did what was rated higher earn more? As alpha_by_rating, for "
        "every score: name one, or group by score_id.\n"
        "  one row for each run_id, score_id, rating\n"
        "  columns: those of alpha_by_rating\n" in text
    )
    assert "'default' is the run's own; views show the run's own score" in text
    plain = {view.name: view for view in VIEWS if not view.like}
    twins = [view for view in VIEWS if view.like]
    assert len(twins) == 14
    for view in twins:
        assert (view.name, view.columns) == (f"{view.like}_all", plain[view.like].columns)


def test_the_document_as_json_reads_back() -> None:
    document = json.loads(schema_document(as_json=True))
    assert [table["name"] for table in document["tables"]] == [table.name for table in TABLES]
    assert [view["name"] for view in document["views"]] == [view.name for view in VIEWS]
    cells = next(table for table in document["tables"] if table["name"] == "cells")
    cutoff = next(column for column in cells["columns"] if column["name"] == "cutoff")
    assert cutoff == {
        "name": "cutoff",
        "type": "TIMESTAMP",
        "unit": "UTC",
        "meaning": "Instant up to which the world was known.",
        "null": None,
        "repeats": True,
    }


def test_ratings_are_ordered_from_sell_to_buy_and_unread_comes_last() -> None:
    assert ENUMS["rating"] == RATINGS == ("Sell", "Underweight", "Hold", "Overweight", "Buy")
    assert ENUMS["rating_row"] == (*RATINGS, "unread")


def test_what_the_clock_the_cache_or_the_machine_change_is_marked() -> None:
    changing = {
        (table.name, column.name)
        for table in TABLES
        for column in table.columns
        if not column.repeats
    }
    assert {("cells", "wall_s"), ("llm_calls", "hit"), ("llm_calls", "cost_usd")} <= changing
    calls = next(table for table in TABLES if table.name == "llm_calls")
    assert {"key", "reply_hash", "finish_reason"} <= set(stable_columns(calls))


@pytest.mark.parametrize("relation", RELATIONS, ids=lambda relation: relation.name)
def test_an_ordered_select_runs_with_all_and_with_stable_columns(
    database: Path, relation: Table | View
) -> None:
    everything = rows_of(database, ordered_select(relation))
    stable = rows_of(database, ordered_select(relation, stable_only=True))
    assert len(everything) == len(stable)


def test_the_document_says_which_number_is_which_rating() -> None:
    text = schema_document()
    assert text.count("Sell -2, Underweight -1, Hold 0, Overweight 1, Buy 2.") == 3
    assert "rating_rank, from -2 (Sell) over 0 (Hold) to 2 (Buy)" in text


@pytest.mark.parametrize("name", ["cells", "alpha_by_rating"])
def test_one_relation_alone_is_told_as_in_the_whole_document(name: str) -> None:
    text = schema_document(name=name)
    assert f"\n\n{text}" in schema_document()
    whole = json.loads(schema_document(as_json=True))
    (one,) = (r for r in (*whole["tables"], *whole["views"]) if r["name"] == name)
    assert json.loads(schema_document(name=name, as_json=True)) == one


def test_one_view_of_every_score_alone_lists_its_columns() -> None:
    own, every = schema_document(name="hit_rate"), schema_document(name="hit_rate_all")
    assert own.splitlines()[1:] == every.splitlines()[1:]
    with pytest.raises(UsageError, match="there is no table or view 'hit_rat'"):
        schema_document(name="hit_rat")
