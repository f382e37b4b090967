"""The results database as a whole: what makes it, and the document that describes it.

Both come from the same objects (`tables`, `views`), so they cannot differ.
"""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Sequence
from typing import Any, Final

from backtester.errors import UsageError
from backtester.store.tables import TABLES, table_statements
from backtester.store.terms import (
    ENUMS,
    MACROS,
    Column,
    Table,
    View,
    enum_statements,
    literal,
    macro_statements,
)
from backtester.store.views import VIEWS

SCHEMA_EDITION: Final = 1
"""Raised with each release that changes a table or a view: it tells an older from a newer one."""

_INTRODUCTION: Final = (
    "reports/results.duckdb, published anew while a run goes on and at its end. Sessions are DATE, "
    "instants are TIMESTAMP and hold UTC, fractions are fractions (0.01 is one percent), nothing "
    "is rounded and no number is NaN. Ratings are ordered: ORDER BY rating runs from Sell to Buy. "
    "To compare, name the column's type: where it is rating, write rating > 'Hold'::rating; where "
    "it is rating_row, write rating > 'Hold'::rating_row AND rating < 'unread'::rating_row. A bare "
    "'Hold', or the other type, compares as text. Or filter on the number rating_rank, from -2 "
    "(Sell) over 0 (Hold) to 2 (Buy), NULL where no rating was read: rating_rank > 0. "
    "Tables with a score_id hold every score of a run: filter on it, 'default' is the run's own; "
    "views show the run's own score, and every score under a name that ends in _all. Columns "
    "marked * depend on clock, cache or machine; all others come out the same in a replay."
)


def create_statements() -> tuple[str, ...]:
    """Return every statement that makes an empty results database, in order."""
    made = (*enum_statements(), *macro_statements(), *table_statements(), *_view_statements())
    # The last one lets a later opener see that it was made by these very statements.
    stamp = f"CREATE MACRO results_schema() AS {literal(_stamp(made))}"
    return (*made, *_comment_statements(), stamp)


def schema_fingerprint() -> str:
    """Return what `results_schema()` answers in a database of this schema."""
    return _stamp(
        (*enum_statements(), *macro_statements(), *table_statements(), *_view_statements())
    )


def edition_of(schema: str) -> int:
    """Return the edition in what `results_schema()` answers; 0 from before there were editions."""
    number, dash, _ = schema.partition("-")
    return int(number) if dash and number.isdecimal() else 0


def _stamp(statements: Sequence[str]) -> str:
    return f"{SCHEMA_EDITION}-{_fingerprint(statements)}"


def stable_columns(relation: Table | View) -> tuple[str, ...]:
    """Return the names of the columns that come out the same in a replay."""
    return tuple(column.name for column in relation.columns if column.repeats)


def relation_named(name: str) -> Table | View:
    """Return a table or view by its name.

    Raises:
        UsageError: There is none; the message names the nearest.
    """
    relations = {relation.name: relation for relation in (*TABLES, *VIEWS)}
    if name not in relations:
        near = difflib.get_close_matches(name, relations, n=1, cutoff=0.0)
        raise UsageError(f"there is no table or view {name!r}: did you mean {near[0]!r}?")
    return relations[name]


def ordered_select(relation: Table | View, *, stable_only: bool = False) -> str:
    """Return the SELECT over a table or view whose rows come in the order of its key.

    Args:
        relation: Table or view.
        stable_only: Leave out the columns that depend on clock, cache or machine.
    """
    names = stable_columns(relation) if stable_only else tuple(c.name for c in relation.columns)
    columns, order = ", ".join(map(_quoted, names)), ", ".join(map(_quoted, relation.key))
    return f"SELECT {columns} FROM {_quoted(relation.name)} ORDER BY {order}"


def _quoted(name: str) -> str:
    # Some columns are words of SQL too ("end").
    return '"' + name + '"'


def schema_document(*, as_json: bool = False, name: str | None = None) -> str:
    """Return the documentation of every table, view, column, type and function, for a terminal.

    Args:
        as_json: As JSON instead of text.
        name: Of the one table or view that is wanted, without types and functions; None for all.

    Raises:
        UsageError: There is no such table or view.
    """
    if name is not None:
        return _one(relation_named(name), as_json=as_json)
    if as_json:
        return json.dumps(_as_json(), indent=2, ensure_ascii=False) + "\n"
    lines = ["RESULTS DATABASE", _INTRODUCTION, ""]
    lines += [f"ENUM {name}: {', '.join(words)}" for name, words in ENUMS.items()]
    lines += [f"{m.name}({m.parameters}): {m.meaning}" for m in MACROS]
    for relation in (*TABLES, *VIEWS):
        kind = "TABLE" if isinstance(relation, Table) else "VIEW"
        lines += ["", f"{kind} {relation.name}: {_headline(relation)}"]
        lines.append(f"  one row for each {', '.join(relation.key)}")
        if isinstance(relation, View) and relation.like:
            lines.append(f"  columns: those of {relation.like}")
            continue
        lines += _column_lines(relation)
    return "\n".join(lines) + "\n"


