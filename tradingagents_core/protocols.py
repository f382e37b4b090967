"""What the pipeline is given and what it gives back; `backtester` supplies the implementations.

Three protocols cross the border of this package: `View` (data at one cutoff), `ReplyStore` (look
up and record model replies) and `Sink` (what a cell produced on the way). The frozen values that
flow through them are here too. Nothing in this module touches disk, clock or environment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

Mode = Literal["replay", "record", "refresh", "off"]
BookSource = Literal["user", "simulated"]
RatingSource = Literal["structured", "repaired", "declared_line", "conflicting", "none"]
# ``transport``: the provider was not reached or could not answer anybody; ``rejected``: it answered
# that it will not take this request.
OutcomeKind = Literal[
    "transport", "rejected", "content_filter", "refusal", "length", "empty", "invalid"
]


# Kinds of instruments behind which stands no company with books.
NO_COMPANY = frozenset({"crypto", "fx", "future", "index"})


# --------------------------------------------------------------------------- data at one cutoff


@dataclass(frozen=True, kw_only=True)
class Identity:
    """Say what an instrument was called at the cutoff.

    Attributes:
        instrument: The snapshot's own id, stable over renames (``META``).
        symbol: The symbol valid at the cutoff (``FB`` until 2022-06-09).
        name: The name valid at the cutoff.
        exchange: Exchange as people call it (``NASDAQ``).
        currency: ISO code, or a minor unit as quoted (``GBp``).
        sector: Sector, or None where it is not known as of the cutoff.
        asset_type: ``stock``, ``fund``, ``index``, ``crypto``, ``fx`` or ``future``.
        static: True where a field has no validity range and is today's word.
    """

    instrument: str
    symbol: str
    name: str
    exchange: str
    currency: str
    sector: str | None
    asset_type: str
    static: bool

    @property
    def is_company(self) -> bool:
        """Say whether there may be statements, insiders and a market value to look up."""
        return self.asset_type not in NO_COMPANY


@dataclass(frozen=True, kw_only=True)
class Bars:
    """Hold daily bars of one instrument, oldest first, all arrays of one length.

    Attributes:
        sessions: Session dates, ``datetime64[D]``.
        open: Price in the quote currency; so are ``high, low, close``. Adjusted for the splits
            known at the cutoff and for nothing else.
        volume: Shares, on the same split basis.
    """

    sessions: npt.NDArray[np.datetime64]
    open: npt.NDArray[np.float64]
    high: npt.NDArray[np.float64]
    low: npt.NDArray[np.float64]
    close: npt.NDArray[np.float64]
    volume: npt.NDArray[np.float64]

    def __len__(self) -> int:
        """Return the number of bars."""
        return len(self.sessions)


@dataclass(frozen=True, kw_only=True)
class IndicatorSeries:
    """Hold indicator values by session, oldest first; NaN where history is too short."""

    sessions: npt.NDArray[np.datetime64]
    values: Mapping[str, npt.NDArray[np.float64]]


FieldValue = str | int | float | bool | date | datetime | None


@dataclass(frozen=True, kw_only=True)
class Row:
    """Hold one row of a table other than bars.

    Attributes:
        known_at: UTC instant from which the row is public.
        fields: Column name -> value, without ``known_at``; None where the source gave nothing.
    """

    known_at: datetime
    fields: Mapping[str, FieldValue]


@runtime_checkable
class View(Protocol):
    """Read data as it was known at one cutoff. Nothing moves the cutoff.

    Every method logs its read under the current `Site`, clamps a later date to the cutoff's
    session, raises `DataUnavailable` (or `NoMarketData`) for what is not there, and
    `LookaheadError` should a later row ever come out.
    """

    @property
    def cutoff(self) -> datetime:
        """UTC instant up to which the world is known."""

    @property
    def session(self) -> date:
        """The decision session: the simulated date."""

    @property
    def last_session(self) -> date:
        """Newest session whose bar may be visible (``session``, or the one before at the open)."""

    def resolve(self, symbol: str) -> str:
        """Return the instrument id for a symbol valid at the cutoff, or raise `ToolInputError`."""

    def identity(self, symbol: str) -> Identity:
        """Return the identity valid at the cutoff."""

    def bars(
        self,
        symbol: str,
        *,
        start: date | None = None,
        end: date | None = None,
        last: int | None = None,
    ) -> Bars:
        """Return visible bars with ``start <= session <= end``, at most the ``last`` newest."""

    def indicators(
        self,
        symbol: str,
        names: tuple[str, ...],
        *,
        start: date | None = None,
        end: date | None = None,
        last: int | None = None,
    ) -> IndicatorSeries:
        """Return indicator values on the visible bars; names are those of `indicators.MENU`."""

    def require(self, table: str, symbol: str | None = None) -> None:
        """Raise `DataUnavailable` with the reason where the snapshot has no such table."""

    def rows(
        self,
        table: str,
        symbol: str | None = None,
        *,
        start: date | None = None,
        end: date | None = None,
        last: int | None = None,
    ) -> tuple[Row, ...]:
        """Return visible rows that became public on the UTC days ``start`` to ``end``.

        Args:
            table: A table with an instant of publication in each row, such as ``news``.
            symbol: Instrument of the rows; None for rows that belong to none.
            start: First day, or None for no limit.
            end: Last day, or None for the cutoff.
            last: Keep so many of the newest, after everything else.

        Returns:
            Oldest first.
        """

    def withheld(self, table: str, symbol: str | None = None, *, end: date | None = None) -> int:
        """Return how many rows of a table, up to a day, are kept back by the run's settings.

        When they became public is only estimated; `rows` does not return them.
        """


# ------------------------------------------------------------------------------ where a call is


@dataclass(frozen=True, kw_only=True)
class Site:
    """Name the place in a run from which a model call or a read is made.

    Attributes:
        cell: ``instrument|session|trial`` as the harness writes it; empty outside a run.
        node: Node name of the graph (``Market Analyst``), or ``Reflector``.
        index: Position of the call (or of the tool call) within its node, 0-based.
        tool: Tool name while a tool runs, else empty.
        attempt: 0 for the first try of a call, 1.. for repairs.
        trial: Repeat number of the cell.
        generation: Raised by ``refresh``.
        validate: Given the reply, names in words why it is no answer, else None. Set around
            structured calls, so that an invalid reply is never stored as an answer.
        free_text: True where a reply cut by length may count (only with ``accept_truncated``).
    """

    cell: str = ""
    node: str = ""
    index: int = 0
    tool: str = ""
    attempt: int = 0
    trial: int = 0
    generation: int = 0
    validate: Callable[[Reply], str | None] | None = None
    free_text: bool = True


CURRENT_SITE: ContextVar[Site] = ContextVar("tradingagents_site", default=Site())


# --------------------------------------------------------------------------------- model replies


@dataclass(frozen=True, kw_only=True)
class ToolCall:
    """Hold one tool call of a reply; ``args`` is canonical JSON text."""

    id: str
    name: str
    args: str


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Count tokens as the provider reported them; None where it did not.

    Attributes:
        input_tokens: Of the request, cached ones included.
        output_tokens: Of the reply, reasoning included.
        cached_tokens: Of the request, those that the provider had in a cache of its own.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None


@dataclass(frozen=True, kw_only=True)
class Reply:
    """Hold a model reply in one form for all providers.

    Attributes:
        text: Text content, empty if there is none.
        tool_calls: In the order of the message.
        finish_reason: ``stop, tool_calls, length, content_filter, ...`` as the provider said.
        usage: Tokens.
        model: Model name as answered.
        refusal: Refusal text of providers that have the field, else None.
        raw: The provider's own JSON text, byte for byte where the client lets us see it.
        reasoning: What the model thought before it spoke, in words, where its provider shows it.
        opaque: JSON text of the reasoning as its provider wants it back (signatures, encrypted
            items); None where words alone will do.
    """

    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str = "stop"
    usage: Usage = field(default_factory=Usage)
    model: str = ""
    refusal: str | None = None
    raw: str = ""
    reasoning: str | None = None
    opaque: str | None = None


@dataclass(frozen=True, kw_only=True)
class ModelCall:
    """Describe one call before it is made.

    Attributes:
        key: sha256 hex of the canonical key document.
        request: Canonical JSON text of the whole key document (format, generation, trial,
            attempt, provider, endpoint, body).
        provider: Provider name of the table.
        endpoint: Endpoint alias.
        model: Model asked for.
        site: Where in the run the call is made.
    """

    key: str
    request: str
    provider: str
    endpoint: str
    model: str
    site: Site


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Hold an attempt that ended without an answer, as the journal keeps it."""

    kind: OutcomeKind
    message: str
    reply: Reply | None = None


