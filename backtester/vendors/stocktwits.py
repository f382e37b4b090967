"""StockTwits: the stream of a symbol, newest first, as far back as it is given."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any, Final

from backtester.vendors.asked import options_of, whole
from backtester.vendors.base import BadResponse, Capture, NoData, VendorSettings, Wanted
from backtester.vendors.moments import known_from
from backtester.vendors.posts import Post, coverage_notes, posts_table
from backtester.vendors.web import fetch, object_of

_ADDRESS: Final = "https://api.stocktwits.com"
_PAGE: Final = "30"
_DEFAULTS: Final[Mapping[str, str]] = {"pages": "40"}


class StockTwits:
    """Capture posts about a symbol; there are recent ones alone, and the capture says so."""

    name = "stocktwits"
    tables = frozenset({"social"})

    def __init__(self, settings: VendorSettings) -> None:
        self._settings = settings
        self._base = (settings.base_url or _ADDRESS).rstrip("/") + "/api/2/streams/symbol"

    def capture(self, wanted: Wanted) -> Capture:
        """Return the posts of the wanted days; see `Vendor.capture` for the errors."""
        options = options_of(self.name, wanted, _DEFAULTS)
        symbol = _symbol(wanted.symbol)
        posts: list[Post] = []
        for page in self._pages(symbol, whole(self.name, options, "pages")):
            posts += page
            oldest = min((post.known_at for post in page if post.known_at), default=None)
            if oldest is not None and oldest.date() < wanted.start:
                break
        return Capture(
            rows={"social": posts_table(self.name, posts, wanted)},
            dropped_undated=sum(1 for post in posts if post.known_at is None),
            notes=coverage_notes(self.name, posts, wanted),
            options={**options, "symbol": symbol},
            source=f"{self._base}/{symbol}.json",
            licence="StockTwits' terms of use",
        )

    def _pages(self, symbol: str, most: int) -> Iterator[list[Post]]:
        before: int | None = None
        for _ in range(most):
            params = {"limit": _PAGE, **({} if before is None else {"max": str(before)})}
            answer = fetch(
                self._settings, f"{self._base}/{symbol}.json", params, also=(HTTPStatus.NOT_FOUND,)
            )
            page = object_of(answer)
            if answer.status == HTTPStatus.NOT_FOUND:
                raise NoData(f"stocktwits has no symbol {symbol}")
            _require_symbol(page, symbol)
            messages, cursor = page.get("messages"), page.get("cursor")
            if not isinstance(messages, list) or not isinstance(cursor, dict):
                raise BadResponse(f"stocktwits sent no list of messages about {symbol}")
            yield [_post(message, symbol) for message in messages]
            older = cursor.get("max")
            if not cursor.get("more") or not messages or not isinstance(older, int):
                return
            if before is not None and older >= before:
                raise BadResponse(f"stocktwits sent the same messages about {symbol} again")
            before = older


def _symbol(word: str) -> str:
    """Return a symbol as the platform writes it: BRK.B for BRK-B, BTC.X for BTC-USD."""
    if word.endswith("-USD"):
        return word.removesuffix("-USD") + ".X"
    return word.replace("-", ".")


def _require_symbol(page: Mapping[str, Any], symbol: str) -> None:
    about = page.get("symbol")
    told = about.get("symbol") if isinstance(about, dict) else None
    if not isinstance(told, str) or told.upper() != symbol.upper():
        raise BadResponse(f"stocktwits was asked for {symbol} and told of {told!r:.40}")


def _post(message: object, symbol: str) -> Post:
    if not isinstance(message, dict) or not isinstance(message.get("id"), int | str):
        raise BadResponse(f"stocktwits sent a message about {symbol} without an id")
    created = message.get("created_at")
    try:
        known_at = known_from(created) if isinstance(created, str) and created else None
    except ValueError as error:
        raise BadResponse(f"stocktwits stamped a message with {created!r:.40}") from error
    entities = message.get("entities")
    mood = entities.get("sentiment") if isinstance(entities, dict) else None
    label = mood.get("basic") if isinstance(mood, dict) else None
    return Post(
        id=str(message["id"]),
        known_at=known_at,
        text=html.unescape(str(message.get("body") or "")),
        label=label.lower() if isinstance(label, str) and label else None,
    )
