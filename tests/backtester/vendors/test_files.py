"""A user's own files become rows of the schema, or an error that names file, row and value."""

from __future__ import annotations

import gzip
import io
import json
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from backtester.errors import UsageError
from backtester.vendors import file_columns
from backtester.vendors.base import BadFile, BadResponse, Capture, NoData, Wanted
from backtester.vendors.files import Files

CSV = "Date,Open,High,Low,Close,Volume\n2024-03-04,10,12,9,11,100\n2024-03-05,11,13,10,12,200\n"


def wanted(table: str = "bars", **options: str) -> Wanted:
    return Wanted(
        table=table,
        instrument="AAA",
        symbol="AAA",
        start=date(2024, 3, 1),
        end=date(2024, 3, 8),
        captured_at=datetime(2024, 4, 10, tzinfo=UTC),
        options={name.replace("__", "."): value for name, value in options.items()},
    )


def captured(tmp_path: Path, text: str, table: str = "bars", **options: str) -> Capture:
    path = tmp_path / "rows.csv"
    path.write_text(text, encoding="utf-8")
    usual = {"path": str(path), "symbol": "AAA", "default__currency": "USD"}
    return Files().capture(wanted(table, **{**usual, **options}))


def bars_of(capture: Capture) -> list[dict[str, Any]]:
    return capture.rows["bars"].to_pylist()


def test_bars_come_from_csv_with_the_close_as_their_instant(tmp_path: Path) -> None:
    rows = bars_of(captured(tmp_path, CSV))
    assert rows[0] == {
        "instrument": "AAA",
        "session": date(2024, 3, 4),
        "known_at": datetime(2024, 3, 4, 21, tzinfo=UTC),
        "open": 10.0,
        "high": 12.0,
        "low": 9.0,
        "close": 11.0,
        "volume": 100,
        "currency": "USD",
    }
    assert len(rows) == 2


def test_columns_of_any_name_are_mapped(tmp_path: Path) -> None:
    text = "Tag;Auf;Hoch;Tief;Zu;Stk;Kurs\n04/03/2024;10;12;9;11;100;GBp\n"
    names = {"session": "Tag", "open": "Auf", "high": "Hoch", "low": "Tief", "close": "Zu"}
    names |= {"volume": "Stk", "currency": "Kurs"}
    options = {f"column__{ours}": theirs for ours, theirs in names.items()}
    (row,) = bars_of(captured(tmp_path, text, date_format="%d/%m/%Y", **options))
    assert (row["session"], row["close"], row["currency"]) == (date(2024, 3, 4), 11.0, "GBp")


def test_parquet_and_a_frame_give_the_same_rows(tmp_path: Path) -> None:
    frame = pd.read_csv(io.StringIO(CSV))
    frame.to_parquet(tmp_path / "rows.parquet")
    options = {"symbol": "AAA", "default__currency": "USD"}
    parquet = Files().capture(wanted(path=str(tmp_path / "rows.parquet"), **options))
    dated = frame.assign(Date=pd.to_datetime(frame["Date"])).set_index("Date")
    unnamed = dated.rename_axis(None)
    zoned = dated.tz_localize("America/New_York")
    rows = bars_of(captured(tmp_path, CSV))
    assert bars_of(parquet) == rows
    for one in (frame, dated, unnamed, zoned):
        assert bars_of(Files(frames={"bars": one}).capture(wanted(**options))) == rows


@pytest.mark.parametrize(
    ("stamp", "day"),
    [
        ("2024-03-04T00:00:00-05:00", date(2024, 3, 4)),
        ("2024-03-04 05:00:00+00:00", date(2024, 3, 4)),
        ("1709528400000", date(2024, 3, 4)),
        ("1709528400", date(2024, 3, 4)),
        ("20240304", date(2024, 3, 4)),
    ],
)
def test_a_session_is_a_date_in_the_zone_of_the_exchange(
    tmp_path: Path, stamp: str, day: date
) -> None:
    (row,) = bars_of(captured(tmp_path, f"time,open,high,low,close,volume\n{stamp},1,2,1,2,5\n"))
    assert row["session"] == day


