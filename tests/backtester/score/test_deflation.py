"""The number of trials and how far their ratios scatter come off a score's Sharpe ratio."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace
from functools import cache

import pytest
import scipy.stats

from backtester.records import RATINGS
from backtester.score.compute import Score
from backtester.score.deflation import lane_returns, trials_of, with_known_trials
from backtester.score.records import MetricRow
from backtester.score.trials import KnownTrials
from tests.support.scores import decided, figure, scored
from tests.support.snapshots import make_snapshot, sessions_of
from tests.support.workspaces import wave

DAYS = sessions_of("AAA", "2018-01-02", 60)
EULER = 0.57721566490153286


@cache
def score_of(lanes: int = 1, *, rating: str | None = None, days: int = 30) -> Score:
    snapshot = make_snapshot(
        {
            name: wave(name, start="2017-10-02", count=160, phase=phase, drift=0.0004)
            for name, phase in (("AAA", 0.0), ("BBB", 2.0))
        }
    )
    cells = [
        decided(name, day, rating or RATINGS[(at + 2 * lane) % 5], trial=lane)
        for lane in range(lanes)
        for name in ("AAA", "BBB")
        for at, day in enumerate(DAYS[:days])
    ]
    return scored(cells, snapshot)


def row(score: Score, metric: str, lane: int = 0) -> MetricRow:
    return figure(score, metric, subject="ratings", trial=lane)


def by_hand(score: Score, threshold: float) -> float:
    """Return the probability that the ratio is above a threshold, from the session returns."""
    returns = list(lane_returns(score)[0].values())
    ratio = statistics.fmean(returns) / statistics.stdev(returns)
    skew = scipy.stats.skew(returns, bias=False)
    kurtosis = scipy.stats.kurtosis(returns, bias=False, fisher=False)
    spread = 1.0 - skew * ratio + (kurtosis - 1.0) / 4.0 * ratio**2
    away = (ratio - threshold) * math.sqrt(len(returns) - 1) / math.sqrt(spread)
    return float(scipy.stats.norm.cdf(away))


def best_of(trials: int, variance: float) -> float:
    upper = scipy.stats.norm.ppf(1 - 1 / trials)
    beyond = scipy.stats.norm.ppf(1 - 1 / (trials * math.e))
    return float(math.sqrt(variance) * ((1 - EULER) * upper + EULER * beyond))


def test_one_trial_leaves_the_probability_that_the_ratio_is_above_zero() -> None:
    plain = score_of()
    score = with_known_trials(plain, KnownTrials(count=1, with_sharpe=1, variance=None))

    assert row(score, "expected_best_sharpe").value == 0.0
    assert row(score, "probabilistic_sharpe").value == pytest.approx(by_hand(plain, 0.0), abs=1e-9)
    assert row(score, "deflated_sharpe").value == row(score, "probabilistic_sharpe").value


def test_ratios_that_scatter_raise_what_luck_finds() -> None:
    plain = score_of()
    known = KnownTrials(count=7, with_sharpe=6, variance=2.5, family=4)
    score = with_known_trials(plain, known)
    n = len(lane_returns(plain)[0])

    best = best_of(7, 2.5 / (n - 1))
    assert row(score, "expected_best_sharpe").value == pytest.approx(best, abs=1e-9)
    assert row(score, "deflated_sharpe").value == pytest.approx(by_hand(plain, best), abs=1e-9)
    assert row(score, "deflated_sharpe").method == "at least 7 trials"
    assert figure(score, "known_trials", subject="decisions").value == 7.0
    assert figure(score, "family_trials", subject="decisions").value == 4.0


@pytest.mark.parametrize("variance", [None, 0.0, 1e-6])
def test_trials_that_are_near_copies_do_not_make_their_number_harmless(
    variance: float | None,
) -> None:
    plain = score_of()
    known = KnownTrials(count=7, with_sharpe=2, variance=variance)
    score = with_known_trials(plain, known)

    wanted = best_of(7, 1.0 / (len(lane_returns(plain)[0]) - 1))
    assert row(score, "expected_best_sharpe").value == pytest.approx(wanted, abs=1e-9)


def test_more_near_copies_never_raise_the_deflated_ratio() -> None:
    plain = score_of()
    found = [
        row(with_known_trials(plain, KnownTrials(count=n, with_sharpe=n, variance=v)), name).value
        for name in ("deflated_sharpe",)
        for n, v in ((1, None), (2, 0.4), (3, 0.1), (20, 0.01), (1000, 1e-9))
    ]
    assert all(value is not None for value in found)
    assert found == sorted(found, reverse=True)  # type: ignore[type-var]


def test_a_book_without_a_ratio_has_every_row_with_a_reason() -> None:
    score = with_known_trials(
        score_of(rating="Hold"), KnownTrials(count=2, with_sharpe=0, variance=None)
    )

    for metric in (
        "probabilistic_sharpe",
        "expected_best_sharpe",
        "deflated_sharpe",
        "min_track_record_length",
    ):
        found = row(score, metric)
        assert (found.value, found.reason) == (None, "no_sharpe")


def test_under_twenty_returns_a_ratio_has_no_probability() -> None:
    known = KnownTrials(count=2, with_sharpe=2, variance=1.0)
    # 15 decisions and a window of 5 after the last: 19 returns, and 20 with one more.
    short, enough = (with_known_trials(score_of(days=days), known) for days in (15, 16))

    for metric in ("probabilistic_sharpe", "deflated_sharpe", "min_track_record_length"):
        assert row(short, metric).n == 19
        assert (row(short, metric).value, row(short, metric).reason) == (None, "too_few_returns")
    assert row(enough, "deflated_sharpe").n == 20
    assert row(enough, "deflated_sharpe").value is not None


def test_every_lane_of_a_run_is_a_line_with_its_own_ratio() -> None:
    score = score_of(lanes=3)

    lines = trials_of(score)

    assert [line.lane for line in lines] == [0, 1, 2]
    assert len({line.trial for line in lines}) == len({line.book for line in lines}) == 3
    for line in lines:
        returns = list(lane_returns(score)[line.lane].values())
        ratio = statistics.fmean(returns) / statistics.stdev(returns)
        assert line.sharpe == pytest.approx(ratio, rel=1e-9)
        assert line.n == len(returns)


def test_a_book_that_never_trades_is_a_line_without_a_ratio_or_a_mark() -> None:
    (line,) = trials_of(score_of(rating="Hold"))
    assert (line.sharpe, line.book) == (None, None)


def test_a_book_is_marked_by_its_returns_and_not_by_its_size() -> None:
    small, large = score_of(), score_of()
    more = scored_with_cash(small)
    assert trials_of(small)[0].book == trials_of(large)[0].book == trials_of(more)[0].book
    assert trials_of(small)[0].trial != trials_of(more)[0].trial


def scored_with_cash(score: Score) -> Score:
    """Return the score as twice the start cash would have it, last bits included."""
    rows = [
        replace(line, ret=line.ret * (1.0 + 1e-15) if line.ret is not None else None)  # type: ignore[union-attr, type-var, call-arg]
        for line in score.rows["equity"]
    ]
    definition = replace(score.definition, start_cash=2 * score.definition.start_cash)
    return replace(score, definition=definition, rows={**score.rows, "equity": rows})
