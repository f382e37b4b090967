"""The tool for trades of insiders: what had been filed by the simulated date, newest first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tradingagents_core.errors import DataUnavailable
from tradingagents_core.protocols import Row, View
from tradingagents_core.tools.base import (
    ToolLimits,
    cut_notes,
    days_back,
    look_up,
    title,
    withheld_clause,
    withheld_notes,
)
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
    del limits
    identity = look_up(view, arguments.ticker)
    view.require(INSIDER, identity.instrument)
    end = arguments.curr_date
    shown = view.rows(INSIDER, identity.instrument, end=end)
    newest = view.session if end is None else min(end, view.session)
    if not shown:
        also = withheld_clause(view, INSIDER, identity.instrument, end=end)
        raise DataUnavailable(
            f"trades by insiders of {identity.symbol}: none is on record up to {newest}{also}"
        )
    first = days_back(newest, DAYS)
    recent = [row for row in shown if row.known_at.date() >= first]
    lines = [
        f"# Trades by insiders of {title(identity)}, filed {first} to {newest}",
        f"# seen on {view.session}",
        *withheld_notes(view, INSIDER, identity.instrument, end=end),
        *cut_notes(view, curr_date=end),
        *_cap_note(len(recent)),
        *(_trade(row, identity.currency) for row in reversed(recent[-MOST_TRADES:])),
        *([] if recent else ["# None in this window"]),
    ]
    return "\n".join(lines)


def _cap_note(count: int) -> Iterator[str]:
    if count > MOST_TRADES:
        yield f"# Only the newest {MOST_TRADES} of {count} trades are shown"


def _trade(row: Row, currency: str) -> str:
    fields: Mapping[str, Any] = row.fields
    role = f" ({one_line(fields['role'], 80)})" if fields["role"] else ""
    mark = " (estimated)" if fields["known_at_basis"] == _ESTIMATED else ""
    filed = f"filed {instant_text(row.known_at)}{mark}"
    price = f" at {price_text(fields['price'])} {currency}" if fields["price"] is not None else ""
    direction = {True: "in, ", False: "out, "}.get(fields["acquired"], "")
    code = one_line(fields["code"], 10)
    moved = f"{direction}{CODES.get(code, 'code ' + code)}"
    amended = " | amends an earlier filing" if str(fields["form"] or "").endswith("/A") else ""
    return (
        f"- {filed} | traded {fields['transaction_date']} | {one_line(fields['insider'], 80)}"
        f"{role} | {moved} | {count_text(fields['shares'])} shares{price}{amended}"
    )
