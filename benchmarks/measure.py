"""What a benchmark is, and how two things are timed fairly against each other."""

from __future__ import annotations

import gc
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Hold the seconds of one side of a comparison, for one unit of its work.

    Attributes:
        label: What was timed.
        median: Median of the repeats.
        low: Fastest repeat.
        high: Slowest repeat.
        repeats: Number of repeats.
    """

    label: str
    median: float
    low: float
    high: float
    repeats: int


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Hold one figure and the bound that it must keep.

    Attributes:
        label: What the figure says.
        value: The figure: a ratio (no unit), or a value in ``unit``.
        unit: ``x`` for a ratio, else ``s``, ``MB``, ``1/s``, or what is counted.
        bound: Limit, or None for a figure that is only reported.
        sense: Whether the bound is the most (``<=``) or the least (``>=``) that is right.
    """

    label: str
    value: float
    unit: str = "x"
    bound: float | None = None
    sense: Literal["<=", ">="] = "<="

    @property
    def holds(self) -> bool:
        """Say whether the bound is kept; a figure without one keeps it."""
        if self.bound is None:
            return True
        return self.value <= self.bound if self.sense == "<=" else self.value >= self.bound


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Hold what a benchmark found.

    Attributes:
        timings: The raw sides, for the reader.
        findings: The figures, with their bounds.
    """

    timings: tuple[Timing, ...] = ()
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """Name a benchmark.

    Attributes:
        name: Word on the command line.
        question: The question that it answers.
        run: Measures and returns what it found. Imports of what it measures belong inside.
    """

    name: str
    question: str
    run: Callable[[], Outcome]


def time_sides(
    sides: Mapping[str, Callable[[], object]],
    *,
    repeats: int,
    units: int = 1,
    warm_up: int = 1,
    passes: int = 1,
) -> tuple[Timing, ...]:
    """Time several callables in turn, so that a slow spell of the machine hits all of them.

    Args:
        sides: What to time, by label, in the order of the report.
        repeats: Rounds that count.
        units: How many of the thing one call does; seconds are given for one of them.
        warm_up: Rounds before them that do not.
        passes: How often a side is timed in its turn, each time by itself. What takes microseconds
            would else be timed with caches that the other sides, or a collection, have emptied.
    """
    seconds: dict[str, list[float]] = {label: [] for label in sides}
    for turn in range(warm_up + repeats):
        for label, side in sides.items():
            gc.collect()
            for _ in range(passes):
                started = time.perf_counter()
                side()
                if turn >= warm_up:
                    seconds[label].append((time.perf_counter() - started) / units)
    return tuple(
        Timing(
            label=label,
            median=statistics.median(taken),
            low=min(taken),
            high=max(taken),
            repeats=repeats * passes,
        )
        for label, taken in seconds.items()
    )


def machine() -> str:
    """Return one line on the machine: processor, cores, memory, system, Python, load."""
    parts = [
        _first_field("/proc/cpuinfo", "model name") or platform.processor() or "unknown processor",
        f"{os.cpu_count()} cores",
    ]
    memory = _first_field("/proc/meminfo", "MemTotal")
    if memory:
        parts.append(f"{int(memory.split()[0]) / 1024**2:.0f} GiB")
    parts += [f"{platform.system()} {platform.machine()}", f"Python {platform.python_version()}"]
    if hasattr(os, "getloadavg"):
        parts.append(f"load {os.getloadavg()[0]:.1f}")
    return ", ".join(parts)


def _first_field(path: str, name: str) -> str | None:
    file = Path(path)
    if not file.is_file():
        return None
    for line in file.read_text(encoding="utf-8").splitlines():
        field, _, value = line.partition(":")
        if field.strip() == name:
            return value.strip()
    return None
