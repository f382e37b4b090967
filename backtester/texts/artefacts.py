"""Files for people and other programs: names from checked parts, content written whole.

What a cell leaves behind besides its journal line (reports, state log, decision log) is made from
the texts of a finished state. Nothing here is ever read back by this program.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import cast

from backtester.errors import DataError, UsageError
from backtester.snapshots.manifest import write_whole
from backtester.spellings import check_ticker

State = Mapping[str, object]
"""State field -> text; a debate may be its canonical JSON or the mapping itself."""


def checked_symbol(symbol: str, where: str) -> str:
    """Return a symbol that may stand in a file name or on a line with separators.

    Args:
        symbol: As written.
        where: What it was read from, for the message.

    Raises:
        DataError: It is no ticker, or one that a file system reads as a place.
    """
    try:
        check_ticker(symbol)
    except ValueError as error:
        raise DataError(f"{where}: {error}") from error
    if symbol.startswith(".") or symbol.endswith("."):
        raise DataError(f"{where}: {symbol!r} begins or ends with a dot, which names no file")
    return symbol


def symbol_of(state: State) -> str:
    """Return the symbol that a state is about.

    Raises:
        DataError: There is none, or it is no ticker.
    """
    return checked_symbol(text_of(state, "company_of_interest"), "state field company_of_interest")


def session_of(state: State) -> date:
    """Return the session that a state was decided for.

    Raises:
        DataError: There is none, or it is no date.
    """
    text = text_of(state, "trade_date")
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise DataError(f"state field trade_date: {text!r} is no date like 2018-06-29") from error


def text_of(state: State, name: str) -> str:
    """Return a text field of a state, empty where nobody has written it.

    Raises:
        DataError: It holds something else.
    """
    value = state.get(name, "")
    if not isinstance(value, str):
        raise DataError(f"state field {name} holds a {type(value).__name__}, not a text")
    return value


def debate_of(state: State, name: str) -> Mapping[str, object]:
    """Return a debate of a state, empty where there is none.

    Raises:
        DataError: It is neither a mapping nor the JSON of one.
    """
    value = state.get(name) or {}
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise DataError(f"state field {name} is no JSON: {error}") from error
    if not isinstance(value, Mapping):
        raise DataError(f"state field {name} holds a {type(value).__name__}, not a debate")
    return cast("Mapping[str, object]", value)


def write_text(path: Path, text: str) -> Path:
    """Write a file in one step, with the folders above it, and return its path.

    Raises:
        UsageError: The place cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text.encode("utf-8"))
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written ({error.strerror}): name another folder"
        ) from error
    return path
