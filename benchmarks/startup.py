"""How long the command line takes before it does anything."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.measure import Benchmark, Finding, Outcome, time_sides

HELP_LIMIT_S = 0.5


def _start(*arguments: str) -> None:
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)


def run() -> Outcome:
    """Time ``backtester --help`` beside an empty interpreter."""
    timings = time_sides(
        {
            "python -c pass": lambda: _start("-c", "pass"),
            "backtester --help": lambda: _start(
                "-c", "from backtester.cli import main; main(['--help'])"
            ),
        },
        repeats=7,
    )
    empty, helped = timings
    return Outcome(
        timings=timings,
        findings=(
            Finding(label="--help", value=helped.median, unit="s", bound=HELP_LIMIT_S),
            Finding(label="--help v. an empty interpreter", value=helped.median / empty.median),
        ),
    )


STARTUP = Benchmark(
    name="startup",
    question="Does --help answer at once, with nothing heavy imported?",
    run=run,
)
