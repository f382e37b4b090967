"""The lock pins everything with hashes, fits the declaration, and holds no copyleft package."""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Iterator, Mapping
from importlib.metadata import Distribution, PackageNotFoundError, distribution

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from tests.guards.sources import ROOT

LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

# Words of licences that this project does not depend on. MPL-2.0 is file-level and fine.
COPYLEFT = re.compile(
    r"\b(?:A|L)?GPL|GNU (?:Affero |Lesser |Library )?General Public|SSPL|Commons Clause|BUSL"
    r"|Business Source|European Union Public",
    re.IGNORECASE,
)
KNOWN = re.compile(
    r"\b(?:MIT|MIT-0|Apache|BSD|0BSD|ISC|ISCL|MPL|Mozilla Public License|PSF|Python Software"
    r"|CNRI|Unlicense|Zlib|CC0|public domain|Permission is hereby granted, free of charge)\b",
    re.IGNORECASE,
)


@functools.cache
def pins() -> Mapping[str, Version]:
    found = re.findall(r"^([A-Za-z0-9._-]+)==([^ \\]+)", LOCK, re.MULTILINE)
    return {name.lower(): Version(version) for name, version in found}


def installed() -> Iterator[tuple[str, Distribution]]:
    for name in pins():
        try:
            yield name, distribution(name)
        except PackageNotFoundError:  # a pin for another platform
            continue


def licence_of(package: Distribution) -> str:
    """Return what a package says its licence is, its licence file's head where it says nothing."""
    fields = package.metadata.get_all("License-Expression") or []
    fields += [line.split("\n")[0] for line in package.metadata.get_all("License") or []]
    fields += [
        line
        for line in package.metadata.get_all("Classifier") or []
        if line.startswith("License ::")
    ]
    said = "; ".join(field for field in fields if field and not field.endswith("OSI Approved"))
    if said:
        return said
    texts = [
        str(file.read_text())[:2000]
        for file in sorted(package.files or [], key=str)
        if re.search(r"licen[cs]e|copying", file.name, re.IGNORECASE) and ".dist-info" in str(file)
    ]
    return "\n".join(texts)


def test_every_pin_has_hashes() -> None:
    blocks = re.split(r"^(?=[A-Za-z0-9._-]+==)", LOCK, flags=re.MULTILINE)[1:]
    bare = [block.split()[0] for block in blocks if "--hash=sha256:" not in block]
    assert bare == []
    assert len(blocks) == len(pins())


def test_the_lock_holds_every_declared_package_in_a_version_that_fits() -> None:
    declared = list(PROJECT["dependencies"])
    for extra in PROJECT["optional-dependencies"].values():
        declared += extra
    misfits = []
    for requirement in map(Requirement, declared):
        name = re.sub(r"[-_.]+", "-", requirement.name).lower()
        pin = pins().get(name)
        if pin is None or pin not in requirement.specifier:
            misfits.append(f"{requirement}: the lock has {pin}")
    assert misfits == []


def test_no_locked_package_is_copyleft() -> None:
    refused = {
        name: licence
        for name, package in installed()
        if COPYLEFT.search(licence := licence_of(package))
    }
    assert refused == {}


def test_every_locked_package_says_a_licence_that_is_known_to_be_permissive() -> None:
    unknown = {
        name: licence
        for name, package in installed()
        if not KNOWN.search(licence := licence_of(package))
    }
    assert unknown == {}


@pytest.mark.parametrize(
    "licence",
    [
        "GPL-3.0-only",
        "LGPLv3+",
        "AGPL-3.0-or-later",
        "License :: OSI Approved :: GNU Lesser General Public License v3 (LGPLv3)",
        "Apache-2.0 with Commons Clause",
    ],
)
def test_the_guard_sees(licence: str) -> None:
    assert COPYLEFT.search(licence)


@pytest.mark.parametrize("licence", ["MPL-2.0", "MIT", "BSD-3-Clause AND Zlib", "Apache 2.0"])
def test_the_guard_lets_pass(licence: str) -> None:
    assert not COPYLEFT.search(licence)
    assert KNOWN.search(licence)
