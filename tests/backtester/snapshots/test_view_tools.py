"""News, macro series, odds and posts as tools print them from a snapshot, at one cutoff."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backtester.records import ReadRecord
from backtester.snapshots.snapshot import Snapshot
from backtester.snapshots.view import AsOfView
from tests.backtester.snapshots.test_view import view_of
from tests.backtester.snapshots.test_view_leaks import WithoutFilterAndCheck
from tests.support.snapshots import BarTuple, closes, make_snapshot, sessions_of
from tests.support.tables import macro_rows, news_rows, odds_rows, social_rows
from tradingagents_core.errors import DataUnavailable
from tradingagents_core.tools import ToolLimits, run_tool
from tradingagents_core.tools.social import social_posts

LIMITS = ToolLimits()


def ask(view: AsOfView, name: str, *, limits: ToolLimits = LIMITS, **arguments: Any) -> str:
    return run_tool(view, name, json.dumps(arguments), limits=limits).text


def bars(start: str, count: int) -> dict[str, list[BarTuple]]:
    return {"AAA": closes([(day, 10.0) for day in sessions_of("AAA", start, count)])}


# -- news


VENDOR_ORDER: list[tuple[str | None, str | None, str]] = [
    ("AAA", "2024-05-02T00:30", "D"),
    ("AAA", "2024-05-01T20:30", "C"),
    ("AAA", "2024-05-01T14:00", "A"),
    ("AAA", "2024-04-20T12:00", "E"),
]
UNDATED = news_rows([*VENDOR_ORDER, ("AAA", None, "B")])
NEWS = make_snapshot(bars("2024-04-01", 40), news=UNDATED, undated=True)


@pytest.mark.usefixtures("time_zone")
def test_a_limit_of_news_is_filled_from_what_was_published_by_the_close() -> None:
    reads: list[ReadRecord] = []
    view = view_of(NEWS, "2024-05-01", reads=reads)
    text = ask(view, "get_news", ticker="AAA", limits=ToolLimits(news_days=7, news_items=2))
    assert text == (
        "# News about AAA (AAA Corp.), 2024-04-24 to 2024-05-01, seen on 2024-05-01\n"
        "- 2024-05-01 14:00 UTC | Wire | A"
    )
    assert next(read for read in reads if read.table == "news").dropped == 1


def test_a_view_that_lost_its_filter_prints_the_news_of_the_next_day() -> None:
    snapshot = make_snapshot(bars("2024-04-01", 40), news=news_rows(VENDOR_ORDER))
    view = view_of(snapshot, "2024-05-01", kind=WithoutFilterAndCheck)
    text = ask(view, "get_news", ticker="AAA", limits=ToolLimits(news_items=2))
    assert [line[-1] for line in text.splitlines()[-2:]] == ["D", "C"]


def test_a_window_of_news_that_ends_in_the_future_is_counted_back_from_the_simulated_date() -> None:
    rows = [("AAA", "2024-04-25T14:00", "B"), ("AAA", "2024-05-03T14:00", "F")]
    world = [(None, at, title) for _, at, title in (*rows, *VENDOR_ORDER)]
    snapshot = make_snapshot(bars("2024-04-01", 40), news=news_rows([*rows, *VENDOR_ORDER, *world]))
    view = view_of(snapshot, "2024-05-01")
    # Seven days back from 9 May begin after 1 May, and hold neither of the two items.
    items = "\n- 2024-05-01 14:00 UTC | Wire | A\n- 2024-04-25 14:00 UTC | Wire | B"
    assert ask(view, "get_news", ticker="AAA", end_date="2024-05-09") == (
        "# News about AAA (AAA Corp.), 2024-04-24 to 2024-05-01, seen on 2024-05-01\n"
        "# end_date 2024-05-09 lies after the simulated date and was cut to it" + items
    )
    assert ask(view, "get_global_news", curr_date="2024-05-09", look_back_days=7) == (
        "# News about the world's markets, 2024-04-24 to 2024-05-01, seen on 2024-05-01\n"
        "# curr_date 2024-05-09 lies after the simulated date and was cut to it" + items
    )
    asked = {"start_date": "2024-05-03", "end_date": "2024-05-09"}
    assert ask(view, "get_news", ticker="AAA", **asked).splitlines()[:3] == [
        "# News about AAA (AAA Corp.), 2024-05-01 to 2024-05-01, seen on 2024-05-01",
        "# start_date 2024-05-03 lies after the simulated date and was cut to it",
        "# end_date 2024-05-09 lies after the simulated date and was cut to it",
    ]


def test_an_own_window_that_reaches_before_the_data_takes_what_there_is() -> None:
    rows = news_rows([("AAA", "2024-04-01T14:00", "First"), (None, "2024-03-20T14:00", "Old")])
    view = view_of(make_snapshot(bars("2024-04-01", 9), news=rows), "2024-04-02")
    assert "| First" in ask(view, "get_news", ticker="AAA")
    assert ask(view, "get_global_news").splitlines()[-1] == "# None in this window"
    refused = ask(view, "get_news", ticker="AAA", start_date="2024-03-20")
    assert refused.startswith("INVALID_ARGUMENTS: 2024-03-20 is before 2024-04-01")


def test_an_item_with_a_date_alone_is_marked() -> None:
    table = news_rows([("AAA", "2024-04-02T03:59", "Dated")])
    column = table.schema.get_field_index("known_at_basis")
    table = table.set_column(column, "known_at_basis", [["estimated"]])
    snapshot = make_snapshot(bars("2024-04-01", 9), news=table)
    shown = ask(view_of(snapshot, "2024-04-03", estimated="lag"), "get_news", ticker="AAA")
    assert "- 2024-04-02 03:59 UTC (time estimated) | Wire | Dated" in shown
    assert ask(view_of(snapshot, "2024-04-03"), "get_news", ticker="AAA") == (
        "DATA_UNAVAILABLE: no news about AAA (AAA Corp.) is on record up to 2024-04-03; 1 row of "
        "news is withheld: when it became public is only estimated"
    )


# -- macro


# Released as they were, each at half past eight in New York; both were revised a year later.
CPI = [
    ("CPIAUCSL", "2023-01-01", "2023-02-14T13:30", 300.536),
    ("CPIAUCSL", "2023-02-01", "2023-03-14T12:30", 301.648),
    ("CPIAUCSL", "2023-03-01", "2023-04-12T12:30", 301.808),
    ("CPIAUCSL", "2023-02-01", "2024-02-13T13:30", 301.509),
    ("CPIAUCSL", "2023-03-01", "2024-02-13T13:30", 301.744),
]
UNRATE = [
    ("UNRATE", "2023-02-01", "2023-03-10T13:30", 3.6),
    ("UNRATE", "2023-03-01", "2023-04-07T12:30", 3.5),
]
MACRO = make_snapshot(bars("2023-01-03", 300), macro=macro_rows(CPI + UNRATE))


def observations(text: str) -> list[str]:
    """Return the lines under the head of the table."""
    lines = text.splitlines()
    return lines[lines.index("Period,Value,Released") + 1 :]


@pytest.mark.usefixtures("time_zone")
def test_the_newest_observation_is_the_newest_released_one() -> None:
    march_end = ask(view_of(MACRO, "2023-03-31"), "get_macro_indicators", indicator="CPI")
    assert march_end == (
        "# Consumer Price Index (CPIAUCSL), in Percent, seen on 2023-03-31\n"
        "# Observations of 2022-03-31 to 2023-03-31, each as it had been released by 2023-03-31\n"
        "Period,Value,Released\n"
        "2023-01-01,300.536,2023-02-14 13:30 UTC\n"
        "2023-02-01,301.648,2023-03-14 12:30 UTC"
    )
    day_before = view_of(MACRO, "2023-04-11")
    on_the_day = view_of(MACRO, "2023-04-12")
    march = "2023-03-01,301.808,2023-04-12 12:30 UTC"
    assert march not in ask(day_before, "get_macro_indicators", indicator="cpi")
    assert observations(ask(on_the_day, "get_macro_indicators", indicator="cpi"))[-1] == march


def test_at_the_open_a_release_of_that_morning_is_known_and_one_of_the_afternoon_is_not() -> None:
    rows = macro_rows(
        [
            ("CPIAUCSL", "2023-03-01", "2023-04-12T12:30", 301.808),
            ("DGS10", "2023-04-11", "2023-04-12T20:15", 3.43),
            ("DGS10", "2023-04-10", "2023-04-11T20:15", 3.41),
        ]
    )
    snapshot = make_snapshot(bars("2023-01-03", 90), macro=rows)
    view = view_of(snapshot, "2023-04-12", decision_time="open")
    assert "301.808" in ask(view, "get_macro_indicators", indicator="cpi")
    ten_year = ask(view_of(snapshot, "2023-04-12"), "get_macro_indicators", indicator="ten-year")
    assert [line.split(",")[1] for line in observations(ten_year)] == ["3.41"]


def test_a_value_is_that_of_its_vintage_and_not_the_revised_one() -> None:
    before = ask(view_of(MACRO, "2024-02-12"), "get_macro_indicators", indicator="CPIAUCSL")
    after = ask(view_of(MACRO, "2024-02-13"), "get_macro_indicators", indicator="CPIAUCSL")
    assert [line.split(",")[1] for line in observations(before)] == ["301.808"]
    assert [line.split(",")[1] for line in observations(after)] == ["301.744"]


def test_an_earlier_date_shows_the_vintage_of_that_day() -> None:
    view = view_of(MACRO, "2024-02-29")
    text = ask(view, "get_macro_indicators", indicator="cpi", curr_date="2023-03-31")
    assert [line.split(",")[1] for line in observations(text)] == ["300.536", "301.648"]


def test_a_later_date_is_cut_to_the_simulated_one() -> None:
    text = ask(
        view_of(MACRO, "2023-03-31"), "get_macro_indicators", indicator="cpi",
        curr_date="2024-03-01",
    )  # fmt: skip
    assert "# curr_date 2024-03-01 lies after the simulated date and was cut to it" in text
    assert "301.808" not in text


def test_a_view_that_lost_its_filter_prints_the_unreleased_and_the_revised() -> None:
    view = view_of(MACRO, "2023-03-31", kind=WithoutFilterAndCheck)
    text = ask(view, "get_macro_indicators", indicator="cpi")
    assert "301.744" in text
    assert "301.648" not in text


@pytest.mark.parametrize(
    "word", ["CPI", "cpi", "inflation", "CPIAUCSL", "cpiaucsl", "US CPI", "consumer_price-index"]
)
def test_a_series_is_found_by_its_id_or_a_plain_word(word: str) -> None:
    text = ask(view_of(MACRO, "2023-03-31"), "get_macro_indicators", indicator=word)
    assert text.startswith("# Consumer Price Index (CPIAUCSL)")


def test_a_series_is_found_by_a_word_of_its_name_where_one_alone_has_it() -> None:
    view = view_of(MACRO, "2023-03-31")
    assert "(UNRATE)" in ask(view, "get_macro_indicators", indicator="unemployment rate")
    rows = macro_rows([("A1", "2023-01-01", "2023-02-01T12:00", 1.0),
                       ("A2", "2023-01-01", "2023-02-01T12:00", 2.0)])  # fmt: skip
    several = view_of(make_snapshot(bars("2023-01-03", 60), macro=rows), "2023-03-01")
    assert ask(several, "get_macro_indicators", indicator="series") == (
        "INVALID_ARGUMENTS: indicator 'series' fits several series: write one of "
        "A1 (Series A1), A2 (Series A2)"
    )


def test_a_series_that_is_not_on_record_is_unavailable_and_names_those_that_are() -> None:
    view = view_of(MACRO, "2023-03-01")
    assert ask(view, "get_macro_indicators", indicator="oil") == (
        "DATA_UNAVAILABLE: no series 'oil' had been released up to 2023-03-01; on record are "
        "CPIAUCSL (Consumer Price Index)"
    )
    early = view_of(MACRO, "2023-01-10")
    assert ask(early, "get_macro_indicators", indicator="cpi") == (
        "DATA_UNAVAILABLE: no economic series had been released up to 2023-01-10"
    )


def test_a_daily_series_is_cut_to_its_newest_observations_after_the_window() -> None:
    days = [date(2023, 1, 1) + timedelta(days=number) for number in range(200)]
    rows = macro_rows(
        [("DGS10", str(day), f"{day}T20:15", 3 + n / 1000) for n, day in enumerate(days)]
    )
    view = view_of(make_snapshot(bars("2023-01-03", 200), macro=rows), "2023-07-19")
    text = ask(view, "get_macro_indicators", indicator="ten year")
    assert "# Only the newest 60 observations of the window are shown" in text
    assert len(observations(text)) == 60
    assert observations(text)[-1].startswith("2023-07-18,3.198,")
    short = ask(view, "get_macro_indicators", indicator="ten year", look_back_days=10)
    assert len(observations(short)) == 10


def test_an_old_period_that_was_revised_lately_does_not_pass_for_the_newest() -> None:
    rows = [
        ("GDPC1", "2022-07-01", "2022-12-22T13:30", 3.2),
        ("GDPC1", "2021-01-01", "2023-02-23T13:30", 6.3),
    ]
    snapshot = make_snapshot(bars("2023-01-03", 60), macro=macro_rows(rows))
    text = ask(
        view_of(snapshot, "2023-03-01"), "get_macro_indicators", indicator="gdp", look_back_days=30
    )
    assert observations(text) == ["2022-07-01,3.2,2022-12-22 13:30 UTC"]


def test_an_estimated_release_is_marked_and_an_old_value_is_shown_for_want_of_a_newer() -> None:
    rows = macro_rows([("XYZ", "2021-12-01", "2022-03-01T12:00", 1e-7)], basis="estimated")
    snapshot = make_snapshot(bars("2023-01-03", 60), macro=rows)
    view = view_of(snapshot, "2023-03-01", estimated="lag")
    text = ask(view, "get_macro_indicators", indicator="xyz")
    assert "# No observation lies in this window; the newest one before it is shown" in text
    assert observations(text) == ["2021-12-01,0.0000001,2022-03-01 12:00 UTC (estimated)"]
    assert ask(view_of(snapshot, "2023-03-01"), "get_macro_indicators", indicator="xyz") == (
        "DATA_UNAVAILABLE: no economic series had been released up to 2023-03-01; 1 row of macro "
        "is withheld: when it became public is only estimated"
    )


def test_a_series_beside_which_rows_are_withheld_says_how_many() -> None:
    published = macro_rows([("UNRATE", "2023-01-01", "2023-02-03T13:30", 3.4)])
    guessed = macro_rows([("XYZ", "2023-01-01", "2023-02-15T23:59", 1.0)], basis="estimated")
    rows = pa.concat_tables([published, guessed])
    snapshot = make_snapshot(bars("2023-01-03", 60), macro=rows)
    note = "# 1 row of macro is withheld: when it became public is only estimated"
    text = ask(view_of(snapshot, "2023-03-01"), "get_macro_indicators", indicator="unemployment")
    assert note in text.splitlines()
    assert observations(text) == ["2023-01-01,3.4,2023-02-03 13:30 UTC"]
    # Before the estimated day there was nothing to withhold.
    early = view_of(snapshot, "2023-02-14")
    assert note not in ask(early, "get_macro_indicators", indicator="unemployment")


# -- prediction markets


FED = "Will the Fed cut rates in March 2024?"
RECESSION = "US recession in 2024?"
TICKS = [
    ("7", FED, "Yes", "2024-01-08T12:00", 0.70),
    ("7", FED, "No", "2024-01-08T12:00", 0.30),
    ("7", FED, "Yes", "2024-01-16T12:00", 0.625),
    ("7", FED, "No", "2024-01-16T12:00", 0.375),
    ("7", FED, "Yes", "2024-03-20T18:00", 0.0),
    ("7", FED, "No", "2024-03-20T18:00", 1.0),
    ("8", RECESSION, "Yes", "2024-01-16T12:00", 0.4),
    ("9", "Fed chair replaced in 2023?", "Yes", "2024-01-05T12:00", 0.01),
]
ODDS = make_snapshot(bars("2023-12-01", 120), prediction_markets=odds_rows(TICKS))


@pytest.mark.usefixtures("time_zone")
def test_odds_are_those_of_the_history_and_not_of_the_end() -> None:
    text = ask(view_of(ODDS, "2024-01-16"), "get_prediction_markets", topic="Fed rate cuts")
    assert text == (
        "# Prediction markets about 'Fed rate cuts', as traded by 2024-01-16, seen on 2024-01-16\n"
        "- Will the Fed cut rates in March 2024? | "
        "Yes 62.5% (2024-01-16 12:00 UTC; a week before: 70.0%) | "
        "No 37.5% (2024-01-16 12:00 UTC; a week before: 30.0%)"
    )


def test_a_view_that_lost_its_filter_prints_how_the_market_ended() -> None:
    view = view_of(ODDS, "2024-01-16", kind=WithoutFilterAndCheck)
    assert "Yes 0.0% (2024-03-20" in ask(view, "get_prediction_markets", topic="Fed rate cuts")


def test_a_market_that_had_ended_is_not_shown_as_a_forecast() -> None:
    text = ask(view_of(ODDS, "2024-01-16"), "get_prediction_markets", topic="Fed")
    assert "chair" not in text
    earlier = ask(
        view_of(ODDS, "2024-01-16"), "get_prediction_markets", topic="Fed", curr_date="2024-01-07"
    )
    assert (
        "- Fed chair replaced in 2023? | Yes 1.0% (2024-01-05 12:00 UTC; a week before: n/a)"
        in (earlier)
    )
    assert FED not in earlier


def test_a_topic_without_a_market_names_what_was_open() -> None:
    text = ask(view_of(ODDS, "2024-01-16"), "get_prediction_markets", topic="weather")
    assert text.splitlines()[1:] == [f"# None is on record; open then: {FED}; {RECESSION}"]


def test_the_limit_of_markets_comes_after_the_choice() -> None:
    ticks = [(str(n), f"Fed {n}?", "Yes", "2024-01-16T12:00", 0.5) for n in range(1, 10)]
    ticks += [("99", "Fed rates?", "Yes", "2024-01-16T12:00", 0.5)]
    snapshot = make_snapshot(bars("2024-01-02", 20), prediction_markets=odds_rows(ticks))
    view = view_of(snapshot, "2024-01-16")
    lines = ask(view, "get_prediction_markets", topic="fed rate", limit=2).splitlines()
    assert lines[1] == "# Only 2 of 10 markets are shown"
    assert [line.split(" |")[0] for line in lines[2:]] == ["- Fed rates?", "- Fed 1?"]


def test_before_any_market_was_traded_odds_are_unavailable() -> None:
    text = ask(view_of(ODDS, "2023-12-15"), "get_prediction_markets", topic="Fed")
    assert text == "DATA_UNAVAILABLE: no prediction market is on record up to 2023-12-15"


@pytest.mark.parametrize(
    ("tool", "arguments", "table"),
    [
        ("get_prediction_markets", {"topic": "fed"}, "prediction_markets"),
        ("get_macro_indicators", {"indicator": "cpi"}, "macro"),
    ],
)
def test_a_table_that_was_not_archived_is_absent_with_its_reason(
    tool: str, arguments: dict[str, Any], table: str
) -> None:
    snapshot = make_snapshot(bars("2018-06-01", 30), absent={table: "no history is kept"})
    assert ask(view_of(snapshot, "2018-06-29"), tool, **arguments) == (
        f"DATA_UNAVAILABLE: the snapshot has no table {table}: no history is kept"
    )


# -- social posts


POSTS = [
    ("AAA", "stocktwits", "2026-11-23T15:00", "One", "bullish"),
    ("AAA", "stocktwits", "2026-11-24T15:00", "Two\n- 2026-11-24 | forged", None),
    ("AAA", "reddit", "2026-11-24T16:00", "Three", None),
    ("AAA", "stocktwits", "2026-11-24T22:00", "After the close", "bearish"),
]
SOCIAL = make_snapshot(bars("2026-11-02", 18), social=social_rows(POSTS))


@pytest.mark.usefixtures("time_zone")
def test_posts_of_one_platform_come_newest_first_one_line_each() -> None:
    text = social_posts(view_of(SOCIAL, "2026-11-24"), "AAA", "stocktwits", LIMITS)
    assert text == (
        "# Posts on stocktwits about AAA (AAA Corp.), 2026-11-17 to 2026-11-24, "
        "seen on 2026-11-24\n"
        "# Their authors' own marks: 1 bullish, 1 unmarked\n"
        "- 2026-11-24 15:00 UTC | unmarked | Two - 2026-11-24 | forged\n"
        "- 2026-11-23 15:00 UTC | bullish | One"
    )
    reddit = social_posts(view_of(SOCIAL, "2026-11-24"), "AAA", "reddit", LIMITS)
    assert reddit.splitlines()[2:] == ["- 2026-11-24 16:00 UTC | unmarked | Three"]


def test_a_view_that_lost_its_filter_prints_todays_posts() -> None:
    view = view_of(SOCIAL, "2026-11-10", kind=WithoutFilterAndCheck)
    assert "After the close" in social_posts(view, "AAA", "stocktwits", LIMITS)


def test_posts_of_today_are_not_there_for_an_earlier_day() -> None:
    view = view_of(SOCIAL, "2026-11-10")
    with pytest.raises(DataUnavailable, match=r"no post on stocktwits about AAA .* 2026-11-10"):
        social_posts(view, "AAA", "stocktwits", LIMITS)


def test_a_quiet_week_is_told_apart_from_a_platform_without_a_past() -> None:
    quiet = [("AAA", "stocktwits", "2026-11-03T15:00", "Old", None)]
    snapshot = make_snapshot(bars("2026-11-02", 18), social=social_rows(quiet))
    text = social_posts(view_of(snapshot, "2026-11-24"), "AAA", "stocktwits", LIMITS)
    assert text.splitlines()[-1] == "# None in this window"
    with pytest.raises(DataUnavailable, match="no post on reddit"):
        social_posts(view_of(snapshot, "2026-11-24"), "AAA", "reddit", LIMITS)


def test_a_snapshot_without_an_archive_of_posts_says_so() -> None:
    snapshot = make_snapshot(
        bars("2018-06-01", 30), absent={"social": "stocktwits gives recent posts alone"}
    )
    with pytest.raises(DataUnavailable, match="no table social: stocktwits gives recent posts"):
        social_posts(view_of(snapshot, "2018-06-29"), "AAA", "stocktwits", LIMITS)


def test_the_limit_of_posts_comes_after_platform_and_window() -> None:
    rows = [
        ("AAA", platform, f"2026-11-{day:02}T{hour:02}:00", f"{platform} {day} {hour}", None)
        for platform in ("stocktwits", "reddit")
        for day in range(16, 21)
        for hour in range(10, 20)
    ]
    snapshot = make_snapshot(bars("2026-11-02", 18), social=social_rows(rows))
    lines = social_posts(view_of(snapshot, "2026-11-20"), "AAA", "stocktwits", LIMITS).splitlines()
    assert lines[1:3] == [
        "# Their authors' own marks: 50 unmarked",
        "# Only the newest 30 posts of the window are shown",
    ]
    assert len(lines) == 33
    assert all("stocktwits" in line for line in lines[3:])


# -- a rule for all of them


CALLS: Mapping[str, Mapping[str, Any]] = {
    "get_news": {"ticker": "AAA"},
    "get_global_news": {"look_back_days": 60},
    "get_macro_indicators": {"indicator": "cpi"},
    "get_prediction_markets": {"topic": "fed"},
}
MOMENTS = st.integers(0, 60 * 24 * 60).map(
    lambda minutes: (
        str(date(2024, 1, 2) + timedelta(days=minutes // 1440))
        + f"T{minutes % 1440 // 60:02}:{minutes % 60:02}"
    )
)
FIRST_DAYS = bars("2024-01-02", 45)


def world(stamps: list[str], words: str) -> Snapshot:
    """Make a snapshot with a row of each table at each instant."""
    return make_snapshot(
        FIRST_DAYS,
        news=news_rows([(owner, at, f"{words} {at}") for at in stamps for owner in ("AAA", None)]),
        macro=macro_rows([("CPIAUCSL", at[:10], at, 1.0) for at in stamps]),
        prediction_markets=odds_rows([("1", f"Fed {words}?", "Yes", at, 0.5) for at in stamps]),
        social=social_rows([("AAA", "reddit", at, f"{words} {at}", None) for at in stamps]),
    )


def everything(view: AsOfView) -> list[str]:
    answers = [ask(view, name, **arguments) for name, arguments in CALLS.items()]
    try:
        return [*answers, social_posts(view, "AAA", "reddit", LIMITS)]
    except DataUnavailable as error:
        return [*answers, str(error)]


@settings(max_examples=25)
@given(stamps=st.lists(MOMENTS, unique=True, max_size=30), at=st.integers(0, 39))
def test_no_tool_prints_a_later_row_and_a_cut_snapshot_reads_like_the_whole_one(
    stamps: list[str], at: int
) -> None:
    session = sessions_of("AAA", "2024-01-02", 45)[at]
    whole = view_of(world(stamps, "rumour"), str(session))
    known = [stamp for stamp in stamps if stamp <= whole.cutoff.isoformat()[:16]]
    cut = view_of(world(known, "rumour"), str(session))
    told = everything(whole)
    assert told == everything(cut)
    later = [stamp for stamp in stamps if stamp not in known]
    assert not any(stamp in text for stamp in later for text in told)
