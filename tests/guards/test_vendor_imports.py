"""Only freezing reaches a vendor, and a vendor knows nothing of what is done with its rows."""

from __future__ import annotations

from typing import Any

import grimp
import pytest
from importlinter.contracts.layers import LayersContract
from importlinter.contracts.protected import ProtectedContract
from importlinter.domain.contract import Contract

from tests.guards.test_imports import PROJECT

OPTIONS = {"root_packages": ["backtester", "tradingagents_core"]}
KINDS = {"freeze-alone-asks": ProtectedContract, "layers": LayersContract}


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph("backtester", "tradingagents_core", cache_dir=None)


def kept(name: str, graph: grimp.ImportGraph) -> bool:
    (options,) = [
        dict(entry) for entry in PROJECT["tool"]["importlinter"]["contracts"] if entry["id"] == name
    ]
    contract: Contract = KINDS[name](options.pop("name"), OPTIONS, listed(options))
    return bool(contract.check(graph, verbose=False).kept)


def listed(options: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in options.items() if key not in ("id", "type")}


@pytest.mark.parametrize(
    ("contract", "importer", "imported"),
    [
        ("freeze-alone-asks", "backtester.walk.engine", "backtester.vendors.base"),
        ("freeze-alone-asks", "backtester.cli.freeze", "backtester.vendors.registry"),
        ("freeze-alone-asks", "backtester.api", "backtester.vendors"),
        ("freeze-alone-asks", "backtester.snapshots.view", "backtester.vendors.sec"),
        ("layers", "backtester.vendors.sec", "backtester.snapshots.snapshot"),
        ("layers", "backtester.vendors.yahoo", "backtester.snapshots.view"),
        ("layers", "backtester.vendors.base", "backtester.freeze.ask"),
    ],
)
def test_an_import_that_crosses_the_line_breaks_its_contract(
    graph: grimp.ImportGraph, contract: str, importer: str, imported: str
) -> None:
    assert kept(contract, graph)
    graph.add_import(importer=importer, imported=imported)
    try:
        assert not kept(contract, graph)
    finally:
        graph.remove_import(importer=importer, imported=imported)


def test_every_importer_that_is_allowed_is_a_part_of_freezing() -> None:
    (entry,) = [
        entry
        for entry in PROJECT["tool"]["importlinter"]["contracts"]
        if entry["id"] == "freeze-alone-asks"
    ]
    names = [name.removeprefix("backtester.") for name in entry["allowed_importers"]]
    assert [name for name in names if name.partition(".")[0] != "freeze"] == []
