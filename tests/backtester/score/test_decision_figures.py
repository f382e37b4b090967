"""What a score says of its decisions, by hand: which rows each figure takes, and with which sign.

Prices are made from the alphas that are wanted: each decision is filled at its close and left at
the next session's, the index stands still, and the sessions in between change nothing.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import Any

import numpy as np
import pytest

from backtester.records import CellRecord
from backtester.score.compute import Score, score_decisions
from backtester.score.records import MetricRow
from backtester.settlement.broker import ScoreRule, settle
from backtester.snapshots.snapshot import Snapshot
from tests.support.scores import (
    ROOT,
    all_numbers_are_finite,
    decided,
    figure,
    make_definition,
    scored,
)
from tests.support.snapshots import closes, dividend, make_snapshot, sessions_of
from tests.support.workspaces import wave

DAYS = sessions_of("AAA", "2018-01-02", 120)
NEAR = 1e-12
DIRECTIONS = {"Sell": -1, "Underweight": -1, "Hold": 0, "Overweight": 1, "Buy": 1}

Paths = Mapping[str, Sequence[float]]
Words = Mapping[str, Sequence[str | None]]


def moved(alphas: Paths, days: Sequence[date] = DAYS) -> Snapshot:
    """Make prices that give each ticker's decisions these alphas, one every other session."""
    count = max(len(path) for path in alphas.values())
    bars: dict[str, Any] = {"^GSPC": closes((day, 1000.0) for day in days[: 2 * count + 2])}
    for ticker, path in alphas.items():
        price, rows = 100.0, []
        for at, alpha in enumerate(path):
            rows += [(days[2 * at], price), (days[2 * at + 1], price * (1.0 + alpha))]
            price *= 1.0 + alpha
        bars[ticker] = closes(rows)
    return make_snapshot(bars)


def rated(words: Words, *, trial: int = 0, days: Sequence[date] = DAYS) -> list[CellRecord]:
    """Make the decisions of those sessions."""
    return [
        decided(ticker, days[2 * at], word, trial=trial)
        for ticker, path in words.items()
        for at, word in enumerate(path)
    ]


def told(cells: Sequence[CellRecord], snapshot: Snapshot, **changes: Any) -> Score:
    """Score them over one session each, against the index."""
    fields = {"entry_rule": "close", "benchmark": "^GSPC", "horizon": 1, "horizons": (1,)}
    return scored(cells, snapshot, **{**fields, **changes})


def of(score: Score, metric: str, **where: Any) -> MetricRow:
    return figure(score, metric, subject="decisions", **where)


def members(score: Score, scope: str) -> list[str]:
    """Return the parts of one kind, in their order."""
    rows = [row for row in score.rows["metrics"] if isinstance(row, MetricRow)]
    return list(dict.fromkeys(row.member for row in rows if row.scope == scope))


# ------------------------------------------------------------------------------------ each decision


WORDS = ("Buy", "Buy", "Overweight", "Hold", "Underweight", "Sell", "Sell", None)
ALPHAS = (0.03, -0.03, 0.02, 0.03, -0.06, -0.03, 0.05, 0.02)


def test_a_call_counts_with_its_side_and_hold_and_unread_take_none() -> None:
    score = told(rated({"AAA": WORDS}), moved({"AAA": ALPHAS}))

    # .03 - .03 + .02 + .06 + .03 - .05 over six; Hold and unread are in the plain mean alone.
    directed = of(score, "mean_directional_alpha")
    assert (directed.n, directed.value) == (6, pytest.approx(0.06 / 6, abs=NEAR))
    plain = of(score, "mean_alpha")
    assert (plain.n, plain.value) == (8, pytest.approx(0.03 / 8, abs=NEAR))
    # Right: the first Buy, Overweight, Underweight, the first Sell.
    hits = of(score, "hit_rate")
    assert (hits.n, hits.value) == (6, pytest.approx(4 / 6, abs=NEAR))


def test_a_call_that_only_ties_with_the_benchmark_is_a_miss() -> None:
    score = told(rated({"AAA": ["Buy", "Sell", "Buy"]}), moved({"AAA": [0.0, 0.0, 0.01]}))
    assert of(score, "hit_rate").value == pytest.approx(1 / 3, abs=NEAR)


