"""What baselines want at the sessions of a run: from what was known at each cutoff."""

from __future__ import annotations

from datetime import date
from typing import Any, Literal

import numpy as np
import pytest

from backtester.baselines import (
    BASELINES,
    PLACEBO,
    PRESETS,
    Baseline,
    Histories,
    baseline,
)
from backtester.baselines.history import seen_by
from backtester.book.records import Signal
from backtester.errors import DataError, UsageError
from backtester.records import RATINGS
from backtester.settlement.pricing import market_of
from backtester.snapshots.snapshot import Snapshot
from backtester.snapshots.view import AsOfView
from backtester.snapshots.view_cache import ViewCache
from tests.backtester.baselines.paths import rows_of, swing
from tests.support.snapshots import Action, dividend, make_snapshot, sessions_of, split
from tradingagents_core.errors import NoMarketData

START = "2018-01-02"
COUNT = 150
DAYS = sessions_of("AAA", START, COUNT)
EX = DAYS[90]
GRID = {"AAA": tuple(DAYS[::5]), "BBB": tuple(DAYS[2::5])}
NAMES = [pytest.param(n, p, id=f"{n}-{p}") for n in BASELINES for p in PRESETS[n] or ("",)]
OWN = [
    Signal(ticker=ticker, session=day, rating=RATINGS[(place // 3) % 5])
    for ticker, days in GRID.items()
    for place, day in enumerate(days)
]


def snapshot_of(
    *, later: float = 1.0, after: int = COUNT, actions: tuple[Action, ...] = (), gap: int = -1
) -> Snapshot:
    """Two waves; AAA splits 4 for 1, so its prices fall; after a bar all may be other prices."""
    rows = {
        "AAA": rows_of("AAA", START, swing(COUNT)),
        "BBB": rows_of("BBB", START, swing(COUNT, phase=2.0)),
    }
    for ticker in rows:
        rows[ticker] = [
            (
                d,
                *(
                    round(
                        x
                        * (later if i > after else 1.0)
                        * (0.25 if ticker == "AAA" and d >= EX else 1.0),
                        6,
                    )
                    for x in (o, h, low, c)
                ),
                v,
            )
            for i, (d, o, h, low, c, v) in enumerate(rows[ticker])
            if i != gap
        ]
    return make_snapshot(rows, actions=[split("AAA", EX, 4), *actions])


SNAPSHOT = snapshot_of()


def ask(name: str, preset: str = "", *, snapshot: Snapshot = SNAPSHOT, **changes: Any) -> Baseline:
    given: dict[str, Any] = {
        "tickers": ("AAA", "BBB"),
        "sessions": GRID,
        "decision_time": "close",
        "own": OWN,
        "seed": 7,
    }
    return baseline(name, preset, snapshot=snapshot, **{**given, **changes})


# ---------------------------------------------------------------------------------- every baseline


@pytest.mark.parametrize(("name", "preset"), NAMES)
def test_every_baseline_answers_once_for_each_decision(name: str, preset: str) -> None:
    found = ask(name, preset)
    asked = sorted((day, ticker) for ticker, days in GRID.items() for day in days)
    assert [(one.session, one.ticker) for one in found.signals] == asked
    assert all(one.weight is None or 0.0 <= one.weight <= 1.0 for one in found.signals)
    assert found.parameters == (PRESETS[name][preset] if preset else {})
    assert found == ask(name, preset)
    assert BASELINES[name].meaning
    turned = ask(name, preset, tickers=("BBB", "AAA"))
    assert turned.signals == found.signals


@pytest.mark.parametrize("decision_time", ["close", "open"])
@pytest.mark.parametrize(("name", "preset"), NAMES)
def test_what_happens_later_changes_no_earlier_signal(
    name: str, preset: str, decision_time: str
) -> None:
    last = 70
    other = snapshot_of(
        later=10.0,
        after=last,
        actions=(split("BBB", DAYS[last + 1], 3), dividend("AAA", DAYS[last + 2], 5.0)),
    )
    until = DAYS[last] if decision_time == "close" else DAYS[last + 1]
    before, after = (
        [
            one
            for one in ask(name, preset, snapshot=held, decision_time=decision_time).signals
            if one.session <= until
        ]
        for held in (SNAPSHOT, other)
    )
    assert before == after
    assert len(before) > 25


# ------------------------------------------------------------------------------- what they can see


@pytest.mark.parametrize("decision_time", ["close", "open"])
@pytest.mark.parametrize("ticker", ["AAA", "BBB"])
def test_they_see_the_bars_of_the_view(
    ticker: str, decision_time: Literal["close", "open"]
) -> None:
    snapshot = snapshot_of(gap=60)
    cache = ViewCache(snapshot)
    seen = seen_by(cache, ticker, DAYS[1:], decision_time)
    calendar = market_of(snapshot, ticker).calendar
    stale = 0
    for place, day in enumerate(seen.sessions):
        cutoff = calendar.close_utc(day) if decision_time == "close" else calendar.open_utc(day)
        view = AsOfView(
            snapshot,
            cutoff=cutoff,
            session=day,
            decision_time=decision_time,
            on_read=lambda _: None,
            cache=cache,
        )
        try:
            bars = view.bars(ticker)
        except NoMarketData:
            stale += 1
            assert not seen.fresh[place]
            continue
        assert seen.fresh[place]
        mine = seen.bars_at(place)
        for column in ("sessions", "open", "high", "low", "close", "volume"):
            np.testing.assert_array_equal(getattr(mine, column), getattr(bars, column))
    assert stale == 1


@pytest.mark.parametrize("decision_time", ["close", "open"])
def test_a_date_that_is_no_session_is_named(decision_time: Literal["close", "open"]) -> None:
    sunday = date(2024, 3, 3)
    with pytest.raises(DataError, match="2024-03-03"):
        seen_by(ViewCache(snapshot_of()), "AAA", [DAYS[1], sunday], decision_time)


def test_a_split_moves_no_line_across_another() -> None:
    whole = make_snapshot({"AAA": rows_of("AAA", START, swing(COUNT))})
    for name, preset in (("macd", "textbook"), ("sma_cross", "finagent"), ("zmr", "textbook")):
        with_split = ask(name, preset, tickers=("AAA",)).signals
        without = ask(name, preset, tickers=("AAA",), snapshot=whole).signals
        assert with_split == without
        assert {one.weight for one in with_split} >= {0.0, 1.0}


def test_at_the_open_the_bar_of_the_session_is_not_known() -> None:
    # The close of the third day lifts the fast mean over the slow one; at its open nobody knows.
    closes = [10.0] * 60 + [20.0, 20.0]
    snapshot = make_snapshot({"AAA": rows_of("AAA", START, closes)})
    grid = {"AAA": tuple(DAYS[59:62])}
    seen: dict[str, list[float | None]] = {}
    for decision_time in ("close", "open"):
        found = ask(
            "sma_cross",
            snapshot=snapshot,
            tickers=("AAA",),
            sessions=grid,
            decision_time=decision_time,
        )
        seen[decision_time] = [one.weight for one in found.signals]
    assert seen == {"close": [0.0, 1.0, 1.0], "open": [0.0, 0.0, 1.0]}


def test_too_little_history_holds_nothing_and_is_counted() -> None:
    # Sessions 0, 5, .. 45 of AAA see 1 to 46 bars and those of BBB 3 to 48: 50 are needed.
    found = ask("sma_cross", "textbook")
    assert found.counts == {"short_history": 20}
    assert {one.weight for one in found.signals if one.session <= DAYS[47]} == {0.0}


def test_a_missing_bar_keeps_what_is_held_and_is_counted() -> None:
    found = ask("macd", snapshot=snapshot_of(gap=60))
    assert found.counts == {"no_bar": 1, "short_history": 14}
    (kept,) = [one for one in found.signals if (one.ticker, one.session) == ("AAA", DAYS[60])]
    assert kept.weight is None


def test_prices_that_stand_still_are_counted() -> None:
    snapshot = make_snapshot({"AAA": rows_of("AAA", START, [5.0] * 60)})
    grid = {"AAA": (DAYS[10], DAYS[30], DAYS[59])}
    found = ask("zmr", snapshot=snapshot, tickers=("AAA",), sessions=grid)
    assert found.counts == {"short_history": 1, "undefined": 2}
    assert [one.weight for one in found.signals] == [0.0, 0.0, 0.0]


def test_what_a_rule_said_between_two_decisions_still_holds() -> None:
    # The close of the second day is far below its mean, that of the fourth is not; the run
    # decides on the first and on the fourth.
    closes = [10.0, 10.1] * 10 + [7.0, 10.0, 10.0]
    snapshot = make_snapshot({"AAA": rows_of("AAA", START, closes)})
    grid = {"AAA": (DAYS[19], DAYS[22])}
    found = ask("zmr", snapshot=snapshot, tickers=("AAA",), sessions=grid)
    assert [one.weight for one in found.signals] == [0.0, 1.0]


# -------------------------------------------------------------------------------- without a price


def test_buy_and_hold_buys_once_where_there_is_a_first_bar() -> None:
    found = ask("buy_and_hold")
    assert found.rebalance is None
    assert [one.weight for one in found.signals][:4] == [1.0, 1.0, None, None]
    assert {one.weight for one in found.signals[2:]} == {None}

    late = make_snapshot(
        {"AAA": rows_of("AAA", START, swing(60))[20:], "BBB": rows_of("BBB", START, swing(60))}
    )
    grid = {"AAA": (DAYS[10], DAYS[19], DAYS[25], DAYS[30])}
    found = ask("buy_and_hold", snapshot=late, tickers=("AAA",), sessions=grid)
    assert [one.weight for one in found.signals] == [0.0, 0.0, 1.0, None]
    assert found.counts == {"no_bar": 2}


def test_equal_weight_asks_for_its_slot_at_every_decision() -> None:
    found = ask("equal_weight")
    assert {one.weight for one in found.signals} == {1.0}
    assert found.rebalance == "always"


# --------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("name", "preset", "said"),
    [
        ("mcad", "", "there is no baseline 'mcad': did you mean 'macd'?"),
        ("???", "", "there is no baseline '???': write one of buy_and_hold, equal_weight"),
        ("macd", "textbok", "baseline macd has no preset 'textbok': did you mean 'textbook'?"),
        ("equal_weight", "x", "baseline equal_weight has no preset 'x': it has no parameters"),
    ],
)
def test_an_unknown_name_is_refused(name: str, preset: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        ask(name, preset)
    assert str(caught.value).startswith(said)


def test_baselines_that_share_what_is_known_want_the_same() -> None:
    shared = Histories(SNAPSHOT, "close")
    for name in BASELINES:
        assert ask(name, histories=shared) == ask(name)


def test_a_date_that_is_no_session_is_refused() -> None:
    with pytest.raises(DataError):
        ask("macd", tickers=("AAA",), sessions={"AAA": (date(2018, 1, 6),)})


def test_random_ratings_like_the_run_s_need_the_run_s() -> None:
    with pytest.raises(UsageError, match="need its ratings"):
        ask(PLACEBO, own=())
    assert ask(PLACEBO, "uniform", own=()).preset == "uniform"


def test_a_ticker_without_a_decision_has_no_signal() -> None:
    for name in BASELINES:
        found = ask(name, sessions={"AAA": GRID["AAA"], "BBB": ()})
        assert {one.ticker for one in found.signals} == {"AAA"}
