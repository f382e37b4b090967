"""The only place that reads the environment: variables, and a ``.env`` in the working folder."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from backtester import spellings
from backtester.errors import UsageError
from backtester.named_files import SETTINGS_BYTES, read_named

_DOTENV = Path(".env")
# A shorter word, such as local servers are given for a key, is no secret; nor is it always one
# twice as long, where it is no part of an address but a name.
_SECRET_LENGTH: Final = 8
# The defaults of `RunConfig`, which takes its time to load; a test compares the two.
_FOLDERS: Final = {"data_dir": Path("data"), "reports_dir": Path("reports")}


def environment() -> Mapping[str, str]:
    """Return the environment of this process."""
    return os.environ  # noqa: TID251 - the command line is the edge that may read it


def reports_folder(flag: Path | None) -> Path:
    """Return the reports folder in force, for a command that takes no other setting.

    The flag wins over the variables, under whichever name of the setting, and these over
    ``reports``.

    Raises:
        UsageError: It cannot be the path of a folder, or two variables of one prefix differ.
    """
    return _folder(flag, "--reports-dir", "reports_dir")


def data_folder(flag: Path | None) -> Path:
    """Return the data folder in force, likewise: the flag, a variable, else ``data``.

    Raises:
        UsageError: It cannot be the path of a folder, or two variables of one prefix differ.
    """
    return _folder(flag, "--data-dir", "data_dir")


def _folder(flag: Path | None, name: str, field: str) -> Path:
    given = folder_in_environment(field) if flag is None else None
    where = name if given is None else given.where
    folder = flag or (Path(given.value) if given else _FOLDERS[field])
    try:
        spellings.folder(folder)
        folder.stat()
    except (FileNotFoundError, NotADirectoryError):
        # Whether it has to be there is for the command to say.
        return folder
    except (OSError, ValueError) as error:
        words = (
            f"{folder} cannot be used ({error.strerror}): name another folder"
            if isinstance(error, OSError)
            else str(error)
        )
        raise UsageError(f"{where}: {words}") from error
    return folder


def folder_in_environment(field: str) -> spellings.Given | None:
    """Return what the environment says about one folder, or None where it says nothing.

    Nothing else is read, for a query has no use for the rest and need not fail over it.

    Args:
        field: ``data_dir`` or ``reports_dir``; other names of the setting count as well.

    Raises:
        UsageError: Two variables of one prefix name different folders.
    """
    others = (name for name, alias in spellings.ALIASES.items() if alias.key == field)
    names = (field, *others)

    def layer(prefix: str) -> Iterator[spellings.Given]:
        for name in names:
            variable = f"{prefix}{name.upper()}"
            if text := environment().get(variable, "").strip():
                where = f"environment variable {variable}"
                yield spellings.Given(name=name, where=where, value=text)

    return spellings.merge(map(layer, spellings.ENV_PREFIXES), provider="").get(field)


def load_dotenv() -> None:
    """Take variables from a ``.env`` in the working folder; those already set win.

    Raises:
        UsageError: It cannot be read, or holds what no variable can.
    """
    if not _DOTENV.is_file():
        return
    try:
        text = read_named(_DOTENV, most=SETTINGS_BYTES).decode("utf-8-sig")
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


def refuse_keys(settings: Mapping[str, str | None], *, variables: Iterable[str] = ()) -> None:
    """Refuse settings that hold a provider's key, for they are written into manifests.

    Args:
        settings: Values by the name of their setting; of an address, host and port are let pass.
        variables: Variables that hold a key, beside those of the providers.

    Raises:
        UsageError: Names setting and variable, and not the key.
    """
    from tradingagents_core.llm.providers import PROVIDERS

    owners = [*variables, *(name for row in PROVIDERS.values() for name in row.secret_variables)]
    for name, value in settings.items():
        held = _written(value or "")
        least = _SECRET_LENGTH if held != value else 2 * _SECRET_LENGTH
        for owner in owners:
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
