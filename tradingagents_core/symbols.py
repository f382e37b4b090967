"""How symbols are written: every spelling that brokers and exchanges use, brought to one.

The one spelling is that of the snapshots: exchange suffix (`7203.T`), ``=F`` for futures, ``=X``
for currency pairs, ``-USD`` for crypto, ``^`` for indices. A symbol is normalised once, where it
comes in; everything behind that compares symbols as they stand.

Only spellings that cannot be a listed company's are rewritten: no exchange has a ticker of six
letters made of two currency codes, or one that ends in USDT. ``GOLD`` and ``OIL`` are left alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

# What brokers sell as a contract for difference -> the future or index behind it.
METALS: Mapping[str, str] = MappingProxyType(
    {"XAU": "GC=F", "XAG": "SI=F", "XPT": "PL=F", "XPD": "PA=F", "XCU": "HG=F"}
)
CONTRACTS: Mapping[str, str] = MappingProxyType(
    {
        # energy
        **dict.fromkeys(("USOIL", "WTIUSD", "XTIUSD", "WTICOUSD", "USOUSD"), "CL=F"),
        **dict.fromkeys(("UKOIL", "BRENTUSD", "XBRUSD", "BCOUSD", "UKOUSD"), "BZ=F"),
        **dict.fromkeys(("NATGAS", "NATGASUSD", "XNGUSD", "NGASUSD"), "NG=F"),
        # indices
        **dict.fromkeys(("US500", "SPX500", "SPX500USD", "US500USD"), "^GSPC"),
        **dict.fromkeys(("US100", "NAS100", "NAS100USD", "USTEC", "US100USD"), "^NDX"),
        **dict.fromkeys(("US30", "WS30", "DJI30", "US30USD"), "^DJI"),
        **dict.fromkeys(("US2000", "US2000USD", "RUSS2000"), "^RUT"),
        **dict.fromkeys(("GER40", "GER30", "DE40", "DE30", "DE30EUR", "DAX40"), "^GDAXI"),
        **dict.fromkeys(("UK100", "UK100GBP", "FTSE100"), "^FTSE"),
        **dict.fromkeys(("FRA40", "FR40", "FR40EUR", "CAC40"), "^FCHI"),
        **dict.fromkeys(("EU50", "EUSTX50", "STOXX50", "EU50EUR"), "^STOXX50E"),
        **dict.fromkeys(("JP225", "JPN225", "JP225USD"), "^N225"),
        **dict.fromkeys(("HK50", "HKG50", "HK33HKD"), "^HSI"),
        **dict.fromkeys(("AUS200", "AU200AUD"), "^AXJO"),
    }
)
CURRENCIES = frozenset(
    {
        *("USD", "EUR", "JPY", "GBP", "CHF", "AUD", "NZD", "CAD", "CNY", "CNH", "HKD", "SGD"),
        *("SEK", "NOK", "DKK", "PLN", "CZK", "HUF", "TRY", "ZAR", "MXN", "BRL", "INR", "KRW"),
        *("TWD", "THB", "IDR", "MYR", "PHP", "ILS", "RON", "RUB", "SAR", "AED", "CLP", "COP"),
    }
)
# Coins whose pair with the dollar is written in one word; others need a stable coin or a hyphen.
COINS = frozenset(
    {
        *("BTC", "XBT", "ETH", "SOL", "BNB", "XRP", "ADA", "DOGE", "AVAX", "DOT", "TRX", "LINK"),
        *("MATIC", "LTC", "BCH", "ETC", "XLM", "ATOM", "UNI", "NEAR", "FIL", "APT", "ARB"),
        *("SHIB", "PEPE", "XMR", "EOS", "AAVE", "ALGO", "SUI", "TON", "HBAR", "USDT", "USDC"),
    }
)
STABLE_COINS = ("USDT", "USDC")
_OTHER_NAMES: Mapping[str, str] = MappingProxyType({"XBT": "BTC"})
_SUFFIXES: Mapping[str, str] = MappingProxyType({".SH": ".SS"})
_LONGEST_COIN = 10


def normalize_symbol(symbol: str) -> str:
    """Return the one spelling of a symbol; a spelling that is not known comes back in capitals.

    Args:
        symbol: As a person, a broker or a model wrote it: ``xauusd+``, ``BTC/USDT``,
            ``600519.SH``, ``eurusd``.

    Returns:
        ``GC=F``, ``BTC-USD``, ``600519.SS``, ``EURUSD=X``. Applied again it changes nothing.
    """
    word = symbol.strip().upper()
    while word.endswith("+"):  # a broker's mark for another kind of account
        word = word[:-1].rstrip()
    for suffix, listed in _SUFFIXES.items():
        if word.endswith(suffix):
            return word.removesuffix(suffix) + listed
    pair = word.replace("/", "").replace("_", "")
    if pair in CONTRACTS:
        return CONTRACTS[pair]
    return _pair(word) or word


def _pair(word: str) -> str | None:
    """Return the spelling of something that is quoted in a currency or a stable coin, or None."""
    base, quote = _halves(word)
    if not base:
        return None
    if base in CURRENCIES and quote in STABLE_COINS:
        quote = "USD"  # no coin goes by a currency's name
    if base in METALS and quote in ("USD", *STABLE_COINS):
        return METALS[base]
    if base in CURRENCIES and quote in CURRENCIES and base != quote:
        return f"{base}{quote}=X"
    coin = _OTHER_NAMES.get(base, base)
    if quote in STABLE_COINS or (quote == "USD" and coin in COINS):
        return f"{coin}-USD"
    return None


def _halves(word: str) -> tuple[str, str]:
    """Split a pair into base and quote; two empty words for what is none."""
    for mark in ("/", "_", "-"):
        if mark in word:
            base, _, quote = word.partition(mark)
            return (base, quote) if _is_coin(base) and quote.isalpha() else ("", "")
    for quote in (*STABLE_COINS, *sorted(CURRENCIES)):
        base = word.removesuffix(quote)
        if base != word and _is_coin(base):
            return base, quote
    return "", ""


def _is_coin(base: str) -> bool:
    return base.isascii() and base.isalnum() and len(base) <= _LONGEST_COIN
