"""Prices from Yahoo: as traded whatever Yahoo adjusts, checked against what was asked for."""

from __future__ import annotations

from datetime import UTC, date, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from backtester.errors import UsageError
from backtester.freeze.freezing import Way, freeze, settings_from
from backtester.freeze.plan import FreezePlan
from backtester.schema import conform
from backtester.snapshots.barcheck import check_capture
from backtester.vendors.base import (
    BadResponse,
    Capture,
    NoData,
    RateLimited,
    VendorSettings,
    Wanted,
)
from backtester.vendors.yahoo import Yahoo
from tests.support.yahoo_frames import (
    AAPL_2014,
    AAPL_2020,
    AAPL_TRADED,
    APPLE,
    FramePort,
    at_share_count,
    frame_of,
)

CAPTURED = datetime(2023, 9, 22, 12, tzinfo=UTC)


def wanted(start: str, end: str, *, symbol: str = "AAPL", **changes: Any) -> Wanted:
    return Wanted(
        **{
            "table": "bars",
            "instrument": symbol,
            "symbol": symbol,
            "start": date.fromisoformat(start),
            "end": date.fromisoformat(end),
            "captured_at": CAPTURED,
            **changes,
        }
    )


def captured(port: FramePort, asked: Wanted) -> Capture:
    capture = Yahoo(VendorSettings(), port).capture(asked)
    for name, table in capture.rows.items():
        conform(name, table)
    return capture


