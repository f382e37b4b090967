"""One decision with a memory of its own, made by the run's own steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from backtester.backtest import run
from backtester.desk.attended import Opening
from backtester.desk.desk import Analysis, Desk
from backtester.errors import CacheMiss, DataError, ProviderError, RunLocked, UsageError
from backtester.records import LessonRecord
from backtester.runs.folder import RunFolder
from backtester.runs.journal import read_ledger
from tests.support.openai_server import OpenAIServer, error
from tests.support.records import make_key
from tests.support.rulebook_server import Fault, by_the_rules, faulty
from tests.support.workspaces import Workspace, make_workspace, wave, wire

FIRST, LATER = date(2018, 1, 5), date(2018, 1, 19)
SETTINGS: dict[str, Any] = {"horizon": 3, "benchmark": "^GSPC"}


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return make_workspace(tmp_path)


def desk_at(workspace: Workspace, memory: str = "mine", **options: Any) -> Desk:
    places = {"data_dir": workspace.data, "reports_dir": workspace.reports}
    return Desk(workspace.snapshot, memory=memory, **{**places, **options})


def keys_of(analysis: Analysis) -> list[str]:
    return [call.key for call in analysis.record.calls]


class Listener:
    """Keep all news in order."""

    def __init__(self) -> None:
        self.lessons: list[LessonRecord] = []
        self.openings: list[Opening] = []
        self.started: list[str] = []
        self.nodes: list[str] = []
        self.asked: list[int] = []

    def settled(self, lessons: Sequence[LessonRecord]) -> None:
        self.lessons += lessons

    def opened(self, opening: Opening) -> None:
        self.openings.append(opening)

    def node_started(self, node: str) -> None:
        self.started.append(node)

    def node_finished(self, cell: str, node: str, update: Mapping[str, Any]) -> None:
        self.nodes.append(node)
        self.asked.append(len(self.openings[-1].calls()))


# --------------------------------------------------------------------------------- the same thing


def test_a_desk_asks_what_a_run_of_one_cell_asks_and_decides_the_same(
    workspace: Workspace,
) -> None:
    result = run(workspace.config(tickers=("AAA",), start=FIRST, end=FIRST, grid="daily"))
    cell = read_ledger(result.folder / "journal.jsonl").cells[make_key("AAA", "2018-01-05")]

    analysis = desk_at(workspace).decide(SETTINGS, "AAA", FIRST)

    assert keys_of(analysis) == [call.key for call in cell.calls]
    assert all(call.hit for call in analysis.record.calls)
    assert analysis.record.reads == cell.reads
    assert analysis.record.state_hashes == cell.state_hashes
    assert analysis.decision.rating == cell.rating is not None


def test_a_date_without_a_session_moves_to_the_one_before(workspace: Workspace) -> None:
    analysis = desk_at(workspace).decide(SETTINGS, "AAA", date(2018, 1, 7))

    assert analysis.record.key.session == date(2018, 1, 5)
    assert analysis.folder.name.startswith("aaa-2018-01-05-")


@pytest.mark.parametrize("written", ["aaa", "AAA+", " aaa++ "])
def test_any_spelling_of_a_symbol_is_the_same_question(workspace: Workspace, written: str) -> None:
    analysis = desk_at(workspace).decide(SETTINGS, written, FIRST)

    assert analysis.record.key.ticker == "AAA"


def test_an_index_may_be_asked_for_by_the_name_of_its_contract(workspace: Workspace) -> None:
    assert desk_at(workspace).kind_of(SETTINGS, "spx500", FIRST) == "index"


def test_the_state_at_the_end_comes_with_the_decision(workspace: Workspace) -> None:
    decision = desk_at(workspace).decide(SETTINGS, "AAA", FIRST).decision

    assert decision.state["trade_date"] == "2018-01-05"
    assert decision.state["final_trade_decision"] == decision.markdown
    assert f"**Rating**: {decision.rating}" in decision.markdown


# ----------------------------------------------------------------------------------------- memory


def test_a_decision_leaves_one_memory_row_that_waits(workspace: Workspace) -> None:
    desk = desk_at(workspace)
    desk.decide(SETTINGS, "AAA", FIRST)
    desk.decide(SETTINGS, "AAA", FIRST)

    ledger = desk.recall()
    assert {key: row.lesson_status for key, row in ledger.lessons.items()} == {
        make_key("AAA", "2018-01-05"): "waiting"
    }
    assert ledger.returns == {}


def test_what_has_resolved_by_the_date_is_settled_first_and_its_lesson_shown(
    workspace: Workspace,
) -> None:
    """AAA of 2018-01-05, three sessions: known at the close of 2018-01-10, 21:00 UTC."""
    desk = desk_at(workspace)
    desk.decide(SETTINGS, "AAA", FIRST)

    analysis = desk.decide(SETTINGS, "AAA", LATER)

    (lesson,) = analysis.settled
    assert lesson.lesson_status == "written"
    assert lesson.resolved_at == datetime(2018, 1, 10, 21, 0, tzinfo=UTC)
    assert analysis.record.lessons_shown == ("AAA|2018-01-05|0",)
    assert lesson.lesson in analysis.decision.state["past_context"]
    assert desk.decide(SETTINGS, "AAA", LATER).settled == ()


def test_a_lesson_is_the_one_that_a_run_would_write(workspace: Workspace) -> None:
    config = workspace.config(tickers=("AAA",), grid=(FIRST, LATER), start=FIRST, end=LATER)
    ledger = read_ledger(run(config).folder / "journal.jsonl")
    desk = desk_at(workspace)

    first = desk.decide(SETTINGS, "AAA", FIRST)
    later = desk.decide(SETTINGS, "AAA", LATER)

    assert all(call.hit for one in (first, later) for call in one.record.calls)
    assert all(call.hit for call in later.settled[0].calls)
    assert later.settled[0].lesson == ledger.lessons[first.record.key].lesson
    assert later.record.lessons_hash == ledger.cells[later.record.key].lessons_hash


def test_a_result_that_is_not_known_by_the_date_stays_open(workspace: Workspace) -> None:
    desk = desk_at(workspace)
    desk.decide(SETTINGS, "AAA", FIRST)

    analysis = desk.decide(SETTINGS, "BBB", date(2018, 1, 9))

    assert analysis.settled == ()
    assert analysis.record.lessons_shown == ()


def test_an_earlier_date_sees_no_lesson_of_a_later_one(workspace: Workspace) -> None:
    desk = desk_at(workspace)
    desk.decide(SETTINGS, "AAA", FIRST)
    desk.decide(SETTINGS, "AAA", LATER)

    early = desk.decide(SETTINGS, "AAA", date(2018, 1, 8))

    assert early.record.lessons_shown == ()
    assert early.settled == ()


def test_memories_with_other_names_do_not_see_each_other(workspace: Workspace) -> None:
    desk_at(workspace, "one").decide(SETTINGS, "AAA", FIRST)

    assert desk_at(workspace, "two").decide(SETTINGS, "AAA", LATER).record.lessons_shown == ()
    assert desk_at(workspace, "one").decide(SETTINGS, "AAA", LATER).record.lessons_shown != ()


def test_a_memory_that_is_off_shows_nothing_and_keeps_nothing(workspace: Workspace) -> None:
    desk = desk_at(workspace, "off")
    desk.decide(SETTINGS, "AAA", FIRST)

    assert desk.decide(SETTINGS, "AAA", LATER).record.lessons_shown == ()
    assert desk.memory_path is None
    assert not (workspace.reports / "memory").exists()


def test_lessons_of_another_snapshot_are_shown_and_its_open_decisions_wait(
    workspace: Workspace, tmp_path: Path
) -> None:
    desk = desk_at(workspace)
    desk.decide(SETTINGS, "AAA", FIRST)
    desk.decide(SETTINGS, "AAA", date(2018, 1, 12))
    desk.decide(SETTINGS, "BBB", LATER)
    other = make_workspace(
        tmp_path / "other",
        {
            symbol: wave(symbol, start="2017-06-01", count=200, phase=phase, drift=0.0)
            for symbol, phase in (("CCC", 0.5), ("^GSPC", 1.0))
        },
        name="other",
    )

    analysis = Desk(
        other.snapshot, memory="mine", data_dir=other.data, reports_dir=workspace.reports
    ).decide(SETTINGS, "CCC", date(2018, 1, 24))

    assert analysis.record.lessons_shown == ("AAA|2018-01-12|0", "AAA|2018-01-05|0")
    assert desk.recall().lessons[make_key("BBB", "2018-01-19")].lesson_status == "waiting"


@pytest.mark.parametrize("name", ["", "../up", "a/b", "two words", "x" * 41])
def test_a_memory_name_cannot_leave_its_folder(workspace: Workspace, name: str) -> None:
    with pytest.raises(UsageError, match="is no name of a memory"):
        desk_at(workspace, name)


# --------------------------------------------------------------------------------- what goes wrong


def test_a_memory_that_cannot_be_written_is_told_before_anything_is_asked(
    workspace: Workspace,
) -> None:
    (workspace.reports / "memory").mkdir(parents=True)
    (workspace.reports / "memory" / "mine").write_text("a file in the place of the folder")
    listener = Listener()

    with pytest.raises(UsageError, match="cannot be written"):
        desk_at(workspace).decide(SETTINGS, "AAA", FIRST, watcher=listener)

    assert listener.started == []


def test_a_date_or_ticker_that_the_snapshot_does_not_hold_is_told(workspace: Workspace) -> None:
    desk = desk_at(workspace)

    with pytest.raises(DataError, match="outside snapshot small"):
        desk.decide(SETTINGS, "AAA", date(2030, 1, 2))
    with pytest.raises(DataError, match="'ZZZ' is not in snapshot small"):
        desk.decide(SETTINGS, "ZZZ", FIRST)
    with pytest.raises(UsageError, match="memry"):
        desk.decide({"memry": "off"}, "AAA", FIRST)


def test_a_strict_replay_without_a_recording_makes_no_call(workspace: Workspace) -> None:
    with pytest.raises(CacheMiss, match="no recording for node"):
        desk_at(workspace).decide({**SETTINGS, "mode": "replay"}, "AAA", FIRST)


# --------------------------------------------------------------------------------- what is watched


def test_a_watcher_hears_every_node_with_the_calls_so_far(workspace: Workspace) -> None:
    listener = Listener()
    desk = desk_at(workspace)
    desk.decide(SETTINGS, "AAA", FIRST)

    analysis = desk.decide(SETTINGS, "AAA", LATER, watcher=listener)

    assert [lesson.key for lesson in listener.lessons] == [make_key("AAA", "2018-01-05")]
    (opening,) = listener.openings
    assert (opening.symbol, opening.session, opening.lessons) == ("AAA", LATER, 1)
    assert listener.nodes[0] == "Market Analyst"
    assert listener.nodes[-1] == "Portfolio Manager"
    assert listener.started == listener.nodes
    assert len(listener.nodes) == analysis.record.steps
    assert listener.asked == sorted(listener.asked)
    assert listener.asked[-1] == len(analysis.record.calls)


def test_a_provider_that_is_gone_keeps_what_was_paid_for(workspace: Workspace) -> None:
    desk = desk_at(workspace)
    down = Fault(role="Trader", day="2018-01-05", symbol="AAA", acts=[error(503, "down")])
    with OpenAIServer(faulty(down)) as server:
        with pytest.raises(ProviderError, match="goes on from there"):
            desk.decide({**SETTINGS, **wire(server.url)}, "AAA", FIRST)
        paid = len(server.requests)
        analysis = desk.decide({**SETTINGS, **wire(server.url)}, "AAA", FIRST)
        asked = len(server.requests)

    assert analysis.decision.rating is not None
    # The trader was asked again; nobody before was.
    assert sum(not call.hit for call in analysis.record.calls) >= asked - paid
    bodies = [str(request.body["messages"]) for request in server.requests]
    assert len(set(bodies)) == len(bodies) - 1


def test_nothing_of_a_failed_analysis_is_remembered(workspace: Workspace) -> None:
    desk = desk_at(workspace)
    down = Fault(role="Trader", day="2018-01-05", symbol="AAA", acts=[error(503, "down")])
    with OpenAIServer(faulty(down)) as server, pytest.raises(ProviderError):
        desk.decide({**SETTINGS, **wire(server.url)}, "AAA", FIRST)

    assert desk.recall().cells == {}


def test_the_same_rules_over_the_wire_give_the_same_rating(workspace: Workspace) -> None:
    with OpenAIServer(by_the_rules) as server:
        asked = desk_at(workspace).decide({**SETTINGS, **wire(server.url)}, "AAA", FIRST)

    assert (
        asked.decision.rating == desk_at(workspace).decide(SETTINGS, "AAA", FIRST).decision.rating
    )


# ------------------------------------------------------------------------------- what is told later


def test_a_told_return_becomes_a_lesson_on_the_simulated_clock(workspace: Workspace) -> None:
    desk = desk_at(workspace)
    record = desk.decide(SETTINGS, "AAA", FIRST).record

    lesson = desk.reflect(SETTINGS, record, earned=0.032)

    assert (lesson.raw_return, lesson.alpha, lesson.lesson_status) == (0.032, None, "written")
    before = desk.decide(SETTINGS, "AAA", date(2018, 1, 9))
    after = desk.decide(SETTINGS, "AAA", LATER)
    assert before.record.lessons_shown == ()
    # The decision of 2018-01-09 is settled from the bars; what was told is not settled again.
    assert [row.key.session for row in after.settled] == [date(2018, 1, 9)]
    assert "AAA|2018-01-05|0" in after.record.lessons_shown
    assert desk.recall().lessons[record.key] == lesson


# ------------------------------------------------------------------------------ settings of a run


def test_what_a_shared_configuration_says_of_a_run_gives_way_to_the_question(
    workspace: Workspace,
) -> None:
    of_a_run = {
        "tickers": ("BBB",),
        "start": date(2018, 2, 1),
        "end": date(2018, 1, 2),
        "grid": "monthly",
        "trials": 3,
        "trials_share_memory": "first",
        "warmup": 2,
        "workers": 4,
        "backend": "loky",
    }

    shared = desk_at(workspace).decide({**of_a_run, **SETTINGS}, "AAA", FIRST)
    alone = desk_at(workspace).decide(SETTINGS, "AAA", FIRST)

    assert shared.record.key == make_key("AAA", "2018-01-05")
    assert shared.folder == alone.folder
    assert keys_of(shared) == keys_of(alone)


def test_the_folders_of_a_desk_win_over_settings_under_any_name(workspace: Workspace) -> None:
    elsewhere = {**SETTINGS, "results_dir": "elsewhere", "data_dir": "nowhere"}

    analysis = desk_at(workspace).decide(elsewhere, "AAA", FIRST)

    assert analysis.folder.parent == workspace.reports / "analyses"


def test_who_works_on_an_analysis_is_told_in_its_own_word(workspace: Workspace) -> None:
    desk = desk_at(workspace)
    folder = desk.decide(SETTINGS, "AAA", FIRST).folder

    with (
        RunFolder(folder).lock(),
        pytest.raises(RunLocked, match=r"^analysis aaa-2018-01-05-.* is being worked on"),
    ):
        desk.decide(SETTINGS, "AAA", FIRST)