def test_one_file_of_many_symbols_is_split_by_its_column(tmp_path: Path) -> None:
    lines = [f"{name},2024-03-0{day},1,2,1,2,{day}" for day in (4, 5) for name in ("BBB", "AAA")]
    path = tmp_path / "all.csv"
    path.write_text("Ticker,Date,Open,High,Low,Close,Volume\n" + "\n".join(lines) + "\n")
    files = Files()

    def asked(symbol: str) -> Wanted:
        usual = wanted(path=str(path), default__currency="USD")
        return replace(usual, symbol=symbol, instrument=symbol)

    for symbol in ("AAA", "BBB"):
        rows = bars_of(files.capture(asked(symbol)))
        assert [(row["instrument"], row["volume"]) for row in rows] == [(symbol, 4), (symbol, 5)]
    with pytest.raises(NoData, match="holds no row of CCC"):
        files.capture(asked("CCC"))


def test_a_bar_with_a_nan_is_left_out_and_counted(tmp_path: Path) -> None:
    capture = captured(tmp_path, CSV.replace("12,9,11", "NaN,9,11"))
    assert [row["session"] for row in bars_of(capture)] == [date(2024, 3, 5)]
    assert capture.notes == ("1 bars without a whole price were left out, the first of 2024-03-04",)


def test_splits_that_the_source_applied_are_undone(tmp_path: Path) -> None:
    # 4-for-1 on 2024-03-06: the source has a quarter of the price and four times the volume.
    text = (
        "date,open,high,low,close,volume\n2024-03-05,25,26,24,25.25,400\n"
        "2024-03-06,25,26,25,26,500\n"
    )
    (tmp_path / "actions.csv").write_text("ex_date,ratio,currency\n2024-03-06,4:1,USD\n")
    capture = captured(
        tmp_path, text, adjusted="splits", actions_path=str(tmp_path / "actions.csv")
    )
    first, second = bars_of(capture)
    assert (first["close"], first["volume"]) == (101.0, 100)
    assert (second["close"], second["volume"]) == (26.0, 500)
    (action,) = capture.rows["actions"].to_pylist()
    assert (action["kind"], action["numerator"], action["denominator"]) == ("split", 4, 1)
    assert action["known_at"] == datetime(2024, 3, 6, 14, 30, tzinfo=UTC)


def test_news_are_dated_to_the_end_of_their_day_and_undated_ones_are_counted(
    tmp_path: Path,
) -> None:
    text = (
        "id,published_at,source,headline\n1,2024-03-04,wire,a date\n"
        "2,2024-03-04T15:00:00Z,wire,an instant\n3,,wire,nothing\n"
    )
    capture = captured(tmp_path, text, "news")
    rows = {row["id"]: row["known_at"] for row in capture.rows["news"].to_pylist()}
    assert rows == {
        "1": datetime(2024, 3, 5, 4, 59, 59, 999999, tzinfo=UTC),
        "2": datetime(2024, 3, 4, 15, tzinfo=UTC),
    }
    assert capture.dropped_undated == 1


def test_a_time_without_a_zone_needs_one_that_is_named(tmp_path: Path) -> None:
    text = "id,published_at,source,headline\n1,2024-03-04 10:00,wire,a\n"
    with pytest.raises(BadResponse, match=r"row 1, column known_at: .* names no zone"):
        captured(tmp_path, text, "news")
    (row,) = captured(tmp_path, text, "news", zone="America/New_York").rows["news"].to_pylist()
    assert row["known_at"] == datetime(2024, 3, 4, 15, tzinfo=UTC)


