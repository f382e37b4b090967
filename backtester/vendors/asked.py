"""What an answer owes its question: the options that there are, nothing later than the capture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from backtester.errors import UsageError
from backtester.schema import INSTANT
from backtester.vendors.base import Capture, NoData, Wanted


def options_of(vendor: str, wanted: Wanted, defaults: Mapping[str, str]) -> dict[str, str]:
    """Return every option of a request, given or default.

    Args:
        vendor: Its name, for messages.
        wanted: Whose options.
        defaults: All options that there are.

    Raises:
        UsageError: An option is not one of them.
    """
    strange = sorted(set(wanted.options) - set(defaults))
    if strange:
        raise UsageError(
            f"vendor {vendor} has no option {strange[0]!r} for {wanted.table}: write one of "
            f"{', '.join(sorted(defaults))}"
        )
    return {**defaults, **wanted.options}


def whole(vendor: str, options: Mapping[str, str], name: str, *, least: int = 1) -> int:
    """Return an option that is a whole number.

    Raises:
        UsageError: It is none, or too small.
    """
    word = options[name].strip()
    if not word.isdecimal() or int(word) < least:
        raise UsageError(
            f"vendor {vendor}: option {name} is {options[name]!r}, write a whole number from "
            f"{least} up"
        )
    return int(word)


def listed(options: Mapping[str, str], name: str) -> tuple[str, ...]:
    """Return an option that lists words between commas."""
    return tuple(word.strip() for word in options[name].split(",") if word.strip())


def public_by_capture(capture: Capture, wanted: Wanted) -> Capture:
    """Return an answer without the rows that are not public yet: an estimate may lie ahead.

    Raises:
        NoData: None of them is.
    """
    rows = capture.rows[wanted.table]
    now = pa.scalar(wanted.captured_at.astimezone(UTC), INSTANT)
    early: Any = pc.less_equal(rows.column("known_at"), now)
    kept = rows.filter(early)
    ahead = rows.num_rows - kept.num_rows
    if not ahead:
        return capture
    if not kept.num_rows:
        raise NoData(f"none of its {ahead} rows was public when the capture was made")
    return replace(
        capture,
        rows={**capture.rows, wanted.table: kept},
        notes=(*capture.notes, f"{ahead} rows were not public yet and are left out"),
    )
