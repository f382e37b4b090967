"""What a run is going to cost, as a table and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer
from rich.table import Table
from rich.text import Text

from backtester.cli.render import simple_table, write_fitting
from backtester.texts.terminal import printable

if TYPE_CHECKING:
    from backtester.estimates.estimate import Estimate, NodeEstimate

_UNKNOWN = "unknown"
_CALLS = ("recorded\n(exact)", "to ask,\nexpected", "to ask,\nworst case")
_SIZES = (
    *("tokens in,\nexpected", "tokens out,\nexpected", "tokens,\nworst case"),
    *("USD,\nexpected", "USD,\nworst case"),
)


def show_estimate(estimate: Estimate, *, as_json: bool) -> None:
    """Print what a run is going to ask and cost; what is unknown is called so."""
    if as_json:
        document = asdict(estimate)
        for name in ("first", "last", "dark_from"):
            document[name] = document[name] and document[name].isoformat()
        typer.echo(json.dumps(document, indent=2, sort_keys=True))
        return
    for line in _first_lines(estimate):
        typer.echo(printable(line))
    write_fitting(*_layouts(estimate))
    for line in _last_lines(estimate):
        typer.echo(printable(line))


def _layouts(estimate: Estimate) -> Iterator[tuple[Table, ...]]:
    """Yield the tables by node, the widest first; where it is narrow there are several."""
    several = len(_models(estimate)) > 1
    names = ("node", "model") if several else ("node",)
    yield (_table(estimate, names, (*_CALLS, *_SIZES)),)
    sizes = _narrow(estimate, ("node",), _SIZES)
    yield _narrow(estimate, names, _CALLS), sizes
    if several:
        yield _narrow(estimate, names, ()), _narrow(estimate, ("node",), _CALLS), sizes


def _narrow(estimate: Estimate, names: Sequence[str], figures: Sequence[str]) -> Table:
    table = _table(estimate, names, figures)
    table.padding = (0, 0)
    return table


def _table(estimate: Estimate, names: Sequence[str], figures: Sequence[str]) -> Table:
    table = simple_table(*names)
    for heading in figures:
        table.add_column(heading, justify="right", vertical="bottom", no_wrap=True)
    for node in (*estimate.nodes, estimate.total):
        cells = _cells(node)
        table.add_row(*(Text(printable(cells[name], keep="")) for name in (*names, *figures)))
    return table


def _models(estimate: Estimate) -> tuple[str, ...]:
    return tuple(sorted({node.model for node in estimate.nodes}))


def _first_lines(estimate: Estimate) -> Iterator[str]:
    first, last = estimate.first, estimate.last
    yield f"run      {estimate.run_id}"
    yield f"cells    {estimate.cells}, of which {estimate.warmup} warm-up"
    yield f"         {estimate.kept} decided already, {estimate.recorded} recorded from end to end"
    yield (f"         {estimate.begun} recorded in part, {estimate.open} without a recording")
    yield f"cutoffs  {estimate.cutoffs}, {first:%Y-%m-%d %H:%M}Z to {last:%Y-%m-%d %H:%M}Z"
    if estimate.moved:
        yield f"dates    {estimate.moved}"
    if len(_models(estimate)) == 1:
        yield f"model    {_models(estimate)[0]}"
    yield f"lessons  {estimate.lessons} at most, {estimate.lessons_there} of them recorded"
    if estimate.estimated != "withhold":
        yield "data     rows that only an estimate dates are shown from that day on"
    if estimate.spent:
        yield f"spent    {estimate.spent} by earlier commands of this run"
    yield ""


def _last_lines(estimate: Estimate) -> Iterator[str]:
    yield ""
    if estimate.exact:
        yield "exact: every reply is recorded, nothing is left to ask and nothing to pay"
        return
    yield "recorded: exact, counted from the record as far as it goes"
    yield from _in_the_dark(estimate)
    yield "expected: an estimate; calls as recorded cells made them, else one tool turn an analyst"
    yield "and no repair, each of the size known so far"
    if any(node.basis == "characters" for node in estimate.nodes):
        yield (
            "tokens expected of nodes that no call is recorded of: characters / 4 of decisions by "
            "the rulebook, which writes less than a language model"
        )
    yield "worst case: every tool turn, every repair, every retry of a cell; every reply at its"
    yield "limit and again in every prompt that quotes it, all other text at a token a byte, tools"
    yield "answering as much as they do the rulebook; not in it: requests that the transport sends"
    yield "again because nobody answered (max_retries)"
    for reason in dict.fromkeys(node.worst_reason for node in estimate.nodes):
        if reason:
            yield f"worst case unknown: {reason}"
    unpriced = {node.model for node in estimate.nodes if node.expected and node.cost_usd is None}
    for model in sorted(unpriced):
        yield f"the price of {model} is unknown: name it in a file of your own (models_file)"
    yield "max_cost_usd and max_calls bound the bill whatever happens"


def _in_the_dark(estimate: Estimate) -> Iterator[str]:
    if estimate.dark_from is not None and estimate.dark_nodes:
        yield (
            f"from {estimate.dark_from:%Y-%m-%d %H:%M}Z on lessons are shown that nobody has "
            f"written yet: the calls of {', '.join(estimate.dark_nodes)} are not known, those of "
            "all other nodes are looked up"
        )


def _cells(node: NodeEstimate) -> dict[str, str]:
    calls = (str(node.served), str(node.expected), str(node.worst))
    sizes = (
        *map(_count, (node.input_tokens, node.output_tokens, node.worst_tokens)),
        *map(_dollars, (node.cost_usd, node.worst_cost_usd)),
    )
    return {
        "node": node.node,
        "model": node.model,
        **dict(zip((*_CALLS, *_SIZES), (*calls, *sizes), strict=True)),
    }


def _count(tokens: int | None) -> str:
    return _UNKNOWN if tokens is None else f"{tokens:,}"


def _dollars(cost: float | None) -> str:
    return _UNKNOWN if cost is None else f"{cost:.4f}"
