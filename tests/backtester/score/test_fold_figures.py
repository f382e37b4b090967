"""What a fold says of the book is the book's own sessions, no more and no less."""

from __future__ import annotations

import math
from datetime import date

import pytest

from backtester.book.costs import Costs
from backtester.score.compute import Score
from backtester.score.deflation import with_known_trials
from backtester.score.records import EquityRow, MetricRow
from backtester.score.trials import KnownTrials
from tests.support.scores import decided, figure, scored
from tests.support.snapshots import closes, make_snapshot, sessions_of
from tests.support.workspaces import wave

DAYS = sessions_of("AAA", "2018-01-02", 60)
JANUARY, FEBRUARY = "2018-01-02/2018-02-01", "2018-02-02/2018-02-28"


def growing() -> Score:
    """Score one Buy at the first close, held while the price grows by 1 % a session.

    2 January to 28 February 2018 has 40 sessions of New York, 22 of them until 1 February: the
    book has 21 returns in the first fold, and in the second 18 and the 5 sessions to its end.
    """
    snapshot = make_snapshot({"AAA": closes((d, 100 * 1.01**k) for k, d in enumerate(DAYS))})
    cells = [decided("AAA", day, "Buy") for day in DAYS[:40]]
    return scored(cells, snapshot, entry_rule="close", costs=Costs(), fold="1M")


def of_fold(score: Score, metric: str, fold: str, book: str = "ratings") -> MetricRow:
    return figure(score, metric, subject=book, scope="fold", member=fold)


def test_a_folds_return_is_that_of_its_sessions() -> None:
    score = growing()
    assert DAYS[39] == date(2018, 2, 28)

    january = of_fold(score, "total_return", JANUARY)
    february = of_fold(score, "total_return", FEBRUARY)

    assert (january.n, february.n) == (22, 23)
    assert january.value == pytest.approx(1.01**21 - 1.0, rel=1e-9)
    assert february.value == pytest.approx(1.01**23 - 1.0, rel=1e-9)
    assert of_fold(score, "max_drawdown", FEBRUARY).value == 0.0


def test_the_folds_multiply_to_the_whole_for_each_book() -> None:
    snapshot = make_snapshot(
        {n: wave(n, start="2017-10-02", count=160, phase=p, drift=0.0) for n, p in (("AAA", 0.0),)}
    )
    ratings = ("Buy", "Sell", "Overweight", "Hold")
    cells = [decided("AAA", day, ratings[at % 4]) for at, day in enumerate(DAYS[:40])]

    score = scored(cells, snapshot, fold="2W")

    for book in ("ratings", "buy_and_hold", "equal_weight"):
        whole = figure(score, "total_return", subject=book)
        parts = [
            row
            for row in score.rows["metrics"]
            if isinstance(row, MetricRow)
            and (row.subject, row.scope, row.metric) == (book, "fold", "total_return")
        ]
        assert len(parts) == 5
        assert sum(part.n for part in parts) == whole.n
        values = [part.value for part in parts if part.value is not None]
        assert math.prod(1.0 + v for v in values) - 1.0 == pytest.approx(whole.value, rel=1e-9)


def test_the_deepest_fall_of_a_fold_begins_with_what_the_book_was_worth_before_it() -> None:
    """Worth 100, then 90 in the first session of the second fold, then 95: a fall of 10 %."""
    fall = DAYS.index(date(2018, 2, 2))
    prices = [100.0] * fall + [90.0] + [95.0] * (60 - fall - 1)
    snapshot = make_snapshot({"AAA": closes(zip(DAYS, prices, strict=True))})
    cells = [decided("AAA", day, "Buy") for day in DAYS[:40]]

    score = scored(cells, snapshot, entry_rule="close", costs=Costs(), fold="1M")

    assert of_fold(score, "max_drawdown", JANUARY).value == 0.0
    assert of_fold(score, "max_drawdown", FEBRUARY).value == pytest.approx(-0.10, rel=1e-9)
    assert of_fold(score, "total_return", FEBRUARY).value == pytest.approx(-0.05, rel=1e-9)


def test_a_ratio_that_cannot_be_had_is_empty_with_its_reason() -> None:
    snapshot = make_snapshot({"AAA": closes((d, 100.0) for d in DAYS)})
    cells = [decided("AAA", day, "Buy") for day in DAYS[:40]]
    flat = scored(cells, snapshot, entry_rule="close", costs=Costs(), fold="1M")
    ratio = of_fold(flat, "sharpe", JANUARY)
    assert (ratio.value, ratio.low, ratio.reason) == (None, None, "no_variation")

    weekly = [decided("AAA", DAYS[0], "Buy"), decided("AAA", DAYS[30], "Sell")]
    few = scored(
        weekly, make_snapshot({"AAA": closes((d, 100.0 + d.day) for d in DAYS)}), fold="3D"
    )
    rows = [r for r in few.rows["metrics"] if getattr(r, "scope", "") == "fold"]
    ratios = [r for r in rows if isinstance(r, MetricRow) and r.metric == "sharpe"]
    assert any(r.value is not None for r in ratios)
    assert all(r.low is None and r.reason for r in ratios)


def test_folds_change_nothing_of_the_whole() -> None:
    """Sessions, figures and the trials' ratio stay those of the whole book."""
    snapshot = make_snapshot(
        {"AAA": wave("AAA", start="2017-10-02", count=160, phase=0.0, drift=0.0004)}
    )
    cells = [decided("AAA", day, ("Buy", "Sell")[at % 2]) for at, day in enumerate(DAYS[:40])]
    known = KnownTrials(count=3, family=2, with_sharpe=0, variance=None)

    plain = with_known_trials(scored(cells, snapshot), known)
    cut = with_known_trials(scored(cells, snapshot, fold="1M"), known)

    whole = [r for r in cut.rows["metrics"] if getattr(r, "scope", "") != "fold"]
    assert whole == list(plain.rows["metrics"])
    assert [r for r in cut.rows["equity"] if isinstance(r, EquityRow)] == list(plain.rows["equity"])
