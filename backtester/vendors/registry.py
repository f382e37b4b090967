"""The table of vendors: a new one is one file and one row, and is imported when it is asked.

`vendor_row` finds a vendor by name; ``package.module:Class`` names a vendor of the user's own,
which is held to the same contract (`backtester.vendors.base.Vendor`).
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from backtester.errors import UsageError
from backtester.schema import TABLES
from backtester.vendors.base import Vendor, VendorError, VendorRow, VendorSettings
from backtester.vendors.own_code import OWN, contained

# A pause of a day would be a mistake.
_LONGEST_PAUSE_S: Final = 3_600.0


def _files(settings: VendorSettings) -> Vendor:
    from backtester.vendors.files import Files

    return Files(settings)


def _yahoo(settings: VendorSettings) -> Vendor:
    from backtester.vendors.yahoo import Yahoo

    return Yahoo(settings)


def _sec(settings: VendorSettings) -> Vendor:
    from backtester.vendors.sec import Sec

    return Sec(settings)


def _alpha_vantage(settings: VendorSettings) -> Vendor:
    from backtester.vendors.alpha_vantage import AlphaVantage

    return AlphaVantage(settings)


def _fred(settings: VendorSettings) -> Vendor:
    from backtester.vendors.fred import Fred

    return Fred(settings)


def _polymarket(settings: VendorSettings) -> Vendor:
    from backtester.vendors.polymarket import Polymarket

    return Polymarket(settings)


def _stocktwits(settings: VendorSettings) -> Vendor:
    from backtester.vendors.stocktwits import StockTwits

    return StockTwits(settings)


def _reddit(settings: VendorSettings) -> Vendor:
    from backtester.vendors.reddit import Reddit

    return Reddit(settings)


_ROWS: tuple[VendorRow, ...] = (
    VendorRow(
        name="files",
        build=_files,
        tables=frozenset(TABLES),
        key_variable=None,
        key_required=False,
        pause_s=0.0,
        licence="as declared",
        note="CSV, Parquet or JSON files of one's own, with a column map",
    ),
    VendorRow(
        name="yfinance",
        build=_yahoo,
        tables=frozenset({"bars", "actions", "instruments", "statements", "news", "insider"}),
        key_variable=None,
        key_required=False,
        pause_s=0.5,
        licence="Yahoo's terms; personal use",
        note="statements by period end alone (estimated); news of the last days alone",
    ),
    VendorRow(
        name="sec",
        build=_sec,
        tables=frozenset({"statements", "insider", "instruments"}),
        key_variable=None,
        key_required=False,
        pause_s=0.15,
        licence="public domain (SEC EDGAR)",
        note="as filed, by acceptance; wants a user agent with a name and an e-mail address",
    ),
    VendorRow(
        name="alpha_vantage",
        build=_alpha_vantage,
        tables=frozenset({"bars", "actions", "instruments", "statements", "news", "insider"}),
        key_variable="ALPHA_VANTAGE_API_KEY",
        key_required=True,
        pause_s=1.0,
        licence="Alpha Vantage's terms",
        note="the free tier gives 25 requests a day",
    ),
    VendorRow(
        name="fred",
        build=_fred,
        tables=frozenset({"macro"}),
        key_variable="FRED_API_KEY",
        key_required=True,
        pause_s=0.6,
        licence="FRED's terms; series carry their own",
        note="vintages of ALFRED",
    ),
    VendorRow(
        name="polymarket",
        build=_polymarket,
        tables=frozenset({"prediction_markets"}),
        key_variable=None,
        key_required=False,
        pause_s=0.2,
        licence="Polymarket's terms",
        note="price history of markets",
    ),
    VendorRow(
        name="stocktwits",
        build=_stocktwits,
        tables=frozenset({"social"}),
        key_variable=None,
        key_required=False,
        pause_s=1.0,
        licence="StockTwits' terms",
        note="recent posts alone; authors are not stored",
    ),
    VendorRow(
        name="reddit",
        build=_reddit,
        tables=frozenset({"social"}),
        key_variable=None,
        key_required=False,
        pause_s=2.0,
        licence="Reddit's terms",
        note="recent posts alone; authors are not stored",
    ),
)
VENDORS: Mapping[str, VendorRow] = MappingProxyType({row.name: row for row in _ROWS})


def vendor_row(name: str) -> VendorRow:
    """Return the row of a vendor.

    Args:
        name: A name of the table, or ``package.module:Class`` for one of the user's own.

    Raises:
        UsageError: There is none, with the names that are; or the class cannot be loaded.
    """
    if name in VENDORS:
        return VENDORS[name]
    if OWN in name:
        return _own_row(name)
    raise UsageError(
        f"vendor {name!r} is not known: write one of {', '.join(VENDORS)}, or package.module:Class"
    )


def _own_row(name: str) -> VendorRow:
    try:
        with contained(name):
            return _described(name, _loaded(name))
    except VendorError as error:
        # What it raised says more to its owner than that it failed.
        said = error.__cause__
        if said is None or isinstance(said, SystemExit):
            raise
        raise UsageError(
            f"vendor {name!r} cannot be loaded ({type(said).__name__}: {said}): write "
            "package.module:Class, of a module that Python finds (PYTHONPATH=. for one in this "
            "folder)"
        ) from said


def _loaded(name: str) -> Any:
    module, _, attribute = name.partition(OWN)
    return getattr(importlib.import_module(module), attribute)


def _described(name: str, made: Any) -> VendorRow:
    tables = getattr(made, "tables", None)
    if not callable(made) or not callable(getattr(made, "capture", None)):
        raise UsageError(f"vendor {name!r} is no class with a method capture")
    if not isinstance(tables, frozenset | set) or not tables or not tables <= set(TABLES):
        raise UsageError(
            f"vendor {name!r} has no attribute tables with names of tables: {', '.join(TABLES)}"
        )
    pause_s = float(getattr(made, "pause_s", 0.0))
    if not 0.0 <= pause_s <= _LONGEST_PAUSE_S:
        raise UsageError(
            f"vendor {name!r} has a pause_s of {pause_s}: write 0 to {_LONGEST_PAUSE_S:.0f} seconds"
        )
    return VendorRow(
        name=name,
        build=made,
        tables=frozenset(tables),
        key_variable=getattr(made, "key_variable", None),
        key_required=bool(getattr(made, "key_required", False)),
        pause_s=pause_s,
        licence=str(getattr(made, "licence", "as its vendor states")),
        note="a vendor of one's own",
    )
