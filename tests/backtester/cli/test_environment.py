"""Which folder a command works in: the flag, a variable under any of its names, the default."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from backtester import cli
from backtester.cli.environment import data_folder, reports_folder
from backtester.config import RunConfig
from backtester.errors import UsageError
from backtester.runs.folder import list_runs
from tests.support.workspaces import Workspace, make_workspace

RUN = (
    *("run", "--snapshot", "small", "--benchmark", "^GSPC", "--tickers", "AAA"),
    *("--analysts", "market", "--start", "2018-01-05", "--end", "2018-01-05", "--grid", "daily"),
)


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    made = make_workspace(tmp_path / "place")
    monkeypatch.chdir(made.path)
    return made


@pytest.mark.parametrize(
    ("folder", "field"), [(data_folder, "data_dir"), (reports_folder, "reports_dir")]
)
def test_without_a_word_a_folder_is_that_of_a_run(
    folder: Callable[[Path | None], Path], field: str
) -> None:
    assert folder(None) == RunConfig.model_fields[field].default


@pytest.mark.parametrize(
    ("variables", "flag", "used"),
    [
        ({"TRADINGAGENTS_RESULTS_DIR": "seeds"}, None, "seeds"),
        ({"TRADINGAGENTS_REPORTS_DIR": "seeds"}, None, "seeds"),
        ({"BACKTESTER_RESULTS_DIR": "ours"}, None, "ours"),
        ({"TRADINGAGENTS_RESULTS_DIR": "seeds", "BACKTESTER_REPORTS_DIR": "ours"}, None, "ours"),
        ({"TRADINGAGENTS_REPORTS_DIR": "seeds", "BACKTESTER_RESULTS_DIR": "ours"}, None, "ours"),
        ({"BACKTESTER_REPORTS_DIR": "a", "BACKTESTER_RESULTS_DIR": "a"}, None, "a"),
        ({"BACKTESTER_REPORTS_DIR": "ours"}, "flag", "flag"),
        ({"BACKTESTER_REPORTS_DIR": " "}, None, "reports"),
        # What has nothing to do with folders is for the commands that take settings.
        ({"BACKTESTER_HORIZN": "5", "BACKTESTER_REPORTS_DIR": "ours"}, None, "ours"),
    ],
)
def test_a_folder_is_named_by_flag_or_variable_under_any_of_its_names(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], flag: str | None, used: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    assert reports_folder(Path(flag) if flag else None) == Path(used)


def test_two_variables_of_one_prefix_that_differ_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("BACKTESTER_REPORTS_DIR", "a")
    monkeypatch.setenv("BACKTESTER_RESULTS_DIR", "b")

    with pytest.raises(UsageError, match=r"BACKTESTER_RE\w+_DIR and .*both set reports_dir"):
        reports_folder(None)


def test_a_run_and_all_that_read_it_find_one_folder(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRADINGAGENTS_RESULTS_DIR", "elsewhere")
    assert cli.run(list(RUN)) == 0

    for words in (
        ("runs",),
        ("show", "latest"),
        ("sql", "SELECT count(*) FROM cells"),
        ("replay", "latest"),
        ("rebuild",),
    ):
        assert cli.run(list(words)) == 0, capsys.readouterr().err
    assert not workspace.reports.exists()


def test_a_manifest_is_repeated_where_this_environment_keeps_its_runs(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(list(RUN)) == 0
    (first,) = list_runs(workspace.reports)
    monkeypatch.setenv("TRADINGAGENTS_RESULTS_DIR", "elsewhere")
    again = ["run", "--from", str(first.manifest_path)]

    assert cli.run(again) == 0
    assert [run.run_id for run in list_runs(Path("elsewhere"))] == [first.run_id]
    assert cli.run([*again, "--reports-dir", "flag"]) == 0
    assert [run.run_id for run in list_runs(Path("flag"))] == [first.run_id]


def test_a_setting_that_is_given_twice_is_refused_and_a_tier_s_model_is_not(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run([*RUN, "--set", "benchmark=none"]) == 2
    assert "benchmark is given twice, as '^GSPC' and 'none'" in capsys.readouterr().err
    assert cli.run([*RUN, "--set", "trials=2", "--set", "trials=3"]) == 2
    assert "trials is given twice, as 2 and 3" in capsys.readouterr().err
    provider = ("--provider", "openai_compatible", "--base-url", "http://127.0.0.1:9/v1")
    models = ("--model", "both", "--set", "quick_model=quick")
    assert cli.run(["plan", *RUN[1:], *provider, *models]) == 0
    assert "quick-1xdaily-2018-" in capsys.readouterr().out
