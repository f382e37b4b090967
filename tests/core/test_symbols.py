"""One spelling for every symbol, whoever wrote it."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradingagents_core.symbols import (
    COINS,
    CONTRACTS,
    CURRENCIES,
    METALS,
    normalize_symbol,
)

SPELLINGS = [
    # metals and energy
    ("XAUUSD", "GC=F"),
    ("xauusd", "GC=F"),
    ("XAUUSD+", "GC=F"),
    ("XAU/USD", "GC=F"),
    ("XAU_USD", "GC=F"),
    ("XAGUSD", "SI=F"),
    ("XPTUSD", "PL=F"),
    ("XPDUSD", "PA=F"),
    ("USOIL", "CL=F"),
    ("WTICO_USD", "CL=F"),
    ("UKOIL+", "BZ=F"),
    ("NATGAS", "NG=F"),
    # index contracts
    ("SPX500", "^GSPC"),
    ("US500", "^GSPC"),
    ("nas100", "^NDX"),
    ("NAS100_USD", "^NDX"),
    ("US30", "^DJI"),
    ("GER40", "^GDAXI"),
    ("UK100", "^FTSE"),
    ("JP225", "^N225"),
    ("HK50", "^HSI"),
    # currencies
    ("EURUSD", "EURUSD=X"),
    ("eur/usd", "EURUSD=X"),
    ("EUR_USD", "EURUSD=X"),
    ("USDJPY+", "USDJPY=X"),
    ("EURUSD=X", "EURUSD=X"),
    # crypto
    ("BTCUSD", "BTC-USD"),
    ("BTCUSDT", "BTC-USD"),
    ("BTCUSDC", "BTC-USD"),
    ("BTC-USDT", "BTC-USD"),
    ("BTC/USDT", "BTC-USD"),
    ("btc-usd", "BTC-USD"),
    ("XBTUSD", "BTC-USD"),
    ("ETH/USD", "ETH-USD"),
    ("1INCHUSDT", "1INCH-USD"),
    ("USDCUSDT", "USDC-USD"),
    # exchanges
    ("600519.SH", "600519.SS"),
    ("600519.ss", "600519.SS"),
    ("000001.SZ", "000001.SZ"),
    ("7203.t", "7203.T"),
    ("0700.HK", "0700.HK"),
    ("CNC.TO", "CNC.TO"),
    # a currency in a stable coin is that currency in dollars, and a dollar is no pair
    ("EURUSDT", "EURUSD=X"),
    ("gbp/usdc", "GBPUSD=X"),
    ("USDUSDT", "USDUSDT"),
    ("USD-USDC", "USD-USDC"),
    # what is one already, or somebody else's word
    ("aapl", "AAPL"),
    (" NVDA ", "NVDA"),
    ("BRK-B", "BRK-B"),
    ("BRK.B", "BRK.B"),
    ("^gspc", "^GSPC"),
    ("GC=F", "GC=F"),
    ("GOLD", "GOLD"),
    ("OIL", "OIL"),
    ("USD", "USD"),
    ("USDUSD", "USDUSD"),
    ("ABUSD", "ABUSD"),
    ("DX-Y.NYB", "DX-Y.NYB"),
    ("", ""),
]


@pytest.mark.parametrize(("written", "meant"), SPELLINGS)
def test_a_symbol_has_one_spelling(written: str, meant: str) -> None:
    assert normalize_symbol(written) == meant


@given(st.text(max_size=20))
def test_a_normal_symbol_stays_as_it_is(text: str) -> None:
    once = normalize_symbol(text)
    assert normalize_symbol(once) == once


def test_a_pair_that_is_normal_stays_as_it_is() -> None:
    bases = sorted(CURRENCIES | COINS | METALS.keys())
    for base, quote in product(bases, ["USD", "EUR", "USDT", "USDC"]):
        for mark in ("", "-", "/", "_"):
            once = normalize_symbol(f"{base}{mark}{quote}")
            assert normalize_symbol(once) == once


@pytest.mark.parametrize("coin", sorted(COINS - {"XBT"}))
@pytest.mark.parametrize("quote", ["USD", "USDT", "USDC"])
def test_every_coin_is_quoted_in_dollars(coin: str, quote: str) -> None:
    for mark in ("", "-", "/", "_"):
        assert normalize_symbol(f"{coin}{mark}{quote}") == f"{coin}-USD"


def test_what_a_table_leads_to_is_normal_itself() -> None:
    for target in (*METALS.values(), *CONTRACTS.values()):
        assert normalize_symbol(target) == target


def test_no_name_means_two_things() -> None:
    assert not CURRENCIES & COINS
    assert not set(METALS) & (CURRENCIES | COINS)
    assert [name for name in CONTRACTS if name[:3] in METALS and name[3:] == "USD"] == []


@given(st.text(alphabet="ABCDEFGHIJKLMNOPQRSTUVWXYZ", min_size=1, max_size=5))
def test_no_listed_ticker_of_five_letters_becomes_something_else(ticker: str) -> None:
    if ticker not in CONTRACTS and not ticker.endswith(("USDT", "USDC")):
        assert normalize_symbol(ticker) == ticker
