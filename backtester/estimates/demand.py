"""How often each node of the graph asks, in one cell and in all: as a rule and at most."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from backtester.records import CellKey
from backtester.walk.cell import Workbench
from tradingagents_core.errors import PipelineError
from tradingagents_core.graph import Pipeline
from tradingagents_core.topology import (
    INVEST_DEBATE,
    REFLECTOR,
    RISK_DEBATE,
    TRADER,
    AnalystRow,
    DebateRow,
    analysts_for,
)


@dataclass(frozen=True, kw_only=True)
class NodeCalls:
    """Calls of a node in one cell, without and with everything going wrong."""

    usual: int
    worst: int


def calls_of_graph(pipeline: Pipeline, analysts: Sequence[AnalystRow]) -> dict[str, NodeCalls]:
    """Return the calls of each node, in the order of the graph."""
    settings = pipeline.settings
    calls: dict[str, NodeCalls] = {}
    for row in analysts:
        turns = settings.max_tool_turns
        calls[row.node] = (
            _typed(pipeline, row.node)
            if row.sources
            else NodeCalls(usual=min(turns, 1) + 1, worst=turns + 1)
        )
    for debate, after in ((INVEST_DEBATE, TRADER), (RISK_DEBATE, None)):
        calls |= _debate(pipeline, debate)
        if after is not None:
            calls[after] = _typed(pipeline, after)
    return calls


def _debate(pipeline: Pipeline, debate: DebateRow) -> dict[str, NodeCalls]:
    rounds = debate.turns(pipeline.settings) // len(debate.speakers)
    spoken = {row.node: NodeCalls(usual=rounds, worst=rounds) for row in debate.speakers}
    return {**spoken, debate.judge: _typed(pipeline, debate.judge)}


def _typed(pipeline: Pipeline, node: str) -> NodeCalls:
    """Return the calls of a node that fills in a form: attempt, repairs, one plain call."""
    method = getattr(pipeline.models.of(node), "structured_method", "json_schema")
    attempts = 0 if method == "none" else pipeline.settings.max_repairs + 1
    return NodeCalls(usual=1, worst=attempts + 1)


@dataclass(frozen=True, kw_only=True)
class Demand:
    """Add up what is to be asked, by node.

    Attributes:
        served: Calls that recordings answer.
        expected: Calls to make, as a rule.
        each: Calls of one try of a cell, at most.
        tries: Tries of cells that may make all of these.
        rest: Calls that are left of tries which recordings answer in part.
    """

    served: Counter[str] = field(default_factory=Counter)
    expected: dict[str, float] = field(default_factory=dict)
    each: dict[str, int] = field(default_factory=dict)
    tries: Counter[str] = field(default_factory=Counter)
    rest: Counter[str] = field(default_factory=Counter)

    @property
    def nodes(self) -> tuple[str, ...]:
        """Nodes that may ask."""
        return tuple(node for node in self.each if self.worst(node))

    def worst(self, node: str) -> int:
        """Return the calls of a node to make at most."""
        return self.tries[node] * self.each.get(node, 0) + self.rest[node]

    def add_cell(
        self,
        graph: Mapping[str, NodeCalls],
        nodes: Collection[str],
        *,
        tries: int,
        usual: Mapping[str, float] | None = None,
        served: Mapping[str, int] | None = None,
    ) -> None:
        """Add a cell.

        Args:
            graph: Calls of its nodes.
            nodes: Those among them whose calls are not known; all others ask nothing more.
            tries: How often it is tried at most.
            usual: Calls that a node makes as a rule, where other cells tell.
            served: Calls of these nodes that recordings answer, in the first try.
        """
        for node, calls in graph.items():
            if node not in nodes:
                continue
            had = (served or {}).get(node, 0)
            expected = max((usual or {}).get(node, float(calls.usual)) - had, 0.0)
            self.expected[node] = self.expected.get(node, 0.0) + expected
            self.each[node] = calls.worst
            self.tries[node] += tries - 1 if had else tries
            self.rest[node] += max(calls.worst - had, 0) if had else 0

    def add_lessons(self, count: int) -> None:
        """Add lessons to write."""
        if count > 0:
            self.expected[REFLECTOR] = self.expected.get(REFLECTOR, 0.0) + count
            self.each[REFLECTOR] = 1
            self.tries[REFLECTOR] += count


def readers_of_lessons(
    graph: Iterable[str], roles: Collection[str], analysts: Collection[str]
) -> tuple[str, ...]:
    """Return the nodes whose prompts a lesson can change: who is shown it, and all after them.

    Analysts do not read each other; everybody else reads what was said before.
    """
    found: list[str] = []
    for node in graph:
        if node in roles or (found and node not in analysts):
            found.append(node)
    debates = (INVEST_DEBATE, RISK_DEBATE)
    heard = [[row.node for row in debate.speakers] for debate in debates]
    # Who speaks before them hears them in the next round.
    for speakers in heard:
        if any(node in found for node in speakers):
            found += [node for node in speakers if node not in found]
    return tuple(node for node in graph if node in found)


def graph_of(bench: Workbench, key: CellKey, cutoff: datetime) -> Mapping[str, NodeCalls]:
    """Return the calls of the nodes that decide a cell."""
    view = bench._view(key, cutoff, lambda _: None)
    try:
        rows = analysts_for(view.identity(key.ticker), bench.pipeline.analysts)
    except PipelineError:
        rows = ()
    return calls_of_graph(bench.pipeline, rows)
