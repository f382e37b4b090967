"""From the vendors' own answers to decisions and their replay, with every tool at work."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from backtester.backtest import RunResult, run
from backtester.config import RunConfig
from backtester.freeze.freezing import Frozen, Way, freeze, load_plan
from backtester.packs.replays import replay
from backtester.replies.cache import ReplyCache
from backtester.runs.folder import RunFolder
from backtester.runs.journal import read_ledger
from backtester.schema import TABLES
from backtester.snapshots.snapshot import open_snapshot, verify_snapshot
from backtester.vendors.base import VendorSettings
from backtester.vendors.yahoo import Yahoo
from tests.backtester.vendors.test_sec import WHO
from tests.support.page_server import PageServer, settings_for
from tests.support.vendor_street import PLAN, Prices, Street
from tests.support.vendor_trouble import SECRET
from tradingagents_core.tools import TOOLS

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("street")


@pytest.fixture(scope="module")
def frozen(place: Path) -> Iterator[Frozen]:
    committed = open_snapshot("us-2013-2018", place)
    with PageServer(Street()) as server:
        settings = settings_for(server, api_key=SECRET, user_agent=WHO)
        way = Way(
            settings_of=lambda row: settings,
            vendors={"yfinance": Yahoo(VendorSettings(), Prices(committed))},
        )
        yield freeze(load_plan(PLAN, {}), place / "data", captured_at=NOW, way=way)


@pytest.fixture(scope="module")
def decided(place: Path, frozen: Frozen) -> RunResult:
    # Two decisions; the server is left alone from here on.
    return run(
        RunConfig(
            tickers=("AAPL",),
            start=date(2018, 6, 28),
            end=date(2018, 6, 29),
            grid="daily",
            horizon=2,
            benchmark="^GSPC",
            snapshot=frozen.snapshot.name,
            data_dir=place / "data",
            reports_dir=place / "reports",
        )
    )


@pytest.fixture(scope="module")
def prompts(place: Path, decided: RunResult) -> str:
    cache = ReplyCache.open(place / "data" / "cache" / "replies", read_only=True)
    return "\n".join(record.request for record in cache.records())


def test_every_table_is_filled_by_its_vendor_and_the_snapshot_verifies(frozen: Frozen) -> None:
    snapshot = frozen.snapshot
    assert verify_snapshot(snapshot.path) == []
    assert set(snapshot.manifest.tables) == set(TABLES)
    assert snapshot.manifest.absent.keys() <= {
        f"{table}/^GSPC" for table in ("statements", "news", "social", "insider")
    }
    vendors = {source.name for source in snapshot.manifest.sources}
    assert vendors == {
        "yfinance bars",
        "sec statements",
        "sec insider",
        "alpha_vantage news",
        "stocktwits social",
        "reddit social",
        "fred macro",
        "polymarket prediction_markets",
    }
    counted = {f.message for f in snapshot.manifest.findings if f.kind == "undated"}
    assert counted == {"social of AAPL: 1 rows without a date left out"}


def test_the_prices_are_those_that_were_traded(frozen: Frozen, place: Path) -> None:
    committed = open_snapshot("us-2013-2018", place)
    for name in ("AAPL", "^GSPC"):
        ours, theirs = frozen.snapshot.bars(name), committed.bars(name)
        known = dict(zip(map(str, theirs.sessions), theirs.close.tolist(), strict=True))
        for day, close in zip(map(str, ours.sessions), ours.close.tolist(), strict=True):
            assert close == pytest.approx(known[day], abs=0.005)


def test_no_key_and_no_name_of_who_asked_is_stored(frozen: Frozen) -> None:
    for path in sorted(frozen.snapshot.path.iterdir()):
        assert SECRET.encode() not in path.read_bytes()
        assert b"research@example.org" not in path.read_bytes()


def test_every_tool_of_the_analysts_has_real_text_in_the_prompts(prompts: str) -> None:
    said = answers_of(prompts)
    assert set(said) == set(TOOLS)
    for name, texts in said.items():
        for text in texts:
            assert "DATA_UNAVAILABLE" not in text, name
            assert "NO_DATA_AVAILABLE" not in text, name
            assert len(text.splitlines()) >= 3, name
    for word in (
        "61137",
        "LEVINSON ARTHUR D",
        "Headline 1",
        "Tariffs move markets",
        "250.535",
        "US recession in 2018",
        "looks strong",
        "AAPL buybacks",
    ):
        assert word in prompts.replace(",", ""), word


def test_nothing_that_came_later_is_in_a_prompt(prompts: str) -> None:
    for word in ("Headline 2", "told after the last decision", "250.857", "99.0%"):
        assert word.lower() not in prompts.lower(), word


def test_both_decisions_replay_to_their_root(decided: RunResult, place: Path) -> None:
    ledger = read_ledger(decided.folder / "journal.jsonl")
    assert [cell.status for cell in ledger.cells.values()] == ["done", "done"]
    assert all(cell.rating for cell in ledger.cells.values())
    assert replay(RunFolder(decided.folder), place / "data").equal


def answers_of(prompts: str) -> dict[str, set[str]]:
    """Return what each tool answered, from the requests that carried it on."""
    found: dict[str, set[str]] = {}
    for line in prompts.splitlines():
        messages = json.loads(line)["body"]["messages"]
        names = {
            call["id"]: call["function"]["name"]
            for each in messages
            for call in each.get("tool_calls") or ()
        }
        for each in messages:
            if each["role"] == "tool":
                found.setdefault(names[each["tool_call_id"]], set()).add(each["content"])
    return found
