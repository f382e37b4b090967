"""Whole books by hand: decisions go in by the command line, orders and equity come out of SQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from backtester.cli import run as command
from backtester.snapshots.snapshot import write_snapshot
from tests.support.results import rows_of
from tests.support.snapshots import dividend, make_instrument, make_tables, sessions_of, split
from tests.support.workspaces import CAPTURED, INVENTED

pytestmark = pytest.mark.slow

NEAR = 1e-9
D = [day.isoformat() for day in sessions_of("AAA", "2019-03-04", 10)]


def _bars() -> dict[str, list[Any]]:
    """Opens and closes that differ on every session, so that no price stands in for another."""
    rows: dict[str, list[Any]] = {name: [] for name in ("AAA", "SPL", "DIV", "DEL", "MIS", "JON")}
    for at, day in enumerate(D):

        def bar(name: str, opened: float, close: float, day: str = day) -> None:
            high, low = max(opened, close), min(opened, close)
            rows[name].append((day, opened, high, low, close, 1_000))

        bar("AAA", 100.0 + at, 110.0 - at)
        parts = 1.0 if at < 2 else 4.0
        bar("SPL", (200.0 + at) / parts, (200.0 + 2 * at) / parts)
        bar("DIV", 50.0 + at / 2, 50.0 - at / 4)
        if at <= 3:
            bar("DEL", 20.0 - at, 20.0 - 2 * at)
        if at != 2:
            bar("MIS", 30.0 + at, 31.0 + at)
        if at >= 3:
            bar("JON", 10.0, 10.0 + at)
    return rows


@dataclass(frozen=True, kw_only=True)
class Bench:
    """A folder with the snapshot in it, and one of runs."""

    place: Path

    def book(self, name: str, decisions: Sequence[tuple[str, str, str]], *words: str) -> Book:
        """Import decisions and score them as the words say."""
        source = self.place / f"{name}.csv"
        lines = ["ticker,date,rating", *(",".join(row) for row in decisions)]
        source.write_text("\n".join(lines) + "\n")
        folders = [f"--data-dir={self.place / 'data'}", f"--reports-dir={self.place / 'reports'}"]
        asked = ["--snapshot", "hand", "--benchmark", "none", "--horizon", "3", "--name", name]
        assert command(["import", str(source), *asked, *folders]) == 0
        assert command(["score", "latest", "--placebo", "0", *words, *folders]) == 0
        database = self.place / "reports" / "results.duckdb"
        (score,) = rows_of(
            database,
            f"SELECT run_id, score_id FROM scores WHERE run_id LIKE '{name}-%' "
            "AND score_id <> 'default'",
        )
        return Book(
            database=database,
            which=f"run_id = '{score['run_id']}' AND score_id = '{score['score_id']}'",
        )


@dataclass(frozen=True, kw_only=True)
class Book:
    """One stored score."""

    database: Path
    which: str

    def rows(self, table: str, more: str = "true") -> list[dict[str, Any]]:
        """Return the rows of a table."""
        return rows_of(self.database, f"SELECT * FROM {table} WHERE {self.which} AND {more}")

    def orders(self) -> dict[tuple[str, str], dict[str, Any]]:
        """Return the book's orders by ticker and decision session."""
        found = self.rows("orders", "book = 'ratings' ORDER BY seq")
        return {(row["ticker"], row["session"].isoformat()): row for row in found}

    def equity(self) -> dict[str, dict[str, Any]]:
        """Return the book's equity rows by session."""
        found = self.rows("equity", "book = 'ratings' ORDER BY session")
        return {row["session"].isoformat(): row for row in found}

    def shares(self, ticker: str, session: str) -> float:
        """Return what is held at the end of a session."""
        (row,) = self.rows("positions", f"ticker = '{ticker}' AND session = '{session}'")
        found: float = row["shares"]
        return found

    def figures(self, book: str = "ratings") -> Mapping[str, float]:
        """Return the figures of a book."""
        found = self.rows("metrics", f"subject = '{book}' AND scope = 'all'")
        return {row["metric"]: row["value"] for row in found}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    place = tmp_path_factory.mktemp("hand")
    tables = make_tables(
        _bars(),
        actions=[
            split("SPL", D[2], 4),
            dividend("SPL", D[3], 0.5),
            dividend("DIV", D[2], 1.5),
        ],
        instruments=[
            make_instrument("DEL", last_session=D[3]),
            make_instrument("JON", first_session=D[3]),
        ],
    )
    write_snapshot(
        place / "data" / "snapshots" / "hand",
        tables,
        name="hand",
        declared_start=tables["bars"].column("session").to_pylist()[0],
        declared_end=max(tables["bars"].column("session").to_pylist()),
        sources=(INVENTED,),
        absent={},
        captured_at=CAPTURED,
    )
    return Bench(place=place)