def test_statements_are_known_from_their_acceptance(tmp_path: Path) -> None:
    text = (
        "statement,item,period_end,period_months,filed,accepted,form,value,unit\n"
        "income,eps_diluted,2018-06-30,3,2018-08-01,2018-08-01T16:31:48.000Z,10-Q,2.34,USD/shares\n"
        "income,eps_diluted,2018-03-31,3,2018-05-02,,10-Q,2.73,USD/shares\n"
    )
    rows = captured(tmp_path, text, "statements").rows["statements"].to_pylist()
    # The later of the two readings; without a time the end of the filing day in New York.
    assert [row["known_at"] for row in rows] == [
        datetime(2018, 8, 1, 20, 31, 48, tzinfo=UTC),
        datetime(2018, 5, 3, 3, 59, 59, 999999, tzinfo=UTC),
    ]
    assert [row["derived"] for row in rows] == [False, False]


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        (CSV, {"column__close": "Zu"}, "has no column 'Zu'"),
        (CSV.replace("Close", "Last"), {}, "has no column close: name it"),
        (CSV.replace("11,100", "eleven,100"), {}, "column close"),
        (CSV.replace("2024-03-04", "03/04/24"), {}, "row 1, column session: '03/04/24'"),
    ],
)
def test_what_cannot_be_read_is_named(
    tmp_path: Path, text: str, options: dict[str, str], words: str
) -> None:
    with pytest.raises(BadResponse, match=words):
        captured(tmp_path, text, **options)


