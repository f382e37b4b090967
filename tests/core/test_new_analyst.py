"""A new analyst: one file with its row, one line in the table, and nothing else."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.core.scripted_cast import Cast, Watch, cell, fixed_view, pipeline
from tradingagents_core import prompts
from tradingagents_core.graph import Pipeline
from tradingagents_core.settings import PipelineSettings
from tradingagents_core.tools import TOOLS
from tradingagents_core.topology import ANALYSTS, AnalystRow

FILE = '''
"""The macro analyst: reads the economy."""

from tradingagents_core.topology import AnalystRow

MACRO = AnalystRow(
    key="macro",
    node="Macro Analyst",
    report_field="macro_report",
    tools=("get_macro_indicators", "get_global_news"),
    task="You read the economy of the last {global_news_lookback_days} days.",
)
'''


@pytest.fixture(name="table")
def table_with_one_more(tmp_path: Path) -> Sequence[AnalystRow]:
    path = tmp_path / "macro.py"
    path.write_text(FILE, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("macro", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return (*ANALYSTS, module.MACRO)


def test_the_contract_of_the_table_holds_for_every_row(table: Sequence[AnalystRow]) -> None:
    for what in ("key", "node", "report_field", "tools_node", "clear_node", "branch_channel"):
        values = [getattr(row, what) for row in table]
        assert len(set(values)) == len(values)
    for row in table:
        assert row.node.endswith(" Analyst")
        assert row.report_field.isidentifier()
        assert bool(row.tools) != bool(row.sources)
        assert set(row.tools) <= set(TOOLS)
        assert row.task or prompts.ANALYST_TASKS[row.key]


@pytest.mark.parametrize("parallel", [False, True])
def test_one_file_and_one_row_make_an_analyst(table: Sequence[AnalystRow], parallel: bool) -> None:
    calls = [("get_macro_indicators", {"indicator": "CPI"}), ("get_stock_data", {"symbol": "FB"})]
    cast = Cast(turns={"Macro Analyst": [calls]})
    watch = Watch()
    settings = PipelineSettings(
        analysts=tuple(row.key for row in table),
        analysts_parallel=parallel,
        lesson_roles=("Macro Analyst", "Portfolio Manager"),
    )
    shared = Pipeline(settings, cast.models(), analysts=table)
    decision = shared.decide(cell(), fixed_view(), sink=watch)
    own = [node for node in watch.nodes if node.endswith(("acro", "Macro Analyst"))]
    assert own == ["Macro Analyst", "tools_macro", "Macro Analyst", "Msg Clear Macro"]
    assert decision.state["macro_report"] == "Macro Analyst speaks, call 1."
    asked = cast.prompts("Macro Analyst")
    assert "You read the economy of the last 7 days." in asked[0]
    # It is offered its own tools and refused the others'.
    assert "call one of get_macro_indicators, get_global_news" in asked[1]
    for role in ("Bull Researcher", "Research Manager", "Trader", "Neutral Analyst"):
        (text,) = cast.prompts(role)
        assert '<block name="macro_report" kind="report">\nMacro Analyst speaks, call 1.' in text
    assert shared.fingerprint() != pipeline(Cast()).fingerprint()


def test_an_analyst_that_is_not_chosen_changes_nothing(table: Sequence[AnalystRow]) -> None:
    cast, plain = Cast(), Cast()
    with_it = Pipeline(PipelineSettings(), cast.models(), analysts=table)
    assert with_it.decide(cell(), fixed_view()) == pipeline(plain).decide(cell(), fixed_view())
    assert with_it.fingerprint() == pipeline(Cast()).fingerprint()
