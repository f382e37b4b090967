"""Economic series by the words that people and models use for them.

A word names one or more series of the FRED database, the usual one first. Who captures a word takes
the first; who reads a snapshot takes the first that is on record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType


@dataclass(frozen=True, kw_only=True)
class Series:
    """Name an economic series.

    Attributes:
        id: As FRED writes it.
        words: What people call it, in lower case; the first row that claims a word is the usual.
    """

    id: str
    words: tuple[str, ...]


def _row(name: str, *words: str) -> Series:
    return Series(id=name, words=words)


SERIES: tuple[Series, ...] = (
    # Prices
    _row("CPIAUCSL", "cpi", "inflation", "consumer prices", "consumer price index"),
    _row("CPIAUCNS", "cpi", "cpi unadjusted", "cpi nsa", "cpi u"),
    _row("CPILFESL", "core cpi", "core inflation", "cpi core"),
    _row("PCEPI", "pce", "pce inflation", "pce price index"),
    _row("PCEPILFE", "core pce", "pce core", "core pce inflation"),
    _row("PPIFIS", "ppi", "producer prices", "producer price index"),
    _row("PPIACO", "ppi", "commodity ppi", "wholesale prices"),
    # Work
    _row("UNRATE", "unemployment", "unemployment rate", "jobless rate"),
    _row("PAYEMS", "payrolls", "nonfarm payrolls", "non farm payrolls", "nfp", "jobs"),
    _row("ICSA", "jobless claims", "initial claims", "initial jobless claims", "claims"),
    _row("CES0500000003", "wages", "hourly earnings", "average hourly earnings"),
    _row("JTSJOL", "job openings", "jolts"),
    # Output
    _row("GDPC1", "gdp", "real gdp", "gross domestic product", "economic growth", "growth"),
    _row("GDP", "gdp", "nominal gdp"),
    _row("INDPRO", "industrial production"),
    _row("RSAFS", "retail sales"),
    _row("DGORDER", "durable goods", "durable goods orders"),
    _row("HOUST", "housing starts", "housing"),
    _row("PERMIT", "building permits"),
    _row("UMCSENT", "consumer sentiment", "consumer confidence", "michigan sentiment"),
    # Rates and money
    _row("DFF", "fed funds", "federal funds", "fed funds rate", "federal funds rate"),
    _row("FEDFUNDS", "fed funds", "federal funds", "fed funds rate", "federal funds rate"),
    _row("DFEDTARU", "fed target", "fed funds target", "fomc", "policy rate", "interest rate"),
    _row("DFEDTARL", "fed target lower"),
    _row("DGS3MO", "three month", "3 month", "three month treasury", "treasury bill", "t bill"),
    _row("DGS2", "two year", "2 year", "two year treasury", "2 year treasury", "two year yield"),
    _row(
        "DGS10", "ten year", "10 year", "10y", "ten year treasury", "10 year treasury",
        "ten year yield", "10 year yield", "treasury yield", "treasury",
    ),
    _row("DGS30", "thirty year", "30 year", "30 year treasury"),
    _row("T10Y2Y", "yield curve", "ten year minus two year", "10y 2y", "2s10s"),
    _row("T10YIE", "breakeven", "breakeven inflation", "inflation expectations"),
    _row("BAMLH0A0HYM2", "credit spread", "high yield spread"),
    _row("MORTGAGE30US", "mortgage rate", "mortgage"),
    _row("M2SL", "m2", "money supply"),
    _row("WALCL", "fed balance sheet"),
    # Markets
    _row("VIXCLS", "vix", "volatility"),
    _row("DCOILWTICO", "oil", "wti", "crude oil", "oil price"),
    _row("DTWEXBGS", "dollar", "dollar index"),
    _row("DEXUSEU", "euro", "eur usd", "euro dollar"),
    # Euro area
    _row(
        "CP0000EZ19M086NEST", "euro area cpi", "euro area inflation", "hicp", "euro area hicp",
        "eurozone cpi", "eurozone inflation",
    ),
    _row("LRHUTTTTEZM156S", "euro area unemployment", "eurozone unemployment"),
    _row("CLVMNACSCAB1GQEA19", "euro area gdp", "eurozone gdp"),
    _row("ECBDFR", "ecb", "ecb rate", "deposit facility", "euro area policy rate"),
    _row("ECBMRRFR", "ecb main refinancing", "main refinancing rate"),
    _row("IRLTLT01EZM156N", "euro area ten year", "eurozone ten year", "euro area 10 year"),
)  # fmt: skip


def series_of(word: str) -> tuple[str, ...]:
    """Return the ids of the series that a word names, the usual one first; empty for none.

    Case, hyphens and underscores do not count, and neither does a country's name for the US.
    """
    return _by_word().get(plain(word), ())


def plain(word: str) -> str:
    """Return a word as the table has it."""
    words = word.casefold().replace("-", " ").replace("_", " ").replace("/", " ").split()
    kept = [each for each in words if each not in ("us", "u.s.", "the")]
    return " ".join(kept or words)


@cache
def _by_word() -> Mapping[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for row in SERIES:
        for word in (row.id.casefold(), *row.words):
            found[word] = (*found.get(word, ()), row.id)
    return MappingProxyType(found)
