"""Where the settings of a run come from: defaults, a file, the environment, flags, a manifest.

Order of precedence, lowest first: defaults, TOML file, environment (`TRADINGAGENTS_*`, then
`BACKTESTER_*`), flags. The environment is handed in as a mapping by the command line; nothing here
reads it. Settings may be given under the names of `spellings.ALIASES`, and none is coerced from
another type: a number in quotes is no number.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from backtester import spellings
from backtester.config import RunConfig
from backtester.errors import DataError, UsageError
from backtester.foreign_json import plain_object
from backtester.named_files import SETTINGS_BYTES, read_named
from backtester.spellings import (
    ALIASES,
    ENV_PREFIXES,
    WITHOUT_PLACE,
    Given,
    merge,
    shown,
    value_of_text,
)
from tradingagents_core.llm.catalogue import Catalogue, builtin_catalogue, read_catalogue
from tradingagents_core.settings import ScriptedReply, ScriptedTool

# Variables of the test suite: whoever has them set runs the commands as well.
NO_SETTINGS = ("BACKTESTER_EXTRA_DATA", "BACKTESTER_TEST_TZ")


def load_config(
    path: Path | None = None,
    *,
    settings: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
) -> RunConfig:
    """Build the configuration of a run.

    Args:
        path: TOML file with top-level keys named as `RunConfig`'s fields, or None.
        settings: A configuration in Python, which ranks as a file does; None values are skipped.
        environ: Environment to read ``TRADINGAGENTS_*`` and ``BACKTESTER_*`` from, or None for
            none. An empty variable counts as not set.
        flags: Values from the command line, or arguments of a call; None values are skipped.

    Raises:
        UsageError: For a file that cannot be read, an unknown key (with the nearest name), two
            names of one setting that differ, or a value that does not fit. It names the file or
            variable.
    """
    layers = [_from_toml(path), _from_flags(settings or {})]
    layers += [_from_environment(environ or {}, prefix) for prefix in ENV_PREFIXES]
    layers.append(_from_flags(flags or {}))
    return _built(_merged(layers))


def with_settings(flags: Mapping[str, Any], texts: Iterable[str]) -> dict[str, Any]:
    """Add what ``--set`` says to the flags, with which it ranks.

    Args:
        flags: Values by the name of their setting; those that are None were not given.
        texts: Each ``KEY=VALUE``.

    Raises:
        UsageError: As `setting`; or one setting is given twice, with different values.
    """
    given = {name: value for name, value in flags.items() if value is not None}
    for text in texts:
        name, value = setting(text)
        if given.setdefault(name, value) != value:
            raise UsageError(
                f"--set {name}: {name} is given twice, as {shown(given[name])} and "
                f"{shown(value)}: keep one of them"
            )
    return given


def _built(given: Mapping[str, Given]) -> RunConfig:
    values = {key: item.value for key, item in given.items()}
    if "script" in values:
        values["script"] = _script(values["script"])
    if "portfolio" in values:
        values["portfolio"] = _portfolio(values["portfolio"])
    try:
        return RunConfig(**values)
    except ValidationError as error:
        raise UsageError(_first_problem(error, given)) from error


def _script(value: Any) -> Any:
    """Return a script as it was given, or what the file holds that was named for it."""
    named = value[0] if isinstance(value, tuple | list) and len(value) == 1 else value
    if not isinstance(named, str):
        return value
    document = spellings.read_toml(Path(named), what="script")
    if set(document) != {"script"}:
        raise UsageError(f"script {named}: write each reply under [[script]], and nothing else")
    for reply in _tables(document["script"]):
        _require_keys(reply, ScriptedReply, f"script {named}")
        for tool in _tables(reply.get("tools")):
            _require_keys(tool, ScriptedTool, f"script {named}: tools")
    return document["script"]


def _portfolio(value: Any) -> Any:
    """Return a book as it was given, or what the file holds that was named for it."""
    if not isinstance(value, str | Path):
        return value
    where = f"portfolio {spellings.shown(str(value))}"
    try:
        return plain_object(read_named(Path(value), most=SETTINGS_BYTES).decode())
    except FileNotFoundError as error:
        raise UsageError(f"{where} does not exist: check the path") from error
    except OSError as error:
        raise UsageError(f"{where} cannot be read ({error.strerror}): name a JSON file") from error
    # Bytes that are no UTF-8 and a path that no system could open are values too.
    except ValueError as error:
        raise UsageError(
            f"{where} {error if not isinstance(error, UnicodeError) else 'is no UTF-8 text'}: "
            "write a JSON object with as_of, currency, cash and positions"
        ) from error


def _tables(value: Any) -> list[dict[str, Any]]:
    """Return the tables of a list; what else there may be is refused with the other settings."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _require_keys(
    given: dict[str, Any], kind: type[ScriptedReply] | type[ScriptedTool], where: str
) -> None:
    """Refuse a key that a reply of a script does not have, with those that it has."""
    known = [field.name for field in fields(kind)]
    for key in given:
        if key not in known:
            raise UsageError(
                f"{where}: unknown key {shown(key)}: write {', '.join(known)} "
                "('backtester models scripted' shows a sample)"
            )


def _merged(layers: Iterable[Iterable[Given]]) -> dict[str, Given]:
    return merge(layers, provider=RunConfig.model_fields["provider"].default)


def _from_toml(path: Path | None) -> Iterator[Given]:
    for name, value in (spellings.read_toml(path) if path is not None else {}).items():
        where = f"config file {path}: {name}"
        _require_known(name, f"config file {path}")
        yield Given(name=name, where=where, value=value)


