"""Undo a vendor's adjustment for splits, so that a bar is what was traded on its day.

Many vendors divide each old price by every split since, and multiply the volumes; dividends are
divided too. With the splits known, that is undone exactly, but for the noise of the vendor's own
numbers: a price kept with 24 bits is off by up to six parts in a hundred million, which is less
than a tick for any ordinary price. So what comes out is taken to the printed price next to it.
The same history captured before and after a split then gives the same bars.

What cannot be undone is looked for: prices that a listed split was not applied to, and dividends
that the vendor's own fully adjusted closes contradict.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from fractions import Fraction
from typing import Final

# Prices that a vendor keeps as 32-bit floats are within half of this of what they stand for; the
# other half is for the arithmetic on the way.
FLOAT32_NOISE: Final = 2.0**-23
# A dividend is given with six decimals, after it was divided.
DIVIDEND_NOISE: Final = 5e-7

_MOST_DIGITS: Final = 6
_LEAST_DIGITS: Final = 2
# Ratios with a smaller denominator are taken for what they are; 1.0027455 is its own decimals.
_SMALL: Final = 1000
_EXACT: Final = 1e-9
# How near a change of price must be to a split's ratio to be the split, and how far before it.
_LIKE_THE_SPLIT: Final = 0.2
_CLEAR_SPLIT: Final = 1.5
_SESSIONS_BEFORE: Final = 20
# Smallest difference between a listed and an implied dividend that is one: parts of the dividend,
# and parts of the price for the noise of two quotients.
_OF_DIVIDEND: Final = 0.05
_OF_PRICE: Final = 1e-5
_UNLISTED: Final = 1e-3


@dataclass(frozen=True, kw_only=True)
class Quote:
    """Hold one day as a vendor gives it, prices in the quote currency.

    Attributes:
        session: Trading day.
        open: Price, adjusted for the splits after the session.
        high: Likewise.
        low: Likewise.
        close: Likewise.
        volume: Shares, adjusted likewise.
        adjusted: Close that is adjusted for dividends too, or None where there is none.
    """

    session: date
    open: float
    high: float
    low: float
    close: float
    volume: float
    adjusted: float | None = None

    @property
    def flaw(self) -> str | None:
        """Why this cannot be a day's trading, in words, or None."""
        prices = (self.open, self.high, self.low, self.close)
        if not all(math.isfinite(price) for price in prices) or not any(prices):
            return "has no prices"
        if min(prices) <= 0:
            return f"has a price of {min(prices):g}"
        if self.high < max(prices) or self.low > min(prices):
            return "has an open or a close outside its high and low"
        return None


@dataclass(frozen=True, kw_only=True)
class Split:
    """Hold a split or a stock dividend.

    Attributes:
        ex_session: First session on the new count of shares.
        ratio: Shares after for each one before.
        slack: Relative error of the ratio, where it was given in few decimals.
    """

    ex_session: date
    ratio: Fraction
    slack: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Dividend:
    """Hold a cash dividend.

    Attributes:
        ex_session: First session without the right.
        amount: Amount a share.
        currency: Currency of the amount where it is not the quote's, else None.
    """

    ex_session: date
    amount: float
    currency: str | None = None


@dataclass(frozen=True, kw_only=True)
class Doubt:
    """Name a dividend that the adjusted closes contradict.

    Attributes:
        ex_session: Its day.
        listed: Amount as listed; 0 where none is.
        implied: Amount that the closes hold.
        close_before: Close of the session before.
    """

    ex_session: date
    listed: float
    implied: float
    close_before: float

    @property
    def impossible(self) -> bool:
        """Whether more would have been paid than the share was worth."""
        return self.listed >= self.close_before

    @property
    def words(self) -> str:
        """What is wrong, for a reader."""
        if self.listed == 0:
            return (
                f"no dividend is listed for {self.ex_session}, but the vendor's adjusted closes "
                f"hold one of about {self.implied:.4g}"
            )
        held = f"about {self.implied:.4g}" if self.implied > _OF_PRICE * self.close_before else "0"
        words = (
            f"the dividend of {self.listed:.6g} on {self.ex_session} is doubtful: the vendor's "
            f"adjusted closes hold {held}"
        )
        if self.implied > 0 and 50 <= self.listed / self.implied <= 200:
            words += " (a major and a minor unit mixed?)"
        return words


def split_ratio(given: float) -> tuple[Fraction, float]:
    """Return the ratio that a vendor's number stands for, and its relative error.

    A number next to a fraction of small integers is that fraction; any other is the decimals that
    it is written with, which may have been cut.

    Raises:
        ValueError: It is not positive and finite.
    """
    if not 0 < given < float("inf"):
        raise ValueError(f"{given} is no ratio of a split")
    simple = Fraction(given).limit_denominator(_SMALL)
    if simple > 0 and abs(float(simple) - given) <= _EXACT * given:
        return simple, 0.0
    written = Decimal(repr(given))
    exponent = written.as_tuple().exponent
    digits = -exponent if isinstance(exponent, int) else 0
    return Fraction(written), 0.5 * 10.0**-digits / given


