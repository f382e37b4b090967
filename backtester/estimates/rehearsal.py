"""How large requests are where nobody has asked yet: some cells are rehearsed, and nobody is asked.

First the rulebook decides a cell: it is free, asks what every model is asked, and shows what a
usual request looks like. Then the same cell is played with all going on as long as it may: every
tool turn is taken and asks for all that the rulebook looked up, every form is filled in wrongly up
to the last call, and every reply is as long as its limit allows. Every later prompt holds earlier
replies, so this is how large requests can become. What a model would write is a mark here; marks
in a request are counted, and each stands for a reply at its limit. The rest, which is ours or a
vendor's, is counted as one token a byte: no tokenizer makes more of it.

Two things are taken as known: that tools answer others in a turn no more than they answer the
rulebook in all, and that no cell is larger than the largest of those that are rehearsed, which are
spread over the run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Final

import orjson
from langsmith import tracing_context

from backtester.config import RunConfig
from backtester.records import CellKey
from backtester.replies.window import characters_of
from backtester.settlement.broker import benchmark_for
from backtester.spending.tariff import tokens_of
from backtester.walk.cell import Workbench
from backtester.walk.plan import Barrier, Plan
from tradingagents_core.errors import DataUnavailable, PipelineError
from tradingagents_core.graph import Models, Pipeline, ReflectionRequest
from tradingagents_core.llm.factory import create_model
from tradingagents_core.prompts import DECISION_LIMIT, REFLECTION_LIMIT
from tradingagents_core.protocols import (
    CellRequest,
    Holding,
    Holdings,
    Lesson,
    Mode,
    ModelCall,
    Outcome,
    Reply,
    ToolCall,
)
from tradingagents_core.settings import ModelSpec

MOST_REHEARSED: Final = 12
_RULES: Final = ModelSpec(provider="rulebook", model="rulebook-1")
_MARK: Final = "A-REPLY-AT-ITS-LIMIT"
# Of what a lesson quotes only the beginning is shown.
_DECISION: Final = "A-DECISION-CUT-SHORT"
_REFLECTION: Final = "A-REFLECTION-CUT-SHORT"
# Letters of Chinese or Japanese take three bytes, those of English one.
_BYTES_A_LETTER: Final = 3
# What writing a filled form out adds in words, beyond the names that the reply itself held.
_RENDERED: Final = 64
# The sentence on how a simulated book came about.
_LONGEST_RULE: Final = 600
_LIMIT_FIELDS: Final = (
    *("max_completion_tokens", "max_tokens", "max_output_tokens"),
    *("maxOutputTokens", "maxTokens"),
)
_WITHIN: Final = ("generationConfig", "inferenceConfig")


@dataclass(kw_only=True)
class Mean:
    """Add up the tokens of a node's calls."""

    calls: int = 0
    input: int = 0
    output: int = 0

    def add(self, input_tokens: int | None, output_tokens: int | None) -> None:
        """Count one call, where both figures are known."""
        if input_tokens is not None and output_tokens is not None:
            self.calls += 1
            self.input += input_tokens
            self.output += output_tokens


@dataclass(frozen=True, kw_only=True)
class LongCall:
    """Say how large one call can become.

    Attributes:
        own_bytes: Of the request, earlier replies left out.
        replies: How often an earlier reply stands in it.
        decisions: How often the beginning of a past decision stands in it.
        reflections: How often that of a lesson does.
        limit: Tokens that its reply may have, or None where nothing limits it.
    """

    own_bytes: int
    replies: int
    decisions: int
    reflections: int
    limit: int | None

    @classmethod
    def of(cls, call: ModelCall) -> LongCall:
        """Weigh a call."""
        marks = {mark: call.request.count(mark) for mark in (_MARK, _DECISION, _REFLECTION)}
        marked = sum(count * len(mark) for mark, count in marks.items())
        return cls(
            own_bytes=len(call.request.encode()) - marked,
            replies=marks[_MARK],
            decisions=marks[_DECISION],
            reflections=marks[_REFLECTION],
            limit=_limit_of(orjson.loads(call.request)["body"]),
        )

    def input_tokens(self, longest: int) -> int:
        """Return the tokens of the request at most, where no reply is longer than ``longest``."""
        reply = longest + _RENDERED
        decision = min(reply, _BYTES_A_LETTER * DECISION_LIMIT)
        reflection = min(reply, _BYTES_A_LETTER * REFLECTION_LIMIT)
        quoted = self.decisions * decision + self.reflections * reflection
        return self.own_bytes + self.replies * reply + quoted

    def larger(self, other: LongCall) -> LongCall:
        """Return what is at least as large as both."""
        limits = (self.limit, other.limit)
        return LongCall(
            own_bytes=max(self.own_bytes, other.own_bytes),
            replies=max(self.replies, other.replies),
            decisions=max(self.decisions, other.decisions),
            reflections=max(self.reflections, other.reflections),
            limit=None if None in limits else max(limit or 0 for limit in limits),
        )


