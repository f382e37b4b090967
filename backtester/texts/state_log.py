"""The full state of one decision as JSON, in the form that readers of the seeds' logs know.

    <folder>/full_states_log_<date>.json

One object with the fields of the state under their own names, debates as objects. Two things
differ from the bare state: `messages` (the last analyst's emptied conversation) is left out, and
the trader's proposal stands also under ``trader_investment_decision``, the name that logs of
TradingAgents give it. Every text is there to the character; what nobody sees and a terminal might
obey stands as an escape of JSON. Equal states give equal bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Final

from backtester.errors import DataError
from backtester.texts.artefacts import (
    State,
    checked_symbol,
    debate_of,
    session_of,
    symbol_of,
    text_of,
    write_text,
)
from backtester.texts.terminal import printable_json

LOGS_FOLDER: Final = "TradingAgentsStrategy_logs"
DEBATES: Final = ("investment_debate_state", "risk_debate_state")
FIELDS: Final = (
    "company_of_interest",
    "trade_date",
    "asset_type",
    "instrument_context",
    "past_context",
    "market_report",
    "sentiment_report",
    "news_report",
    "fundamentals_report",
    "investment_debate_state",
    "investment_plan",
    "trader_investment_plan",
    "trader_investment_decision",
    "risk_debate_state",
    "final_trade_decision",
)
"""The fields in the order of the file; those of further analysts follow, by name."""

_ALIASES: Final = {"trader_investment_decision": "trader_investment_plan"}
_LEFT_OUT: Final = frozenset({"messages"})


def state_log_folder(results_dir: Path, ticker: str) -> Path:
    """Return where a ticker's state logs are kept: ``<results_dir>/<ticker>/<logs folder>``.

    Raises:
        DataError: For a ticker that cannot be one.
    """
    return results_dir / checked_symbol(ticker, "ticker of the state log") / LOGS_FOLDER


def write_state_log(state: State, folder: Path, session: date, *, trial: int = 0) -> Path:
    """Write the state of one cell and return the file's path.

    Args:
        state: `Decision.state`.
        folder: Where the file goes, one for each ticker; made if missing.
        session: The cell's session, which names the file.
        trial: The cell's repeat number; other than 0 it is in the name too.

    Raises:
        DataError: The state is about another date, names no ticker, or a debate does not read.
        UsageError: The folder cannot be written.
    """
    symbol_of(state)
    if session_of(state) != session:
        raise DataError(
            f"state of {text_of(state, 'trade_date')} cannot be logged as {session}: "
            "give the session that it was decided for"
        )
    lane = f"_trial{trial}" if trial else ""
    text = json.dumps(state_document(state), ensure_ascii=False, indent=2, allow_nan=False) + "\n"
    name = f"full_states_log_{session.isoformat()}{lane}.json"
    return write_text(folder / name, printable_json(text))


def state_document(state: State) -> Mapping[str, object]:
    """Return what a state's file holds: its fields in the file's order, debates as mappings.

    Raises:
        DataError: A field holds no text, or a debate does not read.
    """
    further = sorted(set(state) - set(FIELDS) - _LEFT_OUT)
    return {name: _value(state, name) for name in (*FIELDS, *further)}


def _value(state: State, name: str) -> object:
    if name in DEBATES:
        return dict(debate_of(state, name))
    return text_of(state, _ALIASES.get(name, name))
