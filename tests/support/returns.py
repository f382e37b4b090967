"""Settle one decision with a rule that shows prices and nothing else."""

from __future__ import annotations

import dataclasses
from datetime import UTC, date, datetime
from typing import Any

from backtester.records import CellKey, ReturnRecord
from backtester.settlement.broker import ScoreRule, settle
from backtester.settlement.many import settle_all, table_of_returns
from backtester.snapshots.snapshot import Snapshot
from tests.support.records import make_cell
from tests.support.snapshots import BarTuple

NEAR = 1e-12

# Monday to Wednesday. Opens differ from closes so that a wrong point shows.
WEEK: list[BarTuple] = [
    ("2024-03-04", 98, 101, 97, 100, 1_000),
    ("2024-03-05", 109, 111, 108, 110, 1_000),
    ("2024-03-06", 107, 112, 106, 108, 1_000),
]


def make_rule(**changes: Any) -> ScoreRule:
    """Make a rule from close to close over two sessions, with changes."""
    fields: dict[str, Any] = {"horizon": 2, "entry_rule": "close", "decision_time": "close"}
    return ScoreRule(**{**fields, **changes})


def settled(
    snapshot: Snapshot,
    session: str,
    *,
    ticker: str = "AAA",
    rating: str | None = "Buy",
    **rule: Any,
) -> ReturnRecord:
    """Settle one decision under `make_rule` with changes."""
    key = CellKey(session=day(session), ticker=ticker)
    row = settle(key, rating, snapshot=snapshot, rule=make_rule(**rule))
    # Whatever a test asks for, many at once give the same row.
    cell = make_cell(key, symbol=ticker, rating=rating)
    columns = settle_all([cell], snapshot=snapshot, rules={ticker: make_rule(**rule)})
    assert columns.equals(table_of_returns([row]))
    return row


def day(text: str) -> date:
    """Return a date from ISO text."""
    return date.fromisoformat(text)


def utc(text: str) -> datetime:
    """Return a UTC instant from ISO text."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def numbers_of(row: ReturnRecord) -> list[float]:
    """Return every double of a row."""
    return [value for value in dataclasses.asdict(row).values() if isinstance(value, float)]
