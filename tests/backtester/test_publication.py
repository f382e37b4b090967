"""The database heals: it holds every run that reads, and says what does not."""

from __future__ import annotations

import multiprocessing
import shutil
import threading
from pathlib import Path
from typing import Any

import duckdb
import pytest

from backtester import cli
from backtester.backtest import run
from backtester.book.policy import policy_named
from backtester.errors import DataError
from backtester.publication import rebuild_database
from backtester.rescore import rescore, score
from backtester.runs.folder import find_run
from backtester.score.files import score_ids, scores_folder
from backtester.snapshots.snapshot import open_snapshot
from backtester.store.publishing import published_runs
from tests.support.results import rows_of
from tests.support.workspaces import Workspace, make_workspace

pytestmark = pytest.mark.slow

BOTH = {"score_at_end": True, "end": "2018-01-12", "tickers": ("AAA",)}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """Return a workspace with two scored runs."""
    workspace = make_workspace(tmp_path_factory.mktemp("recorded"))
    first, second = (run(workspace.config(**BOTH, horizon=horizon)) for horizon in (3, 2))
    return workspace.path, first.run_id, second.run_id


@pytest.fixture
def place(recorded: tuple[Path, str, str], tmp_path: Path) -> Path:
    shutil.copytree(recorded[0], tmp_path / "w")
    return tmp_path / "w"


def database(place: Path) -> Path:
    return place / "reports" / "results.duckdb"


def scored(place: Path, name: str, **changes: Any) -> str:
    folders = {"reports_dir": place / "reports", "data_dir": place / "data"}
    return score(name, policy=policy_named("long_short"), **folders, **changes)


def told(place: Path, *words: str) -> int:
    data = () if words[0] == "rebuild" else ("--data-dir", str(place / "data"))
    return cli.run([*words, *data, "--reports-dir", str(place / "reports")])


def stamp(place: Path, schema: str) -> None:
    """Make the database one of another release."""
    with duckdb.connect(str(database(place))) as connection:
        connection.execute(f"CREATE OR REPLACE MACRO results_schema() AS '{schema}'")


@pytest.mark.parametrize("lost", ["deleted", "older"])
def test_a_score_brings_back_every_run_of_a_database_that_is_gone_or_old(
    place: Path, recorded: tuple[Path, str, str], capsys: pytest.CaptureFixture[str], lost: str
) -> None:
    if lost == "deleted":
        database(place).unlink()
    else:
        stamp(place, "0123456789abcdef")

    assert told(place, "score", recorded[1], "--policy", "long_short") == 0

    assert set(published_runs(database(place))) == set(recorded[1:])
    assert len(rows_of(database(place), "SELECT * FROM scores")) == 3
    assert "from the journals of 2 runs" in capsys.readouterr().err


def test_a_run_and_an_import_bring_back_every_run(
    place: Path, recorded: tuple[Path, str, str], tmp_path: Path
) -> None:
    database(place).unlink()
    decisions = tmp_path / "decisions.csv"
    decisions.write_text("ticker,date,rating\nAAA,2018-01-05,Buy\n")

    words = ("--snapshot", "small", "--benchmark", "^GSPC")
    assert told(place, "import", str(decisions), *words) == 0
    assert len(published_runs(database(place))) == 3
    database(place).unlink()
    # A finished run is found, and what is missing comes with it.
    run(Workspace(path=place, snapshot=open_snapshot("small", place / "data")).config(**BOTH))

    assert len(published_runs(database(place))) == 3


