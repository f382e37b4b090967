"""What views share: it is worked out once, never shown too early, and does not grow without end."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backtester.schema import TABLES
from backtester.snapshots import view_cache
from backtester.snapshots.snapshot import Snapshot
from backtester.snapshots.view import ViewCache
from tests.backtester.snapshots.test_view import view_of
from tests.support.snapshots import closes, dividend, make_snapshot, sessions_of, split
from tests.support.tables import news_rows, social_rows
from tradingagents_core import statements
from tradingagents_core.tools import run_tool
from tradingagents_core.tools.filings import STATEMENTS

DAYS = sessions_of("AAA", "2018-03-05", 17)
BARS = closes({str(day): 10.0 + number for number, day in enumerate(DAYS)})
ENDS = ("2016-12-31", "2017-03-31", "2017-06-30", "2017-09-30", "2017-12-31")
ASKED = (
    ("get_income_statement", '{"ticker": "AAA"}'),
    ("get_income_statement", '{"ticker": "AAA", "freq": "annual"}'),
    ("get_balance_sheet", '{"ticker": "AAA", "freq": "annual"}'),
    ("get_balance_sheet", '{"ticker": "AAA", "curr_date": "2018-03-12"}'),
    ("get_fundamentals", '{"ticker": "AAA"}'),
)


def filed(
    at: datetime, value: int, *, item: str = "revenue", end: str = ENDS[-1], months: int = 3
) -> dict[str, Any]:
    """Make a row of ``statements``."""
    kind = next(name for name, items in statements.ITEMS.items() if item in items)
    return {
        "instrument": "AAA",
        "statement": kind,
        "item": item,
        "period_start": None,
        "period_end": date.fromisoformat(end),
        "period_months": 0 if kind in (statements.BALANCE, statements.COVER) else months,
        "known_at": at,
        "known_at_basis": "published",
        "form": "10-Q",
        "accession": None,
        "tag": None,
        "derived": False,
        "value": float(value),
        "unit": "shares" if kind == statements.COVER else "USD",
    }


def company(rows: Sequence[dict[str, Any]]) -> Snapshot:
    table = pa.Table.from_pylist(list(rows), schema=TABLES[STATEMENTS].arrow)
    actions = [split("AAA", DAYS[6], 2), dividend("AAA", DAYS[9], 0.25)]
    return make_snapshot(
        {"AAA": BARS}, actions=actions, start=DAYS[0], end=DAYS[-1], **{STATEMENTS: table}
    )


FILINGS = st.lists(
    st.builds(
        filed,
        st.integers(0, 25 * 86_400).map(
            lambda s: datetime(2018, 3, 1, tzinfo=UTC) + timedelta(seconds=s)
        ),
        st.integers(1, 9),
        item=st.sampled_from(
            ["revenue", "net_income", "equity", "total_liabilities", "shares_outstanding"]
        ),
        end=st.sampled_from(ENDS),
        months=st.sampled_from([3, 12]),
    ),
    max_size=25,
)


def texts(snapshot: Snapshot, cache: ViewCache, at: int, decision_time: str) -> list[str]:
    view = view_of(snapshot, str(DAYS[at]), decision_time=decision_time, cache=cache)
    return [run_tool(view, name, arguments).text for name, arguments in ASKED]


@settings(max_examples=10)
@given(
    rows=FILINGS,
    places=st.lists(
        st.tuples(st.integers(0, len(DAYS) - 1), st.sampled_from(["close", "open"])),
        min_size=3,
        max_size=6,
    ),
)
def test_cutoffs_in_any_order_and_thread_share_a_cache_and_see_each_its_own_day(
    rows: list[dict[str, Any]], places: list[tuple[int, str]]
) -> None:
    snapshot = company(rows)
    shared = ViewCache(snapshot)
    alone = []
    for at, decision_time in places:
        cutoff = view_of(snapshot, str(DAYS[at]), decision_time=decision_time).cutoff
        # Frozen by somebody at the cutoff, who cannot know a later filing.
        earlier = company([row for row in rows if row["known_at"] <= cutoff])
        alone.append(texts(earlier, ViewCache(earlier), at, decision_time))
    # In the order drawn, then backwards, then all at once on another cache.
    together = [texts(snapshot, shared, *place) for place in places]
    again = [texts(snapshot, shared, *place) for place in reversed(places)]
    assert together == alone
    assert again[::-1] == alone
    with ThreadPoolExecutor(4) as threads:
        other = ViewCache(snapshot)
        found = list(threads.map(lambda place: texts(snapshot, other, *place), places * 2))
    assert found == alone * 2


def test_the_texts_tell_a_day_before_a_filing_from_the_day_after() -> None:
    early, late = (datetime(2018, 3, day, 15, tzinfo=UTC) for day in (5, 14))
    snapshot = company([filed(early, 7), filed(late, 8)])
    cache = ViewCache(snapshot)
    # The 14th is the eighth of the sessions; forwards, and back again.
    shown = [texts(snapshot, cache, at, "close")[0].splitlines()[-1] for at in (6, 7, 16, 6, 0)]
    before, after = "revenue [USD],7", "revenue [USD],8 restated"
    assert shown == [before, after, after, before, before]


def test_the_books_of_a_company_are_made_once_for_all_tools_until_the_next_filing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[int] = []

    def counting(rows: Sequence[Any]) -> statements.Books:
        made.append(len(rows))
        return statements.books_of(rows)

    monkeypatch.setattr("tradingagents_core.tools.filings.books_of", counting)
    early, late = (datetime(2018, 3, day, 15, tzinfo=UTC) for day in (5, 14))
    snapshot = company([filed(early, 7), filed(late, 8)])
    cache = ViewCache(snapshot)
    asked = [(name, words) for name, words in ASKED if "curr_date" not in words]
    for at in (0, 3, 6, 7, 16, 6):
        view = view_of(snapshot, str(DAYS[at]), cache=cache)
        for name, words in asked:
            run_tool(view, name, words)
    assert made == [1, 2]


def test_only_so_many_rows_are_kept_and_what_was_dropped_is_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(view_cache, "_ROWS_KEPT", 12)
    noon = [(None, f"{day}T16:00", str(day)) for day in DAYS]
    snapshot = make_snapshot({"AAA": BARS}, start=DAYS[0], end=DAYS[-1], news=news_rows(noon))
    view = view_of(snapshot, str(DAYS[-1]), cache=ViewCache(snapshot))
    window = partial(view.rows, "news")
    four, five = window(last=4), window(last=5)
    assert window(last=4) is four
    # Each counts one more than its rows: these are eleven. With six more, the five have to go,
    # which nobody has asked for since.
    assert len(window(last=6)) == 6
    assert window(last=4) is four
    read_again = window(last=5)
    assert read_again is not five
    assert read_again == five
    # More than all that may be kept is still answered, and kept until the next read.
    assert len(window()) == len(DAYS)
    assert window() is window()


def test_as_many_rows_of_another_owner_or_table_are_not_mistaken_for_them() -> None:
    at = f"{DAYS[0]}T16:00"
    told = [(owner, at, title) for owner, title in (("AAA", "own"), (None, "of the world"))]
    posts = social_rows([("AAA", "reddit", at, "a post", None)])
    snapshot = make_snapshot(
        {"AAA": BARS}, start=DAYS[0], end=DAYS[-1], news=news_rows(told), social=posts
    )
    view = view_of(snapshot, str(DAYS[-1]), cache=ViewCache(snapshot))
    found = [view.rows("news", "AAA"), view.rows("news"), view.rows("social", "AAA")]
    assert [rows[0].fields["id"] for rows in found] == ["own", "of the world", "a post"]
