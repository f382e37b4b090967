"""What a view shows at its cutoff, how it answers for what it cannot show, and what it logs."""

from __future__ import annotations

import threading
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Literal
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest

from backtester.calendar import calendar_of
from backtester.errors import DataError
from backtester.records import ReadRecord
from backtester.schema import TABLES
from backtester.snapshots.snapshot import Snapshot
from backtester.snapshots.view import AsOfView, ViewCache
from tests.support.snapshots import (
    closes,
    dividend,
    make_bar,
    make_instrument,
    make_snapshot,
    sessions_of,
    split,
)
from tradingagents_core.errors import DataUnavailable, NoMarketData, ToolInputError
from tradingagents_core.indicators import MENU
from tradingagents_core.protocols import CURRENT_SITE, Site, View


def view_of(
    snapshot: Snapshot,
    session: str,
    *,
    decision_time: str = "close",
    ticker: str = "AAA",
    reads: list[ReadRecord] | None = None,
    cache: ViewCache | None = None,
    kind: type[AsOfView] = AsOfView,
    estimated: Literal["withhold", "lag"] = "withhold",
) -> AsOfView:
    """Make the view of one instrument's decision."""
    day = date.fromisoformat(session)
    calendar = calendar_of(ticker)
    instant = calendar.close_utc(day) if decision_time == "close" else calendar.open_utc(day)
    return kind(
        snapshot,
        cutoff=instant,
        session=day,
        decision_time=decision_time,  # type: ignore[arg-type]
        on_read=(reads if reads is not None else []).append,
        estimated=estimated,
        cache=cache,
    )


def shown(view: AsOfView, symbol: str = "AAA", **window: object) -> dict[str, float]:
    """Return session -> close of the bars that a view gives."""
    bars = view.bars(symbol, **window)  # type: ignore[arg-type]
    return {
        str(session): close
        for session, close in zip(bars.sessions, bars.close.tolist(), strict=True)
    }


WEEK = make_snapshot(
    {
        "AAA": closes(
            {
                "2018-06-25": 10.0,
                "2018-06-26": 11.0,
                "2018-06-27": 12.0,
                "2018-06-28": 13.0,
                "2018-06-29": 14.0,
                "2018-07-02": 15.0,
            }
        )
    }
)

APPLE = make_snapshot(
    {
        "AAPL": [
            ("2014-06-05", 646.20, 649.37, 642.61, 647.35, 10_856_671),
            ("2014-06-06", 649.90, 651.26, 644.47, 645.57, 12_497_800),
            ("2014-06-09", 92.70, 93.88, 91.75, 93.70, 75_415_000),
            ("2014-06-10", 94.73, 95.05, 93.57, 94.25, 62_777_000),
        ]
    },
    actions=[split("AAPL", "2014-06-09", 7), split("AAPL", "2014-06-10", 4)],
)


# -- the cutoff


def test_at_the_close_the_bar_of_the_session_is_visible() -> None:
    assert shown(view_of(WEEK, "2018-06-29"), last=2) == {"2018-06-28": 13.0, "2018-06-29": 14.0}


def test_at_the_open_the_last_visible_bar_is_the_one_before() -> None:
    view = view_of(WEEK, "2018-06-29", decision_time="open")
    assert shown(view, last=2) == {"2018-06-27": 12.0, "2018-06-28": 13.0}
    assert view.last_session == date(2018, 6, 28)
    assert view.session == date(2018, 6, 29)


def test_the_bar_of_the_session_is_in_a_window_that_ends_on_it() -> None:
    window = {"start": date(2018, 6, 28), "end": date(2018, 6, 29)}
    assert list(shown(view_of(WEEK, "2018-06-29"), **window)) == ["2018-06-28", "2018-06-29"]


def test_a_half_day_is_visible_from_its_early_close_on() -> None:
    snapshot = make_snapshot({"AAA": closes({"2018-11-21": 1.0, "2018-11-23": 2.0})})
    view = view_of(snapshot, "2018-11-23")
    assert view.cutoff == datetime(2018, 11, 23, 18, 0, tzinfo=UTC)  # 13:00 in New York
    assert shown(view) == {"2018-11-21": 1.0, "2018-11-23": 2.0}


