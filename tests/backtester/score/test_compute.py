"""A score is a function of stored decisions; what it cannot say is empty, with a reason."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest

from backtester.errors import UsageError
from backtester.records import RATINGS
from backtester.score.compute import score_decisions
from backtester.score.definition import changed
from backtester.score.deflation import with_known_trials
from backtester.score.records import EquityRow, HorizonRow, MetricRow, OrderRow
from backtester.score.trials import KnownTrials
from backtester.settlement.broker import ScoreRule, settle
from backtester.snapshots.snapshot import Snapshot
from tests.support.records import make_call
from tests.support.scores import (
    all_numbers_are_finite,
    decided,
    figure,
    make_definition,
    scored,
)
from tests.support.snapshots import closes, make_snapshot, sessions_of
from tests.support.workspaces import wave

DAYS = sessions_of("AAA", "2018-01-02", 60)


def waves() -> Snapshot:
    return make_snapshot(
        {
            name: wave(name, start="2017-10-02", count=160, phase=phase, drift=0.0004)
            for name, phase in (("AAA", 0.0), ("BBB", 2.0), ("CCC", 4.0), ("^GSPC", 1.0))
        }
    )


def test_overlapping_windows_are_never_chained_into_a_total() -> None:
    """Price 1.01^k for k = 0..10, Buy on each day k = 0..5, five sessions, from close to close.

    Each window earns 1.01^5 - 1. The total of the period is 1.01^10 - 1, the book's; chaining the
    six windows would give 0.3478489.
    """
    days = DAYS[:11]
    snapshot = make_snapshot({"AAA": closes((d, 100 * 1.01**k) for k, d in enumerate(days))})
    cells = [decided("AAA", day, "Buy") for day in days[:6]]

    score = scored(cells, snapshot, entry_rule="close")

    assert figure(score, "mean_return", subject="decisions").value == pytest.approx(0.0510100501)
    assert figure(score, "total_return", subject="ratings").value == pytest.approx(
        0.1046221, abs=5e-8
    )
    totals = [row.value for row in score.rows["metrics"] if isinstance(row, MetricRow)]
    assert not any(value == pytest.approx(0.3478489, abs=1e-5) for value in totals if value)
    names = {r.metric for r in score.rows["metrics"] if getattr(r, "subject", "") == "decisions"}
    assert not {name for name in names if "total" in name}


def test_returns_are_those_of_the_broker_at_every_horizon() -> None:
    snapshot = waves()
    cells = [decided("AAA", day, RATINGS[at % 5]) for at, day in enumerate(DAYS[:12])]

    score = scored(cells, snapshot, benchmark="^GSPC", horizons=(1, 5, 20))

    rows = [row for row in score.rows["horizon_returns"] if isinstance(row, HorizonRow)]
    assert {row.horizon for row in rows} == {1, 5, 20}
    for row in rows:
        rule = ScoreRule(
            horizon=row.horizon, entry_rule="next_open", decision_time="close", benchmark="^GSPC"
        )
        cell = next(c for c in cells if c.key.session == row.session)
        wanted = settle(cell.key, cell.rating, snapshot=snapshot, rule=rule)
        assert (row.raw_total, row.alpha, row.status) == (
            wanted.raw_total,
            wanted.alpha,
            wanted.status,
        )


def test_five_tiers_stay_five() -> None:
    snapshot = waves()
    cells = [decided("AAA", day, rating) for day, rating in zip(DAYS, RATINGS, strict=False)]

    score = scored(cells, snapshot)

    members = {r.member for r in score.rows["metrics"] if getattr(r, "scope", "") == "rating"}
    assert members == set(RATINGS)
    targets = {r.target_weight for r in score.rows["orders"] if isinstance(r, OrderRow)}
    assert {0.25, 0.75, 1.0} <= targets


def test_geometric_alpha_compounds_and_window_excess_does_not() -> None:
    days = DAYS[:2]
    snapshot = make_snapshot(
        {
            "AAA": closes([(days[0], 100), (days[1], 110)]),
            "^GSPC": closes([(days[0], 100), (days[1], 104)]),
        }
    )
    score = scored(
        [decided("AAA", days[0], "Buy")],
        snapshot,
        entry_rule="close",
        benchmark="^GSPC",
        horizon=1,
        horizons=(1,),
    )

    own = {"subject": "decisions"}
    assert figure(score, "mean_alpha", **own).value == pytest.approx(0.06)
    assert figure(score, "mean_geometric_alpha", **own).value == pytest.approx(1.10 / 1.04 - 1)


def test_a_window_leaves_out_what_lies_outside_it() -> None:
    snapshot = waves()
    cells = [decided("AAA", day, "Buy") for day in DAYS[:20]]

    score = scored(cells, snapshot, first=DAYS[5], last=DAYS[9])

    assert figure(score, "mean_return", subject="decisions").n == 5
    equity = [row for row in score.rows["equity"] if isinstance(row, EquityRow)]
    assert min(row.session for row in equity) == DAYS[5]


def test_a_cell_without_a_rating_carries_its_position() -> None:
    snapshot = waves()
    cells = [
        decided("AAA", DAYS[0], "Buy"),
        decided("AAA", DAYS[3], None, status="failed"),
        decided("AAA", DAYS[6], None),
    ]

    score = scored(cells, snapshot)

    orders = [row for row in score.rows["orders"] if getattr(row, "book", "") == "ratings"]
    assert len(orders) == 1
    assert figure(score, "mean_return", subject="decisions").n == 2


def test_every_lane_has_a_book_of_its_own() -> None:
    snapshot = waves()
    cells = [
        decided("AAA", DAYS[at], rating, trial=trial)
        for trial, rating in ((0, "Buy"), (1, "Sell"))
        for at in (0, 5)
    ]

    score = scored(cells, snapshot)

    first, second = (figure(score, "exposure", subject="ratings", trial=t).value for t in (0, 1))
    assert first is not None
    assert first > 0.5
    assert second == 0.0


@pytest.mark.parametrize(
    "cells",
    [
        pytest.param([], id="no row"),
        pytest.param([decided("AAA", DAYS[0], "Buy")], id="one row"),
        pytest.param([decided(t, DAYS[0], "Hold") for t in ("AAA", "BBB")], id="a single session"),
        pytest.param(
            [decided(t, d, "Hold") for t in ("AAA", "BBB") for d in DAYS[:30]],
            id="all ratings equal",
        ),
        pytest.param([decided("AAA", DAYS[0], None)], id="nothing read"),
    ],
)
@pytest.mark.parametrize("constant", [False, True])
def test_what_cannot_be_said_is_empty_with_a_reason(cells: list[object], constant: bool) -> None:
    snapshot = waves()
    if constant:
        snapshot = make_snapshot(
            {name: closes((day, 50.0) for day in DAYS) for name in ("AAA", "BBB", "^GSPC")}
        )
    records = [cell for cell in cells if hasattr(cell, "key")]
    score = scored(
        records,  # type: ignore[arg-type]
        snapshot,
        benchmark="^GSPC",
        horizons=(1, 5, 20),
        placebo_draws=3,
    )
    score = with_known_trials(score, KnownTrials(count=1, with_sharpe=0, variance=None))

    assert all_numbers_are_finite(score)
    for row in score.rows["metrics"]:
        assert isinstance(row, MetricRow)
        assert row.value is not None or row.reason, row


def test_several_currencies_leave_the_book_empty_and_the_returns_as_they_are() -> None:
    snapshot = make_snapshot(
        {
            "AAA": wave("AAA", start="2018-01-02", count=40, phase=0.0, drift=0.0),
            "7203.T": wave("7203.T", start="2018-01-04", count=40, phase=1.0, drift=0.0),
        }
    )
    tables = {"bars": snapshot.table("bars")}
    yen = tables["bars"].to_pandas()
    yen.loc[yen["instrument"] == "7203.T", "currency"] = "JPY"
    import pyarrow as pa

    snapshot = snapshot.replace_tables(
        bars=pa.Table.from_pandas(yen, schema=tables["bars"].schema, preserve_index=False)
    )
    cells = [decided("AAA", DAYS[4], "Buy"), decided("7203.T", date(2018, 1, 9), "Buy")]

    score = scored(cells, snapshot)

    assert score.no_book is not None
    assert "currenc" in score.no_book
    assert figure(score, "mean_return", subject="decisions").n == 2
    assert figure(score, "total_return", subject="ratings").reason == score.no_book
    definition = make_definition(cells, snapshot)
    with pytest.raises(UsageError, match="currenc"):
        score_decisions(cells, definition, snapshot=snapshot, results_root="r", book_required=True)


def test_the_models_bill_comes_off_the_book_by_session() -> None:
    snapshot = waves()
    paid = make_call(cost_usd=0.25, hit=False)
    saved = make_call(cost_usd=0.0, saved_usd=0.75, hit=True)
    cells = [decided("AAA", DAYS[0], "Buy"), decided("AAA", DAYS[5], "Buy")]
    from dataclasses import replace

    calls = [(paid, saved), (paid,)]
    cells = [
        replace(cell, cutoff=datetime(*cell.key.session.timetuple()[:3], 21, tzinfo=UTC), calls=own)
        for cell, own in zip(cells, calls, strict=True)
    ]

    plain = scored(cells, snapshot, start_cash=1000.0)
    charged = scored(cells, snapshot, start_cash=1000.0, charge_model_cost=True)

    before = [r for r in plain.rows["equity"] if getattr(r, "book", "") == "ratings"]
    after = [r for r in charged.rows["equity"] if getattr(r, "book", "") == "ratings"]
    for one, other in zip(before, after, strict=True):
        assert isinstance(one, EquityRow)
        assert isinstance(other, EquityRow)
        # What returns are measured from is the first row, before anything is paid.
        paid = 1.0 if other.session < DAYS[5] else 1.25
        wanted = 0.0 if other.session == DAYS[0] else paid
        assert other.model_cost == wanted
        assert other.equity == pytest.approx(one.equity - wanted, abs=1e-9)
        assert other.cash + other.positions_value == pytest.approx(other.equity, rel=1e-12)


def test_the_same_rules_on_a_newer_snapshot_are_the_same_trial_and_other_costs_are_not() -> None:
    snapshot = waves()
    cells = [decided("AAA", DAYS[0], "Buy")]
    definition = make_definition(cells, snapshot)

    newer = changed(definition, snapshot_id="f" * 64)
    folds = changed(definition, fold="1M")
    other = changed(definition, haircut=0.5)

    assert newer.trial == folds.trial == definition.trial
    assert other.trial != definition.trial
    assert newer.score_id != definition.score_id
    assert newer.family == other.family
    assert changed(definition, last=DAYS[9]).family != definition.family


def test_folds_cut_the_window_into_parts_of_their_own() -> None:
    snapshot = waves()
    cells = [decided("AAA", day, "Buy") for day in DAYS[:40]]

    score = scored(cells, snapshot, fold="1M")

    parts = [r for r in score.rows["metrics"] if getattr(r, "scope", "") == "fold"]
    counts = {r.member: r.n for r in parts if getattr(r, "metric", "") == "mean_return"}
    assert sum(counts.values()) == figure(score, "mean_return", subject="decisions").n
    assert len(counts) == 2


def test_a_score_comes_out_the_same_twice() -> None:
    snapshot = waves()
    cells = [
        decided(ticker, day, RATINGS[(at + len(ticker)) % 5])
        for ticker in ("AAA", "BBB", "CCC")
        for at, day in enumerate(DAYS[:20])
    ]
    settings = {"benchmark": "^GSPC", "placebo_draws": 5, "horizons": (1, 5)}

    one = scored(cells, snapshot, **settings)
    other = scored(list(reversed(cells)), waves(), **settings)

    assert one.rows == other.rows


def test_the_placebo_band_is_that_of_the_draws() -> None:
    snapshot = waves()
    cells = [decided(t, d, RATINGS[i % 5]) for t in ("AAA", "BBB") for i, d in enumerate(DAYS[:30])]

    score = scored(cells, snapshot, placebo_draws=40)

    band = figure(score, "total_return", subject="random")
    assert band.n == 40
    assert band.low is not None
    assert band.high is not None
    assert band.low <= band.high
    share = figure(score, "placebo_share_below_total_return", subject="ratings").value
    assert share is not None
    assert 0.0 <= share <= 1.0


def test_a_window_that_ends_before_it_begins_is_refused() -> None:
    snapshot = waves()
    with pytest.raises(UsageError, match="swap its dates"):
        make_definition([], snapshot, first=DAYS[3], last=DAYS[0])


def test_a_horizon_that_the_entry_rule_has_no_window_for_is_refused() -> None:
    with pytest.raises(UsageError, match="too short"):
        make_definition([], waves(), entry_rule="next_close", horizon=1, horizons=(1,))
