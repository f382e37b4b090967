"""How often each node of the graph asks in one cell, as a rule and at most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tradingagents_core.graph import Pipeline
from tradingagents_core.topology import (
    INVEST_DEBATE,
    RISK_DEBATE,
    TRADER,
    AnalystRow,
    DebateRow,
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


_SPOKEN: Final = tuple(
    tuple(row.node for row in debate.speakers) for debate in (INVEST_DEBATE, RISK_DEBATE)
)


def ended_before(graph: Mapping[str, NodeCalls], missed: str) -> tuple[str, ...]:
    """Return the nodes that have ended when another one asks; debaters take turns."""
    order = list(graph)
    if missed not in order:
        return ()
    together = next((group for group in _SPOKEN if missed in group), ())
    return tuple(node for node in order[: order.index(missed)] if node not in together)
