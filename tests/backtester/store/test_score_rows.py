"""The line of a score in the results database: what its definition says, and its label."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from backtester.errors import DataError
from backtester.score.definition import ScoreDefinition, changed
from backtester.score.files import ADDED_UP, LIMIT, ScoreCard
from backtester.score.records import schema_of
from backtester.store import terms
from backtester.store.score_rows import score_tables
from backtester.store.score_tables import SCORE_TABLES, SCORES
from backtester.store.tables import RETURNS
from tests.support.definitions import OWN_SCORE


def card_of(definition: ScoreDefinition, document: dict[str, Any] | None = None) -> ScoreCard:
    return ScoreCard(
        format=1,
        score_id=definition.score_id,
        results_root="r" * 64,
        snapshot_name="small",
        definition=definition.document() if document is None else document,
        family="f",
        trial="t",
        known_trials=2,
        no_book=None,
        files={},
    )


def lines(*cards: ScoreCard) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = score_tables("run-a", [], cards=cards)["scores"].to_pylist()
    return found


def test_each_score_is_labelled_by_what_it_differs_by_from_the_runs_own() -> None:
    other = changed(OWN_SCORE, slots=3, fold="6M", last=date(2018, 6, 30))

    own, row = lines(card_of(OWN_SCORE), card_of(other))

    assert own["label"] == "the run's own"
    assert row["label"] == "slots 3, to 2018-06-30, fold 6M"
    assert (row["slots"], row["fold"], row["last_date"]) == (3, "6M", date(2018, 6, 30))
    assert (own["slots"], own["fold"], own["horizons"]) == (None, None, [1, 5, 20])
    assert (own["universe"], own["hold"], own["start_cash"]) == (["AAA", "BBB"], "carry", 1e6)


def test_without_the_runs_own_score_the_label_names_all_that_is_not_plain() -> None:
    (row,) = lines(card_of(changed(OWN_SCORE, slots=3)))

    assert row["label"].endswith("entry next_open, commission 1 bps, slippage 5 bps, slots 3")


@pytest.mark.parametrize(
    "document",
    [
        {"horizon": 5},
        {**OWN_SCORE.document(), "policy": "long_only"},
        {**OWN_SCORE.document(), "first": "x"},
    ],
)
def test_a_definition_that_is_none_is_damage_and_no_fault(document: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="score default: its definition is damaged or of another"):
        lines(card_of(OWN_SCORE, document))


def test_a_score_is_held_to_the_limits_of_the_database_before_it_is_stored() -> None:
    tables = [table for table in (RETURNS, *SCORE_TABLES) if table is not SCORES]
    assert LIMIT == terms.LIMIT
    assert dict(ADDED_UP) == {
        table.name: tuple(
            column.name
            for column in table.columns
            if column.unit in terms.SUMMED_UNITS and column.name in schema_of(table.name).names
        )
        for table in tables
    }
