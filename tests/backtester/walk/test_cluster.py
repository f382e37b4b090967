"""Workers of a dask cluster, two processes that share no cache with the run, change no result."""

from __future__ import annotations

import itertools
import shutil
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from backtester.backtest import RunResult, run
from backtester.config import RunConfig
from backtester.errors import DataError, RunStopped, UsageError
from backtester.packs.replays import replay
from backtester.records import CellRecord
from backtester.replies.cache import ReplyCache
from backtester.runs.folder import RunFolder
from backtester.runs.journal import Journal, read_ledger
from backtester.spending.ledger import read_spend
from backtester.spending.purse import Purse
from backtester.spending.tariff import Tariff
from backtester.walk import cluster as module
from backtester.walk.cell import BenchSpec, CellTask, Workbench, build_pipeline
from backtester.walk.cluster import Brought, Cluster, Errand, cluster_of
from backtester.walk.crew import Crew
from backtester.walk.engine import Walk
from backtester.walk.plan import cache_folder, lay_out
from tests.support.openai_server import Act, OpenAIServer, Received, completion
from tests.support.rulebook_server import by_the_rules
from tests.support.snapshots import split
from tests.support.workspaces import Workspace, make_workspace

distributed = pytest.importorskip("distributed")


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start two workers whose data folder holds the snapshot under another name, and no cache."""
    place = tmp_path_factory.mktemp("far")
    home = make_workspace(tmp_path_factory.mktemp("model"))
    shutil.copytree(home.data / "snapshots" / "small", place / "data" / "snapshots" / "renamed")
    with distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
        local_directory=str(place / "scratch"),
        env={"DASK_BACKTESTER__DATA_DIR": str(place / "data")},
    ) as found:
        yield found.scheduler_address
    assert sorted(path.name for path in (place / "data").iterdir()) == ["snapshots"]


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return make_workspace(tmp_path)


def config_of(workspace: Workspace, **changes: Any) -> RunConfig:
    return workspace.config(**{"end": date(2018, 1, 12), "analysts": ("market",), **changes})


def far_config(workspace: Workspace, scheduler: str, **changes: Any) -> RunConfig:
    return config_of(workspace, backend="dask", dask_scheduler=scheduler, **changes)


def keys_at(workspace: Workspace) -> tuple[str, ...]:
    return ReplyCache.open(cache_folder(workspace.data), read_only=True).keys()


# ------------------------------------------------------------------------------------- equality


def test_a_cluster_makes_the_root_that_one_worker_makes(
    far: str, workspace: Workspace, tmp_path: Path
) -> None:
    alone = make_workspace(tmp_path / "alone")
    serial = run(config_of(alone, save_states=True))

    result = run(far_config(workspace, far, save_states=True))

    assert result.root == serial.root
    assert result.run_id == serial.run_id
    assert (result.model_calls, result.hits) == (serial.model_calls, serial.hits)
    # Every reply came home, lessons' among them, so the run replays here.
    assert keys_at(workspace) == keys_at(alone)
    lessons = read_ledger(RunFolder(result.folder).journal_path).lessons
    assert sum(len(row.calls) for row in lessons.values()) == 4
    assert replay(RunFolder(result.folder), workspace.data).equal
    assert states_of(result) == states_of(serial) != []


def states_of(result: RunResult) -> list[tuple[str, str]]:
    """Return each state file's name and text."""
    place = result.folder / "states"
    files = (path for path in sorted(place.rglob("*")) if path.is_file())
    return [(str(path.relative_to(place)), path.read_text()) for path in files]