@dataclass(frozen=True, kw_only=True)
class Rehearsal:
    """Hold what the calls of some cells, and of their lessons, came to.

    Attributes:
        usual: Tokens of the rulebook's calls by node, characters / 4.
        long: Calls by node where all goes on as long as it may, each in the largest cell.
        cells: How many cells were rehearsed.
    """

    usual: Mapping[str, Mean]
    long: Mapping[str, Sequence[LongCall]]
    cells: int

    @property
    def longest_reply(self) -> int | None:
        """Tokens of the longest reply of any node, or None where nothing limits one."""
        limits = [call.limit for calls in self.long.values() for call in calls]
        return None if None in limits else max((limit or 0 for limit in limits), default=0)


def rehearse(bench: Workbench, plan: Plan) -> Rehearsal:
    """Rehearse some cells of a plan.

    Args:
        bench: Has the pipeline, whose models build the requests, and the snapshot.
        plan: Has the cells.
    """
    rules = create_model(_RULES, api_key=None)
    by_rules = Pipeline(bench.pipeline.settings, Models(quick=rules, deep=rules))
    usual: dict[str, Mean] = {}
    long: dict[str, dict[_Place, LongCall]] = {}
    rehearsed = 0
    for key, barrier in _spread(plan):
        scale = _Scale(usual)
        try:
            with tracing_context(enabled=False):
                _play(bench, by_rules, key, barrier, scale)
                endless = _Endless(scale.asked, turns=bench.pipeline.settings.max_tool_turns)
                _play(bench, bench.pipeline, key, barrier, endless)
        except (PipelineError, DataUnavailable):
            continue
        rehearsed += 1
        for node, calls in endless.calls.items():
            known = long.setdefault(node, {})
            known.update({at: call.larger(known.get(at, call)) for at, call in calls.items()})
    return Rehearsal(
        usual={node: mean for node, mean in usual.items() if mean.calls},
        long={node: tuple(calls.values()) for node, calls in long.items()},
        cells=rehearsed,
    )


def _spread(plan: Plan) -> Iterator[tuple[CellKey, Barrier]]:
    """Yield some cells of a plan, the first and the last among them."""
    cells = [(key, barrier) for barrier in plan.barriers for key in barrier.keys if not key.trial]
    count = min(MOST_REHEARSED, len(cells))
    places = {round(number * (len(cells) - 1) / max(count - 1, 1)) for number in range(count)}
    return (cells[place] for place in sorted(places))


def _play(
    bench: Workbench, pipeline: Pipeline, key: CellKey, barrier: Barrier, store: _Store
) -> None:
    """Decide a cell and write its lesson, with as many past lessons as a prompt may show."""
    config = bench.config
    benchmark = benchmark_for(key.ticker, config.benchmark_of(key.ticker)).symbol or "none"
    view = bench._view(key, barrier.cutoff, lambda _: None)
    symbol = view.identity(key.ticker).symbol
    lessons: tuple[Lesson, ...] = ()
    if store.with_lessons and config.memory != "off":
        lessons = (_long_lesson(key, symbol, benchmark, config.horizon),)
    request = CellRequest(
        cell=str(key),
        ticker=key.ticker,
        session=key.session,
        trial=key.trial,
        generation=config.generation,
        benchmark=benchmark,
        own_lessons=lessons * config.own_lessons,
        other_lessons=lessons * config.other_lessons,
        book=_book(config, key),
    )
    decided = pipeline.decide(request, view, replies=store)
    pipeline.reflect(
        ReflectionRequest(
            cell=request.cell,
            symbol=symbol,
            session=key.session,
            trial=key.trial,
            generation=config.generation,
            rating=decided.rating or "Underweight",
            decision=decided.markdown,
            horizon=config.horizon,
            raw_return=-0.1,
            alpha=-0.1,
            benchmark=benchmark,
        ),
        replies=store,
    )


