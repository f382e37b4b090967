"""What the documents say of the code is there."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command

from backtester.book.policy import policy_named
from backtester.cli import app
from backtester.runs.folder import RESULTS_VERSION
from tests.guards.sources import PACKAGES, ROOT, expect_none, sources

DOCUMENTS = sorted(path.name for path in ROOT.glob("*.md"))
TARGET = re.compile(r"^([a-z-]+):", re.MULTILINE)
LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)")


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_map_names_every_module() -> None:
    # The map alone counts: elsewhere a star is a mark of Markdown and would name everything.
    drawn = text("ARCHITECTURE.md").split("## The map")[1].split("```")[1]
    tokens = set(re.findall(r"\b[a-z_]\w*\*?", drawn))
    named = re.compile("|".join(token.replace("*", r"\w*") for token in sorted(tokens)))
    assert not named.fullmatch("a_module_that_is_not_there")
    expect_none(
        source.path
        for source in sources()
        if not source.path.endswith("__init__.py")
        and not named.fullmatch(source.module.rsplit(".", 1)[-1])
    )


def test_the_changelog_knows_this_version_and_its_results_version() -> None:
    version = tomllib.loads(text("pyproject.toml"))["project"]["version"]
    changelog = text("CHANGELOG.md")
    assert f"## {version}" in changelog
    assert "### Results change" in changelog
    numbers = [int(number) for number in re.findall(r"RESULTS_VERSION (\d+)", changelog)]
    assert numbers[0] == RESULTS_VERSION == max(numbers)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_make_target_that_a_document_names_exists(name: str) -> None:
    targets = set(TARGET.findall(text("Makefile")))
    named = set(re.findall(r"`make ([a-z-]+)", text(name)))
    named |= set(re.findall(r"^\s*\$? ?make ([a-z-]+)$", text(name), re.MULTILINE))
    assert sorted(named - targets) == []


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_file_that_a_document_links_to_exists(name: str) -> None:
    missing = [target for target in LINK.findall(text(name)) if not (ROOT / target).exists()]
    assert missing == []


@pytest.mark.parametrize("package", PACKAGES)
def test_the_tree_of_errors_is_whole(package: str) -> None:
    (errors,) = [source for source in sources() if source.path == f"{package}/errors.py"]
    tree = ast.get_docstring(errors.tree) or ""
    classes = [node.name for node in errors.tree.body if isinstance(node, ast.ClassDef)]
    assert [name for name in classes if not re.search(rf"\b{name}\b", tree)] == []


def test_every_make_target_says_what_it_does() -> None:
    makefile = text("Makefile")
    silent = [
        name
        for name in TARGET.findall(makefile)
        if not re.search(rf"^{name}:.*## ", makefile, re.M)
    ]
    assert silent == []


def test_every_command_and_every_option_has_a_help_text() -> None:
    def silent(command: Any, name: str) -> Iterator[str]:
        if not command.help:
            yield name
        for parameter in command.params:
            if not getattr(parameter, "help", None):
                yield f"{name} {parameter.name}"
        for word, inner in sorted(getattr(command, "commands", {}).items()):
            yield from silent(inner, f"{name} {word}")

    expect_none(silent(get_command(app), "backtester"))


def test_every_command_that_a_document_shows_exists() -> None:
    commands = getattr(get_command(app), "commands", {})
    shown = {
        (name, word)
        for name in DOCUMENTS
        for word in re.findall(r"^(?:\$ )?backtester ([a-z]+)", text(name), re.MULTILINE)
    }
    expect_none(
        f"{name}: backtester {word}" for name, word in sorted(shown) if word not in commands
    )


def test_the_page_on_the_book_names_options_that_exist_and_the_weights_of_the_policies() -> None:
    page = text("docs/book.md")
    commands = getattr(get_command(app), "commands", {})
    options = {
        option
        for name in ("score", "import", "show", "run")
        for parameter in commands[name].params
        for option in parameter.opts
    }
    assert sorted(set(re.findall(r"--[a-z][a-z-]+", page)) - options) == []

    header, *rows = (
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in page.splitlines()
        if line.startswith(("| policy", "| `long", "| `equal_slots"))
    )
    assert len(rows) == 3
    for row in rows:
        policy = policy_named(row[0].split("`")[1])
        for rating, cell in zip(header[1:], row[1:], strict=True):
            assert policy.weight_of(rating) == (None if cell == "carry" else float(cell))