def test_what_the_run_knows_is_sent_along_or_not_asked_for_at_all(
    far: str, workspace: Workspace
) -> None:
    with OpenAIServer(by_the_rules) as server:
        wire = {"provider": "openai_compatible", "base_url": server.url, "endpoint_alias": "stub"}
        models = {"quick_model": "q", "deep_model": "d"}
        small = {"tickers": ("AAA",), "end": date(2018, 1, 5), "memory": "off"}
        config = far_config(workspace, far, **small, **wire, **models)
        first = run(config)
        asked = len(server.requests)
        assert asked == first.model_calls == len(read_spend(first.folder / "spend.jsonl"))

        known = run(config.model_copy(update={"reports_dir": workspace.path / "again"}))
        assert (known.root, known.model_calls, len(server.requests)) == (first.root, 0, asked)

        # One reply is lost at home; a worker has it, and no call is made.
        cells = read_ledger(RunFolder(first.folder).journal_path).cells
        (cell,) = cells.values()
        lost = cell.calls[-1].key
        ReplyCache.open(cache_folder(workspace.data)).discard(lost)
        third = run(config.model_copy(update={"reports_dir": workspace.path / "third"}))
        assert third.root == first.root
        assert lost in keys_at(workspace)
        # The worker that is asked may be the other one, which makes just this call.
        assert len(server.requests) <= asked + 1


