"""Why a call has the key that it has: its parts, who asked it, and the call that is most like it.

It answers both questions that people have of a key: what is behind it, and why a replay found
nothing under it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from backtester.errors import DataError, UsageError
from backtester.records import CellRecord, LessonRecord
from backtester.replies.answers import CacheRecord
from backtester.replies.cache import ReplyCache
from backtester.replies.nearest import difference, likeness, request_lines
from backtester.runs.journal import Ledger, read_ledger

_PREFIX: Final = re.compile(r"[0-9a-f]{1,64}")
_KEY_LENGTH: Final = 64
_MISSED: Final = re.compile(r"\(key ([0-9a-f]{64})\)")
_SHOWN: Final = 5


@dataclass(frozen=True, kw_only=True)
class Use:
    """Name a place from which a key was asked.

    Attributes:
        where: Run, memory or cassette whose journal tells of it.
        cell: ``ticker|session|trial``, with ``(lesson)`` where a lesson asked.
        node: Node, empty where the journal tells of a miss alone.
        index: Position of the call within the node.
        attempt: 0, then 1.. for repairs.
        ended: Finish reason, ``outcome:<kind>``, or ``missed``.
        request: Key document where the journal has it, else empty.
        diff: Difference that a replay found, else empty.
    """

    where: str
    cell: str
    node: str
    index: int
    attempt: int
    ended: str
    request: str = ""
    diff: str = ""

    def __str__(self) -> str:
        """Return one line."""
        call = f", node {self.node}, call {self.index}, attempt {self.attempt}" if self.node else ""
        return f"{self.where}: {self.cell}{call} ({self.ended})"


@dataclass(frozen=True, kw_only=True)
class Neighbour:
    """Hold the recorded call of the same node that is most like the one asked about."""

    key: str
    likeness: float
    diff: str


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """Hold what is known of a key.

    Attributes:
        key: The whole key.
        record: The recorded answer, or None.
        request: Key document, empty where nobody kept it.
        node: Node that asked.
        uses: Who asked, as journals tell.
        nearest: The call most like it, or None where the node has no other.
    """

    key: str
    record: CacheRecord | None
    request: str
    node: str
    uses: tuple[Use, ...]
    nearest: Neighbour | None

    def lines(self) -> Iterator[str]:
        """Yield it for a screen."""
        yield f"key         {self.key}"
        yield f"recorded    {_recorded(self.record)}"
        yield f"node        {self.node or 'unknown'}"
        yield from _parts(self.request)
        for use in self.uses[:_SHOWN]:
            yield f"asked by    {use}"
        if len(self.uses) > _SHOWN:
            yield f"            and {len(self.uses) - _SHOWN} more"
        if not self.uses:
            yield "asked by    no journal tells"
        if self.nearest is not None:
            yield f"nearest     {self.nearest.key}, {self.nearest.likeness:.1%} of the lines alike"
            yield from self.nearest.diff.split("\n")
        elif self.request:
            yield "nearest     none: no other call of this node is recorded here"
        else:
            yield from _told_by_replays(self.uses)


def explain(prefix: str, cache: ReplyCache, journals: Mapping[str, Path]) -> Explanation:
    """Say what is behind a key.

    Args:
        prefix: Key, or a front of it that fits one key alone.
        cache: Recorded answers.
        journals: Name -> journal, in which calls are looked for.

    Raises:
        UsageError: It is no key, or fits several.
        DataError: Nobody knows it, or a journal or record is damaged.
    """
    prefix = prefix.strip().lower()
    if not _PREFIX.fullmatch(prefix):
        raise UsageError("a key is up to 64 digits 0-9 and a-f: copy it from a message or a table")
    uses = [found for name, path in journals.items() for found in _uses(name, path, prefix)]
    known = set(_starting(cache.keys(), prefix)) | {key for key, _ in uses}
    if len(known) > 1:
        some = ", ".join(sorted(known)[:_SHOWN])
        raise UsageError(f"{prefix} is the front of {len(known)} keys ({some}): give more of it")
    if not known:
        several = "" if len(journals) == 1 else "s"
        raise DataError(
            f"no call with a key {prefix}{'' if len(prefix) == _KEY_LENGTH else '...'} is known in "
            f"{cache.folder} or in {len(journals)} journal{several}: name the cassette or cache "
            "that has it"
        )
    (key,) = known
    record = cache.get(key)
    places = tuple(use for _, use in uses)
    request = record.request if record else next((u.request for u in places if u.request), "")
    node = record.node if record else next((use.node for use in places if use.node), "")
    return Explanation(
        key=key,
        record=record,
        request=request,
        node=node,
        uses=places,
        nearest=_neighbour(cache, key, node, request) if request else None,
    )


def _starting(keys: Iterable[str], prefix: str) -> Iterator[str]:
    return (key for key in keys if key.startswith(prefix))


def _uses(name: str, path: Path, prefix: str) -> Iterator[tuple[str, Use]]:
    if prefix.encode() not in path.read_bytes():
        return
    ledger: Ledger = read_ledger(path)
    cells = [*ledger.superseded, *(cell for _, cell in sorted(ledger.cells.items()))]
    for cell in cells:
        yield from _uses_of(name, str(cell.key), cell, prefix)
        for key in _MISSED.findall(cell.error or ""):
            if key.startswith(prefix):
                yield key, _missed(name, str(cell.key), cell.error_detail)
    for key, lesson in sorted(ledger.lessons.items()):
        yield from _uses_of(name, f"{key} (lesson)", lesson, prefix)
        for missed in _MISSED.findall(lesson.error or ""):
            if missed.startswith(prefix):
                yield missed, _missed(name, f"{key} (lesson)", "")


def _missed(name: str, cell: str, diff: str) -> Use:
    return Use(where=name, cell=cell, node="", index=0, attempt=0, ended="missed", diff=diff)


def _uses_of(
    name: str, label: str, row: CellRecord | LessonRecord, prefix: str
) -> Iterator[tuple[str, Use]]:
    requests = {(o.node, o.index, o.attempt, o.key): o.request for o in row.outcomes}
    for call in row.calls:
        if call.key.startswith(prefix):
            place = (call.node, call.index, call.attempt, call.key)
            yield (
                call.key,
                Use(
                    where=name,
                    cell=label,
                    node=call.node,
                    index=call.index,
                    attempt=call.attempt,
                    ended=call.finish_reason,
                    request=requests.get(place, ""),
                ),
            )


def _neighbour(cache: ReplyCache, key: str, node: str, request: str) -> Neighbour | None:
    asked = request_lines(request)
    asked_set = frozenset(asked)
    best: tuple[float, str, list[str]] | None = None
    for other in cache.records():
        if other.key == key or other.node != node:
            continue
        lines = request_lines(other.request)
        score = likeness(frozenset(lines), asked_set)
        if best is None or score > best[0]:
            best = (score, other.key, lines)
    if best is None:
        return None
    return Neighbour(key=best[1], likeness=best[0], diff=difference(best[2], asked))


# ------------------------------------------------------------------------------------ for a screen


def _recorded(record: CacheRecord | None) -> str:
    if record is None:
        return "no answer"
    reply, usage = record.reply, record.reply.usage
    return (
        f"{record.recorded_at}, {record.latency_s:.2f} s; reply {reply.finish_reason}, "
        f"{len(reply.text)} characters, {len(reply.tool_calls)} tool calls, tokens "
        f"{_known(usage.input_tokens)} in, {_known(usage.output_tokens)} out"
    )


def _known(count: int | None) -> str:
    return "unknown" if count is None else str(count)


def _parts(request: str) -> Iterator[str]:
    document = _object(request)
    if not document:
        yield "request     nobody kept it: an answer would, and so would an outcome in a journal"
        return
    body = document.pop("body", None)
    for name, value in sorted(document.items()):
        yield f"{name:<11} {_text(value)}"
    for name, value in sorted(body.items()) if isinstance(body, dict) else ():
        yield f"body        {_sized(name, value)}"
        if name in ("messages", "input") and isinstance(value, list):
            yield from _messages(value)


def _messages(messages: Sequence[Any]) -> Iterator[str]:
    for number, message in enumerate(messages):
        role = message.get("role", message.get("type")) if isinstance(message, dict) else None
        yield f"              {number} {role}: {len(_text(message))} characters"


def _sized(name: str, value: Any) -> str:
    text = _text(value)
    if isinstance(value, list | dict):
        return f"{name}: {len(value)} items, {len(text)} characters"
    return f"{name}: {text}" if len(text) <= _KEY_LENGTH else f"{name}: {len(text)} characters"


def _object(text: str) -> dict[str, Any]:
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def _text(value: Any) -> str:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


def _told_by_replays(uses: Iterable[Use]) -> Iterator[str]:
    diff = next((use.diff for use in uses if use.diff), "")
    yield "nearest     unknown without the request" + (
        "; the replay that missed it found:" if diff else "; a replay that misses it shows it"
    )
    if diff:
        yield from diff.split("\n")
