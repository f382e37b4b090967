"""Build records with every field filled, for tests that care about one or two of them."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

from backtester.records import (
    CallRecord,
    CellKey,
    CellRecord,
    LessonRecord,
    ReadRecord,
    ReturnRecord,
    SpendRecord,
)

CUTOFF = datetime(2018, 1, 5, 21, 0, tzinfo=UTC)


def make_key(ticker: str = "AAA", session: str = "2018-01-05", trial: int = 0) -> CellKey:
    """Make a cell key."""
    return CellKey(session=date.fromisoformat(session), ticker=ticker, trial=trial)


def make_call(**changes: Any) -> CallRecord:
    """Make a call that was a miss."""
    fields: dict[str, Any] = {
        "node": "Trader",
        "index": 0,
        "attempt": 0,
        "key": "k" * 64,
        "reply_hash": "r" * 64,
        "finish_reason": "stop",
        "hit": False,
        "provider": "rulebook",
        "model": "rulebook-1",
        "input_tokens": 10,
        "output_tokens": 5,
        "cost_usd": 0.0,
        "saved_usd": None,
        "latency_s": 0.25,
    }
    return CallRecord(**{**fields, **changes})


def make_spend(**changes: Any) -> SpendRecord:
    """Make a paid call."""
    fields: dict[str, Any] = {
        "run_id": "run-a",
        "paid_at": CUTOFF,
        "cell": "AAA|2018-01-05|0",
        "node": "Trader",
        "index": 0,
        "attempt": 0,
        "key": "k" * 64,
        "provider": "openai_compatible",
        "model": "stub",
        "finish_reason": "stop",
        "input_tokens": 10,
        "output_tokens": 5,
        "cached_tokens": None,
        "cost_usd": 0.1,
        "counted_usd": 0.1,
    }
    return SpendRecord(**{**fields, **changes})


def make_read(**changes: Any) -> ReadRecord:
    """Make a read of bars."""
    fields: dict[str, Any] = {
        "node": "Market Analyst",
        "index": 0,
        "tool": "get_stock_data",
        "table": "bars",
        "symbol": "AAA",
        "start": date(2017, 12, 1),
        "end": date(2018, 1, 5),
        "rows": 24,
        "max_known_at": CUTOFF,
        "clamped": False,
        "dropped": 0,
    }
    return ReadRecord(**{**fields, **changes})


def make_cell(key: CellKey | None = None, **changes: Any) -> CellRecord:
    """Make a done cell rated Buy."""
    fields: dict[str, Any] = {
        "key": key or make_key(),
        "cutoff": CUTOFF,
        "symbol": "AAA",
        "status": "done",
        "error_class": None,
        "error": None,
        "rating": "Buy",
        "rating_source": "structured",
        "typed": '{"rating":"Buy"}',
        "decision": "**Rating**: Buy",
        "state_hashes": (("final_trade_decision", "s" * 64),),
        "lessons_hash": "l" * 64,
        "lessons_shown": (),
        "degraded": False,
        "scored": True,
        "steps": 22,
        "calls": (make_call(),),
        "outcomes": (),
        "reads": (make_read(),),
        "wall_s": 0.5,
    }
    return CellRecord(**{**fields, **changes})


def make_return(key: CellKey | None = None, **changes: Any) -> ReturnRecord:
    """Make a resolved return of 3 % against a benchmark of 1 %."""
    fields: dict[str, Any] = {
        "key": key or make_key(),
        "score_id": "default",
        "status": "resolved",
        "reason": None,
        "horizon": 5,
        "entry_rule": "next_open",
        "entry_session": date(2018, 1, 8),
        "exit_session": date(2018, 1, 12),
        "entry_at": datetime(2018, 1, 8, 14, 30, tzinfo=UTC),
        "entry_price": 100.0,
        "exit_price": 103.0,
        "split_factor": 1.0,
        "dividends": 0.0,
        "raw_price": 0.03,
        "raw_total": 0.03,
        "currency": "USD",
        "benchmark": "^GSPC",
        "benchmark_source": "explicit",
        "benchmark_basis": "price",
        "benchmark_currency": "USD",
        "benchmark_entry_date": date(2018, 1, 8),
        "benchmark_exit_date": date(2018, 1, 12),
        "benchmark_return": 0.01,
        "alpha": 0.02,
        "alpha_cc": 0.02,
        "alpha_reason": None,
        "direction": 1,
        "directional_alpha": 0.02,
        "flags": ("index_open",),
        "resolved_at": datetime(2018, 1, 12, 21, 0, tzinfo=UTC),
    }
    return ReturnRecord(**{**fields, **changes})


def make_lesson(key: CellKey | None = None, **changes: Any) -> LessonRecord:
    """Make a written lesson on that return."""
    fields: dict[str, Any] = {
        "key": key or make_key(),
        "decision_hash": "d" * 64,
        "resolved_at": datetime(2018, 1, 12, 21, 0, tzinfo=UTC),
        "rating": "Buy",
        "raw_return": 0.03,
        "alpha": 0.02,
        "lesson_status": "written",
        "lesson": "The trend held.",
        "error": None,
        "calls": (make_call(node="Reflector"),),
        "outcomes": (),
    }
    return LessonRecord(**{**fields, **changes})
