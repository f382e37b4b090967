"""Read decisions that others made: tables, memory logs and state logs, each with where it stood.

* CSV or Parquet with the columns ticker, date and rating, and price_target if there is one.
* The decision log that TradingAgents keeps (`trading_memory.md`): what counts is the rating that an
  entry's text declares, not the word in its first line, which older releases filled with Hold for
  want of one; an entry without a text has only that word.
* A folder of its `full_states_log_*.json`: the rating that the final decision declares.

A rating is read strictly: a cell holds one of the five or nothing, a text declares one. What
declares none is a decision that gave none. Nothing is guessed.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from backtester import spellings
from backtester.errors import DataError, UsageError
from backtester.foreign_json import plain_object
from backtester.imports.cells import day_of, rating_of, target_of, ticker_of, trial_of
from backtester.named_files import read_named
from backtester.parquet import read_parquet
from tradingagents_core.ratings import read_rating, tier_of

if TYPE_CHECKING:
    import pyarrow as pa

MOST_BYTES: Final = 512 * 2**20
_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "ticker": ("ticker", "symbol", "instrument"),
    "date": ("date", "session", "trade_date"),
    "rating": ("rating",),
    "price_target": ("price_target", "target"),
    "trial": ("trial",),
}
_NEEDED: Final = ("ticker", "date", "rating")
_ENTRY_END: Final = re.compile(r"^<!--\s*ENTRY_END\s*-->\s*$")
_TAG: Final = re.compile(r"^\[(?P<fields>[^\[\]]*\|[^\[\]]*)\]\s*$")
_SECTION: Final = re.compile(r"^(DECISION|REFLECTION):\s*$")
_STATE_LOG: Final = "full_states_log_*.json"
_LANE: Final = re.compile(r"_trial(\d{1,4})$")


@dataclass(frozen=True, kw_only=True)
class Imported:
    """Hold one decision as a file has it.

    Attributes:
        where: File and line.
        ticker: Symbol, in its one spelling.
        day: Date, session or not.
        rating: One of the five, or None.
        trial: Repeat number.
        price_target: Or None.
        text: The decision's own words, empty where there are none.
    """

    where: str
    ticker: str
    day: date
    rating: str | None
    trial: int = 0
    price_target: float | None = None
    text: str = ""


@dataclass(frozen=True, kw_only=True)
class BadRow:
    """Say what is wrong with one row, and where it stands."""

    where: str
    problem: str

    def __str__(self) -> str:
        """Return place and problem as one line."""
        return f"{self.where}: {self.problem}"


@dataclass(frozen=True, kw_only=True)
class Contents:
    """Hold what a source holds.

    Attributes:
        form: ``table``, ``memory log`` or ``state logs``.
        rows: Decisions that read.
        bad: Rows that do not.
        notes: What a reader should know.
    """

    form: str
    rows: tuple[Imported, ...]
    bad: tuple[BadRow, ...]
    notes: tuple[str, ...] = ()


def read_decisions(path: Path) -> Contents:
    """Read a file or folder of decisions; its form follows from its name.

    Raises:
        DataError: It is not there, cannot be read, or holds nothing that could be a decision.
        UsageError: Its name is that of no known form.
    """
    if path.is_dir():
        return _state_logs(path)
    suffix = path.suffix.lower()
    if suffix in (".csv", ".tsv", ".txt"):
        return _csv_table(path)
    if suffix in (".parquet", ".pq"):
        return _parquet_table(path)
    if suffix in (".md", ".markdown"):
        return _memory_log(path)
    if suffix == ".json":
        return _logs([path], path.parent)
    raise UsageError(
        f"{spellings.shown(str(path))}: its form is not known: give a .csv, .parquet or .md file, "
        f"or a folder with {_STATE_LOG}"
    )


def _text(path: Path) -> str:
    try:
        return _data(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is no UTF-8 text at byte {error.start}: save it so") from error


def _data(path: Path) -> bytes:
    try:
        return read_named(path, most=MOST_BYTES)
    except FileNotFoundError as error:
        raise DataError(f"there is no file {spellings.shown(str(path))}") from error
    except OSError as error:
        raise DataError(
            f"{path} cannot be read ({error.strerror}): name a file of decisions that may be read"
        ) from error


# -------------------------------------------------------------------------------------- tables


@dataclass(frozen=True, kw_only=True)
class _Line:
    """Hold one row: its cells by our names, or why it has none."""

    where: str
    cells: Mapping[str, Any]
    problem: str = ""


@dataclass(frozen=True, kw_only=True)
class _Unreadable:
    """Stand for a value that Arrow holds and Python cannot."""

    kind: str


def _csv_table(path: Path) -> Contents:
    records = _records(path)
    _, header = next(records, (1, []))
    if not header:
        raise DataError(_no_row(path))
    names = [name.strip() for name in header]
    columns = _columns(names, path)
    return _table(_csv_lines(records, names, columns, path.name), names, columns, path)


def _records(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the records that are not blank, each with the line that it begins on."""
    text = _text(path)
    heading = text.lstrip("\r\n").partition("\n")[0]
    reader = csv.reader(io.StringIO(text), delimiter=max(",;\t", key=heading.count), strict=True)
    try:
        while True:
            first = reader.line_num + 1
            cells = next(reader, None)
            if cells is None:
                return
            if any(cell.strip() for cell in cells):
                yield first, cells
    except csv.Error as error:
        said = str(error)
        if said.startswith("new-line character"):
            said = "line ends are CR alone: save it with LF"
        raise DataError(f"{path} is no CSV file at line {reader.line_num}: {said}") from error


