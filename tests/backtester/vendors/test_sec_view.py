"""From the SEC's own pages through a snapshot and a view to what a tool prints.

The bars are few, and the figures are Apple's.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, time
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from backtester.calendar import calendar_by_code
from backtester.records import ReadRecord
from backtester.schema import TABLES
from backtester.snapshots.snapshot import Snapshot
from backtester.snapshots.view import AsOfView
from backtester.vendors.sec_filings import Filing, known_at_filing
from backtester.vendors.sec_insider import trades_of
from tests.backtester.vendors.test_sec import ownership, trade
from tests.support.sec_pages import APPLE_FILINGS, apple_rows
from tests.support.snapshots import closes, make_snapshot, split
from tradingagents_core.errors import LookaheadError
from tradingagents_core.tools import run_tool

NEW_YORK = calendar_by_code("XNYS")
START, END = date(2018, 4, 2), date(2018, 12, 28)
CLOSES = {"2018-06-29": 185.11, "2018-08-01": 201.50, "2018-08-02": 207.39}


def snapshot(
    statements: pa.Table | None = None, *, undated: bool = False, **tables: pa.Table
) -> Snapshot:
    days = [str(day) for day in NEW_YORK.sessions(START, END)]
    bars = {"AAPL": closes([(day, CLOSES.get(day, 170.0)) for day in days])}
    if statements is not None:
        tables["statements"] = statements
    more: Any = {"undated": undated, **tables}
    return make_snapshot(bars, **more)


def view(
    held: Snapshot, day: str, reads: list[ReadRecord] | None = None, at: str = "close"
) -> AsOfView:
    session = date.fromisoformat(day)
    cutoff = NEW_YORK.close_utc(session) if at == "close" else NEW_YORK.open_utc(session)
    return AsOfView(
        held,
        cutoff=cutoff,
        session=session,
        decision_time="close" if at == "close" else "open",
        on_read=(reads if reads is not None else []).append,
    )


def ask(held: Snapshot, day: str, tool: str, arguments: str = '{"ticker": "AAPL"}') -> str:
    return run_tool(view(held, day), tool, arguments).text


def newest_eps(held: Snapshot, day: str) -> str:
    text = ask(held, day, "get_income_statement")
    line = next(line for line in text.splitlines() if line.startswith("eps_diluted"))
    return line.split(",")[1]


@pytest.fixture(scope="module")
def apple() -> Snapshot:
    return snapshot(apple_rows())


def test_the_third_quarter_is_absent_at_the_close_before_its_filing_and_there_at_the_next(
    apple: Snapshot,
) -> None:
    assert newest_eps(apple, "2018-08-01") == "2.73"
    assert newest_eps(apple, "2018-08-02") == "2.34"


def test_a_decision_at_the_open_sees_what_was_filed_the_evening_before(apple: Snapshot) -> None:
    seen = run_tool(
        view(apple, "2018-08-02", at="open"), "get_income_statement", '{"ticker": "AAPL"}'
    )
    assert "2018-06-30" in seen.text


def test_the_value_of_the_past_is_rebuilt_from_what_was_on_file(apple: Snapshot) -> None:
    lines = ask(apple, "2018-06-29", "get_fundamentals").splitlines()
    assert (
        "market_cap: 909841195180 USD (close 185.11 of 2018-06-29 x 4915138000 shares as of "
        "2018-04-20; 10-Q, public since 2018-05-02 20:32 UTC)"
    ) in lines
    assert (
        "trailing_eps: 10.36 USD a share (quarters to 2017-07-01 1.67, 2017-09-30 2.07, "
        "2017-12-30 3.89, 2018-03-31 2.73; newest: 10-Q, public since 2018-05-02 20:32 UTC)"
    ) in lines
    assert "trailing_pe: 17.868" in lines


def test_before_the_filing_the_count_of_the_quarter_before_is_the_newest(apple: Snapshot) -> None:
    assert "x 5074013000 shares as of 2018-01-19;" in ask(apple, "2018-05-01", "get_fundamentals")
    # On the day of the filing it came out after the close.
    assert "x 5074013000 shares as of 2018-01-19;" in ask(apple, "2018-05-02", "get_fundamentals")
    assert "x 4915138000 shares as of 2018-04-20;" in ask(apple, "2018-05-03", "get_fundamentals")


def test_a_later_split_changes_neither_price_nor_value_before_it(apple: Snapshot) -> None:
    days = [str(day) for day in NEW_YORK.sessions(START, END)]
    bars = {"AAPL": closes([(day, CLOSES.get(day, 170.0)) for day in days])}
    held = make_snapshot(bars, actions=[split("AAPL", "2018-09-04", 4)], statements=apple_rows())
    assert ask(held, "2018-06-29", "get_fundamentals") == ask(
        apple, "2018-06-29", "get_fundamentals"
    )
    # After it the close of 170 belongs to four times the shares filed in August.
    after = ask(held, "2018-09-04", "get_fundamentals")
    assert "x 4829926000 shares as of 2018-07-20, 19319704000 after later splits;" in after
    assert "market_cap: 3284349680000 USD" in after


@pytest.mark.parametrize(
    "arguments",
    [
        '{"ticker": "AAPL"}',
        '{"ticker": "AAPL", "curr_date": "2018-12-31"}',
        '{"ticker": "AAPL", "curr_date": "2035-01-01", "freq": "quarterly"}',
        '{"ticker": "AAPL", "curr_date": null}',
    ],
)
@pytest.mark.parametrize("tool", ["get_income_statement", "get_fundamentals"])
def test_no_argument_moves_the_simulated_date(apple: Snapshot, tool: str, arguments: str) -> None:
    text = ask(apple, "2018-06-29", tool, arguments)
    assert "2018-03-31" in text
    assert "2018-06-30" not in text
    assert "2.34" not in text


def test_a_restated_old_year_does_not_replace_the_newest_quarter() -> None:
    # Filed in August, first the old quarter and then the new one, whatever the order of rows.
    held = snapshot(apple_rows().take(pa.array(range(apple_rows().num_rows - 1, -1, -1))))
    text = ask(held, "2018-08-02", "get_income_statement")
    line = next(line for line in text.splitlines() if line.startswith("eps_diluted"))
    assert line.split(",")[1:] == ["2.34", "2.73", "3.89", "2.07", "1.67", "2.10"]


def test_reads_of_statements_are_logged_with_their_newest_instant(apple: Snapshot) -> None:
    reads: list[ReadRecord] = []
    run_tool(view(apple, "2018-08-01", reads), "get_fundamentals", '{"ticker": "AAPL"}')
    (read,) = [read for read in reads if read.table == "statements"]
    assert read.max_known_at == datetime(2018, 5, 2, 20, 32, 12, tzinfo=UTC)
    assert [read.rows for read in reads if read.table == "actions"] == [0]


# -- what each rule is for: without it, the same pages show the future


def by_period_end(table: pa.Table) -> pa.Table:
    """Date each row by its period, as a capture without filing dates would."""
    days: list[Any] = table.column("period_end").to_pylist()
    ends = [datetime.combine(day, time(0), UTC) for day in days]
    index = table.schema.get_field_index("known_at")
    kind = TABLES["statements"].arrow.field("known_at").type
    return table.set_column(index, "known_at", pa.array(ends, kind))


def test_dated_by_its_period_a_statement_would_be_seen_weeks_too_early(apple: Snapshot) -> None:
    early = snapshot(by_period_end(apple_rows()))
    assert newest_eps(early, "2018-07-02") == "2.34"
    assert newest_eps(apple, "2018-07-02") == "2.73"


def test_dated_by_the_sec_at_its_word_a_statement_would_be_seen_a_day_too_early() -> None:
    rows = apple_rows().to_pylist()
    accepted = {number: datetime.fromisoformat(text) for number, _, _, text in APPLE_FILINGS}
    for row in rows:
        row["known_at"] = accepted[row["accession"]]
    early = snapshot(pa.Table.from_pylist(rows, schema=TABLES["statements"].arrow))
    assert newest_eps(early, "2018-08-01") == "2.34"


def test_a_statement_without_a_date_ends_the_run() -> None:
    rows = apple_rows().to_pylist()
    for row in rows:
        row["known_at"] = None
    table = pa.Table.from_pylist(rows, schema=TABLES["statements"].arrow)
    undated = snapshot(table, undated=True)
    held = view(undated, "2018-06-29")
    assert held.rows("statements", "AAPL") == ()
    held._visible_end = lambda known_at: len(known_at)  # type: ignore[method-assign]
    with pytest.raises(LookaheadError):
        held.rows("statements", "AAPL")


def insiders(known_at: Sequence[datetime] | None = None) -> Snapshot:
    filed = date(2018, 6, 5)
    filing = Filing(
        accession="0000320193-18-000090",
        form="4",
        filed=filed,
        known_at=known_at_filing("2018-06-05T18:30:35.000Z", filed),
    )
    rows = list(trades_of(ownership(trade()), filing, instrument="AAPL").rows)
    for row, instant in zip(rows, known_at or (), strict=False):
        row["known_at"] = instant
    return snapshot(insider=pa.Table.from_pylist(rows, schema=TABLES["insider"].arrow))


def test_a_trade_of_an_insider_is_absent_until_its_filing() -> None:
    # Traded on the first of June; accepted on the fifth, after the close.
    held = insiders()
    for day in ("2018-06-01", "2018-06-04", "2018-06-05"):
        assert "none is on record" in ask(held, day, "get_insider_transactions")
    assert "LEVINSON" in ask(held, "2018-06-06", "get_insider_transactions")


def test_dated_by_its_day_a_trade_would_be_seen_before_its_filing() -> None:
    early = insiders([datetime(2018, 6, 1, tzinfo=UTC)])
    assert "LEVINSON" in ask(early, "2018-06-01", "get_insider_transactions")


@pytest.mark.parametrize("day", ["2018-06-29", "2018-08-01", "2018-08-02", "2018-11-02"])
def test_a_snapshot_that_ends_at_the_cutoff_shows_the_same(apple: Snapshot, day: str) -> None:
    cutoff = NEW_YORK.close_utc(date.fromisoformat(day))
    whole = apple_rows()
    cut = whole.filter(pc.less_equal(whole.column("known_at"), pa.scalar(cutoff)))
    assert cut.num_rows < whole.num_rows
    for tool in ("get_fundamentals", "get_income_statement"):
        assert ask(snapshot(cut), day, tool) == ask(apple, day, tool)
