"""Daily frames as yfinance gives them, from four markets, known errors and their repaired twins."""

from __future__ import annotations

import os
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from backtester.snapshots.barcheck import check_capture
from backtester.snapshots.manifest import Finding
from backtester.vendors.base import BadResponse, Capture, VendorSettings, Wanted
from backtester.vendors.yahoo import Yahoo
from tests.support.yahoo_frames import APPLE, FramePort

FOLDER = Path(os.environ.get("BACKTESTER_EXTRA_DATA", "")) / "yahoo_frames"

pytestmark = pytest.mark.skipif(
    not os.environ.get("BACKTESTER_EXTRA_DATA") or not FOLDER.is_dir(),
    reason="BACKTESTER_EXTRA_DATA names no folder with frames of yfinance",
)

HONG_KONG = ("1398.HK", "HKD", "Asia/Hong_Kong")
TOKYO = ("4063.T", "JPY", "Asia/Tokyo")
# The frames of London are in pounds, but for the dividends, which are in pence where they are bad.
LONDON = ("REL.L", "GBP", "Europe/London")
MADRID = ("IBE.MC", "EUR", "Europe/Madrid")
Market = tuple[str, str, str]


def frame_of(name: str, zone: str) -> pd.DataFrame:
    frame = pd.read_csv(FOLDER / f"{name}.csv", index_col=0)
    stamps = pd.to_datetime(frame.index, utc=True).tz_convert(zone)
    # yfinance marks what its repair touched; ours is a frame without it.
    return frame.set_index(stamps).drop(columns="Repaired?", errors="ignore")


def asked(market: Market, frame: pd.DataFrame) -> Wanted:
    days = sorted(stamp.date() for stamp in frame.index)
    return Wanted(
        table="bars",
        instrument=market[0],
        symbol=market[0],
        start=days[0],
        end=days[-1],
        captured_at=datetime(2024, 12, 1, tzinfo=UTC),
    )


def captured(name: str, market: Market) -> tuple[Capture, tuple[Finding, ...]]:
    symbol, currency, zone = market
    frame = frame_of(name, zone)
    facts = {**APPLE, "symbol": symbol, "currency": currency, "longName": symbol}
    wanted = asked(market, frame)
    capture = Yahoo(VendorSettings(), FramePort(frame, facts)).capture(wanted)
    findings = check_capture(
        capture.rows,
        declared_start=wanted.start,
        declared_end=wanted.end,
        captured_at=wanted.captured_at,
    )
    return capture, findings


def closes(capture: Capture) -> dict[str, tuple[float, int]]:
    rows = capture.rows["bars"].to_pylist()
    return {str(row["session"]): (row["close"], row["volume"]) for row in rows}


def dividends(capture: Capture) -> dict[str, float]:
    rows: list[dict[str, Any]] = capture.rows["actions"].to_pylist()
    return {str(row["ex_session"]): row["amount"] for row in rows if row["kind"] == "dividend"}


def doubtful(capture: Capture) -> list[str]:
    return [note for note in capture.notes if "dividend" in note]


# ----------------------------------------------------------------------------------- Madrid


def test_madrid_has_no_doubt_and_its_prices_to_the_tick() -> None:
    capture, findings = captured("IBE-MC-1d-no-bad-divs", MADRID)
    assert doubtful(capture) == []
    assert {finding.kind for finding in findings} <= {"gap", "extra_session"}
    traded = closes(capture)
    assert traded["2022-01-03"] == (10.445, 8_281_229)
    assert traded["2024-08-22"] == (12.625, 2_027_374)
    assert dividends(capture) == {
        "2022-01-10": 0.17,
        "2022-06-09": 0.005,
        "2022-07-08": 0.274,
        "2023-01-06": 0.18,
        "2023-04-20": 0.005,
        "2023-07-07": 0.316,
        "2024-01-09": 0.202,
        "2024-07-04": 0.351,
    }


def test_sessions_keep_their_day_over_both_changes_of_the_clock() -> None:
    capture, _ = captured("IBE-MC-1d-no-bad-divs", MADRID)
    known = {str(row["session"]): row["known_at"] for row in capture.rows["bars"].to_pylist()}
    # Madrid closes at 17:35 at the latest: 16:30 UTC in winter, 15:30 in summer by its calendar.
    assert known["2022-03-25"] == datetime(2022, 3, 25, 16, 30, tzinfo=UTC)
    assert known["2022-03-28"] == datetime(2022, 3, 28, 15, 30, tzinfo=UTC)


