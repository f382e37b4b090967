"""A stopped analysis goes on at the node where it stopped, and its record is whole."""

from __future__ import annotations

import pickle
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from backtester import checkpoints
from backtester.attended import Opening
from backtester.desk import Analysis, Desk
from backtester.errors import DataError, RunLocked
from backtester.records import CellRecord, LessonRecord
from backtester.runs import RunFolder
from tests.support.openai_server import OpenAIServer, error
from tests.support.rulebook_server import Fault, by_the_rules, faulty
from tests.support.workspaces import Workspace, make_workspace

DAY = date(2018, 1, 5)
SETTINGS: dict[str, Any] = {"horizon": 3, "benchmark": "^GSPC", "checkpoint_enabled": True}


class Stopper:
    """Stop the process, as far as a process can stop itself, when a node begins or ends."""

    def __init__(self, *, at: str = "", after: str = "") -> None:
        self.at, self.after = at, after
        self.started: list[str] = []
        self.openings: list[Opening] = []

    def settled(self, lessons: Sequence[LessonRecord]) -> None:
        pass

    def opened(self, opening: Opening) -> None:
        self.openings.append(opening)

    def node_started(self, node: str) -> None:
        if node == self.at:
            raise KeyboardInterrupt
        self.started.append(node)

    def node_finished(self, cell: str, node: str, update: Mapping[str, Any]) -> None:
        if node == self.after:
            raise KeyboardInterrupt


def desk_at(path: Path) -> tuple[Workspace, Desk]:
    workspace = make_workspace(path)
    return workspace, Desk(
        workspace.snapshot, memory="mine", data_dir=workspace.data, reports_dir=workspace.reports
    )


@pytest.fixture
def place(tmp_path: Path) -> tuple[Workspace, Desk]:
    return desk_at(tmp_path / "here")


def settled_part(record: CellRecord) -> CellRecord:
    """Return a record without what may differ between equal decisions."""
    calls = tuple(replace(call, hit=False, latency_s=0.0, saved_usd=None) for call in record.calls)
    return replace(record, calls=calls, wall_s=0.0)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Analysis:
    return desk_at(tmp_path_factory.mktemp("unbroken"))[1].decide(SETTINGS, "AAA", DAY)


NODES = ("Market Analyst", "tools_market", "Msg Clear News", "Bear Researcher", "Portfolio Manager")


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("node", NODES)
def test_a_stop_at_any_node_goes_on_there(
    place: tuple[Workspace, Desk], unbroken: Analysis, node: str, parallel: bool
) -> None:
    settings = {**SETTINGS, "analysts_parallel": parallel}
    first, second = Stopper(at=node), Stopper()
    with pytest.raises(KeyboardInterrupt):
        place[1].decide(settings, "AAA", DAY, watcher=first)

    analysis = place[1].decide(settings, "AAA", DAY, watcher=second)

    assert node in second.started
    if not parallel:
        assert second.started[0] == node
        assert [*first.started, *second.started] == nodes_of(analysis)
        assert settled_part(analysis.record) == settled_part(unbroken.record)
        assert second.openings[0].done == tuple(first.started)
    assert analysis.decision.rating == unbroken.decision.rating
    assert sorted(call.key for call in analysis.record.calls) == sorted(
        call.key for call in unbroken.record.calls
    )
    assert analysis.record.steps == unbroken.record.steps
    assert len(analysis.record.reads) == len(unbroken.record.reads)


def nodes_of(analysis: Analysis) -> list[str]:
    stopper = Stopper()
    folder = analysis.folder.parent.parent
    desk = Desk(
        _snapshot_of(folder), memory="off", data_dir=folder.parent / "data", reports_dir=folder
    )
    desk.decide(SETTINGS, "AAA", DAY, watcher=stopper)
    return stopper.started


def _snapshot_of(reports: Path) -> Any:
    from backtester.snapshot import open_snapshot

    return open_snapshot("small", reports.parent / "data")


def test_a_node_that_ended_without_a_checkpoint_runs_once_more_and_counts_once(
    place: tuple[Workspace, Desk], unbroken: Analysis
) -> None:
    """The trail is written as a node ends, the checkpoint just after: this stops in between."""
    with pytest.raises(KeyboardInterrupt):
        place[1].decide(SETTINGS, "AAA", DAY, watcher=Stopper(after="tools_market"))
    second = Stopper()

    analysis = place[1].decide(SETTINGS, "AAA", DAY, watcher=second)

    assert second.started[0] == "tools_market"
    assert settled_part(analysis.record) == settled_part(unbroken.record)


def test_two_stops_lose_nothing(place: tuple[Workspace, Desk], unbroken: Analysis) -> None:
    for node in ("Sentiment Analyst", "Trader"):
        with pytest.raises(KeyboardInterrupt):
            place[1].decide(SETTINGS, "AAA", DAY, watcher=Stopper(at=node))

    analysis = place[1].decide(SETTINGS, "AAA", DAY)

    assert settled_part(analysis.record) == settled_part(unbroken.record)
    assert analysis.resumed_after == "Research Manager"


def test_no_prompt_is_sent_twice(place: tuple[Workspace, Desk]) -> None:
    with OpenAIServer(by_the_rules) as server:
        settings = {
            **SETTINGS,
            "provider": "openai_compatible",
            "base_url": server.url,
            "endpoint_alias": "stub",
            "quick_model": "stub-quick",
            "deep_model": "stub-deep",
        }
        with pytest.raises(KeyboardInterrupt):
            place[1].decide(settings, "AAA", DAY, watcher=Stopper(after="Bull Researcher"))
        analysis = place[1].decide(settings, "AAA", DAY)
        bodies = [str(request.body) for request in server.requests]

    assert len(bodies) == len(set(bodies)) == len(analysis.record.calls)


