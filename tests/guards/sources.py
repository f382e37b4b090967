"""The sources under guard, parsed once, and the few questions that every guard asks of them."""

from __future__ import annotations

import ast
import functools
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("backtester", "tradingagents_core")
UNTRACKED = {".git", ".venv", "__pycache__", "build", "dist", "htmlcov"}


@dataclass(frozen=True, kw_only=True)
class Source:
    """One module of the two packages.

    Attributes:
        path: Relative to the repository (``backtester/cli/__init__.py``).
        module: Dotted name (``backtester.cli``).
        text: Its text.
    """

    path: str
    module: str
    text: str

    @functools.cached_property
    def tree(self) -> ast.Module:
        """Return the syntax tree."""
        return ast.parse(self.text, filename=self.path)

    @functools.cached_property
    def names(self) -> dict[str, str]:
        """Return what each imported name stands for (``dt`` -> ``datetime``)."""
        found: dict[str, str] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.asname:
                        found[alias.asname] = alias.name
                    else:
                        found[alias.name.split(".")[0]] = alias.name.split(".")[0]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for alias in node.names:
                    found[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        return found

    def dotted(self, node: ast.expr) -> str:
        """Return the full name that an expression refers to, or an empty string.

        ``dt.now`` after ``from datetime import datetime as dt`` is ``datetime.datetime.now``.
        """
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        parts.append(self.names.get(node.id, node.id))
        return ".".join(reversed(parts))

    def imports(self) -> Iterator[tuple[str, int]]:
        """Yield each module that is imported anywhere in the file, with its line."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield alias.name, node.lineno
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                yield node.module, node.lineno


def source_of(text: str, path: str = "backtester/planted.py") -> Source:
    """Return a source made of given text: how a guard shows that it can fail."""
    module = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return Source(path=path, module=module, text=text)


@functools.cache
def sources() -> tuple[Source, ...]:
    """Return every module of both packages, sorted by path."""
    paths = sorted(path for name in PACKAGES for path in (ROOT / name).rglob("*.py"))
    return tuple(
        source_of(path.read_text(encoding="utf-8"), path.relative_to(ROOT).as_posix())
        for path in paths
        if "__pycache__" not in path.parts
    )


@functools.cache
def repository_files() -> tuple[Path, ...]:
    """Return every file that is, or would be, committed; sorted."""
    if (ROOT / ".git").exists():
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        )
        names = {name for name in listed.stdout.split("\0") if name}
        found = [ROOT / name for name in names]
    else:
        found = [path for path in ROOT.rglob("*") if not UNTRACKED & set(path.parts)]
    return tuple(sorted(path for path in found if path.is_file()))


def text_of(path: Path) -> str | None:
    """Return a file's text, or None for a binary file."""
    content = path.read_bytes()
    if b"\0" in content[:8192]:
        return None
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return None


def expect_none(found: Iterable[object]) -> None:
    """Fail with one line for each thing found; pytest's own diff would cut the list short."""
    lines = [str(item) for item in found]
    if lines:
        pytest.fail("\n".join(lines), pytrace=False)
