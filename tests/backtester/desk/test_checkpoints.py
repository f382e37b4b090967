"""A stopped analysis goes on at the node where it stopped, and its record is whole."""

from __future__ import annotations

import json
import pickle
import shutil
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import ormsgpack
import pytest

from backtester.desk.attended import Opening
from backtester.desk.checkpoints import PlainSerializer, Visit, open_checkpoint
from backtester.desk.desk import Analysis, Desk, checkpoints
from backtester.errors import DataError, ProviderError, RunLocked
from backtester.records import CellRecord, LessonRecord
from backtester.runs.folder import RunFolder
from tests.support.openai_server import OpenAIServer, error
from tests.support.rulebook_server import Fault, by_the_rules, faulty
from tests.support.workspaces import Workspace, make_workspace, wire

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
    from backtester.snapshots.snapshot import open_snapshot

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
            **wire(server.url),
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
            **wire(server.url),
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


@pytest.fixture(scope="module")
def halt(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workspace, Desk, Path, bytes]:
    """Return a desk whose only analysis was stopped at the trader, and its checkpoint."""
    workspace, desk = desk_at(tmp_path_factory.mktemp("halted"))
    stopped(desk)
    path = checkpoint_of(workspace)
    return workspace, desk, path, path.read_bytes()


@pytest.fixture
def halted(halt: tuple[Workspace, Desk, Path, bytes]) -> tuple[Workspace, Desk]:
    workspace, desk, path, content = halt
    if path.is_dir():
        shutil.rmtree(path)
    for other in path.parent.glob("checkpoint*"):
        other.unlink()
    path.write_bytes(content)
    return workspace, desk


def change(workspace: Workspace, statement: str, *values: object) -> None:
    """Change a checkpoint behind its writer's back."""
    connection = sqlite3.connect(checkpoint_of(workspace))
    with connection:
        connection.execute(statement, values)
    connection.close()


class Bomb:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return Path.touch, (self.path,)


def reopened(workspace: Workspace) -> tuple[Visit, ...]:
    """Open a checkpoint as a desk does, without all that a desk does before."""
    with open_checkpoint(RunFolder(checkpoint_of(workspace).parent)) as checkpoint:
        return checkpoint.before


def test_a_checkpoint_that_nobody_changed_opens_with_its_trail(
    halted: tuple[Workspace, Desk],
) -> None:
    assert reopened(halted[0])[-1].node == "Research Manager"
    assert reopened(halted[0])[-1].node == "Research Manager"


@pytest.mark.parametrize("kind", ["pickle", "json", "msgpack"])
def test_a_planted_object_is_not_made(
    halted: tuple[Workspace, Desk], tmp_path: Path, kind: str
) -> None:
    workspace, desk = halted
    loot = tmp_path / "loot"
    content = {
        "pickle": pickle.dumps(Bomb(loot)),
        "json": json.dumps(
            {"lc": 2, "type": "constructor", "id": ["os", "mkdir"], "args": [str(loot)]}
        ).encode(),
        "msgpack": ormsgpack.packb(ormsgpack.Ext(0, ormsgpack.packb(("os", "mkdir", str(loot))))),
    }[kind]
    change(workspace, "UPDATE checkpoints SET type = ?, checkpoint = ?", kind, content)

    with pytest.raises(DataError, match="--clear-checkpoints"):
        desk.decide(SETTINGS, "AAA", DAY)

    assert not loot.exists()


@pytest.mark.parametrize(
    "data",
    [
        ("pickle", pickle.dumps({})),
        ("json", b"{}"),
        ("msgpack", b"\xc1"),
        ("msgpack", b""),
    ],
)
def test_the_serializer_itself_refuses_what_we_do_not_write(data: tuple[str, bytes]) -> None:
    with pytest.raises(DataError, match="--clear-checkpoints"):
        PlainSerializer().loads_typed(data)


