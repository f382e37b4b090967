"""Write the rows of a query: as a table to look at, or as CSV, JSON or Parquet to keep.

What the file formats promise, so that equal rows are equal bytes:

* CSV: UTF-8, comma, a line feed at each end of line, a header line. NULL is an empty field, an
  empty text is ``""``. Text is quoted where it has to be. Lists are JSON text.
* JSON: an array of objects, one on each line, keys in column order. NULL, NaN and infinity are
  ``null``.
* Parquet: zstd, no statistics that depend on the machine, no writer's metadata but its version.
* In all: doubles in the shortest form that reads back the same, decimals and integers in full,
  dates as ``2018-06-29``, instants as ``2018-06-29T20:00:00``, which is UTC.
* Table: NULL is written out, doubles are cut to 8 significant digits, control characters are shown
  as escapes, so no text from a model can move the cursor of a terminal.
"""

from __future__ import annotations

import errno
import io
import json
import math
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, Literal

import pyarrow as pa

from backtester.errors import UsageError
from backtester.texts.terminal import printable

SqlFormat = Literal["table", "csv", "json", "parquet"]

TABLE_ROWS: Final = 1_000
"""Rows that a table shows; a file format shows all."""

_LONGEST_SHOWN: Final = 300
_ROWS_AT_ONCE: Final = 50_000


def rows_as_bytes(
    table: pa.Table,
    format: SqlFormat,  # noqa: A002 - the flag's word
    *,
    width: int | None = None,
) -> bytes:
    """Return rows as the bytes of one format.

    Args:
        table: Rows.
        format: ``table``, ``csv``, ``json`` or ``parquet``.
        width: Terminal width for ``table``; None for as wide as it takes.

    Raises:
        UsageError: The format is unknown or cannot hold the rows.
    """
    writer = _WRITERS.get(format)
    if writer is None:
        raise UsageError(f"unknown format {format!r}: write one of {', '.join(_WRITERS)}")
    try:
        return writer(table, width)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OverflowError, ValueError) as error:
        raise UsageError(
            f"a column cannot be written as {format} ({error}): cast it to VARCHAR"
        ) from error


def output_file(path: Path) -> Path:
    """Return the file that a name leads to, links followed; a device or a pipe as it is named.

    Raises:
        UsageError: It leads to a folder or nowhere, so nothing can be written there.
    """
    with _named(path):
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, "it is a folder")
        # What `/dev/stdout` leads to has no name of its own where it is a pipe.
        return path if _is_device(path) else path.resolve()


def save_bytes(payload: bytes, path: Path) -> None:
    """Write a file under a temporary name and put it in place.

    What is no plain file, such as ``/dev/null`` or a named pipe, is written to as it is.

    Raises:
        UsageError: The file cannot be written.
    """
    target = output_file(path)
    # Not made of the file's name, which may be as long as a name can be.
    partial = target.with_name(f".{os.getpid()}-{threading.get_ident()}.part")
    with _named(path):
        if _is_device(target):
            target.write_bytes(payload)
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            partial.write_bytes(payload)
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)


def _is_device(path: Path) -> bool:
    return path.exists() and not path.is_file()


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Turn what goes wrong with a file into one line that names it."""
    try:
        yield
    # A loop of links is a RuntimeError here, and a NUL in a name a ValueError.
    except (OSError, RuntimeError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise UsageError(
            f"{shown(path)} cannot be written ({reason or error}): name another file"
        ) from error


def shown(path: Path) -> str:
    """Return a path for a message: a very long one without its middle."""
    text = str(path)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:80]} ... {text[-80:]}"


def _csv(table: pa.Table, width: int | None) -> bytes:
    lines = [",".join(_csv_field(name) for name in table.column_names)]
    parts = ["\n".join(lines).encode()]
    for part in _parts(table):
        columns = [_texts(column, _csv_field) for column in part.columns]
        parts.append("\n".join(map(",".join, zip(*columns, strict=True))).encode())
    return b"\n".join((*parts, b""))


def _parts(table: pa.Table) -> Iterator[pa.Table]:
    """Yield the rows in parts: as Python's objects they take many times the memory."""
    for start in range(0, table.num_rows, _ROWS_AT_ONCE):
        yield table.slice(start, _ROWS_AT_ONCE)


