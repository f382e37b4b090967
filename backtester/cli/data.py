"""Commands on files: ``snapshot show|verify|diff``, and the group ``cassette``."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from backtester.cli import cassettes
from backtester.cli.environment import data_folder
from backtester.cli.runs import DataDir, whole
from backtester.errors import DataError, UsageError

snapshot_app = typer.Typer(help="Look at snapshots and verify them.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add this module's command groups."""
    app.add_typer(snapshot_app, name="snapshot")
    app.add_typer(cassettes.app, name="cassette")


@snapshot_app.command("show")
def snapshot_show(
    name: Annotated[str, typer.Argument(help="Name or folder.")] = "us-2013-2018",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    data_dir: DataDir = None,
) -> None:
    """List what a snapshot holds, from where, and what it lacks."""
    from backtester.cli.render_snapshot import show_snapshot
    from backtester.snapshots.coverage import coverage_of
    from backtester.snapshots.snapshot import open_snapshot

    snapshot = open_snapshot(name, data_folder(data_dir))
    coverage = coverage_of(snapshot)
    if not as_json:
        show_snapshot(snapshot, coverage)
        return
    document = json.loads(snapshot.manifest.to_json())
    document["coverage"] = [asdict(row) for row in coverage]
    typer.echo(json.dumps(document, indent=2, sort_keys=True, default=str))


@snapshot_app.command("verify")
def snapshot_verify(
    name: Annotated[str, typer.Argument(help="Name or folder.")] = "us-2013-2018",
    data_dir: DataDir = None,
) -> None:
    """Hash every file again, derive the snapshot id again and repeat the checks."""
    from backtester.snapshots.snapshot import find_snapshot, verify_snapshot

    path = find_snapshot(name, data_folder(data_dir))
    problems = verify_snapshot(path)
    for problem in problems:
        found = (
            f" (expected {problem.expected}, found {problem.actual})" if problem.expected else ""
        )
        typer.echo(f"problem: {problem.file}: {problem.message}{found}", err=True)
    if problems:
        raise DataError(
            f"snapshot {path} has {_count(len(problems), 'problem')}: bring back a whole copy"
        )
    typer.echo(f"snapshot {path} is whole")


@snapshot_app.command("diff")
def snapshot_diff(
    old: Annotated[str, typer.Argument(help="Name or folder.")],
    new: Annotated[str, typer.Argument(help="Name or folder.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    most: Annotated[
        int,
        typer.Option("--most", parser=whole("--most"), metavar="INTEGER", help="Lines a table."),
    ] = 50,
    data_dir: DataDir = None,
) -> None:
    """Name every row and value in which two snapshots differ, and what the later capture saw."""
    from backtester.cli.render_snapshot import show_diff
    from backtester.schema import TABLES
    from backtester.snapshots.diff import diff_tables
    from backtester.snapshots.snapshot import open_snapshot

    if most < 0:
        raise UsageError(f"--most {most} is too small: write 0 or more")
    snapshots = [open_snapshot(name, data_folder(data_dir)) for name in (old, new)]
    tables = [
        {name: one.table(name) for name in TABLES if one.absent_reason(name) is None}
        for one in snapshots
    ]
    diffs = diff_tables(*tables)
    told = [f.message for f in snapshots[1].manifest.findings if f.kind == "changed"]
    if as_json:
        document = {"tables": [asdict(diff) for diff in diffs], "vendor_changes": told}
        typer.echo(json.dumps(document, indent=2, sort_keys=True))
        return
    show_diff(diffs, told, most)


def _count(number: int, word: str) -> str:
    return f"{number} {word}" + ("" if number == 1 else "s")
