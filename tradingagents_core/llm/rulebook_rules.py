"""The published rules of the rulebook model: pure functions from figures to points and ratings.

Every threshold is the textbook value of its indicator and was fixed before any return was looked
at. Nothing here is fitted, and nothing here reads a prompt: `rulebook_prompt` does that.

Points (a missing figure gives none, and is named):

    trend       close v. 200-day SMA, close v. 50-day SMA, 50-day v. 200-day SMA: +1 above, -1 below
    momentum    MACD histogram, 63-session return: +1 positive, -1 negative
    oscillator  14-day RSI: +1 below 30 (oversold), -1 above 70 (overbought)
    drawdown    20 % or more below the 52-week high (bear-market convention): -1

The sum is read symmetrically: 4 and more Buy, 2 and 3 Overweight, -1 to 1 Hold, -2 and -3
Underweight, -4 and less Sell. Two rules may then move the rating one tier toward Hold: a 21-day
standard deviation of daily returns above 3 %, and lessons that went against this very direction.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tradingagents_core.ratings import TIERS

DIRECTIONS: Mapping[str, int] = {
    "Sell": -1,
    "Underweight": -1,
    "Hold": 0,
    "Overweight": 1,
    "Buy": 1,
}

FIGURE_KEYS = (
    "latest_session",
    "open",
    "high",
    "low",
    "close",
    "volume",
    "close_50_sma",
    "close_200_sma",
    "close_10_ema",
    "macd",
    "macds",
    "macdh",
    "rsi",
    "boll",
    "boll_ub",
    "boll_lb",
    "atr",
    "vwma",
    "mfi",
    "return_21d",
    "return_63d",
    "high_52w",
    "low_52w",
    "drawdown_from_52w_high",
    "volatility_21d",
)

RSI_OVERSOLD = 30.0
RSI_OVERBOUGHT = 70.0
BEAR_MARKET_DRAWDOWN = -0.20
HIGH_DAILY_VOLATILITY = 0.03
STRONG_SCORE = 4
MILD_SCORE = 2
LESSONS_READ = 3
LESSONS_NEEDED = 2
STOP_DISTANCE_ATR = 2.0

# Keys that carry a number and nothing else are matched, so that a sentence with a colon in a
# report can never be taken for a figure.
_FIGURE_LINE = re.compile(
    r"^(" + "|".join(FIGURE_KEYS) + r"): (n/a|[-+0-9][0-9.eE+-]*)[ \t]*$", re.MULTILINE
)


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Hold the figures of one verified snapshot.

    Attributes:
        texts: Key -> the text as the prompt gave it (``n/a`` included), in the prompt's order.
        values: Key -> number, for those texts that are finite numbers.
    """

    texts: Mapping[str, str]
    values: Mapping[str, float]

    def number(self, key: str) -> float | None:
        """Return the figure as a number, or None where it is missing or ``n/a``."""
        return self.values.get(key)

    def shown(self, key: str) -> str:
        """Return the figure's own text, ``n/a`` where the prompt did not give it."""
        return self.texts.get(key, "n/a")


