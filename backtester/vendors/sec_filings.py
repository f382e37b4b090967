"""The SEC's list of a company's filings: which forms, and from which instant each was public.

The ``Z`` behind an acceptance time cannot be trusted: some answers hold UTC, some New York's wall
clock, and one file may hold both. Nothing tells them apart, so the later of the two readings
counts, and never an instant before six in the morning of the filing date in New York: a filing
accepted after half past five in the afternoon carries the next business day's date, and is out
then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from itertools import repeat
from typing import Any, Final
from zoneinfo import ZoneInfo

from backtester.schema import known_at_day
from backtester.vendors.base import BadResponse

NEW_YORK: Final = "America/New_York"
_ZONE: Final = ZoneInfo(NEW_YORK)
_DOORS_OPEN: Final = time(6, 0)


@dataclass(frozen=True, kw_only=True)
class Filing:
    """Hold one filing.

    Attributes:
        accession: Its number, with dashes.
        form: Form type.
        filed: Filing date.
        known_at: UTC instant from which it is public.
        document: Path of its main document in its folder, or empty.
    """

    accession: str
    form: str
    filed: date
    known_at: datetime
    document: str = ""


@dataclass(frozen=True, kw_only=True)
class FormerName:
    """Hold a name that a company had, with the first and last day on which it filed under it."""

    name: str
    first: date
    last: date


@dataclass(frozen=True, kw_only=True)
class Page:
    """Name a further file of the list, with the days of its filings."""

    name: str
    first: date
    last: date


@dataclass(frozen=True, kw_only=True)
class Company:
    """Hold what the list says of the company itself, as of the day of the answer.

    Attributes:
        cik: The SEC's number.
        name: Name today.
        tickers: Symbols today.
        exchanges: Exchange of each, empty where none is named.
        former: Earlier names, oldest first.
        kind: Entity type in the SEC's word.
        filings: The newest filings.
        pages: Files that hold the older ones.
    """

    cik: int
    name: str
    tickers: tuple[str, ...]
    exchanges: tuple[str, ...]
    former: tuple[FormerName, ...]
    kind: str
    filings: tuple[Filing, ...]
    pages: tuple[Page, ...]


def known_at_filing(accepted: str, filed: date) -> datetime:
    """Return the instant from which a filing counts as public.

    Args:
        accepted: Acceptance time as the SEC wrote it; empty where it gives none, and then the
            filing counts from the end of its filing day.
        filed: Filing date.

    Raises:
        BadResponse: The acceptance time cannot be read.
    """
    if not accepted.strip():
        return known_at_day(filed, NEW_YORK)
    try:
        written = datetime.fromisoformat(accepted.strip())
    except ValueError:
        raise BadResponse(f"acceptance time {accepted[:40]!a} of the SEC is no time") from None
    as_said = written if written.tzinfo is not None else written.replace(tzinfo=UTC)
    clock = written.replace(tzinfo=None)
    opened = datetime.combine(filed, _DOORS_OPEN, _ZONE)
    # The hour that New York has twice in autumn is read as the second one.
    readings = [as_said, clock.replace(tzinfo=_ZONE, fold=1), opened]
    return max(reading.astimezone(UTC) for reading in readings)


def company_of(body: Mapping[str, Any], where: str) -> Company:
    """Read the list's main file.

    Args:
        body: JSON object of the SEC's ``submissions`` file.
        where: Address, for messages.

    Raises:
        BadResponse: It has another form.
    """
    try:
        recent, files = body["filings"]["recent"], body["filings"].get("files") or ()
        former = sorted(map(_former, body.get("formerNames") or ()), key=lambda name: name.first)
        return Company(
            cik=int(body["cik"]),
            name=str(body["name"]),
            tickers=tuple(body.get("tickers") or ()),
            exchanges=tuple(name or "" for name in body.get("exchanges") or ()),
            former=tuple(former),
            kind=str(body.get("entityType") or ""),
            filings=tuple(filings_of(recent, where)),
            pages=tuple(map(_page, files)),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadResponse(f"{where} has not the form of a list of filings ({error!r})") from None


def filings_of(columns: Mapping[str, Sequence[Any]], where: str) -> Iterator[Filing]:
    """Yield the filings of one file of the list.

    Args:
        columns: Column name -> values, one for each filing.
        where: Address, for messages.

    Raises:
        BadResponse: It has another form, or a column is cut short.
    """
    try:
        rows = zip(
            columns["accessionNumber"],
            columns["form"],
            columns["filingDate"],
            columns.get("acceptanceDateTime") or repeat("", len(columns["form"])),
            columns.get("primaryDocument") or repeat("", len(columns["form"])),
            strict=True,
        )
        for accession, form, filed, accepted, document in rows:
            day = date.fromisoformat(filed)
            yield Filing(
                accession=str(accession),
                form=str(form),
                filed=day,
                known_at=known_at_filing(accepted or "", day),
                document=str(document or ""),
            )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadResponse(f"{where} has not the form of a list of filings ({error!r})") from None


def _former(entry: Mapping[str, Any]) -> FormerName:
    return FormerName(
        name=str(entry["name"]),
        first=date.fromisoformat(entry["from"][:10]),
        last=date.fromisoformat(entry["to"][:10]),
    )


def _page(entry: Mapping[str, Any]) -> Page:
    return Page(
        name=str(entry["name"]),
        first=date.fromisoformat(entry["filingFrom"]),
        last=date.fromisoformat(entry["filingTo"]),
    )