def _one(relation: Table | View, *, as_json: bool) -> str:
    if as_json:
        kinds = ("tables", "views")
        whole: dict[str, Any] = _as_json()
        (found,) = (one for kind in kinds for one in whole[kind] if one["name"] == relation.name)
        return json.dumps(found, indent=2, ensure_ascii=False) + "\n"
    kind = "TABLE" if isinstance(relation, Table) else "VIEW"
    lines = [f"{kind} {relation.name}: {_headline(relation)}"]
    lines += [f"  one row for each {', '.join(relation.key)}", *_column_lines(relation)]
    return "\n".join(lines) + "\n"


def _column_lines(relation: Table | View) -> list[str]:
    names = [column.name + ("" if column.repeats else " *") for column in relation.columns]
    name_width = max(len(column.name) for column in relation.columns) + 2
    type_width = max(len(_type_of(column)) for column in relation.columns)
    return [
        f"  {name:<{name_width}}  {_type_of(column):<{type_width}}  {_sentence(column)}"
        for name, column in zip(names, relation.columns, strict=True)
    ]


def schema_markdown() -> str:
    """Return the same documentation as Markdown, with the SELECT of each view."""
    lines = ["# Results database", "", _INTRODUCTION, "", "## Types and functions", ""]
    lines += [f"- `{name}`: ENUM {', '.join(words)}" for name, words in ENUMS.items()]
    lines += [f"- `{m.name}({m.parameters})`: {m.meaning}" for m in MACROS]
    for relation in (*TABLES, *VIEWS):
        kind = "Table" if isinstance(relation, Table) else "View"
        lines += ["", f"## {kind} `{relation.name}`", "", _headline(relation), ""]
        lines += [f"One row for each: {', '.join(relation.key)}.", ""]
        if isinstance(relation, View) and relation.like:
            lines += [f"Columns: those of `{relation.like}`.", "", *_sql_lines(relation)]
            continue
        lines += ["| column | type | unit | meaning | NULL |", "|---|---|---|---|---|"]
        for column in relation.columns:
            mark = "" if column.repeats else " *"
            cells = (f"{column.name}{mark}", _type_of(column), column.unit, column.meaning)
            lines.append("| " + " | ".join(_md(cell) for cell in (*cells, column.null)) + " |")
        if isinstance(relation, View):
            lines += ["", *_sql_lines(relation)]
    return "\n".join(lines) + "\n"


def _sql_lines(view: View) -> list[str]:
    return ["```sql", view.sql.strip(), "```"]


def _fingerprint(statements: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(statements).encode()).hexdigest()[:16]


def _view_statements() -> tuple[str, ...]:
    # A view of the run's own score is taken from that of every score.
    ordered = sorted(VIEWS, key=lambda view: not view.like)
    return tuple(f"CREATE VIEW {view.name} AS {view.sql}" for view in ordered)


def _comment_statements() -> tuple[str, ...]:
    """Return statements that put what each relation is for into the database itself."""
    return tuple(
        f"COMMENT ON {'TABLE' if isinstance(relation, Table) else 'VIEW'} {relation.name} "
        f"IS {literal(_headline(relation))}"
        for relation in (*TABLES, *VIEWS)
    )


def _headline(relation: Table | View) -> str:
    if isinstance(relation, Table):
        return relation.meaning
    return f"{relation.question} {relation.note}"


def _sentence(column: Column) -> str:
    unit = f" [{column.unit}]" if column.unit else ""
    null = f" NULL: {column.null}." if column.null else ""
    return f"{column.meaning}{unit}{null}"


def _type_of(column: Column) -> str:
    return f"ENUM {column.type}" if column.type in ENUMS else column.type


def _as_json() -> dict[str, object]:
    return {
        "introduction": _INTRODUCTION,
        "enums": {name: list(words) for name, words in ENUMS.items()},
        "functions": [
            {"name": m.name, "parameters": m.parameters, "meaning": m.meaning, "sql": m.sql}
            for m in MACROS
        ],
        "tables": [
            {
                "name": table.name,
                "meaning": table.meaning,
                "key": list(table.key),
                "columns": _columns_json(table),
            }
            for table in TABLES
        ],
        "views": [
            {
                "name": view.name,
                "question": view.question,
                "note": view.note,
                "key": list(view.key),
                "columns": _columns_json(view),
                "sql": view.sql.strip(),
            }
            for view in VIEWS
        ],
    }


def _columns_json(relation: Table | View) -> list[dict[str, object]]:
    return [
        {
            "name": column.name,
            "type": column.type,
            "unit": column.unit or None,
            "meaning": column.meaning,
            "null": column.null or None,
            "repeats": column.repeats,
        }
        for column in relation.columns
    ]


def _md(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*")
