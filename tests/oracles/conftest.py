"""The libraries that the figures are held against, loaded where a test asks for one."""

from __future__ import annotations

import importlib
import warnings
from types import ModuleType

import pytest


def loaded(name: str) -> ModuleType:
    """Import a library whose own warnings are none of the product's business."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module(name)


@pytest.fixture(scope="session")
def qs() -> ModuleType:
    """Return the statistics of quantstats (which loads its plotting libraries along)."""
    return loaded("quantstats.stats")


@pytest.fixture(scope="session")
def ffn() -> ModuleType:
    """Return ffn."""
    return loaded("ffn")
