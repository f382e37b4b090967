"""Polymarket: what the outcomes of a market were trading at, tick by tick.

Only the price history is stored: today's odds, volume and result of a market tell how it ended. A
subject stands for the markets that a search finds today, so which markets are here depends on what
became popular; a market named by its slug does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

import orjson
import pyarrow as pa

from backtester.schema import TABLES
from backtester.vendors.asked import options_of, whole
from backtester.vendors.base import BadResponse, Capture, NoData, VendorSettings, Wanted
from backtester.vendors.moments import from_epoch, from_text
from backtester.vendors.web import fetch, json_of, object_of

_CATALOGUE: Final = "https://gamma-api.polymarket.com"
_PRICES: Final = "https://clob.polymarket.com"
# Longer spans are refused.
_SPAN: Final = timedelta(days=14)
# Markets that have ended answer for nothing finer than twelve hours.
_DEFAULTS: Final[Mapping[str, str]] = {"fidelity_minutes": "720", "markets": "10"}


@dataclass(frozen=True, kw_only=True)
class _Market:
    """Hold one market: its outcomes with the tokens whose prices are their odds."""

    id: str
    question: str
    tokens: tuple[tuple[str, str], ...]
    opened: datetime | None
    closed: datetime | None


class Polymarket:
    """Capture markets; the symbol is a market's slug or id, an event's slug, or a subject."""

    name = "polymarket"
    tables = frozenset({"prediction_markets"})

    def __init__(self, settings: VendorSettings) -> None:
        self._settings = settings
        self._catalogue = (settings.base_url or _CATALOGUE).rstrip("/")
        self._prices = (settings.base_url or _PRICES).rstrip("/")

    def capture(self, wanted: Wanted) -> Capture:
        """Return the ticks of the wanted days; see `Vendor.capture` for the errors."""
        options = options_of(self.name, wanted, _DEFAULTS)
        fidelity = whole(self.name, options, "fidelity_minutes")
        markets, notes = self._markets(wanted.symbol, whole(self.name, options, "markets"))
        rows: list[dict[str, Any]] = []
        undated = 0
        for market in markets:
            before = len(rows)
            for outcome, token in market.tokens:
                for known_at, price in self._ticks(market, token, wanted, fidelity):
                    if known_at is None:
                        undated += 1
                    else:
                        rows.append(_row(market, outcome, known_at, price))
            if len(rows) == before:
                notes.append(f"market {market.id} has no price in these days: {market.question}")
        if not rows:
            raise NoData(
                f"polymarket has no price history of {wanted.symbol!r} from {wanted.start} to "
                f"{wanted.end}; today's odds are not stored"
            )
        return Capture(
            rows={
                "prediction_markets": pa.Table.from_pylist(
                    rows, schema=TABLES["prediction_markets"].arrow
                )
            },
            dropped_undated=undated,
            notes=tuple(notes),
            options={**options, "subject": wanted.symbol},
            source=f"{self._prices}/prices-history",
            licence="Polymarket's terms of use",
        )

    # -- which markets

    def _markets(self, subject: str, most: int) -> tuple[list[_Market], list[str]]:
        if subject.isdecimal():
            found = self._listed("/markets", {"id": subject})
        else:
            found = self._listed("/markets", {"slug": subject})
            found = found or self._in_events(self._listed("/events", {"slug": subject}))
        notes: list[str] = []
        if not found:
            query = {"q": subject, "limit_per_type": str(most), "keep_closed_markets": "1"}
            answer = object_of(fetch(self._settings, f"{self._catalogue}/public-search", query))
            found = self._in_events(_objects(answer.get("events") or [], "events"))[:most]
            notes.append(
                f"the markets about {subject!r} are those that a search found at capture: what "
                "became popular since decided which"
            )
        if not found:
            raise NoData(f"polymarket has no market about {subject!r}")
        return [_market(each) for each in found], notes

    def _listed(self, path: str, params: Mapping[str, str]) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        # A list is of open ones, or of ended ones; both have a history.
        for closed in ("false", "true"):
            query = {**params, "closed": closed}
            answer = json_of(fetch(self._settings, f"{self._catalogue}{path}", query))
            found += _objects(answer, path.strip("/"))
        names = {str(each.get("id")): each for each in found}
        return [names[name] for name in sorted(names)]

    def _in_events(self, events: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [
            market for event in events for market in _objects(event.get("markets") or [], "markets")
        ]

    # -- their prices

    def _ticks(
        self, market: _Market, token: str, wanted: Wanted, fidelity: int
    ) -> Iterator[tuple[datetime | None, float]]:
        since = _midnight(wanted.start)
        until = min(_midnight(wanted.end + timedelta(days=1)), wanted.captured_at.astimezone(UTC))
        first = since if market.opened is None else max(since, market.opened)
        # A market trades on for a while after its stated end, until it is settled.
        last = until if market.closed is None else min(until, market.closed + _SPAN)
        seen: set[datetime] = set()
        while first < last:
            stop = min(first + _SPAN, last)
            for known_at, price in self._span(token, first, stop, fidelity):
                if known_at is None:
                    yield None, price
                elif since <= known_at < until and known_at not in seen:
                    seen.add(known_at)
                    yield known_at, price
            first = stop

    def _span(
        self, token: str, first: datetime, stop: datetime, fidelity: int
    ) -> Iterator[tuple[datetime | None, float]]:
        params = {
            "market": token,
            "startTs": str(int(first.timestamp())),
            "endTs": str(int(stop.timestamp())),
            "fidelity": str(fidelity),
        }
        answer = object_of(fetch(self._settings, f"{self._prices}/prices-history", params))
        for tick in _objects(answer.get("history"), "history"):
            yield _tick(tick)


def _objects(value: object, what: str) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise BadResponse(f"polymarket sent no list of {what}")
    return value


def _market(row: Mapping[str, Any]) -> _Market:
    name, question = row.get("id"), row.get("question")
    outcomes, tokens = _words(row.get("outcomes")), _words(row.get("clobTokenIds"))
    if not isinstance(name, str) or not isinstance(question, str) or len(outcomes) != len(tokens):
        raise BadResponse(f"polymarket sent a market without id, question or tokens: {name!r:.40}")
    return _Market(
        id=name,
        question=question,
        tokens=tuple(zip(outcomes, tokens, strict=True)),
        opened=_moment(row.get("createdAt") or row.get("startDate")),
        closed=_moment(row.get("closedTime") or row.get("endDate")) if row.get("closed") else None,
    )


def _words(value: object) -> tuple[str, ...]:
    """Return a list of words, which the catalogue writes as JSON within a text."""
    try:
        words = orjson.loads(value) if isinstance(value, str) else value
    except orjson.JSONDecodeError:
        words = None
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        return ()
    return tuple(words)


def _moment(value: object) -> datetime | None:
    if not isinstance(value, str) or not value:
        return None
    try:
        read = from_text(value, "UTC")
    except ValueError:
        # It bounds the questions that are asked, and nothing that is stored.
        return None
    return read if isinstance(read, datetime) else _midnight(read)


def _tick(tick: Mapping[str, Any]) -> tuple[datetime | None, float]:
    price, stamp = tick.get("p"), tick.get("t")
    if not isinstance(price, int | float) or not 0 <= price <= 1:
        raise BadResponse(f"polymarket sent the price {price!r:.40}, which is no probability")
    if stamp is None:
        return None, float(price)
    try:
        return from_epoch(int(stamp)), float(price)
    except (TypeError, ValueError) as error:
        raise BadResponse(f"polymarket stamped a price with {stamp!r:.40}") from error


def _row(market: _Market, outcome: str, known_at: datetime, price: float) -> dict[str, Any]:
    return {
        "market": market.id,
        "question": market.question,
        "outcome": outcome,
        "known_at": known_at,
        "probability": price,
        # What was traded by then is not told; the total of today is none of the past's business.
        "volume": None,
        "currency": None,
    }


def _midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)
