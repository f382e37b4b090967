"""What goes wrong with every vendor that is asked over HTTP, as one set of tests to inherit.

A test class names a vendor that asks a server, one request, and a page that would do; each test
then breaks the server in one way and looks at the error, the number of requests and the waits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from backtester.vendors.base import (
    BadResponse,
    RateLimited,
    Vendor,
    VendorError,
    VendorSettings,
    Wanted,
)
from tests.support.page_server import Page, PageServer, cut_off, html, in_turn, page, settings_for

SECRET = "k3y-0f-th3-t3sts-0123456789abcdef"


class VendorTrouble:
    """Break the server in each way that servers break; a subclass says which vendor asks."""

    build: Callable[[VendorSettings], Vendor]
    wanted: Wanted
    whole: object

    def ask(self, *pages: Page, **changes: Any) -> tuple[VendorError, PageServer, list[float]]:
        """Return the error of a request that is answered with these pages."""
        naps: list[float] = []
        with PageServer(in_turn(*pages)) as server:
            vendor = type(self).build(settings_for(server, naps, api_key=SECRET, **changes))
            with pytest.raises(VendorError) as caught:
                vendor.capture(self.wanted)
        assert SECRET not in str(caught.value)
        return caught.value, server, naps

    def test_a_rate_limit_is_waited_out_as_the_server_asks_and_then_said(self) -> None:
        error, server, naps = self.ask(page({"error": "slow down"}, 429, retry_after="7"))
        assert type(error) is RateLimited
        assert error.wait_s == 7.0
        assert naps == [7.0, 7.0]
        assert len(server.requests) == 3

    def test_a_wait_beyond_the_budget_is_not_begun(self) -> None:
        error, server, naps = self.ask(page({}, 429, retry_after="3600"))
        assert type(error) is RateLimited
        assert naps == []
        assert len(server.requests) == 1

    def test_a_broken_server_is_tried_again_and_is_no_absence_of_data(self) -> None:
        error, server, naps = self.ask(html(503))
        assert type(error) is VendorError
        assert "answered 503 (a page of HTML)" in str(error)
        assert len(server.requests) == 3
        assert len(naps) == 2

    def test_a_page_for_people_is_a_bad_response(self) -> None:
        error, _, _ = self.ask(html())
        assert type(error) is BadResponse
        assert "HTML instead of JSON" in str(error)

    def test_a_body_that_is_cut_off_is_a_bad_response_after_its_retries(self) -> None:
        error, server, _ = self.ask(cut_off(self.whole))
        assert type(error) is BadResponse
        assert "cut" in str(error)
        assert len(server.requests) == 3

    def test_json_that_stops_in_the_middle_is_a_bad_response(self) -> None:
        error, _, _ = self.ask(Page(body=b'{"a": [1, 2'))
        assert type(error) is BadResponse

    @pytest.mark.parametrize("body", [b"[]", b"{}", b"null", b"7", b'"x"', b""])
    def test_json_of_another_form_is_a_typed_error(self, body: bytes) -> None:
        self.ask(Page(body=body))

    def test_a_slow_server_is_given_up(self) -> None:
        error, _, _ = self.ask(Page(body=b"{}", delay_s=5.0), timeout_s=0.2, max_retries=0)
        assert type(error) is VendorError
        assert "did not answer in 0.2 s" in str(error)
