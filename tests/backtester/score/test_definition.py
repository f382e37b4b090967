"""A definition hands its rules on whole: to windows, to books, and from a run to its own score."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from backtester.config import RunConfig
from backtester.errors import UsageError
from backtester.score.definition import ScoreDefinition, changed, run_definition
from tests.support.scores import decided, make_definition
from tests.support.snapshots import closes, make_snapshot
from tests.support.workspaces import make_workspace

DAY = date(2018, 1, 2)


def definition(**changes: Any) -> ScoreDefinition:
    snapshot = make_snapshot({"AAA": closes([(DAY, 100.0)])})
    return make_definition([decided("AAA", DAY, "Buy")], snapshot, **{"benchmark": None, **changes})


def test_the_rules_of_windows_and_of_books_are_those_that_were_asked_for() -> None:
    asked = definition(
        haircut=0.4, entry_rule="next_close", horizon=3, slots=7, start_cash=5.0, fractional=False
    )

    window, book = asked.rule_for(3, "AAA"), asked.book_rule()

    assert (window.horizon, window.entry_rule, window.haircut) == (3, "next_close", 0.4)
    assert (book.haircut, book.slots, book.start_cash) == (0.4, 7, 5.0)
    assert (book.entry_rule, book.fractional) == ("next_close", False)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"seed": -1}, "seed -1: write 0 to 9223372036854775807"),
        ({"seed": 1 << 63}, "seed 9223372036854775808"),
        ({"placebo_draws": -1}, "write 0 or more"),
        ({"placebo_draws": 10**9}, "1000000000 placebo draws: write 100,000 or less"),
        ({"rf_annual": -1.0}, "risk-free rate -1.0"),
        ({"rf_annual": 1e308}, "risk-free rate 1e"),
        ({"start_cash": 1e308}, "start cash 1e"),
        ({"horizons": tuple(range(1, 52))}, "51 horizons: name 50 at most"),
    ],
)
def test_what_no_score_can_be_made_of_is_refused_first(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        definition(**changes)


@pytest.mark.parametrize(
    ("explicit", "instrument", "found"),
    [
        (None, "7203.T", "^N225"),
        (None, "AAPL", "QQQ"),
        (None, "0005.HK", None),
        ("^GSPC", "7203.T", "^GSPC"),
        ("^GSPC", None, "^GSPC"),
    ],
)
def test_a_benchmark_by_market_is_looked_up_and_one_for_all_wins(
    explicit: str | None, instrument: str | None, found: str | None
) -> None:
    asked = definition(benchmark=explicit, benchmark_map={"T": "^N225", "": "QQQ"})
    assert asked.benchmark_of(instrument) == found
    assert asked.rule_for(5, instrument).benchmark == found


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    return make_workspace(tmp_path_factory.mktemp("run")).config(
        entry="next_close", horizon=4, delisting_haircut=0.2, benchmark="BBB"
    )


def test_a_runs_own_score_has_its_rules_and_charges_one_and_five_basis_points(
    config: RunConfig,
) -> None:
    own = run_definition(config, run_id="r", snapshot_id="s", universe=("BBB", "AAA"))

    assert (own.score_id, own.universe) == ("default", ("AAA", "BBB"))
    assert (own.first, own.last, own.horizon) == (config.start, config.end, 4)
    assert (own.entry_rule, own.haircut, own.benchmark) == ("next_close", 0.2, "BBB")
    # One session from the next close is none, so it is not among the horizons.
    assert own.horizons == (4, 5, 20)
    costs = own.book_rule().costs
    assert (costs.commission_bps, costs.slippage_bps) == (1.0, 5.0)
    assert (costs.commission_minimum, costs.cash_rate, costs.borrow_bps_year) == (0.0, 0.0, 0.0)


def test_horizons_that_nobody_asked_for_make_way_for_a_fill_at_the_next_close() -> None:
    own = definition(horizon=3, horizons=(1, 5, 20))

    moved = changed(own, entry_rule="next_close")
    assert (moved.horizon, moved.horizons) == (3, (3, 5, 20))
    with pytest.raises(UsageError, match="horizon 1 is too short"):
        changed(own, entry_rule="next_close", horizons=(1, 3))
    with pytest.raises(UsageError, match="horizon 1 is too short"):
        changed(own, entry_rule="next_close", horizon=1)


def test_a_window_begins_with_the_first_session_also_where_the_start_is_none(
    config: RunConfig,
) -> None:
    # A listed Saturday is decided on the Friday before, and counts; the other grid begins later.
    grids = {"AAA": ["2017-12-29", "2018-01-05"], "BBB": ["2018-01-05"]}
    own = run_definition(config, run_id="r", snapshot_id="s", universe=("AAA", "BBB"), grids=grids)

    assert config.start == date(2018, 1, 2)
    assert (own.first, own.last) == (date(2017, 12, 29), config.end)
