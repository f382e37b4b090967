"""The words in which the results database is described: columns, tables, views, types, functions.

Conventions that hold for all tables:

* A session is a ``DATE`` in the exchange's own zone.
* An instant is a plain ``TIMESTAMP`` that holds UTC. It carries no zone on purpose: comparing,
  casting to a date and printing then give the same in every client, whatever its ``TimeZone``.
* Ratings are an ordered ENUM, so ``ORDER BY rating`` runs from Sell to Buy.
* Doubles are stored whole; nothing is rounded. None is NaN or infinite: NULL, with a reason.
* ``exact_sum``, ``exact_mean`` and ``exact_stddev`` add 18-digit decimals, so they give the same
  double for every order of the rows and every number of threads. ``sum`` and ``avg`` do not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, get_args

from backtester.records import RATINGS, CellStatus, LessonStatus, ReturnStatus
from backtester.spending.knowledge import KNOWLEDGE

UNREAD: Final = "unread"
"""Name of the row of decisions without a rating, in views that group by rating."""

LIMIT: Final = 1e9
"""Magnitude that a value which the views add up must stay under (`DECIMAL(38,18)` ends at 1e20)."""

SUMMED_UNITS: Final = ("fraction", "USD")
"""Units of the columns that the views add up."""

ENUMS: Final[dict[str, tuple[str, ...]]] = {
    "rating": RATINGS,
    "rating_row": (*RATINGS, UNREAD),
    "cell_status": get_args(CellStatus),
    "return_status": get_args(ReturnStatus),
    "lesson_status": get_args(LessonStatus),
    "knowledge": KNOWLEDGE,
}

RATING_RANK: Final = {rating: rank for rank, rating in enumerate(RATINGS, start=-2)}
"""Sell -2, Underweight -1, Hold 0, Overweight 1, Buy 2."""

RANK_MEANING: Final = (
    "The rating as a number: "
    + ", ".join(f"{name} {rank}" for name, rank in RATING_RANK.items())
    + "."
)

Read = Callable[[Any], object]


@dataclass(frozen=True, kw_only=True)
class Column:
    """Describe one column of a table or view.

    Attributes:
        name: Column name.
        type: DuckDB type, or the name of an ENUM.
        unit: Unit of the value, empty where there is none.
        meaning: One line.
        null: When the value is NULL; empty where it never is.
        source: Attribute of the record that the value comes from, dotted; ``owner.`` in front
            reads the cell or lesson that a call or read belongs to.
        read: What makes the value of what the source holds; None to take it as it is.
        repeats: A replay gives the same value. False for wall times, costs and the like, which
            depend on the machine, the clock or the cache.
    """

    name: str
    type: str
    unit: str
    meaning: str
    null: str = ""
    source: str = ""
    read: Read | None = None
    repeats: bool = True


@dataclass(frozen=True, kw_only=True)
class Table:
    """Describe one table.

    Attributes:
        name: Table name.
        meaning: What one row is.
        key: Columns that name a row; exports are ordered by them.
        columns: In order.
    """

    name: str
    meaning: str
    key: tuple[str, ...]
    columns: tuple[Column, ...]


@dataclass(frozen=True, kw_only=True)
class View:
    """Describe one view.

    Attributes:
        name: View name.
        question: The question that it answers.
        note: What a reader has to know to read it right.
        key: Columns that name a row; exports are ordered by them.
        columns: In order.
        sql: The SELECT.
        like: The view of the run's own score alone that has the same columns, or empty.
    """

    name: str
    question: str
    note: str
    key: tuple[str, ...]
    columns: tuple[Column, ...]
    sql: str
    like: str = ""


ALL_SCORES: Final = "_all"
"""What a view's name ends in that holds the rows of every score."""


def with_all_scores(view: View) -> tuple[View, View]:
    """Return the view of the run's own score, and the one of every score that it is taken from.

    A second score would double the rows of whoever does not ask for one: so that the plain name is
    the safe one.

    Args:
        view: Under its plain name, with the SELECT for every score.
    """
    own = replace(
        view, sql=f"SELECT * FROM {view.name}{ALL_SCORES} WHERE score_id = {literal('default')}"
    )
    every = replace(
        view,
        name=f"{view.name}{ALL_SCORES}",
        note=f"As {view.name}, for every score: name one, or group by score_id.",
        like=view.name,
    )
    return own, every


@dataclass(frozen=True, kw_only=True)
class Macro:
    """Describe one SQL function that the database brings along."""

    name: str
    parameters: str
    meaning: str
    sql: str


def col(
    name: str,
    type: str,  # noqa: A002 - the word that the table's reader looks for
    unit: str,
    meaning: str,
    *,
    null: str = "",
    source: str = "",
    read: Read | None = None,
    repeats: bool = True,
) -> Column:
    """Build a column; the source is the attribute of the same name unless told otherwise."""
    return Column(
        name=name,
        type=type,
        unit=unit,
        meaning=meaning,
        null=null,
        source=source or name,
        read=read,
        repeats=repeats,
    )


MACROS: Final = (
    Macro(
        name="exact_sum",
        parameters="x",
        meaning="Sum over the rows that are not NULL, the same for every row order.",
        sql="sum(x::DECIMAL(38,18))::DOUBLE",
    ),
    Macro(
        name="exact_mean",
        parameters="x",
        meaning="Mean over the rows that are not NULL, the same for every row order.",
        sql="exact_sum(x) / count(x)",
    ),
    Macro(
        name="stddev_of",
        parameters="values_, mean_, range_",
        meaning="Inner part of exact_stddev.",
        # Deviations are divided by the range first: they then lie in [-1, 1], where 18 decimals
        # neither overflow nor lose a small spread.
        sql="""CASE WHEN len(values_) < 2 THEN NULL WHEN range_ = 0 THEN 0.0
            ELSE range_ * sqrt(list_sum(list_transform(values_, lambda v:
                (((v - mean_) / range_) * ((v - mean_) / range_))::DECIMAL(38,18)))::DOUBLE
                / (len(values_) - 1)) END""",
    ),
    Macro(
        name="exact_stddev",
        parameters="x",
        meaning="Sample standard deviation (n - 1), the same for every row order; NULL below 2.",
        sql="stddev_of(list(x) FILTER (WHERE x IS NOT NULL), exact_mean(x), max(x) - min(x))",
    ),
)


def enum_statements() -> tuple[str, ...]:
    """Return the statements that create the ENUM types."""
    return tuple(
        f"CREATE TYPE {name} AS ENUM ({', '.join(literal(word) for word in words)})"
        for name, words in ENUMS.items()
    )


def macro_statements() -> tuple[str, ...]:
    """Return the statements that create the SQL functions."""
    return tuple(f"CREATE MACRO {m.name}({m.parameters}) AS {m.sql}" for m in MACROS)


def literal(text: str) -> str:
    """Quote a text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"
