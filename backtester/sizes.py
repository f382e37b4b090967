"""How many tokens a call of a node takes: as recorded, else by the characters of its prompts.

Recorded usage of the same node and model comes first: of the run's own calls, then of all answers
in the cache. Where there is none, one decision is made by the rulebook, which is free and asks
what every model is asked, and its characters are divided by four; a language model writes more
than the rulebook, so the replies' side is on the low side.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Final

from langsmith import tracing_context

from backtester.cache import characters_of
from backtester.cell import Workbench
from backtester.plan import Plan
from backtester.records import CallRecord
from backtester.tariff import tokens_of
from tradingagents_core.errors import DataUnavailable, PipelineError
from tradingagents_core.graph import Models, Pipeline, ReflectionRequest
from tradingagents_core.llm.factory import create_model
from tradingagents_core.protocols import CellRequest, Mode, ModelCall, Outcome, Reply
from tradingagents_core.settings import ModelSpec
from tradingagents_core.topology import tier_of_node

_RULES: Final = ModelSpec(provider="rulebook", model="rulebook-1")


@dataclass(frozen=True, kw_only=True)
class Size:
    """Mean tokens of one call.

    Attributes:
        input: Of the request.
        output: Of the reply.
        basis: ``recorded``, ``characters`` or ``unknown``.
    """

    input: float = 0.0
    output: float = 0.0
    basis: str = "unknown"

    @property
    def known(self) -> bool:
        """Whether there is a figure at all."""
        return self.basis != "unknown"


@dataclass
class _Mean:
    """Add up the tokens of a node's calls."""

    calls: int = 0
    input: int = 0
    output: int = 0

    def add(self, input_tokens: int | None, output_tokens: int | None) -> None:
        if input_tokens is not None and output_tokens is not None:
            self.calls += 1
            self.input += input_tokens
            self.output += output_tokens

    def size(self, basis: str) -> Size:
        return Size(input=self.input / self.calls, output=self.output / self.calls, basis=basis)


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Hold the size of a call by node."""

    sizes: Mapping[str, Size] = field(default_factory=dict)

    def of_node(self, node: str) -> Size:
        """Return the size of a node's calls."""
        return self.sizes.get(node, Size())

    @classmethod
    def of(
        cls,
        calls: Iterable[CallRecord],
        wanted: Iterable[str],
        *,
        bench: Workbench,
        plan: Plan,
    ) -> Sizes:
        """Find the sizes of the wanted nodes' calls.

        Args:
            calls: Calls of the run that are known.
            wanted: Nodes that are going to ask.
            bench: Has the cache, and the snapshot to decide on.
            plan: Has the cells.
        """
        models = {
            node: (spec.provider, spec.model)
            for node in wanted
            for spec in (plan.config.model_spec(tier_of_node(node)),)
        }
        found = _means(
            (call.node, (call.provider, call.model), call.input_tokens, call.output_tokens)
            for call in calls
        )
        if any((node, model) not in found for node, model in models.items()):
            found |= _means(_recorded(bench))
        sizes = {
            node: found[node, model].size("recorded")
            for node, model in models.items()
            if (node, model) in found
        }
        if models.keys() - sizes.keys():
            measured = _by_the_rules(bench, plan)
            sizes = {node: measured[node] for node in models if node in measured} | sizes
        return cls(sizes=sizes)


_Row = tuple[str, tuple[str, str], int | None, int | None]


def _means(rows: Iterable[_Row]) -> dict[tuple[str, tuple[str, str]], _Mean]:
    means: dict[tuple[str, tuple[str, str]], _Mean] = {}
    for node, model, sent, received in rows:
        means.setdefault((node, model), _Mean()).add(sent, received)
    return {name: mean for name, mean in means.items() if mean.calls}


def _recorded(bench: Workbench) -> Iterator[_Row]:
    for record in bench.cache.records():
        usage = record.reply.usage
        model = (record.provider, record.model)
        yield record.node, model, usage.input_tokens, usage.output_tokens


class _Scale:
    """Weigh what is asked and answered; a `ReplyStore` that keeps nothing."""

    def __init__(self) -> None:
        self.means: dict[str, _Mean] = {}

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
        mean = self.means.setdefault(call.site.node, _Mean())
        mean.add(tokens_of(len(call.request)), tokens_of(characters_of(reply)))
        return reply

    def record_outcome(
        self, call: ModelCall, outcome: Outcome, *, latency_s: float, retries: int = 0
    ) -> None:
        return None


def _by_the_rules(bench: Workbench, plan: Plan) -> dict[str, Size]:
    """Let the rulebook decide the first cell that can be decided, and weigh its prompts."""
    rules = create_model(_RULES, api_key=None)
    pipeline = Pipeline(bench.pipeline.settings, Models(quick=rules, deep=rules))
    for barrier in plan.barriers:
        for key in barrier.keys:
            scale = _Scale()
            request = CellRequest(
                cell=str(key),
                ticker=key.ticker,
                session=key.session,
                trial=key.trial,
                generation=0,
                benchmark="none",
            )
            view = bench._view(key, barrier.cutoff, lambda _: None)
            try:
                with tracing_context(enabled=False):
                    decided = pipeline.decide(request, view, replies=scale)
                    _weigh_lesson(pipeline, request, decided.rating, decided.markdown, scale)
            except (PipelineError, DataUnavailable):
                continue
            return {node: mean.size("characters") for node, mean in scale.means.items()}
    return {}


def _weigh_lesson(
    pipeline: Pipeline, request: CellRequest, rating: str | None, decision: str, scale: _Scale
) -> None:
    pipeline.reflect(
        ReflectionRequest(
            cell=request.cell,
            symbol=request.ticker,
            session=request.session,
            trial=request.trial,
            generation=request.generation,
            rating=rating or "",
            decision=decision,
            horizon=1,
            raw_return=0.0,
            alpha=0.0,
            benchmark="none",
        ),
        replies=scale,
    )
