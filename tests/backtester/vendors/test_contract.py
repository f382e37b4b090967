"""Every vendor keeps the rules of a vendor, and a vendor that breaks one is told which."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from backtester.errors import UsageError
from backtester.schema import TABLES
from backtester.vendors.alpha_vantage import AlphaVantage
from backtester.vendors.base import (
    BadResponse,
    Capture,
    NoData,
    Vendor,
    VendorSettings,
    Wanted,
)
from backtester.vendors.contract import RULES, Case, breaches
from backtester.vendors.files import Files
from backtester.vendors.fred import Fred
from backtester.vendors.polymarket import Polymarket
from backtester.vendors.reddit import Reddit
from backtester.vendors.registry import VENDORS
from backtester.vendors.stocktwits import StockTwits
from backtester.vendors.yahoo import Yahoo
from tests.backtester.vendors import (
    test_alpha_vantage,
    test_fred,
    test_polymarket,
    test_reddit,
    test_sec,
    test_stocktwits,
    test_yahoo,
    test_yahoo_company,
)
from tests.support.page_server import Asked, Page, PageServer, page, settings_for, wanted_of
from tests.support.sec_pages import Edgar
from tests.support.snapshots import make_bar
from tests.support.vendor_trouble import SECRET
from tests.support.yahoo_frames import FramePort


@dataclass(frozen=True, kw_only=True)
class Held:
    """Hold a question to one of our vendors, and who answers."""

    vendor: str
    wanted: Wanted
    build: Callable[[VendorSettings], Vendor]
    answer: Callable[[Asked], Page] | None = None
    undated: int = 0


class Company(FramePort):
    """Know one symbol, and have nothing of any other but what Yahoo says of prices."""

    def news(self, symbol: str) -> list[Any]:
        return super().news(symbol) if symbol == "AAPL" else []

    def insider(self, symbol: str) -> pd.DataFrame:
        return super().insider(symbol) if symbol == "AAPL" else pd.DataFrame()

    def statement(self, symbol: str, statement: str, frequency: str) -> pd.DataFrame:
        found = super().statement(symbol, statement, frequency)
        return found if symbol == "AAPL" else pd.DataFrame()


def yahoo(**port: Any) -> Callable[[VendorSettings], Vendor]:
    return lambda settings: Yahoo(settings, Company(**port))


def macro(asked: Asked) -> Page:
    """Answer with one observation that has no vintage."""
    told = test_fred.Alfred({"CPIAUCSL": test_fred.CPI})(asked)
    if not asked.path.endswith("/observations") or told.status != 200:
        return told
    dated = {"realtime_start": "2023-03-14", "date": "2023-02-01", "value": "1.5"}
    return page({"count": 2, "observations": [dated, {"date": "2023-03-01", "value": "2.5"}]})


def odds(asked: Asked) -> Page:
    """Answer with one tick of each outcome that has no time."""
    exchange = test_polymarket.Exchange([test_polymarket.CUT], {})
    if asked.path != "/prices-history":
        return exchange(asked)
    tick = {"t": test_polymarket.stamp("2024-01-08T00:00:00"), "p": 0.5}
    return page({"history": [{"p": 0.4}, tick]})


def alpha(answers: Mapping[str, Any]) -> Callable[[Asked], Page]:
    return lambda asked: page(answers[asked.query["function"]])


STATEMENTS = {
    ("income", "quarterly"): test_yahoo_company.INCOME_QUARTERS,
    ("income", "yearly"): test_yahoo_company.INCOME_YEARS,
}
SALES = pd.DataFrame([test_yahoo_company.SALE, {**test_yahoo_company.SALE, "Start Date": pd.NaT}])
LATER = test_stocktwits.message(40, "2026-11-30T13:00:00Z", "$AAPL after the capture")
ALPHA_TRADE = test_alpha_vantage.TRADE
OURS: Mapping[str, Held] = {
    "yfinance bars": Held(
        vendor="yfinance",
        wanted=test_yahoo.wanted("2014-05-01", "2020-09-01"),
        build=yahoo(frame=test_yahoo.apple()),
    ),
    "yfinance statements": Held(
        vendor="yfinance",
        wanted=test_yahoo_company.wanted("statements", "2018-01-01", "2019-12-31"),
        build=yahoo(statements=STATEMENTS, frame=test_yahoo_company.days()),
    ),
    "yfinance news": Held(
        vendor="yfinance",
        wanted=test_yahoo_company.wanted("news", "2026-11-01", "2026-11-30"),
        build=yahoo(
            articles=[
                test_yahoo_company.article(1, "2026-11-27T22:05:00Z"),
                test_yahoo_company.article(2, None),
                test_yahoo_company.article(3, "2026-11-30T12:00:01Z"),
            ]
        ),
        undated=1,
    ),
    "yfinance insider": Held(
        vendor="yfinance",
        wanted=test_yahoo_company.wanted("insider", "2018-08-01", "2018-12-31"),
        build=yahoo(trades=SALES),
        undated=1,
    ),
    "sec statements": Held(
        vendor="sec", wanted=test_sec.YEARS, build=test_sec.sec, answer=Edgar()
    ),
    "sec instruments": Held(
        vendor="sec",
        wanted=replace(test_sec.YEARS, table="instruments"),
        build=test_sec.sec,
        answer=Edgar(),
    ),
    "sec insider": Held(
        vendor="sec",
        wanted=test_sec.TRADES,
        build=test_sec.sec,
        answer=test_sec.insiders(test_sec.ownership(test_sec.trade())),
    ),
    "alpha_vantage bars": Held(
        vendor="alpha_vantage",
        wanted=test_alpha_vantage.BARS,
        build=AlphaVantage,
        answer=alpha(test_alpha_vantage.APPLE),
    ),
    "alpha_vantage statements": Held(
        vendor="alpha_vantage",
        wanted=wanted_of("statements", "IBM", "2023-06-01", "2024-12-31"),
        build=AlphaVantage,
        answer=alpha(test_alpha_vantage.IBM),
    ),
    "alpha_vantage news": Held(
        vendor="alpha_vantage",
        wanted=wanted_of("news", "AAPL", "2024-05-01", "2026-11-30"),
        build=AlphaVantage,
        answer=alpha(
            {
                "NEWS_SENTIMENT": test_alpha_vantage.feed(
                    test_alpha_vantage.article(1, "20240501T153000"),
                    test_alpha_vantage.article(2, ""),
                    test_alpha_vantage.article(3, "20261130T080000"),
                )
            }
        ),
        undated=1,
    ),
    "alpha_vantage insider": Held(
        vendor="alpha_vantage",
        wanted=wanted_of("insider", "IBM", "2024-01-01", "2026-11-30"),
        build=AlphaVantage,
        answer=alpha(
            {
                "INSIDER_TRANSACTIONS": {
                    "data": [
                        ALPHA_TRADE,
                        {**ALPHA_TRADE, "transaction_date": ""},
                        # Two sessions on is after the capture.
                        {**ALPHA_TRADE, "transaction_date": "2026-11-27"},
                    ]
                }
            }
        ),
        undated=1,
    ),
    "fred macro": Held(
        vendor="fred",
        wanted=wanted_of(
            "macro",
            "cpi",
            "2023-01-03",
            "2024-06-28",
            instrument="",
        ),
        build=Fred,
        answer=macro,
        undated=1,
    ),
    "polymarket prediction_markets": Held(
        vendor="polymarket",
        wanted=wanted_of(
            "prediction_markets", "fed-cuts-in-march", "2024-01-02", "2024-01-10", instrument=""
        ),
        build=Polymarket,
        answer=odds,
        undated=2,
    ),
    "stocktwits social": Held(
        vendor="stocktwits",
        wanted=wanted_of("social", "AAPL", "2026-11-23", "2026-11-30"),
        build=StockTwits,
        answer=lambda asked: test_stocktwits.stream(
            LATER, test_stocktwits.message(32, None, "now?"), test_stocktwits.NEWEST
        ),
        undated=1,
    ),
    "reddit social": Held(
        vendor="reddit",
        wanted=wanted_of(
            "social", "AAPL", "2026-11-23", "2026-11-30", options={"subreddits": "stocks"}
        ),
        build=Reddit,
        answer=lambda asked: test_reddit.listing(
            test_reddit.NEWEST, test_reddit.post(7, None, "AAPL")
        ),
        undated=1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OURS)
def test_a_vendor_of_ours_keeps_every_rule(name: str) -> None:
    held = OURS[name]
    with ExitStack() as stack:
        settings = VendorSettings(api_key=SECRET)
        if held.answer is not None:
            server = stack.enter_context(PageServer(held.answer))
            settings = settings_for(server, api_key=SECRET)
        found = breaches(
            lambda: held.build(settings),
            Case(wanted=held.wanted, secrets=(SECRET,), undated=held.undated),
        )
    assert found == ()


def test_every_vendor_and_all_its_tables_are_held_to_the_rules() -> None:
    asked = {(held.vendor, held.wanted.table) for held in OURS.values()}
    along = {("yfinance", "actions"), ("yfinance", "instruments")}
    along |= {("alpha_vantage", "actions"), ("alpha_vantage", "instruments")}
    known = {(row.name, table) for row in VENDORS.values() for table in row.tables}
    assert known == asked | along | {("files", table) for table in TABLES}


BARS = "symbol,date,open,high,low,close,volume\nAAA,2024-03-04,10,12,9,11,100\n"
FILES = {
    "bars": BARS,
    "actions": "symbol,ex_session,kind,amount,currency\nAAA,2024-03-05,dividend,0.5,USD\n",
    "instruments": "symbol,name\nAAA,A Company\n",
    "news": "symbol,id,published,source,title\nAAA,1,2024-03-04,wire,one\nAAA,2,,wire,two\n",
    "social": "symbol,id,published,platform,text\nAAA,1,2024-03-04,board,one\nAAA,2,,board,two\n",
    "statements": (
        "symbol,statement,item,period_end,period_months,filed,form,value,unit\n"
        "AAA,income,revenue,2023-12-31,12,2024-03-04,10-K,5,USD\n"
        "AAA,income,revenue,2022-12-31,12,,10-K,4,USD\n"
    ),
    "insider": (
        "symbol,id,transaction_date,filed,insider,code,shares\n"
        "AAA,1,2024-03-01,2024-03-04,Someone,P,5\n"
    ),
    "macro": "series,name,period,published,value,unit\nAAA,A,2024-02-01,2024-03-04,5,index\n",
    "prediction_markets": (
        "market,question,outcome,time,probability\nAAA,Will it?,Yes,2024-03-04T12:00:00Z,0.5\n"
    ),
}


@pytest.mark.parametrize("table", FILES)
def test_files_keep_every_rule(table: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(FILES[table])
    options = {"path": str(path), "default.currency": "USD"}
    if table == "prediction_markets":
        options["column.known_at"] = "time"
    elif table not in ("bars", "actions", "instruments"):
        options["column.known_at"] = "filed" if "filed" in FILES[table] else "published"
    owner = {"instrument": ""} if table in ("macro", "prediction_markets") else {}
    wanted = wanted_of(table, "AAA", "2024-03-01", "2024-03-08", options=options, **owner)
    assert breaches(Files, Case(wanted=wanted, stranger="BBB")) == ()


# ----------------------------------------------------------------- a vendor that breaks a rule

NOW = datetime(2024, 4, 10, 12, tzinfo=UTC)
DAYS = tuple(date(2024, 3, day) for day in (4, 5))
KEY = "s3cr3t-of-the-broken-one"
Change = Callable[[list[dict[str, Any]]], None]


class Own:
    """Keep every rule, but for what a test breaks."""

    name = "own"
    tables = frozenset({"bars", "news"})

    def __init__(self, **broken: Any) -> None:
        self.broken = broken

    def __repr__(self) -> str:
        return str(self.broken.get("repr", "Own()"))

    def capture(self, wanted: Wanted) -> Capture:
        if failure := self.broken.get("failure"):
            raise failure
        if wanted.symbol != "AAA" and not self.broken.get("credulous"):
            raise self.broken.get("refusal", NoData(f"no {wanted.symbol}"))
        if set(wanted.options) - {"size"} and not self.broken.get("careless"):
            raise UsageError("no such option")
        rows = [vars(make_bar(wanted.instrument, day, 100.0)) for day in DAYS]
        table = pa.Table.from_pylist(list(map(dict, rows)), schema=TABLES["bars"].arrow)
        table = self.broken.get("change", lambda same: same)(table)
        capture = Capture(
            rows={"bars": table}, source="own", licence="free", options=dict(wanted.options)
        )
        return replace(capture, **self.broken.get("capture", {}))


def question(**changes: Any) -> Wanted:
    return Wanted(
        **{
            "table": "bars",
            "instrument": "AAA",
            "symbol": "AAA",
            "start": DAYS[0],
            "end": DAYS[-1],
            "captured_at": NOW,
            "options": {"size": "full"},
            **changes,
        }
    )


def rules_broken(vendor: Callable[[], Vendor], **changes: Any) -> list[str]:
    found = breaches(vendor, Case(wanted=question(**changes), secrets=(KEY,), undated=0))
    assert {breach.rule for breach in found} <= set(RULES)
    return sorted({breach.rule for breach in found})


def moved(by: timedelta) -> Callable[[pa.Table], pa.Table]:
    def change(table: pa.Table) -> pa.Table:
        rows = table.to_pylist()
        rows[0]["known_at"] += by
        return pa.Table.from_pylist(rows, schema=table.schema)

    return change


def naive(table: pa.Table) -> pa.Table:
    at = table.column_names.index("known_at")
    bare = table.column("known_at").cast(pa.timestamp("us"))
    return table.set_column(at, "known_at", bare)


def undated(table: pa.Table) -> pa.Table:
    rows = table.to_pylist()
    rows[1]["known_at"] = None
    return pa.Table.from_pylist(rows, schema=table.schema)


def nan(table: pa.Table) -> pa.Table:
    rows = table.to_pylist()
    rows[1]["close"] = float("nan")
    return pa.Table.from_pylist(rows, schema=table.schema)


def test_a_vendor_of_ones_own_that_keeps_the_rules_is_told_nothing() -> None:
    assert rules_broken(Own) == []


@pytest.mark.parametrize(
    ("rule", "broken"),
    [
        ("typed", {"failure": KeyError("close")}),
        ("answer", {"capture": {"rows": {}}}),
        ("answer", {"capture": {"licence": ""}}),
        ("answer", {"change": lambda table: table.slice(0, 0)}),
        ("answer", {"change": lambda table: table.to_pandas()}),
        ("columns", {"change": lambda table: table.drop_columns(["volume"])}),
        ("columns", {"change": nan}),
        ("utc", {"change": naive}),
        ("undated", {"change": undated}),
        ("undated", {"capture": {"dropped_undated": 1}}),
        ("known_at", {"change": moved(timedelta(seconds=-1))}),
        ("stranger", {"credulous": True}),
        ("stranger", {"refusal": KeyError("AAA")}),
        ("options", {"careless": True}),
        ("options", {"capture": {"options": {}}}),
        ("secret", {"capture": {"notes": (f"asked with {KEY}",)}}),
        ("secret", {"capture": {"source": f"https://example.test?apikey={KEY}"}}),
        ("secret", {"refusal": BadResponse(f"{KEY} was refused")}),
        ("secret", {"repr": f"Own(key={KEY})"}),
    ],
)
def test_a_broken_rule_is_named(rule: str, broken: dict[str, Any]) -> None:
    assert rules_broken(lambda: Own(**broken)) == [rule]


def test_rows_of_another_instrument_break_a_rule() -> None:
    class Swapped(Own):
        def capture(self, wanted: Wanted) -> Capture:
            return super().capture(replace(wanted, instrument="ZZZ"))

    assert rules_broken(Swapped) == ["owner"]


def test_a_row_later_than_the_capture_breaks_a_rule() -> None:
    early = datetime(2024, 3, 5, 20, 59, tzinfo=UTC)
    assert rules_broken(Own, captured_at=early) == ["capture"]


def test_a_row_that_differs_when_asked_again_breaks_a_rule() -> None:
    closes = iter((100.0, 100.5))

    def change(table: pa.Table) -> pa.Table:
        rows = [{**row, "high": 101.0, "close": close} for row in table.to_pylist()
                for close in [next_close]]  # fmt: skip
        return pa.Table.from_pylist(rows, schema=table.schema)

    def made() -> Own:
        nonlocal next_close
        next_close = next(closes, 101.0)
        return Own(change=change)

    next_close = 0.0
    assert rules_broken(made) == ["repeat"]


def test_what_is_no_capture_and_what_declares_nothing_break_rules() -> None:
    class Bare:
        def capture(self, wanted: Wanted) -> Any:
            return None

    assert rules_broken(Bare) == ["answer", "declared"]  # type: ignore[arg-type]


def test_a_vendor_without_an_answer_is_not_judged() -> None:
    with pytest.raises(NoData):
        breaches(lambda: Own(failure=NoData("none")), Case(wanted=question()))


def test_every_rule_is_broken_by_a_test_of_its_own() -> None:
    tried = {"repeat", "owner", "capture", "declared"}
    marks = [mark for mark in test_a_broken_rule_is_named.pytestmark if mark.name == "parametrize"]  # type: ignore[attr-defined]
    tried |= {rule for rule, _ in marks[0].args[1]}
    assert tried == set(RULES)