class ReplyStore(Protocol):
    """Look up and record model replies; one object for one cell (or lesson) of one run."""

    @property
    def mode(self) -> Mode:
        """How misses are treated; in ``replay`` a miss raises and the network is never tried."""

    @property
    def accept_truncated(self) -> bool:
        """Whether free-text nodes take a reply cut by length as an answer."""

    def look_up(self, call: ModelCall) -> Reply | Outcome | None:
        """Return the stored answer or (in replay) outcome; None means: call the model.

        Raises:
            ReplayMiss: In ``replay`` mode, where nothing is stored.
        """

    def flight(self, key: str) -> AbstractContextManager[None]:
        """Hold the one flight of a key on this machine; the caller looks up again inside."""

    def record(self, call: ModelCall, reply: Reply, *, latency_s: float, retries: int = 0) -> Reply:
        """Store an answer if absent and return what is stored now.

        Args:
            call: What was asked.
            reply: What was answered.
            latency_s: Wall seconds of the call, waits between retries included.
            retries: How often the transport tried again; it is in no key and no answer.
        """

    def record_outcome(
        self, call: ModelCall, outcome: Outcome, *, latency_s: float, retries: int = 0
    ) -> None:
        """Keep an outcome for the run's journal; it never enters the cache."""

    def lost(self, call: ModelCall, *, again: bool) -> None:
        """Count a request that may be billed though nobody could read what was answered.

        Args:
            call: What was asked.
            again: Whether the transport is about to send it once more.

        Raises:
            PipelineError: A budget forbids to send it again.
        """


