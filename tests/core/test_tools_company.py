"""Statements, ratios and trades of insiders, as the tools print them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.fixed_view import FACEBOOK, FixedView, bars_of
from tradingagents_core.errors import DataUnavailable
from tradingagents_core.protocols import Identity, Row
from tradingagents_core.statements import ITEMS, books_of, total
from tradingagents_core.tools import TOOLS, run_tool

SESSION = date(2018, 6, 29)
YEAR_OF_DAYS = [str(day) for day in np.arange("2017-10-01", "2018-06-30", dtype="datetime64[D]")]


def filed(
    statement: str,
    item: str,
    end: str,
    value: float,
    known: str,
    *,
    months: int = 0,
    unit: str = "USD",
    form: str = "10-Q",
    basis: str = "published",
    derived: bool = False,
    tag: str | None = None,
    accession: str | None = "0000000001-18-000001",
) -> Row:
    """Make a row of ``statements``."""
    last = date.fromisoformat(end)
    return Row(
        known_at=datetime.fromisoformat(known).replace(tzinfo=UTC),
        fields={
            "instrument": "META",
            "statement": statement,
            "item": item,
            "period_start": last - timedelta(days=30 * months) if months else None,
            "period_end": last,
            "period_months": months,
            "known_at_basis": basis,
            "form": form,
            "accession": accession,
            "tag": tag,
            "derived": derived,
            "value": float(value),
            "unit": unit,
        },
    )


def quarter(item: str, end: str, value: float, known: str, **more: Any) -> Row:
    unit = "USD/shares" if item.startswith("eps") else "USD"
    return filed("income", item, end, value, known, **{"months": 3, "unit": unit, **more})


def shares(count: float, day: str, known: str, **more: Any) -> Row:
    return filed("cover", "shares_outstanding", day, count, known, unit="shares", **more)


def split(ex_session: str, numerator: int, denominator: int = 1) -> Row:
    day = date.fromisoformat(ex_session)
    return Row(
        known_at=datetime(day.year, day.month, day.day, 13, 30, tzinfo=UTC),
        fields={
            "instrument": "META",
            "ex_session": day,
            "kind": "split",
            "numerator": numerator,
            "denominator": denominator,
            "amount": None,
            "currency": "USD",
        },
    )


def dividend(ex_session: str, amount: float, currency: str = "USD") -> Row:
    row = split(ex_session, 1)
    return replace(
        row,
        fields={
            **row.fields,
            "kind": "dividend",
            "numerator": None,
            "denominator": None,
            "amount": amount,
            "currency": currency,
        },
    )


@dataclass
class Books(FixedView):
    """A view with further tables; like every view it gives what was public by its cutoff."""

    tables: Mapping[str, Sequence[Row]] = field(default_factory=dict)
    lag: bool = False

    def require(self, table: str, symbol: str | None = None) -> None:
        if table not in self.tables:
            raise DataUnavailable(f"the snapshot has no table {table}: it was not asked for")

    def rows(
        self,
        table: str,
        symbol: str | None = None,
        *,
        start: date | None = None,
        end: date | None = None,
        last: int | None = None,
    ) -> tuple[Row, ...]:
        return tuple(row for row in self._public(table, end) if self.lag or not guessed(row))

    def withheld(self, table: str, symbol: str | None = None, *, end: date | None = None) -> int:
        return 0 if self.lag else sum(map(guessed, self._public(table, end)))

    def _public(self, table: str, end: date | None) -> list[Row]:
        found = sorted(self.tables.get(table, ()), key=lambda row: row.known_at)
        return [
            row
            for row in found
            if row.known_at <= self.cutoff and (end is None or row.known_at.date() <= end)
        ]


def guessed(row: Row) -> bool:
    return row.fields.get("known_at_basis") == "estimated"


def books(
    *statements: Row,
    close: float = 185.11,
    days: Sequence[str] = YEAR_OF_DAYS,
    identity: Identity = FACEBOOK,
    actions: Sequence[Row] = (),
    session: date = SESSION,
    lag: bool = False,
    **tables: Sequence[Row],
) -> Books:
    return Books(
        all_bars=bars_of(list(days), [close] * len(days)),
        session=session,
        identity_row=identity,
        lag=lag,
        tables={"statements": statements, "actions": actions, **tables},
    )


def ask(view: FixedView, name: str, **arguments: object) -> str:
    return run_tool(view, name, json.dumps({"ticker": "FB", **arguments})).text


def figure(view: FixedView, name: str, **more: object) -> str:
    lines = ask(view, "get_fundamentals", **more).splitlines()
    return next(line.removeprefix(f"{name}: ") for line in lines if line.startswith(f"{name}: "))


EPS = (
    quarter("eps_diluted", "2017-07-01", 1.67, "2017-08-02T20:31"),
    quarter("eps_diluted", "2017-09-30", 2.07, "2017-11-03T12:01", form="10-K"),
    quarter("eps_diluted", "2017-12-30", 3.89, "2018-02-02T13:01"),
    quarter("eps_diluted", "2018-03-31", 2.73, "2018-05-02T20:32"),
)
COUNTS = (
    shares(5_074_013_000, "2018-01-19", "2018-02-02T13:01"),
    shares(4_915_138_000, "2018-04-20", "2018-05-02T20:32"),
)


# -- value and ratios


def test_value_and_ratios_are_rebuilt_with_the_days_of_their_parts() -> None:
    view = books(*EPS, *COUNTS)
    assert figure(view, "market_cap") == (
        "909841195180 USD (close 185.11 of 2018-06-29 x 4915138000 shares as of 2018-04-20; 10-Q, "
        "public since 2018-05-02 20:32 UTC)"
    )
    assert figure(view, "trailing_eps") == (
        "10.36 USD a share (quarters to 2017-07-01 1.67, 2017-09-30 2.07, 2017-12-30 3.89, "
        "2018-03-31 2.73; newest: 10-Q, public since 2018-05-02 20:32 UTC)"
    )
    assert figure(view, "trailing_pe") == "17.868"


def test_before_the_new_count_was_filed_the_older_one_is_the_newest_known() -> None:
    view = books(*EPS, *COUNTS, session=date(2018, 5, 1))
    assert "x 5074013000 shares as of 2018-01-19;" in figure(view, "market_cap")


def test_a_split_after_the_count_moves_the_count_as_it_moves_the_price() -> None:
    # Apple in June 2014: 861,381,000 shares in April, 7 for 1 on June 9, close 92.93 on June 30.
    view = books(
        shares(861_381_000, "2014-04-11", "2014-04-25T03:59"),
        quarter("eps_diluted", "2014-03-29", 11.62, "2014-04-25T03:59"),
        close=92.93,
        days=["2014-06-27", "2014-06-30"],
        actions=[split("2014-06-09", 7)],
        session=date(2014, 6, 30),
    )
    # 861,381,000 x 7 = 6,029,667,000, and that x 92.93 = 560,336,954,310.
    assert figure(view, "market_cap").startswith(
        "560336954310 USD (close 92.93 of 2014-06-30 x 861381000 shares as of 2014-04-11, "
        "6029667000 after later splits;"
    )


def test_earnings_filed_before_a_split_are_put_on_its_basis_and_later_ones_are_not() -> None:
    view = books(
        *EPS[:3],
        # Filed after the split, so on its basis already.
        quarter("eps_diluted", "2018-03-31", 1.365, "2018-05-02T20:32"),
        close=92.0,
        actions=[split("2018-03-01", 2)],
    )
    # (1.67 + 2.07 + 3.89) / 2 + 1.365 = 5.18
    assert figure(view, "trailing_eps").startswith("5.18 USD a share (quarters to 2017-07-01 0.835")
    assert figure(view, "trailing_pe") == "17.761"


def test_a_price_in_pence_is_worth_a_hundredth() -> None:
    london = replace(FACEBOOK, currency="GBp")
    pounds = [replace(row, fields={**row.fields, "unit": "GBP/shares"}) for row in EPS]
    view = books(
        *pounds,
        shares(1_000, "2018-04-20", "2018-05-02T20:32"),
        close=2072.0,
        identity=london,
        actions=[dividend("2018-03-01", 51.8, "GBp")],
    )
    assert figure(view, "market_cap").startswith("20720 GBP (close 2072.00 of")
    assert figure(view, "trailing_pe") == "2.000"


def test_earnings_in_another_currency_than_the_quote_give_no_ratio() -> None:
    view = books(*EPS, *COUNTS, identity=replace(FACEBOOK, currency="EUR"))
    reason = "withheld, eps_diluted is on file in USD/shares, not in EUR/shares"
    assert figure(view, "trailing_pe") == reason


@pytest.mark.parametrize("form", ["20-F", "40-F", "20-F/A"])
def test_a_count_of_shares_at_home_does_not_value_receipts(form: str) -> None:
    view = books(shares(9_000, "2018-04-20", "2018-05-02T20:32", form=form))
    assert figure(view, "market_cap").startswith(f"withheld, the count on a {form} is of shares")


def test_a_missing_quarter_gives_no_sum() -> None:
    view = books(EPS[0], EPS[2], EPS[3], quarter("eps_diluted", "2017-04-01", 2.1, "2017-05-03"))
    reason = "withheld, eps_diluted is not on file for four quarters in a row"
    assert figure(view, "trailing_eps") == reason
    assert figure(view, "trailing_pe") == reason


def test_a_year_as_new_as_any_quarter_stands_for_four() -> None:
    year = quarter("eps_diluted", "2018-03-31", 11.0, "2018-05-02T20:32", months=12, form="10-K")
    assert figure(books(year), "trailing_eps").startswith("11.00 USD a share (year to 2018-03-31")
    newer = quarter("eps_diluted", "2018-04-30", 2.0, "2018-06-01T20:32")
    assert figure(books(year, newer), "trailing_eps").startswith("withheld, ")


def test_figures_of_long_ago_are_no_figures_of_today() -> None:
    old = [
        quarter("eps_diluted", end, 1.0, "2017-08-02T20:31")
        for end in ("2016-09-30", "2016-12-31", "2017-03-31", "2017-06-30")
    ]
    assert figure(books(*old), "trailing_eps") == (
        "withheld, the newest eps_diluted on file is of 2017-06-30"
    )
    assert figure(books(*EPS, shares(7, "2016-04-20", "2016-05-02")), "market_cap") == (
        "withheld, the newest shares_outstanding on file is of 2016-04-20"
    )


def test_losses_give_no_price_earnings_ratio() -> None:
    losses = [replace(row, fields={**row.fields, "value": -1.0}) for row in EPS]
    assert figure(books(*losses), "trailing_eps").startswith("-4.00 USD a share")
    assert figure(books(*losses), "trailing_pe") == "withheld, the earnings are not above zero"


def test_margins_and_returns_come_from_four_quarters_and_the_newest_balance() -> None:
    ends = ("2017-07-01", "2017-09-30", "2017-12-30", "2018-03-31")
    rows = [
        *(quarter("net_income", end, 10, "2018-05-02T20:32") for end in ends),
        *(quarter("revenue", end, 50, "2018-05-02T20:32") for end in ends),
        filed("balance", "equity", "2018-03-31", 160, "2018-05-02T20:32"),
        filed("balance", "total_liabilities", "2018-03-31", 400, "2018-05-02T20:32"),
        shares(10, "2018-04-20", "2018-05-02T20:32"),
    ]
    view = books(*rows, close=32.0)
    assert figure(view, "profit_margin").startswith("0.2 (4 quarters to 2018-03-31;")
    assert figure(view, "return_on_equity").startswith("0.25 (4 quarters to 2018-03-31;")
    assert figure(view, "debt_to_equity").startswith("2.5 (total liabilities 400 over equity 160")
    assert figure(view, "price_to_book").startswith("2.000 (equity 160 at 2018-03-31")


def test_the_dividend_yield_counts_a_year_of_dividends_on_the_basis_of_the_price() -> None:
    days = [str(day) for day in np.arange("2017-06-01", "2018-06-30", dtype="datetime64[D]")]
    paid = [
        dividend("2017-06-28", 9.0),  # a year and a day before
        dividend("2017-08-10", 2.0),  # before the split: 1.00 a share of now
        split("2017-12-01", 2),
        dividend("2018-05-11", 1.0),
    ]
    view = books(*EPS, close=100.0, days=days, actions=paid)
    assert figure(view, "dividend_yield") == "0.02 (2 dividends in the 365 days to 2018-06-29)"


def test_less_than_a_year_of_data_gives_no_dividend_yield() -> None:
    view = books(*EPS, days=["2018-06-28", "2018-06-29"])
    assert figure(view, "dividend_yield") == "withheld, the data do not cover a year of dividends"


def test_without_a_statement_on_file_every_ratio_is_withheld_with_the_reason() -> None:
    lines = ask(books(*EPS, session=date(2017, 8, 1)), "get_fundamentals").splitlines()
    assert "# Withheld: no statement of FB was on file by 2017-08-01" in lines
    assert [line for line in lines if line.endswith(": withheld")] == [
        f"{name}: withheld"
        for name in (
            "market_cap",
            "trailing_eps",
            "trailing_pe",
            "forward_pe",
            "price_to_book",
            "dividend_yield",
            "profit_margin",
            "return_on_equity",
            "debt_to_equity",
        )
    ]


# -- statements


def cells(text: str, name: str) -> list[str]:
    return next(line for line in text.splitlines() if line.startswith(name)).split(",")[1:]


def test_an_old_year_that_is_restated_replaces_that_year_and_not_the_newest() -> None:
    rows = [
        quarter("revenue", "2016-12-31", 70, "2017-02-01", months=12, form="10-K"),
        quarter("revenue", "2017-12-31", 90, "2018-02-01", months=12, form="10-K"),
        quarter("revenue", "2016-12-31", 75, "2018-03-01", months=12, form="10-K/A"),
    ]
    text = ask(books(*rows), "get_income_statement", freq="annual")
    assert cells(text, "period_end") == ["2017-12-31", "2016-12-31"]
    assert cells(text, "revenue [USD]") == ["90", "75 restated"]
    before = ask(books(*rows, session=date(2018, 2, 28)), "get_income_statement", freq="annual")
    assert cells(before, "revenue [USD]") == ["90", "70"]


def test_a_quarter_is_shown_from_the_day_of_its_filing_and_not_of_its_end() -> None:
    text = ask(books(*EPS, session=date(2018, 5, 1)), "get_income_statement")
    assert cells(text, "period_end") == ["2017-12-30", "2017-09-30", "2017-07-01"]
    assert cells(text, "eps_diluted [USD/shares]") == ["3.89", "2.07", "1.67"]


@pytest.mark.parametrize("asked", [None, "2018-06-29", "2030-01-01", "today"])
def test_no_date_or_a_later_one_shows_what_was_on_file_at_the_simulated_date(
    asked: str | None,
) -> None:
    later = quarter("eps_diluted", "2018-06-30", 2.34, "2018-08-01T20:31")
    arguments = {} if asked is None else {"curr_date": asked}
    text = ask(books(*EPS, later), "get_income_statement", **arguments)
    assert cells(text, "period_end")[0] == "2018-03-31"
    assert "2.34" not in text
    assert ("was cut to it" in text) == (asked == "2030-01-01")


def test_an_earlier_date_shows_what_was_on_file_then() -> None:
    text = ask(books(*EPS), "get_income_statement", curr_date="2018-02-28")
    assert cells(text, "period_end")[0] == "2017-12-30"


def test_a_period_whose_end_another_filing_writes_a_day_off_is_one_period() -> None:
    rows = [
        quarter("revenue", "2010-08-01", 811_208, "2010-08-31"),
        quarter("revenue", "2010-07-31", 811_208, "2012-03-14"),
    ]
    text = ask(books(*rows), "get_income_statement")
    assert cells(text, "period_end") == ["2010-08-01"]
    assert cells(text, "revenue [USD]") == ["811208"]


def test_a_figure_says_that_it_was_worked_out() -> None:
    row = quarter("revenue", "2017-09-30", 52_579, "2017-11-03", derived=True)
    text = ask(books(row), "get_income_statement")
    assert cells(text, "revenue [USD]") == ["52579 derived"]


def test_what_was_filed_counts_before_what_was_worked_out_at_the_same_instant() -> None:
    rows = [
        quarter("revenue", "2017-09-30", 52_579, "2017-11-03", form="10-K"),
        quarter("revenue", "2017-09-30", 52_500, "2017-11-03", form="10-K", derived=True),
    ]
    for order in (rows, rows[::-1]):
        assert cells(ask(books(*order), "get_income_statement"), "revenue [USD]") == ["52579"]


def test_another_name_of_an_item_is_no_restatement() -> None:
    rows = [
        quarter("revenue", "2017-09-30", 50, "2017-11-03", tag="A"),
        quarter("revenue", "2017-09-30", 52, "2018-02-02", tag="B"),
    ]
    assert cells(ask(books(*rows), "get_income_statement"), "revenue [USD]") == ["52"]


def test_years_of_balance_sheets_are_those_at_the_end_of_a_year() -> None:
    rows = [
        quarter("revenue", "2017-09-30", 9, "2017-11-03", months=12, form="10-K"),
        filed("balance", "equity", "2017-09-30", 134, "2017-11-03", form="10-K"),
        filed("balance", "equity", "2018-03-31", 127, "2018-05-02"),
    ]
    view = books(*rows)
    assert cells(ask(view, "get_balance_sheet", freq="annual"), "equity [USD]") == ["134"]
    assert cells(ask(view, "get_balance_sheet"), "equity [USD]") == ["127", "134"]


def test_a_company_that_reports_by_half_years_shows_those() -> None:
    row = quarter("revenue", "2018-03-31", 9, "2018-05-02", months=6)
    assert "half-years, seen on" in ask(books(row), "get_income_statement")


def test_a_long_history_is_cut_to_its_newest_periods() -> None:
    ends = [str(date(2018 - n // 4, 12 - 3 * (n % 4), 28)) for n in range(3, 23)]
    rows = [quarter("revenue", end, 1, "2018-05-02") for end in ends]
    assert cells(ask(books(*rows), "get_income_statement"), "period_end") == ends[:8]


def test_a_statement_that_is_not_on_file_says_so() -> None:
    assert ask(books(*EPS), "get_cashflow") == (
        "DATA_UNAVAILABLE: no quarterly cash-flow statements of FB were on file by 2018-06-29"
    )


def test_words_of_a_vendor_can_forge_no_line_and_no_column() -> None:
    row = filed(
        "income",
        "a\n# seen, 9",
        "2018-03-31",
        1,
        "2018-05-02",
        months=3,
        form="10-Q\nrevenue,1",
        unit="US,D\n",
    )
    lines = ask(books(row), "get_income_statement").splitlines()
    assert len(lines) == 5
    assert lines[-1] == "a # seen; 9 [US;D ],1"
    assert len(lines[-2].split(",")) == 2


@pytest.mark.parametrize("tool", ["get_income_statement", "get_fundamentals"])
def test_what_only_an_estimate_dates_is_withheld_and_counted_unless_it_is_asked_for(
    tool: str,
) -> None:
    rows = [replace(row, fields={**row.fields, "known_at_basis": "estimated"}) for row in EPS]
    reason = (
        "no statement of FB was on file by 2018-06-29; 4 rows of statements are withheld: when "
        "they became public is only estimated"
    )
    assert reason in ask(books(*rows), tool)
    shown = ask(books(*rows, lag=True), tool)
    assert "withheld: when" not in shown
    assert "(estimated)" in shown


@pytest.mark.parametrize("tool", ["get_income_statement", "get_fundamentals"])
def test_beside_what_is_shown_stands_how_much_is_withheld(tool: str) -> None:
    guess = replace(EPS[0], fields={**EPS[0].fields, "known_at_basis": "estimated"})
    note = "# 1 row of statements is withheld: when it became public is only estimated"
    lines = ask(books(*EPS, *COUNTS, guess), tool).splitlines()
    assert note in lines
    assert note not in ask(books(*EPS, *COUNTS), tool)
    # A day of the past has its own count: the row was public, by the estimate, on 2017-08-02.
    early = ask(books(*EPS, *COUNTS, guess, days=[*YEAR_OF_DAYS]), tool, curr_date="2017-08-01")
    assert note not in early


def test_an_index_has_no_statements() -> None:
    view = books(*EPS, identity=replace(FACEBOOK, asset_type="index"))
    assert ask(view, "get_balance_sheet") == (
        "DATA_UNAVAILABLE: FB is of the kind index: no company stands behind it"
    )


# -- the rule itself

FILINGS = st.lists(
    st.tuples(
        st.sampled_from(["2017-03-31", "2017-06-30", "2017-09-30", "2017-12-31"]),
        st.integers(0, 50),
        st.integers(1, 9),
    ),
    max_size=12,
)


@given(FILINGS, st.randoms(use_true_random=False))
def test_each_period_shows_its_newest_filing_in_whatever_order_rows_come(
    filings: list[tuple[str, int, int]], random: Any
) -> None:
    start = datetime(2018, 1, 1, tzinfo=UTC)
    rows = [
        replace(
            quarter("revenue", end, value, "2018-01-01"),
            known_at=start + timedelta(days=day),
        )
        for end, day, value in filings
    ]
    expected: dict[str, int] = {}
    for end, day, _ in filings:
        expected[end] = max(expected.get(end, 0), day)
    random.shuffle(rows)
    found = books_of(rows).series("income", "revenue", 3)
    assert [str(one.period_end) for one in found] == sorted(expected)
    assert [(one.known_at - start).days for one in found] == [expected[e] for e in sorted(expected)]


def test_a_sum_is_exact() -> None:
    found = books_of(EPS).last_four("income", "eps_diluted")
    assert total(found) == 10.36
    assert [one.value for one in found] == [1.67, 2.07, 3.89, 2.73]


def test_each_item_has_one_statement() -> None:
    names = [item for items in ITEMS.values() for item in items]
    assert len(set(names)) == len(names)


# -- insiders


def traded(known: str, number: int = 1, **more: Any) -> Row:
    return Row(
        known_at=datetime.fromisoformat(known).replace(tzinfo=UTC),
        fields={
            "instrument": "META",
            "id": f"0000320193-18-000090:{number}",
            "form": "4",
            "transaction_date": date(2018, 6, 1),
            "known_at_basis": "published",
            "insider": "LEVINSON ARTHUR D",
            "role": "director",
            "code": "S",
            "acquired": False,
            "security": "Common Stock",
            "shares": 30000.0,
            "price": 192.3,
            **more,
        },
    )


def insiders(view: Books, **arguments: object) -> list[str]:
    return ask(view, "get_insider_transactions", **arguments).splitlines()


def test_a_trade_is_shown_from_its_filing_on_and_not_from_its_day() -> None:
    row = traded("2018-06-05T22:30:35")
    # Traded on the first of June, filed after the close of the fifth.
    for session in (date(2018, 6, 1), date(2018, 6, 5)):
        assert insiders(books(insider=[row], session=session)) == [
            f"DATA_UNAVAILABLE: trades by insiders of FB: none is on record up to {session}"
        ]
    assert insiders(books(insider=[row], session=date(2018, 6, 6))) == [
        "# Trades by insiders of FB (Facebook, Inc.), filed 2017-12-05 to 2018-06-06",
        "# seen on 2018-06-06",
        (
            "- filed 2018-06-05 22:30 UTC | traded 2018-06-01 | LEVINSON ARTHUR D (director) | "
            "out, sold | 30000 shares at 192.30 USD"
        ),
    ]


def test_the_newest_filing_comes_first_and_a_long_list_is_cut() -> None:
    rows = [traded(f"2018-06-{day:02}T12:00", day) for day in range(1, 29)]
    rows += [traded("2018-05-01T12:00", number) for number in range(5)]
    lines = insiders(books(insider=rows))
    assert lines[2] == "# Only the newest 30 of 33 trades are shown"
    assert lines[3].startswith("- filed 2018-06-28")
    assert len(lines) == 33


def test_rows_that_are_withheld_use_up_no_place() -> None:
    guesses = [traded("2018-06-20T12:00", n, known_at_basis="estimated") for n in range(40)]
    rows = [traded("2018-06-01T12:00"), *guesses]
    assert len([line for line in insiders(books(insider=rows)) if line.startswith("- ")]) == 1
    shown = insiders(books(insider=rows, lag=True))
    assert len([line for line in shown if "(estimated)" in line]) == 30


def test_trades_that_only_an_estimate_dates_are_withheld() -> None:
    view = books(insider=[traded("2018-06-20T12:00", known_at_basis="estimated")])
    assert insiders(view) == [
        (
            "DATA_UNAVAILABLE: trades by insiders of FB: none is on record up to 2018-06-29; 1 row "
            "of insider is withheld: when it became public is only estimated"
        )
    ]


def test_an_amendment_a_gift_without_price_and_an_unknown_code_are_said() -> None:
    rows = [traded("2018-06-20T12:00", form="4/A", price=None, code="G", role=None)]
    (line,) = insiders(books(insider=rows))[2:]
    assert line.endswith("| out, gift | 30000 shares | amends an earlier filing")
    (line,) = insiders(books(insider=[traded("2018-06-20T12:00", code="Z", acquired=None)]))[2:]
    assert "| code Z | 30000 shares" in line


def test_trades_of_long_ago_leave_the_window_empty_and_say_so() -> None:
    lines = insiders(books(insider=[traded("2017-06-20T12:00")]))
    assert lines[-1] == "# None in this window"


def test_a_name_can_forge_no_line() -> None:
    rows = [traded("2018-06-20T12:00", insider="A\n# seen on 2019-01-01", code="S\n- x")]
    assert len(insiders(books(insider=rows))) == 3


def test_the_tools_of_companies_are_in_the_table() -> None:
    assert {"get_fundamentals", "get_insider_transactions", "get_cashflow"} <= set(TOOLS)
