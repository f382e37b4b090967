"""Build run documents and published databases, for tests of tables, views and queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from backtester.records import DIRECTION, CellKey, CellRecord, LessonRecord, ReturnRecord
from backtester.store.publishing import RunDocument, publish
from backtester.store.query import fetch_arrow
from tests.support.records import make_cell, make_lesson, make_return

MANIFEST: dict[str, Any] = {
    "run_id": "run-a",
    "status": "finished",
    "created_at": "2026-11-30T09:00:00+00:00",
    "finished_at": "2026-11-30T09:01:00+00:00",
    "config": {"horizon": 5, "workers": 4, "start": "2018-01-01", "end": "2018-12-31"},
    "identity": {
        "tickers": ["AAA", "BBB"],
        "start": "2018-01-01",
        "end": "2018-12-31",
        "grid": "weekly",
        "decision_time": "close",
        "horizon": 5,
        "entry": "next_open",
        "benchmark": "^GSPC",
        "memory": "portfolio",
        "trials": 1,
        "provider": "rulebook",
        "quick_model": "rulebook-1",
        "deep_model": "rulebook-1",
    },
    "snapshot_id": "a" * 64,
    "snapshot_name": "us-2013-2018",
    "prompt_fingerprint": "f" * 64,
    "results_version": 1,
    "results_root": "b" * 64,
    "cells_planned": 2,
    "versions": {"duckdb": "2.0.1"},
    "commit": None,
    "models": {},
}


def make_document(
    run_id: str = "run-a",
    *,
    cells: Sequence[CellRecord] = (),
    returns: Sequence[ReturnRecord] = (),
    lessons: Sequence[LessonRecord] = (),
    **manifest: Any,
) -> RunDocument:
    """Make a run's document from records."""
    return RunDocument(
        manifest={**MANIFEST, "run_id": run_id, **manifest},
        cells=cells,
        returns=returns,
        lessons=lessons,
    )


def make_run(run_id: str = "run-a", *, tickers: Sequence[str] = ("AAA", "BBB")) -> RunDocument:
    """Make a run of one whole cell a ticker."""
    keys = [CellKey(session=date(2018, 1, 5), ticker=ticker, trial=0) for ticker in tickers]
    return make_document(
        run_id,
        cells=[make_cell(key, symbol=key.ticker) for key in keys],
        returns=[make_return(key) for key in keys],
        lessons=[make_lesson(key) for key in keys],
    )


@dataclass(frozen=True, kw_only=True)
class Call:
    """One decision as the rating table sees it: a rating, a return, a benchmark's return."""

    rating: str | None
    ret: float | None
    bench: float | None = None
    ticker: str = ""
    session: date | None = None


def rated(run_id: str, calls: Sequence[Call]) -> RunDocument:
    """Make a run of decisions; a return of None is still pending."""
    cells, returns = [], []
    for number, call in enumerate(calls):
        key = CellKey(
            session=call.session or date(2018, 1, 5) + timedelta(days=7 * number),
            ticker=call.ticker or f"T{number}",
        )
        status = "done" if call.rating else "unread"
        cells.append(make_cell(key, rating=call.rating, status=status))
        returns.append(_return_of(key, call))
    return make_document(run_id, cells=cells, returns=returns)


_UNKNOWN_WHILE_PENDING = (
    "exit_session",
    "exit_price",
    "raw_price",
    "raw_total",
    "benchmark_return",
    "alpha",
    "alpha_cc",
    "directional_alpha",
    "resolved_at",
)


def _return_of(key: CellKey, call: Call) -> ReturnRecord:
    direction = DIRECTION[call.rating] if call.rating else None
    if call.ret is None:
        unknown = dict.fromkeys(_UNKNOWN_WHILE_PENDING)
        return make_return(key, status="pending", direction=direction, **unknown)
    alpha = None if call.bench is None else call.ret - call.bench
    signed = None if alpha is None or direction is None else direction * alpha
    return make_return(
        key,
        entry_session=key.session + timedelta(days=3),
        exit_session=key.session + timedelta(days=7),
        raw_total=call.ret,
        benchmark_return=call.bench,
        alpha=alpha,
        alpha_reason=None if alpha is not None else "no benchmark",
        direction=direction,
        directional_alpha=signed,
    )


def rows_of(database: Path, query: str) -> list[dict[str, Any]]:
    """Return a query's rows."""
    return fetch_arrow(database, query).to_pylist()


def published(database: Path, *documents: RunDocument) -> Path:
    """Publish runs and return the database."""
    for document in documents:
        publish(database, document)
    return database
