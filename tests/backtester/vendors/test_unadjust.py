"""Adjusted prices and later splits become prices as traded, to the cent."""

from __future__ import annotations

from datetime import date, timedelta
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backtester.snapshots.snapshot import Snapshot, open_folder
from backtester.vendors.unadjust import (
    FLOAT32_NOISE,
    Dividend,
    Quote,
    Split,
    as_paid,
    as_traded,
    doubts,
    later_factor,
    printed,
    split_ratio,
    unapplied,
)
from tests.support.yahoo_frames import AAPL_2014, AAPL_2020, AAPL_TRADED, divided

FOLDER = Path(__file__).parents[3] / "data" / "snapshots" / "us-2013-2018"
# Every split of the committed instruments up to 2023, those after the snapshot's end too.
SPLITS = {
    "AAPL": (("2014-06-09", Fraction(7)), ("2020-08-31", Fraction(4))),
    "AMZN": (("2022-06-06", Fraction(20)),),
    "GOOG": (("2015-04-27", Fraction(10_027_455, 10_000_000)), ("2022-07-18", Fraction(20))),
    "META": (),
    "NFLX": (("2015-07-15", Fraction(7)),),
    "NVDA": (("2021-07-20", Fraction(4)), ("2024-06-10", Fraction(10))),
}


def split(day: str, ratio: Fraction | int) -> Split:
    return Split(ex_session=date.fromisoformat(day), ratio=Fraction(ratio))


def quote(day: date | str, close: float, *, adjusted: float | None = None) -> Quote:
    session = date.fromisoformat(day) if isinstance(day, str) else day
    return Quote(
        session=session,
        open=close,
        high=close,
        low=close,
        close=close,
        volume=1000,
        adjusted=adjusted,
    )


def daily(closes: list[float], first: str = "2018-01-01") -> list[Quote]:
    start = date.fromisoformat(first)
    return [quote(start + timedelta(days=at), close) for at, close in enumerate(closes)]


@pytest.fixture(scope="module")
def demo() -> Snapshot:
    return open_folder(FOLDER)


# -------------------------------------------------------------------------------- real figures


def test_published_figures_come_back_as_they_were_traded() -> None:
    splits = [split("2014-06-09", 7), split("2020-08-31", 4)]
    for day, (open_, high, low, close, adjusted, volume, _, _) in {
        **AAPL_2014,
        **AAPL_2020,
    }.items():
        given_ = Quote(
            session=date.fromisoformat(day),
            open=open_,
            high=high,
            low=low,
            close=close,
            volume=volume,
            adjusted=adjusted,
        )
        (traded,) = as_traded([given_], splits)
        assert (traded.close, traded.volume) == AAPL_TRADED[day]


@pytest.mark.parametrize(
    ("symbol", "day", "given_", "volume", "close", "shares"),
    [
        # The last close before each split and the first one after it, as Yahoo has them since.
        ("GOOG", "2015-04-24", 28.175643920898438, 98_650_102, 565.06, 4_919_000),
        ("GOOG", "2015-04-27", 27.76849937438965, 47_960_000, 555.37, 2_398_000),
        ("NFLX", "2015-07-14", 100.37142944335938, 19_736_500, 702.60, 2_819_500),
        ("NFLX", "2015-07-15", 98.12999725341797, 30_898_600, 98.13, 30_898_600),
    ],
)
def test_each_split_is_undone_before_its_day_and_not_from_it_on(
    symbol: str, day: str, given_: float, volume: int, close: float, shares: int
) -> None:
    splits = [split(when, ratio) for when, ratio in SPLITS[symbol]]
    one = Quote(
        session=date.fromisoformat(day),
        open=given_,
        high=given_,
        low=given_,
        close=given_,
        volume=volume,
    )
    (traded,) = as_traded([one], splits)
    assert traded.close == close
    assert traded.volume == pytest.approx(shares, abs=100)