def test_a_bar_of_a_session_that_has_not_closed_is_not_shown() -> None:
    early = AsOfView(
        WEEK,
        cutoff=datetime(2018, 6, 29, 19, 59, tzinfo=UTC),
        session=date(2018, 6, 29),
        decision_time="open",
        on_read=lambda _: None,
    )
    assert shown(early, last=1) == {"2018-06-28": 13.0}


def test_a_cutoff_may_come_in_any_zone() -> None:
    view = AsOfView(
        WEEK,
        cutoff=datetime(2018, 6, 29, 16, 0, tzinfo=ZoneInfo("America/New_York")),
        session=date(2018, 6, 29),
        decision_time="close",
        on_read=lambda _: None,
    )
    assert view.cutoff == datetime(2018, 6, 29, 20, 0, tzinfo=UTC)
    assert view.cutoff.tzinfo is UTC
    assert shown(view, last=1) == {"2018-06-29": 14.0}


def test_a_cutoff_that_cannot_be_that_of_its_session_is_refused() -> None:
    morning = datetime(2018, 6, 29, 13, 30, tzinfo=UTC)
    for decision_time, cutoff in (
        ("close", morning),
        ("open", morning + timedelta(hours=7)),
        ("close", datetime(2018, 6, 29, 20, 0, tzinfo=timezone(timedelta(hours=9)))),
    ):
        with pytest.raises(ValueError, match=f"is not the {decision_time} of session 2018-06-29"):
            AsOfView(
                WEEK,
                cutoff=cutoff,
                session=date(2018, 6, 29),
                decision_time=decision_time,  # type: ignore[arg-type]
                on_read=lambda _: None,
            )


def test_a_cutoff_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="has no time zone"):
        AsOfView(
            WEEK,
            cutoff=datetime(2018, 6, 29, 20, 0),  # noqa: DTZ001 - what is refused
            session=date(2018, 6, 29),
            decision_time="close",
            on_read=lambda _: None,
        )


def test_a_view_is_a_view() -> None:
    assert isinstance(view_of(WEEK, "2018-06-29"), View)


# -- splits


def test_before_the_split_prices_are_as_traded() -> None:
    bars = view_of(APPLE, "2014-06-06", ticker="AAPL").bars("AAPL")
    assert bars.close.tolist() == [647.35, 645.57]
    assert bars.volume.tolist() == [10_856_671, 12_497_800]


def test_from_the_ex_session_on_older_prices_and_volumes_are_on_the_new_basis() -> None:
    bars = view_of(APPLE, "2014-06-09", ticker="AAPL").bars("AAPL", last=2)
    assert bars.close.tolist() == pytest.approx([92.2242857142857, 93.70], abs=1e-12)
    assert bars.open[0] == pytest.approx(649.90 / 7)
    assert bars.high[0] == pytest.approx(651.26 / 7)
    assert bars.low[0] == pytest.approx(644.47 / 7)
    assert bars.volume.tolist() == [87_484_600, 75_415_000]


def test_at_the_open_of_the_ex_session_the_split_is_known_already() -> None:
    view = view_of(APPLE, "2014-06-09", ticker="AAPL", decision_time="open")
    assert shown(view, "AAPL", last=1) == {"2014-06-06": pytest.approx(645.57 / 7)}


def test_two_splits_multiply_and_a_later_one_changes_nothing() -> None:
    both = shown(view_of(APPLE, "2014-06-10", ticker="AAPL"), "AAPL")
    assert both == {
        "2014-06-05": pytest.approx(647.35 / 28),
        "2014-06-06": pytest.approx(645.57 / 28),
        "2014-06-09": pytest.approx(93.70 / 4),
        "2014-06-10": 94.25,
    }


