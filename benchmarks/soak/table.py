"""The table of levels: every world, every test, and whether it holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.soak.histories import World, batches
from benchmarks.soak.verdicts import (
    LEVEL,
    Verdict,
    count,
    differences,
    directional,
    naive_interval,
    naive_shuffle,
    naive_sign,
    paths,
    rank_ics,
    rated_covers,
    session_signs,
)

HISTORIES = 4_000
COVERAGE = (0.93, 0.97)
REJECTION = (0.035, 0.065)
CHECKED = 3
"""Histories of each world that also go through the product itself."""
TOLERANCE = 1e-9
# A rate from fewer intervals than this says too little to be held against a bound.
FEWEST_SHOWN = 1_000


@dataclass(frozen=True, kw_only=True)
class Row:
    """Hold what came of one world.

    Attributes:
        world: Which.
        verdicts: By name of the test, as in `PRODUCT` and `NAIVE`.
        difference: Largest relative difference from the product over the checked histories.
    """

    world: World
    verdicts: dict[str, Verdict]
    difference: float


INTERVALS = ("mean", "rank IC", "Buy", "Buy-Sell")
"""Intervals of the product: of direction x alpha, of the rank IC, of the ratings' alphas."""
PERMUTATIONS = ("paths, one-sided", "paths, two-sided")
PRODUCT = (*INTERVALS, *PERMUTATIONS, "sign test")
NAIVE = ("naive interval", "shuffle in session", "sign over cells")


def worlds() -> Iterator[World]:
    """Yield the worlds of the full table.

    A span of 60 or 250 sessions daily; weekly both as a span of the calendar (12 and 50
    decisions) and as a number of decisions (300 and 1,250 sessions of the calendar).
    """
    for tickers in (6, 30):
        for stay in (0.0, 0.9):
            for span in (60, 250):
                for horizon in (1, 5, 20):
                    yield World(tickers=tickers, span=span, step=1, horizon=horizon, stay=stay)
            for span in (60, 250, 300, 1_250):
                for horizon in (5, 20):
                    yield World(tickers=tickers, span=span, step=5, horizon=horizon, stay=stay)


def row_of(world: World, *, histories: int = HISTORIES, seed: int, by_rating: bool = True) -> Row:
    """Run every test on the histories of a world.

    Args:
        world: Which.
        histories: How many.
        seed: Of the histories, and of the permutations.
        by_rating: Whether to do the two intervals that are slow, too.
    """
    total: dict[str, Verdict] = {}
    worst = 0.0
    for place, batch in enumerate(batches(world, histories, seed=seed)):
        if place == 0:
            worst = max(differences(world, batch, CHECKED, seed=seed).values())
        p = paths(batch, seed=seed + 1_000_003 * (place + 1))
        found = {
            "mean": directional(world, batch).covers(world.mean),
            "rank IC": rank_ics(world, batch),
            "paths, one-sided": count(p.greater <= 1.0 - LEVEL),
            "paths, two-sided": count(p.two_sided <= 1.0 - LEVEL),
            "sign test": session_signs(world, batch),
            "naive interval": naive_interval(world, batch),
            "shuffle in session": naive_shuffle(batch),
            "sign over cells": naive_sign(batch),
        }
        if by_rating:
            found["Buy"] = rated_covers(world, batch, (1.0,))
            found["Buy-Sell"] = rated_covers(world, batch, (1.0, -1.0))
        for name, verdict in found.items():
            total[name] = total[name] + verdict if name in total else verdict
    return Row(world=world, verdicts=total, difference=worst)


def broken(row: Row) -> list[str]:
    """Return the sentences of what a row does not hold."""
    found = []
    for names, (low, high) in ((INTERVALS, COVERAGE), (PERMUTATIONS, REJECTION)):
        for name in names:
            verdict = row.verdicts.get(name)
            if verdict is None or verdict.rate is None or verdict.shown < FEWEST_SHOWN:
                continue
            if not low <= verdict.rate <= high:
                found.append(f"{described(row.world)}: {name} {verdict.rate:.2%}")
    if row.difference > TOLERANCE:
        found.append(f"{described(row.world)}: {row.difference:.1e} away from the product")
    return found


def described(world: World) -> str:
    """Return a world in a few words."""
    how = "daily" if world.step == 1 else "weekly"
    kind = "persistent" if world.stay else "iid"
    return (
        f"{how}, {len(world.positions)} decisions, h={world.horizon}, "
        f"{world.tickers} tickers, {kind}"
    )


def markdown(rows: Sequence[Row], names: Sequence[str]) -> str:
    """Return the rates of some tests as a table, per cent; a dash where nothing is shown."""
    head = ["decisions", "h", "tickers", "ratings", *names]
    lines = [head, ["---"] * len(head)]
    for row in rows:
        world = row.world
        lines.append(
            [
                f"{len(world.positions)} {'daily' if world.step == 1 else 'weekly'}",
                str(world.horizon),
                str(world.tickers),
                "persistent" if world.stay else "iid",
                *(_rate(row.verdicts.get(name)) for name in names),
            ]
        )
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _rate(verdict: Verdict | None) -> str:
    if verdict is None or verdict.rate is None:
        return "–"
    text = f"{100 * verdict.rate:.1f}"
    if verdict.shown < FEWEST_SHOWN:
        return f"({text})"
    return text
