"""A memory with a name: what it is called, and what is said of files that are not as they were."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from backtester.desk.desk import Analysis, Desk
from backtester.errors import DataError, UsageError
from backtester.runs.journal import encode, read_ledger
from backtester.runs.named_memory import NamedMemory, memory_in_force
from tests.support.records import make_key
from tests.support.workspaces import Workspace, make_workspace

FIRST, LATER = date(2018, 1, 5), date(2018, 1, 19)
SETTINGS: dict[str, Any] = {"horizon": 3, "benchmark": "^GSPC"}


@pytest.fixture(scope="module")
def decided(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workspace, bytes, bytes]:
    """Decide once, and return journal and log as they were left."""
    workspace = make_workspace(tmp_path_factory.mktemp("decided"))
    desk = desk_at(workspace)
    desk.decide(SETTINGS, "AAA", FIRST)
    path = desk.memory_path
    assert path is not None
    return workspace, path.read_bytes(), path.with_name("decisions.md").read_bytes()


@pytest.fixture
def place(decided: tuple[Workspace, bytes, bytes]) -> Workspace:
    """Give back the workspace with the memory as it was after one decision."""
    workspace, journal, log = decided
    memory = NamedMemory("mine", workspace.reports)
    memory.path.write_bytes(journal)
    memory.path.with_name("decisions.md").write_bytes(log)
    return workspace


def desk_at(workspace: Workspace, memory: str = "mine") -> Desk:
    return Desk(
        workspace.snapshot, memory=memory, data_dir=workspace.data, reports_dir=workspace.reports
    )


def journal_of(workspace: Workspace) -> Path:
    return NamedMemory("mine", workspace.reports).path


def line(text: bytes) -> bytes:
    """Return a journal line with a checksum that is right."""
    return hashlib.sha256(text).hexdigest()[:16].encode() + b" " + text + b"\n"


# ------------------------------------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("name", "scope", "in_force"),
    [
        (None, "portfolio", "default"),
        (None, "ticker", "default"),
        (None, "off", "off"),
        ("off", "portfolio", "off"),
        ("OFF", "portfolio", "off"),
        ("Off", "ticker", "off"),
        # Whoever names a memory wants it.
        ("mine", "off", "mine"),
        ("offices", "portfolio", "offices"),
    ],
)
def test_one_name_is_in_force_whichever_way_memory_is_switched_off(
    name: str | None, scope: str, in_force: str
) -> None:
    assert memory_in_force(name, scope) == in_force


@pytest.mark.parametrize("name", ["", "x" * 300, 5, "a b", "../up"])
def test_what_is_no_name_is_refused_and_not_echoed_whole(name: Any) -> None:
    with pytest.raises(UsageError, match="is no name of a memory") as caught:
        memory_in_force(name, "portfolio")
    assert len(str(caught.value)) < 200


def test_a_name_that_is_given_wins_over_settings_that_switch_memory_off(place: Workspace) -> None:
    analysis = desk_at(place).decide({**SETTINGS, "memory": "off"}, "AAA", LATER)

    assert analysis.record.lessons_shown == ("AAA|2018-01-05|0",)


# ------------------------------------------------------------------------------- damage, and loss


Damage = Callable[[bytes], bytes]


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda content: content[:60] + b"?" + content[61:], "checksum does not match"),
        (lambda content: content + line(b'{"kind":"c\xffll","record":{}}'), "holds no record"),
        (lambda content: content + line(b'{"kind":"bill","record":{}}'), "holds no record"),
        (lambda content: content + line(b'{"kind":"cell","record":{}}'), "holds no record"),
        (lambda content: content + line(b'{"kind":"cell","record":\xff\xfe}'), "holds no record"),
        (lambda content: content + line(b"\xff\xfe"), "holds no record"),
        (lambda content: content + b"\xff\xfe\n", "checksum does not match"),
        (lambda content: line(b'{"kind":"header","record":{"format":9}}'), "of another release"),
    ],
)
def test_a_damaged_memory_names_itself_its_file_and_what_to_do(
    place: Workspace, damage: Damage, says: str
) -> None:
    path = journal_of(place)
    path.write_bytes(damage(path.read_bytes()))

    with pytest.raises(DataError, match=says) as caught:
        desk_at(place).decide(SETTINGS, "AAA", LATER)

    text = str(caught.value)
    assert "memory 'mine'" in text
    assert str(path) in text
    assert f"move {path.parent} away" in text
    assert "run's folder" not in text


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def only_a_header(path: Path) -> None:
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])


@pytest.mark.parametrize("lose", [emptied, only_a_header, Path.unlink])
def test_a_memory_that_lost_its_decisions_is_not_an_empty_one(
    place: Workspace, lose: Callable[[Path], None]
) -> None:
    lose(journal_of(place))

    with pytest.raises(DataError, match="memory 'mine' has lost its decisions"):
        desk_at(place).decide(SETTINGS, "AAA", LATER)


def test_a_memory_begins_anew_once_its_folder_was_moved_away(place: Workspace) -> None:
    folder = journal_of(place).parent
    folder.rename(folder.with_name("old"))

    assert desk_at(place).decide(SETTINGS, "AAA", LATER).record.lessons_shown == ()


def test_a_first_append_that_was_cut_short_is_an_empty_memory(tmp_path: Path) -> None:
    memory = NamedMemory("new", tmp_path)
    memory.folder.mkdir(parents=True)
    memory.path.write_bytes(b"")

    assert memory.recall().cells == {}


def test_a_journal_that_cannot_be_read_is_no_want_of_room(place: Workspace) -> None:
    path = journal_of(place)
    path.unlink()
    path.mkdir()
    try:
        with pytest.raises(DataError, match=r"memory 'mine'.*cannot be read.*allow") as caught:
            desk_at(place).recall()
    finally:
        path.rmdir()
    assert "room" not in str(caught.value)


# ------------------------------------------------------------------------------- one bad entry


def plant(workspace: Workspace, **changes: Any) -> None:
    """Add an entry like the first, with changes and a checksum that is right."""
    cell = read_ledger(journal_of(workspace)).cells[make_key("AAA", "2018-01-05")]
    with journal_of(workspace).open("ab") as journal:
        journal.write(encode(replace(cell, **changes)))


def decide_later(workspace: Workspace) -> Analysis:
    return desk_at(workspace).decide(SETTINGS, "AAA", LATER)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        # A Saturday, and New Year's Day.
        ({"key": make_key("AAA", "2018-01-06")}, "2018-01-06"),
        ({"key": make_key("BBB", "2018-01-01")}, "2018-01-01"),
        ({"key": make_key("BBB", "2018-01-05"), "rating": "Strong Buy"}, "'Strong Buy'"),
    ],
)
def test_an_entry_that_cannot_be_settled_stays_open_and_is_named_and_blocks_no_other(
    place: Workspace, changes: dict[str, Any], says: str
) -> None:
    plant(place, **changes)

    analysis = decide_later(place)

    (entry,) = analysis.left_open
    assert entry.key == changes["key"]
    assert says in str(entry)
    assert analysis.record.lessons_shown == ("AAA|2018-01-05|0",)


def test_entries_of_another_world_are_no_fault(place: Workspace) -> None:
    plant(place, key=make_key("AAA", "2031-01-04"))
    plant(place, key=make_key("ZZZ", "2018-01-06"))

    assert decide_later(place).left_open == ()


# ---------------------------------------------------------------------------- folders of analyses


def test_two_memories_have_analyses_of_their_own(place: Workspace) -> None:
    one, two = (
        desk_at(place, name).decide(SETTINGS, "BBB", FIRST).folder for name in ("one", "two")
    )

    assert one != two
    for folder in (one, two):
        logged = json.loads((folder / "full_states_log_2018-01-05.json").read_text("utf-8"))
        assert logged["company_of_interest"] == "BBB"
