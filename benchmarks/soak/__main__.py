"""Print the table of levels: ``python -m benchmarks.soak [--histories N] [--into FILE]``.

``--into docs/statistics.md`` puts it between that page's marks. Exit code 0 if every level holds
and the product's rivals fail, 1 if not.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path

from benchmarks.measure import machine
from benchmarks.soak.books import BookWorld, book_markdown, book_row, book_worlds
from benchmarks.soak.histories import World
from benchmarks.soak.table import (
    COVERAGE,
    HISTORIES,
    NAIVE,
    PRODUCT,
    Row,
    broken,
    described,
    markdown,
    row_of,
    worlds,
)
from benchmarks.soak.verdicts import Verdict

FOOLED = World(tickers=6, span=250, step=1, horizon=5, stay=0.9)
"""The world in which tests that take cells for independent are fooled, and must be."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the table and return the exit code."""
    options = _parse(arguments)
    rows: list[Row] = []
    started = time.perf_counter()
    for place, world in enumerate(worlds()):
        rows.append(row_of(world, histories=options.histories, seed=options.seed + place))
        passed = time.perf_counter() - started
        print(f"{passed:6.0f} s  {described(world)}", file=sys.stderr, flush=True)
    made = f"{options.histories:,} histories each, seed {options.seed}; {options.date}{machine()}"
    books = [
        (world, book_row(world, histories=options.histories, seed=options.seed + place))
        for place, world in enumerate(book_worlds())
    ]
    tables = {
        "product": markdown(rows, PRODUCT),
        "naive": markdown(rows, NAIVE),
        "books": book_markdown(books),
    }
    print("\n\n".join([made, *tables.values()]))
    if options.into:
        page = options.into.read_text(encoding="utf-8")
        options.into.write_text(filled(page, {"made": made, **tables}), encoding="utf-8")
    complaints = [line for row in rows for line in broken(row)] + _unfooled(rows)
    complaints += [line for world, row in books for line in _uncovered(world, row)]
    for line in complaints:
        print(f"does not hold: {line}", file=sys.stderr)
    return 1 if complaints else 0


def filled(page: str, texts: Mapping[str, str]) -> str:
    """Return a page with each text between its marks, ``<!-- soak: name -->`` and ``<!-- end -->``.

    Raises:
        ValueError: Where a pair of marks is not there.
    """
    for name, text in texts.items():
        mark, end = f"<!-- soak: {name} -->", "<!-- end -->"
        before, found, rest = page.partition(mark)
        _, closed, after = rest.partition(end)
        if not found or not closed:
            raise ValueError(f"the page has no {mark} with an {end} after it")
        page = f"{before}{mark}\n\n{text}\n\n{end}{after}"
    return page


def _uncovered(world: BookWorld, row: Mapping[str, Verdict]) -> list[str]:
    return [
        f"{world.shape} returns, {world.sessions} sessions: {figure} {verdict.rate:.2%}"
        for figure, verdict in row.items()
        if verdict.rate is None or not COVERAGE[0] <= verdict.rate <= COVERAGE[1]
    ]


def _unfooled(rows: Sequence[Row]) -> list[str]:
    (row,) = [row for row in rows if row.world == FOOLED]
    rates = {name: row.verdicts[name].rate or 0.0 for name in NAIVE}
    wrong = {
        "naive interval": rates["naive interval"] >= 0.93,
        "shuffle in session": rates["shuffle in session"] <= 0.065,
        "sign over cells": rates["sign over cells"] <= 0.065,
    }
    return [f"{name} should fail, and gives {rates[name]:.1%}" for name in NAIVE if wrong[name]]


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--histories", type=int, default=HISTORIES, help="of each world")
    parser.add_argument("--seed", type=int, default=20_260_101, help="of the first world")
    parser.add_argument("--into", type=Path, metavar="FILE", help="page to put the tables into")
    parser.add_argument(
        "--date",
        type=lambda text: f"{date.fromisoformat(text)}, ",
        default="",
        help="day of the run, for the page",
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
