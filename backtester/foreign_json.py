"""JSON from a stranger: read one line of it, or say why it is none that we would write.

Two JSON readers may understand one text differently: which of two equal names counts, what a number
of forty digits is, where nesting ends. A text that leaves room for that is refused here, before
anything of it is believed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final, NoReturn

import orjson

MAX_DEPTH: Final = 100
"""Levels of what may be spelled in any way; none of ours has ten."""
_INT_MIN, _INT_MAX = -(2**63), 2**64 - 1


def canonical_object(text: str) -> dict[str, Any]:
    """Read a JSON object that is written in the one canonical form.

    What is left out of that form is refused with it: a name that comes twice, numbers that do not
    read back the same, spaces, another order of names.

    Raises:
        ValueError: With what is wrong; no word of the text is quoted.
    """
    found = _parsed(text)
    if not isinstance(found, dict):
        raise ValueError("is no JSON object")
    if canonical_text(found) != text:
        raise ValueError("is not in canonical form (a name twice, a number too long, or spaces)")
    return found


def canonical_text(parsed: object) -> str:
    """Return the canonical text of what was parsed from JSON, in which no number can be none.

    Raises:
        ValueError: It is nested too deep to be written.
    """
    try:
        return orjson.dumps(parsed, option=orjson.OPT_SORT_KEYS).decode()
    except TypeError as error:
        # The writer goes 254 levels deep, the parser further.
        raise ValueError("is nested too deep") from error


def plain_object(text: str) -> dict[str, Any]:
    """Read a JSON object in any spelling that all readers understand alike.

    Raises:
        ValueError: No JSON, a name that comes twice, a number beyond 64 bits, or deep nesting.
    """
    _limit_depth(_parsed(text))
    # The second reader is the one that can be asked about names and numbers.
    found = json.loads(
        text, object_pairs_hook=_once, parse_int=_bounded, parse_constant=_no_constant
    )
    if not isinstance(found, dict):
        raise ValueError("is no JSON object")
    return found


def _parsed(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"is no JSON: {error.msg}") from error


def _limit_depth(value: Any) -> None:
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return
    raise ValueError(f"is nested deeper than {MAX_DEPTH} levels")


def _inside(value: Any) -> Iterable[Any]:
    items = value.values() if isinstance(value, dict) else value
    return (item for item in items if isinstance(item, dict | list))


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("has a name twice in one object")
    return found


def _bounded(digits: str) -> int:
    if len(digits) > 20 or not _INT_MIN <= int(digits) <= _INT_MAX:
        raise ValueError("has a number beyond 64 bits")
    return int(digits)


def _no_constant(_: str) -> NoReturn:
    raise ValueError("has a number that is none")
