"""The command line, one module for each group of commands.

Heavy libraries are imported inside commands, so that ``--help`` and ``sql`` start at once. Errors
become one line and an exit code here and nowhere else.
"""

from __future__ import annotations

import errno
import sys
from importlib import metadata

import typer
from typer.exceptions import Abort, Exit, TyperException

from backtester.cli import (
    analyze,
    audit,
    data,
    demo,
    freeze,
    imports,
    models,
    results,
    runs,
    score,
    transcript,
)
from backtester.cli.environment import load_dotenv
from backtester.errors import BacktesterError
from backtester.texts.terminal import printable, shortened
from tradingagents_core.errors import CoreError, LookaheadError, PipelineError

INTERRUPTED = 130
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

app = typer.Typer(
    name="backtester",
    help="Backtest agent pipelines offline: repeatable to the byte, blind to the future.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"backtester {metadata.version('tradingagents-backtester')}")
        raise typer.Exit


@app.callback()
def options(
    debug: bool = typer.Option(False, "--debug", help="Show the traceback of an error."),
    version: bool = typer.Option(
        False, "--version", help="Print the version and stop.", callback=_version, is_eager=True
    ),
) -> None:
    """Backtest agent pipelines offline: repeatable to the byte, blind to the future."""


for group in (
    demo,
    freeze,
    runs,
    score,
    imports,
    analyze,
    results,
    audit,
    data,
    models,
    transcript,
):
    group.register(app)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and leave with the documented exit code."""
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code (`backtester.errors`).

    Args:
        arguments: Words after the program's name.
    """
    debug = "--debug" in arguments
    # Nothing was asked for, so what there is to ask for is the answer.
    arguments = [word for word in arguments if word != "--debug"] or ["--help"]
    try:
        load_dotenv()
        code = app(args=arguments, standalone_mode=False, prog_name="backtester")
    except Exit as leave:
        return leave.exit_code
    except (KeyboardInterrupt, Abort):
        return _interrupted()
    except SystemExit as leave:
        # Typer leaves on its own where the reader of a pipe has gone; that is no failed cell.
        if isinstance(leave.__context__, BrokenPipeError):
            return 0
        raise
    except TyperException as error:
        return _misused(error.format_message())
    except (BacktesterError, CoreError, LookaheadError, OSError) as error:
        if debug:
            raise
        return _expected(error)
    except Exception as error:
        if debug:
            raise
        kind = type(error).__name__
        return _say(f"fault: {kind}: {_one_line(error)} (a fault of our own; see --debug)", 70)
    # Typer turns an interrupt into an exit code of its own.
    return _interrupted() if code == INTERRUPTED else int(code or 0)


def _misused(message: str) -> int:
    if message.startswith("Usage:"):
        # A group of commands without a command: its help is no error in one line.
        typer.echo(message)
        return 2
    return _say(f"error: {_one_line(message).rstrip('.')}: see 'backtester --help'", 2)


def _interrupted() -> int:
    return _say("interrupted: the same command goes on from here", INTERRUPTED)


def _expected(error: BaseException) -> int:
    if isinstance(error, BrokenPipeError):
        return 0
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        words = _one_line(f"{where}{error.strerror or error}")
        advice = "make room, or name" if error.errno in _FULL else "allow it, or name"
        return _say(f"error: {words}: {advice} another place, and run again", 2)
    return _say(f"error: {_one_line(error)}", _exit_code(error))


def _exit_code(error: BaseException) -> int:
    if isinstance(error, BacktesterError):
        return error.exit_code
    if isinstance(error, LookaheadError):
        return 7
    return 5 if isinstance(error, PipelineError) else 2


def _one_line(error: BaseException | str) -> str:
    # A message may quote a server or a file, which must not command the terminal.
    return printable(shortened(" ".join(str(error).split())))


def _say(line: str, code: int) -> int:
    typer.echo(line, err=True)
    return code
