"""Value and ratios of a company, rebuilt from statements on file and prices, each with its dates.

Every figure rests on one basis of shares, that of the simulated date, on which the view's prices
are: a count of shares is moved by the splits after its day, earnings per share by the splits after
they were filed, a dividend by the splits after its ex session. What lacks a part is withheld with
the reason; nothing is filled in from another day, another unit or another count.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

from tradingagents_core.indicators import YEAR as SESSIONS_OF_A_YEAR
from tradingagents_core.protocols import Bars, Identity, Row, View
from tradingagents_core.statements import (
    BALANCE,
    COVER,
    INCOME,
    YEAR,
    Books,
    Figure,
    total,
)
from tradingagents_core.tools.base import withheld_notes
from tradingagents_core.tools.filings import STATEMENTS, amount_text, books_seen, public_text
from tradingagents_core.tools.text import count_text, figure_text, one_line, price_text

# A figure older than this is no figure of the present any more.
OLDEST_QUARTER = timedelta(days=250)
OLDEST_YEAR = timedelta(days=470)
_MINOR: Mapping[str, tuple[str, int]] = {
    "GBp": ("GBP", 100),
    "ILA": ("ILS", 100),
    "ZAc": ("ZAR", 100),
}
# Their covers count shares at home, while what is quoted may be a receipt for some of them.
_FOREIGN_FORMS = ("20-F", "40-F", "6-K")
_SPLIT = "split"
_DIVIDEND = "dividend"


class _Withheld(Exception):
    """Say why a figure cannot be given."""


@dataclass(frozen=True, kw_only=True)
class _Facts:
    """Hold what the ratios are worked out from.

    Attributes:
        books: Statements on file.
        actions: Splits and dividends that had taken effect.
        close: Newest close in the quote currency, on the basis of the simulated date.
        sessions: Number of bars of the last year.
        day: Session of the close.
        currency: Quote currency, a major one.
        minor: How many of the quoted unit make one of it.
    """

    books: Books
    actions: tuple[Row, ...]
    close: float
    sessions: int
    day: date
    currency: str
    minor: int

    @property
    def price(self) -> float:
        """The close in the major currency."""
        return self.close / self.minor


def valuation(view: View, identity: Identity, bars: Bars, end: date | None) -> Iterator[str]:
    """Yield a line for each figure that statements give, value or reason.

    Raises:
        DataUnavailable: The snapshot has no statements, or none was on file.
    """
    currency, minor = _MINOR.get(identity.currency, (identity.currency, 1))
    facts = _Facts(
        books=books_seen(view, identity, end),
        actions=view.rows("actions", identity.instrument),
        close=bars.close[-1].item(),
        sessions=len(bars),
        day=bars.sessions[-1].item(),
        currency=currency,
        minor=minor,
    )
    yield from withheld_notes(view, STATEMENTS, identity.instrument, end=end)
    for name, figure in FIGURES.items():
        try:
            yield f"{name}: {figure(facts)}"
        except _Withheld as reason:
            yield f"{name}: withheld, {reason}"


# ------------------------------------------------------------------------------- the figures


def _market_cap(facts: _Facts) -> str:
    shares, count = _shares(facts)
    moved = "" if count == shares.value else f", {count_text(count)} after later splits"
    counted = f"{count_text(shares.value)} shares as of {shares.period_end}{moved}"
    return (
        f"{count_text(_cap(facts))} {facts.currency} (close {price_text(facts.close)} of "
        f"{facts.day} x {counted}; {public_text(shares)})"
    )


def _trailing_eps(facts: _Facts) -> str:
    parts = _last_year(facts, "eps_diluted", f"{facts.currency}/shares")
    told = ", ".join(_part(facts, part) for part in parts)
    kind = "quarters" if len(parts) > 1 else "year"
    return (
        f"{price_text(_earnings(facts, parts))} {facts.currency} a share ({kind} to {told}; "
        f"newest: {public_text(_newest(parts))})"
    )


def _part(facts: _Facts, part: Figure) -> str:
    value = part.value / _since_filing(facts, part.known_at)
    mark = " derived" if part.derived else ""
    return f"{part.period_end} {price_text(value)}{mark}"


def _trailing_pe(facts: _Facts) -> str:
    earned = _earnings(facts, _last_year(facts, "eps_diluted", f"{facts.currency}/shares"))
    if earned <= 0:
        raise _Withheld("the earnings are not above zero")
    return f"{facts.price / earned:.3f}"


def _forward_pe(facts: _Facts) -> str:
    raise _Withheld("it needs estimates of analysts, which no table holds")


def _price_to_book(facts: _Facts) -> str:
    equity = _balance(facts, "equity")
    if equity.value <= 0:
        raise _Withheld("the equity is not above zero")
    return f"{_cap(facts) / equity.value:.3f} ({_on_balance('equity', equity)})"


def _dividend_yield(facts: _Facts) -> str:
    if facts.sessions < SESSIONS_OF_A_YEAR:
        raise _Withheld("the data do not cover a year of dividends")
    since = facts.day - timedelta(days=365)
    paid = []
    for action in facts.actions:
        fields: Mapping[str, Any] = action.fields
        if fields["kind"] == _DIVIDEND and since < fields["ex_session"] <= facts.day:
            paid.append(_major(facts, fields) / _split_factor(facts, after=fields["ex_session"]))
    share = math.fsum(paid)
    return (
        f"{figure_text(share / facts.price)} ({len(paid)} dividends in the 365 days to {facts.day})"
    )


def _profit_margin(facts: _Facts) -> str:
    income, revenue = (
        _last_year(facts, item, facts.currency) for item in ("net_income", "revenue")
    )
    if [part.period_end for part in income] != [part.period_end for part in revenue]:
        raise _Withheld("net income and revenue are on file for different periods")
    if total(revenue) <= 0:
        raise _Withheld("the revenue is not above zero")
    return f"{figure_text(total(income) / total(revenue))} ({_span(income)})"


def _return_on_equity(facts: _Facts) -> str:
    income, equity = _last_year(facts, "net_income", facts.currency), _balance(facts, "equity")
    if equity.value <= 0:
        raise _Withheld("the equity is not above zero")
    return (
        f"{figure_text(total(income) / equity.value)} ({_span(income)} over "
        f"{_on_balance('equity', equity)})"
    )


def _debt_to_equity(facts: _Facts) -> str:
    owed, equity = _balance(facts, "total_liabilities"), _balance(facts, "equity")
    if owed.period_end != equity.period_end:
        raise _Withheld("liabilities and equity are on file for different days")
    if equity.value <= 0:
        raise _Withheld("the equity is not above zero")
    return (
        f"{figure_text(owed.value / equity.value)} (total liabilities {amount_text(owed)} over "
        f"{_on_balance('equity', equity)})"
    )


FIGURES: Mapping[str, Callable[[_Facts], str]] = {
    "market_cap": _market_cap,
    "trailing_eps": _trailing_eps,
    "trailing_pe": _trailing_pe,
    "forward_pe": _forward_pe,
    "price_to_book": _price_to_book,
    "dividend_yield": _dividend_yield,
    "profit_margin": _profit_margin,
    "return_on_equity": _return_on_equity,
    "debt_to_equity": _debt_to_equity,
}


# ---------------------------------------------------------------------------------- the parts


def _shares(facts: _Facts) -> tuple[Figure, float]:
    """Return the newest count on a cover, and that count after the splits since its day."""
    shares = facts.books.newest(COVER, "shares_outstanding")
    if shares is None:
        raise _Withheld("no count of shares was on file")
    _refuse_old(facts, shares, OLDEST_YEAR)
    if shares.form.startswith(_FOREIGN_FORMS):
        raise _Withheld(
            f"the count on a {one_line(shares.form, 20)} is of shares at home, and the quote may "
            "be of receipts"
        )
    return shares, shares.value * _split_factor(facts, after=shares.period_end)


def _cap(facts: _Facts) -> float:
    _, count = _shares(facts)
    return facts.close * count / facts.minor


def _last_year(facts: _Facts, item: str, unit: str) -> tuple[Figure, ...]:
    """Return the last four quarters, or the last year where it is as new as they are."""
    parts = facts.books.last_four(INCOME, item)
    year = facts.books.newest(INCOME, item, YEAR)
    if not parts and year is not None and _is_newest(facts.books, year):
        _refuse_old(facts, year, OLDEST_YEAR)
        parts = (year,)
    if not parts:
        raise _Withheld(f"{item} is not on file for four quarters in a row")
    if len(parts) > 1:
        _refuse_old(facts, parts[-1], OLDEST_QUARTER)
    _require_unit(parts[-1], unit)
    return parts


def _is_newest(books: Books, year: Figure) -> bool:
    return all(
        figure.period_end <= year.period_end
        for figure in books.figures
        if figure.statement == INCOME and figure.item == year.item
    )


def _earnings(facts: _Facts, parts: Sequence[Figure]) -> float:
    return math.fsum(part.value / _since_filing(facts, part.known_at) for part in parts)


def _balance(facts: _Facts, item: str) -> Figure:
    figure = facts.books.newest(BALANCE, item)
    if figure is None:
        raise _Withheld(f"{item} is not on file")
    _refuse_old(facts, figure, OLDEST_YEAR)
    _require_unit(figure, facts.currency)
    return figure


def _require_unit(figure: Figure, unit: str) -> None:
    if figure.unit != unit:
        raise _Withheld(f"{figure.item} is on file in {one_line(figure.unit, 20)}, not in {unit}")


def _refuse_old(facts: _Facts, figure: Figure, oldest: timedelta) -> None:
    if facts.day - figure.period_end > oldest:
        raise _Withheld(f"the newest {figure.item} on file is of {figure.period_end}")


def _since_filing(facts: _Facts, known_at: datetime) -> float:
    """Return shares now for each share when a filing came out."""
    return _product(action for action in facts.actions if action.known_at > known_at)


def _split_factor(facts: _Facts, *, after: date) -> float:
    """Return shares now for each share at the end of a day."""
    return _product(action for action in facts.actions if _ex_session(action) > after)


def _product(actions: Iterator[Row]) -> float:
    up = down = 1
    for action in actions:
        fields: Mapping[str, Any] = action.fields
        if fields["kind"] == _SPLIT:
            up *= fields["numerator"]
            down *= fields["denominator"]
    return up / down


def _ex_session(action: Row) -> date:
    fields: Mapping[str, Any] = action.fields
    day: date = fields["ex_session"]
    return day


def _major(facts: _Facts, fields: Mapping[str, Any]) -> float:
    quoted: str = fields["currency"]
    currency, minor = _MINOR.get(quoted, (quoted, 1))
    if currency != facts.currency:
        raise _Withheld(f"dividends are paid in {one_line(currency, 20)}, not in {facts.currency}")
    amount: float = fields["amount"]
    return amount / minor


def _newest(parts: Sequence[Figure]) -> Figure:
    return max(parts, key=lambda part: part.known_at)


def _span(parts: Sequence[Figure]) -> str:
    kind = f"{len(parts)} quarters" if len(parts) > 1 else "year"
    return f"{kind} to {parts[-1].period_end}; newest: {public_text(_newest(parts))}"


def _on_balance(name: str, figure: Figure) -> str:
    return f"{name} {amount_text(figure)} at {figure.period_end}, {public_text(figure)}"