def _csv_field(value: object) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else _plain(value)
    if text == "" or any(mark in text for mark in ',"\n\r') or text != text.strip():
        return '"' + text.replace('"', '""') + '"'
    return text


def _json(table: pa.Table, width: int | None) -> bytes:
    _require_distinct_names(table)
    keys = [json.dumps(name, ensure_ascii=False) + ": " for name in table.column_names]
    parts = []
    for part in _parts(table):
        columns = [
            [key + text for text in _texts(column, _json_text)]
            for key, column in zip(keys, part.columns, strict=True)
        ]
        rows = ("{" + ", ".join(row) + "}" for row in zip(*columns, strict=True))
        parts.append(",\n".join(rows).encode())
    return b"[\n" + b",\n".join(parts) + (b"\n" if parts else b"") + b"]\n"


def _json_text(value: object) -> str:
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else "null"
    if value is None or isinstance(value, bool | int | str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_json_text(item) for item in value) + "]"
    if isinstance(value, dict):
        pairs = (f"{_json_text(str(key))}: {_json_text(item)}" for key, item in value.items())
        return "{" + ", ".join(pairs) + "}"
    return json.dumps(_plain(value), ensure_ascii=False)


def _plain(value: object) -> str:
    """Return any value as text, the same on every machine."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, datetime):
        return value.isoformat().removesuffix("+00:00") + ("Z" if value.tzinfo else "")
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, list | tuple | dict):
        return _json_text(value)
    return str(value)


def _parquet(table: pa.Table, width: int | None) -> bytes:
    import pyarrow.parquet as pq  # a sixth of a second that the other formats need not pay

    _require_distinct_names(table)
    sink = io.BytesIO()
    plain = table.replace_schema_metadata(None).combine_chunks()
    pq.write_table(plain, sink, compression="zstd", store_schema=False, row_group_size=1 << 20)
    return sink.getvalue()


def _require_distinct_names(table: pa.Table) -> None:
    names = table.column_names
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(f"two columns are named {twice[0]!r}: give one another name with AS")


def _table(table: pa.Table, width: int | None) -> bytes:
    # Imported here: the file formats do without a terminal library.
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = table.slice(0, TABLE_ROWS)
    columns = [_texts(column, _cell) for column in shown.columns]
    drawn = Table(show_edge=False, pad_edge=False)
    for field in table.schema:
        right = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
        justify: Literal["left", "right"] = (
            "right" if right or pa.types.is_decimal(field.type) else "left"
        )
        drawn.add_column(Text(printable(field.name, keep="")), justify=justify, overflow="fold")
    for row in zip(*columns, strict=True):
        drawn.add_row(*(Text(text) for text in row))
    needed = 4 + sum(
        3 + max([len(printable(name, keep="")), *map(len, texts)])
        for name, texts in zip(table.column_names, columns, strict=True)
    )
    console = Console(file=io.StringIO(), width=width or 2 * needed, color_system=None)
    with console.capture() as capture:
        console.print(drawn)
    lines = [line.rstrip() for line in capture.get().splitlines()]
    lines.append(_footer(table.num_rows, shown.num_rows))
    return ("\n".join(lines) + "\n").encode()


def _footer(rows: int, shown: int) -> str:
    count = f"({rows} row{'' if rows == 1 else 's'}"
    if shown < rows:
        return f"{count}, the first {shown} shown; --format csv, json or parquet writes all)"
    return count + ")"


def _cell(value: object) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, float):
        return format(value, ".8g")
    return printable(value if isinstance(value, str) else _plain(value), keep="")


def _texts(column: pa.ChunkedArray[Any], write: Callable[[object], str]) -> Sequence[str]:
    return [write(value) for value in column.to_pylist()]


_WRITERS: Final[dict[str, Callable[[pa.Table, int | None], bytes]]] = {
    "table": _table,
    "csv": _csv,
    "json": _json,
    "parquet": _parquet,
}