def _csv_lines(
    records: Iterator[tuple[int, list[str]]],
    names: Sequence[str],
    columns: Mapping[str, int],
    file: str,
) -> Iterator[_Line]:
    # A separator at the end of the first line alone names no column, so rows may lack it.
    least = max(at for at, name in enumerate(names) if name) + 1
    for first, cells in records:
        where = f"{file}, line {first}"
        if least <= len(cells) <= len(names):
            yield _Line(where=where, cells={ours: cells[at] for ours, at in columns.items()})
        else:
            yield _Line(where=where, cells={}, problem=f"{len(cells)} cells, not {len(names)}")


def _parquet_table(path: Path) -> Contents:
    import pyarrow as pa
    import pyarrow.parquet as pq

    data = _data(path)
    try:
        names: list[str] = pq.read_schema(pa.BufferReader(data)).names
        columns = _columns(names, path)
        twice = sorted(name for name, times in Counter(names).items() if times > 1)
        if twice:
            raise DataError(
                f"{path} has the column {spellings.shown(twice[0])} more than once: keep one"
            )
        found = read_parquet(data)
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{path} is no whole Parquet file ({error})") from error
    held = {ours: _values(found.column(at)) for ours, at in columns.items()}
    rows = ({ours: values[at] for ours, values in held.items()} for at in range(found.num_rows))
    lines = (
        _Line(where=f"{path.name}, row {at}", cells=cells) for at, cells in enumerate(rows, start=1)
    )
    return _table(lines, names, columns, path)


# What Arrow raises for a value that Python has no room for, or a zone that it does not know.
_BEYOND: Final = (ArithmeticError, LookupError, NotImplementedError, ValueError)


def _values(column: pa.ChunkedArray[Any]) -> list[Any]:
    try:
        values: list[Any] = column.to_pylist()
    except _BEYOND:
        return [_value(scalar) for scalar in column]
    return values


def _value(scalar: pa.Scalar[Any]) -> Any:
    try:
        return scalar.as_py()
    except _BEYOND:
        return _Unreadable(kind=str(scalar.type))


def _table(
    lines: Iterator[_Line], names: Sequence[str], columns: Mapping[str, int], path: Path
) -> Contents:
    rows: list[Imported] = []
    bad: list[BadRow] = []
    for line in lines:
        try:
            rows.append(_row(line))
        except ValueError as error:
            bad.append(BadRow(where=line.where, problem=str(error)))
    if not rows and not bad:
        raise DataError(_no_row(path))
    read = set(columns.values())
    others = sorted({name or "(unnamed)" for at, name in enumerate(names) if at not in read})
    notes = (f"columns not read: {', '.join(others)}",) if others else ()
    return Contents(form="table", rows=tuple(rows), bad=tuple(bad), notes=notes)


def _no_row(path: Path) -> str:
    return f"{path} holds no row: it needs the columns {', '.join(_NEEDED)}"


def _columns(names: Sequence[str], path: Path) -> Mapping[str, int]:
    """Return our name -> the place of the file's column."""
    found: dict[str, int] = {}
    for ours, words in _NAMES.items():
        there = [at for at, name in enumerate(names) if name.strip().casefold() in words]
        if len(there) > 1:
            which = " and ".join(repr(names[at]) for at in there[:2])
            raise DataError(f"{path}: both {which} could be the {ours}: keep one of them")
        if there:
            found[ours] = there[0]
        elif ours in _NEEDED:
            raise DataError(
                f"{path} has no column {ours}: it needs {', '.join(_NEEDED)}, and has "
                f"{spellings.shown(', '.join(names))}"
            )
    return found


