"""Print what a leak audit tried and found, and draw its progress."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import typer
from rich.console import Console
from rich.table import Table

from backtester.cli.render_progress import StepBar
from backtester.leaks.clock import WORDS as CLOCK_WORDS
from backtester.leaks.report import LESSONS, Finding, LeakReport, TableLine
from backtester.schema import TABLES
from backtester.texts.terminal import printable

_WORLDS = {
    "again": "again      the same world in another process: what does not repeat proves nothing",
    "rewritten": "rewritten  later numbers scaled, later texts a canary word, later versions and "
    "actions added",
    "cut": "cut        later rows deleted, later names forgotten, the data end at the session",
    "moved": f"moved      wall clock and time zone are {CLOCK_WORDS}",
}
# Narrower, the table would lose ends of words.
_LEAST_WIDTH = 100
_COUNTS = ("rows", "added", "texts", "prompts", "leaks")


class LeakProgress(StepBar):
    """Show the steps of an audit on standard error."""

    def __init__(self, word: str) -> None:
        super().__init__(word, "steps")

    def began(self, subject: str, steps: int, worlds: Sequence[str]) -> None:
        """Take the number of steps in each world."""
        if self._bar.disable:
            names = f"each of {len(worlds)} worlds ({', '.join(worlds)})"
            line = f"{self._word} {printable(subject, keep='')}: {steps} steps in {names} ..."
            self._bar.console.print(line, markup=False, soft_wrap=True)
        words = f"world {worlds[0]}" if worlds else ""
        self._task = self._bar.add_task("", total=steps * len(worlds), words=words)

    def advanced(self, steps: int, world: str, findings: int | None) -> None:
        """Take note of steps that are done."""
        if self._task is not None:
            said = "" if findings is None else f", {findings} finding{'s'[: findings != 1]}"
            self._bar.update(self._task, advance=steps, words=f"world {world}{said}")


def show_leaks(report: LeakReport) -> None:
    """Print what was tried, what was compared and what cannot be seen."""
    for line in _head(report):
        typer.echo(line)
    typer.echo("")
    Console(highlight=False, width=_LEAST_WIDTH).print(_table(report))
    typer.echo("(each row and text is counted at every cutoff that it lies behind)\n")
    for reason, tables in _untried(report).items():
        typer.echo(f"not tried      {', '.join(tables)}: {printable(reason, keep='')}")
    for words in report.not_covered:
        typer.echo(f"not covered    {words}")
    if report.clean:
        typer.echo("clean: nothing that was compared depends on the future or on the clock")


def verdict(subject: str, findings: Sequence[Finding]) -> str:
    """Return how much was found in a subject, and what first, as one line."""
    first, count = findings[0], len(findings)
    found = "1 finding" if count == 1 else f"{count} findings, the first"
    return f"{subject}: {found}: {first.check.replace('_', ' ')}, {first.where}"


def _head(report: LeakReport) -> Iterator[str]:
    yield f"subject        {printable(report.subject, keep='')}"
    for way in report.ways:
        yield f"world          {_WORLDS[way]}"
    yield f"cutoffs        {report.cutoffs}, each with worlds of its own"
    if "again" not in report.ways:
        yield f"prompts        {report.prompts} made again and compared to the byte"
        yield f"lessons        {report.lessons} written again and compared"
        yield f"fills          {report.fills} audited: after their cutoff, or flagged same_bar"
        yield f"lessons shown  {report.lessons_shown} audited: known at their reader's cutoff"
        yield f"reads          {report.reads} audited: of rows known at their cutoff"
    else:
        yield f"outputs        {report.prompts} made again and compared to the byte"
        yield f"reads          {report.reads} of the view in the true world"
    if report.raised:
        yield f"raised         {report.raised} calls raised an error, the same in every world"


def _table(report: LeakReport) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("table", *_COUNTS):
        words = {"rows": "rows poisoned", "texts": "texts planted", "prompts": "compared"}
        table.add_column(
            words.get(heading, heading), justify="left" if heading == "table" else "right"
        )
    for line in report.tables:
        if not line.note or line.leaks:
            table.add_row(printable(line.table, keep=""), *_counts(line))
    return table


def _counts(line: TableLine) -> Iterator[str]:
    for name in _COUNTS:
        # A clock has no rows.
        said = line.table in TABLES or line.table == LESSONS or name in ("prompts", "leaks")
        yield f"{getattr(line, name):,}" if said else ""


def _untried(report: LeakReport) -> dict[str, list[str]]:
    """Return the tables with which nothing was tried, by reason."""
    reasons: dict[str, list[str]] = {}
    for line in report.tables:
        if line.note:
            reasons.setdefault(line.note, []).append(line.table)
    return reasons