def test_a_stock_dividend_adjusts_like_a_split() -> None:
    snapshot = make_snapshot(
        {"GOOG": closes({"2015-04-24": 565.06, "2015-04-27": 555.37})},
        actions=[split("GOOG", "2015-04-27", 10_027_455, 10_000_000)],
    )
    view = view_of(snapshot, "2015-04-27", ticker="GOOG")
    assert shown(view, "GOOG") == {
        "2015-04-24": pytest.approx(565.06 / 1.0027455, abs=1e-9),
        "2015-04-27": 555.37,
    }


def test_a_dividend_adjusts_no_price() -> None:
    snapshot = make_snapshot(
        {"AAA": closes({"2018-06-28": 100.0, "2018-06-29": 95.0})},
        actions=[dividend("AAA", "2018-06-29", 5.0)],
    )
    assert shown(view_of(snapshot, "2018-06-29")) == {"2018-06-28": 100.0, "2018-06-29": 95.0}


def test_indicators_are_on_the_basis_of_the_cutoff() -> None:
    days = sessions_of("AAA", "2014-05-01", 30)
    prices = [(day, 700.0 if day < date(2014, 6, 9) else 100.0) for day in days]
    snapshot = make_snapshot({"AAA": closes(prices)}, actions=[split("AAA", "2014-06-09", 7)])
    before = view_of(snapshot, "2014-06-06").indicators("AAA", ("boll", "boll_ub"), last=1)
    after = view_of(snapshot, "2014-06-09").indicators("AAA", ("boll", "boll_ub"), last=1)
    assert before.values["boll"].tolist() == [pytest.approx(700.0)]
    assert after.values["boll"].tolist() == [pytest.approx(100.0)]
    assert after.values["boll_ub"].tolist() == [pytest.approx(100.0)]  # no jump at the split


# -- windows


def test_a_later_date_is_cut_to_the_cutoff_and_the_cut_is_logged() -> None:
    reads: list[ReadRecord] = []
    view = view_of(WEEK, "2018-06-28", reads=reads)
    assert list(shown(view, start=date(2018, 6, 27), end=date(2018, 12, 31))) == [
        "2018-06-27",
        "2018-06-28",
    ]
    assert (reads[0].start, reads[0].end) == (date(2018, 6, 27), date(2018, 6, 28))
    assert reads[0].clamped


def test_a_window_that_begins_later_is_cut_to_the_last_bar() -> None:
    reads: list[ReadRecord] = []
    view = view_of(WEEK, "2018-06-28", reads=reads)
    assert shown(view, start=date(2018, 7, 2), end=date(2018, 7, 3)) == {"2018-06-28": 13.0}
    assert reads[0].clamped


def test_a_missing_end_means_the_cutoff_and_is_no_cut() -> None:
    reads: list[ReadRecord] = []
    view = view_of(WEEK, "2018-06-28", reads=reads)
    assert list(shown(view))[-1] == "2018-06-28"
    assert not reads[0].clamped


def test_asking_for_the_simulated_date_at_the_open_is_no_cut() -> None:
    reads: list[ReadRecord] = []
    view = view_of(WEEK, "2018-06-29", reads=reads, decision_time="open")
    assert list(shown(view, end=date(2018, 6, 29)))[-1] == "2018-06-28"
    assert not reads[0].clamped
    assert reads[0].end == date(2018, 6, 28)


def test_the_limit_comes_after_the_filter_and_the_window() -> None:
    view = view_of(WEEK, "2018-06-28")
    assert shown(view, last=1) == {"2018-06-28": 13.0}
    assert shown(view, end=date(2018, 6, 26), last=1) == {"2018-06-26": 11.0}


def test_a_window_without_a_session_is_empty() -> None:
    view = view_of(WEEK, "2018-07-02")
    assert len(view.bars("AAA", start=date(2018, 6, 30), end=date(2018, 7, 1))) == 0


