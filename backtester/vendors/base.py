"""What a vendor is: one request in, rows in the schema's columns out, and errors of four kinds.

A vendor answers for one table and one instrument at a time (bars may bring actions and instruments
along, which come in the same answer). It sets `known_at` by the rule of its table, and says what
it left out. Which vendor is asked, how often and in what order is the caller's to say.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Protocol

import pyarrow as pa

from backtester.errors import DataError, ProviderError


class VendorError(ProviderError):
    """Report that a vendor failed after its retries."""


class RateLimited(VendorError):
    """Report that a vendor asks to come back later; never to be stored as "no data".

    Args:
        message: What was asked, and what to do.
        wait_s: Seconds that the vendor asks to wait, or None where it names none.
    """

    def __init__(self, message: str, wait_s: float | None = None) -> None:
        super().__init__(message)
        self.wait_s = wait_s


class NotConfigured(VendorError):
    """Report a missing or refused key, or a missing package; names the variable or the extra."""


class NoData(VendorError):
    """Report that the vendor says plainly that it has none of what was asked for."""


class BadResponse(VendorError):
    """Report an answer that is not what was asked for: HTML, a cut body, another symbol."""


class BadFile(DataError, BadResponse):
    """Report a file of the user's own that cannot be read as declared; he alone can mend it."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Say what is asked of a vendor.

    Attributes:
        table: Table of the snapshot.
        instrument: The snapshot's id; empty for a table without one.
        symbol: The vendor's symbol, series or subject.
        start: First date.
        end: Last date.
        captured_at: When the capture is made, UTC; nothing public later is wanted.
        options: Settings of the vendor for this table.
    """

    table: str
    instrument: str
    symbol: str
    start: date
    end: date
    captured_at: datetime
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Capture:
    """Hold what a vendor answered.

    Attributes:
        rows: Table name -> rows in the schema's columns, `known_at` set.
        dropped_undated: Rows that were left out because nothing says when they became public.
        notes: What a reader should know, in words.
        options: Every option that was passed to the vendor.
        source: Address or file, without any key.
        licence: Licence or terms.
    """

    rows: Mapping[str, pa.Table]
    source: str
    licence: str
    dropped_undated: int = 0
    notes: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)


class Vendor(Protocol):
    """What a vendor must have; a class of one's own is built with its `VendorSettings` alone."""

    @property
    def name(self) -> str:
        """Name as in chains and manifests."""

    @property
    def tables(self) -> frozenset[str]:
        """Tables that it can fill."""

    def capture(self, wanted: Wanted) -> Capture:
        """Return what the vendor has.

        Raises:
            RateLimited: It asks to come back later.
            NotConfigured: A key or package is missing.
            NoData: It says that it has none.
            BadResponse: Its answer is not what was asked for.
            VendorError: It failed in another way.
        """


class Pace:
    """Keep a pause between the requests to one vendor, whoever makes them.

    Args:
        pause_s: Seconds from the beginning of one request to that of the next.
    """

    def __init__(self, pause_s: float = 0.0) -> None:
        self._pause_s = pause_s
        self._lock = threading.Lock()
        self._free_at = 0.0

    def wait(self, sleep: Callable[[float], None]) -> None:
        """Sleep until the next request is polite."""
        with self._lock:
            now = time.perf_counter()
            wait_s = max(0.0, self._free_at - now)
            self._free_at = now + wait_s + self._pause_s
        if wait_s > 0:
            sleep(wait_s)


@dataclass(frozen=True, kw_only=True)
class VendorSettings:
    """Hold what a vendor is built with.

    Attributes:
        api_key: Credential, or None.
        base_url: Address that stands in for the vendor's own, or None.
        user_agent: Who asks; some vendors want a name and an address of e-mail.
        timeout_s: Longest silence of the vendor.
        max_retries: How often one request is tried again.
        budget_s: Seconds that one request may take with its waits.
        sleep: Waits some seconds.
        pace: Pause between requests.
    """

    api_key: str | None = field(default=None, repr=False)
    base_url: str | None = None
    user_agent: str | None = None
    timeout_s: float = 30.0
    max_retries: int = 5
    budget_s: float = 300.0
    sleep: Callable[[float], None] = time.sleep
    pace: Pace = field(default_factory=Pace, repr=False, compare=False)


@dataclass(frozen=True, kw_only=True)
class VendorRow:
    """Describe one vendor.

    Attributes:
        name: Name in chains.
        build: Makes it; what it needs is imported then.
        tables: Tables that it can fill.
        key_variable: Variable that holds its key, or None.
        key_required: Whether it answers nobody without one.
        pause_s: Seconds between requests.
        licence: Licence or terms of its data.
        note: What it can and cannot give.
    """

    name: str
    build: Callable[[VendorSettings], Vendor]
    tables: frozenset[str]
    key_variable: str | None
    key_required: bool
    pause_s: float
    licence: str
    note: str
