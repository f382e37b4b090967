"""The only place that reads the environment: variables, and a ``.env`` in the working folder."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from backtester import spellings
from backtester.errors import UsageError

_DOTENV = Path(".env")
# A shorter word, such as local servers are given for a key, is no secret; nor is it always one
# twice as long, where it is no part of an address but a name.
_SECRET_LENGTH: Final = 8


def environment() -> Mapping[str, str]:
    """Return the environment of this process."""
    return os.environ  # noqa: TID251 - the command line is the edge that may read it


def reports_folder(flag: Path | None) -> Path:
    """Return the reports folder in force: the flag, else the variable, else ``reports``.

    Raises:
        UsageError: It cannot be the path of a folder.
    """
    return _folder(flag, "--reports-dir", "BACKTESTER_REPORTS_DIR", "reports")


def data_folder(flag: Path | None) -> Path:
    """Return the data folder in force: the flag, else the variable, else ``data``.

    Raises:
        UsageError: It cannot be the path of a folder.
    """
    return _folder(flag, "--data-dir", "BACKTESTER_DATA_DIR", "data")


def _folder(flag: Path | None, name: str, variable: str, default: str) -> Path:
    given = environment().get(variable)
    folder = flag or Path(given or default)
    try:
        spellings.folder(folder)
        folder.stat()
    except (FileNotFoundError, NotADirectoryError):
        # Whether it has to be there is for the command to say.
        return folder
    except (OSError, ValueError) as error:
        where = name if flag else f"environment variable {variable}"
        words = (
            f"{folder} cannot be used ({error.strerror}): name another folder"
            if isinstance(error, OSError)
            else str(error)
        )
        raise UsageError(f"{where}: {words}") from error
    return folder


def load_dotenv() -> None:
    """Take variables from a ``.env`` in the working folder; those already set win.

    Raises:
        UsageError: It cannot be read, or holds what no variable can.
    """
    if not _DOTENV.is_file():
        return
    try:
        text = _DOTENV.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise UsageError(
            f"{_DOTENV} cannot be read ({error.strerror}): allow it, or move the file away"
        ) from error
    except UnicodeDecodeError as error:
        where = error.object.count(b"\n", 0, error.start) + 1
        raise UsageError(
            f"{_DOTENV}, line {where}: is no UTF-8 text: save the file anew"
        ) from error
    # Not by `splitlines`, for which rarer signs than an editor's end a line.
    for number, line in enumerate(text.split("\n"), 1):
        name, equals, value = line.strip().removeprefix("export ").partition("=")
        name = name.strip()
        if not equals or not name or name.startswith("#"):
            continue
        if "\0" in line:
            raise UsageError(f"{_DOTENV}, line {number}: holds a NUL byte: write the line anew")
        os.environ.setdefault(name, value.strip().strip("\"'"))  # noqa: TID251 - the edge


def refuse_keys(settings: Mapping[str, str | None], *, variable: str | None = None) -> None:
    """Refuse settings that hold a provider's key, for they are written into manifests.

    Args:
        settings: Values by the name of their setting; of an address, host and port are let pass.
        variable: Variable that holds a key, beside those of the providers.

    Raises:
        UsageError: Names setting and variable, and not the key.
    """
    from tradingagents_core.llm.factory import PROVIDERS

    variables = [variable, *(provider.key_variable for provider in PROVIDERS.values())]
    for name, value in settings.items():
        held = _written(value or "")
        least = _SECRET_LENGTH if held != value else 2 * _SECRET_LENGTH
        for owner in filter(None, variables):
            key = environment().get(owner, "").strip()
            if len(key) >= least and (key in held or key in unquote(held)):
                raise UsageError(
                    f"{name} holds the API key of {owner}, which would be written into manifests: "
                    f"take it out; the key is read from the variable {owner} alone"
                )


def _written(value: str) -> str:
    """Return what of a value may be a secret: all of it, but of an address what is after host."""
    try:
        parts = urlsplit(value)
    except ValueError:
        return value
    if parts.scheme not in ("http", "https") or "@" in parts.netloc:
        return value
    return f"{parts.path}?{parts.query}#{parts.fragment}"