@pytest.mark.parametrize("symbol", sorted(SPLITS))
def test_every_committed_bar_comes_back_to_the_cent_from_its_adjusted_form(
    demo: Snapshot, symbol: str
) -> None:
    splits = [split(day, ratio) for day, ratio in SPLITS[symbol]]
    bars = demo.bars(symbol)
    columns = [getattr(bars, name).tolist() for name in ("open", "high", "low", "close", "volume")]
    adjusted = []
    for session, *prices, volume in zip(bars.sessions.tolist(), *columns, strict=True):
        factor = later_factor(splits, session)
        open_, high, low, close = (divided(price, factor) for price in prices)
        adjusted.append(
            Quote(
                session=session,
                open=open_,
                high=high,
                low=low,
                close=close,
                volume=round(volume * factor),
            )
        )
    traded = as_traded(adjusted, splits)
    for name, values in zip(("open", "high", "low", "close", "volume"), columns, strict=True):
        assert [getattr(one, name) for one in traded] == values


def test_a_history_is_equal_before_and_after_a_later_split(demo: Snapshot) -> None:
    bars = demo.bars("NVDA")
    before: list[Quote] = []
    after: list[Quote] = []
    later = [split(day, ratio) for day, ratio in SPLITS["NVDA"]]
    for session, close in zip(bars.sessions.tolist(), bars.close.tolist(), strict=True):
        before.append(quote(session, divided(close, Fraction(1))))
        after.append(quote(session, divided(close, Fraction(40))))
    closes = [one.close for one in as_traded(before, [])]
    assert closes == [one.close for one in as_traded(after, later)]


def test_a_dividend_comes_back_as_it_was_paid_and_the_split_of_its_own_day_is_not_undone() -> None:
    splits = [split("2014-06-09", 7), split("2020-08-31", 4)]
    paid = [
        as_paid(Dividend(ex_session=date.fromisoformat(day), amount=amount), splits).amount
        # Apple, in dollars a share: 3.05 on 2013-08-08, 3.29, 0.47 after the split, 0.82.
        for day, amount in (
            ("2013-08-08", 0.108929),
            ("2014-05-08", 0.1175),
            ("2014-08-07", 0.1175),
            ("2020-08-07", 0.205),
        )
    ]
    assert paid == [3.05, 3.29, 0.47, 0.82]
    # Shin-Etsu, 2023-03-30: five for one and 275 yen a share of the old count on the same day.
    day = date(2023, 3, 30)
    same_day = Dividend(ex_session=day, amount=55.0)
    assert as_paid(same_day, [Split(ex_session=day, ratio=Fraction(5))]) == same_day


# ------------------------------------------------------------------------------------- rules


@pytest.mark.parametrize(
    ("given_", "ratio"),
    [
        (7.0, Fraction(7)),
        (0.1, Fraction(1, 10)),
        (1 / 3, Fraction(1, 3)),
        (1.5, Fraction(3, 2)),
        (1.0027455, Fraction(10_027_455, 10_000_000)),
        (1.002746, Fraction(1_002_746, 1_000_000)),
    ],
)
def test_a_ratio_is_the_fraction_that_it_stands_for(given_: float, ratio: Fraction) -> None:
    assert split_ratio(given_)[0] == ratio


@pytest.mark.parametrize("given_", [0.0, -2.0, float("nan"), float("inf")])
def test_what_is_no_ratio_is_refused(given_: float) -> None:
    with pytest.raises(ValueError, match="is no ratio"):
        split_ratio(given_)


def test_a_ratio_that_was_cut_widens_the_search_for_the_printed_price() -> None:
    # The vendor divided by 1.0027455 and names 1.002746: off by 5e-7, which is 0.0003 dollars.
    ratio, slack = split_ratio(1.002746)
    named = Split(ex_session=date(2015, 4, 27), ratio=ratio, slack=slack)
    (traded,) = as_traded(
        [quote("2015-04-24", divided(565.06, Fraction(10_027_455, 10**7)))], [named]
    )
    assert traded.close == 565.06


