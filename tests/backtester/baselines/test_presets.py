"""Presets are the published ones, a rule speaks from its first full window on, draws are seeded."""

from __future__ import annotations

from typing import Any

import pytest

from backtester.baselines import PRESETS, baseline
from backtester.book.records import Signal
from tests.backtester.baselines.paths import rows_of
from tests.support.snapshots import make_snapshot, sessions_of

START = "2018-01-02"
DAYS = sessions_of("AAA", START, 60)
# Rises faster and faster: every fast mean is above its slow one, MACD above its signal line.
RISING = [100.0 * 1.01 ** (at + at * at / 100) for at in range(60)]
SNAPSHOT = make_snapshot({"AAA": rows_of("AAA", START, RISING)})


def ask(name: str, preset: str, **changes: Any) -> list[float | None]:
    """Return what a baseline wants of AAA at every session."""
    given: dict[str, Any] = {
        "snapshot": SNAPSHOT,
        "tickers": ("AAA",),
        "sessions": {"AAA": DAYS},
        "decision_time": "close",
    }
    found = baseline(name, preset, **{**given, **changes})
    return [signal.weight for signal in found.signals]


def test_the_presets_are_those_of_the_textbooks_and_of_finagent() -> None:
    assert {name: dict(PRESETS["macd"][name]) for name in PRESETS["macd"]} == {
        "textbook": {"fast": 12, "slow": 26, "signal": 9},
        "finagent": {"fast": 7, "slow": 14, "signal": 9},
    }
    assert {name: dict(PRESETS["kdj_rsi"][name]) for name in PRESETS["kdj_rsi"]} == {
        "textbook": {"kdj": 9, "k": 3, "d": 3, "rsi": 14, "low": 30.0, "high": 70.0},
        "finagent": {"kdj": 9, "k": 3, "d": 3, "rsi": 14, "low": 40.0, "high": 60.0},
    }
    assert {name: dict(PRESETS["zmr"][name]) for name in PRESETS["zmr"]} == {
        "textbook": {"window": 20, "threshold": 1.0},
        "finagent": {"window": 14, "threshold": 1.0},
    }
    assert {name: dict(PRESETS["sma_cross"][name]) for name in PRESETS["sma_cross"]} == {
        "textbook": {"fast": 20, "slow": 50},
        "finagent": {"fast": 10, "slow": 20},
    }


@pytest.mark.parametrize(
    ("name", "preset", "bars"),
    [
        ("sma_cross", "textbook", 50),
        ("sma_cross", "finagent", 20),
        # The slow mean's window, then the signal line's over 9 values of the line.
        ("macd", "textbook", 26 + 9 - 1),
        ("macd", "finagent", 14 + 9 - 1),
    ],
)
def test_a_rule_speaks_at_the_first_bar_that_fills_its_windows(
    name: str, preset: str, bars: int
) -> None:
    assert ask(name, preset) == [0.0] * (bars - 1) + [1.0] * (60 - bars + 1)


ROUND = ("Buy", "Overweight", "Sell")
WEIGHTS = [1.0, 0.75, 0.0] * 21


def going_round() -> list[Signal]:
    return [Signal(ticker="AAA", session=day, rating=ROUND[at % 3]) for at, day in enumerate(DAYS)]


def test_random_ratings_change_as_the_run_s_do_unless_they_are_drawn_one_by_one() -> None:
    """Buy was followed by Overweight, that by Sell, that by Buy: so is every draw like it."""
    rounds = [WEIGHTS[start : start + 60] for start in range(3)]
    for seed in range(5):
        assert ask("random", "markov", own=going_round(), seed=seed) in rounds
        single = ask("random", "iid", own=going_round(), seed=seed)
        assert set(single) == {0.0, 0.75, 1.0}
        assert single not in rounds


def test_each_seed_is_another_draw_and_the_same_one_the_same() -> None:
    draws = [ask("random", "iid", own=going_round(), seed=seed) for seed in (0, 1, 2, 1)]
    assert draws[1] == draws[3]
    assert draws[0] != draws[1] != draws[2] != draws[0]
