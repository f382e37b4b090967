"""For any rows in any table: nothing later than the cutoff comes out, whatever lies beyond it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backtester.calendar import calendar_of
from backtester.records import ReadRecord
from backtester.schema import (
    DATE,
    ESTIMATED,
    FLAG,
    INTEGER,
    OPTIONAL_TABLES,
    REAL,
    TABLES,
    TEXT,
)
from backtester.snapshots.snapshot import Snapshot
from backtester.snapshots.view import AsOfView
from tests.backtester.snapshots.test_view import view_of
from tests.backtester.snapshots.test_view_leaks import WithoutFilterAndCheck
from tests.support.snapshots import Action, dividend, make_bar, make_snapshot, sessions_of, split
from tradingagents_core.errors import NoMarketData
from tradingagents_core.tools import TOOLS, run_tool

# Both changes of New York's clock, and London's, lie within; Tokyo has none and other holidays.
OWNERS = ("AAA", "7203.T", "VOD.L")
DAYS = sessions_of("AAA", "2018-03-05", 17)
START, END = DAYS[0], DAYS[-1]
FIRST = datetime(2018, 2, 1, tzinfo=UTC)
Setting = Literal["withhold", "lag"]

_EDGES = [
    instant + timedelta(microseconds=by)
    for owner in OWNERS
    for day in calendar_of(owner).sessions(START, END)
    for instant in (calendar_of(owner).open_utc(day), calendar_of(owner).close_utc(day))
    for by in (-1, 0, 1)
]
INSTANTS = st.one_of(
    st.sampled_from(_EDGES),
    st.integers(0, 90 * 86_400).map(
        lambda s: datetime(2018, 2, 1, tzinfo=UTC) + timedelta(seconds=s)
    ),
)
WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=8)
VALUES: Mapping[pa.DataType, st.SearchStrategy[Any]] = {
    TEXT: WORDS,
    DATE: st.dates(date(2017, 1, 1), date(2019, 1, 1)),
    REAL: st.floats(0, 1, allow_nan=False),
    INTEGER: st.integers(0, 12),
    FLAG: st.booleans(),
}
NAMED: Mapping[str, st.SearchStrategy[Any]] = {
    "known_at": INSTANTS,
    "known_at_basis": st.sampled_from(["published", ESTIMATED]),
    "instrument": st.sampled_from(OWNERS),
    "statement": st.sampled_from(["income", "balance", "cashflow", "cover"]),
    "item": st.sampled_from(["revenue", "net_income", "total_assets", "shares_outstanding"]),
    "unit": st.sampled_from(["USD", "shares", "USD/shares"]),
    "period_months": st.sampled_from([0, 3, 12]),
    "series": st.sampled_from(["CPIAUCSL", "UNRATE"]),
    "market": st.sampled_from(["one", "two"]),
}


def rows_of(name: str) -> st.SearchStrategy[pa.Table]:
    """Draw rows of a table, in any order, with estimates among them."""
    fields = {
        column.name: (
            st.none() | NAMED.get(column.name, VALUES.get(column.type, INSTANTS))
            if column.nullable
            else NAMED.get(column.name, VALUES.get(column.type, INSTANTS))
        )
        for column in TABLES[name].columns
    }
    drawn = st.lists(st.fixed_dictionaries(fields), max_size=6)
    return drawn.map(lambda rows: pa.Table.from_pylist(rows, schema=TABLES[name].arrow))


@st.composite
def worlds(draw: st.DrawFn) -> Snapshot:
    """Draw a snapshot of three markets with rows in every table."""
    walk = np.random.Generator(np.random.PCG64(draw(st.integers(0, 10**6))))
    bars, actions = {}, list[Action]()
    for owner in OWNERS:
        sessions = calendar_of(owner).sessions(START, END)
        prices = walk.integers(50, 200_000, len(sessions)) / 100
        bars[owner] = [
            make_bar(owner, day, price) for day, price in zip(sessions, prices, strict=True)
        ]
        for at in draw(st.sets(st.integers(1, len(sessions) - 1), max_size=2)):
            up = int(walk.integers(2, 9))
            actions += [split(owner, sessions[at], up), dividend(owner, sessions[at], 0.25)]
    tables = {name: draw(rows_of(name)) for name in OPTIONAL_TABLES}
    return make_snapshot(bars, actions=actions, start=START, end=END, **tables)


def cut(snapshot: Snapshot, cutoff: datetime) -> Snapshot:
    """Return the snapshot as somebody could have frozen it at an instant."""
    early = {
        name: pa.Table.from_pylist(
            [row for row in snapshot.table(name).to_pylist() if row["known_at"] <= cutoff],
            schema=TABLES[name].arrow,
        )
        for name in TABLES
        if TABLES[name].dated
    }
    return snapshot.replace_tables(**early)


def visible(snapshot: Snapshot, name: str, owner: str | None, view: AsOfView, setting: str) -> Any:
    """Return what a reader with a pencil would find, oldest first."""
    return sorted(
        (
            row["known_at"]
            for row in snapshot.table(name).to_pylist()
            if row["known_at"] <= view.cutoff
            and row.get("instrument") == owner
            and (setting == "lag" or row.get("known_at_basis") != ESTIMATED)
        ),
    )


def owners_of(name: str) -> tuple[str | None, ...]:
    if "instrument" not in TABLES[name].names:
        return (None,)
    return (*OWNERS, None) if name == "news" else OWNERS


def answers(view: AsOfView) -> dict[str, Any]:
    """Return everything that a view says of every table, by each of its doors."""
    told: dict[str, Any] = {}
    for name in OPTIONAL_TABLES:
        for owner in owners_of(name):
            told[f"{name} {owner}"] = view.rows(name, owner)
            told[f"{name} {owner} last"] = view.rows(name, owner, start=DAYS[5], last=2)
            told[f"{name} {owner} withheld"] = view.withheld(name, owner)
    for owner in OWNERS:
        told[f"identity {owner}"] = view.identity(owner)
        told[f"bars {owner}"] = bits(lambda owner=owner: view.bars(owner))
        told[f"indicators {owner}"] = bits(lambda owner=owner: view.indicators(owner, ("rsi",)))
    return told


def bits(read: Callable[[], Any]) -> Any:
    try:
        held = read()
    except NoMarketData as error:
        return str(error)
    columns = held.values if hasattr(held, "values") else vars(held)
    return {name: column.tobytes() for name, column in dict(columns).items()}


@settings(max_examples=15)
@given(
    snapshot=worlds(),
    at=st.integers(0, len(DAYS) - 1),
    decision_time=st.sampled_from(["close", "open"]),
    ticker=st.sampled_from(OWNERS),
    setting=st.sampled_from(["withhold", "lag"]),
)
def test_a_view_gives_what_was_public_and_nothing_of_what_comes_after(
    snapshot: Snapshot, at: int, decision_time: str, ticker: str, setting: Setting
) -> None:
    day = str(calendar_of(ticker).last_on_or_before(DAYS[at]))
    if day < str(START):
        return
    reads: list[ReadRecord] = []
    look = {"decision_time": decision_time, "ticker": ticker, "estimated": setting}
    view = view_of(snapshot, day, reads=reads, **look)  # type: ignore[arg-type]
    told = answers(view)
    for name in OPTIONAL_TABLES:
        for owner in owners_of(name):
            found = [row.known_at for row in told[f"{name} {owner}"]]
            assert found == visible(snapshot, name, owner, view, setting)
            assert all(stamp <= view.cutoff for stamp in found)
    assert all(read.max_known_at is None or read.max_known_at <= view.cutoff for read in reads)
    # The same world, frozen at the cutoff by somebody who cannot know the rest.
    earlier = view_of(cut(snapshot, view.cutoff), day, **look)  # type: ignore[arg-type]
    assert answers(earlier) == told
    for name in TOOLS:
        asked = f'{{"symbol": "{ticker}", "ticker": "{ticker}", "indicator": "rsi"}}'
        assert run_tool(earlier, name, asked).text == run_tool(view, name, asked).text


# ------------------------------------------------------------------------ zones and their clocks

CLOCKS = ("UTC", "America/New_York", "Europe/London", "Asia/Tokyo", "Pacific/Kiritimati")


def stamps() -> pa.Table:
    """Make a news item at each close and open of New York, and one an instant after."""
    rows = [
        {
            "instrument": "AAA",
            "id": f"{number}",
            "known_at": instant,
            "known_at_basis": "published",
            "source": "wire",
            "title": f"item {number}",
        }
        for number, instant in enumerate(sorted(set(_EDGES)))
    ]
    return pa.Table.from_pylist(rows, schema=TABLES["news"].arrow)


def all_told() -> list[Any]:
    """Return what every session's view says, and the tools' texts."""
    bars = {
        owner: [make_bar(owner, day, 10.0) for day in calendar_of(owner).sessions(START, END)]
        for owner in OWNERS
    }
    snapshot = make_snapshot(bars, start=START, end=END, news=stamps())
    told: list[Any] = [snapshot.id]
    for owner in OWNERS:
        for day in calendar_of(owner).sessions(START, END):
            for decision_time in ("close", "open"):
                view = view_of(snapshot, str(day), ticker=owner, decision_time=decision_time)
                news = view.rows("news", "AAA")
                told += [view.cutoff.isoformat(), len(news), str(news[-1:]), view.last_session]
                told.append(run_tool(view, "get_news", '{"ticker": "AAA"}').text)
                told.append(bits(lambda view=view, owner=owner: view.bars(owner)))
    return told


@pytest.fixture(scope="module")
def in_utc() -> list[Any]:
    before = os.environ["TZ"]
    os.environ["TZ"] = "UTC"
    time.tzset()
    try:
        return all_told()
    finally:
        os.environ["TZ"] = before
        time.tzset()


@pytest.mark.parametrize("zone", CLOCKS[1:])
def test_no_zone_of_the_machine_and_no_change_of_its_clock_moves_a_word(
    zone: str, in_utc: list[Any]
) -> None:
    os.environ["TZ"] = zone
    time.tzset()
    assert all_told() == in_utc


def test_a_close_moves_with_the_clocks_of_its_market_and_an_instant_later_is_unseen() -> None:
    # New York moved its clocks on 2018-03-11, London on 2018-03-25, Tokyo never.
    for owner, day, close in (
        ("AAA", "2018-03-09", "21:00"),
        ("AAA", "2018-03-12", "20:00"),
        ("VOD.L", "2018-03-23", "16:30"),
        ("VOD.L", "2018-03-26", "15:30"),
        ("7203.T", "2018-03-09", "06:00"),
        ("7203.T", "2018-03-26", "06:00"),
    ):
        bars = {
            name: [make_bar(name, at, 10.0) for at in calendar_of(name).sessions(START, END)]
            for name in OWNERS
        }
        snapshot = make_snapshot(bars, start=START, end=END, news=stamps())
        view = view_of(snapshot, day, ticker=owner)
        assert view.cutoff.isoformat() == f"{day}T{close}:00+00:00"
        seen = [row.known_at for row in view.rows("news", "AAA")]
        assert seen[-1] == view.cutoff
        assert view.cutoff + timedelta(microseconds=1) in _EDGES


def test_the_comparison_sees_a_view_without_its_filter() -> None:
    bars = {
        owner: [make_bar(owner, at, 10.0) for at in calendar_of(owner).sessions(START, END)]
        for owner in OWNERS
    }
    empty = {name: TABLES[name].empty() for name in OPTIONAL_TABLES}
    snapshot = make_snapshot(bars, start=START, end=END, **{**empty, "news": stamps()})
    view = view_of(snapshot, str(DAYS[4]), kind=WithoutFilterAndCheck)
    earlier = view_of(cut(snapshot, view.cutoff), str(DAYS[4]), kind=WithoutFilterAndCheck)
    told, then = answers(view), answers(earlier)
    differs = {name for name, answer in told.items() if answer != then[name]}
    assert {"news AAA", "news AAA last", "bars AAA", "indicators 7203.T"} <= differs
