"""The tools about companies and economies: what frozen rows give, and a mark on all they do not.

A value that only today's sources could give (a market capitalisation, trailing ratios, odds) is
withheld and never made up. Where the snapshot has no such table its reason is the answer; where it
has one that this release cannot print, the answer says that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tradingagents_core.errors import DataUnavailable
from tradingagents_core.indicators import YEAR, summarize
from tradingagents_core.protocols import Bars, View
from tradingagents_core.tools.base import Tool, ToolLimits, cut_notes, look_up, title
from tradingagents_core.tools.inputs import (
    CompanyArguments,
    MacroArguments,
    MarketOddsArguments,
    StatementArguments,
)
from tradingagents_core.tools.text import count_text, day_text, figure_text, price_text

STATEMENTS = "statements"
QUARTER = 63
_AVERAGES = ("close_50_sma", "close_200_sma")
# What data vendors print beside the prices, and what each would need that a snapshot may lack.
WITHHELD = (
    "market_cap",
    "trailing_eps",
    "trailing_pe",
    "forward_pe",
    "price_to_book",
    "dividend_yield",
    "profit_margin",
    "return_on_equity",
    "debt_to_equity",
)


def get_fundamentals(view: View, arguments: CompanyArguments, limits: ToolLimits) -> str:
    """Print what prices alone tell of a company, and mark what would need its statements."""
    identity = look_up(view, arguments.ticker)
    if not identity.is_company:
        raise DataUnavailable(
            f"{identity.symbol} is of the kind {identity.asset_type}: no company stands behind it"
        )
    end = arguments.curr_date
    bars = view.bars(identity.instrument, end=end, last=YEAR)
    if len(bars) == 0:
        raise DataUnavailable(f"no session of {identity.symbol} lies before {end}")
    averages = view.indicators(identity.instrument, _AVERAGES, end=end, last=1)
    reason = _why_withheld(view, identity.instrument)
    traded = f"{identity.exchange}, in {identity.currency}"
    newest = day_text(bars.sessions[-1])
    lines = [
        f"# Key figures of {title(identity)}, {traded}, seen on {view.session}",
        f"# From daily prices up to {newest}; adjusted for splits up to this date",
        *_price_figures(bars),
        *(f"{name}: {figure_text(averages.values[name][-1].item())}" for name in _AVERAGES),
        f"average_volume_{QUARTER}d: {_average_volume(bars)}",
        f"# Withheld: {reason}",
        *(f"{name}: withheld" for name in WITHHELD),
        *cut_notes(view, curr_date=end),
    ]
    return "\n".join(lines)


def _price_figures(bars: Bars) -> Iterator[str]:
    figures = summarize(bars)
    yield f"close: {price_text(bars.close[-1].item())}"
    yield f"high_52w: {price_text(figures['high_52w'])}"
    yield f"low_52w: {price_text(figures['low_52w'])}"
    yield f"drawdown_from_52w_high: {figure_text(figures['drawdown_from_52w_high'])}"


def _average_volume(bars: Bars) -> str:
    if len(bars) < QUARTER:
        return count_text(np.nan)
    return count_text(float(bars.volume[-QUARTER:].sum()) / QUARTER)


def _why_withheld(view: View, instrument: str) -> str:
    try:
        view.require(STATEMENTS, instrument)
    except DataUnavailable as error:
        return str(error)
    return _not_printed(STATEMENTS)


def _not_printed(table: str) -> str:
    return f"the snapshot has the table {table}, but this release cannot print it"


def _withhold(table: str) -> Callable[[View, Any, ToolLimits], str]:
    def run(view: View, arguments: Any, limits: ToolLimits) -> str:
        symbol = getattr(arguments, "ticker", None)
        instrument = look_up(view, symbol).instrument if symbol is not None else None
        view.require(table, instrument)
        raise DataUnavailable(f"{_not_printed(table)}: withheld")

    return run


FUNDAMENTALS = Tool(
    name="get_fundamentals",
    description=(
        "Key figures of a company as of the simulated date: 52-week range, averages and, from "
        "statements filed by then, value and ratios. What cannot be rebuilt is marked as withheld."
    ),
    args=CompanyArguments,
    run=get_fundamentals,
)
BALANCE_SHEET = Tool(
    name="get_balance_sheet",
    description="Balance sheets of a company as filed up to the simulated date.",
    args=StatementArguments,
    run=_withhold(STATEMENTS),
)
CASHFLOW = Tool(
    name="get_cashflow",
    description="Cash-flow statements of a company as filed up to the simulated date.",
    args=StatementArguments,
    run=_withhold(STATEMENTS),
)
INCOME_STATEMENT = Tool(
    name="get_income_statement",
    description="Income statements of a company as filed up to the simulated date.",
    args=StatementArguments,
    run=_withhold(STATEMENTS),
)
INSIDER_TRANSACTIONS = Tool(
    name="get_insider_transactions",
    description="Trades by a company's insiders that were filed up to the simulated date.",
    args=CompanyArguments,
    run=_withhold("insider"),
)
MACRO_INDICATORS = Tool(
    name="get_macro_indicators",
    description=(
        "Values of an economic series as they had been released by the simulated date, in the "
        "vintage of that day."
    ),
    args=MacroArguments,
    run=_withhold("macro"),
)
PREDICTION_MARKETS = Tool(
    name="get_prediction_markets",
    description="Odds that prediction markets gave on the simulated date, by topic.",
    args=MarketOddsArguments,
    run=_withhold("prediction_markets"),
)
