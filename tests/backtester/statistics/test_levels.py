"""Tests and intervals hold their level without an effect, and find a planted one as theory says.

A sample of the table in `docs/statistics.md`; `make soak` runs all of it. Bounds are those of the
full table, widened by the binomial error of the sample.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

import pytest
import scipy.stats

from benchmarks.soak.__main__ import filled
from benchmarks.soak.histories import World, batches
from benchmarks.soak.table import (
    COVERAGE,
    INTERVALS,
    PERMUTATIONS,
    REJECTION,
    TOLERANCE,
    Row,
    broken,
    markdown,
    row_of,
    worlds,
)
from benchmarks.soak.verdicts import Verdict, count, directional, naive_shuffle, naive_sign, paths
from tests.guards.sources import ROOT

SAMPLE = 400
# One false alarm in some thousand samples at a rate that lies on the bound itself.
SURE = 0.999

# The corners of the grid: the fewest windows, the most overlap, the most clustered ratings.
SAMPLED = (
    World(tickers=6, span=60, step=1, horizon=5, stay=0.9),
    World(tickers=6, span=250, step=1, horizon=5, stay=0.9),
    World(tickers=6, span=250, step=5, horizon=5, stay=0.9),
    World(tickers=6, span=250, step=5, horizon=20, stay=0.0),
    World(tickers=30, span=250, step=1, horizon=20, stay=0.9),
    World(tickers=30, span=60, step=1, horizon=1, stay=0.0),
)
FOOLING = SAMPLED[1]


def named(world: World) -> str:
    return f"{world.tickers}-{world.span}-{world.step}-{world.horizon}-{world.stay}"


@cache
def sampled(world: World) -> Row:
    return row_of(world, histories=SAMPLE, seed=20_260_102)


def within(verdict: Verdict, bounds: tuple[float, float]) -> bool:
    """Say whether a count can come from a rate within bounds."""
    fewest = scipy.stats.binom.ppf(1 - SURE, verdict.shown, bounds[0])
    most = scipy.stats.binom.ppf(SURE, verdict.shown, bounds[1])
    return bool(fewest <= verdict.yes <= most)


@pytest.mark.slow
@pytest.mark.parametrize("world", SAMPLED, ids=named)
def test_every_interval_that_is_shown_covers_and_the_permutation_rejects_as_it_says(
    world: World,
) -> None:
    row = sampled(world)
    for names, bounds in ((INTERVALS, COVERAGE), (PERMUTATIONS, REJECTION)):
        for name in names:
            assert within(row.verdicts[name], bounds), (name, row.verdicts[name])
    # A sign test has few sessions and steps between its p-values: it may reject less, never more.
    signs = row.verdicts["sign test"]
    assert signs.yes <= scipy.stats.binom.ppf(SURE, signs.shown, 0.05)


@pytest.mark.parametrize("world", SAMPLED, ids=named)
def test_the_simulated_figures_are_the_products_own(world: World) -> None:
    assert sampled(world).difference < TOLERANCE


def test_what_takes_cells_for_independent_is_fooled_where_the_product_is_not() -> None:
    # Six tickers, 250 daily sessions, h = 5, ratings that stay with 0.9.
    rates = {name: verdict.rate or 0.0 for name, verdict in sampled(FOOLING).verdicts.items()}
    assert rates["shuffle in session"] > 0.25
    assert rates["sign over cells"] > 0.2
    assert rates["naive interval"] < 0.8
    assert rates["paths, two-sided"] < 0.08


def test_ratings_that_move_by_a_notch_fool_a_shuffle_within_sessions_37_times_in_100() -> None:
    """Six tickers, 250 daily sessions, h = 5, no alpha, ratings that stay with 0.9.

    The published pair is 37 % and 33 %. A rating that is drawn anew when it does not stay gives
    34 % and 28 % (test above); one that moves by a notch gives the 37 %. 33 % for the sign test is
    beyond both: with directions that never change at all, 1.96 / sqrt(1 + 2 (.590 + .410 + .262 +
    .128)) = 1.01 deviations are exceeded 31 % of the time, signs of normals that share 4, 3, 2, 1
    of 5 sessions being correlated by (2 / pi) asin(share).
    """
    world = replace(FOOLING, notches=True)
    total: dict[str, Verdict] = {}
    for batch in batches(world, 2_000, seed=38):
        found = {
            "shuffle": naive_shuffle(batch),
            "signs": naive_sign(batch),
            "paths": count(paths(batch, seed=39).two_sided <= 0.05),
        }
        total = {name: total[name] + v if total else v for name, v in found.items()}
    error = (0.37 * 0.63 / 2_000) ** 0.5
    assert total["shuffle"].rate == pytest.approx(0.37, abs=2.5 * error)
    assert 0.27 < (total["signs"].rate or 0.0) < 0.33
    assert within(total["paths"], REJECTION)


def test_below_twelve_windows_no_interval_is_shown_and_the_permutation_still_holds() -> None:
    row = row_of(World(tickers=6, span=60, step=1, horizon=20, stay=0.9), histories=SAMPLE, seed=5)
    assert [row.verdicts[name].shown for name in INTERVALS] == [0, 0, 0, 0]
    for name in PERMUTATIONS:
        assert within(row.verdicts[name], REJECTION)


@cache
def power(world: World, histories: int = 1_000) -> Mapping[str, Verdict]:
    total: dict[str, Verdict] = {}
    for batch in batches(world, histories, seed=77):
        found = {
            "interval": directional(world, batch).rejects(),
            "paths": count(paths(batch, seed=78).two_sided <= 0.05),
            "covers": directional(world, batch).covers(world.mean),
        }
        total = {name: total[name] + v if total else v for name, v in found.items()}
    return total


@pytest.mark.slow
@pytest.mark.parametrize(
    "world",
    [
        World(tickers=6, span=250, step=1, horizon=1, stay=0.0, effect=0.08),
        World(tickers=6, span=250, step=1, horizon=5, stay=0.9, effect=0.1),
        World(tickers=30, span=250, step=5, horizon=5, stay=0.0, effect=0.04),
    ],
    ids=named,
)
def test_a_planted_alpha_is_found_with_the_power_that_theory_gives(world: World) -> None:
    found = power(world)
    # t with the cosines' degrees, off its centre by effect / deviation of the mean.
    (batch,) = batches(world, 1, seed=1)
    degrees = directional(world, batch).degrees
    assert degrees is not None
    away = world.mean / world.deviation
    critical = scipy.stats.t.ppf(0.975, degrees)
    expected = scipy.stats.nct.sf(critical, degrees, away) + scipy.stats.nct.cdf(
        -critical, degrees, away
    )
    assert 0.3 < expected < 0.95
    assert found["interval"].rate == pytest.approx(expected, abs=0.06)
    assert within(found["covers"], COVERAGE)
    # The permutation sees the difference between tickers alone: less effect, and less noise.
    between = away * world.deviation / world.deviation_between
    between *= (world.tickers - 1) / world.tickers
    theory = scipy.stats.norm.sf(1.96 - between) + scipy.stats.norm.cdf(-1.96 - between)
    assert found["paths"].rate == pytest.approx(theory, abs=0.08)


def test_the_table_has_the_whole_grid_and_marks_what_is_thin() -> None:
    grid = list(worlds())
    assert len(grid) == len(set(grid)) == 2 * 2 * (6 + 8)
    row = Row(
        world=SAMPLED[0],
        verdicts={
            "mean": Verdict(shown=2_000, yes=1_800, histories=2_000),
            "Buy": Verdict(shown=10, yes=1, histories=2_000),
            "Buy-Sell": Verdict(shown=0, yes=0, histories=2_000),
        },
        difference=0.0,
    )
    text = markdown([row], ("mean", "Buy", "Buy-Sell"))
    assert text.splitlines()[-1] == "| 60 daily | 5 | 6 | persistent | 90.0 | (10.0) | – |"
    assert broken(row) == ["daily, 60 decisions, h=5, 6 tickers, persistent: mean 90.00%"]


def test_the_tables_go_between_the_marks_of_the_page() -> None:
    page = "a\n<!-- soak: made -->\nold\n<!-- end -->\nb <!-- end -->\n"
    assert filled(page, {"made": "new"}) == (
        "a\n<!-- soak: made -->\n\nnew\n\n<!-- end -->\nb <!-- end -->\n"
    )
    with pytest.raises(ValueError, match="naive"):
        filled(page, {"naive": "x"})
    whole = (ROOT / "docs" / "statistics.md").read_text(encoding="utf-8")
    assert "NEW" in filled(whole, dict.fromkeys(("made", "product", "naive"), "NEW"))
