"""What a capture must satisfy before it is stored, and what it tells its reader.

A refusal (`DataError`) is for data that no rule could make right: a price that is not positive, a
high below a low, a bar from a session that had not closed when it was captured, a wrong `known_at`.
A `Finding` is for what a reader must know and may live with: a gap, a day on which the exchange
was closed, contradicting bars, no volume, a jump that no action explains.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime

import numpy as np
import pyarrow as pa

from backtester.calendar import Calendar, calendar_by_code
from backtester.errors import DataError
from backtester.schema import (
    ASSET_TYPES,
    BASES,
    DIVIDEND,
    SPLIT,
    conform,
    known_at_action,
)
from backtester.snapshots.columns import (
    NO_ACTIONS,
    ActionColumns,
    BarColumns,
    IdentityRow,
    actions_by_instrument,
    bars_by_instrument,
    identities_by_instrument,
)
from backtester.snapshots.manifest import Finding

# A price that moves this much in a session without an action is a change of unit (pence and
# pounds), of instrument, or a split that is missing.
JUMP = 20.0

_CURRENCY = re.compile(r"[A-Z]{3}|GBp|ZAc")


def check_capture(
    tables: Mapping[str, pa.Table],
    *,
    declared_start: date,
    declared_end: date,
    captured_at: datetime,
) -> tuple[Finding, ...]:
    """Check the core tables of a capture.

    Args:
        tables: Table name -> rows as captured; duplicates may still be there.
        declared_start: First date that the snapshot will answer for.
        declared_end: Last one.
        captured_at: When the capture was made, zone-aware.

    Returns:
        What a reader must know, ordered by instrument, session and kind.

    Raises:
        DataError: For rows that must not be stored, with instrument and session.
    """
    if declared_end < declared_start:
        raise DataError(f"the declared range {declared_start} to {declared_end} is reversed")
    if captured_at.tzinfo is None:
        raise DataError(f"capture time {captured_at} has no zone: write it in UTC")
    identities = identities_by_instrument(conform("instruments", tables["instruments"]))
    actions = check_actions(tables["actions"], identities)
    conformed = conform("bars", tables["bars"])
    findings = list(_duplicates(tables["bars"], conformed))
    columns = bars_by_instrument(conformed)
    currencies = _currencies(conformed)
    _refuse_strangers("bars", set(columns), identities)
    for instrument, rows in identities.items():
        _check_identity(rows)
        bars = columns.get(instrument)
        if bars is None:
            findings.append(_finding("gap", instrument, None, "there is no bar at all"))
            continue
        calendar = calendar_by_code(rows[0].calendar)
        _refuse_other_currency(rows[0], currencies[instrument])
        _refuse_bad_prices(instrument, bars)
        _refuse_bad_times(instrument, bars, calendar, captured_at)
        span = _covered(rows, declared_start, declared_end)
        _refuse_outside(instrument, bars, span)
        findings += _sessions(instrument, bars, calendar, span)
        findings += _volumes(instrument, bars)
        findings += _jumps(instrument, bars, actions.get(instrument, NO_ACTIONS))
        findings += _paid_otherwise(rows[0], actions.get(instrument, NO_ACTIONS))
    return tuple(sorted(findings, key=_place))


def check_actions(
    table: pa.Table, identities: Mapping[str, tuple[IdentityRow, ...]]
) -> Mapping[str, ActionColumns]:
    """Check splits and dividends and return them by instrument.

    Raises:
        DataError: For an action that cannot be one, with instrument and ex session.
    """
    rows = conform("actions", table)
    found = actions_by_instrument(rows)
    _refuse_strangers("actions", set(found), identities)
    for row in rows.to_pylist():
        where = f"{row['kind']} of {row['instrument']} with ex session {row['ex_session']}"
        has_ratio = row["numerator"] is not None and row["denominator"] is not None
        if row["kind"] == SPLIT:
            right = has_ratio and row["amount"] is None
            right = right and row["numerator"] > 0 and row["denominator"] > 0
        elif row["kind"] == DIVIDEND:
            none = row["numerator"] is None and row["denominator"] is None
            right = none and row["amount"] is not None and row["amount"] > 0
        else:
            right = False
        if not right:
            raise DataError(
                f"{where} is wrong: a split has a positive numerator and denominator alone, a "
                "dividend a positive amount alone"
            )
        calendar = calendar_by_code(identities[row["instrument"]][0].calendar)
        if row["known_at"] != known_at_action(calendar, row["ex_session"]):
            raise DataError(f"{where} has known_at {row['known_at']}, which is not its open")
    return found


def _refuse_strangers(
    table: str, instruments: set[str], identities: Mapping[str, tuple[IdentityRow, ...]]
) -> None:
    strangers = sorted(instruments - set(identities))
    if strangers:
        raise DataError(f"table {table} holds {', '.join(strangers)}, unknown to instruments")


def _check_identity(rows: tuple[IdentityRow, ...]) -> None:
    first = rows[0]
    for row in rows:
        for field, value, allowed in (
            ("asset_type", row.asset_type, ASSET_TYPES),
            ("basis", row.basis, BASES),
        ):
            if value not in allowed:
                raise DataError(
                    f"instrument {row.instrument}: {field} {value!r} is none of {allowed}"
                )
        if not _CURRENCY.fullmatch(row.currency):
            raise DataError(
                f"instrument {row.instrument}: {row.currency!r} is no currency: write an ISO code "
                "(USD), or a minor unit as quoted (GBp, ZAc)"
            )
        same = (row.calendar, row.currency, row.basis, row.first_session, row.last_session)
        if same != (
            first.calendar,
            first.currency,
            first.basis,
            first.first_session,
            first.last_session,
        ):
            raise DataError(
                f"instrument {row.instrument}: calendar, currency, basis, first and last session "
                "must be the same in all of its ranges"
            )


def _duplicates(table: pa.Table, conformed: pa.Table) -> Iterator[Finding]:
    if table.num_rows == conformed.num_rows:
        return
    left = _bars_per_session(conformed)
    for (instrument, session), count in _bars_per_session(table).items():
        dropped = count - left[instrument, session]
        if dropped:
            text = f"{dropped} equal copies of the bar were dropped"
            yield _finding("duplicate", instrument, session, text)


def _bars_per_session(table: pa.Table) -> Counter[tuple[str, date]]:
    instruments = table.column("instrument").to_pylist()
    sessions = table.column("session").cast(pa.date32()).to_pylist()
    return Counter(
        (str(instrument), session)
        for instrument, session in zip(instruments, sessions, strict=True)
        if session is not None
    )


def _refuse_bad_prices(instrument: str, bars: BarColumns) -> None:
    for name in ("open", "high", "low", "close"):
        bad = np.flatnonzero(getattr(bars, name) <= 0)
        if len(bad):
            raise DataError(
                f"bar of {instrument} on {bars.sessions[bad[0]]}: {name} is "
                f"{getattr(bars, name)[bad[0]]}, and a price is positive"
            )
    top = np.maximum(bars.open, bars.close)
    bottom = np.minimum(bars.open, bars.close)
    bad = np.flatnonzero((bars.high < top) | (bars.low > bottom))
    if len(bad):
        at = bad[0]
        raise DataError(
            f"bar of {instrument} on {bars.sessions[at]} is badly ordered: open {bars.open[at]}, "
            f"high {bars.high[at]}, low {bars.low[at]}, close {bars.close[at]}"
        )
    if (bars.volume < 0).any():
        at = int(np.flatnonzero(bars.volume < 0)[0])
        raise DataError(f"bar of {instrument} on {bars.sessions[at]}: its volume is negative")


def _refuse_bad_times(
    instrument: str, bars: BarColumns, calendar: Calendar, captured_at: datetime
) -> None:
    captured = np.datetime64(captured_at.astimezone(UTC).replace(tzinfo=None), "us")
    late = np.flatnonzero(bars.known_at > captured)
    if len(late):
        raise DataError(
            f"bar of {instrument} on {bars.sessions[late[0]]} was captured at {captured_at}, "
            "before its session had closed: capture it again later"
        )
    closes = calendar.closes_of(bars.sessions)
    # A day without a session has no close; it is a finding.
    wrong = np.flatnonzero(~np.isnat(closes) & (bars.known_at != closes))
    if len(wrong):
        at = wrong[0]
        raise DataError(
            f"bar of {instrument} on {bars.sessions[at]} has known_at {bars.known_at[at]}, and the "
            f"session closed at {closes[at]}"
        )


def _currencies(bars: pa.Table) -> Mapping[str, frozenset[str]]:
    pairs = bars.group_by(["instrument", "currency"]).aggregate([]).to_pylist()
    found: dict[str, set[str]] = {}
    for pair in pairs:
        found.setdefault(pair["instrument"], set()).add(pair["currency"])
    return {instrument: frozenset(names) for instrument, names in found.items()}


def _refuse_other_currency(identity: IdentityRow, currencies: frozenset[str]) -> None:
    # Pounds among pence are a factor of a hundred that no reader could see.
    if currencies != {identity.currency}:
        raise DataError(
            f"bars of {identity.instrument} are quoted in {', '.join(sorted(currencies))}, and the "
            f"instrument in {identity.currency}: name the one that the prices are in"
        )


def _paid_otherwise(identity: IdentityRow, actions: ActionColumns) -> Iterator[Finding]:
    paid = actions.kind == DIVIDEND
    for currency in sorted(set(actions.currency[paid].tolist()) - {identity.currency}):
        text = f"dividends are in {currency}, prices in {identity.currency}"
        yield _finding("currency", identity.instrument, None, text)


def _covered(rows: tuple[IdentityRow, ...], start: date, end: date) -> tuple[date, date]:
    last = rows[0].last_session
    return max(start, rows[0].first_session), end if last is None else min(end, last)


def _refuse_outside(instrument: str, bars: BarColumns, span: tuple[date, date]) -> None:
    first, last = (np.datetime64(day, "D") for day in span)
    bad = np.flatnonzero((bars.sessions < first) | (bars.sessions > last))
    if len(bad):
        raise DataError(
            f"bar of {instrument} on {bars.sessions[bad[0]]} is outside what the snapshot covers "
            f"of it ({span[0]} to {span[1]}): widen the declared range or leave it out"
        )


def _sessions(
    instrument: str, bars: BarColumns, calendar: Calendar, span: tuple[date, date]
) -> Iterator[Finding]:
    wanted = set(calendar.sessions(*span))
    have = set(bars.sessions.tolist())
    for session in sorted(wanted - have - bars.conflicts):
        yield _finding("gap", instrument, session, f"no bar for a session of {calendar.code}")
    for session in sorted(have - wanted):
        yield _finding("extra_session", instrument, session, f"{calendar.code} was closed")
    for session in sorted(bars.conflicts):
        yield _finding("conflict", instrument, session, "bars that differ; none is served")


def _volumes(instrument: str, bars: BarColumns) -> Iterator[Finding]:
    empty = bars.sessions[bars.volume == 0].tolist()
    if empty and len(empty) == len(bars):
        yield _finding("zero_volume", instrument, None, "no bar has a volume")
        return
    for session in empty:
        yield _finding("zero_volume", instrument, session, "volume is 0; not taken for a halt")


def _jumps(instrument: str, bars: BarColumns, actions: ActionColumns) -> Iterator[Finding]:
    if len(bars) < 2:
        return
    shares = np.ones(len(bars))
    for at in np.flatnonzero(actions.kind == SPLIT):
        # The first bar on the new count of shares.
        first = int(np.searchsorted(bars.sessions, actions.ex_sessions[at]))
        if 0 < first < len(bars):
            shares[first] *= actions.numerator[at] / actions.denominator[at]
    change = bars.close[1:] * shares[1:] / bars.close[:-1]
    for at in np.flatnonzero((change < 1 / JUMP) | (change > JUMP)):
        text = f"the close changed by a factor of {change[at]:.6g} without an action"
        yield _finding("jump", instrument, bars.sessions[at + 1].item(), text)


def _place(finding: Finding) -> tuple[str, date, str]:
    return finding.instrument, finding.session or date.min, finding.kind


def _finding(kind: str, instrument: str, session: date | None, message: str) -> Finding:
    return Finding(kind=kind, instrument=instrument, session=session, message=message)