def test_a_currency_is_never_guessed(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(CSV)
    with pytest.raises(BadResponse, match="in which currency AAA is quoted"):
        Files().capture(wanted(path=str(path), symbol="AAA"))


def test_a_file_that_does_not_say_whose_rows_it_holds_is_not_taken(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(CSV)
    with pytest.raises(BadResponse, match="does not say whose rows it holds"):
        Files().capture(wanted(path=str(path), default__currency="USD"))
    for name in ("AAA", "BBB"):
        (tmp_path / f"{name}.csv").write_text(CSV)
    pattern = str(tmp_path / "{symbol}.csv")
    capture = Files().capture(wanted(path=pattern, default__currency="USD"))
    assert len(bars_of(capture)) == 2


def test_a_missing_file_of_one_symbol_is_no_data_and_one_of_all_an_error(tmp_path: Path) -> None:
    with pytest.raises(NoData, match="there is no file"):
        Files().capture(wanted(path=str(tmp_path / "{symbol}.csv")))
    with pytest.raises(BadResponse, match="there is no file"):
        Files().capture(wanted(path=str(tmp_path / "none.csv")))


def test_rows_without_an_id_are_named_by_what_they_hold(tmp_path: Path) -> None:
    text = "known_at,source,title\n2024-03-04,wire,one\n2024-03-05,wire,two\n"
    ids = captured(tmp_path, text, "news").rows["news"].column("id").to_pylist()
    assert len(set(ids)) == 2
    again = captured(tmp_path, text, "news").rows["news"].column("id").to_pylist()
    assert again == ids
    # Two equal trades of one day are two.
    trades = "known_at,transaction_date,insider,code,shares\n" + 2 * "2024-03-06,2024-03-04,A,P,5\n"
    ids = captured(tmp_path, trades, "insider").rows["insider"].column("id").to_pylist()
    assert ids[1] == f"{ids[0]}-2"


def test_an_unknown_option_is_an_error() -> None:
    with pytest.raises(UsageError, match="has no option 'colum'"):
        Files().capture(wanted(path="x", colum="y"))


# -------------------------------------------------------------------------------------- shapes


def shaped(tmp_path: Path, document: Any, table: str, shape: str) -> Capture:
    path = tmp_path / "answer.json"
    path.write_text(json.dumps(document))
    return Files().capture(wanted(table, path=str(path), shape=shape))


def test_news_of_polygon(tmp_path: Path) -> None:
    document = {
        "results": [
            {
                "id": "p1",
                "publisher": {"name": "Wire"},
                "title": "AAA grows",
                "published_utc": "2024-03-04T18:33:53Z",
                "article_url": "https://example.test/1",
                "tickers": ["AAA", "ZZZ"],
                "description": "text",
            },
            {"id": "p2", "title": "other", "tickers": ["ZZZ"], "published_utc": "2024-03-04"},
            {"id": "p3", "title": "undated", "tickers": ["AAA"]},
        ]
    }
    capture = shaped(tmp_path, document, "news", "polygon_news")
    (row,) = capture.rows["news"].to_pylist()
    assert row == {
        "instrument": "AAA",
        "id": "p1",
        "known_at": datetime(2024, 3, 4, 18, 33, 53, tzinfo=UTC),
        "known_at_basis": "published",
        "source": "Wire",
        "title": "AAA grows",
        "summary": "text",
        "url": "https://example.test/1",
    }
    assert capture.dropped_undated == 1


def test_of_news_of_finnhub_the_epoch_counts_and_a_text_that_disagrees_is_flagged(
    tmp_path: Path,
) -> None:
    row = {"headline": "h", "id": 7, "related": "AAA", "source": "S", "summary": "", "url": "u"}
    document = [
        {**row, "datetime": 1709577233, "published_at": "2024-03-04 13:33:53"},
        {**row, "id": 8, "datetime": 1709577233, "published_at": "2024-03-04 18:33:53"},
    ]
    capture = shaped(tmp_path, document, "news", "finnhub_news")
    stamps = [item["known_at"] for item in capture.rows["news"].to_pylist()]
    assert stamps == [datetime(2024, 3, 4, 18, 33, 53, tzinfo=UTC)] * 2
    assert capture.notes == (
        "the text of the time disagrees with the epoch in 1 rows; the epoch counts",
    )


def test_statements_of_finnhub(tmp_path: Path) -> None:
    line = {"label": "EPS", "concept": "us-gaap_EarningsPerShareDiluted", "value": 2.34}
    report = {
        "accessNumber": "0000320193-18-000100",
        "symbol": "AAA",
        "form": "10-Q",
        "startDate": "2018-04-01 00:00:00",
        "endDate": "2018-06-30 00:00:00",
        "filedDate": "2018-08-01 00:00:00",
        "acceptedDate": "2018-08-01 16:31:48",
        "report": {
            "ic": [{**line, "unit": "usd/shares"}, {"concept": "own_Thing", "value": 1}],
            "bs": [{"concept": "us-gaap_Assets", "value": 349197000000, "unit": "usd"}],
            "cf": [],
        },
    }
    capture = shaped(tmp_path, {"data": [report]}, "statements", "finnhub_statements")
    rows = {row["item"]: row for row in capture.rows["statements"].to_pylist()}
    assert rows["eps_diluted"]["value"] == 2.34
    assert rows["eps_diluted"]["unit"] == "USD/shares"
    assert rows["eps_diluted"]["period_months"] == 3
    assert rows["eps_diluted"]["known_at"] == datetime(2018, 8, 1, 20, 31, 48, tzinfo=UTC)
    assert rows["total_assets"]["period_months"] == 0
    assert rows["total_assets"]["period_start"] is None
    assert "1 lines" in capture.notes[0]


def test_statements_of_polygon(tmp_path: Path) -> None:
    report = {
        "tickers": ["AAA"],
        "timeframe": "quarterly",
        "start_date": "2018-04-01",
        "end_date": "2018-06-30",
        "filing_date": "2018-08-01",
        "financials": {
            "income_statement": {
                "diluted_earnings_per_share": {"value": 2.34, "unit": "USD / shares"},
                "revenues": {"value": 53265000000.0, "unit": "USD"},
            }
        },
    }
    capture = shaped(tmp_path, {"results": [report]}, "statements", "polygon_statements")
    rows = {row["item"]: row for row in capture.rows["statements"].to_pylist()}
    assert (rows["revenue"]["value"], rows["revenue"]["unit"]) == (53265000000.0, "USD")
    assert rows["eps_diluted"]["unit"] == "USD/shares"
    # Date-only: the end of the filing day.
    assert rows["revenue"]["known_at"] == datetime(2018, 8, 2, 3, 59, 59, 999999, tzinfo=UTC)


def test_a_shape_that_the_file_has_not_is_a_bad_response(tmp_path: Path) -> None:
    with pytest.raises(BadResponse, match="holds no list of objects"):
        shaped(tmp_path, {"error": "x"}, "news", "polygon_news")
    with pytest.raises(UsageError, match="polygon_news, finnhub_news"):
        shaped(tmp_path, [], "news", "reuters")


# -- what is no table, or may be two things


def packed(text: str) -> bytes:
    return gzip.compress(text.encode(), mtime=0)


@pytest.mark.parametrize("name", ["rows.csv.gz", "rows.csv"])
def test_a_file_that_is_packed_by_gzip_is_unpacked(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(packed(CSV))
    capture = Files().capture(wanted(path=str(path), symbol="AAA", default__currency="USD"))
    assert bars_of(capture) == bars_of(captured(tmp_path, CSV))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"PK\x03\x04...", "is a ZIP archive or a workbook: unpack it, or save its sheet"),
        (b"\xd0\xcf\x11\xe0...", "is a workbook"),
        (b"BZh9...", "is packed by bzip2"),
        (b"\xfd7zXZ...", "is packed by xz"),
        (b"\x28\xb5\x2f\xfd...", "is packed by Zstandard"),
        (CSV.encode("utf-16"), "is text in UTF-16: save it in UTF-8"),
        (packed(CSV)[:-9], "is no whole gzip file"),
        (packed(CSV) + b"more", "is no whole gzip file"),
        (gzip.compress(b"PK\x03\x04...", mtime=0), "is a ZIP archive"),
        (b"  <html><body>Too many requests</body></html>", "is HTML or XML, not a table"),
        (b'{"results": []}', "is JSON, not a table: name its form"),
        (b"\x80\x04\x95", "is no whole CSV or Parquet file"),
        (b"x" * 200_000, "is no whole CSV or Parquet file"),
    ],
)
def test_a_file_of_another_form_is_told_with_what_to_do(
    tmp_path: Path, data: bytes, words: str
) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(data)
    with pytest.raises(BadFile, match=words) as caught:
        Files().capture(wanted(path=str(path), symbol="AAA", default__currency="USD"))
    assert caught.value.exit_code == 3


