"""The demo's table of filings is what the SEC's own files give."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest

FOLDER = Path(os.environ.get("BACKTESTER_EXTRA_DATA", "")) / "sec"
SCRIPTS = Path(__file__).parents[2] / "scripts"

pytestmark = pytest.mark.skipif(
    not os.environ.get("BACKTESTER_EXTRA_DATA") or not FOLDER.is_dir(),
    reason="BACKTESTER_EXTRA_DATA names no folder with files of the SEC",
)


def test_the_committed_tables_are_the_extract_of_the_files() -> None:
    path = SCRIPTS / "extract_demo_statements.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = script
    spec.loader.exec_module(script)

    made = script.extract(FOLDER)

    held = SCRIPTS / "demo_statements"
    assert made.filings == (held / "filings.csv").read_text(encoding="utf-8")
    assert made.facts == (held / "facts.csv").read_text(encoding="utf-8")
