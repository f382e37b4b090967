"""How many tokens a call of a node takes, as a rule and at most.

As a rule: as recorded of the same node and model, first of the run's own calls, then of all answers
in the cache. Where nothing is recorded, by the characters of a rehearsal; a language model writes
more than the rulebook, so the replies' side is then on the low side. At most: as a rehearsal shows
it in which every reply is at its limit. Without a limit on replies there is no most.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from backtester.estimates.rehearsal import Mean, Rehearsal, rehearse
from backtester.records import CallRecord
from backtester.walk.cell import Workbench
from backtester.walk.plan import Plan
from tradingagents_core.llm.catalogue import Catalogue
from tradingagents_core.protocols import Usage
from tradingagents_core.topology import tier_of_node


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


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Hold the sizes of calls by node.

    Attributes:
        sizes: As a rule.
        most: At most, one for each call of a cell, the largest first; a node that is missing has
            no most.
        unbounded: Why there is no most, in words; empty where there is one.
    """

    sizes: Mapping[str, Size] = field(default_factory=dict)
    most: Mapping[str, Sequence[Usage]] = field(default_factory=dict)
    unbounded: str = ""

    def of_node(self, node: str) -> Size:
        """Return the usual size of a node's calls."""
        return self.sizes.get(node, Size())

    def most_of(self, node: str, calls: int) -> Sequence[Usage] | None:
        """Return the largest sizes of so many calls of one cell, or None where there is no most."""
        found = self.most.get(node)
        if not found:
            return None
        shown = list(found[:calls])
        return shown + [found[0]] * (calls - len(shown))

    @classmethod
    def of(
        cls,
        calls: Iterable[CallRecord],
        wanted: Iterable[str],
        *,
        bench: Workbench,
        plan: Plan,
        catalogue: Catalogue,
    ) -> Sizes:
        """Find the sizes of the wanted nodes' calls.

        Args:
            calls: Calls of the run that are known.
            wanted: Nodes that are going to ask.
            bench: Has the cache, the pipeline, and the snapshot to rehearse on.
            plan: Has the cells.
            catalogue: What is known of models; no request is larger than their context.
        """
        models = {
            node: (spec.provider, spec.model)
            for node in wanted
            for spec in (plan.config.model_spec(tier_of_node(node)),)
        }
        if not models:
            return cls()
        rehearsal = rehearse(bench, plan)
        usual = {node: _size(mean, "characters") for node, mean in rehearsal.usual.items()}
        usual |= _recorded_sizes(calls, models, bench)
        return cls(
            sizes={node: usual[node] for node in models if node in usual},
            most=_most(rehearsal, models, catalogue),
            unbounded=_unbounded(rehearsal),
        )


def _most(
    rehearsal: Rehearsal, models: Mapping[str, tuple[str, str]], catalogue: Catalogue
) -> Mapping[str, Sequence[Usage]]:
    longest = rehearsal.longest_reply
    if longest is None:
        return {}
    found = {}
    for node, model in models.items():
        facts = catalogue.find(*model)
        context = facts.context_tokens.value if facts and facts.context_tokens else None
        sizes = [
            Usage(input_tokens=_within(call.input_tokens(longest), context), output_tokens=limit)
            for call in rehearsal.long.get(node, ())
            if (limit := call.limit) is not None
        ]
        found[node] = sorted(sizes, key=lambda use: use.input_tokens or 0, reverse=True)
    return found


def _within(tokens: int, context: int | None) -> int:
    return tokens if context is None else min(tokens, context)


def _unbounded(rehearsal: Rehearsal) -> str:
    if not rehearsal.cells:
        return "no cell of the run can be decided on this snapshot"
    if rehearsal.longest_reply is None:
        return "nothing limits a reply: set max_tokens"
    return ""


def _recorded_sizes(
    calls: Iterable[CallRecord], models: Mapping[str, tuple[str, str]], bench: Workbench
) -> dict[str, Size]:
    found = _means(
        (call.node, (call.provider, call.model), call.input_tokens, call.output_tokens)
        for call in calls
    )
    if any((node, model) not in found for node, model in models.items()):
        found |= _means(_recorded(bench))
    return {
        node: _size(found[node, model], "recorded")
        for node, model in models.items()
        if (node, model) in found
    }


def _size(mean: Mean, basis: str) -> Size:
    return Size(input=mean.input / mean.calls, output=mean.output / mean.calls, basis=basis)


_Row = tuple[str, tuple[str, str], int | None, int | None]


def _means(rows: Iterable[_Row]) -> dict[tuple[str, tuple[str, str]], Mean]:
    means: dict[tuple[str, tuple[str, str]], Mean] = {}
    for node, model, sent, received in rows:
        means.setdefault((node, model), Mean()).add(sent, received)
    return {name: mean for name, mean in means.items() if mean.calls}


def _recorded(bench: Workbench) -> Iterator[_Row]:
    for record in bench.cache.records():
        usage = record.reply.usage
        model = (record.provider, record.model)
        yield record.node, model, usage.input_tokens, usage.output_tokens