def test_the_serializer_makes_no_object_of_a_class_that_a_file_or_a_graph_names(
    tmp_path: Path,
) -> None:
    named = ormsgpack.Ext(0, ormsgpack.packb(("os", "mkdir", str(tmp_path / "loot"))))
    serializer = PlainSerializer().with_msgpack_allowlist([("os", "mkdir")])

    serializer.loads_typed(("msgpack", ormsgpack.packb(named)))

    assert not (tmp_path / "loot").exists()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE checkpoints SET metadata = '{'",
        "UPDATE checkpoints SET metadata = NULL",
        "UPDATE checkpoints SET checkpoint = X'93010203'",
        "UPDATE checkpoints SET checkpoint = X'80'",
        "UPDATE checkpoints SET checkpoint = X'DEADBEEF'",
        "UPDATE checkpoints SET checkpoint = 7",
        "UPDATE checkpoints SET type = 'bytes'",
        "UPDATE checkpoints SET parent_checkpoint_id = 'x'",
        "UPDATE checkpoints SET thread_id = 'x'",
        "UPDATE writes SET value = X'80' WHERE rowid = 3",
        "UPDATE writes SET channel = 'x' WHERE rowid = 3",
        "UPDATE visits SET visit = '{}' WHERE rowid = 2",
        "UPDATE visits SET visit = (SELECT visit FROM visits WHERE rowid = 1) WHERE rowid = 2",
        "DELETE FROM checkpoints",
        "DELETE FROM checkpoints WHERE rowid = (SELECT max(rowid) FROM checkpoints)",
        "DELETE FROM writes",
        "DELETE FROM visits",
        "DELETE FROM visits WHERE rowid = 2",
        "DELETE FROM visits WHERE rowid = (SELECT max(rowid) FROM visits)",
        "DELETE FROM seal",
        "UPDATE seal SET digest = 'x'",
        "UPDATE seal SET written_by = 'langgraph 0.1'",
        "DROP TABLE visits",
        "DROP TABLE checkpoints",
        "DROP TABLE seal",
        "ALTER TABLE checkpoints DROP COLUMN metadata",
        "ALTER TABLE checkpoints ADD COLUMN more",
        "CREATE TABLE more (x)",
        "CREATE TRIGGER t AFTER INSERT ON visits BEGIN DELETE FROM visits; END",
    ],
)
def test_a_checkpoint_that_was_changed_is_told_with_the_way_out(
    halted: tuple[Workspace, Desk], statement: str
) -> None:
    workspace, _ = halted
    change(workspace, statement)

    with pytest.raises(DataError, match="--clear-checkpoints"):
        reopened(workspace)

    assert checkpoints.clear_all(workspace.reports / "analyses") == 1


def test_a_checkpoint_of_another_langgraph_says_so(halted: tuple[Workspace, Desk]) -> None:
    change(halted[0], "UPDATE seal SET written_by = 'langgraph 0.1'")

    with pytest.raises(DataError, match=r"was written with 'langgraph 0\.1', and here is 'langgr"):
        reopened(halted[0])


@pytest.mark.parametrize(
    "content", [b"{}\n" + b"\0" * 4096, b"SQLite format 3\0" + b"\xff" * 4080, None]
)
def test_a_file_that_is_no_database_is_told_with_the_way_out(
    halted: tuple[Workspace, Desk], content: bytes | None
) -> None:
    path = checkpoint_of(halted[0])
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2] if content is None else content)

    with pytest.raises(DataError, match="--clear-checkpoints"):
        reopened(halted[0])


def test_a_folder_in_the_place_of_a_checkpoint_is_left_to_its_owner(
    halted: tuple[Workspace, Desk],
) -> None:
    workspace, desk = halted
    path = checkpoint_of(workspace)
    path.unlink()
    (path / "mine").mkdir(parents=True)

    with pytest.raises(DataError, match="is a folder, which no release makes: move it away"):
        desk.decide(SETTINGS, "AAA", DAY)
    with pytest.raises(DataError, match="move it away"):
        checkpoints.clear_all(workspace.reports / "analyses")

    assert (path / "mine").is_dir()


