"""What a run is going to cost, as a table and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer
from rich.text import Text

from backtester.cli.render import simple_table, write
from backtester.terminal import printable

if TYPE_CHECKING:
    from backtester.estimate import Estimate, NodeEstimate

_UNKNOWN = "unknown"


def show_estimate(estimate: Estimate, *, as_json: bool) -> None:
    """Print what a run is going to ask and cost; what is unknown is called so."""
    if as_json:
        document = asdict(estimate)
        for name in ("first", "last"):
            document[name] = document[name].isoformat()
        typer.echo(json.dumps(document, indent=2, sort_keys=True))
        return
    for line in _first_lines(estimate):
        typer.echo(printable(line))
    table = simple_table("node", "model")
    for heading in (
        "recorded\n(exact)",
        "to ask,\nexpected",
        "to ask,\nworst case",
        "tokens in,\nexpected",
        "tokens out,\nexpected",
        "tokens,\nworst case",
        "USD,\nexpected",
        "USD,\nworst case",
    ):
        table.add_column(heading, justify="right", vertical="bottom")
    for node in (*estimate.nodes, estimate.total):
        table.add_row(*(Text(printable(word, keep="")) for word in _cells(node)))
    write(table)
    for line in _last_lines(estimate):
        typer.echo(printable(line))


def _first_lines(estimate: Estimate) -> Iterator[str]:
    first, last = estimate.first, estimate.last
    yield f"run      {estimate.run_id}"
    yield f"cells    {estimate.cells}, of which {estimate.warmup} warm-up"
    yield f"         {estimate.kept} decided already, {estimate.recorded} recorded from end to end"
    yield (
        f"         {estimate.begun} recorded as far as a first miss, {estimate.open} without a "
        "recording, or not known before others are decided"
    )
    yield f"cutoffs  {estimate.cutoffs}, {first:%Y-%m-%d %H:%M}Z to {last:%Y-%m-%d %H:%M}Z"
    yield f"lessons  {estimate.lessons} at most, {estimate.lessons_there} of them recorded"
    if estimate.spent:
        yield f"spent    {estimate.spent} by earlier commands of this run"
    yield ""


def _last_lines(estimate: Estimate) -> Iterator[str]:
    yield ""
    if estimate.exact:
        yield "exact: every reply is recorded, nothing is left to ask and nothing to pay"
        return
    yield "recorded: exact, counted from the record as far as it goes"
    yield "expected: as recorded cells did, else one tool turn an analyst and no repair"
    yield "worst case: every tool turn, every repair, every retry of a cell"
    if any(node.basis == "characters" for node in estimate.nodes):
        yield (
            "tokens of nodes that no call is recorded of: characters / 4 of a decision by the "
            "rulebook, which writes less than a language model"
        )
    unpriced = {node.model for node in estimate.nodes if node.worst_cost_usd is None}
    for model in sorted(unpriced):
        yield f"the price of {model} is unknown: name it in a file of your own (models_file)"


def _cells(node: NodeEstimate) -> tuple[str, ...]:
    return (
        node.node,
        node.model,
        str(node.served),
        str(node.expected),
        str(node.worst),
        _count(node.input_tokens),
        _count(node.output_tokens),
        _count(node.worst_tokens),
        _dollars(node.cost_usd),
        _dollars(node.worst_cost_usd),
    )


def _count(tokens: int | None) -> str:
    return _UNKNOWN if tokens is None else f"{tokens:,}"


def _dollars(cost: float | None) -> str:
    return _UNKNOWN if cost is None else f"{cost:.4f}"
