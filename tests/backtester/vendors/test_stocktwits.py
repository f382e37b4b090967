"""StockTwits against a loopback server in the form of its symbol stream."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from backtester.schema import TABLES, conform
from backtester.vendors.base import BadResponse, Capture, NoData
from backtester.vendors.stocktwits import StockTwits
from tests.support.page_server import Asked, Page, PageServer, page, settings_for, wanted_of
from tests.support.vendor_trouble import VendorTrouble


def message(number: int, created: str | None, body: str, mood: str | None = None) -> dict[str, Any]:
    """Return a message as the stream writes it."""
    return {
        "id": number, "body": body, "created_at": created,
        "user": {"id": 7, "username": "some_person", "name": "Some Person", "followers": 12},
        "source": {"id": 1149, "title": "StockTwits for iOS"},
        "symbols": [{"id": 686, "symbol": "AAPL", "title": "Apple Inc."}],
        "likes": {"total": 4242, "user_ids": [1, 2]},
        "entities": {"sentiment": {"basic": mood} if mood else None},
    }  # fmt: skip


def stream(*messages: dict[str, Any], more: bool = False, symbol: str = "AAPL") -> Page:
    numbers = [each["id"] for each in messages]
    return page(
        {
            "response": {"status": 200},
            "symbol": {"id": 686, "symbol": symbol, "title": "Apple Inc."},
            "cursor": {
                "more": more, "since": max(numbers, default=None), "max": min(numbers, default=None)
            },
            "messages": list(messages),
        }
    )  # fmt: skip


NEWEST = message(31, "2026-11-27T18:30:00Z", "$AAPL to the moon &amp; back", "Bullish")
OLDER = message(30, "2026-11-25T09:00:00Z", "$AAPL puts\nBUY NOW", "Bearish")
OLDEST = message(29, "2026-11-20T09:00:00Z", "$AAPL hm")


def captured(
    answer: Any, symbol: str = "AAPL", start: str = "2026-11-23", end: str = "2026-11-27",
    **changes: Any,
) -> tuple[Capture, list[Asked]]:  # fmt: skip
    with PageServer(answer) as server:
        vendor = StockTwits(settings_for(server))
        return vendor.capture(wanted_of("social", symbol, start, end, **changes)), server.requests


def test_posts_of_the_wanted_days_come_with_their_authors_mark() -> None:
    capture, asked = captured(lambda asked: stream(NEWEST, OLDER, OLDEST))
    rows = conform("social", capture.rows["social"]).to_pylist()
    assert [(row["id"], row["known_at"], row["text"], row["label"]) for row in rows] == [
        ("30", datetime(2026, 11, 25, 9, tzinfo=UTC), "$AAPL puts\nBUY NOW", "bearish"),
        ("31", datetime(2026, 11, 27, 18, 30, tzinfo=UTC), "$AAPL to the moon & back", "bullish"),
    ]
    assert {(row["instrument"], row["platform"]) for row in rows} == {("AAPL", "stocktwits")}
    assert asked[0].path == "/api/2/streams/symbol/AAPL.json"
    assert capture.notes == ()


def test_neither_authors_nor_likes_are_stored() -> None:
    capture, _ = captured(lambda asked: stream(NEWEST, OLDER))
    text = str(capture.rows["social"].to_pylist())
    assert "some_person" not in text
    assert "Some Person" not in text
    assert "4242" not in text
    assert "author" not in TABLES["social"].names


def test_the_stream_is_read_back_to_the_first_day_and_no_further() -> None:
    pages = {None: stream(NEWEST, more=True), "31": stream(OLDER, more=True)}
    pages["30"] = stream(OLDEST, more=True)
    capture, asked = captured(lambda asked: pages[asked.query.get("max")])
    assert [each.query.get("max") for each in asked] == [None, "31", "30"]
    assert capture.rows["social"].num_rows == 2


def test_a_stream_that_begins_later_than_wanted_says_so() -> None:
    capture, _ = captured(lambda asked: stream(NEWEST, OLDER), start="2026-01-02")
    (note,) = capture.notes
    assert note == (
        "stocktwits gives recent posts alone: those of AAPL begin on 2026-11-25, and days before "
        "are unknown, not silent"
    )


def test_todays_posts_are_no_data_for_the_past() -> None:
    with pytest.raises(NoData, match="are of 2026-11-20 to 2026-11-27, none of 2018-01-02 to"):
        captured(lambda asked: stream(NEWEST, OLDER, OLDEST), start="2018-01-02", end="2018-12-31")


def test_a_post_from_after_the_capture_is_left_out() -> None:
    at = datetime(2026, 11, 26, tzinfo=UTC)
    capture, _ = captured(lambda asked: stream(NEWEST, OLDER), captured_at=at)
    assert capture.rows["social"].column("id").to_pylist() == ["30"]


def test_a_post_without_a_time_is_dropped_and_counted() -> None:
    undated = [message(32, None, "now?"), message(33, "", "then?")]
    capture, _ = captured(lambda asked: stream(NEWEST, *undated))
    assert capture.dropped_undated == 2
    assert capture.rows["social"].column("id").to_pylist() == ["31"]


@pytest.mark.parametrize(
    ("symbol", "name"), [("BRK-B", "BRK.B"), ("BTC-USD", "BTC.X"), ("NVDA", "NVDA")]
)
def test_a_symbol_is_written_as_the_platform_does(symbol: str, name: str) -> None:
    _, asked = captured(lambda asked: stream(NEWEST, symbol=name), symbol)
    assert asked[0].path.endswith(f"/{name}.json")


def test_an_unknown_symbol_and_an_empty_stream_are_no_data() -> None:
    body = {"response": {"status": 404}, "errors": [{"message": "Symbol not found"}]}
    with pytest.raises(NoData, match="no symbol AAPL"):
        captured(lambda asked: page(body, 404))
    with pytest.raises(NoData, match="no post about AAPL"):
        captured(lambda asked: stream())


def test_a_stream_of_another_symbol_is_refused() -> None:
    with pytest.raises(BadResponse, match="asked for AAPL and told of 'AAPU'"):
        captured(lambda asked: stream(NEWEST, symbol="AAPU"))


def test_a_stream_that_turns_in_a_circle_is_refused() -> None:
    with pytest.raises(BadResponse, match="the same messages about AAPL again"):
        captured(lambda asked: stream(NEWEST, more=True))


@pytest.mark.parametrize("bad", [{"created_at": "yesterday"}, {"id": None}])
def test_a_message_that_cannot_be_read_is_refused(bad: dict[str, object]) -> None:
    with pytest.raises(BadResponse):
        captured(lambda asked: stream({**NEWEST, **bad}) if bad.get("id", 1) else page(
            {"symbol": {"symbol": "AAPL"}, "cursor": {}, "messages": [{**NEWEST, **bad}]}
        ))  # fmt: skip


class TestTrouble(VendorTrouble):
    build = StockTwits
    wanted = wanted_of("social", "AAPL", "2026-11-23", "2026-11-27")
    whole = {"symbol": {"symbol": "AAPL"}, "cursor": {"more": False}, "messages": [NEWEST]}  # noqa: RUF012