@pytest.mark.parametrize("window", [{"start": "2018-06-22"}, {"end": "2018-06-22"}])
def test_a_window_outside_the_declared_range_is_refused(window: dict[str, str]) -> None:
    dates = {name: date.fromisoformat(day) for name, day in window.items()}
    with pytest.raises(ToolInputError, match="before 2018-06-25, the first date of the data"):
        view_of(WEEK, "2018-06-29").bars("AAA", **dates)  # type: ignore[arg-type]


def test_a_reversed_window_is_refused() -> None:
    with pytest.raises(ToolInputError, match="swap them"):
        shown(view_of(WEEK, "2018-06-29"), start=date(2018, 6, 28), end=date(2018, 6, 27))


@pytest.mark.parametrize("session", ["2018-06-22", "2018-07-03"])
def test_a_session_outside_the_declared_range_is_refused(session: str) -> None:
    with pytest.raises(DataError, match="2018-06-25 to 2018-07-02"):
        view_of(WEEK, session)


def test_an_unknown_indicator_is_answered_with_the_menu() -> None:
    with pytest.raises(ToolInputError, match="close_50_sma, close_200_sma"):
        view_of(WEEK, "2018-06-29").indicators("AAA", ("kdj",))


# -- gaps and stale tickers


def test_a_missing_session_is_left_out_and_filled_from_nowhere() -> None:
    snapshot = make_snapshot({"AAA": closes({"2018-06-26": 11.0, "2018-06-28": 13.0})})
    assert shown(view_of(snapshot, "2018-06-28")) == {"2018-06-26": 11.0, "2018-06-28": 13.0}


def test_a_leading_gap_takes_no_later_value() -> None:
    snapshot = make_snapshot(
        {"AAA": closes({"2018-06-28": 13.0}), "BBB": closes({"2018-06-25": 1.0})}
    )
    with pytest.raises(NoMarketData, match="no bar of AAA was known on 2018-06-27"):
        view_of(snapshot, "2018-06-27").bars("AAA")


def test_a_ticker_without_the_last_closed_session_has_no_data_and_says_how_old_it_is() -> None:
    reads: list[ReadRecord] = []
    snapshot = make_snapshot(
        {"AAA": closes({"2018-06-25": 10.0}), "BBB": closes({"2018-06-29": 1.0})}
    )
    view = view_of(snapshot, "2018-06-29", reads=reads)
    with pytest.raises(NoMarketData) as caught:
        view.bars("AAA")
    assert str(caught.value) == (
        "the newest bar of AAA is of 2018-06-25, 4 sessions older than 2018-06-29"
    )
    with pytest.raises(NoMarketData):
        view.indicators("AAA", ("rsi",))
    assert [(read.rows, read.max_known_at) for read in reads] == [(0, None), (0, None)]


def test_a_ticker_is_stale_after_one_missed_session_also_for_older_windows() -> None:
    snapshot = make_snapshot(
        {"AAA": closes({"2018-06-27": 12.0, "2018-06-28": 13.0}), "B": closes({"2018-06-29": 1.0})}
    )
    with pytest.raises(NoMarketData, match="1 session older than 2018-06-29"):
        view_of(snapshot, "2018-06-29").bars("AAA", end=date(2018, 6, 27))


def test_a_weekend_and_a_holiday_make_no_ticker_stale() -> None:
    snapshot = make_snapshot({"AAA": closes({"2018-07-03": 1.0, "2018-07-05": 2.0})})
    view = view_of(snapshot, "2018-07-05", decision_time="open")  # 4 July lies between
    assert shown(view) == {"2018-07-03": 1.0}


def test_contradicting_bars_are_no_price() -> None:
    snapshot = make_snapshot(
        {
            "AAA": [
                make_bar("AAA", "2018-06-28", 13.0),
                make_bar("AAA", "2018-06-29", 14.0),
                make_bar("AAA", "2018-06-29", 14.5),
            ]
        }
    )
    with pytest.raises(NoMarketData, match="1 session older than 2018-06-29; bars captured since"):
        view_of(snapshot, "2018-06-29").bars("AAA")


# -- two markets


