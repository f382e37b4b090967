"""The tool of prediction markets: what each was trading at by the cutoff, from its price history.

A market without a price history at that time is not there: today's odds say how it ended.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

from tradingagents_core.errors import DataUnavailable
from tradingagents_core.protocols import Row, View
from tradingagents_core.tools.base import Tool, ToolLimits, cut_notes, days_back, rows_from
from tradingagents_core.tools.inputs import MarketOddsArguments
from tradingagents_core.tools.text import MISSING, instant_text, one_line, quoted

_TABLE = "prediction_markets"
_MARKETS = 6
_WEEK = timedelta(days=7)
# A market that has not traded for so long had ended: what it settled at is no forecast.
_SILENCE = timedelta(days=3)
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, kw_only=True)
class _Market:
    """Hold the ticks of one market, by outcome, oldest first."""

    name: str
    question: str
    ticks: dict[str, list[Row]]

    @property
    def newest(self) -> datetime:
        """Instant of the newest tick of any outcome."""
        return max(rows[-1].known_at for rows in self.ticks.values())


def get_prediction_markets(view: View, arguments: MarketOddsArguments, limits: ToolLimits) -> str:
    """Print the odds of the markets about a topic, those that fit best first."""
    del limits
    view.require(_TABLE)
    end = arguments.curr_date
    day = view.session if end is None else min(end, view.session)
    rows = rows_from(view, _TABLE, start=days_back(day, 2 * _WEEK.days), end=end)
    if not rows and not view.rows(_TABLE, end=end, last=1):
        raise DataUnavailable(f"no prediction market is on record up to {day}")
    since = _as_of(view, end) - _SILENCE
    markets = [market for market in _markets(rows) if market.newest >= since]
    fitting = _about(arguments.topic, markets)
    header = (
        f"# Prediction markets about {quoted(arguments.topic)}, as traded by {day}, "
        f"seen on {view.session}"
    )
    notes = cut_notes(view, curr_date=end)
    shown = fitting[: arguments.limit or _MARKETS]
    if len(shown) < len(fitting):
        notes.append(f"# Only {len(shown)} of {len(fitting)} markets are shown")
    if not fitting:
        others = "; ".join(one_line(market.question, 100) for market in markets[:_MARKETS])
        notes.append("# None is on record" + (f"; open then: {others}" if others else ""))
    return "\n".join([header, *notes, *(_line(market) for market in shown)])


def _as_of(view: View, end: date | None) -> datetime:
    if end is None:
        return view.cutoff
    return min(view.cutoff, datetime.combine(end + timedelta(days=1), time(), UTC))


def _markets(rows: Iterable[Row]) -> list[_Market]:
    found: dict[str, _Market] = {}
    for row in rows:
        name = str(row.fields["market"])
        question = str(row.fields["question"])
        market = found.setdefault(name, _Market(name=name, question=question, ticks={}))
        market.ticks.setdefault(str(row.fields["outcome"]), []).append(row)
    return [found[name] for name in sorted(found)]


def _about(topic: str, markets: Sequence[_Market]) -> list[_Market]:
    """Return the markets that hold half of the topic's words or more, most words first."""
    wanted = _words(topic)
    fits = [(len(wanted & _words(market.question)), market) for market in markets]
    fits = [(count, market) for count, market in fits if count and 2 * count >= len(wanted)]
    return [market for _, market in sorted(fits, key=lambda fit: (-fit[0], fit[1].name))]


def _words(text: str) -> set[str]:
    # "cuts" is asked for and "cut" is written, or the other way round.
    return {word.removesuffix("s") for word in _WORD.findall(text.casefold())}


def _line(market: _Market) -> str:
    outcomes = " | ".join(
        f"{one_line(outcome, 60)} {_odds(market.ticks[outcome])}" for outcome in _order(market)
    )
    return f"- {one_line(market.question, 200)} | {outcomes}"


def _order(market: _Market) -> list[str]:
    """Return the outcomes, the likeliest first."""
    return sorted(market.ticks, key=lambda name: (-_probability(market.ticks[name][-1]), name))


def _odds(ticks: Sequence[Row]) -> str:
    newest = ticks[-1]
    earlier = [row for row in ticks if row.known_at <= newest.known_at - _WEEK]
    before = _percent(_probability(earlier[-1])) if earlier else MISSING
    now = _percent(_probability(newest))
    return f"{now} ({instant_text(newest.known_at)}; a week before: {before})"


def _probability(row: Row) -> float:
    value = row.fields["probability"]
    if not isinstance(value, float):
        raise TypeError(f"probability {value!r} of table {_TABLE} is no number")
    return value


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.1f}%"


PREDICTION_MARKETS = Tool(
    name="get_prediction_markets",
    description="Odds that prediction markets gave on the simulated date, by topic.",
    args=MarketOddsArguments,
    run=get_prediction_markets,
)
