"""Ask the vendors of a plan, each request once, and say what came of it.

A chain is exact. The next vendor is asked where one says that it has nothing, is not configured,
or answers in a form that cannot be read; joined ones are all asked, and what they have is taken.
What the user alone can mend ends the freeze where no vendor has an answer: a key that is not set,
or a file that is not as it was declared.
A rate limit or a vendor that cannot be reached stops the freeze instead, which goes on later: so
the vendor that a row comes from never depends on the weather. An optional table that no vendor of
its chain has is absent with the reason; bars that cannot be had end the freeze.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from backtester.errors import BacktesterError, DataError, UsageError
from backtester.freeze.parts import Parts
from backtester.freeze.plan import JOIN, SUBJECTS, WITH_BARS, FreezePlan
from backtester.schema import CORE_TABLES
from backtester.vendors.base import (
    BadFile,
    BadResponse,
    Capture,
    NoData,
    NotConfigured,
    RateLimited,
    Vendor,
    VendorError,
    VendorRow,
    VendorSettings,
    Wanted,
)
from backtester.vendors.own_code import contained
from backtester.vendors.registry import vendor_row

# Cheap to read again, and a file may have been mended since.
NOT_KEPT: Final = frozenset({"files"})
_NEXT: Final = (NoData, NotConfigured, BadResponse)
_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "rows": (Mapping,),
    "source": (str,),
    "licence": (str,),
    "dropped_undated": (int,),
    "notes": (tuple, list),
    "options": (Mapping,),
}
# What the code of a vendor stumbles with over an answer that nobody foresaw.
_STUMBLES: Final = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)


@dataclass(frozen=True, kw_only=True)
class Step:
    """Report one request that has been settled.

    Attributes:
        table: Table.
        subject: Instrument, series or topic.
        vendor: Vendor that had it; empty where none had.
        rows: Rows that came.
        kept: Whether they were kept from before and nothing was asked.
        reason: Why there are none, else empty.
        done: Requests settled so far.
        total: All of them.
    """

    table: str
    subject: str
    vendor: str
    rows: int
    kept: bool
    reason: str
    done: int
    total: int


@dataclass(frozen=True, kw_only=True)
class Request:
    """Name what is asked for.

    Attributes:
        table: Table.
        instrument: Instrument; empty for a subject that is none.
        subject: Instrument, series or topic.
    """

    table: str
    instrument: str
    subject: str


@dataclass(frozen=True, kw_only=True)
class Taken:
    """Hold what a request came to; where vendors are joined, of one of them.

    Attributes:
        request: The request.
        vendor: Vendor that had it; empty where none had.
        capture: Its answer, or None.
        reason: Why there is none, by vendor.
    """

    request: Request
    vendor: str
    capture: Capture | None
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Desk:
    """Say how vendors are reached.

    Attributes:
        settings_of: Settings for a vendor: key, agent, patience.
        made: Vendors that are made already, by name.
        progress: Told each step.
    """

    settings_of: Callable[[VendorRow], VendorSettings]
    made: Mapping[str, Vendor]
    progress: Callable[[Step], None]


def requests_of(plan: FreezePlan) -> tuple[Request, ...]:
    """Return everything that a plan asks for, by table, in a fixed order."""
    return tuple(_requests(plan))


def _requests(plan: FreezePlan) -> Iterator[Request]:
    for table in plan.tables:
        if not plan.chain(table):
            continue
        if table in SUBJECTS:
            for subject in plan.subjects[table]:
                yield Request(table=table, instrument="", subject=subject)
            continue
        owners = plan.instruments if table in CORE_TABLES else plan.symbols
        for instrument in owners:
            yield Request(table=table, instrument=instrument, subject=instrument)
        if table == "news":
            for topic in plan.global_news:
                yield Request(table=table, instrument="", subject=topic)


class Asking:
    """Settle the requests of one plan.

    Args:
        plan: What is asked for.
        parts: Answers that were kept, and are kept.
        desk: How vendors are reached.
    """

    def __init__(self, plan: FreezePlan, parts: Parts, desk: Desk) -> None:
        self._plan = plan
        self._parts = parts
        self._desk = desk
        self._vendors: dict[str, Vendor] = dict(desk.made)
        self.asked = 0

    def run(self) -> Iterator[Taken]:
        """Settle every request.

        Raises:
            VendorError: A vendor asks to come back later or cannot be reached, or bars cannot be
                had; what was answered is kept.
        """
        requests = requests_of(self._plan)
        for position, request in enumerate(requests, 1):
            before = self.asked
            taken = self._settle(request)
            captures = [each.capture for each in taken if each.capture is not None]
            self._desk.progress(
                Step(
                    table=request.table,
                    subject=request.subject,
                    vendor=JOIN.join(each.vendor for each in taken),
                    rows=sum(table.num_rows for c in captures for table in c.rows.values()),
                    kept=self.asked == before,
                    reason="" if captures else taken[0].reason,
                    done=position,
                    total=len(requests),
                )
            )
            yield from taken

    def _settle(self, request: Request) -> tuple[Taken, ...]:
        """Return what the first link of the chain has: one answer, or one of each joined vendor."""
        reasons: list[str] = []
        unset = False
        links = self._plan.links(request.table)
        for link in links:
            found = {}
            for name in link:
                try:
                    found[name] = self._ask(name, request)
                except RateLimited as error:
                    raise RateLimited(_stopped(name, request, error), error.wait_s) from error
                except _NEXT as error:
                    _refuse_own_mistake(name, request, error)
                    unset = unset or isinstance(error, NotConfigured)
                    reasons.append(f"{name}: {error}")
                except VendorError as error:
                    raise VendorError(_stopped(name, request, error)) from error
            if found:
                said = ["; ".join(reasons), *[""] * (len(found) - 1)]
                return tuple(
                    Taken(request=request, vendor=name, capture=capture, reason=reason)
                    for (name, capture), reason in zip(found.items(), said, strict=True)
                )
        _refuse_to_go_without(request, links, "; ".join(reasons), unset=unset)
        return (Taken(request=request, vendor="", capture=None, reason="; ".join(reasons)),)

    def _ask(self, name: str, request: Request) -> Capture:
        wanted = self._wanted(name, request)
        kept = self._parts.find(name, wanted) if name not in NOT_KEPT else None
        if kept is not None:
            if kept.capture is None:
                raise NoData(kept.reason)
            return kept.capture
        vendor = self._vendor(name)
        self.asked += 1
        try:
            with contained(name):
                capture = _as_asked(name, wanted, _captured(vendor, wanted))
        except NoData as error:
            if name not in NOT_KEPT:
                self._parts.keep_none(name, wanted, str(error))
            raise
        if name not in NOT_KEPT:
            self._parts.keep(name, wanted, capture)
        return capture

    def _wanted(self, name: str, request: Request) -> Wanted:
        plan = self._plan
        symbol = plan.symbol_at(name, request.instrument) if request.instrument else request.subject
        return Wanted(
            table=request.table,
            instrument=request.instrument,
            symbol=symbol,
            start=plan.declared_start,
            end=plan.end,
            captured_at=self._parts.captured_at,
            options=plan.options_of(name, request.table),
        )

    def _vendor(self, name: str) -> Vendor:
        if name not in self._vendors:
            row = vendor_row(name)
            settings = self._desk.settings_of(row)
            if row.key_required and not settings.api_key:
                raise NotConfigured(f"it needs a key: set {row.key_variable}")
            with contained(name):
                self._vendors[name] = row.build(settings)
        return self._vendors[name]


def _refuse_own_mistake(name: str, request: Request, error: VendorError) -> None:
    # A file that is not as it was declared is no vendor's bad day: nobody mends it but the user.
    if name in NOT_KEPT and isinstance(error, BadResponse):
        raise BadFile(
            f"{request.table} of {request.subject} cannot be read from a file: {error}"
        ) from error


def _refuse_to_go_without(
    request: Request, links: Sequence[Sequence[str]], reason: str, *, unset: bool
) -> None:
    """End the freeze where what no vendor has must not be stored as absent.

    Raises:
        NotConfigured: A key is not set.
        DataError: Bars that were looked for in files alone; `VendorError`, elsewhere too.
    """
    if unset:
        # Its absence would be stored, and the same command would find it frozen already.
        raise NotConfigured(
            f"{request.table} of {request.subject} cannot be had ({reason}): set it and run the "
            "same command, or leave the table out"
        )
    if request.table not in CORE_TABLES or request.table in WITH_BARS:
        return
    of_files = all(name in NOT_KEPT for link in links for name in link)
    lacking: type[BacktesterError] = DataError if of_files else VendorError
    raise lacking(
        f"{request.table} of {request.subject} cannot be had ({reason}): correct the symbol or "
        "the chain, or leave it out"
    )


def _stopped(name: str, request: Request, error: VendorError) -> str:
    return f"{name}, {request.table} of {request.subject}: {error}"


def _captured(vendor: Vendor, wanted: Wanted) -> Capture:
    """Ask a vendor.

    Raises:
        VendorError: As the vendor has it; `BadResponse` also where its code stumbles.
    """
    try:
        return vendor.capture(wanted)
    except _STUMBLES as error:
        # The error's own words may hold anything, an address with a key among it.
        raise BadResponse(
            f"it could not make rows of the answer ({type(error).__name__}; --debug says where)"
        ) from error


def _require_types(name: str, capture: object) -> None:
    """Hold an answer to the types of its fields, which nobody checks in code of one's own.

    Raises:
        UsageError: One is of another type.
    """
    if not isinstance(capture, Capture):
        raise UsageError(f"vendor {name} answered a {type(capture).__name__}, not a Capture")
    given: Mapping[str, Any] = vars(capture)
    for field, kinds in _TYPES.items():
        if not isinstance(given[field], kinds):
            raise UsageError(
                f"vendor {name} answered {field} as a {type(given[field]).__name__}: see Capture"
            )
    for table, found in given["rows"].items():
        if not isinstance(found, pa.Table):
            raise UsageError(
                f"vendor {name} answered {table} as a {type(found).__name__}, not an Arrow table"
            )
    texts = {"notes": given["notes"], "options": itertools.chain(*given["options"].items())}
    for field, words in texts.items():
        if not all(isinstance(word, str) for word in words):
            raise UsageError(f"vendor {name} answered {field} that are no texts: see Capture")


def _as_asked(name: str, wanted: Wanted, capture: Capture) -> Capture:
    """Hold an answer to what was asked for.

    Raises:
        BadResponse: It holds rows of another instrument.
        NoData: It holds no row of the table.
    """
    _require_types(name, capture)
    along = {wanted.table, *(WITH_BARS if wanted.table == "bars" else ())}
    rows = {table: found for table, found in capture.rows.items() if table in along}
    for table, found in rows.items():
        if "instrument" not in found.column_names:
            continue
        strangers = set(found.column("instrument").unique().to_pylist())
        if strangers - {wanted.instrument or None}:
            raise BadResponse(
                f"asked for {wanted.instrument or 'global'} {table}, it answered with "
                f"{', '.join(map(str, sorted(map(str, strangers))))}"
            )
    if wanted.table not in rows:
        raise NoData(f"its answer holds no {wanted.table}")
    return Capture(
        rows=rows,
        dropped_undated=capture.dropped_undated,
        notes=capture.notes,
        options=capture.options,
        source=capture.source,
        licence=capture.licence,
    )
