"""Cells and lessons at workers of a dask cluster, which share no disk with the run.

A worker finds the snapshot by its id among its own, builds the pipeline from the configuration,
and records into a cache of its own. With each task go the lessons and the book that were frozen for
it, and what the run's cache knows of its calls; back come the record, the replies that it rests on
and the paid calls. They are merged in the order of the tasks. Of two replies to one call the first
stands; a record that rests on another is not used: its task is done again with the one that stands.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, TypeVar

from backtester.config import RunConfig
from backtester.errors import DataError, RunStopped, UsageError
from backtester.records import CellRecord, LessonRecord, OutcomeRecord, SpendRecord
from backtester.replies.answers import CacheRecord, reply_hash
from backtester.replies.cache import ReplyCache
from backtester.replies.sent import SentCache
from backtester.replies.window import CellReplies
from backtester.snapshots.snapshot import find_snapshot_by_id
from backtester.spending.ledger import SPEND_NAME, SpendLedger
from backtester.spending.purse import CellCaps, Purse
from backtester.spending.tariff import Tariff
from backtester.walk.cell import (
    BenchSpec,
    CellTask,
    LessonTask,
    Workbench,
    build_pipeline,
    decide_cell,
    write_lesson,
)

if TYPE_CHECKING:
    from distributed import Client

DATA_DIR: Final = "backtester.data-dir"
"""Key of dask's own configuration under which a worker names its data folder."""
_PATIENCE_S: Final = 15
_Record = TypeVar("_Record", CellRecord, LessonRecord)


