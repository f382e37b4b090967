"""The tool for trades of insiders: what had been filed by the simulated date, newest first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tradingagents_core.errors import DataUnavailable
from tradingagents_core.protocols import Row, View
from tradingagents_core.tools.base import ToolLimits, cut_notes, days_back, look_up, title
from tradingagents_core.tools.inputs import CompanyArguments
from tradingagents_core.tools.text import count_text, instant_text, one_line, price_text

INSIDER = "insider"
DAYS = 183
MOST_TRADES = 30
# The codes that forms 4 and 5 use most; the others stand as they are.
CODES: Mapping[str, str] = {
    "P": "bought",
    "S": "sold",
    "A": "granted",
    "M": "option exercised",
    "F": "withheld for tax",
    "G": "gift",
    "D": "returned to the company",
    "C": "converted",
}
_ESTIMATED = "estimated"


def get_insider_transactions(view: View, arguments: CompanyArguments, limits: ToolLimits) -> str:
    """Print trades by insiders that had been filed, newest first."""
    identity = look_up(view, arguments.ticker)
    view.require(INSIDER, identity.instrument)
    end = arguments.curr_date
    # Filtered before it is limited: withheld rows must not use up the places of others.
    rows = view.rows(INSIDER, identity.instrument, end=end)
    shown = [row for row in rows if limits.estimated or not _is_estimated(row)]
    newest = view.session if end is None else min(end, view.session)
    if not shown:
        reason = (
            "their filing dates can only be estimated, and are withheld"
            if rows
            else f"none is on record up to {newest}"
        )
        raise DataUnavailable(f"trades by insiders of {identity.symbol}: {reason}")
    first = days_back(newest, DAYS)
    recent = [row for row in shown if row.known_at.date() >= first]
    lines = [
        f"# Trades by insiders of {title(identity)}, filed {first} to {newest}",
        f"# seen on {view.session}",
        *cut_notes(view, curr_date=end),
        *_cap_note(len(recent)),
        *(_trade(row, identity.currency) for row in reversed(recent[-MOST_TRADES:])),
        *([] if recent else ["# None in this window"]),
    ]
    return "\n".join(lines)


def _is_estimated(row: Row) -> bool:
    return row.fields["known_at_basis"] == _ESTIMATED


def _cap_note(count: int) -> Iterator[str]:
    if count > MOST_TRADES:
        yield f"# Only the newest {MOST_TRADES} of {count} trades are shown"


def _trade(row: Row, currency: str) -> str:
    fields: Mapping[str, Any] = row.fields
    role = f" ({one_line(fields['role'], 80)})" if fields["role"] else ""
    filed = f"filed {instant_text(row.known_at)}" + (" (estimated)" if _is_estimated(row) else "")
    price = f" at {price_text(fields['price'])} {currency}" if fields["price"] is not None else ""
    direction = {True: "in, ", False: "out, "}.get(fields["acquired"], "")
    code = one_line(fields["code"], 10)
    moved = f"{direction}{CODES.get(code, 'code ' + code)}"
    amended = " | amends an earlier filing" if str(fields["form"] or "").endswith("/A") else ""
    return (
        f"- {filed} | traded {fields['transaction_date']} | {one_line(fields['insider'], 80)}"
        f"{role} | {moved} | {count_text(fields['shares'])} shares{price}{amended}"
    )
