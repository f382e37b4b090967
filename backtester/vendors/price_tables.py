"""Make rows of the price tables out of quotes, splits and dividends as traded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta

import pyarrow as pa

from backtester.calendar import Calendar
from backtester.schema import DIVIDEND, SPLIT, TABLES, known_at_action, known_at_bar
from backtester.vendors.moments import end_of_day
from backtester.vendors.unadjust import Dividend, Quote, Split

# The longest closure that an action may be carried over to the next session.
_LONGEST_CLOSURE = timedelta(days=14)


@dataclass(frozen=True, kw_only=True)
class Listing:
    """Hold what a vendor says today of an instrument.

    Attributes:
        instrument: The snapshot's id.
        symbol: Symbol.
        name: Name.
        exchange: Exchange as people call it.
        currency: Quote currency, or a minor unit as quoted.
        asset_type: One of the schema's.
        sector: Sector, or None.
        basis: ``price``, or ``total`` where the closes hold the dividends.
        first_session: First session that the snapshot covers.
    """

    instrument: str
    symbol: str
    name: str
    exchange: str
    currency: str
    asset_type: str
    first_session: date
    sector: str | None = None
    basis: str = "price"


def bar_rows(
    instrument: str, quotes: Sequence[Quote], calendar: Calendar, currency: str
) -> pa.Table:
    """Return rows of the bars table.

    A day on which the calendar was closed keeps its bar, known from the end of that day; the
    checks of the capture flag it.
    """
    return pa.Table.from_pylist(
        [
            {
                "instrument": instrument,
                "session": quote.session,
                "known_at": (
                    known_at_bar(calendar, quote.session)
                    if calendar.is_session(quote.session)
                    else end_of_day(quote.session, calendar.tz)
                ),
                "open": quote.open,
                "high": quote.high,
                "low": quote.low,
                "close": quote.close,
                "volume": int(quote.volume),
                "currency": currency,
            }
            for quote in quotes
        ],
        schema=TABLES["bars"].arrow,
    )


def action_rows(
    instrument: str,
    splits: Sequence[Split],
    dividends: Sequence[Dividend],
    calendar: Calendar,
    currency: str,
) -> pa.Table:
    """Return rows of the actions table; dividends of one ex session and currency are one row.

    Raises:
        DataError: An ex session is beyond what the calendar knows.
    """
    rows = []
    for split in splits:
        session = ex_session(calendar, split.ex_session)
        rows.append(
            {
                "instrument": instrument,
                "ex_session": session,
                "known_at": known_at_action(calendar, session),
                "kind": SPLIT,
                "numerator": split.ratio.numerator,
                "denominator": split.ratio.denominator,
                "currency": currency,
            }
        )
    paid: dict[tuple[date, str], float] = {}
    for dividend in dividends:
        due = ex_session(calendar, dividend.ex_session), dividend.currency or currency
        paid[due] = paid.get(due, 0.0) + dividend.amount
    for (session, paid_in), amount in sorted(paid.items()):
        rows.append(
            {
                "instrument": instrument,
                "ex_session": session,
                "known_at": known_at_action(calendar, session),
                "kind": DIVIDEND,
                "amount": amount,
                "currency": paid_in,
            }
        )
    return pa.Table.from_pylist(rows, schema=TABLES["actions"].arrow)


def ex_session(calendar: Calendar, day: date) -> date:
    """Return the first session without the right: the day itself, or the next session.

    Raises:
        DataError: The day is beyond what the calendar knows.
    """
    if calendar.is_session(day):
        return day
    return calendar.sessions(day, day + _LONGEST_CLOSURE)[0]


def listing_rows(listing: Listing, calendar: Calendar) -> pa.Table:
    """Return the row of the instruments table: today's words, without a range that they hold for.

    Whether it still trades is not said: a vendor's silence is no delisting.
    """
    return pa.Table.from_pylist(
        [
            {
                "instrument": listing.instrument,
                "symbol": listing.symbol,
                "name": listing.name,
                "exchange": listing.exchange,
                "calendar": calendar.code,
                "currency": listing.currency,
                "sector": listing.sector,
                "asset_type": listing.asset_type,
                "valid_from": None,
                "valid_to": None,
                "first_session": ex_session(calendar, listing.first_session),
                "last_session": None,
                "basis": listing.basis,
                "static": True,
            }
        ],
        schema=TABLES["instruments"].arrow,
    )
