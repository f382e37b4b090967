"""The options that a vendor is asked with: those it has, with what is taken where none is given."""

from __future__ import annotations

from collections.abc import Mapping

from backtester.errors import UsageError
from backtester.vendors.base import Wanted


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