def test_each_market_is_seen_up_to_its_own_last_close() -> None:
    rows = {"2018-06-27": 1.0, "2018-06-28": 2.0, "2018-06-29": 3.0}
    snapshot = make_snapshot({"7203.T": closes(rows), "AAA": closes(rows)})
    tokyo = view_of(snapshot, "2018-06-29", ticker="7203.T")
    assert tokyo.cutoff == datetime(2018, 6, 29, 6, 0, tzinfo=UTC)
    assert list(shown(tokyo, "7203.T"))[-1] == "2018-06-29"
    assert list(shown(tokyo, "AAA"))[-1] == "2018-06-28"  # New York is still asleep, not stale
    york = view_of(snapshot, "2018-06-28", ticker="AAA")
    assert list(shown(york, "7203.T"))[-1] == "2018-06-28"


# -- names


RENAMED = make_snapshot(
    {"META": closes({"2022-06-08": 196.64, "2022-06-09": 184.0}), "OLD": closes({})},
    instruments=[
        make_instrument("META", symbol="FB", name="Facebook, Inc.", valid_to="2022-06-09"),
        make_instrument("META", symbol="META", name="Meta Platforms", valid_from="2022-06-09"),
        make_instrument("OLD", symbol="META", name="Another one", valid_to="2022-01-31"),
    ],
    start="2022-01-03",
)


def test_an_instrument_has_the_name_of_its_day() -> None:
    before = view_of(RENAMED, "2022-06-08").identity("META")
    assert (before.instrument, before.symbol, before.name) == ("META", "FB", "Facebook, Inc.")
    after = view_of(RENAMED, "2022-06-09").identity("META")
    assert (after.symbol, after.name) == ("META", "Meta Platforms")


def test_a_later_symbol_is_unknown_until_it_is_taken() -> None:
    view = view_of(RENAMED, "2022-06-08")
    assert view.resolve("fb ") == "META"
    with pytest.raises(ToolInputError, match="'META' is no symbol"):
        view.resolve("META")
    assert view_of(RENAMED, "2022-06-09").resolve("META") == "META"


def test_a_symbol_that_was_another_company_then_is_that_company() -> None:
    assert view_of(RENAMED, "2022-01-31", decision_time="open").resolve("FB") == "META"
    assert view_of(RENAMED, "2022-01-28").resolve("META") == "OLD"


def test_bars_can_be_asked_for_by_id_and_by_symbol() -> None:
    view = view_of(RENAMED, "2022-06-08")
    assert shown(view, "FB") == shown(view, "META") == {"2022-06-08": 196.64}


def test_an_instrument_that_was_not_listed_has_no_data() -> None:
    snapshot = make_snapshot(
        {"AAA": closes({"2018-06-28": 1.0}), "GOOG": closes({"2018-06-29": 1.0})},
        instruments=[make_instrument("GOOG", valid_from="2018-06-29")],
    )
    view = view_of(snapshot, "2018-06-28")
    with pytest.raises(NoMarketData, match="GOOG was not listed on 2018-06-28"):
        view.identity("GOOG")
    with pytest.raises(NoMarketData, match="GOOG was not listed on 2018-06-28"):
        view.bars("GOOG")


@pytest.mark.parametrize("word", ["XYZ", "", "../../etc/passwd", "A" * 10_000, "'; drop"])
def test_an_unknown_word_is_refused(word: str) -> None:
    view = view_of(WEEK, "2018-06-29")
    for read in (view.resolve, view.identity, view.bars):
        with pytest.raises(ToolInputError, match="is no symbol that this snapshot knows") as caught:
            read(word)
        assert len(str(caught.value)) < 200


# -- other tables


def news_table(rows: list[tuple[str | None, str, str | None, str]]) -> pa.Table:
    """Make a news table from (instrument, id, instant, title)."""
    loose = pa.schema([pa.field(c.name, c.type) for c in TABLES["news"].columns])
    return pa.Table.from_pylist(
        [
            {
                "instrument": instrument,
                "id": name,
                "known_at": datetime.fromisoformat(instant) if instant else None,
                "known_at_basis": "published",
                "source": "Wire",
                "title": title,
            }
            for instrument, name, instant, title in rows
        ],
        schema=loose,
    )


