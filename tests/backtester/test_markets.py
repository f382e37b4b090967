"""Which calendar a symbol trades on."""

from __future__ import annotations

import pytest

from backtester.calendar import calendar_by_code, calendar_of
from backtester.errors import UsageError
from backtester.markets import CODES, INDICES, calendar_code


@pytest.mark.parametrize(
    ("symbol", "code"),
    [
        ("AAPL", "XNYS"),
        ("aapl", "XNYS"),
        ("BRK-B", "XNYS"),
        ("BAC-PL", "XNYS"),
        ("7203.T", "XTKS"),
        ("0700.HK", "XHKG"),
        ("REL.L", "XLON"),
        ("600519.SS", "XSHG"),
        ("600519.SH", "XSHG"),
        ("000001.SZ", "XSHG"),
        ("INFY.NS", "XBOM"),
        ("500209.BO", "XBOM"),
        ("SHOP.TO", "XTSE"),
        ("BHP.AX", "XASX"),
        ("SAP.DE", "XETR"),
        ("MC.PA", "XPAR"),
        ("ENI.MI", "XMIL"),
        ("IBE.MC", "XMAD"),
        ("005930.KS", "XKRX"),
        ("PETR4.SA", "BVMF"),
        ("ES=F", "CMES"),
        ("EURUSD=X", "24/5"),
        ("BTC-USD", "24/7"),
        ("ETH-EUR", "24/7"),
        ("^GSPC", "XNYS"),
        ("^N225", "XTKS"),
        ("^HSI", "XHKG"),
        ("^FTSE", "XLON"),
        ("^GDAXI", "XETR"),
        ("^GSPTSE", "XTSE"),
        ("^AXJO", "XASX"),
        ("^NSEI", "XBOM"),
        ("^BSESN", "XBOM"),
        ("^BVSP", "BVMF"),
        ("000001.SS", "XSHG"),
        ("399001.SZ", "XSHG"),
    ],
)
def test_suffix_mark_or_index_table_names_the_calendar(symbol: str, code: str) -> None:
    assert calendar_code(symbol) == code


def test_a_class_share_written_with_a_dot_is_answered_with_the_dash() -> None:
    with pytest.raises(UsageError, match="write BRK-B"):
        calendar_of("BRK.B")


@pytest.mark.parametrize(
    ("symbol", "table"),
    [
        ("XYZ.QQ", "SUFFIXES"),
        ("1234.Q", "SUFFIXES"),
        ("^NOSUCH", "INDICES"),
        ("ABC=Z", "marks"),
        ("BTC-XYZ", "CRYPTO_QUOTES"),
    ],
)
def test_an_unknown_market_is_an_error_that_names_the_table(symbol: str, table: str) -> None:
    with pytest.raises(UsageError, match=table):
        calendar_code(symbol)


def test_only_codes_of_the_tables_are_calendars() -> None:
    with pytest.raises(UsageError, match="'XXXX' is no calendar"):
        calendar_by_code("XXXX")


def test_an_index_says_whether_its_value_holds_dividends() -> None:
    assert INDICES["^GSPC"].basis == "price"
    assert INDICES["^GDAXI"].basis == "total"
    assert {index.basis for index in INDICES.values()} == {"price", "total"}


@pytest.mark.slow
def test_every_calendar_of_the_tables_can_be_built() -> None:
    for code in CODES:
        calendar = calendar_by_code(code)
        first = calendar.sessions(calendar.first_day, calendar.last_day)[0]
        assert calendar.open_utc(first) < calendar.close_utc(first)
