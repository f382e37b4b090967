"""Reddit against a loopback server in the form of its search listings."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from backtester.schema import conform
from backtester.vendors.base import BadResponse, Capture, NoData
from backtester.vendors.reddit import Reddit
from tests.support.page_server import Asked, Page, PageServer, page, settings_for, wanted_of
from tests.support.vendor_trouble import VendorTrouble


def stamp(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def post(number: int, created: str | None, title: str, **changes: Any) -> dict[str, Any]:
    """Return a post as a listing writes it."""
    data = {
        "name": f"t3_{number}", "id": str(number), "subreddit": "stocks", "title": title,
        "selftext": "", "author": "some_person", "author_fullname": "t2_x", "score": 4242,
        "ups": 4242, "num_comments": 77, "edited": False, "removed_by_category": None,
        "created": 1.0, "created_utc": None if created is None else stamp(created),
        **changes,
    }  # fmt: skip
    return {"kind": "t3", "data": data}


def listing(*children: dict[str, Any], after: str | None = None) -> Page:
    data = {"after": after, "dist": len(children), "children": [*children]}
    return page({"kind": "Listing", "data": data})


NEWEST = post(9, "2026-11-27T18:30:00", "AAPL earnings", selftext="I think\n# up")
OLDER = post(8, "2026-11-25T09:00:00", "Why $AAPL?")


def captured(
    answer: Any, symbol: str = "AAPL", start: str = "2026-11-23", end: str = "2026-11-27",
    subreddits: str = "stocks", **changes: Any,
) -> tuple[Capture, list[Asked]]:  # fmt: skip
    options = {"subreddits": subreddits}
    with PageServer(answer) as server:
        vendor = Reddit(settings_for(server, **changes))
        wanted = wanted_of("social", symbol, start, end, options=options)
        return vendor.capture(wanted), server.requests


def told(capture: Capture) -> list[tuple[str, str, str]]:
    rows = conform("social", capture.rows["social"]).to_pylist()
    return [(row["id"], row["known_at"].isoformat()[:16], row["text"]) for row in rows]


def test_posts_that_name_the_symbol_come_with_title_and_text() -> None:
    capture, asked = captured(lambda asked: listing(NEWEST, OLDER))
    assert told(capture) == [
        ("t3_8", "2026-11-25T09:00", "Why $AAPL?"),
        ("t3_9", "2026-11-27T18:30", "AAPL earnings | I think\n# up"),
    ]
    assert asked[0].path == "/r/stocks/search.json"
    assert asked[0].query["sort"] == "new"
    assert "tradingagents-backtester" in asked[0].headers["user-agent"]
    _, asked = captured(lambda asked: listing(NEWEST), user_agent="me (me@example.org)")
    assert asked[0].headers["user-agent"] == "me (me@example.org)"


def test_neither_authors_nor_votes_are_stored() -> None:
    capture, _ = captured(lambda asked: listing(NEWEST, OLDER))
    text = str(capture.rows["social"].to_pylist())
    assert "some_person" not in text
    assert "4242" not in text


def test_an_edited_text_is_known_from_its_last_edit_on() -> None:
    edited = post(7, "2026-11-24T09:00:00", "AAPL!", edited=stamp("2026-11-26T10:00:00"))
    late = post(6, "2026-11-24T09:00:00", "AAPL?", edited=stamp("2026-11-29T10:00:00"))
    capture, _ = captured(lambda asked: listing(edited, late))
    assert told(capture) == [("t3_7", "2026-11-26T10:00", "AAPL!")]


def test_a_removed_post_and_what_is_no_post_are_not_there() -> None:
    rows = [
        post(7, "2026-11-24T09:00:00", "AAPL 7", removed_by_category="moderator"),
        post(6, "2026-11-24T09:00:00", "AAPL 6", selftext="[removed]"),
        {"kind": "t5", "data": {"name": "t5_1"}},
    ]
    capture, _ = captured(lambda asked: listing(NEWEST, *rows))
    assert [row[0] for row in told(capture)] == ["t3_9"]


def test_a_post_without_a_time_is_dropped_and_counted() -> None:
    capture, _ = captured(lambda asked: listing(NEWEST, post(7, None, "AAPL")))
    assert capture.dropped_undated == 1
    assert len(told(capture)) == 1


@pytest.mark.parametrize(
    ("symbol", "title", "named"),
    [
        ("AAPL", "Is AAPL cheap?", True),
        ("AAPL", "is $aapl cheap?", True),
        ("AAPL", "AAPLE pie", False),
        ("AAPL", "apple pie", False),
        ("F", "F this market", False),
        ("F", "Long $F now", True),
        ("F", "$FB is not it", False),
        ("BRK-B", "BRK.B at 400", True),
        ("BTC-USD", "BTC halving", True),
    ],
)
def test_a_post_counts_where_it_names_the_symbol(symbol: str, title: str, named: bool) -> None:
    rows = [post(7, "2026-11-24T09:00:00", title)]
    sure = post(1, "2026-11-24T08:00:00", "$AAPL $F $BRK.B $BTC")
    capture, _ = captured(lambda asked: listing(*rows, sure), symbol)
    assert ("t3_7" in [row[0] for row in told(capture)]) == named
    assert any("1 posts that do not name" in note for note in capture.notes) == (not named)


def test_a_post_of_two_communities_is_one_and_a_closed_one_is_named() -> None:
    def answer(asked: Asked) -> Page:
        if "nowhere" in asked.path:
            return page({"message": "Not Found", "error": 404}, 404)
        return listing(NEWEST)

    capture, asked = captured(answer, subreddits="stocks, nowhere,investing")
    assert len(told(capture)) == 1
    assert len(asked) == 3
    assert "there is no subreddit nowhere" in capture.notes


def test_listings_are_read_back_to_the_first_day_and_no_further() -> None:
    old = post(3, "2026-11-20T09:00:00", "AAPL old")
    pages = {None: listing(NEWEST, after="t3_9"), "t3_9": listing(OLDER, after="t3_8")}
    pages["t3_8"] = listing(old, after="t3_3")
    capture, asked = captured(lambda asked: pages[asked.query.get("after")])
    assert [each.query.get("after") for each in asked] == [None, "t3_9", "t3_8"]
    assert len(told(capture)) == 2


def test_todays_posts_are_no_data_for_the_past() -> None:
    with pytest.raises(NoData, match="reddit gives recent posts alone"):
        captured(lambda asked: listing(NEWEST, OLDER), start="2018-01-02", end="2018-12-31")


def test_no_post_is_no_data() -> None:
    with pytest.raises(NoData, match="no post about AAPL"):
        captured(lambda asked: listing())


@pytest.mark.parametrize(
    "body",
    [
        {"kind": "Listing", "data": {"children": ["x"]}},
        {"kind": "Listing", "data": {"children": [{"kind": "t3", "data": {}}]}},
        {"kind": "Listing", "data": {}},
    ],
)
def test_a_listing_that_cannot_be_read_is_refused(body: dict[str, Any]) -> None:
    with pytest.raises(BadResponse):
        captured(lambda asked: page(body))


def test_a_name_of_a_community_cannot_lead_elsewhere() -> None:
    with pytest.raises(BadResponse, match="no name of a subreddit"):
        captured(lambda asked: listing(NEWEST), subreddits="../../api/v1/me")


class TestTrouble(VendorTrouble):
    build = Reddit
    wanted = wanted_of("social", "AAPL", "2026-11-23", "2026-11-27")
    whole = {"kind": "Listing", "data": {"after": None, "children": [NEWEST]}}  # noqa: RUF012