def test_each_rating_has_its_own_rows_and_unread_is_none_of_the_five() -> None:
    score = told(rated({"AAA": WORDS}), moved({"AAA": ALPHAS}))

    assert set(members(score, "rating")) == {*DIRECTIONS, "unread"}
    wanted = {
        "Buy": (2, 0.0, 0.0),
        "Overweight": (1, 0.02, 0.02),
        "Hold": (1, 0.03, None),
        "Underweight": (1, -0.06, 0.06),
        "Sell": (2, 0.01, -0.01),
        "unread": (1, 0.02, None),
    }
    for rating, (n, alpha, directed) in wanted.items():
        part = {"scope": "rating", "member": rating}
        assert of(score, "mean_alpha", **part).n == n
        assert of(score, "mean_alpha", **part).value == pytest.approx(alpha, abs=NEAR)
        row = of(score, "mean_directional_alpha", **part)
        if directed is None:
            assert (row.value, row.reason) == (None, "no_rows")
        else:
            assert row.value == pytest.approx(directed, abs=NEAR)


def test_tickers_and_months_of_different_years_are_kept_apart() -> None:
    days = (date(2018, 1, 2), date(2018, 1, 3), date(2019, 1, 2), date(2019, 1, 3))
    snapshot = make_snapshot(
        {
            "AAA": closes(zip(days, (100, 101, 101, 101 * 1.03), strict=True)),
            "BBB": closes(zip(days, (100, 98, 98, 98), strict=True)),
            "^GSPC": closes((day, 1000.0) for day in days),
        }
    )
    cells = [decided(ticker, day, "Buy") for ticker in ("AAA", "BBB") for day in days[::2]]

    score = told(cells, snapshot)

    assert members(score, "month") == ["2018-01", "2019-01"]
    for scope, wanted in {
        "month": {"2018-01": (0.01 - 0.02) / 2, "2019-01": 0.03 / 2},
        "ticker": {"AAA": (0.01 + 0.03) / 2, "BBB": -0.02 / 2},
    }.items():
        for member, alpha in wanted.items():
            row = of(score, "mean_alpha", scope=scope, member=member)
            assert (row.n, row.value) == (2, pytest.approx(alpha, abs=NEAR))


def test_a_fold_holds_the_decisions_of_its_own_days() -> None:
    # Every other session from 2018-01-02 on: 11 decisions in January, 9 in February.
    path = [0.01 if DAYS[2 * at].month == 1 else 0.03 for at in range(20)]
    cells = rated({"AAA": ["Buy"] * 20})

    score = told(cells, moved({"AAA": path}), fold="1M", first=date(2018, 1, 1))

    folds = members(score, "fold")
    assert [fold[:21] for fold in folds[:1]] == ["2018-01-01/2018-01-31"]
    assert len(folds) == 2
    for fold, n, alpha in zip(folds, (11, 9), (0.01, 0.03), strict=True):
        row = of(score, "mean_directional_alpha", scope="fold", member=fold)
        assert (row.n, row.value) == (n, pytest.approx(alpha, abs=NEAR))


# --------------------------------------------------------------------------------- rank and spread


def five(**alphas: float) -> Score:
    """Score one session of five tickers, each with a rating of its own."""
    return told(
        rated({f"T{rating[:2].upper()}": [rating] for rating in alphas}),
        moved({f"T{rating[:2].upper()}": [alpha] for rating, alpha in alphas.items()}),
    )


def test_spreads_and_ranks_of_a_session_by_hand() -> None:
    score = five(Sell=-0.04, Underweight=-0.02, Hold=0.01, Overweight=0.06, Buy=0.02)

    assert of(score, "buy_minus_sell").value == pytest.approx(0.02 + 0.04, abs=NEAR)
    assert of(score, "buy_minus_sell").n == 2
    # (.06 + .02) / 2 less (-.04 - .02) / 2
    assert of(score, "positive_minus_negative").value == pytest.approx(0.07, abs=NEAR)
    assert of(score, "positive_minus_negative").n == 4
    # Two neighbours are the wrong way round: 1 - 6 * 2 / (5 * 24), and 9 pairs of 10 against 1.
    assert of(score, "rank_ic_spearman").value == pytest.approx(0.9, abs=NEAR)
    assert of(score, "rank_ic_kendall").value == pytest.approx(0.8, abs=NEAR)
    assert of(score, "monotonicity").value == pytest.approx(0.8, abs=NEAR)


