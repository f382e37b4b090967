"""Trades of insiders as they stand in one filing of form 4 or 5."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from typing import Final
from xml.etree import ElementTree

from backtester.schema import PUBLISHED
from backtester.vendors.base import BadResponse
from backtester.vendors.sec_filings import Filing

TRADE_FORMS: Final = frozenset({"4", "4/A", "5", "5/A"})
_YES: Final = frozenset({"1", "true"})


@dataclass(frozen=True, kw_only=True)
class Trades:
    """Hold what one filing reports.

    Attributes:
        issuer: The SEC's number of the company whose shares were traded.
        rows: Rows of the table ``insider``.
        unread: Trades without a day or a number of shares that can be read.
    """

    issuer: int
    rows: tuple[dict[str, object], ...] = ()
    unread: int = 0


def trades_of(body: bytes, filing: Filing, *, instrument: str) -> Trades:
    """Read a filing's trades in shares; those in options and other derivatives are left out.

    Args:
        body: The XML document.
        filing: Where it was filed.
        instrument: The snapshot's id.

    Raises:
        BadResponse: It is no whole document of an ownership form.
    """
    where = f"form {filing.form} {filing.accession}"
    # The forms declare nothing: a declaration could only be there to swell when it is read.
    if b"<!DOCTYPE" in body or b"<!ENTITY" in body:
        raise BadResponse(f"{where} is no ownership document")
    try:
        root = ElementTree.fromstring(body)
        if root.tag != "ownershipDocument":
            raise BadResponse(f"{where} is no ownership document")
        issuer = int(_text(root, "issuer/issuerCik"))
    except (ElementTree.ParseError, ValueError) as error:
        raise BadResponse(f"{where} cannot be read ({error})") from None
    trades = root.findall("nonDerivativeTable/nonDerivativeTransaction")
    rows = []
    for number, trade in enumerate(trades, start=1):
        try:
            moved = _moved(trade)
        except ValueError:
            continue
        who = {"insider": _owners(root), "role": _role(root)}
        rows.append(
            {
                "instrument": instrument,
                "id": f"{filing.accession}:{number}",
                "form": filing.form,
                "known_at": filing.known_at,
                "known_at_basis": PUBLISHED,
                **who,
                **moved,
            }
        )
    return Trades(issuer=issuer, rows=tuple(rows), unread=len(trades) - len(rows))


def _moved(trade: ElementTree.Element) -> dict[str, object]:
    """Return what was traded.

    Raises:
        ValueError: A day, a number of shares or a price cannot be read.
    """
    direction = _text(trade, "transactionAmounts/transactionAcquiredDisposedCode/value")
    price = _text(trade, "transactionAmounts/transactionPricePerShare/value")
    return {
        "transaction_date": date.fromisoformat(_text(trade, "transactionDate/value")[:10]),
        "code": _text(trade, "transactionCoding/transactionCode"),
        "acquired": {"A": True, "D": False}.get(direction),
        "security": _text(trade, "securityTitle/value") or None,
        "shares": _number(_text(trade, "transactionAmounts/transactionShares/value")),
        "price": _number(price) if price else None,
    }


def _owners(root: ElementTree.Element) -> str:
    names = (
        _text(owner, "reportingOwnerId/rptOwnerName") for owner in root.findall("reportingOwner")
    )
    return "; ".join(names)


def _role(root: ElementTree.Element) -> str | None:
    found = [role for owner in root.findall("reportingOwner") for role in _roles(owner)]
    return "; ".join(dict.fromkeys(found)) or None


def _roles(owner: ElementTree.Element) -> Iterator[str]:
    said = "reportingOwnerRelationship"
    if _text(owner, f"{said}/isDirector").lower() in _YES:
        yield "director"
    if _text(owner, f"{said}/isOfficer").lower() in _YES:
        yield _text(owner, f"{said}/officerTitle") or "officer"
    if _text(owner, f"{said}/isTenPercentOwner").lower() in _YES:
        yield "10% owner"
    if _text(owner, f"{said}/isOther").lower() in _YES:
        yield _text(owner, f"{said}/otherText") or "other"


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text!r} is no number")
    return value


def _text(element: ElementTree.Element, path: str) -> str:
    return (element.findtext(path) or "").strip()
