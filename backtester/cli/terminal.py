"""Text from outside made safe to print; imports nothing, for error lines need it at once."""

from __future__ import annotations


def printable(text: str) -> str:
    """Show control characters as escapes, so that no text from outside commands a terminal."""
    return "".join(
        char if char.isprintable() or char in "\n\t" else char.encode("unicode_escape").decode()
        for char in text
    )
