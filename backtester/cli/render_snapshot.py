"""Print what a snapshot covers, and in what two of them differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from backtester.snapshots.coverage import Coverage
from backtester.snapshots.diff import TableDiff
from backtester.snapshots.snapshot import Snapshot
from backtester.texts.terminal import printable

# Narrower, the table would lose ends of words.
_LEAST_WIDTH = 120
_MOST_TOLD = 20
_LEFT = ("table", "subject")
_COUNTS = ("gaps", "conflicts", "estimated", "undated")


def show_snapshot(snapshot: Snapshot, coverage: Sequence[Coverage]) -> None:
    """Print a snapshot's tables, coverage, gaps and warnings."""
    typer.echo(f"snapshot {snapshot.name}, id {snapshot.id}")
    typer.echo(f"range    {snapshot.start} to {snapshot.end}")
    table = Table(box=None, pad_edge=False)
    for heading in (*_LEFT, "rows", "first", "last", *_COUNTS):
        table.add_column(heading, justify="left" if heading in _LEFT else "right", no_wrap=True)
    for row in coverage:
        table.add_row(
            row.table,
            Text(printable(row.subject, keep="")),
            str(row.rows),
            str(row.first or "none"),
            str(row.last or "none"),
            *(str(getattr(row, name)) for name in _COUNTS),
        )
    Console(highlight=False, width=_LEAST_WIDTH).print(table)
    for name, reason in sorted(snapshot.manifest.absent.items()):
        typer.echo(printable(f"absent   {name}: {reason}", keep=""))
    for line in _findings(snapshot):
        typer.echo(printable(line, keep=""))


def _findings(snapshot: Snapshot) -> Iterator[str]:
    findings = snapshot.manifest.findings
    kinds = Counter(finding.kind for finding in findings)
    if kinds:
        yield "findings " + ", ".join(f"{kinds[kind]} {kind}" for kind in sorted(kinds))
    for finding in findings[:_MOST_TOLD]:
        where = " ".join(str(word) for word in (finding.instrument, finding.session) if word)
        yield f"{finding.kind}  {where}{': ' if where else ''}{finding.message}"
    if len(findings) > _MOST_TOLD:
        yield f"... and {len(findings) - _MOST_TOLD} more: see --json"


def show_diff(diffs: Sequence[TableDiff], told: Sequence[str], most: int) -> None:
    """Print what differs, by table."""
    for diff in diffs:
        typer.echo(
            f"{diff.table}: {diff.same} rows equal, {len(diff.added)} added, "
            f"{len(diff.removed)} removed, {len(diff.changed)} values changed"
        )
        lines = list(_lines(diff))
        for line in lines[:most]:
            typer.echo(printable(line, keep=""))
        if len(lines) > most:
            typer.echo(f"  ... and {len(lines) - most} more: see --json")
    for message in told:
        typer.echo(printable(f"since the earlier capture: {message}", keep=""))


def _lines(diff: TableDiff) -> Iterator[str]:
    for change in diff.changed:
        yield (f"  {change.key}: {change.column} {change.old or 'NULL'} -> {change.new or 'NULL'}")
    for sign, keys in (("+", diff.added), ("-", diff.removed)):
        for key in keys:
            yield f"  {sign} {key}"