NEWS = make_snapshot(
    {"AAA": closes({"2024-04-01": 1.0, "2024-05-01": 1.0, "2024-05-02": 1.0})},
    news=news_table(
        [
            ("AAA", "d", "2024-05-02T00:30:00+00:00", "D, the next day"),
            ("AAA", "c", "2024-05-01T20:30:00+00:00", "C, after the close"),
            ("AAA", "a", "2024-05-01T14:00:00+00:00", "A, in the session"),
            ("AAA", "e", "2024-04-20T12:00:00+00:00", "E, old"),
            ("AAA", "b", None, "B, undated"),
            (None, "g", "2024-05-01T13:00:00+00:00", "G, of the world"),
        ]
    ),
    undated=True,
)


def test_news_are_filtered_before_they_are_limited_and_undated_ones_are_dropped() -> None:
    reads: list[ReadRecord] = []
    view = view_of(NEWS, "2024-05-01", reads=reads)
    rows = view.rows("news", "AAA", start=date(2024, 4, 24), last=2)
    assert [row.fields["title"] for row in rows] == ["A, in the session"]
    assert rows[0].known_at == datetime(2024, 5, 1, 14, tzinfo=UTC)
    assert reads[0].dropped == 1
    assert (reads[0].table, reads[0].symbol, reads[0].rows) == ("news", "AAA", 1)
    assert reads[0].max_known_at == datetime(2024, 5, 1, 14, tzinfo=UTC)


def test_the_newest_rows_are_kept_and_come_oldest_first() -> None:
    view = view_of(NEWS, "2024-05-02")
    rows = view.rows("news", "AAA", last=2)
    assert [row.fields["title"][0] for row in rows] == ["C", "D"]  # type: ignore[index]


def test_a_window_of_news_ends_with_its_last_utc_day() -> None:
    view = view_of(NEWS, "2024-05-02")
    rows = view.rows("news", "AAA", start=date(2024, 5, 1), end=date(2024, 5, 1))
    assert [row.fields["id"] for row in rows] == ["a", "c"]


def test_rows_that_belong_to_no_instrument_are_apart() -> None:
    view = view_of(NEWS, "2024-05-02")
    assert [row.fields["id"] for row in view.rows("news")] == ["g"]


def test_a_later_end_of_a_news_window_is_cut_and_logged() -> None:
    reads: list[ReadRecord] = []
    view = view_of(NEWS, "2024-05-01", reads=reads)
    assert len(view.rows("news", "AAA", end=date(2024, 12, 31))) == 2
    assert reads[0].clamped
    assert reads[0].end == date(2024, 5, 1)


def test_a_table_that_was_not_captured_is_absent_with_its_reason_and_counted() -> None:
    reads: list[ReadRecord] = []
    snapshot = make_snapshot(
        {"AAA": closes({"2018-06-29": 1.0})}, absent={"social": "no archive of posts"}
    )
    view = view_of(snapshot, "2018-06-29", reads=reads)
    with pytest.raises(DataUnavailable, match="no table social: no archive of posts"):
        view.require("social", "AAA")
    with pytest.raises(DataUnavailable, match="no table social: no archive of posts"):
        view.rows("social", "AAA")
    assert [(read.table, read.rows) for read in reads] == [("social", 0), ("social", 0)]


def test_a_table_that_is_there_is_required_in_silence() -> None:
    reads: list[ReadRecord] = []
    view_of(NEWS, "2024-05-01", reads=reads).require("news", "AAA")
    assert reads == []


@pytest.mark.parametrize("table", ["bars", "instruments"])
def test_what_is_adjusted_or_named_by_date_has_no_second_door(table: str) -> None:
    with pytest.raises(ValueError, match="not read row by row"):
        view_of(WEEK, "2018-06-29").rows(table, "AAA")


