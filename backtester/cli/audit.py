"""Commands that prove: ``leakcheck``."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from backtester.cli.environment import data_folder, reports_folder
from backtester.cli.runs import DataDir, ReportsDir, Workers, words_of
from backtester.errors import UsageError, VerificationFailed

if TYPE_CHECKING:
    from backtester.leaks.report import LeakReport

Name = Annotated[
    str | None,
    typer.Argument(
        help="Run id, a part of it, or 'latest'; left out where a pipeline is named.",
        show_default=False,
    ),
]
Words = str | None
# Held by a test: it runs, and it is clean.
OWN_PIPELINE = """\
# own.py; then: PYTHONPATH=. backtester leakcheck --pipeline own:decide \\
#   --snapshot us-2013-2018 --tickers AAPL --dates 2018-01-05,2018-02-02
def decide(view, ticker, session):
    # view: what was known at view.cutoff; session: a date, as view.session
    #   view.bars(ticker, start=, end=, last=)    view.identity(ticker)
    #   view.rows("news", ticker, last=)          view.indicators(...)
    closes = view.bars(ticker, last=20).close
    name = view.identity(ticker).name
    # Text, or lists and mappings of text, numbers and dates.
    return [f"{name} on {session} closed at {closes[-1]}", list(closes)]
"""
_EPILOG = f"""\
A pipeline of your own is a function that is called with three arguments, afresh in every world,
and returns what is compared: its prompts, its decision, or both. It may ask no network.

\b
{OWN_PIPELINE}"""
Pipeline = Annotated[
    Words, typer.Option(help="Audit a pipeline of your own: package.module:callable.")
]
Dates = Annotated[
    Words, typer.Option(help="Decision dates with commas; or a grid, with --start and --end.")
]


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.command("leakcheck", epilog=_EPILOG)(leakcheck)


def leakcheck(
    name: Name = None,
    pipeline: Pipeline = None,
    snapshot: Annotated[Words, typer.Option(help="Snapshot that it is called on.")] = None,
    tickers: Annotated[Words, typer.Option(help="Instruments, separated by commas.")] = None,
    dates: Dates = None,
    start: Annotated[Words, typer.Option(help="First date of a grid.")] = None,
    end: Annotated[Words, typer.Option(help="Last date of a grid.")] = None,
    decision_time: Annotated[str, typer.Option(help="close or open, of its views.")] = "close",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    workers: Workers = None,
    data_dir: DataDir = None,
    reports_dir: ReportsDir = None,
) -> None:
    """Change the future of a finished run, or of a pipeline, and compare every prompt."""
    of_pipeline = {"snapshot": snapshot, "tickers": tickers, "dates": dates}
    _require_one_subject(name, pipeline, of_pipeline)
    question = {**of_pipeline, "start": start, "end": end, "tickers": words_of(tickers) or ()}
    from backtester.audits import leakcheck as check
    from backtester.cli.render_leaks import LeakProgress, show_leaks

    with LeakProgress("leakcheck") as progress:
        report = check(
            name,
            pipeline=pipeline,
            decision_time=_time_of(decision_time),
            reports_dir=reports_folder(reports_dir),
            data_dir=data_folder(data_dir),
            workers=1 if workers is None else workers,
            progress=progress,
            **cast("dict[str, Any]", question),
        )
    if as_json:
        typer.echo(json.dumps({**asdict(report), "clean": report.clean}, indent=2, default=str))
    else:
        show_leaks(report)
    _tell_leaks(report)


def _require_one_subject(name: str | None, pipeline: str | None, needed: dict[str, Words]) -> None:
    """Refuse a command that names neither a run nor a whole pipeline question, or both.

    Raises:
        UsageError: With what to write.
    """
    missing = [f"--{word}" for word, value in needed.items() if not value]
    if pipeline is None:
        if name is None or len(missing) < len(needed):
            raise UsageError(
                "name a run such as 'latest', or --pipeline package.module:callable with "
                "--snapshot, --tickers and --dates"
            )
        return
    if name is not None:
        raise UsageError("name a run or --pipeline, not both")
    if missing:
        raise UsageError(f"--pipeline needs {', '.join(missing)} too")


def _time_of(word: str) -> Literal["close", "open"]:
    if word not in ("close", "open"):
        raise UsageError(f"--decision-time {word!r} is none: write close or open")
    return cast("Literal['close', 'open']", word)


def _tell_leaks(report: LeakReport) -> None:
    """Say on standard error what was found, if anything.

    Raises:
        VerificationFailed: Something was.
    """
    if report.clean:
        return
    from backtester.cli.render_leaks import verdict
    from backtester.texts.terminal import printable

    for finding in report.findings[:20]:
        typer.echo(f"leak: {printable(finding.words(), keep='')}", err=True)
    if len(report.findings) > 20:
        typer.echo(f"... and {len(report.findings) - 20} more; --json lists them all", err=True)
    raise VerificationFailed(verdict(report.subject, report.findings))
