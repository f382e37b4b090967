"""The view on the committed snapshot: public fixed points, and indicators by definition."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from backtester.calendar import calendar_by_code
from backtester.snapshots.snapshot import open_snapshot
from backtester.snapshots.view import AsOfView, ViewCache
from tests.core.test_indicators import expected
from tradingagents_core.indicators import MENU
from tradingagents_core.tools import run_tool

NEW_YORK = calendar_by_code("XNYS")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> ViewCache:
    # An empty data folder: the copy that travels with the package is found.
    return ViewCache(open_snapshot("us-2013-2018", Path(tmp_path_factory.mktemp("data"))))


def view(cache: ViewCache, session: date) -> AsOfView:
    return AsOfView(
        cache.snapshot,
        cutoff=NEW_YORK.close_utc(session),
        session=session,
        decision_time="close",
        on_read=lambda _: None,
        cache=cache,
    )


def test_apple_before_its_split_is_seen_as_traded(cache: ViewCache) -> None:
    bars = view(cache, date(2014, 6, 6)).bars("AAPL", last=1)
    assert bars.close.tolist() == [645.57]


def test_apple_after_its_split_is_seen_on_the_new_basis(cache: ViewCache) -> None:
    bars = view(cache, date(2014, 6, 9)).bars("AAPL", last=2)
    assert bars.close.tolist() == pytest.approx([645.57 / 7, 93.70], abs=1e-9)


def test_the_splits_of_later_years_touch_no_price_of_2018(cache: ViewCache) -> None:
    seen = view(cache, date(2018, 12, 31))
    assert seen.bars("AMZN", end=date(2018, 1, 2), last=1).close.tolist() == [1189.01]
    assert seen.bars("NVDA", end=date(2018, 12, 24), last=1).close.tolist() == [127.08]


def test_googles_stock_dividend_is_undone_before_it_and_applied_after_it(cache: ViewCache) -> None:
    before = view(cache, date(2015, 4, 24)).bars("GOOG", last=1)
    after = view(cache, date(2015, 4, 27)).bars("GOOG", last=2)
    assert before.close.tolist() == [565.06]
    assert after.close.tolist() == pytest.approx([565.06 / 1.0027455, 555.37], abs=1e-9)


def test_facebook_is_called_facebook_in_2018(cache: ViewCache) -> None:
    seen = view(cache, date(2018, 6, 29))
    text = run_tool(seen, "get_verified_market_snapshot", '{"symbol": "FB"}').text
    assert text.startswith(
        "# Verified market snapshot of FB (Facebook, Inc.) as of 2018-06-29\n"
        "latest_session: 2018-06-29\n"
    )
    assert "\nclose: 194.32\n" in text
    assert "Meta" not in text
    refused = run_tool(seen, "get_verified_market_snapshot", '{"symbol": "META"}').text
    assert refused.startswith("INVALID_ARGUMENTS: 'META' is no symbol")


@pytest.mark.parametrize("instrument", ["AAPL", "AMZN", "META", "NFLX", "NVDA", "^GSPC"])
def test_the_indicators_of_real_prices_equal_their_definitions(
    cache: ViewCache, instrument: str
) -> None:
    seen = view(cache, date(2014, 7, 31))  # 398 sessions, Apple's split among them
    bars = seen.bars(instrument)
    series = seen.indicators(instrument, tuple(MENU), last=1)
    assert len(bars) == 398
    assert {name: values[-1] for name, values in series.values.items()} == pytest.approx(
        expected(bars), rel=1e-9, abs=1e-6
    )


def test_every_instrument_has_every_figure_throughout_2018(cache: ViewCache) -> None:
    for session in NEW_YORK.sessions(date(2018, 1, 2), date(2018, 12, 31))[::21]:
        seen = view(cache, session)
        for instrument in cache.snapshot.instruments():
            symbol = seen.identity(instrument).symbol
            answer = run_tool(seen, "get_verified_market_snapshot", f'{{"symbol": "{symbol}"}}')
            assert not answer.degraded
            assert "n/a" not in answer.text
