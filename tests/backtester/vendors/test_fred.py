"""FRED and ALFRED against a loopback server that clips vintages and refuses as they do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Literal

import pytest

from backtester.errors import UsageError
from backtester.schema import conform
from backtester.vendors.base import BadResponse, Capture, NoData, NotConfigured
from backtester.vendors.fred import Fred
from tests.backtester.snapshots.test_view import view_of
from tests.support.page_server import Asked, Page, PageServer, page, settings_for, wanted_of
from tests.support.snapshots import closes, make_snapshot
from tests.support.vendor_trouble import SECRET, VendorTrouble

FIRST, LAST = date(1776, 7, 4), date(9999, 12, 31)


@dataclass
class Alfred:
    """Answer like the database: periods of vintages are clipped to the span that is asked for.

    Attributes:
        values: Series -> (period, vintage, value), each list in order.
        frequency: Of all series.
        most_vintages: Limit of vintages in one answer.
        page_size: Observations in one answer.
    """

    values: Mapping[str, list[tuple[str, str, str]]]
    frequency: str = "M"
    most_vintages: int = 2000
    page_size: int = 100_000
    unarchived: frozenset[str] = field(default_factory=frozenset)

    def __call__(self, asked: Asked) -> Page:
        series = asked.query["series_id"]
        if asked.query.get("api_key") != SECRET:
            return refusal("Bad Request.  The value for variable api_key is not registered.")
        if series not in self.values:
            return refusal("Bad Request.  The series does not exist.")
        if asked.path == "/fred/series":
            about = {
                "id": series, "realtime_start": "2026-11-30", "realtime_end": "2026-11-30",
                "title": f"Title of {series}", "frequency_short": self.frequency,
                "units": "Index 1982-1984=100", "seasonal_adjustment_short": "SA",
            }  # fmt: skip
            return page({"realtime_start": "2026-11-30", "seriess": [about]})
        assert asked.path == "/fred/series/observations"
        return self._observations(series, asked.query)

    def _observations(self, series: str, query: Mapping[str, str]) -> Page:
        if "realtime_start" not in query:
            since = until = date(2026, 11, 30)
        elif series in self.unarchived:
            return refusal(
                "Bad Request.  The series does not exist in ALFRED but may exist in FRED."
            )
        else:
            since = date.fromisoformat(query["realtime_start"])
            until = date.fromisoformat(query["realtime_end"])
        rows = self.values[series]
        vintages = {vintage for _, vintage, _ in rows if since <= day(vintage) <= until}
        if len(vintages) > self.most_vintages:
            return refusal(
                f"Bad Request.  There are {len(vintages)} vintage dates in the specified real-time "
                f"period: {since} to {until}.  This exceeds the maximum number of vintage dates "
                f"allowed ({self.most_vintages})."
            )
        by_period: dict[str, list[tuple[date, str]]] = {}
        for period, vintage, value in rows:
            if period >= query["observation_start"]:
                by_period.setdefault(period, []).append((day(vintage), value))
        found = []
        for period, mine in sorted(by_period.items()):
            ends = [start - timedelta(days=1) for start, _ in mine[1:]] + [LAST]
            for (start, value), end in zip(mine, ends, strict=True):
                if start <= until and end >= since:
                    found.append(
                        {
                            "realtime_start": max(start, since).isoformat(),
                            "realtime_end": min(end, until).isoformat(),
                            "date": period,
                            "value": value,
                        }
                    )
        offset = int(query.get("offset", "0"))
        return page(
            {
                "count": len(found), "offset": offset, "limit": int(query["limit"]),
                "observations": found[offset : offset + self.page_size],
            }
        )  # fmt: skip


def day(text: str) -> date:
    return date.fromisoformat(text)


def refusal(words: str) -> Page:
    return page({"error_code": 400, "error_message": words}, 400)


# February was released on 2023-03-14, March on 2023-04-12; in February 2024 both were revised.
CPI = [
    ("2023-02-01", "2023-03-14", "301.648"),
    ("2023-02-01", "2024-02-13", "301.509"),
    ("2023-03-01", "2023-04-12", "301.808"),
    ("2023-03-01", "2024-02-13", "301.744"),
]


def captured(
    alfred: Alfred, symbol: str = "CPIAUCSL", start: str = "2023-01-03", end: str = "2024-06-28",
    **options: str,
) -> tuple[Capture, list[Asked]]:  # fmt: skip
    """Return what is captured from a made-up database, and what it was asked."""
    wanted = wanted_of("macro", symbol, start, end, instrument="", options=options)
    with PageServer(alfred) as server:
        vendor = Fred(settings_for(server, api_key=SECRET))
        return vendor.capture(wanted), server.requests


def told(capture: Capture) -> list[tuple[str, str, float]]:
    """Return (period, known at, value) of each row, in stored order."""
    rows = conform("macro", capture.rows["macro"]).to_pylist()
    return [
        (str(row["period"]), row["known_at"].strftime("%Y-%m-%dT%H:%MZ"), row["value"])
        for row in rows
    ]


def test_every_vintage_is_a_row_known_from_its_release() -> None:
    capture, asked = captured(Alfred({"CPIAUCSL": CPI}), "cpi")
    assert told(capture) == [
        ("2023-02-01", "2023-03-14T12:30Z", 301.648),
        ("2023-02-01", "2024-02-13T13:30Z", 301.509),
        ("2023-03-01", "2023-04-12T12:30Z", 301.808),
        ("2023-03-01", "2024-02-13T13:30Z", 301.744),
    ]
    row = capture.rows["macro"].to_pylist()[0]
    assert (row["series"], row["name"]) == ("CPIAUCSL", "Title of CPIAUCSL")
    assert (row["unit"], row["known_at_basis"]) == ("Index 1982-1984=100", "published")
    query = asked[-1].query
    assert (query["realtime_start"], query["realtime_end"]) == ("1776-07-04", "2024-06-28")
    assert capture.options["series_id"] == "CPIAUCSL"
    assert SECRET not in f"{capture.options} {capture.source} {capture.notes}"


def test_nothing_that_was_released_after_the_range_is_asked_for() -> None:
    capture, asked = captured(Alfred({"CPIAUCSL": CPI}), end="2023-12-29")
    assert [value for _, _, value in told(capture)] == [301.648, 301.808]
    assert asked[-1].query["realtime_end"] == "2023-12-29"


def test_a_release_later_on_the_day_of_the_capture_is_left_out() -> None:
    wanted = wanted_of(
        "macro", "cpi", "2023-01-03", "2024-06-28", instrument="",
        captured_at=datetime(2023, 4, 12, 12, 29, tzinfo=UTC),
    )  # fmt: skip
    with PageServer(Alfred({"CPIAUCSL": CPI})) as server:
        capture = Fred(settings_for(server, api_key=SECRET)).capture(wanted)
    assert [value for _, _, value in told(capture)] == [301.648]


def test_history_before_the_range_comes_along_for_the_windows_that_reach_back() -> None:
    _, asked = captured(Alfred({"CPIAUCSL": CPI}), history_days="31")
    assert asked[-1].query["observation_start"] == "2022-12-03"


def daily(count: int) -> list[tuple[str, str, str]]:
    """Make a daily series: each value is released the day after, every tenth one revised later."""
    rows = []
    for number in range(count):
        at = date(2010, 1, 1) + timedelta(days=number)
        rows.append((str(at), str(at + timedelta(days=1)), f"{2 + number / 1000:.3f}"))
        if number % 10 == 0:
            rows.append((str(at), str(at + timedelta(days=40)), f"{3 + number / 1000:.3f}"))
    return rows


def test_a_series_with_too_many_vintages_is_asked_in_pieces_and_comes_out_the_same() -> None:
    rows = daily(4500)
    span = {"symbol": "VIXCLS", "start": "2010-01-01", "end": "2022-12-30", "history_days": "0"}
    whole, one = captured(Alfred({"VIXCLS": rows}, "D", most_vintages=10_000), **span)
    pieces, several = captured(Alfred({"VIXCLS": rows}, "D"), **span)
    assert len(one) == 2
    assert len(several) == 2 + 3  # the refused request, then 2010-2015, 2015-2020, 2020-2022
    assert told(pieces) == told(whole)
    assert len(told(whole)) == 4500 + 450


def test_a_piece_that_repeats_what_the_one_before_ended_with_adds_no_vintage() -> None:
    # 2,000 days from 2010-01-01 end on 2015-06-23; the second piece begins on the day after.
    rows = [
        ("2010-01-01", "2010-01-02", "1.0"),  # in force at the seam: carried over
        ("2010-01-02", "2010-01-03", "2.0"),
        ("2010-01-02", "2015-06-24", "2.5"),  # released on the very day of the seam
    ]
    span = {"symbol": "VIXCLS", "start": "2010-01-01", "end": "2016-01-04", "history_days": "0"}
    capture, _ = captured(Alfred({"VIXCLS": rows}, "D", most_vintages=2), **span)
    assert [(period, value) for period, _, value in told(capture)] == [
        ("2010-01-01", 1.0), ("2010-01-02", 2.0), ("2010-01-02", 2.5),
    ]  # fmt: skip
    assert told(capture)[-1][1] == "2015-06-25T04:59Z"


def test_a_long_list_is_read_page_by_page() -> None:
    capture, asked = captured(Alfred({"CPIAUCSL": CPI}, page_size=3))
    assert len(told(capture)) == 4
    assert [each.query["offset"] for each in asked[1:]] == ["0", "3"]


def test_a_value_that_is_missing_is_left_out_and_said() -> None:
    rows = [*CPI, ("2023-04-01", "2023-05-10", ".")]
    capture, _ = captured(Alfred({"CPIAUCSL": rows}))
    assert len(told(capture)) == 4
    assert "1 observations without a value were left out" in capture.notes
    assert any("vintages of CPIAUCSL begin on 2023-03-14" in note for note in capture.notes)


def test_a_value_without_a_vintage_is_dropped_and_counted() -> None:
    def answer(asked: Asked) -> Page:
        if asked.path.endswith("/observations"):
            dated = {"realtime_start": "2023-03-14", "date": "2023-02-01", "value": "1.5"}
            bare = {"date": "2023-03-01", "value": "2.5"}
            return page({"count": 2, "observations": [dated, bare]})
        return page({"seriess": [{"id": "VIXCLS"}]})

    capture, _ = captured(answer, "vix")  # type: ignore[arg-type]
    assert capture.dropped_undated == 1
    assert [value for _, _, value in told(capture)] == [1.5]


# -- series without vintages


BARE = {"XYZ": [("2023-01-01", "2026-11-30", "7.5"), ("2023-02-01", "2026-11-30", "8.0")]}


@pytest.mark.parametrize(("setting", "shown"), [("withhold", []), ("lag", [7.5, 8.0])])
def test_a_series_without_vintages_is_captured_and_the_view_decides(
    setting: Literal["withhold", "lag"], shown: list[float]
) -> None:
    capture, _ = captured(Alfred(BARE, unarchived=frozenset({"XYZ"})), "xyz")
    days = {f"2023-06-{day:02}": 1.0 for day in (1, 2, 5)}
    snapshot = make_snapshot({"AAA": closes(days)}, macro=capture.rows["macro"])
    view = view_of(snapshot, "2023-06-05", estimated=setting)
    assert [row.fields["value"] for row in view.rows("macro")] == shown
    assert view.withheld("macro") == 2 - len(shown)


def test_a_series_of_an_unknown_frequency_cannot_be_dated_and_is_no_data() -> None:
    with pytest.raises(NoData, match="XYZ has the unknown frequency"):
        captured(Alfred(BARE, "?", unarchived=frozenset({"XYZ"})), "XYZ")


@pytest.mark.parametrize(
    ("frequency", "first", "second"),
    [
        ("M", "2023-03-18T04:59Z", "2023-04-15T04:59Z"),  # 45 days after the month's end
        ("D", "2023-01-03T05:59Z", "2023-02-03T05:59Z"),
    ],
)
def test_without_vintages_it_is_estimated_from_the_end_of_its_period(
    frequency: str, first: str, second: str
) -> None:
    alfred = Alfred(BARE, frequency, unarchived=frozenset({"XYZ"}))
    capture, _ = captured(alfred, "XYZ")
    assert [at for _, at, _ in told(capture)] == [first, second]
    assert set(capture.rows["macro"].column("known_at_basis").to_pylist()) == {"estimated"}
    assert "estimated" in capture.notes[0]


# -- refusals


def test_a_series_that_is_not_there_is_no_data() -> None:
    with pytest.raises(NoData, match="fred has no series NOSUCH"):
        captured(Alfred({}), "nosuch")


def test_a_series_without_a_value_in_the_range_is_no_data() -> None:
    with pytest.raises(NoData, match="no value of CPIAUCSL released up to 2023-02-01"):
        captured(Alfred({"CPIAUCSL": CPI}), end="2023-02-01")


@pytest.mark.parametrize("key", [None, "", "wrong-key-wrong-key-wrong-key-00"])
def test_a_missing_or_refused_key_names_its_variable(key: str | None) -> None:
    with PageServer(Alfred({"CPIAUCSL": CPI})) as server:
        vendor = Fred(settings_for(server, api_key=key))
        with pytest.raises(NotConfigured, match="FRED_API_KEY"):
            vendor.capture(wanted_of("macro", "cpi", "2023-01-03", "2023-12-29"))


def test_an_answer_about_another_series_is_refused() -> None:
    def answer(asked: Asked) -> Page:
        return page({"seriess": [{"id": "UNRATE", "title": "Unemployment"}]})

    with pytest.raises(BadResponse, match="asked for the series CPIAUCSL and told of 'UNRATE'"):
        captured(answer, "cpi")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "row",
    [
        {"date": "2023-13-01", "realtime_start": "2023-03-14", "value": "1"},
        {"date": "2023-03-01", "realtime_start": "soon", "value": "1"},
        {"date": "2023-03-01", "realtime_start": "2023-03-14", "value": "n/a"},
        {"date": "2023-03-01", "realtime_start": "2023-03-14", "value": "NaN"},
        {"date": "2023-03-01", "realtime_start": "2023-03-14"},
        "2023-03-01",
    ],
)
def test_an_observation_that_cannot_be_read_is_refused(row: object) -> None:
    def answer(asked: Asked) -> Page:
        if asked.path.endswith("/observations"):
            return page({"count": 1, "observations": [row]})
        return page({"seriess": [{"id": "CPIAUCSL"}]})

    with pytest.raises(BadResponse):
        captured(answer, "cpi")  # type: ignore[arg-type]


def test_a_list_that_stops_before_its_end_is_refused() -> None:
    def answer(asked: Asked) -> Page:
        if asked.path.endswith("/observations"):
            return page({"count": 5, "observations": []})
        return page({"seriess": [{"id": "CPIAUCSL"}]})

    with pytest.raises(BadResponse, match="sent 0 of 5 observations"):
        captured(answer, "cpi")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("symbol", "options", "words"),
    [
        ("", {}, "one series at a time"),
        ("cpi", {"lookback": "3"}, "no option 'lookback'"),
        ("cpi", {"history_days": "many"}, "history_days is 'many'"),
        ("cpi", {"estimated": "lag"}, "no option 'estimated'"),
    ],
)
def test_a_wrong_request_is_refused_before_anybody_is_asked(
    symbol: str, options: dict[str, str], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        captured(Alfred({}), symbol, **options)


class TestTrouble(VendorTrouble):
    build = Fred
    wanted = wanted_of("macro", "cpi", "2023-01-03", "2023-12-29", instrument="")
    whole = {"seriess": [{"id": "CPIAUCSL", "title": "Consumer Price Index"}]}  # noqa: RUF012
