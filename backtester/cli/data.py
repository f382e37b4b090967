"""Commands on files: ``snapshot show|verify``, ``cassette verify|stats|pack|unpack``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from backtester.cli.environment import data_folder, reports_folder
from backtester.cli.runs import DataDir, ReportsDir, RunName
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


@cassette_app.command("verify")
def cassette_verify(data_dir: DataDir = None) -> None:
    """Derive every key of the cache again and check every record."""
    from backtester.cassette import verify_cache
    from backtester.plan import cache_folder

    folder = cache_folder(data_folder(data_dir))
    report = verify_cache(folder)
    for problem in report.problems:
        typer.echo(f"problem: {problem}", err=True)
    if report.problems:
        raise DataError(
            f"cache {folder} has {_count(len(report.problems), 'damaged record')} of "
            f"{report.records}: bring back a whole copy, or delete the cache and record again"
        )
    typer.echo(f"cache {folder}: {report.records} records, every key derived again, all whole")


@cassette_app.command("stats")
def cassette_stats(data_dir: DataDir = None) -> None:
    """Count the recorded replies by node and model."""
    from backtester.cassette import cache_stats
    from backtester.cli.render import show_stats
    from backtester.plan import cache_folder

    show_stats(cache_stats(cache_folder(data_folder(data_dir))))


@cassette_app.command("pack")
def cassette_pack(
    name: RunName,
    out: Annotated[Path, typer.Option("-o", "--out", help="File to write, *.jsonl.zst.")],
    data_dir: DataDir = None,
    reports_dir: ReportsDir = None,
) -> None:
    """Pack a run into one file: its manifest, its journal and the replies that it used."""
    from backtester.cassette import pack
    from backtester.journal import read_ledger
    from backtester.plan import cache_folder
    from backtester.reply_cache import ReplyCache
    from backtester.runs import find_run

    folder = find_run(reports_folder(reports_dir), name)
    folder.read_manifest()
    ledger = read_ledger(folder.journal_path)
    calls = [call for cell in ledger.cells.values() for call in cell.calls]
    calls += [call for lesson in ledger.lessons.values() for call in lesson.calls]
    digest = pack(
        out,
        manifest=folder.manifest_path.read_text(encoding="utf-8"),
        journal=folder.journal_path.read_text(encoding="utf-8").splitlines(),
        keys=(call.key for call in calls if not call.finish_reason.startswith("outcome:")),
        cache=ReplyCache.open(cache_folder(data_folder(data_dir)), read_only=True),
    )
    typer.echo(f"packed {folder.run_id} into {out}, content {digest}")


@cassette_app.command("unpack")
def cassette_unpack(
    file: Annotated[Path, typer.Argument(help="Packed run, *.jsonl.zst.")],
    data_dir: DataDir = None,
) -> None:
    """Add the replies of a packed run to the cache; those that are there stay."""
    from backtester.cassette import read_cassette, unpack
    from backtester.plan import cache_folder
    from backtester.reply_cache import ReplyCache

    done = unpack(read_cassette(file), ReplyCache.open(cache_folder(data_folder(data_dir))))
    typer.echo(f"{done.added} replies added, {done.present} were there")


def _count(number: int, word: str) -> str:
    return f"{number} {word}" + ("" if number == 1 else "s")