def _from_environment(environ: Mapping[str, str], prefix: str) -> Iterator[Given]:
    for variable, text in sorted(environ.items()):
        if variable.startswith(prefix) and variable not in NO_SETTINGS and text.strip():
            where = f"environment variable {variable}"
            name = variable.removeprefix(prefix).lower()
            _require_known(name, where)
            yield Given(name=name, where=where, value=_read(name, text, where))


def _from_flags(flags: Mapping[str, Any]) -> Iterator[Given]:
    for name, value in flags.items():
        if value is not None:
            _require_known(name, "the settings")
            yield Given(name=name, where=name, value=value)


def _read(name: str, text: str, where: str) -> Any:
    key = ALIASES[name].key if name in ALIASES else name
    try:
        return value_of_text(RunConfig.model_fields[key].annotation, text)
    except ValueError as error:
        raise UsageError(f"{where}: {error}") from error


def _require_known(key: str, where: str) -> None:
    if key in RunConfig.model_fields or key in ALIASES:
        return
    if key in WITHOUT_PLACE:
        raise UsageError(f"{key!r} in {where} has no place here: {WITHOUT_PLACE[key]}")
    near = spellings.nearest(key, (*RunConfig.model_fields, *ALIASES))
    raise UsageError(f"unknown key {shown(key)} in {where}: {near}")


def _first_problem(error: ValidationError, given: Mapping[str, Given]) -> str:
    problems = error.errors(include_url=False)
    lacking = [str(one["loc"][0]) for one in problems if _names_a_setting(one, "missing")]
    problem = problems[0]
    if _names_a_setting(problem, "missing"):
        return spellings.missing(lacking)
    key, *inner = (str(part) for part in problem["loc"] or ("",))
    if _names_a_setting(problem, "extra_forbidden"):
        near = spellings.nearest(key, RunConfig.model_fields)
        return f"unknown config key {shown(key)}: {near}"
    said = spellings.plain(
        problem["type"], problem["msg"], problem["input"], problem.get("ctx", {})
    )
    where = given[key].where if key in given else key
    return f"{'.'.join((where, *inner))}: {said}" if where else said


def _names_a_setting(problem: ErrorDetails, kind: str) -> bool:
    """Say whether a problem of a kind is about a setting, and not about a part of one."""
    return problem["type"] == kind and len(problem["loc"]) == 1


def setting(text: str) -> tuple[str, Any]:
    """Read a ``KEY=VALUE`` of the command line.

    Returns:
        The name as it was given, and the value by the type of its field.

    Raises:
        UsageError: No equals sign, an unknown key (with the nearest name), or a value that is
            not of the field's type.
    """
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"--set {shown(text)} has no '=': write --set KEY=VALUE")
    _require_known(name, "--set")
    return name, _read(name, value, f"--set {name}")


def config_from_manifest(
    path: Path, flags: Mapping[str, Any], *, folders: Mapping[str, Path] | None = None
) -> RunConfig:
    """Build the configuration of a recorded run again, from its ``manifest.json``.

    Args:
        path: The manifest.
        flags: Values that win over it; None values are skipped.
        folders: Where this environment keeps things; they win over the manifest's and give way
            to flags. No other variable does, for it would make another run.

    Raises:
        UsageError: The file is missing, no manifest, or a flag does not fit.
    """
    try:
        document = json.loads(read_named(path, most=SETTINGS_BYTES))
        recorded = dict[str, Any](document["config"].items())
    except FileNotFoundError as error:
        raise UsageError(f"manifest {path} does not exist: check the path") from error
    except OSError as error:
        raise UsageError(
            f"manifest {path} cannot be read ({error.strerror}): name a run's manifest.json"
        ) from error
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(f"{path} is no manifest of a run: name a run's manifest.json") from error
    known = (
        Given(name=name, where=f"manifest {path}: {name}", value=value)
        for name, value in recorded.items()
    )
    return _built(_merged([known, _from_flags(folders or {}), _from_flags(flags)]))


def recorded_config(recorded: Mapping[str, Any], overrides: Mapping[str, Any]) -> RunConfig:
    """Build the configuration of a recorded run again, with some fields replaced.

    Args:
        recorded: The configuration as the run's manifest holds it.
        overrides: Fields to replace; each value wins over the recorded one.

    Raises:
        DataError: What was recorded does not fit.
        UsageError: A replacement does not fit.
    """
    try:
        RunConfig(**recorded)
    except ValidationError as error:
        raise DataError(
            f"the configuration in the run's manifest does not fit ({_first_problem(error, {})}): "
            "bring the manifest back, or run the same command again"
        ) from error
    return _built(_merged([_from_flags(recorded), _from_flags(overrides)]))


def catalogue_of(config: RunConfig) -> Catalogue:
    """Return what is known of models: the catalogue's figures, and those of the user's file.

    Raises:
        UsageError: The file that ``models_file`` names cannot be read.
        SettingsError: It has not the form of a catalogue.
    """
    return catalogue_with(config.models_file)


def catalogue_with(path: Path | None) -> Catalogue:
    """Return the catalogue, with the figures of a user's file where one is named.

    Raises:
        UsageError: The file cannot be read.
        SettingsError: It has not the form of a catalogue.
    """
    if path is None:
        return builtin_catalogue()
    own = read_catalogue(spellings.read_toml(path, what="models file"), where=f"models file {path}")
    return builtin_catalogue().updated(own)
