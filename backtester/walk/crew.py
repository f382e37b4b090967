"""Who decides: the cells of a barrier in turn, in threads, in loky processes, or on a cluster.

Results come back in the order of the tasks, so the number of workers can change nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

from joblib import Parallel, delayed

from backtester.errors import UsageError
from backtester.network import network_blocked
from backtester.records import CellRecord, LessonRecord
from backtester.spending.tariff import TIERS, is_paid
from backtester.walk.cell import (
    BenchSpec,
    CellTask,
    LessonTask,
    Workbench,
    decide_cell,
    write_lesson,
)
from backtester.walk.cluster import Cluster, cluster_of


class Crew:
    """Map tasks over workers in order: in turn, in threads, in loky processes, or on a cluster.

    Without a cluster at hand what is asked of one is done in turn.
    """

    def __init__(
        self,
        spec: BenchSpec,
        *,
        api_keys: Mapping[str, str],
        bench: Workbench,
        cluster: Cluster | None = None,
    ) -> None:
        self.spec = spec
        self.bench = bench
        self._cluster = cluster
        self._workers = spec.config.workers
        self._backend = spec.config.backend
        if self._backend == "loky" and api_keys:
            raise UsageError(
                "backend 'loky' would hand API keys to other processes: "
                "use backend 'threading' for recording"
            )
        specs = [spec.config.model_spec(tier) for tier in TIERS]
        if (
            self._backend == "loky"
            and spec.config.mode != "replay"
            and any(is_paid(model.provider) for model in specs)
        ):
            raise UsageError(
                "backend 'loky' makes calls in other processes, where caps and the spend ledger "
                "do not reach: use backend 'threading' for recording"
            )
        self._pool = (
            Parallel(n_jobs=self._workers, backend=self._backend)
            if self._workers > 1 and self._backend != "dask"
            else None
        )

    def decide(self, tasks: Sequence[CellTask]) -> list[CellRecord]:
        """Decide cells; results in the order of the tasks."""
        if self._cluster is not None:
            return self._cluster.decide(tasks)
        if self._pool is None or len(tasks) < 2:
            return [decide_cell(self.bench, task) for task in tasks]
        if self._backend == "threading":
            return list(self._pool(delayed(decide_cell)(self.bench, task) for task in tasks))
        return list(self._pool(delayed(_decide_remotely)(self.spec, task) for task in tasks))

    def reflect(self, tasks: Sequence[LessonTask]) -> list[LessonRecord]:
        """Write lessons; results in the order of the tasks."""
        if self._cluster is not None:
            return self._cluster.reflect(tasks)
        if self._pool is None or len(tasks) < 2:
            return [write_lesson(self.bench, task) for task in tasks]
        if self._backend == "threading":
            return list(self._pool(delayed(write_lesson)(self.bench, task) for task in tasks))
        return list(self._pool(delayed(_reflect_remotely)(self.spec, task) for task in tasks))


@contextmanager
def crew_of(
    spec: BenchSpec, *, api_keys: Mapping[str, str], bench: Workbench, run_id: str
) -> Iterator[Crew]:
    """Gather a run's crew while the block runs, with a cluster where its configuration has one.

    Raises:
        UsageError: See `Crew` and `cluster_of`.
    """
    if spec.config.backend != "dask":
        yield Crew(spec, api_keys=api_keys, bench=bench)
        return
    with cluster_of(bench, run_id=run_id, api_keys=api_keys) as cluster:
        yield Crew(spec, api_keys=api_keys, bench=bench, cluster=cluster)


# What this worker built last, by the words of its spec; settings hold tables and have no hash.
_KEPT: dict[str, Workbench] = {}


def _bench_of(spec: BenchSpec) -> Workbench:
    words = repr(spec)
    if words not in _KEPT:
        _KEPT.clear()
        _KEPT[words] = Workbench.build(spec)
    return _KEPT[words]


def _wall_of(spec: BenchSpec) -> AbstractContextManager[None]:
    # A loky worker does not inherit its parent's wall. It outlives the replay, and may work for a
    # run that records: the wall stands for one task.
    return network_blocked() if spec.config.mode == "replay" else nullcontext()


def _decide_remotely(spec: BenchSpec, task: CellTask) -> CellRecord:
    with _wall_of(spec):
        return decide_cell(_bench_of(spec), task)


def _reflect_remotely(spec: BenchSpec, task: LessonTask) -> LessonRecord:
    with _wall_of(spec):
        return write_lesson(_bench_of(spec), task)
