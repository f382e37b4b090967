"""Which decisions a model may have known the outcome of."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest

from backtester.spending.knowledge import Training, knowledge_of, trainings
from tests.support.results import Call, published, rated, rows_of

CUTOFF = date(2018, 1, 12)
KNOWN = Training(model="openai/a", cutoff=CUTOFF, as_of="2026-11-01", source="its card")
UNKNOWN = Training(model="openai/b", cutoff=None)


def models(**cutoffs: str | None) -> dict[str, dict[str, str | None]]:
    return {
        tier: {
            "provider": "openai",
            "model": f"model-{tier}",
            "endpoint": None,
            "knowledge_cutoff": cutoff,
            "knowledge_as_of": "2026-11-01",
            "knowledge_source": "its card",
        }
        for tier, cutoff in cutoffs.items()
    }


@pytest.mark.parametrize(
    ("session", "known", "label"),
    [
        (date(2018, 1, 11), (KNOWN,), "before"),
        (date(2018, 1, 12), (KNOWN,), "before"),
        (date(2018, 1, 13), (KNOWN,), "after"),
        (date(2018, 1, 13), (KNOWN, UNKNOWN), "unknown"),
        (date(2018, 1, 12), (KNOWN, UNKNOWN), "before"),
        (date(2018, 1, 12), (UNKNOWN,), "unknown"),
        (date(2018, 1, 12), (), "after"),
    ],
)
def test_a_decision_is_labelled_by_the_models_that_may_have_known(
    session: date, known: tuple[Training, ...], label: str
) -> None:
    assert knowledge_of(session, known) == label


def test_the_sentence_counts_the_decisions_and_says_since_when_and_from_where_it_is_known() -> None:
    sessions = [date(2018, 1, 5), date(2018, 1, 12), date(2018, 1, 19)]
    assert KNOWN.words(sessions) == (
        "2 of 3 decisions lie on or before the knowledge cutoff 2018-01-12 of openai/a "
        "(as of 2026-11-01, source its card)"
    )
    assert KNOWN.words(sessions[:2]).startswith("all 2 decisions lie on or before")
    assert UNKNOWN.words(sessions).startswith("knowledge cutoff of openai/b unknown")


def test_a_rulebook_knows_nothing_and_an_old_manifest_says_nothing() -> None:
    old = {"quick": {"provider": "openai", "model": "a", "endpoint": None}}
    rules = {"quick": {"provider": "rulebook", "model": "rulebook-1", "endpoint": None}}
    assert trainings(old) == (Training(model="openai/a", cutoff=None),)
    assert trainings(rules) == ()


def test_alpha_can_be_split_by_it_in_sql(tmp_path: Path) -> None:
    calls = [
        Call(rating="Buy", ret=0.03, bench=0.01, session=date(2018, 1, 5)),
        Call(rating="Buy", ret=0.02, bench=0.01, session=date(2018, 1, 12)),
        Call(rating="Buy", ret=0.00, bench=0.01, session=date(2018, 1, 19)),
    ]
    document = rated("run-a", calls)
    manifest: dict[str, Any] = {**document.manifest, "models": models(quick="2018-01-12")}
    database = published(
        tmp_path / "results.duckdb", type(document)(**{**vars(document), "manifest": manifest})
    )
    assert rows_of(database, "SELECT session, knowledge FROM cells ORDER BY session") == [
        {"session": date(2018, 1, 5), "knowledge": "before"},
        {"session": date(2018, 1, 12), "knowledge": "before"},
        {"session": date(2018, 1, 19), "knowledge": "after"},
    ]
    split = rows_of(
        database,
        "SELECT knowledge, n, round(mean_alpha, 12) AS alpha FROM alpha_by_knowledge ORDER BY 1",
    )
    assert split == [
        {"knowledge": "before", "n": 2, "alpha": 0.015},
        {"knowledge": "after", "n": 1, "alpha": -0.01},
    ]