def later_factor(splits: Sequence[Split], session: date) -> Fraction:
    """Return what a price of a session was divided by: the product of the splits after it."""
    factor = Fraction(1)
    for split in splits:
        if split.ex_session > session:
            factor *= split.ratio
    return factor


def printed(value: float, noise: float) -> float:
    """Return the number with the fewest decimals within the noise of a value.

    Where no such number has as few decimals as the noise can tell apart, the value is rounded to
    those, and never to fewer than two.

    Args:
        value: Price or amount.
        noise: How far it may be from what was printed.
    """
    digits = 0
    while digits <= _MOST_DIGITS and noise <= 0.25 * 10.0**-digits:
        near = round(value, digits)
        if abs(near - value) <= noise:
            return near
        digits += 1
    return round(value, max(digits - 1, _LEAST_DIGITS))


def as_traded(
    quotes: Sequence[Quote], splits: Sequence[Split], *, noise: float = FLOAT32_NOISE
) -> tuple[Quote, ...]:
    """Return quotes with the splits after each session undone; `adjusted` is left as it is.

    Args:
        quotes: As the vendor gives them, in any order.
        splits: Every split that the vendor has applied, those after the last quote too.
        noise: Relative error of the vendor's prices.
    """
    return tuple(_as_traded(quote, splits, noise) for quote in quotes)


def _as_traded(quote: Quote, splits: Sequence[Split], noise: float) -> Quote:
    factor = later_factor(splits, quote.session)
    noise += sum(split.slack for split in splits if split.ex_session > quote.session)

    def undone(price: float) -> float:
        value = price * factor.numerator / factor.denominator
        return printed(value, value * noise)

    return replace(
        quote,
        open=undone(quote.open),
        high=undone(quote.high),
        low=undone(quote.low),
        close=undone(quote.close),
        volume=round(Fraction(quote.volume) / factor),
    )


def as_paid(dividend: Dividend, splits: Sequence[Split]) -> Dividend:
    """Return a dividend as paid on its ex session, with the splits after it undone.

    A split on the same day is not undone: the amount is per share of the new count, and a reader
    applies the split first.
    """
    factor = later_factor(splits, dividend.ex_session)
    slack = sum(split.slack for split in splits if split.ex_session > dividend.ex_session)
    value = dividend.amount * factor.numerator / factor.denominator
    noise = value * (FLOAT32_NOISE + slack) + DIVIDEND_NOISE * float(factor)
    # Where the noise could hide a real decimal the amount stays as it came.
    amount = printed(value, noise) if factor != 1 else dividend.amount
    return replace(dividend, amount=amount)


def unapplied(quotes: Sequence[Quote], splits: Sequence[Split]) -> tuple[Split, date] | None:
    """Return a listed split that some prices before it were not adjusted for, with the day.

    Adjusted prices run on through a split. Where they change by about its ratio on the ex session,
    or within twenty sessions before it, the older ones are on the old count of shares.

    Args:
        quotes: As the vendor gives them, oldest first.
        splits: As listed.
    """
    days = [quote.session for quote in quotes]
    for split in splits:
        ratio = float(split.ratio)
        if 1 / _CLEAR_SPLIT < ratio < _CLEAR_SPLIT:
            continue
        end = sum(day <= split.ex_session for day in days)
        for at in range(max(1, end - _SESSIONS_BEFORE), end):
            change = quotes[at - 1].close / quotes[at].close
            if abs(change / ratio - 1) <= _LIKE_THE_SPLIT:
                return split, days[at]
    return None


def doubts(quotes: Sequence[Quote], dividends: Sequence[Dividend]) -> Iterator[Doubt]:
    """Yield the dividends that the vendor's own adjusted closes contradict, oldest first.

    A dividend D on an ex session lowers each earlier adjusted close by 1 - D / C, C the close
    before. So D = C * (1 - r_before / r_ex), r being adjusted / close.

    Args:
        quotes: As the vendor gives them, oldest first; days without an adjusted close say nothing.
        dividends: As listed, on the vendor's own count of shares; those in another currency than
            the quotes are not judged, nor is what the closes hold on their days.
    """
    foreign = {dividend.ex_session for dividend in dividends if dividend.currency is not None}
    listed: dict[date, float] = {}
    for dividend in dividends:
        if dividend.currency is not None:
            continue
        listed[dividend.ex_session] = listed.get(dividend.ex_session, 0.0) + dividend.amount
    for before, here in itertools.pairwise(quotes):
        if before.adjusted is None or here.adjusted is None:
            continue
        days = [day for day in listed if before.session < day <= here.session]
        due = sum(listed[day] for day in days)
        ratio = (before.adjusted / before.close) / (here.adjusted / here.close)
        implied = before.close * (1 - ratio)
        allowed = _OF_DIVIDEND * due + _OF_PRICE * before.close
        if due == 0:
            allowed = _UNLISTED * before.close
        mixed = any(before.session < day <= here.session for day in foreign)
        if mixed or abs(implied - due) <= allowed:
            continue
        # The day is the dividend's own: the bar of that day may be missing.
        for day in days or [here.session]:
            yield Doubt(
                ex_session=day,
                listed=listed.get(day, 0.0),
                implied=implied,
                close_before=before.close,
            )
