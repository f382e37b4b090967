"""A request to a vendor is patient, bounded, and leaves no key behind; its failures have types."""

from __future__ import annotations

from typing import Any

import pytest

from backtester.vendors import web
from backtester.vendors.base import (
    BadResponse,
    NotConfigured,
    Pace,
    RateLimited,
    VendorError,
    VendorSettings,
)
from backtester.vendors.web import Answer, MayPass, fetch, json_of, list_of, object_of
from tests.support.page_server import Page, PageServer, cut_off, html, in_turn, page

KEY = "sk-TEST-SECRET-123"


def ask(*pages: Page, retries: int = 3, **more: Any) -> tuple[Any, PageServer, list[float]]:
    waits: list[float] = []
    with PageServer(in_turn(*pages)) as server:
        settings = VendorSettings(
            api_key=KEY, max_retries=retries, timeout_s=5.0, sleep=waits.append, budget_s=100.0
        )
        try:
            found: Any = fetch(settings, f"{server.url}/data", {"key": KEY}, **more)
        except VendorError as error:
            found = error
        return found, server, waits


def test_an_answer_comes_with_its_body_and_an_address_without_the_query() -> None:
    found, server, _ = ask(page({"a": 1}), headers={"x-who": "me"})
    assert object_of(found) == {"a": 1}
    assert found.url.endswith("/data")
    assert server.requests[0].query == {"key": KEY}
    assert server.requests[0].headers["x-who"] == "me"


def test_a_rate_limit_is_waited_out_as_asked() -> None:
    limited = page({}, 429, retry_after="7")
    found, server, waits = ask(limited, limited, page({"a": 1}))
    assert json_of(found) == {"a": 1}
    assert waits == [7.0, 7.0]
    assert len(server.requests) == 3


def test_a_rate_limit_that_does_not_end_says_how_long_to_wait() -> None:
    found, server, waits = ask(page({}, 429, retry_after="30"))
    assert isinstance(found, RateLimited)
    assert found.wait_s == 30.0
    # The fourth wait would be beyond the budget of 100 seconds.
    assert waits == [30.0, 30.0, 30.0]
    assert len(server.requests) == 4


def test_a_server_that_breaks_down_is_tried_again() -> None:
    found, _, waits = ask(Page(status=503), html(502), page([1]))
    assert list_of(found) == [1]
    assert len(waits) == 2
    failed, server, _ = ask(Page(status=500), retries=2)
    assert type(failed) is VendorError
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (page({"error": KEY}, 401), NotConfigured),
        (page({}, 403), NotConfigured),
        (page({}, 404), BadResponse),
        (page({}, 301), BadResponse),
    ],
)
def test_a_refusal_is_said_at_once_and_without_the_key(
    answer: Page, kind: type[VendorError]
) -> None:
    found, server, waits = ask(answer)
    assert type(found) is kind
    assert KEY not in str(found)
    assert waits == []
    assert len(server.requests) == 1


def test_a_status_that_is_an_answer_is_one() -> None:
    found, _, _ = ask(page({}, 404), also={404})
    assert isinstance(found, Answer)
    assert found.status == 404


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (html(), "HTML instead of JSON"),
        (Page(body=b'{"a": [1, 2'), "no whole JSON"),
        (Page(body=b""), "answered nothing"),
    ],
)
def test_what_is_no_json_is_a_bad_response(answer: Page, words: str) -> None:
    found, _, _ = ask(answer)
    with pytest.raises(BadResponse, match=words):
        json_of(found)


def test_json_of_another_form_is_a_bad_response() -> None:
    found, _, _ = ask(page([1]))
    with pytest.raises(BadResponse, match="not an object"):
        object_of(found)
    found, _, _ = ask(page({}))
    with pytest.raises(BadResponse, match="not a list"):
        list_of(found)


def test_a_body_that_was_cut_is_asked_for_again() -> None:
    found, server, _ = ask(cut_off({"a": "long enough to be cut"}), page({"a": 1}))
    assert json_of(found) == {"a": 1}
    assert len(server.requests) == 2
    failed, _, _ = ask(cut_off({"a": "long enough to be cut"}), retries=1)
    assert type(failed) is BadResponse


def test_an_answer_without_end_is_not_read_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "MOST_BYTES", 1_000)
    found, _, _ = ask(Page(body=b"x" * 1_001))
    assert type(found) is BadResponse


def test_a_vendor_that_is_not_there_is_an_error_of_its_own() -> None:
    waits: list[float] = []
    settings = VendorSettings(api_key=KEY, max_retries=1, timeout_s=2.0, sleep=waits.append)
    with PageServer(in_turn(page({}))) as server:
        gone = server.url
    with pytest.raises(VendorError, match="cannot be reached") as caught:
        fetch(settings, f"{gone}/data", {"key": KEY})
    assert type(caught.value) is VendorError
    assert caught.value.exit_code == 5
    assert KEY not in str(caught.value)
    assert len(waits) == 1


def test_a_silent_server_is_given_up_in_time() -> None:
    waits: list[float] = []
    with PageServer(in_turn(Page(delay_s=30.0))) as server:
        settings = VendorSettings(max_retries=1, timeout_s=0.2, sleep=waits.append)
        with pytest.raises(VendorError, match=r"did not answer in 0\.2 s"):
            fetch(settings, server.url)
    assert len(waits) == 1


def test_a_rate_limit_told_with_success_is_one_where_the_vendor_says_so() -> None:
    def look(answer: Answer) -> Answer:
        if "slow down" in str(json_of(answer)):
            raise MayPass(RateLimited("slow down"), 3.0)
        return answer

    found, _, waits = ask(page({"note": "slow down"}), page({"a": 1}), read=look)
    assert json_of(found) == {"a": 1}
    assert waits == [3.0]


def test_requests_keep_their_pause() -> None:
    waits: list[float] = []
    pace = Pace(1_000.0)
    pace.wait(waits.append)
    pace.wait(waits.append)
    assert len(waits) == 1
    assert 990.0 < waits[0] <= 1_000.0


def test_a_key_that_no_header_can_hold_is_said_without_it() -> None:
    with PageServer(in_turn(page({}))) as server:
        settings = VendorSettings(api_key=KEY, user_agent="n\u0101me", max_retries=0)
        with pytest.raises(NotConfigured, match="write it anew"):
            fetch(settings, server.url)
