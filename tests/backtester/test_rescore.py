"""Stored decisions are scored again under other rules, without a model call."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from backtester.backtest import run
from backtester.cli import run as command
from backtester.packs.replays import replay
from backtester.runs.folder import RunFolder
from backtester.score.files import score_ids, scores_folder
from backtester.snapshots.snapshot import write_snapshot
from tests.support.results import rows_of
from tests.support.workspaces import CAPTURED, INVENTED, Workspace, make_workspace

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workspace, str]:
    workspace = make_workspace(tmp_path_factory.mktemp("recorded"))
    result = run(workspace.config(score_at_end=True))
    return workspace, result.run_id


@pytest.fixture
def place(recorded: tuple[Workspace, str], tmp_path: Path) -> Iterator[Path]:
    shutil.copytree(recorded[0].path, tmp_path / "w")
    return tmp_path / "w"


def told(place: Path, *words: str) -> int:
    folders = ("--reports-dir", str(place / "reports"))
    if words[0] == "score":
        folders = (*folders, "--data-dir", str(place / "data"))
    return command([*words, *folders])


def rows(place: Path, query: str) -> list[dict[str, Any]]:
    return rows_of(place / "reports" / "results.duckdb", query)


def test_a_run_ends_with_a_score_of_its_own(recorded: tuple[Workspace, str]) -> None:
    place = recorded[0].path

    assert [r["score_id"] for r in rows(place, "SELECT score_id FROM scores")] == ["default"]
    for table in ("orders", "positions", "equity", "metrics", "event_study", "horizon_returns"):
        (count,) = rows(place, f"SELECT count(*) AS n FROM {table} WHERE score_id = 'default'")
        assert count["n"] > 0, table
    own = rows(
        place,
        "SELECT r.raw_total = h.raw_total AS same FROM returns r JOIN horizon_returns h "
        "USING (run_id, score_id, ticker, session, trial, horizon) WHERE r.raw_total IS NOT NULL",
    )
    assert own
    assert all(row["same"] for row in own)


def test_another_horizon_and_policy_stand_beside_the_runs_own(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = rows(place, "SELECT count(*) AS n FROM llm_calls")

    code = told(place, "score", "latest", "--horizon", "2,4", "--policy", "long_short")

    assert code == 0
    assert "0 model calls" in capsys.readouterr().out
    found = rows(place, "SELECT score_id, policy, horizon FROM scores ORDER BY horizon")
    assert [(row["policy"], row["horizon"]) for row in found] == [
        ("long_short", 2),
        ("long_only", 3),
    ]
    horizons = rows(place, "SELECT DISTINCT score_id, horizon FROM horizon_returns ORDER BY ALL")
    assert {row["horizon"] for row in horizons if row["score_id"] != "default"} == {2, 4}
    assert rows(place, "SELECT count(*) AS n FROM llm_calls") == before
    both = rows(place, "SELECT score_id, mean_return FROM alpha_by_rating_all WHERE rating = 'Buy'")
    assert len({row["score_id"] for row in both}) == 2


def test_the_same_score_again_is_found_and_not_counted(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        assert told(place, "score", "latest", "--commission-bps", "10", "--placebo", "3") == 0
    assert "there already" in capsys.readouterr().out

    (known,) = rows(place, "SELECT trials FROM trials_known")
    assert known["trials"] == 2


def test_costs_come_off_the_book(place: Path) -> None:
    told(place, "score", "latest", "--commission-bps", "100", "--placebo", "0")

    found = rows(
        place,
        "SELECT s.score_id, b.commission, b.total_return FROM book_performance_all b "
        "JOIN scores s USING (run_id, score_id) WHERE b.book = 'ratings' ORDER BY b.commission",
    )
    assert 0.0 < found[0]["commission"] < found[1]["commission"]
    assert found[1]["total_return"] < found[0]["total_return"]


def test_a_bill_that_was_charged_is_told_also_where_it_is_nothing(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert told(place, "score", "latest", "--placebo", "0") == 0
    assert "models' bill charged" not in capsys.readouterr().out

    assert told(place, "score", "latest", "--charge-model-cost", "--placebo", "0") == 0
    bill = rows(place, "SELECT value FROM metrics WHERE metric = 'model_cost' AND value >= 0")
    assert [row["value"] for row in bill] == [0.0]
    assert "\nmodels' bill charged: 0.00 USD\n" in capsys.readouterr().out


def test_deleting_a_run_does_not_lower_the_ledger_and_rebuild_restores_scores(
    place: Path, recorded: tuple[Workspace, str]
) -> None:
    told(place, "score", "latest", "--slots", "4", "--placebo", "0")
    second = run(
        recorded[0].config(
            score_at_end=True,
            memory="off",
            data_dir=place / "data",
            reports_dir=place / "reports",
        )
    )
    (known,) = rows(place, "SELECT trials, runs FROM trials_known")
    assert (known["trials"], known["runs"]) == (3, 2)
    before = rows(place, "SELECT * FROM metrics ORDER BY ALL")

    assert told(place, "rebuild") == 0
    assert rows(place, "SELECT * FROM metrics ORDER BY ALL") == before

    shutil.rmtree(second.folder)
    assert told(place, "rebuild") == 0
    assert rows(place, "SELECT trials, runs FROM trials_known") == [known]
    assert len(rows(place, "SELECT DISTINCT run_id FROM metrics")) == 1


def test_a_replay_counts_nothing(place: Path, recorded: tuple[Workspace, str]) -> None:
    ledger = place / "reports" / "ledger.jsonl"
    before = ledger.read_bytes()

    result = replay(RunFolder(place / "reports" / recorded[1]), place / "data", backend="threading")

    assert result.equal
    assert ledger.read_bytes() == before


def test_a_newer_snapshot_settles_what_was_pending_and_names_what_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workspace = make_workspace(tmp_path)
    last = workspace.snapshot.end
    run(workspace.config(start="2018-02-05", end=last, grid="every 2", score_at_end=True))
    pending = "SELECT count(*) AS n FROM returns WHERE status = 'pending' AND score_id = '{}'"
    assert rows(tmp_path, pending.format("default"))[0]["n"] > 0
    _newer(workspace, 320)

    assert told(tmp_path, "score", "latest", "--snapshot", "newer", "--placebo", "0") == 0

    said = capsys.readouterr().out
    assert "bars: 1 values changed" in said
    assert "AAA 2018-02-06 close:" in said
    (score,) = rows(tmp_path, "SELECT score_id FROM scores WHERE score_id <> 'default'")
    assert rows(tmp_path, pending.format(score["score_id"]))[0]["n"] == 0
    (known,) = rows(tmp_path, "SELECT trials FROM trials_known")
    assert known["trials"] == 1


def _newer(workspace: Workspace, count: int) -> None:
    """Write a snapshot that goes on, and says one close otherwise."""
    longer = make_workspace(workspace.path / "longer").snapshot
    from tests.support.snapshots import make_tables
    from tests.support.workspaces import wave

    tables = make_tables(
        {
            name: wave(name, start="2017-01-03", count=count, phase=phase, drift=drift)
            for name, phase, drift in (
                ("AAA", 0.0, 0.001),
                ("BBB", 2.0, -0.0005),
                ("^GSPC", 1.0, 0.0003),
            )
        }
    )
    frame = tables["bars"].to_pandas()
    changed = (frame["instrument"] == "AAA") & (frame["session"].astype(str) == "2018-02-06")
    frame.loc[changed, "close"] += 0.01
    tables["bars"] = pa.Table.from_pandas(frame, schema=tables["bars"].schema, preserve_index=False)
    sessions = tables["bars"].column("session").to_pylist()
    write_snapshot(
        workspace.data / "snapshots" / "newer",
        tables,
        name="newer",
        declared_start=longer.start,
        declared_end=max(sessions),
        sources=(INVENTED,),
        absent={},
        captured_at=CAPTURED,
    )


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("score", "nothing"), 3, "run 'nothing' is unknown"),
        (("score", "latest", "--policy", "yolo"), 2, "policy 'yolo' is not known"),
        (("score", "latest", "--entry-rule", "noon"), 2, "entry rule 'noon'"),
        (("score", "latest", "--horizon", "0"), 2, "--horizon"),
        (("score", "latest", "--horizon", "x"), 2, "--horizon"),
        (("score", "latest", "--fold", "6X"), 2, "'6X' is no length of a fold"),
        (("score", "latest", "--snapshot", "none-such"), 3, "none-such"),
        (("score", "latest", "--benchmark", "NOSUCH"), 3, "NOSUCH is not in snapshot"),
        (("score", "latest", "--from", "2031-01-01"), 2, "is after the last day of decisions"),
        (("score", "latest", "--slots", "0"), 2, "slots 0"),
        (("score", "latest", "--weights", "Buy"), 2, "--weights"),
        (("score", "latest", "--slippage-bps", "nan"), 2, "--slippage-bps"),
        (("compare", "latest", "latest"), 2, "the same score of the same run"),
    ],
)
def test_what_is_not_known_is_one_line(
    recorded: tuple[Workspace, str],
    words: tuple[str, ...],
    code: int,
    says: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    place = recorded[0].path
    ids = score_ids(place / "reports" / recorded[1])

    assert told(place, *words) == code

    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1
    assert score_ids(place / "reports" / recorded[1]) == ids


def test_a_damaged_score_is_told_and_made_again(
    place: Path, recorded: tuple[Workspace, str], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = scores_folder(place / "reports" / recorded[1]) / "default"
    (folder / "equity.parquet").write_bytes(b"nothing")

    assert told(place, "rebuild") == 3
    assert "score again" in capsys.readouterr().err
    assert told(place, "score", "latest", "--again") == 0
    assert told(place, "rebuild") == 0


def test_two_runs_are_compared_with_their_scores(
    place: Path, recorded: tuple[Workspace, str], capsys: pytest.CaptureFixture[str]
) -> None:
    other = run(
        recorded[0].config(
            score_at_end=True,
            memory="off",
            data_dir=place / "data",
            reports_dir=place / "reports",
        )
    )

    assert (
        command(["compare", recorded[1], other.run_id, "--reports-dir", str(place / "reports")])
        == 0
    )

    said = capsys.readouterr().out
    assert "memory" in said
    assert "cells decided by both" in said
    assert said.count("score default: the run's own") == 2


def test_a_run_prints_its_book_and_what_may_be_said_of_luck(
    recorded: tuple[Workspace, str], capsys: pytest.CaptureFixture[str]
) -> None:
    place = recorded[0].path
    assert command(["show", "latest", "--reports-dir", str(place / "reports")]) == 0

    said = capsys.readouterr().out
    for words in (
        "buy and hold",
        "equal weight",
        "random ratings: 5-95 % of 200 books",
        "no interval (too few windows): nothing can be said of luck",
        "at least 1 trial of these instruments and days",
    ):
        assert words in said
