"""The decisions of a finished run in one small file, so that scoring need not read the journal.

The journal stays the truth. The file names the journal's hash and the run's results root, and holds
a hash of itself; where any of them is another, or the file is gone, the journal is read and the
file is made again. What a lesson or a call cost is not in it.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from backtester.parquet import read_parquet
from backtester.settlement.decided import Decided, Standing

STANDING_NAME: Final = ".decisions"
_FORMAT: Final = b"1"
_COLUMNS: Final[Mapping[str, pa.DataType]] = MappingProxyType(
    {
        "session": pa.date32(),
        "ticker": pa.string(),
        "trial": pa.int64(),
        "status": pa.string(),
        "rating": pa.string(),
        "scored": pa.bool_(),
    }
)
_SCHEMA: Final = pa.schema(list(_COLUMNS.items()))


def keep_standing(
    scores_folder: Path, journal: Path, results_root: str, cells: Sequence[Standing]
) -> None:
    """Write the file; call it under the run's lock. Where it cannot be written there is none.

    Args:
        scores_folder: Where a run's scores are.
        journal: The run's journal, whose cells they are.
        results_root: Of the run.
        cells: All its cells, in key order.
    """
    columns: dict[str, list[Any]] = {
        "session": [cell.key.session for cell in cells],
        "ticker": [cell.key.ticker for cell in cells],
        "trial": [cell.key.trial for cell in cells],
        "status": [cell.status for cell in cells],
        "rating": [cell.rating for cell in cells],
        "scored": [cell.scored for cell in cells],
    }
    sink = io.BytesIO()
    pq.write_table(pa.table(columns, schema=_SCHEMA), sink, compression="zstd")
    content = sink.getvalue()
    path, fresh = scores_folder / STANDING_NAME, scores_folder / f"{STANDING_NAME}.new"
    with suppress(OSError):
        scores_folder.mkdir(exist_ok=True)
        with fresh.open("wb") as file:
            file.write(_head(_hash_of(journal), results_root, content) + content)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)


def read_standing(scores_folder: Path, journal: Path, results_root: str) -> Decided | None:
    """Return the cells of a run in key order, or None where the journal has to be read."""
    try:
        head, _, content = (scores_folder / STANDING_NAME).read_bytes().partition(b"\n")
        if head + b"\n" != _head(_hash_of(journal), results_root, content):
            return None
    except OSError:
        return None
    table = read_parquet(content)
    words: dict[str, list[Any]] = {
        name: table.column(name).to_pylist() for name in ("ticker", "status", "rating")
    }
    return Decided.from_columns(
        tickers=words["ticker"],
        days=table.column("session").to_numpy(),
        trials=table.column("trial").to_numpy(),
        statuses=words["status"],
        ratings=words["rating"],
        scored=table.column("scored").to_numpy(),
    )


def _head(journal: str, results_root: str, content: bytes) -> bytes:
    own = hashlib.sha256(content).hexdigest()
    return b" ".join((_FORMAT, journal.encode(), results_root.encode(), own.encode())) + b"\n"


def _hash_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
