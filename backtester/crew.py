"""Who decides: the cells of a barrier in turn, in threads, or in loky processes.

Results come back in the order of the tasks, so the number of workers can change nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from joblib import Parallel, delayed

from backtester.cell import (
    BenchSpec,
    CellTask,
    LessonTask,
    Workbench,
    decide_cell,
    write_lesson,
)
from backtester.errors import UsageError
from backtester.network import block_network
from backtester.records import CellRecord, LessonRecord


class Crew:
    """Map tasks over workers in order: in turn, in threads, or in loky processes."""

    def __init__(self, spec: BenchSpec, *, api_key: str | None, bench: Workbench) -> None:
        self.spec = spec
        self.bench = bench
        self._workers = spec.config.workers
        self._backend = spec.config.backend
        if self._backend == "loky" and api_key is not None:
            raise UsageError(
                "backend 'loky' would hand the API key to other processes: "
                "use backend 'threading' for recording"
            )
        self._pool = (
            Parallel(n_jobs=self._workers, backend=self._backend) if self._workers > 1 else None
        )

    def decide(self, tasks: Sequence[CellTask]) -> list[CellRecord]:
        """Decide cells; results in the order of the tasks."""
        if self._pool is None or len(tasks) < 2:
            return [decide_cell(self.bench, task) for task in tasks]
        if self._backend == "threading":
            return list(self._pool(delayed(decide_cell)(self.bench, task) for task in tasks))
        return list(self._pool(delayed(_decide_remotely)(self.spec, task) for task in tasks))

    def reflect(self, tasks: Sequence[LessonTask]) -> list[LessonRecord]:
        """Write lessons; results in the order of the tasks."""
        if self._pool is None or len(tasks) < 2:
            return [write_lesson(self.bench, task) for task in tasks]
        if self._backend == "threading":
            return list(self._pool(delayed(write_lesson)(self.bench, task) for task in tasks))
        return list(self._pool(delayed(_reflect_remotely)(self.spec, task) for task in tasks))


# What this worker built last, by the words of its spec; settings hold tables and have no hash.
_KEPT: dict[str, Workbench] = {}


def _bench_of(spec: BenchSpec) -> Workbench:
    # Runs in a loky worker, which does not inherit the audit hook of its parent.
    if spec.config.mode == "replay":
        block_network()
    words = repr(spec)
    if words not in _KEPT:
        _KEPT.clear()
        _KEPT[words] = Workbench.build(spec)
    return _KEPT[words]


def _decide_remotely(spec: BenchSpec, task: CellTask) -> CellRecord:
    return decide_cell(_bench_of(spec), task)


def _reflect_remotely(spec: BenchSpec, task: LessonTask) -> LessonRecord:
    return write_lesson(_bench_of(spec), task)