def _book(config: RunConfig, key: CellKey) -> Holdings | None:
    """Return the book that is shown: the user's own, or one that holds every ticker of the run."""
    if config.portfolio is not None:
        return config.portfolio.holdings()
    if not config.show_book:
        return None
    amount = -1_234_567_890.12
    held = tuple(
        Holding(
            symbol=ticker,
            shares=amount,
            price=-amount,
            value=amount,
            weight=-1.0,
            unrealised=amount,
        )
        for ticker in config.tickers
    )
    return Holdings(
        source="simulated",
        as_of=key.session,
        currency="USD",
        cash=amount,
        equity=-amount,
        positions=held,
        rule="." * _LONGEST_RULE,
    )


def _long_lesson(key: CellKey, symbol: str, benchmark: str, horizon: int) -> Lesson:
    return Lesson(
        symbol=symbol,
        session=key.session,
        rating="Underweight",
        horizon=horizon,
        raw_return=-0.1,
        alpha=-0.1,
        benchmark=benchmark,
        decision=_DECISION,
        reflection=_REFLECTION,
    )


@dataclass(frozen=True, kw_only=True)
class _Place:
    index: int
    attempt: int


class _Store:
    """Stand where a cell's replies would be; nothing is kept."""

    with_lessons = False

    @property
    def mode(self) -> Mode:
        return "off"

    @property
    def accept_truncated(self) -> bool:
        return False

    def look_up(self, call: ModelCall) -> Reply | Outcome | None:
        return None

    def flight(self, key: str) -> AbstractContextManager[None]:
        return nullcontext()

    def record(self, call: ModelCall, reply: Reply, *, latency_s: float, retries: int = 0) -> Reply:
        return reply

    def record_outcome(
        self, call: ModelCall, outcome: Outcome, *, latency_s: float, retries: int = 0
    ) -> None:
        return None

    def lost(self, call: ModelCall, *, again: bool) -> None:
        return None


class _Scale(_Store):
    """Weigh what is asked and answered, and remember which tools were called."""

    def __init__(self, means: dict[str, Mean]) -> None:
        self._means = means
        self.asked: dict[str, list[ToolCall]] = {}

    def record(self, call: ModelCall, reply: Reply, *, latency_s: float, retries: int = 0) -> Reply:
        node = call.site.node
        mean = self._means.setdefault(node, Mean())
        mean.add(tokens_of(len(call.request)), tokens_of(characters_of(reply)))
        if call.site.free_text:
            self.asked.setdefault(node, []).extend(reply.tool_calls)
        return reply


@dataclass
class _Endless(_Store):
    """Answer every call at its limit, and weigh it."""

    asked: Mapping[str, Sequence[ToolCall]]
    turns: int
    calls: dict[str, dict[_Place, LongCall]] = field(default_factory=dict)

    with_lessons = True

    def look_up(self, call: ModelCall) -> Reply | Outcome | None:
        site = call.site
        place = _Place(index=site.index, attempt=site.attempt)
        self.calls.setdefault(site.node, {})[place] = LongCall.of(call)
        wanted = self.asked.get(site.node, ()) if site.index < self.turns else ()
        calls = tuple(
            ToolCall(id=f"call_{site.index}_{number}", name=tool.name, args=tool.args)
            for number, tool in enumerate(wanted)
        )
        return Reply(text=_MARK, tool_calls=calls)


def _limit_of(body: Mapping[str, Any]) -> int | None:
    """Return the limit of a reply that a request names, whatever its provider calls it."""
    for fields in (body, *(body.get(name) or {} for name in _WITHIN)):
        for name in _LIMIT_FIELDS:
            if isinstance(fields.get(name), int):
                return int(fields[name])
    return None
