"""Show how a request differs from another: what a replay miss prints instead of guessing.

A key document is turned into lines that a person can read, one setting or one line of a message
each. Likeness is the share of lines that two documents have in common.
"""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from backtester.texts.terminal import printable

MAX_LINES = 60
MAX_WIDTH = 160


def request_lines(request: str) -> list[str]:
    """Return a key document as lines: settings, then tools, then messages.

    Control characters are spelled out, so that a prompt cannot steer a terminal.
    """
    document = _object(orjson.loads(request))
    body = _object(document.pop("body", {}))
    lines = [f"{name}: {_json(value)}" for name, value in sorted(document.items())]
    messages = body.pop("messages", None) or body.pop("input", None) or []
    for name, value in sorted(body.items()):
        items = value if isinstance(value, list) else [value]
        lines.extend(f"{name}: {_json(item)}" for item in items)
    for number, message in enumerate(messages if isinstance(messages, list) else [messages]):
        lines.extend(_message_lines(number, message))
    return [printable(line, keep="") for line in lines]


def likeness(lines: frozenset[str], others: frozenset[str]) -> float:
    """Return the share of lines that two requests have in common, 0 to 1."""
    union = len(lines | others)
    return len(lines & others) / union if union else 1.0


def difference(recorded: Iterable[str], asked: Iterable[str]) -> str:
    """Return a unified diff of two requests' lines, cut to a screen.

    Of a long line only the neighbourhood of the first change is shown.
    """
    changes = list(
        difflib.unified_diff(
            list(recorded), list(asked), "nearest recorded", "asked for", n=1, lineterm=""
        )
    )
    shown = [
        _shortened(line, _change_starts(changes, number))
        for number, line in enumerate(changes[:MAX_LINES])
    ]
    if len(changes) > MAX_LINES:
        shown.append(f"... {len(changes) - MAX_LINES} more lines")
    return "\n".join(shown)


def _change_starts(changes: list[str], number: int) -> int:
    """Return the column where a changed line leaves its counterpart, 0 where it has none."""
    line = changes[number]
    step = {"-": 1, "+": -1}.get(line[:1], 0)
    other = changes[number + step] if step and 0 <= number + step < len(changes) else ""
    if not step or other[:1] not in ("-", "+") or other[:1] == line[:1]:
        return 0
    pairs = zip(line[1:], other[1:], strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


def _shortened(line: str, column: int) -> str:
    if len(line) <= MAX_WIDTH:
        return line
    start = max(1, column - MAX_WIDTH // 4)
    text = line[start : start + MAX_WIDTH]
    before = "…" if start > 1 else ""
    after = "…" if start + MAX_WIDTH < len(line) else ""
    return f"{line[0]}{before}{text}{after}"


def _message_lines(number: int, message: Any) -> list[str]:
    if not isinstance(message, Mapping):
        return [f"message {number}: {_json(message)}"]
    role = message.get("role", message.get("type", ""))
    lines = [f"message {number} {role}:"]
    content = message.get("content")
    if isinstance(content, str):
        lines.extend(f"  {line}" for line in content.split("\n"))
    elif content is not None:
        lines.append(f"  {_json(content)}")
    rest = {name: value for name, value in message.items() if name not in ("role", "content")}
    lines.extend(f"  {name}: {_json(value)}" for name, value in sorted(rest.items()))
    return lines


def _object(value: Any) -> dict[str, Any]:
    # A record from elsewhere may hold any JSON.
    return value if isinstance(value, dict) else {"": value}


def _json(value: Any) -> str:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
