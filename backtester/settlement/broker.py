"""Turn a decision into what it earned: fill, exit, actions on the way, benchmark, status.

One rule for every row, whatever the market (`FILLS` has the entry rules): the exit is the
close of session d+h of the instrument's own calendar; only full windows count, a delisting apart;
splits and dividends count if entry session < ex session <= exit session; the benchmark is held
over the same dates, paired by date and never by position. What cannot be had is a status and a
reason, never a guess: no later bar fills for a missing one, no market gets another one's index.

Nothing after the exit can change a number: later bars are looked at for one question alone,
whether the snapshot ends before a session (``pending``) or goes on without it (``missing_bar``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime
from types import MappingProxyType

from backtester.calendar import Calendar
from backtester.config import DecisionTime, EntryRule, require_fills
from backtester.errors import DataError, UsageError
from backtester.records import DIRECTION, CellKey, ReturnRecord, ReturnStatus
from backtester.settlement.benchmark import BenchmarkChoice, Comparison, benchmark_for, compare
from backtester.settlement.pricing import Flaw, Market, Point, Quote, Trade, market_of
from backtester.snapshots.snapshot import Snapshot

__all__ = ["BenchmarkChoice", "ScoreRule", "benchmark_for", "due_at", "settle"]

# Sessions from the decision to the fill, and the point of the day at which it happens.
FILLS: Mapping[EntryRule, tuple[int, Point]] = MappingProxyType(
    {
        "next_open": (1, "open"),
        "next_close": (1, "close"),
        "close": (0, "close"),
        "open": (0, "open"),
    }
)


@dataclass(frozen=True, kw_only=True)
class ScoreRule:
    """Say how decisions are scored.

    Attributes:
        horizon: Sessions from the decision session to the exit, 1 or more.
        entry_rule: ``next_open, next_close, close, open``; see `config.ENTRY_RULES` for which go
            with which decision time.
        decision_time: Whether decisions are made at the close or at the open of their session.
        benchmark: Explicit benchmark symbol, or None for the default by market.
        haircut: Fraction taken off the last close of an instrument that stops trading.
        score_id: Name of the score; ``default`` is the run's own.
    """

    horizon: int
    entry_rule: EntryRule
    decision_time: DecisionTime
    benchmark: str | None = None
    haircut: float = 0.0
    score_id: str = "default"

    def __post_init__(self) -> None:
        """Refuse a rule that cannot be carried out.

        Raises:
            UsageError: With what to write instead.
        """
        require_fills(self.entry_rule, decision_time=self.decision_time, haircut=self.haircut)
        least = 2 if self.entry_rule == "next_close" else 1
        if self.horizon < least:
            raise UsageError(
                f"horizon {self.horizon} is too short for entry rule {self.entry_rule!r}: "
                f"write {least} or more"
            )
        if self.benchmark is not None and not self.benchmark.strip():
            raise UsageError("the benchmark is empty: name one, or leave it out for the default")


def settle(
    key: CellKey, rating: str | None, *, snapshot: Snapshot, rule: ScoreRule
) -> ReturnRecord:
    """Settle one decision on all that the snapshot holds.

    The record may be shown from its `resolved_at` on; the caller keeps simulated time.

    Args:
        key: Decided cell; its ticker is an instrument id, its session one of that calendar.
        rating: One of the five, or None: the return then has no direction.
        snapshot: Where bars, actions and identities come from.
        rule: How to score.

    Returns:
        A record of any status. Its sessions are the calendar's, also where a bar could not be
        had (an instrument that stopped trading apart: its exit is its last bar); a price is there
        only where a bar was.

    Raises:
        DataError: An instrument that the snapshot does not hold, a date that is no session of
            its calendar, or a word that is no rating.
    """
    if rating is not None and rating not in DIRECTION:
        raise DataError(f"{rating!r} of {key} is no rating: write one of {', '.join(DIRECTION)}")
    market = market_of(snapshot, key.ticker)
    plan = _plan(key, market.calendar, rule)
    window = _window(market, plan, snapshot, rule)
    choice = benchmark_for(key.ticker, rule.benchmark)
    against = compare(choice, market, window.trade, session=key.session, snapshot=snapshot)
    return _record(key, rating, rule, market, plan, window, choice, against)


def due_at(key: CellKey, snapshot: Snapshot, rule: ScoreRule) -> datetime | None:
    """Return the instant from which a decision's return is known, or None where it never is.

    It is the `resolved_at` of `settle`, found by the same steps and whatever the rating: the
    engine plans with it before it may look at the return.

    Raises:
        DataError: See `settle`.
    """
    return settle(key, None, snapshot=snapshot, rule=rule).resolved_at


# ------------------------------------------------------------------------------------ the window


@dataclass(frozen=True, kw_only=True)
class _Plan:
    """Say by the calendar when a decision is filled and closed.

    The exit is None where it lies beyond what the calendar knows.
    """

    session: date
    cutoff: datetime
    entry_session: date
    entry_point: Point
    entry_at: datetime
    exit_session: date | None
    exit_at: datetime | None


@dataclass(frozen=True, kw_only=True)
class _Window:
    """Hold how far a plan could be carried out on the bars.

    Attributes:
        status: See `ReturnRecord`; so `reason`.
        reason: Why there is no number, or why it is that of a shorter window.
        entered: False where the instrument was gone before the fill.
        entry: Price paid, also where there is no exit yet.
        exit_session: Session of the exit bar, or of the exit by the calendar.
        trade: What was earned, where there is a number.
        not_before: Instant before which even a shorter window is not known to be one.
    """

    status: ReturnStatus
    reason: str | None
    entered: bool = True
    entry: Quote | None = None
    exit_session: date | None = None
    trade: Trade | None = None
    not_before: datetime | None = None


def _plan(key: CellKey, calendar: Calendar, rule: ScoreRule) -> _Plan:
    day = key.session
    at_close = rule.decision_time == "close"
    cutoff = calendar.close_utc(day) if at_close else calendar.open_utc(day)
    offset, point = FILLS[rule.entry_rule]
    entry = calendar.shift(day, offset)
    try:
        leave = calendar.shift(day, rule.horizon)
    except DataError:
        leave = None
    return _Plan(
        session=day,
        cutoff=cutoff,
        entry_session=entry,
        entry_point=point,
        entry_at=calendar.open_utc(entry) if point == "open" else calendar.close_utc(entry),
        exit_session=leave,
        exit_at=None if leave is None else calendar.close_utc(leave),
    )


def _window(market: Market, plan: _Plan, snapshot: Snapshot, rule: ScoreRule) -> _Window:
    if plan.exit_session is None:
        end = market.calendar.last_day
        return _Window(status="pending", reason=f"the calendar knows no session after {end}")
    last = market.identity.last_session
    if last is not None and last < plan.entry_session:
        return _Window(
            status="delisted",
            reason=f"stopped trading on {last}, before its entry on {plan.entry_session}",
            entered=False,
            not_before=plan.exit_at,
        )
    if last is not None and last < plan.exit_session:
        window = _carry_out(market, plan, last, snapshot, haircut=rule.haircut)
        if window.status != "resolved":
            return replace(window, exit_session=plan.exit_session)
        return replace(
            window,
            status="delisted",
            reason=f"stopped trading on {last}: out at its last close, haircut {rule.haircut}",
            not_before=plan.exit_at,
        )
    return _carry_out(market, plan, plan.exit_session, snapshot)


def _carry_out(
    market: Market, plan: _Plan, leave_on: date, snapshot: Snapshot, *, haircut: float | None = None
) -> _Window:
    """Buy at the plan's entry and sell at the close of a session.

    Args:
        market: Instrument.
        plan: Says where to buy.
        leave_on: Session of the exit.
        snapshot: Says where the data end.
        haircut: Given for an instrument that stops trading then: it may have had its last bar
            some sessions before, and this fraction is lost.
    """
    entry = market.quote(plan.entry_session, plan.entry_point)
    left = market.quote(leave_on, "close")
    conflict = market.conflict(plan.entry_session, leave_on)
    if conflict is not None:
        reason = f"bars of {conflict} contradict each other"
        return _Window(status="conflict", reason=reason, entry=entry, exit_session=leave_on)
    if entry is None:
        return _gap(market, plan.entry_session, snapshot, exit_session=leave_on)
    if left is None and haircut is not None and not _ends_before(snapshot, market, leave_on):
        left = market.last_close(since=entry.session, until=leave_on)
    if left is None:
        return _gap(market, leave_on, snapshot, entry=entry, exit_session=leave_on)
    earned = market.earned(entry, left, haircut=haircut or 0.0)
    if isinstance(earned, Flaw):
        return _Window(status="conflict", reason=earned.reason, entry=entry, exit_session=leave_on)
    trade = Trade(entry=entry, exit=left, haircut=haircut or 0.0, earned=earned)
    return _Window(
        status="resolved", reason=None, entry=entry, exit_session=left.session, trade=trade
    )


def _gap(
    market: Market,
    session: date,
    snapshot: Snapshot,
    *,
    exit_session: date,
    entry: Quote | None = None,
) -> _Window:
    if _ends_before(snapshot, market, session):
        status: ReturnStatus = "pending"
        reason = f"snapshot {snapshot.name} ends before the close of {session}"
    else:
        status = "missing_bar"
        reason = f"{market.instrument} has no usable bar for session {session}"
    return _Window(status=status, reason=reason, entry=entry, exit_session=exit_session)


def _ends_before(snapshot: Snapshot, market: Market, session: date) -> bool:
    """Say whether a snapshot ends before a session closes.

    It does where the session is after the declared range, or where no bar of any instrument was
    public at that close or later: then the session had not closed when the data were taken.
    """
    if session > snapshot.end:
        return True
    newest = snapshot.newest_bar_at
    closed = market.calendar.close_utc(market.calendar.last_on_or_before(session))
    return newest is None or newest < closed


# ------------------------------------------------------------------------------------ the record


def _record(
    key: CellKey,
    rating: str | None,
    rule: ScoreRule,
    market: Market,
    plan: _Plan,
    window: _Window,
    choice: BenchmarkChoice,
    against: Comparison,
) -> ReturnRecord:
    direction = None if rating is None else DIRECTION[rating]
    trade = window.trade
    earned = trade.earned if trade else None
    return ReturnRecord(
        key=key,
        score_id=rule.score_id,
        status=window.status,
        reason=window.reason,
        horizon=rule.horizon,
        entry_rule=rule.entry_rule,
        entry_session=plan.entry_session if window.entered else None,
        exit_session=window.exit_session,
        entry_at=plan.entry_at if window.entered else None,
        entry_price=window.entry.price if window.entry else None,
        exit_price=trade.exit.price if trade else None,
        split_factor=earned.factor if earned else None,
        dividends=earned.dividends if earned else None,
        raw_price=earned.price if earned else None,
        raw_total=earned.total if earned else None,
        currency=market.currency,
        benchmark=choice.symbol,
        benchmark_source=choice.source,
        benchmark_basis=against.basis,
        benchmark_currency=against.currency,
        benchmark_entry_date=against.entry.session if against.entry else None,
        benchmark_exit_date=against.exit.session if against.exit else None,
        benchmark_return=against.benchmark_return,
        alpha=against.alpha,
        alpha_cc=against.alpha_cc,
        alpha_reason=against.reason,
        direction=direction,
        directional_alpha=_directed(direction, against.alpha),
        flags=_flags(market, plan, window, against),
        resolved_at=_resolved_at(window, against),
    )


def _directed(direction: int | None, alpha: float | None) -> float | None:
    if direction is None or alpha is None:
        return None
    # Hold earns zero whatever the alpha; without the sum a negative one would make it -0.0.
    return direction * alpha + 0.0


def _flags(market: Market, plan: _Plan, window: _Window, against: Comparison) -> tuple[str, ...]:
    own_index_open = market.is_index and plan.entry_point == "open" and window.entry is not None
    held = {
        "same_bar": window.entered and plan.entry_at <= plan.cutoff,
        "index_open": own_index_open or against.index_open,
        "currency_differs": against.currency is not None and against.currency != market.currency,
        "haircut": window.trade is not None and window.trade.haircut > 0.0,
    }
    return tuple(sorted(flag for flag, holds in held.items() if holds))


def _resolved_at(window: _Window, against: Comparison) -> datetime | None:
    """Return the latest instant that anything in the row waits for; None without a number.

    An instrument that was gone before its fill has no number and never will: that is known at the
    close of the window that it would have had.
    """
    if window.trade is None:
        return window.not_before
    instants = [window.trade.entry.known_at, window.trade.exit.known_at, *against.instants]
    if window.not_before is not None:
        instants.append(window.not_before)
    return max(instants)
