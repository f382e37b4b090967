"""Polymarket against a loopback server in the form of its catalogue and its price history."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from backtester.errors import UsageError
from backtester.schema import conform
from backtester.vendors.base import BadResponse, Capture, NoData
from backtester.vendors.polymarket import Polymarket
from tests.support.page_server import Asked, Page, PageServer, page, settings_for, wanted_of
from tests.support.vendor_trouble import VendorTrouble

TWO_WEEKS = 14 * 86_400


def stamp(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


def market(number: str, slug: str, question: str, **changes: Any) -> dict[str, Any]:
    """Return a market as the catalogue writes it, with lists as text and today's odds."""
    return {
        "id": number, "slug": slug, "question": question, "conditionId": "0xabc",
        "outcomes": json.dumps(["Yes", "No"]),
        "clobTokenIds": json.dumps([f"{number}1", f"{number}0"]),
        "outcomePrices": json.dumps(["1", "0"]), "volume": "987654.32", "volumeNum": 987654.32,
        "createdAt": "2024-01-05T10:00:00.000Z", "endDate": "2024-03-20T12:00:00Z",
        "active": True, "closed": True, "closedTime": "2024-03-20 18:05:00+00",
        **changes,
    }  # fmt: skip


CUT = market("501", "fed-cuts-in-march", "Will the Fed cut rates in March 2024?")
PRICES = {
    "5011": [
        ("2024-02-01T12:00:00", 0.62), ("2024-02-20T00:00:00", 0.2), ("2024-03-21T00:00:00", 0.0),
    ],
    "5010": [("2024-02-01T12:00:00", 0.38), ("2024-02-20T00:00:00", 0.8)],
}  # fmt: skip


@dataclass
class Exchange:
    """Answer like the catalogue and the price history together."""

    markets: list[dict[str, Any]]
    prices: Mapping[str, list[tuple[str, float]]]
    events: list[dict[str, Any]] = field(default_factory=list)

    def __call__(self, asked: Asked) -> Page:
        query = asked.query
        if asked.path == "/prices-history":
            first, last = int(query["startTs"]), int(query["endTs"])
            if last - first > TWO_WEEKS:
                words = "invalid filters: 'startTs' and 'endTs' interval is too long"
                return page({"error": words}, 400)
            ticks = self.prices.get(query["market"], [])
            history = [{"t": stamp(at), "p": price} for at, price in ticks]
            return page({"history": [tick for tick in history if first <= tick["t"] <= last]})
        if asked.path == "/public-search":
            return page({"events": self.events, "pagination": {"hasMore": False}})
        rows = self.markets if asked.path == "/markets" else self.events
        key = "id" if "id" in query else "slug"
        closed = query["closed"] == "true"
        return page([
            row for row in rows if row[key] == query[key] and bool(row.get("closed")) == closed
        ])  # fmt: skip


def captured(
    exchange: Any, subject: str = "fed-cuts-in-march", start: str = "2024-01-02",
    end: str = "2024-03-15", **options: str,
) -> tuple[Capture, list[Asked]]:  # fmt: skip
    wanted = wanted_of("prediction_markets", subject, start, end, instrument="", options=options)
    with PageServer(exchange) as server:
        return Polymarket(settings_for(server)).capture(wanted), server.requests


def told(capture: Capture) -> list[tuple[str, str, str, float]]:
    rows = conform("prediction_markets", capture.rows["prediction_markets"]).to_pylist()
    return [
        (row["market"], row["outcome"], row["known_at"].isoformat()[:16], row["probability"])
        for row in rows
    ]


def test_each_tick_of_the_history_is_a_row_known_when_it_was_traded() -> None:
    capture, _ = captured(Exchange([CUT], PRICES))
    assert told(capture) == [
        ("501", "No", "2024-02-01T12:00", 0.38),
        ("501", "No", "2024-02-20T00:00", 0.8),
        ("501", "Yes", "2024-02-01T12:00", 0.62),
        ("501", "Yes", "2024-02-20T00:00", 0.2),
    ]
    row = capture.rows["prediction_markets"].to_pylist()[0]
    assert row["question"] == "Will the Fed cut rates in March 2024?"


def test_the_volume_and_the_odds_of_today_are_not_stored() -> None:
    capture, _ = captured(Exchange([CUT], PRICES))
    assert set(capture.rows["prediction_markets"].column("volume").to_pylist()) == {None}
    # The market's result stands in its catalogue row and in a tick after the range.
    assert {price for *_, price in told(capture)} == {0.38, 0.8, 0.62, 0.2}