def test_a_small_file_that_unpacks_to_a_huge_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_columns, "TABLE_BYTES", 2**21)
    path = tmp_path / "rows.csv.gz"
    path.write_bytes(gzip.compress(b"\n" * 2**25))
    assert path.stat().st_size < 2**17
    with pytest.raises(BadFile, match="unpacks to more than 2 MB"):
        Files().capture(wanted(path=str(path), symbol="AAA"))


@pytest.mark.parametrize(
    "heading", ["date,open,open,high,low,close", "date,Open,open ,high,low,close"]
)
def test_of_two_columns_of_one_name_none_is_guessed(tmp_path: Path, heading: str) -> None:
    with pytest.raises(BadFile, match="has 2 columns that could be open"):
        captured(tmp_path, f"{heading}\n2024-03-04,1,2,3,1,2\n")
    if "Open" in heading:
        (row,) = bars_of(
            captured(tmp_path, f"{heading}\n2024-03-04,1,2,3,1,2\n", column__open="Open")
        )
        assert row["open"] == 1.0


@pytest.mark.parametrize("volume", ["1e30", "9223372036854775808"])
def test_a_volume_that_no_whole_number_holds_is_refused(
    tmp_path: Path, volume: str, recwarn: pytest.WarningsRecorder
) -> None:
    with pytest.raises(BadFile, match="is no number of shares"):
        captured(tmp_path, CSV.replace(",100\n", f",{volume}\n"))
    assert not recwarn.list