def test_without_an_address_as_many_workers_as_asked_for_come_and_go_on_this_machine(
    far: str, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []

    @contextmanager
    def started(**settings: Any) -> Iterator[str]:
        # Processes take seconds to start: those that are there stand for them.
        asked.append(settings)
        yield far

    monkeypatch.setattr(distributed, "LocalCluster", started)
    config = config_of(workspace, end=date(2018, 1, 5), backend="dask", workers=3, memory="off")
    assert run(config).counts == {"done": 2}
    (settings,) = asked
    assert (settings["n_workers"], settings["threads_per_worker"]) == (3, 1)
    assert settings["host"] == "127.0.0.1"


# ------------------------------------------------------------------------------- whose reply stands


class Moody:
    """Answer as the rulebook does, with other words each time; the first two at once."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._both = threading.Barrier(2)
        self.answers = 0

    def __call__(self, received: Received) -> Act:
        number = next(self._numbers)
        self.answers += 1
        if number <= 2:
            # Neither worker may find what the other one was answered.
            self._both.wait(timeout=60)
        role = str(received.body["messages"][0]["content"])
        if role.startswith(("Role: Bull", "Role: Bear")):
            return completion(f"Argument number {number}.")
        return by_the_rules(received)


def first_task(config: RunConfig, workspace: Workspace, bench: Workbench) -> CellTask:
    plan = lay_out(config, workspace.snapshot, fingerprint=bench.pipeline.fingerprint())
    with closing(Journal.open(workspace.path / "journal.jsonl")) as journal:
        walk = Walk(plan, journal, Crew(bench.spec, api_keys={}, bench=bench))
        return walk.freeze(plan.barriers[0])[0]


def bench_of(config: RunConfig, workspace: Workspace) -> Workbench:
    spec = BenchSpec(
        config=config,
        snapshot_path=workspace.snapshot.path,
        cache_dir=cache_folder(workspace.data),
    )
    purse = Purse.open(
        workspace.path / "spend.jsonl", run_id="run-a", config=config, tariff=Tariff()
    )
    return Workbench.build(spec, snapshot=workspace.snapshot, purse=purse)


def told(cell: CellRecord) -> list[tuple[str, str]]:
    return [(call.key, call.reply_hash) for call in cell.calls]


def test_of_two_replies_to_one_call_the_first_stands_and_the_other_cell_is_decided_again(
    far: str, workspace: Workspace
) -> None:
    model = Moody()
    with OpenAIServer(model) as server:
        config = far_config(
            workspace,
            far,
            provider="openai_compatible",
            base_url=server.url,
            endpoint_alias="moody",
            quick_model="q",
            deep_model="d",
        )
        bench = bench_of(config, workspace)
        task = first_task(config, workspace, bench)
        sent: list[Sequence[Errand]] = []
        with cluster_of(bench, run_id="run-a", api_keys={}) as cluster:
            away = cluster._send

            def send(errands: Sequence[Errand]) -> Iterator[Brought]:
                sent.append(errands)
                return away(errands)

            cluster._send = send
            # One cell twice: the same calls, at two workers.
            first, second = cluster.decide([task, task])

    assert first.status == second.status == "done"
    # Both went out; the second came back with other arguments, and went out again, alone, with
    # the replies that stand.
    assert [len(errands) for errands in sent] == [2, 1]
    assert sent[0][0].replies == sent[0][1].replies == ()
    standing = {reply.key for reply in sent[1][0].replies}
    assert standing
    assert told(first) == told(second)
    assert all(call.hit for call in second.calls if call.key in standing)
    cache = ReplyCache.open(cache_folder(workspace.data), read_only=True)
    assert {call.key for call in first.calls} <= set(cache.keys())
    # What was paid for in vain was paid for.
    assert len(read_spend(workspace.path / "spend.jsonl")) == model.answers
    assert bench.purse.spent.calls == model.answers


# -------------------------------------------------------------------------------- what cannot be


def test_a_worker_without_the_snapshot_says_which_one_it_lacks(far: str, tmp_path: Path) -> None:
    other = make_workspace(tmp_path, actions=[split("AAA", "2018-02-14", 4, 1)])
    with pytest.raises(DataError, match=r"worker tcp://127.0.0.1:\d+: no snapshot with the id"):
        run(far_config(other, far))


def test_a_worker_of_another_release_is_refused(far: str, workspace: Workspace) -> None:
    config = far_config(workspace, far)
    bench = bench_of(config, workspace)
    task = first_task(config, workspace, bench)
    with cluster_of(bench, run_id="run-a", api_keys={}) as cluster:
        cluster._fingerprint = "0" * 64
        with pytest.raises(DataError, match=r"would ask other prompts .*: install"):
            cluster.decide([task])


@pytest.mark.parametrize(
    ("changes", "keys", "words"),
    [
        ({}, {"openai": "sk"}, "would hand API keys to other machines"),
        ({"mode": "replay"}, {}, "is for recording, and the mode is replay"),
        ({"mode": "off"}, {}, "is for recording, and the mode is off"),
        ({"max_calls": 5}, {}, "max_calls cannot hold"),
        ({"max_cost_usd": 5.0}, {}, "max_cost_usd cannot hold"),
    ],
)
def test_what_cannot_be_had_on_a_cluster_is_refused_before_it_is_reached(
    workspace: Workspace, changes: dict[str, Any], keys: dict[str, str], words: str
) -> None:
    config = far_config(workspace, "tcp://127.0.0.1:9", **changes)
    with pytest.raises(UsageError, match=words):
        run(config, api_keys=keys)


def test_a_scheduler_that_is_not_there_and_one_without_workers_are_told_apart(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PATIENCE_S", 1)
    with pytest.raises(UsageError, match=r"no dask scheduler answers at tcp://127.0.0.1:9 "):
        run(far_config(workspace, "tcp://127.0.0.1:9"))
    with (
        distributed.LocalCluster(
            n_workers=0, host="127.0.0.1", dashboard_address="127.0.0.1:0"
        ) as empty,
        pytest.raises(UsageError, match="has no worker: start one there"),
    ):
        run(far_config(workspace, empty.scheduler_address))


def test_a_cluster_that_breaks_down_stops_the_run_and_the_same_command_goes_on(
    workspace: Workspace,
) -> None:
    class Broken:
        """Lose every task."""

        def map(self, do: Any, errands: list[Errand], *, pure: bool) -> list[Broken]:
            return [self for _ in errands]

        def result(self) -> Any:
            raise distributed.KilledWorker("a task", SimpleNamespace(address="tcp://x"), 3)

        def cancel(self, futures: Any) -> None:
            """Take note."""

    config = config_of(workspace)
    bench = bench_of(config, workspace)
    broken: Any = Broken()
    cluster = Cluster(bench, run_id="run-a", send=module._sender(broken))
    with pytest.raises(RunStopped, match="the same command goes on from there"):
        cluster.decide([first_task(config, workspace, bench)])


def test_a_crew_without_a_cluster_works_in_turn(workspace: Workspace) -> None:
    config = config_of(workspace, backend="dask", workers=4, memory="off")
    bench = bench_of(config, workspace)
    crew = Crew(bench.spec, api_keys={}, bench=bench)
    assert build_pipeline(config).fingerprint() == bench.pipeline.fingerprint()
    task = first_task(config, workspace, bench)
    (cell,) = crew.decide([replace(task)])
    assert cell.status == "done"