def test_a_second_try_in_the_same_process_goes_on_too(place: tuple[Workspace, Desk]) -> None:
    down = Fault(role="Trader", day="2018-01-05", symbol="AAA", acts=[error(503, "down")])
    listener = Stopper()
    with OpenAIServer(faulty(down)) as server:
        settings = {
            **SETTINGS,
            "provider": "openai_compatible",
            "base_url": server.url,
            "endpoint_alias": "stub",
            "quick_model": "stub-quick",
            "deep_model": "stub-deep",
            "max_retries": 0,
            "cell_retries": 1,
        }
        record = place[1].decide(settings, "AAA", DAY, watcher=listener).record
        asked = len(server.requests)

    assert listener.started.count("Research Manager") == 1
    assert listener.started.count("Trader") == 2
    assert not any(call.hit for call in record.calls)
    assert len({(call.node, call.index) for call in record.calls}) == len(record.calls) == asked - 1


# ----------------------------------------------------------------------------------------- on disk


def stopped(desk: Desk, node: str = "Trader") -> None:
    with pytest.raises(KeyboardInterrupt):
        desk.decide(SETTINGS, "AAA", DAY, watcher=Stopper(at=node))


def checkpoint_of(workspace: Workspace) -> Path:
    (path,) = (workspace.reports / "analyses").glob("*/checkpoint.sqlite")
    return path


def test_a_checkpoint_is_gone_after_success(place: tuple[Workspace, Desk]) -> None:
    workspace, desk = place
    stopped(desk)
    assert checkpoint_of(workspace).exists()

    analysis = desk.decide(SETTINGS, "AAA", DAY)

    assert [path.name for path in sorted(analysis.folder.glob("checkpoint*"))] == []


def test_a_checkpoint_is_cleared_on_request(place: tuple[Workspace, Desk]) -> None:
    workspace, desk = place
    stopped(desk)

    assert checkpoints.clear_all(workspace.reports / "analyses") == 1
    assert checkpoints.clear_all(workspace.reports / "analyses") == 0

    second = Stopper()
    desk.decide(SETTINGS, "AAA", DAY, watcher=second)
    assert second.started[0] == "Market Analyst"


@pytest.mark.parametrize(
    "change", [{"temperature": 0.5}, {"max_debate_rounds": 2}, {"analysts": ("market",)}]
)
def test_another_question_does_not_go_on_from_it(
    place: tuple[Workspace, Desk], change: dict[str, Any]
) -> None:
    stopped(place[1])
    second = Stopper()

    place[1].decide({**SETTINGS, **change}, "AAA", DAY, watcher=second)

    assert second.started[0] == "Market Analyst"


def test_another_lesson_is_another_question(place: tuple[Workspace, Desk]) -> None:
    desk = place[1]
    with pytest.raises(KeyboardInterrupt):
        desk.decide(SETTINGS, "AAA", date(2018, 1, 19), watcher=Stopper(at="Trader"))
    desk.decide(SETTINGS, "AAA", DAY)
    second = Stopper()

    analysis = desk.decide(SETTINGS, "AAA", date(2018, 1, 19), watcher=second)

    assert analysis.record.lessons_shown == ("AAA|2018-01-05|0",)
    assert second.started[0] == "Market Analyst"


def test_no_file_of_a_checkpoint_holds_a_pickle(place: tuple[Workspace, Desk]) -> None:
    workspace, desk = place
    stopped(desk)

    connection = sqlite3.connect(checkpoint_of(workspace))
    kinds = set(connection.execute("SELECT type FROM checkpoints UNION SELECT type FROM writes"))
    connection.close()

    assert kinds <= {("msgpack",), ("null",), ("empty",)}


def test_a_planted_pickle_is_not_run(place: tuple[Workspace, Desk], tmp_path: Path) -> None:
    workspace, desk = place
    stopped(desk)
    loot = tmp_path / "loot"
    connection = sqlite3.connect(checkpoint_of(workspace))
    connection.execute(
        "UPDATE checkpoints SET type = 'pickle', checkpoint = ?", (pickle.dumps(Bomb(loot)),)
    )
    connection.commit()
    connection.close()

    with pytest.raises(DataError, match="--clear-checkpoints"):
        desk.decide(SETTINGS, "AAA", DAY)

    assert not loot.exists()


class Bomb:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("name", ["checkpoint.sqlite", "checkpoint.trail.jsonl"])
def test_a_damaged_checkpoint_is_told_with_the_way_out(
    place: tuple[Workspace, Desk], name: str
) -> None:
    workspace, desk = place
    stopped(desk)
    path = checkpoint_of(workspace).with_name(name)
    for other in path.parent.glob(f"{name}-*"):
        other.unlink()
    path.write_bytes(b"{}\n" + b"\0" * 4096)

    with pytest.raises(DataError, match="--clear-checkpoints"):
        desk.decide(SETTINGS, "AAA", DAY)


def test_a_torn_line_of_the_trail_is_cut_off(
    place: tuple[Workspace, Desk], unbroken: Analysis
) -> None:
    workspace, desk = place
    stopped(desk)
    trail = checkpoint_of(workspace).with_name("checkpoint.trail.jsonl")
    with trail.open("ab") as file:
        file.write(b'{"node":"Tra')

    analysis = desk.decide(SETTINGS, "AAA", DAY)

    assert settled_part(analysis.record) == settled_part(unbroken.record)


def test_who_works_on_an_analysis_is_told_to_the_next(place: tuple[Workspace, Desk]) -> None:
    workspace, desk = place
    stopped(desk)
    folder = RunFolder(checkpoint_of(workspace).parent)

    with folder.lock(), pytest.raises(RunLocked, match="is being worked on by process"):
        desk.decide(SETTINGS, "AAA", DAY)
