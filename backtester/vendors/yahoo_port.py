"""The one place that talks to yfinance: frames out, typed errors for all that goes wrong.

yfinance answers over a client that no HTTP recorder sees, and gives an empty frame where it could
not read an answer. So what is frozen are its frames, asked for with every option spelled out, with
its own swallowing of errors switched off; and an empty frame is never "there is none" by itself.
"""

from __future__ import annotations

import functools
import logging
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from backtester.vendors.base import BadResponse, NoData, RateLimited, VendorError, VendorSettings
from backtester.vendors.web import MayPass, persist

if TYPE_CHECKING:
    import pandas as pd

SOURCE: Final = "Yahoo Finance, by yfinance"
# Every option of `history` besides the range and the time-out: defaults have changed before.
# Nothing is adjusted for dividends, repaired or rounded, and no row is left out unseen.
HISTORY_OPTIONS: Mapping[str, bool | str] = MappingProxyType(
    {
        "interval": "1d",
        "prepost": False,
        "actions": True,
        "auto_adjust": False,
        "back_adjust": False,
        "repair": False,
        "keepna": True,
        "rounding": False,
    }
)
FACTS: Final = (
    "symbol",
    "currency",
    "instrumentType",
    "exchangeName",
    "fullExchangeName",
    "exchangeTimezoneName",
    "longName",
    "shortName",
    "firstTradeDate",
)
STATEMENTS: Final = ("income", "balance", "cashflow")
FREQUENCIES: Final = ("quarterly", "yearly")
_MOST_NEWS: Final = 100
_MOST_SAID: Final = 200
_RATE_LIMIT: Final = 429
_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True)
class History:
    """Hold a daily history.

    Attributes:
        frame: As yfinance gives it with actions, zone-aware days.
        facts: What came along: symbol, currency, exchange, kind, names, first day.
        dividend_currencies: Ex day -> currency, where Yahoo names one that is not the quote's.
    """

    frame: pd.DataFrame
    facts: Mapping[str, Any]
    dividend_currencies: Mapping[date, str]


class YahooPort(Protocol):
    """What the vendor needs of yfinance; each call is one question of one symbol."""

    def history(self, symbol: str, start: date, until: date) -> History:
        """Return the days from start to before until."""

    def news(self, symbol: str) -> list[Any]:
        """Return the newest articles."""

    def insider(self, symbol: str) -> pd.DataFrame:
        """Return insiders' trades."""

    def statement(self, symbol: str, statement: str, frequency: str) -> pd.DataFrame:
        """Return a statement: items down, period ends across."""

    def reporting_currency(self, symbol: str) -> str | None:
        """Return the currency that the company reports in."""


class YFinance:
    """Ask yfinance.

    Args:
        settings: Of the vendor.
        session: Session that stands in for yfinance's own; tests hand one in.
    """

    def __init__(self, settings: VendorSettings, session: object | None = None) -> None:
        self._settings = settings
        self._session = session

    def history(self, symbol: str, start: date, until: date) -> History:
        """Return the days from start to before until, with actions, adjusted for splits alone.

        Raises:
            RateLimited: Yahoo asks to come back later.
            NoData: Yahoo says in words that it has none.
            BadResponse: The answer cannot be read, or is empty without a reason.
            VendorError: It failed in another way.
        """

        def ask(ticker: Any) -> History:
            frame = ticker.history(
                start=start.isoformat(),
                end=until.isoformat(),
                timeout=self._settings.timeout_s,
                **HISTORY_OPTIONS,
            )
            told = ticker.get_history_metadata(repair=False)
            # Not all of it: some of its entries would be asked for when they are read.
            facts = {name: told[name] for name in FACTS if name in told}
            return History(frame=frame, facts=facts, dividend_currencies=_foreign(ticker))

        return self._ask(symbol, "the daily prices", ask)

    def news(self, symbol: str) -> list[Any]:
        """Return the newest articles; see `history` for the errors."""
        return self._ask(
            symbol, "the news", lambda ticker: list(ticker.get_news(count=_MOST_NEWS, tab="news"))
        )

    def insider(self, symbol: str) -> pd.DataFrame:
        """Return insiders' trades; see `history` for the errors."""

        def ask(ticker: Any) -> pd.DataFrame:
            found: pd.DataFrame = ticker.get_insider_transactions()
            return found

        return self._ask(symbol, "the insider trades", ask)

    def statement(self, symbol: str, statement: str, frequency: str) -> pd.DataFrame:
        """Return a statement: items down, period ends across; see `history` for the errors."""

        def ask(ticker: Any) -> pd.DataFrame:
            methods = {
                "income": ticker.get_income_stmt,
                "balance": ticker.get_balance_sheet,
                "cashflow": ticker.get_cash_flow,
            }
            found: pd.DataFrame = methods[statement](as_dict=False, pretty=False, freq=frequency)
            return found

        return self._ask(symbol, f"the {frequency} {statement} statement", ask)

    def reporting_currency(self, symbol: str) -> str | None:
        """Return the currency that the company reports in; see `history` for the errors."""
        found = self._ask(symbol, "the company's profile", lambda ticker: ticker.get_info())
        currency = found.get("financialCurrency")
        return currency if isinstance(currency, str) and currency else None

    def _ask(self, symbol: str, what: str, ask: Callable[[Any], _T]) -> _T:
        import yfinance

        _own_cache()
        _silenced()

        def attempt() -> _T:
            self._settings.pace.wait(self._settings.sleep)
            # It would answer a second try with the bad answer of the first.
            yfinance.data.YfData.cache_get.cache_clear()
            with _errors_shown(), _told_apart(symbol, what):
                # A new ticker for each try: one keeps what it was given, failures too.
                return ask(yfinance.Ticker(symbol, session=self._session))

        return persist(self._settings, attempt, seed=f"yahoo {symbol} {what}".encode())