def test_ranks_the_wrong_way_round_are_below_zero() -> None:
    score = five(Sell=0.05, Underweight=0.04, Hold=0.03, Overweight=0.02, Buy=0.01)
    for metric in ("rank_ic_spearman", "rank_ic_kendall", "monotonicity"):
        assert of(score, metric).value == pytest.approx(-1.0, abs=NEAR)


def test_an_unread_cell_has_no_rank() -> None:
    words = {"AAA": ["Buy"], "BBB": ["Sell"], "CCC": [None]}
    score = told(rated(words), moved({"AAA": [0.02], "BBB": [0.01], "CCC": [0.09]}))
    assert of(score, "rank_ic_spearman").value == pytest.approx(1.0, abs=NEAR)


# ------------------------------------------------------------------------------------------- tests


def test_paths_are_permuted_as_a_list_of_all_orders_says() -> None:
    words = {
        "AAA": ["Buy", "Hold", "Sell", "Buy", "Overweight"],
        "BBB": ["Sell", "Sell", None, "Hold", "Buy"],
        "CCC": ["Hold", "Buy", "Buy", "Underweight", "Sell"],
        "DDD": ["Buy", "Buy", "Sell", "Sell", "Hold"],
    }
    alphas = {
        "AAA": [0.031, 0.012, -0.024, 0.017, 0.008],
        "BBB": [-0.011, 0.023, 0.019, -0.007, 0.029],
        "CCC": [0.013, 0.041, -0.006, -0.022, 0.003],
        "DDD": [0.027, -0.016, 0.009, -0.034, 0.021],
    }
    score = told(rated(words), moved(alphas))

    sides = np.array(
        [[math.nan if w is None else DIRECTIONS[w] for w in words[t]] for t in sorted(words)]
    )
    gains = np.array([alphas[ticker] for ticker in sorted(alphas)])
    means = [float(np.nanmean(sides[list(o)] * gains)) for o in itertools.permutations(range(4))]
    centre = sum(means) / 24
    away = [abs(mean - centre) >= abs(means[0] - centre) - 1e-12 for mean in means]
    above = sum(mean >= means[0] - 1e-12 for mean in means)
    row = of(score, "path_permutation")
    assert (row.n, row.value) == (19, pytest.approx(means[0], abs=NEAR))
    assert row.p_value == pytest.approx(sum(away) / 24, abs=NEAR)
    assert sum(away) != above  # the other tail is in it too
    assert row.method == "24 permutations of whole rating paths, all of them"
    expected = of(score, "path_permutation_expected")
    assert (expected.value, expected.p_value) == (pytest.approx(centre, abs=NEAR), None)


def test_permutations_that_are_drawn_are_drawn_from_the_scores_seed() -> None:
    names = [f"T{at}" for at in range(7)]
    words = {name: ["Buy", "Sell"][at % 2 :] + ["Hold"] * (at % 2) for at, name in enumerate(names)}
    alphas = {
        name: [0.02 * math.sin(3 * at), 0.02 * math.cos(5 * at)] for at, name in enumerate(names)
    }

    found = [
        of(told(rated(words), moved(alphas), seed=seed), "path_permutation") for seed in (9, 10)
    ]

    assert found[0].method == "5000 permutations of whole rating paths, seed 9"
    assert found[0].p_value != found[1].p_value


def test_several_lanes_of_a_cell_are_one_opinion() -> None:
    # Buy and Hold of one cell are half a Buy.
    cells = [*rated({"AAA": ["Buy"]}), *rated({"AAA": ["Hold"]}, trial=1)]
    row = of(told(cells, moved({"AAA": [0.04]})), "path_permutation")
    assert (row.n, row.value) == (1, pytest.approx(0.02, abs=NEAR))
    assert (row.p_value, row.reason) == (None, "too_few_tickers")


def test_signs_are_counted_from_both_ends() -> None:
    path = [0.01, 0.02, 0.03, -0.01, 0.02, 0.01]
    row = of(told(rated({"AAA": ["Buy"] * 6}), moved({"AAA": path})), "sign_test")
    # 5 of 6: (1 + 6) / 64 on one side, twice that on both.
    assert (row.n, row.value) == (6, pytest.approx(5 / 6, abs=NEAR))
    assert row.p_value == pytest.approx(14 / 64, abs=NEAR)


