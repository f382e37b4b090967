"""Build rules and simulate small books for tests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

from backtester.book.costs import Costs
from backtester.book.policy import policy_named
from backtester.book.simulation import (
    BookResult,
    BookRule,
    OrderRecord,
    Signal,
    TargetSignal,
    simulate,
)
from backtester.snapshots.snapshot import Snapshot, open_folder
from tests.support.snapshots import Day, day_of

COSTS = (
    "commission_bps",
    "commission_per_share",
    "commission_minimum",
    "slippage_bps",
    "participation_cap",
    "impact_bps",
    "borrow_bps_year",
    "cash_rate",
)


_COMMITTED = Path(__file__).parents[2] / "data" / "snapshots" / "us-2013-2018"


@cache
def committed_snapshot() -> Snapshot:
    """Return the small real snapshot that the repository holds."""
    return open_folder(_COMMITTED, verify=False)


def make_rule(**changes: Any) -> BookRule:
    """Make a long-only rule that fills at the close of the decision, with 1,000 of cash.

    Cost fields may be given as they are; a policy by its name.
    """
    costs = Costs(**{name: changes.pop(name) for name in COSTS if name in changes})
    policy = changes.pop("policy", "long_only")
    fields: dict[str, Any] = {
        "policy": policy_named(policy) if isinstance(policy, str) else policy,
        "costs": costs,
        "entry_rule": "close",
        "decision_time": "close",
        "start_cash": 1_000.0,
    }
    return BookRule(**{**fields, **changes})


def signals(ratings: Mapping[str, Mapping[Day, str | None]]) -> list[Signal]:
    """Turn ticker -> session -> rating into signals."""
    return [
        Signal(ticker=ticker, session=day_of(session), rating=rating)
        for ticker, given in ratings.items()
        for session, rating in given.items()
    ]


def targets(weights: Mapping[str, Mapping[Day, float | None]]) -> list[TargetSignal]:
    """Turn ticker -> session -> weight into signals."""
    return [
        TargetSignal(ticker=ticker, session=day_of(session), weight=weight)
        for ticker, given in weights.items()
        for session, weight in given.items()
    ]


def booked(
    snapshot: Snapshot,
    decisions: Sequence[Signal] | Sequence[TargetSignal],
    *,
    start: Day | None = None,
    end: Day | None = None,
    tickers: Sequence[str] | None = None,
    **rule: Any,
) -> BookResult:
    """Simulate under `make_rule` with changes, over all that the snapshot holds unless told."""
    return simulate(
        decisions,
        snapshot=snapshot,
        rule=make_rule(**rule),
        start=day_of(start) if start else snapshot.start,
        end=day_of(end) if end else snapshot.end,
        tickers=tickers,
    )


def equities(book: BookResult) -> dict[str, float]:
    """Return date -> equity."""
    return {row.session.isoformat(): row.equity for row in book.equity}


def shares_on(book: BookResult, ticker: str, session: Day) -> float:
    """Return what is held of a ticker at the end of a session."""
    day = day_of(session)
    found = [r.shares for r in book.positions if (r.ticker, r.session) == (ticker, day)]
    return found[0] if found else 0.0


def outcomes(orders: Iterable[OrderRecord]) -> list[tuple[str, date, str, str | None]]:
    """Return (side, decision session, status, reason) of orders."""
    return [(order.side, order.session, order.status, order.reason) for order in orders]
