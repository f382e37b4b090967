"""Import a script, which is run by its path and is in no package."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

from tests.guards.sources import ROOT


def load_script(name: str) -> ModuleType:
    """Return ``scripts/<name>.py`` as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look their annotations up by the name of their module.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
