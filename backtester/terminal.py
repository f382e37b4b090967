"""Text from outside made safe to print; imports nothing, for error lines need it at once."""

from __future__ import annotations


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