class Copier(Stopper):
    """Copy a checkpoint's files as a killed process would leave them: open, with their log."""

    def __init__(self, workspace: Workspace, target: Path, *, at: str) -> None:
        super().__init__()
        self._workspace, self._target, self._at = workspace, target, at

    def node_started(self, node: str) -> None:
        if node == self._at:
            shutil.copytree(checkpoint_of(self._workspace).parent, self._target)


@pytest.fixture
def killed(place: tuple[Workspace, Desk], tmp_path: Path) -> tuple[Desk, Path]:
    """Return a desk, and the folder of an analysis whose process was killed at the trader."""
    workspace, desk = place
    copier = Copier(workspace, tmp_path / "copy", at="Trader")
    analysis = desk.decide({**SETTINGS, "memory": "off"}, "AAA", DAY, watcher=copier)
    for path in (tmp_path / "copy").glob("checkpoint*"):
        shutil.copy(path, analysis.folder)
    assert (analysis.folder / "checkpoint.sqlite-wal").stat().st_size > 0
    return desk, analysis.folder


def test_a_killed_process_leaves_all_that_is_needed(
    killed: tuple[Desk, Path], unbroken: Analysis
) -> None:
    analysis = killed[0].decide({**SETTINGS, "memory": "off"}, "AAA", DAY)

    assert analysis.resumed_after == "Research Manager"
    assert len(analysis.record.calls) == len(unbroken.record.calls)


@pytest.mark.parametrize("lost", ["checkpoint.sqlite", "checkpoint.sqlite-wal", "checkpoint*"])
def test_where_a_file_is_lost_the_record_still_lacks_nothing(
    killed: tuple[Desk, Path], unbroken: Analysis, lost: str
) -> None:
    desk, folder = killed
    for path in folder.glob(lost):
        path.unlink()
    second = Stopper()

    analysis = desk.decide({**SETTINGS, "memory": "off"}, "AAA", DAY, watcher=second)

    if lost != "checkpoint.sqlite-wal":
        assert analysis.resumed_after is None
        assert second.started[0] == "Market Analyst"
    assert (analysis.resumed_after is None) == (second.started[0] == "Market Analyst")
    assert sorted(call.key for call in analysis.record.calls) == sorted(
        call.key for call in unbroken.record.calls
    )
    assert len(analysis.record.reads) == len(unbroken.record.reads)


def test_clearing_that_is_cut_short_leaves_nothing_to_go_on_from(
    killed: tuple[Desk, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    desk, folder = killed
    unlink = Path.unlink
    gone: list[str] = []

    def cut_short(path: Path, missing_ok: bool = False) -> None:
        if gone:
            raise KeyboardInterrupt
        gone.append(path.name)
        unlink(path, missing_ok=missing_ok)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", cut_short)
        with pytest.raises(KeyboardInterrupt):
            checkpoints.clear(RunFolder(folder))

    assert gone == ["checkpoint.sqlite"]
    assert desk.decide({**SETTINGS, "memory": "off"}, "AAA", DAY).resumed_after is None
    assert not list(folder.glob("checkpoint*"))


def test_a_node_that_fails_in_two_processes_leaves_a_checkpoint_that_reads(
    place: tuple[Workspace, Desk], unbroken: Analysis
) -> None:
    """The second failure replaces rows of the first."""
    down = Fault(role="Trader", day="2018-01-05", symbol="AAA", acts=[error(503, "down")] * 2)
    with OpenAIServer(faulty(down)) as server:
        settings = {
            **SETTINGS,
            **wire(server.url),
        }
        for _ in range(2):
            with pytest.raises(ProviderError):
                place[1].decide(settings, "AAA", DAY)
        analysis = place[1].decide(settings, "AAA", DAY)

    assert analysis.resumed_after == "Research Manager"
    assert len(analysis.record.calls) == len(unbroken.record.calls)


def test_who_works_on_an_analysis_is_told_to_the_next(place: tuple[Workspace, Desk]) -> None:
    workspace, desk = place
    stopped(desk)
    folder = RunFolder(checkpoint_of(workspace).parent)

    with folder.lock(), pytest.raises(RunLocked, match="is being worked on by process"):
        desk.decide(SETTINGS, "AAA", DAY)
