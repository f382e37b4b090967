"""Whether another score of ten thousand decisions comes in a second, files and tables included."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Mapping
from datetime import date
from pathlib import Path

import numpy as np
import pandas as pd

from backtester.book.policy import policy_named
from backtester.calendar import calendar_by_code
from backtester.imports.imports import import_decisions
from backtester.records import RATINGS
from backtester.rescore import score
from backtester.snapshots.snapshot import Snapshot, open_snapshot
from benchmarks.measure import Benchmark, Finding, Outcome, time_sides

SNAPSHOT, BENCHMARK = "us-2013-2018", "^GSPC"
TICKERS = ("AAPL", "AMZN", "GOOG", "META", "NFLX", "NVDA", "^GSPC")
CELLS = 10_000
"""One decision a session for seven instruments of the committed snapshot."""
LIMIT_S = 1.0
_DATA = Path(__file__).parents[1] / "data"
_STAYS = 0.8


def write_decisions(path: Path, cells: int) -> None:
    """Write made-up ratings that mostly stay as they were, a line a decision."""
    days = calendar_by_code("XNYS").sessions(date(2013, 1, 2), date(2018, 12, 21))
    draw = np.random.Generator(np.random.PCG64(3))
    each = math.ceil(cells / len(TICKERS))
    lines = []
    for ticker in TICKERS:
        rating = RATINGS[2]
        for day in days[:each]:
            if draw.random() > _STAYS:
                rating = RATINGS[int(draw.integers(0, len(RATINGS)))]
            lines.append(f"{ticker},{day.isoformat()},{rating}")
    path.write_text("\n".join(["ticker,date,rating", *lines[:cells], ""]), encoding="utf-8")


def _imported(folder: Path, cells: int) -> None:
    path = folder / "decisions.csv"
    write_decisions(path, cells)
    settings = {
        "snapshot": SNAPSHOT,
        "benchmark": BENCHMARK,
        "data_dir": _DATA,
        "reports_dir": folder / "reports",
    }
    import_decisions(path, settings)


def run() -> Outcome:
    """Import decisions, score them anew, and hold that against a bare pandas book."""
    snapshot = open_snapshot(SNAPSHOT, _DATA)
    with tempfile.TemporaryDirectory() as name:
        many, few = Path(name) / "many", Path(name) / "few"
        for folder, cells in ((many, CELLS), (few, len(TICKERS))):
            folder.mkdir()
            _imported(folder, cells)
            _scored(folder)
        timings = time_sides(
            {
                "another score of 10,000 decisions": lambda: _scored(many),
                "the same of 7: what any score takes": lambda: _scored(few),
                "import 10,000 decisions": lambda: _imported_anew(Path(name)),
                "one book of theirs in bare pandas": lambda: bare_book(snapshot, many),
            },
            repeats=3,
        )
        busy = min(_processor_seconds(many) for _ in range(3))
        busy -= min(_processor_seconds(few) for _ in range(3))
    scored, least, imported, bare = timings
    return Outcome(
        timings=timings,
        findings=(
            Finding(
                label="seconds beyond what any score takes",
                value=scored.median - least.median,
                unit="s",
                bound=LIMIT_S,
            ),
            Finding(label="of these, seconds of a processor", value=busy, unit="s"),
            Finding(label="score of 212 books v. one in pandas", value=scored.median / bare.median),
            Finding(label="import, settling and first score", value=imported.median, unit="s"),
        ),
    )


def _scored(folder: Path) -> None:
    score(
        "latest",
        again=True,
        reports_dir=folder / "reports",
        data_dir=_DATA,
        policy=policy_named("long_short"),
    )


def _processor_seconds(folder: Path) -> float:
    """Return what a score takes of a processor: much the same whoever else is at work."""
    started = time.process_time()
    _scored(folder)
    return time.process_time() - started


def _imported_anew(folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as name:
        _imported(Path(name), CELLS)


def bare_book(snapshot: Snapshot, folder: Path) -> float:
    """Return the total return of the ratings, long and short, as a few lines of pandas have it.

    No costs, splits or dividends, no cash, no delisting: weights times returns from open to open.
    """
    rows = pd.read_csv(folder / "decisions.csv", parse_dates=["date"])
    worth: Mapping[str, float] = policy_named("long_short").weights  # type: ignore[assignment]
    weights = rows.assign(weight=rows["rating"].map(dict(worth)))
    table = weights.pivot_table(index="date", columns="ticker", values="weight", dropna=False)
    opens = {}
    for ticker in table.columns:
        bars = snapshot.bars(ticker)
        opens[ticker] = pd.Series(bars.open, index=pd.DatetimeIndex(bars.sessions))
    prices = pd.DataFrame(opens).reindex(table.index)
    held = table.ffill().fillna(0.0).shift(1) / len(table.columns)
    returns = (prices.shift(-1) / prices - 1.0) * held
    return float(np.prod(1.0 + returns.sum(axis=1).to_numpy()) - 1.0)


RESCORE = Benchmark(
    name="rescore",
    question="Does another score of 10,000 decisions take less than a second more than one of 7?",
    run=run,
)
