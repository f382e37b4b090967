"""Chains of vendors as TradingAgents names them: by kind of data, or by tool, into tables.

A tool's chain wins over that of its kind. The tables of `plan` are what is frozen.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from backtester.errors import UsageError

TABLE_OF_TOOL: Final[Mapping[str, str]] = MappingProxyType(
    {
        "get_stock_data": "bars",
        "get_indicators": "bars",
        "get_verified_market_snapshot": "bars",
        "get_fundamentals": "statements",
        "get_balance_sheet": "statements",
        "get_cashflow": "statements",
        "get_income_statement": "statements",
        "get_news": "news",
        "get_global_news": "news",
        "get_insider_transactions": "insider",
        "get_macro_indicators": "macro",
        "get_prediction_markets": "prediction_markets",
    }
)
TABLES_OF_KIND: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "core_stock_apis": ("bars",),
        # They are worked out from the bars.
        "technical_indicators": ("bars",),
        "fundamental_data": ("statements",),
        "news_data": ("news", "insider"),
        "macro_data": ("macro",),
        "prediction_markets": ("prediction_markets",),
    }
)
# Of a kind with several tables, a vendor fills those that it has.
_SHARED: Final = ("insider",)

Chains = Mapping[str, tuple[str, ...]]


def chains_of(
    data_vendors: Chains, tool_vendors: Chains, can: Mapping[str, frozenset[str]]
) -> dict[str, tuple[str, ...]]:
    """Return the chain of each table that is named.

    Args:
        data_vendors: Kind of data -> vendors in order.
        tool_vendors: Tool -> vendors in order.
        can: Vendor -> tables that it can fill.

    Raises:
        UsageError: Two tools, or two kinds, name different chains for one table, or a name is
            neither.
    """
    by_kind = _gathered(
        {kind: _tables_of(kind) for kind in data_vendors}, data_vendors, can, "data_vendors"
    )
    by_tool = _gathered(
        {tool: (_table_of(tool),) for tool in tool_vendors}, tool_vendors, can, "tool_vendors"
    )
    return {**by_kind, **by_tool}


def _gathered(
    tables: Mapping[str, tuple[str, ...]],
    chains: Chains,
    can: Mapping[str, frozenset[str]],
    where: str,
) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    named: dict[str, str] = {}
    for name, of_it in tables.items():
        for table in of_it:
            chain = tuple(chains[name])
            if table in _SHARED and len(of_it) > 1:
                chain = tuple(v for v in chain if table in can.get(v, frozenset()))
            if not chain:
                continue
            if found.setdefault(table, chain) != chain:
                raise UsageError(
                    f"{where}: {named[table]} and {name} read the same table, {table}, and name "
                    "different vendors for it: name one chain"
                )
            named[table] = name
    return found


def _tables_of(kind: str) -> tuple[str, ...]:
    if kind not in TABLES_OF_KIND:
        raise UsageError(
            f"data_vendors: there is no {kind!r}: write one of {', '.join(TABLES_OF_KIND)}"
        )
    return TABLES_OF_KIND[kind]


def _table_of(tool: str) -> str:
    if tool not in TABLE_OF_TOOL:
        raise UsageError(
            f"tool_vendors: there is no {tool!r}: write one of {', '.join(TABLE_OF_TOOL)}"
        )
    return TABLE_OF_TOOL[tool]
