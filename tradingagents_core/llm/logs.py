"""Keep keys out of what libraries log.

A client library that logs at debug level writes down what a provider answered, headers included,
and a provider can send a key back. Which library logs what changes with its versions, so the key is
blanked where every record of the process is made.
"""

from __future__ import annotations

import logging
import threading
import traceback
from typing import Any

from tradingagents_core.llm.reading import blank

_LOCK = threading.Lock()
_KEYS: list[str] = []


def keep_out_of_logs(key: str) -> None:
    """Blank a key in every log record that this process makes from now on."""
    with _LOCK:
        if key in _KEYS:
            return
        if not _KEYS:
            logging.setLogRecordFactory(_Blanking(logging.getLogRecordFactory()))
        _KEYS.append(key)


class _Blanking:
    """Make records as before, and blank the keys in them."""

    def __init__(self, make: Any) -> None:
        self._make = make

    def __call__(self, *arguments: Any, **named: Any) -> logging.LogRecord:
        record: logging.LogRecord = self._make(*arguments, **named)
        _blank_message(record)
        if record.exc_info and record.exc_info[0] is not None:
            text = "".join(traceback.format_exception(*record.exc_info)).rstrip("\n")
            blanked = _without_keys(text)
            if blanked != text:
                # A formatter takes this text, where there is one, instead of its own.
                record.exc_text = blanked
        return record


def _blank_message(record: logging.LogRecord) -> None:
    try:
        message = record.getMessage()
    except (TypeError, ValueError, KeyError):
        # Arguments that do not fit: the handler says so in its own words.
        return
    blanked = _without_keys(message)
    if blanked != message:
        record.msg, record.args = blanked, ()


def _without_keys(text: str) -> str:
    for key in _KEYS:
        text = blank(text, key)
    return text
