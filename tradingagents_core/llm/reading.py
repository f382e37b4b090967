"""Read a provider's JSON without trusting it: every type is checked, every text made sound.

What the readers of all wire forms share; a form's own fields are read where the form is known.
"""

from __future__ import annotations

import base64
import functools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson

from tradingagents_core.llm.keys import canonical_json
from tradingagents_core.protocols import ToolCall

# No call has so many tokens: a larger count is a fault of the server, and known to nobody.
MAX_TOKENS = 10**12
# Levels of lists and objects in an answer; the protocols need a handful.
MAX_DEPTH = 100
# A shorter key protects nothing ("x", "none" and "EMPTY" are what servers without keys are given),
# and blanking it would change words of replies.
MIN_SECRET = 6
BLANKED = "[API key]"
# Signs that base64 in addresses, and JSON, write otherwise.
_IN_BASE64 = {"+": r"(?:[+-]|%2[Bb])", "/": r"(?:\\*+[/_]|%2[Ff])"}


class MalformedReply(ValueError):
    """Report a provider's answer that has not the form of its protocol."""


def json_object(raw: str) -> Mapping[str, Any]:
    """Read the JSON text of an answer.

    Raises:
        MalformedReply: It is no JSON object, is nested absurdly deep, or reports an error.
    """
    try:
        # The standard parser takes half a surrogate pair, as some servers send it; orjson refuses.
        document = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise MalformedReply(f"the answer is no JSON ({error}): {raw[:200]}") from error
    if is_deep(document):
        raise MalformedReply(f"the answer is nested deeper than {MAX_DEPTH} levels: {raw[:200]}")
    if not isinstance(document, dict):
        raise MalformedReply(f"the answer is no JSON object: {raw[:200]}")
    if document.get("error"):
        raise MalformedReply(f"the answer reports an error: {as_text(document['error'])[:500]}")
    return document


def is_deep(document: object) -> bool:
    """Say whether writing a value could exceed the depth that some JSON writer takes."""
    level = [document]
    for _ in range(MAX_DEPTH):
        level = [item for value in level for item in _members(value)]
        if not level:
            return False
    return True


def _members(value: object) -> Iterable[object]:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list) else ()


def as_text(value: object) -> str:
    """Return what a field says: its text, nothing for none, and JSON for another type."""
    if isinstance(value, str):
        return clean(value)
    return "" if value is None else clean(json.dumps(value, ensure_ascii=False, default=str))


def as_list(value: object) -> Sequence[Any]:
    """Return a list, or an empty one for another type."""
    return value if isinstance(value, list) else ()


def as_mapping(value: object) -> Mapping[str, Any]:
    """Return an object, or an empty one for another type."""
    return value if isinstance(value, Mapping) else {}


def kept_json(items: object) -> str | None:
    """Return items as canonical JSON, or None where there are none or JSON cannot hold them."""
    if not items:
        return None
    try:
        return canonical_json(orjson.loads(clean(json.dumps(items, ensure_ascii=False))))
    except ValueError:
        return None


def tool_call(call_id: object, function: Mapping[str, Any]) -> ToolCall:
    """Return a call of a function, given with its ``name`` and ``arguments``."""
    arguments = function.get("arguments")
    # Some servers send an object where the protocol has its text, or nothing at all.
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, default=str)
    args = object_or_none(text or "{}")
    return ToolCall(
        id=as_text(call_id),
        name=as_text(function.get("name")),
        args=clean(text) if args is None else canonical_json(args),
    )


def with_ids(calls: Sequence[ToolCall]) -> tuple[ToolCall, ...]:
    """Give an id to calls whose server sent none, or the same one twice in a message."""
    used: set[str] = set()
    named: list[ToolCall] = []
    for index, call in enumerate(calls):
        call_id = call.id if call.id and call.id not in used else f"call_{index}_{call.id}"
        used.add(call_id)
        named.append(replace(call, id=call_id))
    return tuple(named)


def object_or_none(text: str) -> dict[str, Any] | None:
    """Return the JSON object of a text that can also be written again, else None."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(value, dict):
        return None
    # Each level takes a bracket of its own, so most texts need no look at what they hold.
    shallow = text.count("{") + text.count("[") < MAX_DEPTH
    return value if shallow or not is_deep(value) else None


def moved_to(status: int, headers: Mapping[str, str]) -> str:
    """Return the words for an answer that points elsewhere, or nothing for another answer."""
    place = headers.get("location", "")
    if not 300 <= status < 400 or not place:
        return ""
    return f"it points to {place}, and no redirect is followed: set base_url to where it is"


def token_count(value: object) -> int | None:
    """Return a count of tokens, or None where it can be none."""
    sound = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_TOKENS
    return value if sound and isinstance(value, int) else None


# ------------------------------------------------------------------------------------- sound text


def blank(text: str, secret: str | None) -> str:
    r"""Return a text with a secret blanked out, however it is spelt.

    Backslashes before a character and ``\u`` escapes count as the character, at any depth of JSON
    inside JSON, so that the text of an answer can be blanked before it is read. So do percent signs
    of an address; and the base64 of a longer text is blanked where it holds the secret.
    """
    if not secret or len(secret) < MIN_SECRET:
        return text
    return _pattern(secret).sub(BLANKED, text)


def clean(text: str) -> str:
    """Return valid Unicode: half a surrogate pair, which JSON can spell, becomes U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


@functools.lru_cache(maxsize=64)
def _pattern(secret: str) -> re.Pattern[str]:
    return re.compile(f"{_spellings(secret)}|{_in_base64(secret)}")


def _spellings(secret: str) -> str:
    """Return the pattern of all spellings of a secret."""
    # A match starts at the first of several backslashes and never gives one back, so that a text
    # of nothing else is read once.
    pattern = [r"(?<!\\)"]
    for run in re.findall(r"\\+|[^\\]", secret):
        if run[0] != "\\":
            pattern.append(rf"\\*+(?:{re.escape(run)}|(?<=\\){_escape(run)}|{_percent(run)})")
        else:
            count = len(run)
            # Escaping doubles backslashes. One that is left over belongs to what follows.
            written = "|".join(rf"\\{{{count * times}}}" for times in (4, 2, 1))
            spelt = rf"\\++{_escape(run[0])}|{_percent(run[0])}"
            pattern.append(rf"(?:(?:{spelt}){{{count}}}|{written})")
    return "".join(pattern)


def _escape(char: str) -> str:
    """Return the pattern of a character's hexadecimal escape, without its backslash."""
    units = char.encode("utf-16-be", "surrogatepass")
    words = [units[at : at + 2].hex() for at in range(0, len(units), 2)]
    return r"\\++".join(f"u(?i:{word})" for word in words)


def _percent(char: str) -> str:
    """Return the pattern of a character in an address, also of one that is part of another."""
    return "".join(f"%(?:25)*(?i:{byte:02x})" for byte in char.encode("utf-8", "surrogatepass"))


def _in_base64(secret: str) -> str:
    """Return the pattern of what a secret looks like inside base64, at each of its three phases.

    A sign at either end that also depends on the neighbours is left out.
    """
    found = []
    for before in range(3):
        data = bytes(before) + secret.encode("utf-8", "surrogatepass")
        whole = base64.b64encode(data).decode()[-(-before * 8 // 6) : len(data) * 8 // 6]
        signs = (_IN_BASE64.get(sign, sign) for sign in whole)
        found.append("".join(signs))
    return "|".join(found)
