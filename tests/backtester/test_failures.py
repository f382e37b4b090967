"""Runs through a real client whose provider misbehaves: what is kept, retried and replayed."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest

from backtester.api import load_run
from backtester.backtest import RunResult, run
from backtester.config import RunConfig
from backtester.errors import ProviderError, RunStopped
from backtester.packs.replays import replay
from backtester.runs.folder import RunFolder
from backtester.runs.journal import Ledger, read_ledger
from tests.support.openai_server import OpenAIServer, completion, cut, error, text
from tests.support.records import make_key
from tests.support.rulebook_server import Fault, by_the_rules, faulty
from tests.support.workspaces import Workspace, make_workspace

SECRET = "sk-TEST-SECRET-123"
MANAGER = "Portfolio Manager"


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return make_workspace(tmp_path)


def config_for(workspace: Workspace, server: OpenAIServer, **changes: Any) -> RunConfig:
    return workspace.wired(server.url, **{"end": date(2018, 1, 19), **changes})


def ledger_of(result: RunResult) -> Ledger:
    return read_ledger(result.folder / "journal.jsonl")


def test_a_run_through_the_wire_is_recorded_and_replayed_with_the_server_gone(
    workspace: Workspace,
) -> None:
    with OpenAIServer(by_the_rules) as server:
        result = run(config_for(workspace, server), api_keys={"openai_compatible": SECRET})
        asked = len(server.requests)
    by_rules = run(workspace.config(end=date(2018, 1, 19)))

    found = replay(RunFolder(result.folder), workspace.data)

    assert asked == result.model_calls > 0
    assert (found.equal, found.misses) == (True, ())
    # The wire changes nothing: the same rules asked directly give the same ratings.
    assert [cell.rating for cell in ledger_of(result).cells.values()] == [
        cell.rating for cell in ledger_of(by_rules).cells.values()
    ]


def test_a_key_is_in_no_file_after_record_and_failure(workspace: Workspace) -> None:
    refused = Fault(
        role="Trader",
        day="2018-01-12",
        symbol="AAA",
        acts=[error(401, f"Incorrect API key provided: {SECRET}", code="invalid_api_key")],
    )
    with OpenAIServer(faulty(refused)) as server:
        result = run(config_for(workspace, server), api_keys={"openai_compatible": SECRET})
    replay(RunFolder(result.folder), workspace.data, keep=workspace.path / "kept")

    assert result.counts["failed"] == 1
    files = [path for path in sorted(workspace.path.rglob("*")) if path.is_file()]
    assert len(files) > 5
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []


def test_refused_cut_repaired_and_unread_replies_replay_to_their_own_root(
    workspace: Workspace,
) -> None:
    no_json = text("I would rather not say.")
    faults = [
        Fault(
            role="Bull Researcher",
            day="2018-01-05",
            symbol="AAA",
            acts=[completion(None, refusal="I cannot help with that.")],
        ),
        Fault(role="Bear Researcher", day="2018-01-05", symbol="BBB", acts=[cut("The trend i")]),
        Fault(role=MANAGER, day="2018-01-12", symbol="AAA", acts=[text('{"rating": "Strong"}')]),
        Fault(role=MANAGER, day="2018-01-12", symbol="BBB", acts=[no_json, no_json, no_json]),
    ]
    with OpenAIServer(faulty(*faults)) as server:
        result = run(config_for(workspace, server), api_keys={"openai_compatible": SECRET})
    ledger = ledger_of(result)

    found = replay(RunFolder(result.folder), workspace.data)

    states = {
        str(key): (cell.status, cell.error_class, cell.rating_source)
        for key, cell in ledger.cells.items()
        if (cell.status, cell.rating_source) != ("done", "structured")
    }
    assert states == {
        "AAA|2018-01-05|0": ("failed", "refusal", "none"),
        "BBB|2018-01-05|0": ("failed", "length", "none"),
        "AAA|2018-01-12|0": ("done", None, "repaired"),
        "BBB|2018-01-12|0": ("unread", None, "none"),
    }
    assert ledger.cells[make_key("BBB", "2018-01-12")].rating is None
    assert (found.equal, found.misses) == (True, ())


def test_a_failed_cell_is_decided_again_and_after_it_only_cells_whose_lessons_changed(
    workspace: Workspace,
) -> None:
    down = Fault(
        role="Trader", day="2018-01-05", symbol="AAA", acts=[error(500, "down for a moment")]
    )
    with OpenAIServer(faulty(down)) as server:
        config = config_for(workspace, server, grid="daily", end=date(2018, 1, 12))
        first = run(config, api_keys={"openai_compatible": SECRET})
        before = ledger_of(first)
        asked = len(server.requests)
        second = run(config, api_keys={"openai_compatible": SECRET})
        after = ledger_of(second)
        again = {
            (line.split("Simulated date: ")[1][:10], line.split("Instrument: ")[1][:3])
            for body in server.bodies[asked:]
            if "Instrument: " in (line := str(body["messages"][0]["content"]))
        }
    clean = run(
        config_for(
            workspace,
            server,
            grid="daily",
            end=date(2018, 1, 12),
            reports_dir=workspace.path / "clean",
        ),
        api_keys={"openai_compatible": SECRET},
    )

    assert first.counts == {"done": 17, "failed": 1}
    assert second.counts == {"done": 18}
    # The lesson of 2018-01-05, h=3, is known at the close of 01-10; three sessions read it.
    changed = {
        key
        for key in after.cells
        if after.cells[key].lessons_hash != before.cells[key].lessons_hash
    }
    assert changed == {
        make_key(ticker, day)
        for ticker in ("AAA", "BBB")
        for day in ("2018-01-10", "2018-01-11", "2018-01-12")
    }
    redone = {cell.key for cell in after.superseded}
    assert redone == changed | {make_key("AAA", "2018-01-05")}
    assert again <= {(str(key.session), key.ticker) for key in redone}
    assert second.root == clean.root


def test_a_failed_cell_is_tried_again_at_its_barrier(workspace: Workspace) -> None:
    down = Fault(role="Trader", day="2018-01-05", symbol="AAA", acts=[error(500, "a moment")] * 2)
    with OpenAIServer(faulty(down)) as server:
        result = run(
            config_for(workspace, server, cell_retries=2), api_keys={"openai_compatible": SECRET}
        )

    assert result.counts == {"done": 6}
    assert replay(RunFolder(result.folder), workspace.data).equal
    # What the two failed tries asked was paid for: it is in the table, and in the count.
    rows = load_run(result.run_id, reports_dir=workspace.reports).sql(
        "SELECT phase, count(*) FILTER (NOT hit) AS paid FROM llm_calls GROUP BY ALL ORDER BY phase"
    )
    paid = dict(zip(rows["phase"], rows["paid"], strict=True))
    assert sum(paid.values()) == result.model_calls
    assert paid["superseded"] > 2


def test_a_provider_that_is_not_there_stops_the_run_which_goes_on_later(
    workspace: Workspace,
) -> None:
    with OpenAIServer(by_the_rules) as server:
        gone = config_for(workspace, server)
    with pytest.raises(ProviderError, match="goes on with the same command"):
        run(gone, api_keys={"openai_compatible": SECRET})
    manifests = list(workspace.reports.glob("*/manifest.json"))
    assert len(manifests) == 1
    assert '"status": "stopped"' in manifests[0].read_text()

    with OpenAIServer(by_the_rules) as server:
        back = config_for(workspace, server)
        result = run(back, api_keys={"openai_compatible": SECRET})

    assert result.folder == manifests[0].parent
    assert result.counts == {"done": 6}


def test_a_lesson_that_failed_is_written_on_the_next_run(workspace: Workspace) -> None:
    def answer(received: Any) -> Any:
        system = str(received.body["messages"][0]["content"])
        if system.startswith("Role: Reflector") and not broken["done"]:
            broken["done"] = True
            return error(500, "down")
        return by_the_rules(received)

    broken = {"done": False}
    with OpenAIServer(answer) as server:
        first = run(config_for(workspace, server), api_keys={"openai_compatible": SECRET})
        failed = [row for row in ledger_of(first).lessons.values() if row.lesson_status == "failed"]
        second = run(config_for(workspace, server), api_keys={"openai_compatible": SECRET})

    assert len(failed) == 1
    assert failed[0].raw_return is not None
    rows = ledger_of(second).lessons.values()
    assert {row.lesson_status for row in rows} == {"written"}
    assert replay(RunFolder(second.folder), workspace.data).equal


def test_a_run_that_is_told_to_stops_at_its_first_failed_cell_and_goes_on_later(
    workspace: Workspace,
) -> None:
    down = Fault(role="Trader", day="2018-01-12", symbol="BBB", acts=[error(500, "a moment")])
    with OpenAIServer(faulty(down)) as server:
        config = config_for(workspace, server, on_failure="stop")
        with pytest.raises(RunStopped, match=r"BBB\|2018-01-12\|0 failed \(transport"):
            run(config, api_keys={"openai_compatible": SECRET})
        result = run(config, api_keys={"openai_compatible": SECRET})

    assert result.kept == 3
    assert result.counts == {"done": 6}


def test_a_decision_that_fails_on_a_resume_takes_its_return_and_lesson_with_it(
    workspace: Workspace,
) -> None:
    """The first command misses AAA; the second changes later lessons, and BBB fails under them."""
    first_down = Fault(role="Trader", day="2018-01-05", symbol="AAA", acts=[error(500, "a moment")])
    never = [error(400, "refused")] * 50
    with OpenAIServer(faulty(first_down)) as server:
        config = config_for(workspace, server, grid="daily", end=date(2018, 1, 12))
        before = ledger_of(run(config, api_keys={"openai_compatible": SECRET}))
    later = Fault(role=MANAGER, day="2018-01-10", symbol="BBB", acts=never)
    with OpenAIServer(faulty(later)) as server:
        config = config_for(workspace, server, grid="daily", end=date(2018, 1, 12))
        result = run(config, api_keys={"openai_compatible": SECRET})
    ledger, lost = ledger_of(result), make_key("BBB", "2018-01-10")

    assert before.returns[lost].status == "resolved"
    assert ledger.cells[lost].status in ("failed", "unread")
    if ledger.cells[lost].status == "failed":
        assert lost not in ledger.returns
        assert lost not in ledger.lessons
    assert replay(RunFolder(result.folder), workspace.data).equal


def test_a_cell_that_fails_for_good_leaves_its_run_finished_however_often_it_is_run(
    workspace: Workspace,
) -> None:
    never = [error(500, "always down for this one")] * 99
    broken = Fault(role="Trader", day="2018-01-12", symbol="AAA", acts=never)
    with OpenAIServer(faulty(broken)) as server:
        config = config_for(workspace, server, tickers=("AAA",))
        results = [run(config, api_keys={"openai_compatible": SECRET}) for _ in range(3)]

    assert [result.counts for result in results] == [{"done": 2, "failed": 1}] * 3
    assert len({result.root for result in results}) == 1
    assert RunFolder(results[0].folder).read_manifest().status == "finished"
    assert replay(RunFolder(results[0].folder), workspace.data).equal


def test_a_model_that_the_server_does_not_know_stops_the_run_at_its_first_session(
    workspace: Workspace,
) -> None:
    with OpenAIServer(error(404, "The model does not exist", code="model_not_found")) as server:
        with pytest.raises(ProviderError, match="The model does not exist"):
            run(config_for(workspace, server), api_keys={"openai_compatible": SECRET})
        asked = len(server.requests)

    assert asked == 2