FREE = ("--commission-bps", "0", "--slippage-bps", "0")


def test_costs_a_split_dividends_a_delisting_a_rejection_and_a_hold_in_one_book(
    bench: Bench,
) -> None:
    """Five slots of 1,000, filled at the next open; 20 bps of slippage, 10 bps of commission."""
    book = bench.book(
        "whole",
        [
            *((ticker, D[0], "Buy") for ticker in ("AAA", "SPL", "DIV", "DEL")),
            ("MIS", D[1], "Buy"),
            ("DEL", D[1], "Hold"),
            ("AAA", D[2], "Hold"),
            ("SPL", D[3], "Hold"),
            ("AAA", D[4], "Sell"),
        ],
        *("--start-cash", "5000", "--slots", "5", "--haircut", "0.3"),
        *("--commission-bps", "10", "--slippage-bps", "20"),
    )

    # Opens of the second session: 101, 201, 50.50 and 19.
    paid = {"AAA": 101.0, "SPL": 201.0, "DIV": 50.5, "DEL": 19.0}
    held = {ticker: 1_000 / (price * 1.002 * 1.001) for ticker, price in paid.items()}
    orders = book.orders()
    for ticker, shares in held.items():
        order = orders[ticker, D[0]]
        assert (order["side"], order["status"], order["fill_session"].isoformat()) == (
            ("buy", "filled", D[1])
        )
        assert order["price"] == pytest.approx(paid[ticker] * 1.002, abs=NEAR)
        assert order["shares"] == pytest.approx(shares, abs=NEAR)
        assert order["commission"] == pytest.approx(shares * order["price"] * 0.001, abs=NEAR)
    refused = orders["MIS", D[1]]
    assert (refused["status"], refused["reason"], refused["price"], refused["shares"]) == (
        ("rejected", "missing_bar", None, 0.0)
    )
    # It is carried through its Hold, and sold at the sixth session's open of 105.
    assert ("AAA", D[2]) not in orders
    sold = orders["AAA", D[4]]
    assert (sold["side"], sold["fill_session"].isoformat()) == ("sell", D[5])
    assert sold["price"] == pytest.approx(105 * 0.998, abs=NEAR)
    proceeds = held["AAA"] * 105 * 0.998 * 0.999
    # Gone after the fourth session: out at its close of 14, less three tenths.
    gone = orders["DEL", D[3]]
    assert (gone["price"], gone["commission"]) == (pytest.approx(9.8, abs=NEAR), 0.0)
    assert (gone["fill_session"].isoformat(), gone["flags"]) == (D[4], ["delisted", "haircut"])

    assert book.shares("SPL", D[1]) == pytest.approx(held["SPL"], abs=NEAR)
    assert book.shares("SPL", D[2]) == pytest.approx(4 * held["SPL"], abs=NEAR)
    # A split share is a quarter of 200, 202, ...; half a dollar on each of four, from D[3] on.
    spl = {at: held["SPL"] * (200 + 2 * at + (2.0 if at >= 3 else 0.0)) for at in range(1, 8)}
    div = {at: held["DIV"] * (50 - at / 4 + (1.5 if at >= 2 else 0.0)) for at in range(1, 8)}
    aaa = {at: held["AAA"] * (110 - at) if at < 5 else proceeds for at in range(1, 8)}
    gone_for = {at: held["DEL"] * ((20 - 2 * at) if at < 4 else 9.8) for at in range(1, 8)}
    equity = book.equity()
    assert list(equity) == D[:8]  # three sessions after the last decision
    assert equity[D[0]]["equity"] == 5_000.0
    for at in range(1, 8):
        wanted = 1_000 + aaa[at] + spl[at] + div[at] + gone_for[at]
        assert equity[D[at]]["equity"] == pytest.approx(wanted, abs=NEAR), at
        assert equity[D[at]]["cash"] + equity[D[at]]["positions_value"] == pytest.approx(
            equity[D[at]]["equity"], abs=NEAR
        )
    assert equity[D[2]]["dividends"] == pytest.approx(1.5 * held["DIV"], abs=NEAR)
    assert equity[D[3]]["dividends"] == pytest.approx(2.0 * held["SPL"], abs=NEAR)
    assert equity[D[4]]["ret"] == pytest.approx(
        equity[D[4]]["equity"] / equity[D[3]]["equity"] - 1, abs=NEAR
    )

    # Bought at the third open of 18 the same share has a shorter window, and the same loss.
    (row,) = book.rows("returns", f"ticker = 'DEL' AND session = '{D[1]}'")
    assert row["status"] == "delisted"
    assert row["raw_total"] == pytest.approx(9.8 / 18 - 1, abs=NEAR)

    figures = book.figures()
    last = 1_000 + aaa[7] + spl[7] + div[7] + gone_for[7]
    assert figures["total_return"] == pytest.approx(last / 5_000 - 1, abs=NEAR)
    bought = sum(held[ticker] * paid[ticker] for ticker in held)
    assert figures["commission"] == pytest.approx(
        (bought * 1.002 + held["AAA"] * 105 * 0.998) * 0.001, abs=NEAR
    )
    assert figures["slippage"] == pytest.approx((bought + held["AAA"] * 105) * 0.002, abs=NEAR)
    assert (figures["orders_filled"], figures["orders_rejected"]) == (6.0, 1.0)


