"""No error is swallowed: no broad except, and the look-ahead alarm is caught in one place.

A clause that ends in a bare ``raise`` lets the error through and is none of them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.guards.sources import Source, expect_none, source_of, sources

BROAD = {"BaseException", "Exception", "builtins.BaseException", "builtins.Exception"}
ALARM = "LookaheadError"

# (path, function) -> why a broad except is right there; an entry that is not needed fails too.
ALLOWED_BROAD: dict[tuple[str, str], str] = {
    ("backtester/cli/__init__.py", "run"): "the last line of defence: a fault becomes exit code 70",
    ("backtester/leaks/child.py", "find"): "what an audited module raises says why it is none",
    ("backtester/leaks/child.py", "_answered"): "what an audited pipeline raises is its answer",
    ("backtester/vendors/contract.py", "_tried"): "what a user's vendor raises is the finding",
    ("backtester/vendors/own_code.py", "contained"): "what a user's vendor raises is its failure",
}
# (path, function) -> why the alarm may be caught there, and how it still ends the run.
ALLOWED_ALARM: dict[tuple[str, str], str] = {
    ("backtester/cli/__init__.py", "run"): "turns it into one line and exit code 7",
    ("backtester/leaks/child.py", "_answered"): "a finding of the audit, which exits with 7 on any",
}


def handlers(source: Source) -> Iterator[tuple[str, str, int]]:
    """Yield (what is caught, in which function, line) for each clause and each `suppress`."""

    def visit(node: ast.AST, function: str) -> Iterator[tuple[str, str, int]]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function = node.name
        if isinstance(node, ast.ExceptHandler) and not lets_through(node):
            for caught in caught_by(node.type):
                name = source.dotted(caught) if caught is not None else "BaseException"
                yield name, function, node.lineno
        if isinstance(node, ast.Call) and source.dotted(node.func) == "contextlib.suppress":
            for caught in node.args:
                yield source.dotted(caught), function, node.lineno
        for child in ast.iter_child_nodes(node):
            yield from visit(child, function)

    yield from visit(source.tree, "module")


def lets_through(clause: ast.ExceptHandler) -> bool:
    last = clause.body[-1]
    return isinstance(last, ast.Raise) and last.exc is None


def caught_by(clause: ast.expr | None) -> list[ast.expr | None]:
    if isinstance(clause, ast.Tuple):
        return list(clause.elts)
    return [clause]


def broad(source: Source) -> list[tuple[str, str]]:
    return [(source.path, function) for name, function, _ in handlers(source) if name in BROAD]


def alarms(source: Source) -> list[tuple[str, str]]:
    return [
        (source.path, function)
        for name, function, _ in handlers(source)
        if name.rsplit(".", 1)[-1] == ALARM
    ]


def test_nothing_catches_every_exception() -> None:
    found = {place for source in sources() for place in broad(source)}
    expect_none(sorted(found ^ set(ALLOWED_BROAD)))


def test_the_lookahead_alarm_is_caught_only_where_the_run_ends() -> None:
    found = {place for source in sources() for place in alarms(source)}
    expect_none(sorted(found ^ set(ALLOWED_ALARM)))


@pytest.mark.parametrize(
    "clause",
    ["except:", "except Exception:", "except (ValueError, BaseException) as error:"],
)
def test_the_guard_sees_a_broad_clause(clause: str) -> None:
    text = f"def read():\n    try:\n        pass\n    {clause}\n        pass\n"
    assert broad(source_of(text)) == [("backtester/planted.py", "read")]


def test_cleaning_up_and_raising_on_is_no_broad_except() -> None:
    text = "try:\n    pass\nexcept BaseException:\n    close()\n    raise\n"
    assert broad(source_of(text)) == []


def test_the_guard_sees_a_broad_suppress() -> None:
    text = "from contextlib import suppress\nwith suppress(Exception):\n    pass\n"
    assert broad(source_of(text)) == [("backtester/planted.py", "module")]


def test_the_guard_sees_a_caught_alarm() -> None:
    text = (
        "from tradingagents_core import errors\n"
        "def run():\n    try:\n        pass\n    except errors.LookaheadError:\n        pass\n"
    )
    assert alarms(source_of(text)) == [("backtester/planted.py", "run")]
