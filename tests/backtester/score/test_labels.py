"""A score is called by what it differs by from the run's own, shortly and exactly."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backtester.book.costs import Costs
from backtester.book.policy import policy_named
from backtester.errors import UsageError
from backtester.score.definition import DEFAULT_COSTS, ScoreDefinition, changed
from backtester.score.labels import OWN, score_label, score_slug
from tests.support.definitions import OWN_SCORE

MAP = {"Buy": 1.0, "Overweight": 0.5, "Underweight": 0.0, "Sell": -1.0}


def label_of(**changes: Any) -> str:
    made = changed(OWN_SCORE, **changes)
    return score_label(made.document(), OWN_SCORE.document(), snapshot="newer")


@pytest.mark.parametrize(
    ("changes", "label"),
    [
        ({"policy": policy_named("long_short")}, "long_short"),
        ({"policy": policy_named("long_only", hold="flat")}, "hold flat"),
        ({"policy": policy_named("equal_slots", hold="flat")}, "equal_slots, hold flat"),
        (
            {"policy": policy_named("map", weights=MAP)},
            "map Buy=1,Overweight=0.5,Sell=-1,Underweight=0",
        ),
        ({"horizon": 1, "horizons": (1,)}, "h=1"),
        ({"horizon": 1, "horizons": (1, 5, 20)}, "h=1 of 1,5,20"),
        ({"horizon": 1, "horizons": (1, 5)}, "h=1,5"),
        ({"horizons": (5, 10)}, "h=5,10"),
        ({"entry_rule": "next_close", "horizons": (5,)}, "h=5, entry next_close"),
        ({"costs": replace(DEFAULT_COSTS, commission_bps=10.0)}, "commission 10 bps"),
        ({"costs": Costs()}, "no costs"),
        (
            {"costs": Costs(commission_per_share=0.005, commission_minimum=1.0)},
            "commission 0 bps, commission 0.005 a share, commission at least 1, slippage 0 bps",
        ),
        ({"costs": replace(DEFAULT_COSTS, participation_cap=0.1)}, "participation cap 0.1"),
        ({"costs": replace(DEFAULT_COSTS, impact_bps=10.0)}, "impact 10 bps"),
        ({"costs": replace(DEFAULT_COSTS, borrow_bps_year=50.0)}, "borrow 50 bps a year"),
        ({"costs": replace(DEFAULT_COSTS, cash_rate=0.02)}, "cash rate 0.02 a year"),
        ({"charge_model_cost": True}, "model cost charged"),
        ({"slots": 10}, "slots 10"),
        ({"rebalance": "always"}, "rebalance always"),
        ({"fractional": False}, "whole shares"),
        ({"start_cash": 25_000_000.0}, "start cash 25000000"),
        ({"first": date(2018, 6, 1)}, "from 2018-06-01"),
        ({"last": date(2018, 6, 1)}, "to 2018-06-01"),
        ({"benchmark": "none"}, "benchmark none"),
        ({"benchmark": "^GSPC"}, "benchmark ^GSPC"),
        ({"benchmark_map": {"T": "^N225"}}, "benchmark map T=^N225"),
        ({"snapshot_id": "fedcba9876543210"}, "snapshot newer fedcba98"),
        ({"haircut": 0.5}, "haircut 0.5"),
        ({"rf_annual": 0.02}, "rf 0.02"),
        ({"fold": "6M"}, "fold 6M"),
        ({"placebo_draws": 0}, "placebo 0"),
        ({"seed": 3}, "seed 3"),
    ],
)
def test_what_differs_is_named_in_the_words_of_the_flags(
    changes: dict[str, Any], label: str
) -> None:
    assert label_of(**changes) == label


def test_what_differs_in_several_ways_names_each() -> None:
    costs = replace(DEFAULT_COSTS, commission_bps=10.0)
    made = {"policy": policy_named("long_short"), "horizon": 1, "horizons": (1,), "costs": costs}

    assert label_of(**made) == "long_short, h=1, commission 10 bps"
    score_id = changed(OWN_SCORE, **made).score_id
    assert re.fullmatch(r"long-short-h1-commission-10-bps-[0-9a-f]{8}", score_id)


def test_no_field_of_a_definition_can_differ_without_a_word() -> None:
    document = OWN_SCORE.document()
    for field in fields(ScoreDefinition):
        if field.name in ("score_id", "run_id"):
            continue
        other = {**document, field.name: "otherwise"}
        if field.name == "policy":
            other["policy"] = {**document["policy"], "name": "otherwise"}
        if field.name == "costs":
            other["costs"] = {**document["costs"], "slippage_bps": 7.0}
        if field.name == "start_cash":
            other["start_cash"] = 1.0
        if field.name in ("haircut", "rf_annual"):
            other[field.name] = 0.25
        if field.name == "benchmark_map":
            other["benchmark_map"] = {"T": "x"}
        if field.name in ("universe", "horizons"):
            other[field.name] = ["5"]
        assert score_label(other, document) != OWN, field.name


costs = st.builds(
    Costs,
    commission_bps=st.sampled_from([0.0, 1.0, 0.1 + 0.2, 1e-9, 1234.5678]),
    slippage_bps=st.sampled_from([0.0, 5.0, 5.000000000000001]),
    cash_rate=st.sampled_from([0.0, -0.01, 10.0]),
    participation_cap=st.sampled_from([None, 0.1, 1.0]),
)
definitions = st.builds(
    lambda **changes: changed(OWN_SCORE, **changes),
    policy=st.sampled_from(
        [
            policy_named("long_only"),
            policy_named("long_only", hold="flat"),
            policy_named("map", weights=MAP),
            policy_named("map", weights={**MAP, "Hold": 0.0}),
            policy_named("map", weights=MAP, hold="flat"),
        ]
    ),
    horizon=st.sampled_from([1, 5]),
    horizons=st.sampled_from([(1,), (5,), (1, 5), (1, 5, 20)]),
    costs=costs,
    start_cash=st.sampled_from([1e6, 1e6 + 1e-9, 1e12]),
    fractional=st.booleans(),
)


@given(first=definitions, second=definitions)
def test_two_scores_have_one_label_if_and_only_if_they_are_one(
    first: ScoreDefinition, second: ScoreDefinition
) -> None:
    own = OWN_SCORE.document()
    labels = [score_label(one.document(), own) for one in (first, second)]

    assert (labels[0] == labels[1]) == (first.document() == second.document())
    assert (first.score_id == second.score_id) == (first.document() == second.document())


def test_without_the_runs_own_score_all_that_is_not_plain_is_named() -> None:
    document = changed(OWN_SCORE, slots=3).document()

    label = score_label(document, None)

    assert label == "h=5,1,20, entry next_open, commission 1 bps, slippage 5 bps, slots 3"


def test_an_id_is_short_and_of_letters_that_a_folder_may_have() -> None:
    made = changed(
        OWN_SCORE,
        policy=policy_named("map", weights=MAP, hold="flat"),
        costs=Costs(commission_per_share=0.005),
        first=date(2018, 6, 1),
        fractional=False,
        benchmark="^GSPC",
    )
    assert re.fullmatch(r"map-hold-flat-commission-0-bps-[0-9a-f]{8}", made.score_id)
    assert score_slug(made.document(), made.document()) == "own"


def test_what_changes_nothing_is_the_runs_own_score() -> None:
    assert changed(OWN_SCORE, horizons=(20, 5, 1), slots=None) is OWN_SCORE


@pytest.mark.parametrize(
    ("window", "says"),
    [
        ({"first": date(2019, 2, 1)}, "2019-02-01 is after the last day of decisions, 2018-12-31"),
        (
            {"first": date(2019, 2, 1), "last": date(2019, 3, 1)},
            "2019-02-01 is after the last day of decisions, 2018-12-31",
        ),
        ({"last": date(2017, 12, 31)}, "2017-12-31 is before the first day of decisions"),
    ],
)
def test_a_window_past_the_decisions_is_refused_with_their_dates(
    window: dict[str, Any], says: str
) -> None:
    with pytest.raises(UsageError, match=says):
        changed(OWN_SCORE, **window)


def test_a_window_that_ends_before_it_begins_is_told_so() -> None:
    with pytest.raises(UsageError, match="swap its dates"):
        changed(OWN_SCORE, first=date(2018, 6, 1), last=date(2018, 2, 1))
