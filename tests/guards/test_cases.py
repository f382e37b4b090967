"""Every case, leak and report of the field has a test, or says why not yet."""

from __future__ import annotations

import ast
import functools
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.guards.sources import ROOT, expect_none

CASES = ROOT / "tests" / "cases.toml"
OPEN_ISSUES = range(2, 7)
EXPECTED = tuple(
    f"{letter}{number:02d}"
    for letter, last in (("H", 38), ("L", 18), ("C", 96))
    for number in range(1, last + 1)
)


def problems(entries: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with a table of cases, one line each."""
    for name in EXPECTED:
        if name not in entries:
            yield f"{name} is missing"
    for name, entry in entries.items():
        if name not in EXPECTED:
            yield f"{name} is no case"
        elif not isinstance(entry, dict) or len(entry) != 1:
            yield f"{name} needs just one of tests, issue, reason"
        else:
            (kind, value) = next(iter(entry.items()))
            yield from (f"{name}: {problem}" for problem in entry_problems(kind, value))


def entry_problems(kind: str, value: object) -> Iterator[str]:
    if kind == "tests":
        if not isinstance(value, list) or not value:
            yield "tests is no list of tests"
            return
        yield from (f"there is no test {test}" for test in value if not exists(test))
        yield from (f"{test} is named twice" for test in value if value.count(test) > 1)
    elif kind == "issue":
        if value not in OPEN_ISSUES:
            yield f"issue {value} is not among {OPEN_ISSUES[0]} to {OPEN_ISSUES[-1]}"
    elif kind == "reason":
        if not isinstance(value, str) or len(value.split()) < 3:
            yield "the reason is no sentence"
    else:
        yield f"{kind} is none of tests, issue, reason"


def exists(test: object) -> bool:
    """Say whether ``tests/path.py::function`` or ``tests/path.py::Class::function`` is there."""
    if not isinstance(test, str) or "::" not in test:
        return False
    path, _, name = test.partition("::")
    if not name.rsplit("::", 1)[-1].startswith("test_"):
        return False
    return name in tests_in(path)


@functools.cache
def tests_in(path: str) -> frozenset[str]:
    file = ROOT / path
    if not path.startswith("tests/") or not file.is_file():
        return frozenset()
    return frozenset(names_in(ast.parse(file.read_text(encoding="utf-8")).body, ""))


def names_in(body: list[ast.stmt], prefix: str) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + node.name
        elif isinstance(node, ast.ClassDef):
            yield from names_in(node.body, f"{prefix}{node.name}::")


def test_every_case_names_its_tests_or_says_why_not_yet() -> None:
    entries = tomllib.loads(CASES.read_text(encoding="utf-8"))
    expect_none(problems(entries))


def test_the_cases_are_written_in_their_order() -> None:
    entries = tomllib.loads(CASES.read_text(encoding="utf-8"))
    assert list(entries) == [name for name in EXPECTED if name in entries]


HERE = "tests/guards/test_cases.py"
COMPLETE: Mapping[str, Any] = {name: {"issue": 2} for name in EXPECTED}


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        ("H39", {"issue": 2}),
        ("H01", {}),
        ("H01", {"issue": 2, "reason": "both of them at once"}),
        ("H01", {"issue": 7}),
        ("H01", {"reason": "later"}),
        ("H01", {"tests": []}),
        ("H01", {"tests": [f"{HERE}::test_that_is_not_there"]}),
        ("H01", {"tests": [f"{HERE}::exists"]}),
        ("H01", {"tests": ["tests/nowhere.py::test_it"]}),
        ("H01", {"tests": [f"{HERE}::test_the_cases_are_written_in_their_order"] * 2}),
    ],
)
def test_the_guard_refuses(name: str, entry: Mapping[str, Any]) -> None:
    assert list(problems({**COMPLETE, name: entry}))


def test_the_guard_sees_a_missing_case() -> None:
    rest = {name: entry for name, entry in COMPLETE.items() if name != "C42"}
    assert list(problems(rest)) == ["C42 is missing"]


def test_the_guard_lets_a_test_that_exists_pass() -> None:
    entry = {"tests": [f"{HERE}::test_the_guard_lets_a_test_that_exists_pass"]}
    assert list(problems({**COMPLETE, "H01": entry})) == []