def test_a_dividend_while_short_is_owed_and_so_is_what_the_shares_were_borrowed_for(
    bench: Bench,
) -> None:
    book = bench.book(
        "short",
        [("DIV", D[0], "Sell")],
        *("--policy", "long_short", "--start-cash", "1000", "--borrow-bps-year", "365", *FREE),
    )

    # 1,000 / 50.50 are owed. 3.65 % a year are a ten-thousandth of their value a day.
    owed = 1_000 / 50.5
    assert book.orders()["DIV", D[0]]["side"] == "short"
    assert book.shares("DIV", D[1]) == pytest.approx(-owed, abs=NEAR)
    cash = 2_000 - owed * 49.75 * 0.0001
    equity = book.equity()
    assert equity[D[1]]["cash"] == pytest.approx(cash, abs=NEAR)
    cash -= owed * 1.5 + owed * 49.5 * 0.0001
    assert equity[D[2]]["cash"] == pytest.approx(cash, abs=NEAR)
    assert equity[D[2]]["dividends"] == pytest.approx(-1.5 * owed, abs=NEAR)
    assert equity[D[2]]["borrow"] == pytest.approx(owed * 49.5 * 0.0001, abs=NEAR)
    assert equity[D[2]]["equity"] == pytest.approx(cash - owed * 49.5, abs=NEAR)


def test_where_a_second_ticker_is_listed_the_slots_become_two(bench: Bench) -> None:
    book = bench.book(
        "slots",
        [("AAA", D[0], "Buy"), ("AAA", D[2], "Buy"), ("JON", D[3], "Buy"), ("AAA", D[4], "Buy")],
        *("--start-cash", "1000", *FREE),
    )

    # One slot at 101: all of it. Two from the fourth session on: half is sold at its open of 103.
    held = 1_000 / 101
    orders = book.orders()
    assert orders["AAA", D[0]]["shares"] == pytest.approx(held, abs=NEAR)
    assert (orders["AAA", D[2]]["side"], orders["AAA", D[2]]["shares"]) == (
        ("sell", pytest.approx(held / 2, abs=NEAR))
    )
    # At the fifth open the equity is held / 2 * (104 + 103); its half is more than the cash.
    cash = held / 2 * 103
    joined = orders["JON", D[3]]
    assert joined["asked"] == pytest.approx(held / 4 * 207, abs=NEAR)
    assert (joined["status"], joined["reason"]) == ("partial", "cash")
    assert joined["shares"] == pytest.approx(cash / 10, abs=NEAR)
    # A Buy of two slots stands at two slots: no order.
    assert ("AAA", D[4]) not in orders
    assert book.equity()[D[4]]["equity"] == pytest.approx(held / 2 * 106 + cash / 10 * 14, abs=NEAR)
    held_to_the_end = book.figures("buy_and_hold")["total_return"]
    # Likewise bought, but never cut: nothing is left for the second.
    assert held_to_the_end == pytest.approx(held * 103 / 1_000 - 1, abs=NEAR)
