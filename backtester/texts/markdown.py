"""Texts of models inside documents of ours: they may say anything and structure nothing.

A report quotes what agents wrote under headings of its own. Whatever such a text holds (headings,
a fence that never closes, the start of a comment, control characters), the document around it
keeps its headings, and all of them stay visible.
"""

from __future__ import annotations

import re
from typing import Final

SHALLOWEST: Final = 4
"""Level of the highest heading that a quoted text may have; ours are above it."""

# C0 and C1 controls but tab and newline; what turns the direction of writing; halves of pairs.
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
CONTAINERS: Final = r"(?:[ \t]*(?:>|[*+-](?=[ \t])|\d{1,9}[.)](?=[ \t])))*[ \t]*"
"""Pattern of the marks of quotations and lists, in which further blocks may be nested."""

_HEADING = re.compile(rf"^({CONTAINERS})(#{{1,6}})(?=[ \t]|$)")
_UNDERLINE = re.compile(rf"^({CONTAINERS})(=+|-+)[ \t]*$")
_FENCE = re.compile(rf"^({CONTAINERS})(`{{3,}}|~{{3,}})(.*)$")
# What begins a tag or a picture and has no backslash before it, or an even number of them.
_TAG = re.compile(r"(?<!\\)((?:\\\\)*)(<(?=[A-Za-z/!?])|!(?=\[))")


def plain_text(text: str) -> str:
    r"""Return a text with ``\n`` as its only line end and nothing that steers a terminal.

    Other line ends become ``\n``; each control character, mark that turns the direction of
    writing, or half of a surrogate pair becomes U+FFFD. Lines are stripped of nothing.
    """
    return _UNPRINTABLE.sub("�", "\n".join(text.splitlines()))


def nested_text(text: str) -> str:
    """Return a text that can be quoted under a heading of level 3 without leaving its place.

    Headings sink to level `SHALLOWEST` or below, underlined ones are none any more, tags are
    shown and not obeyed, a picture (which a reader's program would fetch) is a link, and a fence
    that is still open at the end is closed there. Code between fences at the left margin is left
    as it is. The reading is CommonMark's.
    """
    lines: list[str] = []
    fence = ""
    for line in plain_text(text).split("\n"):
        if fence:
            fence = "" if _closes(line, fence) else fence
            lines.append(line)
            continue
        fence = _opened(line)
        lines.append(line if fence else _tamed(line))
    if fence:
        lines.append(fence)
    return "\n".join(lines).strip("\n")


def _opened(line: str) -> str:
    """Return the fence that a line opens at the left margin, or an empty text."""
    match = _FENCE.match(line)
    if match is None or match[1] or (match[2][0] == "`" and "`" in match[3]):
        return ""
    return match[2]


def _closes(line: str, fence: str) -> bool:
    return re.match(rf"^ {{0,3}}{fence[0]}{{{len(fence)},}}[ \t]*$", line) is not None


def _tamed(line: str) -> str:
    """Return a line outside code that opens no block whose end could lie outside the text."""
    line = _TAG.sub(r"\1\\\2", line)
    line = _FENCE.sub(r"\1\\\2\3", line)
    line = _HEADING.sub(_sunk, line)
    return _UNDERLINE.sub(_no_underline, line)


def _sunk(match: re.Match[str]) -> str:
    return match[1] + "#" * min(len(match[2]) + SHALLOWEST - 1, 6)


def _no_underline(match: re.Match[str]) -> str:
    """Keep a rule a rule; a line of dashes under words would make a heading of them."""
    marks = match[2]
    return match[1] + ("***" if marks.startswith("---") else "\\" + marks)
