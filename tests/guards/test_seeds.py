"""The page on where the pipeline comes from names what there is, and leaves nothing out."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from typing import get_type_hints

import pytest

from backtester.api import DEFAULT_CONFIG, TradingAgentsGraph
from backtester.config import RunConfig
from backtester.spellings import ALIASES, WITHOUT_PLACE
from backtester.texts.report import COMPLETE, sections
from tests.guards.sources import ROOT, expect_none
from tradingagents_core.decisions import FORMS
from tradingagents_core.llm.providers import PROVIDERS
from tradingagents_core.state import AgentState, InvestDebateState, RiskDebateState
from tradingagents_core.tools import TOOLS
from tradingagents_core.topology import (
    ANALYSTS,
    INVEST_DEBATE,
    REFLECTOR,
    RISK_DEBATE,
    role_nodes,
    tier_of_node,
)

PAGE = (ROOT / "docs" / "seeds.md").read_text(encoding="utf-8")
CODE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
SOURCE = re.compile(r"(?:backtester|tradingagents_core|tests|docs)/[\w/.-]*")
FIELD = re.compile(r"[a-z][a-z0-9_]*")


def tables(heading: str) -> list[list[list[str]]]:
    """Return the tables of a section, each a list of rows of cells, without the heading rows."""
    section = PAGE.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    found: list[list[list[str]]] = []
    for block in re.findall(r"(?:^\|.*\n)+", section, re.MULTILINE):
        rows = [
            [cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines()
        ]
        found.append(rows[2:])
    return found


def names(cell: str) -> list[str]:
    return CODE.findall(cell)


def test_every_row_has_as_many_cells_as_its_heading() -> None:
    for block in re.findall(r"(?:^\|.*\n)+", PAGE, re.MULTILINE):
        assert len({line.count("|") for line in block.splitlines()}) == 1, block


def test_every_source_that_the_page_names_is_there() -> None:
    paths = {name for name in CODE.findall(PAGE) if SOURCE.fullmatch(name)}
    assert len(paths) > 10
    expect_none(sorted(path for path in paths if not (ROOT / path).exists()))


def test_every_heading_of_the_list_is_there() -> None:
    slugs = {
        re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
        for heading in re.findall(r"^## (.+)$", PAGE, re.MULTILINE)
    }
    assert set(re.findall(r"\]\(#([^)]+)\)", PAGE)) == slugs


def test_the_roles_are_those_of_the_graph_with_their_tiers_and_fields() -> None:
    (rows,) = tables("Roles")
    listed = [(name, row) for row in rows for name in names(row[0])]
    assert [name for name, _ in listed] == [*role_nodes(ANALYSTS), REFLECTOR]
    for name, row in listed:
        assert row[1] == tier_of_node(name), name
        expect_none(set(names(row[3])) - set(get_type_hints(AgentState)))


def test_the_fields_of_the_state_are_all_listed_and_no_others() -> None:
    state, debates = tables("State")
    assert {name for row in state for name in names(row[0])} == set(get_type_hints(AgentState))
    assert {names(row[0])[0]: set(names(row[1])) for row in debates} == {
        INVEST_DEBATE.state_field: set(get_type_hints(InvestDebateState)),
        RISK_DEBATE.state_field: set(get_type_hints(RiskDebateState)),
    }


def test_the_tools_are_those_of_the_registry_with_their_analysts() -> None:
    (rows,) = tables("Tools")
    listed = {name: row[1] for row in rows for name in names(row[0])}
    assert set(listed) == set(TOOLS)
    for analyst in ANALYSTS:
        word = analyst.node.removesuffix(" Analyst").lower()
        used = {*analyst.tools, *(source.tool for source in analyst.sources if source.tool)}
        assert {name for name, who in listed.items() if word in who} == used


def test_the_typed_decisions_have_their_fields() -> None:
    (rows,) = tables("Typed decisions")
    assert {names(row[0])[0]: names(row[2]) for row in rows} == {
        name: list(form.model.model_fields) for name, form in FORMS.items()
    }


def settings_of(rows: list[list[str]]) -> Mapping[str, list[str]]:
    return {key: names(row[1]) for row in rows for key in names(row[0])}


def test_each_key_of_the_seeds_leads_to_the_setting_that_does_its_work() -> None:
    taken, _ = tables("Settings")

    def wrong() -> Iterator[str]:
        for key, here in settings_of(taken).items():
            meant = ALIASES[key].key if key in ALIASES else key
            if meant not in here:
                yield f"{key} is {meant}, the page says {here}"
            yield from (f"{key}: no field {name}" for name in here if name not in fields)

    fields = set(RunConfig.model_fields)
    expect_none(wrong())
    assert sorted(set(ALIASES) - set(settings_of(taken))) == []


def test_each_refused_key_is_listed_with_what_to_do() -> None:
    _, refused = tables("Settings")
    listed = settings_of(refused)
    assert set(listed) == set(WITHOUT_PLACE)
    fields = {name for here in listed.values() for name in here if FIELD.fullmatch(name)}
    expect_none(sorted(fields - set(RunConfig.model_fields)))


def test_every_provider_is_listed() -> None:
    (rows,) = tables("Models")
    listed = {name for row in rows for name in names(row[1])}
    assert sorted(set(PROVIDERS) - listed) == []


def test_the_report_files_are_those_that_are_written() -> None:
    (rows,) = tables("Files")
    listed = [names(row[0]) for row in rows]
    for section in sections():
        first, *others = [part.file for part in section.parts]
        assert [f"{section.folder}/{first}", *others] in listed
    assert [COMPLETE] in listed


def test_the_default_configuration_has_the_keys_of_the_page_once_each() -> None:
    taken, _ = tables("Settings")
    meant = [ALIASES[name].key if name in ALIASES else name for name in DEFAULT_CONFIG]
    shared = {"reasoning_effort"}
    assert set(DEFAULT_CONFIG) <= set(settings_of(taken))
    assert [name for name in set(meant) - shared if meant.count(name) > 1] == []
    # The analysts are an argument in the seeds.
    pages = {ALIASES[name].key if name in ALIASES else name for name in settings_of(taken)}
    assert pages - set(meant) == {"analysts"}


def test_a_decision_is_asked_for_as_in_the_seeds() -> None:
    signature = re.search(r"`propagate\(([^)]+)\)`", PAGE)
    assert signature is not None
    asked = list(inspect.signature(TradingAgentsGraph.propagate).parameters)
    assert asked[1:] == [*signature[1].split(", "), "asset_type"]


@pytest.mark.parametrize("name", ["propagate", "reflect_and_remember", "save_reports"])
def test_the_graph_object_has_the_methods_of_the_seeds(name: str) -> None:
    assert f"`{name}" in PAGE
    assert callable(getattr(TradingAgentsGraph, name))


def test_the_graph_object_is_made_as_in_the_seeds() -> None:
    signature = re.search(r"`TradingAgentsGraph\(([^)]+)\)`", PAGE)
    assert signature is not None
    made = list(inspect.signature(TradingAgentsGraph).parameters)
    assert made[:4] == signature[1].split(", ")
