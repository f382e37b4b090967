"""The only place that reads the environment: variables, and a ``.env`` in the working folder."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

_DOTENV = Path(".env")


def environment() -> Mapping[str, str]:
    """Return the environment of this process."""
    return os.environ  # noqa: TID251 - the command line is the edge that may read it


def reports_folder(flag: Path | None) -> Path:
    """Return the reports folder in force: the flag, else the variable, else ``reports``."""
    return flag or Path(environment().get("BACKTESTER_REPORTS_DIR") or "reports")


def data_folder(flag: Path | None) -> Path:
    """Return the data folder in force: the flag, else the variable, else ``data``."""
    return flag or Path(environment().get("BACKTESTER_DATA_DIR") or "data")


def load_dotenv() -> None:
    """Take variables from a ``.env`` in the working folder; those already set win."""
    if not _DOTENV.is_file():
        return
    for line in _DOTENV.read_text(encoding="utf-8").splitlines():
        name, equals, value = line.strip().removeprefix("export ").partition("=")
        if equals and name and not name.startswith("#"):
            quoted = value.strip()
            os.environ.setdefault(name.strip(), quoted.strip("\"'"))  # noqa: TID251 - the edge