def test_runs_that_a_database_lacks_are_told_in_one_line(
    place: Path, recorded: tuple[Path, str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    aside = place / "aside"
    (place / "reports" / recorded[2]).rename(aside)
    rebuild_database(place / "reports")
    aside.rename(place / "reports" / recorded[2])

    assert told(place, "score", recorded[1], "--policy", "long_short") == 0

    error = capsys.readouterr().err
    assert f"1 run is not in {database(place)} ({recorded[2]})" in error
    assert "`backtester rebuild`" in error
    assert error.count("\n") == 1
    rebuild_database(place / "reports")
    assert told(place, "score", recorded[1], "--policy", "long_short") == 0
    assert capsys.readouterr().err == ""


def test_a_database_of_a_newer_release_is_refused_before_anything_is_done(
    place: Path, recorded: tuple[Path, str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    stamp(place, "999-0123456789abcdef")
    before = database(place).read_bytes()
    ledger = (place / "reports" / "ledger.jsonl").read_bytes()

    for words in (("score", recorded[1], "--policy", "long_short"), ("rebuild",)):
        assert told(place, *words) == 3
        error = capsys.readouterr().err
        assert "newer release" in error
        assert error.count("\n") == 1

    assert database(place).read_bytes() == before
    assert (place / "reports" / "ledger.jsonl").read_bytes() == ledger
    assert score_ids(find_run(place / "reports", recorded[1]).path) == ("default",)


def test_a_damaged_database_is_told_before_a_score_is_made(
    place: Path, recorded: tuple[Path, str, str]
) -> None:
    database(place).write_bytes(b"garbage" * 1000)

    with pytest.raises(DataError, match="run `backtester rebuild`"):
        scored(place, recorded[1])

    assert score_ids(find_run(place / "reports", recorded[1]).path) == ("default",)


@pytest.mark.parametrize("what", ["manifest.json", "journal.jsonl"])
def test_a_damaged_run_is_named_and_hides_no_other(
    place: Path, recorded: tuple[Path, str, str], capsys: pytest.CaptureFixture[str], what: str
) -> None:
    before = database(place).read_bytes()
    (place / "reports" / recorded[1] / what).write_bytes(b"nothing\n")

    assert told(place, "rebuild") == 3

    error = capsys.readouterr().err
    assert what in error
    assert error.count("\n") == 1
    assert published_runs(database(place)) == (recorded[2],)
    # Its rows were nowhere else any more.
    kept = list((place / "reports").glob("results-*.duckdb"))
    assert [path.read_bytes() for path in kept] == [before]
    assert told(place, "rebuild") == 3
    assert list((place / "reports").glob("results-*.duckdb")) == kept


def test_where_no_run_reads_the_database_stays(
    place: Path, recorded: tuple[Path, str, str]
) -> None:
    before = database(place).read_bytes()
    for name in recorded[1:]:
        (place / "reports" / name / "journal.jsonl").write_bytes(b"nothing\n")

    with pytest.raises(DataError, match="damaged"):
        rebuild_database(place / "reports")

    assert database(place).read_bytes() == before


def test_an_old_database_with_a_run_that_is_gone_is_kept_aside(
    place: Path, recorded: tuple[Path, str, str]
) -> None:
    stamp(place, "0123456789abcdef")
    before = database(place).read_bytes()
    shutil.rmtree(place / "reports" / recorded[2])

    scored(place, recorded[1])

    assert published_runs(database(place)) == (recorded[1],)
    kept = place / "reports" / "results-89abcdef-1.duckdb"
    assert kept.read_bytes() == before


def test_beside_a_damaged_score_others_are_made_published_and_the_damage_is_told(
    place: Path, recorded: tuple[Path, str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = scores_folder(find_run(place / "reports", recorded[1]).path)
    broken = folder / "default" / "definition.json"
    broken.write_text("{}")

    assert told(place, "score", recorded[1], "--policy", "long_short") == 3

    error = capsys.readouterr().err
    assert str(broken) in error
    assert error.count("\n") == 1
    query = "SELECT score_id FROM scores WHERE run_id = '{}'"
    found = rows_of(database(place), query.format(recorded[1]))
    assert len(found) == 1
    assert found[0]["score_id"] != "default"
    assert broken.read_text() == "{}"
    # It is made anew by asking for it.
    assert told(place, "score", recorded[1]) == 0
    assert len(rows_of(database(place), query.format(recorded[1]))) == 2


def test_a_score_with_a_damaged_file_is_made_anew_when_it_is_asked_for(
    place: Path, recorded: tuple[Path, str, str]
) -> None:
    name = scored(place, recorded[1])
    folder = scores_folder(find_run(place / "reports", recorded[1]).path) / name
    whole = (folder / "equity.parquet").read_bytes()
    (folder / "equity.parquet").write_bytes(b"nothing")

    assert scored(place, recorded[1]) == name

    assert (folder / "equity.parquet").read_bytes() == whole


@pytest.mark.parametrize("file", ["equity.parquet", "definition.json"])
@pytest.mark.parametrize("with_database", [True, False])
def test_a_score_that_was_repaired_is_no_longer_called_damaged(
    place: Path,
    recorded: tuple[Path, str, str],
    capsys: pytest.CaptureFixture[str],
    file: str,
    with_database: bool,
) -> None:
    name = scored(place, recorded[1])
    path = scores_folder(find_run(place / "reports", recorded[1]).path) / name / file
    path.write_bytes(path.read_bytes()[:-40])
    if not with_database:
        database(place).unlink()

    assert told(place, "score", recorded[1], "--policy", "long_short") == 0

    error = capsys.readouterr().err
    assert f"score {name} was damaged and is made anew" in error
    assert "not in the database" not in error
    found = rows_of(database(place), f"SELECT 1 FROM scores WHERE score_id = '{name}'")
    assert len(found) == 1


def test_a_rebuild_says_how_many_scores_have_no_hash_of_their_own(
    place: Path, recorded: tuple[Path, str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    card = scores_folder(find_run(place / "reports", recorded[1]).path) / "default/definition.json"
    text = card.read_text().replace('"format": 3', '"format": 2')
    lines = [line for line in text.splitlines() if '"sha256"' not in line and '"books"' not in line]
    card.write_text("\n".join(lines).replace(",\n}", "\n}"))

    assert told(place, "rebuild") == 0

    assert "without a hash of their rules: 1" in capsys.readouterr().out


def test_a_second_score_of_a_run_waits_for_the_first(
    place: Path, recorded: tuple[Path, str, str]
) -> None:
    folder = find_run(place / "reports", recorded[1])
    said: list[str] = []
    held, go = threading.Event(), threading.Event()

    def hold() -> None:
        with folder.lock():
            held.set()
            go.wait(30)

    holder = threading.Thread(target=hold)
    holder.start()
    assert held.wait(30)

    def waiting(line: str) -> None:
        said.append(line)
        go.set()

    changes = {"policy": policy_named("long_short")}
    done = rescore(folder, place / "data", changes, waiting=waiting)
    holder.join()

    assert done.new
    assert len(said) == 1
    assert "is being worked on by process" in said[0]


def _score_in_a_process(place: Path, name: str, slots: int) -> None:
    scored(place, name, slots=slots)


def test_two_processes_that_score_one_run_both_publish(
    place: Path, recorded: tuple[Path, str, str]
) -> None:
    database(place).unlink()
    start = multiprocessing.get_context("spawn")
    args = [(place, recorded[1], slots) for slots in (3, 4)]
    workers = [start.Process(target=_score_in_a_process, args=given) for given in args]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)

    assert [worker.exitcode for worker in workers] == [0, 0]
    assert set(published_runs(database(place))) == set(recorded[1:])
    assert len(rows_of(database(place), "SELECT * FROM scores")) == 4
