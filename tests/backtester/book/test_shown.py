"""The simulated book that the portfolio manager is shown: its figures, none of them from later."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import date, datetime
from pathlib import Path
from typing import Any, ClassVar

import pytest

from backtester import cli
from backtester.backtest import RunResult, run
from backtester.book.shown import ShownBooks, rule_of
from backtester.book.simulation import Signal, simulate
from backtester.config import RunConfig
from backtester.errors import UsageError
from backtester.estimates.estimate import estimate
from backtester.leaks.audit import leakcheck
from backtester.loading import load_config
from backtester.packs.replays import replay
from backtester.records import CellKey, CellRecord
from backtester.replies.cache import ReplyCache
from backtester.runs.folder import RunFolder
from backtester.runs.journal import Ledger, read_ledger
from backtester.score.definition import DEFAULT_COSTS, run_definition
from backtester.score.files import read_score
from backtester.settlement.pricing import market_of
from backtester.snapshots.snapshot import Snapshot
from backtester.spending.tariff import Tariff
from backtester.walk.cell import Parts
from backtester.walk.plan import cache_folder
from tests.support.openai_server import OpenAIServer, error
from tests.support.records import make_cell, make_key
from tests.support.rulebook_server import Fault, faulty
from tests.support.snapshots import (
    closes,
    make_bars,
    make_instrument,
    make_snapshot,
    sessions_of,
    split,
)
from tests.support.workspaces import Workspace, make_workspace
from tradingagents_core.errors import NoMarketData
from tradingagents_core.holdings import holdings_text
from tradingagents_core.protocols import Holdings

DAYS = sessions_of("AAA", "2018-01-02", 8)
KEYS = {"openai_compatible": "sk-TEST-SECRET-123"}


FREE = {"show_book_commission_bps": 0.0, "show_book_slippage_bps": 0.0}


def config_of(**changes: Any) -> RunConfig:
    """Make a run with a small book without costs, whose figures come out round."""
    fields = {"tickers": ("AAA", "BBB"), "start": DAYS[0], "end": DAYS[-1], "grid": "daily"}
    return RunConfig(**{**fields, "show_book": True, "show_book_cash": 1000.0, **FREE, **changes})


def market() -> Snapshot:
    """AAA opens at 10, 20, 25, 25, 10 (after a split, 5 for 2), ...; BBB stands at 50."""
    opens = [10.0, 20.0, 25.0, 25.0, 10.0, 10.0, 10.0, 10.0]
    closes = [16.0, 22.0, 25.0, 30.0, 11.0, 12.0, 12.0, 12.0]
    rows = [
        (day, opened, max(opened, close), min(opened, close), close, 1_000)
        for day, opened, close in zip(DAYS, opens, closes, strict=True)
    ]
    still = [(day, 50.0, 50.0, 50.0, 50.0, 1_000) for day in DAYS]
    return make_snapshot({"AAA": rows, "BBB": still}, actions=[split("AAA", DAYS[4], 5, 2)])


def close_of(day: date) -> datetime:
    return market_of(market(), "AAA").calendar.close_utc(day)


def decided(ticker: str, day: date, rating: str | None, **changes: Any) -> CellRecord:
    status = "done" if rating else "unread"
    fields = {"symbol": ticker, "cutoff": close_of(day), "rating": rating, "status": status}
    return make_cell(make_key(ticker, day.isoformat()), **{**fields, **changes})


def books_of(snapshot: Snapshot | None = None, **changes: Any) -> ShownBooks:
    return ShownBooks(config_of(**changes), snapshot or market(), DAYS)


def seen(books: ShownBooks, day: date, ticker: str = "AAA", trial: int = 0) -> Holdings:
    key = CellKey(session=day, ticker=ticker, trial=trial)
    return books.at(key, close_of(day), lambda instrument: f"{instrument}.then")


# ------------------------------------------------------------------------------------------ by hand


def test_before_the_first_fill_there_is_cash_alone() -> None:
    books = books_of()
    assert holdings_text(seen(books, DAYS[0])) == (
        "as of: 2018-01-02\ncurrency: USD\n"
        "rule: long_only, 2 slots, began with 1000.00 USD, orders fill at next_open, "
        "commission 0 bps, slippage 0 bps\n"
        "cash: 1000.00\nequity: 1000.00\npositions: none"
    )


def test_ratings_become_positions_at_the_next_open_and_are_marked_at_the_close() -> None:
    books = books_of()
    assert seen(books, DAYS[0]).positions == ()
    books.take([decided("AAA", DAYS[0], "Buy"), decided("BBB", DAYS[0], "Sell")])
    # A slot is 500, and AAA opens at 20: 25 shares, at the close of 22 worth 550.
    book = seen(books, DAYS[1])
    (held,) = book.positions
    assert (book.cash, book.equity, held.symbol) == (500.0, 1050.0, "AAA.then")
    assert (held.shares, held.price, held.value, held.unrealised) == (25.0, 22.0, 550.0, 50.0)
    assert held.weight == 550.0 / 1050.0
    # Hold carries, none read carries too, and what failed was no decision.
    books.take([decided("AAA", DAYS[1], "Hold"), decided("BBB", DAYS[1], None)])
    assert seen(books, DAYS[2]).equity == 500.0 + 25 * 25.0
    books.take([decided("BBB", DAYS[2], None, status="failed"), decided("AAA", DAYS[2], None)])
    assert seen(books, DAYS[3]).equity == 500.0 + 25 * 30.0
    # 5 for 2 on the fifth day: 62.5 shares at 11, which cost 500 all the same.
    (held,) = seen(books, DAYS[4]).positions
    assert (held.shares, held.price, held.unrealised) == (62.5, 11.0, 62.5 * 11.0 - 500.0)
    books.take([decided("AAA", DAYS[4], "Sell")])
    book = seen(books, DAYS[5])
    assert (book.positions, book.cash) == ((), 500.0 + 62.5 * 10.0)


def test_every_cell_of_a_cutoff_sees_the_same_book() -> None:
    books = books_of()
    seen(books, DAYS[0])
    books.take([decided("AAA", DAYS[0], "Buy")])
    assert seen(books, DAYS[1], "BBB") == seen(books, DAYS[1], "AAA")


def test_each_trial_has_a_book_of_its_own() -> None:
    books = books_of(trials=2)
    key = CellKey(session=DAYS[0], ticker="AAA", trial=1)
    books.take([decided("AAA", DAYS[0], "Sell"), replace(decided("AAA", DAYS[0], "Buy"), key=key)])
    assert seen(books, DAYS[1], trial=0).positions == ()
    assert [held.shares for held in seen(books, DAYS[1], trial=1).positions] == [25.0]


def test_with_the_memory_of_a_ticker_alone_the_book_is_that_ticker_s() -> None:
    books = books_of(memory="ticker")
    books.take([decided("AAA", DAYS[0], "Buy"), decided("BBB", DAYS[0], "Buy")])
    own, other = seen(books, DAYS[1], "AAA"), seen(books, DAYS[1], "BBB")
    assert [(held.symbol, held.shares) for held in own.positions] == [("AAA.then", 50.0)]
    assert [(held.symbol, held.shares) for held in other.positions] == [("BBB.then", 20.0)]
    assert own.rule.startswith("long_only, 1 slot, ")


def test_policy_cash_and_costs_are_those_of_the_settings() -> None:
    books = books_of(
        show_book_policy="long_short",
        show_book_cash=2000.0,
        show_book_commission_bps=10.0,
        show_book_slippage_bps=25.0,
        entry="next_close",
    )
    books.take([decided("AAA", DAYS[0], "Sell")])
    book = seen(books, DAYS[1])
    (held,) = book.positions
    assert held.shares < 0
    assert held.weight is not None
    assert held.weight < -0.4
    assert book.rule == (
        "long_short, 2 slots, began with 2000.00 USD, orders fill at next_close, "
        "commission 10 bps, slippage 25 bps"
    )


def test_what_has_no_name_any_more_keeps_the_last_one_that_was_seen() -> None:
    books = books_of()
    books.take([decided("AAA", DAYS[0], "Buy", symbol="OLD")])

    def nameless(instrument: str) -> str:
        raise NoMarketData(f"{instrument} was not listed")

    key = CellKey(session=DAYS[1], ticker="BBB")
    (held,) = books.at(key, close_of(DAYS[1]), nameless).positions
    assert held.symbol == "OLD"


# ----------------------------------------------------------------------------------------- in a run


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return make_workspace(tmp_path)


def run_config(workspace: Workspace, **changes: Any) -> RunConfig:
    """Make a run of two Fridays, on the first of which both tickers are bought."""
    fields = {"start": date(2018, 2, 2), "end": date(2018, 2, 9), "analysts": ("market",)}
    return workspace.config(**{**fields, "show_book": True, "score_at_end": False, **changes})


def ledger_of(result: RunResult) -> Ledger:
    return read_ledger(result.folder / "journal.jsonl")


def manager_prompt(workspace: Workspace, cell: CellRecord) -> str:
    cache = ReplyCache.open(cache_folder(workspace.data), read_only=True)
    keys = [call.key for call in cell.calls if call.node == "Portfolio Manager"]
    record = cache.get(keys[0])
    assert record is not None
    return record.request


def test_each_portfolio_manager_is_shown_the_equity_that_the_whole_book_has_then(
    workspace: Workspace,
) -> None:
    config = run_config(workspace, end=date(2018, 3, 2), memory="off")
    cells = ledger_of(run(config)).cells
    signals = [
        Signal(ticker=key.ticker, session=key.session, rating=cell.rating)
        for key, cell in cells.items()
    ]
    whole = simulate(
        signals,
        snapshot=workspace.snapshot,
        rule=rule_of(config),
        start=config.start,
        end=config.end,
    )
    rows = {row.session: row for row in whole.equity}
    for key, cell in cells.items():
        text, row = manager_prompt(workspace, cell), rows[key.session]
        assert f"cash: {row.cash:.2f}\\nequity: {row.equity:.2f}\\n" in text
        assert "earlier ratings have led to by the simulated date" in text
    assert len({rows[key.session].equity for key in cells}) == 5
    assert len({cell.book_hash for cell in cells.values()}) == 5


class SeenBooks(ShownBooks):
    """Note each book that is shown."""

    seen: ClassVar[dict[CellKey, Holdings]] = {}

    def at(self, key: CellKey, cutoff: datetime, symbol_of: Any) -> Holdings:
        self.seen[key] = super().at(key, cutoff, symbol_of)
        return self.seen[key]


def shown_in(config: RunConfig) -> tuple[RunResult, dict[CellKey, Holdings]]:
    """Run, and return what each cell was shown."""
    SeenBooks.seen.clear()
    return run(config, parts=Parts(shown=SeenBooks)), dict(SeenBooks.seen)


@pytest.mark.parametrize("changes", [{"trials": 2}, {"warmup": 2}], ids=["trials", "warmup"])
def test_what_is_shown_is_the_book_that_the_run_s_own_score_keeps(
    workspace: Workspace, changes: Mapping[str, Any]
) -> None:
    config = run_config(workspace, end=date(2018, 3, 2), memory="off", score_at_end=True, **changes)
    result, seen = shown_in(config)
    tables = read_score(result.folder, "default").tables
    equity = {
        (row["trial"], row["session"]): row
        for row in tables["equity"].to_pylist()
        if row["book"] == "ratings"
    }
    held = {
        (row["trial"], row["session"], row["ticker"]): row
        for row in tables["positions"].to_pylist()
        if row["shares"]
    }
    first = min(session for _, session in equity)
    compared = set()
    for key, book in seen.items():
        if key.session < first:
            # Warm-up decides and remembers, and trades in neither book.
            assert (book.cash, book.positions) == (1_000_000.0, ())
            continue
        row = equity[key.trial, key.session]
        assert (book.cash, book.equity) == (row["cash"], row["equity"])
        rows = {
            ticker: (row["shares"], row["value"], row["weight"])
            for (trial, session, ticker), row in held.items()
            if (trial, session) == (key.trial, key.session)
        }
        assert {p.symbol: (p.shares, p.value, p.weight) for p in book.positions} == rows
        compared |= set(rows)
    assert compared == {"AAA", "BBB"}
    # It paid for what it traded: 1 bp of commission and 5 bps of slippage.
    assert {row["commission"] > 0.0 for row in equity.values() if row["traded"]} == {True}
    assert any(row["traded"] for row in equity.values())
    assert all(book.rule.endswith("commission 1 bps, slippage 5 bps") for book in seen.values())


def test_costs_of_the_book_that_is_shown_are_by_default_those_of_the_run_s_own_score() -> None:
    plain = RunConfig(tickers=("AAA",), start=DAYS[0], end=DAYS[-1], show_book=True)
    assert rule_of(plain).costs == DEFAULT_COSTS
    assert (
        rule_of(plain)
        == run_definition(plain, run_id="r", snapshot_id="s", universe=("AAA",)).book_rule()
    )


def test_a_replay_leads_to_the_same_root_and_nothing_is_from_the_future(
    workspace: Workspace,
) -> None:
    config = run_config(workspace, trials=2)
    result = run(config)
    again = replay(RunFolder(result.folder), workspace.data)
    assert (again.equal, again.misses) == (True, ())
    report = leakcheck(RunFolder(result.folder), workspace.data)
    assert report.clean
    assert report.prompts > 0
    # The same command finds the finished run.
    assert run(config).model_calls == 0


class HindsightBooks(ShownBooks):
    """Say what the ticker is going to close at tomorrow."""

    def at(self, key: CellKey, cutoff: datetime, symbol_of: Any) -> Holdings:
        market = market_of(self._snapshot, key.ticker)
        tomorrow = market.quote(market.calendar.shift(key.session, 1), "close")
        price = tomorrow.price if tomorrow is not None else None
        return replace(super().at(key, cutoff, symbol_of), equity=price)


def test_a_book_that_knows_tomorrow_is_found_by_the_audit(workspace: Workspace) -> None:
    leaky = Parts(shown=HindsightBooks)
    config = run_config(workspace, tickers=("AAA",), end=date(2018, 2, 2))
    result = run(config, parts=leaky)
    report = leakcheck(RunFolder(result.folder), workspace.data, parts=leaky)
    assert not report.clean
    assert {(found.check, found.table) for found in report.findings} == {("prompt", "bars")}
    assert "Portfolio Manager" in report.findings[0].where


def test_a_failed_cell_that_is_decided_later_changes_the_books_after_it(
    workspace: Workspace,
) -> None:
    down = Fault(role="Trader", day="2018-02-02", symbol="AAA", acts=[error(500, "a moment")])
    with OpenAIServer(faulty(down)) as server:
        config = run_config(
            workspace,
            memory="off",
            provider="openai_compatible",
            base_url=server.url,
            endpoint_alias="stub",
            quick_model="q",
            deep_model="d",
            max_retries=0,
            cell_retries=0,
        )
        before = ledger_of(run(config, api_keys=KEYS))
        second = run(config, api_keys=KEYS)
        after = ledger_of(second)
        elsewhere = config.model_copy(update={"reports_dir": workspace.path / "clean"})
        clean = run(elsewhere, api_keys=KEYS)

    assert after.cells[make_key("AAA", "2018-02-02")].rating == "Overweight"
    changed = {
        key for key in after.cells if after.cells[key].book_hash != before.cells[key].book_hash
    }
    assert changed == {make_key(ticker, "2018-02-09") for ticker in ("AAA", "BBB")}
    redone = {cell.key for cell in after.superseded}
    assert redone == {make_key("AAA", "2018-02-02"), *changed}
    assert second.root == clean.root


def test_of_what_is_not_decided_yet_the_bill_knows_that_later_books_are_unknown(
    workspace: Workspace,
) -> None:
    run(run_config(workspace, memory="off", show_book=False))
    config = run_config(workspace, memory="off")
    # What everybody else asks is recorded; no portfolio manager was ever shown a book.
    found = estimate(config, workspace.snapshot, Tariff())
    calendar = market_of(workspace.snapshot, "AAA").calendar
    assert found.dark_nodes == ("Portfolio Manager",)
    assert found.dark_from == calendar.close_utc(date(2018, 2, 9))
    assert {node.node for node in found.nodes if node.expected} == {"Portfolio Manager"}
    run(config)
    found = estimate(config, workspace.snapshot, Tariff())
    assert (found.exact, found.dark_nodes, found.kept) == (True, (), 4)


def test_currencies_that_make_no_one_book_are_refused_before_a_model_is_asked(
    tmp_path: Path,
) -> None:
    days = sessions_of("AAA", "2018-01-02", 40)
    rows = closes([(day, 10.0) for day in days])
    workspace = make_workspace(
        tmp_path,
        {"AAA": rows, "BBB": make_bars("BBB", rows, currency="CAD")},
        instruments=[make_instrument("AAA"), make_instrument("BBB", currency="CAD")],
    )
    config = run_config(workspace, benchmark="none")
    with pytest.raises(UsageError, match="CAD"):
        run(config)
    assert len(ReplyCache.open(cache_folder(workspace.data)).keys()) == 0


# ------------------------------------------------------------------------------------- as a setting


def test_two_books_are_one_too_many() -> None:
    with pytest.raises(UsageError, match="two books: keep one of them"):
        load_config(
            flags={
                "tickers": ("AAA",),
                "start": DAYS[0],
                "end": DAYS[1],
                "show_book": True,
                "portfolio": {"currency": "USD", "cash": 1.0},
            }
        )


def test_what_shapes_the_book_is_part_of_the_identity_where_one_is_shown() -> None:
    plain = config_of(show_book=False)
    assert "show_book" not in plain.identity_fields()
    assert config_of(show_book=False, show_book_cash=5.0).identity_fields() == (
        plain.identity_fields()
    )
    one = config_of().identity_fields()
    for name, value in {
        "show_book_policy": "long_short",
        "show_book_cash": 5.0,
        "show_book_commission_bps": 2.0,
        "show_book_slippage_bps": 2.0,
    }.items():
        assert config_of(**{name: value}).identity_fields() != one


def test_run_and_plan_have_the_switch_and_a_single_decision_has_none(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(workspace.path)
    where = ("--snapshot", "small", "--benchmark", "^GSPC", "--set", "analysts=market")
    dates = ("--tickers", "AAA", "--start", "2018-01-02", "--end", "2018-01-05", "--horizon", "3")
    planned = []
    for switch in ("--show-book", "--no-show-book"):
        assert cli.run(["plan", *where, *dates, switch, "--json"]) == 0
        planned.append(json.loads(capsys.readouterr().out)["run_id"])
    assert cli.run(["run", *where, *dates, "--show-book", "--set", "score_at_end=false"]) == 0
    (ran,) = workspace.reports.glob("*/manifest.json")
    assert ran.parent.name == planned[0] != planned[1]

    (workspace.path / "run.toml").write_text("show_book = true\n")
    asked = ("analyze", "AAA", "2018-01-05", *where, "--memory", "off")
    assert cli.run([*asked, "--config", "run.toml"]) == 0
    capsys.readouterr()
    assert cli.run([*asked, "--set", "show_book=true"]) == 2
    assert "means nothing to a single one" in capsys.readouterr().err
