"""The setting `estimated` of a run: in its identity, told by plan and show, counted in reads."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest

from backtester import cli
from backtester.api import Run, run
from backtester.schema import TABLES
from backtester.snapshots.snapshot import write_snapshot
from tests.support.tables import instant
from tests.support.workspaces import CAPTURED, INVENTED, Workspace, make_workspace


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """Give the small snapshot a quarter's figure that only an estimate dates."""
    small = make_workspace(tmp_path_factory.mktemp("estimated"))
    row = {
        "instrument": "AAA", "statement": "income", "item": "revenue",
        "period_start": date(2017, 7, 1), "period_end": date(2017, 9, 30), "period_months": 3,
        "known_at": instant("2017-11-14T23:59"), "known_at_basis": "estimated",
        "form": "quarterly", "accession": None, "tag": None, "derived": False,
        "value": 12_345.0, "unit": "USD",
    }  # fmt: skip
    tables = {name: small.snapshot.table(name) for name in ("instruments", "bars", "actions")}
    tables["statements"] = pa.Table.from_pylist([row], schema=TABLES["statements"].arrow)
    snapshot = write_snapshot(
        small.data / "snapshots" / "guessed",
        tables,
        name="guessed",
        declared_start=small.snapshot.start,
        declared_end=small.snapshot.end,
        sources=(INVENTED.model_copy(update={"tables": tuple(tables)}),),
        absent={},
        captured_at=CAPTURED,
    )
    return Workspace(path=small.path, snapshot=snapshot)


def decided(workspace: Workspace, estimated: str) -> Run:
    return run(
        workspace.config(
            tickers=("AAA",),
            start="2018-01-05",
            end="2018-01-05",
            name=estimated,
            estimated=estimated,
        )
    )


@pytest.fixture(scope="module")
def withheld(workspace: Workspace) -> Run:
    return decided(workspace, "withhold")


@pytest.fixture(scope="module")
def lagged(workspace: Workspace) -> Run:
    return decided(workspace, "lag")


def reads_of(found: Run) -> list[list[int]]:
    rows = found.sql(
        "SELECT n_rows, withheld FROM reads WHERE source_table = 'statements' "
        f"AND tool = 'get_income_statement' AND run_id = '{found.run_id}'"
    )
    counts: list[list[int]] = rows.values.tolist()
    return counts


def test_the_read_log_counts_what_a_run_withheld(withheld: Run, lagged: Run) -> None:
    assert reads_of(withheld) == [[0, 1]]
    assert reads_of(lagged) == [[1, 0]]


def test_the_setting_is_part_of_the_identity(withheld: Run, lagged: Run) -> None:
    hashes = {found.run_id.rpartition("-")[2] for found in (withheld, lagged)}
    assert len(hashes) == 2
    assert withheld.root != lagged.root


def test_show_and_plan_say_which_it_is(
    withheld: Run, lagged: Run, workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = ["--reports-dir", str(workspace.reports)]
    assert cli.run(["show", withheld.run_id, *folder]) == 0
    assert "rows that only an estimate dates are withheld" in capsys.readouterr().out
    assert cli.run(["show", lagged.run_id, *folder]) == 0
    assert "rows that only an estimate dates are shown from that day on" in capsys.readouterr().out
    asked = ["plan", "--tickers", "AAA", "--start", "2018-01-05", "--end", "2018-01-05"]
    asked += ["--snapshot", "guessed", "--benchmark", "^GSPC", "--data-dir", str(workspace.data)]
    assert cli.run([*asked, *folder, "--set", "estimated=lag"]) == 0
    assert "rows that only an estimate dates are shown from that day on" in capsys.readouterr().out


def test_another_word_is_refused_with_those_that_there_are(
    workspace: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["plan", "--tickers", "AAA", "--start", "2018-01-05", "--end", "2018-01-05"]
    assert cli.run([*asked, "--data-dir", str(workspace.data), "--set", "estimated=show"]) == 2
    said = capsys.readouterr().err
    assert "estimated" in said
    assert "withhold" in said
