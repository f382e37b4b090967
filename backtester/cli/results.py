"""Commands that read results: ``runs``, ``show``, ``sql``, ``schema``, ``rebuild``."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from backtester.cli.environment import reports_folder
from backtester.cli.runs import ReportsDir, RunName
from backtester.cli.score import By
from backtester.errors import DataError
from backtester.texts.terminal import printable, printable_json


class Format(StrEnum):
    """How a query's result is written."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"


_LISTED = {
    "run_id",
    "status",
    "created_at",
    "finished_at",
    "cells_planned",
    "snapshot_name",
    "snapshot_id",
    "results_root",
}

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
ScoreName = Annotated[
    str | None, typer.Option("--score", help="Show this score of the run: its id, or a part of it.")
]


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.command("runs")(runs)
    app.command("show")(show)
    app.command("sql")(sql)
    app.command("schema")(schema)
    app.command("rebuild")(rebuild)


def runs(as_json: AsJson = False, reports_dir: ReportsDir = None) -> None:
    """List the runs of the reports folder; a damaged one is marked, and the exit code is 3."""
    from backtester.cli.render import show_runs
    from backtester.runs.folder import read_runs

    found = read_runs(reports_folder(reports_dir))
    if as_json:
        rows = [
            {
                **manifest.model_dump(mode="json", include=_LISTED),
                "evidence": manifest.label or "recorded",
            }
            for manifest in found.manifests
        ]
        unknown: dict[str, Any] = dict.fromkeys((*sorted(_LISTED), "evidence"))
        rows += [
            {**unknown, "run_id": run.run_id, "status": "damaged", "problem": run.problem}
            for run in found.damaged
        ]
        typer.echo(json.dumps(rows, indent=2, sort_keys=True))
    else:
        show_runs(found)
    if found.damaged:
        count = len(found.damaged) + len(found.manifests)
        raise DataError(f"{len(found.damaged)} of {count} runs: {found.damaged[0].problem}")


def show(
    name: RunName,
    score: ScoreName = None,
    by: By = None,
    as_json: AsJson = False,
    reports_dir: ReportsDir = None,
) -> None:
    """Show what a run was, what it saw, its rating table and scores; or one score of it."""
    from backtester.cli.render import show_manifest, show_run, show_sights
    from backtester.cli.render_parts import scopes_of
    from backtester.cli.render_scores import show_definition, show_score_table, show_scores
    from backtester.runs.folder import DATABASE_NAME, find_run
    from backtester.store.publishing import run_document
    from backtester.store.scores import score_lines, score_named

    reports = reports_folder(reports_dir)
    scopes = scopes_of(by) if by is not None else ()
    manifest = find_run(reports, name).read_manifest()
    database = reports / DATABASE_NAME
    chosen = None if score is None else score_named(database, manifest.run_id, score)
    if as_json:
        document = run_document(database, manifest.run_id, score_id=chosen)
        text = {"manifest": manifest.model_dump(mode="json"), "results": document}
        typer.echo(json.dumps(text, indent=2, sort_keys=True))
        return
    if chosen is not None:
        show_definition(database, manifest.run_id, chosen)
        show_scores(database, manifest.run_id, score_id=chosen, scopes=scopes)
        return
    show_manifest(manifest)
    show_sights(database, manifest.run_id)
    show_run(database, manifest.run_id, scopes=scopes)
    if len(score_lines(database, manifest.run_id)) > 1:
        typer.echo("\nall scores of the run; show RUN --score ID shows one:\n")
        show_score_table(database, manifest.run_id)


def sql(
    query: Annotated[str, typer.Argument(help="One SELECT.")],
    form: Annotated[
        Format | None,
        typer.Option("--format", help="How to write it; default by the file's suffix, else table."),
    ] = None,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="File to write.")] = None,
    time_limit: Annotated[float, typer.Option("--time-limit", help="Seconds, up to a day.")] = 60.0,
    reports_dir: ReportsDir = None,
) -> None:
    """Run one SELECT on the results, read-only, also while a run is going on.

    Files and pipes get the exact bytes of csv and json; on a terminal, control characters in
    them are shown as escapes.
    """
    from backtester.runs.folder import DATABASE_NAME
    from backtester.store.query import run_sql

    database = reports_folder(reports_dir) / DATABASE_NAME
    form = form or _format_of(out)
    text = run_sql(
        database, query, format=form.value, out=out, time_limit_s=time_limit, own_process=True
    )
    if sys.stdout.isatty():
        typer.echo(_for_terminal(text, form), nl=False)
    else:
        typer.echo(text.encode(), nl=False)


def _format_of(out: Path | None) -> Format:
    """Return the format that a file's suffix names, such as csv, and a table for any other."""
    suffix = out.suffix.lower().removeprefix(".") if out is not None else ""
    return Format(suffix) if suffix in set(Format) - {Format.TABLE} else Format.TABLE


def _for_terminal(text: str, form: Format) -> str:
    """Show what could command a terminal as escapes; JSON stays JSON."""
    return printable_json(text) if form is Format.JSON else printable(text)


def schema(
    name: Annotated[
        str | None, typer.Argument(help="One table or view; default all.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print every table, view and column with its unit."""
    from backtester.store.publishing import schema_document

    typer.echo(schema_document(as_json=as_json, name=name), nl=False)


def rebuild(reports_dir: ReportsDir = None) -> None:
    """Make the results database anew from the journals of all runs.

    What is damaged is named and left out, and the exit code is 3.
    """
    from backtester.publication import rebuild_database

    done = rebuild_database(reports_folder(reports_dir))
    for line in done.words():
        typer.echo(line)
    if done.left_out:
        for problem in done.left_out[:-1]:
            typer.echo(f"left out: {printable(problem)}", err=True)
        raise DataError(f"{len(done.left_out)} left out: {done.left_out[-1]}")
