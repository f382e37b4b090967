"""Random ratings: as many of each as the run has, and as lasting; nothing else of it."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest

from backtester.baselines.placebo import STATES, model_of, random_ratings, uniform_model
from backtester.book.records import Signal
from backtester.errors import UsageError
from tests.support.snapshots import sessions_of

DAYS = sessions_of("AAA", "2013-01-02", 1_000)


def lane(**paths: str) -> list[Signal]:
    """Make a lane from letters: B(uy), O, H, U, S, and - for none read."""
    words = {"B": "Buy", "O": "Overweight", "H": "Hold", "U": "Underweight", "S": "Sell"}
    return [
        Signal(ticker=ticker, session=day, rating=words.get(letter))
        for ticker, letters in paths.items()
        for day, letter in zip(DAYS, letters, strict=False)
    ]


def states(signals: Sequence[Signal], ticker: str) -> list[str | None]:
    return [one.rating for one in signals if one.ticker == ticker]


def test_the_model_counts_ratings_and_their_changes_over_all_tickers() -> None:
    # Ratings: B 4, S 2, none 2. After B: B, B, S and S. After S: B. After none: none.
    model = model_of(lane(AAA="BBBS", BBB="SB", CCC="--"), persistent=True)
    by_word = dict(zip(STATES, model.first, strict=True))
    assert by_word == {
        "Buy": 4 / 8,
        "Sell": 2 / 8,
        None: 2 / 8,
        "Hold": 0.0,
        "Overweight": 0.0,
        "Underweight": 0.0,
    }
    then = dict(zip(STATES, model.then, strict=True))
    assert dict(zip(STATES, then["Buy"], strict=True))["Buy"] == 2 / 3
    assert dict(zip(STATES, then["Sell"], strict=True))["Buy"] == 1.0
    assert dict(zip(STATES, then[None], strict=True))[None] == 1.0
    assert then["Hold"] == model.first
    flat = model_of(lane(AAA="BBBS", BBB="SB", CCC="--"), persistent=False)
    assert set(flat.then) == {model.first}


def test_draws_come_as_often_and_stay_as_long_as_the_run_s() -> None:
    # A rating stays with probability 0.9: 100 ratings in runs of ten, half Buy and half Sell.
    own = lane(AAA=("B" * 10 + "S" * 10) * 5, BBB=("S" * 10 + "B" * 10) * 5)
    grid = {"AAA": DAYS, "BBB": DAYS, "CCC": DAYS}
    stay, iid_stay, buys = [], [], []
    for seed in range(20):
        drawn = random_ratings(model_of(own, persistent=True), grid, seed=seed)
        loose = random_ratings(model_of(own, persistent=False), grid, seed=seed)
        for ticker in grid:
            path, other = states(drawn, ticker), states(loose, ticker)
            assert set(path) <= {"Buy", "Sell"}
            stay.append(np.mean([a == b for a, b in pairwise(path)]))
            iid_stay.append(np.mean([a == b for a, b in pairwise(other)]))
            buys.append(path.count("Buy") / len(path))
    # 18 of 198 changes are no stay; 60,000 draws leave an error of about 0.001 and 0.007.
    assert np.mean(stay) == pytest.approx(180 / 198, abs=0.006)
    assert np.mean(iid_stay) == pytest.approx(0.5, abs=0.01)
    assert np.mean(buys) == pytest.approx(0.5, abs=0.035)


def test_uniform_ratings_are_the_five_and_as_likely() -> None:
    drawn = random_ratings(uniform_model(), {"AAA": DAYS, "BBB": DAYS}, seed=1)
    counts = Counter(one.rating for one in drawn)
    assert None not in counts
    assert {word for word, n in counts.items() if 330 < n < 470} == set(STATES[:5])


def test_a_draw_follows_from_seed_and_ticker_alone() -> None:
    model = uniform_model()
    one = random_ratings(model, {"AAA": DAYS[:50], "BBB": DAYS[:50]}, seed=3)
    assert one == random_ratings(model, {"BBB": DAYS[:50], "AAA": DAYS[:50]}, seed=3)
    assert states(one, "AAA") == states(random_ratings(model, {"AAA": DAYS[:50]}, seed=3), "AAA")
    assert states(one, "AAA") != states(one, "BBB")
    assert states(one, "AAA") != states(random_ratings(model, {"AAA": DAYS[:50]}, seed=4), "AAA")


def test_the_stream_is_that_of_pcg64_and_stays_so() -> None:
    drawn = random_ratings(uniform_model(), {"AAPL": DAYS[:12]}, seed=2018)
    entropy = [2018, int(hashlib.sha256(b"AAPL").hexdigest()[:16], 16)]
    stream = np.random.Generator(np.random.PCG64(np.random.SeedSequence(entropy)))
    assert [one.rating for one in drawn] == [STATES[int(5 * x)] for x in stream.random(12)]
    assert "".join((one.rating or "-")[0] for one in drawn) == "HBBSSHOBSHHO"


@pytest.mark.parametrize("path", ["B", "BBBBBBBB", "-"])
def test_one_rating_alone_is_all_that_is_ever_drawn(path: str) -> None:
    own = lane(AAA=path)
    for persistent in (True, False):
        drawn = random_ratings(model_of(own, persistent=persistent), {"AAA": DAYS}, seed=0)
        assert {one.rating for one in drawn} == {own[0].rating}


def test_no_decision_is_no_model() -> None:
    with pytest.raises(UsageError, match="there are none"):
        model_of([], persistent=True)