def test_only_the_scores_own_horizon_is_tested() -> None:
    score = told(rated({"AAA": ["Buy"] * 6}), moved({"AAA": [0.01] * 6}), horizons=(1, 2))
    rows = [row for row in score.rows["metrics"] if isinstance(row, MetricRow)]
    for metric in ("path_permutation", "sign_test"):
        assert {row.horizon for row in rows if row.metric == metric} == {1}
    assert {row.horizon for row in rows if row.metric == "mean_alpha"} == {1, 2}


# ------------------------------------------------------------------------------------------ overlap


def falling(count: int, *names: str) -> Snapshot:
    """Make tickers that fall by about 1 % a session."""
    bars: dict[str, Any] = {"^GSPC": closes((day, 1000.0) for day in DAYS[:count])}
    for place, name in enumerate(names):
        rows = [
            (day, 100.0 * 0.99**at * (1.0 + 0.003 * math.sin(at * (2.0 + place))))
            for at, day in enumerate(DAYS[:count])
        ]
        bars[name] = closes(rows)
    return make_snapshot(bars)


@pytest.mark.parametrize(("count", "reason"), [(55, "too_few_windows"), (56, None)])
def test_windows_that_overlap_do_not_count_as_if_each_stood_alone(
    count: int, reason: str | None
) -> None:
    # Windows of 5 sessions begun on 55 days in a row fit 11 times, on 56 days 12 times.
    names = ("AAA", "BBB")
    words = {"AAA": ("Buy", "Sell"), "BBB": ("Sell", "Buy")}
    cells = [
        decided(name, day, words[name][at % 2])
        for name in names
        for at, day in enumerate(DAYS[:count])
    ]
    score = told(cells, falling(70, *names), horizon=5, horizons=(5,))

    for metric in ("mean_return", "mean_alpha", "mean_directional_alpha", "rank_ic_spearman"):
        row = of(score, metric)
        assert (row.sessions, row.reason) == (count, reason), metric
        assert (row.low is None) == (reason is not None)
    tests = of(score, "sign_test")
    assert tests.sessions == (11 if reason else 12)


def test_a_mean_far_below_zero_is_no_chance_either() -> None:
    cells = [decided("AAA", day, "Buy") for day in DAYS[:60]]
    row = of(told(cells, falling(70, "AAA")), "mean_alpha")
    assert row.high is not None
    assert row.high < 0.0
    assert row.p_value is not None
    assert row.p_value < 0.001


def test_a_window_is_as_long_as_its_sessions_are_on_both_calendars() -> None:
    """Tokyo's five sessions are up to ten days on which somewhere is open, so windows overlap."""
    days = [day for day in sessions_of("7203.T", "2018-01-04", 150) if day in set(DAYS)]
    snapshot = make_snapshot(
        {
            "AAA": wave("AAA", start="2017-12-01", count=200, phase=0.0, drift=0.0),
            "7203.T": wave("7203.T", start="2017-12-01", count=200, phase=1.0, drift=0.0),
        }
    )
    line = sorted({*DAYS, *sessions_of("7203.T", "2018-01-04", 120)})
    chosen, last = [], -5
    for at, day in enumerate(line):
        if at - last >= 5 and day in days:
            chosen.append(day)
            last = at
    chosen = chosen[:13]
    alone = scored([decided("AAA", day, "Buy") for day in chosen], snapshot)
    both = scored(
        [decided(name, day, "Buy") for name in ("AAA", "7203.T") for day in chosen], snapshot
    )

    assert of(both, "mean_return").sessions == of(alone, "mean_return").sessions == 13
    assert of(both, "mean_return").reason == "too_few_windows"


# ---------------------------------------------------------------------------------- which decisions


def test_warm_up_is_in_no_figure_and_in_no_book() -> None:
    cells = rated({"AAA": ["Buy", "Buy", "Buy"]})
    cells[0] = replace(cells[0], scored=False)

    score = told(cells, moved({"AAA": [0.5, 0.01, 0.02]}), first=DAYS[0], last=DAYS[4])

    assert of(score, "mean_return").n == 2
    assert of(score, "mean_return").value == pytest.approx(0.015, abs=NEAR)
    assert figure(score, "total_return", subject="ratings").value == pytest.approx(
        1.01 * 1.02 - 1.0, abs=NEAR
    )