@dataclass(frozen=True, kw_only=True)
class Errand:
    """Say all that a worker needs for one task.

    Attributes:
        spec: What is built; its folders are those of the run's machine, and are not used.
        snapshot_id: Snapshot to find.
        fingerprint: Of the prompts that the worker must ask, too.
        run_id: Who pays.
        tariff: Known prices.
        task: What is to be done.
        replies: Known answers of its calls.
    """

    spec: BenchSpec
    snapshot_id: str
    fingerprint: str
    run_id: str
    tariff: Tariff
    task: CellTask | LessonTask
    replies: tuple[CacheRecord, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Brought:
    """Hold what a worker brings back.

    Attributes:
        record: Of the cell or lesson.
        replies: Those that it rests on and that were not sent along.
        spent: What was paid for it, in order.
    """

    record: CellRecord | LessonRecord
    replies: tuple[CacheRecord, ...]
    spent: tuple[SpendRecord, ...]


Send = Callable[[Sequence[Errand]], Iterator[Brought]]
"""Have errands done, and yield what they bring in their order."""


class Cluster:
    """Have tasks done elsewhere, and merge what comes back in the order of the tasks.

    Args:
        bench: The run's own: its cache and purse take everything in.
        run_id: The run.
        send: Has errands done.
    """

    def __init__(self, bench: Workbench, *, run_id: str, send: Send) -> None:
        self._bench = bench
        self._send = send
        self._home = _Home.beside(bench)
        self._run_id = run_id
        self._fingerprint = bench.pipeline.fingerprint()

    def decide(self, tasks: Sequence[CellTask]) -> list[CellRecord]:
        """Decide cells; results in the order of the tasks."""
        found = self._done(tasks, lambda task: decide_cell(self._home, task))
        if self._bench.spec.states_dir is not None:
            for task in tasks:
                # States are written at home, from the replies that stand.
                decide_cell(self._home, task)
        return found

    def reflect(self, tasks: Sequence[LessonTask]) -> list[LessonRecord]:
        """Write lessons; results in the order of the tasks."""
        return self._done(tasks, lambda task: write_lesson(self._home, task))

    def _done(self, tasks: Sequence[Any], do: Callable[[Any], _Record]) -> list[_Record]:
        found: dict[int, Any] = {}
        away: dict[int, Errand] = {}
        for at, task in enumerate(tasks):
            self._home.asked = None
            known = do(task)
            if self._home.knew_everything:
                found[at] = known
            else:
                away[at] = self._errand(task, known)
        while away:
            again = {}
            brought = self._send(tuple(away.values()))
            for (at, errand), back in zip(away.items(), brought, strict=True):
                if self._stands(back):
                    found[at] = back.record
                else:
                    again[at] = replace(errand, replies=self._replies_of(back.record))
            away = again
        return [found[at] for at in range(len(tasks))]

    def _errand(self, task: CellTask | LessonTask, known: CellRecord | LessonRecord) -> Errand:
        bench = self._bench
        return Errand(
            spec=replace(bench.spec, states_dir=None),
            snapshot_id=bench.snapshot.id,
            fingerprint=self._fingerprint,
            run_id=self._run_id,
            tariff=bench.purse.tariff,
            task=task,
            replies=self._replies_of(known),
        )

    def _stands(self, back: Brought) -> bool:
        """Take in what was brought, and say whether it rests on replies that stand."""
        for line in back.spent:
            self._bench.purse.take(line)
        stands = True
        for reply in back.replies:
            stored = self._bench.cache.add(reply)
            stands = stands and reply_hash(stored.reply) == reply_hash(reply.reply)
        return stands

    def _replies_of(self, record: CellRecord | LessonRecord) -> tuple[CacheRecord, ...]:
        return tuple(_held(self._bench.cache, record))


class _Home(Workbench):
    """Walk tasks as far as the run's own cache knows the answers; nothing is asked."""

    asked: CellReplies | None = None

    @classmethod
    def beside(cls, bench: Workbench) -> _Home:
        home = cls(
            bench.spec,
            snapshot=bench.snapshot,
            # Its models let nothing out. The wall of a replay would shut the cluster out, too.
            pipeline=build_pipeline(bench.config.model_copy(update={"mode": "replay"})),
            cache=SentCache.over(bench.cache),
            purse=Purse(tariff=bench.purse.tariff),
        )
        home.views = bench.views
        return home

    @property
    def knew_everything(self) -> bool:
        """Whether the last task met no call without an answer.

        Under caps of a cell it is asked again all the same: they count what a replay does not.
        """
        missed = self.asked is not None and self.asked.miss is not None
        return self.asked is None or not (missed or CellCaps.of(self.config).any)

    def _replies(self, label: str, outcomes: Sequence[OutcomeRecord]) -> CellReplies:
        self.asked = CellReplies(
            self.cache,
            mode="replay",
            accept_truncated=self.config.accept_truncated,
            cell_label=label,
            outcomes=outcomes,
            purse=self.purse,
        )
        return self.asked


def _held(cache: ReplyCache, record: CellRecord | LessonRecord) -> Iterator[CacheRecord]:
    """Yield the answers that a record rests on, each once, as a cache has them."""
    answered = [call for call in record.calls if not call.finish_reason.startswith("outcome:")]
    for key in dict.fromkeys(call.key for call in answered):
        held = cache.get(key)
        if held is not None:
            yield held


# ---------------------------------------------------------------------------------- at a worker

# What this worker built last, by the words of what it was asked.
_KEPT: dict[str, Workbench] = {}
_BUILDING: Final = Lock()


class _Lines(SpendLedger):
    """Write paid calls down where the worker is, and keep them for the way back."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.lines: list[SpendRecord] = []

    def append(self, record: SpendRecord) -> None:
        super().append(record)
        self.lines.append(record)


def work(errand: Errand) -> Brought:
    """Do one task at a worker.

    Raises:
        DataError: The worker lacks the snapshot, or would ask other prompts.
    """
    from distributed import get_worker

    folder = Path(get_worker().local_directory) / "backtester"
    kept = _bench_of(errand, folder)
    lines = _Lines(folder / SPEND_NAME)
    bench = Workbench(
        kept.spec,
        snapshot=kept.snapshot,
        pipeline=kept.pipeline,
        cache=SentCache.over(kept.cache, errand.replies),
        purse=Purse(
            run_id=errand.run_id,
            tariff=errand.tariff,
            max_tokens=kept.config.max_tokens,
            ledger=lines,
        ),
    )
    bench.views = kept.views
    task = errand.task
    record: CellRecord | LessonRecord = (
        decide_cell(bench, task) if isinstance(task, CellTask) else write_lesson(bench, task)
    )
    sent = {reply.key for reply in errand.replies}
    return Brought(
        record=record,
        replies=tuple(reply for reply in _held(bench.cache, record) if reply.key not in sent),
        spent=tuple(lines.lines),
    )


def _bench_of(errand: Errand, folder: Path) -> Workbench:
    words = repr((errand.spec, errand.snapshot_id, errand.fingerprint))
    with _BUILDING:
        if words not in _KEPT:
            _KEPT.clear()
            _KEPT[words] = _built(errand, folder)
        return _KEPT[words]


def _built(errand: Errand, folder: Path) -> Workbench:
    import dask
    from distributed import get_worker

    name = get_worker().address
    data_dir = Path(dask.config.get(DATA_DIR, None) or errand.spec.config.data_dir)
    try:
        snapshot_path = find_snapshot_by_id(errand.snapshot_id, data_dir)
    except DataError as error:
        raise DataError(f"worker {name}: {error}") from error
    config = errand.spec.config.model_copy(
        update={"data_dir": data_dir, "snapshot": str(snapshot_path)}
    )
    bench = Workbench.build(
        replace(
            errand.spec, config=config, snapshot_path=snapshot_path, cache_dir=folder / "replies"
        )
    )
    found = bench.pipeline.fingerprint()
    if found != errand.fingerprint:
        raise DataError(
            f"worker {name} would ask other prompts ({found[:12]}, the run "
            f"{errand.fingerprint[:12]}): install the same release there"
        )
    return bench


# ---------------------------------------------------------------------------------- the cluster


@contextmanager
def cluster_of(bench: Workbench, *, run_id: str, api_keys: Mapping[str, str]) -> Iterator[Cluster]:
    """Reach the cluster of a configuration, or start one of this machine while the block runs.

    Raises:
        UsageError: What is asked for cannot be had on a cluster, or it is not there.
    """
    _require_fit(bench.config, api_keys)
    with _client_of(bench.config) as client:
        yield Cluster(bench, run_id=run_id, send=_sender(client))


def _require_fit(config: RunConfig, api_keys: Mapping[str, str]) -> None:
    instead = "use backend 'threading'"
    if api_keys:
        raise UsageError(f"backend 'dask' would hand API keys to other machines: {instead}")
    if config.mode not in ("record", "refresh"):
        raise UsageError(
            f"backend 'dask' is for recording, and the mode is {config.mode}: {instead}"
        )
    caps = [name for name in ("max_cost_usd", "max_calls") if getattr(config, name) is not None]
    if caps:
        raise UsageError(
            f"{caps[0]} cannot hold with backend 'dask', whose workers do not hear of each "
            f"other's calls: {instead}, or cap cells (cell_max_cost_usd, cell_max_tokens)"
        )


@contextmanager
def _client_of(config: RunConfig) -> Iterator[Client]:
    try:
        from distributed import Client, LocalCluster
    except ImportError as error:
        raise UsageError(
            "backend 'dask' needs the package distributed: "
            "pip install 'tradingagents-backtester[dask]'"
        ) from error
    if config.dask_scheduler is None:
        with (
            LocalCluster(
                n_workers=config.workers,
                threads_per_worker=1,
                host="127.0.0.1",
                dashboard_address="127.0.0.1:0",
                silence_logs=logging.CRITICAL,
            ) as local,
            Client(local, set_as_default=False) as client,
        ):
            yield client
        return
    address = config.dask_scheduler
    try:
        client = Client(address, timeout=_PATIENCE_S, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise UsageError(
            f"no dask scheduler answers at {address} ({error}): start one, or name another with "
            "dask_scheduler, or leave it out for workers on this machine"
        ) from error
    with client:
        try:
            client.wait_for_workers(1, timeout=_PATIENCE_S)
        except TimeoutError as error:
            raise UsageError(
                f"the dask scheduler at {address} has no worker: start one there"
            ) from error
        yield client


def _sender(client: Client) -> Send:
    def send(errands: Sequence[Errand]) -> Iterator[Brought]:
        from distributed import CancelledError, KilledWorker
        from distributed.comm.core import CommClosedError

        futures = client.map(work, list(errands), pure=False)
        try:
            for future in futures:
                yield future.result()
        except (CancelledError, CommClosedError, KilledWorker) as error:
            raise RunStopped(
                f"the dask cluster lost a worker or its scheduler ({error}): what was brought back "
                "is kept, and the same command goes on from there"
            ) from error
        finally:
            client.cancel(futures)

    return send
