"""The published rules, against points counted by hand and at each threshold."""

from __future__ import annotations

import pytest

from tests.core.llm.rulebook_prompts import snapshot_text
from tradingagents_core.llm.rulebook_rules import (
    Figures,
    PastCall,
    assess,
    lesson_rule,
    read_figures,
    stop_loss,
    tier_at,
    toward_hold,
    volatility_rule,
)


def figures(**texts: str) -> Figures:
    return read_figures("\n".join(f"{key}: {text}" for key, text in texts.items()))


def points(rule: str, **texts: str) -> list[int]:
    return [finding.points for finding in assess(figures(**texts)).findings if finding.rule == rule]


def test_the_points_of_the_example_add_up_to_three_and_read_overweight() -> None:
    seen = assess(read_figures(snapshot_text()))
    assert [finding.points for finding in seen.findings] == [1, 1, 1, -1, 1, 0, 0]
    assert (seen.score, seen.rating, seen.missing) == (3, "Overweight", ())


def test_the_lowest_score_is_minus_seven_and_the_highest_six() -> None:
    worst = {
        "close": "80",
        "close_50_sma": "90",
        "close_200_sma": "100",
        "macdh": "-1",
        "return_63d": "-0.3",
        "rsi": "71",
        "drawdown_from_52w_high": "-0.4",
    }
    best = {
        "close": "120",
        "close_50_sma": "110",
        "close_200_sma": "100",
        "macdh": "1",
        "return_63d": "0.3",
        "rsi": "29",
        "drawdown_from_52w_high": "-0.01",
    }
    assert assess(figures(**worst)).score == -7
    assert assess(figures(**best)).score == 6


@pytest.mark.parametrize(("close", "expected"), [("100.01", [1]), ("100.00", [0]), ("99.99", [-1])])
def test_a_close_on_its_average_gives_no_point(close: str, expected: list[int]) -> None:
    assert points("trend", close=close, close_200_sma="100.00") == expected


def test_the_fifty_day_average_is_compared_with_the_close_and_with_the_longer_one() -> None:
    assert points("trend", close="99", close_50_sma="98", close_200_sma="100") == [-1, 1, -1]


@pytest.mark.parametrize(
    ("value", "expected"), [("0.0001", [1]), ("0", [0]), ("0.0", [0]), ("-1e-05", [-1])]
)
def test_momentum_is_the_sign_of_its_figures(value: str, expected: list[int]) -> None:
    assert points("momentum", macdh=value) == expected
    assert points("momentum", return_63d=value) == expected


@pytest.mark.parametrize(
    ("rsi", "expected"),
    [("29.9999", [1]), ("30", [0]), ("50", [0]), ("70", [0]), ("70.0001", [-1])],
)
def test_rsi_counts_only_outside_thirty_to_seventy(rsi: str, expected: list[int]) -> None:
    assert points("oscillator", rsi=rsi) == expected


@pytest.mark.parametrize(
    ("drawdown", "expected"), [("-0.1999", [0]), ("-0.2", [-1]), ("-0.2001", [-1]), ("0", [0])]
)
def test_a_fall_of_twenty_percent_is_a_bear_market(drawdown: str, expected: list[int]) -> None:
    assert points("drawdown", drawdown_from_52w_high=drawdown) == expected


@pytest.mark.parametrize(
    ("score", "tier"),
    [
        (6, "Buy"),
        (4, "Buy"),
        (3, "Overweight"),
        (2, "Overweight"),
        (1, "Hold"),
        (0, "Hold"),
        (-1, "Hold"),
        (-2, "Underweight"),
        (-3, "Underweight"),
        (-4, "Sell"),
        (-7, "Sell"),
    ],
)
def test_scores_are_read_as_tiers_symmetrically(score: int, tier: str) -> None:
    assert tier_at(score) == tier


def test_toward_hold_moves_one_tier_and_stops_there() -> None:
    moved = [toward_hold(tier) for tier in ("Sell", "Underweight", "Hold", "Overweight", "Buy")]
    assert moved == ["Underweight", "Hold", "Hold", "Hold", "Overweight"]


