"""Requests that a recorded run never made: what an audit compares, and how it says the difference.

`AskedCache` answers like the cache that it opens, and keeps what it could not answer. `change_of`
compares the calls of a cell or lesson with the recorded ones and names the first difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Final

from backtester.leaks.poison import CANARY, canaries_in
from backtester.records import CallRecord
from backtester.replies.cache import Nearest, ReplyCache
from backtester.replies.database import AnswerStore, ReadableStore
from backtester.replies.nearest import request_lines
from backtester.texts.terminal import printable
from tradingagents_core.protocols import Reply

_WIDTH: Final = 90
_BEFORE: Final = 30


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Hold a request without a record."""

    key: str
    request: str


@dataclass(frozen=True, kw_only=True)
class Change:
    """Say where the calls of a cell left the record.

    Attributes:
        node: Node and call.
        words: The first line that differs, before and after.
        table: Table of the first canary word in the request, else empty.
        column: Its column.
    """

    node: str
    words: str
    table: str = ""
    column: str = ""


class AskedCache(ReplyCache):
    """Answer from a cache, and keep the requests that it has no answer to."""

    def __init__(self, folder: Path, store: ReadableStore, *, writable: AnswerStore | None) -> None:
        super().__init__(folder, store, writable=writable)
        self.missed: list[Asked] = []

    def reply(self, key: str, request: str) -> Reply | None:
        """Return the recorded reply to a request, or None and keep the request."""
        found = super().reply(key, request)
        if found is None:
            self.missed.append(Asked(key=key, request=request))
        return found

    def nearest(self, node: str, request: str) -> Nearest | None:
        """Find nothing: an audit knows which recorded request to compare with."""
        return None


def change_of(
    recorded: Sequence[CallRecord],
    now: Sequence[CallRecord],
    missed: Sequence[Asked],
    cache: ReplyCache,
) -> Change | None:
    """Return the first difference between recorded calls and those made now, or None.

    Args:
        recorded: Calls of the record.
        now: Calls that were answered.
        missed: Requests that had no answer, in order.
        cache: Holds the recorded requests.
    """
    if _sites(recorded) == _sites(now):
        return None
    same = 0
    for before, after in zip(_sites(recorded), _sites(now), strict=False):
        if before != after:
            break
        same += 1
    before_call = recorded[same] if same < len(recorded) else None
    after_call = now[same] if same < len(now) else None
    place = before_call or after_call
    node = f"{place.node} call {place.index}" if place else ""
    if after_call is not None:
        after_request = _request(cache, after_call.key)
    else:
        after_request = missed[0].request if missed else ""
    places = canaries_in(after_request)
    return Change(
        node=node,
        words=difference(_request(cache, before_call.key) if before_call else "", after_request),
        table=places[0].table if places else "",
        column=places[0].column if places else "",
    )


def difference(before: str, after: str) -> str:
    """Say in which line two requests differ, that with a canary word first."""
    if not after:
        return "a call is not made any more"
    if not before:
        return "a call is made that the record does not have"
    pairs = zip_longest(request_lines(before), request_lines(after), fillvalue="")
    return line_difference([pair for pair in pairs if pair[0] != pair[1]])


def line_difference(changed: Sequence[tuple[str, str]]) -> str:
    """Say how the most telling of some changed lines changed."""
    if not changed:
        return "only its settings changed"
    old, new = next((pair for pair in changed if CANARY in pair[1]), changed[0])
    start = next((at for at, (one, two) in enumerate(zip(old, new, strict=False)) if one != two), 0)
    start = max(0, min(start, len(new)) - _BEFORE)
    return f"{_cut(old, start)} became {_cut(new, start)}"


def _cut(line: str, start: int) -> str:
    part = line[start : start + _WIDTH].strip()
    before, after = "…" if start else "", "…" if start + _WIDTH < len(line) else ""
    return f'"{before}{printable(part, keep="")}{after}"'


def _sites(calls: Sequence[CallRecord]) -> list[tuple[str, int, int, str]]:
    return [(call.node, call.index, call.attempt, call.key) for call in calls]


def _request(cache: ReplyCache, key: str) -> str:
    # An attempt that ended without an answer is not in the cache.
    record = cache.get(key)
    return "" if record is None else record.request
