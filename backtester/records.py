"""The values that a run writes down: journal lines, table rows and the results root read these.

A cell is named by `CellKey`. Every record is frozen; floats are full doubles. The journal stores
each as one JSON line (`journal.py`), `store.py` turns them into DuckDB rows, and `root.py` hashes
what two equal runs must share.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from typing import Literal

CellStatus = Literal["done", "unread", "failed", "no_data", "skipped_budget"]
ReturnStatus = Literal["resolved", "pending", "missing_bar", "conflict", "delisted"]
LessonStatus = Literal["written", "failed", "off", "no_rating", "waiting"]

RATINGS = ("Sell", "Underweight", "Hold", "Overweight", "Buy")
DIRECTION = {"Sell": -1, "Underweight": -1, "Hold": 0, "Overweight": 1, "Buy": 1}


@dataclass(frozen=True, kw_only=True, order=True)
class CellKey:
    """Name one decision of a run."""

    session: date
    ticker: str
    trial: int = 0

    def __str__(self) -> str:
        """Return ``ticker|session|trial``, the form used in sites and messages."""
        return f"{self.ticker}|{self.session.isoformat()}|{self.trial}"


@dataclass(frozen=True, kw_only=True)
class CallRecord:
    """One model call (or attempt) of a cell or of a lesson.

    Attributes:
        node: Graph node, or ``Reflector``.
        index: Position within the node, by message, never by arrival.
        attempt: 0, then 1.. for repairs.
        key: Cache key.
        reply_hash: sha256 of the normalised reply (text, tool calls, finish reason); of kind and
            text for an outcome.
        finish_reason: As answered; ``outcome:<kind>`` for an outcome.
        hit: Served from the cache (not part of the results root).
        provider: Provider name.
        model: Model asked for.
        input_tokens: As reported, or None.
        output_tokens: As reported, or None.
        cost_usd: None where the price is unknown; 0.0 for a hit.
        saved_usd: What the hit saved, None where unknown.
        latency_s: Wall seconds of the call (not part of the root).
        cached_tokens: Of the input tokens, those that the provider had in a cache of its own.
        retries: How often the transport tried again (not part of the root).
    """

    node: str
    index: int
    attempt: int
    key: str
    reply_hash: str
    finish_reason: str
    hit: bool
    provider: str
    model: str
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None
    saved_usd: float | None
    latency_s: float
    cached_tokens: int | None = None
    retries: int = 0


@dataclass(frozen=True, kw_only=True)
class SpendRecord:
    """One paid call, as the spend ledger keeps it: nothing here is part of the results root.

    Attributes:
        run_id: Run, or identity of the single analysis, that paid.
        paid_at: Wall time at which the reply came, UTC.
        cell: ``ticker|session|trial`` of the cell or of the lesson's cell.
        node: Graph node, or ``Reflector``.
        index: Position within the node.
        attempt: 0, then 1.. for repairs.
        key: Cache key.
        provider: Provider name.
        model: Model asked for.
        finish_reason: As answered; ``outcome:<kind>`` for an outcome; ``lost`` for a request that
            may be billed though nobody could read its answer.
        input_tokens: As reported, or None.
        output_tokens: As reported, or None.
        cached_tokens: As reported, or None.
        cost_usd: None where price or tokens are unknown.
        counted_usd: What caps count: the cost, where tokens are unknown that of an estimate.
    """

    run_id: str
    paid_at: datetime
    cell: str
    node: str
    index: int
    attempt: int
    key: str
    provider: str
    model: str
    finish_reason: str
    input_tokens: int | None
    output_tokens: int | None
    cached_tokens: int | None
    cost_usd: float | None
    counted_usd: float


@dataclass(frozen=True, kw_only=True)
class OutcomeRecord:
    """An attempt without an answer, kept with its text so that a replay can serve it."""

    node: str
    index: int
    attempt: int
    key: str
    kind: str
    message: str
    text: str
    finish_reason: str
    request: str


@dataclass(frozen=True, kw_only=True)
class ReadRecord:
    """One read of the view.

    Attributes:
        node: Node that read; ``harness`` for reads outside the graph.
        index: Position of the tool call within the node.
        tool: Tool name, empty for the harness.
        table: Table read.
        symbol: Instrument id, empty for a table without one.
        start: First date asked for after clamping, or None.
        end: Last date after clamping.
        rows: Rows returned.
        max_known_at: Newest ``known_at`` returned (UTC), or None for no row.
        clamped: A later date was asked for.
        dropped: Undated rows left out.
        withheld: Rows left out because their ``known_at`` is an estimate.
    """

    node: str
    index: int
    tool: str
    table: str
    symbol: str
    start: date | None
    end: date | None
    rows: int
    max_known_at: datetime | None
    clamped: bool
    dropped: int
    withheld: int = 0


@dataclass(frozen=True, kw_only=True)
class CellRecord:
    """One decided (or failed) cell, as the journal keeps it.

    Attributes:
        key: Cell.
        cutoff: UTC instant of the decision.
        symbol: Symbol valid at the cutoff (``FB``).
        status: One of the words of its type, explained in the README.
        error_class: Word for a cell that is not done, else None.
        error: One line, else None.
        rating: One of the five, or None.
        rating_source: How it was read.
        typed: Canonical JSON of the typed decision, or ``null``.
        decision: The decision's Markdown.
        state_hashes: (state field, sha256), sorted by field.
        lessons_hash: sha256 over the lessons shown to the cell.
        lessons_shown: Ids of those lessons (``ticker|session|trial``), newest first.
        degraded: A core tool failed.
        scored: False for warm-up sessions.
        steps: Graph steps.
        calls: In (node order of first use, index, attempt) order of the run.
        outcomes: Attempts without an answer.
        reads: In order.
        wall_s: Wall seconds (not part of the root).
        error_detail: Further lines on a failure, such as the difference of a missing prompt to
            the nearest recorded one (not part of the root).
        book_hash: sha256 over the book shown to the cell; empty where none was.
    """

    key: CellKey
    cutoff: datetime
    symbol: str
    status: CellStatus
    error_class: str | None
    error: str | None
    rating: str | None
    rating_source: str
    typed: str
    decision: str
    state_hashes: tuple[tuple[str, str], ...]
    lessons_hash: str
    lessons_shown: tuple[str, ...]
    degraded: bool
    scored: bool
    steps: int
    calls: tuple[CallRecord, ...]
    outcomes: tuple[OutcomeRecord, ...]
    reads: tuple[ReadRecord, ...]
    wall_s: float
    error_detail: str = ""
    book_hash: str = ""


@dataclass(frozen=True, kw_only=True)
class ReturnRecord:
    """What one decision earned over its window under one score.

    Attributes:
        key: Cell.
        score_id: ``default`` for the run's own.
        status: One of the words of its type, explained in the README.
        reason: Why it is not resolved, one line, else None.
        horizon: Sessions from the decision session to the exit.
        entry_rule: ``next_open, next_close, close, open``.
        entry_session: Session of the fill, or None.
        exit_session: Session of the exit, or None.
        entry_at: UTC instant of the fill, or None.
        entry_price: As traded, or None; so ``exit_price``.
        exit_price: Close as traded at the exit session.
        split_factor: Product of the window's splits (shares held per share bought).
        dividends: Sum of dividend_k * S_k per share bought, in the quote currency.
        raw_price: Return without dividends, a fraction.
        raw_total: Return with dividends, a fraction; this is "return" everywhere.
        currency: Quote currency.
        benchmark: Benchmark symbol, or None where none is known.
        benchmark_source: ``explicit``, ``suffix`` or ``none``.
        benchmark_basis: ``price`` or ``total``.
        benchmark_currency: Currency, or None.
        benchmark_entry_date: Date of the benchmark's entry bar, or None; so exit.
        benchmark_exit_date: Date of its exit bar.
        benchmark_return: A fraction, or None.
        alpha: Instrument's return on the benchmark's basis less the benchmark's, or None.
        alpha_cc: Both legs close of d to close of d+h, or None.
        alpha_reason: Why alpha is None, else None.
        direction: +1, 0, -1, or None without a rating.
        directional_alpha: direction * alpha, or None.
        flags: Sorted words: ``same_bar, index_open, currency_differs, haircut``.
        resolved_at: UTC instant from which the result is known, or None while pending.
    """

    key: CellKey
    score_id: str
    status: ReturnStatus
    reason: str | None
    horizon: int
    entry_rule: str
    entry_session: date | None
    exit_session: date | None
    entry_at: datetime | None
    entry_price: float | None
    exit_price: float | None
    split_factor: float | None
    dividends: float | None
    raw_price: float | None
    raw_total: float | None
    currency: str | None
    benchmark: str | None
    benchmark_source: str
    benchmark_basis: str | None
    benchmark_currency: str | None
    benchmark_entry_date: date | None
    benchmark_exit_date: date | None
    benchmark_return: float | None
    alpha: float | None
    alpha_cc: float | None
    alpha_reason: str | None
    direction: int | None
    directional_alpha: float | None
    flags: tuple[str, ...]
    resolved_at: datetime | None


@dataclass(frozen=True, kw_only=True)
class LessonRecord:
    """The memory row of one decision.

    Attributes:
        key: Cell it is about.
        decision_hash: sha256 of the decision and return that it reflects on.
        resolved_at: UTC instant from which it may be shown, or None while its return waits.
        rating: The decision's rating.
        raw_return: ``raw_total``.
        alpha: Or None.
        lesson_status: See `LessonStatus`.
        lesson: Text, empty unless written.
        error: One line where it failed, else None.
        calls: Model calls made for it.
        outcomes: Attempts without an answer.
    """

    key: CellKey
    decision_hash: str
    resolved_at: datetime | None
    rating: str | None
    raw_return: float | None
    alpha: float | None
    lesson_status: LessonStatus
    lesson: str
    error: str | None
    calls: tuple[CallRecord, ...]
    outcomes: tuple[OutcomeRecord, ...]