# ------------------------------------------------------------------------------------ Tokyo


def test_tokyos_split_gives_back_what_was_traded_before_it() -> None:
    capture, findings = captured("4063-T-1d-bad-stock-split-fixed", TOKYO)
    # The damaged twin holds the unadjusted figures of the days before 2023-03-29.
    plain = frame_of("4063-T-1d-bad-stock-split", TOKYO[2])
    before = plain[[stamp.date() < date(2023, 3, 29) for stamp in plain.index]]
    expected = {
        str(stamp.date()): (float(row["Close"]), int(row["Volume"]))
        for stamp, row in before.iterrows()
        if isinstance(stamp, pd.Timestamp)
    }
    traded = closes(capture)
    assert len(expected) == 9
    assert {day: traded[day] for day in expected} == expected
    # Five for one from the 30th on: 4206 of the 29th was 21030 yen, for a fifth of the shares.
    assert traded["2023-03-29"] == (21030.0, 1_302_900)
    assert traded["2023-03-30"] == (4161.0, 5_535_200)
    # 275 yen a share of the old count, on the day of the split: 55 of the new.
    assert dividends(capture) == {"2023-03-30": 55.0}
    assert findings == ()


def test_prices_that_tokyos_split_was_not_applied_to_are_refused() -> None:
    with pytest.raises(BadResponse, match=r"before 2023-03-29 are not adjusted .* \(5:1\)"):
        captured("4063-T-1d-bad-stock-split", TOKYO)


def test_tokyos_dividends_come_back_as_they_were_paid() -> None:
    capture, _ = captured("4063-T-1d-bad-div-fixed", TOKYO)
    # Two years before the split Shin-Etsu paid 250 and 225 yen a share.
    assert dividends(capture) == {
        "2022-03-30": 250.0,
        "2022-09-29": 225.0,
        "2023-03-30": 55.0,
        "2023-09-28": 50.0,
        "2024-03-28": 50.0,
    }


# ------------------------------------------------------------------------ London, Hong Kong


def test_londons_dividends_in_pence_are_flagged_and_their_repaired_twins_are_not() -> None:
    bad, _ = captured("REL-L-1d-bad-div", LONDON)
    fixed, _ = captured("REL-L-1d-bad-div-fixed", LONDON)
    days = list(dividends(fixed))
    assert days == [
        "2022-04-28",
        "2022-08-04",
        "2023-04-27",
        "2023-08-03",
        "2024-05-02",
        "2024-08-01",
    ]
    assert doubtful(fixed) == []
    assert [any(day in note for note in doubtful(bad)) for day in days] == [True] * 6
    # More than the share was worth cannot have been paid, and is not stored.
    assert dividends(fixed)["2022-04-28"] == 0.355
    assert "2022-04-28" not in dividends(bad)
    assert closes(bad) == closes(fixed)


def test_hong_kongs_unheld_dividend_is_flagged_and_its_repaired_twin_is_not() -> None:
    bad, _ = captured("1398-HK-1d-bad-div", HONG_KONG)
    fixed, _ = captured("1398-HK-1d-bad-div-fixed", HONG_KONG)
    assert doubtful(fixed) == []
    assert len(doubtful(bad)) == 1
    assert "the dividend of 0.335715 on 2024-07-08 is doubtful" in doubtful(bad)[0]
    # Flagged, not repaired: what Yahoo lists is what is stored.
    assert dividends(bad) == dividends(fixed)
    assert dividends(bad)["2024-07-08"] == 0.335715


@pytest.mark.parametrize(
    ("name", "market", "day"),
    [
        ("1398-HK-1d-bad-div", HONG_KONG, date(2024, 7, 5)),
        ("REL-L-1d-bad-div", LONDON, date(2024, 7, 31)),
    ],
)
def test_a_bar_of_holes_is_left_out_named_and_listed_as_a_gap(
    name: str, market: Market, day: date
) -> None:
    capture, findings = captured(name, market)
    assert f"{market[0]}: the bar of {day} has no prices: left out" in capture.notes
    assert day in {finding.session for finding in findings if finding.kind == "gap"}


def test_londons_bar_that_contradicts_itself_is_left_out_and_named() -> None:
    capture, findings = captured("REL-L-1d-bad-div", LONDON)
    # Open, high and low are 32.59, the close 32.84.
    words = "REL.L: the bar of 2024-05-02 has an open or a close outside its high and low: left out"
    assert words in capture.notes
    assert date(2024, 5, 2) in {one.session for one in findings if one.kind == "gap"}
