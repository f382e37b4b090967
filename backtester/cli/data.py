"""Commands on files: ``snapshot show|verify``, ``cassette verify|stats|pack|unpack``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from backtester.cli.runs import DataDir
from backtester.errors import DataError

snapshot_app = typer.Typer(help="Look at snapshots and verify them.", no_args_is_help=True)
cassette_app = typer.Typer(help="Look at recorded replies and verify them.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add this module's command groups."""
    app.add_typer(snapshot_app, name="snapshot")
    app.add_typer(cassette_app, name="cassette")


@snapshot_app.command("show")
def snapshot_show(
    name: Annotated[str, typer.Argument(help="Name or folder.")] = "us-2013-2018",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    data_dir: DataDir = None,
) -> None:
    """List what a snapshot holds, from where, and what it lacks."""
    from backtester.cli.render import show_snapshot
    from backtester.snapshot import open_snapshot

    snapshot = open_snapshot(name, data_dir or Path("data"))
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

    path = find_snapshot(name, data_dir or Path("data"))
    problems = verify_snapshot(path)
    for problem in problems:
        typer.echo(f"problem: {problem}", err=True)
    if problems:
        raise DataError(f"snapshot {path} has {len(problems)} problems: bring back a whole copy")
    typer.echo(f"snapshot {path} is whole")


@cassette_app.command("verify")
def cassette_verify(data_dir: DataDir = None) -> None:
    """Derive every key of the cache again and check every record."""
    from backtester.cassette import verify_cache
    from backtester.plan import cache_folder

    folder = cache_folder(data_dir or Path("data"))
    report = verify_cache(folder)
    for problem in report.problems:
        typer.echo(f"problem: {problem}", err=True)
    if report.problems:
        raise DataError(
            f"cache {folder} has {len(report.problems)} damaged records of {report.records}: "
            "delete them by key and record again"
        )
    typer.echo(f"cache {folder}: {report.records} records, every key derived again, all whole")
