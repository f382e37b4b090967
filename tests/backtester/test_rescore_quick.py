"""What makes a score quick changes none: the small file of decisions, and publishing it alone."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from backtester.backtest import run
from backtester.book.policy import policy_named
from backtester.errors import DataError
from backtester.publication import rebuild_database
from backtester.rescore import score
from backtester.runs.folder import RunFolder, find_run
from backtester.runs.journal import read_ledger
from backtester.score.files import read_card, read_score, score_ids, scores_folder
from backtester.score.standing import STANDING_NAME, read_standing
from backtester.store.publishing import publish_score
from backtester.store.tables import TABLES
from tests.support.results import rows_of
from tests.support.workspaces import Workspace, make_workspace

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    workspace = make_workspace(tmp_path_factory.mktemp("recorded"))
    run(workspace.config(score_at_end=True))
    return workspace


@pytest.fixture
def place(recorded: Workspace, tmp_path: Path) -> Iterator[Path]:
    shutil.copytree(recorded.path, tmp_path / "w")
    return tmp_path / "w"


def scored(place: Path, **changes: Any) -> str:
    return score("latest", reports_dir=place / "reports", data_dir=place / "data", **changes)


def folder_of(place: Path) -> RunFolder:
    return find_run(place / "reports", "latest")


def database(place: Path) -> Mapping[str, list[str]]:
    """Return every row of every table, sorted."""
    path = place / "reports" / "results.duckdb"
    return {
        table.name: sorted(map(str, rows_of(path, f"SELECT * FROM {table.name}")))
        for table in TABLES
    }


def test_a_score_published_alone_leaves_what_a_rebuild_makes(place: Path) -> None:
    scored(place, policy=policy_named("long_short"))
    scored(place, horizon=2, horizons=(2, 4))
    scored(place, policy=policy_named("long_short"), again=True)
    alone = database(place)

    rebuild_database(place / "reports")

    assert alone == database(place)
    assert len(alone["scores"]) == 3


def test_decisions_of_the_small_file_make_the_score_that_the_journal_makes(place: Path) -> None:
    first = scored(place, policy=policy_named("long_short"))
    folder = folder_of(place)
    kept = (scores_folder(folder.path) / first / "metrics.parquet").read_bytes()
    assert (scores_folder(folder.path) / STANDING_NAME).is_file()

    # The first one read the journal, this one the small file.
    assert scored(place, policy=policy_named("long_short"), again=True) == first

    assert (scores_folder(folder.path) / first / "metrics.parquet").read_bytes() == kept


def test_the_small_file_holds_the_cells_of_the_journal(place: Path) -> None:
    scored(place, policy=policy_named("long_short"))
    folder = folder_of(place)
    cells = sorted(read_ledger(folder.journal_path).cells.items())

    root = folder.read_manifest().results_root or ""
    known = read_standing(scores_folder(folder.path), folder.journal_path, root)

    assert known is not None
    assert [(one.key, one.status, one.rating, one.scored) for one in known] == [
        (key, cell.status, cell.rating, cell.scored) for key, cell in cells
    ]


def test_a_small_file_that_is_not_of_this_journal_is_not_believed(place: Path) -> None:
    scored(place, policy=policy_named("long_short"))
    folder = folder_of(place)
    path, root = scores_folder(folder.path) / STANDING_NAME, folder.read_manifest().results_root
    whole = path.read_bytes()

    assert read_standing(path.parent, folder.journal_path, "f" * 64) is None
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert read_standing(path.parent, folder.journal_path, root or "") is None
    path.write_bytes(whole)
    # Whole records are gone: the journal is read again, and says so.
    lines = folder.journal_path.read_bytes().splitlines(keepends=True)
    folder.journal_path.write_bytes(b"".join(lines[:-3]))
    with pytest.raises(DataError, match="records are missing or were changed"):
        scored(place, policy=policy_named("equal_slots"))


def test_a_database_without_the_run_gets_all_of_it(place: Path) -> None:
    (place / "reports" / "results.duckdb").unlink()

    scored(place, policy=policy_named("long_short"))

    found = database(place)
    assert len(found["scores"]) == 2
    assert found["cells"]


def test_a_score_is_not_published_alone_where_another_one_is_missing(place: Path) -> None:
    scored(place, policy=policy_named("long_short"))
    path, folder = place / "reports" / "results.duckdb", folder_of(place)
    root = folder.read_manifest().results_root or ""
    cards = [read_card(folder.path, name) for name in score_ids(folder.path)]
    new = next(card.score_id for card in cards if card.score_id != "default")
    stored = read_score(folder.path, new)

    assert publish_score(path, folder.run_id, root, score=stored, cards=cards)
    assert not publish_score(path, folder.run_id, "f" * 64, score=stored, cards=cards)
    assert not publish_score(path, folder.run_id, root, score=stored, cards=[stored.card])
    own = read_score(folder.path, "default")
    assert not publish_score(path, folder.run_id, root, score=own, cards=cards)
