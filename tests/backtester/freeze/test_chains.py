"""TradingAgents' names of vendors reach the tables that are frozen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from backtester.errors import UsageError
from backtester.freeze.chains import TABLE_OF_TOOL, TABLES_OF_KIND
from backtester.freeze.freezing import FreezePlan, load_plan
from backtester.spellings import VENDOR_CATEGORIES
from tradingagents_core.tools import TOOLS


def plan(tmp_path: Path, text: str, **flags: Any) -> FreezePlan:
    file = tmp_path / "plan.toml"
    head = 'name = "mine"\nsymbols = ["AAPL"]\nstart = 2018-01-02\nend = 2018-12-31\n'
    file.write_text(head + text)
    return load_plan(file, flags)


def test_every_kind_and_every_tool_has_its_table() -> None:
    assert tuple(TABLES_OF_KIND) == VENDOR_CATEGORIES
    assert set(TABLE_OF_TOOL) == set(TOOLS)


def test_kinds_and_tools_become_chains_and_chains_win(tmp_path: Path) -> None:
    found = plan(
        tmp_path,
        'tables = ["news", "insider", "statements"]\n'
        '[data_vendors]\ncore_stock_apis = "alpha_vantage, yfinance"\nnews_data = ["yfinance"]\n'
        '[tool_vendors]\nget_insider_transactions = "sec"\nget_cashflow = ["sec", "yfinance"]\n'
        '[chains]\nnews = ["files"]\n',
    )
    assert found.chain("bars") == ("alpha_vantage", "yfinance")
    assert found.chain("insider") == ("sec",)
    assert found.chain("statements") == ("sec", "yfinance")
    assert found.chain("news") == ("files",)


def test_a_flag_wins_over_all_of_them(tmp_path: Path) -> None:
    text = '[data_vendors]\ncore_stock_apis = "alpha_vantage"\n'
    assert plan(tmp_path, text, vendors=["bars=files"]).chain("bars") == ("files",)


def test_a_vendor_of_news_alone_leaves_the_insiders_to_their_own(tmp_path: Path) -> None:
    text = 'tables = ["news", "insider"]\n[data_vendors]\nnews_data = "files, yfinance"\n'
    assert plan(tmp_path, text).chain("insider") == ("files", "yfinance")
    own = f'tables = ["news", "insider"]\n[data_vendors]\nnews_data = "{__name__}:Headlines"\n'
    assert plan(tmp_path, own).chain("insider") == ("sec",)
    assert plan(tmp_path, own).chain("news") == (f"{__name__}:Headlines",)


class Headlines:
    """A vendor of news alone."""

    tables = frozenset({"news"})

    def capture(self, wanted: object) -> None:
        """Answer nothing."""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[data_vendors]\ngossip = "yfinance"\n', "there is no 'gossip': write one of core_stock"),
        ('[tool_vendors]\nget_gossip = "yfinance"\n', "there is no 'get_gossip'"),
        ('[data_vendors]\ncore_stock_apis = "bloomberg"\n', "vendor 'bloomberg' is not known"),
        (
            '[data_vendors]\ncore_stock_apis = "yfinance"\ntechnical_indicators = "files"\n',
            "read the same table, bars",
        ),
        ('data_vendors = "yfinance"\n', "is no table of chains"),
    ],
)
def test_names_that_do_not_fit_say_what(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        plan(tmp_path, text)