# 2024-03-05 00:00 in UTC, the evening of the 4th in New York.
MIDNIGHTS = ["2024-03-05T00:00:00Z", "2024-03-05T00:00:00+00:00", "1709596800", "1709596800000"]


@pytest.mark.parametrize("stamp", MIDNIGHTS)
def test_a_midnight_in_utc_is_no_session_until_somebody_says_whose_day_it_is(
    tmp_path: Path, stamp: str
) -> None:
    # A bar of the 5th that were taken for one of the 4th would be known a day too early.
    text = f"date,open,high,low,close,volume\n{stamp},1,2,1,2,5\n"
    with pytest.raises(BadFile, match=r"2024-03-05 00:00 UTC is the evening of 2024-03-04 in"):
        captured(tmp_path, text)
    (row,) = bars_of(captured(tmp_path, text, zone="UTC"))
    assert row["session"] == date(2024, 3, 5)
    (row,) = bars_of(captured(tmp_path, text, zone="America/New_York"))
    assert row["session"] == date(2024, 3, 4)


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_a_frame_with_midnights_in_utc_is_held_to_the_same_rule(zone: str | None) -> None:
    stamps = pd.to_datetime(["2024-03-04", "2024-03-05"], utc=True)
    frame = pd.DataFrame(
        {"open": 1.0, "high": 2.0, "low": 1.0, "close": 2.0, "volume": 5}, index=stamps
    )
    options = {"symbol": "AAA", "default__currency": "USD"} | ({"zone": zone} if zone else {})
    files = Files(frames={"bars": frame})
    if zone is None:
        with pytest.raises(BadFile, match="2024-03-04 00:00 UTC is the evening of 2024-03-03"):
            files.capture(wanted(**options))
        return
    assert [row["session"] for row in bars_of(files.capture(wanted(**options)))] == [
        date(2024, 3, 4),
        date(2024, 3, 5),
    ]


def test_news_whose_stamps_are_all_midnights_in_utc_are_dated_to_the_end_of_their_day(
    tmp_path: Path,
) -> None:
    head = "published,source,title\n"
    dates = "2024-03-04T00:00:00Z,A,one\n2024-03-05T00:00:00Z,A,two\n"
    found = captured(tmp_path, head + dates, table="news").rows["news"].to_pylist()
    # The end of the 4th and the 5th in New York, five hours behind.
    assert [row["known_at"] for row in found] == [
        datetime(2024, 3, 5, 4, 59, 59, 999999, tzinfo=UTC),
        datetime(2024, 3, 6, 4, 59, 59, 999999, tzinfo=UTC),
    ]
    among = dates + "2024-03-05T13:30:00Z,A,three\n"
    found = captured(tmp_path, head + among, table="news").rows["news"].to_pylist()
    assert found[0]["known_at"] == datetime(2024, 3, 4, tzinfo=UTC)


def test_ticks_of_a_market_at_midnight_are_ticks(tmp_path: Path) -> None:
    text = "market,known_at,question,outcome,probability\nAAA,2024-03-04T00:00:00Z,q,Yes,0.5\n"
    (row,) = (
        captured(tmp_path, text, table="prediction_markets").rows["prediction_markets"].to_pylist()
    )
    assert row["known_at"] == datetime(2024, 3, 4, tzinfo=UTC)


def test_a_zone_that_there_is_not_is_a_wrong_option(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"files.bars.zone: 'Mars/Base' is no time zone"):
        captured(tmp_path, CSV, zone="Mars/Base")


def test_a_name_with_another_brace_is_of_one_file_and_that_is_not_there(tmp_path: Path) -> None:
    # Taken for one of many, it would be stored as news that nobody has.
    with pytest.raises(BadFile, match=r"there is no file .*\{sym\}.csv"):
        Files().capture(wanted("news", path=str(tmp_path / "{sym}.csv")))
