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
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any, Final, NoReturn

from backtester import spellings
from backtester.errors import DataError, UsageError
from backtester.foreign_json import plain_object
from backtester.named_files import read_named
from backtester.parquet import read_parquet
from tradingagents_core.ratings import read_rating, tier_of

MOST_BYTES: Final = 512 * 2**20
_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "ticker": ("ticker", "symbol", "instrument"),
    "date": ("date", "session", "trade_date"),
    "rating": ("rating",),
    "price_target": ("price_target", "target"),
    "trial": ("trial",),
}
_NEEDED: Final = ("ticker", "date", "rating")
_DAY: Final = re.compile(r"\d{4}-\d{2}-\d{2}")
_NO_RATING: Final = frozenset({"", "none", "n/a", "na", "null", "unread", "review"})
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
        return _table(_csv_rows(path), path)
    if suffix in (".parquet", ".pq"):
        return _table(_parquet_rows(path), path)
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
    where: str
    cells: Mapping[str, Any]


def _csv_rows(path: Path) -> Iterator[_Line]:
    text = _text(path)
    heading = text.partition("\n")[0]
    reader = csv.reader(io.StringIO(text), delimiter=max(",;\t", key=heading.count), strict=True)
    try:
        names = [name.strip() for name in next(reader, [])]
        while True:
            first = reader.line_num + 1
            cells = next(reader, None)
            if cells is None:
                return
            where = f"{path.name}, line {first}"
            if not any(cell.strip() for cell in cells):
                continue
            if len(cells) != len(names):
                yield _Line(where=where, cells={"": f"{len(cells)} cells, not {len(names)}"})
                continue
            yield _Line(where=where, cells=dict(zip(names, cells, strict=True)))
    except csv.Error as error:
        raise DataError(f"{path} is no CSV file at line {reader.line_num}: {error}") from error


def _parquet_rows(path: Path) -> Iterator[_Line]:
    import pyarrow as pa

    try:
        found = read_parquet(_data(path))
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{path} is no whole Parquet file ({error})") from error
    for at, cells in enumerate(found.to_pylist()):
        yield _Line(where=f"{path.name}, row {at + 1}", cells=cells)


def _table(lines: Iterator[_Line], path: Path) -> Contents:
    rows: list[Imported] = []
    bad: list[BadRow] = []
    names: Mapping[str, str] | None = None
    others: tuple[str, ...] = ()
    for line in lines:
        if "" in line.cells:
            bad.append(BadRow(where=line.where, problem=str(line.cells[""])))
            continue
        if names is None:
            names = _columns(line.cells, path)
            others = tuple(sorted(set(map(str, line.cells)) - set(names.values())))
        try:
            rows.append(_row(line, names))
        except ValueError as error:
            bad.append(BadRow(where=line.where, problem=str(error)))
    if not rows and not bad:
        raise DataError(f"{path} holds no row: it needs the columns {', '.join(_NEEDED)}")
    notes = (f"columns not read: {', '.join(others)}",) if others else ()
    return Contents(form="table", rows=tuple(rows), bad=tuple(bad), notes=notes)


def _columns(cells: Mapping[str, Any], path: Path) -> Mapping[str, str]:
    """Return our name -> the file's name."""
    by_word = {str(name).strip().casefold(): str(name) for name in cells}
    found: dict[str, str] = {}
    for ours, words in _NAMES.items():
        there = [by_word[word] for word in words if word in by_word]
        if len(there) > 1:
            raise DataError(f"{path}: both {there[0]!r} and {there[1]!r} could be the {ours}")
        if there:
            found[ours] = there[0]
        elif ours in _NEEDED:
            raise DataError(
                f"{path} has no column {ours}: it needs {', '.join(_NEEDED)}, and has "
                f"{spellings.shown(', '.join(map(str, cells)))}"
            )
    return found


def _row(line: _Line, names: Mapping[str, str]) -> Imported:
    def cell(ours: str) -> Any:
        return line.cells[names[ours]] if ours in names else None

    return Imported(
        where=line.where,
        ticker=_ticker(cell("ticker")),
        day=_day(cell("date")),
        rating=_rating(cell("rating")),
        trial=_trial(cell("trial")),
        price_target=_target(cell("price_target")),
    )


def _ticker(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("has no ticker")
    return spellings.symbol(value.strip())


def _day(value: object) -> date:
    if isinstance(value, datetime):
        if value.time() != datetime.min.time():
            raise ValueError(f"{value} is an instant, not a date")
        return value.date()
    if isinstance(value, date):
        return value
    if not isinstance(value, str) or not value.strip():
        raise ValueError("has no date")
    return date.fromisoformat(value.strip()) if _DAY.fullmatch(value.strip()) else _no_day(value)


def _no_day(value: str) -> NoReturn:
    raise ValueError(f"{spellings.shown(value.strip())} is no date: write it as YYYY-MM-DD")


def _rating(value: object) -> str | None:
    word = "" if value is None else str(value).strip()
    if word.casefold() in _NO_RATING:
        return None
    rating = tier_of(word)
    if rating is None:
        raise ValueError(
            f"{spellings.shown(word)} is no rating: write Buy, Overweight, Hold, Underweight, "
            "Sell, or nothing where a decision gave none"
        )
    return rating


def _trial(value: object) -> int:
    if value is None or value == "":
        return 0
    try:
        trial = int(str(value))
    except ValueError:
        trial = -1
    if not 0 <= trial < 1000:
        raise ValueError(f"trial {spellings.shown(str(value))} is no number from 0 to 999")
    return trial


def _target(value: object) -> float | None:
    if value is None or str(value).strip().casefold() in _NO_RATING:
        return None
    try:
        target = float(str(value).strip())
    except ValueError:
        target = math.nan
    if not (math.isfinite(target) and target > 0.0):
        raise ValueError(f"price target {spellings.shown(str(value))} is no number above 0")
    return target


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
    rating = declared.rating if entry.decision else _rating(word)
    told = tier_of(word)
    row = Imported(
        where=where, ticker=_ticker(ticker), day=_day(day), rating=rating, text=entry.decision
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
        ticker=_ticker(ticker),
        day=_day(state.get("trade_date")),
        rating=read_rating(text).rating,
        trial=trial,
        text=text,
    )
