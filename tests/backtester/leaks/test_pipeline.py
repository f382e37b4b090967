"""A pipeline that reads t+1 through any door fails the audit, and an honest one passes."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from backtester.cli import run as command_line
from backtester.errors import DataError, UsageError
from backtester.leaks.child import IMPORT, Answer, Asked, Job, Worlds, find
from backtester.leaks.clock import moved_clock
from backtester.leaks.pipeline import (
    PipelineQuestion,
    answers_of,
    check_pipeline,
    report_of,
    target_of,
)
from backtester.leaks.poison import MOVED, WAYS, Way
from backtester.leaks.report import LeakReport
from backtester.snapshots.manifest import Source
from backtester.snapshots.snapshot import Snapshot, write_snapshot
from tests.support import leaky_global, leaky_pipelines
from tests.support.snapshots import make_tables
from tests.support.tables import news_rows
from tests.support.workspaces import CAPTURED, wave

pytestmark = pytest.mark.slow
DATES = ("2018-01-05", "2018-01-12")
Audit = Callable[..., LeakReport]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pipeline") / "data"


@pytest.fixture(scope="module")
def snapshot(data: Path) -> Snapshot:
    """Write a snapshot of two instruments with news on both sides of the dates."""
    tables = make_tables(
        {
            "AAA": wave("AAA", start="2017-12-01", count=45, phase=0.0, drift=0.001),
            "BBB": wave("BBB", start="2017-12-01", count=45, phase=2.0, drift=0.002),
        }
    )
    news = news_rows(
        ("AAA", f"2018-01-{day:02d}T15:00", f"headline {day}") for day in (3, 9, 16, 24)
    )
    source = Source(
        name="invented", vendor="this test", item="a formula", licence="none needed",
        tables=("instruments", "bars", "actions", "news"), captured_at=CAPTURED,
    )  # fmt: skip
    return write_snapshot(
        data / "snapshots" / "small", {**tables, "news": news}, name="small",
        declared_start=date(2017, 12, 1), declared_end=date(2018, 2, 6), sources=(source,),
        absent={}, captured_at=CAPTURED,
    )  # fmt: skip


@pytest.fixture(autouse=True)
def folder(snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEAKY_SNAPSHOT", str(snapshot.path))


def question_of(pipeline: Any, snapshot: Snapshot, data: Path) -> PipelineQuestion:
    return PipelineQuestion(
        pipeline=pipeline, snapshot=snapshot, tickers=("AAA",), dates=",".join(DATES), data_dir=data
    )


@pytest.fixture
def audit(snapshot: Snapshot, data: Path) -> Audit:
    """Return the audit without its processes, for pipelines that keep nothing."""
    calls = [Asked(ticker="AAA", session=day, cutoff=f"{day}T21:00:00+00:00") for day in DATES]

    def answers(pipeline: Any, way: Way | None) -> list[Answer]:
        worlds = Worlds(snapshot, way, "close")
        with moved_clock() if way == MOVED else nullcontext():
            return [Answer(key=IMPORT), *(worlds.call(pipeline, asked) for asked in calls)]

    def of(pipeline: Any) -> LeakReport:
        worlds = {"true": None, "again": None, **{way.name: way for way in WAYS}}
        found = {name: answers(pipeline, way) for name, way in worlds.items()}
        return report_of(question_of(pipeline, snapshot, data), "p", found)

    return of


@pytest.mark.parametrize(
    ("pipeline", "check", "table"),
    [
        (leaky_pipelines.behind_the_view, "output", ""),
        (leaky_pipelines.later_news, "output", "news"),
        (leaky_pipelines.knows_the_clock, "output", "clock"),
        (leaky_pipelines.asks_the_network, "network", ""),
    ],
)
def test_a_pipeline_that_reads_what_it_must_not_is_found(
    audit: Audit, pipeline: Any, check: str, table: str
) -> None:
    report = audit(pipeline)

    assert {(finding.check, finding.table) for finding in report.findings} >= {(check, table)}


def test_a_canary_in_an_output_is_named_with_its_column(audit: Audit) -> None:
    report = audit(leaky_pipelines.later_news)

    place = {(finding.table, finding.column) for finding in report.findings}
    assert ("news", "title") in place
    assert '"FUTURE-CANARY.news.title headline 3"' in report.findings[0].detail
    assert {line.table: line.leaks for line in report.tables}["news"] >= 1


def test_an_error_that_is_the_same_in_every_world_is_counted_and_no_leak(audit: Audit) -> None:
    report = audit(leaky_pipelines.raises_at_times)

    assert report.clean
    assert report.raised == 1


@pytest.mark.parametrize(
    ("pipeline", "error", "words"),
    [
        (leaky_pipelines.always_raises, DataError, "raised at every one of 2 calls"),
        (leaky_pipelines.returns_an_object, UsageError, "a object cannot be compared"),
        (leaky_pipelines.returns_nothing, UsageError, "returned nothing at any of 2 calls"),
    ],
)
def test_what_cannot_be_compared_is_refused_and_never_called_clean(
    audit: Audit, pipeline: Any, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        audit(pipeline)


@pytest.mark.parametrize(
    ("pipeline", "words"),
    [("just words", "package.module:callable"), (lambda view, ticker, day: "", "into a module")],
)
def test_a_pipeline_that_no_process_can_import_is_refused(pipeline: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        target_of(pipeline)


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("tests.support.leaky_pipelines:nobody", "has no attribute 'nobody'"),
        ("no.such.module:f", "No module named"),
        ("tests.support.leaky_pipelines:_KEPT", "cannot be called"),
    ],
)
def test_a_name_behind_which_is_no_pipeline_is_refused(target: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        find(target)


def test_a_child_that_ended_early_proves_nothing(tmp_path: Path) -> None:
    result = tmp_path / "answers"
    result.write_text(json.dumps(asdict(Answer(key=IMPORT))) + "\n")
    job = Job(
        target="a:b", snapshot="s", way="", decision_time="close",
        calls=(Asked(ticker="AAA", session=DATES[0], cutoff="2018-01-05T21:00:00+00:00"),),
        watched=(), paths=(), result=str(result),
    )  # fmt: skip
    (tmp_path / "job").write_text(json.dumps(asdict(job)))
    with pytest.raises(DataError, match=r"ended its process \(code 3\) after 1 of 2 steps"):
        answers_of(tmp_path / "job", 3)


# ------------------------------------------------------------------------------ in processes


def test_files_opened_past_the_view_are_found_though_every_output_is_equal(
    snapshot: Snapshot, data: Path
) -> None:
    report = check_pipeline(question_of(leaky_global.pipeline, snapshot, data), workers=5)

    assert {finding.check for finding in report.findings} == {"file"}
    opened = {(finding.where, finding.table) for finding in report.findings}
    assert ("while its module was imported", "bars") in opened
    assert ("AAA|2018-01-05", "bars") in opened
    # The whole snapshot was opened, by Python.
    assert {("AAA|2018-01-12", table) for table in ("bars", "news", "instruments")} <= opened
    assert "small/bars.parquet" in report.findings[0].detail


def test_a_memory_on_disk_proves_nothing_and_one_from_before_is_named(
    snapshot: Snapshot, data: Path
) -> None:
    question = question_of(leaky_pipelines.remembers_on_disk, snapshot, data)

    report = check_pipeline(question, workers=3)

    found = [finding for finding in report.findings if finding.check == "memory"]
    assert {finding.where for finding in found} == {f"AAA|{day}" for day in DATES}
    memo = data.parent / f"memo-AAA-{DATES[0]}"
    assert f"it read {memo}, which was written since the audit began" in found[0].detail
    # Once it is there, all worlds agree, and the report can only say what was read.
    later = check_pipeline(question, workers=5)
    assert later.clean
    assert any(f"it read {memo}" in words for words in later.not_covered)


def test_a_thread_that_a_pipeline_leaves_behind_does_not_hold_the_audit_up(
    snapshot: Snapshot, data: Path
) -> None:
    question = question_of(leaky_pipelines.leaves_a_thread_behind, snapshot, data)

    assert check_pipeline(question, workers=5).clean


# ------------------------------------------------------------------------------ command line


def leakcheck_command(data: Path, pipeline: str, tickers: str, *more: str) -> int:
    words = ["leakcheck", "--pipeline", f"tests.support.leaky_pipelines:{pipeline}"]
    words += ["--snapshot", "small", "--tickers", tickers, "--dates", ",".join(DATES)]
    return command_line([*words, "--data-dir", str(data), "--workers", "5", *more])


def test_a_pipeline_that_reads_t_plus_1_is_exit_7_and_its_memory_hides_nothing(
    snapshot: Snapshot,
    data: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "0")

    code = leakcheck_command(data, "remembers_or_shuffles", "AAA,BBB")

    assert code == 7
    said = capfd.readouterr()
    assert "leak: output: AAA|2018-01-12: its output changed in a world" in said.err
    # Nothing is compared before all worlds are done, so nothing is said of findings before.
    assert ": 4 steps in each of 5 worlds (true, again, rewritten, cut, moved) ...\n" in said.err
    # What differs by chance proves nothing, and is told apart from a leak.
    assert "leak: repeat: BBB|2018-01-05" in said.err
    assert "leak: repeat: BBB|2018-01-12" in said.err
    assert "output: BBB" not in said.err
    assert "not covered" in said.out
    assert "clean" not in said.out


def test_an_honest_pipeline_is_exit_0_and_the_report_says_what_was_tried(
    snapshot: Snapshot, data: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code = leakcheck_command(data, "honest", "AAA", "--json")

    assert code == 0
    report = json.loads(capfd.readouterr().out)
    assert report["clean"] is True
    assert report["findings"] == []
    assert report["ways"] == ["again", "rewritten", "cut", "moved"]
    # One ticker on two dates, in three changed worlds.
    assert report["prompts"] == 6
    assert report["cutoffs"] == 2
    lines = {line["table"]: line for line in report["tables"]}
    # 21 and 16 sessions of two instruments follow the dates, in two worlds.
    assert lines["bars"]["rows"] == 2 * 2 * (21 + 16)
    assert lines["news"]["texts"] > 0
    assert lines["clock"]["prompts"] == 2
    assert lines["macro"]["note"].startswith("not in the snapshot")
    assert any("training data" in words for words in report["not_covered"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "name a run such as 'latest', or --pipeline"),
        (("latest", "--pipeline", "a:b", "--snapshot", "s", "--tickers", "A", "--dates", "x"),
         "not both"),
        (("--pipeline", "a:b", "--snapshot", "s"), "--pipeline needs --tickers, --dates too"),
        (("--snapshot", "s", "--tickers", "A", "--dates", "x"), "name a run such as"),
    ],
)  # fmt: skip
def test_a_command_that_names_no_whole_subject_is_refused(
    words: tuple[str, ...], said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert command_line(["leakcheck", *words]) == 2
    assert said in capfd.readouterr().err
