"""At what time of a vintage's day an economic series is released.

A vintage names a day. Where the source releases a series at a stated time, the vintage is known
from that time on; where the time is not known here, at the end of the day. A daily rate is stamped
with the time at which the Federal Reserve posts its table, in the evening of New York.

Stated times have changed over the years (the European Central Bank's by half an hour in 2022). The
table has the latest of them, so that nothing is known too early.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from types import MappingProxyType
from typing import Final
from zoneinfo import ZoneInfo

from backtester.schema import known_at_day

NEW_YORK: Final = "America/New_York"
BRUSSELS: Final = "Europe/Brussels"
FRANKFURT: Final = "Europe/Berlin"
# The database of the vintages keeps the days of St. Louis.
DATABASE_ZONE: Final = "America/Chicago"


@dataclass(frozen=True, kw_only=True)
class Release:
    """Say when a source releases.

    Attributes:
        at: Time of day.
        zone: Its zone.
        series: Ids of the series.
    """

    at: time
    zone: str
    series: tuple[str, ...]


def _row(at: str, zone: str, *series: str) -> Release:
    return Release(at=time.fromisoformat(at), zone=zone, series=series)


RELEASES: Final[tuple[Release, ...]] = (
    # Bureau of Labor Statistics: prices, work, producer prices
    _row("08:30", NEW_YORK, "CPIAUCSL", "CPIAUCNS", "CPILFESL", "CPILFENS", "PPIFIS", "PPIACO"),
    _row("08:30", NEW_YORK, "UNRATE", "PAYEMS", "CES0500000003", "CIVPART", "U6RATE"),
    _row("10:00", NEW_YORK, "JTSJOL"),
    # Department of Labor: weekly claims
    _row("08:30", NEW_YORK, "ICSA", "CCSA"),
    # Bureau of Economic Analysis
    _row("08:30", NEW_YORK, "GDP", "GDPC1", "A191RL1Q225SBEA", "PCE", "PI", "PSAVERT"),
    _row("08:30", NEW_YORK, "PCEPI", "PCEPILFE", "BOPGSTB"),
    # Census Bureau
    _row("08:30", NEW_YORK, "RSAFS", "RSXFS", "DGORDER", "HOUST", "PERMIT"),
    # Federal Reserve: production, the target range, the daily and weekly tables
    _row("09:15", NEW_YORK, "INDPRO", "TCU"),
    _row("14:00", NEW_YORK, "DFEDTARU", "DFEDTARL", "DFEDTAR"),
    _row("16:15", NEW_YORK, "DFF", "FEDFUNDS", "DGS1MO", "DGS3MO", "DGS6MO", "DGS1", "DGS2"),
    _row("16:15", NEW_YORK, "DGS3", "DGS5", "DGS7", "DGS10", "DGS20", "DGS30", "GS10", "GS2"),
    _row("16:30", NEW_YORK, "WALCL"),
    # Freddie Mac
    _row("12:00", NEW_YORK, "MORTGAGE30US", "MORTGAGE15US"),
    # Eurostat, and the decisions of the European Central Bank
    _row("11:00", BRUSSELS, "CP0000EZ19M086NEST", "CLVMNACSCAB1GQEA19"),
    _row("14:15", FRANKFURT, "ECBDFR", "ECBMRRFR", "ECBMLFR"),
)
_BY_SERIES: Final[Mapping[str, Release]] = MappingProxyType(
    {series: release for release in RELEASES for series in release.series}
)


def stated_release(series: str) -> Release | None:
    """Return when a series is released, or None where no time is stated."""
    return _BY_SERIES.get(series)


def known_at_vintage(series: str, vintage: date) -> datetime:
    """Return the instant from which a value of a vintage is public.

    Args:
        series: Series id.
        vintage: Day of the vintage.
    """
    release = stated_release(series)
    if release is None:
        return known_at_day(vintage, DATABASE_ZONE)
    return datetime.combine(vintage, release.at, ZoneInfo(release.zone)).astimezone(UTC)
