"""Text from outside made safe to print; imports nothing, for error lines need it at once."""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Final

LONGEST_WORD: Final = 240
"""Characters of one word in an error line; a longer one is a slip of the hand, not a name."""

_LONG_WORD: Final = re.compile(rf"\S{{{LONGEST_WORD},}}[^\s:;,]")
# Letters, marks, numbers, signs and blanks; all else is invisible or commands something.
_SEEN: Final = "LMNPS"


def printable(text: str, *, keep: str = "\n\t") -> str:
    """Show control characters as escapes, so that no text from outside commands a terminal.

    Args:
        text: Any text.
        keep: Control characters that stay; none for what has to stay on its line.
    """
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in keep else char.encode("unicode_escape").decode()
        for char in text
    )


def shortened(line: str) -> str:
    """Cut words that are too long to be told whole, and say how long they are.

    Args:
        line: A message, which may quote an argument as it was given.
    """
    return _LONG_WORD.sub(
        lambda word: f"{word[0][: LONGEST_WORD // 4]}... ({len(word[0])} characters)", line
    )


def printable_json(text: str) -> str:
    r"""Show what no reader sees as JSON's own escapes, so that JSON text keeps what it says.

    Control characters, marks that turn the direction of writing, line ends that are none in JSON,
    halves of pairs and the like become ``\uXXXX``; whoever reads the JSON gets them as they were.

    Args:
        text: Text of a JSON document, in which such characters can only stand inside strings.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if _is_seen(char) else json.dumps(char)[1:-1] for char in text)


def _is_seen(char: str) -> bool:
    kind = unicodedata.category(char)
    return char == "\n" or kind[0] in _SEEN or kind == "Zs"
