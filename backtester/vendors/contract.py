"""The rules of a vendor as checks that anybody's vendor can be put through.

    made = lambda: Vendor(VendorSettings(base_url=server.url))
    assert breaches(made, Case(wanted=Wanted(table="bars", instrument="AAPL", ...))) == ()

`breaches` asks the vendor a question that it is known to have rows for, asks it again, asks for a
symbol that nobody has and with an option that nobody has, and returns every rule that an answer
breaks. `backtester freeze --check-vendor` does so on the command line. The vendors of this package
are held to the same checks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from backtester.calendar import Calendar, calendar_of
from backtester.errors import DataError, UsageError
from backtester.schema import (
    ESTIMATED,
    INSTANT,
    PUBLISHED,
    TABLES,
    conform,
    known_at_action,
    known_at_bar,
    known_at_day,
)
from backtester.vendors.base import BadResponse, Capture, NoData, Vendor, VendorError, Wanted

RULES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "declared": "name and tables say what it can be asked for, the asked table among them",
        "typed": "what goes wrong is a VendorError, a wrong option a UsageError, nothing else",
        "answer": "it answers a Capture that holds the table, with rows, a source and a licence",
        "columns": "the columns and types are those of the schema, without NaN or surplus",
        "utc": "known_at is an instant in UTC, to the microsecond",
        "undated": "a row that nothing dates is not stored but counted in dropped_undated",
        "known_at": "known_at is set by the rule of the table",
        "capture": "nothing was public later than the capture",
        "owner": "all rows belong to the instrument that was asked for",
        "repeat": "the same answer of its source gives the same rows, notes and options",
        "stranger": "a symbol that it does not know is an error, never rows of another",
        "options": "every option that it was asked with is stated, and an unknown one refused",
        "secret": "no key is in a row, a note, an option, a source, an error or its repr",
    }
)
NO_OPTION: Final = "no_such_option"
_ABOUT: Final = {"statements": "period_end", "insider": "transaction_date"}


@dataclass(frozen=True, kw_only=True)
class Case:
    """Hold one question that a vendor is known to have rows for.

    Attributes:
        wanted: The question.
        stranger: A symbol, series or subject that its source does not have.
        secrets: Keys that the vendor was built with.
        undated: Rows without a date that its source is known to hold, or None where nobody knows.
    """

    wanted: Wanted
    stranger: str = "NOSUCHNAME"
    secrets: tuple[str, ...] = ()
    undated: int | None = None


@dataclass(frozen=True, kw_only=True)
class Breach:
    """Report a rule that is broken.

    Attributes:
        rule: Name in `RULES`.
        message: What breaks it.
    """

    rule: str
    message: str


def breaches(made: Callable[[], Vendor], case: Case) -> tuple[Breach, ...]:
    """Return what a vendor does against the rules; nothing where it keeps them.

    Args:
        made: Makes the vendor; each question is put to a new one.
        case: A question that it has rows for.

    Raises:
        VendorError: It has no answer to the question: whether it keeps the rules is not known.
    """
    return tuple(_breaches(made, case))


def _breaches(made: Callable[[], Vendor], case: Case) -> Iterator[Breach]:
    vendor = made()
    yield from _declared(vendor, case)
    capture = _tried(vendor, case.wanted)
    if isinstance(capture, VendorError | UsageError):
        raise capture
    if isinstance(capture, Exception):
        yield Breach(rule="typed", message=f"it raised {type(capture).__name__}: {capture}")
        return
    if not isinstance(capture, Capture):
        yield Breach(rule="answer", message=f"it answered a {type(capture).__name__}")
        return
    given: Mapping[str, object] = capture.rows
    for name, held in given.items():
        if not isinstance(held, pa.Table):
            words = f"its {name} are a {type(held).__name__}, not an Arrow table"
            yield Breach(rule="answer", message=words)
            return
    yield from _answered(capture, case)
    for name, rows in capture.rows.items():
        if name in TABLES:
            yield from _table(name, rows, case)
    yield from _repeated(made, capture, case)
    yield from _stranger(made, case)
    yield from _options(made, capture, case)
    yield from _secret(vendor, capture, case)


def _tried(vendor: Vendor, wanted: Wanted) -> object:
    """Return what comes of a question: an answer, whatever it is, or the error."""
    try:
        return vendor.capture(wanted)
    except Exception as error:  # noqa: BLE001 - what a vendor of one's own raises is the finding
        return error


# ------------------------------------------------------------------------------- what it says


def _declared(vendor: Vendor, case: Case) -> Iterator[Breach]:
    name, tables = getattr(vendor, "name", None), getattr(vendor, "tables", None)
    if not isinstance(name, str) or not name:
        yield Breach(rule="declared", message="it has no attribute name with a text")
    if not isinstance(tables, frozenset | set) or not tables <= set(TABLES):
        words = f"its attribute tables is not a set of {', '.join(TABLES)}"
        yield Breach(rule="declared", message=words)
    elif case.wanted.table not in tables:
        yield Breach(rule="declared", message=f"{case.wanted.table} is not among its tables")


def _answered(capture: Capture, case: Case) -> Iterator[Breach]:
    table = case.wanted.table
    if table not in capture.rows or not capture.rows[table].num_rows:
        words = f"it answered without a row of {table}: raise NoData where there is none"
        yield Breach(rule="answer", message=words)
    for name in sorted(set(capture.rows) - set(TABLES)):
        yield Breach(rule="answer", message=f"it answered a table {name!r}, which there is not")
    for name in ("source", "licence"):
        if not str(getattr(capture, name) or "").strip():
            yield Breach(rule="answer", message=f"its {name} is empty")
    counted = capture.dropped_undated
    if counted < 0 or (case.undated is not None and counted != case.undated):
        words = f"dropped_undated is {counted}, its source holds {case.undated} rows without a date"
        yield Breach(rule="undated", message=words)


# ----------------------------------------------------------------------------------- its rows


def _table(name: str, rows: pa.Table, case: Case) -> Iterator[Breach]:
    if TABLES[name].dated and "known_at" in rows.column_names:
        if rows.schema.field("known_at").type != INSTANT:
            kind = rows.schema.field("known_at").type
            yield Breach(rule="utc", message=f"{name}.known_at is of type {kind}, not {INSTANT}")
        holes = rows.column("known_at").null_count
        if holes:
            yield Breach(rule="undated", message=f"{holes} rows of {name} have no known_at")
    try:
        conformed = conform(name, rows, undated=True)
    except DataError as error:
        yield Breach(rule="columns", message=str(error))
        return
    yield from _owned(name, conformed, case.wanted)
    if TABLES[name].dated:
        dated = conformed.filter(pc.is_valid(conformed.column("known_at")))
        yield from _dated(name, dated, case.wanted)


def _owned(name: str, rows: pa.Table, wanted: Wanted) -> Iterator[Breach]:
    if "instrument" not in rows.column_names:
        return
    owners = set(rows.column("instrument").unique().to_pylist())
    strangers = sorted(map(str, owners - {wanted.instrument or None}))
    if strangers:
        words = f"asked for {wanted.instrument or 'none'}, {name} holds rows of {strangers[0]}"
        yield Breach(rule="owner", message=words)


def _dated(name: str, rows: pa.Table, wanted: Wanted) -> Iterator[Breach]:
    later: Any = pc.greater(
        rows.column("known_at"), pa.scalar(wanted.captured_at.astimezone(UTC), INSTANT)
    )
    count = rows.filter(later).num_rows
    if count:
        words = f"{count} rows of {name} are known after the capture at {wanted.captured_at}"
        yield Breach(rule="capture", message=words)
    if "known_at_basis" in rows.column_names:
        strange = set(rows.column("known_at_basis").unique().to_pylist()) - {PUBLISHED, ESTIMATED}
        for basis in sorted(map(repr, strange)):
            yield Breach(rule="known_at", message=f"{name} has a known_at_basis {basis}")
    wrong = [row for row in rows.to_pylist() if not _rightly_dated(name, row, wanted)]
    if wrong:
        key = " ".join(str(wrong[0][column]) for column in TABLES[name].key)
        words = f"{len(wrong)} rows of {name}, such as {key}, have a known_at that is not by the "
        yield Breach(
            rule="known_at",
            message=f"{words}rule ({TABLES[name].known_at}): {wrong[0]['known_at']}",
        )


def _rightly_dated(name: str, row: Mapping[str, Any], wanted: Wanted) -> bool:
    if name in ("bars", "actions"):
        calendar = calendar_of(wanted.instrument)
        day = row["session"] if name == "bars" else row["ex_session"]
        return bool(row["known_at"] == _by_calendar(name, calendar, day))
    if name in _ABOUT:
        # Not before the day that the figure is about begins anywhere on earth.
        return bool(row["known_at"].date() >= row[_ABOUT[name]])
    return True


def _by_calendar(name: str, calendar: Calendar, day: Any) -> datetime:
    if not calendar.is_session(day):
        return known_at_day(day, calendar.tz)
    return known_at_bar(calendar, day) if name == "bars" else known_at_action(calendar, day)


# ------------------------------------------------------------------------- further questions


def _repeated(made: Callable[[], Vendor], capture: Capture, case: Case) -> Iterator[Breach]:
    again = _tried(made(), case.wanted)
    if not isinstance(again, Capture):
        yield Breach(rule="repeat", message=f"asked again, it came to a {type(again).__name__}")
        return
    if set(again.rows) != set(capture.rows):
        yield Breach(rule="repeat", message="asked again, it answered other tables")
    for name in sorted(set(again.rows) & set(capture.rows)):
        # As text too, for a NaN equals nothing.
        if not again.rows[name].equals(capture.rows[name]) and (
            repr(again.rows[name].to_pylist()) != repr(capture.rows[name].to_pylist())
        ):
            words = f"asked again, {name} differs (or its source changed in between)"
            yield Breach(rule="repeat", message=words)
    for word in ("dropped_undated", "notes", "options", "source", "licence"):
        if getattr(again, word) != getattr(capture, word):
            yield Breach(rule="repeat", message=f"asked again, its {word} differ")


def _stranger(made: Callable[[], Vendor], case: Case) -> Iterator[Breach]:
    name = case.stranger
    owner = name if case.wanted.instrument else ""
    yield from _refusal(
        made,
        replace(case.wanted, symbol=name, instrument=owner),
        case,
        rule="stranger",
        asked=f"asked for {name}",
        kinds=(NoData, BadResponse),
    )


def _options(made: Callable[[], Vendor], capture: Capture, case: Case) -> Iterator[Breach]:
    for name, value in case.wanted.options.items():
        if capture.options.get(name) != value:
            words = f"asked with {name}={value}, its options say {capture.options.get(name)!r}"
            yield Breach(rule="options", message=words)
    yield from _refusal(
        made,
        replace(case.wanted, options={**case.wanted.options, NO_OPTION: "1"}),
        case,
        rule="options",
        asked=f"asked with the option {NO_OPTION}",
        kinds=(UsageError,),
    )


def _refusal(
    made: Callable[[], Vendor],
    wanted: Wanted,
    case: Case,
    *,
    rule: str,
    asked: str,
    kinds: tuple[type[Exception], ...],
) -> Iterator[Breach]:
    words = " or ".join(kind.__name__ for kind in kinds)
    came = _tried(made(), wanted)
    if not isinstance(came, Exception):
        yield Breach(rule=rule, message=f"{asked}, it answered: raise {words}")
        return
    yield from _shown(case, f"its error, {asked},", str(came))
    if not isinstance(came, kinds):
        kind = type(came).__name__
        yield Breach(rule=rule, message=f"{asked}, it raised {kind} ({came}), not {words}")


# -------------------------------------------------------------------------------------- keys


def _secret(vendor: Vendor, capture: Capture, case: Case) -> Iterator[Breach]:
    said = {
        "its repr": repr(vendor),
        "its source": capture.source,
        "its licence": capture.licence,
        "its notes": " ".join(capture.notes),
        "its options": " ".join(f"{name} {value}" for name, value in capture.options.items()),
    }
    for name, rows in capture.rows.items():
        texts = [rows.column(at) for at, one in enumerate(rows.schema) if one.type == pa.string()]
        words = (str(text) for column in texts for text in column.unique().to_pylist())
        said[f"a row of {name}"] = "\n".join(words)
    for where, text in said.items():
        yield from _shown(case, where, text)


def _shown(case: Case, where: str, text: str) -> Iterator[Breach]:
    if any(secret in text for secret in case.secrets if secret):
        yield Breach(rule="secret", message=f"{where} holds a key")
