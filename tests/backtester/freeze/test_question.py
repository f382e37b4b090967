"""A question whose vendors are named is frozen first, once, and decided on what was frozen."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from backtester import TradingAgentsGraph
from backtester.calendar import calendar_of
from backtester.config import RunConfig
from backtester.errors import UsageError
from backtester.freeze.question import WARMUP, names_vendors, plan_of_question
from backtester.schema import TABLES
from backtester.snapshots.snapshot import snapshot_names, verify_snapshot
from backtester.vendors.base import Capture, NoData, VendorSettings, Wanted
from tests.support.snapshots import make_bar

ASKED: list[tuple[str, str, str | None]] = []


class Own:
    """Prices and one article of whatever is asked for; keeps what was asked, with which key."""

    name = "own"
    tables = frozenset({"bars", "news"})
    key_variable = "OWN_KEY"

    def __init__(self, settings: VendorSettings) -> None:
        self._key = settings.api_key

    def capture(self, wanted: Wanted) -> Capture:
        ASKED.append((wanted.table, wanted.symbol, self._key))
        if wanted.table == "news":
            raise NoData("it was a quiet day")
        days = calendar_of(wanted.instrument).sessions(wanted.start, wanted.end)
        rows = [vars(make_bar(wanted.instrument, day, 100.0 + at)) for at, day in enumerate(days)]
        table = pa.Table.from_pylist(list(map(dict, rows)), schema=TABLES["bars"].arrow)
        return Capture(rows={"bars": table}, source="own", licence="free")


VENDOR = f"{__name__}:Own"


def graph_on(tmp_path: Path, **config: Any) -> TradingAgentsGraph:
    return TradingAgentsGraph(
        ["market"],
        config={"benchmark": "^GSPC", **config},
        data_dir=tmp_path / "data",
        reports_dir=tmp_path / "reports",
        vendor_keys={"OWN_KEY": "a-key-of-my-own"},
    )


def test_propagate_freezes_first_and_asks_for_nothing_twice(tmp_path: Path) -> None:
    ASKED.clear()
    graph = graph_on(tmp_path, data_vendors={"core_stock_apis": VENDOR, "news_data": [VENDOR]})
    assert graph.snapshot is None
    state, decision = graph.propagate("NEW", "2024-03-08")
    assert decision.rating is not None
    assert state["market_report"]
    assert graph.snapshot is not None
    frozen = graph.snapshot
    assert frozen.instruments() == ("NEW", "^GSPC")
    assert frozen.absent_reason("news") == (f"{VENDOR}: it was a quiet day")
    assert verify_snapshot(frozen.path) == []
    assert ASKED == [
        ("bars", "NEW", "a-key-of-my-own"),
        ("bars", "^GSPC", "a-key-of-my-own"),
        ("news", "NEW", "a-key-of-my-own"),
        ("news", "economy_macro", "a-key-of-my-own"),
    ]
    again = graph_on(tmp_path, data_vendors={"core_stock_apis": VENDOR, "news_data": [VENDOR]})
    again.propagate("NEW", "2024-03-08")
    assert again.snapshot is not None
    assert again.snapshot.id == frozen.id
    assert len(ASKED) == 4
    # Another day is another question, on another snapshot.
    graph.propagate("NEW", "2024-03-11")
    assert graph.snapshot is not None
    assert graph.snapshot.name != frozen.name
    own = {name for name in snapshot_names(tmp_path / "data") if name.startswith("asked-")}
    assert len(own) == 2


def test_a_snapshot_that_is_named_is_decided_on_and_no_vendor_is_asked(tmp_path: Path) -> None:
    ASKED.clear()
    graph = graph_on(tmp_path, data_vendors={"core_stock_apis": VENDOR}, snapshot="us-2013-2018")
    graph.propagate("NVDA", "2018-06-29")
    assert graph.snapshot is not None
    assert graph.snapshot.name == "us-2013-2018"
    assert ASKED == []


def test_a_day_that_is_not_over_and_a_vendor_that_is_none_are_wrong_questions(
    tmp_path: Path,
) -> None:
    graph = graph_on(tmp_path, data_vendors={"core_stock_apis": VENDOR})
    with pytest.raises(UsageError, match=r"is too late|is in the future"):
        graph.propagate("NEW", "2029-03-08")
    nobody = graph_on(tmp_path, data_vendors={"core_stock_apis": "bloomberg"})
    with pytest.raises(UsageError, match="vendor 'bloomberg' is not known"):
        nobody.propagate("NEW", "2024-03-08")
    with pytest.raises(UsageError, match="call propagate first"):
        nobody.reflect_and_remember(0.1)


def settings(**changes: Any) -> RunConfig:
    day = date(2024, 3, 8)
    return RunConfig(tickers=("7203.T",), start=day, end=day, grid="daily", **changes)


def test_a_plan_holds_the_tables_that_are_named_and_the_benchmark() -> None:
    named = settings(
        data_vendors={"core_stock_apis": ("yfinance",), "macro_data": ("fred",)},
        tool_vendors={"get_cashflow": ("sec", "yfinance")},
    )
    plan = plan_of_question(named, "7203.T", date(2024, 3, 8))
    assert plan.tables == ("instruments", "bars", "actions", "statements", "macro")
    assert plan.instruments == ("7203.T", "^N225")
    assert plan.chain("statements") == ("sec", "yfinance")
    assert (plan.start, plan.end, plan.warmup) == (date(2024, 3, 8), date(2024, 3, 8), WARMUP)
    assert plan.name.startswith("asked-7203.T-2024-03-08-")
    assert plan == plan_of_question(named, "7203.T", date(2024, 3, 8))


def test_settings_without_vendors_or_with_a_snapshot_freeze_nothing() -> None:
    vendors = {"core_stock_apis": ("yfinance",)}
    assert not names_vendors(settings())
    assert names_vendors(settings(data_vendors=vendors))
    assert not names_vendors(settings(data_vendors=vendors, snapshot="us-2013-2018"))
