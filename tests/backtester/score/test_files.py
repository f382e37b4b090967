"""A score lies on the disk whole or not at all, and damage is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from backtester.errors import DataError, UsageError
from backtester.score.files import (
    SCORE_FORMAT,
    NewerScore,
    ScoreCard,
    checked_tables,
    read_card,
    read_score,
    score_ids,
    scores_folder,
    stored_cards,
    stored_scores,
    write_score,
)
from backtester.score.records import EventRow, MetricRow, table_of

ROOT = "r" * 64


def put(folder: Path, card: ScoreCard, rows: dict[str, list[Any]]) -> Path:
    write_score(folder, card, checked_tables(card.score_id, rows))
    return scores_folder(folder) / card.score_id


def make_card(score_id: str = "default", *, root: str = ROOT) -> ScoreCard:
    return ScoreCard(
        format=SCORE_FORMAT,
        score_id=score_id,
        results_root=root,
        snapshot_name="small",
        definition={"horizon": 5},
        family="f",
        trial="t",
        known_trials=1,
        no_book=None,
        files={},
    )


def event(mean: float | None = 0.01) -> EventRow:
    return EventRow(
        rating="Buy",
        session_offset=1,
        n=1,
        mean_excess=mean,
        mean_path=mean,
        stddev_path=None,
        reason=None,
    )


def test_what_was_written_reads_back(tmp_path: Path) -> None:
    put(tmp_path, make_card(), {"event_study": [event()]})

    found = read_score(tmp_path, "default")

    assert found.tables["event_study"].to_pylist() == table_of("event_study", [event()]).to_pylist()
    assert found.tables["orders"].num_rows == 0
    assert set(found.card.files) == set(found.tables)


def test_a_second_writing_takes_the_place_of_the_first(tmp_path: Path) -> None:
    put(tmp_path, make_card(), {"event_study": [event(), event(0.02)]})
    put(tmp_path, make_card(), {"event_study": [event()]})

    assert read_score(tmp_path, "default").tables["event_study"].num_rows == 1
    assert [path.name for path in scores_folder(tmp_path).iterdir()] == ["default"]


def test_what_a_killed_writer_left_is_no_score_and_goes(tmp_path: Path) -> None:
    left = scores_folder(tmp_path) / ".default.new"
    left.mkdir(parents=True)
    (left / "definition.json").write_text("{}")

    assert score_ids(tmp_path) == ()
    put(tmp_path, make_card(), {})
    assert score_ids(tmp_path) == ("default",)
    assert not left.exists()


@pytest.mark.parametrize("name", ["metrics.parquet", "definition.json"])
def test_a_changed_file_is_damage(tmp_path: Path, name: str) -> None:
    folder = put(tmp_path, make_card(), {})
    (folder / name).write_bytes(b"{}")

    with pytest.raises(DataError, match=r"damaged.*score again"):
        read_score(tmp_path, "default")


@pytest.mark.parametrize("change", [{"known_trials": 2}, {"trial": ""}, {"sha256": None}])
def test_a_changed_card_is_damage(tmp_path: Path, change: dict[str, Any]) -> None:
    folder = put(tmp_path, make_card(), {})
    path = folder / "definition.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))

    with pytest.raises(DataError, match=r"its hash is another.*score again"):
        read_score(tmp_path, "default")


def test_a_card_of_a_newer_release_is_no_damage_to_be_removed(tmp_path: Path) -> None:
    place = put(tmp_path, make_card(), {}) / "definition.json"
    found = {**json.loads(place.read_text()), "format": SCORE_FORMAT + 1, "new": 1}
    place.write_text(json.dumps(found))

    with pytest.raises(NewerScore, match="newer release") as refused:
        read_card(tmp_path, "default")

    assert "remove" not in str(refused.value)


def test_a_score_of_another_run_is_none_of_this_one(tmp_path: Path) -> None:
    card = make_card().model_copy(update={"definition": {"run_id": "run-b"}})
    put(tmp_path, card, {})

    with pytest.raises(DataError, match="is a score of run run-b, not of"):
        read_score(tmp_path, "default")


def test_a_score_whose_writer_was_killed_between_two_names_is_brought_back(tmp_path: Path) -> None:
    folder = put(tmp_path, make_card(), {})
    folder.replace(folder.with_name(".default.old"))

    assert score_ids(tmp_path) == ("default",)
    assert read_score(tmp_path, "default").score_id == "default"


def test_a_file_that_is_gone_is_damage(tmp_path: Path) -> None:
    folder = put(tmp_path, make_card(), {})
    (folder / "orders.parquet").unlink()

    with pytest.raises(DataError, match="cannot be read"):
        read_score(tmp_path, "default")


def test_scores_of_other_decisions_are_left_out(tmp_path: Path) -> None:
    put(tmp_path, make_card("default"), {})
    put(tmp_path, make_card("older", root="o" * 64), {})

    assert [score.score_id for score in stored_scores(tmp_path, ROOT).whole] == ["default"]
    assert [card.score_id for card in stored_cards(tmp_path, ROOT).whole] == ["default"]
    assert stored_scores(tmp_path, None).whole == ()


def test_a_damaged_score_is_named_and_hides_no_other(tmp_path: Path) -> None:
    for name in ("default", "equal-slots", "long-short"):
        put(tmp_path, make_card(name), {})
    place = scores_folder(tmp_path)
    (place / "default" / "equity.parquet").write_bytes(b"nothing")
    (place / "long-short" / "definition.json").write_text("{}")

    scores, cards = stored_scores(tmp_path, ROOT), stored_cards(tmp_path, ROOT)

    assert [score.score_id for score in scores.whole] == ["equal-slots"]
    assert ["equity.parquet is damaged" in line for line in scores.damaged] == [True, False]
    assert "long-short" in scores.damaged[1]
    # A card says nothing of its files.
    assert [card.score_id for card in cards.whole] == ["default", "equal-slots"]
    assert cards.damaged == scores.damaged[1:]


def test_a_card_that_changes_on_the_disk_is_read_again(tmp_path: Path) -> None:
    place = put(tmp_path, make_card(), {}) / "definition.json"
    assert read_card(tmp_path, "default").score_id == "default"
    place.write_text("{}")

    with pytest.raises(DataError, match="damaged"):
        read_card(tmp_path, "default")


def test_a_card_whose_format_was_lowered_is_damage(tmp_path: Path) -> None:
    card = make_card().model_copy(update={"books": 1})
    place = put(tmp_path, card, {}) / "definition.json"
    found = json.loads(place.read_text())
    place.write_text(json.dumps({**found, "format": 2, "sha256": None, "known_trials": 1}))

    with pytest.raises(DataError, match="its hash is another"):
        read_card(tmp_path, "default")


@pytest.mark.parametrize("score_id", ["../x", "", "A", "a/b", ".hidden"])
def test_a_name_that_could_be_a_path_is_refused(tmp_path: Path, score_id: str) -> None:
    with pytest.raises(UsageError, match="no name of a score"):
        put(tmp_path, make_card(score_id), {})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_number_that_is_none_is_refused(value: float) -> None:
    row = MetricRow(subject="decisions", metric="x", value=value, unit="ratio", n=1)
    with pytest.raises(DataError, match="finite"):
        table_of("metrics", [row])


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    row = MetricRow(
        subject="decisions", metric="x", value=None, unit="ratio", n=0, reason="no_rows"
    )
    tables = checked_tables("default", {"metrics": [row], "event_study": []})

    written = write_score(tmp_path, make_card(), tables)

    read = read_score(tmp_path, "default")
    assert read.card == written.card
    assert set(read.tables) == set(written.tables)
    assert all(read.tables[name].equals(table) for name, table in written.tables.items())