NO_FIGURES = Figures(texts={}, values={})


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Hold what one rule made of the figures.

    Attributes:
        rule: ``trend, momentum, oscillator`` or ``drawdown``.
        points: -1, 0 or +1.
        text: The comparison in words, quoting the figures as they were given.
    """

    rule: str
    points: int
    text: str


@dataclass(frozen=True, kw_only=True)
class Assessment:
    """Hold the findings on one set of figures, their sum and its tier.

    Attributes:
        findings: In the order of the published table.
        missing: Keys that a rule wanted and did not get; they count zero.
        score: Sum of the points, -7 to 6.
        rating: One of the five tiers.
    """

    findings: tuple[Finding, ...]
    missing: tuple[str, ...]
    score: int
    rating: str

    @property
    def supporting(self) -> tuple[Finding, ...]:
        """The findings with a positive point."""
        return tuple(finding for finding in self.findings if finding.points > 0)

    @property
    def opposing(self) -> tuple[Finding, ...]:
        """The findings with a negative point."""
        return tuple(finding for finding in self.findings if finding.points < 0)


@dataclass(frozen=True, kw_only=True)
class PastCall:
    """Hold one resolved decision on the same ticker, as a lesson shows it.

    Attributes:
        rating: One of the five tiers.
        alpha: Alpha in any unit, for its sign alone counts; None where there is none.
    """

    rating: str
    alpha: float | None


@dataclass(frozen=True, kw_only=True)
class Adjustment:
    """Hold the rating after a rule that may lower conviction.

    Attributes:
        rating: The rating from here on.
        applied: Whether the rule's condition held and moved the rating.
        reason: What the rule saw, in words.
    """

    rating: str
    applied: bool
    reason: str


def read_figures(text: str) -> Figures:
    """Read the ``key: value`` lines of a verified snapshot, or of a report that repeats them.

    Args:
        text: Lines of text; lines that are no known figure are left alone.

    Returns:
        The figures. A key that comes twice keeps its first value. A number that is not finite
        counts as missing.
    """
    texts: dict[str, str] = {}
    values: dict[str, float] = {}
    for key, shown in _FIGURE_LINE.findall(text):
        if key in texts:
            continue
        texts[key] = shown
        value = finite(shown)
        if value is not None:
            values[key] = value
    return Figures(texts=texts, values=values)


def assess(figures: Figures) -> Assessment:
    """Give the points of the four scored rules and the tier of their sum."""
    missing: list[str] = []
    findings: list[Finding] = []
    findings += _trend(figures, missing)
    findings += _momentum(figures, missing)
    findings += _oscillator(figures, missing)
    findings += _drawdown(figures, missing)
    score = sum(finding.points for finding in findings)
    return Assessment(
        findings=tuple(findings),
        missing=tuple(dict.fromkeys(missing)),
        score=score,
        rating=tier_at(score),
    )


def tier_at(score: int) -> str:
    """Return the tier of a score; the thresholds are the same on both sides of zero."""
    if score >= STRONG_SCORE:
        return "Buy"
    if score >= MILD_SCORE:
        return "Overweight"
    if score <= -STRONG_SCORE:
        return "Sell"
    if score <= -MILD_SCORE:
        return "Underweight"
    return "Hold"


def toward_hold(rating: str) -> str:
    """Return the next tier on the way to Hold; Hold stays Hold."""
    return TIERS[TIERS.index(rating) - DIRECTIONS[rating]]


def volatility_rule(rating: str, figures: Figures) -> Adjustment:
    """Move a rating one tier toward Hold where daily volatility is above 3 %.

    Args:
        rating: One of the five tiers.
        figures: ``volatility_21d`` is the sample standard deviation of 21 daily returns, as a
            fraction and not annualised.

    Returns:
        The rating to go on with; unchanged where the figure is missing.
    """
    shown = figures.shown("volatility_21d")
    value = figures.number("volatility_21d")
    if value is None:
        return Adjustment(
            rating=rating, applied=False, reason="volatility_21d is n/a, so no limit is set by it"
        )
    if value <= HIGH_DAILY_VOLATILITY:
        return Adjustment(
            rating=rating, applied=False, reason=f"volatility_21d {shown} is not above 0.03"
        )
    lowered = toward_hold(rating)
    reason = f"volatility_21d {shown} is above 0.03: " + _step(rating, lowered)
    return Adjustment(rating=lowered, applied=lowered != rating, reason=reason)


def lesson_rule(rating: str, newest_first: Sequence[PastCall]) -> Adjustment:
    """Move a rating one tier toward Hold where such calls have lately been wrong.

    Of the three newest resolved calls on this ticker, those in the direction intended now and
    with an alpha are looked at. Where there are two or more, and the alpha times the direction
    of every one was negative, conviction is lowered.

    Args:
        rating: One of the five tiers.
        newest_first: Resolved calls on this ticker; only the first three are read.

    Returns:
        The rating to go on with.
    """
    direction = DIRECTIONS[rating]
    recent = newest_first[:LESSONS_READ]
    if direction == 0:
        return Adjustment(
            rating=rating, applied=False, reason="Hold takes no side that a lesson could speak to"
        )
    alphas = [
        call.alpha
        for call in recent
        if call.alpha is not None and DIRECTIONS.get(call.rating) == direction
    ]
    wrong = sum(1 for alpha in alphas if alpha * direction < 0)
    seen = (
        f"{len(alphas)} of the last {len(recent)} resolved calls took this side, "
        f"{wrong} of them with alpha against it"
    )
    if len(alphas) >= LESSONS_NEEDED and wrong == len(alphas):
        lowered = toward_hold(rating)
        return Adjustment(rating=lowered, applied=True, reason=f"{seen}: " + _step(rating, lowered))
    return Adjustment(rating=rating, applied=False, reason=seen)


def stop_loss(figures: Figures) -> float | None:
    """Return the close less two average true ranges, or None where that is not above zero."""
    close, atr = figures.number("close"), figures.number("atr")
    if close is None or atr is None:
        return None
    level = close - STOP_DISTANCE_ATR * atr
    return level if level > 0 else None


def six_digits(value: float) -> float:
    """Round to six significant digits, so that no platform's last bit is ever printed."""
    return float(f"{value:.6g}")


