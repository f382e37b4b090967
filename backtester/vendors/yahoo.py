"""Yahoo Finance by way of yfinance: bars, actions and today's names; company data beside it.

Yahoo divides every price, volume and dividend by the splits since. They are asked for up to the
capture, so that all of them can be undone; what is kept is as traded, in the currency and the unit
that Yahoo quotes (pence stay pence). Nothing is repaired: what looks wrong is named, and prices
that cannot be right are refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from backtester.calendar import calendar_of
from backtester.errors import UsageError
from backtester.markets import INDICES
from backtester.vendors.asked import options_of, public_by_capture
from backtester.vendors.base import BadResponse, Capture, NoData, VendorSettings, Wanted
from backtester.vendors.price_tables import Listing, action_rows, bar_rows, listing_rows
from backtester.vendors.unadjust import (
    Dividend,
    Doubt,
    Quote,
    Split,
    as_paid,
    as_traded,
    doubts,
    split_ratio,
    unapplied,
)
from backtester.vendors.yahoo_company import insider_capture, news_capture, statements_capture
from backtester.vendors.yahoo_port import (
    HISTORY_OPTIONS,
    SOURCE,
    History,
    YahooPort,
    YFinance,
)

if TYPE_CHECKING:
    import pandas as pd

LICENCE: Final = "Yahoo's terms; personal use"
PRICE_TABLES: Final = frozenset({"bars", "actions", "instruments"})
COLUMNS: Final = (
    "Open",
    "High",
    "Low",
    "Close",
    "Adj Close",
    "Volume",
    "Dividends",
    "Stock Splits",
)
GAINS: Final = "Capital Gains"
ASSET_TYPES: Mapping[str, str] = MappingProxyType(
    {
        "EQUITY": "stock",
        "ETF": "fund",
        "MUTUALFUND": "fund",
        "INDEX": "index",
        "CRYPTOCURRENCY": "crypto",
        "CURRENCY": "fx",
        "FUTURE": "future",
    }
)
# Units in which shares are quoted, and the currency that a hundred of them make.
MINOR_UNITS: Mapping[str, str] = MappingProxyType({"GBp": "GBP", "ILA": "ILS", "ZAc": "ZAR"})
# Exchanges are up to a day ahead of UTC, and a range ends before its last day.
_BEYOND_CAPTURE: Final = timedelta(days=2)
_MOST_NAMED: Final = 5
_COMPANY: Mapping[str, Callable[[YahooPort, Wanted], Capture]] = MappingProxyType(
    {"news": news_capture, "insider": insider_capture, "statements": statements_capture}
)


class Yahoo:
    """Capture from Yahoo Finance.

    Args:
        settings: Of the vendor; yfinance knows its own addresses and needs no key.
        port: What talks to yfinance; tests hand in frames.
    """

    name = "yfinance"
    tables = PRICE_TABLES | {"statements", "news", "insider"}

    def __init__(self, settings: VendorSettings, port: YahooPort | None = None) -> None:
        self._port = YFinance(settings) if port is None else port

    def capture(self, wanted: Wanted) -> Capture:
        """Return what Yahoo has; each price table brings the other two along.

        Raises:
            RateLimited: Yahoo asks to come back later.
            NoData: Yahoo says plainly that it has none, or none of the range.
            BadResponse: An answer that is empty, of another symbol or form, or not to be trusted.
            VendorError: It failed in another way.
            UsageError: An option is asked for, or another table; there is none.
        """
        options_of(self.name, wanted, {})
        if wanted.table not in self.tables:
            raise UsageError(f"vendor yfinance has no table {wanted.table}")
        if wanted.table in _COMPANY:
            return public_by_capture(_COMPANY[wanted.table](self._port, wanted), wanted)
        return self._prices(wanted)

    def _prices(self, wanted: Wanted) -> Capture:
        until = wanted.captured_at.date() + _BEYOND_CAPTURE
        history = self._port.history(wanted.symbol, wanted.start, until)
        series = read_history(wanted.symbol, history)
        kept = series.within(wanted.start, wanted.end)
        if not kept.quotes:
            raise NoData(
                f"Yahoo has prices of {wanted.symbol} from {series.quotes[0].session} on, and none "
                f"from {wanted.start} to {wanted.end}"
            )
        calendar = calendar_of(wanted.symbol)
        doubtful = _doubts(series, wanted.end)
        impossible = {doubt.ex_session for doubt in doubtful if doubt.impossible}
        dividends = [
            as_paid(dividend, series.splits)
            for dividend in kept.dividends
            if dividend.ex_session not in impossible
        ]
        listing = _listing(wanted, series, history.facts)
        later = [split for split in series.splits if split.ex_session > wanted.end]
        return Capture(
            rows={
                "bars": bar_rows(
                    wanted.instrument,
                    as_traded(kept.quotes, series.splits),
                    calendar,
                    series.currency,
                ),
                "actions": action_rows(
                    wanted.instrument, kept.splits, dividends, calendar, series.currency
                ),
                "instruments": listing_rows(listing, calendar),
            },
            notes=tuple(
                f"{wanted.symbol}: {note}" for note in (*kept.notes, *_words(doubtful, later))
            ),
            options={
                "start": wanted.start.isoformat(),
                "end": until.isoformat(),
                **{name: str(value) for name, value in HISTORY_OPTIONS.items()},
                "splits_undone": _listed(series.splits),
            },
            source=SOURCE,
            licence=LICENCE,
        )


@dataclass(frozen=True, kw_only=True)
class Series:
    """Hold a history as Yahoo adjusts it, oldest first.

    Attributes:
        quotes: Days with prices.
        splits: Every split up to the capture.
        dividends: On Yahoo's count of shares.
        currency: As quoted.
        notes: What was left out or changed, with the day.
    """

    quotes: tuple[Quote, ...]
    splits: tuple[Split, ...]
    dividends: tuple[Dividend, ...]
    currency: str
    remarks: tuple[tuple[date, str], ...]

    @property
    def notes(self) -> tuple[str, ...]:
        """What was left out or changed, in words."""
        return tuple(words for _, words in self.remarks)

    def within(self, start: date, end: date) -> Series:
        """Return the part of a range; its quotes are still on the count of the capture."""
        return Series(
            quotes=tuple(one for one in self.quotes if start <= one.session <= end),
            splits=tuple(one for one in self.splits if start <= one.ex_session <= end),
            dividends=tuple(one for one in self.dividends if start <= one.ex_session <= end),
            currency=self.currency,
            remarks=tuple(one for one in self.remarks if start <= one[0] <= end),
        )


def read_history(symbol: str, history: History) -> Series:
    """Read a frame of yfinance.

    Raises:
        BadResponse: It is of another symbol or form, was adjusted or repaired, is empty, or its
            prices do not fit its splits.
    """
    told = str(history.facts.get("symbol") or "")
    if told.upper() != symbol.strip().upper():
        raise BadResponse(
            f"Yahoo was asked for the prices of {symbol} and answered with those of "
            f"{told[:40] or 'no symbol'!r}: nothing is stored"
        )
    currency = history.facts.get("currency")
    if not isinstance(currency, str) or not currency:
        raise BadResponse(f"Yahoo names no currency for the prices of {symbol}: try later")
    frame = history.frame
    _require_form(symbol, frame)
    days = [stamp.date() for stamp in frame.index]
    remarks: list[tuple[date, str]] = []
    quotes = _quotes(frame, days, remarks)
    if not quotes:
        raise BadResponse(
            f"Yahoo gave no price of {symbol} and no reason: an empty frame is not taken for "
            '"there is none"; try later'
        )
    splits = _splits(symbol, frame, days)
    dividends = _dividends(frame, days, currency, history.dividend_currencies, remarks)
    if GAINS in frame.columns:
        remarks += [
            (day, f"a distribution of gains of {amount:g} on {day} is not stored")
            for day, amount in zip(days, frame[GAINS].tolist(), strict=True)
            if amount > 0
        ]
    _refuse_unapplied(symbol, quotes, splits)
    return Series(
        quotes=quotes,
        splits=splits,
        dividends=dividends,
        currency=currency,
        remarks=tuple(remarks),
    )


def _require_form(symbol: str, frame: pd.DataFrame) -> None:
    columns = [str(name) for name in frame.columns]
    if sorted(set(columns) - {GAINS}) != sorted(COLUMNS) or len(set(columns)) != len(columns):
        raise BadResponse(
            f"the daily frame of {symbol} has the columns {', '.join(columns) or 'none'}, not "
            f"{', '.join(COLUMNS)}: was it adjusted or repaired? Nothing is stored"
        )
    if len(frame) and getattr(frame.index, "tz", None) is None:
        raise BadResponse(f"the days of the frame of {symbol} name no zone: nothing is stored")


def _quotes(
    frame: pd.DataFrame, days: Sequence[date], remarks: list[tuple[date, str]]
) -> tuple[Quote, ...]:
    found = []
    columns = [frame[name].tolist() for name in COLUMNS[:6]]
    for day, *prices, adjusted, volume in zip(days, *columns, strict=True):
        quote = Quote(
            session=day,
            open=prices[0],
            high=prices[1],
            low=prices[2],
            close=prices[3],
            volume=volume if math.isfinite(volume) else 0,
            adjusted=adjusted if math.isfinite(adjusted) and adjusted > 0 else None,
        )
        # The noise of 32 bits must not make a close that equals the high stand above it.
        flaw = quote.flaw and as_traded([quote], ())[0].flaw
        if flaw is None:
            found.append(quote)
        else:
            remarks.append((day, f"the bar of {day} {flaw}: left out"))
    return tuple(sorted(found, key=lambda quote: quote.session))


def _splits(symbol: str, frame: pd.DataFrame, days: Sequence[date]) -> tuple[Split, ...]:
    found = []
    for day, given in zip(days, frame["Stock Splits"].tolist(), strict=True):
        if not given or math.isnan(given):
            continue
        try:
            ratio, slack = split_ratio(given)
        except ValueError as error:
            raise BadResponse(f"{symbol} on {day}: {error}; nothing is stored") from None
        if ratio != 1:
            found.append(Split(ex_session=day, ratio=ratio, slack=slack))
    return tuple(sorted(found, key=lambda split: split.ex_session))


def _dividends(
    frame: pd.DataFrame,
    days: Sequence[date],
    currency: str,
    currencies: Mapping[date, str],
    remarks: list[tuple[date, str]],
) -> tuple[Dividend, ...]:
    found = []
    for day, given in zip(days, frame["Dividends"].tolist(), strict=True):
        if not given > 0:
            continue
        paid_in = currencies.get(day, currency)
        amount, foreign = given, None
        if MINOR_UNITS.get(currency) == paid_in:
            amount = round(given * 100, 8)
            words = f"the dividend of {day} is {given:g} {paid_in}, stored as {amount:g} {currency}"
            remarks.append((day, words))
        elif paid_in != currency:
            foreign = paid_in
            remarks.append((day, f"the dividend of {day} is in {paid_in}, the bars in {currency}"))
        found.append(Dividend(ex_session=day, amount=amount, currency=foreign))
    return tuple(sorted(found, key=lambda dividend: dividend.ex_session))


def _refuse_unapplied(symbol: str, quotes: Sequence[Quote], splits: Sequence[Split]) -> None:
    wrong = unapplied(quotes, splits)
    if wrong is not None:
        split, day = wrong
        raise BadResponse(
            f"Yahoo's prices of {symbol} before {day} are not adjusted for the split of "
            f"{split.ex_session} ({_ratio(split)}) as the later ones are: nothing is stored; try "
            "later, or take another vendor or a file"
        )


def _doubts(series: Series, end: date) -> list[Doubt]:
    found = doubts(series.quotes, series.dividends)
    return [doubt for doubt in found if doubt.ex_session <= end]


def _words(doubtful: Sequence[Doubt], later: Sequence[Split]) -> list[str]:
    words = [doubt.words + (": it is left out" if doubt.impossible else "") for doubt in doubtful]
    if later:
        words.append(f"splits after the range were undone: {_listed(later)}")
    return words


def _listed(splits: Sequence[Split]) -> str:
    return "; ".join(f"{_ratio(split)} on {split.ex_session}" for split in splits)


def _ratio(split: Split) -> str:
    return f"{split.ratio.numerator}:{split.ratio.denominator}"


def _listing(wanted: Wanted, series: Series, facts: Mapping[str, Any]) -> Listing:
    kind = str(facts.get("instrumentType") or "")
    if kind not in ASSET_TYPES:
        raise BadResponse(f"Yahoo calls {wanted.symbol} a {kind[:40]!r}, which is no known kind")
    symbol = wanted.symbol.strip().upper()
    name = facts.get("longName") or facts.get("shortName") or symbol
    exchange = facts.get("fullExchangeName") or facts.get("exchangeName") or "unknown"
    index = INDICES.get(symbol)
    first = facts.get("firstTradeDate")
    born = first.date() if isinstance(first, datetime) else series.quotes[0].session
    return Listing(
        instrument=wanted.instrument,
        symbol=symbol,
        name=str(name),
        exchange=str(exchange),
        currency=series.currency,
        asset_type=ASSET_TYPES[kind],
        first_session=max(wanted.start, min(born, series.quotes[0].session)),
        basis=index.basis if index is not None else "price",
    )
