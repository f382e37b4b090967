"""The command ``import``: decisions that others made become a run to score."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from backtester.cli.environment import data_folder, reports_folder
from backtester.cli.runs import Benchmark, DataDir, Entry, Horizon, ReportsDir, SnapshotName, Text
from backtester.texts.terminal import printable

if TYPE_CHECKING:
    from backtester.imports.imports import ImportResult

_SHOWN = 10

Source = Annotated[
    Path,
    typer.Argument(
        help="CSV, Parquet, trading_memory.md, or a folder of full_states_log_*.json. A date is a "
        "day of the instrument's exchange, by whose cutoff the decision was made."
    ),
]
DecisionTime = Annotated[
    Text, typer.Option(help="Whether decisions were made at the close (default) or the open.")
]
Name = Annotated[Text, typer.Option(help="Readable front of the run id.")]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Leave bad rows out.")]
StrictDates = Annotated[
    bool,
    typer.Option(
        "--strict-dates",
        help="Refuse a date that is no session; default: the session before if orders then fill "
        "after the date, else the session after.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add this module's command."""
    app.command("import")(import_)


def import_(
    source: Source,
    snapshot: SnapshotName = None,
    horizon: Horizon = None,
    entry: Entry = None,
    decision_time: DecisionTime = None,
    benchmark: Benchmark = None,
    name: Name = None,
    skip_bad: SkipBad = False,
    strict_dates: StrictDates = False,
    data_dir: DataDir = None,
    reports_dir: ReportsDir = None,
) -> None:
    """Make existing decisions a run to score; they bring no prompts, so nothing proves them."""
    from backtester.cli.render import show_run
    from backtester.imports.imports import import_decisions
    from backtester.runs.folder import EXTERNAL_LABEL

    given: dict[str, Any] = {
        "snapshot": snapshot,
        "horizon": horizon,
        "entry": entry,
        "decision_time": decision_time,
        "benchmark": benchmark,
        "name": name,
        "data_dir": data_folder(data_dir),
        "reports_dir": reports_folder(reports_dir),
    }
    settings = {field: value for field, value in given.items() if value is not None}
    result = import_decisions(source, settings, skip_bad=skip_bad, strict_dates=strict_dates)
    _tell(result)
    show_run(result.database, result.run_id, note=EXTERNAL_LABEL)


def _tell(result: ImportResult) -> None:
    there = "" if result.new else " (was there already)"
    typer.echo(
        f"run {result.run_id}: {_count(result.cells, 'decision')} imported{there}, "
        f"{result.unread} without a rating"
    )
    if result.moved:
        typer.echo(
            f"{_count(result.moved, 'date')} without a session moved to the session before, which "
            "fills after the date"
        )
    if result.moved_on:
        dates = _count(result.moved_on, "date")
        typer.echo(
            f"{dates} without a session moved to the session after: nothing fills before its date"
        )
    if result.repeated:
        typer.echo(f"{_count(result.repeated, 'row')} left out that said the same as another")
    for note in result.notes:
        typer.echo(printable(note))
    for row in result.skipped[:_SHOWN]:
        typer.echo(printable(f"left out: {row}"))
    if len(result.skipped) > _SHOWN:
        typer.echo(f"left out: {len(result.skipped) - _SHOWN} more")
    typer.echo("")


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"
