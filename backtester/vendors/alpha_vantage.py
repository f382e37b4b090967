"""Alpha Vantage: bars as traded with their actions, statements, insider trades and news.

Its prices are as traded already. It tells most of what goes wrong with status 200 and a sentence in
place of the data: a rate limit, a plan that lacks a function, an unknown symbol. Each is told apart
here, and none is ever taken for "there is none".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date
from types import MappingProxyType
from typing import Any, Final

from backtester.calendar import calendar_of
from backtester.errors import UsageError
from backtester.vendors.alpha_vantage_rows import (
    InsiderAnswer,
    StatementAnswer,
    article_rows,
    newest_stamp,
    statement_reports,
    trade_rows,
)
from backtester.vendors.asked import options_of, public_by_capture
from backtester.vendors.base import (
    BadResponse,
    Capture,
    NoData,
    NotConfigured,
    RateLimited,
    VendorSettings,
    Wanted,
)
from backtester.vendors.moments import end_of_day
from backtester.vendors.price_tables import Listing, action_rows, bar_rows, listing_rows
from backtester.vendors.statement_rows import report_rows, statement_table
from backtester.vendors.unadjust import Dividend, Quote, Split, split_ratio
from backtester.vendors.web import Answer, MayPass, fetch, json_of, object_of
from tradingagents_core.llm.reading import blank

OWN_URL: Final = "https://www.alphavantage.co"
KEY_VARIABLE: Final = "ALPHA_VANTAGE_API_KEY"
LICENCE: Final = "Alpha Vantage's terms"
PRICE_TABLES: Final = frozenset({"bars", "actions", "instruments"})
PRICES: Final = "TIME_SERIES_DAILY_ADJUSTED"
SEARCH: Final = "SYMBOL_SEARCH"
STATEMENTS: Mapping[str, str] = MappingProxyType(
    {"income": "INCOME_STATEMENT", "balance": "BALANCE_SHEET", "cashflow": "CASH_FLOW"}
)
# Exchanges by the suffix that Alpha Vantage writes, and the one of this product's table.
SUFFIXES: Mapping[str, str] = MappingProxyType(
    {
        "LON": "L",
        "DEX": "DE",
        "FRK": "F",
        "PAR": "PA",
        "AMS": "AS",
        "TRT": "TO",
        "TRV": "V",
        "BSE": "BO",
        "SHH": "SS",
        "SHZ": "SZ",
        "SAO": "SA",
    }
)
ASSET_TYPES: Mapping[str, str] = MappingProxyType(
    {"Equity": "stock", "ETF": "fund", "Mutual Fund": "fund"}
)
# Its own codes of minor units.
CURRENCIES: Mapping[str, str] = MappingProxyType({"GBX": "GBp", "ZAC": "ZAc"})

NEWS_NOTE: Final = (
    "its times name no zone and are read as New York's, which is never too early; its scores are "
    "worked out later and not stored"
)
_TALK: Final = frozenset({"Note", "Information", "Error Message"})
_MOST_TALK: Final = 8192
_MOST_SAID: Final = 200
_PAGE: Final = 1000
_MOST_PAGES: Final = 200
_MINUTE_S: Final = 60.0
_CLEAR_SPLIT: Final = 1.5
_NO_CHANGE: Final = 0.2


class AlphaVantage:
    """Capture from Alpha Vantage.

    Args:
        settings: Of the vendor; its key is required.
    """

    name = "alpha_vantage"
    tables = PRICE_TABLES | {"statements", "news", "insider"}

    def __init__(self, settings: VendorSettings) -> None:
        if not settings.api_key:
            raise NotConfigured(
                f"vendor alpha_vantage needs a key: set the variable {KEY_VARIABLE}"
            )
        self._settings = settings
        self._key = settings.api_key

    def capture(self, wanted: Wanted) -> Capture:
        """Return what Alpha Vantage has; each price table brings the other two along.

        Raises:
            RateLimited: It asks to come back later, in a minute or on another day.
            NotConfigured: It refuses the key, or the key's plan lacks the function.
            NoData: It says that it has none, or has none of the range.
            BadResponse: Its answer is of another symbol or form.
            VendorError: It failed in another way.
            UsageError: An option is asked for, or another table; there is none.
        """
        options_of(self.name, wanted, {})
        if wanted.table not in self.tables:
            raise UsageError(f"vendor alpha_vantage has no table {wanted.table}")
        takes: dict[str, Callable[[Wanted], Capture]] = {
            "statements": self._statements,
            "news": self._news,
            "insider": self._insider,
        }
        if wanted.table not in takes:
            return self._prices(wanted)
        return public_by_capture(takes[wanted.table](wanted), wanted)

    # -- prices

    def _prices(self, wanted: Wanted) -> Capture:
        theirs, ours = spellings(wanted.symbol)
        options = {"function": PRICES, "outputsize": "full"}
        answer = self._ask({**options, "symbol": theirs})
        self._require_symbol(theirs, _part(answer, "Meta Data").get("2. Symbol"), "prices")
        quotes, splits, dividends = read_days(theirs, _part(answer, "Time Series (Daily)"))
        if not quotes:
            raise BadResponse(f"Alpha Vantage gave no price of {theirs} and no reason: try later")
        _refuse_adjusted(theirs, quotes, splits)
        whole = [one for one in quotes if one.flaw is None]
        kept = [one for one in whole if wanted.start <= one.session <= wanted.end]
        if not kept:
            raise NoData(
                f"Alpha Vantage has prices of {theirs} from {quotes[0].session} on, and none from "
                f"{wanted.start} to {wanted.end}"
            )
        listing = self._listing(wanted, theirs, ours, whole[0].session)
        calendar = calendar_of(ours)
        notes = [
            f"{ours}: the bar of {one.session} {one.flaw}: left out"
            for one in quotes
            if one.flaw is not None and wanted.start <= one.session <= wanted.end
        ]
        return Capture(
            rows={
                "bars": bar_rows(wanted.instrument, kept, calendar, listing.currency),
                "actions": action_rows(
                    wanted.instrument,
                    [one for one in splits if wanted.start <= one.ex_session <= wanted.end],
                    [one for one in dividends if wanted.start <= one.ex_session <= wanted.end],
                    calendar,
                    listing.currency,
                ),
                "instruments": listing_rows(listing, calendar),
            },
            notes=tuple(notes),
            options=options,
            source=self._url,
            licence=LICENCE,
        )

    def _listing(self, wanted: Wanted, theirs: str, ours: str, first: date) -> Listing:
        answer = self._ask({"function": SEARCH, "keywords": theirs})
        matches = answer.get("bestMatches")
        if not isinstance(matches, list):
            raise BadResponse(f"Alpha Vantage's search for {theirs} has no list of matches")
        found = next(
            (one for one in matches if isinstance(one, dict) and one.get("1. symbol") == theirs),
            None,
        )
        if found is None:
            raise BadResponse(
                f"Alpha Vantage's search knows no {theirs}, so the currency of its prices is not "
                "known: nothing is stored"
            )
        kind, currency = str(found.get("3. type")), found.get("8. currency")
        if kind not in ASSET_TYPES or not isinstance(currency, str) or not currency:
            raise BadResponse(
                f"Alpha Vantage calls {theirs} a {kind[:40]!r} in {str(currency)[:10]!r}: no known "
                "kind, or no currency"
            )
        return Listing(
            instrument=wanted.instrument,
            symbol=ours,
            name=str(found.get("2. name") or ours),
            exchange=str(found.get("4. region") or "unknown"),
            currency=CURRENCIES.get(currency, currency),
            asset_type=ASSET_TYPES[kind],
            first_session=max(wanted.start, first),
        )

    # -- the company

    def _statements(self, wanted: Wanted) -> Capture:
        theirs, ours = spellings(wanted.symbol)
        zone = calendar_of(ours).tz
        answers = {
            statement: self._of_company(function, theirs)
            for statement, function in STATEMENTS.items()
        }
        earnings = self._of_company("EARNINGS", theirs)
        asked = StatementAnswer(symbol=theirs, statements=answers, earnings=earnings, zone=zone)
        reports = statement_reports(asked)
        until = end_of_day(wanted.end, zone)
        rows = [
            row
            for report in reports
            if report.known_at <= until
            for row in report_rows(wanted.instrument, report)
        ]
        if not rows:
            raise NoData(
                f"Alpha Vantage has {len(reports)} reports of {theirs}, none of them known by "
                f"{wanted.end}"
            )
        estimated = sum(row["known_at_basis"] == "estimated" for row in rows)
        notes = [f"{ours}: values are today's, known from the day on which results were announced"]
        if estimated:
            notes.append(f"{ours}: {estimated} figures have no such day; theirs is an estimate")
        return Capture(
            rows={"statements": statement_table(rows)},
            notes=tuple(notes),
            options={"functions": ",".join((*STATEMENTS.values(), "EARNINGS"))},
            source=self._url,
            licence=LICENCE,
        )

    def _insider(self, wanted: Wanted) -> Capture:
        theirs, ours = spellings(wanted.symbol)
        options = {"function": "INSIDER_TRANSACTIONS"}
        answer = self._ask({**options, "symbol": theirs})
        listed = answer.get("data")
        if not isinstance(listed, list):
            raise BadResponse(f"Alpha Vantage's insider trades of {theirs} have another form")
        asked = InsiderAnswer(wanted=wanted, symbol=theirs, trades=listed)
        table, undated = trade_rows(asked, calendar_of(ours))
        if not table.num_rows:
            raise NoData(
                f"Alpha Vantage has {len(listed)} insider trades of {theirs} and none from "
                f"{wanted.start} to {wanted.end}"
            )
        return Capture(
            rows={"insider": table},
            dropped_undated=undated,
            notes=(
                f"{ours}: insider trades have no day of filing; when each was known is estimated",
            ),
            options=options,
            source=self._url,
            licence=LICENCE,
        )

    # -- news

    def _news(self, wanted: Wanted) -> Capture:
        # Without an instrument the subject is one of Alpha Vantage's topics.
        theirs = spellings(wanted.symbol)[0] if wanted.instrument else ""
        about = {"tickers": theirs} if theirs else {"topics": wanted.symbol}
        options = {
            "function": "NEWS_SENTIMENT",
            "limit": str(_PAGE),
            "sort": "EARLIEST",
            "time_to": f"{wanted.end:%Y%m%d}T2359",
        }
        begin = f"{wanted.start:%Y%m%d}T0000"
        articles: dict[str, Any] = {}
        for _ in range(_MOST_PAGES):
            feed = self._feed({**options, **about, "time_from": begin}, empty_is_end=bool(articles))
            articles.update((str(one.get("url") or one.get("title")), one) for one in feed)
            if len(feed) < _PAGE:
                break
            later = newest_stamp(feed)[:13]
            if later <= begin:
                raise BadResponse(f"Alpha Vantage has more than {_PAGE} articles in one minute")
            begin = later
        table, undated = article_rows(wanted, theirs, list(articles.values()))
        if not table.num_rows:
            raise NoData(
                f"Alpha Vantage has no dated article on {theirs or wanted.symbol} from "
                f"{wanted.start} to {wanted.end}"
            )
        return Capture(
            rows={"news": table},
            dropped_undated=undated,
            notes=(NEWS_NOTE,),
            options={**options, "time_from": f"{wanted.start:%Y%m%d}T0000"},
            source=self._url,
            licence=LICENCE,
        )

    def _feed(self, params: Mapping[str, str], *, empty_is_end: bool) -> list[dict[str, Any]]:
        try:
            feed = self._ask(params).get("feed")
        except NoData:
            if empty_is_end:
                return []
            raise
        if not isinstance(feed, list) or not all(isinstance(one, dict) for one in feed):
            raise BadResponse("Alpha Vantage's news has another form than expected: no feed")
        return feed

    # -- one question

    @property
    def _url(self) -> str:
        return f"{self._settings.base_url or OWN_URL}/query"

    def _of_company(self, function: str, symbol: str) -> dict[str, Any]:
        answer = self._ask({"function": function, "symbol": symbol})
        self._require_symbol(symbol, answer.get("symbol"), function)
        return answer

    def _require_symbol(self, asked: str, told: object, what: str) -> None:
        if str(told or "").upper() != asked:
            raise BadResponse(
                f"Alpha Vantage was asked for {what} of {asked} and answered with "
                f"{str(told)[:40]!r}: nothing is stored"
            )

    def _ask(self, params: Mapping[str, str]) -> dict[str, Any]:
        answer = fetch(
            self._settings, self._url, {**params, "apikey": self._key}, read=self._told_apart
        )
        value = object_of(answer)
        if not value:
            raise NoData(
                f"Alpha Vantage answered {{}} to {params['function']} of "
                f"{params.get('symbol', '')}, which is how it says that it has nothing"
            )
        return value

    def _told_apart(self, answer: Answer) -> Answer:
        """Give an answer back, or raise what the sentence in it means."""
        if len(answer.body) > _MOST_TALK:
            return answer
        value = json_of(answer)
        if not isinstance(value, dict) or not value or not set(value) <= _TALK:
            return answer
        # The sentence may name the key.
        words = blank(" ".join(str(next(iter(value.values()))).split()), self._key)[:_MOST_SAID]
        raise _meaning(words)


def _meaning(words: str) -> Exception:
    """Return the error that a sentence of Alpha Vantage's stands for."""
    said = f"Alpha Vantage says: {words}"
    low = words.lower()
    if "per minute" in low or "call frequency" in low:
        # It names both of its limits whichever was met; the nearer one passes by waiting.
        return MayPass(RateLimited(f"{said} (run again)", _MINUTE_S), _MINUTE_S)
    if "per second" in low:
        return MayPass(RateLimited(f"{said} (run again)", 1.0), 1.0)
    if "per day" in low or "daily" in low:
        # Waiting is no use today; a freeze that is started again goes on where it stopped.
        return RateLimited(f"{said} (start the freeze again tomorrow, it goes on)")
    if "rate limit" in low or "call volume" in low:
        return MayPass(RateLimited(f"{said} (run again)", _MINUTE_S), _MINUTE_S)
    if "premium" in low:
        return NotConfigured(f"{said} (the plan of the key in {KEY_VARIABLE} lacks it)")
    if "demo" in low or "apikey" in low or "api key" in low:
        return NotConfigured(f"{said} (check the key in {KEY_VARIABLE})")
    if "no articles found" in low:
        return NoData(said)
    if "invalid api call" in low:
        return BadResponse(f"{said} (check the symbol)")
    return BadResponse(said)


