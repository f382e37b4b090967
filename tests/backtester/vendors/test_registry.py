"""The table of vendors agrees with the vendors, and takes one of the user's own."""

from __future__ import annotations

import pytest

from backtester.errors import UsageError
from backtester.schema import TABLES
from backtester.vendors.base import Capture, VendorRow, VendorSettings, Wanted
from backtester.vendors.registry import VENDORS, vendor_row


@pytest.mark.parametrize("row", VENDORS.values(), ids=lambda row: row.name)
def test_a_vendor_is_what_its_row_says(row: VendorRow) -> None:
    vendor = row.build(VendorSettings(api_key="0123456789abcdef", user_agent="Me me@example.test"))
    assert vendor.name == row.name
    assert vendor.tables == row.tables
    assert row.tables <= set(TABLES)
    assert row.licence
    assert row.note
    assert bool(row.key_variable) or not row.key_required


class Own:
    """A vendor as a user writes it."""

    name = "own"
    tables = frozenset({"news"})
    key_variable = "OWN_KEY"
    pause_s = 2.0

    def __init__(self, settings: VendorSettings) -> None:
        self.settings = settings

    def capture(self, wanted: Wanted) -> Capture:
        raise NotImplementedError


class NoTables(Own):
    tables = frozenset({"gossip"})


def test_a_vendor_of_ones_own_needs_no_row() -> None:
    row = vendor_row(f"{__name__}:Own")
    assert (row.tables, row.key_variable, row.pause_s) == (frozenset({"news"}), "OWN_KEY", 2.0)
    assert row.build(VendorSettings()).name == "own"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("bloomberg", "write one of files, yfinance"),
        ("nowhere.module:Vendor", "cannot be loaded"),
        (f"{__name__}:Nothing", "cannot be loaded"),
        (f"{__name__}:NoTables", "has no attribute tables"),
        (f"{__name__}:VENDORS", "is no class with a method capture"),
    ],
)
def test_a_vendor_that_is_none_says_what_to_write(name: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        vendor_row(name)
