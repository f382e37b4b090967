"""Commands on files: ``snapshot show|verify``, and the group ``cassette``."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from backtester.cli import cassettes
from backtester.cli.environment import data_folder
from backtester.cli.runs import DataDir
from backtester.errors import DataError

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
    from backtester.cli.render import show_snapshot
    from backtester.snapshot import open_snapshot

    snapshot = open_snapshot(name, data_folder(data_dir))
    if as_json:
        typer.echo(json.dumps(snapshot.manifest.model_dump(mode="json"), indent=2, sort_keys=True))
        return
    show_snapshot(snapshot)


@snapshot_app.command("verify")
def snapshot_verify(
    name: Annotated[str, typer.Argument(help="Name or folder.")] = "us-2013-2018",
    data_dir: DataDir = None,
) -> None:
    """Hash every file again, derive the snapshot id again and repeat the checks."""
    from backtester.snapshot import find_snapshot, verify_snapshot

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


def _count(number: int, word: str) -> str:
    return f"{number} {word}" + ("" if number == 1 else "s")