def spellings(symbol: str) -> tuple[str, str]:
    """Return a symbol as Alpha Vantage writes it, and as this product does."""
    word = symbol.strip().upper()
    stem, dot, suffix = word.rpartition(".")
    if not dot:
        return word, word
    if suffix in SUFFIXES:
        return word, f"{stem}.{SUFFIXES[suffix]}"
    theirs = next((name for name, ours in SUFFIXES.items() if ours == suffix), suffix)
    return f"{stem}.{theirs}", word


def read_days(
    symbol: str, days: Mapping[str, Any]
) -> tuple[tuple[Quote, ...], tuple[Split, ...], tuple[Dividend, ...]]:
    """Return the days of a series as traded, its splits and its dividends as paid, oldest first.

    Raises:
        BadResponse: A day has another form.
    """
    quotes, splits, dividends = [], [], []
    for written, fields in sorted(days.items()):
        try:
            day = date.fromisoformat(written)
            figures = [float(fields[name]) for name in _FIELDS]
            ratio, slack = split_ratio(figures[6])
        except (KeyError, TypeError, ValueError) as error:
            raise BadResponse(
                f"Alpha Vantage's day {written[:20]!r} of {symbol} has another form ({error!r})"
            ) from None
        quotes.append(
            Quote(
                session=day,
                open=figures[0],
                high=figures[1],
                low=figures[2],
                close=figures[3],
                volume=round(figures[4]),
            )
        )
        if ratio != 1:
            splits.append(Split(ex_session=day, ratio=ratio, slack=slack))
        if figures[5] > 0:
            dividends.append(Dividend(ex_session=day, amount=figures[5]))
    return tuple(quotes), tuple(splits), tuple(dividends)


_FIELDS: Final = (
    "1. open",
    "2. high",
    "3. low",
    "4. close",
    "6. volume",
    "7. dividend amount",
    "8. split coefficient",
)


def _refuse_adjusted(symbol: str, quotes: Sequence[Quote], splits: Sequence[Split]) -> None:
    position = {quote.session: at for at, quote in enumerate(quotes)}
    for split in splits:
        at = position[split.ex_session]
        ratio = float(split.ratio)
        if at == 0 or 1 / _CLEAR_SPLIT < ratio < _CLEAR_SPLIT:
            continue
        change = quotes[at].close / quotes[at - 1].close
        if abs(change - 1) <= _NO_CHANGE:
            raise BadResponse(
                f"Alpha Vantage's prices of {symbol} do not change at its split of "
                f"{split.ex_session}, so they are not as traded: nothing is stored"
            )


def _part(answer: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = answer.get(name)
    if not isinstance(part, dict):
        raise BadResponse(f"Alpha Vantage's prices have no {name!r}: another form than expected")
    return part
