"""What each rating is worth under each policy."""

from __future__ import annotations

import math
from typing import Any

import pytest

from backtester.book.policy import policy_named
from backtester.errors import DataError, UsageError

BEST_FIRST = ("Buy", "Overweight", "Hold", "Underweight", "Sell")


@pytest.mark.parametrize(
    ("name", "weights"),
    [
        ("long_only", [1.0, 0.75, None, 0.25, 0.0]),
        ("long_short", [1.0, 0.5, None, -0.5, -1.0]),
        ("equal_slots", [1.0, 1.0, None, 0.0, 0.0]),
    ],
)
def test_each_policy_gives_each_rating_its_weight_and_hold_carries(
    name: str, weights: list[float | None]
) -> None:
    policy = policy_named(name)

    assert [policy.weight_of(rating) for rating in BEST_FIRST] == weights
    assert policy.weight_of(None) is None


@pytest.mark.parametrize("name", ["long_only", "long_short", "equal_slots"])
def test_hold_goes_flat_where_it_is_told_to(name: str) -> None:
    assert policy_named(name, hold="flat").weight_of("Hold") == 0.0


def test_a_map_of_the_users_own_keeps_its_weight_for_hold_or_carries() -> None:
    four = {"Buy": 0.9, "Overweight": 0.6, "Underweight": -0.1, "Sell": -0.3}

    assert policy_named("map", weights=four).weight_of("Hold") is None
    assert policy_named("map", weights=four, hold="flat").weight_of("Hold") == 0.0
    with_hold = policy_named("map", weights={**four, "Hold": 0.2}, hold="flat")
    assert [with_hold.weight_of(rating) for rating in BEST_FIRST] == [0.9, 0.6, 0.2, -0.1, -0.3]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("longonly", {}, "long_only, long_short, equal_slots, map"),
        ("long_only", {"hold": "sell"}, "carry or flat"),
        ("long_only", {"weights": {"Buy": 1.0}}, "name it map"),
        ("map", {}, "no weight for Sell, Underweight, Overweight, Buy"),
        ("map", {"weights": {"Buy": 1.0, "Strong Buy": 2.0}}, "'Strong Buy' is no rating"),
        (
            "map",
            {"weights": {"Buy": 1.5, "Overweight": 1, "Underweight": 0, "Sell": 0}},
            "1.5 of Buy is not from -1 to 1",
        ),
        (
            "map",
            {"weights": {"Buy": math.nan, "Overweight": 1, "Underweight": 0, "Sell": 0}},
            "nan of Buy",
        ),
    ],
)
def test_a_policy_that_cannot_be_is_refused_with_what_there_is(
    name: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        policy_named(name, **options)


def test_a_word_that_is_no_rating_has_no_weight() -> None:
    with pytest.raises(DataError, match="'Maybe' is no rating"):
        policy_named("long_only").weight_of("Maybe")
