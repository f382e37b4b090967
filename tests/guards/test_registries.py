"""The tables that things plug into agree with each other and with the files beside them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_type_hints

import pytest

from backtester.schema import TABLES
from benchmarks.run import BENCHMARKS
from tests.guards.sources import ROOT, expect_none, sources
from tradingagents_core import prompts
from tradingagents_core.llm.providers import PROVIDERS
from tradingagents_core.settings import ALL_ANALYSTS, PipelineSettings
from tradingagents_core.state import AgentState, InvestDebateState, RiskDebateState
from tradingagents_core.tools import TOOLS, openai_tool
from tradingagents_core.topology import (
    ANALYSTS,
    DEEP_NODES,
    INVEST_DEBATE,
    REFLECTOR,
    RISK_DEBATE,
    AnalystRow,
    DebateRow,
    role_nodes,
)

DEBATES = {INVEST_DEBATE: InvestDebateState, RISK_DEBATE: RiskDebateState}

# Modules that nothing here imports because a user starts there.
ENTRIES = {"backtester.__main__", "backtester.api", "tradingagents_core.llm.doubles"}


def orphans() -> Iterator[str]:
    """Yield each module that no other module imports: a file without its row in a table."""
    imported = set()
    for source in sources():
        for name, _ in source.imports():
            imported.add(name)
        imported.update(source.names.values())
    for source in sources():
        is_package = source.path.endswith("/__init__.py")
        if not is_package and source.module not in imported | ENTRIES:
            yield source.module


def test_every_file_is_reached_from_somewhere() -> None:
    expect_none(orphans())


def test_the_analysts_of_the_settings_are_those_of_the_table() -> None:
    # The four of the settings' default come first; a further analyst is one more row.
    assert tuple(row.key for row in ANALYSTS)[: len(ALL_ANALYSTS)] == ALL_ANALYSTS


@pytest.mark.parametrize("what", ["key", "node", "report_field", "tools_node", "clear_node"])
def test_no_two_analysts_share_a_name(what: str) -> None:
    values = [getattr(row, what) for row in ANALYSTS]
    assert len(set(values)) == len(values)


@pytest.mark.parametrize("row", ANALYSTS, ids=lambda row: row.key)
def test_an_analyst_has_tools_or_sources_a_report_field_and_a_task(row: AnalystRow) -> None:
    assert bool(row.tools) != bool(row.sources)
    assert set(row.tools) <= set(TOOLS)
    assert {source.tool for source in row.sources if source.tool} <= set(TOOLS)
    assert {source.table for source in row.sources if source.table} <= set(TABLES)
    # The state class takes its report fields from the rows.
    assert row.report_field.isidentifier()
    assert row.task or prompts.ANALYST_TASKS[row.key]


def test_every_tool_is_offered_to_an_analyst() -> None:
    offered = {tool for row in ANALYSTS for tool in row.tools}
    assert sorted(set(TOOLS) - offered) == []


@pytest.mark.parametrize("name", sorted(TOOLS))
def test_a_tool_is_known_by_its_own_name_and_says_what_it_does(name: str) -> None:
    tool = TOOLS[name]
    function = openai_tool(name)["function"]
    assert tool.name == function["name"] == name
    assert function["description"].strip()
    properties = function["parameters"]["properties"]
    assert [key for key, field in properties.items() if not field.get("description")] == []


@pytest.mark.parametrize("debate", DEBATES, ids=lambda debate: debate.state_field)
def test_a_debate_fits_its_state_and_its_setting(debate: DebateRow) -> None:
    fields = get_type_hints(DEBATES[debate])
    assert get_type_hints(AgentState)[debate.state_field] is DEBATES[debate]
    assert debate.last_field in fields
    for speaker in debate.speakers:
        assert {speaker.history_field, speaker.response_field} <= set(fields)
    tags = [speaker.tag for speaker in debate.speakers]
    assert len(set(tags)) == len(tags)
    assert debate.rounds_setting in get_type_hints(PipelineSettings)


def test_every_role_has_a_name_of_its_own() -> None:
    nodes = (*role_nodes(ANALYSTS), REFLECTOR)
    assert len(set(nodes)) == len(nodes)
    assert set(nodes) >= DEEP_NODES


@pytest.mark.parametrize("name", sorted(PROVIDERS))
def test_a_provider_that_needs_a_key_names_its_variable(name: str) -> None:
    provider = PROVIDERS[name]
    assert provider.name == name
    assert not provider.key_required or provider.key_variable
    assert provider.key_variable is None or provider.key_variable.isupper()


def test_every_table_of_a_snapshot_has_a_schema() -> None:
    assert set(TABLES) == {
        "instruments",
        "bars",
        "actions",
        "statements",
        "news",
        "social",
        "macro",
        "insider",
        "prediction_markets",
    }


def test_every_benchmark_has_a_name_of_its_own_and_a_question() -> None:
    names = [benchmark.name for benchmark in BENCHMARKS]
    assert len(set(names)) == len(names)
    assert [row.name for row in BENCHMARKS if not row.question.endswith("?")] == []


def test_every_benchmark_file_has_its_row() -> None:
    files = {path.stem for path in (ROOT / "benchmarks").glob("*.py")}
    homes = {benchmark.run.__module__.rsplit(".", 1)[-1] for benchmark in BENCHMARKS}
    assert files - {"__init__", "measure", "run"} == homes
