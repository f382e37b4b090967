"""A pipeline that opens a snapshot's files: at import, past Python, and by our own door.

No world can change what it found there, so all of its outputs are equal.
"""

from __future__ import annotations

import os
from datetime import date
from pathlib import Path

import pyarrow.parquet as pq

from backtester.snapshots.snapshot import open_folder
from backtester.snapshots.view import AsOfView

FOLDER = Path(os.environ.get("LEAKY_SNAPSHOT", "nowhere"))
# Arrow opens the file by itself: no hook of Python hears of it.
ROWS = pq.read_table(str(FOLDER / "bars.parquet")).num_rows if FOLDER.is_dir() else 0


def pipeline(view: AsOfView, ticker: str, session: date) -> str:
    """Open a file through a C library on one date, the whole snapshot on the other."""
    if session == date(2018, 1, 5):
        return f"{ROWS} rows, {pq.read_table(str(FOLDER / 'bars.parquet')).num_rows} rows"
    return f"{ROWS} rows, {len(open_folder(FOLDER).bars(ticker))} bars"
