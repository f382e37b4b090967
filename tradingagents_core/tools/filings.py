"""The statement tools: what a company had filed by the simulated date, period by period."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date

from tradingagents_core.errors import DataUnavailable
from tradingagents_core.protocols import Identity, Row, View
from tradingagents_core.rows import worked_out
from tradingagents_core.statements import (
    BALANCE,
    CASHFLOW,
    INCOME,
    ITEMS,
    QUARTER,
    YEAR,
    Books,
    Figure,
    books_of,
)
from tradingagents_core.tools.base import (
    ToolLimits,
    cut_notes,
    look_up,
    title,
    withheld_clause,
    withheld_notes,
)
from tradingagents_core.tools.inputs import StatementArguments
from tradingagents_core.tools.text import count_text, instant_text, one_line, price_text

STATEMENTS = "statements"
QUARTERS_SHOWN = 8
YEARS_SHOWN = 5
MOST_ITEMS = 60
_HALF = 6
_ANNUAL = "annual"
_NAMES = {INCOME: "Income statements", BALANCE: "Balance sheets", CASHFLOW: "Cash-flow statements"}
_LENGTHS = {QUARTER: "quarters", _HALF: "half-years", YEAR: "years"}


@dataclass(frozen=True, kw_only=True)
class _Table:
    """Hold the periods of a statement as they are printed.

    Attributes:
        length: Of the periods, in words.
        text: The lines.
    """

    length: str
    text: str


def statement_tool(statement: str) -> Callable[[View, StatementArguments, ToolLimits], str]:
    """Return the function of the tool that prints one statement."""
    tables = {annual: _printer(statement, annual=annual) for annual in (False, True)}

    def run(view: View, arguments: StatementArguments, limits: ToolLimits) -> str:
        del limits
        identity = look_up(view, arguments.ticker)
        rows = rows_seen(view, identity, arguments.curr_date)
        table = worked_out(rows, tables[arguments.freq == _ANNUAL])
        if table is None:
            raise DataUnavailable(
                f"no {arguments.freq} {_NAMES[statement].lower()} of {identity.symbol} were on "
                f"file by {_seen(view, arguments.curr_date)}"
            )
        lines = [
            f"# {_NAMES[statement]} of {title(identity)}, {table.length}, seen on {view.session}",
            "# Of each figure the newest filing that was public by then; newest period first",
            *withheld_notes(view, STATEMENTS, identity.instrument, end=arguments.curr_date),
            *cut_notes(view, curr_date=arguments.curr_date),
            table.text,
        ]
        return "\n".join(lines)

    return run


def books_seen(view: View, identity: Identity, end: date | None) -> Books:
    """Return what counts of what a company had filed; see `rows_seen`, also for the errors."""
    return worked_out(rows_seen(view, identity, end), books_of)


def rows_seen(view: View, identity: Identity, end: date | None) -> Sequence[Row]:
    """Return what a company had filed by the cutoff, or by an earlier day; never nothing.

    Args:
        view: Data at the cutoff.
        identity: The company.
        end: The earlier day, or None.

    Raises:
        DataUnavailable: The snapshot has no statements, the instrument is no company, or nothing
            of it was on file.
    """
    view.require(STATEMENTS, identity.instrument)
    if not identity.is_company:
        raise DataUnavailable(
            f"{identity.symbol} is of the kind {identity.asset_type}: no company stands behind it"
        )
    rows = view.rows(STATEMENTS, identity.instrument, end=end)
    if rows:
        return rows
    also = withheld_clause(view, STATEMENTS, identity.instrument, end=end)
    raise DataUnavailable(
        f"no statement of {identity.symbol} was on file by {_seen(view, end)}{also}"
    )


def public_text(figure: Figure) -> str:
    """Say which filing a figure is from, and since when it was public."""
    since = f"{one_line(figure.form, 20)}, public since {instant_text(figure.known_at)}"
    return f"{since} (estimated)" if figure.estimated else since


def amount_text(figure: Figure) -> str:
    """Write a figure as filed: money and shares as integers where they are, the rest as prices."""
    whole = figure.value == round(figure.value) and "/" not in figure.unit
    return count_text(figure.value) if whole else price_text(figure.value)


def _seen(view: View, end: date | None) -> date:
    return view.session if end is None else min(end, view.session)


def _printer(statement: str, *, annual: bool) -> Callable[[Sequence[Row]], _Table | None]:
    """Return the function that prints the periods of a statement from what was on file."""

    def table(rows: Sequence[Row]) -> _Table | None:
        # Of all statements: the ends of years, which an annual balance is of, are in the others.
        figures, length = _chosen(worked_out(rows, books_of), statement, annual)
        if not figures:
            return None
        ends = sorted({figure.period_end for figure in figures}, reverse=True)
        shown = ends[: YEARS_SHOWN if annual else QUARTERS_SHOWN]
        return _Table(length=length, text="\n".join(_lines(figures, shown, statement)))

    return table


def _chosen(books: Books, statement: str, annual: bool) -> tuple[tuple[Figure, ...], str]:
    if statement == BALANCE:
        figures = books.of(BALANCE, 0)
        if not annual:
            return figures, "at the ends of periods"
        years = {figure.period_end for figure in books.figures if figure.months == YEAR}
        return tuple(one for one in figures if one.period_end in years), "at the ends of years"
    for months in (YEAR,) if annual else (QUARTER, _HALF):
        figures = books.of(statement, months)
        if figures:
            return figures, _LENGTHS[months]
    return (), ""


def _lines(figures: Sequence[Figure], ends: Sequence[date], statement: str) -> Iterator[str]:
    at = {(figure.item, figure.period_end): figure for figure in figures}
    newest: dict[date, Figure] = {}
    for figure in figures:
        held = newest.get(figure.period_end)
        if held is None or figure.known_at > held.known_at:
            newest[figure.period_end] = figure
    yield _line("period_end", [str(end) for end in ends])
    yield _line("newest_filing", [public_text(newest[end]).replace(",", "") for end in ends])
    for item in _ordered({figure.item for figure in figures}, statement)[:MOST_ITEMS]:
        found = [at.get((item, end)) for end in ends]
        unit = next((figure.unit for figure in found if figure is not None), None)
        if unit is not None:
            yield _line(f"{item} [{unit}]", [_cell(figure, unit) for figure in found])


def _line(name: str, cells: Sequence[str]) -> str:
    # A comma in a foreign word would move the columns.
    return ",".join((one_line(name, 60).replace(",", ";"), *cells))


def _cell(figure: Figure | None, unit: str) -> str:
    if figure is None:
        return ""
    words = [amount_text(figure)]
    if figure.unit != unit:
        words.append(one_line(figure.unit, 20).replace(",", ";"))
    marks = {"derived": figure.derived, "restated": figure.restated, "estimated": figure.estimated}
    return " ".join([*words, *(mark for mark, set_ in marks.items() if set_)])


def _ordered(items: set[str], statement: str) -> list[str]:
    known = [item for item in ITEMS[statement] if item in items]
    return known + sorted(items - set(known))