def test_a_market_whose_history_is_not_kept_is_no_data_and_never_todays_odds() -> None:
    with pytest.raises(NoData, match="no price history of 'fed-cuts-in-march'"):
        captured(Exchange([CUT], {}))


def test_the_history_is_asked_for_in_spans_that_the_server_allows() -> None:
    _, asked = captured(Exchange([CUT], PRICES))
    spans = [
        (int(each.query["startTs"]), int(each.query["endTs"]))
        for each in asked
        if each.path == "/prices-history" and each.query["market"] == "5011"
    ]
    # From its opening, not from the first day wanted, to the end of the last day wanted.
    assert spans[0][0] == stamp("2024-01-05T10:00:00")
    assert spans[-1][1] == stamp("2024-03-16T00:00:00")
    assert all(after[0] == before[1] for before, after in itertools.pairwise(spans))
    assert {each.query["fidelity"] for each in asked if "fidelity" in each.query} == {"720"}


def test_a_tick_on_the_seam_of_two_spans_is_one_row() -> None:
    # The second span begins 14 days after the opening of the market.
    prices = {"5011": [("2024-01-19T10:00:00", 0.5)], "5010": []}
    assert len(told(captured(Exchange([CUT], prices))[0])) == 1


def test_a_tick_without_a_time_is_dropped_and_counted() -> None:
    def answer(asked: Asked) -> Page:
        if asked.path == "/prices-history":
            return page({"history": [{"p": 0.4}, {"t": stamp("2024-01-08T00:00:00"), "p": 0.5}]})
        return page([CUT])

    capture, _ = captured(answer, end="2024-01-10")
    assert capture.dropped_undated == 2  # one for each outcome
    assert len(told(capture)) == 2


@pytest.mark.parametrize("subject", ["501", "fed-cuts-in-march", "march-fed-meeting", "fed rates"])
def test_a_market_is_named_by_number_slug_event_or_subject(subject: str) -> None:
    event = {"id": "9", "slug": "march-fed-meeting", "closed": True, "markets": [CUT]}
    capture, _ = captured(Exchange([CUT], PRICES, [event]), subject)
    assert len(told(capture)) == 4
    searched = any("a search found" in note for note in capture.notes)
    assert searched == (subject == "fed rates")


def test_a_subject_brings_so_many_markets_and_names_those_without_a_price() -> None:
    others = [
        market(str(number), f"m{number}", f"Question {number}?") for number in range(600, 605)
    ]
    event = {"id": "9", "slug": "x", "closed": True, "markets": [CUT, *others]}
    capture, _ = captured(Exchange([], PRICES, [event]), "rates", markets="3")
    assert {row[0] for row in told(capture)} == {"501"}
    assert "market 601 has no price in these days: Question 601?" in capture.notes
    assert not any("602" in note for note in capture.notes)


def test_a_subject_without_a_market_is_no_data() -> None:
    with pytest.raises(NoData, match="no market about 'weather'"):
        captured(Exchange([CUT], PRICES), "weather")


@pytest.mark.parametrize("price", [1.2, -0.1, "0.5", None])
def test_a_price_that_is_no_probability_is_refused(price: object) -> None:
    def answer(asked: Asked) -> Page:
        if asked.path == "/prices-history":
            return page({"history": [{"t": stamp("2024-01-08T00:00:00"), "p": price}]})
        return page([CUT])

    with pytest.raises(BadResponse, match="no probability"):
        captured(answer)


@pytest.mark.parametrize(
    "changes",
    [{"clobTokenIds": '["1"]'}, {"outcomes": "Yes, No"}, {"question": None}, {"id": 501}],
)
def test_a_market_that_cannot_be_read_is_refused(changes: dict[str, object]) -> None:
    row = {**CUT, **changes}
    with pytest.raises(BadResponse, match="without id, question or tokens"):
        captured(lambda asked: page([row]))


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(UsageError, match="no option 'fidelity' for prediction_markets"):
        captured(Exchange([CUT], PRICES), fidelity="60")


class TestTrouble(VendorTrouble):
    build = Polymarket
    wanted = wanted_of("prediction_markets", "501", "2024-01-02", "2024-02-01", instrument="")
    whole = [CUT]  # noqa: RUF012