def finite(shown: str) -> float | None:
    """Read a finite number, or None where the text is none."""
    try:
        value = float(shown)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _step(rating: str, lowered: str) -> str:
    if rating == lowered:
        return f"{rating} stays {rating}"
    return f"{rating} becomes {lowered}"


def _pair(figures: Figures, left: str, right: str, missing: list[str]) -> Finding | None:
    """Compare two figures: +1 where the left one is above, -1 where it is below."""
    above, below = figures.number(left), figures.number(right)
    if above is None or below is None:
        missing += [key for key in (left, right) if figures.number(key) is None]
        return None
    points = (above > below) - (above < below)
    word = {1: "above", 0: "equal to", -1: "below"}[points]
    text = f"{left} {figures.shown(left)} is {word} {right} {figures.shown(right)}"
    return Finding(rule="trend", points=points, text=text)


def _trend(figures: Figures, missing: list[str]) -> list[Finding]:
    pairs = (
        _pair(figures, "close", "close_200_sma", missing),
        _pair(figures, "close", "close_50_sma", missing),
        _pair(figures, "close_50_sma", "close_200_sma", missing),
    )
    return [finding for finding in pairs if finding is not None]


def _momentum(figures: Figures, missing: list[str]) -> list[Finding]:
    findings = []
    for key in ("macdh", "return_63d"):
        value = figures.number(key)
        if value is None:
            missing.append(key)
            continue
        points = (value > 0) - (value < 0)
        word = {1: "positive", 0: "zero", -1: "negative"}[points]
        text = f"{key} {figures.shown(key)} is {word}"
        findings.append(Finding(rule="momentum", points=points, text=text))
    return findings


def _oscillator(figures: Figures, missing: list[str]) -> list[Finding]:
    value = figures.number("rsi")
    if value is None:
        missing.append("rsi")
        return []
    shown = figures.shown("rsi")
    if value < RSI_OVERSOLD:
        return [Finding(rule="oscillator", points=1, text=f"rsi {shown} is below 30, oversold")]
    if value > RSI_OVERBOUGHT:
        return [Finding(rule="oscillator", points=-1, text=f"rsi {shown} is above 70, overbought")]
    return [Finding(rule="oscillator", points=0, text=f"rsi {shown} is between 30 and 70")]


def _drawdown(figures: Figures, missing: list[str]) -> list[Finding]:
    key = "drawdown_from_52w_high"
    value = figures.number(key)
    if value is None:
        missing.append(key)
        return []
    shown = figures.shown(key)
    if value <= BEAR_MARKET_DRAWDOWN:
        return [
            Finding(rule="drawdown", points=-1, text=f"{key} {shown} is a fall of 20 % or more")
        ]
    return [Finding(rule="drawdown", points=0, text=f"{key} {shown} is a fall of less than 20 %")]
