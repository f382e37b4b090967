"""A score is counted, held against the stored books of related trials, and kept."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backtester.errors import DataError
from backtester.records import RATINGS, CellRecord
from backtester.runs.folder import RunFolder
from backtester.score import files
from backtester.score.compute import Score
from backtester.score.definition import ScoreDefinition
from backtester.score.deflation import lane_returns
from backtester.score.files import read_card, score_ids, scores_folder
from backtester.score.keeping import Decisions, bring_back_lines, is_kept, make_score
from backtester.score.ledger import LEDGER_NAME, read_ledger_rows, trials_by_now
from backtester.score.records import MetricRow
from backtester.statistics.overfit import pbo
from tests.support.scores import ROOT, decided, figure, make_definition
from tests.support.snapshots import make_snapshot, sessions_of
from tests.support.workspaces import wave

DAYS = sessions_of("AAA", "2018-01-02", 80)
SNAPSHOT = make_snapshot(
    {
        name: wave(name, start="2017-10-02", count=180, phase=phase, drift=0.0004)
        for name, phase in (("AAA", 0.0), ("BBB", 2.0), ("CCC", 4.0))
    }
)


def cells_of(
    *tickers: str, shift: int = 0, days: Sequence[date] = DAYS[:35], lanes: int = 1
) -> list[CellRecord]:
    return [
        decided(name, day, RATINGS[(at * 3 + shift + 2 * lane + len(tickers)) % 5], trial=lane)
        for lane in range(lanes)
        for name in tickers
        for at, day in enumerate(days)
    ]


def kept(
    reports: Path, cells: Sequence[CellRecord], *, run: str = "run-a", **changes: Any
) -> tuple[Score, ScoreDefinition]:
    folder = RunFolder(reports / run)
    folder.path.mkdir(parents=True, exist_ok=True)
    definition = make_definition(cells, SNAPSHOT, run_id=run, **changes)
    decisions = Decisions(folder=folder, results_root=ROOT, cells=cells, returns={})
    return make_score(decisions, definition, snapshot=SNAPSHOT).score, definition


def pbo_of(score: Score) -> MetricRow:
    return figure(score, "pbo", subject="ratings")


def test_the_first_score_has_nothing_to_be_compared_with(tmp_path: Path) -> None:
    score, _ = kept(tmp_path, cells_of("AAA", "BBB"))

    assert score.known is not None
    assert (score.known.count, score.known.family) == (1, 1)
    assert (pbo_of(score).value, pbo_of(score).reason) == (None, "one_trial")


def test_overfitting_is_that_of_the_stored_books_of_related_trials(tmp_path: Path) -> None:
    first, _ = kept(tmp_path, cells_of("AAA", "BBB"))
    second, _ = kept(tmp_path, cells_of("AAA", "BBB", shift=1), run="run-b")
    # Another window by a day and a ticker less: no family, yet a trial on the same prices.
    score, _ = kept(tmp_path, cells_of("AAA", days=DAYS[1:36]), run="run-c")

    assert score.known is not None
    assert (score.known.count, score.known.family) == (3, 1)
    books = [lane_returns(one)[0] for one in (score, first, second)]
    common = sorted(set(books[0]) & set(books[1]) & set(books[2]))
    wanted = pbo(np.array([[book[day] for book in books] for day in common]), blocks=10)
    found = pbo_of(score)
    assert found.value == wanted.pbo
    assert found.n == 3
    assert found.method == f"3 books over {len(common)} sessions"


def test_a_deleted_run_still_counts_and_its_returns_are_missed(tmp_path: Path) -> None:
    kept(tmp_path, cells_of("AAA", "BBB"))
    kept(tmp_path, cells_of("AAA", "BBB", shift=1), run="run-b")
    shutil.rmtree(tmp_path / "run-b")

    score, _ = kept(tmp_path, cells_of("AAA", "BBB", shift=2), run="run-c")
    assert score.known is not None
    assert score.known.count == 3
    assert pbo_of(score).n == 2
    assert "trials without returns (deleted, or no book): 1" in (pbo_of(score).method or "")

    shutil.rmtree(tmp_path / "run-a")
    score, _ = kept(tmp_path, cells_of("AAA", "BBB", shift=3), run="run-c", slots=3)
    shutil.rmtree(tmp_path / "run-c")
    score, _ = kept(tmp_path, cells_of("AAA", "BBB", shift=4), run="run-d")
    assert (pbo_of(score).value, pbo_of(score).reason) == (None, "no_other_returns")


def test_a_trial_on_a_few_of_the_sessions_counts_and_is_not_compared(tmp_path: Path) -> None:
    kept(tmp_path, cells_of("AAA", days=DAYS[:20]))
    kept(tmp_path, cells_of("AAA", shift=1), run="run-b")
    score, _ = kept(tmp_path, cells_of("AAA", shift=2), run="run-c")

    assert score.known is not None
    assert score.known.count == 3
    assert pbo_of(score).n == 2
    assert pbo_of(score).value is not None
    assert "on other sessions: 1" in (pbo_of(score).method or "")


def test_the_lanes_of_a_run_are_trials_of_each_other(tmp_path: Path) -> None:
    score, _ = kept(tmp_path, cells_of("AAA", "BBB", lanes=3))

    assert score.known is not None
    assert score.known.count == 3
    assert pbo_of(score).n == 3


def test_another_benchmark_or_horizon_list_is_no_trial(tmp_path: Path) -> None:
    cells = cells_of("AAA", "BBB")
    kept(tmp_path, cells)
    for change in ({"benchmark": "CCC", "horizons": (1, 3)}, {"slots": 2}):
        score, _ = kept(tmp_path, cells, score_id="again", **change)
        assert score.known is not None
        assert score.known.count == 1, change
    # Every one of them is written down all the same.
    assert len(read_ledger_rows(tmp_path / LEDGER_NAME)) == 3
    # One slot instead of two is another book.
    score, _ = kept(tmp_path, cells, slots=1)
    assert score.known is not None
    assert score.known.count == 2


def test_the_card_holds_what_was_known_and_the_ledger_what_is_known_by_now(tmp_path: Path) -> None:
    _, definition = kept(tmp_path, cells_of("AAA", "BBB"))
    kept(tmp_path, cells_of("AAA", shift=1), run="run-b")

    card = read_card(tmp_path / "run-a", definition.score_id)
    by_now = trials_by_now(tmp_path / LEDGER_NAME, card.definition)

    assert (card.known_trials, card.family_trials) == (1, 1)
    assert (by_now.count, by_now.family) == (2, 1)


def test_a_score_of_the_first_format_reads_and_is_made_again_when_asked_for(
    tmp_path: Path,
) -> None:
    _, definition = kept(tmp_path, cells_of("AAA"))
    folder = RunFolder(tmp_path / "run-a")
    assert is_kept(folder, ROOT, definition)
    place = scores_folder(folder.path) / definition.score_id / "definition.json"
    old = json.loads(place.read_text())
    del old["family_trials"], old["sha256"], old["books"]
    place.write_text(json.dumps({**old, "format": 1}))

    card = read_card(folder.path, definition.score_id)

    assert (card.known_trials, card.family_trials) == (1, None)
    assert not is_kept(folder, ROOT, definition)


@pytest.mark.parametrize("lost", ["gone", "emptied", "first line"])
def test_a_stored_score_that_the_ledger_lost_is_counted_again(tmp_path: Path, lost: str) -> None:
    kept(tmp_path, cells_of("AAA", "BBB", lanes=2))
    kept(tmp_path, cells_of("AAA", "BBB", shift=1), run="run-b")
    ledger = tmp_path / LEDGER_NAME
    before = ledger.read_bytes()
    rows = set(read_ledger_rows(ledger))
    left = b"".join(before.splitlines(keepends=True)[1:]) if lost == "first line" else b""
    ledger.write_bytes(left)
    if lost == "gone":
        ledger.unlink()

    bring_back_lines(tmp_path)
    assert set(read_ledger_rows(ledger)) == rows
    ledger.write_bytes(left)
    score, _ = kept(tmp_path, cells_of("AAA", "BBB", shift=2), run="run-c")

    assert score.known is not None
    assert score.known.count == 4


def test_a_score_of_a_newer_release_is_not_replaced(tmp_path: Path) -> None:
    _, definition = kept(tmp_path, cells_of("AAA"))
    place = scores_folder(tmp_path / "run-a") / definition.score_id / "definition.json"
    place.write_text(json.dumps({**json.loads(place.read_text()), "format": 99, "new": 1}))

    with pytest.raises(DataError, match="newer release"):
        is_kept(RunFolder(tmp_path / "run-a"), ROOT, definition)


def test_a_damaged_score_blocks_no_other_one_of_its_run(tmp_path: Path) -> None:
    _, definition = kept(tmp_path, cells_of("AAA"))
    place = scores_folder(tmp_path / "run-a") / definition.score_id / "definition.json"
    place.write_text("{}")

    score, other = kept(tmp_path, cells_of("AAA"), slots=3)

    assert read_card(tmp_path / "run-a", other.score_id).known_trials == 2
    assert score.known is not None
    assert score.known.count == 2
    assert place.read_text() == "{}"


def test_a_number_that_cannot_be_published_is_neither_counted_nor_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "LIMIT", 1e-9)

    with pytest.raises(DataError, match="nothing was stored"):
        kept(tmp_path, cells_of("AAA"))

    assert not (tmp_path / LEDGER_NAME).exists()
    assert score_ids(tmp_path / "run-a") == ()


def test_every_figure_has_a_value_or_a_reason(tmp_path: Path) -> None:
    for cells in (cells_of("AAA", days=DAYS[:1]), cells_of("AAA", "BBB", lanes=2)):
        score, _ = kept(tmp_path, cells, run=f"run-{len(cells)}")
        for row in score.rows["metrics"]:
            assert isinstance(row, MetricRow)
            assert row.value is not None or row.reason, row


@pytest.mark.parametrize(("sessions", "shown"), [(8, False), (40, True)])
def test_a_yearly_figure_of_a_few_sessions_has_no_interval(
    tmp_path: Path, sessions: int, shown: bool
) -> None:
    score, _ = kept(tmp_path, cells_of("AAA", days=DAYS[:sessions]), benchmark="CCC")

    for metric in ("sharpe", "sortino", "information_ratio", "mean_return", "jensen_alpha"):
        found = figure(score, metric, subject="ratings")
        assert found.value is not None
        assert (found.low is not None) == (found.level is not None) == shown, found
        assert found.reason == (None if shown else "too_few_returns")
        if found.low is not None and found.high is not None:
            assert found.low < found.value < found.high
    for metric in ("volatility", "tracking_error", "downside_deviation"):
        found = figure(score, metric, subject="ratings")
        assert found.low is None
        assert found.reason == ("no_interval" if shown else "too_few_returns")