def rows(capture: Capture, table: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = capture.rows[table].to_pylist()
    return found


def apple() -> pd.DataFrame:
    return frame_of({**AAPL_2014, **AAPL_2020})


def flat(days: dict[str, float], **changes: float) -> pd.DataFrame:
    """Return a frame of bars that hold one price each, without actions."""
    frame = frame_of(
        {day: (price, price, price, price, price, 100, 0.0, 0.0) for day, price in days.items()}
    )
    for name, value in changes.items():
        frame[name] = value
    return frame


# --------------------------------------------------------------------------- prices as traded


def test_bars_and_actions_are_as_traded_and_paid() -> None:
    capture = captured(FramePort(apple()), wanted("2014-05-01", "2020-09-01"))
    bars = {str(row["session"]): (row["close"], row["volume"]) for row in rows(capture, "bars")}
    assert bars == AAPL_TRADED
    actions = [
        (str(row["ex_session"]), row["kind"], row["numerator"], row["denominator"], row["amount"])
        for row in rows(capture, "actions")
    ]
    assert sorted(actions) == [
        ("2014-05-08", "dividend", None, None, 3.29),
        ("2014-06-09", "split", 7, 1, None),
        ("2020-08-07", "dividend", None, None, 0.82),
        ("2020-08-31", "split", 4, 1, None),
    ]
    # The days between the two groups are left out of the fixture, and so are their dividends.
    assert [note[:45] for note in capture.notes] == [
        "AAPL: no dividend is listed for 2020-08-06, b"
    ]


def test_splits_between_the_range_and_the_capture_are_undone_and_not_stored() -> None:
    port = FramePort(apple())
    capture = captured(port, wanted("2014-05-01", "2014-06-10"))
    bars = {str(row["session"]): row["close"] for row in rows(capture, "bars")}
    assert bars == {day: close for day, (close, _) in AAPL_TRADED.items() if day < "2015"}
    assert [row["numerator"] for row in rows(capture, "actions") if row["kind"] == "split"] == [7]
    assert capture.notes == ("AAPL: splits after the range were undone: 4:1 on 2020-08-31",)
    # Asked up to the capture, a day ahead of UTC included; a range of Yahoo ends before its end.
    assert port.asked == [("history", "AAPL", date(2014, 5, 1), date(2023, 9, 24))]


def test_the_same_history_frozen_before_and_after_a_split_has_equal_rows() -> None:
    after = captured(FramePort(apple()), wanted("2014-05-01", "2020-08-28"))
    earlier = at_share_count(apple(), date(2014, 5, 1), date(2020, 8, 28), 4)
    then = datetime(2020, 8, 29, 12, tzinfo=UTC)
    before = captured(FramePort(earlier), wanted("2014-05-01", "2020-08-28", captured_at=then))
    for table in ("bars", "actions", "instruments"):
        assert before.rows[table].equals(after.rows[table])


def test_two_freezes_before_and_after_a_split_are_one_snapshot(tmp_path: Path) -> None:
    first, last = date(2020, 8, 27), date(2020, 8, 28)
    frames = {
        "before": at_share_count(apple(), first, last, 4),
        "after": frame_of({day: row for day, row in AAPL_2020.items() if day >= "2020-08-27"}),
    }
    frozen = {}
    for name, captured_at in (
        ("before", datetime(2020, 8, 29, 12, tzinfo=UTC)),
        ("after", CAPTURED),
    ):
        plan = FreezePlan(
            name="mine",
            symbols=("AAPL",),
            start=first,
            end=last,
            warmup=0,
            chains={"bars": ("yfinance",)},
        )
        vendor = Yahoo(VendorSettings(), FramePort(frames[name]))
        way = Way(settings_of=settings_from({}), vendors={"yfinance": vendor})
        frozen[name] = freeze(plan, tmp_path / name, captured_at=captured_at, way=way).snapshot
    assert frozen["before"].bars("AAPL").close.tolist() == [500.04, 499.23]
    assert frozen["before"].id == frozen["after"].id
    (note,) = [one for one in frozen["after"].manifest.findings if "undone" in one.message]
    assert "splits after the range were undone: 4:1 on 2020-08-31" in note.message


def test_what_yahoo_gives_passes_the_checks_of_a_capture() -> None:
    capture = captured(FramePort(apple()), wanted("2014-06-05", "2014-06-10"))
    findings = check_capture(
        capture.rows,
        declared_start=date(2014, 6, 5),
        declared_end=date(2014, 6, 10),
        captured_at=CAPTURED,
    )
    assert findings == ()


def test_instants_are_the_close_of_a_bar_and_the_open_of_an_action() -> None:
    capture = captured(FramePort(apple()), wanted("2014-06-09", "2014-06-10"))
    assert rows(capture, "bars")[0]["known_at"] == datetime(2014, 6, 9, 20, 0, tzinfo=UTC)
    assert rows(capture, "actions")[0]["known_at"] == datetime(2014, 6, 9, 13, 30, tzinfo=UTC)


def test_the_listing_is_todays_words_and_says_so() -> None:
    capture = captured(FramePort(apple()), wanted("2014-06-07", "2014-06-10"))
    (row,) = rows(capture, "instruments")
    assert (row["name"], row["exchange"], row["currency"]) == ("Apple Inc.", "NasdaqGS", "USD")
    assert (row["calendar"], row["asset_type"], row["static"]) == ("XNYS", "stock", True)
    # Saturday is no session; and a vendor's silence is no delisting.
    assert (row["first_session"], row["last_session"]) == (date(2014, 6, 9), None)


def test_an_instrument_that_began_within_the_range_starts_with_its_first_bar() -> None:
    facts = {**APPLE, "firstTradeDate": pd.Timestamp("2014-06-09 09:30", tz="America/New_York")}
    frame = frame_of({day: AAPL_2014[day] for day in ("2014-06-09", "2014-06-10")})
    capture = captured(FramePort(frame, facts), wanted("2014-05-01", "2014-06-10"))
    assert rows(capture, "instruments")[0]["first_session"] == date(2014, 6, 9)


def test_dates_are_the_exchanges_own_in_every_zone_of_the_machine(time_zone: str) -> None:
    days = {"2024-03-28": 5000.0, "2024-03-29": 5010.0}
    frame = flat(days).tz_localize(None).tz_localize("Asia/Tokyo")
    facts = {**APPLE, "symbol": "4063.T", "currency": "JPY"}
    asked = wanted(
        "2024-03-01", "2024-03-29", symbol="4063.T", captured_at=datetime(2024, 4, 1, tzinfo=UTC)
    )
    capture = captured(FramePort(frame, facts), asked)
    assert [str(row["session"]) for row in rows(capture, "bars")] == list(days)


# ------------------------------------------------------------------ options, form and symbol


def test_a_frame_that_was_adjusted_or_repaired_is_refused() -> None:
    adjusted = apple().drop(columns="Adj Close")
    repaired = apple().assign(**{"Repaired?": False})
    two_levels = pd.concat({"AAPL": apple()}, axis=1)
    for frame in (adjusted, repaired, two_levels):
        with pytest.raises(BadResponse, match="adjusted or repaired"):
            captured(FramePort(frame), wanted("2014-05-01", "2014-06-10"))


def test_days_without_a_zone_are_refused() -> None:
    with pytest.raises(BadResponse, match="name no zone"):
        captured(FramePort(apple().tz_localize(None)), wanted("2014-05-01", "2014-06-10"))


@pytest.mark.parametrize("symbol", ["AAP", "MSFT", "", None])
def test_prices_of_another_symbol_are_refused(symbol: str | None) -> None:
    port = FramePort(apple(), {**APPLE, "symbol": symbol})
    with pytest.raises(BadResponse, match="was asked for the prices of AAPL and answered"):
        captured(port, wanted("2014-05-01", "2014-06-10"))


def test_every_option_is_in_the_capture() -> None:
    capture = captured(FramePort(apple()), wanted("2014-05-01", "2014-06-10"))
    assert capture.options == {
        "start": "2014-05-01",
        "end": "2023-09-24",
        "interval": "1d",
        "prepost": "False",
        "actions": "True",
        "auto_adjust": "False",
        "back_adjust": "False",
        "repair": "False",
        "keepna": "True",
        "rounding": "False",
        "splits_undone": "7:1 on 2014-06-09; 4:1 on 2020-08-31",
    }


def test_an_option_that_is_none_is_refused() -> None:
    asked = wanted("2014-05-01", "2014-06-10", options={"repair": "True"})
    with pytest.raises(UsageError, match="has no option 'repair'"):
        captured(FramePort(apple()), asked)
    with pytest.raises(UsageError, match="has no table macro"):
        captured(FramePort(apple()), wanted("2014-05-01", "2014-06-10", table="macro"))


# ----------------------------------------------------------------------- holes and emptiness


def test_an_empty_frame_is_no_absence_of_data() -> None:
    with pytest.raises(BadResponse, match="an empty frame is not taken"):
        captured(FramePort(apple().iloc[:0]), wanted("2014-05-01", "2014-06-10"))


def test_a_share_that_was_listed_later_has_no_data_with_the_reason() -> None:
    with pytest.raises(NoData, match="has prices of AAPL from 2014-05-07 on, and none"):
        captured(FramePort(apple()), wanted("2010-01-04", "2010-12-31"))


def test_a_rate_limit_passes_through_as_one() -> None:
    port = FramePort(apple(), failure=lambda: RateLimited("come back later"))
    with pytest.raises(RateLimited):
        captured(port, wanted("2014-05-01", "2014-06-10"))


def test_bars_with_holes_are_left_out_and_named() -> None:
    frame = apple()
    frame.iloc[3, :4] = np.nan
    frame.iloc[5, :4] = 0.0
    capture = captured(FramePort(frame), wanted("2014-05-01", "2014-06-10"))
    assert "2014-06-06" not in {str(row["session"]) for row in rows(capture, "bars")}
    assert capture.notes[:2] == (
        "AAPL: the bar of 2014-06-06 has no prices: left out",
        "AAPL: the bar of 2014-06-10 has no prices: left out",
    )


def test_a_bar_that_contradicts_itself_is_left_out_and_named() -> None:
    frame = apple()
    frame.iloc[3, 1] = frame.iloc[3, 3] - 0.01
    frame.iloc[4, 2] = -1.0
    capture = captured(FramePort(frame), wanted("2014-06-05", "2014-06-10"))
    assert [str(row["session"]) for row in rows(capture, "bars")] == ["2014-06-05", "2014-06-10"]
    assert capture.notes[:2] == (
        "AAPL: the bar of 2014-06-06 has an open or a close outside its high and low: left out",
        "AAPL: the bar of 2014-06-09 has a price of -1: left out",
    )


def test_noise_of_32_bits_makes_no_bar_contradict_itself() -> None:
    frame = flat({"2018-01-02": 172.26})
    frame.iloc[0, 3] = 172.25999450683594
    frame.iloc[0, 2] = 172.2600049
    (bar,) = rows(captured(FramePort(frame), wanted("2018-01-02", "2018-01-02")), "bars")
    assert {bar["open"], bar["high"], bar["low"], bar["close"]} == {172.26}


def test_a_volume_of_zero_is_kept_and_flagged_and_is_no_halt() -> None:
    frame = apple()
    frame.iloc[3, 5] = 0
    capture = captured(FramePort(frame), wanted("2014-06-05", "2014-06-10"))
    findings = check_capture(
        capture.rows,
        declared_start=date(2014, 6, 5),
        declared_end=date(2014, 6, 10),
        captured_at=CAPTURED,
    )
    assert [(one.kind, one.session) for one in findings] == [("zero_volume", date(2014, 6, 6))]


# --------------------------------------------------------------------- splits and dividends


def test_prices_that_a_split_was_not_applied_to_are_refused() -> None:
    frame = frame_of(
        {
            "2020-08-27": (500.0, 500.0, 500.0, 500.0, 500.0, 100, 0.0, 0.0),
            "2020-08-28": (124.8, 124.8, 124.8, 124.8, 124.8, 100, 0.0, 0.0),
            "2020-08-31": (129.0, 129.0, 129.0, 129.0, 129.0, 100, 0.0, 4.0),
        }
    )
    with pytest.raises(BadResponse, match=r"before 2020-08-28 are not adjusted .* \(4:1\)"):
        captured(FramePort(frame), wanted("2020-08-27", "2020-08-31"))


def test_a_dividend_that_yahoo_lost_is_named() -> None:
    frame = apple()
    frame.iloc[1, 6] = 0.0
    capture = captured(FramePort(frame), wanted("2014-05-01", "2014-05-08"))
    assert "no dividend is listed for 2014-05-08" in capture.notes[0]


def test_a_dividend_of_more_than_the_share_is_left_out_and_named() -> None:
    frame = frame_of(AAPL_2020)
    frame.iloc[1, 6] = 205.0
    capture = captured(FramePort(frame), wanted("2020-08-01", "2020-08-28"))
    assert rows(capture, "actions") == []
    assert "the dividend of 205 on 2020-08-07 is doubtful" in capture.notes[0]
    assert capture.notes[0].endswith("it is left out")


def test_pence_stay_pence_and_a_dividend_in_pounds_becomes_pence() -> None:
    facts = {**APPLE, "symbol": "REL.L", "currency": "GBp", "fullExchangeName": "LSE"}
    days = {"2024-07-30": 3688.0, "2024-08-01": 3590.0}
    frame = flat(days).tz_localize(None).tz_localize("Europe/London")
    frame["Adj Close"] = [3688.0 - 18.2, 3590.0]
    frame.iloc[1, 6] = 0.182
    port = FramePort(frame, facts, {date(2024, 8, 1): "GBP"})
    asked = wanted(
        "2024-07-30", "2024-08-01", symbol="REL.L", captured_at=datetime(2024, 8, 5, tzinfo=UTC)
    )
    capture = captured(port, asked)
    assert {row["currency"] for row in rows(capture, "bars")} == {"GBp"}
    (paid,) = rows(capture, "actions")
    assert (paid["amount"], paid["currency"]) == (18.2, "GBp")
    assert capture.notes == ("REL.L: the dividend of 2024-08-01 is 0.182 GBP, stored as 18.2 GBp",)


def test_a_dividend_in_another_currency_keeps_it() -> None:
    port = FramePort(apple(), currencies={date(2014, 5, 8): "EUR"})
    capture = captured(port, wanted("2014-05-01", "2014-05-08"))
    (paid,) = rows(capture, "actions")
    assert paid["currency"] == "EUR"
    assert "is in EUR, the bars in USD" in capture.notes[0]


def test_a_stock_dividend_is_a_split_of_its_own_ratio() -> None:
    frame = flat({"2018-01-02": 100.0, "2018-01-03": 101.0})
    frame.iloc[1, 7] = 1.0027455
    capture = captured(FramePort(frame), wanted("2018-01-02", "2018-01-03"))
    (row,) = rows(capture, "actions")
    assert Fraction(row["numerator"], row["denominator"]) == Fraction(10_027_455, 10_000_000)


def test_a_distribution_of_gains_is_named_and_not_mixed_with_dividends() -> None:
    frame = flat({"2018-01-02": 100.0, "2018-01-03": 101.0})
    frame["Capital Gains"] = [0.0, 1.5]
    facts = {**APPLE, "instrumentType": "ETF"}
    capture = captured(FramePort(frame, facts), wanted("2018-01-02", "2018-01-03"))
    assert capture.notes == ("AAPL: a distribution of gains of 1.5 on 2018-01-03 is not stored",)
    assert rows(capture, "instruments")[0]["asset_type"] == "fund"
