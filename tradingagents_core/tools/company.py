"""The tools about companies: what frozen rows give, and a mark on all that they do not.

A value that only today's sources could give (estimates of analysts) is withheld and never made up.
Where the snapshot has no such table, its reason is the answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

import numpy as np

from tradingagents_core import statements
from tradingagents_core.errors import DataUnavailable
from tradingagents_core.indicators import YEAR, summarize
from tradingagents_core.protocols import Bars, Identity, View
from tradingagents_core.tools.base import Tool, ToolLimits, cut_notes, look_up, title
from tradingagents_core.tools.filings import statement_tool
from tradingagents_core.tools.inputs import CompanyArguments, StatementArguments
from tradingagents_core.tools.insider import get_insider_transactions
from tradingagents_core.tools.text import count_text, day_text, figure_text, price_text
from tradingagents_core.tools.valuation import FIGURES, valuation

QUARTER = 63
_AVERAGES = ("close_50_sma", "close_200_sma")


def get_fundamentals(view: View, arguments: CompanyArguments, limits: ToolLimits) -> str:
    """Print what prices alone tell of a company, and mark what would need its statements."""
    del limits
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
    traded = f"{identity.exchange}, in {identity.currency}"
    newest = day_text(bars.sessions[-1])
    lines = [
        f"# Key figures of {title(identity)}, {traded}, seen on {view.session}",
        f"# From daily prices up to {newest}; adjusted for splits up to this date",
        *_price_figures(bars),
        *(f"{name}: {figure_text(averages.values[name][-1].item())}" for name in _AVERAGES),
        f"average_volume_{QUARTER}d: {_average_volume(bars)}",
        *_from_statements(view, identity, bars, arguments.curr_date),
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


def _from_statements(view: View, identity: Identity, bars: Bars, end: date | None) -> Iterator[str]:
    try:
        lines = list(valuation(view, identity, bars, end))
    except DataUnavailable as error:
        yield f"# Withheld: {error}"
        yield from (f"{name}: withheld" for name in FIGURES)
        return
    yield "# From statements on file, each figure with its days; shares on the basis of this date"
    yield from lines


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
    run=statement_tool(statements.BALANCE),
)
CASHFLOW = Tool(
    name="get_cashflow",
    description="Cash-flow statements of a company as filed up to the simulated date.",
    args=StatementArguments,
    run=statement_tool(statements.CASHFLOW),
)
INCOME_STATEMENT = Tool(
    name="get_income_statement",
    description="Income statements of a company as filed up to the simulated date.",
    args=StatementArguments,
    run=statement_tool(statements.INCOME),
)
INSIDER_TRANSACTIONS = Tool(
    name="get_insider_transactions",
    description="Trades by a company's insiders that were filed up to the simulated date.",
    args=CompanyArguments,
    run=get_insider_transactions,
)
