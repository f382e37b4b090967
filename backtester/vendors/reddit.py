"""Reddit: posts of chosen communities that name a symbol, newest first, as far back as found.

A search by words finds posts about other things; one that does not name the symbol is left out. A
text that was edited is known from its last edit on, and a removed one is not there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from http import HTTPStatus
from typing import Any, Final

from backtester.vendors.asked import listed, options_of, whole
from backtester.vendors.base import BadResponse, Capture, NoData, VendorSettings, Wanted
from backtester.vendors.moments import from_epoch
from backtester.vendors.posts import Post, coverage_notes, posts_table
from backtester.vendors.web import fetch, object_of

_ADDRESS: Final = "https://www.reddit.com"
# The site refuses the names of common clients.
_AGENT: Final = "python:tradingagents-backtester:1.0 (research)"
_PAGE: Final = "100"
_DEFAULTS: Final[Mapping[str, str]] = {
    "subreddits": "wallstreetbets,stocks,investing",
    "pages": "5",
}
_GONE: Final = frozenset({"[removed]", "[deleted]"})
# A symbol this short is a word or a letter of its own, unless a dollar stands before it.
_SHORT: Final = 2
_NAME: Final = re.compile(r"[A-Za-z0-9_]+")


class Reddit:
    """Capture posts that name a symbol; there are recent ones alone, and the capture says so."""

    name = "reddit"
    tables = frozenset({"social"})

    def __init__(self, settings: VendorSettings) -> None:
        self._settings = settings
        self._base = (settings.base_url or _ADDRESS).rstrip("/")

    def capture(self, wanted: Wanted) -> Capture:
        """Return the posts of the wanted days; see `Vendor.capture` for the errors."""
        options = options_of(self.name, wanted, _DEFAULTS)
        pages = whole(self.name, options, "pages")
        word = _word(wanted.symbol)
        found: dict[str, Post] = {}
        gone: list[str] = []
        for place in listed(options, "subreddits"):
            if not _NAME.fullmatch(place):
                raise BadResponse(f"{place!r:.40} is no name of a subreddit: write it without r/")
            try:
                # A post can stand in several communities, and is one all the same.
                found.update((post.id, post) for post in self._posts(place, word, wanted, pages))
            except NoData:
                gone.append(place)
        posts = list(found.values())
        naming = [post for post in posts if _names(post.text, word)]
        notes = [*coverage_notes(self.name, naming, wanted)]
        notes += [f"there is no subreddit {place}" for place in gone]
        if len(naming) < len(posts):
            notes.append(f"{len(posts) - len(naming)} posts that do not name {word} were left out")
        return Capture(
            rows={"social": posts_table(self.name, naming, wanted)},
            dropped_undated=sum(1 for post in naming if post.known_at is None),
            notes=tuple(notes),
            options={**options, "q": word, "sort": "new", "t": "all"},
            source=f"{self._base}/r/*/search.json?q={word}",
            licence="Reddit's terms of use; posts belong to their authors",
        )

    def _posts(self, place: str, word: str, wanted: Wanted, most: int) -> Iterator[Post]:
        after = ""
        headers = {} if self._settings.user_agent else {"user-agent": _AGENT}
        for _ in range(most):
            params = {
                "q": word, "restrict_sr": "1", "sort": "new", "t": "all", "limit": _PAGE,
                "raw_json": "1",
                **({"after": after} if after else {}),
            }  # fmt: skip
            answer = fetch(
                self._settings,
                f"{self._base}/r/{place}/search.json",
                params,
                headers,
                also=(HTTPStatus.NOT_FOUND,),
            )
            if answer.status == HTTPStatus.NOT_FOUND:
                raise NoData(f"reddit has no subreddit {place}")
            listing = object_of(answer).get("data")
            children = listing.get("children") if isinstance(listing, dict) else None
            if not isinstance(listing, dict) or not isinstance(children, list):
                raise BadResponse(f"reddit sent no listing of {place}")
            posts = [_post(child, place) for child in children]
            yield from (post for post in posts if post is not None)
            stamps = [post.known_at for post in posts if post is not None and post.known_at]
            older = listing.get("after")
            if not children or not isinstance(older, str) or older == after:
                return
            if stamps and min(stamps).date() < wanted.start:
                return
            after = older


def _word(symbol: str) -> str:
    return symbol.removesuffix("-USD").replace("-", ".").upper()


def _names(text: str, word: str) -> bool:
    """Say whether a text names a symbol as people write one: in capitals, or with a dollar."""
    bare = re.escape(word)
    mark = r"\$" if len(word) <= _SHORT else r"\$?"
    cashtag = re.search(rf"\${bare}(?![\w.]*\w)", text, re.IGNORECASE)
    return bool(cashtag or re.search(rf"(?<![\w$.]){mark}{bare}(?!\w)", text))


def _post(child: object, place: str) -> Post | None:
    """Return a post, or None for what was removed or is none."""
    data = child.get("data") if isinstance(child, dict) else None
    if not isinstance(child, dict) or not isinstance(data, dict):
        raise BadResponse(f"reddit sent an entry of {place} that is none")
    if child.get("kind") != "t3":
        return None
    name = data.get("name")
    if not isinstance(name, str) or not name:
        raise BadResponse(f"reddit sent a post of {place} without a name")
    body = str(data.get("selftext") or "")
    if data.get("removed_by_category") or body in _GONE:
        return None
    title = str(data.get("title") or "")
    text = f"{title} | {body}" if body else title
    return Post(id=name, known_at=_known_at(data, place), text=text)


def _known_at(data: Mapping[str, Any], place: str) -> datetime | None:
    """Return the later of creation and last edit: the text that was captured is no older."""
    created, edited = data.get("created_utc"), data.get("edited")
    stamps = [each for each in (created, edited) if isinstance(each, int | float) and each > 1]
    if not isinstance(created, int | float) or not stamps:
        return None
    try:
        return from_epoch(int(max(stamps)))
    except ValueError as error:
        raise BadResponse(f"reddit stamped a post of {place} with {created!r:.40}") from error