def test_what_a_run_has_settled_itself_stands_for_its_own_horizon_alone() -> None:
    cells = rated({"AAA": ["Buy"]})
    snapshot = moved({"AAA": [0.02, 0.03]})
    rule = ScoreRule(horizon=1, entry_rule="close", decision_time="close", benchmark="^GSPC")
    own = replace(settle(cells[0].key, "Buy", snapshot=snapshot, rule=rule), raw_total=0.25)
    definition = make_definition(
        cells, snapshot, entry_rule="close", benchmark="^GSPC", horizon=1, horizons=(1, 3)
    )

    score = score_decisions(
        cells,
        definition,
        snapshot=snapshot,
        results_root=ROOT,
        own_returns={cells[0].key: own},
    )

    assert of(score, "mean_return", horizon=1).value == 0.25
    assert of(score, "mean_return", horizon=3).value == pytest.approx(1.02 * 1.03 - 1, abs=NEAR)


@pytest.mark.parametrize("status", ["failed", "no_data", "skipped_budget"])
def test_where_nothing_was_decided_every_figure_says_why_it_is_empty(status: str) -> None:
    cells = [
        decided(name, day, None, status=status) for name in ("AAA", "BBB") for day in DAYS[:30:2]
    ]

    score = told(cells, moved({"AAA": [0.01] * 20, "BBB": [-0.01] * 20}), placebo_draws=3)

    assert all_numbers_are_finite(score)
    for metric in ("mean_return", "mean_directional_alpha", "hit_rate", "rank_ic_spearman"):
        assert (of(score, metric).value, of(score, metric).reason) == (None, "no_rows")
    for row in score.rows["metrics"]:
        assert isinstance(row, MetricRow)
        assert row.value is not None or row.reason, row
    # Its book is cash; the others trade on the sessions at which it should have decided.
    assert figure(score, "total_return", subject="ratings").value == 0.0
    assert figure(score, "orders_filled", subject="buy_and_hold").value == 2.0
    assert list(score.rows["returns"]) == []


def test_a_window_without_an_alpha_says_why_beside_its_return() -> None:
    score = told(rated({"AAA": ["Buy", "Sell"]}), moved({"AAA": [0.01]}), benchmark="none")
    found = [(row.raw_total, row.alpha, row.reason) for row in score.rows["horizon_returns"]]
    assert found[0] == (pytest.approx(0.01, abs=NEAR), None, "no benchmark was wanted")
    # The second one's own bars come first.
    assert found[1][:2] == (None, None)
    assert "no usable bar" in found[1][2] or "ends before" in found[1][2]


def test_geometric_alpha_leaves_dividends_out_where_the_benchmark_has_none() -> None:
    snapshot = make_snapshot(
        {
            "AAA": closes([(DAYS[0], 100.0), (DAYS[1], 105.0)]),
            "^GSPC": closes([(DAYS[0], 1000.0), (DAYS[1], 1020.0)]),
        },
        actions=[dividend("AAA", DAYS[1], 4.0)],
    )
    score = told([decided("AAA", DAYS[0], "Buy")], snapshot)

    assert of(score, "mean_return").value == pytest.approx(0.09, abs=NEAR)
    assert of(score, "mean_geometric_alpha").value == pytest.approx(1.05 / 1.02 - 1, abs=NEAR)


def test_what_was_settled_before_and_what_was_not_keep_their_places() -> None:
    cells = rated({"AAA": ["Buy", "Sell", "Hold"]})
    snapshot = moved({"AAA": [0.01, 0.02, 0.03]})
    rule = ScoreRule(horizon=1, entry_rule="close", decision_time="close", benchmark="^GSPC")
    known = settle(cells[1].key, "Sell", snapshot=snapshot, rule=rule)
    definition = make_definition(
        cells, snapshot, entry_rule="close", benchmark="^GSPC", horizon=1, horizons=(1,)
    )

    score = score_decisions(
        cells,
        definition,
        snapshot=snapshot,
        results_root=ROOT,
        own_returns={cells[1].key: replace(known, raw_total=0.5)},
    )

    found = [(row.session, row.raw_total) for row in score.rows["horizon_returns"]]
    assert found == [
        (DAYS[0], pytest.approx(0.01, abs=NEAR)),
        (DAYS[2], 0.5),
        (DAYS[4], pytest.approx(0.03, abs=NEAR)),
    ]