@functools.cache
def _silenced() -> None:
    # What it has to say comes as an error; its own lines would stand between ours.
    logging.getLogger("yfinance").addHandler(logging.NullHandler())


@functools.cache
def _own_cache() -> tempfile.TemporaryDirectory[str]:
    """Have yfinance keep cookies and zones in a folder that goes with the process.

    Its own place is the user's cache folder, where nobody asked for anything to be written.
    """
    from yfinance.cache import set_cache_location

    folder = tempfile.TemporaryDirectory(prefix="backtester-yfinance-", ignore_cleanup_errors=True)
    set_cache_location(folder.name)
    return folder


def _foreign(ticker: Any) -> dict[date, str]:
    # yfinance leaves the dividends' own currency out of its frame; the history has it beside.
    paid = ticker._lazy_load_price_history()._dividends
    if "currency" not in getattr(paid, "columns", ()):
        return {}
    return {stamp.date(): str(word) for stamp, word in paid["currency"].items() if word}


_showing = threading.Lock()
_shown_by = 0
_hidden_before: bool | None = True


@contextmanager
def _errors_shown() -> Iterator[None]:
    """Have yfinance raise what it would otherwise log; its switch is one for the process."""
    import yfinance

    global _shown_by, _hidden_before
    debug = yfinance.config.debug
    with _showing:
        if _shown_by == 0:
            _hidden_before = debug.hide_exceptions
            debug.hide_exceptions = False
        _shown_by += 1
    try:
        yield
    finally:
        with _showing:
            _shown_by -= 1
            if _shown_by == 0:
                debug.hide_exceptions = _hidden_before


@contextmanager
def _told_apart(symbol: str, what: str) -> Iterator[None]:
    """Give each failure its kind; whatever another try may not meet is a `MayPass`."""
    from peewee import PeeweeException
    from yfinance import exceptions

    asked = f"Yahoo was asked for {what} of {symbol}"
    try:
        yield
    except exceptions.YFException as error:
        raise _of_yfinance(asked, error) from None
    except ValueError as error:
        # HTML or half a body where JSON should be; the decoders of all its clients raise this.
        raise MayPass(
            BadResponse(f"{asked} and answered no whole JSON ({_said(error)}): try later")
        ) from None
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise BadResponse(
            f"{asked}, and yfinance could not read the answer ({type(error).__name__}: "
            f"{_said(error)}): its form may have changed; is yfinance new enough?"
        ) from error
    except OSError as error:
        raise _of_transport(asked, error) from None
    except PeeweeException as error:
        # yfinance keeps cookies in a small database, which another process may be writing.
        raise MayPass(
            VendorError(f"{asked}, but yfinance's own cache cannot be used: {_said(error)}")
        ) from None


def _of_yfinance(asked: str, error: Exception) -> Exception:
    from yfinance import exceptions

    if isinstance(error, exceptions.YFRateLimitError):
        return MayPass(
            RateLimited(f"{asked} and asks to come back later (429): run again in some minutes")
        )
    if isinstance(error, exceptions.YFPricesMissingError):
        if error.yahoo_reason is not None:
            return NoData(f"{asked} and has none: {_said(error.yahoo_reason)}")
        return BadResponse(f"{asked} and gave neither prices nor a reason: try later")
    if isinstance(error, exceptions.YFTzMissingError):
        return BadResponse(f"{asked} and named no time zone for it: check the symbol, or try later")
    if isinstance(error, exceptions.YFDataException):
        return MayPass(BadResponse(f"{asked}: {_said(error)}; try later"))
    return BadResponse(f"{asked}, without use: {_said(error)}; check the symbol")


def _of_transport(asked: str, error: OSError) -> Exception:
    # The errors of both HTTP clients that yfinance may use are OSErrors.
    response = getattr(error, "response", None)
    status = getattr(response, "status_code", None)
    if status == _RATE_LIMIT:
        return MayPass(RateLimited(f"{asked} and asks to come back later (429): run again"))
    if isinstance(status, int) and 400 <= status < 500:
        return BadResponse(f"{asked} and answered {status}: check the symbol")
    if isinstance(status, int) and status >= 500:
        return MayPass(VendorError(f"{asked} and answered {status}: try later"))
    return MayPass(VendorError(f"{asked}, but it cannot be reached ({_said(error)})"))


def _said(words: object) -> str:
    return " ".join(str(words).split())[:_MOST_SAID]


def day_after(day: date) -> date:
    """Return the next day: Yahoo's ranges end before their last one."""
    return day + timedelta(days=1)
