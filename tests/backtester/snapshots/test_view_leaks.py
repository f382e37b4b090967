"""The future rewritten, deleted or let in on purpose: a view must not change by a bit."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backtester.errors import DataError
from backtester.schema import TABLES
from backtester.snapshots.snapshot import Snapshot
from backtester.snapshots.view import AsOfView, ViewCache
from backtester.snapshots.view_cache import Instants
from tests.backtester.snapshots.test_view import NEWS, news_table, view_of
from tests.support.snapshots import (
    Action,
    Bar,
    closes,
    make_bar,
    make_instrument,
    make_snapshot,
    sessions_of,
    split,
)
from tradingagents_core.errors import LookaheadError
from tradingagents_core.indicators import MENU
from tradingagents_core.tools import TOOLS, run_tool

POISON = "POISON"


class WithoutFilter(AsOfView):
    """A view whose filter was lost: every row is let through."""

    def _visible_end(self, known_at: Instants) -> int:
        return len(known_at)


class WithoutFilterAndCheck(WithoutFilter):
    """A view that has lost its check as well: only an audit of its prompts can tell."""

    def _check(self, known_at: Instants, what: str, early: date | None = None) -> None:
        return


# -- the check behind the filter


THREE_DAYS = make_snapshot(
    {"AAA": closes({"2018-06-28": 13.0, "2018-06-29": 14.0, "2018-07-02": 140.0})}
)


def test_a_view_without_its_filter_is_caught_at_every_door() -> None:
    view = view_of(THREE_DAYS, "2018-06-29", kind=WithoutFilter)
    with pytest.raises(LookaheadError, match="known at 2018-07-02 20:00:00"):
        view.bars("AAA")
    with pytest.raises(LookaheadError, match="bars of AAA"):
        view.indicators("AAA", ("rsi",), last=1)
    news = view_of(NEWS, "2024-05-01", kind=WithoutFilter)
    with pytest.raises(LookaheadError, match="table news"):
        news.rows("news", "AAA")


def test_a_later_split_that_comes_through_is_caught() -> None:
    snapshot = make_snapshot(
        {"AAA": closes({"2018-06-29": 14.0})}, actions=[split("AAA", "2018-07-02", 2)]
    )
    with pytest.raises(LookaheadError, match="splits of AAA"):
        view_of(snapshot, "2018-06-29", kind=WithoutFilter).bars("AAA")


def test_a_view_without_filter_and_check_shows_the_future_so_both_are_what_holds_it_back() -> None:
    view = view_of(THREE_DAYS, "2018-06-29", kind=WithoutFilterAndCheck)
    assert view.bars("AAA").close.tolist() == [13.0, 14.0, 140.0]
    answer = run_tool(view, "get_verified_market_snapshot", '{"symbol": "AAA"}')
    assert "latest_session: 2018-07-02" in answer.text


def test_the_check_ends_a_tool_call_and_is_not_turned_into_text() -> None:
    view = view_of(THREE_DAYS, "2018-06-29", kind=WithoutFilter)
    with pytest.raises(LookaheadError):
        run_tool(view, "get_stock_data", '{"symbol": "AAA"}')


def test_a_lookahead_is_no_exception_that_a_broad_except_would_swallow() -> None:
    assert not issubclass(LookaheadError, Exception)


def test_an_undated_bar_is_left_out_and_counted() -> None:
    reads: list = []
    undated = replace(make_bar("AAA", "2018-06-28", 13.0), known_at=None)
    rows = [undated, make_bar("AAA", "2018-06-29", 14.0)]
    snapshot = make_snapshot({"AAA": rows}, undated=True)
    view = view_of(snapshot, "2018-06-29", reads=reads)
    assert view.bars("AAA").close.tolist() == [14.0]
    assert reads[0].dropped == 1
    with pytest.raises(LookaheadError, match="a row without a date"):
        view_of(snapshot, "2018-06-29", kind=WithoutFilter).bars("AAA")


def test_an_undated_news_item_that_comes_through_is_caught() -> None:
    table = news_table([("AAA", "b", None, "undated")])
    snapshot = make_snapshot({"AAA": closes({"2018-06-29": 1.0})}, news=table, undated=True)
    assert view_of(snapshot, "2018-06-29").rows("news", "AAA") == ()
    with pytest.raises(LookaheadError, match="a row without a date"):
        view_of(snapshot, "2018-06-29", kind=WithoutFilter).rows("news", "AAA")


def test_a_bar_that_claims_to_be_public_before_its_session_closed_is_caught() -> None:
    early = replace(
        make_bar("AAA", "2018-07-02", 140.0), known_at=datetime(2018, 6, 29, 20, tzinfo=UTC)
    )
    snapshot = make_snapshot({"AAA": [make_bar("AAA", "2018-06-29", 14.0), early]})
    with pytest.raises(LookaheadError, match="the bar of 2018-07-02, a session that had not"):
        view_of(snapshot, "2018-06-29").bars("AAA")


def test_the_days_own_bar_with_a_morning_stamp_is_caught_at_the_open() -> None:
    early = replace(
        make_bar("AAA", "2018-06-29", 14.0), known_at=datetime(2018, 6, 29, 13, tzinfo=UTC)
    )
    snapshot = make_snapshot({"AAA": [make_bar("AAA", "2018-06-28", 13.0), early]})
    with pytest.raises(LookaheadError, match="the bar of 2018-06-29"):
        view_of(snapshot, "2018-06-29", decision_time="open").bars("AAA")


# -- the future rewritten


CALLS = {
    "get_stock_data": '{"symbol": "AAA", "start_date": "2018-01-02", "end_date": "2030-01-01"}',
    "get_indicators": json.dumps(
        {"symbol": "AAA", "indicator": ",".join(MENU), "look_back_days": 30}
    ),
    "get_verified_market_snapshot": '{"symbol": "AAA"}',
    "get_news": '{"ticker": "AAA"}',
    "get_global_news": '{"look_back_days": 30}',
}


def texts(view: AsOfView) -> dict[str, str]:
    """Return what every tool answers, and the identity."""
    answers = {
        name: run_tool(view, name, CALLS.get(name, '{"ticker": "AAA", "indicator": "x"}')).text
        for name in TOOLS
    }
    return {**answers, "identity": str(view.identity("AAA"))}


def figures(view: AsOfView) -> bytes:
    """Return every bit of the bars and indicators."""
    bars = view.bars("AAA")
    series = view.indicators("AAA", tuple(MENU))
    columns = [bars.sessions, bars.open, bars.high, bars.low, bars.close, bars.volume]
    columns += [series.values[name] for name in MENU]
    return b"".join(column.tobytes() for column in columns)


DAYS = sessions_of("AAA", "2018-01-02", 330)


def world(
    prices: list[float], splits: list[Action], later_name: str, *, news: list[str] | None = None
) -> Snapshot:
    """Make a snapshot of AAA from its closes, with one news item a session."""
    bars: list[Bar] = [
        make_bar(
            "AAA", day, price, open=price * 0.99, high=price * 1.02, low=price * 0.97,
            volume=int(price * 1e4),
        )
        for day, price in zip(DAYS, prices, strict=False)
    ]  # fmt: skip
    titles = news if news is not None else [f"{day}" for day in DAYS[: len(prices)]]
    items = [
        (owner, f"{day}", f"{day}T15:00:00+00:00", title)
        for owner in ("AAA", None)
        for day, title in zip(DAYS, titles, strict=False)
    ]
    return make_snapshot(
        {"AAA": bars},
        actions=splits,
        instruments=[
            make_instrument("AAA", name="Alpha Inc.", valid_to=DAYS[300]),
            make_instrument("AAA", symbol=later_name, name=later_name, valid_from=DAYS[300]),
        ],
        start=DAYS[0],
        end=DAYS[-1],
        news=news_table(items),
    )


def walk(seed: int, count: int) -> list[float]:
    draw = np.random.Generator(np.random.PCG64(seed))
    return (100 * np.cumprod(1 + draw.normal(0, 0.02, count))).round(2).tolist()


@pytest.mark.parametrize("decision_time", ["close", "open"])
@pytest.mark.parametrize("at", [30, 149, 150, 260])
def test_rewriting_or_deleting_the_future_changes_no_text_and_no_bit(
    at: int, decision_time: str
) -> None:
    true = walk(1, len(DAYS))
    seen = at if decision_time == "open" else at + 1  # bars that the cutoff leaves visible
    known = [split("AAA", DAYS[day], 3, 2) for day in (20, 150) if day <= at]
    later = [split("AAA", DAYS[day], 4) for day in (20, 150, 299) if day > at]
    titles = [f"{day}" for day in DAYS]
    worlds = [
        world(true, known + later, "BBB"),
        world(
            [*true[:seen], *(10 * price for price in true[seen:])],
            [*known, split("AAA", DAYS[at + 1], 2), split("AAA", DAYS[-1], 1, 100)],
            POISON,
            news=[*titles[:at], titles[at] if decision_time == "close" else POISON]
            + [POISON] * (len(DAYS) - at - 1),
        ),
        world(true[:seen], known, "CCC"),
    ]
    views = [view_of(each, str(DAYS[at]), decision_time=decision_time) for each in worlds]
    told = [texts(view) for view in views]
    assert told[0] == told[1] == told[2]
    assert POISON not in "".join(told[0].values())
    newest = DAYS[seen - 1]
    assert f"latest_session: {newest}" in told[0]["get_verified_market_snapshot"]
    assert f"\n{newest}," in told[0]["get_stock_data"]
    assert f"\n{newest}: " in told[0]["get_indicators"]
    assert f"| {newest}" in told[0]["get_news"]
    assert f"| {newest}" in told[0]["get_global_news"]
    assert figures(views[0]) == figures(views[1]) == figures(views[2])


@settings(max_examples=25)
@given(
    seed=st.integers(0, 10**6),
    at=st.integers(0, 90),
    ratios=st.lists(
        st.tuples(st.integers(1, 99), st.integers(1, 20), st.integers(1, 20)), max_size=4
    ),
    future=st.lists(st.floats(min_value=0.01, max_value=1e9), min_size=1, max_size=30),
)
def test_no_future_reaches_a_single_bit_of_the_past(
    seed: int, at: int, ratios: list[tuple[int, int, int]], future: list[float]
) -> None:
    true = walk(seed, 100)
    splits = {day: split("AAA", DAYS[day], up, down) for day, up, down in ratios}
    known = [action for day, action in splits.items() if day <= at]
    honest = world(true, list(splits.values()), "BBB")
    other = world([*true[: at + 1], *future], known, "CCC")
    views = [view_of(each, str(DAYS[at])) for each in (honest, other)]
    assert figures(views[0]) == figures(views[1])


def test_the_comparison_sees_a_view_that_leaks() -> None:
    true = walk(1, 100)
    worlds = [world(true, [], "BBB"), world([*true[:50], *(9.0 for _ in range(50))], [], "BBB")]
    leaky = [view_of(each, str(DAYS[49]), kind=WithoutFilterAndCheck) for each in worlds]
    assert figures(leaky[0]) != figures(leaky[1])
    assert texts(leaky[0]) != texts(leaky[1])


def test_a_cache_that_has_seen_later_cutoffs_tells_an_earlier_view_nothing() -> None:
    snapshot = world(walk(2, 200), [split("AAA", DAYS[100], 2)], "BBB")
    shared = ViewCache(snapshot)
    for at in (199, 100, 99, 50):
        assert figures(view_of(snapshot, str(DAYS[at]), cache=shared)) == figures(
            view_of(snapshot, str(DAYS[at]))
        )


def test_what_was_read_is_never_later_than_the_cutoff() -> None:
    reads: list = []
    snapshot = world(walk(3, 200), [split("AAA", DAYS[100], 2)], "BBB")
    view = view_of(snapshot, str(DAYS[120]), reads=reads, decision_time="open")
    texts(view)
    stamps = [read.max_known_at for read in reads if read.max_known_at is not None]
    assert len(stamps) >= 5
    assert max(stamps) <= view.cutoff
    assert view.cutoff - max(stamps) < timedelta(days=4)


def test_rows_out_of_order_are_an_error_once_they_are_visible_and_not_before() -> None:
    rows = [make_bar("AAA", day, 10.0) for day in DAYS[:6]]
    assert rows[3].known_at is not None
    rows[1] = replace(rows[1], known_at=rows[3].known_at + timedelta(hours=1))
    snapshot = make_snapshot({"AAA": rows})
    assert view_of(snapshot, str(DAYS[3])).bars("AAA").sessions.tolist() == [
        DAYS[0],
        DAYS[2],
        DAYS[3],
    ]
    with pytest.raises(DataError, match=f"bars of AAA: around {DAYS[1]}"):
        view_of(snapshot, str(DAYS[4])).bars("AAA")


def test_every_column_of_every_table_but_the_identity_is_dated() -> None:
    # What has no instant of its own can only be cut by its validity range.
    assert [name for name, table in TABLES.items() if not table.dated] == ["instruments"]
    assert all(
        table.arrow.field("known_at").type == pa.timestamp("us", tz="UTC")
        for table in TABLES.values()
        if table.dated
    )
