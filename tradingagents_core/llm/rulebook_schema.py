"""Fit values to a JSON schema, and fill what is left with the least that it allows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

Json = str | int | float | bool | None | list["Json"] | dict[str, "Json"]
Schema = Mapping[str, object]

UNSTATED = "not stated"
MAX_DEPTH = 8


def fill(schema: Schema, known: Mapping[str, Json]) -> dict[str, Json]:
    """Build an object of a schema from known values.

    Args:
        schema: JSON schema of an object, with ``$defs`` where it refers to some.
        known: Field -> value. A value that the schema does not take is left out, and so is a
            field that the schema does not name.

    Returns:
        The fields in the schema's own order: known ones, and the required others with the least
        value that their type allows.
    """
    required = _names(schema.get("required"))
    filled: dict[str, Json] = {}
    for name, part in _mapping(schema.get("properties")).items():
        field_schema = _resolved(_mapping(part), schema, 0)
        if name in known:
            fitted = _fit(known[name], field_schema, schema)
            if fitted is not _UNFIT:
                filled[name] = cast("Json", fitted)
                continue
        if name in required:
            filled[name] = least(field_schema, schema)
    return filled


def least(schema: Schema, root: Schema, depth: int = 0) -> Json:
    """Return the least value that a schema allows.

    Args:
        schema: The schema to satisfy.
        root: The document that its references point into.
        depth: Nesting so far; an endless recursion of references ends in null.
    """
    if depth > MAX_DEPTH:
        return None
    schema = _resolved(schema, root, depth)
    if "default" in schema:
        return cast("Json", schema["default"])
    if "const" in schema:
        return cast("Json", schema["const"])
    choices = schema.get("enum")
    if isinstance(choices, list) and choices:
        return cast("Json", choices[0])
    kinds = _kinds(schema)
    if "null" in kinds:
        return None
    return _least_of(kinds[0] if kinds else "string", schema, root, depth)


_UNFIT = object()


def _least_of(kind: str, schema: Schema, root: Schema, depth: int) -> Json:
    if kind == "object":
        required = _names(schema.get("required"))
        parts = _mapping(schema.get("properties"))
        return {
            name: least(_mapping(parts.get(name)), root, depth + 1)
            for name in parts
            if name in required
        }
    if kind == "array":
        count = schema.get("minItems")
        item = _mapping(schema.get("items"))
        return [least(item, root, depth + 1) for _ in range(count if isinstance(count, int) else 0)]
    if kind == "boolean":
        return False
    if kind in ("integer", "number"):
        return _least_number(kind, schema)
    return _least_text(schema)


def _least_number(kind: str, schema: Schema) -> int | float:
    """Return zero, or a number by the bounds where zero is outside them."""
    lows = _numbers(schema, "minimum", "exclusiveMinimum")
    highs = _numbers(schema, "maximum", "exclusiveMaximum")
    tried = [0.0, *lows, *highs, *(low + 1 for low in lows), *(high - 1 for high in highs)]
    if lows and highs:
        tried.append((max(lows) + min(highs)) / 2)
    fitting = (value for value in tried if _inside(value, kind, schema))
    value = next(fitting, 0.0)
    return int(value) if kind == "integer" else value


def _inside(value: float, kind: str, schema: Schema) -> bool:
    if kind == "integer" and not value.is_integer():
        return False
    return (
        all(value >= low for low in _numbers(schema, "minimum"))
        and all(value > low for low in _numbers(schema, "exclusiveMinimum"))
        and all(value <= high for high in _numbers(schema, "maximum"))
        and all(value < high for high in _numbers(schema, "exclusiveMaximum"))
    )


def _numbers(schema: Schema, *keys: str) -> list[float]:
    found = (schema.get(key) for key in keys)
    return [float(value) for value in found if isinstance(value, int | float)]


def _least_text(schema: Schema) -> str:
    longest, shortest = schema.get("maxLength"), schema.get("minLength")
    text = UNSTATED
    if isinstance(shortest, int):
        text = text.ljust(shortest, ".")
    return text[:longest] if isinstance(longest, int) else text


def _fit(value: Json, schema: Schema, root: Schema) -> object:
    """Return the value as the schema spells it, or the mark that it does not fit."""
    options = schema.get("anyOf") or schema.get("oneOf")
    if isinstance(options, list):
        for option in options:
            fitted = _fit(value, _resolved(_mapping(option), root, 0), root)
            if fitted is not _UNFIT:
                return fitted
        return _UNFIT
    choices = schema.get("enum")
    if isinstance(choices, list):
        return _spelled(value, choices)
    kinds = _kinds(schema)
    return value if not kinds or _is_of(value, kinds) else _UNFIT


def _spelled(value: Json, choices: list[object]) -> object:
    """Pick the choice that is this word, however it is written."""
    if value in choices:
        return value
    word = _plain(str(value))
    for choice in choices:
        if isinstance(choice, str) and _plain(choice) == word:
            return choice
    return _UNFIT


def _plain(word: str) -> str:
    return word.lower().replace("_", " ").replace("-", " ")


def _is_of(value: Json, kinds: tuple[str, ...]) -> bool:
    if value is None:
        return "null" in kinds
    if isinstance(value, bool):
        return "boolean" in kinds
    if isinstance(value, int):
        return "integer" in kinds or "number" in kinds
    if isinstance(value, float):
        return "number" in kinds or ("integer" in kinds and value.is_integer())
    if isinstance(value, str):
        return "string" in kinds
    return ("array" if isinstance(value, list) else "object") in kinds


def _resolved(schema: Schema, root: Schema, depth: int) -> Schema:
    """Follow a reference into the root document, and a list of alternatives to its best one."""
    reference = schema.get("$ref")
    if isinstance(reference, str) and depth <= MAX_DEPTH:
        target: object = root
        for step in reference.removeprefix("#/").split("/"):
            target = _mapping(target).get(step)
        return _resolved(_mapping(target), root, depth + 1)
    alternatives = schema.get("allOf")
    if isinstance(alternatives, list) and len(alternatives) == 1:
        return _resolved(_mapping(alternatives[0]), root, depth + 1)
    return schema


def _kinds(schema: Schema) -> tuple[str, ...]:
    """Name the JSON types that a schema allows, in its own order."""
    kind = schema.get("type")
    if isinstance(kind, str):
        return (kind,)
    if isinstance(kind, list):
        return tuple(str(part) for part in kind)
    options = schema.get("anyOf") or schema.get("oneOf")
    if isinstance(options, list):
        return tuple(part for option in options for part in _kinds(_mapping(option)))
    return ("object",) if "properties" in schema else ()


def _mapping(value: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", value) if isinstance(value, Mapping) else {}


def _names(value: object) -> frozenset[str]:
    return frozenset(value) if isinstance(value, list) else frozenset()
