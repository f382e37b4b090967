"""Put a vendor, such as one of the user's own, through the rules that every vendor keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime

from backtester.errors import UsageError
from backtester.freeze.plan import SUBJECTS, FreezePlan
from backtester.vendors.base import NoData, NotConfigured, VendorRow, VendorSettings, Wanted
from backtester.vendors.contract import RULES, Breach, Case, breaches
from backtester.vendors.own_code import contained
from backtester.vendors.registry import vendor_row

__all__ = ["RULES", "Breach", "Checked", "check_vendor", "tables_of"]


@dataclass(frozen=True, kw_only=True)
class Checked:
    """Say what came of one table.

    Attributes:
        table: Table.
        subject: Instrument, series or topic that was asked for.
        breaches: Rules that are broken.
        reason: Why it could not be told, in the vendor's words, else empty.
    """

    table: str
    subject: str
    breaches: tuple[Breach, ...] = ()
    reason: str = ""


def tables_of(name: str) -> tuple[str, ...]:
    """Return the tables of a vendor that need no subject, in order.

    Raises:
        UsageError: There is no such vendor.
    """
    return tuple(table for table in sorted(vendor_row(name).tables) if table not in SUBJECTS)


def check_vendor(
    name: str,
    plan: FreezePlan,
    *,
    captured_at: datetime,
    settings_of: Callable[[VendorRow], VendorSettings],
) -> tuple[Checked, ...]:
    """Ask a vendor for the first subject of each table of a plan that it can fill, and judge.

    Args:
        name: Vendor, such as ``package.module:Class``.
        plan: Whose symbols, range and options are asked with.
        captured_at: Now, zone-aware.
        settings_of: Settings for the vendor.

    Raises:
        UsageError: There is no such vendor, or it fills none of the tables.
        VendorError: It cannot be reached, or asks to come back later.
    """
    row = vendor_row(name)
    settings = settings_of(row)
    if row.key_required and not settings.api_key:
        raise NotConfigured(f"vendor {name} needs a key: set {row.key_variable}")
    found = tuple(_checked(row, plan, settings, captured_at))
    if not found:
        raise UsageError(
            f"vendor {name} fills none of {', '.join(plan.tables)}: name one of "
            f"{', '.join(sorted(row.tables))}"
        )
    return found


def _checked(
    row: VendorRow, plan: FreezePlan, settings: VendorSettings, captured_at: datetime
) -> Iterator[Checked]:
    for table in plan.tables:
        if table not in row.tables:
            continue
        subject = plan.subjects[table][0] if table in SUBJECTS else plan.symbols[0]
        instrument = "" if table in SUBJECTS else subject
        wanted = Wanted(
            table=table,
            instrument=instrument,
            symbol=plan.symbol_at(row.name, instrument) if instrument else subject,
            start=plan.declared_start,
            end=plan.end,
            captured_at=captured_at,
            options=plan.options_of(row.name, table),
        )
        secrets = (settings.api_key,) if settings.api_key else ()
        try:
            with contained(row.name):
                broken = breaches(lambda: row.build(settings), Case(wanted=wanted, secrets=secrets))
        except NoData as error:
            yield Checked(table=table, subject=subject, reason=str(error))
        else:
            yield Checked(table=table, subject=subject, breaches=broken)
