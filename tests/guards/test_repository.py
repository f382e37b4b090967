"""The repository speaks of the project alone: no registry host, no machine's path, no secret."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.guards.sources import ROOT, expect_none, repository_files, text_of

# Each pattern is put together from pieces, so that this file does not hold what it looks for.
DOT = r"\."
REGISTRY = "|".join(
    DOT.join(host)
    for host in (
        ("pypi", "org"),
        ("python" + "hosted", "org"),
        ("npm" + "js", "(?:com|org)"),
        ("registry", "yarn" + "pkg", "com"),
        ("deb", "debian", "org"),
        ("crates", "io"),
        ("proxy", "golang", "org"),
        ("hugging" + "face", "co"),
    )
)
FOLDER = "|".join(("wor" + "k", "op" + "t", "roo" + "t", "Use" + "rs", "ho" + "me"))
FORBIDDEN = {
    "a registry's host": re.compile(rf"(?:{REGISTRY})\b"),
    "an index line": re.compile("^--(?:extra-)?" + "(?:index|find)-(?:url|links)", re.MULTILINE),
    "a machine's path": re.compile(rf"(?<![\w.~*/:-])/(?:{FOLDER})/[\w.]"),
    "a neighbour folder": re.compile(r"\.\./" + r"sha" + r"red\b"),
    "a key": re.compile(r"\bsk-" + r"(?:proj-)?[A-Za-z0-9]{24,}"),
    "a private key": re.compile("-----BEGIN [A-Z ]*" + "PRIVATE KEY-----"),
}
# (path, what) -> why it is right there.
ALLOWED = {
    (".ci/run", "a neighbour folder"): "vendor files beside the checkout serve the external suite",
}


def findings(text: str) -> Iterator[tuple[str, str]]:
    """Yield (what, the line that holds it) for a file's text."""
    for what, pattern in FORBIDDEN.items():
        for match in pattern.finditer(text):
            start = text.rfind("\n", 0, match.start()) + 1
            yield what, text[start:].split("\n", 1)[0].strip()


def test_no_file_names_a_registry_or_a_machine() -> None:
    expect_none(
        f"{name}: {what}: {line}"
        for path in repository_files()
        if (text := text_of(path)) is not None
        for what, line in findings(text)
        if ((name := path.relative_to(ROOT).as_posix()), what) not in ALLOWED
    )


def test_each_exception_is_still_needed() -> None:
    expect_none(
        (name, what)
        for name, what in ALLOWED
        if what not in {found for found, _ in findings((ROOT / name).read_text(encoding="utf-8"))}
    )


@pytest.mark.parametrize(
    "text",
    [
        "files." + "python" + "hosted.org/packages/x.whl",
        "https://" + "pypi" + ".org/simple",
        "--index" + "-url https://example.org/simple",
        "see /" + "work/main/README.md",
        "'/" + "root/.cache'",
        "data in .." + "/shared" + "/data",
        "key = 'sk-" + "a" * 32 + "'",
    ],
)
def test_the_guard_sees(text: str) -> None:
    assert list(findings(text))


# A word that is a machine's folder only at the front of a path.
WORD = "work"


@pytest.mark.parametrize(
    "text",
    [
        f"https://example.org/{WORD}/in/progress",
        f"reports/{WORD}/x",
        "teamwork/shared/data",
        "sk-TEST-SECRET-123",
    ],
)
def test_the_guard_lets_pass(text: str) -> None:
    assert list(findings(text)) == []