@pytest.mark.parametrize(
    ("shown", "rating"),
    [("0.03", "Buy"), ("0.0301", "Overweight"), ("n/a", "Buy")],
)
def test_only_volatility_above_three_percent_costs_a_tier(shown: str, rating: str) -> None:
    assert volatility_rule("Buy", figures(volatility_21d=shown)).rating == rating


def test_volatility_leaves_hold_alone_and_says_so() -> None:
    calmed = volatility_rule("Hold", figures(volatility_21d="0.05"))
    assert (calmed.rating, calmed.applied) == ("Hold", False)
    assert calmed.reason == "volatility_21d 0.05 is above 0.03: Hold stays Hold"


def test_missing_figures_count_zero_and_are_named_once() -> None:
    seen = assess(figures(close="100", close_50_sma="n/a", rsi="nan"))
    assert seen.score == 0
    assert seen.rating == "Hold"
    assert seen.missing == (
        "close_200_sma",
        "close_50_sma",
        "macdh",
        "return_63d",
        "rsi",
        "drawdown_from_52w_high",
    )


def test_figures_keep_the_text_of_the_prompt() -> None:
    read = figures(close="194.3200", rsi="1e2")
    assert (read.shown("close"), read.number("close")) == ("194.3200", 194.32)
    assert (read.shown("rsi"), read.number("rsi")) == ("1e2", 100.0)
    assert (read.shown("atr"), read.number("atr")) == ("n/a", None)


def test_the_first_of_two_values_counts() -> None:
    assert read_figures("rsi: 20\nrsi: 90").number("rsi") == 20.0


@pytest.mark.parametrize(
    "line",
    [
        "  close: 1",
        "close: 1 or so",
        "close : 1",
        "The close: 1",
        "close: inf",
        "CLOSE: 1",
        "- close: 1",
    ],
)
def test_a_line_that_is_not_exactly_a_figure_is_none(line: str) -> None:
    assert read_figures(line).number("close") is None


def call(rating: str, alpha: float | None) -> PastCall:
    return PastCall(rating=rating, alpha=alpha)


@pytest.mark.parametrize(
    ("lessons", "rating"),
    [
        ([], "Buy"),
        ([call("Buy", -0.01)], "Buy"),
        ([call("Buy", -0.01), call("Overweight", -0.02)], "Overweight"),
        ([call("Buy", -0.01), call("Hold", 0.5), call("Buy", -0.02)], "Overweight"),
        ([call("Buy", -0.01), call("Sell", 0.5), call("Buy", -0.02)], "Overweight"),
        ([call("Buy", -0.01), call("Buy", 0.01), call("Buy", -0.02)], "Buy"),
        ([call("Buy", -0.01), call("Buy", 0.0)], "Buy"),
        ([call("Buy", -0.01), call("Buy", None)], "Buy"),
        ([call("Buy", -0.01), call("Hold", 0.0), call("Hold", 0.0), call("Buy", -0.02)], "Buy"),
    ],
)
def test_two_wrong_calls_on_this_side_among_the_last_three_cost_a_tier(
    lessons: list[PastCall], rating: str
) -> None:
    assert lesson_rule("Buy", lessons).rating == rating


def test_for_a_falling_side_a_positive_alpha_is_against_the_call() -> None:
    lessons = [call("Sell", 0.01), call("Underweight", 0.02)]
    assert lesson_rule("Sell", lessons).rating == "Underweight"
    assert lesson_rule("Underweight", lessons).rating == "Hold"
    assert lesson_rule("Buy", lessons).rating == "Buy"


def test_hold_takes_no_side_that_a_lesson_could_lower() -> None:
    lessons = [call("Hold", -0.01), call("Hold", -0.02)]
    assert lesson_rule("Hold", lessons) == lesson_rule("Hold", [])


def test_the_stop_is_two_average_true_ranges_below_the_close() -> None:
    assert stop_loss(figures(close="100", atr="2.5")) == 95.0
    assert stop_loss(figures(close="4", atr="2.5")) is None
    assert stop_loss(figures(close="100", atr="n/a")) is None
