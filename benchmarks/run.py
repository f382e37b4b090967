"""Run benchmarks: ``python -m benchmarks.run [NAME ...] [--list] [--json FILE]``.

Exit code 0 if every bound is kept, 1 if one is not, 2 for an unknown name. A new benchmark is one
file and one line in `BENCHMARKS`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.floor import FLOOR
from benchmarks.freezing import FREEZING
from benchmarks.indicators import INDICATORS
from benchmarks.measure import Benchmark, Finding, Outcome, Timing, machine
from benchmarks.replies import REPLIES
from benchmarks.rescore import RESCORE
from benchmarks.sql import SQL
from benchmarks.startup import STARTUP

BENCHMARKS: tuple[Benchmark, ...] = (STARTUP, FLOOR, INDICATORS, REPLIES, FREEZING, RESCORE, SQL)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmarks that were asked for and return the exit code."""
    options = _parse(arguments)
    chosen = {benchmark.name: benchmark for benchmark in BENCHMARKS}
    unknown = [name for name in options.names if name not in chosen]
    if unknown:
        print(f"no benchmark {unknown[0]!r}: choose from {', '.join(chosen)}", file=sys.stderr)
        return 2
    if options.list:
        for benchmark in BENCHMARKS:
            print(f"{benchmark.name:<12}{benchmark.question}")
        return 0
    print(machine())
    outcomes: dict[str, Outcome] = {}
    for name in options.names or chosen:
        print(f"\n{name}: {chosen[name].question}", flush=True)
        outcomes[name] = chosen[name].run()
        _print(outcomes[name])
    if options.json:
        _write(options.json, outcomes)
    broken = [f for outcome in outcomes.values() for f in outcome.findings if not f.holds]
    if broken:
        print(f"\n{len(broken)} of the bounds not kept", file=sys.stderr)
    return 1 if broken else 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="benchmarks to run; all if none")
    parser.add_argument("--list", action="store_true", help="list the benchmarks and stop")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here too")
    return parser.parse_args(arguments)


def _print(outcome: Outcome) -> None:
    for timing in outcome.timings:
        print(f"  {timing.label:<44}{_duration(timing)}")
    for finding in outcome.findings:
        print(f"  {finding.label:<44}{_figure(finding)}")


def _duration(timing: Timing) -> str:
    middle, low, high = (value * 1000 for value in (timing.median, timing.low, timing.high))
    return f"{middle:10.3f} ms  ({low:.3f} to {high:.3f}, {timing.repeats} repeats)"


def _figure(finding: Finding) -> str:
    text = f"{finding.value:10.3g} {finding.unit}"
    if finding.bound is None:
        return text
    verdict = "kept" if finding.holds else "NOT KEPT"
    return f"{text:<14} bound {finding.sense} {finding.bound:g} {finding.unit}: {verdict}"


def _write(path: Path, outcomes: dict[str, Outcome]) -> None:
    document = {
        "machine": machine(),
        "outcomes": {name: asdict(outcome) for name, outcome in outcomes.items()},
    }
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