# ------------------------------------------------------------------------------- a cell's result


@dataclass(frozen=True, kw_only=True)
class Lesson:
    """Show a resolved past decision to a prompt, as of that prompt's cutoff.

    Attributes:
        symbol: Symbol as valid at the reader's cutoff.
        session: Decision session.
        rating: One of the five, or None for an unread one (such cells give no lesson).
        horizon: Sessions held.
        raw_return: ``raw_total`` as a fraction.
        alpha: As a fraction, or None.
        benchmark: Benchmark symbol.
        decision: The decision's Markdown.
        reflection: Text of the lesson.
    """

    symbol: str
    session: date
    rating: str | None
    horizon: int
    raw_return: float | None
    alpha: float | None
    benchmark: str
    decision: str
    reflection: str


@dataclass(frozen=True, kw_only=True)
class Holding:
    """Hold one position of a book, in the book's currency.

    Attributes:
        symbol: Symbol, for a simulated book as valid at the reader's cutoff.
        shares: Negative for a short position.
        price: Last price a share, or None; what follows from it is None too.
        value: ``shares * price``.
        weight: Part of the equity, a fraction, or None where the equity is not above zero.
        unrealised: Result not taken yet, an amount, or None where the cost is not known.
    """

    symbol: str
    shares: float
    price: float | None
    value: float | None
    weight: float | None
    unrealised: float | None


@dataclass(frozen=True, kw_only=True)
class Holdings:
    """Hold a book as it is shown to the portfolio manager.

    Attributes:
        source: ``user``, stated by its owner, or ``simulated``, from earlier decisions.
        as_of: Day of the book, or None where its owner does not say.
        currency: Of all amounts.
        cash: Negative where it is owed.
        equity: Cash and positions, or None where a price is not known.
        positions: In the order in which they are shown.
        rule: How a simulated book came about, in one line; empty for a user's.
    """

    source: BookSource
    as_of: date | None
    currency: str
    cash: float
    equity: float | None
    positions: tuple[Holding, ...] = ()
    rule: str = ""


@dataclass(frozen=True, kw_only=True)
class CellRequest:
    """Ask the pipeline for one decision.

    Attributes:
        cell: Cell id for sites.
        ticker: Instrument id.
        session: Decision session.
        trial: Repeat number.
        generation: Cache generation.
        benchmark: Benchmark symbol that prompts name.
        own_lessons: Newest first, shown in full.
        other_lessons: Newest first, reflections only.
        book: What is held, or None where no book is shown.
    """

    cell: str
    ticker: str
    session: date
    trial: int
    generation: int
    benchmark: str
    own_lessons: tuple[Lesson, ...] = ()
    other_lessons: tuple[Lesson, ...] = ()
    book: Holdings | None = None


@dataclass(frozen=True, kw_only=True)
class Decision:
    """Hold what one cell decided.

    Attributes:
        rating: One of the five words, or None; never Hold for want of a rating.
        source: How the rating was read.
        typed: Canonical JSON of the typed `PortfolioDecision`, or ``null`` if there is none.
        markdown: The rendered decision (or the raw text where no typed one was had).
        state: Final state field -> text (debate states as canonical JSON), for hashing and reports.
        steps: Number of graph steps that ran.
        degraded: True where a core tool failed on the way.
    """

    rating: str | None
    source: RatingSource
    typed: str
    markdown: str
    state: Mapping[str, str]
    steps: int
    degraded: bool


class Sink(Protocol):
    """Take progress of a cell as it happens; must not influence the cell."""

    def node_finished(self, cell: str, node: str, update: Mapping[str, Any]) -> None:
        """Take the state update of a node that has just ended."""