@pytest.mark.parametrize(
    ("value", "right"),
    [
        (4.449999809265137, 4.45),  # Hong Kong, three decimals at most
        (12.460000038146973, 12.46),
        (23.9375, 23.9375),  # sixteenths, as quoted until 2001
        (5750.0, 5750.0),
        (0.012299999594688416, 0.0123),
        (600123.4375, 600123.44),  # finer than 32 bits can tell: cents at least
        (3522.5, 3522.5),  # half pence
    ],
)
def test_a_price_is_the_number_with_the_fewest_decimals_that_it_may_stand_for(
    value: float, right: float
) -> None:
    assert printed(value, value * FLOAT32_NOISE) == right


@given(
    cents=st.integers(min_value=1, max_value=8_000_000),
    ratio=st.sampled_from([Fraction(2), Fraction(3), Fraction(7), Fraction(20), Fraction(3, 2),
                           Fraction(1, 10), Fraction(1, 25), Fraction(10_027_455, 10**7)]),
)  # fmt: skip
def test_any_price_in_cents_survives_any_split(cents: int, ratio: Fraction) -> None:
    given_ = quote("2018-01-02", divided(cents / 100, ratio))
    (traded,) = as_traded([given_], [Split(ex_session=date(2018, 1, 3), ratio=ratio)])
    assert traded.close == cents / 100


# ------------------------------------------------------------------------------------ doubts


def test_prices_that_a_split_was_not_applied_to_are_found() -> None:
    # Four for one on the fifth day; the vendor has divided the last two days before it alone.
    quotes = daily([400.0, 404.0, 101.5, 102.0, 101.0, 103.0])
    found = unapplied(quotes, [split("2018-01-05", 4)])
    assert found is not None
    assert found[1] == date(2018, 1, 3)
    # Not applied at all, as on the morning of the split itself.
    assert unapplied(daily([400.0, 404.0, 101.5]), [split("2018-01-03", 4)]) is not None
    # A reverse split likewise.
    assert unapplied(daily([1.0, 1.01, 10.2]), [split("2018-01-03", Fraction(1, 10))]) is not None


def test_prices_that_run_on_through_a_split_are_in_order() -> None:
    quotes = daily([100.0, 101.0, 99.0, 60.0, 61.0])
    assert unapplied(quotes, [split("2018-01-04", 4)]) is None
    # A stock dividend of some per cent is within what a day may bring.
    assert unapplied(quotes, [split("2018-01-04", Fraction(11, 10))]) is None


def test_a_dividend_that_the_adjusted_closes_hold_is_no_doubt() -> None:
    # 2 on a close of 100: earlier adjusted closes are 98 % of the closes.
    quotes = [quote("2018-01-02", 100.0, adjusted=98.0), quote("2018-01-03", 99.0, adjusted=99.0)]
    paid = [Dividend(ex_session=date(2018, 1, 3), amount=2.0)]
    assert list(doubts(quotes, paid)) == []


def test_dividends_that_the_adjusted_closes_contradict_are_named() -> None:
    ex = date(2018, 1, 3)
    held = [quote("2018-01-02", 100.0, adjusted=98.0), quote(ex, 99.0, adjusted=99.0)]
    plain = [quote("2018-01-02", 100.0, adjusted=100.0), quote(ex, 99.0, adjusted=99.0)]
    (mixed,) = doubts(held, [Dividend(ex_session=ex, amount=200.0)])
    assert (mixed.ex_session, mixed.impossible) == (ex, True)
    assert "a major and a minor unit mixed" in mixed.words
    (missing,) = doubts(held, [])
    assert missing.listed == 0
    assert "no dividend is listed for 2018-01-03" in missing.words
    (unheld,) = doubts(plain, [Dividend(ex_session=ex, amount=2.0)])
    assert not unheld.impossible
    assert "adjusted closes hold 0" in unheld.words
