"""The tools whose tables are not printed yet: they say what is missing and never make it up.

A value that only today's sources could give (a market capitalisation, trailing ratios, odds) is
withheld. Where the snapshot has no such table its reason is the answer; where it has one, this
release cannot print it and says that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tradingagents_core.errors import DataUnavailable
from tradingagents_core.protocols import View
from tradingagents_core.tools.base import Tool, look_up
from tradingagents_core.tools.inputs import (
    CompanyArguments,
    MacroArguments,
    MarketOddsArguments,
    StatementArguments,
)


def _withhold(table: str) -> Callable[[View, Any], str]:
    def run(view: View, arguments: Any) -> str:
        symbol = getattr(arguments, "ticker", None)
        instrument = look_up(view, symbol).instrument if symbol is not None else None
        view.require(table, instrument)
        raise DataUnavailable(
            f"the snapshot has the table {table}, but this release cannot print it: withheld"
        )

    return run


FUNDAMENTALS = Tool(
    name="get_fundamentals",
    description=(
        "Key figures of a company from the statements filed up to the simulated date; what "
        "cannot be rebuilt from them is withheld."
    ),
    args=CompanyArguments,
    run=_withhold("statements"),
)
BALANCE_SHEET = Tool(
    name="get_balance_sheet",
    description="Balance sheets of a company as filed up to the simulated date.",
    args=StatementArguments,
    run=_withhold("statements"),
)
CASHFLOW = Tool(
    name="get_cashflow",
    description="Cash-flow statements of a company as filed up to the simulated date.",
    args=StatementArguments,
    run=_withhold("statements"),
)
INCOME_STATEMENT = Tool(
    name="get_income_statement",
    description="Income statements of a company as filed up to the simulated date.",
    args=StatementArguments,
    run=_withhold("statements"),
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
