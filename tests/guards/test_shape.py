"""Functions stay short and modules stay readable."""

from __future__ import annotations

import ast

from tests.guards.sources import Source, expect_none, source_of, sources

FUNCTION_LINES = 50
MODULE_LINES = 500
VAGUE_NAMES = {"common", "helper", "helpers", "manager", "managers", "misc", "util", "utils"}


def long_functions(source: Source) -> list[str]:
    found = []
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES:
                found.append(f"{source.path}:{node.lineno} {node.name} has {lines} lines")
    return found


def test_no_function_is_longer_than_fifty_lines_docstring_included() -> None:
    expect_none(line for source in sources() for line in long_functions(source))


def test_no_module_is_longer_than_five_hundred_lines() -> None:
    lengths = {source.path: len(source.text.splitlines()) for source in sources()}
    expect_none(
        f"{path} has {lines} lines" for path, lines in lengths.items() if lines > MODULE_LINES
    )


def test_a_module_is_named_after_a_thing_of_the_field() -> None:
    expect_none(source.path for source in sources() if VAGUE_NAMES & set(source.module.split(".")))


def test_the_guard_sees_a_function_of_fifty_one_lines() -> None:
    body = "\n".join(f"    x = {number}" for number in range(FUNCTION_LINES))
    assert long_functions(source_of(f"def long():\n{body}\n")) == [
        "backtester/planted.py:1 long has 51 lines"
    ]