def test_a_split_is_a_row_from_the_open_of_its_ex_session_on() -> None:
    bars = {"AAA": closes([("2018-06-27", 40.0), ("2018-06-28", 40.0), ("2018-06-29", 10.0)])}
    snapshot = make_snapshot(bars, actions=[split("AAA", "2018-06-29", 4)])
    assert view_of(snapshot, "2018-06-28").rows("actions", "AAA") == ()
    (row,) = view_of(snapshot, "2018-06-29").rows("actions", "AAA")
    assert (row.fields["kind"], row.fields["numerator"]) == ("split", 4)


# -- copies, log, cache


def test_what_comes_out_is_a_copy() -> None:
    cache = ViewCache(WEEK)
    bars = view_of(WEEK, "2018-06-29", cache=cache).bars("AAA")
    bars.close[:] = 0.0
    assert shown(view_of(WEEK, "2018-06-29", cache=cache), last=1) == {"2018-06-29": 14.0}


def test_a_read_names_its_place_in_the_run() -> None:
    reads: list[ReadRecord] = []
    view = view_of(WEEK, "2018-06-29", reads=reads)
    token = CURRENT_SITE.set(Site(node="Market Analyst", index=2, tool="get_stock_data"))
    try:
        view.bars("AAA", last=2)
    finally:
        CURRENT_SITE.reset(token)
    assert reads == [
        ReadRecord(
            node="Market Analyst",
            index=2,
            tool="get_stock_data",
            table="bars",
            symbol="AAA",
            start=None,
            end=date(2018, 6, 29),
            rows=2,
            max_known_at=datetime(2018, 6, 29, 20, tzinfo=UTC),
            clamped=False,
            dropped=0,
        )
    ]


def test_a_read_outside_the_graph_is_the_harness_own() -> None:
    reads: list[ReadRecord] = []
    view = view_of(WEEK, "2018-06-29", reads=reads)
    view.identity("AAA")
    view.indicators("AAA", ("rsi",), last=1)
    assert [(read.node, read.table, read.rows) for read in reads] == [
        ("harness", "instruments", 1),
        ("harness", "bars", 1),
    ]


def test_the_newest_instant_of_a_read_counts_the_split_that_it_rests_on() -> None:
    reads: list[ReadRecord] = []
    view = view_of(APPLE, "2014-06-09", ticker="AAPL", decision_time="open", reads=reads)
    view.bars("AAPL")
    assert reads[0].max_known_at == view.cutoff == datetime(2014, 6, 9, 13, 30, tzinfo=UTC)


def test_a_cache_of_another_snapshot_is_refused() -> None:
    with pytest.raises(ValueError, match="belongs to another snapshot"):
        view_of(WEEK, "2018-06-29", cache=ViewCache(APPLE))


def test_threads_that_share_a_cache_read_the_same() -> None:
    days = sessions_of("AAA", "2018-01-02", 120)
    snapshot = make_snapshot({"AAA": closes([(day, 100.0 + day.day) for day in days])})
    cache = ViewCache(snapshot)
    found: list[bytes] = []

    def read() -> None:
        view = view_of(snapshot, str(days[-1]), cache=cache)
        values = view.indicators("AAA", tuple(MENU), last=20).values
        found.append(b"".join(values[name].tobytes() for name in MENU))

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1


def test_indicator_values_do_not_depend_on_the_day_from_which_they_are_seen() -> None:
    days = sessions_of("AAA", "2018-01-02", 120)
    snapshot = make_snapshot({"AAA": closes([(day, 100.0 + day.day) for day in days])})
    early = view_of(snapshot, str(days[99])).indicators("AAA", tuple(MENU), last=1)
    late = view_of(snapshot, str(days[-1])).indicators("AAA", tuple(MENU), end=days[99], last=1)
    assert early.sessions == late.sessions == np.datetime64(days[99])
    for name in MENU:
        assert early.values[name].tobytes() == late.values[name].tobytes()
