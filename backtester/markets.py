"""Which calendar a symbol trades on: by suffix, mark or index table, and by nothing else.

An unknown suffix, mark or index is an error that names the table, never a guess. Symbols are those
of Yahoo Finance. Athens, Bucharest, Nicosia and Tel Aviv are left out: `exchange_calendars` 4.13
cannot build their calendars under pandas 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from backtester.errors import UsageError

SUFFIXES: Mapping[str, str] = MappingProxyType(
    {
        # Asia and Pacific
        "T": "XTKS",  # Tokyo
        "HK": "XHKG",  # Hong Kong
        "SS": "XSHG",  # Shanghai
        "SH": "XSHG",  # Shanghai, as Chinese sources write it
        "SZ": "XSHG",  # Shenzhen keeps Shanghai's sessions
        "NS": "XBOM",  # National Stock Exchange of India keeps Bombay's sessions
        "BO": "XBOM",  # Bombay
        "KS": "XKRX",  # Korea
        "KQ": "XKRX",  # Kosdaq
        "TW": "XTAI",  # Taiwan
        "TWO": "XTAI",  # Taipei, over the counter
        "SI": "XSES",  # Singapore
        "KL": "XKLS",  # Kuala Lumpur
        "JK": "XIDX",  # Jakarta
        "BK": "XBKK",  # Bangkok
        "PS": "XPHS",  # Manila
        "KA": "XKAR",  # Karachi
        "AX": "XASX",  # Australia
        "NZ": "XNZE",  # New Zealand
        # Europe
        "L": "XLON",  # London
        "IL": "XLON",  # London, international order book
        "IR": "XDUB",  # Dublin
        "DE": "XETR",  # Xetra
        "F": "XFRA",  # Frankfurt
        "DU": "XDUS",  # Dusseldorf
        "HM": "XHAM",  # Hamburg
        "SG": "XSTU",  # Stuttgart
        "PA": "XPAR",  # Paris
        "AS": "XAMS",  # Amsterdam
        "BR": "XBRU",  # Brussels
        "LS": "XLIS",  # Lisbon
        "MI": "XMIL",  # Milan
        "MC": "XMAD",  # Madrid
        "SW": "XSWX",  # Swiss Exchange
        "VI": "XWBO",  # Vienna
        "CO": "XCSE",  # Copenhagen
        "ST": "XSTO",  # Stockholm
        "HE": "XHEL",  # Helsinki
        "OL": "XOSL",  # Oslo
        "IC": "XICE",  # Iceland
        "WA": "XWAR",  # Warsaw
        "PR": "XPRA",  # Prague
        "BD": "XBUD",  # Budapest
        "IS": "XIST",  # Istanbul
        "RG": "XRIS",  # Riga
        "TL": "XTAL",  # Tallinn
        "VS": "XLIT",  # Vilnius
        "ME": "XMOS",  # Moscow
        # Africa and the Middle East
        "JO": "XJSE",  # Johannesburg
        "SR": "XSAU",  # Saudi Arabia
        # Americas
        "TO": "XTSE",  # Toronto
        "V": "XTSE",  # TSX Venture keeps Toronto's sessions
        "CN": "XTSE",  # Canadian Securities Exchange, likewise
        "NE": "XTSE",  # Cboe Canada, likewise
        "MX": "XMEX",  # Mexico
        "SA": "BVMF",  # Sao Paulo
        "BA": "XBUE",  # Buenos Aires
        "SN": "XSGO",  # Santiago
        "LM": "XLIM",  # Lima
        "CL": "XBOG",  # Bogota
    }
)
# Marks of markets that are no stock exchange. A dash with one or two letters is a share class.
CRYPTO_QUOTES = ("USD", "USDT", "USDC", "EUR", "GBP", "JPY", "BTC", "ETH")
FUTURES_MARK, FX_MARK = "=F", "=X"
NO_SUFFIX = "XNYS"
ALWAYS_OPEN, WEEKDAYS, FUTURES = "24/7", "24/5", "CMES"


@dataclass(frozen=True, kw_only=True)
class Index:
    """Describe a market index.

    Attributes:
        calendar: Calendar of its sessions.
        name: Name.
        currency: Currency of its members.
        basis: ``total`` where its value holds the dividends, else ``price``.
    """

    calendar: str
    name: str
    currency: str
    basis: str = "price"


def _index(calendar: str, name: str, currency: str, basis: str = "price") -> Index:
    return Index(calendar=calendar, name=name, currency=currency, basis=basis)


INDICES: Mapping[str, Index] = MappingProxyType(
    {
        "^GSPC": _index("XNYS", "S&P 500", "USD"),
        "^SP500TR": _index("XNYS", "S&P 500 Total Return", "USD", "total"),
        "^DJI": _index("XNYS", "Dow Jones Industrial Average", "USD"),
        "^IXIC": _index("XNYS", "Nasdaq Composite", "USD"),
        "^NDX": _index("XNYS", "Nasdaq 100", "USD"),
        "^RUT": _index("XNYS", "Russell 2000", "USD"),
        "^NYA": _index("XNYS", "NYSE Composite", "USD"),
        "^VIX": _index("XNYS", "Cboe Volatility Index", "USD"),
        "^IRX": _index("XNYS", "13-week Treasury bill yield", "USD"),
        "^FVX": _index("XNYS", "5-year Treasury yield", "USD"),
        "^TNX": _index("XNYS", "10-year Treasury yield", "USD"),
        "^TYX": _index("XNYS", "30-year Treasury yield", "USD"),
        "^GSPTSE": _index("XTSE", "S&P/TSX Composite", "CAD"),
        "^MXX": _index("XMEX", "S&P/BMV IPC", "MXN"),
        "^BVSP": _index("BVMF", "Ibovespa", "BRL", "total"),
        "^MERV": _index("XBUE", "S&P Merval", "ARS", "total"),
        "^FTSE": _index("XLON", "FTSE 100", "GBP"),
        "^FTMC": _index("XLON", "FTSE 250", "GBP"),
        "^GDAXI": _index("XETR", "DAX", "EUR", "total"),
        "^MDAXI": _index("XETR", "MDAX", "EUR", "total"),
        "^STOXX50E": _index("XETR", "Euro Stoxx 50", "EUR"),
        "^STOXX": _index("XETR", "Stoxx Europe 600", "EUR"),
        "^FCHI": _index("XPAR", "CAC 40", "EUR"),
        "^AEX": _index("XAMS", "AEX", "EUR"),
        "^BFX": _index("XBRU", "BEL 20", "EUR"),
        "^IBEX": _index("XMAD", "IBEX 35", "EUR"),
        "^SSMI": _index("XSWX", "Swiss Market Index", "CHF"),
        "^ATX": _index("XWBO", "ATX", "EUR"),
        "^OMX": _index("XSTO", "OMX Stockholm 30", "SEK"),
        "^OMXC25": _index("XCSE", "OMX Copenhagen 25", "DKK"),
        "^OMXH25": _index("XHEL", "OMX Helsinki 25", "EUR"),
        "^N225": _index("XTKS", "Nikkei 225", "JPY"),
        "^HSI": _index("XHKG", "Hang Seng", "HKD"),
        "^HSCE": _index("XHKG", "Hang Seng China Enterprises", "HKD"),
        "^KS11": _index("XKRX", "KOSPI", "KRW"),
        "^KQ11": _index("XKRX", "KOSDAQ", "KRW"),
        "^TWII": _index("XTAI", "Taiwan Weighted", "TWD"),
        "^STI": _index("XSES", "Straits Times", "SGD"),
        "^KLSE": _index("XKLS", "FTSE Bursa Malaysia KLCI", "MYR"),
        "^JKSE": _index("XIDX", "Jakarta Composite", "IDR"),
        "^NSEI": _index("XBOM", "Nifty 50", "INR"),
        "^BSESN": _index("XBOM", "S&P BSE Sensex", "INR"),
        "^AXJO": _index("XASX", "S&P/ASX 200", "AUD"),
        "^AORD": _index("XASX", "All Ordinaries", "AUD"),
        "^NZ50": _index("XNZE", "S&P/NZX 50", "NZD", "total"),
    }
)

_CODES = frozenset(SUFFIXES.values()) | {index.calendar for index in INDICES.values()}
CODES = tuple(sorted(_CODES | {NO_SUFFIX, ALWAYS_OPEN, WEEKDAYS, FUTURES}))


def calendar_code(symbol: str) -> str:
    """Return the calendar code of a symbol: by index table, mark, suffix, else New York.

    Raises:
        UsageError: For a suffix, mark or index that the tables do not hold.
    """
    word = symbol.strip().upper()
    if word.startswith("^"):
        if word in INDICES:
            return INDICES[word].calendar
        raise _unknown(symbol, "index", "INDICES", INDICES)
    if "=" in word:
        if word.endswith(FUTURES_MARK):
            return FUTURES
        if word.endswith(FX_MARK):
            return WEEKDAYS
        raise _unknown(symbol, "mark", "marks", (FUTURES_MARK, FX_MARK))
    if "." in word:
        return _code_of_suffix(symbol, word)
    tail = word.rpartition("-")[2] if "-" in word else ""
    if tail in CRYPTO_QUOTES:
        return ALWAYS_OPEN
    if len(tail) > 2:
        raise _unknown(symbol, "pair", "CRYPTO_QUOTES", CRYPTO_QUOTES)
    return NO_SUFFIX


def _code_of_suffix(symbol: str, word: str) -> str:
    stem, _, suffix = word.rpartition(".")
    if suffix in SUFFIXES:
        return SUFFIXES[suffix]
    if len(suffix) == 1 and stem.isalpha():
        raise UsageError(
            f"{symbol!r}: .{suffix} is no market of the suffix table (SUFFIXES in "
            f"backtester/markets.py); for a class of a US share write {stem}-{suffix}"
        )
    raise _unknown(symbol, "suffix", "SUFFIXES", SUFFIXES)


def _unknown(symbol: str, what: str, table: str, known: Iterable[str]) -> UsageError:
    return UsageError(
        f"{symbol!r} has an unknown {what}, so its calendar is not known: the table {table} in "
        f"backtester/markets.py has {' '.join(known)}"
    )