def _row(line: _Line) -> Imported:
    if line.problem:
        raise ValueError(line.problem)
    cell = line.cells.get
    for ours, value in line.cells.items():
        if isinstance(value, _Unreadable):
            raise ValueError(f"its {ours} ({value.kind}) is beyond what can be read")
    return Imported(
        where=line.where,
        ticker=ticker_of(cell("ticker")),
        day=day_of(cell("date")),
        rating=rating_of(cell("rating")),
        trial=trial_of(cell("trial")),
        price_target=target_of(cell("price_target")),
    )


# ---------------------------------------------------------------------------------- memory log


def _memory_log(path: Path) -> Contents:
    rows: list[Imported] = []
    bad: list[BadRow] = []
    turned = 0
    for entry in _entries(_text(path)):
        where = f"{path.name}, line {entry.line}"
        try:
            row, differs = _of_entry(entry, where)
        except ValueError as error:
            bad.append(BadRow(where=where, problem=str(error)))
            continue
        turned += differs
        rows.append(row)
    if not rows and not bad:
        raise DataError(f"{path} holds no entry of a decision log ([date | ticker | rating | ...])")
    notes: tuple[str, ...] = ()
    if turned:
        notes = (f"{turned} entries whose text declares another rating than their first line",)
    return Contents(form="memory log", rows=tuple(rows), bad=tuple(bad), notes=notes)


@dataclass(frozen=True, kw_only=True)
class _Entry:
    """Hold one entry: where it begins, the fields of its first line, the text of its decision."""

    line: int
    fields: tuple[str, ...]
    decision: str


def _entries(text: str) -> Iterator[_Entry]:
    line, section = 0, ""
    fields: tuple[str, ...] | None = None
    decision: list[str] = []
    for number, content in enumerate(text.splitlines(), start=1):
        if _ENTRY_END.match(content):
            if fields is not None:
                yield _Entry(line=line, fields=fields, decision="\n".join(decision).strip())
            fields, section, decision = None, "", []
        elif fields is None:
            found = _TAG.match(content)
            if found:
                line = number
                fields = tuple(part.strip() for part in found["fields"].split("|"))
        elif found := _SECTION.match(content):
            section = found[1]
        elif section == "DECISION":
            decision.append(content)
    if fields is not None:
        yield _Entry(line=line, fields=fields, decision="\n".join(decision).strip())


def _of_entry(entry: _Entry, where: str) -> tuple[Imported, bool]:
    if len(entry.fields) < 3:
        raise ValueError("its first line is not [date | ticker | rating | ...]")
    day, ticker, word = entry.fields[:3]
    declared = read_rating(entry.decision)
    rating = declared.rating if entry.decision else rating_of(word)
    told = tier_of(word)
    row = Imported(
        where=where, ticker=ticker_of(ticker), day=day_of(day), rating=rating, text=entry.decision
    )
    return row, told is not None and told != rating


# ---------------------------------------------------------------------------------- state logs


def _state_logs(folder: Path) -> Contents:
    paths = sorted(folder.rglob(_STATE_LOG))
    if not paths:
        raise DataError(f"{folder} holds no {_STATE_LOG}: name the folder of the state logs")
    return _logs(paths, folder)


def _logs(paths: list[Path], folder: Path) -> Contents:
    rows: list[Imported] = []
    bad: list[BadRow] = []
    for path in paths:
        name = str(path.relative_to(folder))
        try:
            document = plain_object(_text(path))
        except ValueError as error:
            bad.append(BadRow(where=name, problem=str(error)))
            continue
        lane = _LANE.search(path.stem)
        for where, state in _states(document, name):
            try:
                rows.append(_of_state(state, where, path, int(lane[1]) if lane else 0))
            except ValueError as error:
                bad.append(BadRow(where=where, problem=str(error)))
    return Contents(form="state logs", rows=tuple(rows), bad=tuple(bad))


def _states(document: Mapping[str, Any], name: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the states of a log: it is one, or older releases put them under their dates."""
    if "final_trade_decision" in document:
        yield name, document
        return
    for day, state in document.items():
        where = f"{name}, {json.dumps(day)[:40]}"
        yield where, state if isinstance(state, dict) else {}


def _of_state(state: Mapping[str, Any], where: str, path: Path, trial: int) -> Imported:
    text = state.get("final_trade_decision")
    if not isinstance(text, str):
        raise ValueError("has no final_trade_decision: it is no state log")
    ticker = state.get("company_of_interest")
    if not isinstance(ticker, str) or not ticker.strip():
        # Logs of older releases name the instrument in their path alone.
        ticker = path.parent.parent.name
    return Imported(
        where=where,
        ticker=ticker_of(ticker),
        day=day_of(state.get("trade_date")),
        rating=read_rating(text).rating,
        trial=trial,
        text=text,
    )
