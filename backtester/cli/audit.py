"""Commands that prove: ``leakcheck``, ``doctor``."""

from __future__ import annotations

import typer

from backtester.cli.environment import data_folder, reports_folder
from backtester.cli.runs import DataDir, ReportsDir, RunName
from backtester.errors import VerificationFailed


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.command("leakcheck")(leakcheck)


def leakcheck(
    name: RunName,
    data_dir: DataDir = None,
    reports_dir: ReportsDir = None,
) -> None:
    """Rewrite the future of a finished run in every way and compare every prompt."""
    from backtester.leakcheck import NOT_COVERED
    from backtester.leakcheck import leakcheck as check
    from backtester.runs import find_run

    report = check(find_run(reports_folder(reports_dir), name), data_folder(data_dir))
    typer.echo(f"run            {report.run_id}")
    typer.echo(f"futures tried  {', '.join(report.ways)}, at each of {report.cutoffs} cutoffs")
    typer.echo(f"prompts        {report.prompts} made again and compared")
    typer.echo(f"lessons        {report.lessons} written again and compared")
    typer.echo(f"fills          {report.fills} after their cutoff, or flagged same_bar")
    typer.echo(f"lessons shown  {report.lessons_shown} known at their reader's cutoff")
    typer.echo(f"reads          {report.reads} of rows known at their cutoff")
    for words in NOT_COVERED:
        typer.echo(f"not covered    {words}")
    if report.clean:
        typer.echo("clean: no prompt, lesson or fill depends on the future")
        return
    for finding in report.findings[:20]:
        typer.echo(f"leak ({finding.check}): {finding.where}: {finding.detail}", err=True)
    first = report.findings[0]
    raise VerificationFailed(
        f"{len(report.findings)} findings in {report.run_id}; the first is {first.check} "
        f"at {first.where}"
    )
